"""`McpServer`: the tools of an MCP server, over stdio or streamable HTTP, by the official SDK (extra `mcp`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from os import PathLike, fspath
from typing import Any, Final, cast, get_args
from urllib.parse import urlsplit

from kairo_team._util.frozen import EMPTY, FrozenDict, check_kind
from kairo_team.budget import check_count
from kairo_team.errors import MissingExtra
from kairo_team.permissions import SideEffect
from kairo_team.tools.mcp_session import McpSession
from kairo_team.tools.mcp_transport import HttpTransport, StdioTransport
from kairo_team.tools.tool import Tool

_SIDE_EFFECTS: Final = get_args(SideEffect)


@dataclass(frozen=True, slots=True, repr=False)
class McpServer:
    """An MCP server with tools for members: a `ToolSource`. Made by `McpServer.stdio` or `McpServer.http`.

    The server is connected once per run, when the first member asks for its tools, and disconnected when the run ends.
    The list of tools is read once per connection: later changes appear with the next connection. The server's own
    requests - a model's reply (sampling), an answer of the user (elicitation), the client's folders (roots) - are
    refused, because no budget and no guardrail would see them.

    Arguments are checked against a tool's inputSchema before the call, structured results against its outputSchema
    after it. A tool whose schema is invalid is left out, with a warning in the log `kairo_team`; a schema that refers
    to another document is never resolved: such a tool's calls fail.

    Two servers of a run must not share a name unless they are equal; equal ones share one connection.
    """

    name: str
    """The server's name, also in each tool's name and in `McpPolicy`."""
    transport: StdioTransport | HttpTransport
    """How the server is reached."""
    max_concurrent_calls: int = 10
    """Most calls in flight at once; later ones wait in order."""
    request_timeout: float = 30.0
    """Seconds for the server to answer one call after it is sent, and to connect, from its start until all tools are
    listed. Set more when the command downloads the server first."""
    max_tools: int = 128
    """Most tools; a server with more is not connected."""
    side_effects: Mapping[str, SideEffect] = field(default=EMPTY, hash=False)
    """Side effects by the server's own tool names; "system" for every other tool."""
    trust_annotations: bool = False
    """Count a tool as "read" when the server declares it (`readOnlyHint`) and `side_effects` does not name it."""
    allow: Iterable[str] | None = None
    """Names or globs (`read_*`) of the server's tools that may be used, by the server's own names; each must match a
    tool. The others are not offered. A team's `McpPolicy`, if it has one, decides as well. None leaves all to the
    policy, which by default allows none."""

    def __post_init__(self) -> None:
        owner = _check_name(self.name)
        if not isinstance(self.transport, StdioTransport | HttpTransport):
            raise ValueError(
                f"{owner} is made by McpServer.stdio(...) or McpServer.http(...), not of {self.transport!r}"
            )
        check_count(f"{owner}: max_concurrent_calls", self.max_concurrent_calls, 1)
        check_count(f"{owner}: max_tools", self.max_tools, 1)
        seconds = self.request_timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise ValueError(f"{owner}: request_timeout must be a finite number of seconds > 0, not {seconds!r}")
        check_kind(f"{owner}: trust_annotations", self.trust_annotations, bool)
        object.__setattr__(self, "allow", _checked_allow(owner, self.allow))
        object.__setattr__(self, "side_effects", _checked_effects(owner, self.side_effects))

    def __repr__(self) -> str:
        return f"<McpServer {self.name!r} at {self.transport.place}>"

    @classmethod
    def stdio(
        cls,
        name: str,
        command: str | PathLike[str],
        *args: str | PathLike[str],
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        **options: Any,
    ) -> McpServer:
        """Describe a server that is started as a process; the command and each argument are separate strings.

        The process receives a few harmless variables of this process's environment (PATH, HOME and similar) and those
        in `env`, no others. The server's error output goes to the log `kairo_team` at DEBUG. `options` are the fields
        of `McpServer`.
        """
        owner = _check_name(name)
        words = _checked_command(owner, [command, *args])
        folder = None if cwd is None else fspath(cwd)
        return cls(name, StdioTransport(words[0], words[1:], _checked_texts(owner, "env", env), folder), **options)

    @classmethod
    def http(cls, name: str, url: str, headers: Mapping[str, str] | None = None, **options: Any) -> McpServer:
        """Describe a server at a URL, over streamable HTTP; every request has the `headers`, such as Authorization.

        Messages never show the headers, nor a user, password or query in the URL. `options` are the fields of
        `McpServer`.
        """
        owner = _check_name(name)
        _check_url(owner, url)
        return cls(name, HttpTransport(url, _checked_texts(owner, "headers", headers)), **options)

    def connect(self) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """Connect and yield the tools; raise `ConnectionError` with the reason when that is not possible.

        When the server goes away, the block is cancelled and ends with `ConnectionError`; calls in flight, and later
        ones, raise it too. Leaving the block ends a stdio server's process and all its children: its input is closed,
        after two seconds it is asked to terminate, after two more it is killed.
        """
        if find_spec("mcp") is None or find_spec("jsonschema_rs") is None:
            raise MissingExtra("McpServer", "mcp")
        import_module("mcp")  # it takes a second or two, which must not count as the server's
        _hush()
        return McpSession(self).open()


@cache
def _hush() -> None:
    """Keep the SDK's log off the terminal of a program that does not configure logging."""
    logging.getLogger("mcp").addHandler(logging.NullHandler())


def _check_name(name: object) -> str:
    """Return the server's name for messages; raises `ValueError` without a name."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"an MCP server needs a name, not {name!r}")
    if "/" in name:
        raise ValueError(f"an MCP server's name has no '/', which separates server and tool in policies: {name!r}")
    return f"MCP server {name!r}"


def _checked_command(owner: str, words: Sequence[Any]) -> tuple[str, ...]:
    """Return the command and its arguments as strings."""
    texts: list[Any] = [
        word if isinstance(word, str) or not hasattr(word, "__fspath__") else fspath(word) for word in words
    ]
    for text in texts:
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"{owner}: the command and its arguments are strings without zero bytes, not {text!r}")
    command, *args = texts
    if not command.strip():
        raise ValueError(f"{owner} needs a command to start it, not {command!r}")
    if not args and " " in command and not isinstance(words[0], PathLike):
        split = ", ".join(repr(part) for part in command.split())
        raise ValueError(
            f"{owner}: the command and each argument are strings of their own, McpServer.stdio(..., {split}); "
            f"where {command!r} is one file's path, give it as a pathlib.Path"
        )
    return (command, *args)


def _check_url(owner: str, url: object) -> None:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        fit = parts is not None and parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1)
    except ValueError:
        fit = False
    if not fit:
        shown = type(url).__name__ if not isinstance(url, str) else repr(url.rpartition("@")[2].partition("?")[0])
        raise ValueError(f"{owner} needs a URL such as 'https://host/mcp', not {shown}")


def _checked_texts(owner: str, what: str, given: object) -> Mapping[str, str]:
    """Return strings by name, read-only; an error names the entry and never its value."""
    if given is None:
        return EMPTY
    if not isinstance(given, Mapping):
        raise ValueError(f"{owner}: {what} must be a mapping of strings, not {type(given).__name__}")
    texts = cast("Mapping[Any, Any]", given)  # type: ignore[redundant-cast]  # pyright needs it
    for name, text in texts.items():
        if not isinstance(name, str) or not name or not isinstance(text, str):
            raise ValueError(f"{owner}: {what} must be a mapping of strings; {name!r} is {type(text).__name__}")
        if not set(name + text).isdisjoint("\0\r\n" if what == "headers" else "\0"):
            raise ValueError(f"{owner}: {what}: {name!r} or its value holds a line end or a zero byte")
    return FrozenDict(texts)


def _checked_allow(owner: str, given: object) -> tuple[str, ...] | None:
    """Return the allowed names as a tuple; raises `ValueError` for anything but names of tools and globs."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"{owner}: allow must be a list of tool names or globs, such as ['read_*'], not {given!r}")
    names = tuple(cast("Iterable[Any]", given))  # type: ignore[redundant-cast]  # pyright needs it
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{owner}: allow must be a list of tool names or globs; {name!r} is not one")
    if not names:
        raise ValueError(f"{owner}: allow is empty: name the tools that may be used, or leave the server out")
    return tuple(dict.fromkeys(names))


def _checked_effects(owner: str, given: object) -> Mapping[str, SideEffect]:
    allowed = ", ".join(repr(effect) for effect in _SIDE_EFFECTS)
    if not isinstance(given, Mapping):
        raise ValueError(f"{owner}: side_effects must be one of {allowed} by tool name, not {given!r}")
    effects = cast("Mapping[Any, Any]", given)  # type: ignore[redundant-cast]  # pyright needs it
    for tool, effect in effects.items():
        if not isinstance(tool, str) or effect not in _SIDE_EFFECTS:
            raise ValueError(f"{owner}: side_effects[{tool!r}] must be one of {allowed}, not {effect!r}")
    return FrozenDict(effects)
