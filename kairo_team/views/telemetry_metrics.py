"""The metrics of runs, and the event of a review."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry._logs import LogRecord, get_logger

from kairo_team.views import telemetry_names as names

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.util.types import AttributeValue

    from kairo_team.events import ModelCalled
    from kairo_team.verdicts import EvaluationVerdict


class Metrics:
    """The instruments, and the logger that emits events."""

    def __init__(
        self, scope: str, meter_provider: MeterProvider | None, logger_provider: LoggerProvider | None
    ) -> None:
        meter = metrics.get_meter(scope, meter_provider=meter_provider)
        self._logger = get_logger(scope, logger_provider=logger_provider)
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
