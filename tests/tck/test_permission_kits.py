"""Every permission guard that comes with the library keeps the contract, and so does one that a user writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from kairo_team.contracts import PermissionGuard
from kairo_team.tck import PermissionGuardTCK
from kairo_team.tck.permission_guard import Call
from kairo_team.tools import PermissionDecision, Rule, RuleGuard, SideEffectGuard

pytestmark = pytest.mark.sampled("anyio_backend")

LOOK: Call = ("look", {"q": "x"}, "read")
WRITE: Call = ("write", {"text": "x"}, "write")
RUN: Call = ("Bash", {"command": "ls"}, "system")


class TestRuleGuard(PermissionGuardTCK):
    cannot_crash = True
    looks_at_paths = True
    allowed_calls = (
        ("look", {}, "system"),
        ("bash", {"command": "git status"}, "system"),
        ("read_file", {"path": "notes/today.txt"}, "read"),
    )
    denied_calls = (
        ("drop", {"table": "people"}, "read"),
        ("bash", {"command": "ls; rm -rf /"}, "system"),
        ("read_file", {"path": "../today.txt"}, "read"),
        ("read_file", {"path": "notes/../../today.txt"}, "read"),
    )
    asked_calls = (("bash", {"command": "git push"}, "system"), ("send-mail", {"to": "ann"}, "write"))

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        allowed = [Rule.allow("look"), Rule.allow("read_file(notes/**)"), Rule.allow("bash(git status)")]
        return RuleGuard([*allowed, Rule.ask("bash(git *)"), Rule.ask("send-*")])

    @classmethod
    def make_folder_guard(cls, folder: Path) -> PermissionGuard:
        return RuleGuard([Rule.allow(f"read_file({folder}/**)")])


class TestRuleGuardOfARoot(PermissionGuardTCK):
    cannot_crash = True
    looks_at_paths = True
    denied_calls = (("anything", {}, "read"),)

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        return RuleGuard([])

    @classmethod
    def make_folder_guard(cls, folder: Path) -> PermissionGuard:
        return RuleGuard([Rule.allow("*(**)")], root=folder)

    @classmethod
    def folder_call(cls, path: str) -> Any:
        return "Edit", {"edits": [{"filePath": path}]}, "write"


class TestRuleGuardThatAsks(PermissionGuardTCK):
    cannot_crash = True
    denied_calls = (("bash", {"command": "sudo reboot"}, "system"),)
    asked_calls = (RUN, LOOK)

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        return RuleGuard([Rule.deny("bash(sudo *)")], default="ask")


class TestSideEffectGuard(PermissionGuardTCK):
    cannot_crash = True
    allowed_calls = (LOOK, WRITE)
    asked_calls = (RUN,)

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        return SideEffectGuard()


class TestStrictSideEffectGuard(PermissionGuardTCK):
    cannot_crash = True
    allowed_calls = (LOOK,)
    asked_calls = (WRITE, RUN)

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        return SideEffectGuard("strict")


class TestPlanningSideEffectGuard(PermissionGuardTCK):
    cannot_crash = True
    allowed_calls = (LOOK,)
    denied_calls = (WRITE, RUN)

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        return SideEffectGuard("plan")


class TestBypassingSideEffectGuard(PermissionGuardTCK):
    cannot_crash = True
    allows_unknown_tools = True
    allowed_calls = (LOOK, WRITE, RUN)

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        return SideEffectGuard("bypass")


class Registry:
    """A guard as a user writes it: it asks a service for what a tool may do."""

    def __init__(self, service: Any) -> None:
        self._service = service

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: str) -> PermissionDecision:
        if await self._service(tool):
            return PermissionDecision.allow()
        return PermissionDecision.deny(f"{tool!r} is not registered")


async def service(tool: str) -> bool:
    await anyio.sleep(0.1)
    return tool == "look"


async def unreachable(tool: str) -> bool:
    raise ConnectionError("the registry is down")


class TestAGuardOfAUser(PermissionGuardTCK):
    can_wait = True
    allowed_calls = (LOOK,)
    denied_calls = (WRITE, RUN)

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        return Registry(service)

    @classmethod
    def make_crashing_guard(cls) -> PermissionGuard:
        return Registry(unreachable)

    @classmethod
    def make_waiting_guard(cls) -> PermissionGuard:
        return Registry(lambda tool: anyio.sleep_forever())
