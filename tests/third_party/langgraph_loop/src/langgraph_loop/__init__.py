"""A coordinator for kairo-team whose work on each task is a LangGraph graph: write, review, again."""

# LangGraph is typed, but without a py.typed file for these names.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy
from kairo_team.coordinators.task_work import Progress, findings_for_next_attempt
from kairo_team.evaluators import SimpleEvaluationStrategy
from kairo_team.verdicts import NEVER_BY_RISK

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

    from kairo_team.results import Attempt

__all__ = ["LangGraphCoordinator"]


@dataclass
class Work:
    """One task on its way."""

    run: kt.TeamRun
    task: kt.Task
    progress: Progress
    attempt: Attempt | None = None
    """The last one."""
    verdict: kt.EvaluationVerdict | None = None
    """What the last review led to."""


class State(TypedDict):
    """What LangGraph hands from node to node."""

    work: Work


class LangGraphCoordinator:
    """Run the plan of a request; each task goes through a LangGraph graph of its own until its review is content.

    The plan is the request's, or one task from its goal. Which task may start is kairo-team's business, what happens
    to it is LangGraph's: override `build` to make another graph of the same nodes. Runs on asyncio, as LangGraph does.
    """

    def __init__(self, *, evaluator: EvaluationStrategy | None = None) -> None:
        self.evaluator = evaluator or SimpleEvaluationStrategy()
        self.graph = self.build()

    def build(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        """Return the graph: write, then review, then write again or settle."""
        graph = StateGraph(State)
        graph.add_node("write", self.write)
        graph.add_node("review", self.review)
        graph.add_node("settle", self.settle)
        graph.add_edge(START, "write")
        graph.add_conditional_edges("write", self.after_write)
        graph.add_conditional_edges("review", self.after_review)
        graph.add_edge("settle", END)
        return graph.compile()

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        """Run the request to its end."""
        async with kt.TeamRun.open(request, team) as run:
            single = kt.TaskGraph([kt.Task("task", request.goal)])
            plan = await run.plan(lambda: request.plan or single)
            async for task in run.ready(plan):
                run.go(self.one, run, task)
        return run.result

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        """Let a task go through the graph."""
        rounds = run.config.max_feedback_rounds
        await self.graph.ainvoke(
            {"work": Work(run, task, Progress(rounds))},
            {"recursion_limit": 2 * rounds + 4},  # steps: a write and a review a round, and the first and last
        )

    async def write(self, state: State) -> dict[str, Any]:
        """Let the member try, with what the last review found."""
        work = state["work"]
        work.progress.tries += 1
        previous = None if work.verdict is None or work.attempt is None else work.attempt.artifact
        work.attempt = await work.run.attempt(
            work.task,
            work.progress.tries,
            artifact_number=len(work.progress.reviewed) + 1,
            previous=previous,
            findings=() if work.verdict is None else findings_for_next_attempt(work.verdict),
        )
        return {}

    async def after_write(self, state: State) -> Literal["review", "settle"]:
        """Review what was made."""
        attempt = state["work"].attempt
        return "review" if attempt is not None and attempt.error is None else "settle"

    async def review(self, state: State) -> dict[str, Any]:
        """Have the artifact reviewed, unless it was before."""
        work = state["work"]
        assert work.attempt is not None
        verdict = work.progress.standing(work.attempt)
        if verdict is None:
            verdict = await work.run.review(work.task, work.attempt, self.evaluator, prior=work.progress.verdicts)
        work.verdict = work.progress.add(work.attempt, verdict)
        return {}

    async def after_review(self, state: State) -> Literal["write", "settle"]:
        """Write again as long as the review leads to a revision."""
        verdict = state["work"].verdict
        return "write" if verdict is not None and verdict.outcome is kt.VerdictOutcome.REVISE else "settle"

    async def settle(self, state: State) -> dict[str, Any]:
        """Accept what passed, and under low risk what did not; else the task fails with its best attempt."""
        work = state["work"]
        run, attempt, verdict = work.run, work.attempt, work.verdict
        assert attempt is not None
        best = work.progress.best()[0] if work.progress.reviewed else attempt
        if attempt.error is not None or verdict is None:
            run.fail(work.task, attempt.error or "it was not reviewed", best=best, verdict=verdict)
        elif verdict.outcome is kt.VerdictOutcome.PASS:
            run.accept(work.task, attempt, verdict)
        elif run.config.risk_profile is kt.RiskProfile.LOW and verdict.cause not in NEVER_BY_RISK:
            run.accept(work.task, best, verdict)
        else:
            run.fail(work.task, verdict.feedback or verdict.outcome.value, best=best, verdict=verdict)
        return {}
