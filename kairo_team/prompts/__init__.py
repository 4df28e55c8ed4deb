"""Prompt templates (Jinja2), packaged in this folder; each can be overridden by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kairo_team.prompts.overrides import check_names, check_templates
from kairo_team.prompts.quoting import Mark, mark_of

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES: Final = (
    *("system", "task", "continue", "after_tools", "repair", "limits", "compact", "plan", "plan_again", "supervise"),
    *("moderator", "moderator_again", "judge", "judge_ask", "judge_again", "judge_pair", "judge_pair_ask"),
)
"""Names of the templates: a role's instructions, the task, the request to continue a cut-off reply, the message after
tool calls, the request for a reply of the right type, an agent's remaining limits, the summary of a conversation
that became too long; the request for a plan and for a corrected plan, a supervisor's turn, a moderator's choice of the
next speaker and its correction; a judge's messages before an artifact, after it, and after a reply that cannot be read;
and the first two for a pair of works."""


class Prompts:
    """The templates of one run. A member's text is never parsed as a template, and templates have no side effects.

    In addition to its values, each template has `mark`, a word that occurs in no text of the prompt, and `foreign`,
    whether a model may have written goal and task. The filter `fenced` puts a text between two lines that end with the
    mark; `said` does so when the text is foreign, long or has several lines. `mark.used` is true once a filter has done
    so.
    """

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        """Take templates by name; `ValueError` for an unknown name, variable or filter."""
        self._overrides = frozenset[tuple[str, str]]()
        if overrides is not None and overrides != {}:
            self._overrides = frozenset(check_names("templates", overrides, TEMPLATES).items())
            _check(self._overrides)

    @property
    def overrides(self) -> Mapping[str, str]:
        """The given templates, by name."""
        return dict(self._overrides)

    def render(self, name: str, **values: object) -> str:
        """Render the template with that name; a missing variable is an error."""
        from kairo_team.prompts.bounds import STEPS, Steps  # this imports jinja

        # Rendered twice, because the mark is derived from the whole prompt.
        template, mark = _environment(self._overrides).get_template(name), Mark("")
        prompt = template.render({"foreign": False, "mark": mark, STEPS: Steps(), **values}).strip()
        if not mark.used:
            return prompt
        return template.render({"foreign": False, "mark": Mark(mark_of(prompt)), STEPS: Steps(), **values}).strip()


@lru_cache(maxsize=32)
def _check(overrides: frozenset[tuple[str, str]]) -> None:
    check_templates(
        [name for name, _ in overrides], _environment(overrides), _environment(frozenset[tuple[str, str]]())
    )


@lru_cache(maxsize=32)  # compiling templates takes longer than all other work before the first model call
def _environment(overrides: frozenset[tuple[str, str]]) -> Environment:
    from importlib.resources import files  # this imports modules for archives and temporary files

    from jinja2 import DictLoader, StrictUndefined

    from kairo_team.prompts.bounds import BoundedEnvironment
    from kairo_team.prompts.filters import FILTERS

    packaged = {name: (files(__name__) / f"{name}.j2").read_text("utf-8") for name in TEMPLATES}
    environment = BoundedEnvironment(
        loader=DictLoader({**packaged, **dict(overrides)}),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    return environment
