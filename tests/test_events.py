"""Every event there is: emitted where it should be, one class each, and the same after a way through JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.events import EVENT_TYPES, Event, event_from_json
from kairo_team.governance import (
    GuardrailContext,
    GuardrailDecision,
    GuardrailPhase,
    ResourceAction,
    ResourceContext,
    ResourceValidation,
)
from kairo_team.permissions import PermissionDecision
from kairo_team.testing import EventRecorder, FunctionModel, MemoryJournal
from tests.events_page import page

DESIGN = [
    "team.started",
    "team.resumed",
    "team.completed",
    "team.failed",
    "team.timed_out",
    "team.cancelled",
    "team.suspended",
    "team.interrupted",
    "plan.ready",
    "plan.grew",
    "task.assigned",
    "task.waiting",
    "task.escalated",
    "task.steered",
    "task.completed",
    "task.failed",
    "task.skipped",
    "task.cancelled",
    "task.suspended",
    "attempt.started",
    "attempt.progress",
    "attempt.finished",
    "evaluation.started",
    "evaluation.result",
    "budget.carved",
    "budget.returned",
    "budget.topped_up",
    "budget.warned",
    "budget.halted",
    "constraint.violated",
    "guardrail.decided",
    "tool.started",
    "tool.called",
    "calls.diverged",
    "content",
    "model.waiting",
    "model.started",
    "model.called",
    "model.delta",
    "human.requested",
    "human.decided",
]
"""The types the design names."""


@kt.tool(side_effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


def reply(request: kt.ModelRequest) -> kt.ModelResponse | str:
    """Ask for the tool once, then answer."""
    if any(message.role == "tool" for message in request.messages):
        return "it is calm"
    return kt.ModelResponse("", [kt.ToolCall("c", "look", {"what": "the sea"})], kt.Usage(40, 40))


async def slow(request: kt.ModelRequest) -> str:
    """Take a second."""
    await anyio.sleep(1)
    return "fine"


class Late:
    """A constraint that is violated at every turn, and lets the work go on."""

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        return ResourceValidation(violated=True, reason="it is late", metrics={"iteration": context.iteration})

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return ResourceAction.WARN_CONTINUE


class Polite:
    phases = {GuardrailPhase.PRE_MODEL}  # noqa: RUF012 - as users write it

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        return GuardrailDecision.warn("say please")


class Unsure:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        finding = kt.Finding("f", expected="more", severity="info")
        return kt.EvaluationVerdict.escalate(kt.Cause.LOW_CONFIDENCE, "who knows", findings=[finding])


class Gate:
    def __init__(self, action: Literal["approve", "defer"]) -> None:
        self._decision = kt.HumanDecision(action, "as you like")

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
        return self._decision


class Wary:
    """Has every call of a tool approved."""

    async def check(self, tool: str, arguments: Any, side_effect: str) -> PermissionDecision:
        return PermissionDecision.ask("sure?")


class Fickle:
    """Asks something else each time the same attempt is made."""

    def __init__(self) -> None:
        self.times = 0

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        self.times += 1
        model = context.model(FunctionModel(lambda _: "yes"))
        await model.complete(kt.ModelRequest([kt.Message.user(f"time {self.times}")]))
        return (await context.tool(look)(what="the sea")).text


async def short(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Do as the task is called."""
    if assignment.task.id == "long":
        await anyio.sleep_forever()
    if assignment.task.id == "short":
        context.emit("I want more than my share")
        with context.governor.reserve(tokens=70) as hold:
            hold.settle(prompt_tokens=70)
    if assignment.task.id == "bad":
        raise OSError("no way")
    await anyio.sleep(5)
    return "done"


class Twice:
    """Adds a task when the first one has ended."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            assert request.plan is not None
            async for task in run.ready(await run.plan(request.plan)):
                run.skip(task, "not today")
            async for task in run.ready(await run.add(lambda: [kt.Task("another", "do")])):
                run.skip(task, "nor tomorrow")
        return run.result


async def everything() -> list[Event]:
    """Run some runs that between them emit every event there is."""
    recorder = EventRecorder()
    kit: dict[str, Any] = {"constraints": [Late()], "guardrails": [Polite()]}
    speaker = kt.Member("speaker", kt.MiniAgent(FunctionModel(reply), tools=[look], stream=True))
    unsure = ExpertTeamCoordinator(evaluator=Unsure(), gate=Gate("approve"))
    asleep = ExpertTeamCoordinator(evaluator=Unsure(), gate=Gate("defer"))
    board = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    limits = {"test:slow": kt.ModelLimit(concurrency=1)}
    async with kt.Runtime(subscribers=[recorder], content="events", model_limits=limits) as runtime:

        async def play(run_id: str, team: kt.Team, coordinator: Any, *tasks: kt.Task, **config: Any) -> kt.Run:
            plan = kt.TaskGraph(list(tasks) or [kt.Task("one", "do")])
            request = kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config), run_id=run_id)
            return await runtime.start(team, request, coordinator=coordinator)

        await (await play("asked", kt.Team("t", [speaker], **kit), unsure, budget=kt.Budget(tool_calls=1))).result()
        team = kt.Team("t", [kt.Member("m", short)])
        await (await play("asleep", team, asleep)).result()
        runtime.answer(runtime.pending("asleep")[0].id, kt.HumanDecision.approve())
        await runtime.resume("asleep", team, coordinator=asleep)
        fickle = kt.Team("t", [kt.Member("m", Fickle())], permissions=kt.ToolPermissions(guard=Wary()))
        await (await play("fickle", fickle, asleep)).result()
        runtime.answer(runtime.pending("fickle")[0].id, kt.HumanDecision.approve())
        await runtime.resume("fickle", fickle, coordinator=asleep)
        await (await play("late", team, board, kt.Task("long", "do"), budget=kt.Budget(seconds=1.0))).result()
        tight = {"budget": kt.Budget(tokens=100), "budget_policy": kt.BudgetPolicy(reserve=0.0, top_ups=1)}
        tasks = [kt.Task("short", "do"), kt.Task("other", "do"), kt.Task("after", "do", depends_on=["short"])]
        run = await play("short", team, board, *tasks, **tight)
        await anyio.sleep(1)
        run.steer("Hurry.")
        await run.result()
        asking = kt.Team("t", [kt.Member("m", kt.MiniAgent(FunctionModel(slow, name="test:slow")))])
        await (await play("queue", asking, board, kt.Task("one", "do"), kt.Task("other", "do"))).result()
        await (await play("grown", team, Twice())).result()
        await (await play("failed", team, board, kt.Task("bad", "do"))).result()
        run = await play("killed", team, board, kt.Task("long", "do"), kt.Task("after", "do", depends_on=["long"]))
        await anyio.sleep(1)
        run.cancel()
        await run.result()
    async with kt.Runtime(subscribers=[recorder], journal=MemoryJournal()) as runtime:
        run = await runtime.start(team, "goal", plan=kt.TaskGraph([kt.Task("long", "do")]), run_id="left")
        await anyio.sleep(1)
        run.interrupt()
        await run.result()
    return recorder.events


async def test_every_event_of_the_design_is_emitted() -> None:
    emitted = {event.type for event in await everything()}
    assert emitted == set(DESIGN)


async def test_the_events_are_those_of_the_design_and_the_news_of_a_lag() -> None:
    # A model that shows its reasoning is in tests/models/test_shares.py.
    assert sorted(EVENT_TYPES) == sorted([*DESIGN, "lagged", "model.thinking", "team.given_up"])


def test_the_page_of_events_is_what_the_classes_say() -> None:
    written = (Path(__file__).parent.parent / "docs" / "events.md").read_text(encoding="utf-8")
    assert written == page() + "\n", "run `python -m tests.events_page > docs/events.md`"
    assert [line[4:] for line in written.splitlines() if line.startswith("### ")].count("content") == 1
    assert {name for name in EVENT_TYPES if f"\n### {name}\n" in written} == set(EVENT_TYPES)


async def test_every_event_is_the_same_after_a_way_through_json() -> None:
    for event in await everything():
        text = event.to_json()
        assert event_from_json(text) == event
        assert event_from_json(text.encode()) == event
        assert "\n" not in text
        body = json.loads(text)
        assert next(iter(body)) == "type"
        assert (body["type"], body["run_id"], body["seq"]) == (event.type, event.run_id, event.seq)
        assert body["at"].endswith("Z")


async def test_every_event_says_whose_it_is() -> None:
    """`task_id` and `member` where they apply: what happens in an attempt has both."""
    inside = (
        "attempt.",
        "evaluation.",
        "tool.",
        "task.assigned",
        "task.completed",
        "task.escalated",
        "budget.returned",
    )
    seen = await everything()
    for event in seen:
        body = json.loads(event.to_json())
        if event.type.startswith(inside):
            assert body["task_id"], event
            assert body["member"], event
    numbers: dict[str, int] = {}
    for event in seen:
        numbers[event.run_id] = numbers.get(event.run_id, 0) + 1
        assert event.seq == numbers[event.run_id], "1, 2, 3 and so on, also over a resumption"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5", "not an event: '5'"),
        ('{"type": "team.exploded"}', "the types are 'attempt.finished'"),
        ('{"seq": 1}', "not an event"),
        ('{"type": "plan.ready"}', "run_id"),
        ('{"type": "plan.ready", "run_id": "r", "seq": "x", "at": "2026-08-01T06:00:00Z", "tasks": []}', "seq"),
        ("{", "Expecting property name"),
    ],
)
def test_what_is_no_event_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        event_from_json(text)


def test_events_are_frozen_and_their_data_is_read_only() -> None:
    text = '{"type": "attempt.progress", "run_id": "r", "seq": 1, "at": "2026-08-01T06:00:00Z", "task_id": "t",'
    event = event_from_json(text + ' "member": "m", "text": "x", "data": {"a": [1, {"b": 2}]}}')
    assert isinstance(event, events.AttemptProgress)
    with pytest.raises(AttributeError):
        event.seq = 2  # type: ignore[misc]  # the mistake is the point
    with pytest.raises(TypeError):
        event.data["a"] = 1  # type: ignore[index]  # the same


async def test_descriptions_of_tasks_are_in_the_plan_masked_and_cut() -> None:
    recorder = EventRecorder()
    plan = kt.TaskGraph([kt.Task("one", "x" * 1_990 + " s3cr3t-token and more")])
    team = kt.Team("t", [kt.Member("m", lambda _: "done")])
    runtime = kt.Runtime(subscribers=[recorder], secrets=["s3cr3t-token"])
    await kt.run(team, "go", plan=plan, runtime=runtime)
    [ready] = [one for one in recorder.events if isinstance(one, kt.events.PlanReady)]
    assert ready.graph[0].description == "x" * 1_990 + " [secret] "[:10]
