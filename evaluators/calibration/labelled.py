"""Labelled examples: artifacts with a human's decisions, read from JSON Lines."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictInt

from kairo_team._util.frozen import EMPTY, checked, freeze
from kairo_team._util.late_pydantic import adapter
from kairo_team.data.files import read_lines
from kairo_team.errors import known
from kairo_team.evaluators.fingerprint import digest_of

Bucket = Literal["1", "2", "3+"]
"""Attempts are calibrated separately by bucket: an artifact that survived a review is harder to judge."""


Texts = Annotated[Mapping[str, str], AfterValidator(freeze)]
Levels = Annotated[Mapping[str, StrictBool | str], AfterValidator(freeze)]


@checked
@dataclass(frozen=True)
class LabelledArtifact:
    """An artifact, and whether a human would pass it."""

    artifact: str
    """The artifact's text."""
    task: Annotated[str, Field(pattern=r"\S")]
    """The task that the member was given."""
    passed: StrictBool
    """The human's verdict: True to pass it, False to send it back."""
    attempt: Annotated[StrictInt, Field(ge=1)] = 1
    """Number of the attempt at its task, from 1."""
    goal: str = ""
    """The team's goal; "": the same as `task`."""
    upstream: Texts = EMPTY
    """The texts that the artifact was made from, by task id, as the judge sees them in a run."""
    reference: Annotated[str, Field(pattern=r"\S")] | None = None
    """An answer known to be right, for criteria that compare with it (`Criterion.reference`)."""
    levels: Levels = EMPTY
    """The human's answers for single criteria, by id: a level, or True for the best and False for the worst."""

    @property
    def shown(self) -> Hashable:
        """The key of an example: two examples with the same key count once, whatever their labels."""
        return self.artifact, self.task, self.goal, self.upstream, self.reference, bucket_of(self.attempt)


def bucket_of(attempt: int) -> Bucket:
    """Return the bucket of an attempt: 1, 2, or 3 and all after it."""
    return "1" if attempt <= 1 else "2" if attempt == 2 else "3+"  # noqa: PLR2004 - the second


def data_digest(labelled: Iterable[LabelledArtifact]) -> str:
    """SHA-256, in hex, of labelled examples, independent of their order."""
    return digest_of(sorted(digest_of(adapter(LabelledArtifact).dump_python(one, mode="json")) for one in labelled))


def without_doubles(labelled: Iterable[LabelledArtifact]) -> list[LabelledArtifact]:
    """Return each labelled example once: a duplicate adds no information, and would count as another draw.

    Attempts of one bucket count as equal. Raises `ValueError` where the same artifact is labelled in two ways.
    """
    found: dict[Hashable, LabelledArtifact] = {}
    for one in labelled:
        other = found.setdefault(one.shown, one)
        if (other.passed, other.levels) != (one.passed, one.levels):
            how = "both ways" if other.passed != one.passed else "with two levels for a criterion"
            raise ValueError(f"the artifact {one.artifact!r:.60} is labelled {how}: take one of the two out")
    return list(found.values())


def levels_by_id(one: LabelledArtifact, levels: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Return the human's level for each criterion; `levels` are the levels of each criterion, by id.

    Raises `ValueError` for a criterion or a level that does not exist.
    """
    found: dict[str, str] = {}
    for name, given in one.levels.items():
        there = levels.get(name)
        if there is None:
            raise ValueError(
                f"the label of {one.artifact!r:.60} names the criterion {name!r:.80}; there are {known(levels)}"
            )
        # True and False name the ends, so that labels fit criteria with any number of levels.
        level = there[-1 if given else 0] if isinstance(given, bool) else given
        if level not in there:
            raise ValueError(
                f"the label of {one.artifact!r:.60} has {given!r:.80} for {name!r}; its levels are {known(there)}"
            )
        found[name] = level
    return found


_LINE: Final = tuple(one.name for one in fields(LabelledArtifact))
"""Keys that a line of JSON Lines may have."""
_NEEDED: Final = ("artifact", "task", "passed")


def read_labelled(text: str) -> list[LabelledArtifact]:
    """Read JSON Lines: objects with the fields of a `LabelledArtifact`; fields with a default may be left out.

    Blank lines are skipped. Raises `ValueError` with the numbers of the first lines that cannot be read, or that repeat
    an example, because it would count as two.
    """
    lines: dict[Hashable, int] = {}

    def read(given: dict[str, Any], number: int) -> LabelledArtifact:
        strange = [name for name in given if name not in _LINE]
        if strange:
            raise ValueError(f"it has {known(strange)}; an example has {known(_LINE)}")
        filled: dict[str, Any] = {name: value for name, value in given.items() if value is not None}  # null: left out
        lacking = [name for name in _NEEDED if name not in filled]
        if lacking:
            raise ValueError(f"it has no {known(lacking)}; an example has {known(_NEEDED)}, and may have more")
        one = LabelledArtifact(**filled)
        earlier = lines.setdefault(one.shown, number)
        if earlier != number:
            raise ValueError(f"it is the same artifact as line {earlier}: each counts once, so leave one out")
        return one

    return read_lines(text, '{"artifact": ..., "task": ..., "passed": true}', read)
