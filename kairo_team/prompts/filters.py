"""Jinja filters for the texts in templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from jinja2 import pass_context
from jinja2.runtime import Context

from kairo_team.prompts.quoting import cap, fence, is_short_line, one_line

_CLOSING: Final = "'\")]}>`*_\u2019\u201d\u00bb"
"""Characters that may follow the end of a sentence."""
_ENDS: Final = (".", "!", "?", ":", ";", "\u2026", "\u3002", "\uff01", "\uff1f")
"""Characters that end a sentence, or announce more."""


@pass_context
def fenced(context: Context, text: object) -> str:
    """Put a text between fence lines."""
    return fence(str(text), str(context["mark"]))


@pass_context
def said(context: Context, text: object) -> str:
    """Put a short line of the caller after a space; fence any other text, and every text if `foreign` is true."""
    words = str(text)
    if not context["foreign"] and is_short_line(words):
        return f" {words}"
    return "\n" + fence(words, str(context["mark"]))


def sentence(text: object) -> str:
    """End a text that is not empty with a full stop if it needs one, so that another sentence can follow."""
    words = str(text).strip()
    ended = words.rstrip(_CLOSING).endswith(_ENDS)
    return f"{words}." if words and not ended else words


FILTERS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {"cap": cap, "fenced": fenced, "one_line": one_line, "said": said, "sentence": sentence}
)
