"""What a model refuses again begins no second attempt by the same member: nothing is paid twice for one answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import MET_AGAIN, ModelCallError, ModelErrorKind, is_met_again
from kairo_team.testing import EventRecorder, ScriptedAgent, ScriptedModel
from tests.agents.rigs import Ask, Reply, Rig, RigTool, rigs

pytestmark = pytest.mark.anyio

KINDS: Sequence[ModelErrorKind] = get_args(ModelErrorKind)
BOARD = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=2, backoff=0))
PLAN = kt.TaskGraph([kt.Task("t", "Do it.")])


def refusal(kind: ModelErrorKind) -> ModelCallError:
    return ModelCallError(kind, "test:model", "no", unspent=True)


async def run(*members: kt.Member, coordinator: Any = BOARD, **fields: Any) -> tuple[kt.TeamResult, list[str]]:
    """Run one task; return the result, and who made each attempt."""
    recorder = EventRecorder()
    team = kt.Team("team", list(members), runtime=kt.Runtime(subscribers=[recorder], **fields))
    result = await kt.run(team, "goal", plan=PLAN, coordinator=coordinator)
    return result, [str(event.member) for event in recorder.of(events.AttemptStarted)]


class StatusError(Exception):
    """An error as clients of providers raise it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


async def look(text: str) -> str:
    return f"found {text}"


def refusals() -> Iterator[Any]:
    """Yield each rig with an error of ours, and with one as its library's models raise it."""
    for rig in rigs():
        loops = pytest.mark.loops(*rig.backends)
        yield pytest.param(rig, refusal("context_length"), id=f"{rig.name}-ours", marks=loops)
        if rig.name == "PydanticAIAgent":
            from pydantic_ai.exceptions import ModelHTTPError

            yield pytest.param(rig, ModelHTTPError(401, "model"), id=f"{rig.name}-401", marks=loops)
        elif rig.name != "MiniAgent":
            yield pytest.param(rig, StatusError(400), id=f"{rig.name}-400", marks=loops)


@pytest.mark.parametrize(("make", "error"), [*refusals()])
async def test_third_o15_every_agent_tries_once_and_keeps_its_text(make: type[Rig], error: Exception) -> None:
    rig = make([Reply("half a page", asks=[Ask("look", "it")]), Reply(error=error)], tools=[RigTool("look", look)])
    result, made_by = await run(kt.Member("one", rig.agent()))
    assert (made_by, len(rig.asked)) == (["one"], 2)
    artifact = result["t"].artifact
    assert artifact is not None
    assert (artifact.text, artifact.partial) == ("half a page", True)


@pytest.mark.parametrize("kind", KINDS)
async def test_third_o15_kinds_that_pass_are_tried_again_and_kinds_that_are_met_again_are_not(
    kind: ModelErrorKind,
) -> None:
    agent = ScriptedAgent([refusal(kind) for _ in range(3)])
    result, made_by = await run(kt.Member("one", agent))
    assert len(made_by) == (1 if kind in MET_AGAIN else 3)
    assert result["t"].status is kt.TaskStatus.FAILED
    assert f"model 'test:model' did not answer ({kind})" in str(result["t"].error)


@pytest.mark.parametrize("kind", sorted(MET_AGAIN))
async def test_third_o15_other_members_may_try_and_each_does_once(kind: ModelErrorKind) -> None:
    members = [kt.Member("a", ScriptedAgent([refusal(kind)])), kt.Member("b", ScriptedAgent([refusal(kind)]))]
    result, made_by = await run(*members, kt.Member("c", ScriptedAgent(["done"])))
    assert (made_by, result.output) == (["a", "b", "c"], "done")


async def test_third_o15_however_the_agent_passes_it_on() -> None:
    async def raised_from(assignment: kt.Assignment) -> str:
        try:
            raise refusal("auth")
        except ModelCallError as error:
            raise LookupError("no words") from error

    async def in_a_group(assignment: kt.Assignment) -> str:
        raise ExceptionGroup("both", [refusal("auth"), refusal("bad_request")])

    async def one_of_two(assignment: kt.Assignment) -> str:
        raise ExceptionGroup("both", [refusal("auth"), OSError("a moment")])

    async def after_it(assignment: kt.Assignment) -> str:
        try:
            raise refusal("auth")
        except ModelCallError:
            raise OSError("a moment") from None

    for agent, attempts in ((raised_from, 1), (in_a_group, 1), (one_of_two, 3), (after_it, 3)):
        _, made_by = await run(kt.Member("one", agent))
        assert len(made_by) == attempts, agent.__name__


async def test_third_o15_a_team_as_a_member_is_not_asked_again_either() -> None:
    model = ScriptedModel([refusal("context_length"), refusal("context_length"), refusal("context_length")])
    inner = kt.Team("inner", [kt.Member("m", kt.MiniAgent(model))])
    _, made_by = await run(kt.Member("one", TeamAgent(inner)))
    assert made_by.count("one") == 1
    assert len(model.calls) == 1


async def test_third_o15_the_expert_team_does_the_same_in_a_revision() -> None:
    class Wants:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.revise("longer")

    agent = ScriptedAgent(["short", refusal("context_length")])
    experts = ExpertTeamCoordinator(evaluator=Wants(), failure_policy=FailurePolicy(backoff=0))
    result, made_by = await run(kt.Member("one", agent), coordinator=experts)
    assert made_by == ["one", "one"]
    assert result.partial_output == "short"


def test_third_o15_a_chain_of_errors_is_followed_and_never_for_ever() -> None:
    first, second = OSError("a"), OSError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_met_again(first)
    deep: Exception = refusal("auth")
    for _ in range(3_000):
        deep = ExceptionGroup[Exception]("g", [deep])
    assert not is_met_again(deep)
    assert not is_met_again(None)


@pytest.mark.parametrize("kind", ["auth", "unknown"])
async def test_third_o15_a_moderator_that_is_refused_is_not_asked_again(kind: ModelErrorKind) -> None:
    moderator = ScriptedModel([refusal(kind) for _ in range(4)])
    members = [kt.Member(name, ScriptedAgent([name])) for name in ("a", "b")]
    chat = kt.GroupChatCoordinator(moderator=moderator, max_turns=1)
    await kt.run(kt.Team("team", members), "goal", coordinator=chat)
    assert len(moderator.calls) == (1 if kind in MET_AGAIN else 2)


@pytest.mark.real_time
@pytest.mark.parametrize(("refused", "asked"), [(1, 1), (2, 2)])
async def test_third_o15_nor_is_it_asked_about_later_turns(refused: int, asked: int, tmp_path: Path) -> None:
    """From then on the members speak in turn; a resumed run asks nobody again either."""
    choices: list[Any] = [json.dumps({"next": "b"}), *[refusal("auth")] * 9]
    moderator, spoke, session = ScriptedModel(choices[2 - refused :]), list[str](), anyio.CancelScope()

    async def speak(assignment: kt.Assignment) -> str:
        spoke.append(assignment.task.id)
        if len(spoke) == 3:
            session.cancel()
            await anyio.sleep_forever()
        return f"turn {len(spoke)}"

    team = kt.Team("team", [kt.Member(name, speak) for name in ("a", "b")])
    chat = kt.GroupChatCoordinator(moderator=moderator, max_turns=4)
    async with kt.Runtime(journal=kt.SqliteJournal(tmp_path / "runs.db")) as runtime:
        with session:
            await kt.run(team, "goal", coordinator=chat, runtime=runtime, run_id="r")
        result = await kt.run(team, "goal", coordinator=chat, runtime=runtime, run_id="r", resume=True)
    assert (spoke[3:], len(moderator.calls)) == (["turn.0003", "turn.0004"], asked)
    assert len([one for one in result.warnings if "the moderator did not say" in one]) == 1
    assert "the moderator is not asked again" in " ".join(result.warnings)
