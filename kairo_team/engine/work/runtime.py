"""`Runtime`: what runs share - subscribers, models, prices, a gate - and how to start, watch and resume them."""

from __future__ import annotations

import inspect
import logging
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeVar, get_args

import anyio
from anyio import get_cancelled_exc_class
from anyio.lowlevel import checkpoint_if_cancelled

from kairo_team._util.frozen import check_kind, known_arguments, known_call
from kairo_team._util.masking import Masker, mask_in_log
from kairo_team._util.plugin_shapes import as_list, check_function, check_instance, check_plug_in
from kairo_team._util.threads import run_in_thread
from kairo_team.budget import Budget, Usage
from kairo_team.contracts import (
    ChatModel,
    GuardrailPolicy,
    HumanGate,
    Journal,
    Records,
    ResourceConstraint,
    RunJournal,
    Subscriber,
    TeamCoordinator,
    check_constraints,
    check_guardrails,
)
from kairo_team.engine.live.task_pool import in_own_task
from kairo_team.engine.records.digests import check_unchanged, digests_of, executed, executing
from kairo_team.engine.records.journal import Engine, MemoryRecords
from kairo_team.engine.records.recovery import suspensions_of
from kairo_team.engine.records.run_handle import Run, Runs
from kairo_team.engine.work.run_arguments import make_request, pick_coordinator
from kairo_team.errors import JournalError, KairoError, Misuse, NoQuestion, RunFinished, RunNotFound, known
from kairo_team.governance.governor import Governor
from kairo_team.governance.guardrails import GuardrailChain
from kairo_team.governance.halts import current_loop
from kairo_team.governance.pricing import Price, PriceBook
from kairo_team.human import HumanDecision, check_answer
from kairo_team.models.governed_model import CallRules
from kairo_team.models.limits import ModelLimit, ModelLimits
from kairo_team.models.resolver import ModelResolver
from kairo_team.models.retries import ModelRetry, check_retry
from kairo_team.plugin_calls import failure_of
from kairo_team.plugins import resolve
from kairo_team.prompts import Prompts
from kairo_team.recorded import ENDED, Place, RecoveredRun
from kairo_team.team import Team, TeamConfig, TeamExecutionRequest, name_types, root_budget

if TYPE_CHECKING:
    from kairo_team.engine.records.earlier_calls import CallsUnderWay
    from kairo_team.engine.records.suspension import Suspension
    from kairo_team.engine.work.constraints import AskedModel
    from kairo_team.files import File
    from kairo_team.governance.cancel_scope import GovernorScope
    from kairo_team.human import HumanRequest
    from kairo_team.results import ModelUsage, TeamResult
    from kairo_team.tasks import TaskGraph
    from kairo_team.tools.made_calls import MadeCalls
    from kairo_team.tools.permissions import ToolPermissions


_logger = logging.getLogger("kairo_team")

ContentMode = Literal["none", "events", "journal"]
"""Who gets the texts of the work in events: no one, every subscriber, or the journal alone."""


class OuterAttempt(Protocol):
    """The attempt around the runs of a nested runtime, and what it allows in them."""

    governor: Governor
    scope: GovernorScope | None
    step: str
    """The recorded step of the attempt."""
    task_id: str | None
    member: str | None

    @property
    def allowed_tools(self) -> Sequence[Iterable[str]]:
        """Lists of allowed tool names; a tool must be in each list."""
        ...

    @property
    def permissions(self) -> ToolPermissions | None:
        """The permissions of tools."""
        ...

    @property
    def policies(self) -> Sequence[GuardrailPolicy]:
        """The policies that guard models and tools."""
        ...

    @property
    def made_calls(self) -> MadeCalls:
        """What the attempt does with tools, and what earlier ones did."""
        ...

    def constrain(self, model: AskedModel) -> AskedModel:
        """Return a model whose calls are turns of this attempt too."""
        ...

    @property
    def over(self) -> bool:
        """Whether this attempt, or one around it, has ended."""
        ...

    @property
    def left(self) -> bool:
        """Whether the session of the attempt was left in its journal, to be resumed."""
        ...

    @property
    def under_way(self) -> CallsUnderWay:
        """The calls of the attempt's run that are under way."""
        ...

    def lose_journal(self, error: JournalError) -> None:
        """End the run of the attempt, because it can no longer be recorded."""
        ...

    def note_overshoot(self, model: str, held: Usage, used: Usage) -> None:
        """Record, from any thread, a call that used more than was held."""
        ...

    def note_calls(self, model: str, used: ModelUsage) -> None:
        """Count, from any thread, calls that a run inside the attempt has made."""
        ...


@known_arguments
class Runtime:
    """What the runs of one program share: subscribers, models, prices, a budget, a gate. Runs are separate otherwise.

    Only `start` and `stream` need `async with Runtime(...)`: when the block ends it waits for the runs they began, and
    when an exception ends the block it cancels them. Without a `budget` each run has only its own; a shared budget's
    seconds count from the runtime's construction. Raises `ValueError` for an argument of the wrong kind.

    >>> async with kt.Runtime(budget=kt.Budget(tokens=100_000), secrets=["token-1"]) as runtime:
    ...     run = await runtime.start(team, "Explain tides.")
    """

    def __init__(
        self,
        *,
        subscribers: Sequence[Subscriber] = (),
        models: Mapping[str, str | ChatModel] | None = None,
        prices: Mapping[str, Price] | None = None,
        budget: Budget | None = None,
        secrets: Iterable[str] = (),
        model_limits: Mapping[str, ModelLimit] | None = None,
        model_retry: ModelRetry | None = None,
        gate: HumanGate | None = None,
        constraints: Iterable[ResourceConstraint] = (),
        guardrails: Iterable[GuardrailPolicy] = (),
        templates: Mapping[str, str] | None = None,
        journal: Journal | None = None,
        engine: Engine | None = None,
        content: ContentMode = "none",
        retention: float | None = None,
    ) -> None:
        """Make a runtime.

        `subscribers` get every event of every run. `models` replaces models by name or pattern, such as `{"openai:*":
        another_model}`. `prices` sets what models cost, in the same way, such as `{"openai:gpt-5-mini": Price(0.25,
        2)}`, and overrides every other price. `budget` is shared by all runs: each is carved from it when it begins;
        its seconds begin now. `secrets` are masked wherever the library writes (results of tools and runs, events,
        errors, its log), also url-encoded, as JSON, in base64, and split by invisible characters. `model_limits` limits
        how many calls of a model may be made at once and begun in a minute, such as `{"openai:*":
        ModelLimit(concurrency=8, per_minute=500)}`, for all runs together; the name under which `models` has a model
        counts like its own. `model_retry` says which failed model calls are tried again; None is `ModelRetry()`,
        `ModelRetry(retries=0)` turns retries off. `gate` asks people about plans, reviews and tools, such as
        `ConsoleGate()`. `constraints` and `guardrails` apply in every run, before those of its team, such as
        `GuardrailChain.from_config(...)`. `templates` replace prompt templates by name (see
        `kairo_team.prompts.TEMPLATES`). `journal` records every run, such as `SqliteJournal("runs.db")`: after its
        process died, `resume` continues a run in a new one. `engine` makes the attempts on other machines, such as
        `Cluster("postgresql://...")`, and has a journal of its own. `content` says who gets prompts, replies, arguments
        and results of tools, and artifacts, in `content` events: no one ("none"), every subscriber ("events"), or the
        journal alone ("journal"). `retention` deletes runs from the journal that many seconds after their end, such as
        30 * 86_400: when a run begins, at most once an hour; None keeps them.
        """
        self.subscribers = _check_subscribers(subscribers)
        self.models = ModelResolver(models)
        self.prices = PriceBook(prices)
        self.governor = None if budget is None else Governor(budget, name="runtime")
        """The governor that every run is carved from; None: each run has only its own budget."""
        self.secrets = _check_secrets(secrets)
        self.masker = Masker(self.secrets)
        mask_in_log(self.masker)
        self.call_rules = CallRules(check_retry(model_retry), ModelLimits(model_limits, self.models.names_of))
        if gate is not None:
            check_plug_in("Runtime.gate", "a gate", gate, "decide", "question")
        self.gate = gate
        self.constraints = check_constraints("Runtime.constraints", constraints)
        self.guardrails = check_guardrails("Runtime.guardrails", guardrails)
        GuardrailChain(self.guardrails)  # refuses a policy that does not name its phases
        self.prompts = Prompts(templates)
        self.templates = dict(templates or {})
        if journal is not None:
            check_instance("Runtime.journal", "a journal", journal)
            if not callable(getattr(journal, "begin", None)):
                raise ValueError(f"Runtime.journal must be a journal, such as kt.SqliteJournal(path), not {journal!r}")
        if engine is not None and journal is not None:
            raise ValueError("Runtime.engine has a journal of its own: leave journal= out")
        if engine is not None:
            check_instance("Runtime.engine", "an engine", engine)
            if not callable(getattr(engine, "attempt", None)):
                raise ValueError(f"Runtime.engine must be an engine, such as kt.Cluster(url), not {engine!r}")
            journal = engine.journal
        self.engine = engine
        """Makes the attempts elsewhere; None: they are made here."""
        self.store = journal
        """Where runs are recorded; None: in memory."""
        self.content: ContentMode = _check_content(content, journal)
        """Who gets the texts of the work in events."""
        self._retention = None if retention is None else Retention(retention)
        if self._retention is not None and journal is not None and not takes_age(journal):
            raise ValueError(
                f"Runtime.retention needs a journal with forget(older_than=), which {journal!r:.80} has not"
            )
        self.runs = Runs()
        self._takings = Takings()
        self._group: anyio.abc.TaskGroup | None = None
        self._loop: object = None
        """The event loop in which the runtime was entered."""
        self.within: str | None = None
        """The id of the run around all runs here; None for a runtime that is not nested."""
        self.outer_attempt: OuterAttempt | None = None
        """The attempt around all runs here, whose rules apply to them too."""
        self.grace = math.inf
        """The most seconds of clean-up after an end."""

    # ------------------------------------------------------------------ live runs

    async def __aenter__(self) -> Self:
        if self._group is not None:
            raise Misuse("this runtime is entered already: one `async with` serves all its runs")
        self._loop, self._group = current_loop(), anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        group, self._group = self._group, None
        assert group is not None, "it was entered"
        try:
            return await group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as raised:
            if error is None or list(raised.exceptions) != [error]:
                raise
            return False  # the block's own error propagates as it was raised
        finally:
            await self._takings.given_back()

    @known_call
    async def start(
        self,
        team: Team,
        request: TeamExecutionRequest | str,
        *,
        plan: TaskGraph | None = None,
        config: TeamConfig | None = None,
        budget: Budget | None = None,
        run_id: str | None = None,
        files: Sequence[File] = (),
        coordinator: TeamCoordinator | str | None = None,
    ) -> Run:
        """Begin a run in the background and return its handle, which keeps all its events, once it has begun.

        The arguments are those of `kairo_team.run`, without `resume` and `runtime`. Raises `RunExists` for a request
        that was run before here, and `Misuse` outside `async with Runtime(...)`. If `start` is cancelled before it
        returns, so is the run.
        """
        run = self._begin(team, make_request(team, request, budget, plan, config, run_id, files), coordinator)
        try:
            await run.wait_until_begun()
        except BaseException:
            run.cancel("the task that started the run was cancelled")
            raise
        return run

    @asynccontextmanager
    @known_call
    async def stream(
        self,
        team: Team,
        request: TeamExecutionRequest | str,
        *,
        plan: TaskGraph | None = None,
        config: TeamConfig | None = None,
        budget: Budget | None = None,
        run_id: str | None = None,
        files: Sequence[File] = (),
        coordinator: TeamCoordinator | str | None = None,
    ) -> AsyncGenerator[Run]:
        """Begin a run like `start`, for a block; leaving the block before the run has ended cancels the run and waits.

        Use it as `async with runtime.stream(team, request) as run: async for event in run.events(): ...`.
        """
        run = self._begin(team, make_request(team, request, budget, plan, config, run_id, files), coordinator)
        try:
            await run.wait_until_begun()
            yield run
        finally:
            if run.live:
                run.cancel("the block that streamed the run was left")
            with anyio.CancelScope(shield=True):
                await run.wait()

    @known_call
    async def resume(
        self,
        run_id: str,
        team: Team,
        *,
        coordinator: TeamCoordinator | str | None = None,
        budget: Budget | None = None,
        take_over: bool = False,
        allow_changes: Collection[str] = (),
    ) -> TeamResult:
        """Resume a suspended run: finished work is not repeated, and what is still open suspends it again.

        With a journal, a run whose process died can be resumed too, in any process; `take_over` takes it from one that
        lives, which then records and sends nothing more. Give the `team` and `coordinator` that the run was begun with;
        `allow_changes` names what may have changed since, as `PlanMismatch` names it. `budget` replaces the run's;
        earlier spending counts. Raises `RunNotFound` or `RunFinished` for a run that does not wait, and `PlanMismatch`
        for changes in the team. Raises `InsufficientBudget` or `HaltError` if the runtime's own budget, or the run's
        account, does not cover the run, which then keeps waiting.
        """
        takes = "resume takes the id of a run, then the team"  # the two are easily swapped
        check_kind(f"{takes}: the id", run_id, str)
        check_kind(f"{takes}: the team", team, Team)
        given_one = None if coordinator is None else resolve("coordinator", "coordinator", coordinator)
        digests = digests_of(team, self.templates, given_one)
        taken: Sequence[RecoveredRun] = ()
        if self.store is not None and self.within is None:
            given: dict[str, Any] = {"take_over": take_over}
            if budget is not None and hasattr(self.store, "accounts"):  # its increase is set aside first
                given["budget"] = budget
            taken = await self._recover(self.store, run_id, digests, given, allow_changes)
        try:
            run = self.runs[run_id]
        except RunNotFound:
            if self.store is not None:
                raise
            place = "this runtime, which has no journal= and knows only its own"
            raise RunNotFound(run_id, self.runs, place=place) from None
        try:
            return await self._go_on(run, team, given_one, digests, budget, allow_changes)
        finally:
            # No session began, so nothing else would give the run back.
            if self.store is not None and not run.sessions:
                await _leave_as_it_was(self.store, taken)

    async def _go_on(
        self,
        run: Run,
        team: Team,
        coordinator: TeamCoordinator | None,
        digests: Mapping[str, str],
        budget: Budget | None,
        allow_changes: Collection[str],
    ) -> TeamResult:
        """Begin a session of a waiting run, and return its result."""
        earlier = self._suspension(run)
        if earlier.digests and self.within is None:  # an inner run was compared with the run around it
            check_unchanged(run.run_id, earlier.digests, digests, allow_changes)
        if run.within is not None and self.governor is not None:  # the attempt around it was booked without its loops
            self.governor.restore(Usage(loops=earlier.usage.loops))
        if budget is not None:  # the team's timeout stays
            earlier = earlier._replace(budget=root_budget(replace(earlier.request.config, budget=budget)))
        if run.within is None and self.governor is not None:
            # A trial: if the shared budget does not cover the run, that is raised before a session begins.
            self.governor.carve_again(team.name, earlier.budget, earlier.usage).close()
        run.suspension = earlier
        execute = self._executing(team, earlier.request, coordinator)
        run.resuming = True
        try:
            result: TeamResult = await execute()
        finally:
            run.resuming = False
        return result

    async def _recover(
        self,
        journal: Journal,
        run_id: str,
        now: Mapping[str, str],
        given: Mapping[str, Any],
        allow_changes: Collection[str],
    ) -> Sequence[RecoveredRun]:
        """Take a run from the journal, with the runs inside it; `PlanMismatch` for what has changed since it began."""
        if run_id in self.runs and (self.runs[run_id].live or self.runs[run_id].resuming):
            raise Misuse(f"run {run_id!r} is running: there is nothing to resume")
        await self._delete_old(journal)
        digests = await run_in_thread(partial(journal.digests, run_id))
        check_unchanged(run_id, digests, now, allow_changes)
        found: Sequence[RecoveredRun] = await self._takings.take(
            partial(journal.recover, run_id, **given),
            runs=lambda taken: [one.journal for one in taken if one.state not in ENDED],
        )
        for suspension, within in suspensions_of(found):
            self.runs.recover(suspension, within)
        return found

    def _suspension(self, run: Run) -> Suspension:
        """Return what a run resumes from; raise if it cannot resume, or not here."""
        if run.resuming or run.live:
            raise Misuse(f"run {run.run_id!r} is running: there is nothing to resume")
        if run.suspension is None:
            raise RunFinished(run.run_id)
        if run.within != self.within:
            raise Misuse(f"run {run.run_id!r} is part of run {run.within!r}: resume that one")
        return run.suspension

    def pending(self, run_id: str | None = None) -> tuple[HumanRequest, ...]:
        """Return the open questions of one run or of all suspended ones, oldest first.

        The questions of a run inside another, of a team whose member is a team, are questions of both.
        """
        check_kind("pending takes the id of a run: it", run_id, str, or_none=True)
        if self.store is not None:
            return self.store.pending(run_id)
        runs = self.runs.handles() if run_id is None else self.runs.waiting_in(run_id)
        return tuple(one for run in runs if run.suspension for one in run.suspension.inbox.open.values())

    def answer(self, question_id: str, decision: HumanDecision) -> None:
        """Answer a question of a suspended run; the answer is void if the subject of the question changes.

        Questions may be answered in any order, from any thread; the same answer twice counts once. A deferred question
        stays open, behind the others. Raises `NoQuestion` for an id that is not open, `Misuse` for an answer other than
        the first.
        """
        check_answer(question_id, decision)
        if self.store is not None:
            self.store.answer(question_id, decision)
            return
        inboxes = [run.suspension.inbox for run in self.runs.handles() if run.suspension is not None]
        for inbox in inboxes:
            if question_id in inbox:
                inbox.answer(question_id, decision)
                return
        why = next((inbox.withdrawn[question_id] for inbox in inboxes if question_id in inbox.withdrawn), None)
        raise NoQuestion(question_id, [one.id for one in self.pending()], why)

    def _begin(self, team: Team, request: TeamExecutionRequest, coordinator: TeamCoordinator | str | None) -> Run:
        """Start a run at the event loop's next turn."""
        if self._group is None:
            raise Misuse("start and stream need `async with kt.Runtime(...) as runtime:` around them")
        if self._loop is not current_loop():
            raise Misuse(
                "this runtime was entered in another event loop, which has the runs that it starts: use kt.run or "
                "kt.run_sync here, or a runtime of this loop"
            )
        execute = self._executing(team, request, coordinator)
        run = self.runs.prepare(request.run_id)
        self._group.start_soon(self._serve, run, execute)
        return run

    def _executing(self, team: Team, request: TeamExecutionRequest, coordinator: TeamCoordinator | str | None) -> Any:
        """Return the call that executes a request of a team in this runtime."""
        chosen = pick_coordinator(team, request, coordinator)
        bound, named = name_types(bind_runtime(team, self), request)

        async def execute() -> Any:
            with executing(None if coordinator is None else chosen):
                return await in_own_task(partial(chosen.execute, named, bound))

        return execute

    async def _serve(self, run: Run, execute: Any) -> None:
        """Execute a run that was begun here, and settle its handle at the end."""
        try:
            run.settle(await execute())
        except BaseException as raised:
            error = failure_of(raised)
            run.settle(None, error or raised)
            if error is None:
                raise
            _logger.exception("the coordinator of run %r raised", run.run_id)
        finally:
            self.runs.leave(run)

    def nested_in(self, attempt: OuterAttempt, run_id: str, gate: HumanGate | None, grace: float) -> Runtime:
        """Return a nested runtime for teams inside an attempt of a run: they spend its budget, and ask its gate."""
        nested = copy(self)
        # The runtime's rules apply to that attempt, and so to everything inside it, already.
        # The copy shares `runs`: so `pending` and `answer` here reach the questions of the runs inside.
        nested.constraints, nested.guardrails = (), ()
        nested.governor, nested.within, nested.gate = attempt.governor, run_id, gate
        nested.outer_attempt, nested.grace = attempt, min(grace, self.grace)
        nested.engine = None  # a team inside a task runs where the task is done
        return nested

    def on(self, journal: Journal | None, engine: Engine | None, subscribers: Sequence[Subscriber]) -> Runtime:
        """Return a copy of this runtime, without its runs and subscribers, on another journal and engine."""
        other = copy(self)
        # Another journal may have a run of the same id.
        other.subscribers, other.runs = tuple(subscribers), Runs()
        other.store, other.engine = journal, engine
        return other

    def with_subscribers(self, subscribers: Sequence[Subscriber]) -> Runtime:
        """Return a copy of this runtime, without its runs, with these subscribers added."""
        return self.on(self.store, self.engine, (*self.subscribers, *subscribers))

    def enter(self, run_id: str) -> Run:
        """Begin a session of a run, with a new handle or one from `start` or `resume`; `RunExists` for an id in use."""
        run = self.runs.enter(run_id, self.within)
        if self.outer_attempt is not None and self.outer_attempt.scope is not None:
            self.outer_attempt.scope.inside += 1
        return run

    def forget(self, run: Run, governor: Governor | None) -> None:
        """Forget a run whose session has ended, except its id and, while it is suspended, what it resumes from."""
        if self.outer_attempt is not None and self.outer_attempt.scope is not None:
            self.outer_attempt.scope.inside -= 1
        self.runs.leave(run)
        shared = self.governor is not None and self.within is None
        if governor is not None and shared:  # a nested run stays in the budget tree of the run around it
            governor.forget()

    async def open_journal(self, request: TeamExecutionRequest, team: Team) -> Records:
        """Return where the steps of a new run are recorded; raise `RunExists` for an id that is recorded."""
        if self.store is None:
            return self.journal_for(request.run_id)
        if self.within is None:
            await self._delete_old(self.store)
        outer = self.outer_attempt
        place = None if outer is None or self.within is None else Place(self.within, outer.step, outer.member)
        digests = digests_of(team, self.templates, executed())
        return await self._takings.take(self.store.begin, request, team, digests, place, runs=lambda begun: (begun,))

    async def _delete_old(self, journal: Journal) -> None:
        """Delete runs that ended longer ago than the retention, before another one begins."""
        if self._retention is not None:
            await self._retention.apply(journal)

    def journal_for(self, run_id: str) -> Records:
        """Return where the run's steps are recorded: an internal seam without a promise."""
        return MemoryRecords()


def bind_runtime(team: Team, runtime: Runtime | None = None) -> Team:
    """Return the team bound to the runtime, else to its own, else to a new one; refuse a team bound to another."""
    if runtime is not None and not isinstance(runtime, Runtime):
        check_instance("runtime", "a runtime", runtime)
        raise ValueError(f"runtime must be a Runtime, such as kt.Runtime(subscribers=[...]), not {runtime!r:.80}")
    if team.runtime is not None:
        if runtime is not None and team.runtime is not runtime:
            raise Misuse(f"team {team.name!r} is bound to another runtime: run it there, or build it without runtime=")
        return team
    bound = copy(team)  # `replace` would check every member again
    object.__setattr__(bound, "runtime", Runtime() if runtime is None else runtime)
    return bound


def runtime_of(team: Team) -> Runtime:
    """Return the runtime that a team was bound to; `Misuse` for a team without one."""
    if team.runtime is None:
        raise Misuse(f"team {team.name!r} has no runtime yet: call kt.run or kt.check, or give it runtime=kt.Runtime()")
    runtime: Runtime = team.runtime
    return runtime


async def _leave_as_it_was(journal: Journal, taken: Sequence[RecoveredRun]) -> None:
    """Give back a run that was taken and cannot resume here; one that waits for a person waits again."""
    with anyio.CancelScope(shield=True):
        for one in reversed(taken):  # inner runs first
            waits = one.state == "suspended"
            result = await run_in_thread(journal.result, one.request.run_id) if waits else None
            if result is not None:
                one.journal.end(result)
            elif one.state not in ENDED:
                one.journal.interrupt(LEFT)
            with suppress(JournalError):
                await one.journal.written()


def _check_subscribers(subscribers: Iterable[Subscriber]) -> tuple[Subscriber, ...]:
    """Return subscribers as a tuple; `ValueError` unless each can be called with an event."""
    given = as_list("Runtime.subscribers", "functions that take an event", subscribers)
    for one in given:
        check_instance("Runtime.subscribers", "a subscriber", one)
        if not callable(one):
            raise ValueError(f"a subscriber is a function that takes an event, not {one!r}")
        check_function("Runtime.subscribers", one, "subscriber(event)")
    return tuple(given)


def _check_content(content: Any, journal: Journal | None) -> ContentMode:
    """Return the mode if it is a known one, and has the journal that it needs."""
    modes: tuple[ContentMode, ...] = get_args(ContentMode)
    if content not in modes:
        raise ValueError(f"Runtime.content is {known(modes)}, not {content!r}")
    if content == "journal" and journal is None:
        raise ValueError(
            "Runtime.content='journal' needs a journal, such as Runtime(journal=kt.SqliteJournal(path)); "
            "'events' gives content to every subscriber"
        )
    return modes[modes.index(content)]


def _check_secrets(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return secrets, longest first, so that masking one leaves nothing of a longer one that contains it."""
    given = [secrets] if isinstance(secrets, str) else list(secrets)
    if isinstance(secrets, str) or not all(isinstance(one, str) and one.strip() for one in given):
        raise ValueError("Runtime.secrets is a list of strings that are not blank")
    return tuple(sorted(set(given), key=lambda one: (-len(one), one)))


LEFT: Final = "the run does not continue here"
"""The reason of the interruption when a run's session was taken and is given back."""

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


_DELETES_EVERY: Final = 3600.0
"""Most seconds between two deletions of a runtime that has work; a shorter retention deletes more often."""


class Retention:
    """Deletes runs that ended more than `seconds` ago; a runtime and its copies share one."""

    def __init__(self, seconds: float) -> None:
        """Keep runs for `seconds` after their end; raises `ValueError` for anything else than a positive number."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise ValueError(
                "Runtime.retention is how many seconds a run is kept after its end, such as 30 * 86_400 for thirty "
                f"days, or None to keep all runs, not {seconds!r:.80}"
            )
        self._seconds = float(seconds)
        self._next = -math.inf

    async def apply(self, journal: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """Delete the old runs of a journal, unless that was done shortly before; a failure is logged."""
        if clock() < self._next:
            return
        # Set before the deletion, so that a run that begins meanwhile does not delete too.
        self._next = clock() + min(self._seconds, _DELETES_EVERY)
        if not takes_age(journal):
            _logger.warning("Runtime(retention=) deletes nothing: %r cannot forget runs by their age", journal)
            return
        try:
            number = await run_in_thread(partial(journal.forget, older_than=self._seconds))
        except KairoError as error:  # the run that begins needs no deletion
            _logger.warning("Runtime(retention=) could not delete old runs: %s", error)
        else:
            _logger.info("retention: %d old runs are deleted from %r", number, journal)


def takes_age(journal: Any) -> bool:
    """Return whether a journal can delete runs by their age."""
    forget = getattr(journal, "forget", None)
    return callable(forget) and "older_than" in inspect.signature(forget).parameters
