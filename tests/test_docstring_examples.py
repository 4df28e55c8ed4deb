"""Each of the ten main classes has an example of two lines in its docstring, which runs and prints what it shows."""

from __future__ import annotations

import ast
import doctest
import inspect
import io
import pydoc
from collections.abc import Awaitable
from contextlib import redirect_stdout
from types import FunctionType
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import FunctionModel

MAIN = (kt.Team, kt.Member, kt.Role, kt.Task, kt.TaskGraph, kt.Budget, kt.Runtime, kt.TeamRun, Rubric, kt.MiniAgent)


def examples(kind: type) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(kind) or "")


def write(assignment: kt.Assignment) -> str:
    return "Tides come from the moon."


async def work(run: kt.TeamRun, task: kt.Task) -> None:
    """Accept the first artifact of a task, as the simplest coordinator does."""
    attempt = await run.attempt(task, 1)
    run.accept(task, attempt)


def given_names() -> dict[str, Any]:
    """What an example may use without making it."""
    plan = kt.TaskGraph([kt.Task("draft", "Explain tides.")])
    return {
        "kt": kt,
        "Rubric": Rubric,
        "Criterion": Criterion,
        "write": write,
        "work": work,
        "team": kt.Team("newsroom", [kt.Member("writer", write)]),
        "request": kt.TeamExecutionRequest("Explain tides.", plan=plan),
    }


def run(source: str, names: dict[str, Any]) -> str:
    """Run one example, in an event loop when it awaits, and return what it prints."""
    code = compile(source, "<example>", "single", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    with redirect_stdout(io.StringIO()) as out:
        result = FunctionType(code, names)()
        if inspect.iscoroutine(result):
            anyio.run(_wait_for, result)
    return out.getvalue()


async def _wait_for(awaitable: Awaitable[object]) -> None:
    await awaitable


@pytest.mark.parametrize("kind", MAIN, ids=lambda kind: kind.__name__)
def test_a_main_class_has_an_example_of_two_lines_that_runs(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.models.resolver._build", lambda name: FunctionModel(lambda _: "Fine.", name=name))
    found, names = examples(kind), given_names()
    assert sum(len(example.source.splitlines()) for example in found) == 2, "the example has two lines"
    for example in found:
        assert run(example.source, names) == example.want, example.source
    if kind is kt.TeamRun:
        assert names["run"].result.status == "completed"


@pytest.mark.parametrize("kind", [*MAIN, kt.TeamExecutionRequest], ids=lambda kind: kind.__name__)
def test_signatures_and_help_show_plain_types_and_defaults(kind: type) -> None:
    described = pydoc.plain(pydoc.render_doc(kind)).partition("Data and other attributes")[0]
    shown = (str(inspect.signature(kind)), described)
    for marker in ("Annotated", "Validator", "Serializer", "Strict", "Union[", "Optional[", "<factory>"):
        assert [text for text in shown if marker in text] == [], marker
    assert "*args" not in shown[0]


def test_a_signature_shows_each_type_and_default_as_it_is_written_in_code() -> None:
    shown = {name: str(one) for name, one in inspect.signature(kt.Task).parameters.items()}
    assert shown["id"] == "id: str"
    assert shown["needs"] == "needs: int | float | Literal['all'] = 'all'"
    assert shown["inputs"] == "inputs: Mapping[str, Any] = {}"
    assert shown["retries"] == "retries: int | None = None"
    assert str(inspect.signature(kt.TaskGraph)) == "(tasks: Sequence[Task]) -> None"
    request = inspect.signature(kt.TeamExecutionRequest).parameters
    assert [str(request[name]) for name in ("config", "run_id")] == [
        "config: TeamConfig = TeamConfig()",
        "run_id: str = ...",
    ]
