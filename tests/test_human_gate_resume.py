"""Runs that wait for a person: suspended, answered in any order, resumed without doing anything twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.errors import Misuse, NoQuestion, PlanMismatch
from kairo_team.testing import FunctionModel
from tests.human import APPROVE, DEFER, ONCE, REJECT, REVISE, AsksFirst, Gate, LeavesOpen, Office, statuses

pytestmark = pytest.mark.anyio

DIAMOND = [
    kt.Task("a", "do"),
    kt.Task("asked", "do", depends_on=["a"]),
    kt.Task("other", "do", depends_on=["a"]),
    kt.Task("last", "do", depends_on=["other"]),
    kt.Task("after", "do", depends_on=["asked"]),
]


class Clerk:
    """Writes `<task> <n>` and keeps what it did."""

    reentrant = True

    def __init__(self) -> None:
        self.did: list[str] = []

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        self.did.append(assignment.task.id)
        context.governor.record_usage(prompt_tokens=10)
        await anyio.sleep(1)
        return f"{assignment.task.id} {assignment.attempt}"


def office(*asked: str, gate: Any = None, **options: Any) -> tuple[Office, Clerk]:
    clerk = Clerk()
    gate = gate or kt.DeferGate()
    return Office({"m": options.pop("member", clerk)}, gate=gate, evaluator=LeavesOpen(*asked), **options), clerk


# ---------------------------------------------------------------- suspended


async def test_kf_g13_only_dependents_wait_and_finished_work_is_not_repeated() -> None:
    """G13: a human pause parked unrelated branches, or ran the code before it again."""
    desk, clerk = office("asked")
    first = await desk.run(DIAMOND)
    assert first.status is kt.TeamStatus.SUSPENDED
    assert statuses(first) == {
        "a": "completed", "asked": "suspended", "other": "completed", "last": "completed", "after": "pending"
    }  # fmt: skip
    assert "task 'asked' waits for a person: Is the work of 'm' on 'asked' good enough?" in str(first.error)
    assert first["asked"].artifact == kt.Artifact("asked 1")
    before = list(clerk.did)
    desk.answer(APPROVE)
    second = await desk.resume()
    assert (second.status, set(statuses(second).values())) == (kt.TeamStatus.COMPLETED, {"completed"})
    assert clerk.did == [*before, "after"]
    assert second.output == "last:\nlast 1\n\nafter:\nafter 1"


async def test_dependents_have_no_event_and_the_suspended_task_has_its_own_last() -> None:
    desk, _ = office("asked")
    await desk.run(DIAMOND)
    recorder = desk.recorder
    assert [event for event in recorder.events if getattr(event, "task_id", None) == "after"] == []
    assert [event.task_id for event in recorder.of(events.TaskSuspended)] == ["asked"]
    assert recorder.types[-2:] == ["task.suspended", "team.suspended"]


async def test_what_a_waiting_task_had_set_aside_serves_the_others() -> None:
    """Two tasks share 100 tokens: the second may use what the suspended first one gives back."""
    left: dict[str, int | None] = {}

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        left[assignment.task.id] = context.remaining.tokens
        context.governor.record_usage(prompt_tokens=10)
        return "text"

    desk, _ = office("one", member=work)
    plan = [kt.Task("one", "do", budget=kt.Budget(tokens=90)), kt.Task("two", "do", budget=kt.Budget(tokens=90))]
    result = await desk.run(plan, budget=kt.Budget(tokens=100), max_parallel_tasks=1)
    assert statuses(result) == {"one": "suspended", "two": "completed"}
    assert left["two"] == 90


async def test_the_events_go_on_without_a_gap_over_sessions() -> None:
    desk, _ = office("asked")
    await desk.run(DIAMOND)
    desk.answer(APPROVE)
    await desk.resume()
    seqs = [event.seq for event in desk.recorder.events]
    assert seqs == list(range(1, len(seqs) + 1))
    teams = [event.type for event in desk.recorder.events if event.type.startswith("team.")]
    assert teams == ["team.started", "team.suspended", "team.resumed", "team.completed"]


async def test_a_live_runs_handle_shows_both_sessions() -> None:
    desk, _ = office("asked")
    request = kt.TeamExecutionRequest("Do it.", plan=kt.TaskGraph(DIAMOND), run_id="r")
    async with desk.runtime as runtime:
        run = await runtime.start(desk.team, request, coordinator=desk.coordinator)
        first = [event.seq async for event in run.events()]
        assert (await run.result()).status is kt.TeamStatus.SUSPENDED
        assert repr(run) == "<Run 'r' suspended>"
        assert runtime.runs["r"] is run
        desk.answer(APPROVE)
        await desk.resume()
        later = [event.seq async for event in run.events(after=first[-1])]
        assert [*first, *later] == list(range(1, later[-1] + 1))
        assert (await run.result()).status is kt.TeamStatus.COMPLETED
        assert "r" not in runtime.runs


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_answers_come_in_any_order(order: tuple[int, ...]) -> None:
    desk, clerk = office("x", "y", "z")
    await desk.run([kt.Task(name, "do") for name in "xyz"])
    waiting = sorted(desk.runtime.pending("r"), key=lambda one: str(one.task_id))
    assert [one.task_id for one in waiting] == ["x", "y", "z"]
    for place in order:
        desk.runtime.answer(waiting[place].id, REJECT if waiting[place].task_id == "y" else APPROVE)
    result = await desk.resume(team=desk.team)
    assert statuses(result) == {"x": "completed", "y": "failed", "z": "completed"}
    assert sorted(clerk.did) == ["x", "y", "z"]


async def test_some_answers_suspend_it_again_with_the_others_open() -> None:
    desk, clerk = office("x", "y")
    await desk.run([kt.Task("x", "do"), kt.Task("y", "do"), kt.Task("then", "do", depends_on=["x"])])
    x, y = sorted(desk.runtime.pending(), key=lambda one: str(one.task_id))
    desk.runtime.answer(x.id, APPROVE)
    assert desk.runtime.pending("r") == (y,)
    again = await desk.resume()
    assert (again.status, statuses(again)) == (
        kt.TeamStatus.SUSPENDED, {"x": "completed", "y": "suspended", "then": "completed"}
    )  # fmt: skip
    assert desk.runtime.pending("r") == (y,)
    assert (await desk.resume()).status is kt.TeamStatus.SUSPENDED, "nothing was answered"
    desk.answer(APPROVE)
    assert (await desk.resume()).status is kt.TeamStatus.COMPLETED
    assert sorted(clerk.did) == ["then", "x", "y"]


async def test_the_same_answer_twice_is_one_and_another_one_is_refused() -> None:
    desk, _ = office("x")
    await desk.run([kt.Task("x", "do")])
    (question,) = desk.runtime.pending("r")
    desk.runtime.answer(question.id, APPROVE)
    desk.runtime.answer(question.id, kt.HumanDecision.approve())
    with pytest.raises(Misuse, match="was answered already: approve"):
        desk.runtime.answer(question.id, REJECT)
    assert (await desk.resume()).output == "x 1"


async def test_answers_to_nothing_and_nonsense_are_refused() -> None:
    desk, _ = office("x")
    with pytest.raises(NoQuestion, match="no open question 'q' in this runtime; open now: none"):
        desk.runtime.answer("q", APPROVE)
    await desk.run([kt.Task("x", "do")])
    (question,) = desk.runtime.pending("r")
    with pytest.raises(NoQuestion, match="open now: 'r:human:1:x:1:review'"):
        desk.runtime.answer("r", APPROVE)
    for wrong in (True, None, "approve"):
        with pytest.raises(ValueError, match="an answer is a HumanDecision"):
            desk.runtime.answer(question.id, wrong)  # type: ignore[arg-type]  # the mistake is the point
    assert desk.runtime.pending("r") == (question,)


async def test_a_deferred_question_moves_behind_the_others_and_stays_open() -> None:
    desk, _ = office("x", "y")
    await desk.run([kt.Task("x", "do"), kt.Task("y", "do")])
    x, y = desk.runtime.pending("r")
    desk.runtime.answer(x.id, DEFER)
    assert desk.runtime.pending("r") == (y, x)
    desk.runtime.answer(x.id, APPROVE)
    with pytest.raises(Misuse, match="was answered already: approve"):
        desk.runtime.answer(x.id, DEFER)
    assert desk.runtime.pending("r") == (y,)


async def test_an_answer_to_a_run_that_has_ended_is_refused() -> None:
    desk, _ = office("x")
    await desk.run([kt.Task("x", "do")])
    (question,) = desk.runtime.pending("r")
    desk.runtime.answer(question.id, APPROVE)
    await desk.resume()
    with pytest.raises(NoQuestion):
        desk.runtime.answer(question.id, APPROVE)
    with pytest.raises(kt.RunFinished):
        desk.runtime.pending("r")
    with pytest.raises(kt.RunNotFound):
        desk.runtime.pending("s")


async def test_an_answer_is_void_when_what_it_was_about_has_changed() -> None:
    """It is bound to the digest of the subject, and asked again."""
    subjects = iter(["pay 10", "pay 1000", "pay 1000"])
    decided: list[Any] = []

    class Asks:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            async with kt.TeamRun.open(request, team) as run:
                graph = await run.plan(lambda: kt.TaskGraph([kt.Task("t", "do")]))
                async for task in run.ready(graph):
                    run.go(self.one, run, task)
            return run.result

        async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
            attempt = await run.attempt(task, 1)
            decided.append(await run.ask(kt.HumanRequest("review", "may it?", next(subjects), "t", attempt=1)))
            run.accept(task, attempt)

    desk, _ = office()
    asks: Any = Asks()
    desk.coordinator = asks
    await desk.run()
    desk.answer(APPROVE)
    assert (await desk.resume()).status is kt.TeamStatus.SUSPENDED
    assert decided == []
    (again,) = desk.runtime.pending("r")
    assert again.subject == "pay 1000"
    desk.answer(REJECT)
    await desk.resume()
    assert decided == [REJECT]


async def test_a_resumed_run_asks_the_gate_it_has_then() -> None:
    """What nobody answered meanwhile is asked again; it is not silence."""
    desk, _ = office("x", gate=Gate(DEFER, APPROVE))
    await desk.run([kt.Task("x", "do")])
    assert (await desk.resume()).output == "x 1"


async def test_a_revision_wanted_later_is_one_more_attempt() -> None:
    desk, clerk = office("x")
    await desk.run([kt.Task("x", "do")])
    desk.answer(REVISE)
    again = await desk.resume()
    assert (again.status, clerk.did, again["x"].attempts) == (kt.TeamStatus.SUSPENDED, ["x", "x"], 2)
    (question,) = desk.runtime.pending("r")
    assert (question.subject, question.attempt) == ("x 2", 2)
    desk.answer(APPROVE)
    assert (await desk.resume()).output == "x 2"


# ---------------------------------------------------------------- resume


async def test_kf_g14_it_is_resumed_with_what_it_was_begun_with() -> None:
    desk, _ = office("x")
    await desk.run([kt.Task("x", "do")])
    other = kt.Team("office", [kt.Member("m", Clerk()), kt.Member("n", Clerk())])
    with pytest.raises(PlanMismatch, match="its set of members changed from") as raised:
        await desk.runtime.resume("r", other, coordinator=desk.coordinator)
    assert raised.value.field == "set of members"
    desk.answer(APPROVE)
    assert (await desk.resume()).output == "x 1", "the refusal changed nothing"


async def test_what_does_not_wait_cannot_be_resumed() -> None:
    desk, _ = office()
    with pytest.raises(kt.RunNotFound):
        await desk.resume()
    refused: list[str] = []

    class Impatient:
        async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
            with pytest.raises(Misuse, match="run 'r' is running: there is nothing to resume"):
                await desk.runtime.resume("r", desk.team)
            assert desk.runtime.pending("r") == ()
            refused.append("r")
            return "text"

    desk.team = kt.Team("office", [kt.Member("m", Impatient())])
    assert (await desk.run([kt.Task("x", "do")])).status is kt.TeamStatus.COMPLETED
    assert refused == ["r"]
    with pytest.raises(kt.RunFinished):
        await desk.resume()


async def test_of_two_resumes_at_once_one_goes_on() -> None:
    desk, clerk = office("x")
    await desk.run([kt.Task("x", "do"), kt.Task("then", "do", depends_on=["x"])])
    desk.answer(APPROVE)
    ends: list[Any] = []

    async def resume() -> None:
        try:
            ends.append((await desk.runtime.resume("r", desk.team, coordinator=desk.coordinator)).status)
        except Misuse as error:
            ends.append(str(error))

    async with anyio.create_task_group() as group:
        group.start_soon(resume)
        group.start_soon(resume)
    assert ends == ["run 'r' is running: there is nothing to resume", kt.TeamStatus.COMPLETED]
    assert clerk.did == ["x", "then"]


async def test_a_run_that_is_being_resumed_is_no_run_that_has_ended() -> None:
    """Also before its coordinator has come to open it, and if it is killed just then."""

    class Slow(ExpertTeamCoordinator):
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            await anyio.sleep(5)
            return await super().execute(request, team)

    desk, clerk = office("x")
    await desk.run([kt.Task("x", "do"), kt.Task("then", "do", depends_on=["x"])])
    desk.answer(APPROVE)
    results: list[kt.TeamResult] = []

    async def resume() -> None:
        slow = Slow(evaluator=LeavesOpen("x"), failure_policy=ONCE)
        results.append(await desk.runtime.resume("r", desk.team, coordinator=slow))

    async with anyio.create_task_group() as group:
        group.start_soon(resume)
        await anyio.sleep(1)
        with pytest.raises(Misuse, match="is running: there is nothing to resume"):
            await desk.resume()
        desk.runtime.runs["r"].cancel("enough")
    assert (results[0].status, results[0].error) == (kt.TeamStatus.CANCELLED, "enough")
    assert clerk.did == ["x"]
    with pytest.raises(kt.RunFinished):
        desk.runtime.pending("r")


async def test_a_suspended_run_that_is_given_up_is_forgotten() -> None:
    desk, clerk = office("x")
    await desk.run([kt.Task("x", "do")])
    (question,) = desk.runtime.pending("r")
    run = desk.runtime.runs["r"]
    run.cancel("enough")
    assert (len(desk.runtime.runs), desk.runtime.pending()) == (0, ())
    with pytest.raises(kt.RunFinished):
        _ = desk.runtime.runs["r"]
    with pytest.raises(kt.RunFinished):
        run.cancel()
    with pytest.raises(kt.RunFinished):
        await desk.resume()
    with pytest.raises(NoQuestion):
        desk.runtime.answer(question.id, APPROVE)
    assert clerk.did == ["x"]


async def test_a_suspended_run_cannot_be_begun_again() -> None:
    desk, _ = office("x")
    await desk.run([kt.Task("x", "do")])
    with pytest.raises(kt.RunExists):
        await desk.run([kt.Task("x", "do")])
    desk.answer(APPROVE)
    assert (await desk.resume()).output == "x 1"


async def test_a_suspended_run_can_neither_be_steered_nor_topped_up() -> None:
    desk, _ = office("x")
    await desk.run([kt.Task("x", "do")])
    run = desk.runtime.runs["r"]
    with pytest.raises(kt.RunFinished):
        run.steer("shorter")
    with pytest.raises(kt.RunFinished):
        run.top_up(kt.Budget(tokens=1))
    with pytest.raises(kt.RunFinished):
        run.cancel_task("x")


async def test_a_resume_whose_coordinator_cannot_begin_leaves_it_suspended() -> None:
    class Broken:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            raise OSError("no coordinator")

    desk, _ = office("x")
    await desk.run([kt.Task("x", "do")])
    with pytest.raises(OSError, match="no coordinator"):
        await desk.resume(coordinator=Broken())
    desk.answer(APPROVE)
    assert (await desk.resume()).output == "x 1"


async def test_a_suspended_run_leaves_no_trace_in_another() -> None:
    desk, _ = office("x")
    await desk.run([kt.Task("x", "do")])
    other = replace(desk.team, runtime=desk.runtime)
    request = kt.TeamExecutionRequest("Another.", plan=kt.TaskGraph([kt.Task("free", "do")]), run_id="s")
    result = await desk.coordinator.execute(request, other)
    assert (result.status, statuses(result)) == (kt.TeamStatus.COMPLETED, {"free": "completed"})
    assert [one.run_id for one in desk.runtime.pending()] == ["r"]


# ---------------------------------------------------------------- tools that wait


class Buyer:
    """Asks a model, looks, asks to pay, and asks a model again."""

    def __init__(self) -> None:
        self.looked = 0
        self.paid: list[int] = []

    @kt.tool(side_effect="read")
    async def look(self) -> str:
        """Look for the price."""
        self.looked += 1
        return "5"

    @kt.tool(side_effect="write")
    async def pay(self, amount: int) -> str:
        """Pay an amount."""
        self.paid.append(amount)
        return f"paid {amount}"

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        model = context.model("test:m")
        await model.complete(kt.ModelRequest([kt.Message.user("what is wanted?")]))
        price = await context.tool(self.look).call({})
        result = await context.tool(self.pay).call({"amount": int(price.text)})
        reply = await model.complete(kt.ModelRequest([kt.Message.user(result.text)]))
        return f"{result.text}: {reply.text}"


def market(*decisions: kt.HumanDecision) -> tuple[Office, Buyer, FunctionModel]:
    buyer, model = Buyer(), FunctionModel(lambda _: "fine words")
    gate = Gate(*decisions) if decisions else kt.DeferGate()
    desk = Office({"m": buyer}, gate=gate, guard=AsksFirst("pay"), runtime={"models": {"test:m": model}})
    return desk, buyer, model


async def test_a_tool_call_that_is_put_off_is_made_after_the_answer_and_nothing_before_it_again() -> None:
    desk, buyer, model = market()
    plan = [kt.Task("buy", "do"), kt.Task("thank", "do", depends_on=["buy"])]
    first = await desk.run([plan[0]])
    assert (first.status, statuses(first)) == (kt.TeamStatus.SUSPENDED, {"buy": "suspended"})
    assert (buyer.looked, buyer.paid, len(model.calls)) == (1, [], 1)
    (question,) = desk.runtime.pending("r")
    assert (question.kind, question.subject) == ("tool", "pay(amount=5)")
    desk.answer(APPROVE)
    second = await desk.resume()
    assert (second.status, second.output) == (kt.TeamStatus.COMPLETED, "paid 5: fine words")
    assert (buyer.looked, buyer.paid, len(model.calls)) == (1, [5], 2)
    assert second.usage.tokens == sum(reply_tokens(call) for call in model.calls)
    assert (second.usage.tool_calls, second.usage.loops) == (2, 1)
    assert second["buy"].usage.tokens == second.usage.tokens


def reply_tokens(request: kt.ModelRequest) -> int:
    return len(request.messages[0].text.split()) + 2


@pytest.mark.parametrize(
    ("decision", "read"), [(REJECT, "a human refused it: not like this"), (REVISE, "a human refused it: shorter")]
)
async def test_a_tool_call_refused_later_is_a_refusal_the_member_reads(decision: kt.HumanDecision, read: str) -> None:
    desk, buyer, _ = market()
    await desk.run([kt.Task("buy", "do")])
    desk.answer(decision)
    result = await desk.resume()
    assert (result.output, buyer.paid, buyer.looked) == (f"{read}: fine words", [], 1)


async def test_a_tool_call_nobody_answered_stays_put_off_and_costs_nothing_more() -> None:
    desk, buyer, model = market()
    first = await desk.run([kt.Task("buy", "do")])
    again = await desk.resume()
    assert (again.status, buyer.paid, len(model.calls)) == (kt.TeamStatus.SUSPENDED, [], 1)
    assert again.usage.tokens == first.usage.tokens
    assert len(desk.runtime.pending("r")) == 1


async def test_two_tool_calls_at_once_may_both_wait() -> None:
    till = Buyer()

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        results: dict[int, str] = {}

        async def pay(amount: int) -> None:
            results[amount] = (await context.tool(till.pay).call({"amount": amount})).text

        async with anyio.create_task_group() as group:
            for amount in (1, 2):
                group.start_soon(pay, amount)
        return "; ".join(results[amount] for amount in (1, 2))

    desk = Office({"m": work}, gate=kt.DeferGate(), guard=AsksFirst("pay"))
    result = await desk.run([kt.Task("buy", "do")])
    for _ in range(3):
        if result.status is not kt.TeamStatus.SUSPENDED:
            break
        desk.answer(*[APPROVE for _ in desk.runtime.pending("r")])
        result = await desk.resume()
    assert (result.output, sorted(till.paid)) == ("paid 1; paid 2", [1, 2])


# ---------------------------------------------------------------- what was answered is not asked again


class Paid:
    """A model that counts what it is asked, also the same thing twice."""

    name = "test:m"

    def __init__(self, *replies: kt.ModelResponse) -> None:
        self.asked: list[kt.ModelRequest] = []
        self._replies = list(replies)

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.asked.append(request)
        await anyio.sleep(7)
        return self._replies[len(self.asked) - 1]


def calls(name: str, arguments: str = "{}") -> kt.ModelResponse:
    return kt.ModelResponse("", (kt.ToolCall("1", name, arguments),), kt.Usage(300, 30))


async def test_audit_g05_an_attempt_that_waited_in_its_middle_pays_each_of_its_turns_once() -> None:
    """What is left of budget and time is told in every turn, and is another in another session."""
    buyer = Buyer()
    model = Paid(calls("look"), calls("pay", '{"amount": 5}'), kt.ModelResponse("bought", usage=kt.Usage(10, 10)))
    desk = Office(
        {"m": kt.MiniAgent("test:m", tools=[buyer.look, buyer.pay])},
        gate=kt.DeferGate(),
        guard=AsksFirst("pay"),
        runtime={"models": {"test:m": model}},
    )
    first = await desk.run([kt.Task("buy", "do")], budget=kt.Budget(tokens=50_000, seconds=1_000))
    assert (first.status, len(model.asked)) == (kt.TeamStatus.SUSPENDED, 2)
    await anyio.sleep(50)
    desk.answer(APPROVE)
    second = await desk.resume()
    assert (second.status, second.output) == (kt.TeamStatus.COMPLETED, "bought")
    assert (len(model.asked), buyer.looked, buyer.paid) == (3, 1, [5])
    assert "Left for this task: 10 turns" in next(one.text for one in model.asked[0].messages if one.aside)
    assert second.usage.tokens == 2 * 330 + 20
