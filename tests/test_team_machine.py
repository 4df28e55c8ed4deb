"""The team machine: any team, any plan, any misbehaviour, any meddling from outside, and what holds of every run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import anyio
import pytest
from hypothesis import event, given, settings

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.results import Attempt
from kairo_team.testing import run_in_virtual_time, virtual_time_backends
from kairo_team.verdicts import Cause
from tests.team_machine import Deed, Scenario, Script, scenarios
from tests.team_machine_checks import check, comparable
from tests.team_machine_doubles import call_model
from tests.team_machine_play import Played, play, replay, run_again

pytestmark = pytest.mark.sampled("anyio_backend")

EXAMPLES: Final = settings().max_examples * 3 // 2


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Keep still: thousands of attempts go wrong here, and say so."""
    logger = logging.getLogger("kairo_team")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def describe(played: Played) -> None:
    """Tell hypothesis what was seen, for `--hypothesis-show-statistics`."""
    event(f"status: {played.result.status if played.result else 'none, the caller was cancelled'}")
    event(f"sessions: {len(played.sessions)}")
    for kind in {key.partition(":")[0] for key in played.records}:
        event(f"recorded: {kind}")
    for told in {one.type for one in played.recorder.events}:
        event(f"told: {told}")


@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=EXAMPLES)
@given(scenario=scenarios())
def test_what_holds_of_every_run_and_of_its_replay(backend: str, scenario: Scenario) -> None:
    """All that `check` says; and the records alone give the same result again, where nobody may be called.

    A run that still waits for a person gives the result it waits with, when its questions are put off again. A run
    whose caller was cancelled has no result that could be given again: see below.
    """
    describe(check_run_and_replay(backend, scenario))


@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=EXAMPLES)
@given(scenario=scenarios(waits=True))
def test_the_same_holds_of_runs_that_wait_for_people(backend: str, scenario: Scenario) -> None:
    """Most of them have several sessions, and what was finished in one meets what happens in the next."""
    describe(check_run_and_replay(backend, scenario))


def check_run_and_replay(backend: str, scenario: Scenario) -> Played:
    """A question that was put off has no recorded answer: it is put off again, also where a halt ended what waited.

    A session that is cut short before it comes to a step does not warn of it once more, and the replay does.
    """
    played = run_in_virtual_time(play, scenario, backend=backend)
    check(played)
    if played.result is not None:
        cut = "defer" in (scenario.gate or ()) and "halt" in played.records
        waits = cut or played.result.status is kt.TeamStatus.SUSPENDED
        again = run_in_virtual_time(partial(replay, put_off=waits), scenario, played.records, backend=backend)
        assert again.called == []
        replayed, was = comparable(again.result), comparable(played.result)
        if len(played.sessions) > 1 and "end" in played.records:
            assert was["warnings"] <= replayed["warnings"]
            replayed["warnings"] = was["warnings"]
        assert replayed == was
    return played


@settings(max_examples=EXAMPLES // 2)
@given(scenario=scenarios(cancelled=True))
def test_a_run_whose_caller_was_cancelled_can_be_gone_on_with(scenario: Scenario) -> None:
    """Its attempts that were made to their end stand; what was cut short is made anew, and there is a result."""
    first = run_in_virtual_time(play, scenario)
    event(f"cancelled: {first.result is None}")
    if first.result is None and len(first.sessions) == 1 and "end" not in first.records:
        again = run_in_virtual_time(run_again, scenario, first.records)
        made = {key: one for key, one in first.records.items() if isinstance(one, Attempt) and one.interrupted is None}
        assert {key: again.records[key] for key in made} == made
        assert again.result.status is not kt.TeamStatus.CANCELLED or scenario.does("halt oneself")


# ---------------------------------------------------------------- what the machine has found


async def slow(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half of it")
    await anyio.sleep(10)
    return "slow"


async def greedy(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    for _ in range(20):
        await call_model(context)
    raise AssertionError


def ask_about(*names: str) -> Any:
    """Make an evaluator that leaves these tasks to a person."""

    class Evaluator:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            asked = context.task.id in names
            return kt.EvaluationVerdict.escalate(Cause.UNDECIDED, "?") if asked else kt.EvaluationVerdict.passed()

    return Evaluator()


async def test_a_result_can_be_waited_for_before_the_run_has_begun() -> None:
    team = kt.Team("team", [kt.Member("a", slow)])
    with anyio.fail_after(100):
        async with kt.Runtime() as runtime:
            run = await runtime.start(team, kt.TeamExecutionRequest("g"))
            assert (await run.result()).output == "slow"


@pytest.mark.parametrize(("end", "status"), [("kill", kt.TeamStatus.CANCELLED), ("wait", kt.TeamStatus.TIMEOUT)])
async def test_a_kill_and_a_deadline_count_whatever_was_exhausted_before(end: str, status: kt.TeamStatus) -> None:
    runtime = kt.Runtime()
    team = kt.Team("team", [kt.Member("a", greedy), kt.Member("b", slow)], runtime=runtime)
    plan = kt.TaskGraph([kt.Task("a", "do", member="a"), kt.Task("b", "do", member="b")])
    config = kt.TeamConfig(budget=kt.Budget(tokens=100, seconds=5.0))
    result: list[kt.TeamResult] = []

    async def run() -> None:
        request = kt.TeamExecutionRequest("g", plan=plan, config=config, run_id="r")
        policy = FailurePolicy(retries=0)
        result.append(await TaskDispatchCoordinator(failure_policy=policy).execute(request, team))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(4)
        if end == "kill":
            runtime.runs["r"].cancel("enough")
    assert (result[0].status, result[0].halt is not None) == (status, True)
    assert "token_budget_exceeded" not in (result[0].error or "")


async def test_a_resumed_run_that_is_cut_short_keeps_what_was_finished_and_its_deadline() -> None:
    """The seconds of both sessions count."""
    runtime = kt.Runtime(gate=kt.DeferGate())
    team = kt.Team("team", [kt.Member("a", slow), kt.Member("b", slow)], runtime=runtime)
    plan = kt.TaskGraph([kt.Task("a", "do", role="a"), kt.Task("b", "do", role="b")])
    coordinator = ExpertTeamCoordinator(evaluator=ask_about("b"))
    config = kt.TeamConfig(budget=kt.Budget(seconds=15.0))
    first = await coordinator.execute(kt.TeamExecutionRequest("g", plan=plan, config=config, run_id="r"), team)
    assert first.status is kt.TeamStatus.SUSPENDED
    runtime.answer(runtime.pending("r")[0].id, kt.HumanDecision.revise("more"))
    result = await runtime.resume("r", team, coordinator=coordinator, budget=kt.Budget(tokens=500, seconds=15.0))
    assert (result.status, result["a"].status) == (kt.TeamStatus.TIMEOUT, kt.TaskStatus.COMPLETED)
    assert (result["b"].status, result["b"].attempts) == (kt.TaskStatus.CANCELLED, 2)
    assert result["b"].artifact == kt.Artifact("slow")


async def test_a_task_that_waited_and_was_not_come_to_again_is_cancelled_with_what_it_had() -> None:
    runtime = kt.Runtime(gate=kt.DeferGate())
    team = kt.Team("team", [kt.Member("a", slow)], runtime=runtime)
    plan = kt.TaskGraph([kt.Task("one", "do", weight=2), kt.Task("two", "do")])
    coordinator = ExpertTeamCoordinator(evaluator=ask_about("one", "two"))
    config = kt.TeamConfig(budget=kt.Budget(seconds=25.0), max_parallel_tasks=1)
    await coordinator.execute(kt.TeamExecutionRequest("g", plan=plan, config=config, run_id="r"), team)
    question = next(one for one in runtime.pending("r") if one.task_id == "one")
    runtime.answer(question.id, kt.HumanDecision.revise("more"))
    result = await runtime.resume("r", team, coordinator=coordinator)
    assert result.status is kt.TeamStatus.TIMEOUT
    assert [(o.status.value, o.attempts, o.usage.loops) for o in result.outcomes] == [
        ("cancelled", 2, 2),
        ("cancelled", 1, 1),
    ]
    assert result.usage.loops == 3


def strict(**limits: Any) -> kt.TeamConfig:
    """Return the settings of a run that gives nothing a second chance."""
    return kt.TeamConfig(
        risk_profile=kt.RiskProfile.LOW, max_feedback_rounds=0, task_timeout=20.0, cancel_grace=0.0, **limits
    )


def reviewed(**given: Any) -> Scenario:
    """Return a run of an expert team with an editor, of which a test says what is special."""
    plain: dict[str, Any] = {
        "shared": None,
        "expert": True,
        "live": False,
        "policy": {"retries": 0, "backoff": 0.2, "try_others": True, "abort_team": False},
        "reviewed": True,
        "planner": None,
        "fallback": False,
        "approval": False,
        "replan": False,
        "guarded": False,
        "more": None,
        "deeds": [],
    }
    return Scenario(**plain | given)


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_a_replayed_attempt_gives_its_lease_back(backend: str) -> None:
    """Or else one task has the slot and wants the member, while the other has the member and wants the slot."""
    scenario = reviewed(
        tasks=[kt.Task(f"t{number}", "do") for number in range(5)],
        scripts=[Script(["succeed"], 0.0, ["pass"])],
        members=[
            {"role": "r0", "max_concurrency": 1, "budget": None, "senior": False},
            {"role": "r0", "max_concurrency": None, "budget": None, "senior": False},
        ],
        config=strict(review_timeout=0.01, max_parallel_tasks=1),
        gate=["defer", "revise"],
        answers=["revise", "later"],
    )
    check(run_in_virtual_time(play, scenario, backend=backend))


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_a_task_cancelled_at_the_moment_of_its_decision_is_cancelled_again_in_a_replay(backend: str) -> None:
    """The gate decides at the very moment of the deed: the decision is recorded, and the task does not get it."""
    scenario = reviewed(
        tasks=[kt.Task(f"t{number}", "do") for number in range(4)],
        scripts=[Script(["succeed"], 0.0, [review]) for review in ("pass", "revise", "revise", "pass")],
        members=[{"role": "r0", "max_concurrency": None, "budget": None, "senior": False}],
        config=strict(review_timeout=5.0),
        gate=["defer", "defer", "approve"],
        answers=["later", "approve"],
        later=[Deed(0.05, "cancel task", 2)],
    )
    check_run_and_replay(backend, scenario)


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_a_task_that_failed_in_an_earlier_session_fails_again_where_this_one_is_killed(backend: str) -> None:
    """The kill comes while its plan is asked for anew: the task has ended already, and says what it said."""
    scenario = reviewed(
        tasks=[kt.Task("t0", "do", timeout=2.0), kt.Task("t1", "do"), kt.Task("t2", "do")],
        scripts=[Script(["succeed"], seconds, ["pass"]) for seconds in (3.0, 0.0, 0.1)],
        members=[{"role": "r0", "max_concurrency": 1, "budget": None, "senior": False}],
        config=strict(review_timeout=0.01),
        planner=["plan"],
        replan=True,
        gate=["defer"],
        answers=["approve"],
        later=[Deed(0.0, "kill", 0)],
    )
    check_run_and_replay(backend, scenario)
