"""`OpenAIAgent`: the real library with a scripted model behind it, under our budget, guardrails and permissions."""

from __future__ import annotations

import copy
from typing import Any

import anyio
import anyio.lowlevel
import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

import agents
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    handoff,
    input_guardrail,
)
from pydantic import BaseModel

import kairo_team as kt
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.errors import ConstraintExit, GuardrailDenied, HaltError, InsufficientBudget, MissingExtra
from kairo_team.testing import virtual_time
from tests.agents.loops import asyncio_alone
from tests.agents.openai_double import Scripted, ask, look, raising, work

pytestmark = pytest.mark.anyio
anyio_backend = asyncio_alone


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
    agent: Agent[Any] = Agent("a", model=model, tools=[helper], input_guardrails=[judged])
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
    function = function_tool(raising(error)) if handled else function_tool(raising(error), failure_error_function=None)
    model = Scripted(lambda call: "never said" if call.results else ask("spend"))
    _, witness = await work(Agent("a", model=model, tools=[function]))
    assert witness.raised is error
    assert not any(call.results for call in model.calls)


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


# ---------------------------------------------------------------- what is asked


async def test_the_roles_instructions_stand_after_the_agents_own() -> None:
    async def own(_context: Any, _agent: Any) -> str:
        return "I am late."

    def at_once(_context: Any, _agent: Any) -> str:
        return "I am now."

    role = kt.Role("m", instructions="Be brief.")
    for instructions, wanted in (
        ("I am.", "I am.\n\nBe brief."),
        (own, "I am late.\n\nBe brief."),
        (at_once, "I am now.\n\nBe brief."),
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
