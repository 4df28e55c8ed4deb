"""Every example gives the same result in one process and over workers."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

import kairo_team as kt
from kairo_team._util.threads import run_in_thread
from kairo_team.contracts import ChatModel
from kairo_team.examples import (
    clean_csv,
    expert_team,
    group_chat,
    guarded_tools,
    human_gate,
    mail_triage,
    many_machines,
    map_reduce,
    pull_request,
    read_invoices,
    release_notes,
    research,
    serve_events,
    supervisor,
    support_desk,
    survives,
    task_board,
    which_coordinator,
)
from kairo_team.examples.regulated import review
from kairo_team.examples.release_notes_history import curated
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel
from tests.cluster.stage import new_database, warned, working
from tests.examples import (
    test_clean_csv,
    test_mail_triage,
    test_pull_request,
    test_read_invoices,
    test_release_notes,
    test_research,
)

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.sampled("anyio_backend"),
    pytest.mark.skipif(not EXAMPLES.exists(), reason="runs in the repository only"),
]


@dataclass
class Job:
    """What an example runs."""

    team: kt.Team
    request: kt.TeamExecutionRequest
    runtime: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the runtimes of the coordinator and of the workers have."""
    person: Callable[[kt.HumanRequest], Any] | None = None
    """Answers the questions."""


def scripted(team: kt.Team, request: kt.TeamExecutionRequest, name: str, model: ChatModel, **more: Any) -> Job:
    """Return a job whose models of this name are replaced."""
    return Job(team, request, {"models": {name: model}}, **more)


def clean_a_file(_: Path) -> Job:
    model = FunctionModel(test_clean_csv.answer)
    return Job(clean_csv.make_team(model), clean_csv.make_request(test_clean_csv.CONTENT))


def guard_tools(folder: Path, *, plan_mode: bool = False) -> Job:
    place = folder / "desk"
    guarded_tools.fill(place)
    tries = [guarded_tools.TRIES[0], guarded_tools.TRIES[5]] if plan_mode else guarded_tools.TRIES
    model = guarded_tools.play(tries)
    config = kt.TeamConfig(budget=guarded_tools.BUDGET)
    request = kt.TeamExecutionRequest("Write the notice.", config=config)
    team = guarded_tools.build(place, model, len(tries) + 2, plan_mode=plan_mode)
    return Job(team, request, {"secrets": [guarded_tools.TOKEN]})


def lend(_: Path) -> Job:
    answers = list(human_gate.ANSWERS)
    team, _runtime = human_gate.build(kt.ConsoleGate())
    request = kt.TeamExecutionRequest("Lend it.", plan=human_gate.plan)
    return Job(team, request, person=lambda question: answers.pop(0))


def sort_mails(_: Path) -> Job:
    mails = anyio.run(mail_triage.read_mails, test_mail_triage.MAILS)
    team = mail_triage.make_team(FunctionModel(test_mail_triage.write))
    return Job(team, mail_triage.make_request(mails), person=mail_triage.approve)


def review_a_change(_: Path) -> Job:
    team = pull_request.make_team(FunctionModel(test_pull_request.write))
    return Job(team, pull_request.make_request(test_pull_request.DIFF), person=pull_request.approve)


def read_pictures(_: Path) -> Job:
    model = "test:eyes"
    request = kt.TeamExecutionRequest("Read them.", plan=read_invoices.make_plan(test_read_invoices.PICTURES))
    return scripted(read_invoices.make_team(model), request, model, test_read_invoices.Eyes().model)


def look_up(folder: Path) -> Job:
    for name, text in test_research.NOTES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    found = research.paragraphs(folder)
    team = research.make_team(found, FunctionModel(test_research.point))
    return Job(team, research.make_request("When was the roof repaired?", found))


def write_notes(answer: Callable[[kt.ModelRequest], str]) -> Job:
    team = release_notes.make_team()
    return scripted(team, release_notes.make_request(curated()), "local:smollm2", FunctionModel(answer))


def survive(_: Path) -> Job:
    model = survives.script(hangs=False)
    return scripted(survives.make_team("script"), survives.make_request(), "script", model)


def use_many_machines(_: Path) -> Job:
    plan = kt.TaskGraph([kt.Task(f"t{n}", f"What is {thing} for?") for n, thing in enumerate(many_machines.THINGS)])
    model = FunctionModel(many_machines.script, name="script")
    return scripted(many_machines.team, kt.TeamExecutionRequest("Explain.", plan=plan), many_machines.MODEL, model)


def dose(notes: list[str]) -> Job:
    request = kt.TeamExecutionRequest("Dose them.", plan=review.PLAN)
    return Job(review.build(notes, None), request, person=lambda question: not question.findings)


def support(_: Path) -> Job:
    model = ScriptedModel(support_desk.SCRIPT)
    return scripted(support_desk.make_team(), support_desk.request, support_desk.MODEL, model)


def watch_the_sea(_: Path) -> Job:
    return Job(*serve_events.build("Tell what the sea is like."))


def news(_: Path) -> Job:
    job = kt.load_job(EXAMPLES / "newsdesk/team.yaml")
    model = ScriptedModel(["The moon.", "The sea goes up and down.", "The moon pulls the sea."])
    return scripted(job.team, job.request(), "*", model)


def coordinate(name: str, _: Path) -> Job:
    return Job(*which_coordinator.build(name, FunctionModel(which_coordinator.scripted)))


JOBS: Final[Mapping[str, Callable[[Path], Job]]] = {
    "clean_csv": clean_a_file,
    "expert_team": lambda _: Job(*expert_team.build(offline=True)),
    "group_chat": lambda _: Job(*group_chat.build(offline=True)),
    "guarded_tools": guard_tools,
    "guarded_tools: planning": lambda folder: guard_tools(folder, plan_mode=True),
    "human_gate": lend,
    "mail_triage": sort_mails,
    "many_machines": use_many_machines,
    "map_reduce": lambda _: Job(*map_reduce.build()),
    "newsdesk": news,
    "pull_request": review_a_change,
    "read_invoices": read_pictures,
    "regulated": lambda _: dose([review.CARELESS, review.CAREFUL]),
    "regulated: who does not listen": lambda _: dose([review.CARELESS] * 4),
    "release_notes": lambda _: write_notes(test_release_notes.right),
    "release_notes: a model that is wrong": lambda _: write_notes(test_release_notes.wrong),
    "research": look_up,
    "serve_events": watch_the_sea,
    "supervisor": lambda _: Job(*supervisor.build(offline=True)),
    "support_desk": support,
    "survives": survive,
    "task_board": lambda _: Job(*task_board.build()),
    **{f"which_coordinator: {name}": partial(coordinate, name) for name in which_coordinator.coordinators("m:x")},
}
NOT_HERE: Final = {
    "bring_your_agent": "its agents bring their own clients, which need the embedded model: see below",
    "clean_csv_rules": "a part of clean_csv",
    "coding_agent": "its program works in one folder of one machine",
    "coding_agent_data": "a part of coding_agent",
    "judge_calibration": "a judge without a team: nothing is run",
    "release_notes_history": "a part of release_notes",
    "release_notes_prompt": "a part of release_notes",
    "release_notes_rubric": "a part of release_notes",
    "team_as_tool": "what it shows is a client that starts the team",
    "two_libraries": "its members are scripts in environments of their own",
    "two_libraries_data": "a part of two_libraries",
}


def test_no_example_is_left_out() -> None:
    modules = {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in [*EXAMPLES.glob("*/*.py"), *EXAMPLES.glob("*/team.yaml")]}
    assert {name.partition(":")[0] for name in JOBS} | NOT_HERE.keys() == modules | folders


NOW: Final = datetime.now(UTC)


def seen(result: kt.TeamResult) -> Mapping[str, Any]:
    """Return what has to be the same: all but times."""
    outcomes = {
        one.task_id: {
            "status": one.status,
            "member": one.member,
            "attempts": one.attempts,
            "artifact": one.artifact,
            "usage": replace(one.usage, seconds=0.0),
            "verdict": None if one.verdict is None else replace(one.verdict, evaluated_at=NOW),
            "warnings": one.warnings,
            "error": one.error,
        }
        for one in result.outcomes
    }
    return {
        "status": result.status,
        "outcomes": outcomes,
        "plan": result.plan,
        "output": result.output,
        "usage": replace(result.usage, seconds=0.0),
        "warnings": warned(result),
        "error": result.error,
    }


WAITS: Final = ("budget.", "task.waiting", "model.waiting")
"""Events that tell of how long something took."""


def told(recorder: EventRecorder) -> Counter[str]:
    """Return how many events of each type there were."""
    return Counter(one for one in recorder.types if not one.startswith(WAITS))


def around(job: Job, **options: Any) -> tuple[kt.Runtime, EventRecorder]:
    recorder = EventRecorder()
    gate = None if job.person is None else kt.CallbackGate(job.person)
    return kt.Runtime(subscribers=[recorder], gate=gate, **job.runtime, **options), recorder


async def compare(make: Callable[[Path], Job], folder: Path) -> kt.TeamResult:
    """Run a job in this process, and anew over workers; return the result, which is the same."""
    first, second = ((folder / name) for name in ("here", "there"))
    first.mkdir()
    second.mkdir()
    job = await run_in_thread(make, first)
    runtime, heard = around(job)
    local = await kt.run(replace(job.team, runtime=None), job.request, runtime=runtime)
    job = await run_in_thread(make, second)
    team = replace(job.team, runtime=kt.Runtime(**job.runtime))
    async with working(new_database("procrastinate"), team) as cluster:
        runtime, heard_there = around(job, engine=cluster)
        with anyio.fail_after(120):
            result = await kt.run(replace(job.team, runtime=None), job.request, runtime=runtime)
    assert seen(result) == seen(local)
    assert told(heard_there) == told(heard)
    return result


@pytest.mark.parametrize(
    "name",  # the longest is left to `make rest`
    [pytest.param(name, marks=[pytest.mark.exhaustive] if name == "clean_csv" else []) for name in JOBS],
)
async def test_an_example_gives_the_same_result_over_workers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where an example looks around
    monkeypatch.setattr(serve_events, "SECONDS", 0.01)
    result = await compare(JOBS[name], tmp_path)
    assert result.outcomes


async def test_questions_that_were_put_off_are_answered_and_the_run_goes_on_over_workers() -> None:
    lines: list[list[str]] = []
    team, _ = human_gate.build(kt.DeferGate())
    team = replace(team, runtime=None)
    async with working(new_database("procrastinate"), team) as cluster:
        for engine in (None, cluster):
            runtime = kt.Runtime(gate=kt.DeferGate(), engine=engine)
            request = kt.TeamExecutionRequest("Lend it.", plan=human_gate.plan, run_id="loan-1")
            result = await kt.run(team, request, resume=True, runtime=runtime)
            shown = human_gate.summary(result)
            for decision in human_gate.ANSWERS:
                (question,) = await run_in_thread(runtime.pending, "loan-1")
                await run_in_thread(runtime.answer, question.id, decision)
                result = await kt.run(team, request, resume=True, runtime=runtime)
                shown += [question.text, *human_gate.summary(result)]
            assert result.status is kt.TeamStatus.COMPLETED
            lines.append(shown)
    assert lines[0] == lines[1]


@pytest.fixture
def collected() -> Iterator[None]:
    """Free what the test left behind, here and not in whatever test runs then."""
    yield
    gc.collect()


@pytest.mark.exhaustive
@pytest.mark.local_model
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # pydantic-ai leaves its connections open
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # pydantic-ai runs nowhere else
@pytest.mark.usefixtures("collected")
async def test_agents_of_other_libraries_give_the_same_result_over_workers(tmp_path: Path) -> None:
    from kairo_team.examples import bring_your_agent

    def make(_: Path) -> Job:
        return Job(bring_your_agent.make_team(), bring_your_agent.make_request())

    result = await compare(make, tmp_path)
    assert result.status is kt.TeamStatus.COMPLETED
