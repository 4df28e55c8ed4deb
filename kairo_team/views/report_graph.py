"""The executed graph of a run as a picture: each task by its state, its attempts and what it cost."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from kairo_team._util.counts import count
from kairo_team._util.terminal import clean
from kairo_team.views.graph_frames import MOST_BOXED, Picture, Shape, arrange, count_drawn, grouped
from kairo_team.views.graph_layout import Box, Point, path_of
from kairo_team.views.progress import RowState
from kairo_team.views.report_tasks import status_of, style_of
from kairo_team.views.report_text import cut, dollars
from kairo_team.views.run_story import RunStory, TaskStory
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable


MOST_BOXES: Final = 150
"""Boxes of a graph above which tasks of one member at the same depth are drawn as a strip of small squares."""
_MOST_SQUARES: Final = 1_000
"""Tasks of a graph above which none has a square of its own."""
_WIDTH, _HEIGHT, _CELLS = 220.0, 56.0, 27
"""Size of a box, as in the style sheet, and the columns of its text."""
_CELL: Final = 7.3
"""Width of a character."""
_MOST_TRIES: Final = 8
"""Attempts that a box shows: the last ones."""
_MARGIN: Final = 10
_SIGNS: Final = {"failed": "\u00d7", "suspended": "?", "cancelled": "!"}
"""Signs in the squares of states, which differ in more than colour."""
_WORST: Final = ("failed", "suspended", "cancelled", "running", "reviewing")


@dataclass(frozen=True, slots=True)
class _Node:
    """A box, a square or the head of a frame."""

    name: str
    state: str
    words: str
    tokens: int = 0
    tries: Sequence[tuple[int, str]] = ()
    """Numbers and styles of attempts, where one was sent back or failed."""
    links: bool = True
    """Whether it shows one task of the run."""


def draw_run(story: RunStory, address: Callable[[str], str] | None = None) -> tuple[Markup, Markup]:
    """Return the picture, and a line below its heading: a sentence or the legend.

    Where it would have too many boxes, the picture is empty. The box or square of a task links to its `address`.
    """
    if not story.tasks:
        return Markup(""), Markup("There is no plan.")
    planned = [task.planned for task in story.tasks.values()]
    shapes = [Shape(one.id, one.depends_on, one.part_of, one.grows) for one in planned]
    most_boxed = MOST_BOXED if len(shapes) <= _MOST_SQUARES else 0
    if count_drawn(shapes) > MOST_BOXES:
        shapes = grouped(shapes, lambda name: _member(story.tasks[name]))
        most_boxed = min(most_boxed, 1)
        if count_drawn([one for one in shapes if one.part_of is None]) > MOST_BOXES:
            return Markup(""), Markup("The graph has {}, too many for a picture.").format(
                count(len(story.tasks), "task")
            )
    nodes = _nodes(story, shapes)
    picture = arrange(shapes, _WIDTH, dict.fromkeys(nodes, _HEIGHT), most_boxed=most_boxed)
    backs = {name: story.tasks[name].planned.until or "" for name in picture.backs}
    return _draw(picture, nodes, backs, address), _legend(picture)


def _member(task: TaskStory) -> str:
    return task.member or next(iter(task.planned.members), "no member")


def _nodes(story: RunStory, shapes: Sequence[Shape]) -> dict[str, _Node]:
    """Return a node of each task that is drawn, and of each frame."""
    inside: dict[str, list[str]] = defaultdict(list)
    for task in story.tasks.values():
        inside[task.planned.part_of or ""].append(task.id)
    for shape in shapes:
        if shape.part_of is not None and shape.part_of not in story.tasks:
            inside[shape.part_of].append(shape.id)
    return {one.id: _node(one.id, story, inside) for one in shapes}


def _node(name: str, story: RunStory, inside: Mapping[str, Sequence[str]]) -> _Node:
    own = story.tasks.get(name)
    tasks = list(_tasks_of_frame(name, story, inside))
    usages = [task.usage + task.review_usage for task in tasks]
    tokens = sum(one.tokens for one in usages)
    if own is not None and tasks == [own]:
        paid = f" {dollars(usages[0].dollars)}" if usages[0].dollars else ""
        return _Node(
            name, own.state.value, f"{own.state.value} {count(tokens, 'token')}{paid}", tokens, [*_attempt_arrows(own)]
        )
    states = Counter(task.state.value for task in tasks)
    worst = next((one for one in _WORST if states[one]), "")
    # A map or loop shows its own state, a group its worst one.
    state = own.state.value if own is not None else worst or states.most_common(1)[0][0]
    more = f"{states[worst]:,} {worst}" if worst else count(tokens, "token")
    return _Node(name, state, f"{states['done']:,} of {len(tasks):,} done, {more}", links=own is not None)


def _tasks_of_frame(name: str, story: RunStory, inside: Mapping[str, Sequence[str]]) -> Iterator[TaskStory]:
    """Yield the tasks of a frame, or the task itself."""
    parts = [one for one in inside.get(name, ()) if one != name]
    for one in parts:
        yield from _tasks_of_frame(one, story, inside)
    if not parts:
        yield story.tasks[name]


def _attempt_arrows(task: TaskStory) -> Iterator[tuple[int, str]]:
    if any(status_of(one) not in ("completed", "open") for one in task.attempts):
        yield from ((one.number, style_of(one)) for one in task.attempts[-_MOST_TRIES:])


# ---------------------------------------------------------------- the picture


def _draw(
    picture: Picture, nodes: Mapping[str, _Node], backs: Mapping[str, str], address: Callable[[str], str] | None
) -> Markup:
    width, height = round(picture.width + 4), round(picture.height + _MARGIN + 2)
    head = Markup(
        '<svg width="{0}" height="{1}" viewBox="-2 -{2} {0} {1}" role="{4}" aria-label="{3}"><defs>'
        '<marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path class="head" d="M0,0.5 L8,4 L0,7.5 z"/></marker></defs>'
    ).format(width, height, _MARGIN, f"Graph of {count(len(nodes), 'task')}", "img" if address is None else "group")
    most = max((node.tokens for node in nodes.values()), default=0)

    def linked(name: str, drawn: Markup) -> Markup:
        if address is None or not nodes[name].links:
            return drawn
        # The keyboard does not stop at each small square: the list below has all tasks.
        stop = Markup(' tabindex="-1"') if name in picture.squares else ""
        return Markup('<a href="{}" data-task="{}"{}>{}</a>').format(address(name), clean(name), stop, drawn)

    lines = [head]
    lines += (linked(name, _frame(nodes[name], box)) for name, box in picture.frames.items())
    lines += (_arrow(path_of(route)) for route in (*picture.nexts, *(corners for _, corners in picture.arrows)))
    for name, corners in picture.backs.items():
        lines += _back_arrow(corners, backs[name], picture.frames[name].width)
    lines += (_words(x, y, "soft", words) for words, (x, y) in picture.rounds)
    lines += (linked(name, _box(nodes[name], box, most)) for name, box in picture.boxes.items())
    lines += (linked(name, _small_task(nodes[name], box)) for name, box in picture.squares.items())
    # In lines, because an open page is sent the changed lines of its parts.
    return Markup("\n").join([*lines, Markup("</svg>")])


def _arrow(path: str, style: str = "edge") -> Markup:
    return Markup('<path class="{}" marker-end="url(#arrow)" d="{}"/>').format(style, path)


def _back_arrow(corners: Sequence[Point], until: str, width: float) -> Iterator[Markup]:
    yield _arrow("M" + " L".join(f"{x:.0f},{y:.0f}" for x, y in corners), "edge back")
    words = f"again until {one_line(until)}" if until else "again"
    most = int((width - 60) / _CELL)
    shown = words if len(words) <= most else f"{words[: most - 1]}\u2026"
    yield _words(corners[2][0] + 8, corners[2][1] + 13, "soft", shown)


def _words(x: float, y: float, style: str, words: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(style, f"{x:.0f}", f"{y:.0f}", clean(words))


def _title(node: _Node) -> str:
    return f"{cut(node.name, 200)[0]}: {node.words}"


def _frame(node: _Node, box: Box) -> Markup:
    return Markup(
        '<g class="s-{} frame" transform="translate({:.0f},{:.0f})"><title>{}</title>'
        '<rect class="around" width="{:.0f}" height="{:.0f}"/><rect class="stripe" width="5" height="{:.0f}"/>'
        '<text x="13" y="19">{}</text><text class="soft" x="13" y="36">{}</text></g>'
    ).format(
        node.state,
        box.x,
        box.y,
        _title(node),
        box.width,
        box.height,
        box.height,
        _narrow(node.name),
        _narrow(node.words),
    )


def _box(node: _Node, box: Box, most: int) -> Markup:
    share = node.tokens / most * (box.width - 20) if most else 0.0
    left = box.width - 18 * len(node.tries) - 4
    tries = Markup("").join(_try(number, style, left + 18 * at) for at, (number, style) in enumerate(node.tries))
    return Markup(
        '<g class="s-{}" transform="translate({:.0f},{:.0f})"><title>{}</title><rect class="box"/>'
        '<rect class="mark"/><rect class="cost" width="{:.0f}"/>'
        '<text x="13" y="19">{}</text><text class="soft" x="13" y="36">{}</text>{}</g>'
    ).format(node.state, box.x, box.y, _title(node), share, _narrow(node.name), _narrow(node.words), tries)


def _try(number: int, style: str, x: float) -> Markup:
    """Draw an attempt on the upper edge of its box."""
    return Markup('<g class="try {}"><rect x="{:.0f}"/><text x="{:.0f}" y="4">{}</text></g>').format(
        style, x, x + 8, number
    )


def _small_task(node: _Node, box: Box) -> Markup:
    back = " revised" if any(style == "a-back" for _, style in node.tries) else ""
    sign = Markup('<text x="7" y="11">{}</text>').format(_SIGNS[node.state]) if node.state in _SIGNS else ""
    return Markup(
        '<g class="s-{} square{}" transform="translate({:.0f},{:.0f})"><title>{}</title><rect/>{}</g>'
    ).format(node.state, back, box.x, box.y, _title(node), sign)


def _legend(picture: Picture) -> Markup:
    """Return what the marks mean."""
    words = ["Stripe: state. Bar: tokens, relative to the most expensive task."] if picture.boxes else []
    words += ["Small square: one task."] if picture.squares else []
    drawn = Markup('<span><svg viewBox="-1 -1 16 16" class="key" aria-hidden="true">{}</svg>{}</span> ')
    # All states, not only the plan's: the words stay while an open page shows a run under way.
    states = [drawn.format(_small_task(_Node("", one.value, ""), Box(0, 0, 0, 0)), one.value) for one in RowState]
    tries = (("a-back", "attempt that was sent back"), ("a-error", "attempt that failed"))
    keys = [drawn.format(Markup('<g class="try {}"><rect/></g>').format(style), said) for style, said in tries]
    return Markup('{}<span class="keys">{}</span>').format(" ".join(words), Markup("").join([*states, *keys]))


def _narrow(text: str) -> str:
    """Cut a text to the columns of a box."""
    text = one_line(cut(text, 200)[0])
    widths = [2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text]
    if sum(widths) <= _CELLS:
        return text
    half = _CELLS // 2 // (2 if sum(widths) > len(text) else 1)
    return f"{text[:half]}…{text[-half:]}"  # the ids of many tasks differ at their ends
