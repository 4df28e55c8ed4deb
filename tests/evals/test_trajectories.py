"""Criteria about what the members of a team did, over a dataset and over finished runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.agents import MiniAgent
from kairo_team.evals import Case, Dataset, judge_runs, run_eval
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.testing import FunctionModel
from tests.evaluators.judge_rig import Judging

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

CASES = Dataset([Case("tides", "Explain tides."), Case("wind", "Explain wind.")])
CALLS = Rubric(
    [
        Criterion("searched", "it searches", checks.calls_tool("search")),
        Criterion("in-order", "it searches, then files", checks.calls_in_order("search", "file")),
        Criterion("about", "it searches for tides", checks.calls_with("search", {"query": "tides"}), kind="info"),
        Criterion("once", "one search at most", checks.max_tool_calls(1, "search")),
        Criterion("safe", "it deletes nothing", checks.avoids_tool("delete")),
        Criterion("shown", "the result is in the text", checks.contains("[result of search]"), on="transcript"),
    ]
)


@kt.tool
async def search(query: str) -> str:
    """Search."""
    return f"all about {query}"


@kt.tool
async def file(text: str) -> str:
    """File a text."""
    return "filed"


def reply(request: kt.ModelRequest) -> kt.ModelResponse | str:
    """Search, then file, then answer; every call has the same id."""
    done = sum(one.role == "tool" for one in request.messages)
    about = "tides" if "tides" in str(request.messages) else "wind"
    if done == 0:
        return kt.ModelResponse("", [kt.ToolCall("1", "search", {"query": about})])
    if done == 1:
        return kt.ModelResponse("", [kt.ToolCall("1", "file", {"text": about})])
    return f"About {about}."


def desk() -> kt.Team:
    model = FunctionModel(reply, name="test:model")
    return kt.Team("desk", [kt.Member("clerk", MiniAgent(model, tools=[search, file]))])


async def test_checks_of_tool_calls_decide_about_the_trials_of_a_recorded_eval(tmp_path: Path) -> None:
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        result = await run_eval(desk(), CASES, CALLS, runtime=kt.Runtime(journal=journal), run_id="night")
        assert [one.outcome for one in result.trials] == ["pass", "pass"], [one.why for one in result.trials]
        assert {name: met.k for name, met in result.criteria.items()} == {
            "searched": 2, "in-order": 2, "about": 1, "once": 2, "safe": 2, "shown": 2,
        }  # fmt: skip
        again = await run_eval(desk(), CASES, CALLS, runtime=kt.Runtime(journal=journal), run_id="night")
        assert again.trials == result.trials


async def test_a_judge_reads_calls_and_results_and_who_worked(tmp_path: Path) -> None:
    judge = Judging({"careful": "met"})
    rubric = Rubric([Criterion("careful", "it works carefully", by="judge", on="transcript")])
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        result = await run_eval(desk(), CASES, rubric, judge=judge.model, runtime=kt.Runtime(journal=journal))
    assert [one.outcome for one in result.trials] == ["pass", "pass"], [one.why for one in result.trials]
    asked = str(judge.asked)
    for shown in ("member clerk", "assistant calls search", "all about tides", "result of file"):
        assert shown in asked


async def test_where_nothing_is_recorded_a_sentence_says_what_to_turn_on() -> None:
    model = FunctionModel(lambda _: "x", name="test:model")
    team = kt.Team("desk", [kt.Member("clerk", MiniAgent(model))])
    for rubric in (
        Rubric([Criterion("searched", "it searches", checks.calls_tool("search"))]),
        Rubric([Criterion("polite", "it is polite", checks.not_blank, on="transcript")]),
    ):
        with pytest.raises(
            ValueError, match=r"need a record of what the members did: .* kairo eval --journal runs\.db"
        ):
            await run_eval(team, CASES, rubric)
    assert not model.calls


async def test_a_member_that_keeps_no_conversation_leaves_it_undecided(tmp_path: Path) -> None:
    async def write(assignment: kt.Assignment) -> str:
        return assignment.goal

    team = kt.Team("desk", [kt.Member("clerk", write)])
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        result = await run_eval(team, CASES, CALLS, runtime=kt.Runtime(journal=journal))
    assert {one.outcome for one in result.trials} == {"undecided"}
    assert "kept no transcript" in result.trials[0].why


async def test_finished_runs_are_judged_by_what_their_members_did(tmp_path: Path) -> None:
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        for goal in ("Explain tides.", "Explain wind."):
            await kt.run(desk(), goal, runtime=kt.Runtime(journal=journal))
        found = await judge_runs(journal, CALLS, team="desk")
    assert (found.agreement.k, found.agreement.n) == (2, 2)
    assert found.result.criteria["about"].k == 1


async def test_the_conversations_of_several_members_are_one_with_results_under_their_own_tools(tmp_path: Path) -> None:
    plan = kt.TaskGraph([kt.Task("one", "Explain tides."), kt.Task("two", "Explain wind.", depends_on=["one"])])
    rubric = Rubric(
        [
            Criterion("both", "both tasks search", checks.calls_in_order("search", "file", "search", "file")),
            Criterion("results", "in place", checks.regex(r"(?s)Task one.*search\]\nall about.*file\]\nfiled.*Task two",
                      "not in place"), on="transcript"),
        ]
    )  # fmt: skip
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        one = Dataset([Case("c", "Explain tides.")])
        result = await run_eval(desk(), one, rubric, plan=plan, runtime=kt.Runtime(journal=journal))
    assert [one.outcome for one in result.trials] == ["pass"], result.trials[0].why
