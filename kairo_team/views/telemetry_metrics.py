"""The metrics of runs, of workers and of journals, and the event of a review."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from opentelemetry import metrics
from opentelemetry._logs import LoggerProvider, LogRecord, get_logger
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from kairo_team.cluster.facts import (
    BudgetAsked,
    DeliveryRefused,
    Fact,
    UnitBegun,
    UnitEnded,
    UnitReaped,
    WorkerRestarted,
)
from kairo_team.views import telemetry_names as names
from kairo_team.views.journal_metrics import METRICS, Value, read_metrics

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue

    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.events import ModelCalled
    from kairo_team.verdicts import EvaluationVerdict

_SAME_COLLECTION: Final = 1.0
"""Seconds for which what was read serves the other metrics too."""


class Metrics:
    """The instruments, and the logger that emits events."""

    def __init__(self, meter_provider: MeterProvider | None, logger_provider: LoggerProvider | None) -> None:
        meter = metrics.get_meter(names.SCOPE, meter_provider=meter_provider)
        self._logger = get_logger(names.SCOPE, logger_provider=logger_provider)
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BOUNDS,
        )
        self._seconds = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BOUNDS,
        )
        self._dollars = meter.create_counter(names.COST, "{USD}", "US dollars spent on model calls.")
        self._share = meter.create_histogram(
            names.BUDGET_USED,
            "1",
            "The share of its guaranteed tokens that a task used.",
            explicit_bucket_boundaries_advisory=[tenth / 10 for tenth in range(1, 11)],
        )

    def record_call(self, event: ModelCalled, error: str | None) -> None:
        """Record a call's tokens, if they are known, and its seconds."""
        provider, model = names.provider_and_model(event.model)
        about: dict[str, AttributeValue] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER_NAME: provider,
            names.REQUEST_MODEL: model,
        }
        if error is None:
            self._tokens.record(event.usage.prompt_tokens, {**about, names.TOKEN_TYPE: "input"})
            self._tokens.record(event.usage.completion_tokens, {**about, names.TOKEN_TYPE: "output"})
        else:
            about[names.ERROR_TYPE] = error
        self._seconds.record(event.duration, about)

    def record_cost(self, event: ModelCalled, team: str) -> None:
        """Count a call's dollars."""
        if not event.usage.dollars:
            return
        provider, model = names.provider_and_model(event.model)
        about = {names.WORKFLOW_NAME: team, names.PROVIDER_NAME: provider, names.REQUEST_MODEL: model}
        self._dollars.add(float(event.usage.dollars), {**about, **_member(event.member), names.PURPOSE: event.purpose})

    def record_budget(self, share: float, team: str, member: str | None) -> None:
        """Record the share of its guaranteed tokens that a task used; above 1 if it used more than that."""
        self._share.record(share, {names.WORKFLOW_NAME: team, **_member(member)})

    def emit_evaluation(self, name: str, verdict: EvaluationVerdict, context: Context) -> None:
        """Emit the event of a review in the context of what was reviewed."""
        about: dict[str, AttributeValue] = {names.EVALUATION_NAME: name, names.SCORE_LABEL: verdict.outcome.value}
        if verdict.score is not None:
            about[names.SCORE_VALUE] = verdict.score
        if verdict.cause is not None:
            about[names.ERROR_TYPE] = verdict.cause.value
        self._logger.emit(LogRecord(context=context, attributes=about, event_name=names.EVALUATION_RESULT))


def _member(member: str | None) -> dict[str, AttributeValue]:
    return {} if member is None else {names.AGENT_NAME: member}


class WorkerMetrics:
    """The instruments of one worker; it is called with each fact."""

    def __init__(self, provider: MeterProvider | None, team: str, silence: Callable[[], float | None]) -> None:
        meter = metrics.get_meter(names.SCOPE, meter_provider=provider)
        self._about = {names.WORKFLOW_NAME: team}
        self._silence = silence
        self._active = meter.create_up_down_counter(names.ACTIVE_UNITS, "{unit}", "Units that the worker works on.")
        self._deliveries = meter.create_counter(
            names.DELIVERIES, "{delivery}", "Deliveries that have ended, by their outcome."
        )
        self._delivery_wait = meter.create_histogram(
            names.DELIVERY_WAIT,
            "s",
            "How long a unit waited from when it was sent until the worker took it.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BOUNDS,
        )
        self._budget_wait = meter.create_histogram(
            names.BUDGET_WAIT,
            "s",
            "How long attempts that needed more than their slice waited for their coordinator's answer.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BOUNDS,
        )
        self._reaped = meter.create_counter(names.REAPED_UNITS, "{unit}", "Units that it took from dead processes.")
        self._restarts = meter.create_counter(names.RESTARTS, "{restart}", "How often the worker was lost.")
        meter.create_observable_gauge(
            names.SILENCE, [self._observe], "s", "Seconds since the worker reached its database."
        )

    def __call__(self, fact: Fact) -> None:
        """Measure a fact."""
        about = self._about
        match fact:
            case UnitBegun(kind, waited):
                self._active.add(1, {**about, names.UNIT_KIND: kind})
                self._delivery_wait.record(waited, {**about, names.UNIT_KIND: kind})
            case UnitEnded(kind, outcome):
                self._active.add(-1, {**about, names.UNIT_KIND: kind})
                self._deliveries.add(1, {**about, names.UNIT_KIND: kind, names.OUTCOME: outcome})
            case DeliveryRefused():
                self._deliveries.add(1, {**about, names.OUTCOME: "refused"})
            case BudgetAsked(seconds, outcome):
                self._budget_wait.record(seconds, {**about, names.OUTCOME: outcome})
            case UnitReaped(kind):
                self._reaped.add(1, {**about, names.UNIT_KIND: kind})
            case WorkerRestarted():
                self._restarts.add(1, about)

    def _observe(self, _options: CallbackOptions) -> Iterable[Observation]:
        silence = self._silence()
        return [] if silence is None else [Observation(silence, self._about)]


class JournalMetrics:
    """The metrics of a journal's runs, read once for each collection."""

    def __init__(self, provider: MeterProvider | None, journal: SqlJournal) -> None:
        self._journal = journal
        self._read_at = -math.inf
        self._values: list[Value] = []
        self._reading = threading.Lock()
        meter = metrics.get_meter(names.SCOPE, meter_provider=provider)
        for name, (unit, text) in METRICS.items():
            meter.create_observable_gauge(name, [partial(self._observe, name)], unit, text)

    def _observe(self, metric: str, _options: CallbackOptions) -> Iterable[Observation]:
        with self._reading:
            if time.monotonic() - self._read_at > _SAME_COLLECTION:
                self._values = []
                try:
                    self._values = read_metrics(self._journal)
                finally:
                    self._read_at = time.monotonic()  # also if it failed: a database that is away takes its time
            found = [one for one in self._values if one.metric == metric]
        return [Observation(one.value, dict(one.labels)) for one in found]
