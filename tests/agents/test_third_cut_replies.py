"""Replies that were cut off: their tool calls are not made, by any agent, and the model is told what cut them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.errors import InvalidReply
from kairo_team.models.tool_calls import with_own_ids
from kairo_team.output_types import check_output
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.agents.rigs import Ask, Reply, Rig, each_rig
from tests.agents.stage import Counter, Stage

pytestmark = pytest.mark.anyio

RIGS = pytest.mark.parametrize("make", each_rig())
CUT = Reply("I write the file.", [Ask("write", "")], completion_tokens=7, cut=True)


@RIGS
async def test_third_o34_a_call_of_a_reply_that_was_cut_off_is_not_made(make: type[Rig]) -> None:
    write = Counter()
    rig = make([CUT, Reply("", [Ask("write", "whole")]), Reply("done")], [write.tool("write", "write")])
    stage = Stage(rig.agent())
    result = await stage.run(kt.Budget(tokens=100_000, tool_calls=5))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "done")
    assert write.calls == ["whole"]
    assert "the reply was cut off at its limit of 7 tokens" in rig.asked[1].text
    (refused, made) = stage.recorder.of(events.ToolCalled)
    assert (refused.outcome, refused.refused_by) == ("refused", "unfinished-reply")
    assert made.outcome == "ok"
    assert result.usage.tool_calls == 1


@RIGS
async def test_third_o34_a_call_of_a_whole_reply_is_made_though_another_was_cut_off_before(make: type[Rig]) -> None:
    write = Counter()
    many = replace(CUT, asks=[Ask("write", "a"), Ask("write", "b")])
    rig = make([many, replace(many, cut=False), Reply("done")], [write.tool("write", "write")])
    await Stage(rig.agent()).run(kt.Budget(tokens=100_000))
    assert write.calls == ["a", "b"]


@pytest.mark.loops("asyncio")
async def test_third_o34_calls_in_a_graph_that_is_only_observed_are_not_made_either() -> None:
    pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
    from kairo_team.agents.langgraph import LangGraphAgent
    from tests.agents.rig_langgraph import LangGraphRig, RigModel, graph_of

    write = Counter()
    rig = LangGraphRig([CUT, Reply("done")], [write.tool("write", "write")])
    stage = Stage(LangGraphAgent(graph_of(RigModel(rig=rig), rig.tools, handle_tool_errors=True)))
    result = await stage.run(kt.Budget(tokens=100_000))
    assert result.output == "done"
    assert write.calls == []
    assert "the reply was cut off at its limit of 7 tokens" in rig.asked[1].text


@pytest.mark.loops("asyncio")
async def test_third_o34_a_call_whose_arguments_end_in_the_middle_does_not_end_an_agent_of_pydantic_ai() -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    from pydantic_ai import Agent
    from pydantic_ai import messages as native

    from kairo_team.agents.pydantic_ai import PydanticAIAgent
    from tests.agents.pydantic_ai_double import model

    written: list[str] = []

    def write(text: str) -> str:
        written.append(text)
        return "written"

    seen: list[str] = []

    def answer(messages: list[native.ModelMessage], _: Any) -> native.ModelResponse:
        seen.append(str(messages[-1].parts[-1]))
        if len(seen) > 1:
            return native.ModelResponse([native.TextPart("done")])
        call = native.ToolCallPart("write", '{"text": "half of', "c1")
        return native.ModelResponse([call], finish_reason="length")

    result = await Stage(PydanticAIAgent(Agent(model(answer), tools=[write]))).run()
    assert (result.output, written) == ("done", [])
    assert "cut off at its limit of 5 tokens" in seen[1]


@RIGS
async def test_third_o34_an_answer_that_was_cut_off_is_partial(make: type[Rig]) -> None:
    rig = make([Reply("half of a", completion_tokens=3, cut=True)])
    stage = Stage(rig.agent())
    await stage.run(kt.Budget(loops=1))
    assert stage.output.artifact == kt.Artifact("half of a", partial=True)


async def test_third_o34_a_structured_reply_that_was_cut_off_is_not_asked_for_again() -> None:
    model = ScriptedModel([kt.ModelResponse('{"name": "Par', usage=kt.Usage(9, 4), finish_reason="length"), "never"])
    output = await kt.MiniAgent(model).run("Which?", output_type=dict[str, str])
    assert len(model.calls) == 1
    assert output.status is kt.AgentStatus.GRACEFUL_EXIT
    assert output.artifact.partial
    assert "cut off at its limit of 4 tokens; allow it more tokens (max_tokens)" in str(output.error)


@pytest.mark.parametrize(("text", "whole"), [('{"a": "b"}', True), ("[1]", True), ('"b"', True), ("12", False)])
async def test_third_o34_of_a_structured_reply_that_was_cut_off_only_what_ends_by_itself_counts(
    text: str, whole: bool
) -> None:
    model = ScriptedModel([kt.ModelResponse(text, usage=kt.Usage(9, 4), finish_reason="length")])
    output = await kt.MiniAgent(model).run("Which?", output_type=Any)
    assert (output.status is kt.AgentStatus.COMPLETED) is whole
    if not whole:
        with pytest.raises(InvalidReply, match="cut off"):
            check_output(int, kt.Artifact(text), cut_by="the reply was cut off")


async def test_third_o34_an_agent_of_ones_own_does_not_make_them_either() -> None:
    write = Counter()

    @kt.tool(side_effect="write")
    async def save(text: str) -> str:
        """Save a text."""
        return await write(text)

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        box = await context.tools([save])
        reply = await context.model(model).complete(kt.ModelRequest([kt.Message.user("Save.")], box.specs))
        (result,) = await box.run(reply.tool_calls)
        return result.text

    call = kt.ToolCall("c", "save", {"text": ""})
    model = FunctionModel(lambda _: kt.ModelResponse("", [call], kt.Usage(9, 4), finish_reason="content_filter"))
    result = await kt.run(kt.Team("team", [kt.Member("m", agent)]), "Save it.")
    assert write.calls == []
    assert "the provider's filter cut off or refused the reply" in str(result.output)


# ---------------------------------------------------------------- ids of calls


@RIGS
async def test_third_o39_ids_that_repeat_are_made_unique_in_what_is_kept(make: type[Rig]) -> None:
    look = Counter()
    script = [Reply("", [Ask("look", "a"), Ask("look", "b")]), Reply("", [Ask("look", "c")]), Reply("done")]
    rig = make(script, [look.tool()], same_ids=True)
    stage = Stage(rig.agent())
    result = await stage.run(kt.Budget(tokens=100_000))
    assert (result.output, sorted(look.calls)) == ("done", ["a", "b", "c"])
    called = [call.id for message in stage.output.transcript for call in message.tool_calls]
    answered = [message.tool_call_id for message in stage.output.transcript if message.role == "tool"]
    assert called == answered
    assert len(set(called)) == 3


@given(st.lists(st.lists(st.sampled_from(["", "a", "a_2", "x" * 70]))))
def test_third_o39_every_call_has_an_id_of_its_own_that_providers_take(replies: list[list[str]]) -> None:
    taken: set[str] = set()
    made = [with_own_ids([kt.ToolCall(name, "look") for name in ids], taken) for ids in replies]
    ids = [call.id for calls in made for call in calls]
    assert len(set(ids)) == len(ids) == len(taken)
    given_ids = [name for names in replies for name in names]
    assert all(new == old or new.startswith((old or "call")[:48]) for old, new in zip(given_ids, ids, strict=True))
    assert all(len(new) <= 64 for old, new in zip(given_ids, ids, strict=True) if new != old)


@pytest.mark.loops("asyncio")
async def test_third_o39_a_graph_that_is_only_observed_keeps_its_own_ids() -> None:
    pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
    from kairo_team.agents.langgraph import LangGraphAgent
    from tests.agents.rig_langgraph import LangGraphRig, RigModel, graph_of

    look = Counter()
    script = [Reply("", [Ask("look", "a")]), Reply("", [Ask("look", "b")]), Reply("done")]
    rig = LangGraphRig(script, [look.tool()], same_ids=True)
    result = await Stage(LangGraphAgent(graph_of(RigModel(rig=rig), rig.tools))).run(kt.Budget(tokens=100_000))
    assert (result.output, look.calls) == ("done", ["a", "b"])
