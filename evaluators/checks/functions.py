"""Make checks of functions: of one that returns True or False, and of one that raises."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from kairo_team._util.plugin_shapes import is_async
from kairo_team.evaluators.checks.named_check import NamedCheck
from kairo_team.evaluators.criterion import takes_context


def predicate(function: Callable[..., Any], says: str = "", *, timeout: float | None = None) -> NamedCheck:
    """Make a check of a function `(artifact)` or `(artifact, context)`, sync or async, that returns True or False.

    `says` is the finding's text when it returns False; blank takes the criterion's own text. `timeout` is in
    seconds; None takes the rubric's.
    """

    def read(answer: Any) -> Any:
        return says if answer is False and says.strip() else answer

    async def later(answer: Awaitable[Any]) -> Any:
        return read(await answer)

    def check(*arguments: Any) -> Any:
        answer = function(*arguments)
        return later(answer) if inspect.isawaitable(answer) else read(answer)

    return _made("predicate", function, check, says, timeout)


def accepted_by(
    function: Callable[..., Any], errors: tuple[type[Exception], ...] = (ValueError,), *, timeout: float | None = None
) -> NamedCheck:
    """Make a check that a function `(artifact)` or `(artifact, context)`, sync or async, does not raise `errors`.

    Use this for validators that raise, such as a parser or a data frame's schema. The function's result does not
    matter; the error's text is the finding. Any other error is a crash of the check and leaves the criterion unknown.
    """
    kinds: Any = errors if isinstance(errors, tuple) else (errors,)
    if not all(isinstance(one, type) and issubclass(one, Exception) for one in kinds):
        raise ValueError(f"accepted_by: errors must be classes of exceptions, such as (ValueError,), not {errors!r}")

    def refusal(error: Exception) -> str:
        return str(error).strip() or f"it was refused: {type(error).__name__}"

    async def later(answer: Awaitable[Any]) -> bool | str:
        try:
            await answer
        except errors as error:
            return refusal(error)
        return True

    def check(*arguments: Any) -> Any:
        try:
            answer = function(*arguments)
        except errors as error:
            return refusal(error)
        return later(answer) if inspect.isawaitable(answer) else True

    return _made("accepted_by", function, check, errors, timeout)


def _made(owner: str, function: Any, check: Callable[..., Any], given: Any, timeout: float | None) -> NamedCheck:
    if not callable(function):
        raise ValueError(f"{owner} takes a function of the artifact, not {function!r}")
    shown = f"{owner}({getattr(function, '__name__', type(function).__name__)})"
    in_place, wants_context = is_async(function), takes_context(function)  # a plain function may block the event loop
    source = (function, given)
    return NamedCheck(shown, check, source=source, in_place=in_place, wants_context=wants_context, timeout=timeout)
