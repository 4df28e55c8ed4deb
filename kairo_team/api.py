"""The entry points: `run`, `run_sync` and `check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import NoEventLoopError
from anyio.lowlevel import current_token

from kairo_team._util.frozen import trusted
from kairo_team._util.plugin_shapes import check_instance
from kairo_team._util.threads import run_in_thread
from kairo_team.budget import Budget
from kairo_team.engine.live.task_pool import in_own_task
from kairo_team.engine.plan.preflight import PlanCheck, check_request
from kairo_team.engine.records.digests import executing
from kairo_team.engine.work.runtime import Runtime
from kairo_team.errors import ContractBreach, Misuse, RunFinished, RunNotFound
from kairo_team.plugin_calls import shown
from kairo_team.plugins import make, resolve
from kairo_team.results import TeamResult
from kairo_team.tasks import TaskGraph
from kairo_team.team import USUAL_CONFIG, Team, TeamConfig, TeamExecutionRequest

if TYPE_CHECKING:
    from kairo_team.contracts import TeamCoordinator
    from kairo_team.files import File


async def run(
    team: Team,
    request: TeamExecutionRequest | str,
    *,
    plan: TaskGraph | None = None,
    config: TeamConfig | None = None,
    budget: Budget | None = None,
    run_id: str | None = None,
    files: Sequence[File] = (),
    resume: bool = False,
    coordinator: TeamCoordinator | str | None = None,
    runtime: Runtime | None = None,
) -> TeamResult:
    """Run a team on a goal or a request and return its result, however the run ends.

    `plan` (the tasks to run), `config`, `run_id` (None makes one) and `files` (for every member) go with a goal; a
    request has its own, and none of them may be given with it. `budget` replaces the budget of the request, or of
    `config`. `coordinator` takes precedence, as an object or by a name such as "expert" or "board" (`kairo plugins
    coordinator` lists them); else the team's is used, else the task board if there is a plan, else the expert team.
    `runtime` takes precedence, else the team's is used, else a new one.

    With `resume` the same call begins a run, resumes it after its process died, and returns the result of an ended run.
    It looks for the run of that id in the runtime's journal, else among the runtime's suspended runs. A resumed run
    keeps its request, except for `budget`. Raises what `Runtime.resume` raises.

    Raises `RunExists` for a request that was run before in the same runtime. Raises `InsufficientBudget`, before any
    work starts, if the account that the run is charged to does not have its budget.
    """
    if resume and run_id is None and isinstance(request, str):
        raise Misuse("resume=True resumes the run of an id: give it one with run_id=")
    if resume and runtime is None and team.runtime is None:
        raise Misuse(
            "resume=True needs a runtime that knows earlier runs: give it one with a journal, such as "
            "runtime=kt.Runtime(journal=kt.SqliteJournal('runs.db'))"
        )
    request = make_request(team, request, budget, plan, config, run_id, files)
    given = None if coordinator is None else resolve("coordinator", "coordinator", coordinator)
    chosen, team = pick_coordinator(team, request, given), bind_runtime(team, runtime)
    result = await _go_on(team, request.run_id, given, budget) if resume else None
    if result is None:
        with executing(given):
            result = await in_own_task(partial(chosen.execute, request, team))
    if not isinstance(result, TeamResult):
        hint = ", such as `return run.result` after the block of TeamRun.open" if result is None else ""
        raise ContractBreach(
            f"{type(chosen).__name__}.execute returned {shown(result, 80)}; it has to return a TeamResult{hint}"
        )
    return result


async def _go_on(
    team: Team, run_id: str, coordinator: TeamCoordinator | None, budget: Budget | None
) -> TeamResult | None:
    """Resume the run or return its recorded result; None for an unknown run."""
    runtime: Runtime | None = team.runtime
    if runtime is None:
        return None
    try:
        return await runtime.resume(run_id, team, coordinator=coordinator, budget=budget)
    except RunNotFound:
        return None
    except RunFinished:
        result = None if runtime.store is None else await run_in_thread(runtime.store.result, run_id)
        if result is None:
            raise
        return result


def run_sync(
    team: Team,
    request: TeamExecutionRequest | str,
    *,
    plan: TaskGraph | None = None,
    config: TeamConfig | None = None,
    budget: Budget | None = None,
    run_id: str | None = None,
    files: Sequence[File] = (),
    resume: bool = False,
    coordinator: TeamCoordinator | str | None = None,
    runtime: Runtime | None = None,
) -> TeamResult:
    """Run like `run`, from code without an event loop; raises `Misuse` inside one."""
    try:
        current_token()
    except NoEventLoopError:
        pass
    else:
        raise Misuse("run_sync is for code without an event loop, and here one runs: write await kt.run(...)")
    given: dict[str, Any] = {
        "plan": plan,
        "config": config,
        "budget": budget,
        "run_id": run_id,
        "files": files,
        "resume": resume,
        "coordinator": coordinator,
        "runtime": runtime,
    }
    results: list[TeamResult] = []

    async def keep() -> None:  # asyncio formats the result of its main task twice
        results.append(await run(team, request, **given))

    anyio.run(keep)
    return results[0]


def check(
    team: Team,
    request: TeamExecutionRequest | str,
    *,
    plan: TaskGraph | None = None,
    config: TeamConfig | None = None,
    budget: Budget | None = None,
    run_id: str | None = None,
    files: Sequence[File] = (),
    coordinator: TeamCoordinator | str | None = None,
    runtime: Runtime | None = None,
) -> PlanCheck:
    """Report whether `run` with the same arguments could start, and how the budget would be split.

    Binds the plan and splits the budget. No agent, planner or model is called, and the request can still be run.
    """
    request = make_request(team, request, budget, plan, config, run_id, files)
    team = bind_runtime(team, runtime)
    return check_request(request, team, pick_coordinator(team, request, coordinator), team.runtime or Runtime())


def make_request(
    team: Team,
    request: TeamExecutionRequest | str,
    budget: Budget | None = None,
    plan: TaskGraph | None = None,
    config: TeamConfig | None = None,
    run_id: str | None = None,
    files: Sequence[File] = (),
) -> TeamExecutionRequest:
    """Make a request from a goal and its arguments, or put the budget into one; `ValueError` for invalid arguments."""
    _check_team_and_goal(team, request)
    _check_kinds(budget=budget, plan=plan, config=config, run_id=run_id)
    beside: dict[str, Any] = {"plan": plan, "config": config, "run_id": run_id, "files": files or None}
    given = {name: value for name, value in beside.items() if value is not None}
    if isinstance(request, str):
        given.setdefault("config", USUAL_CONFIG)
        plain = type(request) is str and request.strip() and run_id is None and not files
        request = (trusted(TeamExecutionRequest) if plain else TeamExecutionRequest)(request, **given)
    elif given:
        name = next(iter(given))
        raise Misuse(
            f"{name}= goes with a goal in words, and a TeamExecutionRequest has a {name} of its own: give it that, "
            f"TeamExecutionRequest(goal, {name}=...)"
        )
    if budget is not None:
        request = replace(request, config=replace(request.config, budget=budget))
    return request


def _check_team_and_goal(team: object, request: object) -> None:
    if isinstance(request, Team) and not isinstance(team, Team):
        raise ValueError(f"the team comes first, then the goal: kt.run(team, {team!r:.80})")
    if not isinstance(team, Team):
        raise ValueError(f"the team must be a Team, such as kt.Team('desk', [kt.Member(...)]), not {team!r:.80}")
    if not isinstance(request, str | TeamExecutionRequest):
        raise ValueError(f"the goal must be a string or a TeamExecutionRequest, not {request!r:.80}")


_EXAMPLES: Final[Mapping[str, tuple[type, str]]] = {
    "budget": (Budget, "kt.Budget(tokens=20_000)"),
    "plan": (TaskGraph, 'kt.TaskGraph([kt.Task("write", "Write it.")])'),
    "config": (TeamConfig, "kt.TeamConfig(team_timeout=60)"),
    "run_id": (str, "'tides-1'"),
}


def _check_kinds(**given: object) -> None:
    for name, argument in given.items():
        kind, example = _EXAMPLES[name]
        if argument is not None and not isinstance(argument, kind):
            raise ValueError(f"{name} must be a {kind.__name__}, such as {example}, not {argument!r:.200}")


def pick_coordinator(
    team: Team, request: TeamExecutionRequest, coordinator: TeamCoordinator | str | None = None
) -> TeamCoordinator:
    """Return the coordinator given, as an object or by name, else the team's, else the default for the request."""
    if coordinator is not None:
        given: TeamCoordinator = resolve("coordinator", "coordinator", coordinator)
        return given
    return team.coordinator or _usual_coordinator(planned=request.plan is not None)


@cache
def _usual_coordinator(*, planned: bool) -> TeamCoordinator:
    usual: TeamCoordinator = make("coordinator", "board" if planned else "expert")
    return usual


def bind_runtime(team: Team, runtime: Runtime | None) -> Team:
    """Return the team bound to the runtime; refuse a team that is bound to another."""
    if runtime is not None and not isinstance(runtime, Runtime):
        check_instance("runtime", "a runtime", runtime)
        raise ValueError(f"runtime must be a Runtime, such as kt.Runtime(subscribers=[...]), not {runtime!r:.80}")
    if runtime is None or team.runtime is runtime:
        return team
    if team.runtime is not None:
        raise Misuse(f"team {team.name!r} is bound to another runtime: run it there, or build it without runtime=")
    return replace(team, runtime=runtime)
