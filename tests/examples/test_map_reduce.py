"""200 documents with a budget each: what the hopeless cost, what becomes of the rest, and the page that shows it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.testing import FunctionModel
from tests.examples.running import start

map_reduce = pytest.importorskip("kairo_team.examples.map_reduce", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/map_reduce.py"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


@pytest.fixture(scope="module")
def result() -> kt.TeamResult:
    return kt.run_sync(*map_reduce.build())


def hopeless() -> set[str]:
    return {f"doc-{number}" for number in (*map_reduce.BLANK, *map_reduce.GARBAGE, *map_reduce.ENDLESS)}


def test_the_page_shows_what_it_prints() -> None:
    done = start(str(FILE))
    page = (ROOT / "docs/map-reduce.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert done.stdout.splitlines() == shown.splitlines()
    told = [line for line in done.stderr.splitlines() if "blocked the event loop" not in line]  # a busy machine
    assert (done.returncode, told) == (0, [])


def test_kairo_runs_it_and_says_that_it_is_degraded() -> None:
    done = start("-m", "kairo_team.cli", "run", str(FILE))
    assert done.returncode == 3, done.stderr
    assert "Roscoff" in done.stdout


def test_only_the_hopeless_fail(result: kt.TeamResult) -> None:
    assert result.status is kt.TeamStatus.DEGRADED
    failed = {outcome.task_id for outcome in result.outcomes if outcome.status is not kt.TaskStatus.COMPLETED}
    assert failed == hopeless()
    assert len(failed) == 9


def test_no_document_costs_more_than_its_own_budget(result: kt.TeamResult) -> None:
    spent = [outcome.usage.tokens for outcome in result.outcomes]
    assert max(spent) <= map_reduce.DOCUMENT_TOKENS
    assert sum(spent) == result.usage.tokens <= map_reduce.TEAM_TOKENS


def test_what_the_endless_document_asks_for_is_refused_before_the_call(result: kt.TeamResult) -> None:
    endless = result[f"doc-{map_reduce.ENDLESS[0]}"]
    assert (endless.usage.tokens, endless.attempts) == (0, 1)
    assert "token_budget_exceeded" in (endless.error or "")


def test_the_highest_water_is_that_of_the_readable_documents(result: kt.TeamResult) -> None:
    highest: dict[str, float] = {}
    for number in range(1, map_reduce.DOCUMENTS + 1):
        found = re.search(r"office of (\w+), .* came to ([\d.]+) m", map_reduce.document(number))
        if found and f"doc-{number}" not in hopeless():
            highest[found[1]] = max(highest.get(found[1], 0.0), float(found[2]))
    lines = (result.output or "").splitlines()[1:]
    assert {line.split()[0]: float(line.split()[2]) for line in lines} == highest


def test_with_too_few_readings_there_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_reduce, "BLANK", tuple(range(1, 8)))
    result = kt.run_sync(*map_reduce.build())
    assert result["reduce"].status is kt.TaskStatus.SKIPPED
    assert "no result: " in map_reduce.summary(result)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, None)
    assert result.partial_output is not None, "the readings there are"


@pytest.mark.parametrize("tokens", [500, 5_000, 15_000])
def test_the_teams_budget_holds_when_it_is_too_small(tokens: int) -> None:
    team, request = map_reduce.build()
    result = kt.run_sync(team, replace(request, config=replace(request.config, budget=kt.Budget(tokens=tokens))))
    assert result.usage.tokens <= tokens
    assert result.status is kt.TeamStatus.FAILED
    assert result.halt is kt.HaltReason.TOKEN_BUDGET_EXCEEDED


def test_another_model_reads_the_same_documents() -> None:
    model = FunctionModel(lambda _: '{"harbour": "Brest", "metres": 4}')
    result = kt.run_sync(*map_reduce.build(model))
    assert len(model.calls) == 199  # the endless one is never asked about
    assert (result.output or "").splitlines()[1].split() == ["Brest", "199", "4.0", "m"]


def test_a_document_is_always_the_same() -> None:
    assert [map_reduce.document(n) for n in range(1, 201)] == [map_reduce.document(n) for n in range(1, 201)]
    assert map_reduce.document(7) == ""
    assert len(map_reduce.document(100)) > 8_000
