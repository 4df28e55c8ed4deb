"""`BestOf`: several tries at a task; a judge compares them in pairs and the best one wins."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import known_arguments
from kairo_team.agents.team_agent import TeamAgent, output_with
from kairo_team.budget import check_count
from kairo_team.coordinators.task_dispatch import TaskDispatchCoordinator
from kairo_team.errors import HaltError, InsufficientBudget, TeamFailed, innermost
from kairo_team.evaluators.judge_injection import talks_to_judge
from kairo_team.evaluators.pairwise import DOES_BETTER, PairwiseStrategy
from kairo_team.plugin_calls import failure_of, words_of
from kairo_team.tasks import Assignment, Task, TaskGraph, TaskStatus
from kairo_team.team import Member, Team, TeamConfig, TeamExecutionRequest
from kairo_team.verdicts import EvaluationContext

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.contracts import Agent, ChatModel, MemberContext
    from kairo_team.results import AgentOutput, TeamResult

_logger = logging.getLogger("kairo_team")

_WORKER: Final = "worker"
_CHOOSER: Final = "chooser"
_CHOICE: Final = "choice"
"""The id of the task that compares the tries."""
_TYPE: Final = "output"
_FEWEST: Final = 2


@known_arguments
class BestOf(TeamAgent):
    """An agent that lets another agent try a task several times, in parallel, and returns the best try.

    Each attempt is an inner run of `tries` tasks and one task that compares their artifacts: in pairs, each pair in
    both orders, by a `PairwiseStrategy` of `judge` and `text`. The winner meets the next; on a tie the earlier one
    stays. So the best of n takes n - 1 comparisons of two calls each, paid from the attempt's budget like the tries. A
    try that fails or cannot be paid is left out; if the budget for comparing runs out, the winner so far is returned.
    Works that seem to address the judge are left out while there are others. A comparison that fails is a tie; if all
    do, the first try is returned and a warning is logged.

    >>> member = kt.Member("writer", BestOf(kt.MiniAgent("openai:gpt-5-mini"), judge="openai:gpt-5"))
    """

    def __init__(
        self,
        agent: Any,
        tries: int = 3,
        *,
        judge: str | ChatModel | Agent,
        text: str = DOES_BETTER,
        votes: int = 1,
        config: TeamConfig = TeamConfig(),
    ) -> None:
        """Make the agent: `text` says what makes a work better, `config` applies to the inner runs.

        With `votes` the judge is asked up to so often about a pair in each order, and most votes decide. The
        `task_timeout` of `config` ends a slow try alone; a timeout around the attempt ends all tries.
        """
        check_count("BestOf: tries", tries, _FEWEST)
        self.agent = agent
        self.tries = tries
        self.pairwise = PairwiseStrategy(judge, text, votes=votes)
        team = Team(
            f"best of {tries}",
            # All tries at once.
            [Member(_WORKER, agent, name=_WORKER, max_concurrency=None), Member(_CHOOSER, self._choose, name=_CHOOSER)],
        )
        super().__init__(team, coordinator=TaskDispatchCoordinator(), config=config)

    def team_for(self, context: MemberContext | None) -> Team:
        """Return the team of an attempt; its worker has the role and the output type of the member that called."""
        if context is None:
            return self.team
        worker, chooser = self.team.members
        types: Mapping[str, Any] = {} if context.output_type is None else {_TYPE: context.output_type}
        return replace(self.team, members=(replace(worker, role=context.role), chooser), output_types=types)

    def request_for(self, assignment: Assignment | str, context: MemberContext | None) -> TeamExecutionRequest:
        """Return the request of an attempt: the tries, and the task that compares them."""
        request = super().request_for(assignment, context)
        typed = _TYPE if context is not None and context.output_type is not None else None
        tries = [
            Task(f"try-{number}", request.goal, member=_WORKER, output_type=typed)
            for number in range(1, self.tries + 1)
        ]
        names = [task.id for task in tries]
        choice = Task(_CHOICE, request.goal, member=_CHOOSER, depends_on=names, needs=1)  # one try is enough
        return replace(request, plan=TaskGraph([*tries, choice]))

    def output_of(self, result: TeamResult) -> AgentOutput:
        """Return the winner, or the first try if none could be compared."""
        if result.artifact is not None and result[_CHOICE].status is TaskStatus.COMPLETED:
            return output_with(result, result.artifact)
        made = [one.artifact for one in result.outcomes if one.status is TaskStatus.COMPLETED]
        if not made or made[0] is None:
            raise TeamFailed(result) from result.exception
        _logger.warning("%r: its tries were not compared, the first is taken: %s", self, result.error)
        return output_with(result, made[0])

    async def _choose(self, assignment: Assignment, context: MemberContext) -> Artifact:
        """Return the artifact that wins against all later ones."""
        found = list(assignment.upstream.values())
        works = [one for one in found if talks_to_judge(one.text) is None] or found
        best = works[0]
        for other in works[1:]:
            context.keep(best.text)  # the winner so far, if the attempt is cut off
            try:
                given = EvaluationContext(
                    assignment.task, best, 1, goal=assignment.goal, context=context, files=assignment.files
                )
                preference = await self.pairwise.compare(best, other, given)
            except (HaltError, InsufficientBudget) as short:
                _logger.warning("%r: not all tries were compared: %s", self, short)
                break
            except BaseException as raised:  # a model's library may raise anything; `failure_of` passes cancellations
                error = failure_of(raised)
                if error is None:
                    raise
                _logger.warning("%r: a comparison failed and counts as a tie: %s", self, words_of(innermost(error)))
                continue
            best = other if preference.better == "second" else best
        return best

    def __repr__(self) -> str:
        return f"BestOf({self.agent!r}, {self.tries}, judge={self.pairwise.judge!r})"
