"""What guardrails are shown and may answer: every text can be read and put back, every bad value is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.governance import (
    GuardrailAction,
    GuardrailContext,
    GuardrailDecision,
    GuardrailOutcome,
    GuardrailPhase,
    GuardrailRuling,
    ModelInput,
    ModelOutput,
    ToolInput,
    ToolOutput,
)
from kairo_team.guardrails import BETWEEN_MESSAGES
from tests.governance.guardrail_doubles import (
    ASKED,
    CALL,
    CALLING,
    FINE,
    PAYLOADS,
    REPLIED,
    RETURNED,
    about,
    each_payload,
)

ALLOW, DENY, MODIFY, WARN = GuardrailAction
PRE_MODEL, POST_MODEL, PRE_TOOL, POST_TOOL = GuardrailPhase


@pytest.mark.parametrize(
    ("payload", "phase", "text", "texts"),
    [
        (
            ASKED,
            PRE_MODEL,
            f"be kind{BETWEEN_MESSAGES}hello{BETWEEN_MESSAGES}",
            ("be kind", "hello", "", "to", "bob", "pages", "3", "five", "urgent", "cc"),
        ),
        (REPLIED, POST_MODEL, "hi", ("hi", "to", "bob", "pages", "3", "five", "urgent", "cc")),
        (CALLING, PRE_TOOL, '{"to": "bob", "pages": [3, "five"]}', ("to", "bob", "pages", "3", "five")),
        (RETURNED, POST_TOOL, '{"sent": ["bob"], "pages": 8}', ("sent", "bob", "pages", "8")),
        (ToolOutput("send", "all {well}"), POST_TOOL, "all {well}", ("all {well}",)),
        (ToolOutput("send", None), POST_TOOL, "null", ()),
        (ToolOutput("send", "grüße"), POST_TOOL, "grüße", ("grüße",)),
        (ToolInput("send", {"an": "Jürgen"}), PRE_TOOL, '{"an": "Jürgen"}', ("an", "Jürgen")),
        (ModelInput([]), PRE_MODEL, "", ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_payload_says_when_it_is_looked_at_and_all_that_is_said(
    payload: Any, phase: GuardrailPhase, text: str, texts: tuple[str, ...]
) -> None:
    assert (payload.phase, payload.text, payload.texts) == (phase, text, texts)


@each_payload
def test_a_text_that_is_put_back_unchanged_changes_nothing(payload: Any) -> None:
    back = payload.with_text(payload.text)
    assert back.text == payload.text
    assert payload.map_text(lambda piece: piece) is payload
    if not isinstance(payload, ToolOutput):
        assert back == payload


def test_with_text_gives_each_message_its_own_piece() -> None:
    changed = ASKED.with_text(ASKED.text.replace("hello", "bye"))
    assert [message.text for message in changed.messages] == ["be kind", "bye", ""]
    assert changed.messages[2].tool_calls == (CALL,)
    assert changed.settings == ASKED.settings
    assert ModelInput([kt.Message.user("a")]).with_text("b") == ModelInput([kt.Message.user("b")])


@pytest.mark.parametrize("text", ["one text for three", BETWEEN_MESSAGES.join("abcd"), ""])
def test_a_text_that_is_not_as_many_pieces_as_messages_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"pieces for 3 messages: keep the separators .*use map_text"):
        ASKED.with_text(text)


def test_with_text_keeps_a_replys_tool_calls_and_usage() -> None:
    changed = REPLIED.with_text("bye").response
    assert (changed.text, changed.tool_calls, changed.usage) == ("bye", (CALL,), REPLIED.response.usage)


def test_with_text_reads_arguments_back_from_json() -> None:
    assert CALLING.with_text('{"to": "eve"}') == ToolInput("send", {"to": "eve"})
    for text in ("to eve", "[1]", '"to"', "{", '{"to": NaN}', "[" * 100_000):
        with pytest.raises(ValueError, match=r"JSON|Expecting|double quotes|too deeply"):
            CALLING.with_text(text)


def test_map_text_reaches_every_string_and_number_and_keeps_the_rest() -> None:
    def shout(piece: str) -> str:
        return "SEVEN" if piece == "3" else piece.upper()

    changed = REPLIED.map_text(shout).response
    assert changed.text == "HI"
    assert changed.tool_calls[0].arguments == {"TO": "BOB", "PAGES": ("SEVEN", "FIVE"), "URGENT": True, "CC": None}
    assert (changed.tool_calls[0].id, changed.tool_calls[0].name, changed.model) == ("1", "send", "m")
    assert ASKED.map_text(shout).messages[2].tool_calls[0].arguments["TO"] == "BOB"  # type: ignore[index]  # a mapping
    assert RETURNED.map_text(shout).result == {"SENT": ("BOB",), "PAGES": 8}
    half = kt.ToolCall("2", "send", '{"to": "bob')
    assert ModelOutput(kt.ModelResponse("", [half])).map_text(shout).response.tool_calls[0].arguments == '{"TO": "BOB'


def test_names_that_become_the_same_lose_nothing() -> None:
    result = {"a@x": 1, "b@x": 2, "[E] 2": 3, "c@x": 4}
    changed = ToolOutput("t", result).map_text(lambda piece: "[E]" if "@" in piece else piece)
    assert changed.result == {"[E]": 1, "[E] 2": 2, "[E] 2 2": 3, "[E] 3": 4}
    many = ToolOutput("t", {f"{n}@x": n for n in range(20_000)}).map_text(
        lambda piece: "[E]" if "@" in piece else piece
    )
    assert sorted(many.result.values()) == list(range(20_000))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@settings(max_examples=settings().max_examples // 2)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_any_json_can_be_looked_at_and_comes_back_as_it_was(arguments: dict[str, Any]) -> None:
    payload = ToolInput("t", arguments)
    assert payload.with_text(payload.text) == payload
    assert payload.map_text(lambda piece: piece) is payload
    assert json.loads(ToolOutput("t", arguments).text) == arguments
    assert not [piece for piece in payload.map_text(lambda _: "").texts if piece.strip(" 0123456789")]


def test_results_of_other_types_become_json() -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    odd: Any = {1: Point(2), "when": {3}, "what": object}
    assert ToolOutput("t", odd).result["1"] == {"x": 2}
    assert "class" in ToolOutput("t", odd).text


TEXT: Any = "text"
FIVE: Any = 5
NONE: Any = None


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelInput([TEXT]), "ModelInput.messages must be Message objects, not 'text'"),
        (lambda: ModelInput([], FIVE), "ModelInput.settings must be a mapping, not 5"),
        (lambda: ModelOutput(TEXT), "ModelOutput.response must be a ModelResponse, not 'text'"),
        (lambda: ModelOutput(NONE), "ModelOutput.response must be a ModelResponse, not None"),
        (lambda: ToolInput("", {}), "ToolInput.name must be the tool's name, not ''"),
        (lambda: ToolInput("t", FIVE), "ToolInput.arguments must be a mapping, not"),
        (lambda: ToolInput("t", {"x": object()}), "must be made of JSON values"),
        (lambda: ToolInput("t", {"x": deep(10_000)}), "ToolInput.arguments is nested too deeply"),
        (lambda: ToolOutput("t", deep(10_000)), "too deeply|[Cc]ircular"),
        (lambda: ToolOutput(NONE, "x"), "ToolOutput.name must be"),
        (lambda: GuardrailContext(PRE_TOOL, None, "t", ASKED), "a ModelInput is looked at in .*pre_model.*, not in"),
        (lambda: GuardrailContext(TEXT, None, "t", ASKED), "not in 'text'"),
        (lambda: GuardrailContext(PRE_TOOL, None, "t", TEXT), "payload must be a ModelInput, .*'text'"),
        (lambda: GuardrailDecision.deny("  "), "to deny needs a reason in words, not '  '"),
        (lambda: GuardrailDecision.warn(""), "to warn needs a reason in words, not ''"),
        (lambda: GuardrailDecision.warn(NONE), "to warn needs a reason in words, not None"),
        (lambda: GuardrailDecision.modify("\n", ASKED), "to modify needs a reason in words"),
        (lambda: GuardrailDecision.modify("why", NONE), "a modification puts in place must be .* not None"),
        (lambda: GuardrailDecision.modify("why", TEXT), "what a modification puts in place must be .* not 'text'"),
        (lambda: GuardrailDecision(DENY, "no", ASKED), "only a modification has a payload"),
        (lambda: GuardrailDecision(TEXT, "no"), "must be one of 'allow', 'deny', 'modify', 'warn', not 'text'"),
    ],
)  # fmt: skip
def test_values_are_checked_where_they_are_built(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "value", [*PAYLOADS, about(ASKED), FINE, GuardrailRuling("a", FINE)], ids=lambda v: type(v).__name__
)
def test_values_are_frozen_can_be_replaced_and_hashed(value: Any) -> None:
    field = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, getattr(value, field))
    assert dataclasses.replace(value) == value
    assert hash(value) == hash(dataclasses.replace(value))


def test_what_is_handed_in_is_copied_read_only() -> None:
    arguments, metadata = {"rows": [1]}, {"run_id": "r"}
    context = about(ToolInput("t", arguments), **metadata)
    arguments["rows"].append(2)
    assert context.payload.text == '{"rows": [1]}'
    with pytest.raises(TypeError, match="part of a frozen value"):
        context.metadata["run_id"] = 1  # type: ignore[index]  # the mistake is the point


def test_an_outcome_is_read_only_and_compares_by_what_it_says() -> None:
    outcome = GuardrailOutcome(ASKED, [GuardrailRuling("a", FINE)])
    with pytest.raises(AttributeError):
        outcome.payload = RETURNED  # type: ignore[misc]  # the mistake is the point
    assert outcome == GuardrailOutcome(ASKED, (GuardrailRuling("a", FINE),))
    assert hash(outcome) == hash(GuardrailOutcome(ASKED, outcome.trail))
    assert outcome != GuardrailOutcome(ASKED)
    assert outcome != "allow"
    assert repr(outcome).startswith("GuardrailOutcome(<GuardrailAction.ALLOW: 'allow'>, ModelInput(")
