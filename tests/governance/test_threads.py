"""One tree, many threads: the sums stay exact and the law holds whenever somebody looks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from kairo_team.budget import Budget, BudgetNode, Usage
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.governance import Governor

WORKERS = 6
ROUNDS = 150


@pytest.fixture(autouse=True)
def impatient_interpreter() -> Iterator[None]:
    """Switch threads as often as it can be done."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def check_law(node: BudgetNode) -> None:
    used = node.usage + node.held
    for limit, amount in ((node.budget.tokens, used.tokens), (node.budget.dollars, used.dollars)):
        assert limit is None or amount <= limit
    assert sum(child.usage.tokens for child in node.children) <= node.usage.tokens
    for child in node.children:
        check_law(child)


def test_kf_b01_threads_hammering_one_tree_never_pass_a_limit() -> None:
    """B01: spent <= limit at any fan-out, also between threads, at every moment somebody looks."""
    team = Governor(Budget(tokens=20_000, dollars="2.00"), name="team")
    members = [team.carve(f"member-{number}", guarantee=Budget(tokens=1000)) for number in range(3)]
    spent = [0] * WORKERS
    working = threading.Event()
    working.set()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        for turn in range(ROUNDS):
            try:
                task = members[(number + turn) % 3].carve("task", guarantee=Budget(tokens=turn % 7))
                with task.reserve(tokens=turn % 40, dollars="0.003") as hold:
                    hold.settle(prompt_tokens=turn % 20, dollars="0.001")
                    spent[number] += turn % 20
                task.close()
            except (HaltError, InsufficientBudget):
                continue

    def watch() -> None:
        try:
            while working.is_set():
                check_law(team.tree())
        except BaseException as failure:  # noqa: BLE001 - the test's own thread raises it
            failures.append(failure)

    watcher = threading.Thread(target=watch)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in (watcher, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    working.clear()
    watcher.join()
    assert not failures
    usage = team.status()[0]
    assert (usage.tokens, team.held) == (sum(spent), Usage())
    for member in members:
        member.close()
    assert team.remaining.tokens == 20_000 - sum(spent)


def test_a_kill_between_threads_is_seen_by_all_of_them() -> None:
    team = Governor(name="team")
    started = threading.Barrier(WORKERS + 1)
    stopped: list[int] = []

    def work(number: int) -> None:
        task = team.carve(f"task-{number}")
        started.wait()
        try:
            while True:
                task.can_proceed()
        except HaltError:
            stopped.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    started.wait()
    team.cancel()
    for worker in workers:
        worker.join(60)
    assert sorted(stopped) == list(range(WORKERS))
