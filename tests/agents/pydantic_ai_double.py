"""pydantic-ai models for tests: those that say what they are told, and those that answer by an output tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_ai import messages as native
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage


class Weather(BaseModel):
    town: str
    degrees: int


Answer = Callable[[list[native.ModelMessage], AgentInfo], native.ModelResponse]


def model(answer: Answer, name: str = "scripted") -> FunctionModel:
    async def function(messages: list[native.ModelMessage], info: AgentInfo) -> native.ModelResponse:
        reply = answer(messages, info)
        if not reply.usage.has_values():
            reply.usage = RequestUsage(input_tokens=10, output_tokens=5)
        return reply

    return FunctionModel(function, model_name=name)


def says(*texts: str) -> FunctionModel:
    """A model that says one text after another, the last again and again."""
    left = list(texts)
    return model(lambda _, __: native.ModelResponse([native.TextPart(left.pop(0) if len(left) > 1 else left[0])]))


def reports(**arguments: Any) -> FunctionModel:
    """A model that answers by the first output tool."""
    return model(
        lambda _, info: native.ModelResponse([native.ToolCallPart(info.output_tools[0].name, dict(arguments), "c1")])
    )


def prompt_of(messages: list[native.ModelMessage]) -> str:
    (part,) = [p for m in messages for p in m.parts if isinstance(p, native.UserPromptPart)]
    assert isinstance(part.content, str)
    return part.content
