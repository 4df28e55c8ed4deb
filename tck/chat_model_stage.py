"""The base of the chat model kit's tests: the factories, the capabilities, and a provider that the kit plays."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import anyio
import pytest

from kairo_team.budget import Usage
from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelErrorKind
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.tck.kit import ContractTCK, make_it

ANSWER: Final = ModelResponse("a fine text", usage=Usage(23, 5))
IMAGE: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
"""A PNG of one grey pixel."""
OTHER_IMAGE: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mPQAAAAKgApxrku/gAAAABJRU5ErkJggg=="
)
"""A PNG of one darker pixel."""
LONG: Final = 1000.0
"""Seconds of a call that the test cuts off."""
SOON: Final = 0.1
"""Seconds after which the test cuts a call off."""
PROMPT: Final = 5.0
"""Seconds within which a call that was cut off must have ended."""


class Provider:
    """The provider of a model: the implementation sends it every request, and turns the answer into a reply."""

    def __init__(self, reply: Callable[[ModelRequest], ModelResponse] = lambda _: ANSWER, seconds: float = 0.0) -> None:
        self.requests: list[ModelRequest] = []
        """What reached it."""
        self.in_flight = 0
        self._reply = reply
        self._seconds = seconds

    async def answer(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; an exception is the provider's failure."""
        self.requests.append(request)
        self.in_flight += 1
        try:
            await anyio.sleep(self._seconds)
        finally:
            self.in_flight -= 1
        return self._reply(request)


def ask(text: str = "Say what tides are.", max_tokens: int | None = 6) -> ModelRequest:
    """Make a request."""
    return ModelRequest([Message.system("Answer shortly."), Message.user(text)], max_tokens=max_tokens)


def request_text(request: ModelRequest) -> str:
    """Return all texts of a request, as one."""
    return "\n".join(message.text for message in request.messages)


class ChatModelStage(ContractTCK):
    """The factories and capabilities of the chat model kit."""

    contract: ClassVar[type] = ChatModel

    has_provider: ClassVar[bool] = False
    """Whether the kit can play the model's provider: `make_model_of`. Else the kit cannot see the provider's input."""
    can_fail: ClassVar[bool] = True
    """Whether a model can be made whose provider does not answer: `make_failing_model`."""
    takes_tools: ClassVar[bool] = True
    """Whether it sends tools, and the calls and results of a conversation; else it refuses a request with tools."""
    takes_schema: ClassVar[bool] = True
    """Whether it sends a schema, apart or in the words of the prompt; else it refuses a request with one."""
    settings_taken: ClassVar[Mapping[str, Any]] = {"temperature": 0.5, "seed": 7}
    """Settings that it sends, each with a value to try."""
    failure_kinds: ClassVar[Sequence[ModelErrorKind]] = ("rate_limited", "overloaded", "timeout", "connection", "auth")
    """Kinds of failures that `make_model_of` can play in the provider's own form."""

    @classmethod
    def make_model(cls) -> ChatModel:
        """Make a model that answers every request with some text. A fresh one each time."""
        raise make_it(cls, "make_model(cls)")

    @classmethod
    def make_model_of(cls, provider: Provider) -> ChatModel:
        """Make a model with the kit's provider: each request goes to `await provider.answer(request)`.

        Replace the network alone, such as a client's transport: write the request that arrives there as a
        `ModelRequest`, and the `ModelResponse` in the provider's form. `answer` fails with a `ModelCallError`: play its
        `kind` and its `retry_after` as the provider does, such as by status 429, 503 or 401, or an exception of the
        client.
        """
        raise make_it(cls, "make_model_of(cls, provider), or say has_provider = False,")

    @classmethod
    def make_failing_model(cls) -> ChatModel:
        """Make a model whose provider never answers: it cannot be reached, or refuses every request."""
        raise make_it(cls, "make_failing_model(cls), or say can_fail = False,")

    @classmethod
    def optional(cls, model: ChatModel, name: str) -> Any:
        """Return an optional attribute of the model; skip the test without it."""
        found = getattr(model, name, None)
        if found is None:
            pytest.skip(f"it has no {name}")
        return found


def reported_usage(response: ModelResponse) -> Usage:
    """Return the usage that a reply reports; skip the test without one."""
    usage = response.usage
    if usage is None:
        pytest.skip("its replies report no usage")
    counts = (usage.prompt_tokens, usage.completion_tokens)
    assert all(type(one) is int and one >= 0 for one in counts), f"its reply reports {counts} tokens: not two counts"
    return usage
