"""What tests of live runs share: a team of one, members that take their time, a watcher, an odd coordinator."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator

NO_RETRIES = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
FIRST, LAST = "team.started", "team.completed"


async def nap(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Take a second over each task, and say so."""
    context.keep("half of it")
    for number in range(2):
        context.emit(f"{assignment.task.id} {number}")
        await anyio.sleep(0.5)
    return f"{assignment.task.id} is done"


async def hang(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half of it")
    await anyio.sleep_forever()
    raise AssertionError


def team_of(agent: Any = nap, **fields: Any) -> kt.Team:
    return kt.Team("team", [kt.Member("a", agent)], **fields)


def request(tasks: int = 1, run_id: str = "r", **config: Any) -> kt.TeamExecutionRequest:
    plan = kt.TaskGraph([kt.Task(f"t{number}", "do") for number in range(tasks)])
    return kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config), run_id=run_id)


async def watch(run: kt.Run, after: int = 0, into: list[events.Event] | None = None) -> list[events.Event]:
    seen: list[events.Event] = [] if into is None else into
    async for event in run.events(after):
        seen.append(event)  # noqa: PERF401 - what was seen counts, also if this is cancelled
    return seen


class Odd:
    """A coordinator that does what the test wants before, after, or in the place of the task board's work."""

    def __init__(self, before: Any = checkpoint, after: Any = checkpoint) -> None:
        self._before, self._after = before, after

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        await self._before()
        result = await TaskDispatchCoordinator().execute(request, team)
        await self._after()
        return result


async def explode() -> None:
    raise OSError("no disk")


async def begin_slowly(runtime: kt.Runtime, team: kt.Team, group: anyio.abc.TaskGroup) -> kt.Run:
    """Start a run whose coordinator takes a second before it opens it, and return its handle at once."""
    slowly = partial(runtime.start, coordinator=Odd(before=partial(anyio.sleep, 1)))
    group.start_soon(slowly, team, request())
    await anyio.wait_all_tasks_blocked()
    return runtime.runs["r"]
