"""What runs resume from, rebuilt from their journal: a crash is a suspension without a question."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kairo_team.budget import NO_USAGE, Budget, Usage
from kairo_team.engine.live.event_bus import ModelTally
from kairo_team.engine.records.earlier_calls import EarlierCalls, is_open
from kairo_team.engine.records.plan_records import RAISED_BUDGET, CutShort, recorded_plan
from kairo_team.engine.records.questions import Inbox
from kairo_team.engine.records.suspension import Suspension
from kairo_team.messages import PLAIN, ModelResponse
from kairo_team.results import Attempt, ModelUsage, TaskOutcome
from kairo_team.tasks import TaskStatus
from kairo_team.team import root_budget
from kairo_team.verdicts import EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.recorded import Place, RecordedCall, RecoveredRun

_PLANNING: Final = re.compile(r"plan:(plan:\d+|add:[^:]*:\d+):\d+")
"""Matches the step name of planning, or of an addition to a plan; the group is the key that records its end."""


class StepPlace(NamedTuple):
    """The place of an attempt or a review in a plan, read from its key."""

    plan: str
    task_id: str
    number: int


def suspensions_of(found: Sequence[RecoveredRun]) -> Iterator[tuple[Suspension, str | None]]:
    """Yield what each of these runs resumes from, and the id of its enclosing run.

    `found` is a run and all runs inside it. Open attempts are recorded as cut short, with what they have spent.
    """
    for run in found:
        account = _account_of(run, found)
        for key, spent in (*account.cut_attempts(), *account.cut_reviews(), *account.plans()):
            run.journal.put(key, spent)
        yield _suspension(run, account, found), None if run.place is None else run.place.run_id


def _runs_in(run: RecoveredRun, found: Sequence[RecoveredRun]) -> Iterator[RecoveredRun]:
    """Yield a run and the runs inside it."""
    yield run
    for one in found:
        if one.place is not None and one.place.run_id == run.request.run_id:
            yield from _runs_in(one, found)


def _used_by_model(runs: Iterable[RecoveredRun]) -> dict[str, ModelUsage]:
    """Return what the calls of each model have used, as their charges and replies are recorded."""
    tally = ModelTally()
    for run in runs:
        for call in run.calls:
            if call.what == "model":
                reply = run.steps.get(call.key) if call.state == "answered" else None
                billing = reply.billing if isinstance(reply, ModelResponse) else PLAIN
                cached = min(billing.cached_tokens, call.usage.prompt_tokens)
                reasoning = min(billing.reasoning_tokens, call.usage.completion_tokens)
                tally.add(call.name, ModelUsage(1, call.usage, cached, reasoning))
    return tally.used


def _account_of(run: RecoveredRun, found: Sequence[RecoveredRun]) -> RunAccount:
    run_id = run.request.run_id
    places = [(one, one.place) for one in found if one.place is not None and one.place.run_id == run_id]
    return RunAccount(run.steps, run.calls, [(place, _account_of(one, found).total) for one, place in places])


def _suspension(run: RecoveredRun, account: RunAccount, found: Sequence[RecoveredRun]) -> Suspension:
    steps, within = run.steps, tuple(_runs_in(run, found))
    calls = [call for one in within for call in one.calls]
    inbox = Inbox()
    for asked in run.questions:
        inbox.keep_open(asked.question)
        if asked.decision is not None:
            inbox.answer(asked.question.id, asked.decision)
    return Suspension(
        request=run.request,
        digests={},
        journal=run.journal,
        usage=replace(account.total, seconds=run.seconds, loops=account.total.loops - account.loops_again),
        budget=cast("Budget", steps.get(RAISED_BUDGET, root_budget(run.request.config))),
        seq=run.seq,
        inbox=inbox,
        outcomes=_outcomes_of(run.journal.records),
        plan=recorded_plan(steps),
        spent_by=account.by_member,
        spent_on=account.by_task,
        by_model=_used_by_model(within),
        calls=EarlierCalls(run.request.run_id, steps, calls, account.spent_in),
    )


def _outcomes_of(steps: Mapping[str, object]) -> Mapping[str, TaskOutcome]:
    """Return the outcomes of tasks: as recorded of those that ended, and SUSPENDED of the others with attempts."""
    found: dict[str, TaskOutcome] = {}
    for key, made in steps.items():
        if not (key.startswith("attempt:") and isinstance(made, Attempt | CutShort)):
            continue
        place, verdict = place_of(key), steps.get(f"review:{key.removeprefix('attempt:')}")
        before = found.get(place.task_id) or TaskOutcome(place.task_id, TaskStatus.SUSPENDED)
        found[place.task_id] = replace(
            before,
            artifact=made.artifact or before.artifact,
            verdict=verdict if isinstance(verdict, EvaluationVerdict) else before.verdict,
            attempts=place.number,
            member=made.member,
            usage=made.usage,
            warnings=before.warnings + (made.warnings if isinstance(made, Attempt) else ()),
        )
    ended = {key.partition(":")[2]: one for key, one in steps.items() if isinstance(one, TaskOutcome)}
    return {**found, **ended}


class RunAccount:
    """A run's usage, by step."""

    def __init__(
        self, steps: Mapping[str, object], calls: Iterable[RecordedCall], inside: Iterable[tuple[Place, Usage]]
    ) -> None:
        """Take a run's recorded steps, its own calls, and what each run directly inside it has spent."""
        self._steps = steps
        self.spent_in: dict[str, Usage] = defaultdict(Usage)
        """Usage by step: charges of its calls and of the runs inside it, and what else an open attempt has spent."""
        self._member: dict[str, str | None] = {}
        for call in calls:
            before = self.spent_in[call.step]
            # A call has the number of loops up to then, so the highest number counts all.
            self.spent_in[call.step] = replace(before + call.usage, loops=max(before.loops, call.loops))
            self._member[call.step] = call.member
        for place, spent in inside:
            # Left out, because the seconds of the run itself went by meanwhile.
            self.spent_in[place.step] += replace(spent, seconds=0.0)
            self._member[place.step] = place.member
        for step, recorded in steps.items():
            if isinstance(recorded, CutShort) and recorded.beyond != NO_USAGE:
                self.spent_in[step] += recorded.beyond
                self._member[step] = recorded.member
        self.by_member: dict[str, Usage] = defaultdict(Usage)
        self.by_task: dict[str, Usage] = defaultdict(Usage)
        self.total = NO_USAGE
        # Ended attempts count as they are recorded, everything else by its calls.
        for task_id, attempt in self._last_attempts().items():
            self._add(replace(attempt.usage, seconds=0.0), attempt.member, task_id)
        for step, spent in self.spent_in.items():
            if not isinstance(steps.get(step), Attempt):
                task = place_of(step).task_id if step.startswith("attempt:") else None
                self._add(spent, self._member[step], task)

    def _add(self, spent: Usage, member: str | None, task_id: str | None) -> None:
        self.total += spent
        if member is not None:
            self.by_member[member] += spent
        if task_id is not None:
            self.by_task[task_id] += spent

    def _last_attempts(self) -> dict[str, Attempt]:
        """Return each task's last ended attempt, by task id."""
        # The usage of an attempt is cumulative, so the last one has all that its task had spent.
        last: dict[str, tuple[int, str]] = {}
        for key, value in self._steps.items():
            if isinstance(value, Attempt):
                place = place_of(key)
                last[place.task_id] = max(last.get(place.task_id, (0, "")), (place.number, key))
        return {task_id: cast("Attempt", self._steps[key]) for task_id, (_, key) in last.items()}

    @property
    def loops_again(self) -> int:
        """Number of loops that are counted again: of open steps such as reviews and plans, but not of attempts."""
        open_steps = (step for step in self.spent_in if not step.startswith("attempt:") and is_open(step, self._steps))
        return sum(self.spent_in[step].loops for step in open_steps)

    def cut_attempts(self) -> Iterable[tuple[str, CutShort]]:
        """Yield a record of each attempt that made calls and has not ended."""
        last = self._last_attempts()
        for step, spent in self.spent_in.items():
            recorded, member = self._steps.get(step), self._member[step]
            if not step.startswith("attempt:") or isinstance(recorded, Attempt) or member is None:
                continue
            before = last.get(place_of(step).task_id)
            usage = spent if before is None else spent + before.usage
            cut = recorded if isinstance(recorded, CutShort) else CutShort(member, usage, None)
            yield step, cut._replace(member=member, usage=usage)

    def cut_reviews(self) -> Iterable[tuple[str, CutShort]]:
        """Yield a record of each review that made calls and has not ended; its loops are counted again."""
        for step, spent in self.spent_in.items():
            if step.startswith("review:") and isinstance(self._steps.get(step), CutShort | None):
                yield step, CutShort("", replace(spent, loops=0), None)

    def plans(self) -> Iterable[tuple[str, Usage]]:
        """Yield the cost of each plan that has not ended, or whose end was recorded without it."""
        found: dict[str, Usage] = defaultdict(Usage)
        for step, spent in self.spent_in.items():
            if made := _PLANNING.fullmatch(step):
                found[made[1]] += spent if made[1] in self._steps else replace(spent, loops=0)
        for key, spent in found.items():
            if key not in self._steps or f"{key}:usage" not in self._steps:
                yield f"{key}:usage", spent


def place_of(key: str) -> StepPlace:
    """Read the key of an attempt or a review: `attempt:<plan>:<task>:<number>`."""
    _, plan, rest = key.split(":", 2)
    task_id, _, number = rest.rpartition(":")
    return StepPlace(plan, task_id, int(number))
