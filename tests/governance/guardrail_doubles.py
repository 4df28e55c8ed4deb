"""A payload of each phase, as a guardrail is shown it, and policies that do what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.governance import (
    GuardrailContext,
    GuardrailDecision,
    GuardrailPayload,
    ModelInput,
    ModelOutput,
    ToolInput,
    ToolOutput,
)

CALL = kt.ToolCall("1", "send", {"to": "bob", "pages": [3, "five"], "urgent": True, "cc": None})
ASKED = ModelInput(
    [kt.Message.system("be kind"), kt.Message.user("hello"), kt.Message.assistant("", [CALL])], {"seed": 1}
)
REPLIED = ModelOutput(kt.ModelResponse("hi", [CALL], usage=kt.Usage(prompt_tokens=3), model="m"))
CALLING = ToolInput("send", {"to": "bob", "pages": [3, "five"]})
RETURNED = ToolOutput("send", {"sent": ["bob"], "pages": 8})
PAYLOADS: list[Any] = [ASKED, REPLIED, CALLING, RETURNED]
each_payload = pytest.mark.parametrize("payload", PAYLOADS, ids=lambda one: type(one).__name__)
FINE = GuardrailDecision.allow()


def about(payload: Any, **metadata: Any) -> GuardrailContext:
    return GuardrailContext(payload.phase, "writer", "openai:gpt-5", payload, metadata)


Decide = Callable[[GuardrailContext], Any]


class Policy:
    """A policy that does what it is given, and remembers what it was shown."""

    def __init__(self, decide: Decide | GuardrailDecision, *, name: str | None = None, **attributes: Any) -> None:
        self.decide = decide
        self.shown: list[GuardrailPayload] = []
        named: dict[str, Any] = {"name": name} if name else {}
        for attribute, value in {**named, **attributes}.items():
            setattr(self, attribute, value)

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        self.shown.append(context.payload)
        decision: GuardrailDecision = (
            self.decide if isinstance(self.decide, GuardrailDecision) else self.decide(context)
        )
        return decision


class Counts:
    """A policy with state: it counts what it sees in one run."""

    def __init__(self) -> None:
        self.seen = 0

    def for_run(self) -> Counts:
        return Counts()

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        self.seen += 1
        return GuardrailDecision.warn(f"seen {self.seen}")


def says(text: str) -> Decide:
    """Modify whatever is shown to say this besides."""
    return lambda context: GuardrailDecision.modify(f"adds {text}", added(context.payload, text))


def added(payload: Any, text: str) -> Any:
    return payload.map_text(lambda piece: piece + text)
