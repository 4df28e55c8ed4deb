"""Bugs that authors of models, evaluators, agents and tool sources make, each rejected by the kit at one clause."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, cast

import anyio
from anyio.lowlevel import checkpoint

import kairo_team as kt
from kairo_team.contracts import MemberContext
from kairo_team.errors import ModelCallError
from kairo_team.tools import Tool
from tests.mutants import kit_agents, kit_models, kit_tool_sources
from tests.mutants.honest import Arming, Honest, HonestTCK
from tests.mutants.honest_reviews import Verdict, Words, WordsTCK
from tests.mutants.kit_models import Good as GoodModel
from tests.mutants.kit_mutant import registry
from tests.mutants.kit_tool_sources import TEXT, Opening

MUTANTS, mutant = registry()


# ---------------------------------------------------------------- models


class ModelKit(kit_models.Kit):
    """The kit of a model, which a mutant puts in its place."""


class Sending(GoodModel):
    """Sends a changed request, and returns a changed reply."""

    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return request

    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        return response

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return self.returned(await self.ask(self.sent(request)))


class _DropsTheSystemMessageBesideFiles(Sending):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        if not request.files:
            return request
        return replace(request, messages=[one for one in request.messages if one.role != "system"])


@mutant(clause="C13", by="leave_nothing_else_out")
class DropsTheSystemMessageBesideFiles(ModelKit):
    """A request with a picture loses its instructions."""

    model = _DropsTheSystemMessageBesideFiles


class _KeepsTheTextsOfFilesOnly(Sending):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, messages=[replace(one, text="") if one.files else one for one in request.messages])


@mutant(clause="C13", by="leave_nothing_else_out")
class DropsTheTextBesideAFile(ModelKit):
    """The question about a picture is left out."""

    model = _KeepsTheTextsOfFilesOnly


class _FirstFile(Sending):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, messages=[replace(one, files=one.files[:1]) for one in request.messages])


@mutant(clause="C13", by="leave_nothing_else_out")
class SendsTheFirstFile(ModelKit):
    """Of two pictures, one is sent."""

    model = _FirstFile


class Streaming(GoodModel):
    """Streams in a way of its own."""

    def streamed(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return request

    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        return await super().stream(self.streamed(request), tell)


class _StreamsWithoutTools(Streaming):
    def streamed(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, tools=())


@mutant(clause="C15", by="streamed_all")
class StreamsWithoutTools(ModelKit):
    """Streamed, the model hears of no tool."""

    model = _StreamsWithoutTools


class _StreamsWithoutSettings(Streaming):
    def streamed(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, settings={})


@mutant(clause="C15", by="streamed_all")
class StreamsWithoutSettings(ModelKit):
    """Streamed, the temperature stays on this side."""

    model = _StreamsWithoutSettings


class _StreamsWithoutSchema(Streaming):
    def streamed(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, output_schema=None)


@mutant(clause="C15", by="streamed_all")
class StreamsWithoutSchema(ModelKit):
    """Streamed, no typed answer is asked for."""

    model = _StreamsWithoutSchema


class _StreamsWithoutFiles(Streaming):
    def streamed(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, messages=[replace(one, files=()) for one in request.messages])


@mutant(clause="C15", by="streamed_all")
class StreamsWithoutFiles(ModelKit):
    """Streamed, a picture is left out."""

    model = _StreamsWithoutFiles


class _StreamAlwaysStops(GoodModel):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        return replace(await super().stream(request, tell), finish_reason="stop")


@mutant(clause="C12", by="streamed_reply_says_why")
class StreamedItAlwaysStops(ModelKit):
    """Streamed, a reply that was cut off is told as a whole one."""

    model = _StreamAlwaysStops


class _JoinsPiecesByLine(GoodModel):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        pieces: list[str] = []

        def listen(piece: str) -> None:
            pieces.append(piece)
            tell(piece)

        reply = await super().stream(request, listen)
        return replace(reply, text="\n".join(pieces))


@mutant(clause="C12")
class JoinsPiecesByLine(ModelKit):
    """Each piece of a streamed reply becomes a line of its own."""

    model = _JoinsPiecesByLine


class _CountsTwice(GoodModel):
    async def stream(self, request: kt.ModelRequest, tell: Callable[[str], object]) -> kt.ModelResponse:
        reply = await super().stream(request, tell)
        return replace(
            reply, usage=reply.usage and kt.Usage(reply.usage.prompt_tokens * 2, reply.usage.completion_tokens)
        )


@mutant(clause="C12")
class CountsTheLastPiecesUsageTwice(ModelKit):
    """Streamed, the usage that two pieces repeat is added up."""

    model = _CountsTwice


class _AddsCachedTokens(Sending):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        usage, billing = response.usage, response.billing
        if usage is None:
            return response
        return replace(response, usage=kt.Usage(usage.prompt_tokens + billing.cached_tokens, usage.completion_tokens))


@mutant(clause="C5", by="cached_tokens")
class AddsCachedTokens(ModelKit):
    """Tokens from the cache are counted twice."""

    model = _AddsCachedTokens


class _AddsUpItsCalls(Sending):
    total = kt.Usage()

    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        self.total += response.usage or kt.Usage()
        return replace(response, usage=self.total)


@mutant(clause="C2")
class AddsUpItsCalls(ModelKit):
    """Each reply has the usage of all calls before."""

    model = _AddsUpItsCalls


def _counted(usage: kt.Usage | None, **counts: Any) -> kt.Usage | None:
    """Return a usage with counts past the check of its class."""
    made = usage and replace(usage)
    for name, value in counts.items():
        object.__setattr__(made, name, value)
    return made


class _FloatUsage(Sending):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        usage = response.usage
        return replace(response, usage=usage and _counted(usage, prompt_tokens=usage.prompt_tokens / 1))


@mutant(clause="C5")
class ReportsFloats(ModelKit):
    """Its tokens are floats, past the check of their class."""

    model = _FloatUsage


class _NegativeUsage(Sending):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        usage = response.usage
        return replace(response, usage=usage and _counted(usage, completion_tokens=-usage.completion_tokens))


@mutant(clause="C5")
class ReportsLessThanNothing(ModelKit):
    """A reply has a negative number of tokens."""

    model = _NegativeUsage


class _TrimsPrompts(Sending):
    def sent(self, request: kt.ModelRequest) -> kt.ModelRequest:
        return replace(request, messages=[replace(one, text=" ".join(one.text.split())) for one in request.messages])


@mutant(clause="C15", by="text_of_a_prompt")
class TidiesThePrompt(ModelKit):
    """Line breaks of a prompt become blanks: a program or a table is broken."""

    model = _TrimsPrompts


class _DropsEmptyCalls(Sending):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        return replace(response, tool_calls=[one for one in response.tool_calls if one.arguments])


@mutant(clause="C16")
class DropsCallsWithoutArguments(ModelKit):
    """A call without arguments is taken for none."""

    model = _DropsEmptyCalls


class _TextOfArguments(Sending):
    def returned(self, response: kt.ModelResponse) -> kt.ModelResponse:
        given = [(one, dict[str, Any](cast("Any", one.arguments))) for one in response.tool_calls]
        calls = [replace(one, arguments={name: str(of[name]) for name in of}) for one, of in given]
        return replace(response, tool_calls=calls)


@mutant(clause="C16")
class MakesArgumentsTexts(ModelKit):
    """Every argument of a call becomes a text."""

    model = _TextOfArguments


class _Milliseconds(GoodModel):
    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        try:
            return await self.ask(request)
        except ModelCallError as error:
            wait = None if error.retry_after is None else error.retry_after * 1000
            raise ModelCallError(error.kind, self.name, error.why, retry_after=wait, unspent=error.unspent) from None


@mutant(clause="C17")
class WaitsAThousandTimesAsLong(ModelKit):
    """A wait in seconds is handed on in milliseconds."""

    model = _Milliseconds


class _CachesReplies(GoodModel):
    replies: ClassVar[dict[Any, kt.ModelResponse]] = {}

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        key = (request.messages[-1].text, request.max_tokens, self.ask.__name__)
        if key not in self.replies:
            self.replies[key] = await self.ask(request)
        return self.replies[key]


@mutant(clause="C5")
class AnswersFromACacheOfItsOwn(ModelKit):
    """What was asked before is answered without its provider, and charged again."""

    model = _CachesReplies


# ---------------------------------------------------------------- evaluators


@mutant(clause="C6")
class ReadsTheFirstAttempt(WordsTCK):
    """It keeps the first artifact of a task and reads it again in each round."""

    class Review(Words):
        def __init__(self) -> None:
            self.seen: dict[str, kt.Artifact] = {}

        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            artifact = self.seen.setdefault(context.task.id, context.artifact)
            return await super().evaluate(replace(context, artifact=artifact))


@mutant(clause="C5", by="same_letters")
class KnowsArtifactsByTheirLength(WordsTCK):
    """Its cache finds a verdict by the length of the artifact."""

    good_artifacts = ("The moon pulls the sea.", "What the sea does, the moon did.")
    bad_artifacts = ("The sea rises.", "It is so.", "The moon rises.")

    class Review(Words):
        def __init__(self) -> None:
            self.cache: dict[int, Verdict] = {}

        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            key = len(context.artifact.text)
            if key not in self.cache:
                self.cache[key] = await super().evaluate(context)
            return self.cache[key]


@mutant(clause="C3", by="another_task")
class ReadsWhatItWasMadeFrom(WordsTCK):
    """It looks for its words in the upstream artifacts too."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            texts = [context.artifact.text, *(one.text for one in context.upstream.values())]
            return await super().evaluate(replace(context, artifact=kt.Artifact("\n".join(texts))))


@mutant(clause="C3", by="what_is_bad")
class ReadsTheGoal(WordsTCK):
    """It looks for its words in the goal too."""

    task = kt.Task("kit", "Write of the moon and the sea.")

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            text = f"{context.task.description}\n{context.artifact.text}"
            return await super().evaluate(replace(context, artifact=kt.Artifact(text)))


@mutant(clause="C9")
class HoldsTheArtifactAtHand(WordsTCK):
    """The artifact at hand is kept on the object, where the next review overwrites it."""

    class Review(Words):
        at_hand: Any = None

        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            self.at_hand = context
            await checkpoint()
            return await super().evaluate(self.at_hand)


@mutant(clause="C1")
class DividesByNothing(WordsTCK):
    """The share of none is not a number, and goes past the check of the score."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            object.__setattr__(verdict, "score", float("nan"))
            return verdict


@mutant(clause="C1")
class ShoutsItsSeverity(WordsTCK):
    """Its findings are BLOCKING in capitals: no run takes them for blocking."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            for finding in verdict.findings:
                object.__setattr__(finding, "severity", finding.severity.upper())
            return verdict


@mutant(clause="C6")
class PassesWhoAnsweredTheFindings(WordsTCK):
    """What was sent back twice with the same findings passes."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            again = [one for one in context.prior_verdicts if one.findings == verdict.findings]
            return Verdict.passed(1.0) if len(again) > 1 else verdict


# ---------------------------------------------------------------- agents


class AgentKit(kit_agents.Kit):
    """The kit of an agent."""


def shown(coroutine: Any) -> str:
    """Return how a coroutine is printed that nobody awaits."""
    coroutine.close()
    return repr(coroutine)


async def _loop(
    agent: kit_agents.Wrong,
    assignment: kt.Assignment,
    context: MemberContext,
    result: Callable[[Any], Any] = str,
    calls: Callable[[Sequence[kt.ToolCall]], Sequence[kt.ToolCall]] = list,
) -> str:
    """Ask the model, make its calls, and ask again; the model reads `result` of what a tool returns."""
    request = kit_agents.request_of(assignment, context, *agent.tools)
    messages = list(request.messages)
    tools = {one.name: one for one in await context.tools(agent.tools)} if agent.tools else {}
    model = context.model(agent.model)
    for _ in range(4):
        reply = await model.complete(replace(request, messages=messages))
        if reply.cut_by:
            messages += [kt.Message.assistant(reply.text), kt.Message.user(f"Again: {reply.cut_by}.")]
            continue
        if not reply.tool_calls:
            return reply.text
        messages.append(kt.Message.assistant(reply.text, reply.tool_calls))
        for call in calls(reply.tool_calls):
            value = tools[call.name](**cast("Any", call.arguments))
            messages.append(kt.Message.tool(call.id, result(value if result is shown else await value)))
    return "never"


@mutant(clause="C11", by="guardrail_sees")
class DoesNotAwaitItsTools(AgentKit):
    """The model reads of a coroutine where the result should be."""

    @staticmethod
    async def work(agent: kit_agents.Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return await _loop(agent, assignment, context, shown)


@mutant(clause="C11", by="guardrail_sees")
class CutsResults(AgentKit):
    """Of a tool's result the model reads the first four letters."""

    @staticmethod
    async def work(agent: kit_agents.Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return await _loop(agent, assignment, context, lambda value: str(value)[:4])


@mutant(clause="C11", by="every_tool_call_is_permitted")
class MakesTheFirstCall(AgentKit):
    """Of the calls in one reply the first one is made."""

    @staticmethod
    async def work(agent: kit_agents.Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return await _loop(agent, assignment, context, str, lambda calls: calls[:1])


@mutant(clause="C5")
class BooksTwice(kit_agents.Plain):
    """What the run has booked it books again."""

    @staticmethod
    async def work(agent: kit_agents.Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        reply = await context.model(agent.model).complete(kit_agents.request_of(assignment, context))
        kit_agents.book(context, reply)
        return reply.text


@mutant(clause="C2", by="files_reach")
class ForgetsFiles(kit_agents.Plain):
    """The files of its task never reach its model."""

    takes_files = True

    @staticmethod
    async def work(agent: kit_agents.Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return await agent.good.run(replace(assignment, files=()), context)


# ---------------------------------------------------------------- coordinators


class CoordinatorKit(HonestTCK):
    """The kit of a coordinator."""


class _TriesForEver(Honest):
    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        number = 1
        while (attempt := await run.attempt(task, number)).error is not None:
            number += 1
        run.accept(task, attempt)


@mutant(clause="C2", by="failed_result_says_why")
class TriesUntilItWorks(CoordinatorKit):
    """A member that fails is asked again and again."""

    kind = _TriesForEver


class _Caches(Honest):
    attempts: ClassVar[dict[str, Any]] = {}

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = self.attempts.get(task.description) or await run.attempt(task, 1)
        if attempt.error is not None:
            run.fail(task, attempt.error)
        else:
            self.attempts[task.description] = attempt
            run.accept(task, attempt)


@mutant(clause="C3", by="ten_runs_at_once")
class CachesAttempts(CoordinatorKit):
    """What a task of these words made in one run is accepted in every later one."""

    kind = _Caches


class _WaitsInBetween(Honest):
    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        await anyio.sleep(1)
        await super().one(run, task)


@mutant(clause="C8")
class WaitsBeforeEachTask(CoordinatorKit):
    """To be gentle it waits a second before each task."""

    kind = _WaitsInBetween


class _HandsNoInputs(Arming):
    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        return replace(assignment, inputs={}, context={}, directives=()), context


@mutant(clause="C8", by="goal_context_and_its_inputs")
class HandsNoInputs(CoordinatorKit):
    """Members get neither inputs nor the request's context."""

    kind = _HandsNoInputs


# ---------------------------------------------------------------- tool sources


class SourceKit(kit_tool_sources.Kit):
    """The kit of a source."""


class _KeepsItsTools(Opening):
    kept: ClassVar[list[Tool]] = []

    def tools(self, connection: Any) -> list[Tool]:
        if not self.kept:
            self.kept.extend(super().tools(connection))
        return self.kept


@mutant(clause="C6")
class KeepsItsTools(SourceKit):
    """The list of the first connection's tools is handed out for ever."""

    kind = _KeepsItsTools


class _SwallowsConnect(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        if not self.reachable:
            yield []
            return
        async with super().connect() as tools:
            yield tools


@mutant(clause="C8")
class HasNoToolsWhereItCannotConnect(SourceKit):
    """A server that is not there is a source without tools."""

    kind = _SwallowsConnect


class _NotAwaited(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        say, fail = super().tools(connection)

        async def forgetful(arguments: Mapping[str, Any]) -> Any:
            return shown(say.call(arguments))

        return [Tool("echo_say", forgetful, parameters=TEXT), fail]


@mutant(clause="C2")
class DoesNotAwaitItsServer(SourceKit):
    """The result is a coroutine, which nobody awaits."""

    kind = _NotAwaited


class _CallsTheLast(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        made: list[Tool] = []
        for one in super().tools(connection):

            async def call(arguments: Mapping[str, Any]) -> Any:
                return await one.call(arguments)

            made.append(Tool(one.name, call, parameters=one.parameters))
        return made


@mutant(clause="C2")
class CallsTheLastToolAlways(SourceKit):
    """Its tools close over the variable of a loop."""

    kind = _CallsTheLast


class _NeverCancelled(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        say, fail = super().tools(connection)

        async def stubborn(arguments: Mapping[str, Any]) -> Any:
            try:
                return await say.call(arguments)
            except anyio.get_cancelled_exc_class():
                return "cancelled"

        return [Tool("echo_say", stubborn, parameters=TEXT), fail]


@mutant(clause="C7", by="cancelled_call")
class TakesCancellationForAResult(SourceKit):
    """A call that is cancelled returns a text."""

    kind = _NeverCancelled


class _ErrorOfItsOwn(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        async with super().connect() as tools:
            try:
                yield tools
            except Exception as error:
                raise RuntimeError("the connection broke") from error


@mutant(clause="C7")
class BlamesItsConnection(SourceKit):
    """What fails in the run comes out as the connection's error."""

    kind = _ErrorOfItsOwn


class _FailsAtExit(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        async with super().connect() as tools:
            yield tools
            raise ConnectionError("the goodbye was not heard")


@mutant(clause="C7")
class FailsWhenItIsLeft(SourceKit):
    """The goodbye fails, and the run that was done fails with it."""

    kind = _FailsAtExit


class _StopsAfterAFailure(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        say, fail = super().tools(connection)
        broken: list[int] = []

        async def careful(arguments: Mapping[str, Any]) -> Any:
            if broken:
                raise ConnectionError("the circuit is open")
            return await say.call(arguments)

        async def breaking(arguments: Mapping[str, Any]) -> Any:
            broken.append(1)
            return await fail.call(arguments)

        return [Tool("echo_say", careful, parameters=TEXT), Tool("echo_fail", breaking)]


@mutant(clause="C5")
class NeverWorksAfterAFailure(SourceKit):
    """One failed call, and every other fails too."""

    kind = _StopsAfterAFailure
