"""Carry the W3C trace context of current work from one process to another, where OpenTelemetry is used."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec


def current_traceparent() -> str | None:
    """Return the trace context of the current span; None without one, or if OpenTelemetry is not imported."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


@contextmanager
def continuing(traceparent: str | None) -> Generator[None]:
    """Make the span of another process the current one for a block; do nothing if OpenTelemetry is not installed."""
    if traceparent is None or find_spec("opentelemetry") is None:
        yield
        return
    from opentelemetry import context as contexts
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = contexts.attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        contexts.detach(token)


@contextmanager
def without_span() -> Generator[None]:
    """Run a block without a current span."""
    if "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry import context as contexts
    from opentelemetry import trace

    token = contexts.attach(trace.set_span_in_context(trace.INVALID_SPAN))
    try:
        yield
    finally:
        contexts.detach(token)
