"""The graph kairo-team and other libraries are put to: it is run in order, and its page shows what was measured."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks.overhead import layered_plan
from benchmarks.peers.durable import experiment as recorded
from benchmarks.peers.durable import sitting as recorded_sitting
from benchmarks.peers.graph import experiment, sitting
from benchmarks.peers.programs import Skipped, run
from benchmarks.table import Row, draw

ROOT = Path(__file__).resolve().parent.parent

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


@pytest.mark.parametrize("module", sitting.PEERS)
def test_a_library_runs_every_task_once_and_after_all_it_depends_on(module: str) -> None:
    peer = sitting.PEERS[module]
    pytest.importorskip(peer.package, reason=f"pip install {peer.distribution}")
    graph, done = experiment.of_plan(layered_plan(40)), list[str]()

    async def work(name: str) -> None:
        done.append(name)

    build: experiment.Build = import_module(f"benchmarks.peers.graph.{module}").build
    asyncio.run(build(graph, work)())
    experiment.check(graph, done)


@pytest.mark.parametrize("done", ["abcd", "acbd"])
def test_an_order_that_keeps_the_dependencies_passes(done: str) -> None:
    experiment.check(DIAMOND, done)


@pytest.mark.parametrize(
    ("done", "complaint"),
    [
        ("abc", "3 tasks done, 3 of them different, of 4"),
        ("abcdd", "5 tasks done, 4 of them different, of 4"),
        ("abdc", "1 dependencies were not waited for"),
        ("dcba", "4 dependencies were not waited for"),
    ],
)
def test_a_run_that_left_out_repeated_or_hurried_a_task_has_no_figures(done: str, complaint: str) -> None:
    with pytest.raises(experiment.Wrong, match=complaint):
        experiment.check(DIAMOND, done)


def test_layers_are_the_tasks_by_their_distance_from_the_start() -> None:
    assert experiment.layers(DIAMOND) == [["a"], ["b", "c"], ["d"]]
    assert experiment.last_of(DIAMOND) == ["d"]


def test_a_library_that_is_not_there_is_skipped_with_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert not sitting.installed(sitting.Peer("Nobody", "no_such_package", "nobody-agents"))
    assert capsys.readouterr().err == "Nobody skipped: it is not installed; pip install nobody-agents\n"


@pytest.mark.sampled
@pytest.mark.parametrize(("code", "reason"), [("", "over 3 s to build"), ("print(1, flush=True)", "over 3 s")])
def test_a_program_that_takes_too_long_is_ended_and_said_to_be(code: str, reason: str) -> None:
    with pytest.raises(Skipped) as refused:
        run([sys.executable, "-c", f"import time; {code}\ntime.sleep(600)"], seconds=3)
    assert str(refused.value) == reason


def test_a_row_in_another_unit_says_so() -> None:
    assert "4.00 KB   <= 5 KB  ok" in draw([Row("memory", 4.0, 5.0, unit="KB")])


def test_the_picture_is_drawn_from_the_table_of_the_page() -> None:
    drawn = subprocess.run([sys.executable, "scripts/peers_picture.py"], cwd=ROOT, capture_output=True, check=True)
    assert drawn.stdout == (ROOT / "docs" / "peers-graph.svg").read_bytes(), "draw it anew: see docs/speed.md"


def test_the_recorded_graph_has_the_shape_of_the_other_one() -> None:
    names = {f"t{number}": name for number, name in enumerate(recorded.layered(40))}
    plan = {names[task.id]: {names[need] for need in task.depends_on} for task in layered_plan(40).tasks}
    assert {name: set(needs) for name, needs in recorded.layered(40).items()} == plan
    assert [name for layer in recorded.layers(recorded.layered(40)) for name in layer] == list(plan)


def test_a_bill_tells_calls_that_were_under_way_from_those_that_are_paid_again(tmp_path: Path) -> None:
    lines = ["asked a", "asked b", "answered a", "asked a", "asked b", "answered b", "answered a"]
    (tmp_path / recorded.ACCOUNT).write_text("\n".join(lines) + "\n", encoding="ascii")
    assert recorded.read(tmp_path) == recorded.Bill(asked=4, answered=2, again=1, cut=1)


@pytest.mark.sampled
@pytest.mark.parametrize("peer", recorded_sitting.PEERS, ids=lambda peer: f"{peer.module}, {peer.way}")
def test_a_library_asks_once_for_every_node(peer: recorded_sitting.Peer, tmp_path: Path) -> None:
    for name in peer.requirements:
        try:
            version(name)
        except PackageNotFoundError:
            pytest.skip(f"pip install {' '.join(peer.requirements)}")
    run([sys.executable, "-m", f"benchmarks.peers.durable.{peer.module}", "--folder", str(tmp_path), "--way", peer.way])
    assert recorded.read(tmp_path) == recorded.Bill(asked=20, answered=20, again=0, cut=0)
