"""The coordinator kit on accounts: C12, one ledger for all members, and a result with the same numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import anyio

from kairo_team.budget import Budget, Usage
from kairo_team.contracts import MemberContext
from kairo_team.errors import HaltError
from kairo_team.results import TeamResult, TeamStatus
from kairo_team.tasks import Assignment
from kairo_team.tck.coordinator_limits import nodes_of, tasks
from kairo_team.tck.coordinator_stage import CoordinatorStage, Function, Watched, fail, hang, say_nothing, write
from kairo_team.tck.kit import clause

ONE = Usage(7, 3, Decimal("0.1"), 1, 1)
"""Usage that the kit's members book in each attempt; the governor counts the loop."""


class BudgetTests(CoordinatorStage):
    """The spending of a run is booked once at every place, and reported."""

    @clause("C12")
    async def test_c12_every_member_works_under_a_governor_carved_from_the_teams(self) -> None:
        agent = Watched(write)
        result = await self.stage(agent, tasks=tasks(3), budget=Budget(tokens=1000)).play()
        tree = result.budget
        assert tree is not None, "the result must have its budget tree"
        nodes = {node.path: node for node in nodes_of(tree)}
        for call, context in zip(agent.calls, agent.contexts, strict=True):
            path = context.governor.path
            inside = path.startswith(f"{tree.path}/")
            assert inside, f"task {call.task.id!r} was done under {path!r}, not under the team's {tree.path!r}"
            above = [node for name, node in nodes.items() if path == name or path.startswith(f"{name}/")]
            assert len(above) > 1, f"{path!r} does not show in the budget tree: {sorted(nodes)}"

    @clause("C12")
    async def test_c12_what_members_book_is_what_the_result_says(self) -> None:
        agent = Watched(_book(write))
        show = self.stage(agent, tasks=tasks(5), runtime={"budget": Budget(tokens=100_000)})
        result = await show.play()
        _check_booked(result, len(agent.calls))
        shared = show.team.runtime.governor.usage
        assert shared.tokens == result.usage.tokens, f"{result.usage} was spent, the runtime's budget knows of {shared}"

    @clause("C12")
    async def test_c12_failed_attempts_count(self) -> None:
        for function in (_book(fail), _book(say_nothing)):
            agent = Watched(function)
            result = await self.stage(agent, tasks=tasks(3)).play()
            _check_booked(result, len(agent.calls))

    @clause("C12")
    async def test_c12_cancelled_attempts_count(self) -> None:
        agent = Watched(_book(hang))
        result = await self.stage(agent, tasks=tasks(3), budget=Budget(seconds=5.0), task_timeout=None).play()
        assert result.status is TeamStatus.TIMEOUT, f"it ended {result!r}"
        _check_booked(result, len(agent.calls))

    @clause("C12")
    async def test_c12_what_is_booked_while_cleaning_up_counts(self) -> None:
        agent = Watched(_book_late)
        show = self.stage(agent, tasks=tasks(3), task_timeout=None, cancel_grace=1.0)
        async with show.live() as run:
            await anyio.sleep(1)
            run.cancel("enough")
            result = await run.result()
        _check_booked(result, len(agent.calls))

    @clause("C12")
    async def test_c12_each_run_has_an_account_of_its_own(self) -> None:
        shows = [self.stage(_book(write), tasks=tasks(3), budget=Budget(tokens=1000)) for _ in range(5)]
        one, results = shows[0].coordinator, list[TeamResult]()

        async def play(number: int) -> None:
            show = shows[number]
            results.append(await one.execute(show.request, show.team))

        async with anyio.create_task_group() as group:
            for number in range(len(shows)):
                group.start_soon(play, number)
        for result in results:
            _check_booked(result, sum(outcome.attempts for outcome in result.outcomes))


def _book(then: Function) -> Function:
    """Return a function that books usage from elsewhere, then calls `then`."""

    async def work(assignment: Assignment, context: MemberContext) -> Any:
        _record(context)
        return await then(assignment, context)

    return work


async def _book_late(assignment: Assignment, context: MemberContext) -> Any:
    try:
        return await hang(assignment, context)
    finally:
        try:
            _record(context)
        except HaltError:
            context.keep("it was booked")


def _record(context: MemberContext) -> None:
    context.governor.record_usage(
        prompt_tokens=ONE.prompt_tokens,
        completion_tokens=ONE.completion_tokens,
        dollars=ONE.dollars,
        tool_calls=ONE.tool_calls,
    )


def _check_booked(result: TeamResult, calls: int) -> None:
    """Check that there were `calls` attempts, and that each booked the same."""
    usage = result.usage
    assert calls, f"nobody was called: {result!r}"
    found = (usage.prompt_tokens, usage.completion_tokens, usage.dollars, usage.tool_calls, usage.loops)
    due = (7 * calls, 3 * calls, ONE.dollars * calls, calls, calls)
    assert found == due, f"{calls} attempts booked {due} (prompt, completion, dollars, tools, loops), not {found}"
    assert result.budget is not None, "the result must have its budget tree"
    assert result.budget.usage.tokens == usage.tokens, f"the tree's root has {result.budget.usage}, the result {usage}"
    of_tasks = [(outcome.task_id, outcome.attempts, outcome.usage.tokens) for outcome in result.outcomes]
    wrong = [one for one in of_tasks if one[2] != 10 * one[1]]
    assert not wrong, f"each try cost 10 tokens; the outcomes say (task, tries, tokens) {wrong}"
