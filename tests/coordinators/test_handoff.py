"""`HandoffCoordinator`: who goes on, what they are shown, and every way it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy
from kairo_team.testing import EventRecorder, ScriptedModel

pytestmark = pytest.mark.anyio

Work = Callable[[kt.Assignment, kt.MemberContext], Awaitable[Any]]
ONCE = FailurePolicy(retries=0, try_others=False)


def hands(to: str, message: str = "please", text: str = "") -> Work:
    """Return a member that hands over by the tool."""

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep(text)
        await context.tool("hand_over")(to=to, message=message)
        raise AssertionError

    return work


def answers(text: str = "solved") -> Work:
    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return text

    return work


def as_data(to: str, message: str = "please", text: str = "my part") -> Work:
    """Return a member that hands over by what it returns."""

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> kt.Artifact:
        return kt.Artifact(text, {"hand_over": {"to": to, "message": message}})

    return work


class Desk:
    """A team of these members, and what was seen of its run."""

    def __init__(self, members: Mapping[str, Any], *, config: kt.TeamConfig | None = None, **how: Any) -> None:
        self.seen = EventRecorder()
        self.given: list[kt.Assignment] = []
        self.team = kt.Team(
            "desk",
            [kt.Member(name, self._watched(agent)) for name, agent in members.items()],
            runtime=kt.Runtime(subscribers=[self.seen]),
        )
        given: dict[str, Any] = {"failure_policy": ONCE, **how}
        self.coordinator = kt.HandoffCoordinator(**given)
        self.config = config or kt.TeamConfig()

    def _watched(self, agent: Any) -> Any:
        if hasattr(agent, "run"):
            return agent

        async def work(assignment: kt.Assignment, context: kt.MemberContext) -> Any:
            self.given.append(assignment)
            return await agent(assignment, context)

        return work

    async def run(self, goal: str = "My invoice is wrong.") -> kt.TeamResult:
        request = kt.TeamExecutionRequest(goal, config=self.config)
        result = await self.coordinator.execute(request, self.team)
        self.seen.assert_lawful()
        return result

    @property
    def who(self) -> list[str | None]:
        """Who had the turns, in order."""
        return [event.member for event in self.seen.of(events.AttemptStarted)]


# ---------------------------------------------------------------- turns


@pytest.mark.parametrize("way", [hands, as_data])
async def test_a_member_names_who_goes_on_and_an_answer_ends_the_run(way: Callable[..., Work]) -> None:
    desk = Desk({"greeter": way("billing", "check invoice 7"), "technical": answers(), "billing": answers("refunded")})
    result = await desk.run()
    assert (result.status, result.output, desk.who) == (kt.TeamStatus.COMPLETED, "refunded", ["greeter", "billing"])
    assert [outcome.task_id for outcome in result.outcomes] == ["turn.0001", "turn.0002"]
    first, second = desk.given
    assert (first.task.description, dict(first.inputs), dict(first.upstream)) == ("My invoice is wrong.", {}, {})
    assert dict(second.inputs) == {"message": "check invoice 7"}
    assert second.goal == "My invoice is wrong."
    assert [artifact.text for artifact in second.upstream.values()] == [
        "check invoice 7" if way is hands else "my part"
    ]
    assert result.warnings == ()


async def test_a_run_in_which_nobody_hands_over_is_one_task() -> None:
    desk = Desk({"one": answers("done"), "two": answers()})
    result = await desk.run()
    assert (result.status, result.output, desk.who) == (kt.TeamStatus.COMPLETED, "done", ["one"])


async def test_who_goes_on_is_shown_the_conversation_so_far() -> None:
    desk = Desk({"a": hands("b", "look", "I saw X."), "b": hands("c", "decide", "I saw Y."), "c": answers()})
    await desk.run()
    last = desk.given[-1]
    assert last.inputs["message"] == "decide"
    assert last.inputs["conversation"] == "a:\n  I saw X.\n  [hands over to b: look]"
    assert [artifact.text for artifact in last.upstream.values()] == ["I saw Y."]


async def test_the_conversation_is_cut_to_its_limit_the_newest_turns_stay() -> None:
    texts = iter(f"text {number} " + "x" * 50 for number in range(9))
    turns = iter(["b", "a"] * 5)

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        text = next(texts, None)
        return "done" if text is None else kt.Artifact(text, {"hand_over": {"to": next(turns), "message": text[:6]}})

    desk = Desk({"a": work, "b": work}, max_characters=200)
    result = await desk.run()
    assert (result.output, len(desk.given)) == ("done", 10)
    conversation = desk.given[-1].inputs["conversation"]
    assert conversation.startswith("[7 earlier turns are left out]\n\nb:\n  text 7")
    assert len(conversation) <= 200


async def test_the_first_is_the_first_of_the_team_or_who_is_named() -> None:
    assert (await (desk := Desk({"a": answers(), "b": answers()})).run()).output == "solved"
    assert desk.who == ["a"]
    await (desk := Desk({"a": answers(), "b": answers()}, first="b")).run()
    assert desk.who == ["b"]


async def test_routes_say_to_whom_a_member_may_hand_over() -> None:
    offered: list[Any] = []

    async def look(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        offered.append([tool.parameters["properties"]["to"]["enum"] for tool in context.offered])
        return (await context.tool("hand_over")(to="c", message="please")).text

    desk = Desk({"a": look, "b": answers(), "c": answers()}, routes={"a": ["b"]})
    result = await desk.run()
    assert [list(names) for names in offered[0]] == [["b"]]
    assert "to must be one of 'b', not 'c'" in (result.output or "")
    desk = Desk({"a": answers("nobody to ask"), "b": answers()}, routes={"a": []})
    assert (await desk.run()).output == "nobody to ask"


async def test_a_member_with_a_model_hands_over_by_the_tool() -> None:
    call = kt.ToolCall("c", "hand_over", {"to": "billing", "message": "invoice 7"})
    greeter = ScriptedModel([kt.ModelResponse("Hello!", (call,), kt.Usage(5, 5))])
    billing = ScriptedModel(["It is paid back."])
    desk = Desk({"greeter": kt.MiniAgent(greeter), "billing": kt.MiniAgent(billing)}, routes={"billing": []})
    result = await desk.run()
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "It is paid back.")
    (spec,) = greeter.calls[0].tools
    assert (spec.name, spec.description) == (
        "hand_over",
        "End your turn, and let another member go on. Members:\nbilling",
    )
    assert billing.calls[0].tools == ()
    prompt = billing.calls[0].messages[-1].text
    for said in ("My invoice is wrong.", "'greeter' hands over to you", "invoice 7", "Hello!"):
        assert said in prompt


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("hops", [0, 1, 3])
async def test_after_the_last_hop_the_tool_is_not_offered(hops: int) -> None:
    seen: list[bool] = []
    number = 0

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        nonlocal number
        number += 1
        seen.append(bool(context.offered))
        if context.offered:
            await context.tool("hand_over")(to="b" if context.role.id == "a" else "a", message=f"go on {number}")
        assert hops == 0 or "No hand-over is left" in assignment.task.description
        return "my best"

    result = await Desk({"a": work, "b": work}, max_hops=hops).run()
    assert seen == [True] * hops + [False]
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "my best")


async def test_who_hands_over_all_the_same_ends_the_run_with_the_last_text() -> None:
    number = iter(range(100))

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> kt.Artifact:
        to = "b" if context.role.id == "a" else "a"
        return kt.Artifact(f"draft {next(number)}", {"hand_over": {"to": to, "message": "go on"}})

    result = await (desk := Desk({"a": work, "b": work}, max_hops=3)).run()
    assert (result.status, result.output, len(desk.who)) == (kt.TeamStatus.DEGRADED, "draft 3", 4)
    assert result.warnings == ("'b' would hand over to 'a', after 3 hand-overs (max_hops)",)


@pytest.mark.parametrize("way", [hands, as_data])
async def test_the_same_handed_back_and_forth_is_seen(way: Callable[..., Work]) -> None:
    desk = Desk({"a": way("b", "your part"), "b": way("a", "your  PART")}, max_hops=100)
    result = await desk.run()
    assert desk.who == ["a", "b", "a"]
    assert result.status is kt.TeamStatus.DEGRADED
    assert result.warnings == ("'a' handed over to 'b' in the same words as before: nothing new came of it",)


async def test_members_that_go_round_in_a_circle_are_seen_too() -> None:
    circle = {"a": hands("b"), "b": hands("c"), "c": hands("a")}
    desk = Desk(circle, max_hops=100)
    assert (await desk.run()).status is kt.TeamStatus.DEGRADED
    assert desk.who == ["a", "b", "c", "a"]


async def test_a_hand_over_to_nobody_is_a_failed_attempt_that_says_so() -> None:
    desk = Desk({"a": as_data("c"), "b": answers()})
    result = await desk.run()
    assert result.status is kt.TeamStatus.FAILED
    assert "its data hands over, and to must be one of 'b', not 'c'" in (result.error or "")


async def test_a_budget_ends_it() -> None:
    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(prompt_tokens=60)
        await context.tool("hand_over")(to="b" if context.role.id == "a" else "a", message=assignment.task.id)
        raise AssertionError

    config = kt.TeamConfig(budget=kt.Budget(tokens=100))
    result = await (desk := Desk({"a": spend, "b": spend}, config=config)).run()
    assert result.status in (kt.TeamStatus.FAILED, kt.TeamStatus.TIMEOUT)
    assert (result.halt or result["turn.0002"].error) is not None
    assert len(desk.who) == 2
    assert result.partial_output is not None


# ---------------------------------------------------------------- failures


async def test_another_member_that_could_have_been_named_takes_over() -> None:
    async def broken(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        raise LookupError("closed")

    members = {"a": hands("b"), "b": broken, "c": answers("c did it"), "d": answers()}
    policy = FailurePolicy(retries=0)
    desk = Desk(members, routes={"a": ["b", "c"]}, failure_policy=policy)
    result = await desk.run()
    assert (result.status, result.output, desk.who) == (kt.TeamStatus.COMPLETED, "c did it", ["a", "b", "c"])


async def test_who_takes_over_may_hand_over_as_its_own_routes_say() -> None:
    async def broken(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        raise LookupError("closed")

    members = {"a": hands("b"), "b": broken, "c": hands("d"), "d": answers("d did it")}
    routes = {"a": ["b", "c"], "c": ["d"]}
    desk = Desk(members, routes=routes, failure_policy=FailurePolicy(retries=0))
    assert (await desk.run()).output == "d did it"
    assert desk.who == ["a", "b", "c", "d"]


async def test_a_failed_turn_ends_the_run_with_what_there_is() -> None:
    async def broken(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        raise LookupError("closed")

    result = await Desk({"a": hands("b", "x", "half of it"), "b": broken}).run()
    assert (result.status, result.partial_output) == (kt.TeamStatus.FAILED, "half of it")
    assert result.error == "task 'turn.0002' failed: LookupError: closed"


async def test_a_turn_that_no_budget_is_left_for_ends_the_run_and_the_error_says_so() -> None:
    desk = Desk({"a": hands("b", text="half of it"), "b": answers()}, config=kt.TeamConfig(kt.Budget(loops=1)))
    result = await desk.run()
    assert (result.status, result.partial_output, desk.who) == (kt.TeamStatus.FAILED, "half of it", ["a"])
    assert (result.error or "").startswith("task 'turn.0002' failed: 'desk' halted: loop_budget_exceeded (spent ")
    assert result.halt is kt.HaltReason.LOOP_BUDGET_EXCEEDED


@pytest.mark.parametrize("at", ["attempt.started", "attempt.finished"])
async def test_a_turn_that_is_cancelled_hands_over_to_nobody(at: str) -> None:
    """A subscriber may cancel it when its member has handed over already."""

    def cancel(event: events.Event) -> None:
        if event.type == at:
            runtime.runs["r"].cancel_task("turn.0001", "not this way")

    desk = Desk({"a": hands("b"), "b": answers()})
    async with kt.Runtime(subscribers=[desk.seen, cancel]) as runtime:
        request = kt.TeamExecutionRequest("My invoice is wrong.", run_id="r")
        run = await runtime.start(replace(desk.team, runtime=None), request, coordinator=desk.coordinator)
        result = await run.result()
    assert (result.status, desk.who) == (kt.TeamStatus.FAILED, ["a"])
    assert result.error == "task 'turn.0001' cancelled: not this way"


# ---------------------------------------------------------------- reviews


class Strict:
    """Wants a second version of everything."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        self.seen.append(context.artifact.text)
        if context.attempt > 1:
            return kt.EvaluationVerdict.passed(1.0)
        return kt.EvaluationVerdict.revise("too short")


async def test_answers_are_reviewed_and_hand_overs_are_not() -> None:
    strict = Strict()
    texts = iter(["short", "longer"])

    async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return next(texts)

    result = await Desk({"a": hands("b"), "b": write}, evaluator=strict).run()
    assert (result.status, result.output, strict.seen) == (kt.TeamStatus.COMPLETED, "longer", ["short", "longer"])


async def test_who_is_sent_back_may_hand_over_instead() -> None:
    strict = Strict()

    async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.findings:
            await context.tool("hand_over")(to="b", message="I cannot do better")
        return "short"

    async def better(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return "long" if assignment.findings else "longer"

    result = await Desk({"a": write, "b": better}, evaluator=strict).run()
    assert (result.output, strict.seen) == ("long", ["short", "longer", "long"])


class LeavesOpen:
    """Leaves everything to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")


async def test_a_run_that_waits_for_a_person_goes_on_and_repeats_no_turn() -> None:
    desk = Desk({"a": hands("b"), "b": answers("paid back")}, evaluator=LeavesOpen(), gate=kt.DeferGate())
    first = await desk.run()
    assert (first.status, desk.who) == (kt.TeamStatus.SUSPENDED, ["a", "b"])
    runtime = desk.team.runtime
    (question,) = runtime.pending(first.run_id)
    runtime.answer(question.id, kt.HumanDecision.approve())
    second = await runtime.resume(first.run_id, desk.team, coordinator=desk.coordinator)
    assert (second.status, second.output) == (kt.TeamStatus.COMPLETED, "paid back")
    assert [assignment.task.id for assignment in desk.given] == ["turn.0001", "turn.0002"]


async def test_a_senior_that_is_asked_to_mend_an_answer_has_no_hand_over() -> None:
    offered: list[bool] = []

    async def senior(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        offered.append(bool(context.offered))
        return "better"

    async def judge(context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        done = context.artifact.text == "better"
        passed = kt.EvaluationVerdict.passed(1.0)
        return passed if done else kt.EvaluationVerdict.escalate(kt.Cause.LOW_CONFIDENCE, "who knows")

    class Judge:
        evaluate = staticmethod(judge)

    lead = kt.Member("lead", senior)
    members = [kt.Member("a", answers("poor"), senior=lead), kt.Member("b", answers())]
    result = await kt.run(kt.Team("t", members), "g", coordinator=kt.HandoffCoordinator(evaluator=Judge()))
    assert (result.output, offered) == ("better", [False])


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"first": ""}, "first is the id of a member"),
        ({"first": 3}, "first is the id of a member"),
        ({"max_hops": -1}, "max_hops"),
        ({"max_hops": 2.5}, "max_hops"),
        ({"max_characters": 0}, "max_characters"),
        ({"routes": ["a"]}, "routes are the members"),
        ({"routes": {"a": "b"}}, "'a' has a list of members' ids"),
        ({"routes": {"a": ["a"]}}, "hands over to the ids of other members"),
        ({"routes": {"a": [3]}}, "hands over to the ids of other members"),
        ({"evaluator": 3}, "evaluator"),
        ({"gate": 3}, "gate"),
        ({"judge": 3}, "judge"),
        ({"failure_policy": 3}, "failure_policy"),
        ({"templates": {"nothing": "x"}}, "nothing"),
        ({"frist": "a"}, "first"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        kt.HandoffCoordinator(**wrong)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"first": "x"}, "first names 'x', and the team has the members 'a', 'b'"),
        ({"routes": {"x": ["a"]}}, "routes of 'x': the team has no 'x'"),
        ({"routes": {"a": ["b", "x"]}}, "routes of 'a': the team has no 'x'"),
        ({"evaluator": "x"}, "the evaluator 'x' is unknown"),
    ],
)
async def test_what_the_team_does_not_have_is_refused_before_work_starts(how: dict[str, Any], text: str) -> None:
    desk = Desk({"a": answers(), "b": answers()}, **how)
    check = kt.check(desk.team, "g", coordinator=desk.coordinator)
    assert any(text in problem for problem in check.problems)
    result = await desk.run()
    assert result.refused
    assert text in (result.error or "")
    assert desk.given == []


async def test_a_plan_is_refused() -> None:
    desk = Desk({"a": answers()})
    request = kt.TeamExecutionRequest("g", plan=kt.TaskGraph([kt.Task("t", "x")]))
    result = await desk.coordinator.execute(request, desk.team)
    assert "make no use of a plan" in (result.error or "")


class TakesNone:
    """An agent whose library cannot be given a tool for one run."""

    takes_tools = False

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return "solved"


async def test_a_member_that_takes_no_tools_is_refused_unless_it_has_nobody_to_hand_to() -> None:
    problem = kt.check(
        kt.Team("t", [kt.Member("a", TakesNone()), kt.Member("b", answers())]), "g", coordinator=kt.HandoffCoordinator()
    ).problems[0]
    assert "member 'a' takes no tools from a coordinator, so it cannot hand over" in problem
    assert "{'hand_over': {'to': ..., 'message': ...}}" in problem
    desk = Desk({"a": answers(), "b": TakesNone()}, routes={"b": []})
    assert kt.check(desk.team, "g", coordinator=desk.coordinator).ok


async def test_a_tool_of_the_same_name_is_refused() -> None:
    @kt.tool
    async def hand_over(to: str) -> str:
        return to

    desk = Desk({"a": kt.MiniAgent(ScriptedModel([]), tools=[hand_over]), "b": answers()})
    result = await desk.run()
    assert "member 'a' has a tool 'hand_over' of its own" in (result.error or "")


def test_a_check_counts_the_turns_that_the_budget_carries() -> None:
    team = kt.Team("t", [kt.Member("a", answers()), kt.Member("b", answers())])
    policy = kt.BudgetPolicy(expect=kt.Budget(tokens=1_000))
    config = kt.TeamConfig(budget=kt.Budget(tokens=6_000), budget_policy=policy)
    request = kt.TeamExecutionRequest("g", config=config)
    check = kt.check(team, request, coordinator=kt.HandoffCoordinator(max_hops=10))
    assert check.ok
    assert check.carries is not None
    assert 3 <= check.carries < 11
    assert any(f"carry {check.carries} of 11 tasks" in note for note in check.notes)
