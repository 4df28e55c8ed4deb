"""One attempt of a graph: every call of a model or tool in it takes the governed path."""

from __future__ import annotations

import json
import math
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from anyio.from_thread import BlockingPortal
from anyio.lowlevel import current_token

from kairo_team._util.threads import run_in_thread
from kairo_team.agents.langgraph_views import written_in
from kairo_team.agents.wrapped import GovernedCalls
from kairo_team.errors import GuardrailDenied, InsufficientBudget, KairoError, ModelCallError, ModelUnavailable
from kairo_team.models.error_bodies import error_bodies_refused
from kairo_team.models.governed_model import DEFAULT_MAX_TOKENS
from kairo_team.models.prompt_bounds import prompt_bound
from kairo_team.models.provider_errors import client_error
from kairo_team.models.readings import broken_off, without_thoughts
from kairo_team.models.resolver import refuse_real
from kairo_team.models.tool_calls import sound_request

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kairo_team.contracts import ChatModel, MemberContext
    from kairo_team.messages import ModelRequest, ModelResponse

T = TypeVar("T")
F = TypeVar("F", bound="Followed")

current: ContextVar[GraphAttempt | None] = ContextVar("kairo_team_graph_attempt", default=None)
"""The current attempt; tasks and threads that LangGraph starts inherit it."""

_BLOCKING: Final = (
    "was called synchronously in the event loop's own thread, which would hold up the whole team: await its async "
    "form (ainvoke), or make the node a plain function, which runs in a thread"
)

OVER: Final = "the attempt this call belongs to is over: no more calls are made for it"
_PATIENCE: Final = 0.4
"""Seconds for a graph to end after its cancellation; then it is abandoned. Usually less than a team's grace period, so
that there is time left to detach from the graph."""
_WRAP: Final = "build the graph with governed(model) to let it"
_HALF: Final = "the request holds half of a character: build the graph with governed(model) to replace it"


class GraphAttempt(GovernedCalls):
    """One run of a graph. Its task group ends with it, even if the graph left tasks running."""

    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self.over = False
        self.not_json: dict[str, str] = {}
        """Arguments of streamed tool calls that are not JSON, by the ids of the calls; LangChain completes them."""
        self._thread = threading.get_ident()
        # Taken here, because finalizers run in threads where no running loop can be looked up.
        self._post: Callable[[Callable[[], object]], object] = current_token().native_token.call_soon_threadsafe  # type: ignore[attr-defined]  # asyncio's
        self._tasks: TaskGroup
        self._portal: BlockingPortal

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await the graph; raise the first error that ended it, even if the graph converted it."""
        results: list[T] = []
        trouble: Exception | None = None
        async with anyio.create_task_group() as self._tasks, BlockingPortal() as self._portal:
            outer = current.set(self)
            try:
                with error_bodies_refused(""):
                    results.append(await _in_its_own_task(work))
            except Exception as error:  # noqa: BLE001 - raised below, outside the task groups
                trouble = error
            finally:
                current.reset(outer)
                self.over = True  # before the cancellation: calls that arrive during it are refused
                self._tasks.cancel_scope.cancel()
        # First, because the other error is often what the graph made of this one.
        self.ending.check()
        if trouble is not None:
            raise trouble
        return results[0]

    @property
    def at_home(self) -> bool:
        """Whether this is the thread of the run's event loop."""
        return threading.get_ident() == self._thread

    def wait_for(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await a function in the run's event loop, from another thread."""
        if self.at_home:
            raise RuntimeError(f"a model or tool {_BLOCKING}")
        return self._portal.call(function, *args)

    async def come_home(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await a function in the run's event loop, from there or from the loop of another thread."""
        return await (function(*args) if self.at_home else run_in_thread(self.wait_for, function, *args))

    async def complete(self, model: ChatModel, request: ModelRequest) -> ModelResponse:
        """Call a model on the governed path; errors other than the model's own end the graph."""
        try:
            return await self.call(model, request)
        except KairoError as error:
            if not isinstance(error, ModelCallError):  # the graph may handle these as it likes
                self.end_with(error)
            raise

    async def call(self, model: ChatModel, request: ModelRequest) -> ModelResponse:
        """Call a model like every wrapper; where the call was not made, raise the reason."""
        try:
            return await super().call(model, request)
        except NotMade as refused:
            raise refused.problem from None

    async def follow(self, of: Any, make: Callable[[], F]) -> F:
        """Wait until a call of the graph may be made; return it for `answer`, or raise the error that refuses it.

        `of` is an object that lives as long as that call: when it is collected before the answer, the call was
        cancelled.
        """
        if self.over:
            raise RuntimeError(OVER)
        call = make()
        weakref.finalize(of, self._let_go, call).atexit = False  # at the interpreter's exit the loop is gone
        del of  # this frame would keep it alive
        self._tasks.start_soon(self._walk, call)
        try:
            await call.admitted.wait()
        # Also a cancellation: no outcome of this call will be reported, and its hold must not stay.
        except BaseException:
            call.scope.cancel()
            raise
        if call.error is not None:
            raise call.error
        if not call.open:
            raise RuntimeError(OVER)
        return call

    async def answer(self, call: Followed, reply: Any, error: BaseException | None = None) -> None:
        """Report the outcome of a call; raise the error that refuses its result."""
        call.reply, call.raised = reply, error
        call.replied.set()
        if error is not None and not isinstance(error, Exception):
            call.scope.cancel()  # it was cancelled: its usage is unknown
        await call.ended.wait()
        if error is None and call.error is not None:
            raise call.error

    def end_with(self, error: KairoError) -> None:
        """End the graph at once: after this error no result counts, even if the graph catches it."""
        if self.ending.error is None:
            self.ending.note(error)
            self._tasks.cancel_scope.cancel()

    async def leave_with(self, error: KairoError) -> None:
        """Do the same as `end_with`, as an async function."""
        self.end_with(error)

    async def _walk(self, call: Followed) -> None:
        try:
            with call.scope:
                await call.walk(self)
        except Exception as error:  # noqa: BLE001 - raised to the caller of the model
            call.error = error
            if isinstance(error, KairoError) and not isinstance(error, ModelCallError):  # as in `complete`
                self.end_with(error)
        finally:
            # Both on every path, because the caller waits for both, also after a refusal.
            call.admitted.set()
            call.ended.set()

    def _let_go(self, call: Followed) -> None:
        """Cancel a call whose caller is gone; may run in any thread, and after the event loop has ended."""
        if not call.ended.is_set():
            with suppress(RuntimeError):
                self._post(call.scope.cancel)


async def _in_its_own_task(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await the work in a task that is cancelled only once, as asyncio does."""
    loop: Any = current_token().native_token
    done = anyio.Event()

    def ended(_task: Any) -> None:
        done.set()

    # A cancel scope cancels again at every await, also when LangGraph waits for its own tasks to end, and would leave
    # them running. It does not reach into a task of asyncio.
    task = loop.create_task(work())
    task.add_done_callback(ended)
    try:
        await done.wait()
    except anyio.get_cancelled_exc_class():
        task.cancel()
        with anyio.move_on_after(_PATIENCE, shield=True):
            await done.wait()
        if task.done() and not task.cancelled():
            task.exception()  # asyncio logs an exception that was never retrieved
        raise
    finally:
        task.cancel()
    if task.cancelled():
        # `result()` would raise a cancellation here that no scope around it has caused.
        raise RuntimeError("the graph cancelled itself")
    result: T = task.result()
    return result


class Followed(ABC):
    """A call that the graph makes itself, accompanied by the governed path. Constructed in the run's event loop."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.admitted = anyio.Event()
        """Set once the call may be made, or has ended."""
        self.replied = anyio.Event()
        self.ended = anyio.Event()
        self.open = False
        """Whether the governed path allowed the call."""
        self.reply: Any = None
        self.raised: BaseException | None = None
        """The error of the call itself."""
        self.error: Exception | None = None
        """The error of the governed path."""

    @abstractmethod
    async def walk(self, attempt: GraphAttempt) -> None:
        """Take the governed path, with `pass_on` instead of the call."""
        raise NotImplementedError

    async def pass_on(self) -> Any:
        """Allow the call; return its result, or raise its error."""
        self.open = True
        self.admitted.set()
        await self.replied.wait()
        if self.raised is not None:
            raise self.raised
        return self.reply


class FollowedModel(Followed):
    """A call of a model that is not wrapped, as the `ChatModel` that the governed path calls."""

    steerable = False
    """False: the request is fixed already, so directives cannot be added."""
    repeatable = False
    """False: only the graph can repeat the call."""

    def __init__(self, name: str, request: ModelRequest, beyond: int, *, written_in: str) -> None:
        """`written_in` is the model's class with its module, as LangChain reports it."""
        super().__init__()
        self.name = name
        self._written_in = written_in
        once = {**request.settings, "call": uuid.uuid4().hex}  # unique, so that no record answers the call
        copies, most = request.settings.get("n"), request.max_tokens
        if isinstance(copies, int) and copies > 1:  # of which the graph gets the first
            most = copies * (most or DEFAULT_MAX_TOKENS)
        self._request = replace(request, settings=once, max_tokens=most)
        self._beyond = beyond
        self._pieces: list[str] = []
        """The streamed text."""
        self._written: dict[Any, list[Any]] = {}
        """Id and arguments of each streamed tool call, by the place of the call."""

    def note_piece(self, message: Any) -> None:
        """Note one piece of a streamed reply; `message` is LangChain's, None where an integration shows none."""
        # Also an empty text, because `complete` asks whether anything was streamed.
        self._pieces.append("" if message is None else written_in(message))
        for place, piece in enumerate(getattr(message, "tool_call_chunks", ())):
            written = self._written.setdefault(piece.get("index", place), ["", ""])
            written[0] += piece.get("id") or ""
            written[1] += piece.get("args") or ""

    async def walk(self, attempt: GraphAttempt) -> None:
        """Hold and settle the call; refuse changes that cannot be applied to a call of the graph."""
        self._attempt = attempt
        response = await attempt.call(self, self._request)
        if (response.text, tuple(response.tool_calls)) != self._original:
            raise GuardrailDenied("a guardrail", "post_model", f"it would change the reply of {self.name}: {_WRAP}")

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Allow the call if it may be made unchanged; raises `ModelCallError` when no answer came."""
        refuse_real(self.name, [self._written_in])
        if sound_request(self._request) != self._request:
            raise ModelCallError("bad_request", self.name, _HALF, unspent=True)
        if (request.messages, request.settings) != (self._request.messages, self._request.settings):
            why = f"it would change the request to {self.name}: {_WRAP}"
            raise NotMade(self.name, GuardrailDenied("a guardrail", "pre_model", why))
        wanted = self._request.max_tokens or DEFAULT_MAX_TOKENS
        if request.max_tokens is not None and request.max_tokens < wanted:
            governor, most = self._attempt.context.governor, request.max_tokens
            dimension = "dollars" if governor.remaining.tokens else "tokens"
            left = f"room for only {most} reply" if dimension == "tokens" else f"enough for {most} reply tokens"
            asked = f"a reply of up to {wanted} by {self.name} (only governed(model) can cut it short)"
            short = InsufficientBudget(dimension, asked, left, governor.name, path=governor.path)
            raise NotMade(self.name, short)
        response: ModelResponse
        try:
            response, whole = await self.pass_on()
        except Exception as error:
            self._keep_pieces()
            meant = client_error(self.name, error)
            if meant is None:
                raise
            meant.retry_after = math.inf  # the graph has made the call: only the graph can make it again
            raise meant from error
        if self._pieces and not whole:
            self._keep_pieces()
            raise broken_off(self.name)
        self._attempt.not_json.update((call, text) for call, text in self._written.values() if not _is_json(text))
        self._original = (response.text, tuple(response.tool_calls))
        return response

    def _keep_pieces(self) -> None:
        """Keep the text that came before a stream broke off; without any, an earlier text stays kept."""
        text = without_thoughts("".join(self._pieces))
        if text.strip():
            self._attempt.context.keep(text)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return an upper bound that includes content beyond the text."""
        return prompt_bound(request) + self._beyond


def _is_json(text: str) -> bool:
    """Return whether LangChain would read the arguments of a whole reply; a blank text means no arguments."""
    try:
        json.loads(text or "{}", strict=False)
    except (ValueError, RecursionError):
        return False
    return True


class NotMade(ModelUnavailable):
    """The call was not made and costs nothing; `problem` is the reason."""

    def __init__(self, model: str, problem: KairoError) -> None:
        super().__init__(model, str(problem))
        self.problem = problem
