"""Built-in checks: each is, or makes, a function `(artifact) -> True | what is wrong`."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names
from kairo_team.evaluators.checks.language import language  # its module has the same name, and would be found

if TYPE_CHECKING:
    from kairo_team.evaluators.checks.code import python_parses
    from kairo_team.evaluators.checks.diffs import diff_applies
    from kairo_team.evaluators.checks.functions import accepted_by, predicate
    from kairo_team.evaluators.checks.markdown import markdown_outline
    from kairo_team.evaluators.checks.named_check import NamedCheck
    from kairo_team.evaluators.checks.patterns import forbidden_regex, regex
    from kairo_team.evaluators.checks.sandbox import Ran, Sandbox, command
    from kairo_team.evaluators.checks.sources import citations, numbers, quotations
    from kairo_team.evaluators.checks.structured import json_schema, json_valid, pydantic_model
    from kairo_team.evaluators.checks.text import (
        changed,
        contains,
        equals,
        equals_reference,
        forbidden,
        max_chars,
        max_words,
        min_chars,
        min_words,
        not_blank,
    )
    from kairo_team.evaluators.checks.tool_calls import (
        avoids_tool,
        calls_in_order,
        calls_tool,
        calls_with,
        hands_over,
        max_dollars_used,
        max_seconds_used,
        max_tokens_used,
        max_tool_calls,
    )

__all__ = [
    "NamedCheck",
    "Ran",
    "Sandbox",
    "accepted_by",
    "avoids_tool",
    "calls_in_order",
    "calls_tool",
    "calls_with",
    "changed",
    "citations",
    "command",
    "contains",
    "diff_applies",
    "equals",
    "equals_reference",
    "forbidden",
    "forbidden_regex",
    "hands_over",
    "json_schema",
    "json_valid",
    "language",
    "markdown_outline",
    "max_chars",
    "max_dollars_used",
    "max_seconds_used",
    "max_tokens_used",
    "max_tool_calls",
    "max_words",
    "min_chars",
    "min_words",
    "not_blank",
    "numbers",
    "predicate",
    "pydantic_model",
    "python_parses",
    "quotations",
    "regex",
]

if not TYPE_CHECKING:  # with __getattr__ a type checker would accept any name
    _HOMES = {
        "code": "python_parses",
        "diffs": "diff_applies",
        "functions": "accepted_by predicate",
        "markdown": "markdown_outline",
        "named_check": "NamedCheck",
        "patterns": "forbidden_regex regex",
        "sandbox": "Ran Sandbox command",
        "sources": "citations numbers quotations",
        "structured": "json_schema json_valid pydantic_model",
        "text": "changed contains equals equals_reference forbidden max_chars max_words min_chars min_words not_blank",
        "tool_calls": "avoids_tool calls_in_order calls_tool calls_with hands_over max_dollars_used max_seconds_used "
        "max_tokens_used max_tool_calls",
    }
    """Where the names live. Each is imported when it is first used: most rubrics take a few checks."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
