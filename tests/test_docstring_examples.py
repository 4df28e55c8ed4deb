"""The examples in the docstrings of the main classes run as they stand."""

from __future__ import annotations

import ast
import doctest
import inspect
from types import CodeType, FunctionType
from typing import Any

import pytest

import kairo_team as kt

pytestmark = pytest.mark.anyio

CLASSES = [kt.Runtime, kt.TeamRun]
MOST_LINES = 2


def example_of(kind: type) -> str:
    found = doctest.DocTestParser().get_examples(inspect.getdoc(kind) or "")
    return "".join(one.source for one in found)


def surroundings() -> dict[str, Any]:
    """What examples may name: a team of one member, and a request of one task."""
    team = kt.Team("writers", [kt.Member("writer", lambda assignment: "done")])
    request = kt.TeamExecutionRequest("write", plan=kt.TaskGraph([kt.Task("draft", "Write a draft")]))
    return {"kt": kt, "team": team, "request": request}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
async def test_the_example_in_a_docstring_runs(kind: type) -> None:
    source = example_of(kind)
    assert 0 < len(source.splitlines()) <= MOST_LINES
    code = compile(source, kind.__name__, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    made: Any = FunctionType(code, surroundings())()
    if inspect.isawaitable(made):
        await made
