"""A chain of guardrails: who is asked and when, and what comes of it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.governance import (
    GuardrailAction,
    GuardrailChain,
    GuardrailContext,
    GuardrailDecision,
    GuardrailOutcome,
    GuardrailPhase,
    GuardrailPolicy,
    ToolOutput,
)
from tests.governance.guardrail_doubles import (
    ASKED,
    CALLING,
    FINE,
    PAYLOADS,
    REPLIED,
    RETURNED,
    Counts,
    Decide,
    Policy,
    about,
    added,
    each_payload,
    says,
)

pytestmark = pytest.mark.anyio

ALLOW, DENY, MODIFY, WARN = GuardrailAction
PRE_MODEL, POST_MODEL, PRE_TOOL, POST_TOOL = GuardrailPhase


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
        ([Unsayable()], "'Unsayable' cannot return its name, order or phases: OSError: away"),
    ],
)
def test_what_is_no_guardrail_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GuardrailChain(given)


# ---------------------------------------------------------------- one run


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


def test_a_chain_is_a_list_of_guardrails_and_shows_what_is_in_it() -> None:
    chain = GuardrailChain([Counts()])
    assert isinstance(chain.policies[0], GuardrailPolicy)
    assert tuple(chain) == chain.policies == kt.Team("t", [kt.Member("a", lambda a: "x")], guardrails=chain).guardrails
    assert chain
    assert repr(chain).startswith("GuardrailChain([<")
