"""The views of a run in a browser: the tree of its tasks, tabs, and what an open page is sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")

import kairo_team as kt
from kairo_team.coordinators import TaskDispatchCoordinator
from tests.web_console.running import begin
from tests.web_console.test_browser_pages import SCREENS, check
from tests.web_console.visiting import alone, person

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
ITEMS = [f"part {number}" for number in range(10)]


async def grow(path: Path) -> None:
    """Record a run with a map of ten tasks, one of which fails, and a loop of two rounds."""

    async def work(assignment: kt.Assignment) -> kt.Artifact:
        if assignment.task.id == "read.0003":
            raise ValueError("it cannot be read")
        if assignment.task.id == "list":
            return kt.Artifact(json.dumps(ITEMS), ITEMS)
        passed = {"passed": assignment.task.id == "polish.02.check"}
        return kt.Artifact(json.dumps(passed), passed)

    body = [kt.Task("draft", "Draft it."), kt.Task("check", "Check it.", depends_on=["draft"])]
    until = {"from": "check", "field": "passed", "equals": True}
    plan = kt.TaskGraph(
        [
            kt.Task("list", "List the parts."),
            kt.Task.map("read", "Read `item`.", over="list", max_items=20),
            kt.Task("polish", "Polish it.", loop=kt.Loop(body, until=until, max_rounds=5), depends_on=["list"]),
        ]
    )
    journal = kt.SqliteJournal(path)
    team = kt.Team("readers", [kt.Member("ada", work)], coordinator=TaskDispatchCoordinator())
    try:
        async with kt.Runtime(journal=journal, content="journal") as runtime:
            await kt.run(team, kt.TeamExecutionRequest("Read it.", plan=plan, run_id="grown"), runtime=runtime)
    finally:
        journal.close()


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("views") / "runs.db"
    alone(grow, path)
    alone(begin, path, "run-1")
    return path


def shown(page: Any) -> list[str]:
    """Return the tasks of the list that can be seen."""
    rows: list[str] = page.locator(".tasks tr[data-key]:visible").evaluate_all("rows => rows.map((x) => x.dataset.key)")
    return rows


def test_a_map_and_a_loop_fold(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=grown") as page:
        rounds = [f"polish.0{number}.{name}" for number in (1, 2) for name in ("draft", "check")]
        page.locator(".tasks .fold").first.wait_for()
        assert shown(page) == ["list", "read", "polish", *rounds], "a map of more than eight tasks is folded at first"
        page.locator(".tasks tr[data-key=read]").get_by_text("9 of 10").wait_for()
        page.get_by_role("button", name="Tasks of read").click()
        assert len(shown(page)) == 17
        page.locator(".tasks a[data-task=polish]").focus()
        page.keyboard.press("ArrowLeft")
        assert len(shown(page)) == 13
        page.reload()
        page.get_by_label("Find").fill("0003")
        assert shown(page) == ["read.0003"], "what is folded is found"
        page.keyboard.press("Enter")
        page.locator("#chosen").get_by_text("it cannot be read").first.wait_for()


def test_a_link_opens_a_folded_task_and_its_tab(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=grown#task=read.0004&tab=reviews&view=budget") as page:
        page.locator("#chosen").get_by_role("heading", name="Attempt 1").wait_for()
        assert "read.0004" in shown(page)
        assert page.get_by_role("tab", name="Budget").get_attribute("aria-selected") == "true"
        page.locator("[data-part=budget]").wait_for()
        assert not page.locator("[data-part=graph]").is_visible()
        page.get_by_role("button", name="Leave the task").click()
        assert page.evaluate("location.hash") == "#view=budget"
        assert page.evaluate("document.activeElement.textContent") == "read.0004"


def test_tabs_are_walked_by_keyboard(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=grown") as page:
        page.get_by_role("tab", name="Graph").focus()
        for name in ("Budget", "Calls", "Files", "What happened", "Graph"):
            page.keyboard.press("ArrowRight")
            assert page.evaluate("document.activeElement.textContent") == name
            assert page.get_by_role("tabpanel").filter(visible=True).count() == 1


def test_a_page_is_sent_the_open_tab_alone(chromium: Any, console: Any) -> None:
    wanted = re.compile(r"/run/stream\?.*tab=calls")  # the request for the first tab may come late
    with person(chromium, console.link, "run?id=grown") as page, page.expect_request(wanted) as asked:
        page.get_by_role("tab", name="Calls").click()
    assert asked.value.url.count("tab=") == 1


def test_the_bars_of_a_timeline_have_their_places(chromium: Any, console: Any) -> None:
    """The page has seconds: the script puts them where they belong, also after an update."""
    with person(chromium, console.link, "run?id=run-1") as page:
        page.locator(".tasks rect[width]").first.wait_for()
        table = page.locator("table.tasks")
        for piece in page.locator(".tasks tr[data-key=letter] rect").all():
            at = float(piece.get_attribute("data-from")) / float(table.get_attribute("data-span")) * 100
            assert abs(float(piece.get_attribute("x").rstrip("%")) - at) < 0.3
            assert piece.bounding_box()["width"] > 0


def test_without_a_script_all_views_are_below_each_other(chromium: Any, console: Any) -> None:
    with person(chromium, console.link, "run?id=grown", java_script_enabled=False) as page:
        assert page.locator("[data-tab]:visible").count() == 5
        assert len(page.locator(".tasks tr[data-key]:visible").all()) == 17


@pytest.mark.parametrize("screen", SCREENS)
def test_no_view_has_a_barrier(chromium: Any, console: Any, axe: str, screen: str) -> None:
    with person(chromium, console.link, **SCREENS[screen]) as page:
        found: list[str] = []
        for view in ("graph", "budget", "calls", "notes"):
            page.goto("about:blank")
            page.goto(console.link.partition("?")[0] + f"run?id=grown#task=read.0003&tab=reviews&view={view}")
            page.locator("#chosen [role=tab]").first.wait_for()
            found += check(page, axe, view)
        assert found == []
