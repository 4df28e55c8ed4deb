"""Events of teams inside attempts: subscribers get the same, wherever the attempt is made."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.events import Event, TeamEnded, TeamStarted
from kairo_team.testing import EventRecorder, FunctionModel
from tests.cluster.stage import new_database, working
from tests.telemetry.traced import Traced

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]
LONG = 60.0
SECRET = "token-of-the-tests"
OF_TIME = ("at", "duration", "evaluated_at", "seconds")


def plain(value: Any) -> Any:
    """Leave out what says how long something took."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: plain(one) for name, one in fields.items() if name not in OF_TIME}
    return [plain(one) for one in cast("Sequence[Any]", value)] if isinstance(value, list) else value


def by_inner_run(events: Sequence[Event], run_id: str = "r") -> dict[str, list[Any]]:
    """The events of each run inside the run, without times."""
    found: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        if event.run_id != run_id:
            found[event.run_id].append(plain(json.loads(event.to_json())))
    return dict(found)


@kt.tool(side_effect="read")
def look(at: str) -> str:
    """Look."""
    return f"saw {at}"


async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    seen = (await context.tool(look)(at=f"{assignment.task.id} {SECRET}")).text
    asked = kt.ModelRequest([kt.Message.user(f"{assignment.task.id}: {seen}")], max_tokens=20)
    return (await context.model("m:x").complete(asked)).text


async def fail(assignment: kt.Assignment) -> str:
    raise ValueError(f"cannot do {assignment.task.id}: {SECRET}")


CHAIN = kt.TaskGraph([kt.Task("x", "Do x."), kt.Task("y", "Do y.", depends_on=["x"])])
SIDE = kt.TaskGraph([kt.Task("x", "Do x.", member="hand"), kt.Task("y", "Do y.", member="team", depends_on=["x"])])


def inner(act: Any) -> TeamAgent:
    once = ExpertTeamCoordinator(failure_policy=FailurePolicy(retries=0))
    return TeamAgent(kt.Team("inner", [kt.Member("hand", act)], coordinator=once), plan=CHAIN)


INNER = {
    "team": inner(ask),
    "team in a team": TeamAgent(kt.Team("middle", [kt.Member("hand", ask), kt.Member("team", inner(ask))]), plan=SIDE),
    "failing team": inner(fail),
}


def model() -> FunctionModel:
    return FunctionModel(lambda request: f"answer to {request.messages[-1].text}", name="test:m")


def team_of(agent: Any, secrets: Sequence[str] = ()) -> kt.Team:
    runtime = kt.Runtime(models={"m:x": model()}, secrets=secrets)
    once = ExpertTeamCoordinator(failure_policy=FailurePolicy(retries=0))
    return kt.Team("outer", [kt.Member("m", agent)], runtime=runtime, coordinator=once)


def request_of(**config: Any) -> kt.TeamExecutionRequest:
    plan = kt.TaskGraph([kt.Task("a", "Do a.")])
    return kt.TeamExecutionRequest("Go.", plan=plan, run_id="r", config=kt.TeamConfig(**config))


async def run_both(agent: Any, make: Any, journal: Any = None, **given: Any) -> list[Any]:
    """Run a team here and over a worker, each with a subscriber of its own; return both."""
    team, found = team_of(agent, given.get("secrets", ())), [make(), make()]
    here = replace(team, runtime=None)
    runtime = kt.Runtime(subscribers=[found[0]], models={"m:x": model()}, journal=journal, **given)
    with anyio.fail_after(LONG):
        local = await kt.run(here, request_of(), runtime=runtime)
    remote = await run_over_worker(team, found[1], **given)
    assert remote.status is local.status
    return found


async def run_over_worker(team: kt.Team, subscriber: Any, **given: Any) -> kt.TeamResult:
    async with working(new_database("procrastinate"), team) as cluster:
        runtime = kt.Runtime(subscribers=[subscriber], engine=cluster, **given)
        with anyio.fail_after(LONG):
            return await kt.run(replace(team, runtime=None), request_of(), runtime=runtime)


@pytest.mark.parametrize("kind", INNER)
@pytest.mark.parametrize("content", ["none", "events", "journal"])
async def test_they_are_those_of_one_process_in_the_same_order(kind: str, content: str, tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    how = {"content": content, "journal": journal, "secrets": [SECRET]}
    local, remote = await run_both(INNER[kind], EventRecorder, **how)
    journal.close()
    expected = by_inner_run(local.events)
    assert len(expected) == (2 if kind == "team in a team" else 1)
    assert by_inner_run(remote.events) == expected
    assert SECRET not in "".join(event.to_json() for event in remote.events)
    assert [type(one) for one in remote.events if one.run_id == "r"] == [
        type(one) for one in local.events if one.run_id == "r"
    ]


async def test_the_secrets_of_the_coordinator_are_masked_in_them() -> None:
    recorder = EventRecorder()
    await run_over_worker(team_of(INNER["failing team"]), recorder, secrets=[SECRET])
    written = "".join(event.to_json() for event in recorder.events if event.run_id != "r")
    assert "cannot do x: " in written
    assert SECRET not in written


async def test_an_async_subscriber_has_all_of_them_before_the_run_ends() -> None:
    class Slow:
        def __init__(self) -> None:
            self.events: list[Event] = []

        async def __call__(self, event: Event) -> None:
            await anyio.sleep(0.001)
            self.events.append(event)

    local, remote = await run_both(INNER["team"], Slow)
    assert by_inner_run(remote.events) == by_inner_run(local.events)
    found = [event for event in remote.events if event.run_id != "r"]
    assert [event.seq for event in found] == [*range(1, len(found) + 1)]


async def test_they_come_while_the_attempt_goes_on_and_its_cancellation_ends_them() -> None:
    async def wait(assignment: kt.Assignment) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    team = team_of(inner(wait))
    recorder, begun = EventRecorder(), anyio.Event()

    def notice(event: Event) -> None:
        if event.run_id != "r" and event.type == "attempt.started":
            begun.set()

    async with working(new_database("procrastinate"), team) as cluster:
        await to_thread.run_sync(cluster.start)
        assert cluster.mailbox is not None
        cluster.journal.beat = LONG  # it waits for the grace and so long for the end at the worker
        async with kt.Runtime(subscribers=[recorder, notice], engine=cluster) as runtime:
            run = await runtime.start(replace(team, runtime=None), request_of())
            with anyio.fail_after(LONG):
                await begun.wait()
                run.cancel("enough")
                await run.result()
    found = [event for event in recorder.events if event.run_id != "r"]
    assert isinstance(found[0], TeamStarted)
    assert (found[0].within, found[0].within_task) == ("r", "a")
    assert isinstance(found[-1], TeamEnded)
    assert recorder.events.index(found[-1]) < len(recorder.events) - 1


@pytest.mark.parametrize("kind", ["team", "team in a team"])
async def test_their_spans_are_in_the_span_of_the_attempt(kind: str) -> None:
    traced: list[Traced] = []

    def make() -> Any:
        traced.append(Traced())
        return traced[-1].subscriber

    await run_both(INNER[kind], make)
    local, remote = traced
    assert remote.tree() == local.tree()
