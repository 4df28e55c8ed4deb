"""Teams whose members talk in turns, and pay for their moderator."""

from __future__ import annotations

import json
from typing import Any

import kairo_team as kt
from kairo_team.coordinators.moderators import END
from tests.durable.payers import Payer, work

TURNS = 3


class Chats(Payer):
    """A model says who speaks next, and ends the talk; another member writes the answer."""

    plan = None

    def coordinator(self) -> Any:
        return kt.GroupChatCoordinator(moderator="m:x", closing="c")

    def team(self) -> kt.Team:
        return kt.Team("team", [kt.Member(name, work) for name in "abc"])

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        if request.output_schema is None:
            return super().reply(name, request, said)
        over = said.count("\n  answer") >= TURNS
        return json.dumps({"next": END if over else "b"})


class ReviewedChats(Chats):
    """The last turn is reviewed: what follows a turn is decided before it ends, and a person's gate is not there."""

    def coordinator(self) -> Any:
        return kt.GroupChatCoordinator(moderator="m:x", evaluator=_Once())


class _Once:
    """Sends the first version back."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if context.attempt == 1:
            return kt.EvaluationVerdict.revise("again", findings=[kt.Finding("again", observed="once")])
        return kt.EvaluationVerdict.passed()
