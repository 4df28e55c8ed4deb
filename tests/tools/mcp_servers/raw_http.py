"""A streamable-HTTP server without the SDK, in a thread of the test's own, with tools that misbehave.

It keeps sessions as servers of 2025 do. A call of `forget` makes it forget the session, `crash` is HTTP 500, `html`
is no MCP, `hang` takes a minute, `stream` streams as many characters as asked for, `moved` sends the client elsewhere,
and `headers` answers with the request's.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOLS = ("forget", "crash", "html", "hang", "stream", "moved", "headers", "t")


class Server(ThreadingHTTPServer):
    """One server: the status it answers to all, if any, whether it never answers to a goodbye, the session it knows."""

    daemon_threads = True
    status = 0
    clinging = False
    session = ""
    sessions = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ending = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]  # the server makes it and gives itself

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.reply(405, b"")

    def do_DELETE(self) -> None:
        if self.server.clinging:
            self.server.ending.wait(60)
        self.reply(405, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params = message.get("method"), message.get("params", {})
        if self.server.status:
            self.reply(self.server.status, b"no")
        elif method == "initialize":
            self.server.sessions += 1
            self.server.session = f"session-{self.server.sessions}"
            info = {"name": "raw", "version": "1"}
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
            self.answer(message, result, {"mcp-session-id": self.server.session})
        elif method == "server/discover":
            self.answer(message, None)
        elif self.headers["mcp-session-id"] != self.server.session:
            self.reply(404, b"")
        elif "id" not in message:
            self.reply(202, b"")
        elif method == "tools/list":
            self.answer(message, {"tools": [{"name": tool, "inputSchema": {"type": "object"}} for tool in TOOLS]})
        else:
            self.call(message, params["name"], params.get("arguments", {}))

    def call(self, message: Any, tool: str, arguments: Any) -> None:
        if tool == "forget":
            self.server.session = "another"
        if tool == "hang":
            self.server.ending.wait(60)
        if tool == "crash":
            self.reply(500, b"Traceback")
        elif tool == "html":
            self.reply(200, b"<h1>Welcome</h1>", {"content-type": "text/html"})
        elif tool == "moved":
            self.reply(307, b"", {"location": "http://127.0.0.1:9/elsewhere?key=sesame"})
        elif tool == "stream":
            event = json.dumps(self.result(message, "x" * arguments["characters"]))
            self.reply(200, f"event: message\ndata: {event}\n\n".encode(), {"content-type": "text/event-stream"})
        else:
            sent = json.dumps({name.lower(): value for name, value in self.headers.items()})
            self.answer(message, self.result(message, sent if tool == "headers" else tool)["result"])

    def result(self, message: Any, text: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}

    def answer(self, message: Any, result: Any, headers: dict[str, str] | None = None) -> None:
        outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown method"}}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode()
        self.reply(200, body, {"content-type": "application/json", **(headers or {})})

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Generator[Server]:
    """Serve until the block ends."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()
