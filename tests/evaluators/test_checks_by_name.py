"""Checks of packages and of one's own code, by their names in the data of a rubric and of a team."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import plugins
from kairo_team.evaluators import rubric_data
from tests import plugin_packages
from tests.plugin_packages import Install

install = plugin_packages.install

SOURCE = """
import anyio
from pathlib import Path
from kairo_team.evaluators import Answer

LOADED = []

def cited(mark: str = "Source:", least: int = 1):
    def check(artifact):
        return artifact.text.count(mark) >= least or f"it has fewer than {least} {mark!r}"
    return check

class Register:
    "Names of a register, one a line."
    def __init__(self, path: Path, *more: Path):
        self.names = [name for one in (path, *more) for name in one.read_text().split()]
    async def __call__(self, artifact, context):
        await anyio.sleep(0)
        return any(name in artifact.text for name in self.names) or f"{context.task.id} names nothing of the register"

def several(*words: str):
    return lambda artifact: all(word in artifact.text for word in words) or "a word is missing"

def loose(path: str):
    return lambda artifact: Path(path).exists()

def unreadable(table: "Nowhere"):
    return lambda artifact: True

def themselves(artifact):
    return True

def number():
    return 5

def broken(limit: int):
    raise ValueError(f"a limit of {limit} makes no sense")

def quits():
    raise SystemExit(3)
"""
NAMES = ("cited", "loose", "unreadable", "themselves", "number", "broken", "quits", "several")


@pytest.fixture
def package(install: Install) -> None:
    targets = {name: f"acme_checks:{name}" for name in NAMES} | {"acme-register": "acme_checks:Register"}
    install("acme-checks", {"check": targets}, SOURCE)


def data(check: Any, **more: Any) -> dict[str, Any]:
    return {"criteria": [{"id": "one", "text": "the rule", "check": check, **more}]}


async def levels(rubric: kt.Rubric, text: str) -> list[tuple[str, str]]:
    context = kt.EvaluationContext(kt.Task("note", "Write it."), kt.Artifact(text), 1)
    verdict = await rubric.evaluate(context)
    return [(str(one.level), verdict.feedback) for one in verdict.criteria]


def mistake(check: Any, *, trusted: bool = False) -> str:
    with pytest.raises(ValueError, match=r"^the rubric: ") as caught:
        kt.Rubric.from_data(data(check), trusted=trusted)
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ("cited", "Source: x", "x"),
        ({"cited": {"mark": "From:", "least": 2}}, "From: a From: b", "From: a"),
        ({"cited": "From:"}, "From: a", "Source: a"),
        ({"cited": None}, "Source: a", "a"),
        ("cited@acme-checks", "Source: x", "x"),
        ({"several": {}}, "anything", None),
    ],
)
async def test_a_published_check_decides_and_comes_back_as_it_was_written(
    check: Any, good: str, bad: str | None
) -> None:
    rubric = kt.Rubric.from_data(data(check))
    assert await levels(rubric, good) == [("met", "")]
    if bad is not None:
        ((level, said),) = await levels(rubric, bad)
        assert level == "not met"
        assert said.startswith("it has fewer than")
    assert rubric.to_data()["criteria"][0]["check"] == check
    again = kt.Rubric.from_data(json.loads(json.dumps(rubric.to_data())))
    assert again.digest == rubric.digest
    assert rubric.digest is not None


@pytest.mark.usefixtures("package")
def test_options_are_in_the_digest() -> None:
    made = [kt.Rubric.from_data(data({"cited": {"least": least}})) for least in (1, 2)]
    assert made[0].digest != made[1].digest
    assert "cited({'least': 1})" in repr(made[0].criteria[0].check)


@pytest.mark.usefixtures("package")
async def test_a_path_begins_at_the_file_of_the_rubric_and_the_check_is_async_and_takes_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "names.txt").write_text("Brest\nDover")
    file = tmp_path / "rules" / "rubric.json"
    file.write_text(json.dumps(data({"acme-register": "names.txt"})))
    monkeypatch.chdir("/")
    rubric = kt.load_rubric(file)
    assert await levels(rubric, "From Dover.") == [("met", "")]
    assert await levels(rubric, "From Hull.") == [("not met", "note names nothing of the register")]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("path", ["../names.txt", "/etc/hosts", "~/names.txt", "link.txt", "file:///etc/hosts", "a\0b"])
def test_a_rubric_that_is_not_trusted_stays_in_its_folder(path: str, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("Brest")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "link.txt").symlink_to(tmp_path / "names.txt")
    file = tmp_path / "rules" / "rubric.json"
    file.write_text(json.dumps(data({"acme-register": {"path": path}})))
    with pytest.raises(ValueError, match=r"path (leads out of the file's folder|must be the path of a file)"):
        kt.load_rubric(file)
    if path in ("../names.txt", "link.txt"):
        assert kt.load_rubric(file, trusted=True).criteria


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("check", "says"),
    [
        ({"loose": "x"}, "check.loose.path could be a path, and 'path' is not declared as one"),
        ({"unreadable": {"table": "x"}}, "check.unreadable.table could be a path, and 'table' is not declared as one"),
        ("cites", "check names 'cites', which is not a check; did you mean 'cited'? there are "),
        ({"cited": {"marks": "x"}}, "check.cited is refused: check 'cited': there is no option 'marks'; its options"),
        ({"cited": {"least": 1}, "number": {}}, "check must be a check's name, or one name with its arguments"),
        ("broken", "check is refused: check 'broken': missing a required argument: 'limit'"),
        ({"broken": 3}, "check.broken is refused: check 'broken': a limit of 3 makes no sense"),
        ("quits", "check is refused: check 'quits': it ended the program (SystemExit)"),
        ("number", "check is refused: check 'number': a check is a function of the artifact, not 5"),
        ("themselves", "check is refused: check 'themselves': it takes the artifact, so it is the check; publish"),
        ("os:getcwd", "check imports code, 'os:getcwd': that is for trusted data (trusted=True)"),
        ({"os:getcwd": {}}, "check imports code, 'os:getcwd': that is for trusted data (trusted=True)"),
        ("command", "check cannot be 'command', which takes a function or a class"),
        (["cited"], "check must be a check's name"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(check: Any, says: str) -> None:
    found = mistake(check)
    assert says in found, found


@pytest.mark.usefixtures("package")
async def test_code_of_ones_own_is_for_trusted_data() -> None:
    plain = kt.Rubric.from_data(data("acme_checks:themselves"), trusted=True)
    made = kt.Rubric.from_data(data({"acme_checks:cited": {"mark": "From:"}}), trusted=True)
    assert await levels(plain, "x") == [("met", "")]
    assert await levels(made, "From: x") == [("met", "")]
    assert made.to_data()["criteria"][0]["check"] == {"acme_checks:cited": {"mark": "From:"}}
    assert "has no 'cites'; did you mean 'cited'?" in mistake("acme_checks:cites", trusted=True)


@pytest.mark.usefixtures("package")
def test_a_team_of_data_has_rubrics_with_checks_of_packages(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("Brest")
    own = data({"acme-register": {"path": "names.txt"}})
    (tmp_path / "rubric.json").write_text(json.dumps(own))
    team = {
        "name": "desk",
        "members": [{"role": "a", "agent": {"mini": {"model": "local:smollm2", "max_turns": 1}}}],
        "evaluators": {"own": own, "file": "rubric.json", "code": data("acme_checks:themselves")},
    }
    (tmp_path / "team.json").write_text(json.dumps(team))
    assert [*kt.load_team(tmp_path / "team.json", trusted=True).evaluators] == ["own", "file", "code"]
    with pytest.raises(ValueError, match=r"evaluators\.code\.criteria\[0\]\.check imports code") as caught:
        kt.load_team(tmp_path / "team.json")
    assert len(str(caught.value).splitlines()) == 1


def test_the_names_that_data_can_say_are_the_built_in_plug_ins() -> None:
    assert {*plugins.KINDS["check"].built_in} == {*rubric_data.TAKES, *rubric_data.PLAIN}
    for one in plugins.installed("check"):
        if one.distribution == plugins.OURS:
            plugins.examine(one)
    assert plugins.make("check", "not_blank") is kt.checks.not_blank
    assert plugins.make("check", "max-words", {"limit": 2})(kt.Artifact("a b")) is True


def test_no_package_takes_over_a_built_in_check(install: Install) -> None:
    install("acme-taker", {"check": {"max-words": "acme_taker:cited", "not_blank": "acme_taker:cited"}}, SOURCE)
    found = {one.name: one.problem for one in plugins.installed("check") if one.distribution == "acme-taker"}
    assert found["max-words"] == "the name is built in: write 'max-words@acme-taker' for this one"
    assert plugins.find("check", "max_words") is kt.checks.max_words
    assert plugins.find("check", "not-blank")() is kt.checks.not_blank


@pytest.mark.usefixtures("package")
def test_the_schema_allows_other_names_and_refuses_those_that_need_arguments() -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator(kt.Rubric.json_schema())
    names: tuple[Any, ...] = ("cited@acme-checks", {"acme-register": {"path": "x"}}, {"acme-register": "x"})
    for check in (*names, "acme_checks:cited", "not_blank", {"max_words": 2}):
        assert validator.is_valid(data(check)), check
    wrong: list[Any] = ["max_words", "max_word", {"max_word": 2}, {"max_words": "2"}, {"not_blank": {}}, "command", 5]
    for check in (*wrong, {"a": 1, "b": 2}):
        assert not validator.is_valid(data(check)), check
