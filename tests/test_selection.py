"""`make test` shows each behaviour once: of the event loops on which a test can run, it takes one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import left_out, pytest_collection_modifyitems, pytest_pycollect_makeitem


class Item:
    """A collected test, as far as its selection looks at it."""

    cls: Any = None

    def __init__(self, name: str, loop: Any, *marks: pytest.MarkDecorator, parameter: str = "anyio_backend") -> None:
        self.nodeid = f"tests/test_some.py::{name}[{loop if isinstance(loop, str) else loop[0]}]"
        self.path = SimpleNamespace(
            parts=("tests", "test_some.py"), name="test_some.py", parent=SimpleNamespace(name="")
        )
        self.callspec = SimpleNamespace(params={parameter: loop})
        self.marks = [mark.mark for mark in marks]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(iter(self.iter_markers(name)), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def selected(*items: Item) -> tuple[list[str], list[str]]:
    """Return what `make test` runs, and what nothing runs."""
    gone, left = list[Item](), list[Any](items)

    def deselect(items: list[Item]) -> None:
        gone.extend(items)

    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=deselect))
    pytest_collection_modifyitems(config, left)
    runs = [item.nodeid for item in left if item.get_closest_marker("exhaustive") is None]
    return runs, [item.nodeid for item in gone]


NAMES = [f"test_{number}" for number in range(10)]  # the turns go by name


@pytest.mark.parametrize("options", [False, True])
def test_a_test_of_both_loops_stays_with_one_by_turns(options: bool) -> None:
    loops: list[Any] = [("asyncio", {}), ("trio", {})] if options else ["asyncio", "trio"]
    runs, gone = selected(*[Item(name, loop) for name in NAMES for loop in loops])
    assert (len(runs), gone) == (10, [])
    assert {one.partition("[")[2] for one in runs} == {"asyncio]", "trio]"}


def test_so_does_a_test_that_begins_its_loop_itself() -> None:
    runs, _ = selected(*[Item(name, loop, parameter="backend") for name in NAMES for loop in ("asyncio", "trio")])
    assert len(runs) == 10
    runs, _ = selected(*[Item(name, kept, parameter="backend") for name in NAMES for kept in ("memory", "disk")])
    assert len(runs) == 20, "no event loops"


def test_of_the_kits_of_strangers_the_first_of_each_contract_stays() -> None:
    kits = [type("Kit", (), {"contract": contract}) for contract in (int, str, int)]
    items = [Item(f"test_{number}", "asyncio") for number in range(6)]
    for number, item in enumerate(items):
        item.path.parts = ("tests", "third_party", "test_some.py")
        item.cls = kits[number // 2]
    runs, _ = selected(*items)
    assert [one.partition("::")[2] for one in runs] == [f"test_{number}[asyncio]" for number in range(4)]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_test_that_can_run_on_one_loop_alone_is_deselected_on_the_other(loop: str) -> None:
    alone = pytest.mark.loops(loop)
    runs, gone = selected(*[Item(name, other, alone) for name in NAMES for other in ("asyncio", "trio")])
    assert runs == [f"tests/test_some.py::{name}[{loop}]" for name in NAMES]
    assert len(gone) == 10


def test_where_one_loop_is_left_out_by_its_own_mark_the_other_stays() -> None:
    rest = pytest.mark.exhaustive
    runs, _ = selected(*[one for name in NAMES for one in (Item(name, "asyncio"), Item(name, "trio", rest))])
    assert runs == [f"tests/test_some.py::{name}[asyncio]" for name in NAMES]


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("not exhaustive and not service", {"exhaustive", "service"}),
        ("not long", {"long"}),
        ("(exhaustive or service) and not long", set()),
        ("not (long or service)", set()),
        ("", set()),
    ],
)
def test_what_a_run_leaves_out_as_a_whole_is_not_made(expression: str, marks: set[str]) -> None:
    assert left_out(expression) == marks
    module: Any = SimpleNamespace(
        config=SimpleNamespace(option=SimpleNamespace(markexpr=expression)),
        iter_markers=lambda: iter([pytest.mark.service.mark]),
        path=Path("tests/test_some.py"),
    )
    assert pytest_pycollect_makeitem(module, len) == ([] if "service" in marks else None)
    module.iter_markers = lambda: iter([])
    assert pytest_pycollect_makeitem(module, len) is None

    @pytest.mark.long
    def takes_long() -> None: ...

    assert pytest_pycollect_makeitem(module, takes_long) == ([] if "long" in marks else None)


def test_a_test_that_hangs_is_ended_with_the_stack_of_every_thread(tmp_path: Path) -> None:
    """Also one that waits for a thread for ever, with its output captured."""
    (tmp_path / "test_it.py").write_text(HANGS)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
        "-c",
        ROOT / "pyproject.toml",
    ]
    done = subprocess.run(
        [*command, "--rootdir", tmp_path, "--timeout", "0.3", tmp_path / "test_it.py"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Timeout (0:00:00.300000)!" in done.stderr
    assert all(f"in {name}" in done.stderr for name in ("test_waits", "another"))
    assert "passed" not in done.stdout


HANGS = """
import threading

def another(): threading.Event().wait()

def test_waits():
    thread = threading.Thread(target=another, daemon=True)
    thread.start()
    thread.join()
"""
ROOT = Path(__file__).resolve().parent.parent
