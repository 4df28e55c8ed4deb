"""The tables of journals: their format, and what brings a database of an earlier format to the present one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.errors import JournalError

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection

# A step is never changed once a release has it: databases that have taken it would differ from later ones. A new step
# goes to the end of both lists. `LEAST` rises with it only if programs of the format before it would fail, or would
# write values that programs of the new format cannot read.

# `answered_by` and `answered_at` of a question without a decision: who deferred it, and when.
# No table with long rows is WITHOUT ROWID: to compare a key SQLite would read the whole row.
_FILE_1: Final = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE owner (id TEXT PRIMARY KEY, pid INTEGER NOT NULL, host TEXT NOT NULL, started_at REAL NOT NULL)
    WITHOUT ROWID;
CREATE TABLE run (
    run_id TEXT PRIMARY KEY, parent TEXT, parent_step TEXT, parent_member TEXT, team TEXT NOT NULL,
    state TEXT NOT NULL, owner TEXT NOT NULL, epoch INTEGER NOT NULL, cancelled TEXT, active REAL NOT NULL DEFAULT 0,
    seq INTEGER NOT NULL DEFAULT 0, started_at REAL NOT NULL, updated_at REAL NOT NULL, forked_from TEXT, usage TEXT,
    goal TEXT NOT NULL, digests TEXT NOT NULL, source TEXT NOT NULL, request TEXT NOT NULL, result TEXT
);
CREATE INDEX run_by_parent ON run (parent);
CREATE TABLE step (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL, body TEXT, UNIQUE (run_id, key)
);
CREATE TABLE call (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, number INTEGER NOT NULL, epoch INTEGER NOT NULL, step TEXT NOT NULL,
    key TEXT NOT NULL, what TEXT NOT NULL, name TEXT NOT NULL, task_id TEXT, member TEXT, side_effect TEXT,
    loops INTEGER NOT NULL, held_tokens INTEGER NOT NULL, held_picos INTEGER NOT NULL, state TEXT NOT NULL,
    prompt INTEGER NOT NULL DEFAULT 0, completion INTEGER NOT NULL DEFAULT 0, picos INTEGER NOT NULL DEFAULT 0,
    sent_at REAL NOT NULL, ended_at REAL, seq INTEGER NOT NULL, ended_seq INTEGER, copied INTEGER NOT NULL DEFAULT 0,
    UNIQUE (run_id, epoch, number)
);
CREATE TABLE question (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, digest TEXT NOT NULL, body TEXT NOT NULL, decision TEXT,
    asked_at REAL NOT NULL, answered_by TEXT, answered_at REAL
);
CREATE INDEX question_by_run ON question (run_id);
CREATE TABLE event (run_id TEXT NOT NULL, last INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run_id, last))
"""
# SQLite turns a sum above 64 bits into a rounded number, which must not get in: so many picodollars are 9 million.
_FILE_2: Final = """
CREATE TABLE IF NOT EXISTS file (digest TEXT PRIMARY KEY, used TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS run_file (run_id TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, digest));
CREATE INDEX IF NOT EXISTS run_file_by_digest ON run_file (digest);
CREATE TABLE IF NOT EXISTS account (
    name TEXT PRIMARY KEY, parent TEXT, tokens INTEGER, picos INTEGER,
    used_tokens INTEGER NOT NULL DEFAULT 0, used_picos INTEGER NOT NULL DEFAULT 0,
    aside_tokens INTEGER NOT NULL DEFAULT 0, aside_picos INTEGER NOT NULL DEFAULT 0,
    every TEXT, tz TEXT, since REAL, until REAL,
    CONSTRAINT "an account in a file counts up to 9 million dollars"
        CHECK (typeof(used_picos) = 'integer' AND typeof(aside_picos) = 'integer')
);
CREATE TABLE IF NOT EXISTS charge (
    run_id TEXT PRIMARY KEY, account TEXT NOT NULL, epoch INTEGER,
    used_tokens INTEGER NOT NULL DEFAULT 0, used_picos INTEGER NOT NULL DEFAULT 0,
    aside_tokens INTEGER DEFAULT 0, aside_picos INTEGER DEFAULT 0,
    copied_tokens INTEGER NOT NULL DEFAULT 0, copied_picos INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS charge_by_account ON charge (account);
CREATE TABLE IF NOT EXISTS ended_window (
    name TEXT NOT NULL, since REAL NOT NULL, until REAL NOT NULL, tokens INTEGER, picos INTEGER,
    used_tokens INTEGER NOT NULL, used_picos INTEGER NOT NULL,
    aside_tokens INTEGER NOT NULL, aside_picos INTEGER NOT NULL, PRIMARY KEY (name, since)
);
CREATE TABLE IF NOT EXISTS window_hold (
    run_id TEXT NOT NULL, account TEXT NOT NULL, since REAL NOT NULL, tokens INTEGER NOT NULL, picos INTEGER NOT NULL,
    PRIMARY KEY (run_id, account, since)
)
"""
_POSTGRES_1: Final = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE process (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, host TEXT NOT NULL, pid BIGINT NOT NULL, lock INTEGER NOT NULL,
    team TEXT, digest TEXT, members TEXT, concurrency INTEGER, state TEXT NOT NULL, beats BIGINT NOT NULL DEFAULT 0,
    started_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE run (
    run_id TEXT PRIMARY KEY, parent TEXT, parent_step TEXT, parent_member TEXT, team TEXT NOT NULL,
    state TEXT NOT NULL, owner TEXT NOT NULL, epoch BIGINT NOT NULL, cancelled TEXT,
    active DOUBLE PRECISION NOT NULL DEFAULT 0, seq BIGINT NOT NULL DEFAULT 0, started_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL, forked_from TEXT, usage TEXT, goal TEXT NOT NULL, digests TEXT NOT NULL,
    source TEXT NOT NULL, request TEXT NOT NULL, result TEXT
);
CREATE INDEX run_by_parent ON run (parent);
CREATE TABLE step (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id TEXT NOT NULL,
    key TEXT COLLATE "C" NOT NULL, value TEXT NOT NULL, epoch BIGINT NOT NULL, seq BIGINT NOT NULL, body TEXT,
    UNIQUE (run_id, key)
);
CREATE TABLE call (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id TEXT NOT NULL, number BIGINT NOT NULL,
    epoch BIGINT NOT NULL, step TEXT NOT NULL, key TEXT NOT NULL, what TEXT NOT NULL, name TEXT NOT NULL, task_id TEXT,
    member TEXT, side_effect TEXT, loops BIGINT NOT NULL, held_tokens BIGINT NOT NULL, held_picos BIGINT NOT NULL,
    state TEXT NOT NULL, prompt BIGINT NOT NULL DEFAULT 0, completion BIGINT NOT NULL DEFAULT 0,
    picos BIGINT NOT NULL DEFAULT 0, sent_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION, seq BIGINT NOT NULL,
    ended_seq BIGINT, copied INTEGER NOT NULL DEFAULT 0,
    unit TEXT NOT NULL DEFAULT '', fence INTEGER NOT NULL DEFAULT 0,
    UNIQUE (run_id, epoch, unit, fence, number)
);
CREATE INDEX call_by_step ON call (run_id, step);
CREATE TABLE question (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, digest TEXT NOT NULL, body TEXT NOT NULL, decision TEXT,
    asked_at DOUBLE PRECISION NOT NULL, answered_by TEXT, answered_at DOUBLE PRECISION
);
CREATE INDEX question_by_run ON question (run_id);
CREATE TABLE event (run_id TEXT NOT NULL, last BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run_id, last));
CREATE TABLE unit (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, run_id TEXT NOT NULL, step TEXT NOT NULL, epoch BIGINT NOT NULL,
    queue TEXT NOT NULL, fence INTEGER NOT NULL, state TEXT NOT NULL, process TEXT, sender TEXT, body TEXT NOT NULL,
    problem TEXT, sent_at DOUBLE PRECISION NOT NULL, taken_at DOUBLE PRECISION, ended_at DOUBLE PRECISION
);
CREATE INDEX unit_by_state ON unit (state, process);
CREATE INDEX unit_by_run ON unit (run_id);
CREATE TABLE message (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, addressee TEXT NOT NULL, unit TEXT NOT NULL,
    fence INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX message_by_addressee ON message (addressee, id);
CREATE TABLE batch (writer TEXT PRIMARY KEY, number BIGINT NOT NULL)
"""
_POSTGRES_2: Final = """
ALTER TABLE process ADD COLUMN IF NOT EXISTS beat DOUBLE PRECISION NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS file (digest TEXT PRIMARY KEY, used TEXT NOT NULL, data BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS run_file (run_id TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, digest));
CREATE INDEX IF NOT EXISTS run_file_by_digest ON run_file (digest);
CREATE TABLE IF NOT EXISTS account (
    name TEXT PRIMARY KEY, parent TEXT REFERENCES account (name), tokens NUMERIC, picos NUMERIC,
    used_tokens NUMERIC NOT NULL DEFAULT 0, used_picos NUMERIC NOT NULL DEFAULT 0,
    aside_tokens NUMERIC NOT NULL DEFAULT 0, aside_picos NUMERIC NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS charge (
    run_id TEXT PRIMARY KEY, account TEXT NOT NULL REFERENCES account (name), epoch BIGINT,
    used_tokens NUMERIC NOT NULL DEFAULT 0, used_picos NUMERIC NOT NULL DEFAULT 0,
    aside_tokens NUMERIC DEFAULT 0, aside_picos NUMERIC DEFAULT 0,
    copied_tokens NUMERIC NOT NULL DEFAULT 0, copied_picos NUMERIC NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS charge_by_account ON charge (account);
ALTER TABLE account ADD COLUMN IF NOT EXISTS every TEXT;
ALTER TABLE account ADD COLUMN IF NOT EXISTS tz TEXT;
ALTER TABLE account ADD COLUMN IF NOT EXISTS since DOUBLE PRECISION;
ALTER TABLE account ADD COLUMN IF NOT EXISTS until DOUBLE PRECISION;
CREATE TABLE IF NOT EXISTS ended_window (
    name TEXT NOT NULL REFERENCES account (name), since DOUBLE PRECISION NOT NULL, until DOUBLE PRECISION NOT NULL,
    tokens NUMERIC, picos NUMERIC, used_tokens NUMERIC NOT NULL, used_picos NUMERIC NOT NULL,
    aside_tokens NUMERIC NOT NULL, aside_picos NUMERIC NOT NULL, PRIMARY KEY (name, since)
);
CREATE TABLE IF NOT EXISTS window_hold (
    run_id TEXT NOT NULL, account TEXT NOT NULL REFERENCES account (name), since DOUBLE PRECISION NOT NULL,
    tokens NUMERIC NOT NULL, picos NUMERIC NOT NULL, PRIMARY KEY (run_id, account, since)
)
;
CREATE TABLE IF NOT EXISTS death (
    unit TEXT PRIMARY KEY, deaths INTEGER NOT NULL, blame INTEGER NOT NULL, progress BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS queue (name TEXT PRIMARY KEY, paused BOOLEAN NOT NULL DEFAULT FALSE, runs INTEGER);
ALTER TABLE unit ADD COLUMN IF NOT EXISTS priority INTEGER NOT NULL DEFAULT 0
"""
"""Builds before 0.2.0 made some of these tables already, in format 1."""
_FILE_3: Final = """
CREATE TABLE IF NOT EXISTS request (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, epoch INTEGER NOT NULL, body TEXT NOT NULL, asked_at REAL NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0, answer TEXT
);
CREATE INDEX IF NOT EXISTS request_by_run ON request (run_id)
"""
_POSTGRES_3: Final = """
CREATE TABLE IF NOT EXISTS request (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, epoch BIGINT NOT NULL, body TEXT NOT NULL,
    asked_at DOUBLE PRECISION NOT NULL, taken INTEGER NOT NULL DEFAULT 0, answer TEXT
);
CREATE INDEX IF NOT EXISTS request_by_run ON request (run_id)
"""
FILE_STEPS: Final = (_FILE_1, _FILE_2, _FILE_3)
"""The statements that make each format of a file out of the one before it."""
POSTGRES_STEPS: Final = (_POSTGRES_1, _POSTGRES_2, _POSTGRES_3)
"""The same for a database of PostgreSQL."""
FORMAT: Final = len(FILE_STEPS)
"""The format that this version makes."""
LEAST: Final = 2
"""The oldest format whose programs can work with the tables of this one, at the same time as this version."""
_ABOUT: Final = "INSERT INTO about VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class Format(NamedTuple):
    """The format of the tables of a journal, as they say it themselves."""

    number: int
    """0 for a place without tables."""
    least: int
    """The oldest format whose programs can work with these tables."""
    version: str
    """The version of kairo-team that made the format."""

    @property
    def is_old(self) -> bool:
        """Whether the tables must be brought to a newer format before this version uses them."""
        return self.number < FORMAT

    def check(self, place: object) -> None:
        """Raise `JournalError` if this version cannot use the tables of a newer one."""
        if self.number > FORMAT and self.least > FORMAT:
            raise JournalError(
                place,
                f"its tables have format {self.number}, made by kairo-team {self.version}, and this version knows "
                f"formats up to {FORMAT}: install that version, or a newer one",
            )


def format_of(number: int, about: Mapping[str, str]) -> Format:
    """Return a format by its number and the rows of the table `about`."""
    least = about.get("least", "")
    return Format(number, int(least) if least.isdecimal() else number, about.get("version", "of another version"))


def migrate(connection: Connection, found: Format, steps: Sequence[str], version: str) -> None:
    """Bring the tables to this version's format, in the connection's transaction."""
    for step in steps[found.number :]:
        for statement in step.strip().removesuffix(";").split(";\n"):
            connection.execute(statement)
    for name, value in (("version", version), ("format", str(FORMAT)), ("least", str(LEAST))):
        connection.execute(_ABOUT, (name, value))
