"""Pairs, tries, evals and criteria about conversations that are wrong in one place: a test of each finds it.

That `BestOf` spends more than its attempt has is no mutant: its tries and comparisons are a run inside the attempt, and
the attempt's governor refuses what it cannot pay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents.team_agent import TeamAgent, output_with
from kairo_team.coordinators import BestOf
from kairo_team.evals import EvalResult, Trial, eval_run
from kairo_team.evaluators import PairwiseStrategy, Preference, pairwise, rubric, transcripts
from kairo_team.evaluators.calibration.confidence_bounds import Proportion
from kairo_team.evaluators.checks import calls_tool, tool_calls
from kairo_team.evaluators.criterion import Answer
from kairo_team.evaluators.review import NO_TRANSCRIPT
from kairo_team.results import Attempt
from tests.evals import test_eval_result, test_eval_run, test_trajectories
from tests.evaluators import test_pairwise, test_transcripts

PREFERENCE = pairwise._preference  # pyright: ignore[reportPrivateUsage]  # the part that the mutants get wrong
HAND_OVERS = transcripts.hand_overs
TRIAL = eval_run._trial  # pyright: ignore[reportPrivateUsage]  # the same


def one_order_only(one: Any, other: Any) -> Preference:
    """The second answer is taken to be the first one, the other way round."""
    found = PREFERENCE(one, other)
    return replace(found, better=found.orders[0] or "tie", orders=(found.orders[0],) * 2)


def ignores_flips(one: Any, other: Any) -> Preference:
    """An answer that depends on the order counts as it was given first."""
    found = PREFERENCE(one, other)
    return replace(found, better=found.orders[0] or "tie")


def passes_flips(strategy: PairwiseStrategy, found: Preference) -> Answer:
    """A judge that contradicts itself has found nothing worse."""
    return Answer("worse" if found.better == "second" else "as good", found.reason)


def loses_the_winner(agent: BestOf, result: kt.TeamResult) -> kt.AgentOutput:
    """The first try is returned, whatever was compared."""
    made = next(one.artifact for one in result.outcomes if one.artifact is not None)
    return output_with(result, made)


def takes_all_for_the_winner(agent: BestOf, result: kt.TeamResult) -> kt.AgentOutput:
    """A run in which no try came to anything is an output too."""
    return TeamAgent.output_of(agent, result) if result.artifact else output_with(result, kt.Artifact("nothing"))


UNDECIDED_PASSES: Mapping[Any, Any] = dict.fromkeys(kt.VerdictOutcome, "pass")


def passes_what_was_not_run(case: str, number: int, ended: kt.TaskOutcome | None) -> Trial:
    """A trial that was not run, or made nothing, did nothing wrong."""
    found = TRIAL(case, number, ended)
    return replace(found, outcome="pass") if found.outcome in ("not run", "error") else found


def of_those_that_ran(result: EvalResult) -> Proportion:
    """The pass rate is of the trials that came to a verdict."""
    ran = [one for one in result.trials if one.outcome in ("pass", "fail")]
    return Proportion(sum(one.outcome == "pass" for one in ran), max(len(ran), 1))


def counts_refused_hand_overs(attempts: Sequence[Attempt]) -> list[str | None]:
    """Whatever an attempt asks for is taken for a hand-over."""
    data: list[Any] = [one.artifact and one.artifact.data for one in attempts]
    return [None if one is None else str(one["hand_over"]["to"]) for one in data]


def forgets_the_order(transcript: Iterable[kt.Message]) -> list[tuple[str, str]] | None:
    """The hand-overs are sorted by name."""
    found = HAND_OVERS(transcript)
    return None if found is None else sorted(found)


def in_a_folder(test: Callable[[Path], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Return a test with the folder that it needs."""

    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            await test(Path(folder))

    return play


IN_ORDER = (
    ("billing", "technical", "billing", None),
    tool_calls.hands_over("greeter", "billing", "technical"),
    "",
)


class Mutant(NamedTuple):
    """What is put in which place, and the test that finds it, with its arguments."""

    where: Any
    name: str
    wrong: Any
    test: Callable[..., Awaitable[None] | None]
    given: tuple[Any, ...] = ()


def front(first: str, second: str) -> str:
    return "first"


MUTANTS: dict[str, Mutant] = {
    "one order only": Mutant(
        pairwise,
        "_preference",
        one_order_only,
        test_pairwise.test_only_a_preference_in_both_orders_counts,
        (front, "tie", True),
    ),
    "ignores flips": Mutant(
        pairwise,
        "_preference",
        ignores_flips,
        test_pairwise.test_only_a_preference_in_both_orders_counts,
        (front, "tie", True),
    ),
    "passes flips": Mutant(
        PairwiseStrategy,
        "_answer",
        passes_flips,
        test_pairwise.test_an_artifact_is_compared_with_the_reference,
        (test_pairwise.SHORT, front, "escalate", None),
    ),
    "loses the winner": Mutant(
        BestOf, "output_of", loses_the_winner, test_pairwise.test_the_try_that_wins_in_pairs_is_the_result
    ),
    "takes failed tries": Mutant(
        BestOf, "output_of", takes_all_for_the_winner, test_pairwise.test_tries_that_fail_are_left_out
    ),
    "undecided passes": Mutant(
        eval_run, "_OUTCOMES", UNDECIDED_PASSES, test_eval_run.test_a_team_that_fails_or_is_undecided_did_not_pass
    ),
    "not run passes": Mutant(
        eval_run,
        "_trial",
        passes_what_was_not_run,
        test_eval_run.test_one_budget_is_for_all_trials_and_what_it_does_not_cover_is_not_run,
    ),
    "of those that ran": Mutant(
        EvalResult,
        "passed",
        property(of_those_that_ran),
        test_eval_result.test_every_planned_trial_counts_in_the_pass_rate,
    ),
    "refused hand-overs": Mutant(
        eval_run,
        "handed_to",
        counts_refused_hand_overs,
        in_a_folder(test_trajectories.test_a_hand_over_that_was_refused_is_none),
    ),
    "hand-overs in any order": Mutant(
        tool_calls,
        "hand_overs",
        forgets_the_order,
        in_a_folder(partial(test_trajectories.test_a_check_reads_who_handed_over_to_whom_in_order, *IN_ORDER)),
    ),
    "met without a conversation": Mutant(
        rubric,
        "NO_TRANSCRIPT",
        replace(NO_TRANSCRIPT, level=1),
        test_transcripts.test_without_a_conversation_it_is_unknown,
        (calls_tool("search"),),
    ),
}


def play(mutant: Mutant) -> None:
    async def play() -> None:
        done = mutant.test(*mutant.given)
        if done is not None:
            await done

    anyio.run(play)


SLOW = ("takes failed tries", "undecided passes")
"""Their tests wait for threads, or fail at the end of long retries."""


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=name, marks=pytest.mark.exhaustive if name in SLOW else ()) for name, one in MUTANTS.items()],
)
def test_a_test_finds_it(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    play(mutant)
    monkeypatch.setattr(mutant.where, mutant.name, mutant.wrong)
    with pytest.raises(AssertionError):
        play(mutant)
