from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TeamFile = Callable[..., Path]
NEWSROOM = Path(__file__).parent / "data" / "newsroom.py"

NOISY = """
import atexit, logging, os, subprocess, sys, threading, time
print("at import")
def noisy(assignment):
    print("from python")
    os.write(1, b"from native code\\n")
    subprocess.run(["echo", "from a child"])
    threading.Thread(target=late, daemon=True).start()
    return "quiet"
def late():
    while True:
        print("from a thread", flush=True)
        time.sleep(0.001)
atexit.register(time.sleep, 0.05)
team = kt.Team("t", [kt.Member("a", noisy)])
"""


def test_json_is_one_document_whatever_else_is_printed(program: Any, team_file: TeamFile) -> None:
    said = program("run", team_file(NOISY), "x", "--json")
    assert said.code == 0
    assert json.loads(said.out)["output"] == "quiet"
    for noise in ("at import", "from python", "from native code", "from a child", "from a thread", "t: completed"):
        assert noise in said.err


def test_the_document_has_the_documented_keys(kairo_json: Any) -> None:
    said = kairo_json("run", NEWSROOM, "--json")
    document = said.document
    assert list(document) == [
        "run_id", "team", "goal", "status", "exit_code", "output", "partial_output", "error", "outcomes", "usage",
        "budget", "duration", "warnings", "halt", "note", "go_on",
    ]  # fmt: skip
    assert (document["team"], document["goal"]) == ("newsroom", "Explain tides.")
    assert (document["status"], document["exit_code"], document["error"]) == ("completed", 0, None)
    moon = document["outcomes"][0]
    assert (moon["task_id"], moon["attempts"], moon["verdict"]["outcome"]) == ("moon", 2, "pass")
    assert moon["artifact"]["text"] == "Tides follow the moon, as everybody knows."
    assert document["usage"]["prompt_tokens"] == 300
    assert document["budget"]["children"][0]["children"][0]["usage"]["completion_tokens"] == 40
    assert "newsroom: completed, 360 tokens" in said.err


def test_findings_of_a_task_that_never_passed_are_in_the_document(kairo_json: Any, team_file: TeamFile) -> None:
    text = "from kairo_team.evaluators import Criterion, Rubric\n"
    text += 'team = kt.Team("t", [kt.Member("a", lambda a: "x")], evaluators={"no": Rubric([Criterion("c", "c", '
    text += 'lambda artifact: "too short")])})\nplan = kt.TaskGraph([kt.Task("t", "x", evaluator="no")])'
    said = kairo_json("run", team_file(text), "--json")
    assert said.code == 4
    verdict = said.document["outcomes"][0]["verdict"]
    assert (verdict["cause"], verdict["findings"][0]["observed"]) == ("no_progress", "too short")


def test_values_json_does_not_have_are_written_as_text(kairo_json: Any, team_file: TeamFile) -> None:
    text = (
        'team = kt.Team("t", [kt.Member("a", lambda a: kt.Artifact("\\ud800", data={"n": float("nan"), "o": {1j}}))])'
    )
    artifact = kairo_json("run", team_file(text), "x", "--json").document["outcomes"][0]["artifact"]
    assert artifact["text"] == "\ud800"
    assert artifact["data"]["o"] == ["1j"]


def test_without_json_the_log_is_sentences_on_stderr(program: Any, team_file: TeamFile) -> None:
    text = "from kairo_team.evaluators import Criterion, Rubric\nfrom kairo_team.coordinators import *\n"
    text += 'def broken(artifact): raise KeyError("no such\\nword")\n'
    text += 'team = kt.Team("t", [kt.Member("a", lambda a: "x")],\n'
    text += '    coordinator=ExpertTeamCoordinator(evaluator=Rubric([Criterion("c", "is c", broken)])))'
    said = program("run", team_file(text), "x")
    assert said.code == 4
    assert said.err.startswith("warning: the check of criterion 'c' raised (team_file.py, line 4): KeyError")
    assert said.err.count("\n") == 1


ENDLESS = """
import anyio
async def work(assignment):
    await anyio.sleep(600 if assignment.task.id == "last" else 0)
    return "x"
team = kt.Team("t", [kt.Member("a", work)])
plan = kt.TaskGraph([kt.Task(f"t{n}", "x") for n in range(50)] + [kt.Task("last", "x")])
"""


@pytest.mark.skipif(os.name != "posix", reason="pipes break differently elsewhere")
def test_a_run_whose_reader_leaves_is_stopped_in_silence(team_file: TeamFile) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kairo_team.cli", "run", str(team_file(ENDLESS))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.readline()
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(60) == 6


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize(
    "words",
    [
        ["run", str(NEWSROOM)],
        ["--help"],
        pytest.param(["run", str(NEWSROOM), "--json"], marks=pytest.mark.exhaustive),
        pytest.param(["run", "--help"], marks=pytest.mark.exhaustive),
    ],
)
def test_output_that_cannot_be_written_is_said(words: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kairo_team.cli", *words],
            stdout=full, stderr=subprocess.PIPE, check=False, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("kairo: the output could not be written: ")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_narrow_encoding_costs_letters_not_the_run(program: Any, team_file: TeamFile) -> None:
    text = 'team = kt.Team("t", [kt.Member("a", lambda a: "h\u00e9 \u2713")])'
    said = program("run", team_file(text), "x", PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert said.code == 0
    assert "h? ?" in said.out
    assert "  `- a" in said.out


def test_forced_colours_colour_the_lines_and_no_color_takes_them_out(
    kairo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = kairo("run", NEWSROOM).out
    assert "\x1b[32mdone" in coloured or "\x1b[32m  + " in coloured
    assert "newsroom: completed, 360 tokens" in coloured
    assert "\x1b[?25l" not in coloured, "nothing is redrawn in a pipe"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in kairo("run", NEWSROOM).out
