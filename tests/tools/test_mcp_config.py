"""`kt.load_mcp` and `McpServer(allow=)`: which tools of which servers are offered, and sentences on mistakes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import kairo_team as kt
from kairo_team.governance.policies.mcp_policy import McpPolicy
from kairo_team.testing import ScriptedModel
from kairo_team.tools.mcp import McpServer
from tests.tools.mcp_rig import MCP_MARKS, PATIENCE, SERVERS, by_tool, called, listed, raw

SDK = {"command": sys.executable, "args": [str(SERVERS / "sdk.py"), "stdio"]}
TWO = {"files": {"command": "mcp-files"}, "search": {"url": "https://search.example/mcp"}}


def written(folder: Path, content: Any) -> Path:
    file = folder / "mcp.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return file


def said(source: Any, **options: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        kt.load_mcp(source, **options)
    return str(caught.value)


def server(**given: Any) -> dict[str, Any]:
    return {"mcpServers": {"one": given}}


# -- the file ---------------------------------------------------------------------------------------


def test_a_file_of_servers_makes_what_the_constructors_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "sesame")
    monkeypatch.delenv("SEARCH_HOST", raising=False)
    file = written(
        tmp_path,
        {
            "mcpServers": {
                "files": {
                    "type": "stdio",
                    "command": "npx",
                    "args": ["-y", "server", "${HOME}/docs"],
                    "env": {"LEVEL": "high"},
                    "cwd": "work",
                },
                "search": {
                    "type": "http",
                    "url": "https://${SEARCH_HOST:-search.example}/mcp",
                    "headers": {"Authorization": "Bearer ${env:SEARCH_KEY}"},
                    "description": "Searches.",
                },
                "off": {"command": "nothing", "args": ["${NOT_SET}"], "disabled": True},
            }
        },
    )
    assert kt.load_mcp(file, request_timeout=5) == [
        McpServer.stdio(
            "files",
            "npx",
            *("-y", "server", f"{os.environ['HOME']}/docs"),
            env={"LEVEL": "high"},
            cwd=str(tmp_path / "work"),
            request_timeout=5,
        ),
        McpServer.http("search", "https://search.example/mcp", {"Authorization": "Bearer sesame"}, request_timeout=5),
    ]


def test_only_servers_that_allow_names_are_returned() -> None:
    assert kt.load_mcp({"mcpServers": TWO}, allow=["search/query", "search/get_*"]) == [
        McpServer.http("search", "https://search.example/mcp", allow=["query", "get_*"])
    ]


MISTAKES: list[tuple[Any, str]] = [
    ([], "the file must be a mapping, not list"),
    ({}, "has no 'mcpServers': put the servers under this key"),
    ({"servers": {}, "mcpServers": {}}, "takes no 'servers'; did you mean 'mcpServers'? it takes mcpServers, $schema"),
    ({"mcpServers": []}, "mcpServers must be a mapping, not list"),
    ({"mcpServers": {"a/b": {"command": "x"}}}, "an MCP server's name has no '/'"),
    (
        server(command="x", arguments=[]),
        "mcpServers.one takes no 'arguments'; did you mean 'args'? it takes command, args",
    ),
    (server(command="x", url="https://x.example"), "mcpServers.one needs a command or a url, not both"),
    (server(args=[]), "mcpServers.one needs a command or a url: "),
    (server(command="npx -y server"), 'has no arguments: write "command": "npx", "args": ["-y", "server"]'),
    (server(command="x", args="-y"), "mcpServers.one.args must be a list of strings, not str"),
    (server(command="x", args=["-p", 8]), "mcpServers.one.args[1] must be a string, not int"),
    (server(command="x", env={"KEY": 80801}), "mcpServers.one.env.KEY must be a string, not int"),
    (server(command="x", disabled="yes"), "mcpServers.one.disabled must be true or false, not 'yes'"),
    (server(url="https://x.example", type="sse"), "type is 'sse', which is not supported: give the server's stream"),
    (server(url="https://x.example", type="websocket"), "type must be one of 'stdio', 'http', 'streamable-http'"),
    (server(url="https://x.example", type="stdio"), "'stdio' does not fit a server with a url"),
    (server(url="ftp://x.example"), "needs a URL such as 'https://host/mcp', not 'ftp://x.example'"),
    (server(command="x", args=["${NOT_SET}"]), "args[0] needs the environment variable 'NOT_SET', which is not set"),
    (server(command="x", args=["${input:key}"]), "args[0] has ${input:key}, which is not known; write ${NAME}"),
    ('{"mcpServers": {"a": {}, "a": {}}}', "line 1: the key 'a' is given twice"),
    ("// servers\n{}", "line 1: it is not JSON"),
]


@pytest.mark.parametrize(("content", "sentence"), MISTAKES, ids=[str(n) for n in range(len(MISTAKES))])
def test_a_mistake_is_said_with_its_place_and_what_is_allowed(
    content: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    file = written(tmp_path, content)
    message = said(file)
    assert sentence in message
    assert message.startswith(str(file))
    assert "80801" not in message
    if isinstance(content, Mapping):
        assert sentence in said(content)


def test_all_mistakes_are_said_at_once(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"a": {"command": "x", "arg": []}, "b": {"command": "x", "envs": {}}}
    file = written(tmp_path, {"mcpServers": wrong})
    assert [line.partition(" takes")[0] for line in said(file).splitlines()] == [
        f"{file}, line 5: mcpServers.a",
        f"{file}, line 9: mcpServers.b",
    ]


ALLOW: list[tuple[Any, str]] = [
    ("files/*", "allow must be a list such as ['files/read_*'], not 'files/*'"),
    ([], "allow is empty: name the tools that may be used"),
    (["files"], "allow: 'files' names no tool: write 'files/*' for all tools of this server"),
    (["files/"], "names no tool"),
    (["read_file"], "'read_file' must be 'server/tool' or a glob such as 'server/read_*'; the servers of"),
    (["file/read"], "did you mean 'files'? the servers of the MCP servers are 'files', 'search'"),
    ([3], "allow: 3 must be 'server/tool'"),
]


@pytest.mark.parametrize(("allow", "sentence"), ALLOW, ids=[sentence[:30] for _, sentence in ALLOW])
def test_an_entry_of_allow_that_fits_no_server_is_an_error(allow: Any, sentence: str) -> None:
    assert sentence in said({"mcpServers": TWO}, allow=allow)


@pytest.mark.parametrize("source", ["mcp.toml", "mcp", 3])
def test_what_is_not_a_json_file_is_refused(source: Any) -> None:
    assert ".json file" in said(source)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*mcp\.json"):
        kt.load_mcp(tmp_path / "mcp.json")


@pytest.mark.parametrize("allow", ["read", [], [3], [""], 5])
def test_allow_of_a_server_is_a_list_of_names(allow: Any) -> None:
    with pytest.raises(ValueError, match="MCP server 'x': allow "):
        McpServer.stdio("x", "x", allow=allow)


def test_a_server_with_allow_needs_no_policy_and_one_without_is_refused_with_advice() -> None:
    def problems(permissions: kt.ToolPermissions | None, **options: Any) -> str:
        agent = kt.MiniAgent("openai:gpt-5", tools=[McpServer.stdio("files", "x", **options)])
        return str(kt.check(kt.Team("t", [kt.Member("m", agent)], permissions=permissions), "Read."))

    advice = "no tool of the MCP server 'files' is on the allowed list"
    policy = kt.ToolPermissions(mcp=McpPolicy(allowed=["other/read"]))
    assert advice not in problems(None, allow=["read"])
    assert f"{advice}: list what may be used, with allow=['TOOL'] where" in problems(None)
    assert f"{advice}: list what may be used, permissions=kt.ToolPermissions" in problems(policy, allow=["read"])


# -- real servers -----------------------------------------------------------------------------------


class TestServers:
    pytestmark = MCP_MARKS

    @pytest.fixture(params=["stdio", "http"])
    def reference(self, request: pytest.FixtureRequest, http_url: str) -> dict[str, Any]:
        return SDK if request.param == "stdio" else {"type": "streamable-http", "url": http_url}

    async def test_only_what_is_allowed_is_offered_and_it_works(self, reference: Mapping[str, Any]) -> None:
        allow = ["ref/add", "ref/files.*"]
        (one,) = kt.load_mcp({"mcpServers": {"ref": reference}}, allow=allow, request_timeout=PATIENCE)
        async with one.connect() as offered:
            tools = by_tool(offered)
            assert sorted(tools) == ["add", "files.read"]
            assert json.loads(await called(tools["add"], a=2, b=3)) == {"total": 5}

    async def test_a_name_that_no_tool_has_is_an_error_with_the_names(self, reference: Mapping[str, Any]) -> None:
        (one,) = kt.load_mcp({"mcpServers": {"ref": reference}}, allow=["ref/ad"], request_timeout=PATIENCE)
        with pytest.raises(ConnectionError) as caught:
            async with one.connect():
                raise AssertionError("it is not to be connected")
        assert "its allow names 'ad', which none of its tools match; did you mean 'add'? it has 'add'" in str(
            caught.value
        )

    async def test_a_member_uses_an_allowed_tool_without_any_policy(self, tmp_path: Path) -> None:
        record = tmp_path / "record"
        calls = [kt.ToolCall("1", "raw_look"), kt.ToolCall("2", "raw_wipe")]
        model = ScriptedModel([kt.ModelResponse("", tool_calls=calls), "Done."])
        tools = [raw(tools=[listed("look"), listed("wipe")], record=str(record), allow=["look"])]
        team = kt.Team("t", [kt.Member("m", kt.MiniAgent(model, tools=tools))])
        result = await kt.run(team, "Look.")
        assert result.output == "Done."
        assert [tool.name for tool in model.calls[0].tools] == ["raw_look"]
        answers = [message.text for message in model.calls[1].messages if message.role == "tool"]
        assert answers[0] == "look did {}"
        assert "raw_wipe" in answers[1]
        sent = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        assert [one["params"]["name"] for one in sent if one["method"] == "tools/call"] == ["look"]

    async def test_a_policy_of_the_team_decides_as_well(self) -> None:
        calls = [kt.ToolCall("1", "raw_look"), kt.ToolCall("2", "raw_wipe")]
        model = ScriptedModel([kt.ModelResponse("", tool_calls=calls), "Done."])
        tools = [raw(tools=[listed("look"), listed("wipe")], allow=["*"])]
        permissions = kt.ToolPermissions(mcp=McpPolicy(allowed=["raw/look"]))
        team = kt.Team("t", [kt.Member("m", kt.MiniAgent(model, tools=tools))], permissions=permissions)
        assert (await kt.run(team, "Look.")).output == "Done."
        assert [tool.name for tool in model.calls[0].tools] == ["raw_look"]
        answers = [message.text for message in model.calls[1].messages if message.role == "tool"]
        assert answers == ["look did {}", "the tool 'wipe' of the MCP server 'raw' is not on the allowed list"]

    async def test_a_tool_that_needs_task_support_is_hidden_even_when_allowed(self) -> None:
        tools = [listed("quick"), listed("long") | {"execution": {"taskSupport": "required"}}]
        async with raw(tools=tools, allow=["quick", "long"]).connect() as offered:
            assert [tool.server_tool for tool in offered] == ["quick"]
