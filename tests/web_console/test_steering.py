"""What the console does to runs that live in its own process, and two runs beside each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

pytest.importorskip("starlette", reason="the console needs the extra console")
pytest.importorskip("httpx", reason="the tests of the console need httpx")

import kairo_team as kt
from kairo_team import events
from kairo_team.contracts import TeamCoordinator
from kairo_team.web_console.runtime_source import RuntimeSource
from kairo_team.web_console.sources import JournalSource
from tests.web_console.running import Browser, begin, words

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[kt.SqliteJournal]:
    made = kt.SqliteJournal(tmp_path / "runs.db")
    yield made
    made.close()


@pytest.mark.parametrize("here", [True, False], ids=["of this process", "of another process"])
async def test_a_run_at_work_is_steered_and_gets_more_budget(journal: kt.SqliteJournal, *, here: bool) -> None:
    go = anyio.Event()
    other = kt.SqliteJournal(journal.path)

    async def work(assignment: kt.Assignment) -> str:
        await go.wait()
        return " ".join(assignment.directives)

    plan = kt.TaskGraph([kt.Task("first", "x"), kt.Task("next", "x", depends_on=["first"]), kt.Task("beside", "x")])
    config = kt.TeamConfig(budget=kt.Budget(tokens=100))
    runtime = kt.Runtime(journal=journal)
    async with runtime, Browser(journal if here else other, runtime=runtime if here else None) as browser:
        request = kt.TeamExecutionRequest("g", plan=plan, run_id="live-1", config=config)
        run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), request)
        assert "Raise the budget" in await browser.read("/run", id="live-1")
        for path, fields in (
            ("/run/steer", {"text": "mind the wind"}),
            ("/run/steer", {"text": "and the waves", "task": "next"}),
            ("/run/top-up", {"tokens": "50"}),
            ("/run/top-up", {"tokens": "5,000"}),
            ("/run/cancel-task", {"task": "beside"}),
        ):
            sent = await browser.send(path, run="live-1", back="/run?id=live-1", **fields)
            assert sent.status_code == 303, sent.text
        wrong: list[tuple[str, dict[str, str]]] = [
            ("/run/steer", {"text": " "}),
            ("/run/steer", {"text": "x", "task": "no-task"}),
            ("/run/top-up", {"tokens": "-5"}),
            ("/run/top-up", {"dollars": "much"}),
            ("/run/top-up", {"tokens": "5,00"}),
            ("/run/top-up", {}),
            ("/run/cancel-task", {"task": ""}),
        ]
        for path, fields in wrong:
            assert (await browser.send(path, run="live-1", **fields)).status_code == 409
        go.set()
        result = await run.result()
    other.close()
    assert result.outcomes[1].artifact is not None
    assert result.outcomes[1].artifact.text == "mind the wind and the waves"
    assert result.outcomes[2].status in (kt.TaskStatus.CANCELLED, kt.TaskStatus.SKIPPED)
    told = journal.events_after("live-1")
    assert {one.by for one in told if isinstance(one, events.TaskSteered | events.BudgetToppedUp)} == {"ada"}
    ends = [one.reason for one in told if isinstance(one, events.TaskEnded) and one.task_id == "beside"]
    assert ends == ["cancelled by ada in the console"]


CHAIN = (kt.Task("first", "x"), kt.Task("next", "x", depends_on=["first"]))
BESIDE = kt.Task("beside", "x")
JOINED = kt.Task("joined", "x", depends_on=["first", "beside"], needs=1)
LOW = kt.TeamConfig(risk_profile=kt.RiskProfile.LOW)
ENDS: dict[str, tuple[list[kt.Task], TeamCoordinator, kt.TeamConfig, str]] = {
    "a board tolerates it": ([*CHAIN, BESIDE], kt.TaskDispatchCoordinator(), kt.TeamConfig(), "degraded, if"),
    "a low risk": ([*CHAIN, BESIDE], kt.ExpertTeamCoordinator(), LOW, "degraded, if"),
    "experts need it": ([*CHAIN, BESIDE], kt.ExpertTeamCoordinator(), kt.TeamConfig(), "failed: it needs"),
    "what needs it does without": (
        [CHAIN[0], BESIDE, JOINED],
        kt.ExpertTeamCoordinator(),
        kt.TeamConfig(),
        "degraded, if",
    ),
    "nothing is left": ([*CHAIN], kt.TaskDispatchCoordinator(), kt.TeamConfig(), "failed: nothing"),
}


@pytest.mark.parametrize("case", ENDS)
async def test_before_a_task_is_cancelled_the_page_says_how_the_run_ends(case: str) -> None:
    tasks, coordinator, config, said = ENDS[case]
    go = anyio.Event()

    async def work(assignment: kt.Assignment) -> str:
        await go.wait()
        return "made"

    async with kt.Runtime() as runtime, Browser(RuntimeSource(runtime)) as browser:
        request = kt.TeamExecutionRequest("g", plan=kt.TaskGraph(tasks), run_id="live-1", config=config)
        run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), request, coordinator=coordinator)
        page = words(await browser.read("/run/task", id="live-1", task="first"))
        assert f"The run then ends {said}" in page
        run.cancel_task("first")
        go.set()
        result = await run.result()
    assert result.status.value == said.partition(",")[0].partition(":")[0]


async def test_a_run_that_no_process_has_can_only_be_cancelled(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await begin(tmp_path / "runs.db")
    async with Browser(journal) as browser:
        assert "Raise the budget" not in words(await browser.read("/run", id="run-1"))
        refused = await browser.send("/run/steer", run="run-1", text="mind the wind")
        assert refused.status_code == 409
        assert "is suspended, and no process has it: resume it first" in words(refused.text)


async def test_no_page_and_no_action_reads_the_journal_in_the_event_loop(
    journal: kt.SqliteJournal, tmp_path: Path
) -> None:
    """Else one slow look at a database would hold up every open page."""

    class Watched:
        def __init__(self, source: JournalSource) -> None:
            self._source = source

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._source, name)

            def call(*arguments: Any) -> Any:
                assert threading.get_ident() != loop, f"{name} is called in the event loop"
                return found(*arguments)

            return call if callable(found) else found

    loop = threading.get_ident()
    await begin(tmp_path / "runs.db")
    async with Browser(cast("Any", Watched(JournalSource(journal)))) as browser:
        for path in (
            "/",
            "/questions",
            "/run?id=run-1",
            "/run/task?id=run-1&task=letter",
            "/compare?a=run-1",
            "/run?id=x",
        ):
            assert (await browser.client.get(path)).status_code in (200, 404)
        for path, fields in (
            ("/questions/answer", {"question": "x", "action": "approve"}),
            ("/run/steer", {"text": "x"}),
            ("/run/top-up", {"tokens": "5"}),
            ("/run/cancel-task", {"task": "letter"}),
            ("/run/fork", {"task": "letter"}),
            ("/run/cancel", {}),
            ("/cancel", {"run run-1": "on", "back": "/?q="}),
            ("/name", {"name": "bo"}),
        ):
            assert (await browser.send(path, run="run-1", **fields)).status_code in (303, 404, 409)


async def test_two_runs_are_shown_beside_each_other(journal: kt.SqliteJournal, tmp_path: Path) -> None:
    await begin(tmp_path / "runs.db", "run-1")
    await begin(tmp_path / "runs.db", "run-2")
    journal.cancel("run-2")
    async with Browser(journal) as browser:
        shown = words(await browser.read("/compare", a="run-1", b="run-2"))
        assert "State suspended cancelled" in shown
        assert "letter suspended 2 tries, 4 tokens suspended 2 tries, 4 tokens" in shown
        assert (await browser.client.get("/compare", params={"a": "run-1", "b": "none"})).status_code in (404, 409)
