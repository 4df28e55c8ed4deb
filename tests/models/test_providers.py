"""Models of real providers: refused before work starts, asked in pydantic-ai's words, answered in ours."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import anyio
import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic_ai.messages import ModelMessage, SystemPromptPart, TextPart, ThinkingPart, UserPromptPart
from pydantic_ai.messages import ModelRequest as TheirRequest
from pydantic_ai.messages import ModelResponse as TheirResponse
from pydantic_ai.models import infer_model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.models.test import TestModel as EchoModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.usage import RequestUsage

import kairo_team as kt
from kairo_team.errors import MissingExtra, ModelCallError, ModelUnavailable
from kairo_team.messages import Billing
from kairo_team.models.providers import ProviderModel, provider_model
from kairo_team.models.resolver import ModelResolver

KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)


class Provider:
    """A pydantic-ai model that answers with what it is given and remembers what it was asked."""

    def __init__(self, *replies: TheirResponse | str, native: bool = True) -> None:
        self.replies = [TheirResponse([TextPart(r)]) if isinstance(r, str) else r for r in replies]
        self.asked: list[tuple[Sequence[ModelMessage], AgentInfo]] = []
        profile = ModelProfile(supports_json_schema_output=native)
        model = FunctionModel(self._answer, model_name="double-2", profile=profile)
        self.model = ProviderModel("theirs:double", model)

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> TheirResponse:
        self.asked.append((messages, info))
        return self.replies.pop(0)

    async def ask(self, text: str = "Hello", **fields: object) -> kt.ModelResponse:
        return await self.model.complete(kt.ModelRequest([kt.Message.user(text)], **fields))  # type: ignore[arg-type]


# ---------------------------------------------------------------- before work starts


def test_without_pydantic_ai_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.models.providers.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"the model 'openai:x' needs the extra 'models': pip install") as caught:
        provider_model("openai:x")
    assert caught.value.extra == "models"


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ModelUnavailable,
        match=r"'opnai' is unknown; did you mean 'openai'\? there are .*'anthropic'.*'local'.*'openai'",
    ):
        provider_model("opnai:gpt-5-mini")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("anthropic:claude-haiku-4-5", "ANTHROPIC_API_KEY"),
        ("google:gemini-2.5-flash", "GOOGLE_API_KEY"),
    ],
)
def test_a_missing_key_is_named(name: str, variable: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        provider_model(name)
    assert str(caught.value) == f"model {name!r} cannot be used: set the environment variable {variable}"


@pytest.mark.skipif(importlib.util.find_spec("groq") is not None, reason="the library is installed")
def test_a_provider_whose_library_is_missing_says_what_to_install() -> None:
    with pytest.raises(ModelUnavailable, match=r"not installed: pip install 'pydantic-ai-slim\[groq\]'"):
        provider_model("groq:llama")


def test_a_missing_library_of_the_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pydantic_ai.providers.anthropic", raising=False)
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(MissingExtra, match="needs the extra 'models'"):
        provider_model("anthropic:claude-haiku-4-5")


def test_with_a_key_the_model_is_made_and_nothing_is_tried_twice_behind_our_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "no-real-key")
    assert ModelResolver().resolve("openai:gpt-5-mini").name == "openai:gpt-5-mini"
    theirs = infer_model("openai:gpt-5-mini")
    ProviderModel("openai:gpt-5-mini", theirs)
    assert isinstance(theirs, OpenAIResponsesModel)
    assert theirs.client.max_retries == 0


# ---------------------------------------------------------------- calls


async def test_a_conversation_is_told_in_their_words() -> None:
    provider = Provider("Bonjour")
    said = [
        kt.Message.system("Speak French."),
        kt.Message.user("Hi"),
        kt.Message.assistant("Salut"),
        kt.Message.user("Go"),
    ]
    reply = await provider.model.complete(kt.ModelRequest(said))
    assert reply.text == "Bonjour"
    parts = [part for message in provider.asked[0][0] for part in message.parts]
    assert [type(part) for part in parts] == [SystemPromptPart, UserPromptPart, TextPart, UserPromptPart]
    assert [getattr(part, "content", None) for part in parts] == [message.text for message in said]
    assert isinstance(provider.asked[0][0][0], TheirRequest)


async def test_usage_is_what_the_provider_says() -> None:
    usage = RequestUsage(input_tokens=12, output_tokens=5)
    reply = await Provider(TheirResponse([TextPart("ok")], usage=usage)).ask()
    assert reply.usage == kt.Usage(prompt_tokens=12, completion_tokens=5)
    assert reply.model == "double-2"


async def test_what_the_price_depends_on_is_told() -> None:
    usage = RequestUsage(
        input_tokens=100, output_tokens=5, cache_read_tokens=40, cache_write_tokens=30, cache_write_1h_tokens=20
    )
    details = {"service_tier": "priority", "logprobs": [1, 2]}
    reply = await Provider(TheirResponse([TextPart("ok")], usage=usage, provider_details=details)).ask()
    assert reply.billing == Billing(40, 10, 20, {"service_tier": "priority"})
    assert (await Provider("ok").ask()).billing == Billing()


async def test_dollars_that_the_provider_reports_are_the_usages() -> None:
    usage = RequestUsage(input_tokens=12, output_tokens=5, cost=Decimal("0.007"))
    reply = await Provider(TheirResponse([TextPart("ok")], usage=usage)).ask()
    assert reply.usage == kt.Usage(12, 5, Decimal("0.007"))


@pytest.mark.parametrize("tokens", [-5, 2.5, "many", None])
async def test_usage_that_is_nonsense_is_unknown(tokens: Any) -> None:
    usage = RequestUsage(input_tokens=tokens, output_tokens=5)
    assert (await Provider(TheirResponse([TextPart("ok")], usage=usage)).ask()).usage is None


async def test_usage_is_unknown_when_the_provider_says_nothing() -> None:
    class Silent(EchoModel):
        async def request(self, *args: object, **kwargs: object) -> TheirResponse:
            return TheirResponse([TextPart("ok")])

    reply = await ProviderModel("theirs:silent", Silent()).complete(kt.ModelRequest([kt.Message.user("Hello")]))
    assert reply.usage is None


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_call", "stop"),
        (None, "stop"),
    ],
)
async def test_the_end_of_a_reply_is_told(theirs: str | None, ours: str) -> None:
    reply = await Provider(TheirResponse([TextPart("ok")], finish_reason=theirs)).ask()  # type: ignore[arg-type]
    assert reply.finish_reason == ours


async def test_a_reply_that_ends_in_an_error_raises() -> None:
    with pytest.raises(ModelCallError, match=r"'theirs:double' did not answer \(unknown\): it gave up: overloaded"):
        await Provider(TheirResponse([TextPart("overloaded")], finish_reason="error")).ask()


async def test_what_a_model_thinks_is_no_part_of_its_text() -> None:
    reply = await Provider(TheirResponse([ThinkingPart("hm"), TextPart("yes")])).ask()
    assert reply.text == "yes"


async def test_settings_and_the_limit_are_passed_on() -> None:
    provider = Provider("ok", "ok")
    await provider.ask(max_tokens=50, settings={"temperature": 0.5, "max_tokens": 90, "openai_user": "u"})
    assert provider.asked[0][1].model_settings == {"temperature": 0.5, "max_tokens": 50, "openai_user": "u"}
    await provider.ask()
    assert not provider.asked[1][1].model_settings


@pytest.mark.parametrize("name", ["temprature", "max_retries", "custom_thing"])
async def test_an_unknown_setting_is_refused(name: str) -> None:
    provider = Provider("ok")
    with pytest.raises(ValueError, match=f"unknown settings '{name}'.*'temperature'"):
        await provider.ask(settings={name: 1})
    assert not provider.asked


async def test_a_schema_goes_through_the_providers_own_output() -> None:
    provider = Provider('{"city": "Oslo"}')
    await provider.ask(output_schema=CITY)
    parameters = provider.asked[0][1].model_request_parameters
    assert parameters.output_mode == "native"
    assert parameters.output_object is not None
    assert parameters.output_object.json_schema == CITY
    assert not provider.asked[0][1].instructions


async def test_without_such_output_the_schema_stands_in_the_prompt() -> None:
    provider = Provider('{"city": "Oslo"}', native=False)
    await provider.ask(output_schema=CITY)
    info = provider.asked[0][1]
    assert info.model_request_parameters.output_mode == "prompted"
    assert json.dumps(CITY["properties"]) in (info.instructions or "")


async def test_cancellation_passes_and_the_model_can_be_asked_again() -> None:
    asked = anyio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> TheirResponse:
        if not asked.is_set():
            asked.set()
            await anyio.sleep_forever()
        return TheirResponse([TextPart("back")])

    model = ProviderModel("theirs:slow", FunctionModel(answer))
    request = kt.ModelRequest([kt.Message.user("Hello")])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(model.complete, request)
            await asked.wait()
            group.cancel_scope.cancel()
        assert (await model.complete(request)).text == "back"


async def test_an_error_of_the_provider_reaches_the_caller() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> TheirResponse:
        raise ConnectionError("no route")

    with pytest.raises(ModelCallError, match=r"did not answer \(connection\): no route"):
        await ProviderModel("theirs:down", FunctionModel(answer)).complete(kt.ModelRequest([kt.Message.user("Hello")]))


async def test_a_team_works_on_it_under_a_budget() -> None:
    usage = RequestUsage(input_tokens=30, output_tokens=5)
    provider = Provider(TheirResponse([TextPart("The moon pulls.")], usage=usage))
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent("openai:gpt-5-mini"))])
    runtime = kt.Runtime(models={"openai:*": provider.model})
    result = await kt.run(team, "Explain tides.", budget=kt.Budget(tokens=20_000), runtime=runtime)
    assert result.check().output == "The moon pulls."
    assert result.usage.tokens == 35


# ---------------------------------------------------------------- over HTTP, to the embedded model


@pytest.fixture
def loopback(loopback_server: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> ProviderModel:
    """OpenAI's client, pointed at the embedded model."""
    url, key = loopback_server
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    return provider_model("openai-chat:smollm2")


@pytest.mark.local_model
async def test_a_real_reply_with_real_usage(loopback: ProviderModel) -> None:
    request = kt.ModelRequest([kt.Message.user("Say hello.")], max_tokens=8, settings={"temperature": 0})
    reply = await loopback.complete(request)
    assert reply.text.strip()
    assert reply.usage is not None
    assert reply.usage.prompt_tokens > 0
    assert 0 < reply.usage.completion_tokens <= 8
    assert reply.finish_reason == "length"


@pytest.mark.local_model
async def test_a_real_reply_is_held_to_its_schema(loopback: ProviderModel) -> None:
    asked = kt.Message.user("Which city is the capital of Norway?")
    reply = await loopback.complete(kt.ModelRequest([asked], (), CITY, max_tokens=40, settings={"temperature": 0}))
    assert reply.finish_reason == "stop"
    assert set(json.loads(reply.text)) == {"city"}


@pytest.mark.local_model
def test_one_model_serves_one_event_loop_after_another(loopback: ProviderModel) -> None:
    request = kt.ModelRequest([kt.Message.user("Say hello.")], max_tokens=2)
    for _ in range(2):
        assert anyio.run(partial(loopback.complete, request)).usage is not None
