"""A cell of a notebook, run by a real kernel."""

from __future__ import annotations

from typing import Any

import pytest


def output_of(cell: str) -> Any:
    """Return the one output of a cell; skip the test where what runs a notebook is not installed."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: no notebook is run")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: no notebook is run")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: no notebook is run")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    return output
