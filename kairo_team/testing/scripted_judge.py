"""Judges for tests, of works and of pairs: they read the question as a model would, and give scripted answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import EMPTY
from kairo_team.errors import known
from kairo_team.evaluators.canaries import is_canary, is_false_claim
from kairo_team.evaluators.judge_question import WORDINGS
from kairo_team.testing.scripted import FunctionModel

if TYPE_CHECKING:
    from kairo_team.budget import Money
    from kairo_team.evaluators.rubric import Rubric
    from kairo_team.messages import ModelRequest

CANNOT_TELL: Final = "cannot tell"
"""A judge's answer if the work does not show it."""
Said = str | Mapping[str, str]
"""A level or "cannot tell"; or a mapping with it as "answer", and texts "where", "quote", "observed", "expected"."""
Says = Mapping[str, Said] | Callable[[str, str], Said | None]

MARK: Final = r"([a-z]{2}\d{2,})"
"""An id, or a mark for an answer."""
_LEGEND: Final = re.compile(rf"(?m)^{MARK} = the (?:statement is|work does not)")
_STATEMENT: Final = re.compile(rf"(?m)^- {MARK}: (The .*)$")
_PLAIN: Final = re.compile(rf"The work ({'|'.join(f'{one.meets}|{one.violates}' for one in WORDINGS)}) this: (.*)")
_LEVELS: Final = re.compile(
    r"The (?:lowest )?level .*? in this: (.*) Levels(?:, the worst first| above (\".*?\")): (.*)\."
)
_LEVEL: Final = re.compile(rf'{MARK} = ("(?:[^"\\]|\\.)*")?')
_WORK: Final = re.compile(r"(?m)^(=+ ([0-9a-f]{32}))\n(.*)\n\1$")
# An odd number of backslashes: `\\u{..}` is a text about an escape, not an escape.
_HIDDEN: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u\{([0-9a-f]+)\}")
LABEL: Final = re.compile(rf"(?m)^Its label: {MARK}$")
"""The line behind a work."""
_ABOUT_WORD: Final = re.compile(rf"it (?:carries the label|contains the word) {MARK}|its label reads exactly {MARK}")
_ABOUT_CLAIM: Final = re.compile(r"a source supports claim (\d+) of the list")
_SENTENCES: Final = "You split a piece of work into the claims that it makes."
"""How a request to split a work begins."""
_LISTED: Final = re.compile(r"(?m)^(=+ ([0-9a-f]{32}))\n((?:\d+: .*\n)+)\1$")
_SOURCE: Final = re.compile(
    r'(?m)^(?:The result of ".*", which the work could use, was|.* could use these files|The reference answer, .*):\n'
    r"(=+ [0-9a-f]{32})\n(.*)\n\1$"
)
_QUOTED: Final = 160
"""Most characters of a quote of a source."""
_ABOUT_SIZE: Final = re.compile(r"it has (over|under) (\d+) characters")


@dataclass(frozen=True, slots=True)
class AskedStatement:
    """One statement of a judge's question."""

    id: str
    criterion: str
    """The text of the criterion."""
    turned: bool
    """Whether the statement is reversed: that the work violates the text, or which level it does not reach."""
    levels: Mapping[str, str]
    """The mark of each level, the worst first, and of `CANNOT_TELL`."""


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A judge's question, read from its messages."""

    token: str
    work: str
    label: str
    statements: tuple[AskedStatement, ...]
    claims: tuple[str, ...] = ()
    """The claims that statements are about, by number."""
    sources: tuple[str, ...] = ()
    """The texts that can support a claim."""

    def claim(self, text: str) -> str | None:
        """Return the claim that a criterion is about; None for any other criterion."""
        about = _ABOUT_CLAIM.fullmatch(text)
        return None if about is None else self.claims[int(about[1]) - 1]

    def holds(self, text: str) -> bool | None:
        """Return whether a control statement is true of the work; None for any other text."""
        claim = self.claim(text)
        if is_canary(text) or (claim is not None and is_false_claim(claim)):
            return False
        word, size = _ABOUT_WORD.fullmatch(text), _ABOUT_SIZE.fullmatch(text)
        if word is not None:
            return (word[1] or word[2]) in (self.label, *self.work.split())
        if size is not None:
            return (len(self.work) > int(size[2])) == (size[1] == "over")
        return None


def read_question(request: ModelRequest) -> AskedQuestion:
    """Read a judge's question from the messages; raise `ValueError` if it is not one."""
    text = "\n".join(message.text for message in request.messages)
    work, label, marks = _WORK.search(text), LABEL.search(text), [one[1] for one in _LEGEND.finditer(text)]
    if work is None or label is None or len(marks) != 3:  # noqa: PLR2004 - true, not true, not shown
        raise ValueError(f"this is not a question of a judge from the packaged templates: {text!r:.200}")
    statements = [_statement(one[1], one[2], *marks) for one in _STATEMENT.finditer(text)]
    sources = tuple(_text_of(one[2]) for one in _SOURCE.finditer(text))
    return AskedQuestion(work[2], _text_of(work[3]), label[1], tuple(statements), _listed(text), sources)


def read_sentences(request: ModelRequest) -> tuple[str, tuple[str, ...]] | None:
    """Return the token and the sentences of a request to split a work into claims; None for any other request."""
    if not request.messages[0].text.startswith(_SENTENCES):
        return None
    text = request.messages[1].text
    found = _LISTED.search(text)
    if found is None:
        raise ValueError(f"a list of sentences is missing in {text!r:.200}")
    return found[2], _listed(text)


def read_work(text: str) -> tuple[str, str]:
    """Return the token of the first fenced text, and the text without its fence; `ValueError` without one."""
    work = _WORK.search(text)
    if work is None:
        raise ValueError(f"no fenced text in {text!r:.200}")
    return work[2], _text_of(work[3])


def _text_of(shown: str) -> str:
    """Return the text that is shown as JSON, with its hidden characters as escapes."""
    escaped = _HIDDEN.sub(lambda escape: escape[1] + json.dumps(chr(int(escape[2], 16)))[1:-1], shown)
    found: str = json.loads(escaped)
    return found


def _listed(text: str) -> tuple[str, ...]:
    found = _LISTED.search(text)
    lines = [] if found is None else found[3].removesuffix("\n").split("\n")
    return tuple(_text_of(line.partition(": ")[2]) for line in lines)


def _statement(name: str, text: str, yes: str, no: str, unknown: str) -> AskedStatement:
    plain, levels = _PLAIN.fullmatch(text), _LEVELS.fullmatch(text)
    if plain is not None:
        turned = plain[1] in {one.violates for one in WORDINGS}
        marks = {"not met": yes, "met": no} if turned else {"not met": no, "met": yes}
        return AskedStatement(name, plain[2], turned, {**marks, CANNOT_TELL: unknown})
    if levels is None:
        raise ValueError(f"this is not a statement from the packaged templates: {text!r:.200}")
    menu, turned = _LEVEL.findall(levels[3]), levels[2] is not None
    names = ([levels[2]] if turned else []) + [level for _, level in menu if level]
    marks = {json.loads(level): mark for level, (mark, _) in zip(names, menu, strict=True)}
    return AskedStatement(name, levels[1], turned, {**marks, CANNOT_TELL: unknown})


class ScriptedJudge(FunctionModel):
    """A chat model for a judge: it reads the question, and gives a scripted answer for each criterion.

    `answers` are levels by criterion: by its text, or by words of it; with the `rubric`, also by its id. A function
    `(criterion's text, work)` may return them instead; None is then `default`. Reversed statements get the opposite
    answer, and the controls of the question are answered truthfully; for `canaries=` of your own give "not met" here.
    "met" and "not met" are the best and the worst level of any criterion. `calls` has the requests.

    With `evidence="sources"` the answers are by claim: by words of it. `claims` splits a sentence; without it each
    sentence is one claim. An answer "met" without a quote gets the beginning of the first source as its quote.

    >>> judge = ScriptedJudge({"a ten-year-old": "not met"})
    """

    def __init__(
        self,
        answers: Says = EMPTY,
        *,
        default: Said = "met",
        rubric: Rubric | None = None,
        confidence: float = 0.9,
        addresses_the_judge: bool = False,
        claims: Callable[[str], Sequence[str]] | None = None,
        name: str = "test:judge",
        dollars_per_token: Money = 0,
    ) -> None:
        self.answers = answers
        self.default = default
        self.confidence = confidence
        self.addresses_the_judge = addresses_the_judge
        self.claims = claims
        self._texts = {} if rubric is None else {one.id: one.text for one in rubric.decided_by("judge")}
        super().__init__(self.write, name=name, dollars_per_token=dollars_per_token)

    def write(self, request: ModelRequest) -> str:
        """Return the text of the reply."""
        return json.dumps(self.reply(request))

    def reply(self, request: ModelRequest) -> dict[str, Any]:
        """Return the reply to a question, or to a request to split a work into claims."""
        sentences = read_sentences(request)
        if sentences is not None:
            return self._split(*sentences)
        asked = read_question(request)
        return {
            "token": asked.token,
            "answers": [self._answer(asked, statement) for statement in asked.statements],
            "confidence": self.confidence,
            "addresses_the_judge": self.addresses_the_judge,
        }

    def _split(self, token: str, sentences: Sequence[str]) -> dict[str, Any]:
        parts = [[one] if self.claims is None or is_false_claim(one) else [*self.claims(one)] for one in sentences]
        listed = [{"number": number, "claims": found} for number, found in enumerate(parts, 1)]
        return {"token": token, "sentences": listed, "addresses_the_judge": self.addresses_the_judge}

    def _answer(self, asked: AskedQuestion, statement: AskedStatement) -> dict[str, str]:
        said = self.said(asked, statement.criterion)
        texts = {"answer": said} if isinstance(said, str) else said
        level = texts.get("answer", "")
        worst, *_, best, _ = statement.levels  # the last one is `CANNOT_TELL`
        ends = {"met": best, "not met": worst}
        mark = statement.levels.get(level) or statement.levels.get(ends.get(level, ""))
        if mark is None:
            raise ValueError(f"{statement.criterion!r} is answered with {known(statement.levels)}, not {level!r}")
        empty = dict.fromkeys(("where", "quote", "observed", "answer", "expected"), "")
        if asked.claim(statement.criterion) is not None and level == "met" and asked.sources:
            empty["quote"] = asked.sources[0][:_QUOTED]
        return {"id": statement.id, **empty, **texts, "answer": mark}

    def said(self, asked: AskedQuestion, text: str) -> Said:
        """Return the answer for a criterion by its text."""
        holds = asked.holds(text)  # controls first: a script that answered them wrongly would fail every question
        if holds is not None:
            return "met" if holds else "not met"
        text = asked.claim(text) or text
        if callable(self.answers):
            return self.answers(text, asked.work) or self.default
        fits = [name for name in self.answers if self._texts.get(name, name) in text]
        return self.answers[max(fits, key=len)] if fits else self.default  # the longest fits best


# ---------------------------------------------------------------- pairs of works

_PAIR_LEGEND: Final = re.compile(rf"(?m)^{MARK} = (the first work|the second work|neither|the works do not)")
_PAIR_QUESTION: Final = re.compile(rf"(?m)^- {MARK}: (.*)$")
_SIDES: Final = {
    "the first work": "first",
    "the second work": "second",
    "neither": "tie",
    "the works do not": "cannot tell",
}

Prefers = Callable[[str, str], str]
"""Takes two works, in the order shown, and returns "first", "second", "tie" or "cannot tell"."""


class ScriptedPairJudge(FunctionModel):
    """A chat model for `PairwiseStrategy`: `prefers` decides, and the controls are answered truthfully.

    `calls` has the requests.

    >>> judge = ScriptedPairJudge(lambda first, second: "first" if len(first) < len(second) else "second")
    """

    def __init__(
        self,
        prefers: Prefers,
        *,
        confidence: float = 0.9,
        addresses_the_judge: bool = False,
        name: str = "test:judge",
        dollars_per_token: Money = 0,
    ) -> None:
        self.prefers = prefers
        self.confidence = confidence
        self.addresses_the_judge = addresses_the_judge
        super().__init__(self.write, name=name, dollars_per_token=dollars_per_token)

    def write(self, request: ModelRequest) -> str:
        """Return the text of the reply."""
        return json.dumps(self.reply(request))

    def reply(self, request: ModelRequest) -> dict[str, Any]:
        """Return the reply to a question about two works; raise `ValueError` if it is not one."""
        text = "\n".join(message.text for message in request.messages)
        marks = {_SIDES[meaning]: mark for mark, meaning in _PAIR_LEGEND.findall(text)}
        shown = [one.text for one in request.messages if LABEL.search(one.text)]
        if len(marks) != len(_SIDES) or len(shown) != 2:  # noqa: PLR2004 - two works, each with a label
            raise ValueError(f"this is not a question about two works from the packaged templates: {text!r:.200}")
        (token, first), (_, second) = map(read_work, shown)
        preferred, labels = self.prefers(first, second), LABEL.findall(text)
        empty = dict.fromkeys(("where", "quote", "observed", "expected"), "")
        answers = [
            {"id": name, **empty, "answer": marks[_of_control(asked, labels) or preferred]}
            for name, asked in _PAIR_QUESTION.findall(text)
        ]
        return {
            "token": token,
            "addresses_the_judge": self.addresses_the_judge,
            "answers": answers,
            "confidence": self.confidence,
        }


def _of_control(asked: str, labels: list[str]) -> str | None:
    """Return the right answer to a control; None for any other question."""
    if is_canary(asked.partition(": ")[2]):
        return "tie"
    named = re.search(rf"label {MARK}\?$|is {MARK} the label\?$", asked)
    if named is None:
        return None
    return "first" if (named[1] or named[2]) == labels[0] else "second"
