"""The law of the ledger, on random trees, against a naive model that was written apart from it.

At every node, after every step: spent + held <= committed <= limit, but for truths booked late; and every sum,
refusal, halt and remainder is what the model says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from kairo_team.budget import PICODOLLARS, Budget, HaltReason, Usage, to_dollars
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance import Governor, Reservation

TOKENS, DOLLARS, LOOPS, TOOLS = range(4)
CALL = (TOKENS, DOLLARS, TOOLS)
REASON = {
    TOKENS: HaltReason.TOKEN_BUDGET_EXCEEDED,
    DOLLARS: HaltReason.DOLLAR_BUDGET_EXCEEDED,
    LOOPS: HaltReason.LOOP_BUDGET_EXCEEDED,
    TOOLS: HaltReason.TOOL_BUDGET_EXCEEDED,
}
DEEPEST = 4

Vector = tuple[int, int, int, int]
ZERO: Vector = (0, 0, 0, 0)


def plus(a: Vector, b: Vector) -> Vector:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])


@dataclass(eq=False)
class Naive:
    """A node that keeps only what happened to itself and adds everything up anew each time."""

    name: str
    parent: Naive | None
    limit: tuple[int | None, ...]
    guarantee: Vector
    own_spent: Vector = ZERO
    own_completion: int = 0
    holds: list[Vector] = field(default_factory=list)
    children: list[Naive] = field(default_factory=list)
    closed: bool = False
    halt: HaltReason | None = None
    final: bool = False
    exhausted: int | None = None

    def line(self) -> list[Naive]:
        return [self, *(self.parent.line() if self.parent else [])]

    def depth(self) -> int:
        return len(self.line())

    def spent(self, dim: int) -> int:
        return self.own_spent[dim] + sum(child.spent(dim) for child in self.children)

    def completion(self) -> int:
        return self.own_completion + sum(child.completion() for child in self.children)

    def own_held(self, dim: int) -> int:
        return 0 if self.closed else sum(hold[dim] for hold in self.holds)

    def held(self, dim: int) -> int:
        return self.own_held(dim) + sum(child.held(dim) for child in self.children)

    def committed(self, dim: int) -> int:
        return (
            self.own_spent[dim]
            + self.own_held(dim)
            + sum(c.spent(dim) if c.closed else max(c.guarantee[dim], c.committed(dim)) for c in self.children)
        )

    def fits(self, amounts: Vector) -> bool:
        """Try it out, look at every node that has to commit more, and take it back."""
        before = [[node.committed(dim) for dim in range(4)] for node in self.line()]
        self.holds.append(amounts)
        try:
            for node, old in zip(self.line(), before, strict=True):
                for dim, limit in enumerate(node.limit):
                    new = node.committed(dim)
                    if limit is None or not amounts[dim]:
                        continue
                    if (new > limit and new > old[dim]) or node.spent(dim) + node.held(dim) > limit:
                        return False
        finally:
            self.holds.pop()
        return True

    def fits_for_child(self, amounts: Vector) -> bool:
        child = Naive("try", self, (None,) * 4, amounts)
        before = [[node.committed(dim) for dim in range(4)] for node in self.line()]
        self.children.append(child)
        try:
            for node, old in zip(self.line(), before, strict=True):
                for dim, limit in enumerate(node.limit):
                    new = node.committed(dim)
                    if limit is None or not amounts[dim]:
                        continue
                    if (new > limit and new > old[dim]) or node.spent(dim) + node.held(dim) + amounts[dim] > limit:
                        return False
        finally:
            self.children.pop()
        return True

    def halted(self) -> HaltReason | None:
        return next((node.halt for node in self.line() if node.halt), None)

    def outermost(self, dim: int, least: int) -> Naive | None:
        short = [n for n in self.line() if (m := n.limit[dim]) is not None and n.spent(dim) + least > m]
        return short[-1] if short else None

    def exhaust(self, dim: int) -> None:
        if self.halt is None:
            self.halt, self.exhausted = REASON[dim], dim

    def close(self) -> None:
        for child in self.children:
            if not child.closed:
                child.close()
        for hold in self.holds:
            self.own_spent = plus(self.own_spent, hold)
        self.closed = True

    def nearest_open(self) -> Naive:
        return next((node for node in self.line() if not node.closed), self.line()[-1])

    def family(self) -> list[Naive]:
        return [self, *(below for child in self.children for below in child.family())]


def budget(limit: tuple[int | None, ...]) -> Budget:
    tokens, dollars, loops, tools = limit
    return Budget(tokens, None if dollars is None else to_dollars(dollars), loops, tools)


def units(value: Budget) -> tuple[int | None, ...]:
    dollars = None if value.dollars is None else int(value.dollars * PICODOLLARS)
    return (value.tokens, dollars, value.loops, value.tool_calls)


def used(usage: Usage) -> Vector:
    return (usage.tokens, int(usage.dollars * PICODOLLARS), usage.loops, usage.tool_calls)


amount = st.integers(0, 12)
amounts = st.tuples(amount, amount, st.just(0), st.integers(0, 4))
limit = st.one_of(st.none(), st.integers(0, 60))
limits = st.tuples(limit, limit, limit, limit)


class GovernorLaw(RuleBasedStateMachine):
    """Carve, hold, settle, release, record, count, top up, cancel and close in any order, at any depth."""

    nodes = Bundle("nodes")
    holds = Bundle("holds")

    @initialize(target=nodes, limit=limits)
    def plant(self, limit: tuple[int | None, ...]) -> tuple[Governor, Naive]:
        self.now = 0.0
        self.root = Naive("root", None, limit, ZERO)
        self.governors = {self.root: Governor(budget(limit), name="root", clock=lambda: self.now)}
        self.late = False
        self.turn = 0
        return self.governors[self.root], self.root

    @rule(target=nodes, at=nodes, limit=limits, guarantee=st.one_of(st.none(), amounts))
    def carve(self, at: tuple[Governor, Naive], limit: tuple[int | None, ...], guarantee: Vector | None) -> object:
        governor, model = at
        if model.depth() >= DEEPEST:
            return multiple()
        asked = tuple(most or 0 for most in limit) if guarantee is None else guarantee
        wanted = (asked[0], asked[1], asked[2], asked[3])
        set_aside = None if guarantee is None else budget(guarantee)
        name = f"n{len(self.governors)}"
        if model.closed:
            with pytest.raises((GovernorClosed, ValueError)):
                governor.carve(name, budget(limit), guarantee=set_aside)
        elif any(most is not None and some > most for most, some in zip(limit, wanted, strict=True)):
            with pytest.raises(ValueError, match="more than the ceiling"):
                governor.carve(name, budget(limit), guarantee=set_aside)
        elif not model.fits_for_child(wanted):
            with pytest.raises(InsufficientBudget):
                governor.carve(name, budget(limit), guarantee=set_aside)
        else:
            child = governor.carve(name, budget(limit), guarantee=set_aside)
            below = Naive(name, model, limit, wanted)
            model.children.append(below)
            self.governors[below] = child
            return child, below
        return multiple()

    @rule(target=holds, at=nodes, asked=amounts, least=st.integers(1, 12))
    def reserve(self, at: tuple[Governor, Naive], asked: Vector, least: int) -> object:
        governor, model = at
        minimum = Budget(tokens=min(least, asked[TOKENS])) if asked[TOKENS] else None
        call = partial(governor.reserve, asked[0], to_dollars(asked[1]), asked[3], minimum=minimum)
        if model.closed:
            with pytest.raises(GovernorClosed):
                call()
        elif model.halted():
            self.expect_halt(call, model)
        elif model.fits(asked):
            model.holds.append(asked)
            return call(), model, asked
        else:
            self.expect_refusal(call, model, {TOKENS: min(least, asked[TOKENS]), DOLLARS: 1}, asked)
        return multiple()

    def expect_halt(self, call: Callable[[], object], model: Naive) -> None:
        with pytest.raises(HaltError) as caught:
            call()
        assert caught.value.reason is model.halted()

    def expect_refusal(self, call: Callable[[], object], model: Naive, least: dict[int, int], asked: Vector) -> None:
        for dim, minimum in least.items():
            short = model.outermost(dim, minimum) if asked[dim] else None
            if short is not None:
                short.exhaust(dim)
                self.expect_halt(call, model)
                return
        with pytest.raises(InsufficientBudget):
            call()

    @rule(hold=holds, truth=amounts, completion=amount)
    def settle(self, hold: tuple[Reservation, Naive, Vector], truth: Vector, completion: int) -> None:
        reservation, model, held = hold
        completion = min(completion, truth[TOKENS])
        call = partial(reservation.settle, truth[0] - completion, completion, to_dollars(truth[1]), truth[3])
        if held not in model.holds:
            return
        if not reservation.open:
            with pytest.raises(GovernorClosed):
                call()
            return
        call()
        self.end(model, held, truth, completion)
        assert reservation.overshoot is any(truth[dim] > held[dim] for dim in CALL)

    @rule(hold=holds)
    def release(self, hold: tuple[Reservation, Naive, Vector]) -> None:
        reservation, model, held = hold
        if reservation.open:
            reservation.release()
            self.end(model, held, ZERO, 0)

    @rule(hold=holds)
    def leave_unsettled(self, hold: tuple[Reservation, Naive, Vector]) -> None:
        reservation, model, held = hold
        if reservation.open:
            with reservation:
                pass
            self.end(model, held, held, 0)

    def end(self, model: Naive, held: Vector, truth: Vector, completion: int) -> None:
        if model.closed:
            model.own_spent = plus(model.own_spent, (-held[0], -held[1], -held[2], -held[3]))
        model.holds.remove(held)
        model.own_spent = plus(model.own_spent, truth)
        model.own_completion += completion
        self.late = self.late or any(truth[dim] > held[dim] for dim in range(4))

    @rule(at=nodes, truth=amounts)
    def record(self, at: tuple[Governor, Naive], truth: Vector) -> None:
        governor, model = at
        call = partial(governor.record_usage, truth[0], 0, to_dollars(truth[1]), truth[3])
        here = model.nearest_open()
        here.own_spent = plus(here.own_spent, truth)
        self.late = True
        if here.closed:
            call()
            return
        for dim in CALL:
            crossed = here.outermost(dim, 1) if truth[dim] else None
            if crossed is not None:
                crossed.exhaust(dim)
        if here.halted():
            self.expect_halt(call, here)
        else:
            call()

    @rule(at=nodes)
    def step(self, at: tuple[Governor, Naive]) -> None:
        governor, model = at
        one = (0, 0, 1, 0)
        if model.closed:
            with pytest.raises(GovernorClosed):
                governor.pre_step()
        elif model.halted():
            self.expect_halt(governor.pre_step, model)
        elif model.fits(one):
            governor.pre_step()
            model.own_spent = plus(model.own_spent, one)
        else:
            self.expect_refusal(governor.pre_step, model, {LOOPS: 1}, one)

    @rule(at=nodes)
    def proceed(self, at: tuple[Governor, Naive]) -> None:
        governor, model = at
        if model.closed:
            with pytest.raises(GovernorClosed):
                governor.can_proceed()
            return
        if not model.halted():
            self.find_used_up(model)
        if model.halted():
            self.expect_halt(governor.can_proceed, model)
        else:
            governor.can_proceed()

    def find_used_up(self, model: Naive) -> None:
        for dim in (TOKENS, DOLLARS):
            used_up = [
                node
                for node in model.line()
                if (most := node.limit[dim]) is not None and node.spent(dim) >= most and (most or dim == TOKENS)
            ]
            if used_up:
                used_up[-1].exhaust(dim)
                return

    @rule(at=nodes, more=amounts)
    def top_up(self, at: tuple[Governor, Naive], more: Vector) -> None:
        governor, model = at
        extra = budget(more)
        if model.closed:
            with pytest.raises(GovernorClosed):
                governor.top_up(extra)
            return
        if model.parent is not None:
            draw = tuple(
                max(model.guarantee[dim] + more[dim], model.committed(dim))
                - max(model.guarantee[dim], model.committed(dim))
                for dim in range(4)
            )
            if not model.parent.fits_for_child((draw[0], draw[1], draw[2], draw[3])):
                with pytest.raises(InsufficientBudget):
                    governor.top_up(extra)
                return
            model.guarantee = plus(model.guarantee, more)
        governor.top_up(extra)
        model.limit = tuple(None if most is None else most + some for most, some in zip(model.limit, more, strict=True))
        dim = model.exhausted
        if dim is not None and more[dim] and not model.final:
            most = model.limit[dim]
            if most is None or model.spent(dim) < most:
                model.halt = model.exhausted = None

    @rule(at=nodes, odds=st.integers(0, 4))
    def cancel(self, at: tuple[Governor, Naive], odds: int) -> None:
        governor, model = at
        if odds or model is self.root:
            return
        governor.cancel()
        model.final = True
        if model.halt is None:
            model.halt, model.exhausted = HaltReason.CANCELLED, None

    @rule(at=nodes, odds=st.integers(0, 3))
    def close(self, at: tuple[Governor, Naive], odds: int) -> None:
        governor, model = at
        if odds or (model is self.root and len(self.governors) < 8):
            return
        governor.close()
        if not model.closed:
            model.close()

    @rule(hold=holds)
    def close_under_a_hold(self, hold: tuple[Reservation, Naive, Vector]) -> None:
        reservation, model, _ = hold
        if reservation.open and model is not self.root:
            self.governors[model].close()
            if not model.closed:
                model.close()

    @invariant()
    def sums_are_those_of_the_model(self) -> None:
        for model, governor in self.governors.items():
            usage, halt = governor.status()
            assert used(usage) == tuple(model.spent(dim) for dim in range(4))
            assert usage.completion_tokens == model.completion()
            assert used(governor.held) == tuple(model.held(dim) for dim in range(4))
            assert halt is model.halted()
            assert governor.closed is model.closed

    @invariant()
    def spent_and_held_never_pass_a_limit(self) -> None:
        for model, governor in self.governors.items():
            over = used(governor.overshoot)
            for dim, limit in enumerate(model.limit):
                assert model.spent(dim) + model.held(dim) <= model.committed(dim)
                if limit is not None:
                    assert over[dim] == max(0, model.spent(dim) + model.held(dim) - limit)
                    if not self.late:
                        assert model.committed(dim) <= limit
                        assert not over[dim]

    @invariant()
    def remaining_is_the_largest_reserve_that_would_succeed(self) -> None:
        self.turn += 1
        one_in_turn = [*self.governors.items()][self.turn % len(self.governors)]
        for model, governor in [one_in_turn]:
            for dim, left in enumerate(units(governor.remaining)):
                if left is None:
                    assert all(node.limit[dim] is None for node in model.line())
                elif not model.closed:
                    assert not left or model.fits(one_dimension(dim, left))
                    assert not model.fits(one_dimension(dim, left + 1))

    @invariant()
    def unallotted_is_limit_minus_committed_of_the_nearest_limited_node(self) -> None:
        for model, governor in self.governors.items():
            if not model.closed:
                found = units(governor.unallotted)
                for dim in range(4):
                    near = next((node for node in model.line() if node.limit[dim] is not None), None)
                    most = None if near is None else near.limit[dim]
                    assert found[dim] == (None if near is None or most is None else max(0, most - near.committed(dim)))

    @invariant()
    def the_tree_tells_the_same(self) -> None:
        if len(self.governors) < 6:
            report = self.governors[self.root].tree()
            assert report.usage.tokens == self.root.spent(TOKENS)
            assert str(report).count("\n") == len(self.governors) - 1


def one_dimension(dim: int, value: int) -> Vector:
    vector = [0, 0, 0, 0]
    vector[dim] = value
    return (vector[0], vector[1], vector[2], vector[3])


GovernorLaw.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestGovernorLaw = pytest.mark.slow(GovernorLaw.TestCase)
