"""Texts of the work in events: opt-in, masked, with the calls they belong to, or in the journal alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.errors import ModelCallError
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
PLAN = kt.TaskGraph([kt.Task("one", "Do it.", inputs={"what": MARK})])


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
    result = await kt.run(team, "go", plan=PLAN)
    assert result.output == f"it is {MARK}"
    return recorder


def without_bodies(seen: list[Event]) -> list[tuple[int, str]]:
    return [(event.seq, event.type) for event in seen]


async def test_by_default_no_event_has_a_text_of_the_work() -> None:
    """Goals, descriptions, reasons, questions and findings are no part of this; who streams a reply publishes it."""
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
    assert [message["role"] for message in found[4].body["messages"]][-3:] == ["tool", "user", "user"]
    assert found[6].body["text"] == f"it is {MARK}"
    assert [event_from_json(one.to_json()) for one in found] == found


async def test_third_o37_half_a_character_in_a_key_ends_no_run_that_shows_its_content() -> None:
    """Neither one in the arguments of a call that a model asks for, nor one in a member's data."""
    asks = kt.ModelResponse("so", [kt.ToolCall("c", "look", {"a\ud83d": 1})], kt.Usage(40, 40))

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> kt.Artifact:
        said = await context.model(FunctionModel(lambda _: asks)).complete(kt.ModelRequest([kt.Message.user("go")]))
        return kt.Artifact(said.text, {"b\ud83d": 1})

    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder], content="events")
    result = await kt.run(kt.Team("t", [kt.Member("m", work)], runtime=runtime), "go")
    assert (result.status, result.output) == ("completed", "so")
    reply, artifact = (str(one.body) for one in recorder.of(Content) if one.of in ("reply", "artifact"))
    assert "look" in reply
    assert "so" in artifact


async def test_secrets_in_content_are_masked() -> None:
    recorder = EventRecorder()
    agent = kt.MiniAgent(FunctionModel(reply), tools=[look])
    runtime = kt.Runtime(subscribers=[recorder], secrets=[MARK], content="events")
    await kt.run(
        kt.Team("t", [kt.Member("m", agent)], runtime=runtime),
        "go",
        plan=PLAN,
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
    await kt.run(team, "go", plan=PLAN)
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
        plan = PLAN
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


# ---------------------------------------------------------------- replies that are being written


USED = kt.Usage(7, 3)


class Writer:
    """Writes its words one a second, and says what it used, unless it is told not to."""

    name = "test:writer"

    def __init__(self, *words: str, breaks: int = 0, usage: kt.Usage | None = USED) -> None:
        self.words, self.usage, self.breaks = words, usage, breaks
        self.streamed = self.completed = 0

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.completed += 1
        return await self._write(lambda _: None)

    async def stream(self, request: kt.ModelRequest, on_text: Callable[[str], object]) -> kt.ModelResponse:
        self.streamed += 1
        return await self._write(on_text)

    async def _write(self, on_text: Callable[[str], object]) -> kt.ModelResponse:
        for number, word in enumerate(self.words):
            await anyio.sleep(1)
            if number and self.breaks:
                self.breaks -= 1
                raise ModelCallError("connection", self.name, "cut off")
            on_text(word)
        return kt.ModelResponse("".join(self.words), usage=self.usage)


async def watch(model: Writer, calls: int = 1, **runtime: Any) -> tuple[kt.TeamResult, EventRecorder]:
    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        texts = [(await context.model(model).complete(ask(str(number)))).text for number in range(calls)]
        return texts[-1]

    recorder = EventRecorder()
    team = kt.Team("t", [kt.Member("m", work)], runtime=kt.Runtime(subscribers=[recorder], **runtime))
    plan = kt.TaskGraph([kt.Task("one", "Do it.")])
    request = kt.TeamExecutionRequest("go", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=20_000)))
    return await kt.run(team, request), recorder


def ask(text: str) -> kt.ModelRequest:
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=50)


def pieces(recorder: EventRecorder) -> list[str]:
    return [one.body for one in recorder.of(Content) if one.of == "piece"]


async def test_a_reply_is_told_while_it_is_written() -> None:
    model = Writer("Once ", "upon ", "a time")
    _, recorder = await watch(model, content="events")
    assert pieces(recorder) == ["Once ", "upon ", "a time"]
    kinds = [one.of if isinstance(one, Content) else one.type for one in recorder.events]
    first, last = kinds.index("model.started"), kinds.index("model.called")
    assert kinds[first : last + 2] == ["model.started", "piece", "piece", "piece", "model.called", "reply"]
    [call] = {one.call_id for one in recorder.of(Content) if one.of in ("piece", "reply")}
    assert call == recorder.of(kt.events.ModelStarted)[0].call_id
    assert (model.streamed, model.completed) == (1, 0)


@pytest.mark.parametrize("runtime", [{}, {"content": "events", "guardrails": [Redact()]}], ids=["none", "guarded"])
async def test_nobody_is_told_a_reply_that_is_not_asked_for_or_not_looked_at_yet(runtime: dict[str, Any]) -> None:
    model = Writer("Once ", "upon ")
    _, recorder = await watch(model, **runtime)
    assert pieces(recorder) == []
    assert (model.streamed, model.completed) == (0, 1)


async def test_a_run_spends_the_same_whether_its_replies_are_told_or_not() -> None:
    """Also where a call breaks off in the middle: it is made again, as it is without anybody who listens."""
    results = [await watch(Writer("Once ", "upon ", breaks=2), calls=3, **how) for how in ({}, {"content": "events"})]
    (quiet, one), (told, other) = results
    assert quiet.usage.tokens == told.usage.tokens > 30
    ends = [[(end.outcome, end.held, end.usage) for end in each.of(kt.events.ModelCalled)] for each in (one, other)]
    assert ends[0] == ends[1]
    assert [outcome for outcome, _, _ in ends[0]] == ["error", "error", "ok", "ok", "ok"]
    assert pieces(other) == ["Once ", "Once ", *["Once ", "upon "] * 3], "each try is told from its beginning"


async def test_a_model_whose_streams_have_no_usage_is_streamed_once_and_no_more() -> None:
    model = Writer("Once ", "upon ", usage=None)
    _, recorder = await watch(model, calls=3, content="events")
    assert (model.streamed, model.completed) == (1, 2)
    assert pieces(recorder) == ["Once ", "upon "]


async def test_a_secret_in_two_pieces_is_told_to_nobody() -> None:
    model = Writer("the key is m4r", "k3r and m4", "rk3", "r, that is", " all: m4rk")
    _, recorder = await watch(model, content="events", secrets=[MARK])
    told = "".join(pieces(recorder))
    assert told.startswith("the key is [secret] and [secret], that")
    assert "the key is [secret] and [secret], that is all".startswith(told), "what may begin a secret waits"
    assert not any(MARK in event.to_json() for event in recorder.events)


async def test_a_secret_in_two_pieces_of_a_stream_is_masked() -> None:
    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model(Writer("it is m4r", "k3r", " and m4")).stream(ask("?"))).text

    recorder = EventRecorder()
    team = kt.Team("t", [kt.Member("m", work)], runtime=kt.Runtime(subscribers=[recorder], secrets=[MARK]))
    await kt.run(team, "go", plan=kt.TaskGraph([kt.Task("one", "Do it.")]))
    told = [one.text for one in recorder.of(kt.events.ModelDelta)]
    assert "".join(told) == "it is [secret] and m4"
    assert len(told) > 1
