"""What the tests of the supervisor share: its calls, scripts of turns, and a bench that replays every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

import kairo_team as kt
from tests.coordinators.bench import ONCE, Bench

Call = tuple[str, dict[str, Any]]
Lead = Callable[[kt.Assignment, kt.MemberContext], Awaitable[Any]]


def create(task_id: str, member: str = "reader", *needs: str, **more: Any) -> Call:
    """Return a call that creates a task."""
    return "create_task", {
        "id": task_id,
        "description": f"Do {task_id}.",
        "member": member,
        "depends_on": list(needs),
        **more,
    }


WAIT: Call = ("wait", {})


SEE: Call = ("see_results", {})


def see(ids: Any) -> Call:
    return "see_results", {"ids": ids}


def propose(*given: Any) -> Call:
    return "create_task", dict(zip(("id", "description", "member", "depends_on"), given, strict=True))


def finish(answer: str = "All is done.") -> Call:
    return "finish", {"answer": answer}


def led_by(*turns: Sequence[Call] | str) -> tuple[Lead, list[str]]:
    """Return a supervisor that makes these calls in its turns, or says a text; and the results it reads."""
    read: list[str] = []

    async def lead(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        number = int(str(assignment.inputs["turn"]).split()[0])
        turn = turns[number - 1]
        if isinstance(turn, str):
            return turn
        for name, arguments in turn:
            read.append((await context.tool(name)(**arguments)).text)
        return "I have spoken."

    return lead, read


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Do a task in a second, but for those that are called so."""
    await anyio.sleep(1)
    if assignment.task.id.startswith("bad"):
        raise ValueError("it cannot be done")
    return f"made {assignment.task.id}" + "".join(f" of {one.text}" for one in assignment.upstream.values())


def supervised(**fields: Any) -> kt.SupervisorCoordinator:
    given: dict[str, Any] = {"failure_policy": ONCE, **fields}
    return kt.SupervisorCoordinator(**given)


def bench(lead: Any, **fields: Any) -> Bench:
    members = [
        kt.Member(kt.Role("lead"), lead),
        kt.Member(kt.Role("reader", "You read."), work),
        kt.Member("writer", work),
    ]
    return Bench(*members, **fields)


async def play(*turns: Sequence[Call] | str, **fields: Any) -> tuple[kt.TeamResult, list[str]]:
    """Run a supervisor with a script; the run is replayed too."""
    lead, read = led_by(*turns)
    config = fields.pop("config", {})
    team = fields.pop("team", {})
    return await bench(lead, **team).run(supervised(**fields), **config), read
