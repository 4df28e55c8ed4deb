"""A loopback server that speaks three providers' wire, keeps connections open and counts them."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

MODELS: Final = (
    "openai-chat:gpt-4o-mini",
    "openai:gpt-5-mini",
    "anthropic:claude-haiku-4-5",
    "google:gemini-2.5-flash",
)
"""Names of models whose providers' own clients are pointed at the server by `Wires.environment`."""
PROMPT_TOKENS: Final = 7
REPLY_TOKENS: Final = 3


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep silent: clients leave when their time is up."""


class Wires:
    """Answers as OpenAI (chat, Responses), Anthropic and Gemini do, after `pause` seconds."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.opened = 0
        """Connections opened so far."""
        self.open = 0
        """Connections open now."""
        self.in_flight = 0
        self.most_in_flight = 0
        self.asked: list[str] = []
        """Paths, one for each call."""
        self.bodies: list[str] = []
        """What was sent."""
        self._together = 0
        self._stopped = False
        self._changed = threading.Condition()
        wires = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                wires.count(opened=1, open_=1)

            def finish(self) -> None:
                wires.count(open_=-1)
                super().finish()

            def do_POST(self) -> None:
                wires.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                wires.asked.append(self.path)
                wires.wait_in_flight()
                body = json.dumps(reply(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._http = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point the providers' own clients here."""
        return {
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": self.url,
            "GOOGLE_API_KEY": "k",
            "GOOGLE_GEMINI_BASE_URL": self.url,
        }

    def count(self, *, opened: int = 0, open_: int = 0, in_flight: int = 0) -> None:
        """Add to the counts."""
        with self._changed:
            self.opened += opened
            self.open += open_
            self.in_flight += in_flight
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._changed.notify_all()

    def together(self, calls: int) -> None:
        """Answer nobody before so many calls are in flight at once."""
        self._together = calls
        self.count()

    def wait_in_flight(self) -> None:
        """Hold a call as long as it is to be in flight."""
        self.count(in_flight=1)
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self.most_in_flight >= self._together, 120)
        time.sleep(self.pause)
        self.count(in_flight=-1)

    def all_closed(self) -> bool:
        """Return whether every connection is closed within a minute."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.open, 60)

    def stop(self) -> None:
        """Stop serving; what is in flight ends."""
        self._stopped = True
        self.count()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def reply(path: str) -> dict[str, Any]:
    """Return the reply "Fine." in the words of the provider whose path it is."""
    usage: dict[str, Any]
    if path.endswith("/chat/completions"):
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Fine."}}
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": REPLY_TOKENS, "total_tokens": 10}
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return {**head, "choices": [choice], "usage": usage}
    if path.endswith("/responses"):
        content: Any = [{"type": "output_text", "text": "Fine.", "annotations": []}]
        said: Any = {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": REPLY_TOKENS, "total_tokens": 10}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        head = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
        rest: Any = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return {**head, **rest, "output": [said], "usage": usage}
    if path.startswith("/v1/messages"):
        head = {"id": "1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": REPLY_TOKENS}
        return {**head, "content": [{"type": "text", "text": "Fine."}], "usage": usage}
    content = {"role": "model", "parts": [{"text": "Fine."}]}
    usage = {"promptTokenCount": PROMPT_TOKENS, "candidatesTokenCount": REPLY_TOKENS, "totalTokenCount": 10}
    return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}
