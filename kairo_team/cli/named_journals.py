"""`--journal`: a file, a journal that a package publishes, or the journal of a team's own file."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kairo_team import plugins
from kairo_team.cli.loading import importable, load_team_file, read_team_spec
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.contracts import Journal
from kairo_team.data.files import SUFFIXES
from kairo_team.engine.work.runtime import bind_runtime, runtime_of
from kairo_team.errors import known

_NAMED: Final = re.compile(r"(?P<name>[A-Za-z][\w.-]+(@[\w.-]+)?)(:(?P<options>.*))?", re.DOTALL)
"""`NAME` or `NAME:option=value,...`; `C:` begins a path on Windows."""
_HEAD: Final = b"SQLite format 3"


@dataclass(frozen=True, slots=True)
class PublishedJournal:
    """A journal that a package publishes, with its options."""

    text: str
    """What `--journal` says."""
    name: str
    options: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TeamsJournal:
    """The journal of the team that a file builds."""

    text: str
    """What `--journal` says: the file, with the team's name."""


NamedPlace = PublishedJournal | TeamsJournal


def read_place(text: str) -> Path | NamedPlace:
    """Read `--journal`; `Refusal` for a name that nothing has, so that no file is made by mistake."""
    file = Path(text)
    if _is_team_file(text):
        read_team_spec(text)  # it is there
        return TeamsJournal(text)
    found = _NAMED.fullmatch(text)
    if file.exists() or found is None or (found["options"] is None and file.suffix):
        _refuse_address(text)
        return file
    name, options = found["name"], found["options"]
    names = {one.name for one in plugins.installed("journal")}
    if name.replace("_", "-").partition("@")[0] not in {one.replace("_", "-") for one in names}:
        _refuse_address(text)
        raise Refusal(
            f"--journal {text!r:.200}: no file and no installed journal has the name {name!r}; installed are "
            f"{known(names)}. Install the package of that journal, or write ./{text:.100} for a new file of that name"
        )
    if name == "memory":
        raise Refusal("--journal memory: its records end with this command; name a file, such as runs.db")
    return PublishedJournal(text, name, _read_options(text, options or ""))


def _refuse_address(text: str) -> None:
    if re.match(r"[A-Za-z][A-Za-z0-9+-]+://", text):
        raise Refusal(f"--journal takes a file: write --database for {text.partition('://')[0]}://...")


def _is_team_file(text: str) -> bool:
    """Return whether a text names a Python file or a team as data, and not a journal's file with such a name."""
    for file in (Path(text), Path(text.rpartition(":")[0])):
        if file.suffix.lower() in (".py", *SUFFIXES):
            if not file.is_file():
                return file.suffix == ".py"
            with file.open("rb") as opened:
                return not opened.read(len(_HEAD)).startswith(_HEAD)
    return False


def _read_options(text: str, written: str) -> dict[str, Any]:
    """Read `option=value,...`: a value is JSON if it can be, else a text."""
    options: dict[str, Any] = {}
    for part in filter(None, written.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.isidentifier():
            raise Refusal(f"--journal {text!r:.200}: after the name come options, as in NAME:path=runs, not {part!r}")
        if name in options:
            raise Refusal(f"--journal {text!r:.200}: the option {name!r} is there twice")
        options[name] = _value(value)
    return options


def _value(text: str) -> Any:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) or value is None else text


@contextmanager
def named_journal(place: NamedPlace, source: Mapping[str, str] | None = None) -> Generator[Journal]:
    """Provide the journal of a place for a block; `Refusal` for one that cannot be made."""
    if isinstance(place, TeamsJournal):
        with _journal_of_team(place) as journal:
            yield journal
        return
    with refusing(ValueError, about=f"--journal {place.text!r:.200}: "):
        maker = plugins.find("journal", place.name)
        options = dict(place.options)
        if source is not None and "source" not in options and _takes_option(maker, "source"):
            options["source"] = source
        journal = plugins.make("journal", place.name, options)
    try:
        yield journal
    finally:
        _close(journal)


@contextmanager
def _journal_of_team(place: TeamsJournal) -> Generator[Journal]:
    spec = read_team_spec(place.text)
    with importable(spec.folder):
        team, _ = load_team_file(spec)
        journal = runtime_of(bind_runtime(team)).store
        if journal is None:
            raise Refusal(
                f"--journal {place.text}: the team {team.name!r} has no journal: give its runtime one, "
                "as in kt.Runtime(journal=...)"
            )
        try:
            yield journal
        finally:
            _close(journal)


def _close(journal: object) -> None:
    close = getattr(journal, "close", None)
    if callable(close):
        close()


def _takes_option(maker: Any, option: str) -> bool:
    try:
        return option in inspect.signature(maker).parameters
    except (TypeError, ValueError):
        return False
