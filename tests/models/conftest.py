"""The embedded model over HTTP: an address that answers as a provider's does."""

from __future__ import annotations

import pytest


@pytest.fixture
def loopback_server() -> tuple[str, str]:
    """The embedded model's own server on loopback: its address, and the key it asks for."""
    from kairo_team.models import local

    engine = local._engine("local:smollm2")
    return f"{engine._server.listening_address}/v1", engine._key
