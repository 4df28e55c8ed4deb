"""What tests on PostgreSQL stand on: one server for each process of pytest, and a new database for each test."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import Phase, settings

from kairo_team.testing.postgres_server import PostgresServer
from tests.cluster.server import server

# A mutant has to fail once, soon; nobody reads the smallest example of how it failed.
settings.register_profile(
    "unshrunk",
    settings.get_profile("quick"),
    max_examples=100,
    derandomize=False,  # each round has to draw anew
    phases=[Phase.generate],
    report_multiple_bugs=False,
    database=None,
)


@pytest.fixture(scope="session")
def postgres() -> PostgresServer:
    """The server of this process; skips where there is no PostgreSQL."""
    return server()


@pytest.fixture
def database(postgres: PostgresServer) -> Generator[str]:
    """The URL of a new, empty database."""
    url = postgres.new_database()
    yield url
    postgres.drop(url)
