"""Bad input, described in one sentence."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from pydantic import ValidationError

from kairo_team.errors import KairoError
from kairo_team.views.text import one_line


class Refusal(Exception):
    """The command cannot be started; its arguments are the sentences to show, with what to change."""


@contextmanager
def refusing(*kinds: type[Exception], about: str = "") -> Generator[None]:
    """Turn errors of these kinds into a `Refusal`, in a block or in a function that this decorates.

    Its sentence begins with `about`, such as "--file: ".
    """
    try:
        yield
    except kinds as error:
        raise Refusal(f"{about}{explain(error)}") from error


def explain(error: BaseException) -> str:
    """Describe an exception in one line, for the person at the keyboard."""
    if isinstance(error, ValidationError):
        return one_line(_explain_validation(error))
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return one_line("; ".join(explain(inner) for inner in group.exceptions))
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return one_line(f"{error.strerror}: {str(error.filename)!r}")
    text = one_line(str(error))
    if (isinstance(error, KairoError) or type(error) is ValueError) and text:  # a sentence of its own
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _explain_validation(error: ValidationError) -> str:
    problems: list[str] = []
    for problem in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in problem["loc"])
        what = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        given = "" if problem["type"] == "value_error" else f", not {problem['input']!r:.80}"
        problems.append(f"{where}: {what}{given}" if where else what)
    return f"{error.title} is not valid: {'; '.join(dict.fromkeys(problems))}"
