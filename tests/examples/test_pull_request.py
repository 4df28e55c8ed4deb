"""The review of a pull request: what code finds, what the writer may say, who approves, and that it goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel, HumanGate
from kairo_team.examples import pull_request
from kairo_team.examples.pull_request import DATA, Remark, approve, find, make_request, summary, work
from kairo_team.testing import FunctionModel
from tests.examples.running import ROOT, start

pytestmark = pytest.mark.real_time  # the editor is a plain function and works in a thread

DIFF = DATA.read_text(encoding="utf-8")
MODEL = "test:writer"


def write(request: kt.ModelRequest) -> str:
    place, _, wish = request.messages[-1].text.splitlines()[-1].partition(": ")
    return json.dumps({"comment": f"Please {wish} in {place}."})


def invent(request: kt.ModelRequest) -> str:
    return json.dumps({"comment": "Please add an entry to the changelog in changelog.txt, line 1."})


def runtime(model: ChatModel, gate: HumanGate, journal: kt.SqliteJournal | None = None) -> kt.Runtime:
    return kt.Runtime(models={MODEL: model}, gate=gate, journal=journal)


def shown() -> str:
    page = ROOT / "docs/pull-request.md"
    if not page.exists():
        pytest.skip("runs in the repository only")
    return page.read_text(encoding="utf-8").partition("```text\n")[2].partition("\n\n")[0]


def diff_of(path: str, *added: str) -> str:
    return "\n".join([f"--- a/{path}", f"+++ b/{path}", "@@ -1,1 +10,9 @@", " before", *(f"+{line}" for line in added)])


@pytest.mark.parametrize(
    ("line", "wish"),
    [
        ("    except:", "catch a narrower exception"),
        ("except Exception as error:", "catch a narrower exception"),
        ("print(found)", "take out what is left of a search for a fault"),
        ("x = 1  # TODO", "open an issue instead of the note"),
        ("import x  # noqa: F401", "say why the check is silenced"),
        ("run(command, shell=True)", "start the program without a shell"),
    ],
)
def test_a_rule_finds_its_line_with_its_number(line: str, wish: str) -> None:
    assert find(diff_of("src/app.py", "fine = True", line))[0] == Remark("src/app.py, line 12", wish)


@pytest.mark.parametrize("line", ["except ValueError:", "import x  # noqa: F401 - for its effect", "pprint(found)"])
def test_what_is_in_order_is_not_found(line: str) -> None:
    wishes = [remark.wish for remark in find(diff_of("src/app.py", line))]
    assert wishes == [pull_request.NO_TEST, pull_request.NO_CHANGELOG]


def test_a_change_with_its_test_and_its_entry_has_no_findings() -> None:
    whole = "\n".join(diff_of(path, "x = 1") for path in ("src/app.py", "tests/test_app.py", "CHANGELOG.md"))
    assert find(whole) == []


async def test_an_approved_review_is_what_the_page_shows() -> None:
    result = await work(DIFF, MODEL, runtime(FunctionModel(write), kt.CallbackGate(approve)))
    assert result.status is kt.TeamStatus.COMPLETED
    assert result.output == shown()
    assert {outcome.attempts for outcome in result.outcomes} == {1}


async def test_what_the_writer_invents_never_reaches_the_author() -> None:
    result = await work(DIFF, MODEL, runtime(FunctionModel(invent), kt.CallbackGate(approve)))
    assert result.status is kt.TeamStatus.COMPLETED
    assert "changelog.txt" not in str(result.output)
    assert result.output == shown(), "the senior words it by rule"
    assert {outcome.member for outcome in result.outcomes[:-1]} == {"senior"}


async def test_without_approval_there_is_no_review() -> None:
    result = await work(DIFF, MODEL, runtime(FunctionModel(write), kt.CallbackGate(lambda _: False)))
    assert result["review"].status is kt.TaskStatus.FAILED
    assert summary(result).startswith("no review: ")


async def test_a_review_that_waits_goes_on_and_asks_the_model_nothing_again(tmp_path: Path) -> None:
    first, second = FunctionModel(write), FunctionModel(write)
    waits = await work(DIFF, MODEL, runtime(first, kt.DeferGate(), kt.SqliteJournal(tmp_path / "runs.db")))
    assert waits.status is kt.TeamStatus.SUSPENDED
    book = kt.SqliteJournal(tmp_path / "runs.db")
    async with kt.Runtime(journal=book) as answering:
        (question,) = book.pending(make_request(DIFF).run_id)
        answering.answer(question.id, kt.HumanDecision.approve())
    done = await work(DIFF, MODEL, runtime(second, kt.DeferGate(), book))
    assert (done.status, done.output) == (kt.TeamStatus.COMPLETED, shown())
    assert (len(first.calls), len(second.calls)) == (5, 0)


async def test_a_budget_that_is_too_small_holds() -> None:
    request = make_request(DIFF)
    budget = kt.Budget(tokens=400)
    short = kt.TeamExecutionRequest("Review.", plan=request.plan, config=kt.TeamConfig(budget=budget))
    result = await kt.run(pull_request.make_team(FunctionModel(write)), short)
    assert result.status is not kt.TeamStatus.COMPLETED
    assert result.usage.tokens <= 400


@pytest.mark.local_model
@pytest.mark.exhaustive
def test_on_the_embedded_model_the_review_is_the_same() -> None:
    done = start("-m", "kairo_team.examples.pull_request", "--approve")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(shown())
    assert re.search(r"^COMPLETED, [\d,]+ tokens", done.stdout, re.MULTILINE)
