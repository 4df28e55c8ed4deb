"""`pii-redactor`: replaces personal data in texts of models and tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from kairo_team._util.frozen import EMPTY, freeze
from kairo_team.errors import known
from kairo_team.governance.guardrails import check_phases
from kairo_team.governance.policies.personal_data import FINDERS, Replace
from kairo_team.governance.policies.text_readings import compiled, rewrite
from kairo_team.guardrails import GuardrailDecision, GuardrailPhase

if TYPE_CHECKING:
    from kairo_team.guardrails import GuardrailContext


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
    _finders: Mapping[str, Replace] = field(default=EMPTY, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds: Any = self.kinds
        if isinstance(kinds, str) or not isinstance(kinds, Iterable):
            raise ValueError(f"PiiRedactor.kinds must be a list of {known(FINDERS)}, not {kinds!r}")
        wanted = tuple(cast("Iterable[Any]", kinds))  # type: ignore[redundant-cast]  # pyright needs it
        strange = [kind for kind in wanted if kind not in FINDERS]
        if strange:
            raise ValueError(f"PiiRedactor.kinds: there is no {strange[0]!r}; there are {known(FINDERS)}")
        own = _own(self.patterns)
        if not (wanted or own):
            raise ValueError("a PiiRedactor needs kinds or patterns to look for: without any it redacts nothing")
        object.__setattr__(self, "kinds", tuple(kind for kind in FINDERS if kind in wanted))
        object.__setattr__(self, "patterns", freeze(self.patterns))
        object.__setattr__(self, "_finders", own | {kind: FINDERS[kind] for kind in FINDERS if kind in wanted})
        object.__setattr__(self, "phases", check_phases(self.name, self.phases))

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Replace what is found."""
        counts: Counter[str] = Counter()

        def redact(text: str) -> str:
            for kind, replace in self._finders.items():
                text, found = replace(text, f"[{kind}]")
                counts[kind] += found
            return text

        redacted = context.payload.map_text(lambda piece: rewrite(piece, redact))
        if redacted is context.payload:
            return GuardrailDecision.allow()
        found = ", ".join(kind for kind, number in counts.items() if number)
        return GuardrailDecision.modify(f"personal data redacted: {found}", redacted)


def _own(patterns: Any) -> dict[str, Replace]:
    """Return the functions that replace the user's own patterns, by label."""
    if not isinstance(patterns, Mapping):
        raise ValueError(f"PiiRedactor.patterns must be regular expressions by label, not {patterns!r}")
    by_label = cast("Mapping[str, Any]", patterns)
    made = compiled("PiiRedactor.patterns", tuple(by_label.values()), ignore_case=False)

    def replaces(position: int) -> Replace:
        return lambda text, label: made[position].subn(lambda _: label, text)

    return {label: replaces(position) for position, label in enumerate(by_label)}
