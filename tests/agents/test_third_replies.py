"""What models write beside an answer, and what a graph cannot read, is treated alike in all agents."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
from pydantic import BaseModel

import kairo_team as kt
from kairo_team.models.readings import without_thoughts
from kairo_team.testing import FunctionModel
from tests.agents.rigs import Reply, Rig, each_rig
from tests.agents.stage import Stage
from tests.test_third_structured_replies import DRESSES

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str
    people: int


RIGS = pytest.mark.parametrize("make", each_rig())
WRAPPERS = pytest.mark.parametrize("make", each_rig("MiniAgent"))


@WRAPPERS
async def test_third_o42_thoughts_between_tags_are_no_part_of_an_answer(make: type[Rig]) -> None:
    stage = Stage(make([Reply("<think>I am not sure.\n</think>\n\nThe moon.")]).agent())
    result = await stage.run()
    assert result.output == "The moon."
    assert all("not sure" not in message.text for message in stage.output.transcript)


@RIGS
async def test_third_o38_every_agent_reads_a_structured_reply_whatever_is_around_its_json(make: type[Rig]) -> None:
    for name, dress in DRESSES.items():
        rig = make([Reply(dress('{"name": "Oslo", "people": 7}'))])
        stage = Stage(rig.agent(), team={"output_types": {"city": City}})
        result = await stage.run(output_type="city")
        artifact = result["t0"].artifact
        assert artifact is not None, name
        assert artifact.data_as(City) == City(name="Oslo", people=7), name
        assert len(rig.asked) == 1, name


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think>b", "b"),
        (" <thinking>a\n</thinking>\n<think>c</think> b", "b"),
        ("<think>cut off", ""),
        ("Write <think> and </think> around it.", "Write <think> and </think> around it."),
        ("", ""),
    ],
)
def test_third_o42_only_thoughts_at_the_beginning_are_left_out(text: str, left: str) -> None:
    assert without_thoughts(text) == left


@pytest.mark.loops("asyncio")
@pytest.mark.parametrize("wrapped", [True, False], ids=["governed", "observed"])
async def test_third_o42_calls_of_a_graph_whose_arguments_are_not_json_are_named(wrapped: bool) -> None:
    pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
    from langchain_core.messages import AIMessage

    from kairo_team.agents.langgraph import LangGraphAgent, governed, governed_tool_call
    from tests.agents.langgraph_double import Scripted, said
    from tests.agents.rig_langgraph import graph_of
    from tests.agents.stage import Counter

    broken: Any = {"name": "look", "args": '{"text": ', "id": "c", "error": None, "type": "invalid_tool_call"}
    model: Any = Scripted(replies=[AIMessage("", invalid_tool_calls=[broken]), said("done")])
    look = Counter()
    options: dict[str, Any] = {"handle_tool_errors": True}
    if wrapped:
        model, options["awrap_tool_call"] = governed(model), governed_tool_call
    result = await Stage(LangGraphAgent(graph_of(model, [look.tool()], **options))).run()
    assert look.calls == []
    if wrapped:
        assert result.output == "done"
    else:
        assert "whose arguments are not JSON: 'look' with '{\"text\": '" in str(result.outcomes[0].error)


@pytest.mark.loops("asyncio")
@pytest.mark.parametrize("wrapped", [True, False], ids=["governed", "observed"])
async def test_third_o42_a_graph_that_ends_with_calls_alone_says_which(wrapped: bool) -> None:
    pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
    from kairo_team.agents.langgraph import LangGraphAgent, governed
    from tests.agents.langgraph_double import Scripted, asking, asks, graph_of

    model = Scripted(replies=[asks("save", text="a")])
    result = await Stage(LangGraphAgent(graph_of(asking(governed(model) if wrapped else model)))).run()
    assert "ended with tool calls that no node makes" in str(result.outcomes[0].error)
    assert "'save' with {'text': 'a'}" in str(result.outcomes[0].error)


async def test_third_o42_a_second_hand_over_in_one_reply_is_a_warning() -> None:
    def hand(request: kt.ModelRequest) -> kt.ModelResponse:
        calls = [
            kt.ToolCall(to, "hand_over", {"to": to, "message": f"You are next, {to}."}) for to in ("second", "third")
        ]
        return kt.ModelResponse("", calls, kt.Usage(5, 5))

    members = [kt.Member("first", kt.MiniAgent(FunctionModel(hand)))]

    async def answer(assignment: kt.Assignment) -> str:
        return "done"

    members += [kt.Member(name, answer) for name in ("second", "third")]
    routes: dict[str, list[str]] = {"second": [], "third": []}
    team = kt.Team("team", members, coordinator=kt.HandoffCoordinator(first="first", routes=routes))
    result = await kt.run(team, "Go.")
    assert result.output == "done"
    assert result.warnings == ("'first' handed over to 'second', and also to 'third', in one reply: the first counts",)


async def test_third_o42_a_mini_agent_with_a_client_can_be_copied() -> None:
    model = FunctionModel(lambda _: "fine")
    model.client = threading.Lock()  # type: ignore[attr-defined]  # as a client, it cannot be copied
    agent = kt.MiniAgent(model, max_turns=3)
    for copied in (copy.copy(agent), copy.deepcopy(agent), copy.deepcopy([agent])[0]):
        assert copied is not agent
        assert (await copied.run("Go.")).text == "fine"
