"""The coordinator kit on order: C8, dataflow and upstream artifacts; C9, leases and slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
from hypothesis import strategies as st

from kairo_team.contracts import MemberContext
from kairo_team.events import TaskAssigned, TaskCompleted
from kairo_team.results import TeamStatus
from kairo_team.tasks import Assignment, Task
from kairo_team.tck.coordinator_stage import CoordinatorStage, Function, Show, Watched, fail_at, sleep, write
from kairo_team.tck.kit import clause, law

SOON: Final = 0.05
"""Seconds that the start of a task may take."""


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[Task, float]]:
    """Draw a plan of tasks with the seconds each takes."""
    plan: list[tuple[Task, float]] = []
    for number in range(draw(st.integers(1, 9))):
        before = [task.id for task, _ in plan]
        depends_on = draw(st.lists(st.sampled_from(before), max_size=3)) if before else []
        plan.append((Task(f"t{number}", "Do it.", depends_on=depends_on), draw(st.integers(0, 30)) / 10))
    return plan


class OrderTests(CoordinatorStage):
    """When tasks start, and which artifacts they get."""

    # ------------------------------------------------------------------ C8: dataflow

    @clause("C8")
    async def test_c08_no_task_starts_before_what_it_depends_on_is_accepted(self) -> None:
        tasks = [Task("c", "Do c.", depends_on=["a", "b"]), Task("b", "Do b.", depends_on=["a"]), Task("a", "Do a.")]
        show = self.stage(sleep, tasks=tasks)
        result = await show.play()
        assert result.plan is not None, "the result must have its plan"
        accepted = {event.task_id: event.seq for event in show.seen.of(TaskCompleted)}
        for task in result.plan.tasks:
            (started,) = [event.seq for event in show.seen.of(TaskAssigned, task.id)]
            early = [name for name in task.depends_on if accepted.get(name, 0) > started]
            assert not early, f"task {task.id!r} started before {early} were accepted"

    @clause("C8", needs="supports_plan")
    async def test_c08_a_task_waits_for_nobody_it_does_not_depend_on(self) -> None:
        tasks = [Task("long", "Do it."), Task("a", "Do a."), Task("b", "Do b.", depends_on=["a"])]
        agent = Watched(_take({"long": 10, "a": 1, "b": 1}))
        took = await _play(self.stage(agent, tasks=tasks))
        assert agent.began["b"] - agent.began["a"] <= 1 + self.late(SOON), (
            f"'b' could start after 1 second, and started after {agent.began['b'] - agent.began['a']:g}: "
            "it depends only on 'a'"
        )
        assert took <= 10 + self.late(SOON), f"10 seconds are enough for the plan, it took {took:g}"

    @clause("C8", needs="supports_plan")
    async def test_c08_what_can_start_starts_at_once(self) -> None:
        agent = Watched(sleep)
        took = await _play(self.stage(agent, tasks=[Task(f"t{number}", "Do it.") for number in range(40)]))
        assert agent.most == 40, f"40 tasks could be done at once, there were {agent.most} at most"
        assert took <= 1 + self.late(SOON), f"1 second is enough for the plan, it took {took:g}"

    @law("C8", needs="supports_plan", plan=plans())
    async def test_c08_the_longest_path_is_how_long_it_takes(self, plan: list[tuple[Task, float]]) -> None:
        seconds = {task.id: takes for task, takes in plan}
        agent = Watched(_take(seconds))
        ends: dict[str, float] = {}
        for task, takes in plan:
            ends[task.id] = max((ends[name] for name in task.depends_on), default=0.0) + takes
        took = await _play(self.stage(agent, tasks=[task for task, _ in plan]))
        first = min(agent.began.values())
        for task, takes in plan:
            started, could = agent.began[task.id] - first, ends[task.id] - takes
            late = f"task {task.id!r} could start after {could:g}, not {started:g} seconds"
            assert started <= could + self.late(SOON), late
            assert started >= could - SOON, f"task {task.id!r} started after {started:g} seconds, {could:g} were due"
        enough = max(ends.values())
        assert took <= enough + self.late(SOON), f"{enough:g} seconds are enough, it took {took:g}"

    @clause("C8", needs="supports_plan")
    async def test_c08_with_needs_it_starts_once_enough_are_accepted_and_the_rest_have_ended(self) -> None:
        tasks = [
            *(Task(name, "Try it.") for name in ("quick", "lost", "slow")),
            Task("end", "Put together.", depends_on=["quick", "lost", "slow", "quick"], needs=2),
        ]
        agent = Watched(_take({"slow": 50}, fail_at("lost")))
        result = await self.stage(agent, tasks=tasks).play()
        assert result.status is TeamStatus.DEGRADED, f"two of three are enough, and it ended {result!r}"
        waited = agent.began["end"] - agent.began["slow"]
        assert 50 <= waited <= 50 + self.late(SOON), f"'slow' ends after 50 seconds, and 'end' began after {waited:g}"
        (call,) = [call for call in agent.calls if call.task.id == "end"]
        assert list(call.upstream) == ["quick", "slow"], f"it is handed what was accepted, not {list(call.upstream)}"

    @clause("C8")
    async def test_c08_a_task_is_handed_the_artifacts_it_depends_on(self) -> None:
        tasks = [Task("c", "Do c.", depends_on=["b", "a"]), Task("b", "Do b.", depends_on=["a"]), Task("a", "Do a.")]
        agent = Watched(sleep)
        await self.stage(agent, tasks=tasks).play()
        for call in agent.calls:
            wanted = [(name, f"text of {name}") for name in call.task.depends_on]
            handed = [(name, artifact.text) for name, artifact in call.upstream.items()]
            assert handed == wanted, f"task {call.task.id!r} was handed {handed}, not {wanted}"

    @clause("C8", needs="supports_plan")
    async def test_c08_a_task_is_handed_goal_context_and_its_inputs(self) -> None:
        agent = Watched(write)
        tasks = [Task("a", "Do a.", inputs={"quarter": 3})]
        await self.stage(agent, tasks=tasks, goal="Sum it up.", context={"for": "children"}).play()
        (call,) = agent.calls
        handed = (call.goal, dict(call.context), dict(call.inputs), call.task)
        wanted = ("Sum it up.", {"for": "children"}, {"quarter": 3}, tasks[0])
        assert handed == wanted, f"it was handed {handed}, not {wanted}"

    # ------------------------------------------------------------------ C9: leases and slots

    @clause("C9", needs="supports_plan")
    async def test_c09_a_member_has_no_more_attempts_at_once_than_it_allows(self) -> None:
        for most in (1, 2, 3):
            agents, show = self._apart(most)
            took = await _play(show)
            busiest = max(agent.most for agent in agents)
            assert busiest <= most, f"max_concurrency is {most}, a member had {busiest} attempts at once"
            enough = 12 / (len(agents) * most)
            assert took <= enough + 1 + self.late(SOON), f"all members need {enough:g} seconds, it took {took:g}"

    def _apart(self, most: int) -> tuple[list[Watched], Show]:
        """Return a run of twelve tasks whose members have agents of their own."""
        show = self.stage(write, tasks=[Task(f"t{number}", "Do it.") for number in range(12)])
        agents = [Watched(sleep) for _ in show.team.members]
        pairs = zip(show.team.members, agents, strict=True)
        members = [replace(member, agent=agent, max_concurrency=most) for member, agent in pairs]
        show.set_members(members)
        return agents, show

    @clause("C9")
    async def test_c09_an_agent_that_is_not_reentrant_is_never_called_twice_at_once(self) -> None:
        show = self.stage(write, tasks=[Task(f"t{number}", "Do it.") for number in range(12)])
        agents = [_NotReentrant() for _ in show.team.members]
        pairs = zip(show.team.members, agents, strict=True)
        show.set_members([replace(member, agent=agent) for member, agent in pairs])
        result = await show.play()
        assert result.status is TeamStatus.COMPLETED, f"it ended {result!r}"
        assert max(agent.inner.most for agent in agents) == 1, "an agent that keeps state was called twice at once"

    @clause("C9")
    async def test_c09_no_more_tasks_at_once_than_the_request_allows(self) -> None:
        for most in (1, 3):
            agent = Watched(sleep)
            tasks = [Task(f"t{number}", "Do it.") for number in range(12)]
            took = await _play(self.stage(agent, tasks=tasks, max_parallel_tasks=most))
            assert agent.most <= most, f"max_parallel_tasks is {most}, there were {agent.most} at once"
            if self.supports_plan:
                enough = 12 / most
                assert took <= enough + self.late(SOON), f"{most} at once need {enough:g} seconds, it took {took:g}"

    @clause("C9", needs="supports_plan")
    async def test_c09_a_member_that_is_busy_holds_up_nobody_else(self) -> None:
        show = self.stage(write)
        first, last = show.team.members[0].id, show.team.members[-1].id
        tasks = [Task("x", "Do x.", member=first), Task("y", "Do y.", member=first), Task("z", "Do z.", member=last)]
        agent = Watched(_take({"x": 10, "y": 10, "z": 1}))
        show = self.stage(agent, tasks=tasks)
        show.change_members(max_concurrency=1)
        took = await _play(show)
        assert agent.began["z"] <= agent.began["x"] + self.late(0), "'z' had to wait for a member that it does not need"
        assert took <= 20 + self.late(SOON), f"20 seconds are enough for the plan, it took {took:g}"


class _NotReentrant:
    """An agent that does not say it may be called twice at once."""

    def __init__(self) -> None:
        self.inner = Watched(sleep)

    async def run(self, assignment: Assignment, context: MemberContext) -> Any:
        return await self.inner.run(assignment, context)


def _take(seconds: Mapping[str, float], then: Function = write) -> Function:
    async def work(assignment: Assignment, context: MemberContext) -> Any:
        await anyio.sleep(seconds.get(assignment.task.id, 0))
        return await then(assignment, context)

    return work


async def _play(show: Show) -> float:
    """Play the run to a successful end; return the seconds that it took."""
    began = anyio.current_time()
    result = await show.play()
    assert result.status is TeamStatus.COMPLETED, f"it ended {result!r}"
    return anyio.current_time() - began
