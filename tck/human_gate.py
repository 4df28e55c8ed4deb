"""The kit of `HumanGate`: decisions of a gate after a person's answer, and without an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

import anyio

from kairo_team.artifacts import Finding
from kairo_team.contracts import HumanGate, MemberContext
from kairo_team.human import HumanAction, HumanDecision, HumanRequest
from kairo_team.permissions import PermissionDecision
from kairo_team.tasks import Assignment
from kairo_team.tck.calls import at_once, check_cancels, result_or_error
from kairo_team.tck.kit import ContractTCK, clause, make_it
from kairo_team.tck.one_attempt import Played, play
from kairo_team.team import RiskProfile
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.tool import Tool
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict

Person = Callable[[str], HumanDecision | None]
"""Takes the text that a person sees, which contains the question's text, and returns the decision. None: no answer,
ever. Raises if the person cannot be reached."""

DECISIONS: Final[Mapping[HumanAction, HumanDecision]] = {
    "approve": HumanDecision.approve("well done"),
    "revise": HumanDecision.revise("not yet good, shorter, please"),
    "reject": HumanDecision.reject("I do not approve of it"),
    "defer": HumanDecision.defer(),
}
_YES_AND_NO: Final[Sequence[HumanAction]] = ("approve", "reject")
_WAITS: Final = "it waits on"


class HumanGateTCK(ContractTCK):
    """The contract kit of human gates: override `make_gate`."""

    contract: ClassVar[type] = HumanGate

    asks: ClassVar[bool] = True
    """Whether the gate asks the person at once. False: it defers every question."""
    actions: ClassVar[Sequence[HumanAction]] = ("approve", "revise", "reject", "defer")
    """The decisions that a person can make at this gate."""
    silence: ClassVar[float] = 600.0
    """Seconds without an answer after which the kit assumes that the gate waits for ever. In real time keep it short,
    but above the gate's own patience."""

    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        """Make a gate that asks this person. A fresh one each time."""
        raise make_it(cls, "make_gate(cls, person)")

    # ------------------------------------------------------------------ one question

    @clause("C1", needs="asks")
    async def test_c01_what_the_person_decides_is_what_it_returns(self) -> None:
        """For each action, with its feedback."""
        for action in self.actions:
            wanted = DECISIONS[action]
            decision = await self.make_gate(_says(wanted)).decide(_question())
            assert isinstance(decision, HumanDecision), f"the person decided to {action}, and it returned {decision!r}"
            assert decision.action == action, f"the person decided to {action}, and it returned {decision}"
            words = {wanted.feedback} if action == "revise" else {wanted.feedback, ""}
            assert decision.feedback in words, (
                f"the person answered {wanted.feedback!r}, and it returned {decision.feedback!r}"
            )

    @clause("C1", needs="asks")
    async def test_c01_the_person_is_shown_the_question(self) -> None:
        """The person sees the question's text."""
        shown: list[str] = []

        def person(text: str) -> HumanDecision:
            shown.append(text)
            return DECISIONS[self.actions[0]]

        await self.make_gate(person).decide(_question())
        assert any(_question().text in text for text in shown), f"the person was shown {shown}"

    @clause("C1", needs="asks")
    async def test_c01_an_answer_is_to_one_question(self) -> None:
        """A question in the same words about another subject gets a new answer."""
        answers = [DECISIONS[action] for action in self.actions]
        left = list(answers)
        gate = self.make_gate(lambda shown: left.pop(0))
        for number, wanted in enumerate(answers):
            found = await gate.decide(replace(_number(0), id=f"r:t{number}", subject=f"letter {number}"))
            action = found and found.action
            assert action == wanted.action, (
                f"asked in the same words again, they {wanted.action}, and it returned {found}"
            )

    @clause("C3", needs="asks")
    async def test_c03_questions_in_the_same_words_get_an_answer_each(self) -> None:
        """Two at once about different subjects: one answer is not for both."""
        actions = self.actions[:2]
        answers = iter([DECISIONS[action] for action in actions])
        gate = self.make_gate(lambda shown: next(answers, None))
        questions = [
            replace(_number(0), id=f"r:t{number}", subject=f"letter {number}") for number in range(len(actions))
        ]
        found: list[Any] = await at_once([partial(result_or_error, partial(gate.decide, one)) for one in questions])
        given = sorted(str(getattr(one, "action", one)) for one in found)
        assert given == sorted(actions), f"two in the same words were answered by {sorted(actions)}, and got {given}"

    @clause("C1")
    async def test_c01_the_question_stays_as_it_was(self) -> None:
        """No answer changes the question."""
        for decision in (*DECISIONS.values(), None):
            question = _question()
            await self._asked(_says(decision), question)
            assert question == _question(), f"it changed the question to {question}"

    # ------------------------------------------------------------------ silence

    @clause("C2")
    async def test_c02_silence_decides_nothing(self) -> None:
        """Without an answer it waits, returns None, puts the question off or raises."""
        _check_nothing("nobody answered", await self._asked(_says(None), _question()))

    @clause("C2")
    async def test_c02_a_person_who_cannot_be_reached_decides_nothing(self) -> None:
        """A failure of the gate is not an approval."""
        _check_nothing("nobody can be reached", await self._asked(_unreachable, _question()))

    @clause("C2", needs="asks")
    async def test_c02_another_questions_answer_is_no_answer(self) -> None:
        """If only one of two questions at once is answered, the other stays open."""
        person = _by_number({1: None, 2: DECISIONS[self.actions[0]]})
        gate = self.make_gate(person)
        first, _ = await at_once([lambda: self._patiently(gate, _number(1)), lambda: self._patiently(gate, _number(2))])
        _check_nothing("the first of two questions has no answer", first)

    # ------------------------------------------------------------------ several, and cancelled

    @clause("C3")
    async def test_c03_questions_at_once_do_not_mix(self) -> None:
        """Eight questions, each of which gets its own answer."""
        answers = {number: DECISIONS[self.actions[number % len(self.actions)]] for number in range(8)}
        gate = self.make_gate(_by_number(answers))
        found = await at_once([_asking(gate, _number(number)) for number in answers])
        if not self.asks:
            assert all(one is not None and one.action == "defer" for one in found), f"it puts off, and returned {found}"
            return
        for number, decision in enumerate(found):
            wanted = answers[number].action
            assert decision is not None, f"to question {number} the person answers {wanted}, and it returned None"
            assert decision.action == wanted, (
                f"to question {number} the person answers {wanted}, and it returned {decision}"
            )

    @clause("C4", needs="asks")
    async def test_c04_cancellation_passes_through(self) -> None:
        """A run that ends waits for no answer, and the gate can ask the next question."""
        shown: list[str] = []
        answer = _by_number({1: None, 2: DECISIONS[self.actions[0]]})

        def person(text: str) -> HumanDecision | None:
            shown.append(text)
            return answer(text)

        gate = self.make_gate(person)
        waits = "it does not wait for a person who does not answer"
        await check_cancels("decide", _asking(gate, _number(1)), lambda: bool(shown), or_skip=waits)
        decision = await gate.decide(_number(2))
        assert decision is not None, "after a question was cancelled, the next one was not asked"
        assert decision.action == self.actions[0]

    # ------------------------------------------------------------------ in a run

    @clause("C5", needs="asks")
    async def test_c05_what_the_person_decides_is_done(self) -> None:
        """An approved artifact is accepted and a rejected one is not, at any risk."""
        for risk in RiskProfile:
            for action in set(_YES_AND_NO) & set(self.actions):
                played = await self._review(_says(HumanDecision(action)), risk)
                assert played is not None, f"the person decided to {action}, and the run never ended"
                assert played.accepted is (action == "approve"), f"{action} at {risk} risk: {played.outcome}"

    @clause("C5")
    async def test_c05_where_nobody_answers_nothing_is_accepted(self) -> None:
        """Neither without an answer nor when the person cannot be reached."""
        for person in (_says(None), _unreachable):
            for risk in (RiskProfile.MEDIUM, RiskProfile.HIGH):
                played = await self._review(person, risk)
                assert played is None or not played.accepted, f"accepted without an answer: {played}"

    @clause("C5")
    async def test_c05_where_nobody_answers_no_tool_is_used(self) -> None:
        """A tool that needs approval is not called."""
        for person in (_says(None), _unreachable):
            assert not await self._use_tool(person), "the tool was used without an approval"

    @clause("C5", needs="asks")
    async def test_c05_a_tool_is_used_once_it_is_approved(self) -> None:
        """A rejected tool is not called."""
        for action in set(_YES_AND_NO) & set(self.actions):
            used = await self._use_tool(_says(HumanDecision(action)))
            assert used is (action == "approve"), f"the person decided to {action}, and the tool was used: {used}"

    # ------------------------------------------------------------------ shared

    async def _asked(self, person: Person, question: HumanRequest) -> Any:
        """Ask a fresh gate, and wait no longer than `silence`."""
        return await self._patiently(self.make_gate(person), question)

    async def _patiently(self, gate: HumanGate, question: HumanRequest) -> Any:
        with anyio.move_on_after(self.silence):
            return await result_or_error(_asking(gate, question))
        return _WAITS

    async def _review(self, person: Person, risk: RiskProfile) -> Played | None:
        """Run a task whose review is left to the person; return None if the run keeps waiting."""
        with anyio.move_on_after(self.silence):
            return await play(_write, evaluator=_LeavesOpen(), gate=self.make_gate(person), risk=risk)
        return None

    async def _use_tool(self, person: Person) -> bool:
        """Let a member use a tool that needs approval, and return whether it ran."""
        ran: list[Any] = []

        async def call(arguments: Mapping[str, Any]) -> str:
            ran.append(arguments)
            return "sent"

        async def work(assignment: Assignment, context: MemberContext) -> str:
            return (await context.tool(Tool("send", call)).call({})).text

        with anyio.move_on_after(self.silence):
            await play(work, gate=self.make_gate(person), permissions=ToolPermissions(guard=_AsksFirst()))
        return bool(ran)


class _LeavesOpen:
    """An evaluator that leaves everything to a person."""

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        return EvaluationVerdict.escalate(Cause.HUMAN_REQUIRED, "a person must see it")


class _AsksFirst:
    """A permission guard that leaves everything to a person."""

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: str) -> PermissionDecision:
        return PermissionDecision.ask("it cannot be undone")


async def _write(assignment: Assignment, context: MemberContext) -> str:
    return "a letter"


def _says(decision: HumanDecision | None) -> Person:
    return lambda shown: decision


def _unreachable(shown: str) -> HumanDecision | None:
    raise ConnectionError("the person cannot be reached")


def _question() -> HumanRequest:
    return HumanRequest(
        "review",
        "Is the letter good enough?",
        "Dear Ann",
        task_id="letter",
        member="writer",
        cause=Cause.HUMAN_REQUIRED,
        findings=[Finding("length", observed="12 words", expected="6 words")],
        id="r:t:1",
        run_id="r",
    )


def _number(number: int) -> HumanRequest:
    return HumanRequest("tool", f"May it, question [{number}]?", task_id=f"t{number}", id=f"r:t{number}", run_id="r")


def _by_number(answers: Mapping[int, HumanDecision | None]) -> Person:
    """Make a person who answers the last numbered question they are shown."""

    def person(shown: str) -> HumanDecision | None:
        return answers[max(answers, key=lambda number: shown.rfind(f"[{number}]"))]

    return person


def _asking(gate: HumanGate, question: HumanRequest) -> Callable[[], Awaitable[HumanDecision | None]]:
    return lambda: gate.decide(question)


def _check_nothing(why: str, found: Any) -> None:
    """Fail if there is a decision that no person made."""
    decided = isinstance(found, HumanDecision) and found.action != "defer"
    assert not decided, f"{why}, and it decided to {found.action}"
    fine = found is None or found is _WAITS or isinstance(found, HumanDecision | Exception)
    assert fine, f"{why}, and it returned {found!r}"
