"""The spans of runs, by OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kairo_team import events
from kairo_team._util.masking import masked
from kairo_team.budget import Usage, to_dollars
from kairo_team.plugin_calls import words_of
from kairo_team.results import TeamStatus
from kairo_team.views import telemetry_content as content
from kairo_team.views import telemetry_names as names
from kairo_team.views.telemetry_metrics import Metrics

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.util.types import AttributeValue

    from kairo_team.events import Event, PlannedTask


_W3C: Final = TraceContextTextMapPropagator()

_SPAN_EVENTS: Final[Mapping[type[events.Event], tuple[str, ...]]] = {
    events.BudgetToppedUp: ("tokens", "picodollars"),
    events.BudgetWarned: ("dimension", "share"),
    events.ConstraintViolated: ("constraint", "action"),
    events.GuardrailDecided: ("policy", "phase", "action", "target"),
    events.HumanDecided: ("question_id", "action"),
    events.HumanRequested: (),
    events.TaskEscalated: ("cause",),
}
"""Events that become points in the span of their attempt or run, and the fields written with them, never texts."""

Key = tuple[object, ...]


@dataclass(slots=True)
class _Work:
    """Work under way: its span, and the context in which that span is current."""

    span: Span
    context: Context
    borrowed: bool = False
    """Whether the span belongs to another library, which makes the same call and ends the span itself."""
    error: Exception | None = None
    """The exception that the work raised."""


class Answered(NamedTuple):
    """The span of a call that has ended, and waits for its reply."""

    span: Span
    task_id: str | None
    at: int
    """When the call ended, in nanoseconds since 1970."""

    def end(self) -> None:
        """End the span at the time at which its call ended."""
        self.span.end(self.at)


class RunTexts:
    """The texts of a run for spans that have not begun, or have not ended. Without any, nothing is kept."""

    def __init__(self) -> None:
        self.prompts: dict[str, dict[str, str]] = {}
        """The last request of each call under way, as attributes, by the call's id."""
        self.answered: dict[str, Answered] = {}
        """Calls whose reply has not come, by their id."""
        self.descriptions: dict[str, str] = {}
        self.artifacts: dict[str, str] = {}
        """The last artifact of each task."""
        self.accepted: set[str] = set()
        self._needed: set[str] = set()
        """Tasks that others depend on."""

    def plan(self, planned: Iterable[PlannedTask]) -> None:
        """Take the tasks of a plan."""
        for task in planned:
            self.descriptions[task.id] = task.description
            self._needed.update(task.depends_on)

    def output(self) -> str:
        """Return the accepted artifacts on which no other task depends; "" without any."""
        last = [text for one, text in self.artifacts.items() if one in self.accepted and one not in self._needed]
        return "\n\n".join(last)

    def end_answered(self, *task_ids: str) -> None:
        """End the calls, of some tasks or of all, whose reply never came: a guardrail kept it, or it was cut short."""
        for call_id, one in list(self.answered.items()):
            if not task_ids or one.task_id in task_ids:
                one.end()
                del self.answered[call_id]


@dataclass(slots=True)
class _Trace:
    """One session of a run."""

    team: str
    run: _Work
    conversation: str
    """Id of the outermost run."""
    open: dict[Key, list[_Work]] = field(default_factory=dict[Key, "list[_Work]"])
    """Work under way; only tools outside attempts, whose calls have no name, share a key."""
    attempts: dict[str, _Work] = field(default_factory=dict[str, _Work])
    """The last attempt of each task that has not ended."""
    tasks: dict[str, _Work] = field(default_factory=dict[str, _Work])
    """The tasks that wait for something or are in flight."""
    texts: RunTexts = field(default_factory=RunTexts)
    """Texts that belong to spans which have not begun, or have not ended."""
    guaranteed: dict[str | None, events.BudgetCarved] = field(default_factory=dict[str | None, events.BudgetCarved])
    reviews: Counter[str] = field(default_factory=Counter[str])
    evaluators: dict[str, str] = field(default_factory=dict[str, str])

    def begin(self, event: Event, work: _Work) -> None:
        """Keep work under the key of the event that begins it."""
        self.open.setdefault(_key(event), []).append(work)

    def end(self, event: Event) -> _Work | None:
        """Return the work that an event ends; None if no event began it."""
        key = _key(event)
        under_way = self.open.get(key)
        if not under_way:
            return None
        if len(under_way) == 1:
            del self.open[key]
        return under_way.pop(0)

    def span_of(self, task_id: str | None) -> Span:
        """Return the span of a task's attempt while it is open, else the run's span."""
        for work in () if task_id is None else (self.attempts.get(task_id), self.tasks.get(task_id)):
            if work is not None and work.span.is_recording():
                return work.span
        return self.run.span


class _Current:
    """Makes the span of some work the current one in the task that enters it."""

    __slots__ = ("_token", "_work")

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._token: Any = None

    def __enter__(self) -> None:
        self._token = contexts.attach(self._work.context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._work.error = error
        contexts.detach(self._token)


class Spans:
    """Turns the events of runs into spans; `views.telemetry.OpenTelemetry` lists them."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        logger_provider: LoggerProvider | None,
        *,
        with_texts: bool = False,
    ) -> None:
        self._with_texts = with_texts
        self._tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        self._metrics = Metrics(meter_provider, logger_provider)
        self._traces: dict[str, _Trace] = {}
        self._handlers: Mapping[type[Event], Callable[[Any, _Trace], None]] = {
            events.PlanReady: self._take_plan,
            events.PlanGrew: self._take_plan,
            events.BudgetCarved: self._carve,
            events.BudgetReturned: self._return,
            events.BudgetHalted: self._halt,
            events.TaskAssigned: self._start_task,
            events.TaskWaiting: self._wait,
            events.HumanRequested: self._ask,
            events.HumanDecided: self._decide,
            events.AttemptStarted: self._start_attempt,
            events.AttemptFinished: self._finish_attempt,
            events.EvaluationStarted: self._start_review,
            events.EvaluationResult: self._finish_review,
            events.ModelStarted: self._start_model,
            events.ModelCalled: self._finish_model,
            events.ToolStarted: self._start_tool,
            events.ToolCalled: self._finish_tool,
        }

    def take(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, events.TeamStarted | events.TeamResumed):
            self._start_run(event)
            return
        found = self._traces.get(event.run_id)
        if found is None:
            return
        handler = self._handlers.get(type(event))
        if type(event) in _SPAN_EVENTS:
            self._point(event, found, _SPAN_EVENTS[type(event)])
        if handler is not None:
            handler(event, found)
        elif isinstance(event, events.TeamEnded):
            self._end_run(event, found)
        elif isinstance(event, events.TaskEnded):
            self._end_task(event, found)

    def read(self, event: events.Content) -> None:
        """Take a text of the work, which goes into the span that it belongs to."""
        found = self._traces.get(event.run_id)
        if found is None or not self._with_texts:
            return
        match event.of:
            case "prompt":
                found.texts.prompts[event.call_id] = content.of_prompt(event.body)
            case "reply":
                found.texts.prompts.pop(event.call_id, None)
                answered = found.texts.answered.pop(event.call_id, None)
                if answered is not None:
                    answered.span.set_attributes(content.of_reply(event.body))
                    answered.end()
            case "arguments" | "result":
                name = names.TOOL_ARGUMENTS if event.of == "arguments" else names.TOOL_RESULT
                _set_on_tool(found, event.call_id, name, content.written(event.body))
            case "artifact" if event.task_id is not None:
                text = found.texts.artifacts[event.task_id] = str(event.body.get("text", ""))
                found.span_of(event.task_id).set_attributes(content.said_by(text))
            case _:
                pass

    def traceparent(self, run_id: str) -> str | None:
        """Return the W3C trace context of a run under way; None if it has no span."""
        found = self._traces.get(run_id)
        carrier: dict[str, str] = {}
        if found is not None:
            _W3C.inject(carrier, found.run.context)
        return carrier.get("traceparent")

    def around(self, event: Event) -> AbstractContextManager[object]:
        """Return a context manager that makes the span of the work begun by an event the current one."""
        found = self._traces.get(event.run_id)
        if found is None:
            return nullcontext()
        if isinstance(event, events.TeamStarted | events.TeamResumed):
            return _Current(found.run)
        under_way = found.open.get(_key(event))
        return _Current(under_way[-1]) if under_way else nullcontext()

    # ------------------------------------------------------------------ runs

    def _start_run(self, event: events.TeamStarted | events.TeamResumed) -> None:
        links = [] if isinstance(event, events.TeamStarted) else _links(event.traceparent)
        around = None if event.within is None else self._traces.get(event.within)
        conversation = event.within or event.run_id if around is None else around.conversation
        about: dict[str, AttributeValue] = {
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.SPAN_KIND: names.CHAIN,
            names.WORKFLOW_NAME: event.team,
            names.RUN_ID: event.run_id,
        }
        if self._with_texts:
            about |= content.said_to(event.goal)
        # A worker begins a run inside an attempt without a current span: the attempt's context is taken then.
        parent = contexts.get_current() if around is None else _parent(around, event.within_task)
        run = self._start(f"{names.INVOKE_WORKFLOW} {event.team}", about, parent, conversation, links=links)
        self._traces[event.run_id] = _Trace(event.team, run, conversation)

    def _end_run(self, event: events.TeamEnded, found: _Trace) -> None:
        del self._traces[event.run_id]
        # A cancelled run leaves work open, and a suspended one tasks; another library ends its own spans.
        found.texts.end_answered()
        for work in chain(chain.from_iterable(found.open.values()), found.tasks.values()):
            if not work.borrowed:
                work.span.end()
        span, output = found.run.span, found.texts.output()
        if output:
            span.set_attributes(content.said_by(output))
        span.set_attributes({names.STATUS: event.status.value, **_used(event.usage)})
        if event.status in {TeamStatus.FAILED, TeamStatus.TIMEOUT, TeamStatus.CANCELLED}:
            _fail(found.run, event.status.value, event.error)
        span.end()

    def _take_plan(self, event: events.PlanReady | events.PlanGrew, found: _Trace) -> None:
        planned = event.graph if isinstance(event, events.PlanReady) else event.added
        found.evaluators.update((task.id, task.evaluator) for task in planned if task.evaluator)
        if self._with_texts:
            found.texts.plan(planned)

    def _carve(self, event: events.BudgetCarved, found: _Trace) -> None:
        if event.task_id is not None:
            found.guaranteed[event.task_id] = event

    def _return(self, event: events.BudgetReturned, found: _Trace) -> None:
        task, carved = found.tasks.get(event.task_id), found.guaranteed.pop(event.task_id, None)
        if task is not None:
            task.span.set_attributes(_used(event.usage))
        if carved is not None and carved.tokens:
            self._metrics.record_budget(event.usage.tokens / carved.tokens, found.team, event.member)

    def _halt(self, event: events.BudgetHalted, found: _Trace) -> None:
        halt = {names.HALT_REASON: event.reason, names.HALT_ORIGIN: event.origin}
        found.span_of(event.task_id).set_attributes(halt)

    def _point(self, event: Any, found: _Trace, fields: Sequence[str]) -> None:
        """Write an event into the span of its attempt, or of the run."""
        given = {names.TASK_ID: event.task_id} | {f"kairo.{name}": getattr(event, name) for name in fields}
        about = {name: value for name, value in given.items() if value is not None}
        found.span_of(event.task_id).add_event(f"kairo.{event.type}", about)

    # ------------------------------------------------------------------ tasks and what they wait for

    def _task(self, event: events.TaskEvent, found: _Trace) -> _Work:
        """Return the span of a task, which begins when the task could be worked on for the first time."""
        work = found.tasks.get(event.task_id)
        if work is None:
            about: dict[str, AttributeValue] = {
                names.SPAN_KIND: names.CHAIN,
                names.RUN_ID: event.run_id,
                names.TASK_ID: event.task_id,
            }
            if self._with_texts and event.task_id in found.texts.descriptions:
                about |= content.said_to(found.texts.descriptions[event.task_id])
            parent = _parent(found, None)
            work = found.tasks[event.task_id] = self._start(f"task {event.task_id}", about, parent, found.conversation)
        return work

    def _start_task(self, event: events.TaskAssigned, found: _Trace) -> None:
        self._end_wait(found, event.task_id)
        self._task(event, found)

    def _wait(self, event: events.TaskWaiting, found: _Trace) -> None:
        self._end_wait(found, event.task_id)
        if event.waits_for is not None:
            self._begin_wait(event, found, event.waits_for, event.task_id)

    def _ask(self, event: events.HumanRequested, found: _Trace) -> None:
        if event.task_id is not None and event.task_id in found.tasks:
            self._begin_wait(event, found, "person", event.question.id)

    def _decide(self, event: events.HumanDecided, found: _Trace) -> None:
        self._end_wait(found, event.question_id)

    def _begin_wait(self, event: Any, found: _Trace, why: str, key: str) -> None:
        around = found.attempts.get(event.task_id)
        parent = around if around is not None and around.span.is_recording() else self._task(event, found)
        about = {names.RUN_ID: event.run_id, names.TASK_ID: event.task_id, names.WAITS_FOR: why}
        work = self._start(f"wait for {why}", about, parent.context, found.conversation)
        found.open.setdefault(("wait", key), []).append(work)

    def _end_wait(self, found: _Trace, key: str) -> None:
        for work in found.open.pop(("wait", key), ()):
            work.span.end()

    def _end_task(self, event: events.TaskEnded, found: _Trace) -> None:
        found.attempts.pop(event.task_id, None)
        self._end_wait(found, event.task_id)
        work = found.tasks.pop(event.task_id, None)
        if self._with_texts and isinstance(event, events.TaskCompleted):
            found.texts.accepted.add(event.task_id)
        if work is None:  # it was skipped before it could begin
            return
        work.span.set_attribute(names.STATUS, event.type.removeprefix("task."))
        if event.task_id in found.texts.artifacts:
            work.span.set_attributes(content.said_by(found.texts.artifacts[event.task_id]))
        if isinstance(event, events.TaskFailed):
            _fail(work, "failed", event.reason)
        work.span.end()

    # ------------------------------------------------------------------ attempts and reviews

    def _start_attempt(self, event: events.AttemptStarted, found: _Trace) -> None:
        about: dict[str, AttributeValue] = {
            names.OPERATION: names.INVOKE_AGENT,
            names.RUN_ID: event.run_id,
            names.TASK_ID: event.task_id,
            names.ATTEMPT: event.attempt,
            names.ROUND: found.reviews[event.task_id] + 1,
        }
        if event.member is not None:
            about[names.AGENT_NAME] = event.member
        carved = found.guaranteed.get(event.task_id)
        if carved is not None and carved.tokens is not None:
            about[names.GUARANTEED_TOKENS] = carved.tokens
        if carved is not None and carved.picodollars is not None:
            about[names.GUARANTEED_DOLLARS] = float(to_dollars(carved.picodollars))
        if self._with_texts and event.task_id in found.texts.descriptions:
            about |= content.said_to(found.texts.descriptions[event.task_id])
        parent = self._task(event, found).context
        work = self._start(f"{names.INVOKE_AGENT} {event.member}", about, parent, found.conversation)
        found.attempts[event.task_id] = work
        found.begin(event, work)

    def _finish_attempt(self, event: events.AttemptFinished, found: _Trace) -> None:
        work = found.end(event)
        if work is None:
            return
        found.texts.end_answered(event.task_id)
        work.span.set_attributes({names.STATUS: event.status, **_used(event.usage)})
        if event.error is not None and event.status != "suspended":
            _fail(work, event.status, event.error)
        work.span.end()

    def _start_review(self, event: events.EvaluationStarted, found: _Trace) -> None:
        found.reviews[event.task_id] += 1
        about: dict[str, AttributeValue] = {
            names.SPAN_KIND: names.EVALUATOR,
            names.RUN_ID: event.run_id,
            names.TASK_ID: event.task_id,
            names.ATTEMPT: event.attempt,
            names.ROUND: found.reviews[event.task_id],
        }
        made = found.attempts.get(event.task_id)
        links = [] if made is None else [Link(made.span.get_span_context())]
        parent = self._task(event, found).context
        review = self._start(f"evaluate {event.task_id}", about, parent, found.conversation, links=links)
        found.begin(event, review)

    def _finish_review(self, event: events.EvaluationResult, found: _Trace) -> None:
        work, verdict = found.end(event), event.verdict
        made = found.attempts.get(event.task_id)
        context = found.run.context if made is None else made.context
        self._metrics.emit_evaluation(found.evaluators.get(event.task_id, "review"), verdict, context)
        if work is None:
            return
        found.texts.end_answered(event.task_id)
        work.span.set_attribute(names.VERDICT, verdict.outcome.value)
        if verdict.cause is not None:
            work.span.set_attribute(names.VERDICT_CAUSE, verdict.cause.value)
        work.span.end()

    # ------------------------------------------------------------------ calls

    def _start_model(self, event: events.ModelStarted, found: _Trace) -> None:
        provider, model = names.provider_and_model(event.model)
        call: dict[str, AttributeValue] = {
            names.CALL_ID: event.call_id,
            names.CALL_TRY: event.number,
            names.PURPOSE: event.purpose,
            names.HELD_TOKENS: event.held,
            names.HELD_DOLLARS: float(to_dollars(event.held_picodollars)),
        }
        about: dict[str, AttributeValue] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER_NAME: provider,
            names.REQUEST_MODEL: model,
            **found.texts.prompts.get(event.call_id, {}),
        }
        if event.max_tokens is not None:
            about[names.MAX_TOKENS] = event.max_tokens
        parent = _parent(found, event.task_id)
        work = self._borrow(parent, call, {names.OPERATION: names.CHAT})
        about |= {**_place_of_call(event), **call}
        own = work or self._start(f"{names.CHAT} {model}", about, parent, found.conversation, SpanKind.CLIENT)
        found.begin(event, own)

    def _finish_model(self, event: events.ModelCalled, found: _Trace) -> None:
        work = found.end(event)
        if work is None:
            return
        usage, known = event.usage, event.outcome == "ok"
        kind = None if known else _type_of(work.error) or event.outcome
        self._metrics.record_cost(event, found.team)
        work.span.set_attributes({names.OUTCOME: event.outcome, **_used(usage)})
        if work.borrowed:  # the other library measures the call
            return
        self._metrics.record_call(event, kind)
        if known:
            counts = {names.INPUT_TOKENS: usage.prompt_tokens, names.OUTPUT_TOKENS: usage.completion_tokens}
            shares = {names.CACHED_TOKENS: event.cached_tokens, names.REASONING_TOKENS: event.reasoning_tokens}
            work.span.set_attributes(counts | {name: tokens for name, tokens in shares.items() if tokens})
        if event.finish_reason:
            work.span.set_attribute(names.FINISH_REASONS, (event.finish_reason,))
        if event.response_model:
            work.span.set_attribute(names.RESPONSE_MODEL, event.response_model)
        if kind is not None:
            why = "its usage is unknown" if work.error is None else masked(words_of(work.error))
            _fail(work, kind, why)
        if known and self._with_texts:  # its reply follows, when the guardrails have passed it
            found.texts.answered[event.call_id] = Answered(work.span, event.task_id, time_ns())
        else:
            work.span.end()

    def _start_tool(self, event: events.ToolStarted, found: _Trace) -> None:
        call = {names.CALL_ID: event.call_id, names.SIDE_EFFECT: event.side_effect}
        same = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: event.tool}
        parent = _parent(found, event.task_id)
        about: dict[str, AttributeValue] = {**same, names.TOOL_TYPE: "function", **_place_of_call(event), **call}
        if event.reply_call_id:
            about[names.TOOL_CALL_ID] = event.reply_call_id
        work = self._borrow(parent, call, same)
        name = f"{names.EXECUTE_TOOL} {event.tool}"
        found.begin(event, work or self._start(name, about, parent, found.conversation))

    def _finish_tool(self, event: events.ToolCalled, found: _Trace) -> None:
        if event.outcome == "refused":
            asked = {names.TOOL_NAME: event.tool, names.REFUSED_BY: event.refused_by or ""}
            found.span_of(event.task_id).add_event("kairo.tool.refused", asked)
            return
        work = found.end(event)
        if work is None:
            return
        work.span.set_attribute(names.OUTCOME, event.outcome)
        if event.refused_by is not None:
            work.span.set_attribute(names.REFUSED_BY, event.refused_by)
        if work.borrowed:
            return
        if event.outcome == "error":
            _fail(work, "tool_error", event.reason)
        work.span.end()

    # ------------------------------------------------------------------ spans

    def _start(
        self,
        name: str,
        about: Mapping[str, AttributeValue],
        parent: Context,
        conversation: str,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> _Work:
        given = {names.CONVERSATION_ID: conversation, **about}
        span = self._tracer.start_span(name, parent, kind, given, links)
        return _Work(span, trace.set_span_in_context(span, parent))

    def _borrow(
        self, parent: Context, call: Mapping[str, AttributeValue], same: Mapping[str, AttributeValue]
    ) -> _Work | None:
        """Return the current span if another library made it for this very call, with our attributes; else None."""
        span = trace.get_current_span(parent)
        known: Mapping[str, Any] = getattr(span, "attributes", None) or {}
        if not span.is_recording() or any(known.get(name) != value for name, value in same.items()):
            return None
        # A span with a run id is our own; a span with another call id belongs to that call.
        if known.get(names.CALL_ID, call[names.CALL_ID]) != call[names.CALL_ID] or names.RUN_ID in known:
            return None
        span.set_attributes(call)
        return _Work(span, parent, borrowed=True)


def _key(event: Any) -> Key:
    """Return the key, within the run, of the work that an event begins or ends."""
    match event:
        case events.AttemptStarted() | events.AttemptFinished():
            return "attempt", event.task_id, event.attempt
        case events.EvaluationStarted() | events.EvaluationResult():
            return "review", event.task_id, event.attempt
        case events.ModelStarted() | events.ModelCalled():
            return "model", event.call_id, event.number
        case _:
            return "tool", getattr(event, "call_id", None), getattr(event, "tool", None)


def _set_on_tool(found: _Trace, call_id: str, name: str, text: str) -> None:
    """Set an attribute of a tool call under way."""
    for key, works in found.open.items():
        if key[:2] == ("tool", call_id) and not works[-1].borrowed:
            works[-1].span.set_attribute(name, text)


def _parent(found: _Trace, task_id: str | None) -> Context:
    """Return the current context, or the attempt's if no span is current, as in a thread without context."""
    current = contexts.get_current()
    if trace.get_current_span(current).get_span_context().is_valid:
        return current
    work = found.run if task_id is None else found.attempts.get(task_id, found.run)
    return work.context


def _links(traceparent: str | None) -> list[Link]:
    """Return the link from a resumed session to the first; empty if that was not traced."""
    earlier = _W3C.extract({} if traceparent is None else {"traceparent": traceparent}, contexts.Context())
    context = trace.get_current_span(earlier).get_span_context()
    return [Link(context)] if context.is_valid else []


def _place_of_call(event: events.WorkEvent) -> dict[str, AttributeValue]:
    """Return the run, the task and the member of a call."""
    about = {names.RUN_ID: event.run_id, names.TASK_ID: event.task_id, names.AGENT_NAME: event.member}
    return {name: value for name, value in about.items() if value is not None}


def _used(usage: Usage) -> dict[str, AttributeValue]:
    """Return the charged amounts; for a call of unknown usage they are what was held for it."""
    return {names.USED_TOKENS: usage.tokens, names.USED_DOLLARS: float(usage.dollars)}


def _fail(work: _Work, kind: str, why: str | None) -> None:
    """Mark a span as failed; an exception is written with its type and the text of the event, which is masked."""
    raised = _type_of(work.error)
    work.span.set_attribute(names.ERROR_TYPE, raised or kind)
    work.span.set_status(Status(StatusCode.ERROR, why))
    if raised is not None:
        work.span.add_event(names.EXCEPTION, {names.EXCEPTION_TYPE: raised, names.EXCEPTION_MESSAGE: why or ""})


def _type_of(error: Exception | None) -> str | None:
    if error is None:
        return None
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
