"""An agent that runs alone with a journal: cut at any commit, the same call goes on, and pays nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.testing import FunctionModel
from tests.durable.desk import Images

pytestmark = pytest.mark.real_time


class World:
    """A mini agent with a tool, and what it did."""

    def __init__(self) -> None:
        self.asked = 0
        self.looked: list[str] = []

        @kt.tool(side_effect="read")
        def look(at: str) -> str:
            """Look at something."""
            self.looked.append(at)
            return f"{at} is blue"

        self.agent = kt.MiniAgent(FunctionModel(self.answer), tools=[look])

    def answer(self, request: kt.ModelRequest) -> str | kt.ModelResponse:
        self.asked += 1
        seen = sum(message.role == "tool" for message in request.messages)
        if seen < 2:
            return kt.ModelResponse("", tool_calls=[kt.ToolCall(f"c{seen}", "look", {"at": ("sea", "sky")[seen]})])
        return "both are blue"

    async def run(self, path: Path, **options: Any) -> kt.AgentOutput:
        journal = kt.SqliteJournal(path, sync="normal")
        try:
            output: kt.AgentOutput = await self.agent.run("What is blue?", journal=journal, run_id="blue-1", **options)
            return output
        finally:
            journal.close()


async def test_a_lone_agent_that_is_cut_goes_on_and_one_that_ended_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, path = World(), tmp_path / "runs.db"
    images = Images(tmp_path, monkeypatch)
    whole = await first.run(path, budget=kt.Budget(tokens=20_000))
    monkeypatch.undo()
    assert (whole.artifact.text, whole.status, first.asked, first.looked) == (
        "both are blue", kt.AgentStatus.COMPLETED, 3, ["sea", "sky"]
    )  # fmt: skip
    for image in images.paths:
        journal, again = kt.SqliteJournal(image), World()
        calls = journal.calls("blue-1")
        done = [one.what for one in calls if one.state == "answered"]
        doubt = sum((one.usage for one in journal.in_doubt("blue-1")), kt.Usage())
        output = await again.run(image)
        assert (output.artifact.text, output.status) == ("both are blue", kt.AgentStatus.COMPLETED)
        if journal.result("blue-1") is None:
            assert again.asked == 3 - done.count("model")
        assert output.usage.tokens == whole.usage.tokens + doubt.tokens
    told = World()
    assert (await told.run(path)).artifact.text == "both are blue"
    assert told.asked == 0


async def test_a_limit_that_ends_it_is_told_as_without_a_journal(tmp_path: Path) -> None:
    limit = kt.Budget(tokens=300)
    output = await World().run(tmp_path / "runs.db", budget=limit)
    alone = await World().agent.run("What is blue?", budget=limit)
    assert output.status is alone.status is kt.AgentStatus.HALTED
    assert output.error
    assert output.usage.tokens <= 300


async def test_without_an_answer_it_is_halted_and_the_error_says_why(tmp_path: Path) -> None:
    output = await World().run(tmp_path / "runs.db", budget=kt.Budget(loops=1))
    assert output.status is kt.AgentStatus.HALTED
    assert "loop_budget_exceeded" in (output.error or "")


async def test_what_its_model_raises_is_raised(tmp_path: Path) -> None:
    def broken(request: kt.ModelRequest) -> str:
        raise LookupError("no answer")

    journal = kt.SqliteJournal(tmp_path / "runs.db")
    with pytest.raises(LookupError, match="no answer"):
        await kt.MiniAgent(FunctionModel(broken)).run("What?", journal=journal, run_id="r")
    journal.close()


@pytest.mark.parametrize("given", [{"run_id": "r"}, {"journal": "j"}])
async def test_a_journal_and_an_id_go_together(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="journal= and run_id= go together"):
        await World().agent.run("What?", **given)
