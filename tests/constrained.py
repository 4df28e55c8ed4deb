"""What the tests of constrained runs share: rules, models that hang, agents of other makes, a bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio

import kairo_team as kt
from kairo_team import events
from kairo_team.contracts import TeamCoordinator
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance import (
    ConstraintExit,
    ResourceAction,
    ResourceContext,
    ResourceValidation,
)
from kairo_team.testing import EventRecorder, FunctionModel

COMPLETED, FAILED, CANCELLED = kt.TaskStatus.COMPLETED, kt.TaskStatus.FAILED, kt.TaskStatus.CANCELLED
ALLOW, WARN, EXIT, STOP = ResourceAction
ONCE = FailurePolicy(retries=0)


class Rule:
    """Violated when the function says so; remembers what it was shown."""

    def __init__(self, when: Callable[[ResourceContext], bool], action: ResourceAction = ALLOW) -> None:
        self.when = when
        self.action = action
        self.seen: list[ResourceContext] = []

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        self.seen.append(context)
        return ResourceValidation(self.when(context), "the rule says so", {"iteration": context.iteration})

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return self.action


def watcher(action: ResourceAction = ALLOW) -> Rule:
    """A constraint that is never violated."""
    return Rule(lambda context: False, action)


class Bench:
    """A run whose events are recorded and lawful."""

    def __init__(self, *members: kt.Member, team: Sequence[Any] = (), model: Any = None, **fields: Any) -> None:
        self.recorder = EventRecorder()
        models = {"test:m": model or FunctionModel(lambda request: "word ")}
        runtime = kt.Runtime(subscribers=[self.recorder], models=models)
        self.team = kt.Team("team", members, constraints=team, runtime=runtime, **fields)

    async def run(self, *tasks: kt.Task, coordinator: TeamCoordinator | None = None, **config: Any) -> kt.TeamResult:
        request = kt.TeamExecutionRequest(
            "goal", plan=kt.TaskGraph(tasks or [kt.Task("t", "do")]), config=kt.TeamConfig(**config), run_id="r"
        )
        coordinator = coordinator or TaskDispatchCoordinator(failure_policy=ONCE)
        result = await coordinator.execute(request, self.team)
        self.recorder.assert_lawful()
        return result

    @property
    def violations(self) -> list[events.ConstraintViolated]:
        return self.recorder.of(events.ConstraintViolated)


def cut(*texts: str) -> list[kt.ModelResponse]:
    """Replies that were cut off at the token limit, so that MiniAgent asks on; ten tokens each."""
    return [kt.ModelResponse(text, usage=kt.Usage(6, 4), model="test:m", finish_reason="length") for text in texts]


def ask(context: kt.MemberContext, model: Any, text: str = "go on") -> Any:
    return context.model(model).complete(kt.ModelRequest([kt.Message.user(text)]))


async def good(assignment: kt.Assignment) -> str:
    return f"made {assignment.task.id}"


async def plain(assignment: kt.Assignment) -> str:
    return "text"


async def hang(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half of it")
    await anyio.sleep_forever()
    raise AssertionError


class Hanging(FunctionModel):
    """A model whose call number `after` + 1 never comes back."""

    def __init__(self, after: int = 0) -> None:
        super().__init__(lambda request: self.answer())
        self.after = after
        self.aborted = 0

    async def answer(self) -> kt.ModelResponse:
        if len(self.calls) > self.after:
            try:
                await anyio.sleep_forever()
            finally:
                self.aborted += 1
        return cut("so far, ")[0]


async def careless(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """A foreign agent that knows nothing of constraints and keeps what it has."""
    text = ""
    while True:
        text += (await ask(context, "test:m")).text
        context.keep(text)


async def stubborn(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """It asks again and again."""
    context.keep("kept")
    while True:
        with suppress(ConstraintExit, kt.HaltError):
            await ask(context, "test:m")


def team_of(agent: Any, *constraints: Any, of_team: bool = False) -> Bench:
    return Bench(kt.Member("a", agent, constraints=() if of_team else constraints), team=constraints if of_team else ())


class Bell:
    """A constraint that is only watched: it rings after a while and asks for an action."""

    name = "bell"

    def __init__(self, action: ResourceAction) -> None:
        self.action = action

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        return ResourceValidation(False)

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return self.action

    async def watch(self) -> ResourceValidation:
        await anyio.sleep(5)
        return ResourceValidation(True, "it rang")
