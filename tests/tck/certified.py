"""Certificates for the kits: made up, as if somebody had calibrated."""

from __future__ import annotations

from typing import Any

from kairo_team.contracts import EvaluationStrategy
from kairo_team.evaluators import CalibratedEvaluationStrategy, Certificate
from kairo_team.evaluators.calibration.certificates import subject_of
from kairo_team.prompts import Prompts


class Rendering:
    """As much of a member's context as a certificate asks for."""

    render = staticmethod(Prompts().render)


def certified(strategy: EvaluationStrategy) -> EvaluationStrategy:
    """Give a strategy certificates for all attempts."""
    context: Any = Rendering()
    subject = subject_of(strategy, context)
    made = [
        Certificate(side, bucket, 0.1, 0.05, 0.9, 100, 0, 250, subject, "digest of the labels")
        for side in ("pass", "revise")
        for bucket in ("1", "2", "3+")
    ]
    return CalibratedEvaluationStrategy(strategy, made)
