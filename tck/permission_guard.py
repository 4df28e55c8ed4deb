"""The kit of `PermissionGuard`: its answer to any call, and the effect in a run."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

from hypothesis import strategies as st

from kairo_team._util.frozen import freeze, thaw
from kairo_team.contracts import MemberContext, PermissionGuard
from kairo_team.events import ToolCalled
from kairo_team.human import HumanDecision, HumanRequest
from kairo_team.permissions import PermissionAction, PermissionDecision, SideEffect
from kairo_team.tasks import Assignment
from kairo_team.tck.calls import at_once, check_cancels, no_examples, result_or_error, skip_unless
from kairo_team.tck.kit import ContractTCK, clause, law, make_it
from kairo_team.tck.one_attempt import play
from kairo_team.tck.strange_calls import ARGUMENTS, NAMES, make_folder
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.tool import Tool

Call = tuple[str, Mapping[str, Any], SideEffect]
"""A call: the tool's name, the arguments, and the tool's declared side effect."""

_EFFECTS: Final[Sequence[SideEffect]] = ("read", "write", "system")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Tool names that a run accepts."""


class PermissionGuardTCK(ContractTCK):
    """The contract kit of permission guards.

    Override `make_guard`, and give `allowed_calls`, `denied_calls` and `asked_calls` as far as the guard has such.
    """

    contract: ClassVar[type] = PermissionGuard
    _items = dict.fromkeys(
        ("allowed_calls", "denied_calls", "asked_calls"),
        (tuple, "a call, such as ('search', {'query': 'tides'}, 'read')"),
    )

    allowed_calls: ClassVar[Sequence[Call]] = ()
    """Calls that it allows: tool, arguments and side effect of each."""
    denied_calls: ClassVar[Sequence[Call]] = ()
    """Calls that it denies."""
    asked_calls: ClassVar[Sequence[Call]] = ()
    """Calls that a person decides about."""
    allows_unknown_tools: ClassVar[bool] = False
    """Whether the guard allows system tools with unknown names."""
    looks_at_paths: ClassVar[bool] = False
    """Whether the guard can open one folder to a tool: then `make_folder_guard` and `folder_call` are required."""
    cannot_crash: ClassVar[bool] = False
    """Whether the guard looks only at the call. False: `make_crashing_guard` is required."""
    can_wait: ClassVar[bool] = False
    """Whether the guard waits for something: then `make_waiting_guard` is required."""

    @classmethod
    def make_guard(cls) -> PermissionGuard:
        """Make the guard. A fresh one each time."""
        raise make_it(cls, "make_guard(cls)")

    @classmethod
    def make_folder_guard(cls, folder: Path) -> PermissionGuard:
        """Make one that allows the calls of `folder_call` whose path is in the folder or below, and no others."""
        raise make_it(cls, "make_folder_guard(cls, folder), or say looks_at_paths = False")

    @classmethod
    def folder_call(cls, path: str) -> Call:
        """Return a call with a path; override it for another tool."""
        return "read_file", {"path": path}, "read"

    @classmethod
    def make_crashing_guard(cls) -> PermissionGuard:
        """Make one that cannot decide, for example because its service is down."""
        raise make_it(cls, "make_crashing_guard(cls), or say cannot_crash = True")

    @classmethod
    def make_waiting_guard(cls) -> PermissionGuard:
        """Make one that waits for ever before it decides."""
        raise make_it(cls, "make_waiting_guard(cls), or say can_wait = False")

    # ------------------------------------------------------------------ answers

    @clause("C1")
    async def test_c01_examples_are_decided_as_they_are_given(self) -> None:
        """The guard allows, denies and asks about the calls that the kit was given for each; a refusal has a reason."""
        if not self.calls():
            no_examples(type(self), "allowed_calls, denied_calls or asked_calls", "at least one call")
        for wanted, call in self.calls():
            decision = _checked(await self.make_guard().check(*call), call)
            assert decision.action == wanted, f"{call} must {wanted}, and it decided to {decision}"

    @clause("C1")
    async def test_c01_every_tool_gets_an_answer_whatever_its_name(self) -> None:
        """Known names, names of servers, look-alikes, no name at all; with any arguments."""
        for name in NAMES:
            for arguments in ARGUMENTS:
                for effect in _EFFECTS:
                    _checked(await self.make_guard().check(name, freeze(arguments), effect), (name, arguments, effect))

    @clause("C1")
    async def test_c01_an_unknown_name_is_no_permission(self) -> None:
        """An unknown system tool is not allowed."""
        skip_unless(not self.allows_unknown_tools, "allows_unknown_tools is True")
        for name in ("kit-unheard-of", "Kit_Unheard_Of", "mcp__kit__unheard_of", "kit", ""):
            call: Call = (name, {"anything": "at all"}, "system")
            decision = _checked(await self.make_guard().check(*call), call)
            assert decision.action != "allow", f"it allows the system tool {name!r}, which it does not know"

    @clause("C1")
    async def test_c01_a_name_that_is_spelled_otherwise_is_another_tool(self) -> None:
        """An allowed tool's name in capitals, or with a blank, is the name of a system tool that it does not know."""
        skip_unless(not self.allows_unknown_tools, "allows_unknown_tools is True")
        known = {name for name, *_ in self.allowed_calls}
        for name, arguments, _ in self.allowed_calls:
            for other in {name.upper(), name.title(), f"{name} ", f" {name}"} - known:
                call: Call = (other, arguments, "system")
                decision = _checked(await self.make_guard().check(*call), call)
                assert decision.action != "allow", f"it knows {name!r}, and allows the system tool {other!r}"

    @law("C1", name=st.text(max_size=40), text=st.text(max_size=60), effect=st.sampled_from(_EFFECTS))
    async def test_c01_anything_written_gets_an_answer(self, name: str, text: str, effect: SideEffect) -> None:
        """With every name of the tool and all arguments."""
        arguments = {"path": text, "command": text, "other": [text, {"file": text}]}
        _checked(await self.make_guard().check(name, freeze(arguments), effect), (name, arguments, effect))

    @clause("C2")
    async def test_c02_it_changes_nothing_and_repeats_itself(self) -> None:
        """The same question gets the same answer, from this guard and from a fresh one; arguments stay as they were."""
        guard = self.make_guard()
        for _, (name, arguments, effect) in self.calls() * 2:
            given = thaw(freeze(arguments))
            asked = [(guard, given), (guard, freeze(arguments)), (self.make_guard(), freeze(arguments))]
            answers = [(await one.check(name, shown, effect)).action for one, shown in asked]
            assert given == thaw(freeze(arguments)), f"it changed the arguments {arguments} to {given}"
            assert answers[0] == answers[1] == answers[2], f"one question, {name}({arguments}), got {answers}"

    @clause("C3")
    async def test_c03_many_calls_are_decided_at_once(self) -> None:
        """Each gets the answer it gets alone."""
        calls = [call for _, call in self.calls()] * 4
        alone = [(await self.make_guard().check(*call)).action for call in calls]
        guard = self.make_guard()
        together = [decision.action for decision in await at_once([asking(guard, call) for call in calls])]
        assert together == alone, f"at once it answered {together}, and one by one {alone}"

    # ------------------------------------------------------------------ paths

    @clause("C4", needs="looks_at_paths")
    async def test_c04_paths_below_the_folder_are_allowed(self) -> None:
        """However they are written."""
        with TemporaryDirectory() as made:
            folder = make_folder(Path(made))
            inside = ["notes.txt", "sub/notes.txt", "sub/../notes.txt", "to_notes.txt", "sub/./../sub/notes.txt", "new"]
            for path in inside:
                decision = await self.make_folder_guard(folder).check(*self.folder_call(os.fspath(folder) + "/" + path))
                assert decision.action == "allow", f"{path!r}, which is in the folder, got {decision}"

    @clause("C4", needs="looks_at_paths")
    async def test_c04_no_path_leads_out_of_the_folder(self) -> None:
        """Not by `..`, not by a link to a file or a folder, not by a name that begins alike, not by `~`."""
        with TemporaryDirectory() as made:
            folder = make_folder(Path(made))
            parent = os.fspath(folder.parent)
            escapes = ["../secret.txt", "sub/../../secret.txt", "to_secret.txt", "to_parent/secret.txt", "to_parent"]
            escapes += ["to_parent/new.txt", "to_nothing", "../new.txt"]
            outside = [f"{folder}/{path}" for path in escapes]
            outside += [f"{folder}-else/secret.txt", f"{parent}/secret.txt", parent, "/etc/passwd", "~/x", "/"]
            for path in outside:
                decision = await self.make_folder_guard(folder).check(*self.folder_call(path))
                assert decision.action != "allow", f"{path!r} leads out of {folder}, and is allowed: {decision}"

    @clause("C4", needs="looks_at_paths")
    async def test_c04_a_link_counts_as_where_it_leads_now(self) -> None:
        """A link that once led into the folder is denied when it leads out."""
        with TemporaryDirectory() as made:
            folder = make_folder(Path(made))
            guard, link = self.make_folder_guard(folder), folder / "to_notes.txt"
            call = self.folder_call(os.fspath(link))
            before = await guard.check(*call)
            link.unlink()
            link.symlink_to("../secret.txt")
            after = await guard.check(*call)
            assert before.action == "allow", f"{link}, which led to a file of the folder, got {before}"
            assert after.action != "allow", f"{link} leads out of the folder by now, and is allowed: {after}"

    # ------------------------------------------------------------------ failure and cancellation

    @clause("C5")
    async def test_c05_its_own_failure_allows_nothing(self) -> None:
        """The guard raises or denies, and in a run the tool is not called."""
        skip_unless(not self.cannot_crash, "cannot_crash is True")
        for _, call in self.calls():
            found: Any = await result_or_error(asking(self.make_crashing_guard(), call))
            allows = isinstance(found, PermissionDecision) and found.action == "allow"
            assert not allows, f"it could not decide, and returned {found}"
            for tried in await self._use(self.make_crashing_guard(), [call]):
                assert not tried.ran, "it could not decide, and the tool was used"

    @clause("C6", needs="can_wait")
    async def test_c06_cancellation_passes_through(self) -> None:
        """A decision that waits is cancelled with the attempt."""
        for _, call in self.calls()[:1]:
            await check_cancels("check", asking(self.make_waiting_guard(), call))

    # ------------------------------------------------------------------ in a run

    @clause("C7", needs="allowed_calls")
    async def test_c07_what_it_allows_happens(self) -> None:
        """The tool runs, with the arguments it was given."""
        for tried in await self._use(self.make_guard(), self.allowed_calls):
            assert tried.ran == [tried.call[1]], f"{tried.call} is allowed, and ran with {tried.ran}: {tried.read}"

    @clause("C7", needs="denied_calls")
    async def test_c07_what_it_denies_never_happens_and_the_member_reads_why(self) -> None:
        """The tool does not run, even where a person would approve; the reason is its result."""
        for tried in await self._use(self.make_guard(), self.denied_calls, HumanDecision.approve()):
            assert not tried.ran, f"{tried.call} is denied, and ran"
            assert tried.is_error, "the result that the member got must be marked is_error"
            assert tried.reason in tried.read, f"the member read {tried.read!r}, and the reason is {tried.reason!r}"

    @clause("C7", needs="asked_calls")
    async def test_c07_what_it_asks_about_needs_a_person(self) -> None:
        """The call runs when it is approved; rejected, unanswered or without a gate it does not."""
        answers: list[HumanDecision | str | None] = [
            "nobody",
            None,
            HumanDecision.reject("no"),
            HumanDecision.approve(),
        ]
        for answer in answers:
            approved = isinstance(answer, HumanDecision) and answer.action == "approve"
            for tried in await self._use(self.make_guard(), self.asked_calls, answer):
                assert bool(tried.ran) is approved, f"{tried.call} needs a person; the answer is {answer}; {tried}"

    @clause("C7")
    async def test_c07_a_tool_that_declares_nothing_is_a_system_tool(self) -> None:
        """The decision is the same as about a system tool."""
        for _, (name, arguments, _) in self.calls():
            decision = await self.make_guard().check(name, arguments, "system")
            for tried in await self._use(self.make_guard(), [(name, arguments, "system")], declared=False):
                allowed = decision.action == "allow"
                assert bool(tried.ran) is allowed, f"{name!r} declares nothing: {decision}, and it ran: {tried.ran}"

    # ------------------------------------------------------------------ shared

    @classmethod
    def calls(cls) -> list[tuple[PermissionAction, Call]]:
        """Return every example with the wanted answer."""
        given: dict[PermissionAction, Sequence[Call]] = {
            "allow": cls.allowed_calls,
            "deny": cls.denied_calls,
            "ask": cls.asked_calls,
        }
        return [(action, (call[0], freeze(call[1]), call[2])) for action, calls in given.items() for call in calls]

    async def _use(
        self, guard: PermissionGuard, calls: Sequence[Call], answer: Any = "nobody", *, declared: bool = True
    ) -> list[Tried]:
        """Let a member of a run make calls, with a gate that gives this answer, or none."""
        tries = [Tried((call[0], freeze(call[1]), call[2])) for call in calls if _NAME.fullmatch(call[0])]

        async def work(assignment: Assignment, context: MemberContext) -> str:
            for tried in tries:
                await tried.make(context, declared=declared)
            return "done"

        gate = None if answer == "nobody" else _Gate(answer)
        heard = _Overheard(guard)
        played = await play(work, gate=gate, permissions=ToolPermissions(guard=heard))
        for tried, reason in zip(tries, heard.reasons, strict=True):
            tried.reason = reason
        assert len(played.seen.of(ToolCalled)) == len(tries), "each call must emit one ToolCalled event"
        return tries


class Tried:
    """A member's call: whether the tool ran, the text that the member read, and the guard's reason."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.ran: list[Mapping[str, Any]] = []
        self.read = ""
        self.reason = ""
        self.is_error = False

    async def make(self, context: MemberContext, *, declared: bool) -> None:
        """Make the call; `declared`: whether the tool declares its side effect."""
        name, arguments, effect = self.call
        tool = Tool(name, self._run, side_effect=effect) if declared else Tool(name, self._run)
        result = await context.tool(tool).call(arguments)
        self.read, self.is_error = result.text, result.is_error

    async def _run(self, arguments: Mapping[str, Any]) -> str:
        self.ran.append(arguments)
        return "it ran"

    def __repr__(self) -> str:
        return f"Tried({self.call}, ran={self.ran}, read={self.read!r})"


class _Overheard:
    """A wrapper around the guard that keeps its reasons."""

    def __init__(self, guard: PermissionGuard) -> None:
        self.reasons: list[str] = []
        self._guard = guard

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        self.reasons.append("")
        decision = await self._guard.check(tool, arguments, side_effect)
        self.reasons[-1] = decision.reason
        return decision


class _Gate:
    """A gate that gives one answer to everything."""

    def __init__(self, answer: HumanDecision | None) -> None:
        self._answer = answer

    async def decide(self, question: HumanRequest) -> HumanDecision | None:
        return self._answer


def asking(guard: PermissionGuard, call: Call) -> Callable[[], Awaitable[PermissionDecision]]:
    """Return a call of the guard's `check`."""
    return lambda: guard.check(*call)


def _checked(decision: Any, call: Call) -> PermissionDecision:
    assert isinstance(decision, PermissionDecision), f"for {call} it returned {decision!r}, not a PermissionDecision"
    return decision
