"""Where the threads of a process meet: a run, its questions, and who watches both from another thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.engine.records.questions import Inbox
from kairo_team.engine.records.run_handle import Run, Runs
from kairo_team.errors import Misuse, NoQuestion, RunExists, RunFinished

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def _threads_in_turns() -> Generator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*calls: Callable[[], object]) -> None:
    """Call functions at once, each in a thread of its own, and wait for all; raise the first exception."""
    barrier, raised = threading.Barrier(len(calls)), list[BaseException]()

    def run(call: Callable[[], object]) -> None:
        barrier.wait()
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised below
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


class Control:
    """The run behind a handle, as far as it is cancelled."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cancel(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_run_that_is_cancelled_as_it_begins_is_cancelled() -> None:
    """It begins while another thread looks whether it has begun."""
    control: Any = Control()

    class Beginning(Run):
        @property
        def live(self) -> bool:
            self.begin(control)
            return True

    Beginning("r", lambda run: None).cancel("no longer needed")
    assert control.reasons == ["no longer needed"]


def test_a_run_that_ends_is_known_to_have_ended_and_its_id_stays_used() -> None:
    runs, over = Runs(), threading.Event()
    run, seen = runs.enter("r"), list[str]()

    def look() -> None:
        while not over.is_set():
            try:
                runs["r"]
            except RunFinished:
                seen.append("ended")
            with pytest.raises(RunExists):
                runs.check_new("r")

    def end() -> None:
        for _ in range(300):
            runs.leave(run)
            runs.recover(suspension_of("r"), None)
            runs["r"].suspension = None
        over.set()

    together(look, end)


def suspension_of(run_id: str) -> Any:
    class Request:
        def __init__(self) -> None:
            self.run_id = run_id

    class Suspended:
        request = Request()

    return Suspended()


def test_the_suspended_runs_inside_a_run_are_listed_while_others_come_and_go() -> None:
    runs = Runs()
    runs.enter("outer")
    runs.recover(suspension_of("first"), "outer")
    listed = iter(runs.waiting_in("outer"))
    assert next(listed).run_id == "outer"
    assert next(listed).run_id == "first"
    runs.recover(suspension_of("second"), "outer")
    assert [run.run_id for run in listed] == []


def question(name: str) -> kt.HumanRequest:
    return kt.HumanRequest("plan", "May it go?", "the plan", id=f"r:{name}", run_id="r")


def test_of_two_answers_at_once_the_second_is_refused() -> None:
    """Both people would believe that theirs counts."""
    for _ in range(300):
        inbox, asked, refused = Inbox(), question("q"), list[Misuse]()
        inbox.keep_open(asked)

        def answer(decision: kt.HumanDecision, inbox: Inbox, asked: kt.HumanRequest, refused: list[Misuse]) -> None:
            try:
                inbox.answer(asked.id, decision)
            except Misuse as error:
                refused.append(error)

        together(
            lambda: answer(kt.HumanDecision.approve(), inbox, asked, refused),
            lambda: answer(kt.HumanDecision.reject(), inbox, asked, refused),
        )
        assert len(refused) == 1


def test_a_question_that_is_deferred_is_open_all_the_time() -> None:
    inbox, over = Inbox(), threading.Event()
    for name in ("first", "second"):
        inbox.keep_open(question(name))

    def defer() -> None:
        for _ in range(500):
            inbox.answer("r:first", kt.HumanDecision.defer())
        over.set()

    def look() -> None:
        while not over.is_set():
            assert "r:first" in inbox
            assert len(inbox.open) == 2

    together(look, defer)


def test_an_answer_that_was_accepted_is_taken() -> None:
    """The run takes the answers when it resumes; a person answers at that moment."""
    for _ in range(300):
        inbox, asked, said, taken = Inbox(), question("q"), list[str](), list[kt.HumanDecision | None]()
        inbox.keep_open(asked)
        inbox.answer(asked.id, kt.HumanDecision.approve())

        def answer(inbox: Inbox, asked: kt.HumanRequest, said: list[str]) -> None:
            try:
                inbox.answer(asked.id, kt.HumanDecision.reject())
            except NoQuestion:
                said.append("taken")
            except Misuse:
                said.append("answered")
            else:
                said.append("accepted")

        together(
            lambda: taken.append(inbox.take(asked)),
            lambda: answer(inbox, asked, said),
        )
        assert taken == [kt.HumanDecision.approve()]
        assert said != ["accepted"]
