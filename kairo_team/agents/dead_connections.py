"""Connections that an ended event loop left open in the HTTP clients of another library's model."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, cast

from pydantic import BaseModel

from kairo_team._util.narrowing import is_list, is_mapping

_HOLD: Final = ("client", "_transport", "_mounts", "_pool")
"""Parts of the names of the attributes that lead from a model through its httpx client to the connection pool."""
_FAR: Final = 8
"""Most attributes to follow; a model inside a model, whose provider's client contains another, needs six."""
_INWARDS: Final = ("_connection", "_network_stream", "_stream", "transport_stream", "_transport")
"""Attributes that lead from an httpcore connection through anyio's stream to asyncio's transport."""


def close_dead_connections(model: object) -> None:
    """Close the connections of the model's clients whose event loop has ended. Call this before each call.

    Connections of a running loop stay open. The names used here are private to their libraries: if one differs, nothing
    happens.
    """
    # Libraries share a client between loops: a request over an old connection is charged, and its reply cannot be read.
    for connections in _pools(model):
        # A copy, because the loop removes from the pool's own list.
        for connection in list(connections):
            transport = _transport_of(connection)
            loop = getattr(transport, "_loop", None)
            if loop is None or not loop.is_closed():
                continue
            try:
                connections.remove(connection)
            except ValueError:  # another thread was faster
                continue
            # `close` would schedule this on the loop that has ended.
            transport._call_connection_lost(None)  # noqa: SLF001 - see above


def _pools(model: object) -> Generator[list[Any]]:
    """Yield the connections of each pool of the model, as the pool's own list."""
    seen: set[int] = set()
    parts = [model]
    for _ in range(_FAR):
        parts = [one for part in parts for one in _attributes_of(part) if id(one) not in seen]
        seen.update(map(id, parts))
        for part in parts:
            connections = getattr(part, "__dict__", {}).get("_connections")
            if is_list(connections):
                yield connections


def _attributes_of(part: object) -> Generator[Any]:
    """Yield attributes that may be clients, pools, or models inside a model."""
    if is_mapping(part):
        yield from list(part.values())
        return
    private = part.__pydantic_private__ if isinstance(part, BaseModel) else None
    own: dict[str, Any] = getattr(part, "__dict__", {})
    for name, held in [*own.items(), *(private or {}).items()]:
        # A class with `_agenerate` is a LangChain model; models keep one another under fields of any name.
        if any(word in name for word in _HOLD) or hasattr(cast("Any", type(held)), "_agenerate"):
            yield held


def _transport_of(connection: object) -> Any:
    """Return the event loop's transport of a connection; None if it is not found."""
    found: Any = connection
    for _ in range(_FAR):
        if found is None or hasattr(found, "_call_connection_lost"):
            return found
        further = (getattr(found, name, None) for name in _INWARDS)
        found = next((one for one in further if one is not None), None)
    return None
