"""Research over documents: what is found, what the reader may point at, and that no citation is invented."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import Misuse
from kairo_team.examples import research
from kairo_team.examples.research import (
    Paragraph,
    Pointer,
    by_rule,
    make_request,
    make_team,
    paragraphs,
    search,
    sentences,
    work,
)
from kairo_team.testing import FunctionModel
from tests.examples.running import ROOT, start

pytestmark = pytest.mark.real_time  # the editor is a plain function and works in a thread

MODEL = "test:reader"
ROOF = "The roof was repaired in May. It cost 900."
NOTES = {
    "house/roof.md": f"# The roof\n\n{ROOF}\n\n```\nroof repaired\n```\n\n- A leak was found.\n"
    "- The roof is\n  of slate.\n",
    "garden.txt": "The roses are red. The roof of the shed was never repaired. Bees live there.\n",
    "picture.png": "the roof repaired",
}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    for name, text in NOTES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def point(request: kt.ModelRequest) -> str:
    """Point at the sentence with "repaired"."""
    numbered = re.findall(r"^(\d)\. .*repaired", request.messages[-1].text, re.MULTILINE)
    return json.dumps({"number": int(numbered[0]) if numbered else 1})


def runtime(model: ChatModel, journal: kt.SqliteJournal | None = None) -> kt.Runtime:
    return kt.Runtime(models={MODEL: model}, journal=journal)


def test_paragraphs_and_items_have_their_lines_and_code_and_headings_are_left_out(notes: Path) -> None:
    assert paragraphs(notes) == [
        Paragraph("garden.txt:1", NOTES["garden.txt"].strip()),
        Paragraph("house/roof.md:3", ROOF),
        Paragraph("house/roof.md:9", "A leak was found."),
        Paragraph("house/roof.md:10", "The roof is of slate."),
    ]


def test_the_paragraph_that_says_most_comes_first(notes: Path) -> None:
    found = search("When was the roof repaired?", paragraphs(notes))
    assert [one.place for one in found] == ["house/roof.md:3", "garden.txt:1", "house/roof.md:10"]


def test_a_question_that_no_document_speaks_of_is_refused(notes: Path) -> None:
    with pytest.raises(Misuse, match=r"no document says anything on 'Who plays chess\?'"):
        make_request("Who plays chess?", paragraphs(notes))


async def test_each_line_is_a_sentence_with_its_place(notes: Path) -> None:
    result = await work("When was the roof repaired?", notes, MODEL, runtime(FunctionModel(point)))
    assert result.status is kt.TeamStatus.COMPLETED
    assert result.output == (
        "- The roof was repaired in May. [house/roof.md:3]\n"
        "- The roof of the shed was never repaired. [garden.txt:1]\n"
        "- The roof is of slate. [house/roof.md:10]"
    )


@pytest.mark.parametrize("number", [2, 9])
async def test_a_reader_that_points_wrong_is_replaced_by_its_senior(notes: Path, number: int) -> None:
    wrong = FunctionModel(lambda request: json.dumps({"number": number}))
    result = await work("When was the roof repaired?", notes, MODEL, runtime(wrong))
    assert result.status is kt.TeamStatus.COMPLETED
    assert result["quote-1"].member == "senior"
    assert str(result.output).startswith("- The roof was repaired in May. [house/roof.md:3]\n")


async def test_an_answer_with_an_invented_citation_is_never_accepted(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for invented in ("- The roof was sold. [house/roof.md:3]", "- A leak was found. [house/roof.md:3]", "Trust me."):
        monkeypatch.setattr(research, "answer", lambda assignment, text=invented: text)
        result = await work("When was the roof repaired?", notes, MODEL, runtime(FunctionModel(point)))
        assert result["answer"].status is kt.TaskStatus.FAILED
        assert "this is not in the cited place" in str(result["answer"].error)


async def test_a_run_that_was_interrupted_reads_no_paragraph_again(notes: Path, tmp_path: Path) -> None:
    first, second, journal = FunctionModel(point), FunctionModel(point), kt.SqliteJournal(tmp_path / "runs.db")
    around = runtime(first, journal)
    found = paragraphs(notes)
    request = make_request("When was the roof repaired?", found)

    def interrupt(event: kt.events.Event) -> None:
        if isinstance(event, kt.events.TaskCompleted):
            around.runs[request.run_id].interrupt("enough for today")

    around.subscribers = (interrupt,)
    async with around:
        await kt.run(make_team(found, MODEL), request, runtime=around)
    assert journal.show(request.run_id).state == "interrupted"
    done = await work("When was the roof repaired?", notes, MODEL, runtime(second, journal))
    assert done.status is kt.TeamStatus.COMPLETED
    again = len(first.calls) + len(second.calls) - 3
    assert 0 <= again <= len(journal.in_doubt(request.run_id))  # a call in doubt may never have left


async def test_a_budget_that_is_too_small_holds(notes: Path) -> None:
    found = paragraphs(notes)
    request = make_request("When was the roof repaired?", found)
    config = kt.TeamConfig(budget=kt.Budget(tokens=300))
    short = kt.TeamExecutionRequest("Read.", plan=request.plan, config=config)
    result = await kt.run(make_team(found, FunctionModel(point)), short)
    assert result.usage.tokens <= 300


def test_the_rule_points_at_the_sentence_with_most_words_of_the_question() -> None:
    inputs = {"question": "When was the roof repaired?", "text": NOTES["garden.txt"]}
    text = by_rule(kt.Assignment(kt.Task("quote-1", "Point."), "Read.", inputs, {}, {}))
    assert sentences(inputs["text"])[Pointer.model_validate_json(text).number - 1].startswith("The roof of the shed")


@pytest.mark.local_model
@pytest.mark.exhaustive
def test_on_the_embedded_model_every_citation_is_true() -> None:
    folder = ROOT / "docs/decisions"
    if not folder.exists():
        pytest.skip("runs in the repository only")
    done = start("-m", "kairo_team.examples.research", "--documents", str(folder))
    assert done.returncode == 0, done.stderr
    cited = re.findall(r"^- (.+) \[(\S+)\]$", done.stdout, re.MULTILINE)
    assert len(cited) == research.MOST
    found = {one.place: one.text for one in paragraphs(folder)}
    assert [place for sentence, place in cited if sentence not in found[place]] == []
    assert cited[0][0].startswith("Usage is what the provider says"), "the page shows it"
