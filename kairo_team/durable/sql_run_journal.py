"""What one session of a run records in a database, and what it can ask of earlier ones."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kairo_team.budget import Usage, picodollars
from kairo_team.durable import forks, recovery
from kairo_team.durable.codec import NotRecordable, encode
from kairo_team.engine.records.journal import body_here
from kairo_team.results import TeamStatus

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.durable.database import Database, Statement, Writing
    from kairo_team.errors import JournalError
    from kairo_team.events import Event
    from kairo_team.human import HumanRequest
    from kairo_team.results import TeamResult

_logger = logging.getLogger("kairo_team")

_NOTHING: Final = Usage()


class SqlRunJournal:
    """The recorded steps of one session of a run, kept on disk; fulfils `contracts.RunJournal`."""

    durable: ClassVar[bool] = True

    def __init__(self, database: Database, session: Writing, records: dict[str, object], *, keeps_events: bool) -> None:
        self._database = database
        self._session = session
        self._records = records
        session.events = deque() if keeps_events else None
        self._sent = 0
        self.digests: Mapping[str, str] = {}
        """Of what the run was begun with, by name."""
        self.in_doubt: Collection[str] = ()
        """Keys of tool calls that an earlier session sent, and of which nobody saw the end."""

    def serve(
        self,
        progress: Callable[[], tuple[float, int]],
        on_cancel: Callable[[str], object],
        on_lost: Callable[[JournalError], object],
    ) -> Callable[[Event], object] | None:
        """Serve the session that begins now, until its end; return what takes its events, None where none are kept."""
        session = self._session
        session.progress, session.on_cancel, session.on_lost = progress, on_cancel, on_lost
        self._database.open(session)
        return None if session.events is None else session.events.append

    @property
    def epoch(self) -> int:
        """The number of the session."""
        return self._session.epoch

    def put_also(self, *statements: Statement) -> None:
        """Have statements written in their order, with what is recorded."""
        self._put(*statements)

    def leave(self) -> None:
        """Be served no longer: what was given is still written."""
        self._database.leave(self._session)

    @property
    def interrupted(self) -> bool:
        """It was asked to record nothing more: the run can go on."""
        return self._session.interrupted

    def interrupt(self, reason: str) -> None:
        """Record nothing more, here and in the runs inside: the run goes on with `recover`. From any thread."""
        self._database.shut(self._session, reason)

    @property
    def records(self) -> Mapping[str, object]:
        """A live, read-only view: key to value."""
        return MappingProxyType(self._records)

    def get(self, key: str, default: object, /) -> object:
        """Return the value recorded under `key`, else `default`."""
        return self._records.get(key, default)

    def put(self, key: str, value: object, /) -> None:
        """Record `value` under `key`; what cannot be written is kept for this session alone."""
        self._put(*self._step(key, value))

    def put_answer(self, key: str, value: object, number: int, usage: Usage) -> None:
        """Record the answer of a call under a key, and in the same step the end of the call."""
        self._put(*self._step(key, value), self._end(number, "answered", usage))

    def _step(self, key: str, value: object) -> list[Statement]:
        self._records[key] = value
        if value is None and key.startswith("call:"):  # a call is about to be made: its own row says more
            return []
        try:
            written = encode(value)
        except NotRecordable as error:
            _logger.warning("step %r of run %r is not recorded: %s", key, self._session.run_id, error)
            return []
        sql = (
            "INSERT INTO step (run_id, key, value, epoch, seq, body) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (run_id, key) DO UPDATE"
            " SET value = excluded.value, epoch = excluded.epoch, seq = excluded.seq"
        )
        seq = self._number(told=key.startswith(forks.AFTER_THEIR_EVENT))
        body = body_here()
        place = None if body is None else body.place
        return [(sql, (self._session.run_id, key, written, self._session.epoch, seq, place))]

    def _number(self, *, told: bool) -> int:
        """Return the number of the event that tells of what is recorded now: the last one if that has, or the next."""
        session = self._session
        return self._database.last_event(session) + (not told or session.parent is not None)

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
        """Record that a call is about to be sent, and wait until that is on disk; return its number.

        `held` is what the call may use at most, `loops` the iterations of its attempt so far.
        """
        self._sent += 1
        session, number = self._session, self._sent
        picos = picodollars(held.dollars)
        unit_columns, unit_marks = ("", "") if session.unit is None else (", unit, fence", ", ?, ?")
        sql = (
            "INSERT INTO call (run_id, number, epoch, step, key, what, name, task_id, member, side_effect, loops,"
            f" held_tokens, held_picos, state, sent_at, seq{unit_columns})"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'sent', ?, ?{unit_marks})"
        )
        values = (session.run_id, number, session.epoch, step, key, what, name, task_id, member, side_effect, loops)
        more = (held.tokens, picos, time.time(), self._number(told=False), *(session.unit or ()))
        self._put((sql, (*values, *more)), sync=True)
        try:
            await self.written()
        except BaseException:
            self.ended(number, "unsent", _NOTHING)
            raise
        return number

    def ended(self, number: int, state: str, usage: Usage) -> None:
        """Record how a call ended, and what is charged for it."""
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
        return (
            sql,
            (state, *charged, time.time(), self._number(told=True), *here),
        )

    async def written(self) -> None:
        """Wait until all that was recorded is on disk; raises `JournalError` when it cannot be."""
        await self._database.written(self._session)

    def keep_open(self, question: HumanRequest) -> None:
        """Record a question that was put off."""
        self._put(asking(question))

    def close_question(self, question_id: str) -> None:
        """Record that the answer to a question was taken."""
        self._put(("DELETE FROM question WHERE id = ?", (question_id,)))

    def end(self, result: TeamResult) -> None:
        """Record how the session ended; of one that was interrupted, the events it has told since."""
        if self._session.interrupted:
            self._database.put_progress(self._session)
            return
        try:
            written: str | None = encode(result)
        except NotRecordable as error:
            _logger.warning("the result of run %r is not recorded: %s", self._session.run_id, error)
            written = None
        sql = "UPDATE run SET state = ?, usage = ?, result = ? WHERE run_id = ?"
        ended: list[Statement] = [(sql, (result.status.value, encode(result.usage), written, self._session.run_id))]
        if result.status is not TeamStatus.SUSPENDED:
            ended.append(recovery.closing(self._session.run_id))
        self._put(*ended, *self._database.settling(self._session), sync=True)
        self._database.leave(self._session)

    def _put(self, *statements: Statement, sync: bool = False) -> None:
        if statements:
            self._database.put(self._session, statements, sync=sync)

    def set_aside(self, budget: Budget) -> None:
        """Set a budget aside in the run's account, if it has one, before the run may spend it; waits for that.

        Raises `InsufficientBudget`, and changes nothing, where the account does not have so much.
        """
        self._database.set_aside(self._session, budget)


def asking(question: HumanRequest) -> Statement:
    """Return the statement that keeps a question."""
    sql = "INSERT INTO question (id, run_id, digest, body, asked_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
    return sql, (question.id, question.run_id, question.digest, encode(question), time.time())
