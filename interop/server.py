"""The scripted server: it answers over HTTP on loopback, and counts for itself what it was asked and answered."""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from interop.script import prompt_tokens, reply


@dataclass(frozen=True, slots=True)
class Served:
    """One call that the server answered."""

    run: str
    session: int
    """The process or the part of a run that made it: 0 until the kill, then 1."""
    what: str
    """A digest of the prompt."""
    tokens: int
    begun: float
    """Time of the machine's clock, in seconds."""


class ScriptedServer:
    """Serves in a thread for the length of a `with` block; `calls` has what it answered, in order."""

    def __init__(self) -> None:
        self.calls: list[Served] = []
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def answer(self, run: str, session: int, request: Any) -> Any:
        """Answer a request after a moment, and count it: what was sent is paid, whoever still waits for it."""
        begun = time.time()
        answered = reply(run, request)
        prompt = prompt_tokens(request)
        text = json.dumps([request["messages"], request["tools"]], sort_keys=True)
        what = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            self.calls.append(Served(run, session, what, prompt + answered["tokens"], begun))
        time.sleep(random.Random(what).uniform(0.0, 0.03))  # noqa: S311 - a script; so that kills find calls under way
        return {**answered, "prompt": prompt}

    def of(self, run: str) -> list[Served]:
        """Return the calls of a run."""
        with self._lock:
            return [call for call in self.calls if call.run == run]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            _, run, session = self.path.split("/")
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps(server.answer(run, int(session), request)).encode()
            try:
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the caller was killed
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler
