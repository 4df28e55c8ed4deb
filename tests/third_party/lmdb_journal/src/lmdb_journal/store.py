"""The store: one LMDB environment of a folder, and what a transaction reads and writes in it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final
from uuid import uuid4

import lmdb

from kairo_team.durable import decode, fetching
from kairo_team.errors import JournalError, RunNotFound
from kairo_team.recorded import ENDED, Place, RecordedCall

FORMAT: Final = b"1"
REQUEST, RESULT, STEP, KEY, CALL, EVENT, FILE = (bytes([kind]) for kind in b"qrskcef")
"""What a record of a run is; its key is the run's number, this, and a number or a digest."""


@dataclass(slots=True)
class _Opened:
    """An environment with its tables, and the number of its journals."""

    env: lmdb.Environment
    tables: dict[str, Any]
    users: int = 0


_OPEN: Final[dict[Path, _Opened]] = {}
"""The environments of this process: LMDB opens one of a folder, and its tables once."""
_OPENING: Final = Lock()


@dataclass(slots=True)
class Row:
    """A run."""

    run_id: str
    number: int
    team: str
    goal: str
    owner: str
    started_at: float
    updated_at: float
    digests: dict[str, str]
    source: dict[str, str]
    parent: str | None = None
    parent_step: str = ""
    parent_member: str | None = None
    state: str = "running"
    epoch: int = 1
    cancelled: str | None = None
    seconds: float = 0.0
    seq: int = 0
    usage: str | None = None
    """The usage of a run that has ended or is suspended, as text."""

    @property
    def place(self) -> Place | None:
        """Where in another run it is made."""
        return None if self.parent is None else Place(self.parent, self.parent_step, self.parent_member)


@dataclass(slots=True)
class Asked:
    """A question of a run."""

    id: str
    run_id: str
    body: str
    order: int
    decision: str | None = None
    deferred: int | None = None
    """When a person deferred it, among all deferrals."""
    deferred_by: str = ""


@dataclass(slots=True)
class Call:
    """A call, and the session that sent it."""

    order: int
    epoch: int
    call: RecordedCall
    body: str = field(repr=False)


def digest_of(text: str) -> bytes:
    """Return a key for a text of any length: LMDB's own have 511 bytes at most."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def packed(number: int) -> bytes:
    """Return a number as a key that is in order."""
    return number.to_bytes(8, "big")


class Store:
    """The environment of a folder."""

    def __init__(self, folder: Path, *, sync: bool, map_size: int) -> None:
        self.folder = folder
        self.owners = folder / "owners"
        try:
            self.owners.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._key = folder.resolve()
            with _OPENING:
                opened = _OPEN.get(self._key) or _opened(folder, map_size, sync=sync)
                _OPEN[self._key] = opened
                opened.users += 1
            self.env, self.tables = opened.env, opened.tables
            with self.env.begin(write=True) as txn:
                found = txn.get(b"format", db=self.tables["about"])
                if found not in (None, FORMAT):
                    raise JournalError(folder, f"it has the format {bytes(found or b'').decode()}, of another version")
                txn.put(b"format", FORMAT, db=self.tables["about"])
        except (lmdb.Error, OSError) as error:
            raise JournalError(folder, f"it cannot be opened: {error}") from error

    def close(self) -> None:
        """Close the environment with its last journal."""
        with _OPENING:
            opened = _OPEN[self._key]
            opened.users -= 1
            if opened.users == 0:
                del _OPEN[self._key]
                opened.env.close()

    def is_alive(self, owner: str) -> bool:
        """Return whether a process that owns runs lives: it has the lock of its file."""
        try:
            file = os.open(self.owners / owner, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        with suppress(OSError):
            (self.owners / owner).unlink()
        return False


def _opened(folder: Path, map_size: int, *, sync: bool) -> _Opened:
    env = lmdb.open(str(folder), map_size=map_size, max_dbs=8, max_readers=1024, sync=sync, mode=0o600)
    env.reader_check()
    return _Opened(env, {name: env.open_db(name.encode()) for name in ("about", "ids", "runs", "data", "asked")})


class Owner:
    """This process as the owner of runs: a locked file, which the system unlocks when the process ends."""

    def __init__(self, store: Store) -> None:
        self.id = uuid4().hex
        self._path = store.owners / self.id
        self._file: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def leave(self) -> None:
        """Give up all runs."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            with suppress(OSError):
                self._path.unlink()


class Book:
    """What one transaction reads and writes."""

    def __init__(self, store: Store, txn: lmdb.Transaction) -> None:
        self._store, self._txn, self._tables = store, txn, store.tables

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return a value; None without one."""
        found = self._txn.get(key, db=self._tables[table])
        return None if found is None else bytes(found)

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Write a value."""
        self._txn.put(key, value, db=self._tables[table])

    def delete(self, table: str, key: bytes) -> None:
        """Delete a value, if it is there."""
        self._txn.delete(key, db=self._tables[table])

    def under(self, table: str, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries whose keys begin with `prefix`, in order, from `prefix` and `after` on."""
        cursor = self._txn.cursor(db=self._tables[table])
        there = cursor.set_range(prefix + after)
        while there and bytes(cursor.key()).startswith(prefix):
            yield bytes(cursor.key()), bytes(cursor.value())
            there = cursor.next()

    def next(self) -> int:
        """Return the next number of the store, for a run, a step, a call or a question."""
        number = int.from_bytes(self.get("about", b"last") or b"", "big") + 1
        self.put("about", b"last", packed(number))
        return number

    # ------------------------------------------------------------------ runs

    def find(self, run_id: str) -> Row | None:
        """Return a run; None if none has this id."""
        number = self.get("ids", digest_of(run_id))
        found = None if number is None else self.get("runs", number)
        return None if found is None else Row(**json.loads(found))

    def row(self, run_id: str) -> Row:
        """Return a run; raises `RunNotFound`."""
        found = self.find(run_id)
        if found is None:
            raise RunNotFound(run_id, [one.run_id for one in self.rows()], place=f"{self._store.folder}, which has")
        return found

    def rows(self) -> Iterator[Row]:
        """Yield all runs, in the order in which they began."""
        for _, value in self.under("runs", b""):
            yield Row(**json.loads(value))

    def keep(self, row: Row) -> None:
        """Write a run."""
        self.put("ids", digest_of(row.run_id), packed(row.number))
        self.put("runs", packed(row.number), json.dumps(asdict(row)).encode())

    def inside(self, run_id: str) -> list[str]:
        """Return the ids of a run and of the runs inside it, outer runs first."""
        parents = [(one.run_id, one.parent) for one in self.rows()]
        found = [run_id]
        for name in found:
            found += [one for one, parent in parents if parent == name]
        return found

    def state(self, row: Row) -> str:
        """Return the state of a run: one whose process is dead is interrupted, or cancelled if somebody said so."""
        if row.state != "running" or self._store.is_alive(row.owner):
            return row.state
        return "interrupted" if row.cancelled is None else "cancelled"

    def cancel(self, run_id: str) -> None:
        """End a run and the runs inside it; their sessions write nothing more."""
        for name in self.inside(run_id):
            row = self.row(name)
            row.state, row.epoch = row.state if row.state in ENDED else "cancelled", row.epoch + 1
            self.keep(row)
            self.drop_questions(name)

    def forget(self, run_id: str) -> None:
        """Delete all of a run and of the runs inside it."""
        for name in self.inside(run_id):
            number = packed(self.row(name).number)
            self.drop_questions(name)
            for key, _ in list(self.under("data", number)):
                self.delete("data", key)
            self.delete("runs", number)
            self.delete("ids", digest_of(name))

    # ------------------------------------------------------------------ records of a run

    def text(self, row: Row, kind: bytes) -> str | None:
        """Return the request or the result of a run as text."""
        found = self.get("data", packed(row.number) + kind)
        return None if found is None else found.decode()

    def put_text(self, row: Row, kind: bytes, text: str) -> None:
        """Write the request or the result of a run."""
        self.put("data", packed(row.number) + kind, text.encode())

    def decode(self, row: Row, text: str) -> Any:
        """Return a recorded value, with its files."""
        with fetching(lambda digest: self.get("data", packed(row.number) + FILE + digest_of(digest))):
            return decode(text)

    def put_step(self, row: Row, key: str, text: str) -> None:
        """Write a step's value; a key stays where it was first."""
        number = packed(row.number)
        place = self.get("data", number + KEY + digest_of(key)) or packed(self.next())
        self.put("data", number + KEY + digest_of(key), place)
        self.put("data", number + STEP + place, json.dumps([key, text]).encode())

    def steps(self, row: Row) -> dict[str, object]:
        """Return the values of a run's steps by key, in the order of the keys."""
        found = (json.loads(value) for _, value in self.under("data", packed(row.number) + STEP))
        return {key: self.decode(row, text) for key, text in found}

    def put_call(self, row: Row, order: int, epoch: int, written: str) -> None:
        """Write a call."""
        self.put("data", packed(row.number) + CALL + packed(order), json.dumps([epoch, written]).encode())

    def calls(self, row: Row) -> list[Call]:
        """Return a run's own calls, in the order they were sent."""
        found: list[Call] = []
        for key, value in self.under("data", packed(row.number) + CALL):
            epoch, written = json.loads(value)
            found.append(Call(int.from_bytes(key[-8:], "big"), epoch, self.decode(row, written), written))
        return found

    # ------------------------------------------------------------------ questions

    def asked(self) -> list[Asked]:
        """Return all questions, oldest first."""
        return sorted((Asked(**json.loads(value)) for _, value in self.under("asked", b"")), key=lambda one: one.order)

    def find_question(self, question_id: str) -> Asked | None:
        """Return a question; None without one."""
        found = self.get("asked", digest_of(question_id))
        return None if found is None else Asked(**json.loads(found))

    def keep_question(self, asked: Asked) -> None:
        """Write a question."""
        self.put("asked", digest_of(asked.id), json.dumps(asdict(asked)).encode())

    def drop_questions(self, run_id: str) -> None:
        """Delete the questions of a run."""
        for one in self.asked():
            if one.run_id == run_id:
                self.delete("asked", digest_of(one.id))
