"""Write the mutants of the governor down: `python -m tests.mutants.kill_table > tests/governor_mutants.md`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.mutants.governor import MUTANTS
from tests.mutants.mutant import CROWD, LAW, TRIO, Mutant

MACHINES = {
    LAW: "the state machine",
    CROWD: "the state machine with a crowd of tasks (asyncio)",
    TRIO: "the state machine with a crowd of tasks (trio)",
}


def table(mutants: Sequence[Mutant]) -> str:
    """Write the mutants down as a Markdown table."""
    rows = [(one.name, one.wrong, ", ".join(killer(test) for test in one.killed_by)) for one in mutants]
    return "\n".join(
        [
            "# Mutants of the governor",
            "",
            "Each is one edit of the source (`tests/mutants/governor.py`); `tests/mutants/test_governor_mutants.py`",
            "makes it in a copy and runs the tests that are named here: every one of them fails. Written by",
            "`python -m tests.mutants.kill_table > tests/governor_mutants.md`.",
            "",
            "| mutant | what goes wrong | killed by |",
            "|---|---|---|",
            *(f"| {name} | {wrong} | {killed_by} |" for name, wrong, killed_by in rows),
            "",
            f"{len(rows)} mutants, none alive.",
        ]
    )


def killer(test: str) -> str:
    """Say what a test is: one of the state machines, or a test by its name."""
    return MACHINES.get(test) or f"`{test.partition('::')[2]}`"


if __name__ == "__main__":
    print(table(MUTANTS))  # noqa: T201 - it is there to be printed
