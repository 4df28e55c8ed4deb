"""Agents for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from anyio.lowlevel import checkpoint

from kairo_team.results import AgentOutput, Artifact
from kairo_team.testing.script import Failure, Script

if TYPE_CHECKING:
    from kairo_team.contracts import MemberContext
    from kairo_team.tasks import Assignment

Output = AgentOutput | Artifact | str


class ScriptedAgent:
    """An agent that gives the outputs of a script, one per assignment; an exception in the script is raised.

    `None` is allowed: it is what a broken agent returns. `calls` holds the assignments. A call beyond the script is a
    failed attempt, so end the test with `assert_complete`.
    """

    reentrant = True

    def __init__(self, outputs: Iterable[Output | Failure | None]) -> None:
        self.calls: list[Assignment] = []
        self._script: Script[Output | None] = Script(outputs, "ScriptedAgent")

    async def run(self, assignment: Assignment, context: MemberContext) -> Output:
        """Give the next output; the event loop turns once."""
        self.calls.append(assignment)
        output = self._script.take()
        await checkpoint()
        return cast("Output", output)  # a broken agent's None is one of them

    def assert_complete(self) -> None:
        """Raise `AssertionError` unless every output was asked for, and none more."""
        self._script.assert_complete()

    def __repr__(self) -> str:
        return f"ScriptedAgent({len(self.calls)} calls)"
