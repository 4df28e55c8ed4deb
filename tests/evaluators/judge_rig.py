"""Judges that say what they are told to, and the context they are asked in."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import kairo_team as kt
from kairo_team._util.frozen import EMPTY
from kairo_team.contracts import ChatModel
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.work.run_services import RunServices
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.governance import Governor
from kairo_team.governance.pricing import PriceBook
from kairo_team.models.resolver import ModelResolver
from kairo_team.prompts import Prompts
from kairo_team.testing import FunctionModel, ScriptedJudge, read_question

Say = Mapping[str, Any]
"""What a judge answers: levels, or whole answers, by words of the criterion's text; a single one is for all."""


class Judging:
    """A judge that answers `says` in the form that `write` gives it, and keeps what it was asked."""

    def __init__(self, says: Say, *, write: Callable[[dict[str, Any]], str] = json.dumps, extra: Say = EMPTY) -> None:
        self.says = says
        self.extra = extra
        self.write = write
        self.asked: list[kt.ModelRequest] = []
        self.model = FunctionModel(self.answer, name="test:judge")

    def answer(self, request: kt.ModelRequest) -> str:
        self.asked.append(request)
        return self.write(self.reply(request))

    def reply(self, request: kt.ModelRequest) -> dict[str, Any]:
        """The reply as it should be."""
        single = next(iter(self.says.values())) if len(self.says) == 1 else "met"
        return {**ScriptedJudge(self.says, default=single).reply(request), **self.extra}


def criteria_asked(request: kt.ModelRequest) -> list[str]:
    """The texts of the criteria a question is about, in the order of the alphabet."""
    asked = read_question(request)
    return sorted(one.criterion for one in asked.statements if one.turned and asked.holds(one.criterion) is None)


def reviewed(
    text: str | kt.Artifact,
    model: ChatModel | None = None,
    *,
    budget: kt.Budget | None = None,
    task: str = "Explain tides.",
    attempt: int = 1,
    prior: tuple[kt.EvaluationVerdict, ...] = (),
) -> kt.EvaluationContext:
    """What a strategy is given for an artifact, with governed models; needs a running event loop."""
    governor = Governor(budget or kt.Budget(), name="evaluate")
    services = RunServices(
        uuid.uuid4().hex,
        models=ModelResolver({} if model is None else {"test:judge": model}),
        prices=PriceBook(),
        prompts=Prompts(),
        journal=MemoryRecords(),
        clock=lambda: 0.0,
        emit=lambda *_: None,
    )
    context = WorkContext(services, governor, kt.Role("evaluate"), step="evaluate", task_id=None, member=None)
    artifact = kt.Artifact(text) if isinstance(text, str) else text
    return kt.EvaluationContext(kt.Task("t", task), artifact, attempt, prior, context=context)
