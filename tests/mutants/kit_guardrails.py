"""Wrong guardrails, each rejected by the kit at one clause."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

import anyio
import anyio.lowlevel

import kairo_team as kt
from kairo_team.contracts import GuardrailPolicy
from kairo_team.governance import (
    GuardrailContext,
    GuardrailDecision,
    GuardrailPhase,
    ModelInput,
    ModelOutput,
    ToolInput,
)
from kairo_team.governance.guardrails import GuardrailPayload
from kairo_team.tck import GuardrailPolicyTCK
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()


KEY = re.compile(r"sk-\d+")
BOTH = frozenset({GuardrailPhase.PRE_MODEL, GuardrailPhase.POST_MODEL})


class Masks:
    """A right guardrail: keys are masked, whole ones denied. The masking can be down."""

    phases: Any = BOTH

    def __init__(self, fails: bool = False, waits: bool = False) -> None:
        self.fails = fails
        self.waits = waits

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        if self.fails:
            raise ConnectionError("the list of keys is not there")
        if self.waits:
            await anyio.sleep_forever()
        if "BEGIN PRIVATE KEY" in context.payload.text:
            return GuardrailDecision.deny("a private key")
        return self.mask(context.payload)

    def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
        masked = payload.map_text(lambda text: KEY.sub("[KEY]", text))
        return GuardrailDecision.allow() if masked is payload else GuardrailDecision.modify("key masked", masked)


class RightPolicy(GuardrailPolicyTCK):
    """The kit of the right guardrail; the mutants change one thing of it."""

    Policy: ClassVar[type[Masks]] = Masks
    can_wait = True
    removed = ("sk-1234",)
    allowed_payloads = (ModelInput([kt.Message.user("Why?")]), ModelOutput(kt.ModelResponse("The moon.")))
    denied_payloads = (ModelOutput(kt.ModelResponse("BEGIN PRIVATE KEY")),)
    modified_payloads: ClassVar[Any] = (ModelOutput(kt.ModelResponse("It is sk-1234.")),)

    @classmethod
    def make_policy(cls) -> GuardrailPolicy:
        return cls.Policy()

    @classmethod
    def make_crashing_policy(cls) -> GuardrailPolicy:
        return cls.Policy(fails=True)

    @classmethod
    def make_waiting_policy(cls) -> GuardrailPolicy:
        return cls.Policy(waits=True)


@mutant(clause="C1")
class BreaksOnOtherAlphabets(RightPolicy):
    """It raises for text that is not ASCII."""

    class Policy(Masks):
        def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
            payload.text.encode("ascii")
            return super().mask(payload)


@mutant("G02", clause="C2")
class ChangesInPlace(RightPolicy):
    """It changes what it is shown and says that it allowed it: no trail, no reason."""

    modified_payloads = (ModelOutput(kt.ModelResponse("It is sk-9.")),)

    class Policy(Masks):
        def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
            decision = super().mask(payload)
            if isinstance(payload, ModelOutput) and decision.payload is not None:
                object.__setattr__(payload, "response", kt.ModelResponse(decision.payload.text))
            return GuardrailDecision.allow()


@mutant(clause="C3")
class LeavesArguments(RightPolicy):
    """It masks the text of a reply, and not what it asks tools to do."""

    class Policy(Masks):
        def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
            masked = KEY.sub("[KEY]", payload.text)
            same = masked == payload.text
            return GuardrailDecision.allow() if same else GuardrailDecision.modify("masked", payload.with_text(masked))


@mutant(clause="C3")
class MasksItsMasks(RightPolicy):
    """What it puts in place of a key is masked again, and grows."""

    class Policy(Masks):
        def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
            masked = payload.map_text(lambda text: re.sub(r"\[?(sk-\d+|KEY)", "[[KEY", text))
            return GuardrailDecision.allow() if masked is payload else GuardrailDecision.modify("masked", masked)


@mutant(clause="C3")
class AnswersWithText(RightPolicy):
    """Shown a reply, it answers with a request."""

    class Policy(Masks):
        def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
            decision = super().mask(payload)
            if decision.payload is None:
                return decision
            return GuardrailDecision.modify("masked", ModelInput([kt.Message.user(decision.payload.text)]))


@mutant("G01", clause="C6")
class AllowsWhereItFails(RightPolicy):
    """It could not decide, and lets everything pass."""

    class Policy(Masks):
        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            try:
                return await super().evaluate(context)
            except ConnectionError:
                return GuardrailDecision.allow()


@mutant("T06", clause="C7")
class AllowsWhereItIsCancelled(RightPolicy):
    """A cancellation is one more thing that lets everything pass."""

    class Policy(Masks):
        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            try:
                return await super().evaluate(context)
            except anyio.get_cancelled_exc_class():
                return GuardrailDecision.allow()


@mutant("G05", clause="C8")
class NeverSeesReplies(RightPolicy):
    """It wants to see requests only, so replies are out before anybody looks."""

    class Policy(Masks):
        phases: Any = frozenset({GuardrailPhase.PRE_MODEL})


@mutant("G05", clause="C9")
class NeverSeesRepliesInARun(NeverSeesReplies):
    """What it denies reaches the member."""


class BothWays(RightPolicy):
    """The kit of the right guardrail, with a request that it modifies too."""

    modified_payloads = (*RightPolicy.modified_payloads, ModelInput([kt.Message.user("It is sk-1234.")]))


@mutant("G02", clause="C3")
class LooksAtTheLastMessage(BothWays):
    """What stands in an earlier message of a request stays there."""

    class Policy(Masks):
        def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
            if not isinstance(payload, ModelInput):
                return super().mask(payload)
            *before, last = payload.messages
            masked = replace(last, text=KEY.sub("[KEY]", last.text))
            if masked == last:
                return GuardrailDecision.allow()
            return GuardrailDecision.modify("key masked", replace(payload, messages=[*before, masked]))


@mutant("G02", clause="C3")
class ReadsTheBeginning(RightPolicy):
    """It looks at the first thousand letters of a text."""

    class Policy(Masks):
        def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
            masked = payload.map_text(lambda text: KEY.sub("[KEY]", text[:1000]) + text[1000:])
            return GuardrailDecision.allow() if masked == payload else GuardrailDecision.modify("key masked", masked)


class LoopKit(GuardrailPolicyTCK):
    """The kit of guardrails against loops: the third call of a kind in a row is denied."""

    cannot_crash = True
    denies_at = 3
    allowed_payloads = (ToolInput("look", {"query": "moon"}),)
    denied_payloads = (ToolInput("look", {"query": "ebb"}),)


class Loops:
    """A right guardrail against loops."""

    phases = frozenset({GuardrailPhase.PRE_TOOL})

    def __init__(self) -> None:
        self.seen: dict[Any, list[GuardrailPayload]] = {}

    def key(self, context: GuardrailContext) -> Any:
        return context.metadata["task_id"]

    def for_run(self) -> Loops:
        return type(self)()

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        seen = self.seen.setdefault(self.key(context), [])
        seen.append(context.payload)
        looped = seen[-3:] == [context.payload] * 3
        return GuardrailDecision.deny("three times in a row") if looped else GuardrailDecision.allow()


class RightLoops(LoopKit):
    """The kit of the right one."""

    Policy: ClassVar[type[Loops]] = Loops

    @classmethod
    def make_policy(cls) -> GuardrailPolicy:
        return cls.Policy()


@mutant("G10", clause="C5")
class CountsAllRuns(RightLoops):
    """It is the same one in every run, and never begins anew."""

    class Policy(Loops):
        def for_run(self) -> Loops:
            return self


@mutant("G10", clause="C4")
class CountsAllTasks(RightLoops):
    """Calls of other tasks count too."""

    class Policy(Loops):
        def key(self, context: GuardrailContext) -> Any:
            return "all"


@mutant("G08", clause="C1")
class ComparesPrefixedNames(GuardrailPolicyTCK):
    """The names it lists are the server's, and it compares those the model knows."""

    cannot_crash = True
    allowed_payloads = (ToolInput("crm_lookup"),)
    denied_payloads = (ToolInput("crm_drop"),)

    class Policy:
        phases = frozenset({GuardrailPhase.PRE_TOOL})

        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            listed = context.target == "lookup"
            return GuardrailDecision.allow() if listed else GuardrailDecision.deny("not on the list")

    @classmethod
    def make_policy(cls) -> GuardrailPolicy:
        return cls.Policy()

    @classmethod
    def about(cls, payload: Any, **metadata: Any) -> GuardrailContext:
        return super().about(payload, server="crm", tool=payload.name.removeprefix("crm_"), **metadata)


@mutant(clause="C3")
class MasksTheFirst(RightPolicy):
    """Of several keys in one text it masks the first."""

    modified_payloads = (ModelOutput(kt.ModelResponse("It is sk-1234, or else sk-1234.")),)

    class Policy(Masks):
        def mask(self, payload: GuardrailPayload) -> GuardrailDecision:
            masked = payload.map_text(lambda text: KEY.sub("[KEY]", text, count=1))
            return GuardrailDecision.allow() if masked is payload else GuardrailDecision.modify("key masked", masked)


@mutant(clause="C3")
class LeavesTheNamesOfArguments(GuardrailPolicyTCK):
    """It masks the values of a tool's arguments, and not their names."""

    cannot_crash = True
    removed = ("sk-1234",)
    allowed_payloads = (ToolInput("note", {"text": "The moon."}),)
    modified_payloads = (ToolInput("note", {"sk-1234": "sk-1234"}),)

    @classmethod
    def make_policy(cls) -> GuardrailPolicy:
        class Policy:
            phases: ClassVar[Any] = {GuardrailPhase.PRE_TOOL}

            async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
                payload: Any = context.payload
                values = {name: KEY.sub("[KEY]", str(value)) for name, value in payload.arguments.items()}
                if values == dict(payload.arguments):
                    return GuardrailDecision.allow()
                return GuardrailDecision.modify("key masked", ToolInput(payload.name, values))

        return Policy()


@mutant(clause="C5")
class LetsItPassTheSecondTime(RightPolicy):
    """What it has denied once it knows, and lets pass."""

    class Policy(Masks):
        def __init__(self, fails: bool = False, waits: bool = False) -> None:
            super().__init__(fails, waits)
            self.seen: set[str] = set()

        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            if context.payload.text in self.seen:
                return GuardrailDecision.allow()
            decision = await super().evaluate(context)
            if decision.action.value == "deny":
                self.seen.add(context.payload.text)
            return decision


@mutant("E10", clause="C4")
class MixesPayloads(RightPolicy):
    """The payload at hand is kept on it while it waits, where the next one overwrites it."""

    class Policy(Masks):
        now: Any = None

        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            self.now = context
            await anyio.lowlevel.checkpoint()
            return await super().evaluate(self.now)


@mutant(clause="C8")
class LooksElsewhereOnceItHasSeen(RightPolicy):
    """After its first payload it wants to see requests only."""

    class Policy(Masks):
        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            self.phases = frozenset({GuardrailPhase.PRE_MODEL})
            return await super().evaluate(context)


@mutant(clause="C6")
class WarnsWhereItFails(RightPolicy):
    """It could not decide, and warns instead of denying."""

    class Policy(Masks):
        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            try:
                return await super().evaluate(context)
            except ConnectionError as error:
                return GuardrailDecision.warn(str(error))
