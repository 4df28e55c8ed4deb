"""`PydanticAIAgent`: a pydantic-ai agent as a member: what it is told, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, NativeOutput, PromptedOutput, RunContext, UsageLimits
from pydantic_ai import messages as native
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.tools import Tool

import kairo_team as kt
from kairo_team import events
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.governance import GuardrailDecision, GuardrailPhase
from kairo_team.models.resolver import ModelResolver
from kairo_team.testing import run_in_virtual_time, virtual_time
from kairo_team.testing.clocks import Backend
from tests.agents.pydantic_ai_double import Weather, model, prompt_of, reports, says
from tests.agents.rig_pydantic_ai import PydanticAIRig
from tests.agents.rigs import Ask, Reply
from tests.agents.stage import ROLE, Counter, Policy, Stage

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run on asyncio, as the library does; with the embedded model, in real time."""
    return ("asyncio", {}) if request.node.get_closest_marker("local_model") else virtual_time("asyncio")


# ---------------------------------------------------------------- what the agent is told


async def test_the_agent_is_told_its_own_instructions_the_roles_and_the_task() -> None:
    heard: list[Any] = []

    def answer(messages: list[native.ModelMessage], info: AgentInfo) -> native.ModelResponse:
        heard.append((info.instructions, prompt_of(messages)))
        return native.ModelResponse([native.TextPart("done")])

    stage = Stage(PydanticAIAgent(Agent(model(answer), instructions="You are kind.")))
    await stage.run(kt.Budget(loops=3))
    ((instructions, prompt),) = heard
    assert instructions == "You are kind.\n\nBe brief."
    assert "Goal of the team: goal" in prompt
    assert "Your task: Do it." in prompt


async def test_a_prompt_function_and_deps_are_made_for_each_run() -> None:
    def deps_for(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return f"{context.role.id} {assignment.task.id}"

    heard: list[str] = []

    def answer(messages: list[native.ModelMessage], info: AgentInfo) -> native.ModelResponse:
        heard.append(f"{prompt_of(messages)} / {info.instructions}")
        return native.ModelResponse([native.TextPart("done")])

    agent = Agent(model(answer), deps_type=str)

    @agent.instructions
    async def who(ctx: RunContext[str]) -> str:
        return f"deps {ctx.deps}"

    wrapped = PydanticAIAgent(agent, deps=deps_for, prompt=lambda assignment, _: assignment.task.id.upper())
    await Stage(wrapped).run(tasks=2)
    assert sorted(heard) == ["T0 / Be brief.\n\ndeps worker t0", "T1 / Be brief.\n\ndeps worker t1"]


class Bell:
    def __call__(self) -> None:
        raise AssertionError("deps are a value, also where they can be called")


async def test_a_value_is_given_as_deps_as_it_is() -> None:
    agent = Agent(says("done"), deps_type=Bell)
    seen: list[Bell] = []

    @agent.instructions
    async def note(ctx: RunContext[Bell]) -> str:
        seen.append(ctx.deps)
        return "none"

    bell = Bell()
    await Stage(PydanticAIAgent(agent, deps=bell)).run()
    assert seen == [bell]


# ---------------------------------------------------------------- what comes back


async def test_a_structured_answer_is_the_artifacts_data() -> None:
    stage = Stage(PydanticAIAgent(Agent(reports(town="Bonn", degrees=7), output_type=Weather)))
    result = await stage.run()
    artifact = result.outcomes[0].artifact
    assert artifact is not None
    assert artifact.data == {"town": "Bonn", "degrees": 7}
    assert artifact.data_as(Weather) == Weather(town="Bonn", degrees=7)
    assert Weather.model_validate_json(artifact.text) == Weather(town="Bonn", degrees=7)
    assert artifact.media_type == "application/json"
    assert stage.output.tool_calls_executed == 0


@pytest.mark.parametrize("kind", [Weather, Weather.model_json_schema()], ids=["a type", "a schema"])
async def test_an_agent_of_plain_text_is_asked_for_the_tasks_output_type(kind: Any) -> None:
    stage = Stage(PydanticAIAgent(Agent(reports(town="Bonn", degrees=7))), team={"output_types": {"weather": kind}})
    result = await stage.run(output_type="weather")
    artifact = result.outcomes[0].artifact
    assert artifact is not None
    assert artifact.data == {"town": "Bonn", "degrees": 7}
    assert result.status is kt.TeamStatus.COMPLETED


async def test_an_agent_that_checks_its_own_text_is_asked_for_nothing_else() -> None:
    agent = Agent(says('{"town": "Bonn", "degrees": 7}'))

    @agent.output_validator
    async def keep(text: str) -> str:
        return text

    stage = Stage(PydanticAIAgent(agent), team={"output_types": {"weather": Weather}})
    result = await stage.run(output_type="weather")
    assert result.outcomes[0].artifact is not None
    assert result.outcomes[0].artifact.data == {"town": "Bonn", "degrees": 7}


@pytest.mark.parametrize("output", [NativeOutput(Weather), PromptedOutput(Weather)], ids=["native", "prompted"])
async def test_every_way_to_ask_for_a_structure_works(output: Any) -> None:
    stage = Stage(PydanticAIAgent(Agent(says('{"town": "Bonn", "degrees": 7}'), output_type=output)))
    result = await stage.run()
    assert result.outcomes[0].artifact is not None
    assert result.outcomes[0].artifact.data == {"town": "Bonn", "degrees": 7}


async def test_the_output_has_the_conversation_and_the_counts() -> None:
    look = Counter()
    rig = PydanticAIRig([Reply("let me see", [Ask("look", "x")]), Reply("done")], [look.tool()])
    stage = Stage(rig.agent())
    await stage.run()
    output = stage.output
    assert (output.status, output.turns_completed, output.max_turns) == (kt.AgentStatus.COMPLETED, 2, 50)
    roles = [message.role for message in output.transcript]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert output.transcript[3].text == "found x"


async def test_kf_b13_an_answer_that_is_refused_and_given_again_is_booked_twice() -> None:
    """B13: retries, planner, selector or judge calls not counted."""
    agent = Agent(says("short", "long enough"), retries=3)

    @agent.output_validator
    async def check(text: str) -> str:
        if text == "short":
            raise ModelRetry("longer, please")
        return text

    result = await Stage(PydanticAIAgent(agent)).run()
    assert (result.output, result.usage.tokens, result.usage.loops) == ("long enough", 30, 2)


async def test_the_agents_own_limits_end_it_with_what_was_said() -> None:
    look = Counter()
    rig = PydanticAIRig([Reply("one", [Ask("look", "x")]), Reply("two", [Ask("look", "y")])], [look.tool()])
    agent = PydanticAIAgent(rig.agent().agent, usage_limits=UsageLimits(request_limit=2))
    stage = Stage(agent)
    result = await stage.run(risk_profile=kt.RiskProfile.LOW)
    output = stage.output
    assert (output.status, output.turns_completed, output.max_turns) == (kt.AgentStatus.TURN_LIMIT_REACHED, 2, 2)
    assert output.text == "one\n\ntwo"
    assert "request_limit" in (output.error or "")
    assert result.outcomes[0].artifact is not None
    assert result.outcomes[0].artifact.partial


async def test_an_agent_that_waits_for_an_approval_is_blocked() -> None:
    asks = model(lambda _, __: native.ModelResponse([native.ToolCallPart("pay", {"sum": 3}, "c1")]))

    def pay(sum: int) -> str:
        raise AssertionError("nobody approved")

    agent = Agent(asks, tools=[Tool(pay, requires_approval=True)], output_type=[str, DeferredToolRequests])
    stage = Stage(PydanticAIAgent(agent))
    result = await stage.run()
    assert stage.output.status is kt.AgentStatus.BLOCKED
    assert result.outcomes[0].status is kt.TaskStatus.FAILED
    assert "waits for an approval or an outside answer to its calls of 'pay'" in (result.outcomes[0].error or "")


# ---------------------------------------------------------------- one agent, many runs


async def test_kf_t12_two_tasks_at_once_never_mix_and_the_agent_stays_as_it_was() -> None:
    """T12: two parallel tasks shared one agent instance; tool limits swapped on it by reflection."""
    rig = PydanticAIRig(lambda number: Reply(f"reply {number}", seconds=1))
    wrapped = rig.agent()
    agent = wrapped.agent
    before: dict[str, Any] = dict(vars(agent))
    stage = Stage(wrapped)
    result = await stage.run(tasks=2)
    assert [outcome.usage.tokens for outcome in result.outcomes] == [15, 15]
    assert {outcome.artifact.text for outcome in result.outcomes if outcome.artifact} == {"reply 0", "reply 1"}
    assert vars(agent) == before

    looks = [Counter(), Counter()]
    tools = [looks[0].tool("look"), looks[1].tool("write", "write")]
    rig = PydanticAIRig([Reply("x", [Ask("look", "a")]), Reply("done")], tools)
    shared = rig.agent()
    reader, writer = kt.Role("reader", allowed_tools=["look"]), kt.Role("writer", allowed_tools=["write"])
    team = kt.Team("team", [kt.Member(reader, shared), kt.Member(writer, shared)])
    plan = kt.TaskGraph([kt.Task("r", "Read.", role="reader"), kt.Task("w", "Write.", role="writer")])
    await kt.run(team, kt.TeamExecutionRequest("goal", plan=plan))
    assert {asked.tools for asked in rig.asked} == {("look",), ("write",)}


@dataclass
class Desk:
    """What a tool needs to hand a task on."""

    assignment: kt.Assignment
    context: kt.MemberContext


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_kf_b02_an_agent_in_an_agents_tool_counts_on_the_same_tree(limit: int) -> None:
    """B02: each nested agent got a fresh counter: limit 3, 120 child calls."""
    inner = PydanticAIRig([Reply("inner says", [Ask("look", "x")]), Reply("inner done")], [Counter().tool()])
    outer = PydanticAIRig(lambda _: Reply("outer", [Ask("ask_inner")]))

    async def ask_inner(ctx: RunContext[Desk], text: str) -> str:
        """Ask the other agent."""
        output: kt.AgentOutput = await inner.agent().run(ctx.deps.assignment, ctx.deps.context)
        return output.text

    agent = Agent(outer.model(), deps_type=Desk, tools=[ask_inner])
    stage = Stage(PydanticAIAgent(agent, deps=partial(Desk)))
    result = await stage.run(kt.Budget(loops=limit))
    assert len(inner.told) + len(outer.told) == limit
    assert (result.usage.loops, result.usage.tokens) == (limit, 15 * limit)
    assert result.halt is kt.HaltReason.LOOP_BUDGET_EXCEEDED
    (error,) = stage.raised
    assert type(error) is kt.HaltError


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "options", "complaint"),
    [
        ("openai:gpt-5", {}, "PydanticAIAgent wraps a pydantic_ai.Agent, not 'openai:gpt-5'"),
        (Agent, {}, "PydanticAIAgent wraps a pydantic_ai.Agent, an agent that is ready, not its class"),
        (None, {}, "PydanticAIAgent wraps a pydantic_ai.Agent, not None"),
        (Agent(), {"prompt": "Go."}, "PydanticAIAgent.prompt is a function of assignment and context, not 'Go.'"),
        (Agent(), {"toolsets": [len]}, "holds pydantic-ai toolsets, such as FunctionToolset, not <built-in function"),
        (Agent(), {"toolsets": 3}, "PydanticAIAgent.toolsets is a list of pydantic-ai toolsets, not 3"),
    ],
)
def test_a_wrong_object_is_refused_with_what_is_wanted(given: Any, options: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match="PydanticAIAgent") as caught:
        PydanticAIAgent(given, **options)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("agent", "budget", "problem"),
    [
        (PydanticAIAgent(Agent(says("x"))), kt.Budget(), None),
        (PydanticAIAgent(Agent(), model=says("x")), kt.Budget(), None),
        (PydanticAIAgent(Agent()), kt.Budget(), "it has no model: Agent('openai:...')"),
        (PydanticAIAgent(Agent("nobody:x", defer_model_check=True)), kt.Budget(), "its model 'nobody:x' is not"),
        (PydanticAIAgent(Agent(says("x"))), kt.Budget(loops=0), "it needs at least 1 loop, the budget allows 0"),
    ],
)
def test_an_agent_that_could_not_work_says_so_before(agent: PydanticAIAgent, budget: kt.Budget, problem: Any) -> None:
    found = agent.preflight(ROLE, ModelResolver(), budget)
    assert len(found) == (problem is not None)
    assert problem is None or found[0].startswith(problem)


def test_on_another_event_loop_the_attempt_fails_with_a_sentence() -> None:
    async def main() -> kt.TeamResult:
        return await Stage(PydanticAIAgent(Agent(says("x")))).run()

    result = run_in_virtual_time(main, backend="trio")
    assert "pydantic-ai runs its agents on asyncio alone" in (result.outcomes[0].error or "")


async def test_it_runs_alone() -> None:
    output = await PydanticAIAgent(Agent(says("done"))).run("Do it.", budget=kt.Budget(tokens=5000))
    assert (output.text, output.status, output.usage.tokens) == ("done", kt.AgentStatus.COMPLETED, 15)
    assert repr(PydanticAIAgent(Agent(says("x"), name="desk"))) == "PydanticAIAgent('desk')"


async def test_what_the_provider_does_by_itself_is_not_seen() -> None:
    """Tools that run at the provider are only in the reply: no hook of the library sees them beforehand."""
    parts: list[native.ModelResponsePart] = [
        native.NativeToolCallPart("web_search", {"query": "tides"}, "n1"),
        native.NativeToolReturnPart("web_search", "the moon", "n1"),
        native.TextPart("It is the moon."),
    ]
    stage = Stage(
        PydanticAIAgent(Agent(model(lambda *_: native.ModelResponse(parts)))),
        team={"guardrails": [Policy(GuardrailPhase.PRE_TOOL, lambda _: GuardrailDecision.deny("no"))]},
    )
    result = await stage.run()
    assert result.output == "It is the moon."
    assert stage.recorder.of(events.ToolCalled) == []
    assert result.usage.tokens == 15


async def test_a_kill_in_the_middle_of_a_request_leaves_nothing_behind() -> None:
    rig = PydanticAIRig([Reply("late", seconds=1000)])

    async def stop(context: kt.MemberContext) -> None:
        await anyio.sleep(3)
        context.governor.cancel()

    contexts: list[kt.MemberContext] = []
    wrapped = PydanticAIAgent(rig.agent().agent, deps=lambda _, context: contexts.append(context))
    stage = Stage(wrapped)
    async with anyio.create_task_group() as group:

        async def run() -> None:
            result = await stage.run()
            assert result.outcomes[0].status is not kt.TaskStatus.COMPLETED

        group.start_soon(run)
        await anyio.sleep(1)
        group.start_soon(stop, contexts[0])
    assert rig.in_flight == 0


@pytest.mark.local_model
async def test_it_works_with_a_real_model_behind_a_real_client() -> None:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from kairo_team.models.local import LocalModel, _engine

    await LocalModel().complete(kt.ModelRequest([kt.Message.user("hi")], max_tokens=1))
    engine = _engine("local:smollm2")
    provider = OpenAIProvider(base_url=f"{engine._server.listening_address}/v1", api_key=engine._key)
    agent = Agent(OpenAIChatModel("smollm2", provider=provider), model_settings={"temperature": 0.0, "seed": 1})
    stage = Stage(PydanticAIAgent(agent, prompt=lambda *_: "Name three colours."))
    async with agent:
        result = await stage.run(kt.Budget(tokens=200))
    assert result.status is kt.TeamStatus.COMPLETED
    assert result.output
    assert 0 < result.usage.prompt_tokens < 60
    (called,) = stage.recorder.of(events.ModelCalled)
    assert (called.model, called.outcome) == ("openai:smollm2", "ok")
    assert called.usage.completion_tokens <= 200 - called.usage.prompt_tokens
