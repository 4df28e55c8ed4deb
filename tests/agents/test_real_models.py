"""Real clients behind wrapped agents: none is reached where they are forbidden, and who tries again is the governor."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")
pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
pytest.importorskip("langchain_openai", reason="the library is not installed")
pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from langchain_openai import ChatOpenAI
from openai import APIStatusError, AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider

import kairo_team as kt
from kairo_team.agents.langgraph import LangGraphAgent, governed
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.testing import forbid_real_models
from kairo_team.testing.clocks import Backend
from tests.agents.langgraph_double import asking, graph_of
from tests.agents.stage import Stage

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]
Answer = Callable[[httpx2.Request], httpx2.Response]
URL = "http://localhost/v1"


@pytest.fixture
def anyio_backend() -> Backend:
    """The libraries run on asyncio alone."""
    return "asyncio", {}


def transport(answer: Answer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def client(answer: Answer) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="none", base_url=URL, http_client=transport(answer))


def of_openai(answer: Answer) -> OpenAIAgent:
    return OpenAIAgent(Agent("a", model=OpenAIChatCompletionsModel("m", client(answer))))


def of_pydantic_ai(answer: Answer) -> PydanticAIAgent:
    provider = OpenAIProvider(openai_client=client(answer))
    return PydanticAIAgent(PydanticAgent(WrapperModel(OpenAIChatModel("m", provider=provider))))


def chat(answer: Answer) -> ChatOpenAI:
    return ChatOpenAI(
        model="m", api_key=SecretStr("none"), base_url=URL, max_retries=0, http_async_client=transport(answer)
    )


def of_langgraph(answer: Answer) -> LangGraphAgent:
    return LangGraphAgent(graph_of(asking(governed(chat(answer)))))


def of_langgraph_followed(answer: Answer) -> LangGraphAgent:
    return LangGraphAgent(graph_of(asking(chat(answer))))


GOVERNED = [of_openai, of_pydantic_ai, of_langgraph]


@pytest.mark.parametrize("make", [*GOVERNED, of_langgraph_followed])
async def test_where_real_models_are_forbidden_no_wrapped_agent_reaches_one(make: Any) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(500)

    stage = Stage(make(answer))
    with forbid_real_models():
        result = await stage.run(kt.Budget(tokens=20_000))
    assert asked == []
    assert "real models are forbidden here" in (result.outcomes[0].error or "")
    assert result.usage.tokens == 0


@pytest.mark.parametrize(("status", "tries", "charged"), [(429, 3, False), (500, 3, True), (400, 1, False)])
@pytest.mark.parametrize("make", GOVERNED)
async def test_kf_b13_a_call_is_tried_again_by_the_governed_model_alone_and_each_try_is_told(
    make: Any, status: int, tries: int, charged: bool
) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(status, json={"error": {"message": "later"}}, headers={"retry-after-ms": "1"})

    stage = Stage(make(answer), runtime={"model_retry": kt.ModelRetry(backoff=0.0)})
    result = await stage.run(kt.Budget(tokens=100_000))
    assert len(asked) == tries == stage.recorder.types.count("model.called")
    assert (result.usage.tokens > 0) is charged
    assert isinstance(stage.raised[0], APIStatusError | ModelHTTPError), "nodes and policies know the library's own"


@pytest.mark.parametrize("make", GOVERNED)
async def test_what_a_provider_says_of_a_call_is_what_is_booked(make: Any) -> None:
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
        usage = {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 25}
        reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return httpx2.Response(200, json=reply | {"usage": usage})

    result = await Stage(make(answer)).run(kt.Budget(tokens=600))
    assert (result.output, result.usage.prompt_tokens, result.usage.completion_tokens) == ("hello", 21, 4)
    assert (sent[0].get("max_tokens") or sent[0]["max_completion_tokens"]) < 600


# ---------------------------------------------------------------- why a reply ended


def completion(finish: str, **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **message}}
    usage = {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 25}
    reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return reply | {"usage": usage}


def one_after_the_other(*bodies: Any) -> tuple[Answer, list[Any]]:
    """A server's answers, a text as a stream of events, and what it was asked."""
    asked: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(json.loads(request.content))
        body = bodies[min(len(asked), len(bodies)) - 1]
        if isinstance(body, str):
            return httpx2.Response(200, content=body.encode(), headers={"content-type": "text/event-stream"})
        return httpx2.Response(200, json=body)

    return answer, asked


@pytest.mark.parametrize("make", GOVERNED)
async def test_third_o34_a_text_that_the_provider_says_was_cut_off_is_partial(make: Any) -> None:
    answer, _ = one_after_the_other(completion("length", content="half"))
    stage = Stage(make(answer))
    result = await stage.run(kt.Budget(tokens=100_000))
    assert stage.output.artifact == kt.Artifact("half", partial=True)
    assert result.status is kt.TeamStatus.DEGRADED


@pytest.mark.parametrize("message", [{"content": "half"}, {"refusal": "I will not."}])
@pytest.mark.parametrize("make", GOVERNED)
async def test_third_o36_an_agent_of_another_library_whose_model_refused_is_blocked_with_its_words(
    make: Any, message: Any
) -> None:
    (words,) = message.values()
    answer, asked = one_after_the_other(completion("content_filter" if "content" in message else "stop", **message))
    result = await Stage(make(answer)).run(kt.Budget(tokens=100_000))
    assert result.status is kt.TeamStatus.FAILED
    assert str(result.outcomes[0].error).endswith(f"the provider's filter cut off or refused the reply: {words}")
    assert len(asked) == 1, "the same model refuses it again"


CALL = {"id": "c1", "type": "function", "function": {"name": "save", "arguments": '{"text": ""}'}}


def streamed(reply: dict[str, Any]) -> str:
    """A reply of the chat interface as a stream."""
    (choice,) = reply["choices"]
    delta = {**choice["message"]}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{**call, "index": number} for number, call in enumerate(delta["tool_calls"])]
    head = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    pieces: list[Any] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**head, "choices": [], "usage": reply["usage"]},
    ]
    return "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"


def of_chat(answer: Answer) -> Any:
    return OpenAIChatCompletionsModel("m", client(answer))


@pytest.mark.parametrize(("finish", "why"), [("length", "4 tokens"), ("content_filter", "filter")])
async def test_third_o34_the_agents_librarys_own_model_tells_what_cut_a_call(finish: str, why: str) -> None:
    """The library keeps no finish reason: the provider's own word decides."""
    saved: list[str] = []

    @function_tool
    def save(text: str) -> str:
        """Save a text."""
        saved.append(text)
        return "saved"

    answer, asked = one_after_the_other(completion(finish, tool_calls=[CALL]), completion("stop", content="done"))
    result = await Stage(OpenAIAgent(Agent("a", model=of_chat(answer), tools=[save]))).run(kt.Budget(tokens=100_000))
    assert (saved, result.output) == ([], "done")
    assert why in json.dumps(asked[1])


async def test_third_o34_a_streamed_call_that_was_cut_off_is_not_made_either() -> None:
    saved: list[str] = []

    @function_tool
    def save(text: str) -> str:
        """Save a text."""
        saved.append(text)
        return "saved"

    replies = completion("length", tool_calls=[CALL]), completion("stop", content="inner")
    answer, _ = one_after_the_other(*map(streamed, replies))
    inner = Agent("inner", model=of_chat(answer), tools=[save])
    outer, _ = one_after_the_other(
        completion("tool_calls", tool_calls=[{**CALL, "function": {"name": "ask", "arguments": "{}"}}]),
        completion("stop", content="done"),
    )

    @function_tool
    async def ask() -> str:
        """Ask another agent."""
        streaming = Runner.run_streamed(inner, "Save it.")
        async for _ in streaming.stream_events():
            pass
        return str(streaming.final_output)

    result = await Stage(OpenAIAgent(Agent("a", model=of_chat(outer), tools=[ask]))).run(kt.Budget(tokens=100_000))
    assert (saved, result.output) == ([], "done")


async def test_third_o42_a_governed_model_that_streams_by_itself_answers_in_one_piece() -> None:
    """LangChain's integration would pass `stream` on, and cannot read a stream there."""
    answer, asked = one_after_the_other(completion("stop", content="hello"))
    model = governed(chat(answer).model_copy(update={"streaming": True}))
    result = await Stage(LangGraphAgent(graph_of(asking(model)))).run(kt.Budget(tokens=100_000))
    assert result.output == "hello"
    assert not asked[0].get("stream")


@pytest.mark.parametrize(("code", "tries"), [(429, 2), ("503", 2), (400, 1), ("context_length_exceeded", 1)])
@pytest.mark.parametrize("make", [of_openai, of_langgraph])
async def test_third_o42_an_error_under_status_200_is_read_for_wrapped_agents_too(
    make: Any, code: Any, tries: int
) -> None:
    answer, asked = one_after_the_other(
        {"error": {"message": "We are busy.", "code": code}}, completion("stop", content="fine")
    )
    stage = Stage(make(answer), runtime={"model_retry": kt.ModelRetry(backoff=0.0)})
    result = await stage.run(kt.Budget(tokens=100_000))
    assert len(asked) == tries
    assert result.output == "fine" if tries > 1 else "We are busy." in str(result.error)
