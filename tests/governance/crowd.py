"""The same state machine with callers in tasks of their own: they wait for a hold, call, settle, fail, are cancelled.

The callers live in an event loop in another thread; every operation of `GovernorLaw` is done from there in one step
and from the machine's own thread in the next. Whoever waits must have a reason to, and nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack
from typing import ClassVar, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, multiple, rule

from kairo_team.budget import PICODOLLARS, to_dollars
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget, KairoError
from kairo_team.governance import Reservation
from tests.governance.draws import amount, amounts, truths
from tests.governance.law import GovernorLaw, Pair
from tests.governance.naive import CALL, TOKENS, ZERO, Vector, budget, only

T = TypeVar("T")

some = st.integers(0, 40)
asked = st.one_of(
    amounts, st.tuples(some, st.just(0), st.just(0), st.just(0)), st.tuples(some, some, st.just(0), amount)
)


class LineDied(Exception):
    """What goes wrong in a call."""


class Caller:
    """A task that holds, calls and settles with the reply it is given; and what became of it."""

    def __init__(self, pair: Pair, asked: Vector, least: int, *, scoped: bool) -> None:
        self.governor, self.model = pair
        self.asked = asked
        self.least: Vector = (max(1, least), 1, 1, 1)
        self.minimum = budget(only(TOKENS, least)) if least else None
        self.scoped = scoped
        self.reply: tuple[Vector, int] | None = None
        self.answered: anyio.Event
        self.patience: anyio.CancelScope
        self.future: Future[None]
        self.reservation: Reservation | None = None
        self.error: KairoError | LineDied | None = None
        self.gave_up = self.over = False
        self.held: Vector | None = None
        """What the model knows that it holds."""

    @property
    def waits(self) -> bool:
        return self.reservation is None and not self.over

    @property
    def calls(self) -> bool:
        return self.reservation is not None and not self.over

    async def run(self) -> None:
        self.answered = anyio.Event()
        with anyio.CancelScope() as self.patience:
            try:
                async with AsyncExitStack() as stack:
                    if self.scoped:
                        await stack.enter_async_context(self.governor.scope())
                    await self.call()
            except (KairoError, LineDied) as error:
                self.error = error
        self.over = True

    async def call(self) -> None:
        tokens, dollars, _, tools = self.asked
        with await self.governor.hold(tokens, to_dollars(dollars), tools, minimum=self.minimum) as self.reservation:
            await self.answered.wait()
            if self.reply is None:
                raise LineDied
            (tokens, dollars, _, tools), completion = self.reply
            self.reservation.settle(tokens - completion, completion, to_dollars(dollars), tools)


async def rest() -> None:
    """Let everything that can run, run; what was posted to the loop included."""
    for _ in range(10):
        await checkpoint()


class CrowdLaw(GovernorLaw):
    """Waiting holds, calls that fail, cancellations and scopes, on top of all that `GovernorLaw` does."""

    backend: ClassVar[str]
    callers: Bundle[Caller] = Bundle("callers")

    def __init__(self) -> None:
        super().__init__()
        self.crowd: list[Caller] = []
        self.steps = 0
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal(self.backend))

    def do(self, call: Callable[[], T]) -> T:
        self.steps += 1
        return super().do(call if self.steps % 2 else lambda: self.portal.call(call))

    def time_passes(self, passing: float, odds: int, at: Pair) -> None:
        """Not here: the loop's clock is another one than the machine's."""

    def may_use_threads(self) -> bool:
        """Not where somebody waits, who takes what one thread gives back, or halts all when it is too little."""
        return not any(caller.waits for caller in self.crowd)

    # -- what a caller does -------------------------------------------------------------------

    @rule(target=callers, at=GovernorLaw.nodes, asked=asked, least=st.integers(0, 12), scoped=st.booleans())
    def hold(self, at: Pair, asked: Vector, least: int, scoped: bool) -> Caller:
        return self.start(at, asked, least, scoped=scoped)

    @rule(target=callers, at=GovernorLaw.nodes, asked=asked, others=st.lists(GovernorLaw.nodes, max_size=3))
    def rush(self, at: Pair, asked: Vector, others: list[Pair]) -> MultipleResults[Caller]:
        """Several callers at once who want the same."""
        return multiple(*[self.start(pair, asked, 1, scoped=False) for pair in (at, at, *others)])

    def start(self, at: Pair, asked: Vector, least: int, *, scoped: bool) -> Caller:
        self.settle_down()
        caller = Caller(at, asked, min(least, asked[TOKENS]), scoped=scoped)
        alone = not any(other.waits for other in self.crowd) and not caller.model.closed and not caller.model.halted()
        fate, granted = caller.model.fate(asked, caller.least) if alone else ("", ZERO)
        caller.future = super().do(lambda: self.portal.start_task_soon(caller.run))
        self.crowd.append(caller)
        self.portal.call(rest)
        if alone:
            assert caller.waits is (fate == "waits")
            assert caller.calls is (fate == "granted")
            assert isinstance(caller.error, HaltError) is (fate == "hopeless")
            assert fate != "granted" or self.amounts_of(caller) == granted
        return caller

    @rule(caller=callers, truth=truths, completion=amount)
    def reply(self, caller: Caller, truth: Vector, completion: int) -> None:
        if caller.calls:
            caller.reply = (truth, min(completion, truth[TOKENS]))
            self.portal.call(caller.answered.set)

    @rule(caller=callers)
    def the_line_dies(self, caller: Caller) -> None:
        if caller.calls:
            self.portal.call(caller.answered.set)

    @rule(caller=callers)
    def give_up(self, caller: Caller) -> None:
        """Be cancelled, while it waits or while it calls."""
        if not caller.over:
            caller.gave_up = True
            self.portal.call(caller.patience.cancel)

    # -- what became of it --------------------------------------------------------------------

    def settle_down(self) -> None:
        """Tell the model what happened, in the order in which one thing led to the other."""
        self.portal.call(rest)
        for caller in self.crowd:
            if caller.over and caller.held is not None:
                caller.model.end(caller.held, *(caller.reply or (caller.held, 0)))
        for caller in self.crowd:
            if caller.calls and caller.held is None:
                self.check_granted(caller)
        over = [caller for caller in self.crowd if caller.over]
        for tell in (self.exhaust_for, self.check_ended):
            for caller in over:
                tell(caller)
        self.crowd = [caller for caller in self.crowd if not caller.over]
        self.check_nobody_waits_without_a_reason()
        for caller in self.crowd:
            assert not caller.scoped or caller.model.interrupted() is None, "not interrupted"

    def amounts_of(self, caller: Caller) -> Vector:
        reservation = caller.reservation
        assert reservation is not None
        return (reservation.tokens, int(reservation.dollars * PICODOLLARS), 0, reservation.tool_calls)

    def check_granted(self, caller: Caller) -> None:
        caller.held = granted = self.amounts_of(caller)
        model = caller.model
        assert model.fits(granted)
        model.holds.append(granted)
        for dim in CALL:
            assert min(caller.least[dim], caller.asked[dim]) <= granted[dim] <= caller.asked[dim]
            assert granted[dim] == caller.asked[dim] or not model.fits(only(dim, 1)), "less, and there is more"
        if not any(any(node.guarantee) for node in model.line()):
            for other in self.crowd[: self.crowd.index(caller)]:
                same = [bool(amount) for amount in other.asked] == [bool(amount) for amount in caller.asked]
                assert not (same and other.waits and other.model is model), "overtaken"

    def exhaust_for(self, caller: Caller) -> None:
        """A caller that will never get what it needs halts the node whose limit it is."""
        hopeless = caller.model.hopeless(caller.asked, caller.least)
        if isinstance(caller.error, HaltError) and hopeless is not None and caller.model.halted() is None:
            node, dim = hopeless
            if node.name == caller.error.origin:
                node.exhaust(dim)

    def check_ended(self, caller: Caller) -> None:
        model, error = caller.model, caller.error
        caller.future.result(0)
        assert (caller.reservation is None) is (caller.held is None)
        if isinstance(error, HaltError):
            # Several of its nodes may have been halted in one step; which one was the first is chance.
            assert (error.reason, error.origin) in [(node.halt, node.name) for node in model.line() if node.halt]
        elif isinstance(error, GovernorClosed):
            assert model.closed
        elif isinstance(error, InsufficientBudget):
            # Those who came later may hold by now what it would wait for, so "waits" is right too.
            assert model.fate(caller.asked, caller.least)[0] != "granted"
        else:
            assert error is not None or caller.gave_up or caller.reply

    def check_nobody_waits_without_a_reason(self) -> None:
        waiting = [caller for caller in self.crowd if caller.waits]
        for caller in waiting:
            assert not caller.model.closed
            assert caller.model.halted() is None
        for caller in waiting[:1]:
            model, asked = caller.model, caller.asked
            fate, granted = model.fate(asked, caller.least)
            # What is set aside in a shared node may leave it less to wait for; it is told when the next hold ends.
            less = granted != asked and any(node.shared for node in model.line())
            assert fate != "granted" or less, "it fits, and nobody was told"
            limited = [(node, dim) for dim in CALL for node in model.line() if node.limit[dim] is not None]
            assert any(node.held(dim) for node, dim in limited if asked[dim]), "nothing will ever come back"

    def teardown(self) -> None:
        """Answer everybody who calls until nobody is left: whoever waits gets its turn."""
        try:
            if self.sound and self.governors:
                for reservation, model, held in self.taken:
                    if reservation.open:
                        self.do(reservation.release)
                        model.end(held, ZERO)
                self.everything_is_as_the_model_says()
                while self.crowd:
                    calling = [caller for caller in self.crowd if caller.calls]
                    assert calling, "somebody waits for ever"
                    self.reply(calling[0], ZERO, 0)
                    self.everything_is_as_the_model_says()
                super().teardown()
        finally:
            for caller in self.crowd:
                self.portal.call(caller.patience.cancel)
            self.stack.close()
