"""Kill a run again and again, anywhere, and let it go on: `python -m benchmarks.kills`.

Each run is a child process with a journal on disk. It is killed with SIGKILL, at a random moment or at one of the
points of `POINTS`, and started again, until it completes. The provider is a file that the child appends to and syncs,
so that it knows of every call whatever happens to the child. At the end the journal is compared with it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

import anyio

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.durable.database import Database
from kairo_team.errors import ModelCallError
from kairo_team.testing import FunctionModel

RUN: Final = "killed"
PAUSE: Final = 0.01
"""Seconds that a call takes."""
LONGEST: Final = 1.6
"""Most seconds until a child is killed: starting takes it half a second, a whole run two."""
FAILING: Final = 12
"""Every so many calls the provider fails."""
POINTS: Final = ("before a commit", "after a commit", "before a request arrives", "before an answer is seen")
"""Where a child may be killed exactly."""
LATEST: Final = 12
"""How often, at most, a child passes a point before it is killed there."""


@dataclass
class Account:
    """What came of all runs."""

    runs: int = 0
    kills: int = 0
    at_points: int = 0
    """Kills at one of the named points; the others came at random moments."""
    completed: int = 0
    sent: int = 0
    """Calls the provider knows of."""
    distinct: int = 0
    """Different requests among them."""
    in_doubt: int = 0
    """Calls whose answer nobody saw: charged in full, and asked again."""
    finished_again: int = 0
    """Calls that were made again although their answer was recorded."""
    untraced: int = 0
    """Calls the provider knows of and the journal does not."""
    mismatches: int = 0
    """Runs whose usage is not the sum of their calls."""

    def __add__(self, other: Account) -> Account:
        return Account(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


class Death:
    """Kills this process when it passes a point for the given time; the text is such as `after a commit:3`."""

    def __init__(self, text: str) -> None:
        self._point, _, left = text.partition(":")
        self._left = int(left or 0)

    def passes(self, point: str) -> None:
        """Count, and die."""
        self._left -= point == self._point
        if point == self._point and not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_commits(self) -> None:
        """Count the commits of every journal."""
        write: Any = Database._write  # noqa: SLF001 - a commit has no other name

        def watched(*values: Any) -> None:
            self.passes("before a commit")
            write(*values)
            self.passes("after a commit")

        journals: Any = Database
        journals._write = watched  # noqa: SLF001 - in this child alone


class Provider:
    """Answers by the request alone, and syncs a line to its file before it does."""

    def __init__(self, path: Path, death: Death) -> None:
        self._death = death
        self._file = path.open("a", encoding="utf-8")
        self.model = FunctionModel(self.answer, name="test:provider")
        self._calls = 0

    def answer(self, request: kt.ModelRequest) -> str:
        """Write the call down, fail now and then, and answer."""
        self._death.passes("before a request arrives")
        self._calls += 1
        failing = self._calls % FAILING == 0
        asked = "\n".join(message.text for message in request.messages)
        self._file.write(json.dumps({"asked": asked, "failed": failing}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._death.passes("before an answer is seen")
        if failing:
            raise ModelCallError("rate_limited", "test:provider", "try again")
        return f"answer to {len(asked)} characters"


class Editor:
    """Sends every first artifact back."""

    models = ("m:x",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        """Ask the model, and decide by the number of the attempt."""
        assert context.context is not None
        await context.context.model("m:x").complete(_ask(f"judge {context.artifact.text}"))
        return kt.EvaluationVerdict.revise("again") if context.attempt == 1 else kt.EvaluationVerdict.passed()


def _ask(text: str) -> kt.ModelRequest:
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=50)


async def clerk(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Ask three times, with a number that chance made."""
    number = await context.recorded("number", lambda: secrets.randbelow(10**9))
    said = ""
    for turn in range(3):
        await anyio.sleep(PAUSE)
        said = (await context.model("m:x").complete(_ask(f"{assignment.task.id} {number} {turn} {said}"))).text
    return f"{said} {number}"


def team() -> kt.Team:
    """Clerks, and a team of clerks."""
    inside = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"])])
    group = TeamAgent(kt.Team("inner", [kt.Member("clerk", clerk)]), plan=inside)
    return kt.Team("desk", [kt.Member("clerk", clerk), kt.Member("group", group)], evaluators={"editor": Editor()})


def plan() -> kt.TaskGraph:
    """Eight tasks in four layers, two of them by the inner team."""
    tasks = [kt.Task(f"first-{n}", "Begin.", member="clerk", evaluator="editor") for n in range(3)]
    tasks += [kt.Task(f"group-{n}", f"Do part {n}.", member="group", depends_on=[f"first-{n}"]) for n in range(2)]
    tasks += [kt.Task(f"then-{n}", "Go on.", member="clerk", depends_on=[f"group-{n}"]) for n in range(2)]
    return kt.TaskGraph([*tasks, kt.Task("last", "End.", member="clerk", depends_on=["then-0", "then-1", "first-2"])])


async def child(folder: Path, death: Death) -> None:
    """Begin the run, or go on with it."""
    death.watch_commits()
    journal = kt.SqliteJournal(folder / "runs.db")
    models = {"m:x": Provider(folder / "account", death).model}
    async with kt.Runtime(journal=journal, models=models, model_retry=kt.ModelRetry(backoff=0.01)) as runtime:
        if not journal.runs():
            request = kt.TeamExecutionRequest("Do it.", plan=plan(), run_id=RUN)
            await kt.run(team(), request, runtime=runtime)
        elif journal.result(RUN) is None:  # else it was killed after its end
            await runtime.resume(RUN, team())
    journal.close()


def killed_until_complete(folder: Path, chance: random.Random, most: int) -> tuple[int, int]:
    """Run the child until it completes, killing it at most so often; return how often it was, and so at a point."""
    kills = at_points = 0
    while True:
        at = f"{chance.choice(POINTS)}:{chance.randint(1, LATEST)}" if chance.getrandbits(1) and kills < most else ""
        command = [sys.executable, "-m", "benchmarks.kills", "--child", str(folder), "--at", at]
        process = subprocess.Popen(command)  # noqa: S603 - this very file
        try:
            status = process.wait(None if at or kills >= most else chance.uniform(0.3, LONGEST))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        if status == 0:
            return kills, at_points
        if status != -signal.SIGKILL:
            raise SystemExit(f"the child ended with {status}")
        kills, at_points = kills + 1, at_points + 1


def compare(journal: kt.SqliteJournal, run_id: str, lines: Sequence[Mapping[str, Any]]) -> Account:
    """Compare what a journal has of a run with the lines of the provider's account."""
    asked = Counter(line["asked"] for line in lines if not line["failed"])
    calls, doubt = journal.calls(run_id), journal.in_doubt(run_id)
    sent = [call for call in calls if call.state != "unsent"]
    run = journal.show(run_id)
    charged = sum((call.usage for call in calls), kt.Usage())
    again = sum(asked.values()) - len(asked)
    return Account(
        runs=1,
        completed=int(run.state == "completed"),
        sent=len(lines),
        distinct=len(asked),
        in_doubt=len(doubt),
        finished_again=max(0, again - len(doubt)),
        untraced=max(0, len(lines) - len(sent)),
        mismatches=int((run.usage.tokens, run.usage.dollars) != (charged.tokens, charged.dollars)),
    )


def account_of(folder: Path) -> Account:
    """Compare the journal of a child with its provider's account."""
    journal = kt.SqliteJournal(folder / "runs.db")
    lines = [json.loads(line) for line in (folder / "account").read_text(encoding="utf-8").splitlines()]
    return compare(journal, RUN, lines)


def measure(kills: int, seed: int) -> Account:
    """Kill so often, over as many runs as that takes."""
    chance, total = random.Random(seed), Account()  # noqa: S311 - moments, not secrets
    while total.kills < kills:
        with tempfile.TemporaryDirectory() as name:
            done, at_points = killed_until_complete(Path(name), chance, kills - total.kills)
            total += account_of(Path(name))
            total.kills += done
            total.at_points += at_points
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--at", default="", help=argparse.SUPPRESS)
    given: Any = parser.parse_args(arguments)
    if given.child is not None:
        anyio.run(child, given.child, Death(given.at))
        return
    total = measure(given.kills, given.seed)
    for field in fields(total):
        print(f"{field.name.replace('_', ' '):16} {getattr(total, field.name):6}")


if __name__ == "__main__":
    main()
