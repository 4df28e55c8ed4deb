"""Checks that ship: each is, or makes, a function `(artifact) -> True | what is wrong`."""

from kairo_team.evaluators.checks.code import python_parses as python_parses
from kairo_team.evaluators.checks.diffs import diff_applies as diff_applies
from kairo_team.evaluators.checks.functions import accepted_by as accepted_by
from kairo_team.evaluators.checks.functions import predicate as predicate
from kairo_team.evaluators.checks.language import language as language
from kairo_team.evaluators.checks.markdown import markdown_outline as markdown_outline
from kairo_team.evaluators.checks.named_check import NamedCheck as NamedCheck
from kairo_team.evaluators.checks.patterns import forbidden_regex as forbidden_regex
from kairo_team.evaluators.checks.patterns import regex as regex
from kairo_team.evaluators.checks.revision import changed as changed
from kairo_team.evaluators.checks.sandbox import Ran as Ran
from kairo_team.evaluators.checks.sandbox import Sandbox as Sandbox
from kairo_team.evaluators.checks.sandbox import command as command
from kairo_team.evaluators.checks.sources import citations as citations
from kairo_team.evaluators.checks.sources import numbers as numbers
from kairo_team.evaluators.checks.sources import quotations as quotations
from kairo_team.evaluators.checks.structured import json_schema as json_schema
from kairo_team.evaluators.checks.structured import json_valid as json_valid
from kairo_team.evaluators.checks.structured import pydantic_model as pydantic_model
from kairo_team.evaluators.checks.text import contains as contains
from kairo_team.evaluators.checks.text import forbidden as forbidden
from kairo_team.evaluators.checks.text import max_chars as max_chars
from kairo_team.evaluators.checks.text import max_words as max_words
from kairo_team.evaluators.checks.text import min_chars as min_chars
from kairo_team.evaluators.checks.text import min_words as min_words
from kairo_team.evaluators.checks.text import not_blank as not_blank

__all__ = [
    "NamedCheck",
    "Ran",
    "Sandbox",
    "accepted_by",
    "changed",
    "citations",
    "command",
    "contains",
    "diff_applies",
    "forbidden",
    "forbidden_regex",
    "json_schema",
    "json_valid",
    "language",
    "markdown_outline",
    "max_chars",
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
