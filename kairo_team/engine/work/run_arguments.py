"""The arguments of `run`, `start` and `check`: a request from a goal, and the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import replaced, trusted
from kairo_team.budget import Budget
from kairo_team.errors import Misuse
from kairo_team.plugins import make, resolve
from kairo_team.tasks import TaskGraph
from kairo_team.team import USUAL_CONFIG, Team, TeamConfig, TeamExecutionRequest

if TYPE_CHECKING:
    from kairo_team.contracts import TeamCoordinator
    from kairo_team.files import File


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
    if isinstance(request, Team) and not isinstance(team, Team):
        raise ValueError(f"the team comes first, then the goal: kt.run(team, {team!r:.80})")
    if not isinstance(team, Team):
        raise ValueError(f"the team must be a Team, such as kt.Team('desk', [kt.Member(...)]), not {team!r:.80}")
    if not isinstance(request, str | TeamExecutionRequest):
        raise ValueError(f"the goal must be a string or a TeamExecutionRequest, not {request!r:.80}")
    for name, argument in (("budget", budget), ("plan", plan), ("config", config), ("run_id", run_id)):
        kind, example = _EXAMPLES[name]
        if argument is not None and not isinstance(argument, kind):
            raise ValueError(f"{name} must be a {kind.__name__}, such as {example}, not {argument!r:.200}")
    beside: dict[str, Any] = {"plan": plan, "config": config, "run_id": run_id, "files": files or None}
    given = {name: value for name, value in beside.items() if value is not None}
    if isinstance(request, str):
        given.setdefault("config", USUAL_CONFIG)
        # All that is left is valid, so the request is made without its validator.
        plain = type(request) is str and request.strip() and run_id is None and not files
        request = (trusted(TeamExecutionRequest) if plain else TeamExecutionRequest)(request, **given)
    elif given:
        name = next(iter(given))
        raise Misuse(
            f"{name}= goes with a goal in words, and a TeamExecutionRequest has a {name} of its own: give it that, "
            f"TeamExecutionRequest(goal, {name}=...)"
        )
    if budget is not None:
        request = replaced(request, config=replaced(request.config, budget=budget))
    return request


_EXAMPLES: Final[Mapping[str, tuple[type, str]]] = {
    "budget": (Budget, "kt.Budget(tokens=20_000)"),
    "plan": (TaskGraph, 'kt.TaskGraph([kt.Task("write", "Write it.")])'),
    "config": (TeamConfig, "kt.TeamConfig(task_timeout=60)"),
    "run_id": (str, "'tides-1'"),
}


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
