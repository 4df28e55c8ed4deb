"""`OpenTelemetry`: runs as traces and metrics."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from kairo_team._util.frozen import check_kind, known_arguments
from kairo_team.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from kairo_team.cluster.facts import Fact
    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.events import Content, Event


@known_arguments
class OpenTelemetry:
    """A subscriber that makes traces and metrics of runs: `Runtime(subscribers=[OpenTelemetry()])`.

    A run is an `invoke_workflow` span, and in it each task a span with its attempts, reviews and waits. An attempt is
    an `invoke_agent` span, model and tool calls are `chat` and `execute_tool` spans in that, and a review is an
    `evaluate` span and an event `gen_ai.evaluation.result`. While a member, a model or a tool works, its span is the
    current one, so that spans of other libraries belong to it. If another library already has a span for the same call,
    no second one is made: that span gets the `kairo.*` attributes.

    Errors are written, with the secrets of the runtimes masked. Prompts, replies, arguments, results, goals, task
    descriptions and artifacts are written, masked too, only with `capture_content=True`, or if that is None and the
    variable `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is `true`, `SPAN_ONLY` or `SPAN_AND_EVENT`;
    `Runtime(content=...)` need not ask for them.

    The providers default to the program's own (`opentelemetry.trace.set_tracer_provider` and so on). One subscriber
    serves any number of runs. A `kairo worker` measures itself too if its team's runtime has this subscriber. Raises
    `MissingExtra` without the extra `otel`.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        capture_content: bool | None = None,
    ) -> None:
        check_kind("OpenTelemetry.capture_content", capture_content, bool, or_none=True)
        try:
            from kairo_team.views.telemetry_content import is_wanted
            from kairo_team.views.telemetry_spans import Spans
        except ModuleNotFoundError as error:
            raise MissingExtra("OpenTelemetry", "otel") from error
        self._meter_provider = meter_provider
        self.reads_content = is_wanted(capture_content)
        """Whether texts are written into spans."""
        self._spans = Spans(tracer_provider, meter_provider, logger_provider, with_texts=self.reads_content)

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._spans.take(event)

    def read(self, event: Content) -> None:
        """Take a text of the work; called if `reads_content` is True."""
        self._spans.read(event)

    def traceparent(self, run_id: str) -> str | None:
        """Return the W3C trace context of a run under way; None if it has no span."""
        return self._spans.traceparent(run_id)

    def around(self, event: Event) -> AbstractContextManager[object]:
        """Return a context manager that makes the span of the work begun by an event the current one."""
        return self._spans.around(event)

    def measure_journal(self, journal: SqlJournal) -> None:
        """Measure the runs in a journal or a database from now on, by the names of `kairo metrics`.

        Call it in one process for each journal: every caller would count the same runs.
        """
        from kairo_team.views.telemetry_metrics import JournalMetrics

        JournalMetrics(self._meter_provider, journal)

    def measure_worker(self, team: str, silence: Callable[[], float | None]) -> Callable[[Fact], object]:
        """Return a callable that measures the facts of a team's worker; see `kairo_team.cluster.facts.Measuring`."""
        from kairo_team.views.telemetry_metrics import WorkerMetrics

        return WorkerMetrics(self._meter_provider, team, silence)
