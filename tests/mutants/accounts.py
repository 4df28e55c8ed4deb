"""Ways in which accounts can be wrong, one edit each, and the tests that notice: `MUTANTS`.

`python -m tests.mutants.accounts > tests/account_mutants.md` writes them down for readers.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LAW = "test_account_law.py::TestAccountLaw"
CROWD = "test_account_law.py::test_eight_processes_never_pass_an_account_and_two_that_are_killed_lose_nothing"
TESTS = "test_accounts.py::test_"
WINDOWS = "test_account_windows.py::test_"

ACCOUNTS = "durable/accounts.py"
SQL_JOURNAL = "durable/sql_journal.py"
RUN_JOURNAL = "durable/sql_run_journal.py"

MUTANTS = [
    Mutant(
        "a limit is not looked at",
        "tokens are set aside above the limit",
        ACCOUNTS,
        "for limit, much in zip(_limits(row), taken, strict=True)]",
        "for limit, much in zip(_limits(row)._replace(tokens=None), taken, strict=True)]",
        (LAW, CROWD, f"{TESTS}a_run_that_does_not_fit_is_refused_before_it_begins"),
    ),
    Mutant(
        "dollars are not looked at",
        "dollars are set aside above the limit",
        ACCOUNTS,
        "for limit, much in zip(_limits(row), taken, strict=True)]",
        "for limit, much in zip(_limits(row)._replace(picos=None), taken, strict=True)]",
        (LAW, f"{TESTS}dollars_are_limited_to_the_picodollar"),
    ),
    Mutant(
        "`<` for `<=`",
        "the last token of an account can never be set aside",
        ACCOUNTS,
        "left is not None and left < (asked[n] or 0)",
        "left is not None and left <= (asked[n] or 0)",
        (LAW, f"{TESTS}a_run_that_does_not_fit_is_refused_before_it_begins"),
    ),
    Mutant(
        "what is set aside is not counted",
        "an account refuses only by what ended runs have used",
        ACCOUNTS,
        'taken = map(sum, zip(_row(row, "used"), _row(row, "aside"), strict=True))\n    rest',
        'taken = _row(row, "used")\n    rest',
        (LAW, CROWD, f"{TESTS}a_submitted_run_is_charged_from_its_submission_to_its_end"),
    ),
    Mutant(
        "no limit counts as nothing",
        "a run without a limit begins under an account that has one",
        ACCOUNTS,
        "needed = [None if now is None else much for now, much in zip(asked, more, strict=True)]",
        "needed = [much for now, much in zip(asked, more, strict=True)]",
        (LAW, f"{TESTS}a_run_without_a_limit_that_its_account_has_is_refused"),
    ),
    Mutant(
        "the accounts above are left out",
        "a charge counts in its own account alone",
        ACCOUNTS,
        "  SELECT account.name, account.parent, depth + 1 FROM account JOIN chain ON account.name = chain.parent)",
        "  SELECT name, parent, depth FROM chain WHERE depth < 0)",
        (LAW, CROWD, f"{TESTS}a_run_that_does_not_fit_is_refused_before_it_begins"),
    ),
    Mutant(
        "read, then written",
        "two that look at once both find enough",
        ACCOUNTS,
        'f"SELECT * FROM account WHERE name = ?{connection.for_update}"\n    row =',
        '"SELECT *, pg_sleep(0.002) FROM account WHERE name = ?"\n    row =',
        (CROWD,),
    ),
    Mutant(
        "no refund at the end",
        "what a run has not spent stays set aside",
        ACCOUNTS,
        "aside_tokens = aside_tokens - ?, aside_picos = aside_picos - ? WHERE name = ?",
        "aside_tokens = aside_tokens - 0 * ?, aside_picos = aside_picos - 0 * ? WHERE name = ?",
        (LAW, f"{TESTS}a_run_sets_its_budget_aside_when_it_begins_and_gives_back_the_rest_when_it_ends"),
    ),
    Mutant(
        "not settled at the end",
        "an ended run keeps its whole budget set aside",
        RUN_JOURNAL,
        "self._put(*ended, partial(settle, run_id=self._session.run_id, epoch=self._session.epoch), sync=True)",
        "self._put(*ended, sync=True)",
        (LAW, f"{TESTS}a_run_sets_its_budget_aside_when_it_begins_and_gives_back_the_rest_when_it_ends"),
    ),
    Mutant(
        "settled by whoever ends",
        "a process that lost a run settles it",
        ACCOUNTS,
        ' or epoch not in (None, charge["epoch"]):',
        ":",
        (f"{TESTS}a_session_that_lost_its_run_settles_nothing",),
    ),
    Mutant(
        "spent twice",
        "a run that goes on is charged again what it had spent before it waited",
        ACCOUNTS,
        'more = [much - before for much, before in zip(used, _row(charge, "used"), strict=True)]',
        "more = list(used)",
        (f"{TESTS}a_suspended_run_keeps_what_it_has_spent_and_sets_the_rest_aside_when_it_goes_on",),
    ),
    Mutant(
        "all set aside again",
        "a run that goes on sets its whole budget aside beside what it has spent",
        ACCOUNTS,
        'paid = map(sum, zip(_row(charge, "used"), _row(charge, "copied"), strict=True))',
        'paid = map(sum, zip((0, 0), _row(charge, "copied"), strict=True))',
        (LAW, f"{TESTS}a_suspended_run_keeps_what_it_has_spent_and_sets_the_rest_aside_when_it_goes_on"),
    ),
    Mutant(
        "nothing set aside again",
        "a run that goes on spends what another has set aside",
        SQL_JOURNAL,
        "            accounts.go_on(connection, found[0], budget)\n",
        "",
        (LAW, f"{TESTS}a_suspended_run_keeps_what_it_has_spent_and_sets_the_rest_aside_when_it_goes_on"),
    ),
    Mutant(
        "the recorded budget alone",
        "a run goes on with a larger budget than it set aside",
        SQL_JOURNAL,
        "            accounts.go_on(connection, found[0], budget)\n",
        "            accounts.go_on(connection, found[0], None)\n",
        (LAW, f"{TESTS}a_run_that_goes_on_with_a_larger_budget_sets_that_aside_first"),
    ),
    Mutant(
        "a top-up from nowhere",
        "a raised limit is not set aside",
        "engine/work/steering.py",
        "        self._set_aside(budget)\n",
        "",
        (f"{TESTS}a_top_up_sets_more_aside_first",),
    ),
    Mutant(
        "a top-up by whoever had the run",
        "a process that lost a run sets more aside for it",
        ACCOUNTS,
        '    if charge["epoch"] != epoch:\n        return False\n',
        "",
        (f"{TESTS}a_session_that_lost_its_run_settles_nothing",),
    ),
    Mutant(
        "cancelled and kept",
        "a run that nobody has keeps what it set aside when it is cancelled",
        SQL_JOURNAL,
        "                accounts.settle(connection, run_id)\n",
        "",
        (LAW, f"{TESTS}a_submitted_run_is_charged_from_its_submission_to_its_end"),
    ),
    Mutant(
        "cancelled and not fenced off",
        "a process that was taken for dead spends after its run was settled",
        SQL_JOURNAL,
        "SET state = 'cancelled', epoch = epoch + 1, updated_at = ?",
        "SET state = 'cancelled', updated_at = ?",
        (f"{TESTS}what_a_cancelled_run_could_still_write_counts_no_more",),
    ),
    Mutant(
        "forgotten and kept",
        "what a forgotten run had set aside never comes back",
        SQL_JOURNAL,
        "        self._lock_run(connection, run_id)\n        accounts.settle(connection, run_id)\n",
        "",
        (LAW, f"{TESTS}a_run_whose_process_died_stays_set_aside_until_somebody_has_it"),
    ),
    Mutant(
        "a dead process's cancelled run is kept",
        "what a run had set aside that was cancelled before its process died never comes back",
        "cluster/monitor.py",
        "            settle_cancelled(connection)\n",
        "",
        (f"{TESTS}what_a_run_had_that_was_cancelled_before_its_process_died_comes_back",),
    ),
    Mutant(
        "a fork for nothing",
        "a fork is charged to no account",
        SQL_JOURNAL,
        "            accounts.copy(connection, run_id, new_id)\n",
        "",
        (f"{TESTS}a_fork_is_charged_to_the_same_account_and_only_what_it_spends_itself",),
    ),
    Mutant(
        "a fork pays twice",
        "what a fork copied is charged again",
        ACCOUNTS,
        'used = [much - copied for much, copied in zip(whole, _row(charge, "copied"), strict=True)]',
        "used = list(whole)",
        (f"{TESTS}a_fork_is_charged_to_the_same_account_and_only_what_it_spends_itself",),
    ),
    Mutant(
        "a limit below what is taken",
        "an account has used and set aside more than its new limit",
        ACCOUNTS,
        "        if wanted < taken:\n",
        "        if wanted < 0:\n",
        (LAW, f"{TESTS}a_limit_never_goes_below_what_is_used_and_set_aside"),
    ),
    Mutant(
        "a new limit at once",
        "a limit is set while runs without one are at work",
        ACCOUNTS,
        "        if free:\n",
        "        if not name:\n",
        (LAW, f"{TESTS}a_new_limit_waits_for_the_runs_that_do_not_have_it"),
    ),
    Mutant(
        "another parent",
        "an account moves, and what it has used stays behind",
        ACCOUNTS,
        '    if parent not in (None, row["parent"]):\n',
        "    if not row:\n",
        (f"{TESTS}an_account_stays_where_it_was_made",),
    ),
    Mutant(
        "a window never ends",
        "an account has the limit of one window for all time",
        ACCOUNTS,
        'if row["every"] is None or now < row["until"]:',
        'if row["every"] is None or now:',
        (f"{WINDOWS}a_window_ends_by_the_databases_clock_and_the_next_has_the_whole_limit",),
    ),
    Mutant(
        "charged where it ends",
        "usage counts in the window in which its run ends",
        ACCOUNTS,
        '            if since == row["since"]:\n',
        "            if row:\n",
        (
            f"{WINDOWS}what_was_set_aside_before_a_boundary_is_charged_there",
            f"{WINDOWS}a_run_whose_process_died_keeps_its_amount_in_the_window_where_it_was_set_aside",
        ),
    ),
    Mutant(
        "ended windows are lost",
        "what was set aside before a boundary is charged nowhere",
        ACCOUNTS,
        'f"UPDATE ended_window SET {moved} AND since = ?"',
        'f"UPDATE ended_window SET {moved} AND since < ?"',
        (f"{WINDOWS}what_was_set_aside_before_a_boundary_is_charged_there",),
    ),
]


def table() -> str:
    """Write the mutants down as a Markdown table."""
    rows = [f"| {one.name} | {one.wrong} | {', '.join(map(_killer, one.killed_by))} |" for one in MUTANTS]
    return "\n".join(
        [
            "# Mutants of accounts",
            "",
            "Each is one edit of the source (`tests/mutants/accounts.py`); `tests/mutants/test_account_mutants.py`",
            "makes it in a copy and runs the tests that are named here: every one of them fails. Written by",
            "`python -m tests.mutants.accounts > tests/account_mutants.md`.",
            "",
            "| mutant | what goes wrong | killed by |",
            "|---|---|---|",
            *rows,
            "",
            f"{len(rows)} mutants.",
        ]
    )


def _killer(test: str) -> str:
    return "the state machine" if test == LAW else f"`{test.partition('::')[2]}`"


if __name__ == "__main__":
    print(table())  # noqa: T201 - it is there to be printed
