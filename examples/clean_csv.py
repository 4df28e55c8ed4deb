"""Clean a CSV file: code cleans, a small model names columns and explains doubtful values, a rubric guards both.

    python -m kairo_team.examples.clean_csv                          # readings of a river, shipped as data
    python -m kairo_team.examples.clean_csv readings.csv --out clean # writes clean/table.csv and clean/changes.csv
    python -m kairo_team.examples.clean_csv readings.csv --journal runs.db       # again after Ctrl-C: resumes

Code names the columns that their units or their values decide; the model names the others, one `name-N` task each.
`clean` cleans every cell by rule, and its rubric rejects every value that the file does not have. A value that cannot
be true is left out. The model words a note on each such value, in one task each (`explain`), and code checks that the
note says what was found and no more. `report` counts every change.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import anyio
from pydantic import BaseModel, Field

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.errors import Misuse
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.examples.clean_csv_rules import (
    NOTHING,
    OTHER,
    TABLE_CHECKS,
    Doubt,
    Row,
    Table,
    clean_table,
    decided,
    read_file,
)

DATA: Final = Path(__file__).with_name("clean_csv_data") / "river.csv"
MOST: Final = 12
"""Most doubtful values that the model explains; the others are only in the list of changes."""
NAMED: Final = [
    ("Place: Green Lock, Sand Pit, Green Lock", "station"),
    ("Fertiliser: 6.1, 7.9, 12.0", "nitrate"),
    ("Warmth: 6.1, 7.9, 12.0", "temperature"),
    ("Murky water: 3.0, 55.1, 7.2", "turbidity"),
    ("Comments: strong wind, bank cut", "remark"),
]
EXPLAINED: Final = [
    ("line 8, weight 1200: grams", "Please check weight 1200 in line 8: perhaps grams."),
    ("line 312, height 17: a missing digit", "Please check height 17 in line 312: perhaps a missing digit."),
    ("line 57, born 1890: a wrong century", "Please check born 1890 in line 57: perhaps a wrong century."),
    ("line 4, price -3: a sign or a refund", "Please check price -3 in line 4: perhaps a sign or a refund."),
    ("line 96, age 0: nothing known", "Please check age 0 in line 96: perhaps nothing known."),
]
NAME: Final = "\n\n".join(
    ["You name the columns of a table. Examples:"]
    + [f"{column}\n{json.dumps({'field': field})}" for column, field in NAMED]
)
EXPLAIN: Final = "\n\n".join(
    ["You put a doubt into one polite sentence. Examples:"]
    + [f"{doubt}\n{json.dumps({'note': note})}" for doubt, note in EXPLAINED]
)
ASK: Final = """{% for finding in assignment.findings %}{{ finding.expected }} {% endfor %}

{% set doubt = assignment.inputs.item %}{% if doubt is defined %}
line {{ doubt.line }}, {{ doubt.column }} {{ doubt.before }}: {{ doubt.causes | join(" or ") }}
{%- else %}{{ assignment.inputs.ask }}{% endif %}"""


class Name(BaseModel):
    """The namer's reply: what a column that code cannot name may be."""

    field: Literal["station", "nitrate", "turbidity", "remark", "temperature", "ph", "oxygen", "conductivity", "other"]


class Note(BaseModel):
    """The explainer's reply."""

    note: str = Field(max_length=160, pattern=r"^Please [^\n]+\.$")


# ---------------------------------------------------------------- the members of plain code


def unnamed(assignment: kt.Assignment) -> str:  # noqa: ARG001 - every agent takes it
    """Keep a column's heading."""
    return Name(field=OTHER).model_dump_json()


def plain(assignment: kt.Assignment) -> str:
    """Word a doubt by rule."""
    doubt = assignment.inputs["item"]
    why = " or ".join(doubt["causes"])
    note = f"Please check {doubt['column']} {doubt['before']} in line {doubt['line']}: perhaps {why}."
    return Note(note=note).model_dump_json()


def clean(assignment: kt.Assignment) -> kt.Artifact:
    """Clean the table with the names that code and the namer gave."""
    rows = [Row(line, tuple(cells)) for line, cells in assignment.inputs["rows"]]
    asked = {assignment.inputs["asked"][name]: made.data_as(Name).field for name, made in assignment.upstream.items()}
    table = clean_table(assignment.inputs["headings"], rows, {**assignment.inputs["names"], **asked})
    return kt.Artifact(table.model_dump_json(), media_type="application/json")


def pick(assignment: kt.Assignment) -> str:
    """List the values that cannot be true, for the explainer."""
    return json.dumps([doubt.model_dump() for doubt in assignment.upstream["clean"].data_as(Table).doubts[:MOST]])


def report(assignment: kt.Assignment) -> str:
    """Count the changes, and list what was left out and why."""
    table = assignment.upstream["clean"].data_as(Table)
    notes = [made.data_as(Note).note for name, made in assignment.upstream.items() if name.startswith("explain.")]
    places = {(doubt.line, doubt.column) for doubt in table.doubts}
    counted = Counter(one.why for one in table.changes if (one.line, one.column) not in places)
    lines = [f"{len(assignment.inputs['foreign'])} lines were not UTF-8 and were read as Windows-1252"]
    lines += [f"{len(table.rows) + len(table.dropped)} rows, {len(table.rows)} kept"]
    lines += [f"  line {line}: {why}" for line, why in table.dropped]
    lines += [f"  lines {one} and {other}: the same station and day, kept both" for one, other in table.twice]
    lines += ["", "columns"]
    lines += [
        f"  {heading:10} {name}" for heading, name in zip(assignment.inputs["headings"], table.columns, strict=True)
    ]
    lines += ["", f"{sum(counted.values())} cells were changed in form"]
    lines += [f"  {number:4} {why}" for why, number in counted.most_common()]
    lines += ["", f"{len(table.doubts)} values cannot be true and were left out"]
    lines += [f"  {note}" for note in notes]
    return "\n".join(lines)


# ---------------------------------------------------------------- the team


def fits(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Take a field that the values of the column can belong to."""
    field, may_be = artifact.data_as(Name).field, context.task.inputs["may_be"]
    if field == OTHER or field in may_be:
        return True
    return kt.Finding("fits", observed=f"the values are no {field}", expected=f"Say {' or '.join(may_be)}.")


def is_free(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Take a field that no other column has."""
    field = artifact.data_as(Name).field
    if field == OTHER or field not in {made.data_as(Name).field for made in context.upstream.values()}:
        return True
    return kt.Finding("free", observed=f"another column is {field}", expected=f"Do not say {field}.")


def keeps_all(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Name the line, the column, the value and what may be behind it, in the words that were found."""
    doubt, note = context.task.inputs["item"], artifact.data_as(Note).note
    parts = [f"{doubt['column']} {doubt['before']}", f"line {doubt['line']}", " or ".join(doubt["causes"])]
    lost = [part for part in parts if part not in note]
    return not lost or kt.Finding("kept", observed=f"{lost[0]!r} is missing", expected=f'Keep "{lost[0]}".')


def adds_nothing(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Say nothing else: no number and no reason of your own."""
    doubt, note = context.task.inputs["item"], artifact.data_as(Note).note
    given = {*re.findall(r"\w+", f"{doubt['column']} {doubt['before']} {doubt['line']} {' '.join(doubt['causes'])}")}
    added = sorted(set(re.findall(r"\w+", note)) - given - {"Please", "check", "in", "line", "perhaps", "or"})
    if not added:
        return True
    return kt.Finding("added", observed=f"it adds {', '.join(added)}", expected=f"Leave out {', '.join(added)}.")


def settings(assignment: kt.Assignment) -> dict[str, Any]:
    """Raise the temperature at each revision."""
    return {
        "temperature": (0, 0.4, 0.7, 0.7)[min(assignment.attempt, 4) - 1],
        "seed": assignment.attempt,
        "max_tokens": 160,
    }


def rubric(**checks: Any) -> Rubric:
    """Make a rubric of functions; each criterion is the function's docstring."""
    return Rubric([Criterion(name, check.__doc__ or name, check) for name, check in checks.items()])


def make_team(model: str | ChatModel = "local:smollm2") -> kt.Team:
    """Make the namer and the explainer with their seniors, and the members of plain code."""

    def asks(role: kt.Role, senior: Any) -> kt.Member:
        agent = kt.MiniAgent(model, max_turns=1, settings=settings)
        return kt.Member(role, agent, senior=kt.Member(f"{role.id}-senior", senior))

    return kt.Team(
        "clean-csv",
        [
            asks(kt.Role("namer", NAME), unnamed),
            kt.Member("cleaner", clean),
            kt.Member("picker", pick),
            asks(kt.Role("explainer", EXPLAIN), plain),
            kt.Member("editor", report),
        ],
        coordinator=ExpertTeamCoordinator(templates={"system": "{{ role.instructions }}", "task": ASK}),
        evaluators={
            "name": rubric(fits=fits, free=is_free),
            "table": rubric(**{check.__name__.replace("_", "-"): check for check in TABLE_CHECKS}),
            "note": rubric(kept=keeps_all, added=adds_nothing),
        },
        output_types={"name": Name, "table": Table, "doubts": list[Doubt], "note": Note},
    )


def make_request(content: bytes) -> kt.TeamExecutionRequest:
    """Ask for a clean table of a file; raises `Misuse` for a file without rows, or with rows that are too long."""
    headings, rows, foreign = read_file(content)
    if not rows or len(set(headings)) < len(headings):
        raise Misuse("the file needs a line of headings that differ, and rows below it")
    if wrong := [row.line for row in rows if len(row.cells) > len(headings)]:
        raise Misuse(f"line {wrong[0]} has more cells than there are headings: correct it by hand")
    names, open_ = decided(headings, rows)
    asked = {f"name-{number}": heading for number, heading in enumerate(open_, 1)}
    plan = kt.TaskGraph([*_naming(asked, open_, headings, rows), *_cleaning(asked, names, headings, rows, foreign)])
    config = kt.TeamConfig(budget=kt.Budget(tokens=2_000 * (len(asked) + MOST), seconds=300))
    name = f"clean-{hashlib.sha256(content).hexdigest()[:8]}"
    return kt.TeamExecutionRequest("Clean the table.", plan=plan, config=config, run_id=name)


def _naming(
    asked: dict[str, str], open_: dict[str, list[str]], headings: Sequence[str], rows: Sequence[Row]
) -> Iterable[kt.Task]:
    """Make the naming tasks, one after the other, because each field may be given only once."""
    for number, (task_id, heading) in enumerate(asked.items()):
        values = dict.fromkeys(" ".join(row.cells[headings.index(heading)].split()) for row in rows)
        shown = [value for value in values if value.lower() not in NOTHING][:3]
        yield kt.Task(
            task_id,
            f"Name the column {heading}.",
            role="namer",
            inputs={"ask": f"{heading}: {', '.join(shown)}", "may_be": open_[heading]},
            depends_on=list(asked)[:number],
            evaluator="name",
            output_type="name",
        )


def _cleaning(
    asked: dict[str, str], names: dict[str, str], headings: Sequence[str], rows: Sequence[Row], foreign: Sequence[int]
) -> list[kt.Task]:
    inputs = {"headings": headings, "rows": rows, "names": names, "asked": asked}
    return [
        kt.Task(
            "clean",
            "Clean the table.",
            role="cleaner",
            inputs=inputs,
            depends_on=list(asked),
            evaluator="table",
            output_type="table",
        ),
        kt.Task("doubts", "List what is open.", role="picker", depends_on=["clean"], output_type="doubts"),
        kt.Task.map(
            "explain",
            "Say what is behind the value.",
            over="doubts",
            max_items=MOST,
            role="explainer",
            evaluator="note",
            output_type="note",
        ),
        kt.Task(
            "report",
            "Report what was done.",
            role="editor",
            inputs={"headings": headings, "foreign": foreign},
            depends_on=["clean", "doubts", "explain"],
        ),
    ]


team = make_team()
request = make_request(DATA.read_bytes())
"""For `kairo run` and `kairo graph`."""


# ---------------------------------------------------------------- the program


async def work(content: bytes, model: str, runtime: kt.Runtime) -> kt.TeamResult:
    """Clean a file; resume the run if the runtime's journal has it."""
    return await kt.run(make_team(model), make_request(content), resume=True, runtime=runtime)


def write(result: kt.TeamResult, folder: Path) -> None:
    """Write the clean table, and every change with its line, into a folder."""
    artifact = result["clean"].artifact
    if artifact is None or result["clean"].status is not kt.TaskStatus.COMPLETED:
        return
    table = artifact.data_as(Table)
    folder.mkdir(parents=True, exist_ok=True)
    for name, head, rows in (
        ("table.csv", table.columns, [row.cells for row in table.rows]),
        ("changes.csv", ["line", "column", "before", "after", "why"], table.changes),
    ):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *rows])


def summary(result: kt.TeamResult) -> str:
    """Return the report, or why it is missing, who did what, and the cost."""
    lines = [result.output or f"no table: {result.error}", ""]
    lines += [f"{one.task_id:12} {one.status:9} {one.member or '':16} {one.attempts}" for one in result.outcomes]
    return "\n".join([*(line.rstrip() for line in lines), "", f"{result.status.value.upper()}, {result.usage}"])


def main(arguments: list[str] | None = None) -> int:
    """Clean a file, write the results, and print the report."""
    parser = argparse.ArgumentParser(description="A CSV file is cleaned, and nothing in it is invented.")
    parser.add_argument("file", nargs="?", type=Path, default=DATA, help="a CSV file of readings of a river")
    parser.add_argument("--model", default="local:smollm2", help="the model that names and explains")
    parser.add_argument("--out", type=Path, help="a folder for table.csv and changes.csv")
    parser.add_argument("--journal", type=Path, help="where the run is recorded; the same file resumes it")
    given = parser.parse_args(arguments)
    runtime = kt.Runtime(journal=kt.SqliteJournal(given.journal) if given.journal else None)
    try:
        result = anyio.run(work, given.file.read_bytes(), given.model, runtime)
    except (Misuse, OSError) as error:
        parser.error(str(error))
    if given.out:
        write(result, given.out)
    print(summary(result))
    return 0 if result.status is kt.TeamStatus.COMPLETED else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; with --journal, the same command continues the run")
