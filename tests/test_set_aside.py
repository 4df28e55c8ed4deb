"""What the views say is set aside is what the run's governor has set aside."""

from __future__ import annotations

from itertools import count
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.events import Event, TaskWaiting
from kairo_team.testing import FunctionModel
from kairo_team.views.progress import RunProgress
from kairo_team.views.run_story import RunStory
from kairo_team.views.set_aside import SetAside

pytestmark = pytest.mark.anyio


async def play(
    budget: kt.Budget,
    tasks: list[kt.Task],
    look: Any,
    *subscribers: Any,
    editor: kt.Budget | None = None,
    judged: bool = False,
) -> kt.TeamResult:
    """Run tasks that make two calls each; `look` gets the run's governor in every call, also of a judge."""
    runs: list[kt.Run] = []
    came, number = anyio.Event(), count(1)

    async def answer(_request: kt.ModelRequest) -> str:
        await came.wait()
        await anyio.sleep(1 + next(number) / 1_000)  # never at the moment at which another call begins or ends
        session = runs[0].session
        assert session is not None
        look(session.governor)
        await anyio.sleep(1)
        return "The moon pulls the sea."

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        for _ in range(2):
            request = kt.ModelRequest([kt.Message.user(assignment.task.description)], max_tokens=60)
            await context.model("test:model").complete(request)
        return "done"

    model = FunctionModel(answer, name="test:model")
    members = [kt.Member("writer", work), kt.Member("editor", work, budget=editor)]
    async with kt.Runtime(models={"test:*": model}, subscribers=subscribers) as runtime:
        config = kt.TeamConfig(budget=budget, budget_policy=kt.BudgetPolicy(expect=kt.Budget(tokens=150)))
        request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph(tasks), config=config)
        coordinator = ExpertTeamCoordinator(evaluator=Judge() if judged else None)
        runs.append(await runtime.start(kt.Team("desk", members, coordinator=coordinator), request))
        came.set()
        return await runs[0].result()


class Judge:
    models = ("test:model",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        await context.context.model("test:model").complete(kt.ModelRequest([kt.Message.user("Judge.")], max_tokens=20))
        return kt.EvaluationVerdict.passed()


def aside_of(governor: Any) -> int:
    """Return what is committed at the root and neither spent nor held."""
    committed = governor.budget.tokens - governor.unallotted.tokens
    return int(committed - governor.usage.tokens - governor.held.tokens)


@given(
    tokens=st.integers(400, 3_000),
    writers=st.integers(1, 5),
    editors=st.integers(0, 3),
    editor=st.sampled_from([None, 200, 300]),
    judged=st.booleans(),
)
async def test_at_every_call_it_is_what_the_governor_has_committed_and_neither_spent_nor_held(
    tokens: int, writers: int, editors: int, editor: int | None, *, judged: bool
) -> None:
    told = SetAside()
    seen: list[tuple[int, int]] = []
    tasks = [kt.Task(f"write-{number}", "Explain tides.", member="writer") for number in range(writers)]
    tasks += [kt.Task(f"edit-{number}", "Mend it.", member="editor") for number in range(editors)]
    own = None if editor is None else kt.Budget(tokens=editor)

    def look(governor: Any) -> None:
        seen.append((told.tokens, aside_of(governor)))

    await play(kt.Budget(tokens=tokens), tasks, look, told.take, editor=own, judged=judged)
    assert [shown for shown, _ in seen] == [real for _, real in seen]
    assert not told.amounts(), "after its end a run has nothing set aside"


async def test_a_task_that_waits_for_budget_says_for_whom_it_is_set_aside() -> None:
    progress, story = RunProgress(), RunStory()
    said: list[str] = []

    def look(event: Event) -> None:
        progress.take(event)
        story.take(event)
        if isinstance(event, TaskWaiting) and event.waits_for == "budget":
            said.append(progress.describe_last(progress.rows[event.task_id]))

    tasks = [kt.Task(f"write-{number}", "Explain tides.", member="writer") for number in range(1, 4)]
    result = await play(kt.Budget(tokens=400), tasks, lambda _: None, look)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert said == ["waits for budget: 300 are set aside for write-1, write-2"]
    [wait] = story.tasks["write-3"].told_waits
    assert (wait.why, wait.what) == ("budget", "300 are set aside for write-1, write-2")
