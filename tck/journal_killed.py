"""Programs that record a run are killed at random: what they have recorded is there, and nothing by halves."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from importlib import import_module
from itertools import count
from pathlib import Path
from threading import Timer
from typing import Any, Final, NamedTuple

import anyio
import pytest

from kairo_team._util.threads import run_in_thread
from kairo_team.budget import Usage
from kairo_team.errors import Misuse, RunNotFound
from kairo_team.events import AttemptProgress, Event
from kairo_team.recorded import RecoveredRun
from kairo_team.tck.journal_stage import (
    DIGESTS,
    JournalStage,
    Process,
    Served,
    Store,
    event_of,
    request_of,
    send,
    team_of,
)
from kairo_team.tck.kit import clause

KILLS: Final = ((1, 0.002), (2, 0.0), (5, 0.012), (11, 0.005), (3, 0.03), (7, 0.008))
"""When each program is killed: after so many acknowledged records, and so many seconds more."""
PER_ROUND: Final = 2
"""Events emitted before each call."""
LARGE: Final = 150_000
"""Bytes of every fourth value and event: more than a page of any store."""
_LONGEST: Final = 120.0
"""Seconds after which a program that does not record is killed."""
_PLACE: Final = "KAIRO_KIT_PLACE"
"""The environment variable with the store's place, which may be secret."""


class _Seen(NamedTuple):
    """What a program said before it was killed."""

    sent: int
    """Calls whose `sent` has returned."""
    written: int
    """Rounds after which `written` has returned."""


class KilledTests(JournalStage):
    """C2 to C5, C7 and C19, of programs that end at any moment."""

    @clause("C2", "C3", "C4", "C5", "C7", "C19", needs="can_be_killed")
    async def test_c02_a_program_that_is_killed_leaves_a_true_beginning(self) -> None:
        """Several programs record one run in turn: nothing acknowledged is lost, nothing is there by half."""
        kit = type(self)
        async with self.store() as store:
            place = await run_in_thread(partial(kit.place_of, (await store.process()).journal))
            rounds = 0
            for kill in KILLS:
                seen = await run_in_thread(partial(_record_and_kill, kit, place, *kill))
                rounds = await _check(store, seen, rounds, kit)


async def _recovered(process: Process, patience: float) -> dict[str, RecoveredRun]:
    """Recover the run once the death of the program that had it is known, which takes a server a moment."""
    with anyio.move_on_after(patience):
        while True:
            try:
                return await process.recover()
            except Misuse:
                await anyio.sleep(0.01)
    return await process.recover()


async def _check(store: Store, seen: _Seen, at_least: int, kit: type[JournalStage]) -> int:
    """Fail unless the recovered run is a beginning of what programs record; return the number of whole rounds."""
    process = await store.process()
    run = (await _recovered(process, kit.patience))["r"]
    keys = list(run.steps)
    wanted = [key for round_ in range(len(keys)) for key in (f"step:{round_}", f"answer:{round_}")][: len(keys)]
    assert keys == wanted, f"a killed program left the steps {keys}, which is not a beginning of {wanted}"
    for key, value in run.steps.items():
        right = _value(int(key.partition(":")[2]))
        assert value == right, f"step {key!r} is there by half: {_size(value)} in place of {_size(right)}"
    answered = sum(key.startswith("answer:") for key in keys)
    stepped = len(keys) - answered
    _check_calls(run, answered, seen)
    for what, found, least in (("sent", stepped, seen.sent), ("written", answered, max(seen.written, at_least))):
        assert found >= least, f"`{what}` had returned in {least} rounds when the program was killed; {found} are there"
    if kit.keeps_events:
        events: list[Event] = [*await process.do("events_after", "r")]
        for seq, event in enumerate(events, 1):
            assert event == _event(seq), f"event {seq} is not what was recorded: {event!s:.200}"
        assert run.seq == len(events), f"the run resumes after event {run.seq}, and {len(events)} events are there"
        assert len(events) >= PER_ROUND * stepped, (
            f"{stepped} steps are there, each after 2 events: {len(events)} events"
        )
    await process.die()
    return answered


def _check_calls(run: RecoveredRun, answered: int, seen: _Seen) -> None:
    """Fail unless each answer is there with the end of its call, and other calls are open: one at most by a program."""
    states = [call.state for call in run.calls]
    ended, is_open = states.count("answered"), states.count("sent")
    assert ended == answered, f"{answered} answers are there, and {ended} calls were answered"
    assert ended + is_open == len(states), f"each call was answered, or cut by a kill, and they are {states}"
    assert is_open <= len(KILLS), f"a killed program left more than one call open: {states}"
    if seen.sent > answered:
        assert states[-1:] == ["sent"], f"`sent` had returned when the program was killed, and the calls are {states}"
    charged = [call.usage.tokens for call in run.calls if call.state == "answered"]
    assert charged == list(range(answered)), f"answered calls are charged 0, 1, 2 ... tokens, not {charged}"


def _size(value: Any) -> str:
    return f"{len(str(value))} characters"


def _value(round_: int) -> object:
    text = f"r\u00e9sum\u00e9 {round_} \U0001f319"
    return {"round": round_, "text": text * (LARGE // 16 if round_ % 4 == 3 else 1)}


def _event(seq: int) -> Event:
    event = event_of("r", seq)
    assert isinstance(event, AttemptProgress)
    return replace(event, text=f"{seq}\u0301" * LARGE) if seq % 4 == 3 else event


# ---------------------------------------------------------------- the other program


def _record_and_kill(kit: type[JournalStage], place: str, killed_after: int, later: float) -> _Seen:
    """Start a program that records, and kill it `later` than so many acknowledged records; return all that it said."""
    program = "import sys; from kairo_team.tck.journal_killed import record_for_ever; record_for_ever(*sys.argv[1:])"
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    with (
        tempfile.TemporaryFile("w+") as problems,
        subprocess.Popen(  # noqa: S603 - this Python, with the name of a kit
            [sys.executable, "-c", program, kit.__module__, kit.__qualname__],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=problems,  # a pipe without a reader would stop a program with many warnings
            text=True,
            env={**os.environ, "PYTHONPATH": paths, _PLACE: place},
        ) as process,
    ):
        watch = Timer(_LONGEST, process.kill)
        watch.start()
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said += [line] if line.startswith(("sent ", "written ")) else []
            if len(said) >= killed_after:
                break
        time.sleep(later)  # where it is by then is left to chance
        watch.cancel()
        process.kill()
        rest, _ = process.communicate()
        problems.seek(0)
        problem = problems.read().strip()[-600:] or f"it recorded {len(said)} calls in {_LONGEST:g} s"
    said += [line for line in rest.splitlines(keepends=True) if line.startswith(("sent ", "written "))]
    if len(said) < killed_after:
        pytest.fail(f"another program could not record with {kit.__qualname__}.open_at: {problem}")
    whole = [line.split() for line in said if line.endswith("\n")]
    return _Seen(*(max([0, *(int(n) for what, n in whole if what == kind)]) for kind in ("sent", "written")))


def record_for_ever(module: str, name: str) -> None:
    """Record rounds of a run until this program is killed; print each acknowledged record as a line."""
    kit: Any = reduce(getattr, name.split("."), import_module(module))
    journal = kit.open_at(os.environ[_PLACE])
    anyio.run(_rounds, journal)


async def _rounds(journal: Any) -> None:
    if await run_in_thread(partial(_is_recorded, journal)):
        (run,) = await run_in_thread(partial(journal.recover, "r"))
        done, seq, session = len([key for key in run.steps if key.startswith("answer:")]), run.seq, run.journal
    else:
        session = await run_in_thread(partial(journal.begin, request_of("r"), team_of(), DIGESTS, None))
        done = seq = 0
    served = Served(session, seq=seq)
    for round_ in count(done):
        for event in _events_of(round_, served.seq):
            served.give(event)
        session.put(f"step:{round_}", _value(round_))
        number = await send(session)
        _say("sent", round_ + 1)
        session.put_answer(f"answer:{round_}", _value(round_), number, Usage(round_))
        if round_ % 3 == 2:
            await session.written()
            _say("written", round_ + 1)


def _events_of(round_: int, last: int) -> Iterator[Event]:
    """Yield the events of a round that are not recorded yet."""
    return map(_event, range(last + 1, PER_ROUND * (round_ + 1) + 1))


def _is_recorded(journal: Any) -> bool:
    try:
        journal.digests("r")
    except RunNotFound:
        return False
    return True


def _say(what: str, number: int) -> None:
    sys.stdout.write(f"{what} {number}\n")
    sys.stdout.flush()
