"""How a run's budget is split: members first, then planning and reviews; and the expected need of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from kairo_team.budget import NO_USAGE, Budget, BudgetNode, BudgetPolicy, Usage, to_dollars, to_picodollars
from kairo_team.engine.tasks.ready_tasks import nothing
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget, PlanRefused
from kairo_team.events import BudgetCarved
from kairo_team.governance.governor import Governor
from kairo_team.governance.ledger import Limits, Units, units_of

if TYPE_CHECKING:
    from kairo_team.contracts import Records
    from kairo_team.engine.records.suspension import EarlierSessions
    from kairo_team.team import Team

_NO_TIME: Final = 1e-9
"""Seconds that are over at once; a budget of 0 seconds is not allowed."""

PLAN: Final = "plan"
"""The purpose that planning spends under."""
EVALUATE: Final = "evaluate"
"""The purpose that reviews spend under."""


def until(deadline: datetime | None, budget: Budget, spent: Usage | None) -> Budget:
    """Return a budget whose seconds end at the deadline at the latest, counting the seconds already `spent`."""
    if deadline is None:
        return budget
    left = max(_NO_TIME, (deadline - datetime.now(UTC)).total_seconds())
    seconds = left + (0.0 if spent is None else spent.seconds)
    return budget if budget.seconds is not None and budget.seconds <= seconds else replace(budget, seconds=seconds)


def open_run_governor(
    shared: Governor | None, name: str, budget: Budget, clock: Callable[[], float], spent: Usage | None
) -> tuple[Governor, PlanRefused | None]:
    """Return a run's governor, carved from the runtime's shared one, and the error if that is not possible.

    `spent` is the usage of earlier sessions; None without any. A run that cannot be paid for gets a governor that lets
    nothing through.
    """
    if shared is None:
        return Governor(budget, name=name, clock=clock, restored_usage=spent), None
    try:
        return shared.carve(name, budget) if spent is None else shared.carve_again(name, budget, spent), None
    except (InsufficientBudget, HaltError, GovernorClosed) as short:
        used = spent or NO_USAGE
        # No more than was used already, so that nothing is left.
        nothing = Budget(used.tokens, used.dollars, used.loops, used.tool_calls)
        governor = Governor(nothing, name=name, clock=clock, restored_usage=spent)
        refused = PlanRefused([f"the runtime's budget does not cover this run: {short}"])
        refused.__cause__ = short
        return governor, refused


class BudgetSplit:
    """The governors of one run below its root: one for each member and one for each purpose."""

    def __init__(
        self,
        root: Governor,
        policy: BudgetPolicy,
        emit: Callable[..., object],
        earlier: EarlierSessions,
        journal: Records,
    ) -> None:
        self.root = root
        self._earlier = earlier
        self._journal = journal
        self._opened: Counter[str] = Counter()
        """How often each purpose was opened with a share set aside."""
        self.members: dict[str, Governor] = {}
        self._shares = {PLAN: policy.plan, EVALUATE: policy.evaluate}
        self._purposes: dict[str, Governor] = {}
        self._emit = emit
        self.on_return: Callable[[], object] = nothing
        """Called when a purpose has given back what it did not use."""

    @property
    def spent_by(self) -> dict[str, Usage]:
        """Usage by member name."""
        return {member: governor.usage for member, governor in self.members.items()}

    def carve_members(self, team: Team) -> None:
        """Carve the members' governors; a member's own budget is set aside for it from now on."""
        for member in team.everyone:
            if member.id in self.members:
                continue
            if member.budget is None:
                self.members[member.id] = self.root.carve(member.id)
            else:
                self.members[member.id] = self._earlier.carve(member.id, member.budget)
                self._emit_carved(member.id, member.budget)

    def purpose(self, name: str, *, set_aside: bool = True) -> Governor:
        """Return the governor of a purpose, with the policy's share guaranteed as far as there is budget.

        A closed purpose is carved again. With `set_aside` False nothing is guaranteed.
        """
        governor = self._purposes.get(name)
        if governor is None:
            # A halted run gets one too: the work that uses it raises.
            if set_aside:
                governor = self._carve_purpose(name)
            else:
                share = self._part_of_limit(self._shares.get(name, 0.0))
                governor = self.root.carve_share(name, _ceiling(name, share), 0.0, 0.0)[0]
            self._purposes[name] = governor
        return governor

    def _carve_purpose(self, name: str) -> Governor:
        """Open a purpose with its share of the budget, or with the share that the recorded run set aside."""
        self._opened[name] += 1
        key, governor = f"share:{name}:{self._opened[name]}", None
        share = cast("Budget | None", self._journal.get(key, None))
        if share is not None:  # there may be less budget now, and then it does not fit
            governor = self._earlier.carve_again(self.root, name, _ceiling(name, share), units_of(share), None)
        if share is None or governor is None:
            share = self._part_of_limit(self._shares.get(name, 0.0))
            governor = self.root.carve_with(name, _ceiling(name, share), units_of(share))
            if share != Budget():
                self._journal.put(key, share)
        if share != Budget():
            self._emit_carved(None, share)
        return governor

    def hold_back(self, part: float) -> None:
        """Show the reserve as a separate account, for a preview; a run sets it aside for no member."""
        reserve = self._part_of_limit(part)
        if reserve != Budget():
            self.root.carve("reserve", Budget(), guarantee=reserve)

    def close_purpose(self, name: str) -> Usage | None:
        """Give back what a purpose did not use; return its usage since it was opened, None if it was not open."""
        governor = self._purposes.pop(name, None)
        if governor is None:
            return None
        governor.close()
        self.on_return()
        return replace(governor.usage, seconds=0.0)

    def _part_of_limit(self, part: float) -> Budget:
        """Return a part of each limit, rounded down, and at most what is not allotted yet."""
        limit, left = self.root.budget, self.root.unallotted
        picodollars = _part(_picodollars(limit), _picodollars(left), part)
        return Budget(
            tokens=_part(limit.tokens, left.tokens, part),
            dollars=None if picodollars is None else to_dollars(picodollars),
            loops=_part(limit.loops, left.loops, part),
            tool_calls=_part(limit.tool_calls, left.tool_calls, part),
        )

    def _emit_carved(self, member: str | None, budget: Budget) -> None:
        self._emit(BudgetCarved, None, member, budget.tokens, _picodollars(budget))


def _ceiling(purpose: str, share: Budget) -> Budget:
    """Return the most that a purpose may use: its share for reviews, no limit for planning."""
    # Judges must not use up the members' budget.
    return share if purpose == EVALUATE else Budget()


def _part(limit: int | None, left: int | None, part: float) -> int | None:
    if limit is None:
        return None
    amount = int(limit * part)
    # None, because a limit of 0 would allow nothing.
    return (amount if left is None else min(amount, left)) or None


def _picodollars(budget: Budget) -> int | None:
    return None if budget.dollars is None else to_picodollars(budget.dollars)


_AT_FIRST: Final = 2
"""How many tasks may start before one has ended and shown its need."""
_MARGIN: Final = (5, 4)
"""Factor above the mean, as a fraction: half of the tasks take more than the mean."""


def lacks(governor: Governor, error: object, dimension: str, path: str | None) -> tuple[Any, Any]:
    """Return what is left for a task (None: unlimited), and the amount it was refused (None: unknown).

    `error` ended its attempt. A refusal by the agent's own governor at `path` says nothing of what the task needs.
    """
    left = getattr(governor.remaining, dimension)
    short: Any = error.lacking if isinstance(error, HaltError) else error
    known = isinstance(short, InsufficientBudget) and short.dimension == dimension
    if not known or any(path == one.path for one in _all_of(governor.inside)):
        return left, None
    return left, short.asked if short.needed is None else short.needed


def _all_of(nodes: Sequence[BudgetNode]) -> Iterator[BudgetNode]:
    for node in nodes:
        yield node
        yield from _all_of(node.children)


class Needs:
    """Expected usage of a task by member, in ledger units, learned from the tasks that ended.

    Before the first end, that is the policy's `expect`, or half of the budget for tasks if that is less. Afterwards it
    is a quarter more than the mean. A task that ran out of budget is presumed to have been half way.
    """

    def __init__(self, governors: Mapping[str, Governor], policy: BudgetPolicy) -> None:
        self._governors = governors
        self._policy = policy
        self._taken: dict[str, list[int]] = {}
        """The number of ended tasks and the sum of their usage in each dimension, by member."""
        self._aside: dict[str, Limits] | None = None
        """Budget that is not for tasks: the reserve, and what members and purposes were guaranteed before the first
        task."""

    def of(self, member: str) -> Units:
        """Return the expected usage of a task of the member, who has a limit."""
        if self._aside is None:  # for all at once: one member's guarantees to tasks are not aside for another
            self._aside = {name: self._find_aside(governor) for name, governor in self._governors.items()}
        taken = self._taken.get(member)
        if taken is None:
            unspent, expect = self._governors[member].unspent, units_of(self._policy.expect)
            tokens, picos, loops, tool_calls = (
                0 if left is None or kept is None else min(expected, max(0, left - kept) // _AT_FIRST)
                for expected, left, kept in zip(expect, unspent, self._aside[member], strict=True)
            )
            return (tokens, picos, loops, tool_calls)
        ended, tokens, picos, loops, tool_calls = taken
        more, of = _MARGIN[0], _MARGIN[1] * ended
        return (tokens * more // of, picos * more // of, loops * more // of, tool_calls * more // of)

    def start_with_less(self, member: str, in_flight: int) -> bool:
        """Return whether a task may start below its expected need."""
        # Nothing can come back, or no task of the member has ended yet.
        return not in_flight or (in_flight < _AT_FIRST and member not in self._taken)

    def learn(self, member: str, took: Units, *, ran_out: bool) -> None:
        """Include the usage of an ended task."""
        taken = self._taken.get(member)
        if taken is None:
            taken = self._taken[member] = [0, 0, 0, 0, 0]
        tokens, picos, loops, tool_calls = took
        times = 2 if ran_out else 1
        taken[0] += 1
        taken[1] += times * tokens
        taken[2] += times * picos
        taken[3] += times * loops
        taken[4] += times * tool_calls

    def _find_aside(self, governor: Governor) -> Limits:
        unspent, free = governor.unspent, governor.allottable(self._policy.reserve)
        tokens, picos, loops, tool_calls = (
            None if left is None or most is None else most - left for most, left in zip(unspent, free, strict=True)
        )
        return (tokens, picos, loops, tool_calls)
