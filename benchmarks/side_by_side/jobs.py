"""The four jobs: what their agents are told, and the test of the code that one of them writes.

Every program takes its texts from here, so that all libraries ask the same of the same model. This module needs nothing
but Python: it runs in the environment of any library.
"""

from __future__ import annotations

from typing import Final

JOBS: Final = {
    "map_reduce": "map-reduce over documents of unknown number",
    "triage": "triage with branches",
    "write_test_fix": "write-test-fix loop",
    "support_desk": "hand-off support desk",
}

GOAL: Final = "Sum up our documents."
LISTER: Final = "You are the lister. List the documents there are, as a JSON list of names and nothing else."
READER: Final = "You are the reader. Summarise the document you are given the name of."
JOINER: Final = "You are the joiner. Join the summaries you are given into one."

MESSAGE: Final = "The app crashes when I pay, and I was charged twice."
SORTER: Final = (
    "You are the sorter. Say which of bug, billing and sales must look into it: a JSON list and nothing else."
)
BUG: Final = "You are the bug specialist. Find out what is wrong with the app."
BILLING: Final = "You are the billing specialist. Find out what is wrong with the charge."
SALES: Final = "You are the sales specialist. Find out what the customer would buy."
ANSWERER: Final = "You are the answerer. Answer the customer with what the specialists found."
SPECIALISTS: Final = {"bug": BUG, "billing": BILLING, "sales": SALES}

WRITE: Final = "Write the function `slug(title)`."
WRITER: Final = "You are the writer. Write the Python function you are asked for, and nothing else."
DOCUMENTER: Final = "You are the documenter. Say in a sentence what the function you are given does."
ROUNDS: Final = 5

FRONT: Final = "You are the front desk. Hand over to billing when it is about money; else answer."
BILLS: Final = "You are the billing desk. Hand over to refunds when money must go back; else answer."
REFUNDS: Final = "You are the refunds desk. Pay back what must go back, and answer."

CASES: Final = {"Hello World": "hello-world", "  Tea  ": "tea"}
"""Titles and their slugs: what the function must do."""


def fault(code: str) -> str | None:
    """Run the tests on the code; return what failed, or None when all passed."""
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 - it is our own scripted model that wrote it
    slug = names["slug"]
    assert callable(slug)
    for title, wanted in CASES.items():
        if (got := slug(title)) != wanted:
            return f"FAILED: slug({title!r}) is {got!r}, not {wanted!r}"
    return None
