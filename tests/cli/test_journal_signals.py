"""Recorded runs of real programs: interrupted, killed, taken over, answered and followed from other processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.journal_team import ASKS, WAITS
from tests.cli.test_interrupts import HASTY, NOTICE, started
from tests.cli.test_interrupts import program as begun
from tests.durable.desk import stop_between_commits

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.name != "posix", reason="signals of a terminal"),
]
TeamFile = Callable[..., Path]
RUN = "run-1"
ALL = ["first 1", "wait 1", "after the wait"]
"""The calls of a run, each once."""


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal that the commands find in their environment."""
    path = tmp_path / "runs.db"
    monkeypatch.setenv("KAIRO_JOURNAL", str(path))
    return path


@pytest.fixture
def waiting(team_file: TeamFile, book: Path) -> Iterator[subprocess.Popen[str]]:
    """A recorded run whose second task waits."""
    with started(team_file(WAITS), "--run-id", RUN) as process:
        yield process


def asked(book: Path) -> list[str]:
    return (book.parent / "asked.txt").read_text().splitlines()


def go_on(kairo: Any, book: Path, command: str) -> Any:
    """Let the waiting task end, and run the command line that was printed."""
    (book.parent / "go").touch()
    program, *words = shlex.split(command)
    assert program == "kairo"
    return kairo(*words)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("number", "code", "notice"),
    [("SIGINT", 130, NOTICE), ("SIGTERM", 143, "stopping: terminated\n"),
     ("SIGHUP", 129, "stopping: the terminal was closed\n")],
)  # fmt: skip
def test_a_signal_leaves_the_run_interrupted_and_the_last_line_goes_on_with_it(
    kairo: Any, book: Path, waiting: subprocess.Popen[str], number: str, code: int, notice: str
) -> None:
    waiting.send_signal(getattr(signal, number))
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, err) == (code, notice)
    assert "INTERRUPTED  after " in out
    last = out.splitlines()[-1]
    assert last == f"  kairo resume {RUN} --journal {book}"
    assert kairo("show", RUN).out.startswith(f"{RUN}  INTERRUPTED")
    said = go_on(kairo, book, last)
    assert said.code == 0
    assert "COMPLETED  after " in said.out
    assert asked(book) == ALL, "no finished call was made again"


def test_the_document_of_an_interrupted_run_says_so(team_file: TeamFile, book: Path) -> None:
    with started(team_file(WAITS), "--run-id", RUN, "--json") as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    document = json.loads(out)
    assert (process.returncode, document["status"], document["exit_code"]) == (130, "interrupted", 130)
    assert document["go_on"] == [f"kairo resume {RUN} --journal {book}"]


def test_what_an_interrupted_run_has_used_includes_its_call_in_doubt(
    kairo: Any, team_file: TeamFile, book: Path
) -> None:
    unanswered = WAITS.replace('return "as asked"', 'return "as asked" if len(asked()) == 1 else hang()').replace(
        "def reply", """
def asked():
    return (HERE / "asked.txt").read_text().splitlines()

async def hang():
    print("at work", flush=True)
    await anyio.sleep(600)

async def reply_late(request):
    said = reply(request)
    return said if isinstance(said, str) else await said

def reply""", 1).replace("FunctionModel(reply,", "FunctionModel(reply_late,")  # fmt: skip
    with started(team_file(unanswered), "--run-id", RUN) as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    used = re.search(r"used (\d+) tokens", kairo("show", RUN).out)
    assert used is not None
    assert int(used[1]) > 40, "the whole hold of the call that has no answer"
    assert re.search(rf"INTERRUPTED  after .*, {used[1]} tokens", out)


def test_a_run_that_is_killed_before_it_takes_a_request_has_not_done_it(
    kairo: Any, book: Path, waiting: subprocess.Popen[str]
) -> None:
    stop_between_commits(waiting.pid, book)
    killed = threading.Timer(1.0, waiting.kill)
    killed.start()
    said = kairo("top-up", RUN, "--add", "tokens=5")
    killed.join()
    assert said.code == 2
    assert f"run '{RUN}': it is interrupted, and nothing was changed" in said.err


def test_what_leaves_at_once_still_prints_the_command_last(kairo: Any, team_file: TeamFile, book: Path) -> None:
    stubborn = WAITS.replace("while not", "import time; time.sleep(600)\n        while not")
    with started(team_file(stubborn), "--run-id", RUN) as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == NOTICE
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, f"kairo resume {RUN} --journal {book}\n")
    assert kairo("show", RUN).out.startswith(f"{RUN}  INTERRUPTED")


def test_a_run_that_does_not_end_in_time_prints_the_command_last(team_file: TeamFile, book: Path) -> None:
    stubborn = WAITS.replace("while not", "import time; time.sleep(600)\n        while not")
    with started(team_file(HASTY + stubborn), "--run-id", RUN) as process:
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert err.splitlines()[-1] == f"kairo resume {RUN} --journal {book}"


def test_a_killed_run_goes_on_in_another_process(
    kairo: Any, program: Any, book: Path, waiting: subprocess.Popen[str]
) -> None:
    running = program("resume", RUN)
    assert running.code == 2
    assert "is running in another process" in running.err
    waiting.kill()
    waiting.wait()
    assert kairo("runs", "--state", "interrupted").out.splitlines()[1].startswith(RUN)
    (book.parent / "go").touch()
    said = program("resume", RUN)
    assert said.code == 0
    assert "wait: done after 1 attempt" in said.out
    assert asked(book) == ALL


def test_a_run_is_taken_over_and_its_first_process_sends_nothing_more(
    program: Any, book: Path, waiting: subprocess.Popen[str]
) -> None:
    stop_between_commits(waiting.pid, Path(os.environ["KAIRO_JOURNAL"]))
    (book.parent / "go").touch()
    said = program("resume", RUN, "--take-over")
    waiting.send_signal(signal.SIGCONT)
    out, _ = waiting.communicate(timeout=60)
    assert said.code == 0
    assert waiting.returncode == 4
    assert "another process has taken the run over" in out
    assert asked(book) == ALL


def test_a_run_is_cancelled_from_another_process(kairo: Any, book: Path, waiting: subprocess.Popen[str]) -> None:
    assert kairo("cancel", RUN).out == f"run {RUN} ends within seconds\n"
    out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 6
    assert "cancelled by kairo cancel" in out.splitlines()[-1]
    assert f"run {RUN} has ended: cancelled" in kairo("resume", RUN).err


def test_a_question_is_answered_in_another_process(program: Any, team_file: TeamFile, book: Path) -> None:
    assert program("run", team_file(ASKS), "--run-id", RUN).code == 7
    assert program("answer", RUN, "approve").code == 0
    said = program("resume", RUN)
    assert said.code == 0
    assert "letter: a person decided: approve" in said.out
    assert sorted(asked(book)) == ["beside 1", "end 1", "letter 1"]


def test_a_run_that_lives_is_answered_from_another_process(kairo: Any, team_file: TeamFile, book: Path) -> None:
    gate = "runtime = kt.Runtime(gate=kt.JournalGate(kt.SqliteJournal(HERE / 'runs.db')))\n"
    gate += "team = kt.Team('office', [clerk], coordinator=experts, runtime=runtime)\n"
    with begun(["run", str(team_file(ASKS + gate)), "--run-id", RUN]) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "letter: a person is asked" in line)
        while (said := kairo("answer", RUN, "approve")).code:  # the question is on its way to the disk
            assert "has no open question" in said.err
            assert process.poll() is None
        assert said.out.endswith("\nanswered: approve\n"), "it goes on by itself"
        out = process.stdout.read()
        assert process.wait(60) == 0
    assert "letter: a person decided: approve" in out
    assert "COMPLETED  after " in out


def test_events_are_followed_until_the_run_has_ended(kairo: Any, book: Path, waiting: subprocess.Popen[str]) -> None:
    with begun(["events", RUN, "--follow"]) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["type"] == "team.started"
        (book.parent / "go").touch()
        found = [json.loads(line) for line in follower.stdout]
        assert follower.wait(60) == 0
    assert [one["seq"] for one in found] == [*range(2, len(found) + 2)]
    assert found[-1]["type"] == "team.completed"
    waiting.communicate(timeout=60)
    assert waiting.returncode == 0


def test_a_follower_whose_reader_has_gone_ends_quietly(book: Path, waiting: subprocess.Popen[str]) -> None:
    with begun(["events", RUN, "--follow"]) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        follower.stdout.readline()
        follower.stdout.close()
        (book.parent / "go").touch()
        assert follower.wait(60) == 0
        assert follower.stderr.read() == ""


def test_a_run_whose_output_is_closed_can_go_on(kairo: Any, book: Path, waiting: subprocess.Popen[str]) -> None:
    assert waiting.stdout is not None
    waiting.stdout.close()
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == 130
    assert kairo("show", RUN).out.startswith(f"{RUN}  INTERRUPTED")
