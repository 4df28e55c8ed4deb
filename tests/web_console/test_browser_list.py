"""The list of a run's tasks, when there are thousands: the page has a window of its rows, wherever the reader is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")

import kairo_team as kt
from tests.browsing import PATIENCE
from tests.web_console.visiting import alone, person, record

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

IN_VIEW = """() => [...document.querySelectorAll('.tasks tr[data-key]')].filter((row) => {
const { top, bottom } = row.getBoundingClientRect();
return top < innerHeight && bottom > 0 }).map((row) => row.dataset.key)"""
TO = "(part) => scrollTo(0, document.querySelector('.tasks').getBoundingClientRect().top + scrollY + part)"
COUNT = "document.querySelectorAll('.tasks tr[data-key]').length"
HEIGHT = "document.querySelector('.tasks').getBoundingClientRect().height"


def wait(page: Any, is_so: Callable[[], bool]) -> None:
    """Ask until it is so: the console's policy forbids playwright's own way."""
    for _ in range(PATIENCE // 100):
        if is_so():
            return
        page.wait_for_timeout(100)
    raise AssertionError(page.evaluate(IN_VIEW))


async def grow(path: Path) -> None:
    """Record a run of a map over 300 items, beside 10 other tasks."""

    async def work(assignment: kt.Assignment) -> kt.Artifact:
        return kt.Artifact("a list", list(range(300)))

    journal = kt.SqliteJournal(path, sync="normal")
    team = kt.Team("office", [kt.Member("clerk", work)])
    others = [kt.Task(f"other-{number}", "Write.") for number in range(9)]
    plan = kt.TaskGraph([*others, kt.Task("list", "List."), kt.Task.map("items", "Write.", over="list", max_items=300)])
    request = kt.TeamExecutionRequest("Write.", plan=plan, run_id="grown")
    try:
        await kt.run(team, request, runtime=kt.Runtime(journal=journal))
    finally:
        journal.close()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("list") / "runs.db"
    alone(record, path, "big", 3_000, "A letter.")
    alone(grow, path)
    journal = kt.SqliteJournal(path)
    with kt.console(journal) as made:
        yield made
    journal.close()


def test_whatever_comes_into_view_has_rows(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=big") as page:
        page.get_by_text("3,000 done", exact=True).wait_for()  # the first page has the events of the beginning
        first = page.evaluate(IN_VIEW)
        seen: set[str] = set()
        for part in (0.0, 0.3, 0.5, 0.99):
            page.evaluate(TO, part * page.evaluate(HEIGHT))
            wait(page, lambda: len(page.evaluate(IN_VIEW)) > 5)
            seen.update(page.evaluate(IN_VIEW))
            assert page.locator(".tasks tr[data-key]").count() == 200
        assert len(seen) > 20
        page.get_by_text("to 3,000 of 3,000").wait_for()
        page.evaluate("scrollTo(0, 0)")
        page.get_by_text("Rows 1 to 200 of 3,000").wait_for()
        wait(page, lambda: page.evaluate(IN_VIEW)[0] == first[0])


def test_the_keyboard_walks_through_all_rows(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=big") as page:
        page.get_by_text("Rows 1 to 200 of 3,000").wait_for()
        page.locator(".tasks a").first.focus()
        for _ in range(3):
            last = page.locator(".tasks tr[data-key]").last.get_attribute("data-key")
            page.locator(f".tasks a[data-task='{last}']").focus()
            wait(page, lambda last=last: page.locator(f"tr[data-key='{last}'] ~ tr[data-key]").count() > 10)  # type: ignore[misc]  # bound now
            assert page.evaluate("document.activeElement.dataset.task") == last, "the row keeps the focus"
            page.keyboard.press("ArrowDown")
            page.locator("#chosen h2").wait_for()
            assert page.evaluate("document.activeElement.dataset.task") != last


def test_a_map_of_hundreds_is_folded_and_opened(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=grown") as page:
        page.locator(".tasks").get_by_text("300 of 300").wait_for()
        assert page.locator(".tasks tr[data-key]").count() == 11
        page.locator(".tasks .fold").click()
        page.get_by_text("Rows 1 to 200 of 311").wait_for()
        page.evaluate(TO, page.evaluate(HEIGHT))
        page.get_by_text("to 311 of 311").wait_for()
        page.evaluate("scrollTo(0, 0)")
        page.locator(".tasks .fold").click()
        wait(page, lambda: page.evaluate(COUNT) == 11)


def test_found_tasks_are_a_list_of_their_own(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=big") as page:
        page.get_by_text("Rows 1 to 200 of 3,000").wait_for()
        page.evaluate(TO, 0.5 * page.evaluate(HEIGHT))
        page.get_by_text(re.compile(r"Rows 1,\d{3} to")).wait_for()
        page.locator("#find").fill("task-2")
        page.get_by_text("Rows 1 to 200 of 1,111").wait_for()
        page.locator("#find").fill("task-2999")
        wait(page, lambda: page.evaluate(COUNT) == 1)


def test_without_a_script_links_show_the_other_rows(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=big", java_script_enabled=False) as page:
        page.get_by_role("link", name="Rows below").click()
        page.get_by_text("Rows 201 to 400 of 3,000").wait_for()
        page.get_by_role("link", name="Rows above").click()
        page.get_by_text("Rows 1 to 200 of 3,000").wait_for()


@pytest.mark.parametrize("width", [390, 1_440])
def test_a_window_moves_no_row_under_the_reader(chromium: Any, console: Any, width: int) -> None:
    """After a jump the rows come, and then stay where they are."""
    with person(chromium, console.link, "run?id=big", viewport={"width": width, "height": 800}) as page:
        page.get_by_text("Rows 1 to 200 of 3,000").wait_for()
        page.evaluate(TO, 0.4 * page.evaluate(HEIGHT))
        wait(page, lambda: len(page.evaluate(IN_VIEW)) > 3)
        for _ in range(4):  # four looks at the journal
            before = page.evaluate(IN_VIEW)
            page.wait_for_timeout(600)
            assert page.evaluate(IN_VIEW) == before


def test_whoever_leaves_a_task_on_a_small_screen_is_where_it_was_chosen(chromium: Any, console: Any) -> None:
    """There the chosen task is below the list, far away, and other rows come into view."""
    with person(chromium, console.link, "run?id=big", viewport={"width": 390, "height": 800}) as page:
        page.get_by_text("3,000 done", exact=True).wait_for()
        page.evaluate(TO, 0.4 * page.evaluate(HEIGHT))
        wait(page, lambda: len(page.evaluate(IN_VIEW)) > 3)
        chosen = page.evaluate(IN_VIEW)[2]
        page.locator(f".tasks a[data-task='{chosen}']").click()
        page.locator("#chosen h2").get_by_text(chosen).wait_for()
        wait(page, lambda: chosen not in page.evaluate(IN_VIEW))
        page.keyboard.press("Escape")
        wait(page, lambda: chosen in page.evaluate(IN_VIEW))
