"""`PairwiseStrategy`: ask in both orders which of two works is better."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from kairo_team._util.counts import in_seconds
from kairo_team._util.frozen import EMPTY, known_arguments
from kairo_team.artifacts import Artifact, Finding
from kairo_team.errors import FailedControl
from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
from kairo_team.evaluators.artifact_view import MAX_SHOWN
from kairo_team.evaluators.criterion import Answer, Criterion
from kairo_team.evaluators.judge_injection import talks_to_judge
from kairo_team.evaluators.judge_question import PairQuestion, Question, pair_question_for
from kairo_team.evaluators.judge_texts import JudgeTexts, texts_of
from kairo_team.evaluators.judged import suspect, suspected
from kairo_team.evaluators.judging import LATE, AskingOptions, Judge, called
from kairo_team.evaluators.rubric import Rubric
from kairo_team.messages import Message

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel
    from kairo_team.evaluators.judge_reply import Judgement
    from kairo_team.evaluators.review import Review
    from kairo_team.verdicts import EvaluationContext, EvaluationVerdict

Better = Literal["first", "second", "tie"]
_SIDES: Final[Mapping[str | bool | None, Better]] = {"first": "first", "equal": "tie", "second": "second"}
_TURNED: Final[Mapping[Better, Better]] = {"first": "second", "second": "first", "tie": "tie"}
DOES_BETTER: Final = "it does the task better"
_OWN_SECOND: Final = Artifact("The sea is blue in summer and grey in winter, and many people like to swim in it.")
"""The text that a judge compares with the library's own."""
_BETTER: Final = Criterion("better", DOES_BETTER, by="judge", kind="info", levels=("second", "equal", "first"))


@dataclass(frozen=True, slots=True)
class Preference:
    """Which of two works a judge prefers."""

    better: Better
    """"tie" also when the judge gives no answer, or its answers in the two orders differ."""
    orders: tuple[Better | None, Better | None]
    """The answers with the first work in front, and with the second in front; None: no answer."""
    reason: str = ""
    """The judge's reason with the first work in front: in the other order "first" would mean the second."""
    confidence: float | None = None
    """The lower confidence of the two answers, from 0 to 1."""
    injection_suspected: str | None = None
    """How a work seems to instruct the judge; None if none does."""

    @property
    def flipped(self) -> bool:
        """Whether the answer depends on the order."""
        return self.orders[0] != self.orders[1]


@known_arguments
class PairwiseStrategy(AgentEvaluationStrategy):
    """Compare two works by what `text` says; as an evaluator, compare an artifact with its task's reference.

    The judge is asked twice, with each work once in front. The question has the protection of `AgentEvaluationStrategy`
    against texts that talk to a judge: random marks, and controls that a judge fails if it prefers one work in
    everything, or in all but the labels. Answers that differ between the orders are a tie, and counted as
    `Preference.flipped`.

    As an evaluator it passes an artifact that is better than `Task.reference` or as good (score 1 or 0.5), and sends
    back one that is worse. A judge that contradicts itself or gives no answer decides nothing: ESCALATE(undecided). A
    task without a reference is refused before work starts. The other arguments are as for `AgentEvaluationStrategy`.

    >>> strategy = PairwiseStrategy("openai:gpt-5-mini", "it is easier to understand for a child")
    """

    def __init__(
        self,
        judge: str | ChatModel | Agent,
        text: str = DOES_BETTER,
        *,
        timeout: float = 60.0,
        settings: Mapping[str, Any] | None = None,
        signs: Mapping[str, str | re.Pattern[str]] | None = None,
        canaries: Mapping[str, str | re.Pattern[str]] = EMPTY,
        seed: int | None = None,
        votes: int = 1,
    ) -> None:
        levels = ("worse", "as good", "better")
        criterion = Criterion(_BETTER.id, text, by="judge", kind="graded", levels=levels, reference=True)
        rubric = Rubric([criterion], 0.5)
        asking: dict[str, Any] = {"signs": signs, "canaries": canaries, "seed": seed, "votes": votes}
        super().__init__(judge, rubric, timeout=timeout, settings=settings, **asking)
        self.text = text
        self._asked = replace(_BETTER, text=text)

    async def compare(self, first: str | Artifact, second: str | Artifact, context: EvaluationContext) -> Preference:
        """Ask which of two works is better, for the task of a context and with its governed models.

        Equal works are a tie, and so are works that are too long to be shown whole: then the judge is not asked. Raises
        `InvalidJudgement`, `FailedControl` where the judge cannot be believed, `TimeoutError` after `timeout` seconds,
        `HaltError`, `InsufficientBudget`, and what its model raises.
        """
        works = [one if isinstance(one, Artifact) else Artifact(one) for one in (first, second)]
        if works[0].digest == works[1].digest:  # a judge would still prefer one, for its place
            return Preference("tie", ("tie", "tie"), "they are equal")
        cut = [*texts_of(replace(context, artifact=works[0]), [self._asked], works[1]).cut]
        if cut:
            most = f"a judge is shown at most {MAX_SHOWN:,} characters of all texts together"
            return Preference("tie", (None, None), f"{most}, and the end of {cut[0]} would not be shown")
        found: dict[int, Judgement] = {}
        failures: list[Exception] = []

        async def ask(front: int) -> None:
            given = replace(context, artifact=works[front])
            try:
                found[front] = await _PairJudge(self.judge, given, self.options, works[1 - front]).ask([self._asked])
            except Exception as error:  # noqa: BLE001 - raised below: the task group would wrap it
                failures.append(error)

        with anyio.move_on_after(self.timeout) as limit:
            async with anyio.create_task_group() as group:
                for front in (0, 1):
                    group.start_soon(ask, front)
        if failures:
            raise failures[0]
        if limit.cancelled_caught:
            raise TimeoutError(f"{called(self.judge)} took longer than {in_seconds(self.timeout)}: {LATE}")
        return _preference(found[0], found[1])

    async def _ask(self, review: Review, context: EvaluationContext) -> EvaluationVerdict:
        try:
            found = await self.compare(context.artifact, context.task.reference or "", context)
        except FailedControl as failed:
            if failed.suspected is None:
                raise
            return suspected(review, failed.suspected)
        verdict = replace(review.answered(_BETTER.id, self._answer(found)).verdict(), confidence=found.confidence)
        return verdict if found.injection_suspected is None else suspect(verdict, found.injection_suspected)

    def _answer(self, found: Preference) -> Answer:
        if found.flipped or None in found.orders:
            said = " and ".join(one or "cannot tell" for one in found.orders)
            why = f"the judge's answer depends on the order of the two: {said}"
            return Answer(None, why if found.flipped else found.reason)
        if found.better == "second":
            finding = Finding(_BETTER.id, observed=found.reason or "the reference is better", expected=self.text)
            return Answer("worse", found.reason, finding=finding)
        return Answer("better" if found.better == "first" else "as good", found.reason)

    def __repr__(self) -> str:
        return f"PairwiseStrategy({self.judge!r}, {self.text!r})"


def _preference(one: Judgement, other: Judgement) -> Preference:
    """Join the answers in both orders; `other` is from the order with the second work in front."""
    here, there = one.answers[_BETTER.id], other.answers[_BETTER.id]
    side, turned = _SIDES.get(here.level), _SIDES.get(there.level)
    orders = (side, None if turned is None else _TURNED[turned])
    better: Better = orders[0] if orders[0] is not None and orders[0] == orders[1] else "tie"
    sure = [one.confidence for one in (one, other) if one.confidence is not None]
    suspicious = one.injection_suspected or other.injection_suspected
    return Preference(better, orders, here.reason, min(sure, default=None), suspicious)


class _PairJudge(Judge):
    """Asks a judge about two works, with the context's artifact in front."""

    def __init__(
        self, judge: str | ChatModel | Agent, context: EvaluationContext, options: AskingOptions, second: Artifact
    ) -> None:
        super().__init__(judge, context, options)
        self._second = second
        first, given = self._files.values()
        self._files = {
            "The first work has these files": first,
            "The second work has these files": second.files,
            "Both could use these files": given,
        }
        # Again: the base does not know the second work.
        self._suspicious = self._signs() or talks_to_judge(second.text, options.signs)

    async def _ask_about_own(self, about: EvaluationContext) -> None:
        await _PairJudge(self._judge, about, replace(self._options, votes=1), _OWN_SECOND).ask_about_work([_BETTER])

    def _texts(self, criteria: Sequence[Criterion]) -> JudgeTexts:
        return texts_of(self._context, criteria, self._second)

    def _doubtful(self, criteria: Sequence[Criterion], first: Judgement) -> Sequence[Criterion]:
        return criteria  # a question about a pair has one

    async def _question(self, criteria: Sequence[Criterion], given: JudgeTexts) -> Question:
        texts = "\n".join([criteria[0].text, given.all, *self._file_lines(given)])
        task, own = self._context.task.description, self._options.canaries
        drawn, again = await self._draw(texts), self._vote > 1
        return pair_question_for(criteria[0], texts, drawn, task=task, canaries=own, reworded=again)

    def _messages(self, question: Question, texts: JudgeTexts) -> list[Message]:
        assert isinstance(question, PairQuestion), "it makes no others"
        render, token = self._member.render, question.token
        ask = render("judge_pair_ask", shown=self._shown(question, texts), question=question, token=token)
        first, second, given = (files.seen for files in self._offered(texts).values())
        return [
            Message.system(render("judge_pair", question=question, token=token, files=any(self._files.values()))),
            Message.user(texts.work.fenced(token, question.label), first),
            Message.user(texts.second.fenced(token, question.second_label), second),
            Message.user(ask, [file for file in given if file not in {*first, *second}]),
        ]
