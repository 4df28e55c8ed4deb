"""kairo-team: an output type, and a file that goes with the task."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

import kairo_team as kt


class Bill(BaseModel):
    """A bill."""

    seller: str
    total: float


def run(model: Any, photo: str) -> str:
    """Read a photo into a record."""
    output = kt.MiniAgent(model).run_sync("Read the bill.", files=[kt.File(path=photo)], output_type=Bill)
    return str(output.data.total)
