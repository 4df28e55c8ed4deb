"""The kit of `Planner`: valid plans, and the limits on making one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

import anyio
import pytest
from hypothesis import strategies as st

from kairo_team.api import check
from kairo_team.budget import Budget
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.messages import ModelRequest
from kairo_team.tasks import Task, TaskGraph
from kairo_team.tck.calls import skip_unless
from kairo_team.tck.kit import clause, law
from kairo_team.tck.paid_model import PaidModel
from kairo_team.tck.planner_stage import (
    NOT_A_PLAN,
    Bystander,
    Planned,
    PlannerStage,
    ask,
    two_tasks,
)
from kairo_team.team import Team, TeamExecutionRequest

_NAMES = st.lists(st.sampled_from(["ann", "ben", "cid", "d.e-f_9"]), min_size=1, max_size=5)
_GOALS = st.sampled_from(["Write about tides.", "x", "Räume {{ goal }} auf", '"}]', "one\n\ntwo"])


_EVERY_FORM: Final = {"no tasks", "an unknown member"}
"""Faults that every form of a plan can have; a form without ids or dependencies cannot have the others."""


def _bad_plans(team: Team) -> dict[str, list[Task]]:
    """Return invalid plans for a team, by fault."""
    member = team.members[0].id
    one = Task("a", "Do it.", member=member)
    return {
        "no tasks": [],
        "an unknown member": [one, Task("b", "Sing.", member="nobody-we-know")],
        "an unknown dependency": [Task("a", "Do it.", member=member, depends_on=["zero"])],
        "a cycle": [
            Task("a", "Do it.", member=member, depends_on=["b"]),
            Task("b", "Do it.", member=member, depends_on=["a"]),
        ],
        "itself as a dependency": [Task("a", "Do it.", member=member, depends_on=["a"])],
        "one id twice": [one, one],
    }


def _without_fault(tasks: list[Task]) -> list[Task]:
    """Return tasks with ids of their own and no dependencies, which a form without either writes as it does `tasks`."""
    return [replace(task, id=f"{task.id}{place or ''}", depends_on=()) for place, task in enumerate(tasks)]


class PlannerTCK(PlannerStage):
    """The contract kit of planners: override `make_planner`, and `write_plan` if the planner asks a model."""

    # ------------------------------------------------------------------ what a plan is

    @law("C1", names=_NAMES, goal=_GOALS)
    async def test_c01_a_plan_is_a_graph_of_tasks(self, names: list[str], goal: str) -> None:
        """For any team and goal."""
        planned = await self.plan(team=self.make_team(*names), request=TeamExecutionRequest(goal))
        assert planned.tasks, f"no task for a team of {names}, {goal!r}"

    @law("C3", names=_NAMES, goal=_GOALS)
    async def test_c03_the_team_can_do_what_is_planned(self, names: list[str], goal: str) -> None:
        """For any team and goal; several members may share a role."""
        planned = await self.plan(team=self.make_team(*names), request=TeamExecutionRequest(goal))
        _check_runs(planned, f"a team of {names}, {goal!r}")

    @clause("C1", "C7", needs="asks_model")
    async def test_c01_without_a_plan_it_raises(self) -> None:
        """A bad reply, or a model that cannot be reached, does not give None or an empty plan."""
        for answer in (NOT_A_PLAN, "", "null", "[]", "{}", ConnectionError("no line")):
            planned = await self.plan(answer)
            _check_raised(planned, f"the model answered {answer!r}")

    # ------------------------------------------------------------------ what planning is not

    @clause("C2")
    async def test_c02_no_member_is_called(self) -> None:
        """A plan uses what the team declares."""
        agent = Bystander()
        await self.plan(team=self.make_team("ann", "ben", agent=agent))
        assert not agent.asked, f"{agent.asked[0].task.id!r} was done while the plan was made"

    @clause("C2")
    async def test_c02_request_and_team_stay_as_they_are(self) -> None:
        """Whatever is in them."""
        team = self.make_team("ann", "ben")
        request = TeamExecutionRequest("Write about tides.", {"for": ["children"]})
        before = (repr(team), repr(request.context), request.goal)
        planned = await self.plan(team=team, request=request)
        after = (repr(team), repr(planned.request.context), planned.request.goal)
        assert after == before, f"{before} became {after}"

    @clause("C4")
    async def test_c04_one_object_plans_for_many_teams(self) -> None:
        """At once and in sequence, every plan is for the requested team."""
        teams = {"alpha": self.make_team("ann", "ben"), "beta": self.make_team("cid", "dot", "eve")}
        model = PaidModel(lambda request: self._by_goal(request, teams))
        planner = self.make_planner(model)
        plans = [_open(model, teams[name], name) for name in ("alpha", "beta", "alpha", "beta")]
        async with anyio.create_task_group() as group:
            for planned in plans[:3]:
                group.start_soon(ask, planner, planned)
        await ask(planner, plans[3])
        for planned in plans:
            _check_runs(planned, f"one of several, {planned.request.goal!r}")

    @clause("C4", needs="asks_model")
    async def test_c04_one_object_plans_again_for_a_team(self) -> None:
        """For another goal, also after it found no plan for one."""
        team = self.make_team("ann", "ben")
        model = PaidModel(lambda request: NOT_A_PLAN if "beta" in _text(request) else self.answer(two_tasks(team)))
        planner = self.make_planner(model)
        for goal in ("alpha", "beta", "gamma"):
            planned = _open(model, team, goal)
            await ask(planner, planned)
            assert any(goal in _text(one) for one in model.calls), f"its model was not asked about the goal {goal!r}"
            if goal == "beta":
                _check_raised(planned, "the model had no plan")
            else:
                _check_runs(planned, f"the goal {goal!r}, with one object")

    @clause("C8", needs="supports_preview")
    async def test_c08_the_preview_is_the_plan(self) -> None:
        """The preview makes no model call."""
        for names in (["ann"], ["ann", "ben"], ["cid", "dot", "eve"]):
            team, request = self.make_team(*names), TeamExecutionRequest("Write about tides.")
            planned = await self.plan(team=team, request=request)
            model = PaidModel(lambda _: NOT_A_PLAN)
            planner: Any = self.make_planner(model)
            shown = planner.preview(request, team)
            assert shown == planned.graph, f"the preview is {shown!r}, the plan {planned.graph!r}"
            assert not model.calls, "the preview asked a model"

    # ------------------------------------------------------------------ a model's answers

    @clause("C7", needs="asks_model")
    async def test_c07_an_answer_that_cannot_be_run_is_sent_back_once_at_most(self) -> None:
        """The second reply counts, and is checked like the first."""
        team = self.make_team("ann", "ben")
        for name, tasks in self._bad_plans(team).items():
            planned = await self.plan(self.answer(tasks), self.answer(two_tasks(team)), team=team)
            asked = planned.model.calls
            assert len(asked) <= 2, f"a plan with {name}: the model was asked {len(asked)} times"
            if len(asked) == 2:
                assert _text(asked[1]) != _text(asked[0]), f"a plan with {name}: its model was not given what is wrong"
                _check_runs(planned, f"the answer to a plan with {name}")
            else:
                _check_raised(planned, f"a plan with {name}")

    @clause("C7", needs="asks_model")
    async def test_c07_a_plan_in_a_code_fence_or_between_sentences_is_read(self) -> None:
        """Only for plans that are written in JSON."""
        team = self.make_team("ann", "ben")
        written = self.answer(two_tasks(team))
        if not written.lstrip().startswith("{"):
            pytest.skip("its model does not write plans in JSON")
        for said in (f"```json\n{written}\n```", f"~~~\n{written}\n~~~", f"Here it is:\n{written}\nThat is all."):
            planned = await self.plan(said, team=team)
            _check_runs(planned, f"the model answered {said!r:.200}")
            asked = len(planned.model.calls)
            assert asked == 1, f"the model answered {said!r:.200}, and was asked {asked} times"

    @clause("C7", needs="asks_model")
    async def test_c07_a_second_answer_that_cannot_be_run_is_the_last(self) -> None:
        """The planner returns no substitute for a plan: the caller decides what to do without one."""
        team = self.make_team("ann", "ben")
        for name, tasks in self._bad_plans(team).items():
            planned = await self.plan(self.answer(tasks), team=team)
            _check_raised(planned, f"a plan with {name}, twice")
            calls = len(planned.model.calls)
            assert calls <= 2, f"a plan with {name}: the model was asked {calls} times"

    @clause("C7", needs="asks_model")
    async def test_c07_a_plan_is_sent_back_with_its_own_faults(self) -> None:
        """Plans with different faults are not sent back with the same words."""
        team = self.make_team("ann", "ben")
        words: dict[str, str] = {}
        for name, tasks in self._bad_plans(team).items():
            calls = (await self.plan(self.answer(tasks), self.answer(two_tasks(team)), team=team)).model.calls
            if len(calls) > 1:
                # The model's own reply, which is sent back too, names no fault.
                words[name] = "\n".join(one.text for one in calls[1].messages if one.role != "assistant")
        skip_unless(len(words) > 1, "it sends no plan back")
        assert len(set(words.values())) > 1, (
            f"plans with {', '.join(words)} were sent back, and its model was asked the same each time: "
            f"{next(iter(words.values()))[-300:]!r}"
        )

    def _bad_plans(self, team: Team) -> dict[str, list[Task]]:
        """Return the invalid plans that the planner's form can write."""
        return {
            name: tasks
            for name, tasks in _bad_plans(team).items()
            if name in _EVERY_FORM or self.answer(tasks) != self.answer(_without_fault(tasks))
        }

    @clause("C9", needs="supports_replan")
    async def test_c09_a_plan_that_is_there_is_kept(self) -> None:
        """New tasks are added to the plan, and may depend on the tasks there."""
        team = self.make_team("ann", "ben")
        kept = two_tasks(team)
        new = Task("more", "Go on.", member="ben", depends_on=["search"])
        request = TeamExecutionRequest("Write about tides.", plan=TaskGraph(kept))
        planned = await self.plan(self.answer([new]), team=team, request=request)
        _check_runs(planned, "beside a plan")
        tasks = {task.id: task for task in planned.tasks}
        for task in kept:
            assert tasks.get(task.id) == task, f"{task.id!r} became {tasks.get(task.id)!r}"
        assert len(tasks) > len(kept), "there is no new task"

    @clause("C9", needs="supports_replan asks_model")
    async def test_c09_no_id_is_used_again(self) -> None:
        """A plan with a new task that has the id of a kept one is invalid."""
        team = self.make_team("ann", "ben")
        request = TeamExecutionRequest("Write about tides.", plan=TaskGraph(two_tasks(team)))
        again = self.answer([Task("search", "Look it up again.", member="ben")])
        _check_raised(await self.plan(again, team=team, request=request), "an id that is taken")

    # ------------------------------------------------------------------ money and ends

    @clause("C6", needs="asks_model")
    async def test_c06_what_planning_spends_is_counted(self) -> None:
        """Also the calls that lead to no plan."""
        for answers in ((), (NOT_A_PLAN,)):
            planned = await self.plan(*answers)
            spent = planned.model.spent
            assert spent > 0, "the model was not asked"
            assert planned.usage == spent, f"planning spent {spent} tokens, the run booked {planned.usage}"

    @clause("C6", needs="asks_model")
    async def test_c06_planning_never_passes_the_budget(self) -> None:
        """However little there is."""
        enough = (await self.plan()).model.spent
        for tokens in (0, 1, enough // 4, enough // 2, enough - 1, enough, 2 * enough):
            spent = (await self.plan(budget=Budget(tokens=tokens))).model.spent
            assert spent <= tokens, f"of {tokens} tokens, planning spent {spent}"

    @clause("C5", needs="asks_model")
    async def test_c05_a_refusal_of_money_passes_through(self) -> None:
        """The refusal does not lead to another plan: with less budget than its question costs, nothing is planned."""
        question = (await self.plan()).model.calls[0]
        planned = await self.plan(budget=Budget(tokens=len(_text(question).split()) - 1))
        assert planned.graph is None, f"it had no money for a question, and planned {planned.graph!r}"
        assert isinstance(planned.error, HaltError | InsufficientBudget), f"the halt became {planned.error!r}"

    @clause("C5", needs="asks_model")
    async def test_c05_cancellation_passes_through(self) -> None:
        """A planner that waits for its model ends when its caller is cancelled."""
        came_back: list[object] = []

        async def hang(request: ModelRequest) -> str:
            await anyio.sleep_forever()
            raise AssertionError("unreachable")

        model, team = PaidModel(hang), self.make_team("ann", "ben")
        planned = _open(model, team, "Write about tides.")
        with anyio.move_on_after(5) as scope:
            await ask(self.make_planner(model), planned)
            came_back.append(planned.graph)
        assert scope.cancelled_caught, f"it was cancelled, and came back with {came_back}"
        assert planned.graph is None, f"it was cancelled, and returned {planned.graph!r}"

    def _by_goal(self, request: ModelRequest, teams: dict[str, Team]) -> str:
        """Answer with a plan for the team whose goal is asked about."""
        named = [name for name in teams if name in _text(request)]
        assert len(named) == 1, f"the model's request has the goals {named}, not one"
        return self.answer(two_tasks(teams[named[0]]))


def _open(model: PaidModel, team: Team, goal: str) -> Planned:
    return Planned(model, team, TeamExecutionRequest(goal))


def _text(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages)


def _check_runs(planned: Planned, where: str) -> None:
    """Check that there is a plan, and that the team can run it."""
    assert planned.tasks, where
    request = TeamExecutionRequest(planned.request.goal, plan=cast("TaskGraph", planned.graph))
    found = check(planned.team, request)
    assert found.ok, f"{where}: the team cannot run it: {'; '.join(found.problems)}"


def _check_raised(planned: Planned, where: str) -> None:
    assert planned.graph is None, f"{where}: it returned {planned.graph!r:.200}"
    assert isinstance(planned.error, Exception), f"{where}: it raised nothing, and returned None"
