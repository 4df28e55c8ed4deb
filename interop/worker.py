"""Let one library's agent run again and again at a governed address; the library's own environment runs this file.

    python -m interop.worker NAME --server URL --folder FOLDER --runs N [--bin FOLDER]

Two undisturbed runs show what a whole one takes. Each of the others gets a limit and perhaps a kill, both by its
number, and a process of its own: it is stopped by its caller and resumed, or its process kills itself and another one
resumes it. One line of JSON tells of each run that has ended. Every run is in a forked process, so that the library is
imported once and the process that forks has none of its threads, which a fork would leave dead.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

import kairo_team as kt
from interop.programs import PROGRAMS
from interop.script import prompt_tokens
from kairo_team.events import CallsDiverged

TASK = "What is there? Look at the sea, then say what it is."
MARK = "KAIRO_INTEROP_RUN"
"""The variable that every process of a run has in its environment."""


class Remote:
    """The model: the scripted server."""

    name = "test:scripted"
    max_output_tokens = 200

    def __init__(self, url: str) -> None:
        self.url = url

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        """Ask the server."""
        body = json.dumps(_plain(request)).encode()
        said = await anyio.to_thread.run_sync(_post, self.url, body, abandon_on_cancel=True)
        calls = [kt.ToolCall(call["id"], call["name"], call["arguments"]) for call in said["calls"]]
        finish: Any = "length" if said["cut"] else "stop"
        usage = kt.Usage(said["prompt"], said["tokens"])
        return kt.ModelResponse(said["text"], calls, usage, self.name, finish)

    async def count_tokens(self, request: kt.ModelRequest) -> int:
        """Count as the server does."""
        return prompt_tokens(_plain(request))


def _plain(request: kt.ModelRequest) -> dict[str, Any]:
    messages = [
        {
            "role": one.role,
            "text": one.text,
            "calls": [[call.name, str(call.arguments)] for call in one.tool_calls],
        }
        for one in request.messages
    ]
    tools = [{"name": tool.name, "description": tool.description} for tool in request.tools]
    return {"messages": messages, "tools": tools, "max_tokens": request.max_tokens}


def _post(url: str, body: bytes) -> Any:
    asked = urllib.request.Request(url, body, {"content-type": "application/json"})  # noqa: S310 - loopback
    with urllib.request.urlopen(asked, timeout=30) as reply:  # noqa: S310 - the same
        return json.load(reply)


@dataclass(frozen=True, slots=True)
class Fate:
    """The limit of a run, and its kill."""

    limit: int | None
    kill: str
    """`none`, `stop`: its caller stops it, or `kill`: SIGKILL for the whole process."""
    after: float
    """Seconds until the kill."""

    @classmethod
    def of(cls, run: str, full: int, seconds: float) -> Fate:
        """Draw the fate of a run, by what an undisturbed one takes."""
        chance = random.Random(run)  # noqa: S311 - the same each time
        kill = chance.choice(["none", "none", "stop", "stop", "kill"])
        return cls(chance.randint(full // 10, full * 3 // 2), kill, chance.uniform(0.0, seconds * 0.9))


async def play(
    run: str, fate: Fate, agent: Any, model: Remote, url: str, folder: Path, silence: list[float]
) -> dict[str, Any]:
    """Let a run run, or resume the one whose process was killed, and report it.

    `silence` are the times of the kill and of the resume, if its process was killed.
    """
    team = kt.Team("interop", [kt.Member("m", agent)])
    config = kt.TeamConfig(budget=kt.Budget(tokens=fate.limit), task_timeout=300)
    killed = "kill" if silence else "none"
    begun = time.monotonic()
    result: kt.TeamResult | None = None
    journal = kt.SqliteJournal(folder / "runs.db", sync="normal")

    async def session(number: int) -> None:
        nonlocal result
        model.url = f"{url}/{run}/{number}"
        async with kt.Runtime(journal=journal) as runtime:
            result = await kt.run(team, TASK, run_id=run, config=config, resume=True, runtime=runtime)

    if fate.kill == "kill" and not silence:
        timer = threading.Timer(fate.after, os.kill, (os.getpid(), signal.SIGKILL))
        timer.start()
        await session(0)
        timer.cancel()
    elif fate.kill == "stop":
        with anyio.move_on_after(fate.after):
            await session(0)
        if result is None:
            killed, stopped = "stop", time.time()
            await anyio.sleep(0.3)
            silence = [stopped, time.time()]
            await session(1)
    else:
        await session(1 if silence else 0)
    assert result is not None
    calls, events = journal.calls(run), journal.events_after(run)
    journal.close()
    return {
        "run": run,
        "limit": fate.limit,
        "killed": killed,
        "silence": silence,
        "status": result.status.value,
        "output": str(result.output),
        "error": result.error,
        "diverged": any(isinstance(event, CallsDiverged) for event in events),
        "tokens": result.usage.tokens,
        "answered": sum(call.usage.tokens for call in calls if call.state == "answered"),
        "doubtful": sum(call.state != "answered" for call in calls),
        "seconds": round(time.monotonic() - begun, 3),
    }


def agent_of(name: str, run: str, model: Remote, bin: Path | None, folder: Path) -> Any:
    """Return the agent: a program, or a function that gives the library the address."""
    if name in PROGRAMS:
        assert bin is not None
        return PROGRAMS[name](bin, folder / "home", model, {MARK: run})
    use = import_module(f"interop.agents.{name}").run

    async def member(_: kt.Assignment, context: kt.MemberContext) -> str:
        async with context.address(model) as address:
            return str(await use(TASK, address))

    return member


def forked(work: Callable[[], object]) -> int:
    """Do some work in a forked process, which ends itself if it hangs; return its exit code."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(400)
        try:
            work()
        except BaseException:  # noqa: BLE001 - the fork must not go on as its parent would
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Let the runs run, one after another."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--server", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--bin", type=Path)
    given = parser.parse_args()
    model = Remote(given.server)
    if given.name not in PROGRAMS:
        import_module(f"interop.agents.{given.name}")

    def one(run: str, fate: Fate, silence: list[float]) -> None:
        agent = agent_of(given.name, run, model, given.bin, given.folder)
        row = anyio.run(play, run, fate, agent, model, given.server, given.folder, silence)
        (given.folder / f"{run}.json").write_text(json.dumps(row))
        (given.folder / "modules.json").write_text(json.dumps(sorted(sys.modules)))

    def ended(run: str, fate: Fate) -> dict[str, Any]:
        silence: list[float] = []
        while (code := forked(partial(one, run, fate, silence))) == -signal.SIGKILL and not silence:
            killed = time.time()
            time.sleep(0.3)
            silence = [killed, time.time()]
        if code:
            sys.exit(f"{run} ended with {code}")
        line = (given.folder / f"{run}.json").read_text()
        print(line, flush=True)
        row: dict[str, Any] = json.loads(line)
        return row

    ended(f"{given.name}-whole0", Fate(None, "none", 0.0))
    for module in json.loads((given.folder / "modules.json").read_text()):  # many libraries import when they run
        with suppress(Exception):  # what a library puts into `sys.modules` itself
            import_module(module)
    whole = ended(f"{given.name}-whole1", Fate(None, "none", 0.0))
    for number in range(given.runs):
        run = f"{given.name}-{number}"
        ended(run, Fate.of(run, whole["tokens"], whole["seconds"]))


if __name__ == "__main__":
    main()
