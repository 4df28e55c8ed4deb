"""A check of the language that a text is written in."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from kairo_team.errors import MissingExtra
from kairo_team.evaluators.checks.named_check import NamedCheck, by_name
from kairo_team.evaluators.criterion import Answer

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact

LOOKED_AT: Final = 5_000
"""Most characters that are read; more would not make the result surer."""


@by_name
def language(*codes: str, sure: float = 0.5) -> NamedCheck:
    """Make a check that the text is in one of these languages, by codes such as `"en"` (ISO 639-1, where there is one).

    Needs the extra `language`: a deterministic model of 139 languages. `sure` is a probability above 0 and at most 1.
    The check passes when the given languages reach it together, and fails when another language reaches it; if none
    does, as in a few words, the criterion is left undecided. Raises `MissingExtra`, and `ValueError` for invalid codes.
    """
    if find_spec("py3langid") is None:  # now, and not in a run
        raise MissingExtra("the check language", "language")
    if not codes or not all(isinstance(code, str) and code.isalpha() and code.islower() for code in codes):
        raise ValueError(f"language takes codes such as 'en' and 'de', not {codes!r}")
    if not 0 < sure <= 1:
        raise ValueError(f"language: sure must be above 0 and at most 1, not {sure!r}")

    def check(artifact: Artifact) -> bool | str | Answer:
        likely: dict[str, float] = dict(_identifier().rank(artifact.text[:LOOKED_AT]))
        wanted = sum(likely.get(code, 0.0) for code in codes)
        if wanted >= sure:
            return True
        best = max(likely, key=lambda code: likely[code])
        if best not in codes and likely[best] >= sure:
            return f"it is written in {best!r} instead of {' or '.join(map(repr, codes))}"
        return Answer(None, f"no language is sure: {best!r} has a probability of {likely[best]:.2f}")

    return NamedCheck(f"language({', '.join(map(repr, codes))}, sure={sure!r})", check, in_place=False)


@cache
def _identifier() -> Any:
    """Load the model once, which takes about a second."""
    langid: Any = import_module("py3langid.langid")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
