"""How an agent's work ends: with an output, a halt, a cancellation or a failure, and what it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.contracts import MemberContext
from kairo_team.errors import HaltError, InsufficientBudget, ModelCallError
from kairo_team.results import AgentOutput, TeamResult
from kairo_team.tasks import Assignment, TaskStatus
from kairo_team.tck.agent_model import LONG, Say, looking
from kairo_team.tck.agent_stage import TASK, AgentStage, Scene, text_of, why
from kairo_team.tck.kit import clause

HALTED = HaltError(HaltReason.DOLLAR_BUDGET_EXCEEDED, Usage(7, 5, loops=2), "somewhere")
SHORT = InsufficientBudget("tokens", 900, 20, "somewhere", needed=300)
Ended = HaltError | InsufficientBudget
SOON = 0.1
"""Seconds after which work is cut off; short enough for kits in real time."""
PROMPT = 2.0
"""Seconds in which cancelled work must have ended."""
HALF = "the first half of a text"
USED_UP = 100_000


def use_up(assignment: Assignment, context: MemberContext) -> Assignment:
    """Spend the agent's whole budget before it begins."""
    with context.governor.reserve(tokens=USED_UP) as hold:
        hold.settle(prompt_tokens=USED_UP)
    return assignment


class EndTests(AgentStage):
    """C1, C3, C4, C7, C10."""

    @clause("C1")
    async def test_c01_it_gives_back_an_output_that_says_something(self) -> None:
        scene = self.stage()
        result = await scene.play()
        output, error = scene.output, _raised(scene)
        assert error is None, f"run, which must be async, raised {error!r}; {why(result)}"
        assert isinstance(output, AgentOutput | Artifact | str), f"run returned {output!r:.200}; {why(result)}"
        assert result[TASK].status is TaskStatus.COMPLETED, why(result)

    @clause("C1")
    async def test_c01_it_gives_back_an_output_for_each_task(self) -> None:
        scene = self.stage(tasks=3)
        result = await scene.play(max_parallel_tasks=1)
        found = [result[task.id].status for task in scene.tasks]
        assert found == [TaskStatus.COMPLETED] * 3, f"three tasks, one after another, ended {found}"

    @clause("C3", needs="raises_what_models_raise uses_models")
    async def test_c03_a_halt_leaves_it_as_it_was_raised(self) -> None:
        scene = self.stage([HALTED])
        _check_end(scene, await scene.play(), HALTED, ("reason", "usage", "origin"))

    @clause("C3", needs="raises_what_models_raise uses_models")
    async def test_c03_a_shortage_leaves_it_as_it_was_raised(self) -> None:
        scene = self.stage([SHORT])
        _check_end(scene, await scene.play(), SHORT, ("dimension", "asked", "left", "origin", "needed"))

    @clause("C3", needs="raises_what_models_raise")
    async def test_c03_a_halt_in_a_tool_leaves_it_as_it_was_raised(self) -> None:
        scene = self.stage([Say(look=["tides"]), Say()], tool=looking([], HALTED))
        _check_end(scene, await scene.play(), HALTED, ("reason", "usage", "origin"))

    @clause("C3", needs="uses_models")
    async def test_c03_with_its_budget_used_up_it_asks_no_model(self) -> None:
        scene = self.stage(budget=Budget(tokens=USED_UP), change=use_up)
        result = await scene.play()
        asked = len(scene.model.requests)
        assert asked == 0, f"its tokens were used up before it began, and it asked the model {asked} times"
        error = _raised(scene)
        assert isinstance(error, HaltError), f"it must raise HaltError, not {error!r}; {why(result)}"
        assert error.reason is HaltReason.TOKEN_BUDGET_EXCEEDED

    @clause("C3")
    async def test_c03_it_asks_nothing_more_after_the_call_that_used_up_its_budget(self) -> None:
        dear = Say("so far", ["tides"], usage=Usage(11, USED_UP))
        scene = self.stage([dear, Say()], tool=looking([]), budget=Budget(tokens=USED_UP))
        result = await scene.play()
        again = scene.model.later
        assert not again, f"the first call used up all tokens, and it asked {again} times more; {why(result)}"

    @clause("C4", needs="uses_models")
    async def test_c04_when_its_run_is_cancelled_it_ends_at_once(self) -> None:
        scene = self.stage([Say(seconds=LONG)])
        began = anyio.current_time()
        with anyio.move_on_after(SOON) as scope:
            await scene.play()
        assert scope.cancelled_caught, "the caller's cancellation did not pass through"
        await _check_cancelled(scene, began)

    @clause("C4", needs="uses_models")
    async def test_c04_when_its_attempt_times_out_it_ends_at_once(self) -> None:
        scene = self.stage([Say(seconds=LONG)])
        began = anyio.current_time()
        result = await scene.play(task_timeout=SOON)
        assert result[TASK].status is TaskStatus.FAILED, why(result)
        await _check_cancelled(scene, began)

    @clause("C4", needs="uses_models")
    async def test_c04_when_its_governor_is_stopped_it_ends_at_once(self) -> None:
        scene = self.stage([Say(seconds=LONG)])
        began = anyio.current_time()
        result = await scene.play(budget=Budget(seconds=SOON))
        assert result[TASK].status is TaskStatus.CANCELLED, why(result)
        await _check_cancelled(scene, began)

    @clause("C4", needs="uses_models")
    async def test_c04_it_leaves_nothing_running_when_it_is_done(self) -> None:
        scene = self.stage()
        await scene.play()
        asked = len(scene.model.requests)
        await anyio.sleep(SOON)
        assert (len(scene.model.requests), scene.model.in_flight) == (asked, 0), "it asked its model after it had ended"

    @clause("C7", needs="keeps_partial uses_models")
    async def test_c07_a_deadline_leaves_what_it_has_so_far(self) -> None:
        scene = self._two_calls(Say(seconds=LONG))
        _check_partial(scene, await scene.play(task_timeout=SOON))

    @clause("C7", needs="keeps_partial uses_models")
    async def test_c07_a_kill_leaves_what_it_has_so_far(self) -> None:
        scene = self._two_calls(Say(seconds=LONG))
        _check_partial(scene, await scene.play(budget=Budget(seconds=SOON)))

    @clause("C7", needs="keeps_partial uses_models")
    async def test_c07_a_failure_leaves_what_it_has_so_far(self) -> None:
        scene = self._two_calls(RuntimeError("the line is dead"))
        _check_partial(scene, await scene.play())

    @clause("C7", needs="keeps_partial uses_models")
    async def test_c07_a_halt_leaves_what_it_has_so_far(self) -> None:
        scene = self._two_calls(HALTED)
        _check_partial(scene, await scene.play())

    @clause("C10", needs="uses_models")
    async def test_c10_the_text_of_an_error_is_not_its_answer(self) -> None:
        for error in (RuntimeError("burned down"), ModelCallError("auth", "test:kit", "burned down", unspent=True)):
            scene = self.stage([error])
            result = await scene.play()
            _check_no_error(scene, result)

    @clause("C10")
    async def test_c10_the_text_of_a_later_error_is_not_its_answer(self) -> None:
        scene = self.stage([Say(HALF, ["tides"]), RuntimeError("burned down")], tool=looking([]))
        result = await scene.play()
        _check_no_error(scene, result)

    @classmethod
    def _two_calls(cls, second: Any) -> Scene:
        """Make an agent that has kept something by the time it asks its model again, if it ever does."""
        if cls.uses_tools:
            return cls.stage([Say(HALF, ["tides"]), second], tool=looking([]))
        return cls.stage([Say(HALF, cut=True), second])


def _raised(scene: Scene) -> BaseException | None:
    return scene.agent.raised[0] if scene.agent.raised else None


def _check_end(scene: Scene, result: TeamResult, wanted: Ended, fields: Sequence[str]) -> None:
    error = _raised(scene)
    what = f"{type(wanted).__name__} is to leave it as it was raised, but "
    assert error is not None, f"{what}it gave back {scene.output!r:.200}"
    assert type(error) is type(wanted), f"{what}out came {error!r}"
    for name in fields:
        seen, raised = getattr(error, name), getattr(wanted, name)
        assert seen == raised, f"{what}its {name} is {seen!r} now, and was {raised!r}"
    assert wanted.origin in (result[TASK].error or ""), f"{what}{why(result)}"
    assert not scene.model.later, f"after the {type(wanted).__name__} it asked its model again"


async def _check_cancelled(scene: Scene, began: float) -> None:
    took = anyio.current_time() - began
    assert took < PROMPT, f"it was cut off after {SOON} seconds and ended after {took:g}"
    outputs = list(scene.agent.outputs.values())
    assert not outputs, f"cancellation must pass through, but it gave back {outputs[0]!r:.200}"
    passed = [isinstance(error, anyio.get_cancelled_exc_class()) for error in scene.agent.raised]
    assert passed == [True], f"cancellation must pass through, but it raised {scene.agent.raised!r}"
    await anyio.sleep(SOON)
    assert scene.model.in_flight == 0, "it left a call of its model running"
    assert not scene.model.later, "cancelled, it asked its model again"


def _check_partial(scene: Scene, result: TeamResult) -> None:
    if len(scene.model.requests) < 2:
        pytest.skip("it asked its model once: there is nothing before there is all")
    artifact = result[TASK].artifact
    assert artifact is not None, f"{HALF!r} is to come back, and nothing did; {why(result)}"
    assert HALF in artifact.text, f"{HALF!r} is to come back, not {artifact.text!r:.200}"
    assert artifact.partial, "work that was cut off must come back as a partial artifact"
    spent = result[TASK].usage
    booked = (spent.prompt_tokens + spent.completion_tokens) >= sum(scene.model.used)
    assert booked, f"the model reported {sum(scene.model.used)} tokens, and {spent} is booked"


def _check_no_error(scene: Scene, result: TeamResult) -> None:
    artifact = result[TASK].artifact
    for text in (text_of(scene.output), artifact.text if artifact is not None else ""):
        assert "burned down" not in text, f"the text of its model's error is its answer: {text!r:.200}; {why(result)}"
