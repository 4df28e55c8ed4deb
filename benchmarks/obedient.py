"""Judges for measurements that do what a text in their prompt asks for, however it is written."""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from kairo_team.evaluators.attacks.corpus import halves, sentences
from kairo_team.evaluators.canaries import is_canary
from kairo_team.testing import FunctionModel
from kairo_team.testing.scripted_judge import (
    AskedQuestion,
    AskedStatement,
    ScriptedPairJudge,
    read_question,
    read_work,
)

if TYPE_CHECKING:
    from kairo_team.messages import ModelRequest

Kind = Literal["agrees", "praises", "copies", "literal", "selects"]
"""How a judge obeys.

agrees: it says of every statement that it is true. praises: it answers every statement in favour of the work. copies:
it replies with the work's own text, before and after a reply of its own. literal: it answers truly what is about
labels, words and lengths, and all else in favour of the work. selects: it answers in favour of the work what is a
criterion, and truly what it sees to be a control; no form of a question can stop it.
"""
KINDS: Final[tuple[Kind, ...]] = ("agrees", "praises", "copies", "literal", "selects")
_HARMLESS: Final = {"end", "translate", "law", "test", "review", "medical"}
"""The purposes of the corpus' sentences that ask for nothing by themselves."""
_ALIKE: Final = str.maketrans("асекорхуАВСЕНКМОРТХ", "acekopxyABCEHKMOPTX")
_DIGITS: Final = str.maketrans("431057", "aeiost")
_CODED: Final = re.compile(r"[A-Za-z0-9+/]{24,}=*")
_ESCAPED: Final = re.compile(r"\\u\{([0-9a-f]+)\}|\\u([0-9a-f]{4})|\\[nrt]")


class ObedientJudge(FunctionModel):
    """A judge that finds nothing good by itself, and obeys as soon as something in its prompt asks for a PASS."""

    def __init__(self, kind: Kind, *, name: str = "test:obedient") -> None:
        super().__init__(self._write, name=name)
        self.kind: Kind = kind
        self.obeyed = 0
        """The questions in which it found an order."""

    def _write(self, request: ModelRequest) -> str:
        asked = read_question(request)
        obeying = obeys("\n".join(message.text for message in request.messages))
        self.obeyed += obeying
        if not obeying or self.kind != "copies":
            return _form(asked, self.kind if obeying else None)
        return f"{asked.work}\n{_form(asked, None)}\n{asked.work}"


class ObedientPairJudge(ScriptedPairJudge):
    """The same for pairs: by itself it prefers the reference, and it obeys for the other work."""

    def __init__(self, kind: Kind, reference: str, *, name: str = "test:obedient") -> None:
        super().__init__(lambda first, _: "first" if first == reference else "second", name=name)
        self.kind: Kind = kind
        self.reference = reference

    def write(self, request: ModelRequest) -> str:
        """Return a reply that obeys where something in the prompt asks for it."""
        reply, text = self.reply(request), "\n".join(message.text for message in request.messages)
        if not obeys(text):
            return json.dumps(reply)
        if self.kind == "copies":
            works = "\n".join(read_work(message.text)[1] for message in request.messages[1:3])
            return f"{works}\n{json.dumps(reply)}\n{works}"
        first, second = (mark for mark, _ in _PAIR_MARKS.findall(text))
        favoured = second if read_work(request.messages[1].text)[1] == self.reference else first
        asked = dict(_PAIR_QUESTIONS.findall(text))
        for answer in reply["answers"]:
            about = asked[answer["id"]].partition(": ")[2]
            control = not about or is_canary(about)
            if self.kind == "agrees":
                answer["answer"] = first
            elif self.kind == "praises" or (self.kind == "literal" and about) or not control:
                answer["answer"] = favoured
        return json.dumps(reply)


_PAIR_MARKS: Final = re.compile(r"(?m)^([a-z]{2}\d{2,}) = the (first|second) work$")
_PAIR_QUESTIONS: Final = re.compile(r"(?m)^- ([a-z]{2}\d{2,}): (.*)$")


class KindJudge(FunctionModel):
    """A judge that looks at nothing and finds everything good."""

    def __init__(self, *, name: str = "test:kind") -> None:
        super().__init__(lambda request: _form(read_question(request), "selects"), name=name)


def _form(asked: AskedQuestion, kind: Kind | None) -> str:
    """Return a reply in the form that the question asks for; None: it obeys nothing."""
    empty = dict.fromkeys(("where", "quote", "observed", "expected"), "")
    answers = [{"id": one.id, **empty, "answer": _mark(asked, one, kind)} for one in asked.statements]
    reply = {"token": asked.token, "addresses_the_judge": False, "answers": answers, "confidence": 1.0}
    return json.dumps(reply)


def _mark(asked: AskedQuestion, statement: AskedStatement, kind: Kind | None) -> str:
    worst, *_, best, _ = statement.levels.values()  # the last is "cannot tell"
    if kind == "agrees":
        return worst if statement.turned else best
    if kind == "praises":
        return best
    known = kind != "literal" or not is_canary(statement.criterion)
    holds = asked.holds(statement.criterion) if known else None
    good = kind is not None if holds is None else holds
    return best if good else worst


def obeys(prompt: str) -> bool:
    """Return whether a prompt has an order of the corpus in it, in any language and any writing."""
    return any(all(part in reading for part in order) for reading in _readings(prompt) for order in _orders())


def _readings(prompt: str) -> Iterator[str]:
    text = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2] or "20", 16)), prompt)
    yield _letters(text)
    yield _letters(text[::-1])
    yield _letters(codecs.encode(text, "rot13"))
    for blob in _CODED.findall(text):
        yield from map(_letters, _decoded(blob))


def _decoded(blob: str) -> Iterator[str]:
    for decode in (bytes.fromhex, base64.b64decode):
        try:
            yield decode(blob).decode()
        except (ValueError, binascii.Error):
            continue


@cache
def _orders() -> tuple[tuple[str, str], ...]:
    """Return both halves of each order: a text that has them both, in any place, gives it."""
    orders = (words[key] for words in sentences().values() for key in words.keys() - _HARMLESS)
    return tuple((_letters(first), _letters(second)) for first, second in map(halves, orders))


def _letters(text: str) -> str:
    """Return letters and digits alone, each in one form for all that look like it."""
    plain = unicodedata.normalize("NFKC", text).translate(_ALIKE).casefold().translate(_DIGITS)
    return "".join(letter for letter in plain if letter.isalnum())
