"""What guardrails are told and what they decide: values only. The chain that asks them is in `guardrails`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kairo_team.errors import known
from kairo_team.frozen import EMPTY, freeze
from kairo_team.governance.guardrail_payloads import GuardrailPayload, GuardrailPhase


class GuardrailAction(StrEnum):
    """What is to become of what was looked at."""

    ALLOW = "allow"
    """It goes on as it is."""
    DENY = "deny"
    """It goes no further."""
    MODIFY = "modify"
    """It goes on changed."""
    WARN = "warn"
    """It goes on as it is, and somebody should know."""


@dataclass(frozen=True, slots=True)
class GuardrailContext:
    """What a policy looks at: one payload, and whose it is."""

    phase: GuardrailPhase
    member: str | None
    """The member's name; None for work that is nobody's, such as planning."""
    target: str
    """Name of the model or tool."""
    payload: GuardrailPayload
    metadata: Mapping[str, Any] = field(default=EMPTY, hash=False)
    """Copied read-only. The library fills in `run_id`, `task_id` and `purpose` ("generate", "plan", "evaluate"); at
    tools also `server` (the MCP server's name or None), `tool` (the server's own name of it) and `side_effect`."""

    def __post_init__(self) -> None:
        check_payload("GuardrailContext.payload", self.payload)
        if self.payload.phase != self.phase:
            raise ValueError(f"{shown(self.payload)} is looked at in {self.payload.phase!r}, not in {self.phase!r}")
        object.__setattr__(self, "phase", self.payload.phase)
        object.__setattr__(self, "metadata", freeze(self.metadata))


@dataclass(frozen=True, slots=True)
class GuardrailDecision:
    """What a policy decides; made by `allow`, `deny`, `modify` and `warn`."""

    action: GuardrailAction
    reason: str = ""
    """Why; blank only when it allows."""
    payload: GuardrailPayload | None = None
    """What is to stand in its place, when it modifies; of the same phase."""

    def __post_init__(self) -> None:
        if not isinstance(self.action, GuardrailAction):
            allowed = known(one.value for one in GuardrailAction)
            raise ValueError(f"GuardrailDecision.action must be one of {allowed}, not {self.action!r}")
        if not isinstance(self.reason, str) or (self.action is not GuardrailAction.ALLOW and not self.reason.strip()):
            raise ValueError(f"to {self.action} needs a reason in words, not {self.reason!r}")
        if self.action is GuardrailAction.MODIFY:
            check_payload("what a modification puts in place", self.payload)
        elif self.payload is not None:
            raise ValueError(f"only a modification has a payload; to {self.action} has none")

    @classmethod
    def allow(cls) -> GuardrailDecision:
        """Let it go on as it is."""
        return _ALLOW

    @classmethod
    def deny(cls, reason: str) -> GuardrailDecision:
        """Let it go no further. The reason may be shown to the member."""
        return cls(GuardrailAction.DENY, reason)

    @classmethod
    def modify(cls, reason: str, payload: GuardrailPayload) -> GuardrailDecision:
        """Let `payload` go on instead; it must be of the same phase, and at tools about the same tool."""
        return cls(GuardrailAction.MODIFY, reason, payload)

    @classmethod
    def warn(cls, reason: str) -> GuardrailDecision:
        """Let it go on as it is, and have that recorded."""
        return cls(GuardrailAction.WARN, reason)


_ALLOW: Final = GuardrailDecision(GuardrailAction.ALLOW)


@dataclass(frozen=True, slots=True)
class GuardrailRuling:
    """One entry of the trail: who decided what."""

    policy: str
    """The policy's name."""
    decision: GuardrailDecision


class GuardrailOutcome:
    """What a chain decided. Read-only."""

    __slots__ = ("_payload", "_trail")
    _payload: GuardrailPayload
    _trail: tuple[GuardrailRuling, ...]

    def __init__(self, payload: GuardrailPayload, trail: Iterable[GuardrailRuling] = ()) -> None:
        self._payload = payload
        self._trail = tuple(trail)

    @property
    def payload(self) -> GuardrailPayload:
        """What goes on: the very object that was given, where nothing modified it."""
        return self._payload

    @property
    def trail(self) -> tuple[GuardrailRuling, ...]:
        """Every decision made, in order; none is made after a denial."""
        return self._trail

    @property
    def action(self) -> GuardrailAction:
        """DENY, else MODIFY if anything was modified, else WARN if anybody warned, else ALLOW."""
        return self._decided.decision.action

    @property
    def policy(self) -> str | None:
        """Name of the first policy that decided for `action`; None where all allowed."""
        return self._decided.policy or None

    @property
    def reason(self) -> str:
        """Its reason; empty where all allowed."""
        return self._decided.decision.reason

    @property
    def _decided(self) -> GuardrailRuling:
        for action in (GuardrailAction.DENY, GuardrailAction.MODIFY, GuardrailAction.WARN):
            for ruling in self._trail:
                if ruling.decision.action is action:
                    return ruling
        return _NOBODY

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GuardrailOutcome):
            return NotImplemented
        return (self._payload, self._trail) == (other.payload, other.trail)

    def __hash__(self) -> int:
        return hash((self._payload, self._trail))

    def __repr__(self) -> str:
        return f"GuardrailOutcome({self.action!r}, {self._payload!r}, {self._trail!r})"


_NOBODY: Final = GuardrailRuling("", _ALLOW)


def check_payload(what: str, payload: object) -> None:
    """Raise `ValueError` for what is no payload."""
    if not isinstance(payload, GuardrailPayload):
        kinds = "a ModelInput, ModelOutput, ToolInput or ToolOutput"
        raise ValueError(f"{what} must be {kinds}, not {payload!r:.200}")


def shown(payload: GuardrailPayload) -> str:
    """Name the kind of a payload."""
    return f"a {type(payload).__name__}"
