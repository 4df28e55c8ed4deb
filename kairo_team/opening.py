"""What a run needs before its first step: its shared services, with the team's constraints in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.run_constraints import RunConstraints
from kairo_team.services import Services

if TYPE_CHECKING:
    from kairo_team.prompts import Prompts
    from kairo_team.runtime import Runtime
    from kairo_team.team_run import TeamRun


def open_services(run: TeamRun, runtime: Runtime, prompts: Prompts) -> Services:
    """Return what every piece of work of the run shares."""
    team, request = run.team, run.request
    services = Services(
        request.run_id,
        models=runtime.models,
        prices=runtime.prices.under(request.config.budget_policy),
        prompts=prompts,
        journal=runtime.journal_for(request.run_id),
        clock=run.clock,
        emit=run.emit,
        rules=runtime.call_rules,
        permissions=team.permissions,
        secrets=runtime.secrets,
        nest=runtime.beneath,
        guardrails=team.guardrails,
        guardrails_of={member.id: member.guardrails for member in team.members},
    )
    if team.constraints or any(member.constraints for member in team.members):
        services.constraints = RunConstraints(run)
    return services
