"""A streamed call is held, capped and settled like any other; each piece is emitted once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic_ai.messages import ModelMessage, TextPart
from pydantic_ai.messages import ModelResponse as TheirResponse
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls
from pydantic_ai.models.function import FunctionModel as TheirFunctionModel

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelCallError
from kairo_team.governance import Governor
from kairo_team.models.governed_model import GovernedModel
from kairo_team.models.local import LocalModel
from kairo_team.models.providers import ProviderModel
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.models.reports import at_end

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("anyio_backend")]

ASK = kt.ModelRequest([kt.Message.user("one two three four five six seven eight nine ten")], max_tokens=40)
Tell = Callable[[str], object]


def govern(model: ChatModel, budget: kt.Budget | None = None) -> tuple[GovernedModel, Governor, list[tuple[str, int]]]:
    governor, tries = Governor(budget or kt.Budget()), list[tuple[str, int]]()

    def report(_: str, outcome: str, held: int, usage: kt.Usage) -> None:
        tries.append((outcome, usage.tokens))

    return GovernedModel(model, governor, at_end(report)), governor, tries


class Streaming:
    """Tells its pieces a second apart, then ends in one of several ways."""

    name = "test:streaming"

    def __init__(self, *pieces: str, end: kt.ModelResponse | Exception | None) -> None:
        self.pieces = pieces
        self.end = end
        self.asked: list[kt.ModelRequest] = []

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return await self.stream(request, lambda _: None)

    async def stream(self, request: kt.ModelRequest, tell: Tell) -> kt.ModelResponse:
        self.asked.append(request)
        for piece in self.pieces:
            await anyio.sleep(1)
            tell(piece)
        if isinstance(self.end, Exception):
            raise self.end
        if self.end is None:
            await anyio.sleep_forever()
        assert self.end is not None
        return self.end

    async def count_tokens(self, request: kt.ModelRequest) -> int:
        return 10


REPLY = kt.ModelResponse("Once upon a time", usage=kt.Usage(10, 4))


async def test_pieces_are_told_as_they_come_and_the_truth_is_settled() -> None:
    model = Streaming("Once ", "upon ", "", "a time", end=REPLY)
    governed, governor, tries = govern(model, kt.Budget(tokens=30))
    told: list[tuple[str, int]] = []
    began = anyio.current_time()
    response = await governed.stream(ASK, lambda text: told.append((text, round(anyio.current_time() - began))))
    assert told == [("Once ", 1), ("upon ", 2), ("a time", 4)]
    assert response.text == "Once upon a time"
    assert model.asked[0].max_tokens == 20, "capped like any other call"
    assert (tries, governor.usage.tokens) == ([("ok", 14)], 14)


async def test_kf_b17_a_stream_without_usage_is_charged_its_hold() -> None:
    """B17: usage missing in a reply: the cap silently inactive."""
    governed, governor, tries = govern(Streaming("Once ", end=kt.ModelResponse("Once ")))
    await governed.stream(ASK, lambda _: None)
    assert (tries, governor.usage.tokens) == ([("unknown", 50)], 50)


async def test_a_stream_that_breaks_off_is_charged_its_hold_and_not_told_again() -> None:
    model = Streaming("Once ", end=ModelCallError("connection", "test:streaming", "cut off"))
    spare = ScriptedModel(["Spare."])
    governed, governor, tries = govern(kt.Fallback(model, spare))
    told: list[str] = []
    with pytest.raises(ModelCallError, match="cut off"):
        await governed.stream(ASK, told.append)
    assert (told, tries, len(spare.calls)) == (["Once "], [("error", 50)], 0)
    assert governor.usage.tokens == 50


async def test_a_stream_that_fails_before_its_first_piece_is_tried_again_and_falls_back() -> None:
    model = Streaming("", end=ModelCallError("overloaded", "test:streaming", "later"))
    governed, _, tries = govern(kt.Fallback(model, ScriptedModel(["Spare one."])))
    told: list[str] = []
    await governed.stream(ASK, told.append)
    assert told == ["Spare ", "one."]
    assert [outcome for outcome, _ in tries] == ["error"] * 3 + ["ok"]


async def test_a_stream_that_is_cancelled_is_charged_its_hold() -> None:
    governed, governor, _ = govern(Streaming("Once ", end=None))
    told: list[str] = []
    with anyio.move_on_after(5):
        await governed.stream(ASK, told.append)
    assert (told, governor.usage.tokens, governor.held.tokens) == (["Once "], 50, 0)


async def test_what_the_listener_raises_ends_the_call() -> None:
    def refuse(_: str) -> None:
        raise ValueError("not that")

    governed, governor, tries = govern(Streaming("Once ", end=REPLY))
    with pytest.raises(ValueError, match="not that"):
        await governed.stream(ASK, refuse)
    assert (tries, governor.usage.tokens) == ([("error", 50)], 50)


ANY: Any = kt
"""A type checker would find what is wrong."""


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("reply", "match"),
    [
        (lambda: None, "a ModelResponse, not with None"),
        (lambda: ANY.ModelResponse(None), "ModelResponse.text must be a string, not None"),
        (lambda: ANY.ModelResponse("", ["search"]), r"ModelResponse.tool_calls\[0\] must be a ToolCall, not 'search'"),
        (lambda: ANY.ModelResponse("", usage=1), "ModelResponse.usage must be a Usage or None, not 1"),
    ],
)
async def test_a_reply_of_wrong_parts_is_a_clear_error_and_is_charged_its_hold(
    streams: bool, reply: Any, match: str
) -> None:
    async def answer(request: kt.ModelRequest, *_: object) -> Any:
        return reply()

    names = {"complete", "stream"} if streams else {"complete"}
    model: Any = SimpleNamespace(name="test:wrong", **dict.fromkeys(names, answer))
    governed, governor, tries = govern(model)
    with pytest.raises((TypeError, ValueError), match=match):
        await governed.stream(ASK, lambda _: None)
    with pytest.raises((TypeError, ValueError), match=match):
        await governed.complete(ASK)
    assert [outcome for outcome, _ in tries] == ["error", "error"]
    assert governor.usage.tokens == sum(tokens for _, tokens in tries) > 2 * 40


async def test_a_piece_that_is_no_text_reaches_nobody() -> None:
    heard: list[object] = []
    governed, _, _ = govern(Streaming(5, end=None))  # type: ignore[arg-type]  # what is tried
    with pytest.raises(TypeError, match="must be text, not 5"):
        await governed.stream(ASK, heard.append)
    assert heard == []


async def test_a_model_that_cannot_stream_tells_its_text_once() -> None:
    class Whole:
        name = "test:whole"

        async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
            return REPLY

    told: list[str] = []
    governed, *_ = govern(Whole())
    await governed.stream(ASK, told.append)
    assert told == ["Once upon a time"]


@pytest.mark.parametrize("text", ["one two", "  one\n\n two ", "", "   ", "one"])
async def test_the_doubles_stream_word_by_word(text: str) -> None:
    told: list[str] = []
    assert (await FunctionModel(lambda _: text).stream(ASK, told.append)).text == text
    assert "".join(told) == text
    assert len(told) == max(len(text.split()), bool(text))


# ---------------------------------------------------------------- through pydantic-ai


def theirs(*pieces: str | DeltaToolCalls | Exception) -> ProviderModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    return ProviderModel("theirs:double", TheirFunctionModel(stream_function=stream, model_name="double"))


async def test_a_providers_stream_is_told_and_put_together() -> None:
    told: list[str] = []
    call: DeltaToolCalls = {0: DeltaToolCall("search", '{"q": ', tool_call_id="c1")}
    rest: DeltaToolCalls = {0: DeltaToolCall(json_args='"x"}')}
    response = await theirs("Let me ", "look.", call, rest).stream(ASK, told.append)
    assert told == ["Let me ", "look."]
    assert response.text == "Let me look."
    assert tuple(response.tool_calls) == (kt.ToolCall("c1", "search", {"q": "x"}),)
    assert response.usage is not None


async def test_a_providers_stream_that_breaks_off_is_an_error_of_its_kind() -> None:
    told: list[str] = []
    with pytest.raises(ModelCallError) as caught:
        await theirs("Let me ", ConnectionResetError("gone")).stream(ASK, told.append)
    assert (told, caught.value.kind, caught.value.unspent) == (["Let me "], "connection", False)


@pytest.mark.parametrize("error", [kt.HaltError(kt.HaltReason.CANCELLED, kt.Usage(), "team"), KeyError("x")])
async def test_a_listeners_error_passes_through_a_providers_stream(error: Exception) -> None:
    def refuse(_: str) -> None:
        raise error

    governed, *_ = govern(theirs("Let me ", "look."))
    with pytest.raises(type(error)) as caught:
        await governed.stream(ASK, refuse)
    assert caught.value is error


async def test_a_providers_model_that_cannot_stream_tells_its_text_once() -> None:
    class Whole(Model):
        @property
        def model_name(self) -> str:
            return "whole"

        @property
        def system(self) -> str:
            return "theirs"

        async def request(self, *args: Any, **kwargs: Any) -> TheirResponse:
            return TheirResponse([TextPart("All at once.")])

    told: list[str] = []
    response = await ProviderModel("theirs:whole", Whole()).stream(ASK, told.append)
    assert told == [response.text] == ["All at once."]


# ---------------------------------------------------------------- the embedded model

HELLO = kt.ModelRequest([kt.Message.user("Say hello.")], max_tokens=12, settings={"temperature": 0})


@pytest.mark.local_model
async def test_the_embedded_model_streams_what_it_answers() -> None:
    told: list[str] = []
    response = await LocalModel().stream(HELLO, told.append)
    assert len(told) > 3
    assert "".join(told) == response.text == (await LocalModel().complete(HELLO)).text
    assert response.usage is not None


@pytest.mark.local_model
async def test_a_listeners_error_ends_the_embedded_models_call() -> None:
    told: list[str] = []

    def listen(text: str) -> None:
        told.append(text)
        if len(told) == 2:
            raise ValueError("enough")

    story = kt.ModelRequest([kt.Message.user("Tell a long story.")], max_tokens=2000)
    with pytest.raises(ValueError, match="enough"), anyio.fail_after(120):
        await LocalModel().stream(story, listen)
    assert len(told) == 2
    assert (await LocalModel().complete(HELLO)).text


@pytest.mark.local_model
async def test_nobody_is_told_anything_after_a_cancelled_stream() -> None:
    told: list[str] = []
    story = kt.ModelRequest([kt.Message.user("Tell a long story.")], max_tokens=2000)
    with anyio.move_on_after(0.5):
        await LocalModel().stream(story, told.append)
    count = len(told)
    await anyio.sleep(0.2)
    assert len(told) == count
