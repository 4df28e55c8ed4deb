"""Models of real providers, through pydantic-ai's model layer (extra `models`)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args
from urllib.parse import unquote, urlsplit

import anyio

from kairo_team._util.frozen import thaw
from kairo_team._util.mistakes import did_you_mean
from kairo_team.errors import MissingExtra, ModelCallError, ModelUnavailable, known
from kairo_team.governance.halts import current_loop
from kairo_team.governance.pricing import listed_window
from kairo_team.messages import ModelRequest, ModelResponse
from kairo_team.models.call_keys import headers_with_key
from kairo_team.models.error_bodies import NOT_JSON, error_bodies_refused
from kairo_team.models.error_bodies import Asked as Seen
from kairo_team.models.natives import loses_thoughts, native_of, reader_of, text_of
from kairo_team.models.prompt_bounds import capped, prompt_bound, refuse_files
from kairo_team.models.provider_errors import call_error
from kairo_team.models.provider_messages import (
    Pieces,
    billing_of,
    conversation,
    file_problem_of,
    finish_of,
    rule_of,
    tool_definition,
    usage_of,
)
from kairo_team.models.readings import broken_off, class_names
from kairo_team.models.tool_calls import made_call, sound
from kairo_team.plugins import installed

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.messages import ModelResponse as ProviderReply
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from kairo_team.files import File
    from kairo_team.messages import Message

IN_EXTRA: Final = frozenset({"anthropic", "google", "openai"})
"""Provider libraries that the extra `models` brings."""
_USAGE_FIRST: Final = frozenset({"AnthropicModel", "GoogleModel"})
"""Classes of models whose streams report usage before the end."""
_LEAST_THINKING: Final = 1024
"""Tokens for thinking that Anthropic takes at least."""
TOOL_PREAMBLE: Final = 600
"""Tokens a provider may add to a prompt that offers tools: its instructions on how to call them."""


def provider_model(name: str) -> ProviderModel:
    """Return the model of that name, such as `openai:gpt-5-mini` or `anthropic:claude-haiku-4-5`; makes no call.

    Raises `MissingExtra` without the extra `models`, and `ModelUnavailable` if the provider is unknown, its library or
    key is missing, or its client cannot be made for another reason.
    """
    if find_spec("pydantic_ai") is None:
        raise MissingExtra(f"the model {name!r}", "models")
    from pydantic_ai.providers import infer_provider_class

    provider = name.partition(":")[0]
    try:
        infer_provider_class(provider)
    except ValueError:
        hint = did_you_mean(provider, _providers())
        why = f"the provider {provider!r} is unknown; {hint}there are {known(_providers())}"
        raise ModelUnavailable(name, why) from None
    except ImportError as error:
        # Only the message of pydantic-ai's error names the group of the package to install.
        group = re.search(r"pydantic-ai-slim\[([\w-]+)]", str(error))
        library = group.group(1) if group else provider
        if library in IN_EXTRA:
            raise MissingExtra(f"the model {name!r}", "models") from error
        why = f"the library of its provider is not installed: pip install 'pydantic-ai-slim[{library}]'"
        raise ModelUnavailable(name, why) from error
    return ProviderModel(name, _infer_model(name), partial(_infer_model, name))


def _infer_model(name: str) -> Model[Any]:
    from pydantic_ai.models import infer_model

    try:
        model = infer_model(name)
    except Exception as error:
        # Each provider's client raises its own kind of error for a missing key, and some name the variables to set.
        variables = list(dict.fromkeys(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", str(error))))
        why = str(error).partition(". ")[0].strip().rstrip(".") or "its provider's client could not be made"
        if variables:
            why = f"set the environment variable {' or '.join(variables)}"
        raise ModelUnavailable(name, why) from error
    client: object = getattr(model, "client", None)
    if type(client).__module__.partition(".")[0] in IN_EXTRA:  # other libraries' `base_url` need not be an address
        address = unquote(model.base_url or "")
        if (problem := address_problem(address)) is not None:
            raise ModelUnavailable(name, f"the address of its provider, {address!r}, {problem}")
    return model


def address_problem(address: str) -> str | None:
    """Return the fault of a server's address; None if a client can use it."""
    if address != "".join(address.split()):
        return "has a blank in it"
    try:
        split = urlsplit(address)
        host, _ = split.hostname, split.port
    except ValueError as error:
        return f"is not valid: {error}"
    if split.scheme not in {"http", "https"}:
        return "does not begin with http:// or https://"
    return None if host else "has no host"


class ProviderModel:
    """A `ChatModel` around a pydantic-ai model; may be used from several event loops and threads.

    Each event loop has its own client, whose connections stay open while calls are in flight and, in a run, from the
    first call to the end. Nothing is retried here: each try is a separate call, held and charged separately.
    """

    def __init__(self, name: str, model: Model[Any], make: Callable[[], Model[Any]] | None = None) -> None:
        """Take a model, and a function that makes another with its own client; None: all event loops use `model`."""
        self.name = name
        self._model = self._prepare_model(model)
        self._kinds = class_names(model)
        self._make = make or (lambda: model)
        self._unused = [model]
        """The given model, until an event loop takes it."""
        self._clients: dict[object, _Client] = {}
        """Clients by event loop; each loop changes only its own."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @cached_property
    def context_window(self) -> int | None:
        """The most tokens of prompt and reply together, by pydantic-ai or the library of prices; None: unknown."""
        return self._model.profile.get("context_window") or listed_window(self.name)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; raises `ValueError` for an unknown setting, `ModelCallError` when no answer came."""
        from pydantic_ai.direct import model_request

        messages, options = self._messages_and_options(request)
        async with self._connected(request) as (client, seen):
            reply = await model_request(client, messages, **options)
        return self._read(reply, seen)

    async def stream(
        self,
        request: ModelRequest,
        on_text: Callable[[str], object],
        on_thinking: Callable[[str], object] = lambda _: None,
    ) -> ModelResponse:
        """Answer like `complete`, and call `on_text` with each piece as it comes; its exception ends the call.

        The pieces joined are the text of the reply. Reasoning that the provider shows goes to `on_thinking`.

        For the few models that cannot stream, the whole text comes at the end.
        """
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.models import Model

        if type(self._model).request_stream is Model.request_stream:
            response = await self.complete(request)
            on_text(response.text)
            return response
        messages, options = self._messages_and_options(request)
        pieces = Pieces(on_text, on_thinking)
        try:
            async with self._connected(request) as (client, seen):
                async with model_request_stream(client, messages, **options) as events:
                    async for event in events:
                        pieces.take(event)
                reply = events.get()
            self._check_whole(reply)
        except ModelCallError as error:
            error.partial = pieces.text
            raise
        response = self._read(reply, seen)
        said = pieces.end(response.text)
        return response if said == response.text else replace(response, text=said)

    def _check_whole(self, reply: ProviderReply) -> None:
        """Raise `ModelCallError` if a stream broke off: it ended without a finish reason, and without a usage."""
        # Some OpenAI-compatible servers send no reason. Their usage comes last, so it shows that the reply is complete.
        details, says_why = reply.provider_details or {}, reply.finish_reason is not None
        if "OpenAIChatModel" in self._kinds:  # the client makes a reason up: only the server's own counts
            says_why = "finish_reason" in details or "refusal" in details
        if reply.parts and not says_why and (usage_of(reply) is None or self._kinds & _USAGE_FIRST):
            raise broken_off(self.name)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return an upper bound of the prompt's tokens, including the providers' own text about tools."""
        return prompt_bound(request, rule_of(self._model)) + (TOOL_PREAMBLE if request.tools else 0)

    def file_problem(self, file: File) -> str | None:
        """Return why the model does not take a file, in a sentence; None if it does."""
        return file_problem_of(self._model, file)

    async def keep_connections(self) -> None:
        """Keep the connections of the running event loop open between calls, until cancelled."""
        async with self._client():
            await anyio.sleep_forever()

    @asynccontextmanager
    async def _connected(self, request: ModelRequest) -> AsyncGenerator[tuple[Model[Any], Seen]]:
        """Yield a client and what is seen of its reply, and convert the provider's errors into ours."""
        async with self._client() as client:
            try:
                with error_bodies_refused(self.name, getattr(client, "client", None)) as seen:
                    yield client, seen
            except Exception as error:
                meant = call_error(self.name, error)
                if meant is None:
                    raise
                unread = meant is not error or meant.why.startswith(NOT_JSON)  # else it is the provider's own error
                explained = self._with_advice(self._with_address(meant) if unread else meant, request)
                raise explained from (None if meant is error else error)

    def _with_advice(self, error: ModelCallError, request: ModelRequest) -> ModelCallError:
        """Return the error of a request, with advice if there is any."""
        return error

    def _with_address(self, error: ModelCallError) -> ModelCallError:
        """Return the error with the address of the server, if it is about a reply that cannot be read."""
        address = getattr(self._model, "base_url", None)
        if error.kind != "unknown" or "://" in error.why or not address:
            return error
        return ModelCallError("unknown", error.model, f"{unquote(address)}: {error.why}", unspent=error.unspent)

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Model[Any]]:
        """Yield the client of the running event loop; the last user to leave closes its connections."""
        loop = current_loop()
        client = self._clients.get(loop)
        if client is None:
            try:
                model = self._unused.pop()  # it is atomic: two threads cannot take the same client
            except IndexError:
                model = self._prepare_model(self._make())
            client = self._clients[loop] = _Client(model)
        client.users += 1  # no await since the look-up: two tasks of a loop cannot both make a client
        try:
            await client.model.__aenter__()
            try:
                yield client.model
            finally:
                # Shielded, so that a cancelled call closes its connections too.
                with anyio.CancelScope(shield=True):
                    await client.model.__aexit__(None, None, None)
        finally:
            client.users -= 1
            if not client.users:
                del self._clients[loop]

    def _prepare_model(self, model: Model[Any]) -> Model[Any]:
        """Return the model; its client does not retry."""
        client: Any = getattr(model, "client", None)
        if hasattr(client, "max_retries"):
            client.max_retries = 0  # retries of the provider's own library would not be held or reported
        return model

    def _messages_and_options(self, request: ModelRequest) -> tuple[Sequence[ModelMessage], dict[str, Any]]:
        """Return the messages and the options of a request, in pydantic-ai's types."""
        try:
            refuse_files(self, request)
            messages = list(conversation(request.messages, reader_of(self._model)))
            options = {"model_settings": self._settings(request), "model_request_parameters": self._parameters(request)}
        except Exception as error:
            setattr(error, "unspent", True)  # noqa: B010 - nothing was sent; any exception has room for it
            raise
        return messages, options

    def _settings(self, request: ModelRequest) -> ModelSettings:
        unknown = [name for name in request.settings if name not in _common_settings()]
        if unknown:
            own = tuple(f"{provider.partition('-')[0]}_" for provider in _providers())
            unknown = [name for name in unknown if not name.startswith(own)]
        if unknown:
            raise ValueError(
                f"unknown settings {known(unknown)}: every provider's are {known(_common_settings())}, one provider's "
                "own begin with its name, such as 'openai_reasoning_effort'"
            )
        settings = thaw(request.settings)
        # The cap of the budget and the user's setting: the smaller one counts.
        limits = [limit for limit in (request.max_tokens, settings.get("max_tokens")) if limit is not None]
        if limits:
            settings["max_tokens"] = min(limits)
        if "extra_body" in settings:  # it goes over the other fields
            settings["extra_body"] = capped(settings["extra_body"], settings.get("max_tokens"))
        if "AnthropicModel" in self._kinds:  # it caches a prompt only where it is asked to
            if request.tools:  # a conversation with tools has further turns, which read the cache
                settings.setdefault("cache", True)
            settings = fitted_thinking(self._model, settings, request.messages)
        return cast("ModelSettings", with_key(self._model, settings))

    def _parameters(self, request: ModelRequest) -> ModelRequestParameters:
        """Send the schema by the provider's own feature if this request can use it, else in the prompt."""
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        tools = [tool_definition(tool) for tool in request.tools]
        if request.output_schema is None:
            return ModelRequestParameters(function_tools=tools)
        wanted = OutputObjectDefinition(json_schema=thaw(request.output_schema), name="reply")
        profile: Mapping[str, Any] = self._model.profile
        # Google's models before Gemini 3 do not take tools and a schema at once.
        combines = "GoogleModel" not in self._kinds or profile.get("google_supports_tool_combination", False)
        native = profile.get("supports_json_schema_output", False) and (not tools or combines)
        mode: Literal["native", "prompted"] = "native" if native else "prompted"
        return ModelRequestParameters(function_tools=tools, output_mode=mode, output_object=wanted)

    def _read(self, reply: ProviderReply, seen: Seen) -> ModelResponse:
        """Return the reply; raises `ModelCallError` for one that is an error, or that cannot be read."""
        try:
            return self._response(reply, seen)
        except Exception as error:
            meant = call_error(self.name, error)  # clients do not check the types of what they pass on
            if meant is None or meant is error:
                raise
            raise self._with_address(meant) from error

    def _response(self, reply: ProviderReply, seen: Seen) -> ModelResponse:
        if reply.finish_reason == "error":
            said = (reply.provider_details or {}).get("finish_reason")
            raise ModelCallError("unknown", self.name, f"it gave up: {reply.text or said or 'without a reason'}")
        usage, finish = usage_of(reply, seen.total), finish_of(reply)
        if finish == "content_filter" and not reply.parts and usage is None:  # Azure's client makes it of a status 400
            why = text_of(reply) or "the provider's filter refused the prompt"
            raise ModelCallError("content_filter", self.name, why, unspent=reply.provider_response_id is None)
        if not reply.parts and (reply.finish_reason is None or (reply.finish_reason == "stop" and usage is None)):
            raise ModelCallError("unknown", self.name, "its reply is empty: it has no choices")
        return ModelResponse(
            sound(text_of(reply)),
            [made_call(call.tool_call_id, call.tool_name, call.args) for call in reply.tool_calls],
            usage,
            reply.model_name or "",
            finish,
            billing_of(reply),
            native_of(reply, reader_of(self._model)),
        )


@dataclass(slots=True)
class _Client:
    """A client of one event loop, and the number of its users."""

    model: Model[Any]
    users: int = 0


def with_key(model: Model[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Add the call's idempotency key to the settings, if it has one and the model's client takes headers."""
    if "extra_headers" in getattr(model, "unsupported_settings", ()):
        return settings
    given = settings.get("extra_headers")
    headers = headers_with_key(given)
    return settings if headers is given else {**settings, "extra_headers": headers}


def fitted_thinking(model: Model[Any], settings: dict[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
    """Return the settings with at most half of the reply's tokens for thinking, or none if that is too little.

    Anthropic refuses a request whose tokens of thinking are not fewer than those of the reply, and a reply is short
    where little is left of a budget. It also refuses to think on where the thought before a call of a tool is missing.
    Models that choose themselves how much they think have no such number, and refuse neither.
    """
    from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP

    most = settings.get("max_tokens")
    own: Mapping[str, Any] = settings.get("anthropic_thinking") or {}
    adaptive = model.profile.get("anthropic_supports_adaptive_thinking", False)
    by_word = cast("Mapping[Any, int]", {} if adaptive or own else ANTHROPIC_THINKING_BUDGET_MAP)
    wanted = own.get("budget_tokens") or by_word.get(settings.get("thinking"), 0)
    without = {name: value for name, value in settings.items() if name != "anthropic_thinking"} | {"thinking": False}
    if wanted and loses_thoughts(messages, reader_of(model)):
        return without
    if most is None or wanted < most:
        return settings
    if most // 2 < _LEAST_THINKING:
        return without
    return settings | {"anthropic_thinking": {**own, "type": "enabled", "budget_tokens": most // 2}}


# ---------------------------------------------------------------- before work starts


def is_known(provider: str) -> bool:
    """Return whether pydantic-ai has models of a provider, even if the provider's library is not installed."""
    if find_spec("pydantic_ai") is None:
        return False
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(provider)
    except ValueError:
        return False
    except ImportError:
        return True
    return True


def _providers() -> set[str]:
    """Return the known providers, including `local` and the providers of installed packages."""
    from pydantic_ai import models

    compatible: Any = models.OpenAIChatCompatibleProvider
    named = {model.partition(":")[0] for model in models.known_model_names() if ":" in model}
    return {name for name in named | set(get_args(compatible.__value__)) if "/" not in name} | {
        one.name for one in installed("model")
    }


@cache
def _common_settings() -> frozenset[str]:
    from pydantic_ai.settings import ModelSettings

    return frozenset(ModelSettings.__annotations__) - {"max_retries"}
