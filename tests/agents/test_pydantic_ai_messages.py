"""What pydantic-ai says to models, as text and back: nothing is lost, and only what changed is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import messages as native
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

import kairo_team as kt
from kairo_team._util.frozen import thaw
from kairo_team._util.late_pydantic import adapter
from kairo_team.agents.pydantic_ai_messages import NativeRequest, ReplyView, RequestView, conversation
from kairo_team.governance import ModelInput, ModelOutput
from kairo_team.messages import Message, ToolCall

PICTURE = native.BinaryContent(b"\x89PNG", media_type="image/png")
OUTPUT = ToolDefinition(name="final_result", parameters_json_schema={"type": "object", "properties": {}})
PARAMETERS = ModelRequestParameters(
    function_tools=[ToolDefinition(name="look", description="Look.")],
    output_tools=[OUTPUT],
    instruction_parts=[native.InstructionPart("Be kind.")],
)

few = settings(max_examples=settings().max_examples * 3 // 10)
texts = st.text(max_size=20)
arguments = st.one_of(
    st.dictionaries(texts, st.one_of(st.integers(), texts, st.lists(st.booleans()))), st.just("{not json"), st.none()
)
tool_calls: st.SearchStrategy[native.ToolCallPart] = st.builds(
    native.ToolCallPart, st.sampled_from(["look", "other"]), arguments, st.uuids().map(str)
)
requests = st.lists(
    st.one_of(
        st.builds(native.SystemPromptPart, texts),
        st.builds(native.UserPromptPart, texts),
        st.builds(native.UserPromptPart, st.lists(st.one_of(texts, st.just(PICTURE)), min_size=1)),
        st.builds(native.ToolReturnPart, st.just("look"), st.one_of(texts, st.lists(st.integers())), st.just("c1")),
    ),
    min_size=1,
).map(native.ModelRequest)
replies = st.lists(
    st.one_of(st.builds(native.TextPart, texts), tool_calls, st.builds(native.ThinkingPart, texts)), min_size=1
).map(native.ModelResponse)
conversations = st.lists(st.one_of(requests, replies), max_size=5)


def said(*messages: native.ModelMessage, **settings: Any) -> NativeRequest:
    return NativeRequest(list(messages), settings, PARAMETERS)


def mapped(request: kt.ModelRequest, function: Callable[[str], str]) -> kt.ModelRequest:
    return replace(request, messages=ModelInput(request.messages).map_text(function).messages)


@few
@given(conversations)
def test_what_nobody_changed_is_sent_as_it_was(messages: list[native.ModelMessage]) -> None:
    asked = NativeRequest(messages, {"temperature": 0.5, "timeout": object()}, PARAMETERS)
    view = RequestView(asked)
    back = view.native(replace(view.request, max_tokens=7))
    assert back.messages is messages
    assert back.parameters is PARAMETERS
    assert back.settings == {**asked.settings, "max_tokens": 7}


@few
@given(conversations)
def test_a_request_can_be_recorded_and_is_bounded_by_its_text(messages: list[native.ModelMessage]) -> None:
    request = RequestView(NativeRequest(messages, {"extra_body": {"a": [1]}, "timeout": object()}, PARAMETERS)).request
    assert adapter(kt.ModelRequest).validate_json(adapter(kt.ModelRequest).dump_json(request)) == request
    assert thaw(request.settings) == {"extra_body": {"a": [1]}}
    assert [tool.name for tool in request.tools] == ["look", "final_result"]


@few
@given(conversations, texts)
def test_a_word_that_a_guardrail_replaces_is_replaced_and_nothing_else(
    messages: list[native.ModelMessage], word: str
) -> None:
    """Masking every text leaves as many messages, each of its kind, and nothing of what was said."""
    view = RequestView(NativeRequest(messages, {}, PARAMETERS))
    changed = mapped(view.request, lambda text: f"{word}!" if text else text)
    back = view.native(changed)
    again = RequestView(back).request
    assert [m.role for m in again.messages] == [m.role for m in view.request.messages]
    assert [m.text for m in again.messages] == [m.text for m in changed.messages]
    assert view.others == RequestView(back).others


@few
@given(replies, texts)
def test_a_reply_that_a_guardrail_changed_says_what_it_said(reply: native.ModelResponse, word: str) -> None:
    view = ReplyView(PARAMETERS)
    response = view.response(reply)
    assert view.native(response, reply) is reply
    changed = ModelOutput(response).map_text(lambda text: f"{word}!" if text else text).response
    back = view.response(view.native(changed, reply))
    assert (back.text, back.tool_calls) == (changed.text, changed.tool_calls)


@few
@given(replies)
def test_a_recorded_reply_is_made_anew(reply: native.ModelResponse) -> None:
    view = ReplyView(PARAMETERS)
    response = view.response(reply)
    back = view.response(view.native(response, None))
    assert (back.text, back.tool_calls) == (response.text, response.tool_calls)


def test_messages_can_be_put_in_and_taken_out() -> None:
    call = native.ToolCallPart("look", {"text": "x"}, "c1")
    asked = said(
        native.ModelRequest([native.UserPromptPart(["hello", PICTURE])]),
        native.ModelResponse([native.ThinkingPart("hm"), native.TextPart("looking"), call]),
        native.ModelRequest([native.ToolReturnPart("look", {"a": 1}, "c1")]),
    )
    view = RequestView(asked)
    instructions, hello, looking, result = view.request.messages
    added = [Message.system("Beware."), Message.user("more"), Message.assistant("sure", [ToolCall("c2", "look", "{")])]
    back = view.native(replace(view.request, messages=[hello, *added, Message.tool("c2", "none"), looking, result]))
    assert back.parameters.instruction_parts == []
    first, reply, middle, same, last = back.messages
    assert isinstance(first, native.ModelRequest)
    assert [type(part).__name__ for part in first.parts] == ["UserPromptPart", "SystemPromptPart", "UserPromptPart"]
    assert first.parts[0] is asked.messages[0].parts[0]
    assert same is asked.messages[1]
    assert last.parts[0] is asked.messages[2].parts[0]
    assert conversation(back.messages)[3:5] == (added[2], Message.tool("c2", "none"))
    assert isinstance(reply, native.ModelResponse)
    assert isinstance(middle, native.ModelRequest)
    assert instructions == Message.system("Be kind.")


def test_changed_settings_are_sent_and_what_is_no_json_stays() -> None:
    client = object()
    view = RequestView(said(temperature=0.5, seed=1, timeout=client))
    back = view.native(replace(view.request, settings={"temperature": 0.0}, max_tokens=9))
    assert back.settings == {"temperature": 0.0, "timeout": client, "max_tokens": 9}


def test_a_schema_is_part_of_the_request() -> None:
    output = OutputObjectDefinition(json_schema={"type": "object"}, name="reply")
    parameters = replace(PARAMETERS, output_mode="native", output_object=output)
    assert RequestView(NativeRequest([], {}, parameters)).request.output_schema == {"type": "object"}


def test_instructions_of_a_request_are_said_where_the_call_has_none_of_its_own() -> None:
    messages: list[native.ModelMessage] = [
        native.ModelRequest([native.UserPromptPart("a")], instructions="old"),
        native.ModelRequest([native.UserPromptPart("b")], instructions="new"),
    ]
    view = RequestView(NativeRequest(messages, {}, ModelRequestParameters()))
    assert [message.text for message in view.request.messages] == ["new", "a", "b"]
    back = view.native(mapped(view.request, lambda text: text.replace("new", "newer")))
    assert back.parameters.instruction_parts == [native.InstructionPart("newer")]


def test_an_answer_by_an_output_tool_is_the_replys_text() -> None:
    view = ReplyView(PARAMETERS)
    call = native.ToolCallPart("final_result", {"town": "Bonn"}, "c1")
    second = native.ToolCallPart("final_result", {"town": "Ulm"}, "c2")
    reply = native.ModelResponse([native.TextPart("well,"), call])
    response = view.response(reply)
    assert response.text == '{"town":"Bonn"}'
    assert [c.name for c in response.tool_calls] == ["final_result"]

    changed = view.native(replace(response, text='{"town":"Köln"}'), reply)
    (only,) = changed.parts
    assert isinstance(only, native.ToolCallPart)
    assert (only.args_as_dict(), only.tool_call_id) == ({"town": "Köln"}, "c1")

    both = native.ModelResponse([call, second])
    assert view.response(both).text == '{"town":"Bonn"}\n{"town":"Ulm"}'
    merged = view.native(replace(view.response(both), text='{"town":"Berlin"}'), both)
    assert [part.args for part in merged.parts if isinstance(part, native.ToolCallPart)] == ['{"town":"Berlin"}']


def test_usage_price_and_end_of_a_reply_are_told() -> None:
    usage = RequestUsage(input_tokens=10, output_tokens=5, cache_read_tokens=4)
    reply = native.ModelResponse(
        [native.TextPart("x")],
        usage=usage,
        model_name="m",
        finish_reason="length",
        provider_details={"service_tier": "flex", "n": 1},
    )
    response = ReplyView(PARAMETERS).response(reply)
    assert response.usage == kt.Usage(10, 5)
    assert (response.model, response.finish_reason) == ("m", "length")
    assert response.billing.cached_tokens == 4
    assert dict(response.billing.served) == {"service_tier": "flex"}
    assert ReplyView(PARAMETERS).response(native.ModelResponse([])).usage is None


@pytest.mark.parametrize(
    "part",
    [
        native.RetryFeedbackPart("again", retry=native.RetryInfo(cause="model_retry")),
        native.ToolAvailabilityDeltaPart(tools_added=["look"]),
    ],
)
def test_parts_of_other_kinds_are_said_in_some_way(part: Any) -> None:
    asked = said(native.ModelRequest([part]))
    view = RequestView(asked)
    assert "again" in view.request.messages[1].text or "look" in view.request.messages[1].text
    assert view.native(view.request).messages is asked.messages
    back = view.native(mapped(view.request, lambda text: "***"))
    assert conversation(back.messages) == (Message.user("***"),)
