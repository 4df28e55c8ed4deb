"""A run that is killed in the middle and resumed in a new process: finished calls are not paid again.

    python -m kairo_team.examples.survives                          # on the model inside this process
    python -m kairo_team.examples.survives --model script           # a script in its place; or any model's name

Three tasks, three calls of the model each: a draft, advice, and a second version. A process runs them with a journal,
and is killed once four calls are finished and one is under way. A new process resumes the run. The provider keeps its
own account of its requests, and the last lines compare that account with the journal.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import anyio

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import Misuse
from kairo_team.testing import FunctionModel

RUN, FINISHED = "sea-1", 4  # the run's id, and how many calls are finished before the kill


class Provider:
    """A model that writes each request to disk before it answers."""

    def __init__(self, model: ChatModel, log: Path) -> None:
        self.name, self._model, self._log = model.name, model, log

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        """Write the request down, and answer it."""
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps([message.text for message in request.messages]) + "\n")
        return await self._model.complete(request)

    async def count_tokens(self, request: kt.ModelRequest) -> int | None:
        """Count like the model itself, so that enough is held for a call."""
        count = getattr(self._model, "count_tokens", None)
        return None if count is None else await count(request)


def script(*, hangs: bool) -> ChatModel:
    """Answer in place of a model; in the first process, the call after the finished ones never returns."""

    async def answer(request: kt.ModelRequest) -> str:
        if hangs and len(model.calls) > FINISHED:
            await anyio.sleep_forever()
        return f"A sentence, made from {len(request.messages[-1].text.split())} words."

    model = FunctionModel(answer, name="script")
    return model


def make_team(model: str) -> kt.Team:
    """Make a writer, and an editor that sends each first draft back with advice."""

    async def ask(context: kt.MemberContext, text: str) -> str:
        request = kt.ModelRequest([kt.Message.user(text)], max_tokens=40, settings={"temperature": 0})
        return (await context.model(model).complete(request)).text

    async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        advice = [f"Follow this advice: {finding.observed}" for finding in assignment.findings]
        return await ask(context, " ".join([assignment.task.description, *advice]))

    class Editor:
        models = (model,)

        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            if context.attempt > 1 or context.context is None:
                return kt.EvaluationVerdict.passed()
            draft = f"Say how to improve this text about {context.task.id}: {context.artifact.text}"
            return kt.EvaluationVerdict.revise(await ask(context.context, draft))

    return kt.Team("newsroom", [kt.Member("writer", write)], evaluators={"editor": Editor()})


def make_request() -> kt.TeamExecutionRequest:
    """Ask for three sentences, one after the other."""
    tasks = [kt.Task(it, f"Explain {it} in one sentence.", evaluator="editor") for it in ("tides", "fog", "wind")]
    plan, config = kt.TaskGraph(tasks), kt.TeamConfig(max_parallel_tasks=1)
    return kt.TeamExecutionRequest("Explain the sea.", plan=plan, config=config, run_id=RUN)


async def work(folder: Path, name: str) -> None:
    """Begin the run or resume it, in a process of its own."""
    journal = kt.SqliteJournal(folder / "runs.db")
    begun = journal.runs() != ()
    model = script(hangs=not begun) if name == "script" else kt.Runtime().models.resolve(name)
    async with kt.Runtime(journal=journal, models={name: Provider(model, folder / "provider.log")}) as runtime:
        await kt.run(make_team(name), make_request(), resume=True, runtime=runtime)
    journal.close()


def kill_in_the_middle(child: subprocess.Popen[bytes], journal: kt.SqliteJournal, log: Path) -> None:
    """Kill the process once enough calls are finished and the provider has one more request."""
    while child.poll() is None:
        finished = sum(call.state == "answered" for call in journal.calls(RUN)) if journal.runs() else 0
        if finished >= FINISHED and len(log.read_text(encoding="utf-8").splitlines()) > finished:
            child.kill()  # SIGKILL: the process can do nothing about it
            return
        time.sleep(0.005)
    raise SystemExit("the run ended before it could be killed")


def account(journal: kt.SqliteJournal, known: int, log: Path) -> tuple[list[str], bool]:
    """Return the lines to print, and whether the provider's account agrees; `known` calls were made before the kill."""
    calls, doubt, run = journal.calls(RUN), journal.in_doubt(RUN), journal.show(RUN)
    parts = [call for call in calls[:known] if call not in doubt], doubt, calls[known:]
    lines = [f"{'':10}{'before the kill':>17}{'in doubt':>17}{'after it':>17}", f"task{'':6}{'  calls    tokens' * 3}"]
    for task in (*dict.fromkeys(call.task_id for call in calls), "total"):
        chosen = [[call.usage.tokens for call in part if task in (call.task_id, "total")] for part in parts]
        lines.append(f"{task:10}" + "".join(f"{len(tokens):7}{sum(tokens):10}" for tokens in chosen))
    asked = log.read_text(encoding="utf-8").splitlines()
    finished, again = sum(call.state == "answered" for call in calls), len(asked) - len(set(asked))
    agrees = len(set(asked)) == finished and again <= len(calls) - finished and run.state == "completed"
    agrees = agrees and run.usage.tokens == sum(call.usage.tokens for call in calls)
    reached = f"Requests that reached the provider: {len(asked)}, {again} of them for the second time."
    told = f"{finished} finished calls were paid once each; calls in doubt, charged in full: {len(doubt)}."
    return [*lines, "", reached, told if agrees else f"This is NOT true: {told}"], agrees


def survive(model: str, say: Callable[[str], object]) -> bool:
    """Run, kill and resume; pass the account's lines to `say`, and return whether it agrees with the provider's."""
    with tempfile.TemporaryDirectory(prefix="kairo-survives-") as name:
        journal, log = kt.SqliteJournal(Path(name, "runs.db")), Path(name, "provider.log")
        command = [sys.executable, __file__, "--model", model, "--child", name]
        say(f"A process runs three tasks on {model}, and is killed.")
        with started(command) as child:
            kill_in_the_middle(child, journal, log)
        run, known, doubt = journal.show(RUN), len(journal.calls(RUN)), len(journal.in_doubt(RUN))
        say(f"The journal says: {run.state}, {run.usage.tokens} tokens, {known} calls, {doubt} of them in doubt.")
        with started(command) as child:
            if child.wait():
                raise SystemExit("the run could not be resumed")
        lines, agrees = account(journal, known, log)
        journal.close()
        for line in (f"A new process resumes the run: {journal.show(RUN).state}.", "", *lines):
            say(line)
    return agrees


@contextmanager
def started(command: list[str]) -> Generator[subprocess.Popen[bytes]]:
    """Start a process that Ctrl-C does not reach, and that ends with the block."""
    with subprocess.Popen(command, start_new_session=True) as child:  # noqa: S603 - this very file
        try:
            yield child
        finally:
            child.kill()


def main(arguments: list[str] | None = None) -> int:
    """Run, kill, resume, and print the account."""
    parser = argparse.ArgumentParser(description="A run that is killed, and resumed in a new process.")
    parser.add_argument("--model", default="local:smollm2", help="the model that writes, or: script")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child is not None:
        anyio.run(work, given.child, given.model)
        return 0
    try:
        kt.Runtime(models={"script": script(hangs=False)}).models.resolve(given.model)
    except Misuse as error:
        parser.error(str(error))
    return 0 if survive(given.model, print) else 1


if __name__ == "__main__":
    sys.exit(main())
