"""The tool sources of one run: each is connected once, in a task of its own, and disconnected when the run ends."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.abc import TaskStatus

from kairo_team.errors import innermost
from kairo_team.plugin_calls import asyncio_task, failure_of, own_task, shown, words_of
from kairo_team.tools.tool import Tool

if TYPE_CHECKING:
    from kairo_team.contracts import ToolSource
    from kairo_team.tools.permissions import ToolPermissions


def as_source(given: Any) -> ToolSource | None:
    """Return a tool source, or a pydantic-ai toolset as one; None for any other object."""
    # The shape decides, because a source needs no base class.
    if callable(getattr(given, "connect", None)):
        source: ToolSource = given
        return source
    toolsets: Any = sys.modules.get("pydantic_ai.toolsets")  # without it there cannot be one
    if toolsets is not None and isinstance(given, toolsets.AbstractToolset):
        from kairo_team.tools.pydantic_toolsets import ToolsetSource

        return ToolsetSource(given)
    return None


def blocked_sources(tools: Iterable[Any], permissions: ToolPermissions | None) -> Iterator[str]:
    """Yield a sentence for each MCP server among the tools none of whose tools are allowed."""
    module: Any = sys.modules.get("kairo_team.tools.mcp")  # without it there cannot be a server
    servers = [] if module is None else [one for one in tools if isinstance(one, module.McpServer)]
    if not servers:
        return
    from kairo_team.governance.policies.mcp_policy import McpPolicy

    given = permissions.mcp if permissions is not None else None
    policy = given or McpPolicy()
    for server in servers:
        if given is None and server.allow is not None:
            continue
        if (reason := policy.blocked(server.name)) is not None:
            advice = (
                "with allow=['TOOL'] where the server is made"
                if given is None
                else f"permissions=kt.ToolPermissions(mcp=McpPolicy(allowed=['{server.name}/TOOL']))"
            )
            yield f"{reason}: list what may be used, {advice}"


_logger = logging.getLogger("kairo_team")


@dataclass(slots=True, eq=False)
class _Connection:
    """One attempt to connect, and its result."""

    source: ToolSource
    settled: anyio.Event = field(default_factory=anyio.Event)
    tools: tuple[Tool, ...] = ()
    error: Exception | None = None

    def settle(self, *, tools: tuple[Tool, ...] = (), error: Exception | None = None) -> None:
        """Wake the waiting calls; only the first result counts."""
        if not self.settled.is_set():
            self.tools, self.error = tools, error
            self.settled.set()


class Connections:
    """The connections of one run. `serve` hosts them, `tools` requests them.

    Each connection is entered and left by the same task, so that the cancel scopes inside it nest, whichever task
    requests it first and however the run ends.
    """

    def __init__(self) -> None:
        self._connections: dict[str, _Connection] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._serving = anyio.Event()
        self._ending = anyio.Event()
        """Reaches what waits behind a shield that a source left open: no cancellation does."""
        self._server: Any = None
        """The task that runs `serve`."""

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Host every connection until cancelled, and close all before returning. Call it once per object.

        The time to close depends on the sources; an MCP server's process is ended within five seconds.
        """
        if self._serving.is_set():
            raise RuntimeError("serve was called before on these connections: make new Connections() for each run")
        try:
            async with anyio.create_task_group() as self._tasks:
                self._server = asyncio_task()
                self._serving.set()
                task_status.started()
                try:
                    await anyio.sleep_forever()
                finally:
                    self._ending.set()
        finally:
            self._tasks = None

    async def tools(self, source: ToolSource) -> Sequence[Tool]:
        """Return the source's tools; connect first if it is not connected.

        Concurrent callers wait for the same connection. When it fails, all of them get its error, and the next call
        connects again, as after a lost connection. Waits until `serve` runs. Raises `ValueError` for another source of
        the same name.
        """
        await self._serving.wait()
        connection = self._connection(source)
        await connection.settled.wait()
        if connection.error is not None:
            raise connection.error
        return connection.tools

    def _connection(self, source: ToolSource) -> _Connection:
        """Return the connection of this source; begin one if it has none."""
        name: Any = source.name
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"a tool source needs a name, not {name!r}: {source!r}")
        known = self._connections.get(name)
        if known is None:
            if self._tasks is None:
                raise ConnectionError(f"the run has ended: the tool source {name!r} can no longer be connected")
            known = self._connections[name] = _Connection(source)
            self._tasks.start_soon(self._host, name, known)
        elif known.source is not source and known.source != source:
            raise ValueError(f"two different tool sources of this run are named {name!r}: rename one of them")
        return known

    async def _host(self, name: str, connection: _Connection) -> None:
        """Keep one connection open until the run ends or it is lost; errors of the source affect nothing else."""
        async with own_task(self._server):
            try:
                await self._hold(name, connection)
            except BaseException as raised:
                error = failure_of(raised)
                if error is None:
                    raise
                cause = innermost(error)
                if connection.settled.is_set():
                    _logger.warning("the tool source %r is no longer connected: %s", name, words_of(cause))
                self._forget(name, connection)
                connection.settle(error=cause)
            finally:
                self._forget(name, connection)
                connection.settle(error=ConnectionError(f"the run ended before the tool source {name!r} was connected"))

    async def _hold(self, name: str, connection: _Connection) -> None:
        async with connection.source.connect() as tools:
            try:
                connection.settle(tools=_checked(name, tools))
                await self._ending.wait()
            finally:
                self._forget(name, connection)  # before leaving it, which may take a while

    def _forget(self, name: str, connection: _Connection) -> None:
        """Make the next caller connect again."""
        if self._connections.get(name) is connection:
            del self._connections[name]  # only ours: a new one may have its place already


def _checked(name: str, tools: Any) -> tuple[Tool, ...]:
    """Return the tools of a source as a tuple; raises `TypeError` unless all are tools."""
    if not isinstance(tools, Iterable):
        raise TypeError(f"the tool source {name!r} must yield a sequence of Tool, not {shown(tools)}")
    given = tuple(cast("Iterable[Any]", tools))  # type: ignore[redundant-cast]  # pyright needs it
    for tool in given:
        if not isinstance(tool, Tool):
            raise TypeError(f"the tool source {name!r} must yield a sequence of Tool; {shown(tool)} is not one")
    return given
