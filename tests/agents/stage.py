"""What tests of wrapped agents share: a team of one agent, guardrails of one line, a tool that remembers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance import GuardrailContext, GuardrailDecision, GuardrailPayload, GuardrailPhase
from kairo_team.testing import EventRecorder
from tests.agents.rigs import RigTool

ROLE = kt.Role("worker", "Be brief.")
ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


@dataclass
class Stage:
    """A team of one agent, and all that can be seen of its run."""

    agent: Any
    role: kt.Role = ROLE
    team: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More of the team's fields."""
    runtime: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More of the runtime's fields."""

    def __post_init__(self) -> None:
        self.recorder = EventRecorder()
        self.outputs: list[kt.AgentOutput] = []
        """What the agent gave back."""
        self.raised: list[BaseException] = []
        """What came out of the agent."""

    async def run(
        self, budget: kt.Budget | None = None, *, tasks: int = 1, output_type: str | None = None, **config: Any
    ) -> kt.TeamResult:
        member = kt.Member(self.role, Spy(self.agent, self), max_concurrency=tasks)
        self.live = kt.Runtime(subscribers=[self.recorder], **self.runtime)
        team = kt.Team("team", [member], runtime=self.live, **self.team)
        plan = kt.TaskGraph([kt.Task(f"t{number}", "Do it.", output_type=output_type) for number in range(tasks)])
        config["budget"] = budget or kt.Budget()
        request = kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config))
        return await ONCE.execute(request, team)

    @property
    def output(self) -> kt.AgentOutput:
        """What the one attempt gave back."""
        (output,) = self.outputs
        return output


class Spy:
    """Stands between a member and its agent, and writes down what comes out."""

    def __init__(self, agent: Any, stage: Stage) -> None:
        self.own_loop = getattr(agent, "own_loop", False)
        self._agent = agent
        self._stage = stage

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        try:
            output = await self._agent.run(assignment, context)
        except BaseException as error:
            self._stage.raised.append(error)
            raise
        self._stage.outputs.append(output)
        return output


class Policy:
    """A guardrail of one phase that does what the function says."""

    def __init__(self, phase: GuardrailPhase, decide: Callable[[Any], GuardrailDecision]) -> None:
        self.phases = {phase}
        self._decide = decide

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        return self._decide(context.payload)


def replacing(phase: GuardrailPhase, old: str, new: str) -> Policy:
    """A guardrail that replaces one word by another, wherever it stands."""

    def decide(payload: GuardrailPayload) -> GuardrailDecision:
        changed = payload.map_text(lambda text: text.replace(old, new))
        return GuardrailDecision.allow() if changed is payload else GuardrailDecision.modify("a word", changed)

    return Policy(phase, decide)


def noting(phase: GuardrailPhase, seen: list[Any]) -> Policy:
    """A guardrail that allows everything and writes down what it was shown."""

    def decide(payload: Any) -> GuardrailDecision:
        seen.append(payload)
        return GuardrailDecision.allow()

    return Policy(phase, decide)


class Counter:
    """A tool that remembers what it was called with, and answers with that."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def __call__(self, text: str) -> str:
        self.calls.append(text)
        return f"found {text}"

    def tool(self, name: str = "look", side_effect: Any = "read") -> RigTool:
        return RigTool(name, self, side_effect)
