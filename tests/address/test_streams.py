"""Streams of a governed address: the pieces of a reply go out as the model sends them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

import kairo_team as kt
from kairo_team.addresses import ModelAddress
from kairo_team.errors import ModelCallError
from tests.address.stage import work

pytestmark = [
    pytest.mark.real_time,
    # On trio the clients' own generators are left to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

HI: Any = [{"role": "user", "content": "hi"}]
USED = kt.Usage(10, 5)


class Slow:
    """A model that sends each piece only when it is told to, so that a stream that waits for the end never ends."""

    name = "test:slow"

    def __init__(self, pieces: Sequence[str] = ("One, ", "two, ", "three."), *, breaks: bool = False) -> None:
        self.pieces = pieces
        self.breaks = breaks
        self.sent: list[str] = []
        self.calls = 0
        self._go = anyio.Semaphore(1)

    def go(self) -> None:
        self._go.release()

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        raise AssertionError("it was asked for a whole reply")

    async def stream(
        self, request: kt.ModelRequest, on_text: Callable[[str], object], *, on_thinking: Callable[[str], object]
    ) -> kt.ModelResponse:
        self.calls += 1
        on_thinking("Let me count. ")
        for piece in self.pieces:
            await self._go.acquire()
            self.sent.append(piece)
            on_text(piece)
        await self._go.acquire()
        if self.breaks:
            raise ModelCallError("connection", self.name, "the line is dead")
        calls = [kt.ToolCall("c", "look", {"at": "sea"})]
        return kt.ModelResponse("".join(self.pieces), calls, USED, "slow")


async def chat(address: ModelAddress) -> AsyncIterator[str]:
    async with AsyncOpenAI(base_url=address.openai, api_key=address.key) as client:
        options: Any = {"stream_options": {"include_usage": True}}
        stream: Any = await client.chat.completions.create(model="m", messages=HI, stream=True, **options)
        async for chunk in stream:
            if chunk.usage is not None:
                assert chunk.usage.total_tokens == 15
            for choice in chunk.choices:
                if choice.delta.content:
                    yield choice.delta.content
                for call in choice.delta.tool_calls or ():
                    yield f"{call.function.name} {json.loads(call.function.arguments)}"


async def responses(address: ModelAddress) -> AsyncIterator[str]:
    async with AsyncOpenAI(base_url=address.openai, api_key=address.key) as client:
        async with client.responses.stream(model="m", input="hi", reasoning={"summary": "auto"}) as stream:
            async for event in stream:
                if event.type == "error":
                    raise ConnectionError(event.message)
                if event.type == "response.output_text.delta":
                    yield event.delta
            whole: Any = await stream.get_final_response()
        assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
        assert whole.output_text == "One, two, three."
        assert whole.output[0].summary[0].text == "Let me count. "
        assert whole.usage.total_tokens == 15
        yield f"{whole.output[2].name} {json.loads(whole.output[2].arguments)}"


async def messages(address: ModelAddress) -> AsyncIterator[str]:
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    async with AsyncAnthropic(base_url=address.anthropic, api_key=address.key) as client:
        async with client.messages.stream(model="m", max_tokens=2000, messages=HI, thinking=thinking) as stream:
            async for text in stream.text_stream:
                yield text
            whole: Any = await stream.get_final_message()
        assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
        assert (whole.content[0].thinking, whole.content[1].text) == ("Let me count. ", "One, two, three.")
        assert (whole.usage.input_tokens, whole.usage.output_tokens) == (10, 5)
        yield f"{whole.content[2].name} {whole.content[2].input}"


FORMATS = [chat, responses, messages]


@pytest.mark.parametrize("read", FORMATS)
async def test_a_piece_arrives_before_the_model_writes_the_next_one(read: Any) -> None:
    model = Slow()
    behind: list[int] = []

    async def use(address: ModelAddress) -> list[str]:
        found: list[str] = []
        async for text in read(address):
            found.append(text)
            behind.append(len(model.sent))
            model.go()
        return found

    with anyio.fail_after(120):
        result, raised = await work(use, model)
    assert raised == []
    assert str(result.output) == str(["One, ", "two, ", "three.", "look {'at': 'sea'}"])
    assert behind == [1, 2, 3, 3]
    assert result.usage.tokens == 15


@pytest.mark.parametrize("read", FORMATS)
async def test_a_reply_that_breaks_off_ends_the_stream_with_the_reason(read: Any) -> None:
    model = Slow(breaks=True)
    found: list[str] = []

    async def use(address: ModelAddress) -> None:
        async for text in read(address):
            found.append(text)
            model.go()

    with anyio.fail_after(120):
        _, raised = await work(use, model)
    assert found == ["One, ", "two, ", "three."]
    assert "the line is dead" in str(raised[0])
    assert model.calls == 1, "what was shown is not asked for again"


async def test_a_client_that_leaves_in_the_middle_ends_the_call() -> None:
    model = Slow()

    async def use(address: ModelAddress) -> str:
        async with AsyncOpenAI(base_url=address.openai, api_key=address.key) as client:
            stream: Any = await client.chat.completions.create(model="m", messages=HI, stream=True)
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await stream.close()
        return "left"

    with anyio.fail_after(120):
        result, raised = await work(use, model)
    assert (result.output, raised, model.sent) == ("left", [], ["One, "])
    assert result.usage.tokens > 15, "it is charged its hold"
