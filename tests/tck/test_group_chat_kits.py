"""The group chat fulfils the contract of coordinators, in turn and with a moderator, with and without a closing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.coordinators import FailurePolicy, GroupChatCoordinator
from kairo_team.coordinators.turns import Said
from kairo_team.tck import TeamCoordinatorTCK
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")


class TestGroupChat(TeamCoordinatorTCK):
    """An evaluator reviews the answer alone: in a talk of one turn that is every artifact."""

    supports_plan = False

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return GroupChatCoordinator(max_turns=4 if evaluator is None else 1, evaluator=evaluator)


async def first_then_last(said: Sequence[Said]) -> str | None:
    return ("one", "three", None)[len(said)] if len(said) < 3 else None


@variant("trio")
class TestGroupChatWithAModerator(TestGroupChat):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        if evaluator is None:
            return GroupChatCoordinator(moderator=first_then_last)
        return GroupChatCoordinator(moderator=first_then_last, until=lambda said: True, evaluator=evaluator)


@variant("asyncio")
class TestGroupChatThatNeverTriesAgain(TestGroupChat):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        policy = FailurePolicy(retries=0, try_others=False)
        return GroupChatCoordinator(max_turns=4 if evaluator is None else 1, evaluator=evaluator, failure_policy=policy)


@variant("trio")
class TestGroupChatWithAClosing(TestGroupChat):
    supports_review = False
    supports_revision = False
    supports_gate = False
    supports_resume = False

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return GroupChatCoordinator(max_turns=3, closing="three")
