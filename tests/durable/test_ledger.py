"""The whole budget tree of a run that was cut and went on is that of the run that was never cut."""

from __future__ import annotations

import tempfile
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
from kairo_team.budget import BudgetNode
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.durable import database, decode
from kairo_team.durable.recovery import steps_of
from kairo_team.engine.records.plan_records import Carved
from kairo_team.testing import FunctionModel, virtual_time_backends
from tests.durable.desk import Images, Judge, ask_briefly

pytestmark = pytest.mark.sampled("anyio_backend")

RUN = "r"
KINDS = ("asks", "asks twice", "fails", "books", "uses a tool", "team", "asks until it halts", "counts loops")


@dataclass(frozen=True)
class Household:
    """A run with budgets at every level."""

    tasks: tuple[kt.Task, ...]
    kinds: tuple[str, ...]
    members: tuple[kt.Budget | None, ...]
    whole: kt.Budget
    policy: kt.BudgetPolicy
    planned: bool
    """A planner makes the plan, and asks a model for it."""

    @property
    def limited(self) -> bool:
        """What is held for a call in doubt may end something that went on without it."""
        budgets = (self.whole, *self.members, *(task.budget for task in self.tasks))
        return any(one not in (None, kt.Budget()) for one in budgets)


@st.composite
def households(draw: st.DrawFn) -> Household:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    budget = st.sampled_from([None, kt.Budget(tokens=300), kt.Budget(tokens=3_000, loops=9, tool_calls=3)])
    tasks: list[kt.Task] = []
    for number in range(len(kinds)):
        before = draw(st.lists(st.sampled_from([t.id for t in tasks]), unique=True, max_size=2)) if tasks else []
        evaluator = draw(st.sampled_from([None, "editor", "judge"]))
        own: dict[str, Any] = {
            "member": f"m{number}",
            "depends_on": before,
            "evaluator": evaluator,
            "budget": draw(budget),
        }
        tasks.append(kt.Task(f"t{number}", "do", weight=draw(st.sampled_from([1, 3])), **own))
    return Household(
        tuple(tasks),
        tuple(kinds),
        tuple(draw(budget) for _ in kinds),
        draw(
            st.sampled_from([kt.Budget(), kt.Budget(tokens=2_000), kt.Budget(tokens=20_000, dollars="0.5", loops=60)])
        ),
        kt.BudgetPolicy(expect=kt.Budget(tokens=200, loops=4), top_ups=draw(st.integers(0, 2))),
        draw(st.booleans()),
    )


class Bank:
    """The members of one session."""

    def __init__(self) -> None:
        self.model = FunctionModel(lambda request: f"answer to {request.messages[-1].text}"[:60], name="test:m")

    def agent(self, kind: str) -> Any:
        if kind == "team":
            plan = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"], evaluator="judge")])
            inner = kt.Team("inner", [kt.Member("hand", self.agent("asks"))], evaluators={"judge": Judge("m:x")})
            return TeamAgent(inner, plan=plan)

        async def act(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            await anyio.sleep(0.001)
            name = f"{assignment.task.id} {assignment.attempt}"
            for turn in range({"asks twice": 2, "asks until it halts": 60}.get(kind, 1)):
                await context.model("m:x").complete(ask_briefly(f"{name} {turn}"))
            if kind == "books":
                context.governor.record_usage(prompt_tokens=11)
            elif kind == "counts loops":
                context.governor.pre_step()
            elif kind == "uses a tool":
                await context.tool(count)(text=name)
            elif kind == "fails":
                raise ValueError("cannot")
            return f"made {name}"

        return act


@kt.tool(side_effect="read")
def count(text: str) -> str:
    """Count the characters of a text."""
    return str(len(text))


class Planner:
    """Asks a model, and makes the plan that it was given."""

    models = ("m:x",)

    def __init__(self, tasks: tuple[kt.Task, ...]) -> None:
        self.tasks = tasks

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: Any) -> kt.TaskGraph:
        for turn in range(2):
            await context.model("m:x").complete(ask_briefly(f"plan {turn}"))
        return kt.TaskGraph(self.tasks)


async def play(household: Household, path: Path, *, go_on: bool) -> kt.TeamResult:
    """Run the household, or go on with it."""
    bank = Bank()
    members = [
        kt.Member(f"m{number}", bank.agent(kind), budget=household.members[number])
        for number, kind in enumerate(household.kinds)
    ]
    policy = FailurePolicy(retries=0)  # what starts while a task waits for its retry is a matter of time
    planner = Planner(household.tasks) if household.planned else None
    coordinator = ExpertTeamCoordinator(failure_policy=policy, planner=planner)
    team = kt.Team("team", members, evaluators={"editor": Judge(), "judge": Judge("m:x")}, coordinator=coordinator)
    config = kt.TeamConfig(
        budget=household.whole, max_parallel_tasks=1, risk_profile=kt.RiskProfile.LOW, budget_policy=household.policy
    )
    plan = None if household.planned else kt.TaskGraph(household.tasks)
    request = kt.TeamExecutionRequest("Go.", plan=plan, config=config, run_id=RUN)
    journal = kt.SqliteJournal(path, sync="normal")
    prices = {"test:*": kt.Price(1, 2)}
    try:
        async with kt.Runtime(models={"m:x": bank.model}, prices=prices, journal=journal) as runtime:
            with anyio.fail_after(60):
                return await (runtime.resume(RUN, team) if go_on else kt.run(team, request, runtime=runtime))
    finally:
        journal.close()


def account(node: BudgetNode, depth: int = 0) -> list[Any]:
    """Return a line for each node of a tree: whose it is, what it may use, what was set aside and what it used."""
    own = (node.path, node.budget, node.guarantee, replace(node.usage, seconds=0.0), node.held, node.overshoot)
    return [own, *(line for child in node.children for line in account(child))]


@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=max(5, settings().max_examples // 4))
@given(household=households(), cuts=st.lists(st.floats(0, 0.999), min_size=1, max_size=4))
def test_the_ledger_of_a_resumed_run_is_that_of_one_that_was_never_cut(
    backend: str, household: Household, cuts: list[float]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with pytest.MonkeyPatch.context() as patch:
            paths = Images(folder, patch).paths
            whole = anyio.run(partial(play, household, folder / "runs.db", go_on=False), backend=backend)
        assert whole.budget is not None
        for path in {paths[int(cut * len(paths))] for cut in cuts}:
            journal = kt.SqliteJournal(path)
            doubt = journal.in_doubt(RUN)
            if journal.show(RUN).state != "interrupted" or (doubt and (household.limited or backend == "trio")):
                continue
            result = anyio.run(partial(play, household, path, go_on=True), backend=backend)
            assert result.budget is not None
            as_before, now = account(whole.budget), account(result.budget)
            if backend == "trio":  # which task starts next is a matter of chance there, and so is what is set aside
                stood = ended_by(path)
                as_before, now = (
                    [(*line[:2], line[3]) for line in one if line[0] in stood] for one in (as_before, now)
                )
            elif doubt:
                assert result.usage.tokens == whole.usage.tokens + sum(one.usage.tokens for one in doubt)
                as_before, now = ([line[:3] for line in one] for one in (as_before, now))
            assert now == as_before


def ended_by(path: Path) -> set[str]:
    """Return the accounts of the tasks that had ended when a run was cut."""
    with kt.SqliteJournal(path).database.reading() as connection:
        steps = steps_of(connection, RUN, decode)
    return {
        f"team/{carved.member}/{key.split(':')[2]}"
        for key, carved in steps.items()
        if isinstance(carved, Carved) and f"outcome:{key.split(':')[2]}" in steps
    }


@pytest.mark.real_time
async def test_shares_that_no_longer_fit_a_smaller_budget_are_made_anew(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: kt.ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        return f"answer {len(asked)}"

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model("m:x").complete(ask_briefly("work"))).text

    def team() -> kt.Team:
        return kt.Team("team", [kt.Member("clerk", work)], evaluators={"judge": Judge("m:x"), "boss": Boss()})

    tasks = [kt.Task("one", "1", evaluator="judge"), kt.Task("two", "2", evaluator="boss", depends_on=["one"])]
    config = kt.TeamConfig(budget=kt.Budget(tokens=20_000))
    request = kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph(tasks), config=config, run_id=RUN)
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    runtime = kt.Runtime(models={"m:x": FunctionModel(answer)}, journal=journal, gate=kt.DeferGate())
    first = await kt.run(team(), request, runtime=runtime)
    assert first.status == "suspended"
    runtime.answer(runtime.pending(RUN)[0].id, kt.HumanDecision.approve())
    result = await runtime.resume(RUN, team(), budget=kt.Budget(tokens=200))
    journal.close()
    assert result.status == "completed", result.warnings
    assert result.budget is not None
    guarantees = {node.name: node.guarantee.tokens for node in result.budget.children}
    assert guarantees["evaluate"] == 40, "a fifth of what there is now"
    assert result.usage.tokens == first.usage.tokens


class Boss:
    """Leaves everything to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "ask")


class Looper:
    """Counts its own iterations, one before each of its calls."""

    own_loop = True

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        said = ""
        for turn in range(2):
            context.governor.pre_step()
            said = (await context.model("m:x").complete(ask_briefly(f"turn {turn}"))).text
        return said


async def one_call(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return (await context.model("m:x").complete(ask_briefly("all at once"))).text


@pytest.mark.real_time
@pytest.mark.parametrize("agent", [one_call, Looper()], ids=["a function", "its own loop"])
async def test_an_attempt_that_had_used_up_its_budget_repeats_its_recorded_calls(tmp_path: Path, agent: Any) -> None:
    async def play(path: Path, tokens: int | None, *, go_on: bool = False) -> tuple[kt.TeamResult, int]:
        asked: list[str] = []

        def answer(request: kt.ModelRequest) -> str:
            asked.append(request.messages[-1].text)
            return "a reply of five words"

        team = kt.Team("team", [kt.Member("clerk", agent)])
        journal = kt.SqliteJournal(path)
        runtime = kt.Runtime(models={"m:x": FunctionModel(answer)}, journal=journal)
        plan, budget = kt.TaskGraph([kt.Task("one", "Do it.", retries=0)]), kt.Budget(tokens=tokens)
        try:
            if go_on:
                return await runtime.resume(RUN, team), len(asked)
            return await kt.run(team, "Go.", plan=plan, budget=budget, run_id=RUN, runtime=runtime), len(asked)
        finally:
            journal.close()

    needed = (await play(tmp_path / "free.db", None))[0].usage.tokens
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_MOST_AT_ONCE", 1)
        images = Images(tmp_path, patch)
        whole, calls = await play(tmp_path / "runs.db", needed)
    assert (whole.status, whole.usage.tokens) == ("completed", needed)
    for path in images.paths:
        journal = kt.SqliteJournal(path)
        rows = [one.state for one in journal.calls(RUN)]
        if journal.show(RUN).state != "interrupted" or rows != ["answered"] * calls:
            continue
        result, asked = await play(path, needed, go_on=True)
        assert (result.status, result.output, asked) == ("completed", "a reply of five words", 0), (path, result.error)
        assert (result.usage.tokens, result.usage.loops) == (needed, whole.usage.loops)
