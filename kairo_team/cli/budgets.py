"""`--budget tokens=20000,seconds=110`: limits from the command line."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from kairo_team.budget import Budget
from kairo_team.cli.numbers import BETWEEN, plain_number
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.errors import known

if TYPE_CHECKING:
    from kairo_team.team import TeamExecutionRequest

_NAMES = [field.name for field in fields(Budget)]
_WAY_OUT = "tokens=20000,seconds=110,dollars=0.05,loops=30 (any of them; use the word none to remove a limit)"


def parse_limits(text: str, option: str = "--budget") -> dict[str, object]:
    """Read `name=amount,name=amount`, as given to `option`; the amount `none` removes a limit."""
    limits: dict[str, object] = {}
    for part in BETWEEN.split(text):
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        name = name.replace("-", "_")
        if not equals or not amount:
            raise Refusal(f"{option} {text!r} cannot be read at {part!r}: give it as {option} {_WAY_OUT}")
        if name not in _NAMES:
            raise Refusal(f"{option} limits {known(_NAMES)}, not {name!r}: give it as {option} {_WAY_OUT}")
        if name in limits:
            raise Refusal(f"{option} names {name!r} twice: give it as {option} {_WAY_OUT}")
        limits[name] = None if amount.lower() == "none" else _number(name, amount, option)
    return limits


def _number(name: str, amount: str, option: str) -> object:
    amount = plain_number(amount)
    if name == "dollars":
        return amount.removeprefix("$")
    try:
        return float(amount) if name == "seconds" else int(amount)
    except ValueError:
        kind = "a number of seconds" if name == "seconds" else "a whole number"
        raise Refusal(f"{option} {name} must be {kind}, not {amount!r}: give it as {option} {_WAY_OUT}") from None


def with_limits(request: TeamExecutionRequest, text: str | None) -> TeamExecutionRequest:
    """Return the request with these limits instead of its own."""
    if text is None:
        return request
    return replace(request, config=replace(request.config, budget=limited(request.config.budget, text)))


def limited(budget: Budget, text: str | None, option: str = "--budget") -> Budget:
    """Return a budget with the limits that are given to `option` instead of its own."""
    if text is None:
        return budget
    with refusing(ValueError, about=f"{option}: "):
        return replace(budget, **parse_limits(text, option))  # type: ignore[arg-type]  # checked by Budget
