"""`kairo graph`: the plan a run would follow, as Mermaid on stdout or as a picture in a file; nobody is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest

from kairo_team.cli.app import run_command

ROOT = Path(__file__).resolve().parents[2]
NEWSROOM = Path(__file__).parent / "data" / "newsroom.py"
TASK_BOARD = ROOT / "examples" / "task_board.py"
PAGE = ROOT / "docs" / "graph.md"
TeamFile = Callable[..., Path]

TEAM = """
def never(assignment): raise AssertionError("an agent was called")
team = kt.Team("duo", [kt.Member("a", never), kt.Member("b", never)])
"""
PLAN = 'plan = kt.TaskGraph([kt.Task("one", "x", role="a"), kt.Task("two", "y", role="b", depends_on=["one"])])\n'
COORDINATED = """
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator
def never(*_): raise AssertionError("somebody was asked")
class Planner:
    async def plan(self, request, team, context): never()
class Coordinator:
    async def execute(self, request, team): never()
class Previewing(Coordinator):
    def preview(self, request, team): {preview}
team = kt.Team("duo", [kt.Member("a", never)], coordinator={coordinator})
"""


class Said(NamedTuple):
    """What the command left behind."""

    code: int
    out: str
    err: str


Graph = Callable[..., Said]


@pytest.fixture
def graph(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Run one `kairo graph` in this process; what it leaves claimed of stdout is given back when the test ends."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)

    def call(*arguments: object) -> Said:
        code = run_command(["graph", *map(str, arguments)])
        said = capfd.readouterr()
        return Said(code, said.out, said.err)

    return call


CHART = """---
title: "newsroom"
---
flowchart LR
    t1["moon<br/>writer"]
    t2["sun<br/>writer"]
    t3["page<br/>editor<br/>needs=1 of 2"]
    t1 --> t3
    t2 --> t3
"""


def test_it_prints_the_files_own_plan(graph: Graph) -> None:
    assert graph(NEWSROOM) == (0, CHART, "")


def test_a_team_can_be_named(graph: Graph, team_file: TeamFile) -> None:
    file = team_file(TEAM + PLAN + 'other = kt.Team("trio", [*team.members, kt.Member("a", never)])\n')
    said = graph(f"{file}:other")
    assert (said.code, said.err) == (0, "")
    assert '["one<br/>a#58; a or a-2"]' in said.out


def test_without_a_plan_it_draws_what_the_coordinator_would_run(graph: Graph, team_file: TeamFile) -> None:
    said = graph(team_file(TEAM), "Explain tides.")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[4:] == ['    t1["a<br/>a"]', '    t2["b<br/>b"]', "    t1 --> t2"]


def test_a_coordinators_preview_has_the_first_word(graph: Graph, team_file: TeamFile) -> None:
    text = COORDINATED.format(preview='return kt.TaskGraph([kt.Task("its-own", "x")])', coordinator="Previewing()")
    said = graph(team_file(text + PLAN.replace('role="b", ', "")))
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[4:] == ['    t1["its-own<br/>a"]']


def test_a_coordinator_without_a_preview_gets_the_requests_plan(graph: Graph, team_file: TeamFile) -> None:
    text = COORDINATED.format(preview="never()", coordinator="Coordinator()")
    said = graph(team_file(text + PLAN.replace('role="b"', 'role="a"')))
    assert (said.code, said.err) == (0, "")
    assert "    t1 --> t2\n" in said.out


def test_what_the_file_prints_does_not_get_into_the_chart(program: Any, team_file: TeamFile) -> None:
    """Nor what a process it starts prints: `kairo graph FILE.py > plan.mmd` holds the chart and nothing else."""
    file = team_file('import os\nprint("hello")\nos.system("echo child")\n' + TEAM + PLAN)
    said = program("graph", file)
    assert said.code == 0
    assert said.out.startswith('---\ntitle: "duo"\n---\nflowchart LR\n')
    assert sorted(said.err.split()) == ["child", "hello"]


def test_a_chart_too_large_for_mermaid_is_printed_with_a_warning(graph: Graph, team_file: TeamFile) -> None:
    many = "plan = kt.TaskGraph([kt.Task(f't{n}', 'x', depends_on=[f't{m}' for m in range(n)]) for n in range(33)])\n"
    said = graph(team_file(TEAM + many))
    assert said.code == 0
    assert said.out.count(" --> ") == 528
    assert said.err == (
        "kairo: the chart has 528 edges, and Mermaid draws 500 unless its maxEdges is raised: "
        "--svg PATH draws all of it\n"
    )


# ---------------------------------------------------------------- the picture


def test_a_picture_goes_into_its_file_and_stderr_says_where(graph: Graph, tmp_path: Path) -> None:
    place = tmp_path / "plan.svg"
    said = graph(NEWSROOM, "--svg", place)
    assert (said.code, said.out) == (0, "")
    assert said.err == f"kairo: the plan of team 'newsroom' (3 tasks, 2 dependencies) is drawn in {place}\n"
    assert ET.parse(place).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - the same


def test_a_picture_takes_the_place_of_an_older_one(graph: Graph, tmp_path: Path) -> None:
    place = tmp_path / "plan.svg"
    place.write_text("old", encoding="utf-8")
    assert graph(NEWSROOM, "--svg", place).code == 0
    assert place.read_text(encoding="utf-8").startswith("<svg ")


def test_hostile_names_stay_names(graph: Graph, team_file: TeamFile, tmp_path: Path) -> None:
    hostile = '</text><script>"] --> x\\n%%{init: {}}%%\\ufffe'
    text = TEAM.replace('"duo"', f"'{hostile}'") + f"plan = kt.TaskGraph([kt.Task('one', '{hostile}', role='a')])\n"
    file, place = team_file(text), tmp_path / "plan.svg"
    assert graph(file, "--svg", place).code == 0
    root = ET.parse(place).getroot()  # noqa: S314 - the same
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    said = graph(file)
    assert said.code == 0
    assert len(said.out.splitlines()) == 5
    assert "<script" not in said.out


# ---------------------------------------------------------------- refusals

BAD_FILES = {
    "no team": ("x = 1", "builds no kt.Team at its top level"),
    "several teams": (TEAM + "other = kt.Team('other', team.members)", "builds several teams, 'other', 'team': name"),
    "no goal": (TEAM, "team 'duo' has no goal: give one after the file"),
    "raises": ("\n1 / 0\n", "cannot be loaded: line 3: ZeroDivisionError"),
    "unknown member": (
        TEAM + 'plan = kt.TaskGraph([kt.Task("t", "x", member="zoe")])',
        (
            "the plan cannot be carried out: task 't' needs the member 'zoe', which no member offers; "
            "the team has 'a', 'b'"
        ),
    ),
    "unknown evaluator": (
        TEAM + 'plan = kt.TaskGraph([kt.Task("t", "x", evaluator="legal")])',
        "the plan cannot be carried out: task 't' names the evaluator 'legal'; the team has none",
    ),
    "many problems": (
        TEAM + 'plan = kt.TaskGraph([kt.Task(f"t{n}", "x", role="zoe") for n in range(1500)])',
        (
            "task 't2' needs the role 'zoe', which no member offers; the team has 'a', 'b'; "
            "and 1,497 more, which kairo check"
        ),
    ),
    "unknown evaluator of the coordinator": (
        COORDINATED.format(preview="never()", coordinator="ExpertTeamCoordinator(evaluator='legal')") + PLAN,
        "the plan cannot be carried out: the evaluator 'legal' is unknown; the team has none",
    ),
    "a planner to ask": (
        COORDINATED.format(preview="never()", coordinator="ExpertTeamCoordinator(planner=Planner())")
        + 'request = kt.TeamExecutionRequest("x")',
        "the plan of team 'duo' is known only once its planner was asked, which kairo graph does not do: let the file",
    ),
    "the planner of the library": (
        COORDINATED.format(preview="never()", coordinator="ExpertTeamCoordinator(planner=AgentPlanner('x:y'))")
        + 'request = kt.TeamExecutionRequest("x")',
        "the plan of team 'duo' is known only once its planner was asked",
    ),
    "no preview": (
        COORDINATED.format(preview="never()", coordinator="Coordinator()") + 'request = kt.TeamExecutionRequest("x")',
        "the plan of team 'duo' is known only once its planner was asked",
    ),
    "a preview that fails": (
        COORDINATED.format(preview="return 1 / 0", coordinator="Previewing()") + PLAN,
        "the plan cannot be previewed: ZeroDivisionError: division by zero",
    ),
    "a preview of something else": (
        COORDINATED.format(preview="return 'a plan'", coordinator="Previewing()") + PLAN,
        "the coordinator's preview must return a TaskGraph or None, not 'a plan'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.parametrize("svg", [False, True], ids=["Mermaid", "SVG"])
def test_what_cannot_be_drawn_is_one_sentence(
    graph: Graph, team_file: TeamFile, tmp_path: Path, case: str, svg: bool
) -> None:
    text, sentence = BAD_FILES[case]
    place = tmp_path / "plan.svg"
    said = graph(team_file(text), *(["--svg", place] if svg else []))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("kairo: ")
    assert said.err.count("\n") == 1
    assert sentence in said.err
    assert not place.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no_such.py"], "there is no file 'no_such.py'"),
        (["."], "'.' is not a Python file"),
        ([], "Missing argument"),
        ([f"{NEWSROOM}:nobody"], "has no 'nobody': it has 'team'"),
        (["no_such.py", "--svg", "plan.svg"], "there is no file 'no_such.py'"),
        ([NEWSROOM, "--svg", "{folder}"], "is a directory: give the path of a file"),
        ([NEWSROOM, "--svg", ""], "--svg '.' is a directory"),
        ([NEWSROOM, "--svg", "{folder}/no/plan.svg"], "/no': make it first"),
        ([NEWSROOM, "--svg", f"{NEWSROOM}/plan.svg"], "there is no directory"),
        ([NEWSROOM, "--svg", NEWSROOM], "is a file that is read here: give another path"),
        ([NEWSROOM, "--svg", f"{{folder}}/{'x' * 300}.svg"], "cannot be written: File name too long: name another"),
        ([NEWSROOM, "--svg"], "requires an argument"),
    ],
)  # fmt: skip
def test_a_bad_argument_is_one_sentence(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[object], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = graph(*(str(argument).format(folder=tmp_path) for argument in arguments))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("kairo: ")
    assert said.err.count("\n") == 1
    assert sentence in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")  # noqa: PTH110
def test_a_full_disk_is_a_sentence(graph: Graph) -> None:
    said = graph(NEWSROOM, "--svg", "/dev/full")
    assert (said.code, said.out) == (2, "")
    assert said.err == "kairo: --svg '/dev/full' cannot be written: No space left on device: name another place\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that can close a stream")
def test_a_closed_stdout_is_a_sentence() -> None:
    command = ["sh", "-c", 'exec "$0" -m kairo_team.cli graph "$1" >&-', sys.executable, str(NEWSROOM)]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, b"kairo: the chart goes to stdout, which is closed\n")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell with pipes")
def test_a_reader_that_leaves_is_no_error(team_file: TeamFile) -> None:
    file = team_file(TEAM + 'plan = kt.TaskGraph([kt.Task(f"t{n}", "x") for n in range(9000)])')
    command = ["sh", "-c", '"$0" -m kairo_team.cli graph "$1" | head -n 1', sys.executable, str(file)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.stdout == b"---\n"
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


# ---------------------------------------------------------------- the page


def test_the_pages_chart_and_picture_are_what_the_command_makes(graph: Graph, tmp_path: Path) -> None:
    """When this fails, make both anew with the commands on the page."""
    chart = PAGE.read_text(encoding="utf-8").split("```mermaid\n")[1].split("```")[0]
    picture = tmp_path / "graph-example.svg"
    assert graph(TASK_BOARD, "--svg", picture).code == 0
    assert picture.read_bytes() == (PAGE.parent / "graph-example.svg").read_bytes()
    assert graph(TASK_BOARD).out == chart
