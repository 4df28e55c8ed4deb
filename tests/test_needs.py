"""What a task is expected to take, and who is let in: a budget that cannot finish all tasks finishes some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.api import PlanCheck
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.tasks.member_budgets import Needs
from kairo_team.governance import Governor
from kairo_team.testing import EventRecorder, FunctionModel

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks import starving

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("anyio_backend")]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "budgets.md"


@pytest.fixture(autouse=True)
def _same_order_every_time() -> None:
    """Trio starts tasks in an order of chance; what these tests measure must come out alike."""
    import_module("trio._core._run")._r.seed(1)  # what hypothesis seeds too


# ---------------------------------------------------------------- some are done


@pytest.mark.sampled("anyio_backend")
@pytest.mark.parametrize("shape", starving.SHAPES, ids=lambda shape: f"{shape.agent} {shape.name}")
async def test_audit_g04_a_budget_that_cannot_finish_all_finishes_what_one_at_a_time_does(
    shape: starving.Shape,
) -> None:
    """All at once, 16 tasks spend 19,694 of 20,000 tokens and none of them is done."""
    alone, let_in = await starving.play(shape, "one at a time"), await starving.play(shape)
    assert let_in.done >= alone.done - 1
    assert let_in.spent <= shape.budget
    assert let_in.seconds <= alone.seconds, "and not later"


async def test_audit_g04_let_in_all_at_once_none_is_done() -> None:
    """What admission is for: without it, the first shape of the page starves."""
    out = await starving.play(starving.SHAPES[0], "all at once")
    assert out.done == 0
    assert out.spent > 19_000


@settings(max_examples=settings().max_examples * 3 // 5)
@given(
    tasks=st.integers(2, 24),
    turns=st.integers(1, 6),
    prompt=st.integers(5, 400),
    found=st.integers(0, 300),
    reply=st.integers(1, 80),
    cap=st.sampled_from([1.0, 2.0, None]),
    carried=st.floats(0.3, 30.0),
    counted=st.booleans(),
    seconds=st.sampled_from([(1.0, 1.0), (0.1, 5.0)]),
)
@example(
    tasks=11, turns=6, prompt=5, found=0, reply=22, cap=1.0, carried=3.5, counted=False, seconds=(1.0, 1.0)
)  # a last call holds 856 tokens and uses 137: side by side each is in the other's way
def test_audit_g04_every_run_ends_with_most_of_what_one_at_a_time_finishes(
    tasks: int, turns: int, prompt: int, found: int, reply: int, cap: float | None, carried: float, *, counted: bool,
    seconds: tuple[float, float],
) -> None:  # fmt: skip
    """Whatever the tasks are like: all but the two that were let in without knowing, and one if both had room."""
    one = turns * (prompt + reply) + (found + reply) * turns * (turns - 1) // 2
    shape = starving.Shape(
        "any", "caller", tasks, max(2, int(one * carried)), (turns, turns), prompt, (found, found), reply,
        None if cap is None else int(reply * cap), seconds, counted,
    )  # fmt: skip
    alone, let_in = starving.run(shape, "one at a time"), starving.run(shape, "let in")
    assert let_in.spent <= shape.budget
    assert let_in.done >= alone.done - 2
    assert let_in.done or alone.done < 2 or 2 * most_at_once(shape) > shape.budget


def most_at_once(shape: starving.Shape) -> int:
    """Return what a task of the shape has spent and holds at its most: what it has to be able to get."""
    with patch.object(Needs, "learn") as learn:
        starving.run(replace(shape, tasks=1, budget=10**9, most=shape.reply), "let in")
    return int(learn.call_args.args[1][0])


# ---------------------------------------------------------------- who is let in


def waiting(tokens: int = 10) -> Callable[..., Any]:
    """Return an agent that spends so many tokens after a second."""

    async def spend(_: kt.Assignment, context: kt.MemberContext) -> str:
        await anyio.sleep(1)
        with context.governor.reserve(tokens=tokens) as hold:
            hold.settle(prompt_tokens=tokens)
        return "spent"

    return spend


class Scene:
    """A run of some tasks, and what was told of it."""

    def __init__(self, agent: Any, *tasks: kt.Task, **member: Any) -> None:
        self.recorder = EventRecorder()
        self.plan = kt.TaskGraph(list(tasks) or [kt.Task(f"t{number}", "do") for number in range(8)])
        self._team = kt.Team("team", [kt.Member("m", agent, **member)], runtime=kt.Runtime(subscribers=[self.recorder]))

    async def play(self, budget: kt.Budget, **policy: Any) -> kt.TeamResult:
        config = kt.TeamConfig(budget=budget, budget_policy=kt.BudgetPolicy(**policy))
        request = kt.TeamExecutionRequest("goal", plan=self.plan, config=config)
        coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
        result = await coordinator.execute(request, self._team)
        self.recorder.assert_lawful()
        return result

    @property
    def at_first(self) -> int:
        """How many were let in before the first ended."""
        types = self.recorder.types
        ended = next(place for place, kind in enumerate(types) if kind in ("task.completed", "task.failed"))
        return types[:ended].count("task.assigned")


@pytest.mark.parametrize(
    ("budget", "policy", "at_first"),
    [
        (kt.Budget(), {}, 8),
        (kt.Budget(seconds=100), {}, 8),
        (kt.Budget(tokens=1_000_000, dollars=10, loops=1_000), {}, 8),
        (kt.Budget(tokens=266_667), {}, 8),  # eight times what one is expected to take, and a tenth in reserve
        (kt.Budget(tokens=180_000), {}, 5),
        (kt.Budget(tokens=1_000), {}, 2),
        (kt.Budget(tokens=1_000), {"expect": kt.Budget(tokens=100)}, 8),
        (kt.Budget(tokens=1_000), {"expect": kt.Budget(tokens=300)}, 3),
        (kt.Budget(tokens=1_000), {"expect": kt.Budget()}, 8),
        (kt.Budget(dollars="1.5"), {}, 4),
        (kt.Budget(loops=50), {}, 4),
        (kt.Budget(tool_calls=10), {}, 8),
    ],
    ids=str,
)
async def test_audit_g04_an_ample_budget_caps_nothing_and_of_a_small_one_two_start(
    budget: kt.Budget, policy: dict[str, Any], at_first: int
) -> None:
    scene = Scene(waiting())
    result = await scene.play(budget, **policy)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert scene.at_first == at_first


async def test_audit_g04_what_the_first_took_lets_all_others_in() -> None:
    """Nobody waits longer than it takes to know."""
    scene = Scene(waiting(10), *(kt.Task(f"t{number}", "do") for number in range(50)))
    result = await scene.play(kt.Budget(tokens=1_000))
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert result.duration == pytest.approx(2)


async def test_audit_g04_who_waits_holds_nothing() -> None:
    seen: list[kt.Budget] = []

    async def look(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        seen.append(context.governor.guarantee)
        await anyio.sleep(1)
        with context.governor.reserve(tokens=300) as hold:
            hold.settle(prompt_tokens=300)
        return "spent"

    scene = Scene(look)
    result = await scene.play(kt.Budget(tokens=1_000), reserve=0.0)
    done = [outcome for outcome in result.outcomes if outcome.status is kt.TaskStatus.COMPLETED]
    assert len(done) == 3
    assert seen[:2] == [kt.Budget(tokens=500)] * 2
    carved = {event.task_id for event in scene.recorder.of(events.BudgetCarved)}
    assert {event.task_id for event in scene.recorder.of(events.TaskAssigned)} == carved


async def test_audit_g04_a_members_own_budget_is_told_apart_from_the_teams() -> None:
    """Each member has its own expectation: dear tasks of one do not keep those of another waiting."""
    recorder = EventRecorder()
    members = [kt.Member("a", waiting(400), budget=kt.Budget(tokens=1_000)), kt.Member("b", waiting(1))]
    team = kt.Team("team", members, runtime=kt.Runtime(subscribers=[recorder]))
    tasks = [kt.Task(f"{name}{number}", "do", member=name) for name in "ab" for number in range(6)]
    config = kt.TeamConfig(budget=kt.Budget(tokens=1_500))
    request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph(tasks), config=config)
    result = await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0)).execute(request, team)
    done = {outcome.task_id for outcome in result.outcomes if outcome.status is kt.TaskStatus.COMPLETED}
    assert {name[0] for name in done} == {"a", "b"}
    assert [name for name in sorted(done) if name[0] == "b"] == [f"b{number}" for number in range(6)]
    assert len(done) == 8


async def test_a_ceiling_of_the_tasks_own_is_all_it_can_need() -> None:
    tasks = [kt.Task(f"t{number}", "do", budget=kt.Budget(tokens=100)) for number in range(8)]
    scene = Scene(waiting(), *tasks)
    await scene.play(kt.Budget(tokens=1_000))
    assert scene.at_first == 8


async def test_the_last_ones_start_with_what_is_left() -> None:
    """Nothing in flight will come back: less than expected is better than nothing."""
    scene = Scene(waiting(300), *(kt.Task(f"t{number}", "do") for number in range(3)))
    result = await scene.play(kt.Budget(tokens=910))
    assert result.status is kt.TeamStatus.COMPLETED, result.error


async def test_audit_g04_a_replay_of_a_tight_run_gives_the_same_result_and_calls_nobody() -> None:
    journal = MemoryRecords()

    class Replay(kt.Runtime):
        def journal_for(self, run_id: str) -> MemoryRecords:
            return journal

    async def never(_: kt.Assignment) -> str:
        raise AssertionError("a member was called")

    results: list[Any] = []
    for agent in (waiting(300), never):
        team = kt.Team("team", [kt.Member("m", agent)], runtime=Replay())
        plan = kt.TaskGraph([kt.Task(f"t{number}", "do") for number in range(8)])
        config = kt.TeamConfig(budget=kt.Budget(tokens=1_000))
        result = await kt.run(team, kt.TeamExecutionRequest("goal", plan=plan, config=config, run_id="r"))
        results.append((result.status, result.error, [(one.task_id, one.status, one.error) for one in result.outcomes]))
    assert results[0] == results[1]
    assert [status for _, status, _ in results[0][2]].count(kt.TaskStatus.COMPLETED) == 3


# ---------------------------------------------------------------- what is expected


def of_member(budget: kt.Budget, **policy: Any) -> tuple[Needs, Governor]:
    governor = Governor(budget, name="m")
    return Needs({"m": governor}, kt.BudgetPolicy(**policy)), governor


def test_before_one_has_ended_half_of_what_there_is_beside_the_reserve_is_expected_at_most() -> None:
    needs, governor = of_member(kt.Budget(tokens=1_000, loops=100, tool_calls=9), reserve=0.1)
    assert needs.of("m") == (450, 0, 10, 0)
    governor.carve("one", kt.Budget(tokens=500))
    assert needs.of("m") == (450, 0, 10, 0), "not half of what the others leave"
    governor.record_usage(prompt_tokens=300)
    assert needs.of("m") == (300, 0, 10, 0), "of what is spent there is nothing left"


def test_afterwards_it_is_a_quarter_more_than_the_mean() -> None:
    needs, _ = of_member(kt.Budget(tokens=1_000, dollars=1))
    needs.of("m")
    needs.learn("m", (100, 40, 2, 0), ran_out=False)
    assert needs.of("m") == (125, 50, 2, 0)
    needs.learn("m", (300, 80, 2, 4), ran_out=False)
    assert needs.of("m") == (250, 75, 2, 2)


def test_who_ran_out_is_presumed_to_have_been_half_way() -> None:
    needs, _ = of_member(kt.Budget(tokens=1_000))
    needs.of("m")
    needs.learn("m", (100, 0, 2, 0), ran_out=True)
    assert needs.of("m") == (250, 0, 5, 0)


async def test_where_nothing_is_limited_nothing_is_expected_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("of", "learn"):
        monkeypatch.delattr(Needs, name)
    team = kt.Team("team", [kt.Member("m", waiting(), budget=kt.Budget(seconds=10))])
    assert (await kt.run(team, "goal")).status == "completed"


def test_what_a_task_took_is_the_most_that_had_to_fit_in() -> None:
    """A prompt bounded by its bytes is held at several times its tokens: less would not have been enough."""
    governor = Governor(kt.Budget(tokens=1_000, dollars=1), name="m")
    with governor.reserve(tokens=100, dollars="0.2") as hold:
        hold.settle(prompt_tokens=10, dollars="0.05")
    with governor.reserve(tokens=60) as hold:
        hold.settle(prompt_tokens=60)
    assert governor.took == (100, 200_000_000_000, 0, 0)
    governor.record_usage(prompt_tokens=50, tool_calls=2)
    governor.pre_step()
    governor.close()
    assert governor.took == (120, 200_000_000_000, 1, 2)


@pytest.mark.parametrize("value", [None, 10_000, kt.Budget(tokens=10, seconds=3)])
def test_what_is_expected_is_a_budget_without_seconds(value: Any) -> None:
    with pytest.raises(ValueError, match=r"BudgetPolicy\.expect must be a Budget without seconds, such as"):
        kt.BudgetPolicy(expect=value)


# ---------------------------------------------------------------- before anything starts


def check(budget: kt.Budget, *tasks: kt.Task, **policy: Any) -> PlanCheck:
    plan = kt.TaskGraph(list(tasks) or [kt.Task(f"t{number}", "do") for number in range(16)])
    team = kt.Team("team", [kt.Member("m", waiting()), kt.Member("own", waiting(), budget=kt.Budget(tokens=500))])
    config = kt.TeamConfig(budget=budget, budget_policy=kt.BudgetPolicy(**policy))
    return kt.check(team, kt.TeamExecutionRequest("goal", plan=plan, config=config))


def test_audit_g04_a_check_says_how_many_tasks_the_budget_can_be_expected_to_carry() -> None:
    found = check(kt.Budget(tokens=20_500), expect=kt.Budget(tokens=2_310))
    assert (found.ok, found.carries) == (True, 8)
    note = "the budget can be expected to carry 8 of 16 tasks, if each takes 2,310 tokens (BudgetPolicy.expect); once "
    assert found.notes == (f"{note}one has ended, what it took counts instead",)
    assert str(found).endswith(found.notes[0])


def test_the_note_names_the_budget_of_the_tasks_where_that_is_what_each_can_take() -> None:
    own = [kt.Task(f"t{number}", "do", budget=kt.Budget(dollars="0.01")) for number in range(100)]
    found = check(kt.Budget(dollars="0.5"), *own, reserve=0)
    assert found.carries == 50
    assert "carry 50 of 100 tasks, if each takes $0.01 (Task.budget); once" in found.notes[0]
    found = check(kt.Budget(dollars="0.5"), *own, kt.Task("long", "do"), reserve=0)
    assert "of 101 tasks, if each takes at most $0.3 (BudgetPolicy.expect); once" in found.notes[0]


@pytest.mark.parametrize(("calls", "takes"), [(5, "5 tool calls"), (1, "1 tool call")])
def test_the_note_names_what_only_the_tasks_limit(calls: int, takes: str) -> None:
    own = [kt.Task(f"t{number}", "do", budget=kt.Budget(tool_calls=calls)) for number in range(20)]
    assert f"of 20 tasks, if each takes {takes} (Task.budget); once" in check(kt.Budget(tool_calls=8), *own).notes[0]


@pytest.mark.parametrize(
    ("budget", "policy", "carries", "takes"),
    [
        (kt.Budget(), {}, 16, None),
        (kt.Budget(tokens=480_500), {}, 16, None),
        (kt.Budget(tokens=70_500), {}, 2, "30,000 tokens"),
        (kt.Budget(tokens=1_000_000, dollars="1.5"), {}, 5, "$0.3"),
        (kt.Budget(loops=16), {}, 1, "10 loops"),
        (kt.Budget(tokens=20_500), {"expect": kt.Budget()}, 16, None),
    ],
    ids=str,
)
def test_audit_g04_by_whatever_is_limited(
    budget: kt.Budget, policy: dict[str, Any], carries: int, takes: str | None
) -> None:
    found = check(budget, *(kt.Task(f"t{number}", "do", member="m") for number in range(16)), **policy)
    assert found.carries == carries
    assert [f"if each takes {takes} (" in note for note in found.notes] == ([] if takes is None else [True])


def test_a_ceiling_and_a_members_own_budget_count() -> None:
    tasks = [kt.Task(f"t{number}", "do", member="own", budget=kt.Budget(tokens=100)) for number in range(8)]
    assert check(kt.Budget(tokens=1_000), *tasks).carries == 5


def test_without_a_plan_nobody_knows() -> None:
    found = kt.check(kt.Team("team", [kt.Member("m", waiting())]), "goal")
    assert found.notes == ()


# ---------------------------------------------------------------- the page


@pytest.mark.exhaustive
def test_audit_g04_the_page_shows_the_simulation_as_it_comes_out() -> None:
    table = "\n".join(starving.table())
    assert table in PAGE.read_text(encoding="utf-8"), f"python -m benchmarks.starving prints now:\n{table}"


async def test_dollars_starve_nobody_either() -> None:
    """The same for money: what a task took is counted in each dimension."""

    def reply(request: kt.ModelRequest) -> str:
        return "word " * 10

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        text = assignment.task.description
        for _ in range(4):
            request = kt.ModelRequest([kt.Message.user(text)], max_tokens=10)
            text += (await context.model("test:m").complete(request)).text
            await anyio.sleep(1)
        return text

    async def main() -> kt.TeamResult:
        model = FunctionModel(reply, name="test:m", dollars_per_token=Decimal("0.001"))
        team = kt.Team("team", [kt.Member("m", work)], runtime=kt.Runtime(models={"test:m": model}))
        plan = kt.TaskGraph([kt.Task(f"t{number}", "a task") for number in range(16)])
        config = kt.TeamConfig(budget=kt.Budget(dollars="0.5"))
        return await kt.run(team, kt.TeamExecutionRequest("goal", plan=plan, config=config))

    result = await main()
    done = [outcome for outcome in result.outcomes if outcome.status is kt.TaskStatus.COMPLETED]
    assert len(done) >= 4
    assert result.usage.dollars <= Decimal("0.5")
