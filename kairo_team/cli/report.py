"""The result for people: the output, the end of each task, the table of budgets, and the status in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.text import Text

from kairo_team._util.counts import count
from kairo_team._util.terminal import clean
from kairo_team.budget import BudgetNode, HaltReason, explain_halt
from kairo_team.cli.run_table import COLOURS, INTERRUPTED, show_commands, took
from kairo_team.results import TaskOutcome, TeamResult, TeamStatus
from kairo_team.tasks import TaskStatus
from kairo_team.verdicts import VerdictOutcome
from kairo_team.views.text import aligned, describe_verdict, duration, one_line

if TYPE_CHECKING:
    from kairo_team.cli.job import Ended
    from kairo_team.cli.streams import Screen

_TASK_LOOKS: Final = {
    TaskStatus.COMPLETED: ("+", "green", "done"),
    TaskStatus.FAILED: ("x", "red", "failed"),
    TaskStatus.SKIPPED: ("-", "dim", "skipped"),
    TaskStatus.CANCELLED: ("!", "yellow", "cancelled"),
    TaskStatus.SUSPENDED: ("?", "yellow", "suspended"),
    TaskStatus.PENDING: (".", "dim", "waits"),
}
_MOST_TASKS: Final = 60
"""Up to this number of tasks each is listed; beyond it, only those in which something failed."""
_MOST_OF_CAUSE: Final = 5
"""Tasks that are listed with one cause, where not all tasks are."""
_BESIDE_ID: Final = 74
"""Columns that a task's line needs in addition to its id."""
_MOST_NODES: Final = 80
"""Lines of a budget tree beyond which the tasks in it are counted."""
_MOST_ALIKE: Final = 4
"""Equal shares of which each has a line."""
_KEPT_LINES: Final = 12
_LATER: Final = (
    "without a journal the answer cannot come later: run it with --journal runs.db, decide at the terminal with a "
    "ConsoleGate, or continue in your own program with Runtime.answer and Runtime.resume"
)
_HEADS: Final = ("", "tokens", "set aside", "dollars", "loops", "tool calls", "seconds", "")
_BRANCHES: Final = {"": "", "├─ ": "│  ", "└─ ": "   ", "|- ": "|  ", "`- ": "   "}

_HALTS: Final = {
    HaltReason.TOKEN_BUDGET_EXCEEDED: "tokens used up",
    HaltReason.DOLLAR_BUDGET_EXCEEDED: "dollars used up",
    HaltReason.LOOP_BUDGET_EXCEEDED: "loops used up",
    HaltReason.TOOL_BUDGET_EXCEEDED: "tool calls used up",
    HaltReason.TIME_BUDGET_EXCEEDED: "time is up",
    HaltReason.CANCELLED: "cancelled",
    HaltReason.EMERGENCY_STOP: "stopped",
}


def show_result(ended: Ended, screen: Screen) -> None:
    """Print a run's result; last come its status, next to the prompt, and the commands that continue it."""
    result = ended.result
    show_output(result, screen)
    _show_tasks(result, screen)
    if result.partial_output is None:
        _show_kept(result.outcomes, screen)
    _show_warnings(result, screen)
    if result.budget is not None:
        _show_budget(result.budget, screen)
    show_status(ended, screen)
    show_commands(ended.go_on, screen)


def show_output(result: TeamResult, screen: Screen) -> None:
    """Print the output, or the partial output."""
    text = result.output if result.partial_output is None else result.partial_output
    if text is None:
        return
    screen.print_head("Output" if result.partial_output is None else "Partial output")
    screen.print_barred(text.rstrip("\n"))
    made = result.artifact or result.partial_artifact
    for file in () if made is None else made.files:
        screen.print_text(f"  {file}")


# ---------------------------------------------------------------- tasks


def _show_tasks(result: TeamResult, screen: Screen) -> None:
    outcomes = result.outcomes
    if not outcomes:
        return
    screen.print_head("Tasks")
    few = len(outcomes) <= _MOST_TASKS
    shown = list(outcomes if few else _most_notable(outcomes))[:_MOST_TASKS]
    longest = max((len(o.task_id) for o in shown), default=0)
    longest = min(longest, max(12, screen.width - _BESIDE_ID)) if screen.watched else longest
    told = {result.error}
    for outcome in shown:
        screen.print_row(_task_line(outcome, longest))
        for remark in _remarks(outcome):
            if remark not in told:
                told.add(remark)
                _indented(remark, screen)
    if len(shown) < len(outcomes):
        left = Counter(o.status for o in outcomes) - Counter(o.status for o in shown)
        more = ", ".join(f"{number:,} {_TASK_LOOKS[status][2]}" for status, number in left.items())
        screen.print_text(f"  and {more} (--json has them all)", "dim")


def _most_notable(outcomes: Iterable[TaskOutcome]) -> Iterator[TaskOutcome]:
    """Yield tasks in which something failed, the first few of each cause."""
    alike: Counter[str | None] = Counter()
    for outcome in filter(_is_notable, outcomes):
        alike[outcome.error] += 1
        if outcome.error is None or alike[outcome.error] <= _MOST_OF_CAUSE:
            yield outcome


def _is_notable(outcome: TaskOutcome) -> bool:
    """Return whether the task must be listed even among many: it was tried, and not everything went well."""
    went_well = outcome.status is TaskStatus.COMPLETED and not _remarks(outcome) and not _is_unpassed(outcome)
    return outcome.attempts > 0 and not went_well


def _task_line(outcome: TaskOutcome, longest: int) -> Text:
    mark, colour, word = _TASK_LOOKS.get(outcome.status, ("?", "", outcome.status.value))
    line = Text(f"  {mark} ", style=colour)
    line.append(f"{one_line(outcome.task_id, longest):{longest}}", style="default")
    line.append(f"  {word:9}")
    tried = count(outcome.attempts, "attempt") if outcome.attempts else ""
    line.append(f"  {tried:11}", style="default")
    verdict = describe_verdict(outcome.verdict) if outcome.verdict else ""
    line.append(f"  {verdict:18}", style="yellow" if _is_unpassed(outcome) else "default")
    spent = count(outcome.usage.tokens, "token") if outcome.usage.tokens else ""
    line.append(f"  {spent:>13}", style="default")
    line.append(f"  {took(outcome):>8}", style="default")
    line.rstrip()
    return line


def _remarks(outcome: TaskOutcome) -> list[str]:
    said_below = outcome.status is TaskStatus.SUSPENDED  # the run's error has its question
    return [*([outcome.error] if outcome.error and not said_below else []), *outcome.warnings]


def _indented(text: str, screen: Screen) -> None:
    screen.print_indented(text, 6, "dim")


def _show_kept(outcomes: Iterable[TaskOutcome], screen: Screen) -> None:
    """Print the partial artifacts of tasks that were cut short."""
    cut = [o for o in outcomes if o.status is not TaskStatus.COMPLETED and o.artifact and o.artifact.partial]
    kept = [(o.task_id, o.artifact.text) for o in cut if o.artifact and o.artifact.text.strip()]
    if not kept:
        return
    screen.print_head("Kept of what was cut short")
    for task_id, text in kept:
        lines = clean(text).strip().splitlines()
        screen.print_text(f"  {task_id}")
        for line in lines[:_KEPT_LINES]:
            _indented(line, screen)
        if len(lines) > _KEPT_LINES:
            _indented(f"and {count(len(lines) - _KEPT_LINES, 'more line')} (--json has them all)", screen)


# ---------------------------------------------------------------- the team


def _show_warnings(result: TeamResult, screen: Screen) -> None:
    """Print the warnings that no task's line and no status line shows."""
    shown = {f"task {o.task_id!r}: {text}" for o in result.outcomes for text in o.warnings}
    shown |= {f"task {o.task_id!r} {o.status.value}: {o.error}" for o in result.outcomes}
    left = [warning for warning in result.warnings if warning not in shown and warning != result.error]
    if not left:
        return
    screen.print_head("Warnings")
    for warning in left:
        _indented(warning, screen)


def _show_budget(root: BudgetNode, screen: Screen) -> None:
    screen.print_head("Budget")
    left_out = 0
    if _size(root) > _MOST_NODES:
        left_out = _size(root) - 1 - len(root.children)
        root = replace(root, children=tuple(replace(child, children=()) for child in root.children[:_MOST_NODES]))
    lines = [f"  {clean(line)}" for line in draw_tree(root, ascii_only=screen.options.ascii_only)]
    if screen.watched and max(map(len, lines)) > screen.width:  # the last columns would be cut off
        for name, *cells in _rows(root, None, "", "", _forks(ascii_only=screen.options.ascii_only)):
            screen.print_text(f"  {name}")
            named = zip(_HEADS[1:], cells, strict=True)
            screen.print_indented(", ".join(f"{head} {cell}".strip() for head, cell in named if cell), 6, "dim")
    else:
        for line in lines:
            screen.show(Text(line), **screen.uncut)
    if left_out:
        screen.print_text(f"  and {count(left_out, 'task')} below the members (--json has them all)", "dim")


def folded(node: BudgetNode) -> BudgetNode:
    """Return a tree in which neighbours with equal shares and nothing below them are one row."""
    groups: list[list[BudgetNode]] = []
    for one in map(folded, node.children):
        if groups and _are_alike(groups[-1][0], one):
            groups[-1].append(one)
        else:
            groups.append([one])
    children: list[BudgetNode] = []
    for group in groups:
        if len(group) <= _MOST_ALIKE:
            children += group
        else:
            name = f"{group[0].name} to {group[-1].name}: {len(group):,} alike, each"
            children.append(replace(group[0], name=name))
    return replace(node, children=tuple(children))


def _are_alike(one: BudgetNode, other: BudgetNode) -> bool:
    """Return whether two shares differ by no more than what is left of a division."""
    rest = abs((one.guarantee.tokens or 0) - (other.guarantee.tokens or 0))
    same = replace(one.guarantee, tokens=0) == replace(other.guarantee, tokens=0) and one.budget == other.budget
    return same and rest <= 1 and not one.children and not other.children


def _size(node: BudgetNode) -> int:
    return 1 + sum(map(_size, node.children))


def show_status(ended: Ended, screen: Screen) -> None:
    """Print how a run ended, its time and usage, and why it is not COMPLETED."""
    result = ended.result
    word = INTERRUPTED if ended.interrupted else result.status.value
    line = Text(word.upper(), style=f"bold {COLOURS[result.status]}")
    line.append(f"  after {duration(result.duration)}, {result.usage}", style="not bold default")
    screen.print_text()
    screen.show(line, soft_wrap=not screen.watched)
    if result.error and result.error != word:
        _indented(result.error, screen)
    if result.status is TeamStatus.SUSPENDED and not ended.go_on:
        _indented(_LATER, screen)


def _is_unpassed(outcome: TaskOutcome) -> bool:
    return outcome.verdict is not None and outcome.verdict.outcome is not VerdictOutcome.PASS


def draw_tree(root: BudgetNode, *, ascii_only: bool = False) -> list[str]:
    """Return the lines of the table; columns that would be empty are left out."""
    rows = list(_rows(root, None, "", "", _forks(ascii_only=ascii_only)))
    used = [n for n in range(len(_HEADS)) if n == 0 or any(row[n] for row in rows)]
    return aligned([[row[n] for n in used] for row in [_HEADS, *rows]])


def _forks(*, ascii_only: bool) -> tuple[str, str]:
    return ("|- ", "`- ") if ascii_only else ("├─ ", "└─ ")


def _rows(
    node: BudgetNode, above: BudgetNode | None, stem: str, branch: str, forks: tuple[str, str]
) -> Iterator[tuple[str, ...]]:
    yield (stem + branch + node.name, *_cells(node, above))
    stem += _BRANCHES[branch]
    for child in node.children:
        yield from _rows(child, node, stem, forks[child is node.children[-1]], forks)


def _cells(node: BudgetNode, above: BudgetNode | None) -> tuple[str, ...]:
    used, limit, aside = node.usage, node.budget, node.guarantee.tokens
    # A halt from above is named only where it began.
    inherited = above is not None and above.halt is node.halt and above.origin_path == node.origin_path
    return (
        _cell(used.tokens, limit.tokens),
        "" if aside is None or above is None else f"{aside:,}",
        _cell(used.dollars, limit.dollars, "$"),
        _cell(used.loops, limit.loops),
        _cell(used.tool_calls, limit.tool_calls),
        _cell(round(used.seconds, 1), limit.seconds),
        "" if node.halt is None or inherited else explain_halt(node) or _HALTS[node.halt],
    )


def _cell(used: object, limit: object, sign: str = "") -> str:
    if limit is None:
        return f"{sign}{used:,}" if used else ""
    return f"{sign}{used:,} of {sign}{limit:,}"
