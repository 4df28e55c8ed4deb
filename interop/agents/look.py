"""The one tool of every agent."""

from __future__ import annotations


def look(at: str) -> str:
    """Look at something.

    Args:
        at: What to look at.
    """
    return f"a {at}"
