"""Who has a run, what is asked about calls in doubt, and what happens when the disk does not play along."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

import kairo_team as kt
from kairo_team.durable import journal as journal_module
from kairo_team.durable import recovery
from kairo_team.durable.codec import encode
from kairo_team.durable.connection import Connection
from kairo_team.durable.database import Database
from kairo_team.durable.owners import Owner, is_alive
from kairo_team.errors import JournalError, Misuse, PlanMismatch
from kairo_team.gates import CallbackGate
from kairo_team.tck.journal_stage import request_of, team_of
from kairo_team.testing import FunctionModel, MemoryJournal
from tests.durable.desk import PLAN, RUN, Images, Provider, begin, desk, go_on

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]


async def image_with_a_mail_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, idempotent: bool = False
) -> Path:
    """Return the journal of a run that was cut while a mail was sent."""
    images = Images(tmp_path, monkeypatch)
    await begin(tmp_path / "runs.db", Provider(), idempotent=idempotent)
    monkeypatch.undo()
    return next(
        path for path in images.paths if any(one.what == "tool" for one in kt.SqliteJournal(path).in_doubt(RUN))
    )


async def test_a_tool_that_changes_something_is_not_called_again_without_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await image_with_a_mail_in_doubt(tmp_path, monkeypatch)
    provider = Provider()
    result = await go_on(path, provider, idempotent=False)
    assert result.status == "completed"
    assert provider.mailed == []
    assert any("it is unknown whether it was done" in asked for asked in provider.asked)


async def test_a_person_decides_whether_a_tool_in_doubt_is_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await image_with_a_mail_in_doubt(tmp_path, monkeypatch)
    provider = Provider()
    asked: list[str] = []

    def decide(question: kt.HumanRequest) -> kt.HumanDecision:
        asked.append(question.text)
        return kt.HumanDecision.approve()

    result = await go_on(path, provider, idempotent=False, gate=CallbackGate(decide))
    assert result.status == "completed"
    assert len(provider.mailed) == 1
    assert "it is unknown whether it was done" in asked[0]


async def test_a_read_or_idempotent_tool_in_doubt_is_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await image_with_a_mail_in_doubt(tmp_path, monkeypatch, idempotent=True)
    provider = Provider()
    assert (await go_on(path, provider)).status == "completed"
    assert len(provider.mailed) == 1


async def test_a_run_id_is_used_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await begin(path, Provider())
    with pytest.raises(kt.RunExists, match="run 'desk-1' is recorded already: resume it, or use another run_id"):
        await begin(path, Provider())
    with pytest.raises(kt.RunFinished, match=r"already: it is completed, and journal.result\('desk-1'\) returns"):
        await go_on(path, Provider())
    with pytest.raises(kt.RunNotFound, match=r"no run 'another' in journal '.*runs\.db', which has: 'desk-1'"):
        async with kt.Runtime(journal=kt.SqliteJournal(path)) as runtime:
            await runtime.resume("another", desk(Provider()))


async def test_kf_g14_what_shapes_a_run_must_not_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = Images(tmp_path, monkeypatch)
    await begin(tmp_path / "runs.db", Provider())
    monkeypatch.undo()
    provider = Provider()
    changed = kt.Team("desk", [kt.Member(kt.Role("clerk", "Be brief."), desk(provider).members[0].agent),
                               *desk(provider).members[1:]], evaluators=desk(provider).evaluators)  # fmt: skip
    async with kt.Runtime(models={"m:x": provider.model}, journal=kt.SqliteJournal(images.paths[5])) as runtime:
        with pytest.raises(PlanMismatch, match="instructions of role 'clerk'"):
            await runtime.resume(RUN, changed)
        result = await runtime.resume(RUN, changed, allow_changes=["instructions of role 'clerk'"])
    assert result.status == "completed"


ANSWER = """
import sys
import kairo_team as kt
kt.SqliteJournal(sys.argv[1]).answer(sys.argv[2], kt.HumanDecision.approve())
"""
SLEEPER = """
import sys, time, anyio
import kairo_team as kt

async def slow(assignment, context):
    print("working", flush=True)
    await anyio.sleep(600)

async def main():
    journal = kt.SqliteJournal(sys.argv[1])
    team = kt.Team("desk", [kt.Member("clerk", slow)])
    plan = kt.TaskGraph([kt.Task("one", "Do one.")])
    request = kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r")
    await kt.run(team, request, runtime=kt.Runtime(journal=journal))

anyio.run(main)
"""


async def test_kf_d09_d13_a_run_has_one_owner_and_a_dead_one_is_known_at_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    child = await anyio.open_process([sys.executable, "-c", SLEEPER, str(path)])
    assert child.stdout is not None

    async def quick(assignment: kt.Assignment) -> str:
        return "done"

    team = kt.Team("desk", [kt.Member("clerk", quick)])
    try:
        await child.stdout.receive()
        journal = kt.SqliteJournal(path)
        assert journal.show("r").state == "running"
        with pytest.raises(Misuse, match=f"process {child.pid}"):
            await kt.Runtime(journal=journal).resume("r", team)
    finally:
        child.kill()
        await child.wait()
        await child.aclose()
    assert journal.show("r").state == "interrupted"
    result = await kt.Runtime(journal=journal).resume("r", team)
    assert result.output == "done"
    journal.close()


LOOKER = """
import sys
from pathlib import Path
from kairo_team.durable.owners import is_alive

def wait(path):
    print("looks", flush=True)
    sys.stdin.readline()

Path.unlink = wait
assert not is_alive(Path(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no lock that several processes share")
def test_a_dead_owner_is_known_to_several_processes_that_look_at_once(tmp_path: Path) -> None:
    """Else one that looks would take another one that looks for the living owner, and refuse to resume the run."""
    path = tmp_path / "runs.db"
    owner = Owner(path)
    file = next(tmp_path.glob("runs.db-owner-*"))
    owner.close()
    file.touch()  # the process has died: its file is there, and nobody holds the lock
    child = subprocess.Popen(
        [sys.executable, "-c", LOOKER, str(path), owner.id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "looks\n"
    assert not is_alive(path, owner.id)
    child.communicate("\n")
    assert child.returncode == 0


UNCLOSED = """
import sys, anyio
import kairo_team as kt

async def main():
    runtime = kt.Runtime(journal=kt.SqliteJournal(sys.argv[1]))
    await kt.run(kt.Team("desk", [kt.Member("clerk", lambda assignment: "done")]), "Do it.", runtime=runtime)

anyio.run(main)
"""


def test_a_process_that_closes_no_journal_leaves_no_owner_behind(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    subprocess.run([sys.executable, "-c", UNCLOSED, str(path)], check=True, timeout=60)
    assert [run.state for run in kt.SqliteJournal(path).runs()] == ["completed"]
    assert list(tmp_path.glob("*-owner-*")) == []


def test_runs_that_begin_at_once_have_one_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their journal is one process: a team inside one of them could not begin otherwise."""

    class SlowOwner(Owner):
        def __init__(self, path: Path) -> None:
            time.sleep(0.05)  # the others come meanwhile
            super().__init__(path)

    monkeypatch.setattr(journal_module, "Owner", SlowOwner)
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    together = Barrier(4)

    def begin_one(number: int) -> None:
        together.wait(60)
        journal.begin(request_of(f"r{number}"), team_of(), {}, None)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(begin_one, range(4)))
    journal.close()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        assert connection.execute("SELECT count(DISTINCT owner), count(*) FROM run").fetchone() == (1, 4)


async def test_kf_d09_an_owner_that_was_only_asleep_can_send_nothing_after_a_take_over(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    sent: list[kt.ModelRequest] = []

    async def take_over(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "one":
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE run SET epoch = epoch + 1")
        return (await context.model("m:x").complete(kt.ModelRequest([kt.Message.user("go")]))).text

    def reply(request: kt.ModelRequest) -> str:
        sent.append(request)
        return "done"

    team = kt.Team("desk", [kt.Member("clerk", take_over)])
    plan = kt.TaskGraph([kt.Task("one", "Do one."), kt.Task("two", "Do two.", depends_on=["one"])])
    runtime = kt.Runtime(models={"m:x": FunctionModel(reply)}, journal=kt.SqliteJournal(path))
    result = await kt.run(team, kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r"), runtime=runtime)
    assert result.status == "failed"
    assert "another process has taken the run over" in (result.error or "")
    assert sent == []


async def test_a_disk_that_fails_ends_the_run_and_what_is_there_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, provider, written = tmp_path / "runs.db", Provider(), 0
    write = Database._write

    def failing(database: Database, connection: Connection, entries: Any) -> None:
        nonlocal written
        written += 1
        if written > 8:
            raise sqlite3.OperationalError("database or disk is full")
        write(database, connection, entries)

    monkeypatch.setattr(Database, "_write", failing)
    result = await begin(path, provider)
    assert result.status == "failed"
    assert "disk is full" in (result.error or "")
    monkeypatch.undo()
    done = sum(call.state == "answered" and call.what == "model" for call in kt.SqliteJournal(path).calls(RUN))
    again, whole = Provider(), Provider()
    assert (await go_on(path, again)).status == "completed"
    await begin(tmp_path / "whole.db", whole)
    assert sum(again.asked.values()) == sum(whole.asked.values()) - done


@pytest.mark.parametrize("content", [b"no database at all, just a text that is long enough", b""])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(content)
    if content:
        with pytest.raises(JournalError, match=r"runs\.db"):
            kt.SqliteJournal(path)
    else:
        assert kt.SqliteJournal(path).runs() == ()


def test_files_of_others_and_of_newer_versions_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(JournalError, match="another program"):
        kt.SqliteJournal(other)
    newer = tmp_path / "newer.db"
    kt.SqliteJournal(newer)
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("UPDATE about SET value = '9.9.9'")
    with pytest.raises(JournalError, match=r"kairo-team 9\.9\.9"):
        kt.SqliteJournal(newer)
    with pytest.raises(JournalError, match="no directory"):
        kt.SqliteJournal(tmp_path / "nowhere" / "runs.db")


async def test_a_step_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = Images(tmp_path, monkeypatch)
    await begin(tmp_path / "runs.db", Provider())
    monkeypatch.undo()
    path = images.paths[len(images.paths) // 2]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE step SET value = '{' WHERE key LIKE 'attempt:1:one:1'")
    with pytest.raises(JournalError, match=r"step 'attempt:1:one:1' of run 'desk-1' cannot be read"):
        await go_on(path, Provider())
    with pytest.raises(JournalError, match="cannot be read"):
        kt.SqliteJournal(path).show(RUN)


async def test_questions_are_answered_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def write(assignment: kt.Assignment) -> str:
        return "a text"

    team = kt.Team("desk", [kt.Member("clerk", write)], evaluators={"boss": Boss()})
    plan = kt.TaskGraph([kt.Task("one", "Do one.", evaluator="boss")])
    first = kt.SqliteJournal(path)
    runtime = kt.Runtime(journal=first, gate=kt.DeferGate())
    result = await kt.run(team, kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r"), runtime=runtime)
    assert result.status == "suspended"
    first.close()
    journal = kt.SqliteJournal(path)
    assert journal.show("r").state == "suspended"
    [question] = journal.pending("r")
    await anyio.run_process([sys.executable, "-c", ANSWER, str(path), question.id])
    assert journal.pending("r") == ()
    with pytest.raises(Misuse, match="answered already"):
        journal.answer(question.id, kt.HumanDecision.reject("no"))
    result = await kt.Runtime(journal=journal, gate=kt.DeferGate()).resume("r", team)
    assert result.status == "completed"
    journal.close()


class Boss:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "ask")


async def test_what_was_recorded_once_stays_also_when_it_is_nothing(tmp_path: Path) -> None:
    path, made = tmp_path / "runs.db", 0

    def make() -> None:
        nonlocal made
        made += 1

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await context.recorded("nothing", make)
        await context.model("m:x").complete(kt.ModelRequest([kt.Message.user("go")]))
        if made == 1 and not going_on:
            journal.database.problem = "the process dies here"
            await context.model("m:x").complete(kt.ModelRequest([kt.Message.user("go on")]))
        return "done"

    team, models = kt.Team("desk", [kt.Member("clerk", agent)]), {"m:x": FunctionModel(lambda _: "yes")}
    plan, going_on = kt.TaskGraph([kt.Task("one", "Do one.")]), False
    journal = kt.SqliteJournal(path)
    request = kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r")
    assert (await kt.run(team, request, runtime=kt.Runtime(journal=journal, models=models))).status == "failed"
    journal.close()
    going_on, again = True, kt.SqliteJournal(path)
    result = await kt.Runtime(journal=again, models=models).resume("r", team)
    again.close()
    assert (result.output, made) == ("done", 1)


async def test_a_run_after_one_that_was_refused_has_its_owner_too(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await begin(path, Provider())
    journal = kt.SqliteJournal(path)
    seen: list[str] = []

    async def look(assignment: kt.Assignment) -> str:
        seen.append(journal.show("another").state)
        return "done"

    runtime, team = kt.Runtime(journal=journal), kt.Team("desk", [kt.Member("clerk", look)])
    with pytest.raises(kt.RunExists):
        await kt.run(team, kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id=RUN), runtime=runtime)
    plan = kt.TaskGraph([kt.Task("one", "Do one.")])
    await kt.run(team, kt.TeamExecutionRequest("Do it.", plan=plan, run_id="another"), runtime=runtime)
    journal.close()
    assert seen == ["running"]


async def test_forgotten_runs_are_gone_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await begin(path, Provider())
    journal = kt.SqliteJournal(path)
    assert journal.forget(RUN) == 1
    assert journal.runs() == ()
    with closing(sqlite3.connect(path)) as connection:
        for table in ("run", "step", "call", "question"):
            count = connection.execute(f"SELECT count(*) FROM {table}")  # noqa: S608 - a name from above
            assert count.fetchone() == (0,)
    with pytest.raises(kt.RunNotFound):
        journal.forget(RUN)
    assert journal.forget(older_than=0.0) == 0
    assert len(PLAN.tasks) == 4


class Known(BaseModel):
    height: float


@pytest.mark.parametrize("nested", [False, True])
async def test_an_output_type_that_cannot_be_recorded_is_refused_before_anything_starts(
    tmp_path: Path, *, nested: bool
) -> None:
    class Local(BaseModel):
        height: float

    started: list[str] = []

    async def work(assignment: kt.Assignment) -> str:
        started.append(assignment.task.id)
        return '[{"height": 1.0}]' if nested else '{"height": 1.0}'

    plan = kt.TaskGraph([kt.Task("one", "Do one.", output_type="tide")])
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    for number, kind in enumerate([Local, Known]):
        kinds = {"tide": list[kind] if nested else kind}  # type: ignore[valid-type]  # one class after the other
        team = kt.Team("desk", [kt.Member("clerk", work)], output_types=kinds)
        request = kt.TeamExecutionRequest("Do it.", plan=plan, run_id=f"r{number}")
        if kind is Local:
            with pytest.raises(Misuse, match=r"output type 'tide' cannot be recorded: .*define it in a module"):
                await kt.run(team, request, runtime=kt.Runtime(journal=journal))
            assert (started, journal.runs()) == ([], ())
        else:
            result = await kt.run(team, request, runtime=kt.Runtime(journal=journal))
            assert journal.result("r1") == result
    journal.close()


async def test_a_list_of_ended_runs_reads_no_step_and_says_what_their_results_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    result = await begin(path, Provider())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE run SET usage = NULL WHERE run_id = ?", (RUN,))
    journal = kt.SqliteJournal(path)
    added_up = journal.show(RUN).usage
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE run SET usage = ? WHERE run_id = ?", (encode(result.usage), RUN))
    monkeypatch.setattr(recovery, "steps_of", None)
    [run] = journal.runs(state="completed", team="desk")
    assert run.usage == replace(result.usage, seconds=run.seconds) == replace(added_up, seconds=run.seconds)
    assert journal.runs(state="running") == journal.runs(team="another") == ()


@pytest.mark.parametrize("kind", [MemoryJournal, kt.SqliteJournal])
@pytest.mark.usefixtures("swept")
async def test_a_run_that_waits_keeps_nothing_of_its_session(tmp_path: Path, kind: type[Any]) -> None:
    """A process of many runs has many that wait, some of which others resume."""
    journal: Any = kind() if kind is MemoryJournal else kind(tmp_path / "runs.db")

    async def work(_: kt.Assignment) -> str:
        return "a letter"

    team = kt.Team("desk", [kt.Member("clerk", work)], evaluators={"boss": Boss()})
    plan = kt.TaskGraph([kt.Task("letter", "Write it.", evaluator="boss")])
    async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
        request = kt.TeamExecutionRequest("Go.", plan=plan, run_id="waits")
        assert (await kt.run(team, request, runtime=runtime)).status == "suspended"
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        left = [one for one in gc.get_objects() if isinstance(one, kt.TeamRun)]
        assert [one for one in left if one.request.run_id == "waits"] == []
    if kind is not MemoryJournal:
        journal.close()
