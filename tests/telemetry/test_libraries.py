"""Spans of other libraries are in ours, and none is there twice."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: it is in the test group")

import kairo_team as kt
from tests.telemetry.receiving import serving
from tests.telemetry.traced import Traced, said, trace_of

TASK = "invoke_workflow t > task one"
ATTEMPT = f"{TASK} > invoke_agent m"


@pytest.fixture
def traced() -> Traced:
    return Traced()


async def run(traced: Traced, agent: Any) -> kt.TeamResult:
    plan = kt.TaskGraph([kt.Task("one", "Do one.")])
    runtime = kt.Runtime(subscribers=[traced.subscriber])
    return await kt.run(kt.Team("t", [kt.Member("m", agent)]), "go", plan=plan, runtime=runtime)


@pytest.mark.real_time
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_pydantic_ais_spans_are_in_the_attempt_and_are_not_doubled(traced: Traced, anyio_backend: str) -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    from pydantic_ai import Agent, InstrumentationSettings
    from pydantic_ai.capabilities import Instrumentation
    from pydantic_ai.models.test import TestModel

    from kairo_team.agents import PydanticAIAgent

    settings = InstrumentationSettings(
        tracer_provider=traced.tracer_provider, meter_provider=traced.meter_provider, include_content=False
    )
    agent = Agent(TestModel(), name="inner", capabilities=[Instrumentation(settings=settings)])

    @agent.tool_plain(metadata={"side_effect": "read"})
    def look() -> str:
        return "seen"

    result = await run(traced, PydanticAIAgent(agent))
    assert result.status is kt.TeamStatus.COMPLETED
    inner = f"{ATTEMPT} > invoke_agent inner"
    assert traced.tree() == [
        "invoke_workflow t",
        TASK,
        ATTEMPT,
        inner,
        f"{inner} > chat test",
        f"{inner} > chat test",
        f"{inner} > execute_tool look",
    ]
    chats = [said(span) for span in traced.spans() if span.name == "chat test"]
    assert all(chat["kairo.outcome"] == "ok" and chat["kairo.budget.held.tokens"] > 0 for chat in chats)
    assert said(traced.span("execute_tool look"))["kairo.outcome"] == "ok"
    assert sum(point.sum for point in traced.points("gen_ai.client.token.usage")) == result.usage.tokens


@pytest.mark.real_time
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_pydantic_ai_without_instrumentation_has_our_spans(traced: Traced, anyio_backend: str) -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    from kairo_team.agents import PydanticAIAgent

    agent = Agent(TestModel(), name="inner")

    @agent.tool_plain(metadata={"side_effect": "read"})
    def look() -> str:
        return "seen"

    await run(traced, PydanticAIAgent(agent))
    assert traced.tree() == [
        "invoke_workflow t",
        TASK,
        ATTEMPT,
        f"{ATTEMPT} > chat test",
        f"{ATTEMPT} > chat test",
        f"{ATTEMPT} > execute_tool look",
    ]


@pytest.mark.real_time
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_spans_in_the_nodes_of_a_langgraph_are_in_the_attempt(traced: Traced, anyio_backend: str) -> None:
    pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]

    from kairo_team.agents import LangGraphAgent

    async def node(state: MessagesState) -> dict[str, Any]:
        with traced.tracer.start_as_current_span("in an async node"):
            return {}

    def in_a_thread(state: MessagesState) -> dict[str, Any]:
        with traced.tracer.start_as_current_span("in a thread's node"):
            return {"messages": [AIMessage("text")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("one", node)
    graph.add_node("two", in_a_thread)
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    graph.add_edge("two", END)
    result = await run(traced, LangGraphAgent(graph.compile()))
    assert result.status is kt.TeamStatus.COMPLETED
    assert traced.tree() == [
        "invoke_workflow t",
        TASK,
        ATTEMPT,
        f"{ATTEMPT} > in a thread's node",
        f"{ATTEMPT} > in an async node",
    ]


@pytest.mark.real_time
@pytest.mark.anyio
async def test_a_request_of_httpx_is_in_the_attempt_and_carries_its_trace(traced: Traced) -> None:
    httpx = pytest.importorskip("httpx", reason="httpx is not installed: the extra `models` brings it")
    instrumentation = pytest.importorskip(
        "opentelemetry.instrumentation.httpx", reason="opentelemetry-instrumentation-httpx is not installed"
    )
    received: list[tuple[str, Any, bytes]] = []

    with serving(received) as address:

        async def agent(assignment: kt.Assignment) -> str:
            async with httpx.AsyncClient() as client:
                instrumentation.HTTPXClientInstrumentor.instrument_client(client, traced.tracer_provider)
                await client.get(f"{address}/page")
            return "text"

        await run(traced, agent)
    assert traced.tree() == ["invoke_workflow t", TASK, ATTEMPT, f"{ATTEMPT} > GET"]
    [(_, headers, _)] = received
    assert f"{trace_of(traced.span('invoke_workflow t')):032x}" in headers["traceparent"]


@pytest.mark.real_time
@pytest.mark.anyio
async def test_an_otlp_receiver_gets_the_spans(traced: Traced) -> None:
    otlp = pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        reason="opentelemetry-exporter-otlp-proto-http is not installed: it is in the test group",
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    received: list[tuple[str, Any, bytes]] = []

    async def agent(assignment: kt.Assignment) -> str:
        return "text"

    with serving(received) as address:
        exporter = otlp.OTLPSpanExporter(f"{address}/v1/traces", compression=otlp.Compression.NoCompression)
        traced.tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
        await run(traced, agent)
        traced.tracer_provider.shutdown()
    assert {path for path, _, _ in received} == {"/v1/traces"}
    requests = [ExportTraceServiceRequest.FromString(body) for _, _, body in received]
    scopes = [scope for one in requests for resource in one.resource_spans for scope in resource.scope_spans]
    assert {scope.scope.name for scope in scopes} == {"kairo_team"}
    made = ["invoke_agent m", "invoke_workflow t", "task one"]
    assert sorted(span.name for scope in scopes for span in scope.spans) == made
