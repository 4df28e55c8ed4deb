"""Real clients behind wrapped agents: none is reached where they are forbidden, and who tries again is the governor."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")
pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
pytest.importorskip("langchain_openai", reason="the library is not installed")
pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from agents import Agent, OpenAIChatCompletionsModel
from langchain_openai import ChatOpenAI
from openai import APIStatusError, AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider

import kairo_team as kt
from kairo_team.agents.langgraph import LangGraphAgent, governed
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.testing import forbid_real_models
from kairo_team.testing.clocks import Backend
from tests.agents.langgraph_double import asking, graph_of
from tests.agents.stage import Stage

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]
Answer = Callable[[httpx2.Request], httpx2.Response]
URL = "http://localhost/v1"


@pytest.fixture
def anyio_backend() -> Backend:
    """The libraries run on asyncio alone."""
    return "asyncio", {}


def transport(answer: Answer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def client(answer: Answer) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="none", base_url=URL, http_client=transport(answer))


def of_openai(answer: Answer) -> OpenAIAgent:
    return OpenAIAgent(Agent("a", model=OpenAIChatCompletionsModel("m", client(answer))))


def of_pydantic_ai(answer: Answer) -> PydanticAIAgent:
    provider = OpenAIProvider(openai_client=client(answer))
    return PydanticAIAgent(PydanticAgent(WrapperModel(OpenAIChatModel("m", provider=provider))))


def chat(answer: Answer) -> ChatOpenAI:
    return ChatOpenAI(
        model="m", api_key=SecretStr("none"), base_url=URL, max_retries=0, http_async_client=transport(answer)
    )


def of_langgraph(answer: Answer) -> LangGraphAgent:
    return LangGraphAgent(graph_of(asking(governed(chat(answer)))))


def of_langgraph_followed(answer: Answer) -> LangGraphAgent:
    return LangGraphAgent(graph_of(asking(chat(answer))))


GOVERNED = [of_openai, of_pydantic_ai, of_langgraph]


@pytest.mark.parametrize("make", [*GOVERNED, of_langgraph_followed])
async def test_where_real_models_are_forbidden_no_wrapped_agent_reaches_one(make: Any) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(500)

    stage = Stage(make(answer))
    with forbid_real_models():
        result = await stage.run(kt.Budget(tokens=20_000))
    assert asked == []
    assert "real models are forbidden here" in (result.outcomes[0].error or "")
    assert result.usage.tokens == 0


@pytest.mark.parametrize(("status", "tries", "charged"), [(429, 3, False), (500, 3, True), (400, 1, False)])
@pytest.mark.parametrize("make", GOVERNED)
async def test_kf_b13_a_call_is_tried_again_by_the_governed_model_alone_and_each_try_is_told(
    make: Any, status: int, tries: int, charged: bool
) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(status, json={"error": {"message": "later"}}, headers={"retry-after-ms": "1"})

    stage = Stage(make(answer), runtime={"model_retry": kt.ModelRetry(backoff=0.0)})
    result = await stage.run(kt.Budget(tokens=100_000))
    assert len(asked) == tries == stage.recorder.types.count("model.called")
    assert (result.usage.tokens > 0) is charged
    assert isinstance(stage.raised[0], APIStatusError | ModelHTTPError), "nodes and policies know the library's own"


@pytest.mark.parametrize("make", GOVERNED)
async def test_what_a_provider_says_of_a_call_is_what_is_booked(make: Any) -> None:
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
        usage = {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 25}
        reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return httpx2.Response(200, json=reply | {"usage": usage})

    result = await Stage(make(answer)).run(kt.Budget(tokens=600))
    assert (result.output, result.usage.prompt_tokens, result.usage.completion_tokens) == ("hello", 21, 4)
    assert (sent[0].get("max_tokens") or sent[0]["max_completion_tokens"]) < 600
