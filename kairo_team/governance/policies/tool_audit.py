"""`tool-audit`: logs every tool call and every result."""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import anyio

from kairo_team._util.frozen import thaw
from kairo_team._util.masking import masked
from kairo_team.budget import check_count
from kairo_team.governance.guardrails import check_phases
from kairo_team.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase, ToolInput
from kairo_team.plugin_calls import AWAITED_CALL, problem_of

_AT_TOOLS: Final = frozenset({GuardrailPhase.PRE_TOOL, GuardrailPhase.POST_TOOL})
_ABOUT: Final = ("run_id", "task_id", "server", "side_effect")

_logger = logging.getLogger("kairo_team")
_audit_logger = logging.getLogger("kairo_team.audit")

Record = dict[str, Any]
"""Keys: `time` (UTC, ISO 8601), `phase`, `run_id`, `task_id`, `member`, `tool`, `server`, `side_effect`, and
`arguments` or `result`; if these are cut, `cut` is their full length in characters."""


@dataclass(frozen=True, slots=True)
class ToolAudit:
    """Record tool calls and results, as earlier policies left them, and allow them.

    `sink` is the path of a file, to which JSON lines are appended, or a function, sync or async, that takes a record;
    None is the logger `kairo_team.audit`, which gets the same lines at INFO. A missing file is created, readable only
    by its owner; a missing folder is not created. A line is written at once and blocks the event loop, so put the file
    on a disk that does not hang. A plain function must be quick.

    If a sink fails, the program logs a warning and the call proceeds. The secrets of `Runtime(secrets=)` are masked.
    """

    name: ClassVar[str] = "tool-audit"
    sink: str | os.PathLike[str] | Callable[[Record], Any] | None = None
    longest: int = 10_000
    """Most characters of arguments or a result, as JSON; the rest is cut."""
    patience: float = 1.0
    """Seconds after which an async sink is cancelled."""
    phases: Iterable[GuardrailPhase] = field(default=_AT_TOOLS, kw_only=True)
    order: float = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        sink = self.sink
        if not (sink is None or callable(sink)) and not (isinstance(sink, str | os.PathLike) and os.fspath(sink)):
            raise ValueError(
                "ToolAudit.sink must be the path of a file, a function, or None for the logger 'kairo_team.audit', not "
                f"{sink!r}"
            )
        check_count("ToolAudit.longest", self.longest)
        if isinstance(self.patience, bool) or not isinstance(self.patience, int | float) or not self.patience > 0:
            raise ValueError(f"ToolAudit.patience must be a number of seconds above 0, not {self.patience!r}")
        phases = check_phases(self.name, self.phases)
        if not phases <= _AT_TOOLS:
            raise ValueError(f"ToolAudit.phases must be 'pre_tool' or 'post_tool', not {sorted(phases)}")
        object.__setattr__(self, "phases", phases)

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Write the record; a failure is only logged."""
        try:
            with AWAITED_CALL:
                # Masked last, over the whole record: a secret may be in the arguments and in the result.
                await self._write(masked(_record(context, self.longest)))
        except Exception as error:  # noqa: BLE001 - a lost record does not stop the work
            _logger.warning("tool-audit: a record of %r is lost: %s", context.target, problem_of(error))
        return GuardrailDecision.allow()

    async def _write(self, record: Record) -> None:
        if self.sink is None:
            _audit_logger.info("%s", json.dumps(record))
            return
        if not callable(self.sink):
            # With `O_NONBLOCK` a pipe without a reader is an error, not a wait.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
            file = os.open(self.sink, flags, 0o600)  # arguments may be private
            try:
                os.write(file, json.dumps(record).encode() + b"\n")  # one write: lines of several writers never mix
            finally:
                os.close(file)
            return
        written = self.sink(record)
        if inspect.isawaitable(written):
            with anyio.fail_after(None if math.isinf(self.patience) else self.patience):
                await written


def _record(context: GuardrailContext, longest: int) -> Record:
    payload: Any = context.payload
    record: Record = {"time": datetime.now(UTC).isoformat(), "phase": context.phase.value}
    record |= {key: context.metadata.get(key) for key in _ABOUT}
    record |= {"member": context.member, "tool": payload.name}
    what, content = ("arguments", payload.arguments) if isinstance(payload, ToolInput) else ("result", payload.result)
    whole: str = payload.text
    if len(whole) <= longest:
        return record | {what: thaw(content) if isinstance(content, Mapping | tuple) else content}
    return record | {what: whole[:longest], "cut": len(whole)}
