"""`Dataset`: the cases of an eval, read from JSON Lines and from datasets of pydantic-evals."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import AfterValidator, Field, InstanceOf

from kairo_team._util.frozen import EMPTY, checked, freeze_json, thaw
from kairo_team.data.files import read_lines
from kairo_team.errors import known, repeated
from kairo_team.evaluators.fingerprint import digest_of
from kairo_team.evaluators.rubric import Rubric
from kairo_team.tasks import check_id

_LINE: Final = ("id", "input", "context", "reference", "metadata")
"""Keys that a line of JSON Lines may have."""
_MOST_ID: Final = 80
"""Most characters of an id that is made from a name."""


@checked
@dataclass(frozen=True)
class Case:
    """One job for the team, and what is known about a good result.

    >>> Case("tides", "Explain tides.", reference="The moon pulls the sea.")
    """

    id: Annotated[str, AfterValidator(check_id)]
    input: Annotated[str, Field(pattern=r"\S")]
    """The team's goal."""
    context: Annotated[Mapping[str, Any], AfterValidator(freeze_json)] = field(default=EMPTY)
    """JSON values that every member can read, as `TeamExecutionRequest.context`."""
    _: KW_ONLY
    reference: str | None = None
    """A good answer. Criteria with `reference=True` and checks see it; the team never does."""
    metadata: Annotated[Mapping[str, Any], AfterValidator(freeze_json)] = field(default=EMPTY)
    """JSON values for you: neither the team nor a judge sees them."""
    rubric: InstanceOf[Rubric] | None = None
    """Criteria of this case only, added to the eval's."""


@dataclass(frozen=True)
class Dataset:
    """Cases in their order. Raises `ValueError` for no cases and for ids given twice."""

    cases: Sequence[Case]
    name: str = "dataset"
    rubric: Rubric | None = None
    """Decides about every case, unless the eval has a rubric of its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cases", tuple(self.cases))
        if not self.cases:
            raise ValueError("a dataset needs at least one case")
        for one in cast("Sequence[Any]", self.cases):
            if not isinstance(one, Case):
                raise ValueError(f"a dataset is made of Case objects, not {one!r:.80}")
        twice = repeated(one.id for one in self.cases)
        if twice:
            raise ValueError(f"the ids of cases must be unique; given twice: {known(twice)}")

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the cases' ids, inputs, contexts and references, independent of their order."""
        cases = sorted(self.cases, key=lambda one: one.id)
        return digest_of([[one.id, one.input, thaw(one.context), one.reference] for one in cases])

    @classmethod
    def load(cls, path: str | Path, *, with_rubric: bool = True) -> Dataset:
        """Read a file: JSON Lines with a case a line, or a dataset of pydantic-evals in JSON or YAML.

        A line is `{"input": "Explain tides.", "id": ..., "context": {...}, "reference": ..., "metadata": {...}}`; all
        but `input` may be left out. Evaluators of a pydantic-evals dataset become the rubric; `with_rubric=False`
        leaves them out. Raises `ValueError` that names the file, the line or the case, and what is allowed there, and
        `OSError` for a file that cannot be read.
        """
        from kairo_team.evals.pydantic_dataset import from_pydantic_evals, read_document

        path = Path(path)
        document = None if path.suffix == ".jsonl" else read_document(path)
        try:
            if document is None:
                return cls(read_cases(path.read_text(encoding="utf-8")), path.stem)
            return from_pydantic_evals(document, path.stem, with_rubric=with_rubric)
        except UnicodeDecodeError:
            raise ValueError(f"{path}: it is not UTF-8 text") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write a file that `load` reads: JSON Lines for a name that ends so, else a dataset of pydantic-evals.

        Raises `ValueError` if a rubric has criteria that the file cannot hold.
        """
        from kairo_team.evals.pydantic_dataset import to_pydantic_evals, write_document

        path = Path(path)
        if path.suffix == ".jsonl":
            path.write_text(write_lines(self), encoding="utf-8", newline="\n")
        else:
            path.write_text(write_document(to_pydantic_evals(self), path), encoding="utf-8", newline="\n")


def read_cases(text: str) -> list[Case]:
    """Read JSON Lines; blank lines are left out. `ValueError` names the first lines that cannot be read."""
    return read_lines(text, '{"input": "Explain tides."}', _read_case)


def _read_case(given: dict[str, Any], number: int) -> Case:
    strange = [name for name in given if name not in _LINE]
    if strange:
        raise ValueError(f"it has {known(strange)}; a case has {known(_LINE)}")
    fields: Any = {name: one for name, one in given.items() if one is not None}
    if "input" not in fields:
        raise ValueError("it has no 'input', which is the team's goal")
    fields.setdefault("id", f"case-{number:04d}")
    return Case(**fields)


def write_lines(dataset: Dataset) -> str:
    """Write cases as JSON Lines; `ValueError` for a rubric, which a line cannot hold."""
    if dataset.rubric is not None or any(one.rubric is not None for one in dataset.cases):
        raise ValueError("JSON Lines cannot hold a rubric: write the dataset to a .json or .yaml file")
    return "".join(f"{json.dumps(_as_line(one), ensure_ascii=False)}\n" for one in dataset.cases)


def _as_line(case: Case) -> dict[str, Any]:
    given = {name: thaw(getattr(case, name)) for name in _LINE}
    return {name: one for name, one in given.items() if name in ("id", "input") or one not in (None, {})}


def id_of(name: str, taken: Collection[str] = ()) -> str:
    """Make an id from a name, different from the ids `taken`."""
    made = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-")[:_MOST_ID] or "case"
    number, unique = 1, made
    while unique in taken:
        number += 1
        unique = f"{made}-{number}"
    return unique
