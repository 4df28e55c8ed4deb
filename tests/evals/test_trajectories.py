"""Criteria about what the members of a team did, over a dataset and over finished runs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.agents import MiniAgent
from kairo_team.coordinators import ExpertTeamCoordinator, HandoffCoordinator
from kairo_team.evals import Case, Dataset, judge_runs, run_eval
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.testing import FunctionModel
from tests.evaluators.judge_rig import Judging

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

CASES = Dataset([Case("tides", "Explain tides."), Case("wind", "Explain wind.")])
ONE = Dataset([Case("tides", "Explain tides.")])
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


# ---------------------------------------------------------------- who handed over to whom


def handing(*says: str | None) -> kt.Team:
    """A team of functions and a model; in each turn the next of `says` gets the work, and None is an answer."""
    left = iter(says)

    def next_one(assignment: kt.Assignment) -> kt.Artifact:
        to = next(left)
        return kt.Artifact(
            "Done." if to is None else "Not mine.", to and {"hand_over": {"to": to, "message": "take it"}}
        )

    def reply(request: kt.ModelRequest) -> kt.ModelResponse | str:
        to = next(left)
        given = {"to": to, "message": "take it"}
        return "Done." if to is None else kt.ModelResponse("", [kt.ToolCall("1", "hand_over", given)])

    model = MiniAgent(FunctionModel(reply, name="test:model"))
    members = [kt.Member(name, next_one) for name in ("greeter", "billing")]
    coordinator = HandoffCoordinator(max_hops=3)
    return kt.Team("desk", [*members, kt.Member("technical", model)], coordinator=coordinator)


WAY = checks.hands_over("greeter", "technical", "billing")


@pytest.mark.parametrize(
    ("says", "check", "why"),
    [
        (("technical", "billing", None), WAY, ""),
        (("billing", "technical", "billing", None), checks.hands_over("gr*", "*", "technical"), ""),
        (("billing", "technical", "billing", None), checks.hands_over("technical", "billing"), ""),
        (("billing", "technical", None), WAY, "hand-overs: greeter to billing, billing to technical"),
        (("technical", None), WAY, "technical did not hand over to billing in this order; hand-overs: greeter to tech"),
        ((None,), WAY, "greeter did not hand over to technical in this order; hand-overs: none"),
    ],
)
async def test_a_check_reads_who_handed_over_to_whom_in_order(
    says: tuple[str | None, ...], check: Any, why: str, tmp_path: Path
) -> None:
    rubric = Rubric([Criterion("way", "it goes its way", check)])
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        result = await run_eval(handing(*says), ONE, rubric, runtime=kt.Runtime(journal=journal))
    (trial,) = result.trials
    assert (trial.outcome, why in trial.why) == ("fail" if why else "pass", True), trial.why


async def test_a_hand_over_that_was_refused_is_none(tmp_path: Path) -> None:
    """The last one is refused by max_hops, and one to nobody is an attempt that failed."""
    says = ("billing", "technical", "billing", "technical")
    rubric = Rubric([Criterion("way", "it goes", checks.hands_over("greeter", "billing", "technical", "billing"))])
    again = Rubric([Criterion("way", "it goes on", checks.hands_over("billing", "technical", "billing", "technical"))])
    failed = Rubric([Criterion("way", "it goes its way", checks.hands_over("greeter", "nobody"))])
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        runtime = kt.Runtime(journal=journal)
        await kt.run(handing(*says), "Explain tides.", runtime=runtime)
        outcomes = [(await judge_runs(journal, one, team="desk")).result.trials[0].outcome for one in (rubric, again)]
        result = await run_eval(handing("nobody", "technical", None), ONE, failed, runtime=runtime)
    assert outcomes == ["pass", "fail"]
    assert result.trials[0].why.endswith("hand-overs: greeter to technical")


async def test_hand_overs_need_the_record_of_a_run() -> None:
    rubric = Rubric([Criterion("way", "it goes its way", WAY)])
    with pytest.raises(ValueError, match="need a record of what the members did"):
        await run_eval(handing(None), ONE, rubric)
    talk = (kt.Message.system("You help."), kt.Message.user("?"), kt.Message.assistant("Done."))
    asked = kt.EvaluationContext(kt.Task("t", "?"), kt.Artifact("Done."), 1, transcript=talk)
    verdict = await rubric.evaluate(asked)
    assert verdict.cause is kt.Cause.UNDECIDED
    assert "only the record of a whole run shows who handed over" in verdict.criteria[0].reason


# ---------------------------------------------------------------- what was used


def paid() -> tuple[kt.Team, dict[str, Any]]:
    """A team that uses 50 tokens and 0.02 dollars in a run, and what its runtime takes."""

    def reply(request: kt.ModelRequest) -> kt.ModelResponse:
        return kt.ModelResponse(f"About tides, {len(model.calls)}.", usage=kt.Usage(40, 10))

    model = FunctionModel(reply, name="test:model")
    given: dict[str, Any] = {"models": {"test:*": model}, "prices": {"test:model": kt.Price(400, 400)}}
    return kt.Team("desk", [kt.Member("clerk", MiniAgent("test:model"))], runtime=kt.Runtime(**given)), given


USED = [
    (checks.max_tokens_used(50), ""),
    (checks.max_tokens_used(49), "50 tokens were used, at most 49 are allowed"),
    (checks.max_dollars_used(0.02), ""),
    (checks.max_dollars_used(0.019), "0.02 dollars were used, at most 0.019 are allowed"),
    (checks.max_seconds_used(600), ""),
    (checks.max_seconds_used(0), "seconds were used, at most 0 are allowed"),
]


@pytest.mark.parametrize(("check", "why"), USED)
async def test_a_check_reads_what_the_whole_run_has_used(check: Any, why: str, tmp_path: Path) -> None:
    team, given = paid()
    rubric = Rubric([Criterion("cheap", "it is cheap", check)])
    result = await run_eval(team, ONE, rubric)  # nothing needs to be recorded for it
    assert (result.trials[0].outcome, why in result.trials[0].why) == ("fail" if why else "pass", True)
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        await kt.run(replace(team, runtime=None), "Explain tides.", runtime=kt.Runtime(journal=journal, **given))
        (again,) = (await judge_runs(journal, rubric, team="desk")).result.trials
    assert (again.outcome, why in again.why) == ("fail" if why else "pass", True)


async def test_in_a_run_a_check_reads_what_the_task_has_used_in_all_its_attempts() -> None:
    team, _ = paid()
    seen: list[int] = []

    def check(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool:
        assert context.usage is not None
        seen.append(context.usage.tokens)
        return checks.max_tokens_used(99)(artifact, context) is not True

    rubric = Rubric([Criterion("dear", "it has used more than 99 tokens", check)])
    result = await kt.run(team, "Explain tides.", coordinator=ExpertTeamCoordinator(evaluator=rubric))
    assert (result.status, seen) == (kt.TeamStatus.COMPLETED, [50, 100])


async def test_outside_a_run_what_was_used_is_unknown() -> None:
    rubric = Rubric([Criterion("cheap", "it is cheap", checks.max_tokens_used(70))])
    verdict = await rubric.evaluate(kt.EvaluationContext(kt.Task("t", "?"), kt.Artifact("Done."), 1))
    assert (verdict.cause, "nothing says what the work has used" in verdict.criteria[0].reason) == (
        kt.Cause.UNDECIDED,
        True,
    )


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: checks.hands_over("greeter"), "at least two members"),
        (lambda: checks.hands_over("greeter", " "), "takes ids of members, not ' '"),
        (lambda: checks.max_tokens_used(1.5), "takes a whole number >= 0, not 1.5"),  # type: ignore[arg-type]  # on purpose
        (lambda: checks.max_tokens_used(True), "takes a whole number >= 0, not True"),
        (lambda: checks.max_dollars_used("1"), "max_dollars_used takes a number >= 0, not '1'"),  # type: ignore[arg-type]  # on purpose
        (lambda: checks.max_seconds_used(float("nan")), "max_seconds_used takes a number >= 0, not nan"),
    ],
)
def test_checks_that_mean_nothing_are_refused(make: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


@pytest.mark.parametrize(
    ("check", "data"),
    [
        (WAY, {"hands_over": {"members": ["greeter", "technical", "billing"]}}),
        (checks.max_dollars_used(0.5), {"max_dollars_used": {"limit": 0.5}}),
    ],
)
def test_the_checks_are_data_too(check: Any, data: Any) -> None:
    rubric = Rubric([Criterion("c", "c", check)])
    assert rubric.to_data()["criteria"][0]["check"] == data
    assert Rubric.from_data(rubric.to_data()).digest == rubric.digest
    short = {"hands_over": ["greeter", "technical", "billing"]} if "hands_over" in data else None
    if short:
        again = Rubric.from_data({"criteria": [{"id": "c", "text": "c", "check": short}]})
        assert again.digest == rubric.digest
