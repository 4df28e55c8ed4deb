"""What a hostile model, tool, guardrail or clock does to a wrapped agent: every wrapper stands all of it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance import GuardrailPhase
from tests.agents.rigs import Ask, Reply, Rig, RigTool, each_rig
from tests.agents.stage import ROLE, Counter, Spy, Stage, replacing

pytestmark = pytest.mark.anyio


every_wrapper = pytest.mark.parametrize("make", each_rig())
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
ODD: dict[str, Any] = {
    "none": None,
    "an object": object(),
    "bytes": b"\xff\x00",
    "no number": float("nan"),
    "a set in a mapping": {"a": {1}, 2: "b"},
    "half a character": "a\ud800b",
    "five million characters": "y" * 5_000_000,
    "a list in itself": ENDLESS,
    "an exception": ValueError("not raised"),
}


def nothing_is_held(result: kt.TeamResult) -> bool:
    def all_of(node: Any) -> bool:
        return node.held.tokens == 0 and all(all_of(child) for child in node.children)

    return result.budget is not None and all_of(result.budget)


@every_wrapper
async def test_a_budget_of_one_token_asks_no_model(make: type[Rig]) -> None:
    rig = make([Reply("never")])
    stage = Stage(rig.agent())
    result = await stage.run(kt.Budget(tokens=1))
    assert (rig.asked, result.usage.tokens) == ([], 0)
    assert [type(error) for error in stage.raised] in ([kt.InsufficientBudget], [kt.HaltError], [])
    assert result.status is not kt.TeamStatus.COMPLETED
    assert nothing_is_held(result)


@every_wrapper
async def test_alone_it_is_given_its_budget_and_no_more(make: type[Rig]) -> None:
    rig = make([Reply("word " * 5000, completion_tokens=5000)])
    output = await rig.agent().run("Explain tides.", budget=kt.Budget(tokens=900), role=ROLE)
    (asked,) = rig.asked
    assert "Explain tides." in asked.text
    assert asked.max_tokens is not None
    assert output.usage.tokens <= 900
    output = await make([Reply("never")]).agent().run("Explain tides.", budget=kt.Budget(tokens=1))
    assert (output.status, output.usage.tokens) == (kt.AgentStatus.HALTED, 0)


@every_wrapper
async def test_with_a_context_it_wants_an_assignment(make: type[Rig]) -> None:
    class Clumsy:
        async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
            return await agent.run("a text", context)

    agent = make([Reply("never")]).agent()
    result = await Stage(Clumsy()).run()
    assert "takes an Assignment, not the string 'a text'" in (result.outcomes[0].error or "")


@every_wrapper
async def test_one_agent_object_in_two_members_and_two_runs_at_once_is_four_governed_agents(make: type[Rig]) -> None:
    rig = make([Reply("fine", prompt_tokens=40, completion_tokens=40, seconds=1)])
    agent, results = rig.agent(), list[kt.TeamResult]()

    async def run(tokens: int) -> None:
        team = kt.Team("team", [kt.Member("one", agent), kt.Member("two", agent)])
        plan = kt.TaskGraph([kt.Task("a", "Do a.", member="one"), kt.Task("b", "Do b.", member="two")])
        request = kt.TeamExecutionRequest("g", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=tokens)))
        results.append(await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0)).execute(request, team))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, 100_000)
        tasks.start_soon(run, 1)
    poor, rich = sorted(results, key=lambda result: result.usage.tokens)
    assert (poor.usage.tokens, rich.usage.tokens, len(rig.asked)) == (0, 160, 2)
    assert rich.status is kt.TeamStatus.COMPLETED
    assert nothing_is_held(poor)
    assert nothing_is_held(rich)


@every_wrapper
@pytest.mark.parametrize("where", ["model", "tool"])
@pytest.mark.parametrize("what", ["deadline", "timeout", "kill"])
async def test_nothing_is_left_of_a_call_that_is_cut_off(make: type[Rig], where: str, what: str) -> None:
    ended: list[str] = []

    async def wait(text: str) -> str:
        try:
            await anyio.sleep(1000)
        finally:
            ended.append(text)
        return "late"

    slow = Reply("late", seconds=1000)
    rig = make([Reply("so far", [Ask("wait", "x")]), slow] if where == "tool" else [slow], [RigTool("wait", wait)])
    stage = Stage(rig.agent())
    with anyio.fail_after(100):
        if what == "kill":
            result = await _killed(stage)
        elif what == "timeout":
            result = await stage.run(task_timeout=2.0)
        else:
            result = await stage.run(kt.Budget(seconds=2))
    await anyio.sleep(1)
    assert (rig.in_flight, ended) == (0, ["x"] if where == "tool" else [])
    assert result.status is not kt.TeamStatus.COMPLETED
    assert len(rig.asked) == 1
    assert nothing_is_held(result)


async def _killed(stage: Stage) -> kt.TeamResult:
    results: list[kt.TeamResult] = []

    async def run() -> None:
        results.append(await stage.run(kt.Budget(tokens=10_000)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.sleep(2)
        (handle,) = stage.live.runs.values()
        handle.cancel()
    return results[0]


@every_wrapper
async def test_arguments_of_an_earlier_call_that_a_guardrail_changes_are_said_changed(make: type[Rig]) -> None:
    """`map_text` changes arguments, too: what was masked must not go out beside the masked text."""
    look = Counter()
    rig = make([Reply("the word is sesame", [Ask("look", "sesame")]), Reply("done")], [look.tool()])
    mask = replacing(GuardrailPhase.PRE_MODEL, "sesame", "[hidden]")
    result = await Stage(rig.agent(), team={"guardrails": [mask]}).run()
    assert result.output == "done"
    assert "[hidden]" in rig.asked[1].text
    assert "sesame" not in rig.asked[1].text


@every_wrapper
async def test_arguments_a_guardrail_changes_in_a_reply_reach_the_tool_changed(make: type[Rig]) -> None:
    look = Counter()
    rig = make([Reply("the word is sesame", [Ask("look", "sesame")]), Reply("done")], [look.tool()])
    mask = replacing(GuardrailPhase.POST_MODEL, "sesame", "[hidden]")
    result = await Stage(rig.agent(), team={"guardrails": [mask]}).run()
    assert (result.output, look.calls) == ("done", ["[hidden]"])
    assert "sesame" not in rig.asked[1].text


@every_wrapper
async def test_a_model_that_says_it_used_nothing_is_charged_its_hold(make: type[Rig]) -> None:
    if make.name in ("MiniAgent", "PydanticAIAgent"):
        pytest.skip("a model of ours that says 0 means it, and pydantic-ai's FunctionModel says something else")
    rig = make([Reply("fine", prompt_tokens=0, completion_tokens=0)])
    result = await Stage(rig.agent()).run(kt.Budget(tokens=3_000))
    assert result.usage.tokens > 100
    assert nothing_is_held(result)


@every_wrapper
@pytest.mark.parametrize(
    "text", ["", "\x00", "א\u202e\U0001f600", "a\ud800b", "y" * 1_000_000], ids=["empty", "nul", "odd", "half", "huge"]
)
async def test_any_text_comes_through_or_is_an_error_the_model_can_read(make: type[Rig], text: str) -> None:
    async def give(asked: str) -> str:
        return asked

    rig = make([Reply(text, [Ask("give", text)]), Reply(text or "fine")], [RigTool("give", give)])
    result = await Stage(rig.agent()).run()
    assert len(rig.asked) == 2, result.outcomes[0].error
    assert nothing_is_held(result)


@every_wrapper
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
async def test_whatever_a_tool_returns_the_model_hears_of_it(make: type[Rig], value: Any) -> None:
    async def give(_text: str) -> Any:
        return value

    rig = make([Reply("first", [Ask("give", "x")]), Reply("done")], [RigTool("give", give)])
    result = await Stage(rig.agent()).run()
    assert (result.output, len(rig.asked)) == ("done", 2), result.outcomes[0].error
    assert nothing_is_held(result)


@every_wrapper
async def test_a_second_attempt_on_the_same_object_starts_anew(make: type[Rig]) -> None:
    rig = make(lambda number: Reply("fine", error=RuntimeError("broken")) if number == 0 else Reply("fine"))
    stage = Stage(rig.agent())
    team = kt.Team("team", [kt.Member("m", Spy(stage.agent, stage))])
    request = kt.TeamExecutionRequest("g", plan=kt.TaskGraph([kt.Task("t", "Do it.")]))
    result = await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=1, backoff=0)).execute(request, team)
    assert (result.output, len(rig.asked), len(stage.raised)) == ("fine", 2, 1)
    assert "broken" in repr(stage.raised[0])
    assert stage.output.usage.tokens == 15
    assert nothing_is_held(result)


@every_wrapper
async def test_an_agent_that_runs_alone_in_a_tool_is_of_its_own_budget_and_leaves_the_outer_one_governed(
    make: type[Rig],
) -> None:
    inner = make([Reply("inside", prompt_tokens=7, completion_tokens=2)])

    async def think(text: str) -> str:
        output = await inner.agent().run(text, budget=kt.Budget(tokens=5_000))
        return str(output.artifact.text)

    rig = make([Reply("first", [Ask("think", "x")]), Reply("done")], [RigTool("think", think)])
    result = await Stage(rig.agent()).run(kt.Budget(tokens=20_000))
    assert (result.output, result.usage.tokens, len(inner.told)) == ("done", 30, 1)
    assert "inside" in rig.asked[1].text
    assert nothing_is_held(result)


@every_wrapper
async def test_a_halt_in_the_middle_of_a_nested_team_ends_both(make: type[Rig]) -> None:
    inner = make([Reply("late", seconds=1000)])

    async def delegate(text: str) -> str:
        return str((await inner.agent().run(text)).artifact.text)

    rig = make([Reply("so far", [Ask("delegate", "x")]), Reply("never")], [RigTool("delegate", delegate)])
    result = await Stage(rig.agent()).run(kt.Budget(seconds=2))
    await anyio.sleep(1)
    assert result.halt is kt.HaltReason.TIME_BUDGET_EXCEEDED
    assert (len(rig.asked), inner.in_flight, inner.told) == (1, 0, [])
    artifact = result.outcomes[0].artifact
    assert artifact is not None
    assert "so far" in artifact.text
    assert nothing_is_held(result)


@every_wrapper
async def test_an_answer_that_is_not_of_the_tasks_type_never_completes(make: type[Rig]) -> None:
    rig = make([Reply("no JSON at all")])
    stage = Stage(rig.agent(), team={"output_types": {"figures": {"type": "object", "required": ["sales"]}}})
    result = await stage.run(kt.Budget(tokens=100_000), output_type="figures")
    assert result.status is not kt.TeamStatus.COMPLETED
    assert 1 <= len(rig.asked) <= 10
    assert nothing_is_held(result)


@every_wrapper
@pytest.mark.parametrize(("budget", "lacks"), [(kt.Budget(loops=0), "at least 1 loop"), (kt.Budget(tokens=0), "token")])
async def test_a_turn_that_may_not_be_taken_is_refused_before_anything_starts(
    make: type[Rig], budget: kt.Budget, lacks: str
) -> None:
    rig = make([Reply("never")])
    result = await kt.run(kt.Team("team", [kt.Member("m", rig.agent())]), "g", budget=budget)
    assert result.refused
    assert lacks in (result.error or "")
    assert rig.asked == []


@pytest.mark.parametrize("make", each_rig("MiniAgent"))
async def test_a_prompt_is_what_the_agent_is_asked_however_it_is_made(make: type[Rig]) -> None:
    async def later(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return f"Now: {assignment.task.description}"

    rig = make([Reply("fine")])
    agent = rig.agent()
    wrapped = getattr(agent, "graph", None) or agent.agent
    result = await Stage(type(agent)(wrapped, prompt=later)).run()
    assert result.output == "fine"
    assert "Now: Do it." in rig.asked[0].text
    assert "Goal" not in rig.asked[0].text
    with pytest.raises(ValueError, match=f"{make.name}.prompt is a function of assignment and context, not 'Now'"):
        type(agent)(wrapped, prompt="Now")


@pytest.mark.parametrize("make", each_rig("MiniAgent"))
@pytest.mark.parametrize("thing", [None, "agent", 5, object])
async def test_a_wrong_object_is_refused_in_the_same_words(make: type[Rig], thing: Any) -> None:
    with pytest.raises(ValueError, match=f"{make.name} wraps an? "):
        type(make([]).agent())(thing)
