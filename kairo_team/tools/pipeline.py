"""`ToolPipeline`: the steps that every tool call passes through; and the governed tools that a member calls."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from kairo_team._util.counts import in_seconds
from kairo_team._util.frozen import EMPTY, maker
from kairo_team.budget import Usage
from kairo_team.errors import (
    ConstraintExit,
    GuardrailDenied,
    HaltError,
    InsufficientBudget,
    TurnEnded,
    innermost,
    known,
)
from kairo_team.governance.guardrails import (
    GuardrailAction,
    GuardrailChain,
    GuardrailContext,
    GuardrailOutcome,
    GuardrailPayload,
    GuardrailPhase,
    GuardrailRuling,
    ToolInput,
    ToolOutput,
    joined,
)
from kairo_team.governance.slices import cover_tool_call
from kairo_team.messages import ToolCall, ToolSpec
from kairo_team.permissions import PermissionDecision
from kairo_team.plugin_calls import AWAITED_CALL, failure_of, leaves_of
from kairo_team.tools.arguments import CallPutOffError, CallRefusedError, check_arguments, seen_arguments
from kairo_team.tools.circuit import CircuitBreakers
from kairo_team.tools.made_calls import MadeCall, MadeCalls, changes, why_asked
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.result import Sanitizer, ToolResult, describe, describe_error, result_of

if TYPE_CHECKING:
    from kairo_team.contracts import CallLog
    from kairo_team.governance.governor import Governor, Reservation
    from kairo_team.governance.policies.mcp_policy import McpPolicy
    from kairo_team.human import HumanDecision
    from kairo_team.tools.tool import Tool

__all__ = ["GovernedTool", "OnCall", "OnDecision", "ToolPipeline", "ToolResult", "Toolbox"]

Outcome = Literal["ok", "error", "refused"]
OnStart = Callable[["Tool", str, str], AbstractContextManager[object]]
"""Called before a tool runs, with the tool, the call's key in its run and its id in the model's reply, "" without one;
returns a context to enter around the call."""
OnCall = Callable[[str, Outcome, str | None, str | None, str, float], object]
"""Called after every call: the tool's name, the outcome, what refused it, why, the call's key, and the seconds."""
OnContent = Callable[[str, str, object], object]
"""Called with "arguments" before a tool runs and "result" at its end, the call's key, and their value."""
OnDecision = Callable[["GuardrailPhase", str, "GuardrailRuling"], object]
"""Called for every ruling of a guardrail other than a plain allow: the phase, the tool, the ruling."""

Approve = Callable[[str, str, Mapping[str, Any], str], Awaitable["HumanDecision | None"]]
"""Asks a person about a call: its key, the tool's name, the arguments, and the reason. Returns None without an answer.

Raises `CallPutOffError` if the attempt is repeated once there is an answer.
"""
Recall = Callable[[str, "Mapping[str, Any] | str"], "tuple[str, ToolResult | None]"]
"""Returns the key of a call of a tool with these arguments, and its recorded result if it has one."""
OnTurnEnd = Callable[[TurnEnded], object]
"""Called when a tool ends the attempt."""

PASSING: Final = (HaltError, ConstraintExit, GuardrailDenied, InsufficientBudget, TurnEnded)
"""Errors of the governed models and tools that a tool may use itself, in order of priority: they end the attempt."""
PUT_OFF: Final = ToolResult("a person has not answered yet: the call is made after that", True, None, "put-off")
"""The result of a call that is put off; the attempt ends before anything is done with it."""
MAX_REASON: Final = 500
"""Most characters of a reason in an event."""

_make_call: Final = maker(ToolCall)
"""Makes a `ToolCall` from values that are checked already."""
_NOTHING_AROUND: Final = nullcontext()
_OPEN: Final = ToolPermissions()
_ONE_CALL: Final = Usage(tool_calls=1)


class _Made(NamedTuple):
    """A call that is being made."""

    number: int
    """The call's number in the log of calls; 0 where calls are not recorded."""
    key: str
    """The call's key in its run."""
    at: float
    """The start, by the event loop's clock."""
    around: AbstractContextManager[object]
    """The context that is entered around the call."""
    noted: MadeCall | None
    """The record of the call for later attempts."""


class ToolPipeline:
    """The steps around every tool call of one member, in this order.

    Circuit breaker, allowed tools, plan mode, arguments, permission guard, guardrails before the tool; then the
    governor reserves one tool call and the tool runs; then guardrails after it; last, secrets are masked and the text
    is cut to the limit. A refused call returns an error result that the member can read.
    """

    __slots__ = (
        "_allowed", "_approve", "_around", "_calls", "_doubted", "_guardrails", "_made", "_member", "_metadata",
        "_offered", "_on_call", "_on_content", "_on_decision", "_on_start", "_on_turn_end", "_permissions", "_put_off",
        "_recall", "_record", "_sanitize", "_unfinished", "_waits", "_with_mcp", "breakers", "governor",
    )  # fmt: skip

    def __init__(
        self,
        governor: Governor,
        *,
        permissions: ToolPermissions | None = None,
        allowed: Iterable[str] | None = None,
        also: Iterable[Iterable[str]] = (),
        guardrails: GuardrailChain | None = None,
        breakers: CircuitBreakers | None = None,
        secrets: Iterable[str] = (),
        member: str | None = None,
        metadata: Mapping[str, Any] = EMPTY,
        on_start: OnStart | None = None,
        on_call: OnCall | None = None,
        on_content: OnContent | None = None,
        on_decision: OnDecision | None = None,
        approve: Approve | None = None,
        recall: Recall | None = None,
        record: Callable[[str, ToolResult | None], None] | None = None,
        calls: CallLog | None = None,
        doubted: Collection[str] = (),
        made: MadeCalls | None = None,
        offered: Collection[Tool] = (),
        on_turn_end: OnTurnEnd | None = None,
        unfinished: Mapping[str, str] = EMPTY,
        put_off: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make the pipeline of one member, for one attempt.

        `allowed` are names of tools (for an MCP server's tool also `server/tool`); None allows all. `also` are the same
        lists of roles around the run: a tool must be in each. `breakers` are the run's; None makes new ones. `metadata`
        is passed to guardrails. `approve` asks a person. `recall` returns a call's key and its recorded result;
        `record` records a result under that key. `calls` records each call before it is made; `doubted` are the keys of
        calls that an earlier session of the run made and whose end was not recorded. `made` keeps the calls of this
        attempt and knows those of earlier ones. `offered` are the coordinator's tools, which `allowed` does not limit.
        `unfinished` says, by call id, what cut off the reply with a call; such calls are not made. `put_off` ends the
        attempt where a call was put off.
        """
        self.governor = governor
        self._permissions = permissions or _OPEN
        self.breakers = breakers or CircuitBreakers(self._permissions.breaker, anyio.current_time)
        self._around = tuple(frozenset(one) for one in also)
        self._allowed = self._around if allowed is None else (*self._around, frozenset(allowed))
        self._guardrails = guardrails or None
        self._sanitize = Sanitizer(secrets)
        self._member = member
        self._metadata = metadata
        self._on_start = on_start
        self._on_call = on_call
        self._on_content = on_content
        self._on_decision = on_decision
        self._approve = approve
        self._recall = recall
        self._record = record
        self._calls = calls
        self._doubted = doubted
        self._made = made
        self._offered = offered
        self._on_turn_end = on_turn_end
        self._unfinished = unfinished
        self._put_off = put_off
        self._waits = False
        """A call was put off: no other begins."""
        self._with_mcp: GuardrailChain | None = None

    def refusal(self, tool: Tool) -> str | None:
        """Return why the tool must not be offered to a model; None when it may be offered."""
        try:
            self._check_static(tool)
        except CallRefusedError as refused:
            return str(refused)
        if tool.server is None or self._is_listed(tool):
            return None
        return self._mcp_policy().refusal(tool.server, tool.server_tool or tool.name)

    def cut_by(self, call_id: str | None) -> str | None:
        """Return what cut off the reply with this call; None where the reply was complete."""
        return None if call_id is None else self._unfinished.get(call_id)

    async def call(self, tool: Tool, arguments: Mapping[str, Any] | str, *, call_id: str | None = None) -> ToolResult:
        """Call a tool with arguments by name, or with their JSON text; refusals and failures are returned as results.

        `call_id` is the id of the model's call. A call of a reply that was cut off is refused, because the model may
        not have finished its arguments.

        Raises `HaltError`, `ConstraintExit`, `GuardrailDenied` and `InsufficientBudget` only when the tool itself
        raises them, because it may call governed models, and `HaltError` from a governor that halted. Raises
        `TurnEnded` after a call of a tool that ends the attempt. Ends the attempt where a call waits for a person.
        """
        result = await self.call_of_reply(tool, arguments, call_id=call_id)
        if result is PUT_OFF:
            await self.put_off()
        return result

    async def put_off(self) -> None:
        """End the attempt if a call was put off; it is repeated once a person has answered."""
        if self._waits and self._put_off is not None:
            await self._put_off()

    async def call_of_reply(
        self, tool: Tool, arguments: Mapping[str, Any] | str, *, call_id: str | None = None
    ) -> ToolResult:
        """Make one of the calls of a model's reply, like `call`; one that waits for a person is only put off.

        So all calls of the reply are asked about before the attempt ends. The caller awaits `put_off` behind them,
        before it uses a result. A call that comes after one that was put off is asked about too, but not made: it is
        made in its turn when the attempt is repeated, after the call it may depend on.
        """
        cut_by = self.cut_by(call_id)
        if cut_by is not None:
            reason = f"the call was not made, because {cut_by}: ask for it again, in a shorter reply"
            return self.refuse(tool.name, "unfinished-reply", reason)
        try:
            key, result = await self._call_once(tool, arguments, call_id or "")
        except CallPutOffError:
            self._waits = True
            return PUT_OFF
        if tool.ends is None or result.is_error:
            return result
        ended = TurnEnded(_make_call(key, tool.name, result.value), result.text, answers=tool.ends == "answer")
        if self._on_turn_end is not None:
            self._on_turn_end(ended)
        raise ended

    async def _call_once(self, tool: Tool, arguments: Mapping[str, Any] | str, call_id: str) -> tuple[str, ToolResult]:
        """Return a call's key and its result; the recorded result if it has one."""
        if self._recall is None or self._record is None:
            return "", await self._call(tool, arguments, "", call_id)
        key, recorded = self._recall(tool.name, arguments)
        if recorded is not None:
            await self._repeat(tool, arguments, recorded)
            return key, recorded
        self._record(key, None)  # before the call: a replay after a crash finds that it was begun
        result = await self._call(tool, arguments, key, call_id)
        # A refusal is not recorded: a person or a changed policy may allow the call when it is repeated.
        if result.refused_by is None:
            if self._calls is None:
                self._record(key, result)
            else:
                await self._calls.record(key, result, result)
        return key, result

    async def _repeat(self, tool: Tool, arguments: Mapping[str, Any] | str, result: ToolResult) -> None:
        """Report a recorded call again to the breaker, the calls of this attempt and the guardrails."""
        if not self._is_offered(tool):
            self.breakers.repeat(tool.name, succeeded=not result.is_error)
        if self._guardrails is None and self._made is None:
            return
        seen: Mapping[str, Any] | None = None
        # The record counts, even where today's check refuses the arguments.
        with suppress(CallRefusedError):
            seen = seen_arguments(check_arguments(tool, arguments))
        if self._made is not None and seen is not None and not self._is_offered(tool):
            self._made.begin(tool, seen).end(result)
        if self._guardrails is None:
            return
        if seen is not None:
            call = ToolInput(tool.name, seen)
            await self._guardrails.remember(self._context_of(tool, GuardrailPhase.PRE_TOOL, call))
        answer = ToolOutput.of(tool.name, result.text, is_json=result.is_json)
        await self._guardrails.remember(self._context_of(tool, GuardrailPhase.POST_TOOL, answer))

    async def _call(self, tool: Tool, arguments: Mapping[str, Any] | str, key: str, call_id: str) -> ToolResult:
        ticket = self.breakers.admit(tool.name)
        if ticket is None:
            return self.refuse(tool.name, "circuit-breaker", self.breakers.why_open, key)
        works: bool | None = None  # a refusal or a cancellation says nothing about the tool
        try:
            checked, seen = await self._admit(tool, arguments, key)
            # Taken before the call, because the function may change its arguments.
            asked = None if tool.ends is None else seen_arguments(checked)
            self._check_nothing_waits()
            await checkpoint_if_cancelled()  # a call that never starts must not be charged
            with await self._hold():
                made = await self._start(tool, key, call_id, checked, seen)
                result = await self._execute(tool, checked, made)
            works = None if self._is_offered(tool) else not result.is_error
        except CallRefusedError as refused:
            return self.refuse(tool.name, refused.by, str(refused), key)
        finally:
            self.breakers.end(tool.name, ticket, works)
        if self._guardrails is not None or tool.server is not None:
            result = await self._look_at_result(tool, result, made)
        finished = self._finish(tool, result, made)
        if asked is not None:  # the coordinator decides by these arguments, so they are recorded too
            finished = replace(finished, value=asked)
        if self._calls is not None:
            self._calls.answered(made.number, finished, _ONE_CALL)
        return finished

    async def _start(
        self, tool: Tool, key: str, call_id: str, arguments: Mapping[str, Any], seen: Mapping[str, Any] | None
    ) -> _Made:
        """Record a call that is about to be made, and report it."""
        # First for later attempts, then in the journal as sent: the process may die during the call.
        noted = None if self._made is None or seen is None else self._made.begin(tool, seen)
        about = ("tool", tool.name, _ONE_CALL, tool.side_effect, key)
        number = 0 if self._calls is None else await self._calls.sent(*about)
        around = _NOTHING_AROUND if self._on_start is None else self._on_start(tool, key, call_id)
        if self._on_content is not None:
            self._on_content("arguments", key, arguments)
        return _Made(number, key, anyio.current_time(), around, noted)

    async def _check_repeated(self, tool: Tool, seen: Mapping[str, Any], key: str) -> None:
        """Raise `CallRefusedError` if a call that changes something was made before, unless a person approves it.

        It was made by an earlier attempt, or by an earlier session of the run that did not record its end.
        """
        if not changes(tool):
            return
        if key in self._doubted:
            if self._made is not None:  # the next attempt does not know its key
                self._made.begin(tool, seen)
            reason = "it was called before the run was interrupted, and it is unknown whether it was done"
            await self._check_approved(tool, seen, key, "in-doubt", reason)
        elif self._made is not None and (earlier := self._made.earlier(tool, seen)) is not None:
            await self._check_approved(tool, seen, key, "repeated-write", why_asked(earlier))

    def _is_offered(self, tool: Tool) -> bool:
        """Return whether the coordinator offers the tool: its errors are answers, which no breaker counts."""
        return any(tool is one for one in self._offered)

    def refuse(self, name: str, by: str, reason: str, key: str = "") -> ToolResult:
        """Return the result of a refused call, and report it."""
        result = ToolResult(self._sanitize(reason), is_error=True, refused_by=by)
        if self._on_call is not None:
            self._on_call(name, "refused", by, result.text[:MAX_REASON], key, 0.0)
        return result

    # -- before ---------------------------------------------------------------------------------

    async def _admit(
        self, tool: Tool, arguments: Mapping[str, Any] | str, key: str
    ) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """Run the stages before the tool; return the arguments to run it with. `key` names the call.

        Also return the arguments as the member gave them, if they are recorded for later attempts.
        """
        self._check_static(tool)
        checked = check_arguments(tool, arguments)
        noted = self._made is not None and not self._is_offered(tool)
        guarded = not (self._permissions.guard is None and tool.server is None and self._guardrails is None)
        if not noted and not guarded and not self._doubted:
            return checked, None
        seen = seen_arguments(checked)
        await self._check_repeated(tool, seen, key)
        if guarded:
            await self._check_permission(tool, seen, key)
            self._check_nothing_waits()  # guardrails see only calls that may be made
            # After the permission, so that guardrails see only allowed calls.
            outcome = await self._ask(tool, GuardrailPhase.PRE_TOOL, lambda: ToolInput(tool.name, seen))
            if outcome is not None and outcome.action is GuardrailAction.DENY:
                raise CallRefusedError(outcome.policy or "guardrail", outcome.reason)
            if outcome is not None and outcome.action is GuardrailAction.MODIFY:  # changed arguments are checked again
                self._check_static(tool)
                checked = check_arguments(tool, cast("ToolInput", outcome.payload).arguments)
                await self._check_permission(tool, seen_arguments(checked), key)
        return checked, seen if noted else None

    def _check_nothing_waits(self) -> None:
        """Raise where a call was put off: no other begins behind it."""
        if self._waits:
            raise CallPutOffError

    def _check_static(self, tool: Tool) -> None:
        """Raise unless the tool is allowed, and in plan mode only reads."""
        # The member's own list does not name the coordinator's tools; lists around the run still count.
        for allowed in self._around if self._is_offered(tool) else self._allowed:
            if not any(name in allowed for name in _names(tool)):
                raise CallRefusedError(
                    "allowed-tools", f"the tool {tool.name!r} is not allowed here; allowed are {known(allowed)}"
                )
        if self._permissions.plan_mode and tool.side_effect != "read":
            why = f"only tools that read may be used while planning; {tool.name!r} is a {tool.side_effect} tool"
            raise CallRefusedError("plan-mode", why)

    async def _check_approved(self, tool: Tool, seen: Mapping[str, Any], key: str, by: str, reason: str) -> None:
        """Raise unless a person approves the call."""
        if self._approve is None:
            raise CallRefusedError(by, f"this needs the approval of a human, and the run has no gate: {reason}")
        answer = await self._approve(key, tool.name, seen, reason)
        if answer is None:
            raise CallRefusedError(by, f"this needs the approval of a human, and no answer came: {reason}")
        if answer.action != "approve":
            raise CallRefusedError(by, f"a human refused it: {answer.feedback or reason}")

    async def _check_permission(self, tool: Tool, seen: Mapping[str, Any], key: str) -> None:
        """Raise unless the permission guard allows the call; a guard that fails refuses it."""
        guard = self._permissions.guard
        if guard is None:
            return
        try:
            with AWAITED_CALL:
                decision: Any = await guard.check(tool.name, seen, tool.side_effect)
        except Exception as error:
            end = _passing(error)
            # A halt ends the run. Every other failure of the guard refuses the call.
            if isinstance(end, HaltError):
                raise end from None
            raise CallRefusedError(
                "permission-guard", f"the permission guard failed: {describe_error(error)}"
            ) from error
        if not isinstance(decision, PermissionDecision):
            if inspect.iscoroutine(decision):
                decision.close()  # else the interpreter warns later that it was never awaited
            wrong = describe(decision)[:200]
            raise CallRefusedError("permission-guard", f"the permission guard answered {wrong!r}, not a decision")
        by = decision.policy_id or "permission-guard"
        if decision.action == "deny":
            raise CallRefusedError(by, decision.reason)
        if decision.action == "ask":
            await self._check_approved(tool, seen, key, by, decision.reason)

    # -- the call itself ------------------------------------------------------------------------

    async def _hold(self) -> Reservation:
        """Reserve one tool call; leaving the block books it, however the call ended."""
        try:
            await cover_tool_call(self.governor)
            return self.governor.reserve(tool_calls=1)
        except InsufficientBudget as error:
            raise CallRefusedError("budget", f"no tool call is left to make: {error}") from error

    async def _execute(self, tool: Tool, arguments: Mapping[str, Any], made: _Made) -> ToolResult:
        """Run the tool; its exception becomes an error result, unless it ends the attempt."""
        try:
            with made.around:
                return result_of(await _run(tool, arguments))
        except BaseException as raised:
            error = failure_of(raised)  # None: a cancellation, or the interpreter's own exit
            if error is None:
                self._report_end(tool.name, "error", made, "the call was interrupted")
                raise
            end = _passing(error)
            if end is None:
                return ToolResult(describe_error(error), is_error=True)
            if self._calls is not None:
                self._calls.ended(made.number, "failed", _ONE_CALL)
            self._report_end(tool.name, "error", made, self._sanitize(describe_error(end)))
            if end is raised:
                raise
            raise end from None

    # -- after ----------------------------------------------------------------------------------

    async def _look_at_result(self, tool: Tool, result: ToolResult, made: _Made) -> ToolResult:
        """Ask the guardrails; return the result as they allow it."""
        try:
            made_of = partial(ToolOutput.of, tool.name, result.text, is_json=result.is_json)
            outcome = await self._ask(tool, GuardrailPhase.POST_TOOL, made_of)
        except BaseException:
            self._report_end(tool.name, "error", made, "the call was interrupted")
            raise
        if outcome is None:
            return result
        if outcome.action is GuardrailAction.DENY:
            return ToolResult(outcome.reason, is_error=True, refused_by=outcome.policy)
        if outcome.action is GuardrailAction.MODIFY:
            # Without the value: it would still have what the guardrail took out of the text.
            return ToolResult(outcome.payload.text, result.is_error, None, result.refused_by, result.files)
        return result

    def _finish(self, tool: Tool, result: ToolResult, made: _Made) -> ToolResult:
        text = self._sanitize(result.text)
        if text is not result.text:  # the same object: nothing was masked or cut
            result = ToolResult(text, result.is_error, None, result.refused_by, result.files)
        if self._on_content is not None:
            self._on_content("result", made.key, result.text)
        if made.noted is not None:
            made.noted.end(result)
        reason = result.text if result.is_error else None
        self._report_end(tool.name, "error" if result.is_error else "ok", made, reason, result.refused_by)
        return result

    def _report_end(
        self, name: str, outcome: Outcome, made: _Made, reason: str | None, refused_by: str | None = None
    ) -> None:
        """Report the end of a call that was made."""
        if self._on_call is not None:
            why = None if reason is None else reason[:MAX_REASON]
            self._on_call(name, outcome, refused_by, why, made.key, anyio.current_time() - made.at)

    # -- guardrails -----------------------------------------------------------------------------

    async def _ask(
        self, tool: Tool, phase: GuardrailPhase, payload: Callable[[], GuardrailPayload]
    ) -> GuardrailOutcome | None:
        """Ask the guardrails of a phase; None when it has no guardrails."""
        chain = self._guardrails
        if tool.server is not None and not self._is_listed(tool):
            if self._with_mcp is None:
                self._with_mcp = joined([self._mcp_policy()], () if chain is None else chain.policies)
            chain = self._with_mcp
        if chain is None or not chain.covers(phase):
            return None
        outcome = await chain.evaluate(self._context_of(tool, phase, payload()))
        if self._on_decision is not None:
            for ruling in outcome.trail:
                if ruling.decision.action is not GuardrailAction.ALLOW:
                    self._on_decision(phase, tool.name, ruling)
        return outcome

    def _context_of(self, tool: Tool, phase: GuardrailPhase, payload: GuardrailPayload) -> GuardrailContext:
        about = {"server": tool.server, "tool": tool.server_tool or tool.name, "side_effect": tool.side_effect}
        return GuardrailContext(phase, self._member, tool.name, payload, {**self._metadata, **about})

    def _is_listed(self, tool: Tool) -> bool:
        """Return whether the server's own list allows the tool, and the team has no policy that also decides."""
        return tool.allowed and self._permissions.mcp is None

    def _mcp_policy(self) -> McpPolicy:
        from kairo_team.governance.policies.mcp_policy import McpPolicy

        return self._permissions.mcp or McpPolicy()


def _passing(error: Exception) -> Exception | None:
    """Return the error that must leave the tool unchanged, also from inside a group; None for a failure of the tool."""
    leaves = list(leaves_of(error))
    # The kind comes first: among several errors in a group, a halt matters most.
    return next((leaf for kind in PASSING for leaf in leaves if isinstance(leaf, kind)), None)


def _names(tool: Tool) -> tuple[str, ...]:
    """Return the names for a tool in a list of allowed tools; an MCP server's tool has two."""
    return (tool.name,) if tool.server is None else (tool.name, f"{tool.server}/{tool.server_tool}")


async def _run(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    """Run a tool within its own timeout."""
    if tool.timeout is None:
        return await tool.call(arguments)
    # Not `fail_after`, whose error would look like a TimeoutError of the tool.
    with anyio.move_on_after(tool.timeout):
        return await tool.call(arguments)
    raise TimeoutError(f"it took longer than {in_seconds(tool.timeout)}")


class GovernedTool:
    """A tool with all its calls going through a pipeline."""

    __slots__ = ("pipeline", "tool")

    def __init__(self, pipeline: ToolPipeline, tool: Tool) -> None:
        self.pipeline = pipeline
        self.tool = tool

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    @property
    def spec(self) -> ToolSpec:
        """The tool's specification for a model."""
        return self.tool.spec

    async def call(self, arguments: Mapping[str, Any] | str, *, call_id: str | None = None) -> ToolResult:
        """Call the tool with arguments by name, or with a model's JSON text; see `ToolPipeline.call`."""
        return await self.pipeline.call(self.tool, arguments, call_id=call_id)

    async def call_of_reply(self, arguments: Mapping[str, Any] | str, *, call_id: str | None = None) -> ToolResult:
        """Call it as one of several calls of a reply; see `ToolPipeline.call_of_reply`."""
        return await self.pipeline.call_of_reply(self.tool, arguments, call_id=call_id)

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        """Call the tool like a function, with arguments by name."""
        return await self.pipeline.call(self.tool, arguments)

    def __repr__(self) -> str:
        return f"GovernedTool({self.name!r})"


class Toolbox:
    """Tools with different names, governed by one pipeline. Two tools with the same name raise `ValueError`.

    Tools that the pipeline would refuse with any arguments are not offered: `specs` and `names` do not list them.
    """

    __slots__ = ("_offered", "_pipeline", "_tools", "last_specs", "specs")

    specs: tuple[ToolSpec, ...]
    """The specifications of the offered tools, in order."""
    last_specs: tuple[ToolSpec, ...]
    """The specifications of the offered tools that end an attempt: these are offered on its last turn too."""

    def __init__(self, pipeline: ToolPipeline, tools: Iterable[Tool], offered: Iterable[Tool] = ()) -> None:
        """Take the member's own tools, and those that the coordinator offers (`offered`)."""
        self._pipeline = pipeline
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            other = self._tools.setdefault(tool.name, tool)
            if other is not tool:
                raise ValueError(
                    f"two tools are named {tool.name!r}: give one of them another name, as_tool(..., name=...)"
                )
        for tool in offered:
            if self._tools.setdefault(tool.name, tool) is not tool:
                raise ValueError(
                    f"the coordinator offers a tool {tool.name!r}, and the member has one of this name: give the "
                    "member's another name, as_tool(..., name=...)"
                )
        self._offered = {name: tool for name, tool in self._tools.items() if pipeline.refusal(tool) is None}
        self.specs = tuple(tool.spec for tool in self._offered.values())
        self.last_specs = tuple(tool.spec for tool in self._offered.values() if tool.ends is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the offered tools, in order."""
        return tuple(self._offered)

    def __getitem__(self, name: str) -> GovernedTool:
        """Return the tool with that name, offered or not; `KeyError` lists the offered names."""
        if name not in self._tools:
            raise KeyError(f"there is no tool {name!r}; there are {known(self._offered)}")
        return GovernedTool(self._pipeline, self._tools[name])

    def __iter__(self) -> Iterator[GovernedTool]:
        """Iterate over the offered tools, in order."""
        return (GovernedTool(self._pipeline, tool) for tool in self._offered.values())

    def __len__(self) -> int:
        return len(self._offered)

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Make the calls of one turn; return their results in the same order.

        Consecutive calls of `read` tools run concurrently. Any other call, and a call of a tool that ends the attempt,
        runs alone, after all before it and before all after it. Raises what `ToolPipeline.call` raises, after
        cancelling the calls that run concurrently. Where calls wait for a person, the attempt ends once all are asked
        about.
        """
        results: list[ToolResult] = []
        for reads, group in groupby(calls, self._reads):
            together = list(group)
            if reads and len(together) > 1:
                results += await self._side_by_side(together)
            else:
                results += [await self._call(call) for call in together]
        await self._pipeline.put_off()
        return results

    def _reads(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        # A call of no tool is only refused, so it needs no turn of its own.
        return tool is None or (tool.side_effect == "read" and tool.ends is None)

    async def _call(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            reason = f"there is no tool {call.name!r:.200}; there are {known(self._offered)}"
            return self._pipeline.refuse(call.name, "unknown-tool", reason)
        return await self._pipeline.call_of_reply(tool, call.arguments, call_id=call.id)

    async def _side_by_side(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        # A tool may cancel its own task, which the group takes for the end of that task.
        lost = ToolResult("cancelled from inside a tool of this turn: there is no result", is_error=True)
        results = [lost] * len(calls)

        async def fill(place: int) -> None:
            results[place] = await self._call(calls[place])

        try:
            async with anyio.create_task_group() as group:
                for place in range(len(calls)):
                    group.start_soon(fill, place)
        except ExceptionGroup as error:
            # The caller awaits what a single call raises, not a group.
            raise _passing(error) or innermost(error) from None
        return results
