"""`McpServer`: the tools of an MCP server, over stdio or streamable HTTP, by the official SDK (extra `mcp`)."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, get_args
from urllib.parse import urlsplit

import anyio
from anyio.lowlevel import checkpoint
from pydantic import TypeAdapter, ValidationError

from kairo_team._util.frozen import EMPTY, FrozenDict, check_kind, thaw
from kairo_team._util.mistakes import did_you_mean
from kairo_team._util.narrowing import is_mapping, is_several
from kairo_team._util.version import version_of_library
from kairo_team.budget import check_count
from kairo_team.errors import MissingExtra, known
from kairo_team.output_types import JsonSchema
from kairo_team.permissions import SideEffect
from kairo_team.plugin_calls import leaves_of
from kairo_team.tools.mcp_schema import checked_arguments, model_names, result_files, result_text
from kairo_team.tools.mcp_transport import ConnectionLost, HttpTransport, Notes, StdioTransport, masked, pumped
from kairo_team.tools.result import ToolResult
from kairo_team.tools.tool import Tool

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp import types as wire

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
        effects: Any = self.side_effects
        known_effects = ", ".join(map(repr, _SIDE_EFFECTS))
        if not is_mapping(effects):
            raise ValueError(f"{owner}: side_effects must be one of {known_effects} by tool name, not {effects!r}")
        for tool, effect in effects.items():
            if not isinstance(tool, str) or effect not in _SIDE_EFFECTS:
                raise ValueError(f"{owner}: side_effects[{tool!r}] must be one of {known_effects}, not {effect!r}")
        object.__setattr__(self, "side_effects", FrozenDict(effects))

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
        _silence_sdk()
        return McpSession(self).open()


@cache
def _silence_sdk() -> None:
    """Keep the SDK's log off the terminal of a program that does not configure logging."""
    # Without any handler, logging's last resort prints warnings to standard error.
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
        # Reading `port` raises `ValueError` if it is not a number.
        fit = parts is not None and parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1)
    except ValueError:
        fit = False
    if not fit:
        # Neither user nor query are shown: they may have a password or a key.
        shown = type(url).__name__ if not isinstance(url, str) else repr(url.rpartition("@")[2].partition("?")[0])
        raise ValueError(f"{owner} needs a URL such as 'https://host/mcp', not {shown}")


def _checked_texts(owner: str, what: str, given: object) -> Mapping[str, str]:
    """Return strings by name, read-only; an error names the entry and never its value."""
    if given is None:
        return EMPTY
    if not is_mapping(given):
        raise ValueError(f"{owner}: {what} must be a mapping of strings, not {type(given).__name__}")
    for name, text in given.items():
        if not isinstance(name, str) or not name or not isinstance(text, str):
            raise ValueError(f"{owner}: {what} must be a mapping of strings; {name!r} is {type(text).__name__}")
        # A line end would smuggle in another header; a zero byte ends a C string.
        if not set(name + text).isdisjoint("\0\r\n" if what == "headers" else "\0"):
            raise ValueError(f"{owner}: {what}: {name!r} or its value holds a line end or a zero byte")
    return FrozenDict(given)


def _checked_allow(owner: str, given: object) -> tuple[str, ...] | None:
    """Return the allowed names as a tuple; raises `ValueError` for anything but names of tools and globs."""
    if given is None:
        return None
    if not is_several(given):
        raise ValueError(f"{owner}: allow must be a list of tool names or globs, such as ['read_*'], not {given!r}")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{owner}: allow must be a list of tool names or globs; {name!r} is not one")
    if not names:
        raise ValueError(f"{owner}: allow is empty: name the tools that may be used, or leave the server out")
    return tuple(dict.fromkeys(names))


LEAVE_SECONDS: Final = 2.0
"""Most seconds for closing the session of a server."""
MAX_SCHEMA: Final = 100_000
"""Most characters of a tool's schema; a longer one would fill the prompt."""
NOT_FOUND: Final = 404
"""HTTP status of a server that no longer knows the session."""

_logger = logging.getLogger("kairo_team")


class _Unfit(Exception):
    """The server answers but cannot be used; the message has the reason."""


class McpSession:
    """A connection, from its first message to its end."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._notes = Notes()
        self._slots = anyio.Semaphore(server.max_concurrent_calls)
        self._forgotten = anyio.Event()
        self._client: Client | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sequence[Tool]]:
        """Connect and yield the tools; see `McpServer.connect`."""
        inside: list[BaseException | None] = []  # empty while connecting, then how the caller's block ended
        try:
            with anyio.fail_after(self._server.request_timeout) as patience:
                async with self._connected() as client:
                    tools = await self._offered(await self._listed(client))
                    # Only connecting is limited. The scope stays open, so that leaving can be limited by it again.
                    patience.deadline = math.inf
                    self._client = client
                    try:
                        yield tools
                        inside.append(None)
                    except BaseException as error:
                        inside.append(error)
                        raise
                    finally:
                        self._client = None
                        # A server that does not answer must not keep the run from ending.
                        patience.deadline = anyio.current_time() + LEAVE_SECONDS
        # The SDK's task groups wrap everything, also errors of the caller's block and cancellations.
        except BaseExceptionGroup as group:
            cancelled, _ = group.split(anyio.get_cancelled_exc_class())
            if cancelled is not None:  # pass our own cancellation on, whatever else failed while leaving
                raise cancelled from None
            self._end(inside, group)
        except Exception as error:  # noqa: BLE001 - raised again, in one sentence
            self._end(inside, error)

    async def call(self, tool: str, output: JsonSchema | None, arguments: Mapping[str, Any]) -> str | ToolResult:
        """Call a tool and return its result as text, with its files if any; raises errors that the member may read."""
        async with self._slots:
            if self._client is None:
                raise self._gone()  # it was lost while this call waited for its slot
            result = await self._answer(self._client, tool, thaw(arguments))
        if result.is_error:
            raise RuntimeError(self._masked(result_text(result)) or f"the tool {tool!r} failed without a message")
        if output is not None:
            self._check_promise(tool, output, result)
        text, files = result_text(result), result_files(result)
        return ToolResult(text, files=files) if files else text

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Client]:
        """Yield a client until the block or the server ends."""
        from mcp import Client
        from mcp.types import Implementation

        server = self._server
        transport = server.transport.open(server.name, self._notes, server.request_timeout)
        me = Implementation(name="kairo-team", version=version_of_library())
        # No cache: the tools are listed once a connection, so nothing would be read from it.
        async with Client(pumped(transport, self._forgotten, self._notes), client_info=me, cache=None) as client:
            yield client

    async def _listed(self, client: Client) -> list[wire.Tool]:
        """Read the list of tools, page by page; raises when there are too many."""
        tools: list[wire.Tool] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            if len(tools) > self._server.max_tools:
                raise _Unfit(
                    f"it has more than {self._server.max_tools} tools; give a higher max_tools, or let it offer fewer"
                )
            if page.next_cursor is None:
                return tools
            if page.next_cursor == cursor:  # a server's bug must not loop us
                raise _Unfit(f"its list of tools never ends: the page after {cursor!r} is that page again")
            cursor = page.next_cursor

    async def _offered(self, listed: Sequence[wire.Tool]) -> list[Tool]:
        """Make the tools; leave out those that cannot be used, with a warning in the log."""
        by_name = {tool.name: tool for tool in reversed(listed)}  # of several with the same name the first
        allowed = self._allowed(by_name)
        # Sorted, so that a name does not depend on the order in which the server lists its tools.
        names = model_names(self._server.name, sorted(by_name))
        fitted = dict(zip(sorted(by_name), names, strict=True))
        tools: list[Tool] = []
        for tool in listed:
            if tool.name not in allowed:
                continue
            await checkpoint()  # a schema takes milliseconds, and there may be many
            try:
                if by_name[tool.name] is not tool:
                    raise ValueError("the server has another tool of that name")
                tools.append(self._tool(tool, fitted[tool.name]))
            except ValueError as error:
                _logger.warning("MCP server %r: the tool %r is left out: %s", self._server.name, tool.name, error)
        if unknown := self._server.side_effects.keys() - by_name.keys():
            _logger.warning(
                "MCP server %r has no tools named %s, which its side_effects name; it has %s",
                self._server.name,
                known(unknown),
                known(by_name),
            )
        return tools

    def _allowed(self, names: Collection[str]) -> Collection[str]:
        """Return the names of the tools that may be used; raises for an entry of `allow` that matches none."""
        if self._server.allow is None:
            return names
        matching = {
            entry: {name for name in names if entry == name or fnmatchcase(name, entry)} for entry in self._server.allow
        }
        idle = [entry for entry, found in matching.items() if not found]
        if idle:
            hint = did_you_mean(idle[0], names) if len(idle) == 1 else ""
            raise _Unfit(
                f"its allow names {known(idle)}, which none of its tools match; {hint}"
                f"it has {known(names, none='no tool')}"
            )
        return {name for found in matching.values() for name in found}

    def _tool(self, tool: wire.Tool, name: str) -> Tool:
        """Make one tool; raises `ValueError` for a tool that cannot be called or has an invalid schema."""
        if getattr(getattr(tool, "execution", None), "task_support", None) == "required":
            raise ValueError("it can only be called as a task (taskSupport is 'required'), and tasks are not supported")
        size = len(json.dumps(tool.input_schema))
        if size > MAX_SCHEMA:
            raise ValueError(f"its schema has {size:,} characters, and at most {MAX_SCHEMA:,} are allowed")
        arguments = JsonSchema(tool.input_schema, "an MCP server")
        try:
            output = None if tool.output_schema is None else JsonSchema(tool.output_schema, "an MCP server")
        except ValueError as error:
            raise ValueError(f"in its outputSchema: {error}") from error
        reads = self._server.trust_annotations and tool.annotations is not None and tool.annotations.read_only_hint
        return Tool(
            name,
            partial(self.call, tool.name, output),
            description=tool.description or "",
            parameters=tool.input_schema,
            side_effect=self._server.side_effects.get(tool.name) or ("read" if reads else "system"),
            check=partial(checked_arguments, arguments),
            server=self._server.name,
            server_tool=tool.name,
            allowed=self._server.allow is not None,
        )

    async def _answer(self, client: Client, tool: str, arguments: dict[str, Any]) -> wire.CallToolResult:
        """Send one call and return the server's answer; errors name the server."""
        from mcp import MCPError
        from mcp import types as wire

        request = wire.CallToolRequest(params=wire.CallToolRequestParams(name=tool, arguments=arguments))
        self._notes.status, self._notes.unread = None, ""  # what an earlier call met must not explain this one
        answer: wire.CallToolResult | wire.InputRequiredResult
        try:
            answer = await client.session.send_request(
                request, _answers(), request_read_timeout_seconds=self._server.request_timeout
            )
        except MCPError as error:
            raise self._failed(tool, error) from None
        except ValidationError:
            raise RuntimeError(f"{self._name} answered {tool!r} with something that is not a tool's result") from None
        if isinstance(answer, wire.InputRequiredResult):
            raise RuntimeError(
                f"{self._name} asks for a model's or a user's answer to continue with {tool!r}: that is refused"
            )
        return answer

    def _failed(self, tool: str, error: MCPError) -> Exception:
        """Return the error of a failed call."""
        from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT

        if error.code == REQUEST_TIMEOUT:
            late = f"{self._name} did not answer {tool!r} within {self._server.request_timeout:g} s"
            return TimeoutError(self._masked(f"{late}{self._unread()}"))
        # In the specification 404 says that the session is gone; the next caller connects again.
        if error.code == INVALID_REQUEST and self._notes.status == NOT_FOUND:
            self._forgotten.set()
        if error.code == CONNECTION_CLOSED or self._forgotten.is_set():
            return self._gone()
        return RuntimeError(f"{self._name} did not do {tool!r}: {self._error_text(error)}")

    def _check_promise(self, tool: str, output: JsonSchema, result: wire.CallToolResult) -> None:
        """Raise `RuntimeError` when a result does not match the server's own schema."""
        # JSON's null is a structured result too.
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            faults = ["there is no structured content"]
        else:
            try:
                faults = output.faults(result.structured_content)
            except ValueError as error:
                faults = [str(error)]
        if faults:
            raise RuntimeError(
                f"{self._name} breaks its own schema: the result of {tool!r} does not fit its outputSchema: "
                f"{'; '.join(faults)}"
            )

    def _end(self, inside: list[BaseException | None], error: Exception | BaseExceptionGroup[Any]) -> None:
        """Raise the error for the end of a connection."""
        place = self._server.transport.place
        # The block was not entered.
        if not inside:
            raise ConnectionError(
                self._masked(f"{self._name} ({place}) cannot be connected: {self._why_not_connected(error)}")
            ) from None
        # The work was done: an error of leaving changes no result.
        if inside[0] is None:
            _logger.debug("%s broke while it was left: %r", self._name, error)
            return
        # The block's own error, which the task groups around it have wrapped.
        if not isinstance(inside[0], anyio.get_cancelled_exc_class()):
            raise inside[0]
        raise ConnectionError(
            self._masked(f"{self._name} ({place}) was lost: {self._why_not_connected(error)}")
        ) from None

    def _why_not_connected(self, error: BaseException) -> str:
        """Return why the connection failed."""
        reasons = [reason for leaf in leaves_of(error) if (reason := self._reason(leaf))]
        return reasons[0] if reasons else f"{type(error).__name__}: {error}"

    def _reason(self, error: BaseException) -> str | None:
        from mcp import MCPError

        if isinstance(error, TimeoutError):
            seconds = f"{self._server.request_timeout:g} s"
            return (
                f"it was not ready within {seconds}; give it a longer request_timeout if it needs one{self._unread()}"
            )
        if isinstance(error, ConnectionLost):
            words = self._notes.last_words
            return f"{error}, its last output was {words!r}" if words else str(error)
        if isinstance(error, _Unfit):
            return str(error)
        if isinstance(error, MCPError):
            return self._error_text(error)
        if isinstance(error, ValidationError):
            return "its answer is not valid in the Model Context Protocol"
        return self._server.transport.reason(error)

    def _error_text(self, error: MCPError) -> str:
        """Return the server's error for a message, masked."""
        status = f" (HTTP {self._notes.status})" if self._notes.status is not None else ""
        return self._masked(f"it answered with the error {error.message!r}{status}")

    def _unread(self) -> str:
        unread = self._notes.unread
        return f"; it sent a message that is not valid in the Model Context Protocol: {unread}" if unread else ""

    def _gone(self) -> ConnectionError:
        return ConnectionError(f"{self._name} is no longer connected: none of its tools can be called")

    def _masked(self, text: str) -> str:
        return masked(text, self._server.transport.secrets)

    @property
    def _name(self) -> str:
        return f"MCP server {self._server.name!r}"


@cache
def _answers() -> TypeAdapter[Any]:
    """Return the adapter for a server's possible answers to a call."""
    from mcp import types as wire

    return TypeAdapter(wire.CallToolResult | wire.InputRequiredResult)
