"""The embedded model by an address: for libraries that bring their own client and speak OpenAI's chat interface."""

from __future__ import annotations

from dataclasses import dataclass, field

from kairo_team.models import local


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """The address of the embedded model on this machine, and its key."""

    base_url: str
    """Ends in `/v1`, as clients of OpenAI's interface want it."""
    api_key: str = field(repr=False)
    """New in every process, so that other programs of this machine cannot use it."""


def local_address(model: str = "local:smollm2") -> LocalAddress:
    """Return the address of an embedded model, which is loaded if it was not (about a second, in this thread).

    It answers on loopback as long as the process lives, under any model name. It is the engine that serves
    `MiniAgent("local:smollm2")`, but calls by the address do not wait for calls made by that name: run one task at a
    time, because two at once slow each other down. A client that leaves ends its reply; one that still listens when the
    process ends is waited for. Raises `MissingExtra` or `ModelUnavailable` when the model cannot be had.
    """
    local.LocalModel(model).check()
    engine = local._engine(model)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # one engine serves both ways
    return LocalAddress(f"{engine._server.listening_address}/v1", engine._key)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the same
