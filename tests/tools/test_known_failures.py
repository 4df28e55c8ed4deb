"""What others got wrong about tools, where the pipeline alone can be asked: one test or more per row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from kairo_team.budget import Budget
from kairo_team.governance import Governor
from kairo_team.governance.guardrails import GuardrailDecision, GuardrailPhase
from kairo_team.messages import ToolCall
from kairo_team.testing import FakeClock
from kairo_team.tools import (
    CircuitBreaker,
    CircuitBreakers,
    PermissionDecision,
    Rule,
    RuleGuard,
    Toolbox,
    ToolPermissions,
    ToolPipeline,
    as_tool,
)
from tests.tools.stages import Guard, Policy, pipeline, simple, with_arguments

pytestmark = pytest.mark.anyio

PRE, POST = GuardrailPhase.PRE_TOOL, GuardrailPhase.POST_TOOL


async def test_kf_g03_what_a_guardrail_puts_into_a_result_is_sanitized_too() -> None:
    """G03: sanitize ran before POST_TOOL."""

    def unmask(context: Any) -> GuardrailDecision:
        return GuardrailDecision.modify("more", context.payload.with_text("the key is hunter2" + "x" * 60_000))

    seen = Policy(POST, answer=unmask)
    result = await pipeline(seen, secrets=["hunter2"]).call(simple(lambda _: "hunter2"), {})
    assert seen.shown[0].payload.text == "hunter2", "the guardrail sees what the tool said"
    assert result.text.startswith("the key is [secret]")
    assert result.text.endswith("[10019 more characters left out]")
    denies = Policy(POST, answer=GuardrailDecision.deny("hunter2 must not leave"))
    assert (await pipeline(denies, secrets=["hunter2"]).call(simple(str), {})).text == "[secret] must not leave"


async def test_kf_g04_arguments_changed_by_a_guardrail_are_checked_again() -> None:
    """G04: arguments changed by PRE_TOOL not checked again."""
    ran: list[Any] = []
    guard = Guard(
        lambda _tool, arguments: (
            PermissionDecision.allow() if arguments["path"] == "safe" else PermissionDecision.deny("unsafe path")
        )
    )
    policy = Policy(PRE, answer=lambda context: with_arguments(context, path="/etc/passwd"))
    result = await pipeline(policy, guard=guard).call(simple(ran.append), {"path": "safe"})
    assert (result.refused_by, result.text, ran) == ("permission-guard", "unsafe path", [])
    assert [arguments["path"] for _, arguments, _ in guard.asked] == ["safe", "/etc/passwd"]
    assert len(policy.shown) == 1, "once: guardrails do not see what they changed"
    policy.answer = lambda context: with_arguments(context, path="safe")
    await pipeline(policy, guard=guard).call(simple(ran.append), {"path": "safe", "more": 1})
    assert ran == [{"path": "safe"}], "the tool runs with what was checked last"


async def test_kf_g06_the_permission_guard_sees_every_tool_whatever_its_name() -> None:
    """G06: the permission guard saw only tools named bash, write, edit."""
    guard = Guard(PermissionDecision.deny("no"))
    way = pipeline(guard=guard, mcp=Everything())

    async def function(a: int = 1) -> int:
        return a

    tools = [
        *(simple(str, name=name) for name in ("bash", "write", "edit", "x", "calculator", "Read-File_2")),
        *(simple(str, name=f"of_{effect}", side_effect=effect) for effect in ("read", "write", "system")),
        simple(str, name="files_list", server="files", server_tool="list", side_effect="read"),
        as_tool(function),
    ]
    box = Toolbox(way, tools)
    results = await box.run([ToolCall(str(n), tool.name, {}) for n, tool in enumerate(tools)])
    assert {result.text for result in results} == {"no"}
    assert sorted(name for name, _, _ in guard.asked) == sorted(tool.name for tool in tools)
    assert {effect for name, _, effect in guard.asked if name in ("bash", "x", "function")} == {"system"}


class Everything:
    """An MCP policy that allows every tool of every server."""

    name, phases, order = "mcp-policy", frozenset({PRE}), -1000

    def refusal(self, server: str, tool: str) -> None:
        return None

    async def evaluate(self, context: Any) -> GuardrailDecision:
        return GuardrailDecision.allow()


async def test_kf_g07_a_circuit_closes_again_and_a_cancel_is_no_failure() -> None:
    """G07: circuit breaker never closed again; a user's cancel counted as failure."""
    clock = FakeClock()
    breakers = CircuitBreakers(CircuitBreaker(failures=3, pause=30), clock)
    mode = "hang"

    async def work(_: Mapping[str, Any]) -> str:
        if mode == "hang":
            await anyio.sleep_forever()
        if mode == "fail":
            raise OSError("down")
        return "fine"

    way, tool = pipeline(breakers=breakers), simple(work)
    for _ in range(5):
        with anyio.move_on_after(1):
            await way.call(tool, {})
    mode = "fail"
    results = [await way.call(tool, {}) for _ in range(4)]
    assert [result.refused_by for result in results] == [None, None, None, "circuit-breaker"]
    clock.advance(30)
    mode = "hang"
    with anyio.move_on_after(1):
        await way.call(tool, {})
    mode = "fine"
    assert [(await way.call(tool, {})).text for _ in range(2)] == ["fine", "fine"], (
        "a cancelled trial leaves it open to another"
    )


@pytest.mark.parametrize(
    "path", ["../key", "src/../../key", "src/door/key", "src/door/../key", "{outside}/key", "src/key"]
)
async def test_kf_g12_no_link_and_no_dots_leave_the_workspace(tmp_path: Path, path: str) -> None:
    """G12: a symlink or `..` left the workspace; the glob saw only the name."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "src").mkdir(parents=True)
    outside.mkdir()
    for place in (tmp_path, outside):
        (place / "key").write_text("secret")
    (work / "src/door").symlink_to(outside)
    (work / "src/key").symlink_to(outside / "key")
    (work / "src/a.txt").write_text("fine")

    async def read_file(path: str) -> str:
        return (work / path).read_text()

    guard = RuleGuard([Rule.allow("read_file(src/**)")], root=work)
    way = ToolPipeline(Governor(Budget()), permissions=ToolPermissions(guard))
    assert (await way.call(as_tool(read_file), {"path": "src/a.txt"})).text == "fine"
    result = await way.call(as_tool(read_file), {"path": path.format(outside=outside)})
    assert (result.is_error, result.refused_by) == (True, "default deny")
    assert "secret" not in result.text


async def test_kf_t12_two_tasks_of_one_agent_see_tools_of_their_own() -> None:
    """T12: two parallel tasks shared one agent instance; tool limits swapped on it by reflection."""

    class Agent:
        def __init__(self) -> None:
            self.tools = [simple(self._work, name="look", side_effect="read"), simple(self._work, name="change")]

        async def _work(self, arguments: Mapping[str, Any]) -> str:
            await anyio.sleep(1)
            return "done"

        async def run(self, way: ToolPipeline) -> tuple[tuple[str, ...], list[str | None]]:
            box = Toolbox(way, self.tools)
            refused = list[str | None]()
            for _ in range(3):
                results = await box.run([ToolCall("0", "look", {}), ToolCall("1", "change", {})])
                refused += [result.refused_by for result in results]
            return box.names, refused

    agent, seen = Agent(), dict[str, Any]()

    async def task(name: str, allowed: list[str] | None) -> None:
        seen[name] = await agent.run(pipeline(allowed=allowed))

    async with anyio.create_task_group() as group:
        group.start_soon(task, "reader", ["look"])
        group.start_soon(task, "writer", ["change"])
        group.start_soon(task, "both", None)
    assert seen == {
        "reader": (("look",), [None, "allowed-tools"] * 3),
        "writer": (("change",), ["allowed-tools", None] * 3),
        "both": (("look", "change"), [None, None] * 3),
    }
