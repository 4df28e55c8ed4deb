"""Shared governors: one budget over tasks of several members, as a second line upwards beside the members' own."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance import Governor, Reservation
from kairo_team.governance.ledger import TOKENS, Units
from tests.governance.halting import halt_of

pytestmark = pytest.mark.anyio

NO_GUARANTEE = Budget()


class Two:
    """A run with two members and a map across them."""

    def __init__(self, run: int | None = 1000, ada: int | None = None, bob: int | None = None, read: int = 100) -> None:
        self.now = 0.0
        self.run = Governor(Budget(tokens=run), name="run", clock=lambda: self.now)
        self.ada = self.run.carve("ada", Budget(tokens=ada), guarantee=NO_GUARANTEE)
        self.bob = self.run.carve("bob", Budget(tokens=bob), guarantee=NO_GUARANTEE)
        self.read = self.run.beside("read", Budget(tokens=read))

    @property
    def spent(self) -> list[int]:
        return [governor.usage.tokens for governor in (self.run, self.ada, self.bob, self.read)]

    @property
    def held(self) -> list[int]:
        return [governor.held.tokens for governor in (self.run, self.ada, self.bob, self.read)]

    @property
    def left(self) -> list[int | None]:
        """What is not committed: of the run, of the members with a limit of their own, and of the map."""
        return [governor.unallotted.tokens for governor in (self.run, self.ada, self.bob, self.read)]


def tokens(amount: int) -> Units:
    return (amount, 0, 0, 0)


def elsewhere(call: Callable[[], Reservation]) -> Reservation:
    """Take a reservation that is not this caller's own."""
    return contextvars.copy_context().run(call)


# -- sums and limits --------------------------------------------------------------------------


def test_what_a_task_spends_counts_on_its_member_and_on_the_shared_governor() -> None:
    two = Two()
    first, second = two.ada.carve("read.0001", shared=two.read), two.bob.carve("read.0002", shared=two.read)
    other = two.ada.carve("write")
    hold = first.reserve(tokens=30)
    second.record_usage(prompt_tokens=20, completion_tokens=5)
    other.record_usage(prompt_tokens=7)
    assert (two.held, two.spent) == ([30, 30, 0, 30], [32, 7, 25, 25])
    hold.settle(10, 4)
    assert (two.held, two.spent) == ([0, 0, 0, 0], [46, 21, 25, 39])
    assert two.read.usage.completion_tokens == two.run.usage.completion_tokens == 9
    second.pre_step()
    assert [governor.usage.loops for governor in (two.run, two.ada, two.bob, two.read)] == [1, 0, 1, 1]


def test_a_hold_has_to_fit_on_both_lines_or_nothing_is_held() -> None:
    two = Two(ada=40, read=100)
    first, second = two.ada.carve("read.0001", shared=two.read), two.bob.carve("read.0002", shared=two.read)
    with pytest.raises(InsufficientBudget) as caught:
        first.reserve(tokens=41)
    assert (caught.value.origin, caught.value.left) == ("ada", 40)
    first.reserve(tokens=30)
    with pytest.raises(InsufficientBudget) as caught:
        second.reserve(tokens=71)
    assert (caught.value.origin, caught.value.left) == ("read", 70)
    assert (two.held, second.remaining.tokens, first.remaining.tokens) == ([30, 30, 0, 30], 70, 10)


def test_a_guarantee_is_set_aside_on_both_lines_or_on_neither() -> None:
    two = Two(run=200, ada=90, read=100)
    two.ada.carve("read.0001", guarantee=Budget(tokens=60), shared=two.read)
    assert two.left == [140, 30, 140, 40]
    for member, amount, short in ((two.ada, 31, "ada"), (two.bob, 41, "read")):
        with pytest.raises(InsufficientBudget) as caught:
            member.carve("read.0002", guarantee=Budget(tokens=amount), shared=two.read)
        assert caught.value.origin == short
        assert two.left == [140, 30, 140, 40]
    with pytest.raises(InsufficientBudget):
        two.bob.carve("write").reserve(tokens=141)
    with pytest.raises(InsufficientBudget):
        two.bob.carve("read.0002", shared=two.read).reserve(tokens=41)


def test_what_a_guarantee_covers_is_committed_once_on_each_line() -> None:
    two = Two(run=200, read=100)
    task = two.ada.carve("read.0001", guarantee=Budget(tokens=60), shared=two.read)
    inner = task.carve("review")
    hold = inner.reserve(tokens=50)
    assert (two.left, two.held) == ([140, 140, 140, 40], [50, 50, 0, 50])
    more = elsewhere(lambda: inner.reserve(tokens=50))
    assert two.left == [100, 100, 100, 0]
    more.settle(10)
    hold.settle(20)
    assert (two.left, two.spent) == ([140, 140, 140, 40], [30, 30, 0, 30])


def test_close_gives_back_to_both_lines() -> None:
    two = Two(run=200, read=100)
    task = two.ada.carve("read.0001", guarantee=Budget(tokens=60), shared=two.read)
    task.record_usage(prompt_tokens=5)
    task.reserve(tokens=8)
    task.close()
    assert (two.left, two.spent) == ([187, 187, 187, 87], [13, 13, 0, 13])


@pytest.mark.parametrize("truth", [0, 20, 30, 45])
def test_a_late_settle_replaces_the_charge_on_both_lines(truth: int) -> None:
    two = Two(run=200, read=100)
    task = two.ada.carve("read.0001", guarantee=Budget(tokens=40), shared=two.read)
    inner = task.carve("review")
    hold = inner.reserve(tokens=30)
    task.close()
    assert two.spent == [30, 30, 0, 30]
    hold.settle(truth // 2, truth - truth // 2)
    assert two.spent == [truth, truth, 0, truth]
    assert two.left == [200 - truth, 200 - truth, 200 - truth, 100 - truth]
    assert [one.usage.completion_tokens for one in (inner, two.ada, two.read)] == [truth - truth // 2] * 3


def test_late_usage_is_booked_on_both_lines_before_either_raises() -> None:
    two = Two(run=200, read=100)
    task = two.ada.carve("read.0001", shared=two.read)
    task.close()
    task.record_usage(prompt_tokens=7)
    assert two.spent == [7, 7, 0, 7]
    halt = halt_of(lambda: task.record_usage(prompt_tokens=93))
    assert (halt.origin, two.spent, two.read.halted) == ("read", [100, 100, 0, 100], HaltReason.TOKEN_BUDGET_EXCEEDED)
    assert two.run.halted is None
    two.read.close()
    task.restore(Usage(1))
    assert two.spent == [101, 101, 0, 101]


def test_a_hold_made_smaller_is_smaller_on_both_lines() -> None:
    two = Two()
    task = two.ada.carve("read.0001", shared=two.read)
    hold = task.reserve(tokens=80)
    hold.reduce(30)
    assert two.held == [30, 30, 0, 30]
    task.close()
    hold.reduce(10)
    assert two.spent == [10, 10, 0, 10]


def test_dollars_and_tool_calls_have_limits_on_the_shared_line_too() -> None:
    run = Governor(name="run")
    read = run.beside("read", Budget(dollars="0.5", loops=1, tool_calls=2))
    task = run.carve("ada").carve("read.0001", shared=read)
    task.reserve(dollars="0.5", tool_calls=2).settle(dollars="0.2")
    with pytest.raises(InsufficientBudget) as caught:
        task.reserve(tool_calls=1)
    assert (caught.value.origin, read.halted) == ("read", None)
    assert (task.remaining.dollars, read.usage.dollars, run.usage.tool_calls) == (Decimal("0.3"), Decimal("0.2"), 2)
    task.pre_step()
    assert halt_of(task.pre_step).reason is HaltReason.LOOP_BUDGET_EXCEEDED


def test_an_overshoot_shows_at_the_shared_governor_and_among_the_limits_that_were_passed() -> None:
    two = Two()
    task = two.ada.carve("read.0001", guarantee=Budget(tokens=10), shared=two.read)
    two.bob.carve("read.0002", shared=two.read).reserve(tokens=5).settle(130)
    assert (two.read.overshoot.tokens, two.run.overshoot.tokens) == (30, 0)
    assert two.run.passed_limits() == two.read.passed_limits() == [("read", TOKENS, 100, 30)]
    assert two.ada.passed_limits() == []
    assert halt_of(lambda: task.reserve(tokens=1)).origin == "read"


# -- children of both -------------------------------------------------------------------------


def test_a_share_is_the_smaller_part_of_both_lines() -> None:
    two = Two(run=1000, read=100)
    task, guarantee = two.ada.carve_share("read.0001", None, 0.5, 0.1, shared=two.read, shared_part=0.25)
    assert (guarantee, task.guarantee.tokens, two.left) == (tokens(25), 25, [975, 975, 975, 75])
    assert two.bob.carve_share("read.0002", None, 0.01, 0.1, shared=two.read, shared_part=1.0)[1] == tokens(8)
    assert two.bob.carve_share("read.0003", Budget(tokens=3), 0.5, 0.0, shared=two.read)[1] == tokens(3)
    assert two.bob.carve_share("read.0004", None, 0.0, 0.0, shared=two.read)[1] == tokens(0)
    assert two.bob.carve_share("read.0005", None, 0.01, 0.0, tokens(40), shared=two.read)[1] == tokens(40)
    with pytest.raises(InsufficientBudget) as caught:
        two.bob.carve_share("read.0006", None, 0.1, 0.0, tokens(40), shared=two.read)
    assert (caught.value.origin, caught.value.left) == ("read", 24)


def test_a_share_of_a_shared_governor_inside_another_is_no_more_than_that_has_left() -> None:
    two = Two(read=100)
    loop = two.read.carve_share("loop", Budget(tokens=90), 0.0, 0.0)[0]
    assert two.ada.carve_share("loop.01.write", None, 1.0, 0.0, shared=loop)[1] == tokens(90)
    other = two.read.carve_share("other", Budget(tokens=90), 0.0, 0.0)[0]
    with pytest.raises(InsufficientBudget) as caught:
        two.bob.carve_share("other.01.write", None, 1.0, 0.0, tokens(20), shared=other)
    assert (caught.value.origin, caught.value.left) == ("read", 10)
    assert two.bob.carve_share("other.01.write", None, 1.0, 0.0, shared=other)[1] == tokens(10)
    with pytest.raises(InsufficientBudget):
        two.bob.carve_share("other.01.test", None, 1.0, 0.0, shared=other)


def test_a_share_is_of_the_line_that_is_limited_in_a_dimension() -> None:
    run = Governor(Budget(tokens=100, tool_calls=0), name="run")
    read = run.beside("read", Budget(dollars="0.000000000100", tool_calls=10))
    assert run.carve_share("read.0001", None, 0.5, 0.0, shared=read, shared_part=0.5)[1] == (50, 50, 0, 0)
    free = run.beside("free")
    assert run.carve_share("free.0001", None, 0.5, 0.0, shared=free)[1] == (25, 0, 0, 0)


def test_below_a_task_the_smaller_of_both_lines_is_what_is_not_allotted() -> None:
    two = Two(run=1000, ada=80, read=100)
    task = two.ada.carve("read.0001", shared=two.read)
    assert (task.unallotted.tokens, task.unspent[0], task.allottable(0.25)[0]) == (80, 80, 60)
    two.bob.carve("read.0002", shared=two.read).record_usage(prompt_tokens=60)
    assert (task.unallotted.tokens, task.unspent[0], task.allottable(0.25)[0]) == (40, 40, 15)
    assert task.carve_share("inner", None, 0.5, 0.0)[1] == tokens(20)


def test_a_guarantee_decided_before_has_to_fit_on_both_lines() -> None:
    two = Two()
    task = two.ada.carve_with("read.0001", None, tokens(60), shared=two.read)
    assert (task.guarantee.tokens, two.left) == (60, [940, 940, 940, 40])
    with pytest.raises(InsufficientBudget, match="read"):
        two.bob.carve_with("read.0002", None, tokens(41), shared=two.read)
    assert two.left == [940, 940, 940, 40]


def test_a_top_up_of_a_task_takes_from_both_lines() -> None:
    two = Two()
    task = two.ada.carve("read.0001", Budget(tokens=60), shared=two.read)
    with pytest.raises(InsufficientBudget) as caught:
        task.top_up(Budget(tokens=41))
    assert (caught.value.origin, task.budget.tokens, two.left) == ("read", 60, [940, 940, 940, 40])
    task.top_up(Budget(tokens=30))
    assert two.left == [910, 910, 910, 10]
    free = two.bob.carve_share("read.0002", None, 0.0, 0.0, shared=two.read)[0]
    assert free.top_up_share("tokens", 0.5) == tokens(5)
    assert (two.left, free.guarantee.tokens) == ([905, 905, 905, 5], 5)


def test_a_top_up_of_the_shared_governor_raises_its_limit_and_lifts_its_exhaustion() -> None:
    two = Two()
    task = two.ada.carve("read.0001", shared=two.read)
    assert halt_of(lambda: task.record_usage(prompt_tokens=100)).origin == "read"
    two.read.top_up(Budget(tokens=20))
    assert (two.read.halted, task.remaining.tokens, two.left[0]) == (None, 20, 900)


def test_a_shared_governor_inside_another_has_both_limits() -> None:
    two = Two(read=100)
    loop = two.read.carve("loop", Budget(tokens=30), guarantee=NO_GUARANTEE)
    task = two.ada.carve("loop.01.write", shared=loop)
    task.record_usage(prompt_tokens=20)
    two.bob.carve("read.0002", shared=two.read).record_usage(prompt_tokens=75)
    assert (loop.usage.tokens, two.spent, task.remaining.tokens) == (20, [95, 20, 75, 95], 5)
    assert (loop.path, loop.name) == ("read/loop", "loop")
    two.read.close()
    assert loop.closed
    assert task.closed


def test_a_run_inside_a_task_has_a_shared_governor_of_its_own() -> None:
    two = Two()
    team = two.ada.carve("read.0001", shared=two.read).carve("team")
    inner = team.beside("inner", Budget(tokens=50))
    task = team.carve("eve").carve("inner.0001", shared=inner)
    with pytest.raises(ValueError, match="count twice"):
        team.carve("again", shared=two.read)
    task.record_usage(prompt_tokens=30)
    two.bob.carve("read.0002", shared=two.read).record_usage(prompt_tokens=60)
    assert (inner.usage.tokens, two.spent, task.remaining.tokens) == (30, [90, 30, 60, 90], 10)
    assert halt_of(lambda: task.reserve(tokens=20, minimum=Budget(tokens=11))).origin == "read"


def test_only_a_governor_that_was_opened_beside_a_parent_is_shared() -> None:
    two = Two()
    bad: list[Any] = [two.run, two.bob, two.bob.beside("his"), Governor(), Governor().beside("far"), "read", two.run]
    for shared in bad:
        with pytest.raises(ValueError, match=r"shared|opened beside"):
            two.ada.carve("read.0001", shared=shared)
        with pytest.raises(ValueError, match=r"shared|opened beside"):
            two.ada.carve_share("read.0001", None, 0.5, 0.0, shared=shared)
    assert two.left == [1000, 1000, 1000, 100]


def test_earlier_usage_of_a_shared_governor_counts_against_its_budget() -> None:
    run = Governor(Budget(tokens=1000), name="run", clock=lambda: 5.0)
    read = run.beside("read", Budget(tokens=100, seconds=10), restored_usage=Usage(60, 20, loops=3, seconds=7.0))
    task = run.carve("ada").carve("read.0001", shared=read)
    assert (task.remaining.tokens, task.remaining.seconds, read.usage) == (20, 3.0, Usage(60, 20, loops=3, seconds=7.0))
    assert run.usage == Usage()
    task.restore(Usage(10))
    read.restore(Usage(10), -1)
    assert (read.usage.tokens, run.usage.tokens, task.remaining.tokens) == (80, 10, 20)


# -- halts ------------------------------------------------------------------------------------


def test_a_shared_governor_that_is_used_up_refuses_its_tasks_and_no_other() -> None:
    two = Two()
    first, second = two.ada.carve("read.0001", shared=two.read), two.bob.carve("read.0002", shared=two.read)
    other = two.ada.carve("write")
    first.reserve(tokens=100).settle(100)
    reason = HaltReason.TOKEN_BUDGET_EXCEEDED
    for guard in (second.can_proceed, second.pre_step, first.can_proceed):
        halt = halt_of(guard)
        assert (halt.origin, halt.reason, halt.usage.tokens) == ("read", reason, 100)
    assert (first.halted, second.halted, other.halted, two.run.halted) == (reason, reason, None, None)
    other.can_proceed()
    with pytest.raises(HaltError):
        two.bob.carve("read.0003", shared=two.read)
    assert two.bob.carve_share("read.0003", None, 0.0, 0.0, shared=two.read)[0].halted is reason


def test_the_halt_of_a_member_leaves_the_tasks_of_others() -> None:
    two = Two()
    first, second = two.ada.carve("read.0001", shared=two.read), two.bob.carve("read.0002", shared=two.read)
    two.ada.cancel()
    assert (first.halted, second.halted, two.read.halted) == (HaltReason.CANCELLED, None, None)
    two.run.cancel(HaltReason.EMERGENCY_STOP)
    assert (second.halted, second.final) == (HaltReason.EMERGENCY_STOP, HaltReason.EMERGENCY_STOP)


def test_a_shared_governor_has_its_own_time() -> None:
    two = Two()
    read = two.run.beside("timed", Budget(seconds=10))
    task = two.ada.carve("timed.0001", Budget(seconds=20), shared=read)
    assert task.remaining.seconds == 10
    two.now = 10.0
    assert (halt_of(task.can_proceed).origin, two.ada.halted) == ("timed", None)


async def test_a_kill_interrupts_what_stands_under_the_shared_governor_and_nothing_else() -> None:
    two = Two()
    ended: list[str] = []

    async def work(task: Governor) -> None:
        try:
            async with task.scope():
                await anyio.sleep_forever()
        except HaltError as halt:
            ended.append(f"{task.name} {halt.origin}")

    async with anyio.create_task_group() as group:
        group.start_soon(work, two.ada.carve("read.0001", shared=two.read).carve("call"))
        group.start_soon(work, two.bob.carve("read.0002", shared=two.read))
        group.start_soon(work, two.bob.carve("write"))
        group.start_soon(work, two.read)
        await anyio.wait_all_tasks_blocked()
        two.read.cancel()
        await anyio.wait_all_tasks_blocked()
        assert sorted(ended) == ["call read", "read read", "read.0002 read"]
        two.run.cancel()
    assert ended[-1] == "write run"


# -- waiting ----------------------------------------------------------------------------------


class Waiting:
    """A caller of `hold` in a task of its own."""

    def __init__(self, governor: Governor, amount: int) -> None:
        self.governor, self.amount = governor, amount
        self.got: Reservation | None = None
        self.refused: Exception | None = None
        self.scope = anyio.CancelScope()

    async def __call__(self) -> None:
        with self.scope:
            try:
                self.got = await self.governor.hold(tokens=self.amount)
            except (InsufficientBudget, HaltError, GovernorClosed) as refused:
                self.refused = refused


async def rest() -> None:
    """Let everything that can run, run; what was posted to the loop included."""
    for _ in range(10):
        await checkpoint()
    await anyio.wait_all_tasks_blocked()


async def test_a_hold_waits_at_the_shared_governor_for_tasks_of_other_members() -> None:
    two = Two()
    first, second = two.ada.carve("read.0001", shared=two.read), two.bob.carve("read.0002", shared=two.read)
    hold = elsewhere(lambda: first.reserve(tokens=80))
    later, last = Waiting(second, 50), Waiting(two.ada.carve("read.0003", shared=two.read), 10)
    async with anyio.create_task_group() as group:
        group.start_soon(later)
        await rest()
        group.start_soon(last)
        await rest()
        assert (later.got, last.got) == (None, None)
        hold.settle(30)
        await rest()
    assert later.got is not None
    assert last.got is not None
    assert two.held == [60, 10, 50, 60]


async def test_a_close_serves_those_who_wait_on_either_line() -> None:
    two = Two(bob=100)
    first = two.ada.carve("read.0001", guarantee=Budget(tokens=60), shared=two.read)
    second = two.bob.carve("read.0002", shared=two.read)
    elsewhere(lambda: second.reserve(tokens=30))
    waiting = Waiting(second, 60)
    elsewhere(lambda: first.reserve(tokens=10))
    async with anyio.create_task_group() as group:
        group.start_soon(waiting)
        await rest()
        assert waiting.got is None
        first.close()
        await rest()
        assert waiting.got is not None
    assert (two.held, two.left) == ([90, 0, 90, 90], [900, 900, 10, 0])


async def test_closing_a_member_serves_those_who_wait_at_the_shared_governor() -> None:
    two = Two()
    task = two.ada.carve("read.0001", guarantee=Budget(tokens=60), shared=two.read)
    second = two.bob.carve("read.0002", shared=two.read)
    waiting = Waiting(second, 60)
    elsewhere(lambda: second.reserve(tokens=40)).reduce(30)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting)
        await rest()
        assert waiting.got is None
        assert task.held == Usage()
        two.ada.close()
        await rest()
        assert waiting.got is not None
    assert two.held == [90, 0, 90, 90]


async def test_closing_the_shared_governor_serves_those_who_wait_above_what_stands_under_it() -> None:
    two = Two(run=100)
    task = two.ada.carve("read.0001", shared=two.read)
    elsewhere(lambda: task.reserve(tokens=60))
    waiting = Waiting(two.bob, 50)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting)
        await rest()
        assert waiting.got is None
        two.read.close()
        await rest()
        assert waiting.got is not None, "what its task held is charged, and nobody else holds anything"
        assert waiting.got.tokens == 40
    assert two.spent == [60, 60, 0, 60]


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_the_end_of_the_shared_governor_sends_away_those_who_wait_under_it(how: str) -> None:
    two = Two()
    first, second = two.ada.carve("read.0001", shared=two.read), two.bob.carve("read.0002", shared=two.read)
    elsewhere(lambda: first.reserve(tokens=80))
    waiting = Waiting(second, 50)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting)
        await rest()
        getattr(two.read, how)()
        await rest()
    assert isinstance(waiting.refused, GovernorClosed if how == "close" else HaltError)


# -- closing and views ------------------------------------------------------------------------


def test_closing_the_shared_governor_closes_what_stands_under_it() -> None:
    two = Two()
    task = two.ada.carve("read.0001", guarantee=Budget(tokens=60), shared=two.read)
    task.reserve(tokens=20)
    two.read.close()
    assert (task.closed, two.ada.closed, two.spent, two.left[0]) == (True, False, [20, 20, 0, 20], 980)
    for call in (task.can_proceed, lambda: two.ada.carve("read.0002", shared=two.read)):
        with pytest.raises(GovernorClosed):
            call()
    with pytest.raises(GovernorClosed):
        two.ada.carve_with("read.0002", None, tokens(0), shared=two.read)


def test_a_shared_governor_is_closed_with_the_one_it_was_opened_beside() -> None:
    two = Two()
    his = two.bob.beside("his", Budget(tokens=5))
    two.bob.close()
    assert (his.closed, two.read.closed) == (True, False)
    two.run.close()
    assert two.read.closed
    with pytest.raises(GovernorClosed):
        two.run.beside("late")


@pytest.mark.parametrize("closed", [False, True])
def test_the_tree_of_a_shared_governor_shows_its_tasks_and_the_runs_tree_does_not_show_it(closed: bool) -> None:
    two = Two()
    for member, number in ((two.ada, 1), (two.bob, 2), (two.ada, 3)):
        task = member.carve(f"read.{number:04}", shared=two.read)
        task.carve("call").record_usage(prompt_tokens=number)
        if closed:
            task.close()
    if closed:
        two.read.close()
    tree = two.read.tree()
    assert (tree.path, tree.usage.tokens) == ("read", 6)
    assert [(one.path, one.usage.tokens) for one in tree.children] == [
        ("run/ada/read.0001", 1),
        ("run/bob/read.0002", 2),
        ("run/ada/read.0003", 3),
    ]
    assert tree.children[0].children[0].path == "run/ada/read.0001/call"
    assert [one.path for one in two.run.tree().children] == ["run/ada", "run/bob"]


def test_what_is_forgotten_is_forgotten_by_the_shared_governor_too() -> None:
    two = Two()
    task = two.ada.carve("read.0001", shared=two.read)
    task.record_usage(prompt_tokens=5)
    task.close()
    task.forget()
    assert (two.read.inside, two.ada.inside, two.spent) == ((), (), [5, 5, 0, 5])


def test_a_shared_governor_is_forgotten_with_the_one_it_was_opened_beside() -> None:
    runtime = Governor(name="runtime")
    run = runtime.carve("run")
    run.beside("read")
    run.carve("ada").beside("write")
    assert len(runtime._node.tree.beside) == 2
    run.close()
    run.forget()
    assert runtime._node.tree.beside == {}


async def test_third_o55_who_waits_at_a_shared_governor_is_woken_when_its_owner_closes() -> None:
    root = Governor(Budget(tokens=100))
    shared = root.beside("shared", Budget(tokens=10))
    refused: list[GovernorClosed] = []

    async def hold_all() -> None:
        with await shared.hold(tokens=10):
            await anyio.sleep_forever()

    async def wait() -> None:
        try:
            await shared.hold(tokens=10)
        except GovernorClosed as closed:
            refused.append(closed)
            group.cancel_scope.cancel()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(hold_all)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            root.close()
    assert len(refused) == 1
