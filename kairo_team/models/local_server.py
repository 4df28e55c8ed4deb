"""An HTTP address for the embedded model: for libraries with their own client for OpenAI's chat interface."""

from __future__ import annotations

from dataclasses import dataclass, field

from kairo_team.models import local


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """The address of the embedded model on this machine, and its key."""

    base_url: str
    """URL that ends in `/v1`, as clients of OpenAI's interface expect."""
    api_key: str = field(repr=False)
    """The key, new in every process, so that other programs on this machine cannot use the model."""


def local_address(model: str = "local:smollm2") -> LocalAddress:
    """Return the address of an embedded model; load the model if necessary (about a second, in this thread).

    The address answers on loopback until the process ends, under any model name. The same engine serves
    `MiniAgent("local:smollm2")`, but calls by the address do not wait for calls by that name: run one task at a time,
    because two at once slow each other down. A client that disconnects ends its reply. The ending process waits for a
    client that is still connected. Raises `MissingExtra` or `ModelUnavailable` if the model cannot be loaded.
    """
    local.LocalModel(model).check()
    engine = local._engine(model)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # one engine serves both ways
    return LocalAddress(f"{engine._server.listening_address}/v1", engine._key)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the same
