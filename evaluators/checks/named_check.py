"""`NamedCheck`: a check with a name, arguments and a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

from kairo_team.evaluators.fingerprint import digest_of, fingerprint

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.verdicts import EvaluationContext

CheckAnswer = bool | str
"""True, or a sentence that says what is wrong."""
P = ParamSpec("P")


class Made(NamedTuple):
    """The function that made a check, by its name in `checks`, and its arguments."""

    name: str
    arguments: Mapping[str, Any]
    data: Any = None
    """The data that named a check of a package or of one's own, as it was written."""


class NamedCheck:
    """A built-in check: `repr` shows how it was made.

    `in_place`: it takes time in proportion to the artifact's length at most, and is called in the event loop; other
    checks are called in a thread. `timeout` is its own limit in seconds; None: the rubric's. `source` is the part of
    its arguments that `repr` cannot show; it is in the digest of a rubric together with the name and arguments.
    """

    __slots__ = ("_call", "_shown", "_source", "in_place", "made", "timeout", "wants_context")

    def __init__(
        self,
        shown: str,
        call: Callable[..., Any],
        *,
        source: Any = None,
        in_place: bool = True,
        wants_context: bool = False,
        timeout: float | None = None,
    ) -> None:
        self._shown = shown
        self._call = call
        self._source = source
        self.in_place = in_place
        self.wants_context = wants_context
        self.timeout = timeout
        self.made: Made | None = None
        """How a rubric's data names the check; None where it was made by a function that data cannot name."""

    def __call__(self, artifact: Artifact, context: EvaluationContext | None = None) -> Any:
        """Check one artifact; `context` is passed on if the check takes it."""
        return self._call(artifact, context) if self.wants_context else self._call(artifact)

    def itself(self) -> NamedCheck:
        """Return the check: it makes a check without options, as the maker of a plug-in does."""
        return self

    @property
    def fingerprint(self) -> str:
        """A text that distinguishes the check from others."""
        return self._shown if self._source is None else f"{self._shown} {digest_of(fingerprint(self._source))}"

    def __repr__(self) -> str:
        return self._shown


def by_name(make: Callable[P, NamedCheck]) -> Callable[P, NamedCheck]:
    """Decorate a function that makes checks: keep its arguments, so that a rubric's data can name its checks."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> NamedCheck:
        check = make(*args, **kwargs)
        # Without defaults, as a person writes it.
        check.made = Made(make.__name__, signature.bind(*args, **kwargs).arguments)
        return check

    return call
