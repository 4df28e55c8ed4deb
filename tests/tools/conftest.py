"""The reference MCP server, and the end of a test that talked to one."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from tests.tools.mcp_rig import started_http, stopped


@pytest.fixture
def _tidy() -> Generator[None]:
    """Let the generators of streamed replies be collected here, not in somebody else's test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def http_url() -> Generator[str]:
    process, port = started_http()
    yield f"http://127.0.0.1:{port}/mcp"
    stopped(process)
