"""The guardrails that watch tool calls: what each writes down, warns of and stops."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from kairo_team.governance import (
    GuardrailAction,
    GuardrailChain,
    GuardrailContext,
    GuardrailPhase,
    ToolInput,
    ToolOutput,
)
from kairo_team.governance.policies import McpPolicy, McpSecurityPolicy, ToolAudit, ToolLoop
from tests.governance.policy_rig import about, decide, got

pytestmark = pytest.mark.anyio

ALLOW, DENY, MODIFY, WARN = GuardrailAction


# ---------------------------------------------------------------- tool-audit


async def test_an_audit_writes_a_line_for_every_call_and_result(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    chain = GuardrailChain([ToolAudit(path)])
    metadata = {
        "run_id": "r",
        "task_id": "t",
        "server": "files",
        "tool": "read",
        "side_effect": "read",
        "purpose": "generate",
    }
    first = await chain.evaluate(about(ToolInput("files_read", {"path": "a\nb", "n": [1]}), **metadata))
    second = await chain.evaluate(about(ToolOutput("files_read", {"text": "gr\u00fc\u00dfe\ud800"}), **metadata))
    assert (first.action, second.action) == (ALLOW, ALLOW)
    called, returned = [json.loads(line) for line in path.read_text().splitlines()]
    assert called.pop("time") <= returned.pop("time")
    who = {
        "run_id": "r",
        "task_id": "t",
        "member": "writer",
        "tool": "files_read",
        "server": "files",
        "side_effect": "read",
    }
    assert called == {"phase": "pre_tool", **who, "arguments": {"path": "a\nb", "n": [1]}}
    assert returned == {"phase": "post_tool", **who, "result": {"text": "gr\u00fc\u00dfe\ud800"}}
    assert path.stat().st_mode & 0o077 == 0


async def test_an_audit_cuts_what_is_long_and_adds_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("before\n")
    await decide(ToolAudit(str(path), longest=4), got("x" * 50))
    before, line = path.read_text().splitlines()
    assert (before, json.loads(line)["result"], json.loads(line)["cut"]) == ("before", "xxxx", 50)


async def test_an_audit_takes_a_function_sync_or_async() -> None:
    records: list[Any] = []

    async def later(record: Any) -> None:
        await anyio.sleep(0.5)
        records.append(record)

    for sink in (records.append, later):
        await decide(ToolAudit(sink), got([1]))
    assert [record["result"] for record in records] == [[1], [1]]


async def test_audit_g18_an_audit_without_a_sink_writes_to_a_logger_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "kairo_team.audit"):
        await decide(ToolAudit(), about(ToolInput("send", {"to": "ann %s"})))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("kairo_team.audit", logging.INFO)
    written = json.loads(record.getMessage())
    assert (written["tool"], written["arguments"]) == ("send", {"to": "ann %s"})


def broken(record: Any) -> None:
    raise OSError("the disk is full")


async def broken_later(record: Any) -> None:
    raise OSError("the disk is full")


async def hangs(record: Any) -> None:
    await anyio.sleep_forever()


@pytest.mark.parametrize("sink", [broken, broken_later, hangs, "/no/such/folder/audit.jsonl", "/"])
async def test_kf_g01_an_audit_sink_that_fails_changes_nothing(sink: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Other systems let the call pass unlooked at, or failed it. Here it is only logged."""
    after = ToolLoop()
    with caplog.at_level(logging.WARNING, "kairo_team"):
        outcome = await GuardrailChain([ToolAudit(sink), after]).evaluate(about(ToolInput("t", {"x": 1})))
    assert (outcome.action, outcome.payload.text, len(outcome.trail)) == (ALLOW, '{"x": 1}', 2)
    assert "tool-audit: a record of 'target' is lost" in caplog.text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
async def test_an_audit_does_not_wait_for_the_reader_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert (await decide(ToolAudit(tmp_path / "pipe"), got("x"))).action is ALLOW


async def test_cancellation_passes_through_an_audit() -> None:
    with anyio.move_on_after(0.5) as scope:
        await decide(ToolAudit(hangs, patience=60), got("x"))
    assert scope.cancelled_caught


# ---------------------------------------------------------------- tool-loop


def call(name: str = "search", *, member: str = "writer", task: str = "t", **arguments: Any) -> GuardrailContext:
    return about(ToolInput(name, arguments), member=member, run_id="r", task_id=task)


async def actions(chain: GuardrailChain, contexts: Sequence[GuardrailContext]) -> str:
    """Return the first letters of what is decided about calls in turn."""
    return "".join([(await chain.evaluate(context)).action.value[0] for context in contexts])


async def test_the_same_call_in_a_row_is_warned_of_then_denied() -> None:
    chain = GuardrailChain([ToolLoop()])
    assert await actions(chain, [call(q="x", n=1)] * 7) == "aawwddd"
    outcome = await chain.evaluate(call(n=1, q="x"))
    assert outcome.reason == "'search' is called with the same arguments 8 times in a row: try something else"


@pytest.mark.parametrize("between", [call(q="y"), call("fetch", q="x"), call(), call(q=["x"])])
async def test_kf_g10_a_different_call_begins_the_count_anew(between: GuardrailContext) -> None:
    """Other systems counted every identical call of the process and never began anew."""
    same = call(q="x")
    chain = GuardrailChain([ToolLoop()])
    assert await actions(chain, [same, same, between, same, same, same, between, same, same]) == "aaaaawaaa"


async def test_kf_g10_each_run_counts_for_itself() -> None:
    chain = GuardrailChain([ToolLoop()])
    for _ in range(3):
        assert await actions(chain.for_run(), [call(q="x")] * 5) == "aawwd"
    other_run = about(ToolInput("search", {"q": "x"}), run_id="other", task_id="t")
    assert await actions(chain, [call(q="x"), call(q="x"), other_run, other_run, call(q="x")]) == "aaaaw"


async def test_kf_g10_members_and_tasks_at_work_at_once_do_not_count_together() -> None:
    chain = GuardrailChain([ToolLoop()]).for_run()
    turns = [call(q="x"), call(q="x", member="editor"), call(q="x", task="u")] * 2
    assert await actions(chain, turns) == "aaaaaa"
    assert await actions(chain, [call(q="x"), call(q="y", member="editor"), call(q="x")]) == "waw"


async def test_the_numbers_can_be_chosen_and_for_run_keeps_them() -> None:
    chain = GuardrailChain([ToolLoop(2, 3, order=4)]).for_run()
    assert chain.policies == (ToolLoop(2, 3, order=4),)
    assert await actions(chain, [call()] * 4) == "awdd"


async def test_a_loop_is_one_of_calls_and_of_nothing_else() -> None:
    policy = ToolLoop()
    for _ in range(9):
        assert (await policy.evaluate(got("same"))).action is ALLOW


# ---------------------------------------------------------------- mcp-policy

ALL, SAFE, NONE = McpSecurityPolicy


@pytest.mark.parametrize(
    ("policy", "server", "tool", "allowed"),
    [
        (McpPolicy(), None, "anything", True),
        (McpPolicy(), "files", "read", False),
        (McpPolicy(allowed=["read"]), "files", "read", True),
        (McpPolicy(allowed=["read"]), "disk", "read", True),
        (McpPolicy(allowed=["files/read"]), "files", "read", True),
        (McpPolicy(allowed=["files/read"]), "disk", "read", False),
        (McpPolicy(allowed=["files_read"]), "files", "read", False),
        (McpPolicy(allowed=["files/read"]), "disk", "files/read", False),
        (McpPolicy(allowed=["disk/files/read"]), "disk", "files/read", True),
        (McpPolicy(allowed=["read"], denied=["files/read"]), "files", "read", False),
        (McpPolicy(allowed=["files/read"], denied=["read"]), "files", "read", False),
        (McpPolicy(ALL), "files", "read", True),
        (McpPolicy(ALL, denied=["delete"]), "files", "delete", False),
        (McpPolicy(ALL, denied=["files/delete"]), "files", "delete", False),
        (McpPolicy(ALL, denied=["files/delete"]), "disk", "delete", True),
        (McpPolicy(ALL, servers=["files"]), "disk", "read", False),
        (McpPolicy(ALL, servers=["files"]), "files", "read", True),
        (McpPolicy(ALL, servers=[]), "files", "read", False),
        (McpPolicy(SAFE, servers=["files"], allowed=["read"]), "disk", "read", False),
        (McpPolicy(NONE, allowed=["read"]), "files", "read", False),
        (McpPolicy(NONE), None, "read", True),
    ],
)
async def test_kf_g08_lists_are_compared_with_the_servers_own_names(
    policy: McpPolicy, server: str | None, tool: str, allowed: bool
) -> None:
    """Other systems compared them with prefixed names: the documented lists blocked everything, or nothing."""
    assert (policy.refusal(server, tool) is None) is allowed
    known_to_the_model = ToolInput(f"{server}_{tool}".replace("/", "_"), {})
    outcome = await GuardrailChain([policy]).evaluate(about(known_to_the_model, server=server, tool=tool))
    assert outcome.action is (ALLOW if allowed else DENY)
    assert outcome.reason == (policy.refusal(server, tool) or "")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (McpPolicy(NONE, servers=["a"], denied=["read"]), "the MCP server 'files' is not among those .* used: 'a'"),
        (McpPolicy(NONE, denied=["read"]), "no tool of an MCP server may be used"),
        (McpPolicy(denied=["read"]), "the tool 'read' of the MCP server 'files' is on the denied list"),
        (McpPolicy(), "the tool 'read' of the MCP server 'files' is not on the allowed list"),
    ],
)
def test_an_unknown_server_then_deny_all_then_denied_then_allowed(policy: McpPolicy, reason: str) -> None:
    assert re.fullmatch(reason, policy.refusal("files", "read") or "")


async def test_kf_g08_a_tool_whose_own_name_is_not_known_is_denied() -> None:
    chain = GuardrailChain([McpPolicy(ALL, denied=["delete"])])
    nameless: list[dict[str, Any]] = [
        {"server": "files"},
        {"server": "files", "tool": None},
        {"server": 5, "tool": "read"},
    ]
    for metadata in nameless:
        assert (await chain.evaluate(about(ToolInput("files_delete", {}), **metadata))).action is DENY


async def test_the_mcp_policy_goes_first_and_looks_at_calls_only() -> None:
    first = McpPolicy()
    chain = GuardrailChain([ToolLoop(order=-1e300), first])
    assert chain.policies[0] is first
    assert [GuardrailChain([first]).covers(phase) for phase in GuardrailPhase] == [False, False, True, False]
    assert McpPolicy("allow_all") == McpPolicy(ALL)  # type: ignore[arg-type]  # as a configuration writes it
