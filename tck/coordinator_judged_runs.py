"""The coordinator kit on runs with reviews: their slots, their ends, and the cost of judges."""

from __future__ import annotations

from typing import Any

import anyio

from kairo_team.budget import Budget
from kairo_team.messages import Message, ModelRequest
from kairo_team.results import TeamStatus
from kairo_team.tasks import Assignment, Task
from kairo_team.tck.coordinator_reviewing import (
    Judge,
    Reviewed,
    Reviewer,
    ReviewStage,
    Writer,
    fixed_parts_of,
    hanging,
    is_accepted,
)
from kairo_team.tck.kit import clause
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict


class JudgedRunTests(ReviewStage):
    """A run while its artifacts are reviewed."""

    @clause("C9", needs="supports_review")
    async def test_c09_a_slot_is_held_until_the_verdict(self) -> None:
        """With one slot nothing else is begun while an artifact is reviewed."""
        open_now: set[str] = set()
        together: list[set[str]] = []

        def begin(assignment: Assignment, _: int) -> str:
            open_now.add(assignment.task.id)
            together.append(set(open_now))
            return assignment.task.id

        async def pass_in_a_second(context: EvaluationContext) -> EvaluationVerdict:
            await anyio.sleep(1)
            open_now.discard(context.task.id)
            return EvaluationVerdict.passed()

        tasks = [Task(f"t{number}", "Write it.") for number in range(4)]
        await self.play(Reviewer(pass_in_a_second), Writer(begin), tasks=tasks, max_parallel_tasks=1)
        most = max(together, key=len)
        assert len(most) == 1, f"max_parallel_tasks is 1, and {sorted(most)} were between dispatch and verdict at once"

    @clause("C8", needs="supports_review supports_plan")
    async def test_c08_reviews_are_made_side_by_side(self) -> None:
        """A branch does not wait for the reviews of another."""

        async def pass_in_a_second(context: EvaluationContext) -> EvaluationVerdict:
            await anyio.sleep(1)
            return EvaluationVerdict.passed()

        firsts = [Task(f"{branch}1", "Write it.") for branch in "abcd"]
        seconds = [Task(f"{branch}2", "Go on with it.", depends_on=[f"{branch}1"]) for branch in "abcd"]
        began = anyio.current_time()
        await self.play(Reviewer(pass_in_a_second), tasks=[*firsts, *seconds])
        took = anyio.current_time() - began
        assert took < 2 + self.late(1), f"four branches with two reviews of a second each took {took:g} s, 2 s are due"

    @clause("C10", needs="supports_review")
    async def test_c10_the_deadline_ends_a_review_in_flight(self) -> None:
        """The review is cancelled for real and gives no verdict."""
        ended: list[float] = []
        began = anyio.current_time()
        run = await self.play(Reviewer(hanging(ended)), review_timeout=None, budget=Budget(seconds=5.0))
        assert run.result.status is TeamStatus.TIMEOUT, f"it ended {run.result.status}"
        assert ended, "the review was not cancelled"
        took = max(ended) - began
        assert took <= 5.0 + self.late(1.0), f"the deadline was at 5 s, the review ended at {took:g} s"
        assert all(outcome.verdict is None for outcome in run.outcomes), "a review that was cut short has a verdict"

    @clause("C12", needs="supports_review")
    async def test_c12_what_reviews_spend_is_the_runs(self) -> None:
        """Models that an evaluator asks by its context are paid by the run, which knows what they cost."""
        judge = Judge("good enough")
        run = await self.play(Reviewer(_asks(judge)), budget=Budget(tokens=10_000))
        assert run.result.status is TeamStatus.COMPLETED, run.result.error
        _check_paid(run, judge)

    @clause("C12", needs="supports_review")
    async def test_c12_what_a_review_books_is_the_runs(self) -> None:
        """Spending elsewhere is booked on the governor of the review's context."""

        async def book(context: EvaluationContext) -> EvaluationVerdict:
            assert context.context is not None, "the review got no context, so it has no governor"
            context.context.governor.record_usage(prompt_tokens=7)
            return EvaluationVerdict.passed()

        run = await self.play(Reviewer(book))
        booked, usage = 7 * len(run.reviewer.asked), run.result.usage.tokens
        assert usage == booked, f"reviews booked {booked} tokens, the result has {usage}"

    @clause("C12", needs="supports_review")
    async def test_c12_reviews_never_pass_the_budget(self) -> None:
        """If the budget refuses a judge's call, there is no review, and the artifact is not bad."""
        judge, tasks = Judge("good " * 5), [Task(f"t{number}", "Write it.") for number in range(8)]
        run = await self.play(Reviewer(_asks(judge, often=8)), tasks=tasks, budget=Budget(tokens=300))
        _check_paid(run, judge)
        assert judge.spent <= 300, f"the budget was 300 tokens, reviews spent {judge.spent}"
        for outcome in run.outcomes:
            if outcome.verdict is not None and not is_accepted(outcome):
                wanted = ("review_exceeded", Cause.JUDGE_BUDGET, None)
                assert fixed_parts_of(outcome.verdict) == wanted, f"a review without money became {outcome.verdict!r}"


def _asks(judge: Judge, often: int = 1) -> Any:
    """Return a review that asks a model `often` times, then passes."""
    request = ModelRequest([Message.user("Is this good enough?")], max_tokens=5)

    async def ask(context: EvaluationContext) -> EvaluationVerdict:
        assert context.context is not None, "the review got no context, so it has no governed models"
        for _ in range(often):
            await context.context.model(judge).complete(request)
        return EvaluationVerdict.passed()

    return ask


def _check_paid(run: Reviewed, judge: Judge) -> None:
    assert judge.calls, "no judge was asked"
    usage = run.result.usage.tokens
    assert usage == judge.spent, f"reviews spent {judge.spent} tokens, the result has {usage}"
