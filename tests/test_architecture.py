"""The rooms, and who may enter which: the imports point one way, and no file outgrows its room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kairo_team"

# A room imports from its own floor and from those above it in this list. A module that is not listed is part of the
# kernel; "" is the package itself, whose names come from everywhere.
VALUES = [
    *("borders", "budget", "budget_tree", "child_processes", "child_watch", "clock", "contracts", "errors", "events"),
    *("frozen", "human", "json_schema", "lazy", "masking", "messages", "output_types", "prompts", "refusals"),
    *("results", "shapes", "states", "status", "tasks", "team", "threads", "unseen", "tracebacks", "verdicts"),
]
KERNEL = ["board", "runtime", "team_run"]
FLOORS = [
    VALUES,
    ["governance"],
    ["models", "tools"],
    ["agents", "journal", "member_model", "overshoots", "run_constraints", "runners", "services", "work_context"],
    KERNEL,
    ["coordinators", "evaluators"],
    ["front"],
    ["cli", "testing", "views"],
    ["tck"],
    ["", "examples"],
]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
FRONT_DOOR = ({"agents/team_agent.py", "runtime.py"}, "kairo_team.front")
"""Whoever runs a team as `kairo_team.run` does asks it which coordinator is the right one, inside a function."""
NEVER = {
    "evaluators": {"coordinators"},
    "front": {"testing"},
    "cli": {"testing"},
    "views": {"testing", "cli"},
    "tck": {"cli", "views"},
    "": {"tck"},
    "examples": {"tck"},
}
MAX_LINES, MAX_ENGINE_LINES = 500, 800
"""In the engine (the package's own modules and `governance`) a subject stays whole."""
ENGINE = {PACKAGE, PACKAGE / "governance"}


class Import(NamedTuple):
    """One imported name, where it stands, and whether that is inside a function."""

    target: str
    line: int
    inside: bool


def rooms_of_the_package() -> list[Path]:
    return [PACKAGE, PACKAGE / "coordinators", PACKAGE / "evaluators", PACKAGE / "examples", PACKAGE / "tck"]


def sources() -> list[Path]:
    """The library's files, each once; `rglob` does not follow the links, so they are walked by name."""
    return sorted({path for room in rooms_of_the_package() for path in room.rglob("*.py")})


def imports(node: ast.AST, *, inside: bool = False) -> Iterator[Import]:
    """Every import that happens when the program runs, those inside functions too."""
    children = list(ast.iter_child_nodes(node))
    match node:
        case ast.Import(names=names):
            yield from (Import(alias.name, node.lineno, inside) for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            assert level == 0, f"line {node.lineno}: relative import"
            yield from (Import(f"{module}.{alias.name}", node.lineno, inside) for alias in names)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            if ast.unparse(function).endswith(("import_module", "__import__")):
                yield Import(name, node.lineno, inside)
        case ast.If(test=test, orelse=orelse) if ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            children = list(orelse)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inside = True
        case _:
            pass
    for child in children:
        yield from imports(child, inside=inside)


def floor(room: str) -> int:
    return FLOOR.get(room, FLOOR["runtime"])


def room_of(target: str) -> str:
    """The room an imported kairo_team name lies in."""
    first = target.removeprefix("kairo_team").removeprefix(".").partition(".")[0]
    is_room = first in FLOOR or (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file()
    return first if is_room else ""


def forbidden(file: str, found: Import) -> str | None:
    """Why this file may not import that, or None."""
    if found.target.partition(".")[0] != "kairo_team":
        return None
    here = "" if file == "__init__.py" else file.partition("/")[0].removesuffix(".py")
    there = room_of(found.target)
    if file in FRONT_DOOR[0] and found.inside and found.target.startswith(FRONT_DOOR[1]):
        return None
    if floor(there) > floor(here) or there in NEVER.get(here, ()):
        return f"kairo_team/{file}:{found.line} may not import {found.target}"
    return None


def test_imports_point_one_way() -> None:
    wrong = [
        reason
        for path in sources()
        for found in imports(ast.parse(path.read_text(encoding="utf-8")))
        if (reason := forbidden(path.relative_to(PACKAGE).as_posix(), found)) is not None
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_but_the_test_doubles_knows_one_event_loop() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{found.line}"
        for path in sources()
        if path.relative_to(PACKAGE).parts[0] != "testing"
        for found in imports(ast.parse(path.read_text(encoding="utf-8")))
        if found.target.partition(".")[0] in {"asyncio", "trio"}
    ]
    assert not wrong, f"use anyio in {wrong}"


def test_no_file_outgrows_its_room() -> None:
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    limits = {path: MAX_ENGINE_LINES if path.parent in ENGINE else MAX_LINES for path in counts}
    assert {path.relative_to(ROOT): count for path, count in counts.items() if count > limits[path]} == {}


@pytest.mark.parametrize(
    ("file", "text", "allowed"),
    [
        ("budget.py", "from kairo_team.errors import HaltError", True),
        ("budget.py", "from kairo_team.governance import Governor", False),
        ("budget.py", "from kairo_team import governance", False),
        ("budget.py", "import kairo_team", False),
        ("contracts.py", "if TYPE_CHECKING:\n    from kairo_team.governance import Governor", True),
        ("contracts.py", "if TYPE_CHECKING:\n    pass\nelse:\n    from kairo_team.governance import Governor", False),
        ("contracts.py", "if not TYPE_CHECKING:\n    from kairo_team.governance import Governor", False),
        ("tools/tool.py", "def late():\n    from kairo_team.agents import mini", False),
        ("tools/tool.py", "importlib.import_module('kairo_team.agents.mini')", False),
        ("agents/team_agent.py", "async def run():\n    from kairo_team.front import run", True),
        ("agents/team_agent.py", "async def run():\n    from kairo_team import front", True),
        ("agents/team_agent.py", "from kairo_team.front import run", False),
        ("agents/mini.py", "async def run():\n    from kairo_team.front import run", False),
        ("agents/mini.py", "from kairo_team.a_new_module import name", False),
        ("runtime.py", "from kairo_team.evaluators import Rubric", False),
        ("a_new_module.py", "from kairo_team.agents import FunctionAgent", True),
        ("a_new_module.py", "from kairo_team.evaluators import Rubric", False),
        ("coordinators/expert_team.py", "from kairo_team.evaluators import Rubric", True),
        ("evaluators/checks/text.py", "from kairo_team.coordinators import planners", False),
        ("front.py", "from kairo_team.coordinators import ExpertTeamCoordinator", True),
        ("front.py", "from kairo_team.testing import ScriptedModel", False),
        ("__init__.py", "from kairo_team.front import run as run", True),
        ("tck/kit.py", "from kairo_team.testing.clocks import virtual_time", True),
        ("tck/evaluation.py", "from kairo_team.evaluators import Rubric", True),
        ("tck/kit.py", "from kairo_team.cli import main", False),
        ("testing/agents.py", "from kairo_team.tck import run_kit", False),
        ("evaluators/rubric.py", "from kairo_team.tck import run_kit", False),
        ("examples/map_reduce.py", "from kairo_team.tck import run_kit", False),
        ("__init__.py", "from kairo_team.tck import run_kit as run_kit", False),
    ],
)
def test_the_arrows_hold_for(file: str, text: str, allowed: bool) -> None:
    assert all(forbidden(file, found) is None for found in imports(ast.parse(text))) is allowed
