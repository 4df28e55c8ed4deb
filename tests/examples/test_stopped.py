"""Examples that a person stops with Ctrl-C say how to go on, without a traceback."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from kairo_team import examples

FOLDER = Path(examples.__path__[0])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("pull_request", []), ("mail_triage", []), ("clean_csv", []), ("research", ["--documents", str(FOLDER)])],
)
def test_an_example_that_is_stopped_says_how_to_go_on(
    name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(anyio, "run", stopped)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert ended.value.code == "stopped; with --journal, the same command continues the run"
