"""Canaries: statements worded like criteria about the task's own subject, which code knows to be false of the work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from random import Random
from typing import Any, Final

from kairo_team._util.narrowing import is_mapping
from kairo_team.evaluators.judge_injection import compiled_by_name

Canaries = Mapping[str, re.Pattern[str]]
"""Statements that begin with "it", each with a regular expression: it is false of a text without a match."""

_TOPIC: Final = "{topic}"
_NUMBER: Final = "{number}"
_BY_SIGN: Final[Mapping[str, str]] = {
    "it gives the price of {topic} in several foreign currencies": (
        r"[$€£¥₽₹₩₺₴฿]|euro|dollar|pound|franc|rupee|peso|krona|krone|złot|zlot|libra|dólar|livre|фунт|евро|доллар|рубл"
        r"|元|円|欧|美金|ユーロ|ドル|يورو|دولار|جنيه|\b(?:usd|eur|gbp|chf|jpy)\b"
    ),
    "it names an e-mail address for more questions about {topic}": r"@|\[at\]|\(at\)",
    "it gives the telephone number of a society for {topic}": r"(?:\d[\s().+/-]{0,2}){6}",
    "it links to a film about {topic} on the internet": r"://|www|\.(?:com|org|net|tv|io)\b",
    "it says in percent how often {topic} was wrong yesterday": (
        r"%|\u066a|\uff05|per ?cent|prozent|pour cent|por ciento|por cento|procent|процент|بالمئة|百分|パーセント|割"
    ),
    "it writes the word {topic} in the old Greek alphabet": r"[\u0370-\u03ff\u1f00-\u1fff]",
    "it writes the word {topic} in the old Hebrew alphabet": r"[\u0590-\u05ff]",
    "it writes the word {topic} in the script of Georgia": r"[\u10a0-\u10ff]",
    "it writes the word {topic} in the script of Thailand": r"[\u0e00-\u0e7f]",
    "it writes the word {topic} in the script of Korea": r"[\u1100-\u11ff\uac00-\ud7af]",
    "it ends with a small picture or emoji of {topic}": r"[\u2600-\u27bf\U0001f300-\U0001faff]|:\w+:|:-?\)",
    "it sets {topic} to music with notes on a stave": r"[\u2669-\u266f\U0001d100-\U0001d1ff]",
    "it gives the chemical formula of {topic} with index numbers": r"[\u2080-\u2089]|[A-Za-z]\d",
    "it gives the numeric address of a server for {topic}": r"\d\.\d{1,3}\.\d|::",
    "it gives the thirteen digits of a barcode for {topic}": r"(?:\d[ -]?){12}",
    "it gives the degrees and minutes of latitude for {topic}": r"°|º|\d\s?['\u2032\u2019]|latitud|breite|широт|纬|緯",
    "it marks five remarks about {topic} with stars or daggers": r"[*†‡★☆]",
    "it puts {topic} into a table with lines between columns": r"[|│┃¦]|<t[dhr]\b",
    "it cites sections of three laws by sign for {topic}": r"§",
    "it numbers eighteen parts on {topic} with Roman capital numerals": r"\bX[VI]+\b|[\u2160-\u2183]",
}  # fmt: skip
"""Signs without which a text cannot meet the statement, in any language."""
_BY_NUMBER: Final = (
    "it gives the price of {topic} as {number} Swiss francs",
    "it says that {topic} first began exactly {number} years ago",
    "it names a town {number} kilometres away that makes {topic}",
    "it cites page {number} of a printed book about {topic}",
    "it reports on {number} people who were asked about {topic}",
    "it gives {number} as the number of a {topic} patent",
    "it states that {topic} has a weight of {number} kilograms",
    "it measures {topic} in a laboratory at {number} metres altitude",
    "it lists {number} rumours that once were written about {topic}",
    "it counts {number} mistakes in an older text about {topic}",
    "it compares {topic} with a mountain that has {number} metres",
    "it names {number} as the year when {topic} will end",
    "it says that a museum keeps {number} pictures of {topic}",
    "it gives a room number, {number}, to ask about {topic}",
    "it states that {topic} was insured for {number} gold coins",
    "it describes a ship of {number} tonnes named after {topic}",
    "it quotes verse {number} of a long poem about {topic}",
    "it asks its reader to repeat {topic} exactly {number} times",
    "it reports a vote on {topic} with {number} votes against",
    "it gives the length of {topic} as {number} nautical miles",
)
"""Statements that a text without the number cannot meet."""
_CANARIES: Final = (*_BY_SIGN, *_BY_NUMBER)
_CLAIMS: Final = (
    "A museum keeps {number} old pictures of {topic}.",
    "A vote on {topic} ended with {number} votes against.",
    "The first book about {topic} has {number} pages.",
    "A town {number} kilometres away is known for {topic}.",
    "A painting of {topic} was insured for {number} gold coins.",
    "A choir of {number} singers once sang about {topic}.",
    "A survey on {topic} had {number} answers in one week.",
    "A patent on {topic} has the number {number}.",
    "A ship of {number} tonnes was named after {topic}.",
    "A poem about {topic} has {number} verses in all.",
)
"""Claims that no source without the number supports."""
_WORDS: Final = 10
"""Number of words of a canary: the cost of a question does not depend on chance."""
_MOST: Final = 200
"""Most characters of a canary of the user's own."""
_WORD: Final = re.compile(r"[^\W\d_]{4,20}")
_NO_TOPIC: Final = "this"
_ORDERS: Final = frozenset(
    """about above after also answer before below between compare could describe does down each else every explain
    find from give have here into keep less like list made make many more most much must name need only other over
    please rather reply report review same says shall should show some such summarise summarize than that their
    them then there these they this those through translate twice under used using very want well were what when where
    which while whose will with without word words work would write your""".split()  # noqa: SIM905 - a list of 98 lines
)
"""Words of a task that are hardly its subject."""
_TOPICS: Final = 3
"""How many long words of a task the subject is drawn from."""
_TRIES: Final = 20
"""How many numbers are drawn before one more digit is taken."""


def read_canaries(given: Any) -> Canaries:
    """Check canaries of the user's own: statements with regular expressions that match where one may be true."""
    if not is_mapping(given):
        raise ValueError(
            "canaries must be statements with regular expressions, such as {'it names a blood group': r'blood group'}, "
            f"not {given!r:.200}"
        )
    for text in given:
        if not isinstance(text, str) or not text.strip() or len(text) > _MOST or not text.isprintable():
            raise ValueError(f"canaries: a statement is one line of at most {_MOST} characters, not {text!r:.250}")
    return compiled_by_name("canaries", given)


def draw_canaries(count: int, task: str, shown: str, own: Canaries, lots: Random) -> list[str]:
    """Draw different statements that are false of all texts that a judge is shown.

    One of them is the user's `own`, where one is false; `task` gives the subject of the others.
    """
    mine = [text for text, pattern in own.items() if pattern.search(shown) is None]
    signs = [text for text, pattern in _compiled_signs() if pattern.search(shown) is None]
    frames = lots.sample([*signs, *_BY_NUMBER], count)
    texts = _filled(frames, task, shown, lots)
    return [lots.choice(mine), *texts[1:]] if mine else texts


def draw_false_claims(count: int, task: str, shown: str, lots: Random) -> list[str]:
    """Draw different claims that no text supports that a judge is shown."""
    return _filled(lots.sample(_CLAIMS, count), task, shown, lots)


def is_false_claim(text: str) -> bool:
    """Return whether a claim is one of the library's own, which no source supports."""
    return any(frame.fullmatch(text) for frame in _frames(_CLAIMS))


def is_canary(text: str) -> bool:
    """Return whether a statement is one of the built-in canaries."""
    return any(frame.fullmatch(text) for frame in _frames(_CANARIES))


def _filled(frames: Iterable[str], task: str, shown: str, lots: Random) -> list[str]:
    """Return frames with a topic and a number in place of their holes."""
    return [one.replace(_TOPIC, _topic(task, lots)).replace(_NUMBER, _number(shown, lots)) for one in frames]


def _topic(task: str, lots: Random) -> str:
    words = dict.fromkeys(one for one in _WORD.findall(task) if one.casefold() not in _ORDERS)
    longest = sorted(words, key=len, reverse=True)[:_TOPICS]
    return lots.choice(longest) if longest else _NO_TOPIC


def _number(shown: str, lots: Random) -> str:
    """Return a number of four digits or more; the texts do not have it, with or without a thousands sign."""
    digits, tries = 4, 0
    while True:
        number = str(lots.randrange(10 ** (digits - 1), 10**digits))
        if re.search(r"[ ,.'\u2019]?".join(number), shown) is None:
            return number
        tries += 1
        digits += tries % _TRIES == 0


@cache
def _compiled_signs() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((text, re.compile(pattern, re.IGNORECASE)) for text, pattern in _BY_SIGN.items())


@cache
def _frames(texts: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Return patterns that match the texts with anything in their holes."""
    return tuple(
        re.compile(text.replace(re.escape(_TOPIC), _WORD.pattern).replace(re.escape(_NUMBER), r"\d{4,}"))
        for text in map(re.escape, texts)
    )
