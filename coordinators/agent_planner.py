"""`AgentPlanner`: a model makes the plan, and plain code decides whether it can be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kairo_team._util.counts import count, counted
from kairo_team._util.frozen import check_kind, known_arguments
from kairo_team._util.reply_json import object_schema, read_reply
from kairo_team.budget import check_count
from kairo_team.coordinators.proposals import Growth, ProposedTask, plan_with, sentences, task_schema
from kairo_team.errors import KairoError, NoPlan, PlanRefused
from kairo_team.files import offered_to
from kairo_team.messages import Message, ModelRequest

if TYPE_CHECKING:
    from kairo_team.contracts import ChatModel, MemberContext, Models
    from kairo_team.tasks import TaskGraph
    from kairo_team.team import Team, TeamExecutionRequest


@known_arguments
class AgentPlanner:
    """Asks a model for the plan, with a JSON schema of the team's members.

    A proposed plan must have a valid shape, known members, no cycle, a member able to do every task, and fit the
    budget: each task is at least one loop and one token. A plan that does not is sent back once, with all its problems;
    that turn is paid like the first, from the share of planning. `NoPlan` is raised if the second plan is not valid
    either. A request that has a plan asks for more tasks in addition to those that stay, within its budget, which is
    then what is left. `max_tasks` is the most tasks of a plan; `settings` are the model's sampling settings.

    With `growth` the model may plan maps, branches and loops too (see `Task`): a map of at most `max_items` items, a
    loop of at most `max_rounds` rounds. A small model plans better without.
    """

    def __init__(
        self,
        model: str | ChatModel,
        *,
        max_tasks: int = 20,
        settings: Mapping[str, Any] | None = None,
        growth: bool = False,
        max_items: int = 50,
        max_rounds: int = 5,
    ) -> None:
        for name, number in (("max_tasks", max_tasks), ("max_items", max_items), ("max_rounds", max_rounds)):
            check_count(f"AgentPlanner.{name}", number)
            if number < 1:
                raise ValueError(f"AgentPlanner.{name} must be at least 1")
        check_kind("AgentPlanner.growth", growth, bool)
        self.model = model
        self.max_tasks = max_tasks
        self.growth = Growth(max_items, max_rounds) if growth else None
        self._settings = dict(settings or {})

    @property
    def digest(self) -> str:
        """The planner's settings, in a text that is the same in every process; the model is not included."""
        return repr((self.max_tasks, self.growth, sorted(self._settings.items())))  # the model has an entry of its own

    def preflight(self, models: Models) -> list[str]:
        """Return why the planner could not be called: its model is not available."""
        try:
            models.resolve(self.model)
        except KairoError as error:
            return [str(error)]
        return []

    async def plan(self, request: TeamExecutionRequest, team: Team, context: MemberContext) -> TaskGraph:
        """Plan the request for this team; `NoPlan` lists the problems of the model's second reply."""
        model = context.model(self.model)
        settings = dict(self._settings)
        max_tokens: int | None = settings.pop("max_tokens", None)
        # A file that the model does not take is named in words, because members may take it.
        seen, files = offered_to(getattr(model, "file_problem", None), request.files)
        about = {"team": team, "max_tasks": self.max_tasks, "growth": self.growth}
        messages = [Message.user(context.render("plan", request=request, files=files, **about), seen)]
        kept = [task.id for task in request.plan.tasks] if request.plan is not None else []
        task = task_schema([member.id for member in team.members], kept, self.max_tasks, growth=self.growth)
        tasks = {"type": "array", "items": task, "minItems": 1, "maxItems": self.max_tasks}
        schema = object_schema({"tasks": tasks})
        reply = await model.complete(ModelRequest(messages, (), schema, max_tokens, settings))
        try:
            return self._read(reply.text, request, team)
        except NoPlan as refused:
            if reply.cut_by is not None:  # the same limit would cut off the next one
                raise NoPlan([f"{reply.cut_by}: allow it more, AgentPlanner(settings={{'max_tokens': ...}})"]) from None
            again = context.render("plan_again", problems=refused.problems)
        messages += [Message.assistant(reply.text, native=reply.native), Message.user(again)]
        reply = await model.complete(ModelRequest(messages, (), schema, max_tokens, settings))
        return self._read(reply.text, request, team)

    def _read(self, text: str, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan that the model wrote; `NoPlan` with all its problems."""
        kept = request.plan.tasks if request.plan is not None else ()
        try:
            proposal = read_reply(text, self._proposal)
        except ValueError as error:
            raise NoPlan(sentences(error) if isinstance(error, ValidationError) else [str(error)]) from None
        tasks, budget = len(proposal.tasks), request.config.budget
        # Each task takes at least one unit of both.
        problems = [
            f"the plan has {count(tasks, 'task')}, and the budget only {count(limit, name)}"
            for name, limit in (("loop", budget.loops), ("token", budget.tokens))
            if limit is not None and limit < tasks
        ]
        try:
            graph = plan_with(proposal.tasks, kept, team, self.growth)
        except PlanRefused as refused:
            raise NoPlan([*refused.problems, *problems]) from None
        if problems:
            raise NoPlan(problems)
        return graph

    def _proposal(self, text: str) -> _Proposal:
        """Return a plan's JSON as tasks."""
        tasks = len(_Outline.model_validate_json(text).tasks)
        # Reject too many tasks before each of them is validated.
        if tasks > self.max_tasks:
            raise NoPlan([f"the plan has {count(tasks, 'task')}, at most {counted(self.max_tasks)} allowed"])
        return _Proposal.model_validate_json(text)

    def __repr__(self) -> str:
        return f"AgentPlanner({self.model!r})"


class _Outline(BaseModel):
    """The number of tasks, without their fields and the other keys."""

    tasks: list[Any]


class _Proposal(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tasks: list[ProposedTask]
