"""An MCP server of governed tools for another library's agent, by the official SDK (extra `mcp`)."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import anyio
from anyio.abc import TaskStatus

from kairo_team._util.frozen import thaw
from kairo_team.errors import KairoError, MissingExtra
from kairo_team.messages import ToolCall

if TYPE_CHECKING:
    from kairo_team.files import File
    from kairo_team.tools.pipeline import Toolbox
    from kairo_team.tools.result import ToolResult

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""An ASGI 3 application."""

MAX_REQUEST: Final = 64 * 1024 * 1024
"""Most bytes of one request."""


class ToolServer:
    """Serves a toolbox: each call goes through its pipeline, as if the member had made it.

    `refuse` takes the error that ended a call, or None before a call, and returns the sentence for the caller; before a
    call, None lets the call be made.
    """

    def __init__(self, tools: Toolbox, refuse: Callable[[KairoError | None], str | None]) -> None:
        if find_spec("mcp") is None:
            raise MissingExtra("context.address(tools=...)", "mcp")
        from mcp.server.lowlevel import Server
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        self._tools = tools
        self._refuse = refuse
        server: Server[Any] = Server("kairo-team", on_list_tools=self._list, on_call_tool=self._call)
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=MAX_REQUEST
        )
        self.app: AsgiApp = self._manager.handle_request
        """Answers requests while `serve` runs, each by itself: without sessions and streams."""

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with self._manager.run():
            task_status.started()
            await anyio.sleep_forever()

    async def _list(self, _context: Any, _page: Any) -> Any:
        from mcp.types import ListToolsResult, Tool, ToolAnnotations

        return ListToolsResult(
            tools=[
                Tool(
                    name=one.name,
                    description=one.spec.description,
                    input_schema={"type": "object", **thaw(one.spec.parameters)},  # the protocol requires a type
                    annotations=ToolAnnotations(read_only_hint=one.tool.side_effect == "read"),
                )
                for one in self._tools
            ]
        )

    async def _call(self, _context: Any, asked: Any) -> Any:
        from mcp.types import CallToolResult, TextContent

        arguments: Mapping[str, Any] = asked.arguments or {}
        sentence = self._refuse(None)
        if sentence is None:
            try:
                # MCP names no call, and the pipeline needs an id that no other call has.
                (result,) = await self._tools.run([ToolCall(f"call_{uuid4().hex}", asked.name, arguments)])
            except KairoError as error:
                sentence = self._refuse(error) or str(error)
            else:
                return _written(result)
        return CallToolResult(content=[TextContent(text=sentence)], is_error=True)


def _written(result: ToolResult) -> Any:
    """Return a result with its text first, then its files."""
    from mcp.types import CallToolResult, TextContent

    files = [one for one in map(_content, result.files) if one is not None]
    return CallToolResult(content=[TextContent(text=result.text), *files], is_error=result.is_error)


def _content(file: File) -> Any:
    """Return a file as content of a result; None for one that is only an address, which is in the text."""
    from mcp.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent

    if file.data is None:
        return None
    data, kind = base64.b64encode(file.data).decode(), file.media_type
    if kind.startswith("image/"):
        return ImageContent(data=data, mime_type=kind)
    if kind.startswith("audio/"):
        return AudioContent(data=data, mime_type=kind)
    return EmbeddedResource(resource=BlobResourceContents(uri=f"file:///{file.name}", mime_type=kind, blob=data))
