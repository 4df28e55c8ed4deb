"""What LangChain's integration with OpenAI reads in a reply, and drops: errors with status 200, streamed refusals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any, Final, cast

from kairo_team.agents.dead_connections import close_dead_connections
from kairo_team.models.error_bodies import watch_client

_CLIENTS: Final = ("root_async_client", "root_client")
"""The fields of a model for the provider's own clients."""
_CONVERT: Final = "_convert_chunk_to_generation_chunk"
"""The integration's method that reads one piece of a stream."""


def prepare(model: Any) -> None:
    """Prepare a model for a call: close dead connections, and let neither errors nor refusals get lost."""
    close_dead_connections(model)
    for name in _CLIENTS:
        watch_client(getattr(model, name, None))
    for kind in type(model).__mro__:
        # The class is found by name, because the integration need not be installed; it is patched once in a process.
        if kind.__name__ == "BaseChatOpenAI" and not hasattr(getattr(kind, _CONVERT, prepare), "__wrapped__"):
            _keep_refusals(kind)


def _keep_refusals(kind: Any) -> None:
    """Make a class of models keep a streamed refusal in the same place as a whole one."""
    convert = getattr(kind, _CONVERT)

    @wraps(convert)
    def converted(self: Any, chunk: Any, *args: Any, **kwargs: Any) -> Any:
        piece = convert(self, chunk, *args, **kwargs)
        words = _refusal_in(chunk)
        if piece is not None and words:
            piece.message.additional_kwargs["refusal"] = words
        return piece

    setattr(kind, _CONVERT, converted)


def _refusal_in(chunk: Mapping[str, Any]) -> str:
    choices: Any = chunk.get("choices")
    delta = choices[0].get("delta") if choices else None
    return str(cast("Mapping[str, Any]", delta).get("refusal") or "") if isinstance(delta, Mapping) else ""
