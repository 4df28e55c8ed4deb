"""Chat models for tests. They count one token per word, so budgets can be worked out by hand."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING

from anyio.lowlevel import checkpoint

from kairo_team.budget import Money, Usage, picodollars, to_dollars
from kairo_team.models.chat_model import ModelResponse
from kairo_team.testing.script import Failure, Script

if TYPE_CHECKING:
    from kairo_team.models.chat_model import ModelRequest

Reply = str | ModelResponse


class FunctionModel:
    """A model that answers with `function(request)`, sync or async.

    A string is a reply of one token per word, cut to `request.max_tokens` words like a real one; a `ModelResponse` is
    handed on as it is. Every token, of prompt or reply, costs `dollars_per_token`. `calls` holds the requests.
    """

    def __init__(
        self,
        function: Callable[[ModelRequest], Reply | Awaitable[Reply]],
        *,
        name: str = "test:function",
        dollars_per_token: Money = 0,
    ) -> None:
        self.name = name
        self.calls: list[ModelRequest] = []
        self._function = function
        self._picos = picodollars(dollars_per_token)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; the event loop turns once, as it does in a real call."""
        self.calls.append(request)
        await checkpoint()
        reply = self._function(request)
        if inspect.isawaitable(reply):
            reply = await reply
        return reply if isinstance(reply, ModelResponse) else self._respond(request, reply)

    async def stream(self, request: ModelRequest, tell: Callable[[str], object]) -> ModelResponse:
        """Answer like `complete`, telling the text word by word; the event loop turns once before each."""
        response = await self.complete(request)
        for word in re.findall(r"\s*\S+\s*|\s+", response.text):
            await checkpoint()
            tell(word)
        return response

    async def count_tokens(self, request: ModelRequest) -> int:
        """Count the words of the prompt."""
        return _words(request)

    def price(self, usage: Usage) -> Decimal:
        """Price every token alike."""
        return to_dollars(self._picos * usage.tokens)

    def _respond(self, request: ModelRequest, text: str) -> ModelResponse:
        words = text.split()
        most = request.max_tokens
        if most is not None and len(words) > most:
            words, text = words[:most], " ".join(words[:most])
            return ModelResponse(text, usage=self._usage(request, len(words)), model=self.name, finish_reason="length")
        return ModelResponse(text, usage=self._usage(request, len(words)), model=self.name)

    def _usage(self, request: ModelRequest, completion: int) -> Usage:
        prompt = _words(request)
        return Usage(prompt, completion, to_dollars(self._picos * (prompt + completion)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, {len(self.calls)} calls)"


class ScriptedModel(FunctionModel):
    """A model that gives the replies of a script, one per call; an exception in the script is raised.

    A call beyond the script raises `AssertionError`; inside a run that is a failed attempt, so end the test with
    `assert_complete`.
    """

    def __init__(
        self, replies: Iterable[Reply | Failure], *, name: str = "test:scripted", dollars_per_token: Money = 0
    ) -> None:
        self._script: Script[Reply] = Script(replies, f"ScriptedModel {name!r}")
        super().__init__(lambda _: self._script.take(), name=name, dollars_per_token=dollars_per_token)

    def assert_complete(self) -> None:
        """Raise `AssertionError` unless every reply was asked for, and none more."""
        self._script.assert_complete()


def _words(request: ModelRequest) -> int:
    return sum(len(message.text.split()) for message in request.messages)
