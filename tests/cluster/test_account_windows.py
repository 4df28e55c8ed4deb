"""Accounts whose limit is for an hour, a day, a week or a month, on a database whose clock the tests set."""

from __future__ import annotations

import atexit
import multiprocessing
import re
from collections.abc import Callable, Generator
from contextlib import closing
from datetime import datetime
from functools import cache
from math import inf, nextafter
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import anyio
import pytest
from anyio import to_thread
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import kairo_team as kt
from kairo_team.durable import accounts
from kairo_team.durable.accounts import Account
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.durable.postgres_database import connect_to
from kairo_team.durable.windows import Every, window_at
from kairo_team.errors import InsufficientBudget, Misuse
from kairo_team.tck.journal_stage import send
from tests.cluster import test_account_law as law
from tests.cluster.server import die, journal_in, server
from tests.cluster.stage import BEAT
from tests.cluster.test_account_law import AnyJournal
from tests.cluster.test_accounts import OFFICE, approve, place, request_of, runtime_on, suspend, team_of

__all__ = ["place"]  # a fixture

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

OSLO: Final = ZoneInfo("Europe/Oslo")
MORNING: Final = datetime(2026, 10, 24, 9, tzinfo=OSLO).timestamp()
"""The day before the clocks go back: the next day has 25 hours."""
HOUR: Final = 3600.0
TODAY: Final[Any] = {"every": "day", "tz": "Europe/Oslo"}


def set_clock(bank: str | Path, now: float) -> None:
    """Set the clock of a database to seconds since 1970."""
    with closing(journal_in(bank)) as journal, journal.database.writing() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS fake_clock (now DOUBLE PRECISION)")
        connection.execute("DELETE FROM fake_clock")
        connection.execute("INSERT INTO fake_clock VALUES (?)", (now,))


def read_clock(connection: Any) -> float:
    return float(connection.execute("SELECT now FROM fake_clock").fetchone()[0])


@pytest.fixture
def bank(place: str | Path, monkeypatch: pytest.MonkeyPatch) -> str | Path:
    """A database, or a file, in which it is nine in the morning."""
    set_clock(place, MORNING)
    monkeypatch.setattr(accounts, "clock", read_clock)
    return place


@pytest.fixture
def opened(bank: str | Path) -> Generator[Callable[..., AnyJournal]]:
    """Makes the journals of several processes, with an account that has 1,000 tokens a day."""
    journals: list[AnyJournal] = []

    def make(account: Any = "desk") -> AnyJournal:
        made = journal_in(bank, account)
        journals.append(made)
        return made

    make(None).set_account("desk", kt.Budget(tokens=1_000), **TODAY)
    yield make
    for journal in journals:
        journal.close()


def found(journal: AnyJournal, name: str = "desk") -> Account:
    return next(one for one in journal.accounts() if one.name == name)


def amounts(journal: AnyJournal, name: str = "desk") -> tuple[int, int]:
    one = found(journal, name)
    return one.used.tokens, one.set_aside.tokens


def ended(journal: AnyJournal, name: str = "desk") -> list[tuple[int, int]]:
    """Return the tokens used and set aside in the earlier windows of an account."""
    sql = "SELECT used_tokens, aside_tokens FROM ended_window WHERE name = ? ORDER BY since"
    with journal.database.reading() as connection:
        return [(int(used), int(aside)) for used, aside in connection.execute(sql, (name,)).fetchall()]


def begin(journal: AnyJournal, run_id: str, tokens: int) -> Any:
    return journal.begin(request_of(run_id, tokens), team_of(), {}, None)


# ------------------------------------------------------------------ windows


def test_a_window_ends_by_the_databases_clock_and_the_next_has_the_whole_limit(opened: Any, bank: str | Path) -> None:
    journal = opened()
    begin(journal, "a", 700)
    midnight = datetime(2026, 10, 25, tzinfo=OSLO)
    with pytest.raises(InsufficientBudget, match=r"'desk' has 300 tokens left, 400 asked; its window ends at") as short:
        begin(journal, "b", 400)
    assert short.value.until == midnight
    assert str(short.value).endswith("2026-10-25 00:00+02:00")
    set_clock(bank, midnight.timestamp() - 0.001)
    assert amounts(journal) == (0, 700)
    set_clock(bank, midnight.timestamp())
    assert amounts(journal) == (0, 0), "a reader sees the new window, though nothing was written"
    window = found(journal).window
    assert window is not None
    assert window.until.timestamp() - window.since.timestamp() == 25 * HOUR
    assert str(window) == "day until 2026-10-26 00:00 Europe/Oslo"
    begin(journal, "b", 1_000)
    assert (amounts(journal), ended(journal)) == ((0, 1_000), [(0, 700)])


async def test_what_was_set_aside_before_a_boundary_is_charged_there(opened: Any, bank: str | Path) -> None:
    journal = opened()

    async def late(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await to_thread.run_sync(set_clock, bank, MORNING + 24 * HOUR)
        prompt = kt.Message.user(assignment.task.id)
        return (await context.model("m:x").complete(kt.ModelRequest([prompt], max_tokens=20))).text

    result = await kt.run(team_of(late), request_of("r"), runtime=runtime_on(journal))
    assert result.usage.tokens > 0
    assert (amounts(journal), ended(journal)) == ((0, 0), [(result.usage.tokens, 0)])


async def test_a_run_that_is_resumed_after_a_boundary_is_charged_in_both_windows(opened: Any, bank: str | Path) -> None:
    journal = opened()
    first = await suspend(journal)
    set_clock(bank, MORNING + 24 * HOUR)
    approve(journal)
    result = await runtime_on(opened()).resume("r", OFFICE)
    assert result.status is kt.TeamStatus.COMPLETED
    assert ended(journal) == [(first, 0)]
    assert amounts(journal) == (result.usage.tokens - first, 0)


async def test_a_run_whose_process_died_keeps_its_amount_in_the_window_where_it_was_set_aside(
    opened: Any, bank: str | Path
) -> None:
    dead, journal = opened(), opened()
    begin(dead, "r", 400)
    die(dead)
    set_clock(bank, MORNING + 24 * HOUR)
    result = await runtime_on(journal).resume("r", team_of())
    assert result.usage.tokens > 0
    assert (amounts(journal), ended(journal)) == ((0, 0), [(result.usage.tokens, 0)])


async def test_a_top_up_after_a_boundary_is_set_aside_in_the_new_window(opened: Any, bank: str | Path) -> None:
    journal = opened()
    session = await to_thread.run_sync(begin, journal, "r", 900)
    set_clock(bank, MORNING + 24 * HOUR)
    with pytest.raises(InsufficientBudget, match="1000 tokens left, 1001 asked"):
        session.set_aside(kt.Budget(tokens=1_901))
    session.set_aside(kt.Budget(tokens=1_900))
    assert (amounts(journal), ended(journal)) == ((0, 1_000), [(0, 900)])
    number = await send(session, held=kt.Usage(950))
    session.ended(number, "answered", kt.Usage(950))
    session.end(kt.TeamResult("r", kt.TeamStatus.FAILED, (), None, usage=kt.Usage(950)))
    await session.written()
    assert (amounts(journal), ended(journal)) == ((50, 0), [(900, 0)]), "the amount set aside first is used first"


def test_other_windows_end_the_open_one(opened: Any, bank: str | Path) -> None:
    journal = opened()
    session = begin(journal, "a", 700)
    window = journal.set_account("desk", every="week").window
    assert (window.every, window.tz, window.since.timestamp()) == ("week", "Europe/Oslo", MORNING)
    assert window.until == datetime(2026, 10, 26, tzinfo=OSLO)
    assert (amounts(journal), ended(journal)) == ((0, 0), [(0, 700)])
    begin(journal, "b", 900)
    for tz in ("Asia/Kolkata", "Europe/Oslo"):  # in the same moment
        journal.set_account("desk", tz=tz)
    assert (amounts(journal), ended(journal)) == ((0, 0), [(0, 700), (0, 900), (0, 0)])
    session.end(kt.TeamResult("a", kt.TeamStatus.FAILED, (), None))
    anyio.run(session.written)
    assert (amounts(journal), ended(journal)) == ((0, 0), [(0, 0), (0, 900), (0, 0)])
    set_clock(bank, window.until.timestamp())
    assert found(journal).window.since == window.until  # type: ignore[union-attr] # it has windows


# ------------------------------------------------------------------ tenants


async def test_each_tenant_has_the_limit_for_itself_and_needs_no_preparation(opened: Any) -> None:
    journal = opened(None)
    journal.set_account("chat", kt.Budget(tokens=900), every="month", tz="Europe/Oslo")

    def of(tenant: str) -> Any:
        terms = kt.account("chat", kt.Budget(tokens=500), scope=tenant, parent="chat", **TODAY)
        return journal.charging(terms)

    for tenant in ("acme", "globex"):
        result = await kt.run(team_of(), request_of(tenant, 400), runtime=runtime_on(of(tenant)))
        assert amounts(journal, f"chat/{tenant}") == (result.usage.tokens, 0)
    begin(of("acme"), "a", 400)
    with pytest.raises(InsufficientBudget, match=r"'chat/acme' has \d+ tokens left"):
        begin(of("acme"), "b", 200)
    with pytest.raises(InsufficientBudget, match=r"'chat' has \d+ tokens left"):
        begin(of("initech"), "c", 500)
    assert [one.name for one in journal.accounts()] == ["chat", "chat/acme", "chat/globex", "desk"]


def test_an_account_that_exists_keeps_its_limit(opened: Any) -> None:
    opened(kt.account("desk", kt.Budget(tokens=5), **TODAY)).begin(request_of("r", 1_000), team_of(), {}, None)


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"every": "daily"}, "did you mean 'day'?"),
        ({"every": "day", "tz": "Europe/Olso"}, "did you mean 'Europe/Oslo'?"),
        ({"tz": "Europe/Oslo"}, "it needs every=, such as every='day'"),
        ({"scope": "a/b"}, "scope= names one tenant, without '/', not 'a/b'"),
        ({"scope": " "}, "an account has a name of 1 to 100 printable characters"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(given: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        kt.account("desk", kt.Budget(tokens=5), **given)


def test_only_tokens_and_dollars_are_limited() -> None:
    with pytest.raises(ValueError, match="an account limits tokens and dollars, not seconds"):
        kt.account("desk", kt.Budget(seconds=5), every="day")


def test_a_limit_for_all_time_gets_no_windows(opened: Any) -> None:
    journal = opened(None)
    journal.set_account("always", kt.Budget(tokens=1_000))
    journal.set_account("always", kt.Budget(tokens=2_000))
    with pytest.raises(
        Misuse, match="'always' has a limit for all time, so it gets no windows: create another account"
    ):
        journal.set_account("always", every="day")


@pytest.mark.parametrize("given", [{}, {"every": "week"}, {"every": "day", "tz": "Asia/Kolkata"}])
def test_a_run_that_expects_other_windows_is_told_what_to_write(opened: Any, given: Any) -> None:
    """A program does not change the windows of an account that others share by the way."""
    terms = kt.account("desk", kt.Budget(tokens=5), **given)
    with pytest.raises(
        Misuse, match=r"write every='day', tz='Europe/Oslo' for .*: journal.set_account\('desk', every="
    ) as told:
        begin(opened(terms), "r", 5)
    assert "account 'desk' has windows of a day in Europe/Oslo" in str(told.value)
    assert found(opened()).window.every == "day"  # type: ignore[union-attr] # it has windows


def test_a_database_from_before_windows_gets_them_and_keeps_its_accounts(database: str) -> None:
    with closing(PostgresJournal(database, beat=BEAT, account="desk")) as journal:
        journal.set_account("desk", kt.Budget(tokens=1_000))
        begin(journal, "r", 400)
        with closing(connect_to(database, "test")) as connection:
            for one in ("every", "tz", "since", "until"):
                connection.execute(f"ALTER TABLE account DROP COLUMN {one}")
            connection.execute("DROP TABLE window_hold, ended_window")
            connection.execute("UPDATE about SET value = '1' WHERE name = 'format'")
        with closing(PostgresJournal(database, beat=BEAT)) as other:
            assert amounts(other) == (0, 400)
            assert found(other).window is None
            other.set_account("daily", kt.Budget(tokens=5), every="day")


# ------------------------------------------------------------------ two processes at once


def spend_all(bank: str | Path, number: int, ready: Any, go: Any) -> None:
    """Begin as many runs as fit, at the same moment as another process."""
    accounts.clock = read_clock
    journal = journal_in(bank, "desk", beat=1.0)
    ready.release()
    go.wait()
    for turn in range(12):
        try:
            begin(journal, f"p{number}-{turn}", 100)
        except InsufficientBudget:
            break


@pytest.mark.exhaustive
def test_two_processes_that_find_a_window_ended_open_one_and_never_pass_its_limit(
    opened: Any, bank: str | Path
) -> None:
    journal = opened()
    begin(journal, "before", 900)
    set_clock(bank, MORNING + 24 * HOUR)
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    processes = [context.Process(target=spend_all, args=(bank, number, ready, go)) for number in range(2)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    go.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert (amounts(journal), ended(journal)) == ((0, 1_000), [(0, 900)])


# ------------------------------------------------------------------ the law

EVERY: Final[dict[str, tuple[Every, str] | None]] = {
    "house": ("month", "Europe/Oslo"),
    "desk": ("day", "Europe/Oslo"),
    "page": ("hour", "Asia/Kolkata"),
    "other": None,
}
TURNS: Final = [datetime(2026, 3, 28, 20, tzinfo=OSLO), datetime(2026, 10, 24, 20, tzinfo=OSLO)]
"""Before the two changes of the clocks in a year."""
TENSES: Final = [*TURNS, datetime(2026, 12, 31, 20, tzinfo=OSLO)]


limits = st.tuples(st.integers(30, 90), st.none() | st.integers(30, 90))


@cache
def home() -> PostgresJournal:
    """The journal of the process that never dies, on a database with a clock to set."""
    made = PostgresJournal(server().new_database(), beat=law.BEAT)
    atexit.register(made.close)  # before the server ends, whose own end was registered before
    return made


class WindowLaw(law.AccountLaw):
    """The same, in accounts with windows, while time passes: no window is ever above its limit."""

    def __init__(self) -> None:
        self.patched = pytest.MonkeyPatch()
        self.now: float = TURNS[0].timestamp()
        self.patched.setattr(accounts, "clock", lambda _connection: self.now)
        self.every = dict(EVERY)
        self.since: dict[str, float] = {}
        self.until: dict[str, float] = {}
        self.ended: dict[tuple[str, float], law.Row] = {}
        self.holds: dict[int, dict[str, dict[float, list[int]]]] = {}
        """By run, account and window: what the run has set aside."""
        super().__init__()

    def home(self) -> law.AnyJournal:
        return home()

    def opened(self) -> law.AnyJournal:
        return journal_in(home()._url)

    forget = cancel = None  # type: ignore[assignment] # fewer rules, so that more runs live at the ends of windows

    @initialize(given=st.lists(limits, min_size=4, max_size=4), now=st.sampled_from(TENSES))
    def make_accounts(self, given: list[law.Pair], now: datetime) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - an initialize rule is called by hypothesis alone
        self.now = now.timestamp()
        self.empty()
        for (name, parent), limit in zip(law.PARENTS.items(), given, strict=True):
            every, tz = EVERY[name] or (None, None)
            self.home().set_account(name, law.budget_of(limit), parent=parent, every=every, tz=tz)
            self.rows[name] = law.Row(list(limit))
        self.roll()

    @rule(account=st.sampled_from(["desk", "page"]), budget=st.tuples(st.integers(10, 30), st.integers(10, 30)))
    def begin(self, account: str, budget: law.Pair) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - a rule is called by hypothesis alone
        super().begin(account, budget, queued=False)

    @rule(seconds=st.sampled_from([600.0, HOUR, 5 * HOUR, 23 * HOUR, 24 * HOUR, 25 * HOUR]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.roll()

    @rule(
        data=st.data(),
        seconds=st.sampled_from([HOUR, 24 * HOUR]),
        more=st.sampled_from([0, 20]),
        ends=st.sampled_from(["ended", "suspended", "live"]),
    )
    def work_over_a_boundary(self, data: st.DataObject, seconds: float, more: int, ends: str) -> None:
        """Spend on both sides of the end of a window, with a raised limit on the second."""
        if self.pick(data, "live") is None:
            self.begin("page", (20, 20))
        self.spend(data, (5, 5), None)
        self.time_passes(seconds)
        self.raise_limit(data, (more, more))
        self.spend(data, (20, 10), 2)
        if ends != "live":
            self.end(data, suspends=ends == "suspended")

    @rule(name=st.sampled_from(["house", "desk", "page"]), windows=st.sampled_from(list(filter(None, EVERY.values()))))
    def change_windows(self, name: str, windows: tuple[Every, str]) -> None:
        self.home().set_account(name, every=windows[0], tz=windows[1])
        if windows != self.every[name]:
            self.every[name] = windows
            self.next_window(name, max(self.now, nextafter(self.since[name], inf)))

    def roll(self) -> None:
        for name, windows in self.every.items():
            if name not in self.since:
                self.since[name], self.until[name] = (0.0, inf) if windows is None else window_at(*windows, self.now)
            elif windows is not None and self.now >= self.until[name]:
                self.next_window(name, max(self.until[name], window_at(*windows, self.now)[0]))

    def next_window(self, name: str, since: float) -> None:
        row, windows = self.rows[name], self.every[name]
        assert windows is not None
        self.ended[name, self.since[name]] = row
        self.rows[name] = law.Row(list(row.limit))
        self.since[name], self.until[name] = since, window_at(*windows, self.now)[1]

    def set_aside(self, run: law.Entry, budget: law.Pair, act: Any) -> bool:
        before = list(run.aside)
        done = super().set_aside(run, budget, act)
        more = [(now or 0) - (was or 0) for now, was in zip(run.aside, before, strict=True)]
        if done and (any(more) or None in run.aside):
            for name in self.chain(run.account):
                windows = self.holds.setdefault(id(run), {}).setdefault(name, {})
                held = windows.setdefault(self.since[name], [0, 0])
                held[:] = [one + much for one, much in zip(held, more, strict=True)]
        return done

    def settle(self, run: law.Entry, state: str) -> None:
        spent = [now - was for now, was in zip(run.spent, run.used, strict=True)]
        holds = self.holds.pop(id(run), {})
        for name in self.chain(run.account):
            rest = list(spent)
            windows = holds.get(name) or {self.since[name]: [0, 0]}
            for since, held in sorted(windows.items()):
                row = self.rows[name] if since == self.since[name] else self.ended[name, since]
                for n in (0, 1):
                    part = rest[n] if since == max(windows) else min(rest[n], held[n])
                    rest[n] -= part
                    row.used[n] += part
                    row.aside[n] -= held[n]
        run.used, run.aside, run.state = list(run.spent), [0, 0], state

    @invariant()
    def ended_windows_are_as_in_the_model_and_within_their_limits(self) -> None:
        with self.home().database.reading() as connection:
            rows = connection.execute("SELECT * FROM ended_window").fetchall()
        for row in rows:
            model = self.ended[row["name"], row["since"]]
            for n, kind in enumerate(("tokens", "picos")):
                used, aside, limit = int(row[f"used_{kind}"]), int(row[f"aside_{kind}"]), row[kind]
                assert (used, aside, limit) == (model.used[n], model.aside[n], model.limit[n])
                assert limit is None or used + aside <= limit

    def teardown(self) -> None:
        super().teardown()
        self.patched.undo()


WindowLaw.TestCase.settings = settings(
    max_examples=max(4, settings().max_examples // 5), stateful_step_count=25, deadline=None
)
TestWindowLaw = WindowLaw.TestCase


class WindowLawInAFile(law.InAFile, WindowLaw):
    """The same, in a file."""


WindowLawInAFile.TestCase.settings = WindowLaw.TestCase.settings
TestWindowLawInAFile = WindowLawInAFile.TestCase
