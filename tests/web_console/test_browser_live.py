"""A run without a journal in a real browser: its page fills in while models write, without being loaded again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import anyio
import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")

import kairo_team as kt
from kairo_team import events
from kairo_team._util.threads import run_in_thread
from tests.browsing import barriers
from tests.web_console.visiting import person

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

END = ""
"""What the test says when a model is to end its reply."""


class Writer:
    """Writes what the test says, when it says it."""

    name = "test:writer"

    def __init__(self) -> None:
        self.words: Queue[str] = Queue()

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return await self.stream(request, lambda _: None)

    async def stream(self, request: kt.ModelRequest, on_text: Callable[[str], object]) -> kt.ModelResponse:
        said: list[str] = []
        while word := await run_in_thread(self.words.get):
            said.append(word)
            on_text(word)
        return kt.ModelResponse("".join(said), usage=kt.Usage(20, 10))


async def live(model: Writer, link: Queue[str], end: Queue[str]) -> kt.TeamResult:
    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model(model).complete(kt.ModelRequest([kt.Message.user("write")], max_tokens=50))).text

    plan = kt.TaskGraph([kt.Task("draft", "Write."), kt.Task("edit", "Edit.", depends_on=["draft"])])
    request = kt.TeamExecutionRequest("g", plan=plan, run_id="live-1", config=kt.TeamConfig(budget=kt.Budget(9_000)))
    async with kt.Runtime(content="events") as runtime:
        with kt.console(runtime, person="ada") as console:
            run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), request)
            link.put(console.link)
            result = await run.result()
            await run_in_thread(end.get)
            return result


def test_the_page_of_a_run_fills_in_while_a_model_writes(chromium: Any, axe: str) -> None:
    model, link, end = Writer(), Queue[str](), Queue[str]()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(anyio.run, live, model, link, end)
        try:
            with person(chromium, link.get(timeout=60), "run?id=live-1") as page:
                page.evaluate("window.same = true")
                page.get_by_text("Task draft, m with test:writer: writing").wait_for()
                _write(model, page, "The tide comes in twice a day ", "because of the moon ")
                assert barriers(page, axe) == []
                assert page.locator(".graph .s-running").count() == 1
                assert page.locator(".graph .s-pending").count() == 1
                model.words.put(END)
                page.locator(".graph .s-done").wait_for()
                page.get_by_text("Task edit, m with test:writer: writing").wait_for()
                page.get_by_role("tab", name="Budget").click()
                page.get_by_text("30 of 9,000 spent").wait_for()
                model.words.put("Done")
                model.words.put(END)
                page.locator("[data-part=status] .state.completed").wait_for()
                page.get_by_text("What models write").wait_for(state="detached")
                assert page.evaluate("window.same"), "the page was not loaded again"
        finally:
            for stop in (model.words, model.words, end):
                stop.put(END)
        assert running.result(60).status is kt.TeamStatus.COMPLETED


def _write(model: Writer, page: Any, *texts: str) -> None:
    """Let the model write until the page shows it: what comes at once in the first half second waits for more."""
    for text in texts:
        for _ in range(100):
            model.words.put(text)
            if page.get_by_text(text.strip()).count():
                break
            page.wait_for_timeout(100)
        page.get_by_text(text.strip()).first.wait_for()


async def elsewhere(path: Path, link: Queue[str], end: Queue[str]) -> kt.TeamResult:
    """Run a team on one journal, with a console on another of the same file, as in another process."""

    async def work(assignment: kt.Assignment) -> str:
        if assignment.task.id == "draft":
            await run_in_thread(end.get)
        return "made"

    plan = kt.TaskGraph([kt.Task("draft", "Write."), kt.Task("edit", "Edit.", depends_on=["draft"])])
    request = kt.TeamExecutionRequest("g", plan=plan, run_id="live-1", config=kt.TeamConfig(budget=kt.Budget(9_000)))
    journal, other = kt.SqliteJournal(path), kt.SqliteJournal(path)
    try:
        async with kt.Runtime(journal=journal) as runtime:
            with kt.console(other, person="ada") as console:
                run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), request)
                async for event in run.events():
                    if isinstance(event, events.AttemptStarted):  # now the run is recorded
                        break
                link.put(console.link)
                return await run.result()
    finally:
        journal.close()
        other.close()


def test_a_run_of_another_process_gets_budget_and_loses_a_branch(chromium: Any, tmp_path: Path) -> None:
    link: Queue[str] = Queue()
    end: Queue[str] = Queue()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(anyio.run, elsewhere, tmp_path / "runs.db", link, end)
        try:
            with person(chromium, link.get(timeout=60), "run?id=live-1") as page:
                page.click("#top-up > summary")
                page.fill("#more-tokens", "1,000")
                page.click("text=Raise it")
                page.wait_for_selector("text=budget raised")
                page.goto(page.url.partition("/run")[0] + "/run/task?id=live-1&task=edit")
                page.click("#cancel-this > summary")
                page.click("text=End this task")
                page.wait_for_selector("text=the task is being cancelled")
        finally:
            end.put(END)
        result = ended.result(60)
    assert result.budget is not None
    assert result.budget.budget.tokens == 10_000
    assert str(result.outcomes[1].status) == "skipped"
    assert "cancelled by ada in the console" in str(result.outcomes[1].error)
