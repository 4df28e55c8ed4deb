"""A journal in an LMDB store."""

from lmdb_journal.journal import LmdbJournal

__all__ = ["LmdbJournal"]
