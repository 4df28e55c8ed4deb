"""Chat models of LangChain that are governed wherever a graph of a team runs them (needs the extra `langgraph`)."""

from __future__ import annotations

# pyright: reportPrivateUsage=false
# `_generate` and similar methods are what a LangChain chat model implements; this module calls another model's.
import functools
import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables.config import var_child_runnable_config

from kairo_team._util.context_values import set_for
from kairo_team._util.narrowing import fields_of
from kairo_team._util.threads import run_in_thread
from kairo_team.agents.dead_connections import close_dead_connections
from kairo_team.agents.langgraph_attempt import GraphAttempt, NotMade, current
from kairo_team.agents.langgraph_views import (
    View,
    native_reply,
    response_view,
    tool_name,
    view,
    with_all_calls,
    with_calls,
    with_text,
)
from kairo_team.errors import GuardrailDenied, ModelCallError
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.models.error_bodies import error_bodies_refused, watch_client
from kairo_team.models.prompt_bounds import LENGTHS, capped, prompt_bound
from kairo_team.models.provider_errors import client_error
from kairo_team.models.resolver import modules_of, refuse_real

_MORE: Final = ("extra_body", "model_kwargs")
"""The integrations' names for fields that go to the provider as they are."""
_LIMIT: Final = "__kairo_limit__"
_MARK: Final = ("kairo_team", uuid.uuid4().hex)
"""A mark in a governed model's metadata that is unknown outside this process."""
_EVENT_HOOKS: Final = ("_stream_chat_model_events", "_astream_chat_model_events")
"""When a model has them, LangChain streams through them and not through `_stream` and `_astream`."""

Ask = Callable[[Any, Sequence[Any], dict[str, Any]], Awaitable[Any]]
"""Calls the given model with messages and options."""
Make = Callable[[int | None, Sequence[Any]], Awaitable[Any]]
"""Calls the wrapped model with a limit of reply tokens and messages."""


def is_governed(details: Mapping[str, Any]) -> bool:
    """Return whether LangChain reports a call of a governed model."""
    metadata: Mapping[str, Any] = details.get("metadata") or {}
    return metadata.get(_MARK[0]) == _MARK[1]


def governed_copy(model: Any, limit: str | None) -> Any:
    """Return a copy of the model with a governed subclass of its class; see `governed`."""
    if not isinstance(model, BaseChatModel):
        raise ValueError(f"governed() takes a LangChain chat model, not {model!r:.200}: bind to it afterwards")
    if (model.metadata or {}).get(_MARK[0]) == _MARK[1]:
        return model
    found = limit or next((name for name in LENGTHS if name in type(model).model_fields), None)
    if found is None:
        raise ValueError(
            f"governed(): how to limit a reply's tokens is unknown for {type(model).__name__}: name the field, or the "
            "keyword of its calls, by governed(model, limit='...')"
        )
    copy = model.model_copy(update={"metadata": {**(model.metadata or {}), _MARK[0]: _MARK[1]}, "cache": False})
    # Constructing the subclass would run the integration's validators, which read keys and make new clients.
    object.__setattr__(copy, "__class__", _governed_class(type(model), found))
    return copy


@dataclass
class _Call:
    """A call of a governed model, as the `ChatModel` that the governed path calls."""

    view: View
    messages: Sequence[Any]
    make: Make
    modules: Sequence[str]
    """The modules of the model's class."""
    reply: AIMessage | None = None
    error: Exception | None = None
    """The library's own error, from the last failed try."""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.view.name

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Call the model with the messages as guardrails changed them; `ModelCallError` when no answer came."""
        refuse_real(self.name, self.modules)
        messages = self._changed(request)
        try:
            result: ChatResult = await self.make(request.max_tokens, messages)
        except Exception as error:
            meant = client_error(self.name, error)
            if meant is None:
                raise
            self.error = error
            raise meant from error
        self.reply = with_all_calls(_message(result))
        return response_view(self.reply)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return an upper bound that includes content beyond the text."""
        return prompt_bound(request) + self.view.beyond

    def _changed(self, request: ModelRequest) -> Sequence[Any]:
        """Return LangChain's messages with the changes of guardrails, followed by the user messages that were added."""
        before, after = self.view.request.messages, request.messages
        changed, added = after[: len(before)], after[len(before) :]
        same = len(changed) == len(before) and all(map(_same_but_words, before, changed))
        if (
            not same
            or any(message.role != "user" for message in added)
            or self.view.request.settings != request.settings
        ):
            why = f"it would change more than the words of the messages to {self.name}"
            raise NotMade(self.name, GuardrailDenied("a guardrail", "pre_model", why))
        pairs = zip(self.messages, before, changed, strict=True)
        changed = [
            message if old == new else with_text(with_calls(message, new.tool_calls), new.text)
            for message, old, new in pairs
        ]
        return [*changed, *(HumanMessage(message.text) for message in added)]


def _same_but_words(old: Message, new: Message) -> bool:
    """Return whether two messages differ only in text and in arguments of tool calls."""
    if len(old.tool_calls) != len(new.tool_calls):
        return False
    calls = zip(old.tool_calls, new.tool_calls, strict=True)
    kept = [replace(was, arguments=now.arguments) for was, now in calls]
    return replace(old, text=new.text, tool_calls=kept) == new


@functools.cache
def _governed_class(kind: Any, limit: str) -> Any:
    """Make the governed subclass of a class of chat models: inside an attempt, the attempt governs its calls."""

    class Governed(kind):  # type: ignore[misc]  # the class of the user's model
        async def _agenerate(
            self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
        ) -> ChatResult:
            attempt = current.get()
            if attempt is not None:
                options = {"stop": stop, **kwargs}
                return await attempt.come_home(_complete, attempt, self, kind, messages, options, _ask)
            native: Any = super()
            result: ChatResult = await native._agenerate(messages, stop, **_manager(kind, run_manager), **kwargs)  # noqa: SLF001 - what it overrides
            return result

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
            attempt = current.get()
            if attempt is None:
                native: Any = super()
                result: ChatResult = native._generate(messages, stop, **_manager(kind, run_manager), **kwargs)  # noqa: SLF001 - what it overrides
                return result
            options = {"stop": stop, **kwargs}
            return attempt.wait_for(_complete, attempt, self, kind, messages, options, _ask_in_thread)

        async def _astream(self, messages: Any, stop: Any = None, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
            if current.get() is None:
                native: Any = super()
                async for chunk in native._astream(messages, stop=stop, **kwargs):  # noqa: SLF001 - what it overrides
                    yield chunk
            else:
                kwargs.pop("run_manager", None)
                # In one piece: guardrails see the whole reply before the graph sees a part.
                yield _chunk(await self._agenerate(messages, stop, **kwargs))

        def _stream(self, messages: Any, stop: Any = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
            if current.get() is None:
                native: Any = super()
                yield from native._stream(messages, stop=stop, **kwargs)  # noqa: SLF001 - what it overrides
            else:
                kwargs.pop("run_manager", None)
                yield _chunk(self._generate(messages, stop, **kwargs))

    return _with_shape_of(Governed, kind, limit)


def _manager(kind: Any, run_manager: Any) -> dict[str, Any]:
    """Return `run_manager` as an argument for the model's own methods, if they take it."""
    takes = "run_manager" in inspect.signature(kind._generate).parameters  # noqa: SLF001 - LangChain asks the same
    return {"run_manager": run_manager} if takes else {}


def _with_shape_of(governed: Any, kind: Any, limit: str) -> Any:
    """Give the class the name and methods of the class it governs."""
    # LangChain inspects the names, and which methods a class has of its own.
    governed.__name__, governed.__qualname__, governed.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    setattr(governed, _LIMIT, limit)
    if kind._stream is BaseChatModel._stream:  # noqa: SLF001 - LangChain asks the same
        del governed._stream  # noqa: SLF001 - the same
        if kind._astream is BaseChatModel._astream:  # noqa: SLF001 - the same
            del governed._astream  # noqa: SLF001 - the same
    for hook in _EVENT_HOOKS:
        if getattr(kind, hook, None) is not None:
            setattr(governed, hook, None)  # LangChain would stream past the governed methods
    return governed


async def _ask(plain: Any, messages: Sequence[Any], options: dict[str, Any]) -> Any:
    return await plain._agenerate(list(messages), **options)  # noqa: SLF001 - what is overridden


async def _ask_in_thread(plain: Any, messages: Sequence[Any], options: dict[str, Any]) -> Any:
    return await run_in_thread(functools.partial(plain._generate, list(messages), **options))  # noqa: SLF001 - the same


async def _complete(
    attempt: GraphAttempt, model: Any, kind: Any, messages: Sequence[Any], kwargs: dict[str, Any], ask: Ask
) -> ChatResult:
    """Answer on the governed path; `ask` calls the wrapped model."""
    kwargs = _offered(kwargs, attempt.context.role.allowed_tools)
    details, settings = model._get_ls_params(**kwargs), model._get_invocation_params(**kwargs)  # noqa: SLF001 - what tracers receive

    async def make(most: int | None, messages: Sequence[Any]) -> Any:
        plain, options = _limited(model, kind, kwargs, most)
        prepare(model)
        # Calls inside the model are not governed a second time.
        with set_for(current, None), set_for(var_child_runnable_config, None), error_bodies_refused(call.name):
            return await ask(plain, messages, options)

    call = _Call(view(messages, details, settings), messages, make, modules_of(model))
    try:
        response = await attempt.complete(call, call.view.request)
    except ModelCallError as error:  # nodes, fallbacks and retry policies must see the original
        raise call.error or error from None
    return ChatResult(generations=[ChatGeneration(message=native_reply(response, call.reply))])


def _offered(kwargs: dict[str, Any], allowed: Collection[str] | None) -> dict[str, Any]:
    """Leave out the tools that the role may not use, so that the model does not call them."""
    tools: Any = kwargs.get("tools")
    if allowed is None or not tools:
        return kwargs
    left = [tool for tool in tools if tool_name(tool) in (None, *allowed)]
    if left:
        return {**kwargs, "tools": left}
    return {name: found for name, found in kwargs.items() if name not in {"tools", "tool_choice"}}


def _limited(model: Any, kind: Any, kwargs: dict[str, Any], most: int | None) -> tuple[Any, dict[str, Any]]:
    """Return the model and the arguments that limit a call to one reply of `most` tokens."""
    name: str = getattr(model, _LIMIT)
    fields: Mapping[str, Any] = kind.model_fields
    own = name in fields
    update: dict[str, Any] = {name: most} if own and most is not None else {}
    if "streaming" in fields:  # `_generate` of an integration may pass it on, and cannot read a stream
        update["streaming"] = False
    if "n" in fields and (model.n or 1) > 1:
        update["n"] = 1
    update |= {more: capped(getattr(model, more), most) for more in _MORE if more in fields}
    plain: Any = model.model_copy(update=update)
    object.__setattr__(plain, "__class__", kind)  # the governed class would govern this call again
    # A limit that the call itself names, under whichever name, would win over the field.
    options: dict[str, Any] = capped(kwargs, most)
    options |= {more: capped(kwargs[more], most) for more in _MORE if more in kwargs}
    return plain, options if own or most is None else {**options, name: most}


def _message(result: ChatResult) -> AIMessage:
    """Return the reply with the provider's data on the whole call."""
    generation = result.generations[0]
    message: Any = generation.message
    details = {**(result.llm_output or {}), **(generation.generation_info or {}), **message.response_metadata}
    reply: AIMessage = message.model_copy(update={"response_metadata": details})
    return reply


def _chunk(result: ChatResult) -> ChatGenerationChunk:
    """Return a whole reply as the only piece of a stream."""
    message = result.generations[0].message
    fields = message.model_dump(exclude={"type", "chunk_position"})
    return ChatGenerationChunk(message=AIMessageChunk(**fields, chunk_position="last"))


# ---------------------------------------------------------------- what an integration drops


_CLIENTS: Final = ("root_async_client", "root_client")
"""The fields of a model for the provider's own clients."""
_CONVERT: Final = "_convert_chunk_to_generation_chunk"
"""The method of the integration with OpenAI that reads one piece of a stream."""


def prepare(model: Any) -> None:
    """Prepare a model for a call: close dead connections, and let neither errors nor refusals get lost.

    The integration with OpenAI drops errors that come with status 200, and streamed refusals.
    """
    close_dead_connections(model)
    for name in _CLIENTS:
        watch_client(getattr(model, name, None))
    for kind in type(model).__mro__:
        # The class is found by name, because the integration need not be installed; it is patched once in a process.
        if kind.__name__ == "BaseChatOpenAI" and not hasattr(getattr(kind, _CONVERT, prepare), "__wrapped__"):
            _keep_refusals(kind)


def _keep_refusals(kind: Any) -> None:
    """Make a class of models keep a streamed refusal in the same place as a whole one."""
    convert = getattr(kind, _CONVERT)

    @functools.wraps(convert)
    def converted(self: Any, chunk: Any, *args: Any, **kwargs: Any) -> Any:
        piece = convert(self, chunk, *args, **kwargs)
        choices = chunk.get("choices")
        refusal = fields_of(choices[0].get("delta")).get("refusal") if choices else None
        if piece is not None and refusal:
            piece.message.additional_kwargs["refusal"] = str(refusal)
        return piece

    setattr(kind, _CONVERT, converted)
