"""Checks of a text against the sources it is made from: citations, quotations, numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.counts import count, counted
from kairo_team._util.narrowing import is_mapping
from kairo_team.budget import check_count
from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.evaluators.quotes import plain, stands_in_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kairo_team.artifacts import Artifact
    from kairo_team.verdicts import EvaluationContext

Texts = Mapping[str, str] | Callable[["EvaluationContext"], Mapping[str, str]] | None
"""Texts by name; a function of the context that returns them; None: the artifacts of the task's dependencies."""

LONGEST_CITATION: Final = 200
LONGEST_QUOTATION: Final = 2_000
"""Longest citation and quotation, in characters between the marks; longer texts are not counted as one."""
MOST_QUOTATIONS: Final = 300
"""Most quotations that are looked up; a text with more is left undecided."""
MOST_FINDINGS: Final = 10
"""Most wrong citations, quotations or numbers that a finding lists."""

# None of these can match the same text in two ways, so their time is proportional to the text's length.
_KEYS: Final = re.compile(r"[^\s,;]+")
_NUMBER: Final = re.compile(r"(?<!\w)(?<!\d\.)\.?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")
_IN_A_LIST: Final = re.compile(r"^[ \t>]*\d{1,3}[.)](?=\s)", re.MULTILINE)
_QUOTATION_MARKS: Final = {'"': '"', "\u201c": "\u201d", "\u00ab": "\u00bb"}


@by_name
def citations(sources: Texts = None, *, form: str = "[{}]", least: int = 1) -> NamedCheck:
    """Make a check that every citation names a given source, and that there are at least `least` citations.

    `sources` are texts by the name they are cited by; None takes the artifacts of the task's dependencies, by task id.
    `form` is how a citation looks, with `{}` for one name or several separated by commas: `"[@{}]"`, `"({})"`. A name
    with a space is not a citation, and neither is a Markdown link.
    """
    opening, closing = _form(form)
    check_count("citations: least", least)
    find = named_texts("citations", sources)

    def check(artifact: Artifact, context: EvaluationContext) -> CheckAnswer:
        known = find(context)
        cited = list(_cited(artifact.text, opening, closing))
        strange = list(dict.fromkeys(name for name in cited if name not in known))
        if strange:
            return f"no source is called {_listed(strange)}; there are {_listed(known) or 'none'}"
        return len(cited) >= least or f"the text cites {count(len(cited), 'source')}, at least {counted(least)} needed"

    shown = f"citations(..., form={form!r}, least={least})"
    return NamedCheck(shown, check, source=sources, in_place=False, wants_context=True)


@by_name
def quotations(sources: Texts = None, *, least_words: int = 3) -> NamedCheck:
    """Make a check that every text in quotation marks is in one of the sources, word by word.

    Quotations shorter than `least_words` are taken for names and not looked up. `sources` are as for `citations`.
    """
    check_count("quotations: least_words", least_words)
    find = named_texts("quotations", sources)

    def check(artifact: Artifact, context: EvaluationContext) -> CheckAnswer:
        long = dict.fromkeys(quote for quote in _quoted(artifact.text) if len(quote.split()) >= least_words)
        if len(long) > MOST_QUOTATIONS:
            # Undecided, not wrong.
            raise ValueError(f"{len(long)} quotations are more than the {MOST_QUOTATIONS} that are looked up")
        known = [plain(text) for text in find(context).values()]
        strange = [quote for quote in long if not any(stands_in_plain(quote, text) for text in known)]
        return not strange or f"no source says {_listed(strange)}"

    return NamedCheck(
        f"quotations(..., least_words={least_words})", check, source=sources, in_place=False, wants_context=True
    )


@by_name
def numbers(sources: Texts = None, *, allowed: Iterable[float | str] = ()) -> NamedCheck:
    """Make a check that every number of the text appears in a source, or is one of `allowed`.

    1,250.0 and 1250 are the same; units, currencies and signs make no difference. Numbers of list items do not count.
    `sources` are as for `citations`.
    """
    find = named_texts("numbers", sources)
    free = {_value(str(number)) for number in allowed}

    def check(artifact: Artifact, context: EvaluationContext) -> CheckAnswer:
        known = free.union(*({_value(number) for number in _NUMBER.findall(text)} for text in find(context).values()))
        numbers = dict.fromkeys(_NUMBER.findall(_IN_A_LIST.sub("", artifact.text)))
        strange = [number for number in numbers if _value(number) not in known]
        return not strange or f"no source has the number {_listed(strange)}"

    shown = f"numbers(..., allowed={sorted(free)})"
    return NamedCheck(shown, check, source=sources, in_place=False, wants_context=True)


def named_texts(owner: str, texts: Texts) -> Callable[[EvaluationContext], dict[str, str]]:
    """Return a function that finds the texts; `ValueError`, with `owner` named, for anything but texts by name."""
    if texts is None:
        return lambda context: {name: artifact.text for name, artifact in context.upstream.items()}
    if callable(texts):
        found = texts
        return lambda context: _checked(owner, found(context))
    fixed = _checked(owner, texts)
    return lambda _: fixed


def _checked(owner: str, texts: Any) -> dict[str, str]:
    if not is_mapping(texts):
        raise ValueError(f"{owner} takes texts by name, not {type(texts).__name__}")
    named = dict(texts)
    for name, text in named.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError(f"{owner} takes texts by name: {name!r} is {type(text).__name__}")
    return named


def _form(form: str) -> tuple[str, str]:
    opening, hole, closing = form.partition("{}") if isinstance(form, str) else ("", "", "")
    if not hole or not opening.strip() or not closing.strip():
        raise ValueError(f"citations: the form needs a mark on both sides of {{}}, such as '[{{}}]', not {form!r}")
    return opening, closing


def _cited(text: str, opening: str, closing: str) -> Iterator[str]:
    place = text.find(opening)
    while place >= 0:
        begin = place + len(opening)
        end = text.find(closing, begin, begin + LONGEST_CITATION)
        if end >= 0 and opening not in text[begin:end]:
            before, after = text[place - 1 : place], text[end + len(closing) :][:1]
            is_link = after == "(" or (after == ":" and before in ("", "\n"))  # of Markdown, or its definition
            if not is_link:
                yield from _names(text[begin:end], opening.strip("[(<{"))
        place = text.find(opening, begin)


def _names(inside: str, mark: str) -> list[str]:
    """Return the names in a citation; none when it reads like prose. A mark may be repeated: `[@a; @b]`."""
    parts = [part.strip() for part in inside.replace(";", ",").split(",")]
    if any(_KEYS.fullmatch(part) is None for part in parts):
        return []
    return [part.removeprefix(mark) if mark else part for part in parts]


def _quoted(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        closing = _QUOTATION_MARKS.get(text[place]) if _opens(text, place) else None
        begin, place = place + 1, place + 1
        end = text.find(closing, begin, begin + LONGEST_QUOTATION) if closing else -1
        if end >= 0:
            yield text[begin:end].strip(" .,;:!?")  # the sentence's own punctuation may be inside the marks
            place = end + 1


def _opens(text: str, place: int) -> bool:
    """Return whether a mark seems to begin a quotation."""
    # A straight mark can be either end: without this guess, one mark too many would turn all later quotations around.
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    return text[place] != '"' or (bool(after.strip()) and (not before.strip() or before in '([{-\u2013\u2014"'))


def _value(number: str) -> str:
    """Write a number in one form: without commas and needless zeros."""
    whole, _, rest = number.replace(",", "").partition(".")
    rest = rest.rstrip("0")
    return f"{whole.lstrip('0') or '0'}.{rest}" if rest else whole.lstrip("0") or "0"


def _listed(names: Iterable[str]) -> str:
    some = list(names)
    more = f" and {len(some) - MOST_FINDINGS} more" if len(some) > MOST_FINDINGS else ""
    return ", ".join(f"{name!r:.200}" for name in some[:MOST_FINDINGS]) + more
