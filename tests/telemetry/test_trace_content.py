"""What spans say of the work: texts where they are asked for, masked; and facts of calls in any case."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.governance import GuardrailContext, GuardrailDecision, ModelOutput
from kairo_team.messages import Billing, ToolCall
from kairo_team.testing import FunctionModel, ScriptedModel
from kairo_team.views.telemetry_content import VARIABLE
from tests.human import APPROVE
from tests.telemetry.traced import Traced, id_of, said

pytestmark = pytest.mark.anyio

SECRET = "sk-very-secret-4711"
TEXTS = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "input.value",
    "output.value",
)
SAID = {"gen_ai.input.messages", "gen_ai.output.messages", "input.value", "output.value"}
NAME = "openai:gpt-5-mini"


@kt.tool(side_effect="read")
async def look(at: str) -> str:
    """Look up the tide."""
    return f"high at {at}, {SECRET}"


def model() -> ScriptedModel:
    asks = kt.ModelResponse("", [ToolCall("call-1", "look", {"at": "noon"})], kt.Usage(10, 5))
    billing = Billing(cached_tokens=7, reasoning_tokens=3)
    answers = kt.ModelResponse("It is high.", usage=kt.Usage(20, 8), model="gpt-5-mini-2026-01-01", billing=billing)
    return ScriptedModel([asks, answers], name=NAME)


async def report(traced: Traced, **runtime: Any) -> kt.TeamResult:
    made = kt.Runtime(
        subscribers=[traced.subscriber, *runtime.pop("subscribers", ())],
        models={NAME: model()},
        prices={NAME: kt.Price(1, 2)},
        secrets=[SECRET],
        **runtime,
    )
    clerk = kt.MiniAgent(NAME, tools=[look], settings={"max_tokens": 50})
    plan = kt.TaskGraph([kt.Task("report", f"Report the tide, {SECRET}.")])
    request = kt.TeamExecutionRequest(f"Watch the sea, {SECRET}.", plan=plan, run_id="r")
    result = await kt.run(kt.Team("coast-guard", [kt.Member("clerk", clerk)]), request, runtime=made)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    return result


def texts(traced: Traced) -> dict[str, set[str]]:
    """The texts that spans have, by the name of the span."""
    return {span.name: found for span in traced.spans() if (found := set(said(span)) & set(TEXTS))}


def message(span: dict[str, Any], which: str, place: int = -1) -> Any:
    return json.loads(span[f"gen_ai.{which}.messages"])[place]


async def test_without_being_asked_no_text_is_written() -> None:
    traced = Traced()
    await report(traced)
    assert texts(traced) == {}


@pytest.mark.parametrize("mode", ["none", "events"])
async def test_the_argument_asks_for_texts_whatever_the_runtime_does(mode: Any) -> None:
    traced = Traced(capture_content=True)
    others: list[events.Event] = []
    await report(traced, content=mode, subscribers=[others.append])
    assert texts(traced) == {
        "invoke_workflow coast-guard": SAID,
        "task report": SAID,
        "invoke_agent clerk": SAID,
        "chat gpt-5-mini": set(TEXTS[:4]),
        "execute_tool look": set(TEXTS[4:6]),
    }
    assert any(isinstance(one, events.Content) for one in others) is (mode == "events"), "the others get what they got"
    assert [one.seq for one in others] == list(range(1, len(others) + 1))
    assert SECRET not in repr([said(span) for span in traced.spans()]), "secrets are masked"
    first, second = (said(span) for span in traced.spans() if span.name == "chat gpt-5-mini")
    call = {"type": "tool_call", "id": "call-1", "name": "look", "arguments": {"at": "noon"}}
    assert message(first, "output") == {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}
    answer = message(second, "output")
    assert answer == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "It is high."}],
        "finish_reason": "stop",
    }
    assert [one["type"] for one in json.loads(first["gen_ai.system_instructions"])] == ["text"]
    roles = [one["role"] for one in json.loads(second["gen_ai.input.messages"])]
    assert roles.index("assistant") < roles.index("tool")
    [definition] = json.loads(first["gen_ai.tool.definitions"])
    assert (definition["type"], definition["name"], definition["description"]) == (
        "function",
        "look",
        "Look up the tide.",
    )
    tool = said(traced.span("execute_tool look"))
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"at": "noon"}
    assert tool["gen_ai.tool.call.result"].startswith("high at noon, ")
    top = said(traced.span("invoke_workflow coast-guard"))
    assert message(top, "output")["parts"] == [{"type": "text", "content": "It is high."}]
    assert message(top, "input")["parts"][0]["content"].startswith("Watch the sea, ")
    attempt = said(traced.span("invoke_agent clerk"))
    assert message(attempt, "input")["parts"][0]["content"].startswith("Report the tide, ")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, False),
        ("", False),
        ("false", False),
        ("NO_CONTENT", False),
        ("true", True),
        ("True", True),
        ("SPAN_ONLY", True),
        ("span_and_event", True),
    ],
)
async def test_the_conventions_variable_asks_for_texts(
    value: str | None, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    traced, refused = Traced(), Traced(capture_content=False)
    await report(traced, subscribers=[refused.subscriber])
    assert bool(texts(traced)) is written
    assert texts(refused) == {}, "the argument counts before the variable"


@pytest.mark.parametrize("value", ["EVENT_ONLY", "yes"])
def test_another_value_of_it_is_told_and_writes_nothing(
    value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert not Traced().subscriber.reads_content
    assert f"{VARIABLE} is {value.lower()!r}, so no texts are written into spans: it may be 'FALSE', " in caplog.text


def test_the_argument_is_a_bool() -> None:
    with pytest.raises(ValueError, match=r"OpenTelemetry\.capture_content must be True or False or None, not 'yes'"):
        Traced(capture_content="yes")  # type: ignore[arg-type]  # what a caller without a type checker does


async def test_a_call_says_what_was_asked_and_what_came_without_any_text() -> None:
    traced = Traced()
    await report(traced)
    first, second = (said(span) for span in traced.spans() if span.name == "chat gpt-5-mini")
    assert (first["gen_ai.request.max_tokens"], first["gen_ai.response.finish_reasons"]) == (50, ("tool_call",))
    assert "gen_ai.response.model" not in first
    assert second["gen_ai.response.model"] == "gpt-5-mini-2026-01-01"
    assert second["gen_ai.response.finish_reasons"] == ("stop",)
    assert second["gen_ai.usage.cache_read.input_tokens"] == 7
    assert second["gen_ai.usage.reasoning.output_tokens"] == 3
    assert second["kairo.budget.used.dollars"] > 0
    assert said(traced.span("execute_tool look"))["gen_ai.tool.call.id"] == "call-1"


async def test_all_spans_of_a_run_and_of_the_runs_inside_it_are_one_conversation() -> None:
    traced = Traced()

    async def lead(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        inner = kt.Team("inner", [kt.Member("w", lambda _: "part")])
        await kt.run(inner, "inner goal", runtime=context.runtime)
        return "whole"

    request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph([kt.Task("one", "do")]), run_id="outer")
    await kt.run(kt.Team("t", [kt.Member("m", lead)]), request, runtime=kt.Runtime(subscribers=[traced.subscriber]))
    assert {said(span)["gen_ai.conversation.id"] for span in traced.spans()} == {"outer"}
    assert len({said(span)["kairo.run.id"] for span in traced.spans()}) == 2


async def test_a_task_is_a_span_around_its_attempts_reviews_and_waits() -> None:
    traced = Traced()

    class Slow:
        async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
            await anyio.sleep(5)
            return APPROVE

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await anyio.sleep(1)
        return "made"

    rubric = kt.Rubric([kt.Criterion("editor", "an editor agrees", by="human")])
    team = kt.Team("t", [kt.Member("m", work)], coordinator=ExpertTeamCoordinator(evaluator=rubric))
    plan = kt.TaskGraph([kt.Task("one", "do"), kt.Task("two", "do")])
    config = kt.TeamConfig(max_parallel_tasks=1)
    runtime = kt.Runtime(subscribers=[traced.subscriber], gate=Slow())
    result = await kt.run(team, kt.TeamExecutionRequest("go", plan=plan, config=config), runtime=runtime)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    top = "invoke_workflow t"
    assert traced.tree() == [
        top,
        f"{top} > task one",
        f"{top} > task one > evaluate one",
        f"{top} > task one > invoke_agent m",
        f"{top} > task one > wait for person",
        f"{top} > task two",
        f"{top} > task two > evaluate two",
        f"{top} > task two > invoke_agent m",
        f"{top} > task two > wait for person",
        f"{top} > task two > wait for slot",
    ]
    by_id = {id_of(span): span for span in traced.spans()}
    for span in traced.spans():
        if span.parent is not None:
            around = by_id[span.parent.span_id]
            assert (around.start_time or 0) <= (span.start_time or 0) <= (span.end_time or 0) <= (around.end_time or 0)
    task = said(traced.span("task one"))
    assert (task["kairo.status"], task["kairo.task.id"], task["kairo.budget.used.tokens"]) == ("completed", "one", 0)
    assert said(traced.span("wait for slot"))["kairo.waits_for"] == "slot"


async def test_a_reply_that_a_guardrail_keeps_ends_its_call_all_the_same() -> None:
    traced = Traced(capture_content=True)

    class Denies:
        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            is_reply = isinstance(context.payload, ModelOutput)
            return GuardrailDecision.deny("not for you") if is_reply else GuardrailDecision.allow()

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        request = kt.ModelRequest([kt.Message.user("Say it.")], max_tokens=20)
        return (await context.model("m:x").complete(request)).text

    models = {"m:x": FunctionModel(lambda _: f"the answer is {SECRET}", name="m:x")}
    runtime = kt.Runtime(subscribers=[traced.subscriber], models=models, guardrails=[Denies()])
    await kt.run(kt.Team("t", [kt.Member("m", work)]), "go", runtime=runtime)
    calls = [span for span in traced.spans() if span.name == "chat x"]
    assert calls
    assert all("gen_ai.output.messages" not in said(span) for span in calls)
    assert not traced.subscriber._spans._traces


async def test_a_reader_that_raises_gets_no_more_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    traced = Traced()

    class Broken:
        reads_content = True
        read_once = 0

        def __call__(self, event: events.Event) -> None:
            assert not isinstance(event, events.Content)

        def read(self, event: events.Content) -> None:
            self.read_once += 1
            raise ValueError("no ink")

    broken = Broken()
    await report(traced, subscribers=[broken])
    assert broken.read_once == 1
    assert "raised and reads no more texts" in caplog.text
