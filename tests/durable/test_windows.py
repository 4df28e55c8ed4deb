"""Windows of accounts: where an hour, a day, a week and a month begin and end, by the clocks of a time zone."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.durable.windows import Every, check_every, check_tz, window_at

HOUR = 3600.0
ODD = ["Europe/Oslo", "America/New_York", "Asia/Kolkata", "America/Havana", "Asia/Beirut", "Pacific/Apia", "UTC"]
"""Zones with a summer time, a half hour, a midnight that is skipped, one that comes twice, and a day that never was."""


def at(text: str, tz: str = "Europe/Oslo", fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz), fold=fold).timestamp()


@pytest.mark.parametrize(
    ("every", "moment", "since", "until", "hours"),
    [
        ("day", "2026-01-15 13:30", "2026-01-15", "2026-01-16", 24),
        ("day", "2026-03-29 13:30", "2026-03-29", "2026-03-30", 23),
        ("day", "2026-10-25 13:30", "2026-10-25", "2026-10-26", 25),
        ("week", "2026-03-29 23:59:59", "2026-03-23", "2026-03-30", 7 * 24 - 1),
        ("week", "2026-10-26 00:00", "2026-10-26", "2026-11-02", 7 * 24),
        ("month", "2026-12-31 23:59:59", "2026-12-01", "2027-01-01", 31 * 24),
        ("month", "2028-02-29 10:00", "2028-02-01", "2028-03-01", 29 * 24),
        ("hour", "2026-03-29 01:10", "2026-03-29 01:00", "2026-03-29 03:00", 1),
    ],
)
def test_a_window_follows_the_clocks(every: Every, moment: str, since: str, until: str, hours: int) -> None:
    found = window_at(every, "Europe/Oslo", at(moment))
    assert found == (at(since), at(until))
    assert found[1] - found[0] == hours * HOUR


def test_an_hour_that_the_clocks_show_twice_is_two_windows() -> None:
    first, second = (window_at("hour", "Europe/Oslo", at("2026-10-25 02:30", fold=fold)) for fold in (0, 1))
    assert first[1] == second[0]
    assert second[1] == at("2026-10-25 03:00")


def test_an_hour_begins_at_the_half_hour_where_the_zone_does() -> None:
    moment = at("2026-05-05 12:10", "Asia/Kolkata")
    assert window_at("hour", "Asia/Kolkata", moment) == (moment - 600, moment + 3000)


@given(every=st.sampled_from(get_args(Every)), tz=st.sampled_from(ODD), moment=st.floats(9.5e8, 2.4e9))
def test_every_moment_is_in_one_window_and_the_next_begins_where_it_ends(every: Any, tz: str, moment: float) -> None:
    since, until = window_at(every, tz, moment)
    assert since <= moment < until
    assert window_at(every, tz, since) == (since, until)
    assert window_at(every, tz, until)[0] == until
    assert window_at(every, tz, since - 0.001)[1] == since


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("daily", "every= is one of 'hour', 'day', 'week', 'month', not 'daily'; did you mean 'day'?"),
        ("", "None means one limit for all time"),
        (3600, "not 3600"),
    ],
)
def test_a_wrong_every_is_a_sentence(wrong: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match="every=") as refused:
        check_every(wrong)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("Europe/Olso", "there is no time zone 'Europe/Olso'; did you mean 'Europe/Oslo'?"),
        ("../../etc/passwd", "there is no time zone"),
        ("", "tz= is such as 'Europe/Oslo'"),
        (2, "tz= is the name of a time zone, such as 'Europe/Oslo', not 2"),
    ],
)
def test_a_wrong_time_zone_is_a_sentence(wrong: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match="time zone") as refused:
        check_tz(wrong)
    assert sentence in str(refused.value)
