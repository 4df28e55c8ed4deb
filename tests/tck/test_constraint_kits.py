"""Every constraint that comes with the library keeps the contract, and so does one that a user writes."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import anyio
import pytest

from kairo_team.governance import (
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
from kairo_team.tck import Measure, ResourceConstraintTCK, context_of

pytestmark = pytest.mark.sampled("anyio_backend")


class TestMaxIterations(ResourceConstraintTCK):
    cannot_crash = True
    measure: ClassVar[Measure | None] = "turns"
    limit = 3
    fine_contexts = (context_of(), context_of(turns=2, tokens=10**6))
    violating_contexts = (context_of(turns=3), context_of(turns=9))

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return MaxIterations(3)


class TestTokenBudget(ResourceConstraintTCK):
    cannot_crash = True
    measure: ClassVar[Measure | None] = "tokens"
    limit = 25
    fine_contexts = (context_of(), context_of(tokens=24, turns=9))
    violating_contexts = (context_of(tokens=25), context_of(tokens=10**9))

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return TokenBudget(25)


class TestCostLimit(ResourceConstraintTCK):
    cannot_crash = True
    measure: ClassVar[Measure | None] = "dollars"
    limit = 2.5
    fine_contexts = (context_of(), context_of(dollars=2, tokens=10**6))
    violating_contexts = (context_of(dollars=3),)

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return CostLimit("2.50")


class TestTimeout(ResourceConstraintTCK):
    cannot_crash = True
    watches = True
    measure: ClassVar[Measure | None] = "seconds"
    limit = 150
    fine_contexts = (context_of(), context_of(seconds=149.9, turns=9))
    violating_contexts = (context_of(seconds=150.0), context_of(seconds=10**6))

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return Timeout(150)


class TestWarnAt(ResourceConstraintTCK):
    cannot_crash = True
    measure: ClassVar[Measure | None] = "tokens"
    limit = 20
    fine_contexts = (context_of(), context_of(tokens=19))
    violating_contexts = (context_of(tokens=20), context_of(tokens=100))

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return WarnAt(TokenBudget(40), share=0.5)


class TestExternalSignal(ResourceConstraintTCK):
    watches = True
    can_wait = True
    fine_contexts = violating_contexts = (context_of(), context_of(turns=3, tokens=30))

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return ExternalSignal(lambda: False)

    @classmethod
    def make_violated_constraint(cls) -> ResourceConstraint:
        return ExternalSignal(lambda: True)

    @classmethod
    def make_crashing_constraint(cls) -> ResourceConstraint:
        return ExternalSignal("a file whose name no system can look for\0")

    @classmethod
    def make_waiting_constraint(cls) -> ResourceConstraint:
        return ExternalSignal(anyio.sleep_forever)


class TestExternalSignalOfAFile(TestExternalSignal):
    can_wait = False

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return ExternalSignal(os.path.join(os.curdir, "there is no such file"))  # noqa: PTH118 - a text is enough

    @classmethod
    def make_violated_constraint(cls) -> ResourceConstraint:
        return ExternalSignal(os.curdir)


class OfficeHours:
    """A constraint as a user writes it: two methods, no base class."""

    def __init__(self, closed: Any) -> None:
        self._closed = closed

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        return ResourceValidation(self._closed(), "the office is closed", {"iteration": context.iteration})

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return ResourceAction.GRACEFUL_EXIT


def no_calendar() -> bool:
    raise ConnectionError("the calendar is down")


class TestAConstraintOfAUser(ResourceConstraintTCK):
    fine_contexts = violating_contexts = (context_of(), context_of(turns=2))

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return OfficeHours(lambda: False)

    @classmethod
    def make_violated_constraint(cls) -> ResourceConstraint:
        return OfficeHours(lambda: True)

    @classmethod
    def make_crashing_constraint(cls) -> ResourceConstraint:
        return OfficeHours(no_calendar)


class TestWarnAtOfSeconds(ResourceConstraintTCK):
    cannot_crash = True
    measure: ClassVar[Measure | None] = "seconds"
    limit = 90
    fine_contexts = (context_of(), context_of(seconds=80))
    violating_contexts = (context_of(seconds=90),)

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return WarnAt(Timeout(180), share=0.5)
