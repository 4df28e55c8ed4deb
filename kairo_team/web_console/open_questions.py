"""The questions that wait for a person, as the console shows them: how old they are, and what changed since."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kairo_team.durable.codec import outline
from kairo_team.results import Attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.durable.journal import SqliteJournal
    from kairo_team.human import HumanRequest

MOST_SHOWN: Final = 100_000
"""Characters of a subject that a page shows; the rest can be downloaded."""
_MOST_COMPARED: Final = 2_000
"""Lines of a text that are compared: the time grows with their square."""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits, and what a person needs to answer it."""

    asked: HumanRequest
    asked_at: datetime
    changes: Sequence[tuple[str, str]] | None
    """Against the artifact of the attempt before: `+`, `-`, `@` or a blank, and the line; None where there is none."""

    @property
    def shown(self) -> str:
        """The subject, or its beginning."""
        return self.asked.subject[:MOST_SHOWN]

    @property
    def hidden(self) -> int:
        """How many characters of the subject are not shown."""
        return max(len(self.asked.subject) - MOST_SHOWN, 0)


def open_questions(journal: SqliteJournal, run_id: str | None = None) -> tuple[OpenQuestion, ...]:
    """Return the open questions, of one run and those inside it or of all, the oldest first; raises `RunNotFound`."""
    with journal.database.reading() as connection:
        asked_at = dict(connection.execute("SELECT id, asked_at FROM question").fetchall())
    return tuple(
        OpenQuestion(one, datetime.fromtimestamp(asked_at[one.id], UTC), _changes(journal, one))
        for one in journal.pending(run_id)
        if one.id in asked_at
    )


def _changes(journal: SqliteJournal, question: HumanRequest) -> Sequence[tuple[str, str]] | None:
    """Compare a reviewed artifact with that of the attempt before."""
    if question.kind != "review" or question.attempt < 2 or question.task_id is None:  # noqa: PLR2004 - the second
        return None
    before = _artifact_before(journal, question.run_id, question.task_id, question.attempt)
    if before is None or before == question.subject:
        return None
    old, new = before.splitlines(), question.subject.splitlines()
    if max(len(old), len(new)) > _MOST_COMPARED:
        return None
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    return tuple((line[:1], line[1:]) for line in lines)


def _artifact_before(journal: SqliteJournal, run_id: str, task_id: str, attempt: int) -> str | None:
    """Return the text of the last artifact that a task had before an attempt."""
    sql = "SELECT value FROM step WHERE run_id = ? AND key LIKE 'attempt:%' AND instr(key, ?) ORDER BY id DESC"
    with journal.database.reading() as connection:
        rows = connection.execute(sql, (run_id, f":{task_id}:")).fetchall()
    for row in rows:
        made = outline(row["value"])
        if isinstance(made, Attempt) and made.number < attempt and made.task_id == task_id and made.artifact:
            return made.artifact.text
    return None
