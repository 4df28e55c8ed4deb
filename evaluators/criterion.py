"""`Criterion`: one requirement of an artifact, who decides it, and which answers there are."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

from kairo_team._util.frozen import EMPTY, check_kind, freeze_named, freeze_several, known_arguments
from kairo_team._util.plugin_shapes import check_function, check_instance
from kairo_team.artifacts import Finding
from kairo_team.errors import known
from kairo_team.evaluators.score_range import KINDS, Kind, Number, positive
from kairo_team.tasks import check_id
from kairo_team.verdicts import APPROVED, NOT_APPLICABLE, UNKNOWN

By = Literal["check", "judge", "human"]
BY: Final[tuple[By, ...]] = ("check", "judge", "human")
Evidence = Literal["none", "quote", "sources"]
EVIDENCE: Final[tuple[Evidence, ...]] = ("none", "quote", "sources")
On = Literal["artifact", "transcript"]
ON: Final[tuple[On, ...]] = ("artifact", "transcript")
RESERVED: Final = frozenset({UNKNOWN, NOT_APPLICABLE, APPROVED})


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision of a check, a judge or a human on one criterion."""

    level: bool | str | None
    """True is the best level, False the worst, a name that level; None: unknown."""
    reason: str = ""
    quote: str | None = None
    """The place in the artifact that shows it, word for word."""
    finding: Finding | None = None
    """A finding of the check or the judge; None takes the criterion's text."""
    others: Sequence[Finding] = ()
    """Further findings, where several places of the artifact are wrong."""

    def __post_init__(self) -> None:
        check_kind("Answer.reason", self.reason, str)
        check_kind("Answer.quote", self.quote, str, or_none=True)
        check_kind("Answer.finding", self.finding, Finding, or_none=True)
        if self.others or type(self.others) is not tuple:
            object.__setattr__(self, "others", freeze_several("Answer.others", self.others, Finding))


@known_arguments
@dataclass(frozen=True, slots=True)
class Example:
    """A text and its level on a criterion: a judge is shown it as data."""

    text: str
    level: str
    """One of the criterion's levels."""
    reason: str = ""
    """Why the text has that level, in a sentence."""

    def __post_init__(self) -> None:
        for name in ("text", "level", "reason"):
            given = getattr(self, name)
            if not isinstance(given, str) or (name != "reason" and not given.strip()):
                raise ValueError(
                    f"Example.{name} must be a text{'' if name == 'reason' else ' that is not blank'}, not {given!r}"
                )


@runtime_checkable
class Check(Protocol):
    """Decides one criterion: `(artifact)` or `(artifact, context)`, sync or async. Contract 1.7, experimental.

    An async check runs in the event loop, a plain one in a thread; a check with the attribute `in_place = True` is
    called in the event loop and must be quick for every artifact. An attribute `timeout` is its own limit in seconds.

    C1. It returns True when the artifact meets the criterion; False, a sentence or a `Finding` that says what is wrong
        when not; an `Answer` for a level in between. It returns one of these for every text.
    C2. The same artifact and context get the same answer, in any order and in several calls at once.
    C3. A good artifact meets it, a bad one does not.
    C4. Where it cannot decide, it raises or returns `Answer(None)`: neither True nor a fault of the artifact.
    C5. Its state can be read, so that its rubric has a digest: the same for two that are made alike, in any process.
    C6. By name, in the data of a rubric, it decides the same, and `Rubric.to_data` returns the data.
    C7. A cancellation of an async check passes through.
    """

    def __call__(
        self, *args: Any, **kwargs: Any
    ) -> bool | str | Finding | Answer | Awaitable[bool | str | Finding | Answer]:
        """Check one artifact."""
        ...


Applies = Callable[..., "bool | Awaitable[bool]"]
"""A function `(artifact)` or `(artifact, context)`, sync or async, that is True where a criterion applies."""


@known_arguments
@dataclass(frozen=True, slots=True)
class Criterion:
    """One requirement of an artifact. "Met" is always good: a penalty is taken when the criterion is not met."""

    id: str
    text: str
    """The requirement, in a sentence a member can act on."""
    check: Check | None = None
    _: KW_ONLY
    by: By = "check"
    """Who decides: code, a model, or the run's human gate."""
    kind: Kind = "gate"
    """A gate must be met. A graded one adds its weight to the score, a penalty takes it away, an info does neither."""
    weight: Number = 1
    """Weight in the score, > 0; ignored for a gate or an info."""
    levels: tuple[str, ...] = ("not met", "met")
    """Names of the levels, worst first. A gate is met at the best one; a graded criterion earns a share per level."""
    evidence: Evidence = "none"
    """"quote": a judge's answer above the worst level counts only with a quote that is in the artifact. "sources"
    (faithfulness, groundedness): a judge splits the artifact into claims, and each needs a quote of a source: a result
    of a task before, a file that is a text or, with `reference`, the reference."""
    applies: Applies | None = None
    """Decides, before the criterion is checked, whether it applies to this artifact. None: always."""
    version: str | None = None
    """Replaces `check` and `applies` in the digest where their state cannot be read; see `Rubric.digest`."""
    level_texts: Mapping[str, str] = EMPTY
    """What each level means, by name; shown to a judge. Levels may be left out."""
    examples: Sequence[Example] = ()
    """Texts with their level; shown to a judge in this order."""
    reference: bool = False
    """Whether it is decided by comparing with `Task.reference`: a judge is shown that; without one it is unknown."""
    on: On = "artifact"
    """"transcript": the criterion is about the member's conversation and tool calls. A check and a judge get them as a
    text instead of the artifact; `EvaluationContext.transcript` has the messages. Without messages it is unknown."""

    def __post_init__(self) -> None:
        check_id(self.id)
        owner = f"criterion {self.id!r}"
        if not isinstance(self.text, str) or not self.text.strip():
            raise ValueError(f"{owner}: the text must not be blank")
        for name, given, allowed in (("by", self.by, BY), ("kind", self.kind, KINDS), ("on", self.on, ON)):
            if given not in allowed:
                raise ValueError(f"{owner}: {name} must be one of {known(allowed)}, not {given!r}")
        self._check_decider(owner)
        positive(self.weight, f"{owner}: the weight must be a finite number > 0")
        object.__setattr__(self, "levels", _levels(owner, self.levels))
        object.__setattr__(self, "level_texts", freeze_named(f"{owner}: level_texts", self.level_texts, str))
        object.__setattr__(self, "examples", freeze_several(f"{owner}: examples", self.examples, Example))
        self._check_shown(owner)

    def _check_decider(self, owner: str) -> None:
        if self.by == "check" and not callable(self.check):
            who = "by='judge' or by='human'"
            raise ValueError(f"{owner}: the check must be a function, not {self.check!r}; without one say {who}")
        if self.by != "check" and self.check is not None:
            raise ValueError(f"{owner}: a {self.by} decides it, so it takes no check: make that a criterion of its own")
        if self.applies is not None and not callable(self.applies):
            raise ValueError(f"{owner}: applies must be a function or None, not {self.applies!r}")
        for name, function in (("check", self.check), ("applies", self.applies)):
            if function is not None:
                _check_function(owner, name, function)
        if self.version is not None and (not isinstance(self.version, str) or not self.version.strip()):
            raise ValueError(f"{owner}: version must be a text that is not blank, or None, not {self.version!r}")
        if self.evidence not in EVIDENCE:
            raise ValueError(f"{owner}: evidence must be one of {known(EVIDENCE)}, not {self.evidence!r}")
        if self.evidence != "none" and self.by != "judge":
            raise ValueError(f"{owner}: only a judge gives quotes, and a {self.by} decides it: take evidence='none'")

    def _check_shown(self, owner: str) -> None:
        """Reject examples of unknown levels, and examples or references where no judge decides."""
        for what, named in (("level_texts", [*self.level_texts]), ("examples", [one.level for one in self.examples])):
            strange = [level for level in named if level not in self.levels]
            if strange:
                raise ValueError(f"{owner}: {what} are about its levels, {known(self.levels)}, not {strange[0]!r}")
        if self.examples and self.by != "judge":
            raise ValueError(f"{owner}: examples are for a judge, and a {self.by} decides it: leave them out")
        if self.evidence == "sources":
            self._check_of_sources(owner)
        if self.reference is not True and self.reference is not False:
            raise ValueError(f"{owner}: reference must be True or False, not {self.reference!r}; see Task.reference")
        if self.reference and self.by == "human":
            raise ValueError(f"{owner}: a person is not shown Task.reference: take by='judge', or reference=False")

    def _check_of_sources(self, owner: str) -> None:
        """Reject what a judge is not shown when it is asked about single claims."""
        if self.on != "artifact":
            raise ValueError(f"{owner}: with evidence='sources' it is about claims of the artifact: take on='artifact'")
        if self.top != 1:
            raise ValueError(f"{owner}: with evidence='sources' it takes two levels, not {known(self.levels)}")
        for name in ("level_texts", "examples"):
            if getattr(self, name):
                raise ValueError(f"{owner}: with evidence='sources' no judge is shown its {name}: leave them out")

    @property
    def top(self) -> int:
        """Index of the best level; the worst has 0."""
        return len(self.levels) - 1


def takes_context(function: Callable[..., Any]) -> bool:
    """Return whether a function takes a second positional argument, the evaluation context."""
    given = getattr(function, "wants_context", None)
    if isinstance(given, bool):
        return given
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # One with a default is the check's own option.
    return sum(p.default is p.empty and p.kind in positional for p in parameters) > 1


def _check_function(owner: str, name: str, function: Any) -> None:
    """Raise `ValueError` for a factory, a class, and a function that cannot be called with what a review gives it."""
    # A text: annotations are postponed.
    returned = function.__annotations__.get("return") if inspect.isfunction(function) else None
    if returned in ("NamedCheck", "checks.NamedCheck"):
        made = function.__name__
        raise ValueError(f"{owner}: {made} is a factory, not a check: call it, {name}={made}(...)")
    where = f"{owner}: {name}"
    if function is not bool:  # the only class whose call is an answer
        check_instance(where, "a check", function)
    takes = ("artifact", "context")[: 1 + takes_context(function)]
    check_function(where, function, f"({', '.join(takes)})", len(takes))


def _levels(owner: str, levels: Any) -> tuple[str, ...]:
    if not isinstance(levels, list | tuple):
        raise ValueError(f"{owner}: levels are a list of names, worst first, not {levels!r}")
    names: tuple[Any, ...] = tuple(cast("Iterable[Any]", levels))
    if len(names) < 2 or not all(isinstance(name, str) and name.strip() for name in names):  # noqa: PLR2004 - two ends
        raise ValueError(f"{owner}: levels need two names at least, none of them blank, not {levels!r}")
    if len(set(names)) != len(names) or not RESERVED.isdisjoint(names):
        raise ValueError(f"{owner}: levels must differ, and none be called {known(RESERVED)}: {levels!r}")
    return names
