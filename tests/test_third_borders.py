"""Every place where the library calls a plug-in has a border, and the list of places comes from the contracts."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

import kairo_team as kt
from kairo_team import contracts
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.events import Event
from kairo_team.messages import ModelRequest
from kairo_team.plugins import KINDS
from kairo_team.testing import EventRecorder, FunctionModel
from kairo_team.tools import Tool
from tests import test_borders
from tests.misdeeds import SAID, Culprit
from tests.test_borders import ONCE, good, slow

COMPLETED, FAILED = kt.TaskStatus.COMPLETED, kt.TaskStatus.FAILED


def when_it_is_called(culprit: Culprit) -> Any:
    class Source:
        name = "bad"
        connect = culprit.act_at_once

    return Source()


def when_it_is_entered(culprit: Culprit) -> Any:
    class Source:
        name = "bad"

        @asynccontextmanager
        async def connect(self) -> AsyncGenerator[list[Tool]]:
            await culprit.act()
            yield []

    return Source()


def when_its_tools_are_read(culprit: Culprit) -> Any:
    class Tools:
        __iter__ = culprit.act_at_once

    class Source:
        name = "bad"

        @asynccontextmanager
        async def connect(self) -> AsyncGenerator[Any]:
            yield Tools()

    return Source()


def when_it_is_left(culprit: Culprit) -> Any:
    class Source:
        name = "bad"

        @asynccontextmanager
        async def connect(self) -> AsyncGenerator[list[Tool]]:
            try:
                yield []
            finally:
                with anyio.CancelScope(shield=True):
                    await culprit.act()

    return Source()


def when_it_is_left_by_hand(culprit: Culprit) -> Any:
    class Connection:
        async def __aenter__(self) -> list[Tool]:
            return []

        async def __aexit__(self, *_: object) -> None:
            culprit.act_at_once()

    class Source:
        name = "bad"

        def connect(self) -> Connection:
            return Connection()

    return Source()


ENTRIES = [when_it_is_called, when_it_is_entered, when_its_tools_are_read]
EXITS = [when_it_is_left, when_it_is_left_by_hand]


def team_with(source: Any) -> kt.Team:
    """A team of a member with the source, and one that works longer."""
    agent = kt.MiniAgent(FunctionModel(lambda request: "made with tools"), tools=[source])
    return kt.Team("team", [kt.Member("bad", agent), kt.Member("good", slow)])


async def play(team: kt.Team) -> kt.TeamResult:
    plan = kt.TaskGraph([kt.Task("bad", "do", member="bad"), kt.Task("good", "do", member="good")])
    recorder = EventRecorder()
    coordinator = TaskDispatchCoordinator(failure_policy=ONCE)
    runtime = kt.Runtime(subscribers=[recorder])
    result = await kt.run(team, "goal", plan=plan, coordinator=coordinator, runtime=runtime)
    recorder.assert_lawful()
    return result


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("place", ENTRIES)
async def test_third_o04_a_tool_source_that_fails_to_connect_fails_its_attempt_alone(
    place: Callable[[Culprit], Any], kind: str
) -> None:
    culprit = Culprit(kind, later=False)
    await culprit.get_ready()
    result = await play(team_with(place(culprit)))
    assert culprit.calls
    assert result["good"].status is COMPLETED, result["good"]
    assert result["bad"].status is FAILED
    assert culprit.said in (result["bad"].error or "")


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("place", EXITS)
async def test_third_o04_a_tool_source_that_fails_when_it_is_left_changes_nothing(
    place: Callable[[Culprit], Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    culprit = Culprit(kind, later=False)
    await culprit.get_ready()
    with caplog.at_level(logging.WARNING):
        result = await play(team_with(place(culprit)))
    assert culprit.calls
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    if "cancelled" not in kind:  # it is cancelled then
        assert "the tool source 'bad' is no longer connected" in caplog.text


@pytest.mark.parametrize("kind", ["exit", "own", "group", "closed"])
async def test_third_o04_the_callers_cancellation_passes_a_tool_source_that_fails_on_the_way(kind: str) -> None:
    culprit = Culprit(kind, later=False)
    await culprit.get_ready()
    with anyio.move_on_after(1) as scope:
        await play(team_with(when_it_is_left(culprit)))
    assert scope.cancelled_caught
    assert culprit.calls


# ---------------------------------------------------------------- the list of places

OURS: Final[Mapping[str, str]] = {
    "GovernedChatModel": "the library's own model, which it hands to members",
    "MemberContext": "the library's own context, which it hands to members",
    "Models": "the library's own register of models",
    "AgentOfContext": "a form of Agent",
    "Journal": "the run cannot do without it: what it raises ends the run; see the kit of journals",
    "RunJournal": "as Journal",
    "Records": "as Journal",
    "CallLog": "as Journal",
}
"""Contracts that are not called as a plug-in that may fail by itself, each with its reason."""

PLACES: Final[Mapping[str, tuple[Callable[..., Any], ...]]] = {
    "ChatModel.complete": (test_borders.of_a_model,),
    "Agent.run": (test_borders.of_an_agent, test_borders.of_the_call_of_an_agent),
    "ResourceConstraint.validate": (test_borders.of_a_constraint,),
    "ResourceConstraint.on_violation": (test_borders.of_a_constraints_decision,),
    "GuardrailPolicy.evaluate": (test_borders.of_a_guardrail, test_borders.of_the_call_of_a_guardrail),
    "PermissionGuard.check": (test_borders.of_a_permission_guard,),
    "ToolSource.connect": (*ENTRIES, *EXITS),
    "HumanGate.decide": (test_borders.of_a_gate,),
    "EvaluationStrategy.evaluate": (test_borders.of_an_evaluator, test_borders.of_the_call_of_an_evaluator),
    "Planner.plan": (test_borders.test_audit_g25_a_planner_that_raises_anything_makes_no_plan,),
    "TeamCoordinator.execute": (test_borders.test_audit_g25_a_coordinator_that_raises_anything_hurts_no_other_run,),
    "Tool.call": (test_borders.of_a_tool,),
    "Check.call": (test_borders.of_a_check,),
}
"""The method of each contract that a plug-in implements, and the tests in which it misbehaves."""


def called() -> Iterator[str]:
    """Yield the methods of the contracts that plug-ins implement, and of what entry points may bring besides."""
    for name, contract in vars(contracts).items():
        if inspect.isclass(contract) and getattr(contract, "_is_protocol", False) and name not in OURS:
            methods = (method for method, made in vars(contract).items() if inspect.isfunction(made))
            yield from (f"{name}.{method}" for method in methods if not method.startswith("_"))
    yield from (f"{kind.contract}.call" for kind in KINDS.values() if not hasattr(contracts, kind.contract))


def test_third_o04_every_method_of_a_contract_has_a_test_of_its_border() -> None:
    """A new contract, or a method more, fails here until a test lets it misbehave."""
    assert set(called()) == {*PLACES, "Surrounding.around"}


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("when", ["asked", "entered", "left"])
async def test_third_o04_what_a_subscriber_puts_around_the_work_changes_nothing(when: str, kind: str) -> None:
    culprit = Culprit(kind, later=False)
    await culprit.get_ready()

    class Around:
        def __enter__(self) -> None:
            if when == "entered":
                culprit.act_at_once()

        def __exit__(self, *_: object) -> None:
            if when == "left":
                culprit.act_at_once()

    class Subscriber:
        def __call__(self, event: Event) -> None:
            pass

        def around(self, event: Event) -> Around:
            if when == "asked":
                culprit.act_at_once()
            return Around()

    team = kt.Team("team", [kt.Member("good", good)])
    runtime = kt.Runtime(subscribers=[Subscriber()])
    result = await kt.run(team, "goal", plan=kt.TaskGraph([kt.Task("good", "do")]), runtime=runtime)
    assert culprit.calls
    assert result.status is kt.TeamStatus.COMPLETED, result.error


async def test_third_o04_a_source_that_failed_is_connected_again_by_the_next_attempt() -> None:
    tries: list[int] = []

    class Source:
        name = "shelf"

        @asynccontextmanager
        async def connect(self) -> AsyncGenerator[list[Tool]]:
            tries.append(1)
            if len(tries) == 1:
                raise SystemExit(3)
            yield []

    team = kt.Team("team", [kt.Member("m", kt.MiniAgent(FunctionModel(_say), tools=[Source()]))])
    result = await kt.run(team, "goal", plan=kt.TaskGraph([kt.Task("a", "do")]), coordinator="board")
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert len(tries) == 2


def _say(request: ModelRequest) -> str:
    return "well"
