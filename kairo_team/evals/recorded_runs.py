"""`judge_runs`: finished runs of a journal are judged again; agreement with what was accepted, and drift by week."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kairo_team import api
from kairo_team._util.frozen import check_kind, known_call
from kairo_team._util.plugin_shapes import check_plug_in
from kairo_team.budget import Budget, BudgetPolicy, check_count
from kairo_team.durable.codec import CorruptRecord
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.errors import JournalError, Misuse, RunNotFound, known
from kairo_team.evals.dataset import Case, Dataset
from kairo_team.evals.eval_result import VERSION, EvalResult, Trial
from kairo_team.evals.eval_run import EvalJob, job_of, transcript_of
from kairo_team.evaluators.calibration.agreement import Agreement
from kairo_team.evaluators.calibration.confidence_bounds import Proportion
from kairo_team.recorded import ENDED, RecordedRun
from kairo_team.results import AgentOutput
from kairo_team.team import TeamExecutionRequest
from kairo_team.verdicts import Cause

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.budget import Usage
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy, MemberContext
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.evaluators.rubric import Rubric
    from kairo_team.files import File
    from kairo_team.messages import Message
    from kairo_team.results import TeamResult
    from kairo_team.tasks import Assignment

_OTHER: Final = "of another team"
_NOT_FINISHED: Final = "not finished"
_EARLIER: Final = "begun earlier"
_NO_RESULT: Final = "without a result"
_NOT_READABLE: Final = "not readable"
_FOR_JUDGES: Final = BudgetPolicy(plan=0, evaluate=0.999, reserve=0)
"""The member spends nothing, so reviews may have the whole budget."""
_DIFFERENT: Final = ("flip_rate", "seconds", "seconds_p95")
"""Metrics of an eval that say nothing here: no team runs."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A finished run that was judged again."""

    run_id: str
    started_at: float
    """Seconds since 1970."""
    state: str
    """How the run ended."""
    accepted: bool
    """Whether the run had an output. False: a review refused its work, which was whole."""

    @property
    def week(self) -> str:
        """The week of ISO 8601 in which the run began, in UTC, such as `2026-W48`."""
        year, week, _ = datetime.fromtimestamp(self.started_at, UTC).isocalendar()
        return f"{year}-W{week:02}"


@dataclass(frozen=True, slots=True)
class Week:
    """The runs of a week that the judge decided."""

    week: str
    runs: int
    """All that were drawn, decided or not."""
    passed: Proportion
    """How many pass now."""
    agreed: Proportion
    """How many pass now and were accepted then, or neither."""


@dataclass(frozen=True)
class RejudgedRuns:
    """What a rubric says now about finished runs, and what was accepted then."""

    result: EvalResult
    """A trial for each run; its case is the run's id."""
    runs: tuple[PastRun, ...]
    """The runs in the order of the trials, earliest first."""
    skipped: Mapping[str, int]
    """How many runs of the journal could not be judged, by reason."""
    not_drawn: int = 0
    """How many runs the sample left out; some of them may have no result."""
    seed: int = 0

    @property
    def _decided(self) -> list[tuple[PastRun, bool]]:
        """The runs that passed or failed, and whether they passed."""
        pairs = zip(self.runs, self.result.trials, strict=True)
        return [(run, trial.outcome == "pass") for run, trial in pairs if trial.outcome in ("pass", "fail")]

    @property
    def agreement(self) -> Proportion:
        """How many runs pass now and were accepted then, or neither, of those that were decided."""
        return self._counted.agreed

    @cached_property
    def _counted(self) -> Agreement:
        """The counts of the four kinds: a row for what was accepted then, a column for what passes now."""
        counts = Counter((run.accepted, passed) for run, passed in self._decided)
        rows = [[counts[then, now] for now in (False, True)] for then in (False, True)]
        return Agreement("runs", ("refused", "accepted"), rows, (0, 0))

    @property
    def accepted(self) -> Proportion:
        """How many of the runs that were accepted then pass now."""
        fails, passes = self._counted.counts[1]
        return Proportion(passes, fails + passes)

    @property
    def refused(self) -> Proportion:
        """How many of the runs that were refused then pass now."""
        fails, passes = self._counted.counts[0]
        return Proportion(passes, fails + passes)

    @cached_property
    def weeks(self) -> Sequence[Week]:
        """The weeks in which runs began, earliest first; a week without runs is left out."""
        drawn = Counter(run.week for run in self.runs)
        found: dict[str, list[tuple[PastRun, bool]]] = {name: [] for name in sorted(drawn)}
        for run, passed in self._decided:
            found[run.week].append((run, passed))
        return [
            Week(
                name,
                drawn[name],
                Proportion(sum(passed for _, passed in one), len(one)),
                Proportion(sum(passed == run.accepted for run, passed in one), len(one)),
            )
            for name, one in found.items()
        ]

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the eval's result, and how they compare with what was accepted then.

        `agreement` is the share of the decided runs that pass now and were accepted then, or neither; `kappa` is the
        same beyond chance (Cohen). `accepted_pass_rate` and `refused_pass_rate` are the shares that pass now among the
        runs that were accepted or refused then. `drift` is the pass rate of the last week minus the rate of all weeks
        before; `drift_p_value` is the exact test of Fisher. Metrics without anything to count are left out.
        """
        found = {name: one for name, one in self.result.metrics.items() if name not in _DIFFERENT}
        shares = {
            "agreement": self.agreement.rate,
            "kappa": self._counted.kappa,
            "accepted_pass_rate": self.accepted.rate,
            "refused_pass_rate": self.refused.rate,
        }
        return found | {name: one for name, one in shares.items() if one is not None} | self._drift()

    def _drift(self) -> dict[str, float]:
        decided = [one.passed for one in self.weeks if one.passed.n]
        if len(decided) < 2:  # noqa: PLR2004 - a change takes two weeks
            return {}
        *earlier, last = decided  # the last week against all before: one week alone is few runs
        before = Proportion(sum(one.k for one in earlier), sum(one.n for one in earlier))
        return {
            "drift": last.k / last.n - before.k / before.n,
            "drift_p_value": fisher_test(last.k, last.n, before.k, before.n),
        }

    def to_json(self) -> str:
        """Return the result as JSON that `EvalResult.load` reads, with the runs and weeks under `runs`."""
        fields: dict[str, Any] = json.loads(self.result.to_json())
        weeks = [
            {
                "week": one.week,
                "runs": one.runs,
                "decided": one.passed.n,
                "passed": one.passed.k,
                "agreed": one.agreed.k,
            }
            for one in self.weeks
        ]
        judged = [
            {"run_id": one.run_id, "started_at": one.started_at, "state": one.state, "accepted": one.accepted}
            for one in self.runs
        ]
        runs = {
            "seed": self.seed,
            "not_drawn": self.not_drawn,
            "skipped": dict(self.skipped),
            "weeks": weeks,
            "judged": judged,
        }
        document = fields | {"version": VERSION, "metrics": dict(self.metrics), "runs": runs}
        return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def fisher_test(k: int, n: int, other_k: int, other_n: int) -> float:
    """Return the two-sided exact p-value of Fisher (1935) for `k` of `n` and `other_k` of `other_n`."""
    both = k + other_k
    seen = range(max(0, both - other_n), min(n, both) + 1)
    ways = [math.comb(n, one) * math.comb(other_n, both - one) for one in seen]
    observed = math.comb(n, k) * math.comb(other_n, other_k)
    # Whole numbers until the end: tables as likely as the observed one must compare as equal.
    return sum(one for one in ways if one <= observed) / math.comb(n + other_n, both)


@known_call
async def judge_runs(
    journal: SqlJournal,
    rubric: Rubric | EvaluationStrategy,
    *,
    team: str,
    since: float | None = None,
    sample: int | None = None,
    seed: int = 0,
    judge: str | ChatModel | Agent | None = None,
    parallel: int = 4,
    budget: Budget | None = None,
    runtime: Runtime | None = None,
) -> RejudgedRuns:
    """Judge what finished runs of a team returned, and compare with what was accepted then.

    No run is repeated, and the journal is only read. `since` leaves out runs that began more than so many seconds ago.
    `sample` draws so many runs, by the seed and the ids of the runs: the order of the records plays no part, and a
    larger sample contains a smaller one. Runs that have nothing to judge are counted in `skipped`: a run without an
    output is judged only if a review refused its work and nothing of it was cut off. `judge`, `parallel` and `budget`
    mean the same as for `run_eval`. `runtime` has the judge's models, and may record the review in another journal.
    Raises `ValueError` if no run can be judged, and `ValueError` or `Misuse` for arguments that are not possible.
    """
    if not isinstance(journal, SqlJournal):
        raise ValueError(
            "judge_runs: journal must be a journal of a file or a database, such as kt.SqliteJournal('runs.db'), "
            f"not {journal!r:.80}"
        )
    kept: Any = None if runtime is None else runtime.store
    if kept is not None and getattr(kept, "place", None) == journal.place:
        raise ValueError(
            f"judge_runs: the runtime records in {journal.place}, which is only read: give one with another journal"
        )
    job = prepare_runs_eval(
        journal, rubric, team=team, since=since, sample=sample, seed=seed, judge=judge, parallel=parallel, budget=budget
    )
    result = await api.run(job.inner.team, job.inner.request, coordinator=job.inner.coordinator, runtime=runtime)
    if result.refused:
        raise Misuse(f"nothing was judged: {result.error}")
    return job.result(result)


@dataclass(frozen=True)
class RunsJob:
    """The review of finished runs as an eval, whose team returns what the runs returned."""

    inner: EvalJob
    runs: tuple[PastRun, ...]
    """Earliest first."""
    skipped: Mapping[str, int]
    not_drawn: int
    seed: int

    def result(self, ended: TeamResult) -> RejudgedRuns:
        """Return what was found, once the eval has ended."""
        found = self.inner.result(ended)
        trials = tuple(map(_as_judged, found.trials))
        lacking = [one for one in trials if one.outcome == "not run"]
        why = (
            f"{len(lacking):,} of {len(trials):,} runs were not judged: {lacking[0].why or ended.error}"
            if lacking
            else None
        )
        judged = replace(found, trials=trials, error=why)
        return RejudgedRuns(judged, self.runs, self.skipped, self.not_drawn, self.seed)


def prepare_runs_eval(
    journal: SqlJournal,
    rubric: Rubric | EvaluationStrategy,
    *,
    team: str,
    since: float | None = None,
    sample: int | None = None,
    seed: int = 0,
    judge: str | ChatModel | Agent | None = None,
    parallel: int = 4,
    budget: Budget | None = None,
) -> RunsJob:
    """Draw the runs and prepare their review: take the arguments of `judge_runs`, and raise its errors about them."""
    check_kind("judge_runs: team", team, str)
    check_count("judge_runs: parallel", parallel, 1)
    check_kind("judge_runs: budget", budget, Budget, or_none=True)
    check_plug_in("judge_runs: rubric", "an evaluator", rubric, "evaluate", "context")
    if sample is not None:
        check_count("judge_runs: sample", sample, 1)
    if type(seed) is not int:
        raise ValueError(f"judge_runs: seed must be a whole number, not {seed!r:.80}")
    if since is not None and (type(since) not in (int, float) or not 0 <= since < math.inf):
        raise ValueError(f"judge_runs: since must be a number of seconds from 0, not {since!r:.80}")
    works, skipped, not_drawn = _draw(journal, team, since, sample, seed)
    dataset = Dataset([Case(one.run.run_id, one.goal, one.context) for one in works], f"runs of {team}"[:80])
    replay = _Replay({f"{one.run.run_id}.1": one for one in works})
    files = {f"{one.run.run_id}.1": one.files for one in works}
    inner = job_of(
        replay,
        team,
        dataset,
        {"rubric": rubric},
        judge=judge,
        parallel=parallel,
        budget=budget,
        files=files,
        policy=_FOR_JUDGES,
    )
    return RunsJob(inner, tuple(one.run for one in works), skipped, not_drawn, seed)


def _as_judged(trial: Trial) -> Trial:
    """Return a trial as one that was not run if no budget was left for its review: the member itself never fails."""
    if trial.outcome == "error" or trial.cause is Cause.JUDGE_BUDGET:
        return replace(trial, outcome="not run", cause=None)
    return trial


class _Replay:
    """The member of the review: it returns what a run returned."""

    reentrant = True
    own_loop = True

    def __init__(self, works: Mapping[str, _Work]) -> None:
        self._works = works

    async def run(self, assignment: Assignment, context: MemberContext) -> AgentOutput:
        work = self._works[assignment.task.id]
        return AgentOutput(work.artifact, turns_completed=0, usage=work.usage, transcript=work.transcript)


@dataclass(frozen=True, slots=True)
class _Work:
    run: PastRun
    goal: str
    context: Mapping[str, Any]
    files: Sequence[File]
    artifact: Artifact
    usage: Usage
    transcript: Sequence[Message]


def _draw(
    journal: SqlJournal, team: str, since: float | None, sample: int | None, seed: int
) -> tuple[list[_Work], Mapping[str, int], int]:
    """Return the works of the runs that are drawn, how many were skipped by reason, and how many were not looked at."""
    recorded = journal.runs()
    earliest = None if since is None else time.time() - since
    reasons = [_reason(run, team, earliest) for run in recorded]
    skipped = Counter(one for one in reasons if one is not None)
    chosen = [run for run, why in zip(recorded, reasons, strict=True) if why is None]
    chosen.sort(key=lambda run: hashlib.sha256(f"{seed}:{run.run_id}".encode()).digest())
    works: list[_Work] = []
    looked = 0
    for run in chosen:
        if len(works) == sample:  # None never equals a number: all are drawn
            break
        looked += 1
        found = _work_of(journal, run)  # as late as possible: it reads the whole run
        if isinstance(found, str):
            skipped[found] += 1
        else:
            works.append(found)
    if not works:
        raise ValueError(_explain_no_runs(recorded, team, skipped))
    works.sort(key=lambda one: (one.run.started_at, one.run.run_id))
    return works, dict(skipped), len(chosen) - looked


def _explain_no_runs(recorded: Sequence[RecordedRun], team: str, skipped: Mapping[str, int]) -> str:
    said = f"no finished run of team {team!r} has a result to judge"
    others = {run.team for run in recorded}
    if not others:
        return f"{said}: the journal has no runs"
    if team not in others:
        return f"{said}; the journal has runs of {known(sorted(others))}"
    return f"{said}; skipped: {', '.join(f'{many:,} {why}' for why, many in skipped.items())}"


def _reason(run: RecordedRun, team: str, earliest: float | None) -> str | None:
    """Return why a run is skipped, as far as its row shows."""
    if run.team != team:
        return _OTHER
    if run.state not in ENDED:
        return _NOT_FINISHED
    return _EARLIER if earliest is not None and run.started_at < earliest else None


def _work_of(journal: SqlJournal, run: RecordedRun) -> _Work | str:
    """Return what a run was asked for and returned, or why it is skipped."""
    try:
        result = journal.result(run.run_id)
        transcript = transcript_of(journal, run.run_id)
        with journal.database.reading() as connection:
            row = connection.execute("SELECT request FROM run WHERE run_id = ?", (run.run_id,)).fetchone()
            what = f"the request of run {run.run_id!r}"
            request = None if row is None else journal.database.look_at(row["request"], TeamExecutionRequest, what)
    except RunNotFound:  # forgotten meanwhile
        return _NO_RESULT
    except (JournalError, CorruptRecord):
        return _NOT_READABLE
    artifact = None if result is None else _judged_of(result)
    if result is None or request is None or artifact is None:
        return _NO_RESULT
    past = PastRun(run.run_id, run.started_at, run.state, accepted=result.artifact is not None)
    return _Work(past, request.goal, request.context, request.files, artifact, result.usage, transcript)


def _judged_of(result: TeamResult) -> Artifact | None:
    """Return what a run returned, or the whole work that a review refused; None without either."""
    if result.artifact is not None:
        return result.artifact
    made = [one for one in result.outcomes if one.artifact is not None]
    refused = any(one.verdict is not None for one in made)
    if result.partial_artifact is None or not refused or any(one.artifact.partial for one in made if one.artifact):
        return None
    return replace(result.partial_artifact, partial=False)  # whole: it was refused, not cut off
