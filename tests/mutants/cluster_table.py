"""Write the mutants of the cluster down: `python -m tests.mutants.cluster_table > tests/cluster_mutants.md`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.mutants.cluster import MUTANTS, Mutant


def table(mutants: Sequence[Mutant]) -> str:
    """Write the mutants down as a Markdown table."""
    rows = [(one.sentence, one.wrong, one.file, ", ".join(map(killer, one.killed_by))) for one in mutants]
    return "\n".join(
        [
            "# Mutants of the cluster",
            "",
            "Each is one edit of the source (`tests/mutants/cluster.py`) that takes away what keeps a promise;",
            "`tests/mutants/test_cluster_mutants.py` makes it in a copy and runs the tests that are named here: every",
            "one of them fails. Written by `python -m tests.mutants.cluster_table > tests/cluster_mutants.md`.",
            "",
            "| promise | what goes wrong without its line | file | killed by |",
            "|---|---|---|---|",
            *(f"| {sentence} | {wrong} | `{file}` | {killed_by} |" for sentence, wrong, file, killed_by in rows),
            "",
            f"{len(rows)} mutants, none alive.",
        ]
    )


def killer(test: str) -> str:
    """Name a test without its file."""
    return f"`{test.partition('::')[2]}`"


if __name__ == "__main__":
    print(table(MUTANTS))  # noqa: T201 - it is there to be printed
