"""A model that reports no tokens at all has told nothing about its usage."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import HaltError
from kairo_team.governance import Governor
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.models.limits import ModelLimits
from kairo_team.testing import EventRecorder
from tests.models.reports import ignore

pytestmark = pytest.mark.anyio

NOTHING = kt.Usage()


class Own:
    """A custom model that says that a reply took nothing."""

    name = "own:m"

    def __init__(self, usage: kt.Usage | None = NOTHING) -> None:
        self.usage = usage
        self.asked = 0

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.asked += 1
        return kt.ModelResponse("Fine.", usage=self.usage)

    async def stream(self, request: kt.ModelRequest, on_text: Any) -> kt.ModelResponse:
        on_text("Fine.")
        return await self.complete(request)


ASK = kt.ModelRequest([kt.Message.user("one two")], max_tokens=8)


@pytest.mark.parametrize("usage", [NOTHING, None], ids=["nothing", "unknown"])
async def test_third_o16_nothing_is_charged_as_the_whole_hold_is(usage: kt.Usage | None) -> None:
    governor = Governor(kt.Budget(tokens=300))
    model = GovernedModel(Own(usage), governor, ignore)
    response = await model.complete(ASK)
    streamed = await model.stream(ASK, lambda _: None)
    assert (response.usage, streamed.usage) == (None, None)
    held = 2 * (len("one two") + 16 + 32 + 8)
    assert governor.usage.tokens == held


@pytest.mark.real_time
@pytest.mark.parametrize(
    "usage",
    [kt.Usage(10**30), kt.Usage(5, 10**5_000), kt.Usage(5, 5, Decimal(10**14))],
    ids=["tokens", "more tokens", "dollars"],
)
async def test_more_than_any_call_can_take_is_nonsense_and_harms_no_journal(usage: kt.Usage, tmp_path: Path) -> None:
    """SQL has no room for it, and a sum of it is no float: the run could not be recorded."""
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    agent = kt.MiniAgent(Own(usage))
    team = kt.Team("t", [kt.Member("m", agent)], runtime=kt.Runtime(journal=journal))
    result = await kt.run(team, "Go.", budget=kt.Budget(tokens=9_000))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "Fine.")
    assert 0 < result.usage.tokens <= 9_000
    assert not result.usage.dollars
    (kept,) = journal.runs()
    assert kept.state == "completed"


async def test_third_o16_such_a_model_reaches_the_limit_of_its_run() -> None:
    model, recorder = Own(), EventRecorder()

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        while True:
            await context.model("own:m").complete(ASK)

    team = kt.Team("team", [kt.Member("m", work)], runtime=kt.Runtime(models={"own:m": model}, subscribers=[recorder]))
    config = kt.TeamConfig(kt.Budget(tokens=400))
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    result = await coordinator.execute(kt.TeamExecutionRequest("Do it.", config=config), team)
    assert result.status == "failed"
    assert "token_budget_exceeded" in (result.error or "")
    assert model.asked < 10
    outcomes = {event.outcome for event in recorder.of(events.ModelCalled)}
    assert outcomes == {"unknown"}


async def test_third_o16_it_counts_at_the_limit_of_tokens_a_minute() -> None:
    rules = CallRules(limits=ModelLimits({"*": kt.ModelLimit(tokens_per_minute=100)}))
    model = GovernedModel(Own(), Governor(), ignore, rules=rules)
    began = anyio.current_time()
    for _ in range(2):
        await model.complete(ASK)
    assert anyio.current_time() - began == pytest.approx(60)


async def test_third_o16_dollars_or_tokens_alone_are_a_usage() -> None:
    for usage in (kt.Usage(dollars=Decimal(1)), kt.Usage(3), kt.Usage(0, 3)):
        governor = Governor(kt.Budget(tokens=300))
        await GovernedModel(Own(usage), governor, ignore).complete(ASK)
        assert (governor.usage.tokens, governor.usage.dollars) == (usage.tokens, usage.dollars)
    with pytest.raises(HaltError):
        poor = Governor(kt.Budget(tokens=100))
        for _ in range(3):
            await GovernedModel(Own(), poor, ignore).complete(ASK)
