"""What a foreign client spends at an address is the budget's: counted, capped, guarded, ended, and resumed free."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anthropic import Anthropic
from openai import APIStatusError, AsyncOpenAI, OpenAI

import kairo_team as kt
from kairo_team.addresses import ModelAddress
from kairo_team.events import ModelCalled
from kairo_team.governance.guardrails import GuardrailPhase
from kairo_team.testing import EventRecorder, FunctionModel
from tests.address.stage import says, work
from tests.agents.loops import asyncio_alone
from tests.agents.openai_double import Guard, deny

anyio_backend = asyncio_alone
pytestmark = pytest.mark.real_time


async def chat(client: AsyncOpenAI, text: str = "hi") -> str:
    reply = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return reply.choices[0].message.content or ""


async def spend(address: ModelAddress, calls: int = 100) -> None:
    async with AsyncOpenAI(base_url=address.openai, api_key=address.key) as client:
        for _ in range(calls):
            await chat(client)


async def test_a_refusal_by_the_budget_is_not_retried_and_ends_the_attempt_even_if_it_is_hidden() -> None:
    model = says("one two three")
    result, raised = await work(spend, model, kt.Budget(tokens=50))
    (error,) = raised
    assert isinstance(error, APIStatusError)
    assert error.status_code == 402
    assert "the budget refuses this call" in error.message
    assert result.usage.tokens <= 50
    assert result.status is kt.TeamStatus.FAILED
    assert "halted" in (result.error or "")


async def test_a_library_that_goes_on_regardless_is_ended() -> None:
    async def stubborn(address: ModelAddress) -> None:
        async with AsyncOpenAI(base_url=address.openai, api_key=address.key) as client:
            while True:
                with suppress(APIStatusError):
                    await chat(client)

    model = says("one two three")
    result, _ = await work(stubborn, model, kt.Budget(tokens=50))
    assert result.usage.tokens <= 50
    assert "halted" in (result.error or "")


async def test_a_refusal_by_a_guardrail_ends_the_attempt() -> None:
    model = says("never")
    result, raised = await work(spend, model, guardrails=[Guard(GuardrailPhase.PRE_MODEL, deny)])
    (error,) = raised
    assert isinstance(error, APIStatusError)
    assert (error.status_code, model.calls) == (403, [])
    assert "denied" in (result.error or "")


async def test_a_reply_is_capped_to_what_is_left() -> None:
    model = says("word " * 80)
    result, _ = await work(partial(spend, calls=1), model, kt.Budget(tokens=21))
    assert model.calls[0].max_tokens == 20
    assert result.usage.tokens == 21


def in_a_thread(address: ModelAddress) -> None:
    """A library that is not async, with the client of another provider."""
    with OpenAI(base_url=address.openai, api_key=address.key) as client:
        client.responses.create(model="m", input="hi there")
    with Anthropic(base_url=address.anthropic, api_key=address.key) as other:
        while True:
            other.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "hi there you"}])


class Server:
    """A model that counts for itself what it was asked and answered."""

    def __init__(self, chance: random.Random) -> None:
        self.tokens = 0
        self._chance = chance

    async def answer(self, request: kt.ModelRequest) -> kt.ModelResponse:
        prompt = sum(len(one.text.split()) for one in request.messages)
        wanted = self._chance.randint(1, 9)
        made = min(wanted, request.max_tokens or wanted)
        await anyio.sleep(self._chance.choice([0.0, 0.0, 0.002]))
        self.tokens += prompt + made
        finish: Any = "length" if made < wanted else "stop"
        return kt.ModelResponse("w " * made, usage=kt.Usage(prompt, made), model="m", finish_reason=finish)


@pytest.mark.sampled("block")
@pytest.mark.parametrize("block", range(5))
async def test_the_usage_is_the_servers_count_and_never_above_the_limit(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        await check_a_run(seed)


async def check_a_run(seed: int) -> None:
    """Run some calls under a random limit, some of them killed, and compare the usage with the server's count."""
    chance = random.Random(seed)  # noqa: S311 - a seeded test
    limit, kill_after = chance.randint(5, 400), chance.choice([None, None, 0.01, 0.05])
    server = Server(chance)

    async def use(address: ModelAddress) -> None:
        if chance.random() < 0.2:
            await anyio.to_thread.run_sync(in_a_thread, address, abandon_on_cancel=True)
        async with AsyncOpenAI(base_url=address.openai, api_key=address.key, max_retries=2) as client:
            for _ in range(40):
                async with anyio.create_task_group() as tasks:
                    for _ in range(chance.randint(1, 3)):
                        tasks.start_soon(chat, client, "word " * chance.randint(1, 9))

    config: dict[str, Any] = {} if kill_after is None else {"task_timeout": kill_after}
    model = FunctionModel(server.answer)

    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async with context.address(model) as address:
            await use(address)
        return "done"

    policy = kt.TeamConfig(budget=kt.Budget(tokens=limit), **config)
    recorder = EventRecorder()
    team = kt.Team("t", [kt.Member("m", member)], runtime=kt.Runtime(subscribers=[recorder]))
    result = await kt.run(team, "Explain tides.", config=policy)
    assert result.usage.tokens <= limit
    cut = sum(event.usage.tokens for event in recorder.of(ModelCalled) if event.outcome == "unknown")
    assert server.tokens <= result.usage.tokens <= server.tokens + cut
    if not cut:
        assert result.usage.tokens == server.tokens


async def test_a_resumed_run_does_not_pay_again(tmp_path: Path) -> None:
    model, journal, stop = says("fine"), kt.SqliteJournal(tmp_path / "runs.db", sync="normal"), True

    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async with (
            context.address(model) as address,
            AsyncOpenAI(base_url=address.openai, api_key=address.key) as client,
        ):
            first = await chat(client, "one")
            if stop:
                runtime.runs["r"].interrupt("the process ends")
            return first + await chat(client, "two")

    team = kt.Team("t", [kt.Member("m", member)])
    async with kt.Runtime(journal=journal) as runtime:
        await kt.run(team, kt.TeamExecutionRequest("Explain tides.", run_id="r"), runtime=runtime)
    assert len(model.calls) == 1
    stop = False
    async with kt.Runtime(journal=journal) as runtime:
        result = await runtime.resume("r", team)
    journal.close()
    assert [call.messages[0].text for call in model.calls] == ["one", "two"]
    assert (result.output, result.usage.tokens) == ("finefine", 4)
