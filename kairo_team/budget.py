"""Limits and spending: `Budget`, `BudgetPolicy`, `Usage`, `BudgetNode`, `HaltReason`, and exact money."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Final, overload

from kairo_team._util.counts import count
from kairo_team._util.frozen import check_kind, known_arguments
from kairo_team._util.guesses import answers_guesses
from kairo_team._util.late_pydantic import AfterValidator, WrapSerializer

Money = Decimal | int | str | float
"""An amount in US dollars; a float means its shortest decimal form (0.1 is ten cents exactly)."""

PICODOLLARS: Final = 10**12
"""Units in one dollar: the ledger counts whole picodollars, so sums are exact in any order."""

_ZERO = Decimal(0)
_LEAST: Final = "0.000000000001"
"""A picodollar in decimal digits."""
_DIGITS: Final = 15
"""An amount with more digits before the point is refused as a mistake: the world's yearly product has fifteen."""
_EXACT: Final = Context(prec=200, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Rounds no amount, whatever the application's own decimal context."""


class HaltReason(StrEnum):
    """Why a governor halted."""

    TOKEN_BUDGET_EXCEEDED = "token_budget_exceeded"
    DOLLAR_BUDGET_EXCEEDED = "dollar_budget_exceeded"
    LOOP_BUDGET_EXCEEDED = "loop_budget_exceeded"
    TOOL_BUDGET_EXCEEDED = "tool_budget_exceeded"
    TIME_BUDGET_EXCEEDED = "time_budget_exceeded"
    CANCELLED = "cancelled"
    EMERGENCY_STOP = "emergency_stop"


def to_dollars(picodollars: int) -> Decimal:
    """Return ledger units in dollars, without trailing zeros."""
    if not picodollars:
        return _ZERO
    amount = Decimal(picodollars).scaleb(-12, _EXACT).normalize(_EXACT)
    # `normalize` makes 1E+2 of 100.
    return amount.quantize(Decimal(1), context=_EXACT) if amount == amount.to_integral_value() else amount


def to_picodollars(amount: Money, *, field: str = "dollars", round_up: bool = True) -> int:
    """Return dollars in ledger units; fractions of a picodollar are rounded up (limits: down).

    Raises `ValueError` for a negative, non-finite, unreadable or absurdly large amount, and for one above 0 that
    rounding down would make 0.
    """
    try:
        # `Decimal(0.1)` is more than 0.1.
        exact = Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount)
    except (InvalidOperation, TypeError, ValueError):
        raise ValueError(f"{field} must be an amount of money such as '0.05', not {amount!r}") from None
    if isinstance(amount, bool) or not exact.is_finite() or (exact.is_signed() and exact):  # -0 is 0
        raise ValueError(f"{field} must be a finite amount >= 0, not {amount!r}")
    if exact.adjusted() >= _DIGITS:
        raise ValueError(f"{field} must be less than 10**{_DIGITS} dollars, not {amount!r}")
    scaled = exact.scaleb(12, _EXACT)
    whole = int(scaled)
    if not whole and scaled and not round_up:
        raise ValueError(
            f"{field} must be 0 or at least {_LEAST} (a picodollar, the least that is counted), not {amount!r}: "
            "rounded down it would allow nothing at all"
        )
    return whole + 1 if round_up and whole != scaled else whole


picodollars = lru_cache(maxsize=1024, typed=True)(to_picodollars)  # typed: True equals 1, and is refused
"""`to_picodollars` rounded up and cached: prices repeat."""


def check_count(field: str, value: object, least: int = 0) -> None:
    """Raise `ValueError` unless `value` is a whole number >= `least`."""
    if type(value) is int and value >= least:  # the short way for plain numbers; subclasses pass below
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{field} must be a whole number >= {least}, not {value!r}")


def check_used(prompt_tokens: int, completion_tokens: int, tool_calls: int) -> None:
    """Raise `ValueError` unless all three are whole numbers >= 0."""
    if (
        not (type(prompt_tokens) is type(completion_tokens) is type(tool_calls) is int)
        or (prompt_tokens | completion_tokens | tool_calls) < 0  # negative if one of them is
    ):
        check_count("prompt_tokens used", prompt_tokens)
        check_count("completion_tokens used", completion_tokens)
        check_count("tool_calls used", tool_calls)


def check_seconds(field: str, value: object) -> None:
    """Raise `ValueError` unless `value` is a finite number of seconds >= 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{field} must be a finite number of seconds >= 0, not {value!r}")


@answers_guesses
@known_arguments
@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """Limits of a run, a member or a task. `None` means unlimited, and `0` allows nothing.

    `tokens` counts prompt and completion together, `dollars` are US dollars, `loops` are iterations of agents, and
    `seconds` of wall clock count from the start of what they limit. Dollars are an exact `Decimal`, cut to whole
    picodollars. Raises `ValueError` for a negative number, and for dollars above 0 but below one picodollar.

    >>> print(kt.Budget(tokens=20_000, dollars="0.50", seconds=60))
    Budget(tokens=20000, dollars=0.5, seconds=60)
    >>> result = kt.run_sync(team, "Explain tides.", budget=kt.Budget(loops=10))
    """

    tokens: int | None = None
    """Prompt and completion tokens together."""
    dollars: Decimal | None = None
    """US dollars."""
    loops: int | None = None
    """Iterations of agents (`Governor.pre_step`)."""
    tool_calls: int | None = None
    """Calls of tools."""
    seconds: float | None = None
    """Seconds of wall clock from the moment the governor is made."""

    def __init__(
        self,
        tokens: int | None = None,
        dollars: Money | None = None,
        loops: int | None = None,
        tool_calls: int | None = None,
        seconds: float | None = None,
    ) -> None:
        # Written out, because an amount is given in more types than the field has.
        put = object.__setattr__
        put(self, "tokens", tokens)
        put(self, "dollars", dollars)
        put(self, "loops", loops)
        put(self, "tool_calls", tool_calls)
        put(self, "seconds", seconds)
        self.__post_init__()

    def __post_init__(self) -> None:
        if self.tokens is not None:
            check_count("Budget.tokens", self.tokens)
        if self.loops is not None:
            check_count("Budget.loops", self.loops)
        if self.tool_calls is not None:
            check_count("Budget.tool_calls", self.tool_calls)
        if self.seconds is not None:
            check_seconds("Budget.seconds", self.seconds)
        if self.dollars is not None:
            exact = to_dollars(to_picodollars(self.dollars, field="Budget.dollars", round_up=False))
            object.__setattr__(self, "dollars", exact)

    def __repr__(self) -> str:
        limits = ((name, getattr(self, name)) for name in ("tokens", "dollars", "loops", "tool_calls", "seconds"))
        return f"Budget({', '.join(f'{name}={value}' for name, value in limits if value is not None)})"


@known_arguments
@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """How a team's budget is divided. Shares (0 to 1) of each limit are guarantees; others may use what is unused."""

    plan: float = 0.05
    """Share of planning, if the planner calls a model; the rest of it returns after planning."""
    evaluate: float = 0.20
    """Share of reviews, if an evaluator calls a model; members cannot use it."""
    reserve: float = 0.10
    """Share that is guaranteed to no member: it pays for retries and for tasks that need more."""
    top_ups: int = 1
    """How often a task that ran out gets more, after other tasks returned budget."""
    expect: Budget = Budget(tokens=30_000, dollars="0.30", loops=10)
    """The expected use of a task until a task of its member has ended; then the use of the ended ones counts. Only as
    many tasks start at once as the budget can pay at this rate, but always two."""
    allow_unpriced: bool = False
    """Allow calls of models without a known price under a limit in dollars; they are booked at 0 dollars."""

    def __post_init__(self) -> None:
        for name in ("plan", "evaluate", "reserve"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
                raise ValueError(f"BudgetPolicy.{name} must be a share from 0 up to (not including) 1, not {share!r}")
        if self.plan + self.evaluate + self.reserve >= 1:
            raise ValueError(
                f"BudgetPolicy: plan ({self.plan}), evaluate ({self.evaluate}) and reserve ({self.reserve}) leave "
                "nothing for the tasks; together they must be less than 1"
            )
        check_count("BudgetPolicy.top_ups", self.top_ups)
        if not isinstance(self.expect, Budget) or self.expect.seconds is not None:
            raise ValueError(
                "BudgetPolicy.expect must be a Budget without seconds, such as kt.Budget(tokens=2_000), "
                f"not {self.expect!r}"
            )
        check_kind("BudgetPolicy.allow_unpriced", self.allow_unpriced, bool)


@known_arguments
@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts spent. `a + b` is exact and commutative, but seconds are active time: the sum has the longer one."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: Decimal = _ZERO
    """US dollars, exact to the picodollar."""
    loops: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    """Active seconds of one governor; a sum shows the longer of the two."""

    def __post_init__(self) -> None:
        prompt, completion, loops, calls = self.prompt_tokens, self.completion_tokens, self.loops, self.tool_calls
        if (
            not (type(prompt) is type(completion) is type(loops) is type(calls) is int)
            or (prompt | completion | loops | calls) < 0  # as in `check_used`
        ):
            for field in ("prompt_tokens", "completion_tokens", "loops", "tool_calls"):
                check_count(f"Usage.{field}", getattr(self, field))
        if not (type(self.seconds) is float and 0.0 <= self.seconds < math.inf):
            check_seconds("Usage.seconds", self.seconds)
        if self.dollars is not _ZERO:  # the default is exact already
            is_zero = type(self.dollars) is Decimal and not self.dollars
            exact = _ZERO if is_zero else to_dollars(to_picodollars(self.dollars, field="Usage.dollars"))
            object.__setattr__(self, "dollars", exact)

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def __repr__(self) -> str:
        spent = ((name, getattr(self, name)) for name in self.__slots__)
        return f"Usage({', '.join(f'{name}={amount}' for name, amount in spent if amount)})"

    def __str__(self) -> str:
        parts = [count(self.tokens, "token")]
        parts += [f"${self.dollars}"] if self.dollars else []
        parts += [count(self.loops, "loop")] if self.loops else []
        parts += [count(self.tool_calls, "tool call")] if self.tool_calls else []
        return ", ".join(parts)

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        if self is NO_USAGE or other is NO_USAGE:  # as each sum begins
            return other if self is NO_USAGE else self
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            _EXACT.add(self.dollars, other.dollars),
            self.loops + other.loops,
            self.tool_calls + other.tool_calls,
            max(self.seconds, other.seconds),
        )


NO_USAGE: Final = Usage()
"""The usage when nothing was spent."""


def left_of(budget: Budget, spent: Usage) -> Budget:
    """Return the rest of each limit, at least 0; `None` stays unlimited."""
    limits = {name: getattr(budget, name) for name in Budget.__slots__}
    return Budget(**{n: None if limit is None else max(limit - getattr(spent, n), 0) for n, limit in limits.items()})


def difference(after: Usage, before: Usage, seconds: float) -> Usage:
    """Return what was spent from `before` to `after` (two readings of one ledger), which took `seconds`."""
    return Usage(
        after.prompt_tokens - before.prompt_tokens,
        after.completion_tokens - before.completion_tokens,
        _EXACT.subtract(after.dollars, before.dollars) if before.dollars else after.dollars,
        after.loops - before.loops,
        after.tool_calls - before.tool_calls,
        seconds,
    )


def least_of(one: Usage, other: Usage) -> Usage:
    """Return the smaller amount of each kind, without seconds."""
    return Usage(
        min(one.prompt_tokens, other.prompt_tokens),
        min(one.completion_tokens, other.completion_tokens),
        min(one.dollars, other.dollars),
        min(one.loops, other.loops),
        min(one.tool_calls, other.tool_calls),
    )


class ReadLater(Sequence["BudgetNode"]):
    """A tuple of nodes made at the first read, because big trees are slow to make and often not read."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], tuple[BudgetNode, ...]]) -> None:
        self._make: Callable[[], tuple[BudgetNode, ...]] | None = make
        self._made: tuple[BudgetNode, ...] = ()

    def _read(self) -> tuple[BudgetNode, ...]:
        make = self._make
        if make is not None:
            self._made = make()  # before `_make`: another thread must not read the empty tuple
            self._make = None
        return self._made

    @overload
    def __getitem__(self, index: int) -> BudgetNode: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BudgetNode, ...]: ...
    def __getitem__(self, index: int | slice) -> BudgetNode | tuple[BudgetNode, ...]:
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[BudgetNode]:
        return iter(self._read())

    def __eq__(self, other: object) -> bool:
        return self._read() == (other._read() if isinstance(other, ReadLater) else other)

    def __hash__(self) -> int:
        return hash(self._read())

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[type[tuple[Any, ...]], tuple[tuple[BudgetNode, ...]]]:
        return (tuple, (self._read(),))  # a plain tuple: the function may not be pickled


def _dump_all(nodes: Sequence[BudgetNode], dump: Callable[[Any], Any]) -> Any:
    return dump(tuple(nodes))  # pydantic cannot write a `ReadLater`


@known_arguments
@dataclass(frozen=True, slots=True)
class BudgetNode:
    """One governor and everything carved from it, at one moment. `str()` draws the tree."""

    name: str
    path: str
    """Names from the root to here, joined by slashes; unique in the tree."""
    budget: Budget = Budget()
    """The ceiling."""
    guarantee: Budget = Budget()
    """Budget set aside for the governor; `None` where nothing was set aside."""
    usage: Usage = Usage()
    """Spent by the governor and everything below it."""
    held: Usage = Usage()
    """Held for calls in flight (tokens as prompt tokens)."""
    overshoot: Usage = Usage()
    """The amount by which late bookings of actual usage passed the limits (tokens as prompt tokens)."""
    halt: HaltReason | None = None
    """Why the governor, or one above it, halted."""
    origin: str | None = None
    """Name of the governor that halted, when `halt` is set."""
    closed: bool = False
    children: Annotated[Sequence[BudgetNode], AfterValidator(tuple), WrapSerializer(_dump_all)] = ()
    origin_path: str | None = None
    """Path of the governor that halted: others may have its name."""

    def __str__(self) -> str:
        rows = list(_rows(self, "", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        shown = [n for n, width in enumerate(widths) if width]
        return "\n".join("  ".join(row[n].ljust(widths[n]) for n in shown).rstrip() for row in rows)


def _rows(node: BudgetNode, stem: str, branch: str) -> Iterator[tuple[str, ...]]:
    """Yield a line of cells for the node, then the lines of its children."""
    yield (stem + branch + node.name, *_cells(node))
    stem += {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]  # the line ends at a last child
    for child in node.children:
        yield from _rows(child, stem, "└─ " if child is node.children[-1] else "├─ ")


def _cells(node: BudgetNode) -> Iterator[str]:
    for field_name, label in (("tokens", "tokens"), ("dollars", "$"), ("loops", "loops"), ("tool_calls", "tool calls")):
        used, held, over = (getattr(usage, field_name) for usage in (node.usage, node.held, node.overshoot))
        limit, given = getattr(node.budget, field_name), getattr(node.guarantee, field_name)
        # A guarantee as high as the limit shows nothing new.
        yield _cell(label, used, limit, {"held": held, "guaranteed": None if given == limit else given, "over": over})
    seconds = "" if node.budget.seconds is None else f" of {node.budget.seconds:g}"
    yield f"{node.usage.seconds:.1f}{seconds} s"
    short = explain_halt(node)
    yield "" if node.halt is None else f"{node.halt.value} by {node.origin!r}{short and ': '}{short}"


def explain_halt(node: BudgetNode) -> str:
    """Say that what is left of the limit at which a node halted was too little for its next call; else return ""."""
    left = ""
    used, limit = node.usage, node.budget
    if node.halt is HaltReason.TOKEN_BUDGET_EXCEEDED and limit.tokens is not None and used.tokens < limit.tokens:
        left = count(limit.tokens - used.tokens, "token")
    if node.halt is HaltReason.DOLLAR_BUDGET_EXCEEDED and limit.dollars is not None and used.dollars < limit.dollars:
        left = f"${limit.dollars - used.dollars:,}"
    return f"the next call needs more than the {left} left" if left and node.origin_path == node.path else ""


def _cell(label: str, used: Decimal, limit: Decimal | None, notes: Mapping[str, Decimal | None]) -> str:
    """Return use, limit and the notes that are not 0, such as `60 of 400 tokens (150 held)`."""
    one = (used if limit is None else limit) == 1
    sign, unit = ("$", "") if label == "$" else ("", f" {label.removesuffix('s') if one else label}")
    most = "" if limit is None else f" of {sign}{limit:,}"
    noted = ", ".join(f"{sign}{amount:,} {note}" for note, amount in notes.items() if amount)
    if not (used or most or noted):
        return ""
    return f"{sign}{used:,}{most}{unit}{noted and f' ({noted})'}"
