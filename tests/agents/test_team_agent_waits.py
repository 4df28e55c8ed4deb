"""A team inside a team that waits for a person: the outer run waits with it, and goes on with it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import Misuse
from kairo_team.testing import ScriptedAgent
from tests.human import APPROVE, ONCE, REJECT, AsksFirst, Gate, LeavesOpen, Office, statuses

pytestmark = pytest.mark.anyio

BOARD = TaskDispatchCoordinator(failure_policy=ONCE)


class Worker:
    """Spends 10 tokens on each task it does."""

    reentrant = True

    def __init__(self) -> None:
        self.did: list[str] = []

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        with context.governor.reserve(tokens=10) as hold:
            hold.settle(prompt_tokens=10)
        self.did.append(assignment.task.id)
        await anyio.sleep(1)
        return f"{assignment.task.id} done"


INNER = kt.TaskGraph([kt.Task("first", "do"), kt.Task("asked", "do", depends_on=["first"]), kt.Task("free", "do")])
OUTER = [kt.Task("desk", "Have it done.", member="desk"), kt.Task("beside", "do", member="other")]
AFTER = [*OUTER, kt.Task("after", "do", member="other", depends_on=["desk"])]


def nested(worker: Any, *asked: str, depth: int = 1) -> TeamAgent:
    coordinator = ExpertTeamCoordinator(evaluator=LeavesOpen(*asked), failure_policy=ONCE)
    agent = TeamAgent(kt.Team("inner", [kt.Member("worker", worker)]), coordinator=coordinator, plan=INNER)
    for _ in range(depth - 1):
        agent = TeamAgent(kt.Team("between", [kt.Member("desk", agent)]), coordinator=BOARD)
    return agent


def office(*asked: str, depth: int = 1, gate: Any = None, **options: Any) -> tuple[Office, Worker]:
    worker = Worker()
    desk = kt.Member("desk", nested(worker, *asked, depth=depth), budget=options.pop("own", None))
    return Office({"desk": desk, "other": worker}, gate=gate or kt.DeferGate(), **options), worker


def inner_id(desk: Office) -> str:
    return next(event.run_id for event in desk.recorder.events if event.run_id != "r")


async def test_the_inner_runs_id_tells_its_outer_run_and_task() -> None:
    desk, _ = office()
    await desk.run(AFTER)
    outer, task, digest = inner_id(desk).split(".")
    assert (outer, task, len(digest)) == ("r", "desk", 8)
    assert int(digest, 16) >= 0


async def test_two_inner_runs_of_one_attempt_and_of_two_have_ids_of_their_own() -> None:
    inner = TeamAgent(kt.Team("inner", [kt.Member("w", ScriptedAgent(["text"] * 9))]), coordinator=BOARD)

    async def twice(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await inner.run(assignment, context)
        await inner.run(assignment, context)
        if assignment.attempt == 1 and not failed:
            failed.append(1)
            raise OSError("again")
        return "text"

    failed: list[int] = []
    desk = Office({"m": twice}, failure_policy=FailurePolicy(retries=1, backoff=0.0))
    assert (await desk.run([kt.Task("t", "do")])).status is kt.TeamStatus.COMPLETED
    assert len({event.run_id for event in desk.recorder.events}) == 5


@pytest.mark.parametrize("depth", [1, 3])
async def test_a_team_that_waits_suspends_the_team_around_it_and_both_go_on(depth: int) -> None:
    desk, worker = office("asked", depth=depth)
    first = await desk.run(AFTER)
    assert (first.status, statuses(first)) == (
        kt.TeamStatus.SUSPENDED, {"desk": "suspended", "beside": "completed", "after": "pending"}
    )  # fmt: skip
    (question,) = desk.runtime.pending("r")
    assert question.subject == "asked done"
    assert question.run_id.startswith("r.desk.")
    assert len(desk.runtime.runs) == depth + 1
    before = sorted(worker.did)
    assert before == ["asked", "beside", "first", "free"]
    desk.answer(APPROVE)
    second = await desk.resume()
    assert set(statuses(second).values()) == {"completed"}
    assert sorted(worker.did) == sorted([*before, "after"])
    assert (second.usage.tokens, second.usage.loops) == (50, 5)
    assert second["desk"].usage.tokens == 30
    assert len(desk.runtime.runs) == 0
    desk.recorder.assert_lawful()


async def test_what_is_rejected_inside_fails_the_task_around_it() -> None:
    desk, _ = office("asked")
    await desk.run(AFTER)
    desk.answer(REJECT)
    result = await desk.resume()
    assert statuses(result) == {"desk": "failed", "beside": "completed", "after": "skipped"}
    assert "not like this" in str(result["desk"].error)
    assert len(desk.runtime.runs) == 0


async def test_without_an_answer_it_waits_on_and_costs_nothing() -> None:
    desk, worker = office("asked")
    first = await desk.run(AFTER)
    again = await desk.resume()
    assert (again.status, again.usage.tokens, again.usage.loops) == (
        kt.TeamStatus.SUSPENDED, first.usage.tokens, first.usage.loops
    )  # fmt: skip
    assert len(worker.did) == 4
    assert len(desk.runtime.pending("r")) == 1


async def test_several_questions_inside_are_answered_one_by_one() -> None:
    desk, worker = office("asked", "free")
    await desk.run(OUTER)
    assert len(desk.runtime.pending("r")) == 2
    desk.runtime.answer(desk.runtime.pending("r")[-1].id, APPROVE)
    assert (await desk.resume()).status is kt.TeamStatus.SUSPENDED
    desk.answer(APPROVE)
    result = await desk.resume()
    assert set(statuses(result).values()) == {"completed"}
    assert sorted(worker.did) == ["asked", "beside", "first", "free"]
    assert (result.usage.tokens, result.usage.loops) == (40, 4)


@pytest.mark.parametrize("limit", [kt.Budget(tokens=30), kt.Budget(loops=3)], ids=str)
async def test_what_was_spent_inside_counts_over_sessions(limit: kt.Budget) -> None:
    """30 tokens and three loops are spent before the answer; nothing is left for the task after it."""
    desk, worker = office("asked")
    plan = [OUTER[0], kt.Task("after", "do", member="other", depends_on=["desk"])]
    first = await desk.run(plan, budget=limit)
    assert first.status in (kt.TeamStatus.SUSPENDED, kt.TeamStatus.FAILED)
    if first.status is kt.TeamStatus.SUSPENDED:
        desk.answer(APPROVE)
        result = await desk.resume()
        assert statuses(result)["after"] != "completed"
        assert result.usage.tokens <= 30
        assert result.usage.loops <= 3
    assert "after" not in worker.did


async def test_a_tool_question_inside_waits_too() -> None:
    paid: list[int] = []

    @kt.tool(side_effect="write")
    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return f"paid {amount}"

    async def buyer(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(pay).call({"amount": 5})).text

    permissions = kt.ToolPermissions(guard=AsksFirst("pay"))
    inner = kt.Team("inner", [kt.Member("buyer", buyer)], permissions=permissions)
    desk = Office({"desk": TeamAgent(inner, coordinator=BOARD)}, gate=kt.DeferGate())
    assert (await desk.run([kt.Task("t", "do")])).status is kt.TeamStatus.SUSPENDED
    desk.answer(APPROVE)
    result = await desk.resume()
    assert (result.status, result.output, paid) == (kt.TeamStatus.COMPLETED, "paid 5", [5])


async def test_the_outer_coordinators_gate_is_asked_by_the_team_inside() -> None:
    desk, _ = office("asked", gate=Gate())
    desk.coordinator = ExpertTeamCoordinator(failure_policy=ONCE, gate=(gate := Gate(APPROVE)))
    result = await desk.run(OUTER)
    assert set(statuses(result).values()) == {"completed"}
    assert gate.asked[0].subject == "asked done"


async def test_the_run_inside_is_resumed_by_the_one_around_it_alone() -> None:
    desk, _ = office("asked")
    await desk.run(OUTER)
    inner = inner_id(desk)
    with pytest.raises(Misuse, match=f"run {inner!r} is part of run 'r': resume that one"):
        await desk.runtime.resume(inner, kt.Team("inner", [kt.Member("worker", Worker())]))
    desk.answer(APPROVE)
    assert set(statuses(await desk.resume()).values()) == {"completed"}


async def test_who_gives_up_the_outer_run_gives_up_what_waits_inside() -> None:
    desk, _ = office("asked", depth=3)
    await desk.run(OUTER)
    desk.runtime.runs["r"].cancel()
    assert (len(desk.runtime.runs), desk.runtime.pending()) == (0, ())
    with pytest.raises(kt.RunFinished):
        desk.runtime.pending(inner_id(desk))


async def test_an_outer_deadline_gives_up_what_waits_inside() -> None:
    desk, _ = office("asked")
    plan = [*OUTER, kt.Task("beside-2", "do", member="other", depends_on=["beside"])]
    plan += [kt.Task("beside-3", "do", member="other", depends_on=["beside-2"])]
    result = await desk.run(plan, budget=kt.Budget(seconds=2.5))
    assert (result.status, statuses(result)["desk"]) == (kt.TeamStatus.TIMEOUT, "cancelled")
    assert (len(desk.runtime.runs), desk.runtime.pending()) == (0, ())


async def test_an_inner_run_given_up_by_itself_is_a_failed_attempt() -> None:
    desk, _ = office("asked")
    await desk.run(OUTER)
    desk.runtime.runs[inner_id(desk)].cancel()
    assert desk.runtime.pending("r") == ()
    result = await desk.resume()
    assert statuses(result)["desk"] == "failed"
    assert "exists already" in str(result["desk"].error)


async def test_alone_a_team_that_waits_is_one_that_did_not_complete() -> None:
    coordinator = ExpertTeamCoordinator(evaluator=LeavesOpen("asked"), failure_policy=ONCE, gate=kt.DeferGate())
    agent = TeamAgent(kt.Team("inner", [kt.Member("worker", Worker())]), coordinator=coordinator, plan=INNER)
    with pytest.raises(kt.TeamFailed, match="suspended"):
        await agent.run("Do it.")
