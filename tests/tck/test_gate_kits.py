"""Every gate that comes with the library keeps the contract, and so does one that a user writes."""

from __future__ import annotations

import io
import queue
import threading
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.contracts import HumanGate
from kairo_team.tck import HumanGateTCK, Person
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")

LINES = {"approve": "a", "revise": "r", "reject": "j", "defer": "d"}


class Desk(io.StringIO):
    """A person's terminal: whenever it is their turn to type they read what was shown, and answer."""

    def __init__(self, person: Person) -> None:
        super().__init__()
        self._person = person
        self.typed: queue.SimpleQueue[str] = queue.SimpleQueue()

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.endswith("> "):
            decision = self._person(self.getvalue())
            if decision is not None:
                self.typed.put(f"{LINES[decision.action]} {decision.feedback}\n")
        return written


class Keyboard(io.StringIO):
    """What they type on; the program waits for it in a thread."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk

    def readline(self, *_: Any) -> str:  # type: ignore[override]  # as StringIO has it, for all its stubs say
        try:
            return self._desk.typed.get(timeout=60)
        except queue.Empty:
            return ""


class TestConsoleGate(HumanGateTCK):
    virtual_time = False  # a thread reads the keyboard
    silence = 60.0

    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        desk = Desk(person)
        return kt.ConsoleGate(source=Keyboard(desk), sink=desk, timeout=0.3)


@variant("asyncio")
class TestConsoleGateWithoutAnEnd(TestConsoleGate):
    """It waits on: silence is no answer then either."""

    silence = 1.0

    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        desk = Desk(person)
        return kt.ConsoleGate(source=Keyboard(desk), sink=desk)


class TestCallbackGate(HumanGateTCK):
    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        async def decide(question: kt.HumanRequest) -> kt.HumanDecision | None:
            decision = person(question.text)
            if decision is None:
                await anyio.sleep_forever()
            await anyio.sleep(1)
            return decision

        return kt.CallbackGate(decide, timeout=60)


class TestCallbackGateInAThread(HumanGateTCK):
    virtual_time = False
    silence = 60.0

    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        def decide(question: kt.HumanRequest) -> kt.HumanDecision | None:
            decision = person(question.text)
            if decision is None:
                threading.Event().wait(1.0)
            return decision

        return kt.CallbackGate(decide, timeout=0.3)


class TestCallbackGateOfYesAndNo(HumanGateTCK):
    actions = ("approve", "reject")

    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        async def decide(question: kt.HumanRequest) -> bool | None:
            decision = person(question.text)
            if decision is None:
                await anyio.sleep(60)
                return None
            return decision.action == "approve"

        return kt.CallbackGate(decide)


class TestDeferGate(HumanGateTCK):
    asks = False

    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        return kt.DeferGate()


class ByMail:
    """A gate as a user writes it: letters go out, and it waits for the reply to its own."""

    def __init__(self, person: Person) -> None:
        self._person = person

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        with anyio.move_on_after(100):
            decision = self._person(f"Dear colleague, {question.text}\n{question.subject}")
            await anyio.sleep(10 if decision is not None else 1000)
            return decision
        return None


class TestAGateOfAUser(HumanGateTCK):
    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        return ByMail(person)


class Looks:
    """A gate that looks whether there is an answer already, and waits for none."""

    def __init__(self, person: Person) -> None:
        self._person = person

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        await anyio.sleep(0.1)
        return self._person(question.text)


class TestAGateThatWaitsForNobody(HumanGateTCK):
    @classmethod
    def make_gate(cls, person: Person) -> HumanGate:
        return Looks(person)
