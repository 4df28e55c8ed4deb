"""The coordinator's side of an attempt that a worker makes: grant the budget and wait for the end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team import events
from kairo_team._util.threads import run_in_thread
from kairo_team._util.trace_context import current_traceparent, without_span
from kairo_team.budget import Usage, difference
from kairo_team.cluster.units import Unit
from kairo_team.cluster.wire import Divergence, OfferedTool, Overshoot, Question, ToolUse, Work, WorkEnd, refused
from kairo_team.engine.live.event_bus import Bus
from kairo_team.engine.live.task_pool import Watch, background
from kairo_team.engine.run.attempts import failed_attempt, interrupted_attempt, read_again
from kairo_team.errors import HaltError, InsufficientBudget, JournalError, KairoError
from kairo_team.events import Event, TeamEnded, event_from_json
from kairo_team.governance.halts import reason_of
from kairo_team.governance.holds import Waiter
from kairo_team.governance.slices import Ask, Granter
from kairo_team.plugin_calls import failure_of
from kairo_team.results import Attempt
from kairo_team.tools.result import ToolResult, describe_error

if TYPE_CHECKING:
    from kairo_team.artifacts import DoneCall
    from kairo_team.cluster.delivery import Delivery
    from kairo_team.cluster.fatal_units import Deaths
    from kairo_team.cluster.mailbox import Mailbox, Message, MessageQueue
    from kairo_team.durable.postgres import PostgresJournal
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.engine.work.work_context import WorkContext
    from kairo_team.tasks import Assignment

_logger = logging.getLogger("kairo_team")

_COMMON: Final = len(fields(Event))


class DeliveriesExhausted(KairoError):
    """A unit was given up, because every process that took it died."""

    def __init__(self, deaths: int) -> None:
        super().__init__(
            f"given up: {deaths} workers died, failed or lost their database while they worked on it, and none of its "
            "calls finished in between. Look at the workers' logs, and at their memory"
        )


class _Lost(Exception):
    """The process that had the unit is gone, or gave the unit back."""

    def __init__(self, reason: str, deaths: Deaths | None) -> None:
        super().__init__(reason)
        self.deaths = deaths
        """The deaths of processes that had the unit, with this one; None if no process died."""


class RemoteAttempt:
    """One attempt that a worker makes."""

    def __init__(
        self,
        journal: PostgresJournal,
        delivery: Delivery,
        mailbox: Mailbox,
        unit: Unit,
        assignment: Assignment,
        context: WorkContext,
        timeout: float | None,
        max_deliveries: int,
    ) -> None:
        self._journal = journal
        self._delivery = delivery
        self._mailbox = mailbox
        self._unit = unit
        self._assignment = assignment
        self._context = context
        self._timeout = timeout
        self._max_deliveries = max_deliveries
        self._governor = context.governor
        self._number = int(context.step.rpartition(":")[2])
        self._tools = {tool.name: tool for tool in context.offered}
        self._granter = Granter(self._governor, difference(self._governor.usage, context.spent_before, 0.0))
        self._group: anyio.abc.TaskGroup | None = None
        self._around = context.runtime
        """The runtime that runs inside the attempt would have in this process."""
        self._inner: InnerEvents | None = None
        self._made: dict[tuple[int, int], DoneCall] = {}
        """The tool calls of all deliveries, by fence and number."""

    async def make(self) -> Attempt:
        """Let a worker make the attempt; return an `Attempt` for every end but cancellation."""
        context, end = self._context, None
        try:
            with context.around, self._governor.scope() as scope:
                context.scope = scope
                end = await self._until_done()
            if context.interrupted is not None and end is None:
                return interrupted_attempt(context, self._number)
        except BaseException as raised:
            error = failure_of(raised)
            if error is None:
                raise
            # Workers report calls before the attempt's end, and each delivery repeats the recorded ones.
            made = (replace(call, attempt=self._number) for call in self._made.values())
            return failed_attempt(context, self._number, error)._replace(calls=tuple(dict.fromkeys(made)))
        assert end is not None, "the scope is cancelled only after an interruption or a halt"
        return self._read(end)

    def _read(self, end: WorkEnd) -> Attempt:
        """Return a worker's attempt with the coordinator's usage and, if it halted, the origin of the limit."""
        attempt, halt = end.attempt, end.attempt.halt
        own = attempt.origin_path == self._governor.path
        error = self._granter.why_halted(halt) if halt is not None and own else None
        if error is not None:
            halt = reason_of(error) or halt
            origin, path = str(getattr(error, "origin", "")), str(getattr(error, "path", ""))
            why = None if attempt.error is None else str(error)  # None: what it made so far can be reviewed
            attempt = attempt._replace(error=why, halt=halt, origin=origin, origin_path=path)
        read = read_again(self._context, attempt._replace(usage=self._governor.usage))
        return read._replace(calls=attempt.calls)

    # ------------------------------------------------------------------ deliveries

    async def _until_done(self) -> WorkEnd:
        """Send the attempt, and resend it if its worker is gone, until a worker has made it."""
        if self._around is None or not self._around.subscribers:
            return await self._follow_deliveries()
        async with background() as start_soon:
            self._inner = InnerEvents(self._around, start_soon)
            return await self._follow_deliveries()

    async def _follow_deliveries(self) -> WorkEnd:
        unit = self._unit
        with self._mailbox.open(unit.id, "coordinator") as messages, self._forwarding():
            while True:
                self._send(unit)
                try:
                    return await self._follow(messages, unit)
                except _Lost as lost:
                    await self._charge_lost()
                    _logger.warning("run %s: %s of task %r: %s", unit.run_id, unit.step, self._context.task_id, lost)
                    if lost.deaths is not None and lost.deaths.exhaust(self._max_deliveries):
                        raise DeliveriesExhausted(lost.deaths.number) from None
                    unit = self._unit = unit.next()

    def _send(self, unit: Unit) -> None:
        context, services = self._context, self._context.services
        spent = replace(self._granter.spent, loops=self._granter.repeats)
        offered = tuple(
            OfferedTool(
                tool.name, tool.description, tool.parameters, tool.side_effect, tool.timeout, tool.idempotent, tool.ends
            )
            for tool in context.offered
        )
        questions, content = services.questions, services.content
        work = Work(
            self._assignment,
            context.member or "",
            self._number,
            self._timeout,
            self._governor.name,
            self._granter.first(),
            spent,
            context.directives_seen,
            context.foreign,
            offered,
            questions is not None and questions.can_ask,
            content is not None and content.heard,
            services.prices.allows_unknown,
            services.grace,
            self._governor.path,
            None if services.constraints is None else services.constraints.exit,
            services.prompts.overrides,
            None if self._inner is None or self._around is None else self._around.content,
            current_traceparent(),
        )
        self._put(*unit.sending(self._delivery, work))

    async def _charge_lost(self) -> None:
        """Book the charges for the calls of a lost delivery: their usage, or their hold."""
        journal, unit = self._journal, self._unit
        # A cancelled run must book these charges too, or its ledger misses paid calls.
        with anyio.CancelScope(shield=True):
            charged = await run_in_thread(journal.charges, unit.run_id, unit.step)
            self._granter.lose(charged)
            in_doubt = await run_in_thread(journal.calls_in_doubt, unit.run_id, unit.step)
            self._context.services.lost_calls[unit.step] = in_doubt
            self._context.services.warn_of_budget()

    # ------------------------------------------------------------------ messages

    async def _follow(self, messages: MessageQueue, unit: Unit) -> WorkEnd:
        """Serve the worker's messages until the attempt is done; when cancelled, recall the work first."""
        try:
            return await self._serve(messages, unit)
        except _Lost:
            raise
        except BaseException as raised:
            # Only a cancellation recalls the work: a failure of the coordinator's own code ends the attempt.
            if failure_of(raised) is None:
                await self._recall(messages, unit)
            raise

    async def _serve(self, messages: MessageQueue, unit: Unit) -> WorkEnd:
        end: WorkEnd | None = None
        lost: _Lost | None = None
        try:
            async with anyio.create_task_group() as self._group:
                while end is None and lost is None:
                    message = await messages.next()
                    # A worker that was fenced off may still send messages with the old fence.
                    if message.fence == unit.fence:
                        end, lost = self._take(message)
                # The worker is gone or done: answers that are still being prepared have no reader.
                self._group.cancel_scope.cancel()
        finally:
            self._group = None  # questions that arrive from now on get no answer
        if lost is not None:
            raise lost
        assert end is not None
        return end

    def _take(self, message: Message) -> tuple[WorkEnd | None, _Lost | None]:
        """Handle a message; return the end of the attempt, or its loss, if the message reports one."""
        kind, body = message.kind, message.body
        if kind == "done":
            self._finish(body)
            return body, None
        if kind == "lost":
            return None, _Lost(*body)
        if kind in ("ask", "question", "tool"):
            if self._group is None:
                return None, None
            if kind == "ask":
                self._grant(self._group, *body)  # at once: later messages build on the amounts in this one
            else:
                self._group.start_soon(self._answer, message)
        else:
            self._hear(kind, body)
        return None, None

    def _hear(self, kind: str, body: Any) -> None:
        """Handle a message that needs no answer."""
        constraints = self._context.services.constraints
        if kind == "events":
            for name, fields in body:
                self._emit(name, fields)
        elif kind == "inside" and self._inner is not None:
            self._inner.take(body)
        elif kind == "spent":
            self._granter.report(*body)
            self._context.services.warn_of_budget()
        elif kind == "kept":
            self._context.keep(body)
        elif kind == "noted":
            self._note(body)
        elif kind == "counted":
            self._context.services.note_calls(*body)
        elif kind == "made":
            number, call = body
            self._made[self._unit.fence, number] = call
        elif kind == "stop" and constraints is not None:
            constraints.stop_for(str(body))

    def _emit(self, name: str, fields: tuple[Any, ...]) -> None:
        kind = getattr(events, name, None)
        if isinstance(kind, type) and issubclass(kind, events.Event):
            self._context.services.emit(kind, *fields)

    def _note(self, noted: Overshoot | Divergence) -> None:
        """Make the result warn of a worker's overshoot or divergence."""
        services = self._context.services
        if isinstance(noted, Overshoot):
            services.overshoots.count(*noted)
        else:
            services.divergences.note(*noted)

    def _finish(self, end: WorkEnd) -> None:
        self._granter.end(end.spent)
        self._context.turns = end.turns
        if (supervisor := self._context.services.supervisor) is not None:
            for name, seconds in end.blocked.items():
                supervisor.note_blocking(name, seconds)
            for warning in end.stubborn:
                supervisor.note_stubborn(warning)
        if end.kept:
            self._context.keep(end.kept)
        self._context.services.warn_of_budget()
        self._put(*self._unit.removing())

    async def _answer(self, message: Message) -> None:
        """Answer a message whose answer takes time."""
        made: Any
        if message.kind == "tool":
            made = await self._use_tool(message.body)
        else:
            made = await self._ask_person(message.body)
        self._send_message("answer", (message.body.number, made))

    def _grant(self, group: anyio.abc.TaskGroup, number: int, ask: Ask) -> None:
        try:
            made: Any = self._granter.receive(ask)
        except (InsufficientBudget, HaltError) as error:
            made = refused(error)
        if isinstance(made, Waiter):
            group.start_soon(self._grant_later, number, ask, made)
        else:
            self._send_message("answer", (number, made))

    async def _grant_later(self, number: int, ask: Ask, waiter: Waiter) -> None:
        made: Any
        try:
            made = await self._granter.when_granted(ask, waiter, partial(self._send_message, "waits", number))
        except (InsufficientBudget, HaltError) as error:
            made = refused(error)
        self._send_message("answer", (number, made))

    async def _ask_person(self, question: Question) -> Any:
        questions = self._context.services.questions
        if questions is None:
            return None
        if question.key is not None:
            return await questions.ask(question.key, question.request)
        return None if questions.gate is None else await questions.gate.decide(question.request)

    async def _use_tool(self, use: ToolUse) -> ToolResult:
        tool = self._tools.get(use.name)
        if tool is None:
            return ToolResult(f"no tool {use.name!r} is offered here", is_error=True)
        try:
            arguments = use.arguments if tool.check is None else tool.check(use.arguments)
            made = await tool.call(arguments)
        except Exception as error:  # noqa: BLE001 - the member reads it
            return ToolResult(describe_error(error), is_error=True)
        return made if isinstance(made, ToolResult) else ToolResult(str(made))

    # ------------------------------------------------------------------ to the worker

    @contextmanager
    def _forwarding(self) -> Generator[None]:
        """Pass new directives, and the decisions of watched constraints, on to the worker while the block runs."""
        services = self._context.services
        directives = [] if services.steering is None else services.steering.on_directive
        exits = [] if services.constraints is None else services.constraints.on_exit
        send_exit = partial(self._send_message, "exit")

        def pass_on(task_id: str | None, directive: str) -> None:
            if task_id is None or task_id == self._context.task_id:
                self._send_message("directive", directive)

        directives.append(pass_on)
        exits.append(send_exit)
        try:
            yield
        finally:
            directives.remove(pass_on)
            exits.remove(send_exit)

    def _send_message(self, kind: str, body: Any) -> None:
        """Send a message to the unit's current worker."""
        self._put(*self._unit.message_to_worker(kind, body))

    def _put(self, *statements: Any) -> None:
        journal: Any = self._context.services.kept
        journal.queue_statements(*statements)

    async def _recall(self, messages: MessageQueue, unit: Unit) -> None:
        """End the work on the worker and book its usage; fence the worker off if it does not answer in time."""
        context = self._context
        journal: Any = context.services.kept
        kind = "leave" if context.interrupted is None and self._governor.stopped is None else "cancel"
        with anyio.CancelScope(shield=True):
            if journal.interrupted:  # this session sends its worker no more messages
                await self._book_charges(unit, partial(self._note_cut_calls, unit))
                return
            self._send_message(kind, str(context.interrupted or "the run has ended"))
            with anyio.move_on_after(context.services.grace + self._journal.beat) as patience:
                while True:
                    message = await messages.next()
                    if message.fence == unit.fence and any(self._take(message)):
                        break
                if message.kind == "done":
                    return
            # The worker writes nothing more once this is on disk.
            self._put(*unit.fencing())
            await self._book_charges(unit, journal.written)
            supervisor = context.services.supervisor
            if patience.cancelled_caught and supervisor is not None and await self._was_taken(unit):
                how = "its worker was fenced off and can record nothing more"
                supervisor.note_stubborn(f"{context.member!r} did not end when it was cancelled: {how}")

    async def _note_cut_calls(self, unit: Unit) -> None:
        """Make the result of the interrupted session warn of the worker's calls without an answer."""
        in_doubt = await run_in_thread(self._journal.calls_in_doubt, unit.run_id, unit.step)
        self._context.services.cut_calls.extend(in_doubt)

    async def _book_charges(self, unit: Unit, first: Callable[[], Awaitable[None]]) -> None:
        """Book the charges for the worker's calls, once `first` is done."""
        try:
            with anyio.fail_after(self._journal.patience):
                await first()
                charged: Usage = await run_in_thread(self._journal.charges, unit.run_id, unit.step)
        except (JournalError, TimeoutError):  # this run can record and send nothing more
            self._granter.end(self._granter.spent)
            return
        # Only the worker's reports count an iteration that made no call.
        self._granter.end(replace(charged, loops=max(charged.loops, self._granter.spent.loops)))

    async def _was_taken(self, unit: Unit) -> bool:
        """Return whether a worker has claimed the unit; False if the database does not answer."""
        try:
            with anyio.fail_after(self._journal.patience):
                return await run_in_thread(lambda: self._journal.change(unit.was_taken))
        except (JournalError, TimeoutError):
            return False


class InnerEvents:
    """Passes the events of each run inside one attempt to the subscribers of the runtime around it."""

    def __init__(self, runtime: Runtime, start_soon: Callable[[Watch], object]) -> None:
        """`start_soon` runs the async subscribers until the attempt ends."""
        self._runtime = runtime
        self._start_soon = start_soon
        self._buses: dict[str, tuple[Bus, anyio.Event]] = {}

    def take(self, written: str) -> None:
        """Emit an event that a worker reported, with the number that it has in its run."""
        event = event_from_json(written)
        bus, ended = self._buses.get(event.run_id) or self._open(event.run_id)
        own = tuple(getattr(event, one.name) for one in fields(event)[_COMMON:])
        # `emit` adds 1.
        bus.seq = event.seq - 1
        with without_span():  # the current span belongs to the attempt, not to this event
            bus.emit(type(event), *own)
        if isinstance(event, TeamEnded):
            del self._buses[event.run_id]
            ended.set()

    def _open(self, run_id: str) -> tuple[Bus, anyio.Event]:
        runtime, ended = self._runtime, anyio.Event()
        bus = Bus(run_id, runtime.subscribers, runtime.masker if runtime.secrets else None)

        async def pump() -> None:
            async with bus.pumping(runtime.grace):
                await ended.wait()

        self._start_soon(pump)
        self._buses[run_id] = (bus, ended)
        return self._buses[run_id]
