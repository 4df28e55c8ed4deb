"""Wrong human gates, each rejected by the kit at one clause."""

from __future__ import annotations

from typing import ClassVar

import anyio

import kairo_team as kt
from kairo_team.contracts import HumanGate
from kairo_team.tck import HumanGateTCK, Person
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()
Answer = kt.HumanDecision | None


class Asks:
    """A right gate: it shows the question, and gives up after a minute."""

    def __init__(self, person: Person) -> None:
        self.person = person

    async def decide(self, question: kt.HumanRequest) -> Answer:
        with anyio.move_on_after(60):
            return await self.wait(self.person(question.text))
        return self.give_up()

    async def wait(self, decision: Answer) -> kt.HumanDecision:
        await anyio.sleep(10 if decision is not None else 1000)
        assert decision is not None
        return self.read(decision)

    def read(self, decision: kt.HumanDecision) -> kt.HumanDecision:
        return decision

    def give_up(self) -> Answer:
        return None


class RightGate(HumanGateTCK):
    """The kit of the right gate; the mutants change one thing of it."""

    Gate: ClassVar[type[Asks]] = Asks

    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        return cls.Gate(person)


@mutant("T08", clause="C2")
class ApprovesSilence(RightGate):
    """Nobody answered in time: it approves."""

    class Gate(Asks):
        def give_up(self) -> Answer:
            return kt.HumanDecision.approve()


@mutant("T08", clause="C5")
class ApprovesSilenceInARun(ApprovesSilence):
    """What nobody approved is accepted."""


@mutant("T08", clause="C2")
class ApprovesWhereNobodyCanBeReached(RightGate):
    """The message could not be sent: it approves, so that the work can go on."""

    class Gate(Asks):
        async def decide(self, question: kt.HumanRequest) -> Answer:
            try:
                return await super().decide(question)
            except ConnectionError:
                return kt.HumanDecision.approve("nobody could be asked")


@mutant(clause="C2")
class RejectsForThePerson(RightGate):
    """Nobody answered in time: it says that they rejected."""

    class Gate(Asks):
        def give_up(self) -> Answer:
            return kt.HumanDecision.reject("timed out")


@mutant("E05", clause="C1")
class FindsApprovalInWords(RightGate):
    """An answer with the word approve in it approves."""

    class Gate(Asks):
        def read(self, decision: kt.HumanDecision) -> kt.HumanDecision:
            approves = "approve" in f"{decision.action} {decision.feedback}"
            return kt.HumanDecision.approve() if approves else decision


@mutant(clause="C1")
class LosesTheWords(RightGate):
    """What is to change is not handed on."""

    class Gate(Asks):
        def read(self, decision: kt.HumanDecision) -> kt.HumanDecision:
            return kt.HumanDecision.revise("try again") if decision.action == "revise" else decision


@mutant(clause="C1")
class EditsTheQuestion(RightGate):
    """It shortens the question in place before it shows it."""

    class Gate(Asks):
        async def decide(self, question: kt.HumanRequest) -> Answer:
            object.__setattr__(question, "subject", question.subject[:3])
            return await super().decide(question)


@mutant(clause="C3")
class KeepsOneAnswer(RightGate):
    """The answer is kept on the gate: the last one counts for every question that is open."""

    class Gate(Asks):
        kept: Answer = None

        async def decide(self, question: kt.HumanRequest) -> Answer:
            self.kept = self.person(question.text)
            await anyio.sleep(10)
            return self.kept


@mutant(clause="C3", by="same_words")
class AsksOnceForTheSameWords(RightGate):
    """A question in the words of one that is open waits for the answer to that one."""

    class Gate(Asks):
        def __init__(self, person: Person) -> None:
            super().__init__(person)
            self.open: dict[str, tuple[anyio.Event, list[Answer]]] = {}

        async def decide(self, question: kt.HumanRequest) -> Answer:
            if question.text in self.open:
                answered, answer = self.open[question.text]
                await answered.wait()
                return answer[0] if answer else None
            answered, answer = self.open[question.text] = anyio.Event(), []
            try:
                answer.append(await super().decide(question))
            finally:
                del self.open[question.text]
                answered.set()
            return answer[0]


@mutant(clause="C2")
class TakesTheAnswerToAnotherQuestion(RightGate):
    """Nobody answered: it takes the last answer that came, to whatever question."""

    class Gate(Asks):
        last: Answer = None

        def read(self, decision: kt.HumanDecision) -> kt.HumanDecision:
            self.last = decision
            return decision

        def give_up(self) -> Answer:
            return self.last


@mutant("T06", clause="C4")
class TakesCancellationForAnAnswer(RightGate):
    """The run ended while it waited: it rejects, and goes on."""

    class Gate(Asks):
        async def decide(self, question: kt.HumanRequest) -> Answer:
            try:
                return await super().decide(question)
            except anyio.get_cancelled_exc_class():
                return kt.HumanDecision.reject("interrupted")


@mutant(clause="C4")
class StaysOccupied(RightGate):
    """One question at a time, and a run that ends does not make room for the next."""

    class Gate(Asks):
        busy = False

        async def decide(self, question: kt.HumanRequest) -> Answer:
            if self.busy:
                return None
            self.busy = True
            decision = await super().decide(question)
            self.busy = False
            return decision


@mutant("T08", clause="C1")
class RemembersTheWords(RightGate):
    """What was approved once is approved whenever it is asked in the same words."""

    class Gate(Asks):
        def __init__(self, person: Person) -> None:
            super().__init__(person)
            self.known: dict[str, kt.HumanDecision] = {}

        async def decide(self, question: kt.HumanRequest) -> Answer:
            if question.text in self.known:
                return self.known[question.text]
            decision = await super().decide(question)
            if decision is not None:
                self.known[question.text] = decision
            return decision


@mutant("T08", clause="C1")
class ApprovesAllToolsAtOnce(RightGate):
    """Who approved one tool call has approved every other."""

    class Gate(Asks):
        approved = False

        async def decide(self, question: kt.HumanRequest) -> Answer:
            if self.approved and question.kind == "tool":
                return kt.HumanDecision.approve()
            decision = await super().decide(question)
            self.approved = self.approved or (decision is not None and decision.action == "approve")
            return decision
