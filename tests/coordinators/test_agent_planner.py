"""Plans made by a model: validated, sent back once, and then the failure mode decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator, proposals
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedAgent, ScriptedModel

pytestmark = pytest.mark.anyio


def task(id: str, member: str = "a", *needs: str) -> dict[str, Any]:
    return {"id": id, "description": f"do {id}", "member": member, "depends_on": list(needs)}


def plan(*tasks: dict[str, Any]) -> str:
    return json.dumps({"tasks": list(tasks)})


GOOD = plan(task("one"), task("two", "b", "one"))
BAD = {
    "no json": ("I would begin with", "json"),
    "no tasks": (plan(), "at least one task"),
    "unknown member": (plan(task("one", "c")), "'c'"),
    "unknown dependency": (plan(task("one", "a", "zero")), "unknown tasks 'zero'"),
    "cycle": (plan(task("one", "a", "two"), task("two", "a", "one")), "cycle"),
    "twice": (plan(task("one"), task("one")), "unique"),
    "bad id": (plan(task("one two")), "one two"),
    "more": (json.dumps({"tasks": [task("one")], "why": "because"}), "why"),
    "too many": (plan(*(task(f"t{number}") for number in range(5))), "5 tasks, at most 4"),
    "id too long": (plan(task("x" * 41)), f"the id {'x' * 40!r}... has 41 characters, at most 40 are allowed"),
    "need too long": (plan(task("one", "a", "x" * 41)), "has 41 characters, at most 40 are allowed"),
    "over budget": (plan(*(task(f"t{number}") for number in range(4))), "4 tasks, and the budget only 3 loops"),
}


HUGE = "x" * 50_000
GROWN: dict[str, dict[str, Any]] = {
    "member": {"member": HUGE},
    "condition": {"member": "a", "when": {HUGE: "yes"}},
    "field": {"member": "a", HUGE: 1},
    "id inside": {"body": [{"id": "m", "description": "do", "body": [{**task(HUGE), "member": "a"}]}]},
    "need inside": {"body": [{"id": "m", "description": "do", "body": [task("n", "a", HUGE)]}]},
}


@pytest.mark.parametrize("where", GROWN)
async def test_no_text_of_a_reply_makes_the_next_prompt_long(where: str) -> None:
    """What was wrong went back whole, and was paid."""
    prompts: list[int] = []
    replies = iter([plan({"id": "one", "description": "do", **GROWN[where]}), plan(task("one"))])

    def reply(request: kt.ModelRequest) -> str:
        prompts.append(len(request.messages[-1].text))
        return next(replies)

    planner = AgentPlanner(FunctionModel(reply, name="test:m"), growth=True)
    members = [kt.Member(name, ScriptedAgent(["done"])) for name in "ab"]
    result = await kt.run(kt.Team("t", members, coordinator=ExpertTeamCoordinator(planner=planner)), "Do it.")
    assert (result.status, len(prompts)) == (kt.TeamStatus.COMPLETED, 2)
    assert prompts[1] < 3_000


class Bench:
    def __init__(self, *replies: Any, mode: str = "fail_fast", journal: MemoryRecords | None = None) -> None:
        self.model = ScriptedModel(replies)
        self.recorder = EventRecorder()
        self.a, self.b = (ScriptedAgent([f"{name} {n}" for n in range(9)]) for name in "ab")
        runtime = kt.Runtime(subscribers=[self.recorder])
        if journal is not None:
            runtime.journal_for = lambda run_id: journal  # type: ignore[method-assign]  # the seam under test
        self.team = kt.Team(
            "t",
            [kt.Member("a", self.a), kt.Member(kt.Role("b", "Be brief.", {"prose"}), self.b)],
            coordinator=ExpertTeamCoordinator(
                planner=AgentPlanner(self.model, max_tasks=4), planner_failure_mode=kt.PlannerFailureMode(mode)
            ),
            runtime=runtime,
        )

    async def run(self, **budget: Any) -> kt.TeamResult:
        return await kt.run(self.team, kt.TeamExecutionRequest("Do it.", context={"for": "children"}), **budget)


async def test_a_model_makes_the_plan_and_the_members_do_it() -> None:
    bench = Bench(GOOD)
    result = await bench.run(budget=kt.Budget(tokens=10_000, loops=10))
    assert result.status is kt.TeamStatus.COMPLETED
    assert [(o.task_id, o.member) for o in result.outcomes] == [("one", "a"), ("two", "b")]
    assert result.budget is not None
    assert any(node.name == "plan" and node.usage.tokens > 0 for node in result.budget.children)
    (asked,) = bench.model.calls
    for told in ("Do it.", "children", "Be brief.", "prose", "- a", "- b", "at most 4 tasks"):
        assert told in asked.messages[0].text
    assert asked.output_schema is not None
    bench.recorder.assert_lawful()


@pytest.mark.parametrize(("reply", "problem"), BAD.values(), ids=BAD)
async def test_kf_t25_a_plan_that_cannot_be_run_is_sent_back_once_with_what_is_wrong(reply: str, problem: str) -> None:
    """T25: a model-made plan with a cycle was accepted as it was."""
    bench = Bench(reply, GOOD)
    result = await bench.run(budget=kt.Budget(loops=3))
    assert result.status is kt.TeamStatus.COMPLETED
    first, second = bench.model.calls
    assert problem in second.messages[-1].text.lower() + second.messages[-1].text
    assert second.messages[-2].text == reply
    assert len(first.messages) == 1


@pytest.mark.parametrize("reply", [reply for reply, _ in BAD.values()], ids=BAD)
async def test_a_second_plan_that_cannot_be_run_fails_the_run(reply: str) -> None:
    bench = Bench(reply, reply)
    result = await bench.run(budget=kt.Budget(loops=3))
    assert (result.status, result.refused, result.outcomes) == (kt.TeamStatus.FAILED, False, ())
    assert "no plan that can be run" in str(result.error)
    assert result.usage.tokens > 0
    assert (bench.a.calls, bench.b.calls) == ([], [])
    bench.recorder.assert_lawful()


@pytest.mark.parametrize("failure", [("nope", "nope"), (OSError("down"),)], ids=["no plan", "raised"])
async def test_kf_t11_a_failed_planner_is_replaced_only_where_that_was_asked_for(failure: Any) -> None:
    """T11: planner failure silently replaced by another plan under FAIL_FAST."""
    strict = await Bench(*failure).run()
    assert (strict.status, strict.outcomes) == (kt.TeamStatus.FAILED, ())
    journal = MemoryRecords()
    lenient = Bench(*failure, mode="single_task_fallback", journal=journal)
    result = await lenient.run()
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "a 0")
    assert "one task replaces the plan" in result.warnings[0]
    again = Bench(mode="single_task_fallback", journal=journal)
    replayed = await again.run()
    assert (replayed.status, replayed.output, replayed.warnings) == (result.status, result.output, result.warnings)
    assert (again.model.calls, again.a.calls) == ([], [])


async def test_a_halt_while_planning_is_no_reason_for_another_plan() -> None:
    model = FunctionModel(lambda _: "nope " * 10)
    coordinator = ExpertTeamCoordinator(
        planner=AgentPlanner(model), planner_failure_mode=kt.PlannerFailureMode.SINGLE_TASK_FALLBACK
    )
    team = kt.Team("t", [kt.Member("a", lambda _: "made")], coordinator=coordinator)
    result = await kt.run(team, "Do it.", budget=kt.Budget(tokens=30))
    assert result.status is not kt.TeamStatus.COMPLETED
    assert result.usage.tokens <= 30


async def test_nothing_in_the_schema_of_a_plan_goes_on_for_ever() -> None:
    """A small model held to a schema without bounds writes on until its reply is cut off, and that is no plan."""
    bench = Bench(GOOD)
    await bench.run()
    (asked,) = bench.model.calls

    def check(schema: Any, where: str) -> None:
        kind = schema.get("type")
        bounded = {"string": {"maxLength", "pattern"}, "array": {"maxItems"}}.get(kind, schema.keys())
        assert bounded & schema.keys(), where
        for name, part in schema.get("properties", {}).items():
            check(part, f"{where}.{name}")
        if kind == "array":
            check(schema["items"], f"{where}[]")

    assert asked.output_schema is not None
    check(asked.output_schema, "plan")
    needs = asked.output_schema["properties"]["tasks"]["items"]["properties"]["depends_on"]
    assert needs["maxItems"] == 4, "as many as there are tasks"


async def test_a_new_task_may_depend_on_every_task_that_stays_whatever_its_id() -> None:
    model, kept = ScriptedModel([plan(task("new", "a", "k" * 50))]), [kt.Task(f"kept-{n}", "do") for n in range(8)]

    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        request = kt.TeamExecutionRequest("Do it.", plan=kt.TaskGraph([*kept, kt.Task("k" * 50, "do")]))
        return str(await AgentPlanner(model, max_tasks=4).plan(request, team, context))

    team = kt.Team("t", [kt.Member("a", ask)])
    assert (await kt.run(team, "Do it.")).status is kt.TeamStatus.COMPLETED
    schema: Any = model.calls[0].output_schema
    needs = schema["properties"]["tasks"]["items"]["properties"]["depends_on"]
    assert (needs["maxItems"], needs["items"]["pattern"]) == (13, "^[A-Za-z0-9_.-]{1,50}$")


@pytest.mark.parametrize("most", [0, -1, True, "3"])
def test_how_many_tasks_a_plan_may_have_is_a_number(most: Any) -> None:
    with pytest.raises(ValueError, match="max_tasks"):
        AgentPlanner("test:m", max_tasks=most)


def test_a_failure_mode_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="perhaps"):
        ExpertTeamCoordinator(planner_failure_mode="perhaps")  # type: ignore[arg-type]


async def test_audit_g31_a_reply_of_too_many_tasks_is_counted_and_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence is sent back, whatever is wrong with the tasks, and not one of them is made."""
    made: list[Any] = []
    monkeypatch.setattr(proposals, "Task", lambda *args, **fields: made.append(args))
    reply = json.dumps({"tasks": [{"n": 1} for _ in range(2_000)]})
    bench = Bench(reply, reply)
    result = await bench.run()
    assert made == []
    assert str(result.error).endswith("can be run: the plan has 2,000 tasks, at most 4 are allowed")


async def test_audit_g31_what_is_sent_back_of_a_reply_that_is_wrong_all_over_is_short() -> None:
    reply = json.dumps({"tasks": [{**task("t"), "depends_on": list(range(1_000))}]})
    bench = Bench(reply, GOOD)
    await bench.run()
    assert bench.model.calls[1].messages[-1].text.count("\n- ") == 20


GROWING: tuple[dict[str, Any], ...] = (
    task("list"),
    {**task("read", "b"), "over": "list"},
    {**task("mend", "a", "read"), "when": {"from": "list", "contains": "2"}},
    {
        "id": "polish",
        "description": "polish it",
        "depends_on": ["mend"],
        "body": [task("write"), task("test", "b", "write")],
        "until": {"from": "test", "field": "passed", "equals": True},
    },
)


def growing_team(seen: list[str]) -> kt.Team:
    async def work(assignment: kt.Assignment) -> str:
        seen.append(assignment.task.id)
        if assignment.task.id.endswith("test"):
            return json.dumps({"passed": assignment.inputs["round"] == 2})
        return "[1, 2]" if assignment.task.id == "list" else f"made {assignment.task.id}"

    return kt.Team("t", [kt.Member("a", work), kt.Member("b", work)])


async def test_kf_map_a_model_plans_a_map_a_branch_and_a_loop_and_they_grow() -> None:
    model, seen = ScriptedModel([plan(*GROWING)]), list[str]()
    planner = AgentPlanner(model, growth=True, max_items=7, max_rounds=3)
    result = await kt.run(growing_team(seen), "g", coordinator=ExpertTeamCoordinator(planner=planner))
    assert result.status is kt.TeamStatus.COMPLETED
    assert sorted(seen) == sorted(
        ["list", "read.0001", "read.0002", "mend"]
        + [f"polish.{number:02}.{name}" for number in (1, 2) for name in ("write", "test")]
    )
    assert result.plan is not None
    assert (result.plan["read"].max_items, result.plan["polish"].loop) == (
        7,
        kt.Loop(
            [
                kt.Task("write", "do write", member="a"),
                kt.Task("test", "do test", member="b", depends_on=["write"]),
            ],
            until={"from": "test", "field": "passed", "equals": True},
            max_rounds=3,
        ),
    )
    asked = model.calls[0]
    assert "at most 7" in asked.messages[0].text
    assert asked.output_schema is not None
    assert {"when", "over", "body", "until"} < asked.output_schema["properties"]["tasks"]["items"]["properties"].keys()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({**task("x"), "over": "nothing"}, "unknown tasks 'nothing'"),
        ({**task("x"), "when": {"from": "list"}}, "a condition has 'from' and one of"),
        ({"id": "x", "description": "d"}, "task 'x' has no member"),
        ({**task("x"), "until": {"from": "list", "equals": 1}}, "task 'x': until is for a loop, which has a body"),
        (
            {"id": "x", "description": "d", "body": [task("in", "nobody")]},
            "in the loop 'x': task 'in' needs the member",
        ),
        ({"id": "x", "description": "d", "body": [task("i" * 41)]}, "has 41 characters"),
    ],
)
async def test_what_is_wrong_with_a_plan_that_grows_is_sent_back(wrong: dict[str, Any], sentence: str) -> None:
    model, seen = ScriptedModel([plan(task("list"), wrong), plan(task("list"))]), list[str]()
    planner = AgentPlanner(model, growth=True)
    result = await kt.run(growing_team(seen), "g", coordinator=ExpertTeamCoordinator(planner=planner))
    assert result.status is kt.TeamStatus.COMPLETED
    assert sentence in model.calls[1].messages[-1].text


async def test_without_growth_a_model_cannot_plan_it() -> None:
    model, seen = ScriptedModel([plan(*GROWING), plan(*GROWING)]), list[str]()
    coordinator = ExpertTeamCoordinator(planner=AgentPlanner(model))
    result = await kt.run(growing_team(seen), "g", coordinator=coordinator)
    assert (result.status, seen) == (kt.TeamStatus.FAILED, [])
    assert "task 'read': over is not allowed in this plan" in (result.error or "")
    assert model.calls[0].output_schema is not None
    assert "over" not in json.dumps(model.calls[0].output_schema)
