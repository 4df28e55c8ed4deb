"""A run's page as a place to work in: tasks are chosen, read and copied, and updates leave the reader in peace."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")

import kairo_team as kt
from tests.browsing import OPEN_ALL, barriers
from tests.web_console.running import TOKEN, begin
from tests.web_console.test_browser_pages import SCREENS, check
from tests.web_console.test_task_pages import write
from tests.web_console.visiting import alone, person, record

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "runs.db"
    alone(write, path)
    alone(begin, path, "run-2")
    alone(record, path, "big", 300, "A letter.")
    return path


def test_a_task_is_chosen_named_in_the_address_and_found_again(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=run-1") as page:
        chosen = page.locator("#chosen")
        assert not chosen.is_visible()
        page.locator(".tasks").get_by_role("link", name="tides").click()
        chosen.get_by_text("Output of attempt 2").wait_for()
        assert page.evaluate("location.hash") == "#task=tides"
        assert page.locator(".tasks tr[aria-current]").get_attribute("data-key") == "tides"
        chosen.get_by_role("tab", name="Attempts and reviews").click()
        assert page.evaluate("location.hash") == "#task=tides&tab=reviews"
        page.reload()
        chosen.get_by_role("heading", name="Attempt 1 sent back").wait_for()
        assert not chosen.get_by_text("Output of attempt 2").is_visible(), "one tab is shown at a time"
        page.locator(".graph a[data-task='print.it']").click()
        chosen.get_by_role("heading", name="print.it").wait_for()


def test_the_name_of_the_chosen_task_is_below_the_bar_on_a_small_screen(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=big", viewport={"width": 390, "height": 700}) as page:
        page.locator(".tasks a[data-task]").filter(visible=True).first.click()
        title = page.locator("#chosen h2")
        title.wait_for()
        page.wait_for_function("document.querySelector('#chosen h2').getBoundingClientRect().top < innerHeight")
        bar = page.locator(".actions").bounding_box()
        assert title.bounding_box()["y"] >= bar["y"] + bar["height"]


def test_without_a_script_a_task_has_a_page(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=run-1", java_script_enabled=False) as page:
        page.get_by_role("link", name="tides").first.click()
        page.wait_for_url(re.compile("/run/task"))
        page.get_by_text("Output of attempt 2").wait_for()
        page.get_by_role("link", name="run-1").first.click()
        page.wait_for_url(re.compile(r"/run\?id=run-1"))


def test_the_keyboard_finds_and_walks_through_tasks(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=big") as page:
        rows = page.locator(".tasks tbody tr:visible")
        page.keyboard.press("/")
        page.keyboard.type("task-9")
        rows.nth(10).wait_for()
        assert rows.count() == 11, "tasks are found that the page did not list"
        page.locator(".tasks a").filter(visible=True).first.focus()
        page.keyboard.press("ArrowDown")
        page.locator("#chosen h2").get_by_text("task-9").first.wait_for()
        page.keyboard.press("ArrowDown")
        page.locator("#chosen h2").get_by_text("task-90").wait_for()
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keys").wait_for()


def test_a_command_and_an_output_are_copied(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=run-1", permissions=["clipboard-read", "clipboard-write"]) as page:
        page.locator("[data-part=output] .copy").click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()").startswith("# Tides\n\n- **two** a day")
        page.goto(console.link.partition("?")[0] + "run?id=run-1#task=tides")
        page.locator("#fork-task summary").click()
        page.locator("#fork-task .copy").click()
        page.locator("#fork-task").get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()").startswith("kairo fork run-1 --before tides")


def test_the_source_of_a_rendered_text_is_one_click_away(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=run-1") as page:
        output = page.locator("[data-part=output]")
        output.locator(".rich").wait_for()
        output.get_by_text("Source").click()
        assert not output.locator(".rich").is_visible()
        output.get_by_text("- **two** a day").wait_for()


def test_a_report_opens_from_the_console_and_works(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=run-1") as page:
        page.get_by_role("link", name="Report").click()
        page.wait_for_selector("[data-tools=tasks]:not([hidden])", state="attached")
        page.locator("#task-1 > summary").click()
        page.locator("#task-1 .made").wait_for()
        assert page.evaluate("origin") == "null", "it cannot read what the console's pages can"


PLACE = """() => { const graph = document.querySelector('.graph'), text = getSelection();
const calls = document.querySelector('#last-calls');
return [graph.scrollLeft, scrollY, text.toString(), document.activeElement.textContent, calls.open] }"""


def test_an_update_keeps_scroll_selection_focus_and_folds(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    alone(begin, path)
    journal = kt.SqliteJournal(path)
    with (
        kt.console(journal, token=TOKEN) as console,
        person(chromium, console.link, "run?id=run-1", viewport={"width": 390, "height": 500}) as page,
    ):
        page.get_by_role("tab", name="Calls").click()
        page.locator("#last-calls summary").click()
        page.get_by_role("tab", name="Graph").click()
        page.locator(".tasks a").first.focus()
        page.evaluate(
            """() => { const graph = document.querySelector('.graph'); graph.scrollLeft = 40; scrollTo(0, 900);
            const range = document.createRange(), words = document.querySelector('[data-part=graph] p');
            range.selectNodeContents(words);
            getSelection().removeAllRanges(); getSelection().addRange(range); }"""
        )
        before = page.evaluate(PLACE)
        assert before[0] == 40
        assert before[2].startswith("Stripe")
        page.evaluate("window.row = document.querySelector('.tasks tbody tr')")
        journal.cancel("run-1", "enough")
        page.locator("[data-part=status] .state.cancelled").wait_for()
        page.locator(".tasks .state.cancelled, .tasks .state.suspended").first.wait_for()
        after = page.evaluate(PLACE)
        assert after[0] == before[0]
        assert after[2:] == before[2:]
        assert page.evaluate("window.row.isConnected"), "a row that stays is the same one"
    journal.close()


def test_updates_of_a_large_run_are_small(chromium: Any, tmp_path: Path) -> None:
    """Only the lines that changed are sent: of 300 tasks, those of the one that ended."""
    path = tmp_path / "runs.db"
    alone(record, path, "big", 300, "A letter.")
    journal = kt.SqliteJournal(path)
    with (
        kt.console(journal, token=TOKEN) as console,
        person(chromium, console.link, "run?id=big") as page,
    ):
        page.evaluate(
            """() => { window.sizes = []; const source = new EventSource('/run/stream?id=big');
            source.onmessage = (message) => sizes.push([message.data.length, message.data]); }"""
        )
        until_sizes(page, 1)
        with journal.database.writing() as connection:
            connection.execute("UPDATE run SET state = 'failed', seq = seq + 1 WHERE run_id = 'big'")
        until_sizes(page, 2)
        first, second = (one[0] for one in page.evaluate("window.sizes")[:2])
        assert first > 50_000
        assert second < 1_000
        assert isinstance(json.loads(page.evaluate("window.sizes")[1][1]), dict)
    journal.close()


def until_sizes(page: Any, number: int) -> None:
    """Wait until so many messages came; the pages' policy forbids functions made of text."""
    for _ in range(1_800):
        if page.evaluate("window.sizes.length") >= number:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"fewer than {number} messages came")


@pytest.mark.parametrize("screen", SCREENS)
def test_no_page_about_tasks_has_a_barrier(chromium: Any, console: Any, axe: str, screen: str) -> None:
    with person(chromium, console.link, **SCREENS[screen]) as page:
        address = console.link.partition("?")[0]
        found: list[str] = []
        for name in ("run?id=run-1#task=tides", "run?id=run-2#task=letter", "run/task?id=run-1&task=tides"):
            page.goto("about:blank")
            page.goto(address + name)
            page.locator(".chosen").wait_for()
            found += check(page, axe, name)
        page.goto(address + "run/report?id=run-1")
        page.wait_for_selector("[data-tools=tasks]:not([hidden])", state="attached")
        page.evaluate(OPEN_ALL)
        found += [f"report: {one}" for one in barriers(page, axe)]
        assert found == []


def test_the_list_of_runs_is_live_and_searched_while_typing(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    alone(begin, path, "run-1")
    alone(begin, path, "other-2")
    journal = kt.SqliteJournal(path)
    with kt.console(journal, token=TOKEN) as console, person(chromium, console.link, "") as page:
        page.get_by_label("Search").press_sequentially("run-")
        page.wait_for_url(re.compile("q=run-"))
        page.locator(".runs tbody tr").filter(has_text="run-1").wait_for()
        assert page.locator(".runs tbody tr").count() == 1
        assert page.evaluate("document.activeElement.id") == "q"
        alone(begin, path, "run-3")
        page.locator(".runs tbody tr").filter(has_text="run-3").wait_for()
        page.get_by_role("link", name="suspended 2").wait_for()
        journal.cancel("run-3", "enough")
        page.get_by_role("link", name="cancelled 1").click()
        page.locator(".runs tbody tr").filter(has_text="run-3").wait_for()
        assert page.locator(".runs tbody tr").count() == 1
    journal.close()
