"""The names of `kt.`: each once, and a name that somebody guesses is answered with what to write."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team._util import guesses
from kairo_team._util.guesses import OF_THE_PACKAGE
from kairo_team.contracts import Agent

ANY: Any = kt
"""A type checker would find the mistakes."""
FIRST_HOUR = """Team Member Role Task TaskGraph Budget run run_sync check Runtime MiniAgent TaskDispatchCoordinator
    ExpertTeamCoordinator HandoffCoordinator GroupChatCoordinator SupervisorCoordinator Rubric Criterion checks tool
    SqliteJournal PostgresJournal ConsoleGate CallbackGate DeferGate JournalGate TeamResult TeamStatus TaskOutcome
    TaskStatus KairoError TeamFailed HaltError InsufficientBudget"""
MOVED = {
    "api": "PlanCheck",
    "conditions": "Condition",
    "contracts": "Agent ChatModel EvaluationStrategy HumanGate Planner TeamCoordinator",
    "coordinators": "Said",
    "evaluators": "CriterionResult",
    "governance": "BudgetNode",
    "messages": "ToolSpec",
    "data.teams": "TeamJob team_schema",
}
MOVES = [(name, module) for module, names in MOVED.items() for name in names.split()]
MIGRATION = Path(__file__).resolve().parent.parent / "docs/migration.md"


def missing(of: object, name: str) -> str:
    """The sentence for a name that is not there."""
    with pytest.raises(AttributeError) as raised:
        getattr(of, name)
    return str(raised.value)


@pytest.mark.smoke
@pytest.mark.parametrize("name", FIRST_HOUR.split())
def test_what_a_first_hour_uses_is_in_the_package_itself(name: str) -> None:
    assert name in kt.__all__
    assert getattr(kt, name) is not None


def test_no_two_names_of_the_package_are_one_thing() -> None:
    found = [id(getattr(kt, name)) for name in kt.__all__]
    assert len(found) == len(set(found))


@pytest.mark.parametrize(("name", "module"), MOVES)
def test_a_name_that_moved_works_and_says_where_it_is(name: str, module: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"write `from kairo_team.{module} import {name}`") as warned:
        found = getattr(kt, name)
    assert warned[0].filename == __file__
    assert found is getattr(sys.modules[f"kairo_team.{module}"], name)
    assert name not in kt.__all__
    assert f"| `kt.{name}` | `kairo_team.{module}.{name}` |" in MIGRATION.read_text(encoding="utf-8")


def test_the_warning_of_an_import_is_at_its_line() -> None:
    program = "\nfrom kairo_team import ChatModel\nprint(ChatModel.__name__)\n"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "ChatModel\n"
    assert "<string>:2: DeprecationWarning: kairo_team.ChatModel moved to kairo_team.contracts" in done.stderr


def test_the_agent_that_people_of_other_libraries_expect_is_named_too() -> None:
    with pytest.warns(DeprecationWarning, match=r"if you meant another thing: write kt\.MiniAgent\("):
        assert ANY.Agent is Agent


@pytest.mark.parametrize("name", sorted(set(OF_THE_PACKAGE) - {"Agent"}))
def test_a_name_of_another_library_is_answered_with_what_to_write(name: str) -> None:
    assert missing(kt, name) == f"module 'kairo_team' has no attribute {name!r}: {OF_THE_PACKAGE[name]}"


GUESSES = [
    ("Crew", "kt.Team("),
    ("Graph", "kt.TaskGraph("),
    ("Workflow", "kt.TaskGraph("),
    ("Runner", "kt.run_sync("),
    ("Guardrail", "Team(guardrails="),
    ("Judge", "kt.Criterion("),
    ("AgentPlanner", "from kairo_team.coordinators import AgentPlanner"),
    ("MaxIterations", "from kairo_team.governance import MaxIterations"),
    ("Rubrik", "did you mean 'Rubric'?"),
]


@pytest.mark.parametrize(("name", "said"), GUESSES)
def test_a_guess_leads_to_the_name(name: str, said: str) -> None:
    assert said in missing(kt, name)


@pytest.mark.parametrize(("name", "said"), [*GUESSES, ("Timeout", "from kairo_team.governance import Timeout")])
def test_a_guess_in_an_import_statement_leads_to_the_name_too(name: str, said: str) -> None:
    with pytest.raises(ImportError, match=f"cannot import name '{name}' from 'kairo_team'") as caught:
        exec(f"from kairo_team import {name}")  # noqa: S102
    assert said in str(caught.value)
    assert caught.value.name == "kairo_team"


@pytest.mark.parametrize("module", ["plugins", "artifacts"])
def test_the_import_of_a_module_imports_nothing_to_explain_that_its_name_is_missing(module: str) -> None:
    program = f"import sys\nfrom kairo_team import {module}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert f"kairo_team.{module}" in done.stdout.split()
    assert "kairo_team.testing" not in done.stdout.split()


def test_a_module_that_is_not_imported_is_named() -> None:
    program = "import kairo_team as kt\nkt.plugins"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert "has no attribute 'plugins': it is a module, so write `import kairo_team.plugins`" in done.stderr


TASK = kt.Task("write", "Write it.")
TEAM = kt.Team("desk", [kt.Member("writer", lambda assignment: "made")])
RESULT = kt.TeamResult("r", kt.TeamStatus.COMPLETED)
ATTRIBUTES = [
    (TEAM, "run", "a Team has no 'run': run it with kt.run_sync(team, goal), or await kt.run(...)"),
    (TEAM, "tasks", "a Team has no 'tasks': a plan belongs to a run: kt.run(team, goal, plan=kt.TaskGraph([...]))"),
    (TEAM, "add_member", "a Team has no 'add_member': a Team does not change: "),
    (kt.Budget(), "max_tokens", "a Budget has no 'max_tokens': its limit is tokens"),
    (kt.Budget(), "remaining", "a Budget has no 'remaining': a Budget is only the limits; read result.usage"),
    (TASK, "name", "a Task has no 'name': it is called id"),
    (TASK, "agent", "a Task has no 'agent': role names who may do it, and member names one member"),
    (TASK, "output", "a Task has no 'output': a Task is only the plan; read result[task.id] after a run"),
    (RESULT, "text", "a TeamResult has no 'text': read output, or partial_output"),
    (RESULT, "tokens", "a TeamResult has no 'tokens': read usage, such as usage.tokens and usage.dollars"),
    (RESULT, "ok", "a TeamResult has no 'ok': compare status with kt.TeamStatus.COMPLETED, or call check()"),
    (RESULT, "nosuch", "a TeamResult has no 'nosuch'"),
]


@pytest.mark.parametrize(("of", "name", "said"), ATTRIBUTES)
def test_a_guessed_attribute_is_answered_with_what_to_write(of: object, name: str, said: str) -> None:
    assert missing(of, name).startswith(said)


def test_sentences_name_only_what_exists() -> None:
    code = Path(guesses.__file__).read_text(encoding="utf-8")
    sentences = [one.value for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Constant)]
    names = {name for sentence in sentences for name in re.findall(r"\bkt\.(\w+)", str(sentence))}
    assert len(names) > 20
    assert names <= set(kt.__all__)


OF_OTHERS = [
    (RESULT, "artifact check error exception outcomes output partial_output plan report run_id status usage"),
    (TASK, "depends_on description id member role"),
    (TEAM, "members"),
    (kt.Budget(), "dollars loops seconds tokens tool_calls"),
]


@pytest.mark.parametrize(("of", "names"), OF_OTHERS)
def test_attributes_that_sentences_name_can_be_read(of: object, names: str) -> None:
    assert [name for name in names.split() if not hasattr(of, name)] == []
