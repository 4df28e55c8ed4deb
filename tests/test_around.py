"""Subscribers that stand around the work of a run: entered in the work's own task, and in nobody's way."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.contracts import AgentLike, Subscriber, Surrounding

pytestmark = pytest.mark.anyio

here: ContextVar[tuple[str, ...]] = ContextVar("here", default=())


class Places:
    """Says in a context variable where the work is."""

    def __init__(self) -> None:
        self.left: list[tuple[str, str | None]] = []

    def __call__(self, event: events.Event) -> None:
        pass

    def around(self, event: events.Event) -> AbstractContextManager[None]:
        return self._inside(event)

    @contextmanager
    def _inside(self, event: events.Event) -> Generator[None]:
        token = here.set((*here.get(), f"{event.type} {getattr(event, 'task_id', '')}"))
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            here.reset(token)
            self.left.append((event.type, None if error is None else type(error).__name__))


async def run(*subscribers: Subscriber, agent: AgentLike, tasks: int = 1) -> kt.TeamResult:
    runtime = kt.Runtime(subscribers=subscribers)
    plan = kt.TaskGraph([kt.Task(f"t{number}", "Do.") for number in range(tasks)])
    team = kt.Team("t", [kt.Member("m", agent, max_concurrency=tasks)])
    return await kt.run(team, "go", plan=plan, runtime=runtime)


async def test_it_is_entered_in_the_task_of_each_work() -> None:
    seen: dict[str, list[tuple[str, ...]]] = {}

    @kt.tool(side_effect="read")
    async def look() -> str:
        """Look."""
        seen["tool"] = [here.get()]
        return "seen"

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        seen.setdefault(assignment.task.id, []).append(here.get())
        await anyio.sleep(1)
        seen[assignment.task.id].append(here.get())
        await context.tool(look)()
        seen[assignment.task.id].append(here.get())
        return "text"

    places = Places()
    await run(places, agent=agent, tasks=3)
    for task in ("t0", "t1", "t2"):
        assert seen[task] == [("team.started ", f"attempt.started {task}")] * 3
    assert seen["tool"][0][2].startswith("tool.started")
    assert here.get() == ()
    assert places.left[-1] == ("team.started", None)


async def test_it_sees_what_the_work_raises_and_cannot_swallow_it() -> None:
    class Swallows(Places):
        def around(self, event: events.Event) -> AbstractContextManager[None]:
            outer = super().around(event)

            @contextmanager
            def swallow() -> Generator[None]:
                try:
                    with outer:
                        yield
                except LookupError:
                    pass

            return swallow()

    async def agent(assignment: kt.Assignment) -> str:
        raise LookupError("no page")

    places = Swallows()
    result = await run(places, agent=agent)
    assert result.status is kt.TeamStatus.FAILED
    assert "no page" in str(result.error)
    assert ("attempt.started", "LookupError") in places.left


@pytest.mark.parametrize("when", ["called", "entered", "left"])
async def test_one_that_raises_is_removed_and_the_work_goes_on(when: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    class Broken:
        def __call__(self, event: events.Event) -> None:
            calls.append(event.type)

        def around(self, event: events.Event) -> AbstractContextManager[None]:
            if when == "called":
                raise RuntimeError("broken")
            return self.broken()

        @contextmanager
        def broken(self) -> Generator[None]:
            if when == "entered":
                raise RuntimeError("broken")
            yield
            raise RuntimeError("broken")

    async def agent(assignment: kt.Assignment) -> str:
        return "text"

    other = Places()
    with caplog.at_level(logging.ERROR, "kairo_team"):
        result = await run(Broken(), other, agent=agent)
    assert result.status is kt.TeamStatus.COMPLETED
    assert caplog.text.count("wraps no more work") == 1
    assert calls[-1] == "team.completed"
    assert ("attempt.started", None) in other.left


def test_a_plain_subscriber_stands_around_nothing() -> None:
    assert not isinstance(print, Surrounding)
    assert isinstance(Places(), Surrounding)


async def test_what_raises_when_it_is_asked_for_its_trace_is_removed_too(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Places):
        def traceparent(self, run_id: str) -> str:
            raise RuntimeError("broken")

    async def agent(assignment: kt.Assignment) -> str:
        return "text"

    broken = Broken()
    with caplog.at_level(logging.ERROR, "kairo_team"):
        result = await run(broken, agent=agent)
    assert result.status is kt.TeamStatus.COMPLETED
    assert caplog.text.count("wraps no more work") == 1
    assert broken.left == []
