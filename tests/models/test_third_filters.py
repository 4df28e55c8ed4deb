"""What filters cut or refused, streams that break off, errors under status 200, through real client libraries."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic_ai.messages import PartDeltaEvent, TextPartDelta

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import ModelCallError
from kairo_team.models.provider_messages import Pieces
from kairo_team.models.readings import finish_of_word, kind_of_code, without_thoughts
from kairo_team.testing import ScriptedModel
from tests.models.provider_wires import chunk, completion, events, exchanges, model_of

pytestmark = pytest.mark.anyio

on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""OpenAI's library leaves the generators of a stream to the garbage collector, of which trio warns."""
ASK: Final = kt.ModelRequest([kt.Message.user("Hello")], max_tokens=40)
CLAUDE: Final[dict[str, Any]] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "c",
    "content": [],
    "stop_reason": "refusal",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 1},
}
RESPONSE: Final[dict[str, Any]] = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 5,
        "output_tokens": 2,
        "total_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}


def said(status: str, *content: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": "m", "role": "assistant", "status": status, "content": content}


GEMINI_USAGE: Final = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
REFUSED: dict[str, tuple[str, int, Any, str]] = {
    "a refusal of OpenAI's": ("openai-chat", 200, completion(refusal="I can't help with that."), "I can't help"),
    "a reply that OpenAI's filter cut": ("openai-chat", 200, completion("content_filter", content="half"), "half"),
    "a prompt that Azure's filter refused": (
        "azure",
        400,
        {"error": {"message": "The prompt was filtered.", "code": "content_filter", "status": 400, "innererror": {}}},
        "",
    ),
    "a code under status 400": (
        "openai-chat",
        400,
        {"error": {"message": "Rejected by our safety system.", "code": "content_policy_violation", "type": None}},
        "Rejected by our safety system.",
    ),
    "a refusal of the Responses interface": (
        "openai-responses",
        200,
        {
            **RESPONSE,
            "status": "completed",
            "output": [said("completed", {"type": "refusal", "refusal": "I can't."})],
        },
        "I can't.",
    ),
    "an incomplete response": (
        "openai-responses",
        200,
        {
            **RESPONSE,
            "status": "incomplete",
            "incomplete_details": {"reason": "content_filter"},
            "output": [said("incomplete", {"type": "output_text", "text": "half", "annotations": []})],
        },
        "half",
    ),
    "a refusal of Anthropic's": ("anthropic-messages", 200, CLAUDE, ""),
    "a refusal after some text": (
        "anthropic-messages",
        200,
        {**CLAUDE, "content": [{"type": "text", "text": "So far"}]},
        "So far",
    ),
    "Anthropic's filter of outputs": (
        "anthropic-messages",
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
        },
        "Output blocked",
    ),
    "a prompt that Gemini refused": (
        "google-generate",
        200,
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 5}},
        "",
    ),
    "a reply that Gemini's filter cut": (
        "google-generate",
        200,
        {
            "candidates": [
                {"content": {"parts": [{"text": "half"}], "role": "model"}, "finishReason": "SAFETY", "index": 0}
            ],
            "usageMetadata": GEMINI_USAGE,
        },
        "half",
    ),
}
FORMS = pytest.mark.parametrize(("wire", "status", "reply", "words"), REFUSED.values(), ids=REFUSED)


@FORMS
async def test_third_o36_what_a_filter_cut_or_refused_is_no_whole_reply(
    wire: str, status: int, reply: Any, words: str
) -> None:
    model = model_of(wire, reply, status)
    if status == 400:
        with pytest.raises(ModelCallError) as caught:
            await model.complete(ASK)
        assert (caught.value.kind, caught.value.unspent) == ("content_filter", True)
        assert words in caught.value.why
    else:
        response = await model.complete(ASK)
        assert response.finish_reason == "content_filter"
        assert words in response.text
        assert response.usage is not None


@FORMS
async def test_third_o36_a_fallback_on_content_filter_asks_the_next_model(
    wire: str, status: int, reply: Any, words: str
) -> None:
    second = ScriptedModel(["Fine."], name="test:second")
    response = await kt.Fallback(model_of(wire, reply, status), second, on=["content_filter"]).complete(ASK)
    assert response.text == "Fine."
    with pytest.raises(ModelCallError) if status == 400 else nullcontext():
        await kt.Fallback(model_of(wire, reply, status), second).complete(ASK)
    assert len(second.calls) == 1


@FORMS
async def test_third_o36_an_agent_whose_model_refused_is_blocked_with_its_words(
    wire: str, status: int, reply: Any, words: str
) -> None:
    agent = kt.MiniAgent(model_of(wire, reply, status))
    result = await kt.run(kt.Team("team", [kt.Member("m", agent)]), "Explain it.")
    assert result.status is kt.TeamStatus.FAILED
    assert words in str(result.error or result.outcomes[0].error)


@pytest.mark.parametrize("word", ["SAFETY", "refusal", "content_filter", "guardrail_intervened", "RECITATION"])
def test_third_o36_one_reading_of_finish_reasons(word: str) -> None:
    assert finish_of_word(word) == "content_filter"
    assert finish_of_word("MAX_TOKENS") == finish_of_word("max_output_tokens") == "length"
    assert finish_of_word("end_turn") == finish_of_word("tool_calls") == finish_of_word(None) == "stop"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("context_length_exceeded", "context_length"),
        ("exceed_context_size_error", "context_length"),
        ("insufficient_quota", "auth"),
        ("RESOURCE_EXHAUSTED", "rate_limited"),
        ("overloaded_error", "overloaded"),
        ("503", "overloaded"),
        (429, "rate_limited"),
        ("invalid_request_error", None),
        (True, None),
        (None, None),
    ],
)
def test_third_o36_one_reading_of_error_codes(code: object, kind: str | None) -> None:
    assert kind_of_code(code) == kind


_STATUSES: Final = {400: "bad_request", 404: "bad_request", 429: "rate_limited"}


@on_asyncio
async def test_third_o36_recorded_replies_are_read_as_their_providers_meant_them() -> None:
    read = 0
    for name, exchange in exchanges():
        wire, status, reply = exchange["api"], exchange["status"], exchange["response"]
        finish = _recorded_finish(reply)
        if (status == 200 and finish is None) or (wire == "openai-compatible" and _is_own_kind(reply)):
            continue  # a reply that is not finished, or one that only its server's own client reads
        model = model_of(wire, reply, status)
        call = model.stream(ASK, lambda _: None) if isinstance(reply, str) else model.complete(ASK)
        if status != 200:
            with pytest.raises(ModelCallError) as caught:
                await call
            assert caught.value.kind == _STATUSES[status], name
            assert caught.value.unspent
            assert "{" not in caught.value.why or "failed_generation" in str(reply), name
        else:
            assert (await call).finish_reason == finish, name
        read += 1
    assert read > 200


def _is_own_kind(reply: Any) -> bool:
    """Return whether a reply is a stream, or a call without its type, as Mistral's are."""
    calls = (
        []
        if isinstance(reply, str)
        else [call for choice in reply.get("choices") or () for call in choice["message"].get("tool_calls") or ()]
    )
    return isinstance(reply, str) or any(call.get("type") is None for call in calls)


def _recorded_finish(reply: Any) -> str | None:
    """Return how a recorded reply ended, in our words; None where it is one that goes on elsewhere."""
    if isinstance(reply, str):
        return "stop"
    choices, candidates = reply.get("choices"), reply.get("candidates")
    if choices:
        return finish_of_word(choices[0].get("finish_reason"))
    if candidates:
        return finish_of_word(candidates[0].get("finishReason"))
    if reply.get("object") == "response":
        return "stop" if reply.get("status") == "completed" else None
    return finish_of_word(reply["stop_reason"]) if "stop_reason" in reply else None


# ---------------------------------------------------------------- streams that break off


USAGE: Final = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
BROKEN: dict[str, tuple[str, str]] = {
    "OpenAI's chat": ("openai-chat", events(chunk("half of "), chunk("a"), done=False)),
    "Anthropic's": (
        "anthropic-messages",
        "event: message_start\n"
        + events({"type": "message_start", "message": {**CLAUDE, "stop_reason": None}}, done=False)
        + "event: content_block_start\n"
        + events(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "half of a"}},
            done=False,
        ),
    ),
    "Gemini's": (
        "google-generate",
        events(
            {
                "candidates": [{"content": {"parts": [{"text": "half of a"}], "role": "model"}, "index": 0}],
                "usageMetadata": GEMINI_USAGE,
            },
            done=False,
        ),
    ),
}


@on_asyncio
@pytest.mark.parametrize(("wire", "stream"), BROKEN.values(), ids=BROKEN)
async def test_third_o35_a_stream_without_an_end_is_a_broken_connection_and_keeps_its_text(
    wire: str, stream: str
) -> None:
    pieces: list[str] = []
    with pytest.raises(ModelCallError, match="broke off") as caught:
        await model_of(wire, stream).stream(ASK, pieces.append)
    assert (caught.value.kind, caught.value.unspent) == ("connection", False)
    assert caught.value.partial == "".join(pieces) == "half of a"


@on_asyncio
@pytest.mark.parametrize(
    "end", [chunk("", "stop"), {**chunk(""), "choices": [], "usage": USAGE}], ids=["a finish reason", "a usage"]
)
async def test_third_o35_a_stream_that_came_to_its_end_is_whole(end: Any) -> None:
    response = await model_of("openai-chat", events(chunk("whole"), end)).stream(ASK, lambda _: None)
    assert (response.text, response.finish_reason) == ("whole", "stop")


@on_asyncio
async def test_third_o35_a_broken_reply_is_kept_and_the_attempt_is_made_again() -> None:
    stream = BROKEN["OpenAI's chat"][1]
    asked: list[Any] = []
    agent = kt.MiniAgent(model_of("openai-chat", stream, asked=asked), stream=True)
    policy = FailurePolicy(retries=1, backoff=0.0)
    coordinator = TaskDispatchCoordinator(failure_policy=policy)
    plan = kt.TaskGraph([kt.Task("t", "Do it.")])
    team = kt.Team("team", [kt.Member("m", agent)], coordinator=coordinator)
    result = await kt.run(team, kt.TeamExecutionRequest("Do it.", plan=plan))
    outcome = result["t"]
    assert outcome.status is kt.TaskStatus.FAILED
    assert outcome.artifact == kt.Artifact("half of a", partial=True)
    assert len(asked) == 2


# ---------------------------------------------------------------- errors under status 200


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ({"error": {"message": "Provider returned error", "code": 429}}, "rate_limited", "Provider returned error"),
        ({"error": {"message": "busy", "code": "503"}}, "overloaded", "busy"),
        ({"error": {"message": "too long", "code": "context_length_exceeded"}}, "context_length", "too long"),
        ({**completion(), "choices": [], "error": {"message": "no room", "code": 502}}, "overloaded", "no room"),
        ({**completion(), "choices": None, "error": {"message": "no room"}}, "unknown", "no room"),
        ({"error": "a text alone"}, "unknown", "a text alone"),
        ({"detail": "Not authenticated"}, "unknown", "Not authenticated"),
        ({**completion(), "choices": []}, "unknown", "its reply is empty: it has no choices"),
        (
            {**completion(), "choices": [{**completion()["choices"][0], "error": {"message": "broke", "code": 502}}]},
            "overloaded",
            "broke",
        ),
    ],
)
async def test_third_o42_an_error_under_status_200_has_the_providers_words_and_its_code_decides(
    body: Any, kind: str, words: str
) -> None:
    model = model_of("openai-chat", body)
    for call in (model.complete(ASK), model.stream(ASK, lambda _: None)):  # a server may answer both with one body
        with pytest.raises(ModelCallError) as caught:
            await call
        assert caught.value.kind == kind
        assert caught.value.why.startswith(words)
        assert caught.value.__cause__ is not caught.value


@pytest.mark.parametrize(
    ("wire", "body", "kind"),
    [
        (
            "anthropic-messages",
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            "overloaded",
        ),
        ("openai-responses", {"error": {"code": 503, "message": "busy"}}, "overloaded"),
        (
            "openai-responses",
            {**RESPONSE, "status": "failed", "output": [], "error": {"code": "x", "message": "busy"}},
            "unknown",
        ),
    ],
)
async def test_third_o42_the_same_for_the_other_interfaces(wire: str, body: Any, kind: str) -> None:
    with pytest.raises(ModelCallError, match="busy") as caught:
        await model_of(wire, body).complete(ASK)
    assert caught.value.kind == kind


async def test_third_o42_a_whole_reply_in_place_of_a_stream_is_said() -> None:
    with pytest.raises(ModelCallError, match="a whole reply where a stream is asked for"):
        await model_of("openai-chat", completion(content="whole")).stream(ASK, lambda _: None)


# ---------------------------------------------------------------- thoughts between tags

THOUGHT: Final = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["<think>", "<thinking>"]),
    st.text("ab <>/", max_size=9),
    st.sampled_from(["</think>", "</thinking>"]),
    st.text(" \n", max_size=2),
)


@given(st.text(" \n", max_size=2), st.lists(THOUGHT, max_size=2), st.text("ab <>/", max_size=9), st.data())
def test_third_o42_the_pieces_of_a_reply_have_none_of_its_thoughts(
    before: str, thoughts: list[str], text: str, data: st.DataObject
) -> None:
    whole = "".join([before, *thoughts, text])
    said: list[str] = []
    pieces = Pieces(said.append, lambda _: None)
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        pieces.take(PartDeltaEvent(index=0, delta=TextPartDelta(content_delta=whole[:cut])))
        whole = whole[cut:]
    left = without_thoughts("".join([before, *thoughts, text]))
    left = left if left.strip() else ""
    assert left.startswith("".join(said))
    assert pieces.end(left) == "".join(said) == left
