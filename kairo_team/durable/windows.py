"""Windows of accounts: the hour, day, week or month, in a time zone, in which an account's limit counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, cast, get_args
from zoneinfo import ZoneInfo, available_timezones

from kairo_team._util.mistakes import did_you_mean

Every = Literal["hour", "day", "week", "month"]
"""The length of a window; weeks begin on Monday."""

_EVERY: Final = get_args(Every)
_ZONES_MISSING: Final = "; this computer has no time zones: install the package tzdata"


@dataclass(frozen=True, slots=True)
class Window:
    """The window of an account that is open now."""

    every: Every
    tz: str
    """The time zone in which windows begin, such as "Europe/Oslo"."""
    since: datetime
    """When it began, in `tz`."""
    until: datetime
    """When it ends and the next one begins, in `tz`."""

    def __str__(self) -> str:
        return f"{self.every} until {self.until:%Y-%m-%d %H:%M} {self.tz}"


def check_every(every: str) -> Every:
    """Return the length of a window; raise `ValueError` for any other text."""
    if every not in _EVERY:
        allowed = ", ".join(map(repr, _EVERY))
        hint = did_you_mean(every, _EVERY) if isinstance(every, str) else ""
        raise ValueError(f"every= is one of {allowed}, not {every!r:.80}; {hint}None means one limit for all time")
    return cast("Every", every)


def check_tz(tz: str) -> str:
    """Return the name of a time zone; raise `ValueError` if it is unknown."""
    if not isinstance(tz, str):
        raise ValueError(f"tz= is the name of a time zone, such as 'Europe/Oslo', not {tz!r:.80}")
    try:
        zone(tz)
    except (LookupError, ValueError, OSError):
        names = available_timezones()
        hint = did_you_mean(tz, names)
        missing = "" if names else _ZONES_MISSING
        raise ValueError(f"there is no time zone {tz!r:.80}; {hint}tz= is such as 'Europe/Oslo'{missing}") from None
    return tz


@lru_cache(maxsize=64)
def zone(tz: str) -> ZoneInfo:
    """Return a time zone; raise `LookupError`, `ValueError` or `OSError` if it is unknown."""
    return ZoneInfo(tz)


def window_at(every: Every, tz: str, at: float) -> tuple[float, float]:
    """Return the beginning and the end of the window around a moment; all in seconds since 1970.

    Windows follow the clocks of the time zone: a day has 23 or 25 hours when they change. An hour that the clocks show
    twice is two windows.
    """
    here = datetime.fromtimestamp(at, zone(tz))
    if every == "hour":
        # In UTC: the wall clock does not say which of two equal hours it is.
        into = timedelta(minutes=here.minute, seconds=here.second, microseconds=here.microsecond)
        since = here.astimezone(UTC) - into
        return since.timestamp(), (since + timedelta(hours=1)).timestamp()
    first = here.date()
    if every == "day":
        after = first + timedelta(days=1)
    elif every == "week":
        first -= timedelta(days=first.weekday())
        after = first + timedelta(days=7)
    else:
        first = first.replace(day=1)
        # 32 days after its first day, a month is over and the next one is not.
        after = (first + timedelta(days=32)).replace(day=1)
    return _midnight(first, tz), _midnight(after, tz)


def _midnight(day: date, tz: str) -> float:
    """Return when a day begins. Where clocks jump over midnight, that is the moment of the jump."""
    return datetime(day.year, day.month, day.day, tzinfo=zone(tz)).timestamp()
