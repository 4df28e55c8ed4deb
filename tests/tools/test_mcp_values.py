"""What is refused when an MCP server is described, and how its tools are named: nothing is started here."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team._util.frozen import freeze
from kairo_team.contracts import ToolSource
from kairo_team.errors import MissingExtra
from kairo_team.output_types import JsonSchema
from kairo_team.tools import mcp as room
from kairo_team.tools.mcp import McpServer
from kairo_team.tools.mcp_schema import checked_arguments, model_names
from kairo_team.tools.mcp_transport import masked

URL = "https://example.invalid/mcp"


def test_a_server_is_a_tool_source_and_a_value() -> None:
    server = McpServer.stdio("files", "npx", "server-files", env={"TOKEN": "t"}, side_effects={"read": "read"})
    assert isinstance(server, ToolSource)
    assert server == McpServer.stdio("files", "npx", "server-files", env={"TOKEN": "t"}, side_effects={"read": "read"})
    assert server != McpServer.stdio("files", "npx", "server-files", env={"TOKEN": "u"}, side_effects={"read": "read"})
    assert hash(server) == hash(McpServer.stdio("files", "npx", "server-files", env={"TOKEN": "t"}))
    assert repr(server) == "<McpServer 'files' at the command 'npx'>"


def test_what_was_given_can_be_changed_afterwards_without_effect() -> None:
    env, effects = {"A": "1"}, {"t": "read"}
    server = McpServer.stdio("files", "npx", env=env, side_effects=effects)
    env["A"] = effects["t"] = "other"
    assert server == McpServer.stdio("files", "npx", env={"A": "1"}, side_effects={"t": "read"})


def test_a_url_is_shown_without_what_is_secret_in_it() -> None:
    server = McpServer.http("web", "https://me:geheim@example.invalid:8443/mcp?key=geheim#geheim", {"A": "geheim"})
    assert repr(server) == "<McpServer 'web' at https://example.invalid:8443/mcp>"
    assert "geheim" not in repr(server.transport)


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_a_blank_name_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="an MCP server needs a name"):
        McpServer.stdio(name, "npx")
    with pytest.raises(ValueError, match="an MCP server needs a name"):
        McpServer.http(name, URL)


def test_a_name_with_a_slash_is_refused() -> None:
    with pytest.raises(ValueError, match="has no '/'"):
        McpServer.stdio("a/b", "npx")


def test_a_command_in_one_string_is_refused_and_told_how() -> None:
    with pytest.raises(ValueError, match=re.escape("McpServer.stdio(..., 'npx', '-y', 'server-files')")):
        McpServer.stdio("files", "npx -y server-files")
    for server in (McpServer.stdio("f", Path("/opt/my server/run")), McpServer.stdio("f", "/opt/my server/run", "-x")):
        assert repr(server) == "<McpServer 'f' at the command '/opt/my server/run'>"


@pytest.mark.parametrize("words", [("",), (" ",), (None,), (3,), ("npx", 3), ("npx", None), ("npx", "a\0b"), (b"npx",)])
def test_a_command_that_is_none_is_refused(words: Any) -> None:
    with pytest.raises(ValueError, match="MCP server 'files'"):
        McpServer.stdio("files", *words)


@pytest.mark.parametrize(
    "url",
    ["", "example.invalid/mcp", "ftp://x/mcp", "http://", "http:///mcp", "https://x:99999/", "http://[::1", None, 3],
)
def test_a_url_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(ValueError, match="MCP server 'web' needs a URL such as 'https://host/mcp'"):
        McpServer.http("web", url)


def test_a_wrong_url_is_told_without_its_credentials() -> None:
    with pytest.raises(ValueError, match="needs a URL") as caught:
        McpServer.http("web", "ftp://me:geheim@example.invalid/mcp?key=geheim")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "headers", ["geheim", {"A": 3}, {3: "geheim"}, {"A": "geheim\nB: x"}, {"": "geheim"}, [("A", "geheim")]]
)
def test_wrong_headers_and_variables_are_refused_without_their_values(headers: Any) -> None:
    with pytest.raises(ValueError, match="MCP server 'web': headers") as caught:
        McpServer.http("web", URL, headers)
    assert "geheim" not in str(caught.value)
    if headers != {"A": "geheim\nB: x"}:  # a variable may hold several lines
        with pytest.raises(ValueError, match="MCP server 'web': env") as caught:
            McpServer.stdio("web", "npx", env=headers)
        assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("option", ["max_concurrent_calls", "max_tools", "request_timeout"])
@pytest.mark.parametrize("number", [0, -1, -0.5, math.nan, math.inf, True, "3", None])
def test_a_limit_that_is_none_is_refused_by_name(option: str, number: Any) -> None:
    message = f"MCP server .web.: {option} must be .* (> 0|>= 1), not {re.escape(repr(number))}"
    with pytest.raises(ValueError, match=message):
        McpServer.http("web", URL, **{option: number})


@pytest.mark.parametrize("effects", [{"t": "delete"}, {"t": None}, {3: "read"}, ["t"], "read", None])
def test_side_effects_are_three_words_by_name(effects: Any) -> None:
    with pytest.raises(ValueError, match=r"side_effects.* one of 'read', 'write', 'system'"):
        McpServer.http("web", URL, side_effects=effects)


def test_trusting_is_yes_or_no() -> None:
    with pytest.raises(ValueError, match="trust_annotations must be True or False, not 'yes'"):
        McpServer.http("web", URL, trust_annotations="yes")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="max_calls"):
        McpServer.http("web", URL, max_calls=3)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"McpServer needs the extra 'mcp': pip install 'kairo-team\[mcp\]'"):
        McpServer.http("web", URL).connect()


@pytest.mark.parametrize(
    ("server", "tools", "names"),
    [
        ("files", ["read", "write"], ["files_read", "files_write"]),
        ("my files", ["files.read"], ["my_files_files_read"]),
        ("s", ["a.b", "a_b"], ["s_a_b_" + "?" * 8, "s_a_b"]),
        ("s", ["a.b", "a b"], ["s_a_b", "s_a_b_" + "?" * 8]),
        ("s", ["x" * 100], ["s_" + "x" * 53 + "_" + "?" * 8]),
        ("日本", ["検索"], ["_____"]),
    ],
)
def test_names_are_made_to_fit(server: str, tools: list[str], names: list[str]) -> None:
    made = model_names(server, tools)
    assert len(made) == len(names)
    for one, expected in zip(made, names, strict=True):
        assert re.fullmatch(re.escape(expected).replace(r"\?", "[0-9a-f]"), one), one


@given(
    st.text(min_size=1), st.lists(st.text(alphabet=st.one_of(st.sampled_from("ab._-"), st.characters())), unique=True)
)
def test_names_always_fit_never_clash_and_do_not_depend_on_chance(server: str, tools: list[str]) -> None:
    names = model_names(server, tools)
    assert len(set(names)) == len(tools)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert names == model_names(server, tools)


@pytest.mark.parametrize("value", ["\ud800", math.nan, math.inf, {1, 2}, b"x", object()])
def test_arguments_that_are_no_json_are_refused_before_they_harm_the_connection(value: Any) -> None:
    with pytest.raises(ValueError, match="they cannot be sent as JSON"):
        checked_arguments(JsonSchema({"type": "object"}, "a test"), {"a": [value]})


def test_read_only_arguments_are_taken_as_plain_ones() -> None:
    schema = JsonSchema({"type": "object", "properties": {"paths": {"type": "array"}}}, "a test")
    assert checked_arguments(schema, freeze({"paths": ["a", {"b": []}]})) == {"paths": ["a", {"b": []}]}


@pytest.mark.parametrize("faults", [10_000, pytest.param(1_000_000, marks=pytest.mark.exhaustive)])
def test_a_million_faults_are_told_in_a_few_words(faults: int) -> None:
    schema = JsonSchema({"type": "object", "properties": {"a": {"items": {"type": "integer"}}}}, "a test")
    with pytest.raises(ValueError, match=r"\$\.a\[0\]: \"xxx.*; \$\.a\[1\].*; \$\.a\[2\]") as caught:
        checked_arguments(schema, {"a": ["x" * 1000, *("x" * faults)]})
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("text", "secrets", "expected"),
    [
        ("a geheim b geheim", ["geheim"], "a [secret] b [secret]"),
        ("Bearer sesame", ["Bearer sesame", "sesame"], "[secret]"),
        ("1 on", ["1", "on", ""], "1 on"),
        ("plain", [], "plain"),
    ],
)
def test_masking(text: str, secrets: list[str], expected: str) -> None:
    assert masked(text, secrets) == expected
