"""What the budget page shows: documents under a tight budget, callers at once, and who waits how long."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks import contention, fanout
from benchmarks.peers import experiment
from benchmarks.peers.__main__ import Skipped, run
from benchmarks.peers.kairo_team import spend
from kairo_team.testing import run_in_virtual_time

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("anyio_backend")]


@pytest.fixture(autouse=True)
def _same_order_every_time() -> None:
    """Trio starts tasks in an order of chance; what these tests measure must come out alike."""
    import_module("trio._core._run")._r.seed(1)  # what hypothesis seeds too


ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "budgets.md"


# ---------------------------------------------------------------- many documents


async def test_kf_u01_of_200_documents_at_most_a_quarter_is_refused_when_prompts_are_bounded_by_their_bytes() -> None:
    """U01: fair shares as ceilings: twice the money needed, 130 of 200 documents refused."""
    out = await fanout.map_reduce(1.2, tokenizer=False)
    assert out.refused <= fanout.DOCUMENTS / 4
    assert out.reduced
    assert out.spent <= out.budget


async def test_kf_u01_of_200_documents_none_is_refused_when_prompts_are_counted_by_a_tokenizer() -> None:
    out = await fanout.map_reduce(1.5, tokenizer=True)
    assert (out.refused, out.reduced) == (0, True)
    assert out.spent <= out.budget


async def test_documents_that_need_all_of_the_budget_get_all_of_it() -> None:
    out = await fanout.map_reduce(1.0, tokenizer=True)
    assert (out.refused, out.reduced, out.spent) == (0, True, out.budget)


@pytest.mark.parametrize("ratio", [0.3, 0.7])
@pytest.mark.parametrize("tokenizer", [True, False])
async def test_too_small_a_budget_is_used_and_never_passed(ratio: float, *, tokenizer: bool) -> None:
    out = await fanout.map_reduce(ratio, tokenizer=tokenizer)
    assert out.refused
    assert 0.6 * out.budget <= out.spent <= out.budget


# ---------------------------------------------------------------- many callers


@pytest.mark.parametrize("width", [1, 4, 16, 32, 128])
def test_kf_b01_callers_at_once_spend_the_limit_and_not_a_token_more(width: int) -> None:
    """The experiment of the page, on the one event loop that all the libraries in it run on."""
    assert run_in_virtual_time(spend, width) == experiment.LIMIT


def test_a_library_that_cannot_be_installed_is_skipped_with_the_reason() -> None:
    complaint = "import sys; sys.exit('Looking.\\nERROR: there is no such library\\nHint: look elsewhere')"
    with pytest.raises(Skipped, match="no such library"):
        run([sys.executable, "-c", complaint])


# ---------------------------------------------------------------- many who wait


async def test_waiting_holds_are_served_in_the_order_they_were_asked_for() -> None:
    chance = random.Random(8)  # noqa: S311 - repeatable, no secret
    crowd = contention.Crowd(lambda: chance.randint(10, contention.CALL), lambda: chance.uniform(0.5, 1.5))
    await crowd.run(rounds=10)
    assert crowd.out_of_turn == 0
    assert len(crowd.served) == 10 * contention.TASKS
    assert max(crowd.waits) > 1, "there was something to wait for"


async def test_nobody_waits_much_longer_than_the_others() -> None:
    chance = random.Random(9)  # noqa: S311 - repeatable, no secret
    crowd = contention.Crowd(lambda: contention.CALL, lambda: chance.uniform(0.5, 1.5))
    await crowd.run(rounds=10)
    assert max(crowd.waits) <= 1.5 * sum(crowd.waits) / len(crowd.waits)


# ---------------------------------------------------------------- the page


def test_the_page_shows_the_documents_table_as_it_comes_out() -> None:
    table = "\n".join(fanout.table())
    assert table in PAGE.read_text(encoding="utf-8"), f"python -m benchmarks.fanout prints now:\n{table}"


def test_the_page_shows_a_run_as_it_is() -> None:
    drawn = subprocess.run([sys.executable, "scripts/budget_picture.py"], cwd=ROOT, capture_output=True, check=True)
    assert drawn.stdout == (ROOT / "docs" / "budget-run.svg").read_bytes(), "draw it anew: see the page"


def test_the_page_says_how_much_longer_the_last_one_waits() -> None:
    waits = contention.watch().waits
    assert f"the longest wait is {max(waits) / (sum(waits) / len(waits)):.2f} times the mean" in PAGE.read_text("utf-8")


def test_the_page_shows_that_others_spend_more_than_the_limit_and_we_do_not() -> None:
    row = re.compile(r"^\| (\S+) [\d.]+ ((?:\| [*\d,]+ )+)\|$", re.MULTILINE)
    rows = dict(row.findall(PAGE.read_text(encoding="utf-8")))
    assert rows.pop("kairo-team") == "| 250 | 250 | 250 | 250 | 250 "
    assert len(rows) >= 2
