"""Carry the W3C trace context of current work from one process to another, where OpenTelemetry is used."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context


def current_traceparent() -> str | None:
    """Return the trace context of the current span; None without one, or if OpenTelemetry is not imported."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def continuing(traceparent: str | None) -> AbstractContextManager[None]:
    """Make the span of another process the current one for a block; do nothing if OpenTelemetry is not installed."""
    if traceparent is None or find_spec("opentelemetry") is None:
        return nullcontext()
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return _attached(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))


def without_span() -> AbstractContextManager[None]:
    """Run a block without a current span."""
    if "opentelemetry.trace" not in sys.modules:
        return nullcontext()
    from opentelemetry import trace

    return _attached(trace.set_span_in_context(trace.INVALID_SPAN))


@contextmanager
def _attached(context: Context) -> Generator[None]:
    from opentelemetry import context as contexts

    token = contexts.attach(context)
    try:
        yield
    finally:
        contexts.detach(token)
