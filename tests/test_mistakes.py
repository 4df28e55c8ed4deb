"""Mistakes of a program: what somebody writes, and the sentence that says what to write instead."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial, wraps
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import CriterionResult, Rubric
from kairo_team.messages import ToolSpec
from kairo_team.testing import EventRecorder, ScriptedModel


async def write(assignment: kt.Assignment) -> str:
    return "made"


def nothing() -> str:
    return ""


def three(assignment: kt.Assignment, context: kt.MemberContext, more: int) -> str:
    return ""


def keyword(assignment: kt.Assignment, *, tone: str) -> str:
    return ""


async def yields(assignment: kt.Assignment) -> AsyncIterator[str]:
    yield ""


class Writer:
    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return "made"


class Plain:
    """Every method is written with `def` where it is to be async."""

    def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return "made"

    def evaluate(self, context: Any) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.passed()

    def execute(self, request: Any, team: Any) -> kt.TeamResult:
        return kt.TeamResult("r", kt.TeamStatus.COMPLETED)

    def decide(self, question: Any) -> None:
        return None

    def plan(self, request: Any, team: Any, context: Any) -> kt.TaskGraph:
        return kt.TaskGraph([kt.Task("t", "do")])

    def validate(self, context: Any) -> None:
        return None

    def on_violation(self, validation: Any) -> Any:
        return None


class Short:
    """Every method lacks an argument."""

    async def run(self, assignment: kt.Assignment) -> str:
        return "made"

    async def execute(self, request: Any) -> Any:
        return None


class Streams:
    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> AsyncIterator[str]:
        yield ""


def wrong(**fields: Any) -> Any:
    """What a type checker would refuse."""
    return fields


ANY: Any = kt
"""A type checker would find the mistakes."""
MEMBER = kt.Member("writer", write)
TEAM = kt.Team("desk", [MEMBER])


def takes(kind: Any) -> str:
    """The fields of a value, as a sentence lists them."""
    *before, last = (one.name for one in dataclasses.fields(kind) if one.init)
    return f"{', '.join(before)} and {last}"


A_TASK = f"a Task takes {takes(kt.Task)}"
MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "swapped": (
        lambda: ANY.run_sync("go", TEAM),
        "the team comes first, then the goal: kt.run(team, 'go')",
    ),
    "no team": (
        lambda: ANY.run_sync("writer", "go"),
        "the team must be a Team, such as kt.Team('desk', [kt.Member(...)]), not 'writer'",
    ),
    "goal": (
        lambda: ANY.run_sync(TEAM, 5),
        "the goal must be a string or a TeamExecutionRequest, not 5",
    ),
    "no goal": (
        lambda: ANY.check(TEAM, None),
        "the goal must be a string or a TeamExecutionRequest, not None",
    ),
    "goal of a request": (
        lambda: ANY.TeamExecutionRequest(["a"]),
        "TeamExecutionRequest.goal must be a string, not ['a']",
    ),
    "coordinator class": (
        lambda: ANY.run_sync(TEAM, "go", coordinator=TaskDispatchCoordinator),
        "coordinator: TaskDispatchCoordinator is a class, not a coordinator: make one, TaskDispatchCoordinator(...)",
    ),
    "coordinator class of a team": (
        lambda: ANY.Team("desk", [MEMBER], coordinator=TaskDispatchCoordinator),
        (
            "Team.coordinator: TaskDispatchCoordinator is a class, not a coordinator: make one, "
            "TaskDispatchCoordinator(...)"
        ),
    ),
    "coordinator not async": (
        lambda: ANY.Team("desk", [MEMBER], coordinator=Plain()),
        "Team.coordinator: Plain.execute is not an async function: write async def execute(request, team)",
    ),
    "coordinator short": (
        lambda: ANY.Team("desk", [MEMBER], coordinator=Short()),
        "Team.coordinator: Short.execute takes (request), and is called as execute(request, team)",
    ),
    "runtime class": (
        lambda: ANY.run_sync(TEAM, "go", runtime=kt.Runtime),
        "runtime: Runtime is a class, not a runtime: make one, Runtime(...)",
    ),
    "runtime": (
        lambda: ANY.run_sync(TEAM, "go", runtime={}),
        "runtime must be a Runtime, such as kt.Runtime(subscribers=[...]), not {}",
    ),
    "budget": (
        lambda: ANY.run_sync(TEAM, "go", budget=1000),
        "budget must be a Budget, such as kt.Budget(tokens=20_000), not 1000",
    ),
    "agent class": (
        lambda: ANY.Member("writer", Writer),
        "member 'writer': Writer is a class, not an agent: make one, Writer(...)",
    ),
    "MiniAgent itself": (
        lambda: ANY.Member("writer", kt.MiniAgent),
        "member 'writer': MiniAgent is a class, not an agent: make one, MiniAgent(...)",
    ),
    "agent not async": (
        lambda: ANY.Member("writer", Plain()),
        "member 'writer': Plain.run is not an async function: write async def run(assignment, context)",
    ),
    "agent short": (
        lambda: ANY.Member("writer", Short()),
        "member 'writer': Short.run takes (assignment), and is called as run(assignment, context)",
    ),
    "agent yields": (
        lambda: ANY.Member("writer", Streams()),
        "member 'writer': Streams.run yields but must return: write async def run(assignment, context) with a return",
    ),
    "agent is a string": (
        lambda: ANY.Member("writer", "openai:gpt-5-mini"),
        (
            "member 'writer': the agent must be a function or have an async run(assignment, context), not "
            "'openai:gpt-5-mini': kt.MiniAgent('openai:gpt-5-mini') is an agent that asks this model"
        ),
    ),
    "function of nothing": (
        lambda: ANY.Member("writer", nothing),
        "member 'writer': nothing takes (); an agent function takes (assignment) or (assignment, context)",
    ),
    "function of three": (
        lambda: ANY.Member("writer", three),
        (
            "member 'writer': three takes (assignment, context, more); an agent function takes (assignment) or "
            "(assignment, context)"
        ),
    ),
    "function with a keyword": (
        lambda: ANY.Member("writer", keyword),
        (
            "member 'writer': keyword takes (assignment, *, tone); an agent function takes (assignment) or "
            "(assignment, context)"
        ),
    ),
    "function yields": (
        lambda: ANY.Member("writer", yields),
        "member 'writer': yields yields; an agent must return its result",
    ),
    "one member": (
        lambda: ANY.Team("desk", MEMBER),
        f"Team.members is a list of Member objects, not {MEMBER!r}: put it into a list, [...]",
    ),
    "evaluator class": (
        lambda: ANY.Team("desk", [MEMBER], evaluators={"house": Rubric}),
        "the team's evaluator 'house': Rubric is a class, not an evaluator: make one, Rubric(...)",
    ),
    "evaluator not async": (
        lambda: ANY.Team("desk", [MEMBER], evaluators={"house": Plain()}),
        "the team's evaluator 'house': Plain.evaluate is not an async function: write async def evaluate(context)",
    ),
    "evaluator function": (
        lambda: ANY.Team("desk", [MEMBER], evaluators={"house": len}),
        (
            "the team's evaluator 'house' must have an async evaluate(context), not <built-in function len>: code "
            "checks a criterion, kt.Rubric([kt.Criterion('short', 'at most 60 words', check)])"
        ),
    ),
    "evaluators as a list": (
        lambda: ANY.Team("desk", [MEMBER], evaluators=["house"]),
        "Team.evaluators is a dict by the names that tasks use, not ['house']",
    ),
    "evaluator of a coordinator": (
        lambda: ExpertTeamCoordinator(**wrong(evaluator=Rubric)),
        "ExpertTeamCoordinator.evaluator: Rubric is a class, not an evaluator: make one, Rubric(...)",
    ),
    "planner class": (
        lambda: ExpertTeamCoordinator(**wrong(planner=AgentPlanner)),
        "ExpertTeamCoordinator.planner: AgentPlanner is a class, not a planner: make one, AgentPlanner(...)",
    ),
    "planner not async": (
        lambda: ExpertTeamCoordinator(**wrong(planner=Plain())),
        (
            "ExpertTeamCoordinator.planner: Plain.plan is not an async function: "
            "write async def plan(request, team, context)"
        ),
    ),
    "judge class": (
        lambda: ExpertTeamCoordinator(**wrong(judge=ScriptedModel)),
        "ExpertTeamCoordinator.judge: ScriptedModel is a class, not a judge: make one, ScriptedModel(...)",
    ),
    "gate class": (
        lambda: ANY.Runtime(gate=kt.ConsoleGate),
        "Runtime.gate: ConsoleGate is a class, not a gate: make one, ConsoleGate(...)",
    ),
    "journal class": (
        lambda: ANY.Runtime(journal=kt.SqliteJournal),
        "Runtime.journal: SqliteJournal is a class, not a journal: make one, SqliteJournal(...)",
    ),
    "path for a journal": (
        lambda: ANY.Runtime(journal="runs.db"),
        "Runtime.journal must be a journal, such as kt.SqliteJournal(path), not 'runs.db'",
    ),
    "gate not async": (
        lambda: ANY.Runtime(gate=Plain()),
        "Runtime.gate: Plain.decide is not an async function: write async def decide(question)",
    ),
    "guardrail not async": (
        lambda: ANY.Member("writer", write, guardrails=[Plain()]),
        "member 'writer': Plain.evaluate is not an async function: write async def evaluate(context)",
    ),
    "guardrail class": (
        lambda: ANY.Member("writer", write, guardrails=[Plain]),
        "member 'writer': Plain is a class, not a guardrail: make one, Plain(...)",
    ),
    "constraint class": (
        lambda: ANY.Team("desk", [MEMBER], constraints=[Plain]),
        "team 'desk': Plain is a class, not a constraint: make one, Plain(...)",
    ),
    "constraint not async": (
        lambda: ANY.Team("desk", [MEMBER], constraints=[Plain()]),
        "team 'desk': Plain.validate is not an async function: write async def validate(context)",
    ),
    "one subscriber": (
        lambda: ANY.Runtime(subscribers=print),
        (
            "Runtime.subscribers is a list of functions that take an event, not <built-in function print>: put it "
            "into a list, [...]"
        ),
    ),
    "subscriber class": (
        lambda: ANY.Runtime(subscribers=[EventRecorder]),
        "Runtime.subscribers: EventRecorder is a class, not a subscriber: make one, EventRecorder(...)",
    ),
    "subscriber of nothing": (
        lambda: ANY.Runtime(subscribers=[nothing]),
        "Runtime.subscribers: nothing takes (), and is called as subscriber(event)",
    ),
    "requires": (
        lambda: ANY.Task("t", "do", requires="writing"),
        "Task.requires must be a set or list of strings, not the one string 'writing': write ['writing']",
    ),
    "depends_on": (
        lambda: ANY.Task("t", "do", depends_on="fetch"),
        "Task.depends_on must be a list of strings, not the one string 'fetch': write ['fetch']",
    ),
    "capabilities": (
        lambda: ANY.Role("r", capabilities="prose"),
        "Role.capabilities must be a set or list of strings, not the one string 'prose': write ['prose']",
    ),
    "allowed_tools": (
        lambda: ANY.Role("r", allowed_tools="search"),
        "Role.allowed_tools must be a set or list of strings or None, not the one string 'search': write ['search']",
    ),
    "suggestions": (
        lambda: ANY.EvaluationVerdict("pass", suggestions="shorter"),
        "EvaluationVerdict.suggestions must be a list of strings, not the one string 'shorter': write ['shorter']",
    ),
    "names that are none": (
        lambda: ANY.Role("r", capabilities=["a", 5]),
        "Role.capabilities[1] must be a string, not 5",
    ),
    "misspelt budget": (
        lambda: ANY.Budget(token=1),
        "Budget takes no 'token'; did you mean 'tokens'? It takes tokens, dollars, loops, tool_calls and seconds",
    ),
    "misspelt team": (
        lambda: ANY.Team("desk", [MEMBER], evaluator={}),
        (f"Team takes no 'evaluator'; did you mean 'evaluators'? It takes {takes(kt.Team)}"),
    ),
    "misspelt task": (
        lambda: ANY.Task("t", "do", depend_on=[]),
        f"Task takes no 'depend_on'; did you mean 'depends_on'? {A_TASK.replace('a Task', 'It')}",
    ),
    "misspelt usage": (
        lambda: ANY.Usage(prompt=1),
        (f"Usage takes no 'prompt'; did you mean 'prompt_tokens'? It takes {takes(kt.Usage)}"),
    ),
    "misspelt policy": (
        lambda: ANY.BudgetPolicy(top_up=2),
        (f"BudgetPolicy takes no 'top_up'; did you mean 'top_ups'? It takes {takes(kt.BudgetPolicy)}"),
    ),
    "misspelt limit": (
        lambda: ANY.ModelLimit(concurency=2),
        f"ModelLimit takes no 'concurency'; did you mean 'concurrency'? It takes {takes(kt.ModelLimit)}",
    ),
    "nothing like it": (
        lambda: ANY.Budget(colour="red"),
        "Budget takes no 'colour'; it takes tokens, dollars, loops, tool_calls and seconds",
    ),
    "no agent": (
        lambda: ANY.Member("writer"),
        f"Member needs 'agent'; it takes {takes(kt.Member)}",
    ),
    "no description": (
        lambda: ANY.Task("t"),
        f"Task needs 'description'; {A_TASK}",
    ),
    "plan with an extra field": (
        lambda: ANY.TeamExecutionRequest("g", plan={"tasks": [{"id": "a", "description": "do", "assignee": "me"}]}),
        f"TeamExecutionRequest.plan.tasks[0] takes no 'assignee'; {A_TASK}",
    ),
    "plan with another field": (
        lambda: ANY.TeamExecutionRequest("g", plan={"task": []}),
        (
            "TeamExecutionRequest.plan needs 'tasks'; a TaskGraph takes tasks; "
            "TeamExecutionRequest.plan takes no 'task'; did you mean 'tasks'? A TaskGraph takes tasks"
        ),
    ),
    "plan with a wrong task": (
        lambda: ANY.TeamExecutionRequest("g", plan={"tasks": [{"id": "a", "description": " "}]}),
        "TeamExecutionRequest.plan.tasks[0]: task 'a': the description must not be blank",
    ),
    "plan of text": (
        lambda: ANY.TeamExecutionRequest("g", plan="first write, then edit"),
        "TeamExecutionRequest.plan must be a TaskGraph or None, not 'first write, then edit'",
    ),
    "choice": (
        lambda: ANY.TeamConfig(risk_profile="huge"),
        "TeamConfig.risk_profile must be 'low', 'medium' or 'high', not 'huge'",
    ),
    "tasks one by one": (
        lambda: ANY.TaskGraph(kt.Task("a", "do"), kt.Task("b", "do")),
        "TaskGraph.tasks must be a list of Task objects, not a Task alone: put them into a list, [...]",
    ),
    "one task": (
        lambda: ANY.TaskGraph(kt.Task("a", "do")),
        "TaskGraph.tasks must be a list of Task objects, not a Task alone: put them into a list, [...]",
    ),
    "one task of a loop": (
        lambda: ANY.Loop(kt.Task("a", "do")),
        "Loop.body must be a list of Task objects, not a Task alone: put them into a list, [...]",
    ),
    "more than a plan takes": (
        lambda: ANY.TaskGraph([kt.Task("a", "do")], [kt.Task("b", "do")]),
        "TaskGraph takes at most tasks without their names; it takes tasks=",
    ),
    "a plan and one more task": (
        lambda: ANY.TaskGraph([kt.Task("a", "do")], kt.Task("b", "do")),
        "TaskGraph.tasks must be a list of Task objects, not a Task alone: put them into a list, [...]",
    ),
    "a schema for an output type": (
        lambda: ANY.Task("t", "do", output_type={"type": "object"}),
        (
            "Task.output_type must be a type, such as list[str] or a model, or the name of one of the team's output "
            "types, not {'type': 'object'}: a team has JSON Schemas by name, Team(..., output_types={'points': "
            "{...}}), and a task says output_type='points'"
        ),
    ),
    "a value for an output type": (
        lambda: ANY.Task("t", "do", output_type=["a"]),
        (
            "Task.output_type must be a type, such as list[str] or a model, or the name of one of the team's output "
            "types, not ['a']"
        ),
    ),
    "budget of a task": (
        lambda: ANY.Task("t", "do", budget=5),
        "Task.budget must be a Budget or None, not 5",
    ),
    "class of a budget": (
        lambda: ANY.TeamConfig(budget=kt.Budget),
        "TeamConfig.budget must be a Budget, not the class Budget",
    ),
    "number or all": (
        lambda: ANY.Task("t", "do", needs="most"),
        "Task.needs must be a number or 'all', not 'most'",
    ),
    "bound": (
        lambda: ANY.ModelRequest([], max_tokens=0),
        "ModelRequest.max_tokens must be greater than or equal to 1, not 0",
    ),
    "key": (
        lambda: ANY.Task("t", "do", inputs={1: 2}),
        "Task.inputs: a key must be a string, not 1",
    ),
    "two mistakes": (
        lambda: ANY.Task(5, "do", weight="heavy"),
        "Task.id must be a string, not 5; Task.weight must be a number, not 'heavy'",
    ),
}


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_audit_g16_a_mistake_is_met_with_a_sentence(mistake: Callable[[], object], sentence: str) -> None:
    for _ in range(2):  # the first value of a kind builds its validator
        with pytest.raises((ValueError, TypeError)) as caught:
            mistake()
        assert str(caught.value) == sentence


KINDS: list[type[Any]] = [
    *(kt.Task, kt.Role, kt.TaskGraph, kt.TeamConfig, kt.TeamExecutionRequest, kt.Message, ToolSpec, kt.ToolCall),
    *(kt.Finding, CriterionResult, kt.EvaluationVerdict, kt.HumanRequest, kt.HumanDecision, kt.ModelRequest),
]
TAILS = ("input_value", "ArgsKwargs", "json-or-python", "errors.pydantic.dev", "validation error", "Input should", "\n")


@pytest.mark.filterwarnings("ignore:TeamConfig.team_timeout:DeprecationWarning")  # a field like the others here
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [object(), 5, "x", ["x"], {"x": 1}, None, b"x", 1.5, [object()], [[5]], kt.Task])
def test_audit_g16_nothing_of_the_validator_shows_whatever_a_value_is_made_of(kind: Any, given: Any) -> None:
    good = {"id": "i", "description": "d", "goal": "g", "name": "n", "role": "user", "text": "t", "kind": "plan"}
    for name in kind.__dataclass_fields__:
        try:
            kind(**{**{key: value for key, value in good.items() if key in kind.__dataclass_fields__}, name: given})
        except (ValueError, TypeError) as error:
            said = str(error)
            assert [tail for tail in TAILS if tail in said] == []


def test_audit_g16_what_is_right_in_another_way_is_taken() -> None:
    """A `def` that returns an awaitable, and says so, stands for an `async def`; any callable of one is an agent."""

    class Hands:
        def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Awaitable[str]:
            return Writer().run(assignment, context)

    class Wrapped:
        @wraps(Writer.run)
        def run(self, *args: Any) -> Any:
            return Writer().run(*args)

    agents: list[Any] = [
        Hands(),
        Wrapped(),
        write,
        partial(write),
        Writer().run,
        len,
        lambda _: "",
        lambda _, context: "",
    ]
    for agent in agents:
        kt.Member("writer", agent)


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_a_message_of_a_text_alone_is_the_one_its_constructor_makes(role: Any) -> None:
    short = getattr(kt.Message, role)
    assert short("the moon") == kt.Message(role, "the moon")
    with pytest.raises(ValueError, match="text"):
        short(7)
