"""The reference MCP server, and the end of a test that talked to one."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest

from tests.tools.mcp_rig import started_http, stopped


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave the second event loop of tests that start a server to `make test-all`: a server takes half a second."""
    parameters: Any = getattr(getattr(item, "callspec", None), "params", {})
    if item.path.name.startswith("test_mcp") and parameters.get("anyio_backend") == "trio":
        item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(scope="module")
def _tidy() -> Generator[None]:
    """Let the generators of streamed replies be collected in this module, not in a test of another.

    Once for all its tests: it takes as long as half of them.
    """
    yield
    gc.collect()


@pytest.fixture(scope="session")
def http_url() -> Generator[str]:
    process, port = started_http()
    yield f"http://127.0.0.1:{port}/mcp"
    stopped(process)
