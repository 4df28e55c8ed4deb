"""Deaths of workers: counted apart from planned ends and answers, anew after progress, and due to one unit."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial

import anyio
import pytest

from kairo_team.cluster.fatal_units import forget_deaths, note_death
from kairo_team.cluster.units import Unit, kind_of
from kairo_team.cluster.worker import _Room
from kairo_team.durable.codec import decode
from kairo_team.errors import Misuse
from kairo_team.tck.journal_stage import request_of, team_of
from tests.cluster.test_units import RUN, Desk

OWN = Unit("r:1:attempt:1:a:1", "attempt", "r", "q", "attempt:1:a:1", 1, "coordinator")
OTHER = Unit("s:1:attempt:1:a:1", "attempt", "s", "q", "attempt:1:a:1", 1, "coordinator")
OTHER_RUN = Unit("run:s", "run", "s", "q")


@pytest.fixture
def desk(database: str) -> Generator[Desk]:
    made = Desk(database)
    yield made
    made.cluster.close()


def send(desk: Desk, *units: Unit) -> None:
    for unit in units:
        desk.do(*unit.sending(desk.cluster.delivery, None))


def die(desk: Desk, *units: Unit) -> list[Unit]:
    """Let one process take units and die; return them as they are sent anew."""
    for unit in units:
        assert desk.claim(unit, "gone") is not None
    desk.monitor._looks = 0  # it deletes nothing of runs that are not recorded
    desk.look()
    following = [unit.next() for unit in units]
    for unit in following:
        if unit.kind == "attempt":
            send(desk, unit)
    return following


def test_third_o31_ends_in_order_and_one_crash_give_nothing_up(desk: Desk) -> None:
    send(desk, RUN)
    unit = RUN
    for _ in range(5):
        desk.claim(unit)
        desk.monitor.give_back(unit, "the worker ended")
        unit = unit.next()
    die(desk, unit)
    assert desk.state(RUN.id) == ("sent", 7, None)


def test_third_o31_an_answer_counts_no_death(desk: Desk) -> None:
    journal = desk.cluster.journal
    journal.begin(request_of("r"), team_of(), {}, None)
    send(desk, RUN)
    [unit] = die(desk, RUN)
    desk.claim(unit)
    journal.end_unit(unit.id, unit.fence, None)
    desk.rows("UPDATE run SET state = 'suspended'")
    desk.rows("INSERT INTO question (id, run_id, digest, body, decision, asked_at) VALUES ('q', 'r', '', '', 'yes', 0)")
    desk.look()
    desk.rows("DELETE FROM question")
    assert desk.state(RUN.id) == ("sent", 3, None)
    die(desk, unit.next())
    assert desk.state(RUN.id) == ("sent", 4, None), "the death before the answer counts no more"


def test_third_o31_what_is_recorded_counts_deaths_anew(desk: Desk) -> None:
    send(desk, RUN)
    unit = RUN
    for number in range(6):
        [unit] = die(desk, unit)
        desk.rows(
            "INSERT INTO step (run_id, key, value, epoch, seq) VALUES ('r', %s, '1', 1, 1)", f"attempt:1:t{number}:1"
        )
    assert desk.state(RUN.id) == ("sent", 7, None)
    [unit] = die(desk, unit)
    assert desk.state(RUN.id)[0] == "sent"
    die(desk, unit)
    assert desk.state(RUN.id)[0] == "done", "two deaths with nothing recorded in between"


def test_third_o31_a_unit_is_blamed_and_its_neighbours_are_not(desk: Desk) -> None:
    """The poison is found by itself after two deaths in company; whoever was beside it goes on."""
    send(desk, OWN, OTHER)
    own, other = die(desk, OWN, OTHER)
    assert not desk.claim(own, "gone").suspect
    own, other = die(desk, own, other)
    assert desk.claim(own, "gone").suspect
    [own] = die(desk, own)
    desk.add_process("alive")
    assert desk.claim(other, "alive").suspect
    die(desk, own)
    lost = [decode(body) for [body] in desk.rows("SELECT body FROM message WHERE unit = %s ORDER BY id", OWN.id)]
    assert [deaths.exhaust(2) for _, deaths in lost] == [False, False, False, True]
    assert desk.state(OTHER.id) == ("taken", 3, "alive")


def test_third_o31_a_run_is_in_company_of_other_runs_alone(desk: Desk) -> None:
    with desk.cluster.journal.database.writing() as connection:

        def blame(unit: Unit, *had: Unit) -> int:
            forget_deaths(connection, unit.id)
            return note_death(connection, unit, [unit, *had]).blame

        assert blame(RUN, OWN) == blame(OWN, RUN) == blame(OWN) == 4
        assert blame(RUN, OTHER) == blame(RUN, OTHER_RUN) == blame(OWN, OTHER) == blame(OWN, OTHER_RUN) == 1


def test_third_o31_a_worker_that_fails_over_a_unit_counts_as_a_death(desk: Desk) -> None:
    send(desk, RUN)
    unit = RUN
    for state in ("sent", "done"):
        desk.claim(unit)
        desk.monitor.give_back(unit, "the worker failed", failed=True)
        unit = unit.next()
        assert desk.state(RUN.id)[0] == state


def test_third_o31_the_kind_of_a_unit_is_in_its_id(desk: Desk) -> None:
    desk.cluster.submit(team_of(), request_of("r"))
    [[unit]] = desk.rows("SELECT id FROM unit")
    assert (kind_of(unit), kind_of(OWN.id), kind_of(replace(OWN, id="run:1:attempt:1:a:1").id)) == (
        "run", "attempt", "attempt",
    )  # fmt: skip
    with pytest.raises((Misuse, ValueError), match="an id is made of letters"):
        request_of("a:b")


@pytest.mark.anyio
async def test_third_o31_who_is_to_be_alone_waits_for_the_others_and_they_wait_behind() -> None:
    room, log, leave = _Room(), list[str](), anyio.Event()

    async def work(name: str, *, alone: bool = False) -> None:
        async with room.entered(alone=alone):
            log.append(f"{name} begins")
            await leave.wait()
            log.append(f"{name} ends")

    async with anyio.create_task_group() as group:
        for name, alone in (("a", False), ("b", False), ("poison", True), ("c", False)):
            group.start_soon(partial(work, name, alone=alone))
            await anyio.wait_all_tasks_blocked()
        assert log == ["a begins", "b begins"]
        leave.set()
    assert sorted(log[:4]) == ["a begins", "a ends", "b begins", "b ends"]
    assert log[4:] == ["poison begins", "poison ends", "c begins", "c ends"]


@pytest.mark.anyio
async def test_third_o31_who_waits_for_room_begins_after_a_minute_all_the_same() -> None:
    """Who waits holds budget, and one inside may wait for that."""
    room, begun = _Room(), list[float]()

    async def work(*, alone: bool) -> None:
        async with room.entered(alone=alone):
            begun.append(anyio.current_time() - start)
            await anyio.sleep(200)

    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        for alone in (False, True, False):
            group.start_soon(partial(work, alone=alone))
            await anyio.wait_all_tasks_blocked()
    assert [round(one) for one in begun] == [0, 60, 60]
