"""What the console's tests share: a journal with runs in it, and a browser without a window, in httpx."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Self

import httpx

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.testing import FunctionModel
from kairo_team.web_console.access import Access
from kairo_team.web_console.serving import make_app
from kairo_team.web_console.sources import JournalSource, Source

ANYWHERE = "0.0.0.0"  # noqa: S104 - it is refused
TOKEN = "a-token-of-the-tests"
HOSTILE = "<script>alert(1)</script><svg onload=alert(2)> \u202etxt.exe\u202c \x1b[31mred\x1b[0m"


class Asks:
    """Sends the first version back, and leaves the second to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if context.task.id != "letter":
            return kt.EvaluationVerdict.passed(1.0)
        if context.attempt == 1:
            return kt.EvaluationVerdict.revise("the second line must have words")
        finding = kt.Finding("tone", observed=f"too cold {HOSTILE}", expected="warm")
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it", findings=[finding])


def experts() -> ExpertTeamCoordinator:
    return ExpertTeamCoordinator(evaluator=Asks(), failure_policy=FailurePolicy(retries=0))


def office() -> kt.Team:
    model = FunctionModel(lambda request: "said", name="test:provider")

    async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await context.model(model).complete(kt.ModelRequest([kt.Message.user("write")], max_tokens=40))
        return f"Dear all,\nbe welcome.\n{HOSTILE}" if assignment.previous else f"Dear all,\n2\n{HOSTILE}"

    return kt.Team("office", [kt.Member("clerk", write)], coordinator=experts())


def letter(run_id: str, goal: str = "Write a letter.") -> kt.TeamExecutionRequest:
    plan = kt.TaskGraph([kt.Task("letter", "Write."), kt.Task("send", "Send it.", depends_on=["letter"])])
    return kt.TeamExecutionRequest(goal, plan=plan, run_id=run_id, config=kt.TeamConfig(budget=kt.Budget(tokens=9_000)))


async def begin(path: Path, run_id: str = "run-1", goal: str = "Write a letter.") -> None:
    """Record a run that waits for a person."""
    journal = kt.SqliteJournal(path)
    try:
        async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
            result = await kt.run(office(), letter(run_id, goal), runtime=runtime)
        assert result.status is kt.TeamStatus.SUSPENDED
    finally:
        journal.close()


async def go_on(path: Path, run_id: str = "run-1") -> kt.TeamResult:
    journal = kt.SqliteJournal(path)
    try:
        async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
            return await runtime.resume(run_id, office())
    finally:
        journal.close()


class Browser:
    """Keeps cookies and sends the forms of pages."""

    def __init__(
        self,
        source: kt.SqliteJournal | Source,
        *,
        enter: bool = True,
        clock: Any = None,
        runtime: kt.Runtime | None = None,
    ) -> None:
        timed = {} if clock is None else {"clock": clock}
        self.access = Access(("localhost", "127.0.0.1"), token=TOKEN, **timed)
        source = JournalSource(source, runtime) if isinstance(source, kt.SqliteJournal) else source
        app = make_app(source, self.access, person="ada")
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")
        self.enter = enter

    async def __aenter__(self) -> Self:
        if self.enter:
            entered = await self.client.get("/", params={"token": TOKEN})
            assert entered.status_code == 200
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def read(self, path: str, **query: str) -> str:
        response = await self.client.get(path, params=query or None)
        assert response.status_code == 200, response.text
        return response.text

    async def send(self, path: str, *, form_key: str | None = None, **fields: str) -> httpx.Response:
        given = {"form_key": self.access.form_key if form_key is None else form_key, **fields}
        return await self.client.post(path, data=given)


def words(html: str) -> str:
    """The page's text, tags left out."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())
