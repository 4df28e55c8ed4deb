"""`MiniAgent`: tools, structured output, streaming, and how a run of it ends; alone and in a team."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, ConfigDict

import kairo_team as kt
from kairo_team import events
from kairo_team.errors import Misuse, ModelCallError
from kairo_team.governance.guardrails import GuardrailDecision, GuardrailPhase
from kairo_team.governance.policies import McpPolicy
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel
from kairo_team.tools import Tool

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str
    people: int


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "title": "Place"}


@kt.tool(side_effect="read")
def search(query: str, limit: int = 3) -> list[str]:
    """Search the notes."""
    return [f"{query} {number}" for number in range(limit)]


def calls(*asked: tuple[str, Mapping[str, Any]], text: str = "") -> kt.ModelResponse:
    """A reply that asks for tools."""
    made = tuple(kt.ToolCall(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(asked))
    return kt.ModelResponse(text, made, kt.Usage(5, 5))


async def in_a_team(
    agent: kt.MiniAgent, *, output_type: Any = None, recorder: EventRecorder | None = None, **team: Any
) -> kt.TeamResult:
    types = {"type": output_type} if output_type is not None else {}
    runtime = kt.Runtime(subscribers=[recorder] if recorder else [])
    plan = kt.TaskGraph([kt.Task("t", "Do it.", output_type="type" if types else None)])
    built = kt.Team("team", [kt.Member("m", agent)], output_types=types, runtime=runtime, **team)
    return await kt.run(built, kt.TeamExecutionRequest("Do it.", plan=plan))


# ---------------------------------------------------------------- tools


async def test_tools_run_and_their_results_are_in_the_next_turn() -> None:
    model = ScriptedModel([calls(("search", {"query": "tides", "limit": 2}), text="Let me look."), "The moon."])
    output = await kt.MiniAgent(model, tools=[search]).run("Why are there tides?")
    assert (output.text, output.status) == ("The moon.", kt.AgentStatus.COMPLETED)
    assert (output.turns_completed, output.max_turns, output.tool_calls_executed) == (2, 10, 1)
    first, second = model.calls
    assert [spec.name for spec in first.tools] == ["search"]
    assert first.tools[0].description == "Search the notes."
    *_, asked, answer, left, _ = second.messages
    assert left.aside
    assert (asked.role, asked.text, asked.tool_calls[0].name) == ("assistant", "Let me look.", "search")
    assert (answer.role, answer.tool_call_id, json.loads(answer.text)) == ("tool", "c0", ["tides 0", "tides 1"])
    assert output.transcript[-1] == kt.Message.assistant("The moon.")


async def test_read_tools_of_one_turn_run_side_by_side_and_answer_in_call_order() -> None:
    @kt.tool(side_effect="read")
    async def wait(seconds: float) -> float:
        await anyio.sleep(seconds)
        return seconds

    model = ScriptedModel([calls(("wait", {"seconds": 3}), ("wait", {"seconds": 1})), "Done."])
    began = anyio.current_time()
    await kt.MiniAgent(model, tools=[wait]).run("Wait.")
    assert anyio.current_time() - began == pytest.approx(3)
    assert [m.text for m in model.calls[1].messages if m.role == "tool"] == ["3.0", "1.0"]


async def test_on_the_last_turn_tools_are_withheld() -> None:
    model = ScriptedModel([calls(("search", {"query": "a"})), "Done."])
    await kt.MiniAgent(model, tools=[search], max_turns=2).run("Look.")
    assert [len(request.tools) for request in model.calls] == [1, 0]
    assert any("last turn" in message.text for message in model.calls[1].messages)


async def test_who_asks_for_tools_to_the_end_has_no_answer() -> None:
    model = FunctionModel(lambda _: calls(("search", {"query": "a"}), text="Looking."))
    output = await kt.MiniAgent(model, tools=[search], max_turns=3).run("Look.")
    assert (output.status, output.turns_completed) == (kt.AgentStatus.TURN_LIMIT_REACHED, 3)
    assert (output.text, output.artifact.partial, output.tool_calls_executed) == ("Looking.", True, 2)


async def test_a_tool_that_is_not_there_is_an_error_the_model_reads() -> None:
    model = ScriptedModel([calls(("serach", {"query": "a"})), "Done."])
    output = await kt.MiniAgent(model, tools=[search]).run("Look.")
    (answer,) = [m.text for m in model.calls[1].messages if m.role == "tool"]
    assert "'serach'" in answer
    assert "'search'" in answer
    assert output.tool_calls_executed == 0


async def test_a_role_offers_its_allowed_tools_only() -> None:
    model = ScriptedModel(["Done."])
    role = kt.Role("m", allowed_tools=["look_up"])
    agent = kt.MiniAgent(model, tools=[search, kt.tool(name="look_up")(lambda word: word)])
    result = await kt.run(kt.Team("t", [kt.Member(role, agent)]), "Look.")
    assert result.status is kt.TeamStatus.COMPLETED
    assert [spec.name for spec in model.calls[0].tools] == ["look_up"]


@pytest.mark.parametrize(("allowed", "ok"), [(["serach"], False), (["search"], True), ([], True), (None, True)])
def test_a_role_that_allows_none_of_the_tools_by_mistake_is_refused(allowed: Any, ok: bool) -> None:
    """No tools at all is a decision; only names that are none of the agent's are a mistake."""
    agent = kt.MiniAgent(ScriptedModel([]), tools=[search])
    check = kt.check(kt.Team("t", [kt.Member(kt.Role("m", allowed_tools=allowed), agent)]), "Look.")
    assert check.ok is ok
    if not ok:
        assert "allows 'serach', and its tools are 'search'" in check.problems[0]


async def test_tool_calls_over_their_limit_are_refused_and_the_run_goes_on() -> None:
    model = ScriptedModel([calls(("search", {"query": "a"}), ("search", {"query": "b"})), "Done."])
    output = await kt.MiniAgent(model, tools=[search]).run("Look.", budget=kt.Budget(tool_calls=1))
    assert (output.text, output.tool_calls_executed) == ("Done.", 1)


@pytest.mark.parametrize(
    ("tools", "match"),
    [("search", "a list"), (3, "a list"), ([3], "3"), ([search, search], "two tools are called 'search'")],
)
def test_what_is_no_list_of_tools_is_refused(tools: Any, match: str) -> None:
    with pytest.raises((ValueError, TypeError), match=match):
        kt.MiniAgent("test:m", tools=tools)


# ---------------------------------------------------------------- structured output


@pytest.mark.parametrize("kind", [City, {**SCHEMA}], ids=["pydantic", "json-schema"])
@pytest.mark.parametrize("reply", ['{"name": "Ulm", "people": 1}', '```json\n{"name": "Ulm", "people": 1}\n```'])
async def test_a_structured_reply_is_data(kind: Any, reply: str) -> None:
    result = await in_a_team(kt.MiniAgent(ScriptedModel([reply])), output_type=kind)
    assert result["t"].artifact is not None
    assert result["t"].artifact.data == {"name": "Ulm", "people": 1}


class Dated(BaseModel):
    model_config = ConfigDict(strict=True)
    days: list[date]


async def test_a_strict_type_takes_a_reply_and_gives_it_back() -> None:
    """JSON has no dates and what is frozen has no lists: a strict type takes neither but from JSON."""
    model = ScriptedModel(['{"days": ["2026-01-02"]}'])
    result = await in_a_team(kt.MiniAgent(model), output_type=Dated)
    assert result["t"].artifact is not None
    assert result["t"].artifact.data_as(Dated) == Dated(days=[date(2026, 1, 2)])
    with pytest.raises(ValueError, match="days"):
        kt.Artifact("", {"days": [3.5]}).data_as(Dated)


async def test_an_invalid_reply_is_asked_for_once_more_with_what_is_wrong() -> None:
    model = ScriptedModel(['{"name": "Ulm"}', '{"name": "Ulm", "people": 1}'])
    result = await in_a_team(kt.MiniAgent(model), output_type=City)
    model.assert_complete()
    assert result["t"].attempts == 1
    assert "people: Field required" in model.calls[1].messages[-1].text


async def test_a_model_that_answers_invalid_json_for_ever_is_asked_twice_a_try() -> None:
    model = FunctionModel(lambda _: "nope")
    output = await kt.MiniAgent(model).run("Name a city.", output_type=City)
    assert len(model.calls) == 2
    assert (output.status, output.artifact.partial) == (kt.AgentStatus.GRACEFUL_EXIT, True)
    assert "City" in str(output.error)
    result = await in_a_team(kt.MiniAgent(FunctionModel(lambda _: "nope")), output_type=City)
    assert result.status is kt.TeamStatus.FAILED
    assert "City" in str(result["t"].error)


async def test_an_output_type_that_nobody_can_validate_is_refused_before_work_starts() -> None:
    model = ScriptedModel([])
    for kind in (object(), {"type": "nonsense"}):
        result = await in_a_team(kt.MiniAgent(model), output_type=kind)
        assert (result.status, result.refused) == (kt.TeamStatus.FAILED, True)
        assert "output type 'type'" in str(result.error)
    assert model.calls == []


# ---------------------------------------------------------------- streaming


async def test_a_streamed_reply_is_told_piece_by_piece() -> None:
    recorder = EventRecorder()
    await in_a_team(kt.MiniAgent(ScriptedModel(["one two three"]), stream=True), recorder=recorder)
    told = [event.text for event in recorder.of(events.ModelDelta)]
    assert len(told) > 1
    assert "".join(told) == "one two three"


class Watch:
    phases = frozenset({GuardrailPhase.POST_MODEL})

    def __init__(self, decision: GuardrailDecision | None = None) -> None:
        self._decision = decision or GuardrailDecision.allow()

    async def evaluate(self, context: Any) -> GuardrailDecision:
        return self._decision


async def test_kf_g05_while_a_guardrail_looks_at_replies_nothing_is_told_before_it_passed() -> None:
    """G05: in streaming everything was out before the guardrail ran."""
    recorder = EventRecorder()
    agent = kt.MiniAgent(FunctionModel(lambda _: "one two three"), stream=True)
    await in_a_team(agent, recorder=recorder, guardrails=[Watch()])
    assert [event.text for event in recorder.of(events.ModelDelta)] == ["one two three"]
    recorder = EventRecorder()
    result = await in_a_team(agent, recorder=recorder, guardrails=[Watch(GuardrailDecision.deny("no"))])
    assert recorder.of(events.ModelDelta) == []
    assert result.status is kt.TeamStatus.FAILED


# ---------------------------------------------------------------- ends


async def test_alone_every_end_has_its_text_and_its_usage() -> None:
    cut = kt.ModelResponse("so far ", usage=kt.Usage(20, 20), finish_reason="length")

    async def end(*replies: Any, budget: kt.Budget | None = None, **options: Any) -> kt.AgentOutput:
        agent = kt.MiniAgent(FunctionModel(_hand_out(replies)), max_turns=3)
        output: kt.AgentOutput = await agent.run("Tell.", budget=budget, **options)
        return output

    done = await end("All of it.")
    assert (done.status, done.text) == (kt.AgentStatus.COMPLETED, "All of it.")
    limited = await end(cut, cut, cut)
    assert (limited.status, limited.text, limited.usage.tokens) == (
        kt.AgentStatus.TURN_LIMIT_REACHED,
        "so far so far so far ",
        120,
    )
    halted = await end(cut, _slow, budget=kt.Budget(seconds=5))
    assert (halted.status, halted.text, halted.usage.tokens > 40, halted.turns_completed) == (
        kt.AgentStatus.HALTED,
        "so far ",
        True,  # the call that was cut off is charged what was held for it
        1,
    )
    blocked = await end(cut, guardrails=[Watch(GuardrailDecision.deny("no"))])
    assert (blocked.status, blocked.text, blocked.usage.tokens) == (kt.AgentStatus.BLOCKED, "", 40)


async def _slow() -> str:
    await anyio.sleep(100)
    return "too late"


def _hand_out(replies: Any) -> Any:
    left = list(replies)

    def reply(_: kt.ModelRequest) -> Any:
        following = left.pop(0)
        return following() if callable(following) else following

    return reply


async def test_alone_the_usage_is_all_that_was_spent_whoever_spent_it() -> None:
    """Replies without usage, tries that failed and tools that ask models are in no reply's usage."""
    silent = kt.ModelResponse("Done.")
    output = await kt.MiniAgent(FunctionModel(lambda _: silent)).run("Tell.", budget=kt.Budget(tokens=500))
    assert (output.usage.tokens, output.usage.loops) == (500, 1)
    failed = ModelCallError("overloaded", "test:m", "busy")
    model = ScriptedModel([failed, "Done."])
    output = await kt.MiniAgent(model, settings={"max_tokens": 5}).run("Tell.")
    assert output.usage.tokens > 5 + 2 * sum(len(message.text.split()) for message in model.calls[0].messages)


async def test_alone_a_halt_says_how_many_turns_there_were() -> None:
    output = await kt.MiniAgent(ScriptedModel([]), max_turns=7).run("Tell.", budget=kt.Budget(tokens=0))
    assert (output.status, output.turns_completed, output.max_turns) == (kt.AgentStatus.HALTED, 0, 7)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"assignment": 5}, "a text or a kt.Assignment, not 5"),
        ({"role": None}, "a kt.Role or a role's id, not None"),
        ({"permissions": {}}, "a kt.ToolPermissions, not {}"),
        (
            {"output_type": {"type": "bogus"}},
            'the output type cannot be used to validate data: it is not a valid JSON Schema: "bogus"',
        ),
        ({"output_type": "Nothing"}, "the output type cannot be used to validate data: .*Nothing"),
        ({"budget": 4000}, "a kt.Budget"),
    ],
)
async def test_alone_wrong_arguments_are_refused_before_anything_is_spent(
    arguments: dict[str, Any], match: str
) -> None:
    model = ScriptedModel([])
    given: dict[str, Any] = {"assignment": "Tell.", **arguments}
    with pytest.raises(ValueError, match=match):
        await kt.MiniAgent(model).run(**given)
    assert model.calls == []


@pytest.mark.parametrize("settings", [5, [("seed", 1)], {"max_tokens": 0}, {"max_tokens": "many"}, {1: 2}])
def test_what_is_no_settings_is_refused(settings: Any) -> None:
    with pytest.raises(ValueError, match=r"MiniAgent\.settings"):
        kt.MiniAgent("test:m", settings=settings)


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
async def test_audit_g25_a_tool_of_a_lone_agent_cannot_end_the_program(end: type[BaseException]) -> None:
    async def leave() -> str:
        raise end

    model = ScriptedModel([calls(("leave", {})), "I stay."])
    output = await kt.MiniAgent(model, tools=[leave]).run("Leave.")
    assert output.text == "I stay."
    (told,) = [message.text for message in model.calls[-1].messages if message.role == "tool"]
    assert told.startswith(f"{end.__name__}(): ")


async def test_a_member_that_gets_nothing_of_a_tool_source_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Its server is listed under no name that it has."""
    permissions = kt.ToolPermissions(mcp=McpPolicy(allowed=["raed"]))
    agent = kt.MiniAgent(ScriptedModel(["{}", "still no list"]), tools=[Source()])
    await in_a_team(agent, output_type=list[str], permissions=permissions)
    (warning,) = [text for text in (record.getMessage() for record in caplog.records) if "tools of" in text]
    assert "none of the 1 tools of 'files' is offered to 'm': the tool 'read'" in warning
    assert "McpPolicy(allowed=[...])" in warning


class Source:
    """An MCP server's tools, without a server."""

    name = "files"

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[list[Tool]]:
        async def read(_: Mapping[str, Any]) -> str:
            return "text"

        yield [Tool("files_read", read, side_effect="read", server="files", server_tool="read")]


async def test_alone_a_model_that_is_not_to_be_had_is_an_error() -> None:
    with pytest.raises(kt.KairoError, match="nobody:m"):
        await kt.MiniAgent("nobody:m").run("Tell.")


async def test_two_runs_of_one_agent_never_mix() -> None:
    async def echo(request: kt.ModelRequest) -> str:
        await anyio.sleep(1)
        return request.messages[-1].text.split("Your task: ")[1].splitlines()[0]

    agent = kt.MiniAgent(FunctionModel(echo))
    outputs: dict[str, str] = {}

    async def one(name: str) -> None:
        outputs[name] = (await agent.run(name)).text

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(one, f"task {number}")
    assert all(name == text for name, text in outputs.items())


async def test_a_task_with_a_lone_surrogate_is_a_task() -> None:
    """Text cut in the middle of a pair comes out of many programs."""
    result = await in_a_team(kt.MiniAgent(ScriptedModel(["said \ud800"])))
    assert result.output == "said \ud800"
    output = await kt.MiniAgent(ScriptedModel(["said"])).run("say \ud800")
    assert output.text == "said"


async def test_who_asks_for_tools_it_does_not_have_is_told_so() -> None:
    model = ScriptedModel([calls(("search", {"query": "a"})), "Done."])
    output = await kt.MiniAgent(model).run("Look.")
    assert (output.text, output.tool_calls_executed) == ("Done.", 0)
    assert "cannot use any tools" in model.calls[1].messages[-1].text


async def test_the_turn_that_was_said_to_be_the_last_is_the_last() -> None:
    """Also where money, not the number of turns, made it the last."""
    model = FunctionModel(lambda _: calls(("search", {"query": "a"}), text="Looking."))
    agent = kt.MiniAgent(model, tools=[search], max_turns=10, settings={"max_tokens": 20})
    output = await agent.run("Look.", budget=kt.Budget(loops=3))
    assert (output.status, output.turns_completed, output.tool_calls_executed) == (
        kt.AgentStatus.GRACEFUL_EXIT,
        3,
        2,
    )
    assert output.error == "the budget could not pay turn 4: 0 loops left"
    last = [request for request in model.calls if any("last turn" in message.text for message in request.messages)]
    assert last == model.calls[-1:]


def test_an_agent_alone_runs_from_code_without_an_event_loop() -> None:
    agent = kt.MiniAgent(ScriptedModel(['{"port": "Brest"}']))
    output = agent.run_sync("Which port?", output_type=dict[str, str], budget=kt.Budget(tokens=4_000))
    assert (output.status, output.data) == (kt.AgentStatus.COMPLETED, {"port": "Brest"})


async def test_run_sync_inside_an_event_loop_says_what_to_write() -> None:
    with pytest.raises(Misuse) as refused:
        kt.MiniAgent(ScriptedModel([])).run_sync("Which port?")
    said = "run_sync is for code without an event loop, and here one runs: write await agent.run(...)"
    assert str(refused.value) == said
