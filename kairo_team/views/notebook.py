"""Teams, plans, results and budgets in a notebook: HTML without script, every text escaped."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Final

from kairo_team._util.counts import count
from kairo_team.budget import BudgetNode, explain_halt
from kairo_team.tasks import TaskGraph, TaskStatus
from kairo_team.views.graph_chart import make_chart
from kairo_team.views.rendered import rendered
from kairo_team.views.report_text import cut, dollars, seconds
from kairo_team.views.text import describe_findings, describe_verdict

if TYPE_CHECKING:
    from kairo_team.evaluators.tried import TriedText
    from kairo_team.governance.governor import Governor
    from kairo_team.results import TaskOutcome, TeamResult
    from kairo_team.team import Member, Team

_MOST_ROWS: Final = 100
"""Rows of a table, lines of a tree and boxes of a picture; the rest is counted."""
_LONGEST: Final = 200
"""Characters of any one value, other than the output."""
_LONGEST_OUTPUT: Final = 20_000
_INK: Final = "#7a8490"
"""4 to 1 against white and against near-black."""
_FRAME: Final = f"border-left:3px solid {_INK};padding-left:10px;max-height:30em;overflow:auto"
_GROUNDS: Final = {"completed": "#d3efe2", "failed": "#fbd9d6", "timeout": "#fbd9d6"}
"""Grounds of states; of any other state yellow."""


def show_team(team: Team) -> str:
    """Write a team's members, and the names that its tasks may use."""
    heads = ("member", "role", "agent", "can", "tools", "budget", "at once")
    named = (("evaluators", team.evaluators), ("output types", team.output_types))
    lines = [f"{kind}: {_text(', '.join(names))}" for kind, names in named if names]
    table = _table(heads, (_member(one) for one in team.everyone), len(team.everyone))
    return _block(f"{_text(team.name)}: {count(len(team.members), 'member')}", *lines, table)


def _member(member: Member) -> tuple[str, ...]:
    role, tools = member.role, member.role.allowed_tools
    return (
        member.id,
        role.id,
        type(member.agent).__name__,
        ", ".join(sorted(role.capabilities)),
        "all of its agent" if tools is None else ", ".join(sorted(tools)) or "none",
        "the team's" if member.budget is None else str(member.budget),
        "any number" if member.concurrency is None else str(member.concurrency),
    )


def show_trial(trial: TriedText) -> str:
    """Write the result of trying a rubric on a text, criterion by criterion."""
    rows = trial.rows()
    table = _table(("criterion", "level", "decided by", "why"), rows, len(rows))
    return _block(_text(trial.summary), table, f"the judge: {_text(trial.cost)}" if trial.calls else "")


def show_plan(plan: TaskGraph) -> str:
    """Write a plan as a picture; as a table where it is too big for one, or the extra `cli` is not installed."""
    picture = draw_plan(plan)
    if picture is not None:
        data = base64.b64encode(picture.encode()).decode()
        # In an <img>, the picture's style sheet does not apply to the notebook.
        return (
            f'<img style="max-width:100%" alt="{_text(make_chart(plan).size)}" src="data:image/svg+xml;base64,{data}">'
        )
    chart = make_chart(plan)
    rows = ((task.id, node.who, ", ".join(task.depends_on), node.remark, node.description)
            for task, node in zip(chart.plan.tasks, chart.nodes, strict=True))  # fmt: skip
    return _block(chart.size, _table(("task", "who", "after", "", "what"), rows, len(plan)))


def draw_plan(plan: TaskGraph) -> str | None:
    """Return a plan as an SVG picture; None where it is too big for one, or the extra `cli` is not installed."""
    if len(plan) > _MOST_ROWS:
        return None
    try:
        from kairo_team.views.graph_svg import draw_svg  # it needs rich
    except ImportError:
        return None
    return draw_svg(make_chart(plan))


def show_result(result: TeamResult) -> str:
    """Write how a run ended: its status, its output, its tasks with their reviews, and its budgets."""
    outcomes = result.outcomes
    accepted = sum(outcome.status is TaskStatus.COMPLETED for outcome in outcomes)
    done = f"{accepted:,} of {count(len(outcomes), 'task')} accepted"
    # On a ground of its own, the state is readable on light and dark pages.
    look = f"background:{_GROUNDS.get(result.status.value, '#f6f0b8')};color:#16202c;padding:0 6px"
    head = f'{_text(result.run_id)}: <b style="{look}">{_text(result.status.value)}</b>'
    lines = [f"{done}, {_text(str(result.usage))}, {seconds(result.duration)}"]
    lines += [_text(text) for text in dict.fromkeys([result.error or "", *result.warnings[:3]]) if text]
    heads = ("task", "status", "member", "attempts", "tokens", "dollars", "review", "why")
    table = _table(heads, map(_outcome, outcomes), len(outcomes)) if outcomes else ""
    budgets = [] if result.budget is None else [_budgets(result.budget), _tree(result.budget)]
    return _block(head, *lines, _output(result), table, _criteria(outcomes), *budgets)


def _output(result: TeamResult) -> str:
    """Write the output, or else the partial output, as it was meant to be read."""
    partial = result.output is None
    text = result.partial_output if partial else result.output
    if not text:
        return ""
    shown, sentence = cut(text, _LONGEST_OUTPUT)
    frame = f'<div style="{_FRAME}">{rendered(shown).html}</div>'
    return f"<b>{'partial output' if partial else 'output'}</b>{frame}{sentence}"


def _criteria(outcomes: Sequence[TaskOutcome]) -> str:
    """Write what the last review of each task found, criterion by criterion."""
    found = [(one.task_id, result) for one in outcomes if one.verdict for result in one.verdict.criteria]
    if not found:
        return ""
    mark = {True: "met", False: "not met", None: "open"}
    rows = ((task, one.id, mark[one.passed], one.by or "", one.reason) for task, one in found)
    table = _table(("task", "criterion", "", "decided by", "why"), rows, len(found))
    return f"<details><summary>verdicts</summary>{table}</details>"


def _budgets(root: BudgetNode) -> str:
    """Write what the run and each member used of their limits."""
    lines: list[str] = []
    for node in (root, *root.children[:_MOST_ROWS]):
        used, limit = node.usage, node.budget
        spent = f"{used.tokens:,}" + ("" if limit.tokens is None else f" of {limit.tokens:,}") + " tokens"
        spent += "" if not used.dollars and limit.dollars is None else f", {dollars(used.dollars)}"
        spent += "" if limit.dollars is None else f" of {dollars(Decimal(limit.dollars))}"
        halt = explain_halt(node) or ("" if node.halt is None else node.halt.value.replace("_", " "))
        cells = "".join(f"<td>{_text(cell)}</td>" for cell in (node.name, spent, halt))
        lines.append(f"<tr>{cells}<td>{_meter(node)}</td></tr>")
    return f"<table><tr><th>budget of</th><th>used</th><th></th><th></th></tr>{''.join(lines)}</table>"


def _meter(node: BudgetNode) -> str:
    """Draw the share of the tokens, or else of the dollars, that is used."""
    used, limit = (
        (node.usage.tokens, node.budget.tokens)
        if node.budget.tokens is not None
        else (node.usage.dollars, node.budget.dollars)
    )
    if limit is None:
        return ""
    share = min(round(float(used) / float(limit) * 100), 100) if limit else 100
    bar = f"width:{share}%;height:8px;background:{_INK}"
    return f'<div style="width:120px;border:1px solid {_INK}"><div style="{bar}"></div></div>'


def _outcome(outcome: TaskOutcome) -> tuple[str, ...]:
    verdict = outcome.verdict
    return (
        outcome.task_id,
        outcome.status.value,
        outcome.member or "",
        f"{outcome.attempts:,}",
        f"{outcome.usage.tokens:,}",
        dollars(outcome.usage.dollars),
        "" if verdict is None else describe_verdict(verdict),
        outcome.error or ("" if verdict is None else describe_findings(verdict)),
    )


def show_governor(governor: Governor) -> str:
    """Write a governor's budget and everything carved from it, at this moment."""
    halt = governor.halted
    return _block(
        f"{_text(governor.path)}: {'open' if halt is None else f'halted, {halt.value}'}", _tree(governor.tree())
    )


def _tree(node: BudgetNode) -> str:
    lines = str(node).split("\n")
    left = len(lines) - _MOST_ROWS
    more = [f"and {left:,} more lines"] if left > 0 else []
    shown = "\n".join([html.escape(cut(line, 2 * _LONGEST)[0]) for line in lines[:_MOST_ROWS]] + more)
    return f"<details><summary>budget</summary><pre>{shown}</pre></details>"


# ---------------------------------------------------------------- HTML


def _text(text: str) -> str:
    """Return a text in one line, cut, harmless in HTML: without secrets, control and bidi characters."""
    shown, rest = cut(text, _LONGEST)
    return html.escape(" ".join(shown.split())) + ("…" if rest else "")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], number: int) -> str:
    """Write a table of `number` rows; the texts are not yet escaped."""
    lines = ["".join(f"<td>{_text(cell)}</td>" for cell in row) for row in islice(rows, _MOST_ROWS)]
    if number > _MOST_ROWS:
        lines.append(f'<td colspan="{len(heads)}">and {number - _MOST_ROWS:,} more</td>')
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _block(head: str, *parts: str) -> str:
    """Write a heading and the parts below it; all are HTML already."""
    below = "".join(f"<div>{part}</div>" for part in parts if part)
    return f"<div><b>{head}</b>{below}</div>"
