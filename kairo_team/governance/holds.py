"""Holds: `Reservation`, an amount set aside for one call, and `Waiter`, which waits for one. First come, first served.

A waiter waits at a place: a node and a dimension in which other holds are open. Each place has one line of waiters.
When a hold there is settled or released, each waiter of the line is decided and woken, in order.
"""

from __future__ import annotations

from bisect import insort
from contextvars import ContextVar
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Self

import anyio

from kairo_team.budget import HaltReason, Money, check_count, check_used, picodollars, to_dollars
from kairo_team.errors import GovernorClosed, InsufficientBudget, KairoError
from kairo_team.governance.halts import check, check_hopeless, current_loop, family, send, stop, wake_waiters
from kairo_team.governance.ledger import (
    COMMITTED,
    DIMENSIONS,
    DOLLARS,
    HELD_DIMENSIONS,
    NOTHING,
    TOKENS,
    TOOL_CALLS,
    Node,
    Units,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal
    from types import TracebackType

# pyright: reportPrivateUsage=false
# `reservation` below fills the private slots: calling the class costs twice as much.


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
    """Whether the hold is neither settled nor released yet."""
    overshoot: bool
    """Whether more was settled than held."""

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
        """Replace the hold by the amounts used (`tool_calls`: by default all that were held).

        It never raises because of a limit: it books the paid amount, also above the hold or after the governor closed,
        and the next guard refuses. Raises `GovernorClosed` when the hold was settled or released before, and
        `ValueError` for a negative amount; both change nothing.
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
        """Cut the hold to at most these tokens and US dollars, because the call became smaller; give the rest back.

        A hold that is smaller already, and held tool calls, stay the same. Raises `GovernorClosed` when the hold was
        settled or released before, and `ValueError` for a negative amount; both change nothing.
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
                serve(self._node)

    def release(self) -> None:
        """Give the whole hold back. Only for a call that certainly was not sent.

        Raises `GovernorClosed` when the hold was settled or released before.
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
            self.open = False  # under the lock: two threads cannot end the same hold
            node.settle(held, (tokens, picos, 0, tool_calls), completion)
            if tokens > held[TOKENS] or picos > held[DOLLARS] or tool_calls > held[TOOL_CALLS]:
                self.overshoot = True
                node.mark_overdrawn()
            if tree.lines:
                serve(node)
            if tree.borrower is not None:
                tree.borrower.settled()
        finally:
            tree.release()

    def covers(self, node: Node, units: Units) -> bool:
        """Return whether this or an earlier reservation of the same context still holds any of these dimensions."""
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
    """Return a reservation of amounts that are booked already."""
    it = Reservation()
    it._node = node
    it._units = units
    it.open = True
    it.overshoot = False
    outer = _mine.get()
    while outer is not None and not outer.open:  # ended holds would pile up in a task that makes many
        outer = outer._outer
    it._outer = outer
    # Never reset: a reservation may end in another task, and an ended one is skipped when the chain is read.
    _mine.set(it)
    return it


def holds_already(node: Node, units: Units) -> bool:
    """Return whether the caller, or the task that started it, already holds one of these dimensions of the tree.

    Such a caller must not wait: it could wait for its own hold.
    """
    mine = _mine.get()
    return mine is not None and mine.covers(node, units)


def refusal(node: Node, units: Units, minimum: Units) -> InsufficientBudget:
    """Return the error for `units` that do not fit; raise `HaltError` if even `minimum` can never fit."""
    check_hopeless(node, units, minimum)
    for dim in HELD_DIMENSIONS:
        room = node.room(dim)
        if room is not None and room < units[dim]:
            return node.insufficient(dim, units[dim])
    raise AssertionError(f"{units} fit after all")


Place = tuple[Node, int]

_arrivals: Final = count()


class Waiter:
    """A caller of `hold` that must wait."""

    __slots__ = ("arrival", "event", "granted", "loop", "minimum", "node", "place", "refused", "units")

    def __init__(self, node: Node, units: Units, minimum: Units) -> None:
        self.node = node
        self.units = units
        self.minimum = minimum
        self.arrival = next(_arrivals)  # `next` of a count is atomic
        self.event = anyio.Event()
        self.loop = current_loop()
        self.place: Place | None = None
        self.granted: Units | None = None
        """The amounts booked for this caller."""
        self.refused: KairoError | None = None

    def wake(self) -> None:
        """Wake the caller, which then calls `decide` again; from any thread or signal handler."""
        send(self.loop, self.event.set)

    def decide(self) -> bool:
        """Grant, refuse, or find the place to wait at; return whether the waiter is decided. Needs the lock."""
        if self.granted is None and self.refused is None:
            try:
                check(self.node)
                check_hopeless(self.node, self.units, self.minimum)
                units, place = self._weigh()
            except KairoError as error:
                self.refused = error
            else:
                if place is not None:
                    self._stand(place)
                    return False
                self.node.book(units)
                self.granted = units
        self.leave()
        return True

    def outcome(self) -> Units:
        """Return the amounts booked, or raise the refusal."""
        if self.refused is not None:
            raise self.refused
        return self.granted or NOTHING

    def _weigh(self) -> tuple[Units, Place | None]:
        """Return the amounts that could be granted, and the place to wait at; None if they can be granted now."""
        granted = [0, 0, 0, 0]
        place: Place | None = None
        for dim in HELD_DIMENSIONS:
            if self.units[dim]:
                granted[dim], node = self._weigh_dimension(dim)
                if node is not None and place is None:  # one place is enough: it decides again when woken
                    place = (node, dim)
        tokens, picos, _, tool_calls = granted
        return (tokens, picos, 0, tool_calls), place

    def _weigh_dimension(self, dim: int) -> tuple[int, Node | None]:
        """Return how much could be granted, and the node to wait at, where open holds will settle; None: now."""
        want = self.units[dim]
        returning: list[tuple[Node, int]] = []
        for node, room in self.node.rooms(dim):
            if room < want and node.held(dim):
                # Decided after the loop: another node may allow only so little that this one has room.
                returning.append((node, room))
            elif room < want:
                want = room
                if room < self.minimum[dim]:
                    raise self._insufficient(dim, room, node)
        for node, room in returning:
            if room < want:
                return want, node
        return want, overtaken(self.node, dim, want, self.arrival)

    def _insufficient(self, dim: int, room: int, node: Node) -> InsufficientBudget:
        """Build the refusal; it names the minimum only if that is more than one unit and less than the full amount."""
        asked, least = self.units[dim], self.minimum[dim]
        needed = shown(dim, least) if 1 < least < asked else None
        amounts = (DIMENSIONS[dim], shown(dim, asked), shown(dim, room))
        return InsufficientBudget(*amounts, node.name, needed=needed, path=node.full_path())

    def _stand(self, place: Place) -> None:
        if self.place != place:  # a waiter keeps its place in the same line
            self.leave()
            self.place = place
            # Sorted by arrival, because a waiter may come from another line with an earlier number.
            insort(self.node.tree.lines.setdefault(place, []), self, key=attrgetter("arrival"))

    def leave(self) -> None:
        """Leave the line, if the waiter is in one. Needs the lock."""
        place, self.place = self.place, None
        if place is not None:
            lines = self.node.tree.lines
            lines[place].remove(self)
            if not lines[place]:
                del lines[place]


def overtaken(node: Node, dim: int, amount: int, arrival: int) -> Node | None:
    """Return the node of the path where an earlier waiter waits for the room that `amount` would use."""
    lines = node.tree.lines
    place: Node | None = node
    while place is not None:
        line = lines.get((place, dim))
        if line and line[0].arrival < arrival:
            return place
        # Covered by the guarantee, so no waiter above competes for this part.
        spare = place.guarantee[dim] - place.cells[COMMITTED + dim]
        if spare > 0:
            amount -= spare
            if amount <= 0:
                return None
        if place.shared is not None:
            found = overtaken(place.shared, dim, amount, arrival)
            if found is not None:
                return found
        place = place.parent
    return None


def serve(node: Node) -> None:
    """Decide the waiters on the path of `node`, in the order of their lines. Needs the lock."""
    lines = node.tree.lines
    for place in node.line():
        for dim in HELD_DIMENSIONS:
            line = lines.get((place, dim))
            while line:
                first = line[0]
                if first.decide():
                    first.wake()
                elif line and line[0] is first:  # it still waits, and so do all behind it
                    break


def dismiss(node: Node) -> None:
    """Wake the waiters of all nodes that closed with a node, and serve the lines above to which it gave budget back.

    Needs the lock.
    """
    inside: dict[Node, None] = {}
    closed = [node]
    for top in closed:  # the shared nodes beside it closed too: the list grows while it is walked
        wake_waiters(top)
        below = family(top)
        inside.update(dict.fromkeys(below))
        closed += [beside for owner in below for beside in node.tree.beside.get(owner, ())]
    # The children of a shared node have parents outside its family, and these got budget back too.
    for above in dict.fromkeys(one for inner in inside for one in (inner.shared, inner.parent)):
        if above is not None and above not in inside:
            serve(above)


async def wait(waiter: Waiter, on_wait: Callable[[], object] | None = None) -> Units:
    """Wait for the decision: return the booked amounts, or raise. If cancelled, give booked amounts back.

    Calls `on_wait` before the first suspension; does not suspend if the waiter is decided already.
    """
    if waiter.granted is not None or waiter.refused is not None:
        return waiter.outcome()
    node, tree = waiter.node, waiter.node.tree
    # Before the next decision: a later halt wakes the waiter, and the decision finds an earlier one.
    tree.join(tree.waiters, node, waiter)
    try:
        while not _decided(waiter):
            if on_wait is not None:
                on_wait()
                on_wait = None
            await _sleep(waiter)
    except BaseException:
        with tree.lock:
            if waiter.granted is not None:
                node.settle(waiter.granted, NOTHING)  # granted while the cancellation was on its way
        raise
    finally:
        tree.leave(tree.waiters, node, waiter)
        with tree.lock:
            waiter.leave()
            # Those behind it may fit now.
            serve(node)
    return waiter.outcome()


def _decided(waiter: Waiter) -> bool:
    with waiter.node.tree.lock:
        return waiter.decide()


async def _sleep(waiter: Waiter) -> None:
    """Sleep until woken, or until the earliest deadline; then stop its node unless the deadline was moved."""
    due = waiter.node.earliest_deadline()
    if due is None:
        await waiter.event.wait()
    else:
        with anyio.CancelScope(deadline=anyio.current_time() + due[0] - waiter.node.tree.clock()) as scope:
            await waiter.event.wait()
        if scope.cancelled_caught and waiter.node.earliest_deadline() == due:  # a top-up may have moved it
            stop(due[1], HaltReason.TIME_BUDGET_EXCEEDED)
    if waiter.event.is_set():
        # An event is used once; the next `decide` sees all that happened before.
        waiter.event = anyio.Event()
