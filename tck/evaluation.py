"""The kit of `EvaluationStrategy`: verdicts, failures, judges, and artifacts that attack them."""

from __future__ import annotations

from kairo_team.tck.evaluation_failures import FailureTests
from kairo_team.tck.evaluation_guards import GuardTests
from kairo_team.tck.evaluation_judges import JudgeTests
from kairo_team.tck.evaluation_sharing import SharingTests
from kairo_team.tck.evaluation_verdicts import VerdictTests


class EvaluationStrategyTCK(VerdictTests, FailureTests, SharingTests, JudgeTests, GuardTests):
    """The contract kit of evaluators: override `make_strategy`, and give good and bad artifacts.

    A strategy of code alone sets `deterministic`, and `cannot_crash` if nothing in it can fail; else
    `make_crashing_strategy` is required. A strategy that asks a model sets `asks_a_judge` and overrides
    `make_judged_strategy`, from which the kit makes all others. If it makes its calls like `AgentEvaluationStrategy`,
    it also sets `guards_its_judge`.
    """
