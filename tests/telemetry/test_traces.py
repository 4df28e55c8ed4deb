"""Traces, metrics and events of runs, as OpenTelemetry's SDK gets them."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.errors import MissingExtra, ModelCallError
from kairo_team.messages import Billing
from kairo_team.permissions import PermissionDecision, SideEffect
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.human import APPROVE, LeavesOpen
from tests.telemetry.traced import Traced, id_of, said, trace_of

from opentelemetry import trace  # isort: skip  # after the test of whether the SDK is there
from opentelemetry.trace import StatusCode  # isort: skip

pytestmark = pytest.mark.anyio


@pytest.fixture
def traced() -> Traced:
    return Traced()


def ask(text: str) -> kt.ModelRequest:
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=20)


async def run(
    traced: Traced,
    *members: kt.Member,
    plan: kt.TaskGraph | None = None,
    runtime: dict[str, Any] | None = None,
    **options: Any,
) -> kt.TeamResult:
    made = kt.Runtime(subscribers=[traced.subscriber], **(runtime or {}))
    plan = plan or kt.TaskGraph([kt.Task("one", "Do one.")])
    team = kt.Team("t", members, **options.pop("team", {}))
    config = options.pop("config", None) or kt.TeamConfig()
    request = kt.TeamExecutionRequest("the goal", plan=plan, run_id="r", config=config)
    return await kt.run(team, request, runtime=made, **options)


async def writes(assignment: kt.Assignment) -> str:
    return f"text {assignment.attempt}"


class Judge:
    models = ("openai:judge",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        await context.context.model("openai:judge").complete(ask(f"judge {context.attempt}"))
        return kt.EvaluationVerdict.revise("again") if context.attempt == 1 else kt.EvaluationVerdict.passed(0.9)


@kt.tool(side_effect="read")
async def look(at: str) -> str:
    """Look."""
    await anyio.sleep(3)
    return "seen"


async def test_a_run_is_a_tree_of_spans(traced: Traced) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await context.tool(look)(at="sea")
        return (await context.model("openai:writer").complete(ask(f"do {assignment.attempt}"))).text

    writer = FunctionModel(lambda asked: f"text: {asked.messages[-1].text}", name="openai:writer")
    models = {"openai:writer": writer, "openai:judge": FunctionModel(lambda _: "well", name="openai:judge")}
    coordinator = ExpertTeamCoordinator(evaluator=Judge())
    result = await run(traced, kt.Member("m", agent), runtime={"models": models}, coordinator=coordinator)
    assert result.status == "completed"
    top, task = "invoke_workflow t", "invoke_workflow t > task one"
    attempt = f"{task} > invoke_agent m"
    assert Counter(traced.tree()) == {
        top: 1,
        task: 1,
        attempt: 2,
        f"{attempt} > chat writer": 2,
        f"{attempt} > execute_tool look": 2,
        f"{task} > evaluate one": 2,
        f"{task} > evaluate one > chat judge": 2,
    }
    first, second = (said(span) for span in traced.spans() if span.name == "invoke_agent m")
    assert (first["kairo.attempt"], first["kairo.round"]) == (1, 1)
    assert (second["kairo.attempt"], second["kairo.round"]) == (2, 2)
    assert [said(span)["kairo.verdict"] for span in traced.spans() if span.name == "evaluate one"] == ["revise", "pass"]
    whole = said(traced.span(top))
    assert whole["kairo.status"] == "completed"
    assert whole["kairo.budget.used.tokens"] == result.usage.tokens
    chat = said(next(span for span in traced.spans() if span.name == "chat judge"))
    assert chat["gen_ai.provider.name"] == "openai"
    assert chat["kairo.purpose"] == "evaluate"
    assert chat["gen_ai.usage.input_tokens"] + chat["gen_ai.usage.output_tokens"] == chat["kairo.budget.used.tokens"]
    assert not any(span.status.status_code is StatusCode.ERROR for span in traced.spans())


async def test_a_span_has_the_shares_of_cache_and_reasoning_where_there_are_any(traced: Traced) -> None:
    shares = {"gen_ai.usage.cache_read.input_tokens": 70, "gen_ai.usage.reasoning.output_tokens": 1204}
    for billing, wanted in ((Billing(cached_tokens=70, reasoning_tokens=1204), shares), (Billing(), {})):
        reply = kt.ModelResponse("Tides.", usage=kt.Usage(100, 1300), billing=billing)
        await run(traced, kt.Member("m", kt.MiniAgent(ScriptedModel([reply]))))
        about = said([span for span in traced.spans() if span.name.startswith("chat")][-1])
        assert {name: about[name] for name in shares if name in about} == wanted
        assert (about["gen_ai.usage.input_tokens"], about["gen_ai.usage.output_tokens"]) == (100, 1300)


async def test_a_review_is_the_conventions_event_in_the_span_of_what_was_reviewed(traced: Traced) -> None:
    models = {"openai:judge": FunctionModel(lambda _: "well", name="openai:judge")}
    coordinator = ExpertTeamCoordinator(evaluator=Judge())
    member = kt.Member("m", writes)
    await run(traced, member, runtime={"models": models}, coordinator=coordinator)
    first, second = traced.events()
    assert first.event_name == "gen_ai.evaluation.result"
    assert dict(first.attributes)["gen_ai.evaluation.score.label"] == "revise"
    assert dict(second.attributes)["gen_ai.evaluation.score.value"] == 0.9
    attempts = [id_of(span) for span in traced.spans() if span.name == "invoke_agent m"]
    assert [one.span_id for one in (first, second)] == attempts


@pytest.mark.real_time
async def test_spans_of_others_belong_to_the_work_they_are_made_in(traced: Traced) -> None:
    def answer(_: kt.ModelRequest) -> str:
        with traced.tracer.start_as_current_span("POST"):
            return "text"

    @kt.tool(side_effect="read")
    def read(at: str) -> str:
        """Read, in a thread."""
        with traced.tracer.start_as_current_span("GET"):
            return "read"

    def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        assert threading.current_thread() is not threading.main_thread()
        with traced.tracer.start_as_current_span("own step"):
            return "text"

    async def other(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        with traced.tracer.start_as_current_span("own step"):
            await context.model("m:x").complete(ask("do"))
            await context.tool(read)(at="sea")
        return "text"

    models = {"m:x": FunctionModel(answer, name="m:x")}
    plan = kt.TaskGraph([kt.Task("one", "Do.", member="sync"), kt.Task("two", "Do.", member="async")])
    await run(
        traced,
        kt.Member("sync", agent),
        kt.Member("async", other),
        plan=plan,
        runtime={"models": models},
    )
    in_two = "invoke_workflow t > task two > invoke_agent async > own step"
    assert traced.tree() == sorted(
        [
            "invoke_workflow t",
            "invoke_workflow t > task one",
            "invoke_workflow t > task one > invoke_agent sync",
            "invoke_workflow t > task one > invoke_agent sync > own step",
            "invoke_workflow t > task two",
            "invoke_workflow t > task two > invoke_agent async",
            in_two,
            f"{in_two} > chat x",
            f"{in_two} > chat x > POST",
            f"{in_two} > execute_tool read",
            f"{in_two} > execute_tool read > GET",
        ]
    )


async def test_tasks_at_the_same_time_do_not_mix(traced: Traced) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        task = assignment.task.id
        for step in range(3):
            await anyio.sleep(0.5)
            with traced.tracer.start_as_current_span(f"step of {task}"):
                await context.model("m:x").complete(ask(f"{task} {step}"))
        return "text"

    async def answer(request: kt.ModelRequest) -> str:
        await anyio.sleep(1)
        return "text"

    tasks = [kt.Task(f"t{number}", "Do.") for number in range(8)]
    member = kt.Member("m", agent, max_concurrency=8)
    await run(traced, member, plan=kt.TaskGraph(tasks), runtime={"models": {"m:x": FunctionModel(answer, name="m:x")}})
    by_id = {id_of(span): span for span in traced.spans()}
    steps = [span for span in traced.spans() if span.name.startswith("step of")]
    assert len(steps) == 24
    for step in steps:
        assert step.parent is not None
        assert said(by_id[step.parent.span_id])["kairo.task.id"] == step.name.removeprefix("step of ")
    for call in (span for span in traced.spans() if span.name == "chat x"):
        assert call.parent is not None
        assert by_id[call.parent.span_id].name == f"step of {said(call)['kairo.task.id']}"


async def test_a_mini_agent_has_its_calls_in_its_attempt(traced: Traced) -> None:
    call = kt.ModelResponse("", tool_calls=[kt.ToolCall("1", "look", {"at": "sea"})])
    model = ScriptedModel([call, "done"], name="m:x")
    member = kt.Member("m", kt.MiniAgent("m:x", tools=[look]))
    await run(traced, member, runtime={"models": {"m:x": model}})
    task = "invoke_workflow t > task one"
    attempt = f"{task} > invoke_agent m"
    assert [one for one in traced.tree() if one.startswith(f"{attempt} >")] == [
        f"{attempt} > chat x",
        f"{attempt} > chat x",
        f"{attempt} > execute_tool look",
    ]


async def test_a_team_inside_a_task_is_a_workflow_in_its_attempt(traced: Traced) -> None:
    inner = kt.Team("inner", [kt.Member("worker", writes)])

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        plan = kt.TaskGraph([kt.Task("part", "Do a part.")])
        done = await kt.run(inner, "inner goal", plan=plan, runtime=context.runtime)
        assert done.status == "completed"
        return "text"

    await run(traced, kt.Member("m", agent))
    path = "invoke_workflow t > task one > invoke_agent m > invoke_workflow inner"
    assert {path, f"{path} > task part > invoke_agent worker"} < set(traced.tree())


async def test_a_run_belongs_to_the_span_of_its_caller(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("request") as request:
        await run(traced, kt.Member("m", writes))
        assert trace.get_current_span() is request
    assert traced.tree()[0:2] == ["request", "request > invoke_workflow t"]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_tools_outside_attempts_have_spans_too_also_at_the_same_time(traced: Traced) -> None:
    class Plan:
        async def plan(
            self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext
        ) -> kt.TaskGraph:
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(lambda: context.tool(look)(at="sea"))
            return kt.TaskGraph([kt.Task("one", "Do one.")])

    runtime = kt.Runtime(subscribers=[traced.subscriber])
    coordinator = ExpertTeamCoordinator(planner=Plan())
    await kt.run(kt.Team("t", [kt.Member("m", writes)]), "go", runtime=runtime, coordinator=coordinator)
    assert Counter(traced.tree())["invoke_workflow t > execute_tool look"] == 3


# ---------------------------------------------------------------- what goes wrong


async def test_what_an_agent_raises_is_recorded_without_secrets_or_a_traceback(traced: Traced) -> None:
    async def agent(assignment: kt.Assignment) -> str:
        raise LookupError("no page for token-1")

    await run(traced, kt.Member("m", agent), runtime={"secrets": ["token-1"]}, config=None)
    span = next(span for span in traced.spans() if span.name == "invoke_agent m")
    assert span.status.status_code is StatusCode.ERROR
    assert "no page for [secret]" in (span.status.description or "")
    assert said(span)["error.type"] == "LookupError"
    [recorded] = span.events
    assert recorded.name == "exception"
    assert dict(recorded.attributes or {})["exception.type"] == "LookupError"
    assert traced.span("invoke_workflow t").status.status_code is StatusCode.ERROR
    assert all("token-1" not in span.to_json() for span in traced.spans())


async def test_every_try_of_a_call_is_a_span_and_a_failed_one_says_why(traced: Traced) -> None:
    model = ScriptedModel([ModelCallError("rate_limited", "m:x", "later, says token-1"), "yes"], name="m:x")

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model("m:x").complete(ask("do"))).text

    runtime = {"models": {"m:x": model}, "secrets": ["token-1"], "model_retry": kt.ModelRetry(backoff=1)}
    await run(traced, kt.Member("m", agent), runtime=runtime)
    failed, made = (span for span in traced.spans() if span.name == "chat x")
    assert (said(failed)["kairo.call.try"], said(made)["kairo.call.try"]) == (1, 2)
    assert said(failed)["error.type"] == "kairo_team.errors.ModelCallError"
    assert "later, says [secret]" in (failed.status.description or "")
    assert "gen_ai.usage.input_tokens" not in said(failed)
    assert made.status.status_code is StatusCode.UNSET


async def test_a_halt_and_the_budget_are_on_the_attempt(traced: Traced) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        while True:
            await context.model("m:x").complete(ask("more"))

    budget = kt.Budget(tokens=2000)
    model = FunctionModel(lambda _: "word " * 10, name="m:x")
    await run(traced, kt.Member("m", agent), runtime={"models": {"m:x": model}}, config=kt.TeamConfig(budget=budget))
    about = said(traced.span("invoke_agent m"))
    assert about["kairo.halt.reason"] == "token_budget_exceeded"
    assert 0 < about["kairo.budget.used.tokens"] <= 2000
    assert about["kairo.budget.guaranteed.tokens"] > 0
    assert all(said(span)["kairo.budget.held.tokens"] > 0 for span in traced.spans() if span.name == "chat x")
    [share] = traced.points("kairo.budget.used")
    assert share.sum > 0


async def test_a_refused_tool_is_a_point_in_the_attempt(traced: Traced) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(look)(at="sea")).text

    permissions = kt.ToolPermissions(guard=Never())
    await run(traced, kt.Member("m", agent), team={"permissions": permissions})
    [refused] = traced.span("invoke_agent m").events
    assert refused.name == "kairo.tool.refused"
    assert dict(refused.attributes or {}) == {"gen_ai.tool.name": "look", "kairo.refused_by": "never"}


class Never:
    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        return PermissionDecision("deny", "no", "never")


async def test_a_run_that_is_cut_leaves_no_span_open_and_none_current(traced: Traced) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await context.model("m:x").complete(ask("do"))
        return "never"

    async def hang(request: kt.ModelRequest) -> str:
        await anyio.sleep_forever()
        return "never"

    model = FunctionModel(hang, name="m:x")
    with contextlib.suppress(TimeoutError), anyio.fail_after(5):
        await run(traced, kt.Member("m", agent), runtime={"models": {"m:x": model}})
    task = "invoke_workflow t > task one"
    attempt = f"{task} > invoke_agent m"
    assert traced.tree() == ["invoke_workflow t", task, attempt, f"{attempt} > chat x"]
    assert said(traced.span("invoke_workflow t"))["kairo.status"] == "cancelled"
    assert not trace.get_current_span().get_span_context().is_valid
    assert not traced.subscriber._spans._traces


async def test_a_resumed_run_is_a_new_trace_with_a_link_to_the_first(traced: Traced) -> None:
    runtime = kt.Runtime(subscribers=[traced.subscriber])
    member = kt.Member("m", writes)
    coordinator = ExpertTeamCoordinator(evaluator=LeavesOpen("one"))
    team = kt.Team("t", [member], runtime=runtime)
    plan = kt.TaskGraph([kt.Task("one", "Do one.")])
    request = kt.TeamExecutionRequest("go", plan=plan, run_id="r")
    coordinator = ExpertTeamCoordinator(evaluator=LeavesOpen("one"), gate=kt.DeferGate())
    assert (await kt.run(team, request, coordinator=coordinator)).status == "suspended"
    for question in runtime.pending("r"):
        runtime.answer(question.id, APPROVE)
    assert (await runtime.resume("r", team, coordinator=coordinator)).status == "completed"
    first, second = (span for span in traced.spans() if span.name == "invoke_workflow t")
    assert trace_of(first) != trace_of(second)
    assert [link.context.span_id for link in second.links] == [id_of(first)]
    asked, decided = (span for span in traced.spans() if span.name == "task one")
    assert (said(asked)["kairo.status"], said(decided)["kairo.status"]) == ("suspended", "completed")
    assert [one.name for one in asked.events] == [
        "kairo.task.escalated",
        "kairo.human.requested",
        "kairo.human.decided",
    ]
    assert first.status.status_code is StatusCode.UNSET


# ---------------------------------------------------------------- numbers, and what is not said


async def test_tokens_seconds_and_dollars_are_measured(traced: Traced) -> None:
    async def answer(request: kt.ModelRequest) -> str:
        await anyio.sleep(2)
        return "a few words"

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model("openai:x").complete(ask("do"))).text

    runtime = {"models": {"openai:x": FunctionModel(answer, name="openai:x", dollars_per_token="0.001")}}
    result = await run(traced, kt.Member("m", agent), runtime=runtime)
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in traced.points("gen_ai.client.token.usage")}
    assert tokens == {"input": result.usage.prompt_tokens, "output": result.usage.completion_tokens}
    [seconds] = traced.points("gen_ai.client.operation.duration")
    assert seconds.sum == 2.0
    [dollars] = traced.points("kairo.cost")
    assert Decimal(str(dollars.value)) == result.usage.dollars
    assert dollars.attributes["gen_ai.agent.name"] == "m"


async def test_no_text_of_the_work_is_written(traced: Traced) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await context.tool(look)(at="a private argument")
        return (await context.model("m:x").complete(ask("a private prompt"))).text

    runtime = {"models": {"m:x": FunctionModel(lambda _: "a private reply")}, "content": "events"}
    plan = kt.TaskGraph([kt.Task("one", "a private task")])
    await run(traced, kt.Member("m", agent), plan=plan, runtime=runtime)
    written = "".join(span.to_json() for span in traced.spans())
    assert "private" not in written
    assert "the goal" not in written


async def test_a_second_span_is_not_made_for_a_call_that_has_one(traced: Traced) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        about = {"gen_ai.operation.name": "chat"}
        with traced.tracer.start_as_current_span("chat of a library", attributes=about):
            await context.model("m:x").complete(ask("do"))
        about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
        with traced.tracer.start_as_current_span("tool of a library", attributes=about):
            await context.tool(look)(at="sea")
        return "text"

    await run(traced, kt.Member("m", agent), runtime={"models": {"m:x": FunctionModel(lambda _: "text", name="m:x")}})
    task = "invoke_workflow t > task one"
    attempt = f"{task} > invoke_agent m"
    assert traced.tree() == [
        "invoke_workflow t",
        task,
        attempt,
        f"{attempt} > chat of a library",
        f"{attempt} > tool of a library",
    ]
    chat = said(traced.span("chat of a library"))
    assert chat["kairo.budget.held.tokens"] > 0
    assert chat["kairo.outcome"] == said(traced.span("tool of a library"))["kairo.outcome"] == "ok"
    assert not traced.points("gen_ai.client.token.usage")


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kairo_team.views.telemetry_spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"OpenTelemetry needs the extra 'otel': pip install"):
        kt.OpenTelemetry()


def test_what_it_does_not_take_is_named() -> None:
    with pytest.raises(TypeError, match="tracer_provider"):
        kt.OpenTelemetry(tracer=None)  # type: ignore[call-arg]  # a wrong name
