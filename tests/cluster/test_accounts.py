"""Accounts: budgets over runs of several machines, as their users meet them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster
from kairo_team.durable import accounts
from kairo_team.durable.accounts import Account
from kairo_team.durable.journal import SqliteJournal
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.errors import InsufficientBudget, JournalError, Misuse, PlanRefused, RunFinished
from kairo_team.testing import FunctionModel
from tests.cluster.server import die, journal_in, wait_until_blocked
from tests.cluster.stage import BEAT, execute, new_database, until, working

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

Open = Callable[..., Any]
AnyJournal = PostgresJournal | SqliteJournal


@pytest.fixture(params=["postgresql", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """The URL of a new database, or the path of a file."""
    return str(request.getfixturevalue("database")) if request.param == "postgresql" else tmp_path / "runs.db"


on_postgres = pytest.mark.parametrize("place", ["postgresql"], indirect=True)


@pytest.fixture
def opened(place: str | Path) -> Generator[Open]:
    """Makes the journals of several processes on one database, in which there is an account with 1,000 tokens."""
    journals: list[AnyJournal] = []

    def make(account: str | None = "desk") -> AnyJournal:
        journals.append(journal_in(place, account))
        return journals[-1]

    make(None).set_account("desk", kt.Budget(tokens=1_000))
    yield make
    for journal in journals:
        journal.close()


def standing(journal: AnyJournal, name: str = "desk") -> tuple[int, int, int]:
    """Return the tokens that an account has used and set aside, and its runs."""
    found = account(journal, name)
    return found.used.tokens, found.set_aside.tokens, found.runs


def account(journal: AnyJournal, name: str = "desk") -> Account:
    return next(one for one in journal.accounts() if one.name == name)


async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    prompt = kt.Message.user(assignment.task.id)
    return (await context.model("m:x").complete(kt.ModelRequest([prompt], max_tokens=20))).text


def answering() -> FunctionModel:
    return FunctionModel(lambda request: f"answer to {request.messages[-1].text}", name="test:m")


def team_of(act: Any = ask, **more: Any) -> kt.Team:
    return kt.Team("desk", [kt.Member("m0", act)], **more)


def request_of(run_id: str, tokens: int | None = 400, tasks: int = 2, **config: Any) -> kt.TeamExecutionRequest:
    plan = kt.TaskGraph([kt.Task(f"t{n}", "do", member="m0") for n in range(tasks)])
    return kt.TeamExecutionRequest(
        "Go.", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=tokens), **config), run_id=run_id
    )


def runtime_on(journal: AnyJournal, **more: Any) -> kt.Runtime:
    return kt.Runtime(journal=journal, models={"m:x": answering()}, **more)


# ------------------------------------------------------------------ a run's life


async def test_a_run_sets_its_budget_aside_when_it_begins_and_gives_back_the_rest_when_it_ends(opened: Open) -> None:
    journal = opened()
    seen: list[tuple[int, int, int]] = []

    async def look(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        seen.append(await to_thread.run_sync(standing, journal))
        return await ask(assignment, context)

    result = await kt.run(team_of(look), request_of("r"), runtime=runtime_on(journal))
    assert result.status is kt.TeamStatus.COMPLETED
    assert seen == [(0, 400, 1)] * 2
    assert result.usage.tokens == sum(call.usage.tokens for call in journal.calls("r")) > 0
    assert standing(journal) == (result.usage.tokens, 0, 0)


async def test_a_run_that_does_not_fit_is_refused_before_it_begins(opened: Open) -> None:
    journal = opened()
    await to_thread.run_sync(partial(journal.set_account, "pages", kt.Budget(tokens=5_000), parent="desk"))
    with pytest.raises(InsufficientBudget) as refused:
        await kt.run(team_of(), request_of("r", 1_001), runtime=runtime_on(opened("pages")))
    assert (refused.value.origin, refused.value.asked, refused.value.left) == ("desk", 1_001, 1_000)
    assert refused.value.dimension == "tokens"
    assert journal.runs() == ()
    assert standing(journal) == standing(journal, "pages") == (0, 0, 0)
    fits = await kt.run(team_of(), request_of("r", 1_000), runtime=runtime_on(opened("pages")))
    assert fits.status is kt.TeamStatus.COMPLETED


async def test_dollars_are_limited_to_the_picodollar(opened: Open) -> None:
    journal = opened("cents")
    await to_thread.run_sync(journal.set_account, "cents", kt.Budget(dollars="0.10"))
    over = replace(request_of("r"), config=kt.TeamConfig(budget=kt.Budget(dollars=Decimal("0.100000000001"))))
    with pytest.raises(InsufficientBudget, match=r"'cents' has 0.1 dollars left, 0.100000000001 asked"):
        await kt.run(team_of(), over, runtime=runtime_on(journal))
    fits = replace(over, config=kt.TeamConfig(budget=kt.Budget(dollars="0.1")))
    await kt.run(team_of(), fits, runtime=runtime_on(journal))
    assert account(journal, "cents").left == kt.Budget(dollars="0.1")


async def test_a_run_without_a_limit_that_its_account_has_is_refused(opened: Open) -> None:
    journal = opened()
    with pytest.raises(PlanRefused, match=r"account 'desk' limits tokens.*budget=kt.Budget\(tokens=20_000\)"):
        await kt.run(team_of(), request_of("r", None), runtime=runtime_on(journal))
    assert journal.runs() == ()
    result = await kt.run(team_of(), "Go.", plan=request_of("r").plan, budget=account(journal).left,
                          runtime=runtime_on(journal))  # fmt: skip
    assert result.status is kt.TeamStatus.COMPLETED


async def test_an_account_that_is_not_there_is_named_with_those_that_are(opened: Open) -> None:
    with pytest.raises(Misuse, match=r"no account 'dusk', only 'desk'"):
        await kt.run(team_of(), request_of("r"), runtime=runtime_on(opened("dusk")))


async def test_runs_inside_a_run_are_part_of_what_it_set_aside(opened: Open) -> None:
    from kairo_team.agents import TeamAgent

    journal, inner = opened(), kt.Team("inner", [kt.Member("hand", ask)])
    agent = TeamAgent(inner, plan=kt.TaskGraph([kt.Task("x", "do"), kt.Task("y", "do")]))
    result = await kt.run(team_of(agent), request_of("r", tasks=1), runtime=runtime_on(journal))
    assert result.status is kt.TeamStatus.COMPLETED
    assert len(journal.calls("r")) == 2
    assert standing(journal) == (sum(call.usage.tokens for call in journal.calls("r")), 0, 0)


async def test_a_call_in_doubt_is_charged_its_hold(opened: Open) -> None:
    journal = opened()

    async def answer(request: kt.ModelRequest) -> str:
        await anyio.sleep_forever()
        return ""

    runtime = kt.Runtime(journal=journal, models={"m:x": FunctionModel(answer, name="test:m")})
    async with runtime:
        run = await runtime.start(team_of(), request_of("r", tasks=1))
        await until(lambda: journal.calls("r"))
        run.cancel()
        await run.result()
    (call,) = journal.calls("r")
    assert standing(journal) == (call.usage.tokens, 0, 0)
    assert call.usage.tokens >= 20


# ------------------------------------------------------------------ waiting, dying, going on


class Boss:
    """Leaves everything to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "ask")


OFFICE = team_of(evaluators={"boss": Boss()})
"""A team whose runs wait for a person after their first task."""


async def suspend(journal: AnyJournal, run_id: str = "r", tokens: int = 400) -> int:
    """Let a run of the office begin and wait; return what it has spent."""
    tasks = [kt.Task("a", "do", evaluator="boss"), kt.Task("b", "do", depends_on=["a"])]
    request = replace(request_of(run_id, tokens), plan=kt.TaskGraph(tasks))
    result = await kt.run(OFFICE, request, runtime=runtime_on(journal, gate=kt.DeferGate()))
    assert result.status is kt.TeamStatus.SUSPENDED
    return result.usage.tokens


def approve(journal: AnyJournal, run_id: str = "r") -> None:
    journal.answer(journal.pending(run_id)[0].id, kt.HumanDecision.approve())


async def test_a_suspended_run_keeps_what_it_has_spent_and_sets_the_rest_aside_when_it_goes_on(opened: Open) -> None:
    journal = opened()
    spent = await suspend(journal)
    assert spent > 0
    assert standing(journal) == (spent, 0, 0)
    await to_thread.run_sync(partial(journal.set_account, "desk", kt.Budget(tokens=400)))
    await kt.run(team_of(), request_of("other", 400 - spent), runtime=runtime_on(journal))
    approve(journal)
    others = standing(journal)[0] - spent
    with pytest.raises(InsufficientBudget, match=rf"'desk' has {400 - spent - others} tokens left, {400 - spent}"):
        await runtime_on(opened()).resume("r", OFFICE)
    assert journal.show("r").state == "suspended", "it goes on waiting"
    assert standing(journal) == (spent + others, 0, 0)
    await to_thread.run_sync(partial(journal.set_account, "desk", kt.Budget(tokens=400 + others)))
    result = await runtime_on(opened()).resume("r", OFFICE)
    assert result.status is kt.TeamStatus.COMPLETED
    assert standing(journal) == (result.usage.tokens + others, 0, 0)


async def test_a_run_that_goes_on_with_a_larger_budget_sets_that_aside_first(opened: Open) -> None:
    journal = opened()
    spent = await suspend(journal)
    approve(journal)
    with pytest.raises(InsufficientBudget, match=rf"{1_000 - spent} tokens left, {1_001 - spent} asked"):
        await runtime_on(journal).resume("r", OFFICE, budget=kt.Budget(tokens=1_001))
    with pytest.raises(PlanRefused, match="limits tokens"):
        await runtime_on(journal).resume("r", OFFICE, budget=kt.Budget())
    assert (journal.show("r").state, standing(journal)) == ("suspended", (spent, 0, 0))
    result = await runtime_on(journal).resume("r", OFFICE, budget=kt.Budget(tokens=1_000))
    assert result.status is kt.TeamStatus.COMPLETED


async def test_a_top_up_sets_more_aside_first(opened: Open) -> None:
    journal, begun, go = opened(), anyio.Event(), anyio.Event()

    async def wait(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        begun.set()
        await go.wait()
        return await ask(assignment, context)

    runtime = runtime_on(journal)
    async with runtime:
        run = await runtime.start(team_of(wait), request_of("r", tasks=1))
        await begun.wait()
        run.top_up(kt.Budget(tokens=600, dollars="1", loops=3))
        assert standing(journal) == (0, 1_000, 1)
        with pytest.raises(InsufficientBudget, match="'desk' has 0 tokens left, 1 asked"):
            run.top_up(kt.Budget(tokens=1))
        go.set()
        result = await run.result()
    assert result.budget is not None
    assert result.budget.budget.tokens == 1_000
    assert standing(journal) == (result.usage.tokens, 0, 0)


@pytest.mark.parametrize("way", ["resume", "cancel", "forget"])
async def test_a_run_whose_process_died_stays_set_aside_until_somebody_has_it(opened: Open, way: str) -> None:
    dead, journal = opened(), opened()

    async def answer(request: kt.ModelRequest) -> str:
        await to_thread.run_sync(die, dead)
        return "lost"

    runtime = kt.Runtime(journal=dead, models={"m:x": FunctionModel(answer, name="test:m")})
    await kt.run(team_of(), request_of("r", tasks=1), runtime=runtime)
    await anyio.sleep(2 * BEAT)
    spent = journal.show("r").usage.tokens
    assert journal.show("r").state == "interrupted"
    assert standing(journal) == (0, 400, 1)
    if way == "resume":
        result = await runtime_on(journal).resume("r", team_of())
        assert result.usage.tokens > spent > 0
        spent = result.usage.tokens
    else:
        await to_thread.run_sync(getattr(journal, way), "r")
    assert standing(journal) == (spent, 0, 0)


def test_a_session_that_lost_its_run_settles_nothing(opened: Open) -> None:
    """It neither ends the run's charge nor raises it, whatever it may still write."""
    journal = opened()
    lost: Any = journal.begin(request_of("r"), team_of(), {}, None)
    journal.recover("r", take_over=True)
    with journal.database.writing() as connection:
        accounts.settle(connection, lost._session.run_id, lost._session.epoch)
    with pytest.raises(JournalError, match="another process has taken the run over"):
        lost.set_aside(kt.Budget(tokens=900))
    assert standing(journal) == (0, 400, 1)


async def test_a_run_that_was_taken_over_settles_once(opened: Open) -> None:
    first, second = opened(), opened()
    begun, go = anyio.Event(), anyio.Event()

    async def wait(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if not begun.is_set():
            begun.set()
            await go.wait()
        return await ask(assignment, context)

    async with runtime_on(first) as runtime:
        run = await runtime.start(team_of(wait), request_of("r", tasks=1))
        await begun.wait()
        result = await runtime_on(second).resume("r", team_of(wait), take_over=True)
        assert standing(second) == (result.usage.tokens, 0, 0)
        # It may have heard of the take-over by now, and have ended for that.
        with pytest.raises((JournalError, RunFinished), match=r"taken the run over|has ended"):
            await to_thread.run_sync(runtime.runs["r"].top_up, kt.Budget(tokens=10))
        go.set()
        await run.result()
    assert standing(second) == (result.usage.tokens, 0, 0)


@on_postgres
async def test_what_a_cancelled_run_could_still_write_counts_no_more(opened: Open) -> None:
    """Its process was taken for dead, and its account was settled: no call leaves after that."""
    first, second = opened(), opened()
    asked = 0

    async def answer(request: kt.ModelRequest) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            with second.connecting() as connection:
                connection.execute("UPDATE process SET state = 'dead' WHERE id = ?", (first.process.id,))
            await to_thread.run_sync(second.cancel, "r")
        return "said"

    runtime = kt.Runtime(journal=first, models={"m:x": FunctionModel(answer, name="test:m")})
    await kt.run(team_of(), request_of("r", max_parallel_tasks=1), runtime=runtime)
    assert asked == 1
    assert [call.state for call in second.calls("r")] == ["sent"]
    assert standing(second) == (second.calls("r")[0].usage.tokens, 0, 0)


async def test_a_fork_is_charged_to_the_same_account_and_only_what_it_spends_itself(opened: Open) -> None:
    journal = opened()
    first = await kt.run(team_of(), request_of("r", max_parallel_tasks=1), runtime=runtime_on(journal))
    one = journal.calls("r")[0].usage.tokens
    new = await to_thread.run_sync(partial(journal.fork, "r", before="t1", new_id="f"))
    await to_thread.run_sync(partial(journal.set_account, "desk", kt.Budget(tokens=first.usage.tokens + 400 - one - 1)))
    other = opened(None)
    with pytest.raises(InsufficientBudget, match=rf"{399 - one} tokens left, {400 - one} asked"):
        await runtime_on(other).resume(new, team_of())
    await to_thread.run_sync(partial(journal.set_account, "desk", kt.Budget(tokens=first.usage.tokens + 400 - one)))
    second = await runtime_on(other).resume(new, team_of())
    assert standing(journal) == (first.usage.tokens + second.usage.tokens - one, 0, 0)
    await to_thread.run_sync(partial(journal.forget, older_than=-1.0))
    assert standing(journal) == (first.usage.tokens + second.usage.tokens - one, 0, 0)


# ------------------------------------------------------------------ workers


async def test_a_submitted_run_is_charged_from_its_submission_to_its_end() -> None:
    url = new_database("procrastinate")
    runtime = kt.Runtime(models={"m:x": answering()})
    team, here = team_of(runtime=runtime), team_of()
    cluster = Cluster(url, engine="procrastinate", beat=BEAT, account="desk")
    try:
        journal = cluster.journal
        await to_thread.run_sync(journal.set_account, "desk", kt.Budget(tokens=700))
        await to_thread.run_sync(partial(journal.set_account, "small", kt.Budget(tokens=200), parent="desk"))
        await to_thread.run_sync(cluster.submit, here, request_of("a"))
        with pytest.raises(InsufficientBudget, match="'desk' has 300 tokens left, 400 asked"):
            await to_thread.run_sync(cluster.submit, here, request_of("b"))
        with pytest.raises(InsufficientBudget, match="'small' has 200 tokens left, 201 asked"):
            await to_thread.run_sync(partial(cluster.submit, here, request_of("b", 201), account="small"))
        await to_thread.run_sync(partial(cluster.submit, here, request_of("c", 200), account="small"))
        assert [run.run_id for run in journal.runs()] == ["c", "a"]
        assert (standing(journal), standing(journal, "small")) == ((0, 600, 2), (0, 200, 1))
        await to_thread.run_sync(journal.cancel, "c")
        assert (standing(journal), standing(journal, "small")) == ((0, 400, 1), (0, 0, 0))
        async with working(url, team):
            await until(lambda: journal.show("a").state == "completed")
        assert standing(journal) == (sum(call.usage.tokens for call in journal.calls("a")), 0, 0)
    finally:
        await to_thread.run_sync(cluster.close)


async def test_a_submitted_run_that_cannot_be_taken_up_waits_and_says_why() -> None:
    url = new_database("procrastinate")
    team = replace(OFFICE, runtime=kt.Runtime(models={"m:x": answering()}))
    request = replace(request_of("r"), plan=kt.TaskGraph([kt.Task("a", "do", evaluator="boss")]))
    async with working(url, team) as cluster:
        journal = cluster.journal
        await to_thread.run_sync(journal.set_account, "desk", kt.Budget(tokens=400))
        await to_thread.run_sync(partial(cluster.submit, OFFICE, request, account="desk"))
        await until(lambda: journal.show("r").state == "suspended")
        await to_thread.run_sync(cluster.submit, OFFICE, replace(request, run_id="other", config=kt.TeamConfig()))
        spent = standing(journal)[0]
        await to_thread.run_sync(partial(take_all, journal, 400 - spent))
        await to_thread.run_sync(approve, journal)
        problem = await until(lambda: execute(url, "SELECT problem FROM unit WHERE run_id = 'r'")[0][0])
        assert problem == f"'desk' has 0 tokens left, {400 - spent} asked"
        assert journal.show("r").state == "suspended"


def take_all(journal: PostgresJournal, tokens: int) -> None:
    """Let another run set aside what is left."""
    other = PostgresJournal(journal._url, beat=BEAT, account="desk")
    other.begin(request_of("rest", tokens), team_of(), {}, None)
    other.close()


async def test_what_a_run_had_that_was_cancelled_before_its_process_died_comes_back() -> None:
    url = new_database("procrastinate")
    first = PostgresJournal(url, beat=BEAT, account="desk")
    await to_thread.run_sync(first.set_account, "desk", kt.Budget(tokens=400))
    await to_thread.run_sync(first.begin, request_of("r"), team_of(), {}, None)
    await to_thread.run_sync(first.cancel, "r")
    await to_thread.run_sync(die, first)
    cluster = Cluster(url, engine="procrastinate", beat=BEAT)
    try:
        assert standing(cluster.journal) == (0, 400, 1)
        await to_thread.run_sync(cluster.start)
        await until(lambda: standing(cluster.journal) == (0, 0, 0))
        assert cluster.journal.show("r").state == "cancelled"
    finally:
        await to_thread.run_sync(cluster.close)
        await to_thread.run_sync(first.close)


# ------------------------------------------------------------------ a file


async def test_in_a_file_what_a_dead_cancelled_run_had_comes_back_with_the_next_run(tmp_path: Path) -> None:
    """No worker watches a file."""
    first, second = (SqliteJournal(tmp_path / "runs.db", account="desk") for _ in range(2))
    first.set_account("desk", kt.Budget(tokens=400))
    first.begin(request_of("r"), team_of(), {}, None)
    second.cancel("r")
    await to_thread.run_sync(die, first)
    assert (second.show("r").state, standing(second)) == ("cancelled", (0, 400, 1))
    second.begin(request_of("s"), team_of(), {}, None)
    assert (second.show("r").state, standing(second)) == ("cancelled", (0, 400, 1))
    second.close()


def test_a_file_from_before_accounts_gets_them(tmp_path: Path) -> None:
    with closing(SqliteJournal(tmp_path / "runs.db")) as journal:
        journal.begin(request_of("r"), team_of(), {}, None)
        with journal.database.writing() as connection:
            for table in ("account", "charge", "ended_window", "window_hold"):
                connection.execute(f"DROP TABLE {table}")
            connection.execute("PRAGMA user_version = 1")
    with closing(SqliteJournal(tmp_path / "runs.db")) as journal:
        assert journal.accounts() == ()
        journal.recover("r", take_over=True)
        journal.set_account("desk", kt.Budget(tokens=400), every="day")


def test_an_amount_that_a_file_cannot_count_is_refused_whole(tmp_path: Path) -> None:
    """SQLite would round it."""
    most = kt.Budget(dollars=9_000_000)
    with closing(SqliteJournal(tmp_path / "runs.db", account="desk")) as journal:
        with pytest.raises(JournalError, match="too large to convert to SQLite INTEGER"):
            journal.set_account("desk", kt.Budget(dollars=10_000_000))
        journal.set_account("desk")
        for name in ("r", "s"):
            request = replace(request_of(name), config=kt.TeamConfig(budget=most))
            with (
                nullcontext()
                if name == "r"
                else pytest.raises(JournalError, match="an account in a file counts up to 9 million dollars")
            ):
                journal.begin(request, team_of(), {}, None)
        assert account(journal).set_aside.dollars == most.dollars
        assert [run.run_id for run in journal.runs()] == ["r"]


# ------------------------------------------------------------------ accounts


def test_copies_for_other_accounts_are_one_process(opened: Open) -> None:
    journal = opened(None)
    one, other = journal.charging("desk"), journal.charging(kt.account("new", kt.Budget(tokens=9)))
    for name, of in (("r", one), ("s", other)):
        of.begin(request_of(name, 9), team_of(), {}, None)
    assert (standing(journal), standing(journal, "new")) == ((0, 9, 1), (0, 9, 1))
    another = opened(None)
    assert [run.state for run in another.runs()] == ["running", "running"]
    other.close()
    assert [run.state for run in another.runs()] == ["interrupted", "interrupted"]


def test_an_account_shows_what_is_left_of_it_and_of_those_above(opened: Open) -> None:
    journal = opened()
    journal.set_account("pages", kt.Budget(tokens=2_000, dollars="3"), parent="desk")
    journal.set_account("notes", parent="pages")
    assert [(one.name, one.parent) for one in journal.accounts()] == [
        ("desk", None), ("pages", "desk"), ("notes", "pages"),
    ]  # fmt: skip
    assert account(journal, "notes").limit == kt.Budget()
    assert account(journal, "notes").left == kt.Budget(tokens=1_000, dollars="3")
    assert journal.set_account("pages", kt.Budget(tokens=500)).limit == kt.Budget(tokens=500, dollars="3")
    assert account(journal, "notes").left == kt.Budget(tokens=500, dollars="3")


def test_a_limit_never_goes_below_what_is_used_and_set_aside(opened: Open) -> None:
    journal = opened()
    journal.begin(request_of("r"), team_of(), {}, None)
    with pytest.raises(Misuse, match=r"used 0 tokens and set aside 400 tokens: its limit of tokens must be at least"):
        journal.set_account("desk", kt.Budget(tokens=399))
    assert journal.set_account("desk", kt.Budget(tokens=400)).left == kt.Budget(tokens=0)


def test_a_new_limit_waits_for_the_runs_that_do_not_have_it(opened: Open) -> None:
    journal = opened("pages")
    journal.set_account("pages", parent="desk")
    journal.begin(request_of("r"), team_of(), {}, None)
    with pytest.raises(Misuse, match=r"'desk' cannot limit dollars yet: these running runs have no such limit: 'r'"):
        journal.set_account("desk", kt.Budget(dollars="1"))
    journal.close()
    journal.forget("r")
    assert journal.set_account("desk", kt.Budget(dollars="1")).limit == kt.Budget(tokens=1_000, dollars="1")


def test_an_account_stays_where_it_was_made(opened: Open) -> None:
    journal = opened()
    journal.set_account("pages", parent="desk")
    journal.set_account("pages", parent="desk")
    journal.set_account("other")
    with pytest.raises(Misuse, match="'pages' is under 'desk' and cannot be moved"):
        journal.set_account("pages", parent="other")
    with pytest.raises(Misuse, match="'desk' is under no other account and cannot be moved"):
        journal.set_account("desk", parent="other")
    with pytest.raises(Misuse, match="no account 'nobody', only 'desk', 'other', 'pages'"):
        journal.set_account("new", parent="nobody")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 101])
def test_an_account_has_a_name_that_can_be_printed(opened: Open, name: str) -> None:
    with pytest.raises(ValueError, match="an account has a name of 1 to 100 printable characters"):
        opened().set_account(name)


def test_an_account_limits_tokens_and_dollars_alone(opened: Open) -> None:
    with pytest.raises(ValueError, match="limits tokens and dollars, not loops"):
        opened().set_account("desk", kt.Budget(loops=3))


@on_postgres
@pytest.mark.parametrize("given_back", [True, False])
def test_who_sets_aside_waits_for_who_does_so_already(opened: Open, place: str, *, given_back: bool) -> None:
    first, second = opened(), opened()
    first.begin(request_of("r", 1_000), team_of(), {}, None)
    begin = partial(second.begin, request_of("s", 1_000), team_of(), {}, None)
    with ThreadPoolExecutor(1) as pool:
        with first.connecting() as connection, connection.transaction():
            connection.execute("SELECT FROM account FOR UPDATE")
            began = pool.submit(begin)
            wait_until_blocked(place, "journal")
            if given_back:
                accounts.settle(connection, "r")
        if given_back:
            began.result()
        else:
            with pytest.raises(InsufficientBudget, match="'desk'"):
                began.result()
    assert standing(second) == (0, 1_000, 1)
