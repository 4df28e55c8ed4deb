"""No text of a person, a model, a tool or an error moves the cursor, hides itself or is obeyed by the terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from kairo_team.cli.app import app

pytestmark = pytest.mark.real_time
TeamFile = Callable[..., Path]

LINK = "\x1b]8;;http://a.b\x1b\\"
CODES = "\x1bc over\rwritten b\b\b\x7f \u202e\u2066\u2067\u2028\x85\x0b\x0c\x00 end"
HOSTILE = f"bad \x1b[2J \x9b1A {LINK}link\x1b]8;;\x07 {CODES}"
TYPED = HOSTILE.replace("\0", "")
"""No argument of a program holds a zero."""
PLACE = TYPED.replace("/", "").replace(":", "")
"""No name of a file holds a slash, and what follows a colon is a name in the file."""
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Everything but a new line that a terminal obeys, or that turns the order of what it shows."""
RICH = re.compile(r"\x1b\[[0-9;?]*[mhlKAJG]|\r(?=\n|\x1b\[2K|\x1b\[)")
"""What the live view itself sends: colours, the cursor, cleared lines."""

TEAM = f"""
import logging
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.testing import FunctionModel

BAD = {HOSTILE!r}
LOG = logging.getLogger("kairo_team.stranger")

def reply(request):
    if any(message.role == "tool" for message in request.messages):
        return "done " + BAD
    return kt.ModelResponse("I call " + BAD, [kt.ToolCall("1", BAD, {{BAD: BAD}})], kt.Usage(3, 4), model=BAD)

@kt.tool
def look(what: str) -> str:
    \"\"\"Look.\"\"\"
    raise OSError(BAD)

def look_first(request):
    if any(message.role == "tool" for message in request.messages):
        return "done " + BAD
    return kt.ModelResponse("", [kt.ToolCall("1", "look", {{"what": BAD}})], kt.Usage(3, 4), model=BAD)

def fail(assignment, context):
    context.keep("half " + BAD)
    LOG.warning("noted: %s", BAD)
    try:
        raise RuntimeError(BAD)
    except RuntimeError:
        LOG.exception("caught %s", BAD)
    raise ValueError(BAD)

class Unsure:
    async def evaluate(self, context):
        if context.task.id == "asks":
            return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, BAD, findings=[kt.Finding("f", observed=BAD)])
        if context.attempt == 1 and context.task.id == "revised":
            return kt.EvaluationVerdict.revise(BAD, findings=[kt.Finding("f", observed=BAD)])
        return kt.EvaluationVerdict.passed(1.0, feedback=BAD)

def write(assignment):
    return kt.Artifact(f"{{assignment.attempt}} " + BAD + "\\n" + BAD, data={{BAD: BAD}})

experts = ExpertTeamCoordinator(evaluator=Unsure(), failure_policy=FailurePolicy(retries=1))
team = kt.Team("team " + BAD, [
    kt.Member(kt.Role("writer", BAD, capabilities={{BAD}}), write),
    kt.Member("unknown-tool", kt.MiniAgent(FunctionModel(reply, name="test:" + BAD))),
    kt.Member("broken-tool", kt.MiniAgent(FunctionModel(look_first, name="test:" + BAD), tools=[look])),
    kt.Member("failing", fail),
], coordinator=experts)
plan = kt.TaskGraph([
    kt.Task("revised", BAD, requires=[BAD]),
    kt.Task("unknown", BAD, member="unknown-tool"),
    kt.Task("broken", BAD, member="broken-tool"),
    kt.Task("fails", BAD, member="failing"),
    *ASKING
])
config = kt.TeamConfig(budget=kt.Budget(tokens=90_000))
request = kt.TeamExecutionRequest("goal " + BAD, {{BAD: BAD}}, plan=plan, config=config)
"""
ENDS = TEAM.replace("*ASKING", "")
ASKS = TEAM.replace("*ASKING", 'kt.Task("asks", BAD, member="writer"),')


def check_harmless(*texts: str) -> None:
    for text in texts:
        found = OBEYED.search(text)
        assert found is None, f"{found[0]!r} in {text[max(0, found.start() - 80) : found.end() + 20]!r}"


def test_a_run_prints_nothing_that_a_terminal_obeys(program: Any, team_file: TeamFile) -> None:
    said = program("run", team_file(ENDS))
    assert said.code in (3, 4), said.err
    check_harmless(said.out, said.err)
    assert "bad ?[2J ?1A ?]8;;http://a.b?\\link" in said.out
    assert "warning: noted: bad ?[2J" in said.err


def test_a_run_with_json_prints_nothing_that_a_terminal_obeys(program: Any, team_file: TeamFile) -> None:
    said = program("run", team_file(ENDS), "--json")
    check_harmless(said.out, said.err)
    assert "bad ?[2J" in said.err
    document = json.loads(said.out)
    assert document["goal"] == f"goal {HOSTILE}", "the document has it unchanged, in escapes of JSON"


@pytest.mark.exhaustive
def test_what_is_said_of_a_recorded_run_is_harmless(
    program: Any, kairo: Any, team_file: TeamFile, tmp_path: Path
) -> None:
    book = ("--journal", tmp_path / "runs.db")
    said = program("run", team_file(ASKS), "--run-id", "run-1", *book)
    assert said.code == 7, said.err
    after = [
        program("runs", *book),
        program("runs", "--json", *book),
        program("show", "run-1", *book),
        program("show", "run-1", "--json", *book),
        program("events", "run-1", *book),
        program("answer", "run-1", "revise", "--text", TYPED, *book),
        program("resume", "run-1", *book),
        program("answer", "run-1", TYPED, *book),
        program("show", TYPED, *book),
        kairo("report", "run-1", "-o", tmp_path / f"{PLACE}.html", *book),
        kairo("cancel", "run-1", *book),
        kairo("fork", "run-1", "--before", "revised", "--new-id", "other", *book),
        kairo("fork", "run-1", "--before", TYPED, *book),
        kairo("forget", "run-1", *book),
    ]
    codes = [0, 0, 0, 0, 0, 0, 7, 2, 2, 0, 0, 0, 2, 0]
    assert [one.code for one in after] == codes, [one.err for one in after]
    check_harmless(said.out, said.err, *(text for one in after for text in (one.out, one.err)))
    assert "bad ?[2J" in after[2].out
    assert "answered: revise, bad ?[2J" in after[5].out


REFUSED = f"""
team = kt.Team("team", [kt.Member("a", lambda a: "fine")])
plan = kt.TaskGraph([kt.Task("one", "do", member={TYPED!r}), kt.Task("two", "do", requires=[{TYPED!r}])])
"""
BROKEN = f"raise RuntimeError({TYPED!r})"


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("text", [REFUSED, BROKEN], ids=["refused", "broken"])
def test_what_is_refused_is_said_harmlessly(kairo: Any, team_file: TeamFile, command: str, text: str) -> None:
    said = kairo(command, team_file(text))
    assert said.code == 2
    assert "bad ?[2J" in said.err or "bad \\x1b[2J" in said.err
    check_harmless(said.out, said.err)


def commands() -> list[tuple[str, ...]]:
    """Every command there is, as one types it."""

    def below(command: Any, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        inner = getattr(command, "commands", {})
        return [found for name, one in inner.items() for found in below(one, (*words, name))] if inner else [words]

    return below(typer.main.get_command(app), ())


@pytest.mark.parametrize("words", commands(), ids=" ".join)
@pytest.mark.parametrize("typed", [TYPED, f"--{TYPED}"], ids=["argument", "option"])
def test_what_was_typed_is_repeated_harmlessly_by_every_command(
    kairo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = kairo(*words, typed)
    assert said.code == 2
    assert said.err
    check_harmless(said.out, said.err)


JUDGE = f"""
import itertools
from kairo_team.errors import ModelCallError
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import FunctionModel

BAD = {HOSTILE!r}
TURNS = itertools.count()

def answer(request):
    if next(TURNS) % 2:
        raise ModelCallError("bad_request", BAD, BAD)
    return BAD

judge = FunctionModel(answer, name="test:" + BAD)
rubric = Rubric([Criterion("well", BAD, by="judge")])
"""


def test_what_is_said_of_a_judge_is_harmless(kairo: Any, team_file: TeamFile, tmp_path: Path) -> None:
    (tmp_path / PLACE).mkdir()
    file = team_file(JUDGE, f"{PLACE}/judge.py")
    labelled, broken = tmp_path / f"{PLACE}.jsonl", tmp_path / "broken.jsonl"
    lines = [{"artifact": f"{number} {HOSTILE}", "task": HOSTILE, "passed": number > 2} for number in range(4)]
    labelled.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    broken.write_text(json.dumps({HOSTILE: HOSTILE}), encoding="utf-8")
    by = ("--judge", f"{file}:judge", "--rubric", file)
    said = [
        kairo("judge", "score", labelled, *by),
        kairo("judge", "calibrate", labelled, *by, "--out", tmp_path / PLACE / "made.json"),
        kairo("judge", "attack", *by, "--cases", "2"),
        kairo("judge", "try", file, labelled, *by[:2], "--task", TYPED, "--prompt"),
        kairo("judge", "score", broken, *by),
        kairo("judge", "score", labelled, *by[:2], "--rubric", f"{file}:{PLACE}"),
        kairo("judge", "attack", *by, "--artifacts", tmp_path / f"no {PLACE}"),
    ]
    assert [one.code for one in said] == [0, 4, 2, 4, 2, 2, 2], "\n".join(one.err for one in said)
    check_harmless(*(text for one in said for text in (one.out, one.err)))
    assert said[3].out.count("bad ?[2J") > 2, "the task, the text and the reply"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "code"), [(("check",), 0), (("graph",), 0), (("run", "--model", TYPED), 2), (("run", TYPED), 2)]
)
def test_what_is_said_before_a_run_is_harmless(
    program: Any, team_file: TeamFile, words: tuple[str, ...], code: int
) -> None:
    said = program(words[0], *([] if words == ("run", TYPED) else [team_file(ENDS)]), *words[1:])
    assert said.code == code, said.err
    check_harmless(said.out, said.err)


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_a_live_view_sends_only_its_own_commands(team_file: TeamFile) -> None:
    from tests.cli.test_terminal import terminal

    with terminal("run", team_file(ENDS)) as shown:
        text = shown.read_until()
        assert shown.process.wait(60) in (3, 4)
    assert "bad ?[2J" in text
    check_harmless(RICH.sub("", text))
    assert "\x1b[2J" not in text


EVAL = f"""
from kairo_team.evaluators import Answer, Criterion, Rubric
import kairo_team as kt

BAD = {HOSTILE!r}

async def write(assignment):
    if "fail" in assignment.goal:
        raise ValueError(BAD)
    return assignment.goal + BAD

async def look(artifact):
    if "broken" in artifact.text:
        raise ValueError(BAD)
    return Answer(level="fine" in artifact.text, reason=BAD, finding=kt.Finding("well", observed=BAD, expected=BAD))

team = kt.Team("team " + BAD, [kt.Member("writer", write)])
rubric = Rubric([Criterion("well", BAD, look)])
"""


def test_what_an_eval_finds_is_harmless(kairo: Any, team_file: TeamFile, tmp_path: Path) -> None:
    file, cases, page = team_file(EVAL), tmp_path / "cases.jsonl", tmp_path / "page.html"
    lines = [{"input": f"{word} {HOSTILE}", "reference": HOSTILE} for word in ("fine", "poor", "broken", "fail")]
    cases.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    before = tmp_path / "before.json"
    given = ("eval", cases, "--team", file, "--rubric", file)
    first = kairo(*given, "--output", before, "--html", page)
    document = json.loads(before.read_text(encoding="utf-8"))
    for trial in document["trials"]:
        trial["case"] = HOSTILE if trial["number"] == 1 and trial["case"] == "case-0001" else trial["case"]
    before.write_text(json.dumps(document | {"name": HOSTILE, "judge": HOSTILE}), encoding="utf-8")
    compared = kairo(*given, "--compare", before, "--html", page)
    table = first.out[first.out.index("cases: ") :]
    assert [" poor" in one.out or "case-0002" in one.out for one in (first, compared)] == [True, True]
    assert all(word in table for word in ("failed: ", "undecided: ", "no result: "))
    check_harmless(first.out, first.err, compared.out, compared.err, page.read_text(encoding="utf-8"))
