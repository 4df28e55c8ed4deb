"""What the planner kit's tests stand on: the factories, the capabilities, and one plan made inside a run."""

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
    """What came of asking a planner."""

    model: PaidModel
    team: Team
    request: TeamExecutionRequest
    graph: Any = None
    """What it returned; None when it raised."""
    error: BaseException | None = None
    """What it raised."""
    result: TeamResult | None = field(default=None, repr=False)
    """The run it was asked in, which ends with the plan."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the plan; fails where there is none."""
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
    """It asks the model it is made with: `write_plan` returns that model's reply."""
    supports_preview: ClassVar[bool] = False
    """It knows its plan without a model call: `preview(request, team)` returns it."""
    supports_replan: ClassVar[bool] = False
    """Asked with a plan in the request, it keeps its tasks and adds others."""

    @classmethod
    def make_planner(cls, model: ChatModel) -> Planner:
        """Make a planner; one that asks models asks this one. A fresh one each time."""
        raise make_it(cls, "make_planner(cls, model)")

    @classmethod
    def write_plan(cls, tasks: Sequence[Task]) -> str:
        """Write a plan as the model does that is asked for it; its tasks name members, and need not be a plan at all.

        Overridden where `asks_model` is true.
        """
        raise make_it(cls, "write_plan(cls, tasks)")

    # ------------------------------------------------------------------ what is planned

    @classmethod
    def make_team(cls, *names: str, agent: Any = None) -> Team:
        """Make a team with a member for each name, which is its role's; a name that comes twice is one role of two."""
        agent = agent or Bystander()
        return Team("kit", [Member(Role(name, f"You are {name}.", {f"can-{name}"}), agent) for name in names])

    @classmethod
    def answer(cls, tasks: Iterable[Task]) -> str:
        """Return what the model answers; something else is never read where no model is asked."""
        return cls.write_plan(list(tasks)) if cls.asks_model else NOT_A_PLAN

    async def plan(
        self, *answers: Any, team: Team | None = None, request: TeamExecutionRequest | None = None, **config: Any
    ) -> Planned:
        """Have one plan made; the model gives the answers in order, then the last one for ever.

        An answer that is a function is called with the model's request. `config` are fields of `TeamConfig`.
        """
        team = team or self.make_team("ann", "ben")
        model = PaidModel(_script(answers or (self.answer(two_tasks(team)),)))
        request = replace(request or TeamExecutionRequest("Write about tides."), config=TeamConfig(**config))
        planned = Planned(model, team, request)
        await ask(self.make_planner(model), planned)
        return planned


async def ask(planner: Planner, planned: Planned) -> None:
    """Ask a planner inside a run, as a coordinator does; the run ends when the plan stands."""
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
    """Return tasks for the first and the last member, one after the other."""
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
