"""Read a judge's reply: find its object, check the controls, decide each criterion; and join the votes of one judge."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kairo_team._util.narrowing import is_list
from kairo_team._util.reply_json import values_in
from kairo_team.artifacts import Finding
from kairo_team.errors import FailedControl, InvalidJudgement
from kairo_team.evaluators.criterion import Answer, Criterion
from kairo_team.evaluators.quotes import plain

if TYPE_CHECKING:
    from kairo_team.evaluators.judge_question import Question, Statement
    from kairo_team.messages import ModelResponse

    Level = bool | str | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's answers on some criteria."""

    answers: Mapping[str, Answer]
    """One answer for each criterion that was asked about, by id."""
    confidence: float | None
    """The confidence that the judge states, from 0 to 1; None where it states none."""
    injection_suspected: str | None
    """How the artifact seems to instruct its judge; None if it does not."""
    contradicted: Sequence[str] = ()
    """Ids of the criteria whose two answers contradict each other."""
    slipped: bool = False
    """Whether one control has a wrong answer that nothing explains: then no answer counts yet."""

    @property
    def asks_again(self) -> bool:
        """Whether a slip of the judge is likely, so that one more question is worth its cost."""
        return self.injection_suspected is None and (self.slipped or bool(self.contradicted))

    def joined(self, later: Judgement) -> Judgement:
        """Return this judgement with the answers of one more question."""
        sure = [one.confidence for one in (self, later) if one.confidence is not None]
        return Judgement({**self.answers, **later.answers}, min(sure, default=None), later.injection_suspected)


@dataclass(frozen=True, slots=True)
class _Said:
    """One answer of a reply."""

    statement: Statement
    mark: str
    fields: Mapping[str, Any]
    of_question: re.Pattern[str]
    """Matches marks and controls of the question: a member who read them would know what a judge is asked."""

    @property
    def level(self) -> int | None:
        """The level that the answer gives; None: the work does not show it."""
        return self.statement.answers[self.mark]

    @property
    def is_wrong(self) -> bool:
        """Whether it is a wrong answer to a control."""
        asked = self.statement
        return asked.right not in (None, self.level) and not (asked.canary and self.level is None)

    def text(self, name: str) -> str:
        """Return one of the answer's texts; "" if it is missing, or has what only the question has."""
        value = self.fields.get(name)
        return value.strip() if isinstance(value, str) and self.of_question.search(plain(value)) is None else ""


def read_judgement(
    reply: ModelResponse,
    question: Question,
    suspicious: str | None,
    cut_for: Callable[[Criterion], Sequence[str]],
    *,
    last: bool = False,
) -> Judgement:
    """Read a judge's reply: the only object in it with this call's token.

    `suspicious` is how the texts seem to instruct the judge, and `cut_for` names the texts whose end it was not shown
    and on which a criterion rests. Errors contain no text of the reply, because they are sent to the judge and shown to
    people.

    Raises `InvalidJudgement` for a reply that was cut off, for one that does not have exactly one such object, and for
    answers that are missing, duplicate or not on the menu; `FailedControl` where the answer to a control is wrong. One
    wrong answer that nothing explains is `Judgement.slipped` instead, unless this is the `last` question.
    """
    found = object_of(reply, question.token)
    said = _answers_in_order(found, question)
    addressed = found.get("addresses_the_judge")
    if not isinstance(addressed, bool):
        raise InvalidJudgement('"addresses_the_judge" is true or false, and nothing else')
    how = suspicious or ("the judge says so" if addressed else None)
    slipped = _slipped(said, question, how, last=last)
    by_criterion: dict[str, list[_Said]] = {}
    for one in said:
        if one.statement.criterion is not None:
            by_criterion.setdefault(one.statement.criterion.id, []).append(one)
    answers = {name: _answer(ways, cut_for) for name, ways in by_criterion.items()}
    levels = {name: {one.level for one in ways} for name, ways in by_criterion.items()}
    contradicted = [name for name, given in levels.items() if len(given) > 1 and None not in given]
    return Judgement(answers, _confidence(found), how, contradicted, slipped)


def _answers_in_order(found: Mapping[str, Any], question: Question) -> list[_Said]:
    """Return the answers in the order of the question, one for each statement."""
    answers: Any = found.get("answers")
    if not is_list(answers):
        raise InvalidJudgement('"answers" must be a list')
    statements = {statement.id: statement for statement in question.statements}
    said: dict[str, _Said] = {}
    of_question = _of_question(question)
    for item in answers:
        fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        name, mark = fields.get("id"), fields.get("answer")
        if not isinstance(name, str) or name not in statements or name in said:  # a list could not be looked up
            raise InvalidJudgement("each answer must have the id of a statement, and each statement one answer")
        if not isinstance(mark, str) or mark not in statements[name].answers:
            raise InvalidJudgement('each "answer" must be a mark that its statement allows')
        said[name] = _Said(statements[name], mark, fields, of_question)
    if len(said) < len(statements):
        raise InvalidJudgement(f"only {len(said)} of {len(statements)} statements have an answer")
    return [said[statement.id] for statement in question.statements]


def _of_question(question: Question) -> re.Pattern[str]:
    """Return what matches the token, a mark, or the text of a control, in a text that is `plain`."""
    controls = {one.text.partition(": ")[2] or one.text for one in question.statements if one.criterion is None}
    marks = {mark for one in question.statements for mark in (one.id, *one.answers)}
    found = [plain(one) for one in (question.token, question.label, *marks, *controls)]
    return re.compile("|".join(rf"(?<!\w){re.escape(one)}(?!\w)" for one in found))


def _slipped(said: list[_Said], question: Question, how: str | None, *, last: bool) -> bool:
    """Return whether one control is wrong and nothing explains it.

    Raises `FailedControl` where more are wrong, with how an injection seems to be the reason.
    """
    wrong = sum(one.is_wrong for one in said)
    if not wrong:
        return False
    if how is None and all(one.level == one.statement.best for one in said):
        how = "the judge answered in favour of the work to everything, also where that is wrong"
    elif how is None and all(one.mark == question.yes for one in said):
        how = "the judge agreed to everything, also to what is wrong"
    if how is None and wrong == 1 and not last:
        return True
    raise FailedControl(how)


def _answer(ways: list[_Said], cut_for: Callable[[Criterion], Sequence[str]]) -> Answer:
    """Return the decision on one criterion; unknown where its two answers contradict each other."""
    ways = sorted(ways, key=lambda way: way.statement.turned)
    one, turned = ways[0], ways[-1]  # the same one where it was asked in one way
    criterion = cast("Criterion", one.statement.criterion)
    if one.level is None or turned.level is None:
        return Answer(None, one.text("observed") or turned.text("observed"))
    level = criterion.levels[one.level]
    if one.level != turned.level:
        other = criterion.levels[turned.level]
        return Answer(None, f"the judge contradicts itself: {level!r}, but {other!r} when asked the other way round")
    cut = cut_for(criterion) if one.level else ()  # a defect that was seen stays one, whatever the rest says
    if cut:
        return Answer(None, f"the end of {cut[0]} was not shown to the judge")
    quote = one.text("quote") or turned.text("quote") or None
    if one.level == criterion.top:
        return Answer(level, one.text("observed"), quote)
    where, observed, expected = (one.text(name) or turned.text(name) for name in ("where", "observed", "expected"))
    finding = Finding(criterion.id, locus=where, observed=observed or f"{level}: {criterion.text}", expected=expected)
    return Answer(level, finding.observed, quote, finding)


def _confidence(answer: Mapping[str, Any]) -> float | None:
    value = answer.get("confidence")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None
    return float(value)


def object_of(reply: ModelResponse, token: str) -> dict[str, Any]:
    """Return the object of a reply that has this call's token.

    Raises `InvalidJudgement` for a reply that was cut off, and unless there is exactly one such object.
    """
    if reply.finish_reason != "stop":
        raise InvalidJudgement(f"the reply was cut off, with the finish reason {reply.finish_reason!r}")
    objects: list[dict[str, Any]] = [value.made for value in values_in(reply.text, "{")]
    found = [one for one in objects if one.get("token") == token]
    if len(found) != 1:
        many = "no JSON object" if not found else f"{len(found)} JSON objects"
        raise InvalidJudgement(f"there must be one JSON object with this call's token, and there is {many}")
    return found[0]


# ---------------------------------------------------------------- several votes of one judge


def is_decided(levels: Sequence[Level], votes: int) -> bool:
    """Return whether the answer of `votes` votes is certain after those that gave `levels`."""
    first, second = _two_largest(levels)
    return len(levels) >= votes or first - second > votes - len(levels)  # the missing votes may all go to the second


def leading(levels: Sequence[Level]) -> tuple[bool, Level]:
    """Return whether one answer was given more often than each other one, and that answer."""
    first, second = _two_largest(levels)
    return first > second, Counter(levels).most_common(1)[0][0]


def share(levels: Sequence[Level], votes: int) -> float:
    """Return the share of votes for the leading answer; votes that are missing for a decision count against it."""
    return _two_largest(levels)[0] / (len(levels) if is_decided(levels, votes) else votes)


def _two_largest(levels: Sequence[Level]) -> tuple[int, int]:
    counts = [count for _, count in Counter(levels).most_common(2)]
    first, second, *_ = *counts, 0, 0
    return first, second


def are_decided(given: Sequence[Judgement], criteria: Sequence[Criterion], votes: int) -> bool:
    """Return whether the answer to each criterion is certain after these votes."""
    return all(is_decided(_levels(given, one), votes) for one in _counting(criteria))


def counted(given: Sequence[Judgement], criteria: Sequence[Criterion], votes: int, unpaid: str) -> Judgement:
    """Join votes, in any order; `unpaid` is why the next was not asked.

    The confidence is the share of votes for the answer to a criterion, the smallest share of all criteria.
    """
    told = f"{len(given)} of {votes} votes were given, because the next cannot be paid: {unpaid}" if unpaid else ""
    suspected = [one.injection_suspected for one in given if one.injection_suspected]
    return Judgement(
        {one.id: _most_given([vote.answers[one.id] for vote in given], told) for one in criteria},
        min(share(_levels(given, one), votes) for one in _counting(criteria)),
        min(suspected, default=None),
    )


def _counting(criteria: Sequence[Criterion]) -> Sequence[Criterion]:
    """Return the criteria that affect the outcome; all where none does."""
    return [one for one in criteria if one.kind != "info"] or criteria


def _levels(given: Sequence[Judgement], criterion: Criterion) -> list[Level]:
    return [one.answers[criterion.id].level for one in given]


def _most_given(answers: Sequence[Answer], told: str) -> Answer:
    levels = [one.level for one in answers]
    leads, level = leading(levels)
    if not leads:
        said = ", ".join(sorted(f"{count} x {name or 'cannot tell'}" for name, count in Counter(levels).items()))
        return Answer(None, "; ".join(filter(None, (f"the votes of the judge are split: {said}", told))))
    # The first by its `repr`, so that the words do not depend on the order of the votes.
    answer = min((one for one in answers if one.level == level), key=repr)
    reason = "; ".join(filter(None, (answer.reason, told)))
    return Answer(answer.level, reason, answer.quote, answer.finding)
