"""`tool-loop`: denies a tool call that is repeated with the same arguments."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kairo_team.budget import check_count
from kairo_team.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase, ToolInput


@dataclass(frozen=True, slots=True)
class ToolLoop:
    """Warn, then deny, when a member repeats one tool call with the same arguments, in one task of one run.

    Any other call in between restarts the count. Denied calls count too.
    """

    name: ClassVar[str] = "tool-loop"
    phases: ClassVar[frozenset[GuardrailPhase]] = frozenset({GuardrailPhase.PRE_TOOL})
    warn_at: int = 3
    """Number of the first call in a row that gets a warning, counted from 1."""
    deny_at: int = 5
    """Number of the first call in a row that is denied, counted from 1."""
    order: float = field(default=0, kw_only=True)
    _rows: dict[Any, tuple[bytes, int]] = field(
        default_factory=dict[Any, tuple[bytes, int]], init=False, repr=False, compare=False
    )
    """The last call and how often it was made in a row, by run, task and member."""

    def __post_init__(self) -> None:
        check_count("ToolLoop.warn_at", self.warn_at, 2)
        check_count("ToolLoop.deny_at", self.deny_at, 2)
        if self.warn_at > self.deny_at:
            raise ValueError(f"ToolLoop.warn_at ({self.warn_at}) must not be above deny_at ({self.deny_at})")

    def for_run(self) -> ToolLoop:
        """Return a policy with the same limits that has counted nothing."""
        return ToolLoop(self.warn_at, self.deny_at, order=self.order)

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Count the call."""
        call = context.payload
        if not isinstance(call, ToolInput):
            return GuardrailDecision.allow()
        body = json.dumps([call.name, call.arguments], sort_keys=True)
        digest = hashlib.sha256(body.encode()).digest()  # so that long arguments are not kept
        metadata = context.metadata
        # Members and tasks run at the same time: each has a row of its own.
        key = (metadata.get("run_id"), metadata.get("task_id"), context.member)
        last, times = self._rows.get(key, (b"", 0))
        number = times + 1 if digest == last else 1
        self._rows[key] = (digest, number)
        if number < self.warn_at:
            return GuardrailDecision.allow()
        reason = f"{call.name!r} is called with the same arguments {number} times in a row"
        if number < self.deny_at:
            return GuardrailDecision.warn(reason)
        return GuardrailDecision.deny(f"{reason}: try something else")
