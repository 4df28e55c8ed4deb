"""Teams that are served, and what asks them."""

from __future__ import annotations

import threading
from typing import Any

import anyio

import kairo_team as kt
from kairo_team.serve.asked import Rules, Served
from kairo_team.testing import FunctionModel

KEYS = {"ada": "ada-has-this-key-0001", "bob": "bob-has-this-key-0002"}
BUDGET = kt.Budget(tokens=1_000)


def echo(**team: Any) -> kt.Team:
    """A team that says what it was asked for, without a model."""
    return kt.Team("echo team", [kt.Member("m", lambda assignment: f"About {assignment.goal}")], **team)


def talking(reply: str = "Twice a day.", tokens: int = 30, **team: Any) -> kt.Team:
    """A team whose member makes one model call of a known usage."""
    usage = kt.Usage(tokens - 10, 10)
    model = FunctionModel(lambda _: kt.ModelResponse(reply, usage=usage), name="double:said")
    return kt.Team("school", [kt.Member("teacher", kt.MiniAgent(model))], **team)


class Waiting:
    """A member that waits until it is let go; it notes how its attempts end."""

    def __init__(self) -> None:
        self.began = 0
        self.ends: list[str] = []
        self.go = threading.Event()

    async def __call__(self, assignment: kt.Assignment) -> str:
        self.began += 1
        try:
            while not self.go.is_set():  # set from any loop
                await anyio.sleep(0.005)
        except BaseException:
            self.ends.append("cancelled")
            raise
        self.ends.append("done")
        return f"waited for {assignment.goal}"

    def team(self, **team: Any) -> kt.Team:
        return kt.Team("waiting", [kt.Member("m", self)], **team)

    async def until_begun(self, times: int = 1) -> None:
        while self.began < times:
            await anyio.sleep(0.005)


class _AsksAPerson:
    """Leaves every text to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")


def asking(**team: Any) -> kt.Team:
    """A team whose work a person approves; the second version is warmer."""

    def write(assignment: kt.Assignment) -> str:
        return "Dear friends" if assignment.previous else "Dear all"

    return kt.Team("office", [kt.Member("clerk", write)], evaluators={"person": _AsksAPerson()}, **team)


LETTER = kt.TaskGraph([kt.Task("letter", "Write.", evaluator="person")])


def served(team: kt.Team, **rules: Any) -> Served:
    """A served team under a small budget for each run."""
    config = kt.TeamConfig(budget=rules.pop("budget", BUDGET))
    return Served(Rules(team=team, config=config, **rules))
