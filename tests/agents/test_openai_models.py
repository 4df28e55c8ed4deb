"""Models behind `OpenAIAgent`: by name, through OpenAI's client, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

from agents import (
    Agent,
    Model,
    ModelProvider,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
)
from openai import APIStatusError, AsyncOpenAI

import kairo_team as kt
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from tests.agents.loops import asyncio_alone
from tests.agents.openai_double import Scripted, Witness, work

pytestmark = pytest.mark.anyio
anyio_backend = asyncio_alone


class Names(ModelProvider):
    """Knows one model by name."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> Model:
        if model_name != "known":
            raise ValueError(f"nobody knows {model_name}")
        return self._model


async def test_a_model_by_name_is_the_providers_and_governed() -> None:
    for agent_model, run_model in (("known", None), (Scripted(["never"]), "known"), (None, Scripted(["x"]))):
        model = run_model if isinstance(run_model, Scripted) else Scripted(["x"])
        config = RunConfig(model=run_model, model_provider=Names(model))
        result, _ = await work(Agent("a", model=agent_model), run_config=config)
        assert (result.output, result.usage.tokens, len(model.calls)) == ("x", 15, 1)


async def test_a_model_that_is_not_to_be_had_is_refused_before_work_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    unknown = OpenAIAgent(Agent("a", model="x"), run_config=RunConfig(model_provider=Names(Scripted(["x"]))))
    for agent, why in ((unknown, "nobody knows x"), (OpenAIAgent(Agent("a")), "OPENAI_API_KEY")):
        check = kt.check(kt.Team("t", [kt.Member("m", agent)]), "g")
        assert not check.ok
        assert why in str(check.problems)


def client(answer: Any) -> AsyncOpenAI:
    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return AsyncOpenAI(api_key="none", base_url="http://localhost/v1", http_client=transport)


@pytest.mark.real_time
@pytest.mark.parametrize(("status", "tries", "charged"), [(429, 3, False), (500, 3, True), (400, 1, False)])
@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
async def test_kf_b13_a_call_is_tried_again_by_the_governed_model_alone_and_each_try_is_told(
    status: int, tries: int, charged: bool, kind: Any
) -> None:
    asked: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(status, json={"error": {"message": "later"}}, headers={"retry-after-ms": "1"})

    told: list[Any] = []
    witness = Witness(OpenAIAgent(Agent("a", model=kind("m", client(answer)))))
    runtime = kt.Runtime(subscribers=[told.append], model_retry=kt.ModelRetry(backoff=0.0))
    coordinator = ExpertTeamCoordinator(failure_policy=FailurePolicy(retries=0))
    team = kt.Team("t", [kt.Member("m", witness)], runtime=runtime, coordinator=coordinator)
    result = await kt.run(team, "g", budget=kt.Budget(tokens=100_000))
    assert len(asked) == tries == sum(event.type == "model.called" for event in told)
    assert (result.usage.tokens > 0) is charged
    assert isinstance(witness.raised, APIStatusError)


@pytest.mark.real_time
async def test_what_the_providers_client_says_of_a_call_is_what_is_booked() -> None:
    usage = {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 25}
    reply = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
        "usage": usage | {"prompt_tokens_details": {"cached_tokens": 20}},
    }
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=reply)

    model = OpenAIChatCompletionsModel("m", client(answer))
    settings = ModelSettings(extra_body={"max_completion_tokens": 99_999, "n": 3})
    result, _ = await work(Agent("a", model=model, model_settings=settings), budget=kt.Budget(tokens=600))
    assert (result.output, result.usage.prompt_tokens, result.usage.completion_tokens) == ("hello", 21, 4)
    assert sent[0]["max_tokens"] < 600
    assert sent[0]["max_completion_tokens"] == sent[0]["max_tokens"]
    assert sent[0]["n"] == 1


# ---------------------------------------------------------------- over HTTP, to the embedded model


@pytest.mark.local_model
async def test_a_real_model_behind_openais_client_is_held_capped_and_booked() -> None:
    from kairo_team.models import local

    engine = local._engine("local:smollm2")
    address = f"{engine._server.listening_address}/v1"
    async with AsyncOpenAI(api_key=engine._key, base_url=address) as there:
        model = OpenAIChatCompletionsModel("smollm2", there)
        agent = Agent("a", model=model, model_settings=ModelSettings(max_tokens=8, temperature=0))
        result, witness = await work(agent, budget=kt.Budget(tokens=2000))
    assert (result.output or "").strip()
    assert 0 < result.usage.completion_tokens <= 8
    assert 0 < result.usage.prompt_tokens < 2000
    assert witness.output is not None
    assert witness.output.artifact.partial
