"""What tests in a browser share: Chromium, driven by playwright, and axe-core, which looks for barriers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NEEDS = (
    "tests in a browser need playwright, which `make browser` installs, and Chromium: apt-get install chromium, "
    "or .venv/bin/playwright install chromium"
)
PATIENCE = 180_000
"""Milliseconds a page may take over anything that a test waits for: machines may be slow."""
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true })"


def chromium_options(playwright: Any) -> dict[str, Any]:
    """Return how playwright launches Chromium: that of the machine, else the one that playwright installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or playwright.chromium.executable_path
    # Chromium's sandbox refuses to work for root.
    return {"executable_path": program, "args": ["--no-sandbox"] if os.geteuid() == 0 else []}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Chromium, driven by playwright."""
    api = pytest.importorskip("playwright.sync_api", reason=NEEDS)
    with api.sync_playwright() as playwright:
        options = chromium_options(playwright)
        if not Path(options["executable_path"]).is_file():
            pytest.skip(NEEDS)
        browser = playwright.chromium.launch(**options, timeout=PATIENCE)
        yield browser
        browser.close()


def new_context(chromium: Any, **how: Any) -> Any:
    """Open windows of one's own, which wait with patience."""
    context = chromium.new_context(**how)
    context.set_default_timeout(PATIENCE)
    return context


def wait_for_value(field: Any, value: str) -> None:
    """Wait until a field has a value; `wait_for_function` may not evaluate text on pages with a strict policy."""
    pytest.importorskip("playwright.sync_api", reason=NEEDS).expect(field).to_have_value(value, timeout=PATIENCE)


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    package = pytest.importorskip("axe_playwright_python", reason=NEEDS)
    return (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def barriers(page: Any, axe: str) -> list[tuple[str, str]]:
    """Return what axe-core calls serious or critical: the rule, and the first element that breaks it."""
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
