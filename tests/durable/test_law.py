"""The law: whatever a run does, and wherever it is cut, going on gives the end of the run that was never cut."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import FunctionModel, virtual_time_backends
from tests.durable.desk import Images, Judge, ask_briefly
from tests.lost_needs import any_need

RUN = "r"
KINDS = ("silent", "asks", "asks twice", "fails", "keeps and fails", "books", "uses a tool", "team", "chance")


@dataclass(frozen=True)
class Scenario:
    """A run."""

    tasks: tuple[kt.Task, ...]
    kinds: tuple[str, ...]
    budgets: tuple[kt.Budget | None, ...]
    parallel: int | None
    retries: int
    expert: bool


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    tasks: list[kt.Task] = []
    for number in range(len(kinds)):
        before = draw(st.lists(st.sampled_from([t.id for t in tasks]), unique=True, max_size=2)) if tasks else []
        needs: Any = draw(st.sampled_from(["all", min(1, len(before))]))
        evaluator = draw(st.sampled_from([None, "editor", "judge"]))
        tasks.append(
            kt.Task(f"t{number}", "do", member=f"m{number}", depends_on=before, needs=needs, evaluator=evaluator)
        )
    budgets = draw(st.lists(st.sampled_from([None, kt.Budget(tokens=50_000)]), min_size=5, max_size=5))
    return Scenario(
        tuple(tasks),
        tuple(kinds),
        tuple(budgets),
        draw(st.sampled_from([None, 1, 2])),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
    )


class World:
    """The members of one session, and what they did in it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.used = 0
        self.model = FunctionModel(self.answer, name="test:m")

    def answer(self, request: kt.ModelRequest) -> str:
        self.asked.append(request.messages[-1].text)
        return f"answer to {request.messages[-1].text}"[:60]

    def agent(self, kind: str) -> Any:
        if kind == "team":
            plan = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"])])
            return TeamAgent(kt.Team("inner", [kt.Member("hand", self.agent("asks"))]), plan=plan)

        async def act(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            await anyio.sleep(0.001)
            return await self.act(kind, assignment, context)

        return act

    async def act(self, kind: str, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        name = f"{assignment.task.id} {assignment.attempt}"
        said = "nothing"
        for turn in range({"silent": 0, "asks twice": 2}.get(kind, 1)):
            said = (await context.model("m:x").complete(ask_briefly(f"{name} {turn}"))).text
        if kind == "books":
            context.governor.record_usage(prompt_tokens=11)
        elif kind == "uses a tool":
            said += (await context.tool(self.count)(text=name)).text
        elif kind == "chance":
            said += str(await context.recorded("chance", lambda: id(object()) % 10_000))
        elif kind in {"fails", "keeps and fails"}:
            if kind != "fails":
                context.keep("so far")
            raise ValueError("cannot")
        return f"made {said}"

    @kt.tool(side_effect="read")
    def count(self, text: str) -> str:
        """Count the characters of a text."""
        self.used += 1
        return str(len(text))


def team_of(scenario: Scenario, world: World, runtime: kt.Runtime | None = None) -> kt.Team:
    members = [
        kt.Member(f"m{number}", world.agent(kind), budget=scenario.budgets[number])
        for number, kind in enumerate(scenario.kinds)
    ]
    policy = FailurePolicy(retries=scenario.retries, backoff=0.001)
    coordinator = (ExpertTeamCoordinator if scenario.expert else TaskDispatchCoordinator)(failure_policy=policy)
    judges = {"editor": Judge(), "judge": Judge("m:x")}
    return kt.Team("team", members, evaluators=judges, coordinator=coordinator, runtime=runtime)


def request_of(scenario: Scenario) -> kt.TeamExecutionRequest:
    config = kt.TeamConfig(max_parallel_tasks=scenario.parallel, risk_profile=kt.RiskProfile.LOW)
    return kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph(scenario.tasks), config=config, run_id=RUN)


async def play(scenario: Scenario, path: Path, world: World, *, go_on: bool, run_id: str = RUN) -> kt.TeamResult:
    """Run the scenario, or go on with it."""
    team, request = team_of(scenario, world), request_of(scenario)
    journal = kt.SqliteJournal(path, sync="normal")
    try:
        async with kt.Runtime(models={"m:x": world.model}, journal=journal) as runtime:
            with anyio.fail_after(60):
                return await (runtime.resume(run_id, team) if go_on else kt.run(team, request, runtime=runtime))
    finally:
        journal.close()


def comparable(result: kt.TeamResult) -> list[Any]:
    """Return how each task ended; of several needs that were lost, chance decides which one is named."""
    return [
        (one.task_id, one.status, one.attempts, one.member, one.artifact and one.artifact.text, any_need(one.error))
        for one in result.outcomes
    ]


def check_shares(result: kt.TeamResult, kinds: tuple[str, ...]) -> None:
    """The usage by model adds up to the usage of the run: of this session and earlier ones, and of teams inside."""
    calls = sum((one.usage for one in result.usage_by_model.values()), kt.Usage())
    booked = sum(one.attempts * (kind == "books") for one, kind in zip(result.outcomes, kinds, strict=True))
    assert booked or calls.prompt_tokens == result.usage.prompt_tokens
    assert (calls.completion_tokens, calls.dollars) == (result.usage.completion_tokens, result.usage.dollars)


@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=max(5, settings().max_examples // 4))
@given(scenario=scenarios(), cuts=st.lists(st.floats(0, 0.999), min_size=1, max_size=3))
def test_resume_equals_run(backend: str, scenario: Scenario, cuts: list[float]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = World()
        with pytest.MonkeyPatch.context() as patch:
            paths = Images(folder, patch).paths
            whole = anyio.run(partial(play, scenario, folder / "runs.db", first, go_on=False), backend=backend)
        check_shares(whole, scenario.kinds)
        for path in {paths[int(cut * len(paths))] for cut in cuts}:
            journal = kt.SqliteJournal(path)
            if journal.show(RUN).state != "interrupted":
                continue
            answered = sum(one.state == "answered" and one.what == "model" for one in journal.calls(RUN))
            doubt = sum((one.usage for one in journal.in_doubt(RUN)), kt.Usage())
            again = World()
            result = anyio.run(partial(play, scenario, path, again, go_on=True), backend=backend)
            assert result.status is whole.status
            if "chance" not in scenario.kinds:
                assert comparable(result) == comparable(whole)
            assert len(again.asked) == len(first.asked) - answered
            assert result.usage.tokens == whole.usage.tokens + doubt.tokens
            check_shares(result, scenario.kinds)
            assert (result.usage.loops, result.usage.dollars) == (whole.usage.loops, whole.usage.dollars)
