"""Evals: a whole team over a dataset of cases, scored by a rubric, and compared with an earlier eval."""

from kairo_team.evals.dataset import Case, Dataset
from kairo_team.evals.eval_result import Comparison, EvalResult, Trial, compare
from kairo_team.evals.eval_run import run_eval
from kairo_team.evals.recorded_runs import PastRun, RejudgedRuns, Week, judge_runs

__all__ = [
    "Case",
    "Comparison",
    "Dataset",
    "EvalResult",
    "PastRun",
    "RejudgedRuns",
    "Trial",
    "Week",
    "compare",
    "judge_runs",
    "run_eval",
]
