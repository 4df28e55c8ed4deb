"""Call a check: under a time limit, with a bounded answer, and without blaming its crash on the artifact."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team._util.counts import in_seconds
from kairo_team._util.plugin_shapes import is_async
from kairo_team._util.threads import context_for_thread, run_in_thread
from kairo_team.artifacts import Finding
from kairo_team.errors import HaltError, InsufficientBudget, innermost
from kairo_team.evaluators.criterion import Answer, Criterion, takes_context
from kairo_team.plugin_calls import failure_of, log_error, problem_of

if TYPE_CHECKING:
    from kairo_team.verdicts import EvaluationContext

CHECK_TIMEOUT: Final = 10.0
"""Seconds one check may take unless its rubric or its own `timeout` sets another limit."""
MAX_SAID: Final = 2_000
"""Most characters that are kept of each text a check returns."""

_logger = logging.getLogger("kairo_team")


class Asker:
    """A function of a criterion and how to call it: worked out once, used for every artifact."""

    __slots__ = ("_function", "_in_place", "_patience", "_takes_context", "_timeout", "_what")

    def __init__(self, what: str, function: Callable[..., Any], timeout: float) -> None:
        self._what = what
        self._function = function
        self._takes_context = takes_context(function)
        own: Any = getattr(function, "timeout", None)
        self._timeout: float = timeout if own is None else own
        self._in_place = is_async(function) or getattr(function, "in_place", False) is True
        self._patience = PATIENCE

    async def ask(self, context: EvaluationContext) -> Any:
        """Return what the function returns, or an `Answer` that it is unknown because it crashed or took too long.

        Errors of the budget are raised: they are not about the artifact.
        """
        try:
            returned = self._call(context) if self._in_place else self._begin(context)
            if not inspect.isawaitable(returned):
                return returned
            with anyio.move_on_after(self._timeout):
                return await returned
        except BaseException as raised:
            error = failure_of(raised)
            if error is None or isinstance(innermost(error), HaltError | InsufficientBudget):
                raise
            log_error(self._what, "", error)
            return Answer(None, f"{self._what} raised {problem_of(error, MAX_SAID)}")
        _logger.warning("%s took longer than %g seconds", self._what, self._timeout)
        return Answer(None, f"{self._what} took longer than {in_seconds(self._timeout)}")

    def _call(self, context: EvaluationContext) -> Any:
        given = (context.artifact, context) if self._takes_context else (context.artifact,)
        return self._function(*given)

    def _begin(self, context: EvaluationContext) -> Any:
        """Call a plain function; return its answer, or an awaitable when it takes longer than the patience left."""
        call = PlainCall(lambda: self._call(context))
        ended = call.ends_within(self._patience)
        self._patience = PATIENCE if ended else 0.0  # a slow check blocks the event loop only once
        return call.outcome() if ended else self._later(call)

    async def _later(self, call: PlainCall) -> Any:
        await call.wait(self._timeout + 1)  # `ask` ends before; the thread that waits must not stay for ever
        returned = call.outcome()
        return await returned if inspect.isawaitable(returned) else returned


def as_answer(criterion: Criterion, returned: Any) -> Answer:
    """Convert what a check returned; a value that no check may return makes the criterion unknown."""
    if returned is True or returned is False:  # not by truth: 1 or "yes" may be a mistake
        return Answer(returned)
    if isinstance(returned, str) and returned.strip():
        return Answer(level=False, finding=Finding(criterion.id, observed=cut(returned)))
    if isinstance(returned, Finding):
        return Answer(level=False, finding=returned)
    if isinstance(returned, Answer):
        return returned
    wanted = "True, False, a sentence, a Finding or an Answer"
    return Answer(None, f"the check returned {_show_returned(returned)} instead of {wanted}")


def cut(text: str) -> str:
    """Cut a text after `MAX_SAID` characters."""
    return text if len(text) <= MAX_SAID else f"{text[:MAX_SAID]}..."


def cut_finding(finding: Finding) -> Finding:
    """Cut each text of a finding after `MAX_SAID` characters."""
    parts = {name: getattr(finding, name) for name in ("locus", "observed", "expected", "recheck")}
    long: dict[str, Any] = {name: cut(text) for name, text in parts.items() if len(text) > MAX_SAID}
    return replace(finding, **long) if long else finding


def _show_returned(returned: Any) -> str:
    plain = returned is None or isinstance(returned, str | bytes | int | float)
    return f"{returned!r:.100}" if plain else f"an object of class {type(returned).__name__}"


PATIENCE: Final = 0.1
"""Most seconds that the event loop is blocked for a plain function."""


class PlainCall:
    """One call of a plain function, in a daemon thread: if it hangs, the run and the process can still end.

    A quick function ends while the event loop is blocked for it. This looks like a call in place: no other task runs
    meanwhile, and no virtual time passes.
    """

    __slots__ = ("_call", "_done", "_error", "_result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def ends_within(self, seconds: float) -> bool:
        """Start the call, block for at most `seconds`, and return whether it has ended."""
        threading.Thread(target=context_for_thread().run, args=(self._work,), name="kairo-check", daemon=True).start()
        return self._done.wait(seconds)

    async def wait(self, longest: float) -> None:
        """Wait at most `longest` seconds without blocking the event loop; cancelling does not end the call."""
        await run_in_thread(self._done.wait, longest)

    def outcome(self) -> Any:
        """Return the function's result, or raise its error."""
        if self._error is None:
            return self._result
        try:
            raise self._error
        finally:
            self._error = None  # else the error, its traceback and this object keep each other alive

    def _work(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            self._error = error
        finally:
            self._done.set()
