"""Any server with OpenAI's chat interface: llama.cpp, vLLM, Ollama, LM Studio, your own gateway."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from kairo_team.errors import MissingExtra, ModelCallError
from kairo_team.models.providers import ProviderModel, address_problem

if TYPE_CHECKING:
    from kairo_team.messages import ModelRequest

_NO_KEY: Final = "no-key"
"""Sent when no key is set: OpenAI's client needs one, and the server must not receive a real key of OpenAI's."""

_MAYBE_SCHEMA: Final = frozenset({"bad_request", "overloaded", "unknown"})
_WITHOUT_SCHEMA: Final = (
    "the request asks for a JSON schema: if the server does not know schemas, "
    "OpenAICompatible(..., json_schema=False) puts it into the prompt"
)


class OpenAICompatible(ProviderModel):
    """The chat model `model` of the server at `base_url`, such as `"http://localhost:8000/v1"`.

    `name` is the name for prices, limits and replacements, by default `openai-compatible:<model>`. A schema is sent as
    `response_format`; `json_schema=False` puts it into the prompt, for servers that do not know schemas. Makes no call.
    Raises `MissingExtra` without the extra `models`, `ValueError` for an invalid address.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        *,
        name: str | None = None,
        json_schema: bool = True,
    ) -> None:
        name = name or f"openai-compatible:{model}"
        problem = address_problem(base_url)
        if problem is not None:
            example = "an address such as 'http://localhost:8000/v1'"
            raise ValueError(f"base_url must be {example}, not {base_url!r}: it {problem}")
        if find_spec("pydantic_ai") is None or find_spec("openai") is None:
            raise MissingExtra(f"the model {name!r}", "models")
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai import OpenAIProvider

        profile = OpenAIModelProfile(
            supports_json_schema_output=json_schema,
            supports_json_object_output=json_schema,
            openai_chat_supports_max_completion_tokens=False,  # servers that do not know the new name ignore the limit
            openai_supports_strict_tool_definition=False,  # servers may refuse the unknown field
        )

        def make() -> OpenAIChatModel:
            # A new provider for each client: event loops must not share connections.
            provider = OpenAIProvider(base_url=base_url, api_key=api_key or _NO_KEY)
            provider.client.organization = provider.client.project = None  # set for OpenAI, by variables
            return OpenAIChatModel(model, provider=provider, profile=profile)

        super().__init__(name, make(), make)

    def _with_advice(self, error: ModelCallError, request: ModelRequest) -> ModelCallError:
        """Suggest `json_schema=False` if the schema may be the cause of the error."""
        native = self._model.profile.get("supports_json_schema_output", False)
        if request.output_schema is None or not native or error.kind not in _MAYBE_SCHEMA:
            return error
        why = f"{error.why}; {_WITHOUT_SCHEMA}"
        return ModelCallError(error.kind, error.model, why, retry_after=error.retry_after, unspent=error.unspent)
