"""The runs that callers ask for: each caller has a budget and runs of its own, and cannot reach any other run."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from kairo_team import api as front
from kairo_team._util.frozen import EMPTY
from kairo_team._util.threads import run_in_thread
from kairo_team.budget import Budget
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.engine.work.runtime import Runtime, bind_runtime, runtime_of
from kairo_team.errors import (
    GovernorClosed,
    HaltError,
    InsufficientBudget,
    Misuse,
    NoQuestion,
    RunFinished,
    RunNotFound,
)
from kairo_team.gates import DeferGate
from kairo_team.governance.governor import Governor
from kairo_team.human import HumanDecision
from kairo_team.results import TeamStatus
from kairo_team.team import TeamConfig, TeamExecutionRequest, root_budget
from kairo_team.views.plain import PlainView
from kairo_team.views.run_record import recorded_request

if TYPE_CHECKING:
    from kairo_team.contracts import TeamCoordinator
    from kairo_team.events import Event
    from kairo_team.files import File
    from kairo_team.human import HumanRequest
    from kairo_team.results import TeamResult
    from kairo_team.tasks import TaskGraph
    from kairo_team.team import Team
    from kairo_team.views.progress import RunProgress

QUESTION_SECONDS: Final = 600.0
"""Seconds in which a caller may answer a question; after them it counts as unanswered."""
MOST_RUNS: Final = 16
"""Runs of one caller at once."""
MOST_KEPT: Final = 50
"""Ended runs of one caller that stay known, the newest."""
MOST_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of their files."""
LEFT: Final = "who asked for the run has left"
CANCELLED: Final = "who asked for the run cancelled it"
NOT_OPEN: Final = (
    "the served team is not open: its lifespan has not run. A server such as uvicorn runs it; an app that mounts the "
    "team has to, with `async with served.lifespan():` in its own"
)
_MOST_LINES: Final = 10_000

_logger = logging.getLogger("kairo_team")


class TooMany(Exception):
    """A caller asked for more runs at once than it may have."""


class OtherRequest(Exception):
    """An idempotency key was used before, for another request."""


class AskedRun:
    """One run that was asked for, with its lines of progress, its open question and its end."""

    def __init__(
        self, request: TeamExecutionRequest, *, durable: bool, question_seconds: float, stays: bool = False
    ) -> None:
        """Prepare a run; one that `stays`, or is `durable`, continues when everyone who waits for it has left."""
        self.request = request
        self.stays = stays
        self.token = secrets.token_urlsafe(32)  # not the id, which other callers could guess
        """What a caller that comes back with an answer names the run by."""
        self.lines: list[str] = []
        """What happened, a sentence each."""
        self.question: HumanRequest | None = None
        """The question that the caller is asked."""
        self.result: TeamResult | None = None
        self.error: Exception | None = None
        self.is_short = False
        """Whether it was refused because the budget of its key, or of the runtime, has too little left."""
        self.ended = False
        self.cancelled: str | None = None
        """Why it was cancelled, if it was."""
        self.resumed = False
        """Whether it continues what an earlier server began."""
        self.changed = datetime.now(UTC)
        """When it last had news."""
        self.listeners: list[Callable[[Event], object]] = []
        """Functions that get each event, after `progress` and the lines have it."""
        self.scope = anyio.CancelScope()
        self._durable = durable
        self.question_seconds = question_seconds
        self._runtime: Runtime | None = None
        self._waiters = 0
        self._comes_back = False
        self._news = anyio.Event()
        self._answered = anyio.Event()
        self._answer: HumanDecision | None = None
        self._turn = anyio.Lock()
        self._view = PlainView(self._say, self._say)

    @property
    def progress(self) -> RunProgress:
        """The sum of the events so far."""
        return self._view.progress

    @property
    def waits(self) -> bool:
        """Whether its session has ended, and the run waits for a person."""
        return self.ended and self.result is not None and self.result.status is TeamStatus.SUSPENDED

    async def take(self, event: Event) -> None:
        """Turn an event of the run into a line; a subscriber."""
        self._view(event)
        for listen in self.listeners:
            listen(event)
        if self.listeners:
            self._tell()

    def _say(self, line: str) -> None:
        if len(self.lines) < _MOST_LINES:
            self.lines.append(line.strip())
        self._tell()

    def _tell(self) -> None:
        self.changed = datetime.now(UTC)
        # The event is replaced, so that each waiter wakes once for each piece of news.
        self._news.set()
        self._news = anyio.Event()

    async def news(self) -> None:
        """Wait for a line, a question or the end."""
        await self._news.wait()

    # ------------------------------------------------------------------ who listens

    @contextmanager
    def listening(self) -> Generator[None]:
        """Count a caller that waits for the run: when the last one leaves, the run ends, unless it is durable."""
        self._waiters += 1
        self._comes_back = False
        try:
            yield
        finally:
            self._waiters -= 1
            self._end_if_left()

    def expect_back(self) -> None:
        """Let the run wait for an answer that its caller brings with another request."""
        self._comes_back = True

    def _end_if_left(self) -> None:
        if not (self._waiters or self._comes_back or self._durable or self.stays or self.ended):
            self.cancel(LEFT)

    def cancel(self, reason: str) -> None:
        """End the run."""
        self.cancelled = reason
        run = None if self._runtime is None else self._runtime.runs.live(self.request.run_id)
        if run is not None:
            run.cancel(reason)
        elif not self.ended:  # it has not begun: the engine does not know it yet
            self.scope.cancel()

    # ------------------------------------------------------------------ questions

    async def decide(self, question: HumanRequest) -> HumanDecision | None:
        """Ask the caller, one question at a time; a gate.

        No answer in time is silence, but a question of a durable run is put off: it stays open in the journal.
        """
        async with self._turn:
            self.question, self._answer, self._answered = question, None, anyio.Event()
            self._tell()
            try:
                with anyio.move_on_after(self.question_seconds):
                    await self._answered.wait()
            finally:
                self.question = None
                self._tell()
            if not self._answered.is_set():
                if self._durable:
                    return HumanDecision.defer()
                self._comes_back = False  # the time is up: the caller has not come back
                self._end_if_left()
            return self._answer

    def answer(self, question_id: str, decision: HumanDecision | None) -> None:
        """Answer the open question; an answer to any other is too late, and changes nothing."""
        if self.question is not None and self.question.id == question_id:
            self._answer, self.question = decision, None  # at once: a second answer must not replace the first
            self._answered.set()
            self._tell()

    # ------------------------------------------------------------------ the work

    async def work(self, team: Team, runtime: Runtime, coordinator: TeamCoordinator | None) -> None:
        """Make the run, or resume it; its end is kept, however it ends."""
        self._runtime = runtime
        try:
            with self.scope:
                self.result = result = await front.run(
                    team, self.request, coordinator=coordinator, runtime=runtime, resume=self._durable
                )
                self.is_short = result.refused and _lacked(result, runtime.governor, root_budget(self.request.config))
        except Exception as error:  # noqa: BLE001 - who asked for the run is told
            self.error = error
        finally:
            self.end()

    def end(self, result: TeamResult | None = None, error: Exception | None = None) -> None:
        """Keep how the run ended, as far as that is not known."""
        self.result, self.error = self.result or result, self.error or error
        self.ended = True
        self._tell()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every run that is asked for."""

    team: Team
    config: TeamConfig
    plan: TaskGraph | None = None
    coordinator: TeamCoordinator | None = None
    key_budget: Budget | None = None
    """What the runs of one caller may spend together, as long as the server runs; None: no limit."""
    most_runs: int = MOST_RUNS
    question_seconds: float = QUESTION_SECONDS

    def __post_init__(self) -> None:
        budget = root_budget(self.config)
        if budget.tokens is None and budget.dollars is None:
            raise Misuse(
                f"team {self.team.name!r} is served under a limit for each run, in tokens or dollars: give "
                "budget=kt.Budget(tokens=...), or --budget tokens=..."
            )
        if self.key_budget is not None and self.key_budget.seconds is not None:
            raise Misuse(
                "a key's budget limits tokens, dollars, loops and tool calls: seconds are limits of single runs"
            )
        for one in ("tokens", "dollars"):
            if getattr(self.key_budget, one, None) is not None and getattr(budget, one) is None:
                raise Misuse(f"a key's budget limits {one}, and its runs have no such limit: give it to each run too")


class Caller:
    """Who has one key: its budget, and the runs that it asked for."""

    def __init__(self, name: str, rules: Rules, start: Callable[..., object]) -> None:
        self.name = name
        self._rules = rules
        self._start = start
        self._runs: dict[str, AskedRun] = {}
        self._kept: dict[str, AskedRun] = {}
        base = runtime_of(bind_runtime(rules.team))
        self._runtime = base.with_subscribers(())  # a copy: store and governor below are this caller's
        budget = rules.key_budget
        if budget is not None and keeps_accounts(base.store):
            self._runtime.store = cast("Any", base.store).charging(account_of(name))
            budget = replace(budget, tokens=None, dollars=None)  # these two are the account's
        if budget is not None:
            above, named = base.governor, f"key {name!r}"
            # Inside the runtime's own governor, nothing is guaranteed to a key.
            self._runtime.governor = (
                Governor(budget, name=named) if above is None else above.carve(named, budget, guarantee=Budget())
            )
        self._team = replace(rules.team, runtime=None)  # the run gets the caller's

    @property
    def journal(self) -> SqlJournal | None:
        """Where runs are recorded, if they are."""
        store = self._runtime.store
        return store if isinstance(store, SqlJournal) else None

    async def ask(
        self,
        goal: str,
        *,
        files: Sequence[File] = (),
        context: Mapping[str, Any] = EMPTY,
        key: str | None = None,
        answers: bool = False,
    ) -> AskedRun:
        """Begin a run, or return the one that an idempotency key names.

        With `answers` the caller answers the run's questions, unless the team's runtime has a gate. Raises `TooMany`,
        `OtherRequest`, `InsufficientBudget` or `HaltError` where a budget does not cover the run, `Misuse` for a key
        without a journal, and `ValueError` for a request that no run can have.
        """
        request = self._request(goal, files, context, None if key is None else self.run_id(key))
        if key is not None:
            if self.journal is None:
                raise Misuse("an Idempotency-Key needs a journal, in which the run is found again: --journal runs.db")
            known = self._runs.get(request.run_id)
            earlier = known.request if known is not None else await run_in_thread(partial(self._recorded, request))
            known = self._runs.get(request.run_id)  # perhaps begun meanwhile, by another request with the key
            earlier = earlier if known is None else known.request
            if earlier is not None and _caller_choices(earlier) != _caller_choices(request):
                raise OtherRequest
            if known is not None:
                return known
        return self._begin(request, durable=key is not None, answers=answers)

    async def begin_staying(
        self, run_id: str, goal: str, files: Sequence[File], context: Callable[[], Mapping[str, Any]]
    ) -> AskedRun:
        """Begin a run of an id that stays, or return the one that has it; its caller answers its questions.

        Such a run ends by itself or by `cancel`, and is found again by `find_run`. `context` is called for a new run.
        A run that no budget covers is a run that has ended. Raises `TooMany`, `OtherRequest`, and `ValueError` for a
        request that no run can have.
        """
        known = await self.find_run(run_id) or self._runs.get(run_id)
        if known is not None:
            if (known.request.goal, tuple(known.request.files)) != (goal, tuple(files)):
                raise OtherRequest
            return known
        return self._begin_staying(self._request(goal, files, context(), run_id))

    def _begin_staying(self, request: TeamExecutionRequest) -> AskedRun:
        durable = self.journal is not None
        try:
            return self._begin(request, durable=durable, answers=True, stays=True)
        except (InsufficientBudget, HaltError) as error:
            run = self._new(request, durable=durable, stays=True)
            run.end(error=error)
            self._keep(run)
            return run

    def find(self, token: str) -> AskedRun | None:
        """Return the run of this caller with a token."""
        # Constant time, because the token is all that protects the question.
        return next((one for one in self._runs.values() if secrets.compare_digest(one.token, token)), None)

    def staying(self) -> list[AskedRun]:
        """Return the runs that stay and are known here, the latest news first."""
        known = {**self._kept, **self._runs}.values()
        return sorted((run for run in known if run.stays), key=lambda run: run.changed, reverse=True)

    async def find_run(self, run_id: str) -> AskedRun | None:
        """Return a run of this caller by its id, also a recorded one; one whose server was stopped continues.

        Raises `TooMany` for one that cannot continue yet, and `Misuse` for a run that another server has.
        """
        known = self._runs.get(run_id) or self._kept.get(run_id)
        if self.journal is None or not self._is_own(run_id) or (known is not None and not known.waits):
            return known
        try:
            state, request, result, questions = await run_in_thread(partial(_look_up, self.journal, run_id))
        except RunNotFound:
            return known
        if run_id in self._runs:  # begun meanwhile
            return self._runs[run_id]
        if state in ("running", "queued"):
            raise Misuse(f"another server has the run {run_id}: ask that one, or wait until the run has ended")
        if state == "interrupted" or (state == "suspended" and not questions):
            run = self._begin_staying(request)
            run.resumed = True
            return run
        run = self._new(request, durable=True, stays=True)
        if state == "suspended" and self._runtime.gate is None:
            run.question = questions[0]
        if state == "cancelled":
            run.cancelled = CANCELLED
        run.end(result)
        return run

    async def answer(self, run: AskedRun, decision: HumanDecision) -> AskedRun:
        """Answer the open question of a run, and return the run, which continues."""
        assert run.question is not None
        if not run.ended:
            run.answer(run.question.id, decision)
            return run
        journal = self.journal
        assert journal is not None
        with suppress(NoQuestion):  # answered meanwhile
            await run_in_thread(partial(journal.answer, run.question.id, decision, by=self.name))
        return self._runs.get(run.request.run_id) or self._begin_staying(run.request)

    async def cancel(self, run: AskedRun, reason: str) -> None:
        """End a run for good, and wait for its end; the enforced end of a call bounds the wait."""
        if run.waits and self.journal is not None:
            with suppress(RunFinished):
                await run_in_thread(partial(self.journal.cancel, run.request.run_id, reason))
            run.cancelled = reason
            return
        run.cancel(reason)
        while not run.ended:
            await run.news()

    def forget_runs(self) -> None:
        """Forget all runs, when none is at work any more."""
        self._runs.clear()
        self._kept.clear()

    def _keep(self, run: AskedRun) -> None:
        """Let an ended run stay known, and forget the oldest beyond the limits."""
        self._kept.pop(run.request.run_id, None)  # so that it moves to the end
        self._kept[run.request.run_id] = run
        while len(self._kept) > MOST_KEPT or (len(self._kept) > 1 and _size(self._kept.values()) > MOST_KEPT_BYTES):
            del self._kept[next(iter(self._kept))]  # a dict keeps its order: the oldest is first

    def _request(
        self, goal: str, files: Sequence[File], context: Mapping[str, Any], run_id: str | None
    ) -> TeamExecutionRequest:
        made: dict[str, Any] = {} if run_id is None else {"run_id": run_id}
        rules = self._rules
        return TeamExecutionRequest(goal, context=context, plan=rules.plan, config=rules.config, files=files, **made)

    def _new(self, request: TeamExecutionRequest, *, durable: bool, stays: bool) -> AskedRun:
        return AskedRun(request, durable=durable, stays=stays, question_seconds=self._rules.question_seconds)

    def _begin(self, request: TeamExecutionRequest, *, durable: bool, answers: bool, stays: bool = False) -> AskedRun:
        if len(self._runs) >= self._rules.most_runs:
            raise TooMany
        run = self._new(request, durable=durable, stays=stays)
        runtime = self._runtime.with_subscribers([run.take])
        if runtime.gate is None:
            # Without a caller who answers, a recorded question stays open for `kairo` or the console.
            runtime.gate = run if answers else None if runtime.store is None else DeferGate()
        if runtime.governor is not None and not durable:
            # Set aside at once, so that a caller hears of a budget that is used up before anything begins.
            # A time limit begins with the run, not with the carving.
            budget = replace(root_budget(request.config), seconds=None)
            runtime.governor = runtime.governor.carve(request.run_id, budget)
        self._start(self._work, run, runtime)
        self._runs[request.run_id] = run
        return run

    async def _work(self, run: AskedRun, runtime: Runtime) -> None:
        try:
            await run.work(self._team, runtime, self._rules.coordinator)
        finally:
            # Only the one that was carved for this run.
            if runtime.governor is not None and runtime.governor is not self._runtime.governor:
                runtime.governor.close()
                runtime.governor.forget()  # the tree of a server that runs for months must not grow
            self._runs.pop(run.request.run_id, None)
            if run.stays:
                self._keep(run)

    def run_id(self, key: str) -> str:
        """Return the run id of a key; keys of two callers never meet."""
        digest = hashlib.sha256(f"{self.name}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.name}-{digest[:32]}"  # the id of a run without a key has no dash

    def _is_own(self, run_id: str) -> bool:
        """Return whether this caller asked for a recorded run, by a key."""
        # The whole form, because one name may begin with another and a hyphen.
        return re.match(rf"{re.escape(self.name)}-[0-9a-f]{{32}}(\.|\Z)", run_id) is not None

    def _recorded(self, request: TeamExecutionRequest) -> TeamExecutionRequest | None:
        journal = self.journal
        assert journal is not None
        try:
            journal.show(request.run_id)
        except RunNotFound:
            return None
        return recorded_request(journal, request.run_id)


def _look_up(
    journal: SqlJournal, run_id: str
) -> tuple[str, TeamExecutionRequest, TeamResult | None, Sequence[HumanRequest]]:
    """Return the state of a recorded run, its request, its result and its open questions."""
    state = journal.show(run_id).state
    return state, recorded_request(journal, run_id), journal.result(run_id), journal.pending(run_id)


def _size(runs: Iterable[AskedRun]) -> int:
    """Return the bytes of the files of runs."""
    ends = [(run.request.files, run.result and (run.result.artifact or run.result.partial_artifact)) for run in runs]
    files = [file for given, made in ends for file in (*given, *(made.files if made else ()))]
    return sum(file.size or 0 for file in files)


def _caller_choices(request: TeamExecutionRequest) -> tuple[Any, ...]:
    """Return what a caller chose of a request."""
    return request.goal, request.context, tuple(request.files)


def keeps_accounts(store: object) -> bool:
    """Return whether a journal has accounts, which outlive the server and are shared with others."""
    return hasattr(store, "charging")


def account_of(name: str) -> str:
    """Return the account of a key."""
    return f"serve/{name}"


def _open_account(store: Any, name: str, limit: Budget) -> None:
    """Give a key's account its limits; take back what a dead server held for runs without an idempotency key."""
    store.set_account(account_of(name), limit)
    for run_id in store.charged(account_of(name)):
        # Runs with a key can be resumed by their client, and keep what they hold.
        if not run_id.startswith(f"{name}-") and store.show(run_id).state == "interrupted":
            with suppress(RunFinished):  # another server was first
                store.cancel(run_id, "its server has died, and its client is gone")


def _lacked(result: TeamResult, governor: Governor | None, budget: Budget) -> bool:
    """Return whether a run was refused because a shared budget had too little left for this run."""
    if result.exception is not None:
        return isinstance(result.exception.__cause__, InsufficientBudget | HaltError | GovernorClosed)
    # A recorded result has no exception. The budget that is left now is the best guess at the budget of then.
    left = Budget() if governor is None else governor.unallotted
    pairs = [(getattr(left, one), getattr(budget, one)) for one in ("tokens", "dollars", "loops", "tool_calls")]
    return any(rest is not None and asked is not None and rest < asked for rest, asked in pairs)


class Served:
    """A team with its callers."""

    def __init__(self, rules: Rules, names: Iterable[str] = ()) -> None:
        """`names` are the keys whose accounts are opened, where the journal has accounts."""
        self.rules = rules
        self._names = tuple(names)
        self._callers: dict[str, Caller] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Take requests while the block runs; its end stops the runs; runs in a journal can be resumed later."""
        limits = self.rules.key_budget
        store: Any = runtime_of(bind_runtime(self.rules.team)).store
        if limits is not None and keeps_accounts(store):
            limit = Budget(tokens=limits.tokens, dollars=limits.dollars)
            for name in self._names:
                await run_in_thread(partial(_open_account, store, name, limit))
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()  # first: requests that arrive now are refused
        for caller in self._callers.values():
            caller.forget_runs()  # one that was cancelled before it began has forgotten nothing itself

    def _start(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        if self._tasks is None:
            raise Misuse(NOT_OPEN)
        self._tasks.start_soon(work, *arguments)

    def caller(self, name: str) -> Caller:
        """Return a caller; `Misuse` outside `open`."""
        if self._tasks is None:
            raise Misuse(NOT_OPEN)
        if name not in self._callers:
            self._callers[name] = Caller(name, self.rules, self._start)
        return self._callers[name]
