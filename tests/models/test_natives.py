"""What a provider said goes back to it whole, and to no other model; and nobody sends what was changed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from pydantic_ai.messages import ModelResponse as ProviderReply
from pydantic_ai.messages import TextPart, ThinkingPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.providers.openrouter import OpenRouterProvider

import kairo_team as kt
from kairo_team._util.frozen import thaw
from kairo_team.agents.pydantic_ai_messages import ReplyView
from kairo_team.durable.codec import decode, encode
from kairo_team.engine.work.work_context import _written  # pyright: ignore[reportPrivateUsage]  # what keys are made of
from kairo_team.guardrails import GuardrailDecision, ModelOutput
from kairo_team.messages import Message, ModelRequest, ModelResponse, ToolCall
from kairo_team.models.natives import native_of, native_reply
from kairo_team.models.prompt_bounds import prompt_bound
from kairo_team.models.providers import ProviderModel
from tests.models.provider_wires import completion, model_of
from tests.models.recorded_wires import streamed

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])

THOUGHT = {"type": "thinking", "thinking": "Rome? No: Paris.", "signature": "c2lnbmVk"}
LOOK = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Paris"}}
ASK = ModelRequest([Message.user("Which city?")], max_tokens=500)


def claude(*blocks: Any, stop: str = "end_turn") -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 40, "output_tokens_details": {"thinking_tokens": 30}}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5-20251001"}
    return {**about, "content": list(blocks), "stop_reason": stop, "stop_sequence": None, "usage": usage}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def after(reply: ModelResponse, **changed: Any) -> ModelRequest:
    """The request of the next turn."""
    said: dict[str, Any] = {"text": reply.text, "tool_calls": reply.tool_calls, "native": reply.native} | changed
    made = Message.assistant(said["text"], said["tool_calls"], said["native"])
    results = [Message.tool(call.id, "It rains.") for call in made.tool_calls]
    return ModelRequest([*ASK.messages, made, *(results or [Message.user("Go on.")])], max_tokens=500)


def blocks_of(sent: dict[str, Any]) -> list[Any]:
    """The parts of the assistant's message that was sent, without the marks of a cache."""
    (message,) = [one for one in sent["messages"] if one["role"] == "assistant"]
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in message["content"]]


@on_asyncio
async def test_every_part_goes_back_in_its_order() -> None:
    parts = [THOUGHT, text("I look."), {"type": "redacted_thinking", "data": "aGlkZGVu"}, LOOK]
    asked: list[Any] = []
    model = model_of("anthropic-messages", iter([claude(*parts, stop="tool_use"), claude(text("Paris."))]), asked=asked)
    reply = await model.complete(ASK)
    assert (reply.text, [call.name for call in reply.tool_calls]) == ("I look.", ["look"])
    assert reply.billing.reasoning_tokens == 30
    await model.complete(after(reply))
    assert blocks_of(asked[1]) == parts


@on_asyncio
async def test_a_call_has_the_id_of_the_message() -> None:
    asked: list[Any] = []
    replies = iter([claude(THOUGHT, LOOK, stop="tool_use"), claude(text("Paris."))])
    model = model_of("anthropic-messages", replies, asked=asked)
    reply = await model.complete(ASK)
    await model.complete(after(reply, tool_calls=[ToolCall("toolu_1_2", "look", {"city": "Paris"})]))
    assert blocks_of(asked[1]) == [THOUGHT, {**LOOK, "id": "toolu_1_2"}]


CHANGED: dict[str, dict[str, Any]] = {
    "the text": {"text": "I was told otherwise."},
    "an argument": {"tool_calls": [ToolCall("toolu_1", "look", {"city": "Rome"})]},
    "a call left out": {"tool_calls": ()},
    "the words of another library": {"native": '{"role": "assistant"}'},
    "no JSON": {"native": "spoiled"},
}


@on_asyncio
@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
async def test_a_reply_that_was_changed_is_sent_as_it_is_now(changed: dict[str, Any]) -> None:
    asked: list[Any] = []
    replies = iter([claude(THOUGHT, text("I look."), LOOK, stop="tool_use"), claude(text("Paris."))])
    model = model_of("anthropic-messages", replies, asked=asked)
    request = after(await model.complete(ASK), **changed)
    await model.complete(request)
    message = request.messages[1]
    calls = [{**LOOK, "input": thaw(call.arguments)} for call in message.tool_calls]
    assert blocks_of(asked[1]) == [text(message.text), *calls]


@on_asyncio
async def test_another_model_gets_text_and_calls_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    reply = await model_of("anthropic-messages", claude(THOUGHT, text("I look."), LOOK, stop="tool_use")).complete(ASK)
    asked: list[Any] = []
    with caplog.at_level(logging.INFO, "kairo_team"):
        await model_of("openai-chat", completion(content="Paris."), asked=asked).complete(after(reply))
    assert THOUGHT["thinking"] not in json.dumps(asked)
    assert THOUGHT["signature"] not in json.dumps(asked)
    assert asked[0]["messages"][1]["content"] == "I look."
    assert "reasoning goes back only to its own model" in caplog.text


@on_asyncio
async def test_text_and_calls_alone_have_no_native_form() -> None:
    for parts in ([text("Paris.")], [text("I look."), LOOK], [LOOK]):
        assert (await model_of("anthropic-messages", claude(*parts)).complete(ASK)).native is None


def test_half_a_character_in_a_thought_is_a_question_mark() -> None:
    native = native_of(ProviderReply([ThinkingPart("half \ud83d"), TextPart("Paris.")]), "m")
    assert native is not None
    native.encode()
    assert "half ?" in native


def test_a_recorded_reply_of_a_pydantic_ai_agent_has_its_reasoning() -> None:
    """An agent that is taken up again gets the reply from the journal, with the thought and its signature."""
    parts: list[Any] = [ThinkingPart("Rome? No.", signature="c2lnbmVk", provider_name="anthropic"), TextPart("Paris.")]
    view = ReplyView(ModelRequestParameters())
    recorded = decode(encode(view.response(ProviderReply(parts))))
    assert view.native(recorded, None).parts == parts


def test_the_bound_of_a_prompt_counts_what_is_sent() -> None:
    plain, native = Message.assistant("Paris."), Message.assistant("Paris.", native="x" * 1000)
    assert prompt_bound(ModelRequest([native])) == prompt_bound(ModelRequest([plain])) - len("Paris.") + 1000


def test_the_native_form_is_not_shown() -> None:
    assert "secret" not in repr(ModelResponse("Paris.", native="secret"))
    assert "secret" not in repr(Message.assistant("Paris.", native="secret"))


def test_a_reply_recorded_before_there_was_a_native_form_is_read() -> None:
    old = '{"~":"ModelResponse","v":{"text":"Paris."}}'
    assert decode(old) == ModelResponse("Paris.")
    assert encode(ModelResponse("Paris.")) == old
    new = ModelResponse("Paris.", native='{"reader":"m","reply":{}}')
    assert decode(encode(new)) == new


def agent_of(replies: Iterator[Any], asked: list[Any]) -> kt.MiniAgent:
    def look(city: str) -> str:
        """Look up the weather."""
        return f"It rains in {city}."

    return kt.MiniAgent(
        model_of("anthropic-messages", replies, asked=asked), tools=[look], settings={"max_tokens": 500}
    )


@on_asyncio
async def test_an_agent_sends_reasoning_back_and_a_guardrail_that_changes_a_reply_takes_it_out() -> None:
    def redact(context: Any) -> GuardrailDecision:
        payload: ModelOutput = context.payload
        if "Rome" not in payload.text:
            return GuardrailDecision.allow()
        return GuardrailDecision.modify("no Rome", payload.with_text("Somewhere."))

    for words, wanted in (("I look.", [THOUGHT, text("I look."), LOOK]), ("To Rome!", [text("Somewhere."), LOOK])):
        asked: list[Any] = []
        replies = iter([claude(THOUGHT, text(words), LOOK, stop="tool_use"), claude(text("It rains."))])
        member = kt.Member("m", agent_of(replies, asked))
        result = await kt.run(kt.Team("t", [member]), "Weather?", runtime=kt.Runtime(guardrails=[_policy(redact)]))
        assert result.output == "It rains."
        assert blocks_of(asked[1]) == wanted


def _policy(decide: Any) -> Any:
    class Policy:
        name = "redact"
        phases = frozenset({"post_model"})

        async def evaluate(self, context: Any) -> GuardrailDecision:
            return decide(context)  # type: ignore[no-any-return]

    return Policy()


def test_a_call_has_another_key_with_a_native_form_and_without_one_the_key_it_always_had() -> None:
    plain = ModelRequest([Message.assistant("Paris.")])
    message = '{"role":"assistant","text":"Paris.","tool_calls":[],"tool_call_id":null}'
    written = '{"messages":[%s],"tools":[],"output_schema":null,"max_tokens":null,"settings":{}}'
    assert _written(plain).decode() == written % message
    assert _written(ModelRequest([Message.assistant("Paris.", native="x")])) != _written(plain)


THINKS = {"type": "enabled", "budget_tokens": 2048}
LOOPS: dict[str, tuple[list[Any], dict[str, Any], Any]] = {
    "whole": ([THOUGHT, LOOK], {}, THINKS),
    "text changed": ([THOUGHT, text("I look."), LOOK], {"text": "I am told to look."}, None),
    "argument changed": ([THOUGHT, LOOK], {"tool_calls": [ToolCall("toolu_1", "look", {"city": "Rome"})]}, None),
    "a guardrail took the thought": ([THOUGHT, LOOK], {"native": None}, None),
    "no call": ([THOUGHT, text("Paris.")], {"text": "Rome."}, THINKS),
}


@on_asyncio
@pytest.mark.parametrize(("blocks", "changed", "sent"), LOOPS.values(), ids=LOOPS)
async def test_claude_does_not_think_on_without_the_thought_before_its_call(
    blocks: list[Any], changed: dict[str, Any], sent: Any
) -> None:
    """Anthropic refuses a request that thinks where a tool call that is answered has lost its thought."""
    asked: list[Any] = []
    replies = iter([claude(*blocks, stop="tool_use"), claude(text("Paris."))])
    model = model_of("anthropic-messages", replies, asked=asked)
    request = after(await model.complete(ASK), **changed)
    await model.complete(replace(request, max_tokens=4096, settings={"thinking": "low"}))
    assert asked[1].get("thinking") == sent


def openrouter(message: dict[str, Any], asked: list[Any]) -> ProviderModel:
    reply = {**completion(**message), "provider": "p"}

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(json.loads(request.content))
        if asked[-1].get("stream"):
            kind = {"content-type": "text/event-stream"}
            return httpx2.Response(200, content=streamed("openai-chat", reply).encode(), headers=kind)
        return httpx2.Response(200, json=reply)

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return ProviderModel(
        "openrouter:x/m", OpenRouterModel("x/m", provider=OpenRouterProvider(api_key="k", http_client=http))
    )


@on_asyncio
@pytest.mark.parametrize("way", ["complete", "stream"])
async def test_reasoning_of_openrouter_goes_back_with_details_and_without(way: str) -> None:
    detail = {"type": "reasoning.text", "text": "Rome? No.", "signature": "c2ln", "format": "f", "id": None, "index": 0}
    for said in ({"reasoning": "Rome? No."}, {"reasoning": "Rome? No.", "reasoning_details": [detail]}):
        asked: list[Any] = []
        model = openrouter({"content": "Paris.", **said}, asked)

        async def call(request: ModelRequest) -> ModelResponse:
            return await (model.complete(request) if way == "complete" else model.stream(request, lambda _: None))

        await call(after(await call(ASK)))
        sent = asked[1]["messages"][1]
        assert sent["content"] == "Paris."
        assert sent.get("reasoning_details", sent.get("reasoning")) == said.get("reasoning_details", "Rome? No.")


@on_asyncio
async def test_the_words_of_a_refusal_go_back_after_the_reasoning_before_them() -> None:
    """OpenAI refuses a conversation with reasoning that nothing follows."""
    thought = ThinkingPart("", id="rs_1", signature="ENC", provider_name="openai")
    native = native_of(ProviderReply([thought], provider_details={"refusal": "I cannot."}), "m")
    reply = native_reply(Message.assistant("I cannot.", native=native), "m")
    assert reply is not None
    assert reply.parts == [thought, TextPart("I cannot.")]
