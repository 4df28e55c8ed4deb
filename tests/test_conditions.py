"""Conditions, maps and loops as values: what they read, what they refuse, and their way through JSON."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

import kairo_team as kt
from kairo_team.conditions import TESTS, Condition, Unreadable, as_condition, items_of
from kairo_team.durable.codec import decode, encode

ANY: Any = kt
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


def met(data: dict[str, Any], artifact: kt.Artifact) -> bool:
    condition: Condition = as_condition(data)
    return condition.met_by(condition.read(artifact))


@pytest.mark.parametrize(
    ("test", "value", "yes", "no"),
    [
        ("equals", "bug", "bug", "feature"),
        ("equals", None, None, 0),
        ("equals", 1, 1, True),
        ("equals", [1, {"a": 2}], [1, {"a": 2}], [1]),
        ("not_equals", "bug", "feature", "bug"),
        ("one_of", ["bug", "crash"], "crash", "feature"),
        ("contains", "err", "an error", "fine"),
        ("contains", "a", ["a", "b"], ["b"]),
        ("at_least", 3, 3, 2.5),
        ("at_most", 0.5, 0.25, 1),
    ],
)
def test_a_condition_tests_a_field_of_the_data_or_of_a_text_that_is_json(
    test: str, value: Any, yes: Any, no: Any
) -> None:
    condition = {"from": "t", "field": "of.1.kind", test: value}
    for found, expected in ((yes, True), (no, False)):
        data = {"of": ["first", {"kind": found}]}
        assert met(condition, kt.Artifact("words", data)) is expected
        assert met(condition, kt.Artifact(json.dumps(data))) is expected
        assert met(condition, kt.Artifact(f"```json\n{json.dumps(data)}\n```")) is expected


def test_without_a_field_the_whole_artifact_is_tested() -> None:
    assert met({"from": "t", "equals": "bug"}, kt.Artifact(" bug\n"))
    assert met({"from": "t", "equals": [1]}, kt.Artifact("words", [1]))
    assert met({"from": "t", "contains": "bug"}, kt.Artifact("a bug it is"))


@dataclass
class Report:
    """Data of a user's own class."""

    kind: str


def test_data_of_a_class_is_read_by_its_fields() -> None:
    assert met({"from": "t", "field": "kind", "equals": "bug"}, kt.Artifact("words", Report("bug")))


@pytest.mark.parametrize(
    ("condition", "artifact", "problem"),
    [
        ({"field": "kind", "equals": 1}, kt.Artifact("w", {"sort": 1}), "has no field 'kind'; it has 'sort'"),
        ({"field": "a.b", "equals": 1}, kt.Artifact("w", {"a": 3}), "a has no field 'b': it is 3"),
        ({"field": "a.2", "equals": 1}, kt.Artifact("w", {"a": [3]}), "a has 1 item, none at 2"),
        ({"field": "kind", "equals": 1}, kt.Artifact("bug"), "its text is not JSON: 'bug'"),
        ({"at_least": 1}, kt.Artifact("w", "many"), "needs a number, and its value is 'many'"),
        ({"contains": "a"}, kt.Artifact("w", 3), "needs a text or a list, and its value is 3"),
        ({"field": "kind", "equals": 1}, kt.Artifact("w", object()), "cannot be read as JSON"),
    ],
)
def test_what_an_artifact_does_not_have_cannot_be_read(condition: Any, artifact: kt.Artifact, problem: str) -> None:
    with pytest.raises(Unreadable) as caught:
        met({"from": "t", **condition}, artifact)
    assert problem in str(caught.value)


@given(JSON, st.sampled_from(TESTS), JSON, st.sampled_from([None, "x", "x.0", "y.z"]))
def test_a_condition_decides_or_says_what_it_cannot_read_and_nothing_else(
    data: Any, test: str, value: Any, path: str | None
) -> None:
    made: dict[str, Any] = {"from": "t", test: value} | ({} if path is None else {"field": path})
    try:
        condition: Condition = as_condition(made)
    except ValueError:
        return
    assert as_condition(condition.as_data()) == condition
    if test == "holds":
        return
    try:
        value = condition.read(kt.Artifact(json.dumps(data)))
    except Unreadable:
        return
    assert condition.met_by(value) in {True, False}


def test_items_are_a_list_that_is_short_enough() -> None:
    assert list(items_of(kt.Artifact("w", [1, {"a": 2}]), 2, "read")) == [1, {"a": 2}]
    assert list(items_of(kt.Artifact("[]"), 1, "read")) == []
    with pytest.raises(Unreadable, match=r"the list has 3 items, and the map 'read' takes at most 2 \(max_items\)"):
        items_of(kt.Artifact("[1, 2, 3]"), 2, "read")
    with pytest.raises(Unreadable, match=r"the map 'read' works on a list, and this is \{'a': 1\}"):
        items_of(kt.Artifact('{"a": 1}'), 2, "read")


TESTED = {"from": "test", "field": "passed", "equals": True}
BODY = (kt.Task("write", "Write."), kt.Task("test", "Test.", depends_on=["write"]))
GROWING = kt.TaskGraph(
    [
        kt.Task("split", "List."),
        kt.Task.map("read", "Read `item`.", over="split", max_items=20, role="reader"),
        kt.Task("gather", "Join.", depends_on=["read"], needs=0.8),
        kt.Task("fix", "Fix.", when={"from": "gather", "field": "kind", "one_of": ["bug", "crash"]}),
        kt.Task("polish", "Polish.", loop=kt.Loop(BODY, until=TESTED, max_rounds=5), budget=kt.Budget(tokens=9)),
    ]
)


def test_maps_branches_and_loops_go_through_json_the_codec_and_pickle() -> None:
    adapter = TypeAdapter(kt.TaskGraph)
    written = json.loads(adapter.dump_json(GROWING))
    assert written["tasks"][3]["when"] == {"from": "gather", "field": "kind", "one_of": ["bug", "crash"]}
    assert written["tasks"][4]["loop"]["until"] == TESTED
    for again in (
        adapter.validate_python(written),
        decode(encode(GROWING)),
        pickle.loads(pickle.dumps(GROWING)),  # noqa: S301 - its own
    ):
        assert again == GROWING
        assert hash(again) == hash(GROWING)


def test_what_is_read_is_a_dependency() -> None:
    assert GROWING["read"].depends_on == ("split",)
    assert GROWING["fix"].depends_on == ("gather",)
    assert kt.Task("a", "b", depends_on=["x"], when={"from": "x", "equals": 1}).depends_on == ("x",)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda: kt.Task("a", "b", when={"from": "x"}), "a condition has 'from' and one of 'at_least', 'at_most'"),
        (lambda: kt.Task("a", "b", when={"from": "x", "equal": 1}), "a condition has no 'equal'; it has"),
        (lambda: kt.Task("a", "b", when={"from": "x", "equals": 1, "one_of": [1]}), "and one of"),
        (lambda: kt.Task("a", "b", when={"from": "x", "at_least": "3"}), "at_least takes a number, not '3'"),
        (lambda: kt.Task("a", "b", when={"from": "x", "field": "a..b", "equals": 1}), "field is a path such as"),
        (lambda: ANY.Task("a", "b", when=3), "Task.when must be a Condition, a dict or None, not 3"),
        (lambda: kt.Task("a", "b", over="x"), "task 'a': a map has both over= and max_items="),
        (lambda: kt.Task.map("a", "b", over="x", max_items=0), "max_items must be at least 1, not 0"),
        (lambda: kt.Task("a", "b", depends_on=["x"], needs=1.5), "must be above 0 and at most 1, not 1.5"),
        (lambda: kt.Task("a", "b", depends_on=["x"], needs=float("nan")), "must be above 0 and at most 1, not nan"),
        (lambda: kt.Task("a", "b", loop=kt.Loop([]), role="r"), "a plan needs at least one task"),
        (
            lambda: kt.Task("a", "b", loop=kt.Loop(BODY), role="r"),
            "a loop has no role; give it to the tasks of its body",
        ),
        (lambda: kt.Loop(BODY, max_rounds=0), "max_rounds must be at least 1, not 0"),
        (
            lambda: kt.Loop(BODY, until={"from": "tset", "equals": 1}),
            "tests a task of its body, 'test', 'write', not",
        ),
        (lambda: kt.Loop([kt.Task("a", "b", depends_on=["out"])]), "depends on unknown tasks 'out'"),
        (
            lambda: kt.TaskGraph([*GROWING.tasks, kt.Task("x", "y", depends_on=["fix", "gather"], needs=3)]),
            "task 'x': needs must be 'all' or from 0 to its 2 dependencies, not 3",
        ),
        (
            lambda: kt.TaskGraph([*GROWING.tasks, kt.Task("x", "y", depends_on=["read"], needs=21)]),
            "task 'x': needs must be 'all' or from 0 to its 1 dependencies, not 21",
        ),
        (
            lambda: kt.TaskGraph([*GROWING.tasks, kt.Task("read.more", "y")]),
            "the id 'read.more' is kept for what 'read' grows into",
        ),
        (
            lambda: kt.TaskGraph([*GROWING.tasks, kt.Task.map("x", "y", over="read", max_items=3)]),
            "task 'x' reads the artifact of 'read', which is a map or a loop and has none",
        ),
        (lambda: kt.TaskGraph([kt.Task("x", "y", part_of="z")]), "part_of names no map or loop of the plan: 'z'"),
    ],
)
def test_a_mistake_in_a_map_a_branch_or_a_loop_is_met_with_a_sentence(
    mistake: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is compared
        mistake()
    assert sentence in str(caught.value)


def test_needs_may_be_a_share_and_counts_the_items_of_a_map() -> None:
    kt.TaskGraph([*GROWING.tasks, kt.Task("x", "y", depends_on=["read"], needs=20)])
    task = kt.Task("x", "y", depends_on=["a", "b", "c"], needs=0.5)
    assert [task.needed_of(count) for count in (0, 1, 2, 3, 10)] == [0, 1, 1, 2, 5]
    assert task.needed == 2
