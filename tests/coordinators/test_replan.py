"""A new plan in the place of what has not started, once, when a task is about to fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator, FailurePolicy
from kairo_team.governance import ResourceAction
from kairo_team.testing import FunctionModel, ScriptedAgent, ScriptedModel
from tests.constrained import Bell
from tests.coordinators.bench import (
    COMPLETED,
    FAILED,
    LOW,
    ONCE,
    REVISE,
    SKIPPED,
    Bench,
    Verdicts,
    bad,
    good,
    statuses,
    strict_expert,
    task,
)

Make = Callable[[kt.TaskGraph], Any]


class Planner:
    """Plans `first`, and then what `again` makes of the part that stays."""

    def __init__(self, first: list[kt.Task], again: Make | None = None) -> None:
        self.first = first
        self.again = again
        self.asked: list[kt.TeamExecutionRequest] = []

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> Any:
        self.asked.append(request)
        if request.plan is None:
            return kt.TaskGraph(self.first)
        assert self.again is not None
        made = self.again(request.plan)
        if isinstance(made, Exception):
            raise made
        return kt.TaskGraph([*request.plan.tasks, *made]) if isinstance(made, list) else made


FIRST = [task("root", member="good"), task("bad", "root", member="bad"), task("end", "bad", member="good")]
MENDED = [task("other", "root", member="good"), task("new-end", "other", member="good")]


def bench(**agents: Any) -> Bench:
    return Bench(*(kt.Member(name, agent) for name, agent in ({"good": good, "bad": bad} | agents).items()))


def expert(planner: Any, **fields: Any) -> ExpertTeamCoordinator:
    return strict_expert(planner=planner, replan=True, **({"failure_policy": ONCE} | fields))


@pytest.mark.parametrize("risk", kt.RiskProfile)
async def test_what_has_not_started_is_replaced_and_the_run_is_degraded_not_failed(risk: kt.RiskProfile) -> None:
    planner, team = Planner(FIRST, lambda kept: MENDED), bench()
    result = await team.run(expert(planner), risk_profile=risk)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "made new-end")
    assert statuses(result) == {
        "root": COMPLETED, "bad": FAILED, "end": SKIPPED, "other": COMPLETED, "new-end": COMPLETED
    }  # fmt: skip
    assert result["end"].error == "another plan took its place"
    assert result.plan is not None
    assert [one.id for one in result.plan.tasks] == [outcome.task_id for outcome in result.outcomes]
    assert any("'bad' failed: ValueError: cannot do bad" in warning for warning in result.warnings)


async def test_a_new_plan_is_told_like_the_first_with_all_its_tasks_and_edges() -> None:
    team = bench()
    await team.run(expert(Planner(FIRST, lambda kept: MENDED)))
    first, second = (one.graph for one in team.recorder.of(events.PlanReady))
    assert [(one.id, one.depends_on) for one in first] == [("root", ()), ("bad", ("root",)), ("end", ("bad",))]
    new = {one.id: (one.depends_on, one.members) for one in second if one not in first}
    assert new == {"other": (("root",), ("good",)), "new-end": (("other",), ("good",))}


async def test_the_planner_is_told_what_failed_and_what_stays() -> None:
    planner = Planner(FIRST, lambda kept: MENDED)
    await bench().run(expert(planner))
    first, second = planner.asked
    assert (first.plan, dict(first.context)) == (None, {})
    assert second.plan is not None
    assert [one.id for one in second.plan.tasks] == ["root", "bad"]
    assert second.context["failed"] == {"bad": "ValueError: cannot do bad"}
    assert second.goal == first.goal


async def test_the_new_plan_is_there_before_dependents_are_skipped() -> None:
    team = bench()
    await team.run(expert(Planner(FIRST, lambda kept: MENDED)))
    told = [(event.type, getattr(event, "task_id", None)) for event in team.recorder.events]
    skipped, failed = told.index(("task.skipped", "end")), told.index(("task.failed", "bad"))
    assert skipped < failed < told.index(("task.assigned", "other"))
    (why,) = [event.reason for event in team.recorder.of(events.TaskSkipped)]
    assert why == "another plan took its place"


async def test_it_is_done_once_in_a_run() -> None:
    broken_too = [task("other", "root", member="bad"), task("new-end", "other", member="good")]
    planner = Planner(FIRST, lambda kept: broken_too)
    result = await bench().run(expert(planner))
    assert len(planner.asked) == 2
    assert statuses(result)["other"] is FAILED
    assert statuses(result)["new-end"] is SKIPPED
    assert result.status is kt.TeamStatus.FAILED, "what the new plan lost was needed"


async def test_two_that_fail_at_once_have_one_new_plan_between_them() -> None:
    first = [task("a", member="bad"), task("b", member="bad"), task("end", "a", "b", member="good")]
    planner = Planner(first, lambda kept: [task("new", member="good")])
    result = await bench().run(expert(planner))
    assert len(planner.asked) == 2
    assert statuses(result) == {"a": FAILED, "b": FAILED, "end": SKIPPED, "new": COMPLETED}
    assert result.status is kt.TeamStatus.FAILED, "nothing was planned in the place of the second"


async def test_new_tasks_may_need_what_is_accepted_and_what_is_still_in_flight() -> None:
    seen: list[list[str]] = []

    async def slow(assignment: kt.Assignment) -> str:
        await anyio.sleep(10)
        return "slow but sure"

    async def last(assignment: kt.Assignment) -> str:
        seen.append(list(assignment.upstream))
        return "all of it"

    first = [
        task("root", member="good"), task("flying", member="slow"), task("bad", "root", member="bad"),
        task("end", "bad", "flying", member="last"),
    ]  # fmt: skip
    planner = Planner(first, lambda kept: [task("new", "root", "flying", member="last")])
    team = bench(slow=slow, last=last)
    result = await team.run(expert(planner))
    assert (result.status, seen, result.output) == (kt.TeamStatus.DEGRADED, [["root", "flying"]], "all of it")
    assert result.duration == pytest.approx(10.0), "what was in flight went on"


async def test_tasks_that_start_while_the_planner_thinks_stay() -> None:
    async def ten(assignment: kt.Assignment) -> str:
        await anyio.sleep(10)
        return "ten"

    class Slow(Planner):
        async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> Any:
            if request.plan is not None:
                await anyio.sleep(15)
            return await super().plan(request, team, context)

    first = [
        task("bad", member="bad"), task("ten", member="ten"), task("next", "ten", member="ten"),
        task("end", "bad", "next", member="good"),
    ]  # fmt: skip
    planner = Slow(first, lambda kept: [task("new", "ten", member="good")])
    result = await bench(ten=ten).run(expert(planner))
    assert statuses(result) == {
        "bad": FAILED, "ten": COMPLETED, "next": COMPLETED, "end": SKIPPED, "new": COMPLETED
    }  # fmt: skip
    assert result.status is kt.TeamStatus.DEGRADED


REFUSED: dict[str, tuple[Make, str]] = {
    "nothing new": (lambda kept: [], "no new task"),
    "old id": (lambda kept: [task("end", "root", member="good")], "uses ids again: 'end'"),
    "nobody": (lambda kept: [task("x", role="pilot")], "no member offers"),
    "needs what failed": (lambda kept: [task("x", "bad", member="good")], "need what was not accepted: 'x'"),
    "changed": (
        lambda kept: kt.TaskGraph([task("root", member="bad"), task("x", member="good")]),
        "changes tasks that have started: 'root'",
    ),
    "no graph": (lambda kept: "a plan", "not a TaskGraph"),
    "raises": (lambda kept: LookupError("no idea"), "no idea"),
    "cycle": (lambda kept: [task("x", "y", member="good"), task("y", "x", member="good")], "cycle"),
    "unknown": (lambda kept: [task("x", "end", member="good")], "unknown tasks 'end'"),
    "evaluator": (lambda kept: [task("x", member="good", evaluator="legal")], "evaluator 'legal'"),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_plan_that_cannot_be_run_is_a_warning_and_the_task_fails_as_before(why: str) -> None:
    again, said = REFUSED[why]
    result = await bench().run(expert(Planner(FIRST, again)))
    assert (result.status, statuses(result)) == ("failed", {"root": COMPLETED, "bad": FAILED, "end": SKIPPED})
    assert result["end"].error == "it needs 'bad', which was not accepted"
    (warning,) = [one for one in result.warnings if "no new plan" in one]
    assert said in warning


async def test_a_rejected_artifact_asks_for_a_new_plan_too() -> None:
    first = [task("t", member="good", evaluator="ed"), task("end", "t", member="good")]
    planner = Planner(first, lambda kept: [task("new", member="good")])
    team = Bench(kt.Member("good", good), evaluators={"ed": Verdicts([REVISE])})
    result = await team.run(expert(planner), max_feedback_rounds=0)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "made new")
    assert "not accepted (rounds_exhausted)" in planner.asked[1].context["failed"]["t"]


async def test_a_new_plan_spares_the_team_an_abort_and_without_one_it_is_aborted() -> None:
    policy = FailurePolicy(retries=0, abort_team=True)
    spared = await bench().run(expert(Planner(FIRST, lambda kept: MENDED), failure_policy=policy))
    assert (spared.status, spared.output) == (kt.TeamStatus.DEGRADED, "made new-end")
    aborted = await bench().run(expert(Planner(FIRST, lambda kept: []), failure_policy=policy))
    assert aborted.status is kt.TeamStatus.FAILED


async def test_no_plan_is_made_for_a_cancelled_task_or_after_the_end() -> None:
    async def slow(assignment: kt.Assignment) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    planner = Planner([task("t", member="slow"), task("end", "t", member="good")], lambda kept: MENDED)
    team, results = bench(slow=slow), list[kt.TeamResult]()

    async def cancel() -> None:
        await anyio.sleep(1)
        team.team.runtime.runs["r"].cancel_task("t")

    async def run() -> None:
        results.append(await team.run(expert(planner), risk_profile=LOW))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(cancel)
    assert len(planner.asked) == 1
    timed_out = Planner([task("t", member="slow")], lambda kept: MENDED)
    late = await bench(slow=slow).run(expert(timed_out), budget=kt.Budget(seconds=5.0))
    assert (late.status, len(timed_out.asked)) == (kt.TeamStatus.TIMEOUT, 1)


@pytest.mark.parametrize("end", ["kill", "deadline"])
async def test_a_planner_that_is_interrupted_is_not_asked_again_in_a_replay(end: str) -> None:
    """The bench replays: the run ended while the planner thought."""

    class Hangs(Planner):
        async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> Any:
            if request.plan is not None:
                await anyio.sleep_forever()
            return await super().plan(request, team, context)

    team, results = bench(), list[kt.TeamResult]()
    config = {"budget": kt.Budget(seconds=5.0)} if end == "deadline" else {}

    async def run() -> None:
        results.append(await team.run(expert(Hangs(FIRST)), **config))

    async def kill() -> None:
        await anyio.sleep(1)
        if end == "kill":
            team.team.runtime.runs["r"].cancel("enough")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(kill)
    assert results[0].status == ("timeout" if end == "deadline" else "cancelled")
    assert [outcome.status for outcome in results[0].outcomes] == [COMPLETED, kt.TaskStatus.CANCELLED, SKIPPED]


# ---------------------------------------------------------------- by a model


def proposal(*tasks: tuple[str, str, list[str]]) -> str:
    made = [{"id": name, "description": f"do {name}", "member": who, "depends_on": needs} for name, who, needs in tasks]
    return json.dumps({"tasks": made})


PLANNED = proposal(("root", "good", []), ("bad", "bad", ["root"]), ("end", "good", ["bad"]))
ANEW = proposal(("other", "good", ["root"]), ("finish", "good", ["other"]))


async def test_a_model_plans_anew_and_is_told_what_it_has_to_know() -> None:
    model = ScriptedModel([PLANNED, ANEW])
    team = Bench(kt.Member("good", good), kt.Member(kt.Role("bad", "Be brave."), bad))
    limits = kt.Budget(tokens=5_000, loops=20)
    result = await team.run(expert(AgentPlanner(model)), budget=limits)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "made finish")
    prompt = model.calls[1].messages[-1].text
    for told in ("goal", "- root: do root", "- bad: do bad", "cannot do bad", "Be brave.", "new tasks only"):
        assert told in prompt
    assert "- end" not in prompt
    model.assert_complete()
    assert result.budget is not None
    plans = [node for node in result.budget.children if node.name == "plan"]
    assert sum(node.usage.tokens for node in plans) == result.usage.tokens > 0
    assert [node.guarantee.tokens for node in plans] == [250, 250]


async def test_a_models_new_plan_is_mended_once_and_then_given_up() -> None:
    reused = proposal(("end", "good", ["root"]))
    unknown = proposal(("x", "good", ["nothing"]))
    mended = Bench(kt.Member("good", good), kt.Member("bad", bad))
    result = await mended.run(expert(AgentPlanner(ScriptedModel([PLANNED, unknown, ANEW]))))
    assert result.status is kt.TeamStatus.DEGRADED
    given_up = Bench(kt.Member("good", good), kt.Member("bad", bad))
    result = await given_up.run(expert(AgentPlanner(ScriptedModel([PLANNED, unknown, unknown]))))
    assert (result.status, statuses(result)["end"]) == (kt.TeamStatus.FAILED, SKIPPED)
    again = Bench(kt.Member("good", good), kt.Member("bad", bad))
    result = await again.run(expert(AgentPlanner(ScriptedModel([PLANNED, reused]))))
    assert any("uses ids again: 'end'" in warning for warning in result.warnings)


@pytest.mark.parametrize(("loops", "status"), [(4, "degraded"), (3, "failed")])
async def test_a_models_new_plan_fits_what_is_left_of_the_budget(loops: int, status: str) -> None:
    """Two loops are spent: two new tasks fit four, and not three."""
    model = ScriptedModel([PLANNED, ANEW, ANEW])
    team = Bench(kt.Member("good", good), kt.Member("bad", bad))
    result = await team.run(expert(AgentPlanner(model)), budget=kt.Budget(loops=loops))
    assert result.status == status
    if status == "failed":
        assert "2 tasks, and the budget only 1 loop" in model.calls[2].messages[-1].text


# ---------------------------------------------------------------- who may ask for it


@pytest.mark.parametrize("value", [1, "yes", None])
def test_replan_is_true_or_false(value: Any) -> None:
    with pytest.raises(ValueError, match=r"replan must be True or False"):
        ExpertTeamCoordinator(planner=Planner([]), replan=value)


def test_the_role_planner_has_nothing_else_to_offer() -> None:
    with pytest.raises(ValueError, match="replan=True needs a planner="):
        ExpertTeamCoordinator(replan=True)


async def test_without_replan_the_planner_is_asked_once() -> None:
    planner = Planner(FIRST)
    result = await bench().run(ExpertTeamCoordinator(planner=planner, failure_policy=ONCE))
    assert (len(planner.asked), result.status) == (1, kt.TeamStatus.FAILED)


async def test_a_given_plan_can_be_replanned_too() -> None:
    planner = Planner([], lambda kept: MENDED)
    result = await bench().run(expert(planner), *FIRST)
    assert (result.status, len(planner.asked)) == (kt.TeamStatus.DEGRADED, 1)
    assert ScriptedAgent([]).calls == []


async def ask_at_length(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """It asks a model twice, the second time after a while, and keeps nothing."""
    for _ in range(2):
        await context.model("test:m").complete(kt.ModelRequest([kt.Message.user("Go on.")]))
        await anyio.sleep(6)
    return "done"


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
async def test_audit_g01_a_graceful_exit_of_the_whole_run_asks_for_no_new_plan(of_team: bool) -> None:
    """A member's constraint ends one task, and the rest may be planned anew; after a team's no model call may begin."""
    bell = [Bell(ResourceAction.GRACEFUL_EXIT)]
    members = [
        kt.Member("good", good),
        kt.Member("bad", ask_at_length, constraints=[] if of_team else bell),
        kt.Member("spare", ask_at_length),
    ]
    model = FunctionModel(lambda request: "word ")
    runtime = kt.Runtime(models={"test:m": model})
    team = kt.Team("team", members, constraints=bell if of_team else [], runtime=runtime)
    planner = Planner(FIRST, lambda kept: MENDED)
    result = await expert(planner, failure_policy=FailurePolicy()).execute(kt.TeamExecutionRequest("goal"), team)
    assert (result["bad"].status, result["bad"].attempts, len(model.calls)) == (FAILED, 1, 1)
    assert "the constraint 'bell' ended the attempt" in (result["bad"].error or "")
    assert len(planner.asked) == (1 if of_team else 2)
