"""Replies in the provider's own form: they go back whole, and nothing else does."""

from __future__ import annotations

from typing import Final

from kairo_team.budget import Usage
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.tck.chat_model_stage import ChatModelStage, Provider, ask, request_text
from kairo_team.tck.kit import clause

NATIVE: Final = '{"thought": "the moon, surely", "text": "a fine text"}'
STRANGE: Final = ("", "{not JSON", "[]", '{"reader": "another library", "reply": {"parts": 1}}')
"""Native forms that no model of this kind has written."""


class NativeTests(ChatModelStage):
    """C14."""

    @clause("C14", needs="has_provider")
    async def test_c14_the_native_form_of_its_reply_goes_back(self) -> None:
        provider = Provider(lambda _: ModelResponse("a fine text", usage=Usage(23, 5), native=NATIVE))
        model = self.make_model_of(provider)
        reply = await model.complete(ask())
        await model.complete(_after(reply.text, reply.native))
        assert reply.text in request_text(provider.requests[-1]), f"its provider was not given {reply.text!r} again"
        if reply.native is not None:
            given = [message.native for message in provider.requests[-1].messages]
            assert NATIVE in given, f"its reply has a native form, and in the next request its provider got {given}"

    @clause("C14", needs="has_provider")
    async def test_c14_a_message_that_was_changed_is_sent_as_it_is(self) -> None:
        provider = Provider(lambda _: ModelResponse("a fine text", usage=Usage(23, 5), native=NATIVE))
        model = self.make_model_of(provider)
        reply = await model.complete(ask())
        await model.complete(_after("another text", reply.native))
        seen = request_text(provider.requests[-1])
        assert "another text" in seen, f"the message says 'another text', and its provider was given {seen!r}"
        assert "a fine text" not in seen, "the message was changed, and its provider was given the reply as it was"

    @clause("C14")
    async def test_c14_a_native_form_of_another_model_is_ignored(self) -> None:
        for native in STRANGE:
            response = await self.make_model().complete(_after("What?", native))
            assert isinstance(response, ModelResponse), (
                f"a message with the native form {native!r} got {response!r:.200}"
            )

    @clause("C14", needs="has_provider")
    async def test_c14_with_a_native_form_of_another_model_the_text_is_sent(self) -> None:
        for native in STRANGE:
            provider = Provider()
            await self.make_model_of(provider).complete(_after("What?", native))
            seen = request_text(provider.requests[0])
            assert "What?" in seen, f"with the native form {native!r} its provider was given {seen!r}"


def _after(text: str, native: str | None) -> ModelRequest:
    """Make a request after a reply with that text."""
    first = ask()
    reply = Message.assistant(text, native=native)
    return ModelRequest([*first.messages, reply, Message.user("Go on.")], max_tokens=6)
