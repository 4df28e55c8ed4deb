"""Connections that an event loop which has ended left in the HTTP clients of another library's model."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, cast

from pydantic import BaseModel

_HOLD: Final = ("client", "_transport", "_mounts", "_pool")
"""In the names of what leads from a model by its client of httpx to the pool of its connections."""
_FAR: Final = 8
"""Steps on that way; a model inside a model, whose provider's client has another inside, needs six."""
_INWARDS: Final = ("_connection", "_network_stream", "_stream", "transport_stream", "_transport")
"""What leads from a connection of httpcore by the stream of anyio to the transport of asyncio."""


def close_dead_connections(model: object) -> None:
    """Close what the model's clients keep open of event loops that have ended; call it before each call.

    A client is made for one event loop, and libraries share it between all: the next one would send its request over
    the old connection, be charged for it, and could not read the answer. Connections of a loop that still runs stay.
    None of the names used here is promised by its library: where one differs, nothing happens.
    """
    for connections in _pools(model):
        for connection in list(connections):
            transport = _transport_of(connection)
            loop = getattr(transport, "_loop", None)
            if loop is None or not loop.is_closed():
                continue
            try:
                connections.remove(connection)
            except ValueError:  # another thread was faster
                continue
            # `close` would ask the loop that has ended to do this later
            transport._call_connection_lost(None)  # noqa: SLF001 - see above


def _pools(model: object) -> Generator[list[Any]]:
    """Yield the connections of each pool that the model holds, as the pool's own list."""
    seen: set[int] = set()
    parts = [model]
    for _ in range(_FAR):
        parts = [one for part in parts for one in _held(part) if id(one) not in seen]
        seen.update(map(id, parts))
        for part in parts:
            connections = getattr(part, "__dict__", {}).get("_connections")
            if isinstance(connections, list):
                yield cast("list[Any]", connections)  # type: ignore[redundant-cast]  # pyright needs it


def _held(part: object) -> Generator[Any]:
    """Yield what may be a client, or a pool inside one, and models inside a model."""
    if isinstance(part, dict):
        yield from list(cast("dict[Any, Any]", part).values())  # type: ignore[redundant-cast]  # pyright needs it
        return
    private = part.__pydantic_private__ if isinstance(part, BaseModel) else None
    for name, held in [*getattr(part, "__dict__", {}).items(), *(private or {}).items()]:
        if any(word in name for word in _HOLD) or hasattr(type(held), "_agenerate"):
            yield held


def _transport_of(connection: object) -> Any:
    """Return what the event loop made for a connection's socket; None where that is not known."""
    found: Any = connection
    for _ in range(_FAR):
        if found is None or hasattr(found, "_call_connection_lost"):
            return found
        further = (getattr(found, name, None) for name in _INWARDS)
        found = next((one for one in further if one is not None), None)
    return None
