"""A server made with the official SDK: `sdk.py stdio`, or `sdk.py http`, which prints its port and a line end.

It measures how many of its calls are under way at once, and asks the client for what a client may refuse.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ImageContent, SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("reference")


class Load:
    now = 0
    most = 0


class Sum(BaseModel):
    total: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool(name="files.read")
def files_read(path: str) -> str:
    """Say what was asked for."""
    return f"content of {path}"


@server.tool()
async def busy(together: int) -> int:
    """Work until so many calls are under way at once, and a little longer; returns the most that were."""
    Load.now += 1
    Load.most = max(Load.most, Load.now)
    with anyio.move_on_after(20):
        while Load.most < together:
            await anyio.sleep(0.01)
    await anyio.sleep(0.05)
    Load.now -= 1
    return Load.most


@server.tool()
def picture() -> list[Any]:
    """Draw."""
    return [
        TextContent(type="text", text="Look:"),
        ImageContent(type="image", data="QUJD" * 4000, mime_type="image/png"),
    ]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the disk is full")


@server.tool()
def big(characters: int) -> str:
    """Say much."""
    return "x" * characters


@server.tool()
def exit_now() -> str:
    """End the server in the middle of the call."""
    os._exit(3)


@server.tool()
async def ask_model(context: Context[Any]) -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="What is 1 + 1?"))
    ask = context.session.create_message  # pyright: ignore[reportDeprecated]  # a server may still do it
    reply = await ask([message], max_tokens=10)
    return f"the model said {reply.content}"


@server.tool()
async def ask_user(context: Context[Any]) -> str:
    """Ask the client's user."""
    reply = await context.elicit("How much?", Sum)
    return f"the user said {reply}"


def serve_http() -> None:
    """Serve on a free port of the loopback."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    listener.listen()
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical", lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        serve_http()
    else:
        server.run("stdio")
