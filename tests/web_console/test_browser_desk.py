"""The desk of questions in a browser: a list and a card, walked through and answered with the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import anyio
import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")

import kairo_team as kt
from kairo_team._util.threads import run_in_thread
from tests.web_console.running import TOKEN, begin, letter, office
from tests.web_console.test_browser_pages import SCREENS, check
from tests.web_console.visiting import alone, person

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
FOCUSED = "document.activeElement.textContent"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[kt.SqliteJournal]:
    path = tmp_path / "runs.db"
    for number in (1, 2, 3):
        alone(begin, path, f"run-{number}")
    made = kt.SqliteJournal(path)
    yield made
    made.close()


def card(page: Any) -> str:
    """Return the run whose question is shown; there is one."""
    page.locator("article.question[hidden]").first.wait_for(state="attached")  # the script has begun
    [shown] = page.locator("article.question:visible").all()
    name: str = shown.get_by_role("link", name="run-").inner_text()
    return name


def test_no_card_is_seen_before_the_script_has_chosen_one(chromium: Any, journal: kt.SqliteJournal) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route) if holds else route.continue_()

    holds = True
    with kt.console(journal, token=TOKEN) as console:
        with person(chromium, console.link) as page:
            page.route("**/static/*.js", hold)
            page.goto(console.link.partition("?")[0] + "questions#question=none", wait_until="commit")
            page.get_by_role("link", name="letter").first.wait_for()
            assert page.locator("article.question").count() == 3
            assert page.locator("article.question:visible").count() == 0
            holds = False
            while held:
                held.pop().continue_()
            page.locator("a[data-question][aria-current]").wait_for()
            assert card(page) == "run-1"
        with person(chromium, console.link, "questions", java_script_enabled=False) as page:
            assert page.locator("article.question:visible").count() == 3
            page.get_by_text("Changes since the attempt before").first.wait_for()


def test_questions_are_walked_through_and_answered_by_keys(chromium: Any, journal: kt.SqliteJournal) -> None:
    with kt.console(journal, token=TOKEN) as console, person(chromium, console.link, "questions") as page:
        page.locator("a[data-question][aria-current]").wait_for()
        assert card(page) == "run-1"
        page.keyboard.press("ArrowDown")
        assert card(page) == "run-2"
        for key, name in (("a", "Approve"), ("j", "Reject"), ("d", "Defer")):
            page.keyboard.press(key)
            assert page.evaluate(FOCUSED) == name
        assert len(journal.pending()) == 3, "a key alone answers nothing"
        page.keyboard.press("a")
        page.keyboard.press("Enter")
        page.get_by_text("you approved it").wait_for()
        assert card(page) == "run-3", "the next one is open"
        page.keyboard.press("r")
        page.keyboard.type("jar of a, j and d")
        page.keyboard.press("Control+Enter")
        page.get_by_text("you sent it back with your words").wait_for()
        page.locator("article.question").get_by_role("link", name="run-1").wait_for()  # the one that is left
        page.get_by_role("tab").first.wait_for()
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keys").wait_for()
    assert [one.run_id for one in journal.pending()] == ["run-1"]


def test_the_artifact_its_source_and_its_changes_are_tabs(chromium: Any, journal: kt.SqliteJournal) -> None:
    with kt.console(journal, token=TOKEN) as console, person(chromium, console.link, "questions") as page:
        shown = page.locator("article.question:visible")
        shown.get_by_role("tab", name="The artifact").wait_for()
        shown.get_by_text("be welcome.").first.wait_for()
        page.keyboard.press("2")
        assert shown.get_by_role("tab", name="Changes").get_attribute("aria-selected") == "true"
        assert shown.locator(".diff .added").inner_text().strip().endswith("be welcome.")
        page.keyboard.press("ArrowDown")
        page.locator("article.question:visible .diff").wait_for()  # the next one opens at the same tab


def test_without_a_script_all_questions_are_below_each_other(chromium: Any, journal: kt.SqliteJournal) -> None:
    with (
        kt.console(journal, token=TOKEN) as console,
        person(chromium, console.link, "questions", java_script_enabled=False) as page,
    ):
        assert page.locator("article.question:visible").count() == 3
        page.get_by_role("link", name="run-2").first.click()
        page.get_by_role("button", name="Approve").first.click()
        page.get_by_text("you approved it").wait_for()


@pytest.mark.parametrize("screen", SCREENS)
def test_the_desk_has_no_barrier(chromium: Any, journal: kt.SqliteJournal, axe: str, screen: str) -> None:
    with (
        kt.console(journal, token=TOKEN) as console,
        person(chromium, console.link, "questions", **SCREENS[screen]) as page,
    ):
        page.locator("article.question:visible [role=tab]").first.wait_for()
        found = check(page, axe, "desk")
        page.keyboard.press("2")
        assert found + check(page, axe, "changes") == []


async def ask(path: Path, link: Queue[str], end: Queue[str]) -> None:
    journal = kt.SqliteJournal(path)
    try:
        async with kt.Runtime(journal=journal, gate=kt.JournalGate(journal)) as runtime:
            with kt.console(runtime, person="ada") as console:
                run = await runtime.start(office(), letter("live-1"))
                link.put(console.link)
                await run.result()
                await run_in_thread(end.get)
    finally:
        journal.close()


def test_a_question_whose_task_has_ended_is_withdrawn_and_takes_no_answer(chromium: Any, tmp_path: Path) -> None:
    link, end = Queue[str](), Queue[str]()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(anyio.run, ask, tmp_path / "live.db", link, end)
        try:
            address = link.get(timeout=60)
            with person(chromium, address, "questions") as ada, person(chromium, address, "run?id=live-1") as bob:
                ada.locator("article.question textarea").fill("Warmer, please.")
                bob.locator(".tasks").get_by_role("link", name="letter").click()
                bob.get_by_text("Cancel this task").click()
                bob.get_by_role("button", name="End this task").click()
                bob.get_by_text("the task is being cancelled").wait_for()
                ada.get_by_text("This part has changed meanwhile").wait_for()
                ada.get_by_role("button", name="Revise").click()
                ada.get_by_role("alert").filter(has_text="takes no answer any more: task 'letter' has ended").wait_for()
                ada.get_by_text("No question is open").wait_for()
        finally:
            end.put("")
        asking.result(60)


def test_selected_runs_are_cancelled_together(chromium: Any, journal: kt.SqliteJournal, axe: str) -> None:
    with kt.console(journal, token=TOKEN) as console, person(chromium, console.link, "?q=run") as page:
        button = page.get_by_role("button", name="Cancel them")
        assert not button.is_visible()
        for name in ("run-1", "run-3"):
            page.get_by_role("checkbox", name=f"Select {name}").check()
        page.get_by_text("For good: run-3, run-1.").wait_for()
        assert check(page, axe, "selected") == []
        journal.answer(journal.pending("run-2")[0].id, kt.HumanDecision.approve())
        page.get_by_text("to answer").nth(2).wait_for(state="detached")
        assert page.locator(".select :checked").count() == 2, "an update keeps the selection"
        button.click()
        page.get_by_text("Done: cancelled 2 runs").wait_for()
        assert "q=run" in page.url
    assert [one.state for one in journal.runs()] == ["cancelled", "suspended", "cancelled"]
