"""Take the pictures of the console for docs/: `python -m scripts.console_pictures [FOLDER]`.

A team with a scripted model makes a harbour guide: six sources are read side by side, chapters are written and sent
back, a harbour master is asked. Chromium opens the console while the run goes on, and the report when it has ended. It
needs what `make browser` installs, and Chromium.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

import anyio
from playwright.async_api import Browser, Page, ViewportSize, async_playwright

import kairo_team as kt
from kairo_team.cli.report_command import report_of_run
from kairo_team.testing import FunctionModel
from tests.browsing import chromium_options

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
WIDE: Final = ViewportSize(width=1280, height=860)
SOURCES: Final = ["tide-tables.md", "harbour-log.md", "ferry-times.md", "weather.md", "moorings.md", "fuel.md"]
SECONDS: Final = 0.4
"""How long a reply takes."""
CHAPTERS: Final = {
    "tides": "High water is at **14:20** (2.1 m), low water at **08:10** (0.4 m). The eastern pier falls dry",
    "ferries": "The ferry to the island leaves at 9:00 and 15:00. At low water it does not land",
    "moorings": "Guests moor at the western pier. The eastern pier falls dry",
    "notices": "The crane is out of use until Monday.",
}
REVIEWS: Final = {"tides": "chapter", "ferries": "chapter", "moorings": "chapter", "notices": "signed"}
"""Who reviews each chapter."""
HOW_LONG: Final = " for two hours"
RUN: Final = "harbour-1"


class Desk:
    """The team, its model, and the one chapter that takes until the pictures of the live run are made."""

    def __init__(self) -> None:
        self.asked, self.drawn = anyio.Event(), anyio.Event()
        chapter = kt.Rubric(
            [
                kt.Criterion("short", "at most 60 words", kt.checks.max_words(60)),
                kt.Criterion("exact", "it says for how long", kt.checks.contains(HOW_LONG)),
            ]
        )
        signed = kt.Rubric([kt.Criterion("master", "the harbour master signs it", by="human")])
        member = kt.MiniAgent("m:m", max_turns=4)
        self.team = kt.Team(
            "harbour",
            [kt.Member("researcher", member), kt.Member("writer", member), kt.Member("editor", join)],
            coordinator=kt.ExpertTeamCoordinator(),
            evaluators={"chapter": chapter, "signed": signed},
        )
        chapters = [
            kt.Task(name, f"Write about {name}.", member="writer", depends_on=["read"], evaluator=evaluator)
            for name, evaluator in REVIEWS.items()
        ]
        self.plan = kt.TaskGraph(
            [
                kt.Task("list", "List the sources.", member="researcher", output_type=list[str]),
                kt.Task.map("read", "Read the source `item`.", over="list", max_items=10, member="researcher"),
                *chapters,
                kt.Task("guide", "Join the chapters.", member="editor", depends_on=[task.id for task in chapters]),
            ]
        )

    def hear(self, event: kt.events.Event) -> None:
        """Note that a person is asked."""
        if event.type == "human.requested":
            self.asked.set()

    async def reply(self, request: kt.ModelRequest) -> kt.ModelResponse:
        """Read, write, and mend what a finding names."""
        asked = "\n".join(message.text for message in request.messages)
        await anyio.sleep(SECONDS)
        chapter = re.search(r"Write about ([a-z]+)", asked)
        if chapter is None:
            found = re.search(r"[a-z-]+\.md", asked)
            text = f"`{found[0]}`: high water at 14:20, wind from the west." if found else json.dumps(SOURCES)
        else:
            if chapter[1] == "moorings":
                await self.drawn.wait()
            how_long = HOW_LONG if "for how long" in asked else ""
            text = f"**{chapter[1].capitalize()}.** {CHAPTERS[chapter[1]]}".removesuffix(".") + f"{how_long}."
        return kt.ModelResponse(text, usage=kt.Usage(len(asked) // 4, len(text) // 4), model="m")


def join(assignment: kt.Assignment) -> str:
    """Join the chapters."""
    return "# Harbour guide\n\n" + "\n\n".join(artifact.text for artifact in assignment.upstream.values())


async def draw(folder: Path, work: Path, browser: Browser) -> None:
    """Run the team, and take the pictures."""
    desk, journal = Desk(), kt.SqliteJournal(work / "runs.db")
    models = {"m:m": FunctionModel(desk.reply, name="m:m")}
    budget = kt.Budget(tokens=60_000, loops=80)
    async with kt.Runtime(
        models=models, journal=journal, gate=kt.JournalGate(journal), content="journal", subscribers=[desk.hear]
    ) as runtime:
        with kt.console(runtime) as console:
            page = await browser.new_page(viewport=WIDE)
            await page.goto(console.link)
            run = await runtime.start(desk.team, "Make the harbour guide.", plan=desk.plan, budget=budget, run_id=RUN)
            address = console.link.partition("/?")[0]
            await desk.asked.wait()
            await anyio.sleep(2)  # until the page has the last change
            await page.goto(f"{address}/run?id={RUN}")
            await shoot(page, folder / "console.png")
            await page.goto(f"{address}/run?id={RUN}#task=moorings")
            await page.get_by_text("Cancel this task").first.click()
            await shoot(page, folder / "console-task.png")
            await page.goto(f"{address}/questions")
            await shoot(page, folder / "console-question.png")
            for question in journal.pending():
                journal.answer(question.id, kt.HumanDecision.approve())
            desk.drawn.set()
            result = await run.result()
            await page.goto(f"{address}/run?id={RUN}")
            await shoot(page, folder / "console-ended.png")
            result.check()
            report = work / "report.html"
            report.write_text(report_of_run(journal, journal.show(RUN)), encoding="utf-8")
            page = await browser.new_page(viewport=ViewportSize(width=900, height=640))
            await page.goto(report.as_uri())
            await shoot(page, folder / "report-newsroom.png")
    journal.close()


async def shoot(page: Page, target: Path) -> None:
    """Wait for the page to be whole, and take its picture."""
    await page.wait_for_timeout(1500)
    await page.screenshot(path=target)


async def main() -> None:
    """Take all pictures into the folder that the command line names, or into docs/."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**chromium_options(playwright))
        with tempfile.TemporaryDirectory() as work:
            await draw(folder, Path(work), browser)
        await browser.close()


if __name__ == "__main__":
    anyio.run(main)
