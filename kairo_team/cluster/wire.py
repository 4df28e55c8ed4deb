"""What coordinators and workers tell each other: values of the journal's codec, never code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kairo_team.budget import NO_USAGE, HaltReason, Usage
from kairo_team.constraints import Violation
from kairo_team.engine.work.runtime import ContentMode
from kairo_team.errors import HaltError, InsufficientBudget, KairoError
from kairo_team.governance.slices import Grant
from kairo_team.human import HumanRequest
from kairo_team.permissions import SideEffect
from kairo_team.results import Attempt
from kairo_team.tasks import Assignment
from kairo_team.tools.tool import Ends


class OfferedTool(NamedTuple):
    """A tool that the coordinator offers for an attempt; it is called where the coordinator is."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    side_effect: SideEffect
    timeout: float | None
    idempotent: bool
    ends: Ends | None


class Work(NamedTuple):
    """An attempt that a worker is to make."""

    assignment: Assignment
    member: str
    number: int
    timeout: float | None
    governor: str
    """The name of the governor that lends the budget."""
    grant: Grant
    spent: Usage = NO_USAGE
    """What the attempt spent before it was interrupted."""
    directives: int = 0
    """How many directives its prompt has already."""
    foreign: bool = False
    offered: tuple[OfferedTool, ...] = ()
    asks_people: bool = False
    """A person can be asked about tool calls."""
    with_content: bool = False
    """Somebody is to get the texts of the work."""
    unpriced: bool = False
    """Models without a price are allowed."""
    grace: float = 1.0
    """Seconds of clean-up after an end."""
    path: str = ""
    """That governor's place in the budget tree of the run."""
    exit: Violation | None = None
    """What a constraint that is watched where the coordinator is decided for every attempt."""
    templates: Mapping[str, str] = MappingProxyType({})
    """The prompt templates of the run, of its coordinator and its runtime, that replace the library's."""
    inside: ContentMode | None = None
    """Whose the texts are in the events of runs inside it; None: nobody gets these events."""
    traceparent: str | None = None
    """The W3C trace context of the attempt's span; None where nobody traces the run."""


class WorkEnd(NamedTuple):
    """How an attempt ended at a worker."""

    attempt: Attempt
    spent: Usage
    """All the attempt has spent, what it spent before it was interrupted included."""
    kept: str = ""
    """Its partial work."""
    turns: int = 0
    blocked: Mapping[str, float] = MappingProxyType({})
    """Who blocked the worker's event loop, and for how many seconds."""
    stubborn: tuple[str, ...] = ()
    """The warnings of who did not end when it was cancelled."""


class Question(NamedTuple):
    """A question to a person; without a key its gate alone is asked."""

    number: int
    key: str | None
    request: HumanRequest


class ToolUse(NamedTuple):
    """A call of a tool that the coordinator offers."""

    number: int
    name: str
    arguments: Mapping[str, Any]


class Overshoot(NamedTuple):
    """A call that used more than was held for it."""

    model: str
    held: Usage
    used: Usage


class Divergence(NamedTuple):
    """Calls that were made in the place of recorded ones."""

    work: str
    calls: int


class Refused(NamedTuple):
    """Why a budget refuses: the fields of `InsufficientBudget`, or of `HaltError` with a reason."""

    text: str
    origin: str
    reason: HaltReason | None = None
    dimension: str = ""
    asked: Any = None
    left: Any = None
    needed: Any = None
    usage: Usage = NO_USAGE
    path: str = ""


def refused(error: KairoError) -> Refused:
    """Write down why a budget refuses."""
    lacking = error.lacking if isinstance(error, HaltError) else error
    reason = error.reason if isinstance(error, HaltError) else None
    usage = error.usage if isinstance(error, HaltError) else NO_USAGE
    origin, path = str(getattr(error, "origin", "")), str(getattr(error, "path", ""))
    if not isinstance(lacking, InsufficientBudget):
        return Refused(str(error), origin, reason, usage=usage, path=path)
    amounts = (lacking.dimension, lacking.asked, lacking.left, lacking.needed)
    return Refused(str(error), origin, reason, *amounts, usage, path)


def refusal_of(told: Refused) -> KairoError:
    """Return the error that was written down."""
    lacking = None
    if told.dimension:
        amounts = (told.dimension, told.asked, told.left)
        lacking = InsufficientBudget(*amounts, told.origin, needed=told.needed, path=told.path)
    if told.reason is not None:
        return HaltError(told.reason, told.usage, told.origin, lacking=lacking, path=told.path)
    return lacking or KairoError(told.text)
