"""What the tests of human gates share: scripted gates, reviews that leave it open, tools to ask about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.testing import EventRecorder
from kairo_team.tools import PermissionDecision

APPROVE, REJECT = kt.HumanDecision.approve(), kt.HumanDecision.reject("not like this")
REVISE, DEFER = kt.HumanDecision.revise("shorter"), kt.HumanDecision.defer()
ONCE = FailurePolicy(retries=0)
OPEN = kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")


class Gate:
    """Decides by a script and keeps what it was asked; an exception in the script is raised."""

    def __init__(self, *decisions: Any) -> None:
        self.asked: list[kt.HumanRequest] = []
        self._decisions = iter(decisions)

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        self.asked.append(question)
        decision: Any = next(self._decisions)
        if isinstance(decision, Exception):
            raise decision
        answer: kt.HumanDecision | None = decision
        return answer


class LeavesOpen:
    """An evaluator that leaves these tasks to a person and passes the others; `passes` artifacts with that text too."""

    def __init__(self, *task_ids: str, passes: Iterable[str] = (), verdict: kt.EvaluationVerdict = OPEN) -> None:
        self.seen: list[str] = []
        self._task_ids = task_ids
        self._passes = set(passes)
        self._verdict = verdict

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        self.seen.append(context.artifact.text)
        leave = context.task.id in self._task_ids and context.artifact.text not in self._passes
        return self._verdict if leave else kt.EvaluationVerdict.passed(1.0)


class AsksFirst:
    """A permission guard that leaves these tools to a person."""

    def __init__(self, *tools: str) -> None:
        self._tools = tools

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: str) -> PermissionDecision:
        return PermissionDecision.ask("it costs money", "till") if tool in self._tools else PermissionDecision.allow()


class Office:
    """One team in one runtime, with what was seen of its runs."""

    def __init__(
        self,
        members: Mapping[str, Any],
        *,
        gate: Any = None,
        guard: Any = None,
        runtime: Mapping[str, Any] = {},
        **how: Any,
    ) -> None:
        self.recorder = EventRecorder()
        self.runtime = kt.Runtime(subscribers=[self.recorder], gate=gate, **runtime)
        people = [agent if isinstance(agent, kt.Member) else kt.Member(name, agent) for name, agent in members.items()]
        self.team = kt.Team("office", people, permissions=kt.ToolPermissions(guard=guard) if guard else None)
        given: dict[str, Any] = {"failure_policy": ONCE, **how}
        self.coordinator = ExpertTeamCoordinator(**given)

    async def run(self, plan: Sequence[kt.Task] | None = None, goal: str = "Do it.", **config: Any) -> kt.TeamResult:
        graph = None if plan is None else kt.TaskGraph(plan)
        request = kt.TeamExecutionRequest(goal, plan=graph, config=kt.TeamConfig(**config), run_id="r")
        result = await self.coordinator.execute(request, replace(self.team, runtime=self.runtime))
        self.recorder.assert_lawful()
        return result

    async def resume(self, **changed: Any) -> kt.TeamResult:
        given: dict[str, Any] = {"team": self.team, "coordinator": self.coordinator, **changed}
        result = await self.runtime.resume("r", **given)
        self.recorder.assert_lawful()
        return result

    def answer(self, *decisions: kt.HumanDecision) -> None:
        """Answer the questions that are open, oldest first."""
        for question, decision in zip(self.runtime.pending("r"), decisions, strict=True):
            self.runtime.answer(question.id, decision)


def statuses(result: kt.TeamResult) -> dict[str, str]:
    """How each task ended, by id."""
    return {outcome.task_id: outcome.status.value for outcome in result.outcomes}
