"""`kairo top`: workers and open runs, live in a terminal, once elsewhere, for a file and for a database."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from tests.cli.conftest import Kairo, forget_team_files, kairo, kairo_json, program, team_file
from tests.cluster.stage import crew, execute, new_database, until

if os.name != "posix":
    pytest.skip("needs pseudo-terminals", allow_module_level=True)
from tests.cli.test_terminal import ESCAPE, terminal

__all__ = ["forget_team_files", "kairo", "kairo_json", "program", "team_file"]  # fixtures

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]
PLAN = kt.TaskGraph([kt.Task("one", "Do one."), kt.Task("two", "Do two.")])


def waiting_team(go: anyio.Event) -> kt.Team:
    async def work(assignment: kt.Assignment) -> str:
        await go.wait()
        return f"{assignment.task.id} is done"

    return kt.Team("desk", [kt.Member("clerk", work)])


def words(text: str) -> list[str]:
    """Return the lines of a screen, without what moves the cursor, their words one space apart."""
    return [" ".join(line.split()) for line in ESCAPE.sub("", text).splitlines()]


def request(run_id: str) -> kt.TeamExecutionRequest:
    return kt.TeamExecutionRequest("Explain tides.", plan=PLAN, run_id=run_id)


async def test_a_database_shows_its_workers_runs_and_what_waits(kairo: Kairo, program: Kairo) -> None:
    url, go = new_database("procrastinate"), anyio.Event()
    team = waiting_team(go)
    async with crew(url, beat=1.0) as made:
        worker = made.add_worker(team, concurrency=1)
        made.here.submit(team, request("sea-1"))
        made.here.submit(kt.Team("other", team.members), request("moon-1"))
        await until(lambda: execute(url, "SELECT 1 FROM unit WHERE kind = 'attempt' AND state = 'taken'"))
        await until(lambda: execute(url, "SELECT 1 FROM unit WHERE kind = 'attempt' AND state = 'sent'"))
        await until(lambda: execute(url, "SELECT 1 FROM process WHERE kind = 'worker'"))  # its heartbeat writes it
        said = await to_thread.run_sync(lambda: kairo("top", "--database", url))
        lines = words(said.out)
        assert said.code == 0
        name = worker.journal.process.id[:8]
        waits = "1 attempt waits for a worker, the oldest for N s; 1 run waits for a worker, the oldest for N s"
        assert re.sub(r"\d+ s", "N s", lines[1]) == f"1 queued, 1 running; {waits}"
        assert lines[3] == "worker state team attempts runs up where"
        assert re.match(rf"{name} live desk 1 of 1 1 \d+ s process {os.getpid()} on ", lines[4])
        assert any(line.startswith("sea-1 running desk 0") for line in lines)
        assert lines[-1].startswith("1 run waits: no live worker serves version")
        found = json.loads((await to_thread.run_sync(lambda: program("top", "--json", "--database", url))).out)
        assert found["states"] == {"queued": 1, "running": 1}
        assert found["waiting"]["attempt"]["units"] == 1
        assert [(one["id"], one["attempts"], one["runs"]) for one in found["workers"]] == [
            (worker.journal.process.id, 1, 1)
        ]
        assert {one["run_id"]: one["waits"] is None for one in found["runs"]} == {"sea-1": True, "moon-1": False}
        go.set()


def test_a_terminal_shows_changes_until_ctrl_c() -> None:
    url = new_database("procrastinate")
    with terminal("top", "--database", url, "--every", "0.2") as shown:
        shown.read_until("no run")
        cluster = kt.Cluster(url, engine="procrastinate")
        cluster.submit(waiting_team(anyio.Event()), request("sea-1"))
        cluster.close()
        shown.read_until("sea-1")
        shown.press(b"\x03")
        text = shown.read_until()
        assert shown.process.wait(60) == 0
    assert text.rindex("\x1b[?1049l") > text.rindex("\x1b[?1049h"), "the terminal is as it was"
    assert "Traceback" not in text


def test_a_file_has_runs_and_no_workers(kairo: Kairo, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with terminal("top", "--journal", path) as shown:
        assert "there is no journal" in " ".join(words(shown.read_until()))
    journal = kt.SqliteJournal(path)
    team = kt.Team("desk", [kt.Member("clerk", lambda _: "done")])
    kt.run_sync(team, "Go.", plan=PLAN, run_id="ended", runtime=kt.Runtime(journal=journal))
    kt.run_sync(team, "Go.", plan=PLAN, run_id="open-1", runtime=kt.Runtime(journal=journal))
    with journal.database.writing() as connection:
        connection.execute("UPDATE run SET state = 'interrupted' WHERE run_id = 'open-1'")
    journal.close()
    said = kairo("top", "--journal", path)
    lines = words(said.out)
    assert lines[0].startswith(f"{path}, ")
    assert lines[1] == "1 interrupted, 1 completed"
    assert [line.partition(" ")[0] for line in lines[3:]] == ["run", "open-1"]
    with terminal("top", "--journal", path, "--once") as shown:
        assert "open-1" in shown.read_until()
        assert shown.process.wait(60) == 0
    with terminal("top", "--journal", path) as shown:
        shown.read_until("open-1")
        shown.press(b"\x03")
        shown.read_until()
        assert shown.process.wait(60) == 0


def test_a_dead_or_silent_worker_is_shown_as_such(kairo: Kairo) -> None:
    url = new_database("procrastinate")
    for number, state in enumerate(("dead", "live")):
        execute(
            url,
            "INSERT INTO process (id, kind, host, pid, lock, state, started_at, team, concurrency, members)"
            " VALUES (%s, 'worker', 'web-7f', 12, %s, %s, %s, 'desk', 2, '[\"writer\"]')",
            f"worker-{number}", number, state, number,
        )  # fmt: skip
    lines = words(kairo("top", "--database", url).out)
    assert [line.split()[1] for line in lines[4:6]] == ["dead", "silent"]
    assert "dead desk (writer) 0 of 2 0" in lines[4]
    assert lines[4].endswith("process 12 on web-7f")


def test_more_runs_than_lines_are_counted(kairo: Kairo) -> None:
    url = new_database("procrastinate")
    cluster = kt.Cluster(url, engine="procrastinate")
    for number in range(30):
        cluster.submit(waiting_team(anyio.Event()), request(f"r-{number}"))
    cluster.close()
    with terminal("top", "--database", url) as shown:
        assert "more open runs: kairo runs lists them" in shown.read_until("lists them")
