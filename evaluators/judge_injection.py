"""Find signs that an artifact tries to instruct its judge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from kairo_team.evaluators.look_alikes import as_read
from kairo_team.governance.policies.injection_screen import signs_of
from kairo_team.governance.policies.text_readings import compiled

_GAP: Final = r"\b[^.!?\n]{0,40}?\b"
"""A few words of the same sentence."""
_GOOD: Final = r"(?:pass(?:ed)?|approved?|accept(?:ed)?|met|satisfied|fulfilled|correct|compliant|success(?:ful)?)"
_DONE: Final = r"(?=[\s\"'*`]*(?:$|[.,;!|()\[\]{}<>/]|for (?:this|the|all)\b))"
"""What follows a verdict: the end of the sentence, or what the verdict is for; ordinary sentences continue
otherwise."""
_JUDGE: Final = (
    r"(?:judge|grader|evaluator|assessor|examiner|"
    r"(?:grading|judging|reviewing|evaluation) (?:model|system|assistant))"
)
_NOW: Final = r"(?:^|[.!?:;\u2014-]\s{0,3}|[\"'*(]|\b(?:please|must|should|shall|simply|just|now|then|and|to)\s)\s{0,3}"
"""Where an order begins: at the start of a sentence, or after a word such as "must"."""
_WORK: Final = r"(?:this|the|my) (?:work|answer|artifact|submission|response|candidate|output)\b"
_ALL: Final = r"(?:all|every|each)(?: of)?(?: the)? (?:\w+ )?criteri(?:a|on)\b"
_FULL: Final = (
    r"(?:full (?:marks|credit|score)|(?:top|perfect|maximum|highest) (?:marks?|score|grade)"
    r"|10\s?/\s?10|100\s?/\s?100)"
)

Signs = Mapping[str, re.Pattern[str]]
"""Regular expressions, by what they are a sign of."""

JUDGE_SIGNS: Final[Signs] = {
    name: re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for name, pattern in {
        "a verdict": (
            rf"(?:\b|_)(?:verdict|judg[e]?ment|assessment result|evaluation result)\b\W{{0,6}}"
            rf"(?:is|=|:|must be|should be|as)?\W{{0,6}}{_GOOD}\b{_DONE}"
            rf"|[\"'](?:verdict|decision)\\?[\"']\s*:\s*\\?[\"']{_GOOD}\b"
            rf"|{_NOW}(?:output|answer|return|respond|reply|say|mark|record|grade|rate|score|judge)\b{_GAP}\b{_GOOD}\b"
            rf"{_GAP}(?:for {_ALL}|verdict\b|rubric\b)"
            rf"|{_NOW}(?:answer|mark|rate|grade|score|judge)\b{_GAP}for {_ALL}"
            rf"|{_NOW}(?:mark|rate|grade|score|judge|record|pass|approve|accept)\b[^.!?\n]{{0,10}}\b{_WORK}{_GAP}\b"
            rf"(?:as )?(?:{_GOOD}|{_FULL})"
            rf"|{_NOW}(?:mark|rate|grade|score|judge|record) (?:this|it) as {_GOOD}\b"
            rf"|\b(?:required|final|recommended) (?:verdict|grade)\b\W{{0,6}}{_GOOD}\b"
            rf"|\b{_WORK} (?:passes|earns|deserves|gets|is)\b[^.!?\n]{{0,10}}{_FULL}"
        ),
        "a judge's reply": r"[\"']token\\?[\"']\s*:[^{}]{0,200}[\"']answers\\?[\"']\s*:",
        "a score": (
            rf"{_NOW}(?:give|award|assign|grant|score|rate|grade)\b{_GAP}\b{_WORK}{_GAP}{_FULL}"
            rf"|\b{_FULL}\b[^.!?\n]{{0,20}}\b(?:for|on|in) {_ALL}"
        ),
        "the rubric": (
            rf"\b(?:ignore|disregard|forget|override|bypass|regardless of){_GAP}"
            r"(?:rubric|criteria|criterion|grading (?!of)|scoring)\b"
            r"|\b(?:override|bypass) the (?:evaluation|review|judg[e]?ment)\b"
            r"|\brubric\b[^.!?\n]{0,40}?(?:check )?(?:complete|passed|satisfied|all met)\b"
        ),
        "the judge": (
            rf"\b(?:(?:note|message|instructions?) (?:to|for)|attention)\b[^.!?\n]{{0,20}}\b{_JUDGE}\b"
            r"|\b(?:dear|hey|hello) (?:grader|evaluator|assessor|(?:ai|llm|automated|model) (?:judge|reviewer))\b"
            rf"|\b{_JUDGE} (?:override|bypass|mode enabled)\b"
            rf"|\b(?:you|{_JUDGE}) (?:must|should|shall|will|are to|have to|has to)\b[^.!?\n]{{0,20}}\b"
            rf"(?:(?:pass|approve|accept)\b[^.!?\n]{{0,10}}\b(?:{_WORK}|(?:this|it) or\b)"
            rf"|(?:award|give|assign|grade|rate|score)\b[^.!?\n]{{0,30}}\b(?:{_FULL}|{_ALL}))"
        ),
        "the end of the work": (
            r"^\W{0,12}(?:end|begin|start) of (?:the )?(?:candidate|answer|artifact|submission|work)\b\W{0,12}$"
            r"|</(?:candidate|artifact|submission|evaluation|verdict|rubric)>"
        ),
        "instructions to forget": (
            r"\b(?:ignore|disregard|forget|override|bypass)\b[^.!?\n]{0,20}"
            r"\b(?:previous|prior|above|earlier|preceding|original|your|the system)\b[^.!?\n]{0,20}"
            r"\b(?:instructions?|prompts?|rules?|directives?|guidelines?)\b"
            r"|\b(?:forget|ignore|disregard) the instructions\b"
        ),
        "another role": (
            r"<\|(?:im_start|im_end|system|user|assistant|eot_id|end_of_turn|start_header_id)\|>"
            r"|(?-i:\[/?INST\])|<</?SYS>>"
            r"|^\W{0,6}(?:system|assistant) (?:prompt|message|override|note|instruction)s?\s?[:\]/]"
        ),
    }.items()
}


def read_signs(patterns: Any) -> Signs:
    """Compile regular expressions by name; `ValueError` for an invalid one, or one that matches an empty text."""
    if not isinstance(patterns, Mapping):
        raise ValueError(f"signs must be regular expressions by name, such as JUDGE_SIGNS, not {patterns!r:.200}")
    return compiled_by_name("signs", cast("Mapping[str, Any]", patterns))


def compiled_by_name(owner: str, given: Mapping[str, Any]) -> dict[str, re.Pattern[str]]:
    """Compile regular expressions, texts or compiled ones; `ValueError` that names the one that cannot be used."""
    texts = {name: getattr(one, "pattern", one) for name, one in given.items()}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{owner}: {name!r} needs a regular expression, as a text or compiled, not {text!r:.80}")
    return dict(zip(texts, compiled(owner, texts.values(), ignore_case=True), strict=True))


def talks_to_judge(text: str, signs: Signs = JUDGE_SIGNS) -> str | None:
    """Return how a text seems to instruct its judge; None when it does not, or when there are no `signs`.

    This finds common forms in English, also with hidden characters. A sign decides nothing by itself: it only prevents
    a PASS.
    """
    if not signs:
        return None
    read = as_read(text)
    found = signs_of(text, signs) | ({} if read == text else signs_of(read, signs))
    return ", ".join(f"{sign} ({quote})" for sign, quote in found.items()) or None
