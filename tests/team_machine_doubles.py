"""Members, evaluators, planners and people that behave as a scenario says, and what they saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import anyio

import kairo_team as kt
from kairo_team.governance import ResourceAction, ResourceContext, ResourceValidation
from kairo_team.permissions import PermissionDecision
from kairo_team.verdicts import Cause
from tests.team_machine import Scenario

if TYPE_CHECKING:
    from collections.abc import Generator

    from kairo_team.governance import Governor

TOKENS_A_CALL = 10
PATIENCE = 12
"""Questions after which a person approves of everything: one that wants another version each time never ends."""


@dataclass
class World:
    """What everybody saw and did in one run."""

    scenario: Scenario
    running: Counter[str] = field(default_factory=Counter[str])
    """How many are at work now: of each member, of all members, and of all members and evaluators."""
    most: Counter[str] = field(default_factory=Counter[str])
    tries: Counter[str] = field(default_factory=Counter[str])
    reviews: Counter[str] = field(default_factory=Counter[str])
    plans: int = 0
    questions: list[kt.HumanRequest] = field(default_factory=list[kt.HumanRequest])
    governors: list[Governor] = field(default_factory=list["Governor"])
    """Everybody's that did something."""
    alarm: bool = False
    """The constraint is violated from now on."""
    cancel_task: Callable[[str], None] = lambda task_id: None

    @contextmanager
    def at_work(self, *counted: str) -> Generator[None]:
        for one in counted:
            self.running[one] += 1
            self.most[one] = max(self.most[one], self.running[one])
        try:
            yield
        finally:
            for one in counted:
                self.running[one] -= 1


class Member:
    """A member that does what the task's script says."""

    reentrant = True

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        world, task_id = self.world, assignment.task.id
        script = world.scenario.script(task_id)
        number = world.tries[task_id]
        world.tries[task_id] += 1
        world.governors.append(context.governor)
        with world.at_work(self.name, "tries", "work"):
            context.keep(f"kept by {self.name}")
            await anyio.sleep(script.seconds)
            act = script.acts[number % len(script.acts)]
            return await self.act(act, assignment, context, f"{task_id} {number}")

    async def act(self, act: str, assignment: kt.Assignment, context: kt.MemberContext, made: str) -> Any:
        match act:
            case "same":
                return "the same"
            case "fail":
                raise ConnectionError("busy")
            case "hang":
                await anyio.sleep_forever()
            case "nothing":
                return None
            case "nonsense":
                return 5
            case "empty":
                return ""
            case "partial":
                return kt.AgentOutput(kt.Artifact(made), kt.AgentStatus.TURN_LIMIT_REACHED)
            case "spend":
                await call_model(context)
            case "overspend":
                await overspend(context)
            case "group":
                await spend_together(context)
            case "record":  # spending that nobody held: booked whatever the limit
                context.governor.record_usage(prompt_tokens=30)
            case "swallow":
                await swallow(0.0)
            case "swallow slowly":
                await swallow(0.1)
            case "clean up slowly":
                await clean_up_slowly()
            case "halt oneself" | "stop oneself":
                emergency = act == "stop oneself"
                context.governor.cancel(kt.HaltReason.EMERGENCY_STOP if emergency else kt.HaltReason.CANCELLED)
                await anyio.sleep(1)
            case "pay":
                return f"{made}: {(await context.tool(pay)(to=assignment.task.id)).text}"
            case "cancel oneself":
                self.world.cancel_task(assignment.task.id)
                await anyio.sleep(1)
            case _:
                pass
        return f"made by {self.name} for {made}"


async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid to {to}"


async def call_model(context: kt.MemberContext) -> None:
    with await context.governor.hold(tokens=TOKENS_A_CALL) as hold:
        await anyio.sleep(0.1)
        hold.settle(prompt_tokens=min(hold.tokens, 7))


async def overspend(context: kt.MemberContext) -> None:
    for _ in range(50):
        await call_model(context)


async def spend_together(context: kt.MemberContext) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call_model, context)


async def swallow(pause: float) -> None:
    for _ in range(100_000):
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.sleep(pause)


async def clean_up_slowly() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(50)


class Editor:
    """Reviews as the task's script says."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def evaluate(self, context: kt.EvaluationContext) -> Any:
        task_id = context.task.id
        number = self.world.reviews[task_id]
        self.world.reviews[task_id] += 1
        verdicts = self.world.scenario.script(task_id).verdicts
        with self.world.at_work("work"):
            await anyio.sleep(0.05)
            return await self.judge(verdicts[number % len(verdicts)], number)

    async def judge(self, act: str, number: int) -> Any:
        kind, _, cause = act.partition(" ")
        match kind:
            case "pass":
                return kt.EvaluationVerdict.passed(0.9)
            case "revise":
                found = kt.Finding(f"f{number}", observed=f"wrong in {number} ways")
                return kt.EvaluationVerdict.revise("again", findings=[found], score=0.1 * (number % 5))
            case "same":
                return kt.EvaluationVerdict.revise("again", findings=[kt.Finding("f", observed="still wrong")])
            case "escalate":
                return kt.EvaluationVerdict.escalate(Cause(cause), "somebody else must look")
            case "crash":
                raise RuntimeError("the editor is ill")
            case "hang":
                return await anyio.sleep_forever()
            case "swallow":
                return await swallow(0.0)
            case _:
                return "fine"


class Planner:
    """Plans what the scenario has, or fails at it; asked again, it adds tasks."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> Any:
        world = self.world
        acts = world.scenario.planner or ["plan"]
        act = acts[world.plans % len(acts)]
        world.plans += 1
        world.governors.append(context.governor)
        await anyio.sleep(0.2)
        match act:
            case "raise":
                raise RuntimeError("no idea")
            case "nonsense":
                return "a plan"
            case "unbindable":
                return kt.TaskGraph([kt.Task("u", "do", member="nobody")])
            case "spend":
                await call_model(context)
            case "overspend":
                await overspend(context)
            case _:
                pass
        return self.graph(request)

    def graph(self, request: kt.TeamExecutionRequest) -> kt.TaskGraph:
        if request.plan is None:
            return kt.TaskGraph(self.world.scenario.tasks)
        kept = list(request.plan.tasks)
        needed = [task.id for task in kept][:1]
        return kt.TaskGraph(
            [*kept, kt.Task("x0", "do"), kt.Task("x1", "do", depends_on=[*needed, "x0"], needs=1), kt.Task("x2", "do")]
        )


class Person:
    """Decides as the scenario says."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def decide(self, question: kt.HumanRequest) -> Any:
        acts = self.world.scenario.gate or ["defer"]
        act = acts[len(self.world.questions) % len(acts)] if len(self.world.questions) < PATIENCE else "approve"
        self.world.questions.append(question)
        await anyio.sleep(0.05)
        match act:
            case "silence":
                return None
            case "raise":
                raise RuntimeError("the line is dead")
            case "nonsense":
                return "yes"
            case "defer":
                return kt.HumanDecision.defer()
            case _:
                return decision(act)


def decision(act: str) -> kt.HumanDecision:
    return kt.HumanDecision.revise("do it differently") if act == "revise" else getattr(kt.HumanDecision, act)()


class Asking:
    """A permission guard that leaves everything to people."""

    async def check(self, tool: str, arguments: object, side_effect: object) -> PermissionDecision:
        return PermissionDecision.ask("it costs money")


class Alarm:
    """A constraint that stops everything once the alarm is given."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        return ResourceValidation(self.world.alarm, "there is an alarm")

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return ResourceAction.EMERGENCY_STOP


class Dead:
    """A member, evaluator, planner and person that nobody may call; `called` says who was.

    With `put_off` the person may be asked, and puts every question off.
    """

    reentrant = True

    def __init__(self, *, put_off: bool = False) -> None:
        self.called: list[str] = []
        self.put_off = put_off

    def _die(self, what: str) -> NoReturn:
        self.called.append(what)
        raise AssertionError(f"{what} was called")

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        self._die(f"a member for {assignment.task.id}")

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        self._die(f"an evaluator for {context.task.id}")

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        self._die("a planner")

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
        if not self.put_off:
            self._die(f"a person about {question.kind} {question.task_id}")
        return kt.HumanDecision.defer()
