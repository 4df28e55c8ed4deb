"""What the agents library's own models read in a reply, and drop: why it ended, and what of it was finished."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from agents import ModelBehaviorError

from kairo_team.models.error_bodies import Noted, error_bodies_refused

if TYPE_CHECKING:
    from agents import Model

_FETCHES: Final = ("_fetch_response", "_fetch_chat_response", "_fetch_responses_response")
"""Methods of the library's models that return what the provider's client returned, whole or as a stream."""


class FinishWord:
    """The provider's last word about why a reply ended; None for a model that does not show it."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.word: str | None = None
        self.tier: str | None = None
        """The service by which the call was served, in the provider's words."""

    def note(self, reply: Any) -> None:
        """Read the word in a reply, or in a piece of one."""
        choices: Any = getattr(reply, "choices", None)
        said = getattr(choices[0], "finish_reason", None) if choices else _of_response(reply)
        self.word = said or self.word
        self.tier = getattr(getattr(reply, "response", reply), "service_tier", None) or self.tier


def _of_response(reply: Any) -> str | None:
    """Return the word of a reply of the Responses interface, or of the last event of its stream."""
    response = getattr(reply, "response", reply)
    status = getattr(response, "status", None)
    if status == "incomplete":
        return getattr(getattr(response, "incomplete_details", None), "reason", None) or "length"
    return "stop" if status == "completed" else None


# A context variable, because all calls share the cached class and, with it, the wrapped methods.
_words: ContextVar[FinishWord] = ContextVar("kairo_finish_word")


def noting(model: Model, word: FinishWord) -> Model:
    """Return the same model, with the same state, that also notes how its provider says that a reply ended."""
    kind = type(model)
    fetches = [name for name in _FETCHES if hasattr(kind, name)]
    if not fetches or not hasattr(model, "__dict__"):  # an object with slots cannot share its state
        return model
    same: Any = object.__new__(_noting_class(kind))
    same.__dict__ = model.__dict__
    _words.set(word)
    return same  # type: ignore[no-any-return]  # an object of a subclass of the model's class


@functools.cache
def _noting_class(kind: Any) -> Any:
    """Make a subclass of a class of models that notes what its provider's client returns."""
    methods = {name: _noted(getattr(kind, name)) for name in _FETCHES if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__, "__qualname__": kind.__qualname__})


def _noted(fetch: Any) -> Any:
    @functools.wraps(fetch)
    async def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        word = _words.get()
        with error_bodies_refused(word.model, _client_of(self)) as asked:
            try:
                found = await fetch(self, *args, **kwargs)
            except ModelBehaviorError:
                if getattr(asked.reply, "status", None) != "incomplete":
                    raise
                found = asked.reply  # the library raises for a reply that was cut off, and would lose its text
        if isinstance(found, tuple):  # a response that is not filled in yet, and the stream
            return (*found[:-1], Noted(found[-1], word.note))
        if hasattr(found, "__aiter__"):
            return Noted(found, word.note)
        word.note(found)
        return found

    return noted


def _client_of(model: Any) -> Any:
    """Return the client of a model of the library; it may be made only now."""
    make = getattr(model, "_get_client", None)
    return getattr(model, "_client", None) if make is None else make()
