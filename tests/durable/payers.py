"""Teams that each pay in one way, with providers and tools that keep their own account of what was asked."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import anyio

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import GuardrailDenied, ModelCallError
from kairo_team.evaluators import (
    Criterion,
    Rubric,
)
from kairo_team.governance import GuardrailContext, GuardrailDecision, GuardrailPhase
from kairo_team.governance.policies import ToolLoop
from kairo_team.models.resolver import Fallback
from kairo_team.testing import FunctionModel

RUN = "r"
PLAIN = Rubric([Criterion("plain", "a child understands it", by="judge")])
TWO = kt.TaskGraph([kt.Task("one", "Do one."), kt.Task("two", "Do two.", depends_on=["one"])])


class Payer(ABC):
    """A team, the models it asks, and what they and its tools were asked; `account` is what a provider knows already.

    What a model answers depends on the request, and on what was asked before alone.
    """

    backends: Sequence[str] = ("asyncio", "trio")
    plan: kt.TaskGraph | None = TWO
    retries = 2
    """Retries of a model call."""
    config = kt.TeamConfig()
    tells_what_is_left = False
    """Prompts say what is left of the budget: less where a call in doubt is charged."""
    asks_failed_again = False
    """Tries that failed are made again, because the call they belong to is still to be answered."""

    def __init__(self, account: Sequence[str] = (), used: Sequence[str] = ()) -> None:
        self.account = list(account)
        """What each call of a model asked, in order."""
        self.used = list(used)
        """What each call of a tool was given."""

    @abstractmethod
    def team(self) -> kt.Team:
        """Return the team."""

    def coordinator(self) -> Any:
        return None

    def models(self) -> dict[str, Any]:
        return {"m:x": self.provider("test:m")}

    def provider(self, name: str) -> FunctionModel:
        """Return a model that writes down what it is asked."""

        async def answer(request: kt.ModelRequest) -> str | kt.ModelResponse:
            said = said_in(request)
            self.account.append(f"{name} {self.known_by(request, said)}")
            return self.reply(name, request, said)

        return FunctionModel(answer, name=name)

    def known_by(self, request: kt.ModelRequest, said: str) -> str:
        """Return what a call is known by: all that is asked, but for what is drawn anew where no draw was recorded."""
        return said

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        """Return what a model answers."""
        return f"answer {len(said)}"

    def tool(self) -> Any:
        @kt.tool(side_effect="write", idempotent=True)
        def note(text: str) -> str:
            """Write a note."""
            self.used.append(text)
            return f"noted {text}"

        return note


def said_in(request: kt.ModelRequest) -> str:
    return "\n".join(f"{one.role}: {one.text}" for one in request.messages)


def ask(text: str) -> kt.ModelRequest:
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=40)


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Ask twice, the second time about the first answer."""
    model = context.model("m:x")
    first = await model.complete(ask(f"{assignment.task.id} {assignment.attempt}"))
    return (await model.complete(ask(f"{assignment.task.id} {assignment.attempt} {first.text}"))).text


# ---------------------------------------------------------------------- members


class Members(Payer):
    """Mini agents with a tool, that take several turns."""

    def team(self) -> kt.Team:
        return kt.Team("team", [kt.Member("writer", kt.MiniAgent("m:x", tools=[self.tool()]))])

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        notes = sum(one.role == "tool" for one in request.messages)
        if request.tools and notes < 3:
            return kt.ModelResponse("", tool_calls=[kt.ToolCall(f"c{notes}", "note", {"text": f"{len(said)}"})])
        return f"answer {len(said)}"


class Streaming(Payer):
    """Members whose replies come in pieces."""

    def team(self) -> kt.Team:
        async def stream(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            model = context.model("m:x")
            first = await model.stream(ask(assignment.task.id))
            return (await model.stream(ask(f"{assignment.task.id} {first.text}"))).text

        return kt.Team("team", [kt.Member("writer", stream), kt.Member("other", kt.MiniAgent("m:x", stream=True))])

    plan = kt.TaskGraph(
        [kt.Task("one", "Do one.", member="writer"), kt.Task("two", "Do two.", member="other", depends_on=["one"])]
    )


class Nested(Payer):
    """A team in a team in a team, each with work of its own."""

    def team(self) -> kt.Team:
        innermost = kt.Team("innermost", [kt.Member("hand", work)])
        inside = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", member="group", depends_on=["a"])])
        inner = kt.Team("inner", [kt.Member("hand", work), kt.Member("group", TeamAgent(innermost, plan=TWO))])
        return kt.Team("team", [kt.Member("clerk", work), kt.Member("group", TeamAgent(inner, plan=inside))])

    plan = kt.TaskGraph([kt.Task("one", "Do one.", member="clerk"), kt.Task("two", "Do two.", member="group")])


class SideBySide(Payer):
    """Members that ask several things at once, one of them twice."""

    order: Sequence[str] = ("a1", "b1", "c1", "a2")

    def team(self) -> kt.Team:
        async def fan(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            model, answers = context.model("m:x"), dict[str, str]()

            async def one(which: str) -> None:
                answers[which] = (await model.complete(ask(f"{assignment.task.id} {which[0]}"))).text

            async with anyio.create_task_group() as group:
                for which in self.order:
                    group.start_soon(one, which)
            return " ".join(answers[which] for which in sorted(answers))

        return kt.Team("team", [kt.Member("writer", fan)])


class Budgeted(Members):
    """Mini agents that are told what is left of their budget, with several tools in one turn."""

    tells_what_is_left = True
    config = kt.TeamConfig(budget=kt.Budget(tokens=20_000, dollars=5, tool_calls=50))

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        notes = sum(one.role == "tool" for one in request.messages)
        if request.tools and notes < 4:
            calls = [kt.ToolCall(f"c{notes}{one}", "note", {"text": f"{one} {len(said)}"}) for one in "ab"]
            return kt.ModelResponse("", tool_calls=calls, usage=kt.Usage(len(said), 7, Decimal("0.01")))
        return f"answer {len(said)}"


class Broken(Members):
    """A tool that always fails, and is left alone after its third failure."""

    def tool(self) -> Any:
        @kt.tool(side_effect="read")
        def note(text: str) -> str:
            """Write a note."""
            self.used.append(text)
            raise OSError("no paper")

        return note

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        notes = sum(one.role == "tool" for one in request.messages)
        if request.tools and notes < 5:
            return kt.ModelResponse("", tool_calls=[kt.ToolCall(f"c{notes}", "note", {"text": f"{len(said)}"})])
        return f"answer {len(said)}"


class Looping(Broken):
    """A tool that is called with the same arguments, until a guardrail denies it."""

    tool = Payer.tool

    def team(self) -> kt.Team:
        return replace(super().team(), guardrails=(ToolLoop(2, 3),))

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        reply = super().reply(name, request, said)
        if isinstance(reply, str):
            return reply
        return replace(reply, tool_calls=[replace(one, arguments={"text": "same"}) for one in reply.tool_calls])


class Guarded(Payer):
    """A guardrail refuses replies that are paid already, and the member asks otherwise."""

    def team(self) -> kt.Team:
        async def insist(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            model = context.model("m:x")
            for word in ("rude", "curt", "calm"):
                try:
                    return (await model.complete(ask(f"{assignment.task.id} {word}"))).text
                except GuardrailDenied:
                    await context.tool(self.tool())(text=f"{assignment.task.id} {word}")
            raise AssertionError("the last reply is calm")

        return kt.Team("team", [kt.Member("writer", insist)], guardrails=[_Polite()])

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        return said


class _Polite:
    phases = frozenset({GuardrailPhase.POST_MODEL})

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        text = context.payload.response.text  # type: ignore[union-attr]  # of this phase
        return GuardrailDecision.allow() if "calm" in text else GuardrailDecision.deny("be calm")


# ---------------------------------------------------------------------- planners


class Planned(Payer):
    """A planner whose first reply is no plan, and that plans again when a task has failed."""

    plan = None

    def coordinator(self) -> Any:
        once = FailurePolicy(retries=0, try_others=False)
        return ExpertTeamCoordinator(planner=AgentPlanner("m:x"), replan=True, failure_policy=once)

    def team(self) -> kt.Team:
        async def broken(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            await context.model("m:x").complete(ask(f"broken {assignment.task.id}"))
            raise ValueError("cannot")

        return kt.Team("team", [kt.Member("good", work), kt.Member("bad", broken)])

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        if request.output_schema is None:
            return f"answer {len(said)}"
        if "ValueError: cannot" in said:
            return _plan_of(("other", "good", ["first"]))
        if any(one.role == "assistant" for one in request.messages):
            return _plan_of(("first", "good", []), ("second", "bad", ["first"]), ("last", "good", ["second"]))
        return "no plan"


class Frugal(Planned):
    """A planner that says what is left of the budget."""

    tells_what_is_left = True
    config = kt.TeamConfig(budget=kt.Budget(tokens=50_000))

    def coordinator(self) -> Any:
        once = FailurePolicy(retries=0, try_others=False)
        return ExpertTeamCoordinator(planner=_FrugalPlanner(), replan=True, failure_policy=once)


class _FrugalPlanner(AgentPlanner):
    def __init__(self) -> None:
        super().__init__("m:x")

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        left = request.config.budget
        await context.model("m:x").complete(ask(f"What can be done with {left.tokens} tokens?"))
        return await super().plan(request, team, context)


def _plan_of(*tasks: tuple[str, str, list[str]]) -> str:
    made = [{"id": one, "description": f"Do {one}.", "member": who, "depends_on": on} for one, who, on in tasks]
    return json.dumps({"tasks": made})


class AgentPlans(Payer):
    """A planner that is an agent with a tool and several turns, in a coordinator that asks in a step too."""

    plan = None

    def coordinator(self) -> Any:
        return ExpertTeamCoordinator(planner=_AgentAsPlanner(self))

    def team(self) -> kt.Team:
        return kt.Team("team", [kt.Member("writer", work)])

    reply = Members.reply


class _AgentAsPlanner:
    def __init__(self, payer: Payer) -> None:
        self.payer = payer

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        agent = kt.MiniAgent("m:x", tools=[self.payer.tool()])
        assignment = kt.Assignment(kt.Task("plan", "Plan it."), request.goal, {}, {}, {})
        made = await agent.run(assignment, context)
        return kt.TaskGraph([kt.Task("one", made.text), kt.Task("two", "Do two.", depends_on=["one"])])


# ---------------------------------------------------------------------- providers that fail


class Retries(Payer):
    """A provider that is overloaded whenever it is asked something for the first time."""

    def team(self) -> kt.Team:
        return kt.Team("team", [kt.Member("writer", work)])

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        if self.account.count(f"{name} {said}") == 1:
            raise ModelCallError("overloaded", name, "come back later", unspent=True)
        return f"answer {len(said)}"


class Fallbacks(Retries):
    """A provider that never answers, and another one that answers in its place."""

    retries = 1
    asks_failed_again = True

    def team(self) -> kt.Team:
        async def fall_back(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            model = context.model(Fallback("test:down", "m:x"))
            first = await model.complete(ask(assignment.task.id))
            return (await model.complete(ask(f"{assignment.task.id} {first.text}"))).text

        return kt.Team("team", [kt.Member("writer", fall_back)])

    def models(self) -> dict[str, Any]:
        return {"m:x": self.provider("test:m"), "test:down": self.provider("test:down")}

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        if name == "test:down":
            raise ModelCallError("overloaded", name, "come back later", unspent=True)
        return f"answer {len(said)}"


class Flaky(Payer):
    """A task board with an agent that fails on its first attempt, after it has paid."""

    def coordinator(self) -> Any:
        return TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=1, backoff=0.001))

    def team(self) -> kt.Team:
        async def weak(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            await context.model("m:x").complete(ask(f"{assignment.task.id} weak"))
            context.keep("so far")
            raise ValueError("cannot")

        return kt.Team("team", [kt.Member("weak", weak), kt.Member("strong", work)])

    plan = kt.TaskGraph([kt.Task("one", "Do one."), kt.Task("two", "Do two."), kt.Task("three", "Do three.")])


# ---------------------------------------------------------------------- a supervisor


class Supervised(Payer):
    """A supervisor that creates tasks in two turns, one again and one in vain, looks at the results and answers."""

    plan = None

    def coordinator(self) -> Any:
        return kt.SupervisorCoordinator(max_turns=3)

    def team(self) -> kt.Team:
        return kt.Team("team", [kt.Member("lead", kt.MiniAgent("m:x")), kt.Member("a", work), kt.Member("b", work)])

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        turn = next((number for number in (1, 2, 3) if f"turn: {number} of" in said), 0)
        if not turn:
            return f"answer {len(said)}"
        made = sum(one.role == "tool" for one in request.messages)
        number = turn * 10 + made
        name, arguments = _SCRIPT[turn - 1][made]
        return kt.ModelResponse("", tool_calls=[kt.ToolCall(f"c{number}", name, arguments)])


def _create(task_id: str, member: str, *needs: str) -> tuple[str, dict[str, Any]]:
    about = {"id": task_id, "description": f"Do {task_id}.", "member": member, "depends_on": list(needs)}
    return "create_task", about


_SCRIPT: list[list[tuple[str, dict[str, Any]]]] = [
    [_create("one", "a"), _create("one", "a"), _create("x", "nobody"), _create("two", "b", "one"), ("wait", {})],
    [("see_results", {"ids": ["one"]}), _create("three", "a"), ("wait", {})],
    [("see_results", {}), ("finish", {"answer": "It is done."})],
]
"""What the supervisor does in each turn."""


# ---------------------------------------------------------------------- turns


class HandsOver(Payer):
    """A desk whose members hand over by the tool: after another tool, by a function, and back again."""

    plan = None

    def coordinator(self) -> Any:
        return kt.HandoffCoordinator(max_hops=4)

    def team(self) -> kt.Team:
        async def back(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            found = await context.model("m:x").complete(ask(f"{assignment.task.id} {assignment.inputs['message']}"))
            if context.offered and assignment.task.id == "turn.0002":
                await context.tool("hand_over")(to="greeter", message=found.text)
            return found.text

        greeter = kt.MiniAgent("m:x", tools=[self.tool()])
        return kt.Team("team", [kt.Member("greeter", greeter), kt.Member("clerk", back)])

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        if not request.tools:
            return f"answer {len(said)}"
        notes = sum(one.role == "tool" for one in request.messages)
        call = ("note", {"text": f"{len(said)}"}) if not notes else ("hand_over", {"to": "clerk", "message": "go on"})
        return kt.ModelResponse(f"{notes} notes {len(said)}", tool_calls=[kt.ToolCall(f"c{notes}", *call)])


# ---------------------------------------------------------------------- a coordinator of one's own


class Debate(Payer):
    """A coordinator written with `TeamRun` alone: it asks by itself, adds tasks, and ends the run early."""

    plan = None

    def coordinator(self) -> Any:
        return _Debate()

    def team(self) -> kt.Team:
        return kt.Team("team", [kt.Member("a", work), kt.Member("b", work)])


class _Debate:
    """Two argue, a model says who goes on, and the run is concluded after that."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(kt.TaskGraph([kt.Task("pro", "For.", member="a"), kt.Task("con", "Against.")]))
            async for task in run.ready(graph):
                run.go(self.argue, run, task)
            said = await run.step("who", lambda: self.choose(run))
            graph = await run.add(lambda: self.more(run, said))
            async for task in run.ready(graph):
                run.go(self.argue, run, task)
                if task.id == "sum":
                    break
            await run.conclude("all is said")
        return run.result

    async def argue(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error:
            run.fail(task, attempt.error)
            return
        run.accept(task, attempt)
        if task.id == "sum":
            await run.conclude("all is said")

    async def choose(self, run: kt.TeamRun) -> str:
        return (await run.context("choose").model("m:x").complete(ask("Who goes on?"))).text

    async def more(self, run: kt.TeamRun, said: str) -> list[kt.Task]:
        text = (await run.context("plan").model("m:x").complete(ask(f"What more, as {said}?"))).text
        return [kt.Task("sum", text, member="b"), kt.Task("end", "Never done.", depends_on=["sum"])]
