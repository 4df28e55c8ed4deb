"""What a run ends with: no end looks like a success that is none, and every one but COMPLETED says why."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team._util.late_pydantic import adapter
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import TeamFailed
from kairo_team.evaluators import Criterion, Rubric, all_of, checks
from tests.human import APPROVE

pytestmark = pytest.mark.anyio

ONCE = FailurePolicy(retries=0)
LOW = kt.TeamConfig(risk_profile=kt.RiskProfile.LOW)
NEVER = Rubric([Criterion("never", "it names the sun", checks.contains("sun"))])


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> Any:
    """Do what the task's id says."""
    context.keep(f"kept of {assignment.task.id}")
    match assignment.task.id.partition("-")[0]:
        case "fails":
            raise ValueError("no idea")
        case "hangs":
            await anyio.sleep_forever()
        case "cut":
            return kt.AgentOutput(kt.Artifact("half"), kt.AgentStatus.TURN_LIMIT_REACHED, 3, 4)
        case "silent":
            return kt.AgentOutput(kt.Artifact(" "), kt.AgentStatus.TURN_LIMIT_REACHED, 3, 4, error="no answer")
        case "partial":
            return kt.Artifact("a part", partial=True)
        case "spends":
            context.governor.record_usage(prompt_tokens=1_000)
            await anyio.sleep(1)
        case _:
            pass
    return f"made {assignment.task.id}"


class Breaks:
    """A planner that plans nothing."""

    async def plan(self, request: Any, team: Any, context: Any) -> kt.TaskGraph:
        raise RuntimeError("no plan today")


class Always:
    """A gate that always decides the same."""

    def __init__(self, decision: kt.HumanDecision) -> None:
        self._decision = decision

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
        return self._decision


async def keep_nothing(assignment: kt.Assignment) -> str:
    if assignment.task.id == "fails":
        raise ValueError("no idea")
    return assignment.task.id


@dataclass
class End:
    """One end: what is run, and what must come of it."""

    status: str
    partial: str | None
    says: str
    tasks: tuple[str, ...]
    how: Callable[[], Any] = lambda: ExpertTeamCoordinator(failure_policy=ONCE)
    config: kt.TeamConfig = kt.TeamConfig()
    gate: Any = None
    kill_at: float | None = None


def board() -> Any:
    return TaskDispatchCoordinator(failure_policy=ONCE)


def reviewing(**options: Any) -> Callable[[], Any]:
    return lambda: ExpertTeamCoordinator(failure_policy=ONCE, **options)


class BrokenCoordinator:
    """Raises when one task is done."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            plan = request.plan or kt.TaskGraph([kt.Task("a", "do")])
            async for task in run.ready(await run.plan(lambda: plan)):
                run.accept(task, await run.attempt(task, 1))
                raise KeyError("where is it")
        return run.result


ENDS: dict[str, End] = {
    "all went well": End("completed", None, "", ("a", "b")),
    "a loss under LOW": End("degraded", None, "task 'fails' failed: ValueError: no idea", ("a", "fails"), config=LOW),
    "a loss on the board": End("degraded", None, "task 'fails' failed: ValueError: no idea", ("a", "fails"), board),
    "cut short, not reviewed": End(
        "degraded",
        None,
        "task 'cut': the accepted work was cut short: the agent reached its turn limit: 3 of 4 turns",
        ("cut",),
        board,
    ),
    "partial, not reviewed": End(
        "degraded",
        None,
        "task 'partial': the accepted work was cut short",
        ("partial",),
        board,
    ),
    "accepted by the risk": End(
        "degraded",
        None,
        "task 'a': accepted without a PASS: rounds_exhausted",
        ("a",),
        reviewing(evaluator=NEVER),
        kt.TeamConfig(risk_profile=kt.RiskProfile.LOW, max_feedback_rounds=0),
    ),
    "accepted by a person": End(
        "degraded",
        None,
        "task 'a': accepted by a person without a PASS: rounds_exhausted",
        ("a",),
        reviewing(evaluator=NEVER),
        kt.TeamConfig(max_feedback_rounds=0),
        Always(APPROVE),
    ),
    "a plan that stands in": End(
        "degraded",
        None,
        "planning failed, one task replaces the plan: no plan today",
        (),
        reviewing(planner=Breaks(), planner_failure_mode="single_task_fallback"),
    ),
    "a member failed": End("failed", "kept of fails", "task 'fails' failed: ValueError: no idea", ("fails",)),
    "one of two failed": End(
        "failed", "a:\nmade a\n\nfails:\nkept of fails", "task 'fails' failed: ValueError: no idea", ("a", "fails")
    ),
    "a limit, and nothing made": End("failed", None, "reached its turn limit: 3 of 4 turns (no answer)", ("silent",)),
    "no review passed": End(
        "failed",
        "made a",
        "not accepted (rounds_exhausted)",
        ("a",),
        reviewing(evaluator=NEVER),
        kt.TeamConfig(max_feedback_rounds=0),
    ),
    "no plan": End("failed", None, "no plan today", (), reviewing(planner=Breaks())),
    "refused": End("failed", None, "the evaluator 'nobody' is unknown", ("a",), reviewing(evaluator="nobody")),
    "the coordinator raised": End("failed", "made a", "where is it", ("a",), BrokenCoordinator),
    "the policy ended it": End(
        "failed",
        "a:\nmade a\n\nfails:\nkept of fails",
        "task 'fails' failed: ValueError: no idea",
        ("a", "fails"),
        lambda: ExpertTeamCoordinator(failure_policy=FailurePolicy(retries=0, abort_team=True)),
    ),
    "the money is gone": End(
        "failed",
        "kept of spends",
        "token_budget_exceeded",
        ("spends",),
        config=kt.TeamConfig(budget=kt.Budget(tokens=100)),
    ),
    "late": End(
        "timeout",
        "a:\nmade a\n\nhangs:\nkept of hangs",
        "time_budget_exceeded",
        ("a", "hangs"),
        config=kt.TeamConfig(budget=kt.Budget(seconds=5)),
    ),
    "killed": End("cancelled", "a:\nmade a\n\nhangs:\nkept of hangs", "enough", ("a", "hangs"), kill_at=3.0),
    "a person is to decide": End(
        "suspended",
        "made a",
        "task 'a' waits for a person",
        ("a",),
        reviewing(evaluator=NEVER),
        kt.TeamConfig(max_feedback_rounds=0),
        kt.DeferGate(),
    ),
    "the plan waits": End(
        "suspended", None, "the plan waits for a person", ("a",), reviewing(plan_approval=True), gate=kt.DeferGate()
    ),
}


@pytest.mark.parametrize("name", ENDS)
async def test_audit_g12_every_end_says_why_and_only_a_success_has_an_output(name: str) -> None:
    end = ENDS[name]
    runtime = kt.Runtime(gate=end.gate)
    team = kt.Team("team", [kt.Member("m", work)], runtime=runtime)
    plan = kt.TaskGraph([kt.Task(task, "do") for task in end.tasks]) if end.tasks else None
    request = kt.TeamExecutionRequest("Do it.", plan=plan, config=end.config, run_id="r")
    if end.kill_at is None:
        result = await kt.run(team, request, coordinator=end.how())
    else:
        async with runtime:
            run = await runtime.start(team, request, coordinator=end.how())
            await anyio.sleep(end.kill_at)
            run.cancel("enough")
            result = await run.result()
    assert (result.status, result.partial_output) == (end.status, end.partial), result.error
    succeeded = result.status in {kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED}
    assert (result.output is not None) is succeeded
    completed = result.status is kt.TeamStatus.COMPLETED
    assert (result.error is None) is completed
    assert (result.warnings == ()) is completed
    assert completed or result.warnings[0] == result.error
    assert end.says in "; ".join(result.warnings)


async def test_audit_g12_a_partial_artifact_that_passed_its_review_degrades_the_run_and_says_why() -> None:
    team = kt.Team("team", [kt.Member("m", work)])
    plan = kt.TaskGraph([kt.Task("cut", "do")])
    result = await kt.run(team, kt.TeamExecutionRequest("Do it.", plan=plan), coordinator=ExpertTeamCoordinator())
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "half")
    assert result.error == "task 'cut': the accepted work was cut short: the agent reached its turn limit: 3 of 4 turns"
    assert result["cut"].warnings == (
        "the accepted work was cut short: the agent reached its turn limit: 3 of 4 turns",
    )


async def test_audit_g12_what_an_accepted_task_led_on_to_takes_its_place_in_the_partial_output() -> None:
    team = kt.Team("team", [kt.Member("m", work)])
    plan = kt.TaskGraph(
        [kt.Task("a", "do"), kt.Task("b", "do", depends_on=["a"]), kt.Task("fails", "do", depends_on=["b"])]
    )
    result = await kt.run(
        team, kt.TeamExecutionRequest("Do it.", plan=plan), coordinator=ExpertTeamCoordinator(failure_policy=ONCE)
    )
    assert (result.output, result.partial_output) == (None, "b:\nmade b\n\nfails:\nkept of fails")
    nothing_kept = kt.Team("team", [kt.Member("m", keep_nothing)])
    request = kt.TeamExecutionRequest("Do it.", plan=plan)
    result = await kt.run(nothing_kept, request, coordinator=ExpertTeamCoordinator(failure_policy=ONCE))
    assert (result.output, result.partial_output) == (None, "b")


async def test_audit_g12_what_the_coordinator_set_is_partial_where_the_run_failed() -> None:
    request = kt.TeamExecutionRequest("Do it.")
    async with kt.TeamRun.open(request, kt.Team("team", [kt.Member("m", work)])) as run:
        graph = await run.plan(lambda: kt.TaskGraph([kt.Task("fails", "do")]))
        async for task in run.ready(graph):
            attempt = await run.attempt(task, 1)
            run.fail(task, attempt.error or "")
        run.output = "what was said so far"
    assert (run.result.output, run.result.partial_output) == (None, "what was said so far")
    assert run.result.partial_artifact == kt.Artifact("what was said so far", partial=True)


# ---------------------------------------------------------------- where it was raised, and that it is said

SILENT = """
import sys
import kairo_team as kt

async def bug(assignment):
    return {}["nope"]

agent = bug if sys.argv[1] == "bug" else kt.MiniAgent("nobody:knows-it")
team = kt.Team("desk", [kt.Member("ann", agent)])
request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph([kt.Task("one", "do"), kt.Task("two", "do")]), run_id="r")
print(kt.run_sync(team, request).output)
"""


@pytest.mark.sampled
@pytest.mark.real_time
@pytest.mark.parametrize("what", ["refused", "bug"])
def test_audit_g11_without_any_logging_set_up_a_person_reads_why_there_is_no_output(what: str) -> None:
    done = subprocess.run([sys.executable, "-c", SILENT, what], capture_output=True, check=True, timeout=60)
    said = done.stderr.decode()
    assert done.stdout.decode().strip() == "None"
    if what == "refused":
        (line,) = said.splitlines()
        assert line.startswith(
            "run 'r' of team 'desk' was refused, and nothing was started: member 'ann': model 'nobody"
        )
    else:
        assert "run 'r' of team 'desk' ended failed: task 'one' failed: KeyError: 'nope' (and 1 more failed)" in said
        assert (said.count("Traceback"), said.count("member 'ann' raised on task 'one' (<string>, line 6)")) == (1, 1)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the library says at WARNING and above."""
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING and one.name == "kairo_team"]


def twenty(**named: Any) -> kt.TeamExecutionRequest:
    """Twenty tasks of which each is done once."""
    return kt.TeamExecutionRequest(
        "Do it.", plan=kt.TaskGraph([kt.Task(f"fails-{n}", "do") for n in range(20)]), **named
    )


@pytest.mark.parametrize("name", ENDS)
async def test_audit_g11_a_run_that_failed_or_was_refused_logs_one_line(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    end = ENDS[name]
    team = kt.Team("team", [kt.Member("m", work)], runtime=kt.Runtime(gate=end.gate))
    plan = kt.TaskGraph([kt.Task(task, "do") for task in end.tasks]) if end.tasks else None
    if end.kill_at is None:
        result = await kt.run(team, "Do it.", plan=plan, config=end.config, coordinator=end.how())
        ends = [one for one in caplog.records if hasattr(one, "result")]
        assert len(ends) == (result.status in {kt.TeamStatus.FAILED, kt.TeamStatus.TIMEOUT})
        assert all(str(result.error) in one.getMessage() and one.levelno == logging.ERROR for one in ends)


async def test_audit_g11_a_bug_in_an_agent_shows_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    team = kt.Team("team", [kt.Member("m", work)])
    await kt.run(team, twenty(), coordinator=ExpertTeamCoordinator())
    shown = [one for one in caplog.records if one.exc_info and one.levelno >= logging.WARNING]
    assert len(shown) == 1, "twenty tasks, three tries each, one bug"
    assert shown[0].getMessage().startswith("member 'm' raised on task 'fails-0' (test_ending.py, line ")


class BrokenEvaluator:
    """Raises whatever it is shown."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        raise LookupError("no standards")


@pytest.mark.parametrize(
    "evaluator",
    [BrokenEvaluator(), all_of(BrokenEvaluator()), Rubric([Criterion("c", "it is good", lambda artifact: 1 / 0 > 1)])],
    ids=["alone", "joined", "a check"],
)
async def test_audit_g11_a_failing_evaluator_shows_its_traceback_once(
    evaluator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def fine(assignment: kt.Assignment) -> str:
        return "fine"

    team = kt.Team("team", [kt.Member("m", fine)])
    result = await kt.run(team, twenty(), coordinator=ExpertTeamCoordinator(evaluator=evaluator))
    assert {outcome.status for outcome in result.outcomes} == {kt.TaskStatus.FAILED}
    assert len([one for one in caplog.records if one.exc_info and one.levelno >= logging.WARNING]) == 1


async def test_audit_g11_what_was_raised_keeps_its_file_and_line() -> None:
    team = kt.Team("team", [kt.Member("m", work)])
    result = await kt.run(team, twenty(), coordinator=ExpertTeamCoordinator(failure_policy=ONCE))
    error = result["fails-3"].exception
    assert isinstance(error, ValueError)
    assert traceback.extract_tb(error.__traceback__)[-1].name == "work"
    assert result.exception is result["fails-0"].exception
    with pytest.raises(TeamFailed) as failed:
        result.check()
    assert failed.value.__cause__ is result.exception


async def test_audit_g11_what_an_evaluator_raised_is_kept_and_what_was_mended_is_not() -> None:
    async def flaky(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if context.governor.usage.loops < 2:
            raise ValueError("not yet")
        return "fine"

    team = kt.Team("team", [kt.Member("m", flaky)])
    broken = await kt.run(team, "Do it.", coordinator=ExpertTeamCoordinator(evaluator=BrokenEvaluator()))
    assert isinstance(broken["m"].exception, LookupError)
    mended = await kt.run(team, "Do it.", coordinator=ExpertTeamCoordinator())
    assert (mended["m"].attempts, mended["m"].exception, mended.exception) == (2, None, None)


@pytest.mark.parametrize("how", [reviewing(planner=Breaks()), BrokenCoordinator])
async def test_audit_g11_what_planner_or_coordinator_raised_goes_before_what_tasks_did(how: Any) -> None:
    result = await kt.run(kt.Team("team", [kt.Member("m", work)]), "Do it.", coordinator=how())
    with pytest.raises(TeamFailed) as failed:
        result.check()
    assert isinstance(failed.value.__cause__, RuntimeError | KeyError)
    assert failed.value.__cause__.__traceback__ is not None


async def test_audit_g11_a_result_with_an_exception_is_a_value_all_the_same() -> None:
    """Equality and repr do not look at it, JSON and pickles leave it out, copies keep it."""
    team = kt.Team("team", [kt.Member("m", work)])
    result = await kt.run(team, twenty(), coordinator=ExpertTeamCoordinator(failure_policy=ONCE))
    outcome = result["fails-0"]
    bare = replace(outcome, exception=None)
    assert (outcome == bare, hash(outcome) == hash(bare), repr(outcome) == repr(bare)) == (True, True, True)
    for value in (outcome, result):
        kind = adapter(type(value))
        assert "exception" not in kind.dump_python(value)
        written = kind.validate_json(kind.dump_json(value))
        stored = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes
        assert (written.exception, stored.exception) == (None, None)
        assert stored == value
        assert copy.copy(value).exception is copy.deepcopy(value).exception is value.exception
        assert copy.copy(value) == copy.deepcopy(value) == value
    assert adapter(kt.TaskOutcome).validate_json(adapter(kt.TaskOutcome).dump_json(outcome)) == outcome


class TriesForEver:
    """A coordinator that tries each task again and again, whatever came of it."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(kt.TaskGraph([kt.Task("a", "Do it.")]))

            async def work(task: kt.Task) -> None:
                for number in count(1):
                    await run.attempt(task, number)

            async for task in run.ready(graph):
                run.go(work, task)
        return run.result


async def refuse(assignment: kt.Assignment) -> str:
    raise ValueError("no")


async def agree(assignment: kt.Assignment) -> str:
    return "yes"


@pytest.mark.real_time
@pytest.mark.parametrize("work", [refuse, agree])
@pytest.mark.parametrize("how", ["deadline", "kill", "cancellation"])
async def test_a_coordinator_that_tries_for_ever_is_ended_though_its_member_never_waits(work: Any, how: str) -> None:
    """Else nothing that shares its event loop would ever have a turn: no deadline, and no other run."""
    team = kt.Team("t", [kt.Member("m", work)])
    config = kt.TeamConfig(budget=kt.Budget(seconds=0.3 if how == "deadline" else None))
    request = kt.TeamExecutionRequest("Go.", config=config, run_id="r")
    with anyio.move_on_after(0.3 if how == "cancellation" else 60) as scope:
        async with kt.Runtime() as runtime:
            run = await runtime.start(team, request, coordinator=TriesForEver())
            if how == "kill":
                await anyio.sleep(0.1)
                run.cancel()
            result = await run.result()
            assert result.status is {"deadline": kt.TeamStatus.TIMEOUT, "kill": kt.TeamStatus.CANCELLED}[how]
    assert scope.cancelled_caught is (how == "cancellation")
