"""Which evaluator reviews which task: the team's, with the coordinator's judge, checked before work starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from kairo_team._util.frozen import check_kind
from kairo_team._util.plugin_shapes import check_plug_in
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.engine.plan.preflight import judge_problems
from kairo_team.engine.tasks.member_budgets import EVALUATE
from kairo_team.engine.work.runtime import runtime_of
from kairo_team.errors import PlanRefused, known
from kairo_team.evaluators import Criterion, Rubric, SimpleEvaluationStrategy, checks
from kairo_team.evaluators.wired import compared, wired
from kairo_team.plugin_calls import PLAIN_CALL, problem_of
from kairo_team.prompts import Prompts
from kairo_team.tasks import Task, TaskGraph, done_by_members
from kairo_team.team import RiskProfile, Team, TeamConfig

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy, HumanGate
    from kairo_team.engine.run.team_run import TeamRun

T = TypeVar("T")

_PLAIN = SimpleEvaluationStrategy()
_named_by: Callable[[Task], str | None] = attrgetter("evaluator")


def default_evaluator(judge: Any) -> EvaluationStrategy:
    """Return the default evaluator: not blank, and with a judge, that the artifact does what its task asks."""
    if judge is None:
        return _PLAIN
    # A gate of code comes first: a blank text needs no judge.
    gate = Criterion("not-blank", "the artifact must not be blank", checks.not_blank)
    return Rubric([gate, Criterion("task", "the artifact does what its task asks", by="judge")])


class ReviewingCoordinator:
    """What coordinators that review have in common: evaluator, judge, gate, failure policy and templates."""

    evaluator: EvaluationStrategy | str | None
    judge: str | ChatModel | Agent | None
    gate: HumanGate | None
    failure_policy: FailurePolicy
    templates: Mapping[str, str]

    def _take(
        self, evaluator: Any, judge: Any, gate: Any, failure_policy: Any, templates: Mapping[str, str] | None
    ) -> None:
        """Keep the arguments; `ValueError` for one of the wrong kind."""
        owner = type(self).__name__
        Prompts(templates)  # raises for templates that cannot be filled in
        self.evaluator, self.judge, self.gate = evaluator, judge, gate
        self.failure_policy, self.templates = failure_policy, dict(templates or {})
        if evaluator is not None and not isinstance(evaluator, str):
            check_plug_in(f"{owner}.evaluator", "an evaluator", evaluator, "evaluate", "context")
        if gate is not None:
            check_plug_in(f"{owner}.gate", "a gate", gate, "decide", "question")
        if judge is not None and not isinstance(judge, str):
            call = ("run", "assignment", "context") if hasattr(judge, "run") else ("complete", "request")
            check_plug_in(f"{owner}.judge", "a judge", judge, *call)
        check_kind(f"{owner}.failure_policy", failure_policy, FailurePolicy)

    def _reviewers(self, team: Team) -> Reviewers:
        return Reviewers(team, self.evaluator, self.judge, gate=self.gate)

    def judges(self, plan: TaskGraph | None, team: Team) -> tuple[Any, ...]:
        """Return the models and agents that reviews call: of this plan, or of a task that names no evaluator."""
        return self._reviewers(team).models(plan)


class Reviewers:
    """The reviewers of one run's tasks, for authors of coordinators.

    A task is reviewed by the team's evaluator that it names; a task that names none by `evaluator`, which is a strategy
    or the name of one of the team's. None: such a task is not reviewed. `judge` answers the criteria for a judge in
    every rubric. Give `gate` if the run is opened with a gate of its own.

    In `execute`, call `check` once the plan is there, and `of` for each task. Outside a run, `problems` is what
    `preflight` returns, and `models` what `judges` returns.
    """

    def __init__(
        self,
        team: Team,
        evaluator: EvaluationStrategy | str | None = None,
        judge: str | ChatModel | Agent | None = None,
        *,
        gate: HumanGate | None = None,
    ) -> None:
        """Raise `PlanRefused` for the name of an evaluator that the team does not have."""
        self._team = team
        self._judge = judge
        self._gate = gate
        default = named_evaluator(team, evaluator) if isinstance(evaluator, str) else evaluator
        self._default = None if default is None else wired(default, judge)
        self._named: dict[str, EvaluationStrategy] = {}
        self._reviewable: tuple[TaskGraph, TeamConfig, bool] | None = None
        """The last plan that was found to have no problems, under which configuration, and whether with a gate."""

    def of(self, task: Task) -> EvaluationStrategy | None:
        """Return the evaluator of a task; None: it is not reviewed."""
        return self._reviewer(task.evaluator)

    def _reviewer(self, name: str | None) -> EvaluationStrategy | None:
        if name is None:
            return self._default
        if name not in self._named:
            self._named[name] = wired(self._team.evaluators[name], self._judge)
        return self._named[name]

    def check(self, run: TeamRun, graph: TaskGraph, *, gated: bool | None = None) -> None:
        """Raise `PlanRefused` for reviews that cannot be made, and set aside the budget of the judges.

        `gated` is whether criteria of a person may stay open; None: where the run has a gate.
        """
        has_gate = run.gated if gated is None else gated
        problems = self._problems(graph, run.config, gated=has_gate)
        if problems:
            raise PlanRefused(problems)
        if self.models(graph):
            run.context(EVALUATE)

    def problems(self, graph: TaskGraph | None, config: TeamConfig, *, gated: bool | None = None) -> list[str]:
        """Return a sentence, once, for each reason why a task of the plan cannot be reviewed as required.

        `gated` is whether a person can be asked; None: whether there is a gate. The list is empty if the plan is not
        known yet (None), and if it names an evaluator that the team does not have: the check of the plan reports that.
        """
        if graph is None or any(name is not None and name not in self._team.evaluators for name in _names(graph)):
            return []
        if gated is None:
            gated = self._gate is not None or runtime_of(self._team).gate is not None
        return self._problems(graph, config, gated=gated)

    def _problems(self, graph: TaskGraph, config: TeamConfig, *, gated: bool) -> list[str]:
        last = self._reviewable
        if last is not None and last[0] is graph and last[1] is config and last[2] == gated:
            return []
        lacking = {name: list(self._lacks(name, gated=gated, risk=config.risk_profile)) for name in _names(graph)}
        found: list[str] = []
        for task in done_by_members(graph.tasks):
            found += [f"task {task.id!r} {problem}" for problem in lacking[task.evaluator]]
            for criterion in compared(self.of(task)) if task.reference is None else ():
                found.append(
                    f"task {task.id!r} cannot be reviewed: criterion {criterion.id!r} compares with Task.reference, "
                    "and the task has none: give it one"
                )
        models = self.models(graph)
        if self._judge is not None and not any(model is self._judge for model in models):
            found.append("a judge is wired, and no criterion asks for one: say by='judge', or leave the judge out")
        for model in models:
            found += judge_problems(model, config, runtime_of(self._team))
        self._reviewable = None if found else (graph, config, gated)
        return list(dict.fromkeys(found))

    def _lacks(self, name: str | None, *, gated: bool, risk: RiskProfile) -> Iterator[str]:
        """Yield the reasons why tasks that name this evaluator cannot be reviewed as required."""
        reviewer = self._reviewer(name)
        ask = _declared(reviewer, "preflight", None)
        lacking: list[str] = [] if ask is None else _answer(reviewer, "preflight", lambda: list(ask(gate=gated)))
        yield from (f"cannot be reviewed: {problem}" for problem in lacking)
        if risk is RiskProfile.HIGH and _declared(reviewer, "vacuous", False):
            yield (
                "would only be checked for being blank, which is not a review under HIGH risk: give the coordinator or "
                "the task an evaluator"
            )

    def models(self, graph: TaskGraph | None) -> tuple[Any, ...]:
        """Return the judges that reviews of a plan's tasks call, each once; None: of a task that names no evaluator."""
        found: list[Any] = []
        for name in (None,) if graph is None else _names(graph):
            for model in _declared(self._reviewer(name), "models", None) or ():
                if not any(model is other for other in found):  # by identity: a judge need not be hashable
                    found.append(model)
        return tuple(found)


def _declared(reviewer: Any, name: str, otherwise: Any) -> Any:
    """Return an optional attribute of an evaluator; `PlanRefused` names the evaluator that raises instead."""
    return _answer(reviewer, name, lambda: getattr(reviewer, name, otherwise))


def _answer(reviewer: Any, name: str, read: Callable[[], T]) -> T:
    try:
        with PLAIN_CALL:
            return read()
    except Exception as error:
        why = f"the evaluator {type(reviewer).__name__} cannot review: its {name} raised {problem_of(error)}"
        raise PlanRefused([why]) from error


def _names(graph: TaskGraph) -> Iterable[str | None]:
    """Return the evaluators that a plan's tasks name, each once; None for tasks that name none."""
    return dict.fromkeys(map(_named_by, done_by_members(graph.tasks)))


def named_evaluator(team: Team, name: str) -> EvaluationStrategy:
    """Return the team's evaluator of that name, or raise `PlanRefused`."""
    if name not in team.evaluators:
        there = f"the team has {known(team.evaluators)}: name one it has, or add it to Team.evaluators"
        raise PlanRefused([f"the evaluator {name!r} is unknown; {there}"])
    found: EvaluationStrategy = team.evaluators[name]
    return found
