"""The journal of one session of a run in a database, with the records of earlier sessions."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from kairo_team.budget import NO_USAGE, Budget, Usage, picodollars
from kairo_team.durable import forks, recovery
from kairo_team.durable.accounts import set_aside, settle
from kairo_team.durable.codec import NotRecordable, encode
from kairo_team.durable.connection import column_of
from kairo_team.durable.kept_files import encode_for
from kairo_team.durable.owners import TAKEN_OVER
from kairo_team.engine.records.journal import body_here
from kairo_team.errors import JournalError
from kairo_team.results import TeamResult, TeamStatus

if TYPE_CHECKING:
    from kairo_team.durable.connection import Statement
    from kairo_team.durable.database import Database, Obey, Writing
    from kairo_team.events import Event
    from kairo_team.human import HumanRequest

_logger = logging.getLogger("kairo_team")


class SqlRunJournal:
    """The recorded steps of one session of a run, kept on disk; fulfils `contracts.RunJournal`."""

    durable: ClassVar[bool] = True

    def __init__(self, database: Database, session: Writing, records: dict[str, object], *, keeps_events: bool) -> None:
        self._database = database
        self._session = session
        self._records = records
        session.events = deque() if keeps_events else None
        self._sent = 0
        self._kept = set[str]()
        """Digests of the long texts and files that this session has kept."""
        self.digests: Mapping[str, str] = {}
        """Digests of the run's inputs, by name."""
        self.in_doubt: Collection[str] = ()
        """Keys of tool calls that an earlier session sent and whose end is not recorded."""

    def serve(
        self,
        progress: Callable[[], tuple[float, int]],
        on_cancel: Callable[[str], object],
        on_lost: Callable[[JournalError], object],
    ) -> Callable[[Event], object] | None:
        """Serve the session that begins now until it ends.

        Returns the function that takes its events; None if the journal keeps no events.
        """
        session = self._session
        session.progress, session.on_cancel, session.on_lost = progress, on_cancel, on_lost
        self._database.open(session)
        return None if session.events is None else session.events.append

    def take_requests(self, obey: Obey) -> None:
        """Have `obey` do what other processes ask of the run while the session is served."""
        self._session.on_request = obey

    @property
    def epoch(self) -> int:
        """The number of the session."""
        return self._session.epoch

    def queue_statements(self, *statements: Statement) -> None:
        """Queue statements for the writer, in order with the records."""
        self._put(*statements)

    def leave(self) -> None:
        """End the service of the session; earlier entries are still written."""
        self._database.leave(self._session)

    @property
    def interrupted(self) -> bool:
        """Whether the session was interrupted on request: the run can be resumed."""
        return self._session.interrupted

    def interrupt(self, reason: str) -> None:
        """Record nothing more, here and in the runs inside; `recover` can resume the run. From any thread."""
        self._database.shut(self._session, reason)

    @property
    def records(self) -> Mapping[str, object]:
        """A live, read-only view of the recorded values by key."""
        return MappingProxyType(self._records)

    def get(self, key: str, default: object, /) -> object:
        """Return the value recorded under `key`, or `default`."""
        return self._records.get(key, default)

    def put(self, key: str, value: object, /) -> None:
        """Record `value` under `key`; a value that cannot be written is kept for this session only."""
        self._put(*self._step(key, value))

    def put_answer(self, key: str, value: object, number: int, usage: Usage) -> None:
        """Record the answer of a call under `key` and the end of the call, in one transaction."""
        self._put(*self._step(key, value), self._end(number, "answered", usage))

    def _step(self, key: str, value: object) -> list[Statement]:
        self._records[key] = value
        if value is None and key.startswith("call:"):  # a call that is about to be sent: its row in `call` says more
            return []
        try:
            written, files = encode_for(self._session.run_id, value, self._kept)
        except NotRecordable as error:
            _logger.warning("step %r of run %r is not recorded: %s", key, self._session.run_id, error)
            return []
        sql = (
            "INSERT INTO step (run_id, key, value, epoch, seq, body) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (run_id, key) DO UPDATE"
            " SET value = excluded.value, epoch = excluded.epoch, seq = excluded.seq"
        )
        seq = self._number(after_event=key.startswith(forks.AFTER_THEIR_EVENT))
        body = body_here()
        place = None if body is None else body.place
        return [*files, (sql, (self._session.run_id, column_of(key), written, self._session.epoch, seq, place))]

    def _number(self, *, after_event: bool) -> int:
        """Return the number of the last event if the record follows its event, else of the next one.

        For a run inside another, return the number after the last event of the outermost run.
        """
        session = self._session
        return self._database.last_event(session) + (not after_event or session.parent is not None)

    async def sent(
        self,
        what: str,
        name: str,
        held: Usage,
        *,
        step: str,
        key: str,
        task_id: str | None,
        member: str | None,
        side_effect: str | None,
        loops: int,
    ) -> int:
        """Record that a call is about to be sent, and wait until that is on disk; return the call's number.

        `held` is the most that the call may use, `loops` the number of iterations of its attempt so far.
        """
        self._sent += 1
        session, number = self._session, self._sent
        picos = picodollars(held.dollars)
        # The table of a file has no such columns: units are a cluster's.
        unit_columns, unit_marks = ("", "") if session.unit is None else (", unit, fence", ", ?, ?")
        sql = (
            "INSERT INTO call (run_id, number, epoch, step, key, what, name, task_id, member, side_effect, loops,"
            f" held_tokens, held_picos, state, sent_at, seq{unit_columns})"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'sent', ?, ?{unit_marks})"
        )
        values = (session.run_id, number, session.epoch, step, key, what, name, task_id, member, side_effect, loops)
        more = (held.tokens, picos, time.time(), self._number(after_event=False), *(session.unit or ()))
        self._put((sql, (*values, *more)), sync=True)
        try:
            await self.written()
        except BaseException:
            # Also if the session was interrupted meanwhile: else the call would be in doubt, and charged.
            self._database.put(session, [self._end(number, "unsent", NO_USAGE)], after_shut=True)
            raise
        return number

    def ended(self, number: int, state: str, usage: Usage) -> None:
        """Record the final state of a call and the usage that it is charged."""
        self._put(self._end(number, state, usage))

    def _end(self, number: int, state: str, usage: Usage) -> Statement:
        sql = (
            "UPDATE call SET state = ?, prompt = ?, completion = ?, picos = ?, ended_at = ?, ended_seq = ?"
            " WHERE run_id = ? AND epoch = ? AND number = ?"
        )
        here: tuple[Any, ...] = (self._session.run_id, self._session.epoch, number)
        if self._session.unit is None:
            sql += self._database.own_calls
        else:
            sql, here = f"{sql} AND unit = ? AND fence = ?", (*here, *self._session.unit)
        charged = (usage.prompt_tokens, usage.completion_tokens, picodollars(usage.dollars))
        return sql, (state, *charged, time.time(), self._number(after_event=True), *here)

    async def written(self) -> None:
        """Wait until all records are on disk; raises `JournalError` if they cannot be written."""
        await self._database.written(self._session)

    def keep_open(self, question: HumanRequest) -> None:
        """Record a question that stays open."""
        self._put(asking(question))

    def close_question(self, question_id: str) -> None:
        """Delete a question whose answer the run has taken."""
        self._put(("DELETE FROM question WHERE id = ?", (question_id,)))

    def end(self, result: TeamResult) -> None:
        """Record how the session ended; for an interrupted session, only the events emitted since."""
        if self._session.interrupted:
            self._database.put_progress(self._session)
            return
        written: str | None = None
        files: list[Statement] = []
        try:
            written, files = encode_for(self._session.run_id, result, self._kept)
        except NotRecordable as error:
            _logger.warning("the result of run %r is not recorded: %s", self._session.run_id, error)
        sql = "UPDATE run SET state = ?, usage = ?, result = ? WHERE run_id = ?"
        ended: list[Statement] = [
            *files,
            (sql, (result.status.value, encode(result.usage), written, self._session.run_id)),
        ]
        if result.status is not TeamStatus.SUSPENDED:
            ended.append(recovery.closing(self._session.run_id))
        # Settled last, by the usage that the statements before have recorded.
        self._put(*ended, partial(settle, run_id=self._session.run_id, epoch=self._session.epoch), sync=True)
        self._database.leave(self._session)

    def _put(self, *statements: Statement, sync: bool = False) -> None:
        if statements:
            self._database.put(self._session, statements, sync=sync)

    def set_aside(self, budget: Budget) -> None:
        """Set a budget aside in the run's account, if it has one, and wait for that, before the run may spend it.

        Raises `InsufficientBudget`, and changes nothing, if the account has less left.
        """
        session = self._session
        if not self._database.change(lambda connection: set_aside(connection, session.run_id, session.epoch, budget)):
            raise JournalError(self._database.place, TAKEN_OVER)


def asking(question: HumanRequest) -> Statement:
    """Return the statement that records a question."""
    # Asked again after a crash, a question keeps its answer.
    sql = "INSERT INTO question (id, run_id, digest, body, asked_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
    return sql, (question.id, question.run_id, question.digest, encode(question), time.time())
