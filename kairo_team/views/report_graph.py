"""The executed graph of a run as a picture: each task by its state and what it cost."""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from kairo_team._util.terminal import clean
from kairo_team.views.graph_layout import Box, Point, lay_out
from kairo_team.views.report_text import cut, dollars
from kairo_team.views.run_story import RunStory, TaskStory
from kairo_team.views.text import count, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    import networkx as nx


MOST_BOXES: Final = 150
"""Tasks of a graph above which similar tasks are drawn as one box."""
_WIDTH, _HEIGHT, _CELLS = 220.0, 56.0, 27
"""Size of a box, as in the style sheet, and the columns of its text."""


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    state: str
    words: str
    tokens: int


def draw_run(story: RunStory, address: Callable[[str], str] | None = None) -> tuple[Markup, str]:
    """Return the picture, and a sentence on it; no picture where it would have too many boxes.

    A box of one task links to the `address` of the task.
    """
    if not story.tasks:
        return Markup(""), "There is no plan."
    dag = _graph(story)
    if len(dag) <= MOST_BOXES:
        nodes = {task.id: _node(task.id, [task]) for task in story.tasks.values()}
        return _draw(dag, nodes, address), "Stripe: state. Bar: tokens, relative to the most expensive task."
    grouped, members = _grouped(story, dag)
    if len(grouped) > MOST_BOXES:
        return Markup(""), f"The graph has {count(len(dag), 'task')}, too many for a picture."
    nodes = {key: _node(key, tasks) for key, tasks in members.items()}
    return _draw(grouped, nodes), f"{count(len(dag), 'task')}: tasks of one member at the same depth share one box."


def _graph(story: RunStory) -> nx.DiGraph[str]:
    import networkx as nx

    dag: nx.DiGraph[str] = nx.DiGraph()
    dag.add_nodes_from(story.tasks)
    for task in story.tasks.values():
        for before in task.planned.depends_on:
            if before in story.tasks:
                dag.add_edge(before, task.id)
    if not nx.is_directed_acyclic_graph(dag):  # tasks of several plans may form a circle
        dag.remove_edges_from(list(dag.edges))
    return dag


def _grouped(story: RunStory, dag: nx.DiGraph[str]) -> tuple[nx.DiGraph[str], dict[str, list[TaskStory]]]:
    import networkx as nx

    key: dict[str, str] = {}
    members: dict[str, list[TaskStory]] = {}
    for depth, layer in enumerate(nx.topological_generations(dag), 1):
        for task_id in layer:
            task = story.tasks[task_id]
            name = f"{depth}. {task.member or next(iter(task.planned.members), 'no member')}"
            key[task_id] = name
            members.setdefault(name, []).append(task)
    grouped: nx.DiGraph[str] = nx.DiGraph()
    grouped.add_nodes_from(members)
    grouped.add_edges_from({(key[a], key[b]) for a, b in dag.edges})
    return grouped, members


def _node(name: str, tasks: list[TaskStory]) -> _Node:
    usages = [task.usage + task.review_usage for task in tasks]
    tokens, paid = sum(one.tokens for one in usages), sum(one.dollars for one in usages)
    cost = count(tokens, "token") + (f" {dollars(paid)}" if paid else "")
    if len(tasks) == 1:
        return _Node(name, tasks[0].state.value, f"{tasks[0].state.value} {cost}", tokens)
    states = Counter(task.state.value for task in tasks)
    worst = next((one for one in ("failed", "suspended", "cancelled", "running") if states[one]), "")
    words = f"{len(tasks):,} tasks" + (f", {states[worst]:,} {worst}" if worst else "")
    return _Node(name, worst or states.most_common(1)[0][0], words, tokens)


def _draw(dag: nx.DiGraph[str], nodes: dict[str, _Node], address: Callable[[str], str] | None = None) -> Markup:
    layout = lay_out(dag, _WIDTH, dict.fromkeys(dag, _HEIGHT))
    width, height = round(layout.width + 4), round(layout.height + 4)
    head = Markup(
        '<svg width="{0}" height="{1}" viewBox="-2 -2 {0} {1}" role="{3}" aria-label="{2}"><defs>'
        '<marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path class="head" d="M0,0.5 L8,4 L0,7.5 z"/></marker></defs>'
    ).format(
        width,
        height,
        f"Graph of {count(len(dag), 'box')[:-1] + 'es' if len(dag) != 1 else '1 box'}",
        "img" if address is None else "group",
    )
    most = max((node.tokens for node in nodes.values()), default=0)
    edge = Markup('<path class="edge" marker-end="url(#arrow)" d="{}"/>')
    edges = (edge.format(_path(route)) for route in layout.routes.values())
    boxes = (_box(nodes[name], layout.boxes[name], most) for name in dag)
    if address is not None:
        link = Markup('<a href="{}" data-task="{}">{}</a>')
        boxes = (link.format(address(name), clean(name), box) for name, box in zip(dag, boxes, strict=True))
    # In lines, because an open page is sent the changed lines of its parts.
    return Markup("\n").join([head, *edges, *boxes, Markup("</svg>")])


def _path(corners: tuple[Point, ...]) -> str:
    """Write a curve through each space between two columns, and a straight line along each lane."""
    parts = [f"M{corners[0][0]:.0f},{corners[0][1]:.0f}"]
    for number, ((x, y), (to_x, to_y)) in enumerate(itertools.pairwise(corners)):
        half = (x + to_x) / 2
        parts.append(
            f"H{to_x:.0f}" if number % 2 else f"C{half:.0f},{y:.0f} {half:.0f},{to_y:.0f} {to_x:.0f},{to_y:.0f}"
        )
    return " ".join(parts)


def _box(node: _Node, box: Box, most: int) -> Markup:
    share = node.tokens / most * (box.width - 20) if most else 0.0
    return Markup(
        '<g class="s-{state}" transform="translate({x},{y})"><title>{title}</title><rect class="box"/>'
        '<rect class="mark"/><rect class="cost" width="{share}"/>'
        '<text x="13" y="19">{name}</text><text class="soft" x="13" y="36">{words}</text></g>'
    ).format(
        state=node.state,
        title=f"{cut(node.name, 200)[0]}: {node.words}",
        x=f"{box.x:.0f}",
        y=f"{box.y:.0f}",
        share=f"{share:.0f}",
        name=_narrow(one_line(cut(node.name, 200)[0])),
        words=_narrow(node.words),
    )


def _narrow(text: str) -> str:
    """Cut a text to the columns of a box, in its middle, because the ids of many tasks differ at their ends."""
    widths = [2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text]
    if sum(widths) <= _CELLS:
        return text
    half = _CELLS // 2 // (2 if sum(widths) > len(text) else 1)
    return f"{text[:half]}…{text[-half:]}"
