"""What LangChain says, in the library's words, and back."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="the extra `langgraph` is not installed")

from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage

import kairo_team as kt
from kairo_team.agents.langgraph_views import message_view, native_reply, response_view, tool_name, view, with_text
from kairo_team.messages import Billing

USED: Any = {
    "input_tokens": 100,
    "output_tokens": 20,
    "total_tokens": 120,
    "input_token_details": {"cache_read": 60, "cache_creation": 5},
}
CALL: Any = {"name": "look", "args": {"at": ["x"]}, "id": "1", "type": "tool_call"}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (SystemMessage("be brief"), kt.Message.system("be brief")),
        (HumanMessage([{"type": "text", "text": "a"}, "b", {"type": "image", "url": "u"}]), kt.Message.user("ab")),
        (ChatMessage(content="hm", role="critic"), kt.Message.user("hm")),
        (ToolMessage("seen", tool_call_id="1"), kt.Message.tool("1", "seen")),
        (AIMessage("", tool_calls=[CALL]), kt.Message.assistant("", [kt.ToolCall("1", "look", {"at": ["x"]})])),
    ],
)
def test_a_message_is_shown(message: Any, shown: kt.Message) -> None:
    assert message_view(message) == shown


def test_arguments_that_json_cannot_hold_are_shown_as_text() -> None:
    odd = AIMessage("", tool_calls=[{**CALL, "args": {"at": object}, "id": None}])
    (call,) = message_view(odd).tool_calls
    assert (call.id, type(call.arguments)) == ("", str)


@pytest.mark.parametrize(
    ("metadata", "finish"),
    [
        ({}, "stop"),
        ({"finish_reason": "stop"}, "stop"),
        ({"finish_reason": "length"}, "length"),
        ({"stop_reason": "max_tokens"}, "length"),
        ({"finish_reason": "MAX_TOKENS"}, "length"),
        ({"done_reason": "length"}, "length"),
        ({"finish_reason": "content_filter"}, "content_filter"),
        ({"finish_reason": "SAFETY"}, "content_filter"),
    ],
)
def test_why_a_reply_ended_is_told_in_one_word(metadata: dict[str, str], finish: str) -> None:
    assert response_view(AIMessage("x", response_metadata=metadata)).finish_reason == finish


def test_usage_is_what_the_reply_says() -> None:
    shown = response_view(AIMessage("x", usage_metadata=USED, response_metadata={"model_name": "m"}))
    assert (shown.usage, shown.billing, shown.model) == (kt.Usage(100, 20), Billing(60, 5), "m")
    assert response_view(AIMessage("x")).usage is None
    assert response_view(
        AIMessage("x"), {"token_usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    ).usage == kt.Usage(3, 2)


def test_a_call_is_shown_with_its_name_its_limit_its_tools_and_its_settings() -> None:
    said = {"ls_provider": "google_genai", "ls_model_name": "gemini", "ls_max_tokens": 70}
    look: dict[str, Any] = {
        "name": "look",
        "description": "Look.",
        "input_schema": {"type": "object", "properties": {}},
    }
    shown = view([HumanMessage("hi")], said, {"temperature": 0.5, "client": object(), "tools": [look, {"type": "odd"}]})
    assert shown.name == "google:gemini"
    assert shown.request.max_tokens == 70
    assert shown.request.settings == {"temperature": 0.5}
    assert [spec.name for spec in shown.request.tools] == ["look", "other"]
    assert tool_name({"type": "odd"}) is None
    assert view([], {}, {}).name == "langchain:model"


def test_a_recorded_reply_becomes_a_message_again() -> None:
    usage = kt.Usage(100, 20)
    response = kt.ModelResponse("text", [kt.ToolCall("1", "look", {"at": ["x"]})], usage, "m", "length")
    message = native_reply(response, None)
    assert (message.text, message.tool_calls) == ("text", [CALL])
    assert response_view(message) == response
    assert native_reply(kt.ModelResponse("text"), None).usage_metadata is None


def test_what_was_changed_of_a_reply_is_changed_and_nothing_else() -> None:
    reply = AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "old"}], tool_calls=[CALL])
    same = response_view(reply)
    assert native_reply(same, reply) is reply
    changed = native_reply(kt.ModelResponse("new"), reply)
    assert (changed.text, changed.tool_calls) == ("new", [])
    assert {"type": "thinking", "thinking": "hm"} in changed.content
    assert with_text(HumanMessage("a"), "b").content == "b"


def test_arguments_that_are_text_become_an_object() -> None:
    message = native_reply(kt.ModelResponse("", [kt.ToolCall("1", "look", "not json")]), None)
    assert message.tool_calls[0]["args"] == {"input": "not json"}


def test_a_picture_at_an_address_is_held_as_the_largest() -> None:
    message = HumanMessage([{"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}])
    assert view([message], {"ls_provider": "openai", "ls_model_name": "gpt-5"}, {}).beyond > 50_000
