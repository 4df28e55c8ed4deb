"""The supervisor: one member creates tasks for the others, sees their results and gives the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import known_arguments
from kairo_team.budget import check_count
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.coordinators.review_rounds import ReviewRounds
from kairo_team.coordinators.reviewers import Reviewers, ReviewingCoordinator, default_evaluator, named_evaluator
from kairo_team.coordinators.supervision import Assigned, Turn
from kairo_team.coordinators.turns import TurnRounds, turn_id
from kairo_team.engine.records.digests import digest_of
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.engine.work.runtime import bind_runtime, runtime_of
from kairo_team.errors import PlanRefused, known
from kairo_team.prompts import Prompts
from kairo_team.tasks import Task, TaskGraph, TaskStatus

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact, Finding
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy, HumanGate
    from kairo_team.results import Attempt, TeamResult
    from kairo_team.team import Member, Team, TeamExecutionRequest
    from kairo_team.tools.tool import Tool

_FEWEST_TURNS = 2
"""One to create tasks, one to answer."""


@known_arguments
class SupervisorCoordinator(ReviewingCoordinator):
    """One member, the supervisor, creates tasks for the others, sees their results, and answers.

    `supervisor` is its name; None is the team's first member. It works in turns. In a turn it has the tools
    `create_task`, `see_results`, `wait` and `finish`, whatever its role allows. A new task is checked like a plan; a
    refusal is the tool's result, and nothing is created. The tasks of a turn start when the turn ends, and the next
    turn begins when all of them have ended: no tool call waits for tasks. The argument of `finish` is the answer, and
    so is the text of a turn that created nothing; `finish` is refused in a turn that created tasks.

    There are at most `max_turns` turns and `max_tasks` tasks; in its last turn the supervisor can only see results and
    finish. Without an answer (its turn failed, or its budget is used up) the run is DEGRADED with the reason, and the
    accepted results are its partial output; it is FAILED if nothing was accepted. A plan in the request is refused.

    `evaluator` reviews the answer and the created tasks: a strategy or rubric, or the name of one of the team's; None
    checks that they are not blank, and with a judge that they do what their task asks. `answer_evaluator` names the
    team's evaluator of the answer alone. `judge`, `failure_policy`, `gate` and `templates` are as in
    `ExpertTeamCoordinator`; the template of a turn's instructions is `supervise`.

    >>> coordinator = kt.SupervisorCoordinator(supervisor="lead", max_tasks=6, max_turns=4)
    """

    def __init__(
        self,
        *,
        supervisor: str | None = None,
        max_tasks: int = 20,
        max_turns: int = 10,
        evaluator: EvaluationStrategy | str | None = None,
        answer_evaluator: str | None = None,
        judge: str | ChatModel | Agent | None = None,
        gate: HumanGate | None = None,
        failure_policy: FailurePolicy = FailurePolicy(),
        templates: Mapping[str, str] | None = None,
    ) -> None:
        check_count("SupervisorCoordinator.max_tasks", max_tasks, 1)
        check_count("SupervisorCoordinator.max_turns", max_turns, _FEWEST_TURNS)
        for name, given in (("supervisor", supervisor), ("answer_evaluator", answer_evaluator)):
            if given is not None and not isinstance(given, str):
                raise ValueError(f"SupervisorCoordinator.{name} must be a name, not {given!r}")
        self.supervisor = supervisor
        self.max_tasks = max_tasks
        self.max_turns = max_turns
        self.answer_evaluator = answer_evaluator
        chosen = evaluator if evaluator is not None else default_evaluator(judge)
        self._take(chosen, judge, gate, failure_policy, templates)

    @property
    def digest(self) -> str:
        """The supervisor, the limits and the evaluator of answers, in a text that is the same in every process."""
        return digest_of(self.supervisor, self.max_tasks, self.max_turns, self.answer_evaluator)

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the known part of the plan: the supervisor's first turn.

        Raises `PlanRefused` for a plan in the request, an unknown supervisor or evaluator, and a supervisor whose agent
        takes no tools.
        """
        problems, names = list[str](), [member.id for member in team.members]
        if request.plan is not None:
            problems.append(
                "SupervisorCoordinator makes its own tasks and takes no plan: leave the plan out, or run it with "
                "ExpertTeamCoordinator or TaskDispatchCoordinator"
            )
        if self.supervisor is not None and self.supervisor not in names:
            problems.append(f"the supervisor {self.supervisor!r} is not a member; the team has {known(names)}")
        elif not getattr((leader := self._leader(team)).agent, "takes_tools", True):
            problems.append(
                f"the supervisor {leader.id!r} cannot use the tools that a coordinator offers (takes_tools is False): "
                "name a member with another agent"
            )
        if problems:
            raise PlanRefused(problems)
        self._reviewers(team)
        return TaskGraph([self._turns(request, team).task(1, self.max_tasks)])

    def worst_case(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan of a run with all tasks it may create: one in each turn, the rest in the last but one."""
        turns, plan = self._turns(request, team), list[Task]()
        most = min(self.max_turns, self.max_tasks + 1)  # each turn but the last creates a task, else it is the answer
        for number in range(1, most + 1):
            before = [task for task in plan if task.id not in turns.ids]
            plan.append(turns.task(number, self.max_tasks, after=before))
            more = 1 if number < most - 1 else self.max_tasks - number + 1
            plan += [Task(f"created.{number}.{one}", request.goal) for one in range(1, more + 1) if number < most]
        return TaskGraph(plan)

    def preflight(self, request: TeamExecutionRequest, team: Team) -> list[str]:
        """Return what keeps the answer, and a created task, from being reviewed."""
        plan = _with_created(self.preview(request, team))
        return self._reviewers(team).problems(plan, request.config)

    def judges(self, plan: TaskGraph | None, team: Team) -> tuple[Any, ...]:
        """Return the models and agents that reviews call."""
        return self._reviewers(team).models(_with_created(plan))

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run the request to its end."""
        async with TeamRun.open(request, team, tolerate_failures=True, templates=self.templates, gate=self.gate) as run:
            problems = self.preflight(request, run.team)
            if problems:
                raise PlanRefused(problems)
            graph, reviewers = await run.plan(self.preview(request, run.team)), self._reviewers(run.team)
            reviewers.check(run, _with_created(graph))
            await _Supervision(run, self, self._turns(request, run.team), reviewers).work(graph)
        return run.result

    def _turns(self, request: TeamExecutionRequest, team: Team) -> _Turns:
        prompts = Prompts({**runtime_of(bind_runtime(team)).templates, **self.templates})
        return _Turns(self, request.goal, self._leader(team), prompts)

    def _leader(self, team: Team) -> Member:
        return team.members[0] if self.supervisor is None else team.member(self.supervisor)

    def _reviewers(self, team: Team) -> Reviewers:
        if self.answer_evaluator is not None:
            named_evaluator(team, self.answer_evaluator)
        return super()._reviewers(team)


def _with_created(plan: TaskGraph | None) -> TaskGraph:
    """Return a plan with a task as a supervisor creates them, to find its reviewer."""
    tasks = () if plan is None else plan.tasks
    name = "created"
    while any(task.id == name for task in tasks):
        name += "-"
    return TaskGraph([*tasks, Task(name, "A task that the supervisor creates.")])


class _Turns:
    """Makes the tasks that are the supervisor's turns."""

    def __init__(self, coordinator: SupervisorCoordinator, goal: str, leader: Member, prompts: Prompts) -> None:
        self._coordinator = coordinator
        self._goal = goal
        self._prompts = prompts
        self.leader = leader
        self.ids = [turn_id(number) for number in range(1, coordinator.max_turns + 1)]

    def task(self, number: int, tasks_left: int, lines: Sequence[str] = (), after: Sequence[Task] = ()) -> Task:
        """Return a turn, by its number from 1; `lines` say how the tasks so far ended, which are `after`."""
        most = self._coordinator.max_turns
        how = self._prompts.render("supervise", turn=number, max_turns=most, tasks_left=tasks_left)
        inputs = {"turn": f"{number} of at most {most}", "how to work": how}
        if lines:
            inputs["tasks so far"] = "\n".join(lines)
        # The description is the goal, because the answer is reviewed by it.
        return Task(
            self.ids[number - 1],
            self._goal,
            member=self.leader.id,
            depends_on=[task.id for task in after],
            needs=0,  # the supervisor also deals with tasks that failed
            inputs=inputs,
            evaluator=self._coordinator.answer_evaluator,
        )


class _Supervision:
    """The turns and tasks of one run."""

    def __init__(self, run: TeamRun, coordinator: SupervisorCoordinator, turns: _Turns, reviewers: Reviewers) -> None:
        self._run = run
        self._turns = turns
        others = [member for member in run.team.members if member.id != turns.leader.id]
        # A team of one gives tasks to itself.
        self._assigned = Assigned(run, others or [turns.leader], coordinator.max_tasks, turns.ids)
        self._policy = coordinator.failure_policy
        self._reviewers = reviewers
        self._taken: dict[str, _SupervisorRounds] = {}
        """The rounds of every turn, by task id."""

    async def work(self, graph: TaskGraph) -> None:
        """Take turns, with the tasks that each creates, until there is an answer or none can come."""
        run, assigned, turn = self._run, self._assigned, graph.tasks[0]
        # The number of the turn that comes next; the last is answered, never made.
        for number in range(2, len(self._turns.ids) + 2):
            async for task in run.ready(graph):
                run.go(self._do_rounds, task)
            ended = run.outcome(turn)
            created = self._taken[turn.id].tasks_of_turn() if turn.id in self._taken else []
            if ended is None or any(run.outcome(task) is None for task in created):  # it waits for a person
                return
            if ended.status is not TaskStatus.COMPLETED or not created:
                self._end(ended.status, ended.artifact, ended.error)
                return
            assigned.tasks += created
            lines = [assigned.line(task) for task in assigned.tasks]
            turn = self._turns.task(number, assigned.left, lines, assigned.tasks)
            graph = await run.add(partial(list[Task], [turn]))
        raise AssertionError("the last turn creates nothing")

    def _do_rounds(self, task: Task) -> Awaitable[None]:
        about = (self._run, task, self._reviewers.of(task), self._policy)
        if task.id not in self._assigned.turns:
            return ReviewRounds(*about).finish()
        self._taken[task.id] = rounds = _SupervisorRounds(self._assigned, *about)
        return rounds.finish()

    def _end(self, status: TaskStatus, artifact: Artifact | None, error: str | None) -> None:
        """Set the answer as the run's output; without one, the accepted results become the partial output."""
        run = self._run
        if status is TaskStatus.COMPLETED:
            assert artifact is not None, "a completed turn has an artifact"
            run.output = artifact
            return
        joined = self._assigned.joined()
        why = f"the supervisor gave no answer ({error})"
        if joined is not None:
            run.degrade(f"{why}: the partial output has the accepted results of its tasks", partial=joined)
        elif self._assigned.tasks:
            run.abort(f"{why}, and none of its tasks was accepted")


class _SupervisorRounds(TurnRounds):
    """The rounds of one turn: attempts with the supervisor's tools, and reviews of its answer."""

    def __init__(self, assigned: Assigned, *about: Any) -> None:
        super().__init__(*about)
        self._assigned = assigned

    def tools(self, number: int) -> Sequence[Tool]:
        """Offer the supervisor's tools for this attempt; in its last turn it cannot create tasks."""
        return self._turn(number).tools()

    def is_answer(self, attempt: Attempt) -> bool:
        """Return whether the attempt created nothing."""
        return not self._turn(attempt.number).created

    async def try_once(self, previous: Attempt | None, findings: Sequence[Finding], *, offer: bool = True) -> Attempt:
        """Let the supervisor try once, and add the tasks it created to the plan."""
        attempt = await super().try_once(previous, findings, offer=offer)
        created = [] if attempt.error is not None else self._turn(attempt.number).created
        if created:
            await self.run.add(partial(list[Task], created))  # before the turn ends: its dependents must be in the plan
        return attempt

    def tasks_of_turn(self) -> list[Task]:
        """Return the created tasks of an accepted turn; nothing for an answer."""
        return [] if self.passed_on is None else self._turn(self.passed_on.number).created

    def _turn(self, number: int) -> Turn:
        may_create = self.task.id != max(self._assigned.turns)
        return Turn(self._assigned, self.task, number, may_create=may_create)
