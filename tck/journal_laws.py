"""A law of journals: for any records and deaths of processes, a recovered run is a prefix of the recorded one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hypothesis import strategies as st

from kairo_team.budget import Usage
from kairo_team.human import HumanDecision
from kairo_team.recorded import RecoveredRun
from kairo_team.results import TeamStatus
from kairo_team.tck.journal_owners import check_over
from kairo_team.tck.journal_stage import (
    HELD,
    NOTHING,
    JournalStage,
    Process,
    Served,
    Store,
    event_of,
    question_of,
    result_of,
    send,
)
from kairo_team.tck.kit import law

Act = tuple[str, int]
"""An action, and the number of the key, call or question that it uses."""
OFTEN: Final = ("put", "send", "answer", "end", "emit", "ask", "reply")
ACTS: Final = (*OFTEN, *OFTEN, "put", "send", "answer", "close", "written", "crash", "take", "stop", "suspend")
DRAWN: Final = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9)), min_size=10, max_size=40)
ANSWERS: Final = (HumanDecision.approve("well done"), HumanDecision.reject("not like this"))


@dataclass(frozen=True)
class _State:
    """The records of a run at one moment."""

    steps: dict[str, object] = field(default_factory=dict[str, object])
    calls: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """State and charged tokens of each call."""
    questions: dict[str, HumanDecision | None] = field(default_factory=dict[str, HumanDecision | None])
    seq: int = 0

    def is_of(self, run: RecoveredRun) -> bool:
        """Return whether the recovered run has these records; it may have more events."""
        return (
            list(self.steps.items()) == list(run.steps.items())
            and list(self.calls.values()) == [(one.state, one.usage.tokens) for one in run.calls]
            and list(self.questions.items()) == [(one.question.id, one.decision) for one in run.questions]
            and self.seq <= run.seq
        )


class _Play:
    """A run that one process after another records, and its possible records."""

    def __init__(self, store: Store, process: Process, served: Served) -> None:
        self._store = store
        self._process = process
        self._served = served
        self._states = [_State()]
        """Possible records now: each is a prefix of the next, and the last has everything."""
        self._open: dict[int, int] = {}
        """Calls of this session without an end: numbers by position among all calls."""

    async def act(self, act: Act) -> None:
        """Do something."""
        what, number = act
        await getattr(self, f"_{what}")(number)

    def _record(self, **changes: Any) -> None:
        self._states.append(replace(self._states[-1], seq=self._served.seq, **changes))

    @property
    def _now(self) -> _State:
        return self._states[-1]

    async def _put(self, number: int) -> None:
        key = f"step:{number % 3}"
        self._served.session.put(key, [number])
        self._record(steps={**self._now.steps, key: [number]})

    async def _send(self, number: int) -> None:
        place = len(self._now.calls)
        self._open[place] = await send(self._served.session)
        self._record(calls={**self._now.calls, place: ("sent", HELD.tokens)})
        self._states = self._states[-1:]

    async def _end(self, number: int) -> None:
        for place in list(self._open)[:1]:
            state, usage = (("failed", Usage(number)), ("unsent", NOTHING))[number % 2]
            self._served.session.ended(self._open.pop(place), state, usage)
            self._record(calls={**self._now.calls, place: (state, usage.tokens)})

    async def _answer(self, number: int) -> None:
        for place in list(self._open)[:1]:
            key = f"call:{number % 3}"
            self._served.session.put_answer(key, number, self._open.pop(place), Usage(number))
            calls, steps = self._now.calls, self._now.steps
            self._record(calls={**calls, place: ("answered", number)}, steps={**steps, key: number})

    async def _emit(self, number: int) -> None:
        self._served.emit(number)

    async def _ask(self, number: int) -> None:
        question = question_of("r", number % 3)
        self._served.session.keep_open(question)
        asked = self._now.questions
        self._record(questions=asked if question.id in asked else {**asked, question.id: None})

    async def _reply(self, number: int) -> None:
        """Answer a question that is certainly recorded, from another process."""
        question_id, decision = question_of("r", number % 3).id, ANSWERS[number % 2]
        if all(one.questions.get(question_id, decision) is None for one in self._states):
            await (await self._store.process()).do("answer", question_id, decision)
            self._states = [replace(one, questions={**one.questions, question_id: decision}) for one in self._states]

    async def _close(self, number: int) -> None:
        question_id = question_of("r", number % 3).id
        self._served.session.close_question(question_id)
        self._record(questions={key: one for key, one in self._now.questions.items() if key != question_id})

    async def _written(self, number: int = 0) -> None:
        await self._served.session.written()
        self._states = self._states[-1:]

    async def _crash(self, number: int) -> None:
        await self._process.die()
        await self._go_on(take_over=False)

    async def _take(self, number: int) -> None:
        await self._go_on(take_over=True)

    async def _stop(self, number: int) -> None:
        self._served.session.interrupt("somebody pressed Ctrl-C")
        await check_over(self._served.session)
        self._states = self._states[-1:]
        await self._go_on(take_over=False)

    async def _suspend(self, number: int) -> None:
        self._served.session.end(result_of("r", TeamStatus.SUSPENDED))
        await self._written()
        await self._go_on(take_over=False)

    async def _go_on(self, *, take_over: bool) -> None:
        """Recover the run in a new process; fail unless it is a prefix of the recorded run."""
        self._process = await self._store.process()
        run = (await self._process.recover(take_over=take_over))["r"]
        fitting = [one for one in self._states if one.is_of(run)]
        assert fitting, f"recovered is {_content(run)}, and recorded was {self._states[-1]}, with all before it"
        assert run.seq <= self._served.seq, f"it is at event {run.seq}, and there were {self._served.seq}"
        self._states, self._open = [replace(fitting[-1], seq=run.seq)], {}
        self._served = Served(run.journal, seq=run.seq)

    async def end(self, *, keeps_events: bool) -> None:
        """Wait until everything is written, let the process die, and compare."""
        await self._written()
        await self._crash(0)
        if keeps_events:
            found = await self._process.do("events_after", "r")
            wanted = tuple(event_of("r", seq) for seq in range(1, self._served.seq + 1))
            assert tuple(found) == wanted, f"{len(wanted)} events were recorded, and there are {len(found)}"


class LawTests(JournalStage):
    """C3 to C5, C8, C14, C15, C17 and C19, with drawn runs."""

    @law("C3", "C4", "C5", "C15", examples=25, acts=DRAWN)
    async def test_c03_whatever_happens_a_beginning_of_what_was_recorded_is_there(self, acts: Sequence[Act]) -> None:
        """Everything that was waited for is there, after deaths, take-overs, interruptions and questions to people."""
        async with self.store() as store:
            process = await store.process()
            play = _Play(store, process, Served(await process.begin()))
            for act in acts:
                await play.act(act)
            await play.end(keeps_events=self.keeps_events)


def _content(run: RecoveredRun) -> Any:
    questions = {one.question.id: one.decision for one in run.questions}
    return run.steps, [(one.state, one.usage.tokens) for one in run.calls], questions, run.seq
