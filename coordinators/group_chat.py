"""Group chat: members talk in turns, and a moderator chooses the next, until all is settled."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anyio.lowlevel import checkpoint

from kairo_team._util.counts import count
from kairo_team._util.frozen import known_arguments
from kairo_team._util.plugin_shapes import check_function
from kairo_team.budget import check_count
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.coordinators.moderators import ROUND_ROBIN, Choice, Rule, Talk, choose, in_turn, moderator_of
from kairo_team.coordinators.reviewers import Reviewers, ReviewingCoordinator, default_evaluator
from kairo_team.coordinators.turns import Said, TurnRounds, Turns, turn_id, written
from kairo_team.engine.records.digests import digest_of
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.engine.work.runtime import runtime_of
from kairo_team.errors import PlanRefused, innermost, known
from kairo_team.plugin_calls import AWAITED_CALL, shown, words_of
from kairo_team.tasks import Task, TaskGraph, TaskStatus

if TYPE_CHECKING:
    from kairo_team.artifacts import Finding
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy, HumanGate
    from kairo_team.results import Attempt, TeamResult
    from kairo_team.team import Member, Team, TeamExecutionRequest

CLOSING: Final = "closing"
"""The id of the task that writes the final answer."""
_SPEAK: Final = "You are one of several who talk about the task. Say what brings it forward, in a few sentences."
_CLOSE: Final = "The talk about the task is over. Write the final answer from what was said."
_PART: Final = "your part"
_EARLIER: Final = "the talk so far"
_LAST: Final = "who spoke last"
"""Names of the inputs of a turn."""
_FIRST: Final = "moderator:first"
"""The recorded step that names the first speaker."""
_FEWEST_CHARACTERS: Final = 200

Until = Callable[[Sequence[Said]], bool | Awaitable[bool]]
"""A function of the transcript that returns whether the talk is over."""


@known_arguments
class GroupChatCoordinator(ReviewingCoordinator):
    """Lets members talk about the goal in turns; a moderator chooses who is next.

    Each turn is a task: `turn.0001` and so on. Its member gets the goal, the last turn, and the talk before it, as
    quoted text. Together these have `transcript_chars` characters: the oldest turns are left out first, and a line says
    how many. A last turn that is longer than that is passed on whole. The goal is never left out.

    `moderator` picks the speakers. "round_robin" takes them in the team's order. A function gets the transcript, a
    sequence of `Said` (`member`, `text`), and returns a member's id, or None to end the talk; it may be async. A
    model, by its name or as an object, or an agent answers with JSON held to a schema of the members and the end. After
    a wrong answer it is asked once more; then the next member in turn speaks, and the result has a warning. The
    moderator is paid from planning's share, its choices are recorded, and each takes at most `TeamConfig.task_timeout`
    seconds.

    The talk ends when the moderator ends it, when `until(transcript)` is true, or after `max_turns`. A talk that takes
    all its turns, although `until` or the moderator should end it, is DEGRADED. A member whose turn failed, after the
    retries of `failure_policy`, does not speak again; the others continue, and the run is DEGRADED.

    `closing`, a member's id, takes no turns, and writes the final answer from the transcript, as the task `closing`;
    None: the last turn is the answer. `evaluator` reviews the answer alone: a strategy or rubric, or the name of one of
    the team's; None reviews nothing. `judge`, `gate` and `templates` are as in `ExpertTeamCoordinator`.

    >>> coordinator = kt.GroupChatCoordinator(moderator="openai:gpt-5-mini", max_turns=8, closing="editor")
    """

    def __init__(
        self,
        *,
        moderator: str | Rule | ChatModel | Agent = ROUND_ROBIN,
        max_turns: int = 12,
        until: Until | None = None,
        transcript_chars: int = 6_000,
        closing: str | None = None,
        evaluator: EvaluationStrategy | str | None = None,
        judge: str | ChatModel | Agent | None = None,
        gate: HumanGate | None = None,
        failure_policy: FailurePolicy = FailurePolicy(),
        templates: Mapping[str, str] | None = None,
    ) -> None:
        owner = "GroupChatCoordinator"
        check_count(f"{owner}.max_turns", max_turns, 1)
        check_count(f"{owner}.transcript_chars", transcript_chars, _FEWEST_CHARACTERS)
        if closing is not None and (not isinstance(closing, str) or not closing):
            raise ValueError(f"{owner}.closing is the id of a member, or None for the last turn, not {closing!r}")
        if until is not None:
            if not callable(until):
                raise ValueError(f"{owner}.until is a function of the transcript that returns a bool, not {until!r}")
            check_function(f"{owner}.until", until, "until(transcript)")
        self.moderates = moderator_of(f"{owner}.moderator", moderator)
        """The moderator; None: the members speak in turn."""
        self.moderator = moderator
        self.max_turns = max_turns
        self.until = until
        self.transcript_chars = transcript_chars
        self.closing = closing
        chosen = evaluator if evaluator is not None or judge is None else default_evaluator(judge)
        self._take(chosen, judge, gate, failure_policy, templates)

    @property
    def digest(self) -> str:
        """The limits, the closing member and the moderator, in a text that is the same in every process."""
        chooses = self.moderator if isinstance(self.moderator, str) else type(self.moderator).__qualname__
        return digest_of(self.max_turns, self.transcript_chars, self.closing, chooses)

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph | None:
        """Return the first turn as a plan; None if a moderator chooses who speaks.

        Raises `PlanRefused` for an evaluator the team does not have.
        """
        self._reviewers(team)
        return None if self.moderates is not None else TaskGraph([self._turn(request, team, 1)])

    def worst_case(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan of a talk that takes all its turns; a moderator may choose other speakers."""
        tasks = [self._turn(request, team, number) for number in range(1, self.max_turns + 1)]
        if self.closing is not None:
            tasks.append(Task(CLOSING, request.goal, member=self.closing, depends_on=[tasks[-1].id]))
        return TaskGraph(tasks)

    def _turn(self, request: TeamExecutionRequest, team: Team, number: int) -> Task:
        order = self.speakers(team) or team.members  # an empty list is a problem that `_problems` reports
        before = [turn_id(number - 1)] if number > 1 else []
        return Task(turn_id(number), request.goal, member=order[(number - 1) % len(order)].id, depends_on=before)

    def preflight(self, request: TeamExecutionRequest, team: Team) -> list[str]:
        """Return why this request cannot be run with this team."""
        problems = list(self._problems(request, team))
        try:
            reviewers = self._reviewers(team)
        except PlanRefused as refused:
            return [*problems, *refused.problems]
        answer = TaskGraph([Task(CLOSING, request.goal)])
        return problems + reviewers.problems(answer, request.config)

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run the request to its end."""
        unreviewed = self.evaluator is None
        # A talk without a review can do without one member; a reviewed answer cannot fail and be accepted.
        opened = TeamRun.open(request, team, tolerate_failures=unreviewed, templates=self.templates, gate=self.gate)
        async with opened as run:
            problems = self.preflight(request, run.team)
            if problems:
                raise PlanRefused(problems)
            await _Talk(self, run, self._reviewers(run.team)).hold()
        return run.result

    def speakers(self, team: Team) -> Sequence[Member]:
        """Return the members that take turns, in the team's order."""
        return [member for member in team.members if member.id != self.closing]

    def _problems(self, request: TeamExecutionRequest, team: Team) -> Iterator[str]:
        members = [member.id for member in team.members]
        if request.plan is not None:
            yield "members that talk in turns make no use of a plan: leave it out, or take another coordinator"
        if self.closing is not None and self.closing not in members:
            yield f"closing names {self.closing!r}, and the team has the members {known(members)}"
        elif not self.speakers(team):
            yield f"closing names {self.closing!r}, the only member: no member is left to talk"
        if self.moderates is not None:
            yield from self.moderates.problems(request.config, runtime_of(team))


class _Talk:
    """The talk of one run."""

    def __init__(self, of: GroupChatCoordinator, run: TeamRun, reviewers: Reviewers) -> None:
        self._of = of
        self._run = run
        self._goal = run.request.goal
        self._reviewers = reviewers
        self._turns = Turns(run, self._rounds, reviewers)
        self.reviews_last = of.closing is None and of.evaluator is not None
        """Whether the last turn must be known before it ends, because it is reviewed then."""
        self._order = of.speakers(run.team)
        self._silent: set[str] = set()
        """Members whose turn failed."""
        self._said: list[Said] = []
        self._last: Task | None = None
        """The last turn that was accepted."""
        self._refused = False
        """Whether the moderator is asked no more, because it would be refused again."""
        self._cut_short = False
        """Whether the talk took all its turns, and should have ended before."""

    def _rounds(self, task: Task) -> _TalkRounds:
        return _TalkRounds(self, self._run, task, self._reviewers.of(task), self._of.failure_policy)

    async def hold(self) -> None:
        """Take turns until the talk ends, then have the answer written."""
        await self._turns.plan(self._first_turn)
        if self._of.moderates is not None:  # recorded by now; a replay makes no first turn
            self._take(await self._run.step(_FIRST, lambda: Choice(None)), "first")
        task = await self._turns.begin()
        while (choice := await self._after_turn(task)) is not None and choice.speaker is not None:
            task = await self._turns.take(choice.speaker, self._goal, self._inputs(_SPEAK), **self._needs_of_next(task))
        closing = self._of.closing
        if choice is not None and closing is not None and self._last is not None:  # an answer needs a turn
            await self._turns.take(closing, self._goal, self._inputs(_CLOSE), id=CLOSING, **self._needs_of_next(task))
        await checkpoint()  # a run that was killed meanwhile ends here
        if self._cut_short:
            who = "`until`" if self._of.moderates is None else "the moderator"
            self._run.degrade(f"{who} had not ended the talk after {count(self._of.max_turns, 'turn')} (max_turns)")

    async def follow(self, task: Task, attempt: Attempt | None) -> Choice:
        """Decide what follows a turn; `attempt` is the successful attempt of the turn, None without one."""
        of, said = self._of, list(self._said)
        if attempt is not None and task is not self._last:  # it is in `_said` already
            said.append(_said_in(task, attempt))
        if of.until is not None and attempt is not None:
            ended, problem = await self._run.step(f"until:{task.id}", partial(_ask_until, of.until, tuple(said)))
            if problem:
                self._run.warn(f"`until` failed after {task.id!r}, and the talk continues: {problem}")
            if ended:
                return Choice(None)
        if self._turns.taken == of.max_turns:
            self._cut_short = of.until is not None or of.moderates is not None
            return Choice(None)
        over = attempt is None and await self._run.is_over(task)
        speakers = [] if over else [one for one in in_turn(self._order, task.member) if one.id not in self._silent]
        return await self._choose(task, said, speakers)

    async def _choose(self, after: Task | None, said: Sequence[Said], speakers: Sequence[Member]) -> Choice:
        """Return who speaks next, or that the talk ends; the first speaker is chosen while the run is planned."""
        of, run = self._of, self._run
        if not speakers or of.moderates is None or self._refused:
            return Choice(speakers[0].id if speakers else None)
        talk = Talk(self._goal, tuple(said), written(said, of.transcript_chars), speakers, run.request.files)
        key = _FIRST if after is None else f"moderator:{after.id}"
        make = partial(choose, of.moderates, run, talk)
        # The first choice is made inside the plan's own step, which pays for planning already.
        choice = await run.step(key, make, returns=Choice, planning=after is not None)
        if after is not None:
            self._take(choice, f"after {after.id!r}")
        return choice

    def _take(self, choice: Choice, when: str) -> None:
        """Warn of a choice that is not the moderator's; ask no more a moderator that would be refused again."""
        self._refused = self._refused or choice.refused
        if choice.problem:
            then = "the talk ends" if choice.speaker is None else f"{choice.speaker!r} speaks in turn"
            then += ", and the moderator is not asked again" if choice.refused else ""
            tell = self._run.degrade if choice.speaker is None else self._run.warn
            tell(f"the moderator did not say who speaks {when}: {choice.problem}; {then}")

    async def _first_turn(self) -> Task:
        """Make the first turn, while the run is planned."""
        choice = await self._choose(None, (), self._order)
        assert choice.speaker is not None, "somebody speaks first"
        return Task(turn_id(1), self._goal, member=choice.speaker, inputs=self._inputs(_SPEAK))

    async def _after_turn(self, task: Task) -> Choice | None:
        """Add a turn that has ended, and return what follows; None if it waits for a person."""
        ended, rounds = self._run.outcome(task), self._turns.rounds.get(task.id)
        if ended is None:
            return None
        if ended.status is TaskStatus.COMPLETED:
            assert rounds is not None, "a completed turn has its rounds"
            assert rounds.made is not None, "and an attempt that made something"
            self._said.append(_said_in(task, rounds.made))
            self._last = task
        else:
            self._silent.add(task.member or "")  # it would fail again, and cost again
        if rounds is not None and rounds.choice is not None:
            return rounds.choice
        return await self.follow(task, rounds.made if rounds is not None and task is self._last else None)

    def _inputs(self, part: str) -> Mapping[str, Any]:
        """Return a member's inputs: its part, the talk before the last turn, and the last speaker."""
        inputs = {_PART: part}
        if self._said:
            *before, last = self._said
            earlier = written(before, max(0, self._of.transcript_chars - len(last.text)))
            inputs |= {_EARLIER: earlier} if earlier else {}
            inputs[_LAST] = last.member
        return inputs

    def _needs_of_next(self, task: Task) -> dict[str, Any]:
        """Return what the next turn depends on: the last accepted turn, and the turn before."""
        if self._last is None:
            return {"depends_on": [task.id], "needs": 0}
        # The turn before may have failed, and then the last accepted one is enough.
        return {"depends_on": [self._last.id, task.id], "needs": 1}


class _TalkRounds(TurnRounds):
    """The rounds of one turn."""

    def __init__(self, talk: _Talk, *about: Any) -> None:
        super().__init__(*about)
        self._talk = talk
        self.made: Attempt | None = None
        """The last attempt that made something."""
        self.choice: Choice | None = None
        """What follows the turn, if that was decided before it ended."""

    def is_answer(self, attempt: Attempt) -> bool:
        """Return whether the attempt is the final answer."""
        return self.task.id == CLOSING or (self.choice is not None and self.choice.speaker is None)

    async def try_once(self, previous: Attempt | None, findings: Sequence[Finding], *, offer: bool = True) -> Attempt:
        """Let the task's member try once; if the last turn is reviewed, decide what follows the attempt."""
        attempt = await super().try_once(previous, findings, offer=offer)
        if attempt.error is None and self.task.id != CLOSING:
            self.made = attempt
            if self._talk.reviews_last and self.choice is None:  # once: a revision must not ask the moderator again
                self.choice = await self._talk.follow(self.task, attempt)
        return attempt


def _said_in(task: Task, attempt: Attempt) -> Said:
    return Said(task.member or attempt.member, "" if attempt.artifact is None else attempt.artifact.text)


async def _ask_until(until: Until, said: Sequence[Said]) -> tuple[bool, str]:
    """Return whether the talk is over, and the problem if `until` failed."""
    try:
        with AWAITED_CALL:
            found: Any = until(said)  # Any: a function of the caller
            if inspect.isawaitable(found):
                found = await found
    except Exception as error:  # noqa: BLE001 - whatever a function of the caller raises is reported
        return False, words_of(innermost(error))
    if not isinstance(found, bool):
        return False, f"it returned {shown(found, 100)}, not True or False"
    return found, ""
