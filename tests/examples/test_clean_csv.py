"""Cleaning of a CSV file: what code decides, what the model may say, that nothing is invented, and that it goes on."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import Misuse
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.examples import clean_csv
from kairo_team.examples.clean_csv import DATA, Note, make_request, make_team, summary, work, write
from kairo_team.examples.clean_csv_rules import (
    TABLE_CHECKS,
    Row,
    Table,
    clean_cell,
    clean_table,
    decided,
    read_file,
)
from kairo_team.testing import FunctionModel
from tests.examples.running import ROOT, start

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]  # plain functions work in threads

CONTENT = DATA.read_bytes()
MODEL = "test:namer"


def answer(request: kt.ModelRequest) -> str:
    """Name the column, or word the doubt."""
    asked = request.messages[-1].text.splitlines()[-1]
    if asked.startswith("Cloudiness"):
        return json.dumps({"field": "turbidity"})
    place, value, why = re.fullmatch(r"(line \d+), (.+): (.+)", asked).groups()  # type: ignore[union-attr]  # it matches
    return json.dumps({"note": f"Please check {value} in {place}: perhaps {why}."})


def invent(request: kt.ModelRequest) -> str:
    """Give the column a name it cannot have, and a value that nobody measured."""
    if request.messages[-1].text.splitlines()[-1].startswith("Cloudiness"):
        return json.dumps({"field": "remark"})
    return json.dumps({"note": "Please put 7.2 in place of it."})


def runtime(model: ChatModel, journal: kt.SqliteJournal | None = None) -> kt.Runtime:
    return kt.Runtime(models={MODEL: model}, journal=journal)


def table_of(result: kt.TeamResult) -> Table:
    artifact = result["clean"].artifact
    assert artifact is not None
    return artifact.data_as(Table)


def shown() -> str:
    page = ROOT / "docs/clean-csv.md"
    if not page.exists():
        pytest.skip("runs in the repository only")
    return page.read_text(encoding="utf-8").partition("```text\n")[2].partition("\n\nname-1")[0]


@pytest.mark.parametrize(
    ("field", "text", "clean", "why"),
    [
        ("temperature", "12,4", "12.4", "decimal comma"),
        ("temperature", " 12.4 °C", "12.4", "unit"),
        ("date", "3 Apr 2023", "2023-04-03", "form of the date"),
        ("date", "03.04.2023", "2023-04-03", "form of the date"),
        ("date", "23/04/2023", "2023-04-23", "form of the date"),
        ("oxygen", "n/a", "", "nothing was measured"),
        ("remark", " two  herons", "two herons", "spaces"),
        ("other", " 1,5 ", " 1,5 ", ""),
    ],
)
def test_a_cell_is_cleaned_by_rule(field: str, text: str, clean: str, why: str) -> None:
    assert clean_cell(field, text) == (clean, why, [])


@pytest.mark.parametrize(
    ("field", "text", "causes"),
    [
        ("temperature", "72", ["a lost decimal point", "degrees Fahrenheit"]),
        ("temperature", "64.5", ["degrees Fahrenheit"]),
        ("temperature", "-999", ["a stand-in for nothing"]),
        ("oxygen", "104", ["a lost decimal point", "percent"]),
        ("conductivity", "0.43", ["millisiemens"]),
        ("ph", "14", ["a value out of range"]),
        ("ph", "high", ["a word in place of a number"]),
        ("nitrate", "<0.5", ["a value too small to measure"]),
        ("date", "04/05/2023", ["day and month exchanged"]),
        ("date", "31.02.2023", ["no such day"]),
    ],
)
def test_a_value_that_cannot_be_true_is_left_out_with_what_may_be_behind_it(
    field: str, text: str, causes: list[str]
) -> None:
    assert clean_cell(field, text) == ("", "", causes)


def test_both_encodings_of_a_file_are_read_line_by_line() -> None:
    content = "Site;pH\nMühlbach;7\n".encode() + "Mühlbach;7,5\n".encode("cp1252")
    assert read_file(content) == (["Site", "pH"], [Row(2, ("Mühlbach", "7")), Row(3, ("Mühlbach", "7,5"))], [3])


def test_code_names_the_columns_that_units_and_values_decide() -> None:
    headings, rows, _ = read_file(CONTENT)
    names, open_ = decided(headings, rows)
    assert names["Water °C"] == "temperature"
    assert (names["Gauge"], names["Taken on"], names["Seen"]) == ("station", "date", "remark")
    assert open_ == {"Cloudiness": ["turbidity"]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "headings that differ"),
        (b"a;a\n1;2\n", "headings that differ"),
        (b"a;b\n1;2;3\n", "line 2 has more cells"),
    ],
)
def test_a_file_that_is_no_table_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        make_request(content)


async def test_each_line_and_each_change_is_accounted_for(tmp_path: Path) -> None:
    result = await work(CONTENT, MODEL, runtime(FunctionModel(answer)))
    assert result.status is kt.TeamStatus.COMPLETED
    assert "Cloudiness turbidity" in str(result.output)
    table, (headings, rows, _) = table_of(result), read_file(CONTENT)
    assert sorted([row.line for row in table.rows] + [line for line, _ in table.dropped]) == [row.line for row in rows]
    before = {(row.line, place): cell for row in rows for place, cell in enumerate(row.cells)}
    told = {(one.line, one.column): (one.before, one.after) for one in table.changes}
    for row in table.rows:
        for place, (column, cell) in enumerate(zip(table.columns, row.cells, strict=True)):
            assert told.get((row.line, column), (before[row.line, place],) * 2) == (before[row.line, place], cell)
    write(result, tmp_path / "out")
    written = list(csv.reader((tmp_path / "out/table.csv").read_text(encoding="utf-8").splitlines()))
    assert (len(written), len(written[0])) == (len(table.rows) + 1, len(headings))
    assert len((tmp_path / "out/changes.csv").read_text(encoding="utf-8").splitlines()) == len(table.changes) + 1


async def test_what_the_model_invents_reaches_neither_table_nor_report() -> None:
    result = await work(CONTENT, MODEL, runtime(FunctionModel(invent)))
    assert result.status is kt.TeamStatus.COMPLETED
    assert result["name-1"].member == "namer-senior", "the column keeps its heading"
    assert "Cloudiness" in table_of(result).columns
    assert str(result.output) == shown(), "the seniors word it by rule"


SOUND = clean_table(["pH"], [Row(2, ("7,1",)), Row(3, ("72",))], {"pH": "ph"})


@pytest.mark.parametrize(
    ("broken", "criterion"),
    [
        ({"rows": [Row(2, ("7.1",))]}, "rows_explained"),
        ({"rows": [*SOUND.rows, Row(4, ("",))]}, "rows_explained"),
        ({"rows": [Row(2, ("7,1",)), Row(3, ("",))]}, "typed"),
        ({"rows": [Row(2, ("7.1",)), Row(3, ("72",))]}, "in_range"),
        ({"rows": [Row(2, ("7.1",)), Row(3, ("7.2",))]}, "nothing_invented"),
        ({"changes": []}, "changes_told"),
        ({}, None),
    ],
)
async def test_the_rubric_of_the_table_finds_each_fault(broken: dict[str, Any], criterion: str | None) -> None:
    table = SOUND.model_copy(update=broken)
    task = kt.Task("clean", "Clean.", inputs={"rows": [(2, ["7,1"]), (3, ["72"])]})
    rubric = Rubric([Criterion(check.__name__, check.__doc__ or "", check) for check in TABLE_CHECKS])
    verdict = await rubric.evaluate(kt.EvaluationContext(task, kt.Artifact(table.model_dump_json()), 1))
    failed = [one.id for one in verdict.criteria if one.passed is not True]
    assert (criterion in failed) if criterion else failed == []


async def test_a_run_that_was_interrupted_pays_for_no_finished_call_again(tmp_path: Path) -> None:
    first, second, journal = FunctionModel(answer), FunctionModel(answer), kt.SqliteJournal(tmp_path / "runs.db")
    around, request = runtime(first, journal), make_request(CONTENT)

    def interrupt(event: kt.events.Event) -> None:
        if isinstance(event, kt.events.TaskCompleted) and event.task_id == "explain.0001":
            around.runs[str(request.run_id)].interrupt("enough for today")

    around.subscribers = (interrupt,)
    async with around:
        await kt.run(make_team(MODEL), request, runtime=around)
    assert journal.show(str(request.run_id)).state == "interrupted"
    doubts = len(journal.in_doubt(str(request.run_id)))
    done = await work(CONTENT, MODEL, runtime(second, journal))
    assert done.status is kt.TeamStatus.COMPLETED
    assert len(first.calls) >= 2
    assert 10 <= len(first.calls) + len(second.calls) <= 10 + doubts, "one name and nine notes"
    assert len(second.calls) < 10


async def test_a_budget_that_is_too_small_holds() -> None:
    request = make_request(CONTENT)
    config = kt.TeamConfig(budget=kt.Budget(tokens=600))
    short = kt.TeamExecutionRequest("Clean.", plan=request.plan, config=config)
    result = await kt.run(make_team(FunctionModel(answer)), short)
    assert result.usage.tokens <= 600
    assert result.status is not kt.TeamStatus.COMPLETED
    assert "no table" in summary(result) or result.output


def test_the_rule_words_a_note_that_the_rubric_passes() -> None:
    doubt = {"line": 3, "column": "ph", "before": "72", "causes": ["a lost decimal point"]}
    assignment = kt.Assignment(kt.Task("explain.0001", "Explain."), "Clean.", {"item": doubt}, {}, {})
    said = Note.model_validate_json(clean_csv.plain(assignment)).note
    assert said == "Please check ph 72 in line 3: perhaps a lost decimal point."


@pytest.mark.local_model
@pytest.mark.exhaustive
def test_on_the_embedded_model_the_report_is_the_same(tmp_path: Path) -> None:
    done = start("-m", "kairo_team.examples.clean_csv", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(shown())
    assert re.search(r"^COMPLETED, [\d,]+ tokens", done.stdout, re.MULTILINE)
    assert (tmp_path / "changes.csv").exists()
