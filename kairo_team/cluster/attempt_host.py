"""The worker's side of an attempt: the member works here, within a budget slice, and reports to the coordinator."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team._util.clock import LoopClock
from kairo_team._util.threads import poster, run_in_thread
from kairo_team._util.trace_context import continuing
from kairo_team.budget import BudgetPolicy, Usage
from kairo_team.cluster.facts import AskOutcome, BudgetAsked, Report
from kairo_team.cluster.mailbox import Message, MessageQueue, message_to
from kairo_team.cluster.wire import (
    Divergence,
    OfferedTool,
    Overshoot,
    Question,
    Refused,
    ToolUse,
    Work,
    WorkEnd,
    refusal_of,
)
from kairo_team.engine.live.enforced_end import CallSupervisor
from kairo_team.engine.live.event_bus import NOTHING_AROUND, Around
from kairo_team.engine.live.task_pool import background
from kairo_team.engine.records.earlier_calls import Divergences, EarlierCalls, describe_divergence
from kairo_team.engine.records.questions import Inbox
from kairo_team.engine.records.recovery import suspensions_of
from kairo_team.engine.run.attempts import Worker, run_attempt
from kairo_team.engine.work.constraints import RunConstraints
from kairo_team.engine.work.run_services import Overshoots, RunServices
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.errors import JournalError
from kairo_team.events import Event, ModelCalled, ToolCalled
from kairo_team.governance.slices import Ask, Borrower, Grant
from kairo_team.prompts import Prompts
from kairo_team.results import Attempt
from kairo_team.team import Member, Team, output_type_of
from kairo_team.tools.made_calls import MadeCalls
from kairo_team.tools.tool import Tool

if TYPE_CHECKING:
    from kairo_team.artifacts import DoneCall
    from kairo_team.cluster.cluster import Cluster
    from kairo_team.cluster.units import Unit
    from kairo_team.constraints import Violation
    from kairo_team.contracts import Records
    from kairo_team.durable.postgres import AttemptRecords
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.tools.result import ToolResult

_logger = logging.getLogger("kairo_team")

_KEEP_EVERY: Final = 0.5
"""Minimum seconds between two reports of partial work."""
_SPENDS: Final = frozenset({ModelCalled, ToolCalled})
"""Events after which the usage is reported."""


class Link:
    """The connection from an attempt to its coordinator; messages keep the order and the fence of the records."""

    def __init__(self, unit: Unit, records: AttemptRecords, messages: MessageQueue) -> None:
        self._unit = unit
        self._journal = records.journal
        self._messages = messages
        self._number = 0
        self._answers: dict[int, tuple[anyio.Event, list[Any]]] = {}
        self._on_wait: dict[int, Callable[[], object]] = {}
        self.is_left = False
        """Whether the coordinator has ended this session of the run, which can be resumed."""

    def send(self, kind: str, body: Any, *also: Any) -> None:
        """Send a message, and execute the statements `also`, with the next records."""
        sender, unit = self._unit.sender, self._unit
        if sender is not None:
            self._journal.queue_statements(
                *message_to(sender, Message(unit.id, unit.fence, kind, body), unit.run_id), *also
            )

    def send_inner(self, event: Event) -> None:
        """Report an event of a run inside the attempt."""
        self.send("inside", event.to_json())

    async def ask(self, kind: str, make: Callable[[int], Any], on_wait: Callable[[], object] | None = None) -> Any:
        """Send a message and wait for its answer; `make` returns the message's body for the number of the question.

        `on_wait` is called if the coordinator reports that the answer will take time.
        """
        self._number = number = self._number + 1
        answered, made = anyio.Event(), list[Any]()
        self._answers[number] = (answered, made)
        if on_wait is not None:
            self._on_wait[number] = on_wait
        try:
            self.send(kind, make(number))
            await answered.wait()
        finally:
            del self._answers[number]
            self._on_wait.pop(number, None)
        return made[0]

    async def serve(
        self,
        on_cancel: Callable[[str], object],
        on_directive: Callable[[str], object],
        on_exit: Callable[[Violation], object],
    ) -> None:
        """Read the coordinator's messages until the work ends."""
        while True:
            message = await self._messages.next()
            # Messages to an earlier delivery of the unit may still arrive.
            if message.fence != self._unit.fence:
                continue
            if message.kind == "answer":
                number, made = message.body
                if number in self._answers:
                    answered, given = self._answers[number]
                    given.append(made)
                    answered.set()
            elif message.kind == "waits" and message.body in self._on_wait:
                self._on_wait.pop(message.body)()
            elif message.kind in ("cancel", "leave"):
                self.is_left = message.kind == "leave"
                on_cancel(message.body)
            elif message.kind == "directive":
                on_directive(message.body)
            elif message.kind == "exit":
                on_exit(message.body)


class DistantSteering:
    """The run's directives that the coordinator has passed on to this worker."""

    watches = False
    """False, because the coordinator warns of the budget."""

    def __init__(self, seen: int, task_id: str) -> None:
        """`seen` directives are in the prompt already."""
        self._task_id = task_id
        self.on_directive: list[Callable[[str | None, str], object]] = []
        # The places of directives that the prompt has already: later ones get the same numbers as at the coordinator.
        self.directives: list[tuple[str | None, str]] = [(None, "")] * seen

    def add(self, directive: str) -> None:
        """Add a directive."""
        self.directives.append((self._task_id, directive))

    def directives_for(self, task_id: str | None, after: int = 0, until: int | None = None) -> tuple[str, ...]:
        """Return the task's directives, from index `after` to `until`."""
        return tuple(text for whose, text in self.directives[after:until] if whose is None or whose == task_id)

    def warn_of_budget(self) -> None:
        """Do nothing: `watches` is False."""


class DistantPeople:
    """Asks people through the coordinator; also the gate of the teams inside the attempt."""

    def __init__(self, link: Link, run_id: str, *, can_ask: bool) -> None:
        self._link = link
        self._run_id = run_id
        self.can_ask = can_ask
        self.gate = self if can_ask else None
        self.inbox = Inbox()

    async def ask(self, key: str, asked: HumanRequest) -> HumanDecision | None:
        """Return a person's decision, which the coordinator records."""
        decision: HumanDecision | None = await self._link.ask("question", lambda number: Question(number, key, asked))
        return decision

    async def decide(self, question: HumanRequest) -> HumanDecision | None:
        """Return the decision of the run's gate, which the coordinator asks."""
        decision: HumanDecision | None
        decision = await self._link.ask("question", lambda number: Question(number, None, question))
        return decision

    def identified(self, asked: HumanRequest, key: str) -> HumanRequest:
        """Return the question with its id and the id of its run."""
        return replace(asked, id=f"{self._run_id}:{key}", run_id=self._run_id)

    def withdraw(self, why: str, task_id: str | None = None, attempt: int | None = None) -> None:
        """Do nothing: the coordinator withdraws its questions."""


class Heard:
    """Says whether a subscriber receives the texts of the work."""

    def __init__(self, *, heard: bool) -> None:
        self.heard = self.in_pieces = heard


class DistantOvershoots(Overshoots):
    """Reports calls that used more than was held; the coordinator counts them and warns of them in the result."""

    def __init__(self, link: Link, records: Records) -> None:
        super().__init__(records)
        self._link = link

    def count(self, model: str, held: Usage, used: Usage) -> None:
        """Report one call."""
        self._link.send("noted", Overshoot(model, held, used))


class DistantDivergences(Divergences):
    """Reports calls that replaced recorded ones; the coordinator counts them and warns of them in the result."""

    def __init__(self, link: Link, records: Records) -> None:
        super().__init__(records)
        self._link = link

    def note(self, work: str, calls: int) -> str:
        """Report how many calls a piece of work replaced; return the text that describes it."""
        self._link.send("noted", Divergence(work, calls))
        return describe_divergence(work, calls)


class _HostedContext(WorkContext):
    """A context that also saves partial work at the coordinator."""

    __slots__ = ("link", "told_at")

    link: Link
    told_at: float

    @property
    def made_calls(self) -> MadeCalls:
        """What this attempt does with tools; the coordinator is told at once, because this process may die of it."""
        if self._made is None:

            def report(number: int, call: DoneCall) -> None:
                self.services.call(self.link.send, "made", (number, call))

            self._made = MadeCalls(self._attempt, self.done, report=report)
        return self._made

    def keep(self, text: str) -> None:
        """Save partial work: here at once, at the coordinator at most every `_KEEP_EVERY` seconds."""
        super().keep(text)
        now = self.services.clock()
        if now - self.told_at >= _KEEP_EVERY:
            self.told_at = now
            self.services.call(self.link.send, "kept", self.kept)


class AttemptHost:
    """One attempt that this process makes."""

    def __init__(self, cluster: Cluster, team: Team, runtime: Runtime, unit: Unit, work: Work, report: Report) -> None:
        self._cluster = cluster
        self._team = team
        self._runtime = runtime
        self._unit = unit
        self._work = work
        self._report = report
        self._context: _HostedContext | None = None

    async def make(self, messages: MessageQueue) -> bool:
        """Run the attempt and report its end. Return False, reporting nothing, once it is fenced off."""
        unit, journal = self._unit, self._cluster.journal
        try:
            records = await run_in_thread(journal.open_attempt, unit.run_id, unit.step, unit.epoch, unit.id, unit.fence)
            return await self._make(records, Link(unit, records, messages))
        except JournalError as error:
            _logger.info("unit %s, delivery %d: dropped: %s", unit.id, unit.fence, error)
            return False

    async def _make(self, records: AttemptRecords, link: Link) -> bool:
        with anyio.CancelScope() as scope:
            post = poster()

            def lose(error: JournalError) -> None:
                _logger.info("unit %s, delivery %d: %s", self._unit.id, self._unit.fence, error)
                with suppress(RuntimeError):  # the event loop is gone
                    post(scope.cancel)

            records.journal.serve(lambda: (0.0, 0), _ignore, lose)
            try:
                end = await self._work_on(records, link)
                records.journal.leave()  # its unit is done with the next record: a later check would find no delivery
                link.send("done", end, *self._unit.finishing())
                await records.journal.written()
                return True
            finally:
                records.journal.leave()
        # `lose` cancelled the scope.
        return False

    async def _work_on(self, records: AttemptRecords, link: Link) -> WorkEnd:
        """Run the member, and return how the attempt ended."""
        work = self._work
        member = next((one for one in self._team.everyone if one.id == work.member), None)
        if member is None:
            known = ", ".join(member.id for member in self._team.everyone)
            error = f"the worker's team {self._team.name!r} has no member {work.member!r}; it has {known}"
            return WorkEnd(Attempt(work.assignment.task.id, work.number, work.member, None, error), work.spent)
        clock = LoopClock()
        supervisor = CallSupervisor(clock.read, work.grace)
        borrower = Borrower(
            work.governor,
            work.grant,
            partial(_ask_for_budget, link, self._report),
            lambda spent, held, asks: link.send("spent", (spent, held, asks)),
            clock=clock,
            spent=work.spent,
            path=work.path,
        )
        steering = DistantSteering(work.directives, work.assignment.task.id)
        services = self._services(records, link, borrower, steering, clock)
        self._context = context = self._context_of(member, services, borrower, link)
        watches = (supervisor.watch, partial(link.serve, self._cancel, steering.add, self._exit))
        async with background(*watches) as services.start_soon:
            attempt = await run_attempt(
                Worker.of(member),
                work.assignment,
                context,
                work.number,
                work.timeout,
                supervisor,
            )
        if link.is_left:
            services.under_way.leave_in_doubt(records.journal)
        noticed = (supervisor.blocked, tuple(supervisor.stubborn))
        return WorkEnd(attempt, borrower.governor.usage, context.kept, context.turns, *noticed)

    def _context_of(self, member: Member, services: RunServices, borrower: Borrower, link: Link) -> _HostedContext:
        work, task = self._work, self._work.assignment.task
        context = _HostedContext(services, borrower.governor, member.role, self._unit.step, task.id, member.id)
        context.link, context.told_at = link, services.clock()
        context.directives_seen, context.foreign = work.directives, work.foreign
        context.done = work.assignment.done
        context.offered = tuple(_tool_from(one, link) for one in work.offered)
        context.around = continuing(work.traceparent)
        if task.output_type is not None:
            context.output_type = output_type_of(self._team, task)
        return context

    def _services(
        self,
        records: AttemptRecords,
        link: Link,
        borrower: Borrower,
        steering: DistantSteering,
        clock: LoopClock,
    ) -> RunServices:
        team, runtime, work, run_id = self._team, self._runtime, self._work, self._unit.run_id
        people = DistantPeople(link, run_id, can_ask=work.asks_people)
        inside = runtime.on(records.inside_journal, None, () if work.inside is None else [link.send_inner])
        inside.content = work.inside or "none"
        for suspension, within in suspensions_of(records.inside):
            inside.runs.recover(suspension, within)

        def emit(kind: type[Any], *fields: Any) -> None:
            link.send("events", ((kind.__name__, fields),))
            if kind in _SPENDS:
                link.send("spent", (borrower.governor.usage, None))

        def begin(*event: Any) -> Around:
            emit(*event)
            return NOTHING_AROUND

        services = RunServices(
            run_id,
            models=runtime.models,
            prices=runtime.prices.under(BudgetPolicy(allow_unpriced=True)) if work.unpriced else runtime.prices,
            prompts=Prompts(work.templates) if work.templates else runtime.prompts,
            journal=records.journal,
            kept=records.journal,
            clock=clock.read,
            emit=emit,
            begin=begin,
            rules=runtime.call_rules,
            permissions=team.permissions,
            secrets=runtime.secrets,
            nest=partial(inside.nested_in, run_id=run_id, gate=people.gate, grace=work.grace),
            guardrails=(runtime.guardrails, team.guardrails),
            guardrails_of={member.id: member.guardrails for member in team.everyone},
            questions=people,
            steering=steering,
        )
        services.content = Heard(heard=True) if work.with_content else None
        services.overshoots = DistantOvershoots(link, records.journal)
        services.count_calls = lambda model, used: link.send("counted", (model, used))
        services.divergences = DistantDivergences(link, records.journal)
        if records.calls or records.steps:
            services.earlier_calls = EarlierCalls(run_id, records.steps, records.calls)
        shared, own = (*runtime.constraints, *team.constraints), {one.id: one.constraints for one in team.everyone}
        if shared or any(own.values()):
            services.constraints = RunConstraints(
                borrower.governor, clock.read, shared, own, emit, partial(link.send, "stop"), _ignore
            )
            services.constraints.exit = work.exit
        return services

    def _exit(self, violation: Violation) -> None:
        """Prevent further model calls, because of a constraint that the coordinator watches."""
        constraints = None if self._context is None else self._context.services.constraints
        if constraints is not None:
            constraints.exit = violation

    def _cancel(self, reason: str) -> None:
        """End the work on the coordinator's request."""
        context = self._context
        if context is not None and context.scope is not None:
            context.interrupt(reason)
        elif context is not None:
            context.governor.cancel()


async def _ask_for_budget(link: Link, report: Report, ask: Ask, on_wait: Callable[[], object] | None) -> Grant:
    began = time.monotonic()
    outcome: AskOutcome = "cancelled"
    try:
        made = await link.ask("ask", lambda number: (number, ask), on_wait)
        outcome = "refused" if isinstance(made, Refused) else "granted"
    finally:
        report(BudgetAsked(time.monotonic() - began, outcome))
    if isinstance(made, Refused):
        raise refusal_of(made)
    grant: Grant = made
    return grant


def _tool_from(offered: OfferedTool, link: Link) -> Tool:
    """Return a tool whose calls the coordinator executes."""

    async def call(arguments: Mapping[str, Any]) -> ToolResult:
        made: ToolResult = await link.ask("tool", lambda number: ToolUse(number, offered.name, arguments))
        return made

    name, description, parameters, side_effect, timeout, idempotent, ends = offered
    # the coordinator's process, which has the tool itself, checks the arguments
    return Tool(name, call, description, parameters, side_effect, dict, timeout, idempotent, ends)


def _ignore(*_ignored: object) -> None:
    """Do nothing."""
