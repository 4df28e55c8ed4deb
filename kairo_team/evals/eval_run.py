"""`run_eval`: an eval is itself a run, with a task for each trial.

Its trials therefore run side by side under one budget, a journal can resume it, and the views of runs show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team import api
from kairo_team._util.counts import count
from kairo_team._util.frozen import EMPTY, check_kind, known_call, thaw
from kairo_team._util.plugin_shapes import check_plug_in
from kairo_team.agents.team_agent import TeamAgent
from kairo_team.budget import Budget, BudgetPolicy, check_count
from kairo_team.coordinators.handoff import handed_to
from kairo_team.coordinators.reviewers import Reviewers
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.engine.records.digests import criteria_digest
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.errors import (
    HaltError,
    InsufficientBudget,
    Misuse,
    PlanMismatch,
    RunExists,
    RunFinished,
    kinds_of,
    known,
)
from kairo_team.evals.dataset import Case, Dataset, id_of
from kairo_team.evals.eval_result import EvalResult, Outcome, Trial
from kairo_team.evaluators.checks.tool_calls import OF_CALLS
from kairo_team.evaluators.fingerprint import digest_of
from kairo_team.evaluators.rubric import Rubric
from kairo_team.evaluators.transcripts import attempt_line
from kairo_team.messages import Message
from kairo_team.plugins import resolve
from kairo_team.results import Attempt
from kairo_team.tasks import Assignment, Task, TaskGraph, TaskStatus
from kairo_team.team import Member, Team, TeamConfig, TeamExecutionRequest
from kairo_team.verdicts import Cause, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy, MemberContext, TeamCoordinator
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.files import File
    from kairo_team.results import AgentOutput, TaskOutcome, TeamResult

_SUBJECT: Final = "team"
"""Name of the member that is the team under test."""
_ALL: Final = "rubric"
"""Name of the evaluator of cases without own criteria; the other evaluators' names have a prefix."""
_SHOWN: Final = 12
"""Digits of a digest in a role's name."""
_UNPAID: Final = "no budget was left for the"
"""How the error of a trial begins that the eval's budget ended."""
_SHORT: Final = kinds_of(InsufficientBudget)[0]
"""The name of the error among the kinds of an attempt."""
_OUTCOMES: Final[Mapping[VerdictOutcome, Outcome]] = {VerdictOutcome.PASS: "pass", VerdictOutcome.REVISE: "fail"}


@known_call
async def run_eval(
    team: Team,
    dataset: Dataset,
    rubric: Rubric | EvaluationStrategy | None = None,
    *,
    judge: str | ChatModel | Agent | None = None,
    repeat: int = 1,
    parallel: int = 4,
    budget: Budget | None = None,
    config: TeamConfig | None = None,
    plan: TaskGraph | None = None,
    coordinator: TeamCoordinator | str | None = None,
    runtime: Runtime | None = None,
    run_id: str | None = None,
    take_over: bool = False,
) -> EvalResult:
    """Run a team on every case `repeat` times, review each result once, and return all trials.

    The team runs as with `kt.run`, on the case's input and context; it sees neither rubric nor reference, and no result
    is sent back. A gate of its runtime is asked as in any run; no person is asked about the eval's own review, and a
    trial that only awaits a person's approval passes, with `Trial.awaits_person`. `rubric` decides, or else the
    dataset's rubric; a case's own criteria are added. `judge` answers the criteria by="judge". `parallel` trials run at
    once. `budget` limits the whole eval, the judges included: reviews may use 20 %, also where the team uses
    nothing. `config`, `plan` and `coordinator` apply to each run of the team. With a journal in `runtime` and the
    `run_id` of an interrupted eval, that eval is resumed: finished trials are not run again. Raises `ValueError` and
    `Misuse` for an eval that is not possible, before anything is run.
    """
    job = prepare_eval(
        team,
        dataset,
        rubric,
        judge=judge,
        repeat=repeat,
        parallel=parallel,
        budget=budget,
        config=config,
        plan=plan,
        coordinator=coordinator,
        run_id=run_id,
    )
    bound = job if runtime is None else replace(job, team=replace(job.team, runtime=None))
    around = runtime or team.runtime
    check_recorded(bound, None if around is None else around.store)
    result = await _run(bound, around, take_over=take_over)
    if result.refused:
        raise Misuse(f"nothing was evaluated: {result.error}")
    return job.result(result)


def prepare_eval(
    team: Team,
    dataset: Dataset,
    rubric: Rubric | EvaluationStrategy | None = None,
    *,
    judge: str | ChatModel | Agent | None = None,
    repeat: int = 1,
    parallel: int = 4,
    budget: Budget | None = None,
    config: TeamConfig | None = None,
    plan: TaskGraph | None = None,
    coordinator: TeamCoordinator | str | None = None,
    run_id: str | None = None,
) -> EvalJob:
    """Prepare an eval as a run: take the arguments of `run_eval`, and raise its errors about them."""
    check_kind("run_eval: team", team, Team)
    check_kind("run_eval: dataset", dataset, Dataset)
    check_count("run_eval: repeat", repeat, 1)
    check_count("run_eval: parallel", parallel, 1)
    check_kind("run_eval: budget", budget, Budget, or_none=True)
    check_kind("run_eval: config", config, TeamConfig, or_none=True)
    check_kind("run_eval: plan", plan, TaskGraph, or_none=True)
    if coordinator is not None:
        coordinator = resolve("run_eval: coordinator", "coordinator", coordinator)
    evaluators = _evaluators(dataset, rubric if rubric is not None else dataset.rubric)
    # Without a runtime of its own the team under test takes the eval's.
    subject = _Subject(replace(team, runtime=None), coordinator=coordinator, plan=plan, config=config or TeamConfig())
    return job_of(
        subject,
        team.name,
        dataset,
        evaluators,
        judge=judge,
        repeat=repeat,
        parallel=parallel,
        budget=budget,
        runtime=team.runtime,
        run_id=run_id,
    )


def job_of(
    subject: Agent,
    name: str,
    dataset: Dataset,
    evaluators: Mapping[str, Any],
    *,
    judge: str | ChatModel | Agent | None = None,
    repeat: int = 1,
    parallel: int = 4,
    budget: Budget | None = None,
    runtime: Runtime | None = None,
    run_id: str | None = None,
    files: Mapping[str, Sequence[File]] = EMPTY,
    policy: BudgetPolicy | None = None,
) -> EvalJob:
    """Return the run in which an agent does every case; `files` has the files of tasks, by the task's id."""
    work = _EvalCoordinator(_plan(dataset, repeat, files), judge)
    by = "" if judge is None else f".by-{_name_of(judge)}"
    role = id_of(f"{dataset.name}.{dataset.digest[:_SHOWN]}.x{repeat}{by}")  # so no journal mixes two evals
    outer = Team(f"eval of {name}", [Member(role, subject, name=_SUBJECT)], evaluators=evaluators, runtime=runtime)
    work.judges(None, outer)  # raises for what cannot be a judge
    # No timeout for a trial: the team's own config has its timeouts.
    limits = TeamConfig(
        budget or Budget(), max_parallel_tasks=parallel, task_timeout=None, budget_policy=policy or BudgetPolicy()
    )
    goal = f"Evaluate {name} on {dataset.name}: {count(len(dataset), 'case')}, {repeat:,} x."
    request = TeamExecutionRequest(goal, plan=work.graph, config=limits)
    request = request if run_id is None else replace(request, run_id=run_id)
    return EvalJob(outer, request, work, dataset, repeat, name, recorded=run_id is not None)


async def _run(job: EvalJob, runtime: Runtime | None, *, take_over: bool) -> TeamResult:
    """Begin the eval, resume it, or return its recorded result."""
    try:
        return await api.run(job.team, job.request, coordinator=job.coordinator, runtime=runtime)
    except RunExists:
        if runtime is None or runtime.store is None:
            raise  # without a journal there is nothing to resume
    try:
        again = job.request.run_id, job.team
        return await runtime.resume(*again, coordinator=job.coordinator, take_over=take_over)
    except PlanMismatch:
        raise Misuse(
            f"run {job.request.run_id!r} is another eval, with another dataset, rubric, judge, repeat or team: give "
            "this one another run_id"
        ) from None
    except RunFinished:
        ended: TeamResult | None = runtime.store.result(job.request.run_id)
        if ended is None:
            raise
        return ended


@dataclass(frozen=True)
class EvalJob:
    """An eval as a run: a task for each trial, done by one member, which is the team under test."""

    team: Team
    request: TeamExecutionRequest
    coordinator: _EvalCoordinator
    dataset: Dataset
    repeat: int
    subject: str
    """The name of the team under test."""
    recorded: bool

    def result(self, ended: TeamResult) -> EvalResult:
        """Return the trials of the run, once it has ended."""
        outcomes = {one.task_id: one for one in ended.outcomes}
        trials = [
            _trial(case.id, number, outcomes.get(_task_id(case, number)))
            for case in self.dataset.cases
            for number in range(1, self.repeat + 1)
        ]
        judge = self.coordinator.judge
        rubrics = {name: criteria_digest(one) for name, one in self.team.evaluators.items()}
        return EvalResult(
            self.dataset.name,
            tuple(trials),
            self.repeat,
            ended.run_id if self.recorded else "",
            self.subject,
            self.dataset.digest,
            None if None in rubrics.values() else digest_of(sorted(rubrics.items())),
            "" if judge is None else _name_of(judge),
            self._lacking(trials, ended),
        )

    def _lacking(self, trials: Sequence[Trial], ended: TeamResult) -> str | None:
        """Return how many trials were not run, or not judged, and why; None if all were."""
        left = [one for one in trials if one.outcome == "not run"]
        if left:
            why = ended.error or next(iter(ended.warnings), left[0].why or ended.status.value)
            return f"{len(left):,} of {len(trials):,} trials were not run: {why}"
        unpaid = [one for one in trials if one.cause is Cause.JUDGE_BUDGET]
        if not unpaid:
            return None
        share = self.request.config.budget_policy.evaluate
        may = f"reviews may use {share * 100:g} % of the budget: allow more, or fewer trials"
        return f"{len(unpaid):,} of {len(trials):,} trials were not judged: {unpaid[0].why}; {may}"


def _evaluators(dataset: Dataset, rubric: Any) -> Mapping[str, Any]:
    """Return the evaluators by name: the rubric, and one for each case with its own criteria."""
    if rubric is not None and not isinstance(rubric, Rubric):
        check_plug_in("run_eval: rubric", "an evaluator", rubric, "evaluate", "context")
    own = {one.id: one.rubric for one in dataset.cases if one.rubric is not None}
    if rubric is None and len(own) < len(dataset):
        bare = known(one.id for one in dataset.cases if one.rubric is None)
        raise ValueError(
            f"nothing decides about the cases {bare}: give the eval a rubric, rubric= or --rubric, or the dataset one"
        )
    if own and rubric is not None and not isinstance(rubric, Rubric):
        raise ValueError(f"the cases {known(own)} add criteria to a rubric, and {rubric!r:.80} is not a Rubric")
    shared = {} if rubric is None else {_ALL: rubric}
    return shared | {f"case.{name}": one if rubric is None else _joined(name, rubric, one) for name, one in own.items()}


def _plan(dataset: Dataset, repeat: int, files: Mapping[str, Sequence[File]]) -> TaskGraph:
    """Return a task for each trial: first all cases once, then all again."""
    return TaskGraph(
        [
            Task(
                _task_id(case, number),
                case.input,
                inputs=thaw(case.context),
                reference=case.reference,
                files=files.get(_task_id(case, number), ()),
                evaluator=_ALL if case.rubric is None else f"case.{case.id}",
            )
            for number in range(1, repeat + 1)
            # The rounds are the outer loop: an eval that runs out of budget has every case before any second time.
            for case in dataset.cases
        ]
    )


def _task_id(case: Case, number: int) -> str:
    return f"{case.id}.{number}"


def reads_transcript(evaluator: Any) -> bool:
    """Return whether an evaluator decides about what members did: by a conversation as a text, or by its tool calls."""
    made = [getattr(one.check, "made", None) for one in getattr(evaluator, "criteria", ())]
    return bool(getattr(evaluator, "reads_transcript", False)) or any(one and one.name in OF_CALLS for one in made)


def check_recorded(job: EvalJob, store: Any) -> None:
    """Raise `ValueError` if the evaluators read what members did and `store`, the journal, does not record it."""
    if any(map(reads_transcript, job.team.evaluators.values())) and not isinstance(store, SqlJournal):
        raise ValueError(
            'checks of tool calls and criteria with on="transcript" need a record of what the members did: give '
            'run_eval runtime=kt.Runtime(journal=kt.SqliteJournal("runs.db")), or kairo eval --journal runs.db'
        )


def transcript_of(journal: SqlJournal, run_id: str) -> tuple[Message, ...]:
    """Return the conversations of a recorded run's attempts, in the order in which the attempts ended.

    A line before each names the task, the member, and to whom it handed over. Runs inside it are left out.
    """
    sql = "SELECT value FROM step WHERE run_id = ? AND key LIKE 'attempt:%' ORDER BY id"
    with journal.database.reading() as connection:
        rows = connection.execute(sql, (run_id,)).fetchall()
        found = [journal.database.look_at(one["value"], object, f"an attempt of run {run_id!r}") for one in rows]
    attempts = [one for one in found if isinstance(one, Attempt)]
    messages: list[Message] = []
    for place, (attempt, taker) in enumerate(zip(attempts, handed_to(attempts), strict=True)):
        messages.append(attempt_line(attempt.task_id, attempt.number, attempt.member, taker))
        messages += [_renumbered(one, place) for one in attempt.output.transcript] if attempt.output else []
    return tuple(messages)


def _renumbered(message: Message, place: int) -> Message:
    """Return a message whose calls have ids that no other attempt has."""
    answered = message.tool_call_id
    return replace(
        message,
        # Providers number the calls of each conversation from the start.
        tool_calls=[replace(call, id=f"{place}.{call.id}") for call in message.tool_calls],
        tool_call_id=None if answered is None else f"{place}.{answered}",
    )


class _Subject(TeamAgent):
    """The team under test: it gets a case as from a person, and nothing of the eval around it."""

    def __init__(self, team: Team, **options: Any) -> None:
        super().__init__(team, **options)
        self._transcripts: dict[str, tuple[Message, ...]] = {}

    async def _execute(self, team: Team, request: TeamExecutionRequest, budget: Budget | None) -> TeamResult:
        result = await super()._execute(team, request, budget)
        store = None if team.runtime is None else team.runtime.store
        if isinstance(store, SqlJournal):
            # Read here, because `output_of` has only the result.
            self._transcripts[result.run_id] = transcript_of(store, result.run_id)
        return result

    def output_of(self, result: TeamResult) -> AgentOutput:
        """Return the output of an inner run, with what its members did if a journal recorded it.

        Raises the error of a budget around the run: then the eval had too little, and the team made no mistake.
        """
        short = result.exception
        if isinstance(short, HaltError | InsufficientBudget):
            inside = "" if result.budget is None else result.budget.path
            if short.path not in ("", inside) and not short.path.startswith(f"{inside}/"):
                raise short
        transcript = self._transcripts.pop(result.run_id, ())
        return replace(super().output_of(result), transcript=transcript)

    def request_for(self, assignment: Assignment | str, context: MemberContext | None) -> TeamExecutionRequest:
        """Return the request of an inner run."""
        request = super().request_for(assignment, context)
        assert not isinstance(assignment, str), "a trial has an assignment"
        # Instead of the inputs of `TeamAgent`, which would show the goal of the eval.
        return replace(request, context=assignment.task.inputs)


@dataclass(frozen=True)
class _EvalCoordinator:
    """Makes one attempt and one review of each trial; sends nothing back, and asks no person.

    Criteria that a person decides stay open: a trial that only awaits an approval has passed.
    """

    graph: TaskGraph
    judge: Any

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan that the eval will run."""
        return request.plan or self.graph

    def preflight(self, request: TeamExecutionRequest, team: Team) -> list[str]:
        """Return what keeps the trials from being reviewed."""
        return Reviewers(team, judge=self.judge).problems(self.preview(request, team), request.config, gated=True)

    def judges(self, plan: TaskGraph | None, team: Team) -> tuple[Any, ...]:
        """Return the models and agents that reviews ask."""
        return Reviewers(team, judge=self.judge).models(plan or self.graph)

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run all trials to their ends."""
        async with TeamRun.open(request, team, tolerate_failures=True) as run:
            graph = await run.plan(self.preview(request, team))
            reviewers = Reviewers(team, judge=self.judge)
            reviewers.check(run, graph, gated=True)
            async for task in run.ready(graph):
                run.go(self._try, run, reviewers, task)
        return run.result

    async def _try(self, run: TeamRun, reviewers: Reviewers, task: Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error is not None:
            unpaid = attempt.halt is not None or _SHORT in attempt.kinds
            run.fail(task, f"{_UNPAID} trial: {attempt.error}" if unpaid else attempt.error, best=attempt)
            return
        # The output's own usage: of a run that is judged again, the trial itself has used nothing.
        used = attempt if attempt.output is None else attempt._replace(usage=attempt.output.usage)
        try:
            verdict = await run.review(task, used, reviewers.of(task))
        except (HaltError, InsufficientBudget) as short:
            run.fail(task, f"{_UNPAID} review: {short}", best=attempt)
            return
        if verdict.outcome is VerdictOutcome.PASS:
            run.accept(task, attempt, verdict)
        else:
            run.fail(task, verdict.feedback or verdict.outcome.value, best=attempt, verdict=verdict)


def _joined(case: str, shared: Rubric, own: Rubric) -> Rubric:
    """Return a rubric with the criteria of both, and the threshold of the shared one."""
    try:
        how: dict[str, Any] = {"check_timeout": shared.check_timeout, "votes": max(shared.votes, own.votes)}
        return Rubric([*shared.criteria, *own.criteria], shared.threshold, **how)
    except ValueError as error:
        raise ValueError(f"the criteria of case {case!r} cannot be added to the rubric: {error}") from None


def _name_of(judge: Any) -> str:
    return judge if isinstance(judge, str) else str(getattr(judge, "name", type(judge).__name__))


def _trial(case: str, number: int, ended: TaskOutcome | None) -> Trial:
    """Return one trial's result; `ended` is None if the eval ended before it was planned."""
    # Nothing can be said about the team.
    if ended is None or ended.status is TaskStatus.SUSPENDED or ended.attempts == 0:
        return Trial(case, number, "not run", why=(ended.error if ended is not None else None) or "")
    output = ended.artifact.text if ended.artifact is not None else ""
    verdict = ended.verdict
    if verdict is None:
        why = ended.error or ended.status.value
        outcome: Outcome = "not run" if why.startswith(_UNPAID) else "error"
        return Trial(case, number, outcome, output, why=why, usage=ended.usage)
    return Trial(
        case,
        number,
        "pass" if verdict.awaits_approval else _OUTCOMES.get(verdict.outcome, "undecided"),
        output,
        verdict.score,
        verdict.feedback,
        verdict.cause,
        tuple(verdict.criteria),
        tuple(verdict.findings),
        ended.usage,
        verdict.usage,
        verdict.awaits_approval,
    )
