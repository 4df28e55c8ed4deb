"""A run that waits for people, is answered, and is killed at the moment of its resume: it stands as it stood."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.errors import RunFinished
from kairo_team.testing import MemoryJournal, virtual_time_backends
from tests.human import APPROVE, REVISE, AsksFirst, LeavesOpen, Office, statuses
from tests.team_machine import Deed, Script
from tests.test_team_machine import check_run_and_replay, reviewed, strict

pytestmark = pytest.mark.sampled("anyio_backend")

ENDED = "made"
"""A task that is accepted before anybody is asked."""


@kt.tool(side_effect="write")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def buy(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.governor.record_usage(prompt_tokens=7)
    return (await context.tool(pay).call({"amount": 5})).text


async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.governor.record_usage(prompt_tokens=11)
    return f"{assignment.task.id} {assignment.attempt}"


async def fail(assignment: kt.Assignment) -> str:
    raise OSError("busy")


def task(name: str, member: str = "writer", *needs: str) -> kt.Task:
    return kt.Task(name, "do", member=member, depends_on=needs)


PLANS = {
    "plan": [task("later")],
    "review": [task(ENDED), task("asked", "writer", ENDED), task("later", "writer", "asked")],
    "tool": [task(ENDED), task("bought", "buyer", ENDED), task("later", "writer", "bought")],
    "several": [task(ENDED), task("asked"), task("bought", "buyer"), task("later", "writer", "asked")],
    "lost": [task("bad", "bad"), task("without", "writer", "bad"), task("asked")],
}
"""What is asked about: the plan, a review, a tool call; or two of them; or a review beside tasks that are lost."""


class Planner:
    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: Any) -> kt.TaskGraph:
        return kt.TaskGraph(PLANS[request.goal])


class Killer:
    """Kills the run as soon as it is resumed."""

    runtime: kt.Runtime

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.TeamResumed):
            self.runtime.runs["r"].cancel("killed")


def office(about: str, journal: Any) -> Office:
    killer, given = Killer(), {} if journal is None else {"journal": journal}
    desk = Office(
        {"writer": write, "buyer": buy, "bad": fail},
        guard=AsksFirst("pay"), evaluator=LeavesOpen("asked"), planner=Planner(), plan_approval=about == "plan",
    )  # fmt: skip
    desk.runtime = killer.runtime = kt.Runtime(subscribers=[desk.recorder, killer], gate=kt.DeferGate(), **given)
    return desk


def in_process(_folder: Path) -> Any:
    return None


def in_memory(_folder: Path) -> Any:
    return MemoryJournal()


def on_disk(folder: Path) -> Any:
    return kt.SqliteJournal(folder / "runs.db")


@pytest.mark.real_time
@pytest.mark.parametrize("about", PLANS)
@pytest.mark.parametrize("make", [in_process, in_memory, on_disk])
async def test_third_o1_a_run_killed_at_its_resume_stands_as_it_did(
    make: Callable[[Path], Any], about: str, tmp_path: Path
) -> None:
    """Its plan, its ended tasks with their reasons, what it had spent; and no question is left."""
    journal = make(tmp_path)
    desk = office(about, journal)
    first = await desk.run(goal=about, risk_profile=kt.RiskProfile.LOW)
    assert first.status is kt.TeamStatus.SUSPENDED
    questions = desk.runtime.pending("r")
    assert len(questions) == (2 if about == "several" else 1)
    desk.answer(*(APPROVE for _ in questions))
    if journal is not None:  # as another process does it
        desk = office(about, journal)
        result = await desk.runtime.resume("r", desk.team, coordinator=desk.coordinator)
    else:
        result = await desk.resume()
    assert (result.status, result.error, result.plan) == (kt.TeamStatus.CANCELLED, "killed", first.plan)
    for was, stands in zip(first.outcomes, result.outcomes, strict=True):
        if was.status is kt.TaskStatus.PENDING:
            assert (stands.status, stands.attempts) == (kt.TaskStatus.SKIPPED, 0)
            continue
        waited = was.status is kt.TaskStatus.SUSPENDED
        assert (stands.status, stands.error) == (
            (kt.TaskStatus.CANCELLED, "killed") if waited else (was.status, was.error)
        )
        assert (stands.attempts, stands.artifact, stands.usage.tokens) == (was.attempts, was.artifact, was.usage.tokens)
    assert result.usage.tokens == first.usage.tokens == sum(one.usage.tokens for one in result.outcomes)
    assert desk.runtime.pending() == ()
    with pytest.raises(RunFinished):
        await desk.resume()
    if isinstance(journal, kt.SqliteJournal):
        [seen] = journal.runs()
        assert (seen.state, seen.usage.tokens) == ("cancelled", first.usage.tokens)
        journal.close()


REPLAYED: dict[str, dict[str, Any]] = {
    "the plan": {"approval": True, "gate": ["defer"], "planner": ["plan"]},
    "a revised plan": {"approval": True, "gate": ["revise", "defer"], "planner": ["plan", "raise"], "fallback": True},
    "a review": {"gate": ["defer"], "scripts": [Script(["succeed"], 0.0, ["escalate human_required"])]},
    "a tool": {"gate": ["defer"], "scripts": [Script(["pay"], 0.0, ["pass"])]},
    "a review behind another plan": {
        "gate": ["defer"],
        "planner": ["plan"],
        "replan": True,
        "scripts": [Script([act], 0.0, [said]) for act, said in (("fail", "pass"), ("succeed", "escalate undecided"))],
    },
}


@pytest.mark.parametrize("backend", virtual_time_backends)
@pytest.mark.parametrize("about", REPLAYED)
@pytest.mark.parametrize("deed", ["kill", "cancel task"])
def test_third_o1_its_replay_gives_what_it_gave(about: str, deed: str, backend: str) -> None:
    """Several times, since trio begins the run and the deed in any order."""
    plain: dict[str, Any] = {
        "tasks": [kt.Task(f"t{number}", "do") for number in range(4)],
        "scripts": [Script(["succeed"], 0.0, ["pass"])],
        "members": [{"role": "r0", "max_concurrency": None, "budget": None, "senior": False}],
        "config": strict(review_timeout=5.0),
        "answers": ["approve"],
        "later": [Deed(0.0, deed, 0)],
    }
    for _ in range(3):
        check_run_and_replay(backend, reviewed(**plain | REPLAYED[about]))


@pytest.mark.anyio
async def test_third_o1_a_task_cancelled_before_it_is_where_it_was_keeps_its_attempts() -> None:
    """Two attempts were made; the task is cancelled as soon as the first one is recalled."""
    desk = Office({"m": write}, gate=kt.DeferGate(), evaluator=LeavesOpen("asked"))
    sessions: list[events.Event] = []

    def cancel(event: events.Event) -> None:
        sessions.extend([event] if isinstance(event, events.TeamResumed) else [])
        if len(sessions) == 2 and isinstance(event, events.AttemptFinished) and event.attempt == 1:
            desk.runtime.runs["r"].cancel_task("asked", "not needed")

    desk.runtime = kt.Runtime(subscribers=[desk.recorder, cancel], gate=kt.DeferGate())
    await desk.run([kt.Task("asked", "do", member="m")])
    desk.answer(REVISE)
    waiting = await desk.resume()
    assert (waiting.status, waiting["asked"].attempts, waiting["asked"].usage.tokens) == ("suspended", 2, 22)
    desk.answer(APPROVE)
    result = await desk.resume()
    assert statuses(result) == {"asked": "cancelled"}
    assert (result["asked"].attempts, result["asked"].artifact) == (2, waiting["asked"].artifact)
    assert result["asked"].usage.tokens == result.usage.tokens == 22
