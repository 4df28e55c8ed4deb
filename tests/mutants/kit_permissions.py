"""Wrong permission guards, each rejected by the kit at one clause."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import anyio

from kairo_team.contracts import PermissionGuard
from kairo_team.tck import PermissionGuardTCK
from kairo_team.tck.permission_guard import Call
from kairo_team.tools import PermissionDecision
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()


LOOK: Call = ("look", {"query": "tides"}, "read")
OPEN: Call = ("read_file", {"path": "notes/today.txt"}, "read")
RUN: Call = ("bash", {"command": "rm -rf /"}, "system")


class Rules:
    """A right guard: it lets look, and read what is in a folder. Its list of tools can be down."""

    def __init__(self, folder: str | os.PathLike[str] = "notes", fails: bool = False, waits: bool = False) -> None:
        self.folder = Path(folder)
        self.fails = fails
        self.waits = waits

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: Any) -> Any:
        if self.fails:
            raise ConnectionError("the list of tools is not there")
        if self.waits:
            await anyio.sleep_forever()
        return self.decide(tool, arguments)

    def decide(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        if tool == "look" or (tool == "read_file" and self.is_inside(str(arguments.get("path")))):
            return PermissionDecision.allow()
        return PermissionDecision.deny(f"{tool!r} may not be used so")

    def is_inside(self, path: str) -> bool:
        return "\0" not in path and self.resolved(path).is_relative_to(self.folder.resolve())

    def resolved(self, path: str) -> Path:
        return Path(os.path.realpath(path))


class RightGuard(PermissionGuardTCK):
    """The kit of the right guard; the mutants change one thing of it."""

    Guard: ClassVar[type[Rules]] = Rules
    can_wait = looks_at_paths = True
    allowed_calls = (LOOK, OPEN)
    denied_calls: ClassVar[Any] = (RUN, ("read_file", {"path": "notes/../secret.txt"}, "read"))

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        return cls.Guard()

    @classmethod
    def make_folder_guard(cls, folder: Path) -> PermissionGuard:
        return cls.Guard(folder)

    @classmethod
    def make_crashing_guard(cls) -> PermissionGuard:
        return cls.Guard(fails=True)

    @classmethod
    def make_waiting_guard(cls) -> PermissionGuard:
        return cls.Guard(waits=True)


@mutant("G06", clause="C1")
class KnowsThreeTools(RightGuard):
    """It looks at tools named bash, write and edit; others are none of its business."""

    denied_calls = (RUN,)

    class Guard(Rules):
        def decide(self, tool: str, arguments: Mapping[str, Any]) -> Any:
            known = tool in {"bash", "write", "edit"}
            return super().decide(tool, arguments) if known else PermissionDecision.allow()


@mutant(clause="C1", by="spelled_otherwise")
class ReadsNamesLoosely(RightGuard):
    """Capitals and blanks of a name make no difference to it, and another tool is taken for the one it knows."""

    class Guard(Rules):
        def decide(self, tool: str, arguments: Mapping[str, Any]) -> Any:
            return super().decide(tool.strip().lower(), arguments)


@mutant("G06", clause="C1")
class HasNoAnswer(RightGuard):
    """Of a name it does not know it says nothing."""

    denied_calls = (RUN,)

    class Guard(Rules):
        def decide(self, tool: str, arguments: Mapping[str, Any]) -> Any:
            return super().decide(tool, arguments) if tool in {"look", "read_file", "bash"} else None


@mutant(clause="C2")
class GetsUsedToIt(RightGuard):
    """What was denied once is allowed the second time."""

    class Guard(Rules):
        asked = 0

        def decide(self, tool: str, arguments: Mapping[str, Any]) -> Any:
            decision = super().decide(tool, arguments)
            self.asked += decision.action == "deny"
            return PermissionDecision.allow() if self.asked > 1 else decision


@mutant("G04", clause="C2")
class MendsArguments(RightGuard):
    """It makes a path of a call absolute, in place: what runs is not what was decided about."""

    class Guard(Rules):
        def decide(self, tool: str, arguments: Any) -> Any:
            decision = super().decide(tool, arguments)
            if "path" in arguments and type(arguments) is dict:
                arguments["path"] = str(self.resolved(arguments["path"]))
            return decision


@mutant(clause="C3")
class MixesCalls(RightGuard):
    """It keeps the call on itself while it waits, and decides about the last one."""

    class Guard(Rules):
        async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: Any) -> Any:
            self.call = (tool, arguments)
            await super().check(tool, arguments, side_effect)
            await anyio.sleep(1)
            return self.decide(*self.call)


@mutant("G12", clause="C4")
class ComparesWhatIsWritten(RightGuard):
    """A path that begins with the folder's is in the folder."""

    denied_calls = (RUN,)

    class Guard(Rules):
        def is_inside(self, path: str) -> bool:
            return path.startswith(str(self.folder))


@mutant("G12", clause="C4")
class FollowsNoLinks(RightGuard):
    """It resolves `..`, and not where links lead."""

    class Guard(Rules):
        def resolved(self, path: str) -> Path:
            return Path(os.path.normpath(Path.cwd() / path))


@mutant("G01", clause="C5")
class AllowsWhatItCannotLookUp(RightGuard):
    """Its list is not there, and everything may be used."""

    class Guard(Rules):
        async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: Any) -> Any:
            try:
                return await super().check(tool, arguments, side_effect)
            except ConnectionError:
                return PermissionDecision.allow()


@mutant("T06", clause="C6")
class AllowsWhatIsCancelled(RightGuard):
    """A cancellation ends the wait, and the tool may be used."""

    class Guard(Rules):
        async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: Any) -> Any:
            try:
                return await super().check(tool, arguments, side_effect)
            except anyio.get_cancelled_exc_class():
                return PermissionDecision.allow()


@mutant("G12", clause="C4")
class FollowsLinksOfWhatIsThere(RightGuard):
    """A path to nothing yet is taken as it is written, links and all."""

    class Guard(Rules):
        def resolved(self, path: str) -> Path:
            there = os.path.exists(path)  # noqa: PTH110 - as its author would
            return super().resolved(path) if there else Path(os.path.abspath(path))  # noqa: PTH100 - the mistake


@mutant("G12", clause="C4")
class KeepsWhereLinksLed(RightGuard):
    """It looks where a path leads once, and a link is changed later."""

    class Guard(Rules):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.known: dict[str, Path] = {}

        def resolved(self, path: str) -> Path:
            return self.known.setdefault(path, super().resolved(path))
