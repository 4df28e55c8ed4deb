"""What a model's profile cannot do is asked another way, and what its client raises is read."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic_ai.exceptions import AgentRunError, UserError

import kairo_team as kt
from kairo_team.errors import ModelCallError
from kairo_team.messages import ToolSpec
from kairo_team.models.provider_errors import call_error
from kairo_team.tools.tool import as_tool
from tests.models.provider_wires import completion, exchanges, model_of

pytestmark = pytest.mark.anyio

CITY: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
USAGE: Final = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}


def gemini(*parts: dict[str, Any]) -> dict[str, Any]:
    candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": USAGE}


@kt.tool(side_effect="read")
async def look(text: str) -> str:
    """Look something up."""
    return f"found {text}"


async def test_third_o46_tools_and_an_output_type_at_once_work_on_gemini_2_5() -> None:
    asked: list[Any] = []
    replies = iter(
        [gemini({"functionCall": {"name": "look", "args": {"text": "it"}}}), gemini({"text": '{"city": "Oslo"}'})]
    )
    model = model_of("google-generate", replies, asked=asked)
    output = await kt.MiniAgent(model, tools=[look]).run("Which city?", output_type=dict[str, str])
    assert (output.status, dict(output.artifact.data)) == (kt.AgentStatus.COMPLETED, {"city": "Oslo"})
    for request in asked:
        assert request["tools"]
        assert "responseSchema" not in json.dumps(request.get("generationConfig", {}))
        assert "responseJsonSchema" not in json.dumps(request.get("generationConfig", {}))
    assert '"additionalProperties"' in json.dumps(asked[0]["systemInstruction"]).replace("\\", "")


async def test_third_o46_a_schema_alone_is_asked_for_by_the_providers_own_feature() -> None:
    asked: list[Any] = []
    model = model_of("google-generate", gemini({"text": '{"city": "Oslo"}'}), asked=asked)
    await model.complete(kt.ModelRequest([kt.Message.user("Which city?")], output_schema=CITY, max_tokens=9))
    assert asked[0]["generationConfig"]["responseMimeType"] == "application/json"
    tools = [ToolSpec("look", "", {"type": "object", "properties": {}})]
    model = model_of("openai-chat", completion(content='{"city": "Oslo"}'), asked=asked)
    await model.complete(kt.ModelRequest([kt.Message.user("?")], tools, output_schema=CITY, max_tokens=9))
    assert asked[1]["response_format"]["type"] == "json_schema"


async def test_third_o46_recorded_calls_and_answers_of_gemini_2_5_reach_an_agent_with_tools_and_a_type() -> None:
    played = 0
    for name, exchange in exchanges():
        reply: Any = exchange["response"]
        if "gemini-2.5" not in exchange["path"] or exchange["status"] != 200 or isinstance(reply, str):
            continue
        request = kt.ModelRequest([kt.Message.user("?")], [as_tool(look).spec], output_schema=CITY, max_tokens=99)
        response = await model_of("google-generate", reply).complete(request)
        parts: list[Any] = reply["candidates"][0].get("content", {}).get("parts") or []
        assert [call.name for call in response.tool_calls] == [
            part["functionCall"]["name"] for part in parts if "functionCall" in part
        ], name
        played += 1
    assert played > 20


class Odd(AgentRunError):
    """An error of the client library that nobody has heard of."""

    __module__ = "pydantic_ai.odd"


@pytest.mark.parametrize(
    ("error", "kind", "unspent"),
    [(UserError("not supported"), "bad_request", True), (Odd("strange"), "unknown", False)],
)
def test_third_o46_no_exception_of_a_client_library_leaves_a_model_unread(
    error: Exception, kind: str, unspent: bool
) -> None:
    found = call_error("test:m", error)
    assert isinstance(found, ModelCallError)
    assert (found.kind, found.unspent) == (kind, unspent)
    assert str(error) in found.why
