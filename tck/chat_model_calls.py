"""The answers of a chat model: to one request, to many at once, within its limit, and the reported usage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kairo_team._util.frozen import thaw
from kairo_team.budget import Usage, to_picodollars
from kairo_team.contracts import ChatModel
from kairo_team.messages import Billing, Message, ModelRequest, ModelResponse, ToolCall, ToolSpec
from kairo_team.tck.calls import at_once
from kairo_team.tck.chat_model_stage import ChatModelStage, Provider, ask, reported_usage, request_text
from kairo_team.tck.kit import clause

TEXTS: Final = ("Hello.", "Say nothing of the moon, nor of the sun.")
"""Prompts of different lengths."""
ODD: Final = (
    "a" * 40 + "0123456789" * 3,
    "\u6f6e\u6c50\u662f\u4ec0\u4e48" * 3 + "\U0001f30a\U0001f319" * 5,
    " \n\t" * 9 + "e\u0301\u0300\u0323" * 6,
    "<|im_end|>[INST]</s>" * 3,
)
"""Texts with more tokens than their number of words or characters suggests."""
SPECS: Final = (ToolSpec("look", "Look something up. " * 3, {"type": "object", "properties": {"text": {}}}),)
SPENT: Final = [Usage(), Usage(0, 1), Usage(1, 0), Usage(1, 1), Usage(900, 100), Usage(10**9, 10**9)]
"""Usages of which each has at least as many tokens, of every kind, as the one two places before."""


class CallTests(ChatModelStage):
    """C1 to C5, C7, C10, C11."""

    @clause("C1")
    async def test_c01_its_name_is_that_of_a_provider_and_a_model(self) -> None:
        model = self.make_model()
        assert isinstance(model, ChatModel), f"{model!r} has no name and complete(request)"
        before = model.name
        provider, colon, name = before.partition(":")
        assert all((provider, colon, name)), f"its name must be 'provider:model', and is {before!r}"
        await model.complete(ask())
        assert model.name == before, f"its name was {before!r}, and after a call it is {model.name!r}"

    @clause("C1")
    async def test_c01_it_answers_with_a_response(self) -> None:
        response = await self.make_model().complete(ask())
        assert isinstance(response, ModelResponse), f"complete returned {response!r:.200}"
        assert isinstance(response.text, str), f"the text of its reply is {response.text!r:.200}"
        assert all(isinstance(call, ToolCall) for call in response.tool_calls), f"tool calls {response.tool_calls!r}"
        assert response.usage is None or isinstance(response.usage, Usage), f"its usage is {response.usage!r}"
        assert response.finish_reason in {"stop", "length", "content_filter"}, f"it ended by {response.finish_reason!r}"

    @clause("C1", needs="has_provider")
    async def test_c01_its_provider_is_told_all_that_is_asked(self) -> None:
        provider = Provider()
        request = ModelRequest([Message.system("Be brief."), Message.user("Ask."), Message.assistant("What?"),
                                Message.user("Tides.")], max_tokens=7)  # fmt: skip
        response = await self.make_model_of(provider).complete(request)
        (seen,) = provider.requests
        missing = [one.text for one in request.messages if one.text not in request_text(seen)]
        assert not missing, f"its provider was not given {missing}"
        assert response.text == "a fine text", f"its provider answered 'a fine text', and it returned {response.text!r}"

    @clause("C1", needs="has_provider")
    async def test_c01_a_reply_that_was_cut_off_says_so(self) -> None:
        for reason in ("stop", "length"):
            provider = Provider(_always(ModelResponse("a fine text", usage=Usage(23, 5), finish_reason=reason)))
            response = await self.make_model_of(provider).complete(ask())
            assert response.finish_reason == reason, (
                f"its provider returned finish_reason {reason!r}, and it returned {response.finish_reason!r}"
            )

    @clause("C2")
    async def test_c02_what_was_asked_before_is_no_part_of_a_prompt(self) -> None:
        model = self.make_model()
        first = reported_usage(await model.complete(ask()))
        await model.complete(ask(TEXTS[1]))
        again = reported_usage(await model.complete(ask()))
        assert again.prompt_tokens <= first.prompt_tokens, (
            f"the same prompt had {first.prompt_tokens} tokens, and after another {again.prompt_tokens}"
        )

    @clause("C2", needs="has_provider")
    async def test_c02_its_provider_is_told_nothing_of_earlier_calls(self) -> None:
        provider = Provider()
        model = self.make_model_of(provider)
        await model.complete(ask("Keep the word hippopotamus in mind."))
        await model.complete(ask())
        assert "hippopotamus" not in request_text(provider.requests[-1]), (
            "its provider was given an earlier request again"
        )
        assert "a fine text" not in request_text(provider.requests[-1]), (
            "its provider was given its earlier reply again"
        )

    @clause("C3")
    async def test_c03_calls_at_once_are_told_the_usage_of_their_own(self) -> None:
        model = self.make_model()
        requests = [ask(text, 1) for text in TEXTS]
        alone = [reported_usage(await model.complete(request)).prompt_tokens for request in requests]
        shared = self.make_model()
        together = await at_once(partial(shared.complete, request) for request in requests)
        seen = [response.usage.prompt_tokens if response.usage else None for response in together]
        assert seen == alone, f"prompts have {alone} tokens one by one, and {seen} at once"

    @clause("C3", needs="has_provider")
    async def test_c03_calls_at_once_get_the_replies_of_their_own(self) -> None:
        provider = Provider(
            lambda request: ModelResponse(request_text(request).rpartition(" ")[2], usage=Usage(9, 1)), 0.05
        )
        asked = [f"Repeat word-{number}" for number in range(8)]
        model = self.make_model_of(provider)
        replies = await at_once(partial(model.complete, ask(text)) for text in asked)
        texts = [reply.text for reply in replies]
        assert texts == [text.rpartition(" ")[2] for text in asked], (
            f"asked for word-0 to word-7 at once, it returned {texts}"
        )

    @clause("C4")
    async def test_c04_a_reply_is_never_longer_than_it_may_be(self) -> None:
        for most in (1, 8):
            response = await self.make_model().complete(ask("Tell a long story of the sea.", most))
            spent = reported_usage(response).completion_tokens
            assert spent <= most, f"a reply of at most {most} tokens has {spent}"

    @clause("C4")
    async def test_c04_what_it_says_is_its_longest_reply(self) -> None:
        model = self.make_model()
        most = self.optional(model, "max_output_tokens")
        assert type(most) is int, f"max_output_tokens is {most!r}"
        assert most >= 1, f"max_output_tokens is {most!r}"
        spent = reported_usage(await model.complete(ask(max_tokens=None))).completion_tokens
        assert spent <= most, f"max_output_tokens is {most}, and a reply has {spent} tokens"

    @clause("C4", needs="has_provider")
    async def test_c04_its_provider_is_told_the_limit(self) -> None:
        provider = Provider()
        await self.make_model_of(provider).complete(ask(max_tokens=7))
        most = provider.requests[0].max_tokens
        assert most is not None, "a reply may have 7 tokens, and its provider was given no limit"
        assert most <= 7, f"a reply may have 7 tokens, and its provider was given {most}"

    @clause("C5")
    async def test_c05_what_it_used_is_not_nothing(self) -> None:
        response = await self.make_model().complete(ask())
        usage = reported_usage(response)
        assert usage.prompt_tokens > 0, f"a prompt was read, and it reports {usage}; report None where usage is unknown"
        assert usage.completion_tokens > 0 or not response.text.strip(), f"a reply was made, and it reports {usage}"

    @clause("C5", needs="has_provider")
    async def test_c05_it_tells_what_its_provider_told(self) -> None:
        usage = reported_usage(await self.make_model_of(Provider()).complete(ask()))
        seen = (usage.prompt_tokens, usage.completion_tokens)
        assert seen == (23, 5), f"its provider reported 23 and 5 tokens, it reports {seen}"

    @clause("C5", needs="has_provider")
    async def test_c05_cached_tokens_are_part_of_the_prompt(self) -> None:
        """A provider reports them apart, and counts them among the tokens of the prompt."""
        answer = ModelResponse("a fine text", usage=Usage(23, 5), billing=Billing(cached_tokens=20))
        usage = reported_usage(await self.make_model_of(Provider(_always(answer))).complete(ask()))
        seen = (usage.prompt_tokens, usage.completion_tokens)
        assert seen == (23, 5), f"its provider reported 23 tokens, 20 of them cached, and 5; it reports {seen}"

    @clause("C5", needs="has_provider")
    async def test_c05_what_its_provider_does_not_tell_is_unknown(self) -> None:
        response = await self.make_model_of(Provider(lambda _: ModelResponse("a fine text"))).complete(ask())
        assert response.usage is None, (
            f"its provider reported no usage, it reports {response.usage}; report None where usage is unknown"
        )

    @clause("C7")
    async def test_c07_the_request_stays_as_it_was(self) -> None:
        request = ModelRequest(ask().messages, SPECS, max_tokens=8)
        before = (_written(request), id(request.messages), id(request.tools))
        await self.make_model().complete(request)
        assert (_written(request), id(request.messages), id(request.tools)) == before, f"it changed {request!r:.500}"

    @clause("C10")
    async def test_c10_its_count_is_never_less_than_its_provider_s(self) -> None:
        model = self.make_model()
        count = self.optional(model, "count_tokens")
        for text in (TEXTS[0], *ODD):
            request = ask(text, max_tokens=1)
            bound = await count(request)
            prompt = reported_usage(await model.complete(request)).prompt_tokens
            assert bound >= prompt, (
                f"a prompt has {prompt} tokens, and count_tokens returned {bound}: {text[:30]!r} ..."
            )

    @clause("C10")
    async def test_c10_tools_are_counted(self) -> None:
        model = self.make_model()
        count = self.optional(model, "count_tokens")
        request = ModelRequest(ask().messages, SPECS, max_tokens=1)
        bound, prompt = await count(request), reported_usage(await model.complete(request)).prompt_tokens
        assert bound >= prompt, f"a prompt with a tool has {prompt} tokens, and count_tokens returned {bound}"

    @clause("C11")
    async def test_c11_its_price_is_an_amount(self) -> None:
        price = self.optional(self.make_model(), "price")
        for usage in SPENT:
            amount = price(usage)
            picos = to_picodollars(amount, field=f"price({usage})")
            assert picos >= 0
            assert price(usage) == amount, f"{usage} cost {amount}, and asked again {price(usage)}"

    @clause("C11")
    async def test_c11_more_tokens_cost_no_less(self) -> None:
        price = self.optional(self.make_model(), "price")
        amounts = [to_picodollars(price(usage)) for usage in SPENT[3:]]
        assert amounts == sorted(amounts), f"more and more tokens cost {amounts} trillionths of a dollar"


def _always(reply: ModelResponse) -> Callable[[ModelRequest], ModelResponse]:
    return lambda _: reply


def _written(request: ModelRequest) -> str:
    parts = [
        request.messages,
        request.max_tokens,
        thaw(request.settings),
        [thaw(tool.parameters) for tool in request.tools],
    ]
    return repr(parts)
