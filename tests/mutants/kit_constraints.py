"""Wrong constraints, each rejected by the kit at one clause."""

from __future__ import annotations

from typing import Any, ClassVar

import anyio

from kairo_team.contracts import ResourceConstraint
from kairo_team.governance import (
    ResourceAction,
    ResourceContext,
    ResourceValidation,
)
from kairo_team.tck import Measure, ResourceConstraintTCK, context_of
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()


class Seconds:
    """A right constraint: at most 150 seconds, watched. What it asks for its limit can be down."""

    def __init__(self, limit: float | None = 150.0) -> None:
        self.limit = limit

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        return self.compare(context.elapsed)

    def compare(self, used: float) -> ResourceValidation:
        if self.limit is None:
            raise ConnectionError("the limit is not known")
        return ResourceValidation(used >= self.limit, "time is up", {"used": used})

    def on_violation(self, validation: ResourceValidation) -> Any:
        return ResourceAction.EMERGENCY_STOP

    async def watch(self) -> ResourceValidation:
        await anyio.sleep(self.limit or 0)
        return self.compare(self.limit or 0)


class RightConstraint(ResourceConstraintTCK):
    """The kit of the right constraint; the mutants change one thing of it."""

    Constraint: ClassVar[type[Seconds]] = Seconds
    watches = True
    measure: ClassVar[Measure | None] = "seconds"
    limit = 150
    fine_contexts = (context_of(), context_of(seconds=149.0))
    violating_contexts = (context_of(seconds=150.0), context_of(turns=9, seconds=1000.0))

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return cls.Constraint()

    @classmethod
    def make_crashing_constraint(cls) -> ResourceConstraint:
        return cls.Constraint(None)


@mutant("B05", clause="C1")
class OneTooMany(RightConstraint):
    """Exactly at the limit it is not violated, so that one more call is paid."""

    class Constraint(Seconds):
        def compare(self, used: float) -> ResourceValidation:
            return ResourceValidation(used > (self.limit or 0), "time is up", {"used": used})


@mutant(clause="C1")
class SharesInPercent(RightConstraint):
    """It says how much is used in percent, so that a warning comes at once."""

    class Constraint(Seconds):
        def share(self, context: ResourceContext) -> float:
            return 100 * context.elapsed / (self.limit or 1)


@mutant("B19", clause="C1")
class NeverSeesTheTime(RightConstraint):
    """What it compares is always 0."""

    class Constraint(Seconds):
        async def validate(self, context: ResourceContext) -> ResourceValidation:
            return self.compare(0.0)


@mutant("B05", clause="C8")
class LooksAtAnothersNumber(RightConstraint):
    """It counts loops, which only some agents have, and calls go on past its limit."""

    watches = False
    measure: ClassVar[Measure | None] = "turns"
    limit = 3
    fine_contexts = (context_of(), context_of(turns=2))
    violating_contexts = (context_of(turns=3), context_of(turns=9))

    class Constraint(Seconds):
        async def validate(self, context: ResourceContext) -> ResourceValidation:
            return ResourceValidation(context.usage.loops >= 3, "three loops", {"used": context.usage.loops})

        watch: Any = None


@mutant(clause="C2")
class EditsWhatItIsShown(RightConstraint):
    """It writes a remark into the context."""

    class Constraint(Seconds):
        async def validate(self, context: ResourceContext) -> ResourceValidation:
            object.__setattr__(context, "member", f"{context.member}, seen")
            return await super().validate(context)


@mutant("B16", clause="C2")
class MeasuresFromItsBirth(RightConstraint):
    """Its clock starts when it is made, and an attempt that begins late has no time left."""

    class Constraint(Seconds):
        def __init__(self, limit: float | None = 150.0) -> None:
            super().__init__(limit)
            self.born = anyio.current_time()

        async def validate(self, context: ResourceContext) -> ResourceValidation:
            return self.compare(max(context.elapsed, anyio.current_time() - self.born))


@mutant("B16", clause="C3")
class CountsForAll(RightConstraint):
    """It adds up the time of all the attempts it sees."""

    class Constraint(Seconds):
        total = 0.0

        async def validate(self, context: ResourceContext) -> ResourceValidation:
            self.total += context.elapsed
            return self.compare(self.total)


@mutant("B21", clause="C4")
class StopsInWordsOnly(RightConstraint):
    """It answers with the text of an action."""

    class Constraint(Seconds):
        def on_violation(self, validation: ResourceValidation) -> Any:
            return "emergency_stop"


@mutant(clause="C4")
class WaitsToDecide(RightConstraint):
    """It has to be awaited to say what is to happen."""

    class Constraint(Seconds):
        def on_violation(self, validation: ResourceValidation) -> Any:
            return _Later()


class _Later:
    def __await__(self) -> Any:
        return iter(())


@mutant(clause="C4")
class GivesIn(RightConstraint):
    """Asked again about the same violation it allows."""

    class Constraint(Seconds):
        asked = 0

        def on_violation(self, validation: ResourceValidation) -> Any:
            self.asked += 1
            return ResourceAction.EMERGENCY_STOP if self.asked == 1 else ResourceAction.ALLOW


@mutant("B22", clause="C5")
class FineWhereItCannotTell(RightConstraint):
    """It could not find out, and takes that for no violation."""

    class Constraint(Seconds):
        async def validate(self, context: ResourceContext) -> ResourceValidation:
            try:
                return await super().validate(context)
            except ConnectionError:
                return ResourceValidation(False)


@mutant("B15", "B21", clause="C6")
class LooksBetweenCallsOnly(RightConstraint):
    """Its watch never ends, and a call that hangs is never interrupted."""

    class Constraint(Seconds):
        async def watch(self) -> ResourceValidation:
            await anyio.sleep_forever()
            raise AssertionError


@mutant("T06", clause="C7")
class TakesCancellationForTheEnd(RightConstraint):
    """Its watch, cancelled with the attempt, reports a violation."""

    class Constraint(Seconds):
        async def watch(self) -> ResourceValidation:
            try:
                return await super().watch()
            except anyio.get_cancelled_exc_class():
                return ResourceValidation(True, "interrupted", {"used": 0})


@mutant(clause="C3")
class RemembersWhatItFound(RightConstraint):
    """The first measurement is kept, and every later attempt gets it."""

    class Constraint(Seconds):
        found: ResourceValidation | None = None

        async def validate(self, context: ResourceContext) -> ResourceValidation:
            if self.found is None:
                self.found = await super().validate(context)
            return self.found


@mutant(clause="C1")
class MostlyUsedUp(RightConstraint):
    """At the limit its share is 0.99, so that a warning at all of it never comes."""

    class Constraint(Seconds):
        def share(self, context: ResourceContext) -> float:
            return min(0.99, context.elapsed / (self.limit or 1))


@mutant(clause="C6")
class WatchesAndSaysAllIsWell(RightConstraint):
    """Its watch ends at once, with nothing found."""

    class Constraint(Seconds):
        async def watch(self) -> ResourceValidation:
            return ResourceValidation(False)


@mutant(clause="C6")
class WatchesForTheWrongMoment(RightConstraint):
    """Its watch reports what `validate` would not call a violation."""

    class Constraint(Seconds):
        async def watch(self) -> ResourceValidation:
            await anyio.sleep(self.limit or 0)
            return self.compare((self.limit or 0) - 1)


@mutant(clause="C5")
class WarnsWhereItCannotTell(RightConstraint):
    """It could not measure, and says how much is left as if nothing was used."""

    class Constraint(Seconds):
        def compare(self, used: float) -> ResourceValidation:
            return super().compare(used) if self.limit is not None else ResourceValidation(False, "not known")
