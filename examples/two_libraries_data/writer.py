"""An agent of Microsoft Agent Framework that writes. It knows nothing of kairo-team.

The task is its standard input, the result its standard output.
"""

# The library is in an environment of its own.
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import os
import sys

import anyio
from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient


async def main() -> None:
    """Do the task."""
    client = OpenAIChatClient(
        "gpt-5-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
    )
    agent = Agent(client, "You write two sentences for the notice board of a harbour.", name="writer")
    print(await agent.run(sys.stdin.read()))


if __name__ == "__main__":
    anyio.run(main)
