"""Rules of bookkeeping for kairo-team: books that are open, and entries that balance."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import anyio

from kairo_team.governance import (
    GuardrailContext,
    GuardrailDecision,
    GuardrailPhase,
    ResourceAction,
    ResourceContext,
    ResourceValidation,
    ToolInput,
)

if TYPE_CHECKING:
    import os

__all__ = ["BooksOpen", "LedgerRules"]

MASK: Final = "[account number]"
_IBAN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}")
"""What may be an account number, with words in capitals behind it."""
_SHORTEST: Final = 15
_LONGEST_AMOUNT: Final = 40


class BooksOpen:
    """Stop the work once the period is closed: EMERGENCY_STOP, also in the middle of a call.

    `book` is a JSON file, `{"period": "2026-11", "closed": false}`. The file is read before each turn, after each
    reply, and every `every` seconds. A book that cannot be read, or does not say it, raises: then the work stops too.
    """

    name: ClassVar[str] = "open-books"

    def __init__(self, book: str | os.PathLike[str], every: float = 5.0) -> None:
        if not every > 0:
            raise ValueError(f"BooksOpen.every must be a number of seconds above 0, not {every!r}")
        self.book = Path(book)
        self.every = every

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        """Read the book."""
        return await self._look()

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        """Stop at once: an entry in a closed period cannot be taken back."""
        return ResourceAction.EMERGENCY_STOP

    async def watch(self) -> ResourceValidation:
        """Read the book again and again, until the period is closed."""
        while not (found := await self._look()).violated:
            await anyio.sleep(self.every)
        return found

    async def _look(self) -> ResourceValidation:
        await anyio.lowlevel.checkpoint()
        said: Any = json.loads(self.book.read_text("utf-8"))
        if not isinstance(said, dict) or not isinstance(said.get("closed"), bool):  # pyright: ignore[reportUnknownMemberType]
            raise ValueError(f'the book {self.book.name} must say {{"period": ..., "closed": true or false}}')
        book = cast("dict[str, Any]", said)
        period = str(book.get("period", "?"))
        reason = f"the period {period} is closed" if book["closed"] else ""
        return ResourceValidation(book["closed"], reason, {"period": period})


class LedgerRules:
    """Deny entries that do not balance, and mask account numbers.

    `tools` are the tools that post entries. Such a call has `lines`, each with a `debit` or a `credit`.
    """

    name: ClassVar[str] = "true-entries"
    phases: ClassVar[frozenset[GuardrailPhase]] = frozenset(
        {GuardrailPhase.PRE_TOOL, GuardrailPhase.POST_TOOL, GuardrailPhase.POST_MODEL}
    )

    def __init__(self, tools: Sequence[str] = ("post",)) -> None:
        self.tools = tuple(tools)

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Look at one payload."""
        payload = context.payload
        if isinstance(payload, ToolInput):  # the account number is what a posting is about: it is not masked here
            wrong = self._wrong(payload) if payload.name in self.tools else ""
            return GuardrailDecision.deny(wrong) if wrong else GuardrailDecision.allow()
        masked = payload.map_text(_mask)
        if masked.texts == payload.texts:
            return GuardrailDecision.allow()
        return GuardrailDecision.modify("account numbers are not shown", masked)

    def _wrong(self, call: ToolInput) -> str:
        """Return what is wrong with an entry; "" if it balances."""
        lines = call.arguments.get("lines")
        if not isinstance(lines, Sequence) or isinstance(lines, str) or not lines:
            return "an entry has lines, each with a debit or a credit"
        debits, credits_ = Decimal(), Decimal()
        for number, line in enumerate(cast("Sequence[object]", lines), 1):
            sides: Mapping[str, object] = cast("Mapping[str, object]", line) if isinstance(line, Mapping) else {}
            debit, credit = (_amount(sides.get(name, 0)) for name in ("debit", "credit"))
            if debit is None or credit is None or (debit > 0) == (credit > 0):
                return f"line {number} needs either a debit or a credit, a number above 0"
            debits, credits_ = debits + debit, credits_ + credit
        return "" if debits == credits_ else f"the debits are {debits} and the credits {credits_}: they must be equal"


def _amount(given: object) -> Decimal | None:
    """Return an amount, exactly as it is written; None if it is not one."""
    if isinstance(given, bool) or not isinstance(given, int | float | str) or len(str(given)) > _LONGEST_AMOUNT:
        return None
    try:
        amount = Decimal(str(given))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def _mask(text: str) -> str:
    """Put the mask in place of each account number."""
    parts: list[str] = []
    at = 0
    while found := _IBAN.search(text, at):
        start = found.start()
        ends = range(found.end(), start + _SHORTEST - 1, -1)
        end = next((one for one in ends if not text[one : one + 1].isalnum() and _is_account(text[start:one])), None)
        parts += [text[at:start], text[start] if end is None else MASK]
        at = start + 1 if end is None else end
    return "".join([*parts, text[at:]])


def _is_account(written: str) -> bool:
    """Return whether the check digits are right, by ISO 13616: the rearranged number leaves 1 when divided by 97."""
    plain = written.replace(" ", "")
    return int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1
