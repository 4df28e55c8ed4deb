"""What a run is begun with, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.durable.codec import NotRecordable, encode
from kairo_team.durable.value_classes import Refusal, check_type
from kairo_team.errors import Misuse

if TYPE_CHECKING:
    from kairo_team.team import Team, TeamExecutionRequest


def readable(text: str) -> str:
    """Return a text that any database takes: halves of surrogate pairs, which some models send, become `?`."""
    return text.encode("utf-8", "replace").decode()


def encode_request(request: TeamExecutionRequest, team: Team) -> str:
    """Return a request as JSON; `Misuse` for one, or for values of an output type of the team, that cannot be written.

    `decode` returns the request.
    """
    for name, kind in team.output_types.items():
        try:
            check_type(kind)
        except Refusal as refusal:
            raise Misuse(f"output type {name!r} cannot be recorded: {refusal.problem}") from None
    try:
        return encode(request)
    except NotRecordable as error:
        raise Misuse(f"the request cannot be recorded: {error}") from None
