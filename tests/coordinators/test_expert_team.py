"""The expert team: plan, bind, generate, review, revise, and what a verdict leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, RolePlanner
from kairo_team.evaluators import Criterion, CriterionResult, Rubric, SimpleEvaluationStrategy, checks
from kairo_team.testing import EventRecorder, ScriptedAgent, ScriptedModel
from tests.coordinators.bench import ONCE, PASS, REVISE, Verdicts


async def run(
    evaluator: Any, agent: Any, recorder: EventRecorder | None = None, *, policy: FailurePolicy = ONCE, **config: Any
) -> kt.TeamResult:
    """Run one reviewed task, id `writer`."""
    runtime = kt.Runtime(subscribers=[recorder] if recorder else [])
    team = kt.Team("team", [kt.Member("writer", agent)], runtime=runtime)
    request = kt.TeamExecutionRequest("Write.", config=kt.TeamConfig(**config))
    result = await ExpertTeamCoordinator(evaluator=evaluator, failure_policy=policy).execute(request, team)
    if recorder is not None:
        recorder.assert_lawful()
    return result


def drafts(count: int) -> ScriptedAgent:
    return ScriptedAgent([f"draft {number}" for number in range(1, count + 1)])


# ---------------------------------------------------------------- rounds


@pytest.mark.parametrize("rounds", [0, 1, 3, 5])
async def test_kf_t09_max_feedback_rounds_are_revisions_after_the_first_artifact(rounds: int) -> None:
    """0 is no revision, n is n of them; there is one setting, and it is not off by one."""
    wanting = [kt.EvaluationVerdict.revise(f"page {number} is missing") for number in range(rounds + 1)]
    agent, evaluator = drafts(rounds + 1), Verdicts(wanting)
    result = await run(evaluator, agent, max_feedback_rounds=rounds)
    agent.assert_complete()
    assert len(evaluator.contexts) == rounds + 1
    outcome = result["writer"]
    assert (outcome.status, outcome.attempts) == (kt.TaskStatus.FAILED, rounds + 1)
    assert outcome.verdict is not None
    assert (outcome.verdict.outcome, outcome.verdict.cause) == (
        kt.VerdictOutcome.REVIEW_EXCEEDED,
        kt.Cause.ROUNDS_EXHAUSTED,
    )


async def test_a_pass_ends_the_rounds_and_the_task_is_accepted() -> None:
    agent, evaluator = drafts(3), Verdicts([REVISE, REVISE, PASS])
    result = await run(evaluator, agent)
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "draft 3")
    assert (result["writer"].attempts, result["writer"].verdict) == (3, PASS)


async def test_a_revision_gets_the_previous_artifact_and_its_findings() -> None:
    agent, evaluator = drafts(2), Verdicts([REVISE, PASS])
    await run(evaluator, agent)
    first, second = agent.calls
    assert (first.attempt, first.previous, tuple(first.findings)) == (1, None, ())
    told = (*REVISE.findings, kt.Finding("feedback", severity="info", observed=REVISE.feedback))
    assert (second.attempt, second.previous, tuple(second.findings)) == (2, kt.Artifact("draft 1"), told)
    assert [context.attempt for context in evaluator.contexts] == [1, 2]
    assert [tuple(context.prior_verdicts) for context in evaluator.contexts] == [(), (REVISE,)]


async def test_failed_tries_cost_no_round_and_do_not_count_as_artifacts() -> None:
    """`attempts` counts every try; `Assignment.attempt` and `EvaluationContext.attempt` count reviewed artifacts."""
    agent = ScriptedAgent([ConnectionError("busy"), "one", "", ConnectionError("busy"), "two"])
    evaluator = Verdicts([REVISE, PASS])
    result = await run(evaluator, agent, max_feedback_rounds=1, policy=FailurePolicy(retries=2, backoff=0.0))
    assert (result.status, result["writer"].attempts) == (kt.TeamStatus.COMPLETED, 5)
    assert [call.attempt for call in agent.calls] == [1, 1, 2, 2, 2]
    assert [context.attempt for context in evaluator.contexts] == [1, 2]


async def test_kf_t26_when_review_is_used_up_the_best_attempt_comes_back() -> None:
    """Not the last one: most gates met, then score, then fewest open findings, then the earlier one."""
    scores = [0.2, 0.8, 0.8, 0.5]
    script = [kt.EvaluationVerdict.revise("no", findings=[kt.Finding("f")], score=score) for score in scores]
    recorder = EventRecorder()
    strict = await run(Verdicts(script), drafts(4), recorder)
    assert strict.status is kt.TeamStatus.FAILED
    assert strict["writer"].artifact == kt.Artifact("draft 2")
    assert strict.output is None, "a rejected artifact is not the run's output"
    lenient = await run(Verdicts(script), drafts(4), risk_profile=kt.RiskProfile.LOW)
    assert (lenient.status, lenient.output) == (kt.TeamStatus.DEGRADED, "draft 2")
    assert [event.cause for event in recorder.of(events.TaskEscalated)] == [kt.Cause.ROUNDS_EXHAUSTED]


def scored(score: float | None, *failing: str) -> kt.EvaluationVerdict:
    criteria = [CriterionResult(name, "not met", passed=False) for name in failing]
    return kt.EvaluationVerdict.revise("no", findings=[kt.Finding("f")], score=score, criteria=criteria)


@pytest.mark.parametrize(
    ("script", "reviews", "cause"),
    [
        ([scored(None, "a")] * 9, 3, kt.Cause.NO_PROGRESS),
        ([scored(0.5, "a")] * 9, 3, kt.Cause.NO_PROGRESS),
        ([scored(0.5, "a"), scored(0.4, "a"), scored(0.3, "a"), scored(0.2, "a")], 3, kt.Cause.NO_PROGRESS),
        ([scored(0.1, "a"), scored(0.2, "a"), scored(0.3, "a"), scored(0.4, "a")], 4, kt.Cause.ROUNDS_EXHAUSTED),
        ([scored(None, "a"), scored(None, "b")] * 2, 4, kt.Cause.ROUNDS_EXHAUSTED),
        ([scored(None, "a", "b"), *[scored(None, "a")] * 3], 4, kt.Cause.ROUNDS_EXHAUSTED),
        ([kt.EvaluationVerdict.revise("the same")] * 9, 3, kt.Cause.NO_PROGRESS),
    ],
)
async def test_kf_e15_review_ends_where_it_makes_no_progress(
    script: list[kt.EvaluationVerdict], reviews: int, cause: kt.Cause
) -> None:
    """E15: review never ended: 27 rounds, moving goalposts."""
    evaluator = Verdicts(script)
    result = await run(evaluator, drafts(4), max_feedback_rounds=3)
    assert len(evaluator.contexts) == reviews
    assert result["writer"].verdict is not None
    assert result["writer"].verdict.cause is cause


async def test_kf_e16_an_unchanged_artifact_keeps_its_verdict_and_spends_a_round() -> None:
    """E16: an unchanged artifact was judged again until it passed."""
    evaluator = Verdicts([REVISE, PASS])
    result = await run(evaluator, ScriptedAgent(["same", "same"]), max_feedback_rounds=1)
    assert len(evaluator.contexts) == 1
    outcome = result["writer"]
    assert (outcome.status, outcome.attempts) == (kt.TaskStatus.FAILED, 2)
    assert outcome.verdict is not None
    assert outcome.verdict.cause is kt.Cause.ROUNDS_EXHAUSTED


async def test_an_earlier_artifact_again_is_a_cycle_and_the_best_comes_back() -> None:
    recorder = EventRecorder()
    evaluator = Verdicts([scored(0.2, "a"), scored(0.6, "b"), PASS])
    result = await run(evaluator, ScriptedAgent(["one", "two", "one"]), recorder, max_feedback_rounds=5)
    outcome = result["writer"]
    assert len(evaluator.contexts) == 2
    assert outcome.verdict is not None
    assert outcome.verdict.cause is kt.Cause.CYCLE
    assert outcome.artifact == kt.Artifact("two")
    assert [event.cause for event in recorder.of(events.TaskEscalated)] == [kt.Cause.CYCLE]


@pytest.mark.parametrize(
    ("script", "best"),
    [
        ([{"met": 2, "score": 0.1}, {"met": 1, "score": 0.9}], 1),
        ([{"met": 1, "findings": 1}, {"met": 1, "findings": 3}], 1),
        ([{"met": 1, "findings": 3}, {"met": 1, "findings": 1}], 2),
        ([{"met": 0}, {"met": 0}], 1),
        ([{"met": 0, "score": 0.0}, {"met": 0, "score": 0.01}], 2),
    ],
)
async def test_what_makes_an_attempt_better(script: list[dict[str, Any]], best: int) -> None:
    def verdict(met: int, score: float | None = None, findings: int = 1) -> kt.EvaluationVerdict:
        criteria = [CriterionResult(f"c{n}", "met" if n < met else "not met", n < met) for n in range(3)]
        found = [kt.Finding(f"f{n}") for n in range(findings)]
        return kt.EvaluationVerdict.revise("no", findings=found, score=score, criteria=criteria)

    verdicts = [verdict(**fields) for fields in script]
    result = await run(Verdicts(verdicts), drafts(len(verdicts)), max_feedback_rounds=len(verdicts) - 1)
    assert result["writer"].artifact == kt.Artifact(f"draft {best}")


async def test_when_a_revision_cannot_be_had_the_best_reviewed_artifact_comes_back() -> None:
    """A halt or a failure in round 2 loses nothing of round 1."""
    agent = ScriptedAgent(["draft 1", ConnectionError("gone")])
    result = await run(Verdicts([REVISE]), agent)
    outcome = result["writer"]
    assert (outcome.status, outcome.artifact, outcome.verdict) == (
        kt.TaskStatus.FAILED,
        kt.Artifact("draft 1"),
        REVISE,
    )
    assert outcome.error == "ConnectionError: gone"


# ---------------------------------------------------------------- the risk row


CAUSES_BY_RISK = [
    *(
        (kt.EvaluationVerdict.escalate(cause, "look"), True)
        for cause in (kt.Cause.UNDECIDED, kt.Cause.LOW_CONFIDENCE, kt.Cause.UNACTIONABLE, kt.Cause.CONTRADICTION)
    ),
    (kt.EvaluationVerdict.escalate(kt.Cause.INJECTION_SUSPECTED, "look"), False),
    (kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "look"), False),
    (kt.EvaluationVerdict.review_exceeded(kt.Cause.NO_PROGRESS, "same again"), True),
    (kt.EvaluationVerdict.review_exceeded(kt.Cause.EVALUATOR_ERROR, "crash"), True),
]


@pytest.mark.parametrize("risk", kt.RiskProfile)
@pytest.mark.parametrize(("verdict", "by_risk"), CAUSES_BY_RISK, ids=lambda v: getattr(v, "cause", None))
async def test_an_escalation_is_decided_by_risk_and_the_verdict_stays(
    verdict: kt.EvaluationVerdict, by_risk: bool, risk: kt.RiskProfile
) -> None:
    """LOW accepts with a warning (DEGRADED), never what nobody may accept; MEDIUM and HIGH fail the task."""
    recorder = EventRecorder()
    result = await run(Verdicts([verdict]), drafts(1), recorder, risk_profile=risk)
    outcome = result["writer"]
    assert outcome.verdict == verdict
    assert outcome.attempts == 1, "only REVISE spends a round"
    assert [event.cause for event in recorder.of(events.TaskEscalated)] == [verdict.cause]
    if by_risk and risk is kt.RiskProfile.LOW:
        assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "draft 1")
        assert any("accepted without a PASS" in warning for warning in result.warnings)
    else:
        assert (result.status, outcome.status, result.output) == (
            kt.TeamStatus.FAILED,
            kt.TaskStatus.FAILED,
            None,
        )
        assert outcome.artifact == kt.Artifact("draft 1")


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (RuntimeError("judge is down"), kt.Cause.EVALUATOR_ERROR),
        (kt.InsufficientBudget("tokens", 9, 1, "team"), kt.Cause.JUDGE_BUDGET),
    ],
)
async def test_an_evaluator_that_fails_never_passes_and_its_error_reaches_no_member(
    broken: Exception, cause: kt.Cause
) -> None:
    agent = drafts(1)
    result = await run(Verdicts([broken]), agent)
    verdict = result["writer"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.cause, verdict.score) == (kt.VerdictOutcome.REVIEW_EXCEEDED, cause, None)
    assert len(agent.calls) == 1
    assert result.status is kt.TeamStatus.FAILED


@pytest.mark.parametrize("answer", [None, True, "pass", 1.0])
async def test_an_evaluator_that_answers_nonsense_never_passes(answer: Any) -> None:
    class Nonsense:
        async def evaluate(self, context: kt.EvaluationContext) -> Any:
            return answer

    result = await run(Nonsense(), drafts(1))
    verdict = result["writer"].verdict
    assert verdict is not None
    assert verdict.cause is kt.Cause.EVALUATOR_ERROR


async def test_review_timeout_bounds_a_review() -> None:
    class Slow:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            await anyio.sleep(1000)
            return PASS

    result = await run(Slow(), drafts(1), review_timeout=4.0)
    verdict = result["writer"].verdict
    assert verdict is not None
    assert verdict.cause is kt.Cause.EVALUATOR_TIMEOUT
    assert result.duration == pytest.approx(4.0)


# ---------------------------------------------------------------- plan and bind


async def test_without_a_plan_each_role_gets_one_task_after_the_one_before() -> None:
    agents = {name: ScriptedAgent([f"by {name}"]) for name in ("research", "write", "check")}
    members = [kt.Member(name, agent) for name, agent in agents.items()]
    members.insert(1, kt.Member("research", drafts(0), max_concurrency=1))
    result = await ExpertTeamCoordinator().execute(kt.TeamExecutionRequest("Explain tides."), kt.Team("t", members))
    assert result.plan is not None
    assert [(t.id, t.description, t.depends_on) for t in result.plan.tasks] == [
        ("research", "Explain tides.", ()),
        ("write", "Explain tides.", ("research",)),
        ("check", "Explain tides.", ("write",)),
    ]
    assert result.output == "by check"


async def test_the_role_planner_is_deterministic() -> None:
    team = kt.Team("t", [kt.Member("a", drafts(0)), kt.Member("b", drafts(0))])
    request, context = kt.TeamExecutionRequest("goal"), Any
    plans = [await RolePlanner().plan(request, team, context) for _ in range(2)]  # type: ignore[arg-type]  # it asks no model
    assert plans[0] == plans[1]


class GivenPlanner:
    def __init__(self, plan: Any) -> None:
        self.graph = plan
        self.calls = 0

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> Any:
        self.calls += 1
        if isinstance(self.graph, Exception):
            raise self.graph
        return self.graph


async def test_a_given_plan_is_used_as_it_is_and_no_planner_is_asked() -> None:
    planner = GivenPlanner(None)
    plan = kt.TaskGraph([kt.Task("only", "Do it.")])
    request = kt.TeamExecutionRequest("goal", plan=plan)
    team = kt.Team("t", [kt.Member("a", drafts(1)), kt.Member("b", drafts(0))])
    result = await ExpertTeamCoordinator(planner=planner).execute(request, team)
    assert (result.plan, planner.calls) == (plan, 0)


@pytest.mark.parametrize("broken", [None, "a plan", [kt.Task("a", "do")], LookupError("no idea"), ValueError("cycle")])
async def test_a_planner_that_fails_or_plans_nonsense_fails_the_run_with_no_member_called(broken: Any) -> None:
    agent, recorder = drafts(1), EventRecorder()
    team = kt.Team("t", [kt.Member("a", agent)], runtime=kt.Runtime(subscribers=[recorder]))
    result = await ExpertTeamCoordinator(planner=GivenPlanner(broken)).execute(kt.TeamExecutionRequest("g"), team)
    assert (result.status, result.outcomes, agent.calls) == (kt.TeamStatus.FAILED, (), [])
    assert result.error
    assert recorder.types == ["team.started", "team.failed"]


def member(name: str, capabilities: Sequence[str] = (), role: str | None = None, count: int = 9) -> kt.Member:
    return kt.Member(kt.Role(role or name, capabilities=capabilities), drafts(count), name=name)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (kt.Task("t", "do", role="pilot"), "task 't' needs the role 'pilot', which no member offers"),
        (kt.Task("t", "do", member="zoe"), "needs the member 'zoe'"),
        (kt.Task("t", "do", requires={"flying"}), "needs the capabilities 'flying'"),
        (kt.Task("t", "do", member="ann", requires={"sums"}), "needs the member 'ann' with the capabilities 'sums'"),
        (kt.Task("t", "do", role="writer", requires={"sums"}), "the role 'writer' with the capabilities 'sums'"),
        (kt.Task("t", "do", evaluator="legal"), "names the evaluator 'legal'; the team has none"),
        (kt.Task("t", "do", output_type="report"), "names the output type 'report'"),
    ],
)
async def test_kf_t10_what_nobody_can_do_is_refused_at_plan_time(task: kt.Task, said: str) -> None:
    """Nothing is bound round-robin: the task, its need and what the members offer are named; 0 attempts each."""
    team = kt.Team("t", [member("ann", ["prose"], "writer"), member("bob", ["sums"], "analyst")])
    plan = kt.TaskGraph([kt.Task("fine", "do", role="writer"), task])
    result = await ExpertTeamCoordinator().execute(kt.TeamExecutionRequest("g", plan=plan), team)
    assert (result.status, result.refused) == (kt.TeamStatus.FAILED, True)
    assert said in (result.error or "")
    assert [(o.status, o.attempts) for o in result.outcomes] == [(kt.TaskStatus.SKIPPED, 0)] * 2
    assert all(not m.agent.calls for m in team.members)


async def test_a_task_goes_to_its_member_else_its_role_else_whoever_is_able() -> None:
    team = kt.Team(
        "t",
        [
            member("ann", ["prose"], "writer"),
            member("bea", ["prose", "rhyme"], "writer"),
            member("cy", ["sums"], "analyst"),
        ],
    )
    plan = kt.TaskGraph(
        [
            kt.Task("one", "do", member="bea"),
            kt.Task("two", "do", role="analyst"),
            kt.Task("three", "do", requires={"rhyme"}),
            kt.Task("four", "do", role="writer", requires=["prose"]),
        ]
    )
    result = await ExpertTeamCoordinator().execute(kt.TeamExecutionRequest("g", plan=plan), team)
    assert result.status is kt.TeamStatus.COMPLETED
    found = {outcome.task_id: outcome.member for outcome in result.outcomes}
    assert (found["one"], found["two"], found["three"]) == ("bea", "cy", "bea")
    assert found["four"] in {"ann", "bea"}


# ---------------------------------------------------------------- what reaches the model, and who reviews


async def test_the_prompt_carries_everything_a_member_needs() -> None:
    """Goal, task, inputs, context, instructions, dependencies' artifacts, and on a revision draft and findings."""
    model = ScriptedModel(["the figures", "a dull draft", "a fine draft"])
    writer = kt.Role("writer", instructions="Write plainly for a ten-year-old.")
    team = kt.Team(
        "t",
        [kt.Member("analyst", kt.MiniAgent(model)), kt.Member(writer, kt.MiniAgent("test:m"))],
        runtime=kt.Runtime(models={"test:*": model}),
    )
    plan = kt.TaskGraph(
        [
            kt.Task("fetch", "Collect them.", role="analyst", inputs={"quarter": 3}),
            kt.Task("text", "Write it up.", role="writer", depends_on=["fetch"], evaluator="editor"),
        ]
    )
    finding = kt.Finding("dull", observed="it is dull", expected="some life")
    editor = Verdicts([kt.EvaluationVerdict.revise("dull", findings=[finding]), PASS])
    team = kt.Team("t", team.members, evaluators={"editor": editor}, runtime=team.runtime)
    request = kt.TeamExecutionRequest("Q3 report", context={"audience": "the board"}, plan=plan)
    result = await ExpertTeamCoordinator().execute(request, team)
    assert result.check().output == "a fine draft"
    model.assert_complete()
    prompts = ["\n".join(message.text for message in call.messages) for call in model.calls]
    for number, expected in [
        (0, ["Q3 report", "Collect them.", "quarter", "3", "the board"]),
        (1, ["Q3 report", "Write it up.", "the figures", "Write plainly for a ten-year-old.", "the board"]),
        (2, ["Write it up.", "the figures", "a dull draft", "it is dull", "some life"]),
    ]:
        assert [text for text in expected if text not in prompts[number]] == []
    assert "a dull draft" not in prompts[1]


async def test_templates_replace_the_packaged_ones_and_unknown_names_are_refused() -> None:
    model = ScriptedModel(["ok"])
    team = kt.Team("t", [kt.Member("a", kt.MiniAgent(model, max_turns=1))])
    coordinator = ExpertTeamCoordinator(templates={"task": "JUST {{ assignment.goal }}"})
    await coordinator.execute(kt.TeamExecutionRequest("go"), team)
    assert model.calls[0].messages[-1].text == "JUST go"
    with pytest.raises(ValueError, match="unknown templates 'prompt'; there are"):
        ExpertTeamCoordinator(templates={"prompt": "x"})


async def test_a_tasks_own_evaluator_goes_before_the_coordinators() -> None:
    short = Rubric([Criterion("short", "at most two words", check=checks.max_words(2))])
    team = kt.Team("t", [kt.Member("a", ScriptedAgent(["three words here", "two words"]))], evaluators={"short": short})
    plan = kt.TaskGraph([kt.Task("x", "do", evaluator="short")])
    picky = Verdicts([])
    result = await ExpertTeamCoordinator(evaluator=picky).execute(kt.TeamExecutionRequest("g", plan=plan), team)
    assert (result.status, result.output, picky.contexts) == (kt.TeamStatus.COMPLETED, "two words", [])


async def test_the_evaluator_may_be_a_name_of_the_teams_and_an_unknown_one_is_refused() -> None:
    team = kt.Team("t", [kt.Member("a", ScriptedAgent(["text"]))], evaluators={"house": SimpleEvaluationStrategy()})
    named = await ExpertTeamCoordinator(evaluator="house").execute(kt.TeamExecutionRequest("g"), team)
    assert named.status is kt.TeamStatus.COMPLETED
    unknown = await ExpertTeamCoordinator(evaluator="ghost").execute(kt.TeamExecutionRequest("g"), team)
    assert (unknown.status, unknown.refused) == (kt.TeamStatus.FAILED, True)
    assert "'ghost' is unknown; the team has 'house'" in (unknown.error or "")


async def test_by_default_only_a_blank_artifact_is_sent_back() -> None:
    """To the eye: the engine takes such a text, and retries only one that is empty."""
    agent = ScriptedAgent(["\u200b\n", "text"])
    result = await run(None, agent)
    assert (result.status, result.output, result["writer"].attempts) == (kt.TeamStatus.COMPLETED, "text", 2)
    assert agent.calls[1].findings[0].observed == "the artifact is blank"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"planner": 5}, "planner must have an async plan"),
        ({"evaluator": len}, "evaluator must have an async evaluate"),
    ],
)
def test_what_is_no_plug_in_is_refused_where_it_is_given(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ExpertTeamCoordinator(**fields)
