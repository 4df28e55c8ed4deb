"""Guardrails that fail: a policy that raises, answers nonsense or cannot be made ready denies."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

import anyio
import pytest

import kairo_team as kt
from kairo_team.governance import (
    GuardrailAction,
    GuardrailChain,
    GuardrailContext,
    GuardrailDecision,
    GuardrailPhase,
    ModelOutput,
    ToolInput,
    ToolOutput,
)
from tests.governance.guardrail_doubles import (
    ASKED,
    CALLING,
    FINE,
    REPLIED,
    RETURNED,
    Counts,
    Decide,
    Policy,
    about,
)

pytestmark = pytest.mark.anyio

ALLOW, DENY = GuardrailAction.ALLOW, GuardrailAction.DENY
FIVE: Any = 5


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
    """One that can be seen to be none is refused where it is given; what else returns no awaitable denies."""

    class Seen:
        def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            return FINE

    class Sync:
        def evaluate(self, context: GuardrailContext) -> Awaitable[GuardrailDecision]:
            fine: Any = FINE
            return cast("Awaitable[GuardrailDecision]", fine)

    seen: Any = Seen()
    sync: Any = Sync()
    needed = r"Seen\.evaluate is not an async function: write async def evaluate\(context\)"
    with pytest.raises(ValueError, match=needed):
        GuardrailChain([seen])
    outcome = await GuardrailChain([sync]).evaluate(about(ASKED))
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
    broken = type("Broken", (Counts,), {"for_run": for_run, "phases": {GuardrailPhase.POST_TOOL}, "name": "broken"})()
    chain = GuardrailChain([broken]).for_run()
    assert (await chain.evaluate(about(ASKED))).action is ALLOW
    outcome = await chain.evaluate(about(RETURNED))
    assert (outcome.action, outcome.policy) == (DENY, "broken")
    assert why in outcome.reason
