"""Guardrails by themselves: what they are shown, what they may answer, and a chain in which every failure denies."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.governance import (
    GuardrailAction,
    GuardrailChain,
    GuardrailContext,
    GuardrailDecision,
    GuardrailOutcome,
    GuardrailPayload,
    GuardrailPhase,
    GuardrailPolicy,
    GuardrailRuling,
    ModelInput,
    ModelOutput,
    ToolInput,
    ToolOutput,
)
from kairo_team.governance.guardrail_payloads import BETWEEN_MESSAGES

pytestmark = pytest.mark.anyio

ALLOW, DENY, MODIFY, WARN = GuardrailAction
PRE_MODEL, POST_MODEL, PRE_TOOL, POST_TOOL = GuardrailPhase

CALL = kt.ToolCall("1", "send", {"to": "bob", "pages": [3, "five"], "urgent": True, "cc": None})
ASKED = ModelInput(
    [kt.Message.system("be kind"), kt.Message.user("hello"), kt.Message.assistant("", [CALL])], {"seed": 1}
)
REPLIED = ModelOutput(kt.ModelResponse("hi", [CALL], usage=kt.Usage(prompt_tokens=3), model="m"))
CALLING = ToolInput("send", {"to": "bob", "pages": [3, "five"]})
RETURNED = ToolOutput("send", {"sent": ["bob"], "pages": 8})
PAYLOADS: list[Any] = [ASKED, REPLIED, CALLING, RETURNED]
each_payload = pytest.mark.parametrize("payload", PAYLOADS, ids=lambda one: type(one).__name__)


def about(payload: Any, **metadata: Any) -> GuardrailContext:
    return GuardrailContext(payload.phase, "writer", "openai:gpt-5", payload, metadata)


Decide = Callable[[GuardrailContext], Any]


class Policy:
    """A policy that does what it is given, and remembers what it was shown."""

    def __init__(self, decide: Decide | GuardrailDecision, *, name: str | None = None, **attributes: Any) -> None:
        self.decide = decide
        self.shown: list[GuardrailPayload] = []
        for attribute, value in ({"name": name} if name else {} | attributes).items():
            setattr(self, attribute, value)
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        self.shown.append(context.payload)
        decision: GuardrailDecision = (
            self.decide if isinstance(self.decide, GuardrailDecision) else self.decide(context)
        )
        return decision


FINE = GuardrailDecision.allow()


def says(text: str) -> Decide:
    """Modify whatever is shown to say this besides."""
    return lambda context: GuardrailDecision.modify(f"adds {text}", added(context.payload, text))


def added(payload: Any, text: str) -> Any:
    return payload.map_text(lambda piece: piece + text)


# ---------------------------------------------------------------- payloads


@pytest.mark.parametrize(
    ("payload", "phase", "text", "texts"),
    [
        (
            ASKED,
            PRE_MODEL,
            f"be kind{BETWEEN_MESSAGES}hello{BETWEEN_MESSAGES}",
            ("be kind", "hello", "", "to", "bob", "pages", "3", "five", "urgent", "cc"),
        ),
        (REPLIED, POST_MODEL, "hi", ("hi", "to", "bob", "pages", "3", "five", "urgent", "cc")),
        (CALLING, PRE_TOOL, '{"to": "bob", "pages": [3, "five"]}', ("to", "bob", "pages", "3", "five")),
        (RETURNED, POST_TOOL, '{"sent": ["bob"], "pages": 8}', ("sent", "bob", "pages", "8")),
        (ToolOutput("send", "all {well}"), POST_TOOL, "all {well}", ("all {well}",)),
        (ToolOutput("send", None), POST_TOOL, "null", ()),
        (ToolOutput("send", "grüße"), POST_TOOL, "grüße", ("grüße",)),
        (ToolInput("send", {"an": "Jürgen"}), PRE_TOOL, '{"an": "Jürgen"}', ("an", "Jürgen")),
        (ModelInput([]), PRE_MODEL, "", ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_payload_says_when_it_is_looked_at_and_all_that_is_said(
    payload: Any, phase: GuardrailPhase, text: str, texts: tuple[str, ...]
) -> None:
    assert (payload.phase, payload.text, payload.texts) == (phase, text, texts)


@each_payload
def test_a_text_that_is_put_back_unchanged_changes_nothing(payload: Any) -> None:
    back = payload.with_text(payload.text)
    assert back.text == payload.text
    assert payload.map_text(lambda piece: piece) is payload
    if not isinstance(payload, ToolOutput):
        assert back == payload


def test_with_text_gives_each_message_its_own_piece() -> None:
    changed = ASKED.with_text(ASKED.text.replace("hello", "bye"))
    assert [message.text for message in changed.messages] == ["be kind", "bye", ""]
    assert changed.messages[2].tool_calls == (CALL,)
    assert changed.settings == ASKED.settings
    assert ModelInput([kt.Message.user("a")]).with_text("b") == ModelInput([kt.Message.user("b")])


@pytest.mark.parametrize("text", ["one text for three", BETWEEN_MESSAGES.join("abcd"), ""])
def test_a_text_that_is_not_as_many_pieces_as_messages_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"pieces for 3 messages: keep what stands between them .*use map_text"):
        ASKED.with_text(text)


def test_with_text_keeps_a_replys_tool_calls_and_usage() -> None:
    changed = REPLIED.with_text("bye").response
    assert (changed.text, changed.tool_calls, changed.usage) == ("bye", (CALL,), REPLIED.response.usage)


def test_with_text_reads_arguments_back_from_json() -> None:
    assert CALLING.with_text('{"to": "eve"}') == ToolInput("send", {"to": "eve"})
    for text in ("to eve", "[1]", '"to"', "{", '{"to": NaN}', "[" * 100_000):
        with pytest.raises(ValueError, match=r"JSON|Expecting|double quotes|too deeply"):
            CALLING.with_text(text)


def test_map_text_reaches_every_string_and_number_and_keeps_the_rest() -> None:
    def shout(piece: str) -> str:
        return "SEVEN" if piece == "3" else piece.upper()

    changed = REPLIED.map_text(shout).response
    assert changed.text == "HI"
    assert changed.tool_calls[0].arguments == {"TO": "BOB", "PAGES": ("SEVEN", "FIVE"), "URGENT": True, "CC": None}
    assert (changed.tool_calls[0].id, changed.tool_calls[0].name, changed.model) == ("1", "send", "m")
    assert ASKED.map_text(shout).messages[2].tool_calls[0].arguments["TO"] == "BOB"  # type: ignore[index]  # a mapping
    assert RETURNED.map_text(shout).result == {"SENT": ("BOB",), "PAGES": 8}
    half = kt.ToolCall("2", "send", '{"to": "bob')
    assert ModelOutput(kt.ModelResponse("", [half])).map_text(shout).response.tool_calls[0].arguments == '{"TO": "BOB'


def test_names_that_become_the_same_lose_nothing() -> None:
    result = {"a@x": 1, "b@x": 2, "[E] 2": 3, "c@x": 4}
    changed = ToolOutput("t", result).map_text(lambda piece: "[E]" if "@" in piece else piece)
    assert changed.result == {"[E]": 1, "[E] 2": 2, "[E] 2 2": 3, "[E] 3": 4}
    many = ToolOutput("t", {f"{n}@x": n for n in range(20_000)}).map_text(
        lambda piece: "[E]" if "@" in piece else piece
    )
    assert sorted(many.result.values()) == list(range(20_000))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_any_json_can_be_looked_at_and_comes_back_as_it_was(arguments: dict[str, Any]) -> None:
    payload = ToolInput("t", arguments)
    assert payload.with_text(payload.text) == payload
    assert payload.map_text(lambda piece: piece) is payload
    assert json.loads(ToolOutput("t", arguments).text) == arguments
    assert not [piece for piece in payload.map_text(lambda _: "").texts if piece.strip(" 0123456789")]


def test_results_of_other_types_become_json() -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    odd: Any = {1: Point(2), "when": {3}, "what": object}
    assert ToolOutput("t", odd).result["1"] == {"x": 2}
    assert "class" in ToolOutput("t", odd).text


TEXT: Any = "text"
FIVE: Any = 5
NONE: Any = None


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelInput([TEXT]), "ModelInput.messages must be Message objects, not 'text'"),
        (lambda: ModelInput([], FIVE), "ModelInput.settings must be a mapping, not 5"),
        (lambda: ModelOutput(TEXT), "ModelOutput.response must be a ModelResponse, not 'text'"),
        (lambda: ModelOutput(NONE), "ModelOutput.response must be a ModelResponse, not None"),
        (lambda: ToolInput("", {}), "ToolInput.name must be the tool's name, not ''"),
        (lambda: ToolInput("t", FIVE), "ToolInput.arguments must be a mapping, not"),
        (lambda: ToolInput("t", {"x": object()}), "must be made of JSON values"),
        (lambda: ToolInput("t", {"x": deep(10_000)}), "ToolInput.arguments is nested too deeply"),
        (lambda: ToolOutput("t", deep(10_000)), "too deeply|[Cc]ircular"),
        (lambda: ToolOutput(NONE, "x"), "ToolOutput.name must be"),
        (lambda: GuardrailContext(PRE_TOOL, None, "t", ASKED), "a ModelInput is looked at in .*pre_model.*, not in"),
        (lambda: GuardrailContext(TEXT, None, "t", ASKED), "not in 'text'"),
        (lambda: GuardrailContext(PRE_TOOL, None, "t", TEXT), "payload must be a ModelInput, .*'text'"),
        (lambda: GuardrailDecision.deny("  "), "to deny needs a reason in words, not '  '"),
        (lambda: GuardrailDecision.warn(""), "to warn needs a reason in words, not ''"),
        (lambda: GuardrailDecision.warn(NONE), "to warn needs a reason in words, not None"),
        (lambda: GuardrailDecision.modify("\n", ASKED), "to modify needs a reason in words"),
        (lambda: GuardrailDecision.modify("why", NONE), "a modification puts in place must be .* not None"),
        (lambda: GuardrailDecision.modify("why", TEXT), "what a modification puts in place must be .* not 'text'"),
        (lambda: GuardrailDecision(DENY, "no", ASKED), "only a modification has a payload"),
        (lambda: GuardrailDecision(TEXT, "no"), "must be one of 'allow', 'deny', 'modify', 'warn', not 'text'"),
    ],
)  # fmt: skip
def test_values_are_checked_where_they_are_built(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "value", [*PAYLOADS, about(ASKED), FINE, GuardrailRuling("a", FINE)], ids=lambda v: type(v).__name__
)
def test_values_are_frozen_can_be_replaced_and_hashed(value: Any) -> None:
    field = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, getattr(value, field))
    assert dataclasses.replace(value) == value
    assert hash(value) == hash(dataclasses.replace(value))


def test_what_is_handed_in_is_copied_read_only() -> None:
    arguments, metadata = {"rows": [1]}, {"run_id": "r"}
    context = about(ToolInput("t", arguments), **metadata)
    arguments["rows"].append(2)
    assert context.payload.text == '{"rows": [1]}'
    with pytest.raises(TypeError, match="part of a frozen value"):
        context.metadata["run_id"] = 1  # type: ignore[index]  # the mistake is the point


def test_an_outcome_is_read_only_and_compares_by_what_it_says() -> None:
    outcome = GuardrailOutcome(ASKED, [GuardrailRuling("a", FINE)])
    with pytest.raises(AttributeError):
        outcome.payload = RETURNED  # type: ignore[misc]  # the mistake is the point
    assert outcome == GuardrailOutcome(ASKED, (GuardrailRuling("a", FINE),))
    assert hash(outcome) == hash(GuardrailOutcome(ASKED, outcome.trail))
    assert outcome != GuardrailOutcome(ASKED)
    assert outcome != "allow"
    assert repr(outcome).startswith("GuardrailOutcome(<GuardrailAction.ALLOW: 'allow'>, ModelInput(")


# ---------------------------------------------------------------- the chain


@each_payload
async def test_an_empty_chain_allows_and_changes_nothing(payload: Any) -> None:
    chain = GuardrailChain()
    outcome = await chain.evaluate(about(payload))
    assert (outcome.action, outcome.reason, outcome.policy, outcome.trail) == (ALLOW, "", None, ())
    assert outcome.payload is payload
    assert outcome == GuardrailOutcome(payload)
    assert not chain
    assert not any(chain.covers(phase) for phase in GuardrailPhase)
    assert chain.for_run() is chain


async def test_policies_are_asked_by_order_then_as_given() -> None:
    asked: list[str] = []

    def note(name: str) -> Decide:
        def decide(_: GuardrailContext) -> GuardrailDecision:
            asked.append(name)
            return FINE

        return decide

    policies = [
        Policy(note("b"), order=0),
        Policy(note("d"), order=2.5),
        Policy(note("a"), order=-1),
        Policy(note("c")),
    ]
    outcome = await GuardrailChain(policies).evaluate(about(ASKED))
    assert asked == ["a", "b", "c", "d"]
    assert (outcome.action, len(outcome.trail)) == (ALLOW, 4)
    assert outcome.payload is ASKED


async def test_a_policy_sees_only_the_phases_it_wants() -> None:
    everything, some, one = Policy(FINE), Policy(FINE, phases={POST_MODEL, "pre_tool"}), Policy(FINE, phases=POST_TOOL)
    chain = GuardrailChain([everything, some, one])
    for payload in PAYLOADS:
        await chain.evaluate(about(payload))
    assert everything.shown == PAYLOADS
    assert some.shown == [REPLIED, CALLING]
    assert one.shown == [RETURNED]
    assert [GuardrailChain([some]).covers(phase) for phase in GuardrailPhase] == [False, True, True, False]


async def test_a_denial_ends_it() -> None:
    last = Policy(FINE)
    chain = GuardrailChain([Policy(says("!")), Policy(GuardrailDecision.deny("no"), name="stern"), last])
    outcome = await chain.evaluate(about(REPLIED))
    assert (outcome.action, outcome.policy, outcome.reason) == (DENY, "stern", "no")
    assert [ruling.decision.action for ruling in outcome.trail] == [MODIFY, DENY]
    assert last.shown == []


@each_payload
async def test_each_modification_is_what_the_next_policy_sees(payload: Any) -> None:
    first, second, third = Policy(says("1"), name="first"), Policy(says("2")), Policy(FINE)
    outcome = await GuardrailChain([first, second, third]).evaluate(about(payload))
    assert third.shown == [added(added(payload, "1"), "2")] == [outcome.payload]
    assert (outcome.action, outcome.policy, outcome.reason) == (MODIFY, "first", "adds 1")


@pytest.mark.parametrize(
    ("actions", "expected", "decided_by"),
    [
        ([ALLOW], ALLOW, None),
        ([ALLOW, WARN, WARN], WARN, 1),
        ([WARN, MODIFY, WARN], MODIFY, 1),
        ([WARN, DENY], DENY, 1),
    ],
)
async def test_the_outcome_is_deny_else_modify_else_warn_else_allow(
    actions: list[GuardrailAction], expected: GuardrailAction, decided_by: int | None
) -> None:
    answers: dict[GuardrailAction, Decide | GuardrailDecision] = {
        ALLOW: FINE,
        WARN: GuardrailDecision.warn("hm"),
        MODIFY: says("!"),
        DENY: GuardrailDecision.deny("no"),
    }
    chain = GuardrailChain([Policy(answers[action], name=f"p{place}") for place, action in enumerate(actions)])
    outcome = await chain.evaluate(about(REPLIED))
    assert (outcome.action, outcome.policy) == (expected, None if decided_by is None else f"p{decided_by}")


async def test_kf_g02_the_trail_keeps_every_decision_with_its_reason() -> None:
    """Other systems lost the reasons of warnings and modifications once something else was decided."""
    policies = [
        Policy(GuardrailDecision.warn("odd"), name="a"),
        Policy(says("!"), name="b"),
        Policy(FINE, name="c"),
        Policy(GuardrailDecision.warn("odder"), name="d"),
        Policy(GuardrailDecision.deny("no"), name="e"),
    ]
    outcome = await GuardrailChain(policies).evaluate(about(REPLIED))
    found = [(ruling.policy, ruling.decision.action, ruling.decision.reason) for ruling in outcome.trail]
    assert found == [
        ("a", WARN, "odd"),
        ("b", MODIFY, "adds !"),
        ("c", ALLOW, ""),
        ("d", WARN, "odder"),
        ("e", DENY, "no"),
    ]
    assert outcome.trail[1].decision.payload == added(REPLIED, "!")


def boom(context: GuardrailContext) -> GuardrailDecision:
    raise OSError("the list is away")


def two(context: GuardrailContext) -> GuardrailDecision:
    raise ExceptionGroup("two", [OSError("a"), OSError("b")])


class UnshowableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def unshowable(context: GuardrailContext) -> GuardrailDecision:
    raise UnshowableError


async def later() -> GuardrailDecision:
    return FINE


FAILURES: list[tuple[Decide, str]] = [
    (boom, "it failed with OSError: the list is away"),
    (unshowable, "it failed with UnshowableError"),
    (lambda _: None, "it failed with TypeError: it returned None, not a GuardrailDecision"),
    (lambda _: True, "it returned True, not a GuardrailDecision"),
    (lambda _: ALLOW, "it returned <GuardrailAction.ALLOW: 'allow'>, not a GuardrailDecision"),
    (lambda _: "x" * 10_000, "it returned 'xxx"),
    (lambda _: later(), "it returned <coroutine object later"),
    (lambda _: GuardrailDecision.deny(" "), "needs a reason in words"),
    (lambda _: GuardrailDecision.modify("swap", RETURNED), "and modified it to a ToolOutput, of another"),
    (lambda c: GuardrailDecision.modify("x", c.payload.with_text(FIVE)), "a piece of text must be a string, not 5"),
    (two, "it failed with ExceptionGroup: two"),
]  # fmt: skip


@pytest.mark.parametrize(("decide", "why"), FAILURES)
async def test_kf_g01_a_policy_that_raises_or_returns_nonsense_denies_and_is_named(decide: Decide, why: str) -> None:
    """Other systems let everything pass that a broken policy should have looked at."""
    last = Policy(FINE)
    outcome = await GuardrailChain([Policy(FINE), Policy(decide, name="broken"), last]).evaluate(about(REPLIED))
    assert (outcome.action, outcome.policy, last.shown) == (DENY, "broken", [])
    assert why in outcome.reason
    assert len(outcome.reason) < 700
    assert outcome.payload is REPLIED


async def test_kf_g01_an_evaluate_that_is_not_async_denies() -> None:
    class Sync:
        def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            return FINE

    policy: Any = Sync()
    outcome = await GuardrailChain([policy]).evaluate(about(ASKED))
    assert (outcome.action, outcome.policy) == (DENY, "Sync")
    assert "its evaluate is not async" in outcome.reason


async def test_a_modification_may_not_turn_to_another_tool_or_another_reply_type() -> None:
    class Reply:
        text, tool_calls = "hi", ()

    other: list[tuple[Any, Any, str]] = [
        (CALLING, ToolInput("delete", CALLING.arguments), "asked about the tool 'send' and answered about another"),
        (RETURNED, ToolOutput("delete", ""), "asked about the tool 'send'"),
        (REPLIED, ModelOutput(Reply()), "not a ModelResponse"),  # type: ignore[arg-type]  # the mistake is the point
    ]
    for shown, answer, why in other:
        outcome = await GuardrailChain([Policy(GuardrailDecision.modify("x", answer))]).evaluate(about(shown))
        assert outcome.action is DENY
        assert why in outcome.reason


async def test_cancellation_passes_through_a_chain() -> None:
    class Hangs:
        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            await anyio.sleep_forever()
            raise AssertionError

    with anyio.move_on_after(1) as scope:
        await GuardrailChain([Hangs()]).evaluate(about(ASKED))
    assert scope.cancelled_caught


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_halt_within_a_policy_is_never_swallowed(grouped: bool) -> None:
    """A policy may ask a governed model; the limit that stops it stops the run."""
    halt = kt.HaltError(kt.HaltReason.CANCELLED, kt.Usage(), "run")

    def judge(context: GuardrailContext) -> GuardrailDecision:
        raise ExceptionGroup("group", [halt]) if grouped else halt

    with pytest.raises(kt.HaltError) as caught:
        await GuardrailChain([Policy(judge)]).evaluate(about(ASKED))
    assert caught.value is halt


async def test_a_name_is_the_policys_own_or_that_of_its_class() -> None:
    chain = GuardrailChain([Policy(FINE), Policy(FINE, name="mine"), Policy(FINE, name=" ")])
    assert [ruling.policy for ruling in (await chain.evaluate(about(ASKED))).trail] == ["Policy", "mine", "Policy"]


async def test_many_evaluations_at_once_do_not_mix() -> None:
    async def slow(context: GuardrailContext) -> GuardrailDecision:
        await anyio.sleep(len(context.payload.text) % 3)
        return GuardrailDecision.modify("x", added(context.payload, "."))

    class Slow:
        evaluate = staticmethod(slow)

    chain = GuardrailChain([Slow(), Slow(), Slow()])
    results: dict[int, str] = {}

    async def one(number: int) -> None:
        outcome = await chain.evaluate(about(ToolOutput("t", "x" * number)))
        results[number] = outcome.payload.text

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(one, number)
    assert results == {number: "x" * number + "..." for number in range(50)}


class Lacking:
    pass


class Unsayable:
    @property
    def order(self) -> int:
        raise OSError("away")

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        return FINE


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([Lacking()], r"a guardrail has async evaluate\(context\); .* lacks evaluate"),
        ([Policy], "Policy is a class, not a guardrail: make one, Policy"),
        (Policy(FINE), "guardrails are given as a list"),
        ("tool-loop", "guardrails are given as a list, not 'tool-loop'"),
        ([Policy(FINE, name="p", order="first")], "'p': order must be a number, lower goes first, not 'first'"),
        ([Policy(FINE, order=float("nan"))], "order must be a number"),
        ([Policy(FINE, order=True)], "order must be a number"),
        ([Policy(FINE, phases={"lunch"})], "phases must be one or several of 'post_model', .*not {'lunch'}"),
        ([Policy(FINE, phases=())], r"phases must be one or several of .*not \(\)"),
        ([Policy(FINE, phases=5)], "phases must be one or several of .*not 5"),
        ([Unsayable()], "'Unsayable' does not say its name, order or phases: OSError: away"),
    ],
)
def test_what_is_no_guardrail_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GuardrailChain(given)


# ---------------------------------------------------------------- one run


class Counts:
    def __init__(self) -> None:
        self.seen = 0

    def for_run(self) -> Counts:
        return Counts()

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        self.seen += 1
        return GuardrailDecision.warn(f"seen {self.seen}")


async def test_each_run_has_fresh_state_and_shares_the_rest() -> None:
    stateless, stateful = Policy(FINE), Counts()
    chain = GuardrailChain([stateless, stateful])
    first, second = chain.for_run(), chain.for_run()
    for fresh in (first, second):
        await fresh.evaluate(about(ASKED))
        assert (await fresh.evaluate(about(ASKED))).reason == "seen 2"
        assert fresh.policies[0] is stateless
    assert stateful.seen == 0
    assert GuardrailChain([stateless]).for_run().policies == (stateless,)


async def never(self: object) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("for_run", "why"),
    [
        (lambda self: 1 / 0, "ZeroDivisionError"),
        (lambda self: None, "None lacks evaluate"),
        (never, "for_run must not be async"),
        (5, "'int' object is not callable"),
        (lambda self: Policy(FINE, order="x"), "order must be a number"),
    ],
)
async def test_kf_g01_a_policy_that_cannot_be_made_ready_denies_what_it_would_have_seen(for_run: Any, why: str) -> None:
    broken = type("Broken", (Counts,), {"for_run": for_run, "phases": {POST_TOOL}, "name": "broken"})()
    chain = GuardrailChain([broken]).for_run()
    assert (await chain.evaluate(about(ASKED))).action is ALLOW
    outcome = await chain.evaluate(about(RETURNED))
    assert (outcome.action, outcome.policy) == (DENY, "broken")
    assert why in outcome.reason


def test_a_chain_is_a_list_of_guardrails_and_shows_what_is_in_it() -> None:
    chain = GuardrailChain([Counts()])
    assert isinstance(chain.policies[0], GuardrailPolicy)
    assert tuple(chain) == chain.policies == kt.Team("t", [kt.Member("a", lambda a: "x")], guardrails=chain).guardrails
    assert chain
    assert repr(chain).startswith("GuardrailChain([<")
