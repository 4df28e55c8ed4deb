"""Evaluators: they decide whether an artifact is accepted."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.evaluators import checks
    from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
    from kairo_team.evaluators.calibration.calibrated import CalibratedEvaluationStrategy
    from kairo_team.evaluators.calibration.calibration import Calibration, JudgeScore, calibrate, score_judge
    from kairo_team.evaluators.calibration.certificates import Certificate, read_certificates, write_certificates
    from kairo_team.evaluators.calibration.confidence_bounds import Proportion, labels_needed
    from kairo_team.evaluators.calibration.judge_report import JudgeReport
    from kairo_team.evaluators.calibration.labelled import LabelledArtifact, read_labelled
    from kairo_team.evaluators.calibration.weights import FittedWeights, fit_weights
    from kairo_team.evaluators.combined import CascadeEvaluationStrategy, all_of, any_of
    from kairo_team.evaluators.criterion import Answer, Applies, Check, Criterion, Example
    from kairo_team.evaluators.judge_injection import talks_to_judge
    from kairo_team.evaluators.pairwise import PairwiseStrategy, Preference
    from kairo_team.evaluators.panel import PanelEvaluationStrategy
    from kairo_team.evaluators.review import Review
    from kairo_team.evaluators.rubric import Rubric, SimpleEvaluationStrategy, load_rubric
    from kairo_team.evaluators.score_range import Decision
    from kairo_team.evaluators.tried import JudgeCall, TriedText
    from kairo_team.evaluators.wired import load_evaluator
    from kairo_team.verdicts import CriterionResult

__all__ = [
    "AgentEvaluationStrategy",
    "Answer",
    "Applies",
    "CalibratedEvaluationStrategy",
    "Calibration",
    "CascadeEvaluationStrategy",
    "Certificate",
    "Check",
    "Criterion",
    "CriterionResult",
    "Decision",
    "Example",
    "FittedWeights",
    "JudgeCall",
    "JudgeReport",
    "JudgeScore",
    "LabelledArtifact",
    "PairwiseStrategy",
    "PanelEvaluationStrategy",
    "Preference",
    "Proportion",
    "Review",
    "Rubric",
    "SimpleEvaluationStrategy",
    "TriedText",
    "all_of",
    "any_of",
    "calibrate",
    "checks",
    "fit_weights",
    "labels_needed",
    "load_evaluator",
    "load_rubric",
    "read_certificates",
    "read_labelled",
    "score_judge",
    "talks_to_judge",
    "write_certificates",
]

if not TYPE_CHECKING:  # with __getattr__ a type checker would accept any name
    _HOMES = {
        "checks": "",
        "agent_judge": "AgentEvaluationStrategy",
        "calibration.confidence_bounds": "labels_needed Proportion",
        "calibration.calibrated": "CalibratedEvaluationStrategy",
        "calibration.calibration": "calibrate Calibration JudgeScore score_judge",
        "calibration.certificates": "Certificate read_certificates write_certificates",
        "combined": "all_of any_of CascadeEvaluationStrategy",
        "criterion": "Answer Applies Check Criterion Example",
        "score_range": "Decision",
        "calibration.judge_report": "JudgeReport",
        "calibration.labelled": "LabelledArtifact read_labelled",
        "calibration.weights": "FittedWeights fit_weights",
        "pairwise": "PairwiseStrategy Preference",
        "panel": "PanelEvaluationStrategy",
        "wired": "load_evaluator",
        "judge_injection": "talks_to_judge",
        "review": "Review",
        "tried": "JudgeCall TriedText",
        "rubric": "Rubric SimpleEvaluationStrategy load_rubric",
        "kairo_team.verdicts": "CriterionResult",
    }
    """Where the names live. Each is imported when it is first used: a rubric of checks needs no calibration."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
