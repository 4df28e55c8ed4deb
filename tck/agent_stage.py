"""The base of the agent kit's tests: the factories, the capabilities, and one member observed at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

import pytest

from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget
from kairo_team.contracts import Agent, ChatModel, MemberContext
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.live.function_agent import FunctionAgent
from kairo_team.engine.work.runtime import Runtime
from kairo_team.results import AgentOutput, TeamResult
from kairo_team.tasks import Assignment, Task, TaskGraph
from kairo_team.tck.agent_model import KitModel, Look, Say, Script
from kairo_team.tck.calls import skip_unless
from kairo_team.tck.kit import ContractTCK, make_it
from kairo_team.team import Member, Role, Team, TeamConfig, TeamExecutionRequest
from kairo_team.testing.recorder import EventRecorder

Function = Callable[..., Any]
Change = Callable[[Assignment, MemberContext], Assignment]
TASK: Final = "task-0"
"""The task of a run that has one."""
FINE: Final = (Say(),)


class Watched:
    """A wrapper around the member's agent that records its input and output."""

    def __init__(self, agent: Agent | Function, change: Change | None = None) -> None:
        self.agent = agent
        self.reentrant = not hasattr(agent, "run") or bool(getattr(agent, "reentrant", False))
        self.own_loop = bool(getattr(agent, "own_loop", False))
        self.outputs: dict[str, Any] = {}
        """Outputs by task."""
        self.raised: list[BaseException] = []
        """Everything that the agent raised, cancellations included."""
        self.most_at_once = 0
        self.change = change
        self.around: Callable[[], Mapping[str, Any]] | None = None
        """Returns values to compare before and after a call; `changed` gets the names of those that differ."""
        self.left_alone = True
        """Whether all assignments were unchanged after the calls."""
        self.changed: list[str] = []
        self._now = 0

    async def run(self, assignment: Assignment, context: MemberContext) -> Any:
        """Do the task."""
        if self.change is not None:
            assignment = self.change(assignment, context)
        before, given = dict(self.around()) if self.around is not None else {}, repr(assignment)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            output = await self._run(assignment, context)
        except BaseException as error:
            self.raised.append(error)
            raise
        finally:
            self._now -= 1
        after = dict(self.around()) if self.around is not None else {}
        self.changed += [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        self.left_alone = self.left_alone and repr(assignment) == given
        self.outputs[assignment.task.id] = output
        return output

    async def _run(self, assignment: Assignment, context: MemberContext) -> Any:
        agent: Any = self.agent
        if not hasattr(agent, "run"):
            agent = FunctionAgent(agent)
        return await agent.run(assignment, context)


@dataclass(slots=True)
class Scene:
    """One member, its model, and its runs."""

    agent: Watched
    model: KitModel
    member: Member
    tasks: list[Task]
    team: Mapping[str, Any]
    seen: EventRecorder = field(default_factory=EventRecorder)

    async def play(self, **config: Any) -> TeamResult:
        """Run the member's tasks, each after two tasks that supply facts; `config` are fields of `TeamConfig`."""
        runtime = Runtime(subscribers=[self.seen])
        members = [Member("source", _write_facts), self.member]
        team = Team("kit", members, runtime=runtime, **self.team)
        sources = [Task(one, "Bring the facts.", role="source") for task in self.tasks for one in task.depends_on]
        plan = TaskGraph([*sources, *self.tasks])
        request = TeamExecutionRequest("Tell children of the sea.", plan=plan, config=TeamConfig(**config))
        return await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0)).execute(request, team)

    @property
    def output(self) -> Any:
        """The agent's output for the only task; None without one."""
        return self.agent.outputs.get(TASK)

    def reported_output(self) -> AgentOutput:
        """Return the output as an `AgentOutput`; skip the test if the agent returns something simpler."""
        output = self.output
        if output is None:
            pytest.skip("it returned no AgentOutput")
        if not isinstance(output, AgentOutput):
            pytest.skip(f"it gives back no AgentOutput but a {type(output).__name__}")
        return cast("AgentOutput", output)  # type: ignore[redundant-cast]  # pyright needs it


async def _write_facts(assignment: Assignment) -> str:
    number = assignment.task.id.rpartition("-")[2]
    return f"Facts of subject-{number}: the moon pulls the sea."


def text_of(output: Any) -> str:
    """Return the text of an agent's output; empty without one."""
    if isinstance(output, AgentOutput | Artifact):
        return output.text
    return output if isinstance(output, str) else ""


def why(result: TeamResult) -> str:
    """Return how the task ended, for the message of an assertion."""
    outcome = result[TASK]
    return f"the task ended {outcome.status.value} ({outcome.error}), spent {outcome.usage}"


class AgentStage(ContractTCK):
    """The factories and capabilities of the agent kit."""

    contract: ClassVar[type] = Agent

    uses_models: ClassVar[bool] = True
    """Whether the agent uses the model it is made with. False: `make_agent` ignores the model."""
    uses_tools: ClassVar[bool] = False
    """Whether an agent can be made with a tool that its model may call in every turn: `make_agent_with_tool`."""
    reads_assignment: ClassVar[bool] = True
    """Whether the agent does any task. False: it does one kind of task, and reads only parts of the assignment."""
    governs_calls: ClassVar[bool] = True
    """Whether models and tools come from the context, or are governed alike. False: the agent books its own usage."""
    raises_what_models_raise: ClassVar[bool] = True
    """Whether the agent lets errors of its model and tool pass. False: it turns them into a value, in its own run."""
    keeps_partial: ClassVar[bool] = True
    """Whether the agent calls `context.keep`. False: it has nothing to keep before it is done."""
    wraps_up: ClassVar[bool] = False
    """Whether the agent watches its budget and answers on the last turn it can pay. Needs `uses_tools`."""

    takes_files: ClassVar[bool] = False
    """Whether the agent gives its model the files of its assignment."""

    @classmethod
    def make_agent(cls, model: ChatModel) -> Agent | Function:
        """Make an agent that asks this model. A fresh one each time."""
        raise make_it(cls, "make_agent(cls, model)")

    @classmethod
    def make_agent_with_tool(cls, model: ChatModel, tool: Look) -> Agent | Function:
        """Make an agent whose model may call `tool`: an async function of a text, made by `kairo_team.tool`."""
        raise make_it(cls, "make_agent_with_tool(cls, model, tool), or say uses_tools = False,")

    @classmethod
    def stage(
        cls,
        script: Script = FINE,
        *,
        tool: Look | None = None,
        tasks: int = 1,
        task: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        change: Change | None = None,
        role: Role | None = None,
        **team: Any,
    ) -> Scene:
        """Put an agent and its model together; `task` are more fields of each task, `budget` is the task's."""
        skip_unless(tool is None or cls.uses_tools, "uses_tools is False")
        model = KitModel(script)
        agent = cls.make_agent(model) if tool is None else cls.make_agent_with_tool(model, tool)
        watched = Watched(agent, change)
        fields = {"role": "kit", "budget": budget, **(task or {})}
        work = [_task(number, fields) for number in range(tasks)]
        return Scene(watched, model, Member(role or Role("kit"), watched), work, team)


def _task(number: int, fields: Mapping[str, Any]) -> Task:
    return Task(
        f"task-{number}", f"Write about subject-{number}.", depends_on=[f"facts-{number}", f"more-{number}"], **fields
    )
