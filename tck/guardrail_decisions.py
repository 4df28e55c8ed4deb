"""The base of the guardrail kit's tests, and the tests of a policy's decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from anyio.lowlevel import checkpoint
from hypothesis import strategies as st

from kairo_team.contracts import GuardrailPolicy
from kairo_team.governance.guardrails import GuardrailChain
from kairo_team.guardrails import (
    GuardrailAction,
    GuardrailContext,
    GuardrailDecision,
    GuardrailPayload,
    GuardrailPhase,
    ModelInput,
    ModelOutput,
    ToolInput,
    ToolOutput,
)
from kairo_team.messages import Message, ModelResponse, ToolCall
from kairo_team.tck.calls import at_once, check_cancels, no_examples, result_or_error, skip_unless
from kairo_team.tck.kit import ContractTCK, clause, law, make_it

ALLOW, DENY, MODIFY, WARN = GuardrailAction
Payloads = Sequence[GuardrailPayload]
Decided = tuple[GuardrailAction, GuardrailPayload | None]
"""A decision without its reason, which may say when and how often."""
_LONG_TEXT: Final = "and so on. " * 1000


class GuardrailDecisions(ContractTCK):
    """The factories and capabilities of the guardrail kit, and the tests of a policy's decisions."""

    contract: ClassVar[type] = GuardrailPolicy
    _items = dict.fromkeys(
        ("allowed_payloads", "denied_payloads", "modified_payloads", "warned_payloads"),
        (GuardrailPayload, "a payload, such as ToolOutput('search', 'High tide is at 12:40.')"),
    )

    allowed_payloads: ClassVar[Payloads] = ()
    """Payloads that pass unchanged, without an event; give one for each phase of the policy."""
    denied_payloads: ClassVar[Payloads] = ()
    """Payloads that are denied."""
    modified_payloads: ClassVar[Payloads] = ()
    """Payloads that pass changed."""
    warned_payloads: ClassVar[Payloads] = ()
    """Payloads that pass unchanged, with a warning."""
    removed: ClassVar[Sequence[str]] = ()
    """Texts in the `modified_payloads` that are in no piece of text afterwards."""
    denies_at: ClassVar[int] = 1
    """Number of the first call in a row at which a payload is denied; above 1 for a policy that counts."""
    looks_at_arguments: ClassVar[bool] = True
    """Whether the policy also removes text from arguments of tool calls."""
    idempotent: ClassVar[bool] = True
    """Whether the policy allows its own modified payloads unchanged."""
    cannot_crash: ClassVar[bool] = False
    """Whether the policy looks only at the payload. False: `make_crashing_policy` is required."""
    can_wait: ClassVar[bool] = False
    """Whether the policy waits for something: then `make_waiting_policy` is required."""

    @classmethod
    def make_policy(cls) -> GuardrailPolicy:
        """Make the policy. A fresh one each time."""
        raise make_it(cls, "make_policy(cls)")

    @classmethod
    def make_crashing_policy(cls) -> GuardrailPolicy:
        """Make one that cannot decide, for example because its service is down."""
        raise make_it(cls, "make_crashing_policy(cls), or say cannot_crash = True")

    @classmethod
    def make_waiting_policy(cls) -> GuardrailPolicy:
        """Make one that waits for ever before it decides."""
        raise make_it(cls, "make_waiting_policy(cls), or say can_wait = False")

    @classmethod
    def about(cls, payload: GuardrailPayload, **metadata: Any) -> GuardrailContext:
        """Make the context of a payload; override it for other metadata, such as `server` and `tool`."""
        target = getattr(payload, "name", "kit:model")
        given = {"run_id": "r", "task_id": "t", "purpose": "generate", "server": None, "side_effect": "system"}
        return GuardrailContext(payload.phase, "m", target, payload, {**given, "tool": target, **metadata})

    # ------------------------------------------------------------------ one payload

    @clause("C1")
    async def test_c01_examples_are_decided_as_they_are_given(self) -> None:
        """The policy allows, denies, modifies and warns of the payloads that the kit was given for each."""
        if not self.allowed_payloads:
            no_examples(type(self), "allowed_payloads", "at least one payload that passes")
        for wanted, payload in self.examples():
            decision = await self.decided(payload, wanted)
            assert decision.action is wanted, f"{payload} must {wanted}, and it decided to {decision}"

    @law("C1", text=st.text(max_size=200), picks=st.lists(st.integers(0, 10**6), max_size=8))
    async def test_c01_anything_written_gets_a_decision(self, text: str, picks: list[int]) -> None:
        """For any text in a payload of its phases, it returns a decision and does not raise."""
        for payload in self._payloads_of(f"{text} {self._words(picks)}"):
            decision: Any = await self.ready().evaluate(self.about(payload))
            assert isinstance(decision, GuardrailDecision), (
                f"for {payload} it returned {decision!r}, not a GuardrailDecision"
            )

    @clause("C2")
    async def test_c02_what_it_was_shown_stays_as_it_was(self) -> None:
        """Neither the payload nor its metadata are changed in place."""
        for wanted, payload in self.examples():
            context = self.about(_copy(payload))
            before = repr(context)
            await self.ready().evaluate(context)
            assert repr(context) == before, f"it changed {before}, which was to {wanted}, to {context!r}"

    @clause("C3", needs="modified_payloads")
    async def test_c03_a_modified_payload_is_of_the_same_kind(self) -> None:
        """The modified payload has the same phase and tool, and does not contain the removed texts."""
        for payload in self.modified_payloads:
            made = (await self.decided(payload, MODIFY)).payload
            assert type(made) is type(payload), f"it was shown {payload} and made {made}"
            assert getattr(made, "name", None) == getattr(payload, "name", None), "it answers about another tool"
            self._check_removed(made)

    @clause("C3", needs="removed")
    async def test_c03_arguments_of_tool_calls_are_changed_too(self) -> None:
        """A text that is removed from a reply is also removed from the arguments of its tool calls."""
        skip_unless(self.looks_at_arguments, "looks_at_arguments is False")
        skip_unless(self.covers(GuardrailPhase.POST_MODEL), "post_model is not among its phases")
        for text in self.removed:
            calls = [ToolCall("1", "send", {"to": ["bob", {"text": f"it is {text} indeed"}]})]
            decision = await self.decided(ModelOutput(ModelResponse("Sending.", calls)), MODIFY)
            passes = {ALLOW, WARN}
            assert decision.action not in passes, f"{text!r} passed in the arguments of a tool call"
            if decision.payload is not None:
                self._check_removed(decision.payload)

    @clause("C3", needs="removed")
    async def test_c03_it_is_removed_wherever_it_stands(self) -> None:
        """In a long text, and in a message before the last, of the kinds of payload that it modifies."""
        for text in self.removed:
            text_around = f"{_LONG_TEXT}it is {text} indeed"
            asked = [Message.user(text_around), Message.assistant("Fine."), Message.user("Go on.")]
            for payload in (ModelInput(asked), ModelOutput(ModelResponse(text_around))):
                if any(type(one) is type(payload) for one in self.modified_payloads):
                    decision = await self.decided(payload, MODIFY)
                    assert decision.action not in {ALLOW, WARN}, f"{text!r} passed in {type(payload).__name__}"
                    if decision.payload is not None:
                        self._check_removed(decision.payload)

    @clause("C3", needs="idempotent")
    async def test_c03_what_it_modified_passes_as_it_is(self) -> None:
        """Modifying twice is modifying once."""
        skip_unless(self.modified_payloads, "modified_payloads is ()")
        for payload in self.modified_payloads:
            await self._check_twice(payload)

    @law("C3", needs="idempotent", picks=st.lists(st.integers(0, 10**6), min_size=1, max_size=12))
    async def test_c03_modifying_twice_is_modifying_once(self, picks: list[int]) -> None:
        """For any text made of the words of the examples."""
        for payload in self._payloads_of(self._words(picks)):
            await self._check_twice(payload)

    # ------------------------------------------------------------------ many payloads, many runs

    @clause("C4")
    async def test_c04_many_tasks_are_looked_at_at_once(self) -> None:
        """Each gets the decisions it gets alone."""
        # Each begins with another example: tasks that show the same at the same moment would hide that they are mixed.
        alone = [await self._show_all(self.ready(), "0", first=task) for task in range(4)]
        policy = self.ready()
        for task, decisions in enumerate(await at_once([self._showing(policy, task) for task in range(4)])):
            wanted = alone[task]
            assert decisions == wanted, f"at once with other tasks it decided {decisions}, alone {wanted}"

    @clause("C5")
    async def test_c05_what_it_saw_in_one_run_is_not_known_in_another(self) -> None:
        """`for_run` returns a policy without state; a policy without `for_run` keeps none."""
        policy, for_run = self.make_policy(), hasattr(self.make_policy(), "for_run")
        first = await self._show_all(ready(policy), "t")
        again = await self._show_all(ready(policy), "t")
        wanted = "in the next run" if for_run else "shown again"
        assert again == first, f"the same payloads, {wanted}, got {again} and before that {first}"

    @clause("C5")
    async def test_c05_what_was_last_seen_in_a_run_is_not_the_first_in_the_next(self) -> None:
        """A payload shown again and again at the end of a run is new at the beginning of another."""
        for _, payload in self.examples():
            policy = self.make_policy()
            before = ready(policy)
            for _ in range(self.denies_at):
                await before.evaluate(self.about(payload))
            new = _decided(await ready(policy).evaluate(self.about(payload)))
            fresh = _decided(await self.ready().evaluate(self.about(payload)))
            assert new == fresh, f"{payload} was seen in other runs and got {new}; new, it gets {fresh}"

    # ------------------------------------------------------------------ failure and cancellation

    @clause("C6")
    async def test_c06_its_own_failure_lets_nothing_pass(self) -> None:
        """A policy that fails raises or denies; a chain turns both into a denial in its name."""
        skip_unless(not self.cannot_crash, "cannot_crash is True")
        for payload in self.allowed_payloads:
            found: Any = await result_or_error(asking(ready(self.make_crashing_policy()), self.about(payload)))
            passes = isinstance(found, GuardrailDecision) and found.action is not DENY
            assert not passes, f"it could not decide, and returned {found}"
            chain = GuardrailChain([self.make_crashing_policy()]).for_run()
            outcome = await chain.evaluate(self.about(payload))
            assert outcome.action is DENY, f"its failure passed a chain: {outcome}"

    @clause("C7", needs="can_wait")
    async def test_c07_cancellation_passes_through(self) -> None:
        """A decision that waits is cancelled with the call it is about."""
        for payload in self.allowed_payloads[:1]:
            await check_cancels("evaluate", asking(ready(self.make_waiting_policy()), self.about(payload)))

    @clause("C8")
    async def test_c08_its_phases_are_those_of_its_examples(self) -> None:
        """A payload it decides about is of a phase in which it is asked."""
        for wanted, payload in self.examples():
            assert self.covers(payload.phase), f"{payload} is to {wanted}, and it is not asked at {payload.phase}"

    @clause("C8")
    async def test_c08_it_says_the_same_of_itself_whenever_it_is_asked(self) -> None:
        """Name, order and phases do not change, not by use and not for a run."""
        policy = self.make_policy()
        before = declared(policy)
        await self._show_all(ready(policy), "t")
        assert declared(policy) == before, f"it was {before} and is now {declared(policy)}"
        assert declared(ready(policy)) == before, f"it is {before} and for a run {declared(ready(policy))}"

    # ------------------------------------------------------------------ shared

    @classmethod
    def examples(cls) -> list[tuple[GuardrailAction, GuardrailPayload]]:
        """Return every example with the wanted decision."""
        given = {ALLOW: cls.allowed_payloads, DENY: cls.denied_payloads}
        given |= {MODIFY: cls.modified_payloads, WARN: cls.warned_payloads}
        return [(action, payload) for action, payloads in given.items() for payload in payloads]

    @classmethod
    def ready(cls) -> GuardrailPolicy:
        """Make a policy as a run uses it."""
        return ready(cls.make_policy())

    @classmethod
    def covers(cls, phase: GuardrailPhase) -> bool:
        """Return whether the policy is asked in a phase."""
        return GuardrailChain([cls.make_policy()]).covers(phase)

    @classmethod
    async def decided(cls, payload: GuardrailPayload, wanted: GuardrailAction) -> GuardrailDecision:
        """Return a fresh policy's last decision about a payload."""
        policy = cls.ready()
        for _ in range(cls.denies_at - 1 if wanted is DENY else 0):
            await policy.evaluate(cls.about(payload))
        return await policy.evaluate(cls.about(payload))

    async def _show_all(self, policy: GuardrailPolicy, task: str, first: int = 0) -> list[Decided]:
        """Evaluate every example for one task in turn, from the `first` on, a payload to deny `denies_at` times."""
        decisions: list[Decided] = []
        examples = self.examples()
        begin = first % len(examples) if examples else 0
        for wanted, payload in (*examples[begin:], *examples[:begin]):
            for _ in range(self.denies_at if wanted is DENY else 1):
                decisions.append(_decided(await policy.evaluate(self.about(payload, task_id=task))))
                await checkpoint()
        return decisions

    def _showing(self, policy: GuardrailPolicy, task: int) -> Callable[[], Awaitable[list[Decided]]]:
        return lambda: self._show_all(policy, str(task), first=task)

    async def _check_twice(self, payload: GuardrailPayload) -> None:
        first = await self.ready().evaluate(self.about(payload))
        if first.payload is None:
            return
        again = await self.ready().evaluate(self.about(first.payload))
        same = again.action in {ALLOW, WARN} or again.payload == first.payload
        assert same, f"{payload} became {first.payload}, and shown that it decided {again}"

    def _check_removed(self, made: Any) -> None:
        left = [text for text in self.removed if any(text in piece for piece in made.texts)]
        assert not left, f"{left} must be removed, and is still in {made}"

    def _words(self, picks: Sequence[int]) -> str:
        """Make a text of the words of the examples."""
        words = [word for _, payload in self.examples() for piece in payload.texts for word in piece.split(" ")]
        return " ".join(words[pick % len(words)] for pick in picks) if words else ""

    def _payloads_of(self, text: str) -> list[GuardrailPayload]:
        """Make a payload with this text for each of the policy's phases."""
        made: list[GuardrailPayload] = [
            ModelInput([Message.system("Be kind."), Message.user(text)]),
            ModelOutput(ModelResponse(text, [ToolCall("1", "look", {"query": text})])),
            ToolInput("look", {"query": text}),
            ToolOutput("look", text),
        ]
        return [payload for payload in made if self.covers(payload.phase)]


def ready(policy: GuardrailPolicy) -> GuardrailPolicy:
    """Return the policy as a run uses it."""
    made: GuardrailPolicy = getattr(policy, "for_run", lambda: policy)()
    return made


def declared(policy: GuardrailPolicy) -> tuple[Any, ...]:
    """Return a policy's name, order and phases."""
    phases = getattr(policy, "phases", None)
    return (getattr(policy, "name", None), getattr(policy, "order", 0), phases and frozenset(phases))


def asking(policy: GuardrailPolicy, context: GuardrailContext) -> Callable[[], Awaitable[GuardrailDecision]]:
    """Return a call of the policy's `evaluate`."""
    return lambda: policy.evaluate(context)


def _copy(payload: GuardrailPayload) -> GuardrailPayload:
    return ModelOutput(replace(payload.response)) if isinstance(payload, ModelOutput) else replace(payload)


def _decided(decision: GuardrailDecision) -> Decided:
    return decision.action, decision.payload
