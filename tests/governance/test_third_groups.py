"""Guardrails of runtime, team and member are three groups; a policy is shown a tool's result as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

import kairo_team as kt
from kairo_team.governance import GuardrailChain, GuardrailContext, GuardrailDecision, GuardrailPhase
from kairo_team.governance.guardrails import joined
from kairo_team.governance.policies import PiiRedactor
from tests.governance.guardrail_doubles import FINE, RETURNED, Policy, about

pytestmark = pytest.mark.anyio

POST = {GuardrailPhase.POST_TOOL}


def noting(name: str, asked: list[str], order: float) -> Policy:
    def decide(context: GuardrailContext) -> GuardrailDecision:
        asked.append(name)
        return FINE

    return Policy(decide, name=name, order=order, phases=POST)


async def use(returned: Any, *, runtime: Any = (), team: Any = (), member: Any = ()) -> str:
    """Have a member use a tool; return the text that the member got."""
    got: list[str] = []

    async def look() -> Any:
        """Look."""
        return returned

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        got.append((await context.tool(look)()).text)
        return "done"

    people = [kt.Member("a", agent, guardrails=member)]
    result = await kt.run(kt.Team("t", people, guardrails=team, runtime=kt.Runtime(guardrails=runtime)), "Do it.")
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    return got[0]


async def test_third_o19_the_groups_are_asked_one_after_the_other_whatever_their_orders() -> None:
    asked: list[str] = []
    await use(
        "x",
        runtime=[noting("runtime late", asked, 50), noting("runtime early", asked, 40)],
        team=[noting("team late", asked, 9), noting("team early", asked, -3)],
        member=[noting("member late", asked, -10), noting("member early", asked, -20)],
    )
    groups = ["runtime early", "runtime late", "team early", "team late", "member early", "member late"]
    assert asked == groups


async def test_third_o19_a_members_policy_sees_what_the_runtimes_redactor_left() -> None:
    sees = Policy(FINE, order=-100, phases=POST)
    text = await use("write to ann@example.org", runtime=[PiiRedactor(order=100)], member=[sees])
    assert [payload.text for payload in sees.shown] == ["write to [EMAIL]"] == [text]


async def test_third_o19_fresh_policies_of_a_run_keep_the_place_of_their_group() -> None:
    class Fresh(Policy):
        def for_run(self) -> Policy:
            return self

    asked: list[str] = []
    one, other = noting("first", asked, 5), noting("second", asked, 1)
    fresh = Fresh(one.decide, name="fresh", order=9, phases=POST)
    chain = joined(GuardrailChain([one, fresh]), GuardrailChain([other]))
    assert [policy.name for policy in chain.for_run().policies] == ["first", "fresh", "second"]  # type: ignore[attr-defined]  # doubles have names
    await chain.evaluate(about(RETURNED))
    assert asked == ["first", "first", "second"]


class Found(pydantic.BaseModel):
    name: str
    tags: list[str]


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ({"items": [1, "a"], "more": None}, {"items": (1, "a"), "more": None}),
        ([1, {"a": True}], (1, {"a": True})),
        (Found(name="n", tags=["t"]), {"name": "n", "tags": ("t",)}),
        (Point(3), {"x": 3}),
        (7, 7),
        (True, True),
        ("text", "text"),
        ('{"a": 1}', '{"a": 1}'),
        (None, ""),
        (b"abc", "abc"),
        (b"\xff\xfe\xfd", "[the tool returned 3 bytes, and only text can be shown to you]"),
        ({"x": float("inf")}, {"x": float("inf")}),
    ],
)
async def test_third_o20_a_policy_is_shown_the_json_value_that_a_tool_returned(returned: Any, shown: Any) -> None:
    sees = Policy(FINE, phases=POST)
    text = await use(returned, member=[sees])
    (payload,) = sees.shown
    assert payload.result == shown  # type: ignore[union-attr]  # of a tool
    assert type(payload.result) is type(shown) or not isinstance(shown, str | int)  # type: ignore[union-attr]  # the same
    assert await use(returned) == text, "a policy that allows changes nothing"


async def test_third_o20_a_policy_along_the_documented_example_decides_about_the_value() -> None:
    def decide(context: GuardrailContext) -> GuardrailDecision:
        result = context.payload.result  # type: ignore[union-attr]  # of a tool
        return FINE if result["ok"] else GuardrailDecision.deny("it is not ok")

    policy = Policy(decide, phases=POST)
    assert await use({"ok": True}, member=[policy]) == '{"ok":true}'
    assert await use({"ok": False}, member=[policy]) == "it is not ok"
