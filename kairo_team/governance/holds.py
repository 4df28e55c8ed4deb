"""Holds: the `Reservation` a caller gets, and how it is booked."""

from __future__ import annotations

# pyright: reportPrivateUsage=false
# A function of this module fills a reservation: calling the class costs twice as much.
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

from kairo_team.budget import Money, check_count, check_used, picodollars, to_dollars
from kairo_team.errors import GovernorClosed, InsufficientBudget
from kairo_team.governance.halts import check_hopeless
from kairo_team.governance.units import DOLLARS, HELD_DIMENSIONS, TOKENS, TOOL_CALLS, Units
from kairo_team.governance.waiting import serve

if TYPE_CHECKING:
    from decimal import Decimal
    from types import TracebackType

    from kairo_team.governance.ledger import Node

_mine: ContextVar[Reservation | None] = ContextVar("kairo_team_reservations", default=None)
"""The latest reservation of the current context; child tasks inherit it."""


class Reservation:
    """An amount set aside for one call; `settle` it with what the call really used.

    Leaving the `with` block unsettled charges the whole amount: the outcome is unknown.
    """

    __slots__ = ("_node", "_outer", "_units", "open", "overshoot")

    _node: Node
    _units: Units
    _outer: Reservation | None
    open: bool
    """Neither settled nor released yet."""
    overshoot: bool
    """The settled truth was more than was held."""

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return self._units[TOKENS]

    @property
    def dollars(self) -> Decimal:
        """US dollars held."""
        return to_dollars(self._units[DOLLARS])

    @property
    def tool_calls(self) -> int:
        """Tool calls held."""
        return self._units[TOOL_CALLS]

    def settle(
        self,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        dollars: Money = 0,
        tool_calls: int | None = None,
    ) -> None:
        """Replace the hold by what was used (`tool_calls`: by default all that were held).

        Never raises for a limit: what was paid is booked, also beyond the hold or after the governor
        closed, and the next guard refuses. Raises `GovernorClosed` when it was settled or released before,
        `ValueError` for a negative amount; neither changes anything.
        """
        if tool_calls is None:
            tool_calls = self._units[TOOL_CALLS]
        try:
            if (prompt_tokens | completion_tokens | tool_calls) < 0:
                check_used(prompt_tokens, completion_tokens, tool_calls)
        except TypeError:
            check_used(prompt_tokens, completion_tokens, tool_calls)
        picos = picodollars(dollars) if dollars else 0
        self._end(prompt_tokens + completion_tokens, completion_tokens, picos, tool_calls)

    def reduce(self, tokens: int, dollars: Money = 0) -> None:
        """Hold no more than so many tokens and US dollars from now on: the call was made smaller. The rest goes back.

        What is less than that stays as it is, and so do tool calls. Raises `GovernorClosed` when it was settled or
        released before, `ValueError` for a negative amount; neither changes anything.
        """
        check_count("tokens to hold", tokens)
        picos = picodollars(dollars) if dollars else 0
        tree = self._node.tree
        with tree.lock:
            if not self.open:
                raise GovernorClosed(self._node.name, "the reservation on")
            held = self._units
            self._units = (min(tokens, held[TOKENS]), min(picos, held[DOLLARS]), 0, held[TOOL_CALLS])
            self._node.reduce(held, self._units)
            if tree.lines:
                serve(self._node.nearest_open())

    def release(self) -> None:
        """Give the whole hold back: only where the call provably never left.

        Raises `GovernorClosed` when it was settled or released before.
        """
        self._end(0, 0, 0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.open:
            tokens, picos, _, tool_calls = self._units
            self._end(tokens, 0, picos, tool_calls)

    def _end(self, tokens: int, completion: int, picos: int, tool_calls: int) -> None:
        node = self._node
        held = self._units
        tree = node.tree
        tree.acquire()
        try:
            if not self.open:
                raise GovernorClosed(node.name, "the reservation on")
            self.open = False
            node.settle(held, (tokens, picos, 0, tool_calls), completion)
            if tokens > held[TOKENS] or picos > held[DOLLARS] or tool_calls > held[TOOL_CALLS]:
                self.overshoot = True
                node.mark_overdrawn()
            if tree.lines:
                serve(node.nearest_open())
        finally:
            tree.release()

    def covers(self, node: Node, units: Units) -> bool:
        """Say whether it, or one taken before it in the same context, still holds any of these dimensions."""
        mine: Reservation | None = self
        while mine is not None:
            if mine.open and mine._shares(node, units):
                return True
            mine = mine._outer
        return False

    def _shares(self, node: Node, units: Units) -> bool:
        return self._node.tree is node.tree and any(a and b for a, b in zip(self._units, units, strict=True))

    def __repr__(self) -> str:
        amounts = f"{self.tokens} tokens, ${self.dollars}, {self.tool_calls} tool calls"
        return f"<Reservation on {self._node.name!r}: {amounts}, {'open' if self.open else 'ended'}>"


def reservation(node: Node, units: Units) -> Reservation:
    """Make the reservation of what was booked. An `__init__` would cost twice as much."""
    it = Reservation()
    it._node = node
    it._units = units
    it.open = True
    it.overshoot = False
    outer = _mine.get()
    while outer is not None and not outer.open:
        outer = outer._outer
    it._outer = outer
    _mine.set(it)
    return it


def holds_already(node: Node, units: Units) -> bool:
    """Say whether the caller, or who started it, holds one of these dimensions now: then it must not wait."""
    mine = _mine.get()
    return mine is not None and mine.covers(node, units)


def refusal(node: Node, units: Units, minimum: Units) -> InsufficientBudget:
    """Build the refusal of `units` that do not fit; raise `HaltError` where not even `minimum` ever will."""
    check_hopeless(node, units, minimum)
    for dim in HELD_DIMENSIONS:
        room = node.room(dim)
        if room is not None and room < units[dim]:
            return node.insufficient(dim, units[dim])
    raise AssertionError(f"{units} fit after all")
