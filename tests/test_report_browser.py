"""The report in a real browser: hostile text, its policy, long lists, keyboard, phone, accessibility."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from kairo_team.views.report_html import render_report
from kairo_team.views.report_page import Known
from kairo_team.views.run_story import RunStory, tell
from tests.browsing import OPEN_ALL, barriers, new_context
from tests.test_graph_frames import grown as grown_run
from tests.test_report import HOSTILE, tale

pytestmark = pytest.mark.browser


Visit = Callable[..., Any]


@pytest.fixture
def visit(chromium: Any, tmp_path: Path) -> Iterator[Visit]:
    """Open a page from disk; what it asks the network for and complains of is in its `asked` and `said`."""
    contexts: list[Any] = []

    def call(text: str, *, width: int = 1200, scheme: str = "light", before: str = "", plain: bool = False) -> Any:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        size = {"width": width, "height": 900}
        contexts.append(new_context(chromium, viewport=size, color_scheme=scheme, java_script_enabled=not plain))
        page = contexts[-1].new_page()
        page.add_init_script(before)
        page.asked, page.said = [], []

        def ask(request: Any) -> None:
            page.asked.append(request.url)

        def say(message: Any) -> None:
            page.said.append(getattr(message, "text", str(message)))

        page.on("request", ask)
        page.on("console", say)
        page.on("pageerror", say)
        page.goto(file.as_uri())
        if not plain and not before:
            page.wait_for_selector("[data-tools=tasks]:not([hidden])", state="attached")
        return page

    yield call
    for context in contexts:
        context.close()


SCRIPT = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
DRAWING = "<svg onload=document.title='owned'><script>document.title='owned'</script></svg>"
BIDI = "\u202eesrever\u2066\u2067\u200f"
MOST_PAPER = 12
"""Pages of A4 for a hundred tasks."""
FEW = 3
"""Tasks of a page with every kind of text."""
ANSI = "\x1b[31mred\x1b]0;owned\x07\x9b31m\x00"


def hostile(number: int, text: str) -> str:
    """Return the page of a run with a run inside; the text is wherever one may be."""
    story, inner = tell(tale(number, text, rounds=2)), tell(tale(1, text))
    inner.run_id, inner.within = f"inner {text}", ("run-1", "task-1")
    prompt = {"messages": [{"role": text, "text": text, "tool_calls": [{"name": text, "arguments": text}]}]}
    for one in (story, inner):
        for attempt in (attempt for task in one.tasks.values() for attempt in task.attempts):
            attempt.artifact = f"{text}{attempt.number}"
            for call in attempt.calls:
                said: dict[str, object] = {
                    "prompt": prompt,
                    "reply": {"text": text},
                    "arguments": {text: text},
                    "result": text,
                }
                one.texts[call.call_id] = said
    return render_report(story, Known(output=text, error=text, warnings=(text,), commands=(text,)), [inner])


@pytest.mark.parametrize(
    ("number", "text", "shown"),
    [
        (2, HOSTILE, "<script>document.title='owned'</script>"),
        (201, HOSTILE, "<script>document.title='owned'</script>"),
        (2, SCRIPT, SCRIPT),
        (2, DRAWING, DRAWING),
        (2, BIDI, "?esrever??\u200f"),
        (2, ANSI, "?[31mred?]0;owned??31m?"),
    ],
    ids=["all", "all, packed", "script", "svg", "bidi", "ansi"],
)
def test_hostile_text_is_shown_and_does_nothing(visit: Visit, number: int, text: str, shown: str) -> None:
    page = visit(hostile(number, text))
    page.evaluate(OPEN_ALL)
    assert page.title() != "owned"
    assert page.said == []
    assert [url for url in page.asked if not url.startswith("file:")] == []
    body = page.inner_text("main")
    assert shown in body
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", body)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.querySelectorAll('[onload], [onerror]').length") == 0


def test_fifty_megabytes_are_a_page_like_any_other(visit: Visit) -> None:
    text = hostile(2, "0123456789" * 5_000_000)
    assert len(text) < 1_000_000
    page = visit(text)
    page.locator("#task-1 > summary").click()
    said = page.locator("#task-1").inner_text()
    assert "Cut after 20,000 of 50,000,001 characters." in said
    assert page.said == []


def test_without_a_script_the_verdict_the_next_step_and_the_tasks_are_there(visit: Visit) -> None:
    page = visit(render_report(tell(tale(201)), Known("failed", ("kairo fork run-1",))), plain=True)
    words = page.inner_text("body")
    for part in ("The run failed.", "201 of 201 tasks accepted", "kairo fork run-1", "task-100", "And 101 more tasks."):
        assert part in words
    assert "The details of the tasks are packed: a browser that runs this file's script shows them." in words


def test_a_browser_that_cannot_unpack_says_so(visit: Visit) -> None:
    page = visit(render_report(tell(tale(3))), before="delete window.DecompressionStream")
    page.get_by_text("this browser cannot unpack them").wait_for()
    assert page.locator("#task-3").inner_text().startswith("task-3")


def test_paper_has_every_task_and_what_a_reader_opened(visit: Visit) -> None:
    page = visit(hostile(2, "plain"))
    page.locator("#task-1").evaluate("one => { one.open = true; one.querySelector('.calls details').open = true }")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.task:not([open])").count() == 0
    assert page.locator(".calls details[open]").count() == 1
    page.emulate_media(media="print")
    assert page.locator(".made .plain").first.is_visible()
    assert page.locator(".findings").first.is_visible()
    assert not page.locator("nav").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.task[open]").count() == 1


def test_a_hundred_tasks_are_a_few_pages_of_paper(visit: Visit) -> None:
    """Their artifacts have 3,000 characters each: paper shows how they begin."""
    story = tell(tale(100, "a finding of a few words", rounds=2))
    for number, task in enumerate(story.tasks.values()):
        for attempt in task.attempts:
            attempt.artifact = f"{number}.{attempt.number} " + "A line about the tides and the moon.\n" * 80
    paper = visit(render_report(story, Known(output="# Tides\n" + "- two a day\n" * 20))).pdf(format="A4")
    assert 1 < len(re.findall(rb"/Type\s*/Page\b", paper)) <= MOST_PAPER


def test_a_run_inside_is_reached_from_its_task_and_back(visit: Visit) -> None:
    page = visit(hostile(2, "plain"))
    page.locator("#task-1 > summary").click()
    page.get_by_role("link", name="run inside, of team plain").click()
    assert page.evaluate("location.hash") == "#run-2"
    page.locator("#run-2 a").click()
    assert page.locator("#task-1").evaluate("one => one.open")
    assert page.locator("[data-list=tasks-2] > details").count() == 1


def test_a_script_that_is_not_its_own_is_refused(visit: Visit) -> None:
    text = render_report(tell(tale(1))).replace("</main>", "<script>document.title='owned'</script></main>")
    page = visit(text)
    assert page.title() == "plain: completed"
    assert any("Content Security Policy" in said for said in page.said)


def test_a_long_list_is_filtered_sorted_and_continued(visit: Visit) -> None:
    page = visit(render_report(tell(tale(1_000))))
    rows = page.locator("[data-list=tasks] > details")
    assert rows.count() == 100
    page.get_by_role("button", name="Show 100 more").last.click()
    assert rows.count() == 200
    page.get_by_label("Search").fill("TASK-99")
    assert rows.count() == 11
    page.get_by_label("Order").select_option("seconds")
    assert rows.count() == 11
    page.get_by_label("Search").fill("")
    page.get_by_label("State").select_option("done")
    assert page.locator("[data-count=tasks]").inner_text() == "100 of 1,000 shown"
    assert page.said == []


def test_a_link_to_a_task_that_is_not_shown_finds_it(visit: Visit) -> None:
    page = visit(render_report(tell(tale(10_000))))
    for name in ("Show 100 more", "Show 100 more"):
        page.get_by_role("button", name=name).first.click()
    page.get_by_role("link", name="task-300", exact=True).click()
    page.wait_for_selector("#task-300[open]")
    assert page.get_by_label("Search").input_value() == "task-300 ada"


def test_the_keyboard_opens_a_task(visit: Visit) -> None:
    page = visit(render_report(tell(tale(3))))
    page.locator("#task-2 > summary").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#task-2').open")
    page.locator(".time a[href='#task-3']").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#task-3[open]")


def grown() -> RunStory:
    """A run with a map of many items, a loop of three rounds, and an attempt that was sent back."""
    with ThreadPoolExecutor(1) as apart:  # playwright's own loop is in this thread
        return apart.submit(anyio.run, grown_run, 40).result()


@pytest.mark.parametrize("width", [390, 768, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_graph_of_a_plan_that_grew(
    visit: Visit, axe: str, scheme: str, width: int
) -> None:
    page = visit(render_report(grown()), width=width, scheme=scheme)
    page.evaluate(OPEN_ALL)
    assert barriers(page, axe) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_square_of_a_strip_opens_its_task_and_boxes_lie_in_their_frames(visit: Visit) -> None:
    page = visit(render_report(grown()))
    frames = [one.bounding_box() for one in page.locator(".graph .around").all()]
    inside = [one.bounding_box() for one in page.locator(".graph .square rect").all()]
    assert (len(frames), len(inside)) == (2, 40)
    for box in inside:
        assert any(
            frame["x"] < box["x"]
            and frame["y"] < box["y"]
            and box["x"] + box["width"] < frame["x"] + frame["width"]
            and box["y"] + box["height"] < frame["y"] + frame["height"]
            for frame in frames
        )
    back = page.locator(".graph .revised rect").evaluate("one => getComputedStyle(one).stroke")
    done = page.locator(".graph .square:not(.revised) rect").first.evaluate("one => getComputedStyle(one).stroke")
    assert back != done, "an attempt that was sent back is seen in the strip"
    page.locator(".graph a[data-task='read.0007']").click()
    page.wait_for_selector("details.task[open]")
    assert page.locator("details.task[open] > summary b").all_inner_texts() == ["read.0007"]
    assert page.said == []


def test_the_graph_of_tasks_without_neighbours_is_not_blank(visit: Visit) -> None:
    story = tell(tale(22))
    for task in story.tasks.values():
        task.planned = replace(task.planned, depends_on=())
    page = visit(render_report(story))
    picture = page.locator(".graph svg").bounding_box()
    assert picture["height"] < 620
    lowest = max(one.bounding_box()["y"] for one in page.locator(".graph .box").all())
    assert lowest > picture["y"] + picture["height"] - 100


@pytest.mark.parametrize("number", [3, 100])
def test_a_phone_scrolls_down_only(visit: Visit, number: int) -> None:
    page = visit(render_report(tell(tale(number, "a_long_word_" * 20))), width=390)
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
@pytest.mark.parametrize("number", [FEW, 201])
def test_axe_finds_nothing_serious(visit: Visit, axe: str, scheme: str, width: int, number: int) -> None:
    text = hostile(number, "plain") if number == FEW else render_report(tell(tale(number)))
    page = visit(text, width=width, scheme=scheme)
    page.evaluate(OPEN_ALL)
    assert barriers(page, axe) == []
