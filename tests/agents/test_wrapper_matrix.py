"""Every wrapper of another library is governed alike: each row of docs/wrappers-matrix.md, column by column."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.governance import GuardrailDecision, GuardrailPhase
from kairo_team.permissions import PermissionDecision
from tests.agents.matrix_table import MORE, table
from tests.agents.rigs import COLUMNS, MODULES, Ask, Reply, Rig, RigTool, each_rig, rigs
from tests.agents.stage import ROLE, Counter, Policy, Stage, replacing

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "wrappers-matrix.md"
# ---------------------------------------------------------------- the columns


async def hold(make: type[Rig]) -> None:
    """Sixteen at once under 250 tokens spend no token more."""
    rig = make(lambda _: Reply("one two three", prompt_tokens=40, completion_tokens=40, seconds=1))
    stage = Stage(rig.agent())
    result = await stage.run(kt.Budget(tokens=250), tasks=16)
    assert rig.told, "a call was admitted"
    assert result.usage.tokens == sum(reply.prompt_tokens + reply.completion_tokens for reply in rig.told)
    assert result.usage.tokens <= 250
    assert len(rig.told) < 16
    held = [event.held for event in stage.recorder.of(events.ModelCalled)]
    assert all(amount <= 250 for amount in held)


async def cap(make: type[Rig]) -> None:
    """A reply never gets longer than what is left pays for."""
    rig = make([Reply("word " * 3000, completion_tokens=3000)])
    stage = Stage(rig.agent())
    result = await stage.run(kt.Budget(tokens=400, loops=1))
    (asked,) = rig.asked
    assert asked.max_tokens is not None
    assert 0 < asked.max_tokens < 400
    assert rig.told[0].completion_tokens == asked.max_tokens
    assert result.usage.tokens <= 400


async def halt(make: type[Rig]) -> None:
    """A halt crosses the library untouched: at a turn, and out of a tool."""
    look = Counter()
    rig = make([Reply("first", [Ask("look", "x")]), Reply("never")], [look.tool()])
    stage = Stage(rig.agent())
    result = await stage.run(kt.Budget(loops=1))
    if rig.wraps_up:
        assert (stage.raised, result.usage.loops) == ([], 1)
        await _halt_in_a_tool(make)
        return
    (error,) = stage.raised
    assert type(error) is kt.HaltError
    assert error.reason is kt.HaltReason.LOOP_BUDGET_EXCEEDED
    assert len(rig.told) == 1
    assert result.halt is kt.HaltReason.LOOP_BUDGET_EXCEEDED
    await _halt_in_a_tool(make)


async def _halt_in_a_tool(make: type[Rig]) -> None:
    halted = kt.HaltError(kt.HaltReason.CANCELLED, kt.Usage(), "somewhere")

    async def stop(text: str) -> str:
        raise halted

    rig = make([Reply("first", [Ask("stop", "x")]), Reply("never")], [RigTool("stop", stop)])
    stage = Stage(rig.agent())
    await stage.run()
    assert stage.raised == [halted]
    assert len(rig.told) == 1


async def cancel(make: type[Rig]) -> None:
    """A call in flight ends with its attempt, and with its run."""
    rig = make([Reply("late", seconds=1000)])
    result = await Stage(rig.agent()).run(task_timeout=2.0)
    assert result.outcomes[0].status is kt.TaskStatus.FAILED
    assert (len(rig.asked), rig.told, rig.in_flight) == (1, [], 0)

    rig = make([Reply("late", seconds=1000)])
    with anyio.move_on_after(2) as scope:
        await Stage(rig.agent()).run()
    assert scope.cancelled_caught
    assert (len(rig.asked), rig.told, rig.in_flight) == (1, [], 0)


async def usage(make: type[Rig]) -> None:
    """What the model and the tools used is booked, and told by the output."""
    look = Counter()
    script = [Reply("a", [Ask("look", "x"), Ask("look", "y")], 11, 7), Reply("b", [Ask("look", "z")], 23, 5)]
    rig = make([*script, Reply("done", prompt_tokens=31, completion_tokens=3)], [look.tool()])
    stage = Stage(rig.agent())
    result = await stage.run(kt.Budget(tokens=100_000, tool_calls=10))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "done")
    spent = result.usage
    assert (spent.prompt_tokens, spent.completion_tokens, spent.loops, spent.tool_calls) == (65, 15, 3, 3)
    told = stage.output
    assert (told.usage.prompt_tokens, told.usage.completion_tokens) == (65, 15)
    assert (told.turns_completed, told.tool_calls_executed) == (3, 3)
    assert sorted(look.calls) == ["x", "y", "z"]


async def partial(make: type[Rig]) -> None:
    """What was said before the end is not lost."""
    look = Counter()
    rig = make([Reply("so far", [Ask("look", "x")]), Reply("late", seconds=1000)], [look.tool()])
    result = await Stage(rig.agent()).run(task_timeout=2.0)
    artifact = result.outcomes[0].artifact
    assert artifact is not None
    assert artifact.partial
    assert "so far" in artifact.text


async def guardrails(make: type[Rig]) -> None:
    """All four phases see, change and deny what passes through the library."""
    await _guardrails_change(make)
    await _guardrails_deny_models(make)
    await _guardrails_deny_tools(make)


async def _guardrails_change(make: type[Rig]) -> None:
    look = Counter()
    script = [Reply("thinking", [Ask("look", "there")]), Reply("all is well")]
    rig = make(script, [look.tool()])
    policies = [
        replacing(GuardrailPhase.PRE_MODEL, "brief", "careful"),
        replacing(GuardrailPhase.POST_MODEL, "well", "good"),
        replacing(GuardrailPhase.PRE_TOOL, "there", "here"),
        replacing(GuardrailPhase.POST_TOOL, "found", "seen"),
    ]
    result = await Stage(rig.agent(), team={"guardrails": policies}).run()
    assert result.output == "all is good"
    assert look.calls == ["here"]
    assert "careful" in rig.asked[0].text
    assert "brief" not in rig.asked[0].text
    assert "seen here" in rig.asked[1].text
    assert "found" not in rig.asked[1].text


async def _guardrails_deny_models(make: type[Rig]) -> None:
    for phase, told in ((GuardrailPhase.PRE_MODEL, 0), (GuardrailPhase.POST_MODEL, 1)):
        look = Counter()
        rig = make([Reply("secret", [Ask("look", "x")]), Reply("never")], [look.tool()])
        deny = Policy(phase, lambda _: GuardrailDecision.deny("no such thing"))
        stage = Stage(rig.agent(), team={"guardrails": [deny]})
        result = await stage.run()
        assert (len(rig.told), look.calls) == (told, [])
        assert result.usage.tokens == 15 * told
        assert result.outcomes[0].status is kt.TaskStatus.FAILED
        assert "no such thing" in (result.outcomes[0].error or "")
        (error,) = stage.raised
        assert type(error).__name__ == "GuardrailDenied"


async def _guardrails_deny_tools(make: type[Rig]) -> None:
    for phase, calls in ((GuardrailPhase.PRE_TOOL, []), (GuardrailPhase.POST_TOOL, ["x"])):
        look = Counter()
        rig = make([Reply("first", [Ask("look", "x")]), Reply("done")], [look.tool()])
        deny = Policy(phase, lambda _: GuardrailDecision.deny("not that one"))
        result = await Stage(rig.agent(), team={"guardrails": [deny]}).run()
        assert (result.output, look.calls) == ("done", calls)
        assert "not that one" in rig.asked[1].text
        assert "found" not in rig.asked[1].text


async def permissions(make: type[Rig]) -> None:
    """A tool that is not allowed does not run; the permission guard sees every call and its side effect."""
    await _only_allowed_tools_run(make)
    await _the_guard_sees_every_call(make)


async def _only_allowed_tools_run(make: type[Rig]) -> None:
    look, write = Counter(), Counter()
    rig = make([Reply("first", [Ask("write", "x")]), Reply("done")], [look.tool(), write.tool("write", "write")])
    await Stage(rig.agent(), replace(ROLE, allowed_tools=["look"])).run()
    assert write.calls == []
    assert rig.asked[0].tools == ("look",)


async def _the_guard_sees_every_call(make: type[Rig]) -> None:
    seen: list[tuple[str, dict[str, Any], str]] = []

    class Guard:
        async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: str) -> PermissionDecision:
            seen.append((tool, dict(arguments), side_effect))
            return PermissionDecision.allow() if tool == "look" else PermissionDecision.deny("hands off")

    look, write = Counter(), Counter()
    script = [Reply("one", [Ask("look", "x")]), Reply("two", [Ask("write", "y")]), Reply("done")]
    rig = make(script, [look.tool(), write.tool("write", "write")])
    result = await Stage(rig.agent(), team={"permissions": kt.ToolPermissions(guard=Guard())}).run()
    assert seen == [("look", {"text": "x"}, "read"), ("write", {"text": "y"}, "write")]
    assert (look.calls, write.calls) == (["x"], [])
    assert "hands off" in rig.asked[2].text
    assert result.output == "done"


CHECKS: Mapping[str, Callable[[type[Rig]], Awaitable[None]]] = {
    "hold": hold,
    "cap": cap,
    "halt": halt,
    "cancel": cancel,
    "usage": usage,
    "partial": partial,
    "guardrails": guardrails,
    "permissions": permissions,
}


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("rig", each_rig())
async def test_kf_b10_a_wrapper_governs_what_its_row_says(rig: type[Rig], column: str) -> None:
    """B10: the halt was swallowed by callbacks, event buses, or flattened to RuntimeError(str)."""
    if column in rig.cannot:
        pytest.skip(f"cannot: {rig.cannot[column]}")
    await CHECKS[column](rig)


def test_what_a_rig_cannot_is_a_column() -> None:
    for rig in rigs():
        assert set(rig.cannot) <= set(COLUMNS)
    assert tuple(CHECKS) == COLUMNS


def test_the_page_shows_the_matrix() -> None:
    """Written by `python -m tests.agents.matrix_table`."""
    if len(list(rigs())) < len(MODULES):
        pytest.skip("a library of the table is not installed")
    if not PAGE.exists():
        pytest.skip("runs in the repository only")
    assert PAGE.read_text(encoding="utf-8").partition(MORE)[0] == table(rigs())
