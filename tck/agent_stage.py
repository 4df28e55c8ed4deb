"""What the agent kit's tests stand on: the factories, the capabilities, and one member watched at its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pytest

from kairo_team.budget import Budget
from kairo_team.contracts import Agent, ChatModel, MemberContext
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.live.function_agent import FunctionAgent
from kairo_team.engine.work.runtime import Runtime
from kairo_team.results import AgentOutput, Artifact, TeamResult
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
    """Stands between a member and its agent, and writes down what goes in and what comes out."""

    def __init__(self, agent: Agent | Function, change: Change | None = None) -> None:
        self.agent = agent
        self.reentrant = not hasattr(agent, "run") or bool(getattr(agent, "reentrant", False))
        self.own_loop = bool(getattr(agent, "own_loop", False))
        self.outputs: dict[str, Any] = {}
        """What it gave back, by task."""
        self.raised: list[BaseException] = []
        """What came out of it, cancellation too."""
        self.most_at_once = 0
        self.change = change
        self.around: Callable[[], Mapping[str, Any]] | None = None
        """What to look at before and after; what is different then stands in `changed`."""
        self.left_alone = True
        """Whether its assignments were afterwards as before."""
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
    """One member, its model, and the runs it does."""

    agent: Watched
    model: KitModel
    member: Member
    tasks: list[Task]
    team: Mapping[str, Any]
    seen: EventRecorder = field(default_factory=EventRecorder)

    async def play(self, **config: Any) -> TeamResult:
        """Let the member do its tasks, each after two that bring it facts; `config` are fields of `TeamConfig`."""
        runtime = Runtime(subscribers=[self.seen])
        members = [Member("source", _write_facts), self.member]
        team = Team("kit", members, runtime=runtime, **self.team)
        sources = [Task(one, "Bring the facts.", role="source") for task in self.tasks for one in task.depends_on]
        plan = TaskGraph([*sources, *self.tasks])
        request = TeamExecutionRequest("Tell children of the sea.", plan=plan, config=TeamConfig(**config))
        return await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0)).execute(request, team)

    @property
    def output(self) -> Any:
        """What the agent gave back for the only task; None when it gave nothing."""
        return self.agent.outputs.get(TASK)

    def reported_output(self) -> AgentOutput:
        """Return that as an `AgentOutput`; skips the test when the agent gives back something simpler."""
        if self.output is None:
            pytest.skip("it returned no AgentOutput")
        if not isinstance(self.output, AgentOutput):
            pytest.skip(f"it gives back no AgentOutput but a {type(self.output).__name__}")
        return self.output


async def _write_facts(assignment: Assignment) -> str:
    number = assignment.task.id.rpartition("-")[2]
    return f"Facts of subject-{number}: the moon pulls the sea."


def text_of(output: Any) -> str:
    """Return the text of an agent's output; an empty one if it has none."""
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
    """It works by the model it is made with. False: `make_agent` does nothing with the model."""
    uses_tools: ClassVar[bool] = False
    """It can be made with a tool that its model may ask for, turn after turn: `make_agent_with_tool`."""
    reads_assignment: ClassVar[bool] = True
    """It is made for any task. False: it is made for one kind of task, and takes from the assignment what it needs."""
    governs_calls: ClassVar[bool] = True
    """Its models and tools are those of the context, or governed alike. False: it books what its own use."""
    raises_what_models_raise: ClassVar[bool] = True
    """What its model and tool raise comes out of it. False: it works in a run of its own that makes a value of it."""
    keeps_partial: ClassVar[bool] = True
    """It calls `context.keep`. False: it has nothing before it has all."""
    wraps_up: ClassVar[bool] = False
    """It knows what is left of its budget and answers on the last turn it can pay. Needs `uses_tools`."""

    @classmethod
    def make_agent(cls, model: ChatModel) -> Agent | Function:
        """Make an agent that asks this model. A fresh one each time."""
        raise make_it(cls, "make_agent(cls, model)")

    @classmethod
    def make_agent_with_tool(cls, model: ChatModel, tool: Look) -> Agent | Function:
        """Make one whose model may ask for `tool`: an async function of a text, marked by `kairo_team.tool`, `look`."""
        raise make_it(cls, "make_agent_with_tool(cls, model, tool)")

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
        """Put an agent and its model together; `task` are further fields of each task, `budget` is each one's."""
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
