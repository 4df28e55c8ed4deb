"""The kit of `Journal`: processes record runs in one store, die, and resume each other's runs."""

from __future__ import annotations

from kairo_team.tck.journal_at_once import AtOnceTests
from kairo_team.tck.journal_laws import LawTests
from kairo_team.tck.journal_owners import OwnerTests
from kairo_team.tck.journal_people import PeopleTests
from kairo_team.tck.journal_records import RecordTests
from kairo_team.tck.journal_watching import WatchTests


class JournalTCK(AtOnceTests, LawTests, OwnerTests, PeopleTests, RecordTests, WatchTests):
    """The contract kit of journals: override `make_journal`, `make_another`, `crash`, and `fail` if `can_fail`."""
