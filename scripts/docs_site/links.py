"""Links of the repository's pages, as they must be on the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
"""Pages at the top of the repository, and where they are on the site."""

_PART = re.compile(r"(^```.*?^```$)|(`[^`\n]+`(?!\]))|\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:benchmarks|examples|tests)/[\w./-]+\.(?:py|yaml|toml|json|md)")
_NAME = re.compile(r"kt\.([A-Za-z_]\w*)(?:\([^`]*\))?")


class Links:
    """Rewrites the links of pages; `sources` collects the files of the repository that they lead to."""

    def __init__(self, name_page: Callable[[str], str | None]) -> None:
        self.sources: set[str] = set()
        self._name_page = name_page

    def rewritten(self, text: str, file: str, page: str) -> str:
        """Return the text of a file of the repository, from its root, as a page of the site.

        Code that is the path of a file, or the first mention of a name of `kt`, becomes a link.
        """
        named: set[str] = set()

        def replace(match: re.Match[str]) -> str:
            block, code, target = match.groups()
            if block is not None:
                return block
            if target is not None:
                return f"]({self._target(target, file, page)})"
            return self._code(code, page, named)

        lines = re.split(r"(^#+ .*$)", text, flags=re.MULTILINE)  # no links in headings
        if any(line.startswith("```") for line in lines):
            return _PART.sub(replace, text)
        return "".join(line if line.startswith("#") else _PART.sub(replace, line) for line in lines)

    def _code(self, code: str, page: str, named: set[str]) -> str:
        inside = code.strip("`")
        if _FILE.fullmatch(inside) and (ROOT / inside).is_file():
            return f"[{code}]({_relative(self._source(inside), page)})"
        match = _NAME.fullmatch(inside)
        home = match and self._name_page(match[1])
        if match is None or home is None or match[1] in named:
            return code
        named.add(match[1])
        return f"[{code}]({_relative(home, page)})"

    def _target(self, target: str, file: str, page: str) -> str:
        path, mark, anchor = target.partition("#")
        if "://" in target or not path:
            return target
        there = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
        return _relative(self._site_path(there), page) + mark + anchor

    def _site_path(self, there: str) -> str:
        if there in PROJECT:
            return PROJECT[there]
        if there.startswith("docs/"):
            return there.removeprefix("docs/")
        return self._source(there)

    def _source(self, there: str) -> str:
        self.sources.add(there)
        return f"source/{there}.md"


def _relative(target: str, page: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
