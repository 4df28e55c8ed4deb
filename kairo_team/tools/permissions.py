"""`ToolPermissions`, and the decisions of a permission guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from kairo_team._util.frozen import check_kind, known_arguments
from kairo_team.permissions import PermissionDecision, SideEffect
from kairo_team.tools.circuit import CircuitBreaker

if TYPE_CHECKING:
    from kairo_team.contracts import PermissionGuard
    from kairo_team.governance.policies.mcp_policy import McpPolicy


@known_arguments
@dataclass(frozen=True, slots=True)
class ToolPermissions:
    """Limits on what the tools of a team may do, in addition to the roles' allowed tools."""

    guard: PermissionGuard | None = None
    """The guard that decides before each call of any tool; None allows all."""
    plan_mode: bool = False
    """Offer and run only tools that declare `read`."""
    mcp: McpPolicy | None = None
    """The policy for tools of MCP servers; None allows the tools that servers list in
    their `allow`."""
    breaker: CircuitBreaker = CircuitBreaker()

    def __post_init__(self) -> None:
        if self.guard is not None and (
            isinstance(self.guard, type) or not callable(getattr(self.guard, "check", None))
        ):
            raise ValueError(
                "ToolPermissions.guard must have an async check(tool, arguments, side_effect), such as "
                f"RuleGuard([...]), not {self.guard!r}"
            )
        check_kind("ToolPermissions.plan_mode", self.plan_mode, bool)
        if self.mcp is not None and (isinstance(self.mcp, type) or not callable(getattr(self.mcp, "refusal", None))):
            raise ValueError(f"ToolPermissions.mcp must be an McpPolicy, not {self.mcp!r}")
        check_kind("ToolPermissions.breaker", self.breaker, CircuitBreaker)


class JointGuard:
    """Asks two permission guards: deny if either denies, else ask a person once if either asks."""

    __slots__ = ("_guards",)

    def __init__(self, first: PermissionGuard, second: PermissionGuard) -> None:
        self._guards = (first, second)

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        """Ask the second unless the first denies."""
        asked: PermissionDecision | None = None
        decision = PermissionDecision.allow()
        for guard in self._guards:
            decision = await guard.check(tool, arguments, side_effect)
            if not isinstance(decision, PermissionDecision) or decision.action == "deny":  # both are refusals
                return decision
            if decision.action == "ask":
                # One question with both reasons, so that a person answers once.
                both = decision if asked is None else replace(asked, reason=f"{asked.reason}; {decision.reason}")
                asked = both
        return asked or decision

    def __repr__(self) -> str:
        return f"JointGuard({self._guards[0]!r}, {self._guards[1]!r})"


def joint_permissions(outer: ToolPermissions | None, inner: ToolPermissions | None) -> ToolPermissions | None:
    """Join the permissions around an attempt with the inner team's; MCP policies are joined as guardrails."""
    if outer is None:
        return inner
    # The breaker stays the inner team's: circuits belong to a run.
    inner = inner or ToolPermissions()
    guards = [one.guard for one in (outer, inner) if one.guard is not None]
    guard = JointGuard(*guards) if len(guards) > 1 else next(iter(guards), None)
    return replace(inner, guard=guard, plan_mode=outer.plan_mode or inner.plan_mode)


Mode = Literal["default", "strict", "plan", "bypass"]

_OPEN_TO: Final[Mapping[Mode, frozenset[str]]] = {
    "default": frozenset({"read", "write"}),
    "strict": frozenset({"read"}),
    "plan": frozenset({"read"}),
    "bypass": frozenset({"read", "write", "system"}),
}


class SideEffectGuard:
    """Decide by the declared side effect of a tool, not by its name.

    `default` asks about system tools, `strict` about all tools that do more than read, `plan` denies the latter,
    `bypass` allows everything. A tool that declares no side effect is a system tool.
    """

    __slots__ = ("mode",)

    def __init__(self, mode: Mode = "default") -> None:
        if mode not in _OPEN_TO:
            raise ValueError(f"SideEffectGuard.mode must be one of {', '.join(_OPEN_TO)}, not {mode!r}")
        self.mode: Mode = mode

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        """Decide by the side effect alone."""
        if side_effect in _OPEN_TO[self.mode]:
            return PermissionDecision.allow()
        policy_id = f"side-effects:{self.mode}"
        if self.mode == "plan":
            return PermissionDecision.deny(
                f"only tools that read may be used while planning; {tool!r} does more", policy_id
            )
        return PermissionDecision.ask(f"{tool!r} is a {side_effect} tool", policy_id)

    def __repr__(self) -> str:
        return f"SideEffectGuard({self.mode!r})"
