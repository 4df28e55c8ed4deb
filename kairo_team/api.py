"""The entry points: `run`, `run_sync` and `check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import known_call
from kairo_team._util.threads import run_in_thread
from kairo_team.engine.live.task_pool import in_own_task, run_in_new_loop
from kairo_team.engine.plan.preflight import PlanCheck, check_request
from kairo_team.engine.records.digests import executing
from kairo_team.engine.work.run_arguments import make_request, pick_coordinator
from kairo_team.engine.work.runtime import Runtime, bind_runtime, runtime_of
from kairo_team.errors import ContractBreach, Misuse, RunFinished, RunNotFound
from kairo_team.plugin_calls import shown
from kairo_team.plugins import resolve
from kairo_team.results import TeamResult
from kairo_team.team import Team, TeamConfig, TeamExecutionRequest, name_types

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.contracts import TeamCoordinator
    from kairo_team.files import File
    from kairo_team.tasks import TaskGraph

__all__ = ["PlanCheck", "check", "run", "run_sync"]


@known_call
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
    team, request = name_types(team, request)
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
    runtime = runtime_of(team)
    try:
        return await runtime.resume(run_id, team, coordinator=coordinator, budget=budget)
    except RunNotFound:
        return None
    except RunFinished:
        result = None if runtime.store is None else await run_in_thread(runtime.store.result, run_id)
        if result is None:
            raise
        return result


@known_call
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
    return run_in_new_loop(partial(run, team, request, **given), "await kt.run(...)")


@known_call
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
    team, request = name_types(bind_runtime(team, runtime), request)
    return check_request(request, team, pick_coordinator(team, request, coordinator), runtime_of(team))
