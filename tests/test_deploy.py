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
    pods = [one["spec"]["template"]["spec"] for one in KUBERNETES if one["kind"] in ("Job", "Deployment")]
    yield from (container["args"] for pod in pods for container in pod["containers"])
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
    assert budget["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]


def of_kind(*kinds: str) -> list[Any]:
    return [one for one in KUBERNETES if one["kind"] in kinds]


def test_selectors_find_the_pods_and_names_of_ports_exist() -> None:
    pods = {one["metadata"]["name"]: one["spec"]["template"] for one in of_kind("Job", "Deployment")}
    labels = {name: pod["metadata"]["labels"] for name, pod in pods.items()}
    for one in of_kind("Deployment"):
        assert one["spec"]["selector"]["matchLabels"].items() <= labels[one["metadata"]["name"]].items()
    for one in of_kind("Service"):
        name = one["metadata"]["name"]
        assert one["spec"]["selector"].items() <= labels[name].items()
        [container] = pods[name]["spec"]["containers"]
        assert {port["targetPort"] for port in one["spec"]["ports"]} <= {port["name"] for port in container["ports"]}


def test_every_pod_has_a_network_policy_least_rights_and_limits() -> None:
    policies = of_kind("NetworkPolicy")
    chosen = [one["spec"]["podSelector"]["matchLabels"] for one in policies]
    for one in of_kind("Job", "Deployment"):
        pod, labels = one["spec"]["template"]["spec"], one["spec"]["template"]["metadata"]["labels"]
        assert chosen[0].items() <= labels.items(), "what is not allowed is forbidden"
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        [container] = pod["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert {"memory"} == set(container["resources"]["limits"])
    ports = {
        port["name"]
        for one in of_kind("Deployment")
        for port in one["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    for policy in policies:
        for rule in policy["spec"].get("ingress", []):
            assert {port["port"] for port in rule["ports"]} <= ports
    assert set(policies[0]["spec"]["policyTypes"]) == {"Ingress", "Egress"}


def test_no_secret_is_written_down() -> None:
    for one in of_kind("Job", "Deployment"):
        [container] = one["spec"]["template"]["spec"]["containers"]
        assert "KAIRO_DATABASE" in {variable["name"] for variable in container["env"]}
        assert all(set(variable["valueFrom"]) == {"secretKeyRef"} for variable in container["env"])
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


def test_the_objects_fit_the_schemas_of_kubernetes() -> None:
    """Only where `kubernetes-validate` is, which has the schemas of every version."""
    schemas: Any = pytest.importorskip("kubernetes_validate", reason="its schemas take 100 MB")
    for one in KUBERNETES:
        schemas.validate(one, schemas.latest_version(), strict=True)


def test_the_autoscaler_fits_the_schema_of_keda() -> None:
    """Only where `cloudcoil-models-keda` is, whose models are made from the schema. They drop the fields it lacks."""
    models: Any = pytest.importorskip("cloudcoil.models.keda.v1alpha1", reason="it brings a client of Kubernetes")
    written = yaml.safe_load((DEPLOY / "autoscaling.yaml").read_text())
    read = models.ScaledObject.model_validate(written)
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == written


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
def test_kubectl_reads_the_objects(tmp_path: Path) -> None:
    files = ["kubernetes.yaml", "autoscaling.yaml"]
    for file in files:
        shutil.copy(DEPLOY / file, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: {files}\n")
    done = subprocess.run(
        [shutil.which("kubectl") or "", "kustomize", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert sorted(found) == sorted(["ScaledObject", *(one["kind"] for one in KUBERNETES)])


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
