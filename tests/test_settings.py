"""B23: a setting that nobody reads is a lie. Every field shows its effect, and a new field must bring its test."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import ModelCallError
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.governance import Timeout
from kairo_team.governance.guardrails import GuardrailContext, GuardrailDecision
from kairo_team.results import Attempt
from kairo_team.testing import EventRecorder, FunctionModel, MemoryJournal, ScriptedAgent, ScriptedModel
from tests.settings_doubles import Reject, Slow, Unsure, bad, good, nap, spend

SHOWN: dict[type, set[str]] = {}


def shows(kind: type, *fields: str) -> Callable[[Any], Any]:
    """Say which settings a test shows the effect of."""
    SHOWN.setdefault(kind, set()).update(fields)
    return lambda test: test


def fields_of(kind: type) -> set[str]:
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind) if field.init}
    return set(inspect.signature(kind).parameters)


def tasks(count: int, **fields: Any) -> list[kt.Task]:
    return [kt.Task(f"t{number}", "do", **fields) for number in range(count)]


async def run(
    agent: Any,
    plan: list[kt.Task] | None = None,
    *,
    config: kt.TeamConfig | None = None,
    member: dict[str, Any] | None = None,
    team: dict[str, Any] | None = None,
    coordinator: Any = None,
    **request: Any,
) -> kt.TeamResult:
    members = (team or {}).pop("members", None) or [kt.Member("role", agent, **(member or {}))]
    given = kt.TeamExecutionRequest(
        request.pop("goal", "goal"),
        plan=kt.TaskGraph(plan or tasks(1)),
        config=config or kt.TeamConfig(),
        **request,
    )
    coordinator = coordinator or TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    result: kt.TeamResult = await coordinator.execute(given, kt.Team("team", members, **(team or {})))
    return result


# ---------------------------------------------------------------- TeamConfig


@shows(kt.TeamConfig, "budget")
@pytest.mark.parametrize(("tokens", "done"), [(None, 3), (100, 3), (50, 2), (0, 0)])
async def test_budget_bounds_what_the_team_spends(tokens: int | None, done: int) -> None:
    """None is unlimited and 0 is nothing."""
    config = kt.TeamConfig(budget=kt.Budget(tokens=tokens), max_parallel_tasks=1)
    result = await run(spend(25), tasks(3), config=config)
    assert sum(outcome.status is kt.TaskStatus.COMPLETED for outcome in result.outcomes) == done
    assert result.usage.tokens == done * 25


@shows(kt.TeamConfig, "budget_policy")
@pytest.mark.parametrize(("reserve", "guarantee"), [(0.0, 50), (0.2, 40)])
async def test_budget_policy_keeps_a_reserve_out_of_the_guarantees(reserve: float, guarantee: int) -> None:
    seen: list[int | None] = []

    async def look(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        seen.append(context.governor.guarantee.tokens)
        return "seen"

    policy = kt.BudgetPolicy(reserve=reserve)
    await run(look, tasks(2), config=kt.TeamConfig(budget=kt.Budget(tokens=100), budget_policy=policy))
    assert seen[0] == guarantee


@shows(kt.TeamConfig, "risk_profile")
@pytest.mark.parametrize(("risk", "status"), [("low", "degraded"), ("medium", "failed"), ("high", "failed")])
async def test_risk_profile_decides_what_is_accepted_without_a_pass(risk: Any, status: str) -> None:
    result = await run(
        good, coordinator=ExpertTeamCoordinator(evaluator=Reject()), config=kt.TeamConfig(risk_profile=risk)
    )
    assert result.status == status


@shows(kt.TeamConfig, "max_feedback_rounds")
@pytest.mark.parametrize("rounds", [0, 2])
async def test_max_feedback_rounds_bounds_the_revisions(rounds: int) -> None:
    config = kt.TeamConfig(max_feedback_rounds=rounds)
    result = await run(good, coordinator=ExpertTeamCoordinator(evaluator=Reject()), config=config)
    assert result["t0"].attempts == rounds + 1


@shows(kt.TeamConfig, "max_human_rounds")
@pytest.mark.parametrize("rounds", [0, 2])
async def test_max_human_rounds_bounds_what_a_person_sends_back(rounds: int) -> None:
    async def insatiable(question: kt.HumanRequest) -> kt.HumanDecision:
        return kt.HumanDecision.revise("another one")

    config = kt.TeamConfig(max_feedback_rounds=0, max_human_rounds=rounds)
    coordinator = ExpertTeamCoordinator(evaluator=Unsure(), gate=kt.CallbackGate(insatiable))
    result = await run(good, coordinator=coordinator, config=config)
    assert result["t0"].attempts == rounds + 1


@shows(kt.TeamConfig, "team_timeout")
@pytest.mark.parametrize(("seconds", "status"), [(None, "completed"), (9.0, "timeout"), (11.0, "completed")])
async def test_team_timeout_ends_the_run_and_is_deprecated(seconds: float | None, status: str) -> None:
    """Until 1.0; `Budget.seconds` is the same limit."""
    assert (await run(nap, config=kt.TeamConfig(budget=kt.Budget(seconds=seconds)))).status == status
    if seconds is not None:
        with pytest.warns(DeprecationWarning, match=r"write budget=kt\.Budget\(seconds="):
            config = kt.TeamConfig(team_timeout=seconds, budget=kt.Budget(seconds=20))
        assert (await run(nap, config=config)).status == status


@shows(kt.TeamConfig, "deadline_at")
@pytest.mark.parametrize(("seconds", "status"), [(-1.0, "timeout"), (9.0, "timeout"), (12.0, "completed")])
async def test_deadline_at_ends_the_run_by_the_wall_clock(seconds: float, status: str) -> None:
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    result = await run(nap, config=kt.TeamConfig(deadline_at=at))
    assert result.status == status
    assert result.usage.seconds <= 10.0


def test_deadline_at_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="deadline_at needs a time zone"):
        kt.TeamConfig(deadline_at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point


@shows(kt.TeamConfig, "task_timeout")
@shows(kt.Task, "timeout")
@pytest.mark.parametrize(
    ("config", "own", "done"), [(None, None, True), (9.0, None, False), (9.0, 11.0, True), (None, 9.0, False)]
)
async def test_task_timeout_ends_an_attempt_and_a_tasks_own_goes_before_it(
    config: float | None, own: float | None, done: bool
) -> None:
    result = await run(nap, tasks(1, timeout=own), config=kt.TeamConfig(task_timeout=config))
    assert (result["t0"].status is kt.TaskStatus.COMPLETED) is done


@shows(kt.TeamConfig, "review_timeout")
@pytest.mark.parametrize(("seconds", "status"), [(None, "completed"), (9.0, "failed"), (11.0, "completed")])
async def test_review_timeout_ends_a_review(seconds: float | None, status: str) -> None:
    config = kt.TeamConfig(review_timeout=seconds)
    assert (await run(good, coordinator=ExpertTeamCoordinator(evaluator=Slow()), config=config)).status == status


@shows(kt.TeamConfig, "max_parallel_tasks")
@pytest.mark.parametrize(("most", "duration"), [(None, 10), (1, 60), (2, 30), (6, 10)])
async def test_max_parallel_tasks_bounds_what_runs_at_once(most: int | None, duration: float) -> None:
    result = await run(nap, tasks(6), config=kt.TeamConfig(max_parallel_tasks=most))
    assert result.duration == pytest.approx(duration)


@shows(kt.TeamConfig, "cancel_grace")
@pytest.mark.parametrize(("grace", "tidied"), [(4.0, False), (6.0, True)])
async def test_cancel_grace_is_the_time_for_clean_up(grace: float, tidied: bool) -> None:
    done: list[bool] = []

    async def tidy(assignment: kt.Assignment) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(5)
                done.append(True)
        raise AssertionError

    result = await run(tidy, config=kt.TeamConfig(budget=kt.Budget(seconds=1.0), cancel_grace=grace))
    assert bool(done) is tidied
    assert result.duration == pytest.approx(1 + min(grace, 5))


# ---------------------------------------------------------------- Member


@shows(kt.Member, "senior")
async def test_a_senior_gets_what_a_review_leaves_open() -> None:
    asked: list[str] = []

    async def lead(assignment: kt.Assignment) -> str:
        asked.append(assignment.task.id)
        return "better"

    team = kt.Team("team", [kt.Member("a", good, senior=kt.Member("lead", lead))])
    await ExpertTeamCoordinator(evaluator=Unsure()).execute(kt.TeamExecutionRequest("g"), team)
    assert asked == ["a"]


@shows(kt.Runtime, "gate")
async def test_a_gate_is_asked_what_a_review_leaves_open() -> None:
    gate = kt.CallbackGate(lambda question: question.cause is kt.Cause.LOW_CONFIDENCE)
    team = kt.Team("team", [kt.Member("a", good)], runtime=kt.Runtime(gate=gate))
    result = await ExpertTeamCoordinator(evaluator=Unsure()).execute(kt.TeamExecutionRequest("g"), team)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "made a")


@shows(kt.Runtime, "journal")
@pytest.mark.real_time
async def test_a_journal_keeps_what_was_run(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    await kt.run(
        kt.Team("team", [kt.Member("a", good)]), "g", plan=kt.TaskGraph(tasks(1)), runtime=kt.Runtime(journal=journal)
    )
    assert [(one.team, one.goal, one.state) for one in journal.runs()] == [("team", "g", "completed")]
    journal.close()


@shows(kt.Runtime, "retention")
@pytest.mark.real_time
async def test_runs_that_ended_longer_ago_than_the_retention_are_deleted(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    for run_id, retention in (("old", None), ("new", 60.0)):
        with journal.database.writing() as connection:
            connection.execute("UPDATE run SET updated_at = 0")
        runtime = kt.Runtime(journal=journal, retention=retention)
        await kt.run(
            kt.Team("t", [kt.Member("a", good)]), "g", plan=kt.TaskGraph(tasks(1)), run_id=run_id, runtime=runtime
        )
    assert [one.run_id for one in journal.runs()] == ["new"]
    journal.close()


@shows(kt.Runtime, "content")
async def test_events_have_the_texts_of_the_work_where_content_asks_for_them() -> None:
    async def artifacts(**setting: Any) -> list[str]:
        recorder = EventRecorder()
        await run(good, team={"runtime": kt.Runtime(subscribers=[recorder], **setting)})
        return [one.body["text"] for one in recorder.of(kt.events.Content)]

    assert await artifacts() == []
    assert await artifacts(content="events") == ["made t0"]


@shows(kt.Member, "role", "agent", "name")
@shows(kt.Role, "id")
async def test_a_member_is_found_by_role_and_name_and_its_agent_works() -> None:
    agents = [ScriptedAgent(["by one"]), ScriptedAgent(["by two"])]
    members = [kt.Member("writer", agents[0]), kt.Member("writer", agents[1], name="second")]
    result = await run(None, [kt.Task("t", "do", role="writer", member="second")], team={"members": members})
    assert (result.output, result["t"].member) == ("by two", "second")


@shows(kt.Member, "budget")
@pytest.mark.parametrize(("tokens", "done"), [(None, 3), (75, 3), (50, 2)])
async def test_a_members_budget_bounds_the_member(tokens: int | None, done: int) -> None:
    budget = None if tokens is None else kt.Budget(tokens=tokens)
    config = kt.TeamConfig(max_parallel_tasks=1, budget=kt.Budget(tokens=1000))
    result = await run(spend(25), tasks(3), member={"budget": budget}, config=config)
    assert sum(outcome.status is kt.TaskStatus.COMPLETED for outcome in result.outcomes) == done


@shows(kt.Member, "budget")
async def test_a_members_budget_is_set_aside_for_it() -> None:
    """What one member was given, another cannot spend."""
    members = [kt.Member("greedy", spend(60)), kt.Member("late", spend(50), budget=kt.Budget(tokens=50))]
    plan = [kt.Task("first", "do", role="greedy"), kt.Task("then", "do", role="late", depends_on=["first"], needs=0)]
    config = kt.TeamConfig(budget=kt.Budget(tokens=100))
    result = await run(None, plan, team={"members": members}, config=config)
    assert [outcome.status.value for outcome in result.outcomes] == ["failed", "completed"]


@shows(kt.Member, "budget")
async def test_a_task_goes_to_a_member_that_can_pay_for_it() -> None:
    """Two members of one role share its queue: one without budget does not keep a task from the other."""
    members = [kt.Member("w", good, budget=kt.Budget(loops=1)), kt.Member("w", good)]
    result = await run(None, tasks(4), team={"members": members}, config=kt.TeamConfig(max_parallel_tasks=1))
    assert result.status is kt.TeamStatus.COMPLETED
    assert [outcome.member for outcome in result.outcomes] == ["w", "w-2", "w-2", "w-2"]


@shows(kt.Member, "max_concurrency")
@pytest.mark.parametrize(("most", "duration"), [(None, 10), (1, 40), (3, 20)])
async def test_max_concurrency_bounds_one_member(most: int | None, duration: float) -> None:
    result = await run(nap, tasks(4), member={"max_concurrency": most})
    assert result.duration == pytest.approx(duration)


@shows(kt.Member, "constraints")
@pytest.mark.parametrize(("seconds", "status"), [(None, "completed"), (9, "failed"), (11, "completed")])
async def test_a_members_constraints_guard_its_attempts(seconds: float | None, status: str) -> None:
    constraints = [] if seconds is None else [Timeout(seconds)]
    members = [kt.Member("a", nap, constraints=constraints), kt.Member("b", nap)]
    result = await run(None, [kt.Task("t0", "do", role="a"), kt.Task("t1", "do", role="b")], team={"members": members})
    assert [outcome.status.value for outcome in result.outcomes] == [status, "completed"]


# ---------------------------------------------------------------- Role, Team


@shows(kt.Role, "instructions")
async def test_instructions_are_in_the_prompt() -> None:
    model = ScriptedModel(["text"])
    members = [kt.Member(kt.Role("poet", instructions="Always rhyme."), kt.MiniAgent(model))]
    await run(None, team={"members": members})
    assert "Always rhyme." in "\n".join(message.text for message in model.calls[0].messages)


@shows(kt.Role, "thinking")
async def test_a_role_says_how_much_its_agents_think() -> None:
    model = ScriptedModel(["text", "text"])
    for agent in (kt.MiniAgent(model), kt.MiniAgent(model, thinking="low")):  # an agent's own word counts more
        await run(None, team={"members": [kt.Member(kt.Role("poet", thinking="high"), agent)]})
    assert [call.settings["thinking"] for call in model.calls] == ["high", "low"]


@shows(kt.Role, "capabilities")
@shows(kt.Task, "requires")
async def test_capabilities_are_what_a_task_requires() -> None:
    members = [kt.Member("a", bad), kt.Member(kt.Role("b", capabilities=["sums"]), good)]
    result = await run(None, tasks(1, requires=["sums"]), team={"members": members})
    assert (result.status, result["t0"].member) == (kt.TeamStatus.COMPLETED, "b")


@shows(kt.Team, "name", "members")
async def test_the_teams_name_and_members_are_told() -> None:
    recorder = EventRecorder()
    result = await run(good, team={"runtime": kt.Runtime(subscribers=[recorder])})
    started = recorder.of(kt.events.TeamStarted)[0]
    assert (started.team, started.members) == ("team", ("role",))
    assert result.budget is not None
    assert result.budget.name == "team"


@shows(kt.Team, "coordinator")
async def test_the_teams_coordinator_is_used() -> None:
    class Mine:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            return kt.TeamResult("mine", kt.TeamStatus.COMPLETED)

    assert (await kt.run(kt.Team("t", [kt.Member("a", good)], coordinator=Mine()), "g")).run_id == "mine"


@shows(kt.Team, "evaluators")
@shows(kt.Task, "evaluator")
async def test_a_task_is_reviewed_by_the_evaluator_it_names() -> None:
    result = await run(good, tasks(1, evaluator="strict"), team={"evaluators": {"strict": Reject()}})
    assert result["t0"].verdict is not None


@shows(kt.Task, "reference")
@pytest.mark.parametrize(("reference", "status"), [("text", "completed"), ("prose", "failed")])
async def test_a_review_is_given_the_reference_and_the_member_is_not(reference: str, status: str) -> None:
    rubric = Rubric([Criterion("same", "it equals the reference", checks.equals_reference, reference=True)])
    agent = ScriptedAgent(["text"] * 9)
    result = await run(agent, tasks(1, reference=reference), coordinator=ExpertTeamCoordinator(evaluator=rubric))
    assert result.status == status
    assert {given.task.reference for given in agent.calls} == {None}


class Report(BaseModel):
    rows: list[int]


@shows(kt.Team, "output_types")
@shows(kt.Task, "output_type")
@pytest.mark.parametrize(("text", "done"), [('{"rows": [1, 2]}', True), ('{"rows": "x"}', False), ("prose", False)])
async def test_an_artifact_is_held_to_the_output_type_its_task_names(text: str, done: bool) -> None:
    agent = ScriptedAgent([text])
    result = await run(agent, tasks(1, output_type="report"), team={"output_types": {"report": Report}})
    assert (result.status is kt.TeamStatus.COMPLETED) is done
    if done:
        assert result.artifact is not None
        assert result.artifact.data_as(Report) == Report(rows=[1, 2])
    else:
        assert "not a valid 'Report'" in (result["t0"].error or "")


@shows(kt.Team, "constraints")
@pytest.mark.parametrize(("seconds", "status"), [(None, "completed"), (9, "failed"), (11, "completed")])
async def test_a_teams_constraints_guard_the_run(seconds: float | None, status: str) -> None:
    constraints = [] if seconds is None else [Timeout(seconds)]
    result = await run(nap, tasks(2), team={"constraints": constraints})
    assert result.status == status


@shows(kt.Team, "runtime")
@shows(kt.Runtime, "subscribers", "models")
async def test_a_teams_runtime_brings_subscribers_and_models() -> None:
    recorder, model = EventRecorder(), FunctionModel(lambda request: "from the double")
    runtime = kt.Runtime(subscribers=[recorder], models={"openai:*": model})
    result = await run(kt.MiniAgent("openai:gpt-5"), team={"runtime": runtime})
    assert result.output == "from the double"
    assert recorder.types[0] == "team.started"


@shows(kt.Runtime, "prices")
@pytest.mark.parametrize(("prices", "dollars"), [(None, "0"), ({"test:*": kt.Price(request=3)}, "3")])
async def test_a_runtimes_prices_say_what_models_cost(prices: dict[str, kt.Price] | None, dollars: str) -> None:
    agent = kt.MiniAgent(FunctionModel(lambda request: "text"))
    result = await run(agent, team={"runtime": kt.Runtime(prices=prices)})
    assert result.usage.dollars == Decimal(dollars)


# ---------------------------------------------------------------- the request and its tasks


@shows(kt.TeamExecutionRequest, "goal", "context", "plan", "config", "run_id")
@shows(kt.Task, "id", "description", "inputs", "role", "member")
async def test_a_member_is_handed_goal_context_inputs_and_task() -> None:
    agent = ScriptedAgent(["text"])
    task = kt.Task("t", "Plot them.", inputs={"quarter": 3}, role="role", member="role")
    result = await run(agent, [task], goal="Q3", context={"for": "the board"}, run_id="r-7")
    given = agent.calls[0]
    assert (given.goal, given.context, given.inputs, given.task) == ("Q3", {"for": "the board"}, {"quarter": 3}, task)
    assert result.run_id == "r-7"


@shows(kt.Task, "depends_on", "needs")
async def test_needs_is_how_many_dependencies_must_be_accepted() -> None:
    members = [kt.Member("good", good), kt.Member("bad", bad)]
    cases: list[tuple[Any, str]] = [("all", "skipped"), (1, "completed")]
    for needs, status in cases:
        plan = [
            kt.Task("a", "do", role="good"),
            kt.Task("b", "do", role="bad"),
            kt.Task("end", "do", role="good", depends_on=["a", "b"], needs=needs),
        ]
        result = await run(None, plan, team={"members": list(members)})
        assert result["end"].status == status


@shows(kt.Task, "when", "over", "max_items", "loop", "part_of")
@shows(kt.Team, "conditions")
async def test_a_plan_grows_by_its_maps_and_loops_where_its_conditions_hold() -> None:
    async def work(assignment: kt.Assignment) -> str:
        return "[1, 2]" if assignment.task.id == "list" else assignment.task.id

    plan = [
        kt.Task("list", "do"),
        kt.Task("each", "do", over="list", max_items=2, when={"from": "list", "holds": "short"}),
        kt.Task("never", "do", when={"from": "list", "equals": "x"}),
        kt.Task("twice", "do", loop=kt.Loop([kt.Task("one", "do")], max_rounds=2)),
    ]

    def short(artifact: kt.Artifact) -> bool:
        return len(artifact.text) < 9

    result = await run(work, plan, team={"conditions": {"short": short}})
    assert result.plan is not None
    assert {one.id: one.part_of for one in result.plan.tasks if one.part_of is not None} == {
        "each.0001": "each",
        "each.0002": "each",
        "twice.01.one": "twice",
        "twice.02.one": "twice",
    }
    assert result["never"].status is kt.TaskStatus.SKIPPED


@shows(kt.Task, "weight")
async def test_weight_is_a_tasks_share_and_its_place_in_the_queue() -> None:
    seen: list[tuple[str, int | None]] = []

    async def look(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        seen.append((assignment.task.id, context.governor.guarantee.tokens))
        return "seen"

    config = kt.TeamConfig(budget=kt.Budget(tokens=100), budget_policy=kt.BudgetPolicy(reserve=0.0))
    await run(look, [kt.Task("light", "do"), kt.Task("heavy", "do", weight=3.0)], config=config)
    assert seen == [("heavy", 75), ("light", 25)]


@shows(kt.Task, "budget")
@pytest.mark.parametrize(("tokens", "done"), [(None, True), (25, True), (24, False)])
async def test_a_tasks_budget_is_a_ceiling_for_all_its_tries(tokens: int | None, done: bool) -> None:
    budget = None if tokens is None else kt.Budget(tokens=tokens)
    result = await run(spend(25), tasks(1, budget=budget), config=kt.TeamConfig(budget=kt.Budget(tokens=1000)))
    assert (result.status is kt.TeamStatus.COMPLETED) is done
    assert result["t0"].usage.tokens == (25 if done else 0)


class Refuse:
    """A guardrail that lets nothing be asked."""

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        return GuardrailDecision.deny("not today")


@shows(kt.Task, "retries")
async def test_a_tasks_retries_are_its_own() -> None:
    result = await run(bad, [*tasks(1, retries=2), kt.Task("x", "do")])
    assert [outcome.attempts for outcome in result.outcomes] == [3, 1]


@shows(kt.Member, "guardrails")
@shows(kt.Team, "guardrails")
async def test_guardrails_are_one_members_or_everybodys() -> None:
    def member(name: str, *guardrails: Refuse) -> kt.Member:
        return kt.Member(name, kt.MiniAgent(FunctionModel(lambda _: "said")), guardrails=guardrails)

    plan = [kt.Task("a", "do", member="a"), kt.Task("b", "do", member="b")]
    one = await run(None, plan, team={"members": [member("a", Refuse()), member("b")]})
    assert [outcome.status for outcome in one.outcomes] == ["failed", "completed"]
    assert "not today" in str(one["a"].error)
    both = await run(None, plan, team={"members": [member("a"), member("b")], "guardrails": [Refuse()]})
    assert [outcome.status for outcome in both.outcomes] == ["failed", "failed"]


@shows(kt.Runtime, "guardrails", "constraints", "templates")
async def test_guardrails_constraints_and_templates_of_a_runtime_hold_in_all_its_runs() -> None:
    async def end(agent: Any, **fields: Any) -> str | None:
        return (await run(agent, team={"runtime": kt.Runtime(**fields)}))["t0"].error

    model = ScriptedModel(["said"])
    assert "not today" in str(await end(kt.MiniAgent(model), guardrails=[Refuse()]))
    assert "emergency stop by the constraint 'timeout'" in str(await end(nap, constraints=[Timeout(0.5)]))
    assert await end(kt.MiniAgent(model), templates={"task": "Just do it."}) is None
    assert [message.text for message in model.calls[0].messages][1:] == ["Just do it."]


@kt.tool(side_effect="write")
async def publish(text: str) -> str:
    return f"published {text} with the key s3cret"


async def publishing(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return (await context.tool(publish)(text="it")).text


@shows(kt.Role, "allowed_tools")
@shows(kt.Team, "permissions")
@shows(kt.Runtime, "secrets")
async def test_what_tools_may_do_and_say() -> None:
    plan = kt.ToolPermissions(plan_mode=True)

    async def said(role: kt.Role, secrets: Sequence[str] = (), **team: Any) -> str:
        bound = kt.Team("t", [kt.Member(role, publishing)], runtime=kt.Runtime(secrets=secrets), **team)
        return str((await kt.run(bound, "Publish.")).output)

    role = kt.Role("r")
    assert await said(role) == "published it with the key s3cret"
    assert "s3cret" not in await said(role, secrets=["s3cret"])
    assert "published" not in await said(role, permissions=plan)
    assert "published" not in await said(kt.Role("r", allowed_tools=["search"]))
    assert "published" in await said(kt.Role("r", allowed_tools=["publish"]))


@shows(kt.Runtime, "model_limits")
async def test_a_models_limit_holds_for_all_members_together() -> None:
    at_once: list[int] = []
    calls = 0

    async def slow(request: kt.ModelRequest) -> str:
        nonlocal calls
        calls += 1
        at_once.append(calls)
        await anyio.sleep(1)
        calls -= 1
        return "said"

    runtime = kt.Runtime(
        models={"test:*": FunctionModel(slow, name="test:m")}, model_limits={"test:*": kt.ModelLimit(concurrency=2)}
    )
    team = kt.Team("t", [kt.Member("m", kt.MiniAgent("test:m"))], runtime=runtime)
    result = await kt.run(team, kt.TeamExecutionRequest("Do.", plan=kt.TaskGraph(tasks(6))))
    assert result.status is kt.TeamStatus.COMPLETED
    assert max(at_once) == 2


@shows(kt.Runtime, "model_retry")
@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (3, 4)])
async def test_a_failed_model_call_is_tried_again_as_often_as_it_says(retries: int, tries: int) -> None:
    def down(request: kt.ModelRequest) -> str:
        raise ModelCallError("overloaded", "test:m", "down")

    model = FunctionModel(down, name="test:m")
    runtime = kt.Runtime(models={"test:*": model}, model_retry=kt.ModelRetry(retries=retries))
    team = kt.Team("t", [kt.Member("m", kt.MiniAgent("test:m"))], runtime=runtime)
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    await coordinator.execute(kt.TeamExecutionRequest("Do."), team)
    assert len(model.calls) == tries


@pytest.mark.parametrize("secrets", ["one", [""], ["  "], [3]])
def test_secrets_are_a_list_of_strings(secrets: Any) -> None:
    with pytest.raises(ValueError, match="secrets"):
        kt.Runtime(secrets=secrets)


@shows(kt.Runtime, "engine")
async def test_an_engine_makes_the_attempts_and_has_the_journal() -> None:
    class Elsewhere:
        journal = MemoryJournal()

        async def attempt(
            self,
            team: kt.Team,
            assignment: kt.Assignment,
            context: kt.MemberContext,
            number: int,
            timeout: float | None,
        ) -> Attempt:
            return Attempt(assignment.task.id, number, "m", kt.AgentOutput(kt.Artifact(f"made for {team.name}")))

    team = kt.Team("team", [kt.Member("m", lambda _: "made here")])
    engine = Elsewhere()
    plan = kt.TaskGraph([kt.Task("a", "do")])
    result = await kt.run(team, "Do.", plan=plan, runtime=kt.Runtime(engine=engine), run_id="r")
    assert result.output == "made for team"
    assert engine.journal.result("r") is not None
    with pytest.raises(ValueError, match="journal of its own"):
        kt.Runtime(engine=engine, journal=MemoryJournal())


@shows(kt.Runtime, "budget")
async def test_a_runtimes_budget_holds_for_all_its_runs_together() -> None:
    runtime = kt.Runtime(budget=kt.Budget(tokens=40))
    team = kt.Team("team", [kt.Member("m", spend(25))], runtime=runtime)
    spent = [(await kt.run(team, "goal")).usage.tokens for _ in range(2)]
    assert spent == [25, 0]


@shows(kt.TeamExecutionRequest, "files")
@shows(kt.Task, "files")
async def test_files_of_a_request_go_to_every_member_and_those_of_a_task_to_its_own() -> None:
    def names(assignment: kt.Assignment) -> str:
        return " ".join(str(file.name) for file in assignment.all_files)

    of_all, of_one = (
        kt.File(data=name.encode(), media_type="text/plain", name=f"{name}.txt") for name in ("all", "one")
    )
    plan = kt.TaskGraph([kt.Task("a", "do", files=[of_one]), kt.Task("b", "do")])
    request = kt.TeamExecutionRequest("goal", plan=plan, files=[of_all])
    result = await kt.run(kt.Team("team", [kt.Member("m", names)]), request)
    assert [outcome.artifact and outcome.artifact.text for outcome in result.outcomes] == ["all.txt one.txt", "all.txt"]


@pytest.mark.parametrize(
    "kind", [kt.TeamConfig, kt.Member, kt.Role, kt.Team, kt.Runtime, kt.TeamExecutionRequest, kt.Task]
)
def test_kf_b23_every_setting_has_a_test_that_shows_its_effect(kind: type) -> None:
    """A field added without such a test fails here."""
    assert SHOWN[kind] == fields_of(kind)
