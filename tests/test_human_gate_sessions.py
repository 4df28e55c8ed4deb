"""What an earlier session of a run came to: told once, kept however the next one ends, and no part of a new plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.engine.records.journal import MemoryRecords
from tests.human import APPROVE, DEFER, REJECT, REVISE, AsksFirst, Gate, LeavesOpen, Office, statuses

pytestmark = pytest.mark.anyio

PLAN = [kt.Task("done", "do"), kt.Task("asked", "do"), kt.Task("after", "do", depends_on=["asked"])]


class Clerk:
    """Does what is asked for ten tokens, but for the task `bad`."""

    reentrant = True

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(prompt_tokens=10)
        await anyio.sleep(1)
        if assignment.task.id == "bad":
            raise OSError("no way")
        return f"{assignment.task.id} {assignment.attempt}"


class Planner:
    """Plans these tasks; asked again, it adds one called `new`."""

    def __init__(self, *tasks: kt.Task) -> None:
        self._tasks = tasks

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: Any) -> kt.TaskGraph:
        if request.plan is None:
            return kt.TaskGraph(self._tasks)
        return kt.TaskGraph([*request.plan.tasks, kt.Task("new", "do")])


def office(*asked: str, members: Mapping[str, Any] = {}, **options: Any) -> Office:
    given: dict[str, Any] = {"gate": kt.DeferGate(), "evaluator": LeavesOpen(*asked), **options}
    return Office({"m": Clerk(), **members}, **given)


def ends(desk: Office) -> dict[str, str]:
    """Return the last events of all tasks, by id; each has one, apart from what waited."""
    told = [event for event in desk.recorder.of(events.TaskEnded) if not isinstance(event, events.TaskSuspended)]
    assert len({event.task_id for event in told}) == len(told), "a task ended twice"
    return {event.task_id: event.type for event in told}


async def test_what_had_ended_is_not_told_of_again() -> None:
    """Every task has one last event in a run, however many sessions that has."""
    desk = office("asked")
    await desk.run(PLAN)
    before = len(desk.recorder.events)
    desk.answer(APPROVE)
    await desk.resume()
    told = [event.task_id for event in desk.recorder.events[before:] if isinstance(event, events.TaskEvent)]
    assert set(told) == {"asked", "after"}
    assert ends(desk) == dict.fromkeys(["done", "asked", "after"], "task.completed")


async def test_a_skipped_task_keeps_the_reason_that_was_told() -> None:
    desk = office("asked")
    first = await desk.run(
        [kt.Task("asked", "do"), kt.Task("bad", "do"), kt.Task("both", "do", depends_on=["asked", "bad"])]
    )
    desk.answer(REJECT)
    second = await desk.resume()
    assert first["both"].error == second["both"].error == "it needs 'bad', which was not accepted"


async def test_the_budget_of_a_member_is_still_its_own_after_a_resume() -> None:
    """What it has left of it is there, although the others spent all the rest."""
    desk = office("asked", members={"rich": kt.Member("rich", Clerk(), budget=kt.Budget(tokens=30))})
    plan = [kt.Task("asked", "do", role="rich"), kt.Task("one", "do", role="m"), kt.Task("two", "do", role="m")]
    plan += [kt.Task("then", "do", role="rich", depends_on=["asked"])]
    first = await desk.run(plan, budget=kt.Budget(tokens=50))
    assert statuses(first) == {"asked": "suspended", "one": "completed", "two": "completed", "then": "pending"}
    desk.answer(APPROVE)
    second = await desk.resume()
    assert set(statuses(second).values()) == {"completed"}, second.error
    assert second.budget is not None
    spent = {node.name: node.usage.tokens for node in second.budget.children}
    assert (spent["m"], spent["rich"], second.usage.tokens) == (20, 20, 40)


@pytest.mark.parametrize("planned", [False, True], ids=["given", "planned"])
async def test_a_resumed_run_that_is_killed_at_once_keeps_what_was_finished(planned: bool) -> None:
    desk = office("asked", planner=Planner(*PLAN) if planned else None)
    await desk.run(None if planned else PLAN)
    run = desk.runtime.runs["r"]

    def kill(event: events.Event) -> None:
        if isinstance(event, events.TeamResumed):
            run.cancel("enough")

    desk.runtime.subscribers += (kill,)
    result = await desk.resume()
    assert statuses(result) == {"done": "completed", "asked": "cancelled", "after": "skipped"}
    assert (result.status, result.output) == (kt.TeamStatus.CANCELLED, None)
    assert result.partial_output == "done:\ndone 1\n\nasked:\nasked 1"
    assert result["asked"].artifact == kt.Artifact("asked 1")
    assert ends(desk) == {"done": "task.completed", "asked": "task.cancelled", "after": "task.skipped"}


async def test_a_run_killed_before_it_comes_to_its_new_plan_keeps_what_was_finished_of_that() -> None:
    """The new plan is made again from the records only once the task fails again that it was made for."""
    planner = Planner(kt.Task("bad", "do"), kt.Task("never", "do", depends_on=["bad"]))
    desk = office("last", planner=planner, replan=True, evaluator=LeavesOpen("new"))
    first = await desk.run(risk_profile=kt.RiskProfile.LOW)
    assert statuses(first) == {"bad": "failed", "never": "skipped", "new": "suspended"}
    run = desk.runtime.runs["r"]

    def kill(event: events.Event) -> None:
        if isinstance(event, events.PlanReady) and event.seq > 20:
            run.cancel("enough")

    desk.runtime.subscribers += (kill,)
    result = await desk.resume()
    assert statuses(result) == {"bad": "failed", "never": "skipped", "new": "cancelled"}
    assert result["new"].artifact == kt.Artifact("new 1")
    assert result.plan == first.plan


async def test_a_new_plan_leaves_alone_what_was_worked_on_in_an_earlier_session() -> None:
    """Waiting for its turn in the replay, it has not started again yet; its question is still open."""
    tasks = [kt.Task("first", "do"), kt.Task("second", "do"), kt.Task("never", "do", depends_on=["first"])]
    desk = office("first", "second", planner=Planner(*tasks), replan=True)
    await desk.run(max_parallel_tasks=1, risk_profile=kt.RiskProfile.LOW)
    question_of = {one.task_id: one.id for one in desk.runtime.pending("r")}
    assert set(question_of) == {"first", "second"}
    desk.runtime.answer(question_of["first"], REJECT)
    second = await desk.resume()
    assert statuses(second) == {"first": "failed", "second": "suspended", "never": "skipped", "new": "completed"}
    desk.answer(APPROVE)
    third = await desk.resume()
    assert statuses(third) == {**statuses(second), "second": "completed"}
    assert third.usage.tokens == sum(outcome.usage.tokens for outcome in third.outcomes)


async def test_a_task_that_a_new_plan_brings_back_is_told_of() -> None:
    """It was cancelled while the plan waited for a person, who then wanted another plan."""
    desk = office(planner=Planner(*PLAN), plan_approval=True, gate=Gate(DEFER, APPROVE))

    def cancel(event: events.Event) -> None:
        if isinstance(event, events.HumanRequested):
            desk.runtime.runs["r"].cancel_task("done")

    desk.runtime.subscribers += (cancel,)
    first = await desk.run()
    desk.runtime.subscribers = (desk.recorder,)
    assert statuses(first) == {"done": "skipped", "asked": "pending", "after": "pending"}
    desk.answer(REVISE)
    before = len(desk.recorder.events)
    second = await desk.runtime.resume("r", desk.team, coordinator=desk.coordinator)
    assert statuses(second) == {"done": "completed", "asked": "completed", "after": "completed"}
    told = [event for event in desk.recorder.events[before:] if isinstance(event, events.TaskCompleted)]
    assert sorted(event.task_id for event in told) == ["after", "asked", "done"]


async def test_of_a_new_plan_that_nobody_can_do_the_tasks_are_told_of_and_not_those_of_the_last() -> None:
    class Twice(Planner):
        async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: Any) -> kt.TaskGraph:
            again = "previous_plan" in request.context
            return kt.TaskGraph([kt.Task("other", "do", member="nobody")] if again else PLAN)

    desk = office(planner=Twice(), plan_approval=True, gate=Gate(REVISE))
    result = await desk.run()
    assert (result.status, statuses(result)) == (kt.TeamStatus.FAILED, {"other": "skipped"})
    assert ends(desk) == {"other": "task.skipped"}


class Till:
    """Pays, which a person has to allow."""

    reentrant = True

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(self.pay)()).text

    async def pay(self) -> str:
        """Pay."""
        return "paid"


async def test_a_task_cancelled_while_its_tool_call_waited_stays_cancelled() -> None:
    """Also when its question is answered later, and in a replay of the records."""
    journal = MemoryRecords()

    class Recorded(kt.Runtime):
        def journal_for(self, run_id: str) -> MemoryRecords:
            return journal

    desk = Office({"m": Till()}, guard=AsksFirst("pay"))
    desk.runtime = Recorded(gate=kt.DeferGate(), subscribers=[desk.recorder])
    plan = [kt.Task("one", "do"), kt.Task("two", "do")]
    await desk.run(plan)
    [asked, other] = desk.runtime.pending("r")

    def cancel(event: events.Event) -> None:
        if isinstance(event, events.TaskAssigned) and event.task_id == "one":
            desk.runtime.runs["r"].cancel_task("one")

    desk.runtime.subscribers = (desk.recorder, cancel)
    second = await desk.resume()
    assert statuses(second) == {"one": "cancelled", "two": "suspended"}
    for question in desk.runtime.pending("r"):
        desk.runtime.answer(question.id, APPROVE)
    assert {asked.task_id, other.task_id} == {"one", "two"}
    third = await desk.resume()
    assert statuses(third) == {"one": "cancelled", "two": "completed"}
    request = kt.TeamExecutionRequest("Do it.", plan=kt.TaskGraph(plan), run_id="r")
    again = await desk.coordinator.execute(request, replace(desk.team, runtime=Recorded(gate=kt.DeferGate())))
    assert (again.status, statuses(again), again.output) == (third.status, statuses(third), third.output)
