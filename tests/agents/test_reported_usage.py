"""What a provider says that a call took is booked, whatever library reads it, and nonsense about it ends no call."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")
pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
pytest.importorskip("langchain_openai", reason="the library is not installed")
pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

import kairo_team as kt
from kairo_team.agents.langgraph import LangGraphAgent, governed
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.governance.pricing import PriceBook
from kairo_team.messages import Billing
from kairo_team.models.providers import ProviderModel
from kairo_team.testing.clocks import Backend
from tests.agents.langgraph_double import asking, graph_of
from tests.agents.stage import Stage
from tests.agents.test_real_models import (
    Answer,
    chat,
    client,
    of_langgraph,
    of_langgraph_followed,
    of_langgraph_streamed,
    of_openai,
    of_pydantic_ai,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    # The client libraries warn about the nonsense.
    pytest.mark.filterwarnings("ignore:Failed to extract usage", "ignore:Pydantic serializer warnings"),
]


@pytest.fixture
def anyio_backend() -> Backend:
    """The libraries run on asyncio alone."""
    return "asyncio", {}


def model_of(answer: Answer) -> ProviderModel:
    return ProviderModel("openai:m", OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client(answer))))


def of_mini(answer: Answer) -> kt.MiniAgent:
    return kt.MiniAgent(model_of(answer))


class Streaming:
    """An agent that streams one reply."""

    def __init__(self, answer: Answer) -> None:
        self._model = model_of(answer)

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        request = kt.ModelRequest([kt.Message.user(assignment.goal)])
        return (await context.model(self._model).stream(request)).text


WAYS = [of_mini, Streaming, of_pydantic_ai, of_openai, of_langgraph, of_langgraph_followed, of_langgraph_streamed]


def answering(usage: Any, **more: Any) -> Answer:
    """Answer "hello", whole or as a stream, with this usage."""
    head = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", **more}
    said = {"index": 0, "finish_reason": "stop"}

    def answer(request: httpx2.Request) -> httpx2.Response:
        if not json.loads(request.content).get("stream"):
            choice = {**said, "message": {"role": "assistant", "content": "hello"}}
            return httpx2.Response(200, json={**head, "choices": [choice], "usage": usage})
        piece = {**head, "object": "chat.completion.chunk", "choices": [{**said, "delta": {"content": "hello"}}]}
        events = (json.dumps(one) for one in (piece, {**piece, "choices": [], "usage": usage}))
        body = "".join(f"data: {one}\n\n" for one in (*events, "[DONE]"))
        return httpx2.Response(200, text=body, headers={"content-type": "text/event-stream"})

    return answer


@pytest.mark.parametrize("make", WAYS)
async def test_reasoning_that_only_the_total_has_is_charged(make: Any) -> None:
    """Gemini behind OpenAI's interface, xAI and Perplexity leave reasoning out of the completion's tokens."""
    usage = {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 325}
    result = await Stage(make(answering(usage))).run(kt.Budget(tokens=20_000))
    assert (result.output, result.usage.prompt_tokens, result.usage.completion_tokens) == ("hello", 21, 304)


def dear_ones(answer: Answer) -> dict[str, Any]:
    """Agents that ask OpenAI for its priority tier."""
    model = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client(answer)))
    langchain = chat(answer).model_copy(update={"model_name": "gpt-5-mini", "service_tier": "priority"})
    tier = OpenAIChatModelSettings(openai_service_tier="priority")
    settings = ModelSettings(extra_args={"service_tier": "priority"})
    native = OpenAIChatCompletionsModel("gpt-5-mini", client(answer))
    return {
        "pydantic-ai": PydanticAIAgent(PydanticAgent(model, model_settings=tier)),
        "openai": OpenAIAgent(Agent("a", model=native, model_settings=settings)),
        "langgraph": LangGraphAgent(graph_of(asking(governed(langchain)))),
        "followed": LangGraphAgent(graph_of(asking(langchain))),
        "streamed": LangGraphAgent(graph_of(asking(langchain.model_copy(update={"streaming": True})))),
    }


@pytest.mark.parametrize("way", ["pydantic-ai", "openai", "langgraph", "followed", "streamed"])
@pytest.mark.parametrize(("served", "times"), [("priority", 9), ("default", 5)])
async def test_a_call_costs_what_the_tier_does_by_which_it_was_served(way: str, served: str, times: int) -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    usage: dict[str, Any] = {"prompt_tokens": 10_000, "completion_tokens": 1_000, "total_tokens": 11_000}
    usage["prompt_tokens_details"] = {"cached_tokens": 10_000}
    agent = dear_ones(answering(usage, service_tier=served))[way]
    result = await Stage(agent).run(kt.Budget(dollars=5))
    assert result.output == "hello"
    price = PriceBook().of("openai:gpt-5-mini", {"service_tier": "priority"})
    assert price is not None
    billing = Billing(10_000, served={"service_tier": served})
    assert result.usage.dollars == price.cost(kt.Usage(10_000, 1_000), billing)
    assert round(result.usage.dollars / price.cost(kt.Usage(10_000, 1_000), Billing(10_000)) * 5) == times


def _used(**changed: Any) -> dict[str, Any]:
    return {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 25, **changed}


REFUSED = {"ModelCallError", "UnexpectedModelBehavior", "ValidationError"}
"""Errors of a reply that a library refuses."""
NONSENSE = [
    _used(prompt_tokens_details={"cached_tokens": 5.5}),
    _used(prompt_tokens_details={"cached_tokens": -5}),
    _used(prompt_tokens_details={"cached_tokens": 500}),
    _used(completion_tokens_details={"reasoning_tokens": -5}),
    _used(total_tokens=-7),
    _used(prompt_tokens=-21),
    _used(prompt_tokens=21.5, completion_tokens=4.5),
    _used(prompt_tokens="many"),
    _used(completion_tokens=None),
]


@pytest.mark.parametrize("make", WAYS)
async def test_nonsense_about_a_call_costs_what_was_said_or_the_hold(make: Any) -> None:
    """A client library may refuse such a reply; what it lets through is read."""
    for usage in NONSENSE:
        stage = Stage(make(answering(usage)))
        result = await stage.run(kt.Budget(tokens=20_000))
        assert 25 <= result.usage.tokens <= 20_000, usage
        refused = [type(error).__name__ for error in stage.raised]
        assert result.output == "hello" or set(refused) <= REFUSED, (usage, stage.raised)
