"""What the console shows, and what its forms do: over HTTP, without a browser."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

pytest.importorskip("starlette", reason="the console needs the extra console")
pytest.importorskip("httpx", reason="the tests of the console need httpx")

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy
from kairo_team.web_console import streams
from kairo_team.web_console.open_questions import compare
from tests.web_console.running import HOSTILE, Browser, begin, experts, go_on, letter, office, words

pytestmark = pytest.mark.real_time
QUESTION = "run-1:human:1:letter:2:review"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def journal(book: Path) -> Iterator[kt.SqliteJournal]:
    made = kt.SqliteJournal(book)
    yield made
    made.close()


@pytest.fixture
async def browser(journal: kt.SqliteJournal) -> AsyncIterator[Browser]:
    async with Browser(journal) as made:
        yield made


async def test_runs_are_listed_and_searched(browser: Browser, book: Path) -> None:
    assert "No run is recorded yet" in await browser.read("/")
    await begin(book, "run-1", "Write a letter.")
    await begin(book, "run-2", "Plan a feast.")
    listed = words(await browser.read("/"))
    assert re.search("run-2 suspended office Plan a feast.*run-1 suspended office Write a letter", listed)
    assert "run-1" not in await browser.read("/", q="FEAST office")
    assert "run-1" in await browser.read("/", state="suspended")
    assert "No run fits" in await browser.read("/", state="completed")


async def test_the_list_has_a_tab_for_each_state_and_who_is_asked(
    browser: Browser, book: Path, journal: kt.SqliteJournal
) -> None:
    for number in range(3):
        await begin(book, f"run-{number}")
    journal.cancel("run-2", "enough")
    shown = words(await browser.read("/"))
    assert "any 3 suspended 2 cancelled 1" in shown
    assert re.search("run-1 suspended office Write a letter. 1 to answer .* 4 of 9,000", shown)
    assert "run-1" not in await browser.read("/", state="cancelled")
    assert "run-1" in await browser.read("/", state="none", page="x")


async def test_the_list_has_pages_of_fifty(browser: Browser, book: Path, journal: kt.SqliteJournal) -> None:
    await begin(book, "run-0")
    with journal.database.writing() as connection:
        [row] = connection.execute("SELECT * FROM run").fetchall()
        for number in range(1, 60):
            values = {**dict(row), "run_id": f"run-{number}", "started_at": row["started_at"] + number}
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO run ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))  # noqa: S608 - the columns of the table
    first, second = await browser.read("/"), await browser.read("/", page="2")
    assert [page.count('<tr data-key="run-') for page in (first, second)] == [50, 10]
    assert "Older runs" in first
    assert "Newer runs" in second
    for beyond in ("3", "999999"):
        last = await browser.read("/", page=beyond)
        assert last.count('<tr data-key="run-') == 10
        assert "Newer runs" in last
        assert "page=1" in last
    assert "No run fits" in await browser.read("/", q="nothing like it", page="2")


@pytest.mark.parametrize("of", ["question", "error"])
async def test_a_page_stays_small_however_long_a_sentence_is(
    browser: Browser, journal: kt.SqliteJournal, of: str
) -> None:
    long = "words " * 170_000

    class Strict:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.escalate(
                kt.Cause.HUMAN_REQUIRED, long, findings=[kt.Finding("a", observed=long)]
            )

    async def write(assignment: kt.Assignment) -> str:
        if of == "error":
            raise ValueError(long)
        return "Dear all"

    coordinator = kt.ExpertTeamCoordinator(evaluator=Strict(), failure_policy=FailurePolicy(retries=0))
    team = kt.Team("office", [kt.Member("clerk", write)], coordinator=coordinator)
    async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
        result = await kt.run(team, letter("run-1"), runtime=runtime)
    assert len(result.error or "") > 1_000_000
    task = await browser.read("/run/task", id="run-1", task="letter")
    for page in (task, *[await browser.read(path, id="run-1") for path in ("/run", "/run/report", "/questions", "/")]):
        assert len(page) < 300_000
    assert "words words" in task


async def test_a_question_is_shown_with_all_that_helps_to_answer_it(browser: Browser, book: Path) -> None:
    await begin(book)
    shown = words(await browser.read("/questions"))
    for part in (
        "Is the work of &#39;clerk&#39; on &#39;letter&#39; good enough?",
        "review, task letter , by clerk , attempt 2, run run-1 (suspended), asked 20",
        "blocking : too cold",
        "wanted: warm",
        "Dear all, be welcome.",
        "removed: 2 + added: be welcome.",
        "Approve it is accepted without a PASS: the run is DEGRADED",
        "Revise &#39;clerk&#39; makes another version from your words",
        "Defer it stays open, behind the others; the run stays suspended",
        "Without an answer: it stays open, and the run stays suspended .",
        f"An answer takes effect when the run is resumed: kairo resume run-1 FILE.py --journal {book}",
    ):
        assert part in shown


async def test_a_run_that_took_the_id_of_a_forgotten_one_is_shown_anew(
    browser: Browser, book: Path, journal: kt.SqliteJournal
) -> None:
    await begin(book)
    await go_on(book)
    assert "the run was resumed" in await browser.read("/run", id="run-1")
    journal.cancel("run-1")
    journal.forget("run-1")
    await begin(book)
    again = await browser.read("/run", id="run-1")
    assert "the run was resumed" not in again
    assert again.count("<title>attempt ") == 2


async def test_a_run_that_took_the_id_of_a_forgotten_one_has_its_own_limits(
    browser: Browser, book: Path, journal: kt.SqliteJournal
) -> None:
    await begin(book)
    assert "of 9,000 tokens" in words(await browser.read("/run", id="run-1"))
    journal.forget("run-1")
    config = kt.TeamConfig(budget=kt.Budget(tokens=7_000))
    async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
        await kt.run(office(), replace(letter("run-1"), config=config), runtime=runtime)
    assert "of 7,000 tokens" in words(await browser.read("/run", id="run-1"))
    assert "of 7,000" in words(await browser.read("/"))


async def test_a_run_is_shown(browser: Browser, book: Path) -> None:
    await begin(book)
    page = await browser.read("/run", id="run-1")
    shown = words(page)
    assert "suspended team office" in shown
    assert "Tokens 4 of 9,000 spent" in shown
    assert "1 suspended, 1 pending" in shown
    assert "send after letter pending" in shown
    assert "test:provider model 2 0 4 0" in shown
    assert page.count("<title>attempt ") == 2, "a bar for each attempt"
    assert page.count('class="box"') == 2, "a box for each task in the graph"
    assert "Open questions" in shown
    assert "Why letter waits for a person" in shown
    assert (
        "It ends within seconds, and cannot be resumed. 1 task never begins. 1 open question needs no answer any more. "
        "No task was accepted yet." in shown
    )
    # The card has the question, and the history says when it was asked.
    assert shown.count("Only a person may accept it: a person must see it") == 2


@pytest.mark.parametrize("path", ["/", "/questions", "/run?id=run-1"])
async def test_hostile_text_is_shown_as_text(browser: Browser, book: Path, path: str) -> None:
    await begin(book, goal=HOSTILE)
    page = await browser.read(path)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;svg onload=alert(2)&gt;" in page
    assert "<script>alert" not in page
    assert "<svg onload" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    for field in ("q", "state", "done"):
        page = await browser.read("/", **{field: '"><script>alert(3)</script>'})
        assert "<script>alert" not in page


@pytest.mark.parametrize("action", ["approve", "reject"])
async def test_an_answer_holds_and_is_recorded_with_who_gave_it_and_when(
    browser: Browser, book: Path, journal: kt.SqliteJournal, action: str
) -> None:
    await begin(book)
    await browser.send("/name", name="  Grace \u00d6 ", back="/questions")
    sent = await browser.send("/questions/answer", question=QUESTION, action=action, text="so be it", back="/questions")
    assert sent.status_code == 303
    assert sent.headers["location"].startswith("/questions?done=")
    assert "No question is open" in await browser.read("/questions")
    result = await go_on(book)
    assert result.status is (kt.TeamStatus.DEGRADED if action == "approve" else kt.TeamStatus.FAILED)
    [decided] = [one for one in journal.events_after("run-1") if isinstance(one, events.HumanDecided)][1:]
    assert (decided.action, decided.feedback, decided.by) == (action, "so be it", "Grace \u00d6")
    shown = words(await browser.read("/run", id="run-1"))
    assert f"{decided.at:%Y-%m-%d %H:%M:%S} UTC answer to {QUESTION} by Grace \u00d6: {action} so be it" in shown


async def test_to_revise_takes_words(browser: Browser, book: Path) -> None:
    await begin(book)
    refused = await browser.send("/questions/answer", question=QUESTION, action="revise", text=" ")
    assert refused.status_code == 409
    assert "needs feedback in words" in refused.text
    assert "letter" in await browser.read("/questions"), "it is still open"
    sent = await browser.send("/questions/answer", question=QUESTION, action="revise", text="shorter")
    assert sent.status_code == 303
    result = await go_on(book)
    assert result.status is kt.TeamStatus.SUSPENDED, "another version was made, and is asked about"
    assert "attempt 3" in await browser.read("/questions")


async def test_of_two_people_who_answer_the_first_counts(
    browser: Browser, book: Path, journal: kt.SqliteJournal
) -> None:
    await begin(book)
    await browser.send("/questions/answer", question=QUESTION, action="approve")
    async with Browser(journal) as other:
        late = await other.send("/questions/answer", question=QUESTION, action="reject")
        assert late.status_code == 409
        assert "was answered already by ada: approve" in words(late.text).replace("&#39;", "'")
        again = await other.send("/questions/answer", question=QUESTION, action="approve")
        assert again.status_code == 303, "the same answer twice is one"


@pytest.mark.parametrize("action", ["", "<b>"])
async def test_what_is_no_answer_is_refused(browser: Browser, book: Path, action: str) -> None:
    await begin(book)
    refused = await browser.send("/questions/answer", question=QUESTION, action=action)
    assert refused.status_code == 409
    assert "<b>" not in refused.text.replace("<bdi>", "")
    assert (await browser.send("/questions/answer", question="none", action="approve")).status_code in (404, 409)


async def test_a_deferred_question_waits_behind_the_others(
    browser: Browser, book: Path, journal: kt.SqliteJournal
) -> None:
    await begin(book, "run-1")
    await begin(book, "run-2")
    assert re.search("run-1.*run-2", words(await browser.read("/questions")))
    sent = await browser.send("/questions/answer", question=QUESTION, action="defer", back="/questions")
    assert "you deferred it" in await browser.read(sent.headers["location"])
    shown = words(await browser.read("/questions"))
    assert re.search("run-2.*run-1.*Deferred by ada 20", shown)
    assert "2 open" in words(await browser.read("/")), "it is still open"
    with journal.database.reading() as connection:
        row = connection.execute("SELECT * FROM question WHERE id = ?", (QUESTION,)).fetchone()
    assert (row["decision"], row["answered_by"]) == (None, "ada")
    assert row["answered_at"] > row["asked_at"]
    await browser.send("/questions/answer", question=QUESTION, action="approve")
    assert (await go_on(book)).status is kt.TeamStatus.DEGRADED
    late = await browser.send("/questions/answer", question=QUESTION, action="defer")
    assert late.status_code == 404


async def test_a_run_that_waits_ends_suspended_when_its_question_is_deferred(
    browser: Browser, journal: kt.SqliteJournal
) -> None:
    async with kt.Runtime(journal=journal, gate=kt.JournalGate(journal)) as runtime:
        run = await runtime.start(office(), letter("run-1"))
        while not journal.pending():
            await anyio.sleep(0.02)
        shown = words(await browser.read("/questions"))
        assert "Without an answer: the run waits; when its gate gives up, the task fails ." in shown
        assert "a run that waits for it does what else it can, and ends suspended" in shown
        assert "kairo resume" not in shown
        await browser.send("/questions/answer", question=QUESTION, action="defer")
        assert (await run.result()).status is kt.TeamStatus.SUSPENDED
    shown = words(await browser.read("/run", id="run-1"))
    assert f"answer to {QUESTION} by ada: defer" in shown
    assert re.search("Deferred by ada 20.*Without an answer: it stays open, and the run stays suspended", shown)


@pytest.mark.parametrize(
    ("before", "after", "lines", "note"),
    [
        ("a\nb", "a\nb", [], "Nothing has changed."),
        ("a\nb", "a\nc", ["@line 1", " a", "-b", "+c"], ""),
        ("x" * 900, "y" * 900, ["@line 1", "-" + "x" * 499, "+" + "y" * 499], "Lines are cut after 500 characters."),
        ("", "y\n" * 1_100, ["@line 1"] + ["+y"] * 999, "101 more lines are not shown."),
        ("", "y\n" * 2_001, [], "too long to compare"),
        ("", "y" * 1_000_001, [], "too long to compare"),
    ],
)
def test_changes_are_bounded_and_say_what_is_left_out(before: str, after: str, lines: list[str], note: str) -> None:
    found = compare(before, after)
    assert [sign + line for sign, line in found.lines] == lines
    assert note in found.note


async def test_a_run_is_cancelled_with_who_and_why(browser: Browser, book: Path, journal: kt.SqliteJournal) -> None:
    await begin(book)
    sent = await browser.send("/run/cancel", run="run-1", text="too late", back="/run?id=run-1")
    assert sent.headers["location"] == "/run?id=run-1&done=cancelled"
    assert journal.show("run-1").state == "cancelled"
    with journal.database.reading() as connection:
        [row] = connection.execute("SELECT cancelled FROM run")
    assert row["cancelled"] == "cancelled by ada in the console: too late"
    assert "Cancel this run" not in await browser.read("/run", id="run-1")
    assert (await browser.send("/run/cancel", run="run-1")).status_code == 409


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
async def test_a_form_leads_back_to_the_console_alone(browser: Browser, book: Path, back: str) -> None:
    await begin(book)
    assert (await browser.send("/name", name="x", back=back)).headers["location"] == "/"


async def test_a_run_that_is_not_there_is_not_found(browser: Browser, book: Path) -> None:
    for path in ("/run?id=no-run", "/run/stream?id=no-run", "/questions/subject?question=none", "/run"):
        refused = await browser.client.get(path)
        assert refused.status_code == 404
        assert "<h1>Not found</h1>" in refused.text


async def test_a_long_artifact_is_cut_and_can_be_saved(
    browser: Browser, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kairo_team.web_console.open_questions.MOST_SHOWN", 9)
    await begin(book)
    size = len(f"Dear all,\nbe welcome.\n{HOSTILE}")
    shown = await browser.read("/questions")
    assert f"The first 9 of {size} characters are shown. Save all of it" in words(shown)
    assert "be welcome" not in re.sub(r'(?s)<section data-tab="changes".*?</section>', "", shown)
    saved = await browser.client.get("/questions/subject", params={"question": QUESTION})
    assert saved.text == f"Dear all,\nbe welcome.\n{HOSTILE}"
    assert saved.headers["content-type"].startswith("text/plain")
    assert saved.headers["content-disposition"].startswith("attachment")


# ---------------------------------------------------------------- live


async def messages(last: str, *found: dict[str, str]) -> list[tuple[str, dict[str, str]]]:
    """What a browser is sent while the page is rendered like this, one after the other."""
    states = iter(found)
    sent: list[tuple[str, dict[str, str]]] = []
    try:
        async for text in streams.messages(last, object, lambda _: next(states), lambda: False):
            fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
            sent.append((fields["id"], json.loads(fields["data"])))
    except RuntimeError:  # the states are used up
        return sent
    raise AssertionError("it never ends by itself")


async def test_only_what_has_changed_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_LOOK", 0)
    one, two = {"part": "<p>1"}, {"part": "<p>2"}
    sent = await messages("", one, one, two)
    assert [body for _, body in sent] == [one, two]
    [(name, _), _] = sent
    assert await messages(name, one, one) == [], "a browser that comes back has it already"
    assert [body for _, body in await messages(name, two)] == [two], "and is sent what it missed"


@pytest.mark.usefixtures("swept")
async def test_the_changes_of_an_artifact_have_no_secret_where_nobody_knows_it(tmp_path: Path) -> None:
    """An attempt is recorded as it was made: what a page shows of it must come from the question."""
    secret = "hunter2hunter2"
    path = tmp_path / "secrets.db"

    def write(assignment: kt.Assignment) -> str:
        return f"{secret} is {'warm' if assignment.previous else 'cold'}"

    first = kt.SqliteJournal(path)
    runtime = kt.Runtime(journal=first, gate=kt.DeferGate(), secrets=[secret])
    await kt.run(
        kt.Team("office", [kt.Member("clerk", write)], coordinator=experts()), letter("run-1"), runtime=runtime
    )
    first.close()
    del runtime
    gc.collect()
    journal = kt.SqliteJournal(path)
    async with Browser(journal) as browser:
        for page in (await browser.read("/questions"), await browser.read("/run", id="run-1")):
            assert "removed: [secret] is cold" in words(page)
            assert secret not in page
    journal.close()


async def test_the_list_says_how_far_each_run_is(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await begin(tmp_path / "runs.db")
    async with Browser(journal) as browser:
        assert "0 of 2 " in words(await browser.read("/"))
        journal.answer(journal.pending()[0].id, kt.HumanDecision.approve())
        await go_on(tmp_path / "runs.db")
        assert "2 of 2 " in words(await browser.read("/"))
        await record_failure(journal)
        assert "0 of 2 1 failed" in words(await browser.read("/", q="fails"))


async def record_failure(journal: kt.SqliteJournal) -> None:
    def fail(_: kt.Assignment) -> str:
        raise ValueError("no ink")

    async with kt.Runtime(journal=journal) as runtime:
        await kt.run(
            kt.Team("office", [kt.Member("clerk", fail)], coordinator=experts()), letter("fails"), runtime=runtime
        )


async def test_selected_runs_are_cancelled_from_the_list(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    for name in ("run-1", "run-2", "run-3"):
        await begin(tmp_path / "runs.db", name)
    async with Browser(journal) as browser:
        chosen = {"run run-1": "1", "run run-2": "1"}
        done = await browser.send("/cancel", back="/?q=run", text="too many", **chosen)
        assert (done.status_code, done.headers["location"]) == (303, "/?q=run&done=cancelled%202%20runs")
        assert [one.state for one in journal.runs()] == ["suspended", "cancelled", "cancelled"]
        refused = await browser.send("/cancel", back="/?q=run", **chosen, **{"run run-3": "1"})
        assert refused.status_code == 409
        for said in ("Done: cancelled 1 run", "has ended already", "cancelled 3"):
            assert said in words(refused.text), said
        nothing = await browser.send("/cancel", back="/?q=run")
        assert "Not done: select the runs to cancel" in words(nothing.text)
    assert journal.show("run-3").state == "cancelled"
