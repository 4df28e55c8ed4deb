"""Calls that take runs from a journal; runs that come when their caller has gone are given back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from anyio import get_cancelled_exc_class
from anyio.lowlevel import checkpoint_if_cancelled

from kairo_team._util.threads import run_in_thread
from kairo_team.errors import JournalError

if TYPE_CHECKING:
    from kairo_team.contracts import RunJournal

LEFT: Final = "the run does not continue here"

T = TypeVar("T")


class Takings:
    """The calls of a runtime, and of all its copies, that take runs from a journal."""

    def __init__(self) -> None:
        self._left: list[threading.Event] = []
        """One for each call whose caller has gone; set when its runs are given back."""
        self._given_back: list[RunJournal] = []

    async def take(self, call: Callable[..., T], *args: Any, runs: Callable[[T], Iterable[RunJournal]]) -> T:
        """Call a journal in a thread. If the caller is cancelled, `runs` of the result are given back afterwards."""
        await checkpoint_if_cancelled()  # from here on `give_back` is called if the caller leaves
        over = threading.Event()

        def give_back(taken: T | None, _error: BaseException | None) -> None:
            try:
                for one in () if taken is None else runs(taken):
                    one.interrupt(LEFT)
                    self._given_back.append(one)
            finally:
                over.set()

        try:
            return await run_in_thread(call, *args, on_late=give_back)
        except get_cancelled_exc_class():
            self._left.append(over)
            raise

    async def given_back(self) -> None:
        """Wait until all runs whose callers have gone are given back, and others can see it; not cancelled."""
        with anyio.CancelScope(shield=True):
            while self._left:
                await run_in_thread(self._left.pop().wait)
            while self._given_back:
                with suppress(JournalError):
                    await self._given_back.pop().written()
