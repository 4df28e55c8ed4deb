"""Each page of docs/tutorial/ has one file, which runs as it is pasted and prints what the page shows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "docs/tutorial").is_dir():
    pytest.skip("the tutorial is no part of the wheel", allow_module_level=True)
STEPS = re.findall(
    r"\(tutorial/([\w-]+)\.md\)", (ROOT / "docs/all-pages.md").read_text(encoding="utf-8").split("## How-to")[0]
)
PAGES = list(dict.fromkeys(STEPS))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / f"docs/tutorial/{page}.md").read_text(encoding="utf-8")
    return [match[2] for match in BLOCK.finditer(text) if match[1] == language]


def names(code: str) -> set[str]:
    """What a file defines at its top level."""
    found: set[str] = set()
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_the_tutorial_has_seven_steps_each_with_one_file_and_one_output() -> None:
    assert sorted(PAGES) == sorted(path.stem for path in (ROOT / "docs/tutorial").glob("*.md"))
    assert len(PAGES) == 7
    for page in PAGES:
        assert (len(blocks(page, "python")), len(blocks(page, "text"))) == (1, 1), page


@pytest.mark.parametrize("page", PAGES)
def test_a_step_runs_as_pasted_and_prints_what_its_page_shows(page: str, tmp_path: Path) -> None:
    (code,), (shown,) = blocks(page, "python"), blocks(page, "text")
    (tmp_path / "newsroom.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "newsroom.py"]
    if "--crash" in code and page == "durable":
        crashed = subprocess.run([*command, "--crash"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (crashed.returncode, crashed.stdout) == (9, "")
    for _ in range(2 if page == "durable" else 1):  # the third start reads the result of the second
        ran = subprocess.run(command, cwd=tmp_path, input="a\n", capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (0, shown), ran.stderr
    if page == "watching":
        assert "<html" in (tmp_path / "newsroom.html").read_text(encoding="utf-8")


def test_the_file_grows_from_step_to_step() -> None:
    replaced = {"budget": {"write"}, "own-agent": {"outline"}}
    before: set[str] = set()
    for page in PAGES:
        now = names(blocks(page, "python")[0])
        assert before - replaced.get(page, set()) <= now, page
        assert page == PAGES[0] or now - before or page == "watching", page
        before = now


def test_the_question_on_the_page_is_the_one_that_is_asked(tmp_path: Path) -> None:
    (code,), (shown,) = blocks("person", "python"), blocks("person", "")
    (tmp_path / "newsroom.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "newsroom.py"]
    ran = subprocess.run(command, cwd=tmp_path, input="a\n", capture_output=True, text=True, check=True)
    # A machine that is busy enough looks like a member that blocks the event loop.
    lines = [line for line in ran.stderr.splitlines() if "blocked the event loop" not in line]
    assert "\n".join(lines).strip() == shown.strip()
