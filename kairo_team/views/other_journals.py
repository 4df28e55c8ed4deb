"""Journals of packages, as commands show them: a run is shown by its calls, its events and its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from kairo_team._util.masking import masked
from kairo_team.budget import NO_USAGE, Budget, Usage
from kairo_team.errors import Misuse
from kairo_team.recorded import ENDED, RecordedCall, RecordedRun
from kairo_team.views.run_record import CallSum, RunRecord, TaskStanding, read_record, with_waits
from kairo_team.views.run_story import RunStory, tell

if TYPE_CHECKING:
    from kairo_team.contracts import Journal
    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.events import Event
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.results import TaskOutcome, TeamResult

_AT_WORK: Final = ("running", "interrupted")


class OtherJournal:
    """A journal of a package, or of a team's file, for the commands on recorded runs.

    A method that the journal does not have is refused with a sentence.
    """

    account = None
    """No account: runs are limited by their own budgets alone."""

    def __init__(self, journal: Journal, text: str) -> None:
        """`text` is what `--journal` says."""
        self.journal = journal
        self._text = text

    @property
    def place(self) -> str:
        """The journal's name in sentences."""
        return f"journal {self._text!r}"

    @property
    def option(self) -> tuple[str, str]:
        """The option of the `kairo` commands that names the journal, and its value."""
        return "--journal", self._text

    def _method(self, name: str) -> Any:
        found = getattr(self.journal, name, None)
        if not callable(found):
            raise Misuse(f"{self.place} has no `{name}`: it is an optional method of a journal, and this needs it")
        return found

    def runs(self, *, state: str | None = None, team: str | None = None) -> tuple[RecordedRun, ...]:
        """Return the recorded runs, the newest first."""
        return tuple(_safe(one) for one in self._method("runs")(state=state, team=team))

    def show(self, run_id: str) -> RecordedRun:
        """Return a run; raises `RunNotFound`."""
        return _safe(self._method("show")(run_id))

    def calls(self, run_id: str) -> Sequence[RecordedCall]:
        """Return the calls of a run and of the runs inside it; none if the journal does not list them."""
        found = getattr(self.journal, "calls", None)
        return cast("Sequence[RecordedCall]", found(run_id)) if callable(found) else ()

    def forget(self, run_id: str | None = None, *, older_than: float | None = None) -> int:
        """Delete a run, or all that ended so many seconds ago; return their number."""
        return int(self._method("forget")(run_id, older_than=older_than))

    def fork(self, run_id: str, *, before: str | int, new_id: str | None = None) -> str:
        """Make a run from an earlier point of another."""
        return str(self._method("fork")(run_id, before=before, new_id=new_id))

    def events_after(self, run_id: str, seq: int = 0) -> Sequence[Event]:
        """Return the events of a run."""
        return self.journal.events_after(run_id, seq)

    def result(self, run_id: str) -> TeamResult | None:
        """Return the result of a run."""
        return self.journal.result(run_id)

    def cancel(self, run_id: str, reason: str) -> None:
        """End a run for good."""
        self.journal.cancel(run_id, reason)

    def cancel_task(self, run_id: str, task_id: str, reason: str) -> None:
        """End one task of a run that another process has."""
        self._method("cancel_task")(run_id, task_id, reason)

    def top_up(self, run_id: str, budget: Budget, *, by: str = "") -> None:
        """Raise the limits of a run that another process has."""
        self._method("top_up")(run_id, budget, by=by)

    def steer(self, run_id: str, directive: str, task_id: str | None = None, *, by: str = "") -> None:
        """Give a directive to a run that another process has."""
        self._method("steer")(run_id, directive, task_id, by=by)

    def pending(self, run_id: str | None = None) -> tuple[HumanRequest, ...]:
        """Return the open questions."""
        return self.journal.pending(run_id)

    def answer(self, question_id: str, decision: HumanDecision, *, by: str = "") -> None:
        """Answer a question; the decision has the name of who answers."""
        self.journal.answer(question_id, replace(decision, by=by or decision.by))

    def story(self, run_id: str) -> RunStory:
        """Return a run's story from its events; without events, an empty one."""
        return tell(self.events_after(run_id))

    def record(self, run: RecordedRun) -> RunRecord:
        """Return the state of a run."""
        calls, story = self.calls(run.run_id), self.story(run.run_id)
        result = None if run.state in _AT_WORK else self.result(run.run_id)
        return RunRecord(
            run,
            Budget(story.tokens_given, dollars=story.dollars_given),
            with_waits(
                list(_tasks(run, story, () if result is None else result.outcomes)),
                {one.id: one.planned.depends_on for one in story.tasks.values()},
                {},
            ),
            tuple(_sums(calls)),
            tuple(one for one in calls if one.state == "sent" and one.held == NO_USAGE),
            self.pending(run.run_id) if run.state not in ENDED else (),
            None if result is None else result.error,
            result,
        )


Book: TypeAlias = "SqlJournal | OtherJournal"
"""A journal of a command."""


def record_of(book: Book, run: RecordedRun) -> RunRecord:
    """Return the state of a run."""
    return book.record(run) if isinstance(book, OtherJournal) else read_record(book, run)


def _safe(run: RecordedRun) -> RecordedRun:
    """Return a run without the secrets in its goal."""
    return run._replace(goal=masked(run.goal))


def _tasks(run: RecordedRun, story: RunStory, ends: Iterable[TaskOutcome]) -> Iterator[TaskStanding]:
    """Yield the tasks of the story, then those that only the result has."""
    ended = {one.task_id: one for one in ends}
    for task_id in dict.fromkeys([*story.tasks, *ended]):
        told, outcome = story.tasks.get(task_id), ended.get(task_id)
        if outcome is not None:
            yield TaskStanding(task_id, outcome.status.value, outcome.member, outcome)
        elif told is not None:
            begun = told.state in ("running", "reviewing")
            yield TaskStanding(task_id, run.state if begun else str(told.state), told.member, None)


def _sums(calls: Iterable[RecordedCall]) -> list[CallSum]:
    """Return the models, then the tools, most called first."""
    by_name: dict[tuple[str, str], list[RecordedCall]] = {}
    for call in calls:
        by_name.setdefault((call.what, call.name), []).append(call)
    found: list[CallSum] = []
    for (what, name), some in by_name.items():
        is_open = [one for one in some if one.state == "sent"]
        under_way = sum(one.held != NO_USAGE for one in is_open)
        usage = sum((one.usage for one in some), Usage())
        found.append(CallSum(what, name, len(some), len(is_open) - under_way, usage, under_way))
    return sorted(found, key=lambda one: (one.what, -one.calls, one.name))
