"""The debate, and the contract kit on it."""

from __future__ import annotations

import pytest

pytest.importorskip("debate_club", reason="tests/third_party/debate_club is not installed")

from debate_club import DebateCoordinator, elect

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.tck import TeamCoordinatorTCK


class TestDebateCoordinator(TeamCoordinatorTCK):
    supports_plan = False
    supports_review = False
    supports_revision = False
    supports_gate = False
    tolerates_failures = True
    joins_output = False

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return DebateCoordinator()


def test_most_votes_win_and_of_a_tie_the_earlier() -> None:
    drafts = {"draft.a": "A", "draft.b": "B"}
    assert elect(["a", "b"], drafts | {"vote.a": "b\nbecause", "vote.b": "b"}) == "b"
    assert elect(["a", "b"], drafts | {"vote.a": "b", "vote.b": "a"}) == "a"
    assert elect(["a", "b"], drafts | {"vote.a": "nobody", "vote.b": ""}) == "a"


def test_who_has_no_draft_cannot_win() -> None:
    assert elect(["a", "b"], {"draft.b": "B", "vote.a": "a", "vote.b": "a"}) == "b"
    assert elect(["a", "b"], {"vote.a": "a"}) is None


async def test_a_team_debates() -> None:
    def member(name: str, votes_for: str) -> kt.Member:
        async def speak(assignment: kt.Assignment) -> str:
            kind = assignment.task.id.partition(".")[0]
            return {"draft": f"draft of {name}", "object": "too long", "vote": f"{votes_for}\nshorter"}[kind]

        return kt.Member(name, speak)

    team = kt.Team("club", [member("a", "b"), member("b", "a"), member("c", "b")])
    result = await kt.run(team, "Name the product.", coordinator=DebateCoordinator())
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "draft of b")


async def test_a_plan_is_refused_before_anybody_speaks() -> None:
    request = kt.TeamExecutionRequest("Name it.", plan=kt.TaskGraph([kt.Task("t", "Do it.")]))
    result = await kt.run(
        kt.Team("club", [kt.Member("a", kt.MiniAgent("test:none"))]), request, coordinator=DebateCoordinator()
    )
    assert result.status is kt.TeamStatus.FAILED
    assert "its own plan" in (result.error or "")
