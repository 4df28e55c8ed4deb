"""A task that makes no further attempt gives its budget back at once: others need not wait until it ends."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, ReviewRounds
from kairo_team.engine.tasks.dispatcher import Dispatcher
from kairo_team.errors import Misuse
from kairo_team.testing import EventRecorder, run_in_virtual_time

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("anyio_backend")]


class Thinking:
    """A person who thinks for some seconds, and then says something."""

    def __init__(self, seconds: float, *answers: kt.HumanDecision) -> None:
        self._seconds = seconds
        self._answers = list(answers)

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
        await anyio.sleep(self._seconds)
        return self._answers.pop(0) if self._answers else kt.HumanDecision.approve()


class Seen(NamedTuple):
    result: kt.TeamResult
    told: list[tuple[float, events.Event]]
    """The run's events, each with the seconds since the run began."""

    @property
    def done(self) -> set[str]:
        return {one.task_id for one in self.result.outcomes if one.status is kt.TaskStatus.COMPLETED}

    def at(self, kind: type[events.TaskEvent], task_id: str) -> float:
        """Return when something happened to a task, in seconds since the run began."""
        [found] = [at for at, one in self.told if isinstance(one, kind) and one.task_id == task_id]
        return found


async def play(budget: int, spends: dict[str, list[int]], gate: Thinking, rounds: int, policy: kt.BudgetPolicy) -> Seen:
    """Run tasks that spend these tokens, a second before each; a person reviews those whose name begins with "ask"."""

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        left = open_calls.setdefault((assignment.task.id, len(assignment.findings)), list(spends[assignment.task.id]))
        while left:
            await anyio.sleep(1)
            with context.governor.reserve(tokens=left[0]) as hold:
                hold.settle(prompt_tokens=left.pop(0))
        return f"made {assignment.attempt}"

    def tell(event: events.Event) -> None:
        told.append((anyio.current_time() - began, event))

    rubric = kt.Rubric([kt.Criterion("editor", "an editor agrees", by="human")])
    open_calls: dict[tuple[str, int], list[int]] = {}
    """What is left to spend, by task and number of findings."""
    recorder = EventRecorder()
    told: list[tuple[float, events.Event]] = []
    began = anyio.current_time()
    team = kt.Team(
        "desk",
        [kt.Member("m", work)],
        coordinator=ExpertTeamCoordinator(),
        evaluators={"person": rubric},
        runtime=kt.Runtime(gate=gate, subscribers=[recorder, tell]),
    )
    plan = kt.TaskGraph(
        [kt.Task(name, "do", evaluator="person" if name.startswith("ask") else None) for name in spends]
    )
    config = kt.TeamConfig(budget=kt.Budget(tokens=budget), budget_policy=policy, max_human_rounds=rounds)
    result = await kt.run(team, kt.TeamExecutionRequest("go", plan=plan, config=config))
    recorder.assert_lawful()
    return Seen(result, told)


ANSWERS = {
    "approve": kt.HumanDecision.approve(),
    "revise": kt.HumanDecision.revise("again"),
}
TWO_START = kt.BudgetPolicy(expect=kt.Budget(tokens=900), reserve=0.0)
THREE = {"ask": [200], "long": [1] * 200, "next": [500]}


async def test_while_a_person_thinks_about_the_last_version_its_budget_pays_for_others() -> None:
    seen = await play(2_000, THREE, Thinking(100), rounds=0, policy=TWO_START)
    assert seen.done == {"ask", "long", "next"}
    assert seen.at(events.TaskAssigned, "next") == pytest.approx(1), "as soon as the question was asked"
    assert seen.at(events.TaskCompleted, "ask") == pytest.approx(101)
    assert seen.result["ask"].usage.tokens == 200
    assert seen.at(events.BudgetReturned, "ask") == pytest.approx(1), "once, not again when it ends"


async def test_a_task_that_may_be_sent_back_keeps_what_another_version_needs() -> None:
    """What another task spent meanwhile would be missing, however that task got it."""
    gate = Thinking(100, kt.HumanDecision.revise("shorter"))
    seen = await play(2_000, THREE, gate, rounds=1, policy=TWO_START)
    assert seen.done == {"ask", "long", "next"}
    assert seen.result["ask"].attempts == 2
    assert seen.at(events.TaskAssigned, "next") == pytest.approx(102), "with the second question, which is the last"


async def test_while_a_planner_thinks_the_budget_of_the_task_that_failed_pays_for_others() -> None:
    """The task has failed whatever the planner says."""
    starts: dict[str, float] = {}

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        starts[assignment.task.id] = anyio.current_time() - began
        await anyio.sleep(200 if assignment.task.id == "long" else 1)
        if assignment.task.id == "ask":
            raise ValueError("it cannot be done")
        return "made"

    async def think(_task: kt.Task, _error: str) -> bool:
        await anyio.sleep(100)
        return False

    class Planned:
        async def work(self, run: kt.TeamRun, task: kt.Task) -> None:
            await ReviewRounds(run, task, None, FailurePolicy(retries=0), replan=think).finish()

        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            async with kt.TeamRun.open(request, team) as run:
                graph = await run.plan(request.plan or kt.TaskGraph([]))
                async for task in run.ready(graph):
                    run.go(self.work, run, task)
            return run.result

    began = anyio.current_time()
    team = kt.Team("desk", [kt.Member("m", work)], coordinator=Planned())
    plan = kt.TaskGraph([kt.Task(name, "do") for name in THREE])
    config = kt.TeamConfig(budget=kt.Budget(tokens=2_000), budget_policy=TWO_START)
    result = await kt.run(team, kt.TeamExecutionRequest("go", plan=plan, config=config))
    assert starts == pytest.approx({"ask": 0, "long": 0, "next": 1})
    assert result["ask"].error == "ValueError: it cannot be done"


async def test_an_attempt_after_that_is_refused() -> None:
    class GivesBack:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            async with kt.TeamRun.open(request, team) as run:
                graph = await run.plan(request.plan or kt.TaskGraph([]))
                async for task in run.ready(graph):
                    run.give_back(task)
                    run.give_back(task)
                    with pytest.raises(Misuse, match=r"'a' gave its budget back: `TeamRun.give_back` comes"):
                        await run.attempt(task, 1)
                    run.fail(task, "not tried")
            return run.result

    async def never(_: kt.Assignment) -> str:
        raise AssertionError("a member was called")

    team = kt.Team("desk", [kt.Member("m", never)], coordinator=GivesBack())
    request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph([kt.Task("a", "do")]))
    result = await kt.run(team, request)
    assert result["a"].error == "not tried"


async def test_a_run_that_is_cut_while_a_person_thinks_goes_on_from_there(tmp_path: Path) -> None:
    """The question is asked again, the task's budget is given back again, and nothing is paid twice."""
    journal, asked = kt.SqliteJournal(tmp_path / "runs.db"), anyio.Event()

    class Never:
        async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
            asked.set()
            await anyio.sleep_forever()
            raise AssertionError("it is cut")

    spent: list[str] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        spent.append(assignment.task.id)
        with context.governor.reserve(tokens=300) as hold:
            hold.settle(prompt_tokens=300)
        return "made"

    rubric = kt.Rubric([kt.Criterion("editor", "an editor agrees", by="human")])
    team = kt.Team("desk", [kt.Member("m", work)], coordinator=ExpertTeamCoordinator(evaluator=rubric))
    config = kt.TeamConfig(budget=kt.Budget(tokens=1_000), max_human_rounds=0)
    request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph([kt.Task("ask", "do")]), config=config, run_id="r")
    async with kt.Runtime(journal=journal, gate=Never()) as runtime:
        run = await runtime.start(team, request)
        await asked.wait()
        run.interrupt()
    told: list[events.Event] = []
    async with kt.Runtime(journal=journal, gate=Thinking(1), subscribers=[told.append]) as runtime:
        result = await runtime.resume("r", team)
    assert (result.status, result.usage.tokens, spent) == (kt.TeamStatus.COMPLETED, 300, ["ask"])
    kinds = [one.type for one in told]
    assert kinds.index("budget.returned") < kinds.index("human.requested")
    assert kinds.count("budget.returned") == 1
    journal.close()


# ---------------------------------------------------------------- the law


@settings(max_examples=settings().max_examples * 5)
@given(
    spends=st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(1, 60), min_size=1, max_size=4)), min_size=2, max_size=6
    ),
    spare=st.integers(-40, 120),
    expect=st.integers(20, 200),
    reserve=st.sampled_from([0.0, 0.1]),
    seconds=st.sampled_from([0.25, 2.75, 100.25]),
    rounds=st.integers(0, 2),
    said=st.lists(st.sampled_from(["approve", "revise"]), max_size=4),
)
def test_spending_never_passes_the_limit_and_a_run_that_would_have_completed_completes(
    spends: list[tuple[bool, list[int]]], spare: int, expect: int, reserve: float, seconds: float, rounds: int,
    said: list[str],
) -> None:  # fmt: skip
    """Members continue where they ran short, as often as need be: no order of the same work costs more than another."""
    tasks = {f"{'ask' if asks else 'do'}-{number}": tokens for number, (asks, tokens) in enumerate(spends)}
    limit = max(1, sum(sum(tokens) for tokens in tasks.values()) + spare)
    policy = kt.BudgetPolicy(expect=kt.Budget(tokens=expect), reserve=reserve, top_ups=99)

    def run() -> Seen:
        gate = Thinking(seconds, *(ANSWERS[one] for one in said))
        return run_in_virtual_time(play, limit, tasks, gate, rounds, policy)

    given_back = run()
    with patch.object(Dispatcher, "give_back", lambda *_: None):
        kept = run()
    assert given_back.result.usage.tokens <= limit
    assert given_back.result.status.name == "COMPLETED" or kept.result.status.name != "COMPLETED"
