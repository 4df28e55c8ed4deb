"""Checks on unified diffs, and how a diff is applied to texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.evaluators.checks.sources import Texts, named_texts

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.verdicts import EvaluationContext

FARTHEST: Final = 200
"""Most lines between the line that a hunk names and the line where it is found."""

_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NO_FILE: Final = "/dev/null"


@by_name
def diff_applies(files: Annotated[Texts, "texts by name"] = None) -> NamedCheck:
    """Make a check that the text is a unified diff that applies to the files.

    `files` are texts by path, or a function of the context that returns them; None takes the artifacts of the task's
    dependencies, by task id. Paths may begin with `a/` and `b/`. The old lines of a hunk must be in the file unchanged,
    at the line it names or up to 200 lines away. A fence of ``` around the diff is skipped.
    """
    find = named_texts("diff_applies", files)

    def check(artifact: Artifact, context: EvaluationContext) -> CheckAnswer:
        try:
            apply_patch(artifact.text, find(context))
        except PatchError as error:
            return str(error)
        return True

    return NamedCheck("diff_applies(...)", check, source=files, in_place=False, wants_context=True)


class PatchError(Exception):
    """The text is not a unified diff, or does not apply; the message names what is wrong, and where."""


@dataclass(slots=True)
class Hunk:
    """One change to a file."""

    line: int
    """Number of the hunk's line in the diff, for messages."""
    start: int
    """First line in the old file, from 1; 0 for a new file."""
    before: list[str] = field(default_factory=list[str])
    after: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class FilePatch:
    """The changes to one file."""

    old: str | None
    """Path of the old file; None: the file is created."""
    new: str | None
    """Path of the new file; None: the file is deleted."""
    hunks: list[Hunk] = field(default_factory=list[Hunk])


def apply_patch(patch: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files after the patch; raises `PatchError`. Newlines at their ends do not matter."""
    result = {name: _lines(text) for name, text in files.items()}
    for part in read_patch(patch):
        _apply(part, result)
    return {name: "".join(f"{line}\n" for line in lines) for name, lines in result.items()}


def read_patch(patch: str) -> list[FilePatch]:
    """Read a unified diff; skip lines around its files, such as `diff --git`."""
    lines = _lines(patch)
    parts: list[FilePatch] = []
    place = 0
    while place < len(lines):
        if lines[place].startswith("--- ") and lines[place + 1 : place + 2] and lines[place + 1].startswith("+++ "):
            part = FilePatch(_path(lines[place], "a/"), _path(lines[place + 1], "b/"))
            place = _read_hunks(lines, place + 2, part)
            parts.append(part)
        elif _HUNK.match(lines[place]):
            raise PatchError(f"line {place + 1}: a hunk without the lines '--- FILE' and '+++ FILE' above it")
        else:
            place += 1
    if not parts:
        raise PatchError("it is not a unified diff: there is no '--- FILE' with '+++ FILE' below it")
    return parts


def _lines(text: str) -> list[str]:
    """Split at newlines only: in a diff, other line ends such as form feeds belong to the line."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines


def _path(line: str, prefix: str) -> str | None:
    name = line[4:].partition("\t")[0].strip()
    return None if name == _NO_FILE else name.removeprefix(prefix)


def _read_hunks(lines: Sequence[str], place: int, part: FilePatch) -> int:
    """Read the hunks of one file; return the index of the line after them."""
    first = place
    while place < len(lines) and (header := _HUNK.match(lines[place])):
        start, old, _, new = (1 if number is None else int(number) for number in header.groups())
        hunk = Hunk(place + 1, start)
        place = _read_lines(lines, place + 1, hunk, old, new)
        part.hunks.append(hunk)
    if place == first:
        raise PatchError(f"line {place + 1}: no hunk, '@@ -1,3 +1,4 @@', for {part.new or part.old}")
    return place


def _read_lines(lines: Sequence[str], place: int, hunk: Hunk, old: int, new: int) -> int:
    while len(hunk.before) < old or len(hunk.after) < new:
        if place >= len(lines):
            raise PatchError(f"line {hunk.line}: the hunk ends before the lines it announces")
        mark, text = lines[place][:1] or " ", lines[place][1:]  # editors strip the blank of an empty line
        if mark not in " +-\\":
            raise PatchError(f"line {place + 1}: a line of a hunk begins with ' ', '+' or '-', not {mark!r}")
        if mark in " -":
            hunk.before.append(text)
        if mark in " +":
            hunk.after.append(text)
        place += 1
    if len(hunk.before) > old or len(hunk.after) > new:
        raise PatchError(f"line {hunk.line}: the hunk has more lines than it announces")
    while place < len(lines) and lines[place].startswith("\\"):
        place += 1
    return place


def _apply(part: FilePatch, files: dict[str, list[str]]) -> None:
    if part.old is not None and part.old not in files:
        raise PatchError(f"there is no file {part.old!r} to change")
    lines = [] if part.old is None else files.pop(part.old)
    if part.new in files or part.new is part.old is None:  # its old name is gone by now, so this is another file
        raise PatchError(f"{part.new or _NO_FILE} cannot be created: it exists already")
    shift = 0
    for hunk in part.hunks:
        place = _find(lines, hunk, shift)
        if place is None:
            raise PatchError(f"line {hunk.line}: the hunk does not fit {part.old or part.new!r} at line {hunk.start}")
        # Hunks name lines of the old file, which have moved.
        shift = place - _place(hunk) + len(hunk.after) - len(hunk.before)
        lines[place : place + len(hunk.before)] = hunk.after
    if part.new is not None:
        files[part.new] = lines
    elif lines:
        raise PatchError(f"{part.old} is deleted by the diff, but lines of it are left")


def _place(hunk: Hunk) -> int:
    return hunk.start - 1 if hunk.before else hunk.start  # a hunk that only adds names the line before


def _find(lines: list[str], hunk: Hunk, shift: int) -> int | None:
    """Return the index of the old lines, nearest to where the hunk says; None if they are not found."""
    wanted = _place(hunk) + shift
    size = len(hunk.before)
    for place in _around(wanted, len(lines) - size):
        if lines[place : place + size] == hunk.before:
            return place
    return None


def _around(wanted: int, last: int) -> Iterator[int]:
    for distance in range(FARTHEST + 1):
        for place in dict.fromkeys((wanted + distance, wanted - distance)):  # not twice at distance 0
            if 0 <= place <= last:
                yield place
