"""`FILE.py[:TEAM]`, or a file of data: load it and find its team, request and plan."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kairo_team.cli.refusal import Refusal, explain, refusing
from kairo_team.data.files import SUFFIXES
from kairo_team.errors import MissingExtra, Misuse, known
from kairo_team.tasks import TaskGraph
from kairo_team.team import Team, TeamConfig, TeamExecutionRequest

if TYPE_CHECKING:
    from types import ModuleType

    from kairo_team.data.teams.loading import TeamJob

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, slots=True)
class Spec:
    """The parts of `FILE.py[:TEAM]`, or of `module:TEAM`."""

    file: Path
    team: str | None
    module: str | None = None
    """Name of a module that is imported by name; `file` is then the module's file."""

    @property
    def folder(self) -> Path:
        """The folder that imports of the file start from, as when Python runs it."""
        return Path.cwd() if self.module is not None else self.file.resolve().parent


def read_team_spec(text: str) -> Spec:
    """Split `FILE.py[:TEAM]` or `module:TEAM`, or take the path of a team as data; check that the file exists."""
    module, colon, team = text.partition(":")
    if colon and not module.endswith(".py") and all(map(str.isidentifier, [*module.split("."), team])):
        return Spec(_file_of_module(module), team, module)
    return read_spec(text, f"a kt.Team, or of a team as data in {', '.join(SUFFIXES)}", also=SUFFIXES)


def read_spec(text: str, builds: str = "a kt.Team", name: str = "TEAM", *, also: Collection[str] = ()) -> Spec:
    """Split `FILE.py[:TEAM]` and check that the file exists; `builds` and `name` describe the expected object.

    `also` are the suffixes of files that hold one object each, which has no name.
    """
    file, team = Path(text), None
    if not _exists(file) and ":" in text:
        before, _, team = text.rpartition(":")
        file = Path(before)
        if not team:
            raise Refusal(f"{text!r} names no {name.lower()} after the colon: write FILE.py or FILE.py:{name}")
    if not _exists(file):
        raise Refusal(f"there is no file {str(file)!r:.200}: give the path of a Python file that builds {builds}")
    if file.is_file() and file.suffix.lower() in also:
        if team is not None:
            raise Refusal(f"{str(file)!r} holds one team: leave out {':' + team!r}")
        return Spec(file, None)
    if not file.is_file() or file.suffix != ".py":
        raise Refusal(f"{str(file)!r} is not a Python file: give the path of a .py file that builds {builds}")
    return Spec(file, team)


def _file_of_module(name: str) -> Path:
    """Return the file of a module that can be imported from here."""
    with importable(Path.cwd()), refusing(ImportError, ValueError, about=f"module {name!r} cannot be imported: "):
        found = importlib.util.find_spec(name)
    if found is None or found.origin is None or not found.has_location:
        raise Refusal(
            f"there is no module {name!r} here: start the command where Python finds it, or give FILE.py:TEAM"
        )
    return Path(found.origin)


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # a name that no file can have
        return False


@contextmanager
def importable(folder: Path) -> Generator[None]:
    """Make the files in a folder importable, as when Python runs one; agents may import them while they work."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def load_module(spec: Spec) -> ModuleType:
    """Import a file by its path, or a module by its name; a `Refusal` names the line of an error."""
    file = spec.file
    try:
        return _load_file(file) if spec.module is None else importlib.import_module(spec.module)
    except (Exception, SystemExit) as error:
        raise Refusal(f"{file} cannot be loaded: {_where(error, file)}{_explain_import(error)}") from error


def _load_file(file: Path) -> ModuleType:
    # The file's own name, unless a module has that name already.
    taken = file.stem in sys.modules or file.stem in sys.stdlib_module_names or not file.stem.isidentifier()
    name = f"_kairo_file_{file.stem}" if taken else file.stem
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it runs, as Python does: dataclasses look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _where(error: BaseException, file: Path) -> str:
    """Return the line that raised the error, in the file or another one in its folder."""
    if isinstance(error, SyntaxError) and error.filename:
        return _place(Path(error.filename), error.lineno, file)
    folder = file.resolve().parent
    places = [(Path(frame.filename).resolve(), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [place for place in places if place[0].is_relative_to(folder) and "site-packages" not in place[0].parts]
    return _place(*own[-1], file) if own else ""


def _place(path: Path, line: int | None, file: Path) -> str:
    other = "" if path.resolve() == file.resolve() else f"{path.name}, "
    return f"{other}line {line}: " if line is not None else other


def _explain_import(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        return f"{explain(error)}: install {error.name!r} into this environment, or put it into the file's folder"
    if isinstance(error, SystemExit):
        return "it ended the program (SystemExit): put what it does under `if __name__ == '__main__':`"
    return explain(error)


def load_team_file(spec: Spec) -> tuple[Team, Callable[[str | None], TeamExecutionRequest]]:
    """Return the team of a file, and a function that makes its request from a goal or None."""
    if spec.file.suffix.lower() in SUFFIXES:
        job = _load_data(spec.file)
        return job.team, partial(_request_of, job)
    module = load_module(spec)
    team = find_team(module, spec)
    return team, partial(find_request, module, team)


def load_subject(spec: Spec) -> tuple[Team, TeamConfig, TaskGraph | None]:
    """Return the team of a file, with the file's config and plan for runs whose goals come from elsewhere."""
    if spec.file.suffix.lower() in SUFFIXES:
        job = _load_data(spec.file)
        return job.team, job.config, job.plan
    module = load_module(spec)
    team = find_team(module, spec)
    request, plan = getattr(module, "request", None), getattr(module, "plan", None)
    plan = plan if isinstance(plan, TaskGraph) else None
    if isinstance(request, TeamExecutionRequest):
        return team, request.config, request.plan or plan
    return team, TeamConfig(), plan


def _load_data(file: Path) -> TeamJob:
    """Load a team as data."""
    from kairo_team.data.teams.loading import load_job  # slow to import

    return load_trusted(load_job, file)


def load_trusted(load: Callable[..., Loaded], file: Path) -> Loaded:
    """Load a file of data; a `Refusal` says what is wrong with it."""
    try:
        return load(file, trusted=True)  # like a Python file, because the user named it
    except OSError as error:
        raise Refusal(f"{str(file)!r} cannot be read: {explain(error)}") from None
    except ValueError as error:
        raise Refusal(*str(error).split("\n")) from None
    except MissingExtra as error:
        raise Refusal(f"{file}: {error}") from None


@refusing(Misuse, ValueError)
def _request_of(job: TeamJob, goal: str | None) -> TeamExecutionRequest:
    return job.request(goal)


def find_team(module: ModuleType, spec: Spec) -> Team:
    """Return the named team, or the module's only one."""
    teams = {name: value for name, value in vars(module).items() if isinstance(value, Team)}
    # Reversed, so that the first of several names for one team wins.
    public = {id(team): name for name, team in reversed(teams.items()) if not name.startswith("_")}
    names = known(public.values())
    if spec.team is not None:
        return _named_team(module, spec, names if public else "no team at its top level")
    if not public:
        raise Refusal(f'{spec.file} builds no kt.Team at its top level: add team = kt.Team("name", [kt.Member(...)])')
    if len(public) > 1:
        example = f"kairo run {spec.file}:{next(reversed(public.values()))}"
        raise Refusal(f"{spec.file} builds several teams, {names}: name the one to run, as in {example}")
    return teams[next(iter(public.values()))]


def _named_team(module: ModuleType, spec: Spec, names: str) -> Team:
    assert spec.team is not None
    found = getattr(module, spec.team, None)
    if isinstance(found, Team):
        return found
    is_other = f"{spec.team!r} in {spec.file} is a {type(found).__name__}, not a kt.Team"
    wrong = is_other if hasattr(module, spec.team) else f"{spec.file} has no {spec.team!r}"
    makes = (
        f", or add made = {spec.team}() and name that" if isfunction(found) and not signature(found).parameters else ""
    )
    raise Refusal(f"{wrong}: it has {names}{makes}")


@refusing(ValueError)
def find_request(module: ModuleType, team: Team, goal: str | None) -> TeamExecutionRequest:
    """Return the module's `request`, or one around its `plan`; a goal replaces theirs."""
    request, plan = getattr(module, "request", None), getattr(module, "plan", None)
    plan = plan if isinstance(plan, TaskGraph) else None
    if isinstance(request, TeamExecutionRequest):
        request = replace(request, plan=request.plan or plan)
        return request if goal is None else replace(request, goal=goal)
    if goal is None and plan is None:
        raise Refusal(
            f"team {team.name!r} has no goal: give one after the file, or let the file build a "
            "`request` (kt.TeamExecutionRequest) or a `plan` (kt.TaskGraph)"
        )
    return TeamExecutionRequest(goal if goal is not None else f"Carry out the plan of {team.name}.", plan=plan)
