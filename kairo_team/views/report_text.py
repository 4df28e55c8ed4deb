"""Texts of a report: templates that make every value harmless, numbers, cuts and differences."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, cast

from markupsafe import Markup, escape

from kairo_team._util.terminal import clean
from kairo_team.views.rendered import rendered
from kairo_team.views.text import clock

if TYPE_CHECKING:
    from jinja2 import Template

_MOST: Final = 20_000
"""Characters of any one value in a report."""
_SPARE: Final = 4_000
"""Characters beyond a cut that are searched for secrets too, because a secret may lie across the cut."""
_ESCAPED: Final = re.compile("""[&<>'"]""")
_MINUTE: Final = 60.0
_MOST_LINES: Final = 400
"""Lines of a text that are compared."""
_MARKUP: Final = 30
"""Characters of markup around one line of a comparison."""
_LONGEST_LINE: Final = 300


@cache
def template(name: str) -> Template:
    """Return a template of the report. Printed values are escaped, without secrets, control and bidi characters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from jinja2.compiler import CodeGenerator

    class Generator(CodeGenerator):
        def _output_child_pre(self, node: Any, frame: Any, finalize: Any) -> None:
            # Jinja would escape again what `_harmless` has escaped: a large report prints half a million values.
            self.write(f"({finalize.src}")

    class Templates(Environment):
        code_generator_class = Generator

        def getattr(self, obj: Any, attribute: str) -> Any:
            if type(obj) is dict:  # Jinja tries an attribute first, and an error is slow
                return cast("dict[str, Any]", obj)[attribute]
            return super().getattr(obj, attribute)

    environment = Templates(
        autoescape=True,
        loader=PackageLoader("kairo_team.views", "report_assets"),
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
    )
    filters: dict[str, Any] = environment.filters
    filters["rendered"] = rendered
    return environment.get_template(name)


@cache
def macro(name: str) -> Callable[[Mapping[str, Any]], Markup]:
    """Return the function that writes one kind of row from its values by name."""
    return cast("Callable[[Mapping[str, Any]], Markup]", getattr(template("rows.html").module, name))


def _harmless(value: object) -> str:
    """Return a value as HTML: escaping the result again changes nothing."""
    if isinstance(value, Markup):
        return value
    text = value if type(value) is str else str(value)
    shown = clean(text) if len(text) <= _MOST else cut(text, _MOST)[0]
    return escape(shown) if _ESCAPED.search(shown) else shown  # most have nothing to escape, and a search is quick


def cut(text: str, most: int) -> tuple[str, str]:
    """Return the harmless beginning of a text, at most this long, and a sentence on what was cut, or ''."""
    if len(text) <= most:
        return clean(text), ""
    return clean(text[: most + _SPARE])[:most], f"Cut after {most:,} of {len(text):,} characters."


def fair_share(lengths: Iterable[int], whole: int) -> int:
    """Return the length to cut each text to, so that all together have at most `whole` characters."""
    by_length, left = sorted(lengths), whole
    for at, length in enumerate(by_length):
        if length * (len(by_length) - at) > left:
            return left // (len(by_length) - at)
        left -= length
    return whole


def seconds(amount: float) -> str:
    """Write a duration: `0.25 s`, `12.3 s`, `3:05`."""
    if amount >= _MINUTE:
        return clock(amount)
    return f"{amount:.3g} s"


def dollars(amount: Decimal) -> str:
    """Write an amount to the hundredth of a cent, or exactly where it is less."""
    if not amount:
        return "$0"
    rounded = round(amount, 4)
    return f"${rounded.normalize():f}" if rounded else f"${amount:f}"


def changes(before: str, after: str, most: int) -> list[tuple[str, str]]:
    """Return the lines that differ, with two lines around: a style (`add`, `del`, `same`) and the line.

    Lines beyond `most` characters are only counted.
    """
    compared = list(difflib.unified_diff(_lines(before), _lines(after), n=2, lineterm=""))
    # Without the two lines that name the files.
    found = [({"+": "add", "-": "del"}.get(line[:1], "same"), line) for line in compared[2:]]
    sizes = accumulate(len(line) + _MARKUP for _, line in found)
    shown = sum(size <= most for size in sizes)
    if shown < len(found):
        return [*found[:shown], ("same", f"... {len(found) - shown:,} more lines of the comparison")]
    return found


def _lines(text: str) -> list[str]:
    limit = _MOST_LINES * _LONGEST_LINE
    return [line[:_LONGEST_LINE] for line in clean(text[:limit]).splitlines()[:_MOST_LINES]]
