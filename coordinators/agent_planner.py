"""`AgentPlanner`: a model makes the plan, and plain code decides whether it can be run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kairo_team._util.frozen import known_arguments
from kairo_team.budget import check_count
from kairo_team.engine.preflight import bind, plan_problems
from kairo_team.errors import KairoError, NoPlan
from kairo_team.messages import Message, ModelRequest
from kairo_team.tasks import Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.contracts import ChatModel, MemberContext, Models
    from kairo_team.team import Team, TeamExecutionRequest

_ID_CHARACTERS: Final = 40
_MOST_SENTENCES: Final = 20
"""What is wrong with a reply is sent back: of a hundred sentences of the same kind the first ones do."""
_MOST_CHARACTERS: Final = 2000
"""Length of a task's description in a reply held to the schema: a small model that never stops fills its reply."""


@known_arguments
class AgentPlanner:
    """Asks a model for the plan, held to a JSON schema that knows the team's members.

    What it proposes must have a valid shape, known members, no cycle, a member able to do every task, and fit the
    budget: each task is at least one loop and one token. A plan that does not is sent back once, with everything that
    is wrong with it; that turn is paid like the first, from the share of planning. `NoPlan` is raised when the second
    is no better. A request that has a plan asks for more tasks beside those that stay, within its budget, which is then
    what is left. `max_tasks` is the most tasks of a plan; `settings` are the model's sampling settings.
    """

    def __init__(
        self, model: str | ChatModel, *, max_tasks: int = 20, settings: Mapping[str, Any] | None = None
    ) -> None:
        check_count("AgentPlanner.max_tasks", max_tasks)
        if max_tasks < 1:
            raise ValueError("AgentPlanner.max_tasks must be at least 1")
        self.model = model
        self.max_tasks = max_tasks
        self._settings = dict(settings or {})

    def preflight(self, models: Models) -> list[str]:
        """Return why the planner could not be asked: its model is not to be had."""
        try:
            models.resolve(self.model)
        except KairoError as error:
            return [str(error)]
        return []

    async def plan(self, request: TeamExecutionRequest, team: Team, context: MemberContext) -> TaskGraph:
        """Plan the request for this team; `NoPlan` lists what is wrong with the model's second reply."""
        model = context.model(self.model)
        settings = dict(self._settings)
        max_tokens: int | None = settings.pop("max_tokens", None)
        ask = context.render("plan", request=request, team=team, max_tasks=self.max_tasks)
        messages = [Message.user(ask)]
        kept = [task.id for task in request.plan.tasks] if request.plan is not None else []
        schema = _schema(team, self.max_tasks, kept)
        reply = await model.complete(ModelRequest(messages, (), schema, max_tokens, settings))
        try:
            return self._read(reply.text, request, team)
        except NoPlan as refused:
            again = context.render("plan_again", problems=refused.problems)
        messages += [Message.assistant(reply.text), Message.user(again)]
        reply = await model.complete(ModelRequest(messages, (), schema, max_tokens, settings))
        return self._read(reply.text, request, team)

    def _read(self, text: str, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan that the model wrote; `NoPlan` with all that is wrong with it."""
        kept = request.plan.tasks if request.plan is not None else ()
        try:
            self._check_number(len(_Outline.model_validate_json(text).tasks))
            proposal = _Proposal.model_validate_json(text)
            _check_ids(proposal.tasks, [task.id for task in kept])
            graph = TaskGraph([*kept, *(task.as_task() for task in proposal.tasks)])
        except ValidationError as error:
            raise NoPlan(_sentences(error)) from None
        except ValueError as error:
            raise NoPlan([str(error)]) from None
        problems = plan_problems(graph, team, bind(graph, team))
        problems += _too_much(len(proposal.tasks), request.config.budget)
        if problems:
            raise NoPlan(problems)
        return graph

    def _check_number(self, tasks: int) -> None:
        """Raise `NoPlan` for more tasks than are allowed, before anything looks at each."""
        if tasks > self.max_tasks:
            raise NoPlan([f"the plan has {tasks} tasks, at most {self.max_tasks} are allowed"])

    def __repr__(self) -> str:
        return f"AgentPlanner({self.model!r})"


class _ProposedTask(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: str
    description: Annotated[str, Field(min_length=1)]
    member: str
    depends_on: list[str] = []

    def as_task(self) -> Task:
        """Make the task; `ValueError` for an id that is none."""
        return Task(self.id, self.description, member=self.member, depends_on=self.depends_on)


class _Outline(BaseModel):
    """Only the number of tasks, without their fields and the other keys."""

    tasks: list[Any]


class _Proposal(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tasks: list[_ProposedTask]


def _schema(team: Team, max_tasks: int, kept: Sequence[str]) -> dict[str, Any]:
    """Return what the reply must be: only the team's own members can be named, and nothing goes on for ever.

    `kept` are the ids of tasks that stay, which the new ones may depend on.
    """
    needed = _id_of(_longest_need(kept))
    task = {
        "type": "object",
        "properties": {
            "id": _id_of(_ID_CHARACTERS),
            "description": {"type": "string", "minLength": 1, "maxLength": _MOST_CHARACTERS},
            "member": {"enum": [member.id for member in team.members]},
            "depends_on": {"type": "array", "items": needed, "maxItems": max_tasks + len(kept)},
        },
        "required": ["id", "description", "member", "depends_on"],
        "additionalProperties": False,
    }
    tasks = {"type": "array", "items": task, "minItems": 1, "maxItems": max_tasks}
    return {"type": "object", "properties": {"tasks": tasks}, "required": ["tasks"], "additionalProperties": False}


def _longest_need(kept: Iterable[str]) -> int:
    """Return the most characters of an id in `depends_on`: a task that stays may have a longer one than a new task."""
    return max(_ID_CHARACTERS, *map(len, kept), 0)


def _check_ids(tasks: Sequence[_ProposedTask], kept: Iterable[str]) -> None:
    """Raise `NoPlan` for ids longer than the schema allows."""
    most = _longest_need(kept)
    long = [(one.id, _ID_CHARACTERS) for one in tasks if len(one.id) > _ID_CHARACTERS]
    long += [(need, most) for one in tasks for need in one.depends_on if len(need) > most]
    if long:
        raise NoPlan(
            [
                f"the id {name[:_ID_CHARACTERS]!r}... has {len(name)} characters, at most {limit} are allowed"
                for name, limit in long[:_MOST_SENTENCES]
            ]
        )


def _id_of(most: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^[A-Za-z0-9_.-]{{1,{most}}}$"}


def _sentences(error: ValidationError) -> list[str]:
    """Return what is wrong with the shape, one sentence each."""
    found: list[str] = []
    for one in error.errors(include_url=False)[:_MOST_SENTENCES]:
        where = ".".join(str(part) for part in one["loc"])
        found.append(f"{where}: {one['msg']}" if where else one["msg"])
    return found


def _too_much(tasks: int, budget: Budget) -> list[str]:
    """Return which limit has not even one unit for each task."""
    limits = {"loops": budget.loops, "tokens": budget.tokens}
    return [
        f"the plan has {tasks} tasks, and the budget only {limit} {name}"
        for name, limit in limits.items()
        if limit is not None and limit < tasks
    ]
