from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import anyio
import pytest
from rich.console import Console

import kairo_team as kt
from kairo_team import events
from kairo_team.artifacts import Finding
from kairo_team.budget import Budget, Usage
from kairo_team.contracts import AgentLike
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.events import PlannedTask
from kairo_team.results import TeamStatus
from kairo_team.verdicts import Cause, EvaluationVerdict
from kairo_team.views import LiveView, PlainView, RowState, RunProgress
from kairo_team.views.progress import Pace

PASS = EvaluationVerdict.passed(1.0)
REVISE = EvaluationVerdict.revise("", findings=[Finding("a", observed="too short"), Finding("b", observed="no verb")])
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Story:
    """Numbers events, a tenth of a second apart, and hands them to subscribers."""

    def __init__(self, *subscribers: Any) -> None:
        self._subscribers = subscribers
        self._seq = 0

    def tell(self, kind: type[events.Event], *fields: Any) -> None:
        event = kind("run", self._seq + 1, BEGAN + timedelta(seconds=self._seq / 10), *fields)
        self._seq += 1
        for subscriber in self._subscribers:
            subscriber(event)

    def plan(self, *task_ids: str, team: str = "newsroom") -> None:
        self.tell(events.TeamStarted, team, "a goal", ("writer",))
        self.tell(events.PlanReady, task_ids)

    def start(self, task_id: str, guarantee: int | None = None) -> None:
        self.tell(events.TaskAssigned, task_id, "writer")
        self.tell(events.BudgetCarved, task_id, "writer", guarantee, None)
        self.tell(events.AttemptStarted, task_id, "writer", 1)

    def call(self, task_id: str | None, tokens: int) -> None:
        self.tell(events.ModelCalled, task_id, "writer", "local:smollm2", "ok", tokens, Usage(prompt_tokens=tokens))

    def review(self, task_id: str, verdict: EvaluationVerdict, tokens: int = 0, attempt: int = 1) -> None:
        usage = Usage(prompt_tokens=tokens)
        self.tell(events.AttemptFinished, task_id, "writer", attempt, "completed", usage, None)
        self.tell(events.EvaluationStarted, task_id, "writer", attempt)
        self.tell(events.EvaluationResult, task_id, "writer", attempt, verdict)

    def finish(self, task_id: str, tokens: int = 0) -> None:
        self.tell(events.BudgetReturned, task_id, "writer", Usage(prompt_tokens=tokens))
        self.tell(events.TaskCompleted, task_id, "writer", 1, None, "pass")

    def end(self, tokens: int = 0, status: TeamStatus = TeamStatus.COMPLETED) -> None:
        self.tell(events.TeamCompleted, status, 1.0, Usage(prompt_tokens=tokens), None)


# ---------------------------------------------------------------- what events add up to


def test_a_tasks_row_follows_its_events() -> None:
    progress = RunProgress()
    story = Story(progress.take)
    story.plan("a", "b")
    row = progress.rows["a"]
    assert (row.state, row.attempt, row.guarantee) == (RowState.PENDING, 0, None)
    story.start("a", guarantee=500)
    assert (row.state, row.attempt, row.guarantee, row.member) == (RowState.RUNNING, 1, 500, "writer")
    story.review("a", REVISE)
    assert (row.state, row.verdict, row.last) == (RowState.REVIEWING, REVISE, "too short; no verb")
    story.tell(events.AttemptStarted, "a", "writer", 2)
    assert (row.state, row.attempt, row.verdict) == (RowState.RUNNING, 2, REVISE)
    assert row.last == "too short; no verb", "what is to be mended stays in sight"
    story.review("a", PASS, attempt=2)
    story.tell(events.TaskCompleted, "a", "writer", 2, None, "pass")
    assert (row.state, row.verdict, row.last) == (RowState.DONE, PASS, "after 2 attempts")


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (events.TaskFailed, RowState.FAILED),
        (events.TaskSkipped, RowState.SKIPPED),
        (events.TaskCancelled, RowState.CANCELLED),
    ],
)
def test_a_task_that_was_not_accepted_says_why(kind: type[events.TaskEnded], state: RowState) -> None:
    progress = RunProgress()
    story = Story(progress.take)
    story.plan("a")
    story.tell(kind, "a", None, 0, "no ink")
    assert (progress.rows["a"].state, progress.rows["a"].last) == (state, "no ink")
    assert progress.describe_counts() == f"1 {state}"


def test_tokens_count_while_they_are_spent_and_are_set_right_at_the_end() -> None:
    progress = RunProgress()
    story = Story(progress.take)
    story.plan("a", "b")
    story.call(None, 7)
    story.start("a")
    story.call("a", 100)
    story.call("a", 50)
    assert (progress.rows["a"].tokens, progress.tokens) == (150, 157)
    story.review("a", PASS, tokens=160)
    assert (progress.rows["a"].tokens, progress.tokens) == (160, 167)
    story.finish("a", tokens=165)
    assert (progress.rows["a"].tokens, progress.tokens) == (165, 172)
    story.end(tokens=180)
    assert progress.tokens == 180


def test_audit_g13_the_tries_of_a_task_add_up() -> None:
    progress = RunProgress()
    story = Story(progress.take)
    story.plan("a")
    story.start("a")
    story.call("a", 100)
    story.review("a", REVISE, tokens=100)
    story.tell(events.AttemptStarted, "a", "writer", 2)
    story.call("a", 40)
    assert (progress.rows["a"].tokens, progress.tokens) == (140, 140)
    story.review("a", PASS, tokens=40, attempt=2)
    assert (progress.rows["a"].tokens, progress.tokens) == (140, 140)
    story.finish("a", tokens=140)
    assert (progress.rows["a"].tokens, progress.tokens) == (140, 140)


def test_a_members_budget_is_no_task() -> None:
    progress = RunProgress()
    Story(progress.take).tell(events.BudgetCarved, None, "writer", 100, None)
    assert progress.rows == {}


def test_of_many_tasks_those_at_work_are_shown_then_what_ended_last_and_what_is_next() -> None:
    progress = RunProgress()
    story = Story(progress.take)
    story.plan(*(f"t{n:03}" for n in range(200)))
    for n in range(20):
        story.start(f"t{n:03}")
    for n in range(15):
        story.finish(f"t{n:03}")
    shown = [row.id for row in progress.visible(9)]
    assert shown == ["t013", "t014", "t015", "t016", "t017", "t018", "t019", "t020", "t021"]
    assert progress.describe_counts(progress.visible(9)) == "13 done, 178 pending"
    assert [row.id for row in progress.visible(3)] == ["t015", "t016", "t017"]
    assert len(progress.visible(500)) == 200


# ---------------------------------------------------------------- lines


def lines_of(*told: Callable[[Story], object]) -> list[str]:
    lines: list[str] = []
    story = Story(PlainView(lines.append, lines.append))
    for tell in told:
        tell(story)
    return lines


def test_a_line_has_its_time_and_no_control_characters() -> None:
    lines = lines_of(
        lambda story: story.plan("a"), lambda story: story.tell(events.TaskFailed, "a", None, 0, "bad\x1b[2J\nnews")
    )
    assert lines == [
        "    0.0s  newsroom: started with 1 member",
        "    0.1s  newsroom: 1 task planned",
        "    0.2s  a: failed: bad?[2J news",
    ]


def test_only_what_matters_is_a_line() -> None:
    def told(story: Story) -> None:
        story.plan("a")
        story.start("a")
        story.call("a", 10)
        story.tell(events.AttemptFinished, "a", "writer", 1, "failed", Usage(prompt_tokens=10), "ValueError: no ink")
        story.tell(events.AttemptStarted, "a", "writer", 2)
        story.review("a", REVISE, tokens=20, attempt=2)
        story.tell(events.TaskEscalated, "a", "writer", Cause.ROUNDS_EXHAUSTED)
        story.tell(events.TaskCompleted, "a", "writer", 2, None, "review_exceeded")
        story.end(20, TeamStatus.DEGRADED)

    assert [line[10:] for line in lines_of(told)[2:]] == [
        "a: assigned to writer",
        "a: attempt 2, because: ValueError: no ink",
        "a: revise, 2 findings: too short; no verb",
        "a: done after 2 attempts, 30 tokens, accepted without a pass (review_exceeded)",
        "newsroom: degraded, 20 tokens",
    ]


def test_a_run_that_was_refused_is_no_line() -> None:
    def told(story: Story) -> None:
        story.tell(events.TeamStarted, "newsroom", "a goal", ())
        story.tell(events.TaskSkipped, "a", None, 0, "never bound")
        story.end()

    assert lines_of(told) == []


# ---------------------------------------------------------------- the live table


class Wall:
    """A terminal of some size with a live view on it."""

    def __init__(self, width: int = 80, height: int = 24, budget: Budget | None = None) -> None:
        self._console = Console(
            file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None, legacy_windows=False
        )
        self.view = LiveView(self._console, budget)

    def draw(self) -> list[str]:
        with self._console.capture() as captured:
            self._console.print(self.view.render())
        return captured.get().splitlines()


@pytest.mark.parametrize(("width", "verdict"), [(80, "revise 2"), (120, "revise, 2 findings")])
def test_a_row_shows_state_attempt_verdict_and_tokens_against_its_own(width: int, verdict: str) -> None:
    wall = Wall(width, budget=Budget(tokens=4_000, seconds=110))
    story = Story(wall.view)
    story.plan("write-1", "write-2")
    story.start("write-1", guarantee=1_250)
    story.call("write-1", 1_000)
    story.review("write-1", REVISE, tokens=1_000)
    head, money, _, heads, first, second = wall.draw()
    assert head.split() == ["newsroom", "0", "of", "2", "done", "0:00", "of", "1:50"]
    assert money.startswith("tokens ")
    assert money.endswith(" 1,000 of 4,000, 0 held, 250 set aside, 2,750 free")
    wide = width == 120
    assert heads.split() == ["task", "state", "try", "verdict", "tokens", *(["time"] * wide), "last"]
    first, took = re.subn(r" [0-9.:]+ s ", " ", first)
    assert took == wide
    assert first.split() == f"write-1 reviewing 1 {verdict} 1,000 / 1,250 too short; no verb".split()
    assert second.split() == ["write-2", "pending"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12), (20, 5)])
def test_many_tasks_fit_any_terminal(width: int, height: int) -> None:
    wall = Wall(width, height, Budget(tokens=4_000))
    story = Story(wall.view)
    story.plan(*(f"a-rather-long-name-of-a-task-{n}" for n in range(200)))
    for n in range(150):
        story.start(f"a-rather-long-name-of-a-task-{n}", guarantee=1_000_000)
    wall.view.notify("stopping ... press Ctrl-C again to exit at once")
    drawn = wall.draw()
    assert max(map(len, drawn)) <= width
    assert len(drawn) <= max(height, 9)
    assert any(line.startswith("and ") for line in drawn)
    assert any(line.startswith("stopping") for line in drawn)


def busy_wall(width: int, height: int = 24, *, failed: int = 5) -> Wall:
    """A terminal on which half of a hundred tasks have ended, some of them without success."""
    wall = Wall(width, height, Budget(tokens=4_000))
    story = Story(wall.view)
    story.plan(*(f"part-{n:02}" for n in range(100)))
    for n in range(50):
        story.start(f"part-{n:02}")
        if n < failed:
            story.tell(events.TaskFailed, f"part-{n:02}", "writer", 3, "no ink" if n else "no paper")
        elif n < 48:
            story.finish(f"part-{n:02}", tokens=10)
    return wall


def test_many_tasks_have_a_bar_with_their_pace_and_the_time_that_is_left() -> None:
    bar = busy_wall(80).draw()[1]
    assert bar.split()[:2] == ["tasks", "█" * 8 + "▓" + "▒" + "░" * 10]
    assert re.search(r" 2 at work, [0-9.]+ a (second|minute), about [0-9:]+ left$", bar)


def test_few_tasks_have_no_bar() -> None:
    wall = Wall(budget=Budget(tokens=4_000))
    Story(wall.view).plan("a", "b")
    assert wall.draw()[1].startswith("tokens")


def test_failures_stay_in_sight_each_cause_once() -> None:
    drawn = busy_wall(100).draw()
    assert "failed: part-00: no paper" in drawn
    assert "failed: part-01, part-02, part-03 and 1 more: no ink" in drawn
    assert len(drawn) <= 23
    assert not any(line.startswith("failed:") for line in busy_wall(100, 12).draw()), "a low terminal has no room"
    assert not any(line.startswith("failed:") for line in busy_wall(100, failed=0).draw())


def test_a_wide_table_has_the_seconds_of_each_task() -> None:
    drawn = busy_wall(100).draw()
    [heads] = [line for line in drawn if line.startswith("task ")]
    assert heads.split() == ["task", "state", "try", "verdict", "tokens", "time", "last"]
    assert any(re.match(r"part-47 +done +1 +10 +0\.[34] s ", line) for line in drawn)


@pytest.mark.parametrize(
    ("every", "left", "said"),
    [
        (1, 30, "1 a second, about 0:30 left"),
        (0.001, 0, "1,000 a second"),
        (30, 10, "2 a minute, about 5:00 left"),
        (7_200, 3, "0.5 an hour, about 6:00:00 left"),
    ],
)
def test_a_pace_is_told_in_the_unit_it_is_read_in(every: float, left: int, said: str) -> None:
    pace = Pace()
    pace.begin(BEGAN)
    for number in range(1, 7):
        assert pace.describe(left, BEGAN) == ""
        pace.end(BEGAN + timedelta(seconds=every * number))
    assert pace.describe(left, BEGAN + timedelta(seconds=every * 6)) == said


def test_a_pace_is_that_of_the_latest_ends() -> None:
    pace = Pace()
    pace.begin(BEGAN)
    for number in range(200):
        pace.end(BEGAN + timedelta(seconds=number if number < 100 else 100 + (number - 100) * 60))
    assert pace.describe(0, BEGAN + timedelta(seconds=100 + 99 * 60)) == "1 a minute"


def test_an_event_costs_the_run_no_drawing() -> None:
    view = Wall().view
    Story(view).plan("a")
    assert view.progress.rows == {}
    view.render()
    assert list(view.progress.rows) == ["a"]


def test_without_a_limit_there_is_no_bar() -> None:
    assert Wall().draw()[1] == "0 tokens, no limit"


def watch(*subscribers: Any) -> Story:
    """Tell of a run with a diamond of tasks, one of which is at work."""
    story = Story(*subscribers)
    plan = (
        PlannedTask("research"),
        PlannedTask("draft-1", ("research",), 1),
        PlannedTask("draft-2", ("research",), 1),
        PlannedTask("review", ("draft-1", "draft-2", "research"), 3),
    )
    story.tell(events.TeamStarted, "newsroom", "a goal", ("writer",))
    story.tell(events.PlanReady, tuple(task.id for task in plan), plan)
    story.start("research")
    return story


def ask_model(story: Story, number: int, held: int) -> None:
    """Send a try of a call that holds these tokens, and a thousandth of a cent for each."""
    story.tell(events.ModelStarted, "research", "writer", "local:m", "c", number, "generate", 1, held, held * 10**7)


def model_waits(story: Story, task_id: str, call_id: str, *why: object) -> None:
    story.tell(events.ModelWaiting, task_id, "writer", "local:m", call_id, 1, "generate", 1, *why)


def test_the_bar_has_what_is_spent_held_and_free_of_tokens_and_dollars() -> None:
    wall = Wall(80, budget=Budget(tokens=4_000, dollars="0.05"))
    story = watch(wall.view)
    ask_model(story, 1, 700)
    spent = Usage(prompt_tokens=900, dollars=Decimal("0.0123"))
    assert wall.draw()[1].endswith(" 0 of 4,000, 700 held, 3,300 free")
    story.tell(events.ModelCalled, "research", "writer", "local:m", "error", 700, spent, "c", 1)
    ask_model(story, 2, 600)
    tokens, dollars = wall.draw()[1:3]
    assert tokens.split() == ["tokens", "████▒▒▒▒░░░░░░░░░░░░", "900", "of", "4,000,", "600", "held,", "2,500", "free"]
    assert dollars.split()[:2] == ["dollars", "█████▒▒░░░░░░░░░░░░░"]
    assert dollars.endswith(" $0.0123 of $0.0500, $0.0060 held, $0.0317 free")
    story.tell(events.BudgetToppedUp, None, None, 1_000, 10**10)
    story.tell(events.AttemptFinished, "research", "writer", 1, "completed", spent, None)
    tokens, dollars = wall.draw()[1:3]
    assert tokens.endswith("900 of 5,000, 600 held, 3,500 free")
    assert dollars.endswith("$0.0123 of $0.0600, $0.0060 held, $0.0417 free")
    story.end(950)
    tokens, dollars = wall.draw()[1:3]
    assert tokens.endswith("950 of 5,000, 0 held, 4,050 free")
    assert " $0.0000 held, " in dollars


def test_a_call_that_holds_dollars_alone_holds_nothing_once_it_has_ended() -> None:
    wall = Wall(80, budget=Budget(tokens=4_000, dollars="0.05"))
    story = watch(wall.view)
    story.tell(events.ModelStarted, "research", "writer", "local:m", "c", 1, "generate", 1, 0, 6 * 10**9)
    assert "$0.0060 held" in wall.draw()[2]
    paid = Usage(dollars=Decimal("0.0060"))
    story.tell(events.ModelCalled, "research", "writer", "local:m", "ok", 0, paid, "c", 1)
    assert "$0.0060 of $0.0500, $0.0000 held" in wall.draw()[2]


@pytest.mark.parametrize(("ascii_only", "bar"), [(False, "██▒▒▚▚▚▚▚▚▚▚░░░░░░░░"), (True, "##++////////--------")])
def test_what_is_set_aside_has_a_mark_of_its_own(bar: str, *, ascii_only: bool) -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), "ascii" if ascii_only else "utf-8"), width=80, height=24)
    view = LiveView(console, Budget(tokens=4_000, dollars="0.04"))
    story = watch(view)
    story.tell(events.BudgetCarved, "research", "writer", 2_400, 24 * 10**9)
    story.tell(
        events.ModelCalled, "research", "writer", "local:m", "ok", 9, Usage(400, dollars=Decimal("0.004")), "c", 1
    )
    ask_model(story, 2, 400)
    with console.capture() as captured:
        console.print(view.render())
    tokens, dollars = captured.get().splitlines()[1:3]
    assert tokens == f"tokens  {bar} 400 of 4,000, 400 held, 1,600 set aside, 1,600 free"
    assert dollars.split()[1] == bar
    assert ", $0.0160 set aside" in dollars
    story.finish("research", 400)
    with console.capture() as captured:
        console.print(view.render())
    assert "set aside" not in captured.get()


def test_without_a_limit_of_tokens_what_is_held_and_paid_is_shown_too() -> None:
    wall = Wall()
    story = watch(wall.view)
    ask_model(story, 1, 700)
    story.tell(events.ModelCalled, None, None, "local:m", "ok", 9, Usage(prompt_tokens=9, dollars=Decimal("0.5")))
    assert wall.draw()[1] == "9 tokens and 700 held, $0.5000, no limit"


def test_a_row_says_what_its_task_waits_for() -> None:
    wall = Wall(130)
    story = watch(wall.view)

    def last() -> list[str]:
        return [line[72:].strip() for line in wall.draw()[4:]]

    assert last() == [
        "writer at work",
        "waits for research",
        "waits for research",
        "waits for draft-1, draft-2 and 1 more",
    ]
    model_waits(story, "research", "c", "rate")
    assert last()[0] == "waits for rate limit of local:m"
    ask_model(story, 1, 10)
    assert last()[0] == "writer at work"
    story.tell(events.TaskWaiting, "research", "writer", "budget")
    assert last()[0] == "waits for budget"
    story.tell(events.TaskWaiting, "research", "writer", None)
    story.tell(events.TaskWaiting, "research", "writer", "retry", 4.25)
    assert last()[0] == "waits for the next attempt (4.2s)"
    story.tell(events.TaskWaiting, "research", "writer", None)
    model_waits(story, "research", "r", "retry", 4.0, "rate_limited")
    assert last()[0] == "waits for another try of local:m (4.0s, rate limited)"
    model_waits(story, "research", "r", "rate")
    assert last()[0] == "waits for rate limit of local:m", "the pause is over, the limit is not"
    story.tell(events.ModelStarted, "research", "writer", "local:m", "r", 1, "generate", 1, 10)
    model_waits(story, "research", "cut-short", "budget")
    story.review("research", PASS)
    story.finish("research")
    story.tell(events.TaskWaiting, "draft-1", None, "slot")
    story.tell(events.TaskWaiting, "draft-2", None, "member")
    assert last() == ["passed", "waits for a slot", "waits for a member", "waits for draft-1, draft-2"]
    story.start("draft-1")
    assert last()[1] == "writer at work"


def test_the_head_has_the_longest_chain_that_is_left() -> None:
    wall = Wall()
    story = watch(wall.view)
    assert "0 of 4 done, longest chain left: 3 tasks " in wall.draw()[0]
    story.finish("research")
    assert "longest chain left: 2 tasks " in wall.draw()[0]
    heavy = (PlannedTask("draft-1"), PlannedTask("review", ("draft-1",), 1), PlannedTask("index", weight=9.0))
    story.tell(events.PlanReady, tuple(task.id for task in heavy), heavy)
    assert "longest chain left: 1 task " in wall.draw()[0], "by the plan's weights"


@pytest.mark.parametrize("width", [24, 40, 80, 120])
def test_a_terminal_of_ascii_alone_gets_ascii(width: int) -> None:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding="ascii")
    console = Console(file=file, width=width, height=24, force_terminal=True, color_system=None, legacy_windows=False)
    view = LiveView(console, Budget(tokens=4_000, dollars="0.05"))
    ask_model(watch(view), 1, 1_000)
    view.notify("stopping ... " * 10)
    console.print(view.render())
    file.flush()
    assert f"tokens  {'+' * (5 if width == 80 else 1)}" in written.getvalue().decode("ascii")


def test_a_line_says_that_a_task_has_waited_for_long_once_for_each_reason() -> None:
    lines: list[str] = []
    story = watch(PlainView(lines.append, lines.append))
    before = len(lines)
    story.tell(events.TaskWaiting, "draft-1", None, "slot")
    story.tell(events.TaskWaiting, "draft-2", None, "slot")
    story.tell(events.TaskWaiting, "draft-2", None, None)
    model_waits(story, "research", "c", "rate")
    for _ in range(100):
        story.call("research", 1)
    ask_model(story, 1, 10)
    model_waits(story, "research", "c2", "retry", 12.0, "overloaded")
    for _ in range(150):
        story.call("research", 1)
    assert [line[10:] for line in lines[before:]] == [
        "draft-1: has waited 10s for a slot",
        "research: has waited 10s for rate limit of local:m",
        "research: has waited 10s for another try of local:m (12.0s, overloaded)",
    ]


async def told_while(agent: AgentLike, *tasks: kt.Task, retries: int = 0, backoff: float = 0.0) -> list[str]:
    """Run tasks one after the other, and return the lines without their times."""
    lines: list[str] = []
    view = PlainView(lines.append, lines.append)
    board = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=retries, backoff=backoff, backoff_max=backoff))
    request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph(tasks), config=kt.TeamConfig(max_parallel_tasks=1))
    async with anyio.create_task_group() as group:
        group.start_soon(view.watch)
        await anyio.wait_all_tasks_blocked()
        runtime = kt.Runtime(subscribers=[view])
        await kt.run(kt.Team("news", [kt.Member("m", agent)]), request, coordinator=board, runtime=runtime)
        group.cancel_scope.cancel()
    return [line[10:] for line in lines]


async def test_a_line_says_what_goes_on_in_every_half_minute_without_another() -> None:
    async def slow(assignment: kt.Assignment) -> str:
        await anyio.sleep(100 if assignment.task.id == "slow" else 29)
        return "done"

    assert await told_while(slow, kt.Task("slow", "do"), kt.Task("short", "do")) == [
        "news: started with 1 member",
        "news: 2 tasks planned",
        "slow: assigned to m",
        "news: 1 running, 1 pending",
        "news: 1 running, 1 pending",
        "slow: done after 1 attempt",
        "short: assigned to m",
        "short: done after 1 attempt",
        "news: completed, 0 tokens",
    ]


async def test_it_says_what_the_tasks_wait_for() -> None:
    async def fails_once(assignment: kt.Assignment) -> str:
        if assignment.attempt == 1:
            raise ValueError("no ink")
        return "done"

    lines = await told_while(fails_once, kt.Task("a", "do"), retries=1, backoff=200.0)
    states = [line for line in lines if line.startswith("news: 1 running")]
    assert len(states) > 1
    assert re.fullmatch(r"news: 1 running; a waits for the next attempt \(\d{3}\.\ds\)", states[0])


class SlowTerminal(io.StringIO):
    """A terminal whose reader sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = threading.Event()

    def write(self, text: str) -> int:
        if threading.current_thread().name == "kairo-view":
            self.woken.wait(120)
        return super().write(text)


def test_a_terminal_that_hangs_does_not_stop_the_run() -> None:
    terminal = SlowTerminal()
    view = LiveView(Console(file=terminal, force_terminal=True), rate=1000)
    story = Story(view)
    with view:
        time.sleep(0.05)
        before = time.monotonic()
        story.plan(*(f"t{n}" for n in range(1000)))
        for n in range(1000):
            story.start(f"t{n}")
        assert time.monotonic() - before < 60
        terminal.woken.set()


class BrokenTerminal(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        if threading.current_thread().name == "kairo-view":
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_terminal_that_goes_away_does_not_stop_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    with LiveView(Console(file=BrokenTerminal(), force_terminal=True), rate=1000) as view:
        time.sleep(0.05)
        Story(view).plan("a")
    assert capfd.readouterr().err == ""
