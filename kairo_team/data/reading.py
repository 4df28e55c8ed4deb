"""One reading of data: the folder of its files, its permissions, and its mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kairo_team._util.mistakes import did_you_mean
from kairo_team.data.files import Place, parts_of
from kairo_team.data.mistakes import Mistake


class Missing:
    """Replaces an object that could not be made."""


MISSING: Final = Missing()
IMPORT: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
"""How code is named: `module:name`."""
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Forms of every system are refused on each, because a file is shared between systems.
_ELSEWHERE: Final = re.compile(r"(?s)~|[A-Za-z]:|file:|[A-Za-z][A-Za-z0-9+.-]*:/|\\|.*\.\.\\")
"""How a path begins or goes that means another place on some system: `~`, a drive, a URL, a share, `..` with "\\"."""
_KEY_LIKE: Final = re.compile(
    r"\bsk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}|\bsk_(?:live|test)_[A-Za-z0-9]{10,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|\bA(?:KIA|SIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}|\bhf_[A-Za-z0-9]{20,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bBearer (?=[A-Za-z._~-]*[0-9])[A-Za-z0-9._~-]{16,}"
    r"|\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,200}:[^\s/@$]{1,200}@"
)
"""Patterns of the keys of well-known services, and of a password in an address."""
_KEY_NAME: Final = re.compile(
    r"(?i)(?:^|[_-])(?:api[_-]?key|apikey|password|passwd|passphrase|secret|client[_-]?secret|access[_-]?key|"
    r"private[_-]?key|(?:access|auth|refresh|api|bearer|id)[_-]?token|authorization)$|_token$|^token$"
)
_SAYS: Final = "seems to hold a key: never put a key in a file; take it from the environment"


@dataclass
class Reading:
    """One reading of data."""

    folder: Path
    """Where relative paths begin."""
    trusted: bool
    """Whether the data may import code, start programs, read the environment, and name files outside its folder."""
    mistakes: list[Mistake] = field(default_factory=list[Mistake])

    def refuse(self, place: Place, says: str, key: str | None = None) -> Missing:
        """Note a mistake."""
        self.mistakes.append(Mistake(place, says, key))
        return MISSING

    def path(self, text: str, place: Place) -> Path | Missing:
        """Return the path that a text means; untrusted data may only name paths inside its folder."""
        if not text.strip() or "\0" in text:
            return self.refuse(place, f"must be the path of a file, not {text!r:.80}")
        if not self.trusted and _ELSEWHERE.match(text):
            return self._leads_out(text, place)
        found = self.folder / Path(text).expanduser() if self.trusted else self.folder / text
        # The real path, so that neither `..` nor a link leads out of the folder.
        if not self.trusted and not Path(os.path.realpath(found)).is_relative_to(os.path.realpath(self.folder)):
            return self._leads_out(text, place)
        return found

    def _leads_out(self, text: str, place: Place) -> Missing:
        says = f"leads out of the file's folder, {text!r:.80}: that is for trusted data (trusted=True)"
        return self.refuse(place, says)

    def from_environment(self, text: str, place: Place) -> str | Missing:
        """Replace every `${NAME}` in a text with that variable of the environment."""
        names = _VARIABLE.findall(text)
        if names and not self.trusted:
            return self.refuse(place, f"reads the environment, {text!r:.80}: that is for trusted data (trusted=True)")
        unset = [name for name in names if name not in os.environ]
        if unset:
            return self.refuse(place, f"names the environment variable {unset[0]!r}, which is not set")
        return _VARIABLE.sub(lambda found: os.environ[found[1]], text)


def not_declared(option: str) -> str:
    """Return a sentence on an option of untrusted data that could be a path, and is not declared as one."""
    says = f"could be a path, and {option!r} is not declared as one, so it could lead out of the file's folder"
    return f"{says} (its author declares it as os.PathLike[str]): that is for trusted data (trusted=True)"


def imported(text: str, place: Place, reading: Reading) -> Any:
    """Return the object that `module:name` names."""
    if not reading.trusted:
        return reading.refuse(place, f"imports code, {text!r:.80}: that is for trusted data (trusted=True)")
    module, _, path = text.partition(":")
    try:
        found: Any = import_module(module)
    # A script that ends itself must not end the loader.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
        why = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
        return reading.refuse(place, f"names {text!r:.80}, and {module!r} cannot be imported: {why}")
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, getattr(found, "__dict__", {}))
            return reading.refuse(place, f"names {text!r:.80}, and {module!r} has no {name!r}; {hint}".strip(" ;"))
        found = getattr(found, name)
    return found


def is_import(value: Any) -> bool:
    """Return whether a value is written `module:name`."""
    return isinstance(value, str) and IMPORT.fullmatch(value) is not None


def keys_in(data: Any, place: Place = ()) -> Iterator[Mistake]:
    """Find values that look like keys, and values with the name of a key."""
    for step, value in parts_of(data).items():
        inside = (*place, step)
        if isinstance(value, Mapping | list):
            yield from keys_in(value, inside)
        elif isinstance(value, str) and _VARIABLE.search(value) is None and _is_key(step, value):
            yield Mistake(inside, f"{_SAYS}, where a provider finds it, or write ${{NAME}} in headers, env and secrets")


def _is_key(name: int | str, value: str) -> bool:
    named = isinstance(name, str) and _KEY_NAME.search(name) is not None and bool(value.strip())
    return named or _KEY_LIKE.search(value) is not None
