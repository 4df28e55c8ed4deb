"""Checks that ship: each is, or makes, a function `(artifact) -> True | what is wrong`."""

from kairo_team.evaluators.checks.text import contains as contains
from kairo_team.evaluators.checks.text import forbidden as forbidden
from kairo_team.evaluators.checks.text import max_words as max_words
from kairo_team.evaluators.checks.text import min_words as min_words
from kairo_team.evaluators.checks.text import not_blank as not_blank

__all__ = ["contains", "forbidden", "max_words", "min_words", "not_blank"]
