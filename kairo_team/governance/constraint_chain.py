"""`ConstraintChain`: asks constraints one after another, and takes every failure of one for an emergency."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from kairo_team.contracts import check_constraints
from kairo_team.errors import known
from kairo_team.governance.constraint_limits import (
    CostLimit,
    ExternalSignal,
    MaxIterations,
    Timeout,
    TokenBudget,
    WarnAt,
    name_of,
)
from kairo_team.governance.constraints import ConstraintReport, ResourceAction, ResourceValidation, Violation

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from kairo_team.contracts import ResourceConstraint
    from kairo_team.governance.constraints import ResourceContext

ENTRY_POINTS: Final = "kairo_team.constraints"
"""The entry-point group in which a package publishes constraints, each as a class or function that makes one."""

_BUILT_IN: Final[Mapping[str, Callable[..., Any]]] = {
    "cost-limit": CostLimit,
    "external-signal": ExternalSignal,
    "max-iterations": MaxIterations,
    "timeout": Timeout,
    "token-budget": TokenBudget,
    "warn-at": WarnAt,
}
_ALLOWED: Final = ConstraintReport(ResourceAction.ALLOW)


class ConstraintChain:
    """Constraints in the order in which they are asked. The most severe action wins.

    A constraint that raises, or returns what it may not, counts as an emergency stop in its name. Cancellation
    passes through. The chain keeps nothing: one chain guards any number of attempts at once, and may be given to a team
    or a member as its constraints.
    """

    __slots__ = ("constraints",)

    def __init__(self, constraints: Iterable[ResourceConstraint] = ()) -> None:
        self.constraints = check_constraints("ConstraintChain", constraints)

    @classmethod
    def from_config(cls, entries: Sequence[Mapping[str, Any]]) -> ConstraintChain:
        """Make a chain from the parsed list of any YAML, TOML or JSON file: `{"name": "timeout", "seconds": 60}`.

        The names are those of the built-in constraints, then those published under the entry-point group
        `kairo_team.constraints`, which are imported only when named here. What `warn-at` warns of is an entry itself:
        `{"name": "warn-at", "constraint": {...}, "share": 0.8}`. `ValueError` for an unknown name, a bad option, or
        one constraint twice.
        """
        if isinstance(entries, str | Mapping) or not isinstance(entries, Iterable):
            raise ValueError(f"constraints are configured by a list of mappings, not {entries!r}")
        built: dict[str, ResourceConstraint] = {}
        for entry in entries:
            name, constraint = _build(entry)
            if name in built:
                raise ValueError(f"the constraint {name!r} is configured twice: keep one of them")
            built[name] = constraint
        return cls(built.values())

    async def evaluate(self, context: ResourceContext) -> ConstraintReport:
        """Ask each constraint in turn; the first emergency stop ends it."""
        if not self.constraints:
            return _ALLOWED
        validations: list[ResourceValidation] = []
        violations: list[Violation] = []
        for position, constraint in enumerate(self.constraints):
            validation, violation = await _ask(constraint, position, partial(constraint.validate, context))
            validations.append(validation)
            if violation is not None:
                violations.append(violation)
                if violation.action is ResourceAction.EMERGENCY_STOP:
                    break
        decided = max(violations, key=lambda violation: violation.action.severity, default=None)
        return ConstraintReport(
            decided.action if decided else ResourceAction.ALLOW,
            tuple(validations),
            decided.constraint if decided else None,
            tuple(violations),
        )

    def __iter__(self) -> Iterator[ResourceConstraint]:
        return iter(self.constraints)

    @property
    def watched(self) -> tuple[int, ...]:
        """The positions of constraints that have a `watch`."""
        return tuple(i for i, one in enumerate(self.constraints) if callable(getattr(one, "watch", None)))

    async def watch(self, position: int) -> Violation | None:
        """Wait for what the constraint at `position` watches for; None when it gives up without a violation."""
        constraint: Any = self.constraints[position]
        return (await _ask(constraint, position, constraint.watch))[1]

    def __repr__(self) -> str:
        return f"ConstraintChain({list(self.constraints)!r})"


async def _ask(
    constraint: ResourceConstraint, position: int, look: Callable[[], Awaitable[ResourceValidation]]
) -> tuple[ResourceValidation, Violation | None]:
    """Have one constraint look, and decide if it must; whatever it does wrong is an emergency stop."""
    name = name_of(constraint)
    metrics: Mapping[str, Any] = {}
    try:
        validation = _expect(await look(), ResourceValidation)
        if not validation.violated:
            return validation, None
        metrics = validation.metrics
        action = _expect(constraint.on_violation(validation), ResourceAction)
    except Exception as error:  # noqa: BLE001 - a constraint that fails must not let anything pass
        problem = f"{type(error).__name__}: {error}"
        validation = ResourceValidation(True, f"it failed with {problem}", {**metrics, "error": problem})
        action = ResourceAction.EMERGENCY_STOP
    return validation, Violation(name, position, action, validation)


def _expect(answer: Any, kind: type[Any]) -> Any:
    """Return a constraint's answer if it is of the type it must have, else raise `TypeError`."""
    if isinstance(answer, kind):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()  # else the interpreter complains of it later, somewhere else
    raise TypeError(f"it returned {answer!r:.200}, not a {kind.__name__}")


def _build(entry: Any) -> tuple[str, ResourceConstraint]:
    """Make one configured constraint, and the name it may have only once."""
    options = dict(cast("Mapping[str, Any]", entry)) if isinstance(entry, Mapping) else {}
    name: Any = options.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(f"a configured constraint is a mapping with a name, not {entry!r}; there are {_names()}")
    make = _BUILT_IN.get(name) or _load(name)
    if make is WarnAt and "constraint" in options:
        options["constraint"] = _build(options["constraint"])[1]
    _check_options(name, make, options)
    try:
        (made,) = check_constraints(f"constraint {name!r}", [make(**options)])
    except (TypeError, ValueError) as error:
        raise ValueError(f"constraint {name!r}: {error}") from error
    return (name_of(made) if make is WarnAt else name), made


def _check_options(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise `ValueError` for an option there is not, or one that lacks."""
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        strange = [option for option in options if option not in signature.parameters]
        problem = f"there is no option {strange[0]!r}" if strange else str(error)
        raise ValueError(f"constraint {name!r}: {problem}; its options are {known(signature.parameters)}") from None


def _load(name: str) -> Callable[..., Any]:
    """Import what a package published under a name."""
    found = [point for point in _published() if point.name == name]
    if not found:
        raise ValueError(f"there is no constraint {name!r}; there are {_names()}")
    if len(found) > 1:
        raise ValueError(f"the constraint {name!r} is published twice: {known(point.value for point in found)}")
    try:
        make: Callable[..., Any] = found[0].load()
    except Exception as error:
        raise ValueError(f"constraint {name!r} cannot be loaded from {found[0].value!r}: {error}") from error
    return make


def _published() -> Sequence[EntryPoint]:
    metadata: Any = import_module("importlib.metadata")  # slow to import, and rarely asked for
    return tuple(metadata.entry_points(group=ENTRY_POINTS))


def _names() -> str:
    return known({*_BUILT_IN, *(point.name for point in _published())})
