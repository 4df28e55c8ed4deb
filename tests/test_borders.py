"""Whatever a plug-in raises is its own failure: a result always comes back, and the others finish."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    Criterion,
    PanelEvaluationStrategy,
    Rubric,
    SimpleEvaluationStrategy,
    all_of,
)
from kairo_team.governance import GuardrailDecision, ResourceAction, ResourceValidation
from kairo_team.messages import Message, ModelRequest
from kairo_team.testing import EventRecorder, FunctionModel, virtual_time
from kairo_team.tools import Tool, ToolPermissions
from tests.misdeeds import SAID, Culprit

ONCE = FailurePolicy(retries=0)
COMPLETED, FAILED, SKIPPED = kt.TaskStatus.COMPLETED, kt.TaskStatus.FAILED, kt.TaskStatus.SKIPPED
LOGGED = "log"


@dataclass
class Scene:
    """Who does what with the culprit, and what is to come of it."""

    agent: Any = None
    member: Mapping[str, Any] = field(default_factory=dict[str, Any])
    team: Mapping[str, Any] = field(default_factory=dict[str, Any])
    runtime: Mapping[str, Any] = field(default_factory=dict[str, Any])
    task: Mapping[str, Any] = field(default_factory=dict[str, Any])
    coordinator: Any = None
    ends: kt.TaskStatus = FAILED
    where: str = "error"
    """Where the sentence stands: in the task's error, its artifact, the run's, or the log."""


async def good(assignment: kt.Assignment) -> str:
    await anyio.sleep(1)
    return "good work"


async def slow(assignment: kt.Assignment) -> str:
    await anyio.sleep(3)
    return "slow work"


def asking(model: Any) -> Any:
    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await anyio.sleep(0.1)
        return (await context.model(model).complete(ModelRequest([Message.user("go")]))).text

    return ask


def of_an_agent(culprit: Culprit) -> Scene:
    return Scene(culprit.act)


def of_the_call_of_an_agent(culprit: Culprit) -> Scene:
    class Agent:
        run = culprit.act_at_once

    return Scene(Agent())


def of_an_agent_with_a_watch_around(culprit: Culprit) -> Scene:
    class Watch:
        async def validate(self, context: Any) -> ResourceValidation:
            return ResourceValidation(False, "")

        def on_violation(self, validation: ResourceValidation) -> ResourceAction:
            return ResourceAction.ALLOW

        async def watch(self) -> ResourceValidation:
            await anyio.sleep_forever()
            raise AssertionError

    return Scene(culprit.act, member={"constraints": [Watch()]})


def of_a_task_group_in_an_agent(culprit: Culprit) -> Scene:
    async def agent(assignment: kt.Assignment) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(culprit.act)
            await anyio.sleep(2)
        return "the task group took the cancellation for its own"

    return Scene(agent)


def of_a_model(culprit: Culprit) -> Scene:
    class Model:
        name = "test:bad"
        complete = culprit.act

    return Scene(asking(Model()))


def of_a_models_count(culprit: Culprit) -> Scene:
    model: Any = FunctionModel(lambda request: "well")
    model.count_tokens = culprit.act
    return Scene(asking(model))


def of_a_models_price(culprit: Culprit) -> Scene:
    model: Any = FunctionModel(lambda request: "well")
    model.price = culprit.act_at_once
    return Scene(asking(model))


def of_a_tool(culprit: Culprit) -> Scene:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(Tool("bad", culprit.act))()).text

    return Scene(agent, ends=COMPLETED, where="artifact")


def of_a_permission_guard(culprit: Culprit) -> Scene:
    class Guard:
        check = culprit.act

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(Tool("good", culprit.act))()).text

    return Scene(agent, team={"permissions": ToolPermissions(guard=Guard())}, ends=COMPLETED, where="artifact")


def of_a_guardrail(culprit: Culprit) -> Scene:
    class Policy:
        name = "bad"
        evaluate = culprit.act

    return Scene(asking(FunctionModel(lambda request: "well")), member={"guardrails": [Policy()]})


def of_the_call_of_a_guardrail(culprit: Culprit) -> Scene:
    class Policy:
        name = "bad"
        evaluate = culprit.act_at_once

    return Scene(asking(FunctionModel(lambda request: "well")), member={"guardrails": [Policy()]})


def of_making_a_guardrail_ready(culprit: Culprit) -> Scene:
    class Policy:
        name = "bad"
        for_run = culprit.act_at_once

        async def evaluate(self, context: Any) -> GuardrailDecision:
            return GuardrailDecision.allow()

    return Scene(asking(FunctionModel(lambda request: "well")), member={"guardrails": [Policy()]})


class Constraint:
    """Violated, or not."""

    name = "bad"

    def __init__(self, *, violated: bool = False, **does: Any) -> None:
        self._violated = violated
        for name, act in does.items():
            setattr(self, name, act)

    async def validate(self, context: Any) -> ResourceValidation:
        return ResourceValidation(self._violated, "so")

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return ResourceAction.ALLOW


def of_a_constraint(culprit: Culprit) -> Scene:
    return Scene(good, member={"constraints": [Constraint(validate=culprit.act)]})


def of_a_constraints_decision(culprit: Culprit) -> Scene:
    return Scene(good, member={"constraints": [Constraint(violated=True, on_violation=culprit.act_at_once)]})


def of_a_constraints_watch(culprit: Culprit) -> Scene:
    return Scene(slow, member={"constraints": [Constraint(watch=culprit.act)]})


def of_an_evaluator(culprit: Culprit) -> Scene:
    class Evaluator:
        evaluate = culprit.act

    return Scene(good, team={"evaluators": {"bad": Evaluator()}}, task={"evaluator": "bad"}, where="verdict")


def of_the_call_of_an_evaluator(culprit: Culprit) -> Scene:
    class Evaluator:
        evaluate = culprit.act_at_once

    return Scene(good, team={"evaluators": {"bad": Evaluator()}}, task={"evaluator": "bad"}, where="verdict")


def of_one_evaluator_of_several(culprit: Culprit) -> Scene:
    class Evaluator:
        evaluate = culprit.act

    both = all_of(SimpleEvaluationStrategy(), Evaluator())
    return Scene(good, team={"evaluators": {"bad": both}}, task={"evaluator": "bad"}, where="verdict")


def of_a_check(culprit: Culprit) -> Scene:
    rubric = Rubric([Criterion("c", "it is well", culprit.act)])
    return Scene(good, team={"evaluators": {"bad": rubric}}, task={"evaluator": "bad"}, where="verdict")


def of_a_condition(culprit: Culprit) -> Scene:
    criterion = Criterion("c", "it is well", lambda artifact: True, applies=culprit.act)
    rubric = Rubric([criterion])
    return Scene(good, team={"evaluators": {"bad": rubric}}, task={"evaluator": "bad"}, where="verdict")


def of_a_judge(culprit: Culprit) -> Scene:
    class Model:
        name = "test:bad"
        complete = culprit.act

    judged: Any = AgentEvaluationStrategy(Model(), Rubric([Criterion("c", "is it well?", by="judge")]))
    return Scene(good, team={"evaluators": {"bad": judged}}, task={"evaluator": "bad"}, where="verdict")


def of_a_panel(culprit: Culprit) -> Scene:
    class Model:
        name = "test:bad"
        complete = culprit.act

    rubric = Rubric([Criterion("c", "is it well?", by="judge")])
    judged: Any = PanelEvaluationStrategy([Model(), Model()], rubric)
    return Scene(good, team={"evaluators": {"bad": judged}}, task={"evaluator": "bad"}, where="verdict")


class LeavesOpen:
    """Leaves everything to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")


def of_a_gate(culprit: Culprit) -> Scene:
    class Gate:
        decide = culprit.act

    named = {"evaluators": {"bad": LeavesOpen()}}
    return Scene(good, team=named, task={"evaluator": "bad"}, runtime={"gate": Gate()}, where=LOGGED)


def of_a_plain_subscriber(culprit: Culprit) -> Scene:
    return Scene(good, runtime={"subscribers": [culprit.act_at_once]}, ends=COMPLETED, where=LOGGED)


def of_a_slow_subscriber(culprit: Culprit) -> Scene:
    return Scene(good, runtime={"subscribers": [culprit.act]}, ends=COMPLETED, where=LOGGED)


class Bodies:
    """A coordinator whose task bodies do as they please."""

    def __init__(self, body: Callable[[kt.TeamRun, kt.Task], Awaitable[Any]]) -> None:
        self._body = body

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        plan = request.plan
        assert plan is not None
        async with kt.TeamRun.open(request, team, tolerate_failures=True) as run:
            graph = await run.plan(lambda: plan)
            async for task in run.ready(graph):
                run.go(self._do, run, task)
        return run.result

    async def _do(self, run: kt.TeamRun, task: kt.Task) -> None:
        if task.id == "bad":
            await self._body(run, task)
        run.accept(task, await run.attempt(task, 1))


def of_a_tasks_body(culprit: Culprit) -> Scene:
    return Scene(good, coordinator=Bodies(culprit.act))


def of_a_recorded_step(culprit: Culprit) -> Scene:
    return Scene(good, coordinator=Bodies(lambda run, task: run.step("mine", culprit.act)))


PLACES = [thing for name, thing in list(globals().items()) if name.startswith("of_")]


def cases() -> Iterator[Any]:
    """Yield every place with every kind, at once and later; `make test` runs each with some of the others."""
    for (row, place), (column, kind), later in product(enumerate(PLACES), enumerate(SAID), (False, True)):
        covers = (row + column) % 3 == 0 and later == bool((row + column) % 2)
        when = "later" if later else "at once"
        marks = [] if covers else [pytest.mark.exhaustive]
        if place is of_a_task_group_in_an_agent and kind in {"exit", "interrupt"}:
            # Asyncio itself stops when a task that somebody began raises these: no border is around that.
            marks.append(pytest.mark.loops("trio"))
        yield pytest.param(place, kind, later, marks=marks, id=f"{place.__name__}-{kind}-{when}")


@pytest.mark.parametrize(("place", "kind", "later"), list(cases()))
async def test_audit_g25_what_a_plug_in_raises_is_its_own_failure(
    place: Callable[[Culprit], Scene], kind: str, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """C1: a value, never an exception. The task of the culprit ends as it should, and its siblings finish."""
    culprit, recorder = Culprit(kind, later=later), EventRecorder()
    await culprit.get_ready()
    scene = place(culprit)
    runtime: dict[str, Any] = {**scene.runtime}
    runtime["subscribers"] = [recorder, *runtime.get("subscribers", ())]
    team = kt.Team(
        "team",
        [kt.Member("bad", scene.agent, **scene.member), kt.Member("good", slow)],
        runtime=kt.Runtime(**runtime),
        **scene.team,
    )
    plan = kt.TaskGraph([kt.Task("bad", "do", member="bad", **scene.task), kt.Task("good", "do", member="good")])
    asked = kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=10**6)), run_id="r")
    with caplog.at_level(logging.WARNING):
        result = await (scene.coordinator or TaskDispatchCoordinator(failure_policy=ONCE)).execute(asked, team)
    recorder.assert_lawful()
    assert culprit.calls
    assert result["good"].status is COMPLETED, result.error
    if place is of_a_task_group_in_an_agent and "cancelled" in kind:
        return  # its own task group took the cancellation for one that was asked for
    assert result["bad"].status is scene.ends, result["bad"]
    said = {
        "error": result["bad"].error,
        "artifact": result["bad"].artifact and result["bad"].artifact.text,
        "verdict": repr(result["bad"].verdict),
        LOGGED: caplog.text,
    }[scene.where]
    name = kind if scene.where == LOGGED else culprit.said
    assert scene.where == LOGGED or name in (said or ""), said


# ---------------------------------------------------------------- what the run itself asks for


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("mode", kt.PlannerFailureMode)
async def test_audit_g25_a_planner_that_raises_anything_makes_no_plan(
    mode: kt.PlannerFailureMode, kind: str, later: bool
) -> None:
    culprit, recorder = Culprit(kind, later=later), EventRecorder()
    await culprit.get_ready()

    class Planner:
        plan = culprit.act

    team = kt.Team("team", [kt.Member("m", good)], runtime=kt.Runtime(subscribers=[recorder]))
    coordinator = ExpertTeamCoordinator(planner=Planner(), planner_failure_mode=mode, evaluator=None)
    result = await coordinator.execute(kt.TeamExecutionRequest("goal"), team)
    recorder.assert_lawful()
    if mode is kt.PlannerFailureMode.FAIL_FAST:
        assert (result.status, result.outcomes) == (kt.TeamStatus.FAILED, ())
        assert culprit.said in (result.error or "")
    else:
        assert result.status is kt.TeamStatus.DEGRADED
        assert any(culprit.said in warning for warning in result.warnings)


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("place", ["planning", "block", "watch of the team"])
async def test_audit_g25_what_ends_the_whole_run_brings_a_result(place: str, kind: str) -> None:
    culprit, recorder = Culprit(kind, later=False), EventRecorder()
    await culprit.get_ready()

    class Odd:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            async with kt.TeamRun.open(request, team) as run:
                graph = await run.plan(culprit.act_at_once if place == "planning" else lambda: plan)
                async for task in run.ready(graph):
                    run.accept(task, await run.attempt(task, 1))
                    if place == "block":
                        await culprit.act()
            return run.result

    plan = kt.TaskGraph([kt.Task("a", "do")])
    constraints = [Constraint(watch=culprit.act)] if place == "watch of the team" else []
    runtime = kt.Runtime(subscribers=[recorder])
    team = kt.Team("team", [kt.Member("m", slow)], constraints=constraints, runtime=runtime)
    result = await Odd().execute(kt.TeamExecutionRequest("goal", run_id="r"), team)
    recorder.assert_lawful()
    assert result.status is kt.TeamStatus.FAILED
    assert culprit.said in (result.error or "")


@pytest.mark.parametrize("kind", SAID)
async def test_audit_g25_a_coordinator_that_raises_anything_hurts_no_other_run(kind: str) -> None:
    culprit = Culprit(kind, later=True)
    await culprit.get_ready()

    class Odd:
        execute = culprit.act

    team = kt.Team("team", [kt.Member("m", slow)])
    async with kt.Runtime() as runtime:
        other = await runtime.start(team, kt.TeamExecutionRequest("goal", run_id="other"))
        run = await runtime.start(team, kt.TeamExecutionRequest("goal", run_id="r"), coordinator=Odd())
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of whatever kind
            await run.result()
        assert (await other.result()).status is kt.TeamStatus.COMPLETED
    assert kind == "silent" or culprit.said in str(caught.value)


@pytest.mark.real_time
@pytest.mark.parametrize("kind", SAID)
async def test_audit_g25_a_plain_function_in_its_thread_is_no_exception(kind: str) -> None:
    culprit = Culprit(kind, later=False)
    await culprit.get_ready()

    def agent(assignment: kt.Assignment) -> str:
        culprit.act_at_once()
        raise AssertionError

    rubric = Rubric([Criterion("c", "it is well", lambda artifact: culprit.act_at_once())])
    members = [kt.Member("bad", agent), kt.Member("good", lambda assignment: "good")]
    team = kt.Team("team", members, evaluators={"bad": rubric})
    tasks = [kt.Task("bad", "do", member="bad"), kt.Task("good", "do", member="good", evaluator="bad")]
    asked = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph(tasks))
    result = await TaskDispatchCoordinator(failure_policy=ONCE).execute(asked, team)
    assert (result["bad"].status, result["good"].status) == (FAILED, FAILED)
    assert culprit.said in (result["bad"].error or "")
    assert culprit.said in repr(result["good"].verdict)


# ---------------------------------------------------------------- whose cancellation it is


def team_of(agent: Any, *, timeout: float | None = None, **fields: Any) -> tuple[kt.Team, kt.TeamExecutionRequest]:
    """A team of two, and a request with a task for each; `timeout` is the first one's."""
    team = kt.Team("team", [kt.Member("bad", agent), kt.Member("good", slow)], **fields)
    tasks = [kt.Task("bad", "do", member="bad", timeout=timeout), kt.Task("good", "do", member="good")]
    plan = kt.TaskGraph(tasks)
    return team, kt.TeamExecutionRequest("goal", plan=plan, run_id="r")


@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize("anyio_backend", [virtual_time("asyncio")], ids=["asyncio"])
async def test_audit_g24_an_agent_that_cancels_the_task_it_runs_in_ends_its_own_task(
    anyio_backend: Any, awaits: bool
) -> None:
    async def agent(assignment: kt.Assignment) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if awaits:
            await asyncio.sleep(1)
        return "it went on"

    team, asked = team_of(agent)
    more = kt.TaskGraph([*asked.plan.tasks, *(kt.Task(f"t{n}", "do", member="good") for n in range(20))])  # type: ignore[union-attr]  # it has one
    result = await TaskDispatchCoordinator(failure_policy=ONCE).execute(replace(asked, plan=more), team)
    others = [outcome.status for outcome in result.outcomes if outcome.task_id != "bad"]
    assert others == [COMPLETED] * 21
    assert result["bad"].status is (FAILED if awaits else COMPLETED)


@pytest.mark.parametrize("kind", ["cancelled", "exit", "own", "group"])
async def test_audit_g24_the_callers_cancellation_stays_the_callers(kind: str) -> None:
    """Whatever a plug-in raises while it is cancelled, the caller gets its cancellation and nothing else."""
    culprit, recorder = Culprit(kind, later=False), EventRecorder()
    await culprit.get_ready()

    async def agent(assignment: kt.Assignment) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            await culprit.act()
        raise AssertionError

    team, asked = team_of(agent, runtime=kt.Runtime(subscribers=[recorder]))
    with anyio.move_on_after(1) as scope:
        await TaskDispatchCoordinator(failure_policy=ONCE).execute(asked, team)
    assert scope.cancelled_caught
    recorder.assert_lawful()
    assert recorder.types[-1] == "team.cancelled"


@pytest.mark.parametrize("kind", SAID)
async def test_audit_g24_a_timed_out_agent_that_raises_anything_has_timed_out(kind: str) -> None:
    culprit = Culprit(kind, later=False)
    await culprit.get_ready()

    async def agent(assignment: kt.Assignment) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            culprit.act_at_once()
        raise AssertionError

    team, asked = team_of(agent)
    asked = replace(asked, config=kt.TeamConfig(task_timeout=5.0))
    result = await TaskDispatchCoordinator(failure_policy=ONCE).execute(asked, team)
    assert (result["bad"].status, result["bad"].error) == (FAILED, "timed out after 5 seconds")
    assert result["good"].status is COMPLETED


@pytest.mark.parametrize("kind", ["exit", "own", "silent", "closed"])
async def test_audit_g25_what_is_closed_and_raises_over_that_has_ended(kind: str) -> None:
    """Closing is the last means against an agent that ignores its end; its clean-up ends nobody else."""
    culprit = Culprit(kind, later=False)
    await culprit.get_ready()

    async def agent(assignment: kt.Assignment) -> str:
        try:
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
        finally:
            culprit.act_at_once()
        raise AssertionError

    team, asked = team_of(agent, timeout=1.0)
    asked = replace(asked, config=kt.TeamConfig(cancel_grace=0.5))
    result = await TaskDispatchCoordinator(failure_policy=ONCE).execute(asked, team)
    assert result["bad"].error == "timed out after 1 second"
    assert result["good"].status is COMPLETED
    assert any("'bad' did not end when it was cancelled and was closed" in one for one in result.warnings)


async def test_audit_g06_a_member_that_awaits_what_is_cancelled_fails_its_own_task_with_one_sentence() -> None:
    culprit = Culprit("cancelled", later=True)
    await culprit.get_ready()
    team, asked = team_of(culprit.act)
    result = await TaskDispatchCoordinator(failure_policy=ONCE).execute(asked, team)
    assert result["good"].status is COMPLETED
    error = result["bad"].error or ""
    assert "it was not cancelled, but something it waited for was" in error
    assert "the run ended" not in error


async def test_audit_g06_sys_exit_in_an_agent_is_a_failed_attempt_with_one_sentence() -> None:
    async def leave(assignment: kt.Assignment) -> str:
        sys.exit(3)

    team, asked = team_of(leave)
    result = await TaskDispatchCoordinator(failure_policy=FailurePolicy(backoff=0.1)).execute(asked, team)
    bad = result["bad"]
    assert (bad.status, bad.attempts) == (FAILED, 3)
    assert result["good"].status is COMPLETED
