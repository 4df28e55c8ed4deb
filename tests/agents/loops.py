"""The event loop for tests of libraries that run on asyncio alone."""

from __future__ import annotations

import pytest

from kairo_team.testing import virtual_time
from kairo_team.testing.clocks import Backend


@pytest.fixture
def asyncio_alone(request: pytest.FixtureRequest) -> Backend:
    """Run on asyncio in virtual time; in real time where the test is marked so. Name it `anyio_backend` in a module."""
    real = any(request.node.get_closest_marker(marker) for marker in ("real_time", "local_model"))
    return ("asyncio", {}) if real else virtual_time("asyncio")
