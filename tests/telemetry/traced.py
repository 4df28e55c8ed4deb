"""A telemetry whose spans, metrics and events stay in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: it is in the test group")

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs import export as logs_export
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import kairo_team as kt

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_MEMORY: Any = getattr(logs_export, "InMemoryLogRecordExporter", None) or vars(logs_export)["InMemoryLogExporter"]
"""The exporter of logs that keeps them; before 1.39 it had another name."""


class Traced:
    """An `OpenTelemetry` with providers of its own, and what it made."""

    def __init__(self, *, capture_content: bool | None = None) -> None:
        self._spans = InMemorySpanExporter()
        self._logs = _MEMORY()
        self._metrics = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meter_provider = MeterProvider([self._metrics])
        self.logger_provider = LoggerProvider()
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        self.subscriber = kt.OpenTelemetry(
            tracer_provider=self.tracer_provider,
            meter_provider=self.meter_provider,
            logger_provider=self.logger_provider,
            capture_content=capture_content,
        )
        self.tracer = self.tracer_provider.get_tracer("of the test")

    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.spans() if span.name == name]
        return found

    def tree(self) -> list[str]:
        """The spans as paths of names, sorted."""
        by_id = {id_of(span): span for span in self.spans()}

        def path(span: ReadableSpan) -> str:
            parent = None if span.parent is None else by_id.get(span.parent.span_id)
            return span.name if parent is None else f"{path(parent)} > {span.name}"

        return sorted(map(path, self.spans()))

    def events(self) -> list[Any]:
        return [one.log_record for one in self._logs.get_finished_logs()]

    def points(self, name: str) -> list[Any]:
        """The data points of one metric."""
        return [point for one in self._read_metrics() if one.name == name for point in one.data.data_points]

    def units(self, prefix: str) -> dict[str, str]:
        """The metrics whose names begin so, with their units."""
        return {one.name: one.unit for one in self._read_metrics() if one.name.startswith(prefix)}

    def _read_metrics(self) -> list[Any]:
        data = self._metrics.get_metrics_data()
        if data is None:
            return []
        return [one for res in data.resource_metrics for scope in res.scope_metrics for one in scope.metrics]


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None, "it was recorded"
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None, "it was recorded"
    return int(span.context.trace_id)
