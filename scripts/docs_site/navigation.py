"""The navigation of the site: the lists of links in docs/all-pages.md."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from scripts.docs_site.links import ROOT
from scripts.docs_site.pages import Page

_HEADING = re.compile(r"^(##|###) (.+)$")
_ENTRY = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<path>[^)#]+\.md)\)(?:: (?P<said>.+))?$")
LIST = "all-pages.md"
GENERATED = (
    ("API", "api/index.md", "every public name: signature, types, units, errors"),
    ("Commands", "reference/commands.md", "every command of `kairo` with its options"),
    ("Files of data", "reference/configuration.md", "the keys of teams and rubrics in YAML, TOML or JSON"),
    ("Errors by message", "reference/errors.md", "what each error says, and when it is raised"),
    ("Changes", "project/changelog.md", "what is in each release"),
    ("Contributing", "project/contributing.md", "how to change the library"),
    ("Security", "project/security.md", "how to report a weakness"),
)
"""Pages that only the site has, first in its section `Reference`."""


@dataclass(frozen=True)
class Section:
    """A heading of docs/all-pages.md with the entries below it: title, path, description."""

    heading: str
    entries: tuple[tuple[str, str, str], ...]


def sections(*, generated: bool = True) -> list[Section]:
    """Return the sections that have entries, in order; `generated` adds the pages that only the site has."""
    found: list[tuple[str, list[tuple[str, str, str]]]] = []
    kind = ""
    for line in (ROOT / "docs" / LIST).read_text(encoding="utf-8").splitlines():
        heading, entry = _HEADING.match(line), _ENTRY.match(line)
        if heading:
            name = heading[2]
            kind = name.partition(" ")[0] if heading[1] == "##" else kind
            title = name if heading[1] == "##" else f"{kind}: {name[0].lower()}{name[1:]}"
            found.append((title, list(GENERATED) if generated and name == "Reference" else []))
        elif entry:
            found[-1][1].append((entry["title"], entry["path"], entry["said"] or ""))
    return [Section(heading, tuple(entries)) for heading, entries in found if entries]


def front(pages: Mapping[str, Page]) -> Page:
    """Return the first page with the navigation, which begins with the list of all pages."""
    first = Section("", (("All pages", LIST, ""),))
    return Page("index.md", f"{pages['index.md'].text.rstrip()}\n\n" + "\n\n".join(map(_toctree, (first, *sections()))))


def all_pages(pages: Mapping[str, Page]) -> Page:
    """Return the list of all pages, with those that only the site has."""
    extra = "".join(f"- [{title}]({path}): {said}\n" for title, path, said in GENERATED)
    return Page(LIST, pages[LIST].text.replace("## Reference\n\n", f"## Reference\n\n{extra}"))


def with_next(page: Page, files: set[str]) -> Page:
    """Return a page with cards at its end: the next pages of its section. A page that names its next has none."""
    places = [(one.entries, at) for one in sections() for at, entry in enumerate(one.entries) if entry[1] == page.path]
    found = [one for entries, at in places for one in entries[at + 1 : at + 3] if one[1] in files]
    if not found or "\nNext: [" in page.text:
        return page
    here = posixpath.dirname(page.path) or "."
    cards = [f"- **[{title}]({posixpath.relpath(to, here)})**{said and f': {said}'}" for title, to, said in found]
    lines = ["<!-- cards -->", "", *cards, "", "<!-- /cards -->", ""]
    return replace(page, text=f"{page.text.rstrip()}\n\n" + "\n".join(lines))


def _toctree(section: Section) -> str:
    lines = [f"{title} <{path.removesuffix('.md')}>" for title, path, _ in section.entries]
    caption = [f":caption: {section.heading}"] if section.heading else []
    return "\n".join(["```{toctree}", ":hidden:", *caption, "", *lines, "```"])


def ordered(pages: Mapping[str, Page]) -> Iterator[Page]:
    """Yield the pages of the navigation in its order, each followed by those below it."""
    yield pages[LIST]
    for section in sections():
        for _, path, _ in section.entries:
            yield from _with_those_below(pages, path)


def _with_those_below(pages: Mapping[str, Page], path: str) -> Iterator[Page]:
    page = pages[path]
    yield page
    folder = path.rpartition("/")[0]
    for name in page.nav:
        yield from _with_those_below(pages, f"{folder}/{name}.md")
