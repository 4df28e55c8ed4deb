"""Values go into the journal and come out as they were; nothing else comes out of it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr

import kairo_team as kt
from kairo_team._util.frozen import FrozenDict
from kairo_team.durable.codec import CorruptRecord, NotRecordable, decode, encode
from kairo_team.engine.planning import Replan
from kairo_team.engine.questions import Decided
from kairo_team.engine.records.replay import Added, Cancellation, CutShort, EarlyEnd, PlanFailed, Unpaid
from kairo_team.errors import GuardrailDenied
from kairo_team.results import Attempt
from kairo_team.tools.result import ToolResult


class Colour(Enum):
    RED = "red"


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
    | st.just(Colour.RED)
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
    ),
    max_leaves=12,
)


@given(value=values)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


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
    criteria=[kt.CriterionResult("c1", "met", passed=True)],
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


class Handler:
    """No value class."""


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (lambda: None, "value: "),
        ({"a": [1, Handler()]}, r"value\.a\[1\]: "),
        (kt.Artifact("x", data={"h": object()}), r"value\.data\.h: "),
        (Counter("a"), "value: "),
        (iter([1]), "value: "),
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
    ],
)
def test_a_text_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(CorruptRecord):
        decode(text)


def test_the_values_of_the_standard_library_come_back() -> None:
    for value in (date(2026, 1, 2), time(3, 4), timedelta(1, 2, 3), UUID(int=5), datetime(2026, 1, 2, tzinfo=UTC)):
        assert decode(encode(value)) == value
