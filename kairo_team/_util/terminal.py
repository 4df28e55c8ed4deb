"""The terminal, shared by questions and live views: one question at a time, one reader, views hidden meanwhile."""

from __future__ import annotations

import re
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TextIO

import anyio

from kairo_team._util.masking import masked
from kairo_team._util.threads import poster

Post = Callable[[Callable[[], object]], object]

_UNSAFE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, which begin terminal commands, overrides of the text direction, and lone surrogates."""


def clean(text: str) -> str:
    """Return the text with secrets masked, and with question marks for all characters that control a terminal."""
    text = masked(text)
    if text.isascii() and text.isprintable():  # most texts are, and this is quick
        return text
    return _UNSAFE.sub("?", text.replace("\r\n", "\n")).expandtabs(4)


BAR: Final = "  | "
"""Prefix of each line of a member's text, so that it cannot look like a line of the library's own."""


def barred(text: str) -> str:
    """Return the clean text with a bar before each line."""
    return "\n".join(f"{BAR}{line}".rstrip() for line in clean(text).split("\n"))


class Terminal:
    """The terminal where a person reads and types. Safe to share between event loops and threads."""

    def __init__(self, source: TextIO | None = None, sink: TextIO | None = None) -> None:
        """Use `source` and `sink` instead of stdin and stderr."""
        self.draws_aside: list[tuple[Callable[[], object], Callable[[], object]]] = []
        """Functions of live views: one to stop for a question, one to continue after it."""
        self._source = source
        self._sink = sink
        self._lock = threading.Lock()
        self._asked = False
        self._queue: deque[tuple[Post, anyio.Event]] = deque()
        self._reading = False
        self._taker: Callable[[str | Exception], object] | None = None

    def write(self, text: str, end: str = "\n") -> None:
        """Write a text for the person; nothing in it can move the cursor or hide itself."""
        print(clean(text), file=self._sink or sys.stderr, end=end, flush=True)

    @contextmanager
    def aside(self, stop: Callable[[], object], go_on: Callable[[], object]) -> Generator[None]:
        """During the block, call `stop` before each question and `go_on` after it, for a live view."""
        self.draws_aside.append((stop, go_on))
        try:
            yield
        finally:
            self.draws_aside.remove((stop, go_on))

    # ------------------------------------------------------------------ one question at a time

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Hold the terminal alone during the block; callers get it in the order in which they ask."""
        await self._take_turn()
        drawing = tuple(self.draws_aside)
        try:
            for stop, _ in drawing:
                stop()
            yield
        finally:
            for _, go_on in drawing:
                go_on()
            self._pass_on()

    async def _take_turn(self) -> None:
        with self._lock:
            if not self._asked:
                self._asked = True
                return
            mine = (poster(), anyio.Event())
            self._queue.append(mine)
        try:
            await mine[1].wait()
        except BaseException:
            with self._lock:
                waiting = mine in self._queue
                if waiting:
                    self._queue.remove(mine)
            if not waiting:
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the first waiting caller whose event loop still runs."""
        while True:
            with self._lock:
                if not self._queue:
                    self._asked = False
                    return
                post, turn = self._queue.popleft()
            try:
                post(turn.set)
            except RuntimeError:
                continue
            return

    # ------------------------------------------------------------------ one reader

    async def read(self) -> str:
        """Return the next line that the person types, "" at the end of the input.

        An abandoned reader keeps waiting in its thread, because it cannot be stopped. A line typed then answers the
        question that is open at that moment, or is discarded if none is open: it never answers a later question.
        """
        came, typed = anyio.Event(), list[str | Exception]()
        post = poster()

        def take(line: str | Exception) -> None:
            typed.append(line)
            post(came.set)

        with self._lock:
            self._taker = take
            begins, self._reading = not self._reading, True
        if begins:
            threading.Thread(target=self._read_one, name="kairo-terminal", daemon=True).start()
        try:
            await came.wait()
        finally:
            with self._lock:
                self._taker = None
        if isinstance(typed[0], Exception):
            raise typed[0]
        return typed[0]

    def _read_one(self) -> None:
        line: str | Exception
        try:
            stdin: TextIO | None = sys.stdin  # None where it was closed before the program began
            source = self._source or stdin
            line = "" if source is None else source.readline()
        except Exception as error:  # noqa: BLE001 - raised in the caller
            line = error
        with self._lock:
            self._reading = False
            take, self._taker = self._taker, None
        if take is not None:
            try:
                take(line)
            except RuntimeError:  # its event loop has ended
                return


TERMINAL = Terminal()
"""The terminal in which this process was started."""
