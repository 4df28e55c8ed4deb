"""The programs that `deploy/` starts, each as it is started there, on a real PostgreSQL, with its probes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parent.parent.parent
if os.name != "posix" or not (ROOT / "deploy").is_dir():
    pytest.skip("needs deploy/, and signals", allow_module_level=True)
yaml: Any = pytest.importorskip("yaml", reason="the files are YAML")

pytestmark = pytest.mark.real_time
LONG = 60.0
TEAM = "import kairo_team as kt\nteam = kt.Team('desk', [kt.Member('clerk', lambda _: 'done')])\n"
OBJECTS = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")))
SERVICES = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]
TOKEN = "a-token-of-the-console"


def containers() -> dict[str, dict[str, Any]]:
    """Return the containers of the Kubernetes objects, by name."""
    pods = [one["spec"]["template"]["spec"] for one in OBJECTS if one["kind"] in ("Job", "Deployment")]
    return {container["name"]: container for pod in pods for container in pod["containers"]}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def started(folder: Path, arguments: list[str], **environment: str) -> Generator[subprocess.Popen[str]]:
    """Run `kairo` as the image does: in the folder of the team's code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kairo_team.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=LONG)


def until_connected(port: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()[0]
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("nothing listens")


def until_answered(url: str, process: subprocess.Popen[str], status: int = 200) -> str:
    """Ask as a probe does until it is content; return the answer."""
    until_connected(httpx.URL(url).port or 0, process)
    end = time.monotonic() + LONG
    while (answer := httpx.get(url, timeout=LONG)).status_code != status:
        assert time.monotonic() < end, answer.text
        time.sleep(0.05)
    return answer.text


@pytest.fixture
def place(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, str]]:
    """A folder with the team's code, and the environment that names a database by a secret's file."""
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "database_url").write_text(database)
    for name in ("KAIRO_DATABASE", "KAIRO_JOURNAL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path, {"KAIRO_DATABASE": f"file:{tmp_path / 'database_url'}"}


def test_the_job_makes_the_tables_and_may_run_again(place: tuple[Path, dict[str, str]]) -> None:
    folder, environment = place
    assert containers()["migrate"]["args"] == SERVICES["migrate"]["command"]
    for said in ("now has format", "has format"):
        with started(folder, containers()["migrate"]["args"], **environment) as process:
            assert process.wait(LONG) == 0
            assert process.stdout is not None
            assert said in process.stdout.read()


@pytest.mark.parametrize("of", ["kubernetes", "compose"])
def test_a_worker_answers_its_probes_and_ends_by_sigterm(place: tuple[Path, dict[str, str]], of: str) -> None:
    folder, environment = place
    arguments = containers()["worker"]["args"] if of == "kubernetes" else SERVICES["worker"]["command"]
    port = free_port()
    arguments = [f"127.0.0.1:{port}" if one.endswith(":8080") else one for one in arguments]
    with started(folder, [*arguments, "--engine", "procrastinate"], **environment) as process:
        assert until_answered(f"http://127.0.0.1:{port}/readyz", process) == "ready\n"
        assert until_answered(f"http://127.0.0.1:{port}/healthz", process) == "beats\n"
        process.terminate()
        assert process.wait(LONG) == 0


@pytest.mark.parametrize("of", ["kubernetes", "compose"])
def test_the_metrics_are_served_where_the_probe_and_prometheus_ask(place: tuple[Path, dict[str, str]], of: str) -> None:
    folder, environment = place
    container = containers()["metrics"]
    arguments = container["args"] if of == "kubernetes" else SERVICES["metrics"]["command"]
    port = free_port()
    arguments = [f"127.0.0.1:{port}" if one.endswith(":9400") else one for one in arguments]
    with started(folder, arguments, **environment) as process:
        path = container["readinessProbe"]["httpGet"]["path"]
        assert "# TYPE kairo_waiting_unit_age_seconds gauge" in until_answered(
            f"http://127.0.0.1:{port}{path}", process
        )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
def test_the_console_serves_https_with_its_certificate_and_asks_for_the_token(
    place: tuple[Path, dict[str, str]],
) -> None:
    folder, environment = place
    key, certificate = folder / "tls.key", folder / "tls.crt"
    subprocess.run(
        [shutil.which("openssl") or "", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    port = free_port()
    given = {"--host": "127.0.0.1", "--port": port, "--name": "localhost", "--tls-cert": certificate, "--tls-key": key}
    arguments = containers()["console"]["args"]
    assert [one.partition("=")[0] for one in arguments[1:]] == [*given]
    arguments = ["console", *(f"{name}={value}" for name, value in given.items())]
    with started(folder, arguments, KAIRO_CONSOLE_TOKEN=TOKEN, **environment) as process:
        until_connected(port, process)
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(verify=trusted, base_url=f"https://localhost:{port}", timeout=LONG) as browser:
            assert browser.get("/").status_code == 401
            assert browser.get("/", params={"token": TOKEN}).status_code in (200, 303)


def test_what_scales_the_workers_is_a_metric_that_is_served() -> None:
    scaled = yaml.safe_load((ROOT / "deploy" / "autoscaling.yaml").read_text(encoding="utf-8"))
    metrics = import_module("kairo_team.views.journal_metrics")
    known = {metrics.prometheus_name(name) for name in metrics.METRICS}
    [trigger] = scaled["spec"]["triggers"]
    named = set(re.findall(r"kairo_\w+", trigger["metadata"]["query"]))
    assert {"kairo_waiting_unit_age_seconds"} <= named <= known
    deployments = {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] == "Deployment"}
    least = deployments[scaled["spec"]["scaleTargetRef"]["name"]]["spec"]["replicas"]
    assert scaled["spec"]["minReplicaCount"] == least < scaled["spec"]["maxReplicaCount"]
