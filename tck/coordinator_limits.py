"""The coordinator kit on limits: C12, they hold at any fan-out, and unused holds come back."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import anyio
from hypothesis import strategies as st

from kairo_team.budget import Budget, BudgetNode, HaltReason, Usage
from kairo_team.contracts import MemberContext
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.results import TeamStatus
from kairo_team.tasks import Assignment, Task
from kairo_team.tck.coordinator_stage import CoordinatorStage, Function, Watched, write
from kairo_team.tck.kit import clause, law
from kairo_team.tck.paid_model import PaidModel
from kairo_team.team import RiskProfile
from kairo_team.testing.scripted import FunctionModel


class Meter(PaidModel):
    """A model that takes a while."""

    def __init__(self, words: int, dollars_per_token: Decimal = Decimal(0)) -> None:
        super().__init__(lambda _: " ".join(["word"] * words), dollars_per_token=dollars_per_token)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        await anyio.sleep(0.1)
        return await super().complete(request)


class Case(NamedTuple):
    """A team that may ask for more than its budget."""

    tasks: int
    calls: int
    """Model calls of an attempt, one after the other."""
    fan: int
    """How many of them at once."""
    words: int
    """Of each reply."""
    tokens: int | None
    cents: int | None
    loops: int | None
    of_member: int | None
    """Tokens that each member may spend, if the team has enough."""
    chain: bool
    """Each task depends on the one before."""

    @property
    def budget(self) -> Budget:
        """The team's."""
        dollars = None if self.cents is None else Decimal(self.cents) / 100
        return Budget(tokens=self.tokens, dollars=dollars, loops=self.loops)

    def member_budget(self, members: int) -> Budget | None:
        """Return the budget of each of that many members; None if the team has too little."""
        of_member = self.of_member
        fits = of_member is not None and (self.tokens is None or of_member * members <= self.tokens)
        return Budget(tokens=of_member) if fits else None


def _some(least: int, most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(least, most)


CASES = st.builds(
    Case,
    tasks=st.integers(1, 6),
    calls=st.integers(1, 3),
    fan=st.integers(1, 4),
    words=st.integers(1, 40),
    tokens=_some(0, 300),
    cents=_some(0, 300),
    loops=_some(1, 8),
    of_member=_some(0, 60),
    chain=st.booleans(),
)


class LimitTests(CoordinatorStage):
    """A run never exceeds its budget."""

    @law("C12", examples=40, case=CASES)
    async def test_c12_spent_never_passes_a_limit_and_the_result_knows_it(self, case: Case) -> None:
        model = Meter(case.words, Decimal("0.01"))
        agent = Watched(_call(model, case.calls, case.fan))
        show = self.stage(
            agent,
            tasks=tasks(case.tasks, chain=case.chain),
            budget=case.budget,
            risk_profile=RiskProfile.LOW,
            task_timeout=None,
        )
        own = case.member_budget(len(show.team.members))
        show.change_members(budget=own)
        result = await show.play()
        paid, usage = model.paid, result.usage
        assert (usage.tokens, usage.dollars) == (paid.tokens, paid.dollars), f"paid was {paid}, the result has {usage}"
        assert usage.loops == len(agent.calls), f"{len(agent.calls)} attempts, the result has {usage.loops} loops"
        assert result.budget is not None, "the result must have its budget tree"
        for node in nodes_of(result.budget):
            _check_within(node.usage, node.budget, node.path)
        for node in result.budget.children:
            if own is not None and node.name in {member.id for member in show.team.members}:
                _check_within(node.usage, own, f"member {node.name!r}")
        _check_within(usage, case.budget, "the run")

    @clause("C12")
    async def test_c12_a_fan_out_of_sixteen_stays_within_the_budget(self) -> None:
        model = Meter(5)
        result = await self.stage(_call(model, 10, 16), tasks=tasks(4), budget=Budget(tokens=250)).play()
        paid, usage = model.paid, result.usage
        assert paid.tokens <= 250, f"250 tokens are the limit, the model was paid {paid}"
        assert usage.tokens == paid.tokens, f"paid was {paid}, the result has {usage}"
        assert result.status is TeamStatus.FAILED, f"the money was not enough, and it ended {result!r}"

    @clause("C12")
    async def test_c12_a_members_own_budget_holds(self) -> None:
        show = self.stage(_call(Meter(5), 10, 4), tasks=tasks(4), risk_profile=RiskProfile.LOW)
        show.change_members(budget=Budget(tokens=50))
        result = await show.play()
        assert result.budget is not None, "the result must have its budget tree"
        names = {member.id for member in show.team.members}
        for node in result.budget.children:
            if node.name in names:
                _check_within(node.usage, Budget(tokens=50), f"member {node.name!r}")

    @clause("C12")
    async def test_c12_no_more_attempts_than_loops(self) -> None:
        agent = Watched(write)
        result = await self.stage(agent, tasks=tasks(5), budget=Budget(loops=1)).play()
        assert len(agent.calls) == 1, f"one loop is allowed, members were called {len(agent.calls)} times"
        assert result.usage.loops == 1, f"the result has {result.usage}"

    @clause("C12", needs="supports_plan")
    async def test_c12_a_run_out_of_money_says_so_and_keeps_what_it_has(self) -> None:
        for risk, wanted in ((RiskProfile.LOW, TeamStatus.DEGRADED), (RiskProfile.MEDIUM, TeamStatus.FAILED)):
            agent = Watched(_pay_ten)
            show = self.stage(agent, tasks=tasks(3, chain=True), budget=Budget(tokens=25), risk_profile=risk)
            result = await show.play()
            assert result.status is wanted, f"two of three tasks were paid for; {wanted.value} is due, not {result!r}"
            halt = HaltReason.TOKEN_BUDGET_EXCEEDED
            assert result.halt is halt, f"`halt` must be why the team stopped: {halt}, not {result.halt}"
            texts = [artifact and artifact.text for artifact in (result["t0"].artifact, result["t1"].artifact)]
            assert texts == ["text of t0", "text of t1"], f"paid work must come back, not {texts}"

    @clause("C12")
    async def test_c12_nothing_is_bought_with_nothing(self) -> None:
        for budget in (Budget(tokens=0), Budget(dollars=0)):
            model = Meter(5, Decimal("0.01"))
            result = await self.stage(_call(model, 1, 1), tasks=tasks(2), budget=budget).play()
            assert not model.calls, f"with {budget} there were {len(model.calls)} model calls"
            assert result.status is TeamStatus.FAILED, f"with {budget} it ended {result!r}"
            assert not result.usage.tokens, f"with {budget} it spent {result.usage}"

    @clause("C12")
    async def test_c12_without_tools_or_dollars_the_rest_goes_on(self) -> None:
        for budget in (Budget(tool_calls=0), Budget(dollars=0)):
            result = await self.stage(_call(Meter(5), 1, 1), tasks=tasks(2), budget=budget).play()
            assert result.status is TeamStatus.COMPLETED, f"with {budget} and a free model it ended {result!r}"

    @clause("C12")
    async def test_c12_what_is_held_comes_back(self) -> None:
        """Calls that hold far more than they use wait for each other, and none is refused."""
        model = Meter(3)
        agent = Watched(_call(model, 2, 1, most=60))
        result = await self.stage(agent, tasks=tasks(8), budget=Budget(tokens=400)).play()
        assert result.status is TeamStatus.COMPLETED, f"there is enough for all, and it ended {result!r}"
        assert result.usage.tokens == model.paid.tokens, f"paid was {model.paid}, the result has {result.usage}"

    @clause("C12")
    async def test_c12_a_reply_that_hides_its_usage_is_charged(self) -> None:
        model = FunctionModel(lambda _: ModelResponse("word", usage=None))
        result = await self.stage(_call(model, 1000, 1), budget=Budget(tokens=500)).play()
        assert result.status is TeamStatus.FAILED, f"1000 calls on 500 tokens, and it ended {result!r}"
        assert 0 < result.usage.tokens <= 500, f"the calls cost {result.usage.tokens} of 500 tokens"

    @clause("C12")
    async def test_c12_a_model_without_a_price_is_not_called_under_a_limit_in_dollars(self) -> None:
        model = _Unpriced()
        result = await self.stage(_call(model, 1, 1), budget=Budget(dollars=1)).play()
        assert not model.calls, "its price is unknown, and it was called"
        assert result.status is TeamStatus.FAILED, f"it ended {result!r}"


async def _pay_ten(assignment: Assignment, context: MemberContext) -> str:
    context.governor.record_usage(prompt_tokens=10)
    return await write(assignment, context)


class _Unpriced:
    """A model without a price."""

    name = "kit:unpriced"

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.calls += 1
        return ModelResponse("word", usage=Usage(1, 1))


def tasks(count: int, *, chain: bool = False) -> list[Task]:
    """Return `count` tasks, independent or in a chain."""
    after = [[f"t{number - 1}"] if chain and number else [] for number in range(count)]
    return [Task(f"t{number}", "Do it.", depends_on=names) for number, names in enumerate(after)]


def _call(model: Any, calls: int, fan: int, most: int = 20) -> Function:
    """Return a function that makes `calls` calls of a model in a row, in `fan` tasks at once."""
    request = ModelRequest([Message.user("Write about tides, please.")], max_tokens=most)

    async def ask(context: MemberContext, refused: list[Exception]) -> None:
        governed = context.model(model)
        try:
            for _ in range(calls):
                await governed.complete(request)
        except Exception as error:  # noqa: BLE001 - raised below
            refused.append(error)

    async def work(assignment: Assignment, context: MemberContext) -> str:
        refused: list[Exception] = []
        async with anyio.create_task_group() as group:  # the refusal of one call does not cut another off
            for _ in range(fan):
                group.start_soon(ask, context, refused)
        if refused:
            raise refused[0]
        return f"text of {assignment.task.id}"

    return work


def nodes_of(node: BudgetNode) -> Iterator[BudgetNode]:
    """Yield a node of a budget tree and all below it."""
    yield node
    for child in node.children:
        yield from nodes_of(child)


def _check_within(usage: Usage, budget: Budget, where: str) -> None:
    for field in ("tokens", "dollars", "loops"):
        spent, limit = getattr(usage, field), getattr(budget, field)
        assert limit is None or spent <= limit, f"{where} spent {spent} {field} of {limit}"
