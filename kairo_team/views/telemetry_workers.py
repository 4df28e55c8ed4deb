"""The metrics of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry.metrics import Observation

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
from kairo_team.views.telemetry_spans import SCOPE

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider


class WorkerMetrics:
    """The instruments of one worker; it is called with each fact."""

    def __init__(self, provider: MeterProvider | None, team: str, silence: Callable[[], float | None]) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
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
