"""`Rubric`: named criteria and a threshold; its checks decide what they can."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from kairo_team._util.frozen import EMPTY, known_arguments, known_call, trusted
from kairo_team._util.narrowing import is_several
from kairo_team.errors import known
from kairo_team.evaluators.check_calls import CHECK_TIMEOUT, Asker, as_answer
from kairo_team.evaluators.checks.text import not_blank
from kairo_team.evaluators.criterion import Answer, By, Criterion
from kairo_team.evaluators.fingerprint import NoFingerprint, digest_of, fingerprint, name_of
from kairo_team.evaluators.review import (
    MET,
    NO_REFERENCE,
    NO_TRANSCRIPT,
    NOT_FOR_THIS,
    Review,
    Ruling,
    history_of,
    rule,
)
from kairo_team.evaluators.score_range import Decision, Number, exact, items_of
from kairo_team.evaluators.transcripts import as_artifact, is_kept
from kairo_team.team import check_positive
from kairo_team.verdicts import NOT_BLANK, Cause, EvaluationContext, EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.budget import Budget
    from kairo_team.contracts import Agent, ChatModel
    from kairo_team.evaluators.tried import TriedText
    from kairo_team.messages import Message

_logger = logging.getLogger("kairo_team")

_passed: Final = trusted(EvaluationVerdict)


@known_arguments
class Rubric:
    """The requirements of an artifact. A rubric is itself an evaluation strategy.

    Every gate must be met, and the graded criteria together, less the penalties, must reach `threshold`: a share of
    their weights, above 0 and at most 1. As a strategy it runs all checks, so that a revision knows everything that is
    wrong; `check_timeout` is in seconds, for each check. Deterministic: the same artifact gets an equal verdict.
    `votes` is how often its judge is asked at most; see `AgentEvaluationStrategy`.

    The verdict is REVISE if the artifact certainly fails, PASS if it certainly passes, else ESCALATE, with the cause
    `human_required` if a human criterion is open and `undecided` if not. If only human criteria are open, a person's
    approval makes it a PASS. Without a judge it never passes an artifact while it has criteria for a judge: `preflight`
    reports this before work. A PASS of a rubric that only checks for blank artifacts (`vacuous`) has no score; its
    feedback is "not blank", or "not blank, cut short" for a partial artifact.

    >>> rubric = Rubric([Criterion("calm", "it does not shout", check=lambda artifact: "!" not in artifact.text)])
    >>> team = kt.Team("newsroom", [kt.Member("writer", write)], evaluators={"house style": rubric})
    """

    models: tuple[Any, ...] = ()
    """The judges that the strategy asks: none."""

    def __init__(
        self,
        criteria: Sequence[Criterion],
        threshold: Number = 1.0,
        *,
        check_timeout: float = CHECK_TIMEOUT,
        votes: int = 1,
    ) -> None:
        if isinstance(criteria, Criterion):
            raise ValueError("a rubric is made of a list of Criterion objects, not one: write Rubric([criterion])")
        if not is_several(criteria):
            raise ValueError(f"a rubric is made of a list of Criterion objects, not {criteria!r:.80}")
        self.criteria = tuple(criteria)
        self.threshold = threshold
        self.check_timeout = check_timeout
        self.votes = checked_votes("Rubric.votes", votes)
        _check_criteria(self.criteria)
        check_positive("Rubric.check_timeout", check_timeout)
        self._threshold = exact(threshold)  # as it was written: the float 0.7 is a little less
        if not 0 < self._threshold <= 1:
            raise ValueError(f"Rubric.threshold must be above 0 and at most 1, not {threshold!r}: at 0 all would pass")
        self._items = items_of((c.kind, exact(c.weight), c.top) for c in self.criteria)
        self._askers = {
            c.id: Asker(f"the check of criterion {c.id!r}", c.check, check_timeout)
            for c in self.criteria
            if c.check is not None
        }
        self._scopes = {
            c.id: Asker(f"the applies of criterion {c.id!r}", c.applies, check_timeout)
            for c in self.criteria
            if c.applies is not None
        }
        self._judged = bool(self.decided_by("judge"))
        self._vacuous = self.vacuous
        self._read = tuple(c for c in self.criteria if c.on == "transcript")

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Run every check and decide."""
        review = await self.review(context)
        verdict = review.verdict()
        if self._judged and review.decision is Decision.PASS:
            asked = known(criterion.id for criterion in self.decided_by("judge"))
            return review.undecided(f"not decided: a judge decides {asked}, and none is wired")
        if self._judged and verdict.awaits_approval:  # a judge is missing too, so an approval is not enough
            return replace(verdict, other_causes=(Cause.UNDECIDED,))
        if self._vacuous and verdict.outcome is VerdictOutcome.PASS:
            found = f"{NOT_BLANK}, cut short" if context.artifact.partial else NOT_BLANK
            return _passed(VerdictOutcome.PASS, None, found, criteria=verdict.criteria)
        return verdict

    async def try_on(
        self,
        text: str | Artifact,
        *,
        judge: str | ChatModel | Agent | None = None,
        task: str = "Do the task.",
        reference: str | None = None,
        upstream: Mapping[str, str] = EMPTY,
        transcript: Sequence[Message] = (),
        budget: Budget | None = None,
        models: Mapping[str, str | ChatModel] | None = None,
        timeout: float = 60.0,
        settings: Mapping[str, Any] | None = None,
    ) -> TriedText:
        """Review one text without a team; return its level on each criterion, and the judge's calls.

        `judge` is asked about every criterion for a judge, even if the outcome no longer depends on it; without a judge
        these stay unknown. `task` is the text's task, `reference` its `Task.reference`, `upstream` the texts of its
        dependencies, `transcript` the conversation that produced it. `budget` is all the judge may spend (None: no
        limit), `models` replaces models by name, `timeout` is in seconds, `settings` are for sampling. Raises
        `ModelUnavailable` for a judge that is not a known model's name, `ValueError` for a blank task or reference.

        >>> trial = await rubric.try_on("The moon pulls the sea.", judge="openai:gpt-5-mini")  # doctest: +SKIP
        """
        from kairo_team.evaluators.tried import try_on  # it imports the engine, which a rubric of checks does not need

        given: dict[str, Any] = {"reference": reference, "upstream": upstream, "transcript": transcript}
        how: dict[str, Any] = {"budget": budget, "models": models, "timeout": timeout, "settings": settings}
        return await try_on(self, text, judge, task, **given, **how)

    async def review(self, context: EvaluationContext) -> Review:
        """Run every check and return the review, for a strategy that can ask a judge about the rest."""
        rulings = await self._not_applicable(context) if self._scopes else dict[str, Ruling]()
        if context.task.reference is None:
            # Where it does not apply, no reference is missing.
            rulings = {c.id: NO_REFERENCE for c in self.criteria if c.reference} | rulings
        transcript = as_artifact(context.transcript) if self._read and is_kept(context.transcript) else None
        if transcript is None:
            rulings = {c.id: NO_TRANSCRIPT for c in self._read} | rulings
        read = context if transcript is None else replace(context, artifact=transcript)
        for criterion, item in zip(self.criteria, self._items, strict=True):
            asker = self._askers.get(criterion.id)
            if asker is None or criterion.id in rulings:
                continue
            given = read if criterion.on == "transcript" else context
            answer = await asker.ask(given)
            plain = answer is True and item.top == 1  # the usual case needs no ruling of its own
            rulings[criterion.id] = MET if plain else rule(criterion, as_answer(criterion, answer), given.artifact)
        history = history_of(context.prior_verdicts)
        return Review(self.criteria, self._items, self._threshold, context.artifact, rulings, history, transcript)

    async def _not_applicable(self, context: EvaluationContext) -> dict[str, Ruling]:
        """Return rulings for the criteria that do not apply; unknown where `applies` fails."""
        rulings: dict[str, Ruling] = {}
        for criterion_id, asker in self._scopes.items():
            answer = await asker.ask(context)
            if answer is False:
                rulings[criterion_id] = NOT_FOR_THIS
            elif answer is not True:
                why = answer.reason if isinstance(answer, Answer) else "whether it applies must be True or False"
                rulings[criterion_id] = Ruling(None, why)
        return rulings

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, trusted: bool = False) -> Self:
        """Make a rubric of data, as in a file for `load_rubric`: `{"criteria": [...], "threshold": 0.75}`.

        A criterion has the fields of `Criterion`. Its check is a name in `checks`, or `{name: arguments}`;
        `levels` are names or `{name: what it means}`; `examples` are `{"text": ..., "level": ..., "reason": ...}`.
        Raises `ValueError` with one sentence for each mistake, one a line.

        >>> Rubric.from_data({"criteria": [{"id": "short", "text": "brief", "check": {"max_words": 12}}]}).threshold
        1.0
        """
        from kairo_team.data.reading import Reading
        from kairo_team.evaluators.rubric_data import read_rubric  # it imports pydantic, which most rubrics do not need

        return read_rubric(cls, data, Reading(pathlib.Path.cwd(), trusted))

    def to_data(self) -> dict[str, Any]:
        """Return the rubric as data for `from_data`, which makes a rubric with the same digest.

        Raises `ValueError` with one sentence for each thing that data cannot express, such as functions outside
        `checks`.
        """
        from kairo_team.evaluators.rubric_data import write_rubric

        return write_rubric(self.criteria, self.threshold, self.check_timeout, self.votes)

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON Schema of the data for `from_data`, for editors and other programs.

        Data that the schema accepts can still break rules that a schema cannot express: ids and levels must differ,
        examples must have one of the levels, and `#` headings, patterns and schemas must be usable.
        """
        from kairo_team.evaluators.rubric_data import json_schema

        return json_schema()

    def decided_by(self, by: By) -> tuple[Criterion, ...]:
        """Return the criteria that a check, a judge or a human decides."""
        return tuple(criterion for criterion in self.criteria if criterion.by == by)

    def preflight(self, *, judge: bool = False, gate: bool = False) -> list[str]:
        """Return one sentence for each criterion that no check, judge or person can decide.

        `judge` and `gate` say whether a judge and a human gate are wired.
        """
        lacking: dict[By, str] = {}
        if not judge:
            lacking["judge"] = (
                "a judge decides it, and none is wired: give one, such as judge='openai:gpt-5-mini', or give the "
                "criterion a check"
            )
        if not gate:
            lacking["human"] = (
                "a human decides it, and the run has no gate: give the runtime one, such as gate=kt.ConsoleGate()"
            )
        return [f"criterion {c.id!r}: {lacking[c.by]}" for c in self.criteria if c.by in lacking]

    @property
    def reads_transcript(self) -> bool:
        """Whether a criterion is about the member's conversation."""
        return bool(self._read)

    @property
    def vacuous(self) -> bool:
        """Whether only a blank artifact can fail."""
        return all(criterion.kind == "info" or criterion.check is not_blank for criterion in self.criteria)

    @property
    def digest(self) -> str | None:
        """SHA-256, in hex, of the threshold, the votes and every criterion, independent of their order.

        A check enters it with its source, arguments and state, and the globals of its own module that it uses, but not
        with files and services that it reads. None where a state cannot be read (`no_digest` names it): then no
        certificate can be made for the rubric, and its criteria are not frozen while a task is worked on.
        `Criterion.version` solves that.
        """
        return self._digested[0]

    @property
    def no_digest(self) -> str:
        """A sentence that says why `digest` is None; "" where it is not."""
        return self._digested[1]

    @cached_property
    def _digested(self) -> tuple[str | None, str]:
        try:
            criteria = sorted((_described(criterion) for criterion in self.criteria), key=lambda one: str(one["id"]))
        except NoFingerprint as error:
            why = f"the rubric has no digest, so its criteria are not frozen and no certificate is made for it: {error}"
            _logger.warning("%s", why)
            return None, why
        votes = {} if self.votes == 1 else {"votes": self.votes}  # left out, so that digests in certificates stay valid
        return digest_of({"threshold": str(self._threshold), **votes, "criteria": criteria}), ""

    def __repr__(self) -> str:
        return f"Rubric({[criterion.id for criterion in self.criteria]})"


@known_call
def load_rubric(file: str | os.PathLike[str], *, trusted: bool = False) -> Rubric:
    """Make a rubric of a file: .yaml or .yml (extra `yaml`), .toml or .json.

    The file contains the data for `Rubric.from_data`; paths in it begin at the file. With `trusted` it may do what a
    Python file may: name code by `module:name`, and files outside its folder.

    Raises `ValueError` with one line for each mistake: the file, the line and what is allowed there; `OSError` for a
    file that cannot be opened, `MissingExtra`.

    >>> rubric = load_rubric("tides.yaml")  # doctest: +SKIP
    """
    from kairo_team.data.files import read_data  # most rubrics are not in files
    from kairo_team.data.reading import Reading
    from kairo_team.evaluators.rubric_data import read_rubric

    path = pathlib.Path(file)
    data = read_data(path)
    return read_rubric(Rubric, data.value, Reading(path.resolve().parent, trusted), str(file), data.line_of)


def checked_votes(name: str, votes: int) -> int:
    """Return a number of votes; `ValueError` for anything but a whole number >= 1."""
    if type(votes) is not int or votes < 1:
        raise ValueError(f"{name} must be a whole number >= 1, such as 3, not {votes!r}")
    return votes


def _check_criteria(criteria: tuple[Any, ...]) -> None:
    strangers = [one for one in criteria if not isinstance(one, Criterion)]
    if strangers:
        hint = ": kt.Rubric.from_data({'criteria': [...]}) takes data" if isinstance(strangers[0], Mapping) else ""
        raise ValueError(f"a rubric is made of Criterion objects, not {strangers[0]!r}{hint}")
    ids = [criterion.id for criterion in criteria]
    if not ids:
        raise ValueError("a rubric needs at least one criterion: without one nothing could ever fail it")
    if len(set(ids)) != len(ids):
        raise ValueError(f"criterion ids must be unique; given twice: {known({i for i in ids if ids.count(i) > 1})}")
    if not any(criterion.kind in ("gate", "graded") for criterion in criteria):
        kinds = known({criterion.kind for criterion in criteria})
        raise ValueError(
            f"a rubric needs a gate or a graded criterion, not only {kinds}: it could hardly fail anything"
        )


def _described(criterion: Criterion) -> Mapping[str, Any]:
    return {
        "id": criterion.id,
        "text": criterion.text,
        "by": criterion.by,
        "kind": criterion.kind,
        "weight": str(exact(criterion.weight)),
        "levels": list(criterion.levels),
        "evidence": criterion.evidence,
        **({} if criterion.on == "artifact" else {"on": criterion.on}),
        "version": criterion.version,
        "level_texts": dict(criterion.level_texts),
        "examples": [[one.text, one.level, one.reason] for one in criterion.examples],
        "reference": criterion.reference,
        "check": _told_apart(criterion, "check", criterion.check),
        "applies": _told_apart(criterion, "applies", criterion.applies),
    }


def _told_apart(criterion: Criterion, what: str, function: Any) -> Any:
    """Describe a function of a criterion; if its state cannot be read but the criterion has a version, by its name."""
    try:
        return fingerprint(function)
    except NoFingerprint as error:
        if criterion.version is not None:
            return name_of(function)
        raise NoFingerprint(
            f"the {what} of criterion {criterion.id!r} looks like others of its class ({error}); give "
            "Criterion(version=...) a text that changes with what it decides by"
        ) from None


@known_arguments
class SimpleEvaluationStrategy:
    """Review by a rubric of checks; without one, by a single criterion: the artifact is not blank.

    A PASS by that criterion has no score; its feedback is "not blank".

    Raises `ValueError` for a rubric with criteria for a judge, because the strategy has none.
    """

    models: tuple[Any, ...] = ()
    """The judges that the strategy asks: none."""

    def __init__(self, rubric: Rubric | None = None) -> None:
        self.rubric = rubric or Rubric([Criterion("not-blank", "the artifact must not be blank", not_blank)])
        judged = [criterion.id for criterion in self.rubric.decided_by("judge")]
        if judged:
            raise ValueError(
                f"SimpleEvaluationStrategy asks no judge, and one decides {known(judged)}: give them checks, or take a "
                "strategy with a judge"
            )

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact; the same input gets an equal verdict."""
        return await self.rubric.evaluate(context)

    def preflight(self, *, judge: bool = False, gate: bool = False) -> list[str]:
        """Return one sentence for each criterion that no check, judge or person can decide; see `Rubric.preflight`."""
        return self.rubric.preflight(judge=judge, gate=gate)

    @property
    def vacuous(self) -> bool:
        """Whether only a blank artifact can fail."""
        return self.rubric.vacuous

    @property
    def reads_transcript(self) -> bool:
        """Whether a criterion is about the member's conversation."""
        return self.rubric.reads_transcript
