"""Texts of the work in events: opt-in, masked, with the calls they belong to, or in the journal alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.events import Content, Event, event_from_json
from kairo_team.governance.guardrails import (
    GuardrailContext,
    GuardrailDecision,
    GuardrailPhase,
    ModelInput,
    ModelOutput,
)
from kairo_team.testing import EventRecorder, FunctionModel

pytestmark = pytest.mark.anyio

MARK = "m4rk3r"
"""Stands in every prompt, reply, argument, result and artifact."""


@kt.tool(side_effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


def reply(request: kt.ModelRequest) -> kt.ModelResponse | str:
    """Ask for the tool once, then answer."""
    if any(message.role == "tool" for message in request.messages):
        return f"it is {MARK}"
    return kt.ModelResponse(f"let me look {MARK}", [kt.ToolCall("c", "look", {"what": MARK})], kt.Usage(40, 40))


async def record(**runtime: Any) -> EventRecorder:
    """Run one task whose member asks a model and a tool, and return its events."""
    recorder = EventRecorder()
    agent = kt.MiniAgent(FunctionModel(reply), tools=[look])
    team = kt.Team("t", [kt.Member("m", agent)], runtime=kt.Runtime(subscribers=[recorder], **runtime))
    result = await kt.run(team, "go", plan=kt.TaskGraph([kt.Task("one", f"Do {MARK}.")]))
    assert result.output == f"it is {MARK}"
    return recorder


def without_bodies(seen: list[Event]) -> list[tuple[int, str]]:
    return [(event.seq, event.type) for event in seen]


async def test_by_default_no_event_has_a_text_of_the_work() -> None:
    """Reasons of errors, goals, questions and findings are no part of this; who streams a reply publishes it."""
    recorder = await record()
    assert recorder.of(Content) == []
    assert [event for event in recorder.events if MARK in event.to_json()] == []


async def test_content_has_every_text_in_order_and_its_call() -> None:
    recorder = await record(content="events")
    found = recorder.of(Content)
    assert [one.of for one in found] == ["prompt", "reply", "arguments", "result", "prompt", "reply", "artifact"]
    assert all(MARK in one.to_json() for one in found)
    first, call = found[0].call_id, found[2].call_id
    assert first == recorder.of(kt.events.ModelStarted)[0].call_id
    assert call == recorder.of(kt.events.ToolStarted)[0].call_id
    assert [one.call_id for one in found[:4]] == [first, first, call, call]
    assert {(one.task_id, one.member, one.attempt) for one in found} == {("one", "m", 1)}
    assert found[2].body == {"what": MARK}
    assert found[3].body == f"saw {MARK}"
    assert found[1].body["text"] == f"let me look {MARK}"
    assert [message["role"] for message in found[4].body["messages"]][-2:] == ["tool", "user"]
    assert found[6].body["text"] == f"it is {MARK}"
    assert [event_from_json(one.to_json()) for one in found] == found


async def test_secrets_in_content_are_masked() -> None:
    recorder = EventRecorder()
    agent = kt.MiniAgent(FunctionModel(reply), tools=[look])
    runtime = kt.Runtime(subscribers=[recorder], secrets=[MARK], content="events")
    await kt.run(
        kt.Team("t", [kt.Member("m", agent)], runtime=runtime), "go", plan=kt.TaskGraph([kt.Task("one", f"Do {MARK}.")])
    )
    assert len(recorder.of(Content)) == 7
    assert not any(MARK in event.to_json() for event in recorder.events)


class Redact:
    """Replaces what must not be sent, and what must not be read."""

    phases = {GuardrailPhase.PRE_MODEL, GuardrailPhase.POST_MODEL}  # noqa: RUF012 - as users write it

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        payload = context.payload
        if isinstance(payload, ModelInput):
            return GuardrailDecision.modify("private", ModelInput([kt.Message.user("redacted prompt")]))
        assert isinstance(payload, ModelOutput)
        return GuardrailDecision.modify("private", ModelOutput(kt.ModelResponse("redacted reply")))


async def test_content_is_what_the_guardrails_let_through() -> None:
    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder], guardrails=[Redact()], content="events")
    team = kt.Team("t", [kt.Member("m", kt.MiniAgent(FunctionModel(lambda _: MARK)))], runtime=runtime)
    await kt.run(team, "go", plan=kt.TaskGraph([kt.Task("one", f"Do {MARK}.")]))
    prompt, said, _ = recorder.of(Content)
    assert [message["text"] for message in prompt.body["messages"]] == ["redacted prompt"]
    assert said.body["text"] == "redacted reply"
    assert not any(MARK in event.to_json() for event in recorder.events)


@pytest.mark.real_time
async def test_content_for_the_journal_leaves_no_gap_for_the_others(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    recorder = EventRecorder()
    seen: list[Event] = []

    async def slow(event: Event) -> None:
        seen.append(event)

    agent = kt.MiniAgent(FunctionModel(reply), tools=[look])
    async with kt.Runtime(subscribers=[recorder, slow], journal=journal, content="journal") as runtime:
        team = kt.Team("t", [kt.Member("m", agent)])
        plan = kt.TaskGraph([kt.Task("one", f"Do {MARK}.")])
        run = await runtime.start(team, "go", plan=plan)
        watched = [event async for event in run.events()]
        await run.result()
    kept = list(journal.events_after(run.run_id, 0))
    journal.close()
    assert without_bodies(kept) == without_bodies(recorder.events) == without_bodies(seen) == without_bodies(watched)
    assert [one.seq for one in kept] == list(range(1, len(kept) + 1))
    assert len([one for one in kept if isinstance(one, Content) and MARK in one.to_json()]) == 7
    for heard in (recorder.events, seen, watched):
        assert not any(MARK in event.to_json() for event in heard)


def test_content_for_a_journal_needs_one() -> None:
    with pytest.raises(ValueError, match="needs a journal"):
        kt.Runtime(content="journal")
    with pytest.raises(ValueError, match=r"Runtime\.content is 'events', 'journal', 'none', not True"):
        kt.Runtime(content=True)  # type: ignore[arg-type]  # the mistake is the point


@pytest.mark.real_time
async def test_a_journal_keeps_no_text_of_the_work_in_its_events_by_default(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    recorder = await record(journal=journal)
    kept = list(journal.events_after(recorder.events[0].run_id, 0))
    journal.close()
    assert kept
    assert not any(MARK in event.to_json() for event in kept)
