"""`judge_runs`: finished runs of a journal are judged again, and the journal stays as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.errors import Misuse
from kairo_team.evals import RejudgedRuns, judge_runs
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.testing import FunctionModel
from tests.evaluators.judge_rig import Judging

pytestmark = pytest.mark.anyio

MOON = Rubric([Criterion("moon", "it names the moon", checks.contains("moon"))])
LONG = Rubric([Criterion("long", "at least two words", checks.min_words(2))])
DAY = 86_400.0
ONCE = kt.TeamConfig(max_feedback_rounds=0)


async def echo(assignment: kt.Assignment) -> str:
    if "fail" in assignment.goal:
        raise ValueError("no ink")
    return assignment.goal


DESK = kt.Team("desk", [kt.Member("writer", echo)], coordinator=ExpertTeamCoordinator(evaluator=LONG))
OTHER = kt.Team("other", [kt.Member("writer", echo)])


async def record(path: Path, goals: dict[str, str], team: kt.Team = DESK) -> None:
    """Run a team on each goal, by run id."""
    with closing(kt.SqliteJournal(path)) as journal:
        runtime = kt.Runtime(journal=journal)
        for run_id, goal in goals.items():
            await kt.run(team, kt.TeamExecutionRequest(goal, run_id=run_id, config=ONCE), runtime=runtime)


def begun(path: Path, run_id: str, moment: float) -> None:
    """Change when a run began."""
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE run SET started_at = ? WHERE run_id = ?", (moment, run_id))


def records(path: Path) -> list[str]:
    """Return all that a file has recorded, as SQL."""
    with closing(sqlite3.connect(path)) as file:
        return list(file.iterdump())


async def judged(path: Path, rubric: Any = MOON, **options: Any) -> RejudgedRuns:
    with closing(kt.SqliteJournal(path)) as journal:
        given: Any = {"team": "desk", **options}
        return await judge_runs(journal, rubric, **given)


async def test_what_was_accepted_is_compared_with_what_passes_now(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await record(path, {"a": "the moon", "b": "a tide", "c": "moon", "d": "tide"})
    found = await judged(path)
    assert {one.run_id: one.accepted for one in found.runs} == {"a": True, "b": True, "c": False, "d": False}
    assert {one.case: one.outcome for one in found.result.trials} == {
        "a": "pass",
        "b": "fail",
        "c": "pass",
        "d": "fail",
    }
    assert (found.agreement.k, found.agreement.n) == (2, 4)
    metrics = found.metrics
    assert (metrics["agreement"], metrics["accepted_pass_rate"], metrics["refused_pass_rate"]) == (0.5, 0.5, 0.5)
    assert metrics["kappa"] == 0


async def test_runs_that_have_nothing_to_judge_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await record(path, {"a": "the moon", "b": "fail at once", "old": "the old moon"})
    await record(path, {"x": "the moon", "y": "the moon"}, OTHER)
    begun(path, "old", datetime.now(UTC).timestamp() - 8 * DAY)
    with closing(sqlite3.connect(path)) as file, file:
        row = "SELECT 'broken', team, state, owner, epoch, started_at, updated_at, goal, digests, source, request, '{'"
        columns = "run_id, team, state, owner, epoch, started_at, updated_at, goal, digests, source, request, result"
        file.execute(f"INSERT INTO run ({columns}) {row} FROM run WHERE run_id = 'a'")
        row = row.replace("broken", "going").replace("state", "'suspended'")
        file.execute(f"INSERT INTO run ({columns}) {row} FROM run WHERE run_id = 'a'")
    found = await judged(path, since=7 * DAY)
    assert [one.run_id for one in found.runs] == ["a"]
    assert dict(found.skipped) == {
        "of another team": 2,
        "not finished": 1,
        "begun earlier": 1,
        "without a result": 1,
        "not readable": 1,
    }


async def test_a_sample_depends_on_its_seed_and_not_on_the_order_of_rows(tmp_path: Path) -> None:
    goals = {f"r{number}": f"the moon {number}" for number in range(12)}
    await record(tmp_path / "a.db", goals)
    await record(tmp_path / "b.db", dict(reversed(goals.items())))
    drawn = [
        {one.run_id for one in (await judged(tmp_path / name, sample=5, seed=seed)).runs}
        for name, seed in (("a.db", 0), ("b.db", 0), ("a.db", 1))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    larger = await judged(tmp_path / "a.db", sample=8)
    assert drawn[0] < {one.run_id for one in larger.runs}
    assert (larger.seed, larger.not_drawn) == (0, 4)
    assert len((await judged(tmp_path / "a.db", sample=500)).runs) == 12


async def test_a_run_without_a_result_takes_no_place_of_the_sample(tmp_path: Path) -> None:
    await record(tmp_path / "runs.db", {f"r{number}": "fail" if number % 2 else "the moon" for number in range(8)})
    found = await judged(tmp_path / "runs.db", sample=4)
    assert len(found.runs) == 4
    assert len(found.runs) + found.not_drawn + sum(found.skipped.values()) == 8


async def test_weeks_show_a_drift(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    goals = {f"r{number}": "the moon" if number < 8 else "a tide" for number in range(12)}
    await record(path, goals)
    monday = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
    for number in range(12):
        begun(path, f"r{number}", monday + number // 4 * 7 * DAY + 100)
    found = await judged(path)
    assert [(one.week, one.passed.k, one.passed.n, one.agreed.k) for one in found.weeks] == [
        ("2026-W45", 4, 4, 4),
        ("2026-W46", 4, 4, 4),
        ("2026-W47", 0, 4, 0),
    ]
    assert found.metrics["drift"] == -1
    assert found.metrics["drift_p_value"] == 1 / 495  # 1 / C(12, 4)
    assert [one.started_at for one in found.runs] == sorted(one.started_at for one in found.runs)
    one_week = await judged(path, sample=1)
    assert "drift" not in one_week.metrics


async def test_the_journal_is_read_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await record(path, {"a": "the moon", "b": "a tide"})
    before = records(path)
    await judged(path)
    assert records(path) == before


async def test_a_judge_sees_the_goal_and_the_work_and_is_paid_from_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await record(path, {f"r{number}": f"the moon {number}" for number in range(6)})
    judge, rubric = Judging({"good": "met"}), Rubric([Criterion("good", "it is good", by="judge")])
    found = await judged(path, rubric, judge=judge.model)
    assert found.metrics["agreement"] == 1
    assert found.result.judge == "test:judge"
    assert found.metrics["tokens"] > 0
    assert {number for number in range(6) if f"the moon {number}" in str(judge.asked)} == set(range(6))
    tokens = int(found.metrics["tokens"]) // 2
    short = await judged(path, rubric, judge=judge.model, budget=kt.Budget(tokens=tokens), parallel=1)
    assert short.metrics["tokens"] <= tokens
    assert short.result.error is not None
    assert "of 6 runs were not judged: " in short.result.error
    assert 0 < short.agreement.n < 6
    assert short.metrics["not_run_rate"] > 0


async def test_a_judge_that_cannot_decide_counts_neither_way(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await record(path, {"a": "the moon"})
    broken = FunctionModel(lambda _: "no answer at all", name="test:broken")
    found = await judged(path, Rubric([Criterion("good", "it is good", by="judge")]), judge=broken)
    assert (found.agreement.n, found.metrics["undecided_rate"]) == (0, 1)
    assert "agreement" not in found.metrics


async def test_the_review_is_not_recorded_in_the_journal_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await record(path, {"a": "the moon"})
    with closing(kt.SqliteJournal(path)) as journal, pytest.raises(ValueError, match="give one with another journal"):
        await judge_runs(journal, MOON, team="desk", runtime=kt.Runtime(journal=journal))
    with closing(kt.SqliteJournal(tmp_path / "mine.db")) as mine:
        assert (await judged(path, runtime=kt.Runtime(journal=mine))).agreement.n == 1
        assert [one.team for one in mine.runs()] == ["eval of desk"]


async def test_the_path_of_a_journal_is_answered_with_how_it_is_opened(tmp_path: Path) -> None:
    given: Any = str(tmp_path / "runs.db")
    with pytest.raises(ValueError, match=r"journal must be a journal .* kt\.SqliteJournal\('runs\.db'\), not '"):
        await judge_runs(given, MOON, team="desk")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"team": "dsk"}, "no finished run of team 'dsk' has a result to judge; .*runs of 'desk'"),
        ({"since": 0.0}, "no finished run of team 'desk' has a result to judge; skipped: 1 begun earlier"),
        ({"sample": 0}, "sample must be"),
        ({"seed": "x"}, "seed must be a whole number, not 'x'"),
        ({"since": -1.0}, "since must be"),
        ({"judge": "test:x"}, "no criterion asks for one"),
        ({"rubric": None}, "rubric"),
    ],
)
async def test_what_cannot_be_judged_is_a_sentence(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    await record(tmp_path / "runs.db", {"a": "the moon"})
    with pytest.raises((ValueError, Misuse), match=complaint):
        await judged(tmp_path / "runs.db", **{"rubric": MOON, **options})
