"""`import kairo_team` stays quick: what is heavy is imported when it is first needed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
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
def test_a_first_agent_run_builds_validators_only_for_what_comes_from_outside() -> None:
    """Each takes longer to build than the model call to make; nor does a docstring of one sentence need its parser."""
    code = """
import json, sys
import kairo_team as kt
from kairo_team._util import frozen
built, fill = [], frozen._filler
frozen._filler = lambda kind: built.append(kind.__name__) or fill(kind)

def look(port: str) -> str:
    'Look up the tides of a port.'
    return 'high'

class Model:
    name = 'm:m'

    async def complete(self, request):
        if any(message.role == 'tool' for message in request.messages):
            return kt.ModelResponse('said', usage=kt.Usage(1, 1))
        return kt.ModelResponse('', [kt.ToolCall('1', 'look', {'port': 'Oslo'})], usage=kt.Usage(1, 1))

agent = kt.MiniAgent(Model(), tools=[look], settings={'temperature': 0})
assert agent.run_sync('Look.').text == 'said'
kt.run_sync(kt.Team('t', [kt.Member('m', agent)]), 'Look.').check()
print(json.dumps([built, sorted(sys.modules)]))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    built, loaded = json.loads(done.stdout)
    assert sorted(built) == ["ModelResponse", "ToolCall"]
    assert "docstring_parser" not in loaded


UNUSED = (
    *("ctypes", "importlib.metadata", "pydantic", "pydantic_core"),
    *("kairo_team.agents.mini", "kairo_team.coordinators.moderators", "kairo_team.coordinators.supervisor"),
    *("kairo_team.evaluators.calibration", "kairo_team.evaluators.judging", "kairo_team.evaluators.rubric_data"),
    *("kairo_team.governance.policies", "kairo_team.tools.mcp", "kairo_team.tools.signature"),
)
"""What a team of functions has no use for."""


@pytest.mark.smoke
def test_a_run_of_functions_imports_no_judge_no_guardrail_and_no_other_coordinator() -> None:
    code = (
        "import json, sys, kairo_team as kt;"
        "team = kt.Team('t', [kt.Member('m', lambda assignment: 'said')]);"
        "kt.run_sync(team, 'goal').check(); kt.run_sync(team, 'goal', budget=kt.Budget(tokens=9)).check();"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(json.loads(done.stdout)).isdisjoint({*HEAVY, *UNUSED})


@pytest.mark.smoke
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []], ids=["help", "version", "nothing"])
def test_the_help_imports_no_command_and_nothing_that_a_run_needs(arguments: list[str]) -> None:
    code = (
        "import json, sys; from kairo_team.cli import main; sys.argv[1:] = json.loads(sys.argv[1]); main();"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)], check=True, capture_output=True, text=True
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert loaded.isdisjoint({*HEAVY, "anyio"} - {"typer"})
    assert "pydantic" not in loaded or arguments != ["--help"]  # newer versions of typer parse with it
    ours = {name for name in loaded if name.startswith("kairo_team.cli.")}
    assert ours == {f"kairo_team.cli.{name}" for name in ("app", "commands", "exit_codes", "secret_arguments")}


LAZY = (
    *("agents", "coordinators", "evaluators", "evaluators.checks", "governance", "governance.policies", "models"),
    *("tools", "views"),
)


@pytest.mark.smoke
@pytest.mark.parametrize("package", ["", *LAZY])
def test_every_name_of_a_package_is_found_where_it_is_said_to_be(package: str) -> None:
    module = import_module(f"kairo_team.{package}".rstrip("."))
    assert set(module.__all__) <= set(dir(module))
    assert all(getattr(module, name) is not None for name in module.__all__)


@pytest.mark.smoke
def test_a_check_is_found_when_its_module_of_the_same_name_was_imported_before() -> None:
    code = (
        "import kairo_team.evaluators.checks.language; from kairo_team.evaluators import checks;"
        "assert checks.language is not sys.modules['kairo_team.evaluators.checks.language']"
    )
    subprocess.run([sys.executable, "-c", f"import sys; {code}"], check=True)


@pytest.mark.smoke
def test_the_pytest_plugin_brings_nothing_heavy() -> None:
    """Pytest loads it at every start, also where no kit is used."""
    plugins = [entry.value for entry in entry_points(group="pytest11") if entry.name == "kairo_team"]
    assert plugins == ["kairo_team.tck.plugin"]
    code = "import json, sys, kairo_team.tck.plugin; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(json.loads(done.stdout)).isdisjoint(set(HEAVY) - {"pytest"})
