"""The provider: it answers after a while, and notes every call before and after; and what its notes say."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

PAUSE: Final = 0.1
"""Seconds that a call takes."""


@dataclass
class Call:
    """A call that came to the provider; times are of `time.monotonic`."""

    step: str
    worker: str
    asked: float
    answered: float | None = None

    def open_at(self, moment: float) -> bool:
        """Whether it was under way at a moment."""
        return self.asked <= moment and (self.answered is None or moment < self.answered)


@dataclass(frozen=True)
class Bill:
    """What a provider was asked, where something happened to a worker."""

    calls: int
    steps: int
    """Different steps that were answered."""
    cut: int
    """Calls of that worker that were under way then."""
    again: int
    """Calls for a step that had been answered; answers to the cut calls do not count: maybe nobody heard them."""
    twice: int
    """Calls for a step while another call for it was under way."""


def count(calls: Sequence[Call], *faults: tuple[str, float]) -> Bill:
    """Read the notes, in the order the calls came; `faults` are the workers that something happened to, and when."""
    cut = [call for call in calls if any(call.worker == one and call.open_at(moment) for one, moment in faults)]
    again = twice = 0
    for number, call in enumerate(calls):
        before = [one for one in calls[:number] if one.step == call.step]
        again += any(one.answered is not None and one.answered <= call.asked and one not in cut for one in before)
        twice += any(one.open_at(call.asked) for one in before)
    steps = {call.step for call in calls if call.answered is not None}
    return Bill(len(calls), len(steps), len(cut), again, twice)


class Provider(ThreadingHTTPServer):
    """Answers with the step's name."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free port of this machine."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def calls(self) -> list[Call]:
        """The notes so far."""
        with self._lock:
            return list(self._calls)

    def begin(self, step: str, worker: str) -> Call:
        """Note a call."""
        with self._lock:
            self._calls.append(call := Call(step, worker, time.monotonic()))
        return call

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of those who do not wait for their answer."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        assert isinstance(self.server, Provider)
        call = self.server.begin(asked["step"][0], asked["worker"][0])
        time.sleep(PAUSE)
        call.answered = time.monotonic()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(call.step.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal free."""


@contextmanager
def serving() -> Generator[Provider]:
    """Let a provider answer for the block."""
    provider = Provider()
    thread = threading.Thread(target=provider.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.shutdown()
        provider.server_close()
