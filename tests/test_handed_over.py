"""What a member hands over is refused where it does so, or taken as it is: the end of a run never stumbles over it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.budget import HaltReason, Usage
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import GuardrailDenied, HaltError, InsufficientBudget, ModelCallError
from kairo_team.testing import EventRecorder

ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


def _refuse(*_: Any, **__: Any) -> Any:
    raise SystemExit(9)


_TEXT = ("str", "repr", "format", "add", "eq", "len", "iter", "getitem", "contains", "hash")
_METHODS = ("strip", "encode", "lower", "split", "join", "replace")
Mean: Any = type("Mean", (str,), dict.fromkeys([*(f"__{name}__" for name in _TEXT), *_METHODS], _refuse))
"""A text that does nothing a text does."""


class Shifty(kt.Artifact):
    """An artifact whose text is another thing every time."""

    asked = 0

    @property
    def text(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]  # that is the point
        Shifty.asked += 1
        if Shifty.asked > 3:
            raise LookupError("it is gone")
        return "shifty"


async def play(member: Any, *, seconds: float | None = 5.0) -> kt.TeamResult:
    """Run a team of three, one of which hands something over, and look at all that came back."""

    async def good(assignment: kt.Assignment) -> str:
        await anyio.sleep(1)
        return "good work"

    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder])
    team = kt.Team("team", [kt.Member("bad", member), kt.Member("good", good)], runtime=runtime)
    tasks = [kt.Task("bad", "do", member="bad"), kt.Task("good", "do", member="good")]
    config = kt.TeamConfig(budget=kt.Budget(seconds=seconds))
    result = await ONCE.execute(kt.TeamExecutionRequest("goal", plan=kt.TaskGraph(tasks), config=config), team)
    recorder.assert_lawful()
    assert result["good"].status is kt.TaskStatus.COMPLETED
    assert repr(result)
    assert str(result.output) or True
    for outcome in result.outcomes:
        assert outcome.artifact is None or type(outcome.artifact.text) is str
        assert outcome.error is None or type(outcome.error) is str
    for warning in result.warnings:
        assert type(warning) is str
    return result


@pytest.mark.parametrize("text", [{"x": 1}, None, 5, b"x", ["x"], kt.Artifact("x")], ids=repr)
@pytest.mark.parametrize("how", ["keep", "emit"])
async def test_audit_g23_what_is_no_text_is_refused_where_it_is_kept_or_told(how: str, text: Any) -> None:
    seen: list[str] = []

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("half")
        try:
            getattr(context, how)(text)
        except ValueError as error:
            seen.append(str(error))
        await anyio.sleep_forever()
        raise AssertionError

    result = await play(agent)
    (said,) = seen
    assert said.startswith(f"{how} takes a text, not {text!r:.100}")
    assert result.status is kt.TeamStatus.TIMEOUT
    assert result["bad"].artifact == kt.Artifact("half", partial=True)


HANDED: dict[str, Callable[[], Any]] = {
    "a mean text": lambda: Mean("x"),
    "an artifact of a mean text": lambda: kt.Artifact(Mean("x")),
    "a mean media type": lambda: kt.Artifact("x", media_type=Mean("text/plain")),
    "mean data": lambda: kt.Artifact("x", {Mean("a"): 1}),
    "an artifact that changes": lambda: Shifty("x"),
    "an output of no artifact": lambda: kt.AgentOutput("x"),  # type: ignore[arg-type]  # what is tried
    "an output of one that changes": lambda: kt.AgentOutput(Shifty("x")),
    "a mean error": lambda: kt.AgentOutput(kt.Artifact("x"), kt.AgentStatus.HALTED, error=Mean("no")),
    "an error of a list": lambda: kt.AgentOutput(kt.Artifact(""), error=["no"]),  # type: ignore[arg-type]  # the same
    "a halt that is one of a list": lambda: kt.AgentOutput(kt.Artifact("x"), ["halted"]),  # type: ignore[arg-type]  # the same
    "a status of its own": lambda: kt.AgentOutput(kt.Artifact("x"), "splendid"),  # type: ignore[arg-type]  # the same
    "no usage": lambda: kt.AgentOutput(kt.Artifact("x"), usage=None),  # type: ignore[arg-type]  # the same
    "odd turns": lambda: kt.AgentOutput(kt.Artifact("x"), turns_completed=Decimal("NaN")),  # type: ignore[arg-type]  # the same
}

RAISED: dict[str, Callable[[], BaseException]] = {
    "a mean error": lambda: ValueError(Mean("x")),
    "a halt for no reason": lambda: HaltError("because", Usage(), "me"),  # type: ignore[arg-type]  # what is tried
    "a halt of nobody's": lambda: HaltError(HaltReason.TOKEN_BUDGET_EXCEEDED, Usage(), Mean("x")),
    "too little of something else": lambda: InsufficientBudget("patience", 1, 0, "me"),
    "too little of a list": lambda: InsufficientBudget(["patience"], 1, 0, "me"),  # type: ignore[arg-type]  # the same
    "a denial by nobody": lambda: GuardrailDenied(None, None, None),  # type: ignore[arg-type]  # the same
    "a mean call": lambda: ModelCallError(Mean("timeout"), Mean("m"), Mean("why")),
}


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("what", HANDED)
async def test_audit_g23_whatever_a_member_returns_a_result_comes_back(what: str, waits: bool) -> None:
    async def agent(assignment: kt.Assignment) -> Any:
        made = HANDED[what]()
        if waits:
            await anyio.sleep(0.5)
        return made

    result = await play(agent)
    assert result["bad"].status in {kt.TaskStatus.COMPLETED, kt.TaskStatus.FAILED}


@pytest.mark.parametrize("what", RAISED)
async def test_audit_g23_whatever_a_member_raises_is_a_failed_attempt(what: str) -> None:
    async def agent(assignment: kt.Assignment) -> Any:
        error = RAISED[what]()
        raise error

    result = await play(agent)
    assert result["bad"].status is kt.TaskStatus.FAILED
    assert "the coordinator" not in (result["bad"].error or "")


async def test_audit_g23_a_mean_text_that_is_kept_comes_back_as_a_plain_one() -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep(Mean("half of it"))
        context.emit(Mean("I work"))
        await anyio.sleep_forever()
        raise AssertionError

    result = await play(agent)
    assert result["bad"].artifact == kt.Artifact("half of it", partial=True)
