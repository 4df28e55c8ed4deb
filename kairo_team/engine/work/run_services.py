"""What every piece of work of one run shares."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token

from kairo_team._util.counts import count
from kairo_team._util.late_pydantic import to_jsonable_python
from kairo_team.budget import Usage
from kairo_team.engine.live.event_bus import NOTHING_AROUND, Around
from kairo_team.engine.live.task_pool import Watch
from kairo_team.engine.records.earlier_calls import CallsUnderWay, Divergences, EarlierCalls, describe_doubts
from kairo_team.engine.records.plan_records import CutShort
from kairo_team.engine.work.constraints import RunConstraints
from kairo_team.errors import HaltError, JournalError
from kairo_team.events import CallsDiverged, Content
from kairo_team.files import File
from kairo_team.governance.guardrails import GuardrailChain, joined
from kairo_team.human import HumanDecision, HumanRequest
from kairo_team.models.governed_model import RULES, CallRules
from kairo_team.models.resolver import single_models
from kairo_team.plugin_calls import Tracebacks
from kairo_team.tools.circuit import CircuitBreakers
from kairo_team.tools.permissions import ToolPermissions, joint_permissions
from kairo_team.tools.result import describe
from kairo_team.tools.sources import Connections

if TYPE_CHECKING:
    from kairo_team.contracts import ChatModel, GuardrailPolicy, HumanGate, Models, Records, RunJournal
    from kairo_team.engine.live.enforced_end import CallSupervisor
    from kairo_team.engine.records.journal import Engine
    from kairo_team.engine.records.questions import Inbox, Questions
    from kairo_team.engine.records.run_scope import RunScope
    from kairo_team.engine.work.runtime import OuterAttempt, Runtime
    from kairo_team.engine.work.steering import Steering
    from kairo_team.governance.governor import Governor
    from kairo_team.governance.pricing import PriceBook
    from kairo_team.prompts import Prompts
    from kairo_team.recorded import RecordedCall
    from kairo_team.results import Attempt, ModelUsage

T = TypeVar("T")


class Directives(Protocol):
    """The known directives of a run: its `Steering`, or the copy that a worker has."""

    @property
    def directives(self) -> Sequence[tuple[str | None, str]]:
        """Task id, or None for all tasks, and the directive; oldest first."""
        ...

    @property
    def on_directive(self) -> list[Callable[[str | None, str], object]]:
        """Called with each directive."""
        ...

    @property
    def watches(self) -> bool:
        """Whether there is a limit to warn of."""
        ...

    def directives_for(self, task_id: str | None, after: int = 0, until: int | None = None) -> tuple[str, ...]:
        """Return the texts of the directives for a task, oldest first, among the run's from `after` to `until`."""
        ...

    def warn_of_budget(self) -> None:
        """Emit a warning if most of one of the run's limits is spent."""
        ...


class People(Protocol):
    """Access to people: a run's `Questions`, or a worker's connection to the run's."""

    @property
    def gate(self) -> HumanGate | None:
        """Asks a person; None: no person can be asked."""
        ...

    @property
    def inbox(self) -> Inbox:
        """The open questions."""
        ...

    @property
    def can_ask(self) -> bool:
        """Whether there is a gate, or an answer that the run has not taken."""
        ...

    async def ask(self, key: str, asked: HumanRequest) -> HumanDecision | None:
        """Return a person's decision; None if no person can be asked or answers."""
        ...

    def identified(self, asked: HumanRequest, key: str) -> HumanRequest:
        """Return the question with its id and the run's id."""
        ...

    def withdraw(self, why: str, task_id: str | None = None, attempt: int | None = None) -> None:
        """Withdraw open questions, because what they were asked for has ended."""
        ...


class Heard(Protocol):
    """Knows whether there are listeners for the texts of the work."""

    @property
    def heard(self) -> bool:
        """Whether there is a listener."""
        ...

    @property
    def in_pieces(self) -> bool:
        """Whether there is a listener for a reply while it is written."""
        ...


class RunServices:
    """Models, prices, prompts, tools and guardrails of one run, and access to its bus from any thread."""

    __slots__ = (
        "_begin", "_breakers", "_chains", "_connected", "_connections", "_emit", "_policies", "_thread", "_token",
        "_used", "allowed", "clock", "constraints", "content", "count_calls", "cut_calls", "divergences",
        "earlier_calls", "engine", "grace", "journal", "kept", "lost_calls", "models", "nest", "on_journal_error",
        "outer_attempt", "overshoots", "permissions", "prices", "prompts", "questions", "rules", "run_id", "secrets",
        "start_soon", "steering", "supervisor", "tracebacks", "under_way", "unmetered", "withheld",
    )  # fmt: skip

    def __init__(  # noqa: PLR0915 - a statement for each thing that a run shares
        self,
        run_id: str,
        *,
        models: Models,
        prices: PriceBook,
        prompts: Prompts,
        journal: Records,
        clock: Callable[[], float],
        emit: Callable[..., object],
        begin: Callable[..., Around] | None = None,
        rules: CallRules = RULES,
        permissions: ToolPermissions | None = None,
        secrets: Sequence[str] = (),
        nest: Callable[[OuterAttempt], Runtime] | None = None,
        outer_attempt: OuterAttempt | None = None,
        guardrails: Sequence[Sequence[GuardrailPolicy]] = (),
        guardrails_of: Mapping[str, Sequence[GuardrailPolicy]] | None = None,
        questions: People | None = None,
        steering: Directives | None = None,
        kept: RunJournal | None = None,
    ) -> None:
        """Take the parts of the run; `guardrails` apply to everyone, in groups; `guardrails_of` to one member, by name.

        `outer_attempt` is the attempt that contains the run: its rules for models and tools apply here too, and first.
        """
        self.run_id, self.models, self.clock = run_id, models, clock
        self.prices, self.rules, self.prompts, self.journal = prices, rules, prompts, journal
        self.kept = kept
        """The journal, if it outlives the process."""
        self.outer_attempt = outer_attempt
        around = None if outer_attempt is None else outer_attempt.permissions
        self.permissions = joint_permissions(around, permissions)
        self.allowed: Sequence[Iterable[str]] = () if outer_attempt is None else outer_attempt.allowed_tools
        """Lists of allowed tool names; a tool must be in each list, and in the list of its role."""
        self.secrets = secrets
        self.nest = nest
        """Makes the runtime of a team inside a task; None outside a run."""
        self.questions = questions
        """Asks people; None outside a run."""
        self.steering: Directives | None = steering
        """Knows the directives given to the run; None outside a run."""
        self.constraints: RunConstraints | None = None
        """None if neither the team nor a member has constraints: then they cost nothing."""
        self.on_journal_error: Callable[[JournalError], None] | None = None
        """Called when a call could not be recorded, and so was not made; None outside a run."""
        self.content: Heard | None = None
        """The bus that takes the texts of the work; None if texts are not emitted."""
        self.tracebacks = Tracebacks()
        self.withheld: set[tuple[str, str | None]] = set()
        """Tool sources and members for which it was logged that the member gets none of the source's tools."""
        self.unmetered: set[str] = set()
        """Models that reported no usage for a streamed reply: from now on they stream only if the caller streams."""
        self.overshoots = Overshoots(journal)
        """Calls that used more than their hold."""
        self.count_calls: Callable[[str, ModelUsage], object] | None = None
        """Counts what runs inside this one have used of a model; None outside a run."""
        self.divergences = Divergences(journal)
        """Calls that were made in the place of recorded ones."""
        self.grace = 1.0
        """Seconds of clean-up that work has after an end."""
        self.supervisor: CallSupervisor | None = None
        """Warns of members that do not end in time, or block the event loop; None outside a run."""
        self.engine: Engine | None = None
        """Makes the attempts elsewhere; None if they are made here."""
        self.earlier_calls: EarlierCalls | None = None
        """The calls of earlier sessions; None in the first session."""
        # One register with the run around: an interruption ends the whole tree of runs at once.
        self.under_way = CallsUnderWay() if outer_attempt is None else outer_attempt.under_way
        """The calls under way, here and in the runs around this one."""
        self.lost_calls: dict[str, Sequence[RecordedCall]] = {}
        """Calls in doubt of workers that were lost in this session, by attempt."""
        self.cut_calls: list[RecordedCall] = []
        """Calls of workers that were under way when the session was interrupted."""
        self._emit, self._begin = emit, begin
        self._policies = (() if outer_attempt is None else outer_attempt.policies, guardrails, guardrails_of or {})
        self._chains: tuple[GuardrailChain | None, Mapping[str, GuardrailChain]] | None = None
        self._breakers: CircuitBreakers | None = None
        self._connections: Connections | None = None
        self._connected: set[int] = set()
        """Models whose connections are kept until the run ends, by `id`."""
        self._used: set[tuple[str, ...]] = set()
        """The names of each used model, if there are limits."""
        self.start_soon: Callable[[Watch], object] | None = None
        """Runs a watch as long as the run lasts; set when the run begins."""
        self._thread, self._token = threading.get_ident(), current_token()

    def emit(self, *event: Any) -> None:
        """Emit an event, from the run's event loop or from a worker thread."""
        self.call(self._emit, *event)

    def begin(self, *event: Any) -> Around:
        """Emit, from any thread, the first event of some work; return what the subscribers put around it."""
        return NOTHING_AROUND if self._begin is None else self.call(self._begin, *event)

    def report_content(
        self, of: str, call: str, attempt: int, body: object, *, task_id: str | None, member: str | None
    ) -> None:
        """Emit a text of the work, if there are listeners."""
        if self.content is not None and self.content.heard:
            try:
                said = to_jsonable_python(body, fallback=_shown)
            except UnicodeEncodeError:  # half a character in a key, which pydantic allows only in values
                said = describe(body)
            self.emit(Content, task_id, member, of, call, attempt, said)

    def note_overshoot(self, model: str, held: Usage, used: Usage) -> None:
        """Count, from any thread, a call that used more than was held, here and in every run around this one."""
        self.call(self.overshoots.note, model, held, used)
        if self.outer_attempt is not None:
            self.outer_attempt.note_overshoot(model, held, used)

    def note_calls(self, model: str, used: ModelUsage) -> None:
        """Count, from any thread, calls that a run inside this one has made."""
        if self.count_calls is not None:
            self.call(self.count_calls, model, used)

    def check_repeated(self, step: str, task_id: str | None, member: str | None) -> None:
        """Report ended work that was cut before if its calls differ from the recorded ones."""
        calls = 0 if self.earlier_calls is None else self.earlier_calls.diverged(step)
        if calls:
            work = f"the work {step!r}" if task_id is None else f"task {task_id!r}"
            work = f"the review of {work}" if step.startswith("review:") else work
            self.emit(CallsDiverged, task_id, member, calls)
            _logger.warning("run %s: %s", self.run_id, self.divergences.note(work, calls))

    def warn_of_budget(self) -> None:
        """Emit a warning, from any thread, if most of one of the run's limits is spent."""
        if self.steering is not None and self.steering.watches:
            self.call(self.steering.warn_of_budget)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the run's event loop, from any thread, and wait until it is done."""
        # The event loop's own thread would wait for itself below.
        if threading.get_ident() == self._thread:
            return function(*args)
        return from_thread.run_sync(function, *args, token=self._token)

    def begin_to_use(self, model: ChatModel) -> None:
        """Register a model of the run, and keep its connections, if it has any, until the end; from any thread."""
        for one in single_models(model):
            if self.rules.limits:
                self._used.add(self.rules.limits.names(one))
            keep: Watch | None = getattr(one, "keep_connections", None)
            if keep is not None and self.start_soon is not None and id(one) not in self._connected:
                self._connected.add(id(one))
                self.call(self.start_soon, partial(_without_error, keep))

    def is_answered(self, question: HumanRequest) -> bool:
        """Return whether a deferred question may have its answer now."""
        # The questions of a run inside this one are not known here.
        if question.run_id != self.run_id:
            return True
        return self.questions is not None and self.questions.inbox.is_answered(question)

    @property
    def is_over(self) -> bool:
        """Whether an attempt around the run has ended, so that the run cannot continue."""
        outer = self.outer_attempt
        return outer is not None and outer.over and not outer.left

    @property
    def is_left(self) -> bool:
        """Whether the session of the run, or of one around it, was left in its journal, to be resumed."""
        return (self.kept is not None and self.kept.interrupted) or (
            self.outer_attempt is not None and self.outer_attempt.left
        )

    def withdraw_questions(self, attempt: Attempt) -> None:
        """Withdraw the questions of an ended attempt; keep them if it waits for a person."""
        if self.questions is not None and not isinstance(attempt.interrupted, HumanRequest):
            ended = f"attempt {attempt.number} of task {attempt.task_id!r} has ended"
            why = ended if attempt.error is None else f"{ended}: {attempt.error}"
            self.questions.withdraw(why, attempt.task_id, attempt.number)

    def begin_again(self, step: str, waited: Attempt, spent: Usage) -> None:
        """Record that an attempt is repeated after it waited for a person; `spent` is its own usage."""
        beyond = spent if self.earlier_calls is None else self.earlier_calls.beyond(step, spent)
        self.journal.put(step, CutShort(waited.member, waited.usage, waited.artifact, beyond))

    def guardrails_of(self, member: str | None) -> GuardrailChain | None:
        """Return the guardrails of a member, or of work without a member; None without any."""
        if self._chains is None:
            outer, everybody, members = self._policies
            # Groups are evaluated one after the other, each in its own order: an outer policy changes what an inner one
            # sees. Policies of the attempt around the run keep their state, all others begin with the run.
            common = joined(outer, *(GuardrailChain(group).for_run() for group in everybody if group))
            guarded = {member: GuardrailChain(policies) for member, policies in members.items() if policies}
            self._chains = common or None, {member: joined(common, own.for_run()) for member, own in guarded.items()}
        shared, own = self._chains
        return shared if member is None else own.get(member, shared)

    @property
    def warnings(self) -> list[str]:
        """Warnings for the result: calls beyond what was held or recorded, calls in doubt, limits without effect."""
        in_doubt = [] if self.earlier_calls is None else self.earlier_calls.warnings
        lost_calls = [call for calls in self.lost_calls.values() for call in calls]
        lost = describe_doubts(lost_calls, "their workers were lost")
        limits = self.rules.limits.warnings(self._used)
        return [*self.overshoots.warnings, *self.divergences.warnings, *in_doubt, *lost, *limits]

    @property
    def watches(self) -> Sequence[Watch]:
        """Watches that run as long as the run does."""
        return () if self.constraints is None else self.constraints.watches(self.supervisor)

    @property
    def breakers(self) -> CircuitBreakers:
        """The circuit breakers of the run's tools."""
        if self._breakers is None:
            self._breakers = CircuitBreakers((self.permissions or ToolPermissions()).breaker, self.clock)
            # Ended work is not repeated, so what its tools did counts here: a resumed run refuses the same tools.
            for tool, succeeded in () if self.earlier_calls is None else self.earlier_calls.tools_of_ended_work():
                self._breakers.repeat(tool, succeeded=succeeded)
        return self._breakers

    @property
    def connections(self) -> Connections:
        """The run's tool sources, such as MCP servers; connected at the first use."""
        if self._connections is None:
            assert self.start_soon is not None, "the run has begun"
            self._connections = Connections()
            self.start_soon(self._connections.serve)
        return self._connections


async def _without_error(watch: Watch) -> None:
    """Run a watch that is only an optimisation: if it fails, a call fails too and reports why."""
    with suppress(Exception):
        await watch()


def open_services(
    scope: RunScope,
    runtime: Runtime,
    prompts: Prompts,
    questions: Questions,
    steering: Steering,
    *,
    kill: Callable[[str], None],
    warn: Callable[[str], None],
) -> RunServices:
    """Return what all work of the run shares, with the constraints of runtime and team in force."""
    team, request, policy = scope.team, scope.request, scope.config.budget_policy
    services = RunServices(
        request.run_id,
        models=runtime.models,
        prices=runtime.prices.under(policy) if policy.allow_unpriced else runtime.prices,
        prompts=prompts,
        journal=scope.journal,
        kept=scope.kept,
        clock=scope.clock,
        emit=scope.emit,
        begin=scope.begin,
        rules=runtime.call_rules,
        permissions=team.permissions,
        secrets=runtime.secrets,
        nest=partial(runtime.nested_in, run_id=request.run_id, gate=questions.gate, grace=request.config.cancel_grace),
        outer_attempt=runtime.outer_attempt,
        guardrails=(runtime.guardrails, team.guardrails),
        guardrails_of={member.id: member.guardrails for member in team.everyone},
        questions=questions,
        steering=steering,
    )
    services.count_calls = scope.tally.add
    services.engine, services.supervisor, services.grace = runtime.engine, scope.supervisor, scope.supervisor.grace
    shared, own = (*runtime.constraints, *team.constraints), {one.id: one.constraints for one in team.everyone}
    if shared or any(own.values()):
        services.constraints = RunConstraints(scope.governor, scope.clock, shared, own, scope.emit, kill, warn)
    return services


@asynccontextmanager
async def interruptible(governor: Governor) -> AsyncGenerator[None]:
    """End the block at the deadline or a kill; without any time at all, cancel it from its first await on."""
    entered = False
    try:
        async with governor.scope():
            entered = True
            yield
    except HaltError:
        # A governor without any time left refuses the scope; the block runs all the same, up to its first await.
        if not entered:
            with anyio.CancelScope() as scope:
                scope.cancel()
                yield
        raise


_logger = logging.getLogger("kairo_team")

_KEY: Final = "overshoots"


class _Overshoot(NamedTuple):
    """The calls of one model that used more than their hold."""

    calls: int = 0
    held: Usage = Usage()
    used: Usage = Usage()


class Overshoots:
    """Counts, by model, the calls that used more than was held; recorded, so that a resumed run reports the same."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Records) -> None:
        self._journal = journal

    def note(self, model: str, held: Usage, used: Usage) -> None:
        """Count a call if it used more than was held; dollars are compared only if some were held."""
        if used.tokens > held.tokens or (held.dollars and used.dollars > held.dollars):
            self.count(model, held, used)

    def count(self, model: str, held: Usage, used: Usage) -> None:
        """Count a call that used more than was held."""
        before = self._found.get(model, _Overshoot())
        now = _Overshoot(before.calls + 1, before.held + held, before.used + used)
        self._journal.put(_KEY, MappingProxyType({**self._found, model: now}))
        # Logged once for each model: the result has the totals.
        if not before.calls:
            _logger.warning("%s", _describe(model, now))

    @property
    def warnings(self) -> list[str]:
        """One sentence for each model, with the numbers."""
        return [_describe(model, overshoot) for model, overshoot in self._found.items()]

    @property
    def _found(self) -> Mapping[str, _Overshoot]:
        found: Any = self._journal.get(_KEY, None)
        return found or {}


def _describe(model: str, overshoot: _Overshoot) -> str:
    calls, held, used = overshoot
    parts: list[str] = []
    if used.tokens > held.tokens:
        parts.append(f"{used.tokens:,} tokens where {held.tokens:,} were held")
    if held.dollars and used.dollars > held.dollars:
        parts.append(f"${used.dollars} where ${held.dollars} were held")
    what = count(calls, "call")
    return (
        f"model {model!r} used more than was held for {what}: {' and '.join(parts)}; all of it is booked. Its provider "
        "does not keep to max_tokens, or the prompt was longer than was counted"
    )


def _shown(value: object) -> Any:
    return value.as_shown() if isinstance(value, File) else describe(value)
