"""The console in a real browser: by keyboard alone, with a server that dies, and with two people at one question."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any

import anyio
import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")

import kairo_team as kt
from tests.browsing import OPEN_ALL, barriers, wait_for_value
from tests.web_console.running import TOKEN, begin
from tests.web_console.test_server import command, until
from tests.web_console.visiting import alone, person

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    alone(begin, path)
    return path


@pytest.fixture
def journal(book: Path) -> Iterator[kt.SqliteJournal]:
    made = kt.SqliteJournal(book)
    yield made
    made.close()


def test_a_question_is_answered_by_keyboard_alone(chromium: Any, journal: kt.SqliteJournal) -> None:
    with kt.console(journal, person="ada") as console, person(chromium, console.link, "questions") as page:
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.name") == "text":
                break
        page.keyboard.type("make it warmer")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Revise"
        assert "another version" in page.evaluate(
            "document.getElementById(document.activeElement.getAttribute('aria-describedby')).textContent"
        )
        page.keyboard.press("Enter")
        page.get_by_text("No question is open").wait_for()
        page.get_by_role("status").filter(has_text="you sent it back with your words").wait_for()
    with journal.database.reading() as connection:
        [row] = connection.execute("SELECT answered_by, answered_at FROM question")
    assert row["answered_by"] == "ada"
    assert row["answered_at"] > 0


@contextmanager
def served(*options: object) -> Generator[tuple[Any, str]]:
    """Serve with the command, and kill it at the end; its link comes with it."""
    process = command(*options, KAIRO_CONSOLE_TOKEN=TOKEN)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.communicate()


def test_a_page_goes_on_after_the_server_was_killed(chromium: Any, book: Path, journal: kt.SqliteJournal) -> None:
    with kt.console(journal) as free:
        port = free.port
    options = ("--journal", book, "--port", port)
    with served(*options) as (first, link), person(chromium, link, "run?id=run-1") as page:
        lost = page.locator("#link-lost")
        requests: list[Any] = []
        page.on("request", lambda request: requests.append(request))  # noqa: PLW0108 - playwright marks what it calls
        page.locator(".state.suspended").first.wait_for()
        first.kill()
        first.wait(60)
        lost.wait_for(state="visible")
        journal.cancel("run-1", "meanwhile")
        with served(*options):
            page.locator("[data-part=status] .state.cancelled").wait_for()
            lost.wait_for(state="hidden")
            assert "last-event-id" in requests[-1].all_headers(), "it says what it has seen"


def test_of_two_people_at_one_question_the_first_answers(chromium: Any, journal: kt.SqliteJournal) -> None:
    with (
        kt.console(journal) as console,
        person(chromium, console.link, "questions") as ada,
        person(chromium, console.link, "questions") as bob,
    ):
        for page, name in ((ada, "Ada"), (bob, "Bob")):
            page.get_by_label("You are").fill(name)
            page.get_by_role("button", name="Set").click()
            page.wait_for_load_state()
        bob.locator("textarea").fill("I was still writing")
        ada.get_by_role("button", name="Approve").click()
        ada.get_by_text("No question is open").wait_for()
        bob.get_by_text("has changed meanwhile").wait_for()
        assert bob.locator("textarea").input_value() == "I was still writing", "nothing is taken from under the hands"
        bob.get_by_role("button", name="Reject").click()
        bob.get_by_role("alert").filter(has_text="was answered already by Ada: approve").wait_for()
    assert until(lambda: not journal.pending())


def test_questions_come_and_go_on_an_open_page(chromium: Any, book: Path, journal: kt.SqliteJournal) -> None:
    with kt.console(journal) as console, person(chromium, console.link, "questions") as page:
        questions = page.locator("article.question")
        waiting = page.get_by_role("navigation").get_by_role("status")
        page.evaluate("window.same = true")
        assert (questions.count(), waiting.text_content()) == (1, "1 open")
        alone(begin, book, "run-2")
        questions.nth(1).wait_for(state="attached")
        waiting.filter(has_text="2 open").wait_for()
        page.get_by_role("navigation", name="Open questions").get_by_text("run-2").wait_for()
        journal.answer(journal.pending("run-1")[0].id, kt.HumanDecision.approve())
        waiting.filter(has_text="1 open").wait_for()
        page.get_by_role("link", name="run-2").wait_for()
        assert page.evaluate("window.same"), "the page was not loaded again"


def test_a_question_is_deferred(chromium: Any, book: Path, journal: kt.SqliteJournal) -> None:
    alone(begin, book, "run-2")
    with kt.console(journal, person="ada") as console, person(chromium, console.link, "questions") as page:
        first = page.locator("article.question").first
        first.get_by_role("link", name="run-1").wait_for()
        first.get_by_role("button", name="Defer").click()
        page.get_by_role("status").filter(has_text="you deferred it").wait_for()
        page.locator("article.question:visible").get_by_role("link", name="run-2").wait_for()  # the next one
        page.get_by_role("link", name="deferred").click()
        last = page.locator("article.question").last
        last.get_by_role("link", name="run-1").wait_for()
        last.get_by_text("Deferred by ada").wait_for()
        last.get_by_role("button", name="Approve").click()
        page.get_by_role("status").filter(has_text="you approved it").wait_for()
    assert [one.run_id for one in journal.pending()] == ["run-2"]


def test_half_typed_text_is_not_lost(chromium: Any, book: Path, journal: kt.SqliteJournal) -> None:
    """When something else is answered, when the page is loaded anew, when it changes, and when it is refused."""
    alone(begin, book, "run-2")
    with kt.console(journal) as console, person(chromium, console.link, "questions") as page:
        words, other = page.locator("article.question").first, page.locator("article.question").last
        words.locator("textarea").fill("Half of a sen")
        page.locator("a[data-question]").last.click()
        other.get_by_role("button", name="Approve").click()
        page.get_by_text("you approved it").wait_for()
        wait_for_value(page.locator("textarea").first, "Half of a sen")
        alone(begin, book, "run-3")
        page.get_by_role("button", name="Show it").click()
        page.locator("a[data-question]").last.click()
        wait_for_value(page.locator("textarea").first, "Half of a sen")
        page.locator("textarea").last.fill("   ")
        page.get_by_role("button", name="Revise").last.click()
        page.get_by_role("alert").filter(has_text="needs feedback in words").wait_for()
        assert page.locator("article.question").count() == 2, "it is said where the forms are"
        page.locator("article.question").last.wait_for()  # the refused one is open
        page.get_by_role("navigation", name="Console").get_by_role("link", name="Questions").click()
        wait_for_value(page.locator("textarea").first, "Half of a sen")
        page.get_by_role("button", name="Revise").first.click()
        page.get_by_text("you sent it back").wait_for()
        page.wait_for_load_state()
        assert [one.input_value().strip() for one in page.locator("textarea").all()] == [""]


MARKS_THE_FIRST_MESSAGE = """
window.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    this.addEventListener("message", () => setTimeout(() => { document.body.dataset.heard = "yes"; }));
  }
};
"""


def test_a_first_message_that_comes_late_is_not_called_a_change(chromium: Any, journal: kt.SqliteJournal) -> None:
    """Only the age of the question differs then, and the page tells ages itself."""
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    with kt.console(journal) as console, person(chromium, console.link) as page:
        page.add_init_script(MARKS_THE_FIRST_MESSAGE)
        page.route("**/questions/stream*", hold)
        page.goto(console.link.partition("?")[0] + "questions")
        page.locator("textarea").fill("Half of a sen")
        page.clock.set_system_time(page.evaluate("Date.now() + 1800000"))
        held[0].continue_()
        page.locator("body[data-heard]").wait_for()
        assert page.get_by_text("This part has changed meanwhile").count() == 0


def test_every_focus_is_seen_and_every_field_is_reached_by_keyboard(chromium: Any, journal: kt.SqliteJournal) -> None:
    with kt.console(journal) as console, person(chromium, console.link, "run?id=run-1") as page:
        others = "[role=tab][aria-selected=false]"  # of a group of tabs one is reached by Tab, the others by arrows
        fields = f"main a, main button:not({others}), main summary, main textarea, main pre"
        wanted = page.evaluate(f"[...document.querySelectorAll('{fields}')].filter((x) => x.checkVisibility()).length")
        reached = 0
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        for _ in range(100):
            page.keyboard.press("Tab")
            if not page.evaluate("document.activeElement.closest('main')"):
                break
            reached += page.evaluate(f"document.activeElement.matches('{fields}')")
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert reached >= wanted


async def live(path: Path, link: Queue[str], go: Event, seen: Event) -> kt.TeamResult:
    """Run a team under a console of the same process, whose first task waits until the test has done its part."""

    async def work(assignment: kt.Assignment) -> str:
        while not go.is_set():
            await anyio.sleep(0.05)
        return " ".join(assignment.directives)

    tasks = [kt.Task("first", "x"), kt.Task("next", "x", depends_on=["first"]), kt.Task("beside", "x")]
    config = kt.TeamConfig(budget=kt.Budget(tokens=100))
    request = kt.TeamExecutionRequest("Sail.", plan=kt.TaskGraph(tasks), run_id="live-1", config=config)
    journal = kt.SqliteJournal(path)
    try:
        async with kt.Runtime(journal=journal) as runtime:
            with kt.console(runtime, person="ada") as console:
                run = await runtime.start(kt.Team("crew", [kt.Member("m", work)]), request)
                link.put(console.link)
                result = await run.result()
                while not seen.is_set():
                    await anyio.sleep(0.05)
                return result
    finally:
        journal.close()


def test_a_run_is_steered_raised_and_partly_cancelled(chromium: Any, tmp_path: Path, axe: str) -> None:
    link: Queue[str] = Queue()
    go, seen = Event(), Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(anyio.run, live, tmp_path / "live.db", link, go, seen)
        try:
            with person(chromium, link.get(timeout=60), "run?id=live-1") as page:
                page.evaluate(OPEN_ALL)
                assert barriers(page, axe) == []
                page.get_by_label("What they must heed from now on").fill("mind the wind")
                page.get_by_role("button", name="Tell them").click()
                page.get_by_role("status").filter(has_text="Done: told").wait_for()
                page.get_by_role("tab", name="What happened").click()
                page.get_by_text("told all members by ada: mind the wind").wait_for()
                assert page.get_by_label("What they must heed from now on").input_value() == "", "it was sent"
                page.get_by_text("Raise the budget").click()
                page.get_by_label("More tokens").fill("50")
                page.get_by_role("button", name="Raise it").click()
                page.get_by_text(re.compile("50 tokens.* by ada")).wait_for()
                page.get_by_role("tab", name="Budget").click()
                page.get_by_text("of 150 spent").wait_for()
                page.locator(".tasks").get_by_role("link", name="first").click()
                page.locator("h2", has_text="first").wait_for()  # else the click may open what is replaced
                page.get_by_text("Cancel this task").click()
                page.get_by_text("This skips 1 more: next. The run then ends degraded, if another").wait_for()
                page.get_by_text("Tell its member something").click()
                page.get_by_label("What it must heed from now on").fill("for the first task alone")
                page.locator(".tasks").get_by_role("link", name="beside").click()
                page.locator("h2", has_text="beside").wait_for()  # else the click may open what is replaced
                page.get_by_text("Cancel this task").click()
                page.get_by_text("No other task needs it.").wait_for()
                assert page.get_by_label("What it must heed from now on").input_value() == "", "each task has its own"
                page.get_by_role("button", name="End this task").click()
                page.get_by_text("cancelled by ada in the console").first.wait_for()
                assert "task=beside" in page.url, "the page is where it was"
                assert "view=budget" in page.url
                go.set()
                page.locator("[data-part=status] .state.degraded, [data-part=status] .state.failed").wait_for()
        finally:
            go.set()
            seen.set()
        result = running.result(60)
    assert result.outcomes[1].artifact is not None
    assert result.outcomes[1].artifact.text == "mind the wind"


def test_a_run_is_cancelled_and_compared(chromium: Any, book: Path, journal: kt.SqliteJournal) -> None:
    alone(begin, book, "run-2")
    with kt.console(journal, person="ada") as console, person(chromium, console.link, "run?id=run-1") as page:
        page.get_by_text("No process has this run now: steer it, raise its budget or cancel one task").wait_for()
        page.get_by_text("Cancel this run").click()
        page.get_by_label("Why (optional)").fill("too late")
        page.get_by_role("button", name="End it for good").click()
        page.locator("[data-part=status] .state.cancelled").wait_for()
        assert page.get_by_role("button", name="Approve").count() == 0
        page.get_by_text("Compare with another run").click()
        page.get_by_role("link", name="run-2").wait_for()  # the other runs of the team are offered
        page.get_by_label("Any other run's id").fill("run-2")
        page.get_by_role("button", name="Compare").click()
        page.get_by_role("heading", name="Two runs").wait_for()
        assert page.get_by_role("row", name="State").inner_text().split() == ["State", "cancelled", "suspended"]
    assert journal.show("run-1").state == "cancelled"
