"""What the tests with other libraries' tracing share: their environment, the programs of the page, and a receiver."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "traces.md"
FOLDER = os.environ.get("KAIRO_PHOENIX", "")
"""The environment with Phoenix, Logfire and Langfuse, which `make phoenix` makes."""
NEEDS = "make phoenix runs it: it installs Phoenix, Logfire and Langfuse into an environment of their own"
WORK = """
import kairo_team as kt
from kairo_team.messages import ToolCall
from kairo_team.testing import ScriptedModel

@kt.tool(side_effect="read")
def look(at: str) -> str:
    "Look up the tide."
    return f"high at {at}"

replies = [
    kt.ModelResponse("", [ToolCall("call-1", "look", {"at": "noon"})], kt.Usage(1_000, 500)),
    kt.ModelResponse("The tide is high.", usage=kt.Usage(2_000, 800), model="gpt-4o-mini-2024-07-18"),
]
clerk = kt.MiniAgent(ScriptedModel(replies, name="openai:gpt-4o-mini"), tools=[look])
plan = kt.TaskGraph([kt.Task("report", "Report the tide.")])
request = kt.TeamExecutionRequest("Watch the sea.", plan=plan, run_id="tide-run")
result = kt.run_sync(kt.Team("coast-guard", [kt.Member("clerk", clerk)]), request, runtime=runtime)
assert result.output == "The tide is high.", result
"""
NAMES = [
    "chat gpt-4o-mini",
    "chat gpt-4o-mini",
    "execute_tool look",
    "invoke_agent clerk",
    "invoke_workflow coast-guard",
    "task report",
]


def program(word: str) -> str:
    """The program of docs/traces.md that contains a word."""
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    [found] = [str(block) for block in blocks if word in block]
    return found


def play(code: str, python: Path | str, **variables: str) -> None:
    """Run a program to its end in another process, which sees nothing of the tests' own variables."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    done = subprocess.run(
        [str(python), "-c", code],
        env={**kept, "PYTHONPATH": str(ROOT), "NO_PROXY": "*", **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def spans_of(received: list[tuple[str, Any, bytes]], scope: str = "kairo_team") -> list[Any]:
    """The spans in what a receiver of OTLP got."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    requests = [ExportTraceServiceRequest.FromString(body) for path, _, body in received if path.endswith("/traces")]
    scopes = [one for request in requests for resource in request.resource_spans for one in resource.scope_spans]
    return [span for one in scopes if one.scope.name == scope for span in one.spans]


@contextmanager
def serving(received: list[tuple[str, Any, bytes]]) -> Generator[str]:
    """Serve HTTP on this machine, and keep the path, headers and body of every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            received.append((self.path, self.headers, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the server's name for it

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
