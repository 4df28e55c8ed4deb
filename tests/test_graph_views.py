"""The charts of a plan: what is in them, that hostile words stay words, and that the picture can be read."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

import kairo_team as kt
from kairo_team.views import graph_svg
from kairo_team.views.graph_chart import Chart, Node, make_chart
from kairo_team.views.graph_layout import Box, Layout, lay_out
from kairo_team.views.graph_mermaid import MOST_EDGES, draw_mermaid, mermaid_limits
from kairo_team.views.graph_svg import draw_svg
from kairo_team.views.text import one_line

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    '"] --> x["', "%%{init: {}}%%", "<script>alert(1)</script>", '<a b="', "&amp;", "#quot;", "`**x**`", "1. one",
    "- two", "end", "style t1 fill:#f00;", "]]>", "<!--", "a\nb", "\x1b[31m", "\x00", "\ufffe", "\ud800", "漢字", "---",
    "\u202eabc", "_a_", "ﬂ°°60¶ß", "http://a.b", "W" * 200, "漢" * 60, "'", "click t1 call x()",
]  # fmt: skip
words = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30)).filter(lambda text: text.strip() != "")

ONE = kt.TaskGraph([kt.Task("a", "x")])


async def work(assignment: kt.Assignment) -> str:
    raise AssertionError("an agent was called")


@st.composite
def plans(draw: st.DrawFn) -> tuple[kt.TaskGraph, kt.Team]:
    """Any plan of up to 40 tasks, with a team that can do it; every name a team may choose freely is hostile."""
    ids = draw(st.lists(st.from_regex(r"[A-Za-z0-9_.-]{1,40}", fullmatch=True), min_size=1, max_size=40, unique=True))
    skill, evaluator, kind = draw(words), draw(words), draw(words)
    tasks: list[kt.Task] = []
    for number, task_id in enumerate(ids):
        before = draw(st.lists(st.sampled_from(ids[:number]), max_size=4, unique=True)) if number else []
        tasks.append(
            kt.Task(
                task_id,
                draw(words),
                role=draw(st.sampled_from([None, "a", "b"])),
                requires=draw(st.sampled_from([(), (skill,)])),
                depends_on=before,
                needs=draw(st.sampled_from(["all", len(before) // 2])),
                evaluator=draw(st.sampled_from([None, evaluator])),
                output_type=draw(st.sampled_from([None, kind])),
            )
        )
    roles = [kt.Role("a", capabilities={skill}), kt.Role("b", capabilities={skill})]
    members = [kt.Member(roles[0], work), kt.Member(roles[1], work), kt.Member(roles[1], work)]
    return kt.TaskGraph(tasks), kt.Team(draw(words), members)


def edges_of(plan: kt.TaskGraph) -> list[tuple[str, str]]:
    return sorted((before, task.id) for task in plan.tasks for before in task.depends_on)


# ---------------------------------------------------------------- Mermaid

LABEL = re.compile(r'    (t\d+)\["((?:[^"#&<>`{}\[\]|;%:\\*~]|#\d+;|<br/>)+)"\]')
EDGE = re.compile(r"    (t\d+) --> (t\d+)")


def read_mermaid(text: str) -> tuple[str, dict[str, list[str]], list[tuple[str, str]]]:
    """Return the title, the lines of each node by its name, and the edges; the grammar is what is written, no more."""
    assert text.endswith("\n")
    rule, title, rule_again, head, *lines = text.split("\n")[:-1]
    assert (rule, rule_again, head) == ("---", "---", "flowchart LR")
    nodes: dict[str, list[str]] = {}
    edges: list[tuple[str, str]] = []
    for line in lines:
        node, edge = LABEL.fullmatch(line), EDGE.fullmatch(line)
        assert (node is None) != (edge is None), line
        if node is not None:
            assert node[1] not in nodes
            nodes[node[1]] = [decode(part) for part in node[2].split("<br/>")]
        if edge is not None:
            assert {edge[1], edge[2]} <= nodes.keys()
            edges.append((edge[1], edge[2]))
    name = title.removeprefix("title: ")
    assert "<" not in name
    return json.loads(name), nodes, edges


def decode(text: str) -> str:
    return re.sub(r"#(\d+);", lambda code: chr(int(code[1])), text)


@given(plans())
def test_a_mermaid_chart_has_every_task_and_every_edge_once(case: tuple[kt.TaskGraph, kt.Team]) -> None:
    plan, team = case
    chart = make_chart(plan, team)
    title, nodes, edges = read_mermaid(draw_mermaid(chart))
    assert title == one_line(team.name)
    assert [lines[0] for lines in nodes.values()] == [task.id for task in plan.tasks]
    assert list(nodes.values()) == [[text for text in (n.id, n.who, n.remark) if text] for n in chart.nodes]
    assert sorted((nodes[a][0], nodes[b][0]) for a, b in edges) == edges_of(plan)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("writer: ann or bob", "writer#58; ann or bob"),
        ("Collect the figures.", "Collect the figures."),
        ("needs=2 of 3", "needs=2 of 3"),
        ("fetch-the_rows", "fetch-the_rows"),
        ("1. one", "1#46; one"),
        ("- one", "#45; one"),
        ("_one_", "#95;one#95;"),
        ("www.example", "www#46;example"),
        ("a-->b", "a#45;#45;#62;b"),
    ],
)
def test_a_label_stays_readable_where_it_can(text: str, written: str) -> None:
    assert f'["a<br/>{written}"]' in draw_mermaid(Chart("team", (Node("a", text, "", "x"),), (), ONE))


def test_a_chart_over_mermaids_limits_says_so() -> None:
    node = Node("a", "writer", "", "x")
    small = Chart("team", (node,), (("a", "a"),) * MOST_EDGES, ONE)
    large = Chart("team", (node,) * 3000, (("a", "a"),) * (MOST_EDGES + 1), ONE)
    assert list(mermaid_limits(small, draw_mermaid(small))) == []
    edges, size = mermaid_limits(large, draw_mermaid(large))
    assert edges == "the chart has 501 edges, and Mermaid draws 500 unless its maxEdges is raised"
    assert "and Mermaid reads 50,000 unless its maxTextSize is raised" in size


# ---------------------------------------------------------------- who does it


def words_of(task: kt.Task) -> tuple[str, str]:
    members = [
        kt.Member(kt.Role("writer", capabilities={"writing"}), work, name="ann"),
        kt.Member(kt.Role("writer", capabilities={"writing", "law"}), work, name="bob"),
        kt.Member("clerk", work),
    ]
    node = make_chart(kt.TaskGraph([kt.Task("x", "x"), kt.Task("y", "y"), task]), kt.Team("t", members)).nodes[2]
    return node.who, node.remark


@pytest.mark.parametrize(
    ("asked", "who"),
    [
        ({}, "ann or bob or clerk"),
        ({"member": "ann", "role": "writer"}, "ann"),
        ({"role": "clerk"}, "clerk"),
        ({"role": "writer"}, "writer: ann or bob"),
        ({"role": "writer", "requires": {"law"}}, "writer: bob"),
        ({"requires": {"writing"}}, "writing: ann or bob"),
        ({"requires": {"writing", "law"}}, "law + writing: bob"),
    ],
)
def test_a_node_says_who_does_it(asked: dict[str, Any], who: str) -> None:
    assert words_of(kt.Task("t", "x", **asked)) == (who, "")


def test_a_node_says_what_else_is_asked() -> None:
    task = kt.Task("t", "x", member="ann", depends_on=["x", "y"], needs=1, evaluator="legal", output_type="report")
    assert words_of(task) == ("ann", "needs=1 of 2, review: legal, gives: report")


def test_many_able_members_are_counted() -> None:
    team = kt.Team("t", [kt.Member("writer", work) for _ in range(1000)])
    node = make_chart(kt.TaskGraph([kt.Task("t", "x")]), team).nodes[0]
    assert node.who == "writer or writer-2 or writer-3 or writer-4 or writer-5 or writer-6 and 994 more"


# ---------------------------------------------------------------- the layout


def laid_out(plan: kt.TaskGraph) -> Layout:
    return lay_out(plan.dag, 100, {task.id: 40 + 20 * (len(task.id) % 2) for task in plan.tasks})


def overlap(one: Box, other: Box) -> bool:
    across = one.x < other.x + other.width and other.x < one.x + one.width
    return across and one.y < other.y + other.height and other.y < one.y + one.height


@given(plans())
def test_boxes_do_not_overlap_and_lie_after_what_they_depend_on(case: tuple[kt.TaskGraph, kt.Team]) -> None:
    plan, _ = case
    layout = laid_out(plan)
    assert layout.boxes.keys() == {task.id for task in plan.tasks}
    assert not [pair for pair in combinations(layout.boxes.values(), 2) if overlap(*pair)]
    for box in layout.boxes.values():
        assert -0.01 <= box.x <= layout.width - box.width + 0.01
        assert -0.01 <= box.y <= layout.height - box.height + 0.01
    for before, after in edges_of(plan):
        assert layout.boxes[before].x + 100 < layout.boxes[after].x


@given(plans())
def test_arrows_lead_from_box_to_box_and_through_none(case: tuple[kt.TaskGraph, kt.Team]) -> None:
    plan, _ = case
    layout = laid_out(plan)
    assert sorted(layout.routes) == edges_of(plan)
    for (before, after), corners in layout.routes.items():
        start, end = layout.boxes[before], layout.boxes[after]
        assert corners[0] == pytest.approx((start.x + start.width, start.y + start.height / 2))
        assert corners[-1] == pytest.approx((end.x, end.y + end.height / 2))
        assert [x for x, _ in corners] == sorted(x for x, _ in corners)
        for (x, y), (next_x, next_y) in zip(corners[1:-1:2], corners[2:-1:2], strict=True):
            assert y == next_y
            lane = Box(x, y - 4, next_x - x, 8)
            assert not [box for box in layout.boxes.values() if overlap(lane, box)]


def test_columns_are_sorted_so_that_fewer_arrows_cross() -> None:
    ids = "abcdefgh"
    crossed = [kt.Task(f"{name}2", "x", depends_on=[f"{name}1"]) for name in reversed(ids)]
    plan = kt.TaskGraph([*(kt.Task(f"{name}1", "x") for name in ids), *crossed])
    layout = laid_out(plan)
    assert [layout.boxes[f"{name}1"].y == layout.boxes[f"{name}2"].y for name in ids] == [True] * 8


def fan(width: int) -> kt.TaskGraph:
    """One task, many after it, and one after those."""
    ids = [f"part-{number:03}" for number in range(width)]
    parts = [kt.Task(part, "x", depends_on=["split"]) for part in ids]
    return kt.TaskGraph([kt.Task("split", "x"), *parts, kt.Task("join", "x", depends_on=ids, needs=width // 2)])


def test_a_fan_of_hundreds_becomes_several_columns() -> None:
    layout = laid_out(fan(298))
    columns = {box.x for box in layout.boxes.values()}
    assert 8 <= len(columns) <= 16
    assert layout.height < 60 * 298 / 4


def test_a_fan_that_fits_stays_one_column() -> None:
    assert len({box.x for box in laid_out(fan(12)).boxes.values()}) == 3


def test_chains_side_by_side_stay_whole() -> None:
    """Cutting a column whose every box has neighbours of its own would make lanes of all their arrows."""
    tasks = [
        kt.Task(f"{step}-{number}", "x", depends_on=[f"a-{number}"] if step == "b" else [])
        for step in "ab"
        for number in range(100)
    ]
    layout = laid_out(kt.TaskGraph(tasks))
    assert len({box.x for box in layout.boxes.values()}) == 2
    assert all(start[1] == end[1] for start, end in layout.routes.values())


# ---------------------------------------------------------------- SVG


def shown(text: str) -> str:
    """What XML can say of a text."""
    return text.replace("\ufffe", "?").replace("\uffff", "?")


@given(plans())
@example((fan(60), kt.Team("]]><&\"'\ufffe", [kt.Member("a", work)])))
def test_a_picture_has_every_task_and_every_edge_once_and_is_xml(case: tuple[kt.TaskGraph, kt.Team]) -> None:
    plan, team = case
    chart = make_chart(plan, team)
    root = ET.fromstring(draw_svg(chart))  # noqa: S314 - the same
    tasks = [group for group in root.iter(f"{SVG}g") if group.get("class") == "task"]
    assert [group.get("data-task") for group in tasks] == [task.id for task in plan.tasks]
    edges = [path for path in root.iter(f"{SVG}path") if path.get("class") == "edge"]
    assert sorted((path.get("data-from"), path.get("data-to")) for path in edges) == edges_of(plan)
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == f"{shown(chart.title)}: {chart.size}"
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "style", "defs", "marker", "path", "text", "g", "rect")
    }


@given(plans())
def test_no_text_leaves_its_box(case: tuple[kt.TaskGraph, kt.Team]) -> None:
    plan, team = case
    root = ET.fromstring(draw_svg(make_chart(plan, team)))  # noqa: S314 - the same
    for group in root.iter(f"{SVG}g"):
        rectangle = group.find(f"{SVG}rect")
        if group.get("class") != "task" or rectangle is None:
            continue
        right = float(rectangle.get("x", "")) + float(rectangle.get("width", ""))
        bottom = float(rectangle.get("y", "")) + float(rectangle.get("height", ""))
        for text in group.iter(f"{SVG}text"):
            assert float(text.get("x", "")) + 7.25 * cell_len(text.text or "") <= right
            assert float(text.get("y", "")) < bottom


def test_a_long_id_keeps_its_end_and_a_tooltip_has_all_of_it() -> None:
    plan = kt.TaskGraph([kt.Task(f"summarize-the-document-with-the-number-{n}", "Read & sum up.") for n in (1, 2)])
    picture = draw_svg(make_chart(plan, kt.Team("t", [kt.Member("a", work)])))
    assert ">summarize-the-…th-the-number-1<" in picture
    assert "<title>summarize-the-document-with-the-number-2\na\nRead &amp; sum up.</title>" in picture


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2: 3 is enough for lines and large words, 7 for the smallest."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_colours_can_be_read_on_light_and_on_dark() -> None:
    assert min(contrast(graph_svg.GREY, page) for page in ("#ffffff", "#000000", "#0d1117")) > 3.5
    assert min(contrast(graph_svg._INK, ground) for ground in graph_svg._GROUNDS) > 7


def test_the_same_plan_gives_the_same_picture() -> None:
    plan, team = fan(30), kt.Team("t", [kt.Member("a", work)])
    assert draw_svg(make_chart(plan, team)) == draw_svg(make_chart(plan, team))


async def test_a_plan_that_grows_is_drawn_before_and_after() -> None:
    async def work(assignment: kt.Assignment) -> kt.Artifact:
        return kt.Artifact("made", ["a", "b"] if assignment.task.id == "split" else {"passed": True})

    body = [kt.Task("write", "Write."), kt.Task("test", "Test.", depends_on=["write"])]
    loop = kt.Loop(body, until={"from": "test", "field": "passed", "equals": True}, max_rounds=3)
    plan = kt.TaskGraph(
        [
            kt.Task("split", "List."),
            kt.Task.map("read", "Read.", over="split", max_items=20),
            kt.Task("join", "Join.", depends_on=["read"], needs=0.8, when={"from": "split", "contains": "a"}),
            kt.Task("polish", "Polish.", depends_on=["join"], loop=loop),
        ]
    )
    team = kt.Team("t", [kt.Member("a", work)])
    before = make_chart(plan, team)
    assert [node.id for node in before.nodes] == ["split", "read", "join", "polish", "polish.write", "polish.test"]
    assert [node.remark for node in before.nodes[:4]] == [
        "",
        "for each of split, at most 20",
        'when split contains "a", needs=0.8 of all items',
        "loop: until test.passed equals true, at most 3 rounds",
    ]
    assert ("polish", "polish.write") in before.edges
    assert ("polish", "polish.test") not in before.edges
    result = await kt.run(team, "g", plan=plan)
    assert result.plan is not None
    after = make_chart(result.plan, team)
    grown = {"read.0001", "read.0002", "polish.01.write", "polish.01.test"}
    assert {node.id for node in after.nodes} == {node.id for node in before.nodes[:4]} | grown
    assert {("read", "read.0001"), ("read", "read.0002"), ("polish.01.write", "polish.01.test")} < set(after.edges)
    for chart in (before, after):
        boxes = ET.fromstring(draw_svg(chart)).findall(".//*[@data-task]")  # noqa: S314 - the same
        assert len(boxes) == len(chart.nodes)
        assert draw_mermaid(chart).count("-->") == len(chart.edges)
