"""Contract tests of evaluators: many reviews at once, unchanged input, and an evaluator's declarations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from anyio.lowlevel import checkpoint

from kairo_team.artifacts import Artifact
from kairo_team.contracts import EvaluationStrategy
from kairo_team.tck.calls import at_once
from kairo_team.tck.evaluation_stage import EvaluationStage
from kairo_team.tck.evaluation_verdicts import check_equal
from kairo_team.tck.kit import clause
from kairo_team.verdicts import EvaluationVerdict

_MANY: Final = 20


class SharingTests(EvaluationStage):
    """C9, C10, C14 and C15."""

    @clause("C9")
    async def test_c09_many_at_once_come_to_what_each_comes_to_alone(self) -> None:
        """Reviews of good and bad artifacts on one object."""
        artifacts = [*self.good(), *self.bad()]
        alone = [await self.verdict(self.make_strategy(), one) for one in artifacts]
        many = await self._at_once(self.make_strategy(), [artifacts[n % len(artifacts)] for n in range(_MANY)])
        for number, verdict in enumerate(many):
            self._check_same(verdict, alone[number % len(artifacts)], f"number {number + 1} of {_MANY} at once")

    @clause("C9")
    async def test_c09_a_review_begun_later_does_not_reach_into_one_before(self) -> None:
        """A good artifact and a bad one, each begun at every point of the other."""
        good, bad = self.good()[0], self.bad()[0]
        alone = [await self.verdict(self.make_strategy(), one) for one in (good, bad)]
        for late in range(8):
            for pair, wanted in (((good, bad), alone), ((bad, good), alone[::-1])):
                both = await self._at_once(self.make_strategy(), pair, late)
                for verdict, right in zip(both, wanted, strict=True):
                    self._check_same(verdict, right, "beside another review")

    @clause("C10")
    async def test_c10_it_changes_nothing_of_what_it_is_given(self) -> None:
        """The artifact, task, earlier verdicts, upstream artifacts and settings stay the same."""
        prior = [await self.verdict(self.make_strategy(), self.bad()[0])]
        for artifact in (*self.good(), *self.bad()):
            asked = await self.ask(self.make_strategy(), artifact, prior)
            assert asked.after == asked.before, f"the review changed what it was given: {asked.before}, {asked.after}"

    @clause("C14", needs="has_parts")
    async def test_c14_the_order_of_its_parts_never_matters(self) -> None:
        """Outcome, score and cause are the same in every order."""
        for artifact in (*self.good(), *self.bad(), Artifact("")):
            wanted = _decided(await self.verdict(self.make_strategy(), artifact))
            for other in self.make_reordered():
                found = _decided(await self.verdict(other, artifact))
                assert found == wanted, f"{artifact.text!r:.80} came to {wanted}, in another order to {found}"

    @clause("C15")
    async def test_c15_its_judges_are_those_it_names(self) -> None:
        """If it names any: a run checks that the `models` exist, and pays them from their own share."""
        models: Any = getattr(self.make_strategy(), "models", None)
        if models is None:
            return
        assert type(models) in (list, tuple), f"models are a list or tuple of judges, not {models!r}"
        assert bool(models) == self.asks_a_judge, f"asks_a_judge is {self.asks_a_judge}, and its models are {models!r}"
        if self.asks_a_judge:
            judge = self.honest_judge()
            named: Any = getattr(self.make_judged_strategy(judge), "models", ())
            assert any(one is judge for one in named), f"its judge is not among its models: {named!r}"

    @clause("C15")
    async def test_c15_what_it_lacks_is_said_in_sentences(self) -> None:
        """With a judge and a gate wired, and without."""
        ask: Any = getattr(self.make_strategy(), "preflight", None)
        if ask is None:
            return
        for judge, gate in ((False, False), (False, True), (True, False), (True, True)):
            lacking: Any = ask(judge=judge, gate=gate)
            good = not isinstance(lacking, str) and all(isinstance(one, str) and one.strip() for one in lacking)
            assert good, f"preflight returns a list of sentences, not {lacking!r}"
        lacking = ask(judge=True, gate=True)
        assert not lacking, f"nothing is missing, and it cannot decide: {lacking}"

    @clause("C15")
    async def test_c15_a_vacuous_one_finds_nothing_but_blanks(self) -> None:
        """And declares it: under HIGH risk it is refused."""
        vacuous: Any = getattr(self.make_strategy(), "vacuous", False)
        blank = all(not artifact.text.strip() for artifact in self.bad())
        assert vacuous in (True, False), f"vacuous is True or False, not {vacuous!r}"
        assert not vacuous or blank, "it declares that only a blank artifact can fail, and has others in bad_artifacts"

    # ------------------------------------------------------------------

    async def _at_once(
        self, strategy: EvaluationStrategy, artifacts: Sequence[Artifact], late: int = 0
    ) -> list[EvaluationVerdict]:
        """Review artifacts concurrently, each begun `late` turns of the event loop after the one before."""

        async def review(artifact: Artifact, turns: int) -> EvaluationVerdict:
            for _ in range(turns):
                await checkpoint()
            return await self.verdict(strategy, artifact)

        return await at_once([partial(review, one, late * place) for place, one in enumerate(artifacts)])

    def _check_same(self, verdict: EvaluationVerdict, wanted: EvaluationVerdict, when: str) -> None:
        if self.deterministic:
            check_equal(verdict, wanted, when)
        else:
            assert verdict.outcome is wanted.outcome, f"{when}, {wanted.outcome.name} became {verdict.outcome.name}"


def _decided(verdict: EvaluationVerdict) -> tuple[str, float | None, str | None]:
    score = None if verdict.score is None else round(verdict.score, 9)  # sums of floats differ with their order
    return verdict.outcome.name, score, verdict.cause
