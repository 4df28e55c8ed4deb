"""What a run needs before its first step: its shared services, and the scope that ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from kairo_team.budget import Budget
from kairo_team.errors import HaltError
from kairo_team.run_constraints import RunConstraints
from kairo_team.services import Services

if TYPE_CHECKING:
    from kairo_team.governance.governor import Governor
    from kairo_team.prompts import Prompts
    from kairo_team.questions import Questions
    from kairo_team.runtime import Runtime
    from kairo_team.steering import Steering
    from kairo_team.team import Team, TeamExecutionRequest
    from kairo_team.team_run import TeamRun


def open_services(
    run: TeamRun, runtime: Runtime, prompts: Prompts, questions: Questions, steering: Steering
) -> Services:
    """Return what every piece of work of the run shares, with the constraints of runtime and team in force."""
    team, request = run.team, run.request
    services = Services(
        request.run_id,
        models=runtime.models,
        prices=runtime.prices.under(request.config.budget_policy),
        prompts=prompts,
        journal=run.journal,
        clock=run.clock,
        emit=run.emit,
        rules=runtime.call_rules,
        permissions=team.permissions,
        secrets=runtime.secrets,
        nest=partial(runtime.beneath, run_id=request.run_id, gate=questions.gate, grace=request.config.cancel_grace),
        around=runtime.around,
        guardrails=(*runtime.guardrails, *team.guardrails),
        guardrails_of={member.id: member.guardrails for member in team.everyone},
        questions=questions,
        steering=steering,
    )
    shared, own = (*runtime.constraints, *team.constraints), {one.id: one.constraints for one in team.everyone}
    if shared or any(own.values()):
        services.constraints = RunConstraints(run.governor, run.clock, shared, own, run.emit, run.cancel, run.warn)
    return services


def begun_with(request: TeamExecutionRequest, team: Team) -> Mapping[str, object]:
    """Return what must be the same when a suspended run goes on, by name; its budget may change."""
    return {
        "goal": request.goal,
        "context": request.context,
        "plan": request.plan,
        "config": replace(request.config, budget=Budget()),
        "set of roles": tuple(sorted({member.role.id for member in team.everyone})),
    }


@asynccontextmanager
async def interruptible(governor: Governor) -> AsyncGenerator[None]:
    """End the block at the deadline or a kill; without any time at all it is cancelled from its first await on."""
    entered = False
    try:
        async with governor.scope():
            entered = True
            yield
    except HaltError:
        if not entered:
            with anyio.CancelScope() as scope:
                scope.cancel()
                yield
        raise
