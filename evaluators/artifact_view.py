"""Show a judge an artifact: as data, with hidden characters made visible."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kairo_team._util.masking import is_hidden, is_seen
from kairo_team.evaluators.look_alikes import as_read
from kairo_team.prompts.quoting import fence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.artifacts import Artifact

MAX_SHOWN: Final = 60_000
"""Most characters that a judge is shown of all texts together."""
_REPEATED: Final = 10
"""How often a line or a passage occurs before the artifact counts as repeating itself."""
_MOSTLY: Final = 0.8
_LEAST_REPETITIVE: Final = 60
"""Characters below which a text may repeat itself, as "ha ha ha" does."""
_PASSAGE: Final = 200
"""Most characters of a passage to search for."""


@dataclass(frozen=True, slots=True)
class ArtifactView:
    """An artifact as a judge sees it."""

    text: str
    """The artifact as a JSON string, with hidden characters as escapes."""
    plain: str
    """The same with look-alike characters replaced by plain ones; "" where it has no such characters."""
    size: int
    """How many characters are shown."""
    hidden: int
    """How many of them are invisible."""
    whole: bool
    """False: the artifact was cut; the judge did not see the rest."""

    def fenced(self, token: str, label: str) -> str:
        """Put the text between lines that it cannot imitate, with a label after it; both are this call's own."""
        shown = [fence(self.text, token)]
        if self.plain:
            shown += ["With plain characters instead of those that look like them:", fence(self.plain, token)]
        return "\n".join([*shown, f"Its label: {label}"])


def view_of(text: str, *, whole: bool = True) -> ArtifactView:
    """Return what a judge is shown of an artifact's text, which may have been cut."""
    read, hidden = as_read(text), sum(map(is_hidden, text))
    plain = "" if read == text else as_data(read)
    return ArtifactView(as_data(text), plain, len(text), hidden, whole=whole)


def fitted(texts: Sequence[str], most: int = MAX_SHOWN) -> list[str]:
    """Cut the longest texts to about the same length, so that all together have at most `most` characters."""
    cut, left = list(texts), most
    # The shortest first, because their unused share goes to the longer ones.
    shortest_first = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    for done, place in enumerate(shortest_first):
        cut[place] = texts[place][: left // (len(texts) - done)]
        left -= len(cut[place])
    return cut


def as_data(text: str) -> str:
    """Write a text as one JSON string, with hidden characters as escapes."""
    letters = json.dumps(text, ensure_ascii=False)
    return "".join(f"\\u{{{ord(letter):x}}}" if is_hidden(letter) else letter for letter in letters)


def obvious_defect(artifact: Artifact) -> str | None:
    """Return a defect that needs no judge, such as a blank or cut-off artifact; None where a judge has to decide."""
    if not artifact.files and not any(letter.isalnum() and is_seen(letter) for letter in artifact.text):
        return "it says nothing"
    if artifact.partial:
        return "it was cut off before it was finished"
    return "it says the same again and again" if _repeats_itself(artifact.text) else None


def _repeats_itself(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    most = max(Counter(lines).values(), default=0)
    if most >= _REPEATED and most >= _MOSTLY * len(lines):
        return True
    words = " ".join(text.split()) + " "  # a blank at the end, so that the last passage equals the others
    if len(words) < _LEAST_REPETITIVE:
        return False
    for length in range(2, min(_PASSAGE, len(words) // _REPEATED) + 1):
        most_of_them = max(_REPEATED, int(len(words) // length * _MOSTLY))
        if words.startswith(words[:length] * most_of_them):
            return True
    return False
