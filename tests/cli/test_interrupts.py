from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of a terminal")
TeamFile = Callable[..., Path]

SLOW = """
import anyio
async def slow(assignment, context):
    context.keep("half a page")
    print("at work", flush=True)
    await anyio.sleep(600)
team = kt.Team("t", [kt.Member("a", lambda a: "the first page"), kt.Member("b", slow)])
plan = kt.TaskGraph([kt.Task("quick", "x", member="a"), kt.Task("slow", "x", member="b", depends_on=["quick"])])
"""
STUBBORN = """
import time
async def blocks(assignment):
    print("at work", flush=True)
    time.sleep(600)
team = kt.Team("t", [kt.Member("a", blocks)])
plan = kt.TaskGraph([kt.Task("slow", "x")])
"""
HASTY = "from kairo_team.cli import interrupts; interrupts.PATIENCE = 0.1"
"""In a team's file: its run is given up sooner."""
NOTICE = "stopping ... press Ctrl-C again to exit at once\n"


def program(
    arguments: list[str], interrupt: signal.Handlers = signal.SIG_DFL, *, path: Path | None = None
) -> subprocess.Popen[str]:
    """The command line as a program that ignores no signal, whoever runs the tests; it imports from `path` first."""

    def take_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, interrupt)

    paths = [str(path)] if path else []
    return subprocess.Popen(
        [sys.executable, "-m", "kairo_team.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])},
        preexec_fn=take_signals,  # noqa: PLW1509 - it calls the system and no more
    )


@contextmanager
def started(path: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    """A run that has come to its slow task."""
    with program(["run", str(path), *options]) as process:
        stream = process.stderr if "--json" in options else process.stdout
        assert stream is not None
        for line in stream:
            if line == "at work\n":
                break
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_once_stops_the_run_and_shows_what_there_is(team_file: TeamFile) -> None:
    with started(team_file(SLOW)) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 6
    assert err == NOTICE
    assert "Partial output\n  | quick:\n  | the first page\n  |\n  | slow:\n  | half a page\n" in out
    assert out.splitlines()[-2].startswith("CANCELLED  after ")
    assert out.splitlines()[-1].strip() == "interrupted"


def test_ctrl_c_once_still_gives_the_document(team_file: TeamFile) -> None:
    with started(team_file(SLOW), "--json") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 6
    document = json.loads(out)
    assert (document["status"], document["error"]) == ("cancelled", "interrupted")
    assert document["outcomes"][1]["artifact"] == {
        "text": "half a page", "data": None, "media_type": "text/plain", "partial": True,
    }  # fmt: skip
    assert NOTICE in err


def test_ctrl_c_twice_leaves_at_once_whatever_the_run_does(team_file: TeamFile) -> None:
    with started(team_file(STUBBORN)) as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == NOTICE
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err) == ("", "")


def test_ctrl_c_while_the_file_is_loaded_is_no_traceback(team_file: TeamFile) -> None:
    path = team_file("import sys, time; print('loading', flush=True); time.sleep(600)")
    with program(["run", str(path)]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "kairo: interrupted\n"


def test_an_ignored_interrupt_stays_ignored(team_file: TeamFile) -> None:
    text = "import os, signal\ndef poke(a):\n    os.kill(os.getpid(), signal.SIGINT)\n    return 'still here'\n"
    path = team_file(text + 'team = kt.Team("t", [kt.Member("a", poke)])')
    with program(["run", str(path), "x"], signal.SIG_IGN) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "still here" in out


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("number", "code", "why"), [("SIGTERM", 143, "terminated"), ("SIGHUP", 129, "the terminal was closed")]
)
def test_audit_g27_a_run_that_is_to_end_keeps_what_was_finished(
    team_file: TeamFile, number: str, code: int, why: str
) -> None:
    with started(team_file(SLOW)) as process:
        process.send_signal(getattr(signal, number))
        process.send_signal(getattr(signal, number))
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err == f"stopping: {why}\n"
    assert "the first page" in out
    assert "half a page" in out
    assert out.splitlines()[-2].startswith("CANCELLED  after ")
    assert out.splitlines()[-1].strip() == why


def test_audit_g27_a_run_that_is_to_end_still_gives_the_document(team_file: TeamFile) -> None:
    with started(team_file(SLOW), "--json") as process:
        process.terminate()
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    document = json.loads(out)
    assert (document["status"], document["exit_code"], document["error"]) == ("cancelled", 143, "terminated")


@pytest.mark.parametrize(
    "patience", [HASTY, pytest.param("", marks=pytest.mark.exhaustive)], ids=["a short time", "the whole time"]
)
def test_audit_g27_a_run_that_does_not_end_in_time_leaves(team_file: TeamFile, patience: str) -> None:
    with started(team_file(patience + STUBBORN)) as process:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 143


def test_audit_g27_an_interrupt_during_an_import_prints_no_traceback(tmp_path: Path) -> None:
    slow = "import time; print('importing', flush=True); time.sleep(600)"
    (tmp_path / "typer.py").write_text(slow, encoding="utf-8")
    with program(["--version"], path=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (-signal.SIGINT, "")
