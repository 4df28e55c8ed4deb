"""A run that ends one worker after another: its state, event, metric, exit code, and how it is sent again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

import kairo_team as kt
from kairo_team.durable.postgres_database import PostgresConnection
from kairo_team.errors import JournalError, Misuse
from kairo_team.events import TeamGivenUp
from kairo_team.tck.journal_stage import request_of, team_of
from kairo_team.views.journal_metrics import read_metrics
from tests.cli.conftest import Kairo, forget_team_files, kairo, kairo_json, program, team_file
from tests.cluster.test_commands import LONG, until, url, working
from tests.cluster.test_third_fatal_units import die
from tests.cluster.test_units import RUN, Desk

__all__ = ["forget_team_files", "kairo", "kairo_json", "program", "team_file", "url"]  # fixtures

pytestmark = [pytest.mark.real_time, pytest.mark.anyio, pytest.mark.sampled("anyio_backend")]
DEADLY = """
import os, pathlib
HERE = pathlib.Path(__file__).parent

def work(assignment):
    if assignment.task.id == "reply" and (HERE / "deadly").exists():
        os._exit(1)
    return f"{assignment.task.id} is written"

import kairo_team as kt
team = kt.Team("desk", [kt.Member("clerk", work)])
plan = kt.TaskGraph([kt.Task("letter", "Write it."), kt.Task("reply", "Read it.", depends_on=["letter"])])
"""


@pytest.fixture
def desk(database: str) -> Generator[Desk]:
    made = Desk(database)
    yield made
    made.cluster.close()


def given_up(desk: Desk) -> None:
    """Let every worker that takes the run `r` die."""
    unit = RUN
    desk.do(*unit.sending(desk.cluster.delivery, None))
    for _ in range(2):
        [unit] = die(desk, unit)


async def test_it_has_a_state_an_event_and_a_metric(desk: Desk) -> None:
    journal = desk.cluster.journal
    name = team_of().name
    session = journal.begin(request_of("r"), team_of(), {}, None)
    given_up(desk)
    assert journal.show("r").state == "given_up"
    assert [run.run_id for run in journal.runs(state="given_up")] == ["r"]
    [event] = journal.events_after("r")
    assert isinstance(event, TeamGivenUp)
    assert (event.seq, event.deaths) == (1, 2)
    assert event.error.startswith("given up: 2 workers died or failed")
    values = {(one.metric, *one.labels.values()): one.value for one in read_metrics(journal)}
    assert values["kairo.runs_given_up", name] == values["kairo.runs", name, "given_up"] == 1
    session.put("late", True)
    with pytest.raises(JournalError, match="another process has taken the run over"):
        await session.written()


async def test_it_is_sent_again_with_its_deaths_counted_anew(desk: Desk) -> None:
    journal = desk.cluster.journal
    journal.begin(request_of("r"), team_of(), {}, None)
    with pytest.raises(Misuse, match="neither given up nor refused"):
        desk.monitor.resend("r")
    given_up(desk)
    desk.monitor.resend("r")
    desk.look()
    assert desk.state(RUN.id) == ("sent", 3, None)
    assert desk.rows("SELECT problem FROM unit") == [(None,)]
    assert journal.show("r").state == "interrupted"
    [unit] = die(desk, RUN.next().next())
    assert desk.state(RUN.id)[0] == "sent", "one death since"
    die(desk, unit)
    assert [event.seq for event in journal.events_after("r")] == [1, 2]


def test_it_is_sent_once_where_the_word_of_the_commit_is_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.cluster.journal.begin(request_of("r"), team_of(), {}, None)
    given_up(desk)
    transaction, lost = PostgresConnection.transaction, [1]

    @contextmanager
    def cut_after_commit(self: PostgresConnection) -> Generator[None]:
        with transaction(self):
            yield
        if lost:
            lost.pop()
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(PostgresConnection, "transaction", cut_after_commit)
    desk.monitor.resend("r")
    assert not lost
    assert desk.state(RUN.id) == ("held", 3, None)


def test_the_next_session_continues_its_numbers_and_it_can_be_cancelled(desk: Desk) -> None:
    journal = desk.cluster.journal
    journal.begin(request_of("r"), team_of(), {}, None)
    given_up(desk)
    with closing(kt.PostgresJournal(desk.url)) as other:
        assert other.recover("r")[0].seq == 1
    journal.change(lambda connection: journal.give_up(connection, "r", 2, "given up"))
    journal.cancel("r")
    assert journal.show("r").state == "cancelled"


@pytest.mark.parametrize("how", [(), pytest.param(("--json",), marks=pytest.mark.exhaustive)])
def test_a_user_sees_it_and_sends_it_to_the_workers_again(
    kairo: Kairo, team_file: Callable[..., Path], url: str, how: tuple[str, ...]
) -> None:
    file = team_file(DEADLY)
    (file.parent / "deadly").touch()
    with working(file, "--max-deliveries", 1) as first:
        first.line("ready")
        command = [sys.executable, "-m", "kairo_team.cli", "submit", str(file), "--run-id", "deadly-1", "--wait", *how]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as waiting:
            first.process.wait(LONG)
            with working(file, "--max-deliveries", 1) as second:
                assert waiting.wait(LONG) == 9
                assert waiting.stdout is not None
                said = waiting.stdout.read()
                if how:
                    found = json.loads(said)
                    assert (found["state"], found["exit_code"]) == ("given_up", 9)
                    assert found["waits"].startswith("given up: 1 worker died")
                    assert "--by-workers" in found["go_on"][0]
                else:
                    assert "run deadly-1 waits: given up: 1 worker died" in said
                assert "given_up" in kairo("runs", "--state", "given_up").out
                shown = " ".join(kairo("show", "deadly-1").out.split())
                assert shown.startswith("deadly-1 GIVEN_UP")
                assert "continue with: kairo resume deadly-1 --by-workers" in shown
                assert "the run was given up: 1 worker died" in report(kairo, file.parent / "report.html")
                assert "team.given_up" in kairo("events", "deadly-1").out
                (file.parent / "deadly").unlink()
                refused = kairo("resume", "deadly-1", "--by-workers", "--take-over")
                assert "leave out FILE and the other options" in refused.err
                assert kairo("resume", "deadly-1", "--by-workers").out == "run deadly-1 is sent to its workers again\n"
                until(lambda: kairo("show", "deadly-1").out.startswith("deadly-1  COMPLETED"))
                assert "has ended: completed" in kairo("resume", "deadly-1", "--by-workers").err
                second.process.kill()


def report(kairo: Kairo, page: Path) -> str:
    assert kairo("report", "deadly-1", "--output", page).code == 0
    return page.read_text(encoding="utf-8")
