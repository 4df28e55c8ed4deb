"""`Certificate`: an error bound for a strategy's own decisions, tied to one strategy, judge and prompt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from pydantic import AfterValidator, Field, ValidationError

from kairo_team._util.frozen import EMPTY, checked
from kairo_team._util.late_pydantic import adapter
from kairo_team.evaluators.calibration.confidence_bounds import Proportion, upper_bound
from kairo_team.evaluators.calibration.labelled import Bucket
from kairo_team.evaluators.calibration.thresholds import SIDES, Side
from kairo_team.evaluators.combined import CascadeEvaluationStrategy
from kairo_team.evaluators.fingerprint import digest_of, fingerprint
from kairo_team.evaluators.judge_question import WORDINGS, question_for
from kairo_team.evaluators.judging import AskingOptions
from kairo_team.evaluators.rubric import Rubric
from kairo_team.messages import Json

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy, MemberContext

_TEMPLATES: Final = ("judge", "judge_ask", "judge_again")
_SIZE: Final = 1_000
"""Assumed length of the work, in characters, for the digest of a prompt."""
_SHARE: Final = Field(gt=0, lt=1)


@checked
@dataclass(frozen=True)
class Subject:
    """The strategy that a certificate is for. When any field differs, the certificate does not count."""

    rubric: str
    """Digest of the criteria; where the stages' criteria differ, a digest of their digests."""
    judge: str
    """Names of the judges, in the order of the stages; "" where only code decides."""
    parameters: Json = field(default=EMPTY, hash=False)
    """The stages' classes, sampling settings, quorums and weights."""
    prompt: str = ""
    """Digest of the judges' prompts and of the schema of their replies; "" where only code decides."""


def subject_of(strategy: EvaluationStrategy, context: MemberContext | None) -> Subject:
    """Return the subject of a certificate for this strategy; models are named as they are resolved in `context`.

    Raises `ValueError` for a rubric without a digest, and for a strategy, or an agent as the judge, without a rubric or
    an attribute `fingerprint` that distinguishes it from others of its class.
    """
    digests: list[str] = []
    judges: list[str] = []
    prompts: list[Any] = []
    stages: list[Any] = [*stages_of(strategy)]
    for stage in stages:
        rubric = rubric_of(stage)
        digests.append(_digest_of(rubric) if rubric is not None else _own_fingerprint(stage))
        judge = getattr(stage, "judge", None)
        several: Sequence[Any] = getattr(stage, "judges", None) or ([] if judge is None else [judge])
        if several:
            judges.append(" + ".join(_name_of(one, context) for one in several))
            if rubric is not None and context is not None:
                prompts.append(_prompts(rubric, context))
    return Subject(
        digests[0] if len(set(digests)) == 1 else digest_of(digests),
        ", then ".join(judges),
        {"stages": [_parameters_of(stage) for stage in stages]},
        digest_of(prompts) if prompts else "",
    )


def stages_of(strategy: Any) -> tuple[EvaluationStrategy, ...]:
    """Return the stages of a cascade; any other strategy is its only stage."""
    return strategy.stages if isinstance(strategy, CascadeEvaluationStrategy) else (strategy,)


def check_digests(strategy: Any) -> None:
    """Raise `ValueError` for a strategy that has a rubric without a digest and so cannot have certificates."""
    for stage in stages_of(strategy):
        rubric = rubric_of(stage)
        if rubric is not None:
            _digest_of(rubric)


def rubric_of(stage: Any) -> Rubric | None:
    """Return the rubric that a stage is or has; None without one."""
    rubric = stage if isinstance(stage, Rubric) else getattr(stage, "rubric", None)
    return rubric if isinstance(rubric, Rubric) else None


def _digest_of(rubric: Rubric) -> str:
    digest = rubric.digest
    if digest is None:
        raise ValueError(rubric.no_digest)
    return digest


def _own_fingerprint(thing: Any) -> str:
    """Return the digest of a strategy's or an agent's own `fingerprint`; `ValueError` where it has none."""
    given = getattr(thing, "fingerprint", None)
    if not isinstance(given, str):
        raise ValueError(
            f"{thing!r:.80} cannot be distinguished from others of its class, so no certificate can name it: "
            "give it a str attribute `fingerprint` that changes with whatever it decides by"
        )
    return digest_of(fingerprint(thing))


def _name_of(judge: Any, context: MemberContext | None) -> str:
    if isinstance(judge, str):
        return judge if context is None else context.model(judge).name
    if callable(getattr(judge, "complete", None)):
        return str(judge.name)
    return f"{type(judge).__name__} {_own_fingerprint(judge)[:12]}"


def _parameters_of(stage: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"strategy": type(stage).__name__}
    for name in ("settings", "quorum", "weights"):
        if hasattr(stage, name):
            made[name] = json.loads(json.dumps(getattr(stage, name), default=repr))  # as it is read back from a file
    options = getattr(stage, "options", None)
    if isinstance(options, AskingOptions):
        for name, patterns in (("signs", options.signs), ("canaries", options.canaries)):
            made[name] = digest_of({text: pattern.pattern for text, pattern in patterns.items()})
        made["trusted"] = options.trusted
        if options.votes > 1:
            made["votes"] = [options.votes, digest_of(WORDINGS)]  # with one vote the words are in the prompt's digest
    return made


def _prompts(rubric: Rubric, context: MemberContext) -> list[Any]:
    """Return a judge's prompts for a task of the library's own, and the schema of its reply.

    They contain the templates, criteria and menus, and no artifact.
    """
    criteria = rubric.decided_by("judge")
    # Fixed texts and an empty seed: the digest must change with templates and criteria alone.
    question = question_for(criteria, _SIZE, "", "")
    values: dict[str, Any] = {
        "conversation": any(one.on == "transcript" for one in criteria),
        "token": "token", "cannot_tell": question.unknown, "question": question,
        "shown": {
            "task": "A task.", "goal": "A goal.", "upstream": {"before": "A text."}, "reference": "A reference.",
            "examples": [{"id": "id", "mark": "mark", "reason": "A reason.", "text": "A text."}],
        },
        "hidden": 1, "whole": False, "plain": True, "problem": "a problem",
    }  # fmt: skip
    names = [*_TEMPLATES]
    if any(one.evidence == "sources" for one in criteria):
        values["shown"]["claims"] = "A claim."
        names.append("judge_claims")
    return [*(context.render(name, **values) for name in names), question.schema()]


# ---------------------------------------------------------------- certificates


@checked
@dataclass(frozen=True)
class Certificate:
    """A promise and the counts it rests on: see `bound`. Made by `calibrate`.

    Where the strategy decides `outcome` by itself, being at least as sure as `threshold`, a human would have decided
    otherwise in a share of at most `alpha`; over the draw of the labels this holds with a probability of `1 - delta`.
    Raises `ValueError` where the counts do not support the promise.
    """

    outcome: Side
    attempt: Bucket
    """The attempts that the certificate is for."""
    alpha: Annotated[float, _SHARE]
    delta: Annotated[float, _SHARE]
    """This certificate's own share: half of the calibration's delta where there are two."""
    threshold: Annotated[float, Field(ge=0, le=1)]
    n: Annotated[int, Field(ge=0)]
    """How many labelled artifacts were decided so at the threshold."""
    k: Annotated[int, Field(ge=0)]
    """How many of them a human decided otherwise."""
    examples: int
    """How many labelled artifacts there were of these attempts."""
    subject: Subject
    data: str
    """Digest of the labelled examples."""
    sides: Annotated[Sequence[Side], AfterValidator(tuple)] = SIDES
    """The sides that were calibrated; in a cascade they share the threshold, and one counts only with the other."""

    def __post_init__(self) -> None:
        if not self.k <= self.n <= self.examples:
            raise ValueError(f"a certificate has k <= n <= examples, not {self.k}, {self.n}, {self.examples}")
        if self.bound > self.alpha:
            raise ValueError(
                f"{self.k} wrong of {self.n} bears no promise of {self.alpha:g} at a delta of {self.delta:g}: "
                f"the bound is {self.bound:.4f}"
            )

    @property
    def bound(self) -> float:
        """Upper bound of the share of wrong decisions, by Clopper and Pearson."""
        return upper_bound(self.k, self.n, self.delta)

    @property
    def coverage(self) -> Proportion:
        """Share of these attempts' artifacts that is decided so."""
        return Proportion(self.n, self.examples)


def write_certificates(certificates: Iterable[Certificate]) -> str:
    """Write certificates as JSON, each with the digest of all its fields; numbers are exact."""
    made = [_fields_of(one) for one in certificates]
    return json.dumps({"certificates": [{**one, "digest": digest_of(one)} for one in made]}, indent=2) + "\n"


def read_certificates(text: str) -> list[Certificate]:
    """Read what `write_certificates` wrote; `ValueError` where it is not that, has no digest, or was changed."""
    try:
        made: Any = json.loads(text)
        given = [dict(one) for one in made["certificates"]]
        digests: list[Any] = [one.pop("digest", None) for one in given]
        found: list[Certificate] = adapter(list[Certificate]).validate_python(given)
    except ValidationError as error:
        raise ValueError(f"it holds no valid certificates: {error.errors(include_url=False)[0]['msg']}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(
            "it holds no certificates: give the text of a file that `kairo judge calibrate` or write_certificates "
            f"wrote, not {text!r:.60}"
        ) from None
    for number, (one, digest) in enumerate(zip(found, digests, strict=True), 1):
        if digest != digest_of(_fields_of(one)):
            what = (
                "has no digest: an earlier version wrote it" if digest is None else "was changed after it was written"
            )
            raise ValueError(f"certificate {number} ({one.outcome}, attempt {one.attempt}) {what}; calibrate again")
    return found


def _fields_of(one: Certificate) -> dict[str, Any]:
    made: dict[str, Any] = adapter(Certificate).dump_python(one, mode="json")
    return made


@dataclass(frozen=True, slots=True)
class Valid:
    """The thresholds that certificates allow one strategy on one attempt, and why there are not more."""

    thresholds: Mapping[Side, float]
    why_not: str
    """Why there are not more; "" where nothing is missing."""


def valid_for(certificates: Iterable[Certificate], subject: Subject, attempt: Bucket, *, stages: int = 1) -> Valid:
    """Return what these certificates allow; on any mismatch they allow nothing."""
    given = list(certificates)
    found = [one for one in given if one.subject == subject and one.attempt == attempt]
    thresholds: dict[Side, float] = {one.outcome: one.threshold for one in found}
    if stages > 1 and found and (set(thresholds) != set(found[0].sides) or len({*thresholds.values()}) != 1):
        # One threshold was tested for both sides of a cascade, so neither promise holds without the other.
        return Valid({}, "the certificates of a cascade count only together, and one is missing")
    if len(thresholds) != len(found):
        return Valid({}, f"there are several certificates for attempt {attempt}: give those of one calibration")
    missing = [side for side in SIDES if side not in thresholds]
    why = _why_not(given, subject, attempt, missing) if missing else ""
    return Valid(thresholds, why)


def _why_not(given: Sequence[Certificate], subject: Subject, attempt: Bucket, missing: Sequence[str]) -> str:
    nothing = f"no certificate for {' or '.join(missing)} on attempt {attempt}"
    others = [one for one in given if one.attempt == attempt and one.outcome in missing]
    if not others:
        return nothing
    wrong = [
        f.name for f in fields(cast("Any", Subject)) if getattr(others[0].subject, f.name) != getattr(subject, f.name)
    ]
    return f"{nothing}: it was made for another {' and another '.join(wrong)}"
