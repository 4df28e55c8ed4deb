"""Wrong chat models: each passes its requests on to a provider, in one way wrongly."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar

import anyio
from anyio.lowlevel import checkpoint

import kairo_team as kt
from kairo_team.errors import ModelCallError
from kairo_team.tck import ChatModelTCK
from kairo_team.testing import FunctionModel
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()

Answer = Callable[[kt.ModelRequest], Awaitable[kt.ModelResponse]]
STORY = "Once upon a time the sea went out and did not come back for many a year. " * 3


class Good:
    """A good model: it hands requests on, and replies back."""

    name = "test:adapter"

    def __init__(self, ask: Answer) -> None:
        self.ask = ask
        self.notes: list[Any] = []

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return await self.ask(request)

    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        response = await self.complete(request)
        for letter in response.text:
            await checkpoint()
            tell(letter)
        return response

    async def count_tokens(self, request: kt.ModelRequest) -> int:
        return sum(len(message.text.split()) for message in request.messages)

    def price(self, usage: kt.Usage) -> Any:
        return Decimal(usage.tokens) / 1000

    def file_problem(self, file: kt.File) -> str | None:
        return None


class Kit(ChatModelTCK):
    """The good model, unchanged."""

    has_provider = True
    model: ClassVar[type[Good]] = Good

    @classmethod
    def make_model(cls) -> Good:
        return cls.model(FunctionModel(lambda _: STORY).complete)

    @classmethod
    def make_model_of(cls, provider: Any) -> Good:
        return cls.model(provider.answer)

    @classmethod
    def make_failing_model(cls) -> Good:
        async def refuse(request: kt.ModelRequest) -> kt.ModelResponse:
            raise ModelCallError("overloaded", "test:adapter", "too much to do")

        return cls.model(refuse)


class _ChangesItsName(Good):
    @property
    def name(self) -> str:  # type: ignore[override]  # it is wrong
        return f"test:adapter-{len(self.notes)}"

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.notes.append(request)
        return await super().complete(request)


@mutant(clause="C1")
class ChangesItsName(Kit):
    """Prices and limits of its first call are not those of its second."""

    model = _ChangesItsName


class _KeepsAConversation(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.notes += request.messages
        response = await self.ask(replace(request, messages=list(self.notes)))
        self.notes.append(kt.Message.assistant(response.text))
        return response


@mutant("T16", clause="C2")
class KeepsAConversation(Kit):
    """Every prompt has in it all that was asked before."""

    model = _KeepsAConversation


class _MixesReplies(Good):
    last: Any = None

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.last = request
        await checkpoint()
        return await self.ask(self.last)


@mutant("E10", clause="C3")
class MixesReplies(Kit):
    """The request at hand is kept on the model, where the next one overwrites it."""

    model = _MixesReplies


class _NeverReadsTheLimit(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return await self.ask(replace(request, max_tokens=None))


@mutant("B23", "B05", clause="C4")
class NeverReadsTheLimit(Kit):
    """A reply is as long as the provider likes, and the budget learns of it when it is paid."""

    model = _NeverReadsTheLimit


class _ReportsNothing(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        response = await self.ask(request)
        return replace(response, usage=kt.Usage())


@mutant("B17", clause="C5")
class ReportsNothing(Kit):
    """Its replies say that they used no tokens: a cap never binds."""

    model = _ReportsNothing


class _Guesses(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        response = await self.ask(request)
        return replace(response, usage=response.usage or kt.Usage(1, len(response.text) // 4))


@mutant("B17", clause="C5")
class GuessesWhatIsNotTold(Kit):
    """Where its provider does not say what it used, it makes numbers up."""

    model = _Guesses


class _DropsZeros(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        settings = {name: value for name, value in request.settings.items() if value}
        return await self.ask(replace(request, settings=settings))


@mutant(clause="C15", by="setting_of_zero")
class DropsZeros(Kit):
    """A setting of 0 is left out, as if it was not given."""

    model = _DropsZeros


class _LosesTheWaitOfAStream(Good):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        try:
            return await super().stream(request, tell)
        except ModelCallError as error:
            raise ModelCallError(error.kind, self.name, error.why) from error


@mutant(clause="C17", by="the_wait_that")
class LosesTheWaitOfAStream(Kit):
    """Streamed, the wait that its provider asks for is lost."""

    model = _LosesTheWaitOfAStream


class _CallsCancellationAnError(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        try:
            return await self.ask(request)
        except BaseException as error:
            raise ModelCallError("timeout", self.name, repr(error)) from error


@mutant("U05", "G07", clause="C6")
class CallsCancellationAnError(Kit):
    """A cancelled call is reported as the provider's failure, and tried again."""

    model = _CallsCancellationAnError


class _FinishesItsCalls(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        replies: list[kt.ModelResponse] = []
        with anyio.CancelScope(shield=True):
            replies.append(await self.ask(request))
        return replies[0]


@mutant("B15", clause="C6")
class FinishesItsCalls(Kit):
    """A call that hangs cannot be cancelled."""

    model = _FinishesItsCalls


class _ChangesTheRequest(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        object.__setattr__(request, "max_tokens", request.max_tokens or 100)
        object.__setattr__(request, "messages", (kt.Message.system("Be nice."), *request.messages))
        return await self.ask(request)


@mutant("T12", clause="C7")
class ChangesTheRequest(Kit):
    """What one model adds to a request is in it when the next one is asked."""

    model = _ChangesTheRequest


class _AnswersWithTheError(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        try:
            return await self.ask(request)
        except ModelCallError as error:
            return kt.ModelResponse(f"Sorry: {error}", usage=kt.Usage(1, 1))


@mutant("T27", "E02", clause="C8")
class AnswersWithTheError(Kit):
    """The text of an outage is a reply."""

    model = _AnswersWithTheError


class _FlattensErrors(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        try:
            return await self.ask(request)
        except ModelCallError as error:
            raise RuntimeError(str(error)) from None


@mutant("E04", clause="C8")
class FlattensErrors(Kit):
    """Nobody can tell an outage from a wrong request."""

    model = _FlattensErrors


class _TriesAgainItself(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        try:
            return await self.ask(request)
        except ModelCallError:
            return await self.ask(request)


@mutant("B13", clause="C9")
class TriesAgainItself(Kit):
    """It makes a failed call again, and only one of the two is counted."""

    model = _TriesAgainItself


class _CountsWordsOfTheLast(Good):
    async def count_tokens(self, request: kt.ModelRequest) -> int:
        return len(request.messages[-1].text.split())


@mutant("B01", clause="C10")
class CountsTheLastMessageOnly(Kit):
    """Less is held for a prompt than it has tokens."""

    model = _CountsWordsOfTheLast


class _ChangesItsMind(Good):
    def price(self, usage: kt.Usage) -> Any:
        self.notes.append(usage)
        return Decimal(usage.tokens) * len(self.notes) / 1000


@mutant(clause="C11")
class PricesDifferently(Kit):
    """The same usage costs now this, now that."""

    model = _ChangesItsMind


class _NoNumber(Good):
    def price(self, usage: kt.Usage) -> Any:
        return usage.tokens / usage.prompt_tokens if usage.prompt_tokens else float("nan")


@mutant(clause="C11")
class HasNoPriceForSome(Kit):
    """Some usage costs what is no number: a limit in dollars never binds."""

    model = _NoNumber


class _LosesTheLastPiece(Good):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        response = await self.complete(request)
        for word in response.text.split(" ")[:-1]:
            tell(f"{word} ")
        return response


@mutant("G11", clause="C12")
class LosesTheLastPiece(Kit):
    """Whoever listens never hears the end of a reply."""

    model = _LosesTheLastPiece


class _AsksTwice(Good):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        tell((await self.ask(request)).text)
        return await self.ask(request)


@mutant("B13", clause="C12")
class AsksTwiceToStream(Kit):
    """It asks once for the pieces and once for the usage."""

    model = _AsksTwice


class _StreamsWithoutLimit(Good):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        response = await self.ask(replace(request, max_tokens=None))
        tell(response.text)
        return response


@mutant("B23", "B05", clause="C12")
class StreamsWithoutLimit(Kit):
    """Streamed, a reply is as long as the provider likes."""

    model = _StreamsWithoutLimit


class _StreamsAConversation(Good):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        self.notes += request.messages
        response = await self.ask(replace(request, messages=list(self.notes)))
        tell(response.text)
        return response


@mutant("T16", clause="C12")
class StreamsAConversation(Kit):
    """Streamed, every prompt has in it all that was asked before."""

    model = _StreamsAConversation


class _HidesTheCut(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return replace(await self.ask(request), finish_reason="stop")


@mutant(clause="C1")
class HidesTheCut(Kit):
    """A reply that was cut off is told as a whole one."""

    model = _HidesTheCut


class _DropsFiles(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return await self.ask(replace(request, messages=[replace(one, files=()) for one in request.messages]))


@mutant(clause="C13")
class DropsFiles(Kit):
    """A picture is left out without a word, and the model answers what it cannot have seen."""

    model = _DropsFiles


class _RefusesInWordsOnly(Good):
    def file_problem(self, file: kt.File) -> str | None:
        return "it reads text only"


@mutant(clause="C13")
class RefusesInWordsOnly(Kit):
    """It says that it takes no file, and sends it all the same."""

    model = _RefusesInWordsOnly


class _LosesReasoning(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        messages = [replace(message, native=None) for message in request.messages]
        return await self.ask(replace(request, messages=messages))


@mutant(clause="C14")
class LosesReasoning(Kit):
    """Its replies have the native form, and the next request has only text."""

    model = _LosesReasoning


class _TrustsTheOld(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        messages = [
            replace(one, text=json.loads(one.native or "{}")["text"]) if one.native in self.notes else one
            for one in request.messages
        ]
        response = await self.ask(replace(request, messages=messages))
        self.notes += [response.native] if response.native else []
        return response


@mutant(clause="C14")
class TrustsTheOld(Kit):
    """It sends a reply as it was, although a guardrail has changed it."""

    model = _TrustsTheOld


class _ReadsEveryForm(Good):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        for message in request.messages:
            json.loads(message.native or "{}")
        return await self.ask(request)


@mutant(clause="C14")
class ReadsEveryForm(Kit):
    """It fails at a native form that another model wrote."""

    model = _ReadsEveryForm


class _Changing(Good):
    """Sends a changed request, and returns a changed reply."""

    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return request

    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        return response

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return self.returned(await self.ask(self.sent(request)))


def _each_message(request: kt.ModelRequest, change: Callable[[kt.Message], kt.Message]) -> kt.ModelRequest:
    return replace(request, messages=[change(message) for message in request.messages])


class _DropsTools(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, tools=())


@mutant(clause="C15", by="tools_reach")
class DropsTools(Kit):
    """The member has tools, and the model never hears of them."""

    model = _DropsTools


class _DropsParameters(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, tools=[replace(one, parameters={"type": "object"}) for one in request.tools])


@mutant(clause="C15", by="tools_reach")
class DropsParameters(Kit):
    """The model must guess the arguments of a tool."""

    model = _DropsParameters


class _DropsTheSchema(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, output_schema=None)


@mutant(clause="C15", by="schema")
class DropsTheSchema(Kit):
    """A typed answer is asked for, and the provider is told of no type."""

    model = _DropsTheSchema


class _DropsSettings(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, settings={"seed": request.settings.get("seed", 1)})


@mutant(clause="C15", by="settings")
class DropsSettings(Kit):
    """The temperature stays on this side."""

    model = _DropsSettings


class _DropsTheAssistantsCalls(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return _each_message(request, lambda message: replace(message, tool_calls=()))


@mutant(clause="C15", by="calls_and_their_results")
class DropsTheAssistantsCalls(Kit):
    """The results of tools answer nothing that was asked."""

    model = _DropsTheAssistantsCalls


class _DropsCallIds(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return _each_message(request, lambda message: replace(message, tool_call_id=None))


@mutant(clause="C15", by="calls_and_their_results")
class DropsCallIds(Kit):
    """A result does not say which call it answers."""

    model = _DropsCallIds


class _SwapsResults(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        ids = [message.tool_call_id for message in request.messages if message.role == "tool"]
        return _each_message(
            request, lambda message: replace(message, tool_call_id=ids.pop()) if message.role == "tool" else message
        )


@mutant(clause="C15", by="calls_and_their_results")
class SwapsResults(Kit):
    """Of two calls, each gets the other one's result."""

    model = _SwapsResults


class _ForgetsWhoSpoke(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return _each_message(request, lambda message: kt.Message.user(message.text))


@mutant(clause="C15", by="messages_reach")
class ForgetsWhoSpoke(Kit):
    """What the model said itself comes back as the user's words."""

    model = _ForgetsWhoSpoke


class _TurnsTheConversationRound(_Changing):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, messages=request.messages[::-1])


@mutant(clause="C15", by="messages_reach")
class TurnsTheConversationRound(Kit):
    """The newest message comes first."""

    model = _TurnsTheConversationRound


class _TakesNoTools(_DropsTools):
    """It says so to the kit, and to nobody else."""


@mutant(clause="C15", by="cannot_send")
class TakesNoToolsAndSaysNothing(Kit):
    """It has no tools to offer, and answers a request with tools all the same."""

    takes_tools = False
    model = _TakesNoTools


class _DropsTheReplysCalls(_Changing):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        return replace(response, tool_calls=())


@mutant(clause="C16", by="calls_of_the_reply")
class DropsTheReplysCalls(Kit):
    """The model calls a tool, and the run takes it for an empty answer."""

    model = _DropsTheReplysCalls


class _KeepsTheFirstCall(_Changing):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        return replace(response, tool_calls=response.tool_calls[:1])


@mutant(clause="C16", by="calls_of_the_reply")
class KeepsTheFirstCall(Kit):
    """Of several calls in one reply, one is made."""

    model = _KeepsTheFirstCall


class _NamesAllCallsAlike(_Changing):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        return replace(response, tool_calls=[replace(call, id="call") for call in response.tool_calls])


@mutant(clause="C16", by="calls_of_the_reply")
class NamesAllCallsAlike(Kit):
    """Calls of one reply have one id, and strict servers refuse the next request."""

    model = _NamesAllCallsAlike


class _DropsTextBesideCalls(_Changing):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        return replace(response, text="") if response.tool_calls else response


@mutant(clause="C16", by="calls_of_the_reply")
class DropsTextBesideCalls(Kit):
    """What the model says beside a call is lost."""

    model = _DropsTextBesideCalls


class _Tidies(_Changing):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        return replace(response, text=" ".join(response.text.split()))


@mutant(clause="C16", by="text_of_the_reply")
class TidiesTheText(Kit):
    """Line breaks of a reply become blanks: a program or a table is broken."""

    model = _Tidies


class _TakesFilteredForWhole(_Changing):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        cut = response.finish_reason == "content_filter"
        return replace(response, finish_reason="stop") if cut else response


@mutant(clause="C16", by="filter")
class TakesFilteredForWhole(Kit):
    """Half an answer that a filter cut is accepted."""

    model = _TakesFilteredForWhole


class _StreamsTextAlone(Good):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        return replace(await super().stream(request, tell), tool_calls=())


@mutant(clause="C16", by="streamed_reply")
class StreamsTextAlone(Kit):
    """Streamed, a reply has no tool calls."""

    model = _StreamsTextAlone


class _ReadsFailures(Good):
    """Makes something else of its provider's failures."""

    def read(self, error: ModelCallError) -> kt.ModelResponse:
        raise error

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        try:
            return await self.ask(request)
        except ModelCallError as error:
            return self.read(error)


class _KnowsOneKind(_ReadsFailures):
    def read(self, error: ModelCallError) -> kt.ModelResponse:
        raise ModelCallError("unknown", self.name, error.why, retry_after=error.retry_after, unspent=error.unspent)


@mutant(clause="C17", by="keeps_its_kind")
class KnowsOneKind(Kit):
    """A wrong key is tried three times, since nobody can tell it from an outage."""

    model = _KnowsOneKind


class _TimeoutIsEmpty(_ReadsFailures):
    def read(self, error: ModelCallError) -> kt.ModelResponse:
        if error.kind == "timeout":
            return kt.ModelResponse("")
        raise error


@mutant(clause="C17", by="keeps_its_kind")
class TimeoutIsAnEmptyReply(Kit):
    """A provider that is slow today has nothing to say."""

    model = _TimeoutIsEmpty


class _ReadsThePageOfAnError(_ReadsFailures):
    def read(self, error: ModelCallError) -> kt.ModelResponse:
        if error.kind == "overloaded" and not error.unspent:
            return kt.ModelResponse(error.why, usage=kt.Usage(1, 1))
        raise error


@mutant(clause="C17", by="keeps_its_kind")
class ReadsThePageOfAnError(Kit):
    """The page of a server's error 500 is a reply."""

    model = _ReadsThePageOfAnError


class _ForgetsTheWait(_ReadsFailures):
    def read(self, error: ModelCallError) -> kt.ModelResponse:
        raise ModelCallError(error.kind, self.name, error.why, unspent=error.unspent)


@mutant(clause="C17", by="wait")
class ForgetsTheWait(Kit):
    """It is asked to wait, and asks again at once."""

    model = _ForgetsTheWait
