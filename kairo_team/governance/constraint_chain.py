"""`ConstraintChain`: asks constraints one after another; a constraint that fails is an emergency stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from kairo_team.constraints import ConstraintReport, ResourceAction, ResourceContext, ResourceValidation, Violation
from kairo_team.contracts import ResourceConstraint, check_constraints
from kairo_team.governance.constraint_limits import WarnAt
from kairo_team.governance.plug_ins import Configured, expect, name_of
from kairo_team.plugin_calls import AWAITED_CALL, problem_of
from kairo_team.plugins import make

_CONFIGURED: Final = Configured("constraint", ("kairo", "constraint", "constraints"))
_ALLOWED: Final = ConstraintReport(ResourceAction.ALLOW)
Supervise = Callable[[Awaitable[ResourceValidation], str], Awaitable[ResourceValidation]]
"""Awaits a plug-in's coroutine, whose name it takes for warnings."""


class ConstraintChain:
    """Ask constraints in the order given. The most severe action wins.

    A constraint that raises, or returns an invalid answer, counts as an emergency stop in its name. The caller's
    cancellation passes through. The chain has no state: one chain guards any number of attempts at once. A team or a
    member takes it as its constraints.
    """

    __slots__ = ("constraints",)

    def __init__(self, constraints: Iterable[ResourceConstraint] = ()) -> None:
        self.constraints = check_constraints("ConstraintChain", constraints)

    @classmethod
    def from_config(cls, config: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> ConstraintChain:
        """Make a chain from the parsed content of any YAML, TOML or JSON file: `{"name": "timeout", "seconds": 60}`.

        `config` is a list, or a mapping with the list under `kairo.constraint.constraints`; outer keys may be left
        out. A name is looked up among the built-in constraints, then in the entry-point group
        `kairo_team.constraints`, where only a constraint named here is imported. `warn-at` takes another entry:
        `{"name": "warn-at", "constraint": {...}, "share": 0.8}`. Raises `ValueError` for an unknown name, a bad
        option, or a constraint that is configured twice.
        """
        return cls(_CONFIGURED.make_all(config, _build))

    async def evaluate(self, context: ResourceContext) -> ConstraintReport:
        """Ask each constraint in turn, up to the first emergency stop."""
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
                    break  # the work ends, so no other answer matters
        # `max` takes the first of equals: the constraint that is listed first gives the reason.
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
        """Positions of the constraints that have a `watch`."""
        return tuple(i for i, one in enumerate(self.constraints) if callable(getattr(one, "watch", None)))

    async def watch(self, position: int, supervise: Supervise | None = None) -> Violation | None:
        """Wait for what the constraint at `position` watches for; None when it gives up without a violation.

        `supervise` awaits its coroutine, and sees that it ends.
        """
        constraint: Any = self.constraints[position]
        watch: Callable[[], Awaitable[ResourceValidation]] = constraint.watch
        name = f"the watch of {name_of(constraint)}"
        return (await _ask(constraint, position, watch if supervise is None else lambda: supervise(watch(), name)))[1]

    def __repr__(self) -> str:
        return f"ConstraintChain({list(self.constraints)!r})"


async def _ask(
    constraint: ResourceConstraint, position: int, look: Callable[[], Awaitable[ResourceValidation]]
) -> tuple[ResourceValidation, Violation | None]:
    """Let one constraint validate, and decide on a violation; a failure of the constraint is an emergency stop."""
    name = name_of(constraint)
    metrics: Mapping[str, Any] = {}
    try:
        with AWAITED_CALL:
            validation = expect(await look(), ResourceValidation)
            if not validation.violated:
                return validation, None
            metrics = validation.metrics  # kept, in case `on_violation` fails
            action = expect(constraint.on_violation(validation), ResourceAction)
    except Exception as error:  # noqa: BLE001 - work must not continue past a constraint that fails
        problem = problem_of(error)
        validation = ResourceValidation(True, f"it failed with {problem}", {**metrics, "error": problem})
        action = ResourceAction.EMERGENCY_STOP
    return validation, Violation(name, position, action, validation)


def _build(entry: Any) -> tuple[str, ResourceConstraint]:
    """Make one configured constraint, and the name it may have only once."""
    name, options = _CONFIGURED.read(entry)
    if name == "warn-at" and "constraint" in options:
        options["constraint"] = _build(options["constraint"])[1]
    made: ResourceConstraint = make("constraint", name, options)
    # Each `warn-at` watches another limit, so it may be listed more than once.
    return (name_of(made) if isinstance(made, WarnAt) else name), made
