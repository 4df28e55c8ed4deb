"""What a resumed run is compared with: the coordinator's criteria and planner, side effects, permissions of tools."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.cluster.cluster import version_of
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator, SupervisorCoordinator, TaskDispatchCoordinator
from kairo_team.engine.records.digests import check_unchanged, digests_of
from kairo_team.errors import PlanMismatch
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.gates import DeferGate
from kairo_team.permissions import PermissionDecision
from kairo_team.tck import run_kit
from kairo_team.testing import FunctionModel
from kairo_team.tools import Rule, RuleGuard, ToolPermissions
from tests.mutants.honest_reviews import Words, WordsTCK
from tests.mutants.kit_evaluators import DigestOfThisProcess


def rubric(words: int) -> Rubric:
    return Rubric([Criterion("long", "it must be long", checks.min_words(words))])


def tool_of(**marks: Any) -> Any:
    @kt.tool(**marks)
    def mail(text: str) -> str:
        """Send a mail."""
        return text

    return mail


def team(*, mark: Any = None, **options: Any) -> kt.Team:
    agent = kt.MiniAgent("m:x", tools=[tool_of(**(mark or {"side_effect": "write"}))])
    return kt.Team("desk", [kt.Member("clerk", agent)], **options)


def guarded(*rules: Rule, **options: Any) -> dict[str, Any]:
    return {"permissions": ToolPermissions(guard=RuleGuard(rules), **options)}


def around(inner: kt.Team) -> kt.Team:
    return kt.Team("house", [kt.Member("desk", TeamAgent(inner))])


CHANGES: list[tuple[str, kt.Team, kt.Team]] = [
    (
        "the coordinator's criteria",
        team(coordinator=ExpertTeamCoordinator(evaluator=rubric(3))),
        team(coordinator=ExpertTeamCoordinator(evaluator=rubric(4))),
    ),
    (
        "planner",
        team(coordinator=ExpertTeamCoordinator(planner=AgentPlanner("m:x", max_tasks=5))),
        team(coordinator=ExpertTeamCoordinator(planner=AgentPlanner("m:x", max_tasks=6))),
    ),
    (
        "planner",
        team(coordinator=ExpertTeamCoordinator()),
        team(coordinator=ExpertTeamCoordinator(planner=AgentPlanner("m:x"))),
    ),
    ("coordinator", team(coordinator=kt.HandoffCoordinator()), team()),
    ("coordinator", team(coordinator=ExpertTeamCoordinator()), team(coordinator=kt.GroupChatCoordinator())),
    ("coordinator", team(coordinator=kt.HandoffCoordinator()), team(coordinator=kt.GroupChatCoordinator())),
    (
        "coordinator",
        team(coordinator=kt.HandoffCoordinator(routes={"clerk": ["b"]})),
        team(coordinator=kt.HandoffCoordinator(routes={"clerk": ["a"]})),
    ),
    (
        "coordinator",
        team(coordinator=kt.GroupChatCoordinator(max_turns=3)),
        team(coordinator=kt.GroupChatCoordinator(max_turns=4)),
    ),
    (
        "coordinator",
        team(coordinator=SupervisorCoordinator(supervisor="clerk")),
        team(coordinator=SupervisorCoordinator(supervisor="other")),
    ),
    (
        "the coordinator's criteria",
        team(coordinator=ExpertTeamCoordinator(evaluator=rubric(3))),
        team(coordinator=ExpertTeamCoordinator()),
    ),
    (
        "the coordinator's criteria of team 'desk'",
        around(team(coordinator=ExpertTeamCoordinator(evaluator=rubric(3)))),
        around(team(coordinator=ExpertTeamCoordinator(evaluator=rubric(4)))),
    ),
    ("coordinator of team 'desk'", around(team(coordinator=kt.HandoffCoordinator())), around(team())),
    ("tool 'mail' of member 'clerk'", team(), team(mark={"side_effect": "write", "idempotent": True})),
    ("permissions of tools", team(**guarded(Rule.allow("mail"))), team(**guarded(Rule.deny("mail")))),
    (
        "permissions of tools",
        team(**guarded(Rule.allow("mail"))),
        team(**guarded(Rule.allow("mail"), plan_mode=True)),
    ),
]


@pytest.mark.parametrize(("name", "was", "now"), CHANGES)
def test_third_o26_what_changed_is_named_and_makes_another_version(name: str, was: kt.Team, now: kt.Team) -> None:
    before, after = digests_of(was, {}), digests_of(now, {})
    with pytest.raises(PlanMismatch, match=name):
        check_unchanged("r", before, after)
    check_unchanged("r", before, after, [name])
    assert version_of(was, before) != version_of(now, after)
    check_unchanged("r", before, digests_of(replace(was), {}))


def test_third_o26_digests_of_an_earlier_version_are_compared_as_far_as_they_go() -> None:
    before = dict(digests_of(team(), {}))
    old = {key: one for key, one in before.items() if key != "list of parts"} | {"tool 'mail' of member 'clerk'": "old"}
    check_unchanged("r", old, before)
    with pytest.raises(PlanMismatch, match="set of members"):
        check_unchanged("r", old, digests_of(kt.Team("desk", [kt.Member("other", team().members[0].agent)]), {}))


def test_third_o26_digests_that_name_no_coordinator_yet_are_compared_without_it() -> None:
    """Version 2 of the list: a run that an earlier version began is resumed with what it was begun with."""
    for coordinator in (None, ExpertTeamCoordinator(), kt.HandoffCoordinator(evaluator=rubric(3))):
        made = team(coordinator=coordinator)
        now = digests_of(made, {})
        planner = {"planner": "the usual one"} if isinstance(coordinator, ExpertTeamCoordinator) else {}
        was = {name: one for name, one in now.items() if name != "coordinator"} | {"list of parts": "2"} | planner
        check_unchanged("r", was, now)
    now = digests_of(around(team(coordinator=ExpertTeamCoordinator())), {})
    was = {name: one for name, one in now.items() if not name.startswith("coordinator")} | {"list of parts": "2"}
    check_unchanged("r", {**was, "planner of team 'desk'": "the usual one"}, now)


@pytest.mark.parametrize("named", [ExpertTeamCoordinator(), TaskDispatchCoordinator()])
def test_third_o26_a_usual_coordinator_need_not_be_named(named: Any) -> None:
    check_unchanged("r", digests_of(team(), {}), digests_of(team(), {}, named))
    check_unchanged("r", digests_of(team(), {}, named), digests_of(team(), {}))


def test_third_o27_a_digest_that_differs_between_processes_is_named_as_that() -> None:
    with pytest.raises(PlanMismatch, match=r"If nothing was changed, the `digest` of the evaluator differs between"):
        check_unchanged("r", {"criteria of evaluator 'ed'": "a"}, {"criteria of evaluator 'ed'": "b"})
    with pytest.raises(PlanMismatch, match=r"begin a new run$"):
        check_unchanged("r", {"template 'task'": "a"}, {"template 'task'": "b"})


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("criteria of evaluator 'ed' of team 'inner'", "the `digest` of the evaluator"),
        ("the coordinator's criteria", "the `digest` of the evaluator"),
        ("planner", "the `digest` of the planner"),
        ("permissions of tools of team 'inner'", "the `digest` of the guard"),
        ("output type 'Draft'", "the schema of the type"),
    ],
)
def test_third_o27_so_is_whatever_else_may_differ_between_processes(part: str, what: str) -> None:
    with pytest.raises(PlanMismatch, match=f"If nothing was changed, {what} differs between processes"):
        check_unchanged("r", {part: "a"}, {part: "b"})


class HouseGuard:
    """A guard with rules that no digest of the library knows: objects, functions, sets."""

    def __init__(self, *numbers: int) -> None:
        self.rules: Any = [object(), lambda: None, set(numbers), {"shell": frozenset(numbers)}]

    async def check(self, tool: str, arguments: Any, side_effect: Any) -> PermissionDecision:
        return PermissionDecision.allow()


def test_third_o27_what_has_no_digest_of_its_own_is_the_same_in_every_process() -> None:
    assert repr({0, 8}) != repr({8, 0})  # as two processes have other orders of words
    one, other = (team(permissions=ToolPermissions(guard=HouseGuard(*numbers))) for numbers in ((0, 8), (8, 0)))
    check_unchanged("r", digests_of(one, {}), digests_of(other, {}))
    with pytest.raises(PlanMismatch, match="permissions of tools"):
        check_unchanged("r", digests_of(one, {}), digests_of(team(**guarded(Rule.allow("mail"))), {}))
    with pytest.raises(PlanMismatch, match="template 'task'"):  # an address in a text is a text
        check_unchanged("r", *(digests_of(one, {"task": f"the fault at {place}"}) for place in ("0x1", "0x2")))


SAME = "test_c06_the_digest_of_its_criteria_is_the_same_in_every_process"


def test_third_o27_the_kit_compares_the_digest_in_another_process() -> None:
    assert [one.outcome for one in run_kit(DigestOfThisProcess, tests=SAME).results] == ["failed"]


def test_third_o27_the_kit_reads_the_digest_behind_what_a_module_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, "loading\n\n'criteria'\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert [one.outcome for one in run_kit(NamedCriteria, tests=SAME).results] == ["passed"]


class NamedCriteria(WordsTCK):
    """The kit of an evaluator with a digest."""

    class Review(Words):
        digest = "criteria"


async def three_words(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return "one two three"


@pytest.mark.anyio
@pytest.mark.parametrize("begins_with", ["the call", "the team"])
async def test_third_o26_a_run_is_not_resumed_under_other_criteria(begins_with: str) -> None:
    def coordinator(words: int) -> ExpertTeamCoordinator:
        return ExpertTeamCoordinator(evaluator=rubric(words), plan_approval=True)

    made = kt.Team("desk", [kt.Member("clerk", three_words)])
    given: dict[str, Any] = {"coordinator": coordinator(2)}
    if begins_with == "the team":
        made, given = replace(made, coordinator=coordinator(2)), {}
    runtime = kt.Runtime(gate=DeferGate(), models={"m:x": FunctionModel(lambda request: "yes")})
    first = await kt.run(made, "Go.", runtime=runtime, run_id="r", **given)
    assert first.status == "suspended"
    [question] = runtime.pending()
    runtime.answer(question.id, kt.HumanDecision("approve"))
    with pytest.raises(PlanMismatch, match="the coordinator's criteria"):
        await runtime.resume("r", made, coordinator=coordinator(3))
    assert (await runtime.resume("r", made, coordinator=coordinator(2))).status == "completed"


@pytest.mark.anyio
async def test_third_o26_a_resume_that_forgets_the_coordinator_is_refused_and_says_which() -> None:
    async def asks(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        sent = await context.tool(tool_of(side_effect="write")).call({"text": "done"})
        return sent.text

    made = kt.Team("desk", [kt.Member("clerk", asks)], **guarded(Rule.ask("mail")))
    runtime = kt.Runtime(gate=DeferGate())
    first = await kt.run(made, "Go.", runtime=runtime, run_id="r", coordinator=kt.HandoffCoordinator())
    assert first.status == "suspended"
    [question] = runtime.pending()
    runtime.answer(question.id, kt.HumanDecision("approve"))
    with pytest.raises(PlanMismatch, match=r"changed from '.*HandoffCoordinator \(\w+\)' to 'the usual one'"):
        await runtime.resume("r", made)
    result = await runtime.resume("r", made, coordinator=kt.HandoffCoordinator())
    assert result.output == "done"
