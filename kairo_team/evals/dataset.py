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
from kairo_team._util.narrowing import is_list
from kairo_team.data.files import read_data, read_lines
from kairo_team.errors import known, repeated
from kairo_team.evaluators import checks
from kairo_team.evaluators.checks.named_check import Made
from kairo_team.evaluators.criterion import Check, Criterion
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
        path = Path(path)
        if path.suffix.lower() not in (".jsonl", ".json", ".toml", *_YAML):
            raise ValueError(f"{path}: a dataset is read from .jsonl, .json or .yaml, not {path.suffix!r}")
        document = None if path.suffix.lower() == ".jsonl" else read_data(path, largest=_LARGEST).value
        try:
            if document is None:
                text = path.read_text(encoding="utf-8")
                return cls(read_lines(text, '{"input": "Explain tides."}', _read_case), path.stem)
            return from_pydantic_evals(document, path.stem, with_rubric=with_rubric)
        except UnicodeDecodeError:
            raise ValueError(f"{path}: it is not UTF-8 text") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write a file that `load` reads: JSON Lines for a name that ends so, else a dataset of pydantic-evals.

        Raises `ValueError` for a criterion, or a `goal` in a context, that the file cannot hold.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix == ".jsonl":
            text = _written_lines(self)
        else:
            document = to_pydantic_evals(self)
            if suffix not in (".json", *_YAML):
                raise ValueError(f"{path}: a dataset is written to .jsonl, .json or .yaml, not {path.suffix!r}")
            # JSON is valid YAML, so this needs no YAML library.
            text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
        path.write_text(text, encoding="utf-8", newline="\n")  # the same bytes on every system


def _read_case(given: dict[str, Any], number: int) -> Case:
    strange = [name for name in given if name not in _LINE]
    if strange:
        hint = "; a good answer is its reference" if {*strange} & {"expected", "expected_output", "output"} else ""
        raise ValueError(f"it has {known(strange)}; a case has {known(_LINE)}{hint}")
    fields: Any = {name: one for name, one in given.items() if one is not None}  # null means left out
    if "input" not in fields:
        raise ValueError("it has no 'input', which is the team's goal")
    fields.setdefault("id", f"case-{number:04d}")
    return Case(**fields)


def _written_lines(dataset: Dataset) -> str:
    if dataset.rubric is not None or any(one.rubric is not None for one in dataset.cases):
        raise ValueError("JSON Lines cannot hold a rubric: write the dataset to a .json or .yaml file")
    lines: list[str] = []
    for case in dataset.cases:
        given = {name: thaw(getattr(case, name)) for name in _LINE}
        kept = {name: one for name, one in given.items() if name in ("id", "input") or one not in (None, {})}
        lines.append(f"{json.dumps(kept, ensure_ascii=False)}\n")
    return "".join(lines)


def id_of(name: str, taken: Collection[str] = ()) -> str:
    """Make an id from a name, different from the ids `taken`."""
    made = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-")[:_MOST_ID] or "case"
    number, unique = 1, made
    while unique in taken:  # two names may give the same id
        number += 1
        unique = f"{made}-{number}"
    return unique


_CASE: Final = ("name", "inputs", "metadata", "expected_output", "evaluators")
_DATASET: Final = ("$schema", "name", "cases", "evaluators", "report_evaluators")
_LARGEST: Final = 50_000_000
"""Most characters of a dataset."""
_YAML: Final = (".yaml", ".yml")


def from_pydantic_evals(document: Any, name: str = "dataset", *, with_rubric: bool = True) -> Dataset:
    """Make a dataset from the content of a file of pydantic-evals.

    If `inputs` is a text, it is the goal; of an object with a `goal` the rest is the context; anything else becomes a
    goal in JSON. `expected_output` is the reference. The evaluators `EqualsExpected`, `Equals`, `Contains` and
    `LLMJudge` become criteria; a judge's model is not taken from the file. Raises `ValueError` that names the case, for
    any other evaluator too: with `with_rubric=False` evaluators are left out.
    """
    if not isinstance(document, dict) or not isinstance(document.get("cases"), list):  # pyright: ignore[reportUnknownMemberType] - JSON
        raise ValueError('a dataset of pydantic-evals is an object with a list of "cases"')
    given = cast("dict[str, Any]", document)
    _refuse_strange("the dataset", given, _DATASET)
    cases: dict[str, Case] = {}
    for number, one in enumerate(given["cases"], 1):
        if not isinstance(one, dict):
            raise ValueError(f"case {number} must be an object with inputs, not {one!r:.60}")
        case = _case(cast("dict[str, Any]", one), number, cases, with_rubric=with_rubric)
        cases[case.id] = case
    rubric = _rubric("the dataset", given.get("evaluators")) if with_rubric else None
    return Dataset(list(cases.values()), str(given.get("name") or name), rubric)


def _case(given: Mapping[str, Any], number: int, taken: Mapping[str, Case], *, with_rubric: bool) -> Case:
    called = given.get("name")
    who = f"case {called!r:.80}" if called else f"case {number}"
    _refuse_strange(who, given, _CASE)
    if "inputs" not in given:
        raise ValueError(f"{who} has no inputs")
    goal, context = _goal(given["inputs"])
    expected, metadata = given.get("expected_output"), given.get("metadata")
    beside = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {"metadata": metadata}
    try:
        return Case(
            id_of(str(called) if called else f"case-{number:04d}", taken),
            goal,
            context,
            reference=None if expected is None else _text(expected),
            metadata={} if metadata is None else beside,
            rubric=_rubric(who, given.get("evaluators")) if with_rubric else None,
        )
    except ValueError as error:
        # The rubric's errors name the case already.
        raise ValueError(str(error) if str(error).startswith(who) else f"{who}: {error}") from None


def _goal(inputs: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(inputs, dict) and isinstance(inputs.get("goal"), str):  # pyright: ignore[reportUnknownMemberType] - JSON
        rest = dict(cast("dict[str, Any]", inputs))
        return rest.pop("goal"), rest
    return _text(inputs), {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _refuse_strange(who: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    strange = [name for name in given if name not in allowed]
    if strange:
        raise ValueError(f"{who} has {known(strange)}; it may have {known(allowed)}")


# ---------------------------------------------------------------- evaluators


def _rubric(who: str, specs: Any) -> Rubric | None:
    if not specs:
        return None
    if not is_list(specs):
        raise ValueError(f"{who}: evaluators are a list, not {specs!r:.60}")
    criteria: dict[str, Criterion] = {}
    for spec in specs:
        name, given = _parts(who, spec)
        if name not in _FIRST:
            raise ValueError(
                f"{who}: the evaluator {name!r:.80} has no criterion like it; {known(_FIRST)} have one: leave it out "
                "of the file, or replace all evaluators with your own rubric"
            )
        single = {} if given is None else {_FIRST[name]: given}
        values = cast("dict[str, Any]", given) if isinstance(given, dict) else single
        made = _criterion(who, name, id_of(_result_name(values) or name, criteria), values)
        criteria[made.id] = made
    return Rubric(list(criteria.values()))


def _parts(who: str, spec: Any) -> tuple[str, Any]:
    """Return an evaluator's name and arguments: `Name`, `{Name: value}` or `{Name: {field: value}}`."""
    if isinstance(spec, str):
        return spec, None
    given = cast("dict[str, Any]", spec) if isinstance(spec, dict) else {}
    if len(given) == 1:
        ((name, value),) = given.items()
        return name, value
    raise ValueError(f"{who}: an evaluator is a name, or an object with one name, not {spec!r:.60}")


def _result_name(values: Mapping[str, Any]) -> str:
    """Return the name that an evaluator gives its result, or ""."""
    inner: Any = values.get("assertion")
    named = cast("dict[str, Any]", inner) if isinstance(inner, dict) else values
    return str(named.get("evaluation_name") or "")


_FIRST: Final = {
    "EqualsExpected": "evaluation_name",
    "Equals": "value",
    "Contains": "value",
    "LLMJudge": "rubric",
}
"""The evaluators that become a criterion, each with its first field."""


def _criterion(who: str, evaluator: str, name: str, values: Mapping[str, Any]) -> Criterion:
    """Make the criterion of an evaluator; `_spec` does the opposite."""
    if evaluator == "EqualsExpected":
        return Criterion(name, "it equals the expected output", checks.equals_reference, reference=True)
    if evaluator == "LLMJudge":
        asked: Any = values.get("rubric")
        if not isinstance(asked, str) or not asked.strip():
            raise ValueError(f"{who}: LLMJudge has a rubric that is a text, not {asked!r:.60}")
        return Criterion(name, asked, by="judge", reference=bool(values.get("include_expected_output", False)))
    if "value" not in values:
        raise ValueError(f"{who}: {evaluator} has a value")
    value = _text(values["value"])
    if evaluator == "Equals":
        return Criterion(name, f"it is {value!r:.200}", checks.equals(value))
    if values.get("case_sensitive", True):
        check: Check = checks.regex(re.escape(value), f"the text lacks {value!r:.200}")  # `contains` ignores case
    else:
        check = checks.contains(value)
    return Criterion(name, f"it contains {value!r:.200}", check)


# ---------------------------------------------------------------- writing


_NO_EVALUATOR: Final = "pydantic-evals has no evaluator like criterion {!r}: write the cases as .jsonl"


def to_pydantic_evals(dataset: Dataset) -> dict[str, Any]:
    """Return a dataset as pydantic-evals reads it; `ValueError` for a criterion without an equivalent evaluator."""
    cases: list[dict[str, Any]] = []
    for case in dataset.cases:
        context = thaw(case.context)
        if "goal" in context:
            raise ValueError(
                f"case {case.id!r}: its context has a 'goal', which in a dataset of pydantic-evals is the input: write "
                "the cases as .jsonl"
            )
        made: dict[str, Any] = {"name": case.id, "inputs": {"goal": case.input, **context} if context else case.input}
        if case.metadata:
            made["metadata"] = thaw(case.metadata)
        if case.reference is not None:
            made["expected_output"] = case.reference
        if case.rubric is not None:
            made["evaluators"] = [_spec(one) for one in case.rubric.criteria]
        cases.append(made)
    document: dict[str, Any] = {"name": dataset.name, "cases": cases}
    if dataset.rubric is not None:
        document["evaluators"] = [_spec(one) for one in dataset.rubric.criteria]
    return document


def _spec(criterion: Criterion) -> Any:
    how: dict[str, Any] = {"by": criterion.by, "weight": criterion.weight, "version": criterion.version}
    usual = Criterion(criterion.id, criterion.text, criterion.check, reference=criterion.reference, **how)
    if criterion != usual:  # an evaluator has no levels, kinds or scopes
        raise ValueError(_NO_EVALUATOR.format(criterion.id))
    if criterion.by == "judge":
        asked = {"rubric": criterion.text, "include_expected_output": criterion.reference}
        return {"LLMJudge": {**asked, "assertion": {"evaluation_name": criterion.id, "include_reason": True}}}
    named: dict[str, Any] = {"evaluation_name": criterion.id}
    if criterion.check is checks.equals_reference:
        return {"EqualsExpected": named}
    made: Any = getattr(criterion.check, "made", None) or Made("", {})
    match made.name:
        case "equals":
            return {"Equals": {"value": made.arguments["text"], **named}}
        case "contains" if len(made.arguments["phrases"]) == 1:
            return {"Contains": {"value": made.arguments["phrases"][0], "case_sensitive": False, **named}}
        case "regex" if (plain := _text_matched(made.arguments["pattern"])) is not None:
            return {"Contains": {"value": plain, **named}}
        case _:
            raise ValueError(_NO_EVALUATOR.format(criterion.id))


def _text_matched(pattern: str) -> str | None:
    """Return the only text that a pattern matches; None for a pattern that is more than an escaped text."""
    plain = re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)
    # Escaped again and compared, because unescaping accepts any pattern.
    return plain if re.escape(plain) == pattern else None
