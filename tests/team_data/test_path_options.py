"""Options that are paths: declared by their types, noted where only the name says so, and kept in the data's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator, FilePath

import kairo_team as kt
from kairo_team import plugins
from kairo_team.data.reading import Reading
from kairo_team.data.teams.hints import FileOf, arguments_of, options_of
from kairo_team.data.teams.loading import _DOCUMENT
from kairo_team.data.teams.shapes import Built, ListOf, MapOf, OneOf, OrNull, PathOf, Shape
from kairo_team.plugins import undeclared_paths
from tests import plugin_packages
from tests.plugin_packages import Install

install = plugin_packages.install

OUTSIDE: Sequence[str] = (
    "/etc/passwd",
    "../secret",
    "inner/../../secret",
    "./..",
    "link/secret",
    "link",
    "inner/link-up/../secret",
    "~/secret",
    "~root/secret",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "file:secret?mode=rwc",
    "http://127.0.0.1/secret",
    "C:\\secret",
    "C:secret",
    "c:/secret",
    "\\\\server\\share\\secret",
    "..\\secret",
    "inner\\..\\..\\secret",
    "secret\0.yaml",
    "\0",
    "",
    "  ",
)
"""Spellings of places that are not in the folder, on some system at least."""
INSIDE: Sequence[str] = (
    "runs.db",
    "inner/runs.db",
    "./runs.db",
    "inner/../runs.db",
    "..runs.db",
    "notes: may.db",
    "x~1.db",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with links that lead out of it, and a secret beside it."""
    inside = tmp_path / "inside"
    (inside / "inner").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (inside / "link").symlink_to(tmp_path, target_is_directory=True)
    (inside / "inner" / "link-up").symlink_to(inside, target_is_directory=True)
    return inside


def read(make: Callable[..., Any], given: Mapping[str, Any], folder: Path, *, trusted: bool = False) -> list[str]:
    """Read options as data does; return the mistakes."""
    reading = Reading(folder, trusted)
    Built("plug-in", make, lambda: arguments_of(make)).read(given, (), reading)
    return [one.says for one in reading.mistakes]


# ---------------------------------------------------------------- every plug-in that ships


def _places(shape: Shape, value: Any, within: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the data that puts a path into each place of a shape that takes one."""
    if isinstance(shape, PathOf | FileOf):
        yield value
    elif isinstance(shape, ListOf):
        yield from ([one] for one in _places(shape.item, value, within))
    elif isinstance(shape, MapOf):
        yield from ({"name": one} for one in _places(shape.item, value, within))
    elif isinstance(shape, OrNull):
        yield from _places(shape.shape, value, within)
    elif isinstance(shape, OneOf):
        for one in shape.shapes:
            yield from _places(one, value, within)
    elif isinstance(shape, Built) and shape.name not in within:
        for name, argument in shape.arguments.items():
            yield from ({name: one} for one in _places(argument.shape, value, (*within, shape.name)))


def _options_with_paths() -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for kind, point in plugins.KINDS.items():
        for name in point.built_in if point.is_made else ():
            arguments = options_of(kind, name, plugins.find(kind, name)).arguments
            found += [(kind, name, option) for option, one in arguments.items() if [*_places(one.shape, "x")]]
    return found


SHIPPED = _options_with_paths()


def test_the_options_that_are_paths_are_the_ones_that_are_known() -> None:
    assert set(SHIPPED) == {
        ("agent", "team", "plan"),
        ("constraint", "external-signal", "signal"),
        ("guardrail", "tool-audit", "sink"),
        ("journal", "sqlite", "path"),
        ("permission-guard", "rules", "root"),
        ("tool-source", "mcp-stdio", "cwd"),
    }


@pytest.mark.parametrize(("kind", "name", "option"), SHIPPED)
def test_no_spelling_leads_out_of_the_folder_by_a_plug_in_that_ships(
    kind: str, name: str, option: str, folder: Path
) -> None:
    shape = options_of(kind, name, plugins.find(kind, name)).arguments[option].shape
    for spelling in OUTSIDE:
        for data in _places(shape, spelling):
            reading = Reading(folder, trusted=False)
            shape.read(data, (), reading)
            assert reading.mistakes, f"{kind} {name}: {option}={data!r} was taken"
            assert any("folder" in one.says or "must be the path" in one.says for one in reading.mistakes), spelling


@pytest.mark.parametrize("spelling", OUTSIDE)
def test_no_spelling_leads_out_of_the_folder_by_the_team_itself(spelling: str, folder: Path) -> None:
    for data in _places(_DOCUMENT, spelling):
        reading = Reading(folder, trusted=False)
        _DOCUMENT.read(data, (), reading)
        said = [one.says for one in reading.mistakes]
        assert any("folder" in says or "must be the path" in says for says in said), f"{data!r}: {said}"


@pytest.mark.parametrize("spelling", INSIDE)
def test_what_is_in_the_folder_is_taken(spelling: str, folder: Path) -> None:
    reading = Reading(folder, trusted=False)
    found: Any = PathOf().read(spelling, (), reading)
    assert not reading.mistakes
    assert Path(os.path.realpath(found)).is_relative_to(folder)


def test_no_plug_in_that_ships_has_an_option_that_is_named_like_a_path_and_not_declared() -> None:
    loose = {
        f"{kind} {name}": found
        for kind, point in plugins.KINDS.items()
        for name in point.built_in
        if (found := undeclared_paths(plugins.find(kind, name)))
    }
    assert not loose


# ---------------------------------------------------------------- types that strangers write


def text(path: str) -> None: ...
def texts(files: Sequence[str]) -> None: ...
def anything(folder: Any) -> None: ...
def unannotated(dir) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - the name of an option
def by_name(paths: Mapping[str, str]) -> None: ...
def nested(log_files: Mapping[str, list[str]]) -> None: ...
def ends_so(table_path: str | None = None) -> None: ...
def one_or_several(paths: Path | list[str]) -> None: ...


LOOSE: list[Callable[..., Any]] = [text, texts, anything, unannotated, by_name, nested, ends_so, one_or_several]


@pytest.mark.parametrize("make", LOOSE, ids=lambda make: make.__name__)
def test_an_option_that_is_named_like_a_path_alone_is_noted_and_for_trusted_data(
    make: Callable[..., Any], folder: Path
) -> None:
    (name,) = undeclared_paths(make)
    value = {"texts": ["a"], "by_name": {"a": "b"}, "nested": {"a": ["b"]}, "one_or_several": ["a"]}
    given = {name: value.get(make.__name__, "runs.db")}
    (says,) = read(make, given, folder)
    assert repr(name) in says
    assert "trusted=True" in says
    assert not read(make, given, folder, trusted=True)


def declared(path: str | os.PathLike[str]) -> None: ...
def paths_alone(path: Path) -> None: ...
def listed(files: Sequence[Path]) -> None: ...
def text_or_list(files: str | list[Path]) -> None: ...
def named_paths(tables: Mapping[str, Path]) -> None: ...
def deeply(tables: Mapping[str, list[str | Path]]) -> None: ...
def keys(sizes: Mapping[Path, int]) -> None: ...
def pair(both: tuple[str, Path]) -> None: ...
def several(all_of_them: tuple[Path, ...]) -> None: ...
def validated(table: Annotated[Path, BeforeValidator(lambda value: value)]) -> None: ...
def of_pydantic(table: FilePath | None = None) -> None: ...
def rest(*tables: Path) -> None: ...
def command(command: str | os.PathLike[str]) -> None: ...


DECLARED: list[tuple[Callable[..., Any], Callable[[str], Any]]] = [
    (declared, lambda path: path),
    (paths_alone, lambda path: path),
    (listed, lambda path: ["runs.db", path]),
    (text_or_list, lambda path: path),
    (text_or_list, lambda path: [path]),
    (named_paths, lambda path: {"a": path}),
    (deeply, lambda path: {"a": ["runs.db", path]}),
    (keys, lambda path: {path: 1}),
    (pair, lambda path: ["runs.db", path]),
    (pair, lambda path: [path, "runs.db"]),
    (several, lambda path: [path, path]),
    (validated, lambda path: path),
    (of_pydantic, lambda path: path),
    (rest, lambda path: ["runs.db", path]),
    (command, lambda path: path),
]


@pytest.mark.parametrize("spelling", OUTSIDE)
def test_no_spelling_leads_out_of_the_folder_whatever_type_declares_the_path(spelling: str, folder: Path) -> None:
    for make, data in DECLARED:
        (name,) = arguments_of(make)
        assert read(make, {name: data(spelling)}, folder), f"{make.__name__}: {data(spelling)!r} was taken"


def pattern(path: Annotated[str, "a pattern"]) -> None: ...
def number(max_path: int = 3) -> None: ...
def switch(*, file: bool = False) -> None: ...
def files(files: Sequence[kt.File]) -> None: ...
def profile(profile: str) -> None: ...


def test_what_is_said_to_be_no_path_is_not_noted(folder: Path) -> None:
    assert [undeclared_paths(make) for make in (pattern, number, switch, files, profile, declared)] == [[]] * 6
    assert not read(pattern, {"path": "/mcp/**"}, folder)


def test_a_path_that_data_gives_is_the_one_beside_the_data_and_not_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    found: list[Any] = []

    def keep(path: Path) -> None:
        found.append(path)

    assert not read(keep, {"path": "runs.db"}, folder)
    assert found == [folder / "runs.db"]


# ---------------------------------------------------------------- a package

SOURCE = """
import os
class Log:
    def __init__(self, path: str, table: str | os.PathLike[str] | None = None):
        self.path, self.table = path, table
    async def evaluate(self, context):
        raise NotImplementedError
def quiet(seconds: int = 5, log_file: str = ""):
    from kairo_team.governance import Timeout
    return Timeout(seconds)
"""


def test_the_lint_notes_texts_that_are_named_like_paths(install: Install) -> None:
    points = {"guardrail": {"acme-log": "acme_paths:Log"}, "constraint": {"quiet": "acme_paths:quiet"}}
    install("acme-paths", points, SOURCE)
    found = {one.name: plugins.examine(one) for one in plugins.installed() if one.distribution == "acme-paths"}
    assert found["acme-log"].startswith("it needs 'path'; its shape is checked when it is made; ")
    for name, option in (("acme-log", "path"), ("quiet", "log_file")):
        assert f"'{option}' is named like a path" in found[name]
        assert "os.PathLike[str]" in found[name]
    assert "table" not in found["acme-log"]


def test_a_team_that_is_not_trusted_gives_a_package_no_path_that_it_did_not_declare(
    install: Install, folder: Path
) -> None:
    install("acme-paths", {"guardrail": {"acme-log": "acme_paths:Log"}}, SOURCE)
    team = {"name": "desk", "members": [{"role": "a", "agent": {"mini": {"model": "local:smollm2", "max_turns": 1}}}]}

    def load(*, trusted: bool = False, **options: str) -> kt.Team:
        file = folder / "team.json"
        file.write_text(json.dumps(team | {"guardrails": [{"acme-log": options}]}))
        return kt.load_team(file, trusted=trusted)

    with pytest.raises(ValueError, match="'path' is not declared as one"):
        load(path="log.txt")
    with pytest.raises(ValueError, match="leads out of the file's folder"):
        load(path="log.txt", table="../secret")
    load(path="log.txt", table="../secret", trusted=True)
