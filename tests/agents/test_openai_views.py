"""The agents library's conversations in plain words and back again: nothing is lost, and changes arrive."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

from agents import Agent, ModelResponse, ModelSettings, Usage, function_tool, handoff
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputRefusal

import kairo_team as kt
from kairo_team.agents.openai_models import model_name
from kairo_team.agents.openai_views import NativeCall, message_of, read_arguments, rebuilt, reply_view
from tests.agents.openai_double import Scripted, ask, say

PICTURE = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 90_000}
ITEMS: list[tuple[dict[str, Any], kt.Message]] = [
    ({"role": "user", "content": "hi"}, kt.Message.user("hi")),
    ({"role": "developer", "content": "obey"}, kt.Message.system("obey")),
    ({"role": "user", "content": [{"type": "input_text", "text": "see"}, PICTURE]}, kt.Message.user("see")),
    (
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        kt.Message.assistant("a"),
    ),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]},
        kt.Message.assistant("I will not"),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": 1}'},
        kt.Message.assistant("", [kt.ToolCall("c", "f", {"x": 1})]),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "no json"},
        kt.Message.assistant("", [kt.ToolCall("c", "f", "no json")]),
    ),
    ({"type": "function_call_output", "call_id": "c", "output": "r"}, kt.Message.tool("c", "r")),
    (
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r"}]},
        kt.Message.tool("c", "r"),
    ),
    (
        {"type": "reasoning", "id": "r", "summary": []},
        kt.Message.assistant('{"type": "reasoning", "id": "r", "summary": []}'),
    ),
]


def call(items: Any, **settings: Any) -> NativeCall:
    return NativeCall(
        system_instructions="be good",
        input=items,
        model_settings=ModelSettings(**settings),
        tools=[],
        output_schema=None,
        handoffs=[],
        tracing=None,
        previous_response_id=None,
        conversation_id=None,
        prompt=None,
    )


@pytest.mark.parametrize(("item", "message"), ITEMS)
def test_an_item_is_shown_as_a_message(item: dict[str, Any], message: kt.Message) -> None:
    assert message_of(item) == message


def test_what_nobody_changed_reaches_the_model_as_it_was() -> None:
    made = call([item for item, _ in ITEMS])
    view = made.view()
    assert made.under(view, view).input is made.input


@given(st.integers(0, len(ITEMS)), st.text(min_size=1))
def test_a_changed_message_changes_its_item_and_no_other(place: int, text: str) -> None:
    items = [item for item, _ in ITEMS]
    made = call(items)
    view = made.view()
    messages = list(view.messages)
    messages[place] = replace(messages[place], text=text)
    now = made.under(replace(view, messages=messages), view)
    again = now.view().messages
    if place > 0 and items[place - 1].get("type") == "function_call":
        assert again == view.messages
        return
    kept = [(new, old) for i, (new, old) in enumerate(zip(now.input, items, strict=True)) if i != place - 1]
    assert all(new is old for new, old in kept)
    assert text in again[place].text or read_arguments(text) is not None


def test_a_changed_picture_text_leaves_the_picture() -> None:
    made = call([ITEMS[2][0]])
    view = made.view()
    now = made.under(replace(view, messages=[view.messages[0], kt.Message.user("look away")]), view)
    assert now.input == [{"role": "user", "content": [{"type": "input_text", "text": "look away"}, PICTURE]}]


def test_messages_that_come_and_go_come_and_go() -> None:
    made = call([item for item, _ in ITEMS[:1] + ITEMS[5:6]])
    view = made.view()
    system, said, asked = view.messages
    extra = kt.Message.assistant("more", [kt.ToolCall("d", "g", {"y": 2})])
    for messages, instructions, kinds in (
        ([said], None, ["user"]),
        ([kt.Message.system("first"), system, asked], "first\n\nbe good", ["function_call"]),
        (
            [system, said, extra, kt.Message.tool("d", "r")],
            "be good",
            ["user", "assistant", "function_call", "function_call_output"],
        ),
    ):
        now = made.under(replace(view, messages=messages), view)
        assert now.system_instructions == instructions
        assert [item.get("type", item.get("role")) for item in now.items] == kinds


def test_pictures_and_files_are_bounded_beside_the_text() -> None:
    assert call([{"role": "user", "content": [PICTURE]}]).media("openai:m") >= 50_000, "its size is not known"
    assert call("just text").media("openai:m") == 0


def test_tools_handoffs_and_the_schema_are_part_of_the_view() -> None:
    @function_tool
    async def look(at: str) -> str:
        """See."""
        return at

    made = replace(call("x"), tools=[look], handoffs=[handoff(Agent("b"))])
    tools = made.view().tools
    assert [(tool.name, tool.description[:3]) for tool in tools] == [("look", "See"), ("transfer_to_b", "Han")]
    assert "at" in tools[0].parameters["properties"]


def test_settings_are_told_changed_and_capped() -> None:
    extra = {"seed": 1, "n": 4, "max_output_tokens": 900, "prompt_cache_key": "random"}
    made = call("x", temperature=0.5, max_tokens=50, extra_args=extra)
    view = made.view()
    assert view.max_tokens == 50
    assert view.settings == {"temperature": 0.5, "seed": 1, "n": 4, "max_output_tokens": 900}
    changed = replace(view, max_tokens=7, settings={"temperature": 0.1, "n": 4, "max_output_tokens": 900})
    settings = made.under(changed, view).model_settings
    assert (settings.max_tokens, settings.temperature) == (7, 0.1)
    assert settings.extra_args == {"n": 1, "max_output_tokens": 7, "prompt_cache_key": "random"}


@pytest.mark.parametrize("text", ["{", "[1]", "1", "null", "NaN", '{"a": NaN}', "[" * 100_000, '{"a":' * 100_000])
def test_what_is_no_json_object_is_none(text: str) -> None:
    assert read_arguments(text) is None


# ---------------------------------------------------------------- replies


def reply(*output: Any, usage: Usage | None = None) -> ModelResponse:
    return ModelResponse(list(output), usage or Usage(1, 10, output_tokens=5), "id")


def test_a_reply_is_shown_with_its_calls_and_usage() -> None:
    asked = ask("f", x=1).model_copy(update={"call_id": "c"})
    view = reply_view(reply(say("one "), say("two"), asked), None)
    assert (view.text, view.finish_reason, view.usage) == ("one two", "stop", kt.Usage(10, 5))
    assert list(view.tool_calls) == [kt.ToolCall("c", "f", {"x": 1})]


def test_a_reply_that_was_cut_or_refused_says_so() -> None:
    cut = say("half").model_copy(update={"status": "incomplete"})
    refusal = ResponseOutputRefusal(type="refusal", refusal="no")
    refused = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[refusal])
    assert reply_view(reply(cut), None).finish_reason == "length"
    assert reply_view(reply(say("x")), 5).finish_reason == "length"
    assert reply_view(reply(say("x")), 6).finish_reason == "stop"
    assert (reply_view(reply(refused), None).finish_reason, reply_view(reply(refused), None).text) == (
        "content_filter",
        "no",
    )
    assert reply_view(reply(usage=Usage()), None).usage is None


def test_an_unchanged_reply_is_the_models_own() -> None:
    asked = ask("f", '{ "x":1}').model_copy(update={"call_id": "c"})
    theirs = reply(say("a"), asked)
    view = reply_view(theirs, None)
    back = rebuilt(theirs, view, view)
    assert back.output == theirs.output
    assert back.output[1] is asked


def test_changed_text_and_calls_reach_the_library() -> None:
    first, second = (ask("f", x=n).model_copy(update={"call_id": str(n)}) for n in (1, 2))
    theirs = reply(say("a"), first, second)
    view = reply_view(theirs, None)
    now = replace(view, text="b", tool_calls=[kt.ToolCall("2", "f", {"x": 3})])
    said, call_left = rebuilt(theirs, view, now).output
    assert isinstance(said, ResponseOutputMessage)
    assert isinstance(call_left, ResponseFunctionToolCall)
    assert (reply_view(reply(said), None).text, json.loads(call_left.arguments)) == ("b", {"x": 3})


def test_a_recorded_reply_is_made_anew() -> None:
    recorded = kt.ModelResponse("a", [kt.ToolCall("c", "f", {"x": 1})], kt.Usage(3, 4))
    back = rebuilt(None, None, recorded)
    assert reply_view(back, None) == recorded
    assert (back.usage.input_tokens, back.usage.output_tokens) == (3, 4)


def test_a_model_is_named_by_what_it_says_of_itself() -> None:
    class LitellmModel(Scripted): ...

    class Nameless(Scripted): ...

    assert model_name(Scripted([], model="gpt-5-mini")) == "openai:gpt-5-mini"
    assert model_name(LitellmModel([], model="anthropic/claude")) == "anthropic:claude"
    assert model_name(Nameless([], model="")) == "openai:Nameless"
