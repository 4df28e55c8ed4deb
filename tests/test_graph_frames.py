"""Pictures of plans that grew: frames of maps and loops, strips of many tasks, and an overview of hundreds."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.testing import EventRecorder
from kairo_team.views.graph_chart import make_chart
from kairo_team.views.graph_frames import MOST_BOXED, Picture, Shape, arrange, count_drawn, grouped
from kairo_team.views.graph_layout import Box
from kairo_team.views.graph_svg import draw_svg
from kairo_team.views.progress import RowState
from kairo_team.views.report_graph import draw_run
from kairo_team.views.run_story import RunStory, tell
from tests.test_report import tale

WIDTH, HEIGHT = 100.0, 40.0
ROUNDS: Final = 3


def placed(shapes: list[Shape]) -> Picture:
    return arrange(shapes, WIDTH, {one.id: HEIGHT for one in shapes})


def of_map(items: int) -> list[Shape]:
    parts = [Shape(f"read.{number:04}", (), "read") for number in range(1, items + 1)]
    return [Shape("list"), Shape("read", ["list"], None, "map"), *parts, Shape("join", ["read"])]


def of_loop(rounds: int) -> list[Shape]:
    made = [Shape("polish", (), None, "loop")]
    for number in range(1, rounds + 1):
        write = f"polish.{number:02}.write"
        made += [Shape(write, (), "polish"), Shape(f"polish.{number:02}.test", [write], "polish")]
    return made


def holds(outer: Box, inner: Box) -> bool:
    across = outer.x <= inner.x and inner.x + inner.width <= outer.x + outer.width
    return across and outer.y <= inner.y and inner.y + inner.height <= outer.y + outer.height


def apart(one: Box, other: Box) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    return beside or one.y + one.height <= other.y or other.y + other.height <= one.y


@st.composite
def plans(draw: st.DrawFn) -> list[Shape]:
    """Any plan in which tasks grow to any depth, and depend on any tasks before them."""
    shapes: list[Shape] = []
    for at in range(draw(st.integers(1, 40))):
        around = draw(st.sampled_from([None, None, *[one for one in shapes if one.grows]]))
        name = f"t{at}" if around is None else f"{around.id}.{draw(st.integers(1, 6)):02}.t{at}"
        before = draw(st.lists(st.sampled_from([one.id for one in shapes]), max_size=3, unique=True)) if shapes else []
        grows = draw(st.sampled_from([None, "map", "loop"]))
        shapes.append(Shape(name, before, around.id if around else None, grows))
    return shapes


@given(plans())
def test_everything_lies_in_its_frame_and_nothing_on_top_of_another(shapes: list[Shape]) -> None:
    picture = placed(shapes)
    around = {one.id: one.part_of for one in shapes}
    drawn = picture.boxes | picture.frames | picture.squares
    whole = Box(-0.01, -0.01, picture.width + 0.02, picture.height + 0.02)
    hidden = set[str | None]()  # inside squares, at any depth; a frame comes before its parts
    for shape in shapes:
        if shape.part_of in picture.squares or shape.part_of in hidden:
            hidden.add(shape.id)
    assert drawn.keys() == around.keys() - hidden
    for name, box in drawn.items():
        frame = picture.frames.get(around[name] or "", whole)
        assert holds(frame._replace(width=frame.width + 0.01, height=frame.height + 0.01), box), name
    for (one, box), (other, beside) in combinations(drawn.items(), 2):
        if around[one] == around[other]:
            assert apart(box, beside), (one, other)


@given(plans())
def test_a_picture_has_as_many_boxes_as_were_counted(shapes: list[Shape]) -> None:
    picture = placed(shapes)
    assert count_drawn(shapes) == len(picture.boxes) + len(picture.frames)


@pytest.mark.parametrize("items", [1, MOST_BOXED, MOST_BOXED + 1, 300])
def test_a_map_is_a_frame_and_many_items_are_a_strip(items: int) -> None:
    picture = placed(of_map(items))
    assert picture.frames.keys() == {"read"}
    boxed = items <= MOST_BOXED
    assert len(picture.boxes) == 2 + items * boxed
    assert len(picture.squares) == items * (not boxed)
    assert [edge for edge, _ in picture.arrows] == [("list", "read"), ("read", "join")]
    assert picture.height < 700


def test_rounds_stand_from_left_to_right_and_an_arrow_leads_back() -> None:
    picture = placed(of_loop(ROUNDS))
    lefts = [picture.boxes[f"polish.{number:02}.write"].x for number in range(1, ROUNDS + 1)]
    assert lefts == sorted(set(lefts))
    assert len({box.y for box in picture.boxes.values()}) == 1
    assert [words for words, _ in picture.rounds] == ["round 1", "round 2", "round 3"]
    assert len(picture.nexts) == ROUNDS - 1
    start, *_, end = picture.backs["polish"]
    assert start[0] > lefts[-1]
    assert end[0] < lefts[1]


def test_many_rounds_are_a_strip_with_a_column_for_each() -> None:
    picture = placed(of_loop(30))
    assert not picture.boxes
    assert len({box.x for box in picture.squares.values()}) == 30
    assert len({box.y for box in picture.squares.values()}) == 2
    assert picture.backs.keys() == {"polish"}


def test_an_arrow_into_a_frame_leads_to_the_frame() -> None:
    shapes = [Shape("a"), Shape("m", (), None, "map"), Shape("m.1", ["a"], "m"), Shape("b", ["m.1"])]
    assert [edge for edge, _ in placed(shapes).arrows] == [("a", "m"), ("m", "b")]


def test_boxes_without_neighbours_stay_together() -> None:
    picture = arrange([Shape(f"t{at}") for at in range(22)], 220, {f"t{at}": 56 for at in range(22)})
    assert picture.height <= 596
    assert picture.width <= 220 * 3 + 40


def test_parts_of_a_plan_that_nothing_joins_do_not_drift_apart() -> None:
    shapes = [one for at in range(5) for one in (Shape(f"a{at}"), Shape(f"b{at}", [f"a{at}"]))]
    picture = placed([*shapes, Shape("alone")])
    assert picture.height <= 6 * (HEIGHT + 18)


def test_the_groups_of_an_overview_have_every_task() -> None:
    shapes = [Shape("first"), *(Shape(f"t{at}", ["first"]) for at in range(200)), Shape("last", ["t7"])]
    names = {one.id: "ab"[at % 2] for at, one in enumerate(shapes)}
    found = grouped(shapes, names.__getitem__)
    picture = arrange(found, WIDTH, {one.id: HEIGHT for one in found}, most_boxed=1)
    assert picture.boxes.keys() == {"first", "last"}
    assert picture.frames.keys() == {"2. a", "2. b"}
    assert len(picture.squares) == 200
    assert {edge for edge, _ in picture.arrows} == {("first", "2. a"), ("first", "2. b"), ("2. a", "last")} or {
        edge for edge, _ in picture.arrows
    } == {("first", "2. a"), ("first", "2. b"), ("2. b", "last")}


def test_the_groups_are_numbered_by_depth_and_a_circle_has_one_depth() -> None:
    shapes = [Shape("d", ["a", "c"]), Shape("a"), Shape("b", ["a"]), Shape("c", ["b"]), Shape("e", ["a"]), Shape("f")]
    groups: dict[str, list[str]] = {}
    for one in grouped(shapes, lambda _: "m"):
        groups.setdefault(one.part_of or "", []).append(one.id)
    assert groups == {"": ["1. m", "2. m", "c", "d"], "1. m": ["a", "f"], "2. m": ["b", "e"]}
    circle = [Shape("a", ["b"]), Shape("b", ["a"]), Shape("c", ["b"])]
    assert [one.part_of for one in grouped(circle, lambda _: "m")] == [None, *["1. m"] * 3]


# ---------------------------------------------------------------- runs


async def grown(items: int) -> RunStory:
    """Return a run whose third item is sent back once, and whose loop has three rounds."""

    async def work(assignment: kt.Assignment) -> kt.Artifact:
        name = assignment.task.id
        if name == "list":
            return kt.Artifact("names", list(range(items)))
        if name.endswith("0003") and not assignment.findings:
            return kt.Artifact("bad")
        return kt.Artifact(name, {"passed": assignment.inputs.get("round") == ROUNDS})

    body = [kt.Task("write", "Write."), kt.Task("test", "Test.", depends_on=["write"])]
    loop = kt.Loop(body, until={"from": "test", "field": "passed", "equals": True}, max_rounds=5)
    plan = kt.TaskGraph(
        [
            kt.Task("list", "List."),
            kt.Task.map("read", "Read.", over="list", max_items=50, evaluator="good"),
            kt.Task("polish", "Polish.", depends_on=["read"], loop=loop),
            kt.Task("tell", "Tell.", depends_on=["polish"]),
        ]
    )
    good = kt.Rubric([kt.Criterion("good", "it names itself", check=kt.checks.contains("read"))])
    coordinator = kt.ExpertTeamCoordinator()
    recorder = EventRecorder()
    team = kt.Team("t", [kt.Member("a", work)], coordinator=coordinator, evaluators={"good": good})
    result = await kt.run(team, "g", plan=plan, runtime=kt.Runtime(subscribers=[recorder]))
    assert result.status is kt.TeamStatus.COMPLETED
    return tell(recorder.events)


async def test_a_run_that_grew_is_drawn_with_its_frames_and_the_condition_of_its_loop() -> None:
    story = await grown(4)
    picture, legend = draw_run(story, lambda name: f"#{name}")
    assert picture.count('class="around"') == 2
    assert "again until test.passed equals true" in picture
    assert "4 of 4 done" in picture
    assert picture.count("<a href") == len(story.tasks), "each leads to its task"
    assert "attempt that was sent back" in legend


async def test_a_sent_back_attempt_looks_sent_back_in_its_box() -> None:
    picture, _ = draw_run(await grown(4))
    assert re.findall('class="try ([^"]+)"><rect[^>]*/><text[^>]*>([^<]*)', picture) == [("a-back", "1"), ("a-ok", "2")]
    of_strip, _ = draw_run(await grown(40))
    assert of_strip.count("square revised") == 1


async def test_a_story_has_the_tasks_of_maps_and_loops_after_them() -> None:
    ids = list((await grown(2)).tasks)
    rounds = [f"polish.{number:02}.{name}" for number in range(1, ROUNDS + 1) for name in ("write", "test")]
    assert ids == ["list", "read", "read.0001", "read.0002", "polish", *rounds, "tell"]


def test_three_hundred_tasks_have_an_overview_with_a_square_for_each() -> None:
    story = tell(tale(300))
    tasks = list(story.tasks.values())
    tasks[7].state = RowState.FAILED
    for task in tasks:
        task.planned = replace(task.planned, depends_on=())
    picture, legend = draw_run(story)
    assert len(re.findall(' square"', picture)) == 300
    assert picture.count("s-failed square") == 1
    assert "299 of 300 done, 1 failed" in picture
    assert "failed" in legend
    assert "Small square: one task." in legend


def test_thousands_of_tasks_are_counted_by_member_and_depth() -> None:
    picture, _ = draw_run(tell(tale(5_000)))
    assert "square" not in picture
    assert "500 of 500 done" in picture
    assert len(picture) < 10_000


def test_tasks_that_no_overview_can_show_are_counted() -> None:
    story = tell(tale(400))
    tasks = list(story.tasks.values())
    for one, other in pairwise(tasks):
        other.planned = replace(other.planned, depends_on=(one.id,))
    assert draw_run(story) == ("", "The graph has 400 tasks, too many for a picture.")


async def test_the_picture_of_a_plan_has_the_same_frames() -> None:
    loop = kt.Loop([kt.Task("write", "x")], max_rounds=2)
    plan = kt.TaskGraph([kt.Task("a", "x"), kt.Task("again", "x", depends_on=["a"], loop=loop)])
    picture = draw_svg(make_chart(plan))
    assert '<g class="frame" data-task="again">' in picture
    assert 'class="edge back"' in picture
    assert 'data-from="a" data-to="again"' in picture
    assert 'data-from="again"' not in picture, "what is inside needs no arrow"
