"""A call without a record costs nothing, is made once, and says which request it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.errors import NoRecord
from kairo_team.governance import Governor
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.testing import FunctionModel, RecordReplayModel, ScriptedModel
from tests.models.reports import ignore

pytestmark = pytest.mark.anyio

ASK = kt.ModelRequest([kt.Message.user("What are tides?")], max_tokens=40)


class Counted:
    """A model that counts how often it is asked, and passes all of it on."""

    def __init__(self, model: RecordReplayModel) -> None:
        self.name = model.name
        self.asked = 0
        self._model = model

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.asked += 1
        return await self._model.complete(request)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replies.jsonl"


async def test_third_o17_a_miss_is_free_final_and_says_which_request(path: Path) -> None:
    model = Counted(RecordReplayModel(path, mode="replay"))
    governor = Governor(kt.Budget(tokens=10_000))
    rules = CallRules(kt.ModelRetry(retries=5, backoff=0.01))
    with pytest.raises(NoRecord, match=r"replies.jsonl: no record of the request 'What are tides\?'") as caught:
        await GovernedModel(model, governor, ignore, rules=rules).complete(ASK)
    assert (caught.value.kind, caught.value.unspent) == ("bad_request", True)
    assert (model.asked, governor.usage.tokens) == (1, 0)


async def test_third_o17_a_recorded_reply_that_does_not_fit_is_free_too(path: Path) -> None:
    await RecordReplayModel(path, ScriptedModel(["one two three"])).complete(ASK)
    governor = Governor(kt.Budget(tokens=10_000))
    short = kt.ModelRequest(ASK.messages, max_tokens=2)
    with pytest.raises(NoRecord, match="has 3 tokens, this call allows 2"):
        await GovernedModel(RecordReplayModel(path, mode="replay"), governor, ignore).complete(short)
    assert governor.usage.tokens == 0


async def test_third_o17_another_model_is_not_asked_in_its_place(path: Path) -> None:
    """A recorded conversation does not become another one because a line is missing."""
    asked: list[kt.ModelRequest] = []

    def answer(request: kt.ModelRequest) -> str:
        asked.append(request)
        return "not recorded"

    other = FunctionModel(answer)
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(kt.Fallback(RecordReplayModel(path), other)))])
    result = await kt.run(team, "Write.", budget=kt.Budget(tokens=20_000))
    assert "no record of the request" in str(result.error)
    assert (result.usage.tokens, asked) == (0, [])


async def test_third_o17_a_run_ends_with_the_request_that_had_no_record(path: Path) -> None:
    replies: Callable[[kt.ModelRequest], str] = lambda _: "The moon pulls."  # noqa: E731 - one word of a table

    async def run(model: RecordReplayModel, goal: str) -> kt.TeamResult:
        team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(model, max_turns=1))])
        plan = kt.TaskGraph([kt.Task("explain", "Explain it.")])
        return await kt.run(team, goal, plan=plan, budget=kt.Budget(tokens=20_000))

    assert (await run(RecordReplayModel(path, FunctionModel(replies)), "Tides.")).output == "The moon pulls."
    assert (await run(RecordReplayModel(path, mode="replay"), "Tides.")).output == "The moon pulls."
    missed = await run(RecordReplayModel(path, mode="replay"), "Winds.")
    assert (missed.status, missed.usage.tokens) == (kt.TeamStatus.FAILED, 0)
    assert "no record of the request" in str(missed.error)
    assert "Winds." in str(missed.error)
