"""Every page of the console in a real browser: for everybody, on every screen, with hostile and with large things."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.web_console.access import FAILURES
from tests.browsing import OPEN_ALL, barriers, new_context
from tests.web_console.running import HOSTILE, TOKEN, begin
from tests.web_console.visiting import alone, person, record

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
DARK: dict[str, Any] = {"color_scheme": "dark"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 800}}
SCREENS: dict[str, dict[str, Any]] = {"light": {}, "dark": DARK, "phone": PHONE, "dark phone": DARK | PHONE}
LONG_ID, WORD = "x" * 200, "W" * 2_000
PAGES = {
    "runs": "",
    "no runs that fit": "?q=nothing",
    "questions": "questions",
    "an answer was recorded": "questions?done=you+approved+it",
    "a run that waits": "run?id=run-1",
    "a run that has ended": "run?id=run-3",
    "a run with a goal like none": "run?id=run-2",
    "two runs": "compare?a=run-1&b=run-3",
    "no such run": "run?id=none",
    "no such page": "none",
    "a page that takes forms alone": "questions/answer",
}
BROKEN = "[...document.querySelectorAll('.state')].filter((x) => x.offsetHeight > 40)"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNNAMED = "[...document.querySelectorAll('input:not([type=hidden]), textarea, select')].filter((x) => !x.labels.length)"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "runs.db"
    for number, goal in ((1, "Write a letter."), (2, HOSTILE + "a_long_word_" * 40), (3, "Write another.")):
        alone(begin, path, f"run-{number}", goal)
    journal = kt.SqliteJournal(path)
    journal.answer(journal.pending("run-1")[0].id, kt.HumanDecision.defer(), by="Grace")
    journal.cancel("run-3", "It came too late.")
    journal.close()
    return path


def check(page: Any, axe: str, name: str) -> list[str]:
    """Return what keeps somebody from using a page."""
    page.evaluate(OPEN_ALL)
    found = [f"{name}: {rule}: {element}" for rule, element in barriers(page, axe)]
    found += [f"{name}: scrolls sideways"] * (page.evaluate(SIDEWAYS) > 0)
    found += [f"{name}: a state is broken into lines"] * page.evaluate(f"{BROKEN}.length")
    found += [f"{name}: a field without a label"] * page.evaluate(f"{UNNAMED}.length")
    found += [f"{name}: it has no one heading"] * (page.locator("h1").count() != 1)
    found += [f"{name}: it has no one main part"] * (page.locator("main").count() != 1)
    return found


@pytest.mark.parametrize("screen", SCREENS)
def test_no_page_has_a_barrier(chromium: Any, console: Any, axe: str, screen: str) -> None:
    """Axe-core finds nothing serious, nothing scrolls sideways, every field has a label."""
    found: list[str] = []
    with person(chromium, console.link, **SCREENS[screen]) as page:
        for name, path in PAGES.items():
            page.goto(console.link.partition("?")[0] + path)
            found += check(page, axe, name)
    assert found == []


@pytest.mark.parametrize("screen", SCREENS)
def test_pages_without_runs_or_a_session_have_no_barrier(chromium: Any, tmp_path: Path, axe: str, screen: str) -> None:
    journal = kt.SqliteJournal(tmp_path / "empty.db")
    found: list[str] = []
    with kt.console(journal, token=TOKEN) as console:
        address = console.link.partition("?")[0]
        with person(chromium, console.link, **SCREENS[screen]) as page:
            for path in ("", "questions"):
                page.goto(address + path)
                found += check(page, axe, f"empty {path}")
        context = new_context(chromium, **SCREENS[screen])
        stranger = context.new_page()
        stranger.goto(address)
        found += check(stranger, axe, "sign in")
        for _ in range(FAILURES + 1):
            stranger.goto(f"{address}?token=a-wrong-token-of-the-tests")
        assert stranger.locator("h1").inner_text() == "Refused"
        found += check(stranger, axe, "too many wrong tokens")
        context.close()
    journal.close()
    assert found == []


class Escalates:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        finding = kt.Finding(WORD, observed=WORD, expected=WORD)
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, WORD, findings=[finding])


async def say_long_words(journal: kt.SqliteJournal) -> None:
    """Record two runs of a task with the longest words: one waits for a person, the other fails."""

    def say(assignment: kt.Assignment) -> str:
        if assignment.goal == "fail":
            raise ValueError(WORD)
        return WORD

    plan = kt.TaskGraph([kt.Task(LONG_ID, WORD), kt.Task("after", WORD, depends_on=[LONG_ID])])
    coordinator = ExpertTeamCoordinator(evaluator=Escalates(), failure_policy=FailurePolicy(retries=0))
    team = kt.Team(WORD[:100], [kt.Member(WORD[:100], say)], coordinator=coordinator)
    async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
        for run_id, goal in ((LONG_ID, WORD), ("fails", "fail")):
            await kt.run(team, kt.TeamExecutionRequest(goal, plan=plan, run_id=run_id), runtime=runtime)


@pytest.mark.parametrize("screen", ["light", "phone"])
def test_no_word_is_too_long_for_a_screen(chromium: Any, tmp_path: Path, screen: str) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    alone(say_long_words, journal)
    pages = [
        "",
        "questions",
        f"run?id={LONG_ID}",
        "run?id=fails",
        f"compare?a={LONG_ID}&b=fails",
        f"compare?a={LONG_ID}",
    ]
    pages += [f"run/task?id={run}&task={LONG_ID}" for run in (LONG_ID, "fails")]
    pages += [f"run?id={run}#task={LONG_ID}" for run in (LONG_ID, "fails")]
    found: list[str] = []
    with kt.console(journal) as console, person(chromium, console.link, **SCREENS[screen]) as page:
        for path in pages:
            page.goto(console.link.partition("?")[0] + path)
            if "#" in path:
                page.reload()
                page.locator("#chosen h2").wait_for()
            page.evaluate(OPEN_ALL)
            found += [path] * (page.evaluate(SIDEWAYS) > 0)
    journal.close()
    assert found == []


@pytest.mark.parametrize("path", ["", "questions", "run?id=run-2", "compare?a=run-1&b=run-2", "?q=" + HOSTILE])
def test_hostile_text_is_shown_and_runs_nothing(chromium: Any, console: Any, path: str) -> None:
    with person(chromium, console.link, path) as page:
        page.evaluate(OPEN_ALL)
        assert "\u202e" not in page.content()
        assert "\x1b" not in page.content()
        assert page.locator("main script, main [onload]").count() == 0
        if not path.startswith("?"):
            page.get_by_text("<script>alert(1)</script><svg onload=alert(2)>").first.wait_for()


@pytest.mark.parametrize("path", ["questions", "run?id=fat"])
def test_an_artifact_of_50_megabytes_is_cut_and_can_be_saved(chromium: Any, fat: kt.SqliteJournal, path: str) -> None:
    with kt.console(fat) as console, person(chromium, console.link, path) as page:
        page.get_by_text("The first 100,000 of 50,000,002 characters are shown.").wait_for()
        assert page.evaluate("document.documentElement.textContent.length") < 500_000
        page.get_by_text("The texts are too long to compare here").wait_for(state="attached")
        with page.expect_download() as download:
            page.get_by_role("link", name="Save all of it").click()
        saved = Path(download.value.path())
        assert saved.stat().st_size == 50_000_002
        assert download.value.suggested_filename == "subject.txt"
        page.get_by_role("button", name="Approve").wait_for()


@pytest.fixture(scope="module")
def fat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kt.SqliteJournal]:
    path = tmp_path_factory.mktemp("fat") / "runs.db"
    alone(record, path, "fat", 1, "<script>alert(1)</script>".ljust(50_000_000, "x"))
    journal = kt.SqliteJournal(path)
    yield journal
    journal.close()
    path.unlink()


def test_a_run_of_5000_tasks_opens(chromium: Any, tmp_path: Path, axe: str) -> None:
    path = tmp_path / "runs.db"
    alone(record, path, "big", 5_000, "A letter.")
    journal = kt.SqliteJournal(path)
    with kt.console(journal) as console, person(chromium, console.link, "run?id=big") as page:
        page.get_by_text("5,000 done", exact=True).wait_for()  # the graph says it too
        assert 100 <= page.locator("[data-part=tasks] tbody tr").count() <= 1_000
        page.get_by_text("Rows 1 to 200 of 5,000: tasks under way, waiting or failed come first.").wait_for()
        assert page.evaluate("document.querySelectorAll('*').length") < 30_000
        assert check(page, axe, "5,000 tasks") == []
    journal.close()
