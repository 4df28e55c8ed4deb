"""Requests of the real client libraries become model requests, and replies come back in the caller's format."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import APIStatusError as AnthropicStatusError
from anthropic import AsyncAnthropic
from openai import APIStatusError, AsyncOpenAI

import kairo_team as kt
from kairo_team.addresses import ModelAddress
from tests.address.stage import says, work
from tests.agents.loops import asyncio_alone

anyio_backend = asyncio_alone
pytestmark = pytest.mark.real_time

HI: Any = [{"role": "user", "content": "hi"}]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nnothing").decode()
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
USED = kt.Usage(10, 5)
CALLS = kt.ModelResponse("I look.", [kt.ToolCall("c1", "look", {"at": "sea"})], USED, "m")


def openai_at(address: ModelAddress) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=address.openai, api_key=address.key)


def anthropic_at(address: ModelAddress) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=address.anthropic, api_key=address.key)


async def asked(
    call: Callable[[Any], Any], client_at: Any, reply: Any = "fine"
) -> tuple[Any, kt.ModelRequest, kt.TeamResult]:
    """Make one call with a client; return its reply, the request that the model got, and the run's result."""
    got: list[Any] = []

    async def use(address: ModelAddress) -> str:
        async with client_at(address) as client:
            got.append(await call(client))
        return "done"

    model = says(reply)
    result, raised = await work(use, model)
    assert raised == []
    return got[0], model.calls[0], result


async def test_chat_completions_carry_messages_tools_files_and_settings() -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    call = {"id": "c0", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
    messages: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c0", "content": "a bird"},
    ]
    options: Any = {"tools": [tool], "temperature": 0.5, "stop": "END", "max_completion_tokens": 40}
    options |= {"reasoning_effort": "low", "tool_choice": "required", "extra_body": {"house": {"style": 1}}}
    reply, request, result = await asked(
        lambda client: client.chat.completions.create(model="any", messages=messages, user="u", **options),
        openai_at,
        CALLS,
    )
    assert [(one.role, one.text) for one in request.messages] == [
        ("system", "Be brief."),
        ("user", ""),
        ("user", "What is it?"),
        ("assistant", ""),
        ("tool", "a bird"),
    ]
    assert request.files == [kt.File(data=base64.b64decode(PNG), media_type="image/png")]
    assert request.messages[3].tool_calls == (kt.ToolCall("c0", "look", {"at": "sky"}),)
    assert [tool.name for tool in request.tools] == ["look"]
    assert request.max_tokens == 40
    settings = dict(request.settings)
    assert settings.pop("extra_body") == {"house": {"style": 1}}
    assert settings == {"temperature": 0.5, "stop_sequences": ("END",), "thinking": "low", "tool_choice": "required"}
    said = reply.choices[0]
    assert (said.finish_reason, said.message.content) == ("tool_calls", "I look.")
    assert said.message.tool_calls[0].function.arguments == '{"at": "sea"}'
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10, 5)
    assert result.usage.tokens == 15


async def test_a_stream_of_chat_completions_is_the_whole_reply_and_its_usage() -> None:
    async def call(client: AsyncOpenAI) -> Any:
        options: Any = {"stream_options": {"include_usage": True}}
        return [
            one async for one in await client.chat.completions.create(model="m", messages=HI, stream=True, **options)
        ]

    chunks, _, result = await asked(call, openai_at, CALLS)
    deltas = [one.choices[0].delta for one in chunks if one.choices]
    assert "".join(delta.content or "" for delta in deltas) == "I look."
    assert [one.function.name for delta in deltas for one in delta.tool_calls or ()] == ["look"]
    assert chunks[-1].usage.total_tokens == result.usage.tokens == 15


async def test_a_schema_is_the_schema_of_the_reply() -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    _, request, _ = await asked(
        lambda client: client.chat.completions.create(model="m", messages=HI, response_format=form), openai_at
    )
    assert request.output_schema == SCHEMA


async def test_messages_carry_blocks_tools_and_thinking() -> None:
    messages: Any = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {"at": "sky"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a bird"}]},
    ]
    tools: Any = [{"name": "look", "input_schema": SCHEMA}]
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    reply, request, result = await asked(
        lambda client: client.messages.create(
            model="any", max_tokens=2000, system="Be brief.", messages=messages, tools=tools, thinking=thinking
        ),
        anthropic_at,
        CALLS,
    )
    assert [(one.role, one.text) for one in request.messages] == [
        ("system", "Be brief."),
        ("user", "What is it?"),
        ("assistant", ""),
        ("tool", "a bird"),
    ]
    assert len(request.files) == 1
    assert (request.max_tokens, request.settings) == (2000, {"thinking": True})
    assert [block.type for block in reply.content] == ["text", "tool_use"]
    assert (reply.stop_reason, reply.content[1].input) == ("tool_use", {"at": "sea"})
    assert reply.usage.input_tokens + reply.usage.output_tokens == result.usage.tokens


async def test_a_stream_of_messages_is_the_whole_reply() -> None:
    async def call(client: AsyncAnthropic) -> Any:
        async with client.messages.stream(model="m", max_tokens=9, messages=HI) as stream:
            return await stream.get_final_message()

    reply, _, _ = await asked(call, anthropic_at, CALLS)
    assert [block.type for block in reply.content] == ["text", "tool_use"]
    assert (reply.content[0].text, reply.content[1].input) == ("I look.", {"at": "sea"})
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (10, 5)


async def test_tokens_of_messages_are_counted_without_a_call() -> None:
    counts: list[int] = []

    async def use(address: ModelAddress) -> None:
        async with anthropic_at(address) as client:
            messages: Any = [{"role": "user", "content": "three short words"}]
            counts.append((await client.messages.count_tokens(model="m", messages=messages)).input_tokens)

    model = says("never")
    result, raised = await work(use, model)
    assert (raised, counts, model.calls, result.usage.tokens) == ([], [3], [], 0)


async def test_responses_carry_items_tools_and_instructions() -> None:
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}]},
        {"type": "function_call", "call_id": "c0", "name": "look", "arguments": '{"at": "sky"}'},
        {"type": "function_call_output", "call_id": "c0", "output": "a bird"},
    ]
    tools: Any = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
    reply, request, result = await asked(
        lambda client: client.responses.create(
            model="any", instructions="Be brief.", input=items, tools=tools, max_output_tokens=50
        ),
        openai_at,
        CALLS,
    )
    assert [(one.role, one.text) for one in request.messages] == [
        ("system", "Be brief."),
        ("user", "What is it?"),
        ("assistant", ""),
        ("tool", "a bird"),
    ]
    assert request.max_tokens == 50
    assert (reply.output_text, reply.output[1].arguments) == ("I look.", '{"at": "sea"}')
    assert reply.usage.total_tokens == result.usage.tokens


async def test_a_stream_of_responses_is_the_whole_reply() -> None:
    async def call(client: AsyncOpenAI) -> Any:
        async with client.responses.stream(model="m", input="hi") as stream:
            texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            return texts, await stream.get_final_response()

    (texts, reply), _, _ = await asked(call, openai_at, CALLS)
    assert ("".join(texts), reply.output_text, reply.output[1].name) == ("I look.", "I look.", "look")


async def test_reasoning_goes_back_to_the_model_with_the_reply_it_came_from() -> None:
    native = '{"reader":"r","reply":{"parts":[{"part_kind":"thinking","content":"hmm"}]}}'
    shown: list[Any] = []

    async def use(address: ModelAddress) -> None:
        async with openai_at(address) as client:
            first = await client.chat.completions.create(model="m", messages=HI)
            shown.append(getattr(first.choices[0].message, "reasoning_content", None))
            said: Any = {"role": "assistant", "content": first.choices[0].message.content}
            await client.chat.completions.create(model="m", messages=[*HI, said, *HI])

    model = says(kt.ModelResponse("tides", usage=USED, native=native), "fine")
    _, raised = await work(use, model)
    assert (raised, shown) == ([], ["hmm"])
    assert model.calls[1].messages[1].native == native


async def test_a_response_goes_on_from_an_earlier_one_of_the_same_address() -> None:
    """Microsoft Agent Framework sends what is new, with the name of the reply before it."""
    seen: list[str] = []

    async def use(address: ModelAddress) -> None:
        async with openai_at(address) as client:
            first = await client.responses.create(model="m", instructions="Be brief.", input="hi")
            result: Any = [{"type": "function_call_output", "call_id": "c1", "output": "a sea"}]
            second = await client.responses.create(
                model="m", instructions="Be kind.", input=result, previous_response_id=first.id
            )
            stream = await client.responses.create(model="m", input="why?", previous_response_id=second.id, stream=True)
            seen.extend([event.response.id async for event in stream if event.type == "response.completed"])
            unkept = await client.responses.create(model="m", input="ho", previous_response_id=seen[0], store=False)
            with pytest.raises(APIStatusError, match="there is no reply"):
                await client.responses.create(model="m", input="hm", previous_response_id=unkept.id)

    model = says(CALLS, "A sea.", "Tides.", "never kept")
    _, raised = await work(use, model)
    assert raised == []
    assert [[(one.role, one.text) for one in call.messages] for call in model.calls[1:]] == [
        [("system", "Be kind."), *(talk := [("user", "hi"), ("assistant", "I look."), ("tool", "a sea")])],
        [*talk, ("assistant", "A sea."), ("user", "why?")],
        [*talk, ("assistant", "A sea."), ("user", "why?"), ("assistant", "Tides."), ("user", "ho")],
    ]
    assert model.calls[1].messages[2].tool_calls == CALLS.tool_calls


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"n": 2}, "'n' cannot be carried"),
    ("chat/completions", {"logprobs": True}, "no probabilities"),
    ("chat/completions", {"web_search_options": {"x": 1}}, "cannot be limited"),
    ("chat/completions", {"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "a tool of the type 'custom'"),
    ("chat/completions", {"messages": []}, "no messages"),
    ("chat/completions", {"messages": [{"role": "king", "content": "x"}]}, "a message's role is"),
    ("chat/completions", {"max_tokens": 0}, "at least 1"),
    ("messages", {"thread": {"type": "new"}}, "send the whole conversation"),
    ("messages", {"mcp_servers": [{}]}, "cannot be limited"),
    ("messages", {"tool_choice": {"type": "x"}}, "tool_choice is of the type"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "'search_result'"),
    ("responses", {"previous_response_id": "r"}, "there is no reply 'r' at this address"),
    ("responses", {"include": True}, "include must be a list"),
    ("responses", {"include": [{}]}, "'include' cannot be carried"),
    ("responses", {"conversation": "c"}, "send the whole conversation"),
    ("responses", {"tools": [{"type": "web_search"}]}, "a tool of the type 'web_search'"),
    ("responses", {"input": [{"type": "item_reference", "id": "x"}]}, "an item of input"),
    # As Codex sends its tools to the models it knows.
    ("responses", {"input": [{"type": "additional_tools", "role": "developer", "tools": []}]}, "'additional_tools'"),
]


OF_OTHER_FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", {"input": "another question"}),
    ("chat/completions", {"previous_response_id": "r"}),
    ("chat/completions", {"system": "another instruction"}),
    ("chat/completions", {"thread": {"type": "existing", "id": "t"}}),
    ("chat/completions", {"plugins": [{"id": "web"}]}),
    ("messages", {"n": 50}),
    ("messages", {"best_of": 50}),
    ("messages", {"instructions": "another instruction"}),
    ("messages", {"web_search_options": {"x": 1}}),
    ("messages", {"generationConfig": {"candidateCount": 8}}),
    ("responses", {"messages": [{"role": "user", "content": "another question"}]}),
    ("responses", {"n": 50}),
    ("responses", {"prediction": {"type": "content", "content": "much"}}),
]
"""Fields that a provider of another format would read in place of what was counted and guarded, or on top of it."""
REFUSED.extend((path, fields, f"{next(iter(fields))!r} cannot be carried") for path, fields in OF_OTHER_FORMATS)


@pytest.mark.parametrize(("path", "fields", "sentence"), REFUSED)
async def test_what_cannot_be_carried_is_refused_with_a_sentence(
    path: str, fields: dict[str, Any], sentence: str
) -> None:
    body = {"input": "hi"} if path == "responses" else {"messages": HI}

    async def use(address: ModelAddress) -> None:
        async with openai_at(address) as client:
            await client.post(f"/{path}", body={"model": "m", **body, **fields}, cast_to=object)

    model = says("never")
    _, raised = await work(use, model)
    (error,) = raised
    assert isinstance(error, APIStatusError)
    assert (error.status_code, model.calls) == (400, [])
    assert sentence in error.message


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
async def test_no_field_brings_another_model_a_longer_reply_or_hides_the_usage(path: str) -> None:
    """OpenRouter's `models` and Anthropic's `fallbacks` are other models, as is the `model` of a request."""
    more = {"models": ["dear"], "fallbacks": [{"model": "dear"}], "stream_options": {"include_usage": False}, "n": 1}
    limits = {"max_tokens": 9, "max_new_tokens": 7_000, "num_predict": 8_000}
    body = {"input": "hi"} if path == "responses" else {"messages": HI}

    async def use(address: ModelAddress) -> None:
        async with openai_at(address) as client:
            await client.post(f"/{path}", body={"model": "m", **body, **more, **limits}, cast_to=object)

    model = says("Fine.")
    _, raised = await work(use, model)
    assert raised == []
    assert [(call.max_tokens, dict(call.settings)) for call in model.calls] == [(9, {})]


async def test_a_refusal_of_messages_has_the_shape_of_its_format() -> None:
    async def use(address: ModelAddress) -> None:
        async with anthropic_at(address) as client:
            tools: Any = [{"type": "web_search_20250305", "name": "web_search"}]
            await client.messages.create(model="m", max_tokens=9, messages=HI, tools=tools)

    model = says("never")
    _, raised = await work(use, model)
    (error,) = raised
    assert isinstance(error, AnthropicStatusError)
    body: Any = error.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert "web_search_20250305" in body["error"]["message"]
    assert model.calls == []
