"""Phoenix shows a run in a browser: its tree, texts, tokens, cost and session. `make phoenix` runs this."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.browsing import PATIENCE, new_context
from tests.telemetry.receiving import FOLDER, NAMES, NEEDS, WORK, play, program

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not FOLDER, reason=NEEDS)]
BIN = Path.cwd() / FOLDER / "bin"
_START = 600.0
"""Most seconds that Phoenix may take to begin, on a machine that is busy with other tests."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a Phoenix of our own, which keeps everything in a temporary folder and asks nobody."""
    folder, port = tmp_path_factory.mktemp("phoenix"), free_port()
    variables = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    log = folder / "log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [str(BIN / "phoenix"), "serve"], env={**os.environ, **variables}, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(port, server, log)
            yield address
        finally:
            server.terminate()
            server.wait()


def wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(int(_START * 2)):
        assert server.poll() is None, log.read_text(encoding="utf-8")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise AssertionError(log.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(chromium: Any, phoenix: str) -> Generator[Any]:
    """The page of the trace that the program of docs/traces.md made."""
    code = program("phoenix.otel").replace("http://localhost:6006", phoenix)
    play(code + WORK + "provider.shutdown()\n", BIN / "python")
    context = new_context(chromium, viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.goto(f"{phoenix}/projects", wait_until="domcontentloaded")
    page.get_by_text("default").first.click()
    page.get_by_text("invoke_workflow coast-guard").first.wait_for()
    yield page
    context.close()


def shows(page: Any, *texts: str) -> None:
    """Wait until the page shows each of these texts."""
    for text in texts:
        page.get_by_text(text).filter(visible=True).first.wait_for(timeout=PATIENCE)


def test_the_list_of_runs_has_what_was_asked_what_came_and_the_tokens(page: Any) -> None:
    row = page.get_by_role("row").filter(has_text="invoke_workflow coast-guard")
    row.get_by_text("The tide is high.").first.wait_for()
    said = row.inner_text()
    assert "Watch the sea." in said
    assert "4,300" in said
    assert "$" in said, "it prices the model by its name"


def test_a_trace_is_the_tree_of_the_run_with_messages_tools_tokens_and_cost(page: Any) -> None:
    page.get_by_text("invoke_workflow coast-guard").first.click()
    shows(page, *set(NAMES))
    page.get_by_text("chat gpt-4o-mini").last.click()
    shows(page, "high at noon", "The tide is high.", "max_tokens: 4096", "2,800", "View Session")
    tree = page.inner_text("body")
    places = [tree.index(f"\n{name}\n") for name in ("task report", "invoke_agent clerk", "execute_tool look")]
    assert places == sorted(places), "the tree is in the order of the run"
    assert "<$0.01" in tree


def test_a_run_is_a_session(page: Any) -> None:
    page.get_by_text("View Session").click()
    shows(page, "tide-run", "Watch the sea.", "The tide is high.")
