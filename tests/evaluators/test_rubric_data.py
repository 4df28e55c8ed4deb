"""Rubrics as data: what data can say Python can say, and each mistake is one sentence with its place."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

import kairo_team as kt
from kairo_team.data.files import read_data
from kairo_team.evaluators import Criterion, Example, Rubric, checks, load_rubric
from kairo_team.evaluators.checks.named_check import NamedCheck
from kairo_team.evaluators.criterion import BY, By
from kairo_team.evaluators.rubric_data import BARE, IN_CODE_ONLY, PLAIN, TAKES

TIDES: dict[str, Any] = {
    "threshold": 0.75,
    "criteria": [
        {"id": "short", "text": "at most 12 words", "check": {"max_words": 12}},
        {"id": "moon", "text": "it names the moon", "check": {"contains": ["moon"]}, "kind": "graded", "weight": 3},
        {
            "id": "plain",
            "text": "a ten-year-old understands it",
            "by": "judge",
            "kind": "graded",
            "levels": [{"hard": "has words a child does not know"}, "some", {"easy": "has none"}],
            "evidence": "quote",
            "examples": [
                {"text": "Gravitation attracts.", "level": "hard", "reason": "'Gravitation' is not explained"}
            ],
            "reference": True,
        },
        {"id": "sign-off", "text": "an editor agrees", "by": "human"},
    ],
}
IN_PYTHON = Rubric(
    [
        Criterion("short", "at most 12 words", checks.max_words(12)),
        Criterion("moon", "it names the moon", checks.contains("moon"), kind="graded", weight=3),
        Criterion(
            "plain",
            "a ten-year-old understands it",
            by="judge",
            kind="graded",
            levels=("hard", "some", "easy"),
            level_texts={"hard": "has words a child does not know", "easy": "has none"},
            evidence="quote",
            examples=[Example("Gravitation attracts.", "hard", "'Gravitation' is not explained")],
            reference=True,
        ),
        Criterion("sign-off", "an editor agrees", by="human"),
    ],
    0.75,
)


def mistakes(data: Any) -> list[str]:
    with pytest.raises(ValueError, match=r".") as caught:
        Rubric.from_data(data)
    return str(caught.value).splitlines()


def with_criterion(**fields: Any) -> dict[str, Any]:
    return {"criteria": [{"id": "c", "text": "it is good", **fields}]}


def test_data_says_what_python_says() -> None:
    rubric = Rubric.from_data(TIDES)
    assert rubric.digest == IN_PYTHON.digest is not None
    assert rubric.threshold == IN_PYTHON.threshold
    assert [one.level_texts for one in rubric.criteria] == [one.level_texts for one in IN_PYTHON.criteria]


def test_a_rubric_is_written_as_the_data_it_was_made_of() -> None:
    assert IN_PYTHON.to_data()["criteria"][2:] == TIDES["criteria"][2:]
    assert Rubric.from_data(json.loads(json.dumps(IN_PYTHON.to_data()))).digest == IN_PYTHON.digest


@pytest.mark.parametrize("weight", [10**400, Fraction(10**400), Decimal("1e400")], ids=lambda one: type(one).__name__)
def test_a_weight_beyond_floats_is_refused_by_its_criterion_when_it_is_written(weight: Any) -> None:
    rubric = Rubric([Criterion("huge", "it counts", checks.json_valid, kind="graded", weight=weight)])
    with pytest.raises(ValueError, match=r"^criterion 'huge': its weight, .* cannot be written as a JSON number$"):
        rubric.to_data()


def test_what_data_cannot_say_is_listed_when_a_rubric_is_written() -> None:
    def polite(artifact: kt.Artifact) -> bool:
        return True

    rubric = Rubric(
        [
            Criterion("polite", "it is polite", polite),
            Criterion("when", "it is long", checks.min_words(9), applies=polite),
            Criterion("cited", "it cites", checks.citations(lambda _: {})),
            Criterion("third", "it counts", checks.json_valid, kind="graded", weight=Fraction(1, 3)),
        ]
    )
    with pytest.raises(ValueError, match="polite") as caught:
        rubric.to_data()
    said = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in said] == [
        f"criterion {name!r}" for name in ("polite", "when", "cited", "third")
    ]


# ---------------------------------------------------------------- checks by name


def test_each_check_that_ships_can_be_named_or_is_said_to_need_code() -> None:
    shipped = {name for name in checks.__all__ if name[0].islower()}
    assert shipped == {*TAKES, *PLAIN, *IN_CODE_ONLY}
    for name, takes in TAKES.items():
        parameters = inspect.signature(getattr(checks, name)).parameters
        assert [*parameters] == [*takes], name


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("json_valid", checks.json_valid),
        ("citations", checks.citations()),
        ({"citations": {"least": 2}}, checks.citations(least=2)),
        ({"citations": {"sources": {"log": "3 May"}}}, checks.citations({"log": "3 May"})),
        ({"max_words": 3}, checks.max_words(3)),
        ({"max_words": {"limit": 3}}, checks.max_words(3)),
        ({"contains": "tide"}, checks.contains("tide")),
        ({"contains": ["tide", "moon"]}, checks.contains("tide", "moon")),
        ({"forbidden": {"phrases": ["!"]}}, checks.forbidden("!")),
        ({"regex": "^x"}, checks.regex("^x")),
        ({"regex": {"pattern": "^x", "says": "no x"}}, checks.regex("^x", "no x")),
        ({"markdown_outline": ["# A", "## *"]}, checks.markdown_outline("# A", "## *")),
        ({"markdown_outline": {"outline": ["# A"], "exact": True}}, checks.markdown_outline("# A", exact=True)),
        ({"json_schema": {"schema": {"type": "object"}}}, checks.json_schema({"type": "object"})),
        ({"numbers": {"allowed": [2, 0.5]}}, checks.numbers(allowed=[2, 0.5])),
        ({"language": "en"}, checks.language("en")),
        ({"language": {"codes": ["en", "de"], "sure": 0.7}}, checks.language("en", "de", sure=0.7)),
    ],
)
def test_a_check_by_its_name_is_the_one_that_python_makes(written: Any, made: NamedCheck) -> None:
    read = Rubric.from_data(with_criterion(check=written)).criteria[0]
    assert isinstance(read.check, NamedCheck)
    assert read.check.fingerprint == made.fingerprint
    again = Rubric([Criterion("c", "it is good", made)]).to_data()
    assert Rubric.from_data(again).digest == Rubric([read]).digest


def test_checks_that_are_written_bare_need_nothing() -> None:
    for name in BARE:
        assert Rubric.from_data(with_criterion(check=name)).criteria[0].check is not None


# ---------------------------------------------------------------- mistakes


def test_all_mistakes_are_said_at_once_each_with_what_is_allowed() -> None:
    said = mistakes(
        {
            "criteria": [
                {"id": "a", "text": " ", "check": {"max_word": 12}},
                {"id": "a", "text": "t", "check": {"contains": ["x", 4]}, "wieght": 2},
                {"id": "b", "text": "t", "by": "jugde", "levels": ["only"], "weight": 0},
                {"id": "c", "text": "t", "check": {"command": ["rm"]}},
                {"id": "d", "check": {"json_valid": {}}},
                {"id": "e", "text": "t"},
                {"id": "f", "text": "t", "check": {"regex": "(?=a)"}},
                {"id": "g", "text": "t", "by": "human", "reference": True},
            ],
            "treshold": 0.5,
        }
    )
    expected = [
        "takes no 'treshold'; did you mean 'threshold'? it takes criteria, threshold, check_timeout, votes",
        "criteria[0].check names 'max_word', which is not a check; did you mean 'max_words'? there are avoids_tool",
        "criteria[0].text must not be blank, not ' '",
        "criteria[1] takes no 'wieght'; did you mean 'weight'? it takes id, text, check, by, kind, weight, levels",
        "criteria[1].check.contains[1] must be a string, not 4: put it in quotes",
        "criteria[1].id is 'a', like the id of criteria[0]: ids must differ",
        "criteria[2].by must be 'check', 'judge' or 'human', not 'jugde'",
        "criteria[2].levels must hold 2 at least, not ['only']",
        "criteria[2].weight must be greater than 0, not 0",
        "criteria[3].check cannot be 'command', which takes a function or a class: build this rubric in Python",
        "criteria[4] needs 'text'; it takes id, text, check",
        "criteria[4].check takes no arguments: write 'json_valid' alone",
        "criteria[5] needs a check, or by: judge, or by: human",
        "criteria[6].check.regex is refused: the pattern '(?=a)' cannot be searched for in linear time",
        "criteria[7].reference must be false where a human decides it: a person is not shown Task.reference",
    ]
    assert len(said) == len(expected)
    for line, beginning in zip(said, expected, strict=True):
        assert line.startswith(f"the rubric: {beginning}"), line


def test_fields_that_do_not_fit_are_said_each_in_its_place_also_where_others_are_wrong() -> None:
    examples = [{"text": "x", "level": "good"}, {"text": "x", "level": "bad"}]
    criterion = with_criterion(
        by="human",
        check="json_valid",
        evidence="quote",
        examples=examples,
        levels=["a", "bad", {"a": "worse"}],
        reference=True,
        weight=-1,
    )
    where = "the rubric: criteria[0]"
    assert mistakes(criterion) == [
        f"{where}.check does not belong here: a human decides it; leave the check out, or by",
        f"{where}.evidence must be 'none' where a human decides it: only a judge gives quotes",
        f"{where}.examples are shown to a judge, and a human decides it: leave them out",
        f"{where}.examples[0].level must be one of the levels, 'a', 'bad', 'a', not 'good'",
        f"{where}.levels[2] is 'a' again: levels must differ",
        f"{where}.reference must be false where a human decides it: a person is not shown Task.reference",
        f"{where}.weight must be greater than 0, not -1",
    ]


def test_a_key_with_line_breaks_stays_in_its_line() -> None:
    (said,) = mistakes(with_criterion(by="judge", levels=["a", {"b\nc": 3}]))
    assert said == "the rubric: criteria[0].levels[1]['b\\nc'] must be a string, not 3: put it in quotes"


@pytest.mark.parametrize(
    "data", [None, [], 3, "x", {}, {"criteria": []}, {"criteria": [None]}, {1: 2}, {"criteria": {}}]
)
def test_what_is_no_rubric_is_refused_in_a_sentence(data: Any) -> None:
    assert all(line.startswith("the rubric: ") for line in mistakes(data))


def test_a_rubric_of_infos_is_refused_as_in_python() -> None:
    assert mistakes(with_criterion(by="judge", kind="info")) == [
        "the rubric: a rubric needs a gate or a graded criterion, not only 'info': it could hardly fail anything"
    ]


def test_very_many_mistakes_are_cut() -> None:
    assert len(mistakes({"criteria": [{}] * 200})) == 51


# ---------------------------------------------------------------- the schema

_WORDS = st.sampled_from(
    ["a", "met", "not met", "x y", "", " ", "\x1c", "\u00a0", "unknown", "#", "# A", "(", "{}", "[{}]"]
)
_VALUES = st.one_of(_WORDS, st.integers(-2, 3), st.floats(-1, 2), st.booleans(), st.none())
_ANY = st.one_of(_VALUES, st.lists(_WORDS, max_size=3), st.dictionaries(_WORDS, _VALUES, max_size=2))
_NAMES = st.sampled_from([*TAKES, *PLAIN, "command", "max"])
_ARGUMENTS = st.sampled_from(sorted({name for takes in TAKES.values() for name in takes}))
_CHECKS = st.one_of(
    _NAMES,
    st.dictionaries(_NAMES, st.one_of(_ANY, st.dictionaries(_ARGUMENTS, _ANY, max_size=2)), max_size=2),
    _ANY,
)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "check": _CHECKS,
    "by": st.sampled_from(["check", "judge", "human", "other"]),
    "kind": st.sampled_from(["gate", "graded", "penalty", "info", 1]),
    "weight": st.one_of(st.integers(-1, 9), st.floats(), _ANY),
    "levels": st.lists(st.one_of(_WORDS, st.dictionaries(_WORDS, _WORDS, max_size=2)), max_size=3),
    "evidence": st.sampled_from(["none", "quote", ""]),
    "examples": st.lists(
        st.fixed_dictionaries({"text": _WORDS, "level": _WORDS}, optional={"reason": _WORDS}), max_size=2
    ),
    "reference": st.sampled_from([True, False, 1]),
    "version": _ANY,
    "other": _ANY,
}
_CRITERIA = st.fixed_dictionaries({"id": st.just("c"), "text": st.just("t")}, optional=_FIELDS)
_NO_SCHEMA_CAN = (
    "levels must differ",
    "must be one of the levels",
    "a heading of an outline is",
    "cannot be searched for in linear time",
    "the check json_schema",
    "the form needs a mark",
    "a rubric needs a gate or a graded criterion",
)


def read_or_refused(data: Any) -> str:
    try:
        Rubric.from_data(data)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.exhaustive
@settings(max_examples=400, deadline=None)
@given(criterion=_CRITERIA, more=st.fixed_dictionaries({}, optional={"threshold": st.one_of(st.floats(), _ANY)}))
def test_the_loader_takes_what_the_schema_takes(criterion: dict[str, Any], more: dict[str, Any]) -> None:
    data = {"criteria": [criterion], **more}
    try:
        text = json.dumps(data, allow_nan=False)
    except ValueError:
        return
    valid = Draft202012Validator(Rubric.json_schema()).is_valid(json.loads(text))
    said = read_or_refused(data)
    assert valid == (said == "") or (valid and any(reason in said for reason in _NO_SCHEMA_CAN))


def test_the_schema_is_one_and_takes_the_example() -> None:
    schema = Rubric.json_schema()
    Draft202012Validator(schema).validate(TIDES)
    assert "null" not in json.dumps(schema)


_TEXTS = st.text(min_size=1).filter(lambda text: text.strip() != "")
_LIMITS = st.integers(1, 10**6)
_MADE = st.one_of(
    st.builds(checks.max_words, _LIMITS),
    st.builds(checks.min_chars, _LIMITS),
    st.builds(lambda texts: checks.forbidden(*texts), st.lists(_TEXTS, min_size=1, max_size=3)),
    st.builds(lambda least: checks.citations(least=least), st.integers(0, 5)),
    st.builds(checks.quotations, st.dictionaries(_TEXTS, st.text(), max_size=2)),
    st.sampled_from([getattr(checks, name) for name in PLAIN]),
)


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    def criterion(number: int) -> Criterion:
        names = draw(st.lists(_TEXTS, min_size=2, max_size=4, unique=True).filter(lambda n: "unknown" not in n))
        shown = draw(st.lists(st.builds(Example, _TEXTS, st.sampled_from(names), st.text()), max_size=2))
        by: By = draw(st.sampled_from(BY[:2]))
        return Criterion(
            f"c{number}",
            draw(_TEXTS),
            draw(_MADE) if by == "check" else None,
            by=by,
            kind="gate" if number == 0 else draw(st.sampled_from(["gate", "graded", "penalty", "info"])),
            weight=draw(st.one_of(st.integers(1, 100), st.floats(0.01, 100))),
            levels=names,  # type: ignore[arg-type]  # any list of names is taken
            level_texts=draw(st.dictionaries(st.sampled_from(names), _TEXTS)),
            examples=shown if by == "judge" else (),
            reference=draw(st.booleans()),
            version=draw(st.one_of(st.none(), _TEXTS)),
        )

    criteria = [criterion(number) for number in range(draw(st.integers(1, 3)))]
    return Rubric(
        criteria, draw(st.floats(0.01, 1)), check_timeout=draw(st.floats(0.1, 60)), votes=draw(st.integers(1, 9))
    )


@settings(max_examples=150, deadline=None)
@given(rubric=rubrics())
def test_a_rubric_comes_back_from_its_data_through_json(rubric: Rubric) -> None:
    data = rubric.to_data()
    back = Rubric.from_data(json.loads(json.dumps(data)))
    assert back.digest == rubric.digest is not None
    assert back.to_data() == data


# ---------------------------------------------------------------- files

YAML = """\
# What an explanation of tides must fulfil.
threshold: 0.75
criteria:
  - id: short
    text: at most 12 words
    check: {max_words: 12}
  - id: 'no'
    text: >
      it is
      plain
    by: judge
    levels:
      - no: it is hard
      - yes  # a text, as in YAML 1.2
"""
TOML = """\
threshold = 0.75

# What an explanation of tides must fulfil.
[[criteria]]
id = "short"
text = "at most 12 words"
check = {max_words = 12}

[[criteria]]
id = "no"
text = "it is plain\\n"
by = "judge"
levels = [
    {no = "it is hard"},
    # the best
    "yes",
]
"""
JSON = """\
{
  "threshold": 0.75,
  "criteria": [
    {"id": "short", "text": "at most 12 words", "check": {"max_words": 12}},
    {"id": "no", "text": "it is plain\\n", "by": "judge",
     "levels": [
       {"no": "it is hard"}, "yes"]}
  ]
}
"""
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def refusal(file: Path) -> list[str]:
    with pytest.raises(ValueError, match=r".") as caught:
        load_rubric(file)
    return [line.replace(str(file), file.name) for line in str(caught.value).splitlines()]


def test_the_three_formats_say_the_same(write: Write) -> None:
    made = [load_rubric(write(*one)) for one in (("a.yaml", YAML), ("b.yml", YAML), ("a.toml", TOML), ("a.json", JSON))]
    assert len({one.digest for one in made}) == 1
    assert made[0].criteria[1].levels == ("no", "yes")
    assert kt.load_rubric is load_rubric


def test_the_file_in_the_docs_is_a_rubric_and_fits_the_schema(write: Write) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "rubrics.md").read_text(encoding="utf-8")
    text, of_packages = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    rubric = load_rubric(write("tides.yaml", text))
    assert [one.id for one in rubric.criteria] == ["short", "cited", "plain", "agrees", "sign-off"]
    Draft202012Validator(Rubric.json_schema()).validate(rubric.to_data())
    Draft202012Validator(Rubric.json_schema()).validate(read_data(write("doses.yaml", of_packages)).value)


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [("a.yaml", YAML, (6, 13)), ("a.toml", TOML, (7, 13)), ("a.json", JSON, (4, 7))],
)
def test_a_mistake_has_its_line(write: Write, name: str, text: str, lines: tuple[int, int]) -> None:
    wrong = text.replace("max_words", "max_word").replace("no: it is hard", "no: ' '").replace('"it is hard"', '" "')
    first, second = refusal(write(name, wrong))
    assert first.startswith(f"{name}, line {lines[0]}: criteria[0].check names 'max_word', which is not a check")
    assert second == f"{name}, line {lines[1]}: criteria[1].levels[0].no must not be blank, not ' '"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "a: 1\nb: &x [1]", "line 2: anchors (&) and aliases (*) are not taken: write the value again"),
        ("a.yaml", "a: *x", "line 1: anchors (&) and aliases (*) are not taken: write the value again"),
        ("a.yaml", "a: !!python/name:os.system x", "line 1: tags such as"),
        ("a.yaml", "a: 1\n\na: 2", "line 3: the key 'a' is given twice"),
        ("a.yaml", "[" * 1_000, "line 1: it is nested more than 30 deep"),
        ("a.yaml", "a: [b", "it is not valid YAML: "),
        ("a.yaml", "? [a]\n: 3", "line 1: a key must be a text"),
        ("a.yaml", "a: 1\n---\nb: 2", "line 2: it holds a second document: keep one"),
        ("a.yaml", "# nothing", "it holds no value"),
        ("a.yaml", "9" * 5_000, "line 1: the number 99999999999999999999... is too long"),
        ("a.yaml", 'a: "\\UFFFFFFFF"', "it is not valid YAML: "),
        ("a.yaml", 'a: "\\U00110000"', "it is not valid YAML: "),
        ("a.yaml", 'a: "\\q"', "line 1: it is not valid YAML: found unknown escape character"),
        ("a.yaml", "\x00", "it is not valid YAML: "),
        ("a.json", '{"a": 1,\n"a": 2}', "line 2: the key 'a' is given twice"),
        ("a.json", '{"a": 1\n"b": 2}', "line 2: it is not JSON: expected a comma or }"),
        ("a.json", '{"a" 1}', "line 1: it is not JSON: expected a colon"),
        ("a.json", "{a: 1}", "line 1: it is not JSON: expected a key in double quotes"),
        ("a.json", '{"a": }', "line 1: it is not JSON: Expecting value"),
        ("a.json", '["a\n"]', "line 1: it is not JSON: Invalid control character at"),
        ("a.json", "[1] 2", "line 1: there is text after the value"),
        ("a.json", "[" * 10_000, "line 1: it is nested more than 30 deep"),
        ("a.json", "[NaN]", "line 1: NaN is not a JSON value"),
        ("a.json", "9" * 5_000, "line 1: Exceeds the limit"),
        ("a.toml", "a = 1\na = 2", "line 2: it is not valid TOML: Cannot overwrite a value"),
        ("a.toml", "a = " + "[" * 10_000, "it is nested too deeply"),
        ("a.toml", "a = " + "9" * 5_000, "Exceeds the limit"),
        ("a.toml", "criteria = 2026-11-01", "datetime.date(2026, 11, 1) at 'criteria' must be made of JSON values"),
        ("a.yaml", "", "it is empty"),
        ("a.yaml", "x" * 300_000, "it has more than 250,000 characters"),
        ("a.json", "é" * 900_000, "it has more than 250,000 characters"),
        ("a.txt", "x", "the suffix of data must be '.json', '.toml', '.yaml', '.yml', not '.txt'"),
    ],
)
def test_a_hostile_or_broken_file_is_refused_in_a_sentence(write: Write, name: str, text: str, says: str) -> None:
    (said,) = refusal(write(name, text))
    assert said.startswith((f"{name}, line ", f"{name}: ")), said
    assert f" {says}" in said


@pytest.mark.parametrize("text", ['a: "\\UFFFFFFFF"', 'a: "\\U00110000"', "a: [b", "\x00"])
def test_yaml_is_read_without_the_parser_in_c_too(write: Write, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    assert load_rubric(write("a.yaml", YAML)).criteria[1].levels == ("no", "yes")
    (said,) = refusal(write("b.yaml", text))
    assert "it is not valid YAML: " in said


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    assert refusal(tmp_path / "a.yaml") == ["a.yaml: it is not UTF-8 text"]


def test_a_long_file_of_toml_is_refused_without_its_last_lines(write: Write) -> None:
    rows = "".join(f'[[criteria]]\nid = "c{n}"\ntext = "t"\nby = "judge"\n' for n in range(900))
    (said,) = refusal(write("a.toml", f"{rows}wieght = 2\n"))
    assert "criteria[899] takes no 'wieght'" in said


def test_yaml_needs_its_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.data.files.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"a file in YAML needs the extra 'yaml': pip install 'kairo-team\[yaml\]'"):
        load_rubric(write("a.yaml", YAML))
    assert load_rubric(write("a.toml", TOML)).threshold == 0.75


@settings(max_examples=200, deadline=None)
@given(
    text=st.one_of(st.text(), st.text(alphabet="{}[]:,\"'-? &*!|>\n\t#ab1\\UFx%@`~<=.+")),
    suffix=st.sampled_from(["yaml", "toml", "json"]),
)
def test_any_text_is_a_rubric_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str, suffix: str) -> None:
    file = tmp_path_factory.getbasetemp() / f"any.{suffix}"
    file.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(ValueError, match=suffix):
        load_rubric(file)
