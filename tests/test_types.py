"""What type checkers see: names that are there and no others, and what may be handed in."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kairo_team as kt
import kairo_team.agents
import kairo_team.evaluators
import kairo_team.tck

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import functools
from collections.abc import Awaitable
from typing import Any, assert_type

import kairo_team as kt
import kairo_team.agents
import kairo_team.evaluators
import kairo_team.tck
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import ScriptedAgent

kt.nosuch  # wrong
kairo_team.agents.nosuch  # wrong
kairo_team.evaluators.nosuch  # wrong
kairo_team.tck.nosuch  # wrong
from kairo_team import nosuch  # wrong


async def alone(assignment: kt.Assignment) -> str:
    return ""
async def both(assignment: kt.Assignment, context: kt.MemberContext) -> kt.AgentOutput:
    return kt.AgentOutput(kt.Artifact(""))
async def by_name(assignment: kt.Assignment, *, context: kt.MemberContext) -> kt.Artifact:
    return kt.Artifact("")
def plain(assignment: kt.Assignment) -> str:
    return ""
def nothing() -> str:
    return ""
def number(assignment: kt.Assignment) -> int:
    return 1
def three(assignment: kt.Assignment, context: kt.MemberContext, more: int) -> str:
    return ""
def other(assignment: int) -> str:
    return ""
class Writer:
    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return ""
class Plain:
    def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return ""


kt.Member("a", alone)
kt.Member("a", both)
kt.Member("a", by_name)
kt.Member("a", plain)
kt.Member("a", lambda assignment: assignment.task.description)
kt.Member("a", lambda assignment, context: context.role.id)
kt.Member("a", Writer())
kt.Member("a", Writer().run)
kt.Member("a", kt.MiniAgent("test:m"))
kt.Member("a", ScriptedAgent(["x"]))
kt.Member("a", nothing)  # wrong
kt.Member("a", number)  # wrong
kt.Member("a", three)  # wrong
kt.Member("a", other)  # wrong
kt.Member("a", Writer)  # wrong
kt.Member("a", kt.MiniAgent)  # wrong
kt.Member("a", Plain())  # wrong
kt.Member("a", "openai:gpt-5-mini")  # wrong

members = [kt.Member("a", alone)]
rubric = Rubric([Criterion("short", "It is short.")])
team = kt.Team("t", members, coordinator=ExpertTeamCoordinator(), evaluators={"r": rubric}, runtime=kt.Runtime())
kt.Team("t", members, coordinator=TaskDispatchCoordinator())
kt.Team("t", members, coordinator=TaskDispatchCoordinator)  # wrong
kt.Team("t", members, coordinator="expert")
kt.Team("t", members, evaluators={"r": Rubric})  # wrong
kt.Team("t", members, runtime=kt.Runtime)  # wrong
kt.Team("t", members[0])  # wrong
kt.run_sync("go", team)  # wrong
kt.Budget(token=1)  # wrong
kt.Runtime(subscribers=print)  # wrong
kt.Task("t", "do", requires={"prose"}, depends_on=["a"])
kt.Task("t")  # wrong
kt.Task("t", "do", budget=5)  # wrong
assert_type(kt.run_sync(team, "go"), kt.TeamResult)
assert_type(kt.check(team, "go").ok, bool)
assert_type(kt.Usage() + kt.Usage(), kt.Usage)
"""
"""Lines that end in `# wrong` are errors, and no others."""


def pyright(path: Path) -> dict[int, list[str]]:
    """What pyright says of a file, by line."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", path.name]
    done = subprocess.run(command, cwd=path.parent, check=False, capture_output=True, text=True)
    found: dict[int, list[str]] = {}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            found.setdefault(one["range"]["start"]["line"] + 1, []).append(one["message"])
    return found


@pytest.mark.exhaustive
def test_audit_g19_a_type_checker_finds_the_wrong_lines_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}), encoding="utf-8")
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    found = pyright(path)
    lines = PROGRAM.splitlines()
    assert {lines[n - 1]: said for n, said in found.items() if n not in wrong} == {}
    assert {lines[n - 1] for n in wrong if n not in found} == set()


@pytest.mark.parametrize("package", [kt, kairo_team.agents, kairo_team.evaluators, kairo_team.tck])
def test_audit_g19_a_package_has_its_names_and_no_others(package: ModuleType) -> None:
    assert [name for name in package.__all__ if name not in dir(package)] == []
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nosuch'"):
        _ = package.nosuch
    with pytest.raises(AttributeError):
        _ = kt.nosuch  # type: ignore[attr-defined]  # mypy sees it too: it reports an ignore that is not needed


def test_audit_g19_no_public_name_is_any_for_a_type_checker(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    names = [name for name in kt.__all__ if name not in {"events", "__version__"}]
    path.write_text(
        "import kairo_team as kt\n" + "".join(f"reveal_type(kt.{name})\n" for name in names), encoding="utf-8"
    )
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", path.name]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    shown = [one["message"] for one in json.loads(done.stdout)["generalDiagnostics"]]
    assert len(shown) == len(names)
    assert [one for one in shown if one.endswith(('"Any"', '"Unknown"'))] == []


@pytest.mark.parametrize("name", sorted(set(kt.__all__) - {"events", "__version__"}))
def test_audit_g19_what_a_name_takes_can_be_read_before_it_was_used(name: str) -> None:
    """In a fresh program: `inspect.signature` and `help` show the fields, before and after the first was built."""
    found = getattr(kt, name)
    if not inspect.isclass(found) or issubclass(found, BaseException) or getattr(found, "_is_protocol", False):
        return
    fields = getattr(found, "__dataclass_fields__", None)
    if fields is not None:
        taken = inspect.signature(found).parameters
        assert list(taken) == [one.name for one in fields.values() if one.init]
        assert all(one.annotation is not inspect.Parameter.empty for one in taken.values())


def test_audit_g19_a_signature_is_the_same_before_and_after_the_first_value() -> None:
    code = (
        "import inspect, kairo_team as kt; before = str(inspect.signature(kt.Task)); kt.Task('t', 'do');"
        "assert before == str(inspect.signature(kt.Task)); print(before)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("(id: str, description: str, role: str | None = None, ")
