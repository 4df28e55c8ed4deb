"""Calls of plug-ins: whatever a plug-in raises becomes an `Exception`, and its traceback is logged once per run.

Two kinds of exceptions are not the plug-in's and pass unchanged: a cancellation that was requested from outside, and
what the handler of a signal raised while the plug-in ran, such as the `KeyboardInterrupt` of Ctrl-C. Everything else,
`SystemExit` included, becomes an `Exception`, so that callers need to handle nothing else.
"""

from __future__ import annotations

import logging
import math
import operator
import signal
import sys
import threading
import traceback
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import Context, ContextVar
from dis import opname
from itertools import islice
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Final, TypeVar, cast

import anyio
from anyio import NoEventLoopError

from kairo_team._util.context_values import set_for
from kairo_team._util.open_scopes import cancelled_around, marker
from kairo_team.errors import BadExit, KairoError, innermost

T = TypeVar("T")

_LONGEST: Final = 500
"""The most characters of a problem's text: it is part of events, results and prompts."""
_LEAVES: Final = 5
"""How many exceptions of a group are shown; the others are counted."""
_DEEPEST: Final = 50
"""The most levels of a group that is raised as it is."""
_WIDEST: Final = 1000
"""How many exceptions of a deeper group are kept."""
_LOOPS: Final = frozenset({"asyncio", "trio"})
"""Packages whose frames raise `KeyboardInterrupt` for a signal that came earlier."""

_WHY: Final[dict[type[BaseException], str]] = {
    SystemExit: "a plug-in cannot end the program; let it return, or raise an Exception",
    KeyboardInterrupt: "Ctrl-C was not pressed; let it raise an Exception",
    GeneratorExit: "it was not closed; let it raise an Exception",
}
_CANCELLED_ITSELF: Final = "it cancelled the task it ran in; let it raise an Exception"
_CANCELLED: Final = "it was not cancelled, but something it waited for was"
_NO_EXCEPTION: Final = "it is not an Exception; derive it from Exception"

_own_tasks: Final[dict[Any, tuple[Any, int]]] = {}
"""The library's own asyncio tasks, which only the scopes around them cancel. Each has the task that it works for, and
how often that one had been cancelled before."""


_stray: Final[set[Any]] = set()
"""Tasks of the library that a plug-in cancelled: they get that cancellation where they wait for something next."""


def failure_of(raised: BaseException) -> Exception | None:
    """Return the failure of awaited foreign code as an `Exception`; None if it must pass unchanged.

    A group passes unchanged if one of its parts must.
    """
    return sound(raised) if isinstance(raised, Exception) else _failure_of(raised, _is_requested)


def plain_failure_of(raised: BaseException) -> Exception | None:
    """Return the failure of foreign code that was called but not awaited, which nothing can cancel."""
    return sound(raised) if isinstance(raised, Exception) else _failure_of(raised, None)


def judged_failure_of(raised: BaseException) -> Exception | None:
    """Return the failure of an error that passed such a border; a cancellation that passed it was requested.

    Use this where scopes were left since then.
    """
    return raised if isinstance(raised, Exception) else _failure_of(raised, _was_requested)


def without_failures(raised: BaseException) -> BaseException:
    """Return the part of an error that must pass unchanged, without the failures in the same group."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised
    group = cast("BaseExceptionGroup[BaseException]", raised)
    return group.split(lambda one: judged_failure_of(one) is not None)[1] or group


class PluginCall:
    """A block around a call: foreign code's exceptions leave it as an `Exception`, unless they must pass unchanged."""

    __slots__ = ("_failure_of", "_is_awaited")

    def __init__(self, failure_of: Callable[[BaseException], Exception | None], *, is_awaited: bool) -> None:
        self._failure_of = failure_of
        self._is_awaited = is_awaited

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, raised: BaseException | None, _trace: object) -> None:
        if raised is None or isinstance(raised, Exception):
            # First, because it takes the cancellation back.
            if cancelled_itself() and raised is None and not self._is_awaited:
                raise cancelled_error()
            failure = None if raised is None else sound(raised)
        else:
            failure = self._failure_of(raised)
        if failure is not None and failure is not raised:
            raise failure


AWAITED_CALL: Final = PluginCall(failure_of, is_awaited=True)
"""Wraps an await."""
PLAIN_CALL: Final = PluginCall(plain_failure_of, is_awaited=False)
"""Wraps a call that is not awaited."""


def problem_of(error: BaseException, longest: int | None = _LONGEST) -> str:
    """Return class and text of an error, cut to `longest` characters; never raises, even if the error's `str` does.

    A group is described by its first leaves: its own text has only their number.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        leaves = leaves_of(group)
        words = [problem_of(leaf, longest) for leaf in islice(leaves, _LEAVES)]
        if len(words) == 1:
            return words[0][:longest]
        more = sum(1 for _ in leaves)
        rest = f"; and {more:,} more" if more else ""
        return f"{type(group).__name__}: {_message_of(group)}: {'; '.join(words)}{rest}"[:longest]
    text, kind = _text_of_error(error, str), type(error).__name__
    if isinstance(error, BadExit):
        return text
    return f"{kind}: {text}"[:longest] if text.strip() else kind


def words_of(error: BaseException) -> str:
    """Return the text of an error, or the name of its class if the text is empty; `problem_of` a group."""
    if isinstance(error, BaseExceptionGroup):
        return problem_of(cast("BaseException", error))
    return _text_of_error(error, str) or type(error).__name__


def sentence_of(error: Exception) -> str:
    """Return the library's own sentence, or class and text of any other error: a `KeyError` says only its key."""
    cause = innermost(error)
    return words_of(cause) if isinstance(cause, KairoError) else problem_of(cause)


def shown(value: object, longest: int = 200) -> str:
    """Return the `repr` of a plug-in's value, cut to `longest` characters; its class if `repr` fails."""
    try:
        return f"{str.__str__(repr(value)):.{longest}}"  # `repr` may return a subclass with its own `__format__`
    except BaseException as raised:
        if plain_failure_of(raised) is None:
            raise
        return f"a {type(value).__name__} that cannot be shown"


def _message_of(group: BaseExceptionGroup[BaseException]) -> str:
    """Return the text of the first group that contains more than another group."""
    # Each task group on the way adds a group of one.
    while len(group.exceptions) == 1 and isinstance(group.exceptions[0], BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", group.exceptions[0])
    return _text_of_error(group, lambda one: cast("Any", one).message)


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group that are not groups, however deep; any other error is its own only leaf."""
    ahead = [error]
    while ahead:
        one = ahead.pop()
        if isinstance(one, BaseExceptionGroup):
            # The last one is popped first.
            ahead.extend(reversed(cast("BaseExceptionGroup[BaseException]", one).exceptions))
        else:
            yield one


def sound(raised: Exception) -> Exception:
    """Return an exception that can pass scopes: for a very deep group, or one with a class of its own, its leaves."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised
    level: list[BaseException] = [raised]
    # A scope splits the groups that pass it. If that fails, the scope and all scopes around it are not left.
    for _ in range(_DEEPEST):
        if not all(type(one) in (ExceptionGroup, BaseExceptionGroup) for one in level):
            break
        inside = [part for one in level for part in cast("BaseExceptionGroup[BaseException]", one).exceptions]
        level = [one for one in inside if isinstance(one, BaseExceptionGroup)]
        if not level:
            return raised
    leaves = [leaf for leaf in islice(leaves_of(raised), _WIDEST) if isinstance(leaf, Exception)]
    plain = ExceptionGroup(_message_of(raised), leaves)
    plain.__suppress_context__ = True  # showing it would take as many levels
    return plain


def _failure_of(raised: BaseException, is_requested: Callable[[], bool] | None) -> Exception | None:
    """Return the failure; `is_requested` returns whether a cancellation was requested, None: nothing was awaited."""
    if isinstance(raised, Exception):
        return sound(raised)
    if isinstance(raised, BaseExceptionGroup):
        group, parts = cast("BaseExceptionGroup[BaseException]", raised), list[Exception]()
        for leaf in islice(leaves_of(group), _WIDEST):
            part = _failure_of(leaf, is_requested)
            if part is None:
                return None
            parts.append(part)
        return parts[0] if len(parts) == 1 else ExceptionGroup(_message_of(group), parts)
    if _is_cancellation(raised):
        return None if is_requested is not None and is_requested() else _bad_exit(raised, _CANCELLED)
    if isinstance(raised, GeneratorExit) and is_requested is not None:
        frames = list(_frames(raised.__traceback__))
        if frames and not _is_raise(frames[-1]):  # no statement raised it: it was raised at the await
            return None  # its coroutine is being closed
    if _is_by_signal(raised):
        return None
    return _bad_exit(raised, next((why for kind, why in _WHY.items() if isinstance(raised, kind)), _NO_EXCEPTION))


def _bad_exit(raised: BaseException, why: str) -> BadExit:
    shown = _text_of_error(raised, repr) or type(raised).__name__
    end = BadExit(f"{shown:.{_LONGEST}}", why)
    end.__cause__ = raised
    return end


def _text_of_error(error: BaseException, how: Callable[[object], str]) -> str:
    """Return the text of an error; empty if that fails."""
    try:
        return str.__str__(how(error))
    except BaseException as raised:
        if plain_failure_of(raised) is None:
            raise
        return ""


# ---------------------------------------------------------------- cancellations


def _is_cancellation(raised: BaseException) -> bool:
    try:
        return isinstance(raised, anyio.get_cancelled_exc_class())
    except NoEventLoopError:  # a worker thread: nothing is cancelled there
        return False


def _is_requested() -> bool:
    """Return whether the running task was cancelled: by a scope around it, or on asyncio by `Task.cancel`."""
    if anyio.current_effective_deadline() == -math.inf:  # a scope around it is cancelled
        return True
    task = keeper = asyncio_task()
    if task is None or not task.cancelling():
        return False
    if cancelled_around(task):  # anyio cancels the task for that scope, whatever shields it
        return True
    before = 0
    # A task of the library is cancelled with the task that it works for; other cancellations are by code that it runs.
    while keeper in _own_tasks:  # up to the caller's task
        keeper, before = _own_tasks[keeper]
    if keeper.cancelling() > before:
        return True
    while task.cancelling():  # it is taken back
        task.uncancel()
    return False


def _was_requested() -> bool:
    """Return whether a cancellation that a border let through was requested, although scopes were left since then."""
    # In a task of the caller's it was. Its counter is not reliable there: anyio takes back one cancellation too many if
    # a scope inside a child task was cancelled.
    task = asyncio_task()
    return _is_requested() if task is None or is_own(task) else True


def asyncio_task() -> Any:
    """Return the running task of asyncio; None in trio."""
    asyncio: Any = sys.modules.get("asyncio")
    try:
        return None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        return None


def is_own(task: Any) -> bool:
    """Return whether a task is one of the library's."""
    return task in _own_tasks


@asynccontextmanager
async def own_task(works_for: Any) -> AsyncGenerator[Any]:
    """Make the running task the library's during the block, working for another; yield it, None in trio.

    Only errors that must pass leave the block, without other parts of their group; scopes left open in it are closed.
    """
    task = asyncio_task()
    if task is not None:
        _own_tasks[task] = works_for, works_for.cancelling()
    try:
        with nullcontext() if task is None else _Fence(task):
            async with tidy_block():
                yield task
            if task in _stray:
                await _settle(task)
    except BaseExceptionGroup as group:
        raise _passing_part(group) from None
    finally:
        _own_tasks.pop(task, None)  # `task` is None in trio


class tidy_block:  # noqa: N801 - a context manager; a generator would cost several times as much
    """Let a block of foreign code end like ours: its exceptions are judged, and scopes it left open are closed."""

    __slots__ = ("_mark",)

    async def __aenter__(self) -> None:
        self._mark = marker()()

    async def __aexit__(self, kind: object, raised: BaseException | None, trace: object) -> None:
        try:
            AWAITED_CALL.__exit__(kind, raised, trace)
        finally:
            if not self._mark.intact:
                _logger.warning("a cancel scope or task group was left open, and is closed")
                await self._mark.restore()


class _Fence:
    """A block around the work of a task: anyio takes back in this task what it cancelled in it."""

    __slots__ = ("_scope", "_task")

    def __init__(self, task: Any) -> None:
        self._task = task
        # Without a scope here, anyio would take that back from the task around this one.
        self._scope = anyio.CancelScope()

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if raised is not None or self._task.cancelling():  # to cancel is slow: anyio writes down who does it
            self._scope.shield = True
            self._scope.cancel()
        return bool(self._scope.__exit__(kind, raised, trace))


def _passing_part(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the part of a group that passes; a plain cancellation if there is nothing else in it."""
    rest = without_failures(group)
    leaves = list(islice(leaves_of(rest), _WIDEST))
    # A cancellation passes alone: anyio's task groups do not recognise one in a group.
    return leaves[0] if all(map(_is_cancellation, leaves)) else rest


def cancelled_itself() -> bool:
    """Return whether the plug-in that has just run cancelled the library's task that it ran in; take that back."""
    task = asyncio_task()
    if task is None or not task.cancelling() or not is_own(task) or _is_requested():
        return False
    _stray.add(task)
    return True


def cancelled_error() -> BadExit:
    """Return the failure of a plug-in that cancelled the task it ran in."""
    return BadExit("Task.cancel()", _CANCELLED_ITSELF)


@types.coroutine
def without_strays(work: Coroutine[Any, Any, T], task: Any, context: Context | None = None) -> Generator[Any, Any, T]:
    """Do the work in this task of the library, without the cancellations that were taken back.

    Each step runs in the `context`, if there is one.
    """
    send, throw = cast("Any", work.send), cast("Any", work.throw)
    run: Callable[..., Any] = operator.call if context is None else context.run
    sent: Any = None
    error: BaseException | None = None
    while True:
        try:
            waits_for = run(send, sent) if error is None else run(throw, error)
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            # An error that is raised on keeps this frame; a frame that kept it too would make a cycle.
            sent = error = None
        try:
            # asyncio delivers a cancellation at the task's next wait, so a harmless wait goes first.
            if task in _stray:
                yield from _settle(task).__await__()
            sent = yield waits_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - handed on to the work
            error = thrown


async def _settle(task: Any) -> None:
    """Let the cancellation that was taken back arrive in the task."""
    _stray.discard(task)
    try:
        await _one_turn()
    except BaseException as raised:
        if failure_of(raised) is None:
            raise


@types.coroutine
def _one_turn() -> Generator[None]:
    yield


# ---------------------------------------------------------------- signals


def _is_by_signal(raised: BaseException) -> bool:
    """Return whether a signal's handler raised this while foreign code ran in the main thread."""
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread alone
        return False
    frames = list(_frames(raised.__traceback__))
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    if any(one.tb_frame.f_code in handlers for one in frames):  # a handler written in Python
        return True
    if not isinstance(raised, KeyboardInterrupt) or not frames:
        return False
    # The interpreter's own handler has no frame: it raises between two instructions, or inside a call that waits, and
    # never at a `raise`.
    where = str(frames[-1].tb_frame.f_globals.get("__name__", ""))
    return where.partition(".")[0] in _LOOPS or not _is_raise(frames[-1])


def _is_raise(trace: TracebackType) -> bool:
    code = trace.tb_frame.f_code.co_code
    return 0 <= trace.tb_lasti < len(code) and opname[code[trace.tb_lasti]] == "RAISE_VARARGS"


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a signal's handler; None for one that is not written in Python."""
    while hasattr(handler, "func"):  # a partial
        handler = handler.func
    function: Any = getattr(handler, "__func__", handler)
    kind = function.__class__
    code = getattr(function if hasattr(function, "__code__") else getattr(kind, "__call__", None), "__code__", None)  # noqa: B004 - the method itself is needed
    return code if isinstance(code, CodeType) else None


_logger = logging.getLogger("kairo_team")


class Tracebacks:
    """Logs errors of one run's members, evaluators and checks: at WARNING with the traceback once, then at DEBUG.

    Two errors are the same if class, line and plug-in are the same.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[tuple[str, type[BaseException], str]] = set()

    def log(self, plugin: str, occasion: str, error: BaseException) -> None:
        """Log that `plugin`, such as "the member 'ann'", raised; `occasion` is such as "on task 'letter'"."""
        place = ""
        for frame, line in traceback.walk_tb(error.__traceback__):
            # For a helper of ours that refuses a key, name the line that called it.
            if not place or not str(frame.f_globals.get("__name__")).startswith("kairo_team._util."):
                place = f"({Path(frame.f_code.co_filename).name}, line {line})"
        one = (plugin, type(error), place)
        level = logging.DEBUG if one in self._seen else logging.WARNING
        self._seen.add(one)
        _logger.log(level, "%s", " ".join(filter(None, (plugin, "raised", occasion, place))), exc_info=error)

    def here(self) -> AbstractContextManager[object]:
        """Make `log_error` log here during the block."""
        return set_for(_current, self)


_current: Final[ContextVar[Tracebacks | None]] = ContextVar("tracebacks", default=None)


def log_error(plugin: str, occasion: str, error: BaseException) -> None:
    """Log an error that did not end a review, with `Tracebacks.log` of its run; outside a run, each time."""
    (_current.get() or Tracebacks()).log(plugin, occasion, error)
