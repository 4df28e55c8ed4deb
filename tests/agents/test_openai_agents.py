"""`OpenAIAgent`: the real library with a scripted model behind it, under our budget, guardrails and permissions."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

import agents
from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    GuardrailFunctionOutput,
    HostedMCPTool,
    ImageGenerationTool,
    LocalShellTool,
    Model,
    ModelProvider,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    ToolOutputText,
    Usage,
    WebSearchTool,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
)
from agents.mcp import MCPServer
from agents.tool_context import ToolContext
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool
from openai import APIStatusError, AsyncOpenAI
from pydantic import BaseModel

import kairo_team as kt
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.errors import ConstraintExit, GuardrailDenied, HaltError, InsufficientBudget, MissingExtra
from kairo_team.governance.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase
from kairo_team.governance.policies.mcp import McpPolicy
from kairo_team.testing import virtual_time
from kairo_team.testing.clocks import Backend
from kairo_team.tools.permissions import PermissionDecision
from tests.agents.openai_double import Scripted, Witness, ask, work

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """The library runs on asyncio alone."""
    real = any(request.node.get_closest_marker(marker) for marker in ("real_time", "local_model"))
    return ("asyncio", {}) if real else virtual_time("asyncio")


@function_tool
async def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


async def test_an_agent_with_a_tool_does_a_task_and_everything_it_used_is_counted() -> None:
    model = Scripted([["Let me see.", ask("look", at="the moon")], "The moon pulls."])
    result, witness = await work(Agent("a", model=model, tools=[look]), budget=kt.Budget(tokens=9000, tool_calls=1))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "The moon pulls.")
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (20, 10)
    assert (result.usage.loops, result.usage.tool_calls) == (2, 1)
    output = witness.output
    assert output is not None
    assert (output.turns_completed, output.max_turns, output.tool_calls_executed) == (2, 10, 1)
    assert (output.usage.prompt_tokens, output.usage.completion_tokens) == (20, 10)
    assert [message.role for message in output.transcript] == ["user", "assistant", "assistant", "tool", "assistant"]
    assert model.calls[1].results == ["saw the moon"]
    assert "Explain tides." in model.calls[0].text


# ---------------------------------------------------------------- one tree


async def test_kf_b02_an_agent_used_as_a_tool_spends_on_the_same_tree_and_its_tools_are_governed() -> None:
    inner_model = Scripted([ask("look", at="the sea"), "It rises."])
    inner = Agent("inner", model=inner_model, tools=[look])
    outer_model = Scripted([ask("inner", input="what does the sea do?"), "So it rises."])
    outer = Agent("outer", model=outer_model, tools=[inner.as_tool("inner", "Knows the sea.")])
    result, witness = await work(outer, budget=kt.Budget(tokens=50_000))
    assert result.output == "So it rises."
    assert (result.usage.loops, result.usage.tool_calls, result.usage.tokens) == (4, 2, 60)
    assert witness.output is not None
    assert (witness.output.turns_completed, witness.output.tool_calls_executed) == (4, 2)
    assert outer_model.calls[1].results == ["It rises."]


@pytest.mark.parametrize("stream", [False, True])
async def test_kf_b02_a_limit_of_three_loops_is_three_calls_however_deep_they_are_made(stream: bool) -> None:
    async def hear(_event: Any) -> None:
        await anyio.lowlevel.checkpoint()

    inner_model = Scripted([ask("look", at="again")])
    inner = Agent("inner", model=inner_model, tools=[look])
    outer_model = Scripted([ask("inner", input="go")])
    tool = inner.as_tool("inner", "x", on_stream=hear if stream else None)
    result, witness = await work(Agent("outer", model=outer_model, tools=[tool]), budget=kt.Budget(loops=3))
    assert len(outer_model.calls) + len(inner_model.calls) == 3
    assert {call.streamed for call in inner_model.calls} == {stream}
    assert isinstance(witness.raised, HaltError)
    assert result.halt is kt.HaltReason.LOOP_BUDGET_EXCEEDED


async def test_runs_that_guardrails_and_tools_start_themselves_are_governed_too() -> None:
    judge_model, helper_model = Scripted(["fine"]), Scripted(["helped"])

    @input_guardrail
    async def judged(_context: Any, _agent: Any, _input: Any) -> GuardrailFunctionOutput:
        done = await Runner.run(Agent("judge", model=judge_model), "is it fine?")
        return GuardrailFunctionOutput(done.final_output, tripwire_triggered=False)

    @function_tool
    async def helper() -> str:
        """Help."""
        done = await Runner.run(Agent("helper", model=helper_model), "help", run_config=RunConfig())
        return str(done.final_output)

    model = Scripted([ask("helper"), "done"])
    agent = Agent("a", model=model, tools=[helper], input_guardrails=[judged])
    result, _ = await work(agent)
    assert result.output == "done"
    assert (result.usage.tokens, result.usage.loops) == (60, 4)


async def test_a_run_outside_of_any_attempt_is_nobodys_business() -> None:
    await work(Agent("a", model=Scripted(["x"])))
    done = await Runner.run(
        Agent("free", model=Scripted(["free"])), "hello", run_config=RunConfig(tracing_disabled=True)
    )
    assert done.final_output == "free"


# ---------------------------------------------------------------- two tasks, one agent


async def test_kf_t12_parallel_tasks_share_one_agent_object_without_mixing_and_leave_it_as_it_was() -> None:
    def answer(call: Any) -> Any:
        mine = "sun" if "about the sun" in call.text else "moon"
        return f"seen: {call.results[0]}" if call.results else ask("look", at=mine)

    model = Scripted(answer, seconds=1.0)
    other = Agent("other", model=model)
    agent = Agent("one", model=model, tools=[look], handoffs=[other])
    other.handoffs.append(agent)
    before = {name: copy.copy(value) for name, value in vars(agent).items()}
    wrapped = OpenAIAgent(agent)
    plan = kt.TaskGraph([kt.Task(name, f"Write about the {name}.", member="m") for name in ("sun", "moon")])
    team = kt.Team("t", [kt.Member("m", wrapped, max_concurrency=2)])
    result = await kt.run(team, kt.TeamExecutionRequest("g", plan=plan))
    assert [outcome.artifact and outcome.artifact.text for outcome in result.outcomes] == [
        "seen: saw sun",
        "seen: saw moon",
    ]
    assert all(outcome.usage.tokens == 30 for outcome in result.outcomes)
    assert vars(agent) == before
    assert agent.handoffs[0] is other
    assert agent.tools[0] is look


async def test_handoffs_in_a_circle_stay_governed() -> None:
    model = Scripted([ask("transfer_to_b"), ask("transfer_to_a"), ask("look", at="x"), "end"])
    a = Agent("a", model=model, tools=[look])
    b = Agent("b", model=model, handoffs=[handoff(a)])
    a.handoffs.append(b)
    result, witness = await work(a, budget=kt.Budget(tokens=50_000))
    assert (result.output, result.usage.loops, result.usage.tool_calls) == ("end", 4, 1)
    assert witness.output is not None
    assert (a.model, b.model) == (model, model)


# ---------------------------------------------------------------- halts cross


async def test_kf_b10_a_halt_inside_an_agent_used_as_a_tool_comes_out_as_it_is() -> None:
    inner = Agent("inner", model=Scripted([ask("look", at="x")]), tools=[look])
    outer_model = Scripted([ask("inner", input="go"), "pretends that all is well"])
    outer = Agent("outer", model=outer_model, tools=[inner.as_tool("inner", "x")])
    result, witness = await work(outer, budget=kt.Budget(loops=2))
    assert type(witness.raised) is HaltError
    assert witness.raised.reason is kt.HaltReason.LOOP_BUDGET_EXCEEDED
    assert len(outer_model.calls) == 1
    assert result.halt is kt.HaltReason.LOOP_BUDGET_EXCEEDED


@pytest.mark.parametrize(
    "error",
    [
        HaltError(kt.HaltReason.CANCELLED, kt.Usage(), "somebody"),
        InsufficientBudget("tokens", 5, 1, "somebody"),
        ConstraintExit("c", "enough"),
        GuardrailDenied("p", "pre_model", "no"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("handled", [True, False], ids=["told to the model", "raised"])
async def test_kf_b10_what_must_end_the_attempt_is_never_a_tools_output(error: Exception, handled: bool) -> None:
    function = function_tool(_raises(error)) if handled else function_tool(_raises(error), failure_error_function=None)
    model = Scripted(lambda call: "never said" if call.results else ask("spend"))
    _, witness = await work(Agent("a", model=model, tools=[function]))
    assert witness.raised is error
    assert not any(call.results for call in model.calls)


def _raises(error: Exception) -> Any:
    async def spend() -> str:
        raise error

    return spend


async def test_an_unpriced_model_under_a_dollar_limit_is_refused_even_inside_a_tool() -> None:
    inner = Agent("inner", model=Scripted(["x"], model="nobody-knows-it"))
    outer = Agent("outer", model=Scripted([ask("inner", input="go"), "never"]), tools=[inner.as_tool("inner", "x")])
    prices = {"openai:double": kt.Price(input=1, output=1)}
    team = kt.Team("t", [kt.Member("m", OpenAIAgent(outer))], runtime=kt.Runtime(prices=prices))
    result = await kt.run(team, "g", budget=kt.Budget(dollars=1))
    assert "openai:nobody-knows-it" in (result.error or "")
    assert result.usage.dollars > 0


@pytest.mark.parametrize("inside", [False, True], ids=["outer", "inside a streamed agent tool"])
async def test_a_kill_ends_the_model_call_in_flight(inside: bool) -> None:
    async def hear(_event: Any) -> None:
        await anyio.lowlevel.checkpoint()

    slow = Scripted(["never"], seconds=1000.0)
    agent = Agent("a", model=slow)
    if inside:
        tool = agent.as_tool("inner", "x", on_stream=hear)
        agent = Agent("outer", model=Scripted([ask("inner", input="go"), "never"]), tools=[tool])
    result, witness = await work(agent, budget=kt.Budget(seconds=5))
    await anyio.sleep(1)
    assert result.halt is kt.HaltReason.TIME_BUDGET_EXCEEDED
    assert result.duration < 6
    assert (len(slow.calls), slow.in_flight) == (1, 0)
    assert isinstance(witness.raised, anyio.get_cancelled_exc_class())


async def test_a_kill_ends_the_tool_call_in_flight_and_what_was_said_comes_back() -> None:
    ends: list[str] = []

    @function_tool
    async def wait() -> str:
        """Wait."""
        try:
            await anyio.sleep(1000)
        finally:
            ends.append("ended")
        return "late"

    result, _ = await work(
        Agent("a", model=Scripted([["I have an idea.", ask("wait")]]), tools=[wait]), budget=kt.Budget(seconds=5)
    )
    await anyio.sleep(1)
    assert (ends, result.duration < 6) == (["ended"], True)
    artifact = result.outcomes[0].artifact
    assert artifact is not None
    assert (artifact.text, artifact.partial) == ("I have an idea.", True)


# ---------------------------------------------------------------- turns, data, usage


async def test_the_turn_limit_gives_the_last_text_as_a_partial_artifact() -> None:
    model = Scripted([["first idea", ask("look", at="a")], ask("look", at="b")])
    _, witness = await work(Agent("a", model=model, tools=[look]), max_turns=2)
    output = witness.output
    assert output is not None
    assert (output.status, output.turns_completed, output.max_turns) == (kt.AgentStatus.TURN_LIMIT_REACHED, 2, 2)
    assert (output.text, output.artifact.partial) == ("first idea", True)
    assert output.error is not None


class City(BaseModel):
    name: str
    people: int


async def test_a_structured_answer_is_the_artifacts_data() -> None:
    model = Scripted(['{"name": "Bern", "people": 146000}'])
    _, witness = await work(Agent("a", model=model, output_type=City))
    assert witness.output is not None
    assert witness.output.artifact.data == {"name": "Bern", "people": 146000}
    assert City.model_validate_json(witness.output.text).name == "Bern"
    assert witness.output.artifact.media_type == "application/json"


@pytest.mark.parametrize("kind", [City, City.model_json_schema()], ids=["a type", "a JSON Schema"])
async def test_an_agent_of_plain_text_is_asked_for_the_tasks_output_type(kind: Any) -> None:
    model = Scripted(['{"name": "Bern", "people": 146000}'])
    plan = kt.TaskGraph([kt.Task("t", "Name a city.", member="m", output_type="city")])
    team = kt.Team("t", [kt.Member("m", OpenAIAgent(Agent("a", model=model)))], output_types={"city": kind})
    result = await kt.run(team, kt.TeamExecutionRequest("g", plan=plan))
    assert result["t"].artifact is not None
    assert result["t"].artifact.data == {"name": "Bern", "people": 146000}
    assert model.calls[0].schema["properties"].keys() == {"name", "people"}


async def test_a_reply_cut_off_at_its_limit_is_a_partial_artifact() -> None:
    model = Scripted(["half a sen"], usage=Usage(1, 10, output_tokens=7))
    _, witness = await work(Agent("a", model=model, model_settings=ModelSettings(max_tokens=7)))
    assert witness.output is not None
    assert witness.output.artifact.partial
    assert model.calls[0].settings.max_tokens == 7


async def test_a_reply_without_usage_is_charged_its_hold() -> None:
    result, _ = await work(Agent("a", model=Scripted(["x"], usage=None)), budget=kt.Budget(tokens=9000))
    assert result.usage.tokens > 4096


async def test_cached_tokens_are_billed_as_such() -> None:
    usage = Usage(1, 1_000_000, output_tokens=1)
    usage.input_tokens_details.cached_tokens = 1_000_000
    prices = {"openai:double": kt.Price(input=8, output=0, cached_input=1)}
    team = kt.Team(
        "t",
        [kt.Member("m", OpenAIAgent(Agent("a", model=Scripted(["x"], usage=usage))))],
        runtime=kt.Runtime(prices=prices),
    )
    assert (await kt.run(team, "g")).usage.dollars == 1


# ---------------------------------------------------------------- guardrails


@dataclass
class Guard:
    """A guardrail of one phase that does what a function of the payload says."""

    phase: GuardrailPhase
    decide: Any

    @property
    def phases(self) -> set[GuardrailPhase]:
        return {self.phase}

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        decision: GuardrailDecision = self.decide(context.payload)
        return decision


def mask(old: str, new: str) -> Any:
    return lambda payload: GuardrailDecision.modify("masked", payload.map_text(lambda text: text.replace(old, new)))


def deny(payload: Any) -> GuardrailDecision:
    return GuardrailDecision.deny("no")


async def test_what_a_guardrail_changes_before_the_model_the_model_gets_changed() -> None:
    model = Scripted([["about tides", ask("look", at="tides")], "done"])
    guard = Guard(GuardrailPhase.PRE_MODEL, mask("tides", "waves"))
    await work(Agent("a", instructions="On tides.", model=model, tools=[look]), team={"guardrails": [guard]})
    assert "tides" not in model.calls[0].text + model.calls[1].text
    assert model.calls[0].system == "On waves."
    assert model.calls[1].results == ["saw waves"]


async def test_what_a_guardrail_changes_in_a_reply_the_library_gets_changed() -> None:
    model = Scripted([["look at sk-1", ask("look", at="sk-1")], "the key is sk-1"])
    guard = Guard(GuardrailPhase.POST_MODEL, mask("sk-1", "***"))
    result, _ = await work(Agent("a", model=model, tools=[look]), team={"guardrails": [guard]})
    assert result.output == "the key is ***"
    assert model.calls[1].results == ["saw ***"]
    assert "sk-1" not in model.calls[1].text


async def test_a_reply_that_is_denied_is_charged_and_none_of_its_tools_run() -> None:
    ran: list[str] = []

    @function_tool
    async def act() -> str:
        """Act."""
        ran.append("ran")
        return "done"

    model = Scripted([["bad", ask("act")]])
    guard = Guard(GuardrailPhase.POST_MODEL, deny)
    result, witness = await work(Agent("a", model=model, tools=[act]), team={"guardrails": [guard]})
    assert type(witness.raised) is GuardrailDenied
    assert (ran, result.usage.tokens) == ([], 15)


async def test_a_streamed_reply_inside_a_tool_is_heard_only_as_the_guardrails_leave_it() -> None:
    heard: list[str] = []

    async def hear(event: Any) -> None:
        heard.append(str(event["event"]))

    inner = Agent("inner", model=Scripted(["the key is sk-1"]))
    tool = inner.as_tool("inner", "x", on_stream=hear)
    outer = Scripted([ask("inner", input="go"), "done"])
    guard = Guard(GuardrailPhase.POST_MODEL, mask("sk-1", "***"))
    await work(Agent("outer", model=outer, tools=[tool]), team={"guardrails": [guard]})
    assert outer.calls[1].results == ["the key is ***"]
    assert heard
    assert "sk-1" not in "".join(heard)


async def test_the_librarys_own_guardrails_work_and_block() -> None:
    @input_guardrail
    async def never(_context: Any, _agent: Any, _input: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    @output_guardrail
    async def nor_this(_context: Any, _agent: Any, _output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    for options, name in (({"input_guardrails": [never]}, "never"), ({"output_guardrails": [nor_this]}, "nor_this")):
        result, witness = await work(Agent("a", model=Scripted(["a secret"]), **options))
        assert witness.output is not None
        assert (witness.output.status, witness.output.text) == (kt.AgentStatus.BLOCKED, "")
        assert name in (witness.output.error or "")
        assert "a secret" not in repr(result)


# ---------------------------------------------------------------- tools


@dataclass
class Permit:
    """A permission guard that notes what it is asked and denies by name."""

    denied: str = ""

    def __post_init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any], str]] = []

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: str) -> PermissionDecision:
        self.asked.append((tool, dict(arguments), side_effect))
        return PermissionDecision.deny("not you") if tool == self.denied else PermissionDecision.allow()


async def test_a_refused_tool_call_is_a_result_the_model_can_read() -> None:
    permit = Permit(denied="look")
    model = Scripted([ask("look", at="x"), "then not"])
    result, witness = await work(
        Agent("a", model=model, tools=[look]),
        team={"permissions": kt.ToolPermissions(guard=permit)},
        side_effects={"look": "read"},
    )
    assert permit.asked == [("look", {"at": "x"}, "read")]
    assert "not you" in model.calls[1].results[0]
    assert (result.output, result.usage.tool_calls) == ("then not", 0)
    assert witness.output is not None
    assert witness.output.tool_calls_executed == 0


async def test_the_permission_guard_sees_the_tools_of_an_agent_used_as_a_tool() -> None:
    permit = Permit()
    inner = Agent("inner", model=Scripted([ask("look", at="x"), "ok"]), tools=[look])
    outer = Agent("outer", model=Scripted([ask("inner", input="go"), "ok"]), tools=[inner.as_tool("inner", "x")])
    await work(outer, team={"permissions": kt.ToolPermissions(guard=permit)})
    assert [(name, effect) for name, _, effect in permit.asked] == [("inner", "system"), ("look", "system")]


async def test_a_tool_that_is_never_allowed_is_not_offered() -> None:
    model = Scripted(["x"])
    role = kt.Role("m", allowed_tools=["other"])
    team = kt.Team("t", [kt.Member(role, OpenAIAgent(Agent("a", model=model, tools=[look])))])
    await kt.run(team, "g")
    assert model.calls[0].tools == []


async def test_a_tool_that_is_not_offered_may_be_asked_for_all_the_same() -> None:
    role = kt.Role("m", allowed_tools=["other"])
    model = Scripted([ask("look", at="x"), "then not"])
    team = kt.Team("t", [kt.Member(role, OpenAIAgent(Agent("a", model=model, tools=[look])))])
    assert (await kt.run(team, "g")).output == "then not"
    assert "look" in model.calls[1].results[0]


async def test_arguments_a_guardrail_changed_reach_the_tool() -> None:
    model = Scripted([ask("look", at="sk-1"), "ok"])
    guard = Guard(GuardrailPhase.PRE_TOOL, mask("sk-1", "***"))
    await work(Agent("a", model=model, tools=[look]), team={"guardrails": [guard]})
    assert model.calls[1].results == ["saw ***"]


async def test_a_result_stays_what_the_tool_returned_unless_it_is_changed() -> None:
    @function_tool
    async def picture() -> Any:
        """Paint."""
        return ToolOutputText(text="a picture with sk-1")

    for guardrails, wanted in (
        ([], [{"type": "input_text", "text": "a picture with sk-1"}]),
        ([Guard(GuardrailPhase.POST_TOOL, mask("sk-1", "***"))], "a picture with ***"),
    ):
        model = Scripted([ask("picture"), "ok"])
        await work(Agent("a", model=model, tools=[picture]), team={"guardrails": guardrails})
        result = model.calls[1].results[0]
        assert result == wanted if isinstance(wanted, list) else wanted in json.dumps(result)


async def test_a_failing_tool_tells_the_model_what_it_would_have_told_it_and_counts_as_failed() -> None:
    @function_tool(failure_error_function=lambda _context, error: f"sorry: {error}")
    async def broken() -> str:
        """Break."""
        raise ValueError("it fell")

    calls: list[Any] = []
    model = Scripted([ask("broken"), "ok"])
    runtime = kt.Runtime(subscribers=[calls.append])
    await work(Agent("a", model=model, tools=[broken]), team={"runtime": runtime})
    assert model.calls[1].results == ["sorry: it fell"]
    assert [event.outcome for event in calls if event.type == "tool.called"] == ["error"]


async def test_a_tool_whose_errors_are_to_end_the_run_ends_it() -> None:
    async def broken() -> str:
        """Break."""
        raise ValueError("it fell")

    model = Scripted(lambda call: "never" if call.results else ask("broken"))
    tool = function_tool(broken, failure_error_function=None)
    result, _ = await work(Agent("a", model=model, tools=[tool]))
    assert "it fell" in (result.error or "")


async def test_a_slow_tool_ends_at_its_own_timeout() -> None:
    @function_tool(timeout=2.0)
    async def slow() -> str:
        """Sleep."""
        await anyio.sleep(100)
        return "late"

    model = Scripted([ask("slow"), "ok"])
    result, _ = await work(Agent("a", model=model, tools=[slow]))
    assert model.calls[1].results == ["Tool 'slow' timed out after 2 seconds."]
    assert result.duration < 3


@pytest.mark.parametrize(("effect", "most"), [("read", 3), ("write", 1)])
async def test_tools_of_one_turn_that_only_read_run_side_by_side_and_others_one_by_one(effect: Any, most: int) -> None:
    at_work, peak = 0, 0

    @function_tool
    async def use() -> str:
        """Use."""
        nonlocal at_work, peak
        at_work += 1
        peak = max(peak, at_work)
        await anyio.sleep(1)
        at_work -= 1
        return "ok"

    model = Scripted([[ask("use"), ask("use"), ask("use")], "ok"])
    await work(Agent("a", model=model, tools=[use]), side_effects={"use": effect})
    assert peak == most


@pytest.mark.parametrize("arguments", ["{", "[1]", "NaN", '{"at": NaN}', "null", "{" * 5000, ""])
async def test_arguments_that_are_no_json_object_never_reach_the_tool(arguments: str) -> None:
    seen: list[str] = []

    async def invoke(_context: Any, said: str) -> str:
        seen.append(said)
        return "ran"

    tool = FunctionTool("raw", "", {"type": "object", "properties": {}}, invoke, strict_json_schema=False)
    wrong = ask("raw", arguments or " ")
    model = Scripted([wrong, "ok"])
    result, _ = await work(Agent("a", model=model, tools=[tool]))
    assert result.output == "ok"
    assert seen == ([] if arguments else [" "])


@pytest.mark.real_time
async def test_a_plain_function_is_a_tool_as_well_and_cannot_start_a_run_in_a_loop_of_its_own() -> None:
    @function_tool
    def plain() -> str:
        """Do."""
        return str(Runner.run_sync(Agent("x", model=Scripted(["x"])), "x").final_output)

    model = Scripted([ask("plain"), "ok"])
    result, _ = await work(Agent("a", model=model, tools=[plain]))
    assert result.output == "ok"
    assert "An error occurred" in model.calls[1].results[0]
    assert result.usage.tokens == 30


# ---------------------------------------------------------------- MCP servers and what runs elsewhere


class Library(MCPServer):
    """An MCP server that is asked in place."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[tuple[str, Any]] = []

    @property
    def name(self) -> str:
        return "library"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[McpTool]:
        return [McpTool(name="find.book", inputSchema={"type": "object", "properties": {"title": {"type": "string"}}})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        self.called.append((tool_name, arguments))
        return CallToolResult(content=[TextContent(type="text", text="found")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_tools_of_an_mcp_server_meet_the_mcp_policy_under_the_servers_own_names() -> None:
    for policy, offered in ((None, []), (McpPolicy(allowed=["library/find.book"]), ["find.book"])):
        permit, server = Permit(), Library()
        permissions = kt.ToolPermissions(guard=permit, mcp=policy)
        model = Scripted(lambda call: "done" if call.results or not call.tools else ask("find.book", title="Tides"))
        await work(Agent("a", model=model, mcp_servers=[server]), team={"permissions": permissions})
        assert model.calls[0].tools == offered
        assert server.called == [("find.book", {"title": "Tides"})] * len(offered)
        assert [name for name, *_ in permit.asked] == ["find_book"] * len(offered)


HOSTED = [
    WebSearchTool(),
    FileSearchTool(vector_store_ids=["v"]),
    CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}}),
    ImageGenerationTool(tool_config={"type": "image_generation"}),
    HostedMCPTool(tool_config={"type": "mcp", "server_label": "x", "server_url": "http://localhost"}),
]


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: type(tool).__name__)
async def test_a_tool_that_runs_at_the_provider_is_refused_unless_it_is_allowed(tool: Any) -> None:
    with pytest.raises(ValueError, match=r"runs at the provider, .* allow_hosted=True"):
        OpenAIAgent(Agent("a", tools=[tool]))
    model = Scripted(["x"])
    result, _ = await work(Agent("a", model=model, tools=[tool]), allow_hosted=True)
    assert result.output == "x"
    assert len(model.calls[0].tools) == 1


async def test_a_tool_the_library_runs_past_its_function_tools_is_refused_in_any_case() -> None:
    shell = LocalShellTool(executor=lambda _request: "ran")
    with pytest.raises(ValueError, match=r"agent 'a': the tool 'local_shell' .* write it as a function tool"):
        OpenAIAgent(Agent("a", tools=[shell]), allow_hosted=True)


def test_tools_are_looked_for_in_the_whole_graph() -> None:
    last = Agent("last", tools=[WebSearchTool()])
    middle = Agent("middle", handoffs=[handoff(last)])
    with pytest.raises(ValueError, match="agent 'last': the tool 'web_search'"):
        OpenAIAgent(Agent("first", tools=[middle.as_tool("m", "x")]))


async def test_a_tool_that_turns_up_while_it_runs_is_governed_or_refused_like_any_other() -> None:
    class Late(agents.AgentHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            agent.tools.append(WebSearchTool())

    model = Scripted(lambda call: "never" if call.results else ask("look", at="x"))
    result, _ = await work(Agent("a", model=model, tools=[look], hooks=Late()))
    assert "runs at the provider" in (result.error or "")


async def test_models_and_agents_that_a_hook_puts_in_while_it_runs_are_governed_or_refused() -> None:
    late = Scripted(["late"])

    class Swap(agents.AgentHooks[Any]):
        async def on_start(self, context: Any, agent: Any) -> None:
            agent.model = late

    class Grow(agents.AgentHooks[Any]):
        async def on_start(self, context: Any, agent: Any) -> None:
            agent.handoffs.append(Agent("b", model=late))

    class Sneak(agents.AgentHooks[Any]):
        async def on_start(self, context: Any, agent: Any) -> None:
            agent.handoffs.append(handoff(Agent("b", model=late)))

    for hooks in (Swap(), Grow()):
        result, _ = await work(Agent("a", model=Scripted([ask("transfer_to_b")]), hooks=hooks))
        assert (result.output, result.usage.loops) == ("late", len(result.outcomes) + isinstance(hooks, Grow))
    asked = len(late.calls)
    result, _ = await work(Agent("a", model=Scripted([ask("transfer_to_b")]), hooks=Sneak()))
    assert "'b', or its model, came into the run" in (result.error or "")
    assert len(late.calls) == asked


async def test_a_copy_of_a_governed_agent_is_governed_anew_in_this_attempt_and_in_the_next() -> None:
    kept: list[Agent[Any]] = []
    model = Scripted(["inside"])

    @function_tool
    async def copied(context: ToolContext[Any]) -> str:
        """Run a copy."""
        mine = kept[0] if kept else context.agent
        assert isinstance(mine, Agent)
        kept.append(mine)
        done = await Runner.run(mine.clone(model=model, tools=[]), "x")
        return str(done.final_output)

    agent = Agent("a", model=Scripted(lambda call: "ok" if call.results else ask("copied")), tools=[copied])
    for _ in range(2):
        result, _ = await work(agent)
        assert (result.output, result.usage.tokens, result.usage.loops) == ("ok", 45, 3)
    assert len(model.calls) == 2


async def test_a_prompt_the_provider_keeps_is_refused_unless_it_is_allowed() -> None:
    model = Scripted(["x"])
    agent = Agent("a", model=model, prompt={"id": "pmpt_1"})
    result, _ = await work(agent)
    assert "allow_hosted=True" in (result.error or "")
    assert model.calls == []
    assert (await work(agent, allow_hosted=True))[0].output == "x"


async def test_a_tool_that_waits_for_the_librarys_own_approval_blocks() -> None:
    tool = function_tool(_raises(ValueError("never run")), needs_approval=True)
    _, witness = await work(Agent("a", model=Scripted([["I must ask.", ask("spend")]]), tools=[tool]))
    assert witness.output is not None
    assert witness.output.status is kt.AgentStatus.BLOCKED
    assert "'spend'" in (witness.output.error or "")


# ---------------------------------------------------------------- what is asked


async def test_the_roles_instructions_stand_after_the_agents_own() -> None:
    async def own(_context: Any, _agent: Any) -> str:
        return "I am late."

    role = kt.Role("m", instructions="Be brief.")
    for instructions, wanted in (
        ("I am.", "I am.\n\nBe brief."),
        (own, "I am late.\n\nBe brief."),
        (lambda _context, _agent: "I am now.", "I am now.\n\nBe brief."),
        (None, "Be brief."),
    ):
        model = Scripted(["x"])
        agent = Agent("a", instructions=instructions, model=model)
        await kt.run(kt.Team("t", [kt.Member(role, OpenAIAgent(agent))]), "g")
        assert model.calls[0].system == wanted


async def test_prompt_and_context_may_be_made_for_each_run() -> None:
    seen: list[Any] = []

    @function_tool
    async def note(context: agents.RunContextWrapper[Any]) -> str:
        """Note."""
        seen.append(context.context)
        return "noted"

    def made(assignment: kt.Assignment, _context: kt.MemberContext) -> str:
        return f"for {assignment.task.id}"

    async def prompt(_assignment: kt.Assignment, _context: kt.MemberContext) -> Any:
        return [{"role": "user", "content": [{"type": "input_text", "text": "asked so"}]}]

    model = Scripted([ask("note"), "x"])
    await work(Agent("a", model=model, tools=[note]), prompt=prompt, context=made)
    assert seen == ["for m"]
    assert "asked so" in model.calls[0].text


async def test_alone_it_works_without_a_team() -> None:
    output = await OpenAIAgent(Agent("a", model=Scripted(["alone"]))).run("Do it.", budget=kt.Budget(tokens=9000))
    assert (output.text, output.usage.tokens) == ("alone", 15)


async def test_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[Any] = []
    provider = agents.tracing.get_trace_provider()
    monkeypatch.setattr(provider, "_multi_processor", _Recorder(spans))
    inner = Agent("inner", model=Scripted(["x"])).as_tool("inner", "x", run_config=RunConfig())
    await work(Agent("a", model=Scripted([ask("inner", input="x"), "x"]), tools=[inner]), run_config=RunConfig())
    assert spans == []


class _Recorder(agents.tracing.TracingProcessor):
    def __init__(self, spans: list[Any]) -> None:
        self._spans = spans

    def on_trace_start(self, trace: Any) -> None:
        self._spans.append(trace)

    def on_trace_end(self, trace: Any) -> None: ...

    def on_span_start(self, span: Any) -> None:
        self._spans.append(span)

    def on_span_end(self, span: Any) -> None: ...

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


class Names(ModelProvider):
    """Knows one model by name."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> Model:
        if model_name != "known":
            raise ValueError(f"nobody knows {model_name}")
        return self._model


async def test_a_model_by_name_is_the_providers_and_governed() -> None:
    for agent_model, run_model in (("known", None), (Scripted(["never"]), "known"), (None, Scripted(["x"]))):
        model = run_model if isinstance(run_model, Scripted) else Scripted(["x"])
        config = RunConfig(model=run_model, model_provider=Names(model))
        result, _ = await work(Agent("a", model=agent_model), run_config=config)
        assert (result.output, result.usage.tokens, len(model.calls)) == ("x", 15, 1)


async def test_a_model_that_is_not_to_be_had_is_refused_before_work_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    unknown = OpenAIAgent(Agent("a", model="x"), run_config=RunConfig(model_provider=Names(Scripted(["x"]))))
    for agent, why in ((unknown, "nobody knows x"), (OpenAIAgent(Agent("a")), "OPENAI_API_KEY")):
        check = kt.check(kt.Team("t", [kt.Member("m", agent)]), "g")
        assert not check.ok
        assert why in str(check.problems)


def client(answer: Any) -> AsyncOpenAI:
    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return AsyncOpenAI(api_key="none", base_url="http://localhost/v1", http_client=transport)


@pytest.mark.real_time
@pytest.mark.parametrize(("status", "tries", "charged"), [(429, 3, False), (500, 3, True), (400, 1, False)])
@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
async def test_kf_b13_a_call_is_tried_again_by_the_governed_model_alone_and_each_try_is_told(
    status: int, tries: int, charged: bool, kind: Any
) -> None:
    asked: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(status, json={"error": {"message": "later"}}, headers={"retry-after-ms": "1"})

    told: list[Any] = []
    witness = Witness(OpenAIAgent(Agent("a", model=kind("m", client(answer)))))
    runtime = kt.Runtime(subscribers=[told.append], model_retry=kt.ModelRetry(backoff=0.0))
    coordinator = ExpertTeamCoordinator(failure_policy=FailurePolicy(retries=0))
    team = kt.Team("t", [kt.Member("m", witness)], runtime=runtime, coordinator=coordinator)
    result = await kt.run(team, "g", budget=kt.Budget(tokens=100_000))
    assert len(asked) == tries == sum(event.type == "model.called" for event in told)
    assert (result.usage.tokens > 0) is charged
    assert isinstance(witness.raised, APIStatusError)


@pytest.mark.real_time
async def test_what_the_providers_client_says_of_a_call_is_what_is_booked() -> None:
    usage = {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 25}
    reply = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
        "usage": usage | {"prompt_tokens_details": {"cached_tokens": 20}},
    }
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=reply)

    model = OpenAIChatCompletionsModel("m", client(answer))
    settings = ModelSettings(extra_body={"max_completion_tokens": 99_999, "n": 3})
    result, _ = await work(Agent("a", model=model, model_settings=settings), budget=kt.Budget(tokens=600))
    assert (result.output, result.usage.prompt_tokens, result.usage.completion_tokens) == ("hello", 21, 4)
    assert sent[0]["max_tokens"] < 600
    assert sent[0]["max_completion_tokens"] == sent[0]["max_tokens"]
    assert sent[0]["n"] == 1


# ---------------------------------------------------------------- a wrong object


@pytest.mark.parametrize(
    ("agent", "options", "why"),
    [
        ("a", {}, "wraps an agents.Agent, not 'a'"),
        (Agent, {}, "wraps an agents.Agent, not <class"),
        (None, {"prompt": "text"}, "a function of assignment and context"),
        (None, {"run_config": {}}, "must be an agents.RunConfig"),
        (None, {"max_turns": 0}, "at least 1"),
        (None, {"max_turns": 1.5}, "whole number"),
        (None, {"side_effects": {"look": "maybe"}}, "'look' must be one of read, write, system, not 'maybe'"),
        (None, {"side_effects": ["look"]}, "a mapping of tool names"),
    ],
)
def test_a_wrong_object_is_refused_at_once(agent: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        OpenAIAgent(agent or Agent("a"), **options)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.agents.openai_agents.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'openai-agents': pip install"):
        OpenAIAgent(Agent("a"))


@pytest.mark.parametrize("anyio_backend", [virtual_time("trio")], ids=["trio"])
async def test_on_another_event_loop_it_says_so() -> None:
    result, _ = await work(Agent("a", model=Scripted(["x"])))
    assert "on asyncio alone" in (result.error or "")


# ---------------------------------------------------------------- over HTTP, to the embedded model


@pytest.mark.local_model
async def test_a_real_model_behind_openais_client_is_held_capped_and_booked() -> None:
    from kairo_team.models import local

    engine = local._engine("local:smollm2")
    address = f"{engine._server.listening_address}/v1"
    async with AsyncOpenAI(api_key=engine._key, base_url=address) as there:
        model = OpenAIChatCompletionsModel("smollm2", there)
        agent = Agent("a", model=model, model_settings=ModelSettings(max_tokens=8, temperature=0))
        result, witness = await work(agent, budget=kt.Budget(tokens=2000))
    assert (result.output or "").strip()
    assert 0 < result.usage.completion_tokens <= 8
    assert 0 < result.usage.prompt_tokens < 2000
    assert witness.output is not None
    assert witness.output.artifact.partial
