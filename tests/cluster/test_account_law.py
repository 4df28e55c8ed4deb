"""The law of accounts: used + set aside <= limit, in each of them, at every moment, whoever begins, ends or dies."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import random
import signal
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final, cast

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kairo_team as kt
from kairo_team.budget import to_dollars
from kairo_team.durable.journal import SqliteJournal
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.errors import InsufficientBudget, Misuse, PlanRefused
from kairo_team.results import TeamResult, TeamStatus
from kairo_team.tck.journal_stage import request_of, send, team_of
from tests.cluster.server import die, journal_in, server

pytestmark = pytest.mark.real_time

BEAT: Final = 0.05
PARENTS: Final = {"house": None, "desk": "house", "page": "desk", "other": None}
RECORDS: Final = ("run", "step", "call", "question", "event")
Pair = tuple[int | None, int | None]
AnyJournal = PostgresJournal | SqliteJournal
limits = st.none() | st.integers(0, 60)
pairs = st.tuples(limits, limits)
amounts = st.tuples(st.integers(0, 20), st.integers(0, 20))


def budget_of(pair: Pair) -> kt.Budget:
    return kt.Budget(pair[0], None if pair[1] is None else to_dollars(pair[1]))


def usage_of(pair: Any) -> kt.Usage:
    return kt.Usage(pair[0], dollars=to_dollars(pair[1]))


@dataclass
class Row:
    """An account of the model."""

    limit: list[int | None]
    used: list[int] = field(default_factory=lambda: [0, 0])
    aside: list[int] = field(default_factory=lambda: [0, 0])


@dataclass
class Entry:
    """A run of the model: what it may spend, has spent, has set aside, and was charged when it last ended."""

    account: str
    budget: Pair
    state: str
    session: Any = None
    spent: list[int] = field(default_factory=lambda: [0, 0])
    used: list[int] = field(default_factory=lambda: [0, 0])
    aside: list[int | None] = field(default_factory=lambda: [0, 0])

    def has_room_for(self, amount: tuple[int, int]) -> bool:
        return all(
            whole is None or spent + more <= whole
            for whole, spent, more in zip(self.budget, self.spent, amount, strict=True)
        )


@cache
def home() -> PostgresJournal:
    """The journal of the process that never dies."""
    made = PostgresJournal(server().new_database(), beat=BEAT)
    atexit.register(made.close)  # before the server ends, whose own end was registered before
    return made


class AccountLaw(RuleBasedStateMachine):
    """Runs of a chain of accounts begin, spend, end, wait, die, go on, are raised, cancelled and forgotten."""

    names = count()
    queues: ClassVar[bool] = True
    """Whether a run can be recorded before a process has it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, Row] = {}
        self.runs: dict[str, Entry] = {}
        self.worker = self.opened()
        self.dead: list[AnyJournal] = []

    @initialize(given=st.lists(pairs, min_size=len(PARENTS), max_size=len(PARENTS)))
    def make_accounts(self, given: list[Pair]) -> None:
        self.empty()
        for (name, parent), limit in zip(PARENTS.items(), given, strict=True):
            self.home().set_account(name, budget_of(limit), parent=parent)
            self.rows[name] = Row(list(limit))

    def home(self) -> AnyJournal:
        return home()

    def opened(self) -> AnyJournal:
        """Return the journal of a process that may die."""
        return journal_in(home()._url)

    def empty(self) -> None:
        """Delete what the law before this one has left."""
        with self.home().database.writing() as connection:
            for table in ("window_hold", "ended_window", "charge", "account", *RECORDS):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - the names are above

    # -------------------------------------------------------------- the model

    def chain(self, name: str | None) -> list[str]:
        return [] if name is None else [*self.chain(PARENTS[name]), name]

    def refusal(
        self, account: str, asked: list[int | None], before: list[int | None]
    ) -> tuple[type[Exception], str] | None:
        """Return the error with which an account of a chain refuses, and its name."""
        more = [None if now is None else now - (was or 0) for now, was in zip(asked, before, strict=True)]
        if not any(more) and None not in more:
            return None
        for name in self.chain(account):
            row = self.rows[name]
            limited = [n for n in (0, 1) if row.limit[n] is not None]
            if any(more[n] is None for n in limited):
                return PlanRefused, name
            if any(row.used[n] + row.aside[n] + (more[n] or 0) > (row.limit[n] or 0) for n in limited):
                return InsufficientBudget, name
        return None

    def set_aside(self, run: Entry, budget: Pair, act: Any) -> bool:
        """Do something that sets a run's budget aside, here and in the model; return whether it may be done."""
        asked: list[int | None] = [
            None if whole is None else max(whole - used, was or 0)
            for whole, used, was in zip(budget, run.used, run.aside, strict=True)
        ]
        refused = self.refusal(run.account, asked, run.aside)
        if refused is not None:
            with pytest.raises(refused[0]) as raised:
                act()
            where = raised.value.origin if isinstance(raised.value, InsufficientBudget) else str(raised.value)
            assert refused[1] in where
            return False
        run.session = act()
        for name in self.chain(run.account):
            for n, (now, was) in enumerate(zip(asked, run.aside, strict=True)):
                self.rows[name].aside[n] += (now or 0) - (was or 0)
        run.aside, run.budget = asked, budget
        return True

    def settle(self, run: Entry, state: str) -> None:
        for name in self.chain(run.account):
            for n in (0, 1):
                self.rows[name].used[n] += run.spent[n] - run.used[n]
                self.rows[name].aside[n] -= run.aside[n] or 0
        run.used, run.aside, run.state = list(run.spent), [0, 0], state

    def pick(self, data: st.DataObject, *states: str) -> tuple[str, Entry] | None:
        names = [name for name, run in self.runs.items() if run.state in states]
        if not names:
            return None
        name = data.draw(st.sampled_from(names))
        return name, self.runs[name]

    # -------------------------------------------------------------- what happens

    @rule(account=st.sampled_from(list(PARENTS)), budget=pairs, queued=st.booleans())
    def begin(self, account: str, budget: Pair, *, queued: bool) -> None:
        name = f"r{next(self.names)}"
        request = replace(request_of(name), config=kt.TeamConfig(budget=budget_of(budget)))
        queued = queued and self.queues
        run = Entry(account, budget, "queued" if queued else "live")
        self.worker.account = account
        act = (
            partial(cast("PostgresJournal", self.worker).enqueue, request, team_of(), {}, [])
            if queued
            else partial(self.worker.begin, request, team_of(), {}, None)
        )
        if self.set_aside(run, budget, act):
            self.runs[name] = run

    @rule(data=st.data(), held=amounts, share=st.sampled_from([0, 1, 2, None]))
    def spend(self, data: st.DataObject, held: tuple[int, int], share: int | None) -> None:
        """Make a call that uses all that was held, half of it or nothing, or whose end nobody sees."""
        found = self.pick(data, "live")
        if found is None or not found[1].has_room_for(held):
            return
        session, used = found[1].session, held if share is None else tuple(one * share // 2 for one in held)

        async def call() -> None:
            number = await send(session, held=usage_of(held))
            if share is not None:
                session.ended(number, "answered", usage_of(used))
            await session.written()

        anyio.run(call)
        for n in (0, 1):
            found[1].spent[n] += used[n]

    @rule(data=st.data(), suspends=st.booleans())
    def end(self, data: st.DataObject, *, suspends: bool) -> None:
        found = self.pick(data, "live")
        if found is None:
            return
        name, run = found
        status = TeamStatus.SUSPENDED if suspends else TeamStatus.FAILED
        run.session.end(TeamResult(name, status, (), None, usage=usage_of(run.spent)))
        anyio.run(run.session.written)
        self.settle(run, "suspended" if suspends else "ended")

    @rule(data=st.data(), budget=st.none() | pairs)
    def go_on(self, data: st.DataObject, budget: Pair | None) -> None:
        found = self.pick(data, "dead", "suspended", "queued")
        if found is None:
            return
        name, run = found
        given = None if budget is None else budget_of(budget)
        act = partial(self.worker.recover, name, budget=given)
        if not self.set_aside(run, run.budget if budget is None else budget, act):
            return
        run.session, run.state = run.session[0].journal, "live"
        if budget is not None:
            run.session.put("budget", given)
            anyio.run(run.session.written)

    @rule(data=st.data(), more=amounts)
    def raise_limit(self, data: st.DataObject, more: tuple[int, int]) -> None:
        found = self.pick(data, "live")
        if found is None:
            return
        run = found[1]
        session = run.session
        tokens, picos = (None if whole is None else whole + much for whole, much in zip(run.budget, more, strict=True))
        if self.set_aside(run, (tokens, picos), partial(session.set_aside, budget_of((tokens, picos)))):
            session.put("budget", budget_of((tokens, picos)))
            anyio.run(session.written)
        run.session = session

    @precondition(lambda self: any(run.state == "live" for run in self.runs.values()))
    @rule()
    def die(self) -> None:
        die(self.worker)
        self.dead.append(self.worker)
        self.worker = self.opened()
        for run in self.runs.values():
            run.state = "dead" if run.state == "live" else run.state

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        found = self.pick(data, "dead", "suspended", "queued")
        if found is not None:
            self.home().cancel(found[0])
            self.settle(found[1], "ended")

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        found = self.pick(data, "dead", "suspended", "queued", "ended")
        if found is not None:
            self.home().forget(found[0])
            self.settle(self.runs.pop(found[0]), "gone")

    @rule(name=st.sampled_from(list(PARENTS)), limit=pairs)
    def change_limit(self, name: str, limit: Pair) -> None:
        row = self.rows[name]
        under = [run for run in self.runs.values() if name in self.chain(run.account)]
        free = [n for n in (0, 1) if any(run.aside[n] is None for run in under)]
        wrong = any(now is not None and (now < row.used[n] + row.aside[n] or n in free) for n, now in enumerate(limit))
        if wrong:
            with pytest.raises(Misuse):
                self.home().set_account(name, budget_of(limit))
            return
        self.home().set_account(name, budget_of(limit))
        row.limit = [was if now is None else now for now, was in zip(limit, row.limit, strict=True)]

    # -------------------------------------------------------------- the law

    @invariant()
    def the_rows_are_as_in_the_model(self) -> None:
        for one in self.home().accounts() if self.rows else ():
            row = self.rows[one.name]
            assert (one.used, one.set_aside) == (usage_of(row.used), usage_of(row.aside)), one
            assert one.limit == budget_of((row.limit[0], row.limit[1]))
            for n in (0, 1):
                limit = row.limit[n]
                assert limit is None or row.used[n] + row.aside[n] <= limit, one
            inside = [run for run in self.runs.values() if one.name in self.chain(run.account)]
            assert one.runs == sum(run.state in ("live", "dead", "queued") for run in inside)

    def teardown(self) -> None:
        for journal in (self.worker, *self.dead):
            journal.close()


AccountLaw.TestCase.settings = settings(
    max_examples=max(4, settings().max_examples // 5), stateful_step_count=25, deadline=None
)
TestAccountLaw = AccountLaw.TestCase


class InAFile:
    """A law in a file of SQLite."""

    queues = False

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.keeper = SqliteJournal(Path(self.folder.name) / "runs.db")
        super().__init__()

    def home(self) -> SqliteJournal:
        return self.keeper

    def opened(self) -> SqliteJournal:
        return SqliteJournal(self.keeper.path)

    def teardown(self) -> None:
        super().teardown()  # type: ignore[misc] # a part of the law
        self.keeper.close()
        self.folder.cleanup()


class AccountLawInAFile(InAFile, AccountLaw):
    """The same, in a file."""


AccountLawInAFile.TestCase.settings = AccountLaw.TestCase.settings
TestAccountLawInAFile = AccountLawInAFile.TestCase


# ------------------------------------------------------------------ eight processes

PROCESSES: Final = 8
ROUNDS: Final = 12
LIMIT: Final = 700


def work(place: str | Path, number: int) -> None:
    """Begin, raise and end runs of one account as fast as it goes, half of them under an account of its own."""
    journal = journal_in(place, f"desk{number % 2}", beat=1.0)
    chance = random.Random(number)  # noqa: S311 - no secret
    for turn in range(ROUNDS):
        request = replace(request_of(f"p{number}-{turn}"), config=kt.TeamConfig(budget=kt.Budget(tokens=100)))
        try:
            session: Any = journal.begin(request, team_of(), {}, None)
        except InsufficientBudget:
            time.sleep(0.01)
            continue
        anyio.run(spend_some, session, request.run_id, chance)
    journal.close()


def fork_all(url: str, says: Connection) -> None:
    """Fork the processes: an import in each takes longer than its work. Say their ids, and then how each ended."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=work, args=(url, number)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    says.send([process.pid for process in processes])
    for process in processes:
        process.join()
    says.send([process.exitcode for process in processes])


async def spend_some(session: Any, run_id: str, chance: random.Random) -> None:
    whole, spent = 100, 0
    for _ in range(3):
        held = chance.randint(1, 40)
        try:
            session.set_aside(kt.Budget(tokens=whole + 20))
            whole += 20
        except InsufficientBudget:
            pass
        if spent + held > whole:
            break
        number = await send(session, held=usage_of((held, 0)))
        used = chance.randint(0, held)
        session.ended(number, "answered", usage_of((used, 0)))
        spent += used
    session.end(TeamResult(run_id, TeamStatus.FAILED, (), None, usage=usage_of((spent, 0))))
    await session.written()


def watch(journal: AnyJournal, over: list[Any], ends: threading.Event) -> None:
    sql = "SELECT name, used_tokens, aside_tokens FROM account WHERE used_tokens + aside_tokens > tokens"
    while not ends.is_set():
        with journal.database.reading() as connection:
            over += connection.execute(sql).fetchall()


def test_eight_processes_never_pass_an_account_and_two_that_are_killed_lose_nothing(database: str) -> None:
    with closing(journal_in(database, beat=1.0)) as journal:
        _check_eight(journal, database)


@pytest.mark.exhaustive
def test_eight_processes_on_one_file_never_pass_an_account_either(tmp_path: Path) -> None:
    with closing(journal_in(tmp_path / "runs.db")) as journal:
        _check_eight(journal, tmp_path / "runs.db")


def _check_eight(journal: AnyJournal, place: str | Path) -> None:
    journal.set_account("house", kt.Budget(tokens=LIMIT))
    for name in ("desk0", "desk1"):
        journal.set_account(name, kt.Budget(tokens=LIMIT * 2 // 3), parent="house")
    over: list[Any] = []
    ends = threading.Event()
    watcher = threading.Thread(target=watch, args=(journal, over, ends))
    watcher.start()
    spawn = multiprocessing.get_context("spawn")
    said, says = spawn.Pipe(duplex=False)
    home = spawn.Process(target=fork_all, args=(place, says))
    home.start()
    says.close()  # so that the other end says so if that process dies
    killed = said.recv()[:2]
    while len(journal.runs()) < 2 * PROCESSES and not said.poll():
        time.sleep(0.05)
    for process in killed:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    exits = said.recv()
    home.join()
    while journal.runs(state="running"):  # the server has not seen yet that a connection is gone
        time.sleep(0.05)
    for run in journal.runs(state="interrupted"):
        journal.cancel(run.run_id)
    ends.set()
    watcher.join()
    assert over == []
    assert exits[2:] == [0] * (PROCESSES - 2)
    charged: dict[str, int] = {"desk0": 0, "desk1": 0}
    for run in journal.runs():
        calls = sum(call.usage.tokens for call in journal.calls(run.run_id))
        assert run.usage.tokens == calls
        charged[f"desk{int(run.run_id[1]) % 2}"] += calls
    found = {one.name: (one.used.tokens, one.set_aside.tokens, one.runs) for one in journal.accounts()}
    assert found == {
        "house": (sum(charged.values()), 0, 0),
        **{name: (tokens, 0, 0) for name, tokens in charged.items()},
    }
    assert sum(charged.values()) > 0
