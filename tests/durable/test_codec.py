"""Values go into the journal and come out as they were; nothing else comes out of it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntFlag, StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast
from unittest.mock import MagicMock
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr, RootModel

import kairo_team as kt
from kairo_team._util.frozen import FrozenDict
from kairo_team.durable.codec import CorruptRecord, NotRecordable, decode, encode, encode_apart, fetching, outline
from kairo_team.durable.value_classes import library
from kairo_team.engine.records.plan_records import Added, Cancellation, CutShort, EarlyEnd, PlanFailed, Replan, Unpaid
from kairo_team.engine.records.questions import Decided
from kairo_team.errors import GuardrailDenied
from kairo_team.evaluators import CriterionResult
from kairo_team.results import Attempt
from kairo_team.tools.result import ToolResult


class Colour(Enum):
    RED = "red"


class Access(Flag):
    READ = 1
    WRITE = 2


class Bits(IntFlag):
    LOW = 1


class Level(StrEnum):
    HIGH = "high"


class Point(NamedTuple):
    x: int
    y: Any = None


@dataclass
class Mutable:
    """Its constructor must not be called again: it counts."""

    numbers: list[int]
    made: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.made += 1


class Report(BaseModel, extra="allow"):
    title: str
    parts: list[Any] = []
    _seen: int = PrivateAttr(default=0)


class Numbers(RootModel[list[int]]):
    """A model of one unnamed value."""


class Watched(BaseModel):
    title: str

    def model_post_init(self, context: Any, /) -> None:
        watched.append(self.title)


watched: list[str] = []


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    parts: tuple[int, ...] = ()


@dataclass
class Indexed:
    """It holds more than its fields."""

    words: list[str]

    def __post_init__(self) -> None:
        self.places = {word: place for place, word in enumerate(self.words)}

    @cached_property
    def first(self) -> object:
        return object()


Content = TypeVar("Content")


@dataclass
class Box(Generic[Content]):
    content: Content


class OwnGraph(kt.TaskGraph):
    """A class of a user that is a graph of tasks."""


@dataclass
class Failure(Exception):
    """An exception, and a dataclass too."""

    code: int


@dataclass
class Unset:
    name: str = field(init=False)


class Elsewhere(tzinfo):
    """A time zone that has no name to find it by."""

    def utcoffset(self, at: datetime | None, /) -> timedelta:
        return timedelta(0)

    def dst(self, at: datetime | None, /) -> None:
        return None

    def tzname(self, at: datetime | None, /) -> str:
        return "elsewhere"


plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.text(alphabet=st.characters(categories=["Cs"]), max_size=2)
    | st.binary(max_size=20)
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.just(UTC))
    | st.timedeltas()
    | st.uuids()
    | st.datetimes(timezones=st.timezones())
    | st.times(timezones=st.timezones())
    | st.just(Colour.RED)
    | st.sampled_from([Access.READ, Access.READ | Access.WRITE, Access(0), Bits(8), Level.HIGH])
    | st.builds(Slotted, st.text(), st.lists(st.integers(), max_size=2).map(tuple))
)
keys = st.text(max_size=5) | st.just("~") | st.integers() | st.tuples(st.text(max_size=2), st.integers())
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4).map(FrozenDict)
        | st.builds(Point, st.integers(), inner)
        | st.builds(Report, title=st.text(), parts=st.lists(inner, max_size=2))
        | st.builds(Mutable, st.lists(st.integers(), max_size=3))
        | st.builds(Indexed, st.lists(st.text(max_size=3), max_size=3))
        | st.builds(Box[Any], inner)
        | st.builds(Numbers, st.lists(st.integers(), max_size=3))
        | st.frozensets(plain, max_size=3)
    ),
    max_leaves=12,
)


@given(value=values)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


LONG = 10**5000


@pytest.mark.parametrize("value", [LONG, -LONG, 10**600, 10**600 - 1, {"a": [LONG]}], ids=lambda _: "")
def test_integers_of_any_length_come_back(value: Any) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=UTC).replace(tzinfo=None),
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=1), "ours")),
        datetime(2026, 7, 1, tzinfo=timezone(timedelta(seconds=-1, microseconds=5))),
        time(2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        time(2, 30, tzinfo=UTC),
    ],
    ids=str,
)
def test_a_moment_keeps_its_zone_and_which_of_two_it_is(moment: Any) -> None:
    back = decode(encode(moment))
    assert (back, back.fold, repr(back.tzinfo)) == (moment, moment.fold, repr(moment.tzinfo))
    assert decode(encode(moment.tzinfo)) == moment.tzinfo


def test_a_dataclass_comes_back_with_what_it_holds_outside_its_fields() -> None:
    indexed = Indexed(["a", "b"])
    _ = indexed.first
    back = decode(encode(indexed))
    assert back.places == {"a": 0, "b": 1}
    assert type(back.first) is object


def test_a_subclass_of_a_graph_can_be_asked_for_its_tasks() -> None:
    back = decode(encode(OwnGraph([kt.Task("a", "Do it.")])))
    assert type(back) is OwnGraph
    assert back["a"] == kt.Task("a", "Do it.")


def test_reading_a_model_runs_nothing_of_it() -> None:
    text = encode(Watched(title="x"))
    watched.clear()
    assert decode(text) == Watched.model_construct(title="x")
    watched.clear()
    decode(text)
    assert watched == []


def test_a_model_of_a_later_version_gets_the_defaults_of_its_new_fields() -> None:
    name = f"{__name__}:Report"
    back = decode(f'{{"~":"{name}","v":{{"fields":{{"title":"x"}},"set":["title"]}}}}')
    assert back == Report(title="x")


def test_a_class_that_was_defined_again_is_the_one_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text = encode(Point(1))

    class Again(NamedTuple):
        x: int
        y: Any = None

    Again.__name__ = Again.__qualname__ = "Point"
    monkeypatch.setitem(globals(), "Point", Again)
    assert type(decode(text)) is Again
    assert type(decode(encode(Again(1, 2)))) is Again


def test_what_is_nested_as_deeply_as_can_be_written_can_be_read_from_a_deeper_call() -> None:
    nested: Any = []
    last = ""
    while True:
        try:
            last = encode(nested)
        except NotRecordable:
            break
        nested = [nested]

    def deeper(calls: int) -> Any:
        return decode(last) if calls == 0 else deeper(calls - 1)

    assert encode(deeper(200)[0]) == last[1:-1]


@pytest.mark.parametrize("value", [{1, 2}, {"b", "a"}, frozenset({(1, "x")}), set(), MappingProxyType({"a": (1,)})])
def test_sets_and_read_only_views_come_back(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


def test_the_state_of_models_and_dataclasses_comes_back_whole() -> None:
    report = Report.model_validate({"title": "x", "more": 3})
    report._seen = 7
    back = decode(encode(report))
    assert (back, back._seen, back.model_extra) == (report, 7, {"more": 3})
    assert back.model_fields_set == report.model_fields_set
    assert decode(encode(Mutable([1]))).made == 1
    assert math.isnan(decode(encode(math.nan)))


USAGE = kt.Usage(10, 5, Decimal("0.001"), 2, 1, 3.5)
ARTIFACT = kt.Artifact("A text.", data={"pages": (1, 2)}, partial=True)
VERDICT = kt.EvaluationVerdict.revise(
    "again", findings=[kt.Finding("f1", observed="x", expected="y")], score=0.5,
    criteria=[CriterionResult("c1", "met", passed=True)],
)  # fmt: skip
OUTPUT = kt.AgentOutput(ARTIFACT, kt.AgentStatus.TURN_LIMIT_REACHED, 3, usage=USAGE, error="too long")
QUESTION = kt.HumanRequest("review", "Is it good?", "A text.", "t1", "writer", 1, id="r:q", run_id="r")
TASK = kt.Task("t1", "Do it.", depends_on=["t0"], budget=kt.Budget(tokens=100, dollars="0.5"), needs=1)
GRAPH = kt.TaskGraph([kt.Task("t0", "First."), TASK])
RECORDED: list[Any] = [
    Attempt("t1", 1, "writer", OUTPUT, usage=USAGE, warnings=("w",), kinds=("ValueError",)),
    Attempt("t1", 2, "writer", None, "failed", kt.HaltReason.CANCELLED, "team", interrupted=QUESTION),
    CutShort("writer", USAGE, ARTIFACT),
    PlanFailed("no plan", True),
    Cancellation("not needed", False),
    EarlyEnd(kt.HaltReason.EMERGENCY_STOP, "killed", False, unended=FrozenDict({"t1": None}), output=ARTIFACT),
    Added(2, (TASK,)),
    Added(2, (TASK,), "t0"),
    Unpaid("too dear", False),
    Replan("t0", ("t1",), GRAPH, number=3),
    Decided("digest", kt.HumanDecision.revise("shorter")),
    Decided("digest", None),
    GRAPH,
    VERDICT,
    kt.ModelResponse("yes", tool_calls=[kt.ToolCall("1", "search", {"q": "tides"})], usage=USAGE),
    ToolResult("found", is_error=True, refused_by="guard"),
    kt.TaskOutcome("t1", kt.TaskStatus.FAILED, ARTIFACT, VERDICT, 2, "writer", USAGE, ("w",), "failed"),
    kt.TeamExecutionRequest("Go.", {"a": [1]}, GRAPH, kt.TeamConfig(budget=kt.Budget(tokens=5)), "r"),
    kt.HaltReason.TOKEN_BUDGET_EXCEEDED,
    FrozenDict({"m": USAGE}),
    QUESTION,
]


@pytest.mark.parametrize("value", RECORDED, ids=lambda value: type(value).__name__)
def test_everything_a_run_records_comes_back(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


async def test_results_come_back_without_the_exceptions_of_this_process() -> None:
    async def fail(assignment: kt.Assignment) -> str:
        raise ValueError("cannot")

    plan = kt.TaskGraph([kt.Task("one", "Do it.")])
    result = await kt.run(kt.Team("t", [kt.Member("a", fail)]), "Go.", plan=plan)
    back = decode(encode(result))
    assert back == result
    assert result.outcomes[0].exception is not None
    assert back.outcomes[0].exception is None


def test_denials_come_back() -> None:
    back = decode(encode(GuardrailDenied("pii", "post_model", "a name")))
    assert (back.policy, back.phase, back.reason) == ("pii", "post_model", "a name")


def test_a_graph_that_comes_back_can_be_asked_for_its_tasks() -> None:
    assert decode(encode(GRAPH))["t1"] == TASK


NAMES = """Added AgentOutput AgentStatus Artifact Assignment Attempt Billing Budget BudgetNode BudgetPolicy Cancellation
    Cause CriterionResult CutShort Decided EarlyEnd EvaluationContext EvaluationVerdict Finding HaltReason HumanDecision
    HumanRequest Member Message ModelRequest ModelResponse PlanFailed PlannerFailureMode RecordedStart Replan
    RiskProfile Role Task TaskGraph TaskOutcome TaskStatus Team TeamConfig TeamExecutionRequest TeamResult TeamStatus
    ToolCall ToolResult ToolSpec Unpaid Usage VerdictOutcome _Overshoot"""


def test_a_name_that_files_on_disk_may_hold_still_names_a_class() -> None:
    assert {*NAMES.split()} <= library().keys()


def test_what_a_run_records_is_written_by_the_name_of_its_class_alone() -> None:
    assert not [value for value in RECORDED if "kairo_team." in encode(value)]


class Handler:
    """No value class."""


def looped() -> list[Any]:
    within: list[Any] = []
    within.append(within)
    return within


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (lambda: None, "value: "),
        ({"a": [1, Handler()]}, r"value\.a\[1\]: "),
        (kt.Artifact("x", data={"h": object()}), r"value\.data\.h: "),
        (Counter("a"), "value: "),
        (iter([1]), "value: "),
        (kt.Artifact("x", data={"handler": lambda: None}), r"value\.data\.handler: a function cannot be recorded"),
        ({1: [Handler()]}, r"value\[1\]\[0\]: "),
        ({Slotted("x", (Handler(),)): 1}, r"value\[a key, Slotted"),  # type: ignore[arg-type]  # a wrong member
        (Point(1, Handler()), r"value\[1\]: "),
        (Report(title="x", parts=[Handler()]), r"value\.parts\[0\]: "),
        (cast("Any", Report).model_construct(), r"value\.title: this field is not set"),
        (Box(ValueError("x")), r"value\.content: a ValueError cannot be recorded"),
        (Failure(3), "value: .*Failure is more than a dataclass"),
        (Unset(), r"value\.name: this field is not set"),
        (looped(), "it contains itself"),
        (datetime(2026, 1, 1, tzinfo=Elsewhere()), r"value\.tzinfo: "),
        pytest.param(MagicMock(spec=str), "value: .*MagicMock", id="a double of a text"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_its_place(value: Any, where: str) -> None:
    with pytest.raises(NotRecordable, match=where):
        encode(value)


def test_a_class_that_cannot_be_found_again_is_refused() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(NotRecordable, match="define it in a module"):
        encode(Local(1))


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        '{"~":"os:system","v":["ls"]}',
        '{"~":"subprocess:Popen","v":{}}',
        '{"~":"kairo_team.gates:ConsoleGate","v":{}}',
        '{"~":"nowhere:Nothing","v":[]}',
        '{"~":"Nothing","v":[]}',
        '{"~":"tuple"}',
        '{"~":"Usage","v":{"prompt_tokens":1,"of_a_newer_version":2}}',
        '{"~":"Task","v":{}}',
        '{"~":"HaltReason","v":"NOTHING"}',
        '{"~":"decimal","v":"x"}',
        '{"~":5,"v":1}',
        '{"~":[],"v":1}',
        '{"~":null}',
        '{"~":"tuple","v":[1],"more":1}',
        '{"~":"tuple","w":[1]}',
        '{"~":"tuple","v":"abc"}',
        '{"~":"dict","v":["ab"]}',
        '{"~":"dict","v":[[[],1]]}',
        '{"~":"frozen","v":[]}',
        '{"~":"decimal","v":5.5}',
        '{"~":"int","v":5}',
        '{"~":"zone","v":"../../etc/passwd"}',
        '{"~":"datetime","v":["2026-01-01T00:00:00",0]}',
        '{"~":"datetime","v":["2026-01-01T00:00:00",0,"UTC"]}',
        '{"~":"Usage","v":[]}',
        '{"~":"Usage","v":{"prompt_tokens":"many"}}',
        '{"~":"Usage","v":{"+":{"more":1}}}',
        '{"~":"HaltReason","v":1}',
        '{"~":"tests.durable.test_codec:Report","v":{"fields":{},"set":[]}}',
        '{"~":"tests.durable.test_codec:Report","v":{"fields":{"title":"x","newer":1},"set":[]}}',
        '{"~":"tests.durable.test_codec:Report","v":{}}',
        '{"~":"tests.durable.test_codec:Slotted","v":{"name":"x","+":[]}}',
        '{"~":"tests.durable.test_codec:plain.__class__","v":{}}',
        "[" * 100_000,
    ],
)
def test_a_text_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(CorruptRecord):
        decode(text)


def test_a_text_that_cannot_be_fetched_makes_no_record_corrupt() -> None:
    """The connection of the journal broke: whoever reads decides, by that error, whether to read again."""
    written, _ = encode_apart({"said": "at length " * 1_000})

    def fetch(_digest: str) -> bytes | None:
        raise ConnectionResetError("the database has gone")

    with fetching(fetch), pytest.raises(ConnectionResetError, match="the database has gone"):
        decode(written)
    with fetching(lambda _digest: None), pytest.raises(CorruptRecord, match="is not kept here"):
        decode(written)


def test_the_values_of_the_standard_library_come_back() -> None:
    for value in (date(2026, 1, 2), time(3, 4), timedelta(1, 2, 3), UUID(int=5), datetime(2026, 1, 2, tzinfo=UTC)):
        assert decode(encode(value)) == value


def test_an_outline_imports_nothing_and_names_the_classes_of_others() -> None:
    value = (Point(1), frozenset([Colour.RED]), kt.Artifact("x"), Decimal(1))
    written = encode(value).replace("tests.durable.test_codec:", "not.there:")
    seen = outline(written)
    assert seen == ("<not.there:Point>", frozenset(["<not.there:Colour>"]), kt.Artifact("x"), Decimal(1))
    assert outline(encode(seen)) == decode(encode(seen)) == seen
    with pytest.raises(CorruptRecord):
        decode(written)
    with pytest.raises(CorruptRecord):
        outline('{"~":"Usage","v":[]}')
