"""Questions to people and their decisions: `HumanRequest`, `HumanDecision`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from kairo_team._util.frozen import EMPTY, checked, freeze
from kairo_team._util.late_pydantic import AfterValidator, AsTuple
from kairo_team.artifacts import Artifact, Finding
from kairo_team.errors import Misuse, known
from kairo_team.verdicts import Cause

QuestionKind = Literal["plan", "review", "tool"]
"""The subject of a question: a plan, a reviewed artifact, or a tool call."""
HumanAction = Literal["approve", "revise", "reject", "defer"]
_ANSWERS: Final = ("approve", "revise", "reject", "silence")


@checked
@dataclass(frozen=True)
class HumanRequest:
    """One question to a person. The caller describes the subject; the run fills in `id` and `run_id`."""

    kind: QuestionKind
    text: str
    """The question, in a sentence."""
    subject: str = ""
    """The thing to decide about: the plan, the artifact's text and a line on each of its files, or the tool call with
    its arguments."""
    task_id: str | None = None
    """The task; None for a plan."""
    member: str | None = None
    """The member that made the artifact, or calls the tool."""
    attempt: int = 0
    """Number of the attempt that the question is about; for a plan, the number of the plan."""
    cause: Cause | None = None
    """Why a review was left to a person."""
    findings: Annotated[Sequence[Finding], AsTuple()] = ()
    """Defects that a review found."""
    id: str = ""
    """Unique among all runs of a runtime; what `Runtime.answer` takes."""
    run_id: str = ""
    consequences: Annotated[Mapping[str, str], AfterValidator(freeze)] = EMPTY
    """What follows from each answer, in words, as far as known; the keys are "approve", "revise", "reject" and
    "silence"."""
    before: str = ""
    """The same of the artifact that was reviewed before; "" without one."""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("HumanRequest.text must not be blank: write the question")
        if strangers := set(self.consequences) - set(_ANSWERS):
            raise ValueError(f"HumanRequest.consequences are of {known(_ANSWERS)}, not of {known(strangers)}")
        if (self.task_id is None) != (self.kind == "plan"):
            raise ValueError(f"a question about a {self.kind} {'has no' if self.kind == 'plan' else 'needs a'} task_id")

    @property
    def digest(self) -> str:
        """SHA-256 of the subject, in hex: a decision is valid for this subject only."""
        # Models return half surrogate pairs too.
        return hashlib.sha256(self.subject.encode("utf-8", "surrogatepass")).hexdigest()


def subject_of(artifact: Artifact | None) -> str:
    """Return the subject of a question about an artifact: its text, and a line on each of its files."""
    if artifact is None or not artifact.files:
        return "" if artifact is None else artifact.text
    files = "\n".join(f"- {file}, SHA-256 {file.digest}" for file in artifact.files)
    return f"{artifact.text}\n\nIts files:\n{files}"


@checked
@dataclass(frozen=True)
class HumanDecision:
    """What a person decided. Build it with `approve`, `revise`, `reject` or `defer`."""

    action: HumanAction
    feedback: str = ""
    """What to change, or why not; a member or planner reads it."""
    by: str = field(default="", compare=False)
    """Who decided, if known; ignored by comparisons."""

    def __post_init__(self) -> None:
        if self.action == "revise" and not self.feedback.strip():
            raise ValueError("a decision to revise needs feedback in words: it is all the member gets")

    @classmethod
    def approve(cls, feedback: str = "") -> HumanDecision:
        """Accept the subject."""
        return cls("approve", feedback)

    @classmethod
    def revise(cls, feedback: str) -> HumanDecision:
        """Ask for another revision; for a tool call, refuse it and describe what to do instead."""
        return cls("revise", feedback)

    @classmethod
    def reject(cls, feedback: str = "") -> HumanDecision:
        """Refuse the subject, whatever the risk profile."""
        return cls("reject", feedback)

    @classmethod
    def defer(cls) -> HumanDecision:
        """Postpone the decision: independent work continues, then the run ends SUSPENDED."""
        return cls("defer")


def check_answer(question_id: Any, decision: Any) -> None:
    """Raise `ValueError` unless these are the id of a question and a `HumanDecision`."""
    if not isinstance(question_id, str):
        raise ValueError(f"answer takes the id of a question, such as question.id, not {question_id!r:.80}")
    if not isinstance(decision, HumanDecision):
        raise ValueError(f"an answer is a HumanDecision, such as HumanDecision.approve(), not {decision!r:.200}")


def check_same(question_id: str, given: HumanDecision | None, decision: HumanDecision) -> None:
    """Raise `Misuse` for an answer other than the one that was given already."""
    if given is not None and given != decision:
        who = f" by {given.by}" if given.by else ""
        raise Misuse(f"the question {question_id!r} was answered already{who}: {given.action}")
