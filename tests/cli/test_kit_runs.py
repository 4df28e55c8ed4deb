"""`kairo plugins --check --kit`: the kits that packages ship are run, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kairo_team.tck import KitReport
from tests import plugin_packages
from tests.plugin_packages import Install

install = plugin_packages.install

GATE = """
import anyio
from kairo_team.contracts import HumanGate
from kairo_team.tck import HumanGateTCK, Person

class Inbox:
    def __init__(self, read=lambda text: None): self.read = read
    async def decide(self, question):
        with anyio.move_on_after(120):
            while (decision := self.read(question.text)) is None:
                await anyio.sleep(5)
            return decision
        return None

class TestInbox(HumanGateTCK):
    backends = ("asyncio",)

    @classmethod
    def make_gate(cls, person: Person) -> HumanGate: return Inbox(person)
"""


def ships(name: str) -> dict[str, dict[str, str]]:
    module = name.replace("-", "_")
    return {"gate": {name: f"{module}:Inbox"}, "kairo_team.kits": {name: module}}


@pytest.fixture
def path(install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Install for the child processes too, and give the command elsewhere."""
    ours = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), ours]))
    monkeypatch.chdir(tmp_path)
    return install


@pytest.mark.real_time
def test_the_kit_of_a_package_is_run_and_shown(kairo: Any, path: Install) -> None:
    path("acme-gate", ships("acme-gate"), GATE)
    said = kairo("plugins", "gate", "--check", "--kit")
    assert said.code == 0, said.out + said.err
    lines = said.out.splitlines()
    place = lines.index("kits of acme-gate 1.0: acme_gate")
    assert lines[place + 1].endswith("TestInbox: 5 of 5 clauses of HumanGate hold")
    assert "kairo: running the kits of acme-gate" in said.err
    assert said.err.endswith("plug-ins checked: nothing is wrong\n")


@pytest.mark.exhaustive
@pytest.mark.real_time
def test_a_broken_clause_is_a_problem_and_the_document_has_the_report(kairo_json: Any, path: Install) -> None:
    path(
        "acme-gate",
        ships("acme-gate"),
        GATE.replace("return None", "return __import__('kairo_team').HumanDecision.approve()"),
    )
    document = kairo_json("plugins", "gate", "--check", "--kit", "--json").document
    assert document["exit_code"] == 8
    (run,) = document["kits"]
    assert (run["distribution"], run["version"], run["module"]) == ("acme-gate", "1.0", "acme_gate")
    assert run["problem"] == "TestInbox: a clause does not hold, or none was tested"
    (report,) = run["reports"]
    assert report["clauses"]["C2"]["outcome"] == "failed"
    assert (report["contract"], report["version"], report["ok"]) == ("HumanGate", "1.5", False)


@pytest.mark.sampled
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("class Inbox:\n    async def decide(self, question): pass", "it has no test class of a kit: "),
        (f"{GATE}\ndef test_more(): assert False", "other tests of it failed: "),
        (f"{GATE}\nimport nothing_of_that_name", "its tests could not be run (pytest ended with "),
    ],
)
def test_what_is_wrong_with_a_package_is_said(source: str, problem: str, kairo_json: Any, path: Install) -> None:
    path("acme-gate", ships("acme-gate"), source)
    (run,) = kairo_json("plugins", "gate", "--check", "--kit", "--json").document["kits"]
    assert run["problem"].startswith(problem), run["problem"]


def test_a_package_without_a_kit_gets_a_note(kairo: Any, path: Install) -> None:
    path("acme-gate", {"gate": {"acme-gate": "acme_gate:Inbox"}}, GATE)
    said = kairo("plugins", "gate", "--check", "--kit")
    assert said.code == 0
    assert "    note: its package ships no HumanGateTCK" in said.out.splitlines()
    assert said.out.count("ships no") == 1, "what is built in has no note"


def test_the_kits_of_other_kinds_are_not_run(kairo: Any, path: Install) -> None:
    path("acme-gate", ships("acme-gate"), GATE)
    said = kairo("plugins", "planner", "--check", "--kit")
    assert said.code == 0
    assert "acme" not in said.out + said.err


def test_kits_that_never_end_are_stopped(kairo: Any, path: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    path("acme-gate", ships("acme-gate"), f"{GATE}\nimport sys, time\n'--kit-report' in sys.argv and time.sleep(3600)")
    monkeypatch.setattr("kairo_team.cli.kit_runs._LONGEST", 5)
    said = kairo("plugins", "gate", "--check", "--kit")
    assert said.code == 8
    assert "its tests were not over after 0 minutes, and were stopped" in said.out


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)


def test_pytest_refuses_a_report_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, "--kit-report", "nowhere/report.json")
    assert said.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--kit-report nowhere/report.json: there is no folder '" in said.stderr


def test_without_a_kit_the_report_is_empty(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    assert run_pytest(tmp_path, "--kit-report", "report.json").returncode == 0
    assert json.loads((tmp_path / "report.json").read_text()) == {"reports": []}


def test_a_report_has_its_lines() -> None:
    from kairo_team.contracts import HumanGate

    report = KitReport("TestIt", HumanGate, [])
    assert json.loads(report.to_json())["lines"] == report.lines()
