"""Governed models of the agents library: each call is a call of `context.model`."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from agents import Model, ModelBehaviorError, ModelProvider
from agents import ModelResponse as TheirReply
from agents import Usage as TheirUsage
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage

from kairo_team.agents.dead_connections import close_dead_connections
from kairo_team.agents.openai_views import NativeCall, rebuilt, reply_view, sound_reply
from kairo_team.models.error_bodies import Noted, error_bodies_refused
from kairo_team.models.prompt_bounds import prompt_bound
from kairo_team.models.provider_errors import client_error
from kairo_team.models.resolver import modules_of, refuse_real

if TYPE_CHECKING:
    from kairo_team.messages import ModelRequest, ModelResponse

_tries_once: Callable[[bool], AbstractContextManager[None]]
try:
    from agents.models import _retry_runtime  # pyright: ignore[reportPrivateUsage]  # there is no public switch

    _tries_once = _retry_runtime.provider_managed_retries_disabled
except ImportError:  # a release without the switch: its client's own retries are not seen
    _tries_once = nullcontext  # type: ignore[assignment]  # the argument is what it yields

_ROUTERS: Final = ("LitellmModel", "AnyLLMModel")
"""Classes of models that name another provider before a slash."""


def model_name(model: Model) -> str:
    """Return a model's name as `provider:model`, with the name of its class if it has no name."""
    own = getattr(model, "model", None)
    name = own if isinstance(own, str) and own else type(model).__name__
    if type(model).__name__ in _ROUTERS and "/" in name:
        return name.replace("/", ":", 1)
    return f"openai:{name}"


class GovernedProvider(ModelProvider):
    """Finds another provider's models, and governs them."""

    def __init__(self, ask: Ask, provider: ModelProvider) -> None:
        self._ask = ask
        self.own = provider

    @classmethod
    def of(cls, ask: Ask, provider: ModelProvider) -> ModelProvider:
        """Return a provider whose calls `ask` makes, even if another run governs it now."""
        return cls(ask, provider.own if isinstance(provider, cls) else provider)

    def get_model(self, model_name: str | None) -> Model:
        """Return the governed model with that name."""
        return GovernedNativeModel(self._ask, self.own.get_model(model_name))


class GovernedNativeModel(Model):
    """A model with its calls held, guarded and booked; everything else is the model's own."""

    def __init__(self, ask: Ask, native: Model) -> None:
        self._ask = ask
        self.native = native

    @classmethod
    def of(cls, ask: Ask, model: Model) -> Model:
        """Return a model whose calls `ask` makes, even if another run governs it now."""
        return cls(ask, model.native if isinstance(model, cls) else model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    async def get_response(self, *args: Any, **kwargs: Any) -> TheirReply:
        """Answer one call; raises what `GovernedChatModel.complete` raises."""
        call = OneCall(self.native, NativeCall(*args, **kwargs), streamed=False)
        return call.native(await self._ask(call))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Answer one call; yield nothing before the whole reply is checked."""
        call = OneCall(self.native, NativeCall(*args, **kwargs), streamed=True)
        reply = call.native(await self._ask(call))
        for event in call.events_of(reply):
            yield event

    def get_retry_advice(self, request: Any) -> Any:
        """Return the model's advice on a retry."""
        return self.native.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.native._cleanup_on_run_end(owner)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the runner's own hook


class OneCall:
    """One call of a native model as a `ChatModel`; keeps the reply for the library."""

    def __init__(self, native: Model, call: NativeCall, *, streamed: bool) -> None:
        self.name = model_name(native)
        self.max_output_tokens = call.model_settings.max_tokens
        self.call = call
        self.view = call.view()
        self.error: Exception | None = None
        """The library's own, of the last try that failed."""
        self._native = native
        self._streamed = streamed
        self._events: list[Any] = []
        self._reply: TheirReply | None = None
        self._before: ModelResponse | None = None

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return an upper bound of the request's tokens, including pictures and files."""
        return prompt_bound(request) + self.call.media(self.name)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Make the native call, capped at `request.max_tokens`; `ModelCallError` when no answer came.

        The provider's client tries only once, because the governed model makes the retries.
        """
        refuse_real(self.name, modules_of(self._native))
        call = self.call.under(request, self.view).with_key()
        close_dead_connections(self._native)
        finish = FinishWord(self.name)
        try:
            with _tries_once(True):
                reply = sound_reply(await self._send(noting(self._native, finish), call), structured=call.is_structured)
        except Exception as error:
            known = client_error(self.name, error)
            if known is None:
                raise
            self.error = error
            raise known from error
        self._reply, self._before = reply, reply_view(reply, request.max_tokens, finish.word, finish.tier)
        return self._before

    def native(self, response: ModelResponse) -> TheirReply:
        """Return the library's reply for the governed call's result."""
        return rebuilt(self._reply, self._before, response)

    def events_of(self, reply: TheirReply) -> list[Any]:
        """Return the events of a streamed call; only the end of the stream for a reply that guardrails changed.

        The same for one that was cut off, for which the library would raise.
        """
        if self._reply is not None and reply.output == self._reply.output and not self._was_cut_off:
            return self._events
        return [ResponseCompletedEvent(response=_response(reply), sequence_number=0, type="response.completed")]

    async def _send(self, native: Model, call: NativeCall) -> TheirReply:
        if not self._streamed:
            return await native.get_response(**call.arguments())
        self._events.clear()  # events of a try that failed
        try:
            async for event in native.stream_response(**call.arguments()):
                self._events.append(event)
        except ModelBehaviorError:
            if not self._was_cut_off:
                raise
        ends = [event.response for event in self._events if getattr(event, "type", None) in _ENDS]
        end: Response | None = ends[-1] if ends else None
        output = list(end.output) if end is not None else []
        # The end may be missing, or come without the items that were finished before it.
        output = output or [event.item for event in self._events if event.type == "response.output_item.done"]
        return TheirReply(output, _usage(end), end.id if end is not None else None)

    @property
    def _was_cut_off(self) -> bool:
        return any(getattr(event, "type", None) == "response.incomplete" for event in self._events)


Ask = Callable[[OneCall], Awaitable["ModelResponse"]]
"""Makes one governed model call, such as `GovernedRun.ask`."""

_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


def _usage(end: Response | None) -> TheirUsage:
    used = end.usage if end is not None else None
    if used is None:
        return TheirUsage()
    return TheirUsage(
        requests=1,
        input_tokens=used.input_tokens,
        input_tokens_details=used.input_tokens_details,
        output_tokens=used.output_tokens,
        output_tokens_details=used.output_tokens_details,
        total_tokens=used.total_tokens,
    )


def _response(reply: TheirReply) -> Response:
    """Return a reply in the form of a stream's last event."""
    used = reply.usage
    usage = ResponseUsage(
        input_tokens=used.input_tokens,
        input_tokens_details=used.input_tokens_details,
        output_tokens=used.output_tokens,
        output_tokens_details=used.output_tokens_details,
        total_tokens=used.input_tokens + used.output_tokens,
    )
    return Response(
        id=reply.response_id or "response",
        created_at=time.time(),
        model="",
        object="response",
        output=reply.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=usage,
    )


# ---------------------------------------------------------------- why a reply ended, which the library's models drop


_FETCHES: Final = ("_fetch_response", "_fetch_chat_response", "_fetch_responses_response")
"""Methods of the library's models that return what the provider's client returned, whole or as a stream."""


class FinishWord:
    """The provider's last word about why a reply ended; None for a model that does not show it."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.word: str | None = None
        self.tier: str | None = None
        """The service by which the call was served, in the provider's words."""

    def note(self, reply: Any) -> None:
        """Read the word in a reply, or in a piece of one."""
        response = getattr(reply, "response", reply)  # the last event of a stream of Responses has it inside
        status = getattr(response, "status", None)
        said: str | None = "stop" if status == "completed" else None
        if choices := getattr(reply, "choices", None):
            said = getattr(choices[0], "finish_reason", None)
        elif status == "incomplete":
            said = getattr(getattr(response, "incomplete_details", None), "reason", None) or "length"
        self.word = said or self.word
        self.tier = getattr(response, "service_tier", None) or self.tier


# A context variable, because all calls share the cached class and, with it, the wrapped methods.
_words: ContextVar[FinishWord] = ContextVar("kairo_finish_word")


def noting(model: Model, word: FinishWord) -> Model:
    """Return the same model, with the same state, that also notes how its provider says that a reply ended."""
    kind = type(model)
    fetches = [name for name in _FETCHES if hasattr(kind, name)]
    if not fetches or not hasattr(model, "__dict__"):  # an object with slots cannot share its state
        return model
    same: Any = object.__new__(_noting_class(kind))
    same.__dict__ = model.__dict__
    _words.set(word)
    return same  # type: ignore[no-any-return]  # an object of a subclass of the model's class


@functools.cache
def _noting_class(kind: Any) -> Any:
    """Make a subclass of a class of models that notes what its provider's client returns."""
    methods = {name: _noted(getattr(kind, name)) for name in _FETCHES if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__, "__qualname__": kind.__qualname__})


def _noted(fetch: Any) -> Any:
    @functools.wraps(fetch)
    async def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        word = _words.get()
        make = getattr(self, "_get_client", None)  # the client may be made only now
        client = getattr(self, "_client", None) if make is None else make()
        with error_bodies_refused(word.model, client) as asked:
            try:
                found = await fetch(self, *args, **kwargs)
            except ModelBehaviorError:
                if getattr(asked.reply, "status", None) != "incomplete":
                    raise
                found = asked.reply  # the library raises for a reply that was cut off, and would lose its text
        if isinstance(found, tuple):  # a response that is not filled in yet, and the stream
            return (*found[:-1], Noted(found[-1], word.note))
        if hasattr(found, "__aiter__"):
            return Noted(found, word.note)
        word.note(found)
        return found

    return noted
