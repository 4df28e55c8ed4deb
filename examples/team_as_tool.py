"""A team as a tool of an MCP client, such as an editor or a coding agent, which starts it from its configuration.

    kairo serve examples/team_as_tool.py --mcp stdio --budget tokens=3000 --print-config claude-code
    python examples/team_as_tool.py            # plays the client: starts the team from that configuration and asks it

The first command prints the entry for the configuration of a client; `kairo serve --help` lists the clients. A writer
drafts a release note, and a reader, who has not seen the change, asks for what is missing. A script answers in place of
a model: put the name of one, such as `openai:gpt-5-mini`, into TEAM_MODEL, and its provider's key into the entry's
`env`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Final

import anyio
import anyio.to_thread
from mcp import Client, StdioServerParameters

import kairo_team as kt
from kairo_team.testing import FunctionModel

DRAFT: Final = "Uploads continue where they stopped."
ASK: Final = "Say how long an upload is kept."
NOTE: Final = f"{DRAFT} A stopped upload is kept for a day."


def scripted() -> FunctionModel:
    """Make a model that says what each member would."""

    def answer(request: kt.ModelRequest) -> str:
        said = " ".join(message.text for message in request.messages)
        if "has not seen the change" in said:
            return ASK
        return NOTE if ASK in said else DRAFT

    return FunctionModel(answer)


model = os.environ.get("TEAM_MODEL") or scripted()
WRITER: Final = "You write release notes of two sentences."
READER: Final = "You are a reader who has not seen the change. Ask for the one thing you miss."

# The command finds these two names.
team = kt.Team(
    "release-notes",
    [
        kt.Member(kt.Role("writer", instructions=WRITER), kt.MiniAgent(model)),
        kt.Member(kt.Role("reader", instructions=READER), kt.MiniAgent(model)),
    ],
)
plan = kt.TaskGraph(
    [
        kt.Task("draft", "Draft the release note.", member="writer"),
        kt.Task("ask", "Ask for what is missing in the draft.", member="reader", depends_on=["draft"]),
        kt.Task("note", "Write the note again, with the answer.", member="writer", depends_on=["draft", "ask"]),
    ]
)


def printed_entry() -> dict[str, object]:
    """Return the entry that the command prints for a client."""
    words = ["serve", __file__, "--mcp", "stdio", "--budget", "tokens=3000", "--print-config", "claude-code"]
    printed = subprocess.run(  # noqa: S603 - the words are above
        [sys.executable, "-m", "kairo_team", *words], check=True, stdout=subprocess.PIPE, text=True
    )
    entry: dict[str, object] = json.loads(printed.stdout)["mcpServers"]["release-notes"]
    return entry


async def main() -> None:
    """Do what an MCP client does: start the server, list its tools, call the one there is, show what comes."""
    entry = await anyio.to_thread.run_sync(printed_entry)
    print(json.dumps(entry, indent=2))
    server = StdioServerParameters.model_validate(entry)

    async def show(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001 - by name
        print(f"  {message}")

    async with Client(server) as client:
        (tool,) = (await client.list_tools()).tools
        print(f"{tool.name}: {tool.description}")
        result = await client.call_tool(tool.name, {"goal": "Uploads can be resumed."}, progress_callback=show)
    print(json.dumps(result.structured_content, indent=2))


if __name__ == "__main__":
    anyio.run(main)
