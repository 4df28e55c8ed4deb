"""Coordinators that are wrong about money; the kit must reject each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.governance import Governor
from kairo_team.messages import ModelRequest, ModelResponse
from tests.mutants.honest import Arming, Context, Honest, HonestTCK, change_config
from tests.mutants.kit_mutant import registry_of

MUTANTS, mutant = registry_of(HonestTCK)


class Model:
    """A model that a member calls, with another way to pay for it."""

    def __init__(self, model: Any, context: Any) -> None:
        self.model = model
        self.context = context
        self.name: str = model.name

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Call it, and do something about the money."""
        response: ModelResponse = await self.model.complete(request)
        return response

    def book(self, response: ModelResponse) -> None:
        usage = response.usage or kt.Usage()
        self.context.governor.record_usage(usage.prompt_tokens, usage.completion_tokens, usage.dollars)


class _Ungoverned(Context):
    """A context whose models are paid for in another way."""

    def __init__(self, context: Any, kind: type[Model]) -> None:
        super().__init__(context)
        self.kind = kind

    def model(self, model: ChatModel) -> Any:
        return self.kind(model, self)


class Paying(Arming):
    """Its members pay for models in another way."""

    kind: type[Model] = Model

    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        return assignment, _Ungoverned(context, self.kind)


# ---------------------------------------------------------------- calls


class _Checked(Model):
    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.context.governor.can_proceed()
        response = await super().complete(request)
        self.book(response)
        return response


@mutant("B01", clause="C12")
class ChecksCallsAndRecords(Paying):
    """Nothing is held between the check and the record of a call."""

    kind = _Checked


class _PaidFirst(Model):
    async def complete(self, request: ModelRequest) -> ModelResponse:
        response = await super().complete(request)
        self.book(response)
        return response


@mutant("B05", clause="C12")
class ChecksAfterwards(Paying):
    """The limit is seen once the call is paid."""

    kind = _PaidFirst


class _Hidden(Context):
    def model(self, model: ChatModel) -> Any:
        return self.real.model(_ZeroUsage(model, self.real))


class _ZeroUsage(Model):
    async def complete(self, request: ModelRequest) -> ModelResponse:
        response = await super().complete(request)
        return response if response.usage is not None else replace(response, usage=kt.Usage())


@mutant("B17", clause="C12")
class AMissingUsageIsNothing(Arming):
    """A reply without usage costs nothing."""

    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        return assignment, _Hidden(context)


class _Hoarding(Context):
    def model(self, model: ChatModel) -> Any:
        self.governor.reserve(tokens=60)
        return self.real.model(model)


@mutant("B18", clause="C12")
class HoldsForEver(Arming):
    """What was held for the worst case never comes back."""

    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        return assignment, _Hoarding(context)


@mutant("B12", clause="C12")
class AnUnknownModelIsFree(Honest):
    """A model whose price nobody knows is called under a limit in dollars."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        return await super().execute(change_config(request, budget_policy=kt.BudgetPolicy(allow_unpriced=True)), team)


# ---------------------------------------------------------------- the tree


class _Separate(Context):
    """A context with an account of its own."""

    def __init__(self, context: Any, budget: kt.Budget) -> None:
        super().__init__(context)
        self.governor = Governor(budget, name=context.governor.name)


@mutant("B02", clause="C12")
class GivesEachAttemptAFreshAccount(Arming):
    """Each attempt has an account of its own, which no other knows of."""

    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        return assignment, _Separate(context, context.remaining)


@mutant("B03", clause="C12")
class GivesEachTaskMostOfIt(Paying):
    """Each task may spend six tenths of the team's tokens, however many there are."""

    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        left = context.remaining.tokens
        own = _Separate(context, kt.Budget(tokens=None if left is None else left * 6 // 10))
        return assignment, _Ungoverned(own, _Checked)


@mutant("B04", clause="C12")
class NothingIsUnlimited(Honest):
    """A limit of 0 is read as no limit."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        budget = request.config.budget
        limits = {name: getattr(budget, name) or None for name in ("tokens", "dollars", "loops", "tool_calls")}
        return await super().execute(change_config(request, budget=replace(budget, **limits)), team)


@mutant("B23", clause="C12")
class NeverReadsMemberBudgets(Honest):
    """`Member.budget` is a setting that nobody reads."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        free = tuple(replace(member, budget=None) for member in team.members)
        return await super().execute(request, replace(team, members=free))


# ---------------------------------------------------------------- what is told


@mutant("B13", clause="C12")
class FailedAttemptsCostNothing(Honest):
    """What a failed attempt spent is not counted."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        paid = [one.usage for one in result.outcomes if one.status is kt.TaskStatus.COMPLETED]
        return replace(result, usage=sum(paid, kt.Usage()))


@mutant("B06", clause="C12")
class ACutRunCostNothing(Honest):
    """At a deadline or a kill what was spent is lost."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        cut = result.status in {kt.TeamStatus.TIMEOUT, kt.TeamStatus.CANCELLED}
        return replace(result, usage=kt.Usage()) if cut else result


@mutant("B11", clause="C12")
class CountsDollarsInFloats(Honest):
    """Dollars are added up as floats."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        floats = sum(float(one.usage.dollars) for one in result.outcomes)
        return replace(result, usage=replace(result.usage, dollars=Decimal(floats)))


@mutant("B16", clause="C12")
class CountsRunsTogether(Honest):
    """What one run spent counts in the next."""

    def __init__(self) -> None:
        self.spent = kt.Usage()

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        self.spent += result.usage
        return replace(result, usage=self.spent)
