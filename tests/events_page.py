"""Write the table of events: `python -m tests.events_page > docs/events.md`."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path

from kairo_team import events
from kairo_team.events import EVENT_TYPES, Event

SOURCE = Path(inspect.getfile(events)).read_text(encoding="utf-8")
SECTION = re.compile(r"^# -{10,} (.+)$", re.MULTILINE)

HEAD = """# Events

Every run emits events, numbered 1, 2, 3 and so on without gaps. `Runtime(subscribers=[...])` receives the events,
`run.events()` and `journal.events_after(run_id, seq)` yield them, and `kt.JsonLines(path)` and
`kairo run --events FILE` write them, one JSON line each. Each event is a frozen class in `kairo_team.events`.
`to_json` writes an event, its `type` first, and `event_from_json` reads one. New versions add events and fields with
defaults, so they can read the events of older versions.

Every event has `run_id`, `seq` and `at` (UTC, to the millisecond). Events of work have `task_id` and `member` too; a
field is null where work has no task or no member, such as a plan or a review. `picodollars` are millionths of a
millionth of a US dollar; a `duration` is in seconds.

The events of a run do not contain the text of its prompts, replies, artifacts, and arguments and results of tools.
These texts are opt-in: `Runtime(content="events")` gives them to every subscriber and the journal as `content` events;
`content="journal"` gives them to the journal alone, and the others get these events without their `body`. `kairo run`,
`demo` and `resume` have the option `--content` for the same setting, and `KAIRO_CONTENT` sets it for all three. Secrets
are masked there too. Other events always contain some texts: the goal, the descriptions of planned tasks, a
person's question and its subject, the findings of a review, directives, text that a member reports with `emit` or
streams (`model.delta`), and the reasons of errors and refusals.

This page is written by `python -m tests.events_page > docs/events.md` from the classes.
"""


def sections() -> list[tuple[str, list[ast.ClassDef]]]:
    """Return the headings of the module with the classes under each."""
    starts = [(SOURCE[: match.start()].count("\n") + 1, match.group(1)) for match in SECTION.finditer(SOURCE)]
    classes = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.ClassDef)]
    found: list[tuple[str, list[ast.ClassDef]]] = [("the stream itself", [])]
    for node in classes:
        while starts and starts[0][0] < node.lineno:
            found.append((starts.pop(0)[1], []))
        found[-1][1].append(node)
    return found


def notes_of(node: ast.ClassDef) -> dict[str, tuple[str, str]]:
    """Return the type and the docstring of each field that a class declares itself."""
    found: dict[str, tuple[str, str]] = {}
    for place, one in enumerate(node.body):
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
            continue
        after = node.body[place + 1] if place + 1 < len(node.body) else None
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        found[one.target.id] = ast.unparse(one.annotation), " ".join(str(said).split())
    return found


CLASSES = {node.name: node for _, nodes in sections() for node in nodes}


def fields_of(kind: type[Event]) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of the fields that are not common to all events."""
    notes: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if base.__name__ in CLASSES:
            notes.update(notes_of(CLASSES[base.__name__]))
    common = {field.name for field in fields(events.WorkEvent)}
    return [(field.name, *notes[field.name]) for field in fields(kind) if field.name not in common]


def entry(kind: type[Event]) -> str:
    """Write one event: its type, when it is emitted, its fields."""
    said = " ".join((inspect.getdoc(kind) or "").split())
    whose = " Has `task_id` and `member`." if issubclass(kind, events.WorkEvent) else ""
    lines = [f"### {kind.type}", "", f"`{kind.__name__}`: {said}{whose}"]
    rows = fields_of(kind)
    if rows:
        lines += ["", "| field | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | `{of.replace('|', chr(92) + '|')}` | {meaning} |" for name, of, meaning in rows]
    return "\n".join(lines)


def planned_task() -> str:
    """Write the fields of a task in a plan."""
    rows = [
        f"| `{name}` | `{of.replace('|', chr(92) + '|')}` | {meaning} |"
        for name, (of, meaning) in notes_of(CLASSES["PlannedTask"]).items()
    ]
    return "\n".join(["### PlannedTask", "", "| field | type | meaning |", "|---|---|---|", *rows])


def page() -> str:
    """Write the whole page."""
    parts = [HEAD.rstrip()]
    for heading, nodes in sections():
        kinds = [getattr(events, node.name) for node in nodes]
        shown = [planned_task() if kind is events.PlannedTask else entry(kind) for kind in kinds if is_shown(kind)]
        parts += [f"## {heading[0].upper()}{heading[1:]}", *shown]
    return "\n\n".join(parts)


def is_shown(kind: type) -> bool:
    """Return whether a class has its place on the page: it is emitted, or part of what is."""
    return kind is events.PlannedTask or getattr(kind, "type", "") in EVENT_TYPES


if __name__ == "__main__":
    print(page())  # noqa: T201 - it is there to be printed
