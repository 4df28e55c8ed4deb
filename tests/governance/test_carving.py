"""Carve, top up and close: guarantees, the pool, late money, and the tree that is written down."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import tracemalloc
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from pydantic import TypeAdapter

from kairo_team.budget import Budget, BudgetNode, HaltReason, Usage
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance import Governor
from kairo_team.testing import FakeClock

# -- carve ------------------------------------------------------------------------------------


def test_the_default_guarantee_is_what_is_finite_of_the_ceiling() -> None:
    team = Governor(Budget(tokens=1000, dollars=1, loops=10), name="team")
    task = team.carve("task", Budget(tokens=400, loops=3))
    assert task.guarantee == Budget(tokens=400, loops=3)
    assert task.budget == Budget(tokens=400, loops=3)
    assert team.remaining == Budget(tokens=600, dollars=1, loops=7)
    assert task.remaining == Budget(tokens=400, dollars=1, loops=3)


def test_a_child_without_a_ceiling_draws_on_what_nobody_was_guaranteed() -> None:
    team = Governor(Budget(tokens=1000), name="team")
    draft = team.carve("draft", Budget(tokens=400))
    chart = team.carve("chart", guarantee=Budget(tokens=100))
    assert chart.remaining.tokens == 600
    chart.reserve(tokens=600).settle(600)
    assert (chart.remaining.tokens, team.remaining.tokens, draft.remaining.tokens) == (0, 0, 400)
    draft.reserve(tokens=400).settle(400)


def test_a_guarantee_cannot_be_taken_by_a_sibling() -> None:
    team = Governor(Budget(tokens=100), name="team")
    safe, greedy = team.carve("safe", guarantee=Budget(tokens=40)), team.carve("greedy")
    with pytest.raises(InsufficientBudget) as caught:
        greedy.reserve(tokens=61)
    assert (caught.value.left, caught.value.origin) == (60, "team")
    greedy.reserve(tokens=60)
    safe.reserve(tokens=40)


def test_kf_b03_open_allotments_never_pass_the_parent() -> None:
    """B03: four children of $0.60 under a $1 parent, all spent: $2.40."""
    team = Governor(Budget(dollars=1), name="team")
    first = team.carve("first", Budget(dollars="0.60"))
    with pytest.raises(InsufficientBudget) as caught:
        team.carve("second", Budget(dollars="0.60"))
    assert caught.value.dimension == "dollars"
    assert (caught.value.asked, caught.value.left) == (Decimal("0.6"), Decimal("0.4"))
    second = team.carve("second", Budget(dollars="0.60"), guarantee=Budget(dollars="0.40"))
    for child in (first, second):
        spend_all(child, "0.01")
    assert team.status()[0].dollars == 1


def spend_all(governor: Governor, price: str) -> None:
    with suppress(HaltError, InsufficientBudget):
        while True:
            governor.can_proceed()
            governor.reserve(dollars=price).settle(dollars=price)


def test_kf_u08_holds_and_allotments_are_neither_counted_twice_nor_forgotten() -> None:
    """U08: holds booked on ancestors and allotments counted again: refused too early; only allotments: overspent."""
    team = Governor(Budget(tokens=100), name="team")
    member = team.carve("member", guarantee=Budget(tokens=60))
    hold = member.reserve(tokens=50)
    assert team.remaining.tokens == 40, "the hold is inside the allotment"
    member.reserve(tokens=30)
    assert team.remaining.tokens == 20, "beyond the allotment it is drawn on the pool"
    with pytest.raises(InsufficientBudget):
        team.reserve(tokens=21)
    hold.settle(10)
    assert team.remaining.tokens == 40
    team.reserve(tokens=40)
    assert member.remaining.tokens == 20


def test_a_carve_must_fit_on_the_whole_path_and_moves_nothing_if_it_does_not() -> None:
    team = Governor(Budget(tokens=100, dollars=1), name="team")
    member = team.carve("member")
    with pytest.raises(InsufficientBudget) as caught:
        member.carve("task", guarantee=Budget(tokens=50, dollars=2))
    assert caught.value.origin == "team"
    assert team.remaining == Budget(tokens=100, dollars=1)
    member.carve("task", guarantee=Budget(tokens=100, dollars=1))
    assert team.remaining == Budget(tokens=0, dollars=0)


def test_a_grandchilds_guarantee_comes_out_of_its_parents_first() -> None:
    team = Governor(Budget(tokens=100), name="team")
    member = team.carve("member", guarantee=Budget(tokens=50))
    member.carve("one", guarantee=Budget(tokens=30))
    assert team.remaining.tokens == 50
    member.carve("two", guarantee=Budget(tokens=30))
    assert (team.remaining.tokens, member.remaining.tokens) == (40, 40)


def test_a_guarantee_above_the_ceiling_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="a guarantee of 11 tokens is more than the ceiling of 10"):
        Governor().carve("task", Budget(tokens=10), guarantee=Budget(tokens=11))


def test_carve_share_guarantees_a_part_cut_to_the_ceiling() -> None:
    team = Governor(Budget(tokens=100, dollars=1), name="team")
    task, guarantee = team.carve_share("task", Budget(tokens=10, dollars="0.5"), 1.0, 0.0)
    assert guarantee == (10, 5 * 10**11, 0, 0)
    assert task.guarantee == task.unallotted == Budget(tokens=10, dollars="0.5")
    assert team.unallotted == Budget(tokens=90, dollars="0.5")
    assert team.carve_share("rest", None, 1.0, 0.0)[0].guarantee == Budget(tokens=90, dollars="0.5")
    assert Governor().carve_share("free", None, 0.5, 0.1)[0].guarantee == Budget()


def test_a_share_is_a_part_of_what_is_not_allotted_with_the_reserve_aside() -> None:
    team = Governor(Budget(tokens=1000, dollars=1, tool_calls=0), name="team")
    one, guarantee = team.carve_share("one", None, 0.5, 0.1)
    assert guarantee == (450, 45 * 10**10, 0, 0)
    one.close()
    team.carve("task", guarantee=Budget(tokens=950))
    two, guarantee = team.carve_share("two", None, 1.0, 0.0)
    assert guarantee == (50, 10**12, 0, 0)
    two.close()
    assert team.carve_share("three", None, 1.0, 0.1)[1][0] == 1, "at least one unit, also out of the reserve"


def test_no_share_is_left_of_what_is_all_allotted() -> None:
    team = Governor(Budget(tokens=10), name="team")
    team.carve("all", guarantee=Budget(tokens=10))
    with pytest.raises(InsufficientBudget, match="tokens"):
        team.carve_share("more", None, 1.0, 0.0)


def test_a_share_is_never_more_than_there_is_also_where_floats_are_coarse() -> None:
    team = Governor(Budget(dollars=10**6), name="team")
    for _ in range(50):
        team.record_usage(dollars="0.000000000007")
        team.carve_share("all", None, 1.0, 0.0)[0].close()


def test_names_may_repeat_and_paths_do_not() -> None:
    team = Governor(name="team")
    children = [team.carve(name) for name in ("a", "a", "a#2", "a", "b/c", "b~1c")]
    children += [children[0].carve("c"), team.carve("b").carve("c")]
    assert [child.name for child in children[:4]] == ["a", "a", "a#2", "a"]
    paths = [child.path for child in children]
    assert len(set(paths)) == len(paths)
    assert paths[:2] == ["team/a", "team/a#2"]
    assert [node.path for node in team.tree().children[:6]] == paths[:6]


def test_carving_from_a_halted_parent_is_refused() -> None:
    team = Governor(Budget(tokens=10), name="team", clock=FakeClock())
    member = team.carve("member")
    team.cancel()
    before = team.tree()
    with pytest.raises(HaltError, match="'team' halted: cancelled"):
        member.carve("task")
    assert team.tree() == before
    task, _ = member.carve_share("task", None, 0.5, 0.0)
    assert task.halted is HaltReason.CANCELLED


# -- top_up -----------------------------------------------------------------------------------


def test_top_up_of_the_root_raises_its_limit_and_lifts_exhaustion() -> None:
    team = Governor(Budget(tokens=10, dollars=1), name="team")
    task = team.carve("task")
    with pytest.raises(HaltError):
        task.record_usage(prompt_tokens=10)
    team.top_up(Budget(dollars=1))
    assert task.halted is HaltReason.TOKEN_BUDGET_EXCEEDED, "not what was used up"
    team.top_up(Budget(tokens=5))
    task.can_proceed()
    assert (team.budget, task.remaining.tokens) == (Budget(tokens=15, dollars=2), 5)


def test_top_up_of_a_child_takes_from_the_parents_remainder() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task, sibling = team.carve("task", Budget(tokens=20)), team.carve("sibling", Budget(tokens=50))
    task.reserve(tokens=20).settle(20)
    with pytest.raises(HaltError):
        task.can_proceed()
    with pytest.raises(InsufficientBudget) as caught:
        task.top_up(Budget(tokens=31))
    assert (caught.value.left, caught.value.origin) == (30, "team")
    assert task.budget == Budget(tokens=20), "nothing moved"
    task.top_up(Budget(tokens=30))
    task.can_proceed()
    assert (task.budget, task.guarantee) == (Budget(tokens=50), Budget(tokens=50))
    assert (task.remaining.tokens, sibling.remaining.tokens, team.remaining.tokens) == (30, 50, 0)


def test_top_up_that_does_not_make_room_lifts_nothing() -> None:
    team = Governor(Budget(tokens=10), name="team")
    with pytest.raises(HaltError):
        team.record_usage(prompt_tokens=30)
    team.top_up(Budget(tokens=20))
    assert team.halted is HaltReason.TOKEN_BUDGET_EXCEEDED
    with pytest.raises(HaltError):
        team.can_proceed()
    team.top_up(Budget(tokens=1))
    team.can_proceed()


@pytest.mark.parametrize("reason", [HaltReason.CANCELLED, HaltReason.EMERGENCY_STOP])
def test_top_up_never_lifts_a_cancel_also_when_exhaustion_came_first(reason: HaltReason) -> None:
    team = Governor(Budget(tokens=10), name="team")
    team.cancel(reason)
    team.top_up(Budget(tokens=10))
    assert team.halted is reason
    other = Governor(Budget(tokens=10), name="other")
    with pytest.raises(HaltError):
        other.record_usage(prompt_tokens=10)
    other.cancel(reason)
    other.top_up(Budget(tokens=10))
    assert other.halted is HaltReason.TOKEN_BUDGET_EXCEEDED
    with pytest.raises(HaltError):
        other.can_proceed()


def test_top_up_of_seconds_moves_the_deadline_but_revives_nobody() -> None:
    clock = FakeClock()
    team = Governor(Budget(seconds=10), name="team", clock=clock)
    clock.now = 9
    team.top_up(Budget(seconds=5))
    clock.now = 14
    team.can_proceed()
    assert (team.budget.seconds, team.remaining.seconds) == (15, 1)
    clock.now = 15
    with pytest.raises(HaltError):
        team.can_proceed()
    team.top_up(Budget(seconds=100))
    assert team.halted is HaltReason.TIME_BUDGET_EXCEEDED


def test_top_up_leaves_what_is_unlimited_unlimited() -> None:
    team = Governor(name="team")
    team.top_up(Budget(tokens=5, seconds=5))
    assert team.budget == Budget()
    task = team.carve("task")
    task.top_up(Budget(tokens=5))
    assert (task.budget, task.guarantee) == (Budget(), Budget(tokens=5))


# -- close ------------------------------------------------------------------------------------


def test_close_closes_children_charges_holds_and_gives_the_rest_back() -> None:
    team = Governor(Budget(tokens=1000, dollars=1), name="team")
    member = team.carve("member", Budget(tokens=500))
    task = member.carve("task", guarantee=Budget(tokens=100))
    task.reserve(tokens=30).settle(20, 10)
    task.reserve(tokens=40, dollars="0.25", tool_calls=1)
    member.close()
    member.close()
    assert (member.closed, task.closed) == (True, True)
    usage = team.status()[0]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.dollars, usage.tool_calls) == (
        60,
        10,
        Decimal("0.25"),
        1,
    )
    assert (team.remaining, team.held) == (Budget(tokens=930, dollars="0.75"), Usage())
    assert task.status()[0].tokens == member.status()[0].tokens == 70


def test_after_close_guards_are_misuse() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("task")
    task.close()
    for guard in (
        task.pre_step,
        task.can_proceed,
        task.reserve,
        lambda: task.carve("x"),
        lambda: task.top_up(Budget()),
    ):
        with pytest.raises(GovernorClosed, match="'task' is closed"):
            guard()
    assert task.remaining == Budget(0, 0, 0, 0, 0)
    assert (task.unallotted, task.held, task.halted) == (Budget(), Usage(), None)
    team.can_proceed()


def test_late_usage_is_booked_to_the_nearest_open_ancestor() -> None:
    team = Governor(Budget(tokens=100), name="team")
    member = team.carve("member")
    task = member.carve("task")
    task.record_usage(prompt_tokens=5)
    task.close()
    task.record_usage(prompt_tokens=7)
    assert [governor.status()[0].tokens for governor in (task, member, team)] == [5, 12, 12]
    with pytest.raises(HaltError):
        task.record_usage(prompt_tokens=88)
    assert (team.halted, team.status()[0].tokens) == (HaltReason.TOKEN_BUDGET_EXCEEDED, 100)


def test_late_usage_is_not_lost_when_everything_is_closed() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("task")
    hold = task.reserve(tokens=10)
    team.close()
    task.record_usage(prompt_tokens=700, completion_tokens=7, dollars=1)
    hold.settle(1, 2)
    usage = team.status()[0]
    assert (usage.tokens, usage.completion_tokens, usage.dollars) == (710, 9, Decimal(1))


@pytest.mark.parametrize("truth", [0, 20, 30, 45])
def test_a_late_settle_replaces_the_charge_by_the_truth(truth: int) -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("member", guarantee=Budget(tokens=50)).carve("task", guarantee=Budget(tokens=40))
    hold = task.reserve(tokens=30)
    task.close()
    assert team.status()[0].prompt_tokens == 30
    hold.settle(prompt_tokens=truth // 2, completion_tokens=truth - truth // 2)
    for governor in (team, task):
        assert governor.status()[0].tokens == truth
        assert governor.status()[0].completion_tokens == truth - truth // 2
    assert hold.overshoot is (truth > 30)
    assert team.remaining.tokens == 50


# -- the tree ---------------------------------------------------------------------------------


def small_tree() -> Governor:
    team = Governor(Budget(tokens=1000, dollars="1.00", loops=10), name="team", clock=FakeClock())
    draft, _ = team.carve("draft", Budget(tokens=400)), team.carve("chart", guarantee=Budget(tokens=100))
    draft.pre_step()
    draft.reserve(tokens=150).settle(60, 40, "0.002")
    draft.carve("inner").record_usage(10, 5, "0.0001", 1)
    draft.close()
    return team


def test_the_tree_prints_for_people() -> None:
    team = small_tree()
    team.reserve(tokens=30, dollars="0.25")
    team.carve("late", guarantee=Budget(tokens=20)).cancel()
    assert str(team.tree()).splitlines() == [
        "team         115 of 1,000 tokens (30 held)  $0.0021 of $1 ($0.25 held)  1 of 10 loops  1 tool call  0.0 s",
        "├─ draft     115 of 400 tokens              $0.0021                     1 loop         1 tool call  0.0 s",
        "│  └─ inner  15 tokens                      $0.0001                                    1 tool call  0.0 s",
        "├─ chart     0 tokens (100 guaranteed)                                                              0.0 s",
        f"└─ late      0 tokens (20 guaranteed){' ' * 63}0.0 s  cancelled by 'late'",
    ]


def test_the_tree_goes_through_json() -> None:
    tree = small_tree().tree()
    adapter = TypeAdapter(BudgetNode)
    assert adapter.validate_json(adapter.dump_json(tree)) == tree
    assert adapter.validate_python(adapter.dump_python(tree, mode="json")) == tree


def test_the_tree_tells_who_halted_and_what_is_held() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("task")
    task.reserve(tokens=30, dollars="0.1", tool_calls=1)
    task.cancel()
    node = team.tree().children[0]
    assert (node.halt, node.origin, node.closed) == (HaltReason.CANCELLED, "task", False)
    assert node.held == Usage(30, 0, Decimal("0.1"), 0, 1)
    assert team.tree().halt is None


def test_a_governor_shows_its_path_and_budget() -> None:
    team = Governor(Budget(tokens=100), name="team")
    assert repr(team.carve("task")) == "<Governor 'team/task' Budget() halted=None>"
    assert repr(team.reserve(tokens=5, dollars="0.5")) == "<Reservation on 'team': 5 tokens, $0.5, 0 tool calls, open>"


@pytest.mark.usefixtures("swept")
def test_a_closed_child_takes_less_than_a_kilobyte() -> None:
    team = Governor(Budget(tokens=10**9), name="team")
    names = [f"task-{number}" for number in range(5_000)]
    share = Budget(tokens=100)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for name in names:
        task = team.carve(name, guarantee=share)
        task.reserve(tokens=100, dollars="0.01").settle(20, 10, "0.005")
        task.close()
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken / len(names) < 1000


def test_a_tree_of_what_has_ended_is_read_later_and_still_says_what_was_then() -> None:
    team = Governor(Budget(tokens=100), name="team")
    member = team.carve("member")
    task = member.carve("task")
    hold = task.reserve(tokens=10)
    team.close()
    then = team.tree()
    hold.settle(prompt_tokens=4)
    late = team.tree()
    assert [node.children[0].children[0].usage.tokens for node in (then, late)] == [10, 4]
    assert [node.children[0].usage.tokens for node in (then, late)] == [10, 4]
    assert (then.usage.tokens, late.usage.tokens) == (10, 4)
    assert then != late


def test_a_tree_that_is_read_later_is_a_value_like_any_other() -> None:
    team = Governor(Budget(tokens=100), name="team")
    for name in ("a", "b"):
        team.carve(name, Budget(tokens=10)).close()
    team.close()
    tree = team.tree()
    slots: dict[str, Any] = {name: getattr(tree, name) for name in BudgetNode.__slots__}
    slots["children"] = tuple(tree.children)
    read = BudgetNode(**slots)
    again = pickle.loads(pickle.dumps(tree))  # noqa: S301 - our own bytes
    for same in (read, again, copy.deepcopy(tree), dataclasses.replace(tree)):
        assert same == tree == same
        assert hash(same) == hash(tree)
    assert (read.children == tree.children, tree.children == read.children) == (True, True)
    adapter = TypeAdapter(BudgetNode)
    assert adapter.validate_json(adapter.dump_json(team.tree())) == tree
    assert repr(team.tree()) == repr(read)
    assert [child.name for child in team.tree().children[:1]] == ["a"]
    assert str(team.tree()).count("\n") == 2
