"""The records that a journal returns: every step and call, in order, exact and whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest

from kairo_team.artifacts import Artifact
from kairo_team.budget import Usage
from kairo_team.errors import Misuse, RunNotFound
from kairo_team.messages import ModelResponse, ToolCall
from kairo_team.recorded import Place, RecordedCall, RecoveredRun
from kairo_team.results import AgentOutput, Attempt, TeamStatus
from kairo_team.tck.journal_stage import (
    HELD,
    NOTHING,
    ONE_CALL,
    STEP,
    USED,
    JournalStage,
    Served,
    check_same,
    request_of,
    result_of,
    send,
    team_of,
)
from kairo_team.tck.kit import clause
from kairo_team.team import TeamExecutionRequest

MANY: Final = 60
"""Number of steps recorded in quick succession."""
ENDS: Final[Mapping[str, Usage]] = {"failed": USED, "unknown": HELD, "unsent": NOTHING}
"""States of ended calls without an answer, with their charge."""


@dataclass(frozen=True)
class Note:
    """A user's value class."""

    text: str
    at: datetime
    parts: tuple[int, ...] = ()


VALUES: Final[Mapping[str, object]] = {
    "nothing": None,
    "numbers": [0, -1, 2**70, 0.1, True],
    "one sign as one or two characters": ["\u00e9", "e\u0301", "\ufb01", "fi"],
    "a long text": "\u6f6e\U0001f319 " * 40_000,
    "texts": ["", "a\n\0b", "\u6f6e \U0001f319", "\ud800"],
    "money": Decimal("0.10"),
    "bytes": b"\x00\xff",
    "a time": datetime(2026, 3, 29, 2, 30, tzinfo=UTC),
    "a day": date(2026, 3, 29),
    "a duration": timedelta(days=-1, microseconds=1),
    "a tuple": (1, (2,)),
    "a set": {"b", "a"},
    "words": {"a": {"~": 1}, "": []},
    "pairs": {1: "one", (2, 3): "two"},
    "usage": USED,
    "an attempt": Attempt("tides", 1, "writer", AgentOutput(Artifact("a text", data={"a": 1}), usage=USED)),
    "a reply": ModelResponse("yes", [ToolCall("c1", "look", {"at": [1]})], USED),
    "a user's": Note("a note", datetime(2026, 1, 1), (1, 2)),  # noqa: DTZ001 - a naive time stays one
}

LONG: Final = "k" * 2_000
KEYS: Final = (
    *(
        "a",
        "A",
        " a",
        "a ",
        "a/b",
        "a:b",
        "a\0b",
        "a\0",
        "",
        "\ud800",
        "\x1a0000",
        "%",
        "_",
        "a%",
        "\u00e9",
        "e\u0301",
        "\u6f6e",
        "'\"\\",
    ),
    *(f"{LONG}{end}" for end in ("", "1", "2")),
)
"""Keys that only a careless comparison takes for each other."""


class RecordTests(JournalStage):
    """C2 to C6, C10, C11."""

    # ------------------------------------------------------------------ before a call is sent

    @clause("C2")
    async def test_c02_a_call_survives_the_death_that_follows(self) -> None:
        """Earlier records survive too."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            session.put("plan:1", "a plan")
            await send(session)
            run = (await store.after(process))["r"]
            assert run.steps == {"plan:1": "a plan"}, f"before the call a plan was recorded, and there is {run.steps}"
            check_calls(run, sent={"model": 1})

    @clause("C2")
    async def test_c02_another_process_sees_a_call_once_it_may_be_sent(self) -> None:
        async with self.store() as store:
            session = await (await store.process()).begin()
            for _ in range(3):
                await send(session)
            check_calls((await store.taken())["r"], sent={"model": 3})

    # ------------------------------------------------------------------ order

    @clause("C3")
    async def test_c03_what_is_written_is_there_in_order(self) -> None:
        """The order follows the first value of each key."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            recorded = {f"step:{(7 * number) % MANY}": number for number in range(MANY)}
            for key, value in recorded.items():
                session.put(key, value)
            session.put("step:0", "changed")
            await session.written()
            run = (await store.after(process))["r"]
            wanted = {**recorded, "step:0": "changed"}
            assert list(run.steps.items()) == list(wanted.items()), f"recorded was {wanted}, and there is {run.steps}"

    @clause("C3")
    async def test_c03_a_death_leaves_the_first_of_what_was_recorded(self) -> None:
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            recorded = [f"step:{number}" for number in range(MANY)]
            for key in recorded:
                session.put(key, True)
            left = list((await store.after(process))["r"].steps)
            assert left == recorded[: len(left)], f"a death left {left} of {recorded}"

    @clause("C3")
    async def test_c03_calls_and_steps_are_in_one_order(self) -> None:
        """If a step was recorded after the end of a call, it is never there without that end."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            numbers = [await send(session) for _ in range(MANY)]
            for number in numbers:
                session.ended(number, "failed", USED)
                session.put(f"after:{number}", True)
            run = (await store.after(process))["r"]
            failed = sum(call.state == "failed" for call in run.calls)
            assert failed - len(run.steps) in (0, 1), (
                f"{failed} calls have ended, and {len(run.steps)} steps after them"
            )

    # ------------------------------------------------------------------ answers

    @clause("C4")
    async def test_c04_an_answer_is_there_with_the_end_of_its_call(self) -> None:
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            session.put_answer("call:1", "an answer", await send(session), USED)
            await session.written()
            run = (await store.after(process))["r"]
            check_same("the steps", run.steps, {"call:1": "an answer"})
            (call,) = run.calls
            assert (call.state, call.usage) == ("answered", USED), f"its call is {call.state}, for {call.usage}"

    @clause("C4")
    async def test_c04_no_answer_is_there_without_the_end_of_its_call(self) -> None:
        """An end is not there without its answer either, wherever the process dies."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            numbers = [await send(session) for _ in range(MANY)]
            for number in numbers:
                session.put_answer(f"call:{number}", number, number, USED)
            run = (await store.after(process))["r"]
            ended = sum(call.state == "answered" for call in run.calls)
            assert ended == len(run.steps), f"{ended} calls were answered, and {len(run.steps)} answers are there"

    # ------------------------------------------------------------------ what comes back

    @clause("C5")
    async def test_c05_every_call_is_as_it_was_recorded(self) -> None:
        """Step, member, state and charge of a call."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            for state, usage in ENDS.items():
                session.ended(await send(session, key=f"call:{state}", loops=3), state, usage)
            await send(session, step="review:1", task_id=None, member=None)
            await send(session, "tool", ONE_CALL, key="call:tool", side_effect="write")
            await session.written()
            calls = (await store.after(process))["r"].calls
            found = [(one.what, one.name, one.task_id, one.member, one.step, one.state) for one in calls]
            check_same(
                "what was found",
                found,
                [
                    *(("model", "test:model", "tides", "writer", STEP, state) for state in ENDS),
                    ("model", "test:model", None, None, "review:1", "sent"),
                    ("tool", "test:tool", "tides", "writer", STEP, "sent"),
                ],
            )
            check_same("the calls", [one.loops for one in calls], [3, 3, 3, 1, 1])
            check_same("the calls", calls[-1].key, "call:tool")
            charged = [_charge(one) for one in calls]
            wanted = [*map(_amounts, ENDS.values()), _amounts(HELD), _amounts(ONE_CALL)]
            assert charged == wanted, f"charged are {charged} tokens, dollars and tool calls, and due are {wanted}"

    @clause("C5")
    async def test_c05_sessions_add_up(self) -> None:
        """Each session has its own calls; none replaces a call of an earlier session."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            for number in range(3):
                sent = await send(session, step=f"attempt:1:tides:{number}")
                session.put("last", number)
                session.ended(sent, "failed", Usage(number + 1))
                await send(session, step="open")
                session = (await store.after(process))["r"].journal
                process = await store.process()
                session = (await process.recover(take_over=True))["r"].journal
            run = (await store.after(process))["r"]
            check_same("the steps", run.steps, {"last": 2})
            found = [(one.step, one.usage.tokens) for one in run.calls]
            assert found == [
                (step, tokens) for number in range(3)
                for step, tokens in ((f"attempt:1:tides:{number}", number + 1), ("open", HELD.tokens))
            ], f"three sessions sent two calls each, and there are {found}"  # fmt: skip

    @clause("C5")
    async def test_c05_a_recovered_run_that_did_nothing_is_the_same(self) -> None:
        """The seconds of work and the number of the last event stay too."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            Served(session, seconds=12.5).emit(7)
            session.put("plan:1", "a plan")
            await send(session)
            first = (await store.after(process))["r"]
            process = await store.process()
            await process.recover(take_over=True)
            second = (await store.after(process))["r"]
            for run in (first, second):
                assert (run.seconds, run.seq) == (12.5, 7), f"it worked 12.5 s and was at event 7: {run}"
            check_same("what is recorded", _content(first), _content(second))

    @clause("C5")
    async def test_c05_runs_inside_come_with_the_run_around_them(self) -> None:
        """At any depth, ended ones included; no other runs."""
        async with self.store() as store:
            process = await store.process()
            outer = await process.begin("r")
            await (await process.begin("other")).written()
            inside = {
                "r.1": Place("r", STEP, "group"),
                "r.2": Place("r", STEP, "group"),
                "r.1.1": Place("r.1", "s", None),
            }
            for run_id, place in inside.items():
                session = await process.begin(run_id, place)
                session.put("mine", run_id)
                await send(session, step=run_id)
                session.end(result_of(run_id, TeamStatus.COMPLETED))
                await session.written()
            outer.put("mine", "r")
            await outer.written()
            found = await store.after(process)
            check_same("where it is made", {run_id: run.place for run_id, run in found.items()}, {"r": None, **inside})
            for run_id, run in found.items():
                check_same("the request", run.request, request_of(run_id))
                check_same("the steps", run.steps, {"mine": run_id})
                check_same("the calls", [one.step for one in run.calls], [run_id] if run_id != "r" else [])
                check_same("what the session has", run.journal.get("mine", None), run_id)

    @clause("C6")
    async def test_c06_the_recovered_journal_has_the_values(self) -> None:
        """The journal also has the values that it records itself, and returns the default for other keys."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            session.put("plan:1", ["a plan"])
            session.put("nothing", None)
            await session.written()
            again = (await store.after(process))["r"].journal
            check_same("`durable`", again.durable, True)
            check_same("`records`", dict(again.records), {"plan:1": ["a plan"], "nothing": None})
            check_same("what the session has", again.get("plan:1", None), ["a plan"])
            check_same("what the session has", again.get("nothing", "default"), None)
            check_same("what the session has", again.get("unknown", "default"), "default")
            again.put("plan:1", "new")
            check_same("what the session has", again.get("plan:1", None), "new")

    @clause("C6")
    async def test_c06_tools_without_an_end_are_in_doubt(self) -> None:
        """Answered calls and model calls are not; a call stays in doubt until the run has ended."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            await send(session, "tool", ONE_CALL, key="call:open")
            session.put_answer("call:done", "ok", await send(session, "tool", ONE_CALL, key="call:done"), ONE_CALL)
            session.ended(await send(session, "tool", ONE_CALL, key="call:failed"), "failed", ONE_CALL)
            await send(session, key="call:model")
            for _ in range(2):
                await session.written()
                session = (await store.after(process))["r"].journal
                assert set(session.in_doubt) == {"call:open"}, f"in doubt are {set(session.in_doubt)}"
                process = await store.process()
                session = (await process.recover(take_over=True))["r"].journal

    # ------------------------------------------------------------------ values

    @clause("C10")
    async def test_c10_values_come_back_as_they_were(self) -> None:
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            for key, value in VALUES.items():
                session.put(key, value)
            await session.written()
            run = (await store.after(process))["r"]
            for key, value in VALUES.items():
                assert key in run.steps, f"{key}: {value!r} was recorded, and is not there"
                found = run.steps[key]
                assert found == value, f"{key}: recorded was {_told(value)}, and there is {_told(found)}"
                assert type(found) is type(value), f"{key}: recorded was a {type(value)}, and there is a {type(found)}"

    @clause("C5", "C10")
    async def test_c10_keys_come_back_as_they_were(self) -> None:
        """Any text is a key, however long, and none is taken for another one."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            for number, key in enumerate(KEYS):
                session.put(key, number)
            await session.written()
            found = [*(await store.after(process))["r"].steps.items()]
            for number, key in enumerate(KEYS):
                there = found[number] if number < len(found) else None
                assert there == (key, number), f"under the key {key!r:.40} was {number}; there is {there!r:.80}"
            check_same("the number of keys", len(found), len(KEYS))

    @clause("C10")
    async def test_c10_a_value_is_recorded_as_it_was_then(self) -> None:
        """The session may change the object later."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            value = ["one"]
            session.put("list", value)
            value.append("two")
            await session.written()
            value.append("three")
            check_same("the steps", (await store.after(process))["r"].steps, {"list": ["one"]})

    @clause("C10")
    async def test_c10_what_cannot_be_written_is_not_recorded_and_all_else_is(self) -> None:
        """The end of its call too."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            thing = object()
            session.put("before", 1)
            session.put("thing", thing)
            session.put_answer("call:1", thing, await send(session), USED)
            session.put("after", 2)
            await session.written()
            check_same("what the session has", session.get("thing", None), thing)
            run = (await store.after(process))["r"]
            check_same("the steps", run.steps, {"before": 1, "after": 2})
            check_same("the calls", [(one.state, one.usage) for one in run.calls], [("answered", USED)])

    @clause("C10")
    async def test_c10_a_request_comes_back_as_it_was(self) -> None:
        """With any text in it."""
        async with self.store() as store:
            process = await store.process()
            for number, text in enumerate(
                ("a\0b", "\u6f6e \U0001f319", "half of a pair: \ud800", "'); DROP TABLE run; --")
            ):
                request = TeamExecutionRequest(text, context={"more": text}, run_id=f"r{number}")
                session = await process.do("begin", request, team_of(), {text: text}, None)
                await session.written()
                run = (await store.taken(f"r{number}"))[f"r{number}"]
                check_same("the request", run.request, request)
                check_same("the digests", dict(await process.do("digests", f"r{number}")), {text: text})

    @clause("C10")
    async def test_c10_a_run_whose_output_cannot_be_written_does_not_begin(self) -> None:
        @dataclass
        class Local:
            text: str

        async with self.store() as store:
            process = await store.process()
            with pytest.raises(Misuse):
                await process.do("begin", request_of("r"), team_of(note=Local), {}, None)
            with pytest.raises(RunNotFound):
                await process.recover()

    @clause("C11")
    async def test_c11_what_was_put_is_there_at_once(self) -> None:
        """Before it is written, also if it replaces a value."""
        async with self.store() as store:
            session = await (await store.process()).begin()
            number = await send(session)
            value = ["a value"]
            check_same("what the session has", session.get("key", value), value)
            session.put("key", None)
            check_same("what the session has", session.get("key", value), None)
            session.put_answer("key", "an answer", number, USED)
            check_same("what the session has", session.get("key", None), "an answer")


def _told(value: object) -> str:
    return f"{value!r:.200}" if not isinstance(value, str) else f"{len(value)} characters {value!r:.80}"


def check_calls(run: RecoveredRun, *, sent: Mapping[str, int]) -> None:
    """Fail unless the recorded calls are `sent` in number, by kind, all without an end and charged in full."""
    found = {what: [one for one in run.calls if one.what == what] for what in {*sent, *(one.what for one in run.calls)}}
    numbers = {what: len(calls) for what, calls in found.items()}
    assert numbers == sent, f"{sent} calls could be sent, and recorded are {numbers}"
    for call in run.calls:
        assert call.state == "sent", f"a call without an answer is {call.state!r}"
        assert _charge(call) == _amounts(HELD), f"{HELD} was held for a call, and charged is {call.usage}"


def _charge(call: RecordedCall) -> tuple[int, Decimal, int]:
    return _amounts(call.usage)


def _amounts(usage: Usage) -> tuple[int, Decimal, int]:
    return usage.tokens, usage.dollars, usage.tool_calls


def _content(run: RecoveredRun) -> Any:
    """Return all records of a run."""
    return replace(run, journal=None)  # type: ignore[arg-type]  # only to be compared
