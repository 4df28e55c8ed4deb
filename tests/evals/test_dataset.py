"""Datasets: JSON Lines, and those of pydantic-evals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.evals import Case, Dataset
from kairo_team.evals.dataset import from_pydantic_evals, to_pydantic_evals
from kairo_team.evaluators import Criterion, Rubric, checks

PYDANTIC_EVALS = """
# yaml-language-server: $schema=cases_schema.json
name: capitals
cases:
- name: Simple question
  inputs: What is the capital of France?
  metadata: {difficulty: easy}
  expected_output: Paris
  evaluators:
  - EqualsExpected
- inputs: {question: "Which sea?", depth: 2}
  evaluators:
  - Contains: Atlantic
evaluators:
- Contains: {value: a, case_sensitive: false}
- LLMJudge: {rubric: It is polite., include_expected_output: true}
"""


def test_a_line_is_a_case_and_only_its_input_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(
        '{"input": "Explain tides."}\n\n'
        '{"id": "sea", "input": "Explain the sea.", "context": {"words": 3}, "reference": "Water.", '
        '"metadata": {"a": 1}}\n'
    )
    dataset = Dataset.load(path)
    assert dataset.name == "cases"
    assert [one.id for one in dataset.cases] == ["case-0001", "sea"]
    assert dataset.cases[1] == Case("sea", "Explain the sea.", {"words": 3}, reference="Water.", metadata={"a": 1})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "line 1: it is not JSON"),
        ("[]", "line 1: it is not an object"),
        ('{"id": "a"}', "line 1: it has no 'input'"),
        ('{"input": " "}', "line 1: .*input"),
        ('{"input": "x", "goal": "y"}', "line 1: it has 'goal'; a case has"),
        ('{"input": "x", "id": "a b"}', "line 1: .*id"),
        ('{"input": "x", "context": [1]}', "line 1: .*context"),
        ('{"input": "x"}\n{"input": 3}\n{"output": "x"}', "line 2: .*; line 3: "),
        ('{"input": "x", "id": "a"}\n{"input": "y", "id": "a"}', "given twice: 'a'"),
        ('{"input": "x", "input": "y"}', r"line 1: it is not JSON \(a key is given twice\)"),
        ("", "at least one case"),
    ],
)
def test_lines_that_are_no_cases_are_all_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        Dataset.load(path)


def test_a_dataset_of_pydantic_evals_has_its_evaluators_as_criteria(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(PYDANTIC_EVALS)
    dataset = Dataset.load(path)
    assert (dataset.name, [one.id for one in dataset.cases]) == ("capitals", ["Simple-question", "case-0002"])
    first, second = dataset.cases
    assert (first.input, first.reference, dict(first.metadata)) == (
        "What is the capital of France?",
        "Paris",
        {"difficulty": "easy"},
    )
    assert json.loads(second.input) == {"question": "Which sea?", "depth": 2}
    assert dataset.rubric is not None
    assert [(one.id, one.by, one.reference) for one in dataset.rubric.criteria] == [
        ("Contains", "check", False),
        ("LLMJudge", "judge", True),
    ]
    assert first.rubric is not None
    assert first.rubric.criteria[0].check is checks.equals_reference
    assert Dataset.load(path, with_rubric=False).rubric is None


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], 'an object with a list of "cases"'),
        ({"cases": []}, "at least one case"),
        ({"cases": [3]}, "case 1 must be an object"),
        ({"cases": [{}]}, "case 1 has no inputs"),
        ({"cases": [{"inputs": "x", "output": 1}]}, "case 1 has 'output'; it may have"),
        ({"cases": [{"name": "q", "inputs": " "}]}, "case 'q': "),
        ({"cases": [{"inputs": "x"}], "evaluators": ["Guess"]}, "the dataset: the evaluator 'Guess' has no criterion"),
        ({"cases": [{"inputs": "x"}], "evaluators": [{"a": 1, "b": 2}]}, "a name, or an object with one name"),
        ({"cases": [{"inputs": "x", "evaluators": [{"LLMJudge": {}}]}]}, "case 1: LLMJudge has a rubric"),
        ({"cases": [{"inputs": "x", "evaluators": [{"Equals": {}}]}]}, "case 1: Equals has a value"),
        ({"cases": [{"inputs": "x", "evaluators": 3}]}, "case 1: evaluators are a list"),
    ],
)
def test_what_is_no_dataset_is_refused_by_its_case(document: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_pydantic_evals(document)


TEXTS = st.text(min_size=1, max_size=20).filter(lambda text: bool(text.strip()))
VALUES = st.dictionaries(st.text(max_size=5).filter(lambda key: key != "goal"), st.integers() | st.text(max_size=5))
CHECKS = st.one_of(
    st.builds(checks.contains, TEXTS),
    st.builds(checks.equals, TEXTS),
    st.just(checks.equals_reference),
)
RUBRICS = st.lists(CHECKS, min_size=1, max_size=3).map(
    lambda found: Rubric(
        [Criterion(f"c{n}", "a sentence", one, reference=one is checks.equals_reference) for n, one in enumerate(found)]
    )
)


@st.composite
def datasets(draw: st.DrawFn, *, with_rubric: bool) -> Dataset:
    rubric = st.none() | RUBRICS if with_rubric else st.none()
    cases = [
        Case(
            f"c{number}",
            draw(TEXTS),
            draw(VALUES),
            reference=draw(st.none() | st.text(max_size=10)),
            metadata=draw(VALUES),
            rubric=draw(rubric),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    return Dataset(cases, "things", draw(rubric))


def told(rubric: Rubric | None) -> Any:
    return None if rubric is None else [(one.id, repr(one.check), one.reference) for one in rubric.criteria]


def rubrics(dataset: Dataset) -> list[Rubric | None]:
    return [dataset.rubric, *(one.rubric for one in dataset.cases)]


@given(datasets(with_rubric=False))
def test_cases_come_back_from_json_lines_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, dataset: Dataset
) -> None:
    path = tmp_path_factory.mktemp("lines") / "things.jsonl"
    dataset.save(path)
    assert Dataset.load(path) == dataset


@given(datasets(with_rubric=True))
def test_a_dataset_comes_back_from_pydantic_evals_as_it_was(dataset: Dataset) -> None:
    again = from_pydantic_evals(json.loads(json.dumps(to_pydantic_evals(dataset))), "things")
    assert again.digest == dataset.digest
    assert [one.metadata for one in again.cases] == [one.metadata for one in dataset.cases]
    assert [told(one) for one in rubrics(again)] == [told(one) for one in rubrics(dataset)]


def test_criteria_that_the_file_cannot_hold_are_refused(tmp_path: Path) -> None:
    rubric = Rubric([Criterion("short", "short", checks.max_words(4))])
    dataset = Dataset([Case("a", "x")], rubric=rubric)
    with pytest.raises(ValueError, match="no evaluator like criterion 'short'"):
        dataset.save(tmp_path / "a.yaml")
    with pytest.raises(ValueError, match="cannot hold a rubric"):
        dataset.save(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match=r"not '\.csv'"):
        Dataset([Case("a", "x")]).save(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "graded", "weight": 3},
        {"levels": ("bad", "fair", "good")},
        {"evidence": "quote"},
        {"on": "transcript"},
        {"level_texts": {"met": "It thanks."}},
        {"applies": bool},
    ],
)
def test_a_criterion_with_more_than_an_evaluator_has_is_refused_and_not_cut(fields: dict[str, Any]) -> None:
    rubric = Rubric([Criterion("polite", "It is polite.", by="judge", **fields)])
    with pytest.raises(ValueError, match="no evaluator like criterion 'polite'"):
        to_pydantic_evals(Dataset([Case("a", "x")], rubric=rubric))


def test_a_goal_in_the_context_is_refused_and_does_not_take_the_place_of_the_input() -> None:
    with pytest.raises(ValueError, match="case 'a': its context has a 'goal'"):
        to_pydantic_evals(Dataset([Case("a", "Explain tides.", {"goal": "another"})]))


def test_the_suffix_of_a_dataset_is_read_in_any_case(tmp_path: Path) -> None:
    dataset = Dataset([Case("a", "Explain tides.")], "cases")
    for name in ("cases.JSONL", "cases.Json"):
        dataset.save(tmp_path / name)
        assert Dataset.load(tmp_path / name) == dataset


@pytest.mark.parametrize("name", ["cases.csv", "cases.ndjson", "cases"])
def test_a_file_of_another_kind_is_answered_with_the_kinds_that_there_are(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"input": "Explain tides."}')
    with pytest.raises(ValueError, match=r"a dataset is read from \.jsonl, \.json or \.yaml, not '"):
        Dataset.load(tmp_path / name)


@pytest.mark.parametrize("cases", [[3], []])
def test_a_dataset_is_made_of_cases(cases: Any) -> None:
    with pytest.raises(ValueError, match=r"case|Case"):
        Dataset(cases)
