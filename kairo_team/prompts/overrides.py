"""Check, when templates are set, that they can be rendered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.narrowing import is_mapping
from kairo_team.errors import known

if TYPE_CHECKING:
    from jinja2 import Environment

_ALWAYS: Final = ("mark", "foreign")
_TURN: Final = ("assignment", "role", "problem", "no_tools")
VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "system": ("role", "schema"),
    "task": ("assignment", "role"),
    **dict.fromkeys(("continue", "after_tools", "repair"), _TURN),
    "limits": ("turns", "tokens", "last"),
    "compact": ("assignment", "role", "conversation", "summary", "words"),
    "plan": ("request", "team", "max_tasks", "growth"),
    "plan_again": ("problems",),
    "supervise": ("turn", "max_turns", "tasks_left"),
    "moderator": ("goal", "members", "transcript", "end"),
    "moderator_again": ("problem",),
    "judge": ("token", "cannot_tell", "question", "conversation"),
    "judge_ask": ("token", "cannot_tell", "shown", "question", "hidden", "whole", "cut", "plain"),
    "judge_again": ("token", "problem"),
    "judge_pair": ("token", "question"),
    "judge_pair_ask": ("token", "shown", "question"),
    "judge_claims": ("token",),
}
"""The values that each template receives, in addition to those that the packaged template uses."""


def check_names(owner: str, templates: Any, names: Iterable[str]) -> Mapping[str, str]:
    """Return templates by name; `ValueError` that names `owner` for an unknown name or anything but texts."""
    if not is_mapping(templates):
        raise ValueError(f"{owner} are texts by name, such as {{'task': '...'}}, not {templates!r:.200}")
    unknown = [name for name in templates if name not in names]
    if unknown:
        raise ValueError(f"{owner}: unknown templates {known(map(str, unknown))}; there are {known(names)}")
    for name, text in templates.items():
        if not isinstance(text, str):
            raise ValueError(f"{owner}: the template {name!r} must be a text, not {text!r:.200}")
    return templates


def check_templates(names: Iterable[str], environment: Environment, packaged: Environment) -> None:
    """Raise `ValueError` for a template that cannot be parsed, or uses a value that it does not receive."""
    from jinja2 import TemplateError

    for name in names:
        try:
            environment.get_template(name)  # compiles and caches it
            problem = _problem(name, environment, packaged)
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            problem = f"line {line}: {error.message}" if line else str(error)
        if problem is not None:
            raise ValueError(f"the template {name!r} cannot be used: {problem}")


def _problem(name: str, environment: Environment, packaged: Environment) -> str | None:
    """Return a sentence on a variable or another template that is not available; None if all are."""
    from jinja2 import meta

    tree = environment.parse(_source(environment, name))
    given = {
        *_ALWAYS,
        *VARIABLES.get(name, ()),
        *meta.find_undeclared_variables(packaged.parse(_source(packaged, name))),
    }
    unknown = meta.find_undeclared_variables(tree) - given - set(environment.globals)
    if unknown:
        return f"it uses {known(unknown)}; it receives {known(given)}"
    others = set(environment.list_templates())
    missing = {other for other in meta.find_referenced_templates(tree) if other is not None} - others
    return f"it includes {known(missing)}; there are {known(others)}" if missing else None


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None, "an environment of ours has one"
    return environment.loader.get_source(environment, name)[0]
