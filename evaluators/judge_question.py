"""Build a judge's question: statements in random order, each under a random id, answered by random marks."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kairo_team._util.frozen import EMPTY
from kairo_team._util.reply_json import object_schema
from kairo_team.evaluators.canaries import Canaries, draw_canaries
from kairo_team.evaluators.criterion import Criterion
from kairo_team.prompts.quoting import one_line

_PLAIN_LEVELS: Final = ("not met", "met")
_TOKEN: Final = 32
"""Length of a call's token, in hexadecimal digits."""
_CONSONANTS: Final = "bcdfghjkmnprtvwxz"
"""Letters of ids and marks: without vowels they form no words."""
_TRIES: Final = 100
"""How many marks are drawn before one more digit is taken."""
_LONGEST_WORDS: Final = 200
"""Most characters of one text in a judge's answer; an answer has four texts, which must fit into a small model's
reply."""


class Words(NamedTuple):
    """The words that ask about a criterion."""

    meets: str
    violates: str
    level: str
    lowest: str
    better: str


WORDINGS: Final = (
    Words(
        "meets",
        "violates",
        "The level of the work in this",
        "The lowest level that the work does not reach in this",
        "Which work is better in this:",
    ),
    Words(
        "fulfils",
        "breaks",
        "The level that the work has in this",
        "The lowest level that the work fails to reach in this",
        "Which work does better in this:",
    ),
    Words(
        "satisfies",
        "fails",
        "The level that the work reaches in this",
        "The lowest level that the work is below in this",
        "Which work is the better one in this:",
    ),
)
"""The first asks where a judge has one vote, and in the first of several; one is drawn for each later vote."""
Mark = Callable[[], str]
"""Makes a random mark that occurs nowhere in the judge's texts."""

_EVEN: Final = 0.5
_TOGETHER: Final = 5
"""Fewest controls and criteria of one question. With fewer, a text could give the right answers by their positions.
There are three controls at least."""
_LEAST_SIZE: Final = 100
"""Fewest characters of a work for controls about its size."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement about the work, and what each answer to it means."""

    id: str
    """Random, so that no text written before the call can answer the statement."""
    text: str
    answers: Mapping[str, int | None]
    """Levels by mark, in the order of the menu, from 0; None: the work does not show it."""
    criterion: Criterion | None = None
    """The criterion that the answer decides; None: a control."""
    right: int | None = None
    """The right answer to a control, as a level."""
    canary: bool = False
    """Whether the answer "unknown" is right too."""
    turned: bool = False
    """Whether the criterion is asked about the other way round."""

    def mark_of(self, level: str) -> str:
        """Return the mark of one of the criterion's levels."""
        levels = () if self.criterion is None else self.criterion.levels
        return next(mark for mark, place in self.answers.items() if place is not None and levels[place] == level)

    @property
    def meanings(self) -> list[tuple[str, str]]:
        """Pairs of mark and meaning, for the levels whose meaning the criterion gives."""
        if self.criterion is None or self.turned:
            return []
        texts = self.criterion.level_texts
        return [(self.mark_of(level), texts[level]) for level in self.criterion.levels if level in texts]

    @property
    def quoted(self) -> bool:
        """Whether a quote is required."""
        return self.criterion is not None and not self.turned and self.criterion.evidence == "quote"

    @property
    def best(self) -> int:
        """The highest level that an answer can give."""
        return max(level for level in self.answers.values() if level is not None)


@dataclass(frozen=True, slots=True)
class Question:
    """One call to a judge."""

    token: str
    """A random text that the reply's object must contain; the fences contain it too."""
    yes: str
    no: str
    unknown: str
    """The marks of "the statement is true", "it is not true" and "the work does not show it"."""
    label: str
    """A mark that is shown after the work, for the controls."""
    statements: Sequence[Statement]

    def schema(self) -> dict[str, Any]:
        """Return the reply's JSON Schema: one answer from the menu for each statement, after its reasons."""
        text = {"type": "string", "maxLength": _LONGEST_WORDS}
        items = [
            object_schema(
                {
                    "id": {"const": one.id},
                    **dict.fromkeys(("where", "quote", "observed"), text),  # before the answer: reasons come first
                    "answer": {"enum": [*one.answers]},
                    "expected": text,
                }
            )
            for one in self.statements
        ]
        count = len(items)
        answers = {"type": "array", "prefixItems": items, "items": False, "minItems": count, "maxItems": count}
        properties = {
            "token": {"const": self.token},
            "answers": answers,
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "addresses_the_judge": {"type": "boolean"},
        }
        return object_schema(properties)


def question_for(
    criteria: Sequence[Criterion],
    size: int,
    texts: str,
    seed: str,
    *,
    task: str = "",
    canaries: Canaries = EMPTY,
    false: Sequence[str] = (),
    trusted: bool = False,
    reworded: bool = False,
) -> Question:
    """Make a question; `size` is the work's length in characters, `texts` all texts that the judge is shown.

    Token, ids, marks and order are derived from `seed` and `texts`. Unless the texts are `trusted`, each criterion that
    can affect the outcome is asked about both ways round, and controls are mixed in: `canaries` are the user's own,
    `task` is what the built-in ones are about, and `false` are two statements that take the place of canaries.
    `reworded`: the words of the statements are drawn too.
    """
    token, lots, mark = _drawn_from(seed, texts)
    yes, no, unknown, label = mark(), mark(), mark(), mark()
    wording = _Wording(lots, mark, yes, no, unknown, _words(lots, reworded=reworded))
    statements: list[Statement] = []
    for criterion in criteria:
        statements.append(wording.of(criterion, turned=False))
        if not trusted and criterion.kind != "info":  # an info changes no outcome, so once is enough
            statements.append(wording.of(criterion, turned=True))
    if not trusted:
        false = false or draw_canaries(2, task, texts, canaries, lots)
        statements += wording.controls(len(criteria), size, label, false)
    lots.shuffle(statements)  # the order must not show which ones are controls
    return Question(token, yes, no, unknown, label, statements)


@dataclass(frozen=True, slots=True)
class PairQuestion(Question):
    """One call to a judge about two works; `yes` is the mark of the first, `no` of the second."""

    equal: str
    """The mark of "they are equal"."""
    second_label: str
    """A mark that is shown after the second work; `label` is shown after the first."""


def pair_question_for(
    criterion: Criterion, texts: str, seed: str, *, task: str = "", canaries: Canaries = EMPTY, reworded: bool = False
) -> PairQuestion:
    """Make a question about which of two works is better; the levels of the criterion are second, equal and first.

    Two controls ask which work carries a label. Their right answers differ, so a judge that prefers one work in
    everything is wrong. A canary is worded like the criterion, and holds for neither work. All else is derived from
    `seed` and `texts`, as in `question_for`.
    """
    token, lots, mark = _drawn_from(seed, texts)
    first, second, equal, unknown, label, second_label = (mark() for _ in range(6))
    answers = {first: 2, equal: 1, second: 0, unknown: None}
    asked = _words(lots, reworded=reworded).better
    statements = [Statement(mark(), f"{asked} {one_line(criterion.text)}", answers, criterion)]
    [false] = draw_canaries(1, task, texts, canaries, lots)
    statements.append(Statement(mark(), f"{asked} {false}", answers, right=1, canary=True))
    # One for each side: a judge that always names one is wrong once.
    for shown, right in ((label, 2), (second_label, 0)):
        text = lots.choice((f"Which work carries the label {shown}?", f"Which work has the label {shown}?"))
        statements.append(Statement(mark(), text, answers, right=right))
    lots.shuffle(statements)
    return PairQuestion(token, first, second, unknown, label, statements, equal, second_label)


@dataclass(frozen=True, slots=True)
class _Wording:
    """Words statements in the marks of one question."""

    lots: random.Random
    mark: Mark
    yes: str
    no: str
    unknown: str
    words: Words

    def of(self, criterion: Criterion, *, turned: bool) -> Statement:
        """Word a criterion; `turned`: the other way round."""
        plain = criterion.levels == _PLAIN_LEVELS
        made = self.about(one_line(criterion.text), turned=turned) if plain else self._levels(criterion, turned=turned)
        return replace(made, criterion=criterion, turned=turned)

    def about(self, text: str, *, turned: bool) -> Statement:
        """Word a requirement that is met or not."""
        answers = {self.yes: 0, self.no: 1} if turned else {self.yes: 1, self.no: 0}
        does = self.words.violates if turned else self.words.meets
        return Statement(self.mark(), f"The work {does} this: {text}", {**answers, self.unknown: None})

    def controls(self, criteria: int, size: int, label: str, canaries: Sequence[str]) -> list[Statement]:
        """Return controls for a question about `criteria` criteria, worded like criteria.

        The first two are canaries, one stated and one denied, and both are false. So a judge that agrees to everything
        answers one of them wrongly, a judge that favours the work in everything both, and so does one that knows the
        other controls by their form. The third holds, against a judge that denies everything. All else is drawn.
        `size` is the work's length in characters, `label` the mark after the work. Controls of a kind have the
        same number of words, so that the cost of a question does not depend on chance.
        """
        chance = self.lots.random
        drawn = [(True, chance() < _EVEN)]  # one holds, against the worst level for everything
        drawn += [(chance() < _EVEN, chance() < _EVEN) for _ in range(_TOGETHER - criteria - 3)]
        others = [(self._control(size, label, holds=holds), holds, turned) for holds, turned in drawn]
        # One each way, because a judge that always says yes, or always no, is wrong once.
        return [
            *(
                replace(self.about(text, turned=turned), right=0, canary=True)
                for text, turned in zip(canaries, (False, True), strict=True)
            ),
            *(replace(self.about(text, turned=turned), right=int(holds)) for text, holds, turned in others),
        ]

    def _control(self, size: int, label: str, *, holds: bool) -> str:
        """Draw a statement about the work's label or length, which holds or does not."""
        shown = label if holds else self.mark()
        texts = [f"it carries the label {shown}", f"its label reads exactly {shown}"]
        if not holds:
            texts.append(f"it contains the word {shown}")
        if size >= _LEAST_SIZE:
            digits = len(str(size))
            less = self.lots.randint(2, 9) * 10 ** (digits - 3)  # at most a tenth of the size
            more = self.lots.randint(5, 9) * 10**digits  # at least five times the size
            texts += [
                f"it has {'over' if (bound == less) == holds else 'under'} {bound} characters" for bound in (less, more)
            ]
        return self.lots.choice(texts)

    def _levels(self, criterion: Criterion, *, turned: bool) -> Statement:
        """Word a criterion with several levels: which one the work reaches, or the lowest that it does not reach."""
        names = [json.dumps(name, ensure_ascii=False) for name in criterion.levels]
        if turned:
            ask, menu = self.words.lowest, f"Levels above {names[0]}"
            names = [*names[1:], "it reaches them all"]
        else:
            ask, menu = self.words.level, "Levels, the worst first"
        marks = [self.mark() for _ in names]
        listed = ", ".join(f"{mark} = {name}" for mark, name in zip(marks, names, strict=True))
        answers: dict[str, int | None] = {mark: level for level, mark in enumerate(marks)}
        text = f"{ask}: {one_line(criterion.text)} {menu}: {listed}."
        return Statement(self.mark(), text, {**answers, self.unknown: None})


def _words(lots: random.Random, *, reworded: bool) -> Words:
    return lots.choice(WORDINGS) if reworded else WORDINGS[0]


def _drawn_from(seed: str, texts: str) -> tuple[str, random.Random, Mark]:
    """Return a question's token, the generator of its other draws, and a function that draws a new mark each time.

    A mark is two consonants and digits that occur nowhere in the texts.
    """
    # From the texts too: no text can know the marks of its own question.
    digest = hashlib.sha256(f"{seed}\n{texts}".encode("utf-8", "surrogatepass")).hexdigest()
    lots = random.Random(digest)  # noqa: S311 - as secret as the seed, and the same in a resumed review
    drawn: set[str] = set()
    folded = texts.casefold()

    def mark() -> str:
        tries = 0
        while True:
            digits = 2 + tries // _TRIES  # a long text may contain all short marks
            made = "".join(lots.choices(_CONSONANTS, k=2)) + str(lots.randrange(10 ** (digits - 1), 10**digits))
            if made not in drawn and made not in folded:
                drawn.add(made)
                return made
            tries += 1

    return digest[:_TOKEN], lots, mark
