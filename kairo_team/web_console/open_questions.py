"""The questions that wait for a person, as the console shows them, with their age and what changed since."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.web_console.made_files import last_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from kairo_team.human import HumanRequest
    from kairo_team.recorded import RecordedRun
    from kairo_team.web_console.made_files import MadeFile
    from kairo_team.web_console.sources import Deferral, Source

MOST_SHOWN: Final = 100_000
"""Characters of a subject that a page shows; the rest can be downloaded."""
_MOST_COMPARED: Final = 2_000
"""Lines of a text that are compared: the time grows with their square."""
_LONGEST_COMPARED: Final = 1_000_000
"""Characters of a text that is compared."""
_MOST_CHANGES: Final = 1_000
"""Lines of changes that are shown."""
_LINE: Final = 500
"""Characters of a changed line that are shown."""


class Changes(NamedTuple):
    """The differences from the artifact of the attempt before."""

    lines: Sequence[tuple[str, str]]
    """`+`, `-`, `@` or a blank, and the line."""
    note: str
    """A sentence on what is left out, and why; "" if all is shown."""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An open question, with what a person needs to answer it."""

    asked: HumanRequest
    asked_at: datetime
    deferral: Deferral | None
    """None for a question that was not deferred, or that its run has asked again since."""
    run: RecordedRun
    """The run that asks."""
    resume: str
    """The command that resumes the run, or the outermost run around it."""
    changes: Changes | None
    """None without an earlier attempt."""
    files: Sequence[MadeFile] = ()
    """The files of the artifact under review."""
    more_files: int = 0
    """How many more files it has."""

    @property
    def shown(self) -> str:
        """The subject, or its beginning."""
        return self.asked.subject[:MOST_SHOWN]

    @property
    def is_cut(self) -> bool:
        """Whether a part of the subject is not shown."""
        return len(self.asked.subject) > MOST_SHOWN

    @property
    def is_waited_for(self) -> bool:
        """Whether the run is under way, and may take an answer at once."""
        return self.run.state == "running" and self.deferral is None

    @property
    def answers(self) -> Mapping[str, str]:
        """The consequence of each answer; "" if it is not known."""
        given = {action: self.asked.consequences.get(action, "") for action in ("approve", "revise", "reject")}
        ends = "a run that waits for it does what else it can, and ends suspended"
        left = ends if self.is_waited_for else f"the run stays {self.run.state}"
        return given | {"defer": f"it stays open, behind the others; {left}"}

    @property
    def silence(self) -> str:
        """The consequence of giving no answer."""
        if not self.is_waited_for:
            return "it stays open" + ("" if self.run.state == "running" else f", and the run stays {self.run.state}")
        follows = self.asked.consequences.get("silence", "")
        return "the run waits" + (f"; when its gate gives up, {follows}" if follows else "")


def open_questions(source: Source, run_id: str | None = None) -> tuple[OpenQuestion, ...]:
    """Return the open questions of all runs, or of one run and the runs inside it; raises `RunNotFound`.

    The oldest question comes first, deferred ones come last.
    """
    runs: dict[str, Sequence[RecordedRun]] = {}  # each run that asks, with those around it
    made = cache(source.files)  # a run may ask a hundred questions, and its files are found among all its attempts
    found: list[OpenQuestion] = []
    for one in source.pending(run_id):
        asked = one.asked
        if asked.run_id not in runs:
            outwards = [source.show(asked.run_id)]
            while (around := outwards[-1].parent) is not None:
                outwards.append(source.show(around))
            runs[asked.run_id] = outwards
        asking, outermost = runs[asked.run_id][0], runs[asked.run_id][-1]
        changes, hint = compare(asked.before, asked.subject) if asked.before else None, source.resume_hint(outermost)
        files, more = _files(made, asked)
        found.append(OpenQuestion(asked, one.asked_at, one.deferral, asking, hint, changes, files, more))
    return tuple(found)


def _files(made: Callable[[str], Sequence[MadeFile]], question: HumanRequest) -> tuple[Sequence[MadeFile], int]:
    """Return the files of the artifact that a question is about, and how many more there are."""
    if question.kind != "review":
        return (), 0
    of_task = (one for one in made(question.run_id) if one.task_id == question.task_id)
    return last_files(one for one in of_task if one.file.digest in question.subject)


def compare(before: str, after: str) -> Changes:
    """Return the changed lines of a text, with two lines around each; a text that is too long is not compared."""
    if before == after:
        return Changes((), "Nothing has changed.")
    too_long = Changes(
        (), f"The texts are too long to compare here: over {_MOST_COMPARED:,} lines, or a million characters."
    )
    if max(len(before), len(after)) > _LONGEST_COMPARED:
        return too_long
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_COMPARED:
        return too_long
    # The first two lines would name two files.
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    more = len(lines) - _MOST_CHANGES
    cut = any(len(line) > _LINE for line in lines[:_MOST_CHANGES])
    notes = [f"{more:,} more lines are not shown."] if more > 0 else []
    notes += [f"Lines are cut after {_LINE} characters."] if cut else []
    return Changes(tuple(map(_diff_line, lines[:_MOST_CHANGES])), " ".join(notes))


def _diff_line(line: str) -> tuple[str, str]:
    """Return a line of a unified diff as its sign and text; the head of a group becomes the number of its line."""
    if line.startswith("@"):
        return "@", "line " + line.partition("+")[2].partition(" ")[0].partition(",")[0]
    return line[:1], line[1:_LINE]
