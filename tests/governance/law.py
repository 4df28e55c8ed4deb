"""The state machine: every operation of a governor in any order, at any depth, each also done to the naive model.

After every step the law is checked at every node, and every sum, refusal, halt and remainder is what the model says.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from kairo_team.budget import HaltReason, Usage, to_dollars
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance import Governor, Reservation
from kairo_team.governance.ledger import COMMITTED, USED
from tests.governance.draws import (
    amount,
    amounts,
    branches,
    guarantees,
    limits,
    most_of_all,
    overshoots,
    restored,
    restored_halts,
    seconds,
    shares,
    truths,
)
from tests.governance.naive import (
    CALL,
    DIMENSIONS,
    DOLLARS,
    LOOPS,
    ONE_LOOP,
    TOKENS,
    TOOLS,
    UNLIMITED,
    ZERO,
    Limits,
    Naive,
    Vector,
    budget,
    only,
    plus,
    units,
    used,
    vector,
)

DEEPEST = 4
NAMES = ("tokens", "dollars", "loops", "tool_calls")

T = TypeVar("T")
Pair = tuple[Governor, Naive]
Held = tuple[Reservation, Naive, Vector]
Pairs = Pair | MultipleResults[Pair]


class GovernorLaw(RuleBasedStateMachine):
    """Carve, hold, settle, release, record, count, top up, cancel and close in any order, at any depth."""

    nodes: Bundle[Pair] = Bundle("nodes")
    holds: Bundle[Held] = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.governors: dict[Naive, Governor] = {}
        self.accounts: list[Pair] = []
        """The shared governors, and what was carved from them."""
        self.taken: list[Held] = []
        self.turn = 0
        self.sound = True

    @initialize(
        target=nodes,
        limit=most_of_all,
        seconds=seconds,
        earlier=restored,
        halt=restored_halts,
        more=branches,
        shared=most_of_all,
    )
    def plant(
        self,
        limit: Limits,
        seconds: float | None,
        earlier: Vector | None,
        halt: HaltReason | None,
        more: list[tuple[int, Limits, Vector | None, int | None]],
        shared: Limits,
    ) -> Pairs:
        usage = None
        self.root = root = Naive("root", None, limit, ZERO, deadline=seconds)
        if earlier is not None:
            usage = Usage(earlier[0] // 2, earlier[0] - earlier[0] // 2, to_dollars(earlier[1]), *earlier[2:], 500.0)
            root.book_late(earlier, usage.completion_tokens)
            root.started = -500.0
            root.deadline = None if seconds is None else seconds - 500.0
        if halt is not None:
            root.stop(halt)
        self.governors[root] = governor = Governor(
            budget(limit, seconds), name="root", clock=lambda: self.now, restored_usage=usage, restored_halt=halt
        )
        pairs = [(governor, root), self.open_beside((governor, root), shared, None, None)]
        for at, ceiling, guarantee, across in more:
            pairs += self.try_to_carve(pairs[at % len(pairs)], ceiling, guarantee, None, across)
        return multiple(*pairs)

    # -- how things are done ------------------------------------------------------------------

    def do(self, call: Callable[[], T]) -> T:
        """Do something as a caller that holds nothing yet."""
        return contextvars.copy_context().run(call)

    def refuses(self, error: type[Exception] | tuple[type[Exception], ...], call: Callable[[], object]) -> Any:
        with pytest.raises(error) as caught:
            self.do(call)
        return caught.value

    def halts(self, call: Callable[[], object], model: Naive) -> None:
        halted = model.halted()
        assert halted is not None
        error = self.refuses(HaltError, call)
        assert (error.reason, error.origin) == (halted.halt, halted.name)
        assert used(error.usage) == vector([halted.spent(dim) for dim in DIMENSIONS])

    def may_not_start(self, call: Callable[[], object], model: Naive) -> bool:
        """Check that a guard refuses on a node that is closed or halted, or whose time is up; say whether it is."""
        if model.closed and not model.halted():
            self.refuses(GovernorClosed, call)
            return True
        model.look_at_the_clock(self.now)
        if model.halted():
            self.halts(call, model)
            return True
        return False

    def does_not_fit(self, call: Callable[[], object], model: Naive, asked: Vector, least: Vector) -> None:
        hopeless = model.hopeless(asked, least)
        if hopeless is None:
            self.refuses(InsufficientBudget, call)
        else:
            node, dim = hopeless
            node.exhaust(dim)
            self.halts(call, model)

    def adopt(
        self,
        child: Governor,
        parent: Naive,
        limit: Limits,
        guarantee: Vector,
        seconds: float | None,
        shared: Naive | None,
    ) -> Pair:
        due = None if seconds is None else self.now + seconds
        model = Naive(child.name, parent, limit, guarantee, started=self.now, deadline=due, shared=shared)
        for one in model.above():
            one.children.append(model)
        self.governors[model] = child
        if any(parent is account for _, account in self.accounts):
            self.accounts.append((child, model))
        return child, model

    # -- shared governors ---------------------------------------------------------------------

    @rule(target=nodes, at=nodes, limit=limits, seconds=seconds, earlier=restored, odds=st.integers(0, 2))
    def beside(self, at: Pair, limit: Limits, seconds: float | None, earlier: Vector | None, odds: int) -> Pairs:
        governor, model = at
        if odds:
            return multiple()
        if model.closed:
            self.refuses(GovernorClosed, partial(governor.beside, "late", budget(limit, seconds)))
            return multiple()
        return self.open_beside(at, limit, seconds, earlier)

    def open_beside(self, at: Pair, limit: Limits, seconds: float | None, earlier: Vector | None) -> Pair:
        governor, owner = at
        due = None if seconds is None else self.now + seconds
        model = Naive(f"s{len(self.governors)}", None, limit, ZERO, started=self.now, deadline=due)
        usage = None
        if earlier is not None:
            usage = Usage(earlier[0] // 2, earlier[0] - earlier[0] // 2, to_dollars(earlier[1]), *earlier[2:], 500.0)
            model.book_late(earlier, usage.completion_tokens)
            model.started -= 500.0
            model.deadline = None if due is None else due - 500.0
        opened = self.do(partial(governor.beside, model.name, budget(limit, seconds), restored_usage=usage))
        owner.beside.append(model)
        self.governors[model] = opened
        self.accounts.append((opened, model))
        return opened, model

    def refuses_to_share(self, call: Callable[[], object], model: Naive, shared: Naive | None) -> bool:
        """Check that a child that may not stand under a shared node, or no more, is not carved; say whether it is."""
        if shared is None or (not shared.closed and model.may_share(shared)):
            return False
        self.refuses(GovernorClosed if model.may_share(shared) else ValueError, call)
        return True

    # -- children -----------------------------------------------------------------------------

    @rule(target=nodes, at=nodes, limit=limits, guarantee=guarantees, seconds=seconds, across=shares)
    def carve(
        self, at: Pair, limit: Limits, guarantee: Vector | None, seconds: float | None, across: int | None
    ) -> Pairs:
        return multiple(*self.try_to_carve(at, limit, guarantee, seconds, across))

    @rule(target=nodes, at=nodes)
    def carve_one_as_large(self, at: Pair) -> Pairs:
        """Make a child whose ceiling is reached when its parent's is."""
        return multiple(*self.try_to_carve(at, at[1].limit, ZERO, None, None))

    def choose_account(self, across: int | None) -> Pair | tuple[None, None]:
        return (None, None) if across is None else self.accounts[across % len(self.accounts)]

    def try_to_carve(
        self, at: Pair, limit: Limits, guarantee: Vector | None, seconds: float | None, across: int | None
    ) -> list[Pair]:
        governor, model = at
        account, shared = self.choose_account(across)
        if model.depth() >= DEEPEST:
            return []
        wanted = vector([most or 0 for most in limit]) if guarantee is None else guarantee
        call = partial(
            governor.carve,
            f"n{len(self.governors)}",
            budget(limit, seconds),
            guarantee=None if guarantee is None else budget(guarantee),
            shared=account,
        )
        if any(most is not None and some > most for most, some in zip(limit, wanted, strict=True)):
            self.refuses(ValueError, call)
        elif (
            self.may_not_start(call, model)
            or self.refuses_to_share(call, model, shared)
            or (shared is not None and self.may_not_start(call, shared))
        ):
            pass
        elif model.fits_for_child(wanted, shared):
            return [self.adopt(self.do(call), model, limit, wanted, seconds, shared)]
        else:
            self.refuses(InsufficientBudget, call)
        return []

    @rule(
        target=nodes,
        at=nodes,
        ceiling=limits,
        part=st.sampled_from([0.25, 0.5, 1.0]),
        reserve=st.sampled_from([0.0, 0.25, 0.5]),
        least=st.just(ZERO) | amounts,
        across=shares,
        shared_part=st.sampled_from([0.25, 0.5, 1.0]),
    )
    def carve_share(
        self,
        at: Pair,
        ceiling: Limits,
        part: float,
        reserve: float,
        least: Vector,
        across: int | None,
        shared_part: float,
    ) -> Pairs:
        governor, model = at
        account, shared = self.choose_account(across)
        if model.depth() >= DEEPEST:
            return multiple()
        name = f"n{len(self.governors)}"
        call = partial(
            governor.carve_share,
            name,
            budget(ceiling),
            part,
            reserve,
            least,
            shared=account,
            shared_part=shared_part,
        )
        if model.closed:
            self.refuses(GovernorClosed, call)
            return multiple()
        if self.refuses_to_share(call, model, shared):
            return multiple()
        wanted = model.share(part, reserve, ceiling, least, None if shared is None else (shared, shared_part))
        if wanted is not None and model.fits_for_child(wanted, shared):
            child, share = self.do(call)
            assert share == wanted
            return self.adopt(child, model, ceiling, wanted, None, shared)
        self.refuses(InsufficientBudget, call)
        return multiple()

    @rule(at=nodes, more=amounts, seconds=seconds)
    def top_up(self, at: Pair, more: Vector, seconds: float | None) -> None:
        governor, model = at
        call = partial(governor.top_up, budget(more, seconds))
        if model.closed:
            self.refuses(GovernorClosed, call)
            return
        if model.parent is not None and not model.parent.fits_for_child(model.draw(more), model.shared):
            self.refuses(InsufficientBudget, call)
            return
        self.do(call)
        model.enlarge(more, seconds)

    @rule(at=nodes, dim=st.sampled_from(DIMENSIONS), part=st.sampled_from([0.0, 0.25, 1.0]), asked=st.integers(0, 12))
    def top_up_share(self, at: Pair, dim: int, part: float, asked: int) -> None:
        governor, model = at
        lines = [] if model.parent is None or model.closed else [one.unallotted(dim) for one in model.above()]
        left = min([one for one in lines if one is not None], default=None)
        more = ZERO
        if model.parent is not None and left:
            ceiling = model.limit[dim]
            wanted = max(1, int(left * part))
            unused = model.guarantee[dim] - model.committed(dim)
            if asked > unused and asked and model.fits(only(dim, asked)):
                wanted = max(wanted, asked - unused)
            more = only(dim, wanted if ceiling is None else min(wanted, ceiling - model.guarantee[dim]))
            if not model.parent.fits_for_child(model.draw(more), model.shared):
                more = ZERO
        assert self.do(partial(governor.top_up_share, NAMES[dim], part, asked)) == more
        model.guarantee = plus(model.guarantee, more)

    @rule(at=nodes, odds=st.integers(0, 3))
    def close(self, at: Pair, odds: int) -> None:
        governor, model = at
        if odds or (model is self.root and len(self.governors) < 8):
            return
        self.do(governor.close)
        model.close(self.now)

    @rule(hold=holds)
    def close_under_a_hold(self, hold: Held) -> None:
        reservation, model, _ = hold
        if reservation.open and model is not self.root:
            self.do(self.governors[model].close)
            model.close(self.now)

    # -- holds --------------------------------------------------------------------------------

    @rule(target=holds, at=nodes, asked=amounts, least=st.integers(1, 12))
    def reserve(self, at: Pair, asked: Vector, least: int) -> Held | MultipleResults[Held]:
        governor, model = at
        least = min(least, asked[TOKENS])
        minimum = budget(only(TOKENS, least)) if least else None
        call = partial(governor.reserve, asked[TOKENS], to_dollars(asked[DOLLARS]), asked[TOOLS], minimum=minimum)
        if self.may_not_start(call, model):
            return multiple()
        if model.fits(asked):
            model.holds.append(asked)
            self.taken.append((self.do(call), model, asked))
            return self.taken[-1]
        self.does_not_fit(call, model, asked, (least, 1, 1, 1))
        return multiple()

    @rule(hold=holds, truth=st.one_of(truths, overshoots), completion=amount)
    def settle(self, hold: Held, truth: Vector, completion: int) -> None:
        reservation, model, held = hold
        completion = min(completion, truth[TOKENS])
        call = partial(
            reservation.settle, truth[TOKENS] - completion, completion, to_dollars(truth[DOLLARS]), truth[TOOLS]
        )
        if not reservation.open:
            self.refuses(GovernorClosed, call)
            return
        self.do(call)
        model.end(held, truth, completion)
        assert reservation.overshoot is any(truth[dim] > held[dim] for dim in CALL)

    @rule(target=holds, hold=consumes(holds), most=amounts)
    def reduce(self, hold: Held, most: Vector) -> Held:
        reservation, model, held = hold
        call = partial(reservation.reduce, most[TOKENS], to_dollars(most[DOLLARS]))
        if not reservation.open:
            self.refuses(GovernorClosed, call)
            return hold
        self.do(call)
        still = (min(held[TOKENS], most[TOKENS]), min(held[DOLLARS], most[DOLLARS]), 0, held[TOOLS])
        model.reduce(held, still)
        self.taken = [one for one in self.taken if one is not hold]
        self.taken.append((reservation, model, still))
        return self.taken[-1]

    @rule(at=nodes, dim=st.sampled_from(CALL))
    def use_up(self, at: Pair, dim: int) -> None:
        """Hold all there is, and use all of it."""
        governor, model = at
        rooms = model.room(dim, 200).values()
        everything = only(dim, min(rooms))
        if model.closed or model.halted() or model.overdue(self.now) or min(rooms) == 200:
            return
        tokens, dollars, _, tools = everything
        self.do(lambda: governor.reserve(tokens, to_dollars(dollars), tools).settle(tokens, 0, to_dollars(dollars)))
        model.own_spent = plus(model.own_spent, everything)

    @rule(at=nodes, dim=st.sampled_from(CALL), beyond=st.integers(1, 9))
    def overdraw(self, at: Pair, dim: int, beyond: int) -> None:
        """Settle a truth beyond a limit, which halts nobody; then draw on every guarantee there is."""
        governor, model = at
        left = [most - one.used(dim) for one in model.line() if (most := one.limit[dim]) is not None]
        if model.closed or model.halted() or model.overdue(self.now) or not left:
            return
        truth = only(dim, max(0, min(left)) + beyond)
        tokens, dollars, _, tools = truth
        self.do(lambda: governor.reserve().settle(tokens, 0, to_dollars(dollars), tools))
        model.book_late(truth)
        self.settle_down()
        for node, other in [*self.governors.items()]:
            if node.guarantee[dim] > node.committed(dim):
                self.reserve((other, node), only(dim, 1), 1)

    @rule(hold=holds)
    def release(self, hold: Held) -> None:
        reservation, model, held = hold
        if not reservation.open:
            self.refuses(GovernorClosed, reservation.release)
            return
        self.do(reservation.release)
        model.end(held, ZERO)

    @rule(hold=holds, error=st.sampled_from([None, RuntimeError, KeyboardInterrupt]))
    def leave_unsettled(self, hold: Held, error: type[BaseException] | None) -> None:
        reservation, model, held = hold
        if not reservation.open:
            return

        def leave() -> None:
            with suppress(RuntimeError, KeyboardInterrupt), reservation:
                if error is not None:
                    raise error

        self.do(leave)
        model.end(held, held)

    def may_use_threads(self) -> bool:
        """Return whether threads get what fits now."""
        return True

    @rule(at=nodes, asked=st.integers(1, 4), rounds=st.integers(1, 3))
    def threads(self, at: Pair, asked: int, rounds: int) -> None:
        """Three threads at once, each holding, carving, settling and closing where there is room for all of them."""
        governor, model = at
        if model.closed or model.halted() or model.overdue(self.now) or not model.fits((3 * asked * rounds, 0, 0, 0)):
            return
        if not self.may_use_threads():
            return

        def work() -> None:
            for _ in range(rounds):
                task = governor.carve("thread", guarantee=budget(only(TOKENS, asked)))
                with task.reserve(tokens=asked) as hold:
                    hold.settle(asked - 1, 1)
                task.close()

        switching = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        workers = [threading.Thread(target=self.do, args=(work,)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        sys.setswitchinterval(switching)
        spent, completion = 3 * asked * rounds, 3 * rounds
        model.children.append(
            Naive("threads", model, UNLIMITED, ZERO, 0, None, only(TOKENS, spent), completion, ended=self.now)
        )

    # -- spending and guards ------------------------------------------------------------------

    @rule(at=nodes, truth=truths, completion=amount)
    def record(self, at: Pair, truth: Vector, completion: int) -> None:
        governor, model = at
        completion = min(completion, truth[TOKENS])
        call = partial(
            governor.record_usage, truth[TOKENS] - completion, completion, to_dollars(truth[DOLLARS]), truth[TOOLS]
        )
        for here in model.nearest_open():
            here.book_late(truth, completion)
        still_open = [here for here in model.nearest_open() if not here.closed]
        for here in still_open:
            for dim in CALL:
                crossed = here.outermost(dim, 1) if truth[dim] else None
                if crossed is not None:
                    crossed.exhaust(dim, stop=True)
        for here in still_open:
            here.look_at_the_clock(self.now)
            if here.halted():
                self.halts(call, here)
                return
        self.do(call)

    @rule(at=nodes, dim=st.sampled_from(CALL))
    def record_the_rest(self, at: Pair, dim: int) -> None:
        """Spend exactly up to a limit."""
        left = [most - one.spent(dim) for one in at[1].line() if (most := one.limit[dim]) is not None]
        if left and min(left) > 0:
            self.record(at, only(dim, min(left)), 0)

    @rule(at=nodes)
    def step(self, at: Pair) -> None:
        governor, model = at
        if self.may_not_start(governor.pre_step, model):
            return
        spent = model.used_up(least=1)
        if spent is not None:
            spent[0].exhaust(spent[1])
            self.halts(governor.pre_step, model)
        elif model.fits(ONE_LOOP):
            self.do(governor.pre_step)
            model.own_spent = vector([some + (dim == LOOPS) for dim, some in enumerate(model.own_spent)])
        else:
            self.does_not_fit(governor.pre_step, model, ONE_LOOP, ONE_LOOP)

    @rule(at=nodes)
    def proceed(self, at: Pair) -> None:
        governor, model = at
        if self.may_not_start(governor.can_proceed, model):
            return
        spent = model.used_up()
        if spent is None:
            self.do(governor.can_proceed)
        else:
            spent[0].exhaust(spent[1])
            self.halts(governor.can_proceed, model)

    @rule(at=nodes, odds=st.integers(0, 4), reason=st.sampled_from([HaltReason.CANCELLED, HaltReason.EMERGENCY_STOP]))
    def cancel(self, at: Pair, odds: int, reason: HaltReason) -> None:
        governor, model = at
        if odds or model is self.root:
            return
        self.do(partial(governor.cancel, reason))
        model.stop(reason)

    @rule(passing=st.sampled_from([100.0, 500.0, 1000.0]), odds=st.integers(0, 1), at=nodes)
    def time_passes(self, passing: float, odds: int, at: Pair) -> None:
        """Move the clock, in half of all cases exactly to the next deadline."""
        due = [node.deadline for node in at[1].line() if node.deadline is not None]
        self.now = max(self.now, min(due)) if due and odds else self.now + passing

    # -- what holds after every step ----------------------------------------------------------

    def settle_down(self) -> None:
        """Let everything that can go on, go on, and tell the model."""

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        self.sound = False
        self.settle_down()
        for model, governor in self.governors.items():
            self.check_sums(model, governor)
            self.check_law(model, governor)
        self.turn += 1
        self.check_remaining(*[*self.governors.items()][self.turn % len(self.governors)])
        if len(self.governors) < 6:
            assert self.governors[self.root].tree().usage.tokens == self.root.spent(TOKENS)
        self.sound = True

    def teardown(self) -> None:
        """End what is open: then all that was not spent is there again, and no refund was lost on the way."""
        if not self.sound or not self.governors:
            return
        for reservation, model, held in self.taken:
            if reservation.open:
                reservation.release()
                model.end(held, ZERO)
        self.everything_is_as_the_model_says()
        outermost = [model for model in self.governors if model.parent is None]
        for model in [child for one in outermost for child in one.children]:
            if model in self.governors:
                self.governors[model].close()
            model.close(self.now)
        self.everything_is_as_the_model_says()
        for one in outermost:
            governor = self.governors[one]
            assert governor.held == Usage()
            if not one.closed:
                left = [None if most is None else max(0, most - one.spent(dim)) for dim, most in enumerate(one.limit)]
                assert units(governor.remaining) == tuple(left)

    def check_sums(self, model: Naive, governor: Governor) -> None:
        usage, halt = governor.status()
        halted, interrupted = model.halted(), model.interrupted()
        assert used(usage) == vector([model.spent(dim) for dim in DIMENSIONS])
        assert usage.completion_tokens == model.completion()
        assert usage.seconds == governor.elapsed == (self.now if model.ended is None else model.ended) - model.started
        assert used(governor.held) == vector([model.held(dim) for dim in DIMENSIONS])
        assert halt is (halted and halted.halt)
        assert governor.stopped is (interrupted and interrupted.halt)
        assert governor.closed is model.closed
        assert units(governor.budget) == model.limit

    def check_law(self, model: Naive, governor: Governor) -> None:
        """spent + held <= committed <= limit, but for what was booked without having been held."""
        over, cells = used(governor.overshoot), governor._node.cells
        for dim, limit in enumerate(model.limit):
            committed = model.committed(dim)
            assert model.used(dim) <= committed
            if not model.closed:
                assert cells[COMMITTED + dim] == committed
                assert cells[USED + dim] == model.used(dim)
            if limit is not None:
                assert over[dim] == max(0, model.used(dim) - limit)
                assert committed <= limit + model.booked_late(dim)

    def check_remaining(self, model: Naive, governor: Governor) -> None:
        if model.closed:
            assert units(governor.remaining) == ZERO
            return
        due = min([node.deadline for node in model.line() if node.deadline is not None], default=None)
        assert governor.remaining.seconds == (None if due is None else max(0.0, due - self.now))
        assert units(governor.unallotted) == tuple(model.unallotted(dim) for dim in DIMENSIONS)
        for dim, left in enumerate(units(governor.remaining)):
            if left is None:
                assert all(node.limit[dim] is None for node in model.line())
            else:
                assert not left or model.fits(only(dim, left))
                assert not model.fits(only(dim, left + 1))
