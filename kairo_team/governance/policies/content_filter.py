"""`content-filter`: denies or replaces words and patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kairo_team._util.frozen import check_kind
from kairo_team.budget import check_count
from kairo_team.governance.guardrails import check_phases
from kairo_team.governance.policies.text_readings import compiled, readings, rewrite
from kairo_team.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase

Patterns = tuple[re.Pattern[str], ...]

CREDENTIALS: Final = (
    # `\Z`: a key that is cut off is a key.
    r"(?s:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z))",
    r"\b(?-i:(?:AKIA|ASIA)[A-Z0-9]{16})\b",
    r"\b(?-i:gh[oprsu]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}|glpat-[A-Za-z0-9_-]{20,255})",
    r"\b(?-i:sk-[A-Za-z0-9_-]{20,255}|[rs]k_live_[A-Za-z0-9]{16,255})",
    r"\b(?-i:AIza[A-Za-z0-9_-]{35})",
    r"\b(?-i:xox[abeoprs]-[A-Za-z0-9-]{10,255})",
    r"\b(?-i:eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096})",
)
"""Forms of credentials: private keys, AWS access keys, GitHub and GitLab tokens, keys of OpenAI, Anthropic, Stripe and
Google, Slack tokens, and signed web tokens (JWT)."""


@dataclass(frozen=True, slots=True)
class ContentFilter:
    r"""Deny a text that matches one of `patterns`; replace each match of one of `mask`.

    Both are Python regular expressions, such as `r"\bproject falcon\b"`. They are searched in every piece of text:
    messages, replies, arguments of tool calls. Invisible and look-alike characters and JSON escapes do not hide a
    match.

    A filter without `patterns` and `mask` masks `CREDENTIALS`: keys and tokens in unmistakable forms.

    Python gives a search no time limit. A pattern with nested quantifiers, such as `(a+)+b`, can run for ever on a
    crafted text: avoid them. A piece of more than `longest` characters is denied without a search.
    """

    name: ClassVar[str] = "content-filter"
    patterns: Iterable[str] | None = None
    mask: Iterable[str] | None = None
    replacement: str = "[FILTERED]"
    """Replaces each match of `mask`."""
    ignore_case: bool = True
    longest: int = 1_000_000
    phases: Iterable[GuardrailPhase] = field(
        default=frozenset({GuardrailPhase.PRE_MODEL, GuardrailPhase.POST_MODEL}), kw_only=True
    )
    order: float = field(default=0, kw_only=True)
    _denied: Patterns = field(default=(), init=False, repr=False, compare=False)
    _masked: Patterns = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        default = CREDENTIALS if self.patterns is None and self.mask is None else ()
        given: Any = {
            "patterns": () if self.patterns is None else self.patterns,
            "mask": default if self.mask is None else self.mask,
        }
        for what, kept in (("patterns", "_denied"), ("mask", "_masked")):
            made = compiled(f"ContentFilter.{what}", given[what], ignore_case=self.ignore_case)
            object.__setattr__(self, kept, made)
            object.__setattr__(self, what, tuple(one.pattern for one in made))
        if not (self._denied or self._masked):
            raise ValueError("a ContentFilter needs patterns to deny or to mask: without any it lets everything pass")
        check_kind("ContentFilter.replacement", self.replacement, str)
        check_count("ContentFilter.longest", self.longest, 1)
        object.__setattr__(self, "phases", check_phases(self.name, self.phases))

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Search for the patterns."""
        for piece in context.payload.texts:
            if len(piece) > self.longest:
                return GuardrailDecision.deny(
                    f"a text of {len(piece)} characters is too long to search: the most is {self.longest}"
                )
            found = self._found(piece)
            if found is not None:
                return GuardrailDecision.deny(f"it holds what {found!r} looks for")
        if not self._masked:
            return GuardrailDecision.allow()
        masked = context.payload.map_text(lambda piece: rewrite(piece, self._replace))
        if masked is context.payload:
            return GuardrailDecision.allow()
        return GuardrailDecision.modify(f"replaced forbidden text by {self.replacement!r}", masked)

    def _found(self, piece: str) -> str | None:
        if not self._denied:
            return None
        for text in readings(piece):
            for pattern in self._denied:
                if pattern.search(text) is not None:
                    return pattern.pattern
        return None

    def _replace(self, text: str) -> str:
        for pattern in self._masked:
            text = pattern.sub(lambda _: self.replacement, text)  # a function, since a string may have group references
        return text
