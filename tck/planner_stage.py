"""The base of the planner kit's tests: the factories, the capabilities, and one plan made inside a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from anyio.lowlevel import checkpoint

from kairo_team.contracts import ChatModel, MemberContext, Planner
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.engine.work.runtime import Runtime
from kairo_team.errors import innermost
from kairo_team.messages import ModelRequest
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, Task, TaskGraph
from kairo_team.tck.kit import ContractTCK, make_it
from kairo_team.tck.paid_model import PaidModel
from kairo_team.team import Member, Role, Team, TeamConfig, TeamExecutionRequest

Answers = Callable[[ModelRequest], Any]
NOT_A_PLAN = "I would begin with the moon, and then see."


class Bystander:
    """A member that must not be called while a plan is made."""

    reentrant = True

    def __init__(self) -> None:
        self.asked: list[Assignment] = []

    async def run(self, assignment: Assignment, context: MemberContext) -> str:
        """Work, which is wrong."""
        self.asked.append(assignment)
        await checkpoint()
        return "done already"


@dataclass(slots=True)
class Planned:
    """The outcome of asking a planner."""

    model: PaidModel
    team: Team
    request: TeamExecutionRequest
    graph: Any = None
    """The planner's result; None if it raised."""
    error: BaseException | None = None
    """What it raised."""
    result: TeamResult | None = field(default=None, repr=False)
    """The run that asked the planner, which ends with the plan."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the plan; fails without a plan."""
        assert self.error is None, f"the planner raised {self.error!r}"
        assert isinstance(self.graph, TaskGraph), f"the planner returned {self.graph!r:.200}, not a TaskGraph"
        return tuple(self.graph.tasks)

    @property
    def usage(self) -> int:
        """Tokens that the run booked."""
        return 0 if self.result is None else self.result.usage.tokens


class PlannerStage(ContractTCK):
    """The factories and capabilities of the planner kit."""

    contract: ClassVar[type] = Planner

    asks_model: ClassVar[bool] = False
    """Whether the planner asks the model it is made with: then `write_plan` returns that model's reply."""
    supports_preview: ClassVar[bool] = False
    """Whether `preview(request, team)` returns the plan without a model call."""
    supports_replan: ClassVar[bool] = False
    """Whether it keeps the tasks of a plan in the request and adds others."""

    @classmethod
    def make_planner(cls, model: ChatModel) -> Planner:
        """Make a planner; if it asks a model, it asks this one. A fresh one each time."""
        raise make_it(cls, "make_planner(cls, model)")

    @classmethod
    def write_plan(cls, tasks: Sequence[Task]) -> str:
        """Write the model's reply with these tasks, which may be an invalid plan.

        It has their members and descriptions, and their ids and dependencies if such a reply has them.
        """
        raise make_it(cls, "write_plan(cls, tasks), or say asks_model = False,")

    # ------------------------------------------------------------------ what is planned

    @classmethod
    def make_team(cls, *names: str, agent: Any = None) -> Team:
        """Make a team with a member for each name, which is its role; a repeated name is one role of two members."""
        agent = agent or Bystander()
        return Team("kit", [Member(Role(name, f"You are {name}.", {f"can-{name}"}), agent) for name in names])

    @classmethod
    def answer(cls, tasks: Iterable[Task]) -> str:
        """Return the model's answer with these tasks; a fixed text if the planner asks no model."""
        return cls.write_plan(list(tasks)) if cls.asks_model else NOT_A_PLAN

    async def plan(
        self, *answers: Any, team: Team | None = None, request: TeamExecutionRequest | None = None, **config: Any
    ) -> Planned:
        """Make one plan; the model gives the answers in order, then repeats the last one.

        A function among the answers is called with the model's request. `config` are fields of `TeamConfig`.
        """
        team = team or self.make_team("ann", "ben")
        model = PaidModel(_script(answers or (self.answer(two_tasks(team)),)))
        request = replace(request or TeamExecutionRequest("Write about tides."), config=TeamConfig(**config))
        planned = Planned(model, team, request)
        await ask(self.make_planner(model), planned)
        return planned


async def ask(planner: Planner, planned: Planned) -> None:
    """Ask a planner inside a run, as a coordinator does; the run ends when the plan is ready."""
    team, request = replace(planned.team, runtime=Runtime()), planned.request

    async def make(run: TeamRun) -> Any:
        try:
            planned.graph = await planner.plan(request, planned.team, run.context("plan"))
        except BaseException as error:
            planned.error = innermost(error) if isinstance(error, Exception) else error
            raise
        return planned.graph

    async with TeamRun.open(request, team) as run:
        await run.plan(lambda: make(run))
    planned.result = run.result


def two_tasks(team: Team) -> list[Task]:
    """Return a task for the first member, then one for the last that depends on it."""
    first, last = team.members[0].id, team.members[-1].id
    return [Task("search", "Look it up.", member=first), Task("text", "Write.", member=last, depends_on=["search"])]


def _script(answers: Sequence[Any]) -> Answers:
    left = list(answers)

    def answer(request: ModelRequest) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found(request) if callable(found) else found

    return answer
