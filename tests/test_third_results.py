"""A result tells the truth: whose work its output is, why the run is not COMPLETED, and what was only a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.evaluators import Criterion, Rubric, SimpleEvaluationStrategy, all_of, any_of, checks
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedJudge, run_in_virtual_time
from kairo_team.views.notebook import show_result
from kairo_team.views.run_record import read_record, recorded_result
from kairo_team.views.text import describe_verdict
from tests.test_growth import BODY, PASSED, passes_in, play, polish

pytestmark = pytest.mark.anyio

ONCE = FailurePolicy(retries=0)
LOW = kt.TeamConfig(risk_profile=kt.RiskProfile.LOW)
LOST = "task 'write' failed: RuntimeError: no ink"


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Do the task; one whose description says so fails."""
    if assignment.task.description == "fail":
        raise RuntimeError("no ink")
    return f"made {assignment.task.id}"


def office(**fields: Any) -> kt.Team:
    return kt.Team("office", [kt.Member("m", work)], **fields)


CHAIN = kt.TaskGraph([kt.Task("look", "do"), kt.Task("write", "fail", depends_on=["look"])])


class Plans:
    """A planner that plans the chain."""

    async def plan(self, request: Any, team: Any, context: Any) -> kt.TaskGraph:
        return CHAIN


WAYS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "plan=, the default": (None, {"plan": CHAIN}, "degraded"),
    "plan=, LOW": (None, {"plan": CHAIN, "config": LOW}, "degraded"),
    "board": (TaskDispatchCoordinator(failure_policy=ONCE), {"plan": CHAIN}, "degraded"),
    "experts, LOW": (ExpertTeamCoordinator(failure_policy=ONCE), {"plan": CHAIN, "config": LOW}, "degraded"),
    "experts": (ExpertTeamCoordinator(failure_policy=ONCE), {"plan": CHAIN}, "failed"),
    "a planner": (ExpertTeamCoordinator(planner=Plans(), failure_policy=ONCE), {}, "failed"),
    "a planner, LOW": (ExpertTeamCoordinator(planner=Plans(), failure_policy=ONCE), {"config": LOW}, "degraded"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_third_o7_where_the_last_task_failed_nothing_else_is_the_output(way: str) -> None:
    coordinator, fields, status = WAYS[way]
    recorder = EventRecorder()
    team = office(runtime=kt.Runtime(subscribers=[recorder]))
    result = await kt.run(team, "Write it down.", coordinator=coordinator, **fields)
    assert (result.status, result.output, result.partial_output) == (status, None, "made look")
    assert result.error == LOST
    assert result.warnings[0] == LOST
    (end,) = recorder.of(kt.events.TeamEnded)
    assert (end.status, end.error) == (status, LOST)


@pytest.mark.parametrize("risk", ["low", "medium"])
async def test_third_o7_it_holds_of_the_plan_that_nobody_gave(risk: str) -> None:
    """The default plan has a task for each role, one behind the other."""

    async def fails(assignment: kt.Assignment) -> str:
        raise RuntimeError("no ink")

    team = kt.Team("office", [kt.Member("look", work), kt.Member("write", fails)])
    result = await kt.run(team, "Write.", config=kt.TeamConfig(risk_profile=kt.RiskProfile(risk)))
    assert (result.output, result.partial_output, result.error) == (None, "made look", LOST)


async def test_third_o7_a_team_as_a_member_that_has_no_output_is_a_failed_attempt() -> None:
    inner = TeamAgent(office(), plan=CHAIN, coordinator=TaskDispatchCoordinator(failure_policy=ONCE))
    result = await kt.run(kt.Team("outer", [kt.Member("inner", inner)]), "Do it.", coordinator="board")
    assert (result.status, result.output, result.partial_output) == (kt.TeamStatus.FAILED, None, "made look")
    assert LOST in str(result.error)


async def test_third_o7_views_and_the_journal_say_the_same(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    async with kt.Runtime(journal=journal) as runtime:
        result = await kt.run(office(), "Do it.", plan=CHAIN, run_id="r", runtime=runtime)
    (run,) = journal.runs()
    assert run.state == "degraded"
    assert read_record(journal, run).error == result.error == LOST
    kept = recorded_result(journal, "r")
    assert kept is not None
    assert (kept.output, kept.partial_output, kept.error) == (None, "made look", LOST)
    for some in ((), ("write",), ("look", "write")):
        part = recorded_result(journal, "r", some)
        wanted = [one for one in kept.outcomes if one.task_id in some]
        assert part == replace(kept, outcomes=tuple(wanted), plan=None, budget=None)
    result.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    _, shown = page.split(">The partial output</h2>")
    assert "made look" in shown.partition("</section>")[0]
    assert "task &#39;write&#39; failed: RuntimeError: no ink" in page
    assert "task &#x27;write&#x27; failed: RuntimeError: no ink" in show_result(result)


async def test_third_o7_what_the_last_tasks_made_is_the_output_whatever_else_failed() -> None:
    plan = kt.TaskGraph(
        [
            kt.Task("a", "do"),
            kt.Task("bad", "fail"),
            kt.Task("b", "do", depends_on=["a", "bad"], needs=1),
            kt.Task("c", "do", depends_on=["a"]),
        ]
    )
    result = await kt.run(office(), "Do it.", plan=plan)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "b:\nmade b\n\nc:\nmade c")
    assert (result.partial_output, result.error) == (None, "task 'bad' failed: RuntimeError: no ink")


async def test_third_o7_of_several_last_tasks_those_that_are_there_are_the_output() -> None:
    plan = kt.TaskGraph([kt.Task("first", "do"), kt.Task("a", "do", depends_on=["first"]), kt.Task("bad", "fail")])
    result = await kt.run(office(), "Do it.", plan=plan)
    assert (result.output, result.error) == ("made a", "task 'bad' failed: RuntimeError: no ink")


async def test_third_o7_a_branch_that_is_not_taken_is_no_last_task() -> None:
    when = {"from": "triage", "equals": "bug"}
    plan = [kt.Task("triage", "t"), kt.Task("mend", "m", when=when)]
    result = await play(plan, {"triage": "question", "mend": "mended"})
    assert (result.status, result.output, result.error) == (kt.TeamStatus.COMPLETED, "question", None)
    result = await play(plan, {"triage": "bug", "mend": "mended"})
    assert result.output == "mended"


async def test_third_o7_a_loop_that_never_met_its_condition_has_no_output() -> None:
    result = await play([polish(rounds=3)], passes_in(9))
    why = "task 'polish' failed: test.passed equals true did not hold after 3 rounds"
    assert (result.status, result.output, result.error) == (kt.TeamStatus.DEGRADED, None, why)
    assert result.partial_output == '{"passed": false}'


async def test_third_o7_a_loop_and_a_map_at_the_end_of_a_plan_are_its_output() -> None:
    result = await play([polish()], passes_in(2))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, '{"passed": true}')
    plan = [kt.Task("split", "s"), kt.Task.map("each", "e", over="split", max_items=3)]
    result = await play(plan, {"split": ["x", "y"]})
    assert result.output == "each.0001:\nmade each.0001\n\neach.0002:\nmade each.0002"


@pytest.mark.parametrize(("ids", "partial"), [(["y"], None), (["x", "y"], "made x")])
async def test_a_reply_of_which_nothing_is_left_is_no_part_of_the_partial_output(
    ids: list[str], partial: str | None
) -> None:
    cut = FunctionModel(lambda _: kt.ModelResponse("", usage=kt.Usage(), finish_reason="content_filter"))
    members = [kt.Member("m", work), kt.Member("cut", kt.MiniAgent(cut))]
    tasks = [kt.Task(one, "do", member="cut" if one == "y" else "m") for one in ids]
    plan = kt.TaskGraph([*tasks, kt.Task("z", "do", member="m", depends_on=ids)])
    result = await kt.run(kt.Team("office", members, coordinator=TaskDispatchCoordinator()), "go", plan=plan)
    assert (result.output, result.partial_output) == (None, partial)


async def test_third_o7_a_map_of_nothing_takes_nothing_from_the_partial_output() -> None:
    """Its list is in no later artifact, unless something behind the map was accepted."""
    each = kt.Task.map("each", "e", over="split", max_items=3)
    lost = kt.Task("lost", "l", depends_on=["each"])
    result = await play([kt.Task("split", "s"), each, lost], {"split": [], "lost": ValueError("no")})
    assert (result["each"].status, result.output, result.partial_output) == ("completed", None, "[]")
    behind = [kt.Task("join", "j", depends_on=["each"]), kt.Task("lost", "l", depends_on=["join"])]
    result = await play([kt.Task("split", "s"), each, *behind], {"split": [], "lost": ValueError("no")})
    assert (result.output, result.partial_output) == (None, "made join")


@pytest.mark.parametrize("status", [kt.TeamStatus.DEGRADED, kt.TeamStatus.FAILED])
async def test_third_o7_a_run_without_an_output_is_logged(
    status: kt.TeamStatus, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = None if status is kt.TeamStatus.DEGRADED else ExpertTeamCoordinator(failure_policy=ONCE)
    await kt.run(office(), "Do it.", plan=CHAIN, coordinator=coordinator)
    (line,) = [one.getMessage() for one in caplog.records if hasattr(one, "result")]
    assert f"ended {status}: {LOST}" in line


def tasks_of(shape: Sequence[tuple[list[int], bool]]) -> list[kt.Task]:
    """Make a plan: of each task those before it that it depends on, and whether it fails."""
    return [
        kt.Task(f"t{n}", "fail" if fails else "do", depends_on=sorted({f"t{of % n}" for of in behind} if n else ()))
        for n, (behind, fails) in enumerate(shape)
    ]


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.booleans()), min_size=1, max_size=8))
def test_third_o7_the_output_is_what_the_last_tasks_made_for_every_plan(shape: list[tuple[list[int], bool]]) -> None:
    tasks = tasks_of(shape)
    needed = {name for task in tasks for name in task.depends_on}
    coordinator = TaskDispatchCoordinator(failure_policy=ONCE)

    async def run() -> kt.TeamResult:
        return await kt.run(office(), "Do it.", plan=kt.TaskGraph(tasks), coordinator=coordinator)

    result = run_in_virtual_time(run)
    accepted = {one.task_id for one in result.outcomes if one.status is kt.TaskStatus.COMPLETED}
    ends = [f"made {task.id}" for task in tasks if task.id not in needed and task.id in accepted]
    assert (result.output is not None) == bool(ends)
    assert all(text in (result.output or "") for text in ends)
    assert (result.output or "").count("made") == len(ends)
    assert (result.partial_output is not None) == (bool(accepted) and not ends)
    assert (result.error is None) == (result.status is kt.TeamStatus.COMPLETED) == (len(accepted) == len(tasks))


# ---------------------------------------------------------------- loops and maps


async def test_third_o6_a_task_of_a_body_is_found_under_its_name_and_is_that_of_the_last_round() -> None:
    result = await play([polish()], passes_in(3))
    assert result["polish.write"] is result["polish.03.write"]
    assert result["polish.test"] is result["polish.03.test"]
    assert result["polish.01.write"].task_id == "polish.01.write"
    with pytest.raises(KeyError, match=r"polish\.nobody"):
        result["polish.nobody"]


async def test_third_o6_a_loop_has_the_artifact_of_its_bodys_last_task() -> None:
    result = await play([polish()], passes_in(3))
    assert result["polish"].artifact == result["polish.03.test"].artifact
    result = await play([polish(rounds=2)], passes_in(9))
    assert result["polish"].artifact == result["polish.02.test"].artifact
    result = await play([polish()], passes_in(9) | {"polish.02.write": ValueError("no")})
    assert result["polish"].artifact == result["polish.01.test"].artifact, "the last round in which there is one"


async def test_third_o6_names_go_through_maps_and_loops_inside() -> None:
    each = kt.Task.map("each", "e", over="split", max_items=5, loop=kt.Loop(BODY, until=PASSED, max_rounds=4))
    result = await play([kt.Task("split", "s"), each], {"split": [1, 2]} | passes_in(2))
    assert result["each.0002.write"] is result["each.0002.02.write"]
    assert result["each.0002"].artifact == result["each.0002.02.test"].artifact
    outer = kt.Task("outer", "o", loop=kt.Loop([polish(rounds=2, until=None)], max_rounds=2))
    result = await play([outer], passes_in(1))
    assert result["outer.polish.write"] is result["outer.02.polish.02.write"]
    assert result["outer.polish"].artifact == result["outer"].artifact == result["outer.polish.test"].artifact


async def test_third_o6_a_failed_loop_and_a_failed_map_name_their_cause() -> None:
    result = await play([polish()], passes_in(9) | {"polish.02.write": ValueError("no ink")})
    assert result["polish"].error == "round 2: 'polish.02.write' failed: ValueError: no ink"
    assert isinstance(result["polish"].exception, ValueError)
    assert str(result.error).startswith("task 'polish' failed: round 2: 'polish.02.write' failed: ValueError: no ink")
    plan = [kt.Task("split", "s"), kt.Task.map("each", "e", over="split", max_items=3)]
    result = await play(plan, {"split": [1, 2], "each.0001": ValueError("no ink"), "each.0002": ValueError("no pen")})
    assert result["each"].error == "none of its 2 items was accepted: 'each.0001' failed: ValueError: no ink"


async def test_third_o6_a_loop_that_is_cut_short_has_what_its_rounds_made() -> None:
    async def hang(assignment: kt.Assignment) -> str:
        if assignment.task.id == "polish.02.write":
            await anyio.sleep_forever()
        if assignment.task.id == "bad":
            await anyio.sleep(5)
            raise RuntimeError("no ink")
        return '{"passed": false}' if assignment.task.id.endswith("test") else assignment.task.id

    team, plan = kt.Team("team", [kt.Member("m", hang, max_concurrency=2)]), [polish(), kt.Task("bad", "b")]
    board = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0, abort_team=True))
    for config in (kt.TeamConfig(), kt.TeamConfig(budget=kt.Budget(seconds=3))):
        result = await kt.run(team, "Do it.", plan=kt.TaskGraph(plan), config=config, coordinator=board)
        assert result["polish"].status in {kt.TaskStatus.CANCELLED, kt.TaskStatus.FAILED}
        assert result["polish"].artifact == result["polish.01.test"].artifact
        assert result["polish.write"] is result["polish.02.write"]


# ---------------------------------------------------------------- what is accepted while it is partial


async def half(assignment: kt.Assignment) -> kt.AgentOutput:
    return kt.AgentOutput(kt.Artifact("half a page"), kt.AgentStatus.TURN_LIMIT_REACHED, 3, 3)


async def cut(assignment: kt.Assignment) -> kt.Artifact:
    return kt.Artifact("half a page", partial=True)


async def exits(assignment: kt.Assignment) -> kt.AgentOutput:
    return kt.AgentOutput(kt.Artifact("half a page"), kt.AgentStatus.GRACEFUL_EXIT, 3, 3, error="it is late")


class Sees:
    """An evaluator that passes everything, and keeps what it saw."""

    def __init__(self) -> None:
        self.partial: list[bool] = []

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        self.partial.append(context.artifact.partial)
        return kt.EvaluationVerdict.passed(1.0)


class Approves:
    """A person who approves everything."""

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
        assert "the run is DEGRADED" in question.consequences["approve"]
        return kt.HumanDecision("approve")


SHORT = Rubric([Criterion("short", "it is short", checks.max_words(9))])
SIGNED = Rubric([Criterion("signed", "an editor agrees", by="human")])
REVIEWS: dict[str, Callable[[], Any]] = {
    "board": TaskDispatchCoordinator,
    "default review": ExpertTeamCoordinator,
    "checks": lambda: ExpertTeamCoordinator(evaluator=SHORT),
    "an evaluator": lambda: ExpertTeamCoordinator(evaluator=Sees()),
    "a person": lambda: ExpertTeamCoordinator(evaluator=SIGNED, gate=Approves()),
    "supervisor": kt.SupervisorCoordinator,
    "handoff": kt.HandoffCoordinator,
    "group chat": lambda: kt.GroupChatCoordinator(max_turns=1),
}


@pytest.mark.parametrize("review", REVIEWS)
@pytest.mark.parametrize("work", [half, cut, exits])
async def test_third_o8_what_is_partial_is_never_plain_completed_whoever_reviewed_it(review: str, work: Any) -> None:
    result = await kt.run(kt.Team("office", [kt.Member("m", work)]), "Write.", coordinator=REVIEWS[review]())
    (outcome,) = result.outcomes
    assert outcome.status is kt.TaskStatus.COMPLETED
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "half a page")
    assert result.artifact is not None
    assert result.artifact.partial
    assert str(result.error).startswith(f"task {outcome.task_id!r}: the accepted work was cut short")


async def test_third_o8_a_judge_sends_back_what_was_cut_short_and_low_risk_accepts_it_degraded() -> None:
    members = [kt.Member("m", half)]
    coordinator = ExpertTeamCoordinator(judge=ScriptedJudge())
    result = await kt.run(kt.Team("office", members), "Write.", coordinator=coordinator, config=LOW)
    verdict = result["m"].verdict
    assert verdict is not None
    assert "it was cut off before it was finished" in verdict.feedback
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "half a page")


async def test_third_o8_checks_see_that_it_is_partial() -> None:
    seen: list[bool] = []

    def whole(artifact: kt.Artifact) -> bool:
        seen.append(artifact.partial)
        return not artifact.partial

    rubric = Rubric([Criterion("whole", "it is whole", whole)])
    coordinator = ExpertTeamCoordinator(evaluator=rubric, failure_policy=ONCE)
    team = kt.Team("office", [kt.Member("m", half)])
    result = await kt.run(team, "Write.", coordinator=coordinator)
    assert (seen[0], result.status) == (True, kt.TeamStatus.FAILED)


@pytest.mark.parametrize(("work", "said"), [(half, "not blank, cut short"), (work, "not blank")])
async def test_third_o8_the_default_review_has_no_score_and_says_what_it_is(work: Any, said: str) -> None:
    recorder = EventRecorder()
    team = kt.Team("office", [kt.Member("m", work)], runtime=kt.Runtime(subscribers=[recorder]))
    result = await kt.run(team, "Write.", coordinator=ExpertTeamCoordinator())
    (event,) = recorder.of(kt.events.EvaluationResult)
    assert (event.verdict.outcome, event.verdict.score, event.verdict.feedback) == (kt.VerdictOutcome.PASS, None, said)
    assert [one.id for one in event.verdict.criteria] == ["not-blank"]
    assert describe_verdict(event.verdict) == said
    assert result["m"].verdict == event.verdict


async def test_third_o8_a_review_that_looks_for_more_is_not_named_not_blank() -> None:
    given = kt.EvaluationContext(kt.Task("t", "Write."), kt.Artifact("calm"), 1)
    for both in (all_of, any_of):
        verdict = await both(SimpleEvaluationStrategy(), Sees()).evaluate(given)
        assert (verdict.score, verdict.vacuous) == (1.0, False)
        verdict = await both(SimpleEvaluationStrategy(), SimpleEvaluationStrategy()).evaluate(given)
        assert (verdict.score, verdict.vacuous, verdict.feedback) == (None, True, "not blank")
    assert not (await SimpleEvaluationStrategy(SHORT).evaluate(given)).vacuous
    assert not (await SimpleEvaluationStrategy().evaluate(replace(given, artifact=kt.Artifact(" ")))).vacuous
    asks = Criterion("kind", "it is kind", by="judge", kind="info")
    judged = Rubric([Criterion("not-blank", "it is not blank", checks.not_blank), asks])
    assert (await judged.evaluate(given)).cause is kt.Cause.UNDECIDED
