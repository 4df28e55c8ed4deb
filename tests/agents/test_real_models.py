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

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from langchain_openai import ChatOpenAI
from openai import APIStatusError, AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider

import kairo_team as kt
from kairo_team.agents.langgraph import LangGraphAgent, governed, governed_tool_call
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.models.providers import ProviderModel
from kairo_team.testing import forbid_real_models
from kairo_team.testing.clocks import Backend
from tests.agents.langgraph_double import asking, graph_of
from tests.agents.rig_langgraph import graph_of as tool_graph_of
from tests.agents.stage import Counter, Stage

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


def of_langgraph_streamed(answer: Answer) -> LangGraphAgent:
    return LangGraphAgent(graph_of(asking(chat(answer).model_copy(update={"streaming": True}))))


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


EXTRA: dict[str, Any] = {"max_completion_tokens": 99_999, "max_tokens": 99_999.0, "n": 3, "top_k": 7}
"""Fields that go to the provider as they are, over those of the client."""


def mini_with_more(answer: Answer) -> kt.MiniAgent:
    provider = OpenAIProvider(openai_client=client(answer))
    model = ProviderModel("openai:m", OpenAIChatModel("m", provider=provider))
    return kt.MiniAgent(model, settings={"extra_body": EXTRA})


def pydantic_ai_with_more(answer: Answer) -> PydanticAIAgent:
    model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client(answer)))
    return PydanticAIAgent(PydanticAgent(model, model_settings={"extra_body": EXTRA}))


def openai_with_more(answer: Answer) -> OpenAIAgent:
    model = OpenAIChatCompletionsModel("m", client(answer))
    return OpenAIAgent(Agent("a", model=model, model_settings=ModelSettings(extra_body=EXTRA)))


def langgraph_with_more(answer: Answer) -> LangGraphAgent:
    model = chat(answer).model_copy(update={"extra_body": EXTRA, "n": 3, "model_kwargs": {"max_tokens": 99_999}})
    return LangGraphAgent(graph_of(asking(governed(model))))


def langgraph_with_more_in_the_call(answer: Answer) -> LangGraphAgent:
    async def node(state: Any) -> Any:
        return {"messages": [await governed(chat(answer)).ainvoke(state["messages"], n=3, extra_body=EXTRA)]}

    return LangGraphAgent(graph_of(node))


@pytest.mark.parametrize(
    "make",
    [
        mini_with_more,
        pydantic_ai_with_more,
        openai_with_more,
        langgraph_with_more,
        langgraph_with_more_in_the_call,
    ],
)
async def test_no_extra_field_brings_a_longer_reply_or_several(make: Any) -> None:
    answer, asked = one_after_the_other(completion("stop", content="hello"))
    result = await Stage(make(answer)).run(kt.Budget(tokens=600))
    assert result.output == "hello"
    (sent,) = asked
    limits = [sent[name] for name in ("max_tokens", "max_completion_tokens") if sent.get(name) is not None]
    assert 0 < max(limits) < 600
    assert (sent.get("n", 1), sent["top_k"]) == (1, 7)


async def test_several_replies_that_only_a_graph_can_ask_for_are_held() -> None:
    answer, asked = one_after_the_other(completion("stop", content="hello"))

    def make(copies: int) -> LangGraphAgent:
        return LangGraphAgent(graph_of(asking(chat(answer).model_copy(update={"n": copies, "max_tokens": 400}))))

    assert (await Stage(make(2)).run(kt.Budget(tokens=2_000))).output == "hello"
    result = await Stage(make(5)).run(kt.Budget(tokens=2_000))
    assert (result.output, len(asked), result.usage.tokens) == (None, 1, 0)


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
            kind = "text/html" if body.startswith("<") else "text/event-stream"
            return httpx2.Response(200, content=body.encode(), headers={"content-type": kind})
        return httpx2.Response(200, json=body)

    return answer, asked


@pytest.mark.parametrize("make", GOVERNED)
async def test_third_o34_a_text_that_the_provider_says_was_cut_off_is_partial(make: Any) -> None:
    answer, _ = one_after_the_other(completion("length", content="half"))
    stage = Stage(make(answer))
    result = await stage.run(kt.Budget(tokens=100_000))
    assert stage.output.artifact == kt.Artifact("half", partial=True)
    assert result.status is kt.TeamStatus.DEGRADED


@pytest.mark.parametrize("choices", [-1, {"a": 1}, "x", []])
@pytest.mark.parametrize("make", GOVERNED)
async def test_choices_that_are_not_a_list_are_an_error_of_the_model(make: Any, choices: Any) -> None:
    answer, _ = one_after_the_other(completion("stop", content="hello") | {"choices": choices})
    result = await Stage(make(answer)).run(kt.Budget(tokens=100_000))
    assert "it has no choices" in (result.outcomes[0].error or "")


async def test_a_finish_reason_that_is_not_a_word_says_nothing() -> None:
    garbled: Any = -1
    answer, _ = one_after_the_other(completion(garbled, content="hello"))
    for make in (of_openai, of_langgraph):
        assert (await Stage(make(answer)).run(kt.Budget(tokens=100_000))).output == "hello"


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


# ---------------------------------------------------------------- errors with status 200


EMPTY: dict[str, Any] = {**completion("stop"), "choices": []}
BODIES: dict[str, tuple[Any, int, str]] = {
    "a code of a passing fault": ({"error": {"message": "We are busy.", "code": 429}}, 2, "We are busy."),
    "such a code as a text": ({"error": {"message": "We are busy.", "code": "503"}}, 2, "We are busy."),
    "a code of a fault that stays": ({"error": {"message": "Not so.", "code": 400}}, 1, "Not so."),
    "a word for a code": ({"error": {"message": "Too long.", "code": "context_length_exceeded"}}, 1, "Too long."),
    "beside no choices": ({**EMPTY, "error": {"message": "No room.", "code": 502}}, 2, "No room."),
    "in a choice": (
        {**EMPTY, "choices": [{"index": 0, "error": {"message": "It broke.", "code": 502}}]},
        2,
        "It broke.",
    ),
    "no choices alone": (EMPTY, 1, "its reply is empty: it has no choices"),
    "a body of another kind": ({"detail": "Not authenticated"}, 1, "Not authenticated"),
    "a page": ("<html>gateway</html>", 1, "its reply is not JSON: '<html>gateway</html>'"),
}


@pytest.mark.parametrize("make", [*GOVERNED, of_langgraph_followed, of_langgraph_streamed])
async def test_third_o42_an_error_under_status_200_is_read_for_wrapped_agents_too(make: Any) -> None:
    """A graph that is only followed makes its calls itself, so that no call of it is made again."""
    for name, (body, tries, words) in BODIES.items():
        answer, asked = one_after_the_other(body, completion("stop", content="fine"))
        stage = Stage(make(answer), runtime={"model_retry": kt.ModelRetry(backoff=0.0)})
        result = await stage.run(kt.Budget(tokens=100_000))
        if tries > 1 and make in GOVERNED:
            assert (len(asked), result.output) == (2, "fine"), name
        else:
            assert len(asked) == 1, name
            assert words in str(result.error), name


async def test_third_o42_a_fallback_of_pydantic_ai_goes_on_after_an_error_under_status_200() -> None:
    models = [
        OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client(one_after_the_other(body)[0])))
        for body in (EMPTY, completion("stop", content="fine"))
    ]
    result = await Stage(PydanticAIAgent(PydanticAgent(FallbackModel(*models)))).run(kt.Budget(tokens=100_000))
    assert result.output == "fine"


async def test_third_o42_outside_a_team_a_client_is_what_it_was() -> None:
    answer, _ = one_after_the_other(EMPTY)
    model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client(answer)))
    with pytest.raises(IndexError):
        await PydanticAgent(model).run("Hello")


# ---------------------------------------------------------------- graphs whose models are only followed


async def twice(agent: Any) -> kt.TaskOutcome:
    """How a task ends that may be tried twice."""
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=1, backoff=0.0))
    team = kt.Team("team", [kt.Member("m", agent)], coordinator=coordinator)
    plan = kt.TaskGraph([kt.Task("t", "Do it.")])
    config = kt.TeamConfig(budget=kt.Budget(tokens=100_000))
    result = await kt.run(team, kt.TeamExecutionRequest("Do it.", plan=plan, config=config))
    return result["t"]


FOLLOWED = pytest.mark.parametrize("make", [of_langgraph_followed, of_langgraph_streamed])


@FOLLOWED
@pytest.mark.parametrize("message", [{"content": "half"}, {"refusal": "I will not."}])
async def test_third_o36_a_refusal_in_a_graph_that_is_only_followed_has_its_words(make: Any, message: Any) -> None:
    (words,) = message.values()
    reply = completion("content_filter" if "content" in message else "stop", **message)
    answer, asked = one_after_the_other(streamed(reply) if make is of_langgraph_streamed else reply)
    outcome = await twice(make(answer))
    assert str(outcome.error).endswith(f"the provider's filter cut off or refused the reply: {words}")
    assert outcome.artifact == kt.Artifact(words, partial=True)
    assert len(asked) == 1


@FOLLOWED
@pytest.mark.parametrize(
    ("status", "code", "tries"),
    [
        (400, "content_policy_violation", 1),
        (400, "context_length_exceeded", 1),
        (401, "invalid_api_key", 1),
        (429, None, 2),
    ],
)
async def test_third_o36_a_refused_call_of_such_a_graph_is_free_and_what_stays_is_not_asked_again(
    make: Any, status: int, code: Any, tries: int
) -> None:
    asked: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(status, json={"error": {"message": "Not this.", "code": code}})

    outcome = await twice(make(answer))
    assert "Not this." in str(outcome.error)
    assert (len(asked), outcome.usage.tokens) == (tries, 0)


async def test_third_o35_a_stream_of_such_a_graph_without_an_end_is_a_broken_connection() -> None:
    whole = streamed(completion("stop", content="half of a"))
    broken = f"{whole.partition(chr(10) * 2)[0]}\n\n"
    answer, asked = one_after_the_other(broken)
    outcome = await twice(of_langgraph_streamed(answer))
    assert outcome.artifact == kt.Artifact("half of a", partial=True)
    assert "(connection): the stream broke off" in str(outcome.error)
    assert len(asked) == 2
    answer, asked = one_after_the_other(f'{broken}data: {{"error": {{"message": "It broke.", "code": 503}}}}\n\n')
    outcome = await twice(of_langgraph_streamed(answer))
    assert outcome.artifact == kt.Artifact("half of a", partial=True)
    assert "It broke." in str(outcome.error)
    first = asking(chat(one_after_the_other(completion("stop", content="a first text"))[0]))
    busy, _ = one_after_the_other({"error": {"message": "We are busy.", "code": 429}})
    outcome = await twice(LangGraphAgent(graph_of(first, asking(chat(busy)))))
    assert outcome.artifact == kt.Artifact("a first text", partial=True)
    for end in (": usage", ": reason"):  # either shows that the reply is whole
        pieces = whole.split("\n\n")
        del pieces[1 if end == ": usage" else 2]
        outcome = await twice(of_langgraph_streamed(one_after_the_other("\n\n".join(pieces))[0]))
        assert outcome.artifact == kt.Artifact("half of a"), end


@pytest.mark.parametrize("wrapped", [True, False])
async def test_third_o42_arguments_that_a_stream_leaves_unfinished_are_not_completed(wrapped: bool) -> None:
    """LangChain makes `{"text": ""}` of `{"text": "`, which would write an empty file."""
    look = Counter()
    cut = {**CALL, "function": {"name": "look", "arguments": '{"text": "'}}
    answer, asked = one_after_the_other(
        streamed(completion("tool_calls", tool_calls=[cut])), streamed(completion("stop", content="done"))
    )
    model = chat(answer).model_copy(update={"streaming": True})
    options: dict[str, Any] = {"awrap_tool_call": governed_tool_call} if wrapped else {"handle_tool_errors": True}
    stage = Stage(LangGraphAgent(tool_graph_of(model, [look.tool()], **options)))
    result = await stage.run(kt.Budget(tokens=100_000))
    assert (look.calls, result.output) == ([], "done")
    assert "the arguments are not JSON" in json.dumps(asked[1])


# ---------------------------------------------------------------- OpenAI's Responses interface


def response(status: str, text: str = "half", **more: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    said: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "status": status, "content": [part]}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    head: dict[str, Any] = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "parallel_tool_calls": True,
        "tools": [],
    }
    usage = {"input_tokens": 21, "output_tokens": 4, "total_tokens": 25, **details}
    return {**head, "tool_choice": "auto", "output": [said], "usage": usage, "status": status, **more}


def of_responses(answer: Answer) -> OpenAIAgent:
    return OpenAIAgent(Agent("a", model=OpenAIResponsesModel("m", client(answer))))


@pytest.mark.parametrize(("reason", "ends"), [("max_output_tokens", "DEGRADED"), ("content_filter", "FAILED")])
async def test_third_o36_the_agents_librarys_own_responses_model_keeps_what_was_cut_off(reason: str, ends: str) -> None:
    """The library raises for such a reply, and its text would be lost."""
    answer, asked = one_after_the_other(response("incomplete", incomplete_details={"reason": reason}))
    stage = Stage(of_responses(answer))
    result = await stage.run(kt.Budget(tokens=100_000))
    assert (result.status.name, len(asked), result.usage.tokens) == (ends, 1, 25)
    assert stage.output.artifact == kt.Artifact("half", partial=True)


async def test_third_o36_a_streamed_reply_of_an_inner_agent_that_was_cut_off_is_kept_too() -> None:
    cut = response("incomplete", incomplete_details={"reason": "max_output_tokens"})
    event = {"type": "response.incomplete", "sequence_number": 0, "response": cut}
    stream = f"event: response.incomplete\ndata: {json.dumps(event)}\n\n"
    inner = Agent("inner", model=OpenAIResponsesModel("m", client(one_after_the_other(stream)[0])))
    outer, _ = one_after_the_other(
        completion("tool_calls", tool_calls=[{**CALL, "function": {"name": "ask", "arguments": "{}"}}]),
        completion("stop", content="done"),
    )
    said: list[str] = []

    @function_tool
    async def ask() -> str:
        """Ask another agent."""
        streaming = Runner.run_streamed(inner, "Save it.")
        async for _ in streaming.stream_events():
            pass
        said.append(str(streaming.final_output))
        return said[-1]

    result = await Stage(OpenAIAgent(Agent("a", model=of_chat(outer), tools=[ask]))).run(kt.Budget(tokens=100_000))
    assert (said, result.output) == (["half"], "done")


def of_responses_graph(answer: Answer) -> LangGraphAgent:
    return LangGraphAgent(graph_of(asking(governed(chat(answer).model_copy(update={"use_responses_api": True})))))


@pytest.mark.parametrize("make", [of_responses, of_responses_graph])
async def test_third_o36_a_failed_response_is_the_providers_error_and_its_code_decides(make: Any) -> None:
    failed = response("failed", output=[], error={"code": "server_error", "message": "It crashed."}, usage=None)
    answer, asked = one_after_the_other(failed, response("completed", "fine"))
    result = await Stage(make(answer), runtime={"model_retry": kt.ModelRetry(backoff=0.0)}).run()
    assert (len(asked), result.output) == (2, "fine")
    answer, asked = one_after_the_other({**failed, "error": {"code": "invalid_prompt", "message": "Not this."}})
    result = await Stage(make(answer), runtime={"model_retry": kt.ModelRetry(backoff=0.0)}).run()
    assert (len(asked), "Not this." in str(result.error)) == (1, True)
