"""Prompt templates (Jinja2), packaged in this folder; each can be overridden by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kairo_team.prompts.overrides import check_names, check_templates
from kairo_team.prompts.quoting import Mark, mark_of

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment, Template

TEMPLATES: Final = (
    *("system", "task", "continue", "after_tools", "repair", "limits", "compact", "plan", "plan_again", "supervise"),
    *("moderator", "moderator_again", "judge", "judge_ask", "judge_again", "judge_pair", "judge_pair_ask"),
    "judge_claims",
)
"""Names of the templates: a role's instructions, the task, the request to continue a cut-off reply, the message after
tool calls, the request for a reply of the right type, an agent's remaining limits, the summary of a conversation
that became too long; the request for a plan and for a corrected plan, a supervisor's turn, a moderator's choice of the
next speaker and its correction; a judge's messages before an artifact, after it, and after a reply that cannot be read;
the first two for a pair of works; and the request to split a work into claims."""


class Prompts:
    """The templates of one run. A member's text is never parsed as a template, and templates have no side effects.

    In addition to its values, each template has `mark`, a word that occurs in no text of the prompt, and `foreign`,
    whether a model may have written goal and task. The filter `fenced` puts a text between two lines that end with the
    mark; `said` does so when the text is foreign, long or has several lines. `mark.used` is true once a filter has done
    so.
    """

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        """Take templates by name; `ValueError` for an unknown name, variable or filter."""
        self._overrides: Mapping[str, str] = {}
        self._sandbox: Environment | None = None
        if overrides is not None and overrides != {}:
            self._overrides = dict(check_names("templates", overrides, TEMPLATES))
            self._sandbox = _sandbox(frozenset(self._overrides.items()))

    @property
    def overrides(self) -> Mapping[str, str]:
        """The given templates, by name."""
        return dict(self._overrides)

    def render(self, name: str, **values: object) -> str:
        """Render the template with that name; a missing variable is an error."""
        mark = Mark("")
        prompt = self._render(name, {"foreign": False, "mark": mark, **values})
        if not mark.used:
            return prompt
        # Rendered twice, because the mark is derived from the whole prompt.
        return self._render(name, {"foreign": False, "mark": Mark(mark_of(prompt)), **values})

    def _render(self, name: str, values: dict[str, object]) -> str:
        if self._sandbox is None or name not in self._overrides:
            return _template(name).render(values).strip()
        from kairo_team.prompts.bounds import STEPS, Steps  # this imports jinja

        return self._sandbox.get_template(name).render(values, **{STEPS: Steps()}).strip()


@lru_cache(maxsize=32)  # compiling templates takes longer than all other work before the first model call
def _sandbox(overrides: frozenset[tuple[str, str]]) -> Environment:
    """Check templates and return the environment that renders them: they may come from anywhere."""
    from jinja2 import DictLoader

    from kairo_team.prompts.bounds import BoundedEnvironment

    given = dict(overrides)
    environment = _made(BoundedEnvironment, DictLoader({**{name: _source(name) for name in TEMPLATES}, **given}))
    check_templates(given, environment, _packaged())
    return environment


@lru_cache(maxsize=1)
def _packaged() -> Environment:
    """Return the environment of the packaged templates: a sandbox would cost a tenth of an agent's run."""
    from jinja2 import Environment, FunctionLoader

    return _made(Environment, FunctionLoader(_source))  # the texts are prompts, not HTML


@lru_cache(maxsize=len(TEMPLATES))
def _template(name: str) -> Template:
    """Return a packaged template. Its globals are a plain dict: each rendering copies them, and a chain is slow."""
    template = _packaged().get_template(name)
    template.globals = dict(template.globals)
    return template


def _source(name: str) -> str:
    """Return the text of a packaged template."""
    from pkgutil import get_data  # `importlib.resources` imports modules for archives and temporary files

    text = get_data(__name__, f"{name}.j2")
    assert text is not None, "every loader of packages reads their files"
    return text.decode()


def _made(kind: type[Environment], loader: BaseLoader) -> Environment:
    from jinja2 import StrictUndefined

    from kairo_team.prompts.filters import FILTERS

    environment = kind(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False
    )
    environment.filters |= FILTERS
    return environment
