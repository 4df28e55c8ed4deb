"""Masking is total: no error and no value, however it is made, shows a secret or stops what writes it."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team._util.masking import MASK, Masker
from kairo_team.tools.result import Sanitizer

pytestmark = pytest.mark.anyio

SECRET = "hunter2-and-more"
MASKER = Masker([SECRET])


def all_said(error: BaseException) -> str:
    """Everything that is reached from an error, without recursion."""
    said, waiting, seen = list[str](), [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        said.append(f"{type(one).__name__} {one} {one!r} {getattr(one, '__notes__', '')}")
        waiting += [led for led in (one.__cause__, one.__context__) if led is not None]
        waiting += getattr(one, "exceptions", ())
    return "\n".join(said)


def its_own_cause() -> BaseException:
    error = ValueError(SECRET)
    error.__cause__ = error
    return error


def each_others_cause() -> BaseException:
    one, other = ValueError("one"), KeyError(SECRET)
    one.__cause__, other.__cause__ = other, one
    one.__context__, other.__context__ = other, one
    return one


def a_part_of_its_part() -> BaseException:
    part = ValueError(SECRET)
    group = ExceptionGroup(f"all of {SECRET}", [part, KeyError("x")])
    part.__cause__ = part.__context__ = group
    return group


def a_deep_group() -> BaseException:
    error: Any = ValueError(SECRET)
    for _ in range(3_000):
        error = ExceptionGroup("deep", [error])
    made: BaseException = error
    return made


def a_long_chain() -> BaseException:
    error: Exception = ValueError(SECRET)
    for _ in range(5_000):
        new = ValueError("on")
        new.__cause__, error = error, new
    return error


def many_parts() -> BaseException:
    return ExceptionGroup("many", [ValueError(SECRET), *(ValueError(str(number)) for number in range(3_000))])


class Unsaid(Exception):
    def __str__(self) -> str:
        raise SystemExit(SECRET)

    __repr__ = __str__


class Withdrawn(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt(SECRET)


class Endless(Exception):
    @property
    def __cause__(self) -> BaseException:
        return Endless(SECRET)

    @__cause__.setter
    def __cause__(self, _cause: object) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]  # as meant
        raise GeneratorExit(SECRET)


class Uncopied(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)

    def __reduce__(self) -> NoReturn:
        raise ExceptionGroup(SECRET, [ValueError(SECRET)])


class Parts(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        return (self, ValueError(SECRET))


def noted() -> BaseException:
    error = ValueError("plain")
    error.add_note(f"with {SECRET}")
    return error


def no_notes() -> BaseException:
    error = ValueError(SECRET)
    error.__notes__ = 5  # type: ignore[assignment]  # nothing stops a plug-in
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "its own cause": its_own_cause,
    "each other's cause": each_others_cause,
    "a part of its part": a_part_of_its_part,
    "a deep group": a_deep_group,
    "a long chain": a_long_chain,
    "many parts": many_parts,
    "unsaid": lambda: Unsaid(SECRET),
    "withdrawn": lambda: Withdrawn(SECRET),
    "endless": lambda: Endless(SECRET),
    "uncopied": lambda: Uncopied(SECRET, 3),
    "parts": lambda: Parts(SECRET, [ValueError(SECRET)]),
    "noted": noted,
    "no notes": no_notes,
    "a line of code": lambda: SyntaxError("bad", ("f.py", 1, 1, f"key = {SECRET}")),
}


@pytest.mark.parametrize("name", ERRORS)
def test_third_o02_an_error_is_masked_whatever_it_leads_to(name: str) -> None:
    shown = MASKER.error(ERRORS[name]())
    if name == "unsaid":  # it says nothing, so it shows nothing
        return
    assert SECRET not in all_said(shown)


def test_third_o02_a_cycle_stays_a_cycle_and_classes_and_places_stay() -> None:
    shown = MASKER.error(each_others_cause())
    assert isinstance(shown, ValueError)
    assert isinstance(shown.__cause__, KeyError)
    assert shown.__cause__.__cause__ is shown
    group = MASKER.error(a_part_of_its_part())
    assert isinstance(group, ExceptionGroup)
    parts: Any = group  # pyright: ignore[reportUnknownVariableType]  # of whichever errors
    assert parts.exceptions[0].__cause__ is group
    assert "".join(traceback.format_exception(shown)).count(MASK) == 1


def test_third_o02_errors_without_a_secret_are_left_alone() -> None:
    clean = ValueError("clean")
    clean.__cause__ = clean
    assert MASKER.error(clean) is clean
    dirty = RuntimeError(SECRET)
    dirty.__cause__ = clean
    assert MASKER.error(dirty).__cause__ is clean


@pytest.mark.parametrize(
    "name", ["its own cause", "each other's cause", "a part of its part", "uncopied", "noted", "a line of code"]
)
async def test_third_o02_a_run_ends_with_a_result_whatever_is_raised(name: str) -> None:
    async def fails(assignment: kt.Assignment) -> str:
        error = ERRORS[name]()
        raise error

    team = kt.Team("t", [kt.Member("a", fails)], runtime=kt.Runtime(secrets=[SECRET]))
    result = await kt.run(team, "Do it.")
    assert result.status is kt.TeamStatus.FAILED
    assert SECRET not in repr(result)


class Unreadable(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        raise SystemExit(SECRET)

    def __iter__(self) -> Iterator[str]:
        return iter(["key"])

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return SECRET


@dataclass
class Broken:
    one: str

    def __getattribute__(self, name: str) -> Any:
        raise ValueError(SECRET)


class Key(pydantic.BaseModel):
    text: str
    inner: Key | None = None
    _private: str = ""


class Loose(pydantic.BaseModel, extra="allow"):
    """Has what nobody declared."""


class Plain:
    def __repr__(self) -> str:
        return f"Plain({SECRET})"


def itself() -> Any:
    value: list[Any] = [SECRET]
    value += [value, {"again": value}]
    return value


def branching() -> Any:
    value: Any = [SECRET]
    for _ in range(100):
        value = [value, value]
    return value


VALUES: dict[str, Callable[[], Any]] = {
    "itself": itself,
    "branching": branching,
    "a mapping": lambda: {"x": Unreadable()},
    "a dataclass": lambda: [Broken(SECRET), SECRET],
    "bytes": lambda: [SECRET.encode(), bytearray(SECRET, "utf-8"), b"\xff" + SECRET.encode()],
    "a model": lambda: Key(text="x", inner=Key(text=SECRET)),
    "a loose model": lambda: Loose.model_validate({"more": {"key": [SECRET]}}),
    "an object": lambda: {"one": Plain()},
    "an error": lambda: {"one": its_own_cause()},
}


@pytest.mark.parametrize("name", VALUES)
def test_third_o02_a_value_is_masked_whatever_it_is(name: str) -> None:
    shown = MASKER.value(VALUES[name]())
    assert MASK in repr(shown) if name != "branching" else shown
    assert SECRET not in (repr(shown) if name != "branching" else "")


def test_third_o24_models_and_bytes_keep_their_class_and_what_has_no_secret_is_the_same() -> None:
    model = Key(text="x", inner=Key(text=SECRET))
    shown = MASKER.value(model)
    assert isinstance(shown, Key)
    assert shown == Key(text="x", inner=Key(text=MASK))
    assert model.inner is not None
    assert model.inner.text == SECRET
    assert MASKER.value(b"\xff " + SECRET.encode() + b" \xfe") == b"\xff " + MASK.encode() + b" \xfe"
    for same in (Key(text="x"), b"\xff\xfe", Loose(), {"a": [1]}, kt.Budget(tokens=3)):
        assert MASKER.value(same) is same


@pytest.mark.parametrize("data", [Key(text=SECRET), SECRET.encode(), {"deep": [Key(text=SECRET)]}])
async def test_third_o24_the_data_of_an_artifact_is_masked(data: Any) -> None:
    async def makes(assignment: kt.Assignment) -> kt.Artifact:
        return kt.Artifact("made", data)

    team = kt.Team("t", [kt.Member("a", makes)], runtime=kt.Runtime(secrets=[SECRET]))
    result = await kt.run(team, "Do it.")
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert SECRET not in repr(result)
    assert MASK in repr(result.artifact)


class Unwritable:
    def __str__(self) -> str:
        raise SystemExit(SECRET)


def test_third_o02_the_log_is_written_whatever_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    runtime = kt.Runtime(secrets=[SECRET])
    logger = logging.getLogger("kairo_team")
    logger.warning("bad arguments: %d", SECRET)
    logger.warning("%s", Unwritable())
    logger.warning("it failed", exc_info=its_own_cause())
    logger.warning("it failed", exc_info=Endless(SECRET))
    logger.warning("plain %s", SECRET)
    assert SECRET not in caplog.text
    assert len(caplog.records) == 5
    assert caplog.records[-1].getMessage() == f"plain {MASK}"
    assert runtime.secrets == (SECRET,)


def test_a_line_of_the_log_is_cut_and_says_how_much_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("kairo_team")
    logger.error("run %r ended: %s; result.check() raises the error", "r", "x" * 1_000_000)
    logger.error("it failed", exc_info=ValueError("y" * 1_000_000))
    logger.error("as it is: %s", "z" * 5_000)
    line, failed, whole = caplog.records
    assert len(line.getMessage()) < 10_000
    assert line.getMessage().startswith("run 'r' ended: xxx")
    assert " [992,048 of 1,000,048 characters are left out] " in line.getMessage()
    assert line.getMessage().endswith("xxx; result.check() raises the error")
    assert failed.exc_text is not None
    assert len(failed.exc_text) < 10_000
    assert failed.exc_text.startswith("ValueError: yyy")
    assert failed.exc_text.endswith("yyy")
    assert whole.getMessage() == f"as it is: {'z' * 5_000}"


def test_a_secret_is_masked_before_a_line_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    runtime = kt.Runtime(secrets=[SECRET])
    logging.getLogger("kairo_team").error("%s", SECRET * 10_000)
    assert SECRET[:6] not in caplog.text
    assert runtime.secrets == (SECRET,)


@pytest.mark.anyio
async def test_the_end_of_a_run_with_a_large_error_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(_: kt.Assignment) -> str:
        raise ValueError("x" * 1_000_000)

    result = await kt.run(kt.Team("desk", [kt.Member("a", fails)]), "go")
    assert len(result.error or "") > 1_000_000
    assert max(len(one.getMessage()) for one in caplog.records) < 10_000


@given(st.lists(st.sampled_from([SECRET, " ", "a", "\u200b", "[secret]", "hunter2"]), max_size=30))
def test_third_o23_a_text_is_masked_as_span_by_span(pieces: list[str]) -> None:
    text = "".join(pieces)
    wanted = text
    for start, end in reversed(MASKER.spans(text)):
        wanted = wanted[:start] + MASK + wanted[end:]
    assert MASKER.text(text) == wanted


def growth(work: Callable[[int], object], size: int) -> float:
    """Return how many times as long a work takes that is four times as large, at best: 4 is linear, 16 quadratic."""

    times: dict[int, list[float]] = {size: [], 4 * size: []}
    for _ in range(7):  # by turns: whatever else the machine does slows both
        for of, taken in times.items():
            began = time.process_time()
            work(of)
            taken.append(time.process_time() - began)
    return min(times[4 * size]) / max(min(times[size]), 1e-9)


@pytest.mark.parametrize("mask", [MASKER.text, Sanitizer([SECRET]), MASKER.value])
def test_third_o23_masking_is_linear(mask: Callable[[str], object]) -> None:
    assert growth(lambda hits: mask(f"{SECRET} and some other words, " * hits), 8_000) < 10


PEM = "-----BEGIN KEY-----\nMIIBVgIBADANBgkq\n-----END KEY-----"


@pytest.mark.parametrize("secret", [PEM, 'pa\\ss"wörd', "pa'ss\twörd", 'it\'s "both" \\ of them'])
@pytest.mark.parametrize(
    "show",
    [
        repr,
        ascii,
        lambda text: str(KeyError(text)),
        lambda text: repr([f"it's {text}"]),
        lambda text: repr(str.encode(text)),
    ],
    ids=["repr", "ascii", "a KeyError", "in a longer text", "bytes"],
)
def test_third_o21_a_secret_is_masked_as_python_shows_it(secret: str, show: Callable[[str], str]) -> None:
    shown = Masker([secret]).text(f"before {show(secret)} after")
    assert MASK in shown
    assert not any(part in shown for part in ("MIIB", "rd", "both"))
