"""The coordinator kit on failed attempts: C13."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget
from kairo_team.contracts import MemberContext
from kairo_team.events import AttemptFinished
from kairo_team.results import AgentOutput, AgentStatus, TeamResult, TeamStatus
from kairo_team.tasks import Assignment, Task, TaskStatus
from kairo_team.tck.coordinator_stage import (
    CoordinatorStage,
    Watched,
    fail,
    fail_at,
    hang,
    hang_at,
    say_nothing,
    write,
)
from kairo_team.tck.kit import clause
from kairo_team.verdicts import VerdictOutcome

SAID: Final = "the archive is closed"
"""The message of every failing agent of the kit."""


async def _keep_and_overspend(assignment: Assignment, context: MemberContext) -> str:
    context.keep("half a text")
    context.governor.record_usage(prompt_tokens=1_000_000)
    return "it was too dear"


async def _wait_and_fail(assignment: Assignment, context: MemberContext) -> str:
    await anyio.sleep(1)
    return await fail(assignment, context)


async def _time_out(assignment: Assignment, context: MemberContext) -> str:
    raise TimeoutError(SAID)


async def _time_out_inside(assignment: Assignment, context: MemberContext) -> str:
    with anyio.fail_after(1):
        await anyio.sleep_forever()
    raise AssertionError("unreachable")


async def _fail_in_a_group(assignment: Assignment, context: MemberContext) -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(fail, assignment, context)
        await anyio.sleep_forever()
    raise AssertionError("unreachable")


async def _cancel_itself(assignment: Assignment, context: MemberContext) -> str:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anyio.sleep_forever()
    raise LookupError(SAID)


async def _keep_and_fail(assignment: Assignment, context: MemberContext) -> str:
    context.keep("half a text")
    return await fail(assignment, context)


async def _number(assignment: Assignment, context: MemberContext) -> Any:
    return 42


async def _tuple(assignment: Assignment, context: MemberContext) -> Any:
    return (SAID,)


async def _error_as_value(assignment: Assignment, context: MemberContext) -> Any:
    return LookupError(SAID)


async def _blank(assignment: Assignment, context: MemberContext) -> str:
    return ""


async def _blocked(assignment: Assignment, context: MemberContext) -> AgentOutput:
    return AgentOutput(Artifact("half a text"), AgentStatus.BLOCKED, error=SAID)


async def _halted(assignment: Assignment, context: MemberContext) -> AgentOutput:
    return AgentOutput(Artifact("half a text"), AgentStatus.HALTED, error=SAID)


class _RaisesWhenCalled:
    """An agent whose `run` raises at the call, before it returns an awaitable."""

    reentrant = True

    def run(self, assignment: Assignment, context: MemberContext) -> Any:
        raise LookupError(SAID)


class _ReturnsNoCoroutine:
    """An agent whose `run` is not async."""

    reentrant = True

    def run(self, assignment: Assignment, context: MemberContext) -> Any:
        return None


RAISING: Final[Mapping[str, Any]] = {
    "raises at once": fail,
    "raises when it is called": _RaisesWhenCalled(),
    "raises later": _wait_and_fail,
    "raises a TimeoutError": _time_out,
    "times out inside": _time_out_inside,
    "raises a group": _fail_in_a_group,
    "cancels itself": _cancel_itself,
    "keeps something and raises": _keep_and_fail,
}
WRONG: Final[Mapping[str, Any]] = {
    "returns None": say_nothing,
    "returns no awaitable": _ReturnsNoCoroutine(),
    "returns a number": _number,
    "returns a tuple": _tuple,
    "returns an exception": _error_as_value,
}
ENDED: Final[Mapping[str, Any]] = {"returns a blank": _blank, "was blocked": _blocked, "was halted": _halted}


class FailureTests(CoordinatorStage):
    """Failed attempts, and what they must not affect."""

    @clause("C13")
    async def test_c13_an_attempt_that_raises_is_a_failed_attempt(self) -> None:
        for name, agent in RAISING.items():
            _check_failed(name, await self.stage(agent).play())

    @clause("C13")
    async def test_c13_an_attempt_that_returns_what_is_no_artifact_is_a_failed_attempt(self) -> None:
        for name, agent in {**WRONG, **ENDED}.items():
            _check_failed(name, await self.stage(agent).play())

    @clause("C13")
    async def test_c13_a_wrong_type_is_not_tried_again_on_the_same_member(self) -> None:
        for name, function in WRONG.items():
            began = anyio.current_time()
            result = await self.stage(function).play()
            most = len(self.make_team(write).members)
            tries = max(outcome.attempts for outcome in result.outcomes)
            assert 1 <= tries <= most, f"an agent that {name}: {tries} tries, with {most} members"
            took = anyio.current_time() - began
            assert took <= self.late(1), f"an agent that {name} failed after {took:g} seconds, not at once"

    @clause("C13")
    async def test_c13_an_attempt_past_its_own_deadline_is_a_failed_attempt(self) -> None:
        agent = Watched(hang)
        result = await self.stage(agent, task_timeout=5.0).play()
        _check_failed("hangs", result)
        assert agent.calls, "nobody was called"
        assert agent.cancelled == len(agent.calls), f"{len(agent.calls)} hung, {agent.cancelled} were cancelled"

    @clause("C13", needs="supports_plan")
    async def test_c13_a_tasks_own_deadline_counts(self) -> None:
        agent = Watched(hang_at("short"))
        tasks = [Task("short", "Do it.", timeout=2), Task("long", "Do it.")]
        result = await self.stage(agent, tasks=tasks, task_timeout=None).play()
        found = [outcome.status for outcome in result.outcomes]
        wanted = [TaskStatus.FAILED, TaskStatus.COMPLETED]
        assert found == wanted, f"'short' has 2 seconds: {wanted} is due, not {found}"

    @clause("C13")
    async def test_c13_an_error_is_never_an_artifact(self) -> None:
        for name, function in {**RAISING, **WRONG, **ENDED}.items():
            result = await self.stage(function).play()
            texts = [outcome.artifact.text for outcome in result.outcomes if outcome.artifact is not None]
            wrong = [text for text in texts if text != "half a text"]
            assert not wrong, f"an agent that {name}: its error came back as an artifact: {wrong}"
            assert SAID not in (result.output or ""), f"an agent that {name}: its error is the output"

    @clause("C13")
    async def test_c13_what_a_failed_attempt_kept_is_partial(self) -> None:
        for name, function in (("keeps and fails", _keep_and_fail), ("keeps and hangs", hang), ("is halted", _halted)):
            result = await self.stage(function, task_timeout=5.0).play()
            kept = [outcome.artifact for outcome in result.outcomes if outcome.attempts]
            assert all(one is not None and one.partial and one.text == "half a text" for one in kept), (
                f"an agent that {name}: the text it kept must come back as partial, not {kept}"
            )
            assert "half a text" not in (result.output or ""), f"an agent that {name}: the text it kept is the output"

    @clause("C13")
    async def test_c13_an_attempt_that_the_budget_ended_is_a_failed_attempt(self) -> None:
        """Whatever it kept."""
        for tasks in (None, [Task("a", "Do a."), Task("b", "Do b.", depends_on=["a"])]):
            result = await self.stage(_keep_and_overspend, tasks=tasks, budget=Budget(tokens=1000)).play()
            accepted = [one.task_id for one in result.outcomes if one.status is TaskStatus.COMPLETED]
            assert not accepted, f"the budget ended every attempt, and {accepted} are accepted"
            assert result.status is TeamStatus.FAILED, f"the budget ended every attempt, and it ended {result!r}"

    @clause("C13")
    async def test_c13_the_deadline_of_an_attempt_holds_for_every_try(self) -> None:
        """Where a failed attempt is tried again."""
        tried: list[str] = []

        async def break_then_hang(assignment: Assignment, context: MemberContext) -> str:
            tried.append(assignment.task.id)
            return await (fail if tried.count(assignment.task.id) == 1 else hang)(assignment, context)

        result = await self.stage(break_then_hang, task_timeout=5.0).play()
        assert result.status is TeamStatus.FAILED, f"no attempt came to anything, and it ended {result!r}"

    @clause("C13")
    async def test_c13_every_failed_try_is_told_with_its_error(self) -> None:
        show = self.stage(fail)
        await show.play()
        finished = show.seen.of(AttemptFinished)
        assert finished, "no event of a finished try was emitted"
        wrong = [event for event in finished if SAID not in str(event.error)]
        assert not wrong, f"the event of a failed try must carry its error: {wrong}"

    @clause("C13", needs="supports_plan")
    async def test_c13_other_branches_go_on(self) -> None:
        agent = Watched(_break_early)
        result = await self.stage(agent, tasks=_branches(), task_timeout=30.0).play()
        found = {outcome.task_id: outcome.status.value for outcome in result.outcomes}
        wanted = {
            "bad": "failed", "worse": "failed", "after-bad": "skipped", "after-both": "skipped", "last": "skipped",
            "free": "completed", "after-free": "completed", "slow": "completed",
        }  # fmt: skip
        assert found == wanted, f"only what depends on a failed task is lost: {wanted}, not {found}"
        for name in ("free", "after-free", "slow"):
            artifact = result[name].artifact
            assert artifact is not None, f"the artifact of {name!r} is gone"
            assert artifact.text == f"text of {name}", f"the artifact of {name!r} is {artifact!r}"

    @clause("C13", needs="supports_plan")
    async def test_c13_what_depended_on_it_is_skipped_with_the_cause_named(self) -> None:
        agent = Watched(_break_early)
        result = await self.stage(agent, tasks=_branches(), task_timeout=30.0).play()
        for name, causes in (("after-bad", ["bad"]), ("after-both", ["bad", "worse"]), ("last", ["after-bad"])):
            error = str(result[name].error)
            assert any(cause in error for cause in causes), f"{name!r} was skipped for {causes}, not {error!r}"
        called = {call.task.id for call in agent.calls} & {"after-bad", "after-both", "last"}
        assert not called, f"{called} were started though what they need had failed"

    @clause("C13", needs="supports_plan")
    async def test_c13_no_error_is_handed_on(self) -> None:
        tasks = [
            *(Task(name, "Try it.") for name in ("good", "bad")),
            Task("end", "Put together.", depends_on=["good", "bad"], needs=1),
        ]
        agent = Watched(fail_at("bad"))
        await self.stage(agent, tasks=tasks).play()
        (call,) = [call for call in agent.calls if call.task.id == "end"]
        assert list(call.upstream) == ["good"], f"a failed artifact was handed on: {dict(call.upstream)}"


def _branches() -> list[Task]:
    return [
        Task("last", "Do it.", depends_on=["after-bad"]),
        Task("after-bad", "Do it.", depends_on=["bad"]),
        Task("after-both", "Do it.", depends_on=["free", "bad", "worse"]),
        Task("bad", "Do it."),
        Task("free", "Do it."),
        Task("after-free", "Do it.", depends_on=["free"]),
        Task("worse", "Do it."),
        Task("slow", "Do it."),
    ]


async def _break_early(assignment: Assignment, context: MemberContext) -> Any:
    """Fail one branch at once and one a little later; the others end later."""
    name = assignment.task.id
    if name == "bad":
        return await fail(assignment, context)
    if name == "worse":
        return await say_nothing(assignment, context)
    await anyio.sleep(20 if name == "slow" else 2)
    return await write(assignment, context)


def _check_failed(name: str, result: TeamResult) -> None:
    where = f"an agent that {name}"
    assert result.status is TeamStatus.FAILED, f"{where}: FAILED is due, not {result!r}"
    tried = [outcome for outcome in result.outcomes if outcome.attempts]
    assert tried, f"{where}: nothing was tried: {result!r}"
    for outcome in tried:
        assert outcome.status is TaskStatus.FAILED, f"{where}: task {outcome.task_id!r} is {outcome.status}"
        assert outcome.error, f"{where}: task {outcome.task_id!r} does not say why it failed"
        verdict = outcome.verdict
        assert verdict is None or verdict.outcome is not VerdictOutcome.PASS, f"{where}: it was passed: {verdict}"
