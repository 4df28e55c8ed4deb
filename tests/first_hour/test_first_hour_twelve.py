"""The jobs of a first hour that docs/side-by-side.md counts: each program works, and the table is what is counted.

The other jobs of that section run elsewhere: three libraries under one budget in tests/examples/test_two_libraries.py,
a coordinator with its kit in docs/extending.md, a team of data in tests/team_data, a team as a tool in tests/serve.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

import kairo_team as kt
from benchmarks.first_hour import (
    kairo_team_approval,
    kairo_team_contract,
    kairo_team_database,
    kairo_team_documents,
    kairo_team_fix,
    kairo_team_glossary,
    kairo_team_minutes,
    kairo_team_photo,
)
from benchmarks.first_hour.jobs import PEERS, lines
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.first_hour.mistakes import ANY, told

Kairo = Callable[..., Any]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "side-by-side.md"


def scripted(*replies: Any, **more: Any) -> kt.Runtime:
    return kt.Runtime(models={"openai:*": ScriptedModel(list(replies))}, **more)


def test_a_translation_keeps_to_its_glossary() -> None:
    runtime = scripted("Die Tide im Hafen.", "Die Gezeit im Hafen.")
    assert kairo_team_glossary.run(runtime) == "Die Gezeit im Hafen."


@pytest.mark.usefixtures("folder")
def test_a_tool_that_only_reads_answers_questions_over_a_database() -> None:
    with closing(sqlite3.connect("shop.db")) as shop, shop:
        shop.executescript("create table sale(city, eur); insert into sale values ('Brest', 20), ('Brest', 22)")
    asks = ["delete from sale", "select sum(eur) from sale where city = 'Brest'"]
    calls = [kt.ModelResponse("", [kt.ToolCall(sql, "query", {"sql": sql})]) for sql in asks]
    model = ScriptedModel([*calls, "Brest sold for 42 euros."])
    assert kairo_team_database.run(kt.Runtime(models={"openai:*": model})) == "Brest sold for 42 euros."
    said = [message.text for message in model.calls[2].messages if message.role == "tool"]
    assert said == ["OperationalError: attempt to write a readonly database", "[(42,)]"]


def test_the_clauses_of_a_contract_become_a_type_that_ones_own_evaluator_reviews() -> None:
    ends = ("null", '"2027-05-31"')
    replies = [f'{{"clauses": [{{"number": 1, "kind": "term", "until": {end}}}]}}' for end in ends]
    assert kairo_team_contract.run(ScriptedModel(replies)) == "2027-05-31"


def test_minutes_are_mapped_gathered_and_edited() -> None:
    runtime = scripted("nine", "a boat?", "a boat", "nine; a boat", "Decided: a boat.")
    assert kairo_team_minutes.run(runtime) == "Decided: a boat."


def test_code_is_written_tested_and_fixed() -> None:
    versions = [f"def slug(t): return t{done}" for done in ("", ".lower()", ".lower().replace(' ', '-')")]
    assert kairo_team_fix.run(scripted(*versions)) == versions[-1]


def test_an_approval_by_a_form_survives_a_restart(tmp_path: Path) -> None:
    """Each page has a runtime of its own, as after a restart."""

    def page(**form: str) -> str:
        with closing(kt.SqliteJournal(tmp_path / "web.db")) as journal:
            runtime = scripted("The moon pulls the sea.", journal=journal, gate=kt.DeferGate())
            return kairo_team_approval.page(runtime, form)

    question = page()
    assert "The moon pulls the sea." in question
    assert page() == question
    answer = {"id": question.split("value='")[1].split("'")[0], "say": "yes"}
    assert page(**answer) == "completed: The moon pulls the sea."
    assert page() == "completed: The moon pulls the sea."


def test_two_hundred_documents_under_dollars_are_interrupted_and_go_on(tmp_path: Path) -> None:
    calls: list[int] = []

    def session(ends_after: int) -> str:
        async def read(request: kt.ModelRequest) -> kt.ModelResponse:
            calls.append(len(calls))
            if len(calls) == ends_after:
                signal.raise_signal(signal.SIGINT)  # Ctrl-C
                await anyio.sleep_forever()
            return kt.ModelResponse("a summary", usage=kt.Usage(50, 10))

        models, prices = {"openai:*": FunctionModel(read)}, {"openai:*": kt.Price(0.25, 2)}
        with closing(kt.SqliteJournal(tmp_path / "docs.db")) as journal:
            said = kairo_team_documents.run(kt.Runtime(models=models, prices=prices, journal=journal))
            assert journal.show("docs").usage.dollars <= Decimal("0.50")
        return said

    with pytest.raises(KeyboardInterrupt):
        session(ends_after=100)
    assert session(ends_after=-1) == "200 summaries"
    assert len(calls) <= 200 + 8, "only calls that were under way are made again"


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"


def test_a_photo_becomes_a_typed_record(tmp_path: Path) -> None:
    photo = tmp_path / "bill.png"
    photo.write_bytes(PNG)
    model = ScriptedModel(['{"seller": "Harbour", "total": 487}'])
    assert kairo_team_photo.run(model, str(photo)) == "487.0"


@pytest.mark.parametrize("job", PEERS)
def test_the_table_has_the_lines_that_are_counted(job: str) -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if f"`{job}`" in line]
    assert len(rows) == 1
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells[1] == str(lines("kairo_team", job))
    assert cells[2].split()[-1] == str(lines(PEERS[job], job))


MISTAKES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "the path of a photo without its name": (
        lambda: ANY.File("bill.png"),
        ["File takes no value without its name; it takes data=, path=, url=, media_type= and name="],
    ),
    "a sentence for a rubric": (
        lambda: ANY.Rubric("it is short"),
        ["a rubric is made of a list of Criterion objects, not 'it is short'"],
    ),
    "a budget too many": (
        lambda: ANY.Budget(1, 2, 3, 4, 5, 6),
        ["Budget takes at most tokens, dollars, loops, tool_calls and seconds without their names"],
    ),
}


@pytest.mark.parametrize(("mistake", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_on_the_way_is_one_sentence(mistake: Callable[[], Any], said: list[str]) -> None:
    sentence = told(mistake)
    assert [words for words in said if words not in sentence] == [], sentence


def test_a_rubric_under_its_own_name_in_a_team_of_data_is_told_how_it_is_written(folder: Path, kairo: Kairo) -> None:
    rubric = "{criteria: [{id: short, text: at most 12 words, check: {max_words: 12}}]}"
    members = "members: [{role: {id: a}, agent: 'fake:agent'}]"
    team = f"name: desk\n{members}\nevaluators:\n  short: {{rubric: {rubric}}}\n"
    (folder / "team.yaml").write_text(team)
    (folder / "fake.py").write_text("def agent(assignment): return 'x'\n")
    said = kairo("check", "team.yaml")
    assert said.code == 2
    assert "there is no evaluator 'rubric'" in said.err
    assert "a rubric is written without a name, {criteria: [...]}, or as the path of its file" in said.err
