"""How far may a judge decide by itself? Labelled examples, a rubric, and a judge to calibrate.

The texts are made here, with planted defects, so that the human's answer for each is known: a text with a word that a
child does not know is sent back. A scripted judge replaces the model: it treats long words as hard words, which is
often right. It misses short hard words, and long plain words mislead it.

    kairo judge calibrate examples/judge_calibration_data/labelled.jsonl \
        --judge examples/judge_calibration.py:judge --rubric examples/judge_calibration.py

    python examples/judge_calibration.py        # prints the labelled examples again
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import ScriptedJudge, read_question

PLAIN = ("tide", "moon", "sea", "beach", "boat", "rock", "sand", "wave")
LONG_BUT_PLAIN = ("everything", "yesterday", "lighthouse", "fisherman", "grandmother")
HARD = ("gravitational", "perturbation", "declination", "oscillation", "equinoctial", "amphidromic")
SHORT_BUT_HARD = ("neap", "syzygy", "apsis")
LONG = 9
"""Characters from which the judge takes a word for a hard one."""
FIRST, SECOND = 360, 40
PASSED = 0.5
SLY = {1: 0.02, 2: 0.6}
"""The share of bad texts whose hard word is short, by attempt. A revised text hides its faults better."""

rubric = Rubric([Criterion("plain", "a ten-year-old knows every word", by="judge")])


class WordJudge(ScriptedJudge):
    """Counts long words; its confidence grows with the distance of the count from the limit."""

    def __init__(self) -> None:
        super().__init__(lambda _, work: _looked_at(work)[0], name="example:word-judge")

    def reply(self, request: kt.ModelRequest) -> dict[str, Any]:
        """Answer with a confidence that follows from the count."""
        return {**super().reply(request), "confidence": _looked_at(read_question(request).work)[1]}


def _looked_at(text: str) -> tuple[dict[str, str], float]:
    """Return the answer about a text, and its confidence."""
    long = sum(len(word.strip(".,")) >= LONG for word in text.split())
    met, confidence = {0: (True, 0.95), 1: (True, 0.6), 2: (False, 0.8)}.get(long, (False, 0.97))
    return {"answer": "met" if met else "not met", "observed": f"{long} long words"}, confidence


judge = WordJudge()


def examples() -> Iterator[dict[str, Any]]:
    """Make texts with the decision of a human about each; second attempts are harder to judge."""
    lots = random.Random(11)  # noqa: S311 - the same examples every time
    for number in range(FIRST + SECOND):
        attempt = 1 if number < FIRST else 2
        passed = lots.random() < PASSED
        words = lots.choices(PLAIN, k=6) + lots.choices(LONG_BUT_PLAIN, k=lots.choice([0, 0, 0, 1, 2]))
        if not passed:
            sly = lots.random() < SLY[attempt]
            words += lots.choices(SHORT_BUT_HARD, k=1) if sly else lots.choices(HARD, k=lots.randint(2, 4))
        lots.shuffle(words)
        text = f"Text {number + 1}: the {', the '.join(words)}."
        yield {"artifact": text, "task": "Explain tides to a child.", "passed": passed, "attempt": attempt}


def main() -> None:
    """Print the labelled examples."""
    for one in examples():
        print(json.dumps(one))


if __name__ == "__main__":
    main()
