"""A loan desk that asks a person: at the terminal, or later; and that the page shows what it prints."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt

human_gate = pytest.importorskip("kairo_team.examples.human_gate", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/human_gate.py"
TYPED = ["perhaps", "r say what it costs in all", "a", "j not before Friday"]

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


class Hands(io.StringIO):
    """Types lines, which the terminal shows."""

    def __init__(self, lines: list[str], screen: io.StringIO) -> None:
        super().__init__("".join(f"{line}\n" for line in lines))
        self._screen = screen

    def readline(self, *_: Any) -> str:  # type: ignore[override]  # as StringIO has it, for all its stubs say
        line = super().readline()
        self._screen.write(line)
        return line


def shown(number: int) -> list[str]:
    """A text block of the page."""
    page = (ROOT / "docs/human-gate.md").read_text(encoding="utf-8")
    return page.split("```text\n")[number].partition("```")[0].splitlines()


def test_the_page_shows_what_it_says_later() -> None:
    done = subprocess.run([sys.executable, str(FILE), "--defer"], capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().splitlines() == shown(2)
    assert done.stderr == b""


def test_the_page_shows_what_it_asks_at_the_terminal() -> None:
    screen = io.StringIO()
    desk, _ = human_gate.build(kt.ConsoleGate(source=Hands(TYPED, screen), sink=screen))
    result = kt.run_sync(desk, kt.TeamExecutionRequest("Lend it.", plan=human_gate.plan))
    lines = [*screen.getvalue().splitlines()[1:], "", *human_gate.summary(result)]
    assert lines == shown(1)


def test_at_the_terminal_the_program_reads_the_answers() -> None:
    done = subprocess.run(
        [sys.executable, str(FILE)],
        input="\n".join(TYPED).encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert "a human refused it: not before Friday" in done.stdout.decode()
    assert done.stderr.decode().count("[a]pprove") == 4


def test_kairo_runs_it_and_with_nobody_there_nothing_is_lent() -> None:
    command = [sys.executable, "-m", "kairo_team.cli", "run", str(FILE), "Lend it."]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    assert done.returncode == 4, done.stdout
    assert b"paid 12,000" not in done.stdout


def test_nothing_is_paid_before_the_answer_and_once_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    paid: list[int] = []

    @kt.tool(side_effect="write")
    def pay_out(account: str, amount: int) -> str:
        """Pay an amount out."""
        paid.append(amount)
        return "paid"

    monkeypatch.setattr(human_gate, "pay_out", pay_out)
    anyio.run(human_gate.later)
    assert paid == [12_000]
