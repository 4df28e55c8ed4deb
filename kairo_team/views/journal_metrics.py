"""The metrics of a journal's runs: read from its tables, and written in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.durable.postgres import PostgresJournal
from kairo_team.durable.processes import has_connection
from kairo_team.recorded import GIVEN_UP

if TYPE_CHECKING:
    from kairo_team.durable.accounts import Account
    from kairo_team.durable.connection import Connection
    from kairo_team.durable.sql_journal import SqlJournal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of Prometheus' text format."""


class Metric(NamedTuple):
    """A metric without its values."""

    unit: str
    help: str


METRICS: Final[Mapping[str, Metric]] = {
    "kairo.runs": Metric("{run}", "Runs in the journal, by state; without runs inside other runs."),
    "kairo.run.queued_age": Metric("s", "Age of the oldest run that no worker has begun."),
    "kairo.runs_given_up": Metric("{run}", "Open runs that were given up: each process that took them died."),
    "kairo.questions": Metric("{question}", "Questions that wait for a person."),
    "kairo.question.age": Metric("s", "Age of the oldest question that waits for a person."),
    "kairo.calls_in_doubt": Metric("{call}", "Calls of open runs that were sent and whose end is not recorded."),
    "kairo.waiting_units": Metric("{unit}", "Units of work that wait for a worker."),
    "kairo.waiting_unit.age": Metric("s", "Age of the oldest unit of work that waits for a worker."),
    "kairo.workers": Metric("{worker}", "Workers that live."),
    "kairo.worker.slots": Metric("{attempt}", "Attempts that the living workers can make at once."),
    "kairo.account.tokens": Metric("{token}", "Tokens of an account: its limit, used, and set aside for open runs."),
    "kairo.account.dollars": Metric("{USD}", "US dollars of an account: its limit, used, and set aside for open runs."),
}
"""The metrics by their names in OpenTelemetry."""
_QUEUED: Final = "SELECT team, {now} - min(started_at) AS age FROM run WHERE state = 'queued' GROUP BY team"
_RUNS: Final = (
    "SELECT team, state, owner, CASE WHEN cancelled IS NULL THEN 0 ELSE 1 END AS ends, count(*) AS number"
    " FROM run WHERE parent IS NULL GROUP BY team, state, owner, CASE WHEN cancelled IS NULL THEN 0 ELSE 1 END"
)
_QUESTIONS: Final = (
    "SELECT team, count(*) AS number, {now} - min(asked_at) AS age FROM question JOIN run USING (run_id)"
    " WHERE decision IS NULL GROUP BY team"
)
_CALLS: Final = (
    "SELECT run.team, run.state, run.owner, count(*) AS number, sum(CASE WHEN {over} THEN 1 ELSE 0 END) AS over"
    " FROM run JOIN call USING (run_id) WHERE run.state IN ('running', 'suspended', 'interrupted', 'given_up')"
    " AND call.state = 'sent' GROUP BY run.team, run.state, run.owner"
)
_UNITS: Final = (
    "SELECT kind, count(*) AS number, {now} - min(sent_at) AS age FROM unit WHERE state = 'sent' GROUP BY kind"
)
_GIVEN_UP: Final = "SELECT team, count(*) AS number FROM run WHERE state = ? AND parent IS NULL GROUP BY team"
_WORKERS: Final = "SELECT team, concurrency, lock FROM process WHERE kind = 'worker' AND state = 'live'"


class Value(NamedTuple):
    """One value of a metric."""

    metric: str
    labels: Mapping[str, str]
    value: float


def read_metrics(journal: SqlJournal) -> list[Value]:
    """Return the values of all metrics now; raises `JournalError` if the journal cannot be read."""
    with journal.database.reading() as connection:
        values = [*_of_runs(journal, connection), *_of_calls(journal, connection)]
        if isinstance(journal, PostgresJournal):
            values += _of_cluster(connection)
    return [*values, *_of_accounts(journal.accounts())]


def _of_runs(journal: SqlJournal, connection: Connection) -> Iterator[Value]:
    numbers: dict[tuple[str, str], int] = {}
    for row in connection.execute(_RUNS).fetchall():
        state = _state(journal, connection, row["state"], row["owner"], cancelled=bool(row["ends"]))
        numbers[row["team"], state] = numbers.get((row["team"], state), 0) + row["number"]
    for (team, state), number in sorted(numbers.items()):
        yield Value("kairo.runs", {"team": team, "state": state}, number)
    for row in connection.execute(_QUEUED.format(now=connection.now)).fetchall():
        yield Value("kairo.run.queued_age", {"team": row["team"]}, _age(row["age"]))
    for row in connection.execute(_QUESTIONS.format(now=connection.now)).fetchall():
        yield Value("kairo.questions", {"team": row["team"]}, row["number"])
        yield Value("kairo.question.age", {"team": row["team"]}, _age(row["age"]))


def _of_calls(journal: SqlJournal, connection: Connection) -> Iterator[Value]:
    doubts: dict[str, int] = {}
    for row in connection.execute(_CALLS.format(over=journal.database.is_over)).fetchall():
        state = _state(journal, connection, row["state"], row["owner"], cancelled=False)
        number = row["over"] if state == "running" else row["number"]
        doubts[row["team"]] = doubts.get(row["team"], 0) + int(number)
    for team, number in sorted(doubts.items()):
        yield Value("kairo.calls_in_doubt", {"team": team}, number)


def _of_cluster(connection: Connection) -> Iterator[Value]:
    for row in connection.execute(_UNITS.format(now=connection.now)).fetchall():
        yield Value("kairo.waiting_units", {"kind": row["kind"]}, row["number"])
        yield Value("kairo.waiting_unit.age", {"kind": row["kind"]}, _age(row["age"]))
    for row in connection.execute(_GIVEN_UP, (GIVEN_UP,)).fetchall():
        yield Value("kairo.runs_given_up", {"team": row["team"]}, row["number"])
    found: dict[str, list[int]] = {}
    for row in connection.execute(_WORKERS).fetchall():
        if has_connection(connection, row["lock"]):
            found.setdefault(row["team"] or "", []).append(row["concurrency"] or 0)
    for team, slots in sorted(found.items()):
        yield Value("kairo.workers", {"team": team}, len(slots))
        yield Value("kairo.worker.slots", {"team": team}, sum(slots))


def _of_accounts(accounts: Sequence[Account]) -> Iterator[Value]:
    for one in accounts:
        for amount, of in (("limit", one.limit), ("used", one.used), ("set_aside", one.set_aside)):
            about = {"account": one.name, "amount": amount}
            if of.tokens is not None:
                yield Value("kairo.account.tokens", about, int(of.tokens))
            if of.dollars is not None:
                yield Value("kairo.account.dollars", about, float(of.dollars))


def _state(journal: SqlJournal, connection: Connection, state: str, owner: str, *, cancelled: bool) -> str:
    return journal.state_of(connection, {"state": state, "owner": owner, "cancelled": "" if cancelled else None})


def _age(seconds: float) -> float:
    return round(max(float(seconds), 0.0), 3)


# ---------------------------------------------------------------- Prometheus


def prometheus_name(metric: str) -> str:
    """Return a metric's name in Prometheus, as OpenTelemetry's own exporter writes it."""
    return metric.replace(".", "_") + ("_seconds" if METRICS[metric].unit == "s" else "")


def prometheus_text(values: Sequence[Value]) -> str:
    """Return values in Prometheus' text format; a metric without a value has its two lines of description only."""
    lines: list[str] = []
    for metric, about in METRICS.items():
        name = prometheus_name(metric)
        lines += [f"# HELP {name} {about.help}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_labels(one.labels)} {one.value!r}" for one in values if one.metric == metric]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    escaped = {
        name: value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') for name, value in labels.items()
    }
    written = ",".join(f'{name}="{value}"' for name, value in escaped.items())
    return f"{{{written}}}" if written else ""
