"""`Rubric.try_on`: review one text without a team, and keep every question and answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kairo_team._util.drawn import drawing
from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget, Usage
from kairo_team.engine.run.lone_agent import work_alone
from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
from kairo_team.tasks import Task
from kairo_team.verdicts import CriterionResult, EvaluationContext, EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy
    from kairo_team.engine.work.work_context import WorkContext
    from kairo_team.evaluators.criterion import Criterion
    from kairo_team.evaluators.review import Review
    from kairo_team.evaluators.rubric import Rubric
    from kairo_team.messages import Message, ModelRequest, ModelResponse

_BY = {"check": "a check", "judge": "the judge", "human": "a person"}


class JudgeCall(NamedTuple):
    """One call of the judge's model."""

    request: ModelRequest
    reply: ModelResponse | None
    """None: the call failed."""


@dataclass(frozen=True, slots=True)
class TriedText:
    """The result of trying a rubric on one text; `str` and a notebook show it criterion by criterion."""

    rubric: Rubric
    verdict: EvaluationVerdict
    calls: Sequence[JudgeCall]
    """The calls of the judge's model, in order."""
    usage: Usage
    """What the judge's calls cost."""

    @property
    def prompt(self) -> str:
        """All messages to the judge and its replies; "" where it was not asked."""
        parts: list[str] = []
        for number, call in enumerate(self.calls, 1):
            parts += [f"--- call {number}, {message.role}\n{message.text}" for message in call.request.messages]
            parts.append(f"--- call {number}, reply\n{'(it failed)' if call.reply is None else call.reply.text}")
        return "\n\n".join(parts)

    @property
    def summary(self) -> str:
        """One line with the outcome, the score and what must be changed."""
        verdict, threshold = self.verdict, self.rubric.threshold
        cause = "" if verdict.cause is None else f" ({verdict.cause.value})"
        score = "" if verdict.score is None else f", score {verdict.score:g} of the {float(threshold):g} that passes"
        return f"{verdict.outcome.value}{cause}{score}{f': {verdict.feedback}' if verdict.feedback else ''}"

    @property
    def cost(self) -> str:
        """The number of calls to the judge's model, and their cost."""
        calls = "1 call" if len(self.calls) == 1 else f"{len(self.calls)} calls"
        return f"{calls}, {self.usage.tokens:,} tokens, ${self.usage.dollars:f}"

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return a row for each criterion, in the rubric's order: id, level, kind and who decides it, reason."""
        kinds = {criterion.id: criterion for criterion in self.rubric.criteria}
        return [(one.id, one.level, _judged_by(kinds[one.id]), _reason_of(one)) for one in self.verdict.criteria]

    def __str__(self) -> str:
        lines = [self.summary]
        for criterion_id, level, who, why in self.rows():
            lines += [f"  {criterion_id}: {level} ({who})", *([f"      {why}"] if why else [])]
        if self.calls:
            lines.append(f"the judge: {self.cost}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook."""
        return drawing("show_trial")(self)


def _judged_by(criterion: Criterion) -> str:
    weight = f" {criterion.weight}" if criterion.kind in ("graded", "penalty") else ""
    return f"{criterion.kind}{weight}, by {_BY[criterion.by]}"


def _reason_of(result: CriterionResult) -> str:
    quote = f'quote: "{result.quote}"' if result.quote else ""
    return "; ".join(" ".join(text.split()) for text in (result.reason, quote) if text)


async def try_on(
    rubric: Rubric,
    text: str | Artifact,
    judge: str | ChatModel | Agent | None,
    task: str,
    *,
    reference: str | None,
    upstream: Mapping[str, str],
    transcript: Sequence[Message],
    budget: Budget | None,
    models: Mapping[str, str | ChatModel] | None,
    timeout: float,
    settings: Mapping[str, Any] | None,
) -> TriedText:
    """See `Rubric.try_on`."""
    if not isinstance(text, str | Artifact):
        raise ValueError(f"try_on: the text must be a string or an Artifact, not {text!r:.80}")
    if not isinstance(upstream, Mapping) or not all(isinstance(one, str) for one in upstream.values()):
        raise ValueError(
            f"try_on: upstream must be texts by name, such as {{'log': 'It rose.'}}, not {upstream!r:.200}"
        )
    strategy: EvaluationStrategy = rubric
    if judge is not None and rubric.decided_by("judge"):
        strategy = _AsksAll(judge, rubric, timeout=timeout, settings=settings)
    artifact = Artifact(text) if isinstance(text, str) else text
    given = {name: Artifact(one) for name, one in upstream.items()}
    calls: list[JudgeCall] = []
    async with work_alone("judge", budget=budget, models=models) as work:
        if isinstance(judge, str):
            work.model(judge)  # an unknown name must not count as a failed review
        listening: Any = _Listening(work, calls)
        context = EvaluationContext(
            Task("task", task, reference=reference),
            artifact,
            1,
            goal=task,
            upstream=given,
            context=listening,
            transcript=transcript,
        )
        verdict = await strategy.evaluate(context)
        return TriedText(rubric, verdict, tuple(calls), work.usage)


class _AsksAll(AgentEvaluationStrategy):
    """Asks about every criterion, even if the outcome no longer depends on it."""

    def _left(self, review: Review) -> list[Criterion]:
        return [one for one in review.criteria if one.by == "judge" and one.id not in review.rulings]


class _Listening:
    """The context of a review that keeps the calls of its models."""

    def __init__(self, work: WorkContext, calls: list[JudgeCall]) -> None:
        self._work = work
        self._calls = calls

    def model(self, name: Any) -> _ListenedModel:
        """Return a model whose calls are kept."""
        return _ListenedModel(self._work.model(name), self._calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


class _ListenedModel:
    def __init__(self, model: Any, calls: list[JudgeCall]) -> None:
        self._model = model
        self._calls = calls

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Ask the model, and keep the call."""
        place = len(self._calls)
        self._calls.append(JudgeCall(request, None))  # before the call: a failed one is kept too
        reply: ModelResponse = await self._model.complete(request)
        self._calls[place] = JudgeCall(request, reply)
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
