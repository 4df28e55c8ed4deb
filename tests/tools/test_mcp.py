"""MCP servers as tool sources: real servers, over stdio and streamable HTTP, in real time."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import kairo_team as kt
from kairo_team.governance import Governor
from kairo_team.governance.policies.mcp import McpPolicy, McpSecurityPolicy
from kairo_team.testing import ScriptedModel
from kairo_team.tools.connections import Connections
from kairo_team.tools.mcp import McpServer
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.pipeline import ToolPipeline
from kairo_team.tools.tool import Tool

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.slow,
    # The SDK leaves a streamed reply when it has what it waited for; trio says so of each generator in it.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning"),
]

SERVERS = Path(__file__).parent / "mcp_servers"
PATIENCE = 30.0
"""Seconds that nothing here needs, also on a busy machine."""


def listed(name: str, **schema: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object", **schema}}


def raw(*, timeout: float = PATIENCE, name: str = "raw", **plan: Any) -> McpServer:
    """A server that behaves as planned; see mcp_servers/raw.py."""
    options = {option: plan.pop(option) for option in list(plan) if option in McpServer.__dataclass_fields__}
    return McpServer.stdio(
        name, sys.executable, SERVERS / "raw.py", json.dumps(plan), request_timeout=timeout, **options
    )


def by_tool(tools: Any) -> dict[str, Tool]:
    return {tool.server_tool: tool for tool in tools}


async def called(tool: Tool, **arguments: Any) -> Any:
    assert tool.check is not None
    return await tool.call(tool.check(arguments))


@asynccontextmanager
async def served() -> AsyncGenerator[Connections]:
    connections = Connections()
    async with anyio.create_task_group() as tasks:
        await tasks.start(connections.serve)
        yield connections
        tasks.cancel_scope.cancel()


def governed(policy: McpPolicy | None) -> ToolPipeline:
    return ToolPipeline(Governor(), permissions=ToolPermissions(mcp=policy))


def alive(pid: int) -> bool:
    """Whether there is such a process, be it one that ended and that nobody took notice of."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def started_http() -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, str(SERVERS / "sdk.py"), "http"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def stopped(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture(autouse=True)
def _tidy() -> Generator[None]:
    """Let those generators be collected here, not in somebody else's test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def http_url() -> Generator[str]:
    process, port = started_http()
    yield f"http://127.0.0.1:{port}/mcp"
    stopped(process)


@pytest.fixture(params=["stdio", "http"])
def reference(request: pytest.FixtureRequest, http_url: str) -> McpServer:
    """The same server, made with the official SDK, over both transports."""
    if request.param == "http":
        return McpServer.http("reference", http_url)
    return McpServer.stdio("reference", sys.executable, SERVERS / "sdk.py", "stdio")


# -- a server as it should be -----------------------------------------------------------------------


async def test_the_tools_of_a_real_server_are_offered_called_and_checked(reference: McpServer) -> None:
    async with served() as connections:
        tools = by_tool(await connections.tools(reference))
        add = tools["add"]
        assert (add.name, add.server, add.description) == ("reference_add", "reference", "Add two numbers.")
        assert add.parameters["required"] == ("a", "b")
        assert json.loads(await called(add, a=2, b=3)) == {"total": 5}
        assert await called(tools["files.read"], path="a.txt") == "content of a.txt"
        assert await called(tools["picture"]) == "Look:\n[image image/png, 12 kB]"
        with pytest.raises(RuntimeError, match="Error executing tool fail"):
            await called(tools["fail"])
        with pytest.raises(ValueError, match=r"\$\.a: 'x' is not of type 'integer'"):
            await called(add, a="x", b=3)
        assert len(await called(tools["big"], characters=3_000_000)) == 3_000_000
        assert json.loads(await called(add, a=1, b=1)) == {"total": 2}, "and all goes on after an error"


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_kf_g09_no_more_calls_are_under_way_than_allowed(transport: str, http_url: str) -> None:
    if transport == "http":
        server = McpServer.http("reference", http_url, max_concurrent_calls=3)
    else:
        server = McpServer.stdio("reference", sys.executable, SERVERS / "sdk.py", "stdio", max_concurrent_calls=3)
    most: list[int] = []

    async def work(tool: Tool) -> None:
        most.append(int(await called(tool, seconds=0.05)))

    async with server.connect() as tools, anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(work, by_tool(tools)["busy"])
    assert max(most) == 3, "as the server itself measured"
    assert len(most) == 12


async def test_kf_g09_arguments_are_checked_before_the_call_and_results_after_it(tmp_path: Path) -> None:
    record = tmp_path / "record"
    schema = {"properties": {"path": {"type": "string", "minLength": 1}}, "required": ["path"]}
    output = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    lies = {"content": [{"type": "text", "text": "big"}], "structuredContent": {"size": "big"}}
    tools = [listed("stat", **schema) | {"outputSchema": output}]
    async with raw(tools=tools, results={"stat": lies}, record=str(record)).connect() as offered:
        pipeline = governed(McpPolicy(McpSecurityPolicy.ALLOW_ALL))
        refused = await pipeline.call(offered[0], {"path": 3})
        assert refused.is_error
        assert "$.path: 3 is not of type 'string'" in refused.text
        assert "tools/call" not in record.read_text(encoding="utf-8"), "the server never saw it"
        lied = await pipeline.call(offered[0], {"path": "a"})
        assert lied.is_error
        assert "breaks its own word" in lied.text
        assert "$.size: 'big' is not of type 'integer'" in lied.text


async def test_kf_g08_lists_name_tools_as_the_server_does() -> None:
    async def outcomes(policy: McpPolicy | None) -> list[bool]:
        pipeline = governed(policy)
        results = [await pipeline.call(tools[name], {}) for name in ("files.read", "wipe")]
        offered = [pipeline.refusal(tools[name]) is None for name in ("files.read", "wipe")]
        assert offered == [not result.is_error for result in results], "what is refused is not offered either"
        return offered

    async with raw(name="my files", tools=[listed("files.read"), listed("wipe")]).connect() as listed_tools:
        tools = by_tool(listed_tools)
        assert tools["files.read"].name == "my_files_files_read"
        everything = McpSecurityPolicy.ALLOW_ALL
        assert await outcomes(None) == [False, False], "only what is listed"
        assert await outcomes(McpPolicy(allowed=["files.read"])) == [True, False]
        assert await outcomes(McpPolicy(allowed=["my files/files.read"])) == [True, False]
        assert await outcomes(McpPolicy(allowed=["my_files_files_read"])) == [False, False], "no name of ours"
        assert await outcomes(McpPolicy(everything, denied=["wipe"])) == [True, False]
        assert await outcomes(McpPolicy(everything, denied=["my files/wipe"])) == [True, False]
        assert await outcomes(McpPolicy(everything, servers=["others"])) == [False, False]
        assert await outcomes(McpPolicy(McpSecurityPolicy.DENY_ALL, allowed=["wipe"])) == [False, False]


async def test_every_page_of_the_list_is_read() -> None:
    pages = [[listed(f"t{page}{n}") for n in range(3)] for page in range(4)]
    async with raw(tools=pages).connect() as tools:
        assert [tool.server_tool for tool in tools] == [f"t{page}{n}" for page in range(4) for n in range(3)]


async def test_side_effects_are_declared_here_and_the_server_is_believed_only_when_trusted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = [listed(name) | {"annotations": {"readOnlyHint": True}} for name in ("look", "edit")] + [listed("run")]
    declared: Mapping[str, Any] = {"edit": "write", "nope": "read"}
    async with raw(tools=tools, side_effects=declared).connect() as offered:
        assert [tool.side_effect for tool in offered] == ["system", "write", "system"]
    assert "has no tools named 'nope'" in caplog.text
    async with raw(tools=tools, side_effects=declared, trust_annotations=True).connect() as offered:
        assert [tool.side_effect for tool in offered] == ["read", "write", "system"]


async def test_members_of_a_run_share_one_connection_and_see_only_what_the_policy_allows(tmp_path: Path) -> None:
    record = tmp_path / "record"
    tools = [listed("look"), listed("wipe")]

    def member(name: str) -> tuple[kt.Member, ScriptedModel]:
        calls = [kt.ToolCall("1", "raw_look", {"by": name}), kt.ToolCall("2", "raw_wipe")]
        model = ScriptedModel([kt.ModelResponse("", tool_calls=calls), f"{name} is done"])
        return kt.Member(name, kt.MiniAgent(model, tools=[raw(tools=tools, record=str(record))])), model

    (anna, model), (ben, _) = member("anna"), member("ben")
    permissions = kt.ToolPermissions(mcp=McpPolicy(allowed=["look"]))
    team = kt.Team("pair", [anna, ben], permissions=permissions)
    plan = kt.TaskGraph([kt.Task(name, "Look.", member=name) for name in ("anna", "ben")])
    result = await kt.run(team, kt.TeamExecutionRequest("Look.", plan=plan))
    assert [outcome.artifact and outcome.artifact.text for outcome in result.outcomes] == [
        "anna is done",
        "ben is done",
    ]
    assert [tool.name for tool in model.calls[0].tools] == ["raw_look"]
    told = [message.text for message in model.calls[1].messages if message.role == "tool"]
    assert told == ['look did {"by": "anna"}', "the tool 'wipe' of the MCP server 'raw' is not on the allowed list"]
    sent = [json.loads(line)["method"] for line in record.read_text(encoding="utf-8").splitlines()]
    assert (sent.count("initialize"), sent.count("tools/call")) == (1, 2)


# -- what a result can hold ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": []}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [], "structuredContent": {"n": 1, "ä": [True]}}, '{"n": 1, "ä": [true]}'),
        ({"content": [{"type": "text", "text": "one"}], "structuredContent": {"n": 1}}, "one"),
        ({"content": [{"type": "audio", "data": "QUI=", "mimeType": "audio/wav"}]}, "[audio audio/wav, 2 B]"),
        (
            {"content": [{"type": "image", "data": "QUJD" * 10_000, "mimeType": "image/png"}]},
            "[image image/png, 30 kB]",
        ),
        (
            {"content": [{"type": "resource_link", "name": "a", "uri": "file:///a", "size": 2048}]},
            "[resource file:///a, 2 kB]",
        ),
        ({"content": [{"type": "resource_link", "name": "a", "uri": "file:///a"}]}, "[resource file:///a]"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "x://a", "mimeType": "text/plain", "text": "hé"}}]},
            "[resource x://a text/plain, 3 B]\nhé",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "x://a", "blob": "QUJD"}}]},
            "[resource x://a, 3 B]",
        ),
    ],
)
async def test_a_result_becomes_one_text(result: Any, expected: str) -> None:
    async with raw(tools=[listed("t")], results={"t": result}).connect() as tools:
        assert await called(tools[0]) == expected


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"content": [{"type": "text", "text": "disk full"}], "isError": True}, "^disk full$"),
        ({"content": [], "isError": True}, "the tool 't' failed and said nothing"),
        ({"content": "nonsense"}, "answered 't' with what is no result of a tool"),
        ({"content": [{"type": "hologram"}]}, "answered 't' with what is no result of a tool"),
        ("nonsense", "did not answer 't' within"),
    ],
)
async def test_a_result_that_is_none_raises_what_the_member_is_to_read(result: Any, why: str) -> None:
    server = raw(tools=[listed("t")], results={"t": result}, timeout=1 if result == "nonsense" else PATIENCE)
    async with server.connect() as tools:
        with pytest.raises((RuntimeError, TimeoutError), match=why):
            await called(tools[0])


async def test_ten_megabytes_survive_and_the_pipeline_caps_them() -> None:
    async with raw(tools=[listed("big")]).connect() as tools:
        result = await governed(McpPolicy(allowed=["big"])).call(tools[0], {"characters": 10_000_000})
        assert not result.is_error
        assert 1000 < len(result.text) < 10_000_000


# -- what a server can get wrong ----------------------------------------------------------------------


async def test_a_server_that_dies_fails_its_calls_and_the_next_who_asks_gets_a_new_one(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    server = raw(tools=[listed("sleep"), listed("die"), listed("t")], die_at="die", pid_file=str(pid))
    failures: list[str] = []

    async def fail(tool: Tool) -> None:
        result = await governed(McpPolicy(McpSecurityPolicy.ALLOW_ALL)).call(tool, {})
        assert result.is_error
        failures.append(result.text)

    async with served() as connections:
        tools = by_tool(await connections.tools(server))
        first = pid.read_text(encoding="utf-8")
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for name in ("sleep", "sleep", "die"):
                    tasks.start_soon(fail, tools[name])
        await fail(tools["t"])
        assert (
            failures
            == ["ConnectionError: MCP server 'raw' is no longer connected: none of its tools can be called"] * 4
        )
        again = by_tool(await connections.tools(server))
        assert await called(again["t"], n=1) == 't did {"n": 1}'
        assert pid.read_text(encoding="utf-8") != first


async def test_a_call_that_hangs_ends_at_the_timeout_and_others_go_on() -> None:
    async with raw(tools=[listed("sleep"), listed("t")], timeout=0.5).connect() as tools:
        began = anyio.current_time()
        with pytest.raises(TimeoutError, match=r"MCP server 'raw' did not answer 'sleep' within 0.5 s"):
            await called(by_tool(tools)["sleep"])
        assert 0.5 <= anyio.current_time() - began < 5
        assert await called(by_tool(tools)["t"]) == "t did {}"


async def test_a_hanging_call_can_be_left_at_once_though_the_server_reads_nothing(tmp_path: Path) -> None:
    """Far more than a pipe holds is sent to a server that has stopped: nobody waits for it to be taken."""
    async with raw(tools=[listed("t")], pid_file=str(tmp_path / "pid")).connect() as tools:
        process = int((tmp_path / "pid").read_text(encoding="utf-8"))
        os.kill(process, signal.SIGSTOP)
        try:
            with anyio.move_on_after(0.2) as scope:
                await called(tools[0], text="x" * 1_000_000)
            assert scope.cancelled_caught
            assert anyio.current_time() < scope.deadline + 1
        finally:
            os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({"silent": True}, "it was not ready within 1 s; give it a longer request_timeout if it needs one"),
        ({"deaf": True}, "it was not ready within 1 s"),
        ({"never_ends": True}, "it was not ready within 1 s"),
        (
            {"die_at": "initialize", "error_output": "no such\nmodule\n"},
            "the server ended, its last words were 'module'",
        ),
        ({"die_at": "tools/list"}, "the server ended$"),
        ({"tools": [{"name": "t"}]}, "what it answered is not what the Model Context Protocol allows"),
        ({"tools": [{"name": "t", "inputSchema": "nonsense"}]}, "not what the Model Context Protocol allows"),
        ({"tools": [listed(f"t{n}") for n in range(200)]}, "it has more than 128 tools; give a higher max_tools"),
    ],
)
async def test_a_server_that_cannot_be_connected_is_named_with_the_cause(plan: dict[str, Any], why: str) -> None:
    server = raw(timeout=1 if "within" in why else PATIENCE, **plan)
    with anyio.fail_after(PATIENCE):
        with pytest.raises(ConnectionError, match=why) as caught:
            async with server.connect():
                raise AssertionError("it is not to be connected")
    assert str(caught.value).startswith(f"MCP server 'raw' (the command {sys.executable!r}) cannot be connected: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (McpServer.stdio("x", "no-such-command"), "the command 'no-such-command'.*: command not found; install it"),
        (McpServer.stdio("x", __file__), "the file may not be executed"),
        (McpServer.stdio("x", sys.executable, cwd="/no/such/folder"), "there is no folder '/no/such/folder'"),
        (McpServer.stdio("x", "cat"), "cannot be connected"),
        (McpServer.stdio("x", "true"), "the server ended"),
    ],
)
async def test_a_command_that_is_no_server_is_named_with_the_cause(server: McpServer, why: str) -> None:
    with pytest.raises(ConnectionError, match=why):
        async with server.connect():
            raise AssertionError("it is not to be connected")


async def test_a_tool_whose_schema_is_none_is_left_out_by_name(caplog: pytest.LogCaptureFixture) -> None:
    tools = [
        listed("good"),
        listed("bad", properties={"a": {"type": "no-such-type"}}),
        listed("worse") | {"outputSchema": {"type": "object", "properties": {"a": {"minimum": "low"}}}},
        listed("good", properties={"second": {}}),
        listed("", properties={}),
    ]
    async with raw(tools=tools).connect() as offered:
        assert [tool.server_tool for tool in offered] == ["good", ""]
        assert "properties" not in offered[0].parameters, "the first of two of one name"
    for told in ("'bad' is left out: it is no valid JSON Schema", "'worse' is left out: of its outputSchema, it is no"):
        assert told in caplog.text
    assert "'good' is left out: the server has another tool of that name" in caplog.text


async def test_a_schema_elsewhere_is_never_fetched(http_url: str) -> None:
    elsewhere = {"$ref": f"{http_url}/schema.json"}
    tools = [listed("t", properties={"a": elsewhere}), listed("u") | {"outputSchema": {"type": "object", **elsewhere}}]
    result = {"content": [], "structuredContent": {"a": 1}}
    async with raw(tools=tools, results={"u": result}).connect() as offered:
        with pytest.raises(ValueError, match=r"its schema cannot be applied.*Unresolvable"):
            await called(by_tool(offered)["t"], a=1)
        with pytest.raises(RuntimeError, match=r"breaks its own word.*its schema cannot be applied"):
            await called(by_tool(offered)["u"])


async def test_an_endless_schema_harms_nobody() -> None:
    async with raw(tools=[listed("t", **{"$ref": "#"}), listed("u", pattern="(")]).connect() as offered:
        with pytest.raises(ValueError, match="its schema cannot be applied"):
            await called(by_tool(offered)["t"])


# -- what a server may not do -------------------------------------------------------------------------

SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage", SAMPLE),
        ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
        ("roots/list", {}),
    ],
)
async def test_what_a_server_asks_of_the_client_is_refused(method: str, params: dict[str, Any]) -> None:
    async with raw(tools=[listed("ask")]).connect() as tools:
        reply = json.loads(await called(tools[0], method=method, params=params))
    assert "result" not in reply
    assert "not supported" in reply["error"]["message"]


async def test_a_call_that_would_need_a_model_to_go_on_is_refused() -> None:
    question = {"q": {"method": "sampling/createMessage", "params": SAMPLE}}
    result = {"resultType": "input_required", "inputRequests": question, "requestState": "s"}
    async with raw(tools=[listed("t")], results={"t": result}, modern=True).connect() as tools:
        with pytest.raises(RuntimeError, match=r"asks for a model's or a user's answer to go on with 't'.*refused"):
            await called(tools[0])


@pytest.mark.parametrize("tool", ["ask_model", "ask_user"])
async def test_the_tools_of_a_real_server_that_ask_back_fail(tool: str, http_url: str) -> None:
    async with McpServer.http("reference", http_url).connect() as tools:
        with pytest.raises(RuntimeError, match=f"did not do '{tool}'|Error executing"):
            await called(by_tool(tools)[tool])


async def test_a_server_gets_a_few_harmless_variables_and_those_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-geheim")
    server = McpServer.stdio(
        "raw",
        sys.executable,
        SERVERS / "raw.py",
        json.dumps({"tools": [listed("environment")]}),
        env={"TOKEN": "t-123"},
    )
    async with server.connect() as tools:
        environment = json.loads(await called(tools[0]))
    assert environment["TOKEN"] == "t-123"
    assert "PATH" in environment
    assert "OPENAI_API_KEY" not in environment
    assert "t-123" not in f"{server!r} {server.transport!r}"


async def test_error_output_goes_to_the_log_and_not_to_the_terminal(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "kairo_team"):
        async with raw(tools=[listed("t")], error_output="ready\nsteady").connect() as tools:
            await called(tools[0])
            await anyio.sleep(0.1)
    assert "MCP server 'raw': ready" in caplog.text
    assert "MCP server 'raw': steady" in caplog.text
    assert capfd.readouterr() == ("", "")


async def test_a_server_that_greets_on_its_output_is_understood_all_the_same(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with raw(tools=[listed("t")], output="Welcome!\n\n{}\n[1, 2]").connect() as tools:
        assert await called(tools[0]) == "t did {}"
    assert capfd.readouterr() == ("", "")


async def test_credentials_that_a_server_repeats_are_masked_in_errors() -> None:
    plan = {"die_at": "initialize", "error_output": "bad token t-geheim"}
    server = McpServer.stdio("raw", sys.executable, SERVERS / "raw.py", json.dumps(plan), env={"TOKEN": "t-geheim"})
    with pytest.raises(ConnectionError, match=r"its last words were 'bad token \*\*\*'"):
        async with server.connect():
            raise AssertionError("it is not to be connected")


# -- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stubborn", "within"), [(False, 2.0), (True, 7.0)])
async def test_no_process_survives_the_run(stubborn: bool, within: float, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    server = raw(tools=[listed("sleep")], pid_file=str(pid), stubborn=stubborn)
    async with anyio.create_task_group() as run:
        connections = await _begin(run, server)
        (tool,) = await connections.tools(server)
        run.start_soon(called, tool)
        await anyio.sleep(0.1)
        process = int(pid.read_text(encoding="utf-8"))
        assert alive(process)
        began = anyio.current_time()
        run.cancel_scope.cancel()
    assert not alive(process)
    assert anyio.current_time() - began < within


async def _begin(run: Any, server: McpServer) -> Connections:
    connections = Connections()
    run.start_soon(connections.serve)
    return connections


async def test_a_run_that_ends_while_a_server_is_starting_leaves_no_process(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with anyio.create_task_group() as run:
        connections = await _begin(run, server := raw(silent=True, pid_file=str(pid)))
        run.start_soon(connections.tools, server)
        while not pid.exists() or not pid.read_text(encoding="utf-8"):
            await anyio.sleep(0.01)
        run.cancel_scope.cancel()
    assert not alive(int(pid.read_text(encoding="utf-8")))


@pytest.mark.parametrize("error", [KeyError("mine"), ConnectionError("mine"), TimeoutError("mine"), SystemExit("mine")])
async def test_what_the_block_raises_comes_out_as_it_is(error: BaseException) -> None:
    with pytest.raises(type(error), match=r"^'?mine'?$"):
        async with raw(tools=[listed("t")]).connect():
            raise error


async def test_two_runs_of_one_server_object_do_not_meet(tmp_path: Path) -> None:
    server = raw(tools=[listed("t")])
    async with server.connect() as first:
        async with server.connect() as second:
            assert await called(second[0]) == "t did {}"
        assert await called(first[0]) == "t did {}"
        with pytest.raises(ConnectionError, match="no longer connected"):
            await called(second[0])
