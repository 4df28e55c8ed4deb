"""A program of `kairo` whose OpenTelemetry was set up before it began, as `opentelemetry-instrument` does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: it is in the test group")
pytest.importorskip("typer", reason="the extra `cli` is not installed")

TEAM = """
import kairo_team as kt

def write(assignment):
    return "done"

team = kt.Team("desk", [kt.Member("clerk", write)], runtime=kt.Runtime(subscribers=[kt.OpenTelemetry()]))
plan = kt.TaskGraph([kt.Task("letter", "Write it.")])
"""
SET_UP = """
import sys
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(ConsoleMetricExporter())]))
metrics.get_meter("of the test").create_counter("counted").add(1)

from kairo_team.cli import main

sys.exit(main())
"""


def test_what_is_left_to_export_is_exported_before_it_ends(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM)
    command = [sys.executable, "-c", SET_UP, "run", "team.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"name": "invoke_workflow desk"' in done.stdout
    assert '"name": "counted"' in done.stdout
