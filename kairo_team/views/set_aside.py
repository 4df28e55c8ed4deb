"""The amounts set aside in a run, by task and member, from its events. This module uses no terminal."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team import events
from kairo_team.budget import to_dollars, to_picodollars
from kairo_team.views.text import some_of

if TYPE_CHECKING:
    from kairo_team.events import Event

_NAMED: Final = 3
"""How many of those for whom something is set aside are named."""
_PLANNING: Final = "planning"
_REVIEWS: Final = "reviews"

_CHANGES: Final = (
    events.AttemptFinished,
    events.BudgetCarved,
    events.BudgetReturned,
    events.BudgetToppedUp,
    events.ModelCalled,
    events.ModelStarted,
    events.PlanReady,
    events.TeamBegun,
    events.TeamEnded,
)
"""Events after which other amounts are set aside, or held, or spent."""

_Key = tuple[str, str]
"""An account: its kind (task, member or purpose) and its name."""


class Aside(NamedTuple):
    """The part of a guarantee that is not spent."""

    name: str
    """The task, `planning`, `reviews`, or the member whose tasks it is for."""
    tokens: int
    """Tokens that are neither spent nor held for a call under way."""
    picodollars: int
    held: int
    """Tokens held for calls under way, as far as the guarantee covers them."""
    held_picodollars: int
    task: bool


class _Account:
    """One guarantee, its spending and its holds."""

    __slots__ = ("dollars", "flying", "held", "held_dollars", "spent", "spent_dollars", "tokens")

    def __init__(self, tokens: int | None, picodollars: int | None) -> None:
        self.tokens = tokens or 0
        self.dollars = picodollars or 0
        self.spent = self.spent_dollars = 0
        self.held = self.held_dollars = 0
        self.flying: tuple[int, int] = (0, 0)
        """Tokens and picodollars of the calls of the attempt under way; its own report replaces them."""

    def hold(self, tokens: int, picodollars: int) -> None:
        self.held += tokens
        self.held_dollars += picodollars

    def spend(self, tokens: int, picodollars: int) -> None:
        self.spent += tokens
        self.spent_dollars += picodollars


class SetAside:
    """Sums up what is set aside and held, event by event. After the last event of a session nothing is."""

    def __init__(self) -> None:
        self._accounts: dict[_Key, _Account] = {}
        self._members: dict[str, str] = {}
        """The members of the tasks with a guarantee."""
        self._holds: dict[tuple[str, int], tuple[tuple[_Key, ...], int, int]] = {}
        """Holds of calls under way: the accounts that they count on, tokens and picodollars."""
        self._planned = False
        self._amounts: list[Aside] | None = None
        """The sum; None until it is needed again."""

    def take(self, event: Event) -> None:
        """Take in the next event."""
        if not isinstance(event, _CHANGES):
            return
        self._amounts = None
        match event:
            case events.BudgetCarved():
                self._carve(event)
            case events.BudgetToppedUp(task_id=str(task_id)):
                account = self._accounts.get(("task", task_id))
                if account is not None:
                    account.tokens += event.tokens or 0
                    account.dollars += event.picodollars or 0
            case events.BudgetReturned():
                self._accounts.pop(("task", event.task_id), None)
                self._members.pop(event.task_id, None)
            case events.PlanReady():
                self._planned = True
                self._accounts.pop(("purpose", _PLANNING), None)
            case events.TeamBegun() | events.TeamEnded():
                self._forget()
            case _:
                self._take_use(event)

    def _take_use(self, event: Event) -> None:
        match event:
            case events.ModelStarted():
                whose = self._accounts_of_call(event)
                self._holds[event.call_id, event.number] = whose, event.held, event.held_picodollars
                for one in whose:
                    self._accounts[one].hold(event.held, event.held_picodollars)
            case events.ModelCalled():
                found = self._holds.pop((event.call_id, event.number), (self._accounts_of_call(event), 0, 0))
                whose, tokens, picodollars = found
                used, paid = event.usage.tokens, to_picodollars(event.usage.dollars)
                for account in (self._accounts[one] for one in whose if one in self._accounts):
                    account.hold(-tokens, -picodollars)
                    account.spend(used, paid)
                    account.flying = account.flying[0] + used, account.flying[1] + paid
            case events.AttemptFinished():
                task = self._accounts.get(("task", event.task_id))
                if task is not None:  # what the attempt itself reports has what teams inside it spent too
                    more = event.usage.tokens - task.flying[0], to_picodollars(event.usage.dollars) - task.flying[1]
                    task.flying = 0, 0
                    for one in self._of_task(event.task_id, event.member):
                        self._accounts[one].spend(*more)
            case _:
                pass

    def _forget(self) -> None:
        """Forget everything: with a session's end all is given back, or lost with its process."""
        self._accounts.clear()
        self._members.clear()
        self._holds.clear()
        self._planned = False

    def _carve(self, event: events.BudgetCarved) -> None:
        if event.task_id is not None:
            key: _Key = ("task", event.task_id)
            self._members[event.task_id] = event.member or ""
        elif event.member is not None:
            key = ("member", event.member)
        else:
            key = ("purpose", _REVIEWS if self._planned else _PLANNING)
        self._accounts[key] = _Account(event.tokens, event.picodollars)

    def _accounts_of_call(self, event: events.ModelStarted | events.ModelCalled) -> tuple[_Key, ...]:
        """Return the accounts that a call counts on."""
        if event.purpose == "generate":
            return self._of_task(event.task_id or "", event.member)
        key = ("purpose", _REVIEWS if event.purpose == "evaluate" else _PLANNING)
        return (key,) if key in self._accounts else ()

    def _of_task(self, task_id: str, member: str | None) -> tuple[_Key, ...]:
        return tuple(one for one in (("task", task_id), ("member", member or "")) if one in self._accounts)

    def amounts(self) -> list[Aside]:
        """Return who has something set aside that is not spent, the largest amount first."""
        if self._amounts is None:
            self._amounts = self._sum_up()
        return self._amounts

    def _sum_up(self) -> list[Aside]:
        found: list[Aside] = []
        of_member: dict[str, list[Aside]] = {}
        for (kind, name), account in self._accounts.items():
            if kind != "member":
                found.append(_aside(name, account, task=kind == "task"))
                of_member.setdefault(self._members.get(name, ""), []).append(found[-1])
        for (kind, name), account in self._accounts.items():
            if kind == "member":  # what its tasks have of it is theirs
                whole, own = _aside(name, account, task=False), of_member.get(name, ())
                tokens = whole.tokens - sum(one.tokens for one in own)
                picodollars = whole.picodollars - sum(one.picodollars for one in own)
                found.append(Aside(name, max(tokens, 0), max(picodollars, 0), 0, 0, task=False))
        left = [one for one in found if one.tokens or one.picodollars or one.held or one.held_picodollars]
        return sorted(left, key=lambda one: (-one.tokens - one.held, -one.picodollars - one.held_picodollars))

    @property
    def tokens(self) -> int:
        """Tokens that are set aside, and neither spent nor held for a call under way."""
        return sum(one.tokens for one in self.amounts())

    @property
    def dollars(self) -> Decimal:
        """The same in US dollars."""
        return to_dollars(sum(one.picodollars for one in self.amounts()))

    @property
    def held(self) -> int:
        """Tokens that are held for calls under way."""
        return sum(tokens for _, tokens, _ in self._holds.values())

    @property
    def held_dollars(self) -> Decimal:
        """The same in US dollars."""
        return to_dollars(sum(picodollars for _, _, picodollars in self._holds.values()))

    def describe(self, task_id: str = "") -> str:
        """Say how much is set aside for others than a task, calls under way included; "" if nothing is."""
        others = [one for one in self.amounts() if not (one.task and one.name == task_id)]
        tokens = sum(one.tokens + one.held for one in others)
        dollars = to_dollars(sum(one.picodollars + one.held_picodollars for one in others))
        if not others:
            return ""
        return f"{f'{tokens:,}' if tokens else f'${dollars}'} are set aside for {names_of(others)}"


def _aside(name: str, account: _Account, *, task: bool) -> Aside:
    left, left_dollars = max(account.tokens - account.spent, 0), max(account.dollars - account.spent_dollars, 0)
    held, held_dollars = min(account.held, left), min(account.held_dollars, left_dollars)
    return Aside(name, left - held, left_dollars - held_dollars, held, held_dollars, task)


def names_of(asides: list[Aside]) -> str:
    """Name those for whom something is set aside: `a, b, c and 2 more`."""
    return some_of([one.name for one in asides], _NAMED)
