"""Guardrails at work in a run: four boundaries, planner and judge calls too, and every failure denies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.governance.guardrails import (
    GuardrailAction,
    GuardrailContext,
    GuardrailDecision,
    GuardrailPhase,
)
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel

pytestmark = pytest.mark.anyio

Decide = Callable[[GuardrailContext], GuardrailDecision]


class Rule:
    """Decides as it is told, in the phases it is told, and remembers what it saw."""

    def __init__(self, decide: Decide | GuardrailDecision, *phases: GuardrailPhase, name: str = "rule") -> None:
        self.name = name
        self.phases = frozenset(phases or GuardrailPhase)
        self.seen: list[GuardrailContext] = []
        self._decide = decide

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        self.seen.append(context)
        return self._decide if isinstance(self._decide, GuardrailDecision) else self._decide(context)


DENY = GuardrailDecision.deny("no")
ran: list[str] = []


@kt.tool(side_effect="read")
async def look(query: str) -> str:
    """Look something up."""
    ran.append(query)
    return f"found {query}"


def asking(text: str = "") -> kt.ModelResponse:
    return kt.ModelResponse(text, [kt.ToolCall("c", "look", {"query": "tides"})], kt.Usage(5, 5))


class Bench:
    """One team of one MiniAgent with one tool."""

    def __init__(self, replies: Iterable[Any], *rules: Rule, of_member: Iterable[Rule] = ()) -> None:
        ran.clear()
        self.recorder = EventRecorder()
        self.model = ScriptedModel(replies)
        member = kt.Member("m", kt.MiniAgent(self.model, tools=[look]), guardrails=of_member)
        self.team = kt.Team("t", [member], guardrails=rules, runtime=kt.Runtime(subscribers=[self.recorder]))

    async def run(self) -> kt.TeamResult:
        return await kt.run(self.team, kt.TeamExecutionRequest("Why?", plan=kt.TaskGraph([kt.Task("t", "Why?")])))

    @property
    def decided(self) -> list[tuple[str, str, str]]:
        return [(one.policy, one.phase, one.action) for one in self.recorder.of(events.GuardrailDecided)]


async def test_a_request_that_is_denied_is_not_made_and_costs_nothing() -> None:
    bench = Bench([], Rule(DENY, GuardrailPhase.PRE_MODEL))
    result = await bench.run()
    assert (result.status, result.usage.tokens, bench.model.calls) == (kt.TeamStatus.FAILED, 0, [])
    assert "'rule' denied at pre_model: no" in str(result["t"].error)
    assert result["t"].attempts == 1, "a block is not retried"
    assert bench.decided == [("rule", "pre_model", "deny")]
    bench.recorder.assert_lawful()


async def test_a_reply_that_is_denied_is_charged_and_none_of_its_tools_run() -> None:
    bench = Bench([asking("secret")], Rule(DENY, GuardrailPhase.POST_MODEL))
    result = await bench.run()
    assert (result.status, result.usage.tokens, ran) == (kt.TeamStatus.FAILED, 10, [])
    assert result["t"].artifact is None, "a denied reply is nowhere"


async def test_what_was_kept_before_a_denial_comes_back() -> None:
    second = Rule(
        lambda c: DENY if "second" in c.payload.text else GuardrailDecision.allow(), GuardrailPhase.POST_MODEL
    )
    result = await Bench([asking("first"), "second"], second).run()
    artifact = result["t"].artifact
    assert artifact is not None
    assert (artifact.text, artifact.partial) == ("first", True)


async def test_changed_texts_are_what_the_model_and_the_member_see() -> None:
    upper = Rule(lambda c: GuardrailDecision.modify("loud", c.payload.with_text(c.payload.text.upper())))
    upper.phases = frozenset({GuardrailPhase.POST_MODEL})
    result = await Bench(["quiet"], upper).run()
    assert result.output is not None
    assert result.output == "QUIET"
    masked = Rule(
        lambda c: GuardrailDecision.modify("masked", c.payload.map_text(lambda text: text.replace("Why?", "How?"))),
        GuardrailPhase.PRE_MODEL,
    )
    bench = Bench(["fine"], masked)
    await bench.run()
    assert "How?" in bench.model.calls[0].messages[-1].text
    assert "Why?" not in bench.model.calls[0].messages[-1].text


async def test_a_denied_tool_call_is_an_error_the_member_reads() -> None:
    bench = Bench([asking(), "done"], Rule(DENY, GuardrailPhase.PRE_TOOL))
    assert (await bench.run()).output == "done"
    assert ran == []
    (answer,) = [m.text for m in bench.model.calls[1].messages if m.role == "tool"]
    assert answer == "no"
    (called,) = bench.recorder.of(events.ToolCalled)
    assert (called.tool, called.outcome, called.refused_by) == ("look", "refused", "rule")


async def test_a_denied_result_is_replaced_by_the_reason() -> None:
    bench = Bench([asking(), "done"], Rule(DENY, GuardrailPhase.POST_TOOL))
    assert (await bench.run()).output == "done"
    assert ran == ["tides"]
    (answer,) = [m.text for m in bench.model.calls[1].messages if m.role == "tool"]
    assert "found" not in answer


async def test_a_policy_that_raises_denies_in_its_name() -> None:
    def broken(context: GuardrailContext) -> GuardrailDecision:
        raise RuntimeError("out of order")

    result = await Bench([], Rule(broken, GuardrailPhase.PRE_MODEL, name="broken")).run()
    assert result.usage.tokens == 0
    assert "'broken' denied" in str(result["t"].error)
    assert "out of order" in str(result["t"].error)


async def test_the_teams_guardrails_go_before_the_members() -> None:
    order: list[str] = []

    def note(name: str) -> Rule:
        def warn(context: GuardrailContext) -> GuardrailDecision:
            order.append(name)
            return GuardrailDecision.warn(name)

        return Rule(warn, GuardrailPhase.PRE_MODEL, name=name)

    bench = Bench(["done"], note("team"), of_member=[note("member")])
    result = await bench.run()
    assert order == ["team", "member"]
    assert result.status is kt.TeamStatus.COMPLETED
    assert bench.decided == [("team", "pre_model", "warn"), ("member", "pre_model", "warn")]


async def test_guardrails_are_told_where_they_stand() -> None:
    rule = Rule(GuardrailDecision.allow())
    bench = Bench([asking(), "done"], rule)
    result = await bench.run()
    assert [context.phase.value for context in rule.seen] == [
        *("pre_model", "post_model"),
        *("pre_tool", "post_tool"),
        *("pre_model", "post_model"),
    ]
    for context in rule.seen:
        assert (context.member, context.metadata["task_id"]) == ("m", "t")
        assert (context.metadata["run_id"], context.metadata["purpose"]) == (result.run_id, "generate")
    assert [context.target for context in rule.seen] == ["test:scripted"] * 2 + ["look"] * 2 + ["test:scripted"] * 2
    assert bench.decided == [], "plainly allowed is no news"


@pytest.mark.parametrize("purpose", ["plan", "evaluate"])
async def test_planner_and_judge_calls_pass_the_teams_guardrails(purpose: str) -> None:
    rule = Rule(DENY, GuardrailPhase.PRE_MODEL)
    model = FunctionModel(lambda _: "said")
    team = kt.Team("t", [kt.Member("m", lambda _: "made")], guardrails=[rule])
    async with kt.TeamRun.open(kt.TeamExecutionRequest("goal"), team) as run:
        await run.plan(lambda: kt.TaskGraph([kt.Task("t", "do")]))
        asked = run.context(purpose).model(model)
        with pytest.raises(kt.KairoError, match="denied at pre_model"):
            await asked.complete(kt.ModelRequest([kt.Message.user("hello")]))
    assert model.calls == []
    assert [context.metadata["purpose"] for context in rule.seen] == [purpose]


async def test_an_agent_may_take_a_denial_and_go_on() -> None:
    """Only what leaves the attempt blocks it."""
    rule = Rule(lambda c: DENY if "bad" in c.payload.text else GuardrailDecision.allow(), GuardrailPhase.PRE_MODEL)

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        model = context.model(FunctionModel(lambda _: "fine"))
        try:
            await model.complete(kt.ModelRequest([kt.Message.user("bad")]))
        except kt.KairoError:
            return (await model.complete(kt.ModelRequest([kt.Message.user("good")]))).text
        return "not denied"

    result = await kt.run(kt.Team("t", [kt.Member("a", agent)], guardrails=[rule]), "goal")
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "fine")


async def test_kf_b10_a_denial_that_an_agent_wraps_still_blocks() -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        try:
            await context.model(FunctionModel(lambda _: "x")).complete(kt.ModelRequest([kt.Message.user("a")]))
        except kt.KairoError as error:
            raise RuntimeError(str(error)) from None
        return ""

    rule = Rule(DENY, GuardrailPhase.PRE_MODEL)
    result = await kt.run(kt.Team("t", [kt.Member("a", agent)], guardrails=[rule]), "goal")
    (outcome,) = result.outcomes
    assert (outcome.attempts, outcome.status) == (1, kt.TaskStatus.FAILED)
    assert "'rule' denied" in str(outcome.error)


async def test_state_of_a_policy_is_of_one_run() -> None:
    class Counts:
        """Denies the second call it sees."""

        def __init__(self) -> None:
            self.calls = 0

        def for_run(self) -> Counts:
            return Counts()

        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            self.calls += 1
            return DENY if self.calls > 2 else GuardrailDecision.allow()

    counts = Counts()
    agent = kt.MiniAgent(FunctionModel(lambda _: "said"))
    team = kt.Team("t", [kt.Member("m", agent)], guardrails=[counts])
    assert [(await kt.run(team, "goal")).status.value for _ in range(3)] == ["completed"] * 3
    assert counts.calls == 0


@pytest.mark.parametrize("of_member", [False, True])
async def test_a_policy_whose_order_or_phases_are_none_is_refused_before_work_starts(of_member: bool) -> None:
    rule = Rule(DENY)
    rule.phases = frozenset({"before lunch"})  # type: ignore[arg-type]  # the mistake in question
    bench = Bench([], *([] if of_member else [rule]), of_member=[rule] if of_member else [])
    result = await bench.run()
    assert (result.status, result.refused) == (kt.TeamStatus.FAILED, True)
    assert "before lunch" in str(result.error)


def test_actions_are_told_by_their_names() -> None:
    assert {action.value for action in GuardrailAction} == {"allow", "deny", "modify", "warn"}
