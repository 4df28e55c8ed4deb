"""Real client libraries in front of replies that are given: no server, and the bytes of the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.cerebras import CerebrasModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.azure import AzureProvider
from pydantic_ai.providers.cerebras import CerebrasProvider
from pydantic_ai.providers.deepseek import DeepSeekProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openrouter import OpenRouterProvider

from kairo_team.models.providers import ProviderModel

RECORDED: Final = Path(__file__).parents[3] / "shared" / "recorded-providers"


def model_of(wire: str, reply: Any, status: int = 200, asked: list[Any] | None = None) -> ProviderModel:
    """A model of a provider whose server answers every request so, or with the next of an iterator.

    A text is a stream of server-sent events.
    """

    def answer(request: httpx2.Request) -> httpx2.Response:
        if asked is not None:
            asked.append(json.loads(request.content))
        if isinstance(reply, str):
            return httpx2.Response(status, content=reply.encode(), headers={"content-type": "text/event-stream"})
        return httpx2.Response(status, json=next(reply) if isinstance(reply, Iterator) else reply)

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer), timeout=1200)
    return ProviderModel(f"{wire}:m", _native(wire, http))


def _native(wire: str, http: Any) -> Model[Any]:
    match wire:
        case "azure":
            azure: Any = {"azure_endpoint": "https://h.openai.azure.com", "api_version": "2024-10-21"}
            return OpenAIChatModel("m", provider=AzureProvider(api_key="k", http_client=http, **azure))
        case "anthropic-messages":
            return AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(api_key="k", http_client=http))
        case "google-generate":
            return GoogleModel("gemini-2.5-flash", provider=GoogleProvider(api_key="k", http_client=http))
        case "openai-responses":
            return OpenAIResponsesModel("m", provider=OpenAIProvider(api_key="k", http_client=http))
        case _:
            return OpenAIChatModel("m", provider=OpenAIProvider(api_key="k", http_client=http))


def client_of(exchange: dict[str, Any], answer: Callable[[httpx2.Request], httpx2.Response]) -> Model[Any]:
    """The client that a user gets for the model of a recorded exchange; `answer` is its server."""
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer), timeout=1200)
    path: str = exchange["path"]
    name: str = exchange["request"].get("model") or path.rpartition("/")[2].partition(":")[0]
    match exchange["api"]:
        case "anthropic-messages":
            return AnthropicModel(name, provider=AnthropicProvider(api_key="k", http_client=http))
        case "google-generate":
            return GoogleModel(name, provider=GoogleProvider(api_key="k", http_client=http))
        case "openai-responses":
            return OpenAIResponsesModel(name, provider=OpenAIProvider(api_key="k", http_client=http))
        case "openai-chat":
            return OpenAIChatModel(name, provider=OpenAIProvider(api_key="k", http_client=http))
        case _:
            return _compatible(path, name, http)


def _compatible(path: str, name: str, http: httpx2.AsyncClient) -> Model[Any]:
    """The client of a provider with an interface like OpenAI's, by the path that it was asked at."""
    if path.startswith("api/v1/"):
        return OpenRouterModel(name, provider=OpenRouterProvider(api_key="k", http_client=http))
    if path == "chat/completions":
        return OpenAIChatModel(name, provider=DeepSeekProvider(api_key="k", http_client=http))
    if path == "v1/chat/completions" and not re.match("mistral|magistral|ministral", name):
        return CerebrasModel(name, provider=CerebrasProvider(api_key="k", http_client=http))
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(name, provider=OpenAIProvider(api_key="k", http_client=http), profile=profile)


def exchanges() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the recorded exchanges with their names; skips the test where the folder is missing."""
    if not RECORDED.is_dir():
        pytest.skip("the recorded replies of providers are not here: ../shared/recorded-providers of the repository")
    for path in sorted(RECORDED.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            conversation = json.loads(line)
            for exchange in conversation["exchanges"]:
                yield conversation["name"], exchange


def completion(finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    """A reply of OpenAI's chat interface."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **message}}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def events(*sent: Any, done: bool = True, named: bool = False) -> str:
    """A stream of server-sent events, each with its type as its name if they are `named`."""
    lines = [(f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one)}\n\n" for one in sent]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""])


def chunk(content: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A piece of a streamed reply of OpenAI's chat interface."""
    choice = {"index": 0, "finish_reason": finish, "delta": {"role": "assistant", "content": content}}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
