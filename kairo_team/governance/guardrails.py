"""`GuardrailChain`: asks policies one after another; a policy that fails denies."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from kairo_team.contracts import GuardrailPolicy, check_guardrails
from kairo_team.errors import HaltError, innermost, known
from kairo_team.governance.plug_ins import Configured, expect, name_of
from kairo_team.guardrails import (
    GuardrailAction,
    GuardrailContext,
    GuardrailDecision,
    GuardrailOutcome,
    GuardrailPayload,
    GuardrailPhase,
    GuardrailRuling,
    ModelInput,
    ModelOutput,
    ToolInput,
    ToolOutput,
    shown,
)
from kairo_team.plugin_calls import AWAITED_CALL, PLAIN_CALL, problem_of
from kairo_team.plugins import find, make

__all__ = [
    "GuardrailAction",
    "GuardrailChain",
    "GuardrailContext",
    "GuardrailDecision",
    "GuardrailOutcome",
    "GuardrailPayload",
    "GuardrailPhase",
    "GuardrailRuling",
    "ModelInput",
    "ModelOutput",
    "ToolInput",
    "ToolOutput",
]


class Seat(NamedTuple):
    """A policy, and what it declares: name, order and phases."""

    order: float
    name: str
    phases: frozenset[GuardrailPhase]
    policy: GuardrailPolicy


class GuardrailChain:
    """Ask policies by `order`, lowest first; equal ones as given.

    A policy that raises, or returns an invalid answer, denies in its name. The caller's cancellation and `HaltError`
    pass through. The chain itself has no state: any number of calls may use it at once. A team or a member takes it as
    its guardrails.
    """

    __slots__ = ("_seats", "policies")

    def __init__(self, policies: Iterable[GuardrailPolicy] = ()) -> None:
        given = check_guardrails("GuardrailChain", policies)
        # `sorted` is stable: equal orders stay as given.
        self._take(sorted((seat_of(policy) for policy in given), key=lambda seat: seat.order))

    def _take(self, seats: Sequence[Seat]) -> None:
        self.policies: tuple[GuardrailPolicy, ...] = tuple(seat.policy for seat in seats)
        self._seats = {phase: tuple(seat for seat in seats if phase in seat.phases) for phase in GuardrailPhase}

    @classmethod
    def from_config(cls, config: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> GuardrailChain:
        """Make a chain from the parsed content of any YAML, TOML or JSON file: `{"name": "tool-loop", "deny_at": 4}`.

        `config` is a list, or a mapping with the list under `kairo.guardrail.policies`; outer keys may be left out.
        Each entry has a name, optionally `phase` or `phases` (one or several, in any case, with `-` or `_`), `order`
        and `id`, and the policy's own options. An id replaces the name, so a policy may be listed again with another
        id. A name is looked up among the built-in policies, then in the entry-point group `kairo_team.guardrails`,
        where only a policy named here is imported. Raises `ValueError` for an unknown name, a bad option, or a
        repeated name or id.
        """
        return cls(_CONFIGURED.make_all(config, _build))

    def covers(self, phase: GuardrailPhase) -> bool:
        """Return whether a policy declares this phase."""
        return bool(self._seats[phase])

    def for_run(self) -> GuardrailChain:
        """Replace each policy that has a `for_run` by what that returns; return self if none has one."""
        if not any(hasattr(policy, "for_run") for policy in self.policies):
            return self
        return joined(map(_fresh, self.policies))

    async def evaluate(self, context: GuardrailContext) -> GuardrailOutcome:
        """Ask each policy of the phase in turn, up to the first denial; a modified payload goes to the next policy."""
        if not self.policies:
            outcome: Any = _blank(GuardrailOutcome)
            outcome._payload = context.payload  # noqa: SLF001 - calling the class would cost twice as much
            outcome._trail = ()  # noqa: SLF001 - the same
            return cast("GuardrailOutcome", outcome)
        trail: list[GuardrailRuling] = []
        for seat in self._seats[context.phase]:
            decision = await _ask(seat.policy, context)
            trail.append(GuardrailRuling(seat.name, decision))
            if decision.action is GuardrailAction.DENY:
                break
            if decision.payload is not None:
                context = replace(context, payload=decision.payload)
        return GuardrailOutcome(context.payload, trail)

    async def remember(self, context: GuardrailContext) -> None:
        """Show a payload of an earlier session of the run to the policies with a `for_run`, which keep state."""
        for seat in self._seats[context.phase]:
            if hasattr(seat.policy, "for_run"):
                await _ask(seat.policy, context)

    def __iter__(self) -> Iterator[GuardrailPolicy]:
        return iter(self.policies)

    def __bool__(self) -> bool:
        return bool(self.policies)

    def __repr__(self) -> str:
        return f"GuardrailChain({list(self.policies)!r})"


def joined(*groups: Iterable[GuardrailPolicy]) -> GuardrailChain:
    """Make a chain that asks one group after the other, each in the order given.

    `order` is not compared across groups. A `GuardrailChain` is a group that is sorted already.
    """
    chain = GuardrailChain()
    # Not by the constructor, which would sort across the groups.
    chain._take([seat_of(policy) for group in groups for policy in group])  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # of this module
    return chain


_ALL: Final = frozenset(GuardrailPhase)
_blank: Final = cast("Any", object.__new__)


async def _ask(policy: GuardrailPolicy, context: GuardrailContext) -> GuardrailDecision:
    """Let one policy decide; a failure of the policy is a denial."""
    try:
        with AWAITED_CALL:
            answer: Any = policy.evaluate(context)
            if not inspect.isawaitable(answer):
                raise TypeError(f"its evaluate is not async: it returned {answer!r:.200}")
            decision = expect(await answer, GuardrailDecision)
            if decision.payload is not None:
                _check_fits(context.payload, decision.payload)
    except Exception as error:  # noqa: BLE001 - a guard that fails must not let anything pass
        cause = innermost(error)  # a policy may call a governed model, whose halt comes in a group
        if isinstance(cause, HaltError):
            raise cause from None
        return GuardrailDecision.deny(f"it failed with {problem_of(cause)}")
    return decision


def _check_fits(given: GuardrailPayload, answer: GuardrailPayload) -> None:
    """Raise `ValueError` for a modification of another phase, tool or response type than the payload's."""
    if answer.phase is not given.phase:
        raise ValueError(f"it got {shown(given)} and modified it to {shown(answer)}, of another phase")
    name = getattr(given, "name", None)
    if getattr(answer, "name", None) != name:
        raise ValueError(f"it was asked about the tool {name!r} and answered about another: {shown(answer)}")
    if isinstance(given, ModelOutput) and isinstance(answer, ModelOutput):
        expect(answer.response, type(given.response))


def seat_of(policy: GuardrailPolicy) -> Seat:
    """Read what a policy declares, with the defaults; `ValueError` for a bad declaration."""
    kind = type(policy).__name__
    try:
        name, order, phases = name_of(policy), getattr(policy, "order", 0), getattr(policy, "phases", None)
    except Exception as error:
        raise ValueError(
            f"the guardrail {kind!r} cannot return its name, order or phases: {problem_of(error)}"
        ) from error
    if isinstance(order, bool) or not isinstance(order, int | float) or math.isnan(order):
        raise ValueError(f"the guardrail {name!r}: order must be a number, lower goes first, not {order!r}")
    return Seat(order, name, _ALL if phases is None else check_phases(name, phases), policy)


def check_phases(owner: str, phases: Any) -> frozenset[GuardrailPhase]:
    """Return one or several phases as a set; `ValueError` for anything else.

    A phase is a `GuardrailPhase` or its value, in any case and with `-` or `_`.
    """
    given: Any = (phases,) if isinstance(phases, str) else phases
    try:
        wanted = frozenset(GuardrailPhase(phase.strip().lower().replace("-", "_")) for phase in given)
    except (AttributeError, TypeError, ValueError):
        wanted = frozenset[GuardrailPhase]()
    if not wanted:
        allowed = known(phase.value for phase in GuardrailPhase)
        raise ValueError(f"the guardrail {owner!r}: phases must be one or several of {allowed}, not {phases!r}")
    return wanted


class _Broken:
    """Replaces a policy whose `for_run` failed, and denies every payload of its phases."""

    def __init__(self, seat: Seat, problem: str) -> None:
        self.order, self.name, self.phases, _ = seat
        self._problem = problem

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        return GuardrailDecision.deny(f"it could not be made ready for the run: {self._problem}")


def _fresh(policy: Any) -> GuardrailPolicy:
    if not hasattr(policy, "for_run"):
        return cast("GuardrailPolicy", policy)
    try:
        with PLAIN_CALL:
            made = policy.for_run()
            if inspect.iscoroutine(made):
                made.close()  # else the interpreter warns later that it was never awaited
                raise TypeError("for_run must not be async")
            (fresh,) = check_guardrails("for_run", [made])
            seat_of(fresh)
    except Exception as error:  # noqa: BLE001 - a guard that fails must not let anything pass
        return _Broken(seat_of(policy), problem_of(error))
    return fresh


_CONFIGURED: Final = Configured(
    "guardrail", ("kairo", "guardrail", "policies"), "keep one, or give each a different id"
)


def _build(entry: Any) -> tuple[str, GuardrailPolicy]:
    """Make one configured policy; `phases` and `order` go to the constructor if it takes them."""
    name, options = _CONFIGURED.read(entry)
    own_id: Any = options.pop("id", None) or name
    if not isinstance(own_id, str) or not (own_id.strip() or own_id == name):
        raise ValueError(f"guardrail {name!r}: id must be a non-empty name, not {own_id!r}")
    given = [options.pop(key) for key in ("phase", "phases") if key in options]
    if len(given) > 1:
        raise ValueError(f"guardrail {own_id!r}: 'phase' and 'phases' mean the same: keep one")
    phases = check_phases(own_id, given[0]) if given else None
    order = options.pop("order", None)
    # A policy that takes them checks them itself; for any other one `Placed` declares them.
    takes = inspect.signature(find("guardrail", name)).parameters
    if phases is not None and "phases" in takes:
        options["phases"], phases = phases, None
    if order is not None and "order" in takes:
        options["order"], order = order, None
    policy: GuardrailPolicy = make("guardrail", name, options, also=("id", "phase", "order"))
    if own_id == name and phases is None and order is None:
        return name, policy
    seat = seat_of(policy)
    return own_id, Placed(_overridden(seat if own_id == name else seat._replace(name=own_id), phases, order))


def _overridden(seat: Seat, phases: frozenset[GuardrailPhase] | None, order: Any) -> Seat:
    """Return the declarations of a policy, overridden by the configuration."""
    # A policy such as the MCP policy decides by names alone, before any other sees the arguments.
    if order is not None and seat.order == -math.inf:
        raise ValueError(f"guardrail {seat.name!r}: it always goes first: leave its order out")
    if phases is not None and not phases <= seat.phases:
        own, asked = (known(phase.value for phase in some) for some in (seat.phases, phases))
        raise ValueError(f"guardrail {seat.name!r}: it looks at {own} only, not at {asked}")
    return seat._replace(phases=phases or seat.phases, order=seat.order if order is None else order)


class Placed:
    """A policy with the phases and the name of its configuration, for policies that do not declare them."""

    __slots__ = ("_seat", "name", "order", "phases", "policy")

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.order, self.name, self.phases, self.policy = seat

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Call the policy."""
        return await self.policy.evaluate(context)

    def for_run(self) -> Placed:
        """Wrap what the policy's `for_run` returns; return self if the policy has no `for_run`."""
        make: Any = getattr(self.policy, "for_run", None)
        if make is None:
            return self
        (fresh,) = check_guardrails(self.name, [make()])
        return Placed(self._seat._replace(policy=fresh))

    def __repr__(self) -> str:
        return f"Placed({self.policy!r}, phases={sorted(self.phases)}, order={self.order})"
