"""`pii-redactor`: replaces personal data in texts of models and tools."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, cast

from kairo_team._util.frozen import EMPTY, freeze
from kairo_team._util.narrowing import is_several
from kairo_team.errors import known
from kairo_team.governance.guardrails import check_phases
from kairo_team.governance.policies.text_readings import compiled, rewrite
from kairo_team.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase

Find = Callable[[str], Iterator[tuple[int, int]]]
"""Yields the spans of personal data in a text, in order and not overlapping."""

# Repetitions are bounded, or possessive as a whole, so that no text makes a search slow.
_EMAIL: Final = re.compile(r"[\w.+%'-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}")
_SSN: Final = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}([- ])(?!00)\d{2}\1(?!0000)\d{4}(?![\w-])")
_IBAN_RUN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9])*+")
_IBAN_BEGIN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}")
_DIGITS: Final = re.compile(r"(?<![\w+])\d{3,}(?:[ .-]{1,3}\d{3,})*+")
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]{0,4})(?![\w:])")
_PHONE: Final = re.compile(
    r"(?<![\w+])(?:\+|00)[1-9](?:[ ./-]?\(?\d\)?){6,14}(?!\w)"  # with the country's code
    r"|(?<![\w.,+-])0[1-9]\d{7,10}(?!\w|[.,]\d)"  # from within a country, in one piece
    r"|(?<![\w.+-])(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-])"  # North America
)
_GROUPED_PHONE: Final = re.compile(r"(?<![\w.,+-])\(?0[1-9]\d{0,4}\)?([ ./-])\d{2,8}(?:\1\d{2,8})*+(?![\w-])")
"""National form, in groups; several numbers may follow each other."""

_CARD_LENGTHS: Final = (13, 14, 15, 16, 19)
_IBANS: Final = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
    "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 "
    "LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 "
    "QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
_IBAN_LENGTH: Final = {entry[:2]: int(entry[2:]) for entry in _IBANS.split()}
"""Length of an account number without spaces, by country."""
_PHONE_LENGTHS: Final = range(9, 13)
_ABROAD_LENGTHS: Final = range(8, 16)
_CARD_BEGINS: Final = "23456"
"""First digits of the cards in use."""
_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
"""The digit sum of twice each digit."""


def _whole(pattern: re.Pattern[str], is_one: Callable[[str], bool] | None = None) -> Find:
    """Return a function that finds the matches that pass the check."""

    def find(text: str) -> Iterator[tuple[int, int]]:
        for match in pattern.finditer(text):
            if is_one is None or is_one(match.group()):
                yield match.span()

    return find


def _within(pattern: re.Pattern[str], parts: Find) -> Find:
    """Return a function that finds `parts` of matches."""

    def find(text: str) -> Iterator[tuple[int, int]]:
        for match in pattern.finditer(text):
            for start, end in parts(match.group()):
                yield match.start() + start, match.start() + end

    return find


def _replaced(text: str, find: Find, label: str) -> tuple[str, int]:
    """Replace what is found; return the new text and the number of replacements."""
    parts, end, found = list[str](), 0, 0
    for start, stop in find(text):
        parts += [text[end:start], label]
        end, found = stop, found + 1
    return ("".join([*parts, text[end:]]), found) if found else (text, 0)


def _is_address(text: str) -> bool:
    """Return whether the text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return text != "::"  # more often a part of a program


def _is_phone(text: str) -> bool:
    digits = sum(character.isdigit() for character in text)
    return digits in (_ABROAD_LENGTHS if text.startswith(("+", "00")) else _PHONE_LENGTHS)


def _numbers(
    run: str, begins: str, lengths: Collection[int], is_one: Callable[[str], bool] | None = None
) -> Iterator[tuple[int, int]]:
    """Yield the spans of numbers of these lengths in a run of digit groups; each consists of whole groups."""
    groups = [match.span() for match in re.finditer(r"\d+", run)]
    free = 0
    for first, (start, _) in enumerate(groups):
        if start < free or run[start] not in begins:
            continue
        # The longest first, because a shorter number may be its beginning.
        for end in reversed(list(_ends(groups[first : first + max(lengths)], lengths))):
            if is_one is None or is_one(run[start:end]):
                yield start - (run[start - 1 : start] == "("), end  # with the parenthesis of an area code
                free = end
                break


def _ends(groups: Sequence[tuple[int, int]], lengths: Collection[int]) -> Iterator[int]:
    """Yield the possible ends, by length alone, of a number that begins with the first group."""
    digits, most = 0, max(lengths)
    for start, end in groups:
        digits += end - start
        if digits > most:
            return
        if digits in lengths:
            yield end


def _is_card(text: str) -> bool:
    """Return whether Luhn's check digit is right."""
    digits = [int(character) for character in text if character.isdigit()]
    return (sum(digits[-1::-2]) + sum(_DOUBLED[digit] for digit in digits[-2::-2])) % 10 == 0


def _ibans(run: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of account numbers in an alphanumeric run, which may contain other words too."""
    free = 0
    for begin in _IBAN_BEGIN.finditer(run):
        end = _iban_end(run, begin.start()) if begin.start() >= free else None
        if end is not None:
            yield begin.start(), end
            free = end


def _iban_end(run: str, start: int) -> int | None:
    """Return the end of the account number that begins at `start`; None if none does."""
    length = _IBAN_LENGTH.get(run[start : start + 2].upper(), 0)
    places = [place for place in range(start, min(len(run), start + 2 * length)) if run[place].isalnum()][:length]
    if not length or len(places) < length:
        return None
    end = places[-1] + 1
    if end < len(run) and run[end].isalnum():
        return None
    # Country and check digits come last, A counts as 10, B as 11, and the rest of 97 is 1 (ISO 13616).
    turned = "".join(run[place] for place in places[4:] + places[:4])
    return end if int("".join(str(int(character, 36)) for character in turned)) % 97 == 1 else None


FINDERS: Final[Mapping[str, Sequence[Find]]] = {
    "EMAIL": [_whole(_EMAIL)],
    # Before cards and phones, which its digits could pass for.
    "IBAN": [_within(_IBAN_RUN, _ibans)],
    "CREDIT_CARD": [_within(_DIGITS, partial(_numbers, begins=_CARD_BEGINS, lengths=_CARD_LENGTHS, is_one=_is_card))],
    "US_SSN": [_whole(_SSN)],
    "IP_ADDRESS": [_whole(re.compile(f"{_IPV6.pattern}|{_IPV4.pattern}"), _is_address)],
    "PHONE": [
        _whole(_PHONE, _is_phone),
        _within(_GROUPED_PHONE, partial(_numbers, begins="0", lengths=_PHONE_LENGTHS)),
    ],
}
"""Finders by kind, in the order of application."""


@dataclass(frozen=True, slots=True)
class PiiRedactor:
    """Replace personal data by `[EMAIL]`, `[PHONE]`, `[IBAN]`, `[CREDIT_CARD]`, `[IP_ADDRESS]` and `[US_SSN]`.

    It uses patterns and check digits and does not understand text: names and postal addresses pass. The arguments of
    tool calls in a reply are redacted too, since an answer can be there. For a tool that needs such data, set `phases`
    without `post_model`.
    """

    name: ClassVar[str] = "pii-redactor"
    kinds: Iterable[str] = tuple(FINDERS)
    """The kinds to look for."""
    patterns: Mapping[str, str] = field(default=EMPTY, hash=False)
    """Your own regular expressions by label: `{"STAFF_ID": r"\\bS-\\d{6}\\b"}` makes `[STAFF_ID]`."""
    phases: Iterable[GuardrailPhase] = field(
        default=frozenset({GuardrailPhase.POST_MODEL, GuardrailPhase.POST_TOOL}), kw_only=True
    )
    order: float = field(default=0, kw_only=True)
    _finders: Mapping[str, Sequence[Find]] = field(default=EMPTY, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds: Any = self.kinds
        if not is_several(kinds):
            raise ValueError(f"PiiRedactor.kinds must be a list of {known(FINDERS)}, not {kinds!r}")
        wanted = tuple(kinds)
        strange = [kind for kind in wanted if kind not in FINDERS]
        if strange:
            raise ValueError(f"PiiRedactor.kinds: there is no {strange[0]!r}; there are {known(FINDERS)}")
        own = _own(self.patterns)
        if not (wanted or own):
            raise ValueError("a PiiRedactor needs kinds or patterns to look for: without any it redacts nothing")
        object.__setattr__(self, "kinds", tuple(kind for kind in FINDERS if kind in wanted))
        object.__setattr__(self, "patterns", freeze(self.patterns))
        # The user's own patterns come first.
        object.__setattr__(self, "_finders", own | {kind: FINDERS[kind] for kind in FINDERS if kind in wanted})
        object.__setattr__(self, "phases", check_phases(self.name, self.phases))

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Replace what is found."""
        counts: Counter[str] = Counter()

        def redact(text: str) -> str:
            for kind, finders in self._finders.items():
                for find in finders:
                    text, found = _replaced(text, find, f"[{kind}]")
                    counts[kind] += found
            return text

        redacted = context.payload.map_text(lambda piece: rewrite(piece, redact))
        if redacted is context.payload:
            return GuardrailDecision.allow()
        found = ", ".join(kind for kind, number in counts.items() if number)
        return GuardrailDecision.modify(f"personal data redacted: {found}", redacted)


def _own(patterns: Any) -> dict[str, Sequence[Find]]:
    """Return the functions that find the user's own patterns, by label."""
    if not isinstance(patterns, Mapping):
        raise ValueError(f"PiiRedactor.patterns must be regular expressions by label, not {patterns!r}")
    by_label = cast("Mapping[str, Any]", patterns)
    made = compiled("PiiRedactor.patterns", tuple(by_label.values()), ignore_case=False)
    return {label: [_whole(pattern)] for label, pattern in zip(by_label, made, strict=True)}
