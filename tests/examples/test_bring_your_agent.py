"""The team of a function, a pydantic-ai agent, a `MiniAgent` and a LangGraph graph, on the embedded model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kairo_team import events

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/bring_your_agent.py"

missing = [name for name in ("pydantic_ai", "langgraph", "langchain_openai", "typer") if find_spec(name) is None]
pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
]

BUDGETS = {
    "enough": {"tokens": 6_000, "tool_calls": 4, "seconds": 60},
    **{f"tokens-{tokens}": {"tokens": tokens} for tokens in (0, 30, 100, 200)},
    "no-tools": {"tokens": 6_000, "tool_calls": 0},
}
DRIVER = f"""
import json

import anyio

import kairo_team as kt
from kairo_team.cli.loading import find_request, find_team, load_module, read_spec
from kairo_team._util.late_pydantic import adapter
from kairo_team.testing import EventRecorder

spec = read_spec({str(FILE)!r})
example = load_module(spec)
assert find_team(example, spec) is example.team
assert find_request(example, example.team, None) == example.request
assert kt.check(example.team, example.request).problems == ()


async def main():
    for name, limits in {BUDGETS!r}.items():
        recorder = EventRecorder()
        runtime = kt.Runtime(subscribers=[recorder])
        result = await kt.run(example.team, example.make_request(), budget=kt.Budget(**limits), runtime=runtime)
        recorder.assert_lawful()
        told = [event.to_json() for event in recorder.events]
        result = {{"output": result.output, **adapter(kt.TeamResult).dump_python(result, mode="json")}}
        print(json.dumps({{"name": name, "result": result, "events": told}}))


anyio.run(main)
"""
"""All runs in one process and one event loop: the libraries' clients keep connections open for as long as it lasts."""


class Ran:
    """One run of the team: its result as JSON, and its events."""

    def __init__(self, told: Any) -> None:
        self.result = told["result"]
        self.events = [events.event_from_json(line) for line in told["events"]]
        self.models = [event for event in self.events if isinstance(event, events.ModelCalled)]
        self.tools = [event for event in self.events if isinstance(event, events.ToolCalled)]
        self.tasks = {outcome["task_id"]: outcome for outcome in self.result["outcomes"]}

    @property
    def tokens(self) -> int:
        return sum(self.result["usage"][kind] for kind in ("prompt_tokens", "completion_tokens"))


def start(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the repository."""
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, encoding="utf-8", timeout=900, check=False
    )


@pytest.fixture(scope="module")
def runs() -> dict[str, Ran]:
    done = start("-c", DRIVER)
    assert done.returncode == 0, done.stderr
    return {told["name"]: Ran(told) for told in map(json.loads, done.stdout.splitlines())}


@pytest.mark.exhaustive
def test_four_kinds_of_agents_make_one_notice(runs: dict[str, Ran]) -> None:
    result = runs["enough"].result
    assert result["status"] == "completed", result["warnings"]
    assert "14:20" in result["output"]
    assert "No bathing until it falls." in result["output"]
    assert runs["enough"].tasks["read"]["artifact"]["data"] == {"time": "14:20", "metres": 6.8}


@pytest.mark.exhaustive
def test_every_model_call_of_every_library_is_held_and_booked(runs: dict[str, Ran]) -> None:
    ran = runs["enough"]
    assert {(call.member, call.outcome) for call in ran.models} == {
        ("clerk", "ok"),
        ("teacher", "ok"),
        ("writer", "ok"),
    }
    assert all(0 < call.usage.tokens <= call.held for call in ran.models)
    assert sum(call.usage.tokens for call in ran.models) == ran.tokens
    assert {call.model for call in ran.models} == {"openai:smollm2", "local:smollm2"}


@pytest.mark.exhaustive
def test_the_tool_call_of_the_graph_is_one_of_the_budget(runs: dict[str, Ran]) -> None:
    ran = runs["enough"]
    assert [(call.member, call.tool, call.outcome) for call in ran.tools] == [("writer", "bathing_rule", "ok")]
    assert ran.result["usage"]["tool_calls"] == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in BUDGETS if name.startswith("tokens-")])
def test_a_budget_too_small_holds_whoever_asks(runs: dict[str, Ran], name: str) -> None:
    ran = runs[name]
    assert ran.result["status"] == "failed"
    assert ran.tokens <= BUDGETS[name]["tokens"]
    assert "token" in ran.result["error"]


@pytest.mark.exhaustive
def test_without_tool_calls_the_graph_reads_a_refusal(runs: dict[str, Ran]) -> None:
    ran = runs["no-tools"]
    assert [(call.outcome, call.refused_by) for call in ran.tools] == [("refused", "budget")]
    assert ran.result["usage"]["tool_calls"] == 0


@pytest.mark.exhaustive
def test_it_prints_what_the_page_says_it_prints() -> None:
    """Figures and the model's own words are those of one machine; all else is compared."""
    done = start(str(FILE))
    assert (done.returncode, done.stderr) == (0, "")
    page = (ROOT / "docs/bring-your-agent.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert _figureless(done.stdout) == _figureless(shown)


def _figureless(text: str) -> list[str]:
    """Leave out figures and the line of the notice."""
    lines = [re.sub(r"[\d.,]+", "#", line).split() for line in text.strip().splitlines() if "No bathing" not in line]
    return [" ".join(words) for words in lines if words]


@pytest.mark.exhaustive
def test_a_missing_library_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "langchain_openai.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'langchain_openai'\", name='langchain_openai')", encoding="utf-8"
    )
    done = start(str(FILE), PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == "this example needs langchain-openai: pip install langchain-openai"


def test_a_missing_model_is_one_sentence() -> None:
    done = start(str(FILE), KAIRO_LOCAL_MODEL="no.gguf")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"this example cannot run: model 'local:smollm2' .*no\.gguf.*\n", done.stderr)
