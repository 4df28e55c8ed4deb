"""Many runs in one journal for a long time, with everything that happens to them: `python -m benchmarks.soak`.

Worker processes begin runs and go on with those that wait. One of them lives all the time; the others are killed, or
stopped while another process takes runs over and woken again. A visitor process follows the events, answers questions,
and now and then cancels a run. Every minute all ended runs are compared with the provider's own account and forgotten,
and the file is checked. One line is printed for each minute; the exit code is 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync

import kairo_team as kt
from benchmarks.kills import Account, compare
from benchmarks.memory import resident
from kairo_team.agents import TeamAgent
from kairo_team.errors import Misuse, ModelCallError, NoQuestion, RunFinished, RunNotFound
from kairo_team.testing import FunctionModel

WORKERS: Final = 3
LANES: Final = 2
"""Runs that a worker has at once."""
PAUSE: Final = 0.4
"""Seconds that a call takes."""
CADENCE: Final = (6.0, 14.0)
"""Seconds between two kills or take-overs: at least, at most."""
ASLEEP: Final = 4.0
"""Seconds a worker is stopped while another takes its runs."""
CANCELLED: Final = 0.1
"""How often a run is cancelled: the chance in each second."""
FAILING: Final = 25
"""Every so many calls of a process the provider fails."""
OLD: Final = 20.0
"""Seconds after which an ended run is forgotten."""
STUCK: Final = 120.0
"""Most seconds that a run may go untouched before its end."""
ENDING: Final = 180.0
"""Most seconds until all runs are done, once no new ones begin."""
WARM: Final = 5
"""Minutes after which the memory of a process must not grow by more than half."""
MOST_WAL: Final = 32_000_000
"""Bytes of the write-ahead log."""
ENDED: Final = ("completed", "degraded", "failed", "timeout", "cancelled")
GOOD: Final = ("completed", "cancelled")
LOST: Final = "another process has taken the run over"
WORDS: Final = "tides rise and fall as the moon pulls the sea and the earth turns below it, twice a day at most. "


# ---------------------------------------------------------------------- what is run


class Provider:
    """Writes every call down, synced, in a file of its run; answers with two thousand characters."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = 0
        self.model = FunctionModel(self.answer, name="test:provider", dollars_per_token=0)

    async def answer(self, request: kt.ModelRequest) -> str:
        """Write the call down, fail now and then, and answer after a while."""
        asked = request.messages[-1].text
        self.model.calls.clear()  # else it keeps them all
        self._calls += 1
        failing = self._calls % FAILING == 0
        digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
        line = json.dumps({"asked": digest, "failed": failing}) + "\n"
        file = os.open(self._folder / run_of(asked), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
        await anyio.sleep(PAUSE)
        if failing:
            raise ModelCallError("rate_limited", "test:provider", "try again")
        return f"{digest} {WORDS * 20}"


def run_of(goal: str) -> str:
    """Return the id of the outer run, which is the first word of its goal and of all that is asked in it."""
    return goal.split(maxsplit=1)[0]


def ask(text: str) -> kt.ModelRequest:
    """Make a prompt of a thousand characters."""
    return kt.ModelRequest([kt.Message.user(f"{text} {WORDS * 10}")], max_tokens=600)


async def clerk(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Ask twice, with a number that chance made."""
    number = await context.recorded("number", lambda: secrets.randbelow(10**9))
    said = ""
    for turn in range(2):
        asked = ask(f"{assignment.goal} {assignment.task.id} {number} {turn} {said[:16]}")
        said = (await context.model("m:x").complete(asked)).text
    return f"{said} {number}"


class Boss:
    """Leaves every review to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        """Ask the gate."""
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person decides")


def team() -> kt.Team:
    """Clerks, a team of clerks, and a boss."""
    inside = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"])])
    group = TeamAgent(kt.Team("inner", [kt.Member("clerk", clerk)]), plan=inside)
    return kt.Team("desk", [kt.Member("clerk", clerk), kt.Member("group", group)], evaluators={"boss": Boss()})


def request(run_id: str, *, asks: bool) -> kt.TeamExecutionRequest:
    """Five tasks, one of them by the inner team; in a run that `asks` a person reviews one."""
    tasks = [kt.Task(f"first-{n}", "Begin.", member="clerk") for n in range(2)]
    tasks.append(kt.Task("group", f"{run_id} in a team.", member="group", depends_on=["first-0"]))
    tasks.append(kt.Task("asks", "Ask.", member="clerk", depends_on=["first-1"], evaluator="boss" if asks else None))
    tasks.append(kt.Task("last", "End.", member="clerk", depends_on=["group", "asks"]))
    return kt.TeamExecutionRequest(f"{run_id} is to be done.", plan=kt.TaskGraph(tasks), run_id=run_id)


# ---------------------------------------------------------------------- the processes


@dataclass
class Worker:
    """Begins runs and goes on with those that wait, until there is a file `stop` and nothing is left."""

    folder: Path
    name: str
    take: int
    """How many runs of living processes it takes over when it starts."""
    begun: int = 0
    looked: float = 0.0
    waiting: list[str] = field(default_factory=list[str])
    living: int = 0

    async def main(self) -> None:
        """Work."""
        self.journal = kt.SqliteJournal(self.folder / "runs.db")
        models = {"m:x": Provider(self.folder / "accounts").model}
        retry = kt.ModelRetry(backoff=0.01)
        gate = kt.JournalGate(self.journal) if random.random() < 0.5 else kt.DeferGate()  # noqa: PLR2004, S311 - half
        async with kt.Runtime(journal=self.journal, models=models, model_retry=retry, gate=gate) as runtime:
            self.runtime = runtime
            async with anyio.create_task_group() as lanes:
                for number in range(LANES):
                    lanes.start_soon(self.lane, self.take > number)
        self.journal.close()

    async def lane(self, taking: bool) -> None:
        """Do one run after the other."""
        if taking:
            await self.look("running")
        while True:
            if not taking:
                await self.look("waiting")
            stopping = (self.folder / "stop").exists()
            if self.waiting:
                await self.serve(self.waiting.pop(0), take_over=taking)
            elif not stopping:
                self.begun += 1
                await self.serve(f"{self.name}-{self.begun}", new=True)
            elif not self.living:
                return
            else:
                await anyio.sleep(0.5)
            taking = False

    async def look(self, what: str) -> None:
        """List the runs that wait, or those of living processes; not too often."""
        if time.monotonic() - self.looked < 2.0:  # noqa: PLR2004 - seconds
            return
        self.looked = time.monotonic()
        runs = await run_sync(self.journal.runs)
        asking = {question.run_id for question in await run_sync(self.journal.pending)}
        self.living = sum(run.state not in ENDED for run in runs)
        states = ("running",) if what == "running" else ("interrupted", "suspended")
        self.waiting = [run.run_id for run in runs if run.state in states and run.run_id not in asking]
        random.shuffle(self.waiting)
        if what == "running":
            del self.waiting[self.take :]

    async def serve(self, run_id: str, *, new: bool = False, take_over: bool = False) -> None:
        """Do one session of a run, and write down how it ended."""
        how = "new" if new else "taken over" if take_over else "resumed"
        try:
            if new:
                wanted = request(run_id, asks=self.begun % 3 == 0)
                result = await kt.run(team(), wanted, runtime=self.runtime)
            else:
                result = await self.runtime.resume(run_id, team(), take_over=take_over)
        except (Misuse, RunFinished, RunNotFound):  # another worker was faster
            note(self.folder, run=run_id, status="elsewhere", how=how)
        else:
            note(self.folder, run=run_id, status=result.status.value, error=result.error or "", how=how)


@dataclass
class Visitor:
    """Follows the events of all runs, answers what is asked, and cancels a run now and then."""

    folder: Path
    seen: dict[str, int] = field(default_factory=dict[str, int])
    """The number of the last event, of the runs that live."""

    async def main(self) -> None:
        """Read along until there is a file `stopped`."""
        self.journal = kt.SqliteJournal(self.folder / "runs.db")
        while not (self.folder / "stopped").exists():
            for question in self.journal.pending():
                with suppress(NoQuestion):  # its run was cancelled meanwhile
                    self.journal.answer(question.id, kt.HumanDecision.approve(), by="visitor")
                    note(self.folder, run=question.run_id, status="answered")
            running = [run.run_id for run in self.journal.runs(state="running")]
            self.seen = {run_id: self.seen.get(run_id, 0) for run_id in running}
            for run_id in running:
                with suppress(RunNotFound):  # it was forgotten meanwhile
                    self.follow(run_id)
            if running and random.random() < CANCELLED:  # noqa: S311 - no secret
                with suppress(RunNotFound, RunFinished):
                    self.journal.cancel(chosen := random.choice(running), "the visitor did not like it")  # noqa: S311
                    note(self.folder, run=chosen, status="ended by the visitor")
            await anyio.sleep(1.0)
        self.journal.close()

    def follow(self, run_id: str) -> None:
        """Read what is new of a run; a number that is missing is a problem."""
        for event in self.journal.events_after(run_id, self.seen[run_id]):
            if event.seq != self.seen[run_id] + 1:
                note(self.folder, run=run_id, status="gap", error=f"event {event.seq} after {self.seen[run_id]}")
            self.seen[run_id] = event.seq


def note(folder: Path, **said: object) -> None:
    """Write a line for the one who watches."""
    with (folder / "log").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"error": "", "how": "", **said}) + "\n")


# ---------------------------------------------------------------------- the one who watches


@dataclass
class Soak:
    """Starts, kills, compares and counts."""

    folder: Path
    seed: int
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list[Any])
    """The first of them is never killed."""
    counts: Counter[str] = field(default_factory=Counter[str])
    account: Account = field(default_factory=Account)
    compared: set[str] = field(default_factory=set[str])
    """Ended runs that are still in the journal."""
    problems: list[str] = field(default_factory=list[str])
    memory: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Megabytes of each process that lives all the time, minute by minute."""
    wal: int = 0
    """Most bytes of the write-ahead log since the last minute."""
    read: int = 0
    """Bytes of the log that were read."""
    told: int = 0
    """How many problems were printed."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - moments, not secrets

    def start(self, role: str, *more: str) -> subprocess.Popen[bytes]:
        """Start a process of this program."""
        self.counts["processes"] += 1
        name = f"w{self.counts['processes']}"
        command = [sys.executable, "-m", "benchmarks.soak", f"--{role}", str(self.folder), "--name", name, *more]
        return subprocess.Popen(command)  # noqa: S603 - this very file

    def run(self, minutes: float) -> bool:
        """Go through it all; return whether nothing was wrong."""
        (self.folder / "accounts").mkdir()
        (self.folder / "log").touch()
        self.journal = kt.SqliteJournal(self.folder / "runs.db")
        visitor = self.start("visitor")
        self.workers = [self.start("worker") for _ in range(WORKERS)]
        begun, told = time.monotonic(), 0
        while time.monotonic() - begun < minutes * 60:
            self.wait(self.chance.uniform(*CADENCE))
            self.disturb()
            if (now := int((time.monotonic() - begun) / 60)) > told:
                told = now
                self.check(told, visitor)
        (self.folder / "stop").touch()
        self.end()
        self.check(told + 1, None)
        (self.folder / "stopped").touch()
        visitor.wait(30)
        return self.judge()

    def wait(self, seconds: float) -> None:
        """Let them work; a worker that ends by itself is a problem."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.5)
            log = self.folder / "runs.db-wal"
            self.wal = max(self.wal, log.stat().st_size if log.exists() else 0)
            for place, worker in enumerate(self.workers):
                if worker.poll() is not None:
                    self.problems.append(f"a worker ended with {worker.returncode}")
                    self.workers[place] = self.start("worker")

    def disturb(self) -> None:
        """Kill a worker and start another; or stop it, let another take runs over, and wake it for a while."""
        place = self.chance.randrange(1, len(self.workers))
        worker = self.workers[place]
        if self.chance.random() < 0.3:  # noqa: PLR2004 - a part of them
            worker.send_signal(signal.SIGSTOP)
            self.workers[place] = self.start("worker", "--take", str(LANES))
            self.wait(ASLEEP)
            worker.send_signal(signal.SIGCONT)
            self.wait(ASLEEP)
            self.counts["woken"] += 1
        else:
            self.workers[place] = self.start("worker")
        worker.kill()
        worker.wait()
        self.counts["kills"] += 1

    def end(self) -> None:
        """Wait for the workers, which leave when all runs have ended."""
        until = time.monotonic() + ENDING
        for worker in self.workers:
            try:
                worker.wait(max(1.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.problems.append(f"a worker was not done {ENDING:g} seconds after the last run had begun")
                worker.kill()
                worker.wait()
            else:
                if worker.returncode:
                    self.problems.append(f"a worker ended with {worker.returncode}")

    def check(self, minute: int, visitor: subprocess.Popen[bytes] | None) -> None:
        """Compare all ended runs with the provider, forget them, check the file, and print a line."""
        self.read_log()
        now = time.time()
        runs = {run.run_id: run for run in self.journal.runs()}
        for run_id, run in runs.items():
            if run.state in ENDED and run_id not in self.compared:
                self.compare(run_id)
            elif run.state not in ENDED and now - run.updated_at > STUCK:
                self.problems.append(f"run {run_id} is {run.state} and untouched for {now - run.updated_at:.0f} s")
        self.counts["forgotten"] += self.journal.forget(older_than=OLD)
        left = {run.run_id for run in self.journal.runs()}
        self.problems += [f"run {run_id} is gone" for run_id in runs.keys() - left - self.compared]
        for run_id in self.compared - left:
            (self.folder / "accounts" / run_id).unlink()
        self.compared &= left
        if visitor is not None:
            self.weigh(worker=self.workers[0], visitor=visitor)
        self.say(minute, len(left))

    def read_log(self) -> None:
        """Count how sessions ended; only runs that were taken over may fail."""
        with (self.folder / "log").open("rb") as file:
            file.seek(self.read)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self.read += len(line)
            try:
                said = json.loads(line)
            except ValueError:  # a worker was killed while it wrote
                continue
            lost = said["status"] == "failed" and LOST in said["error"]
            self.counts["lost" if lost else said["status"]] += 1
            if said["how"] in ("resumed", "taken over") and said["status"] != "elsewhere":
                self.counts[said["how"]] += 1
            wrong = said["status"] == "gap" or (said["status"] in ENDED and said["status"] not in GOOD)
            if wrong and not lost:
                self.problems.append(f"run {said['run']} {said['how']}: {said['status']}, {said['error']}")

    def compare(self, run_id: str) -> None:
        """Compare a run with what the provider knows of it."""
        self.compared.add(run_id)
        text = (self.folder / "accounts" / run_id).read_text(encoding="utf-8")
        found = compare(self.journal, run_id, [json.loads(line) for line in text.splitlines()])
        self.account += found
        state, numbers = self.journal.show(run_id).state, [one.seq for one in self.journal.events_after(run_id)]
        if state not in GOOD or found.finished_again or found.untraced or found.mismatches:
            self.problems.append(f"run {run_id} {state}: {found}")
        if numbers != list(range(1, len(numbers) + 1)):
            self.problems.append(f"run {run_id}: its events have the numbers {numbers}")

    def weigh(self, **processes: subprocess.Popen[bytes]) -> None:
        """Measure the memory of processes, where the system shows it."""
        for name, process in processes.items():
            if (size := resident(process.pid)) is not None:
                self.memory.setdefault(name, []).append(size)

    def say(self, minute: int, runs: int) -> None:
        """Check the file, and print the state of things."""
        with closing(sqlite3.connect(self.folder / "runs.db")) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            owners = connection.execute("SELECT count(*) FROM owner").fetchone()[0]
        if found != ["ok"]:
            self.problems.append(f"integrity_check: {found[:3]}")
        if self.wal > MOST_WAL:
            self.problems.append(f"the write-ahead log had {self.wal / 1e6:.0f} MB")
        figures: dict[str, object] = {"minute": minute, **{name: self.counts[name] for name in _SHOWN}}
        figures |= {"calls": self.account.sent, "in doubt": self.account.in_doubt, "runs in file": runs}
        figures["file MB"] = round((self.folder / "runs.db").stat().st_size / 1e6, 2)
        figures |= {"WAL MB": round(self.wal / 1e6, 2), "integrity": found[0], "owner rows": owners}
        figures["owner files"] = len(list(self.folder.glob("runs.db-owner-*")))
        figures |= {f"{name} MB": round(sizes[-1], 1) for name, sizes in self.memory.items()}
        print(
            ", ".join(f"{name} {value}" for name, value in figures.items()), f"problems {len(self.problems)}", sep=", "
        )
        sys.stdout.flush()
        self.wal = 0

    def judge(self) -> bool:
        """Print what was wrong, and the account of all runs."""
        for name, sizes in self.memory.items():
            if len(sizes) > WARM and max(sizes[WARM:]) > 1.5 * sizes[WARM - 1]:
                self.problems.append(f"memory of the {name}, MB: {[round(size, 1) for size in sizes]}")
        print(self.account)
        for problem in self.problems[self.told :]:
            print("PROBLEM", problem)
        print("nothing was wrong" if not self.problems else f"{len(self.problems)} problems")
        return not self.problems


_SHOWN: Final = (
    "completed", "ended by the visitor", "cancelled", "kills", "woken", "taken over", "lost", "resumed", "suspended",
    "answered", "forgotten",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, or be one of its processes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    for name in ("--worker", "--visitor"):
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)
    parser.add_argument("--take", type=int, default=0, help=argparse.SUPPRESS)
    given: Any = parser.parse_args(arguments)
    if given.worker is not None:
        anyio.run(Worker(given.worker, given.name, given.take).main)
    elif given.visitor is not None:
        anyio.run(Visitor(given.visitor).main)
    else:
        with tempfile.TemporaryDirectory() as folder:
            return 0 if Soak(Path(folder), given.seed).run(given.minutes) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
