"""The scope: who is interrupted, who raises, and whose cancellation always passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from kairo_team.budget import Budget, HaltReason
from kairo_team.errors import GovernorClosed, HaltError
from kairo_team.governance import Governor
from kairo_team.governance.cancel_scope import GovernorScope
from kairo_team.governance.halts import Halt
from kairo_team.testing import FakeClock

pytestmark = pytest.mark.anyio


only_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""Only asyncio has a native cancel."""


def after(group: TaskGroup, action: Callable[[], object], seconds: float = 0.01) -> None:
    """Do something a little later, in another task."""

    async def later() -> None:
        await anyio.sleep(seconds)
        action()

    group.start_soon(later)


def one_after_the_other(*actions: Callable[[], object]) -> None:
    """Do several things in one turn of the event loop."""
    for action in actions:
        action()


async def in_scope(governor: Governor, seen: list[str] | None = None) -> None:
    """Sleep in a scope until interrupted."""
    async with governor.scope():
        try:
            await anyio.sleep_forever()
        finally:
            if seen is not None:
                seen.append(governor.name)


# -- what interrupts --------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [HaltReason.CANCELLED, HaltReason.EMERGENCY_STOP])
@pytest.mark.parametrize("where", ["task", "team"])
async def test_a_cancel_here_or_above_interrupts_what_is_awaited(reason: HaltReason, where: str) -> None:
    team = Governor(name="team")
    task = team.carve("member").carve("task")
    async with anyio.create_task_group() as group:
        after(group, lambda: (task if where == "task" else team).cancel(reason))
        with pytest.raises(HaltError) as caught:
            await in_scope(task)
        assert (caught.value.reason, caught.value.origin) == (reason, where)


async def test_a_crossing_record_usage_interrupts_and_a_guard_that_exhausts_does_not() -> None:
    team = Governor(Budget(tokens=10, loops=0), name="team")
    payer = team.carve("payer")
    seen: list[str] = []
    async with anyio.create_task_group() as group:

        async def exhaust_then_cross() -> None:
            with pytest.raises(HaltError):
                team.carve("guard").pre_step()
            await anyio.sleep(0.01)
            assert (seen, team.stopped) == ([], None)
            with pytest.raises(HaltError):
                payer.record_usage(prompt_tokens=10)

        task = team.carve("task")
        async with anyio.create_task_group() as inner:
            with pytest.raises(HaltError) as caught:
                async with task.scope():
                    inner.start_soon(exhaust_then_cross)
                    try:
                        await anyio.sleep_forever()
                    finally:
                        seen.append("interrupted")
            assert (caught.value.reason, caught.value.origin) == (HaltReason.LOOP_BUDGET_EXCEEDED, "team")
        group.cancel_scope.cancel()
    assert seen == ["interrupted"]


async def test_a_deadline_interrupts_and_stops_whose_it_was() -> None:
    team = Governor(Budget(seconds=0.02), name="team")
    task = team.carve("task", Budget(seconds=5))
    with pytest.raises(HaltError) as caught:
        await in_scope(task)
    assert (caught.value.reason, caught.value.origin) == (HaltReason.TIME_BUDGET_EXCEEDED, "team")
    assert team.stopped is HaltReason.TIME_BUDGET_EXCEEDED


async def test_audit_g22_a_governor_that_is_stopped_again_interrupts_nobody_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted: list[str] = []
    interrupt = GovernorScope.interrupt

    def count(self: GovernorScope, halt: Halt) -> None:
        interrupted.append(self.node.name)
        interrupt(self, halt)

    monkeypatch.setattr(GovernorScope, "interrupt", count)
    team = Governor(Budget(seconds=1), name="team")
    seen: list[str] = []
    with pytest.raises(HaltError):
        async with team.scope(), anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(in_scope, team.carve(f"task-{number}"), seen)
            await anyio.sleep(0.5)
            for _ in range(3):
                team.cancel()
    assert len(seen) == 100
    assert sorted(interrupted) == sorted({"team", *(f"task-{number}" for number in range(100))})


async def test_a_kill_interrupts_what_an_exhausted_governor_let_run() -> None:
    team = Governor(Budget(loops=1), name="team")
    with pytest.raises(HaltError) as caught:
        async with team.scope():
            team.pre_step()
            with pytest.raises(HaltError):
                team.pre_step()
            team.cancel()
            with anyio.move_on_after(1):
                await anyio.sleep_forever()
    assert caught.value.reason is HaltReason.LOOP_BUDGET_EXCEEDED, "the first reason wins"


async def test_every_scope_of_one_governor_is_interrupted() -> None:
    team = Governor(name="team")
    task = team.carve("task")
    seen: list[str] = []

    async def in_one_of_several(name: str) -> None:
        with pytest.raises(HaltError):
            async with task.scope():
                try:
                    await anyio.sleep_forever()
                finally:
                    seen.append(name)

    with anyio.fail_after(1):
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(in_one_of_several, f"{number}")
            after(group, task.cancel)
    assert sorted(seen) == ["0", "1", "2"]
    tree = team._node.tree
    assert (tree.scopes, tree.more_scopes) == ({}, {}), "nothing stays behind"


async def test_a_deadline_that_fires_stops_whatever_the_clock_says() -> None:
    clock = FakeClock()
    team = Governor(Budget(seconds=0.02), name="team", clock=clock)
    with pytest.raises(HaltError):
        await in_scope(team)
    assert (clock.now, team.halted) == (0, HaltReason.TIME_BUDGET_EXCEEDED)


async def test_a_deadline_moved_by_a_top_up_is_kept_by_open_scopes() -> None:
    team = Governor(Budget(seconds=0.05), name="team", clock=FakeClock())
    begun = anyio.current_time()
    async with anyio.create_task_group() as group:
        after(group, lambda: team.top_up(Budget(seconds=0.2)))
        with pytest.raises(HaltError):
            await in_scope(team.carve("task"))
    assert 0.2 <= anyio.current_time() - begun < 2


async def test_siblings_are_left_alone() -> None:
    team = Governor(name="team")
    task, sibling = team.carve("task"), team.carve("sibling")
    async with sibling.scope():
        task.cancel()
        await anyio.sleep(0.01)
    sibling.can_proceed()


async def test_a_closed_nodes_scope_still_ends_with_its_ancestors() -> None:
    team = Governor(name="team")
    task = team.carve("task")
    async with anyio.create_task_group() as group:
        after(group, task.close)
        after(group, team.cancel, 0.02)
        with pytest.raises(HaltError):
            await in_scope(task)


# -- entry and exit ---------------------------------------------------------------------------


async def test_entry_raises_when_halted_and_runs_nothing() -> None:
    team = Governor(Budget(dollars=5), name="team", restored_halt=HaltReason.DOLLAR_BUDGET_EXCEEDED)
    with pytest.raises(HaltError) as caught:
        async with team.scope():
            pytest.fail("entered")
    assert caught.value.origin == "team"
    closed = Governor(name="closed")
    closed.close()
    with pytest.raises(GovernorClosed):
        async with closed.scope():
            pytest.fail("entered")


async def test_entry_raises_when_time_is_up() -> None:
    clock = FakeClock()
    team = Governor(Budget(seconds=5), clock=clock)
    clock.now = 5
    with pytest.raises(HaltError):
        async with team.scope():
            pytest.fail("entered")


async def test_a_scope_is_entered_once() -> None:
    scope = Governor().scope()
    async with scope:
        with pytest.raises(RuntimeError, match="entered before"):
            await scope.__aenter__()
    with pytest.raises(RuntimeError, match="not entered"):
        await Governor().scope().__aexit__(None, None, None)


async def test_a_body_that_finished_keeps_its_value() -> None:
    team = Governor(name="team")
    value = ""
    async with team.scope():
        team.cancel()
        value = "done"
    assert (value, team.halted) == ("done", HaltReason.CANCELLED)


async def test_a_shielded_body_that_finishes_keeps_its_value() -> None:
    team = Governor(name="team")
    async with team.scope() as scope:
        with anyio.CancelScope(shield=True):
            team.cancel()
            await anyio.sleep(0.01)
        assert scope.is_stopped()
    assert not scope.cancelled


async def test_what_is_posted_after_the_body_has_ended_changes_nothing() -> None:
    team = Governor(name="team")
    async with team.scope() as scope:
        scope.cancel()
        team.cancel()
    await anyio.sleep(0.01)
    assert (scope.is_stopped(), scope.cancelled) == (False, False)


async def test_the_bodys_own_error_passes() -> None:
    team = Governor(name="team")
    with pytest.raises(KeyError):
        async with team.scope():
            team.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                raise KeyError("mine")


async def test_the_outermost_stopped_scope_raises() -> None:
    team = Governor(name="team")
    task = team.carve("task")
    raised: list[str] = []
    async with anyio.create_task_group() as group:
        after(group, team.cancel)
        with pytest.raises(HaltError) as caught:
            async with team.scope():
                try:
                    await in_scope(task)
                except HaltError:
                    raised.append("task")
                    raise
        assert raised == []
        assert caught.value.origin == "team"


async def test_a_childs_halt_ends_only_the_childs_scope() -> None:
    team = Governor(name="team")
    task = team.carve("task")
    async with anyio.create_task_group() as group, team.scope():
        after(group, task.cancel)
        with pytest.raises(HaltError):
            await in_scope(task)
        await anyio.sleep(0.01)
    team.can_proceed()


async def test_every_scope_of_a_wide_fan_out_is_interrupted() -> None:
    team = Governor(name="team")
    seen: list[str] = []
    with anyio.fail_after(5), pytest.raises(HaltError):
        async with team.scope(), anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(in_scope, team.carve(f"t{number}"), seen)
            after(group, team.cancel)
    assert len(seen) == 100


# -- cancel of one scope ----------------------------------------------------------


async def test_a_scope_can_be_cancelled_alone() -> None:
    team = Governor(name="team")
    async with anyio.create_task_group() as group, team.scope() as scope:
        after(group, scope.cancel)
        await anyio.sleep_forever()
    assert (scope.cancelled, scope.is_stopped(), team.halted) == (True, True, None)


async def test_of_a_quiet_cancel_and_a_halt_the_first_decides() -> None:
    team = Governor(name="team")
    async with anyio.create_task_group() as group:
        async with team.scope() as scope:
            after(group, partial(one_after_the_other, scope.cancel, team.cancel))
            await anyio.sleep_forever()
        assert scope.cancelled
    other = Governor(name="other")
    late = other.scope()
    async with anyio.create_task_group() as group:
        with pytest.raises(HaltError):
            async with late:
                after(group, partial(one_after_the_other, other.cancel, late.cancel))
                await anyio.sleep_forever()
    assert not late.cancelled


# -- U05: foreign cancellation ----------------------------------------------------------------


@pytest.mark.parametrize("order", ["halt first", "foreign first"])
async def test_kf_u05_an_outer_cancellation_always_passes(order: str) -> None:
    """U05: cancellation of a halted scope swallowed the caller's own."""
    team = Governor(name="team")
    after_scope = False
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as foreign:

            def both() -> None:
                first, second = (
                    (team.cancel, foreign.cancel) if order == "halt first" else (foreign.cancel, team.cancel)
                )
                first()
                second()

            after(group, both)
            await in_scope(team)
            after_scope = True
        assert foreign.cancelled_caught
    assert not after_scope


@only_asyncio
@pytest.mark.parametrize("order", ["halt first", "foreign first", "halt, a turn, foreign", "foreign, a turn, halt"])
async def test_kf_u05_a_native_task_cancel_always_passes(order: str) -> None:
    """U05: also `asyncio.Task.cancel`, in the same turn of the loop or the next, in either order."""

    team = Governor(name="team")
    task = asyncio.create_task(in_scope(team))
    await asyncio.sleep(0.01)
    halt, foreign = team.cancel, task.cancel
    for step in (halt, foreign) if order.startswith("halt") else (foreign, halt):
        step()
        if "turn" in order:
            await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@only_asyncio
async def test_kf_u05_a_native_cancel_wins_over_a_deadline_in_the_same_turn() -> None:
    """U05: the deadline of the budget and the caller's cancel arrive together."""

    team = Governor(Budget(seconds=0.05), name="team", clock=anyio.current_time)
    task = asyncio.create_task(in_scope(team))
    asyncio.get_running_loop().call_at(team._node.deadline or 0, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_kf_u05_the_task_is_left_without_a_trace_of_our_cancel(anyio_backend_name: str) -> None:
    """U05: after a caught halt the task can be cancelled, timed out and asked as if nothing had been."""
    team = Governor(name="team")
    async with anyio.create_task_group() as group:
        after(group, team.cancel)
        with pytest.raises(HaltError):
            await in_scope(team)
    if anyio_backend_name == "asyncio":
        import asyncio

        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0
    await checkpoint()
    with anyio.move_on_after(0.01) as patience:
        await anyio.sleep_forever()
    assert patience.cancelled_caught


# -- U06: groups ------------------------------------------------------------------------------


async def test_kf_u06_halts_out_of_a_task_group_are_one_halt() -> None:
    """U06: halts out of a task group came as an ExceptionGroup that `except HaltError` missed."""
    team = Governor(Budget(loops=1), name="team")

    async def agent(number: int) -> None:
        await anyio.sleep(0.001 * number)
        team.carve(f"agent-{number}").pre_step()

    with pytest.raises(HaltError) as caught:
        async with team.scope(), anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(agent, number)
    assert caught.value.reason is HaltReason.LOOP_BUDGET_EXCEEDED


async def test_kf_u06_a_nested_group_of_nothing_but_halts_is_its_first() -> None:
    """U06: however nested."""
    first, second = (halt_of(Governor(name=name)) for name in ("first", "second"))
    with pytest.raises(HaltError) as caught:
        async with Governor().scope():
            raise ExceptionGroup("outer", [ExceptionGroup("inner", [first]), second])
    assert caught.value is first


async def test_kf_u06_a_group_with_another_error_stays_a_group() -> None:
    """U06: an error that is no halt is never lost."""
    with pytest.raises(ExceptionGroup) as caught:
        async with Governor().scope():
            raise ExceptionGroup("mixed", [halt_of(Governor()), KeyError("mine")])
    assert caught.group_contains(KeyError)
    assert caught.group_contains(HaltError)


async def test_kf_u06_our_cancellation_and_halts_in_one_group() -> None:
    """U06: children of a stopped scope that raise halts of their own while they are interrupted."""
    team = Governor(name="team")
    child = team.carve("child")

    async def stubborn() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            child.can_proceed()

    async with anyio.create_task_group() as outside:
        after(outside, team.cancel)
        with pytest.raises(HaltError) as caught:
            async with team.scope(), anyio.create_task_group() as group:
                group.start_soon(stubborn)
                await anyio.sleep_forever()
        assert caught.value.origin == "team"


async def test_kf_u06_our_cancellation_and_an_error_in_one_group() -> None:
    """U06: the error of a child that was interrupted comes out; the halt stays to be seen by every guard."""
    team = Governor(name="team")

    async def careless() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyError("mine")

    async with anyio.create_task_group() as outside:
        after(outside, team.cancel)
        with pytest.raises(ExceptionGroup) as caught:
            async with team.scope(), anyio.create_task_group() as group:
                group.start_soon(careless)
                await anyio.sleep_forever()
        assert caught.group_contains(KeyError)
    assert team.halted is HaltReason.CANCELLED


def halt_of(governor: Governor) -> HaltError:
    governor.cancel()
    with pytest.raises(HaltError) as caught:
        governor.can_proceed()
    return caught.value
