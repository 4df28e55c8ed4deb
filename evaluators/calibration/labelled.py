"""Labelled examples: artifacts with a human's decisions, read from JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictInt, ValidationError

from kairo_team._util.frozen import EMPTY, checked, freeze
from kairo_team._util.late_pydantic import adapter
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
                f"the label of {one.artifact!r:.60} names the criterion {name!r}; there are {known(levels)}"
            )
        # True and False name the ends, so that labels fit criteria with any number of levels.
        level = there[-1 if given else 0] if isinstance(given, bool) else given
        if level not in there:
            raise ValueError(
                f"the label of {one.artifact!r:.60} has {given!r} for {name!r}; its levels are {known(there)}"
            )
        found[name] = level
    return found


def read_labelled(text: str) -> list[LabelledArtifact]:
    """Read JSON Lines: objects with the fields of a `LabelledArtifact`; fields with a default may be left out.

    Blank lines are skipped. Raises `ValueError` with the number of the line for a line that cannot be read, and for an
    example that is given twice, because it would count as two.
    """
    found: dict[Hashable, tuple[int, LabelledArtifact]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            one: LabelledArtifact = adapter(LabelledArtifact).validate_python(_object(line))
        except ValidationError as error:
            raise ValueError(f"line {number}: {_said(error)}") from None
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        earlier, _ = found.setdefault(one.shown, (number, one))
        if earlier != number:
            raise ValueError(
                f"line {number} is the same artifact as line {earlier}: each counts once, so leave one out"
            )
    return [one for _, one in found.values()]


def _object(line: str) -> dict[str, Any]:
    try:
        made: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({str(error).partition(':')[0]})") from None
    if not isinstance(made, dict):
        raise ValueError(f'it is not an object such as {{"artifact": ..., "task": ..., "passed": true}}: {line:.40}')
    return made  # pyright: ignore[reportUnknownVariableType] - the validator checks the types


_FIELDS: Final = "artifact, task, passed, and where needed attempt (default: 1), goal, upstream, reference, levels"


def _said(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] in ("missing", "missing_argument"):
        return f"it has no {where!r}; an example has {_FIELDS}"
    if first["type"] == "unexpected_keyword_argument":
        return f"it has {where!r}, which an example does not: it has {_FIELDS}"
    return f"{where!r}: {first['msg']}, not {first['input']!r:.60}"
