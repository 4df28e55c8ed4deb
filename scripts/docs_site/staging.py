"""What the site is built from: the pages of docs/, those written from the code, and the files they lead to."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from scripts.docs_site import api_pages, commands_page, configuration_page, errors_page, navigation, public_names
from scripts.docs_site.links import PROJECT, ROOT, Links
from scripts.docs_site.pages import Page

DOCS = ROOT / "docs"
_LEXERS = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json"}
_MOVES = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def generated() -> list[Page]:
    """Write the pages that are made from the code."""
    return [commands_page.page(), configuration_page.page(), errors_page.page(), *api_pages.pages()]


def written() -> Iterator[Page]:
    """Read the pages that people wrote, with their links as the site needs them, then the files that they lead to."""
    links = Links(public_names.link)
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).as_posix()
        yield Page(name, links.rewritten(_states(path.read_text(encoding="utf-8")), f"docs/{name}", name))
    for name, page in PROJECT.items():
        yield Page(page, links.rewritten((ROOT / name).read_text(encoding="utf-8"), name, page))
    for name in sorted(links.sources):
        yield _source_page(name)


def _states(text: str) -> str:
    """Write diagrams of states as tables, since a drawing of Mermaid needs a script of another site."""
    return _MOVES.sub(lambda match: _moves(match[1]), text).replace("```mermaid\n", "```text\n")


def _moves(lines: str) -> str:
    after: dict[str, list[str]] = {}
    for line in lines.splitlines():
        before, _, then = line.strip().partition(" --> ")
        if before != "[*]":
            after.setdefault(before, []).append("(it ends)" if then == "[*]" else f"`{then}`")
    rows = [f"| `{before}` | {', '.join(then)} |" for before, then in after.items()]
    return "\n".join(["| from | to |", "|---|---|", *rows])


def _source_page(name: str) -> Page:
    code = (ROOT / name).read_text(encoding="utf-8").rstrip()
    lexer = _LEXERS.get(Path(name).suffix, "text")
    return Page(f"source/{name}.md", f"# {name}\n\n~~~~~~{lexer}\n{code}\n~~~~~~\n", searched=False)


def stage(folder: Path) -> list[Page]:
    """Write all pages, pictures and schemas into a folder and return the pages in the order of the navigation."""
    pages = {page.path: page for page in [*written(), *generated()]}
    files = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"index.md", navigation.LIST}
    pages |= {name: navigation.with_next(pages[name], files) for name in sorted(files)}
    front = navigation.front(pages)
    pages |= {"index.md": front, navigation.LIST: navigation.all_pages(pages)}
    for page in pages.values():
        _write(folder / page.path, page.source())
    for path in DOCS.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            (folder / path.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path.relative_to(DOCS))
    for name, text in configuration_page.files():
        _write(folder / "reference" / name, text)
    return [front, *navigation.ordered(pages)]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
