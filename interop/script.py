"""What the scripted server answers, and how it counts."""

from __future__ import annotations

import json
import random
from typing import Any, Final

Json = dict[str, Any]

_CALL: Final = 20
"""Tokens of a reply that calls a tool."""
_TOOLS: Final[dict[str, Json]] = {
    "look": {"at": "sea"},
    "Bash": {"command": "echo a sea", "description": "Look at something."},
    "exec_command": {"cmd": "echo a sea"},
}
"""Tools that the script calls, with their arguments: of the agents here, of Claude Code, and of Codex."""


def prompt_tokens(request: Json) -> int:
    """Count the words of a request's messages and tools: the server's own count."""
    texts = [json.dumps(request["messages"]), json.dumps(request["tools"])]
    return sum(len(text.split()) for text in texts)


def reply(run: str, request: Json) -> Json:
    """Answer a request of a run: some looks at first, then the answer; the same for the same request."""
    done = sum(message["role"] == "tool" for message in request["messages"])
    looks = random.Random(run).randint(1, 4)  # noqa: S311 - a script, the same each time
    chance = random.Random(f"{run} {done}")  # noqa: S311 - the same
    most = request["max_tokens"] or 10_000
    names = [tool["name"] for tool in request["tools"]]
    tool = next((name for name in names if name in _TOOLS), None)
    if done < looks and tool is not None:
        call = {"id": f"call-{done}", "name": tool, "arguments": _TOOLS[tool]}
    elif "final_answer" in names:  # how smolagents ends
        call = {"id": f"call-{done}", "name": "final_answer", "arguments": {"answer": "It is a sea."}}
    else:
        return _text("It is a sea. " + "So it is. " * chance.randint(0, 12), most)
    return {"text": "", "calls": [call], "tokens": _CALL, "cut": False} if most >= _CALL else _text("It", most)


def _text(text: str, most: int) -> Json:
    words = text.split()
    cut = len(words) > most
    return {"text": " ".join(words[:most]), "calls": [], "tokens": len(words[:most]), "cut": cut}
