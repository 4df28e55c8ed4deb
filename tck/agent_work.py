"""How an agent works: the input of its model, the guards of its models and tools, and what it must not change."""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Mapping
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kairo_team._util.frozen import thaw
from kairo_team.artifacts import Artifact, Finding
from kairo_team.budget import Budget
from kairo_team.contracts import MemberContext
from kairo_team.files import File
from kairo_team.governance.guardrails import (
    GuardrailContext,
    GuardrailDecision,
    GuardrailPhase,
)
from kairo_team.messages import ModelRequest
from kairo_team.permissions import PermissionDecision
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, TaskStatus
from kairo_team.tck.agent_model import Say, looking, request_text
from kairo_team.tck.agent_stage import TASK, AgentStage, Change, text_of, why
from kairo_team.tck.chat_model_stage import IMAGE
from kairo_team.tck.kit import clause
from kairo_team.team import Role
from kairo_team.tools.permissions import ToolPermissions

TOLD: Mapping[str, str] = {
    "the goal": "Tell children of the sea.",
    "the task": "Write about subject-0.",
    "an input": "forty words",
    "the context": "ten-year-olds",
    "an upstream artifact": "the moon pulls the sea",
    "a directive": "mention the harbour",
}
AGAIN: Mapping[str, str] = {
    "the previous artifact": "Tides are mysterious",
    "what a finding observed": "names no cause",
    "what a finding expects": "a cause by its name",
}
SUBJECTS = 10
_FILE = File(data=IMAGE, media_type="image/png", name="dot.png")
_OUR_OWN = {"kairo_team_reservations"}
"""The context variable through which a governed call finds the caller's holds."""


class WorkTests(AgentStage):
    """C2, C8, C9, C11, C12, C14."""

    @clause("C2", needs="reads_assignment uses_models")
    async def test_c02_what_the_assignment_says_reaches_its_model(self) -> None:
        await self._check_reaches(TOLD, _with_everything)

    @clause("C2", needs="reads_assignment uses_models")
    async def test_c02_on_a_revision_the_artifact_and_its_findings_reach_its_model(self) -> None:
        await self._check_reaches({**TOLD, **AGAIN}, _revised)

    @clause("C2", needs="reads_assignment uses_models takes_files")
    async def test_c02_files_reach_its_model(self) -> None:
        scene = self.stage(change=_with_a_file)
        result = await scene.play()
        assert scene.model.requests, f"it asked no model; {why(result)}"
        given = [file for request in scene.model.requests for file in request.files]
        assert _FILE in given, f"its task has the file {_FILE}, and its model was given {given}"

    @clause("C2", needs="reads_assignment uses_models")
    async def test_c02_each_task_is_told_when_there_are_several(self) -> None:
        scene = self.stage(tasks=3)
        await scene.play(max_parallel_tasks=1)
        seen = "\n".join(map(request_text, scene.model.requests))
        missing = [task.description for task in scene.tasks if task.description not in seen]
        assert not missing, f"it did three tasks, one after another, and its model was never given {missing}"

    @clause("C8")
    async def test_c08_many_at_once_equal_one_after_another(self) -> None:
        scene = self.stage(_about, tasks=SUBJECTS)
        if not scene.agent.reentrant:
            pytest.skip("it does not declare reentrant = True")
        await scene.play(max_parallel_tasks=1)
        in_a_row = {task: text_of(output) for task, output in scene.agent.outputs.items()}
        scene.agent.outputs.clear()
        await scene.play()
        at_once = {task: text_of(output) for task, output in scene.agent.outputs.items()}
        assert len(in_a_row) == SUBJECTS, f"{SUBJECTS} tasks, one after another, gave {in_a_row}"
        mixed = {task: (text, at_once.get(task)) for task, text in in_a_row.items() if at_once.get(task) != text}
        assert not mixed, f"one after another, and at once, tasks gave: {mixed}"

    @clause("C8")
    async def test_c08_without_reentrant_it_is_never_called_twice_at_once(self) -> None:
        scene = self.stage(_about, tasks=SUBJECTS)
        if scene.agent.reentrant:
            pytest.skip("it declares reentrant = True")
        await scene.play()
        most = scene.agent.most_at_once
        assert most == 1, (
            f"it was called {most} times at once; a Member with max_concurrency or a reentrant agent may be"
        )

    @clause("C8")
    async def test_c08_a_reentrant_agent_keeps_nothing_on_itself(self) -> None:
        scene = self.stage()
        if not scene.agent.reentrant:
            pytest.skip("it does not declare reentrant = True")
        scene.agent.around = lambda: _attributes(scene.agent.agent)
        await scene.play()
        assert not scene.agent.changed, f"attributes of the agent that one run changed: {scene.agent.changed}"

    @clause("C9")
    async def test_c09_it_changes_nothing_around_it(self) -> None:
        scene = self.stage()
        await scene.play()  # changes that a library makes on first use do not count
        scene.agent.around = _surroundings
        await scene.play()
        assert not scene.agent.changed, f"one run changed: {', '.join(scene.agent.changed)}"
        assert scene.agent.left_alone, "it changed its assignment or the plan's task in it"

    @clause("C9")
    async def test_c09_it_does_not_seed_the_random_numbers_of_others(self) -> None:
        scene = self.stage()
        before, after = random.getstate(), list[object]()
        try:
            for seed in (1, 2):
                random.seed(seed)
                await scene.play()
                after.append(random.getstate())
        finally:
            random.setstate(before)
        assert after[0] != after[1], "it seeded `random`: the numbers afterwards ignore the seed before"

    @clause("C11", needs="governs_calls")
    async def test_c11_every_tool_call_is_permitted(self) -> None:
        calls: list[str] = []
        guard = _Guard()
        scene = self.stage(
            [Say("a", ["x", "secret"]), Say("done")], tool=looking(calls), permissions=ToolPermissions(guard=guard)
        )
        await scene.play()
        assert sorted(guard.asked) == ["secret", "x"], (
            f"the permission guard was asked for {guard.asked}, not for x and secret"
        )
        assert calls == ["x"], f"the permission guard allowed x alone, and the tool was called with {calls}"

    @clause("C11", needs="governs_calls")
    async def test_c11_a_tool_its_role_does_not_allow_is_not_used(self) -> None:
        calls: list[str] = []
        role = Role("kit", allowed_tools=["another"])
        await self.stage([Say("a", ["x"]), Say("done")], tool=looking(calls), role=role).play()
        assert calls == [], f"its role allows other tools, and this one was called with {calls}"

    @clause("C11", needs="governs_calls")
    async def test_c11_a_guardrail_sees_every_tool_call_and_its_result(self) -> None:
        calls: list[str] = []
        rules = [
            _Replace(GuardrailPhase.PRE_TOOL, "tides", "waves"),
            _Replace(GuardrailPhase.POST_TOOL, "found", "seen"),
        ]
        scene = self.stage([Say("a", ["tides"]), Say("done")], tool=looking(calls), guardrails=rules)
        await scene.play()
        assert calls == ["waves"], f"a guardrail made waves of tides, and the tool was called with {calls}"
        prompt = request_text(scene.model.requests[-1])
        assert "seen waves" in prompt, f"a guardrail made 'seen' of 'found', and the model was given {prompt!r:.500}"
        assert "found waves" not in prompt, (
            f"a guardrail made 'seen' of 'found', and the model was given {prompt!r:.500}"
        )

    @clause("C11")
    async def test_c11_no_more_tool_calls_than_its_budget_has(self) -> None:
        calls: list[str] = []
        scene = self.stage([Say("a", ["x", "y"]), Say("done")], tool=looking(calls), budget=Budget(tool_calls=1))
        result = await scene.play()
        assert len(calls) <= 1, f"1 tool call was paid for, and the tool was called with {calls}"
        assert result[TASK].usage.tool_calls == len(calls), f"{len(calls)} tool calls were made; {why(result)}"

    @clause("C11", needs="governs_calls")
    async def test_c11_a_call_of_a_reply_that_was_cut_off_is_not_made(self) -> None:
        calls: list[str] = []
        scene = self.stage([Say("a", ["half"], cut=True), Say("b", ["whole"]), Say("done")], tool=looking(calls))
        await scene.play()
        assert "half" not in calls, f"the reply that asked for it was cut off, and the tool was called with {calls}"
        assert "whole" in calls or len(scene.model.requests) < 2, f"a whole reply asked for it: {calls}"
        # Empty where it gave up after the reply, which it may.
        prompts = [request_text(request) for request in scene.model.requests[1:2]]
        assert all("cut off" in prompt for prompt in prompts), (
            f"a reply was cut off, and the model was given {prompts!r:.500}, which does not say so"
        )

    @clause("C14", needs="uses_models reads_assignment")
    async def test_c14_json_in_a_code_fence_or_between_sentences_is_read(self) -> None:
        written = '{"text": "a fine text"}'
        result, most = await self._answered(written)
        if result[TASK].status is not TaskStatus.COMPLETED:
            pytest.skip("its model does not answer in text, where an output type is asked for")
        for said in (f"```json\n{written}\n```", f"~~~\n{written}\n~~~", f"Here it is:\n{written}\nThat is all."):
            result, asked = await self._answered(said)
            outcome = result[TASK]
            assert outcome.status is TaskStatus.COMPLETED, f"its model answered {said!r}; {why(result)}"
            assert outcome.artifact is not None
            assert thaw(outcome.artifact.data) == {"text": "a fine text"}, f"its data is {outcome.artifact.data!r}"
            assert asked == most, f"JSON alone took {most} model calls, and {said!r} took {asked}"

    async def _answered(self, said: str) -> tuple[TeamResult, int]:
        """Return the result of a task with an output type, and the number of model calls; the model answers `said`."""
        types = {"answer": dict[str, str]}
        scene = self.stage([Say(said)], task={"output_type": "answer"}, output_types=types)
        return await scene.play(), len(scene.model.requests)

    @clause("C12", needs="governs_calls uses_models")
    async def test_c12_a_refused_prompt_is_not_sent(self) -> None:
        scene = self.stage(guardrails=[_Deny(GuardrailPhase.PRE_MODEL)])
        result = await scene.play()
        assert not scene.model.requests, "a guardrail refused the prompt, and it was sent"
        assert result[TASK].status is TaskStatus.FAILED, why(result)
        assert "no such thing" in (result[TASK].error or ""), (
            f"the task's error must give the guardrail's reason; {why(result)}"
        )
        assert result[TASK].usage.tokens == 0, f"nothing was sent, and it is charged; {why(result)}"

    @clause("C12", needs="governs_calls uses_models")
    async def test_c12_a_refused_reply_is_not_used(self) -> None:
        scene = self.stage([Say("a secret")], guardrails=[_Deny(GuardrailPhase.POST_MODEL)])
        result = await scene.play()
        artifact = result[TASK].artifact
        assert result[TASK].status is TaskStatus.FAILED, why(result)
        assert artifact is None or "secret" not in artifact.text, f"a refused reply came back: {artifact}"
        assert not scene.model.later, "after a guardrail's refusal it asked its model again"

    @clause("C12", needs="governs_calls uses_models")
    async def test_c12_guardrails_change_prompts_and_replies(self) -> None:
        rules = [_Replace(GuardrailPhase.PRE_MODEL, "moon", "sun"), _Replace(GuardrailPhase.POST_MODEL, "fine", "good")]
        scene = self.stage(guardrails=rules)
        result = await scene.play()
        prompt = request_text(scene.model.requests[0])
        assert "moon" not in prompt, f"a guardrail replaced a word, and the model was given {prompt!r:.500}"
        assert "fine" not in (result.output or ""), f"a guardrail replaced a word of the reply: {result.output!r:.200}"

    async def _check_reaches(self, given: Mapping[str, str], change: Change) -> None:
        scene = self.stage(change=change)
        result = await scene.play()
        assert scene.model.requests, f"it asked no model; {why(result)}"
        seen = "\n".join(map(request_text, scene.model.requests))
        missing = [what for what, text in given.items() if text not in seen]
        assert not missing, f"the model was not given {', '.join(missing)}; it was given {seen!r:.1000}"


def _with_everything(given: Assignment, context: MemberContext) -> Assignment:
    return replace(
        given,
        inputs={"length": TOLD["an input"]},
        context={"audience": TOLD["the context"]},
        directives=[TOLD["a directive"]],
    )


def _with_a_file(given: Assignment, context: MemberContext) -> Assignment:
    return replace(given, files=[_FILE])


def _revised(given: Assignment, context: MemberContext) -> Assignment:
    finding = Finding(
        "cause", observed=AGAIN["what a finding observed"], expected=AGAIN["what a finding expects"], locus="line 1"
    )
    previous = Artifact(AGAIN["the previous artifact"])
    given = _with_everything(given, context)
    return replace(given, attempt=2, previous=previous, findings=[finding])


def _about(request: ModelRequest) -> Say:
    """Answer about the subject that was asked about; the later the task, the sooner."""
    prompt = request_text(request)
    number = next((n for n in range(SUBJECTS) if f"subject-{n}" in prompt), 0)
    return Say(f"of subject-{number}", seconds=SUBJECTS - number)


def _attributes(agent: Any) -> dict[str, Any]:
    found = dict(getattr(agent, "__dict__", {}))
    slots = [name for kind in type(agent).__mro__ for name in getattr(kind, "__slots__", ())]
    found |= {name: getattr(agent, name) for name in slots if hasattr(agent, name)}
    return {name: _known(value) for name, value in found.items()}


def _known(value: Any) -> Any:
    """Return a value that shows a change: a copy of a plain container, else the object's identity."""
    return type(value)(value) if type(value) in {list, dict, set} else value if _plain(value) else id(value)


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _surroundings() -> dict[str, Any]:
    found: dict[str, Any] = {
        "os.environ": dict(os.environ),
        "the working directory": Path.cwd(),
        "sys.path": list(sys.path),
        "sys.excepthook": id(sys.excepthook),
    }
    for name in ("", "kairo_team", "asyncio"):
        logger = logging.getLogger(name)
        found[f"the logger {name!r}"] = (logger.level, list(map(id, logger.handlers)), logger.disabled)
    variables = {var.name: id(value) for var, value in copy_context().items()}
    return found | {f"the context variable {name!r}": one for name, one in variables.items() if name not in _OUR_OWN}


class _Guard:
    """A permission guard that allows everything but secrets."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: str) -> PermissionDecision:
        """Decide about one call."""
        self.asked.append(arguments.get("text"))
        return PermissionDecision.deny("hands off") if "secret" in self.asked[-1:] else PermissionDecision.allow()


class _Deny:
    """A guardrail that denies everything in one phase."""

    def __init__(self, phase: GuardrailPhase) -> None:
        self.phases = {phase}

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Refuse."""
        return GuardrailDecision.deny("no such thing")


class _Replace:
    """A guardrail that replaces one word by another, in one phase."""

    def __init__(self, phase: GuardrailPhase, old: str, new: str) -> None:
        self.phases = {phase}
        self._old, self._new = old, new

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Replace the word in the payload."""
        payload: Any = context.payload
        changed = payload.map_text(self._replace)
        return GuardrailDecision.allow() if changed is payload else GuardrailDecision.modify("a word", changed)

    def _replace(self, text: str) -> str:
        return text.replace(self._old, self._new)
