"""A person at the terminal is asked in the middle of a run: nothing draws over the question or eats the answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TeamFile = Callable[..., Path]

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

HEAD = """
import anyio, pathlib
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy

class Unsure:
    async def evaluate(self, context):
        if context.task.id != "letter" or "shorter" in context.artifact.text:
            return kt.EvaluationVerdict.passed(1.0)
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")

async def write(assignment, context):
    if assignment.task.id == "beside":
        for number in range(40):
            context.emit(f"step {number}")
            print("a print of the member's own", flush=True)
            await anyio.sleep(0.02)
        return "done beside"
    return "a shorter letter" if assignment.previous else "a long letter"

coordinator = ExpertTeamCoordinator(evaluator=Unsure(), failure_policy=FailurePolicy(retries=0))
plan = kt.TaskGraph([kt.Task("letter", "Write it."), kt.Task("beside", "Work.")])
"""
TEAM = """
runtime = kt.Runtime(gate={gate})
team = kt.Team("office", [kt.Member("clerk", write)], coordinator=coordinator, runtime=runtime)
"""
AT_THE_TERMINAL = HEAD + TEAM.format(gate="kt.ConsoleGate()")
PROMPT = "re[j]ect, [d]efer > "


def plain(text: str) -> str:
    return ESCAPE.sub("", text)


# ---------------------------------------------------------------- a real terminal


@pytest.fixture
def terminal() -> Any:
    pytest.importorskip("pty", reason="needs pseudo-terminals")
    from tests.cli.test_terminal import terminal

    return terminal


def test_the_live_view_steps_aside_for_a_question_and_comes_back(team_file: TeamFile, terminal: Any) -> None:
    with terminal("run", team_file(AT_THE_TERMINAL)) as shown:
        asked = shown.read_until(PROMPT)
        before, _, question = asked.rpartition("Is the work of 'clerk'")
        assert "Only a person may accept it: a person must see it" in question
        assert "no answer: the task fails" in question
        assert "\x1b[?25h" in before, "the cursor is there for whoever types"
        assert before.rindex("\x1b[?25h") > before.rindex("\x1b[?25l")
        assert "a long letter" in question
        assert "\x1b" not in question.partition("clerk")[2]
        shown.press(b"r shorter, please\n")
        text = shown.read_until()
        assert shown.process.wait(60) == 0
    after = text[len(asked) :]
    assert "\x1b[?25l" in after, "the table is drawn again"
    assert "a shorter letter" in plain(text)
    assert "COMPLETED  after " in plain(text)


def test_nothing_is_drawn_while_the_answer_is_typed(team_file: TeamFile, terminal: Any) -> None:
    with terminal("run", team_file(AT_THE_TERMINAL)) as shown:
        asked = shown.read_until(PROMPT)
        shown.press(b"a")
        shown.read_until("member's own\r\na print")  # the other member works on
        between = shown.seen[len(asked) :]
        shown.press(b"\n")
        shown.read_until()
        assert shown.process.wait(60) == 0
    assert "\x1b" not in between
    assert "tokens" not in between


def test_nonsense_is_asked_again_and_ctrl_c_stops_the_run_with_a_question_open(
    team_file: TeamFile, terminal: Any
) -> None:
    with terminal("run", team_file(AT_THE_TERMINAL)) as shown:
        shown.read_until(PROMPT)
        shown.press(b"perhaps\n")
        shown.read_until("is not an answer")
        shown.press(b"\x03")
        text = plain(shown.read_until())
        assert shown.process.wait(60) == 6
    assert "Traceback" not in text
    assert "Fatal" not in text
    assert "CANCELLED  after " in text


def test_a_dumb_terminal_holds_its_lines_back_while_a_question_is_open(team_file: TeamFile, terminal: Any) -> None:
    with terminal("run", team_file(AT_THE_TERMINAL), TERM="dumb") as shown:
        asked = shown.read_until(PROMPT)
        assert "letter: a person is asked" in asked
        shown.press(b"a\n")
        text = shown.read_until()
        assert shown.process.wait(60) == 0
    assert "letter: a person decided: approve" in text[len(asked) :]
    assert "letter: done after 1 attempt\r\n" in text


# ---------------------------------------------------------------- pipes


def test_answers_may_be_piped_in(team_file: TeamFile) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kairo_team.cli", "run", str(team_file(AT_THE_TERMINAL))],
        input=b"r shorter\n",
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert b"a long letter" in done.stderr
    assert b"a shorter letter" in done.stdout


def test_without_anybody_at_the_terminal_it_is_silence(team_file: TeamFile, program: Any) -> None:
    said = program("run", team_file(AT_THE_TERMINAL))
    assert said.code == 4
    assert "letter: nobody answered" in said.out


def test_json_keeps_stdout_to_itself(team_file: TeamFile) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kairo_team.cli", "run", str(team_file(AT_THE_TERMINAL)), "--json"],
        input=b"a\n",
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "completed")
    assert b"[a]pprove" in done.stderr


# ---------------------------------------------------------------- suspended


def test_a_suspended_run_has_its_own_exit_code_and_says_what_waits(team_file: TeamFile, kairo: Any) -> None:
    said = kairo("run", team_file(HEAD + TEAM.format(gate="kt.DeferGate()")))
    assert said.code == 7
    assert "letter: put off" in said.out
    lines = said.out.splitlines()
    assert next(line for line in lines if "? letter" in line).split()[:3] == ["?", "letter", "suspended"]
    status = said.out[said.out.index("SUSPENDED  after ") :]
    assert "task 'letter' waits for a person: Is the work of 'clerk' on 'letter' good enough?" in status
    assert "Runtime.answer and Runtime.resume" in status


def test_a_suspended_plan_lists_its_tasks_as_waiting(team_file: TeamFile, kairo: Any) -> None:
    text = HEAD.replace("evaluator=Unsure()", "plan_approval=True") + TEAM.format(gate="kt.DeferGate()")
    said = kairo("run", team_file(text))
    assert said.code == 7
    assert ". letter  waits" in said.out
    assert "the plan waits for a person" in said.out


def test_the_document_says_suspended(team_file: TeamFile, kairo_json: Any) -> None:
    said = kairo_json("run", team_file(HEAD + TEAM.format(gate="kt.DeferGate()")), "--json")
    assert (said.code, said.document["status"], said.document["exit_code"]) == (7, "suspended", 7)
    assert {one["task_id"]: one["status"] for one in said.document["outcomes"]} == {
        "letter": "suspended", "beside": "completed"
    }  # fmt: skip


@pytest.mark.parametrize("option", [[], ["--model", "local:smollm2"]], ids=["its own models", "--model"])
def test_the_command_keeps_what_the_teams_own_runtime_has(team_file: TeamFile, kairo: Any, option: list[str]) -> None:
    """Its gate, prices, budget, secrets and limits, not only its models and subscribers."""
    if option:
        pytest.importorskip("xllamacpp")
    text = """
runtime = kt.Runtime(gate=kt.CallbackGate(lambda question: True), budget=kt.Budget(loops=1))
team = kt.Team("office", [kt.Member("clerk", write)], coordinator=coordinator, runtime=runtime)
"""
    said = kairo("run", team_file(HEAD + text), *option)
    assert said.code == 4
    assert "a person decided: approve" in said.out
    assert "loop_budget_exceeded" in said.out
