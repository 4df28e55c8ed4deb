"""Group chat: three members settle when the boat leaves, turn by turn, until all name the same time.

    python examples/group_chat.py               # on the model inside this process
    python examples/group_chat.py --offline     # a script in place of the model

Each member has times that suit it, and hears what the others said. In its turn a model of 135 million parameters
chooses one of the member's times, held to a schema. The members speak in turn; `until` ends the talk when the last
three turns name one time. The clerk, a function, takes no turns and writes down the result, if any.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.coordinators import Said
from kairo_team.testing import ScriptedModel

MODEL = "local:smollm2"
GOAL = "Settle when the boat leaves."
TIMES = {"skipper": ["15:00", "12:00"], "cook": ["9:00", "12:00", "18:00"], "guide": ["12:00", "15:00", "18:00"]}
"""Times that suit each member, the best first."""
MOST_TURNS = 9
TIME = re.compile(r"\d+:\d\d")

# ---------------------------------------------------------------- the members

EXAMPLES: list[tuple[list[str], list[str], str]] = [
    (["8:00", "10:00"], ["10:00", "13:00"], "10:00"),
    (["14:00", "16:00", "11:00"], ["11:00"], "11:00"),
    (["17:00", "7:00"], [], "17:00"),
    (["13:00", "16:00"], ["8:00", "16:00"], "16:00"),
]


def question(own: Sequence[str], heard: Sequence[str], chosen: str = "") -> str:
    """Write down the times of a member and of the others; with a choice, the text is an example for the model."""
    return f"My times: {', '.join(own)}\nOthers say: {', '.join(heard) or 'nothing'}\nI say: {chosen}".strip()


class Speaker:
    """Has a model choose one of a member's times, after those that the others named last."""

    reentrant = True

    def __init__(self, name: str, model: str | ChatModel) -> None:
        self.name = name
        self.model = model

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Say a time."""
        own = TIMES[self.name]
        heard = [time for name, time in named(said_before(assignment)).items() if name != self.name]
        prompt = "\n\n".join([*(question(*one) for one in EXAMPLES), question(own, heard)])
        schema = {"enum": own}
        settings = {"temperature": 0, "seed": 1}
        request = kt.ModelRequest([kt.Message.user(prompt)], (), schema, max_tokens=12, settings=settings)
        chosen = json.loads((await context.model(self.model).complete(request)).text)
        return f"At {chosen}."


def said_before(assignment: kt.Assignment) -> list[Said]:
    """Return the talk so far with the last turn, oldest first."""
    earlier = re.findall(r"^(\w+):\n  (.*)$", str(assignment.inputs.get("the talk so far", "")), re.MULTILINE)
    last = [(str(assignment.inputs["who spoke last"]), one.text) for one in assignment.upstream.values()]
    return [Said(member, text) for member, text in (*earlier, *last)]


def named(said: Sequence[Said]) -> dict[str, str]:
    """Return the time that each member named last."""
    return {one.member: TIME.findall(one.text)[-1] for one in said}


def settled(said: Sequence[Said]) -> bool:
    """Return whether the last three turns name one time."""
    return len(said) >= len(TIMES) and len({TIME.findall(one.text)[-1] for one in said[-len(TIMES) :]}) == 1


def clerk(assignment: kt.Assignment) -> str:
    """Write down the result of the talk."""
    times = named(said_before(assignment))
    if len(set(times.values())) == 1:
        return f"The boat leaves at {times.popitem()[1]}."
    return "Nothing was settled: " + ", ".join(f"{name} says {time}" for name, time in times.items()) + "."


# ---------------------------------------------------------------- the team

SCRIPT = ["15:00", "9:00", "15:00", "15:00", "12:00", "12:00", "12:00"]
"""Replies of a model that comes round to the others' time."""


def build(*, offline: bool = False) -> tuple[kt.Team, kt.TeamExecutionRequest]:
    """Make the team and its request; offline, a script replaces the model."""
    model = ScriptedModel([json.dumps(time) for time in SCRIPT]) if offline else MODEL
    chat = kt.GroupChatCoordinator(until=settled, max_turns=MOST_TURNS, transcript_chars=400, closing="clerk")
    members = [kt.Member(name, Speaker(name, model)) for name in TIMES]
    team = kt.Team("boat-trip", [*members, kt.Member("clerk", clerk)], coordinator=chat)
    config = kt.TeamConfig(budget=kt.Budget(tokens=6_000, seconds=300))
    return team, kt.TeamExecutionRequest(GOAL, config=config)


def show(result: kt.TeamResult) -> str:
    """Print the talk, its result, the warnings, and the cost."""
    lines = [f"{one.member:8}{one.artifact.text if one.artifact else one.error}" for one in result.outcomes]
    return "\n".join([*lines, "", *result.warnings, f"{result.status.value.upper()}, {result.usage}"])


team, request = build()


def main(arguments: list[str]) -> int:
    """Hold the talk and print it."""
    result = kt.run_sync(*build(offline="--offline" in arguments))
    print(show(result))
    return 0 if result.status in (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
