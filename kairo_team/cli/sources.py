"""Make jobs from a file, from the demo, or from a recorded run, which names its own source."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from kairo_team.cli.budgets import with_limits
from kairo_team.cli.databases import DatabaseUrl, Place, clustered
from kairo_team.cli.job import GoOn, Job
from kairo_team.cli.journals import command, made, other_journal, quoted
from kairo_team.cli.loading import importable, load_team_file, read_team_spec
from kairo_team.cli.named_journals import PublishedJournal, TeamsJournal
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.errors import KairoError
from kairo_team.files import File
from kairo_team.plugins import resolve
from kairo_team.team import TeamExecutionRequest
from kairo_team.views.other_journals import Book, OtherJournal
from kairo_team.views.run_record import recorded_request

if TYPE_CHECKING:
    from kairo_team.cluster.delivery import EngineName
    from kairo_team.contracts import TeamCoordinator
    from kairo_team.recorded import RecordedRun

_DEMO: Final = "kairo_team.examples.release_notes"


@contextmanager
def loaded(
    file: str,
    goal: str | None,
    budget: str | None = None,
    model: str | None = None,
    coordinator: str | None = None,
    files: Sequence[Path] | None = None,
) -> Generator[Job]:
    """Build the job that a file and the command line describe; the file's own imports work inside the block."""
    spec = read_team_spec(file)
    with importable(spec.folder):
        team, request = load_team_file(spec)
        asked = request(goal)
        if files:
            with refusing(ValueError, about="--file: "):
                asked = replace(asked, files=[*asked.files, *(File(path=path) for path in files)])
        yield Job(team, with_limits(asked, budget), named_coordinator(coordinator), model)


def named_coordinator(name: str | None, where: str = "--coordinator") -> TeamCoordinator | None:
    """Return the coordinator with this name; None without a name."""
    with refusing(ValueError):
        return None if name is None else cast("TeamCoordinator", resolve(where, "coordinator", name))


def demo_job(repo: Path | None, budget: str | None, model: str) -> Job:
    """Build the job of `kairo demo`."""
    if repo is not None and not repo.is_dir():
        raise Refusal(f"--repo {str(repo)!r} is not a directory: give the path of a git repository")
    with refusing(KairoError, ValueError, OSError, about="the demo cannot be set up: "):
        team, request, coordinator, note = import_module(_DEMO).build(repo=repo, model=model)
    return Job(team, with_limits(request, budget), coordinator, note=note)


# ---------------------------------------------------------------- with a journal


def file_source(file: str, goal: str | None, model: str | None, coordinator: str | None) -> Mapping[str, str]:
    """Describe how a file starts a run, so that the run can be resumed from it."""
    spec = read_team_spec(file)
    place = {"file": str(spec.file.resolve())} if spec.module is None else {"module": spec.module}
    where = {**place, "team": spec.team}
    found = {**where, "goal": goal, "model": model, "coordinator": coordinator}
    return {name: text for name, text in found.items() if text is not None}


def demo_source(model: str) -> Mapping[str, str]:
    """Describe how the demo starts a run, so that the run can be resumed."""
    return {"demo": "release notes", "model": model}


@contextmanager
def recorded(
    job: Job,
    place: Place | None,
    source: Mapping[str, str],
    run_id: str | None = None,
    engine: EngineName | None = None,
    account: str | None = None,
) -> Generator[Job]:
    """Give a job its journal, if one is named, and its run's id and account; a database's workers make the attempts."""
    job = with_id(job, run_id)
    if place is None:
        if account is not None:
            raise Refusal("--account names an account of a journal or a database: give --journal or --database too")
        yield job
    elif isinstance(place, Path):
        with made(place, source) as journal:
            yield replace(job, journal=journal.charging(account))
    elif isinstance(place, TeamsJournal):
        raise Refusal(f"--journal {place.text}: a team's own journal is used when --journal is left out")
    elif isinstance(place, PublishedJournal):
        if account is not None:
            raise Refusal("--account names an account of a file or a database: a journal of a package has none here")
        with other_journal(place, source) as book:
            yield replace(job, journal=book)
    else:
        with clustered(place, engine, source) as cluster:
            yield replace(job, journal=cluster.journal.charging(account), cluster=cluster)


@contextmanager
def on_cluster(job: Job, place: Place | None, engine: EngineName | None) -> Generator[Job]:
    """Have workers make the attempts of a resumed job, if its journal is a database."""
    if not isinstance(place, DatabaseUrl):
        yield job
        return
    with clustered(place, engine) as cluster:
        yield replace(job, journal=cluster.journal, cluster=cluster)


def refuse_model(place: Place | None, model: str | None) -> None:
    """Refuse `--model` where workers make the attempts."""
    if isinstance(place, DatabaseUrl) and model is not None:
        raise Refusal("--model does not reach the workers that make the attempts: name the model in the team's file")


def send_again(run: RecordedRun, place: Place | None, engine: EngineName | None) -> None:
    """Send a run that was given up to its workers again; `Refusal` for any other run."""
    if not isinstance(place, DatabaseUrl):
        raise Refusal("--by-workers needs the database of the workers: give --database URL, or set KAIRO_DATABASE")
    with clustered(place, engine) as cluster:
        cluster.monitor.resend(run.run_id)


def with_id(job: Job, run_id: str | None) -> Job:
    """Give a job the id of its run, if one is given."""
    with refusing(ValueError, about="--run-id: "):
        return job if run_id is None else replace(job, request=replace(job.request, run_id=run_id))


@contextmanager
def loaded_again(
    run: RecordedRun, journal: Book, file: str | None, budget: str | None, model: str | None, how: GoOn
) -> Generator[Job]:
    """Build the job that resumes a run, from the file that started it or another one, with its model or another one."""
    model = run.source.get("model") if model is None else model
    coordinator = named_coordinator(run.source.get("coordinator"), f"run {run.run_id} began with a --coordinator")
    if file is None and "demo" in run.source:
        demo = import_module(_DEMO).make_team(model)
        yield _going_on(Job(demo, _request_of(journal, run), journal=journal), budget, how)
        return
    spec = read_team_spec(file if file is not None else _file_of(run, journal))
    with importable(spec.folder):
        team, _ = load_team_file(spec)
        request = _request_of(journal, run)  # its classes may be the file's
        yield _going_on(Job(team, request, coordinator, model, journal=journal), budget, how)


def _request_of(journal: Book, run: RecordedRun) -> TeamExecutionRequest:
    """Return the request that began a run; of a journal that does not show it, one with the run's goal and id."""
    if isinstance(journal, OtherJournal):
        return TeamExecutionRequest(run.goal, run_id=run.run_id)
    return recorded_request(journal, run.run_id)


def _going_on(job: Job, budget: str | None, how: GoOn) -> Job:
    if isinstance(job.journal, OtherJournal) and budget is not None:
        raise Refusal(f"--budget: the limits of a run in {job.journal.place} cannot be read: let the run keep them")
    job = replace(job, request=with_limits(job.request, budget))
    return replace(job, go_on=how._replace(budget=None if budget is None else job.request.config.budget))


def _file_of(run: RecordedRun, journal: Book) -> str:
    file, team = run.source.get("file"), run.source.get("team")
    if "module" in run.source:
        return f"{run.source['module']}:{team}"
    again = command("resume", quoted(run.run_id), "FILE.py[:TEAM]", journal=journal)
    if file is None:
        raise Refusal(f"run {run.run_id} was not started from a file by this command: name the file, {again}")
    if not Path(file).is_file():
        raise Refusal(f"run {run.run_id} was started from {file!r}, which is not there: name the file, {again}")
    return file if team is None else f"{file}:{team}"
