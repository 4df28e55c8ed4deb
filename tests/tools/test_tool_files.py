"""Files that tools and MCP servers return, and what wrapped agents of other libraries get of them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.durable import decode, encode
from kairo_team.governance import GuardrailPhase
from kairo_team.testing import ScriptedModel
from kairo_team.tools.mcp_schema import result_files
from kairo_team.tools.result import ToolResult, result_of
from tests.agents.stage import replacing
from tests.models.test_files import AT_URL, PAPER, PHOTO, png

pytestmark = pytest.mark.anyio


@kt.tool(side_effect="read")
def look(at: str) -> kt.File:
    """Look at something."""
    return PHOTO


def asking(**options: Any) -> ScriptedModel:
    call = kt.ModelResponse("", [kt.ToolCall("1", "look", {"at": "the sea"})], usage=kt.Usage(5, 5))
    return ScriptedModel([call, "A pier."], **options)


async def test_a_file_that_a_tool_returns_is_shown_to_the_model() -> None:
    model = asking()
    output = await kt.MiniAgent(model, tools=[look]).run("What is there?")
    answer = model.calls[1].messages[3]
    assert (output.text, answer.role, answer.text) == ("A pier.", "tool", "photo.png, image/png, 71 bytes")
    assert list(answer.files) == [PHOTO]
    assert list(output.transcript[3].files) == [PHOTO]


async def test_a_model_that_cannot_see_it_is_told_so() -> None:
    model = asking(files=())
    await kt.MiniAgent(model, tools=[look]).run("What is there?")
    answer = model.calls[1].messages[3]
    assert not answer.files
    assert answer.text.endswith(
        "[you cannot be shown photo.png: model 'test:scripted' cannot be given photo.png, image/png, 71 bytes: "
        "it takes no files]"
    )


async def test_a_guardrail_that_changes_the_text_keeps_the_files() -> None:
    rule = replacing(GuardrailPhase.POST_TOOL, "photo", "image")
    model = asking()
    await kt.MiniAgent(model, tools=[look]).run("What is there?", guardrails=[rule])
    answer = model.calls[1].messages[3]
    assert (answer.text, list(answer.files)) == ("image.png, image/png, 71 bytes", [PHOTO])


def test_several_files_and_texts_are_one_result() -> None:
    assert result_of(PHOTO) == ToolResult(str(PHOTO), files=[PHOTO])
    mixed = result_of(["Two of them:", PHOTO, PAPER])
    assert (mixed.text, list(mixed.files)) == (f"Two of them:\n{PHOTO}\n{PAPER}", [PHOTO, PAPER])
    assert result_of(ToolResult("Here.", files=[PHOTO])).files == (PHOTO,)
    assert decode(encode(mixed)) == mixed
    with pytest.raises(ValueError, match=r"ToolResult.files\[0\]: a file must be a kt.File"):
        ToolResult("x", files=["photo.png"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_images_recordings_and_resources_of_a_server_are_files() -> None:
    wire = pytest.importorskip("mcp.types", reason="the extra `mcp` is not installed")
    data = base64.b64encode(png()).decode()
    blocks = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x://a/my%20plan.pdf", "mimeType": "application/pdf", "blob": data}},
        {"type": "resource", "resource": {"uri": "x://a", "mimeType": "text/plain", "text": "in the text"}},
        {"type": "resource_link", "name": "a", "uri": "https://example.org/a.png", "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
    ]
    found = result_files(wire.CallToolResult.model_validate({"content": blocks}))
    assert [(file.media_type, file.name) for file in found] == [
        ("image/png", f"{PHOTO.digest[:8]}.png"),
        ("application/pdf", "my plan.pdf"),
    ]


# ---------------------------------------------------------------- agents of other libraries

TASK = kt.TaskGraph([kt.Task("look", "What is this?", files=[PHOTO, PAPER])])


async def run_one(agent: Any, files: list[kt.File] | None = None) -> kt.TeamResult:
    team = kt.Team("desk", [kt.Member("reader", agent)])
    return await kt.run(team, "Look.", plan=TASK, files=files or [])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_pydantic_ai_agent_gets_them_and_may_answer_with_one() -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    from pydantic_ai import Agent, BinaryContent, BinaryImage, ImageUrl
    from pydantic_ai.messages import FilePart, ModelMessage, ModelResponse
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.profiles import ModelProfile

    from kairo_team.agents import PydanticAIAgent

    seen: list[Any] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(getattr(messages[0].parts[-1], "content", ()))
        return ModelResponse([FilePart(BinaryImage(png(9, 9), media_type="image/png"))])

    profile = ModelProfile(supports_image_output=True)
    agent = Agent(FunctionModel(answer, profile=profile), output_type=BinaryImage)
    result = await run_one(PydanticAIAgent(agent))
    assert [item.data for item in seen if isinstance(item, BinaryContent)] == [PHOTO.data, PAPER.data]
    assert not [item for item in seen if isinstance(item, ImageUrl)]
    assert result.artifact is not None, result.error
    assert [file.data for file in result.artifact.files] == [png(9, 9)]
    blind = Agent(FunctionModel(answer, profile=ModelProfile(supports_image_input=False)))
    assert "it does not see images" in str((await run_one(PydanticAIAgent(blind))).error)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_agent_of_the_openai_agents_sdk_gets_them() -> None:
    pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")
    from agents import Agent

    from kairo_team.agents import OpenAIAgent
    from tests.agents.openai_double import Scripted

    model = Scripted(["A pier."])
    result = await run_one(OpenAIAgent(Agent("a", model=model)), [AT_URL])
    assert result.output == "A pier.", result.error
    sent = str(model.calls[0].input)
    for file in (PHOTO, PAPER):
        assert file.data is not None
        assert base64.b64encode(file.data).decode() in sent
    assert "'image_url': 'https://example.org/photo.png'" in sent


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_graph_gets_them_as_content_blocks_and_may_answer_with_one() -> None:
    pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
    from langchain_core.messages import AIMessage
    from langgraph.graph import (  # pyright: ignore[reportMissingTypeStubs]
        END,
        START,
        MessagesState,
        StateGraph,
    )

    from kairo_team.agents import LangGraphAgent

    seen: list[Any] = []

    def node(state: MessagesState) -> dict[str, Any]:
        seen.extend(state["messages"][-1].content)
        image = {"type": "image", "base64": base64.b64encode(png(9, 9)).decode(), "mime_type": "image/png"}
        return {"messages": [AIMessage([{"type": "text", "text": "Drawn."}, image])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    result = await run_one(LangGraphAgent(graph.compile()), [AT_URL])
    assert [block["type"] for block in seen] == ["text", "image", "image", "file"]
    assert seen[1]["url"] == AT_URL.url
    assert base64.b64decode(seen[3]["base64"]) == PAPER.data
    assert result.artifact is not None, result.error
    assert (result.artifact.text, [file.data for file in result.artifact.files]) == ("Drawn.", [png(9, 9)])
