"""A reply that was garbled on its way, at any one place, is read or is an error of its model; both are paid for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

import kairo_team as kt
from kairo_team._util.narrowing import is_list, is_mapping
from kairo_team.errors import ModelCallError
from kairo_team.governance import Governor
from kairo_team.models.governed_model import GovernedModel
from tests.models.provider_wires import model_of
from tests.models.recorded_wires import streamed
from tests.models.reports import ignore
from tests.models.wires import reply

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # the client libraries warn of what they find
]

PATHS = {
    "openai-chat": "/chat/completions",
    "openai-responses": "/responses",
    "anthropic-messages": "/v1/messages",
    "google-generate": "/",
}
GARBLED: list[Any] = [None, True, -1, 1.5, 10**40, "x", "\ud800", [], ["x"], {}, {"a": 1}]
ASK = kt.ModelRequest([kt.Message.user("Hello")], max_tokens=300)


def places(body: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value inside."""
    inside: Any = body.items() if is_mapping(body) else enumerate(body) if is_list(body) else ()
    for key, value in inside:
        yield (*place, key)
        yield from places(value, (*place, key))


def garbled(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(body)
    inside = made
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return made


def full_reply(wire: str) -> Any:
    """A reply with all that is read of one: text, a call of a tool, reasoning, and details of the usage."""
    body = reply(PATHS[wire])
    call: dict[str, Any]
    match wire:
        case "openai-chat":
            call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            body["choices"][0]["message"] |= {"tool_calls": [call], "reasoning_content": "hm"}
            body["usage"]["completion_tokens_details"] = {"reasoning_tokens": 1}
        case "openai-responses":
            call = {"type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": "{}"}
            summary = [{"type": "summary_text", "text": "hm"}]
            body["output"] += [{"type": "reasoning", "id": "r", "summary": summary, "encrypted_content": "e"}, call]
        case "anthropic-messages":
            body["content"].insert(0, {"type": "thinking", "thinking": "hm", "signature": "s"})
            body["content"].append({"type": "tool_use", "id": "c", "name": "look", "input": {}})
            body["usage"]["output_tokens_details"] = {"thinking_tokens": 1}
        case _:
            call = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "c2ln"}
            body["candidates"][0]["content"]["parts"] += [{"text": "hm", "thought": True}, call]
            body["usageMetadata"]["thoughtsTokenCount"] = 0
    return body


async def outcome(wire: str, sent: Any, *, stream: bool) -> str | None:
    """Return what is wrong with the end of a call; None if nothing is."""
    governor = Governor(kt.Budget(tokens=100_000))
    model = GovernedModel(model_of(wire, sent), governor, ignore)
    try:
        response = await (model.stream(ASK, lambda _: None) if stream else model.complete(ASK))
        response.text.encode()
    except ModelCallError as error:
        return "it was free" if not (governor.usage.tokens or error.unspent) else None
    except Exception as error:  # noqa: BLE001 - which one is what is tested
        return repr(error)[:200]
    return None if governor.usage.tokens else "it was free"


@pytest.mark.sampled("anyio_backend")
@pytest.mark.parametrize("wire", PATHS)
async def test_a_whole_reply(wire: str) -> None:
    body = full_reply(wire)
    assert await outcome(wire, body, stream=False) is None
    found = {
        (place, str(value)): await outcome(wire, garbled(body, place, value), stream=False)
        for place in places(body)
        for value in GARBLED
    }
    assert {where: what for where, what in found.items() if what is not None} == {}


@pytest.mark.loops("asyncio")
@pytest.mark.parametrize("wire", PATHS)
async def test_a_stream_that_is_cut_after_any_piece(wire: str) -> None:
    pieces = streamed(wire, full_reply(wire)).split("\n\n")
    assert await outcome(wire, "\n\n".join(pieces), stream=True) is None
    cut = {end: await outcome(wire, "\n\n".join([*pieces[:end], ""]), stream=True) for end in range(len(pieces))}
    assert {end: what for end, what in cut.items() if what is not None} == {}
