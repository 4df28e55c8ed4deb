"""Permission of tool calls: the side effect of a tool, and the decision of a permission guard about one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from kairo_team._util.frozen import check_kind

SideEffect = Literal["read", "write", "system"]
"""What a tool may do: only look; change what it works on; anything else, such as running a command."""

PermissionAction = Literal["allow", "deny", "ask"]
"""`ask` leaves the decision to the run's human gate; without a gate, the call is denied."""


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """The decision of a permission guard about one tool call."""

    action: PermissionAction
    reason: str = ""
    """Why; never blank unless the action is `allow`."""
    policy_id: str = ""
    """The rule that decided, or another id; blank: the guard itself."""

    def __post_init__(self) -> None:
        if self.action not in get_args(PermissionAction):
            raise ValueError(f"PermissionDecision.action must be allow, deny or ask, not {self.action!r}")
        check_kind("PermissionDecision.policy_id", self.policy_id, str)
        if not isinstance(self.reason, str) or (self.action != "allow" and not self.reason.strip()):
            raise ValueError(f"a decision to {self.action} needs a reason in words, not {self.reason!r}")

    @classmethod
    def allow(cls, reason: str = "", policy_id: str = "") -> PermissionDecision:
        """Let the call happen."""
        return cls("allow", reason, policy_id)

    @classmethod
    def deny(cls, reason: str, policy_id: str = "") -> PermissionDecision:
        """Refuse the call; the member reads the reason."""
        return cls("deny", reason, policy_id)

    @classmethod
    def ask(cls, reason: str, policy_id: str = "") -> PermissionDecision:
        """Leave the decision to a person; the reason says what needs approval."""
        return cls("ask", reason, policy_id)
