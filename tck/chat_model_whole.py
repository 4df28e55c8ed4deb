"""Nothing is lost on the way: all of the request, all of the reply, and a failure as its kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, Final

import pytest

from kairo_team._util.frozen import thaw
from kairo_team.budget import Usage
from kairo_team.errors import ModelCallError
from kairo_team.files import File
from kairo_team.messages import Message, ModelRequest, ModelResponse, ToolCall, ToolSpec
from kairo_team.tck.calls import skip_unless
from kairo_team.tck.chat_model_stage import ANSWER, IMAGE, ChatModelStage, Provider, ask, request_text
from kairo_team.tck.kit import clause

TOOLS: Final = (
    ToolSpec(
        "tide_table",
        "Return the tides of a harbour.",
        {
            "type": "object",
            "properties": {"harbour": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
            "required": ["harbour"],
        },
    ),
    ToolSpec("moon_phase", "Return the phase of the moon.", {"type": "object", "properties": {}}),
)
CALLS: Final = (
    ToolCall("call_a1", "tide_table", {"harbour": "Brest", "days": [1, 2]}),
    ToolCall("call_b2", "moon_phase", {}),
)
RESULTS: Final = ("high water at 14:20", "a waning moon")
SCHEMA: Final = {"type": "object", "properties": {"tide_height": {"type": "number"}}, "required": ["tide_height"]}
TEXT: Final = 'Two lines: \u6f6e and "quotes",\n\nand <b>a tag</b>.'
USAGE: Final = Usage(23, 5)


class WholeTests(ChatModelStage):
    """C12, C15 to C17."""

    @clause("C15", needs="has_provider")
    async def test_c15_messages_reach_its_provider_in_order_with_their_roles(self) -> None:
        sent = [Message.system("Be brief."), Message.user("First."), Message.assistant("Second."),
                Message.user("Third."), Message.assistant("Fourth."), Message.user("Fifth.")]  # fmt: skip
        seen = await self._seen(ModelRequest(sent, max_tokens=7))
        places = [request_text(seen).find(message.text) for message in sent]
        assert -1 not in places, f"of {[one.text for one in sent]} its provider was given {request_text(seen)!r:.500}"
        assert places == sorted(places), (
            f"messages were sent in order, and its provider got {request_text(seen)!r:.500}"
        )
        for message in sent:
            roles = [one.role for one in seen.messages if message.text in one.text]
            assert message.role in roles, (
                f"{message.text!r} is of the role {message.role!r}, and reached its provider with the roles {roles}"
            )

    @clause("C15", needs="has_provider")
    async def test_c15_the_text_of_a_prompt_is_not_changed(self) -> None:
        """Line breaks, quotes and other characters in a user's message."""
        seen = await self._seen(ModelRequest([Message.user(TEXT)], max_tokens=7))
        assert TEXT in request_text(seen), f"it was given {TEXT!r}, and its provider got {request_text(seen)!r:.300}"

    @clause("C12", "C15", needs="has_provider")
    async def test_c15_streamed_all_of_a_request_reaches_its_provider(self) -> None:
        """Tools, schema, settings and files, as in a request for a whole reply."""
        model = self.make_model_of(Provider())
        self.optional(model, "stream")
        file = File(data=IMAGE, media_type="image/png")
        problem: Any = getattr(model, "file_problem", None)
        takes_file = problem is not None and problem(file) is None
        request = ModelRequest(
            [Message.system("Be brief."), Message.user("Say.", [file] if takes_file else ())],
            TOOLS if self.takes_tools else (),
            SCHEMA if self.takes_schema else None,
            max_tokens=7,
            settings=dict(self.settings_taken),
        )
        given: dict[str, dict[str, Any]] = {}
        for way, arguments in (("complete", ()), ("stream", (str,))):
            provider = Provider(lambda _: ModelResponse('{"tide_height": 3}', usage=USAGE))
            await getattr(self.make_model_of(provider), way)(request, *arguments)
            given[way] = _parts(provider.requests[-1])
        for part, whole in given["complete"].items():
            assert given["stream"][part] == whole, (
                f"its provider was given the {part} {whole!r:.300}, and when streaming {given['stream'][part]!r:.300}"
            )

    @clause("C12", "C16", needs="has_provider")
    async def test_c16_a_streamed_reply_says_why_it_ended(self) -> None:
        for reason in ("stop", "length", "content_filter"):
            answer = ModelResponse("a fine text", usage=USAGE, finish_reason=reason)
            stream = self.optional(self.make_model_of(Provider(partial(_answered, answer))), "stream")
            reply = await stream(ask(), str)
            assert reply.finish_reason == reason, (
                f"its provider returned finish_reason {reason!r}, and streaming it returned {reply.finish_reason!r}"
            )

    @clause("C15", needs="has_provider takes_tools")
    async def test_c15_tools_reach_its_provider(self) -> None:
        seen = await self._seen(ModelRequest(ask().messages, TOOLS, max_tokens=7))
        sent, got = (
            [(one.name, one.description, thaw(one.parameters)) for one in some] for some in (TOOLS, seen.tools)
        )
        before, after = ([name for name, *_ in some] for some in (sent, got))
        assert after == before, f"the tools are {before}, and its provider was given {after}"
        for tool, seen_tool in zip(sent, got, strict=True):
            assert seen_tool == tool, f"the tool {tool} reached its provider as {seen_tool}"

    @clause("C15", needs="has_provider takes_tools")
    async def test_c15_calls_and_their_results_reach_its_provider(self) -> None:
        results = [Message.tool(call.id, text) for call, text in zip(CALLS, RESULTS, strict=True)]
        sent = [*ask().messages, Message.assistant("I look.", CALLS), *results, Message.user("And now?")]
        seen = await self._seen(ModelRequest(sent, TOOLS, max_tokens=7))
        calls = [*chain.from_iterable(message.tool_calls for message in seen.messages)]
        assert _said(calls) == _said(CALLS), f"the assistant called {_said(CALLS)}, and its provider got {_said(calls)}"
        ids = [call.id for call in calls]
        assert len(set(ids)) == len(ids), f"two calls reached its provider by one id: {ids}"
        for text, call in zip(RESULTS, calls, strict=True):
            named = [one.tool_call_id for one in seen.messages if one.role == "tool" and text in one.text]
            assert named == [call.id], (
                f"the result {text!r} answers the call {call.id!r}, and its provider got it for the calls {named}"
            )

    @clause("C15", needs="has_provider takes_schema")
    async def test_c15_the_schema_of_the_reply_reaches_its_provider(self) -> None:
        request = ModelRequest(ask().messages, output_schema=SCHEMA, max_tokens=7)
        answer = ModelResponse('{"tide_height": 3}', usage=USAGE)
        seen = await self._seen(request, answer)
        if "tide_height" not in request_text(seen):  # a schema may be put into the prompt
            assert seen.output_schema is not None, "a reply by a schema was asked for, and its provider was given none"
            given = thaw(seen.output_schema)
            assert "tide_height" in repr(given), f"the schema is {SCHEMA}, and its provider was given {given}"

    @clause("C15", needs="has_provider settings_taken")
    async def test_c15_settings_reach_its_provider(self) -> None:
        taken = dict(self.settings_taken)
        seen = await self._seen(ModelRequest(ask().messages, max_tokens=7, settings=taken))
        got = {name: seen.settings[name] for name in taken if name in seen.settings}
        assert got == taken, f"the settings are {taken}, and its provider was given {got}"

    @clause("C15", needs="has_provider settings_taken")
    async def test_c15_a_setting_of_zero_reaches_its_provider(self) -> None:
        """The temperature of judges is 0: left out, the provider's own counts."""
        skip_unless("temperature" in self.settings_taken, "'temperature' is not in settings_taken")
        seen = await self._seen(ModelRequest(ask().messages, max_tokens=7, settings={"temperature": 0.0}))
        got = seen.settings.get("temperature")
        assert got == 0, f"the temperature is 0, and its provider was given {got!r}"

    @clause("C15", needs="has_provider")
    async def test_c15_what_it_cannot_send_it_refuses(self) -> None:
        cannot = {
            "tools": (self.takes_tools, ModelRequest(ask().messages, TOOLS, max_tokens=7)),
            "a schema": (self.takes_schema, ModelRequest(ask().messages, output_schema=SCHEMA, max_tokens=7)),
        }
        refused = {what: request for what, (takes, request) in cannot.items() if not takes}
        if not refused:
            pytest.skip("it takes tools and schemas")
        for what, request in refused.items():
            provider = Provider()
            model = self.make_model_of(provider)
            outcome: Any = None
            try:
                outcome = await model.complete(request)
            except ModelCallError as error:
                outcome = error
            assert isinstance(outcome, ModelCallError), (
                f"it cannot send {what}; that is a ModelCallError, and it replied {outcome!r:.200}"
            )
            assert not provider.requests, f"it cannot send {what}, and asked its provider all the same"

    @clause("C16", needs="has_provider")
    async def test_c16_the_text_of_the_reply_is_whole(self) -> None:
        reply = await self._reply(ModelResponse(TEXT, usage=USAGE))
        assert reply.text == TEXT, f"its provider answered {TEXT!r}, and it returned {reply.text!r}"

    @clause("C16", needs="has_provider takes_tools")
    async def test_c16_the_calls_of_the_reply_are_whole(self) -> None:
        reply = await self._reply(ModelResponse("I look.", CALLS, usage=USAGE), TOOLS)
        _assert_calls(reply)
        assert "I look." in reply.text, f"with its calls its provider said 'I look.', and it returned {reply.text!r}"
        alone = await self._reply(ModelResponse("", CALLS[:1], usage=USAGE), TOOLS)
        assert _said(alone.tool_calls) == _said(CALLS[:1]), (
            f"without a text its provider called {_said(CALLS[:1])}, and it returned {_said(alone.tool_calls)}"
        )

    @clause("C16", needs="has_provider")
    async def test_c16_a_reply_that_a_filter_cut_says_so(self) -> None:
        reply = await self._reply(ModelResponse("I must not", usage=USAGE, finish_reason="content_filter"))
        assert reply.finish_reason == "content_filter", (
            f"its provider's filter cut the reply, and it returned finish_reason {reply.finish_reason!r}"
        )

    @clause("C12", "C16", needs="has_provider takes_tools")
    async def test_c16_the_calls_of_a_streamed_reply_are_whole(self) -> None:
        answer = ModelResponse("I look.", CALLS, usage=USAGE)
        stream = self.optional(self.make_model_of(Provider(lambda _: answer)), "stream")
        pieces: list[str] = []
        reply = await stream(ModelRequest(ask().messages, TOOLS, max_tokens=7), pieces.append)
        _assert_calls(reply)
        assert "".join(pieces) == reply.text, f"the reply is {reply.text!r}, and the pieces are {pieces}"

    @clause("C17", needs="has_provider failure_kinds")
    async def test_c17_a_failure_keeps_its_kind(self) -> None:
        ways: list[tuple[str, Callable[[Any], Any]]] = [("complete", lambda model: model.complete(ask()))]
        if getattr(self.make_model_of(Provider()), "stream", None) is not None:
            ways.append(("stream", lambda model: model.stream(ask(), str)))
        for kind in self.failure_kinds:
            for way, call in ways:
                failure = ModelCallError(kind, "test:provider", f"it failed by {kind}")
                outcome: Any = None
                try:
                    outcome = await call(self.make_model_of(Provider(_failing(failure))))
                except Exception as error:  # noqa: BLE001 - whatever it raises is looked at
                    outcome = error
                assert isinstance(outcome, ModelCallError), (
                    f"in {way} its provider failed by {kind!r}; that is a ModelCallError of this kind, and it gave "
                    f"{outcome!r:.200}"
                )
                assert outcome.kind == kind, (
                    f"in {way} its provider failed by {kind!r}, and it raised a ModelCallError of the kind "
                    f"{outcome.kind!r}: {outcome.why}"
                )

    @clause("C17", needs="has_provider failure_kinds")
    async def test_c17_the_wait_that_its_provider_asks_for_is_told(self) -> None:
        if "rate_limited" not in self.failure_kinds:
            pytest.skip("'rate_limited' is not in failure_kinds")
        failure = ModelCallError("rate_limited", "test:provider", "slow down", retry_after=7, unspent=True)
        for way, arguments in (("complete", ()), ("stream", (str,))):
            call: Any = getattr(self.make_model_of(Provider(_failing(failure))), way, None)
            if call is None:
                continue
            with pytest.raises(ModelCallError) as raised:
                await call(ask(), *arguments)
            wait = raised.value.retry_after
            assert wait == 7, f"in {way} its provider asked for a wait of 7 seconds, and retry_after is {wait!r}"

    async def _seen(self, request: ModelRequest, answer: ModelResponse = ANSWER) -> ModelRequest:
        """Return what the model's provider gets of a request."""
        provider = Provider(lambda _: answer)
        await self.make_model_of(provider).complete(request)
        assert provider.requests, "it replied, and its provider was not asked"
        return provider.requests[-1]

    async def _reply(self, answer: ModelResponse, tools: tuple[ToolSpec, ...] = ()) -> ModelResponse:
        """Return what the model makes of its provider's answer."""
        return await self.make_model_of(Provider(lambda _: answer)).complete(
            ModelRequest(ask().messages, tools, max_tokens=7)
        )


def _answered(answer: ModelResponse, _: ModelRequest) -> ModelResponse:
    return answer


def _parts(request: ModelRequest) -> dict[str, Any]:
    """Return the parts of a request by name, except the texts of its messages."""
    return {
        "tools": [(one.name, thaw(one.parameters)) for one in request.tools],
        "schema": thaw(request.output_schema),
        "settings": thaw(request.settings),
        "limit": request.max_tokens,
        "files": list(request.files),
    }


def _said(calls: Any) -> list[tuple[str, Any]]:
    """Return names and arguments of calls, without ids, which a model may rewrite."""
    return [(call.name, thaw(call.arguments)) for call in calls]


def _assert_calls(reply: ModelResponse) -> None:
    assert _said(reply.tool_calls) == _said(CALLS), (
        f"its provider called {_said(CALLS)}, and it returned {_said(reply.tool_calls)}"
    )
    ids = [call.id for call in reply.tool_calls]
    assert all(ids), f"a call of its reply has no id: {ids}"
    assert len(set(ids)) == len(ids), f"two calls of its reply have one id: {ids}"


def _failing(failure: ModelCallError) -> Callable[[ModelRequest], ModelResponse]:
    def fail(request: ModelRequest) -> ModelResponse:
        raise failure

    return fail
