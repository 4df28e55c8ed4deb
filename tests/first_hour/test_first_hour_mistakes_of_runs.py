"""Mistakes with people, parts of your own, durable and watched runs, files and commands: five each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.testing import FunctionModel
from kairo_team.tools import Rule
from tests.first_hour.mistakes import ANY, EDITED, TEAM, Mistakes, params, reviewed, run, told, with_agent, write

Kairo = Callable[..., Any]

# ------------------------------------------------------------------ a person approves


def waiting() -> tuple[kt.Runtime, str]:
    runtime = kt.Runtime(gate=kt.DeferGate())
    run(reviewed(EDITED), runtime=runtime, run_id="tides-1")
    (question,) = runtime.pending("tides-1")
    return runtime, question.id


def answered_in_a_word() -> None:
    runtime, question = waiting()
    runtime.answer(question, ANY.HumanDecision and "approve")  # type: ignore[arg-type]  # the mistake


def another_question() -> None:
    runtime, _ = waiting()
    runtime.answer("q-7", kt.HumanDecision.approve())


PERSON: Mistakes = {
    "no gate": (
        lambda: run(reviewed(EDITED)),
        ["criterion 'ok': a human decides it, and the run has no gate", "gate=kt.ConsoleGate()"],
    ),
    "a function of nothing": (
        lambda: ANY.CallbackGate(lambda: True),
        ["CallbackGate: <lambda> takes (), and is called as decide(question)"],
    ),
    "a function as a gate": (
        lambda: ANY.Runtime(gate=write),
        ["Runtime.gate must have an async decide(question), not <function write"],
    ),
    "an answer in a word": (
        answered_in_a_word,
        ["an answer is a HumanDecision, such as HumanDecision.approve(), not 'approve'"],
    ),
    "another question": (another_question, ["no open question 'q-7'", "open now: 'tides-1:human:1:writer:1:review'"]),
}

# ------------------------------------------------------------------ an evaluator of your own


class Answers:
    def __init__(self, answer: Callable[[kt.EvaluationContext], Any]) -> None:
        self.answer = answer

    async def evaluate(self, context: kt.EvaluationContext) -> Any:
        return self.answer(context)


EVALUATOR: Mistakes = {
    "True": (
        lambda: run(reviewed(Answers(lambda context: True))),
        ["task 'writer' failed", "Answers returned True instead of an EvaluationVerdict"],
    ),
    "another outcome": (
        lambda: ANY.EvaluationVerdict("ok"),
        ["EvaluationVerdict.outcome must be 'pass', 'revise', 'escalate' or 'review_exceeded', not 'ok'"],
    ),
    "findings for feedback": (
        lambda: ANY.EvaluationVerdict.revise([kt.Finding("moon")]),
        ["takes the feedback as a text", "revise('too long', findings=[...])", "not [Finding("],
    ),
    "a score in percent": (
        lambda: ANY.EvaluationVerdict("pass", score=80),
        ["EvaluationVerdict.score must be from 0 to 1 or None, not 80"],
    ),
    "another cause": (
        lambda: kt.EvaluationVerdict.escalate("tired"),
        ["the cause must be one of 'undecided'", "'human_required'", "not 'tired'"],
    ),
}

# ------------------------------------------------------------------ an agent of your own


class Asks:
    def __init__(self, ask: Callable[[Any], Any], wait: bool = True) -> None:
        self.ask, self.wait = ask, wait

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        made = self.ask(context)
        return await made if self.wait else made


REQUEST = kt.ModelRequest([kt.Message.user("Explain tides.")])
FINE = kt.Runtime(models={"m": FunctionModel(lambda request: "Fine.")})


AGENT: Mistakes = {
    "a text for a request": (
        lambda: with_agent(Asks(lambda context: context.model("m").complete("Explain tides.")), runtime=FINE),
        ["complete takes a ModelRequest", "kt.ModelRequest([kt.Message.user('...')])", "not 'Explain tides.'"],
    ),
    "the whole response": (
        lambda: with_agent(Asks(lambda context: context.model("m").complete(REQUEST)), runtime=FINE),
        ["member 'writer' returned a ModelResponse", "an Artifact or an AgentOutput; return its .text"],
    ),
    "data that JSON cannot hold": (
        lambda: with_agent(Asks(lambda _: {"made": object()}, wait=False)),
        ["member 'writer' returned a dict that JSON cannot hold"],
    ),
    "another role of a message": (
        lambda: ANY.Message("human", "Hello."),
        ["Message.role must be 'system', 'user', 'assistant' or 'tool', not 'human'"],
    ),
    "a team as an agent": (
        lambda: ANY.Member("research", TEAM),
        ["member 'research': team 'desk' is an agent only in its wrapper", "TeamAgent(team)"],
    ),
}

# ------------------------------------------------------------------ a tool with permissions


@kt.tool(side_effect="read")
def look_up(topic: str) -> str:
    """Look up a topic."""
    return topic


TOOL: Mistakes = {
    "another side effect": (
        lambda: ANY.tool(side_effect="reads"),
        ["@tool: side_effect must be one of read, write, system, not 'reads'"],
    ),
    "a tool by name": (
        lambda: ANY.MiniAgent("m", tools=["look_up"]),
        ["a tool is a function, a method, a callable object or a Tool, not 'look_up'"],
    ),
    "a role that allows none of them": (
        lambda: run(
            kt.Team("desk", [kt.Member(kt.Role("w", allowed_tools=["lookup"]), kt.MiniAgent("m", tools=[look_up]))]),
            runtime=FINE,
        ),
        ["member 'w': its role allows 'lookup', and its tools are 'look_up'"],
    ),
    "a rule that is not closed": (
        lambda: Rule.allow("look_up("),
        ["a rule is written 'tool' or 'tool(glob)', not 'look_up('"],
    ),
    "a guard by name": (
        lambda: ANY.ToolPermissions(guard="strict"),
        [
            "ToolPermissions.guard must have an async check(tool, arguments, side_effect)",
            "RuleGuard([...])",
            "'strict'",
        ],
    ),
}

# ------------------------------------------------------------------ a durable run


def in_journal(work: Callable[[kt.Runtime], Coroutine[Any, Any, Any]]) -> Any:
    async def session() -> Any:
        async with kt.Runtime(journal=kt.SqliteJournal("runs.db")) as runtime:
            return await work(runtime)

    return anyio.run(session)


def begun() -> None:
    in_journal(lambda runtime: kt.run(TEAM, "Explain tides.", run_id="tides-1", runtime=runtime))


def begun_twice() -> None:
    begun()
    begun()


def resumed(run_id: str) -> None:
    begun()
    in_journal(lambda runtime: runtime.resume(run_id, TEAM))


DURABLE: Mistakes = {
    "a folder": (lambda: kt.SqliteJournal("."), ["journal '.'", "it is a directory", "such as 'runs.db'"]),
    "the same id again": (begun_twice, ["run 'tides-1' is recorded already: resume it, or use another run_id"]),
    "a run that has ended": (
        lambda: resumed("tides-1"),
        ["run 'tides-1' has ended already: it is completed", "journal.result('tides-1')"],
    ),
    "a misspelt id": (lambda: resumed("tide-1"), ["no run 'tide-1' in journal 'runs.db', which has: 'tides-1'"]),
    "no journal": (
        lambda: anyio.run(kt.Runtime().resume, "tides-1", TEAM),
        ["no run 'tides-1' in this runtime, which has no journal="],
    ),
}

# ------------------------------------------------------------------ watching


async def without_a_block() -> None:
    await kt.Runtime().start(TEAM, "Explain tides.")


def live(work: Callable[[Any], object]) -> Callable[[], None]:
    async def watched() -> None:
        async with kt.Runtime() as runtime:
            started = await runtime.start(TEAM, "Explain tides.")
            work(started)

    return lambda: anyio.run(watched)


WATCHING: Mistakes = {
    "one subscriber": (
        lambda: ANY.Runtime(subscribers=print),
        ["Runtime.subscribers is a list of functions that take an event", "put it into a list, [...]"],
    ),
    "a subscriber of nothing": (
        lambda: ANY.Runtime(subscribers=[lambda: None]),
        ["Runtime.subscribers: <lambda> takes (), and is called as subscriber(event)"],
    ),
    "no block": (
        lambda: anyio.run(without_a_block),
        ["start and stream need `async with kt.Runtime(...) as runtime:` around them"],
    ),
    "a number as a top-up": (
        live(lambda started: started.top_up(500)),
        ["top_up takes a Budget, such as kt.Budget(tokens=500), not 500"],
    ),
    "an event's number below none": (
        live(lambda started: started.events(after=-1)),
        ["events(after=) takes the number of the last event that is known, from 0, not -1"],
    ),
}

# ------------------------------------------------------------------ a team from a file


def read(text: str) -> Callable[[], Any]:
    def load() -> kt.Team:
        Path("team.yaml").write_text(text, encoding="utf-8")
        return kt.load_team("team.yaml")

    return load


ONE = "name: desk\nmembers:\n  - role: writer\n    agent: {mini: {model: my-model}}\n"

FILE: Mistakes = {
    "no file": (lambda: kt.load_team("tem.yaml"), ["there is no file 'tem.yaml'", ".yaml, .toml or .json"]),
    "a misspelt key": (
        read("name: desk\nmember: []\n"),
        ["team.yaml, line 2", "takes no 'member'; did you mean 'members'?"],
    ),
    "a misspelt agent": (
        read(ONE.replace("mini", "mni")),
        ["team.yaml, line 4", "there is no agent 'mni'; did you mean 'mini'?", "'best-of', 'mini', 'team'"],
    ),
    "a number as a budget": (
        read(f"{ONE}    budget: 5\n"),
        ["team.yaml, line 5", "members[0].budget must be a mapping or null, not 5"],
    ),
    "a misspelt check": (
        read(f"{ONE}evaluators: {{house: {{criteria: [{{id: s, text: x, check: {{max_word: 3}}}}]}}}}\n"),
        ["line 5", "names 'max_word', which is not a check; did you mean 'max_words'?"],
    ),
}

JOBS = {
    "person": PERSON,
    "evaluator": EVALUATOR,
    "agent": AGENT,
    "tool": TOOL,
    "durable": DURABLE,
    "watching": WATCHING,
    "file": FILE,
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("mistake", "parts"), params(JOBS))
def test_a_mistake_gets_a_sentence_that_says_what_to_do(mistake: Callable[[], Any], parts: list[str]) -> None:
    said = told(mistake)
    assert [part for part in parts if part not in said] == [], said


# ------------------------------------------------------------------ the command line


DESK = 'import kairo_team as kt\n\nteam = kt.Team("desk", [kt.Member("writer", lambda assignment: "The moon.")])\n'

COMMANDS = {
    "no file": (["run", "dsk.py", "Go."], ["there is no file 'dsk.py'", "a Python file that builds a kt.Team"]),
    "no goal": (["run", "desk.py"], ["team 'desk' has no goal: give one after the file"]),
    "a misspelt name": (["run", "desk.py:tem", "Go."], ["desk.py has no 'tem': it has 'team'"]),
    "a misspelt limit": (
        ["run", "desk.py", "Go.", "--budget", "token=5"],
        ["--budget limits 'dollars', 'loops', 'seconds', 'tokens', 'tool_calls', not 'token'", "tokens=20000"],
    ),
    "a misspelt command": (["rn", "desk.py"], ["No such command 'rn'", "Did you mean 'run'"]),
    "a command of others": (
        ["watch", "r1"],
        ["there is no command 'watch'", "kairo events RUN --follow", "kairo console"],
    ),
    "another one": (["stop", "r1"], ["there is no command 'stop'", "kairo cancel RUN"]),
}


@pytest.mark.parametrize(("typed", "parts"), COMMANDS.values(), ids=COMMANDS)
def test_a_mistake_on_the_command_line_gets_one_sentence(
    kairo: Kairo, folder: Path, typed: list[str], parts: list[str]
) -> None:
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    said = kairo(*typed)
    assert said.code == 2
    assert [part for part in parts if part not in said.err] == [], said.err
    assert len(said.err.splitlines()) == 1


def test_an_answer_that_is_none_counts_as_silence_and_the_log_says_what_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = ANY.CallbackGate(lambda question: "yes")
    assert run(reviewed(EDITED), runtime=kt.Runtime(gate=gate)).status == "failed"
    assert "the callback must return a HumanDecision, True, False or None, not 'yes'" in caplog.text
