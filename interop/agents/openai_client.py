"""No agent, only the client of OpenAI in a loop: what the tests of this folder use."""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI

from interop.agents.look import look
from kairo_team.addresses import ModelAddress

LOOK: Any = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}


async def run(task: str, address: ModelAddress) -> str:
    """Call the model until it calls no tool."""
    messages: list[Any] = [{"role": "user", "content": task}]
    async with AsyncOpenAI(base_url=address.openai, api_key=address.key) as client:
        while True:
            reply = await client.chat.completions.create(
                model="m", messages=messages, tools=[{"type": "function", "function": LOOK}]
            )
            said = reply.choices[0].message
            if not said.tool_calls:
                return said.content or ""
            messages.append(said)
            for call in said.tool_calls:
                seen = look(json.loads(call.function.arguments)["at"])  # type: ignore[union-attr]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": seen})
