"""Requests to a run that is at work in another process: end one task, raise the budget, give a directive.

A request is a row. The process that has the run takes it at its next check, at most once, and writes the answer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kairo_team.durable.codec import decode_loaded, encode
from kairo_team.errors import JournalError, Misuse, RunFinished
from kairo_team.recorded import ENDED

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection, Statement
    from kairo_team.engine.records.run_handle import RunControl

_LOOK: Final = 0.2
"""Seconds between two looks for an answer."""
_MAY: Final = frozenset({"cancel_task", "top_up_run", "steer"})
"""The methods of `RunControl` that a request may name: other programs may write to the database."""


class Requests(Protocol):
    """The table of requests of a journal."""

    def put_request(self, request_id: str, run_id: str, body: str) -> None:
        """Record a request to the session that has a run; raises `RunFinished` or `Misuse` if none has it."""
        ...

    def request_answer(self, request_id: str, run_id: str) -> tuple[str, str | None]:
        """Return the state of the run, and the answer to a request, if it has one."""
        ...

    def withdraw_request(self, request_id: str) -> tuple[bool, str | None]:
        """Delete a request; return whether the run's process had taken it, and its answer."""
        ...


class LiveRequest(NamedTuple):
    """A request that the run's process has taken, and has to answer."""

    id: str
    body: str

    def apply(self, control: RunControl) -> None:
        """Do what is asked; raises what the run raises."""
        name, *arguments = decode_loaded(self.body)
        if name not in _MAY:
            raise Misuse(f"a run knows no request {name!r}")
        getattr(control, name)(*arguments)

    def answered(self, problem: str) -> Statement:
        """Return the statement that answers the request; `problem` says why nothing was done, "" that it was done."""
        return "UPDATE request SET answer = ? WHERE id = ?", (problem, self.id)


def take(connection: Connection, run_id: str, epoch: int) -> list[LiveRequest]:
    """Take the open requests to a session, the oldest first; from now on a withdrawal says that they were taken."""
    sql = "SELECT id, body FROM request WHERE run_id = ? AND epoch = ? AND taken = 0 ORDER BY asked_at, id"
    rows = connection.execute(sql, (run_id, epoch)).fetchall()
    mark = "UPDATE request SET taken = 1 WHERE id = ? AND taken = 0"
    return [LiveRequest(row[0], row[1]) for row in rows if connection.execute(mark, (row[0],)).rowcount]


def ask(journal: Requests, run_id: str, patience: float, name: str, *arguments: Any) -> None:
    """Ask a run in another process to call one of its methods, and wait for the answer.

    Raises `RunNotFound`, `RunFinished`, and `Misuse` if the run refuses, is not at work, or gives no answer within
    `patience` seconds.
    """
    request_id, body = uuid.uuid4().hex, encode((name, *arguments))
    journal.put_request(request_id, run_id, body)
    end, state, answer = time.monotonic() + patience, "running", None
    try:
        while answer is None and state == "running" and time.monotonic() < end:
            time.sleep(_LOOK)
            state, answer = journal.request_answer(request_id, run_id)
    except BaseException:  # also Ctrl-C: a request without a reader is not left behind
        with suppress(JournalError):
            journal.withdraw_request(request_id)
        raise
    taken, last = journal.withdraw_request(request_id)
    answer = last if answer is None else answer
    if answer is None:
        why = f"it is {state}" if state != "running" else f"its process did not answer within {patience:g} s"
        raise Misuse(
            f"run {run_id!r}: {why}, and " + ("may have done what was asked" if taken else "nothing was changed")
        )
    if answer:
        raise Misuse(answer)


def check_at_work(run_id: str, state: str) -> None:
    """Raise `RunFinished` or `Misuse` for a run that no process has."""
    if state in ENDED:
        raise RunFinished(run_id, state)
    if state != "running":
        first = "wait until it begins" if state == "queued" else "resume it first"
        raise Misuse(f"run {run_id!r} is {state}, and no process has it: {first}")


Obey = Callable[[Callable[["RunControl"], object], Callable[[str], object]], object]
"""Applies a request to a run, from any thread, and passes the answer on: "", or why nothing was done."""
