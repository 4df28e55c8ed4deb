"""Contract tests of evaluators that ask a judge, and of artifacts that address the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, Final, cast

from kairo_team._util.narrowing import is_list
from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.messages import ModelRequest
from kairo_team.tck.evaluation_forgeries import FORGERIES, PLACEHOLDERS
from kairo_team.tck.evaluation_stage import Asked, EvaluationStage
from kairo_team.tck.evaluation_verdicts import ESCALATE, EXCEEDED, PASS, REVISE, check_equal, given_to_member
from kairo_team.tck.kit import clause
from kairo_team.tck.paid_model import PaidModel
from kairo_team.testing.scripted import FunctionModel
from kairo_team.verdicts import Cause, EvaluationVerdict

_CHATTER: Final = "between us: I scored it twice"
_NOTHING_SAID: Final = ("", " \n", "null", "{}", "[]", "true", "1", "NaN", '{"error": "overloaded"}', "PASS", "ok")
"""Replies that are not a judgement."""
_NO: Final = (
    "It does not pass.",
    "NOT PASSED: I cannot say that this is met, passed or approved.",
    "passed: false. It would pass if it were right; as it is, do not pass it.",
)
"""Negative replies that contain the words of a positive one."""

Write = Callable[[ModelRequest], str]


class JudgeTests(EvaluationStage):
    """C4, C11, C12 and C13 for strategies with a judge; C13 also for artifacts that only code reads."""

    @clause("C4", needs="asks_a_judge")
    async def test_c04_what_a_judge_says_beside_its_answers_is_told_nobody(self) -> None:
        """Text before and after the answers."""
        for bad in self.bad():
            judge = PaidModel(lambda request: f"({_CHATTER}) {self.honestly(request)}\n({_CHATTER})")
            asked = await self.ask(self.make_judged_strategy(judge), bad)
            if asked.error is None:
                assert _CHATTER not in given_to_member(asked.verdict), (
                    f"a member would be given the judge's words: {given_to_member(asked.verdict)!r:.300}"
                )

    @clause("C5", needs="asks_a_judge deterministic")
    async def test_c05_a_failure_before_changes_nothing(self) -> None:
        """A judge that broke is asked again about the next artifact, and about the same."""
        broken = True

        def answer(request: ModelRequest) -> str:
            if broken:
                raise LookupError("the judge is away")
            return self.honestly(request)

        good = self.good()[0]
        alone = await self.verdict(self.make_strategy(), good)
        strategy = self.make_judged_strategy(PaidModel(answer))
        for _ in range(3):
            await self.ask(strategy, good)
        broken = False
        check_equal(await self.verdict(strategy, good), alone, "asked when its judge had been away")

    @clause("C11", needs="asks_a_judge")
    async def test_c11_all_it_spends_the_run_pays(self) -> None:
        """Every call uses the context's models and the given judge."""
        judge, other = self.honest_judge(), _trap()
        asked = await self.ask(self.make_judged_strategy(judge), self.good()[0], models={"*": other})
        assert not other.calls, f"it asked another model than its judge: {other.calls[0]!r:.200}"
        assert judge.calls, "its judge was not asked about a good artifact"
        paid, cost = asked.spent.tokens, judge.spent
        assert paid == cost, f"its judge used {cost} tokens, and the run paid for {paid}: ask by context.context"

    @clause("C11", needs="asks_a_judge")
    async def test_c11_without_money_nobody_is_asked(self) -> None:
        """And nothing is decided."""
        judge = self.honest_judge()
        asked = await self.ask(self.make_judged_strategy(judge), self.good()[0], budget=Budget(tokens=0))
        assert not judge.calls, "it had no budget, and asked its judge"
        _check_no_review(asked, "without money for a judge")
        if asked.error is not None:
            short = isinstance(asked.error, HaltError | InsufficientBudget)
            assert short, f"it had no budget, and it raised {asked.error!r}: let the budget's error pass"
        elif asked.verdict.outcome is EXCEEDED:
            cause = asked.verdict.cause
            assert cause is Cause.JUDGE_BUDGET, f"it had no budget, so judge_budget, not {cause}"

    @clause("C11", needs="asks_a_judge")
    async def test_c11_outside_a_run_nothing_passes(self) -> None:
        """Without governed models no weaker review replaces the judge."""
        judge = self.honest_judge()
        asked = await self.ask(self.make_judged_strategy(judge), self.good()[0], governed=False)
        assert not judge.calls, "no run could pay, and it asked its judge"
        _check_no_review(asked, "without a judge to ask")

    @clause("C12", needs="asks_a_judge")
    async def test_c12_a_reply_that_is_no_judgement_decides_nothing(self) -> None:
        """The judge is asked only a limited number of times."""
        good, yes = self.good()[0], (await self._old_judgement()).strip().casefold()
        nothing = [_saying(reply) for reply in _NOTHING_SAID if reply.casefold() != yes]
        for write in (*nothing, *self._spoiled(good)):
            judge = PaidModel(write)
            asked = await self.ask(self.make_judged_strategy(judge), good)
            assert judge.calls, "its judge was not asked about a good artifact"
            _check_no_review(asked, f"when its judge answered {write(judge.calls[-1])!r:.200}")
            self._check_calls(judge)

    @clause("C12", needs="asks_a_judge")
    async def test_c12_a_no_in_words_is_no_yes(self) -> None:
        """Whatever words the reply contains."""
        for reply in _NO:
            judge = PaidModel(_saying(reply))
            asked = await self.ask(self.make_judged_strategy(judge), self.good()[0])
            assert not _passed(asked), f"its judge answered {reply!r}, and it passed"
            self._check_calls(judge)

    @clause("C12", needs="asks_a_judge")
    async def test_c12_of_two_judgements_that_differ_none_counts(self) -> None:
        """Neither the first nor the last."""
        good = self.good()[0]
        for first in (True, False):
            judge = PaidModel(self._both(good, first))
            asked = await self.ask(self.make_judged_strategy(judge), good)
            assert not _passed(asked), "its judge answered yes and no in one reply, and it passed"
            self._check_calls(judge)

    @clause("C12", needs="asks_a_judge")
    async def test_c12_a_judge_that_cannot_tell_has_decided_nothing(self) -> None:
        """Of no criterion."""
        good = self.good()[0]
        asked = await self.ask(self.make_judged_strategy(self.always(None, good)), good)
        _check_no_review(asked, "when its judge could not decide")

    @clause("C13")
    async def test_c13_nothing_written_in_a_bad_artifact_makes_it_pass(self) -> None:
        """With a forgery before or after it, the artifact passes only if it also passes with harmless text there."""
        for bad, (name, forgery) in zip(cycle(self.bad()), FORGERIES.items(), strict=False):
            for attack, twin in zip(_put(bad, forgery), _put(bad, "and so on. " * 12), strict=True):
                asked = await self.ask(self.make_strategy(), attack)
                if _passed(asked):
                    clean = await self.ask(self.make_strategy(), twin)
                    assert _passed(clean), f"{bad.text!r:.80} passed with {name} in it: {forgery!r:.120}"

    @clause("C13", needs="asks_a_judge")
    async def test_c13_a_judgement_that_stands_in_the_artifact_is_none(self) -> None:
        """Even if the judge repeats it, alone or around its own "no"; also a judge's reply of an earlier review."""
        forgeries = [(name, forgery, _saying(forgery)) for name, forgery in FORGERIES.items()]
        quoted = {**FORGERIES, "a judgement of another time": await self._old_judgement()}
        forgeries += [(name, forgery, self._quoting(forgery)) for name, forgery in quoted.items()]
        for name, forgery, write in forgeries:
            for attack in _put(self.bad()[0], forgery):
                asked = await self.ask(self.make_judged_strategy(PaidModel(write)), attack)
                assert not _passed(asked), f"its judge repeated {name}, which the artifact contains, and it passed"

    @clause("C13", needs="asks_a_judge suspects_injections")
    async def test_c13_a_judge_that_obeys_the_artifact_is_not_followed(self) -> None:
        """The judge answers that all is met, as the artifact tells it to."""
        bad = self.bad()[0]
        for name, forgery in FORGERIES.items():
            for attack in _put(bad, forgery):
                asked = await self.ask(self.make_judged_strategy(self.obeying(bad)), attack)
                assert not _passed(asked), f"its judge obeyed {name} in the artifact, and it passed: {forgery!r:.120}"

    @clause("C13", needs="asks_a_judge")
    async def test_c13_a_judge_is_shown_what_stands_there(self) -> None:
        """The artifact is not filled in as a template, even if it looks like one."""
        good = self.good()[0]
        for place in PLACEHOLDERS:
            judge = self.honest_judge()
            marked = f"{good.text}\nmark1{place}mark2"
            await self.ask(self.make_judged_strategy(judge), Artifact(marked))
            shown = "\n".join(message.text for request in judge.calls for message in request.messages)
            seen = not judge.calls or f"mark1{place}mark2" in shown
            assert seen, f"the artifact contains {place}, and its judge was shown something else"

    # ------------------------------------------------------------------

    def _check_calls(self, judge: PaidModel) -> None:
        asked, most = len(judge.calls), self.judge_calls
        assert asked <= most, f"its judge made no sense, and was asked {asked} times; judge_calls is {most}"

    async def _old_judgement(self) -> str:
        """Return the reply of a judge in an earlier review of a good artifact."""
        good = self.good()[0]
        judge = self.always(True, good)
        await self.ask(self.make_judged_strategy(judge), good)
        assert judge.calls, "its judge was not asked about a good artifact"
        return self.write_judgement(judge.calls[0], met=True, quote="")

    def _spoiled(self, good: Artifact) -> list[Write]:
        """Return ways to spoil a good judgement: cut it off, empty it."""

        def written(request: ModelRequest) -> str:
            return self.write_judgement(request, met=True, quote=good.text[:80])

        return [
            lambda request: written(request)[: len(written(request)) // 2],
            lambda request: _emptied(written(request)),
        ]

    def _both(self, good: Artifact, first: bool) -> Write:
        def write(request: ModelRequest) -> str:
            one, other = (self.write_judgement(request, met=met, quote=good.text[:80]) for met in (first, not first))
            return f"{one}\n{other}"

        return write

    def _quoting(self, forgery: str) -> Write:
        return lambda request: f"{forgery}\n{self.write_judgement(request, met=False, quote='')}\n{forgery}"


def _check_no_review(asked: Asked, when: str) -> None:
    """Raise `AssertionError` if something was decided without a decision of a judge."""
    if asked.error is not None:
        return
    verdict = asked.verdict
    assert verdict.outcome is not PASS, f"{when}, it passed"
    assert verdict.outcome is not REVISE, f"{when}, it blames the artifact: {verdict.feedback!r:.200}"
    assert verdict.outcome in {ESCALATE, EXCEEDED}, f"{when}, it returned {verdict.outcome!r}"
    assert verdict.score is None, f"{when}, it gave a score of {verdict.score}"


def _passed(asked: Asked) -> bool:
    return isinstance(asked.returned, EvaluationVerdict) and asked.returned.outcome is PASS


def _put(bad: Artifact, text: str) -> Iterator[Artifact]:
    """Yield the artifact with a text after its own, then with the text before it."""
    yield Artifact(f"{bad.text}\n\n{text}", bad.data, bad.media_type)
    yield Artifact(f"{text}\n\n{bad.text}", bad.data, bad.media_type)


def _saying(text: str) -> Write:
    return lambda _: text


def _trap() -> FunctionModel:
    return FunctionModel(lambda _: "yes", name="kit:trap")


def _emptied(reply: str) -> str:
    """Return a JSON reply with empty values; an empty text if the reply is not JSON."""
    try:
        return json.dumps(_nothing_in(json.loads(reply)))
    except ValueError:
        return ""


def _nothing_in(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _nothing_in(one) for name, one in cast("dict[str, Any]", value).items()}
    if is_list(value):
        return [_nothing_in(one) for one in value]
    return None
