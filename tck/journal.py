"""The kit of `Journal`: processes record runs in one store, die, and resume each other's runs."""

from __future__ import annotations

from kairo_team.tck.journal_at_once import AtOnceTests
from kairo_team.tck.journal_killed import KilledTests
from kairo_team.tck.journal_laws import LawTests
from kairo_team.tck.journal_owners import OwnerTests
from kairo_team.tck.journal_people import PeopleTests
from kairo_team.tck.journal_records import RecordTests
from kairo_team.tck.journal_views import ViewTests
from kairo_team.tck.journal_watching import WatchTests


class JournalTCK(AtOnceTests, KilledTests, LawTests, OwnerTests, PeopleTests, RecordTests, ViewTests, WatchTests):
    """The contract kit of journals: override `make_journal`, `make_another` and `crash`.

    With `can_fail` override `fail`, with `can_be_killed` `place_of` and `open_at`. Tests of methods that a journal does
    not have are skipped. The kit cannot see what a power failure leaves: whether a record that was waited for has
    reached the disk itself (fsync). A killed program leaves all that the operating system had from it.
    """
