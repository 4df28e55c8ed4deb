"""A plug-in of pytest that writes which of some functions each test entered: `-p tests.entered`.

`KAIRO_ENTERED` names a file of JSON with the wanted functions, `[file, qualified name]` each; a class stands for all
its functions. The answer replaces it: `[test, file, name]` for each function that was entered while a test ran.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOUND: set[tuple[str, str, str]] = set()
WANTED: dict[str, list[str]] = {}
KNOWN: dict[CodeType, tuple[str, str] | None] = {}
TEST = [""]


def place_of(code: CodeType) -> tuple[str, str] | None:
    """Return the file and the wanted name that a piece of code belongs to; None for any other."""
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    file = path.relative_to(ROOT).as_posix()
    file = file if file in WANTED else file.removeprefix("kairo_team/")  # coordinators/ and others are links there
    for name in WANTED.get(file, []):
        if f"{code.co_qualname}.".startswith(f"{name}."):
            return file, name
    return None


def note(frame: FrameType, event: str, _argument: object) -> None:
    """Note a call; the hook of `sys.setprofile`."""
    if event == "call":
        code = frame.f_code
        if code not in KNOWN:
            KNOWN[code] = place_of(code)
        place = KNOWN[code]
        if place is not None:
            FOUND.add((TEST[0], *place))


def pytest_configure() -> None:
    for file, name in json.loads(Path(os.environ["KAIRO_ENTERED"]).read_text(encoding="utf-8")):
        WANTED.setdefault(file, []).append(name)
    threading.setprofile(note)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    TEST[0] = item.nodeid
    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)


def pytest_sessionfinish() -> None:
    Path(os.environ["KAIRO_ENTERED"]).write_text(json.dumps(sorted(FOUND)), encoding="utf-8")
