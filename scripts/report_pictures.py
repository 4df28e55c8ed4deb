"""Take the pictures of docs/report.md: `python -m scripts.report_pictures [FOLDER]`; needs playwright and Chromium.

A scripted team fails at its last task, so that the report has a reason, a next step, and attempts of every kind.
"""

from __future__ import annotations

import logging
import os
import sys
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

import kairo_team as kt
from kairo_team.cli.report_command import report_of_run
from kairo_team.testing import FunctionModel
from tests.browsing import chromium_options

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
RUN: Final = "handbook-7"
WIDTH: Final = 1_000
CHAPTERS: Final = ["arrival", "tides", "moorings", "pilots", "fuel", "water", "waste", "radio", "storms", "ice"]
POLISHED: Final = 2
"""The round in which the text is polished."""


async def answer(request: kt.ModelRequest) -> str:
    """Write like a model that takes its time: first without a source, and with one when a review asks for it."""
    asked = " ".join(message.text for message in request.messages)
    await anyio.sleep(0.15 + len(asked) % 7 / 20)
    if "Print" in asked:
        return "The handbook of the north office, printed."
    source = " [harbour log, p. 4]" if "source" in asked or "tides" not in asked else ""
    return f"# The north office\n\nShips wait at the outer buoy until a pilot comes.{source}\n\n- call on channel 12\n"


class Writer(kt.MiniAgent):
    """An agent on the scripted model."""

    def __init__(self) -> None:
        super().__init__(FunctionModel(answer, name="acme:writer-2", dollars_per_token=Decimal("0.00001")))


async def gather(_: kt.Assignment) -> kt.Artifact:
    """List the chapters."""
    await anyio.sleep(0.4)
    return kt.Artifact("ten chapters", CHAPTERS)


async def check(assignment: kt.Assignment) -> kt.Artifact:
    """Accept the second round."""
    await anyio.sleep(0.2)
    return kt.Artifact(f"round {assignment.inputs['round']}", {"good": assignment.inputs["round"] == POLISHED})


def has_source(artifact: kt.Artifact) -> bool:
    """Look for a source."""
    return "[" in artifact.text


def make_run(journal: kt.SqliteJournal) -> None:
    """Record the run."""
    source = kt.Rubric([kt.Criterion("sourced", "name the source of each claim", check=has_source)])
    polish = kt.Loop(
        [
            kt.Task("edit", "Edit the text.", role="writer"),
            kt.Task("check", "Check it.", depends_on=["edit"], role="editor"),
        ],
        until={"from": "check", "field": "good", "equals": True},
        max_rounds=4,
    )
    plan = kt.TaskGraph(
        [
            kt.Task("gather", "List the chapters.", role="clerk"),
            kt.Task.map("chapter", "Write a chapter.", over="gather", max_items=20, role="writer", evaluator="source"),
            kt.Task("polish", "Polish the text.", depends_on=["chapter"], loop=polish),
            kt.Task("print", "Print it.", depends_on=["polish"], role="writer", evaluator="source"),
        ]
    )
    members = [kt.Member("clerk", gather), kt.Member("editor", check)]
    members += [kt.Member("writer", Writer(), name=name) for name in ("ada", "grace", "mary")]
    team = kt.Team("publishing", members, coordinator=kt.ExpertTeamCoordinator(), evaluators={"source": source})
    runtime = kt.Runtime(journal=journal, content="events")
    goal = "Write the handbook of the north office."
    kt.run_sync(team, goal, plan=plan, run_id=RUN, runtime=runtime, budget=kt.Budget(tokens=40_000, dollars="0.5"))


def take_pictures(page: Path, target: Path) -> None:
    """Take a picture of the report's upper half, and of what is below on a dark page, into a folder."""
    api: Any = import_module("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium_options(playwright))
        graph, tasks = ("section[aria-labelledby=graph]", "section[aria-labelledby=tasks]")
        for name, scheme, first, last in (
            ("report-light.png", "light", "header", graph),
            ("report-dark.png", "dark", tasks, f"{tasks} details[open]"),
        ):
            shown = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme)
            shown.goto(page.as_uri())
            shown.locator("details.task", has_text="chapter.0002").locator("summary").first.click()
            # The prompt of the last attempt, and what changed.
            for details in (".round:last-of-type .calls > li > details", ".round > details:has(.changes)"):
                shown.locator(f"details.task[open] {details} > summary").first.click()
            shown.evaluate("scrollTo(0, 0)")
            top, end = shown.locator(first).bounding_box(), shown.locator(last).first.bounding_box()
            low = end["y"] + end["height"] + 16
            clip = {"x": 0, "y": max(top["y"] - 16, 0), "width": WIDTH, "height": low - max(top["y"] - 16, 0)}
            shown.screenshot(path=target / name, full_page=True, clip=clip)
        browser.close()


def main() -> None:
    """Record the run, write its report and take the pictures."""
    logging.disable()
    with TemporaryDirectory() as folder:
        journal = kt.SqliteJournal(Path(folder) / "runs.db")
        make_run(journal)
        page = Path(folder) / "report.html"
        page.write_text(report_of_run(journal, journal.show(RUN)).replace(folder + os.sep, ""), encoding="utf-8")
        journal.close()
        take_pictures(page, Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)


if __name__ == "__main__":
    main()
