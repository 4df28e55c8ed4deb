"""`injection-screen`: text from outside that tries to give the model instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, cast

from kairo_team._util.frozen import EMPTY, freeze
from kairo_team.governance.guardrails import check_phases
from kairo_team.governance.policies.text_readings import compiled, readings
from kairo_team.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase, ModelInput

# Lazy and bounded, so that no text makes the search slow.
_GAP: Final = r"\b[^.!?]{0,40}?\b"
"""A few words of the same sentence."""
_SIGNS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for name, pattern in {
        "instruction override": (
            rf"\b(?:ignore|disregard|forget|override|bypass|drop){_GAP}"
            rf"(?:previous|prior|above|earlier|preceding|former|existing|original|all|any|your|these|the system){_GAP}"
            r"(?:instructions?|prompts?|rules?|directives?|guidelines?|orders?|commands?|constraints?|safeguards?)\b"
        ),
        "role spoofing": (
            r"<\|[a-z_]{2,32}\|>|\[/?INST\]|<</?SYS>>|</?(?:system|assistant|developer)(?:[ _-]?(?:prompt|message))?>"
            r"|^[\s>*#`]{0,8}(?:system|developer|assistant)(?: (?:prompt|message|note|instruction))?\s?[:\]]"
        ),
        "change of persona": (
            r"\b(?:you are|act as|pretend to be|behave as|become)(?: now)?"
            r"\b[^.!?]{0,30}\b(?:DAN|jailbroken|unrestricted|unfiltered|uncensored|without (?:any )?restrictions)\b"
            r"|\bdo anything now\b|\b(?:enable|enter|activate) (?:developer|debug|god|admin) mode\b"
        ),
        "prompt extraction": (
            rf"\b(?:reveal|repeat|print|show|output|recite|disclose|leak|tell me){_GAP}"
            r"(?:system|hidden|initial|original|secret) (?:prompt|instructions?|message|rules)\b"
        ),
        "concealment": (
            r"\b(?:do not|don't|never|without) (?:tell|telling|inform|informing|alert|alerting|notify|notifying"
            r"|mention|mentioning)\b[^.!?]{0,30}\b(?:user|human|operator|owner|anyone)\b"
        ),
    }.items()
}
_HIDDEN: Final = re.compile(
    "(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0000-\U000e007f]"  # tags; flags of regions are spelt with them
    "|[\u202a-\u202e\u2066-\u2069]"  # text that is shown in another order
    "|[\u200b\u2060\ufeff\u00ad]{2}|[A-Za-z][\u200b-\u200d\u2060\ufeff][A-Za-z]"
    "|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3}"
)
"""Invisible characters, in places where no script needs them."""
_QUOTED: Final = 80
"""Longest quotation of a match in the reason, in characters."""


@dataclass(frozen=True, slots=True)
class InjectionScreen:
    """Warn of text that looks like an attempt to take the model over; the reason names the matches.

    It looks for instructions to forget instructions, marks of another role, changes of persona, questions for the
    prompt, requests to keep the user in the dark, and invisible characters. In a conversation it reads only text from
    outside: the messages of the user and of tools, at every call. It is a smoke detector: it knows common forms in
    English and also reports some harmless ones. Use permissions instead where they can decide.
    """

    name: ClassVar[str] = "injection-screen"
    patterns: Mapping[str, str] = field(default=EMPTY, hash=False)
    """Additional regular expressions, each under the name of the sign it reports."""
    action: Literal["warn", "deny"] = "warn"
    phases: Iterable[GuardrailPhase] = field(
        default=frozenset({GuardrailPhase.PRE_MODEL, GuardrailPhase.POST_TOOL}), kw_only=True
    )
    order: float = field(default=0, kw_only=True)
    _own: Mapping[str, re.Pattern[str]] = field(default=EMPTY, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given: Any = self.patterns
        if not isinstance(given, Mapping):
            raise ValueError(f"InjectionScreen.patterns must be regular expressions by name, not {given!r}")
        by_name = cast("Mapping[str, Any]", given)
        own = compiled("InjectionScreen.patterns", tuple(by_name.values()), ignore_case=True)
        if self.action not in {"warn", "deny"}:
            raise ValueError(f"InjectionScreen.action must be 'warn' or 'deny', not {self.action!r}")
        object.__setattr__(self, "patterns", freeze(by_name))
        object.__setattr__(self, "_own", dict(zip(by_name, own, strict=True)))
        object.__setattr__(self, "phases", check_phases(self.name, self.phases))

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Look for the signs."""
        found: dict[str, str] = {}
        texts: Iterable[str]
        if isinstance(context.payload, ModelInput):  # only text from outside
            texts = [message.text for message in context.payload.messages if message.role in {"user", "tool"}]
        else:
            texts = context.payload.texts
        for piece in texts:
            found = signs_of(piece, {**_SIGNS, **self._own}) | found  # the first quotation of a sign stays
        if not found:
            return GuardrailDecision.allow()
        signs = ", ".join(f"{sign} ({quote})" for sign, quote in found.items())
        reason = f"it looks like an attempt to take the model over: {signs}"
        return GuardrailDecision.deny(reason) if self.action == "deny" else GuardrailDecision.warn(reason)


def signs_of(text: str, signs: Mapping[str, re.Pattern[str]]) -> dict[str, str]:
    """Return the signs of an attack in a text by name, each with the matched text.

    `signs` are patterns by name. Hidden characters are always searched for.
    """
    found: dict[str, str] = {}
    hidden = _HIDDEN.search(text)
    if hidden is not None:
        found["hidden characters"] = ascii(hidden.group())  # searched before `readings`, which remove them
    for reading in readings(text):
        for sign, pattern in signs.items():
            if sign not in found and (match := pattern.search(reading)) is not None:
                found[sign] = repr(match.group()[:_QUOTED])
    return found
