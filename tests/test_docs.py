"""Every Python block of the README and of docs/ runs as it stands, and prints what it says it prints."""

from __future__ import annotations

import ast
import inspect
import io
import re
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
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
def test_the_examples_of_a_page_run_in_order(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks share their names, as a reader would; every real model is replaced by one that has a sentence for all."""
    monkeypatch.setattr("kairo_team.models.resolver._build", lambda name: FunctionModel(lambda _: "Fine.", name=name))
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page):
        printed = run(block, names)
        if block.printed:
            assert printed == block.printed, f"{page.name}:{block.line}"


def test_every_page_that_the_readme_names_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([A-Za-z_/]+(?:\.md|\.py|/))`", text))
    assert {"CHANGELOG.md", "docs/glossary.md", "docs/decisions/"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
