"""Planners that are wrong in one way each; the kit must reject every one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from anyio.lowlevel import checkpoint

import kairo_team as kt
from kairo_team.contracts import ChatModel, Planner
from kairo_team.coordinators import AgentPlanner, RolePlanner
from kairo_team.errors import NoPlan
from kairo_team.tck import PlannerTCK
from tests.mutants.kit_mutant import registry_of
from tests.tck.test_planner_kits import TestAgentPlanner as _AgentPlannerKit


class _AskingKit(_AgentPlannerKit):
    kind: ClassVar[type[AgentPlanner]] = AgentPlanner

    @classmethod
    def make_planner(cls, model: ChatModel) -> Planner:
        return cls.kind(model)


class _PlainKit(PlannerTCK):
    kind: ClassVar[type[RolePlanner]] = RolePlanner
    supports_preview = True

    @classmethod
    def make_planner(cls, model: ChatModel) -> Planner:
        return cls.kind()


MUTANTS, mutant = registry_of(_AskingKit, _PlainKit)


def one_task(request: kt.TeamExecutionRequest) -> kt.TaskGraph:
    """Return the goal as a plan."""
    return kt.TaskGraph([kt.Task("task", request.goal)])


# ---------------------------------------------------------------- what a plan is


@mutant("T19", clause="C1")
class PlansNothing(AgentPlanner):
    """Where there is no plan, None comes back."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> Any:
        try:
            return await super().plan(request, team, context)
        except NoPlan:
            return None


@mutant(clause="C1")
class ReturnsItsTasks(RolePlanner):
    """A list of tasks comes back, which nobody has looked at as a graph."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> Any:
        return list(self.preview(request, team).tasks)


@mutant("T05", clause="C2")
class AsksAMember(RolePlanner):
    """A member is called to see what it would do."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        task = kt.Task("try", request.goal)
        await team.members[0].agent.run(kt.Assignment(task, request.goal, {}, {}, {}), context)
        return await super().plan(request, team, context)


@mutant("T10", clause="C3")
class NamesRolesByHeart(RolePlanner):
    """Tasks are for a writer, whoever is on the team."""

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        return kt.TaskGraph([kt.Task("text", request.goal, role="writer")])


@mutant("T10", clause="C3")
class WantsTooMuch(RolePlanner):
    """One task needs what no single member can do."""

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        everything = {one for member in team.members for one in member.role.capabilities}
        return kt.TaskGraph([kt.Task("all", request.goal, requires=everything)])


@mutant("T16", clause="C4")
class KeepsItsFirstTeam(RolePlanner):
    """The first team's roles are kept, for all later plans."""

    first: kt.Team | None = None

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        self.first = self.first or team
        return super().preview(request, self.first)


@mutant("T16", clause="C4")
class KeepsTheTeamItPlansFor(AgentPlanner):
    """The team stands on the planner while it plans: a plan beside it finds the other's."""

    team: kt.Team

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        self.team = team
        await checkpoint()
        return await super().plan(request, self.team, context)


@mutant(clause="C8")
class PreviewsSomethingElse(RolePlanner):
    """The preview is one task, the plan is not."""

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        return one_task(request)

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        return super().preview(request, team)


@mutant(clause="C9")
class PlansAnew(AgentPlanner):
    """A plan that is there is thrown away."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        graph = await super().plan(request, team, context)
        kept = [] if request.plan is None else [task.id for task in request.plan.tasks]
        return kt.TaskGraph([replace(task, depends_on=()) for task in graph.tasks if task.id not in kept])


# ---------------------------------------------------------------- halts and money


@mutant("U05", clause="C5")
class PlansOnWhenCancelled(AgentPlanner):
    """Whatever happens, there is a plan: also when nobody waits for it any more."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        try:
            return await super().plan(request, team, context)
        except Exception:
            raise
        except BaseException:  # noqa: BLE001 - that is what is wrong with it
            return one_task(request)


@mutant("B10", clause="C5")
class PlansWithoutMoney(AgentPlanner):
    """A halt is a reason for a simpler plan."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        try:
            return await super().plan(request, team, context)
        except (kt.HaltError, kt.InsufficientBudget):
            return one_task(request)


@mutant("B10", clause="C5")
class FlattensHalts(AgentPlanner):
    """A halt becomes an error like any other."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        try:
            return await super().plan(request, team, context)
        except Exception as error:  # noqa: BLE001 - that is what is wrong with it
            raise RuntimeError(str(error)) from None


@mutant("B13", clause="C6")
class PlansForFree(AgentPlanner):
    """The model is asked past the run, which neither holds nor counts it."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        class Past:
            render = context.render

            def model(self, model: Any) -> Any:
                return model

        past: Any = Past()
        return await super().plan(request, team, past)


# ---------------------------------------------------------------- a model's answers


@mutant("T11", clause="C7")
class FallsBackByItself(AgentPlanner):
    """Where no answer can be run, one task takes the place of the plan."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        try:
            return await super().plan(request, team, context)
        except NoPlan:
            return one_task(request)


@mutant("T25", clause="C7")
class AsksUntilItLikesIt(AgentPlanner):
    """An answer that cannot be run is sent back again and again."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        for _ in range(5):
            try:
                return await super().plan(request, team, context)
            except NoPlan:
                continue
        return await super().plan(request, team, context)


@mutant("T25", clause="C7")
class TakesAnyMember(AgentPlanner):
    """Nobody looks whether the members that a plan names are there."""

    def _read(self, text: str, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        stranger = kt.Member("nobody-we-know", team.members[0].agent)
        return super()._read(text, request, kt.Team("kit", [*team.members, stranger]))


@mutant(clause="C7")
class ReadsJsonAlone(AgentPlanner):
    """A plan with a word or a fence around it is sent back."""

    def _read(self, text: str, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        if not text.startswith("{"):
            raise NoPlan(["it is not JSON"])
        return super()._read(text, request, team)


@mutant("T25", clause="C7")
class CutsCycles(AgentPlanner):
    """What depends on itself in the end is done in the order it was written."""

    def _read(self, text: str, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        try:
            return super()._read(text, request, team)
        except NoPlan as refused:
            if "cycle" in str(refused):
                return one_task(request)
            raise


@mutant(clause="C7")
class AsksTheSameAgain(AgentPlanner):
    """A model whose answer cannot be run is asked again, and not told what is wrong with it."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        model = context.model(self.model)
        ask = context.render("plan", request=request, team=team, max_tasks=20, growth=self.growth)
        for last in (False, True):
            reply = await model.complete(kt.ModelRequest([kt.Message.user(ask)]))
            try:
                return self._read(reply.text, request, team)
            except NoPlan:
                if last:
                    raise
        raise AssertionError("unreachable")


@mutant(clause="C7")
class DoesNotSayWhatIsWrong(AgentPlanner):
    """A model whose answer cannot be run is told so, and not what is wrong with it."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        model = context.model(self.model)
        ask = context.render("plan", request=request, team=team, max_tasks=20, growth=self.growth)
        reply = await model.complete(kt.ModelRequest([kt.Message.user(ask)]))
        try:
            return self._read(reply.text, request, team)
        except NoPlan:
            again = [kt.Message.assistant(reply.text), kt.Message.user("That is no plan. Try again.")]
        reply = await model.complete(kt.ModelRequest([kt.Message.user(ask), *again]))
        return self._read(reply.text, request, team)


@mutant("T16", clause="C4")
class PlansOncePerTeam(AgentPlanner):
    """A team that it planned for gets the same plan again, whatever the goal."""

    known: dict[str, kt.TaskGraph] | None = None

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        self.known = self.known or {}
        members = " ".join(member.id for member in team.members)
        if members not in self.known:
            self.known[members] = await super().plan(request, team, context)
        return self.known[members]
