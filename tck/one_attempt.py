"""One attempt in a run, observed from outside: governance kits check that decisions take effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import anyio

from kairo_team._util.frozen import EMPTY
from kairo_team.budget import Usage
from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy, HumanGate, MemberContext
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.engine.work.runtime import Runtime
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.results import TaskOutcome, TeamResult
from kairo_team.tasks import Assignment, Task, TaskGraph, TaskStatus
from kairo_team.team import Member, RiskProfile, Team, TeamConfig, TeamExecutionRequest
from kairo_team.testing.recorder import EventRecorder
from kairo_team.verdicts import EvaluationContext, EvaluationVerdict

Work = Callable[[Assignment, MemberContext], Awaitable[str]]
TURNS = 20
"""Most turns of `keep_asking`."""
TURN_TOKENS, TURN_SECONDS, TURN_DOLLARS = 10, 60, 1
"""Usage of one call of a `TurnModel`."""


@dataclass(frozen=True, slots=True)
class Played:
    """What was seen of the run."""

    result: TeamResult
    seen: EventRecorder

    @property
    def outcome(self) -> TaskOutcome:
        """How the one task ended."""
        return self.result["t"]

    @property
    def accepted(self) -> bool:
        """Whether the artifact was accepted."""
        return self.outcome.status is TaskStatus.COMPLETED


class Passes:
    """An evaluator that passes everything."""

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Pass it."""
        return EvaluationVerdict.passed(1.0)


async def play(
    agent: Agent | Work,
    *,
    evaluator: EvaluationStrategy | None = None,
    gate: HumanGate | None = None,
    member: Mapping[str, Any] = EMPTY,
    watch: Callable[[Any], Any] | None = None,
    risk: RiskProfile = RiskProfile.MEDIUM,
    **team: Any,
) -> Played:
    """Run one task of one member, tried once; `member` and `team` are more fields of the member and the team."""
    seen = EventRecorder()
    runtime = Runtime(subscribers=[seen, *([watch] if watch else [])], gate=gate)
    people = [Member("m", agent, **member)]
    config = TeamConfig(risk_profile=risk, task_timeout=None)
    request = TeamExecutionRequest("Work.", plan=TaskGraph([Task("t", "Work.")]), config=config)
    coordinator = ExpertTeamCoordinator(evaluator=evaluator or Passes(), failure_policy=FailurePolicy(retries=0))
    result = await coordinator.execute(request, Team("kit", people, runtime=runtime, **team))
    seen.assert_lawful()
    return Played(result, seen)


async def ask(context: MemberContext, model: ChatModel, text: str = "Go on.") -> ModelResponse:
    """Ask a governed model."""
    return await context.model(model).complete(ModelRequest([Message.user(text)]))


class TurnModel:
    """A model whose calls each take a minute and cost ten tokens and a dollar, or never end."""

    name = "kit:turns"

    def __init__(self, *, hangs: bool = False) -> None:
        self.calls = 0
        """How many were begun."""
        self._seconds = float("inf") if hangs else TURN_SECONDS

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer, a minute later."""
        self.calls += 1
        await anyio.sleep(self._seconds)
        return ModelResponse("word", usage=Usage(TURN_TOKENS - 1, 1, Decimal(TURN_DOLLARS)), model=self.name)

    def price(self, usage: Usage) -> Decimal:
        """Price a call."""
        return Decimal(usage.tokens * TURN_DOLLARS) / TURN_TOKENS


def keep_asking(model: ChatModel) -> Work:
    """Make an agent that asks a model again and again, and keeps each reply."""

    async def work(assignment: Assignment, context: MemberContext) -> str:
        for turn in range(TURNS):
            await ask(context, model)
            context.keep(f"kept after turn {turn + 1}")
        return "everything"

    return work
