"""Run requests as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.durable.codec import NotRecordable, encode_apart
from kairo_team.durable.value_classes import Refusal, check_type
from kairo_team.errors import Misuse

if TYPE_CHECKING:
    from kairo_team.durable.codec import LongText
    from kairo_team.files import File
    from kairo_team.team import Team, TeamExecutionRequest


def readable(text: str) -> str:
    """Return a text that any database accepts: lone surrogates become `?`."""
    # Some models send halves of surrogate pairs.
    return text.encode("utf-8", "replace").decode()


def encode_request(request: TeamExecutionRequest, team: Team) -> tuple[str, list[File | LongText]]:
    """Return a request as JSON without its long texts and files, and these; see `encode_apart`.

    Raises `Misuse` if the request, or a value of one of the team's output types, cannot be written.
    """
    for name, kind in team.output_types.items():
        try:
            check_type(kind)
        except Refusal as refusal:
            raise Misuse(f"output type {name!r} cannot be recorded: {refusal.problem}") from None
    try:
        return encode_apart(request)
    except NotRecordable as error:
        raise Misuse(f"the request cannot be recorded: {error}") from None
