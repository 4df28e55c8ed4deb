"""The programs of docs/traces.md, with the libraries that they name, against a receiver on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: it is in the test group")

from kairo_team.views import telemetry_names as names
from tests.telemetry.receiving import FOLDER, NAMES, NEEDS, PAGE, WORK, play, program, serving, spans_of

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not PAGE.is_file(), reason="the pages are no part of the wheel"),
]
with_libraries = pytest.mark.skipif(not FOLDER, reason=NEEDS)
PYTHON = Path.cwd() / FOLDER / "bin" / "python"
Received = list[tuple[str, Any, bytes]]


def said(span: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in span.attributes}


def check(received: Received) -> None:
    """All spans came once, with their texts and their conversation."""
    spans = spans_of(received)
    assert sorted(span.name for span in spans) == NAMES
    assert {said(span)["gen_ai.conversation.id"] for span in spans} == {"tide-run"}
    [top] = [span for span in spans if span.name.startswith("invoke_workflow")]
    assert (said(top)["input.value"], said(top)["output.value"]) == ("Watch the sea.", "The tide is high.")
    chat = [said(span) for span in spans if span.name.startswith("chat")][-1]
    assert json.loads(chat["gen_ai.output.messages"])[0]["parts"] == [{"type": "text", "content": "The tide is high."}]


def test_any_receiver_of_otlp_gets_all_spans() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="it is in the test group")
    received: Received = []
    with serving(received) as address:
        play(program("OTLPSpanExporter()") + WORK, sys.executable, OTEL_EXPORTER_OTLP_ENDPOINT=address)
    assert {path for path, _, _ in received} == {"/v1/traces"}
    check(received)


@with_libraries
def test_logfire_sends_all_spans() -> None:
    """Its own service is switched off, and a receiver added, by its own variables."""
    received: Received = []
    with serving(received) as address:
        variables = {"LOGFIRE_SEND_TO_LOGFIRE": "false", "LOGFIRE_CONSOLE": "false"}
        play(program("import logfire") + WORK, PYTHON, OTEL_EXPORTER_OTLP_ENDPOINT=address, **variables)
    check(received)


@with_libraries
def test_langfuse_sends_all_spans() -> None:
    received: Received = []
    with serving(received) as address:
        keys = {"LANGFUSE_PUBLIC_KEY": "pk-of-a-test", "LANGFUSE_SECRET_KEY": "sk-of-a-test"}
        play(program("Langfuse()") + WORK + "langfuse.flush()\n", PYTHON, LANGFUSE_BASE_URL=address, **keys)
    assert "/api/public/otel/v1/traces" in {path for path, _, _ in received}
    check(received)


@with_libraries
def test_openinferences_names_are_those_of_its_package() -> None:
    code = (
        "from openinference.semconv.trace import SpanAttributes as one, OpenInferenceSpanKindValues as kind\n"
        f"assert one.INPUT_VALUE == {names.INPUT_VALUE!r} and one.OUTPUT_VALUE == {names.OUTPUT_VALUE!r}\n"
        f"assert one.OPENINFERENCE_SPAN_KIND == {names.SPAN_KIND!r}\n"
        f"assert kind.CHAIN.value == {names.CHAIN!r} and kind.EVALUATOR.value == {names.EVALUATOR!r}\n"
    )
    play(code, PYTHON)
