"""The doubles shipped for users' tests: they count, they fail when told, and they notice a wrong number of calls."""

from __future__ import annotations

import gc
import warnings
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import anyio
import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelUnavailable
from kairo_team.events import Event, TaskSkipped, TeamStarted
from kairo_team.models.resolver import ModelResolver
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedAgent, ScriptedModel, forbid_real_models

ASK = kt.ModelRequest([kt.Message.system("be brief"), kt.Message.user("what are tides")])  # 5 words


async def test_a_scripted_model_gives_its_replies_in_order_and_keeps_the_requests() -> None:
    model = ScriptedModel(["one two", kt.ModelResponse("as it is")], name="test:m")
    assert isinstance(model, ChatModel)
    first, second = await model.complete(ASK), await model.complete(ASK)
    assert first == kt.ModelResponse("one two", usage=kt.Usage(5, 2), model="test:m")
    assert second == kt.ModelResponse("as it is")
    assert model.calls == [ASK, ASK]
    model.assert_complete()


async def test_an_exception_in_the_script_is_raised_in_its_turn() -> None:
    model = ScriptedModel([ConnectionError("down"), TimeoutError, "up"])
    with pytest.raises(ConnectionError, match="down"):
        await model.complete(ASK)
    with pytest.raises(TimeoutError):
        await model.complete(ASK)
    assert (await model.complete(ASK)).text == "up"


async def test_calls_missing_and_calls_too_many_are_noticed() -> None:
    model = ScriptedModel(["a"], name="test:m")
    with pytest.raises(AssertionError, match=r"ScriptedModel 'test:m': 0 calls of a script of 1"):
        model.assert_complete()
    await model.complete(ASK)
    with pytest.raises(AssertionError, match=r"call 2 of a script of 1"):
        await model.complete(ASK)
    with pytest.raises(AssertionError, match=r"2 calls of a script of 1"):
        model.assert_complete()


def test_one_string_is_no_script() -> None:
    with pytest.raises(ValueError, match="takes a list"):
        ScriptedModel("oops")


async def test_a_reply_is_cut_at_max_tokens_like_a_real_one() -> None:
    model = FunctionModel(lambda request: "one two three four")
    reply = await model.complete(kt.ModelRequest(ASK.messages, max_tokens=3))
    assert (reply.text, reply.finish_reason, reply.usage) == ("one two three", "length", kt.Usage(5, 3))


async def test_a_function_model_may_be_async_and_has_a_price() -> None:
    async def answer(request: kt.ModelRequest) -> str:
        return request.messages[-1].text.upper()

    model = FunctionModel(answer, dollars_per_token=Decimal("0.01"))
    assert await model.count_tokens(ASK) == 5
    reply = await model.complete(ASK)
    assert reply.text == "WHAT ARE TIDES"
    assert reply.usage == kt.Usage(5, 3, Decimal("0.08"))
    assert model.price(kt.Usage(5, 3)) == Decimal("0.08")


@pytest.mark.usefixtures("swept")
async def test_a_call_that_is_cancelled_at_once_leaves_no_coroutine_behind() -> None:
    asked: list[kt.ModelRequest] = []

    async def answer(request: kt.ModelRequest) -> str:
        asked.append(request)
        return "late"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await FunctionModel(answer).complete(ASK)
        gc.collect()
    assert scope.cancelled_caught
    assert asked == []


async def test_a_scripted_agent_gives_anything_and_keeps_its_assignments() -> None:
    agent = ScriptedAgent(["text", kt.Artifact("made"), None, ValueError("bad")])
    assignment = kt.Assignment(kt.Task("t", "do"), "goal", {}, {}, {})
    context = cast("Any", None)
    assert [await agent.run(assignment, context) for _ in range(3)] == ["text", kt.Artifact("made"), None]
    with pytest.raises(ValueError, match="bad"):
        await agent.run(assignment, context)
    agent.assert_complete()
    assert agent.calls == [assignment] * 4


def test_an_event_recorder_keeps_order_and_sorts_by_class() -> None:
    recorder = EventRecorder()
    events: list[Event] = [
        TeamStarted("r", 1, datetime.now(UTC), "team", "goal", ("a",)),
        TaskSkipped("r", 2, datetime.now(UTC), "t", None, 0, "why"),
    ]
    for event in events:
        recorder(event)
    assert recorder.events == events
    assert recorder.types == ["team.started", "task.skipped"]
    assert recorder.of(TaskSkipped) == events[1:]


def test_real_models_are_refused_where_they_are_forbidden() -> None:
    double = ScriptedModel([])
    with forbid_real_models():
        with pytest.raises(ModelUnavailable, match="forbidden here"):
            ModelResolver().resolve("local:smollm2")
        assert ModelResolver({"local:*": double}).resolve("local:smollm2") is double
