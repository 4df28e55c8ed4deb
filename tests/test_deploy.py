"""The files in `deploy/`: they parse, and what they start exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from kairo_team.cli.app import app
from kairo_team.cli.commands import COMMANDS

yaml: Any = pytest.importorskip("yaml", reason="the files are YAML")

DEPLOY = Path(__file__).parent.parent / "deploy"
if not DEPLOY.exists():
    pytest.skip("deploy/ is no part of the wheel", allow_module_level=True)
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
DEPLOYMENT = next(one for one in KUBERNETES if one["kind"] == "Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]


def started() -> Iterator[list[str]]:
    """Return what each container is started with."""
    yield from (service["command"] for service in COMPOSE["services"].values() if "command" in service)
    yield CONTAINER["args"]
    found = re.search(r"^CMD \[(.*)\]$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    yield [word.strip().strip('"') for word in found[1].split(",")]


@pytest.mark.parametrize("arguments", list(started()), ids=lambda words: words[0])
def test_commands_and_their_options_exist(arguments: Sequence[str]) -> None:
    group: Any = typer.main.get_command(app)
    name, *rest = arguments
    assert name in COMMANDS
    context = group.commands[name].make_context(name, list(rest))
    assert context.params, "they were understood"


def test_the_image_starts_the_command() -> None:
    assert 'ENTRYPOINT ["kairo"]' in (DEPLOY / "Dockerfile").read_text()


def drain_of(arguments: Sequence[str]) -> float:
    return float(arguments[arguments.index("--drain") + 1])


def test_a_worker_has_more_time_to_end_than_it_drains() -> None:
    worker = COMPOSE["services"]["worker"]
    assert float(worker["stop_grace_period"].removesuffix("s")) > drain_of(worker["command"]) + 5
    assert POD["terminationGracePeriodSeconds"] > drain_of(CONTAINER["args"]) + 5


def test_two_workers_run_and_one_stays_in_a_disruption() -> None:
    assert COMPOSE["services"]["worker"]["deploy"]["replicas"] == DEPLOYMENT["spec"]["replicas"] == 2
    budget = next(one for one in KUBERNETES if one["kind"] == "PodDisruptionBudget")
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"] == labels == DEPLOYMENT["spec"]["selector"]["matchLabels"]


def test_no_secret_is_written_down() -> None:
    variables = {one["name"]: one for one in CONTAINER["env"]}
    assert set(variables["KAIRO_DATABASE"]["valueFrom"]) == {"secretKeyRef"}
    assert "value" not in variables["KAIRO_DATABASE"]
    for service in COMPOSE["services"].values():
        used = set(service.get("secrets", []))
        assert used <= set(COMPOSE["secrets"])
        for value in service.get("environment", {}).values():
            if str(value).startswith("file:"):
                assert value.removeprefix("file:/run/secrets/") in used
    for file in DEPLOY.iterdir():
        code = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
        assert not re.search(r"postgresql://\S+:\S+@", code), file.name


def test_probes_ask_what_the_health_server_answers() -> None:
    port = next(one["containerPort"] for one in CONTAINER["ports"] if one["name"] == "health")
    assert CONTAINER["args"][CONTAINER["args"].index("--health") + 1] == f"0.0.0.0:{port}"
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz"
    health = COMPOSE["services"]["worker"]["healthcheck"]["test"][-1]
    address = COMPOSE["services"]["worker"]["command"][-1]
    assert f"http://{address}/healthz" in health


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
def test_kubectl_reads_the_objects(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "kubernetes.yaml", tmp_path)
    (tmp_path / "kustomization.yaml").write_text("resources: [kubernetes.yaml]\n")
    done = subprocess.run(
        [shutil.which("kubectl") or "", "kustomize", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [one["kind"] for one in yaml.safe_load_all(done.stdout)] == [one["kind"] for one in KUBERNETES]


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not here")
def test_docker_compose_reads_the_services(tmp_path: Path) -> None:
    """Only where its plug-in is: it needs no engine."""
    if subprocess.run(
        [shutil.which("docker") or "", "compose", "version"], capture_output=True, check=False
    ).returncode:
        pytest.skip("docker has no plug-in compose")
    shutil.copy(DEPLOY / "compose.yaml", tmp_path)
    done = subprocess.run(
        [shutil.which("docker") or "", "compose", "-f", str(tmp_path / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env={"KAIRO_CONSOLE_TOKEN": "x" * 16, "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
