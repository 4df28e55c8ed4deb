"""`import kairo_team` stays quick: what is heavy is imported when it is first needed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

HEAVY = (
    *(
        "agents",
        "docstring_parser",
        "httpx",
        "hypothesis",
        "jinja2",
        "jsonschema_rs",
        "langchain_core",
        "langgraph",
        "mcp",
        "networkx",
        "openai",
    ),
    *("pydantic_ai", "pytest", "rich", "trio", "typer", "xllamacpp"),
)


@pytest.mark.smoke
def test_the_import_brings_nothing_heavy() -> None:
    code = "import json, sys, kairo_team; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert "kairo_team" in loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.smoke
def test_a_run_brings_nothing_it_does_not_use() -> None:
    plan = "kt.TaskGraph([kt.Task('a', 'Do a.'), kt.Task('b', 'Do b.', depends_on=['a'])])"
    code = (
        "import json, sys; import kairo_team as kt, kairo_team.agents; from kairo_team.testing import FunctionModel;"
        "team = kt.Team('t', [kt.Member('m', kt.MiniAgent(FunctionModel(lambda _: 'said')))]);"
        "kt.run_sync(team, 'goal').check();"
        f"kt.run_sync(team, kt.TeamExecutionRequest('goal', plan={plan})).check();"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(json.loads(done.stdout)).isdisjoint(set(HEAVY) - {"jinja2"})


@pytest.mark.smoke
def test_the_pytest_plugin_brings_nothing_heavy() -> None:
    """Pytest loads it at every start, also where no kit is used."""
    plugins = [entry.value for entry in entry_points(group="pytest11") if entry.name == "kairo_team"]
    assert plugins == ["kairo_team.tck.plugin"]
    code = "import json, sys, kairo_team.tck.plugin; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(json.loads(done.stdout)).isdisjoint(set(HEAVY) - {"pytest"})
