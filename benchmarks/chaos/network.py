"""What is between the processes: a proxy in front of the database for each, and the provider with its account."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
LONGEST_LINE: Final = 100_000
FAILING: Final = 25
"""Every so many calls the provider fails."""


async def listen(handler: Any, group: anyio.abc.TaskGroup) -> int:
    """Serve connections on a free port of this machine, and return it."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def serve() -> None:
        async with listener:
            await listener.serve(handler)

    group.start_soon(serve)
    host_and_port: Any = listener.listeners[0].extra(anyio.abc.SocketAttribute.local_address)  # noqa: S610 - no Django
    port: int = host_and_port[1]
    return port


class Proxy:
    """The way of one process to the database: it can be stalled, so that nothing comes through, or cut."""

    def __init__(self, database: int) -> None:
        """`database` is the port of the server."""
        self._database = database
        self._flows = anyio.Event()
        self._flows.set()
        self._cut = False
        self._open: set[anyio.abc.SocketStream] = set()
        self.port = 0

    async def start(self, group: anyio.abc.TaskGroup) -> None:
        """Listen."""
        self.port = await listen(self._serve, group)

    async def stall(self) -> None:
        """Let nothing through; connections stay as they are."""
        self._flows = anyio.Event()

    async def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._cut = True
        for stream in list(self._open):
            await anyio.aclose_forcefully(stream)

    async def heal(self) -> None:
        """Let everything through."""
        self._cut = False
        self._flows.set()

    async def _serve(self, near: anyio.abc.SocketStream) -> None:
        async with near:
            if self._cut:
                return
            with suppress(*_BROKEN):
                far = await anyio.connect_tcp("127.0.0.1", self._database)
                async with far, anyio.create_task_group() as group:
                    ends = {near, far}
                    self._open |= ends
                    try:
                        group.start_soon(self._pump, far, near, group.cancel_scope)
                        await self._pump(near, far, group.cancel_scope)
                    finally:
                        self._open -= ends

    async def _pump(self, source: anyio.abc.SocketStream, sink: anyio.abc.SocketStream, scope: Any) -> None:
        with suppress(*_BROKEN):
            while True:
                data = await source.receive()
                await self._flows.wait()
                await sink.send(data)
        await self._flows.wait()  # nobody hears through a stalled network that an end has closed
        scope.cancel()


@dataclass
class Asked:
    """A call that came to the provider."""

    key: str
    """The idempotency key."""
    answered: bool = False
    failed: bool = False
    tokens: int = 0
    """Those of the prompt and of the answer."""


class Provider:
    """Answers by the request alone, after 20 to 300 ms, and keeps an account; it never dies."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - durations, not secrets
        self.account: dict[str, list[Asked]] = defaultdict(list)
        """By run: the calls in the order they came."""
        self.port = 0
        self._calls = 0

    async def start(self, group: anyio.abc.TaskGroup) -> None:
        """Listen."""
        self.port = await listen(self._serve, group)

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(*_BROKEN, anyio.IncompleteRead):
                line = await BufferedByteReceiveStream(stream).receive_until(b"\n", LONGEST_LINE)
                answer = await self._answer(json.loads(line))
                await stream.send(json.dumps(answer).encode() + b"\n")

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Note a call before and after it is answered."""
        asked = Asked(request["key"])
        self.account[request["run"]].append(asked)
        self._calls += 1
        asked.failed = self._calls % FAILING == 0
        await anyio.sleep(self._chance.uniform(0.02, 0.3))
        words = answer_to(request["words"])[: request["most"]]
        if not asked.failed:
            asked.tokens = len(request["words"]) + len(words)
        asked.answered = True
        return {"failed": asked.failed, "text": " ".join(words)}


def answer_to(words: Sequence[str]) -> list[str]:
    """Return some words that depend on those of the request."""
    chance = random.Random(" ".join(words))  # noqa: S311 - it has to be the same each time
    return [f"w{chance.randrange(1000)}" for _ in range(chance.randint(3, 20))]
