"""What comes into a run from outside while it works: cancelled tasks, directives, more budget."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.errors import Misuse
from kairo_team.testing import EventRecorder, FunctionModel
from tests.human import AsksFirst

POLICY = FailurePolicy(retries=3, backoff=10.0, backoff_max=10.0, abort_team=True)
WANTED = "no longer wanted"


class Replay(kt.Runtime):
    """A runtime whose runs all record into one journal."""

    def __init__(self, journal: MemoryRecords, **fields: Any) -> None:
        super().__init__(**fields)
        self.journal = journal

    def journal_for(self, run_id: str) -> MemoryRecords:
        return self.journal


class Nobody:
    """Whoever is called in a replay is one too many."""

    async def run(self, *_: Any) -> str:
        raise AssertionError("called in a replay")

    evaluate = plan = decide = run


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Do what the task's description says."""
    what = assignment.task.description
    context.keep("half of it")
    if what == "fail":
        raise OSError("no way")
    if what == "spend":
        context.governor.record_usage(prompt_tokens=context.remaining.tokens or 0)
        context.governor.pre_step()
    await anyio.sleep(5 if what == "do" else 1 if what == "quick" else 100)
    return f"{assignment.task.id} is done"


class Slow:
    """An evaluator that takes its time, and then sends everything back."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        await anyio.sleep(20)
        return kt.EvaluationVerdict.revise("again", findings=[kt.Finding("f", expected="better")])


class Silent:
    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        await anyio.sleep_forever()
        raise AssertionError


class Unsure:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.LOW_CONFIDENCE, "who knows")


class Replanner:
    async def plan(self, request: Any, team: Any, context: Any) -> kt.TaskGraph:
        raise AssertionError("a cancelled task was replanned")


def graph(*tasks: kt.Task) -> kt.TaskGraph:
    return kt.TaskGraph(list(tasks))


def request(plan: kt.TaskGraph, **config: Any) -> kt.TeamExecutionRequest:
    config = {"task_timeout": None, "review_timeout": None, **config}
    return kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config), run_id="r")


class Scene:
    """One run that something is done to, and its replay, in which nobody is called."""

    def __init__(self, coordinator: Any, *, agent: Any = work, members: int = 1, **member: Any) -> None:
        self.coordinator = coordinator
        self.recorder = EventRecorder()
        self.journal = MemoryRecords()
        self._members = [(f"m{number}", agent, member) for number in range(members)]

    def team(self, agent: Any = None) -> kt.Team:
        return kt.Team("team", [kt.Member(name, agent or given, **more) for name, given, more in self._members])

    async def play(
        self, request: kt.TeamExecutionRequest, do: Callable[[kt.Run], object], at: float = 3.0
    ) -> kt.TeamResult:
        async with Replay(self.journal, subscribers=[self.recorder]) as runtime:
            run = await runtime.start(self.team(), request, coordinator=self.coordinator)
            await anyio.sleep(at)
            do(run)
            result = await run.result()
        self.recorder.assert_lawful()
        assert anyio.current_time() < 1_000, "nobody waits for what was cancelled"
        await self.check_replay(request, result)
        return result

    async def check_replay(self, request: kt.TeamExecutionRequest, result: kt.TeamResult) -> None:
        runtime = Replay(MemoryRecords(dict(self.journal.records)))
        team = replace(self.team(Nobody()), runtime=runtime)
        with anyio.fail_after(1_000):
            again = await self.coordinator.execute(request, team)
        assert [(o.task_id, o.status, o.error, o.artifact) for o in again.outcomes] == [
            (o.task_id, o.status, o.error, o.artifact) for o in result.outcomes
        ]
        assert again.status is result.status


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.001)


def cancelling(task_id: str) -> Callable[[kt.Run], object]:
    return lambda run: run.cancel_task(task_id, WANTED)


def board(**policy: Any) -> TaskDispatchCoordinator:
    return TaskDispatchCoordinator(failure_policy=replace(POLICY, **policy))


def statuses(result: kt.TeamResult) -> dict[str, str]:
    return {outcome.task_id: outcome.status.value for outcome in result.outcomes}


# ---------------------------------------------------------------- cancel_task


async def test_a_task_that_never_started_is_skipped_and_its_dependents_with_it() -> None:
    scene = Scene(board(abort_team=False))
    plan = graph(
        kt.Task("first", "do"),
        kt.Task("second", "do", depends_on=["first"]),
        kt.Task("third", "do", depends_on=["second"]),
        kt.Task("aside", "do", depends_on=["first"]),
    )
    result = await scene.play(request(plan), cancelling("second"))
    assert statuses(result) == {"first": "completed", "second": "skipped", "third": "skipped", "aside": "completed"}
    assert [result[name].error for name in ("second", "third")] == [WANTED, "it needs 'second', which was not accepted"]
    assert next((one.task_id, one.reason) for one in scene.recorder.of(events.TaskSkipped)) == ("second", WANTED)
    assert result["second"].attempts == 0


async def test_a_task_in_flight_is_cancelled_with_what_it_kept_and_the_others_go_on() -> None:
    scene = Scene(board())
    plan = graph(kt.Task("one", "do"), kt.Task("other", "do"), kt.Task("after", "do", depends_on=["one"]))
    result = await scene.play(request(plan), cancelling("one"))
    assert statuses(result) == {"one": "cancelled", "other": "completed", "after": "skipped"}
    assert result["one"].artifact == kt.Artifact("half of it", partial=True)
    assert (result["one"].error, result["one"].attempts) == (WANTED, 1)
    assert result.status is kt.TeamStatus.DEGRADED, "abort_team is for tasks that fail"
    (told,) = scene.recorder.of(events.TaskCancelled)
    assert (told.task_id, told.reason) == ("one", WANTED)


async def test_a_task_that_is_being_reviewed_is_cancelled_with_its_artifact() -> None:
    scene = Scene(ExpertTeamCoordinator(evaluator=Slow(), failure_policy=POLICY))
    result = await scene.play(request(graph(kt.Task("one", "do"))), cancelling("one"), at=7)
    assert statuses(result) == {"one": "cancelled"}
    assert result["one"].artifact == kt.Artifact("one is done")
    assert scene.recorder.of(events.EvaluationResult) == []


async def test_a_task_in_its_backoff_pause_is_cancelled_and_not_retried() -> None:
    calls: list[str] = []

    async def fail(assignment: kt.Assignment) -> str:
        calls.append(assignment.task.id)
        raise OSError("no way")

    scene = Scene(board(), agent=fail, members=2)
    result = await scene.play(request(graph(kt.Task("one", "do", role="m0"))), cancelling("one"), at=1)
    assert (statuses(result), calls) == ({"one": "cancelled"}, ["one"])


async def test_a_task_that_waits_for_a_lease_is_cancelled() -> None:
    """After its first attempt a task gives its lease back; to try again it waits for one."""
    scene = Scene(board(backoff=0.5), max_concurrency=1)
    plan = graph(kt.Task("one", "fail"), kt.Task("long", "stay"), kt.Task("next", "do"))
    result = await scene.play(request(plan), cancelling("one"), at=5)
    assert statuses(result) == {"one": "cancelled", "long": "completed", "next": "completed"}


async def test_a_ready_task_that_waits_for_a_slot_or_budget_is_skipped() -> None:
    for config in ({"max_parallel_tasks": 1}, {"budget": kt.Budget(tokens=100)}):
        scene = Scene(board())
        ceiling = kt.Budget(tokens=100)
        plan = graph(kt.Task("one", "do", budget=ceiling), kt.Task("other", "do", budget=ceiling))
        result = await scene.play(request(plan, **config), cancelling("other"))
        assert statuses(result)["one"] == "completed"
        assert statuses(result)["other"] in {"skipped", "cancelled"}
        assert result["other"].error == WANTED


async def test_a_task_that_waits_for_a_top_up_is_cancelled_and_not_handed_over() -> None:
    scene = Scene(board(), members=2)
    plan = graph(kt.Task("one", "spend", role="m0"), kt.Task("other", "stay", role="m1"))
    policy = kt.BudgetPolicy(reserve=0.0, top_ups=2)
    result = await scene.play(request(plan, budget=kt.Budget(tokens=100), budget_policy=policy), cancelling("one"))
    assert statuses(result)["one"] == "cancelled"
    assert result["one"].member == "m0"
    assert result["one"].error == WANTED


async def test_a_task_that_waits_for_a_person_is_cancelled() -> None:
    coordinator = ExpertTeamCoordinator(evaluator=Unsure(), gate=Silent(), failure_policy=POLICY)
    scene = Scene(coordinator)
    result = await scene.play(request(graph(kt.Task("one", "do"))), cancelling("one"), at=9)
    assert len(scene.recorder.of(events.HumanRequested)) == 1
    assert (statuses(result), result["one"].error) == ({"one": "cancelled"}, WANTED)
    assert result["one"].artifact == kt.Artifact("one is done")


async def test_a_cancelled_task_is_never_replanned() -> None:
    coordinator = ExpertTeamCoordinator(planner=Replanner(), replan=True, failure_policy=POLICY)
    scene = Scene(coordinator)
    result = await scene.play(
        request(graph(kt.Task("one", "do"), kt.Task("after", "do", depends_on=["one"]))), cancelling("one")
    )
    assert statuses(result) == {"one": "cancelled", "after": "skipped"}


async def test_an_agent_that_fails_over_its_cancellation_is_not_tried_again() -> None:
    calls: list[int] = []

    async def clumsy(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        calls.append(1)
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("cannot even stop")

    scene = Scene(board(backoff=0.1), agent=clumsy)
    result = await scene.play(request(graph(kt.Task("one", "do"))), cancelling("one"))
    assert (statuses(result), result["one"].error, len(calls)) == ({"one": "cancelled"}, WANTED, 1)
    assert result["one"].attempts == 1


async def test_an_agent_that_swallows_its_cancellation_does_not_keep_its_task() -> None:
    async def deaf(assignment: kt.Assignment) -> str:
        while True:
            try:
                await anyio.sleep_forever()
            except BaseException:  # noqa: BLE001, S112 - the mistake is the point
                continue

    scene = Scene(board(), agent=deaf)
    result = await scene.play(request(graph(kt.Task("one", "do")), cancel_grace=1.0), cancelling("one"))
    assert (statuses(result), result["one"].error) == ({"one": "cancelled"}, WANTED)


@pytest.mark.parametrize("at", ["plan.ready", "task.assigned", "attempt.started", "attempt.finished"])
async def test_a_subscriber_may_cancel_a_task_in_the_middle_of_things(at: str) -> None:
    """A plain subscriber is called in place, so also where the task waits for nothing."""
    scene = Scene(board())

    def cancel(event: events.Event) -> None:
        if event.type == at:
            runtime.runs["r"].cancel_task("one", WANTED)

    one = request(graph(kt.Task("one", "do")))
    async with Replay(scene.journal, subscribers=[scene.recorder, cancel]) as runtime:
        run = await runtime.start(scene.team(), one, coordinator=scene.coordinator)
        result = await run.result()
    scene.recorder.assert_lawful()
    assert statuses(result) == {"one": "skipped" if at == "plan.ready" else "cancelled"}
    await scene.check_replay(one, result)


async def test_what_cannot_be_cancelled_or_steered_says_why() -> None:
    async with kt.Runtime() as runtime:
        plan = graph(kt.Task("quick", "quick"), kt.Task("slow", "do"), kt.Task("after", "do", depends_on=["quick"]))
        run = await runtime.start(kt.Team("team", [kt.Member("m", work)]), request(plan))
        await anyio.sleep(2)
        changes: list[Callable[[str], object]] = [run.cancel_task, lambda name: run.steer("faster", name)]
        for change in changes:
            with pytest.raises(Misuse, match="no task 'nope' in this run's plan; it has 'after', 'quick', 'slow'"):
                change("nope")
            with pytest.raises(Misuse, match="task 'quick' is completed: it can no longer be steered or cancelled"):
                change("quick")
        run.cancel_task("slow")
        run.cancel_task("slow", "twice")
        result = await run.result()
        for change in changes:
            with pytest.raises(kt.RunFinished, match="run 'r' has ended already"):
                change("after")
        with pytest.raises(kt.RunFinished):
            runtime.runs["r"].steer("x")
        with pytest.raises(kt.RunNotFound, match="no run 'other' in this runtime, which has: none"):
            runtime.runs["other"].top_up(kt.Budget(tokens=1))
    assert result["slow"].error == "the task was cancelled"


@pytest.mark.real_time
async def test_a_task_whose_agent_is_in_a_thread_is_cancelled_too() -> None:
    began, let_go = threading.Event(), threading.Event()

    def deaf(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("half of it")
        began.set()
        let_go.wait(120)
        return "too late"

    async with kt.Runtime() as runtime:
        one = request(graph(kt.Task("one", "do")), cancel_grace=0.05)
        run = await runtime.start(kt.Team("team", [kt.Member("m", deaf)]), one)
        await until(began.is_set)
        run.cancel_task("one", WANTED)
        with anyio.fail_after(60):
            result = await run.result()
        let_go.set()
    assert (statuses(result), result["one"].error) == ({"one": "cancelled"}, WANTED)
    assert result["one"].artifact == kt.Artifact("half of it", partial=True)


# ---------------------------------------------------------------- steer


def told(model: FunctionModel) -> list[str]:
    """Everything that was said to the model, call by call."""
    return ["\n".join(message.text for message in call.messages) for call in model.calls]


async def slow_reply(call: kt.ModelRequest) -> kt.ModelResponse:
    """Take ten seconds; the first reply to each prompt is cut off, so there is another turn."""
    await anyio.sleep(10)
    cut = sum(message.role == "user" for message in call.messages) == 1
    return kt.ModelResponse("words", usage=kt.Usage(1, 1), finish_reason="length" if cut else "stop")


async def steered(*steps: tuple[float, Callable[[kt.Run], Any]]) -> tuple[FunctionModel, EventRecorder]:
    """Run two tasks, one after the other, and a third beside them, each two turns of ten seconds."""
    model, recorder = FunctionModel(slow_reply), EventRecorder()
    plan = graph(kt.Task("one", "ONE"), kt.Task("two", "TWO", depends_on=["one"]), kt.Task("side", "SIDE"))
    async with kt.Runtime(subscribers=[recorder]) as runtime:
        team = kt.Team("team", [kt.Member("m", kt.MiniAgent(model))])
        run = await runtime.start(team, request(plan))
        for seconds, do in steps:
            await anyio.sleep(seconds)
            made = do(run)
            if isinstance(made, Awaitable):
                await made
        assert (await run.result()).status is kt.TeamStatus.COMPLETED
    return model, recorder


async def test_running_members_see_a_directive_at_their_next_turn_and_later_prompts_have_it() -> None:
    model, recorder = await steered((5, lambda run: run.steer("Be brief.")))
    prompts = told(model)
    first, second = [text for text in prompts if "ONE" in text][:2]
    assert "Be brief." not in first
    assert second.endswith("New directives:\n- Be brief.")
    later = [text for text in prompts if "TWO" in text]
    assert [text.count("Be brief.") for text in later] == [1, 1], "once: it stands in the task's prompt"
    assert "if requests conflict, the last counts:\n- Be brief." in later[0]
    assert [text.count("Be brief.") for text in prompts if "SIDE" in text] == [0, 1]
    (event,) = recorder.of(events.TaskSteered)
    assert (event.task_id, event.member, event.directive) == (None, None, "Be brief.")


async def test_a_directive_for_one_task_is_not_told_to_others() -> None:
    model, recorder = await steered((5, lambda run: run.steer("Rhyme.", "two")), (1, lambda run: run.steer("x", "one")))
    assert ["Rhyme." in text for text in told(model)] == ["TWO" in text for text in told(model)]
    assert [event.task_id for event in recorder.of(events.TaskSteered)] == ["two", "one"]


async def test_directives_come_in_the_order_they_were_given() -> None:
    model, _ = await steered(
        (5, lambda run: run.steer("First.")), (1, lambda run: run.steer("Second.", "two")), (1, lambda r: r.steer("3."))
    )
    assert "counts:\n- First.\n- Second.\n- 3." in next(text for text in told(model) if "TWO" in text)
    assert told(model)[-1].count("First.") == 1


@pytest.mark.parametrize("directive", ["", "  \n", None, 5])
async def test_a_directive_is_a_text(directive: Any) -> None:
    async with kt.Runtime() as runtime:
        run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), request(graph(kt.Task("one", "quick"))))
        await anyio.sleep(0.5)
        with pytest.raises(ValueError, match="a directive is a text that is not blank, not"):
            run.steer(directive)


async def test_a_call_made_before_a_directive_is_not_paid_again_when_the_attempt_is_made_anew() -> None:
    """An attempt that waits for a person is made again once there is an answer: its first prompt is the old one."""

    @kt.tool(side_effect="write")
    async def pay() -> str:
        return "paid"

    def say(call: kt.ModelRequest) -> kt.ModelResponse:
        asks = len(model.calls) == 1
        if asks:
            runtime.runs["r"].steer("Be brief.")
        return kt.ModelResponse("x", [kt.ToolCall("c", "pay", {})] if asks else [], kt.Usage(5, 5))

    model, runtime = FunctionModel(say), kt.Runtime(gate=kt.DeferGate())
    permissions = kt.ToolPermissions(guard=AsksFirst("pay"))
    team = kt.Team("team", [kt.Member("m", kt.MiniAgent(model, tools=[pay]))], permissions=permissions)
    coordinator = ExpertTeamCoordinator()
    async with runtime:
        run = await runtime.start(team, request(graph(kt.Task("one", "ONE"))), coordinator=coordinator)
        assert (await run.result()).status is kt.TeamStatus.SUSPENDED
        runtime.answer(runtime.pending()[0].id, kt.HumanDecision.approve())
        result = await runtime.resume("r", team, coordinator=coordinator)
    assert (result.status, result.usage.tokens, len(model.calls)) == (kt.TeamStatus.COMPLETED, 20, 2)
    assert [text.count("Be brief.") for text in told(model)] == [0, 1]


async def test_kf_t16_nothing_of_one_run_leaks_into_the_next() -> None:
    """Directives, cancelled tasks and top-ups are the run's, not the team's or the coordinator's."""
    seen: list[tuple[str, ...]] = []

    async def look(assignment: kt.Assignment) -> str:
        await anyio.sleep(10)
        seen.append(tuple(assignment.directives))
        return "done"

    team = kt.Team("team", [kt.Member("m", look)])
    plan = graph(kt.Task("one", "do"), kt.Task("two", "do", depends_on=["one"]), kt.Task("gone", "do"))
    coordinator = board(abort_team=False)
    async with kt.Runtime() as runtime:
        results: list[kt.TeamResult] = []
        for run_id in ("a", "b"):
            config = kt.TeamConfig(budget=kt.Budget(tokens=100))
            one = kt.TeamExecutionRequest("goal", plan=plan, run_id=run_id, config=config)
            run = await runtime.start(team, one, coordinator=coordinator)
            await anyio.sleep(1)
            if run_id == "a":
                run.steer("Only here.")
                run.cancel_task("gone")
                run.top_up(kt.Budget(tokens=900))
            results.append(await run.result())
    assert seen == [(), ("Only here.",), (), (), ()]
    assert statuses(results[0])["gone"] == "cancelled"
    assert statuses(results[1])["gone"] == "completed"
    limits = [result.budget.budget.tokens for result in results if result.budget is not None]
    assert limits == [1000, 100]


@pytest.mark.real_time
async def test_everything_may_be_said_from_another_thread() -> None:
    """It is done by the event loop before the call returns, and what is wrong is raised in the caller's thread."""
    problems: list[BaseException] = []
    let_go = anyio.Event()

    async def wait(assignment: kt.Assignment) -> str:
        await let_go.wait()
        return " ".join(assignment.directives)

    plan = graph(kt.Task("one", "do"), kt.Task("two", "do", depends_on=["one"]), kt.Task("gone", "do"))
    recorder = EventRecorder()
    async with kt.Runtime(subscribers=[recorder]) as runtime:
        run = await runtime.start(kt.Team("t", [kt.Member("m", wait)]), request(plan, budget=kt.Budget(tokens=10)))

        def speak() -> None:
            run.steer("from afar")
            run.cancel_task("gone")
            run.top_up(kt.Budget(tokens=5))
            try:
                run.cancel_task("nope")
            except Misuse as error:
                problems.append(error)

        await until(lambda: "attempt.started" in recorder.types)
        await anyio.to_thread.run_sync(speak)
        await until(lambda: {"task.steered", "budget.topped_up", "task.cancelled"} <= set(recorder.types))
        let_go.set()
        result = await run.result()
    assert result["two"].artifact == kt.Artifact("from afar")
    assert [type(problem) for problem in problems] == [Misuse]
