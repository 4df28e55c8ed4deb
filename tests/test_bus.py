"""Events out of a run: every one, in order, to everybody who listens, until the last."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.engine.live import event_bus as bus_module
from kairo_team.engine.live.event_bus import Bus
from kairo_team.testing import EventRecorder


def say(bus: Bus, text: str) -> None:
    bus.emit(events.AttemptProgress, "t", "m", text, {})


def texts(received: list[events.Event]) -> list[str]:
    return [event.text for event in received if isinstance(event, events.AttemptProgress)]


def make_request(tasks: int = 1, **config: Any) -> kt.TeamExecutionRequest:
    plan = kt.TaskGraph([kt.Task(f"t{number}", "do") for number in range(tasks)])
    return kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config), run_id="r")


@pytest.mark.parametrize("given", [("t", "m", 1, None, "pass"), ("t", None)])
def test_fields_that_are_not_given_have_their_defaults(given: tuple[Any, ...]) -> None:
    received: list[events.Event] = []
    Bus("r", [received.append]).emit(events.TaskCompleted, *given)
    assert received == [events.TaskCompleted("r", 1, received[0].at, *given)]


async def chatty(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    for number in range(5):
        context.emit(f"{assignment.task.id} {number}")
        await anyio.lowlevel.checkpoint()
    return "done"


def make_team(*subscribers: Any, agent: Any = chatty) -> kt.Team:
    return kt.Team("team", [kt.Member("a", agent)], runtime=kt.Runtime(subscribers=subscribers))


# ---------------------------------------------------------------- G11


async def test_kf_g11_no_event_is_lost_or_reordered_under_parallel_emission() -> None:
    """Fifty members talking at once: numbers without gaps, the same for every subscriber, the last event last."""
    first, second, late = EventRecorder(), EventRecorder(), EventRecorder()

    async def slow(event: events.Event) -> None:
        await anyio.sleep(0.001)
        late(event)

    await TaskDispatchCoordinator().execute(make_request(50), make_team(first, slow, second))
    first.assert_lawful()
    assert len(first.of(events.AttemptProgress)) == 250
    assert first.events == second.events == late.events
    assert first.types[-1] == "team.completed"


async def test_kf_g11_the_terminal_event_is_out_before_the_result_is() -> None:
    """A plain subscriber has it when `execute` returns, and so has an async one that keeps up."""
    recorder, mailed = EventRecorder(), EventRecorder()

    async def mail(event: events.Event) -> None:
        mailed(event)

    await TaskDispatchCoordinator().execute(make_request(), make_team(recorder, mail))
    assert recorder.types[-1] == mailed.types[-1] == "team.completed"


async def test_kf_g11_the_bus_goes_on_when_its_last_subscriber_leaves(caplog: pytest.LogCaptureFixture) -> None:
    """A subscriber that raises is removed and reported; the run, the numbers and the others do not notice."""
    before: list[str] = []

    def leaves(event: events.Event) -> None:
        before.append(event.type)
        raise RuntimeError("enough")

    with caplog.at_level(logging.ERROR, "kairo_team"):
        alone = await TaskDispatchCoordinator().execute(make_request(3), make_team(leaves))
    assert alone.status is kt.TeamStatus.COMPLETED
    assert before == ["team.started"]
    assert "raised and gets no more events" in caplog.text
    other = EventRecorder()
    await TaskDispatchCoordinator().execute(make_request(3), make_team(leaves, other))
    other.assert_lawful()


@given(st.lists(st.booleans(), max_size=30))
def test_kf_g11_coming_and_going_changes_nothing(listening: list[bool]) -> None:
    """With or without subscribers every event gets the next number."""
    recorder = EventRecorder()
    bus = Bus("r", [recorder])
    for number, again in enumerate(listening, 1):
        if again:
            bus.emit(events.PlanReady, (str(number),))
        else:
            Bus("other", []).emit(events.PlanReady, ())
            bus.emit(events.PlanReady, (str(number),))
    assert [event.seq for event in recorder.events] == list(range(1, len(listening) + 1))


def test_without_a_subscriber_only_the_number_counts() -> None:
    class NeverBuilt(events.Event):
        def __init__(self, *_: object) -> None:
            raise AssertionError("built for nobody")

    bus = Bus("r")
    bus.emit(NeverBuilt, "x")
    bus.emit(NeverBuilt, "y")
    assert bus.seq == 2


# ---------------------------------------------------------------- plain subscribers


def test_an_event_emitted_by_a_subscriber_waits_its_turn() -> None:
    first, second = EventRecorder(), EventRecorder()
    bus = Bus("r", [first, lambda event: say(bus, "echo") if texts([event]) == ["call"] else None, second])
    say(bus, "call")
    say(bus, "after")
    assert texts(first.events) == texts(second.events) == ["call", "echo", "after"]
    assert [event.seq for event in second.events] == [1, 2, 3]


def test_plain_subscribers_are_called_in_place_and_in_order() -> None:
    calls: list[str] = []
    bus = Bus("r", [lambda _: calls.append("one"), lambda _: calls.append("two")])
    bus.emit(events.PlanReady, ())
    assert calls == ["one", "two"]


def test_nothing_is_delivered_after_the_bus_is_closed() -> None:
    recorder = EventRecorder()
    bus = Bus("r", [recorder])
    bus.closed = True
    bus.emit(events.PlanReady, ())
    assert (recorder.events, bus.seq) == ([], 0)


# ---------------------------------------------------------------- async subscribers


class AsyncCallable:
    def __init__(self) -> None:
        self.received: list[events.Event] = []

    async def __call__(self, event: events.Event) -> None:
        await anyio.lowlevel.checkpoint()
        self.received.append(event)


WRAPS: list[Callable[[AsyncCallable], Any]] = [
    lambda target: target,
    lambda target: target.__call__,
    lambda target: partial(target.__call__),
]


@pytest.mark.parametrize("wrap", WRAPS)
async def test_every_kind_of_async_callable_is_awaited(wrap: Callable[[AsyncCallable], Any]) -> None:
    target, recorder = AsyncCallable(), EventRecorder()
    await TaskDispatchCoordinator().execute(make_request(), make_team(wrap(target), recorder))
    assert target.received == recorder.events


async def test_an_async_subscriber_that_raises_gets_no_more_and_hurts_nobody() -> None:
    received: list[str] = []

    async def breaks(event: events.Event) -> None:
        received.append(event.type)
        if event.seq == 3:
            raise OSError("disk full")

    recorder = EventRecorder()
    result = await TaskDispatchCoordinator().execute(make_request(2), make_team(breaks, recorder))
    assert result.status is kt.TeamStatus.COMPLETED
    assert received == recorder.types[:3]
    recorder.assert_lawful()


@pytest.mark.parametrize(("grace", "all_of_them"), [(0.5, False), (60.0, True)])
async def test_a_slow_async_subscriber_is_drained_within_the_grace(grace: float, all_of_them: bool) -> None:
    """`execute` returns after at most `cancel_grace`; what was not read by then is lost to that subscriber alone."""
    received, recorder = EventRecorder(), EventRecorder()

    async def slow(event: events.Event) -> None:
        await anyio.sleep(0.2)
        received(event)

    began = anyio.current_time()
    await TaskDispatchCoordinator().execute(make_request(1, cancel_grace=grace), make_team(slow, recorder))
    took = anyio.current_time() - began
    assert took <= grace + 1e-6
    assert (received.events == recorder.events) is all_of_them
    assert received.events == recorder.events[: len(received.events)]


async def test_a_subscriber_that_fell_behind_is_told_how_many_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its buffer is bounded: the oldest go, `Lagged(n)` stands where they were, and what follows is complete."""
    monkeypatch.setattr(bus_module, "BUFFER", 10)
    received: list[events.Event] = []
    go = anyio.Event()

    async def stuck(event: events.Event) -> None:
        received.append(event)
        await go.wait()

    bus = Bus("r", [stuck])
    async with bus.pumping(5.0):
        say(bus, "first")
        await anyio.wait_all_tasks_blocked()
        for number in range(25):
            say(bus, str(number))
        go.set()
    assert texts(received) == ["first", *map(str, range(15, 25))]
    lagged = received[1]
    assert isinstance(lagged, events.Lagged)
    assert (lagged.missed, lagged.type, lagged.run_id) == (15, "lagged", "r")
    assert received[2].seq - received[0].seq == lagged.missed + 1


async def test_falling_behind_again_while_being_told_is_told_again_before_the_next_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bus_module, "BUFFER", 2)
    received: list[events.Event] = []
    bus: Bus

    async def talks_to_itself(event: events.Event) -> None:
        received.append(event)
        if isinstance(event, events.Lagged) and event.missed == 3:
            for number in range(4):
                say(bus, f"more {number}")

    bus = Bus("r", [talks_to_itself])
    async with bus.pumping(5.0):
        for number in range(5):
            say(bus, str(number))
        await anyio.wait_all_tasks_blocked()
    seq, missed = 0, 0
    for event in received:
        if isinstance(event, events.Lagged):
            missed += event.missed
        else:
            assert event.seq == seq + missed + 1, "what is missing was told before what follows it"
            seq, missed = event.seq, 0
    assert seq == bus.seq == 9


@pytest.mark.parametrize("grace", [0.0, 0.5])
@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
async def test_audit_g32_a_subscriber_that_is_cut_off_gets_a_lagged_and_is_logged(
    grace: float, cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its `Lagged` comes in the place of all that did not reach it: with those that did it adds up."""
    begun: list[events.Event] = []
    recorder = EventRecorder()

    async def slow(event: events.Event) -> None:
        begun.append(event)
        await anyio.sleep(0.2)

    async def hang(assignment: kt.Assignment) -> str:
        await anyio.sleep(1 if cancelled else 0)
        return "made"

    began = anyio.current_time()
    with caplog.at_level("WARNING"), anyio.move_on_after(0.1 if cancelled else 60):
        team = make_team(slow, recorder, agent=hang)
        await TaskDispatchCoordinator().execute(make_request(3, cancel_grace=grace), team)
    assert anyio.current_time() - began <= grace + (0.1 if cancelled else 0.0) + 1e-6
    lagged = begun[-1]
    assert isinstance(lagged, events.Lagged)
    assert lagged.missed == len(recorder.events) - (len(begun) - 1)
    assert lagged.seq == recorder.events[-1].seq
    (said,) = [record.getMessage() for record in caplog.records if "too slow" in record.getMessage()]
    assert f"{lagged.missed} events did not reach it" in said


async def test_audit_g32_a_last_word_that_takes_too_long_is_cut_off_too() -> None:
    begun: list[str] = []

    async def stuck(event: events.Event) -> None:
        begun.append(event.type)
        await anyio.sleep_forever()

    began = anyio.current_time()
    await TaskDispatchCoordinator().execute(make_request(1, cancel_grace=2.0), make_team(stuck))
    assert begun == ["team.started", "lagged"]
    assert anyio.current_time() - began <= 2.0 + 1e-6


@pytest.mark.parametrize("grace", [0.0, 3.0])
async def test_a_cancelled_caller_still_gets_its_async_subscribers_drained(grace: float) -> None:
    async def hang(assignment: kt.Assignment) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    received, stuck = EventRecorder(), anyio.Event()

    async def mail(event: events.Event) -> None:
        if not grace:
            await stuck.wait()
        received(event)

    began = anyio.current_time()
    with anyio.move_on_after(1):
        await TaskDispatchCoordinator().execute(make_request(cancel_grace=grace), make_team(mail, agent=hang))
    assert anyio.current_time() - began <= 1 + grace + 1e-6
    if grace:
        assert received.types[-1] == "team.cancelled"


def test_what_cannot_be_called_is_no_subscriber() -> None:
    with pytest.raises(ValueError, match="a subscriber is a function that takes an event, not 5"):
        kt.Runtime(subscribers=[5])  # type: ignore[list-item]  # the mistake is the point
