"""Plays a scenario to its end, with all its sessions, or replays what was recorded of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from random import Random
from typing import Any

import anyio

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.errors import InsufficientBudget, Misuse
from kairo_team.events import Event
from kairo_team.testing import EventRecorder
from kairo_team.tools.permissions import ToolPermissions
from tests.team_machine import Deed, Scenario
from tests.team_machine_doubles import Alarm, Asking, Dead, Editor, Member, Person, Planner, World, decision

MOST_SESSIONS = 5
TOP_UP = kt.Budget(tokens=30, loops=3)


class Recorded(kt.Runtime):
    """A runtime whose only run records into a journal of ours."""

    def __init__(self, journal: MemoryRecords, **fields: Any) -> None:
        super().__init__(**fields)
        self.journal = journal

    def journal_for(self, run_id: str) -> MemoryRecords:
        return self.journal


@dataclass
class Session:
    """One session of a run, and what came of it."""

    result: kt.TeamResult | None = None
    """None when the caller was cancelled."""
    took: float = 0.0
    deeds: list[Deed] = field(default_factory=list[Deed])
    """What was done from outside, without what came too late."""
    left: int = 0
    """Loop tasks that were there afterwards and not before."""
    open_questions: tuple[kt.HumanRequest, ...] = ()
    tried: Counter[str] = field(default_factory=Counter[str])
    """How often members were called in this session, by task."""
    records: dict[str, Any] = field(default_factory=dict[str, Any])
    """All that was recorded by its end."""


@dataclass
class Played:
    scenario: Scenario
    world: World
    recorder: EventRecorder
    runtime: Recorded
    sessions: list[Session] = field(default_factory=list[Session])
    log: list[Event] | None = None
    """What a watcher of a run begun by `start` saw."""

    @property
    def result(self) -> kt.TeamResult | None:
        return self.sessions[-1].result

    @property
    def records(self) -> dict[str, Any]:
        return dict(self.runtime.journal.records)


def make_team(scenario: Scenario, world: World, runtime: kt.Runtime, dead: Dead | None = None) -> kt.Team:
    """Make the scenario's team; with `dead` it is of members that nobody may call."""
    members: list[kt.Member] = []
    for number, fields in enumerate(scenario.members):
        name, senior = f"m{number}", f"s{number}"
        above = kt.Member("chief", dead or Member(world, senior), senior) if fields["senior"] else None
        rest = {key: fields[key] for key in ("budget", "max_concurrency")}
        members.append(kt.Member(fields["role"], dead or Member(world, name), name, senior=above, **rest))
    return kt.Team(
        "team",
        members,
        evaluators={"ed": dead or Editor(world)},
        runtime=runtime,
        permissions=ToolPermissions(guard=Asking()),
        constraints=[Alarm(world)] if scenario.guarded else [],
    )


def make_coordinator(scenario: Scenario, world: World, dead: Dead | None = None) -> Any:
    """Make the scenario's coordinator; with `dead` its planner, evaluator and gate are nobody's."""
    policy = FailurePolicy(**scenario.policy)
    if not scenario.expert:
        return TaskDispatchCoordinator(failure_policy=policy)
    mode = kt.PlannerFailureMode
    return ExpertTeamCoordinator(
        planner=None if scenario.planner is None else dead or Planner(world),
        evaluator="ed" if scenario.reviewed else None,
        gate=None if scenario.gate is None else dead or Person(world),
        planner_failure_mode=mode.SINGLE_TASK_FALLBACK if scenario.fallback else mode.FAIL_FAST,
        plan_approval=scenario.approval,
        failure_policy=policy,
        replan=scenario.replan,
    )


def make_request(scenario: Scenario) -> kt.TeamExecutionRequest:
    plan = kt.TaskGraph(scenario.tasks) if scenario.planner is None else None
    return kt.TeamExecutionRequest("g", plan=plan, config=scenario.config, run_id="r")


async def play(scenario: Scenario) -> Played:
    """Run the scenario, answer what was put off and go on, until there is a last result."""
    world, recorder = World(scenario), EventRecorder()
    runtime = Recorded(MemoryRecords(), subscribers=[recorder], budget=scenario.shared)
    played = Played(scenario, world, recorder, runtime)
    with anyio.fail_after(100_000):  # a run that hangs fails, in no time
        if scenario.live:
            async with runtime:
                await play_sessions(played)
        else:
            await play_sessions(played)
    return played


async def play_sessions(played: Played) -> None:
    scenario, runtime, world = played.scenario, played.runtime, played.world
    team, coordinator = make_team(scenario, world, runtime), make_coordinator(scenario, world)
    world.cancel_task = partial(cancel_task, runtime)
    request = make_request(scenario)

    async def begin() -> kt.TeamResult:
        if not scenario.live:
            result: kt.TeamResult = await coordinator.execute(request, team)
            return result
        run = await runtime.start(team, request, coordinator=coordinator)
        result = await run.result()
        played.log = [event async for event in run.events()]
        return result

    await play_session(played, begin, scenario.deeds)
    answers = cycle(scenario.answers)
    chance = Random(len(scenario.answers))  # noqa: S311 - nothing is secret here
    while played.result is not None and played.result.status is kt.TeamStatus.SUSPENDED:
        if len(played.sessions) == MOST_SESSIONS:
            runtime.runs["r"].cancel("given up")
            break
        questions = list(runtime.pending("r"))
        chance.shuffle(questions)
        for question in questions:
            act = next(answers)
            for _ in range(2 if act != "later" else 0):  # the same answer twice is one
                runtime.answer(question.id, decision(act))
        budget = played.result.budget
        raised = None
        if scenario.more is not None and budget is not None and budget.budget.tokens is not None:
            raised = kt.Budget(tokens=budget.budget.tokens + scenario.more, loops=budget.budget.loops)
        resume = partial(runtime.resume, "r", team, coordinator=coordinator, budget=raised)
        try:
            await play_session(played, resume, scenario.later)
        except ExceptionGroup as group:  # what all runs share does not cover it: it goes on waiting
            if group.subgroup(kt.InsufficientBudget) is None:
                raise
            runtime.runs["r"].cancel("given up")
            break


async def play_session(played: Played, begin: Callable[[], Awaitable[kt.TeamResult]], deeds: list[Deed]) -> None:
    """Let one session run while the deeds are done from outside."""
    session, tried = Session(), played.world.tries.copy()
    before = len(anyio.get_running_tasks())
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        caller = anyio.CancelScope()
        for deed in deeds:
            group.start_soon(do, deed, played, session, caller)
        with caller:
            session.result = await begin()
        session.took = anyio.current_time() - began
        group.cancel_scope.cancel()
    session.left = len(anyio.get_running_tasks()) - before
    if session.result is not None and session.result.status is kt.TeamStatus.SUSPENDED:
        session.open_questions = played.runtime.pending("r")
    session.records = played.records
    session.tried = played.world.tries - tried
    played.sessions.append(session)


async def do(deed: Deed, played: Played, session: Session, caller: anyio.CancelScope) -> None:
    """Meddle with a run; what comes too late is refused, and changes nothing."""
    await anyio.sleep(deed.at)
    runtime, scenario = played.runtime, played.scenario
    task_id = scenario.tasks[deed.which % len(scenario.tasks)].id
    with suppress(Misuse, InsufficientBudget):
        run = runtime.runs["r"]
        match deed.what:
            case "cancel caller" if not scenario.live or len(played.sessions) > 0:
                caller.cancel()
            case "cancel task" if not scenario.approval:  # before approval a revised plan may bring the task back
                run.cancel_task(task_id)
            case "cancel task":
                return
            case "steer":
                run.steer("be quick")
            case "steer one":
                run.steer("be brief", task_id)
            case "top up":
                run.top_up(TOP_UP)
            case "alarm":
                played.world.alarm = True
            case _:
                deed = deed._replace(what="kill")
                run.cancel("killed")
        session.deeds.append(deed)


def cancel_task(runtime: kt.Runtime, task_id: str) -> None:
    runtime.runs["r"].cancel_task(task_id, "it cancelled itself")


@dataclass
class Again:
    """What came of running the same code on records."""

    result: kt.TeamResult
    records: dict[str, Any]
    called: list[str]
    """Whoever was called and may not be."""


async def replay(scenario: Scenario, records: Mapping[str, object], *, put_off: bool = False) -> Again:
    """Run the same code on the records, where nobody may be called; `put_off`: people are asked, and put it off."""
    return await run_again(scenario, records, Dead(put_off=put_off))


async def run_again(scenario: Scenario, records: Mapping[str, object], dead: Dead | None = None) -> Again:
    """Run the same code on the records; without `dead` everybody is there to go on."""
    world, journal = World(scenario), MemoryRecords(records)
    runtime = Recorded(journal, budget=scenario.shared)
    world.cancel_task = partial(cancel_task, runtime)
    team, coordinator = make_team(scenario, world, runtime, dead), make_coordinator(scenario, world, dead)
    with anyio.fail_after(100_000):
        result = await coordinator.execute(make_request(scenario), team)
    return Again(result, dict(journal.records), dead.called if dead is not None else [])
