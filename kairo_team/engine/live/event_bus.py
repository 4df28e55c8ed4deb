"""The events of a run: numbered without gaps, delivered in order, never dropped for a plain subscriber."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, Final, Protocol, cast

import anyio

from kairo_team._util.frozen import EMPTY, maker
from kairo_team._util.masking import Masker
from kairo_team.contracts import Subscriber, Surrounding
from kairo_team.events import Content, Event, Lagged, ModelCalled, WorkEvent
from kairo_team.plugin_calls import (
    asyncio_task,
    cancelled_error,
    cancelled_itself,
    failure_of,
    own_task,
    plain_failure_of,
    tidy_block,
    without_strays,
)
from kairo_team.results import ModelUsage

BUFFER: Final = 10_000
"""Events an async subscriber may fall behind before the oldest are dropped for it."""

_LAST_WORD: Final = 0.1
"""The share of the grace in which a subscriber that is cut off gets its `Lagged`."""

Listener = Callable[[Event], object]

_MILLISECOND: Final = 0.001
"""Seconds for which a reading of the wall clock is reused: reading it costs half as much as the rest of an event."""

_MAKERS: Final[dict[type[Event], Callable[..., Event]]] = {}
"""Makes an event of a class from the common fields and a tuple of its own, unchecked if the class allows that."""

_COMMON: Final = len(fields(Event))
"""Number of fields that every event has."""

Around = AbstractContextManager[object]
"""Entered before some work, in the work's task, and left after it."""

NOTHING_AROUND: Final[Around] = nullcontext()

_logger = logging.getLogger("kairo_team")


def _maker(kind: type[Event]) -> Callable[..., Event]:
    def call(run_id: str, seq: int, at: datetime, own: Sequence[Any]) -> Event:
        return kind(run_id, seq, at, *own)

    checked = hasattr(kind, "__post_init__") or len(fields(kind)) == _COMMON
    _MAKERS[kind] = make = call if checked else maker(kind, packed=_COMMON)
    return make


def _is_async(subscriber: Subscriber) -> bool:
    return inspect.iscoroutinefunction(subscriber) or inspect.iscoroutinefunction(type(subscriber).__call__)


def _give_without_body(listener: Listener, event: Event) -> None:
    listener(replace(event, body=None) if isinstance(event, Content) else event)


class _Mailbox:
    """An async subscriber with its bounded buffer."""

    __slots__ = ("_missed", "_news", "_subscriber", "buffer", "closed", "done", "last_word", "scope")

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = cast("Callable[[Event], Awaitable[None]]", subscriber)
        self._missed = 0
        self.buffer: deque[Event] = deque()
        self._news = anyio.Event()
        self.closed = False
        self.done = anyio.Event()
        # Shielded, because the last events of a run that is cancelled reach the subscriber too.
        self.scope = anyio.CancelScope(shield=True)
        """The scope around the subscriber's calls; cancelled when it no longer has to catch up."""
        self.last_word = anyio.CancelScope(shield=True)
        """The scope around the subscriber's last call, after the other scope was cancelled."""

    def put(self, event: Event) -> None:
        if self.closed:
            return
        if len(self.buffer) >= BUFFER:
            # The oldest event is dropped: a subscriber that catches up needs the newest state.
            self.buffer.popleft()
            self._missed += 1
        self.buffer.append(event)
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    async def serve(self) -> None:
        """Deliver events until the mailbox is closed and empty, the subscriber raises, or the grace is over."""
        try:
            with self.scope:
                async with tidy_block():
                    while self.buffer or not self.closed:
                        await self._hand_over()
            if self.scope.cancelled_caught:
                async with tidy_block():
                    await self._cut_off()
        except BaseException as raised:
            if failure_of(raised) is None:
                raise
            _logger.exception("subscriber %r raised and gets no more events", self._subscriber)
            self.closed = True
        finally:
            self.done.set()

    async def _cut_off(self) -> None:
        """Log that the subscriber was too slow, and give it a `Lagged` in place of the events it missed."""
        missed = self._missed + len(self.buffer)
        _logger.warning(
            "subscriber %r was too slow: at the end of the run it was cut off, %d events did not reach it; let it work "
            "in a task of its own, or give the run more TeamConfig.cancel_grace",
            self._subscriber,
            missed,
        )
        if missed:
            last = self.buffer[-1]
            with self.last_word:
                await self._tell(Lagged(last.run_id, last.seq, last.at, missed))

    async def _hand_over(self) -> None:
        if not self.buffer:
            self._news = anyio.Event()
            await self._news.wait()
            return
        # More events may be dropped while the subscriber handles `Lagged`.
        while self._missed:
            first, missed, self._missed = self.buffer[0], self._missed, 0
            await self._tell(Lagged(first.run_id, first.seq - 1, first.at, missed))
        await self._tell(self.buffer.popleft())

    async def _tell(self, event: Event) -> None:
        await self._subscriber(event)
        # On asyncio a subscriber can cancel the task it runs in; only the subscriber may pay for that.
        if cancelled_itself():
            raise cancelled_error()


async def _serve(mailbox: _Mailbox, host: Any) -> None:
    """Serve a subscriber in a task of the library's, so that one that cancels its task ends nothing but itself."""
    async with own_task(host) as task:
        await without_strays(mailbox.serve(), task)


class _AroundWork:
    """The subscribers' context managers around one piece of work; they cannot change what the work raises."""

    __slots__ = ("_bus", "_entered", "_event")

    def __init__(self, bus: Bus, event: Event) -> None:
        self._bus = bus
        self._event = event
        self._entered: list[tuple[Surrounding, Around]] = []

    def __enter__(self) -> None:
        for one in self._bus.surroundings:
            try:
                manager = one.around(self._event)
                manager.__enter__()
            except BaseException as raised:  # noqa: BLE001 - whatever it raises, the run continues
                self._bus.drop_surrounding(one, raised)
            else:
                self._entered.append((one, manager))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one, manager in reversed(self._entered):
            try:
                manager.__exit__(kind, error, trace)
            except BaseException as raised:  # noqa: BLE001 - whatever it raises, the run continues
                # A context manager may raise the work's own error again, which is not a failure of the subscriber.
                if raised is not error:
                    self._bus.drop_surrounding(one, raised)


class EventLog:
    """The events of a run from some number on, kept for later watchers."""

    __slots__ = ("_before", "_events", "_news", "closed")

    def __init__(self, before: int) -> None:
        """Begin after the event of number `before`."""
        self._before = before
        self._events: list[Event] = []
        self._news: anyio.Event | None = None
        self.closed = False

    def put(self, event: Event) -> None:
        """Keep an event; the watchers see it at their next turn."""
        self._events.append(event)
        self._wake_readers()

    @property
    def kept(self) -> Sequence[Event]:
        """The kept events so far."""
        return tuple(self._events)

    def open(self) -> None:
        """Continue: the run was resumed."""
        self.closed = False

    def close(self) -> None:
        """Let the watchers end once they have seen everything."""
        self.closed = True
        self._wake_readers()

    def read(self, after: int) -> AsyncIterator[Event]:
        """Iterate over the events above number `after`; wait for more until the log is closed."""
        # This is not a generator, so that a reader that leaves early need not close it.
        return _Reader(self, max(0, after - self._before))

    async def get(self, place: int) -> Event | None:
        """Return the event at a place, from 0; None when the log is closed and has no more."""
        while place >= len(self._events):
            if self.closed:
                return None
            self._news = self._news or anyio.Event()
            await self._news.wait()
        return self._events[place]

    def _wake_readers(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None


class _Reader:
    """One watcher's position in a log."""

    __slots__ = ("_log", "_place")

    def __init__(self, log: EventLog, place: int) -> None:
        self._log = log
        self._place = place

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> Event:
        event = await self._log.get(self._place)
        if event is None:
            raise StopAsyncIteration
        self._place += 1
        return event


class ModelTally:
    """What the calls of each model have used in a run, with the runs inside it and its earlier sessions."""

    __slots__ = ("_above", "used")

    def __init__(
        self, used: Mapping[str, ModelUsage] = EMPTY, above: Callable[[str, ModelUsage], object] | None = None
    ) -> None:
        """Continue from what was used before; `above` counts for the attempt around the run."""
        self.used = dict(used)
        self._above = above

    def add(self, model: str, used: ModelUsage) -> None:
        """Count calls of a model."""
        before = self.used.get(model)
        self.used[model] = used if before is None else before + used
        if self._above is not None:
            self._above(model, used)


class Reader(Protocol):
    """A subscriber whose `reads_content` is True: it gets the texts of the work, whatever `Runtime(content=...)` is."""

    def read(self, event: Content) -> object:
        """Take a text of the work; secrets are masked."""
        ...


class Bus:
    """One run's events. Events are made only for listeners; without any, an event costs a counter."""

    def __init__(
        self,
        run_id: str,
        subscribers: Sequence[Subscriber] = (),
        masker: Masker | None = None,
        *,
        seq: int = 0,
        log: EventLog | None = None,
        tally: ModelTally | None = None,
    ) -> None:
        """Continue after event number `seq`; `masker` masks what events say; `log` keeps every event.

        `tally` counts the calls of models.
        """
        self.run_id = run_id
        self.seq = seq
        self._masker = masker
        self.ended_before: frozenset[str | None] = frozenset()
        """Tasks whose end was emitted in an earlier session: no more events of them are emitted."""
        self._mailboxes = [_Mailbox(subscriber) for subscriber in subscribers if _is_async(subscriber)]
        plain = [cast("Listener", subscriber) for subscriber in subscribers if not _is_async(subscriber)]
        logs = [log.put] if log is not None else []
        # The log and the buffers cannot fail, so what a plain subscriber raises keeps no event from them.
        self._listeners: list[Listener] = [*logs, *(mailbox.put for mailbox in self._mailboxes), *plain]
        several = cast("Sequence[object]", subscribers)
        self.surroundings: tuple[Surrounding, ...] = tuple(one for one in several if isinstance(one, Surrounding))
        """Subscribers that wrap the run's work."""
        self._readers = tuple(cast("Reader", one) for one in several if getattr(one, "reads_content", False) is True)
        self.tells_content = True
        """Whether `content` events are delivered; readers get their texts in any case."""
        self._waiting: deque[Event] = deque()
        """Events not yet delivered: more than one if a listener emits while it gets one."""
        self.is_delivering = False
        """Whether a subscriber is being called."""
        self._withholds = False
        """Whether content goes to one listener alone; the others get its events without their body."""
        self._tick = -inf
        self._at = datetime.now(UTC)
        """The wall clock's time at `_tick` of the monotonic clock."""
        self.tally = tally or ModelTally()
        self.closed = False

    @property
    def heard(self) -> bool:
        """Whether there is a listener: without one, an event's content need not be made."""
        return bool(self._listeners)

    @property
    def in_pieces(self) -> bool:
        """Whether there is a listener for a reply while it is written."""
        return self.tells_content and self.heard

    def for_readers(self) -> Bus | None:
        """Give texts to readers alone; return the bus, or None without readers."""
        self.tells_content = False
        return self if self._readers else None

    def _is_for_all(self, kind: type[Event], own: tuple[Any, ...]) -> bool:
        """Count a call, or give a text to the subscribers that read texts; return whether the others get the event."""
        if kind is ModelCalled:
            call = ModelCalled(self.run_id, self.seq, self._at, *own)
            self.tally.add(call.model, ModelUsage(1, call.usage, call.cached_tokens, call.reasoning_tokens))
            return True
        masked = own if self._masker is None else self._masker.value(own)
        event = Content(self.run_id, self.seq, datetime.now(UTC), *masked)
        for one in self._readers:
            try:
                one.read(event)
            except Exception as error:
                self._readers = tuple(other for other in self._readers if other is not one)
                _logger.exception("subscriber %r raised and reads no more texts", one, exc_info=error)
        return self.tells_content

    def begin(self, kind: type[Event], *own: Any) -> Around:
        """Emit the first event of some work, and return what the subscribers put around that work."""
        event = self.emit(kind, *own)
        return NOTHING_AROUND if event is None or not self.surroundings else _AroundWork(self, event)

    def emit(self, kind: type[Event], *own: Any) -> Event | None:
        """Deliver an event under the next number and return it; do nothing once the bus is closed."""
        if (kind is ModelCalled or kind is Content) and not self._is_for_all(kind, own):
            return None
        if self.closed or (self.ended_before and own and issubclass(kind, WorkEvent) and own[0] in self.ended_before):
            return None
        self.seq += 1
        if not self._listeners:
            return None
        if self._masker is not None:
            own = self._masker.value(own)
        tick = monotonic()
        if tick - self._tick > _MILLISECOND:
            self._tick, self._at = tick, datetime.now(UTC)
        waiting = self._waiting
        make = _MAKERS.get(kind) or _maker(kind)
        made = event = make(self.run_id, self.seq, self._at, own)
        # Something may wait without a delivery: a signal ended an earlier one after its first events.
        if self.is_delivering or waiting:  # an emit from inside a subscriber waits its turn, so order holds
            waiting.append(event)
            if self.is_delivering:
                return made
            event = waiting.popleft()
        self.is_delivering, task = True, asyncio_task()
        try:
            while True:
                self._deliver(event, task)
                if not waiting:
                    return made
                event = waiting.popleft()
        finally:
            self.is_delivering = False

    def _deliver(self, event: Event, task: Any) -> None:
        """Deliver an event to every subscriber; `task` is the running one of asyncio."""
        for listener in self._listeners:
            try:
                listener(event)
            except BaseException as raised:  # noqa: BLE001 - whatever it raises, the run continues
                self._drop(listener, raised)
            # On asyncio a plain subscriber can cancel the task that emits.
            if task is not None and task.cancelling() and cancelled_itself():
                self._drop(listener, cancelled_error())

    def forget_earlier_ends(self) -> None:
        """Emit events of every task again: the plan is a new one."""
        self.ended_before = frozenset()

    def keep(self, listener: Listener) -> None:
        """Send every event from now on to a listener, before all others."""
        kept = partial(_give_without_body, listener) if self._withholds else listener
        # First, so that a record precedes everything that another subscriber does about the event.
        self._listeners = [kept, *self._listeners]

    def keep_content(self, listener: Listener) -> None:
        """Send the body of `content` events to this listener alone; the others get them without their body."""
        self._listeners = [listener, *(partial(_give_without_body, one) for one in self._listeners)]
        self._withholds = True

    def _drop(self, listener: Listener, raised: BaseException) -> None:
        """Remove a subscriber that raised; raise the exception again if it is not the subscriber's own failure."""
        error = plain_failure_of(raised)
        if error is None:
            raise raised
        # A new list: the delivery under way still iterates over the old one.
        self._listeners = [other for other in self._listeners if other is not listener]
        _logger.error("subscriber %r raised and gets no more events", listener, exc_info=error)

    def traceparent(self) -> str | None:
        """Return the trace context of the run, from the first subscriber that has one; None without any."""
        for one in self.surroundings:
            ask: Callable[[str], str | None] | None = getattr(one, "traceparent", None)
            try:
                found = None if ask is None else ask(self.run_id)
            except BaseException as raised:  # noqa: BLE001 - whatever it raises, the run continues
                self.drop_surrounding(one, raised)
            else:
                if found is not None:
                    return str(found)
        return None

    def drop_surrounding(self, one: Surrounding, raised: BaseException) -> None:
        """Stop wrapping work with a subscriber that raised; raise an exception again that is not its own failure."""
        error = plain_failure_of(raised)
        if error is None:
            raise raised
        if one not in self.surroundings:
            return
        self.surroundings = tuple(other for other in self.surroundings if other is not one)
        _logger.error("subscriber %r raised and wraps no more work", one, exc_info=error)

    @asynccontextmanager
    async def pumping(self, grace: float) -> AsyncGenerator[None]:
        """Serve the async subscribers; at the end they get `grace` seconds to catch up, then a `Lagged`."""
        if not self._mailboxes:
            yield
            return
        async with anyio.create_task_group() as pumps:
            host = asyncio_task()
            for mailbox in self._mailboxes:
                pumps.start_soon(_serve, mailbox, host)
            try:
                yield
            finally:
                await self._drain(grace)

    async def _drain(self, grace: float) -> None:
        for mailbox in self._mailboxes:
            mailbox.close()
        await self._wait_for_mailboxes(grace * (1 - _LAST_WORD))
        for mailbox in self._mailboxes:
            mailbox.scope.cancel()
        await self._wait_for_mailboxes(grace * _LAST_WORD)
        for mailbox in self._mailboxes:
            mailbox.last_word.cancel()

    async def _wait_for_mailboxes(self, seconds: float) -> None:
        # Shielded: the run may be cancelled already, and its subscribers have the grace all the same.
        with anyio.move_on_after(seconds, shield=True):
            for mailbox in self._mailboxes:
                await mailbox.done.wait()


def discard_event(*_event: object) -> None:
    """Drop an event, for want of subscribers."""
