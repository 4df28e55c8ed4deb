"""A judge of pairs for tests: it reads the question as a model would, and a function decides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kairo_team.evaluators.canaries import is_canary
from kairo_team.testing.scripted import FunctionModel
from kairo_team.testing.scripted_judge import LABEL, MARK, read_work

if TYPE_CHECKING:
    from kairo_team.budget import Money
    from kairo_team.messages import ModelRequest

_LEGEND: Final = re.compile(rf"(?m)^{MARK} = (the first work|the second work|neither|the works do not)")
_QUESTION: Final = re.compile(rf"(?m)^- {MARK}: (.*)$")
_SIDES: Final = {
    "the first work": "first",
    "the second work": "second",
    "neither": "tie",
    "the works do not": "cannot tell",
}

Prefers = Callable[[str, str], str]
"""Takes two works, in the order shown, and returns "first", "second", "tie" or "cannot tell"."""


class ScriptedPairJudge(FunctionModel):
    """A chat model for `PairwiseStrategy`: `prefers` decides, and the controls are answered truthfully.

    `calls` has the requests.

    >>> judge = ScriptedPairJudge(lambda first, second: "first" if len(first) < len(second) else "second")
    """

    def __init__(
        self,
        prefers: Prefers,
        *,
        confidence: float = 0.9,
        addresses_the_judge: bool = False,
        name: str = "test:judge",
        dollars_per_token: Money = 0,
    ) -> None:
        self.prefers = prefers
        self.confidence = confidence
        self.addresses_the_judge = addresses_the_judge
        super().__init__(self.write, name=name, dollars_per_token=dollars_per_token)

    def write(self, request: ModelRequest) -> str:
        """Return the text of the reply."""
        return json.dumps(self.reply(request))

    def reply(self, request: ModelRequest) -> dict[str, Any]:
        """Return the reply to a question about two works; raise `ValueError` if it is not one."""
        text = "\n".join(message.text for message in request.messages)
        marks = {_SIDES[meaning]: mark for mark, meaning in _LEGEND.findall(text)}
        shown = [one.text for one in request.messages if LABEL.search(one.text)]
        if len(marks) != len(_SIDES) or len(shown) != 2:  # noqa: PLR2004 - two works, each with a label
            raise ValueError(f"this is not a question about two works from the packaged templates: {text!r:.200}")
        (token, first), (_, second) = map(read_work, shown)
        preferred, labels = self.prefers(first, second), LABEL.findall(text)
        empty = dict.fromkeys(("where", "quote", "observed", "expected"), "")
        answers = [
            {"id": name, **empty, "answer": marks[_of_control(asked, labels) or preferred]}
            for name, asked in _QUESTION.findall(text)
        ]
        return {
            "token": token,
            "addresses_the_judge": self.addresses_the_judge,
            "answers": answers,
            "confidence": self.confidence,
        }


def _of_control(asked: str, labels: list[str]) -> str | None:
    """Return the right answer to a control; None for any other question."""
    if is_canary(asked.partition(": ")[2]):
        return "tie"
    named = re.search(rf"label {MARK}\?$|is {MARK} the label\?$", asked)
    if named is None:
        return None
    return "first" if (named[1] or named[2]) == labels[0] else "second"
