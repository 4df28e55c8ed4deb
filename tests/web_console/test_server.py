"""The console on a real server, with runs of other processes and of this one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")
httpx = pytest.importorskip("httpx", reason="the tests of the console need httpx")

import kairo_team as kt  # noqa: E402 - skipped where the extra is not installed
from kairo_team.errors import MissingExtra, Misuse  # noqa: E402
from tests.web_console.running import ANYWHERE, TOKEN, begin, words  # noqa: E402

pytestmark = pytest.mark.real_time


def until(ready: Callable[[], Any]) -> Any:
    for _ in range(3_000):
        if found := ready():
            return found
        time.sleep(0.02)
    raise AssertionError("it never came")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    anyio.run(begin, path)
    return path


@pytest.fixture
def console(book: Path) -> Iterator[Any]:
    journal = kt.SqliteJournal(book)
    with kt.console(journal, token=TOKEN, person="ada") as made:
        yield made
    journal.close()


@contextmanager
def visit(console: Any) -> Generator[Any]:
    with httpx.Client(base_url=f"http://127.0.0.1:{console.port}", timeout=60) as client:
        assert client.get(console.link).status_code == 200
        yield client


def test_the_link_lets_a_browser_in_and_nothing_else_does(console: Any) -> None:
    assert console.link == f"http://127.0.0.1:{console.port}/?token={TOKEN}"
    with visit(console) as browser:
        assert "run-1" in browser.get("/").text
    with httpx.Client(base_url=f"http://127.0.0.1:{console.port}") as stranger:
        assert stranger.get("/").status_code == 401
        assert stranger.get("/", headers={"host": "evil.example"}).status_code == 421
        assert "server" not in stranger.get("/").headers


def test_a_question_is_answered_and_the_open_page_is_told(console: Any, book: Path) -> None:
    with visit(console) as browser, browser.stream("GET", "/questions/stream") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        assert "be welcome" in first
        journal = kt.SqliteJournal(book)
        [question] = journal.pending()
        with visit(console) as other:
            form_key = re.search(r'name="form_key" value="(\w+)"', other.get("/questions").text)
            assert form_key
            fields = {"form_key": form_key[1], "question": question.id, "action": "approve"}
            assert other.post("/questions/answer", data=fields).status_code == 303
        second = next(line for line in lines if line.startswith("data: "))
        assert "No question is open" in second
        assert journal.pending() == ()
        journal.close()


def test_a_browser_that_comes_back_is_sent_only_what_is_new(console: Any, book: Path) -> None:
    with visit(console) as browser:
        with browser.stream("GET", "/run/stream?id=run-1") as stream:
            name = next(line for line in stream.iter_lines() if line.startswith("id: ")).removeprefix("id: ")
        with browser.stream("GET", "/run/stream?id=run-1", headers={"last-event-id": name}) as stream:
            journal = kt.SqliteJournal(book)
            journal.cancel("run-1", "meanwhile")
            journal.close()
            news = (line for line in stream.iter_lines() if line.startswith("data: "))
            assert next(line for line in news if "cancelled" in line)  # before it at most how long ago it began


async def test_a_run_that_lives_in_this_process_goes_on_with_the_answer(tmp_path: Path) -> None:
    """The gate waits in the journal; the console answers from its own thread."""
    from tests.web_console.running import letter, office

    journal = kt.SqliteJournal(tmp_path / "live.db")
    gate = kt.JournalGate(journal)
    async with kt.Runtime(journal=journal, gate=gate) as runtime:
        with kt.console(runtime, person="ada") as console:
            run = await runtime.start(office(), letter("live-1"))
            while not journal.pending():
                await anyio.sleep(0.01)

            def answer() -> None:
                with visit(console) as browser:
                    page = browser.get("/questions").text
                    found = re.search(r'name="form_key" value="(\w+)"', page)
                    assert found
                    assert "running" in browser.get("/run?id=live-1").text
                    fields = {"form_key": found[1], "question": journal.pending()[0].id, "action": "approve"}
                    assert browser.post("/questions/answer", data=fields).status_code == 303

            await anyio.to_thread.run_sync(answer)
            assert (await run.result()).status is kt.TeamStatus.DEGRADED
    journal.close()


def test_a_large_form_is_refused(console: Any) -> None:
    with visit(console) as browser:
        assert browser.post("/questions/answer", data={"text": "x" * 70_000}).status_code == 413


def test_a_port_that_is_taken_is_a_sentence(console: Any, book: Path) -> None:
    journal = kt.SqliteJournal(book)
    with pytest.raises(Misuse, match=f"port {console.port}: take another port"):
        kt.console(journal, port=console.port).start()
    journal.close()


def test_without_the_extra_it_says_what_to_install(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.web_console.console.find_spec", lambda name: None)
    journal = kt.SqliteJournal(book)
    with pytest.raises(MissingExtra, match=r"pip install 'kairo-team\[console\]'"):
        kt.console(journal)
    journal.close()


# ---------------------------------------------------------------- the command


def command(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kairo_team.cli", "console", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - ignored in the background
    )


def test_the_command_prints_the_link_and_serves_until_ctrl_c(book: Path) -> None:
    with command("--journal", book, "--as", "ada", KAIRO_CONSOLE_TOKEN=TOKEN) as process:
        assert process.stdout is not None
        link = re.search(r"http://\S+", process.stdout.readline())
        assert link
        assert link[0].endswith(TOKEN)
        with httpx.Client() as browser:
            browser.get(link[0])
            address = link[0].partition("?")[0]
            assert "run-1" in words(browser.get(address).text)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()  # else the block waits for it for ever


def test_the_command_ends_without_a_word_while_a_page_is_open(book: Path) -> None:
    with command("--journal", book, KAIRO_CONSOLE_TOKEN=TOKEN) as process:
        assert process.stdout is not None
        link = process.stdout.readline().split()[-1]
        address = link.partition("?")[0]
        try:
            with httpx.Client(timeout=60) as browser:
                browser.get(link)
                with browser.stream("GET", f"{address}questions/stream") as stream:
                    lines = stream.iter_lines()
                    next(line for line in lines if line.startswith("data: "))
                    process.send_signal(signal.SIGINT)
                    assert list(lines) == [""], "it is the end, not a broken line"
            assert process.communicate(timeout=60)[1] == ""
        finally:
            process.kill()


RUNS_ON = """
import sys
import anyio
import kairo_team as kt

async def work(assignment: kt.Assignment) -> str:
    print("at work", flush=True)
    await anyio.sleep_forever()
    return ""

async def main() -> None:
    request = kt.TeamExecutionRequest("Wait.", plan=kt.TaskGraph([kt.Task("a", "Wait.")]), run_id="lost-1")
    runtime = kt.Runtime(journal=kt.SqliteJournal(sys.argv[1]))
    await kt.run(kt.Team("crew", [kt.Member("m", work)]), request, runtime=runtime)

anyio.run(main)
"""


def test_an_open_page_is_told_that_its_runs_process_was_killed(console: Any, book: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", RUNS_ON, str(book)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"at work\n"
            with visit(console) as browser, browser.stream("GET", "/run/stream?id=lost-1") as stream:
                lines = stream.iter_lines()
                next(line for line in lines if "state running" in line)
                process.kill()
                found = next(line for line in lines if "interrupted" in line)
                assert "kairo resume lost-1" in found
        finally:
            process.kill()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", ANYWHERE], "it needs --tls-cert and --tls-key, or --behind-proxy"),
        (["--behind-proxy"], "--name runs.example.org"),
        (["--journal", "none.db"], "there is no journal 'none.db'"),
    ],
)
def test_the_command_refuses_in_one_sentence(book: Path, options: list[str], sentence: str) -> None:
    with command("--journal", book, *options) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert sentence in said
    assert said.count("\n") == 1
