"""What came out of a run: its output and report, and each task with its texts, without secrets."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("starlette", reason="the console needs the extra console")
pytest.importorskip("httpx", reason="the tests of the console need httpx")

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.durable import event_pages
from kairo_team.durable.database import Database
from kairo_team.evaluators import CriterionResult
from kairo_team.events import Content, Event, event_from_json
from kairo_team.results import Attempt
from kairo_team.testing import FunctionModel
from kairo_team.web_console.runtime_source import RuntimeSource
from kairo_team.web_console.streams import Line, change_of, pause_after
from tests.web_console.running import HOSTILE, Browser, begin, words

pytestmark = pytest.mark.real_time
SECRET = "hunter2hunter2"
TIDES = "# Tides\n\n- **two** a day\n\n<b>moon</b>"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[kt.SqliteJournal]:
    made = kt.SqliteJournal(tmp_path / "runs.db")
    yield made
    made.close()


class SendsBack:
    """Sends the first version back."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if context.attempt == 1:
            return kt.EvaluationVerdict.revise("say how often", findings=[kt.Finding("often", observed="no number")])
        return kt.EvaluationVerdict.passed(1.0)


async def write(
    path: Path, content: str = "journal", *, fails: str = "", secrets: tuple[str, ...] = (SECRET,)
) -> kt.TeamResult:
    """Record a run of two tasks whose texts have a secret; the first one is sent back once."""
    model = FunctionModel(lambda _: f"a reply with {SECRET}", name="test:provider")

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == fails:
            raise ValueError(f"no {fails}")
        await context.model(model).complete(kt.ModelRequest([kt.Message.user(f"a prompt with {SECRET}")]))
        return f"{TIDES} {SECRET} {assignment.attempt}"

    plan = kt.TaskGraph(
        [
            kt.Task("tides", f"Tell of the tides, not of {SECRET}."),
            kt.Task("print.it", "Print.", depends_on=["tides"]),
        ]
    )
    journal = kt.SqliteJournal(path)
    coordinator = ExpertTeamCoordinator(evaluator=SendsBack(), failure_policy=FailurePolicy(retries=0))
    team = kt.Team("office", [kt.Member("clerk", work)], coordinator=coordinator)
    runtime = kt.Runtime(journal=journal, secrets=secrets, content=content)  # type: ignore[arg-type]  # one of its words
    try:
        return await kt.run(team, "Go.", plan=plan, run_id="run-1", runtime=runtime)
    finally:
        journal.close()


async def recorded(path: Path, content: str = "journal", *, fails: str = "") -> None:
    """Record such a run, and forget its runtime: after that nobody knows the secret."""
    await write(path, content, fails=fails)
    gc.collect()


async def test_a_run_shows_its_output_rendered_and_saves_it(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await recorded(tmp_path / "runs.db")
    async with Browser(journal) as browser:
        page = await browser.read("/run", id="run-1")
        assert "<h4>Tides</h4>" in page
        assert "&lt;b&gt;moon&lt;/b&gt;" in page
        assert page.index("The output") < page.index(">Tasks<") < page.index(">Calls<")
        assert "2 of 2 tasks accepted · 2 after one revision" in words(page)
        saved = await browser.client.get("/run/output", params={"id": "run-1"})
        assert saved.headers["content-disposition"].startswith("attachment")
        assert saved.text.startswith("# Tides")
        whole = await browser.client.get("/run/output", params={"id": "run-1", "task": "tides"})
        assert whole.text.startswith("# Tides")
        for wrong in ({"id": "run-1", "task": "none"}, {"id": "none"}):
            assert (await browser.client.get("/run/output", params=wrong)).status_code == 404


async def test_a_task_shows_what_it_was_asked_what_it_made_and_how(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await recorded(tmp_path / "runs.db")
    async with Browser(journal) as browser:
        page = await browser.read("/run/task", id="run-1", task="tides")
        part = await browser.read("/run/task", id="run-1", task="tides", part="1")
        assert "<html" in page
        assert "<html" not in part
        shown = words(part)
        for said in (
            "Tell of the tides, not of [secret].",
            "Output of attempt 2",
            "Attempt 1 sent back",
            "no number",
            "a prompt with [secret]",
            "a reply with [secret]",
            "Changes since the round before",
            "kairo fork run-1 --before tides --journal",
        ):
            assert said in shown, said
        assert part.count("<h4>Tides</h4>") == 2, "the output, and the version before"
        other = words(await browser.read("/run/task", id="run-1", task="print.it"))
        assert "print.it" in other
        missing = await browser.client.get("/run/task", params={"id": "run-1", "task": "none"})
        assert missing.status_code == 404
        assert "has no task" in words(missing.text)


@pytest.mark.sampled
@pytest.mark.parametrize("content", ["none", "events", "journal"])
async def test_no_page_has_a_secret_that_nobody_knows(journal: kt.SqliteJournal, tmp_path: Path, content: str) -> None:
    await recorded(tmp_path / "runs.db", content)
    async with Browser(journal) as browser:
        for path in ("/run?id=run-1", "/run/task?id=run-1&task=tides", "/run/report?id=run-1", "/run/output?id=run-1"):
            page = await browser.read(path)
            assert SECRET not in page
            assert "[secret]" in page or "report" in path


async def test_an_artifact_of_an_unfinished_run_is_shown_masked(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await recorded(tmp_path / "runs.db", "none")
    with journal.database.writing() as connection:
        connection.execute("UPDATE run SET result = NULL")
    async with Browser(journal) as browser:
        page = await browser.read("/run/task", id="run-1", task="tides")
        assert SECRET not in page
        assert words(page).count("[secret]") >= 5, "the task, both artifacts and what changed"
        assert "Changes since the round before" in words(page)


async def test_why_a_run_failed_comes_first_with_the_command_that_does_it_again(
    journal: kt.SqliteJournal, tmp_path: Path
) -> None:
    await recorded(tmp_path / "runs.db", fails="print.it")
    async with Browser(journal) as browser:
        page = await browser.read("/run", id="run-1")
        assert page.index(">Why<") < page.index(">Tasks<")
        assert words(page).count("no print") <= 3, "why, the task, and what happened"
        assert "kairo fork run-1 --before print.it --journal" in words(page)


async def test_the_report_is_a_page_of_its_own_origin(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await recorded(tmp_path / "runs.db")
    async with Browser(journal) as browser:
        response = await browser.client.get("/run/report", params={"id": "run-1"})
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "sandbox allow-scripts" in policy
        assert "allow-same-origin" not in policy
        assert "unsafe" not in policy
        assert response.headers["x-frame-options"] == "DENY"
        assert "The run completed." in response.text
        assert (await browser.client.get("/run/report", params={"id": "none"})).status_code == 404


async def test_the_report_of_a_run_at_work_has_no_empty_command_where_a_task_has_failed(
    journal: kt.SqliteJournal,
) -> None:
    go = anyio.Event()

    async def work(assignment: kt.Assignment) -> str:
        if assignment.task.id == "tides":
            raise ValueError("no tides")
        await go.wait()
        return "done"

    tasks = kt.TaskGraph([kt.Task("tides", "Tell."), kt.Task("moon", "Tell.")])
    coordinator = ExpertTeamCoordinator(failure_policy=FailurePolicy(retries=0))
    async with kt.Runtime(journal=journal) as runtime, Browser(journal, runtime=runtime) as browser:
        team = kt.Team("t", [kt.Member("m", work)], runtime=runtime, coordinator=coordinator)
        run = await runtime.start(team, kt.TeamExecutionRequest("Go.", plan=tasks, run_id="run-1"))
        while "no tides" not in (page := await browser.read("/run/report", id="run-1")):
            await anyio.sleep(0.01)
        go.set()
        await run.result()
    assert "What to do next" in page
    assert '<code class="command"></code>' not in page


@pytest.mark.parametrize("path", ["/run/task?id=run-1&task=letter", "/run/report?id=run-1", "/run/output?id=run-1"])
async def test_a_stranger_gets_nothing(journal: kt.SqliteJournal, tmp_path: Path, path: str) -> None:
    await begin(tmp_path / "runs.db")
    async with Browser(journal, enter=False) as browser:
        assert (await browser.client.get(path)).status_code == 401


async def test_hostile_text_of_a_task_is_text(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await begin(tmp_path / "runs.db", goal=HOSTILE)
    async with Browser(journal) as browser:
        page = await browser.read("/run/task", id="run-1", task="letter")
        assert "<script>alert" not in page
        assert "<svg onload" not in page
        assert "\u202e" not in page


async def test_texts_of_a_run_in_memory_are_shown() -> None:
    async def work(assignment: kt.Assignment) -> str:
        return TIDES

    async with kt.Runtime(content="events") as runtime, Browser(RuntimeSource(runtime)) as browser:
        team = kt.Team("t", [kt.Member("m", work)], runtime=runtime)
        await kt.run(team, "Go.", plan=kt.TaskGraph([kt.Task("tides", "Tell.")]), run_id="live-1")
        assert "<h4>Tides</h4>" in await browser.read("/run/task", id="live-1", task="tides")
        assert "The run completed." in await browser.read("/run/report", id="live-1")


async def test_a_task_says_what_its_end_would_cost(journal: kt.SqliteJournal) -> None:
    go = anyio.Event()

    async def work(assignment: kt.Assignment) -> str:
        await go.wait()
        return "x"

    plan = kt.TaskGraph(
        [
            kt.Task("first", "x"),
            kt.Task("beside", "x"),
            kt.Task("next", "x", depends_on=["first"]),
            kt.Task("last", "x", depends_on=["next"]),
        ]
    )
    async with kt.Runtime(journal=journal) as runtime, Browser(journal, runtime=runtime) as browser:
        config = kt.TeamConfig(budget=kt.Budget(tokens=1_000))
        request = kt.TeamExecutionRequest("g", plan=plan, run_id="live-1", config=config)
        run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), request)
        while "running" not in words(await browser.read("/run", id="live-1")).partition("Tasks")[2]:
            await anyio.sleep(0.01)
        first = words(await browser.read("/run/task", id="live-1", task="first"))
        assert "This skips 2 more: next, last ." in first
        assert "No other task needs it." in words(await browser.read("/run/task", id="live-1", task="last"))
        page = words(await browser.read("/run", id="live-1"))
        assert "set aside for first" in page
        assert (
            "It ends within seconds, and cannot be resumed. 2 tasks under way are interrupted: first, beside. "
            "2 tasks never begin. No task was accepted yet." in page
        )
        refused = await browser.send("/run/steer", run="live-1", back="/run?id=live-1", text=" ")
        assert refused.status_code == 409
        assert "Not done:" in words(refused.text)
        assert "Attempts over time" in refused.text, "it is said on the page of the run"
        go.set()
        await run.result()


def rows(number: int, state: str) -> list[str]:
    """Return the lines of a row of tasks."""
    return [
        f'<tr data-key="task-{number}" data-stamp="{state} 1 11">',
        f'<td><a href="/run/task?id=big&amp;task=task-{number}" data-task="task-{number}">task-{number}</a>',
        f'<span class="state {state}">{state}</span> <span class="quiet"><bdi>the member</bdi></span></td>',
        "</tr>",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("a\nb\nc", "a\nb\nc"),
        ("a\nb\nc", "a\nx\nc\nd"),
        ("a\nb\nc", "c"),
        ("a", "a\nb"),
        ("\n".join(map(str, range(500))), "\n".join(str(one + (one % 50 == 0)) for one in range(500))),
        ("\n".join("x" * 9_000), "\n".join("y" * 9_000)),
        ("\n".join([*rows(1, "pending"), *rows(2, "running")]), "\n".join([*rows(2, "done"), *rows(1, "pending")])),
        ("a word \U0001f40c and more of it\n1\n2", "a word \U0001f40c and more of that\n1\n2"),
        ("the end, the end of it\n1\n2\n3", "the end, the end, the end of it\n1\n2\n3"),
    ],
)
def test_a_change_of_lines_brings_the_text(before: str, after: str) -> None:
    change = change_of(before, after)
    if isinstance(change, str):
        assert change == after
        return
    old, lines = before.split("\n"), before.split("\n")
    for start, number, added in change:
        lines[start : start + number] = [filled(old, one) for one in added]
    assert "\n".join(lines) == after


def filled(old: list[str], line: Line) -> str:
    if isinstance(line, str):
        return line
    if isinstance(line, int):
        return old[line]
    at, place, number, text = line
    return old[at][:place] + text + old[at][place + number :]


def test_a_row_that_moves_and_changes_costs_its_new_words_alone() -> None:
    many = [rows(number, "pending") for number in range(50)]
    before = [line for row in many for line in row]
    after = [*rows(40, "running"), *(line for row in many[:40] + many[41:] for line in row)]
    change = change_of("\n".join(before), "\n".join(after))
    assert not isinstance(change, str)
    assert len(json.dumps(change)) < 120
    assert len("\n".join(rows(40, "running"))) > 220


def test_a_page_that_changes_fast_is_told_of_its_changes_together() -> None:
    assert [pause_after(0.0, letters) for letters in (0, 5_000, 20_000, 10**6)] == [0.5, 0.5, 2.0, 5.0]
    assert pause_after(1.0, 20_000) == 3.0


def test_a_text_that_the_browser_does_not_have_is_sent_as_a_whole() -> None:
    assert change_of(None, "a\nb") == "a\nb"


async def test_a_run_is_forked_before_a_task(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await recorded(tmp_path / "runs.db", fails="print.it")
    async with Browser(journal) as browser:
        assert "does the first task that was not accepted again, print.it" in words(
            await browser.read("/run", id="run-1")
        )
        done = await browser.send("/run/fork", run="run-1", task="print.it", back="/run?id=run-1")
        assert done.status_code == 303
        shown = words((await browser.client.get(done.headers["location"])).text)
        assert "It was forked, and not begun since. This resumes it: kairo resume" in shown
        assert "forked from run-1" in shown
        refused = await browser.send("/run/fork", run="run-1", task="none", back="/run?id=run-1")
        assert refused.status_code == 409
        assert "Not done:" in words(refused.text)
        assert "Attempts over time" in refused.text, "it is said on the page of the run"
    assert len(journal.runs()) == 2


async def test_runs_of_the_same_team_are_offered_to_compare(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    for name in ("run-1", "run-2"):
        await begin(tmp_path / "runs.db", name)
    async with Browser(journal) as browser:
        assert '<a href="/compare?a=run-1&amp;b=run-2">run-2</a>' in await browser.read("/compare", a="run-1")


class ChecksLess:
    """Checks a criterion in the first round alone."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if context.attempt == 1:
            return kt.EvaluationVerdict.revise("no number", criteria=[CriterionResult("numbers", "fail", passed=False)])
        return kt.EvaluationVerdict.passed(1.0)


async def test_rounds_with_different_criteria_are_shown(journal: kt.SqliteJournal) -> None:
    team = kt.Team(
        "office",
        [kt.Member("clerk", lambda assignment: f"version {assignment.attempt}")],
        coordinator=ExpertTeamCoordinator(evaluator=ChecksLess()),
    )
    plan = kt.TaskGraph([kt.Task("tides", "Tell.")])
    async with kt.Runtime(journal=journal) as runtime, Browser(journal) as browser:
        await kt.run(team, "Go.", plan=plan, run_id="run-1", runtime=runtime)
        assert "numbers not met" in words(await browser.read("/run/task", id="run-1", task="tides"))


async def test_a_run_that_is_not_recorded_says_how_far_it_is(journal: kt.SqliteJournal) -> None:
    def work(assignment: kt.Assignment) -> str:
        if assignment.task.id == "bad":
            raise ValueError("no ink")
        return "x"

    async with kt.Runtime() as runtime:
        live = RuntimeSource(runtime)
        async with Browser(live) as browser:
            plan = kt.TaskGraph([kt.Task("good", "x"), kt.Task("bad", "x"), kt.Task("next", "x", depends_on=["bad"])])
            coordinator = ExpertTeamCoordinator(failure_policy=FailurePolicy(retries=0))
            team = kt.Team("t", [kt.Member("m", work)], coordinator=coordinator)
            await kt.run(team, "Go.", plan=plan, runtime=runtime)
            assert "1 of 3 1 failed" in words(await browser.read("/"))
        live.close()


@pytest.mark.usefixtures("swept")
async def test_a_map_shows_what_its_tasks_cost_and_a_failed_task_makes_nothing_more(journal: kt.SqliteJournal) -> None:
    model = FunctionModel(lambda _: "said", name="test:provider")

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> kt.Artifact:
        if assignment.task.id == "list":
            return kt.Artifact("two", ["a", "b"])
        await context.model(model).complete(kt.ModelRequest([kt.Message.user("x")], max_tokens=40))
        if assignment.inputs["item"] == "b":
            raise ValueError("no b")
        return kt.Artifact("read")

    plan = kt.TaskGraph([kt.Task("list", "x"), kt.Task.map("read", "x", over="list", max_items=5)])
    coordinator = ExpertTeamCoordinator(failure_policy=FailurePolicy(retries=0))
    team = kt.Team("t", [kt.Member("clerk", work)], coordinator=coordinator)
    async with kt.Runtime(journal=journal) as runtime:
        await kt.run(team, kt.TeamExecutionRequest("g", plan=plan, run_id="run-1"), runtime=runtime)
    async with Browser(journal) as browser:
        shown = words(await browser.read("/run/task", id="run-1", task="read"))
        one, other = [words(await browser.read("/run/task", id="run-1", task=f"read.000{n}")) for n in (1, 2)]
    (paid,) = re.findall(r"1 attempt · (\d+) tokens", one)
    assert f"1 of 2 tasks inside it done · {2 * int(paid)} tokens" in shown
    assert "The tasks inside it have its output." in shown
    assert "It made nothing that is recorded." in other
    assert not any("nothing yet" in text for text in (shown, one, other))


async def test_a_task_is_shown_without_a_look_at_the_others(
    journal: kt.SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(tmp_path / "runs.db")
    async with Browser(journal) as browser:
        await browser.read("/run", id="run-1")  # it reads all events, once
        attempts, outcomes, texts = list[str](), list[str](), list[str | None]()
        look_at, read = Database.look_at, event_from_json

        def looked_at(*arguments: Any) -> object:
            found = look_at(*arguments)
            if isinstance(found, Attempt):
                attempts.append(found.task_id)
            elif isinstance(found, kt.TeamResult):
                outcomes.extend(one.task_id for one in found.outcomes)
            return found

        def parsed(line: str) -> Event:
            event = read(line)
            texts.append(event.task_id if isinstance(event, Content) else None)
            return event

        monkeypatch.setattr(Database, "look_at", looked_at)
        monkeypatch.setattr(event_pages, "event_from_json", parsed)
        shown = words(await browser.read("/run/task", id="run-1", task="tides"))
    assert "a prompt with [secret]" in shown
    assert attempts == ["tides"] * 2
    assert outcomes == ["tides"]
    assert set(texts) == {"tides"}, "only a later prompt refers to parts of another"


async def test_the_page_of_a_run_reads_no_outcome_of_a_task(
    journal: kt.SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(tmp_path / "runs.db")
    look_at, results = Database.look_at, list[kt.TeamResult]()

    def looked_at(*arguments: Any) -> object:
        found = look_at(*arguments)
        results.extend([found] if isinstance(found, kt.TeamResult) else [])
        return found

    monkeypatch.setattr(Database, "look_at", looked_at)
    async with Browser(journal) as browser:
        assert "<h4>Tides</h4>" in await browser.read("/run", id="run-1")
    assert [(one.outcomes, one.plan, one.budget) for one in results] == [((), None, None)]


async def test_texts_with_half_of_a_surrogate_pair_are_shown(journal: kt.SqliteJournal) -> None:
    model = FunctionModel(lambda _: "a reply \ud83d", name="test:provider")

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await context.model(model).complete(kt.ModelRequest([kt.Message.user("a prompt \ud83d")]))
        return "Done \ud83d."

    plan, runtime = kt.TaskGraph([kt.Task("tides", "Tell.")]), kt.Runtime(journal=journal, content="journal")
    await kt.run(kt.Team("office", [kt.Member("clerk", work)]), "Go.", plan=plan, run_id="run-1", runtime=runtime)
    async with Browser(journal) as browser:
        shown = words(await browser.read("/run/task", id="run-1", task="tides"))
        assert "a prompt ?" in shown
        assert "a reply ?" in shown
