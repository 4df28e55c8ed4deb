"""Wrong agents: each is a good one, changed in one way."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, ClassVar

import anyio
from anyio.lowlevel import checkpoint

import kairo_team as kt
from kairo_team.contracts import ChatModel, MemberContext
from kairo_team.errors import ModelCallError
from kairo_team.tck import AgentTCK
from kairo_team.tools.tool import as_tool
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()

Run = Callable[["Wrong", kt.Assignment, MemberContext], Awaitable[Any]]


class Wrong:
    """Runs what a mutant says, with a good agent at hand."""

    reentrant = own_loop = True

    def __init__(self, run: Run, model: ChatModel, tools: list[Any]) -> None:
        self.model = model
        self.tools = tools
        self.good = kt.MiniAgent(model, tools=tools)
        self.notes: dict[str, Any] = {}
        self._run = run

    async def run(self, assignment: kt.Assignment, context: MemberContext) -> Any:
        return await self._run(self, assignment, context)


class Kit(AgentTCK):
    """The good agent, unchanged."""

    uses_tools = True
    agent: ClassVar[type[Wrong]] = Wrong

    @classmethod
    def make_agent(cls, model: ChatModel) -> Wrong:
        return cls.agent(cls.work, model, [])

    @classmethod
    def make_agent_with_tool(cls, model: ChatModel, tool: Any) -> Wrong:
        return cls.agent(cls.work, model, [tool])

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return await agent.good.run(assignment, context)


class Plain(Kit):
    """An agent without tools."""

    uses_tools = False


def request_of(assignment: kt.Assignment, context: MemberContext, *tools: Any) -> kt.ModelRequest:
    prompt = context.render("task", assignment=assignment, limits="")
    return kt.ModelRequest([kt.Message.user(prompt)], [as_tool(tool).spec for tool in tools])


def book(context: MemberContext, reply: kt.ModelResponse) -> None:
    usage = reply.usage or kt.Usage(prompt_tokens=1000)
    context.governor.record_usage(usage.prompt_tokens, usage.completion_tokens)


@mutant("T19", clause="C1")
class ReturnsNothing(Kit):
    """It does its work and returns None."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        await agent.good.run(assignment, context)


@mutant("T20", clause="C1")
class RaisesOnItsSecondTask(Kit):
    """A note of its first task makes it raise, before its first await, on every later one."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        if agent.notes.setdefault("task", assignment.task.id) != assignment.task.id:
            raise RuntimeError("this agent is busy")
        return await agent.good.run(assignment, context)


@mutant("T24", clause="C2")
class ForgetsUpstream(Kit):
    """Results of earlier tasks never reach its prompt."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return await agent.good.run(replace(assignment, upstream={}), context)


@mutant(clause="C2")
class BeginsAnewOnARevision(Kit):
    """What a reviewer found never reaches its prompt."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return await agent.good.run(replace(assignment, previous=None, findings=()), context)


@mutant("B10", clause="C3")
class SwallowsTheHalt(Kit):
    """A halt becomes an answer."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        try:
            return await agent.good.run(assignment, context)
        except kt.HaltError:
            return "all there is"


@mutant("B10", clause="C3")
class FlattensTheHalt(Kit):
    """A halt becomes a RuntimeError with its text."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        try:
            return await agent.good.run(assignment, context)
        except kt.HaltError as error:
            raise RuntimeError(str(error)) from error


@mutant("U06", clause="C3")
class GroupsTheHalt(Kit):
    """A halt comes out of its task group as an ExceptionGroup."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        made: list[kt.AgentOutput] = []

        async def one() -> None:
            made.append(await agent.good.run(assignment, context))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
        return made[0]


@mutant("B05", clause="C3")
class AsksAgainAfterTheHalt(Kit):
    """It takes a halt for a passing failure and tries again."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        try:
            return await agent.good.run(assignment, context)
        except (kt.HaltError, kt.InsufficientBudget):
            return await agent.good.run(assignment, context)


@mutant("U05", "T06", clause="C4")
class SwallowsCancellation(Kit):
    """Cancelled, it gives back what it has."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        try:
            return await agent.good.run(assignment, context)
        except anyio.get_cancelled_exc_class():
            return "so far"


@mutant("B15", "T29", clause="C4")
class FinishesItsCall(Kit):
    """A call that hangs holds the run up, long after its deadline."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        with anyio.CancelScope(shield=True):
            return await agent.good.run(assignment, context)


@mutant("T06", clause="C4")
class LeavesACallRunning(Plain):
    """Its call is a task of its own, which nobody ends."""

    backends = ("asyncio",)

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        task = asyncio.ensure_future(agent.model.complete(request_of(assignment, context)))
        agent.notes["task"] = task
        reply = await asyncio.shield(task)
        book(context, reply)
        return reply.text


@mutant("B13", clause="C5")
class BooksItsLastCallOnly(Plain):
    """It reads its answer over with a second call, and books one of the two."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        context.governor.pre_step()
        await agent.model.complete(request_of(assignment, context))
        reply = await agent.model.complete(request_of(assignment, context))
        book(context, reply)
        return reply.text


@mutant("B17", clause="C5")
class ChargesNothingForSilence(Plain):
    """A reply without usage counts as nothing."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        context.governor.pre_step()
        reply = await agent.model.complete(request_of(assignment, context))
        book(context, replace(reply, usage=reply.usage or kt.Usage()))
        return reply.text


@mutant("B02", clause="C5")
class HasACounterOfItsOwn(Plain):
    """The agent inside runs alone, under a fresh budget that nobody around it sees."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        context.governor.pre_step()
        inside = await agent.good.run(assignment, budget=kt.Budget(tokens=50_000))
        return inside.text


@mutant("B16", clause="C5")
class CountsNoLoops(Plain):
    """It says that it counts its loops, and counts none."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return (await context.model(agent.model).complete(request_of(assignment, context))).text


@mutant("B16", clause="C6")
class AddsUpItsRuns(Kit):
    """A second run of one object goes on with the usage of the first."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        output = await agent.good.run(assignment, context)
        agent.notes["usage"] = agent.notes.get("usage", kt.Usage()) + output.usage
        return replace(output, usage=agent.notes["usage"])


@mutant("B23", clause="C6")
class NeverReadsItsLimit(Kit):
    """It says that it makes three turns at most, and makes ten."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        return replace(await agent.good.run(assignment, context), max_turns=3)


class Deaf:
    """A context that keeps nothing."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def keep(self, text: str) -> None:
        return


@mutant("B06", clause="C7")
class LosesWhatItHad(Kit):
    """At a limit, a timeout or a kill all that it had is lost."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        deaf: Any = Deaf(context)
        return await agent.good.run(assignment, deaf)


@mutant("T12", "E10", clause="C8", by="c08_many_at_once")
class MixesItsTasks(Kit):
    """The task at hand is kept on the agent, where the next one overwrites it."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        agent.notes["now"] = assignment
        await checkpoint()
        return await agent.good.run(agent.notes["now"], context)


CURRENT = ContextVar("kit_current_task", default="")


@mutant("T16", clause="C9")
class LeaksItsTask(Kit):
    """What it works at stays in a context variable."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        CURRENT.set(f"{assignment.task.id} {id(context)}")
        return await agent.good.run(assignment, context)


@mutant(clause="C9")
class SeedsRandomNumbers(Kit):
    """To be repeatable it seeds the random numbers of the whole program."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        random.seed(0)
        return await agent.good.run(assignment, context)


@mutant("T27", clause="C10")
class AnswersWithTheError(Kit):
    """The text of a failure is passed on as its answer."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        try:
            return await agent.good.run(assignment, context)
        except (RuntimeError, ModelCallError) as error:
            return f"I could not do it: {error}"


@mutant("G06", clause="C11")
class CallsItsToolsItself(Kit):
    """No guard ever sees a call of its tools."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        model, request = context.model(agent.model), request_of(assignment, context, *agent.tools)
        context.governor.pre_step()
        reply = await model.complete(request)
        for call in reply.tool_calls:
            arguments: Any = call.arguments
            found = await agent.tools[0](**arguments)
            request = replace(request, messages=[*request.messages, kt.Message.user(found)])
        return (await model.complete(request)).text if reply.tool_calls else reply.text


@mutant(clause="C11")
class MakesCallsOfACutReply(Kit):
    """What a reply asks for is done, though the reply was cut off."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        model, request = context.model(agent.model), request_of(assignment, context, *agent.tools)
        while True:
            context.governor.pre_step()
            reply = await model.complete(request)
            if not reply.tool_calls:
                return reply.text
            found = [await context.tool(agent.tools[0]).call(call.arguments) for call in reply.tool_calls]
            answers = [kt.Message.tool(call.id, one.text) for call, one in zip(reply.tool_calls, found, strict=True)]
            said = [kt.Message.assistant(reply.text, reply.tool_calls), *answers, kt.Message.user("It was cut off.")]
            request = replace(request, messages=[*request.messages, *said])


@mutant(clause="C14")
class ReadsJsonAlone(Plain):
    """A reply with a word or a fence around its JSON has failed."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        output: Any = await agent.good.run(assignment, context)
        if context.output_type is not None:
            json.loads(output.text)
        return output


@mutant("G05", clause="C12")
class GoesAroundGuardrails(Plain):
    """It holds and books what it spends, and what guardrails refuse is sent all the same."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        context.governor.pre_step()
        with await context.governor.hold(tokens=4000) as hold:
            reply = await agent.model.complete(replace(request_of(assignment, context), max_tokens=2000))
            usage = reply.usage or kt.Usage(4000)
            hold.settle(usage.prompt_tokens, usage.completion_tokens)
        return reply.text


@mutant("B01", "B05", clause="C12", by="c12_many_at_once")
class ChecksBeforeAndBooksAfter(Plain):
    """Nothing is held in between: many at once spend many times what there is."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        context.governor.pre_step()
        context.governor.can_proceed()
        reply = await agent.model.complete(request_of(assignment, context))
        book(context, reply)
        return reply.text


@mutant("B24", clause="C13")
class LearnsOfItsLimitTooLate(Kit):
    """It uses tools until its turns are over, and has none left to answer."""

    wraps_up = True

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        box = await context.tools(agent.tools)
        request = request_of(assignment, context, *agent.tools)
        while True:
            context.governor.pre_step()
            reply = await context.model(agent.model).complete(request)
            if not reply.tool_calls:
                return reply.text
            said = [result.text for result in await box.run(reply.tool_calls)]
            request = replace(request, messages=[*request.messages, kt.Message.user("\n".join(said))])


class Serial(Wrong):
    reentrant = False


@mutant("T16", clause="C2")
class KeepsItsFirstPrompt(Plain):
    """What it asked for its first task it asks for every other."""

    agent = Serial

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        context.governor.pre_step()
        request = agent.notes.setdefault("request", request_of(assignment, context))
        return (await context.model(agent.model).complete(request)).text


@mutant("B16", clause="C6")
class TellsTheUsageOfTheRunBefore(Kit):
    """Its output tells what the run before used."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        output = await agent.good.run(assignment, context)
        before, agent.notes["usage"] = agent.notes.get("usage", output.usage), output.usage
        return replace(output, usage=before)


@mutant(clause="C6")
class GuessesItsUsage(Plain):
    """Its output tells letters and words of the reply for tokens."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        context.governor.pre_step()
        text = (await context.model(agent.model).complete(request_of(assignment, context))).text
        usage = kt.Usage(len(text), len(text.split()))
        return kt.AgentOutput(kt.Artifact(text), kt.AgentStatus.COMPLETED, 1, 1, usage=usage)


@mutant("T12", clause="C9")
class WritesIntoItsTask(Kit):
    """It adds a remark to the task's description, which is the plan's."""

    @staticmethod
    async def work(agent: Wrong, assignment: kt.Assignment, context: MemberContext) -> Any:
        object.__setattr__(assignment.task, "description", f"{assignment.task.description} Be brief.")
        return await agent.good.run(assignment, context)
