"""Sixteen jobs of a first hour, typed from the README and docs/ alone: each works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    CalibratedEvaluationStrategy,
    Criterion,
    Rubric,
    calibrate,
    checks,
    read_labelled,
)
from kairo_team.testing import FunctionModel, ScriptedJudge, ScriptedModel
from kairo_team.tools import Rule, RuleGuard

Kairo = Callable[..., Any]


def outline(assignment: kt.Assignment) -> str:
    return "1. what tides are  2. the moon"


def write(assignment: kt.Assignment) -> str:
    return "The moon pulls the sea."


def test_a_first_team_of_functions() -> None:
    def second(assignment: kt.Assignment) -> str:
        return f"Written along: {assignment.upstream['outline'].text}"

    team = kt.Team("newsroom", [kt.Member("outline", outline), kt.Member("writer", second)])
    result = kt.run_sync(team, "Explain tides.")
    assert result.status == "completed"
    assert result.output == "Written along: 1. what tides are  2. the moon"


def test_a_team_with_a_model() -> None:
    writer = kt.Role("writer", instructions="Write plainly for a ten-year-old.")
    team = kt.Team("newsroom", [kt.Member("outline", outline), kt.Member(writer, kt.MiniAgent("my-model"))])
    model = FunctionModel(lambda request: "The moon pulls the sea.")
    result = kt.run_sync(team, "Explain tides.", runtime=kt.Runtime(models={"my-model": model}))
    assert result.check().output == "The moon pulls the sea."
    assert "Write plainly for a ten-year-old." in model.calls[0].messages[0].text


def test_a_budget_for_the_team_and_for_a_member() -> None:
    model = FunctionModel(lambda request: "Fine.")
    cheap = kt.Member("writer", kt.MiniAgent("my-model"), budget=kt.Budget(tokens=2_000))
    team = kt.Team("newsroom", [kt.Member("outline", outline), cheap], runtime=kt.Runtime(models={"my-model": model}))
    result = kt.run_sync(team, "Explain tides.", budget=kt.Budget(tokens=10_000, loops=20))
    assert result.check().usage.loops == 2
    assert result.budget is not None
    (spent,) = (node for node in result.budget.children if node.path == "newsroom/writer")
    assert spent.budget.tokens == 2_000


class Report(BaseModel):
    title: str
    total: int


def test_a_plan_as_a_graph() -> None:
    def fetch(assignment: kt.Assignment) -> str:
        return f"Q{assignment.inputs['quarter']}: 20, 22"

    def report(assignment: kt.Assignment) -> str:
        figures = assignment.upstream["fetch"].text.partition(": ")[2]
        return json.dumps({"title": assignment.goal, "total": sum(map(int, figures.split(", ")))})

    plan = kt.TaskGraph(
        [
            kt.Task("fetch", "Collect the figures.", role="analyst", inputs={"quarter": 3}),
            kt.Task("report", "Add them up.", role="writer", depends_on=["fetch"], output_type="report"),
        ]
    )
    members = [kt.Member("analyst", fetch), kt.Member("writer", report)]
    team = kt.Team("finance", members, output_types={"report": Report})
    made = kt.run_sync(team, "Q3 report", plan=plan)["report"].artifact
    assert made is not None
    assert made.data_as(Report).total == 42


def test_a_review_by_a_rubric_sends_a_draft_back_with_its_findings() -> None:
    rubric = Rubric(
        [
            Criterion("short", "at most 12 words", check=checks.max_words(12)),
            Criterion("moon", "it names the moon", check=checks.contains("moon")),
        ]
    )

    def draft(assignment: kt.Assignment) -> str:
        return "The moon pulls the sea." if assignment.findings else "The sea goes up and down."

    team = kt.Team("newsroom", [kt.Member("writer", draft)], coordinator=ExpertTeamCoordinator(evaluator=rubric))
    result = kt.run_sync(team, "Explain tides.")
    assert (result.status, result["writer"].attempts, result.output) == ("completed", 2, "The moon pulls the sea.")


def test_a_model_judges() -> None:
    rubric = Rubric([Criterion("plain", "a ten-year-old understands it", by="judge")])
    judge = ScriptedJudge({"a ten-year-old": "met"})
    coordinator = ExpertTeamCoordinator(evaluator=rubric, judge=judge)
    result = kt.run_sync(kt.Team("newsroom", [kt.Member("writer", write)], coordinator=coordinator), "Explain tides.")
    assert (result.status, result.output) == ("completed", "The moon pulls the sea.")


def test_a_person_approves_and_the_run_goes_on() -> None:
    rubric = Rubric([Criterion("ok", "an editor likes it", by="human")])
    team = kt.Team("newsroom", [kt.Member("writer", write)], coordinator=ExpertTeamCoordinator(evaluator=rubric))

    def ask(question: kt.HumanRequest) -> kt.HumanDecision:
        assert question.subject == "The moon pulls the sea."
        return kt.HumanDecision.approve()

    result = kt.run_sync(team, "Explain tides.", runtime=kt.Runtime(gate=kt.CallbackGate(ask)))
    assert (result.status, result.output) == ("completed", "The moon pulls the sea.")


class NamesTheMoon:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if "moon" in context.artifact.text:
            return kt.EvaluationVerdict.passed()
        return kt.EvaluationVerdict.revise("Name the moon.")


def test_an_evaluator_of_your_own() -> None:
    def draft(assignment: kt.Assignment) -> str:
        return "The moon does it." if assignment.findings else "Something does it."

    coordinator = ExpertTeamCoordinator(evaluator=NamesTheMoon())
    result = kt.run_sync(kt.Team("newsroom", [kt.Member("writer", draft)], coordinator=coordinator), "Explain tides.")
    assert (result.status, result.output) == ("completed", "The moon does it.")


class Summarizer:
    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        model = context.model("my-model")
        parts: list[str] = []
        for artifact in assignment.upstream.values():
            request = kt.ModelRequest([kt.Message.user(f"Summarize:\n{artifact.text}")], max_tokens=200)
            parts.append((await model.complete(request)).text)
            context.keep("\n".join(parts))
        return "\n".join(parts)


def test_an_agent_of_your_own() -> None:
    team = kt.Team("desk", [kt.Member("source", outline), kt.Member("summary", Summarizer())])
    runtime = kt.Runtime(models={"my-model": ScriptedModel(["Tides, and the moon."])})
    result = kt.run_sync(team, "Explain tides.", budget=kt.Budget(tokens=5_000), runtime=runtime)
    assert (result.status, result.output) == ("completed", "Tides, and the moon.")


def test_a_tool_with_permissions() -> None:
    @kt.tool(side_effect="read")
    def read_file(path: str) -> str:
        """Read a file."""
        return f"what is in {path}"

    calls = [kt.ToolCall("1", "read_file", {"path": "notes.md"}), kt.ToolCall("2", "read_file", {"path": "keys/a"})]
    model = ScriptedModel([kt.ModelResponse("", calls, kt.Usage(50, 10)), "Done."])
    pilot = kt.Role("pilot", allowed_tools=["read_file"])
    guard = RuleGuard([Rule.deny("*(keys/**)"), Rule.allow("read_file(**)")])
    team = kt.Team(
        "desk",
        [kt.Member(pilot, kt.MiniAgent("my-model", tools=[read_file]))],
        permissions=kt.ToolPermissions(guard=guard),
        runtime=kt.Runtime(models={"my-model": model}),
    )
    result = kt.run_sync(team, "Read both.", budget=kt.Budget(tokens=50_000, tool_calls=5))
    allowed, denied = [message.text for message in model.calls[1].messages if message.role == "tool"]
    assert (result.output, allowed) == ("Done.", "what is in notes.md")
    assert "deny *(keys/**)" in denied


DESK = """
import kairo_team as kt

def write(assignment):
    return "The moon pulls the sea."

team = kt.Team("desk", [kt.Member("writer", write)])
"""


def test_a_run_from_the_command_line(kairo: Kairo, folder: Path) -> None:
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    assert kairo("check", "desk.py", "Explain tides.").code == 0
    said = kairo("run", "desk.py", "Explain tides.")
    assert said.code == 0
    assert "  | The moon pulls the sea.\n" in said.out


def test_a_durable_run_goes_on_in_another_runtime_and_pays_nothing_again(folder: Path) -> None:
    """What was finished before the run was left is not asked again."""
    asked: list[str] = []

    def first(assignment: kt.Assignment) -> str:
        asked.append("first")
        return "the outline"

    rubric = Rubric([Criterion("ok", "an editor likes it", by="human")])
    members = [kt.Member("first", first), kt.Member("second", write)]
    plan = kt.TaskGraph(
        [
            kt.Task("first", "Outline it.", role="first"),
            kt.Task("second", "Write it.", role="second", depends_on=["first"], evaluator="house"),
        ]
    )
    team = kt.Team("desk", members, evaluators={"house": rubric})

    async def begin() -> kt.TeamResult:
        async with kt.Runtime(journal=kt.SqliteJournal("runs.db"), gate=kt.DeferGate()) as runtime:
            return await kt.run(team, "Explain tides.", plan=plan, run_id="tides-1", runtime=runtime)

    async def go_on() -> kt.TeamResult:
        async with kt.Runtime(journal=kt.SqliteJournal("runs.db"), gate=kt.CallbackGate(lambda _: True)) as runtime:
            return await runtime.resume("tides-1", team)

    assert anyio.run(begin).status == "suspended"
    result = anyio.run(go_on)
    assert (result.status, result.output, asked) == ("completed", "The moon pulls the sea.", ["first"])
    assert kt.SqliteJournal("runs.db").show("tides-1").state == "completed"


def test_watching_a_run() -> None:
    seen: list[str] = []

    def show(event: events.Event) -> None:
        if isinstance(event, events.TaskCompleted):
            seen.append(event.task_id)

    team = kt.Team("newsroom", [kt.Member("outline", outline), kt.Member("writer", write)])
    kt.run_sync(team, "Explain tides.", runtime=kt.Runtime(subscribers=[show])).check()

    async def live() -> list[str]:
        async with kt.Runtime() as runtime:
            run = await runtime.start(team, "Explain tides.")
            return [event.type async for event in run.events()]

    assert seen == ["outline", "writer"]
    kinds = anyio.run(live)
    assert (kinds[0], kinds[-1]) == ("team.started", "team.completed")


TEAM = """
name: newsdesk
members:
  - role: {id: writer, instructions: Answer in one short sentence.}
    agent:
      mini: {model: my-model, max_turns: 2}
    budget: {tokens: 4000}
evaluators:
  house:
    criteria:
      - {id: moon, text: it names the moon, check: {contains: moon}}
request:
  goal: Explain tides.
  plan:
    tasks:
      - {id: text, description: Write one sentence., role: writer, evaluator: house}
"""


def test_a_team_from_a_file(folder: Path) -> None:
    (folder / "team.yaml").write_text(TEAM, encoding="utf-8")
    job = kt.load_job("team.yaml")
    runtime = kt.Runtime(models={"my-model": ScriptedModel(["The moon pulls the sea."])})
    result = kt.run_sync(job.team, job.request(), runtime=runtime)
    assert (result.status, result.output) == ("completed", "The moon pulls the sea.")


def test_a_judge_that_is_calibrated_decides_by_itself_where_it_is_sure(folder: Path) -> None:
    words = ("moon", "gravitational pull")
    labels = [
        {"artifact": f"{n}: the {words[n % 2]}.", "task": "Explain tides.", "passed": not n % 2} for n in range(80)
    ]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)), encoding="utf-8")
    rubric = Rubric([Criterion("plain", "a ten-year-old knows every word", by="judge")])
    judge = ScriptedJudge(lambda criterion, work: "not met" if "gravitational" in work else "met")
    strategy = AgentEvaluationStrategy(judge, rubric)
    labelled = read_labelled((folder / "labels.jsonl").read_text("utf-8"))

    async def find() -> list[Any]:
        return list((await calibrate(strategy, labelled, alpha=0.1, delta=0.1)).certificates)

    certificates = anyio.run(find)
    assert [(one.outcome, one.threshold, one.n, one.k) for one in certificates] == [
        ("pass", 0.9, 40, 0),
        ("revise", 0.9, 40, 0),
    ]
    coordinator = ExpertTeamCoordinator(evaluator=CalibratedEvaluationStrategy(strategy, certificates))
    team = kt.Team("newsroom", [kt.Member("writer", write)], coordinator=coordinator)
    result = kt.run_sync(team, "Explain tides.")
    assert (result.status, result.output) == ("completed", "The moon pulls the sea.")


def test_a_team_is_a_member_of_another() -> None:
    def report(assignment: kt.Assignment) -> str:
        return f"{assignment.goal}: {assignment.context['goal']}"

    def notice(assignment: kt.Assignment) -> str:
        return f"Read: {assignment.upstream['research'].text}"

    readers = kt.Team("readers", [kt.Member("gauge", report)])
    members = [kt.Member("research", TeamAgent(readers), budget=kt.Budget(tokens=500)), kt.Member("writer", notice)]
    plan = kt.TaskGraph(
        [
            kt.Task("research", "Find the high water.", role="research"),
            kt.Task("notice", "Write it.", role="writer", depends_on=["research"]),
        ]
    )
    result = kt.run_sync(kt.Team("desk", members), "Put up the notice.", plan=plan, budget=kt.Budget(tokens=6_000))
    assert result.check().output == "Read: Find the high water.: Put up the notice."
    assert [one.task_id for one in result.outcomes] == ["research", "notice"]
