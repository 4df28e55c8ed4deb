"""Checks on structured data, sources, code, diffs, commands and functions."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field

import kairo_team as kt
from kairo_team.errors import MissingExtra
from kairo_team.evaluators import checks
from kairo_team.evaluators.checks.code import run_script
from kairo_team.evaluators.checks.diffs import apply_patch

pytestmark = pytest.mark.real_time  # many of them work in a thread

Says = Callable[..., Awaitable[str | None]]
Judge = Callable[..., Awaitable[kt.EvaluationVerdict]]


class Dose(BaseModel):
    drug: str
    mg: float = Field(gt=0)


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"a": [1, null]}', ""),
        ("3", ""),
        ('{"a": 1', "EOF while parsing"),
        ('{"a": 1} and more', "trailing characters"),
        ("[NaN]", "expected value"),
        ("", "EOF"),
        ("[" * 100_000, "recursion limit exceeded"),
        ('{"a": "\ud800"}', "surrogate"),
    ],
    ids=lambda text: f"{text[:20]!r}",
)
async def test_json_valid(says: Says, text: str, wrong: str) -> None:
    said = await says(checks.json_valid, text)
    assert said is not None
    assert (said == "") if not wrong else (wrong in said)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"drug": "x", "mg": 5}', ""),
        ('{"drug": "x", "mg": 0}', "it is not a valid Dose: mg: Input should be greater than 0"),
        ("[]", "it is not a valid Dose: Input should be"),
        ("5 mg of x", "it is not a valid Dose: Invalid JSON"),
    ],
)
async def test_a_pydantic_model(says: Says, text: str, wrong: str) -> None:
    said = await says(checks.pydantic_model(Dose), text)
    assert said is not None
    assert said.startswith(wrong)
    assert bool(said) == bool(wrong)


async def test_a_model_is_asked_about_the_data_where_there_is_some(says: Says) -> None:
    assert await says(checks.pydantic_model(Dose), "see the data", data={"drug": "x", "mg": 5}) == ""
    assert await says(checks.pydantic_model(list[int]), "[1, 2]") == ""


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"id": {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"}, "tags": {"uniqueItems": True}},
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"id": "AB1", "x-note": "y", "tags": [1, "1", {"a": 1}, {"a": 2}]}, ""),
        ({"id": "ab1"}, '$.id: "ab1" does not match "^[A-Z]{2}[0-9]+$"'),
        ({"x-note": 1}, '$.x-note: 1 is not of type "string"'),
        ({"other": 1}, "$: Additional properties are not allowed ('other' was unexpected)"),
        (
            {"tags": [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]},
            '$.tags: [{"a":1,"b":[2]},{"a":1,"b":[2.0]}] has non-unique elements',
        ),
        ([], '$: [] is not of type "object"'),
        ({"tags": [1, 1.0]}, "$.tags: [1,1.0] has non-unique elements"),
    ],
)
async def test_a_json_schema(says: Says, value: Any, wrong: str) -> None:
    said = await says(checks.json_schema(SCHEMA), json.dumps(value))
    assert said is not None
    assert said.replace("$['x-note']", "$.x-note") == wrong


EVIL = "a" * 40_000


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "(a+)+b"}, EVIL),
        ({"patternProperties": {"(a+)+b": False}}, {EVIL: 1}),
        ({"patternProperties": {"(a+)+b": True}, "additionalProperties": {"type": "integer"}}, {EVIL: 1}),
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "items": {"$ref": "#"}, "pattern": "^(a+)+b"},
            [[1]],
        ),
        ({"uniqueItems": True}, [{"n": n} for n in range(20_000)]),
        ({"propertyNames": {"pattern": "^(a|a)*$"}}, {EVIL: 1}),
        ({"patternProperties": {"^(a+)+$": True}, "unevaluatedProperties": False}, {EVIL + "!": 1}),
    ],
    ids=lambda part: f"{str(part)[:30]}",
)
async def test_no_text_hangs_a_schema(says: Says, schema: Any, value: Any) -> None:
    assert await says(checks.json_schema(schema), json.dumps(value)) is not None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "thing"}, "it is not a valid JSON Schema"),
        ({"pattern": "(?=a)b"}, "cannot be searched for in linear time"),
        ({"items": [{"not": {"patternProperties": {r"(a)\1": True}}}]}, "linear time|not a valid JSON Schema"),
    ],
)
def test_a_schema_that_cannot_be_applied_safely_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        checks.json_schema(schema)


async def test_what_is_no_json_meets_no_schema(says: Says) -> None:
    assert (await says(checks.json_schema({}), "not JSON") or "").startswith("the text is not valid JSON")
    rest = {"properties": {"a": True}, "additionalProperties": {"type": "integer"}}
    assert await says(checks.json_schema(rest), '{"a": "x", "b": 1}') == ""
    assert await says(checks.json_schema(rest), '{"b": "x"}') == '$.b: "x" is not of type "integer"'
    assert (
        await says(checks.json_schema({"patternProperties": {"a": False}, "additionalProperties": False}), "[]") == ""
    )


async def test_every_part_of_a_schema_is_applied(says: Says) -> None:
    odd = {"description": "(?=a)", "properties": {"(": {"const": "(b"}}}
    assert await says(checks.json_schema(odd), '{"(": "(b"}') == ""
    both = {"allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}
    assert await says(checks.json_schema(both), '"ab"') == ""
    assert await says(checks.json_schema(both), '"a"') == '$: "a" does not match "b$"'


async def test_a_schema_does_not_hang_on_dialects_named_inside(says: Says) -> None:
    """A part that names its own dialect would be applied by the library's own rules again."""
    inner = {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": "(a+)+b"}
    assert await says(checks.json_schema({"items": inner}), json.dumps([EVIL])) is not None


# ---------------------------------------------------------------- sources

SOURCES = {"smith": "In 2019 the tide rose 1,250.5 m. It was the highest in 30 years.", "log-2": "Wind: 7 knots."}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("The tide rose [smith].", ""),
        ("Both [smith, log-2] and [smith; log-2].", ""),
        ("The tide rose [jones].", "no source is called 'jones'; there are 'smith', 'log-2'"),
        ("One is made up [smith, jones].", "no source is called 'jones'"),
        ("The tide rose.", "the text cites 0 sources, at least 1 is needed"),
        ("See [the web](https://example.org) and [smith].", ""),
        ("A remark [see below, please] and [smith].", ""),
        ("[web]: https://example.org\n[smith] says so. [[log-2]]", ""),
        ("As in [jones]: the tide rose.", "no source is called 'jones'"),
    ],
)
async def test_citations_name_a_source(says: Says, text: str, wrong: str) -> None:
    said = await says(checks.citations(SOURCES), text)
    assert said is not None
    assert said.startswith(wrong)
    assert bool(said) == bool(wrong)


async def test_citations_in_another_form(says: Says) -> None:
    check = checks.citations(SOURCES, form="[@{}]", least=2)
    assert await says(check, "It rose [@smith; @log-2] [sic].") == ""
    assert await says(check, "It rose [@smith; @jones].") == "no source is called 'jones'; there are 'smith', 'log-2'"


async def test_a_text_may_do_without_citations_and_wrong_ones_are_told_ten_at_a_time(says: Says) -> None:
    check = checks.citations(SOURCES, least=0)
    assert await says(check, "The tide rose.") == ""
    ten = "".join(f"[n{number}]" for number in range(10))
    assert "'n9'; there are" in (await says(check, ten) or "")
    assert "'n9' and 2 more; there are" in (await says(check, ten + "[n10][n11]") or "")


async def test_sources_may_be_the_artifacts_the_task_was_made_from(says: Says) -> None:
    upstream = {"fetch": kt.Artifact("The tide rose 3 m.")}
    assert await says(checks.citations(), "It rose [fetch].", upstream=upstream) == ""
    assert await says(checks.numbers(), "It rose 3 m.", upstream=upstream) == ""
    assert await says(checks.numbers(), "It rose 4 m.", upstream=upstream) == "no source has the number '4'"
    found = checks.citations(lambda context: {"goal": context.goal})
    assert await says(found, "Asked for [goal].") == ""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("1. In 2019 it rose 1250.50 m.\n2) The highest in 30 years.", ""),
        ("Version v2 of mp3, 7kn.", ""),
        ("It rose 1,251 m.", "no source has the number '1,251'"),
        ("It rose .5 m", "no source has the number '.5'"),
        ("It rose 12 % or 8,9.", "no source has the number '12', '8', '9'"),
        ("No.31 and COVID-19", "no source has the number '31', '19'"),
    ],
)
async def test_numbers_appear_in_a_source(says: Says, text: str, wrong: str) -> None:
    assert await says(checks.numbers(SOURCES), text) == wrong


async def test_some_numbers_are_free(says: Says) -> None:
    assert await says(checks.numbers(SOURCES, allowed=[12, "3.50"]), "12 and 3.5") == ""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('They say "it was the highest in 30 years."', ""),
        ("They say \u201cthe tide  rose\u201d.", ""),
        ('The "so-called" tide', ""),
        ('The "late great" tide', ""),
        ('They "saw no tide"', "no source says 'saw no tide'"),
        ('They say "it was the lowest in 30 years".', "no source says 'it was the lowest in 30 years'"),
        ('""Wind: 7 knots" and more "Wind: 8 knots"', "no source says 'Wind: 8 knots'"),
        ('A wave of 5" said "Wind: 8 knots"', "no source says 'Wind: 8 knots'"),
        ('("Wind: 8 knots")', "no source says 'Wind: 8 knots'"),
        ("\u00abThe wind was strong\u00bb", "no source says 'The wind was strong'"),
    ],
)
async def test_quotations_stand_in_a_source(says: Says, text: str, wrong: str) -> None:
    assert await says(checks.quotations(SOURCES), text) == wrong


async def test_more_quotations_than_can_be_looked_up_are_undecided(says: Says) -> None:
    many = " ".join(f'"a word and {number}"' for number in range(400))
    assert await says(checks.quotations(SOURCES), many) is None


@pytest.mark.parametrize("text", ["\u00ab" * 100_000, "[" * 100_000, "1," * 100_000, "[a" * 50_000, '"' * 100_001])
async def test_no_text_hangs_the_checks_of_sources(says: Says, text: str) -> None:
    for check in (checks.citations(SOURCES), checks.numbers(SOURCES), checks.quotations(SOURCES)):
        await says(check, text)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: checks.citations(["a"]), "citations takes texts by name, not list"),  # type: ignore[arg-type]
        (lambda: checks.numbers({"a": 1}), "numbers takes texts by name: 'a' is int"),  # type: ignore[dict-item]
        (lambda: checks.citations(form="[]"), "the form needs a mark on both sides"),
        (lambda: checks.citations(form="{}]"), "the form needs a mark on both sides"),
        (lambda: checks.citations(form="[ ]"), "the form needs a mark on both sides"),
        (lambda: checks.citations(least=-1), "least must be a whole number >= 0"),
        (lambda: checks.quotations(least_words="three"), "least_words must be a whole number >= 0, not 'three'"),  # type: ignore[arg-type]
        (lambda: checks.accepted_by(len, ("ValueError",)), "errors must be classes of exceptions"),  # type: ignore[arg-type]
        (lambda: checks.command("rm -rf", None), "takes the words of a command as a list"),  # type: ignore[arg-type]
        (lambda: checks.command(["ls"], None), "the sandbox must be an async function"),  # type: ignore[arg-type]
        (lambda: checks.predicate("x"), "predicate takes a function of the artifact, not 'x'"),  # type: ignore[arg-type]
    ],
)
def test_what_a_check_cannot_be_made_of_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()


# ---------------------------------------------------------------- code


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("x = 1\n", ""),
        ('print("\\d")', ""),
        ("x = (1\n", "line 1 is not valid Python: '(' was never closed"),
        ("Here:\n```python\nx = 1\n```\nand\n```py\ny = = 2\n```", "line 7 is not valid Python: invalid syntax"),
        ("```python\nx = (", "line 2 is not valid Python"),
        ("```bash\nls -l |\n```\n```python\nx = 1\n```", ""),
        ("-" * 100_000 + "1", "line 1 is not valid Python"),
        ("(" * 10_000, "line 1 is not valid Python: too many nested parentheses"),
        ("a" + ".b" * 20_000, "line 1 is not valid Python"),
        ("x = '\x00'", "line 1 is not valid Python"),
    ],
    ids=lambda text: f"{text[:20]!r}",
)
async def test_python_parses(says: Says, text: str, wrong: str) -> None:
    said = await says(checks.python_parses, text)
    assert said is not None
    assert said.startswith(wrong)
    assert bool(said) == bool(wrong)


async def test_python_is_never_executed(says: Says, tmp_path: Any) -> None:
    mark = tmp_path / "mark"
    assert await says(checks.python_parses, f"open({str(mark)!r}, 'w')") == ""
    assert not mark.exists()


async def test_what_hangs_apart_is_killed() -> None:
    with pytest.raises(TimeoutError):
        await run_script("while True: pass", None, seconds=0.3)
    with pytest.raises(RuntimeError, match="ended with 7 and no answer"):
        await run_script("import sys; sys.stdin.read(); sys.exit(7)", None)
    with pytest.raises(RuntimeError, match="ended"):
        await run_script("raise SystemExit(7)", "x" * 1_000_000)


# ---------------------------------------------------------------- diffs

FILES = {"a.txt": "one\ntwo\nthree\nfour\n", "b.txt": "x\n"}
DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


@pytest.mark.parametrize(
    ("diff", "wrong"),
    [
        (DIFF, ""),
        (f"Here it is:\n```diff\ndiff --git a/a.txt b/a.txt\nindex 1..2 100644\n{DIFF}```\n", ""),
        (DIFF.replace("-1,3", "-2,3"), ""),
        (DIFF.replace("-two", "-TWO"), "line 3: the hunk does not fit 'a.txt' at line 1"),
        (DIFF.replace("a.txt", "c.txt"), "there is no file 'c.txt' to change"),
        (DIFF.replace("-1,3", "-1,4"), "line 3: the hunk ends before the lines it announces"),
        (DIFF.replace("-1,3", "-1,2"), "line 3: the hunk has more lines than it announces"),
        (DIFF.replace(" three", "three"), "line 7: a line of a hunk begins with ' ', '+' or '-', not 't'"),
        ("no diff", "it is not a unified diff"),
        ("--- a/a.txt", "it is not a unified diff"),
        (f"--- some notes\nabout it\n{DIFF}", ""),
        (DIFF.replace("@@ -1,3 +1,3 @@\n one", "@@ -0,3 +1,3 @@\n one"), ""),
        (DIFF.replace(" three\n", " three\n\\ No newline at end of file\n"), ""),
        (DIFF.replace("-1,3", "-9,3"), ""),
        ("@@ -1 +1 @@\n-a\n+b", "line 1: a hunk without the lines"),
        ("--- a/a.txt\n+++ b/a.txt\nnothing", "line 3: no hunk"),
        ("--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+hello\n\\ No newline at end of file", ""),
        ("--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+hello", "a.txt cannot be created: it exists already"),
        ("--- a/b.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+y", "a.txt cannot be created: it exists already"),
        ("--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x", ""),
        ("--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one", "a.txt is deleted by the diff, but lines of it are left"),
        (f"{DIFF}@@ -4 +4,2 @@\n four\n+five\n", ""),
    ],
)
async def test_a_diff_applies(says: Says, diff: str, wrong: str) -> None:
    said = await says(checks.diff_applies(FILES), diff)
    assert said is not None
    assert said.startswith(wrong)
    assert bool(said) == bool(wrong)


def test_a_hunk_goes_where_it_says_and_else_to_the_nearest_place() -> None:
    twins = {"a": "x\ny\nx\ny\n"}
    assert apply_patch("--- a\n+++ a\n@@ -3 +3 @@\n-x\n+z\n", twins) == {"a": "x\ny\nz\ny\n"}
    assert apply_patch("--- a\n+++ a\n@@ -4 +4 @@\n-x\n+z\n", twins) == {"a": "x\ny\nz\ny\n"}
    assert apply_patch("--- a\n+++ a\n@@ -2,0 +3 @@\n+new\n", twins) == {"a": "x\ny\nnew\nx\ny\n"}
    assert apply_patch("--- a\n+++ b\n@@ -1 +0,0 @@\n-x\n@@ -3 +2 @@\n-x\n+z\n", twins) == {"b": "y\nz\ny\n"}


async def test_no_diff_hangs_the_check(says: Says) -> None:
    files = {"a.txt": "a\n" * 20_000}
    hunk = "@@ -9000,2000 +9000,2000 @@\n" + " a\n" * 1_999 + "-b\n+c\n"
    assert await says(checks.diff_applies(files), "--- a.txt\n+++ a.txt\n" + hunk * 20) != ""


# ---------------------------------------------------------------- commands


async def test_a_command_runs_in_the_sandbox_that_was_given_and_nowhere_else(says: Says) -> None:
    calls: list[tuple[Sequence[str], Mapping[str, str]]] = []

    async def sandbox(argv: Sequence[str], files: Mapping[str, str]) -> checks.Ran:
        calls.append((argv, files))
        return checks.Ran(0) if "ok" in files["it.py"] else checks.Ran(2, "x" * 5_000 + " E999 bad")

    check = checks.command(["lint", "it.py"], sandbox, file="it.py", files={"rules": "all"})
    assert await says(check, "ok") == ""
    assert calls == [(("lint", "it.py"), {"rules": "all", "it.py": "ok"})]
    said = await says(check, "no")
    assert said is not None
    assert said.startswith("lint it.py exited with 2: ...xxx")
    assert said.endswith("E999 bad")
    assert len(said) < 1_100


@pytest.mark.parametrize("ran", [None, 0, True, checks.Ran(True), OSError("no sandbox")])
async def test_a_sandbox_that_is_broken_passes_nothing(says: Says, ran: Any) -> None:
    async def sandbox(_argv: Sequence[str], _files: Mapping[str, str]) -> Any:
        if isinstance(ran, Exception):
            raise ran
        return ran

    assert await says(checks.command(["x"], sandbox), "text") is None


async def test_a_command_that_does_not_end_is_undecided(judge: Judge) -> None:
    async def sandbox(_argv: Sequence[str], _files: Mapping[str, str]) -> checks.Ran:
        await anyio.sleep_forever()
        return checks.Ran(0)

    verdict = await judge(checks.command(["x"], sandbox, timeout=0.1), "text")
    assert verdict.criteria[0].reason == "the check of criterion 'c' took longer than 0.1 seconds"


# ---------------------------------------------------------------- functions


async def test_a_predicate(says: Says) -> None:
    async def calm(artifact: kt.Artifact) -> bool:
        return "!" not in artifact.text

    def asked(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool:
        return context.task.id in artifact.text

    assert await says(checks.predicate(calm, "do not shout"), "hush") == ""
    assert await says(checks.predicate(calm, "do not shout"), "hush!") == "do not shout"
    assert await says(checks.predicate(calm), "hush!") == "not met: as it should be"
    assert await says(checks.predicate(asked), "t") == ""
    assert await says(checks.predicate(lambda _: None, "no"), "x") is None
    assert await says(checks.predicate(lambda _: 1, "no"), "x") is None


async def test_whatever_raises_can_be_a_check(says: Says) -> None:
    """Such as the schema of a data frame."""

    class SchemaError(Exception):
        pass

    def validate(artifact: kt.Artifact) -> object:
        if artifact.text == "broken":
            raise KeyError("column")
        if artifact.text != "good":
            raise SchemaError(artifact.text)
        return None

    async def validate_later(artifact: kt.Artifact) -> None:
        validate(artifact)

    for check in (checks.accepted_by(validate, (SchemaError,)), checks.accepted_by(validate_later, (SchemaError,))):
        assert await says(check, "good") == ""
        assert await says(check, "column 'mg' < 0") == "column 'mg' < 0"
        assert await says(check, "") == "it was refused: SchemaError"
        assert await says(check, "broken") is None


# ---------------------------------------------------------------- languages

HAS_MODEL = find_spec("py3langid") is not None


@pytest.mark.skipif(not HAS_MODEL, reason="the extra `language` (py3langid) is not installed")
@pytest.mark.parametrize(
    ("codes", "text", "wrong"),
    [
        (("en",), "The moon pulls the sea, and that is why there are tides.", ""),
        (("de", "en"), "The moon pulls the sea, and that is why there are tides.", ""),
        (("en",), "Der Mond zieht das Meer an, und deshalb gibt es Gezeiten.", "it is written in 'de' instead of 'en'"),
        (("en",), "12345", None),
        (("en",), "Hi", None),
        (("en",), "", None),
    ],
)
async def test_language(says: Says, codes: tuple[str, ...], text: str, wrong: str | None) -> None:
    assert await says(checks.language(*codes), text) == wrong


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("kairo_team.evaluators.checks.language"), "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="the check language needs the extra 'language'"):
        checks.language("en")


# ---------------------------------------------------------------- all of them


def test_a_check_shows_how_it_was_made() -> None:
    assert repr(checks.max_words(120)) == "max_words(120)"
    assert repr(checks.forbidden("a", "b")) == "forbidden('a', 'b')"
    assert repr(checks.predicate(os.path.exists)) == "predicate(exists)"


def test_checks_that_were_given_something_else_have_another_fingerprint() -> None:
    assert checks.json_schema({"minimum": 1}).fingerprint != checks.json_schema({"minimum": 2}).fingerprint
    assert checks.citations({"a": "b"}).fingerprint == checks.citations({"a": "b"}).fingerprint
    assert checks.citations({"a": "b"}).fingerprint != checks.citations({"a": "c"}).fingerprint
    assert checks.pydantic_model(Dose).fingerprint != checks.pydantic_model(list[int]).fingerprint
