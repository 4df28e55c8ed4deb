"""Mistakes with a coordinator, a constraint, a guardrail and a kit of one's own: the sentence says what to write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.evaluators import Criterion, checks
from kairo_team.governance import GuardrailDecision, Timeout
from kairo_team.governance.policies import PiiRedactor
from kairo_team.tck import GuardrailPolicyTCK, ResourceConstraintTCK, run_kit
from kairo_team.testing import FunctionModel
from tests.first_hour.mistakes import ANY, MOON, TEAM, reviewed, run, told

KIT: Any = run_kit

# ------------------------------------------------------------------ a coordinator of one's own

Body = Callable[[Any, Any], Awaitable[None]]


class Board:
    """The smallest coordinator; a test brings the body of a task."""

    def __init__(self, work: Body) -> None:
        self.work = work

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            async for task in run.ready(await run.plan(kt.TaskGraph([kt.Task("tides", request.goal)]))):
                run.go(self.work, run, task)
        return run.result


class Swapped:
    async def execute(self, request: Any, team: Any) -> kt.TeamResult:
        async with kt.TeamRun.open(team, request) as run:
            pass
        return run.result


async def waits_for_no_attempt(run: Any, task: Any) -> None:
    with closing(run.attempt(task, 1)) as attempt:
        run.accept(task, attempt)


async def waits_for_no_review(run: Any, task: Any) -> None:
    attempt = await run.attempt(task, 1)
    with closing(run.review(task, attempt, MOON)) as verdict:
        run.accept(task, attempt, verdict)


async def accepts_an_artifact(run: Any, task: Any) -> None:
    run.accept(task, (await run.attempt(task, 1)).artifact)


async def names_a_task(run: Any, task: Any) -> None:
    await run.attempt(task.id, 1)


async def hands_over_to_nobody(run: Any, task: Any) -> None:
    await run.hand_over(task, "zed")


def works_at_once(run: Any, task: Any) -> Any:
    """Be no async function, as it should."""


COORDINATOR: dict[str, tuple[Any, list[str]]] = {
    "an attempt that is not awaited": (
        waits_for_no_attempt,
        ["accept: the attempt must be an Attempt, not <coroutine", "it was not awaited: write await before the call"],
    ),
    "a review that is not awaited": (
        waits_for_no_review,
        ["accept: the verdict must be an EvaluationVerdict or None, not <coroutine", "write await before the call"],
    ),
    "an artifact in place of its attempt": (
        accepts_an_artifact,
        ["accept: the attempt must be an Attempt, not Artifact("],
    ),
    "a task by its id": (names_a_task, ["the task must be a Task, not 'tides'"]),
    "a member that is not there": (
        hands_over_to_nobody,
        ["task 'tides' cannot be handed over to 'zed': the team has 'writer'"],
    ),
    "a body that is not async": (works_at_once, ["`go` takes an async function: write async def works_at_once("]),
}


@pytest.mark.parametrize(("work", "parts"), COORDINATOR.values(), ids=COORDINATOR)
def test_a_mistake_in_a_coordinator_is_told_what_to_write(work: Body, parts: list[str]) -> None:
    said = told(lambda: run(coordinator=Board(work)))
    assert [part for part in parts if part not in said] == [], said


def test_a_run_that_is_opened_with_the_team_first_is_told_the_order() -> None:
    said = told(lambda: run(coordinator=Swapped()))
    assert "TeamRun.open: the request must be a TeamExecutionRequest, not Team(" in said


# ------------------------------------------------------------------ constraints, guardrails and evaluators


MODELS = kt.Runtime(models={"m": FunctionModel(lambda request: "Fine.")})


def watched(**parts: Any) -> kt.TeamResult:
    return run(kt.Team("desk", [kt.Member("writer", kt.MiniAgent("m"), **parts)]), runtime=MODELS)


def modified() -> Any:
    text: Any = "[KEY]"
    return GuardrailDecision.modify("a key was masked", text)


def names_the_moon(artifact: kt.Artifact) -> bool:
    return "moon" in artifact.text


PARTS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a constraint by its name": (
        lambda: watched(constraints=["timeout"]),
        ["'timeout' lacks validate", "by name: kairo_team.governance.ConstraintChain.from_config([{'name': ...}])"],
    ),
    "a guardrail as data": (
        lambda: watched(guardrails=[{"name": "pii-redactor"}]),
        ["lacks evaluate", "by name: kairo_team.governance.GuardrailChain.from_config([{'name': ...}])"],
    ),
    "a constraint among the guardrails": (
        lambda: watched(guardrails=[Timeout(3)]),
        ["Timeout(seconds=3) lacks evaluate"],
    ),
    "a guardrail among the constraints": (
        lambda: watched(constraints=[PiiRedactor()]),
        ["lacks validate and on_violation"],
    ),
    "a text in place of a payload": (modified, ["not '[KEY]'", "write context.payload.with_text(...)"]),
    "a function as an evaluator": (
        lambda: reviewed(names_the_moon),
        ["ExpertTeamCoordinator.evaluator must have an async evaluate(context)", "kt.Rubric([kt.Criterion("],
    ),
    "a criterion as an evaluator": (
        lambda: reviewed(Criterion("moon", "it names the moon", check=checks.contains("moon"))),
        ["must have an async evaluate(context), not Criterion(id='moon'", "kt.Rubric([kt.Criterion("],
    ),
    "an evaluator's name that the team lacks": (
        lambda: run(reviewed("house")),
        ["the evaluator 'house' is unknown", "the team has none", "add it to Team.evaluators"],
    ),
    "a criterion as data": (
        lambda: ANY.Rubric([{"id": "moon", "text": "it names the moon", "check": {"contains": "moon"}}]),
        ["a rubric is made of Criterion objects", "kt.Rubric.from_data({'criteria': [...]})"],
    ),
    "phrases in a list": (
        lambda: ANY.checks.contains(["moon", "sea"]),
        ["contains takes the phrases one by one", "contains('moon', 'sea')"],
    ),
    "what a function returned, for an agent": (
        lambda: ANY.Member("writer", "The moon pulls the sea."),
        ["the agent must be a function", "give the function itself, not what it returns"],
    ),
    "a task among the dependencies": (
        lambda: ANY.Task("write", "Write.", depends_on=[ANY.Task("outline", "Outline.")]),
        ["Task.depends_on[0] must be a string, not the Task 'outline': write its id, 'outline'"],
    ),
}


@pytest.mark.parametrize(("mistake", "parts"), PARTS.values(), ids=PARTS)
def test_a_mistake_with_a_part_is_told_what_to_write(mistake: Callable[[], Any], parts: list[str]) -> None:
    said = told(mistake)
    assert [part for part in parts if part not in said] == [], said


# ------------------------------------------------------------------ kits


class Denies:
    async def evaluate(self, context: Any) -> GuardrailDecision:
        return GuardrailDecision.allow()


def kit_of(texts: Any) -> type[GuardrailPolicyTCK]:
    class TestDenies(GuardrailPolicyTCK):
        cannot_crash = True
        allowed_payloads = texts

        @classmethod
        def make_policy(cls) -> Denies:
            return Denies()

    return TestDenies


def test_a_kit_whose_payloads_are_texts_says_what_a_payload_is() -> None:
    with pytest.raises(
        TypeError, match=r"TestDenies\.allowed_payloads\[0\] must be a payload, such as ToolOutput\('search'"
    ):
        kit_of(["High tide is at 12:40."])


def test_a_kit_whose_contexts_are_data_says_what_a_context_is() -> None:
    with pytest.raises(
        TypeError, match=r"TestStops\.fine_contexts\[0\] must be a context, such as context_of\(turns=2\)"
    ):
        type("TestStops", (ResourceConstraintTCK,), {"fine_contexts": [{"tokens": 5}]})


@pytest.mark.parametrize("given", [Timeout(3), Timeout])
def test_what_is_no_kit_is_not_run(given: Any) -> None:
    with pytest.raises(TypeError, match=r"run_kit takes a kit class, such as class TestMine\(AgentTCK\), not"):
        KIT(given)


# ------------------------------------------------------------------ guesses at names


def test_what_is_said_of_a_stream_can_be_written() -> None:
    with pytest.raises(AttributeError) as refused:
        ANY.stream  # noqa: B018 - the guess
    said = "async with kt.Runtime() as runtime, runtime.stream(team, goal) as run, and iterate over run.events()"
    assert said in str(refused.value)

    async def written() -> list[str]:
        async with kt.Runtime() as runtime, runtime.stream(TEAM, "Explain tides.") as run:
            return [event.type async for event in run.events()]

    assert anyio.run(written)[-1] == "team.completed"


MADE = kt.Artifact("The moon.")
GIVEN = kt.Assignment(kt.Task("read", "Read."), "Explain tides.", {"item": "a"}, {}, {})
ENDED = kt.TaskOutcome("write", kt.TaskStatus.COMPLETED, MADE)


@pytest.mark.parametrize(
    ("value", "name", "said"),
    [
        (GIVEN, "item", "an Assignment has no 'item': read inputs['item']"),
        (GIVEN, "prompt", "an Assignment has no 'prompt': read goal, or task.description"),
        (GIVEN, "results", "an Assignment has no 'results': read upstream"),
        (MADE, "content", "an Artifact has no 'content': read text"),
        (ENDED, "output", "a TaskOutcome has no 'output': read artifact.text, or artifact.data"),
    ],
)
def test_a_guessed_attribute_is_told_the_right_one(value: Any, name: str, said: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(value, name)
    assert str(refused.value).startswith(said)
    assert not hasattr(value, name)
