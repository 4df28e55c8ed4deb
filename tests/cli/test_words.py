from __future__ import annotations

from kairo_team._util.counts import count
from kairo_team._util.terminal import clean
from kairo_team.views.text import clock, one_line


def test_words() -> None:
    assert clean("a\r\nb\tc\x00\x7f\u202e\ud800") == "a\nb   c????"
    assert one_line("  a\n b  ") == "a b"
    assert one_line("x" * 50, 10) == "xxxxxxx..."
    assert (count(1, "task"), count(0, "task"), count(2000, "task")) == ("1 task", "0 tasks", "2,000 tasks")
    assert (clock(0.9), clock(61), clock(3661)) == ("0:00", "1:01", "1:01:01")
