"""A task's output type reaches the caller: `Task(output_type=Report)`, agents that return data, `TeamResult.data`."""

from __future__ import annotations

import copy
import json
import pickle
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Gt, MinLen
from pydantic import BaseModel, TypeAdapter

import kairo_team as kt
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.errors import NoAnswer, PlanMismatch
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.human import APPROVE, LeavesOpen

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]


class Report(BaseModel):
    title: str
    pages: int = 1


class Colour(Enum):
    RED = "red"


@dataclass
class Note:
    text: str


def team(agent: Any, **given: Any) -> kt.Team:
    return kt.Team("desk", [kt.Member("clerk", agent)], **given)


async def run(agent: Any, *tasks: kt.Task, **given: Any) -> kt.TeamResult:
    return await kt.run(team(agent, **given), "Report.", plan=kt.TaskGraph(tasks))


# ---------------------------------------------------------------- what agents may return


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Report(title="Tides"), '{"title":"Tides","pages":1}'),
        (Note("high at noon"), '{"text":"high at noon"}'),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (["a", {"b": 2}], '["a",{"b":2}]'),
        ({}, "{}"),
    ],
    ids=["model", "dataclass", "dict", "list", "empty"],
)
@pytest.mark.parametrize("plain", [False, True])
async def test_an_agent_may_return_data_and_the_text_is_its_json(made: Any, text: str, plain: bool) -> None:
    async def work(assignment: kt.Assignment) -> Any:
        return made

    result = await run((lambda _: made) if plain else work, kt.Task("t", "Do it."))
    artifact = result["t"].artifact
    assert artifact is not None
    assert (artifact.text, artifact.media_type) == (text, "application/json")
    assert result.data("t") == json.loads(text)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (None, "returned nothing"),
        (3, "returned 3"),
        ((1, 2), "returned a tuple"),
        ({"a": object()}, "a dict that JSON cannot hold"),
        (kt.ModelResponse("x"), "return its .text"),
        (Report, "returned a ModelMetaclass"),
    ],
)
async def test_anything_else_is_refused_with_what_to_return(made: Any, why: str) -> None:
    result = await run(lambda _: made, kt.Task("t", "Do it."))
    assert result.status is kt.TeamStatus.FAILED
    assert why in str(result["t"].error)
    assert result["t"].attempts == 1


@pytest.mark.parametrize("text", ["", " \n"], ids=["empty", "space"])
async def test_an_artifact_of_data_alone_is_not_blank_to_anybody(text: str) -> None:
    """The engine, the default review and the members after it read the same text: the JSON of the data."""
    read: list[str] = []

    def reads(assignment: kt.Assignment) -> str:
        read.append(assignment.upstream["tide"].text)
        return "read"

    members = [kt.Member("tide", lambda _: kt.Artifact(text, {"tide": "low"})), kt.Member("reader", reads)]
    result = await kt.run(kt.Team("t", members, coordinator=kt.ExpertTeamCoordinator()), "Go.")
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert read == ['{"tide":"low"}']
    assert kt.checks.not_blank(kt.Artifact(text, {"tide": "low"})) is True


async def test_data_is_held_to_the_output_type() -> None:
    task = kt.Task("t", "Do it.", output_type=Report)
    result = await run(lambda _: {"name": "Tides"}, task)
    assert result.status is kt.TeamStatus.FAILED
    with pytest.raises(NoAnswer, match=r"task 't' has no answer: it ended failed, .*title: Field required"):
        result.data(task)


# ---------------------------------------------------------------- types of tasks


@pytest.mark.parametrize(
    ("kind", "reply", "data"),
    [
        (Report, '{"title": "Tides", "pages": 2}', Report(title="Tides", pages=2)),
        (Note, '{"text": "x"}', Note("x")),
        (list[Report], '[{"title": "a"}]', [Report(title="a")]),
        (Annotated[int, Gt(0)], "3", 3),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Report | None, "null", None),
        (bool, "true", True),
        (Annotated[str, MinLen(2)], '"so"', "so"),
        (Annotated[str, MinLen(2)], "so it is", "so it is"),
        (Literal["yes", "no"], '"yes"', "yes"),
        (Literal["yes", "no"], "yes\n", "yes"),
        (Colour, "red", Colour.RED),
    ],
    ids=str,
)
async def test_a_task_has_a_type_and_its_answer_is_one(kind: Any, reply: str, data: Any) -> None:
    task: kt.Task[Any] = kt.Task("t", "Do it.", output_type=kind)
    model = ScriptedModel([reply])
    result = await run(kt.MiniAgent(model), task)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert result.data(task) == data
    assert type(result.data(task)) is type(data)
    assert model.calls[0].output_schema is not None


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "reply"), [(Literal["yes", "no"], "maybe"), (Report | str, "{broken"), (int, "three")]
)
async def test_a_text_in_place_of_json_is_read_only_as_a_type_of_texts(kind: Any, reply: str) -> None:
    task: kt.Task[Any] = kt.Task("t", "Do it.", output_type=kind)
    result = await run(kt.MiniAgent(ScriptedModel([reply] * 6)), task)
    assert result.status is kt.TeamStatus.FAILED
    with pytest.raises(NoAnswer, match="is not a valid"):
        result.data(task)


@pytest.mark.sampled
@pytest.mark.parametrize("reply", ["Tides are slow.", '"quoted"', "3", '{"a": 1}'])
async def test_a_task_of_type_str_has_the_text_itself(reply: str) -> None:
    task: kt.Task[Any] = kt.Task("t", "Do it.", output_type=str)
    model = ScriptedModel([reply, reply])
    agents: list[Any] = [kt.MiniAgent(model), lambda _: reply]
    for agent in agents:
        result = await run(agent, task)
        assert result.status is kt.TeamStatus.COMPLETED, result.error
        assert (result.data(task), result.output) == (reply, reply)
    assert model.calls[0].output_schema is None
    assert (await kt.MiniAgent(model).run("Do it.", output_type=str)).data == reply
    assert (await run(lambda _: {"a": 1}, task)).status is kt.TeamStatus.FAILED


async def test_a_run_gives_types_their_names_and_two_of_one_name_are_kept_apart() -> None:
    def of_inner() -> type[BaseModel]:
        class Report(BaseModel):
            note: str

        return Report

    other = of_inner()
    tasks = [
        kt.Task("a", "x", output_type=Report),
        kt.Task("b", "x", output_type=other),
        kt.Task("c", "x", output_type=Report),
        kt.Task("d", "x", output_type="Report"),
    ]
    result = await run(lambda a: {"title": "t", "note": "n"}, *tasks, output_types={"mine": int})
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert result.plan is not None
    assert [task.output_type for task in result.plan.tasks] == ["Report", "Report-2", "Report", "Report"]
    assert isinstance(result.data(tasks[1]), other)
    assert tasks[0].output_type is Report, "the caller's plan is as it was"


async def test_a_plan_with_types_is_checked_like_any_other() -> None:
    graph = kt.TaskGraph([kt.Task("t", "x", output_type=Report)])
    assert kt.check(team(lambda _: "x"), "go", plan=graph).ok
    strange: Any = object()
    with pytest.raises(ValueError, match=r"Task\.output_type must be a type, such as"):
        kt.Task("t", "x", output_type=strange)

    class NotForPydantic:
        pass

    found = kt.check(team(lambda _: "x"), "go", plan=kt.TaskGraph([kt.Task("t", "x", output_type=NotForPydantic)]))
    (problem,) = found.problems
    assert problem.endswith(
        "cannot be used to validate data: pydantic cannot validate the class NotForPydantic. Give a pydantic model, a "
        "dataclass, a type of these or of built-in ones such as list[str], or a JSON Schema"
    )
    found = kt.check(
        team(lambda _: "x", output_types={"five": 5}),
        "go",
        plan=kt.TaskGraph([kt.Task("t", "x", output_type="five")]),
    )
    (problem,) = found.problems
    assert "validate data: pydantic cannot validate 5. Give a pydantic model" in problem


def test_data_is_not_read_as_a_json_schema() -> None:
    with pytest.raises(
        ValueError, match=r"data_as takes a type, such as list\[str\] or a model, not \{'type': 'object'\}"
    ):
        kt.Artifact("x").data_as({"type": "object"})


async def test_a_coordinator_that_is_called_by_itself_takes_types_too() -> None:
    task = kt.Task("t", "x", output_type=Report)
    request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph([task]))
    result = await TaskDispatchCoordinator().execute(request, team(lambda _: Report(title="a")))
    assert result.data(task) == Report(title="a")


async def test_a_plan_with_types_is_recorded_and_read_back(tmp_path: Path) -> None:
    task, asked = kt.Task("t", "x", output_type=Report), 0

    def answer(_: kt.Assignment) -> Report:
        nonlocal asked
        asked += 1
        return Report(title="a")

    for _ in range(2):
        journal = kt.SqliteJournal(tmp_path / "runs.db")
        runtime = kt.Runtime(journal=journal)
        plan = kt.TaskGraph([task])
        result = await kt.run(team(answer), "go", plan=plan, run_id="r-1", resume=True, runtime=runtime)
        journal.close()
        assert result.data(task) == Report(title="a")
    assert asked == 1


def test_a_task_with_a_type_is_written_with_its_name() -> None:
    task = kt.Task("t", "x", output_type=Report)
    written = TypeAdapter(kt.Task[Any]).dump_json(task)
    assert json.loads(written)["output_type"] == "Report"
    assert TypeAdapter(kt.Task[Any]).validate_json(written).output_type == "Report"
    assert copy.copy(task) == task == pickle.loads(pickle.dumps(task))  # noqa: S301 - made here


# ---------------------------------------------------------------- results


async def test_the_last_round_of_a_loop_is_found_by_its_task() -> None:
    rounds = iter(range(1, 9))
    write = kt.Task("write", "Write.", output_type=Report)
    loop = kt.Loop([write], until={"from": "write", "field": "pages", "at_least": 3}, max_rounds=5)
    result = await run(lambda _: Report(title="x", pages=next(rounds)), kt.Task("solve", "Solve.", loop=loop))
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert result["solve.write"].task_id == "solve.03.write"
    assert result.data(kt.TaskRef("solve.write", Report)).pages == 3
    assert result.data(write).pages == 3
    assert result.data("solve.write") == {"title": "x", "pages": 3}


async def test_without_an_answer_the_end_of_the_task_is_raised() -> None:
    def broken(assignment: kt.Assignment) -> str:
        raise LookupError("no tides today")

    first, second = kt.Task("a", "x", output_type=Report), kt.Task("b", "x", depends_on=["a"])
    result = await run(broken, first, second)
    with pytest.raises(NoAnswer, match=r"task 'a' has no answer: it ended failed, .*no tides today") as raised:
        result.data(first)
    assert isinstance(raised.value.__cause__, LookupError)
    with pytest.raises(NoAnswer, match="task 'b' has no answer: it ended skipped"):
        result.data(second)
    with pytest.raises(KeyError, match="no task 'c'"):
        result.data("c")
    refused = await run(kt.MiniAgent("none:such"), first)
    with pytest.raises(NoAnswer, match=r"task 'a' has no answer: it ended skipped, .*the provider 'none' is unknown"):
        refused.data(first)


async def test_a_text_without_a_type_is_the_answer() -> None:
    task = kt.Task("a", "x")
    result = await run(lambda _: "said", task)
    assert (result.data(task), result.data("a")) == ("said", "said")


# ---------------------------------------------------------------- alone


async def test_alone_the_answer_is_the_type() -> None:
    output = await kt.MiniAgent(ScriptedModel(['{"title": "Tides"}'])).run("go", output_type=Report)
    assert output.data == Report(title="Tides")
    assert (await kt.MiniAgent(ScriptedModel(["said"])).run("go")).data == "said"
    assert "output_type" not in TypeAdapter(kt.AgentOutput).dump_python(output, mode="json")
    assert pickle.loads(pickle.dumps(output)).data == output.data  # noqa: S301 - made here


async def test_alone_without_an_answer_the_end_is_raised() -> None:
    cut = kt.ModelResponse("so far", usage=kt.Usage(20, 20), finish_reason="length")
    output = await kt.MiniAgent(ScriptedModel([cut]), max_turns=1).run("go")
    with pytest.raises(NoAnswer, match="the agent has no answer: it ended turn_limit_reached"):
        _ = output.data


def is_plain(artifact: kt.Artifact) -> bool:
    return artifact.data_as(Report).title.islower()


RUBRIC = Rubric([Criterion("plain", "the title is plain", is_plain)])


async def test_alone_an_evaluator_reviews_the_answer_which_is_revised() -> None:
    model = ScriptedModel(['{"title": "TIDES"}', '{"title": "tides"}'])
    output = await kt.MiniAgent(model).run("go", output_type=Report, evaluator=RUBRIC, budget=kt.Budget(tokens=9_000))
    assert (output.status, output.data) == (kt.AgentStatus.COMPLETED, Report(title="tides"))
    assert "the title is plain" in model.calls[1].messages[-1].text


@pytest.mark.parametrize("recorded", [False, True])
async def test_alone_an_answer_that_is_not_accepted_is_none(recorded: bool, tmp_path: Path) -> None:
    model = FunctionModel(lambda _: '{"title": "TIDES"}')
    journal = kt.SqliteJournal(tmp_path / "runs.db") if recorded else None
    output = await kt.MiniAgent(model).run(
        "go", output_type=Report, evaluator=RUBRIC, journal=journal, run_id="r-1" if recorded else None
    )
    assert (output.status, output.artifact.data) == (kt.AgentStatus.GRACEFUL_EXIT, {"title": "TIDES", "pages": 1})
    with pytest.raises(NoAnswer, match="not met: the title is plain"):
        _ = output.data
    if journal is not None:
        journal.close()


async def test_a_resume_without_the_types_of_the_plan_says_where_they_go(tmp_path: Path) -> None:
    plan = kt.TaskGraph([kt.Task("t", "Do it.", output_type=Report, evaluator="open")])
    reviews = {"open": LeavesOpen("t")}
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
            request = kt.TeamExecutionRequest("go", plan=plan, run_id="r")
            await kt.run(team(lambda _: Report(title="x"), evaluators=reviews), request, runtime=runtime)
            runtime.answer(runtime.pending("r")[0].id, APPROVE)
        async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
            with pytest.raises(
                PlanMismatch, match=r"give the type itself: Team\(..., output_types=\{'Report': ...\}\)"
            ):
                await runtime.resume("r", team(lambda _: Report(title="x"), evaluators=reviews))
            named = team(lambda _: Report(title="x"), evaluators=reviews, output_types={"Report": Report})
            assert (await runtime.resume("r", named)).data("t") == {"title": "x", "pages": 1}
