"""A run that waited for a person, was answered and went on, and was cut after that: it goes on from there too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import FunctionModel, MemoryJournal, virtual_time_backends
from tests.durable.desk import Images, Judge, ask_briefly
from tests.durable.test_ledger import account
from tests.human import APPROVE, REVISE, AsksFirst, LeavesOpen
from tests.tck.test_journal_kits import TestSqliteJournal as SqliteKit

RUN = "r"
KINDS = ("asks", "waits", "waits twice", "books and waits", "fails and waits", "team")
REVIEWS = (None, "person", "judge")


@dataclass(frozen=True)
class Office:
    """A run in which people are asked."""

    tasks: tuple[kt.Task, ...]
    kinds: tuple[str, ...]
    budgets: tuple[kt.Budget | None, ...]
    retries: int
    expert: bool
    plan_is_asked_about: bool
    revises: bool
    """People send artifacts back."""


@st.composite
def offices(draw: st.DrawFn) -> Office:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    tasks: list[kt.Task] = []
    for number in range(len(kinds)):
        before = draw(st.lists(st.sampled_from([t.id for t in tasks]), unique=True, max_size=1)) if tasks else []
        evaluator = draw(st.sampled_from(REVIEWS))
        tasks.append(kt.Task(f"t{number}", "do", member=f"m{number}", depends_on=before, evaluator=evaluator))
    budgets = draw(st.lists(st.sampled_from([None, kt.Budget(tokens=50_000, loops=90)]), min_size=3, max_size=3))
    expert = draw(st.booleans())
    return Office(
        tuple(tasks),
        tuple(kinds),
        tuple(budgets),
        draw(st.integers(0, 1)),
        expert,
        expert and draw(st.booleans()),
        draw(st.booleans()),
    )


class Staff:
    """The members of one process, and what they did in it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.paid: list[str] = []
        self.model = FunctionModel(self.answer, name="test:m")

    def answer(self, request: kt.ModelRequest) -> str:
        self.asked.append(request.messages[-1].text)
        return f"answer to {request.messages[-1].text}"[:60]

    def agent(self, kind: str) -> Any:
        if kind == "team":
            plan = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"])])
            return TeamAgent(kt.Team("inner", [kt.Member("hand", self.agent("waits"))]), plan=plan)

        async def act(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            return await self.act(kind, assignment, context)

        return act

    async def act(self, kind: str, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        name, model = f"{assignment.task.id} {assignment.attempt}", context.model("m:x")
        await anyio.sleep(0.001)
        said = (await model.complete(ask_briefly(f"{name} begins"))).text
        if kind == "books and waits":
            context.governor.record_usage(prompt_tokens=11)
        for turn in range({"asks": 0, "waits twice": 2}.get(kind, 1)):
            context.keep(f"so far {said}")
            said = (await context.tool(self.pay).call({"text": f"{name} {turn}"})).text
            said = (await model.complete(ask_briefly(f"{name} after {turn} {said}"))).text
        if kind == "books and waits":
            context.governor.record_usage(prompt_tokens=7)
        elif kind == "fails and waits":
            raise ValueError("cannot")
        return f"made {said}"

    @kt.tool(side_effect="write", idempotent=True)
    def pay(self, text: str) -> str:
        """Pay for something."""
        self.paid.append(text)
        return f"paid {len(text)}"


def team_of(office: Office, staff: Staff) -> kt.Team:
    members = [
        kt.Member(f"m{number}", staff.agent(kind), budget=office.budgets[number])
        for number, kind in enumerate(office.kinds)
    ]
    policy = FailurePolicy(retries=office.retries, backoff=0.001)
    if office.expert:
        coordinator: Any = ExpertTeamCoordinator(failure_policy=policy, plan_approval=office.plan_is_asked_about)
    else:
        coordinator = TaskDispatchCoordinator(failure_policy=policy)
    passes = [] if office.revises else ["made"]
    reviews: dict[str, Any] = {
        "person": LeavesOpen(*(task.id for task in office.tasks), passes=passes),
        "judge": Judge("m:x"),
    }
    permissions = kt.ToolPermissions(guard=AsksFirst("pay"))
    return kt.Team("team", members, evaluators=reviews, coordinator=coordinator, permissions=permissions)


def decide(office: Office, question: kt.HumanRequest) -> kt.HumanDecision:
    """Say what a person decides: the same, whenever asked."""
    again = question.kind == "review" and office.revises and question.attempt == 1
    return REVISE if again else APPROVE


async def to_the_end(office: Office, staff: Staff, path: Path) -> kt.TeamResult:
    """Begin the run, or go on with it; answer whatever is asked, until it has ended."""
    journal = kt.SqliteJournal(path, sync="normal")
    team = team_of(office, staff)
    config = kt.TeamConfig(max_parallel_tasks=1, risk_profile=kt.RiskProfile.LOW)
    request = kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph(office.tasks), config=config, run_id=RUN)
    runtime = kt.Runtime(
        models={"m:x": staff.model}, prices={"test:*": kt.Price(1, 2)}, journal=journal, gate=kt.DeferGate()
    )
    result: kt.TeamResult | None = None
    try:
        with anyio.fail_after(600):
            while result is None or result.status is kt.TeamStatus.SUSPENDED:
                if not journal.runs():
                    result = await kt.run(team, request, runtime=runtime)
                    continue
                if journal.show(RUN).state == "suspended":  # one that was cut asks first, as the one that was not
                    open_questions = journal.pending(RUN)
                    assert open_questions, "it waits for nobody"
                    for question in open_questions:
                        journal.answer(question.id, decide(office, question))
                result = await runtime.resume(RUN, team)
        return result
    finally:
        journal.close()


def comparable(result: kt.TeamResult) -> Any:
    """All that must be the same, wherever the run was cut: all but times."""
    outcomes = [replace(one, usage=replace(one.usage, seconds=0.0), exception=None) for one in result.outcomes]
    return result.status, outcomes, result.output, replace(result.usage, seconds=0.0), result.error


@pytest.mark.sampled("backend")
@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=max(5, settings().max_examples // 4))
@given(office=offices(), cuts=st.lists(st.floats(0, 0.999), min_size=2, max_size=5))
def test_third_o1_a_run_cut_behind_an_answer_ends_as_the_one_that_was_never_cut(
    backend: str, office: Office, cuts: list[float]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, first = Path(name), Staff()
        with pytest.MonkeyPatch.context() as patch:
            paths = Images(folder, patch).paths
            whole = anyio.run(partial(to_the_end, office, first, folder / "runs.db"), backend=backend)
        assert whole.budget is not None
        for path in {paths[int(cut * len(paths))] for cut in cuts}:
            check_cut(office, path, backend, whole, first)


def check_cut(office: Office, path: Path, backend: str, whole: kt.TeamResult, first: Staff) -> None:
    """Go on from the image of a journal, and compare all that there is with the run that was never cut."""
    journal = kt.SqliteJournal(path)
    if journal.show(RUN).state not in ("interrupted", "suspended"):
        return
    answered = sum(one.state == "answered" and one.what == "model" for one in journal.calls(RUN))
    doubt = sum((one.usage for one in journal.in_doubt(RUN)), kt.Usage())
    again = Staff()
    result = anyio.run(partial(to_the_end, office, again, path), backend=backend)
    assert len(again.asked) == len(first.asked) - answered
    assert journal.pending(RUN) == ()
    shown = journal.show(RUN)
    assert (shown.state, shown.usage.tokens) == (result.status, result.usage.tokens)
    assert result.usage.tokens - doubt.tokens == whole.usage.tokens
    assert result.budget is not None
    assert whole.budget is not None
    if not doubt.tokens and not doubt.tool_calls:
        assert comparable(result) == comparable(whole)
        assert account(result.budget) == account(whole.budget)
    charged = sum((one.usage for one in journal.calls(RUN)), kt.Usage())
    if "books and waits" not in office.kinds:
        assert charged.tokens == result.usage.tokens
    journal.close()


# ---------------------------------------------------------------- one cut, on each kind of journal


class Till:
    """Asks a model, asks to pay, and asks the model three times more; the process dies over one of these calls."""

    def __init__(self, die: Callable[[], object] | None = None, *, over: int = 0) -> None:
        self.asked: list[str] = []
        self.model = FunctionModel(self.answer, name="test:m")
        self._die = die
        self._over = over

    def answer(self, request: kt.ModelRequest) -> str:
        self.asked.append(request.messages[-1].text)
        if self._die is not None and self.asked[-1] == f"after {self._over}":
            self._die()
        return f"answer to {self.asked[-1]}"

    def team(self) -> kt.Team:
        permissions = kt.ToolPermissions(guard=AsksFirst("pay"))
        return kt.Team("till", [kt.Member("clerk", self.work)], permissions=permissions)

    async def work(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        model = context.model("m:x")
        await model.complete(ask_briefly("what is wanted?"))
        context.governor.record_usage(prompt_tokens=11)
        said = (await context.tool(pay).call({"amount": 5})).text
        for turn in range(3):
            said = (await model.complete(ask_briefly(f"after {turn}"))).text
        return said

    def runtime(self, journal: Any) -> kt.Runtime:
        return kt.Runtime(models={"m:x": self.model}, journal=journal, gate=kt.DeferGate())


@kt.tool(side_effect="write")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def check_one_cut(journal: Any, other: Any, die: Callable[[], object], over: int) -> None:
    """Suspend a run, answer, let its process die over a later call, and go on in the other process."""
    first = Till()
    plan = kt.TaskGraph([kt.Task("buy", "Buy it.")])
    suspended = await kt.run(first.team(), "Go.", plan=plan, run_id=RUN, runtime=first.runtime(journal))
    assert suspended.status == "suspended"
    [question] = journal.pending(RUN)
    journal.answer(question.id, kt.HumanDecision.approve())
    second = Till(die, over=over)
    cut = await second.runtime(journal).resume(RUN, second.team())
    assert cut.status == "failed"
    third = Till()
    result = await third.runtime(other).resume(RUN, third.team())
    assert (result.status, result.output) == ("completed", "answer to after 2")
    assert other.pending(RUN) == ()
    assert third.asked == [f"after {turn}" for turn in range(over, 3)], "what was answered is not asked again"
    [doubt] = [one for one in result.warnings if "under way" in one]
    assert "model 'test:m', charged" in doubt
    booked = 2 * 11  # the member booked it when it first worked, and when it worked again
    recorded = sum(one.usage.tokens for one in calls_of(other))
    assert result.usage.tokens == recorded + booked
    assert result["buy"].usage.tokens == result.usage.tokens
    assert (result.usage.loops, result.usage.tool_calls) == (1, 1)


def calls_of(journal: Any) -> Any:
    if isinstance(journal, MemoryJournal):
        return [call for run in journal.storage.runs.values() for call in run.calls.values()]
    return journal.calls(RUN)


@pytest.mark.real_time
@pytest.mark.parametrize("over", range(3))
async def test_third_o1_a_process_that_dies_behind_an_answer_loses_nothing_in_memory(over: int) -> None:
    journal = MemoryJournal()
    await check_one_cut(journal, journal.elsewhere(), journal.crash, over)


@pytest.mark.real_time
@pytest.mark.parametrize("over", range(3))
async def test_third_o1_a_process_that_dies_behind_an_answer_loses_nothing_on_disk(over: int) -> None:
    journal = SqliteKit.make_journal()
    other = SqliteKit.make_another(journal)
    try:
        await check_one_cut(journal, other, partial(SqliteKit.crash, journal), over)
    finally:
        SqliteKit.close(other)
