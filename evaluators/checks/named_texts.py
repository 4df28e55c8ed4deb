"""Find the texts that a check compares an artifact with: by name, fixed or from the context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kairo_team._util.narrowing import is_mapping

if TYPE_CHECKING:
    from kairo_team.verdicts import EvaluationContext

Texts = Mapping[str, str] | Callable[["EvaluationContext"], Mapping[str, str]] | None
"""Texts by name; a function of the context that returns them; None: the artifacts of the task's dependencies."""

FindTexts = Callable[["EvaluationContext"], dict[str, str]]


def named_texts(owner: str, texts: Texts) -> FindTexts:
    """Return a function that finds the texts; `ValueError`, with `owner` named, for anything but texts by name."""
    if texts is None:
        return _upstream
    if callable(texts):
        found = texts
        return lambda context: _checked(owner, found(context))
    fixed = _checked(owner, texts)
    return lambda _: fixed


def _upstream(context: EvaluationContext) -> dict[str, str]:
    return {name: artifact.text for name, artifact in context.upstream.items()}


def _checked(owner: str, texts: Any) -> dict[str, str]:
    if not is_mapping(texts):
        raise ValueError(f"{owner} takes texts by name, not {type(texts).__name__}")
    named = dict(texts)
    for name, text in named.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError(f"{owner} takes texts by name: {name!r} is {type(text).__name__}")
    return named
