"""Calls that are cut off or fail, and replies that come in pieces."""

from __future__ import annotations

from typing import get_args

import anyio
import pytest

from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelCallError, ModelErrorKind
from kairo_team.files import File
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.tck.calls import skip_unless
from kairo_team.tck.chat_model_stage import (
    IMAGE,
    LONG,
    OTHER_IMAGE,
    PROMPT,
    SOON,
    ChatModelStage,
    Provider,
    ask,
    request_text,
)
from kairo_team.tck.kit import clause


class EndTests(ChatModelStage):
    """C6, C8, C9, C12, C13."""

    @clause("C6")
    async def test_c06_cancelled_at_once_it_raises_nothing_else(self) -> None:
        model = self.make_model()
        await _cancelled(model, ask("Tell a long story of the sea.", 64), 0)
        await _still_answers(model)

    @clause("C6")
    async def test_c06_cancelled_on_its_way_it_ends_soon(self) -> None:
        model = self.make_model()
        await _cancelled(model, ask("Tell a long story of the sea.", 64), SOON)
        await _still_answers(model)

    @clause("C6", needs="has_provider")
    async def test_c06_cancelled_while_its_provider_is_silent_it_ends_at_once(self) -> None:
        provider = Provider(seconds=LONG)
        ended = await _cancelled(self.make_model_of(provider), ask(), SOON)
        assert ended, "its provider never answered, and the call returned although it was cancelled"
        assert provider.in_flight == 0, "the call was cancelled, and is still running"
        assert len(provider.requests) == 1, f"cancelled, it asked its provider {len(provider.requests)} times"

    @clause("C8", needs="can_fail")
    async def test_c08_a_provider_that_does_not_answer_is_a_model_call_error(self) -> None:
        error = await _failure(self.make_failing_model())
        assert error.kind in get_args(ModelErrorKind), f"{error.kind!r} is none of {get_args(ModelErrorKind)}"
        assert error.model, "the error does not name the model"
        after = error.retry_after
        assert after is None or after >= 0, f"retry_after is {after!r} seconds"

    @clause("C8", needs="can_fail")
    async def test_c08_a_failure_is_no_reply_in_pieces_either(self) -> None:
        model = self.make_failing_model()
        stream = self.optional(model, "stream")
        pieces: list[str] = []
        with pytest.raises(ModelCallError):
            await stream(ask(), pieces.append)
        assert not pieces, f"its provider did not answer, and it gave its listener {pieces}"

    @clause("C8", needs="has_provider")
    async def test_c08_its_provider_s_failure_is_no_reply(self) -> None:
        await _failure(self.make_model_of(Provider(_refuse)))

    @clause("C9", needs="has_provider")
    async def test_c09_it_asks_once_where_its_provider_fails(self) -> None:
        provider = Provider(_refuse)
        with pytest.raises(ModelCallError):
            await self.make_model_of(provider).complete(ask())
        asked = len(provider.requests)
        assert asked == 1, f"its provider failed, and it asked {asked} times: only one of them is held and counted"

    @clause("C9", needs="has_provider")
    async def test_c09_it_asks_once_where_its_provider_answers(self) -> None:
        provider = Provider()
        await self.make_model_of(provider).complete(ask())
        assert len(provider.requests) == 1, f"for one call it asked its provider {len(provider.requests)} times"

    @clause("C12")
    async def test_c12_the_pieces_are_the_text_of_the_reply(self) -> None:
        stream = self.optional(self.make_model(), "stream")
        pieces: list[str] = []
        response = await stream(ask(max_tokens=8), pieces.append)
        assert isinstance(response, ModelResponse), f"stream returned {response!r:.200}"
        odd = [piece for piece in pieces if not isinstance(piece, str)]
        assert not odd, f"pieces must be text, not {odd!r:.200}"
        assert "".join(pieces) == response.text, f"the reply is {response.text!r}, and the pieces are {pieces}"

    @clause("C12", needs="has_provider")
    async def test_c12_the_pieces_are_what_its_provider_said(self) -> None:
        provider = Provider()
        stream = self.optional(self.make_model_of(provider), "stream")
        pieces: list[str] = []
        response = await stream(ask(), pieces.append)
        assert "".join(pieces) == "a fine text", f"its provider answered 'a fine text', and the listener got {pieces}"
        assert len(provider.requests) == 1, f"to stream one reply it asked its provider {len(provider.requests)} times"
        seen = response.usage
        assert seen is not None, "its provider reported usage, and streaming it reports none"
        assert (seen.prompt_tokens, seen.completion_tokens) == (23, 5), (
            f"its provider reported 23 and 5 tokens, it reports {seen}"
        )

    @clause("C12", needs="has_provider")
    async def test_c12_streamed_its_provider_is_told_the_same(self) -> None:
        """A streamed request is like one for a whole reply: this request and its limit, nothing of earlier ones."""
        requests: dict[str, list[tuple[str, int | None]]] = {}
        pieces: list[str] = []
        for way in ("complete", "stream"):
            provider = Provider()
            model = self.make_model_of(provider)
            call = self.optional(model, way)
            for text in ("Keep the word hippopotamus in mind.", "Say what tides are."):
                await (call(ask(text, 7)) if way == "complete" else call(ask(text, 7), pieces.append))
            requests[way] = [(request_text(request), request.max_tokens) for request in provider.requests]
        assert requests["stream"] == requests["complete"], (
            f"its provider was given {requests['complete']}, and when streaming {requests['stream']}"
        )

    @clause("C12")
    async def test_c12_what_its_listener_raises_ends_the_call(self) -> None:
        stream = self.optional(self.make_model(), "stream")
        pieces: list[str] = []

        def listen(piece: str) -> None:
            pieces.append(piece)
            raise LookupError("the listener failed")

        try:
            response = await stream(ask(max_tokens=8), listen)
        except Exception:  # noqa: BLE001 - the listener's own error, or one that it became on its way
            assert len(pieces) == 1, f"the listener raised at the first piece, and was called with {pieces}"
        else:
            assert not response.text, f"the listener raised, and the call replied {response!r:.200}"

    @clause("C12")
    async def test_c12_nothing_is_told_once_it_is_cancelled(self) -> None:
        stream = self.optional(self.make_model(), "stream")
        pieces: list[str] = []
        with anyio.move_on_after(SOON):
            await stream(ask("Tell a long story of the sea.", 64), pieces.append)
        emitted = len(pieces)
        await anyio.sleep(SOON)
        assert len(pieces) == emitted, f"the call was over, and the listener was called again with {pieces[emitted:]}"

    @clause("C13", needs="has_provider")
    async def test_c13_a_file_reaches_its_provider_or_is_refused(self) -> None:
        image = File(data=IMAGE, media_type="image/png", name="dot.png")
        for message in (Message.user("What is this?", [image]), Message.user("", [image])):
            provider = Provider()
            model = self.make_model_of(provider)
            problem = self.optional(model, "file_problem")(image)
            request = ModelRequest([message], max_tokens=6)
            if problem is not None:
                assert isinstance(problem, str), f"file_problem returned {problem!r:.200}, not a sentence or None"
                assert problem.strip(), "file_problem refuses a file without a reason"
                with pytest.raises(ModelCallError):
                    await model.complete(request)
                assert not provider.requests, "it refused a file, and its provider was asked all the same"
                continue
            await model.complete(request)
            assert provider.requests, "it takes the file, and its provider was not asked"
            given = list(provider.requests[-1].files)
            assert given == [image], f"it takes files, was given {image}, and its provider got {given}"

    @clause("C13", "C15", needs="has_provider")
    async def test_c13_files_leave_nothing_else_out(self) -> None:
        """Several files with a text, after instructions and an earlier message."""
        files = [
            File(data=IMAGE, media_type="image/png", name="dot.png"),
            File(data=OTHER_IMAGE, media_type="image/png"),
        ]
        sent = [Message.system("Be brief."), Message.user("First."), Message.assistant("Second."),
                Message.user("What are these?", files)]  # fmt: skip
        provider = Provider()
        model = self.make_model_of(provider)
        ask_problem = self.optional(model, "file_problem")
        skip_unless(all(ask_problem(file) is None for file in files), "it takes no images")
        await model.complete(ModelRequest(sent, max_tokens=6))
        seen = provider.requests[-1]
        missing = [one.text for one in sent if one.text not in request_text(seen)]
        assert not missing, f"with files in the request, its provider was not given {missing}"
        assert list(seen.files) == files, f"it was given {len(files)} files, and its provider got {list(seen.files)}"


def _refuse(request: ModelRequest) -> ModelResponse:
    raise ModelCallError("overloaded", "test:provider", "too much to do", unspent=True)


async def _failure(model: ChatModel) -> ModelCallError:
    try:
        response = await model.complete(ask())
    except ModelCallError as error:
        return error
    except Exception as error:
        raise AssertionError(f"a provider that does not answer is a ModelCallError, not {error!r}") from error
    raise AssertionError(f"its provider did not answer, and it replied {response!r:.200}")


async def _cancelled(model: ChatModel, request: ModelRequest, after: float) -> bool:
    """Cancel a call; return whether the cancellation ended it, and not a reply."""
    began = anyio.current_time()
    response = None
    with anyio.move_on_after(after) as scope:
        response = await model.complete(request)
    took = anyio.current_time() - began
    assert took < after + PROMPT, f"cancelled after {after:g} seconds, it ended after {took:g}"
    return scope.cancelled_caught and response is None


async def _still_answers(model: ChatModel) -> None:
    response = await model.complete(ask())
    assert isinstance(response, ModelResponse), f"after a call was cancelled, the next returned {response!r:.200}"
