"""Replies recorded once are given again without the model: usage, tool calls, errors and order included."""

from __future__ import annotations

import json
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelCallError
from kairo_team.messages import Billing, ToolSpec
from kairo_team.testing import EventRecorder, FunctionModel, RecordReplayModel, ScriptedModel, run_in_virtual_time
from kairo_team.testing.record_replay import Mode

pytestmark = pytest.mark.anyio


def ask(text: str = "What are tides?", **fields: Any) -> kt.ModelRequest:
    return kt.ModelRequest([kt.Message.user(text)], **fields)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


RICH = kt.ModelResponse(
    "Let me look. é",
    [kt.ToolCall("c1", "search", {"q": ["x", 1]}), kt.ToolCall("c2", "search", "oops")],
    kt.Usage(12, 5, Decimal("0.0012")),
    "house-2",
    "length",
    Billing(3, 2, 1, {"service_tier": "priority"}),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records" / "replies.jsonl"


async def test_what_was_recorded_is_replayed_without_the_model(path: Path) -> None:
    model = ScriptedModel([RICH, "Second.", "Other."], name="house:model")
    recording = RecordReplayModel(path, model)
    assert isinstance(recording, ChatModel)
    said = [await recording.complete(request) for request in (ask(), ask(), ask("Another?"))]
    model.assert_complete()
    replaying = RecordReplayModel(path, mode="replay")
    assert [await replaying.complete(request) for request in (ask("Another?"), ask(), ask())] == [said[2], *said[:2]]
    assert replaying.name == "house:model"
    assert said[0] == RICH


async def test_by_default_only_what_is_not_recorded_is_asked(path: Path) -> None:
    for script, text in [(["One."], "One."), ([], "One."), (["Two."], "Two.")]:
        model = ScriptedModel(script, name="house:model")
        replies = RecordReplayModel(path, model)
        if text == "Two.":
            await replies.complete(ask())
        assert (await replies.complete(ask())).text == text
        model.assert_complete()
    assert len(lines(path)) == 2


async def test_recording_anew_goes_before_what_was_recorded(path: Path) -> None:
    for text in ("Old.", "New."):
        await RecordReplayModel(path, ScriptedModel([text]), mode="record").complete(ask())
    assert (await RecordReplayModel(path).complete(ask())).text == "New."
    assert len(lines(path)) == 2, "it is only ever added to"


@pytest.mark.parametrize(
    "other",
    [
        ask("Another?"),
        kt.ModelRequest([kt.Message.system("Be brief."), *ask().messages]),
        ask(tools=[ToolSpec("search")]),
        ask(output_schema={"type": "object"}),
        ask(settings={"temperature": 1}),
    ],
)
async def test_another_question_is_another_call(path: Path, other: kt.ModelRequest) -> None:
    await RecordReplayModel(path, ScriptedModel(["One."])).complete(ask())
    with pytest.raises(
        LookupError, match=r"replies.jsonl: no record of the request '.*' \([0-9a-f]{12}\); to record it"
    ):
        await RecordReplayModel(path, mode="replay").complete(other)


async def test_reasoning_that_goes_back_makes_another_call(path: Path) -> None:
    """What a model is sent in place of text and calls is a part of the question."""
    plain, one, two = (
        kt.ModelRequest([kt.Message.assistant("x", native=native)]) for native in (None, "{}", '{"a":1}')
    )
    recording = RecordReplayModel(path, ScriptedModel(["Plain.", "One.", "Two."]))
    said = [await recording.complete(request) for request in (plain, one, two)]
    replaying = RecordReplayModel(path, mode="replay")
    assert [await replaying.complete(request) for request in (two, one, plain)] == said[::-1]


async def test_a_call_beyond_the_recorded_ones_says_which(path: Path) -> None:
    await RecordReplayModel(path, ScriptedModel(["One."])).complete(ask())
    replaying = RecordReplayModel(path, mode="replay")
    await replaying.complete(ask())
    with pytest.raises(LookupError, match="no record number 2 of the request 'What are tides"):
        await replaying.complete(ask())
    with pytest.raises(LookupError, match=r"the request 'word word .*\.\.\.'"):
        await replaying.complete(ask("word " * 1000))


async def test_the_limit_on_the_reply_is_no_part_of_the_question_but_holds(path: Path) -> None:
    await RecordReplayModel(path, ScriptedModel(["one two three"])).complete(ask(max_tokens=100))
    assert (await RecordReplayModel(path).complete(ask(max_tokens=3))).text == "one two three"
    with pytest.raises(LookupError, match="has 3 tokens, this call allows 2: allow more, or record again"):
        await RecordReplayModel(path).complete(ask(max_tokens=2))


async def test_errors_of_the_provider_are_replayed_and_others_are_not_recorded(path: Path) -> None:
    busy = ModelCallError("rate_limited", "house:other", "later", retry_after=1.5, unspent=True)
    recording = RecordReplayModel(path, ScriptedModel([busy, ValueError("bug"), "Fine."]))
    for kind in (ModelCallError, ValueError):
        with pytest.raises(kind):
            await recording.complete(ask())
    await recording.complete(ask())
    replaying = RecordReplayModel(path, mode="replay")
    with pytest.raises(ModelCallError) as caught:
        await replaying.complete(ask())
    error = caught.value
    assert (error.kind, error.retry_after, error.unspent, str(error)) == ("rate_limited", 1.5, True, str(busy))
    assert (await replaying.complete(ask())).text == "Fine."


async def test_a_run_is_replayed_with_its_tries_and_its_usage(path: Path) -> None:
    def team() -> kt.Team:
        return kt.Team("desk", [kt.Member("writer", kt.MiniAgent("house:model", settings={"max_tokens": 20}))])

    model = ScriptedModel([ModelCallError("overloaded", "house:model", "later"), "one two three"], name="house:model")
    seen: list[tuple[Any, ...]] = []
    modes: tuple[Mode, ...] = ("record", "replay")
    for mode in modes:
        recorder = EventRecorder()
        replies = RecordReplayModel(path, model, mode)
        runtime = kt.Runtime(models={"house:*": replies}, subscribers=[recorder])
        result = await kt.run(team(), "Write.", runtime=runtime)
        calls = [(call.model, call.outcome, call.usage.tokens) for call in recorder.of(kt.events.ModelCalled)]
        seen.append((result.check().output, *calls[1:], result.usage.completion_tokens))
        assert [outcome for _, outcome, _ in calls] == ["error", "ok"]
    assert seen[0] == seen[1]


async def test_the_prompt_is_counted_as_it_was(path: Path) -> None:
    recording = RecordReplayModel(path, ScriptedModel(["one"]))
    assert await recording.count_tokens(ask()) == 3
    await recording.complete(ask())
    replaying = RecordReplayModel(path, mode="replay")
    assert await replaying.count_tokens(ask()) == 3
    assert await replaying.count_tokens(ask("Another?")) > 3


async def test_a_stream_is_told_at_once(path: Path) -> None:
    told: list[str] = []
    await RecordReplayModel(path, ScriptedModel(["one two"])).stream(ask(), told.append)
    await RecordReplayModel(path).stream(ask(), told.append)
    assert told == ["one two", "one two"]


async def test_calls_at_the_same_time_are_each_recorded_once(path: Path) -> None:
    delays = iter([3, 1, 2])

    async def answer(_: kt.ModelRequest) -> str:
        delay = next(delays)
        await anyio.sleep(delay)
        return f"after {delay}"

    recording = RecordReplayModel(path, FunctionModel(answer))
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(recording.complete, ask())
    replaying = RecordReplayModel(path, mode="replay")
    assert [(await replaying.complete(ask())).text for _ in range(3)] == ["after 1", "after 2", "after 3"]


# ---------------------------------------------------------------- files


async def test_a_line_that_was_cut_off_is_left_out_and_replaced(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recording = RecordReplayModel(path, ScriptedModel(["One.", "Two."]))
    for _ in range(2):
        await recording.complete(ask())
    cut_off(path)
    with caplog.at_level(logging.WARNING, "kairo_team"):
        again = RecordReplayModel(path, ScriptedModel(["Two, again."]))
    assert "the last line is cut off" in caplog.text
    assert [(await again.complete(ask())).text for _ in range(2)] == ["One.", "Two, again."]
    assert [(await RecordReplayModel(path).complete(ask())).text] == ["One."]
    assert all(json.loads(line) for line in lines(path))


LINE = {"request": "00", "number": 1, "model": "m:m", "asked": "", "response": {"text": "x"}}


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "3",
        "null",
        "[]",
        "{}",
        '"request"',
        json.dumps({**LINE, "number": 0}),
        json.dumps({**LINE, "number": "1"}),
        json.dumps({**LINE, "model": None}),
        json.dumps({**LINE, "response": {"text": 3}}),
        json.dumps({**LINE, "response": None}),
        json.dumps({**LINE, "error": {"kind": "timeout"}}),
        json.dumps({**LINE, "error": None}),
        json.dumps({**LINE, "error": {"kind": "no", "model": "m", "why": "", "retry_after": None, "unspent": True}}),
        "[" * 100_000,
        "\x00\xff",
    ],
    ids=lambda line: line[:20],
)
def test_a_file_that_is_no_record_is_refused_by_line(path: Path, line: str) -> None:
    path.parent.mkdir()
    path.write_text(f"{json.dumps(LINE)}\n\n{line}\n{json.dumps(LINE)}\n", encoding="latin-1")
    with pytest.raises(ValueError, match=r"replies.jsonl, line 3: this is not a record of a model's call"):
        RecordReplayModel(path)


@given(st.binary(max_size=200))
def test_no_file_makes_it_fail_in_another_way(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("records") / "replies.jsonl"
    path.write_bytes(json.dumps(LINE).encode() + b"\n" + data)
    try:
        RecordReplayModel(path)
    except ValueError as error:
        problem = str(error)
    else:
        problem = ""
    assert not problem or "this is not a record of a model's call" in problem


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.text(st.characters(exclude_categories=["Cs"]))), max_size=8),
)
def test_whatever_is_recorded_is_replayed(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("records") / "replies.jsonl"

    async def ask_all(model: RecordReplayModel) -> list[kt.ModelResponse]:
        return [await model.complete(ask(question)) for question, _ in calls]

    script = ScriptedModel([kt.ModelResponse(text) for _, text in calls])
    recorded = run_in_virtual_time(ask_all, RecordReplayModel(path, script))
    assert run_in_virtual_time(ask_all, RecordReplayModel(path, mode="replay")) == recorded


def test_wrong_settings_are_refused(path: Path) -> None:
    mode: Any = "rewind"
    with pytest.raises(ValueError, match="mode must be one of 'auto', 'record', 'replay', not 'rewind'"):
        RecordReplayModel(path, mode=mode)
    with pytest.raises(ValueError, match="mode='record' needs a model"):
        RecordReplayModel(path, mode="record")


@pytest.mark.parametrize("mode", ["auto", "replay"])
async def test_without_a_file_nothing_is_recorded(path: Path, mode: Mode) -> None:
    with pytest.raises(LookupError, match="no record of the request"):
        await RecordReplayModel(path, mode=mode).complete(ask())
    assert not lines(path)
