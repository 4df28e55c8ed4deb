"""LangChain callbacks that follow the calls inside a graph (needs the extra `langgraph`)."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.errors import GraphBubbleUp  # pyright: ignore[reportMissingTypeStubs]

from kairo_team.agents.langgraph_attempt import Followed, FollowedModel, GraphAttempt
from kairo_team.agents.langgraph_models import is_governed, prepare
from kairo_team.agents.langgraph_tools import STEERED, FollowedTool, in_pipeline
from kairo_team.agents.langgraph_views import came_to_its_end, response_view, view
from kairo_team.tools.pipeline import PASSING

if TYPE_CHECKING:
    from types import FrameType
    from uuid import UUID

    from langchain_core.outputs import LLMResult

Make = Callable[[], Followed]
Work = Callable[[], Awaitable[None]]


class _Callback:
    """A callback for LangChain: async when a coroutine looks it up, sync when a plain function does.

    LangChain looks callbacks up where it runs them. Its sync code would run an async callback in another loop and drop
    its exception; its async code would not wait for a sync one. `look` takes the watch and what the callback is given,
    and returns the function to await in the run's event loop; None if there is nothing to do.
    """

    def __init__(self, look: Callable[..., Work | None]) -> None:
        self._look = look

    def __get__(self, watch: Watch | None, owner: type) -> Any:
        asking = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the caller's kind decides the result
        by_coroutine = asking.f_code.co_flags & inspect.CO_COROUTINE
        return functools.partial(_awaited if by_coroutine else _called, self._look, watch)


async def _awaited(look: Callable[..., Work | None], watch: Any, *given: Any, **details: Any) -> None:
    work = look(watch, *given, **details)
    if work is not None:
        await watch.attempt.come_home(work)


def _called(look: Callable[..., Work | None], watch: Any, *given: Any, **details: Any) -> None:
    work = look(watch, *given, **details)
    if work is not None:
        watch.attempt.wait_for(work)


def _start(look: Callable[..., Make | None]) -> Any:
    """Make the callback for a call that begins; `look` returns how to follow it, None if it is followed already."""

    def begin(watch: Watch, *given: Any, run_id: UUID, **details: Any) -> Work | None:
        make = look(*given, **details)
        return None if make is None else functools.partial(watch.follow, run_id, make)

    return _Callback(begin)


def _end(look: Callable[[Any], tuple[Any, BaseException | None]]) -> Any:
    """Make the callback for a call that ended; `look` returns its result and its exception."""

    def end(watch: Watch, brought: Any, *, run_id: UUID, **_details: Any) -> Work | None:
        return watch.take(run_id, *look(brought))

    return _Callback(end)


def _chat_model(serialized: Any, messages: Any, **details: Any) -> Make | None:
    return None if is_governed(details) else _model(serialized, messages[0], details)


def _completion(serialized: Any, prompts: Any, **details: Any) -> Make | None:
    return _model(serialized, [HumanMessage(prompts[0])], details)


def _tool(serialized: Any, text: str, **details: Any) -> Make | None:
    if in_pipeline(serialized, details):
        return None
    inputs: Any = details.get("inputs")
    metadata: dict[str, Any] = details.get("metadata") or {}
    arguments = cast("dict[str, Any]", inputs) if isinstance(inputs, dict) else {"input": text}
    described: tuple[str, str] = serialized["name"], serialized.get("description", "")
    return functools.partial(FollowedTool, *described, arguments, metadata, details.get("tool_call_id"))


def _model(serialized: dict[str, Any] | None, messages: Sequence[Any], details: dict[str, Any]) -> Make:
    if details.get("batch_size", 1) > 1:
        raise RuntimeError("one model call with several prompts cannot be governed: make a call for each prompt")
    metadata: dict[str, Any] = details.get("metadata") or {}
    params: dict[str, Any] = details.get("invocation_params") or {}
    written_in = ".".join((serialized or {}).get("id") or ())
    prepare(_asked_model())
    return functools.partial(FollowedModel, *view(messages, metadata, params), written_in=written_in)


def _asked_model() -> object:
    """Return the model whose call LangChain reports to us, None where it is not found: callbacks are not given it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # it waits there
    while frame is not None and not isinstance(frame.f_locals.get("self"), BaseLanguageModel):
        frame = frame.f_back
    return frame.f_locals["self"] if frame is not None else None


def _bubble(error: BaseException) -> tuple[Any, BaseException | None]:
    """Treat an exception that controls the graph as the tool's result."""
    return (STEERED, None) if isinstance(error, GraphBubbleUp) else (None, error)


def _reply(result: LLMResult) -> Any:
    """Convert the reply for the governed path; with it, return whether it would be whole if it was streamed."""
    made: Any = result.generations[0][0]
    message = made.message if hasattr(made, "message") else AIMessage(made.text)
    response = response_view(message, result.llm_output or {})
    return response, came_to_its_end(message, response)


class Watch(BaseCallbackHandler):
    """Follows the sync and async calls of models and tools in one attempt."""

    raise_error = True  # LangChain would log a refusal, and make the call
    run_inline = True  # in order, and in the task that makes the call

    on_chat_model_start = _start(_chat_model)
    on_llm_start = _start(_completion)
    on_tool_start = _start(_tool)
    on_llm_end = _end(lambda result: (_reply(result), None))
    on_tool_end = _end(lambda output: (output, None))
    on_llm_error = _end(lambda error: (None, error))
    on_tool_error = _end(_bubble)

    def __init__(self, attempt: GraphAttempt) -> None:
        self.attempt = attempt
        self.calls: dict[int, Followed] = {}
        """Calls in flight, by LangChain's ids."""

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_details: Any) -> None:
        """Note that a reply is streamed, and the calls of tools as they are written."""
        call = self.calls.get(run_id.int)
        if isinstance(call, FollowedModel):
            call.note_piece(getattr(chunk, "message", None))

    async def follow(self, run_id: UUID, make: Make) -> None:
        """Wait until a call may be made, and keep it until its end."""
        # The number, because the id as a key would stay alive, and `GraphAttempt.follow` watches for its end.
        self.calls[run_id.int] = await self.attempt.follow(run_id, make)

    def take(self, run_id: UUID, reply: Any, error: BaseException | None) -> Work | None:
        """Return how to report the end of a call, if it was followed or failed with an error that ends the graph."""
        call = self.calls.pop(run_id.int, None)
        if call is not None:
            return functools.partial(self.attempt.answer, call, reply, error)
        if isinstance(error, PASSING):
            return functools.partial(self.attempt.leave_with, error)
        return None
