"""Sources of the console's runs and questions, with its actions on them; a journal is one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from kairo_team.cluster.coverage import coverage_of
from kairo_team.durable.codec import outline
from kairo_team.durable.event_pages import read_pages, read_rows
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.events import Content
from kairo_team.recorded import ENDED, GIVEN_UP
from kairo_team.results import Attempt
from kairo_team.views.progress import RowState
from kairo_team.views.recorded_report import page_of_run
from kairo_team.views.run_record import (
    Progress,
    call_sums,
    first_budget,
    planned_tasks,
    raised_limits,
    recorded_attempts,
    recorded_error,
    recorded_progress,
    recorded_result,
    runs_inside,
)
from kairo_team.web_console.made_files import MadeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kairo_team.budget import Budget
    from kairo_team.durable.accounts import Account
    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.engine.records.run_handle import Run
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.events import Event
    from kairo_team.files import File
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.recorded import RecordedRun
    from kairo_team.results import TeamResult
    from kairo_team.views.run_record import CallSum, RunInside
    from kairo_team.views.run_story import RunStory

_A_FILE: Final = '{"~":"file"'
"""How a record of a file begins."""
_A_TEXT: Final = ('{"type":"content",', '{"type": "content",')
"""How the line of an event with a text begins; the second one, if the text has half of a surrogate pair."""
_REMEMBERED: Final = 64
"""Runs whose unchanging values are kept."""
_LISTED: Final = 512
"""Runs of lists whose progress is kept."""
_BEGUN: Final = attrgetter("started_at")
_CHANGED: Final = attrgetter("state", "updated_at")
"""Keys of values: `_BEGUN` differs only in a new run with the id of a forgotten one."""

Found = TypeVar("Found")


class Standing(NamedTuple):
    """The state of a run."""

    run: RecordedRun
    budget: Budget
    """The run's limits, as last raised."""
    calls: Sequence[CallSum] | None
    """Calls by model and tool, with the calls of runs inside; None: the events have them."""
    error: str | None
    """Why the run did not complete."""
    held: int
    """Tokens that are set aside for calls under way."""


class Deferral(NamedTuple):
    """Who deferred a question, and when."""

    by: str
    at: datetime


class Waiting(NamedTuple):
    """A question that waits for an answer."""

    asked: HumanRequest
    asked_at: datetime
    deferral: Deferral | None
    """None for a question that was not deferred, or that its run has asked again since."""


class AtWork(Protocol):
    """A run at work, as the console's actions see it; every method may raise `Misuse`, with a sentence."""

    def steer(self, directive: str, task_id: str | None = None, *, by: str = "") -> None:
        """Give a directive to one task, or to all."""
        ...

    def top_up(self, budget: Budget, *, by: str = "") -> None:
        """Raise the run's limits."""
        ...

    def cancel_task(self, task_id: str, reason: str) -> None:
        """End one task."""
        ...


class Source(Protocol):
    """The runs that a console shows; all methods may be called from any of its threads.

    A source without a journal inherits the methods that return something here.
    """

    @property
    def name(self) -> str:
        """The source's name in the console."""
        ...

    def runs(self, state: str | None = None) -> Sequence[RecordedRun]:
        """Return the runs, newest first, without runs inside others; only those in `state`, if given."""
        ...

    def show(self, run_id: str) -> RecordedRun:
        """Return one run; raises `RunNotFound`."""
        ...

    def standing(self, run_id: str) -> Standing:
        """Return the state of a run; raises `RunNotFound`."""
        ...

    def limit(self, run: RecordedRun) -> int | None:
        """Return the tokens that a run may use; None without a limit."""
        ...

    def progress(self, run: RecordedRun) -> Progress:
        """Return how far a run is."""
        ...

    def events_after(self, run_id: str, seq: int, most: int) -> Sequence[Event]:
        """Return about `most` events of a run with a number above `seq`, in order."""
        ...

    def changes(self, run_id: str | None) -> object:
        """Return a cheap value that differs if the run, or the questions of all runs, have changed."""
        ...

    def live(self, run_id: str) -> Run | None:
        """Return the handle of a run in this process; None for any other."""
        ...

    def at_work(self, run_id: str) -> AtWork:
        """Return a run as the actions see it, in whatever process it is."""
        ...

    def cancel(self, run_id: str, reason: str) -> None:
        """End a run for good; raises `RunNotFound` and `RunFinished`."""
        ...

    def pending(self, run_id: str | None = None) -> Sequence[Waiting]:
        """Return the open questions of all runs, or of one and those inside it: oldest first, deferred ones last."""
        ...

    def number_open(self) -> int:
        """Return how many questions are open."""
        ...

    def files(self, run_id: str) -> Sequence[MadeFile]:
        """Return the files of a run's artifacts, in the order in which they were made."""
        ...

    def texts(self, run_id: str, task_id: str) -> Sequence[Content]:
        """Return the texts of the work on a task, if the run's events have them."""
        ...

    def attempts(self, run_id: str, task_id: str) -> Sequence[Attempt]:
        """Return the recorded attempts of a task, if this process can mask the secrets of their run."""
        return ()

    def result(self, run_id: str, tasks: Collection[str] = ()) -> TeamResult | None:
        """Return the result of the last session, if it is recorded, with the outcomes of these tasks alone."""
        return None

    def inside(self, run_id: str) -> Sequence[RunInside]:
        """Return the runs inside the tasks of a run."""
        ...

    def report(self, run_id: str) -> str:
        """Return the report of a run; raises `RunNotFound`."""
        ...

    def answer(self, question_id: str, decision: HumanDecision) -> None:
        """Answer a question; raises `NoQuestion` if it is not open, `Misuse` for another answer than before."""
        ...

    def resume_hint(self, run: RecordedRun) -> str:
        """Return how to resume a run; "" if a worker resumes it by itself."""
        ...

    def fork_hint(self, run: RecordedRun, task_id: str) -> str:
        """Return the command that does a run again from a task on; "" if it cannot be forked."""
        return ""

    def fork(self, run_id: str, task_id: str) -> str:
        """Make a run that does a task again, and what depends on it; return its id. Raises `Misuse`."""
        ...

    def accounts(self) -> Sequence[Account]:
        """Return the accounts that runs are charged to, each before those under it."""
        return ()

    def close(self) -> None:
        """Release what the source took for the console."""
        return


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """A run in another process, which is asked through its journal."""

    journal: SqlJournal
    run_id: str

    def steer(self, directive: str, task_id: str | None = None, *, by: str = "") -> None:
        """Give a directive to one task, or to all."""
        self.journal.steer(self.run_id, directive, task_id, by=by)

    def top_up(self, budget: Budget, *, by: str = "") -> None:
        """Raise the run's limits."""
        self.journal.top_up(self.run_id, budget, by=by)

    def cancel_task(self, task_id: str, reason: str) -> None:
        """End one task."""
        self.journal.cancel_task(self.run_id, task_id, reason)


class JournalSource(Source):
    """The runs of every process that records in a journal."""

    def __init__(self, journal: SqlJournal, runtime: Runtime | None = None) -> None:
        """Take a journal, and the runtime whose runs can be steered."""
        self._journal = journal
        self._runtime = runtime

        @lru_cache(_LISTED)
        def planned(run_id: str, _last: object) -> int:
            return planned_tasks(journal, run_id)  # read again when the last change of its plan is another

        # Caches of this object: one on a method would keep every source alive.
        self._first_budget = _while_same(_BEGUN, partial(first_budget, journal), _REMEMBERED)
        self._error = _while_same(_CHANGED, partial(recorded_error, journal), _REMEMBERED)
        self._named = _while_same(_CHANGED, partial(_names, journal), _REMEMBERED)
        self._progress = _while_same(_CHANGED, partial(recorded_progress, journal, planned=planned), _LISTED)

    @property
    def name(self) -> str:
        """The file's name, or the database's."""
        return self._journal.name

    def runs(self, state: str | None = None) -> Sequence[RecordedRun]:
        """Return the recorded runs, the newest first."""
        return self._journal.runs(state=state)

    def show(self, run_id: str) -> RecordedRun:
        """Return one run."""
        return self._journal.show(run_id)

    def standing(self, run_id: str) -> Standing:
        """Return the state of a run."""
        run = self.show(run_id)
        error = None if run.state in ("running", "interrupted") else self._error(run)
        return Standing(run, self._limits(run), call_sums(self._journal, run), error, run.held.tokens)

    def limit(self, run: RecordedRun) -> int | None:
        """Return the tokens that a run may use."""
        return self._limits(run).tokens

    def _limits(self, run: RecordedRun) -> Budget:
        """Return a run's limits, as last raised."""
        return raised_limits(self._journal, run.run_id) or self._first_budget(run)

    def progress(self, run: RecordedRun) -> Progress:
        """Return how far a run is."""
        return self._progress(run)

    def events_after(self, run_id: str, seq: int, most: int) -> Sequence[Event]:
        """Return events in whole pages, as they are written: a page has the events of one step."""
        found: list[Event] = []
        sql = "SELECT last, body FROM event WHERE run_id = ? AND last > ? ORDER BY last"
        with self._journal.database.reading() as connection:
            for row in connection.execute(sql, (run_id, seq)).fetchall():
                found += read_rows(connection, run_id, [row])
                if len(found) >= most:
                    break
        return [one for one in found if one.seq > seq]

    def changes(self, run_id: str | None) -> object:
        """Return the questions, and the run's begin, state, session and last event."""
        with self._journal.database.reading() as connection:
            asked = connection.execute("SELECT id, decision IS NULL, answered_at FROM question").fetchall()
            sql = "SELECT started_at, state, seq, epoch, cancelled FROM run WHERE run_id = ?"
            run = connection.execute(sql, (run_id,)).fetchone()
            last = connection.execute("SELECT max(last) FROM event WHERE run_id = ?", (run_id,)).fetchone()
        return [tuple(row) for row in asked], run and tuple(run), tuple(last)

    def live(self, run_id: str) -> Run | None:
        """Return the handle of a run in the runtime; None for any other."""
        return None if self._runtime is None else self._runtime.runs.live(run_id)

    def at_work(self, run_id: str) -> AtWork:
        """Return the run of the runtime, or one in any other process."""
        return self.live(run_id) or _Elsewhere(self._journal, run_id)

    def cancel(self, run_id: str, reason: str) -> None:
        """End a run for good."""
        self._journal.cancel(run_id, reason)

    def pending(self, run_id: str | None = None) -> Sequence[Waiting]:
        """Return the open questions: the oldest first, deferred ones last."""
        with self._journal.database.reading() as connection:
            sql = "SELECT id, asked_at, answered_by, answered_at FROM question WHERE decision IS NULL"
            rows = {row["id"]: row for row in connection.execute(sql)}
        found: list[Waiting] = []
        for one in self._journal.pending(run_id):
            if one.id in rows:  # others are newer
                row = rows[one.id]
                deferral = Deferral(row["answered_by"], _moment(row["answered_at"])) if row["answered_at"] else None
                found.append(Waiting(one, _moment(row["asked_at"]), deferral))
        return found

    def number_open(self) -> int:
        """Return how many questions are open."""
        with self._journal.database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM question WHERE decision IS NULL").fetchone()[0])

    def files(self, run_id: str) -> Sequence[MadeFile]:
        """Return the files of the artifacts in the recorded attempts, with their names if these are in the result.

        An attempt is recorded as it was made, and only the result has its secrets masked.
        """
        sql = "SELECT value FROM step WHERE run_id = ? AND key LIKE 'attempt:%' AND value LIKE ? ORDER BY id"
        database = self._journal.database
        with database.reading() as connection:
            rows = connection.execute(sql, (run_id, f"%{_A_FILE}%")).fetchall()
        if not rows:
            return ()
        with database.fetched():
            made = [outline(row["value"]) for row in rows]
        known = self._named(self.show(run_id))
        found = [(one, one.artifact) for one in made if isinstance(one, Attempt)]
        files = ((one, file) for one, artifact in found if artifact is not None for file in artifact.files)
        return [MadeFile(one.task_id, one.number, known.get(file) or _unnamed(file)) for one, file in files]

    def texts(self, run_id: str, task_id: str) -> Sequence[Content]:
        """Return the texts of the work on a task."""
        sql = "SELECT body FROM event WHERE run_id = ? AND body LIKE ? ORDER BY last"
        with self._journal.database.reading() as connection:
            # Only the lines that name the task are parsed: a run may have the texts of thousands.
            named = f'"{task_id}"'
            pages = (
                "\n".join(one for one in row["body"].split("\n") if one.startswith(_A_TEXT) and named in one)
                for row in connection.execute(sql, (run_id, '%{"type":%"content",%'))
            )
            found = [*read_pages(connection, run_id, filter(None, pages))]
        return [one for one in found if isinstance(one, Content) and one.task_id == task_id and one.of != "piece"]

    def attempts(self, run_id: str, task_id: str) -> Sequence[Attempt]:
        """Return the recorded attempts of a task, with secrets masked."""
        return [*recorded_attempts(self._journal, run_id, task_id)]

    def result(self, run_id: str, tasks: Collection[str] = ()) -> TeamResult | None:
        """Return the result of the last session, with the outcomes of these tasks alone."""
        return recorded_result(self._journal, run_id, tasks)

    def inside(self, run_id: str) -> Sequence[RunInside]:
        """Return the runs inside the tasks of a run."""
        return [one for one in runs_inside(self._journal, run_id) if one.parent == run_id]

    def report(self, run_id: str) -> str:
        """Return the report of a run."""
        run = self.show(run_id)
        return page_of_run(self._journal, run, partial(self._commands, run))

    def _commands(self, run: RecordedRun, story: RunStory) -> tuple[str, ...]:
        if run.state in ("suspended", "interrupted", GIVEN_UP):
            hint = self.resume_hint(run)
        else:
            bad = [one.id for one in story.tasks.values() if one.state in (RowState.FAILED, RowState.SKIPPED)]
            hint = self.fork_hint(run, bad[0]) if bad else ""
        return (hint,) if hint else ()

    def fork_hint(self, run: RecordedRun, task_id: str) -> str:
        """Return the command that does an ended run again from a task on."""
        if run.state not in ENDED or run.parent is not None:
            return ""
        return shlex.join(["kairo", "fork", run.run_id, "--before", task_id, *self._journal.option])

    def fork(self, run_id: str, task_id: str) -> str:
        """Make a run that does a task again, and what depends on it; return its id."""
        return self._journal.fork(run_id, before=task_id)

    def answer(self, question_id: str, decision: HumanDecision) -> None:
        """Answer a question of any run."""
        self._journal.answer(question_id, decision)

    def resume_hint(self, run: RecordedRun) -> str:
        """Return the command that resumes a run; "" if a worker coordinates it."""
        how = [] if run.source else ["FILE.py"]
        if run.state == GIVEN_UP:
            how = ["--by-workers"]
        elif isinstance(self._journal, PostgresJournal) and coverage_of(self._journal, [run])[0].by_workers:
            return ""
        return shlex.join(["kairo", "resume", run.run_id, *how, *self._journal.option])

    def accounts(self) -> Sequence[Account]:
        """Return the accounts that runs are charged to, each before those under it."""
        return self._journal.accounts()


def _while_same(
    key: Callable[[RecordedRun], object], read: Callable[[str], Found], most: int
) -> Callable[[RecordedRun], Found]:
    """Return a function that reads a value by a run's id, and again only if the key is another; it keeps `most`."""

    @lru_cache(most)
    def kept(run_id: str, _key: object) -> Found:
        return read(run_id)

    return lambda run: kept(run.run_id, key(run))


def _names(journal: SqlJournal, run_id: str) -> Mapping[File, File]:
    """Return the files of a result by themselves."""
    result = recorded_result(journal, run_id)  # `journal.result` needs the classes of members' values
    made = [one.artifact for one in (() if result is None else result.outcomes) if one.artifact is not None]
    return {file: file for artifact in made for file in artifact.files}


def _unnamed(file: File) -> File:
    """Return a file under another name and address, which may have secrets."""
    return file.masked_by(lambda text: file.digest[:8] if text == file.name else "")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
