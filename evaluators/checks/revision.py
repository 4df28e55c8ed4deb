"""Check that a revision changed the artifact."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from kairo_team.evaluators.checks.named_check import NamedCheck
from kairo_team.evaluators.criterion import Answer
from kairo_team.evaluators.quotes import plain

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.verdicts import EvaluationContext, EvaluationVerdict

_MARK: Final = "read as "


def _is_changed(artifact: Artifact, context: EvaluationContext) -> Answer:
    mark = _MARK + hashlib.sha256(plain(artifact.text).encode("utf-8", "surrogatepass")).hexdigest()
    # Only the last: the rounds find older versions.
    if context.prior_verdicts and mark in _marks(context.prior_verdicts[-1]):
        return Answer(level=False, reason="it is the last attempt again: nothing a reader would notice has changed")
    return Answer(level=True, reason=mark)


changed = NamedCheck("changed", _is_changed, in_place=False, wants_context=True)
"""Check that a revision differs from the attempt before it in more than case, white space and the form of punctuation.
The context does not contain the last attempt's text. So the check leaves a digest of the text as the reason of its
result, and compares it with the one in the verdict before; nothing is kept anywhere else.
"""


def _marks(verdict: EvaluationVerdict) -> list[str]:
    return [result.reason for result in verdict.criteria if result.reason.startswith(_MARK)]
