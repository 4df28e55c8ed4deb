"""The metrics of a journal's runs: what they count, the formats, the alerts, the dashboard and the runbook."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

import kairo_team as kt
from kairo_team.cli.app import run_command
from kairo_team.cluster.units import Unit
from kairo_team.durable.connection import execute as perform
from kairo_team.views.journal_metrics import METRICS, Value, prometheus_name, prometheus_text, read_metrics
from tests.cli.conftest import Kairo, SaidJson, kairo, kairo_json
from tests.cluster.stage import execute, new_database, until, working
from tests.cluster.test_earlier_formats import place
from tests.durable.kept_team import Provider, begin, journal_at
from tests.telemetry.traced import Traced

parser: Any = pytest.importorskip("prometheus_client.parser", reason="the parser of Prometheus is not installed")

__all__ = ["kairo", "kairo_json", "place"]  # fixtures

pytestmark = [pytest.mark.real_time, pytest.mark.anyio]

ROOT = Path(__file__).parent.parent.parent
if not (ROOT / "docs").is_dir():
    pytest.skip("the runbook is no part of the wheel", allow_module_level=True)
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
_RULES = import_module("yaml").safe_load((ROOT / "deploy" / "alerts.yaml").read_text(encoding="utf-8"))
ALERTS = _RULES["groups"][0]["rules"]
DASHBOARD = json.loads((ROOT / "deploy" / "dashboard.json").read_text(encoding="utf-8"))
NAMES = {prometheus_name(name): about for name, about in METRICS.items()}


def clerks() -> kt.Team:
    def work(assignment: kt.Assignment) -> str:
        return f"{assignment.task.id} is done"

    return kt.Team("clerks", [kt.Member("clerk", work)])


PLAN = kt.TaskGraph([kt.Task("one", "Do one.")])


def measured(journal: Any) -> dict[tuple[str, ...], float]:
    """Return the values by the metric and its labels' values."""
    return {(one.metric, *one.labels.values()): one.value for one in read_metrics(journal)}


def parsed(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples as Prometheus' own parser reads them."""
    families = list(parser.text_string_to_metric_families(text))
    assert {family.name: (family.type, family.documentation) for family in families} == {
        name: ("gauge", about.help) for name, about in NAMES.items()
    }
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_runs_questions_and_calls_in_doubt_are_counted_in_files_and_databases(place: str) -> None:
    journal = journal_at(place)
    found = measured(journal)
    states = {state: value for (name, *about), value in found.items() if name == "kairo.runs" for state in about[1:]}
    assert states == {"cancelled": 1, "completed": 1, "interrupted": 2, "suspended": 2}
    assert found["kairo.questions", "islands"] == 1
    assert found["kairo.question.age", "islands"] > 60
    assert found["kairo.calls_in_doubt", "islands"] + found["kairo.calls_in_doubt", "inner"] == 2
    assert sum(len(journal.in_doubt(run.run_id)) for run in journal.runs()) == 2
    journal.close()


async def test_what_is_under_way_is_not_in_doubt(place: str) -> None:
    seen: list[dict[tuple[str, ...], float]] = []
    journal = journal_at(place)

    class Watched(Provider):
        async def answer(self, request: kt.ModelRequest) -> kt.ModelResponse | str:
            seen.append(measured(journal))
            return await super().answer(request)

    await begin(place, "new", Watched())
    assert all(one["kairo.runs", "islands", "running"] == 1 for one in seen)
    assert {one["kairo.calls_in_doubt", "islands"] + one["kairo.calls_in_doubt", "inner"] for one in seen} == {2}
    journal.close()


async def test_workers_and_work_that_waits_are_counted() -> None:
    url = new_database("procrastinate")
    cluster = kt.Cluster(url, engine="procrastinate", beat=0.2)
    cluster.submit(clerks(), kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id="r"))
    execute(url, "UPDATE run SET started_at = started_at - 100")
    execute(url, "UPDATE unit SET sent_at = sent_at - 100")
    found = measured(cluster.journal)
    assert found["kairo.runs", "clerks", "queued"] == 1
    assert 100 <= found["kairo.run.queued_age", "clerks"] < 200
    assert found["kairo.waiting_units", "run"] == 1
    assert 100 <= found["kairo.waiting_unit.age", "run"] < 200
    assert not [name for name, *_ in found if name.startswith("kairo.worker")]
    async with working(url, clerks(), workers=2, concurrency=3):
        await until(lambda: measured(cluster.journal).get(("kairo.workers", "clerks")) == 2)
        await until(lambda: measured(cluster.journal).get(("kairo.runs", "clerks", "completed")) == 1)
        found = measured(cluster.journal)
        assert found["kairo.worker.slots", "clerks"] == 6
        assert ("kairo.waiting_units", "run") not in found
    assert ("kairo.workers", "clerks") not in measured(cluster.journal)
    cluster.close()


def test_a_run_that_was_given_up_is_counted_until_it_is_ended() -> None:
    url = new_database("procrastinate")
    cluster = kt.Cluster(url, engine="procrastinate", beat=0.2)
    cluster.submit(clerks(), kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id="r"))
    cluster.journal.change(lambda connection: cluster.journal.give_up(connection, "r", 5, "given up: 5 workers died"))
    found = measured(cluster.journal)
    assert found["kairo.runs_given_up", "clerks"] == found["kairo.runs", "clerks", "given_up"] == 1
    cluster.journal.cancel("r")
    assert ("kairo.runs_given_up", "clerks") not in measured(cluster.journal)
    cluster.close()


def test_accounts_are_shown_with_their_limits(place: str) -> None:
    journal = journal_at(place)
    journal.set_account("ocean", kt.Budget(tokens=1000, dollars="2.5"))
    found = measured(journal)
    assert found["kairo.account.tokens", "ocean", "limit"] == 1000
    assert found["kairo.account.dollars", "ocean", "limit"] == 2.5
    assert found["kairo.account.tokens", "ocean", "set_aside"] == 0
    journal.close()


def test_the_parser_of_prometheus_reads_every_name_and_any_label(place: str) -> None:
    journal = journal_at(place)
    values = read_metrics(journal)
    journal.close()
    wanted = {(prometheus_name(one.metric), *one.labels.values()): one.value for one in values}
    assert parsed(prometheus_text(values)) == wanted
    for name in ('a "team"', "back\\slash", "two\nlines", "{x='1'} 2", "Æbelø 島", ""):
        value = Value("kairo.runs", {"team": name, "state": "running"}, 3)
        assert parsed(prometheus_text([value])) == {("kairo_runs", name, "running"): 3}
    assert parsed(prometheus_text([])) == {}


def test_open_telemetry_gets_the_same_values(place: str) -> None:
    traced = Traced()
    journal = journal_at(place)
    traced.subscriber.measure_journal(journal)
    points = [(name, point) for name in METRICS for point in traced.points(name)]
    found = {(name, *point.attributes.values()): point.value for name, point in points}
    now = measured(journal)
    journal.close()
    assert found.keys() == now.keys()
    assert {key: value for key, value in found.items() if not key[0].endswith("age")} == {
        key: value for key, value in now.items() if not key[0].endswith("age")
    }


# ---------------------------------------------------------------- the command


def option(place: str) -> list[str]:
    return ["--database" if "://" in place else "--journal", place]


def test_kairo_metrics_prints_them(place: str, kairo: Kairo) -> None:
    said = kairo("metrics", *option(place))
    assert (said.code, said.err) == (0, "")
    assert parsed(said.out)["kairo_runs", "islands", "suspended"] == 2


def test_kairo_metrics_as_json(place: str, kairo_json: Callable[..., SaidJson]) -> None:
    said = kairo_json("metrics", "--json", *option(place))
    wanted = {"name": "kairo.runs", "labels": {"team": "islands", "state": "completed"}, "value": 1}
    assert wanted in said.document["metrics"]
    assert said.document["units"]["kairo.question.age"] == "s"


@pytest.fixture
def served(place: str) -> Iterator[str]:
    """The address of `kairo metrics --listen`, in a process of its own."""
    command = [sys.executable, "-m", "kairo_team", "metrics", "--listen", "0", *option(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        port = re.fullmatch(r"metrics: port (\d+), /metrics\n", process.stdout.readline())
        assert port is not None
        try:
            yield f"http://127.0.0.1:{port[1]}"
        finally:
            process.terminate()


def test_kairo_metrics_serves_them(served: str) -> None:
    answer = httpx.get(f"{served}/metrics", timeout=60)
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert parsed(answer.text)["kairo_runs", "islands", "suspended"] == 2
    assert httpx.get(f"{served}/", timeout=60).status_code == 404


def test_what_cannot_be_served_is_refused(tmp_path: Path, kairo: Kairo) -> None:
    path = tmp_path / "runs.db"
    kt.SqliteJournal(path).close()
    for wrong in ("no port", "99999"):
        said = kairo("metrics", "--listen", wrong, "--journal", path)
        assert (said.code, "such as 8080 or 0.0.0.0:8080" in said.err) == (2, True)
    said = kairo("metrics", "--listen", "0", "--json", "--journal", path)
    assert (said.code, "choose one" in said.err + said.out) == (2, True)
    said = kairo("metrics", "--journal", tmp_path / "none.db")
    assert (said.code, "there is no journal" in said.err) == (2, True)


# ---------------------------------------------------------------- alerts, dashboard, runbook


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"kairo_\w+", expression))


def test_every_alert_is_about_metrics_that_there_are_and_has_its_section() -> None:
    heads = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert [one["alert"] for one in ALERTS] == [head for head in heads if head.startswith("Kairo")]
    for one in ALERTS:
        assert names_in(one["expr"])
        assert names_in(one["expr"]) <= NAMES.keys()
        assert one["annotations"]["runbook"] == f"docs/runbook.md#{one['alert'].lower()}"
        assert one["labels"]["severity"] in ("page", "ticket")


def test_the_dashboard_shows_every_metric_once_or_more() -> None:
    shown = [names_in(target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
    assert set().union(*shown) == NAMES.keys()
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_runbook_names_every_metric() -> None:
    assert set(re.findall(r"`(kairo_\w+)`", RUNBOOK)) == NAMES.keys()


def commands() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```$", RUNBOOK, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def give_up(url: str, run_id: str) -> None:
    """Let a run be one that workers gave up."""
    cluster = kt.Cluster(url, engine="procrastinate")
    cluster._install()
    unit = Unit(f"run:{run_id}", "run", run_id, "q")
    with cluster.journal.database.writing() as connection:
        for statement in unit.sending(cluster.delivery, None):
            perform(connection, statement)
        connection.execute("UPDATE unit SET state = 'done', problem = 'given up: 5 workers died'")
    cluster.journal.change(lambda connection: cluster.journal.give_up(connection, run_id, 5, "given up"))
    cluster.close()


def test_every_command_of_the_runbook_does_what_it_says(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        kept = ROOT / "tests" / "data" / "journals" / "format-1.sql.gz"
        connection.execute(gzip.decompress(kept.read_bytes()))
    journal = kt.PostgresJournal(database)
    journal.set_account("ocean", kt.Budget(tokens=1000))
    execute(database, "UPDATE run SET run_id = 'sea-1' WHERE run_id = 'killed-early'")
    execute(database, "UPDATE call SET run_id = 'sea-1' WHERE run_id = 'killed-early'")
    journal.close()
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    monkeypatch.setenv("KAIRO_DATABASE", database)
    assert len(commands()) > 12
    said: dict[str, str] = {}
    last = ("--by-workers", "cancel")  # what changes the run comes last
    for line in sorted(commands(), key=lambda line: [word in line for word in reversed(last)]):
        if "--by-workers" in line:
            give_up(database, "sea-1")
            assert [run_command(["runs", "--state", "given_up"]), capsys.readouterr().out.count("sea-1")] == [0, 1]
        program, *words = line.split()
        assert program == "kairo"
        assert run_command(words) == 0, line
        said.setdefault(line, capsys.readouterr().out)
    assert "1 in doubt" in said["kairo show sea-1"]
    assert "kairo resume sea-1" in said["kairo show sea-1"]
    assert "sea-1" in said["kairo runs --state interrupted"]
    assert "2,000,000" in said["kairo budget ocean --tokens 2000000"]
