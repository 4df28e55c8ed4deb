"""A stdio server without the SDK: starts in milliseconds, and misbehaves as its one argument, a JSON object, says.

    tools          what it lists; a list of lists is one page after the other
    results        by tool name: the result of a call, as it goes over the wire
    error_output   written to the error output at the start
    output         written to the output at the start, where only messages belong
    modern         speaks the protocol of 2026
    silent         answers nothing at all
    deaf           does not even read
    die_at         ends when this method, or tool, is asked for
    never_ends     hands out pages without end
    stubborn       ignores the end of its input and being told to terminate
    pid_file       where to write its pid
    record         where to write every message it gets

A call of `big` answers with as many characters as asked for, `sleep` never, `environment` with its own; `ask` sends
the client the request it is given, and answers with what came back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

PLAN: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
TOOLS: list[Any] = PLAN.get("tools", [])
PAGES: list[list[Any]] = [TOOLS] if not TOOLS or isinstance(TOOLS[0], dict) else TOOLS


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def page(cursor: str | None) -> dict[str, Any]:
    if PLAN.get("never_ends"):
        return {"tools": [], "nextCursor": str(int(cursor or 0) + 1)}
    number = int(cursor or 0)
    following = {"nextCursor": str(number + 1)} if number + 1 < len(PAGES) else {}
    return {"tools": PAGES[number], **following, **(MODERN if PLAN.get("modern") else {})}


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def called(name: str, arguments: dict[str, Any]) -> Any:
    if name in PLAN.get("results", {}):
        return PLAN["results"][name]
    if name == "big":
        return text("x" * arguments["characters"])
    if name == "ask":
        send({"id": "q", "method": arguments["method"], "params": arguments["params"]})
        return text(sys.stdin.readline())
    if name == "environment":
        return text(json.dumps(dict(os.environ)))
    return text(f"{name} did {json.dumps(arguments, sort_keys=True)}")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "server/discover" and PLAN.get("modern"):
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **MODERN}}
    if method == "initialize":
        info = {"name": "raw", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": page(params.get("cursor"))}
    if method == "tools/call" and params["name"] == "sleep":
        return None
    if method == "tools/call":
        return {"result": called(params["name"], params.get("arguments", {}))}
    return {"error": {"code": -32601, "message": f"unknown method {method}"}}


def main() -> None:
    if PLAN.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if PLAN.get("pid_file"):
        Path(PLAN["pid_file"]).write_text(str(os.getpid()), encoding="utf-8")
    if PLAN.get("error_output"):
        sys.stderr.write(PLAN["error_output"] + "\n")
        sys.stderr.flush()
    if PLAN.get("output"):
        sys.stdout.write(PLAN["output"] + "\n")
    while PLAN.get("deaf"):
        time.sleep(60)
    for line in sys.stdin:
        message = json.loads(line)
        if PLAN.get("record"):
            with Path(PLAN["record"]).open("a", encoding="utf-8") as file:
                file.write(line)
        params = message.get("params", {})
        if PLAN.get("die_at") in {message.get("method"), params.get("name")} - {None}:
            os._exit(3)
        if "id" in message and "method" in message and not PLAN.get("silent"):
            outcome = answer(message["method"], params)
            if outcome is not None:
                send({"id": message["id"], **outcome})
    while PLAN.get("stubborn"):
        time.sleep(60)


main()
