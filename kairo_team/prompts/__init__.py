"""Prompt templates (Jinja2): packaged beside this file, overridable by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from kairo_team.prompts.overrides import check_names, check_templates

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES: Final = (
    *("system", "task", "continue", "after_tools", "repair", "plan", "plan_again"),
    *("judge", "judge_ask", "judge_again"),
)
"""Names of the templates: what a role is told, what a task asks, how a cut-off reply is continued, what is said after
tools have run, how a reply that is not of its type is asked for again, how a plan is asked for, and again; and what a
judge is told before it sees an artifact, after it, and after a reply that cannot be read."""
CAP: Final = 6_000
"""Characters of an artifact that go into a prompt; the rest is cut with a notice."""


def cap(text: str, limit: int = CAP) -> str:
    """Cut `text` to `limit` characters and say so."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {len(text) - limit} of {len(text)} characters are left out]"


class Prompts:
    """The templates of one run. Each is filled in one pass: what a member wrote is never read as a template."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        """Take templates by name; `ValueError` for a name, a variable or a filter there is not."""
        given = check_names("templates", {} if overrides is None else overrides, TEMPLATES)
        self._overrides = frozenset(given.items())
        if given:
            _check(self._overrides)

    def render(self, name: str, **values: object) -> str:
        """Fill in the template of that name; a variable it asks for and does not get is an error."""
        return _environment(self._overrides).get_template(name).render(**values).strip()


@lru_cache(maxsize=32)
def _check(overrides: frozenset[tuple[str, str]]) -> None:
    check_templates(
        [name for name, _ in overrides], _environment(overrides), _environment(frozenset[tuple[str, str]]())
    )


@lru_cache(maxsize=32)  # to compile templates takes longer than all else that is done before a model is asked
def _environment(overrides: frozenset[tuple[str, str]]) -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    packaged = {name: (files(__name__) / f"{name}.j2").read_text("utf-8") for name in TEMPLATES}
    environment = Environment(  # noqa: S701 - prompts are plain text, not HTML
        loader=DictLoader({**packaged, **dict(overrides)}),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cap"] = cap
    return environment
