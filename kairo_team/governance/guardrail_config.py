"""Guardrails by name, from a configuration: built in, or published by packages."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kairo_team.contracts import check_guardrails
from kairo_team.errors import known
from kairo_team.governance.guardrails import check_phases, seat_of
from kairo_team.governance.plug_ins import Configured
from kairo_team.plugins import find, make

if TYPE_CHECKING:
    from kairo_team.contracts import GuardrailPolicy
    from kairo_team.governance.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase, Seat

_CONFIGURED: Final = Configured(
    "guardrail", ("kairo", "guardrail", "policies"), "keep one, or give each a different id"
)


def policies_of(config: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> Sequence[GuardrailPolicy]:
    """Make the configured policies; `ValueError` for an unknown name, a bad option, or a repeated name or id."""
    return _CONFIGURED.make_all(config, _build)


def _build(entry: Any) -> tuple[str, GuardrailPolicy]:
    """Make one configured policy; `phases` and `order` go to the constructor if it takes them."""
    name, options = _CONFIGURED.read(entry)
    own_id: Any = options.pop("id", None) or name
    if not isinstance(own_id, str) or not (own_id.strip() or own_id == name):
        raise ValueError(f"guardrail {name!r}: id must be a non-empty name, not {own_id!r}")
    phases, order = _phases(own_id, options), options.pop("order", None)
    takes = inspect.signature(find("guardrail", name)).parameters
    if phases is not None and "phases" in takes:
        options["phases"], phases = phases, None
    if order is not None and "order" in takes:
        options["order"], order = order, None
    policy: GuardrailPolicy = make("guardrail", name, options, also=("id", "phase", "order"))
    if own_id == name and phases is None and order is None:
        return name, policy
    seat = seat_of(policy)
    return own_id, Placed(_moved(seat if own_id == name else seat._replace(name=own_id), phases, order))


def _phases(owner: str, options: dict[str, Any]) -> frozenset[GuardrailPhase] | None:
    """Take the phases out of the options of an entry; None if it has none."""
    given = [options.pop(key) for key in ("phase", "phases") if key in options]
    if len(given) > 1:
        raise ValueError(f"guardrail {owner!r}: 'phase' and 'phases' mean the same: keep one")
    return check_phases(owner, given[0]) if given else None


def _moved(seat: Seat, phases: frozenset[GuardrailPhase] | None, order: Any) -> Seat:
    """Return the declarations of a policy, overridden by the configuration."""
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
