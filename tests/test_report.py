"""The report: what it says, that hostile text stays text, and how big it is."""

from __future__ import annotations

import base64
import cProfile
import hashlib
import json
import random
import re
import zlib
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.events import Event, PlannedTask, event_from_json
from kairo_team.messages import Billing
from kairo_team.testing import EventRecorder, FunctionModel
from kairo_team.verdicts import CriterionResult
from kairo_team.views.progress import RowState
from kairo_team.views.report_html import known_of_result, render_report, story_of_result
from kairo_team.views.report_page import Known, reasons
from kairo_team.views.report_parts import Packed
from kairo_team.views.report_text import changes, cut, fair_share
from kairo_team.views.run_costs import costs
from kairo_team.views.run_story import RunStory, tell

HOSTILE = (
    "</script><script>document.title='owned'</script><svg onload=document.title='owned'>"
    "<img src=x onerror=document.title='owned'>\u202eesrever\u2066\x1b[31mred\x1b]0;owned\x07 {{ 7 * 7 }} "
    "\ud83d \x00&amp;"
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def tale(number: int, text: str = "plain", *, rounds: int = 1) -> list[Event]:
    """Return the events of a run of this many tasks, one after the other, with this text wherever text may be."""
    told: list[Event] = []

    def add(kind: type[Event], *own: object) -> None:
        told.append(kind("run-1", len(told) + 1, START + timedelta(seconds=len(told) / 10), *own))

    add(events.TeamStarted, text, text, ("ada",))
    ids = [f"task-{one}" for one in range(1, number + 1)]
    graph = tuple(PlannedTask(one, (ids[at - 1],) if at % 10 else (), 1, ("ada",)) for at, one in enumerate(ids))
    add(events.PlanReady, tuple(ids), graph)
    add(events.BudgetCarved, None, "ada", 900, None)
    dime = 100_000_000_000  # picodollars
    for one in ids:
        add(events.TaskAssigned, one, "ada")
        add(events.BudgetCarved, one, "ada", 50, dime)
        for attempt in range(1, rounds + 1):
            add(events.AttemptStarted, one, "ada", attempt)
            call = f"{one}.{attempt}"
            add(events.ModelStarted, one, "ada", "m:x", call, 1, "generate", attempt, 30)
            usage = kt.Usage(20, 5, Decimal("0.0001"))
            add(events.ModelCalled, one, "ada", "m:x", "ok", 30, usage, call, 1, "generate", attempt, 0.1)
            add(events.ToolCalled, one, "ada", "shell", "refused", "policy", text, f"{call}.t", attempt)
            add(events.AttemptFinished, one, "ada", attempt, "completed", usage)
            add(events.EvaluationStarted, one, "ada", attempt)
            criteria = [CriterionResult("sourced", text[:20], attempt == rounds, text)]
            verdict = kt.EvaluationVerdict.passed(1.0, criteria=criteria)
            if attempt < rounds:
                verdict = kt.EvaluationVerdict.revise(
                    text, findings=[kt.Finding("f", text, observed=text)], criteria=criteria
                )
            add(events.EvaluationResult, one, "ada", attempt, verdict, 0.1)
        add(events.TaskCompleted, one, "ada", rounds, text)
        add(events.BudgetReturned, one, "ada", kt.Usage(20 * rounds, 5 * rounds))
    add(events.TeamCompleted, kt.TeamStatus.COMPLETED, 9.0, kt.Usage(20 * number * rounds, 5 * number * rounds))
    return told


class Page(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.text += " " if tag in ("th", "td", "span", "b", "p", "h3") else ""

    def handle_data(self, data: str) -> None:
        self.text += data


def unpacked(page: str) -> dict[str, list[list[object]]]:
    """Return the rows that a page has packed, by the name of their list."""
    [packed] = re.findall('<script type="text/plain" id="rows">([^<]*)</script>', page)
    found: dict[str, list[list[object]]] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


def page_of(story: RunStory, known: Known | None = None) -> tuple[str, Page]:
    """Return a page with its packed rows behind it, and what it parses to."""
    page = render_report(story, known)
    page += "".join(str(html) for rows in unpacked(page).values() for html, *_ in rows)
    return page, Page(page)


def test_it_says_how_the_run_ended_why_and_what_to_do() -> None:
    story = tell(tale(3))
    _, page = page_of(story, Known("suspended", ("kairo resume run-1 --journal runs.db",)))
    for words in ("The run waits for a person.", "3 of 3 tasks accepted", "kairo resume run-1 --journal runs.db"):
        assert words in page.text
    headings = [words.strip() for words in re.findall(r"<h2[^>]*>([^<]*)", render_report(story, Known(output="It.")))]
    assert headings == [
        "The output",
        "Timeline",
        "Tasks and their dependencies",
        "Budget",
        "Tasks",
        "What it cost",
    ]


def test_the_first_line_has_the_facts() -> None:
    story = tell(tale(100, rounds=2))
    _, page = page_of(story, Known(limits=kt.Budget(tokens=9_000)))
    line = "100 of 100 tasks accepted · 100 after one revision · 5,000 of 9,000 tokens · 9 s"
    assert line in page.text
    task = story.tasks["task-1"]
    task.attempts[0].verdict = task.attempts[1].verdict
    task.state = RowState.FAILED
    assert "99 of 100 tasks accepted, 1 failed · 99 after one revision" in page_of(story)[1].text


def test_a_completed_run_has_no_why_and_each_cause_is_told_once() -> None:
    story = tell(tale(8))
    assert "Why" not in re.findall(r"<h2[^>]*>([^<]*)", render_report(story))
    for task in list(story.tasks.values())[:7]:
        task.state, task.reason = RowState.FAILED, "no money was left"
    _, page = page_of(story, Known("failed", error="the run halted"))
    assert page.text.count("no money was left") == 1 + 7, "once above, once with each task"
    assert "task-1, task-2, task-3, task-4, task-5 and 2 more: no money was left" in page.text


@pytest.mark.parametrize("more", ["", " of the\n\x1b[31msource", " of the source" * 40])
async def test_why_a_run_waits_is_told_once_beside_what_failed(more: str) -> None:
    async def work(assignment: kt.Assignment) -> str:
        if assignment.task.id == "fails":
            raise ValueError(f"no page 12{more}")
        return "x"

    class Asks:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, f"who reads {context.task.id}?")

    experts = ExpertTeamCoordinator(evaluator=Asks(), failure_policy=FailurePolicy(retries=0))
    plan = kt.TaskGraph([kt.Task(name, "x") for name in ("one", "two", "fails")])
    recorder = EventRecorder()
    async with kt.Runtime(gate=kt.DeferGate(), subscribers=[recorder]) as runtime:
        request = kt.TeamExecutionRequest("g", plan=plan)
        result = await kt.run(kt.Team("t", [kt.Member("m", work)], coordinator=experts), request, runtime=runtime)
    story = tell(recorder.events)
    why = list(reasons(story, known_of_result(result)))
    for words in ("who reads one?", "who reads two?", "no page 12"):
        assert sum(words in line for line in why) == 1, why
    brief = list(reasons(story, known_of_result(result), with_questions=False))
    assert brief[1] == "one, two wait for a person"
    assert not any("who reads" in line for line in brief)
    alone = list(reasons(story_of_result(result), known_of_result(result)))
    assert sum("who reads one?" in line for line in alone) == 1, "a result has no questions: its error says them"


def test_the_output_is_open_and_rendered() -> None:
    text, page = page_of(tell(tale(1)), Known(output="# Tides\n\n- <b>two</b> a day"))
    assert "<h4>Tides</h4>" in text
    assert "<b>two</b> a day" in page.text
    output = text[text.index('id="output"') : text.index('id="timeline"')]
    assert "Tides" in output.partition("<details")[0], "it is not folded"


def test_a_table_of_contents_leads_to_every_heading() -> None:
    text, page = page_of(tell(tale(1)), Known("failed", error="x", output="y"))
    links = [str(found["href"]) for tag, found in page.elements if tag == "a"]
    assert links[:6] == ["#why", "#output", "#timeline", "#graph", "#budget", "#tasks"]
    assert all(f'id="{one[1:]}"' in text for one in links)


def test_a_sent_back_attempt_looks_sent_back() -> None:
    _, page = page_of(tell(tale(1, rounds=2)))
    styles = [found.get("class") for tag, found in page.elements if tag == "rect"]
    assert styles.count("a-back") == 2, "the legend, and the first attempt"
    assert "Attempt 1 sent back" in page.text
    assert "Attempt 2 completed" in page.text


@pytest.mark.anyio
async def test_an_attempt_that_changed_nothing_is_sent_back_too() -> None:
    texts = iter(["A draft!", "A draft!", "A draft."])

    def is_calm(artifact: kt.Artifact) -> bool:
        return "!" not in artifact.text

    def write(_: kt.Assignment) -> str:
        return next(texts)

    calm = kt.Rubric([kt.Criterion("calm", "it does not shout", check=is_calm)])
    coordinator = kt.ExpertTeamCoordinator(evaluator=calm)
    recorder = EventRecorder()
    team = kt.Team("t", [kt.Member("m", write)], coordinator=coordinator)
    await kt.run(team, "go", runtime=kt.Runtime(subscribers=[recorder]))
    _, page = page_of(tell(recorder.events))
    assert "Attempt 1 sent back" in page.text
    assert "Attempt 2 sent back" in page.text
    assert "Attempt 3 completed" in page.text
    assert "1 after several revisions" in page.text


@pytest.mark.anyio
async def test_the_last_attempt_of_a_task_that_failed_in_its_reviews_looks_failed() -> None:
    def is_calm(artifact: kt.Artifact) -> bool:
        return "!" not in artifact.text

    calm = kt.Rubric([kt.Criterion("calm", "it does not shout", check=is_calm)])
    coordinator = kt.ExpertTeamCoordinator(evaluator=calm)
    recorder = EventRecorder()
    team = kt.Team("t", [kt.Member("m", lambda _: "A draft!")], coordinator=coordinator)
    await kt.run(team, "go", runtime=kt.Runtime(subscribers=[recorder]))
    _, page = page_of(tell(recorder.events))
    last = max(int(number) for number in re.findall(r"Attempt (\d+)", page.text))
    assert f"Attempt {last} not accepted" in page.text
    assert "Attempt 1 sent back" in page.text
    styles = [found.get("class") for tag, found in page.elements if tag == "rect"]
    assert "a-ok" not in styles
    assert "a-error" in styles


def test_a_task_has_its_description() -> None:
    story = tell(tale(1))
    task = story.tasks["task-1"]
    task.planned = replace(task.planned, description="Write about <tides>.")
    assert "Write about <tides>." in page_of(story)[1].text


def test_it_shows_budgets_criteria_and_refusals() -> None:
    _, page = page_of(tell(tale(1, rounds=2)))
    words = " ".join(page.text.split())
    assert "ada 900 50 850" in words
    assert "task-1 50 $0.1 50 0 $0.1" in words
    assert "sourced not met plain met plain" in words
    assert "refused policy: plain" in words
    assert "m:x generate 2 40 10" in words


def test_the_budget_is_told_in_tokens_and_dollars() -> None:
    told = tale(1)
    cut_short = next(at for at, event in enumerate(told) if isinstance(event, events.ModelCalled))
    started = told[cut_short - 1]
    assert isinstance(started, events.ModelStarted)
    open_call = [*told[: cut_short - 1], replace(started, held_picodollars=20_000_000_000)]
    _, page = page_of(tell(open_call), Known(limits=kt.Budget(tokens=1_000, dollars="2")))
    words = " ".join(page.text.split())
    assert "the run 1,000 $2 0 30 $0.02 ada 900 0 30 $0.02 task-1 50 $0.1 0 30 $0.02" in words
    returned = next(at for at, event in enumerate(told) if isinstance(event, events.BudgetReturned))
    told[returned] = events.BudgetReturned(
        "run-1", returned, told[returned].at, "task-1", "ada", kt.Usage(70, 0, Decimal("0.13"))
    )
    _, page = page_of(tell(told))
    assert "task-1 50 $0.1 20 $0.03 70 $0.13 0 $0" in " ".join(page.text.split())


def test_hostile_text_is_text() -> None:
    story = tell(tale(2, HOSTILE, rounds=2))
    for task in story.tasks.values():
        for attempt in task.attempts:
            attempt.artifact = HOSTILE + str(attempt.number)
    text, page = page_of(story, Known(output=HOSTILE, error=HOSTILE, warnings=(HOSTILE,), commands=(HOSTILE,)))
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "link", "base", "form")]
    assert not [name for _, found in page.elements for name in found if name.startswith("on") or name == "style"]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert "</script><script>document.title" in page.text
    assert "{{ 7 * 7 }}" in page.text
    text.encode()


def test_the_verdict_and_a_line_of_each_task_stand_in_the_page_itself() -> None:
    plain = Page(render_report(tell(tale(201)), Known("failed", ("kairo fork run-1",))))
    for words in ("The run failed.", "201 of 201 tasks accepted", "kairo fork run-1", "And 101 more tasks."):
        assert words in plain.text
    lines = [found["id"] for tag, found in plain.elements if tag == "p" and "id" in found]
    assert lines == [f"task-{number}" for number in range(1, 101)]
    assert "noscript" in [tag for tag, _ in plain.elements]


def test_nothing_but_its_own_style_and_script_may_run() -> None:
    page, parsed = page_of(tell(tale(3)))
    [policy] = [str(found["content"]) for tag, found in parsed.elements if tag == "meta" and "http-equiv" in found]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind in ("style", "script"):
        [body] = re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL)  # what is packed has a type, and is never run
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    outside = [found for _, found in parsed.elements for name, value in found.items() if "://" in f"{name}{value}"]
    assert outside == []


def test_rows_are_packed_list_by_list() -> None:
    packed = Packed()
    lists: dict[str, list[list[object]]] = {
        "tasks": [["<p>\u00e9</p>", "done", 1]],
        "none": [],
        "more": [["a"], ["b", 2.5]],
    }
    for name, rows in lists.items():
        packed.add(name, iter(rows))
    assert unpacked(f'<script type="text/plain" id="rows">{packed.text()}</script>') == lists


def test_a_huge_artifact_is_cut_with_a_sentence() -> None:
    story = tell(tale(1))
    story.tasks["task-1"].attempts[0].artifact = "x" * 50_000_000
    page, parsed = page_of(story, Known(output="y" * 50_000_000))
    assert len(page) < 100_000
    assert "Cut after 20,000 of 50,000,000 characters." in parsed.text


def test_the_last_artifact_is_shown_though_a_later_attempt_made_none() -> None:
    story = tell(tale(1, rounds=2))
    story.tasks["task-1"].attempts[0].artifact = "the first draft"
    assert "the first draft" in page_of(story)[1].text


def test_a_secret_across_a_cut_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    def mask(text: str) -> str:
        return text.replace("hunter2hunter2", "[secret]")

    monkeypatch.setattr("kairo_team.views.report_text.clean", mask)
    assert cut("a" * 95 + "hunter2hunter2", 100)[0] == "a" * 95 + "[secr"


def prose(rnd: random.Random, words: list[str], length: int) -> str:
    """Return lines of words that come as often as in a language, about this many characters together."""
    found = rnd.choices(words, [1 / (at + 5) for at in range(len(words))], k=length // 6)
    return "\n".join(" ".join(found[at : at + 12]) for at in range(0, len(found), 12))


def test_a_hundred_tasks_of_two_reviewed_rounds_are_small() -> None:
    rnd = random.Random(4)  # noqa: S311 - no secret
    words = ["".join(rnd.choices("etaoinshrdlu", k=rnd.randint(2, 9))) for _ in range(4_000)]
    story = tell(tale(100, prose(rnd, words, 120), rounds=2))
    for task in story.tasks.values():
        task.attempts[0].artifact = made = prose(rnd, words, rnd.randint(2_000, 4_000))
        lines = made.splitlines()
        lines[len(lines) // 2 :: 3] = [prose(rnd, words, 80) for _ in lines[len(lines) // 2 :: 3]]
        task.attempts[1].artifact = "\n".join(lines)
    assert len(render_report(story).encode()) < 300_000
    _, parsed = page_of(story)
    assert all(str(task.attempts[1].artifact)[:2_000] in parsed.text for task in story.tasks.values())


def test_a_task_of_a_large_report_takes_a_bounded_number_of_calls() -> None:
    """Reading its 11 events included; a call is one of any function, also of C, so the machine does not matter."""

    def calls(number: int) -> int:
        lines = [event.to_json() for event in tale(number)]
        profile = cProfile.Profile()
        profile.runcall(lambda: render_report(tell(map(event_from_json, lines))))
        return sum(entry.callcount for entry in profile.getstats())

    few = calls(1_100) and calls(1_100)  # the first time imports, and compiles the templates
    assert calls(1_300) - few < 200 * 1_750


def test_changes_between_rounds() -> None:
    assert changes("one\ntwo\nthree", "one\n2\nthree", 8_000) == [
        ("same", "@@ -1,3 +1,3 @@"),
        ("same", " one"),
        ("del", "-two"),
        ("add", "+2"),
        ("same", " three"),
    ]
    assert changes("x\n" * 300, "y\n" * 300, 8_000)[-1][1].endswith("more lines of the comparison")


@pytest.mark.parametrize(
    ("lengths", "whole", "share"),
    [([], 10, 10), ([1, 2, 3], 10, 10), ([1, 9, 9], 11, 5), ([100, 100], 10, 5), ([1, 1, 30, 40], 50, 24)],
)
def test_texts_share_the_room_there_is(lengths: list[int], whole: int, share: int) -> None:
    assert fair_share(lengths, whole) == share


@kt.tool(side_effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


async def spoken(content: Literal["none", "events", "journal"], journal: kt.SqliteJournal | None = None) -> list[Event]:
    """Return what a subscriber gets of a run whose member asks a model twice and a tool once."""

    def reply(request: kt.ModelRequest) -> kt.ModelResponse | str:
        if any(message.role == "tool" for message in request.messages):
            return "it is s3cr3t-token blue"
        return kt.ModelResponse("let me look", [kt.ToolCall("c", "look", {"what": "the <sky>"})], kt.Usage(40, 40))

    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder], content=content, secrets=["s3cr3t-token"], journal=journal)
    team = kt.Team("t", [kt.Member("m", kt.MiniAgent(FunctionModel(reply), tools=[look]))], runtime=runtime)
    await kt.run(team, "go", plan=kt.TaskGraph([kt.Task("one", "Name the colour.")]), run_id="run-1")
    return recorder.events


@pytest.mark.anyio
async def test_prompts_replies_arguments_and_results_are_shown_where_they_are_recorded() -> None:
    text, page = page_of(tell(await spoken("events")))
    words = " ".join(page.text.split())
    for said in (
        "Your task: Name the colour.",
        'let me look calls look {"what": "the <sky>"}',
        '{ "what": "the <sky>" }',
        "saw the <sky>",
        "messages of the call before)",
        "it is [secret] blue",
    ):
        assert said in words, said
    assert words.count("Your task: Name the colour.") == 1, "the second prompt repeats the first"
    assert "s3cr3t-token" not in text
    assert "were not recorded" not in words


@pytest.mark.anyio
async def test_a_call_has_its_shares_of_cache_and_reasoning() -> None:
    billing = Billing(cached_tokens=70, reasoning_tokens=1204)
    reply = kt.ModelResponse("Tides.", usage=kt.Usage(100, 1300), billing=billing)
    recorder = EventRecorder()
    team = kt.Team("t", [kt.Member("m", kt.MiniAgent(FunctionModel(lambda _: reply)))])
    await kt.run(team, "go", runtime=kt.Runtime(subscribers=[recorder]))
    _, page = page_of(tell(recorder.events))
    assert "1,400 tokens, reasoning, 1,204 tokens, cached, 70 tokens" in " ".join(page.text.split())


@pytest.mark.anyio
async def test_without_content_a_sentence_says_how_to_have_it() -> None:
    _, page = page_of(tell(await spoken("none")))
    assert 'Runtime(content="events"), records them' in page.text


@pytest.mark.anyio
@pytest.mark.real_time
async def test_content_of_the_journal_is_shown_from_the_journal(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    _, of_file = page_of(tell(await spoken("journal", journal)))
    _, of_journal = page_of(tell(journal.events_after("run-1")))
    journal.close()
    assert "are in the run's journal alone" in of_file.text
    assert "Your task: Name the colour." not in of_file.text
    assert "saw the <sky>" in of_journal.text


def test_a_run_without_a_plan_or_an_end() -> None:
    told = tale(2)
    for end in range(len(told)):
        text, _ = page_of(tell(told[:end]))
        assert ("The events have no end" in text) == (end < len(told))


async def nested() -> list[RunStory]:
    """Return a run of two tasks, of which one is done by a team, and inside that again."""
    model = FunctionModel(lambda _: "a word")
    writer = kt.Member("writer", kt.MiniAgent(model))
    desk = kt.Member("desk", TeamAgent(kt.Team("desk team", [writer])))
    plan = kt.TaskGraph([kt.Task("part", "Write.", member="desk"), kt.Task("note", "Write.", member="writer")])
    office = kt.Member("office", TeamAgent(kt.Team("office team", [desk, writer]), plan=plan))
    outer = kt.TaskGraph([kt.Task("book", "Write.", member="office"), kt.Task("cover", "Draw.", member="writer")])
    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder], prices={"test:*": kt.Price(1, 2)})
    team = kt.Team("publisher", [office, writer], runtime=runtime)
    await kt.run(team, "go", plan=outer, run_id="run-1", budget=kt.Budget(tokens=50_000))
    runs = dict.fromkeys(event.run_id for event in recorder.events)
    return [tell(event for event in recorder.events if event.run_id == run) for run in runs]


@pytest.mark.anyio
async def test_runs_inside_have_their_own_sections_linked_with_their_tasks() -> None:
    outer, office, desk = await nested()
    text = render_report(outer, None, [office, desk])
    rows = unpacked(text)
    assert [len(rows[name]) for name in ("tasks", "tasks-2", "tasks-3")] == [2, 2, len(desk.tasks)]
    assert "run inside, of team office team: completed" in Page(str(rows["tasks"][0][0])).text
    assert 'href="#run-2"' in str(rows["tasks"][0][0])
    assert 'href="#run-3"' in str(rows["tasks-2"][0][0])
    assert "run inside" not in str(rows["tasks"][1][0])
    inner = Page(text[text.index('<h2 id="run-2">') : text.index('<h2 id="run-3">')])
    assert next(found["href"] for tag, found in inner.elements if tag == "a") == "#task-1"
    words = " ".join(inner.text.split())
    assert "Run inside task book: team office team" in words
    assert "The run completed." in words
    page = Page(text + "".join(str(row[0]) for found in rows.values() for row in found))
    ids = {found["id"] for _, found in page.elements if "id" in found}
    assert {str(found["href"])[1:] for tag, found in page.elements if tag == "a"} <= ids


@pytest.mark.anyio
async def test_what_runs_inside_cost_is_told_by_their_members_and_sums_up() -> None:
    outer, office, desk = await nested()
    rows = costs(outer, [office, desk])
    assert {(row.member, row.purpose) for row in rows} == {("writer", "generate")}
    assert sum(row.usage.tokens for row in rows) == outer.usage.tokens
    assert sum(row.usage.dollars for row in rows) == outer.usage.dollars > 0


@pytest.mark.anyio
async def test_many_runs_inside_are_counted() -> None:
    outer, office, _ = await nested()
    text = render_report(outer, None, [office, *(copied(office, number) for number in range(24))])
    assert len(re.findall('<h2 id="run-', text)) == 20
    assert "5 more runs inside: a report of its own shows each." in text


def copied(story: RunStory, number: int) -> RunStory:
    other = copy(story)
    other.run_id = f"{story.run_id}-{number}"
    return other


@pytest.mark.anyio
async def test_a_result_alone_writes_what_it_has(tmp_path: Path) -> None:
    async def good(assignment: kt.Assignment) -> str:
        return f"<b>{assignment.task.id}</b>"

    plan = kt.TaskGraph([kt.Task("one", "Do."), kt.Task("two", "Do.", depends_on=["one"])])
    result = await kt.run(kt.Team("t", [kt.Member("m", good)]), "Go.", plan=plan)
    result.report(tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "The run completed." in page.text
    assert "2 of 2 tasks accepted" in page.text
    assert "<b>two</b>" in page.text
    assert "has no times" in page.text
