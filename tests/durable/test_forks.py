"""A fork goes on from an earlier point of a recorded run: what stood there is not paid again."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.errors import Misuse, PlanMismatch
from kairo_team.events import Event, ModelCalled
from kairo_team.recorded import RecordedCall
from kairo_team.testing import FunctionModel, virtual_time_backends
from kairo_team.tools import SideEffectGuard, ToolPermissions
from tests.durable.desk import PLAN, RUN, Images, Provider, begin, desk
from tests.durable.test_law import RUN as LAW_RUN
from tests.durable.test_law import World, comparable, play, scenarios

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]


async def fork_and_go_on(
    path: Path, provider: Provider, *, before: str | int, run_id: str = RUN, new_id: str = "fork"
) -> kt.TeamResult:
    """Fork a run of the desk, and go on with the fork."""
    journal = kt.SqliteJournal(path, sync="normal")
    try:
        made = journal.fork(run_id, before=before, new_id=new_id)
        assert (made, journal.show(made).state, journal.show(made).forked_from) == (new_id, "interrupted", run_id)
        assert journal.show(made).usage.tokens == sum(one.usage.tokens for one in journal.calls(made))
        async with kt.Runtime(models={"m:x": provider.model}, journal=journal) as runtime:
            return await runtime.resume(made, desk(provider))
    finally:
        journal.close()


def ends(result: kt.TeamResult) -> list[Any]:
    return [(one.task_id, one.status, one.attempts, one.artifact and one.artifact.text) for one in result.outcomes]


async def test_a_fork_before_a_task_makes_that_task_and_its_dependents_again(tmp_path: Path) -> None:
    path, first, again = tmp_path / "runs.db", Provider(), Provider()
    whole = await begin(path, first)
    result = await fork_and_go_on(path, again, before="two")
    assert result.status == "completed"
    assert ends(result)[:3] == ends(whole)[:3]  # the fourth has a number of its own
    left_out = [call for call in kt.SqliteJournal(path).calls(RUN) if call.task_id in {"two", "four"}]
    assert sum(again.asked.values()) == sum(call.what == "model" for call in left_out) > 0
    assert len(again.mailed) == len(first.mailed) == 1
    assert result.usage.tokens == whole.usage.tokens
    assert result.usage.loops == whole.usage.loops


async def test_nothing_is_counted_twice_and_the_earlier_run_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    providers = [Provider(), Provider(), Provider()]
    whole = await begin(path, providers[0])
    before = kt.SqliteJournal(path).calls(RUN)
    await fork_and_go_on(path, providers[1], before="two")
    await fork_and_go_on(path, providers[2], before="four", run_id="fork", new_id="fork-2")
    journal = kt.SqliteJournal(path)
    assert journal.calls(RUN) == before
    assert journal.result(RUN) == whole
    assert [one.run_id for one in journal.runs()] == ["fork-2", "fork", RUN]
    paid = [
        one for run in journal.runs() for one in journal.calls(run.run_id) if not one.copied and one.what == "model"
    ]
    assert len(paid) == sum(sum(one.asked.values()) for one in providers)
    for run in journal.runs():
        calls = journal.calls(run.run_id)
        assert sum(one.usage.tokens for one in calls) == run.usage.tokens == whole.usage.tokens
    assert journal.forget("fork") == 1
    assert journal.show("fork-2").usage.tokens == whole.usage.tokens


async def test_a_fork_takes_another_prompt_for_what_is_left_out(tmp_path: Path) -> None:
    path, provider = tmp_path / "runs.db", Provider()
    await begin(path, Provider())
    journal = kt.SqliteJournal(path)
    team = desk(provider)
    writer = kt.Member(kt.Role("writer", "Be brief."), team.members[1].agent)
    changed = kt.Team("desk", [team.members[0], writer, team.members[2]], evaluators=team.evaluators)
    made = journal.fork(RUN, before="two")
    async with kt.Runtime(models={"m:x": provider.model}, journal=journal) as runtime:
        with pytest.raises(PlanMismatch, match="instructions of role 'writer'"):
            await runtime.resume(made, changed)
        allowed = ["instructions of role 'writer'"]
        result = await runtime.resume(made, changed, allow_changes=allowed, budget=kt.Budget(tokens=100_000))
    journal.close()
    assert result.status == "completed"
    assert result.run_id == made
    assert result.budget is not None
    assert result.budget.budget.tokens == 100_000
    assert any("Be brief." in asked for asked in provider.asked)
    assert not any("Do one" in asked for asked in provider.asked)


async def test_a_fork_takes_another_plan_and_configuration(tmp_path: Path) -> None:
    worked: list[str] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        worked.append(assignment.task.id)
        context.governor.record_usage(prompt_tokens=10)
        return f"made {assignment.task.id} of {list(assignment.upstream)}"

    journal, team = kt.SqliteJournal(tmp_path / "runs.db"), kt.Team("desk", [kt.Member("clerk", work)])
    runtime, kept = kt.Runtime(journal=journal), kt.Task("kept", "1")
    plan = kt.TaskGraph([kept, kt.Task("left", "2", depends_on=["kept"])])
    config = kt.TeamConfig(budget=kt.Budget(tokens=100))
    await kt.run(team, kt.TeamExecutionRequest("Go.", plan=plan, config=config, run_id="r"), runtime=runtime)
    other = kt.TaskGraph([kt.Task("new", "3"), kept, kt.Task("left", "4", depends_on=["new", "kept"])])
    with pytest.raises(ValueError, match="changes or omits 'kept'"):
        journal.fork("r", before="left", new_id="wrong", plan=kt.TaskGraph([kt.Task("kept", "another")]))
    assert [one.run_id for one in journal.runs()] == ["r"], "nothing is left of what was refused"
    smaller = kt.TeamConfig(budget=kt.Budget(tokens=60))
    worked.clear()
    result = await runtime.resume(journal.fork("r", before="left", plan=other, config=smaller), team)
    assert result.status == "completed"
    assert worked == ["new", "left"]
    assert result.budget is not None
    assert (result.budget.budget.tokens, result.usage.tokens) == (60, 30)
    assert [one.task_id for one in result.outcomes] == ["new", "kept", "left"]
    worked.clear()
    result = await runtime.resume(journal.fork("r", before=0, plan=kt.TaskGraph([kt.Task("alone", "5")])), team)
    assert (worked, result.output) == (["alone"], "made alone of []")
    journal.close()


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.exhaustive)])
async def test_a_fork_after_an_event_leaves_out_what_was_recorded_after_it(tmp_path: Path, step: int) -> None:
    path = tmp_path / "runs.db"
    events: list[Event] = []
    journal = kt.SqliteJournal(path, sync="normal")
    first = Provider()
    async with kt.Runtime(models={"m:x": first.model}, journal=journal, subscribers=[events.append]) as runtime:
        request = kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id=RUN)
        whole = await kt.run(desk(first), request, runtime=runtime)
    journal.close()
    own = [one for one in events if one.run_id == RUN]
    for event in own[::step]:
        again = Provider()
        result = await fork_and_go_on(path, again, before=event.seq, new_id=f"fork-{event.seq}")
        assert result.status == "completed"
        assert result.usage.tokens - whole.usage.tokens <= 20  # a number of the clerk's may have another length
        called = sum(isinstance(one, ModelCalled) for one in events[: events.index(event) + 1])
        assert sum(again.asked.values()) == sum(first.asked.values()) - called, event
    everything = Provider()
    await fork_and_go_on(path, everything, before=0, new_id="from-the-start")
    assert sum(everything.asked.values()) == sum(first.asked.values())


async def test_a_cut_run_is_forked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = Images(tmp_path, monkeypatch)
    whole = await begin(tmp_path / "runs.db", Provider())
    monkeypatch.undo()
    for number, path in enumerate(images.paths[2::5]):
        if kt.SqliteJournal(path).show(RUN).state == "completed":
            continue
        provider = Provider()
        result = await fork_and_go_on(path, provider, before="four", new_id=f"fork-{number}")
        assert result.status == whole.status
        assert [one[:3] for one in ends(result)] == [one[:3] for one in ends(whole)]


async def test_a_run_that_failed_goes_on_before_the_task_that_failed(tmp_path: Path) -> None:
    path, asked, broken = tmp_path / "runs.db", Counter[str](), True

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        asked[assignment.task.id] += 1
        if broken and assignment.task.id == "two":
            raise ValueError("broken")
        return f"made {assignment.task.id}"

    team = kt.Team("desk", [kt.Member("clerk", work)])
    plan = kt.TaskGraph([kt.Task("one", "1"), kt.Task("two", "2", depends_on=["one"]), kt.Task("three", "3",
                         depends_on=["two"])])  # fmt: skip
    journal = kt.SqliteJournal(path)
    runtime = kt.Runtime(journal=journal)
    config = kt.TeamConfig(risk_profile=kt.RiskProfile.MEDIUM)
    request = kt.TeamExecutionRequest("Go.", plan=plan, config=config, run_id="r")
    failed = await kt.run(team, request, runtime=runtime, coordinator=ExpertTeamCoordinator())
    assert failed.status == "failed"
    broken = False
    result = await runtime.resume(journal.fork("r", before="two"), team, coordinator=ExpertTeamCoordinator())
    journal.close()
    assert result.status == "completed"
    assert asked["one"] == 1


async def test_what_the_end_of_a_cancelled_run_cut_short_is_open_again_in_its_fork(tmp_path: Path) -> None:
    journal, calm = kt.SqliteJournal(tmp_path / "runs.db"), False
    model = FunctionModel(lambda _: "yes")

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await context.model("m:x").complete(kt.ModelRequest([kt.Message.user(assignment.task.id)]))
        if not calm and assignment.task.id == "slow":
            runtime.runs["r"].cancel("enough")
            await anyio.sleep(60)
        return f"made {assignment.task.id}"

    team = kt.Team("desk", [kt.Member("clerk", work), kt.Member("other", work)])
    plan = kt.TaskGraph([kt.Task("slow", "1", member="clerk"), kt.Task("last", "2", depends_on=["slow"])])
    async with kt.Runtime(journal=journal, models={"m:x": model}) as runtime:
        ended = await kt.run(team, kt.TeamExecutionRequest("Go.", plan=plan, run_id="r"), runtime=runtime)
        assert ended.status == "cancelled"
        calm = True
        result = await runtime.resume(journal.fork("r", before="last"), team)
    assert result.status == "completed"
    assert [call.copied for call in journal.calls(result.run_id)] == [True, False]
    journal.close()


async def test_what_cannot_be_forked_says_why(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await begin(path, Provider())
    journal = kt.SqliteJournal(path)
    with pytest.raises(ValueError, match="no task 'ten' in the plan of run 'desk-1'; it has 'four', 'one', 'three'"):
        journal.fork(RUN, before="ten")
    for wrong in (-1, 10_000, True, 1.5, None):
        with pytest.raises(ValueError, match="the number of an event from 0 to"):
            journal.fork(RUN, before=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="an id is made of letters"):
        journal.fork(RUN, before="two", new_id="a b")
    with pytest.raises(kt.RunExists):
        journal.fork(RUN, before="two", new_id=RUN)
    with pytest.raises(kt.RunNotFound):
        journal.fork("another", before="two")
    inner = next(call.run_id for call in journal.calls(RUN) if call.run_id != RUN)
    with pytest.raises(Misuse, match=r"is part of run 'desk-1': fork that one"):
        journal.fork(inner, before="a")
    assert [one.run_id for one in journal.runs()] == [RUN]


async def test_a_run_that_is_running_is_not_forked(tmp_path: Path) -> None:
    journal, problems = kt.SqliteJournal(tmp_path / "runs.db"), list[str]()

    async def look(assignment: kt.Assignment) -> str:
        with pytest.raises(Misuse, match="is running") as raised:
            journal.fork("r", before="one")
        problems.append(str(raised.value))
        return "done"

    plan = kt.TaskGraph([kt.Task("one", "Do one.")])
    request = kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r")
    team = kt.Team("desk", [kt.Member("clerk", look)])
    assert (await kt.run(team, request, runtime=kt.Runtime(journal=journal))).status == "completed"
    journal.close()
    assert len(problems) == 1


class Growing:
    """Adds a task behind each that is called `grows`, and remembers what it decided in each body."""

    def __init__(self) -> None:
        self.decided: list[str] = []

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        assert request.plan is not None
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(request.plan)
            async for task in run.ready(graph):
                run.go(self.work, run, task)
        return run.result

    async def work(self, run: kt.TeamRun, task: kt.Task) -> None:
        await run.step(f"decision on {task.id}", lambda: self.decided.append(task.id))
        attempt = await run.attempt(task, 1)
        if task.id.startswith("grows"):
            await run.add(lambda: [kt.Task(f"more-{task.id}", "More.", depends_on=[task.id])])
        run.accept(task, attempt)


async def test_tasks_that_a_left_out_task_added_are_left_out_with_what_was_decided_in_its_body(tmp_path: Path) -> None:
    journal, worked = kt.SqliteJournal(tmp_path / "runs.db"), list[str]()

    async def work(assignment: kt.Assignment) -> str:
        worked.append(assignment.task.id)
        return f"made {assignment.task.id}"

    team, first, again = kt.Team("desk", [kt.Member("clerk", work)]), Growing(), Growing()
    plan = kt.TaskGraph([kt.Task("grows-1", "1"), kt.Task("grows-2", "2"), kt.Task("last", "3")])
    runtime = kt.Runtime(journal=journal)
    request = kt.TeamExecutionRequest("Go.", plan=plan, run_id="r")
    whole = await kt.run(team, request, runtime=runtime, coordinator=first)
    assert whole.status == "completed"
    assert len(worked) == 5
    worked.clear()
    result = await runtime.resume(journal.fork("r", before="grows-2"), team, coordinator=again)
    assert sorted(worked) == ["grows-2", "more-grows-2"] == sorted(again.decided)
    assert {one[0]: one for one in ends(result)} == {one[0]: one for one in ends(whole)}
    journal.close()


@pytest.mark.parametrize(
    ("before", "made"),
    [
        ("turn.0001", ["turn.0001", "c", "d", "turn.0002"]),
        ("a", ["a", "turn.0002"]),
        ("turn.0002", ["turn.0002"]),
    ],
)
async def test_what_a_supervisor_decided_after_the_fork_is_decided_anew(
    before: str, made: list[str], tmp_path: Path
) -> None:
    journal, worked, names = kt.SqliteJournal(tmp_path / "runs.db"), list[str](), "ab"

    async def lead(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        worked.append(assignment.task.id)
        for name in () if assignment.upstream else names:
            await context.tool("create_task")(id=name, description=f"Do {name}.", member="clerk")
        return "; ".join(artifact.text for artifact in assignment.upstream.values()) or "wait"

    async def work(assignment: kt.Assignment) -> str:
        worked.append(assignment.task.id)
        return f"made {assignment.task.id}"

    team = kt.Team("desk", [kt.Member("lead", lead), kt.Member("clerk", work)], coordinator="supervisor")
    runtime = kt.Runtime(journal=journal)
    whole = await kt.run(team, kt.TeamExecutionRequest("Go.", run_id="r"), runtime=runtime)
    assert whole.output == "made a; made b"
    worked.clear()
    names = "cd"
    result = await runtime.resume(journal.fork("r", before=before), team)
    assert (result.status, sorted(worked)) == (kt.TeamStatus.COMPLETED, sorted(made))
    assert result.output == ("made c; made d" if before == "turn.0001" else whole.output)
    journal.close()


async def test_what_a_member_said_after_the_fork_decides_who_is_next(tmp_path: Path) -> None:
    journal, asked, to = kt.SqliteJournal(tmp_path / "runs.db"), list[str](), "billing"

    async def greet(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await context.tool("hand_over")(to=to, message="please")
        raise AssertionError

    def answers(name: str) -> Any:
        async def answer(assignment: kt.Assignment) -> str:
            asked.append(name)
            return f"{name} answers"

        return answer

    others = [kt.Member(name, answers(name)) for name in ("billing", "technical")]
    team = kt.Team("desk", [kt.Member("greeter", greet), *others], coordinator="handoff")
    runtime = kt.Runtime(journal=journal)
    whole = await kt.run(team, kt.TeamExecutionRequest("Go.", run_id="r"), runtime=runtime)
    to = "technical"
    result = await runtime.resume(journal.fork("r", before="turn.0001"), team)
    assert (whole.output, result.output) == ("billing answers", "technical answers")
    assert asked == ["billing", "technical"]
    journal.close()


async def test_an_open_question_is_asked_again_in_the_fork(tmp_path: Path) -> None:
    class Boss:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "ask")

    @kt.tool(side_effect="system")
    def look() -> str:
        """Look."""
        return "seen"

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(look)()).text if assignment.task.id == "tool" else "a text"

    journal = kt.SqliteJournal(tmp_path / "runs.db")
    team = kt.Team(
        "desk",
        [kt.Member("clerk", work)],
        evaluators={"boss": Boss()},
        permissions=ToolPermissions(guard=SideEffectGuard()),
    )
    plan = kt.TaskGraph([kt.Task("review", "1", evaluator="boss"), kt.Task("tool", "2"), kt.Task("other", "3")])
    runtime = kt.Runtime(journal=journal, gate=kt.DeferGate())
    request = kt.TeamExecutionRequest("Go.", plan=plan, run_id="r")
    assert (await kt.run(team, request, runtime=runtime)).status == "suspended"
    assert len(journal.pending("r")) == 2
    result = await runtime.resume(journal.fork("r", before="other", new_id="fork"), team)
    assert result.status == "suspended"
    assert [one.id.partition(":")[0] for one in journal.pending("fork")] == ["fork", "fork"]
    for question in journal.pending("fork"):
        journal.answer(question.id, kt.HumanDecision.approve())
    assert (await runtime.resume("fork", team)).status == "completed"
    assert len(journal.pending("r")) == 2
    journal.close()


@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=max(5, settings().max_examples // 4))
@given(scenario=scenarios(), number=st.integers(0, 4))
def test_a_fork_of_any_run_ends_like_it_and_asks_only_what_was_left_out(
    backend: str, scenario: Any, number: int
) -> None:
    task = scenario.tasks[number % len(scenario.tasks)].id
    with tempfile.TemporaryDirectory() as name:
        path, first, again = Path(name) / "runs.db", World(), World()
        whole = anyio.run(partial(play, scenario, path, first, go_on=False), backend=backend)
        journal = kt.SqliteJournal(path)
        made = journal.fork(LAW_RUN, before=task, new_id="fork")
        result = anyio.run(partial(play, scenario, path, again, go_on=True, run_id=made), backend=backend)
        assert result.status is whole.status
        if "chance" not in scenario.kinds:
            assert comparable(result) == comparable(whole)
        left_out = dependents(scenario.tasks, task)
        assert len(again.asked) == sum(
            call.what == "model" and task_of(call) in left_out for call in journal.calls(LAW_RUN)
        )
        assert result.usage.tokens == whole.usage.tokens
        assert (result.usage.loops, result.usage.dollars) == (whole.usage.loops, whole.usage.dollars)


def task_of(call: RecordedCall) -> str | None:
    """Return the run's task in which a call was made; an id of a run inside it has it behind the run's own."""
    return call.task_id if call.run_id == LAW_RUN else call.run_id.split(".")[1]


def dependents(tasks: tuple[kt.Task, ...], task_id: str) -> set[str]:
    found = {task_id}
    for task in tasks:  # in plan order: what a task needs stands before it
        if not found.isdisjoint(task.depends_on):
            found.add(task.id)
    return found


class Counted:
    """Members that work on a list and in rounds, and what they were asked."""

    def __init__(self, *, failing: str | None = None, items: int = 3) -> None:
        self.asked: list[str] = []
        self.failing = failing
        self.items = items

    async def work(self, assignment: kt.Assignment) -> kt.Artifact:
        name = assignment.task.id
        self.asked.append(name)
        if name == self.failing:
            raise ValueError("it does not work")
        seen = ",".join(assignment.upstream)
        passed = assignment.inputs.get("round") == 3
        return kt.Artifact(
            f"{name} after {seen}", {"passed": passed} if "round" in assignment.inputs else [*range(self.items)]
        )

    async def run(self, path: Path, plan: kt.TaskGraph, *, before: str | None = None) -> kt.TeamResult:
        journal, team = kt.SqliteJournal(path, sync="normal"), kt.Team("team", [kt.Member("any", self.work)])
        try:
            async with kt.Runtime(journal=journal) as runtime:
                if before is not None:
                    return await runtime.resume(journal.fork(RUN, before=before), team)
                return await kt.run(team, kt.TeamExecutionRequest("Work.", plan=plan, run_id=RUN), runtime=runtime)
        finally:
            journal.close()


MAP = kt.TaskGraph(
    [
        kt.Task("list", "List."),
        kt.Task.map("read", "Read.", over="list", max_items=5),
        kt.Task("join", "Join.", depends_on=["read"], needs=1),
    ]
)
LOOP = kt.TaskGraph(
    [
        kt.Task(
            "code",
            "Until it passes.",
            loop=kt.Loop(
                [kt.Task("write", "Write."), kt.Task("test", "Test.", depends_on=["write"])],
                until={"from": "test", "field": "passed", "equals": True},
                max_rounds=5,
            ),
        ),
        kt.Task("tell", "Tell.", depends_on=["code"]),
    ]
)


async def test_a_fork_before_an_item_of_a_map_does_that_item_and_what_depends_on_the_map_again(tmp_path: Path) -> None:
    first, again = Counted(failing="read.0002"), Counted()
    whole = await first.run(tmp_path / "runs.db", MAP)
    assert whole.output == "join after read.0001,read.0003"
    result = await again.run(tmp_path / "runs.db", MAP, before="read.0002")
    assert (result.status, again.asked) == ("completed", ["read.0002", "join"])
    assert result.output == "join after read.0001,read.0002,read.0003"


async def test_a_fork_before_the_list_of_a_map_does_all_items_of_the_new_list(tmp_path: Path) -> None:
    await Counted().run(tmp_path / "runs.db", MAP)
    again = Counted(items=2)
    result = await again.run(tmp_path / "runs.db", MAP, before="list")
    assert sorted(again.asked) == ["join", "list", "read.0001", "read.0002"]
    assert result.output == "join after read.0001,read.0002"


@pytest.mark.parametrize("failing", [None, "code.02.test"])
async def test_a_fork_before_a_round_of_a_loop_does_it_and_all_later_ones_again(
    tmp_path: Path, failing: str | None
) -> None:
    await Counted(failing=failing).run(tmp_path / "runs.db", LOOP)
    again = Counted()
    result = await again.run(tmp_path / "runs.db", LOOP, before="code.02.test")
    assert again.asked == ["code.02.test", "code.03.write", "code.03.test", "tell"]
    assert result.status == "completed"


GROWING = kt.TaskGraph(
    [
        kt.Task("list", "List."),
        kt.Task.map("read", "Read.", over="list", max_items=5),
        kt.Task("join", "Join.", depends_on=["read"]),
        kt.Task(
            "polish",
            "Polish.",
            loop=kt.Loop(
                [kt.Task("write", "w"), kt.Task("test", "t", depends_on=["write"])],
                until={"from": "test", "holds": "passed"},
                max_rounds=5,
            ),
        ),
        kt.Task("end", "End.", depends_on=["polish"]),
    ]
)


def growing_team(done: list[str], passes: int) -> kt.Team:
    async def work(assignment: kt.Assignment) -> str:
        done.append(assignment.task.id)
        return "[1, 2, 3]" if assignment.task.id == "list" else f"{assignment.task.id} of {len(done)}"

    def passed(artifact: kt.Artifact) -> bool:
        return f".{passes:02}." in artifact.text

    return kt.Team("t", [kt.Member("m", work)], conditions={"passed": passed})


ROUNDS = [f"polish.{number:02}.{name}" for number in (1, 2, 3) for name in ("write", "test")]


@pytest.mark.parametrize(
    ("before", "again"),
    [
        ("list", ["list", "read.0001", "read.0002", "read.0003", "join"]),
        ("read", ["read.0001", "read.0002", "read.0003", "join"]),
        ("read.0002", ["read.0002", "join"]),
        ("polish.02.test", [*ROUNDS[3:], "end"]),
        ("polish", [*ROUNDS, "end"]),
        ("end", ["end"]),
    ],
)
async def test_a_fork_before_a_part_of_a_map_or_a_loop_makes_again_what_came_of_it(
    tmp_path: Path, before: str, again: list[str]
) -> None:
    path, first, second = tmp_path / "runs.db", list[str](), list[str]()
    with closing(kt.SqliteJournal(path, sync="normal")) as journal:
        whole = await kt.run(growing_team(first, 3), "g", plan=GROWING, run_id=RUN, runtime=kt.Runtime(journal=journal))
        assert len(first) == len(whole.outcomes) - 2 == 12
        journal.fork(RUN, before=before, new_id="fork")
        async with kt.Runtime(journal=journal) as runtime:
            result = await runtime.resume("fork", growing_team(second, 3))
    assert sorted(second) == sorted(again)
    assert [(one.task_id, one.status) for one in result.outcomes] == [
        (one.task_id, one.status) for one in whole.outcomes
    ]


async def test_a_fork_of_a_plan_that_grew_takes_another_plan_around_what_stays(tmp_path: Path) -> None:
    with closing(kt.SqliteJournal(tmp_path / "runs.db", sync="normal")) as journal:
        await kt.run(growing_team([], 3), "g", plan=GROWING, run_id=RUN, runtime=kt.Runtime(journal=journal))
        more = kt.TaskGraph([*GROWING.tasks, kt.Task("more", "More.", depends_on=["end"])])
        journal.fork(RUN, before="end", new_id="fork", plan=more)
        done: list[str] = []
        async with kt.Runtime(journal=journal) as runtime:
            result = await runtime.resume("fork", growing_team(done, 3))
        assert (done, result.status) == (["end", "more"], kt.TeamStatus.COMPLETED)
        changed = [
            kt.Task.map("read", "Read it well.", over="list", max_items=5) if one.id == "read" else one
            for one in more.tasks
        ]
        with pytest.raises(ValueError, match=r"changes or omits 'read\.0001', 'read\.0002', 'read\.0003'"):
            journal.fork(RUN, before="end", new_id="fork-2", plan=kt.TaskGraph(changed))
