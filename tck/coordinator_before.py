"""The coordinator kit on what is known before a run, and on the reviewers that tasks name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from kairo_team.contracts import Agent, MemberContext
from kairo_team.engine.plan.grown_tasks import most_tasks
from kairo_team.engine.plan.preflight import check_request
from kairo_team.events import AttemptStarted
from kairo_team.messages import Message, ModelRequest
from kairo_team.tasks import Task, TaskGraph
from kairo_team.tck.coordinator_reviewing import TWO, Judge, Reviewer, ReviewStage, Writer
from kairo_team.tck.coordinator_stage import Function, Show, fail, write
from kairo_team.tck.kit import clause
from kairo_team.team import Team, TeamExecutionRequest
from kairo_team.verdicts import EvaluationContext, EvaluationVerdict


class _NeedsAPerson(Reviewer):
    """An evaluator that passes everything, and cannot work without a gate."""

    def preflight(self, *, gate: bool) -> list[str]:
        """Say what is missing."""
        return [] if gate else ["it needs a sign-off: give the run a gate"]


class _AsksAJudge(Reviewer):
    """An evaluator that asks a model, and passes everything."""

    def __init__(self) -> None:
        super().__init__(self._ask)
        self.judge = Judge("It is fine.")
        self.models: tuple[Any, ...] = (self.judge,)

    async def _ask(self, context: EvaluationContext) -> EvaluationVerdict:
        assert context.context is not None, "a review in a run has a context with models"
        await context.context.model(self.judge).complete(ModelRequest([Message.user("Is it?")], max_tokens=5))
        return EvaluationVerdict.passed()


def _passing(kind: Callable[..., Reviewer] = Reviewer) -> Reviewer:
    return kind(EvaluationVerdict.passed())


class BeforeTests(ReviewStage):
    """C23 to C27."""

    def _member(self, show: Show, name: str) -> Any:
        """Return an optional method of the coordinator; skip the test if it has none."""
        found = getattr(show.coordinator, name, None)
        if found is None:
            pytest.skip(f"it has no {name}")
        return found

    @clause("C23")
    async def test_c23_the_preview_is_the_plan_of_the_run(self) -> None:
        """With a plan in the request, and without one."""
        for tasks in (None, TWO):
            writer = Writer()
            show = self.stage(writer, tasks=tasks)
            seen: Any = self._member(show, "preview")(show.request, show.team)
            assert not writer.asked, "a preview called a member"
            assert not show.seen.events, f"a preview emitted {show.seen.types}"
            if seen is None:
                continue
            assert isinstance(seen, TaskGraph), f"a preview returns a TaskGraph or None, not {seen!r:.80}"
            result = await show.play()
            done, known = [one.task_id for one in result.outcomes], [task.id for task in seen.tasks]
            assert done[: len(known)] == known, f"the preview has the tasks {known}, and the run had {done}"

    @clause("C23", needs="supports_planner")
    async def test_c23_a_preview_asks_no_planner(self) -> None:
        """What only the planner knows is not known before the run."""
        asked = 0

        class Counting:
            async def plan(self, request: TeamExecutionRequest, team: Team, context: MemberContext) -> TaskGraph:
                nonlocal asked
                asked += 1
                await checkpoint()
                return TaskGraph([Task("planned", "Write it.")])

        show = self.stage(Writer())
        show.coordinator = self.make_planning_coordinator(Counting())
        seen: Any = self._member(show, "preview")(show.request, show.team)
        assert asked == 0, "a preview called the planner"
        result = await show.play()
        if seen is not None:
            known = [task.id for task in seen.tasks]
            assert [one.task_id for one in result.outcomes][: len(known)] == known, f"the preview has the tasks {known}"

    @clause("C24")
    async def test_c24_the_check_refuses_what_the_run_refuses(self) -> None:
        """`kairo_team.check` and `execute` agree about requests that can be run, and about those that cannot."""
        for case, make in self._requests().items():
            writer = Writer()
            show = make(writer)
            self._member(show, "preflight")
            checked = check_request(show.request, show.team, show.coordinator, show.team.runtime)
            assert not writer.asked, f"{case}: the check called a member"
            result = await show.play()
            refused = result.error is not None and not show.seen.of(AttemptStarted)
            if refused:
                assert checked.problems, f"{case}: execute refused it ({result.error}), and preflight reported nothing"
            else:
                assert checked.ok, f"{case}: preflight reported {checked.problems}, and the run ended {result.status}"
            for problem in checked.problems:
                assert problem in (result.error or ""), f"{case}: {problem!r} is not in the error {result.error!r}"

    def _requests(self) -> dict[str, Callable[[Writer], Show]]:
        needs = _passing(_NeedsAPerson)
        nobody = [Task("one", "Write it.", role="nobody")]
        unknown = [Task("one", "Write it.", evaluator="nobody")]
        found: dict[str, Callable[[Writer], Show]] = {"a plain request": lambda writer: self.stage(writer, tasks=TWO)}
        if self.supports_review:
            found["a reviewed request"] = lambda writer: self.stage(writer, tasks=TWO, evaluator=_passing())
            found["an evaluator without its gate"] = lambda writer: self.stage(writer, tasks=TWO, evaluator=needs)
        if self.supports_plan:
            found["a role that nobody has"] = lambda writer: self.stage(writer, tasks=nobody)
            found["an evaluator that the team does not have"] = lambda writer: self.stage(writer, tasks=unknown)
        return found

    @clause("C25", needs="supports_review")
    async def test_c25_the_judges_of_all_reviews_are_known(self) -> None:
        """Both for a plan that is known, and for one that is not known yet."""
        reviewer = _AsksAJudge()
        show = self.stage(Writer(), tasks=TWO, evaluator=reviewer)
        judges = self._member(show, "judges")
        preview: Any = getattr(show.coordinator, "preview", None)
        plan = show.request.plan if preview is None else preview(show.request, show.team)
        named = tuple(judges(plan, show.team))
        unplanned = named if self.reviews_named_tasks else tuple(judges(None, show.team))
        assert reviewer.judge.spent == 0, "`judges` called a judge"
        await show.play()
        assert reviewer.judge.spent > 0, "the judge was not called, by a coordinator made with its evaluator"
        assert any(one is reviewer.judge for one in named), f"the reviews called {reviewer.judge!r}, not in {named!r}"
        assert any(one is reviewer.judge for one in unplanned), f"without a plan, `judges` returned {unplanned!r}"

    @clause("C26")
    async def test_c26_no_run_has_more_tasks_than_the_worst_case(self) -> None:
        """Whether its members do their tasks or fail."""
        works: tuple[Agent | Function, ...] = (write, fail)
        for work in works:
            show = self.stage(work, tasks=TWO)
            worst: Any = self._member(show, "worst_case")(show.request, show.team)
            assert isinstance(worst, TaskGraph), f"the worst case is a TaskGraph, not {worst!r:.80}"
            assert not show.seen.events, f"`worst_case` emitted {show.seen.types}"
            tasks = len((await show.play()).outcomes)
            most = most_tasks(worst.tasks)
            assert tasks <= most, f"the worst case has {most} tasks, and a run had {tasks}"

    @clause("C27", needs="supports_review supports_plan")
    async def test_c27_a_task_is_reviewed_by_the_evaluator_that_it_names(self) -> None:
        """One of the team's, not the one that the coordinator was made with."""
        own, usual = _passing(), _passing()
        tasks = [Task("named", "Write it.", evaluator="own"), Task("plain", "Write it.")]
        show = self.stage(Writer(), tasks=tasks)
        show.team = replace(show.team, evaluators={"own": own})
        if not self.reviews_named_tasks:
            show.coordinator = self.make_coordinator(evaluator=usual)
        await show.play()
        by_own, by_usual = ([one.task.id for one in reviewer.asked] for reviewer in (own, usual))
        assert by_own == ["named"], f"the task 'named' names the evaluator 'own', which reviewed {by_own}"
        assert "named" not in by_usual, "the task 'named' was also reviewed by the coordinator's evaluator"
