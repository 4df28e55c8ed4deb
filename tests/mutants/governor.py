"""Ways in which a governor can be wrong, one edit each, and the tests that notice: `MUTANTS`.

`tests/mutants/kill_table.py` writes them down for readers.
"""

from __future__ import annotations

from typing import NamedTuple

LAW = "test_law.py::TestGovernorLaw"
CROWD = "test_law.py::TestCrowdLawOnAsyncio"
TRIO = "test_law.py::TestCrowdLawOnTrio"


class Mutant(NamedTuple):
    """One edit of the source: `old`, found once in `file`, becomes `new`."""

    name: str
    wrong: str
    """What goes wrong with it, in one line."""
    file: str
    """A file below `kairo_team/`."""
    old: str
    new: str
    killed_by: tuple[str, ...]
    """Tests below `tests/governance/`, each of which fails with the edit."""


GOVERNOR = "governance/governor.py"
LEDGER = "governance/ledger.py"
HOLDS = "governance/holds.py"
HALTS = "governance/halts.py"
SCOPE = "governance/scope.py"

_END_OF_CLAIM = "            node = node.parent\n        if not fits:\n"
_TOO_MUCH = "if limit is not None and new > limit:\n                    fits = False\n"

MUTANTS = [
    # -- sums and limits ----------------------------------------------------------------------
    Mutant(
        "hold not propagated",
        "a hold counts where it was taken and on no ancestor",
        LEDGER,
        "            node = node.parent\n        if not fits:\n            self.move(",
        "            node = None\n        if not fits:\n            self.move(",
        (LAW, "test_reservations.py::test_reserve_holds_everything_on_the_whole_path_or_nothing"),
    ),
    Mutant(
        "guarantee counted twice",
        "a hold inside a child's guarantee is committed at the parent once more",
        LEDGER,
        "                if floor > old:\n                    delta = new - floor if new > floor else 0\n"
        + _END_OF_CLAIM,
        _END_OF_CLAIM,
        (LAW, "test_carving.py::test_kf_u08_holds_and_allotments_are_neither_counted_twice_nor_forgotten"),
    ),
    Mutant(
        "refund dropped at settle",
        "what a call did not use of its hold never comes back",
        LEDGER,
        "self.move(TOKENS, spent - hold, spent, completion)",
        "self.move(TOKENS, max(0, spent - hold), spent, completion)",
        (LAW, "test_reservations.py::test_kf_b18_holds_come_back_at_settle"),
    ),
    Mutant(
        "`>=` for `>` in claim",
        "the last unit of a limit can never be held",
        LEDGER,
        _TOO_MUCH,
        _TOO_MUCH.replace(">", ">="),
        (LAW, "test_carving.py::test_a_guarantee_cannot_be_taken_by_a_sibling"),
    ),
    Mutant(
        "hold not atomic",
        "tokens stay held when the dollars of the same hold did not fit",
        LEDGER,
        "claim(DOLLARS, picos):\n            self.move(TOKENS, -tokens, 0)\n            return False",
        "claim(DOLLARS, picos):\n            return False",
        ("test_reservations.py::test_reserve_holds_everything_on_the_whole_path_or_nothing",),
    ),
    Mutant(
        "no wall",
        "a guarantee is honoured with money that an overshoot has spent",
        LEDGER,
        "if self.tree.overdrawn and self.walled(dim, amount) is not None:\n            return False",
        "if self.tree.overdrawn and False:\n            return False",
        (LAW, "test_reservations.py::test_a_guarantee_is_not_honoured_with_money_that_an_overshoot_has_spent"),
    ),
    Mutant(
        "overshoot forgotten",
        "a truth beyond its hold does not put up the wall",
        HOLDS,
        "self.overshoot = True\n                node.mark_overdrawn()",
        "self.overshoot = True",
        (LAW, "test_reservations.py::test_a_guarantee_is_not_honoured_with_money_that_an_overshoot_has_spent"),
    ),
    Mutant(
        "float money",
        "amounts go through binary floats",
        "budget.py",
        "exact = Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount)",
        "exact = Decimal(float(amount))",
        ("test_guards.py::test_kf_b11_a_limit_made_of_tenths_is_reached_exactly",),
    ),
    Mutant(
        "0 read as unlimited",
        "a child with 0 tokens may spend any number",
        LEDGER,
        "limits = (budget.tokens, None if",
        "limits = (budget.tokens or None, None if",
        (LAW, "test_guards.py::test_kf_b04_zero_is_nothing_and_none_is_unlimited"),
    ),
    Mutant(
        "None read as 0",
        "a budget without a dollar limit may spend no dollar",
        LEDGER,
        "limits = (budget.tokens, None if dollars is None else picodollars(dollars), budget",
        "limits = (budget.tokens, picodollars(dollars or 0), budget",
        (LAW, "test_reservations.py::test_left_unsettled_the_whole_hold_is_charged"),
    ),
    # -- guards -------------------------------------------------------------------------------
    Mutant(
        "`>` for `>=` in can_proceed",
        "a call may start when every token is spent",
        GOVERNOR,
        "is not None and spent[TOKENS] >= tokens",
        "is not None and spent[TOKENS] > tokens",
        ("test_guards.py::test_can_proceed_raises_when_what_was_spent_reaches_a_limit",),
    ),
    Mutant(
        "`>` for `>=` in pre_step",
        "an iteration may begin when every token is spent",
        GOVERNOR,
        "0 < spent[TOKENS] >= tokens",
        "0 < spent[TOKENS] > tokens",
        (LAW, "test_guards.py::test_audit_g02_pre_step_refuses_when_tokens_or_dollars_are_spent"),
    ),
    Mutant(
        "a free iteration refused",
        "a token limit of 0 of which nothing is spent refuses an iteration that needs no model",
        GOVERNOR,
        "0 < spent[TOKENS] >= tokens",
        "spent[TOKENS] >= tokens",
        ("test_guards.py::test_pre_step_lets_an_iteration_begin_where_there_were_no_tokens_to_spend",),
    ),
    Mutant(
        "halt forgotten at the close",
        "a governor that was killed and then closed calls that a misuse",
        HALTS,
        "    halt = in_force(node)\n    if halt is not None:\n        raise halt.error()\n    if node.ended",
        "    halt = in_force(node)\n    if halt is not None and node.ended is None:\n"
        "        raise halt.error()\n    if node.ended",
        (LAW, "test_guards.py::test_audit_g02_a_halt_keeps_its_reason_when_the_governor_is_closed"),
    ),
    Mutant(
        "`>` for `>=` in record_usage",
        "spending exactly the limit stops nobody",
        GOVERNOR,
        "if limit is not None and cells[COMMITTED] >= limit:",
        "if limit is not None and cells[COMMITTED] > limit:",
        ("test_guards.py::test_record_usage_books_first_and_stops_whose_limit_it_reached",),
    ),
    Mutant(
        "`>` for `>=` in time",
        "one more guard passes when time is up",
        HALTS,
        "node.tree.clock() >= due[0]",
        "node.tree.clock() > due[0]",
        ("test_guards.py::test_time_up_stops_at_every_guard",),
    ),
    Mutant(
        "loops not counted",
        "pre_step checks the limit and books nothing",
        GOVERNOR,
        "node.pay(LOOPS, 1)",
        "node.move(LOOPS, -1, 0)",
        (LAW, "test_guards.py::test_kf_b02_a_childs_use_counts_on_every_ancestor"),
    ),
    Mutant(
        "nearest instead of outermost",
        "of two limits that leave no room the inner one halts",
        LEDGER,
        "                found = node\n        return found",
        "                found = found or node\n        return found",
        (LAW,),
    ),
    Mutant(
        "nearest instead of outermost when spent",
        "of two limits that are used up the inner one halts",
        HALTS,
        "                found = one\n",
        "                found = found or one\n",
        ("test_guards.py::test_of_two_limits_reached_at_once_the_outermost_is_the_origin",),
    ),
    Mutant(
        "tool call halts",
        "a tool call over its limit halts the member",
        HALTS,
        "    for dim in (TOKENS, DOLLARS, LOOPS):\n        found = node.without_room(",
        "    for dim in (TOKENS, DOLLARS, LOOPS, 3):\n        found = node.without_room(",
        (LAW, "test_reservations.py::test_a_tool_call_over_its_limit_is_a_refusal_and_never_a_halt"),
    ),
    Mutant(
        "deadline of the nearest",
        "a child with more time outlives its parent's deadline",
        LEDGER,
        "if node.deadline is not None and node.deadline <= earliest:",
        "if node.deadline is not None and owner is None:",
        ("test_guards.py::test_a_childs_time_ends_with_its_parents_which_is_the_origin",),
    ),
    # -- settling -----------------------------------------------------------------------------
    Mutant(
        "settle cancels its own scope",
        "the reply that reaches the limit is booked and then interrupted",
        HOLDS,
        "            if tokens > held[TOKENS] or",
        "            __import__('kairo_team.governance.halts').governance.halts.stop_crossed(node, held)\n"
        "            if tokens > held[TOKENS] or",
        (LAW, "test_reservations.py::test_more_than_was_held_is_booked_and_reported_and_the_next_guard_refuses"),
    ),
    Mutant(
        "settle raises at a limit",
        "a paid reply is lost to a HaltError",
        HOLDS,
        "self._end(prompt_tokens + completion_tokens, completion_tokens, picos, tool_calls)",
        "self._end(prompt_tokens + completion_tokens, completion_tokens, picos, tool_calls)\n"
        "        check_hopeless(self._node, self._units, (1, 1, 1, 1))",
        (LAW, "test_guards.py::test_can_proceed_raises_when_what_was_spent_reaches_a_limit"),
    ),
    Mutant(
        "release charges",
        "a call that never left is paid for",
        HOLDS,
        "self._end(0, 0, 0, 0)",
        "self._end(self._units[TOKENS], 0, self._units[DOLLARS], 0)",
        (LAW, "test_reservations.py::test_release_gives_all_of_it_back"),
    ),
    Mutant(
        "unsettled hold given back",
        "a call whose outcome is unknown costs nothing",
        HOLDS,
        "self._end(tokens, 0, picos, tool_calls)",
        "self._end(0, 0, 0, 0 * (tokens + picos + tool_calls))",
        (LAW, "test_reservations.py::test_left_unsettled_the_whole_hold_is_charged"),
    ),
    Mutant(
        "reduced for nothing",
        "what a call that was made smaller cannot use stays held",
        LEDGER,
        "            if still[dim] != held[dim]:\n                self.move(",
        "            if still[dim] > held[dim]:\n                self.move(",
        (LAW, "test_reservations.py::test_a_hold_can_be_made_smaller_and_the_rest_goes_back"),
    ),
    Mutant(
        "reduced after the close",
        "a hold that its governor's close has charged is given back from what is not held any more",
        LEDGER,
        "            self._settle_late(held, still, 0)\n            return\n",
        "            pass\n",
        (LAW, "test_reservations.py::test_a_hold_made_smaller_after_the_close_is_charged_that_much"),
    ),
    Mutant(
        "settled twice",
        "a second settle passes silently",
        HOLDS,
        'raise GovernorClosed(node.name, "the reservation on")',
        "return",
        (LAW, "test_reservations.py::test_a_reservation_ends_once"),
    ),
    # -- children -----------------------------------------------------------------------------
    Mutant(
        "guarantee lent out",
        "a carve sets nothing aside: siblings spend what was guaranteed",
        LEDGER,
        "if guarantee is not NOTHING:\n            self.set_aside(guarantee)",
        "if guarantee is None:\n            self.set_aside(guarantee)",
        (LAW, "test_carving.py::test_a_guarantee_cannot_be_taken_by_a_sibling"),
    ),
    Mutant(
        "carve checks only the parent",
        "a grandchild is guaranteed what the root does not have",
        LEDGER,
        "new > limit:\n                fits = False",
        "new > limit and node is self:\n                fits = False",
        (LAW, "test_carving.py::test_a_carve_must_fit_on_the_whole_path_and_moves_nothing_if_it_does_not"),
    ),
    Mutant(
        "carve from a halted governor",
        "a halted governor still sets money aside for new children",
        GOVERNOR,
        "                halts.check(node)\n            child._node",
        "                pass\n            child._node",
        (LAW, "test_carving.py::test_carving_from_a_halted_parent_is_refused"),
    ),
    Mutant(
        "share takes the reserve",
        "a task's share comes out of what was to be left aside too",
        LEDGER,
        "free = left - int(limit * reserve)",
        "free = left",
        (LAW, "test_carving.py::test_a_share_is_a_part_of_what_is_not_allotted_with_the_reserve_aside"),
    ),
    Mutant(
        "top_up beyond what is left",
        "a child's guarantee grows although its parent has not that much",
        LEDGER,
        "        parent.set_aside((tokens, dollars, loops, tool_calls))\n",
        "        try:\n            parent.set_aside((tokens, dollars, loops, tool_calls))\n"
        "        except InsufficientBudget:\n            pass\n",
        (LAW, "test_carving.py::test_top_up_of_a_child_takes_from_the_parents_remainder"),
    ),
    Mutant(
        "top_up lifts a cancel",
        "a kill that came after exhaustion is forgotten when money arrives",
        HALTS,
        "        tree.final.setdefault(node, halt)\n",
        "        pass\n",
        ("test_carving.py::test_top_up_never_lifts_a_cancel_also_when_exhaustion_came_first",),
    ),
    Mutant(
        "top_up lifts without room",
        "exhaustion is forgotten although the limit is still used up",
        HALTS,
        "halt.dim != dim or (limit is not None and node.cells[dim] >= limit):",
        "halt.dim != dim:",
        ("test_carving.py::test_top_up_that_does_not_make_room_lifts_nothing",),
    ),
    Mutant(
        "close without return",
        "what a child did not use of its guarantee is lost",
        LEDGER,
        "            tokens, picos, loops, tool_calls = self.guarantee\n",
        "            tokens, picos, loops, tool_calls = NOTHING\n",
        (LAW, "test_carving.py::test_close_closes_children_charges_holds_and_gives_the_rest_back"),
    ),
    Mutant(
        "return stops at the parent",
        "what is given back beyond the parent's own guarantee is lost to its ancestors",
        LEDGER,
        "elif floor > new:\n                    amount = floor - old if old > floor else 0\n",
        "else:\n                    amount = 0\n",
        (LAW,),
    ),
    Mutant(
        "close gives open holds back",
        "a call in flight when its governor closes costs nothing",
        LEDGER,
        "self.move(dim, 0, self.held(dim))",
        "self.move(dim, -self.held(dim), 0)",
        (LAW, "test_carving.py::test_close_closes_children_charges_holds_and_gives_the_rest_back"),
    ),
    Mutant(
        "close leaves children open",
        "a closed member's tasks go on spending",
        LEDGER,
        "            if child.ended is None:\n                child.close()",
        "            if child.ended is None:\n                pass",
        (LAW, "test_carving.py::test_close_closes_children_charges_holds_and_gives_the_rest_back"),
    ),
    Mutant(
        "late usage lost",
        "what is recorded after the close is booked nowhere",
        GOVERNOR,
        "                node = node.nearest_open()\n            node.spend(",
        "                return\n            node.spend(",
        (LAW, "test_carving.py::test_late_usage_is_booked_to_the_nearest_open_ancestor"),
    ),
    Mutant(
        "late settle lost",
        "the charge of the close stays although the truth came",
        LEDGER,
        "            self._settle_late(held, used, completion)\n",
        "",
        ("test_carving.py::test_a_late_settle_replaces_the_charge_by_the_truth",),
    ),
    # -- halts --------------------------------------------------------------------------------
    Mutant(
        "second reason overwrites",
        "a later cancel replaces the first halt reason",
        HALTS,
        "first = tree.halts.setdefault(node, halt)",
        "first = tree.halts[node] = halt",
        (LAW, "test_guards.py::test_kf_b09_the_first_reason_wins"),
    ),
    Mutant(
        "child's halt stops siblings",
        "a member that is killed takes the team with it",
        HALTS,
        "    halt = Halt(node, reason, dim, stopped=True)\n",
        "    node = node.parent or node\n    halt = Halt(node, reason, dim, stopped=True)\n",
        (LAW, "test_guards.py::test_a_childs_halt_leaves_its_siblings_running_and_a_parents_shows_in_all"),
    ),
    Mutant(
        "kill interrupts the whole tree",
        "the scopes of siblings are cancelled too",
        HALTS,
        "for scope in scopes_inside(node):",
        "for scope in snapshot(tree.scopes.values()):",
        ("test_scope.py::test_siblings_are_left_alone",),
    ),
    Mutant(
        "stopped again and again",
        "each stop of a governor interrupts all that is in flight once more",
        HALTS,
        "if first is halt or not first.stopped:",
        "if True:",
        ("test_scope.py::test_audit_g22_a_governor_that_is_stopped_again_interrupts_nobody_again",),
    ),
    Mutant(
        "one scope for each governor",
        "of several scopes of one governor only the first is interrupted",
        HALTS,
        "    return found + _inside(node.tree.more_scopes, node)",
        "    return found",
        ("test_scope.py::test_every_scope_of_one_governor_is_interrupted",),
    ),
    Mutant(
        "kill after exhaustion interrupts nobody",
        "what runs goes on when its governor is stopped after it was exhausted",
        HALTS,
        "if first is halt or not first.stopped:",
        "if first is halt:",
        ("test_scope.py::test_a_kill_interrupts_what_an_exhausted_governor_let_run",),
    ),
    Mutant(
        "crossing does not interrupt",
        "record_usage over a limit only makes later guards refuse",
        HALTS,
        "            stop(crossed, REASONS[dim], dim)",
        "            exhaust(crossed, dim)",
        (LAW, "test_guards.py::test_record_usage_books_first_and_stops_whose_limit_it_reached"),
    ),
    Mutant(
        "cancel takes the lock",
        "a signal handler waits for a thread that waits for nobody",
        GOVERNOR,
        "        halts.stop(self._node, HaltReason(reason))",
        "        with self._node.tree.lock:\n            halts.stop(self._node, HaltReason(reason))",
        ("test_kill_switch.py::test_kf_u07_a_signal_while_the_ledger_is_locked_does_not_dead_lock",),
    ),
    # -- restored -----------------------------------------------------------------------------
    Mutant(
        "restored usage ignored",
        "a run that is continued has its whole budget again",
        GOVERNOR,
        "            restore(node, restored_usage)",
        "            pass",
        (LAW, "test_guards.py::test_kf_b07_what_an_earlier_session_spent_counts_its_seconds_included"),
    ),
    Mutant(
        "clock restarts",
        "a run that is continued has all its seconds again",
        GOVERNOR,
        "node.deadline -= usage.seconds",
        "node.deadline -= 0",
        (LAW, "test_guards.py::test_kf_b07_what_an_earlier_session_spent_counts_its_seconds_included"),
    ),
    Mutant(
        "restored halt lifted",
        "a top-up revives a run that had ended",
        GOVERNOR,
        "            halts.stop(node, HaltReason(restored_halt))",
        "            halts.exhaust(node, DOLLARS)",
        ("test_guards.py::test_kf_b08_a_restored_halt_is_terminal",),
    ),
    Mutant(
        "restored halt enters",
        "a scope of a halted governor runs its body",
        SCOPE,
        "            try:\n                check(node)\n",
        "            try:\n                pass\n",
        ("test_scope.py::test_entry_raises_when_halted_and_runs_nothing",),
    ),
    # -- waiting ------------------------------------------------------------------------------
    Mutant(
        "waiter never woken",
        "what was granted to a waiting caller is never told to it",
        HOLDS,
        "                if first.decide():\n                    first.wake()",
        "                if first.decide():\n                    pass",
        (CROWD, TRIO),
    ),
    Mutant(
        "last come, first served",
        "whoever waits longest is served last",
        HOLDS,
        'key=attrgetter("arrival"))',
        'key=lambda waiter: -attrgetter("arrival")(waiter))',
        ("test_holding.py::test_waiters_are_served_in_the_order_they_came",),
    ),
    Mutant(
        "newcomers pass",
        "a small hold overtakes everybody who waits",
        HOLDS,
        "if line and line[0].arrival < arrival:",
        "if line and line[0].arrival < 0:",
        ("test_holding.py::test_waiters_are_served_in_the_order_they_came",),
    ),
    Mutant(
        "waits for guarantees",
        "a hold waits for what will never come back",
        HOLDS,
        "if room < want and node.held(dim):",
        "if room < want:",
        (CROWD,),
    ),
    Mutant(
        "cancelled waiter keeps its grant",
        "a hold granted to a task that is being cancelled stays for ever",
        HOLDS,
        "                node.settle(waiter.granted, NOTHING)",
        "                pass",
        ("test_holding.py::test_a_grant_that_meets_a_cancellation_goes_back",),
    ),
    Mutant(
        "cancelled waiter blocks the line",
        "who stood behind a cancelled caller is not served",
        HOLDS,
        "            waiter.leave()\n            serve(node.nearest_open())",
        "            waiter.leave()",
        ("test_holding.py::test_a_cancelled_waiter_holds_nothing_and_lets_the_next_one_through",),
    ),
    Mutant(
        "exhaustion leaves waiters asleep",
        "a caller waits on under a halt",
        HALTS,
        "    if first is halt:\n        wake_waiters(node)",
        "    if first is halt:\n        pass",
        ("test_holding.py::test_a_halt_wakes_those_who_wait",),
    ),
    Mutant(
        "close leaves waiters asleep",
        "a caller waits on below a closed governor",
        GOVERNOR,
        "                if tree.waiters:\n                    dismiss(node)",
        "                if tree.waiters:\n                    pass",
        ("test_holding.py::test_closing_sends_away_those_who_wait_inside",),
    ),
    # -- scopes -------------------------------------------------------------------------------
    Mutant(
        "foreign cancellation swallowed",
        "the caller's own cancel turns into a HaltError",
        SCOPE,
        "if halt is not None and scope.cancelled_caught:",
        "if halt is not None:",
        ("test_scope.py::test_kf_u05_an_outer_cancellation_always_passes",),
    ),
    Mutant(
        "HaltError left inside a group",
        "`except HaltError` misses the halts of a task group",
        SCOPE,
        "first = None if swallowed or exc is None else first_halt(exc)",
        "first = None if swallowed or exc is None else None",
        ("test_scope.py::test_kf_u06_halts_out_of_a_task_group_are_one_halt",),
    ),
]

ROWS = {
    "hold not propagated": "B01",
    "loops not counted": "B02",
    "carve checks only the parent": "B03",
    "guarantee lent out": "B03",
    "0 read as unlimited": "B04",
    "`>` for `>=` in can_proceed": "B05",
    "late usage lost": "B06",
    "late settle lost": "B06",
    "restored usage ignored": "B07",
    "clock restarts": "B07",
    "restored halt lifted": "B08",
    "restored halt enters": "B08",
    "second reason overwrites": "B09",
    "float money": "B11",
    "unsettled hold given back": "B14",
    "refund dropped at settle": "B18",
    "waiter never woken": "B18",
    "share takes the reserve": "U01",
    "foreign cancellation swallowed": "U05",
    "HaltError left inside a group": "U06",
    "cancel takes the lock": "U07",
    "guarantee counted twice": "U08",
}
"""The known failure that a mutant is made from, by its name; the others are our own."""
