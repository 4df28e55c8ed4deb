"""pydantic-ai: an output type, and a part of the prompt."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent


class Bill(BaseModel):
    """A bill."""

    seller: str
    total: float


def run(model: Any, photo: str) -> str:
    """Read a photo into a record."""
    agent = Agent(model, output_type=Bill)
    return str(agent.run_sync(["Read the bill.", BinaryContent.from_path(photo)]).output.total)
