"""A coordinator for kairo-team whose work on each task is a LangGraph graph: write, review, again."""

# LangGraph is typed, but without a py.typed file for these names.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy
from kairo_team.coordinators import Reviewers, ReviewRounds
from kairo_team.evaluators import SimpleEvaluationStrategy

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

__all__ = ["LangGraphCoordinator"]


class State(TypedDict):
    """What LangGraph hands from node to node."""

    rounds: ReviewRounds


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
            reviewers = Reviewers(run.team, self.evaluator)
            reviewers.check(run, plan)
            async for task in run.ready(plan):
                run.go(self.one, run, task, reviewers)
        return run.result

    async def one(self, run: kt.TeamRun, task: kt.Task, reviewers: Reviewers) -> None:
        """Let a task go through the graph."""
        rounds = ReviewRounds(run, task, reviewers.of(task))
        steps = 2 * run.config.max_feedback_rounds + 4  # a write and a review a round, and the first and last
        await self.graph.ainvoke({"rounds": rounds}, {"recursion_limit": steps})

    async def write(self, state: State) -> dict[str, Any]:
        """Let the member try, with what the last review found."""
        await state["rounds"].attempt()
        return {}

    async def after_write(self, state: State) -> Literal["review", "settle"]:
        """Review what was made."""
        last = state["rounds"].last
        return "review" if last is not None and last.error is None else "settle"

    async def review(self, state: State) -> dict[str, Any]:
        """Have the artifact reviewed."""
        await state["rounds"].review()
        return {}

    async def after_review(self, state: State) -> Literal["write", "settle"]:
        """Write again as long as the review asks for a revision."""
        verdict = state["rounds"].verdict
        return "write" if verdict is not None and verdict.outcome is kt.VerdictOutcome.REVISE else "settle"

    async def settle(self, state: State) -> dict[str, Any]:
        """Accept the artifact, or let senior, gate and risk decide."""
        await state["rounds"].settle()
        return {}
