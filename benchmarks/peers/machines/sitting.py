"""Do the job with every library, let a worker die or stand still in the middle, and write down what came of it.

Each library has an environment of its own, made for this and removed at the end, unless a folder for it is named. A
library or a broker that is not to be had is skipped, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.peers.budgets import environment
from benchmarks.peers.machines import tables
from benchmarks.peers.machines.job import PROVIDER, WORKER
from benchmarks.peers.machines.provider import PAUSE, Bill, Call, Provider, count, serving
from benchmarks.peers.programs import ROOT, Skipped

REPEATS: Final = 3
ANSWERED: Final = 6
"""Calls that are answered before anything happens."""
EDGE: Final = 0.02
"""Seconds around a call's begin and end in which nothing happens: what is answered then may be recorded or not."""
STOPPED: Final = 12.0
"""Seconds that a worker stands still."""
AFTER: Final = 5.0
"""Seconds in which a worker that goes on is watched."""
RESTARTED: Final = 5.0
"""Seconds after which a dead worker is started again, where that is the way."""
LONGEST: Final = 150.0
"""Seconds that an end is waited for, after the death, or once the worker goes on."""
TASKS: Final = 96
"""Lanes of one step, of the job in which workers are killed again and again."""
KILLS: Final = 6
BETWEEN: Final = 12
"""Calls that are answered between two kills."""
STALLED: Final = 20.0
"""Seconds until it counts as certain that no other call comes that could be cut."""
_START: Final = 120.0
RESTART: Final = "the dead executor is started again after 5 s"


class Peer(NamedTuple):
    """A library, what to install, and a way to use it."""

    module: str
    requirements: Sequence[str]
    way: str
    backend: str
    """A function of this module that starts what it works on."""


_CELERY: Final = ("celery[redis]",)
PEERS: Final = (
    Peer("kairo_team", (), "dbos", "postgres"),
    Peer("kairo_team", (), "procrastinate", "postgres"),
    Peer("dbos", (), "nobody starts the dead executor again", "postgres"),
    Peer("dbos", (), RESTART, "postgres"),
    Peer("celery", _CELERY, "RabbitMQ", "rabbitmq"),
    Peer("celery", _CELERY, "Redis", "redis"),
    Peer("celery", _CELERY, "visibility_timeout=10", "redis"),
    Peer("ray", ("ray",), "as it is by default", "ray_head"),
)


@dataclass(frozen=True)
class Seen:
    """What came of one job."""

    bill: Bill
    seconds: float | None
    """From what happened until the end; None when it had not ended."""
    said: dict[str, Any]
    faults: int = 1
    """How often something happened to a worker."""


# ------------------------------------------------------------------ processes


def tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parts[2]))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def tell(pids: Sequence[int], what: signal.Signals) -> None:
    """Send a signal to processes."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Generator[subprocess.Popen[Any]]:
    """End a process, and all below it, after the block."""
    try:
        yield process
    finally:
        if process.poll() is None:
            tell(tree(process.pid), signal.SIGKILL)
        process.wait()


def start(command: Sequence[str], log: Path, **variables: str) -> subprocess.Popen[str]:
    """Start a program, with what it prints to a file."""
    variables = {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", **variables}
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 - our own programs
            command, cwd=ROOT, env={**os.environ, **variables}, stdout=file, stderr=file, text=True
        )


def wait_until(
    true: Callable[[], object], what: str, process: subprocess.Popen[Any] | None = None, most: float = _START
) -> None:
    """Wait until something holds; raises `Skipped` when it takes too long, or when the process has ended."""
    until = time.monotonic() + most
    while not true():
        if time.monotonic() > until or (process is not None and process.poll() is not None):
            raise Skipped(f"{what} is not there")
        time.sleep(0.002)


# ------------------------------------------------------------------ what they work on


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"there is no {name} on this machine")
    return found


@contextmanager
def postgres(_python: str, _folder: Path) -> Generator[str]:
    """Run a PostgreSQL server that waits for the disk."""
    from kairo_team.testing.postgres_server import postgres_server

    with postgres_server(settings={"fsync": "on"}) as server:
        yield server.new_database()


@contextmanager
def redis(_python: str, folder: Path) -> Generator[str]:
    """Run a Redis server."""
    port = _free_port()
    command = [_program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with ended(start(command, folder / "redis.log")) as server:
        wait_until(lambda: _answers(port), "Redis", server)
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def rabbitmq(python: str, folder: Path) -> Generator[str]:
    """Run a RabbitMQ server, and Redis for the results; the URLs of both."""
    _program("rabbitmq-server")
    port, names = _free_port(), _free_port()
    variables = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"peers{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(_free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }
    with redis(python, folder) as results, ExitStack() as stack:
        daemon = start([_program("epmd"), "-port", str(names)], folder / "epmd.log", ERL_EPMD_ADDRESS="127.0.0.1")
        stack.enter_context(ended(daemon))
        wait_until(lambda: _answers(names), "epmd", daemon)
        command = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
        server = stack.enter_context(ended(start(command, folder / "rabbitmq.log", **variables)))
        wait_until(lambda: _answers(port), "RabbitMQ", server)
        yield f"amqp://guest:guest@127.0.0.1:{port}// {results}"


@contextmanager
def ray_head(python: str, folder: Path) -> Generator[str]:
    """Run a head node, which has the cluster's state and no processors; the workers are nodes beside it."""
    port = _free_port()
    command = [str(Path(python).with_name("ray")), "start", "--head", f"--port={port}", "--num-cpus=0", "--block"]
    command += ["--include-dashboard=false", "--node-ip-address=127.0.0.1", f"--temp-dir={folder / 'ray'}"]
    command += [f"--object-store-memory={100 << 20}"]
    with ended(start(command, folder / "head.log")) as head:
        wait_until(lambda: "Ray runtime started" in (folder / "head.log").read_text(), "Ray's head node", head)
        yield f"127.0.0.1:{port}"


BACKENDS: Final = {"postgres": postgres, "redis": redis, "rabbitmq": rabbitmq, "ray_head": ray_head}


# ------------------------------------------------------------------ one job


def inside(calls: Sequence[Call], worker: str, now: float) -> bool:
    """Whether a worker's calls are all well under way, and none was answered only just now."""
    its = [call for call in calls if call.worker == worker]
    ages = [now - call.asked for call in its if call.answered is None]
    between = any(call.answered is not None and now - call.answered < EDGE for call in its)
    return bool(ages) and not between and all(EDGE < age < PAUSE - EDGE / 2 for age in ages)


@dataclass
class Trial:
    """A job that begins with two workers."""

    peer: Peer
    python: str
    backend: str
    provider: Provider
    folder: Path
    stack: ExitStack
    longest: float = LONGEST
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """What its programs find in their environment."""

    def program(self, role: str, name: str) -> subprocess.Popen[str]:
        """Start one of the library's programs."""
        command = [self.python, "-m", f"benchmarks.peers.machines.{self.peer.module}", role]
        command += ["--backend", self.backend, "--way", self.peer.way]
        variables = {WORKER: name, PROVIDER: self.provider.url, **self.variables}
        return self.stack.enter_context(ended(start(command, self.folder / name, **variables)))

    def worker(self, name: str) -> subprocess.Popen[str]:
        """Start a worker, and wait until it is ready."""
        process = self.program("work", name)
        log = self.folder / name
        wait_until(lambda: "ready\n" in log.read_text(), f"a worker of {self.peer.module}", process)
        return process

    def run(self, fault: str) -> Seen:
        """Let it happen to a worker in the middle, and wait for the end."""
        workers = {name: self.worker(name) for name in ("w0", "w1")}
        doing = self.program("do", "do")
        wait_until(lambda: len(self.provider.calls) >= ANSWERED, "the job", doing)
        pids = {name: tree(process.pid) for name, process in workers.items()}
        wait_until(lambda: self._busy() is not None, "the middle of the job", doing)
        victim, moment = self._busy() or "w0", time.monotonic()
        if fault == "killed":
            tell(pids[victim], signal.SIGKILL)
            if self.peer.way == RESTART:
                time.sleep(RESTARTED)
                self.worker(victim)
            seconds = self._end(doing, moment, self.longest)
        else:
            seconds = self._stop(pids[victim], doing, moment)
        return self._seen(seconds, (victim, moment))

    def run_with_kills(self) -> Seen:
        """Kill one worker after the other, each of which is started again at once, and wait for the end."""
        workers = {name: self.worker(name) for name in ("w0", "w1")}
        doing = self.program("do", "do")
        begun = time.monotonic()
        deaths: list[tuple[str, float]] = []
        for number in range(KILLS):
            victim = f"w{number % 2}"
            with suppress(Skipped):  # it has ended, or goes on no more
                wait_until(partial(self._may_die, victim, (number + 1) * BETWEEN), "the next death", doing, STALLED)
                deaths.append((victim, time.monotonic()))
                tell(tree(workers[victim].pid), signal.SIGKILL)
                workers[victim] = self.program("work", victim)
        return self._seen(self._end(doing, begun, self.longest), *deaths)

    def _may_die(self, victim: str, answered: int) -> bool:
        calls = self.provider.calls
        enough = sum(call.answered is not None for call in calls) >= answered
        return enough and inside(calls, victim, time.monotonic())

    def _seen(self, seconds: float | None, *faults: tuple[str, float]) -> Seen:
        said = (self.folder / "do").read_text().strip().splitlines()
        return Seen(count(self.provider.calls, *faults), seconds, json.loads(said[-1]) if seconds else {}, len(faults))

    def _stop(self, pids: Sequence[int], doing: subprocess.Popen[str], moment: float) -> float | None:
        """Let a worker stand still and go on, and look at what it does then."""
        tell(pids, signal.SIGSTOP)
        seconds = self._end(doing, moment, STOPPED)
        time.sleep(max(0.0, moment + STOPPED - time.monotonic()))
        tell(pids, signal.SIGCONT)
        if seconds is None:
            seconds = self._end(doing, moment, STOPPED + self.longest)
        time.sleep(AFTER)
        return seconds

    def _busy(self) -> str | None:
        """Return a worker that is inside its calls, not between two of them, once some calls are answered."""
        calls = self.provider.calls
        if sum(call.answered is not None for call in calls) < ANSWERED:
            return None
        return next((name for name in ("w0", "w1") if inside(calls, name, time.monotonic())), None)

    def _end(self, doing: subprocess.Popen[str], moment: float, within: float) -> float | None:
        """Wait for the end; return the seconds that passed since a moment, or None."""
        with suppress(subprocess.TimeoutExpired):
            if doing.wait(max(0.01, moment + within - time.monotonic())):
                raise Skipped((self.folder / "do").read_text()[-500:])
            return time.monotonic() - moment
        return None


def attempt(peer: Peer, python: str, fault: str, folder: Path, longest: float = LONGEST) -> Seen:
    """Do the job once; `fault` is `killed`, `stopped` or `kills`."""
    with ExitStack() as stack:
        backend = stack.enter_context(BACKENDS[peer.backend](python, folder))
        provider = stack.enter_context(serving())
        trial = Trial(peer, python, backend, provider, folder, stack, longest)
        if fault != "kills":
            return trial.run(fault)
        trial.variables = {"PEERS_LANES": " ".join(f"t{number}" for number in range(TASKS)), "PEERS_STEPS": "1"}
        return trial.run_with_kills()


def main(kept: Path | None) -> None:
    """Do the job with everybody, write down what was seen, and draw the page's tables."""
    with tempfile.TemporaryDirectory() as temporary:
        envs = (kept or Path(temporary)).absolute()
        for peer in PEERS:
            for fault in tables.FAULTS:
                _repeat(peer, fault, envs)
    tables.write_page()


def is_put_to(peer: Peer, fault: str) -> bool:
    """Return whether a fault is tried with a peer: with many kills, every worker is started again."""
    if fault == "kills":
        return peer.module != "ray" and (peer.module != "dbos" or peer.way == RESTART)
    return fault == "killed" or peer.way != RESTART


def _repeat(peer: Peer, fault: str, envs: Path) -> None:
    if not is_put_to(peer, fault):
        return
    seen: list[Mapping[str, Any]] = []
    try:
        python = environment(peer.requirements, envs / peer.module) if peer.requirements else sys.executable
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory(prefix="peers-") as folder:
                seen.append(asdict(attempt(peer, python, fault, Path(folder))))
                print(peer.module, peer.way, fault, seen[-1], flush=True)
    except Skipped as reason:
        print(f"{peer.module}, {peer.way}, {fault}, skipped: {reason}", file=sys.stderr)
    else:
        tables.record(peer.module, peer.way, fault, seen)
