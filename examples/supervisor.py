"""A supervisor: one member decides whom to ask, reads the results, asks others, and answers.

    python examples/supervisor.py                              # on the model inside this process
    python examples/supervisor.py --offline                    # a script in place of the model
    python examples/supervisor.py --model openai:gpt-5-mini    # a model that calls tools

The goal is a notice. Each of the people at the harbour knows one fact, and the radio is broken. The supervisor
creates a task for each subject, sees who could not answer, asks others, and puts the notice together. A model that
calls tools does so with `MiniAgent`. The embedded model of 135 million parameters calls no tools: `Chooser` asks it for
one member for each open subject, held to a schema, and makes the calls for it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy
from kairo_team.testing import ScriptedModel

MODEL = "local:smollm2"
GOAL = "Put up a notice on the tide, the wind, the fog and the waves."
KNOWN: Mapping[str, Mapping[str, str | None]] = {
    "harbour": {"tide": "high at 14:20, 6.8 m"},
    "airfield": {"wind": "from the west, 5 knots"},
    "radio": {"fog": None},
    "lighthouse": {"fog": "until 9:30"},
    "buoy": {"waves": "0.4 m high"},
}
"""Facts that each member knows; None: the member would know it, but cannot say it."""
SUBJECTS = ("tide", "wind", "fog", "waves")

# ---------------------------------------------------------------- the members


class CannotSayError(kt.KairoError):
    """A member cannot say what it was asked."""


class Teller:
    """Says what it knows about the subject of its task."""

    reentrant = True

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Return the fact; raise `CannotSayError` without one."""
        for subject in subjects(assignment.task.description):
            if subject in KNOWN[self.name]:
                said = KNOWN[self.name][subject]
                if said is None:
                    raise CannotSayError(f"the {self.name} is broken")
                return f"{subject}: {said}"
        raise CannotSayError(f"the {self.name} knows nothing of it")


def subjects(text: str) -> list[str]:
    """Return the subjects that a text names."""
    return [subject for subject in SUBJECTS if subject in text]


# ---------------------------------------------------------------- a supervisor on a model that calls no tools

ASKED: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
    ({"boats": "pier", "snow": "hut", "bread": "baker, miller"}, {"snow": "hut", "boats": "pier"}),
    ({"mail": "office", "bread": "miller", "roads": "police"}, {"bread": "miller", "roads": "police"}),
    ({"stars": "dome", "ice": "guide", "mail": "office"}, {"mail": "office", "ice": "guide", "stars": "dome"}),
    ({"heat": "clinic", "stars": "tower", "ice": "guide"}, {"stars": "tower"}),
]
"""Examples for the model: who knows what, and whom to ask."""


def question(knows: Mapping[str, str], wanted: Sequence[str], asked: Mapping[str, str] | None = None) -> str:
    """Write down who knows what, and the open subjects; with the answer, the text is an example for the model."""
    known = "; ".join(f"{subject}: {members}" for subject, members in knows.items())
    return f"Who knows: {known}\nWanted: {', '.join(wanted)}\nAsk: {'' if asked is None else json.dumps(asked)}".strip()


class Chooser:
    """Supervises with a model that chooses members and nothing else."""

    reentrant = True

    def __init__(self, model: str) -> None:
        self.model = model

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Take one turn: ask for the missing facts, or finish."""
        told = {name.partition(".")[0]: artifact.text for name, artifact in assignment.upstream.items()}
        lines = str(assignment.inputs.get("tasks so far", ""))
        asked: list[tuple[str, str]] = re.findall(r"^(\w+)\.\d+ \((\w+)\)", lines, re.MULTILINE)
        wanted = subjects(assignment.goal)
        missing = [subject for subject in wanted if subject not in told]
        if missing and any(tool.name == "create_task" for tool in context.offered):
            for subject, member in (await self._choose(context, missing, asked)).items():
                number = 1 + sum(subject == one for one, _ in asked)
                about = {"id": f"{subject}.{number}", "description": f"Say what you know of the {subject}."}
                await context.tool("create_task")(**about, member=member)
            await context.tool("wait")()
        lost = [f"{subject}: nobody could say" for subject in missing]
        await context.tool("finish")(answer="\n".join([*(told[one] for one in wanted if one in told), *lost]))
        raise AssertionError("finish ends the turn")

    async def _choose(
        self, context: kt.MemberContext, missing: Sequence[str], asked: Sequence[tuple[str, str]]
    ) -> Mapping[str, str]:
        """Have the model choose a member for each subject, other than those that were asked about it."""
        free = {subject: [name for name in KNOWN if (subject, name) not in asked] for subject in missing}
        knows = {
            subject: ", ".join(
                name for name, known in KNOWN.items() if subject in known and (subject, name) not in asked
            )
            for subject in SUBJECTS
        }
        prompt = [*(question(known, list(answer), answer) for known, answer in ASKED), question(knows, missing)]
        schema = {
            "type": "object",
            "properties": {subject: {"enum": names} for subject, names in free.items()},
            "required": list(missing),
            "additionalProperties": False,
        }
        messages = [kt.Message.user("\n\n".join(prompt))]
        settings = {"temperature": 0, "seed": 1}
        reply = await context.model(self.model).complete(kt.ModelRequest(messages, (), schema, 60, settings))
        chosen: Mapping[str, str] = json.loads(reply.text)
        return chosen


# ---------------------------------------------------------------- the team


def build(model: str = MODEL, *, offline: bool = False) -> tuple[kt.Team, kt.TeamExecutionRequest]:
    """Make the team and its request; offline, a script replaces the supervisor's model."""
    lead: Any = Chooser(model)
    if offline or model != MODEL:
        lead = kt.MiniAgent(
            ScriptedModel(list(SCRIPT)) if offline else model, max_turns=6, settings={"max_tokens": 300}
        )
    others = [
        kt.Member(kt.Role(name, f"Knows about: {', '.join(known)}."), Teller(name)) for name, known in KNOWN.items()
    ]
    role = kt.Role("lead", "You put up notices for the harbour. Say what the members told you, and nothing else.")
    members = [kt.Member(role, lead, budget=kt.Budget(tokens=15_000)), *others]
    coordinator = kt.SupervisorCoordinator(max_tasks=8, max_turns=5, failure_policy=FailurePolicy(retries=0))
    team = kt.Team("harbour-desk", members, coordinator=coordinator)
    config = kt.TeamConfig(budget=kt.Budget(tokens=20_000, seconds=300), max_parallel_tasks=1)
    return team, kt.TeamExecutionRequest(GOAL, config=config)


# ---------------------------------------------------------------- a script in place of the model, and main


def _creates(*tasks: tuple[str, str]) -> kt.ModelResponse:
    calls = [
        kt.ToolCall(
            name, "create_task", {"id": name, "description": f"Say what you know of the {name}.", "member": member}
        )
        for name, member in tasks
    ]
    return kt.ModelResponse("", tool_calls=calls, usage=kt.Usage(100, 60))


def _calls(name: str, **arguments: Any) -> kt.ModelResponse:
    return kt.ModelResponse("", tool_calls=[kt.ToolCall(name, name, arguments)], usage=kt.Usage(100, 20))


NOTICE = "High tide is at 14:20, 6.8 m. The wind is from the west, 5 knots. Fog until 9:30. The waves are 0.4 m high."
SCRIPT = [
    _creates(("tide", "harbor"), ("wind", "airfield"), ("fog", "radio"), ("waves", "buoy")),  # there is no "harbor"
    _creates(("tide", "harbour")),
    _calls("wait"),
    _creates(("fog-again", "lighthouse")),
    _calls("wait"),
    _calls("finish", answer=NOTICE),
]


def watch(event: kt.events.Event) -> None:
    """Print the created tasks, and how tasks end."""
    if isinstance(event, kt.events.TaskAssigned):
        print(f"{event.task_id} begins: {event.member}")
    elif isinstance(event, kt.events.TaskFailed):
        print(f"{event.task_id} failed: {event.reason}")
    elif isinstance(event, kt.events.ToolCalled):
        print(f"  {event.tool}: {event.reason or event.outcome}")


def summary(result: kt.TeamResult) -> str:
    """Print the notice, the missing facts, and the status."""
    cost = f"{result.status.value.upper()}, {result.usage}"
    return "\n\n".join(["", result.output or "no notice", *result.warnings, cost])


team, request = build()


def main(arguments: list[str]) -> int:
    """Run the team and print the result."""
    model = arguments[arguments.index("--model") + 1] if "--model" in arguments else MODEL
    team, request = build(model, offline="--offline" in arguments)
    result = kt.run_sync(team, request, runtime=kt.Runtime(subscribers=[watch]))
    print(summary(result))
    return 0 if result.status in (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
