"""Every Python block of docs/ runs as it stands, each of the README as a file, and prints what it says it prints."""

from __future__ import annotations

import ast
import inspect
import io
import re
import runpy
from collections.abc import Awaitable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import anyio
import pytest

from kairo_team.testing import FunctionModel

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs/tutorial"  # its files are programs: tests/test_tutorial.py
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent != TUTORIAL]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block, with the lines above it left blank so that errors name lines of the page."""

    page: Path
    line: int
    code: str

    @property
    def printed(self) -> list[str]:
        """The lines after `# > `."""
        return [line[4:] for line in self.code.splitlines() if line.startswith("# > ")]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [(text.count("\n", 0, match.start(1)), match.group(1)) for match in BLOCK.finditer(text)]
    return [Block(page, line, "\n" * line + code) for line, code in found]


def run(block: Block, names: dict[str, Any]) -> list[str]:
    """Run a block, in an event loop when it awaits at its top level, and return the lines it prints."""
    code = compile(block.code, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    with redirect_stdout(io.StringIO()) as out:
        result = FunctionType(code, names)()
        if inspect.iscoroutine(result):
            anyio.run(_hand_over, result)
    return out.getvalue().splitlines()


async def _hand_over(awaitable: Awaitable[object]) -> None:
    await awaitable


def pages_with_blocks() -> list[Any]:
    return [pytest.param(page, id=page.name) for page in PAGES if page.is_file() and blocks(page)]


@pytest.mark.parametrize("page", pages_with_blocks())
def test_the_examples_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks share their names, as a reader would; every real model is replaced by one that has a sentence for all."""
    monkeypatch.setattr("kairo_team.models.resolver._build", lambda name: FunctionModel(lambda _: "Fine.", name=name))
    monkeypatch.chdir(tmp_path)  # some write a file
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page):
        printed = run(block, names)
        if block.printed:
            assert printed == block.printed, f"{page.name}:{block.line}"


def readme_blocks() -> list[Any]:
    return [pytest.param(block, id=f"line-{block.line}") for block in (blocks(README) if README.is_file() else [])]


@pytest.mark.parametrize("block", readme_blocks())
def test_a_block_of_the_readme_runs_as_a_file_by_itself(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kairo_team.models.resolver._build", lambda name: FunctionModel(lambda _: "Fine.", name=name))
    file = tmp_path / "program.py"
    file.write_text(block.code, encoding="utf-8")
    with redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(file), run_name="__main__")
    assert block.printed != []
    assert out.getvalue().splitlines() == block.printed, f"README.md:{block.line}"


def test_every_page_that_the_readme_names_is_there() -> None:
    text = README.read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    named = {*linked, *re.findall(r"`([A-Za-z_/]+(?:\.md|\.py|/))`", text)}
    assert {"CHANGELOG.md", "docs/glossary.md", "docs/decisions/", "docs/tutorial/first-team.md"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
