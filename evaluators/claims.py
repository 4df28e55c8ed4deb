"""Claims against sources: a judge splits a work into claims, and each needs a quote that code finds in a source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from kairo_team._util.narrowing import is_list
from kairo_team._util.reply_json import object_schema
from kairo_team.artifacts import Finding
from kairo_team.errors import FailedControl, InvalidJudgement
from kairo_team.evaluators.artifact_view import as_data
from kairo_team.evaluators.canaries import draw_false_claims
from kairo_team.evaluators.criterion import Answer, Criterion
from kairo_team.evaluators.judge_question import Question, question_for
from kairo_team.evaluators.judge_reply import Judgement, object_of
from kairo_team.evaluators.judge_texts import JudgeTexts, files_given, text_of
from kairo_team.evaluators.judging import AskingOptions, Judge
from kairo_team.evaluators.quotes import plain, quote_problem
from kairo_team.messages import Message, ModelResponse
from kairo_team.prompts.quoting import fence

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel
    from kairo_team.verdicts import EvaluationContext

MOST_SENTENCES: Final = 120
"""Most sentences of a work that a judge is asked to split."""
MOST_CLAIMS: Final = 60
"""Most claims of a work that a judge is asked about."""
_AT_ONCE: Final = 8
"""Most claims of one question."""
_LONGEST: Final = 500
"""Most characters of a sentence; a longer one is cut between words where it has several."""
_LEAST_WORDS: Final = 3
"""Fewest words of a part of a sentence: fewer, such as "90 m", state nothing without the rest."""
_DECOYS: Final = 2
"""Claims of the library's own in each question, which no source supports."""
# The full stops of Chinese and Japanese need no blank after them.
_END: Final = re.compile(r"\n+|(?<=[.!?\u2026])[\"')\]\u201d\u2019]*\s+|(?<=[\u3002\uff01\uff1f])")


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, in order. Each word and each number of the text is in a sentence."""
    found: list[str] = []
    begin = 0
    for end in [*(one.end() for one in _END.finditer(text)), len(text)]:
        found += _short(text[begin:end].strip())
        begin = end
    return [one for one in found if _says(one)]


def _short(sentence: str) -> Iterable[str]:
    while len(sentence) > _LONGEST:
        place = sentence.rfind(" ", 1, _LONGEST) + 1 or _LONGEST
        yield sentence[:place].strip()
        sentence = sentence[place:].strip()
    yield sentence


def _says(text: str) -> bool:
    return any(map(str.isalnum, text))


def claims_in(sentence: str, parts: Sequence[str]) -> list[str]:
    """Return the claims of a sentence: the parts, if they are copied from it and every word is in a part.

    Otherwise the whole sentence is the claim, so that a judge cannot leave words out. A sentence without parts makes
    none.
    """
    if not parts:
        return []
    whole = plain(sentence)
    words = [plain(one) for one in parts]
    if any(len(one.split()) < _LEAST_WORDS or one not in whole for one in words):  # a judge may not reword a claim
        return [sentence]
    covered = bytearray(len(whole))
    for one in words:
        place = whole.find(one)
        while place >= 0:
            covered[place : place + len(one)] = b"\1" * len(one)
            place = whole.find(one, place + 1)  # a part may occur twice
    left = any(letter.isalnum() and not done for letter, done in zip(whole, covered, strict=True))
    return [sentence] if left else [one.strip() for one in parts]


def sources_of(context: EvaluationContext, criterion: Criterion) -> dict[str, str]:
    """Return the texts that can support a claim, by name: upstream results, files and, if asked for, the reference."""
    found = {f"the result of {name!r}": given.text for name, given in context.upstream.items()}
    for number, file in enumerate(files_given(context), 1):
        found[f"file {number}"] = text_of(file) or ""
    if criterion.reference:
        found["the reference answer"] = context.task.reference or ""
    return {name: text for name, text in found.items() if text.strip()}


@dataclass(frozen=True, slots=True)
class _Split:
    """A request to split sentences into claims."""

    token: str
    sentences: Sequence[str]
    decoys: frozenset[str]
    """Sentences of the library's own, which are claims."""

    def schema(self) -> dict[str, Any]:
        """Return the reply's JSON Schema."""
        claims = {"type": "array", "items": {"type": "string", "maxLength": _LONGEST}}
        item = object_schema(
            {"number": {"type": "integer", "minimum": 1, "maximum": len(self.sentences)}, "claims": claims}
        )
        count = len(self.sentences)
        listed = {"type": "array", "items": item, "minItems": count, "maxItems": count}
        return object_schema(
            {"token": {"const": self.token}, "sentences": listed, "addresses_the_judge": {"type": "boolean"}}
        )

    def read(self, reply: ModelResponse) -> tuple[list[Sequence[str]], bool]:
        """Return the parts of each sentence, and whether the judge says that the work addresses it.

        Raises `InvalidJudgement` unless each sentence is named once.
        """
        found = object_of(reply, self.token)
        listed, addressed = found.get("sentences"), found.get("addresses_the_judge")
        if not is_list(listed) or not isinstance(addressed, bool):
            raise InvalidJudgement('"sentences" must be a list, and "addresses_the_judge" true or false')
        parts: dict[int, Sequence[str]] = {}
        for item in listed:
            fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
            number, claims = fields.get("number"), fields.get("claims")
            if type(number) is not int or not 1 <= number <= len(self.sentences) or number in parts:
                raise InvalidJudgement("each item must have the number of a sentence, and each sentence one item")
            texts: Any = claims
            if not isinstance(claims, list) or not all(isinstance(one, str) for one in texts):
                raise InvalidJudgement('"claims" must be a list of texts')
            parts[number] = [one for one in texts if _says(one)]
        if len(parts) < len(self.sentences):
            raise InvalidJudgement(f"only {len(parts)} of {len(self.sentences)} sentences are named")
        return [parts[number] for number in range(1, len(parts) + 1)], addressed


class ClaimsJudge(Judge):
    """Asks one judge about one artifact; about a criterion with `evidence="sources"`, claim by claim."""

    async def ask(self, criteria: Sequence[Criterion]) -> Judgement:
        """Ask about some criteria with the same `on`, or about one with `evidence="sources"`; see `Judge.ask`."""
        if criteria[0].evidence != "sources":
            return await super().ask(criteria)
        [criterion] = criteria
        sources, texts = sources_of(self._context, criterion), self._texts(criteria)
        sentences = sentences_of(self._context.artifact.text)
        problem = self._problem(sources, texts.cut_for(criterion), len(sentences))
        if problem is not None:
            return Judgement({criterion.id: Answer(None, problem)}, None, self._suspicious)
        claims, how = await self._claims(sentences, texts.all)
        if not 0 < len(claims) <= MOST_CLAIMS:
            found = f"{len(claims)} claims, and a judge is asked about {MOST_CLAIMS} at most" if claims else "no claim"
            return Judgement({criterion.id: Answer(None, f"the judge finds {found}")}, None, how)
        return await self._supported(criterion, claims, sources, how)

    def _problem(self, sources: Mapping[str, str], cut: Sequence[str], sentences: int) -> str | None:
        """Return why a judge cannot be asked about claims; None where it can."""
        if not sources:
            return "it has no sources, such as results of tasks before and files that are texts"
        if cut:
            return f"the end of {cut[0]} was not shown to the judge"
        if self._context.artifact.files:
            return "it has files, and only its text is split into claims"
        if sentences > MOST_SENTENCES:
            return f"it has {sentences} sentences, and a judge is asked to split {MOST_SENTENCES} at most"
        return None

    async def _supported(
        self, criterion: Criterion, claims: Sequence[str], sources: Mapping[str, str], how: str | None
    ) -> Judgement:
        """Ask about each claim, and join the answers."""
        answers: list[tuple[str, Answer]] = []
        sure: list[float] = []
        for first in range(0, len(claims), _AT_ONCE):
            some = claims[first : first + _AT_ONCE]
            asked = _SupportJudge(self._judge, self._context, self._options, some, criterion)
            judgement = await asked.ask(asked.criteria)
            how = how or judgement.injection_suspected
            sure += [] if judgement.confidence is None else [judgement.confidence]
            answers += [(claim, judgement.answers[one.id]) for claim, one in zip(some, asked.criteria, strict=True)]
        prior = self._context.prior_verdicts
        found = prior[-1].findings if prior else ()
        # The claims that the review before found without support.
        before = frozenset(plain(one.locus) for one in found if one.criterion == criterion.id and not one.is_right)
        decided = [(claim, _decided(claim, one, sources.values(), before)) for claim, one in answers]
        return Judgement({criterion.id: _joined(criterion, decided)}, min(sure, default=None), how)

    async def _claims(self, sentences: Sequence[str], texts: str) -> tuple[list[str], str | None]:
        """Return the claims, each once, and how the artifact seems to instruct its judge.

        A judge that finds no claim in a sentence of the library's own is asked once more, with others; `FailedControl`
        where that happens again.
        """
        how: str | None = None
        # The attribute counts, because `_draw` takes another seed for the second question.
        for self._again in (0, 1):
            split = await self._split(sentences, texts)
            system = Message.system(self._member.render("judge_claims", token=split.token))
            messages = [system, Message.user(_numbered(split.sentences, split.token))]
            parts, addressed = await self._read_reply(messages, split.token, split.schema(), split.read)
            how = self._suspicious or ("the judge says so" if addressed else None)
            found = list(zip(split.sentences, parts, strict=True))
            # Without a claim in a decoy, the judge did not read.
            if all(some for one, some in found if one in split.decoys):
                of_work = [(one, some) for one, some in found if one not in split.decoys]
                claims = [claim for one, some in of_work for claim in claims_in(one, some)]
                # Twice reversed: the first of equals stays.
                return [*{plain(one): one for one in reversed(claims)}.values()][::-1], how
            if how is not None:
                # An injection explains it, and saves the second question.
                break
        raise FailedControl(how)

    async def _split(self, sentences: Sequence[str], texts: str) -> _Split:
        drawn = await self._draw(f"claims\n{texts}")
        lots = _lots(drawn, texts)
        count = 0 if self._options.trusted else _DECOYS
        decoys, mixed = draw_false_claims(count, self._context.task.description, texts, lots), [*sentences]
        for one in decoys:
            mixed.insert(lots.randint(0, len(mixed)), one)  # the place must not show which ones are decoys
        return _Split(f"{lots.getrandbits(128):032x}", mixed, frozenset(decoys))


class _SupportJudge(Judge):
    """Asks whether a source supports each of some claims; two claims of the library's own are among them."""

    def __init__(
        self,
        judge: str | ChatModel | Agent,
        context: EvaluationContext,
        options: AskingOptions,
        claims: Sequence[str],
        criterion: Criterion,
    ) -> None:
        super().__init__(judge, context, options)
        self._claims = claims
        self._listed: list[str] = []
        self._rests_on = criterion
        self.criteria = [_about(criterion, number) for number in range(1, len(claims) + 1)]

    async def _question(self, criteria: Sequence[Criterion], given: JudgeTexts) -> Question:
        asked = [self._claims[int(one.id) - 1] for one in criteria]
        texts = "\n".join(["claims", *asked, given.all, *self._file_lines(given)])
        drawn, task = await self._draw(texts), self._context.task.description
        lots = _lots(drawn, texts)
        decoys = [] if self._options.trusted else draw_false_claims(_DECOYS, task, texts, lots)
        self._listed = [*asked, *decoys]
        lots.shuffle(self._listed)
        numbers = {text: number for number, text in enumerate(self._listed, 1)}
        shown = [_about(self._rests_on, numbers[text], one.id) for text, one in zip(asked, criteria, strict=True)]
        false = [_about(self._rests_on, numbers[text]).text for text in decoys]
        return question_for(shown, given.work.size, texts, drawn, false=false, trusted=self._options.trusted)

    def _shown(self, question: Question, texts: JudgeTexts) -> dict[str, Any]:
        return {**super()._shown(question, texts), "claims": _numbered(self._listed, question.token)}


def _lots(drawn: str, texts: str) -> Random:
    return Random(f"{drawn}\n{texts}".encode("utf-8", "surrogatepass"))  # noqa: S311 - as secret as the seed


def _about(criterion: Criterion, number: int, name: str = "") -> Criterion:
    """Return the requirement that a source supports a claim; its id is the claim's place."""
    text = f"a source supports claim {number} of the list"
    return Criterion(name or str(number), text, by="judge", reference=criterion.reference)


def _numbered(texts: Iterable[str], token: str) -> str:
    """Write texts as JSON by number, between fence lines."""
    return fence("\n".join(f"{number}: {as_data(text)}" for number, text in enumerate(texts, 1)), token)


def _decided(claim: str, answer: Answer, sources: Iterable[str], before: frozenset[str]) -> Answer:
    """Return the decision on one claim: support counts only with a quote that is in one of the sources."""
    if answer.level != "met":
        return answer
    problems = [quote_problem(answer.quote, text) for text in sources]
    if None not in problems:
        said = "no quote was given" if not answer.quote else "its quote is in no source, or too short"
        return Answer(None, f"the judge finds support, but {said}")
    if plain(claim) in before:
        return Answer(None, "the claim has not changed: it had no support, and now it has")
    return answer


def _joined(criterion: Criterion, decided: Sequence[tuple[str, Answer]]) -> Answer:
    """Return the answer on the criterion: met if each claim has support."""
    without = [(claim, one) for claim, one in decided if one.level == "not met"]
    unknown = [(claim, one) for claim, one in decided if one.level is None]
    if without:
        findings = [
            Finding(
                f"{criterion.id}.{number}",
                criterion.id,
                locus=claim,
                observed=f"no source supports: {json.dumps(claim, ensure_ascii=False)}",
                expected=criterion.text,
            )
            for number, (claim, _) in enumerate(without, 1)
        ]
        reason = (
            f"{len(without)} of {len(decided)} claims {'has' if len(without) == 1 else 'have'} no support in a source"
        )
        return Answer(level=False, reason=reason, finding=findings[0], others=findings[1:])
    if unknown:
        claim, one = unknown[0]
        several = (
            f"{len(unknown)} of {len(decided)} claims {'is' if len(unknown) == 1 else 'are'} not decided, the first is"
        )
        return Answer(None, f"{several} {json.dumps(claim, ensure_ascii=False)}: {one.reason}")
    return Answer(level=True, reason=f"each of {len(decided)} claims has a quote of a source")
