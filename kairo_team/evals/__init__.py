"""Evals: a whole team over a dataset of cases, scored by a rubric, and compared with an earlier eval."""

from kairo_team.evals.dataset import Case, Dataset
from kairo_team.evals.eval_result import Comparison, EvalResult, Trial, compare
from kairo_team.evals.eval_run import run_eval

__all__ = ["Case", "Comparison", "Dataset", "EvalResult", "Trial", "compare", "run_eval"]
