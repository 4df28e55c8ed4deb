"""What the programs of all libraries share: texts, and how many lines each program has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.side_by_side.lines import written

GLOSSARY: Final = {"tide": "Gezeit", "harbour": "Hafen"}
SENTENCE: Final = "The tide in the harbour."
SHOP: Final = "file:shop.db?mode=ro"
QUESTION: Final = "What did Brest sell for?"
CONTRACT: Final = "1. The term ends on 31 May 2027. 2. The rent is 900 euros."
CHUNKS: Final = ("Anna opens at nine.", "Ben wants a boat.", "The boat is voted for.")
ORDER: Final = "Write slug(t) in Python; answer with code alone."
TEST: Final = "assert slug('A B') == 'a-b'"
DOCUMENTS: Final = tuple(f"document {number}" for number in range(200))
PEERS: Final = {
    "glossary": "pydantic_ai",
    "database": "pydantic_ai",
    "contract": "pydantic_ai",
    "minutes": "langgraph",
    "fix": "pydantic_ai",
    "approval": "langgraph",
    "documents": "langgraph",
    "photo": "pydantic_ai",
}
"""The peer that each job is compared with."""


def lines(library: str, job: str) -> int:
    """Count the lines of a program that its user writes."""
    return written((Path(__file__).parent / f"{library}_{job}.py").read_text(encoding="utf-8"))


if __name__ == "__main__":
    for name, peer in PEERS.items():
        print(f"{name}: kairo_team {lines('kairo_team', name)}, {peer} {lines(peer, name)}")
