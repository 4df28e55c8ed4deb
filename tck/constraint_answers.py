"""The base of the constraint kit's tests, and the tests of a constraint's answers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Literal

import anyio
from hypothesis import strategies as st

from kairo_team.budget import Usage
from kairo_team.constraints import AgentState, ResourceAction, ResourceContext, ResourceValidation
from kairo_team.contracts import ResourceConstraint
from kairo_team.tck.calls import at_once, no_examples, result_or_error, skip_unless
from kairo_team.tck.kit import ContractTCK, clause, law, make_it

Measure = Literal["turns", "tokens", "seconds", "dollars"]
"""What a constraint measures."""


def context_of(turns: int = 0, tokens: int = 0, seconds: float = 0.0, dollars: Decimal | int = 0) -> ResourceContext:
    """Make the context of an attempt with this usage that is about to begin its next turn."""
    usage = Usage(tokens // 2, tokens - tokens // 2, Decimal(dollars), loops=turns, seconds=seconds)
    return ResourceContext(turns, tokens, seconds, AgentState(turns_completed=turns), "m", usage)


class ConstraintAnswers(ContractTCK):
    """The factories and capabilities of the constraint kit, and the tests of its answers."""

    contract: ClassVar[type] = ResourceConstraint
    _items = dict.fromkeys(
        ("fine_contexts", "violating_contexts"), (ResourceContext, "a context, such as context_of(turns=2)")
    )

    fine_contexts: ClassVar[Sequence[ResourceContext]] = ()
    """Contexts that do not violate the constraint of `make_constraint`."""
    violating_contexts: ClassVar[Sequence[ResourceContext]] = ()
    """Contexts that violate the constraint of `make_violated_constraint`."""
    measure: ClassVar[Measure | None] = None
    """The amount that is compared with `limit`; None if it is another amount, or several."""
    limit: ClassVar[float | Decimal] = 0
    """The limit, at which and above which the constraint is violated."""
    cannot_crash: ClassVar[bool] = False
    """Whether the constraint only compares numbers. False: `make_crashing_constraint` is required."""
    can_wait: ClassVar[bool] = False
    """Whether `validate` waits for something: then `make_waiting_constraint` is required."""
    watches: ClassVar[bool] = False
    """Whether it has a `watch`."""
    reached_in_runs: ClassVar[bool] = True
    """Whether ten turns, of 10 tokens, a dollar and a minute each, violate `make_violated_constraint`'s constraint."""

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        """Make a constraint that an attempt without usage does not violate. A fresh one each time."""
        raise make_it(cls, "make_constraint(cls)")

    @classmethod
    def make_violated_constraint(cls) -> ResourceConstraint:
        """Make one that the `violating_contexts` violate; by default the same as `make_constraint`."""
        return cls.make_constraint()

    @classmethod
    def make_crashing_constraint(cls) -> ResourceConstraint:
        """Make one that cannot measure, for example because its service is down."""
        raise make_it(cls, "make_crashing_constraint(cls), or say cannot_crash = True")

    @classmethod
    def make_waiting_constraint(cls) -> ResourceConstraint:
        """Make one that waits for ever for its measurement."""
        raise make_it(cls, "make_waiting_constraint(cls), or say can_wait = False")

    # ------------------------------------------------------------------ its answers

    @clause("C1")
    async def test_c01_examples_are_judged_as_they_are_given(self) -> None:
        """Fine is fine; a violation has a reason and metrics."""
        if not self.fine_contexts or not self.violating_contexts:
            no_examples(type(self), "fine_contexts, or violating_contexts,", "at least one ResourceContext in each")
        for context in self.fine_contexts:
            validation = checked(await self.make_constraint().validate(context))
            assert not validation.violated, f"violated ({validation.reason}) by what is fine: {context}"
        for context in self.violating_contexts:
            validation = checked(await self.make_violated_constraint().validate(context))
            assert validation.violated, f"not violated by {context}"
            assert validation.metrics, "a violation must have metrics, and its metrics are empty"

    @clause("C1", needs="measure")
    async def test_c01_the_limit_itself_is_a_violation(self) -> None:
        """Exactly at the limit and beyond it is violated, the least below is not."""
        step: float | Decimal = 1 if self.measure in {"turns", "tokens"} else Decimal("0.001")
        for amount, wanted in [(self.limit, True), (_sum(self.limit, step), True), (_sum(self.limit, -step), False)]:
            found = await self.make_constraint().validate(self.used(amount))
            assert found.violated is wanted, f"{amount} of {self.limit} {self.measure}: violated is {found.violated}"

    @law(
        "C1",
        needs="measure",
        share=st.floats(0, 3),
        turns=st.integers(0, 9999),
        tokens=st.integers(0, 10**6),
        seconds=st.floats(0, 10**6),
    )
    async def test_c01_only_what_is_measured_counts(
        self, share: float, turns: int, tokens: int, seconds: float
    ) -> None:
        """Any amount below the limit is fine and any other is not; the attempt's other amounts make no difference."""
        amount = Decimal(math.floor(float(self.limit) * share))
        others = {"turns": turns, "tokens": tokens, "seconds": seconds, "dollars": Decimal(tokens) / 1000}
        found = await self.make_constraint().validate(self.used(amount, **others))
        assert found.violated is (amount >= Decimal(str(self.limit))), (
            f"{amount} of {self.limit} {self.measure}: violated is {found.violated} ({found.metrics})"
        )

    @clause("C1")
    async def test_c01_the_share_is_all_where_the_limit_is_reached(self) -> None:
        """What `WarnAt` asks: below 1.0 for what is fine, from 1.0 on for a violation."""
        skip_unless(callable(getattr(self.make_constraint(), "share", None)), "it has no share(context)")
        for make, contexts in (
            (self.make_constraint, self.fine_contexts),
            (self.make_violated_constraint, self.violating_contexts),
        ):
            for context in contexts:
                constraint: Any = make()
                used = float(constraint.share(context))
                reached = contexts is self.violating_contexts
                assert (used >= 1.0) is reached, f"{context}: it returns that {used} of the limit is used"

    @clause("C2")
    async def test_c02_the_context_stays_as_it_was(self) -> None:
        """`validate` does not change the context."""
        for context in (*self.fine_contexts, *self.violating_contexts):
            shown = replace(context)
            await self.make_constraint().validate(shown)
            assert repr(shown) == repr(context), f"it changed what it was shown, {context}, to {shown}"

    @clause("C2", needs="virtual_time")
    async def test_c02_time_before_the_attempt_does_not_count(self) -> None:
        """An hour after it was made it answers the same: the attempt's own seconds are in the context."""
        constraint = self.make_constraint()
        await anyio.sleep(3000)
        for context in self.fine_contexts:
            found = await constraint.validate(context)
            assert not found.violated, f"much later it reported a violation for {context}, which is fine: {found}"

    @clause("C3")
    async def test_c03_one_object_guards_many_attempts(self) -> None:
        """In any order, again and again, and at once, each context gets the answer it gets alone."""
        shown = [*self.fine_contexts, *self.violating_contexts] * 3
        for make in (self.make_constraint, self.make_violated_constraint):
            alone = [(await make().validate(context)).violated for context in shown]
            one = make()
            in_turn = [(await one.validate(context)).violated for context in shown]
            backwards = [(await one.validate(context)).violated for context in reversed(shown)]
            together = [found.violated for found in await at_once([asking(one, context) for context in shown])]
            assert in_turn == alone, "shown one context after another it answers otherwise than alone"
            assert backwards[::-1] == alone, "shown the contexts backwards it answers otherwise than alone"
            assert together == alone, "shown the contexts at once it answers otherwise than alone"

    @clause("C4")
    async def test_c04_a_violation_leads_to_one_action(self) -> None:
        """`on_violation` is not async and returns the same `ResourceAction` every time."""
        for context in self.violating_contexts:
            constraint = self.make_violated_constraint()
            validation = await constraint.validate(context)
            asked = [constraint.on_violation(validation), constraint.on_violation(replace(validation))]
            asked.append(self.make_violated_constraint().on_violation(replace(validation)))
            assert not any(inspect.isawaitable(action) for action in asked), "on_violation is async; it may not wait"
            assert all(isinstance(action, ResourceAction) for action in asked), f"{asked[0]!r} is not a ResourceAction"
            assert len(set(asked)) == 1, f"the same violation led to {asked}"

    @clause("C5")
    async def test_c05_what_it_cannot_measure_is_not_fine(self) -> None:
        """A failure of the constraint is raised or is a violation."""
        skip_unless(not self.cannot_crash, "cannot_crash is True")
        for context in self.fine_contexts:
            found = await result_or_error(asking(self.make_crashing_constraint(), context))
            fine = isinstance(found, ResourceValidation) and not found.violated
            assert not fine, "it could not measure, and reported no violation"

    def used(self, amount: float | Decimal, **others: Any) -> ResourceContext:
        """Make a context with this usage of the measured amount."""
        assert self.measure is not None
        kind: Callable[[Any], Any] = {"seconds": float, "dollars": Decimal}.get(self.measure, int)
        used: dict[str, Any] = {**others, self.measure: kind(amount)}
        return context_of(**used)


def checked(validation: Any) -> ResourceValidation:
    """Return the validation; fail for any other value."""
    assert isinstance(validation, ResourceValidation), f"{validation!r} is not a ResourceValidation"
    return validation


def asking(constraint: ResourceConstraint, context: ResourceContext) -> Callable[[], Awaitable[ResourceValidation]]:
    """Return a call of the constraint's `validate`."""
    return lambda: constraint.validate(context)


def _sum(amount: float | Decimal, step: float | Decimal) -> Decimal:
    return Decimal(str(amount)) + Decimal(str(step))
