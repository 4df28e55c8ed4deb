"""Accounts: budgets over runs of any number of machines. Each is a row that grows only within its limit.

An account may be under another: a charge counts in its account and in every account above. In each of them, in tokens
and in dollars,

    used + set aside <= limit

The transaction that begins or resumes a run, or raises its limit, sets aside the amount that the run may still spend.
The transaction that records the run's end replaces this amount by the amount that the run has spent. Only usage that is
reported above its hold can exceed a limit.

The row of an account with windows (`every`) is its open window, and `ended_window` has the earlier ones. The first
transaction that locks the account after a window's end moves the amounts there, by the database's clock. An amount set
aside belongs to the window in which that was done (`window_hold`), and so does the usage that it becomes.

Lock order: the row of a run's charge first, then the accounts from the root down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kairo_team._util.frozen import known_call
from kairo_team.budget import Budget, Usage, picodollars, to_dollars
from kairo_team.durable.connection import Connection
from kairo_team.durable.recovery import runs_inside, usage_of
from kairo_team.durable.windows import Every, Window, check_every, check_tz, window_at, zone
from kairo_team.engine.records.plan_records import RAISED_BUDGET
from kairo_team.errors import InsufficientBudget, Misuse, PlanRefused, known

if TYPE_CHECKING:
    from kairo_team.recorded import RecoveredRun
    from kairo_team.team import TeamExecutionRequest

_DIMENSIONS: Final = ("tokens", "dollars")
_EXAMPLES: Final = {"tokens": "tokens=20_000", "dollars": 'dollars="0.50"'}
_MOST_NAMED: Final = 3
_LONGEST: Final = 100

_CHAIN: Final = """
WITH RECURSIVE chain(name, parent, depth) AS
 (SELECT name, parent, 0 FROM account WHERE name = ? UNION ALL
  SELECT account.name, account.parent, depth + 1 FROM account JOIN chain ON account.name = chain.parent)
SELECT name FROM chain ORDER BY depth DESC
"""
_UNDER: Final = """
WITH RECURSIVE under(name) AS
 (SELECT CAST(? AS TEXT) UNION SELECT account.name FROM account JOIN under ON account.parent = under.name)
SELECT name FROM under
"""


@dataclass(frozen=True, slots=True)
class Account:
    """A budget over runs, with its current amounts."""

    name: str
    parent: str | None
    """The account above this one; None for a root."""
    limit: Budget
    """Tokens and dollars; None means no limit."""
    used: Usage
    """The usage of its runs that have ended or are suspended; tokens as prompt tokens."""
    set_aside: Usage
    """The most that its other runs may use, including what they have used already; tokens as prompt tokens."""
    runs: int
    """The number of runs with an amount set aside in this account or in accounts under it, in any window."""
    left: Budget
    """The most that a run could set aside now, here and in every account above; usable as a run's `budget=`."""
    window: Window | None = None
    """The window that the limit and the amounts are for; None for an account whose limit is for all time."""


@dataclass(frozen=True, slots=True)
class AccountTerms:
    """An account that is created when the first run is charged to it: made by `account`, and used as `account=`."""

    name: str
    limit: Budget
    parent: str | None = None
    every: Every | None = None
    tz: str | None = None


@known_call
def account(
    name: str,
    limit: Budget,
    *,
    every: Every | None = None,
    tz: str | None = None,
    scope: str | None = None,
    parent: str | None = None,
) -> AccountTerms:
    """Return an account to charge runs to; the first run that is charged to it creates it.

    It limits the tokens and dollars of all its runs, or with `every` ("hour", "day", "week" or "month") of those in one
    window. Windows begin by the clocks of the time zone `tz`, None: UTC. `scope` names a tenant, whose account
    `name/scope` has the limit for itself. `parent` is the account above it. An account that exists already keeps its
    limit, which `set_account` changes. Raises `ValueError` for a wrong value.
    """
    if scope is not None and "/" in check_name(scope):
        raise ValueError(f"scope= names one tenant, without '/', not {scope!r}")
    full = check_name(check_name(name) if scope is None else f"{name}/{scope}")
    _check_limit(limit)
    _check_window(every, tz)
    _check_every_given(every, tz)
    return AccountTerms(full, limit, parent, every, tz)


def _check_window(every: str | None, tz: str | None) -> None:
    if every is not None:
        check_every(every)
    if tz is not None:
        check_tz(tz)


def _check_every_given(every: str | None, tz: str | None) -> None:
    if every is None and tz is not None:
        raise ValueError(f"tz={tz!r} says when windows begin, so it needs every=, such as every='day'")


class _Amounts(NamedTuple):
    """Tokens and picodollars; None means no limit, or an amount without one."""

    tokens: int | None
    picos: int | None


def _amounts(budget: Budget) -> _Amounts:
    return _Amounts(budget.tokens, None if budget.dollars is None else picodollars(budget.dollars))


def _budget(amounts: Iterable[int | None]) -> Budget:
    tokens, picos = amounts
    return Budget(None if tokens is None else int(tokens), None if picos is None else to_dollars(int(picos)))


def _usage(tokens: int, picos: int) -> Usage:
    return Usage(int(tokens), dollars=to_dollars(int(picos)))


def _row(row: Any, kind: str) -> tuple[int, int]:
    """Return amounts of a row; NULL counts as 0."""
    return int(row[f"{kind}_tokens"] or 0), int(row[f"{kind}_picos"] or 0)


def _limits(row: Any) -> _Amounts:
    return _Amounts(row["tokens"], row["picos"])


# ------------------------------------------------------------------ what runs set aside


def begin(connection: Connection, request: TeamExecutionRequest, charged: str | AccountTerms, epoch: int) -> None:
    """Charge a new run to an account, and set its budget aside there.

    Raises `Misuse` if the account does not exist, or exists with another parent or other windows, and the errors of
    `set_aside`.
    """
    name = charged if isinstance(charged, str) else _create_account(connection, charged)
    _check_there(connection, name)
    sql = "INSERT INTO charge (run_id, account, epoch) VALUES (?, ?, ?)"
    connection.execute(sql, (request.run_id, name, epoch))
    set_aside(connection, request.run_id, epoch, request.config.budget)


def _create_account(connection: Connection, terms: AccountTerms) -> str:
    """Create an account unless it exists, and return its name."""
    row = connection.execute("SELECT * FROM account WHERE name = ?", (terms.name,)).fetchone()
    if row is None:
        change(connection, terms.name, terms.limit, terms.parent, terms.every, terms.tz)
    else:
        _check_under(row, terms.parent)
        if (terms.every, terms.tz or row["tz"]) != (row["every"], row["tz"]):
            _check_may_have_windows(row, terms.every)
            here, name = f"every={row['every']!r}, tz={row['tz']!r}", terms.name
            raise Misuse(
                f"account {name!r} has windows of a {row['every']} in {row['tz']}: write {here} for this run, or "
                f"change the account for all runs: journal.set_account({name!r}, every=..., tz=...), or kairo budget"
            )
    return terms.name


def go_on(connection: Connection, run: RecoveredRun, budget: Budget | None) -> None:
    """Set aside the amount that a resumed run may still spend: the rest of `budget`, None: of its recorded budget."""
    run_id, epoch = run.request.run_id, cast("Any", run.journal).epoch
    recorded = cast("Budget", run.steps.get(RAISED_BUDGET, run.request.config.budget))
    connection.execute("UPDATE charge SET epoch = ? WHERE run_id = ?", (epoch, run_id))
    set_aside(connection, run_id, epoch, recorded if budget is None else budget)


def copy(connection: Connection, run_id: str, new_id: str) -> None:
    """Charge a fork to the account of its original run."""
    # The copied calls are paid already, by the original run.
    spent = usage_of(connection, new_id)
    sql = (
        "INSERT INTO charge (run_id, account, copied_tokens, copied_picos)"
        " SELECT ?, account, ?, ? FROM charge WHERE run_id = ?"
    )
    connection.execute(sql, (new_id, spent.tokens, picodollars(spent.dollars), run_id))


def set_aside(connection: Connection, run_id: str, epoch: int, budget: Budget) -> bool:
    """Set aside the rest of a session's budget in its account and in every account above; all of them or none.

    An amount that was set aside before is never reduced. Returns False if another session has the run. Raises
    `InsufficientBudget` if an account has less left, and `PlanRefused` if an account limits something that the budget
    does not.
    """
    charge = connection.execute(f"SELECT * FROM charge WHERE run_id = ?{connection.for_update}", (run_id,)).fetchone()
    if charge is None:
        return True
    if charge["epoch"] != epoch:
        return False
    before = _row(charge, "aside")
    paid = map(sum, zip(_row(charge, "used"), _row(charge, "copied"), strict=True))
    asked = [
        None if whole is None else max(whole - spent, aside)
        for whole, spent, aside in zip(_amounts(budget), paid, before, strict=True)
    ]
    more = [(now or 0) - aside for now, aside in zip(asked, before, strict=True)]
    needed = [None if now is None else much for now, much in zip(asked, more, strict=True)]
    # Also for an amount without a limit, which changes nothing here, but which an account may refuse.
    for name in _chain(connection, charge["account"]) if any(more) or None in asked else ():
        row = _check_room(connection, name, needed)
        sql = "UPDATE account SET aside_tokens = aside_tokens + ?, aside_picos = aside_picos + ? WHERE name = ?"
        connection.execute(sql, (*more, name))
        if row["every"] is not None:
            sql = (
                "INSERT INTO window_hold (run_id, account, since, tokens, picos) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (run_id, account, since) DO UPDATE SET tokens = window_hold.tokens + excluded.tokens,"
                " picos = window_hold.picos + excluded.picos"
            )
            connection.execute(sql, (run_id, name, row["since"], *more))
    sql = "UPDATE charge SET aside_tokens = ?, aside_picos = ? WHERE run_id = ?"
    connection.execute(sql, (*asked, run_id))
    return True


def _check_room(connection: Connection, name: str, asked: Sequence[int | None]) -> Any:
    """Raise if an account has less left than `asked`; lock the account until the transaction ends, and return it."""
    row = _locked(connection, name)
    taken = map(sum, zip(_row(row, "used"), _row(row, "aside"), strict=True))
    rest = [None if limit is None else limit - much for limit, much in zip(_limits(row), taken, strict=True)]
    unlimited = [_DIMENSIONS[n] for n, left in enumerate(rest) if left is not None and asked[n] is None]
    if unlimited:
        example = ", ".join(_EXAMPLES[one] for one in unlimited)
        problem = (
            f"account {name!r} limits {' and '.join(unlimited)}, and the run has no such limit: give it one, such as "
            f"budget=kt.Budget({example}); journal.accounts() shows what is left"
        )
        raise PlanRefused([problem])
    lacking = next((n for n, left in enumerate(rest) if left is not None and left < (asked[n] or 0)), None)
    if lacking is not None:
        most = _budget(None if left is None else max(left, 0) for left in rest)
        dimension = _DIMENSIONS[lacking]
        window = _window(row)
        until = None if window is None else window.until
        amounts = getattr(_budget(asked), dimension), getattr(most, dimension)
        raise InsufficientBudget(dimension, *amounts, name, until=until)
    return row


# ------------------------------------------------------------------ what runs have spent


def settle(connection: Connection, run_id: str, epoch: int | None = None) -> None:
    """Charge a run's real usage to its account and every account above, and release the rest that was set aside.

    A call without a known end is charged its hold. Does nothing if the run is settled already, or if `epoch` is given
    and another session has the run.
    """
    charge = connection.execute(f"SELECT * FROM charge WHERE run_id = ?{connection.for_update}", (run_id,)).fetchone()
    if charge is None or charge["epoch"] is None or epoch not in (None, charge["epoch"]):
        return
    spent = usage_of(connection, run_id)
    whole = (spent.tokens, picodollars(spent.dollars))
    used = [much - copied for much, copied in zip(whole, _row(charge, "copied"), strict=True)]
    # A resumed run was settled before: only the difference is new.
    more = [much - before for much, before in zip(used, _row(charge, "used"), strict=True)]
    for name in _chain(connection, charge["account"]):
        row = _locked(connection, name)
        moved = (
            "used_tokens = used_tokens + ?, used_picos = used_picos + ?,"
            " aside_tokens = aside_tokens - ?, aside_picos = aside_picos - ? WHERE name = ?"
        )
        for since, spent_there, held in _by_window(connection, run_id, row, more, _row(charge, "aside")):
            if since == row["since"]:
                connection.execute(f"UPDATE account SET {moved}", (*spent_there, *held, name))
            else:
                connection.execute(f"UPDATE ended_window SET {moved} AND since = ?", (*spent_there, *held, name, since))
    connection.execute("DELETE FROM window_hold WHERE run_id = ?", (run_id,))
    sql = (
        "UPDATE charge SET used_tokens = ?, used_picos = ?, aside_tokens = 0, aside_picos = 0, epoch = NULL"
        " WHERE run_id = ?"
    )
    connection.execute(sql, (*used, run_id))


def _by_window(
    connection: Connection, run_id: str, row: Any, spent: Sequence[int], aside: tuple[int, int]
) -> list[tuple[float | None, Sequence[int], Sequence[int]]]:
    """Return what a run has spent and set aside in each window of an account, by the window's beginning.

    Usage counts first for what was set aside first; the last window gets the rest.
    """
    if row["every"] is None:
        return [(None, spent, aside)]
    sql = "SELECT * FROM window_hold WHERE run_id = ? AND account = ? ORDER BY since"
    holds = connection.execute(sql, (run_id, row["name"])).fetchall()
    if not holds:  # nothing could be spent, so nothing was set aside
        return [(row["since"], spent, (0, 0))]
    found: list[tuple[float | None, Sequence[int], Sequence[int]]] = []
    rest = list(spent)
    for hold in holds[:-1]:
        held = int(hold["tokens"]), int(hold["picos"])
        part = [min(one, much) for one, much in zip(rest, held, strict=True)]
        rest = [one - much for one, much in zip(rest, part, strict=True)]
        found.append((hold["since"], part, held))
    last = holds[-1]
    return [*found, (last["since"], rest, (int(last["tokens"]), int(last["picos"])))]


def settle_cancelled(connection: Connection) -> None:
    """End and settle the runs that were cancelled and whose process is dead."""
    sql = (
        "SELECT run_id FROM run WHERE state = 'running' AND cancelled IS NOT NULL AND parent IS NULL AND NOT EXISTS"
        " (SELECT FROM process WHERE process.id = run.owner AND process.state <> 'dead')"
    )
    for row in connection.execute(sql).fetchall():
        end_cancelled(connection, row["run_id"])


def end_cancelled(connection: Connection, run_id: str) -> None:
    """End and settle a run that was cancelled and whose process is dead."""
    for one in (run_id, *sorted(runs_inside(connection, run_id))):  # in one order everywhere, against deadlocks
        connection.execute(f"SELECT 1 FROM run WHERE run_id = ?{connection.for_update}", (one,))
        connection.execute("UPDATE run SET state = 'cancelled', epoch = epoch + 1 WHERE run_id = ?", (one,))
    settle(connection, run_id)


# ------------------------------------------------------------------ accounts


def check_name(name: str) -> str:
    """Return the name of an account; raise `ValueError` if it is blank, too long or not printable."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise ValueError(f"an account has a name of 1 to {_LONGEST} printable characters, not {name!r:.120}")
    return name


def read(connection: Connection) -> tuple[Account, ...]:
    """Return all accounts, each before those under it."""
    now = clock(connection)
    found = connection.execute("SELECT * FROM account ORDER BY name").fetchall()
    rows = {row["name"]: _as_of(row, now) for row in found}
    sql = "SELECT account, count(*) FROM charge WHERE epoch IS NOT NULL GROUP BY account"
    runs = dict.fromkeys(rows, 0)
    for account, number in connection.execute(sql).fetchall():
        for name in _path(rows, account):
            runs[name] += number
    # A path begins with its parent's path, so the parent comes first.
    ordered = sorted(rows, key=lambda name: _path(rows, name))
    return tuple(_account(rows, name, runs[name]) for name in ordered)


def _path(rows: Any, name: str) -> list[str]:
    """Return the names of an account and the accounts above it, the root first."""
    parent = rows[name]["parent"]
    return [name] if parent is None else [*_path(rows, parent), name]


def _account(rows: Any, name: str, runs: int) -> Account:
    row = rows[name]
    rests: list[list[int]] = [[], []]
    for above in (rows[one] for one in _path(rows, name)):
        for n, limit in enumerate(_limits(above)):
            if limit is not None:
                # Below 0 after a call that used more than its hold.
                rests[n].append(max(0, int(limit) - _row(above, "used")[n] - _row(above, "aside")[n]))
    left = _budget(min(rest, default=None) for rest in rests)
    used, aside = _usage(*_row(row, "used")), _usage(*_row(row, "aside"))
    return Account(name, row["parent"], _budget(_limits(row)), used, aside, runs, left, _window(row))


def change(
    connection: Connection,
    name: str,
    limit: Budget,
    parent: str | None,
    every: Every | None = None,
    tz: str | None = None,
) -> Account:
    """Create an account, or change its limits; None in `limit` keeps the current one."""
    _check_limit(limit)
    _check_window(every, tz)
    row = _locked(connection, name)
    if row is None:
        _create(connection, name, limit, parent, every, tz)
    else:
        _check_under(row, parent)
        new_every, new_tz = every or row["every"], tz or row["tz"]
        if (new_every, new_tz) != (row["every"], row["tz"]):
            _check_may_have_windows(row, every)
            # The open window ends now. A window's key is its beginning, so the next one begins later, if by a moment.
            now = clock(connection)
            row = _open(
                connection, row, _with_next_window(row, new_every, new_tz, now, max(now, nextafter(row["since"], inf)))
            )
        _change_limits(connection, row, limit)
    return next(one for one in read(connection) if one.name == name)


def _create(
    connection: Connection, name: str, limit: Budget, parent: str | None, every: Every | None, tz: str | None
) -> None:
    if parent is not None:
        _check_there(connection, parent)
    _check_every_given(every, tz)
    zone_name = None if every is None else tz or "UTC"
    span = (None, None) if every is None or zone_name is None else window_at(every, zone_name, clock(connection))
    sql = "INSERT INTO account (name, parent, tokens, picos, every, tz, since, until) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    connection.execute(sql, (name, parent, *_amounts(limit), every, zone_name, *span))


def _check_limit(limit: Budget) -> None:
    other = next((one.name for one in fields(limit) if one.name not in _DIMENSIONS and getattr(limit, one.name)), None)
    if other is not None:
        raise ValueError(f"an account limits tokens and dollars, not {other}: those are limits of single runs")


def _check_may_have_windows(row: Any, every: str | None) -> None:
    if row["every"] is None:
        raise Misuse(
            f"account {row['name']!r} has a limit for all time, so it gets no windows: create another account with "
            f"every={every or 'day'!r}"
        )


def _check_under(row: Any, parent: str | None) -> None:
    if parent not in (None, row["parent"]):
        where = "under no other account" if row["parent"] is None else f"under {row['parent']!r}"
        raise Misuse(f"account {row['name']!r} is {where} and cannot be moved: create another account under {parent!r}")


def _change_limits(connection: Connection, row: Any, limit: Budget) -> None:
    name, now = row["name"], _amounts(limit)
    for n, kind in enumerate(("tokens", "picos")):
        taken = _row(row, "used")[n] + _row(row, "aside")[n]
        wanted = now[n]
        if wanted is None:
            continue
        if wanted < taken:
            used, aside = _usage(*_row(row, "used")), _usage(*_row(row, "aside"))
            raise Misuse(
                f"account {name!r} has used {used} and set aside {aside}: its limit of {_DIMENSIONS[n]} must be at "
                f"least the sum of both, not {getattr(limit, _DIMENSIONS[n])}; a run gives back the rest when it ends"
            )
        sql = f"SELECT run_id FROM charge WHERE epoch IS NOT NULL AND aside_{kind} IS NULL AND account IN ({_UNDER})"
        free = [one["run_id"] for one in connection.execute(f"{sql} ORDER BY run_id", (name,))]
        if free:
            raise Misuse(
                f"account {name!r} cannot limit {_DIMENSIONS[n]} yet: these running runs have no such limit: "
                f"{known(free[:_MOST_NAMED])}{' and more' if len(free) > _MOST_NAMED else ''}; cancel them or wait"
            )
        connection.execute(f"UPDATE account SET {kind} = ? WHERE name = ?", (wanted, name))


# ------------------------------------------------------------------ windows


def clock(connection: Connection) -> float:
    """Return the database's time, in seconds since 1970."""
    return float(connection.execute(f"SELECT CAST({connection.now} AS DOUBLE PRECISION)").fetchone()[0])


def _locked(connection: Connection, name: str) -> Any:
    """Lock an account until the transaction ends, and return it with its open window; None if it does not exist."""
    sql = f"SELECT * FROM account WHERE name = ?{connection.for_update}"
    row = connection.execute(sql, (name,)).fetchone()
    if row is None or row["every"] is None:
        return row
    now = _as_of(row, clock(connection))
    return now if now["since"] == row["since"] else _open(connection, row, now)


def _open(connection: Connection, row: Any, new: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep the open window of a locked account as an ended one, and open the next one; return the account."""
    kept = "name, since, tokens, picos, used_tokens, used_picos, aside_tokens, aside_picos"
    sql = f"INSERT INTO ended_window (until, {kept}) SELECT ?, {kept} FROM account WHERE name = ?"
    # The earlier one: `change` ends a window before its time.
    connection.execute(sql, (min(row["until"], new["since"]), row["name"]))
    sql = (
        "UPDATE account SET used_tokens = 0, used_picos = 0, aside_tokens = 0, aside_picos = 0,"
        " every = ?, tz = ?, since = ?, until = ? WHERE name = ?"
    )
    connection.execute(sql, (new["every"], new["tz"], new["since"], new["until"], row["name"]))
    return new


def _as_of(row: Any, now: float) -> Mapping[str, Any]:
    """Return an account as it is at a moment: with empty amounts if its window has ended by then."""
    if row["every"] is None or now < row["until"]:
        return dict(zip(row.keys(), row, strict=True))
    # Where clocks jump by less than an hour, the computed hour may begin before the last one has ended.
    return _with_next_window(row, row["every"], row["tz"], now, row["until"])


def _with_next_window(row: Any, every: Every, tz: str, now: float, earliest: float) -> Mapping[str, Any]:
    """Return an account with an empty window around `now` that does not begin before `earliest`."""
    since, until = window_at(every, tz, now)
    window = {"every": every, "tz": tz, "since": max(since, earliest), "until": until}
    empty = dict.fromkeys(("used_tokens", "used_picos", "aside_tokens", "aside_picos"), 0)
    return {**dict(zip(row.keys(), row, strict=True)), **window, **empty}


def _window(row: Any) -> Window | None:
    if row["every"] is None:
        return None
    since, until = (datetime.fromtimestamp(row[one], zone(row["tz"])) for one in ("since", "until"))
    return Window(row["every"], row["tz"], since, until)


# ------------------------------------------------------------------ names


def _check_there(connection: Connection, name: str) -> None:
    if not _chain(connection, name):
        names = [row["name"] for row in connection.execute("SELECT name FROM account").fetchall()]
        raise Misuse(f"there is no account {name!r}, only {known(names)}: journal.set_account({name!r}, ...) makes it")


def _chain(connection: Connection, name: str) -> list[str]:
    """Return the names of an account and the accounts above it, the root first; empty if the account does not exist."""
    return [row["name"] for row in connection.execute(_CHAIN, (name,)).fetchall()]
