"""The model and the tool that the agent kit gives to agents: they follow a script and record every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from kairo_team._util.frozen import thaw
from kairo_team.budget import Usage
from kairo_team.files import File
from kairo_team.messages import ModelRequest, ModelResponse, ToolCall
from kairo_team.tools.tool import tool

LOOK: Final = "look"
"""The name of the kit's tool."""
LONG: Final = 1000.0
"""Seconds of a call that the test cuts off."""
_MOST_CALLS: Final = 500
"""More calls than any contract test needs, to stop an agent that never ends."""


@dataclass(frozen=True, slots=True)
class Say:
    """The model's answer to one request."""

    text: str = "a fine text"
    look: Sequence[str] = ()
    """Texts; the model calls the tool `look` once for each."""
    usage: Usage | None = Usage(17, 5)
    seconds: float = 0.0
    cut: bool = False
    """Whether the reply ends because it reached its limit of tokens."""


Step = Say | Exception
Script = Callable[[ModelRequest], Step] | Sequence[Step]
"""The model's steps, the last of which repeats for ever; or a function of the request."""


class KitModel:
    """A chat model that follows a script."""

    name = "test:kit"

    def __init__(self, script: Script) -> None:
        self.requests: list[ModelRequest] = []
        """Every request that reached the model."""
        self.replies: list[ModelResponse] = []
        """Every reply it gave."""
        self.in_flight = 0
        self.later = 0
        """Number of requests after a call had ended; calls made at once do not count."""
        self._ended = False
        self._script = script

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request."""
        step = self._step(request, len(self.requests))
        self.requests.append(request)
        self.later += self._ended
        self.in_flight += 1
        try:
            await anyio.sleep(step.seconds if isinstance(step, Say) else 0)
        finally:
            self.in_flight -= 1
            self._ended = True
        if isinstance(step, Exception):
            raise step
        self.replies.append(_reply(step, len(self.requests)))
        return self.replies[-1]

    def file_problem(self, file: File) -> str | None:
        """Take every file."""
        return None

    @property
    def used(self) -> tuple[int, int]:
        """The reported tokens of prompts and of replies."""
        usages = [reply.usage or Usage() for reply in self.replies]
        return sum(usage.prompt_tokens for usage in usages), sum(usage.completion_tokens for usage in usages)

    def _step(self, request: ModelRequest, number: int) -> Step:
        if number >= _MOST_CALLS:
            return AssertionError(f"the kit's model was asked {number} times by one agent")
        if callable(self._script):
            return self._script(request)
        return self._script[min(number, len(self._script) - 1)]


def _reply(step: Say, number: int) -> ModelResponse:
    calls = [ToolCall(f"call-{number}-{place}", LOOK, {"text": text}) for place, text in enumerate(step.look)]
    return ModelResponse(step.text, calls, step.usage, KitModel.name, "length" if step.cut else "stop")


def request_text(request: ModelRequest) -> str:
    """Return all texts of a request, as one."""
    parts = [f"{message.text}\n{[thaw(call.arguments) for call in message.tool_calls]}" for message in request.messages]
    return "\n".join(parts)


Look = Callable[[str], Awaitable[str]]
"""The tool that the kit hands to `make_agent_with_tool`: an async function of one text that returns a text."""


def looking(calls: list[str], error: Exception | None = None) -> Look:
    """Make the tool `look`, which records its arguments in `calls`."""

    @tool(name=LOOK, side_effect="read")
    async def look(text: str) -> str:
        """Look something up."""
        calls.append(text)
        await checkpoint()
        if error is not None:
            raise error
        return f"found {text}"

    return look
