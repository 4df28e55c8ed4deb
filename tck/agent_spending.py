"""The spending of an agent: every call is booked, usage is reported exactly, and the budget holds."""

from __future__ import annotations

import json
from itertools import pairwise

from kairo_team.budget import Budget, Usage
from kairo_team.contracts import MemberContext
from kairo_team.messages import ModelRequest
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, TaskStatus
from kairo_team.tck.agent_model import Say, looking
from kairo_team.tck.agent_stage import TASK, AgentStage, Scene, why
from kairo_team.tck.kit import clause

MUCH = 1_000_000
PAID = 20_000
"""Tokens of a team that eight greedy tasks share."""


def greedy(request: ModelRequest) -> Say:
    """Use all tokens that the reply may have."""
    return Say(usage=Usage(11, request.max_tokens or PAID))


def curious(request: ModelRequest) -> Say:
    """Call the tool as long as it is offered."""
    return Say("so far", ["tides"]) if request.tools else Say("all in all")


class SpendingTests(AgentStage):
    """C5, C6, C13."""

    @clause("C5", needs="uses_models")
    async def test_c05_what_its_model_told_is_booked(self) -> None:
        scene = self.stage(budget=Budget(tokens=MUCH))
        _check_booked(scene, await scene.play())

    @clause("C5", needs="uses_models")
    async def test_c05_calls_made_again_are_booked_too(self) -> None:
        answer = json.dumps({"text": "a fine text"})
        scene = self.stage(
            [Say("no such thing", usage=Usage(23, 5)), Say(answer), Say(answer)],
            task={"output_type": "answer"},
            output_types={"answer": dict[str, str]},
        )
        _check_booked(scene, await scene.play())

    @clause("C5")
    async def test_c05_every_turn_with_tools_is_booked(self) -> None:
        calls: list[str] = []
        script = [Say("a", ["x", "y"], Usage(11, 7)), Say("b", ["z"], Usage(23, 5)), Say("done", usage=Usage(31, 3))]
        scene = self.stage(script, tool=looking(calls), budget=Budget(tokens=MUCH, tool_calls=10))
        result = await scene.play()
        assert result[TASK].status is TaskStatus.COMPLETED, why(result)
        _check_booked(scene, result)
        booked = result[TASK].usage.tool_calls
        assert (len(calls), booked) == (3, 3), f"3 tool calls were asked for, {len(calls)} made, {booked} booked"

    @clause("C5", needs="uses_models")
    async def test_c05_a_call_that_failed_later_takes_nothing_back(self) -> None:
        tool = looking([]) if self.uses_tools else None
        script: list[Say | Exception] = [Say("a", ["x"], Usage(1100, 700), cut=True), RuntimeError("the line is dead")]
        scene = self.stage(script, tool=tool, budget=Budget(tokens=MUCH))
        result = await scene.play()
        booked = result[TASK].usage.tokens
        assert booked >= sum(scene.model.used), (
            f"the model reported {sum(scene.model.used)} tokens, {booked} are booked"
        )

    @clause("C5", needs="uses_models")
    async def test_c05_a_reply_that_does_not_say_what_it_used_is_charged(self) -> None:
        scene = self.stage([Say(usage=None)], budget=Budget(tokens=MUCH))
        result = await scene.play()
        asked = len(scene.model.replies)
        assert asked == 0 or result[TASK].usage.tokens > 0, f"{asked} replies without usage, and nothing is charged"

    @clause("C5")
    async def test_c05_its_loops_are_counted(self) -> None:
        result = await self.stage().play()
        assert result[TASK].usage.loops >= 1, "it declares own_loop = True, and no pre_step() was called"

    @clause("C12", needs="governs_calls uses_models")
    async def test_c12_many_at_once_never_spend_more_than_there_is(self) -> None:
        scene = self.stage(greedy, tasks=8)
        result = await scene.play(budget=Budget(tokens=PAID))
        spent = result.usage.tokens
        assert scene.model.replies, f"a budget of {PAID} tokens paid for no call; {why(result)}"
        assert spent == sum(scene.model.used), f"the model reported {sum(scene.model.used)} tokens, {spent} are booked"
        assert spent <= PAID, f"{spent} tokens were spent out of {PAID}"

    @clause("C6")
    async def test_c06_an_output_tells_what_was_used(self) -> None:
        scene = self.stage()
        await scene.play()
        _check_reported_usage(scene)

    @clause("C6")
    async def test_c06_an_output_tells_turns_and_tool_calls(self) -> None:
        calls: list[str] = []
        scene = self.stage([Say("a", ["x", "y"]), Say("b", ["z"]), Say("done")], tool=looking(calls))
        await scene.play()
        output = scene.reported_output()
        _check_reported_usage(scene)
        seen = (output.turns_completed, output.tool_calls_executed)
        assert seen == (3, 3), f"3 turns and 3 tool calls were made, and it reports {seen}"

    @clause("C6", needs="uses_models")
    async def test_c06_a_second_run_begins_anew(self) -> None:
        used: dict[str, tuple[int, int]] = {}
        # Another usage in each reply, so that no wrong sum is right by chance.
        scene = self.stage([Say(usage=Usage(11 * number, number)) for number in range(1, 10)], tasks=3)

        def note(given: Assignment, context: MemberContext) -> Assignment:
            used[given.task.id] = scene.model.used
            return given

        scene.agent.change = note
        await scene.play(max_parallel_tasks=1)
        scene.reported_output()
        reported = [scene.agent.outputs[task.id].usage for task in scene.tasks]
        tokens = [(usage.prompt_tokens, usage.completion_tokens) for usage in reported]
        marks = [*(used[task.id] for task in scene.tasks), scene.model.used]
        due = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(marks)]
        assert tokens == due, f"three tasks, one after another, used {due} tokens, and its outputs report {tokens}"

    @clause("C6")
    async def test_c06_it_makes_no_more_turns_than_it_says(self) -> None:
        scene = self.stage(lambda _: Say("on and on", ["tides"]), tool=looking([]), budget=Budget(loops=30))
        await scene.play()
        most = scene.reported_output().max_turns
        asked = len(scene.model.requests)
        assert most is None or asked <= most, f"it reports max_turns={most}, and made {asked}"

    @clause("C13", needs="wraps_up")
    async def test_c13_it_answers_on_the_last_turn_it_can_pay(self) -> None:
        scene = self.stage(curious, tool=looking([]), budget=Budget(loops=3))
        result = await scene.play()
        assert result[TASK].status is TaskStatus.COMPLETED, why(result)
        artifact = result[TASK].artifact
        assert artifact is not None
        assert "all in all" in artifact.text, f"three turns were paid, and its answer is {artifact.text!r:.200}"
        assert not scene.model.requests[-1].tools, "tools were offered on the last turn that could be paid"


def _check_booked(scene: Scene, result: TeamResult) -> None:
    usage = result[TASK].usage
    booked, reported = (usage.prompt_tokens, usage.completion_tokens), scene.model.used
    assert booked == reported, (
        f"{len(scene.model.replies)} replies reported {reported} tokens, {booked} are booked; {why(result)}"
    )


def _check_reported_usage(scene: Scene) -> None:
    usage, turns = scene.reported_output().usage, len(scene.model.replies)
    reported = (usage.prompt_tokens, usage.completion_tokens)
    assert reported == scene.model.used, (
        f"the model reported {scene.model.used} tokens in {turns} replies, the output {reported}"
    )
