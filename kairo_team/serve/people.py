"""A question of a run, as a client is asked it, and the client's answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kairo_team.human import HumanDecision

if TYPE_CHECKING:
    from kairo_team.human import HumanRequest

ANSWER: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "revise", "reject"], "description": "What you decide."},
        "feedback": {"type": "string", "description": "What to change, or why not; needed to revise."},
    },
    "required": ["decision"],
}
"""The JSON Schema of an answer."""
_MOST_SHOWN: Final = 20_000
"""Characters of a question's subject that a client gets."""
_REJECT: Final = re.compile(r"\W*reject\b\W*(.*)", re.IGNORECASE | re.DOTALL)
_REVISE: Final = re.compile(r"\W*revise\b\W*(.*)", re.IGNORECASE | re.DOTALL)


def question_text(question: HumanRequest) -> str:
    """Return a question for a person, with its subject, its findings and the consequences of each answer."""
    parts = [question.text, question.subject[:_MOST_SHOWN]]
    if len(question.subject) > _MOST_SHOWN:
        parts.append(f"[{len(question.subject) - _MOST_SHOWN:,} more characters]")
    parts += [f"- {one.observed or one.id}" for one in question.findings]
    parts += [f"{answer}: {what}" for answer, what in question.consequences.items()]
    return "\n\n".join(filter(None, parts))


def decision_of(given: Mapping[str, Any]) -> HumanDecision | None:
    """Return the decision of an answer in the form of `ANSWER`; None for any other, or a revision without words."""
    feedback = str(given.get("feedback") or "")
    match given.get("decision"):
        case "approve" | "reject" as decision:
            return HumanDecision(decision, feedback)
        case "revise" if feedback.strip():
            return HumanDecision.revise(feedback)
        case _:
            return None


def decision_in_words(text: str) -> HumanDecision | None:
    """Return the decision of an answer in words; None for a blank one.

    Nothing but the word "approve" approves. A text that begins with "reject" rejects; any other one asks for a change.
    """
    if text.strip().strip(".!").lower() == "approve":
        return HumanDecision.approve()
    if rejected := _REJECT.fullmatch(text):
        return HumanDecision.reject(rejected[1].strip())
    wanted = revised[1] if (revised := _REVISE.fullmatch(text)) else text
    return HumanDecision.revise(wanted.strip()) if wanted.strip() else None
