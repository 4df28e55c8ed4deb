"""Tools out and tool calls in: what models write as arguments, conversations about tools, and what is held for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.messages import ModelResponse as TheirResponse
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.models.function import FunctionModel as TheirFunctionModel

import kairo_team as kt
from kairo_team.errors import ModelCallError
from kairo_team.messages import ToolSpec
from kairo_team.models import local
from kairo_team.models.prompt_bounds import prompt_bound
from kairo_team.models.provider_messages import conversation
from kairo_team.models.providers import TOOL_PREAMBLE, ProviderModel
from kairo_team.models.tool_calls import arguments_text, made_call

pytestmark = pytest.mark.anyio

SEARCH = ToolSpec(
    "search",
    "Search the web.",
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False},
)
ASKED = (kt.ToolCall("c1", "search", {"q": "tides"}), kt.ToolCall("c2", "search", "tides, please"))
TALK = (
    kt.Message.system("Be brief."),
    kt.Message.user("What are tides?"),
    kt.Message.assistant("", ASKED),
    kt.Message.tool("c1", "The moon."),
    kt.Message.tool("c2", "It failed."),
)


def provider(*parts: Any, **more: Any) -> tuple[ProviderModel, list[tuple[list[ModelMessage], AgentInfo]]]:
    asked: list[tuple[list[ModelMessage], AgentInfo]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> TheirResponse:
        asked.append((messages, info))
        return TheirResponse(list(parts), **more)

    return ProviderModel("theirs:double", TheirFunctionModel(answer)), asked


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"q": "x"}', {"q": "x"}),
        ("{}", {}),
        ({"q": ["x"]}, {"q": ("x",)}),
        (None, {}),
        ("", {}),
        ('{"q": ', '{"q": '),
        ('["x"]', '["x"]'),
        ("tides", "tides"),
        ("null", "null"),
        ('{"q": NaN}', '{"q": NaN}'),
        ('{"q": -Infinity}', '{"q": -Infinity}'),
        ('{"q": 1e999}', '{"q": 1e999}'),
        ('{"q": "\\ud800"}', '{"q": "\\ud800"}'),
        ('{"q": ' + "9" * 5000 + "}", '{"q": ' + "9" * 5000 + "}"),
        ('{"q": ' + "[" * 100_000 + "}", '{"q": ' + "[" * 100_000 + "}"),
        ("half a \ud83d character", "half a ? character"),
    ],
    ids=lambda value: str(value).encode("ascii", "replace").decode()[:20],
)
def test_arguments_are_an_object_or_the_text_they_are(written: Any, read: Any) -> None:
    assert made_call("c1", "search", written).arguments == read


@given(st.text() | st.dictionaries(st.text(), st.none() | st.floats() | st.text() | st.lists(st.floats()), max_size=4))
@settings(max_examples=settings().max_examples // 2)
def test_whatever_a_model_writes_as_arguments_can_be_asked_and_recorded_again(written: Any) -> None:
    call = made_call("c1", "search", written)
    request = kt.ModelRequest([kt.Message.assistant("", [call]), kt.Message.tool("c1", "ok")])
    assert made_call("c1", "search", arguments_text(call) or None).arguments == call.arguments
    assert prompt_bound(request) > len(arguments_text(call).encode())
    assert list(conversation(request.messages))


# ---------------------------------------------------------------- through pydantic-ai


async def test_tools_are_offered_as_plain_json() -> None:
    model, asked = provider(TextPart("ok"))
    await model.complete(kt.ModelRequest(TALK, [SEARCH, ToolSpec("now")]))
    search, now = asked[0][1].function_tools
    assert (search.name, search.description) == ("search", "Search the web.")
    assert search.parameters_json_schema["required"] == ["q"], "lists, where values have tuples"
    assert (now.description, now.parameters_json_schema) == (None, {"type": "object", "properties": {}})


async def test_a_conversation_about_tools_is_told_in_their_words() -> None:
    model, asked = provider(TextPart("ok"))
    await model.complete(kt.ModelRequest([*TALK, kt.Message.user("And?")]))
    first, reply, results = asked[0][0]
    assert [type(part) for part in first.parts][1:] == [UserPromptPart]
    assert [
        (part.tool_name, part.args, part.tool_call_id) for part in reply.parts if isinstance(part, ToolCallPart)
    ] == [
        ("search", '{"q": "tides"}', "c1"),
        ("search", "tides, please", "c2"),
    ]
    assert len(reply.parts) == 2, "no empty text"
    returned = [part for part in results.parts if isinstance(part, ToolReturnPart)]
    assert [(part.tool_name, part.content, part.tool_call_id) for part in returned] == [
        ("search", "The moon.", "c1"),
        ("search", "It failed.", "c2"),
    ]
    assert isinstance(results.parts[-1], UserPromptPart)


async def test_a_result_of_a_call_nobody_made_is_refused() -> None:
    model, asked = provider(TextPart("ok"))
    with pytest.raises(ValueError, match="answers the call 'c9', which no message before it makes"):
        await model.complete(kt.ModelRequest([kt.Message.user("Hi"), kt.Message.tool("c9", "x")]))
    assert not asked


async def test_tool_calls_come_back_in_order_with_the_text_beside_them() -> None:
    calls = (
        ToolCallPart("search", '{"q": "x"}', "c1"),
        ToolCallPart("now", None, "c2"),
        ToolCallPart("now", "oops", "c3"),
    )
    model, _ = provider(TextPart("Let me look."), *calls, finish_reason="tool_call")
    reply = await model.complete(kt.ModelRequest(TALK, [SEARCH]))
    assert (reply.text, reply.finish_reason) == ("Let me look.", "stop")
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("c1", "search", {"q": "x"}),
        ("c2", "now", {}),
        ("c3", "now", "oops"),
    ]


async def test_tools_may_go_with_a_schema() -> None:
    model, asked = provider(TextPart("{}"))
    await model.complete(kt.ModelRequest(TALK, [SEARCH], {"type": "object", "required": ("a",)}))
    parameters = asked[0][1].model_request_parameters
    assert [tool.name for tool in parameters.function_tools] == ["search"]
    assert parameters.output_object is not None
    assert parameters.output_object.json_schema == {"type": "object", "required": ["a"]}


async def test_halves_of_characters_make_no_reply_useless() -> None:
    model, _ = provider(TextPart("so \ud83d"), ToolCallPart("sea\ud83d", "{}", "c\ud83d"))
    reply = await model.complete(kt.ModelRequest(TALK))
    assert (reply.text, reply.tool_calls[0].name, reply.tool_calls[0].id) == ("so ?", "sea?", "c?")
    assert prompt_bound(kt.ModelRequest([kt.Message.assistant(reply.text, reply.tool_calls)])) > 0


async def test_an_empty_reply_is_an_error() -> None:
    model, _ = provider()
    with pytest.raises(ModelCallError, match="its reply is empty"):
        await model.complete(kt.ModelRequest(TALK))


# ---------------------------------------------------------------- what is held


def test_the_bound_covers_tools_calls_and_results() -> None:
    plain = prompt_bound(kt.ModelRequest([kt.Message.user(""), kt.Message.assistant(""), kt.Message.user("")]))
    talk = [kt.Message.user(""), kt.Message.assistant("", ASKED[:1]), kt.Message.tool("c1", "The moon.")]
    said = len('c1search{"q": "tides"}') + len("c1The moon.")
    assert prompt_bound(kt.ModelRequest(talk)) >= plain + said
    offered = len("searchSearch the web.") + len(json.dumps(dict(SEARCH.parameters)))
    assert prompt_bound(kt.ModelRequest(talk, [SEARCH])) >= plain + said + offered


def test_the_bound_covers_schemas_that_are_escaped_on_their_way() -> None:
    schema = {"type": "object", "properties": {"größe": {"enum": ["große", "kleine"]}}}
    bound = prompt_bound(kt.ModelRequest([kt.Message.user("")], (), schema))
    assert bound >= len(json.dumps(schema))


async def test_providers_are_left_room_for_what_they_tell_the_model_of_tools() -> None:
    model, _ = provider()
    request = kt.ModelRequest(TALK)
    assert await model.count_tokens(request) == prompt_bound(request)
    request = kt.ModelRequest(TALK, [SEARCH])
    assert await model.count_tokens(request) == prompt_bound(request) + TOOL_PREAMBLE


# ---------------------------------------------------------------- the embedded model


def test_the_embedded_engine_is_asked_in_openais_shape() -> None:
    body = local._body(kt.ModelRequest(TALK, [SEARCH, ToolSpec("now")]))
    json.dumps(body)
    assert body["tools"][0]["function"]["parameters"]["required"] == ["q"]
    assert body["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert body["messages"][2]["tool_calls"][0] == {
        "id": "c1",
        "type": "function",
        "function": {"name": "search", "arguments": '{"q": "tides"}'},
    }
    assert body["messages"][3] == {"role": "tool", "content": "The moon.", "tool_call_id": "c1"}


def test_the_embedded_engines_calls_are_put_together_from_their_pieces() -> None:
    def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        return {"choices": [{"finish_reason": finish, "delta": delta}]}

    def piece(index: int, arguments: str, **more: str) -> list[dict[str, Any]]:
        name = {"name": more.pop("name")} if "name" in more else {}
        return [{"index": index, "function": {"arguments": arguments, **name}, **more}]

    reply = local._response(
        [
            chunk(content="Let me look."),
            chunk(tool_calls=piece(0, '{"q"', id="c1", name="search")),
            chunk(tool_calls=piece(0, ': "x"}')),
            chunk(tool_calls=piece(1, "oops", name="now")),
            chunk("tool_calls"),
        ],
        "m",
    )
    assert (reply.text, reply.finish_reason, reply.usage) == ("Let me look.", "stop", None)
    assert tuple(reply.tool_calls) == (
        kt.ToolCall("c1", "search", {"q": "x"}),
        kt.ToolCall("call-1", "now", "oops"),
    )


@pytest.mark.local_model
async def test_the_embedded_model_takes_tools_and_reads_their_results() -> None:
    talk = [*TALK[1:3], kt.Message.tool("c1", "The moon and the sun pull at the sea."), kt.Message.tool("c2", "-")]
    request = kt.ModelRequest(talk, [SEARCH], max_tokens=12, settings={"temperature": 0})
    reply = await local.LocalModel().complete(request)
    assert reply.text.strip()
    assert reply.usage is not None
    assert await local.LocalModel().count_tokens(request) == reply.usage.prompt_tokens
    without = kt.ModelRequest(TALK[1:2], max_tokens=1)
    assert await local.LocalModel().count_tokens(without) < reply.usage.prompt_tokens


@pytest.mark.local_model
async def test_the_embedded_model_keeps_to_a_schema_beside_tools() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 10}}, "required": ["a"]}
    request = kt.ModelRequest(TALK[1:2], [SEARCH], schema, 60, {"temperature": 0})
    assert set(json.loads((await local.LocalModel().complete(request)).text)) == {"a"}


@pytest.mark.local_model
async def test_an_engine_that_breaks_off_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local._Engine, "chat", lambda *_: [{"choices": []}])
    with pytest.raises(ModelCallError, match="broke off before its reply was complete"):
        await local.LocalModel().complete(kt.ModelRequest(TALK[1:2]))
