"""OpenAI's chat completions and Responses in front of a team, asked by the real `openai` client."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")
openai = pytest.importorskip("openai", reason="the client that the tests ask with")

import kairo_team as kt  # noqa: E402 - skipped where the extra is not installed
from kairo_team import api as front  # noqa: E402
from kairo_team.models.address.parts import Refused  # noqa: E402
from kairo_team.serve.asked import Caller  # noqa: E402
from kairo_team.serve.ends import reply_of  # noqa: E402
from kairo_team.testing import FunctionModel  # noqa: E402
from tests.agents.loops import asyncio_alone  # noqa: E402
from tests.serve.stage import BUDGET, KEYS, LETTER, Waiting, asking, echo, served, talking  # noqa: E402
from tests.serve.web import running  # noqa: E402

pytestmark = pytest.mark.real_time
anyio_backend = asyncio_alone  # on trio the client leaves its streams to the garbage collector

GOAL: list[Any] = [{"role": "user", "content": "Explain tides."}]


@asynccontextmanager
async def asked(team: kt.Team, key: str = "ada", **options: Any) -> AsyncGenerator[Any]:
    """Serve a team and yield a client of it."""
    async with (
        running(team, mcp=False, **options) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEYS[key], timeout=60) as client,
    ):
        yield client


@asynccontextmanager
async def opened(team: kt.Team) -> AsyncGenerator[Caller]:
    """A caller of a served team whose key pays for one run at a time."""
    service = served(team, key_budget=BUDGET)
    async with service.open():
        yield service.caller("ada")


async def test_a_chat_completion_is_a_run_with_its_true_usage() -> None:
    async with asked(talking(tokens=30)) as client:
        reply = await client.chat.completions.create(model="school", messages=GOAL)
    [choice] = reply.choices
    assert (choice.message.content, choice.finish_reason, reply.model) == ("Twice a day.", "stop", "school")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (20, 10, 30)
    assert reply.model_extra["kairo"]["status"] == "completed"


async def test_a_streamed_chat_shows_what_happens_and_then_the_output() -> None:
    async with asked(talking(tokens=30)) as client:
        stream = await client.chat.completions.create(
            model="school", messages=GOAL, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas: list[Any] = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thought = "".join(getattr(delta, "reasoning_content", "") for delta in deltas)
    assert "school: started with 1 member" in thought
    assert "school: completed, 30 tokens" in thought
    assert "".join(delta.content or "" for delta in deltas) == "Twice a day."
    assert chunks[-1].usage.total_tokens == 30


async def test_a_response_is_a_run_with_its_true_usage() -> None:
    async with asked(talking(tokens=30)) as client:
        reply = await client.responses.create(model="school", input="Explain tides.")
    assert (reply.output_text, reply.status, reply.usage.total_tokens) == ("Twice a day.", "completed", 30)


async def test_a_streamed_response_shows_what_happens_and_then_the_output() -> None:
    async with (
        asked(talking(tokens=30)) as client,
        client.responses.stream(model="school", input="Explain tides.") as stream,
    ):
        kinds = [event.type async for event in stream]
        reply = await stream.get_final_response()
    assert kinds.index("response.reasoning_summary_text.delta") < kinds.index("response.output_text.delta")
    assert [item.type for item in reply.output] == ["reasoning", "message"]
    assert "school: completed, 30 tokens" in reply.output[0].summary[0].text
    assert (reply.output_text, reply.usage.total_tokens) == ("Twice a day.", 30)


async def test_the_models_are_the_team() -> None:
    async with asked(echo()) as client:
        assert [model.id async for model in client.models.list()] == ["echo team"]
        assert (await client.models.retrieve("echo team")).id == "echo team"
        with pytest.raises(openai.NotFoundError, match="no model 'gpt-5' here, only the team 'echo team'"):
            await client.models.retrieve("gpt-5")
        with pytest.raises(openai.NotFoundError, match="only the team 'echo team'"):
            await client.chat.completions.create(model="gpt-5", messages=GOAL)


async def test_the_last_message_is_the_goal_and_what_was_said_before_is_context() -> None:
    seen: list[kt.Assignment] = []

    def look(assignment: kt.Assignment) -> str:
        seen.append(assignment)
        return "seen"

    said: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is a tide?"},
        {"role": "assistant", "content": "Water that comes and goes."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Why?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ],
        },
    ]
    async with asked(kt.Team("t", [kt.Member("m", look)])) as client:
        await client.chat.completions.create(model="t", messages=said)
    [assignment] = seen
    assert assignment.goal == "Why?"
    assert [file.media_type for file in assignment.files] == ["image/png"]
    lines = assignment.context["conversation"].split("\n\n")
    assert lines == ["system: Be brief.", "user: What is a tide?", "assistant: Water that comes and goes."]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"temperature": 0}, "'temperature' is a setting of a model"),
        ({"extra_body": {"top_a": 1}}, "'top_a' is a setting of a model"),
        ({"max_tokens": 9}, "has the limit that its server gives"),
        ({"n": 2}, "one reply is made"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "'tools' cannot be given"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}, "in its plan"),
        ({"messages": [{"role": "user", "content": " "}]}, "last message has to be the user's"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "last message has to be the user's"),
    ],
)
async def test_what_a_team_cannot_take_is_refused_with_a_sentence(more: dict[str, Any], sentence: str) -> None:
    async with asked(echo()) as client:
        with pytest.raises(openai.BadRequestError, match=sentence):
            await client.chat.completions.create(**{"model": "echo team", "messages": GOAL} | more)


# ---------------------------------------------------------------- budgets


async def test_a_run_that_its_budget_ends_is_an_error_with_what_there_is() -> None:
    plan = kt.TaskGraph([kt.Task("a", "A."), kt.Task("b", "B.", depends_on=["a"])])
    async with asked(talking(), plan=plan, budget=kt.Budget(tokens=1_000, loops=1)) as client:
        with pytest.raises(openai.APIStatusError, match="loop_budget_exceeded") as raised:
            await client.chat.completions.create(model="school", messages=GOAL)
    assert raised.value.status_code == 402
    assert raised.value.response.headers["x-should-retry"] == "false"
    about = raised.value.response.json()["kairo"]
    assert (about["output"], about["partial_output"], about["tokens"]) == (None, "Twice a day.", 30)


async def test_a_failed_run_is_told_in_a_stream_too() -> None:
    def fail(assignment: kt.Assignment) -> str:
        raise ValueError("the sea is closed")

    async with asked(kt.Team("t", [kt.Member("m", fail)])) as client:
        with pytest.raises(openai.InternalServerError, match="the sea is closed"):
            await client.chat.completions.create(model="t", messages=GOAL)
        with pytest.raises(openai.APIError, match="the sea is closed"):
            stream = await client.chat.completions.create(model="t", messages=GOAL, stream=True)
            async for _ in stream:
                pass
        events = [event async for event in await client.responses.create(model="t", input="Explain.", stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    *_, error, failed = events  # as OpenAI ends such a stream: clients differ in which of the two they read
    assert (error.type, failed.type, failed.response.status) == ("error", "response.failed", "failed")
    assert "the sea is closed" in error.message
    assert (failed.response.error.code, failed.response.error.message) == ("team_failed", error.message)


async def test_the_runs_of_a_key_share_its_budget_and_other_keys_have_their_own() -> None:
    team, limits = talking(tokens=400), {"budget": kt.Budget(tokens=500), "key_budget": kt.Budget(tokens=900)}
    async with (
        running(team, mcp=False, **limits) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEYS["ada"]) as ada,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEYS["bob"]) as bob,
    ):
        assert (await ada.chat.completions.create(model="school", messages=GOAL)).usage.total_tokens == 400
        assert (await ada.chat.completions.create(model="school", messages=GOAL)).usage.total_tokens == 400
        with pytest.raises(openai.APIStatusError, match="key 'ada'") as raised:
            await ada.chat.completions.create(model="school", messages=GOAL)
        assert raised.value.status_code == 402
        assert (await bob.chat.completions.create(model="school", messages=GOAL)).usage.total_tokens == 400


async def test_a_recorded_run_that_was_refused_for_its_keys_budget_is_told_so_even_if_budget_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, run = Waiting(), front.run
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    journal.set_account("serve/ada", BUDGET)  # as the server does for each key
    async with opened(waiting.team(runtime=kt.Runtime(journal=journal))) as caller:
        first = await caller.ask("first")
        await waiting.until_begun()

        async def slowly(*given: Any, **options: Any) -> Any:
            result = await run(*given, **options)
            waiting.go.set()
            while not first.ended:
                await first.news()
            return result

        monkeypatch.setattr(front, "run", slowly)
        second = await caller.ask("second", key="k")
        while not second.ended:
            await second.news()
        with pytest.raises(Refused, match="'serve/ada' has 0 tokens left") as refused:
            reply_of(second, "waiting")
    assert refused.value.status == 402
    journal.close()


async def test_runs_of_a_key_at_once_never_spend_more_than_its_budget() -> None:
    spent: list[int] = []
    refused: list[int] = []

    async def slow(_: kt.ModelRequest) -> kt.ModelResponse:
        await anyio.sleep(0.02)
        return kt.ModelResponse("said", usage=kt.Usage(50, 50))

    team = kt.Team("t", [kt.Member("m", kt.MiniAgent(FunctionModel(slow)))])
    async with asked(team, budget=kt.Budget(tokens=500), key_budget=kt.Budget(tokens=1_100)) as client:

        async def ask() -> None:
            try:
                reply = await client.chat.completions.create(model="t", messages=GOAL)
                spent.append(reply.usage.total_tokens)
            except openai.APIStatusError as error:
                refused.append(error.status_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(ask)
    assert spent
    assert sum(spent) <= 1_100
    assert set(refused) == {402}
    assert len(spent) + len(refused) == 12


# ---------------------------------------------------------------- people, and clients that leave


async def test_a_run_that_waits_for_a_person_says_so(tmp_path: Any) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    async with asked(asking(runtime=kt.Runtime(journal=journal)), plan=LETTER) as client:
        with pytest.raises(openai.ConflictError, match="waits for a person"):
            await client.chat.completions.create(model="office", messages=GOAL)
        [question] = journal.pending()
        journal.answer(question.id, kt.HumanDecision.approve())
    journal.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_its_run(stream: bool) -> None:
    waiting = Waiting()
    async with asked(waiting.team()) as client:

        async def ask() -> None:
            reply = await client.chat.completions.create(model="waiting", messages=GOAL, stream=stream)
            async for _ in reply:
                pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await waiting.until_begun()
            await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        while not waiting.ends:
            await anyio.sleep(0.01)
    assert waiting.ends == ["cancelled"]
