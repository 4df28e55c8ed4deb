"""Ways in which the cluster can be wrong, one edit each, and the tests that notice: `MUTANTS`.

`tests/mutants/cluster_table.py` writes them down for readers.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One edit of the source, which takes away what keeps a sentence: `old`, found once in `file`, becomes `new`."""

    sentence: str
    """What is promised."""
    wrong: str
    """What goes wrong with the edit, in one line; it is the mutant's name."""
    file: str
    """A file below `kairo_team/`."""
    old: str
    new: str
    killed_by: tuple[str, ...]
    """Tests below `tests/`, each of which fails with the edit."""


UNITS = "cluster/units.py"
REAPER = "cluster/monitor.py"
REMOTE = "cluster/remote_attempt.py"
HOST = "cluster/attempt_host.py"
WORKER = "cluster/worker.py"
CLUSTER = "cluster/cluster.py"
DBOS = "cluster/dbos_delivery.py"
MAILBOX = "cluster/mailbox.py"
JOURNAL = "durable/postgres.py"
DATABASE = "durable/postgres_database.py"
PROCESSES = "durable/processes.py"
CLASSES = "durable/value_classes.py"
SLICES = "governance/slices.py"

_UNITS = "cluster/test_units.py::test_"
_LOST = "cluster/test_lost_deliveries.py::test_"
_RUNS = "cluster/test_runs.py::test_"
_JOURNAL = "cluster/test_postgres_journal.py::test_"
_SAFETY = "cluster/test_safety.py::test_"
_SIDES = "cluster/test_both_sides.py::test_"
_SLICES = "governance/test_slices.py::test_"

DELIVERED = "deliver `(unit, fence)` at least once to some live worker, sent in our transaction"
FENCED = "each delivery has a fence; every write says its fence"
NO_WRITE = "a worker that was asleep, partitioned or declared dead writes nothing and starts no call after it"
ENDS_ITSELF = "a worker that cannot reach the database ends itself before it can be declared dead"
LATENESS = "lateness is measured by each observer's monotonic clock against the counter"
AWAY = "a database that was away makes nobody late"
ORPHANS = "whoever holds the lock sends orphaned units anew, with the next fence"
IN_DOUBT = "calls in flight become in-doubt: charged and listed"
AUDITED = "an auditor finds units that are sent and have no delivery under way"
GIVEN_UP = "after `max_deliveries` a unit that kills its workers fails with that sentence"
SLICED = (
    "a worker gets a slice and holds inside it; what does not fit is asked for: it gives back what is left, and waits"
)
NEVER_MORE = "never more out than the tree allows: overspend 0, whoever dies"
COORDINATED = "the coordinator of a run is itself a unit: any worker can take it over"
REACHED = "kill, deadline, cancel_task, steer, top-up, human questions reach attempts on other machines within a beat"
SAME = "a run on the engine and a run in one process give the same result"
VERSIONS = "a worker whose team digests differ from the run's refuses its units"
NO_IMPORT = "nothing that comes from the database is imported"
SECRET = "a database URL is a secret"

MUTANTS = [
    # -- deliveries ---------------------------------------------------------------------------
    Mutant(
        DELIVERED,
        "a unit is recorded, and nobody is told to deliver it",
        UNITS,
        "            replace(self, priority=written[0]).deliver(delivery, connection)",
        "            replace(self, priority=written[0])",
        (_UNITS + "what_is_sent_is_delivered_in_the_same_transaction",),
    ),
    Mutant(
        DELIVERED,
        "where one machine's clock is slow, what is sent with a delay waits for it",
        DBOS,
        "                    connection.execute(self._delivery.sql(_DUE))\n",
        "",
        ("cluster/test_delivery.py::test_a_delay_ends_where_the_clock_of_the_receivers_is_slow",),
    ),
    Mutant(
        DELIVERED,
        "attempts do not have the priority of their run",
        UNITS,
        "COALESCE((SELECT priority FROM unit AS run WHERE run.id = 'run:' || ?), 0)",
        "COALESCE((SELECT 0 FROM unit AS run WHERE run.id = 'run:' || ?), 0)",
        ("cluster/test_queues.py::test_all_deliveries_of_a_run_have_its_priority",),
    ),
    Mutant(
        DELIVERED,
        "an attempt that a worker has is sent to another one",
        UNITS,
        " sent_at = excluded.sent_at WHERE unit.state = 'lost' AND unit.fence = excluded.fence",
        " sent_at = excluded.sent_at, fence = excluded.fence",
        (_UNITS + "an_attempt_is_sent_anew_only_where_its_delivery_was_lost",),
    ),
    # -- claims and fences --------------------------------------------------------------------
    Mutant(
        FENCED,
        "two processes claim one delivery",
        UNITS,
        " AND (state = 'sent' OR state = 'taken' AND process = ?)",
        " AND (state = 'sent' OR state = 'taken' AND ? <> '')",
        (_UNITS + "a_delivery_is_claimed_by_one_process",),
    ),
    Mutant(
        FENCED,
        "a delivery of an earlier fence is claimed",
        UNITS,
        " WHERE id = ? AND fence = ? AND (state",
        " WHERE id = ? AND fence >= ? AND (state",
        (_UNITS + "a_delivery_with_an_earlier_fence_claims_nothing",),
    ),
    Mutant(
        FENCED,
        "who claims again what it has, because the word of its commit was lost, does not get it",
        UNITS,
        "(state = 'sent' OR state = 'taken' AND process = ?)",
        "(state = 'sent' OR process = ? AND false)",
        (_UNITS + "who_claims_again_what_it_has_gets_it",),
    ),
    Mutant(
        FENCED,
        "a letter for an earlier delivery is given to who has the unit now",
        UNITS,
        "SELECT {_ADDRESS}, id, fence, ?, ? FROM unit WHERE id = ? AND fence = ?",
        "SELECT {_ADDRESS}, id, fence, ?, ? FROM unit WHERE id = ? AND ? > 0",
        (_UNITS + "a_letter_to_an_earlier_delivery_is_not_sent",),
    ),
    Mutant(
        FENCED,
        "an earlier delivery of a run ends the unit",
        JOURNAL,
        "ended_at = {NOW} WHERE id = ? AND fence = ?",
        "ended_at = {NOW} WHERE id = ? AND fence >= ?",
        (_UNITS + "only_the_delivery_that_counts_ends_its_unit",),
    ),
    Mutant(
        FENCED,
        "a process gives back what another one has",
        REAPER,
        "FROM unit WHERE id = ? AND fence = ? AND state = 'taken' FOR UPDATE",
        "FROM unit WHERE id = ? AND ? > 0 AND state = 'taken' FOR UPDATE",
        (_UNITS + "only_who_has_a_unit_gives_it_back",),
    ),
    Mutant(
        NO_WRITE,
        "records of an attempt are written by a delivery that counts no more",
        DATABASE,
        "WHERE run.run_id = ? AND unit.id = ? AND unit.fence = ?",
        "WHERE run.run_id = ? AND unit.id = ? AND unit.fence >= ?",
        (_JOURNAL + "a_fence_is_not_raised_while_a_delivery_writes_and_stops_it_afterwards",),
    ),
    Mutant(
        NO_WRITE,
        "records of an attempt are written after its unit was given up",
        DATABASE,
        "                \" AND unit.state = 'taken' FOR",
        '                " FOR',
        (_JOURNAL + "a_fence_is_not_raised_while_a_delivery_writes_and_stops_it_afterwards",),
    ),
    Mutant(
        NO_WRITE,
        "the fence is raised between the comparison and the write",
        DATABASE,
        "FOR KEY SHARE OF run FOR SHARE OF unit",
        "FOR KEY SHARE OF run",
        (_JOURNAL + "a_fence_is_not_raised_while_a_delivery_writes_and_stops_it_afterwards",),
    ),
    Mutant(
        NO_WRITE,
        "a run is taken over between the comparison and the write",
        DATABASE,
        'sql = "SELECT epoch FROM run WHERE run_id = ? FOR KEY SHARE"',
        'sql = "SELECT epoch FROM run WHERE run_id = ?"',
        (_JOURNAL + "a_take_over_waits_for_a_transaction_that_has_compared_its_epoch",),
    ),
    Mutant(
        NO_WRITE,
        "runs inside an attempt go on recording when its delivery counts no more",
        JOURNAL,
        "return Writing(run_id, epoch, parent, unit=self._unit)",
        "return Writing(run_id, epoch, parent)",
        (_JOURNAL + "runs_inside_an_attempt_end_with_its_delivery",),
    ),
    Mutant(
        NO_WRITE,
        "a run begins inside an attempt whose delivery counts no more",
        JOURNAL,
        "if self._unit is not None and connection.execute(sql, self._unit).fetchone() is None:",
        "if self._unit is not None and connection.execute(sql, self._unit).fetchone() is False:",
        (_JOURNAL + "runs_inside_an_attempt_end_with_its_delivery",),
    ),
    Mutant(
        NO_WRITE,
        "a run begins inside an attempt of a session that was taken over",
        JOURNAL,
        '"SELECT 1 FROM unit JOIN run USING (run_id, epoch) WHERE unit.id = ? AND unit.fence = ?"',
        '"SELECT 1 FROM unit JOIN run USING (run_id) WHERE unit.id = ? AND unit.fence = ?"',
        (_JOURNAL + "no_run_begins_inside_an_attempt_of_a_session_that_was_taken_over",),
    ),
    Mutant(
        NO_WRITE,
        "a fence is raised between the comparison and the beginning of a run inside",
        JOURNAL,
        "FOR SHARE OF unit FOR KEY SHARE OF run",
        "FOR KEY SHARE OF unit FOR KEY SHARE OF run",
        (_JOURNAL + "a_fence_is_not_raised_while_a_run_begins_inside_an_attempt",),
    ),
    Mutant(
        NO_WRITE,
        "a call is sent before its intent is on disk",
        "durable/sql_run_journal.py",
        "            await self.written()\n        except BaseException:\n            # Also if the session",
        "            pass\n        except BaseException:\n            # Also if the session",
        (_LOST + "a_worker_that_was_fenced_off_records_nothing_and_starts_no_call",),
    ),
    Mutant(
        NO_WRITE,
        "a process that was declared dead goes on recording",
        JOURNAL,
        'self._process.on_dead(lambda: self.database.lose("this process was declared dead"))',
        "self._process.on_dead(lambda: None)",
        (_UNITS + "a_process_that_was_declared_dead_records_nothing_more",),
    ),
    Mutant(
        NO_WRITE,
        "a process that was declared dead begins runs",
        PROCESSES,
        "    if connection.execute(alive, (process,)).fetchone() is None:",
        "    if connection.execute(alive, (process,)).fetchone() is False:",
        (_UNITS + "a_process_that_was_declared_dead_and_does_not_know_it_begins_no_run",),
    ),
    Mutant(
        NO_WRITE,
        "a dead process is alive again by its next beat",
        PROCESSES,
        "state = CASE WHEN state = 'dead' THEN state ELSE ? END",
        "state = ?",
        (_UNITS + "a_dead_process_is_not_alive_again_by_its_beat",),
    ),
    Mutant(
        ENDS_ITSELF,
        "a delivery that nobody has begun keeps a worker from its end",
        WORKER,
        '  # the receiver waits for these\n                _settle(done, RuntimeError("the worker ends"))\n',
        "\n                pass\n",
        (_LOST + "a_delivery_that_nobody_has_begun_holds_up_no_worker_that_ends",),
    ),
    Mutant(
        ENDS_ITSELF,
        "a worker without its database goes on working",
        WORKER,
        "process.on_unreachable(partial(_post_quietly, post, unreachable))",
        "process.on_unreachable(lambda: None)",
        (_LOST + "a_worker_that_cannot_reach_its_database_ends_itself",),
    ),
    Mutant(
        ENDS_ITSELF,
        "a process does not notice that it cannot reach the database",
        PROCESSES,
        "            silent = self.silence > _UNREACHABLE * self.beat\n",
        "            silent = False\n",
        (_UNITS + "a_process_notices_that_it_cannot_reach_the_database",),
    ),
    # -- who lives ----------------------------------------------------------------------------
    Mutant(
        LATENESS,
        "a process that beats is late all the same",
        PROCESSES,
        "process: before if (before := seen[process]) is not None and before[0] == beats else (beats, now)",
        "process: before if (before := seen[process]) is not None else (beats, now)",
        (
            _UNITS + "a_process_is_late_by_its_counter_after_three_beats",
            _UNITS + "clocks_of_machines_are_not_compared",
        ),
    ),
    Mutant(
        LATENESS,
        "nobody is late while the connection stands, however long the counter does",
        PROCESSES,
        "if since >= LATE * beat or (since",
        "if (since",
        (_UNITS + "a_process_is_late_by_its_counter_after_three_beats",),
    ),
    Mutant(
        LATENESS,
        "a process without its connection is waited for as long as any other",
        PROCESSES,
        " or (since >= 1.5 * beat and not has_connection(connection, lock))",
        "",
        (_UNITS + "one_whose_connection_is_gone_is_late_sooner",),
    ),
    Mutant(
        LATENESS,
        "a process that beats less often than its observer is taken for dead between two beats",
        PROCESSES,
        "max(own_beat, self._beat)",
        "self._beat",
        (_UNITS + "a_process_with_a_longer_beat_than_its_observers_is_late_by_its_own",),
    ),
    Mutant(
        AWAY,
        "time in which the observer did not look counts",
        PROCESSES,
        "if self._looked is not None and now - self._looked > 2 * self._beat:",
        "if self._looked is None:",
        (_UNITS + "time_in_which_nobody_could_look_makes_nobody_late",),
    ),
    Mutant(
        COORDINATED,
        "a run is taken from an owner that lives",
        PROCESSES,
        "        if row[0] != first:\n            return False\n",
        "",
        (_UNITS + "who_takes_a_run_over_waits_as_long_as_its_owner_s_beat",),
    ),
    Mutant(
        COORDINATED,
        "a run is taken from an owner whose connection lives",
        PROCESSES,
        "            if has_connection(connection, row[1]):\n                return False\n",
        "",
        (_UNITS + "who_takes_a_run_over_waits_for_a_beat_of_its_owner",),
    ),
    # -- the monitor ---------------------------------------------------------------------------
    Mutant(
        ORPHANS,
        "every process reaps at once",
        REAPER,
        "            if not locked[0]:\n                observer.forget()\n                return False\n",
        "",
        (_UNITS + "only_who_holds_the_lock_looks_after_others",),
    ),
    Mutant(
        ORPHANS,
        "who gets the lock counts time in which it did not watch",
        REAPER,
        "                observer.forget()\n                return False\n",
        "                return False\n",
        (_UNITS + "who_watches_again_begins_with_what_it_sees",),
    ),
    Mutant(
        ORPHANS,
        "what dead processes had stays with them",
        REAPER,
        "        if late or orphans:\n            self._take_from_the_dead(connection)\n",
        "",
        (_UNITS + "what_a_dead_process_had_is_taken_from_it",),
    ),
    Mutant(
        ORPHANS,
        "units are taken from who lives",
        REAPER,
        "WHERE process.id = unit.process AND process.state <> 'dead')\"\n)\n_ANSWERED",
        'WHERE process.id = unit.process AND false)"\n)\n_ANSWERED',
        (_UNITS + "what_a_living_process_has_stays_with_it",),
    ),
    Mutant(
        ORPHANS,
        "an attempt is lost, and its coordinator is not told",
        REAPER,
        "            if unit.sender is not None:\n                lost = ",
        "            if unit.sender is None:\n                lost = ",
        (_UNITS + "what_a_dead_process_had_is_taken_from_it", _UNITS + "only_who_has_a_unit_gives_it_back"),
    ),
    Mutant(
        ORPHANS,
        "an orphaned unit keeps its fence",
        REAPER,
        "        following = unit.next()\n",
        "        following = unit\n",
        (_UNITS + "what_a_dead_process_had_is_taken_from_it",),
    ),
    Mutant(
        ORPHANS,
        "a process keeps what it has by the database and does not work on",
        REAPER,
        "            self._give_back_idle(connection)\n",
        "",
        (_UNITS + "a_process_gives_back_what_it_has_and_does_not_work_on",),
    ),
    Mutant(
        AUDITED,
        "a unit whose delivery was lost is sent by nobody",
        REAPER,
        "            lost = self._audit(connection)\n",
        "            lost: list[Unit] = []\n",
        (_UNITS + "what_was_sent_and_has_no_delivery_under_way_is_sent_again",),
    ),
    Mutant(
        AUDITED,
        "a unit is sent again that was seen without a delivery once",
        REAPER,
        "            if audits > 1:\n",
        "            if audits > 0:\n",
        (_UNITS + "what_was_sent_and_has_no_delivery_under_way_is_sent_again",),
    ),
    Mutant(
        AUDITED,
        "a unit whose delivery is under way is sent again",
        REAPER,
        "audits = 0 if key in there else self._missing.get(key, 0) + 1",
        "audits = self._missing.get(key, 0) + 1",
        (_UNITS + "what_was_sent_and_has_no_delivery_under_way_is_sent_again",),
    ),
    Mutant(
        GIVEN_UP,
        "a run that ends every worker ends all of them",
        REAPER,
        "elif deaths is not None and deaths.exhaust(self._max_deliveries):",
        "elif deaths is not None and deaths.number < 0:",
        (_UNITS + "a_run_that_ends_every_process_is_given_up_with_a_sentence",),
    ),
    Mutant(
        GIVEN_UP,
        "a run is given up because workers were stopped in order",
        REAPER,
        "note_death(connection, had, [had]) if failed else None",
        "note_death(connection, had, [had])",
        (_UNITS + "a_run_that_was_only_given_back_counts_no_death",),
    ),
    Mutant(
        GIVEN_UP,
        "an attempt that ends every worker is sent for ever",
        REMOTE,
        "if lost.deaths is not None and lost.deaths.exhaust(self._max_deliveries):",
        "if lost.deaths == 0:",
        (_LOST + "an_attempt_that_loses_every_worker_fails_with_that_sentence",),
    ),
    Mutant(
        IN_DOUBT,
        "what a lost delivery spent is booked by nobody",
        REMOTE,
        "                    await self._charge_lost()\n",
        "",
        (_LOST + "what_a_lost_worker_paid_is_not_paid_again_and_its_open_call_is_charged_and_listed",),
    ),
    Mutant(
        IN_DOUBT,
        "a call whose worker is gone counts as in flight",
        DATABASE,
        "        \"(call.epoch != run.epoch OR call.unit != '' AND NOT EXISTS (SELECT FROM unit\"\n"
        "        \" WHERE unit.id = call.unit AND unit.fence = call.fence AND unit.state = 'taken'))\"",
        '        "call.epoch != run.epoch"',
        (_JOURNAL + "deliveries_of_an_attempt_go_on_from_what_the_last_one_recorded",),
    ),
    Mutant(
        IN_DOUBT,
        "what earlier deliveries paid for is paid again",
        JOURNAL,
        "journal = SqlRunJournal(self.database, session, steps, keeps_events=False)",
        "journal = SqlRunJournal(self.database, session, {}, keeps_events=False)",
        (_LOST + "what_a_lost_worker_paid_is_not_paid_again_and_its_open_call_is_charged_and_listed",),
    ),
    Mutant(
        IN_DOUBT,
        "the result does not name what a lost worker had under way",
        REMOTE,
        "            self._context.services.lost_calls[unit.step] = in_doubt\n",
        "            del in_doubt\n",
        (_LOST + "what_a_lost_worker_paid_is_not_paid_again_and_its_open_call_is_charged_and_listed",),
    ),
    # -- slices -------------------------------------------------------------------------------
    Mutant(
        SLICED,
        "who asks for more keeps what is left of its slice",
        SLICES,
        "        before = self._give_up_rest()\n",
        "        before = self._allowance\n",
        (_SLICES + "a_slice_lends_nothing_out_while_one_of_its_calls_waits_for_more",),
    ),
    Mutant(
        SLICED,
        "what was asked for beyond the guarantee is kept when the call has ended",
        SLICES,
        "            self._give_back(self.governor.usage, self._holding(), self._asks)\n\n",
        "            pass\n\n",
        (_SLICES + "what_goes_beyond_the_guarantee_is_asked_for_and_given_back_when_the_call_ends",),
    ),
    Mutant(
        SLICED,
        "what calls in flight leave is kept while another one asks",
        SLICES,
        "            self._give_back(self.governor.usage, self._holding(), self._asks - 1)\n",
        "            pass\n",
        (_SLICES + "a_fan_out_in_every_slice_spends_what_there_is_and_ends",),
    ),
    Mutant(
        NEVER_MORE,
        "a report that was written before a grant was read gives that grant back",
        SLICES,
        "self._keep(holding if asks is None or asks >= number else _sum(holding, granted))",
        "self._keep(holding)",
        (_SLICES + "what_a_call_leaves_while_an_answer_is_under_way_takes_nothing_from_that",),
    ),
    Mutant(
        NEVER_MORE,
        "an attempt is sent whose first iteration may not begin",
        SLICES,
        "                halts.check_begin(node)\n",
        "                pass\n",
        (_SLICES + "nothing_is_lent_where_no_iteration_may_begin",),
    ),
    Mutant(
        SLICED,
        "a slice has no iteration to begin with",
        SLICES,
        "            if not has_loop and not self._out[LOOPS] and node.claim(LOOPS, 1):\n"
        "                self._out[LOOPS] += 1\n",
        "",
        (_SLICES + "a_slice_begins_with_an_iteration",),
    ),
    Mutant(
        SLICED,
        "what is inside a slice goes on when its granter is halted",
        SLICES,
        "                halts.repeat(self._node, error)\n",
        "                pass\n",
        (_SLICES + "a_slice_is_halted_where_its_lender_is",),
    ),
    Mutant(
        NEVER_MORE,
        "what a lost borrower was charged is not booked",
        SLICES,
        "        self.end(_with_loops(charged, loops))\n        if loops",
        "        self.end(self._spent)\n        if loops",
        (_SLICES + "what_a_lost_borrower_is_charged_is_booked",),
    ),
    Mutant(
        NEVER_MORE,
        "a slice is lent more than the path has",
        SLICES,
        "        elif node.book(ask.units):\n            waiter.granted = ask.units\n",
        "        elif node.book(ask.units) is not None:\n            waiter.granted = ask.units\n",
        (_SLICES + "tool_calls_are_lent_one_by_one_and_never_more_than_there_are",),
    ),
    # -- what comes from outside --------------------------------------------------------------
    Mutant(
        REACHED,
        "a cancel stays with the coordinator",
        REMOTE,
        '            self._send_message(kind, str(context.interrupted or "the run has ended"))\n',
        "",
        (_RUNS + "a_cancel_reaches_the_worker_and_partial_work_comes_back",),
    ),
    Mutant(
        REACHED,
        "a directive stays with the coordinator",
        REMOTE,
        '            self._send_message("directive", directive)\n',
        "            pass\n",
        (_RUNS + "a_directive_reaches_the_member_at_its_next_turn",),
    ),
    Mutant(
        REACHED,
        "what a constraint that is watched by the coordinator decides reaches no worker",
        HOST,
        "            constraints.exit = violation\n",
        "            pass\n",
        (_RUNS + "what_a_watched_constraint_decides_reaches_the_worker",),
    ),
    Mutant(
        SAME,
        "the prompt templates of the coordinator stay with it",
        REMOTE,
        "            services.prompts.overrides,\n",
        "            {},\n",
        (_SIDES + "prompt_templates_of_the_coordinator_are_the_workers",),
    ),
    Mutant(
        SAME,
        "no result warns of a call at a worker that used more than was held",
        HOST,
        "        services.overshoots = DistantOvershoots(link, records.journal)\n",
        "",
        (_SIDES + "a_result_warns_of_calls_at_workers_that_used_more_than_was_held",),
    ),
    Mutant(
        SAME,
        "no result warns of an attempt that asked its second worker something else",
        HOST,
        "        services.divergences = DistantDivergences(link, records.journal)\n",
        "",
        (_SIDES + "a_result_warns_of_an_attempt_that_asked_its_second_worker_something_else",),
    ),
    Mutant(
        SAME,
        "who ignores its cancellation is named in the worker's log alone",
        HOST,
        "tuple(supervisor.stubborn))\n",
        "())\n",
        (_SIDES + "a_result_warns_of_who_ignores_its_cancellation_at_a_worker",),
    ),
    Mutant(
        SAME,
        "a worker that does not end is fenced off without a word",
        REMOTE,
        "if patience.cancelled_caught and supervisor is not None and await self._was_taken(unit):\n",
        "if supervisor is None:\n",
        (_SIDES + "a_result_warns_of_a_worker_that_is_told_to_end_and_does_not",),
    ),
    Mutant(
        SAME,
        "who never began is said to ignore its cancellation",
        REMOTE,
        "if patience.cancelled_caught and supervisor is not None and await self._was_taken(unit):\n",
        "if patience.cancelled_caught and supervisor is not None:\n",
        (_SIDES + "nobody_is_warned_of_an_attempt_that_no_worker_began",),
    ),
    Mutant(
        REACHED,
        "the question of a worker's tool is answered by nobody",
        REMOTE,
        "return await questions.ask(question.key, question.request)",
        "return None",
        (_RUNS + "a_person_is_asked_by_the_coordinator_about_a_workers_tool",),
    ),
    Mutant(
        REACHED,
        "letters to a unit that waits are lost when it is taken",
        UNITS,
        '    connection.execute("UPDATE message SET addressee = ? WHERE addressee = ?", (process, f"unit:{unit}"))\n',
        "",
        (_UNITS + "a_letter_to_a_unit_that_nobody_has_waits_for_who_takes_it",),
    ),
    Mutant(
        COORDINATED,
        "a process that coordinates and makes an attempt reads only the letters of one",
        MAILBOX,
        'readers = self._readers.get((unit, "worker" if kind in _TO_WORKERS else "coordinator"))',
        'readers = self._readers.get((unit, "worker"))',
        (_UNITS + "who_coordinates_an_attempt_and_makes_it_reads_the_letters_of_both",),
    ),
    # -- versions and safety ------------------------------------------------------------------
    Mutant(
        VERSIONS,
        "workers of any version get the units of a run",
        CLUSTER,
        "    written = json.dumps([team.name, sorted(without_given(team, digests).items())])\n",
        "    written = json.dumps([team.name])\n",
        (_UNITS + "workers_of_another_version_serve_other_queues",),
    ),
    Mutant(
        NO_IMPORT,
        "a record in the database decides what is imported",
        CLASSES,
        "    if module not in sys.modules:\n",
        "    if not module:\n",
        (
            _SAFETY + "a_text_names_only_classes_that_are_imported_already",
            _SAFETY + "a_database_decides_nothing_about_what_is_imported",
        ),
    ),
    Mutant(
        NO_IMPORT,
        "what the journal reads from PostgreSQL is read like a file of one's own",
        DATABASE,
        "        return decode_loaded(text)\n",
        "        return Database.decode(text)\n",
        (_SAFETY + "a_database_decides_nothing_about_what_is_imported",),
    ),
    Mutant(
        SECRET,
        "a mistake in the URL shows it",
        DATABASE,
        '        raise ValueError(f"this is not a database URL: write {_LIKE!r}") from None\n',
        '        raise ValueError(f"this is not a database URL: {url}") from None\n',
        (_SAFETY + "a_url_with_a_mistake_is_refused_without_its_password",),
    ),
    Mutant(
        SECRET,
        "the URL stands in the errors of the journal",
        DATABASE,
        "        super().__init__(place)\n",
        "        super().__init__(url)\n",
        (_JOURNAL + "no_error_and_no_log_shows_the_password",),
    ),
]
