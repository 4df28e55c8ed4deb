"""A pydantic-ai model that hands its requests to an async function of ours, and guesses nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from pydantic_ai import messages as native
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

import kairo_team as kt
from kairo_team.models.provider_messages import file_of

Answer = Callable[[kt.ModelRequest], Awaitable[kt.ModelResponse]]


class Double(Model[Any]):
    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    @property
    def model_name(self) -> str:
        return "double"

    @property
    def system(self) -> str:
        return "theirs"

    async def request(
        self, messages: list[native.ModelMessage], model_settings: Any, model_request_parameters: Any, *_: Any
    ) -> native.ModelResponse:
        said, files = list[str](), list[kt.File]()
        for content in [getattr(part, "content", "") for message in messages for part in message.parts]:
            items = cast("list[Any]", content) if isinstance(content, list) else [content]  # type: ignore[redundant-cast]  # pyright needs it
            for item in items:
                file = file_of(item)
                files += [] if file is None else [file]
                said += [str(item)] if file is None else []
        told = [str(getattr(message, "instructions", None) or "") for message in messages]
        settings: dict[str, Any] = model_settings or {}
        asked = kt.ModelRequest(
            [kt.Message.user("\n".join([*told, *said]), files)], max_tokens=settings.get("max_tokens")
        )
        return _reply(await self._answer(asked))


def _reply(reply: kt.ModelResponse) -> native.ModelResponse:
    usage = reply.usage or kt.Usage()
    told = RequestUsage(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
    finish: Any = reply.finish_reason
    return native.ModelResponse([native.TextPart(reply.text)], usage=told, finish_reason=finish)
