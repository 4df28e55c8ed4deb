"""Checks on Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.evaluators.quotes import plain

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact

MOST_HASHES: Final = 6
_ANY: Final = "*"


class Heading(NamedTuple):
    """One heading; a title has level 1."""

    level: int
    title: str

    def __str__(self) -> str:
        return f"{'#' * self.level} {self.title}"


def headings(text: str) -> Iterator[Heading]:
    """Yield the headings of a Markdown text, with `#` or underlined; skip fenced code."""
    fence, above = "", ""
    for line in text.splitlines():
        bare = line.strip() if len(line) - len(line.lstrip(" ")) <= 3 else ""  # noqa: PLR2004 - four spaces make code
        if fence:
            # At least as long, with nothing behind.
            fence = "" if bare.startswith(fence) and not bare.strip(fence[0]) else fence
            above = ""
        elif bare.startswith(("```", "~~~")):
            fence, above = bare[: len(bare) - len(bare.lstrip(bare[0]))], ""
        elif (found := _hashed(bare)) is not None:
            yield found
            above = ""
        elif above and bare and (not bare.strip("=") or not bare.strip("-")):
            yield Heading(1 if bare[0] == "=" else 2, above)
            above = ""
        else:
            # Such a line cannot become a heading by underlining.
            above = "" if bare.startswith((">", "- ", "* ", "+ ", "|")) else bare


@by_name
def markdown_outline(*outline: str, exact: bool = False) -> NamedCheck:
    """Make a check that the text has these headings in this order, such as `"# Report", "## Costs", "## *"`.

    `*` matches any title; case and white space make no difference. Other headings may come between, unless `exact`.
    """
    wanted = [_wanted(line) for line in outline]
    if not wanted:
        raise ValueError("markdown_outline needs at least one heading, such as '# Report'")

    def check(artifact: Artifact) -> CheckAnswer:
        found = [_Found(heading, plain(heading.title)) for heading in headings(artifact.text)]
        return _differences(found, wanted) if exact else _missing(found, wanted)

    shown = ", ".join([*map(repr, outline), *(["exact=True"] if exact else [])])
    return NamedCheck(f"markdown_outline({shown})", check, in_place=False)


class _Found(NamedTuple):
    """A heading, and its title in the form that is compared."""

    heading: Heading
    title: str

    def __str__(self) -> str:
        return str(self.heading)

    def matches(self, wanted: Heading) -> bool:
        return self.heading.level == wanted.level and wanted.title in (_ANY, self.title)


def _missing(found: Sequence[_Found], wanted: Sequence[Heading]) -> CheckAnswer:
    place = 0
    for heading in wanted:
        at = next((n for n in range(place, len(found)) if found[n].matches(heading)), None)
        if at is None:
            if any(one.matches(heading) for one in found):
                return f"the heading {str(heading)!r} is not where it belongs: {_order(wanted)}"
            return f"the heading {str(heading)!r} is missing"
        place = at + 1
    return True


def _differences(found: Sequence[_Found], wanted: Sequence[Heading]) -> CheckAnswer:
    for number, (one, heading) in enumerate(zip(found, wanted, strict=False), 1):
        if not one.matches(heading):
            return f"heading {number} is {str(one)!r} where {str(heading)!r} belongs"
    if len(found) < len(wanted):
        return f"the heading {str(wanted[len(found)])!r} is missing"
    return len(found) == len(wanted) or f"the heading {str(found[len(wanted)])!r} is one too many"


def _order(wanted: Sequence[Heading]) -> str:
    return ", ".join(repr(str(heading)) for heading in wanted)


def _wanted(line: str) -> Heading:
    heading = _hashed(line.strip()) if isinstance(line, str) else None
    if heading is None or not heading.title:
        raise ValueError(f"a heading of an outline is '#' to '######', a space and a title or '*', not {line!r}")
    return Heading(heading.level, heading.title if heading.title == _ANY else plain(heading.title))


def _hashed(line: str) -> Heading | None:
    level = len(line) - len(line.lstrip("#"))
    if not 1 <= level <= MOST_HASHES or line[level : level + 1] not in ("", " ", "\t"):
        return None
    title = line[level:].strip()
    bare = title.rstrip("#")
    # Closing hashes, `## Costs ##`, but not `C#`.
    return Heading(level, bare.strip() if not bare or bare[-1].isspace() else title)
