"""The bodies of messages between coordinators and workers: values of the journal's codec, never code."""

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
    """A tool that the coordinator offers for an attempt; the coordinator executes its calls."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    side_effect: SideEffect
    timeout: float | None
    idempotent: bool
    ends: Ends | None


class Work(NamedTuple):
    """An attempt for a worker to make."""

    assignment: Assignment
    member: str
    number: int
    timeout: float | None
    governor: str
    """The name of the governor that grants the budget."""
    grant: Grant
    spent: Usage = NO_USAGE
    """The attempt's usage before it was interrupted."""
    directives: int = 0
    """The number of directives that the prompt contains already."""
    foreign: bool = False
    offered: tuple[OfferedTool, ...] = ()
    asks_people: bool = False
    """Whether the coordinator can ask a person about tool calls."""
    with_content: bool = False
    """Whether a subscriber receives the texts of the work."""
    unpriced: bool = False
    """Whether models without a price are allowed."""
    grace: float = 1.0
    """Seconds for clean-up after an end."""
    path: str = ""
    """The governor's place in the budget tree of the run."""
    exit: Violation | None = None
    """The violation by which a constraint that the coordinator watches ends every attempt, or None."""
    templates: Mapping[str, str] = MappingProxyType({})
    """The prompt templates of the run's coordinator and runtime that replace the library's."""
    inside: ContentMode | None = None
    """The content mode of events of runs inside the attempt; None if no subscriber receives these events."""
    traceparent: str | None = None
    """The W3C trace context of the attempt's span; None if the run is not traced."""


class WorkEnd(NamedTuple):
    """How an attempt ended on a worker."""

    attempt: Attempt
    spent: Usage
    """The attempt's total usage, including its usage before it was interrupted."""
    kept: str = ""
    """The partial work."""
    turns: int = 0
    blocked: Mapping[str, float] = MappingProxyType({})
    """For each agent or tool that blocked the worker's event loop, the seconds."""
    stubborn: tuple[str, ...] = ()
    """Warnings about agents and tools that did not end when they were cancelled."""


class Question(NamedTuple):
    """A question to a person; without a key, the coordinator asks only the run's gate."""

    number: int
    key: str | None
    request: HumanRequest


class ToolUse(NamedTuple):
    """A call of a tool that the coordinator offers."""

    number: int
    name: str
    arguments: Mapping[str, Any]


class Overshoot(NamedTuple):
    """A model call that used more than its hold."""

    model: str
    held: Usage
    used: Usage


class Divergence(NamedTuple):
    """Calls that were made instead of recorded ones."""

    work: str
    calls: int


class Refused(NamedTuple):
    """Why a budget refuses: the fields of an `InsufficientBudget`, or, with a `reason`, of a `HaltError`."""

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
    """Return a budget's error as a value that can be sent."""
    lacking = error.lacking if isinstance(error, HaltError) else error
    reason = error.reason if isinstance(error, HaltError) else None
    usage = error.usage if isinstance(error, HaltError) else NO_USAGE
    origin, path = str(getattr(error, "origin", "")), str(getattr(error, "path", ""))
    if not isinstance(lacking, InsufficientBudget):
        return Refused(str(error), origin, reason, usage=usage, path=path)
    amounts = (lacking.dimension, lacking.asked, lacking.left, lacking.needed)
    return Refused(str(error), origin, reason, *amounts, usage, path)


def refusal_of(told: Refused) -> KairoError:
    """Return the error that `refused` converted."""
    lacking = None
    if told.dimension:
        amounts = (told.dimension, told.asked, told.left)
        lacking = InsufficientBudget(*amounts, told.origin, needed=told.needed, path=told.path)
    if told.reason is not None:
        return HaltError(told.reason, told.usage, told.origin, lacking=lacking, path=told.path)
    return lacking or KairoError(told.text)
