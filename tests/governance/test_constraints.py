"""Constraints by themselves: what they look at, what they answer, and a chain in which every failure stops."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

import kairo_team as kt
from kairo_team.governance import (
    AgentState,
    ConstraintChain,
    ConstraintReport,
    CostLimit,
    ExternalSignal,
    MaxIterations,
    ResourceAction,
    ResourceConstraint,
    ResourceContext,
    ResourceValidation,
    Timeout,
    TokenBudget,
    WarnAt,
)

pytestmark = pytest.mark.anyio

ALLOW, WARN, EXIT, STOP = (
    ResourceAction.ALLOW,
    ResourceAction.WARN_CONTINUE,
    ResourceAction.GRACEFUL_EXIT,
    ResourceAction.EMERGENCY_STOP,
)
FINE = ResourceValidation(violated=False)
NOW = ResourceContext()


class Fixed:
    """A constraint that always finds the same and asks for the same."""

    def __init__(self, action: Any = None, found: Any = None, name: str | None = None) -> None:
        self.action = action
        self.found = found if found is not None else ResourceValidation(action is not None, "because", {"n": 1})
        self.asked = 0
        if name is not None:
            self.name = name

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        self.asked += 1
        if isinstance(self.found, BaseException):
            raise self.found
        found: ResourceValidation = self.found
        return found

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        if isinstance(self.action, BaseException):
            raise self.action
        action: ResourceAction = self.action
        return action


# ---------------------------------------------------------------- values


def test_actions_compare_by_severity_and_not_by_the_alphabet() -> None:
    assert [action.severity for action in ResourceAction] == [0, 1, 2, 3]
    assert sorted([STOP, WARN, ALLOW, EXIT]) == [ALLOW, WARN, EXIT, STOP]
    assert max(WARN, STOP, EXIT) is STOP
    assert ALLOW < WARN <= EXIT < STOP > EXIT >= WARN > ALLOW
    assert not STOP < WARN


@pytest.mark.parametrize("reason", ["", "  \n", None, 5])
def test_a_violation_needs_a_reason(reason: Any) -> None:
    with pytest.raises(ValueError, match="a violation needs a reason in words"):
        ResourceValidation(True, reason)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResourceValidation(1, "one"), "violated must be True or False, not 1"),  # type: ignore[arg-type]
        (lambda: ResourceValidation(False, "", [1]), "must be a mapping of JSON values"),  # type: ignore[arg-type]
        (lambda: ResourceValidation(False, "", {"x": object()}), "must be made of JSON values"),
        (lambda: ResourceValidation(False, "", {"x": float("nan")}), "must be made of JSON values"),
        (lambda: ResourceContext(iteration=-1), "ResourceContext.iteration must be a whole number >= 0, not -1"),
        (lambda: ResourceContext(tokens_used=-1), "ResourceContext.tokens_used"),
        (lambda: ResourceContext(elapsed=float("inf")), "ResourceContext.elapsed must be a finite number of seconds"),
        (lambda: AgentState(turns_completed=-1), "AgentState.turns_completed"),
        (lambda: AgentState(tool_calls_executed=True), "AgentState.tool_calls_executed"),
    ],
)
def test_values_are_checked_where_they_are_built(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("value", [NOW, NOW.agent_state, FINE, ConstraintReport(ALLOW)], ids=lambda v: type(v).__name__)
def test_values_are_frozen_and_can_be_replaced(value: Any) -> None:
    field = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, getattr(value, field))
    assert dataclasses.replace(value) == value


def test_metrics_and_messages_are_copied_read_only() -> None:
    metrics, messages = {"rows": [1]}, [kt.Message.user("hello")]
    validation, state = ResourceValidation(False, "", metrics), AgentState(messages)
    metrics["rows"].append(2)
    messages.clear()
    assert validation.metrics == {"rows": (1,)}
    assert [message.text for message in state.messages] == ["hello"]
    with pytest.raises(TypeError, match="part of a frozen value"):
        validation.metrics["rows"] = 1  # type: ignore[index]  # the mistake is the point


# ---------------------------------------------------------------- the chain


async def test_an_empty_chain_allows() -> None:
    assert await ConstraintChain().evaluate(NOW) == ConstraintReport(ALLOW, (), None)


async def test_a_chain_in_which_nothing_is_violated_allows() -> None:
    report = await ConstraintChain([MaxIterations(5), TokenBudget(100)]).evaluate(ResourceContext(3, 10, 1.0))
    assert (report.action, report.decided_by, report.violations) == (ALLOW, None, ())
    assert [validation.metrics["used"] for validation in report.validations] == [3, 10]


@pytest.mark.parametrize(
    ("actions", "decides", "asked"),
    [
        ([None, WARN, None], 1, 3),
        ([WARN, EXIT, WARN], 1, 3),
        ([EXIT, EXIT], 0, 2),
        ([ALLOW, WARN], 1, 2),
        ([WARN, STOP, STOP, WARN], 1, 2),
        ([EXIT, STOP], 1, 2),
    ],
)
async def test_the_most_severe_action_wins_and_the_first_stop_ends_it(
    actions: list[Any], decides: int, asked: int
) -> None:
    """In registration order; what was found until then is kept."""
    constraints: list[Any] = [Fixed(action, name=f"c{place}") for place, action in enumerate(actions)]
    report = await ConstraintChain(constraints).evaluate(NOW)
    assert (report.action, report.decided_by) == (actions[decides], f"c{decides}")
    assert len(report.validations) == asked
    assert [constraint.asked for constraint in constraints] == [1] * asked + [0] * (len(actions) - asked)
    assert [violation.position for violation in report.violations] == [
        place for place in range(asked) if actions[place] is not None
    ]


async def test_a_name_is_the_constraints_own_or_that_of_its_class() -> None:
    constraints: list[ResourceConstraint] = [Fixed(WARN), Fixed(WARN, name="mine"), Fixed(WARN, name=" "), Timeout(1)]
    report = await ConstraintChain(constraints).evaluate(ResourceContext(elapsed=1.0))
    assert [violation.constraint for violation in report.violations] == ["Fixed", "mine", "Fixed", "timeout"]


FAILURES: list[tuple[Any, str]] = [
    (Fixed(found=ValueError("no table")), "it failed with ValueError: no table"),
    (Fixed(found=kt.InsufficientBudget("tokens", 5, 1, "run")), "it failed with InsufficientBudget"),
    (Fixed(found="fine"), "it failed with TypeError: it returned 'fine', not a ResourceValidation"),
    (Fixed(found=True), "it returned True, not a ResourceValidation"),
    (Fixed(ZeroDivisionError("oops"), found=ResourceValidation(True, "x")), "it failed with ZeroDivisionError: oops"),
    (Fixed("graceful_exit"), "it returned 'graceful_exit', not a ResourceAction"),
    (Fixed(None, found=ResourceValidation(True, "x")), "it returned None, not a ResourceAction"),
]


@pytest.mark.parametrize(("constraint", "why"), FAILURES)
async def test_kf_b22_a_constraint_that_raises_or_returns_nonsense_stops_and_is_named(
    constraint: Any, why: str
) -> None:
    """Other systems ignored it, or the guard itself broke."""
    last = Fixed(WARN)
    report = await ConstraintChain([Fixed(WARN), constraint, last]).evaluate(NOW)
    assert (report.action, report.decided_by, last.asked) == (STOP, "Fixed", 0)
    violation = report.violations[-1]
    assert why in violation.reason
    assert violation.position == 1
    assert "error" in violation.validation.metrics
    assert report.validations[-1] is violation.validation


async def test_kf_b22_an_async_on_violation_fails_closed_and_a_sync_validate_is_refused() -> None:
    class AsyncDecision(Fixed):
        async def on_violation(self, validation: ResourceValidation) -> ResourceAction:  # type: ignore[override]
            return ALLOW

    class SyncLook(Fixed):
        def validate(self, context: ResourceContext) -> ResourceValidation:  # type: ignore[override]
            return FINE

    late, plain = cast("Any", AsyncDecision(WARN)), cast("Any", SyncLook())
    report = await ConstraintChain([late]).evaluate(NOW)
    assert (report.action, report.decided_by) == (STOP, "AsyncDecision")
    with pytest.raises(
        ValueError, match=r"SyncLook\.validate is not an async function: write async def validate\(context\)"
    ):
        ConstraintChain([plain])


async def test_what_a_constraint_measured_is_kept_when_its_decision_fails() -> None:
    report = await ConstraintChain([Fixed("nonsense")]).evaluate(NOW)
    assert report.validations[0].metrics["n"] == 1


async def test_cancellation_passes_through_a_chain() -> None:
    class Hangs(Fixed):
        async def validate(self, context: ResourceContext) -> ResourceValidation:
            await anyio.sleep_forever()
            raise AssertionError

    with anyio.move_on_after(1) as scope:
        await ConstraintChain([Hangs()]).evaluate(NOW)
    assert scope.cancelled_caught


class Half:
    async def validate(self, context: ResourceContext) -> ResourceValidation:
        return FINE


async def agent(assignment: kt.Assignment) -> str:
    return "done"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([Half()], r"has async validate\(context\) and on_violation\(validation\); .*Half object.* lacks on_violation"),
        ([5], "5 lacks validate and on_violation"),
        ([Fixed], "Fixed is a class, not a constraint: make one, Fixed"),
        (Fixed(), "constraints are given as a list, not <.*Fixed"),
        ("timeout", "constraints are given as a list, not 'timeout'"),
    ],
)
@pytest.mark.parametrize(
    ("make", "owner"),
    [
        (ConstraintChain, "ConstraintChain"),
        (lambda given: kt.Member("writer", agent, constraints=given), "member 'writer'"),
        (lambda given: kt.Team("press", [kt.Member("writer", agent)], constraints=given), "team 'press'"),
    ],
    ids=["chain", "member", "team"],
)
def test_what_is_no_constraint_is_refused_where_it_is_given(
    make: Callable[[Any], object], owner: str, given: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=f"{owner}: .*{message}"):
        make(given)


# ---------------------------------------------------------------- built in


@pytest.mark.parametrize(
    ("constraint", "below", "at", "action", "limit"),
    [
        (MaxIterations(3), {"iteration": 2}, {"iteration": 3}, EXIT, 3),
        (TokenBudget(100), {"tokens_used": 99}, {"tokens_used": 100}, EXIT, 100),
        (Timeout(60), {"elapsed": 59.9}, {"elapsed": 60.0}, STOP, 60),
        (Timeout(0.5), {"elapsed": 0.4}, {"elapsed": 0.5}, STOP, 0.5),
        (
            CostLimit("0.30"),
            {"usage": kt.Usage(dollars=Decimal("0.299999999999"))},
            {"usage": kt.Usage(dollars=Decimal("0.3"))},
            EXIT,
            "0.3",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_limit_is_violated_once_it_is_reached(
    constraint: Any, below: dict[str, Any], at: dict[str, Any], action: ResourceAction, limit: Any
) -> None:
    assert not (await constraint.validate(ResourceContext(**below))).violated
    found = await constraint.validate(ResourceContext(**at))
    assert found.violated
    assert constraint.on_violation(found) is action
    assert found.metrics["used"] == found.metrics["limit"] == limit
    assert constraint.share(ResourceContext(**at)) == 1.0
    assert constraint.share(ResourceContext(**below)) < 1.0
    assert isinstance(constraint, ResourceConstraint)


async def test_money_is_exact() -> None:
    usage = kt.Usage(dollars=Decimal("0.1")) + kt.Usage(dollars=Decimal("0.2"))
    assert (await CostLimit(0.3).validate(ResourceContext(usage=usage))).violated


def each(make: Callable[[Any], object], wrong: Iterable[Any], message: str) -> list[tuple[Callable[[], object], str]]:
    """Make each wrong value a case."""
    return [(partial(make, value), message) for value in wrong]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *each(MaxIterations, (0, -1, True, 2.0, "3"), "MaxIterations.n must be a whole number"),
        *each(TokenBudget, (0, -5, None), "TokenBudget.n must be a whole number >= 1"),
        *each(Timeout, (0, -1, float("nan"), float("inf"), "60", True),
              "Timeout.seconds must be a finite number above 0"),
        *each(CostLimit, (0, -1, float("nan"), "much", None), "CostLimit.dollars must be"),
        (lambda: ExternalSignal(""), "ExternalSignal.signal must be the path of a file or a function, not ''"),
        (lambda: ExternalSignal(5), "not 5"),  # type: ignore[arg-type]
        (lambda: ExternalSignal(b"stop"), "not b'stop'"),  # type: ignore[arg-type]
        (lambda: ExternalSignal("stop", every=0), "ExternalSignal.every must be a finite number above 0"),
        *each(partial(WarnAt, MaxIterations(3)), (0, -0.5, 1.01, 80, float("nan")), "WarnAt.share must be"),
        (lambda: WarnAt(Fixed()), r"must have a method share\(context\) .*not <.*Fixed"),
        (lambda: WarnAt(ExternalSignal("stop")), "must have a method share"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


async def test_a_timeout_rings_by_itself() -> None:
    began = anyio.current_time()
    found = await Timeout(3600).watch()
    assert found.violated
    assert anyio.current_time() - began == pytest.approx(3600)


async def test_a_file_is_a_signal_from_the_moment_it_is_there(tmp_path: Path) -> None:
    signal = ExternalSignal(tmp_path / "stop", every=5)
    assert not (await signal.validate(NOW)).violated
    found: list[ResourceValidation] = []

    async def watch() -> None:
        found.append(await signal.watch())

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await anyio.sleep(12)
        assert not found
        (tmp_path / "stop").touch()
    assert found[0].violated
    assert found[0].metrics == {"signal": str(tmp_path / "stop")}
    assert (await signal.validate(NOW)).violated
    assert signal.on_violation(found[0]) is STOP


async def test_a_function_is_a_signal_sync_or_async() -> None:
    flag = threading.Event()

    async def asked() -> bool:
        return flag.is_set()

    signals = [ExternalSignal(flag.is_set), ExternalSignal(asked)]
    assert [(await signal.validate(NOW)).violated for signal in signals] == [False, False]
    flag.set()
    found = [await signal.validate(NOW) for signal in signals]
    assert [one.violated for one in found] == [True, True]
    assert "asked" in found[1].reason


async def test_kf_b22_a_signal_that_cannot_be_read_stops() -> None:
    def broken() -> bool:
        raise OSError("the store is away")

    report = await ConstraintChain([ExternalSignal(broken)]).evaluate(NOW)
    assert (report.action, report.decided_by) == (STOP, "external-signal")
    assert "the store is away" in report.violations[0].reason
    report = await ConstraintChain([ExternalSignal("a\0b")]).evaluate(NOW)
    assert report.action is STOP


async def test_a_watch_that_fails_is_a_stop_too_and_one_that_gives_up_is_nothing() -> None:
    class Watches(Fixed):
        async def watch(self) -> ResourceValidation:
            return await self.validate(NOW)

    chain = ConstraintChain([Fixed(), Watches(found=OSError("gone")), Watches(), Watches(WARN)])
    assert chain.watched == (1, 2, 3)
    violation = await chain.watch(1)
    assert violation is not None
    assert (violation.action, violation.position) == (STOP, 1)
    assert await chain.watch(2) is None
    warning = await chain.watch(3)
    assert warning is not None
    assert warning.action is WARN


@pytest.mark.parametrize(("tokens", "warned"), [(0, False), (79, False), (80, True), (200, True)])
async def test_warn_at_warns_at_a_share_of_a_limit_it_does_not_enforce(tokens: int, warned: bool) -> None:
    warn = WarnAt(TokenBudget(100))
    found = await warn.validate(ResourceContext(tokens_used=tokens))
    assert found.violated is warned
    assert warn.on_violation(found) is WARN
    assert found.metrics == {"used": tokens / 100, "share": 0.8}
    assert warn.name == "warn-at 0.8 token-budget"


async def test_warn_at_takes_any_constraint_with_a_share() -> None:
    class Pages(Fixed):
        def share(self, context: ResourceContext) -> float:
            return context.agent_state.turns_completed / 4

    warn = WarnAt(Pages(), share=0.5)
    report = await ConstraintChain([warn]).evaluate(ResourceContext(agent_state=AgentState(turns_completed=2)))
    assert (report.action, report.decided_by) == (WARN, "warn-at 0.5 Pages")
