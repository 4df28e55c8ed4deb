"""A team that does everything that is paid for, with a provider that keeps its own account."""

from __future__ import annotations

import os
import secrets
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.durable.database import Database
from kairo_team.durable.journal import SqliteConnection
from kairo_team.testing import FunctionModel

RUN = "desk-1"


class Provider:
    """Answers by the request's words alone, and writes down every call."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.mailed: list[str] = []
        self.model = FunctionModel(self.answer, name="test:provider")

    def answer(self, request: kt.ModelRequest) -> str | kt.ModelResponse:
        asked = "\n".join(f"{one.role}: {one.text}" for one in request.messages)
        self.asked[asked] += 1
        last = request.messages[-1].text
        if request.tools and not any(one.role == "tool" for one in request.messages):
            call = kt.ToolCall("call-1", "mail", {"text": last[:5]})
            return kt.ModelResponse("", tool_calls=[call])
        return f"answer {len(asked)}"

    def tool(self, *, idempotent: bool) -> Any:
        @kt.tool(side_effect="write", idempotent=idempotent)
        def mail(text: str) -> str:
            """Send a mail."""
            self.mailed.append(text)
            return "sent"

        return mail


def desk(provider: Provider, *, idempotent: bool = True) -> kt.Team:
    """Three kinds of members: a function, a mini agent with a tool, and a team."""

    async def clerk(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        number = await context.recorded("number", lambda: secrets.randbelow(10**9))
        model = context.model("m:x")
        first = await model.complete(_ask(f"{assignment.task.id} {number} {assignment.attempt}"))
        second = await model.complete(_ask(f"{assignment.task.id} {first.text}"))
        return f"{second.text} {number}"

    async def inner(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model("m:x").complete(_ask(f"inner {assignment.task.id}"))).text

    inside = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"])])
    members = [
        kt.Member("clerk", clerk),
        kt.Member("writer", kt.MiniAgent("m:x", tools=[provider.tool(idempotent=idempotent)])),
        kt.Member("group", TeamAgent(kt.Team("inner", [kt.Member("hand", inner)]), plan=inside)),
    ]
    return kt.Team("desk", members, evaluators={"ed": Editor()})


class Editor:
    """Sends each first artifact back, after it asked the model."""

    models = ("m:x",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        said = await context.context.model("m:x").complete(_ask(f"judge {context.artifact.text}"))
        if context.attempt == 1:
            return kt.EvaluationVerdict.revise(f"again: {said.text}")
        return kt.EvaluationVerdict.passed()


def _ask(text: str) -> kt.ModelRequest:
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=50)


def ask_briefly(text: str) -> kt.ModelRequest:
    """Make a request whose reply is held at little."""
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=30)


class Judge:
    """Sends each first artifact back; with a model it asks that."""

    def __init__(self, *models: str) -> None:
        self.models = models

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if self.models:
            assert context.context is not None
            await context.context.model("m:x").complete(ask_briefly(f"judge {context.task.id} {context.attempt}"))
        return kt.EvaluationVerdict.revise("again") if context.attempt == 1 else kt.EvaluationVerdict.passed()


PLAN = kt.TaskGraph(
    [
        kt.Task("one", "Do one.", member="clerk", evaluator="ed"),
        kt.Task("two", "Do two.", member="writer", depends_on=["one"]),
        kt.Task("three", "Do three.", member="group"),
        kt.Task("four", "Do four.", member="clerk", depends_on=["two", "three"]),
    ]
)


async def begin(path: Path, provider: Provider, *, idempotent: bool = True) -> kt.TeamResult:
    """Run the desk from the start."""
    journal = kt.SqliteJournal(path, sync="normal")
    try:
        async with kt.Runtime(models={"m:x": provider.model}, journal=journal) as runtime:
            request = kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id=RUN)
            return await kt.run(desk(provider, idempotent=idempotent), request, runtime=runtime)
    finally:
        journal.close()


async def go_on(path: Path, provider: Provider, *, idempotent: bool = True, **options: Any) -> kt.TeamResult:
    """Go on with the desk's run."""
    journal = kt.SqliteJournal(path, sync="normal")
    try:
        async with kt.Runtime(models={"m:x": provider.model}, journal=journal, **options) as runtime:
            return await runtime.resume(RUN, desk(provider, idempotent=idempotent))
    finally:
        journal.close()


class Images:
    """Copies a journal's file after every commit: what is there after a power failure at that moment."""

    def __init__(self, folder: Path, monkeypatch: Any, count: Callable[[], Any] = lambda: 0) -> None:
        self.paths: list[Path] = []
        self.counts: list[Any] = []
        """What `count` returned at each commit, such as the calls that a provider knows of."""
        write = Database._write

        def copying(database: Database, connection: SqliteConnection, entries: Any) -> None:
            write(database, connection, entries)
            self.counts.append(count())
            path = folder / f"image-{len(self.paths)}.db"
            with closing(sqlite3.connect(path)) as copy:
                connection.backup(copy)
            self.paths.append(path)

        monkeypatch.setattr(Database, "_write", copying)


def _has_stopped(process: int) -> bool:
    """Whether each thread of a process has stopped: a signal takes a while to arrive."""
    threads = list(Path(f"/proc/{process}/task").glob("*/stat"))  # none on a system that is no Linux
    return all(one.read_text().rpartition(")")[2].split()[0] == "T" for one in threads)


def stop_between_commits(process: int, path: Path) -> None:
    """Stop a process with SIGSTOP, but not while it has the journal's file locked."""
    assert sys.platform != "win32", "there is no SIGSTOP"
    while True:
        os.kill(process, signal.SIGSTOP)
        while not _has_stopped(process):
            time.sleep(0.01)
        with closing(sqlite3.connect(path, timeout=0.1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(process, signal.SIGCONT)
            else:
                return
