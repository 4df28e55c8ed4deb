"""`kairo serve` as a program, and what it refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")
httpx2 = pytest.importorskip("httpx2", reason="what the tests ask with")

from kairo_team.cli.app import run_command  # noqa: E402 - skipped where the extra is not installed
from tests.serve.stage import KEYS  # noqa: E402

pytestmark = pytest.mark.real_time

TEAM = """
import os
import kairo_team as kt

team = kt.Team("school", [kt.Member("m", lambda assignment: f"{assignment.goal} {os.environ.get('KAIRO_SERVE_KEYS')}")])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "school.py"
    path.write_text(TEAM, encoding="utf-8")
    return path


@contextmanager
def command(*arguments: object, **environment: str) -> Generator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "kairo_team", "serve", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - ignored in the background
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def place(process: subprocess.Popen[str], interfaces: str = "") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert interfaces in line
    found = re.search(r"http://\S+(?=: )", line)
    assert found, (line, process.stderr)
    return found[0]


def ask(url: str, key: str) -> Any:
    body = {"model": "school", "messages": [{"role": "user", "content": "tides"}]}
    headers = {"authorization": f"Bearer {key}"}
    return httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def test_it_prints_a_key_of_its_own_and_serves_until_ctrl_c(file: Path) -> None:
    with command(file, "--budget", "tokens=1000") as process:
        url = place(
            process, ": OpenAI's interface below /v1, MCP at /mcp, A2A at /a2a and AG-UI at /ag-ui. Ctrl-C ends it."
        )
        assert process.stdout is not None
        key = process.stdout.readline().split()[-1]
        reply = ask(url, key)
        assert reply.json()["choices"][0]["message"]["content"] == "tides None"
        assert ask(url, KEYS["ada"]).status_code == 401
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_interfaces_that_are_named_are_served_alone(file: Path) -> None:
    named = ["--a2a", "--ag-ui", "--budget", "tokens=1000"]
    with command(file, *named, KAIRO_SERVE_KEYS=f"ada {KEYS['ada']}") as process:
        url = place(process, ": A2A at /a2a and AG-UI at /ag-ui. Ctrl-C ends it.")
        assert ask(url, KEYS["ada"]).status_code == 404
        card = httpx2.get(f"{url}/.well-known/agent-card.json", headers={"authorization": f"Bearer {KEYS['ada']}"})
    assert (card.json()["name"], card.json()["url"]) == ("school", f"{url}/a2a")


def test_keys_of_the_environment_are_taken_and_not_handed_on(file: Path) -> None:
    with command(file, "--openai", "--budget", "tokens=1000", KAIRO_SERVE_KEYS=f"ada {KEYS['ada']}") as process:
        url = place(process)
        assert ask(url, KEYS["ada"]).json()["choices"][0]["message"]["content"] == "tides None"
        assert httpx2.get(f"{url}/mcp", headers={"authorization": f"Bearer {KEYS['ada']}"}).status_code == 404


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "limit for each run"),
        (["--budget", "tokens=9", "--mcp", "stdio", "--openai"], "leave --openai out"),
        (["--budget", "tokens=9", "--mcp", "stdio", "--a2a", "--ag-ui"], "leave --a2a out"),
        (["--budget", "tokens=9", "--print-config", "codex"], "give --mcp stdio too"),
        (["--mcp", "stdio", "--print-config", "codex"], "limit for each run"),
        (
            ["--budget", "tokens=9", "--mcp", "stdio", "--print-config", "codex", "--database", "env:DB"],
            "give --database file:PATH",
        ),
        (["--budget", "tokens=9", "--key-budget", "coins=1"], "--key-budget limits"),
        (["--budget", "tokens=9", "--key-budget", "seconds=1"], "limits of single runs"),
        (["--budget", "tokens=9", "--host", "192.168.1.5"], "the served team binds to this machine alone"),
        (["--budget", "tokens=9", "--behind-proxy"], "--name"),
        (["--budget", "tokens=9", "--keys", "missing.txt"], "missing.txt"),
    ],
)
def test_what_is_not_safe_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    assert run_command(["serve", str(file), *options]) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_of_keys_that_is_no_text_is_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_bytes(b"ada \xff\xfe")
    assert run_command(["serve", str(file), "--budget", "tokens=9", "--keys", str(keys)]) == 2
    assert "keys.txt' is not UTF-8 text" in capsys.readouterr().err
