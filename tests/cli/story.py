"""Events as a run would emit them, for views."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kairo_team import events
from kairo_team.budget import Usage
from kairo_team.results import TeamStatus
from kairo_team.verdicts import EvaluationVerdict, Finding

PASS = EvaluationVerdict.passed(1.0)
REVISE = EvaluationVerdict.revise("", findings=[Finding("a", observed="too short"), Finding("b", observed="no verb")])
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Story:
    """Numbers events, a tenth of a second apart, and hands them to subscribers."""

    def __init__(self, *subscribers: Any) -> None:
        self._subscribers = subscribers
        self._seq = 0

    def tell(self, kind: type[events.Event], *fields: Any) -> None:
        event = kind("run", self._seq + 1, BEGAN + timedelta(seconds=self._seq / 10), *fields)
        self._seq += 1
        for subscriber in self._subscribers:
            subscriber(event)

    def plan(self, *task_ids: str, team: str = "newsroom") -> None:
        self.tell(events.TeamStarted, team, "a goal", ("writer",))
        self.tell(events.PlanReady, task_ids)

    def start(self, task_id: str, guarantee: int | None = None) -> None:
        self.tell(events.TaskAssigned, task_id, "writer")
        self.tell(events.BudgetCarved, task_id, "writer", guarantee, None)
        self.tell(events.AttemptStarted, task_id, "writer", 1)

    def call(self, task_id: str | None, tokens: int) -> None:
        self.tell(events.ModelCalled, task_id, "writer", "local:smollm2", "ok", tokens, Usage(prompt_tokens=tokens))

    def review(self, task_id: str, verdict: EvaluationVerdict, tokens: int = 0, attempt: int = 1) -> None:
        usage = Usage(prompt_tokens=tokens)
        self.tell(events.AttemptFinished, task_id, "writer", attempt, "completed", usage, None)
        self.tell(events.EvaluationStarted, task_id, "writer", attempt)
        self.tell(events.EvaluationResult, task_id, "writer", attempt, verdict)

    def finish(self, task_id: str, tokens: int = 0) -> None:
        self.tell(events.BudgetReturned, task_id, "writer", Usage(prompt_tokens=tokens))
        self.tell(events.TaskCompleted, task_id, "writer", 1, None, "pass")

    def end(self, tokens: int = 0, status: TeamStatus = TeamStatus.COMPLETED) -> None:
        self.tell(events.TeamCompleted, status, 1.0, Usage(prompt_tokens=tokens), None)
