"""Calls that a permission guard must answer: strange names, arguments, and paths that lead elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

NAMES: Final = (
    *("bash", "Bash", "BASH", "write", "write_file", "edit", "Edit", "read", "search", "send-mail", "x"),
    *("mcp__crm__lookup", "crm_lookup", "crm/lookup", "sub.tool", "bash ", " ", "", "*", "a(b)", "../bash", "\u2028"),
    *("b\u0430sh", "outil_\u00e9t\u00e9", "\u5de5\u5177", "bash\x00", "n" * 500),
)
"""Names of tools, also names that no model can get: plain, of servers, look-alikes, empty, long."""
ARGUMENTS: Final[Sequence[Mapping[str, Any]]] = (
    {},
    {"command": "rm -rf /", "path": "/etc/passwd"},
    {"path": None, "paths": [], "command": {"deep": [{"er": ["ls"]}]}, "n": 1.5, "yes": True, "": ""},
    {"path": "a\x00b", "command": "\U0001f600 ; $(x) 'never ends"},
)


def make_folder(parent: Path) -> Path:
    """Make a folder with files and links, and secrets around it."""
    folder = parent.resolve() / "open"
    (folder / "sub").mkdir(parents=True)
    (parent.resolve() / "open-else").mkdir()
    for file in ("open/notes.txt", "open/sub/notes.txt", "open-else/secret.txt", "secret.txt"):
        (parent / file).write_text("text")
    links = {
        "to_notes.txt": "notes.txt",
        "to_secret.txt": "../secret.txt",
        "to_parent": "..",
        "to_nothing": "../new.txt",
    }
    for link, target in links.items():
        (folder / link).symlink_to(target)
    return folder
