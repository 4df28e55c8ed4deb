"""Runs that wait for a person: money and time over all their sessions, and how they can end before their time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.testing import FunctionModel
from tests.human import APPROVE, OPEN, REJECT, REVISE, LeavesOpen, Office, statuses

pytestmark = pytest.mark.anyio


class Spender:
    """Spends 10 tokens, a cent, a tool call and a second for each try, and keeps the tasks it did."""

    reentrant = True

    def __init__(self) -> None:
        self.did: list[str] = []

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        with context.governor.reserve(tokens=10, dollars="0.01", tool_calls=1) as hold:
            hold.settle(prompt_tokens=10, dollars="0.01", tool_calls=1)
        self.did.append(assignment.task.id)
        await anyio.sleep(1)
        return f"{assignment.task.id} {len(self.did)}"


def office(*asked: str, **options: Any) -> tuple[Office, Spender]:
    spender = Spender()
    member = kt.Member("m", spender, budget=options.pop("own", None))
    return Office({"m": member}, gate=kt.DeferGate(), evaluator=LeavesOpen(*asked), **options), spender


CHAIN = [kt.Task("one", "do"), kt.Task("two", "do", depends_on=["one"]), kt.Task("three", "do", depends_on=["two"])]
LIMITS = [
    kt.Budget(tokens=25),
    kt.Budget(dollars="0.025"),
    kt.Budget(loops=2),
    kt.Budget(tool_calls=2),
]


def within(usage: kt.Usage, limit: kt.Budget) -> bool:
    names = ("tokens", "dollars", "loops", "tool_calls")
    return all(getattr(limit, name) is None or getattr(usage, name) <= getattr(limit, name) for name in names)


async def to_the_end(desk: Office, result: kt.TeamResult) -> kt.TeamResult:
    for _ in range(10):
        if result.status is not kt.TeamStatus.SUSPENDED:
            return result
        desk.answer(*[APPROVE for _ in desk.runtime.pending("r")])
        result = await desk.resume()
    raise AssertionError("it never ends")


@pytest.mark.parametrize("limit", LIMITS, ids=str)
async def test_what_earlier_sessions_spent_counts_against_the_runs_budget(limit: kt.Budget) -> None:
    """Two of three tasks are paid for, however often the run was suspended between them."""
    desk, spender = office("one", "two")
    result = await to_the_end(desk, await desk.run(CHAIN, budget=limit))
    assert (result.status, spender.did) == (kt.TeamStatus.FAILED, ["one", "two"])
    assert within(result.usage, limit)
    assert statuses(result)["three"] == "failed"


@pytest.mark.parametrize("limit", LIMITS, ids=str)
async def test_and_against_a_members_own(limit: kt.Budget) -> None:
    desk, spender = office("one", "two", own=limit)
    result = await to_the_end(desk, await desk.run(CHAIN))
    assert (statuses(result)["three"], spender.did) == ("failed", ["one", "two"])
    assert within(result.usage, limit)


@pytest.mark.parametrize("limit", LIMITS, ids=str)
async def test_and_against_the_budget_that_all_runs_share(limit: kt.Budget) -> None:
    desk, spender = office("one", "two", runtime={"budget": limit})
    result = await to_the_end(desk, await desk.run(CHAIN))
    assert (statuses(result)["three"], spender.did) == ("failed", ["one", "two"])
    assert desk.runtime.governor is not None
    assert within(desk.runtime.governor.usage, limit)
    assert desk.runtime.governor.usage.tokens == 20


async def test_what_a_suspended_run_did_not_spend_serves_other_runs_meanwhile() -> None:
    desk, spender = office("one", runtime={"budget": kt.Budget(tokens=30)})
    await desk.run(CHAIN[:2], budget=kt.Budget(tokens=30))
    other = kt.TeamExecutionRequest("Another.", plan=kt.TaskGraph([kt.Task("a", "do"), kt.Task("b", "do")]), run_id="s")
    result = await desk.coordinator.execute(other, replace(desk.team, runtime=desk.runtime))
    assert (result.status, result.usage.tokens) == (kt.TeamStatus.COMPLETED, 20)
    desk.answer(APPROVE)
    governor = desk.runtime.governor
    assert governor is not None
    before = replace(governor.usage, seconds=0.0)
    with pytest.raises(kt.InsufficientBudget, match="30 asked"):
        await desk.resume()
    assert (replace(governor.usage, seconds=0.0), spender.did) == (before, ["one", "a", "b"]), (
        "the refusal changed nothing"
    )
    governor.top_up(kt.Budget(tokens=20))
    assert (await desk.resume()).output == "two 4", "it went on waiting, and the answer still holds"


async def test_each_task_keeps_its_own_account_over_sessions() -> None:
    desk, _ = office("one", "two")
    result = await to_the_end(desk, await desk.run(CHAIN))
    assert [outcome.usage.tokens for outcome in result.outcomes] == [10, 10, 10]
    assert (result.usage.tokens, result.usage.loops, result.usage.tool_calls) == (30, 3, 3)
    assert result.budget is not None
    assert sum(child.usage.tokens for child in result.budget.children) == 30


class Reviewer:
    """Leaves the second task to a person; asks a model about the first, and reports another usage than it had."""

    def __init__(self, calls: int, reported: int) -> None:
        self.model = FunctionModel(lambda request: "good", name="test:judge")
        self.calls = calls
        self.reported = reported

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if context.task.id != "one":
            return OPEN
        assert context.context is not None, "it may ask a model"
        for _ in range(self.calls):
            await context.context.model(self.model).complete(kt.ModelRequest([kt.Message.user("Is it good?")]))
        return replace(kt.EvaluationVerdict.passed(1.0), usage=kt.Usage(prompt_tokens=self.reported))


class CallsNone(Reviewer):
    """Says that it calls no model."""

    models = ()

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        passed = replace(kt.EvaluationVerdict.passed(1.0), usage=kt.Usage(prompt_tokens=self.reported))
        return passed if context.task.id == "one" else OPEN


@pytest.mark.parametrize("reviewer", [Reviewer(2, 0), Reviewer(0, 70), Reviewer(1, 70), CallsNone(0, 70)])
async def test_what_a_reviewer_reports_is_not_booked_for_what_it_spent(reviewer: Reviewer) -> None:
    desk = Office({"m": Spender()}, gate=kt.DeferGate(), evaluator=reviewer)
    first = await desk.run(CHAIN[:2])
    spent = reviewer.calls * 4
    assert (first.status, first.usage.tokens) == (kt.TeamStatus.SUSPENDED, 20 + spent)
    desk.answer(APPROVE)
    second = await desk.resume()
    assert (second.status, second.usage.tokens) == (kt.TeamStatus.COMPLETED, 20 + spent)
    assert second.budget is not None
    shown = {node.name: node.usage.tokens for node in second.budget.children}
    assert shown == {"m": 20} | ({} if isinstance(reviewer, CallsNone) else {"evaluate": spent})


async def test_a_resumed_run_may_get_another_budget_and_what_was_spent_counts() -> None:
    desk, spender = office("one")
    await desk.run(CHAIN[:2], budget=kt.Budget(tokens=15))
    desk.answer(APPROVE)
    result = await desk.resume(budget=kt.Budget(tokens=25))
    assert (statuses(result), result.usage.tokens) == ({"one": "completed", "two": "completed"}, 20)
    assert spender.did == ["one", "two"]


async def test_what_was_topped_up_stays_after_a_resume() -> None:
    desk, _ = office("one")

    def top_up(event: events.Event) -> None:
        if isinstance(event, events.AttemptStarted):
            desk.runtime.runs["r"].top_up(kt.Budget(tokens=10))

    desk.runtime.subscribers = (*desk.runtime.subscribers, top_up)
    await desk.run(CHAIN[:2], budget=kt.Budget(tokens=15))
    desk.runtime.subscribers = desk.runtime.subscribers[:1]
    desk.answer(APPROVE)
    assert statuses(await desk.resume()) == {"one": "completed", "two": "completed"}


# ---------------------------------------------------------------- time


async def test_only_active_seconds_count() -> None:
    """A weekend in which nobody answers costs nothing."""
    desk, _ = office("one", "two")
    first = await desk.run(CHAIN, budget=kt.Budget(seconds=3.5))
    await anyio.sleep(80_000)
    desk.answer(APPROVE)
    second = await desk.resume()
    await anyio.sleep(80_000)
    desk.answer(APPROVE)
    third = await desk.resume()
    assert [round(result.usage.seconds) for result in (first, second, third)] == [1, 2, 3]
    assert third.status is kt.TeamStatus.COMPLETED


async def test_a_deadline_counts_the_seconds_of_all_sessions() -> None:
    desk, spender = office("one")
    await desk.run(CHAIN, budget=kt.Budget(seconds=1.5))
    desk.answer(APPROVE)
    result = await desk.resume()
    assert (result.status, statuses(result)) == (
        kt.TeamStatus.TIMEOUT, {"one": "completed", "two": "cancelled", "three": "skipped"}
    )  # fmt: skip
    assert result.usage.seconds == pytest.approx(1.5, abs=0.1)
    assert spender.did == ["one", "two"]


BRANCHES = [
    kt.Task("asked", "do"),
    kt.Task("after", "do", depends_on=["asked"]),
    kt.Task("slow", "do"),
    *[kt.Task(f"slow-{n}", "do", depends_on=["slow" if n == 1 else f"slow-{n - 1}"]) for n in range(1, 5)],
]


async def test_a_deadline_while_a_task_waits_ends_the_run_timed_out() -> None:
    desk, _ = office("asked")
    result = await desk.run(BRANCHES, budget=kt.Budget(seconds=2.5))
    assert result.status is kt.TeamStatus.TIMEOUT
    found = statuses(result)
    assert (found["asked"], found["after"], found["slow"]) == ("cancelled", "skipped", "completed")
    assert result["asked"].artifact is not None
    assert (len(desk.runtime.runs), desk.runtime.pending()) == (0, ())
    assert [event.task_id for event in desk.recorder.of(events.TaskSuspended)] == []


async def test_a_kill_while_a_task_waits_ends_the_run_cancelled() -> None:
    desk, _ = office("asked")

    def kill(event: events.Event) -> None:
        if isinstance(event, events.TaskCompleted) and event.task_id == "slow-1":
            desk.runtime.runs["r"].cancel("enough")

    desk.runtime.subscribers = (*desk.runtime.subscribers, kill)
    result = await desk.run(BRANCHES)
    assert (result.status, result.error) == (kt.TeamStatus.CANCELLED, "enough")
    assert (statuses(result)["asked"], statuses(result)["after"]) == ("cancelled", "skipped")
    assert len(desk.runtime.runs) == 0


async def test_a_kill_of_a_resumed_session_ends_what_still_waits() -> None:
    desk, _ = office("one", "other")
    await desk.run([*CHAIN, kt.Task("other", "do")])
    first = next(one for one in desk.runtime.pending("r") if one.task_id == "one")
    desk.runtime.answer(first.id, APPROVE)

    def kill(event: events.Event) -> None:
        if isinstance(event, events.AttemptStarted) and event.task_id == "two":
            desk.runtime.runs["r"].cancel("enough")

    desk.runtime.subscribers = (*desk.runtime.subscribers, kill)
    result = await desk.resume()
    assert (result.status, statuses(result)) == (
        kt.TeamStatus.CANCELLED,
        {"one": "completed", "two": "cancelled", "three": "skipped", "other": "cancelled"},
    )
    assert len(desk.runtime.runs) == 0


async def test_the_callers_cancellation_of_a_resume_ends_the_run() -> None:
    desk, _ = office("one")
    await desk.run(CHAIN)
    desk.answer(APPROVE)
    with anyio.move_on_after(0.5) as scope:
        await desk.resume()
    assert scope.cancelled_caught
    assert desk.recorder.types[-1] == "team.cancelled"
    assert len(desk.runtime.runs) == 0
    desk.recorder.assert_lawful()


# ---------------------------------------------------------------- the law


TASKS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=5)
"""For each task of a plan: whether it needs the one before, and whether a person is asked about it."""
DECISIONS = st.lists(st.lists(st.sampled_from([APPROVE, REVISE, REJECT, None]), max_size=5), max_size=4)


@settings(max_examples=settings().max_examples * 3 // 5)
@given(tasks=TASKS, sessions=DECISIONS, tokens=st.sampled_from([None, 15, 35, 75]), slots=st.sampled_from([None, 1]))
async def test_over_any_sessions_money_is_spent_once_and_finished_work_is_not_repeated(
    tasks: list[tuple[bool, bool]], sessions: list[list[kt.HumanDecision | None]], tokens: int | None, slots: int | None
) -> None:
    plan = [
        kt.Task(f"t{number}", "do", depends_on=[f"t{number - 1}"] if needs and number else [])
        for number, (needs, _) in enumerate(tasks)
    ]
    desk, spender = office(*(f"t{number}" for number, (_, asked) in enumerate(tasks) if asked))
    result = await desk.run(plan, budget=kt.Budget(tokens=tokens), max_parallel_tasks=slots)
    finished: dict[str, Any] = {}
    rounds: list[list[kt.HumanDecision | None]] = [*sessions, [REJECT] * 9]
    for decisions in rounds:
        check(result, spender, tokens, finished)
        if result.status is not kt.TeamStatus.SUSPENDED:
            break
        for question, decision in zip(desk.runtime.pending("r"), decisions, strict=False):
            if decision is not None:
                desk.runtime.answer(question.id, decision)
        result = await desk.resume()
    check(result, spender, tokens, finished)
    assert (result.status is kt.TeamStatus.SUSPENDED) == ("r" in desk.runtime.runs)


def check(result: kt.TeamResult, spender: Spender, tokens: int | None, finished: dict[str, Any]) -> None:
    """The laws that hold after every session."""
    assert result.usage.tokens == 10 * len(spender.did)
    assert tokens is None or result.usage.tokens <= tokens
    assert sum(outcome.attempts for outcome in result.outcomes) >= len(spender.did)
    for outcome in result.outcomes:
        if outcome.task_id in finished:
            assert outcome == finished[outcome.task_id] or outcome.artifact == finished[outcome.task_id].artifact
        if outcome.status is kt.TaskStatus.COMPLETED:
            finished[outcome.task_id] = outcome
    waiting = any(outcome.status in (kt.TaskStatus.SUSPENDED, kt.TaskStatus.PENDING) for outcome in result.outcomes)
    assert waiting == (result.status is kt.TeamStatus.SUSPENDED)


class Lister(Spender):
    """A spender whose first task makes the list of a map."""

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        if assignment.task.id == "split":
            return kt.Artifact("two", ["a", "b"])
        return await super().run(assignment, context)


POLISH = kt.Task("polish", "do", loop=kt.Loop([kt.Task("write", "do")], max_rounds=1), budget=kt.Budget(tokens=99))


@pytest.mark.parametrize("anew", [False, True], ids=["goes on", "comes back from its journal"])
@pytest.mark.parametrize(
    ("loop", "asked", "other"),
    [
        (None, "read.0001", "read.0002"),
        (kt.Loop([POLISH], max_rounds=1), "read.0001.01.polish.01.write", "read.0002.01.polish.01.write"),
    ],
    ids=["map", "loops in a map"],
)
@pytest.mark.parametrize("limit", LIMITS, ids=str)
async def test_what_earlier_sessions_spent_counts_against_the_budget_of_a_map(
    limit: kt.Budget, loop: kt.Loop | None, asked: str, other: str, anew: bool, tmp_path: Path
) -> None:
    """Two of three attempts are paid for; the third comes before the run is where the second was made."""

    def opened() -> tuple[Office, Spender]:
        spender, journal = Lister(), kt.SqliteJournal(tmp_path / "runs.db")
        runtime = {"journal": journal} if anew else {}
        return Office({"m": spender}, gate=kt.DeferGate(), evaluator=LeavesOpen(asked), runtime=runtime), spender

    desk, spender = opened()
    split = kt.Task("split", "do")
    read = kt.Task.map("read", "do", over="split", max_items=2, budget=limit, loop=loop)
    first = await desk.run([split, read], max_parallel_tasks=1)
    assert (statuses(first)[asked], spender.did) == ("suspended", [asked, other])
    if anew:
        desk, spender = opened()
    desk.answer(REVISE)
    second = await desk.runtime.resume("r", desk.team, coordinator=desk.coordinator)
    assert within(second[asked].usage + second[other].usage, limit)
    assert (second[other].usage, spender.did) == (first[other].usage, [] if anew else [asked, other])
    assert statuses(second)[other] == "completed"


GROWS = {
    "map": kt.Task("l", "do", depends_on=["list"], over="list", max_items=3),
    "loop": kt.Task("l", "do", depends_on=["list"], loop=kt.Loop([kt.Task("w", "do")], max_rounds=1)),
}


@pytest.mark.parametrize("how", GROWS)
@pytest.mark.parametrize("end", ["kill", "deadline", "answers"])
async def test_a_map_or_a_loop_whose_parts_wait_for_a_person_ends_in_the_next_session(how: str, end: str) -> None:
    """It is in flight when the run is suspended, which is no end: a resumed run that was killed had no result."""

    async def work(assignment: kt.Assignment) -> str:
        await anyio.sleep(10)
        return '["i", "j"]'

    desk = Office({"m": work}, gate=kt.DeferGate(), evaluator=LeavesOpen("l.0001", "l.0002", "l.01.w"))
    first = await desk.run([kt.Task("list", "do"), GROWS[how]], budget=kt.Budget(seconds=60))
    assert (first.status, statuses(first)["l"]) == (kt.TeamStatus.SUSPENDED, "in_flight")
    desk.answer(*[APPROVE for _ in desk.runtime.pending("r")])
    result = first
    async with anyio.create_task_group() as group:
        if end == "kill":
            group.start_soon(kill_at_once, desk)
        result = await desk.resume(**({"budget": kt.Budget(seconds=5)} if end == "deadline" else {}))
    ended = {"kill": kt.TeamStatus.CANCELLED, "deadline": kt.TeamStatus.TIMEOUT, "answers": kt.TeamStatus.COMPLETED}
    assert (result.status, list(statuses(result))) == (ended[end], list(statuses(first)))
    assert statuses(result)["l"] == ("completed" if end == "answers" else "cancelled")
    [resumed] = desk.recorder.of(events.TeamResumed)
    assert dict(resumed.ended) == {"list": "completed"}
    ends = [one for one in desk.recorder.events if isinstance(one, events.TaskEnded) and one.task_id == "l"]
    assert [one.type for one in ends] == ["task.completed" if end == "answers" else "task.cancelled"]


async def kill_at_once(desk: Office) -> None:
    desk.runtime.runs["r"].cancel("killed")
