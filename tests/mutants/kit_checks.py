"""Wrong checks, each rejected by the kit at one clause."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import anyio

import kairo_team as kt
from kairo_team.evaluators import Check
from kairo_team.tck import CheckTCK
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()

HARBOURS = ("Brest", "Dover", "Ostend")


class Names:
    """A right check: the text names a harbour. The list of harbours can be down."""

    def __init__(self, harbours: tuple[str, ...] | None = HARBOURS) -> None:
        self.harbours = harbours

    async def __call__(self, artifact: kt.Artifact, context: kt.EvaluationContext) -> Any:
        await anyio.lowlevel.checkpoint()
        return self.decide(artifact.text)

    def decide(self, text: str) -> Any:
        if self.harbours is None:
            raise ConnectionError("the list of harbours is not there")
        return any(one in text for one in self.harbours) or f"it names none of {', '.join(self.harbours)}"


class RightCheck(CheckTCK):
    """The kit of the right check; the mutants change one thing of it."""

    Kind: ClassVar[type[Names]] = Names
    can_wait = True
    good_artifacts = ("From Brest.", "Dover, then Ostend.", "Ostend")
    bad_artifacts = ("From Hull.", "nothing")

    @classmethod
    def make_check(cls) -> Check:
        return cls.Kind()

    @classmethod
    def make_crashing_check(cls) -> Check:
        return cls.Kind(None)

    @classmethod
    def make_waiting_check(cls) -> Check:
        async def check(artifact: kt.Artifact) -> bool:
            await anyio.sleep(5.0)
            return True

        return check


@mutant(clause="C1")
class ReturnsNothingForGood(RightCheck):
    """A text that is right falls off the end of the function."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            found = super().decide(text)
            return None if found is True else found


@mutant(clause="C1")
class ReturnsAMatch(RightCheck):
    """The match of a pattern takes the place of True."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            return re.search("|".join(self.harbours or ()), text) or super().decide(text)


@mutant(clause="C1")
class TripsOverTheEmptyText(RightCheck):
    """The first word of a text that has none is an IndexError."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            return text.split(maxsplit=1)[0] in HARBOURS or super().decide(text)


@mutant(clause="C1")
class SaysNothingOfWhatIsWrong(RightCheck):
    """A blank sentence says what is wrong."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            return super().decide(text) is True or ""


@mutant(clause="C2")
class PassesWhatItHasSeen(RightCheck):
    """A text that comes again has been seen, and passes."""

    class Kind(Names):
        def __init__(self, harbours: tuple[str, ...] | None = HARBOURS) -> None:
            super().__init__(harbours)
            self.seen: set[str] = set()

        def decide(self, text: str) -> Any:
            if text in self.seen:
                return True
            self.seen.add(text)
            return super().decide(text)


@mutant(clause="C2")
class KeepsTheTextOnItself(RightCheck):
    """The text waits on the check, where another call puts its own in between."""

    class Kind(Names):
        text = ""

        async def __call__(self, artifact: kt.Artifact, context: kt.EvaluationContext) -> Any:
            self.text = artifact.text
            await anyio.sleep(0.1)
            return self.decide(self.text)


@mutant(clause="C2")
class NamesTheFirstOfASet(RightCheck):
    """The sentence names harbours in the order of a set, which differs between processes."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            found = super().decide(text)
            return found if found is True else f"it names none of {', '.join(set(HARBOURS) | set(map(str, range(9))))}"


@mutant(clause="C2")
class ClosesTomorrow(RightCheck):
    """The list of harbours is out of date a day later, which a resumed run meets."""

    class Kind(Names):
        def __init__(self, harbours: tuple[str, ...] | None = HARBOURS) -> None:
            super().__init__(harbours)
            self.made = time.time()

        def decide(self, text: str) -> Any:
            return "the list is out of date" if time.time() - self.made > 3_600 else super().decide(text)


@mutant(clause="C3")
class AnyHarbourOfAnyName(RightCheck):
    """Every text with a capital letter passes."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            return any(map(str.isupper, text)) or super().decide(text)


@mutant(clause="C3")
class AllOfThem(RightCheck):
    """Only a text that names every harbour passes."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            return all(one in text for one in self.harbours or ()) or "it names only some harbours"


@mutant(clause="C4")
class PassesWhereItCannotLook(RightCheck):
    """Without the list, every text passes."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            return self.harbours is None or super().decide(text)


@mutant(clause="C4")
class BlamesTheText(RightCheck):
    """Without the list, the text is wrong, and goes back to its author."""

    class Kind(Names):
        def decide(self, text: str) -> Any:
            try:
                return super().decide(text)
            except ConnectionError as error:
                return str(error)


@mutant(clause="C5")
class HoldsALock(RightCheck):
    """Its state cannot be read, so that criteria are not frozen during a task."""

    class Kind(Names):
        def __init__(self, harbours: tuple[str, ...] | None = HARBOURS) -> None:
            super().__init__(harbours)
            self.lock = anyio.CapacityLimiter(1)


@mutant(clause="C5")
class BornAtAMoment(RightCheck):
    """Two that are made alike differ by the moment at which they were made."""

    class Kind(Names):
        born = 0

        def __init__(self, harbours: tuple[str, ...] | None = HARBOURS) -> None:
            super().__init__(harbours)
            self.born = time.perf_counter_ns()


@mutant(clause="C6")
class AnotherLimitByName(CheckTCK):
    """The options of the published check are not those that the team tests."""

    cannot_crash = True
    good_artifacts = ("one two",)
    bad_artifacts = ("one two three",)
    published = "max_words"
    options: ClassVar[Mapping[str, Any]] = {"limit": 3}

    @classmethod
    def make_check(cls) -> Check:
        return kt.checks.max_words(2)


@mutant(clause="C7")
class WakesAsIfDone(RightCheck):
    """A cancellation is taken for an answer."""

    @classmethod
    def make_waiting_check(cls) -> Check:
        async def check(artifact: kt.Artifact) -> bool:
            try:
                await anyio.sleep(5.0)
            except anyio.get_cancelled_exc_class():
                return True
            return True

        return check
