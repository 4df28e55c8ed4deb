"""The room that answers for recorded steps: a new plan looks nothing up, a recorded one says how its tasks started."""

from typing import ClassVar, Final, NoReturn

import pytest

from kairo_team.budget import Usage
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.records.plan_records import (
    MISSING,
    CutShort,
    EarlyEnd,
    NewPlanRecords,
    PlanRecords,
    RecordedStart,
    Unpaid,
)

NEVER, PAID = RecordedStart.NEVER, RecordedStart.PAID
UNPAID: Final = Unpaid("no tokens", halted=False)


class WriteOnly:
    """A journal that nobody may read."""

    durable: ClassVar[bool] = False

    @property
    def records(self) -> NoReturn:
        raise AssertionError("all of it was looked at")

    def get(self, key: str, default: object, /) -> NoReturn:
        raise AssertionError(f"{key} was looked up, default {default!r}")

    def put(self, key: str, value: object, /) -> None:
        """Record nothing."""


def test_the_records_of_a_new_plan_look_nothing_up() -> None:
    records: PlanRecords = NewPlanRecords(WriteOnly(), 1)
    key = records.key("attempt", "a", 1)
    assert records.start_of("a") is None
    assert records.recall(key) is MISSING
    assert not records.ended_before(key)
    assert not records.ended_in(key)
    assert not records.is_called_off("a")
    assert not records.was_attempted("a")
    assert records.cancelled("a") is None
    assert records.cancelled_in_flight("a") is None


@pytest.mark.parametrize(
    ("end", "begun", "new"),
    [
        (None, None, None),
        (EarlyEnd(None, "killed", aborted=True, unended={"begun": "m", "new": None}), None, NEVER),
        (EarlyEnd(None, "killed", aborted=True, unended={"begun": None, "new": None}), NEVER, NEVER),
        (EarlyEnd(None, "decided", aborted=False, concluded=True, unended={"begun": "m"}), None, NEVER),
    ],
    ids=["ended", "aborted", "aborted before it began", "concluded"],
)
def test_a_recorded_plan_says_how_its_tasks_started(end: EarlyEnd | None, begun: object, new: object) -> None:
    journal = MemoryRecords()
    first = NewPlanRecords(journal, 1)
    first.put(first.key("attempt", "tried", 1), CutShort("m", Usage(), None))
    first.put_unpaid("unpaid", UNPAID)
    first.put_untried("untried")
    if end is not None:
        journal.put("end", end)
    again = PlanRecords(journal, 1)
    names = ("tried", "unpaid", "untried", "begun", "new")
    assert [again.start_of(name) for name in names] == [PAID, UNPAID, None, begun, new]
    again.replaced = names
    assert {again.start_of(name) for name in names} == {NEVER}
