"""The console over a database: runs that workers coordinate are shown, live, and their questions are answered there."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")
httpx = pytest.importorskip("httpx", reason="the tests of the console need httpx")

import kairo_team as kt  # noqa: E402 - skipped where the extra is not installed
from kairo_team.durable.postgres import PostgresJournal  # noqa: E402
from kairo_team.testing.postgres_server import PASSWORD  # noqa: E402
from tests.cli.conftest import Kairo, forget_team_files, kairo, team_file  # noqa: E402
from tests.cluster.test_commands import DESK, TeamFile, begun, until, url, working  # noqa: E402
from tests.cluster.test_go_on import ASKS_ONCE, started  # noqa: E402
from tests.web_console.running import TOKEN, words  # noqa: E402

__all__ = ["forget_team_files", "kairo", "team_file", "url"]  # fixtures

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.name != "posix", reason="signals of a terminal"),
]


@contextmanager
def visit(link: str) -> Generator[Any]:
    """Enter by the link, as a browser does."""
    with httpx.Client(base_url=link.partition("?")[0], timeout=60) as client:
        assert client.get(link).status_code == 200
        yield client


def send(browser: Any, path: str, **fields: str) -> Any:
    """Send a form of the console."""
    form_key = re.search(r'name="form_key" value="(\w+)"', browser.get("/questions").text)
    form_key = form_key or re.search(r'name="form_key" value="(\w+)"', browser.get("/run?id=asks").text)
    assert form_key
    return browser.post(path, data={"form_key": form_key[1], **fields})


@pytest.fixture
def browser(url: str) -> Iterator[Any]:
    """A browser that was let in to a console of the database."""
    journal = PostgresJournal(url)
    with kt.console(journal, token=TOKEN, person="ada") as console, visit(console.link) as client:
        yield client
    journal.close()


def test_a_run_that_was_given_up_shows_the_command_that_sends_it_again(
    kairo: Kairo, team_file: TeamFile, url: str, browser: Any
) -> None:
    kairo("submit", team_file(DESK), "Write to Ada.", "--run-id", "run-1", "--engine", "procrastinate")
    with closing(PostgresJournal(url)) as journal:
        journal.change(lambda connection: journal.give_up(connection, "run-1", 5, "given up: 5 workers died"))
    assert "run-1" in browser.get("/?state=given_up").text
    page = words(browser.get("/run?id=run-1").text)
    assert "given_up" in page
    assert "Workers gave it up" in page
    assert re.search("kairo resume run-1 --by-workers --database", page)


def test_a_queued_run_is_listed_and_shown_until_workers_have_done_it(
    kairo: Kairo, team_file: TeamFile, url: str, browser: Any
) -> None:
    file = team_file(DESK)
    assert "No run is recorded yet" in browser.get("/").text
    kairo("submit", file, "Write to Ada.", "--run-id", "run-1", "--engine", "procrastinate")
    listed = words(browser.get("/").text)
    assert "run-1 queued desk" in listed
    assert "run-1" in browser.get("/?state=queued").text
    assert "queued" in words(browser.get("/run?id=run-1").text)
    with working(file) as worker:
        worker.line("ready")
        with browser.stream("GET", "/run/stream?id=run-1") as stream:
            assert next(line for line in stream.iter_lines() if "completed" in line)
    shown = words(browser.get("/run?id=run-1").text)
    assert "letter" in shown
    assert "reply" in shown
    assert "run-1 completed desk" in words(browser.get("/").text)


def test_accounts_are_shown_with_their_windows(url: str, browser: Any) -> None:
    assert "Accounts" not in browser.get("/").text
    with closing(PostgresJournal(url)) as journal:
        journal.set_account("house", kt.Budget(tokens=5_000))
        made = journal.set_account("desk", kt.Budget(dollars=40), parent="house", every="day", tz="Europe/Oslo")
    shown = words(browser.get("/").text)
    assert "house all time 0 of 5,000 0 0 0" in shown
    assert f"desk house {made.window} 0 0 0 of 40 0" in shown
    assert "day until 20" in shown


def test_a_question_is_answered_in_the_console_and_a_worker_goes_on(
    kairo: Kairo, team_file: TeamFile, url: str, browser: Any
) -> None:
    file = team_file(ASKS_ONCE)
    with working(file) as worker:
        worker.line("ready")
        assert kairo("submit", file, "--run-id", "asks", "--wait").code == 7
        asked = words(browser.get("/questions").text)
        assert "a person must see it" in asked
        assert "letter is written" in asked
        assert "An answer takes effect as soon as it is given: a worker resumes the run" in asked
        assert "kairo resume" not in asked
        journal = PostgresJournal(url)
        [question] = journal.pending("asks")
        journal.close()
        assert send(browser, "/questions/answer", question=question.id, action="approve").status_code == 303
        until(lambda: "asks completed desk" in words(browser.get("/").text))
    assert begun(file) == ["letter", "reply"]


def test_a_question_of_a_run_that_was_coordinated_elsewhere_names_the_command_that_goes_on(
    kairo: Kairo, team_file: TeamFile, url: str, browser: Any
) -> None:
    file = team_file(ASKS_ONCE)
    with working(file) as worker:
        worker.line("ready")
        assert kairo("run", file, "--run-id", "asks").code == 7
    asked = browser.get("/questions").text
    assert "An answer takes effect when the run is resumed: kairo resume asks --database postgresql://" in words(asked)
    assert PASSWORD not in asked


def test_a_run_is_cancelled_in_the_console(kairo: Kairo, team_file: TeamFile, url: str, browser: Any) -> None:
    file = team_file(ASKS_ONCE)
    with working(file) as worker:
        worker.line("ready")
        assert kairo("submit", file, "--run-id", "asks", "--wait").code == 7
        assert send(browser, "/run/cancel", run="asks", reason="not needed").status_code == 303
    assert kairo("show", "asks").out.startswith("asks  CANCELLED")


def test_the_command_serves_a_database_and_hides_its_password(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    kairo("submit", file, "--run-id", "run-1", "--engine", "procrastinate")
    with started("console", "--database", "env:KAIRO_DATABASE", "--as", "ada") as process:
        assert process.stdout is not None
        link = re.search(r"http://\S+", process.stdout.readline())
        assert link
        with visit(link[0]) as browser:
            page = browser.get("/").text
            assert "run-1 queued desk" in words(page)
            assert "test_" in page, "the database's name"
            assert PASSWORD not in page + browser.get("/run?id=run-1").text
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
