"""Models of real providers, through pydantic-ai's model layer (extra `models`): no provider client is written here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

import anyio

from kairo_team.budget import Usage
from kairo_team.errors import MissingExtra, ModelUnavailable, known
from kairo_team.governance.pricing import Billing
from kairo_team.models.chat_model import ModelRequest, ModelResponse

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.messages import ModelResponse as ProviderReply
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from kairo_team.models.chat_model import Message

IN_EXTRA: Final = frozenset({"anthropic", "google", "openai"})
"""Provider libraries that the extra `models` brings."""


def provider_model(name: str) -> ProviderModel:
    """Return the model of that name, such as `openai:gpt-5-mini` or `anthropic:claude-haiku-4-5`; calls nobody.

    Raises `MissingExtra` when the extra `models` is not installed, `ModelUnavailable` for an unknown provider, a
    provider whose library or key is missing, and whatever else keeps its client from being made.
    """
    if find_spec("pydantic_ai") is None:
        raise MissingExtra(f"the model {name!r}", "models")
    _check_provider(name)
    from pydantic_ai.models import infer_model

    try:
        return ProviderModel(name, infer_model(name))
    except Exception as error:
        raise ModelUnavailable(name, _what_to_set(str(error))) from error


class ProviderModel:
    """A `ChatModel` on a pydantic-ai model.

    Connections are kept while calls are in flight and closed after the last one. Nothing is tried twice here: every
    try is a call of its own, held and charged by itself.
    """

    def __init__(self, name: str, model: Model[Any]) -> None:
        self.name = name
        self._model = model
        client: Any = getattr(model, "client", None)
        if hasattr(client, "max_retries"):
            client.max_retries = 0  # the provider's own library would try again without anybody knowing

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; raises `ValueError` for an unknown setting, and the provider's own errors."""
        from pydantic_ai.direct import model_request

        settings, parameters = self._settings(request), self._parameters(request)
        await self._model.__aenter__()
        try:
            reply = await model_request(
                self._model,
                list(_conversation(request.messages)),
                model_settings=settings,
                model_request_parameters=parameters,
            )
        finally:
            with anyio.CancelScope(shield=True):
                await self._model.__aexit__(None, None, None)
        return self._response(reply)

    def _settings(self, request: ModelRequest) -> ModelSettings:
        unknown = [name for name in request.settings if not _is_setting(name)]
        if unknown:
            raise ValueError(
                f"unknown settings {known(unknown)}: every provider's are {known(_common_settings())}, one provider's "
                "own begin with its name, such as 'openai_reasoning_effort'"
            )
        settings = dict(request.settings)
        limits = [limit for limit in (request.max_tokens, settings.get("max_tokens")) if limit is not None]
        if limits:
            settings["max_tokens"] = min(limits)
        return cast("ModelSettings", settings)

    def _parameters(self, request: ModelRequest) -> ModelRequestParameters:
        """Ask for the schema by the provider's own means where it has them, in the prompt where not."""
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        if request.output_schema is None:
            return ModelRequestParameters()
        wanted = OutputObjectDefinition(json_schema=dict(request.output_schema), name="reply")
        native = self._model.profile.get("supports_json_schema_output", False)
        return ModelRequestParameters(output_mode="native" if native else "prompted", output_object=wanted)

    def _response(self, reply: ProviderReply) -> ModelResponse:
        if reply.finish_reason == "error":
            raise RuntimeError(f"{self.name} gave up on its reply: {_text(reply) or 'it does not say why'}")
        spent = reply.usage
        known_usage = spent.input_tokens or spent.output_tokens
        usage = Usage(spent.input_tokens, spent.output_tokens, spent.cost or Decimal(0)) if known_usage else None
        return ModelResponse(_text(reply), usage, reply.model_name or "", _finish(reply), _billing(reply))


def _text(reply: ProviderReply) -> str:
    """Return what the model said, without what it thought."""
    return reply.text or ""


def _finish(reply: ProviderReply) -> Literal["stop", "length", "content_filter"]:
    match reply.finish_reason:
        case "length" | "content_filter" as reason:
            return reason
        case _:
            return "stop"


def _billing(reply: ProviderReply) -> Billing:
    """Return what the price depends on: what was cached, and the service the provider says it gave."""
    spent, told = reply.usage, reply.provider_details or {}
    return Billing(
        spent.cache_read_tokens,
        max(0, spent.cache_write_tokens - spent.cache_write_1h_tokens),
        spent.cache_write_1h_tokens,
        {name: word for name, word in told.items() if isinstance(word, str)},
    )


def _conversation(messages: Sequence[Message]) -> Iterator[ModelMessage]:
    """Yield the messages in pydantic-ai's words: what is said to the model is a request, what it said a response."""
    from pydantic_ai import messages as theirs

    for message in messages:
        match message.role:
            case "system":
                yield theirs.ModelRequest([theirs.SystemPromptPart(message.text)])
            case "user":
                yield theirs.ModelRequest([theirs.UserPromptPart(message.text)])
            case "assistant":
                yield theirs.ModelResponse([theirs.TextPart(message.text)])


# ---------------------------------------------------------------- before work starts


def _check_provider(name: str) -> None:
    """Raise for a provider that nobody knows, or whose library is not installed."""
    from pydantic_ai.providers import infer_provider_class

    provider = name.partition(":")[0]
    try:
        infer_provider_class(provider)
    except ValueError:
        raise ModelUnavailable(name, f"the provider {provider!r} is unknown; there are {known(_providers())}") from None
    except ImportError as error:
        group = re.search(r"pydantic-ai-slim\[([\w-]+)]", str(error))
        library = group.group(1) if group else provider
        if library in IN_EXTRA:
            raise MissingExtra(f"the model {name!r}", "models") from error
        why = f"the library of its provider is not installed: pip install 'pydantic-ai-slim[{library}]'"
        raise ModelUnavailable(name, why) from error


def _providers() -> set[str]:
    """Name the providers there are models of, `local` included."""
    from pydantic_ai import models

    compatible: Any = models.OpenAIChatCompatibleProvider
    named = {model.partition(":")[0] for model in models.known_model_names() if ":" in model}
    return {name for name in named | set(get_args(compatible.__value__)) if "/" not in name} | {"local"}


def _what_to_set(message: str) -> str:
    """Make one sentence of a provider's complaint: the variables to set, when it names any."""
    variables = list(dict.fromkeys(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", message)))
    if variables:
        return f"set the environment variable {' or '.join(variables)}"
    return message.partition(". ")[0].strip().rstrip(".") or "its provider's client could not be made"


@cache
def _common_settings() -> frozenset[str]:
    from pydantic_ai.settings import ModelSettings

    return frozenset(ModelSettings.__annotations__) - {"max_retries"}


def _is_setting(name: str) -> bool:
    """Say whether every provider knows it, or its name begins with that of a provider."""
    if name in _common_settings():
        return True
    return any(name.startswith(f"{provider.partition('-')[0]}_") for provider in _providers())
