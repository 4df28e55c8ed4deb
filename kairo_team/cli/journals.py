"""The journal of a command, its runs, and the commands that continue a run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

from kairo_team._util.mistakes import did_you_mean
from kairo_team._util.terminal import clean
from kairo_team.cli.databases import PATIENCE, DatabaseUrl, any_place_of, place_of, shown_option
from kairo_team.cli.named_journals import NamedPlace, named_journal
from kairo_team.cli.refusal import Refusal, explain, refusing
from kairo_team.cluster.coverage import Coverage, coverage_of
from kairo_team.durable.journal import SqliteJournal
from kairo_team.durable.postgres_database import ConnectionBroke
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.errors import JournalError, Misuse, RunNotFound
from kairo_team.recorded import ENDED, GIVEN_UP, RecordedRun
from kairo_team.views.other_journals import Book, OtherJournal

if TYPE_CHECKING:
    from kairo_team.durable.postgres import PostgresJournal
    from kairo_team.human import HumanRequest
    from kairo_team.views.run_record import RunRecord

Found = TypeVar("Found")

_AGAIN: Final = 0.5
"""Seconds between two looks at a database that cannot be reached."""
_LEAST_PREFIX: Final = 4
"""Least characters of a run's id that may abbreviate it."""
_MOST_CLOSE: Final = 3
_NOT_ACCEPTED: Final = ("failed", "skipped", "cancelled")
"""Statuses of tasks that a fork does again."""
_BAD: Final = ("interrupted", GIVEN_UP, "degraded", "failed", "timeout")
"""States of runs that need attention."""
_NO_JOURNAL: Final = (
    "this command needs the journal in which runs are recorded: name its file with --journal runs.db, or in the "
    "environment variable KAIRO_JOURNAL"
)


@contextmanager
def opened(named: str | None, database: str | None = None) -> Generator[Book]:
    """Open an existing journal; `Refusal` if it is missing or cannot be used, also inside the block."""
    place = any_place_of(named, database)
    if isinstance(place, NamedPlace):
        with other_journal(place) as book:
            yield book
        return
    with made(_existing_file(place)) as journal:
        yield journal


def existing(named: str | None, database: str | None) -> Path | DatabaseUrl:
    """Return the file or database of an existing journal, without opening it; `Refusal` if there is none."""
    return _existing_file(place_of(named, database))


def _existing_file(place: Path | DatabaseUrl | None) -> Path | DatabaseUrl:
    if place is None:
        raise Refusal(_NO_JOURNAL)
    if isinstance(place, Path) and not place.is_file():
        raise Refusal(f"there is no journal {str(place)!r}: kairo run FILE.py --journal {quoted(place)} begins one")
    return place


@contextmanager
def other_journal(place: NamedPlace, source: Mapping[str, str] | None = None) -> Generator[Book]:
    """Open the journal of a package or a team; `source` describes how its new runs are started."""
    with refusing(JournalError, Misuse), named_journal(place, source) as journal:
        yield journal if isinstance(journal, SqlJournal) else OtherJournal(journal, place.text)


@contextmanager
def made(place: Path | DatabaseUrl, source: Mapping[str, str] | None = None) -> Generator[SqlJournal]:
    """Open a journal, or make it; `source` describes how its new runs are started."""
    with refusing(JournalError, Misuse), closing(_open(place, source)) as journal:
        yield journal


def _open(place: Path | DatabaseUrl, source: Mapping[str, str] | None) -> SqlJournal:
    if isinstance(place, Path):
        return SqliteJournal(place, source=source)
    from kairo_team.durable.postgres import PostgresJournal

    return PostgresJournal(place.url, source=source, patience=PATIENCE)


def until_reached(look: Callable[[], Found], notify: Callable[[str], object]) -> Found:
    """Return the result of `look`, which reads a journal; repeat it while the database cannot be reached.

    For a command that follows a run: the run continues, and so does the command, until the user ends it. `notify`
    receives one line about the database.
    """
    is_known = False
    while True:
        try:
            return look()
        except ConnectionBroke as error:
            if not is_known:
                notify(f"{explain(error)}; it is tried again until Ctrl-C")
            is_known = True
        time.sleep(_AGAIN)


def place_name(journal: Book) -> str:
    """Return the name of a journal's place: the path of a file, or a database."""
    return str(journal.path) if isinstance(journal, SqliteJournal) else journal.place


def find_run(journal: Book, text: str) -> RecordedRun:
    """Return the run with an id, or the only one whose id begins with it; a `Refusal` names similar ids."""
    try:
        return journal.show(text)
    except (RunNotFound, UnicodeEncodeError):  # a word of another encoding is not an id
        runs = {run.run_id: run for run in journal.runs()}
    matching = [name for name in runs if name.startswith(text)] if len(text) >= _LEAST_PREFIX else []
    if len(matching) == 1:
        return runs[matching[0]]
    place, where = place_name(journal), command("runs", journal=journal)
    if matching:
        some = f"such as {' and '.join(map(repr, matching[:_MOST_CLOSE]))}"
        raise Refusal(f"{len(matching)} runs in {place} begin with {text!r}, {some}: {where} lists them")
    raise Refusal(f"there is no run {text!r} in {place}: {did_you_mean(text, runs, _MOST_CLOSE)}{where} lists them")


def find_question(questions: tuple[HumanRequest, ...], run_id: str, text: str | None) -> HumanRequest:
    """Return the question with an id, which may leave out the run's id; without an id, the only open question."""
    ids = [short_id(question, run_id) for question in questions]
    if not questions:
        raise Refusal(f"run {run_id} has no open question")
    if text is None and len(questions) == 1:
        return questions[0]
    listed = ", ".join(map(quoted, ids))
    if text is None:
        raise Refusal(f"run {run_id} has {len(ids)} open questions: name one of {listed}")
    for question, short in zip(questions, ids, strict=True):
        if text in (question.id, short):
            return question
    raise Refusal(f"run {run_id} has no open question {text!r}; open: {listed}")


# ---------------------------------------------------------------- commands to continue


def quoted(text: object) -> str:
    """Return a word quoted for the shell, harmless for a terminal."""
    return clean(shlex.quote(str(text))).replace("\n", "?")


def command(name: str, *words: str, journal: Book) -> str:
    """Return the command line of a command on a journal."""
    return " ".join(["kairo", name, *words, *map(quoted, shown_option(*journal.option))])


def go_on_commands(journal: Book, run: RecordedRun, coverage: Coverage | None = None) -> list[str]:
    """Return the commands that answer a run's questions, then the one that resumes it; empty if it cannot be resumed.

    `coverage` is the run's coverage by workers, if it was read already.
    """
    if run.state == GIVEN_UP:
        return [command("resume", quoted(run.run_id), "--by-workers", journal=journal)]
    if run.state not in ("suspended", "interrupted"):
        return []
    coverage = coverage_of_run(journal, run) if coverage is None else coverage
    name = quoted(run.run_id)
    answers = [command(*words, journal=journal) for words in answer_words(run.run_id, journal.pending(run.run_id))]
    if coverage.by_workers:
        return answers
    file = [] if run.source else ["FILE.py"]
    return [*answers, command("resume", name, *file, journal=journal)]


def answer_words(run_id: str, questions: Sequence[HumanRequest]) -> list[list[str]]:
    """Return the words of a command for each open question of a run; with several, each names its question."""
    named = [[quoted(short_id(one, run_id))] if len(questions) > 1 else [] for one in questions]
    return [["answer", quoted(run_id), *question, "approve"] for question in named]


def next_commands(journal: Book, record: RunRecord) -> list[str]:
    """Return the commands that show the first task that was not accepted and do it again, and one for the report."""
    if record.run.state not in ENDED:
        return []
    name = quoted(record.run.run_id)
    bad = next((one.task_id for one in record.tasks if one.status in _NOT_ACCEPTED), None)
    if bad is None or record.run.parent is not None:
        return [command("report", name, journal=journal)]
    look = command("show", name, "--task", quoted(bad), journal=journal)
    fork = command("fork", name, "--before", quoted(bad), journal=journal)
    return [look, fork, command("report", name, journal=journal)]


def commands_for(journal: Book, runs: Sequence[RecordedRun]) -> list[str]:
    """Return what to do about a list of runs: show the newest one that did not complete, and answer what is asked."""
    bad = next((one for one in runs if one.state in _BAD), None)
    look = [] if bad is None else [command("show", quoted(bad.run_id), journal=journal)]
    asks = any(one.state == "suspended" for one in runs)
    return [*look, *([command("questions", journal=journal)] if asks else [])]


def coverage_of_run(journal: Book, run: RecordedRun) -> Coverage:
    """Return a run's coverage by workers; a run that has ended or is in a file has an empty one."""
    return _coverages(journal, [run]).get(run.run_id, Coverage())


def why_waiting(journal: Book, runs: Sequence[RecordedRun]) -> dict[str, str]:
    """Return why no worker does the waiting work of these runs, by run id; runs without waiting work are left out."""
    coverage = _coverages(journal, runs)
    return {run_id: one.problem for run_id, one in coverage.items() if one.problem is not None}


def _coverages(journal: Book, runs: Sequence[RecordedRun]) -> dict[str, Coverage]:
    going = [run for run in runs if run.state not in ENDED]
    if isinstance(journal, SqliteJournal | OtherJournal) or not going:
        return {}
    found = coverage_of(cast("PostgresJournal", journal), going)
    return {run.run_id: one for run, one in zip(going, found, strict=True)}


def worker_command(journal: Book, run: RecordedRun) -> str:
    """Return the command that starts a worker for a run."""
    source = run.source
    name = source.get("module") or source.get("file") or "FILE.py"
    team = f":{source['team']}" if source.get("team") else ""
    return command("worker", quoted(f"{name}{team}"), journal=journal)


def short_id(question: HumanRequest, run_id: str) -> str:
    """Return the id of a question without the run's."""
    return question.id.removeprefix(f"{run_id}:")
