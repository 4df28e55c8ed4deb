"""`ModelLimit`: how many calls of a model may be in flight, and how many calls and tokens may begin in a minute."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import anyio

from kairo_team._util.frozen import known_arguments
from kairo_team.budget import check_count
from kairo_team.errors import known
from kairo_team.governance.halts import current_loop, send

_MINUTE: Final = 60.0
_SLACK: Final = 1e-6
"""Seconds by which a timer may fire early."""
_APART: Final = 1.0
"""Seconds by which the clocks of two event loops may seem to differ: a busy machine may stop a thread between two
readings. A call that began further in the future belongs to a virtual time that has ended."""


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelLimit:
    """The limits that a provider sets for an account; None is unlimited.

    First come, first served. A call that waits holds no budget meanwhile. A call that waits for budget has no place in
    the line: it queues again once it can be paid, and then keeps its budget.
    """

    concurrency: int | None = None
    """Calls in flight at once."""
    per_minute: int | None = None
    """Calls begun in any 60 seconds; every try of a call counts."""
    tokens_per_minute: int | None = None
    """Tokens of the calls begun in any 60 seconds, prompts and replies together.

    A call counts with the most that it can use until it ends, then with its usage. A call that can use more than the
    limit waits until no other call counts, and runs alone.
    """

    def __post_init__(self) -> None:
        for name in ("concurrency", "per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is None:
                continue
            check_count(f"ModelLimit.{name}", value)
            if value == 0:
                raise ValueError(f"ModelLimit.{name} must be at least 1, or None for no limit; 0 would wait for ever")


class ModelLimits:
    """The limits of one program, and the calls inside them; may be used from several event loops and threads.

    An exact name is used before patterns such as `openai:*`, and patterns in the order listed. All models that one
    pattern matches share its limit.
    """

    def __init__(
        self, limits: Mapping[str, ModelLimit] | None = None, names_of: Callable[[Any], Iterable[str]] | None = None
    ) -> None:
        """Take limits by pattern, and a function that returns the names under which a model is registered."""
        if limits is not None and not isinstance(limits, Mapping):
            raise ValueError(f"limits are given by model, such as {{'openai:*': kt.ModelLimit(8)}}, not {limits!r:.80}")
        self._gates = {pattern: Gate(_checked(pattern, limit)) for pattern, limit in dict(limits or {}).items()}
        self._names_of = names_of
        self._found: dict[tuple[str, ...], str | None] = {}

    def __bool__(self) -> bool:
        return bool(self._gates)

    def names(self, model: Any) -> tuple[str, ...]:
        """Return the names by which a limit may be set for a model, the model's own first."""
        return (model.name, *(() if self._names_of is None else self._names_of(model)))

    def gate_of(self, model: Any) -> Gate | None:
        """Return the gate at which calls of a model wait; None if the model has no limit."""
        return self.gate(*self.names(model)) if self._gates else None

    def gate(self, *names: str) -> Gate | None:
        """Return the gate of a model by its names."""
        pattern = self.pattern(*names)
        return None if pattern is None else self._gates[pattern]

    def pattern(self, *names: str) -> str | None:
        """Return the pattern of the limit for a model with these names; None if it has no limit."""
        if names not in self._found:
            exact = next((name for name in names if name in self._gates), None)
            matching = (pattern for pattern in self._gates for name in names if fnmatchcase(name, pattern))
            self._found[names] = exact or next(matching, None)
        return self._found[names]

    def notes(self, models: Collection[tuple[str, ...]]) -> list[str]:
        """Return a sentence for each model, given by its names, that says which limit applies."""
        if not self._gates:
            return []
        found = {_called(names): self.pattern(*names) for names in models}
        return [
            f"model {name} has no limit of Runtime.model_limits"
            if pattern is None
            else f"model {name} is limited by {pattern!r} of Runtime.model_limits"
            for name, pattern in found.items()
        ] + self.warnings(models)

    def warnings(self, models: Collection[tuple[str, ...]]) -> list[str]:
        """Return a sentence for each limit that has matched no model yet; empty if all these models are limited."""
        unlimited = dict.fromkeys(_called(names) for names in models if self.pattern(*names) is None)
        if not unlimited:
            return []
        used = set(self._found.values())
        return [
            f"Runtime.model_limits has {pattern!r}, which matches no model of the run; {', '.join(unlimited)} runs "
            "without a limit: set it for that name, or for a name in Runtime(models={...})"
            for pattern in self._gates
            if pattern not in used
        ]


def _called(names: Sequence[str]) -> str:
    """Return a model's own name with the others by which a limit may be set."""
    own, *others = names
    return f"{own!r} ({known(others)})" if others else repr(own)


def _checked(pattern: object, limit: object) -> ModelLimit:
    if not isinstance(pattern, str) or not (":" in pattern or "*" in pattern):
        raise ValueError(f"limits are set for 'provider:name' or a pattern such as 'openai:*', not for {pattern!r}")
    if not isinstance(limit, ModelLimit):
        raise ValueError(f"the limit of {pattern!r} must be a kt.ModelLimit, such as kt.ModelLimit(8), not {limit!r}")
    return limit


class Turn:
    """One call that a gate has admitted."""

    __slots__ = ("at", "counts", "held", "tokens", "withdrawn")

    def __init__(self, at: float = 0.0, held: int = 0) -> None:
        self.at = at
        """Start of the call, in seconds."""
        self.held = held
        """Tokens with which the call counts."""
        self.counts = False
        """Whether the call counts as begun in the last minute; updated when a gate looks for old calls."""
        self.tokens = 0
        """Tokens used; the caller sets them when the call ends."""
        self.withdrawn = False
        """Whether no call was made: then the turn counts nothing."""


class _Waiter:
    """A caller in line, and the most tokens that its call can use."""

    __slots__ = ("_event", "_loop", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._event = anyio.Event()
        self._loop = current_loop()  # an event may be set only in its own loop

    def wake(self) -> None:
        """Wake the waiting call; from any thread."""
        send(self._loop, self._event.set)

    async def sleep(self, seconds: float | None) -> None:
        """Sleep until woken, at most for `seconds`."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        if self._event.is_set():  # a wake-up during the check must not be lost
            self._event = anyio.Event()


class Gate:
    """One limit: the calls inside, the calls that wait, and those that began in the last minute."""

    def __init__(self, limit: ModelLimit) -> None:
        self._limit = limit
        # A limit is shared by all event loops of the process; it is never held across an await.
        self._lock = threading.Lock()
        self._inside = 0
        self._begun: deque[Turn] = deque()
        self._tokens = 0  # of the turns in `_begun`
        self._line: deque[_Waiter] = deque()
        self._clock = _Clock()

    @property
    def counts_tokens(self) -> bool:
        """Whether a caller must state the most tokens that its call can use."""
        return self._limit.tokens_per_minute is not None

    @asynccontextmanager
    async def turn(self, tokens: int = 0, on_wait: Callable[[], object] | None = None) -> AsyncGenerator[Turn]:
        """Wait for a turn and keep it inside the block. A caller that is cancelled while it waits leaves the line.

        `tokens` is the most that the call can use. Before the block ends, set `Turn.tokens` to the tokens used, or
        `Turn.withdrawn` if no call was made. `on_wait` is called before the first wait, if there is one.
        """
        turn = await self._enter(tokens, on_wait)
        try:
            yield turn
        finally:
            with self._lock:
                self._inside -= 1
                if turn.counts and turn.withdrawn:
                    turn.counts = False
                    self._begun.remove(turn)
                    self._tokens -= turn.held
                elif turn.counts:
                    self._tokens += turn.tokens - turn.held
                    turn.held = turn.tokens
                self._call_next()

    async def _enter(self, tokens: int, on_wait: Callable[[], object] | None) -> Turn:
        with self._lock:
            if not self._line and self._due(tokens) == 0:  # a newcomer must not overtake the line
                return self._begin(tokens)
            waiter = _Waiter(tokens)
            self._line.append(waiter)
        try:
            # A loop: a timer may fire early, and a wake-up only says that something changed.
            while not isinstance(turn := self._let_in(waiter), Turn):
                if on_wait is not None:
                    on_wait()
                    on_wait = None
                await waiter.sleep(turn)
        except BaseException:
            with self._lock:
                self._line.remove(waiter)
                self._call_next()
            raise
        return turn

    def _let_in(self, waiter: _Waiter) -> Turn | float | None:
        """Admit the caller if it is first in line, else return the seconds to wait; None: until woken."""
        with self._lock:
            if self._line[0] is not waiter:
                return None
            due = self._due(waiter.tokens)
            if due != 0:
                return due
            self._line.popleft()
            turn = self._begin(waiter.tokens)
            self._call_next()
            return turn

    def _due(self, tokens: int) -> float | None:
        """Return the seconds until a call may begin; None: when another call has ended. Needs the lock."""
        limit = self._limit
        if limit.concurrency is not None and self._inside >= limit.concurrency:
            return None
        if limit.per_minute is None and limit.tokens_per_minute is None:
            return 0.0
        now, begun = self._clock(), self._begun
        # The right bound drops calls of a virtual clock that was ahead.
        while begun and not now - _MINUTE + _SLACK < begun[0].at <= now + _APART:
            turn = begun.popleft()
            turn.counts = False
            self._tokens -= turn.held
        last = self._last_in_the_way(tokens)
        return 0.0 if last is None else last.at + _MINUTE - now

    def _last_in_the_way(self, tokens: int) -> Turn | None:
        """Return the last started call that must be a minute old before a call of this many tokens may begin."""
        limit, last = self._limit, None
        if limit.per_minute is not None and len(self._begun) >= limit.per_minute:
            # This one must leave the window for another to fit.
            last = self._begun[len(self._begun) - limit.per_minute]
        if limit.tokens_per_minute is not None:
            # `min`: a call above the limit runs alone, where it would otherwise never run.
            over = self._tokens + min(tokens, limit.tokens_per_minute) - limit.tokens_per_minute
            for turn in self._begun:
                if over <= 0:
                    break
                over -= turn.held
                last = turn if last is None or turn.at > last.at else last
        return last

    def _begin(self, tokens: int) -> Turn:
        self._inside += 1
        turn = Turn(self._clock(), tokens)
        if self._limit.per_minute is not None or self.counts_tokens:
            turn.counts = True
            self._begun.append(turn)
            self._tokens += tokens
        return turn

    def _call_next(self) -> None:
        if self._line:
            self._line[0].wake()  # only the first: it wakes the next when it is admitted


class _Clock:
    """The running event loop's clock, shifted so that readings of different loops can be compared."""

    __slots__ = ("_ahead", "_loop")

    def __init__(self) -> None:
        self._loop: Any = None
        self._ahead = 0.0

    def __call__(self) -> float:
        """Return the time in seconds, virtual in an event loop with virtual time."""
        now, loop = anyio.current_time(), current_loop()
        if loop is not self._loop:
            self._loop, self._ahead = loop, time.monotonic() - now
        return now + self._ahead
