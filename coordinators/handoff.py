"""Hand-offs: a member ends its turn by naming the next member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kairo_team._util.frozen import known_arguments
from kairo_team._util.narrowing import fields_of, is_mapping, is_sequence
from kairo_team._util.reply_json import object_schema
from kairo_team.budget import check_count
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.coordinators.reviewers import Reviewers, ReviewingCoordinator, default_evaluator
from kairo_team.coordinators.turns import Said, TurnRounds, Turns, described, turn_id, written
from kairo_team.engine.records.digests import digest_of
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.errors import PlanRefused, known
from kairo_team.tasks import Task, TaskGraph, TaskStatus
from kairo_team.tools.tool import Tool

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy, HumanGate
    from kairo_team.results import Attempt, TeamResult
    from kairo_team.team import Member, Team, TeamExecutionRequest

HAND_OVER: Final = "hand_over"
"""The name of the tool, and the key of an artifact's data, by which a member names the next one."""


class HandOver(NamedTuple):
    """The next member and its message."""

    to: str
    message: str


@known_arguments
class HandoffCoordinator(ReviewingCoordinator):
    """Lets members hand the work to each other, turn by turn, until one answers.

    Each turn is a task: `turn.0001` and so on. Its member is offered a tool `hand_over(to, message)`, whose call ends
    the turn; a member that takes no tools answers with data, `kt.Artifact(text, {"hand_over": {"to": ..., "message":
    ...}})`. The next member gets the message, the last text and the conversation so far, cut to `max_characters`. An
    answer without a hand-over ends the run, and is its output.

    `first` begins: a member's id, by default the first of the team. `routes` say to whom a member may hand over, by id;
    a member without a route may hand over to every other member. After `max_hops` hand-overs the tool is not offered
    any more. The run ends, DEGRADED and with the last text as its output, if a member hands over nevertheless, or
    repeats an earlier hand-over in the same words.

    `evaluator` reviews answers: a strategy or rubric, or the name of one of the team's. None reviews nothing, and with
    a `judge` that an answer does what the goal asks. `failure_policy` says what follows a failed turn; the other
    members for it are the targets of the member that handed it over. `gate` and `templates` are as in
    `ExpertTeamCoordinator`.

    >>> coordinator = kt.HandoffCoordinator(first="greeter", routes={"greeter": ["billing", "technical"]}, max_hops=4)
    """

    def __init__(
        self,
        *,
        first: str | None = None,
        routes: Mapping[str, Sequence[str]] | None = None,
        max_hops: int = 10,
        max_characters: int = 6_000,
        evaluator: EvaluationStrategy | str | None = None,
        judge: str | ChatModel | Agent | None = None,
        gate: HumanGate | None = None,
        failure_policy: FailurePolicy = FailurePolicy(),
        templates: Mapping[str, str] | None = None,
    ) -> None:
        owner = "HandoffCoordinator"
        if first is not None and (not isinstance(first, str) or not first):
            raise ValueError(f"{owner}.first is the id of a member, or None for the first of the team, not {first!r}")
        check_count(f"{owner}.max_hops", max_hops)
        check_count(f"{owner}.max_characters", max_characters, 1)
        self.first = first
        self.routes = _check_routes(routes)
        self.max_hops = max_hops
        self.max_characters = max_characters
        chosen = evaluator if evaluator is not None or judge is None else default_evaluator(judge)
        self._take(chosen, judge, gate, failure_policy, templates)

    @property
    def digest(self) -> str:
        """The first member, the routes and the limits, in a text that is the same in every process."""
        return digest_of(self.first, dict(self.routes), self.max_hops, self.max_characters)

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the first turn as a plan. `PlanRefused` for an evaluator the team does not have."""
        self._reviewers(team)
        return TaskGraph([Task(turn_id(1), request.goal, member=self._beginner(team))])

    def worst_case(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan of a run that hands over as often as it may."""
        turns = [*self.preview(request, team).tasks]
        for number in range(2, self.max_hops + 2):
            turns.append(replace(turns[0], id=turn_id(number), depends_on=[turns[-1].id]))
        return TaskGraph(turns)

    def preflight(self, request: TeamExecutionRequest, team: Team) -> list[str]:
        """Return why this request cannot be run with this team."""
        problems = list(self._problems(request, team))
        try:
            return problems + self._reviewers(team).problems(self.preview(request, team), request.config)
        except PlanRefused as refused:
            return [*problems, *refused.problems]

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run the request to its end."""
        async with TeamRun.open(request, team, templates=self.templates, gate=self.gate) as run:
            problems = self.preflight(request, run.team)
            if problems:
                raise PlanRefused(problems)
            await _Conversation(self, run, self._reviewers(run.team)).hold()
        return run.result

    def targets(self, member: str, team: Team) -> list[Member]:
        """Return the members that one may hand over to, in the team's order."""
        others = [one for one in team.members if one.id != member]
        named = self.routes.get(member)
        return others if named is None else [one for one in others if one.id in named]

    def _beginner(self, team: Team) -> str:
        return team.members[0].id if self.first is None else self.first

    def _problems(self, request: TeamExecutionRequest, team: Team) -> Iterator[str]:
        members = {member.id: member for member in team.members}
        if request.plan is not None:
            yield "members that hand over make no use of a plan: leave it out, or take another coordinator"
        if self._beginner(team) not in members:
            yield f"first names {self.first!r}, and the team has the members {known(members)}"
        for name, named in self.routes.items():
            unknown = [one for one in (name, *named) if one not in members]
            if unknown:
                yield f"routes of {name!r}: the team has no {known(unknown)}; it has the members {known(members)}"
        for name, member in members.items():
            yield from self._cannot_hand_over(name, member, team)

    def _cannot_hand_over(self, name: str, member: Member, team: Team) -> Iterator[str]:
        """Yield what keeps a member from handing over that should be able to."""
        if not self.max_hops or not self.targets(name, team):
            return
        tools: Any = getattr(member.agent, "tools", ())
        own = cast("Sequence[Any]", tools) if isinstance(tools, tuple | list) else ()
        if any(getattr(tool, "name", None) == HAND_OVER for tool in own):
            yield f"member {name!r} has a tool {HAND_OVER!r} of its own: give it another name, as_tool(..., name=...)"
        if not getattr(member.agent, "takes_tools", True):
            data = f"{{{HAND_OVER!r}: {{'to': ..., 'message': ...}}}}"
            yield (
                f"member {name!r} takes no tools from a coordinator, so it cannot hand over: wrap it in a function "
                f"that returns kt.Artifact(text, {data}), or let it answer, routes={{{name!r}: []}}"
            )


class _Conversation:
    """The conversation of one run."""

    def __init__(self, of: HandoffCoordinator, run: TeamRun, reviewers: Reviewers) -> None:
        self._of = of
        self._run = run
        self._reviewers = reviewers
        self._turns = Turns(run, self._rounds, reviewers)
        self._said: list[Said] = []
        """The turns so far."""
        self._handed: set[tuple[str, str, str, str]] = set()
        """Hand-overs so far: from, to, text and message."""
        self.handed_by: str | None = None
        """The member that handed over to the one whose turn it is; None for the first."""
        self.hops_left = of.max_hops
        """How many more hand-overs are allowed."""

    def _rounds(self, task: Task) -> _HandoffRounds:
        return _HandoffRounds(self._of, self, self._run, task, self._reviewers.of(task), self._of.failure_policy)

    async def hold(self) -> None:
        """Take turns until a member answers, or a hand-over ends the run."""
        first = self._of.preview(self._run.request, self._run.team).tasks[0]
        task = await self._turns.take(first.member, first.description)
        while (attempt := self._passed_on(task)) is not None:
            said = _said(attempt)
            end = self._end(attempt, said)
            if end is not None:
                self._run.degrade(end)
                return
            task = await self._next_turn(attempt, said)

    def _passed_on(self, task: Task) -> Attempt | None:
        """Return the attempt that handed over; None for an answer, and for a turn that was not accepted."""
        # A turn without budget never began, and one that handed over may be cancelled before it ends.
        ended, rounds = self._run.outcome(task), self._turns.rounds.get(task.id)
        accepted = ended is not None and ended.status is TaskStatus.COMPLETED
        return rounds.passed_on if rounds is not None and accepted else None

    async def _next_turn(self, attempt: Attempt, said: HandOver) -> Task:
        # Further hand-overs of the reply that ended the attempt, if its conversation is kept.
        transcript = () if attempt.output is None else attempt.output.transcript
        reply = next((message for message in reversed(transcript) if message.role == "assistant"), None)
        asked = [] if reply is None else [call.arguments for call in reply.tool_calls if call.name == HAND_OVER]
        more = [str(one.get("to")) for one in asked[1:] if isinstance(one, Mapping)]
        if more:
            others = f"also to {known(more)}" if set(more) != {said.to} else "again"
            self._run.warn(
                f"{attempt.member!r} handed over to {said.to!r}, and {others}, in one reply: the first counts"
            )
        inputs = {"message": said.message}
        if self._said:
            inputs["conversation"] = written(self._said, self._of.max_characters)
        text = "" if attempt.artifact is None else attempt.artifact.text
        own = "" if text == said.message else text  # some members write the message twice
        self._said.append(Said(attempt.member, own, f"hands over to {said.to}: {said.message}"))
        self.handed_by = attempt.member
        self.hops_left -= 1  # before the turn begins: its tools depend on this
        end = "" if self.hops_left else " No hand-over is left: answer yourself."
        ask = f"{attempt.member!r} hands over to you: read the message, and go on with the goal.{end}"
        return await self._turns.take(said.to, ask, inputs)

    def _end(self, attempt: Attempt, said: HandOver) -> str | None:
        """Return why the run ends with this hand-over; None if it continues."""
        text = "" if attempt.artifact is None else attempt.artifact.text
        # Text and message: a member that repeats both is in a circle; new words may be progress.
        handed = (attempt.member, said.to, _folded(text), _folded(said.message))
        if handed in self._handed:
            return f"{attempt.member!r} handed over to {said.to!r} in the same words as before: nothing new came of it"
        self._handed.add(handed)
        if self.hops_left:
            return None
        return f"{attempt.member!r} would hand over to {said.to!r}, after {self._of.max_hops} hand-overs (max_hops)"


class _HandoffRounds(TurnRounds):
    """The rounds of one turn."""

    def __init__(self, of: HandoffCoordinator, conversation: _Conversation, *about: Any) -> None:
        super().__init__(*about)
        self._of = of
        self._conversation = conversation

    def tools(self, number: int) -> Sequence[Tool]:
        """Offer the tool that hands over, while that is possible."""
        targets = self._targets(self.run.member(self.task) or "") if self._conversation.hops_left else []
        return (hand_over_tool(targets),) if targets else ()

    def others(self) -> Sequence[str]:
        """Return the other members that could have been handed this turn."""
        by = self._conversation.handed_by
        targets = [] if by is None else self._of.targets(by, self.run.team)
        return [one.id for one in targets if one.id != self.run.member(self.task)]

    def _targets(self, member: str) -> list[Member]:
        """Return the members that one may hand over to; a substitute, such as a senior, uses the task's own routes."""
        team = self.run.team
        stands_in = member not in {one.id for one in team.members}
        return self._of.targets((self.task.member or member) if stands_in else member, team)

    def problem(self, attempt: Attempt) -> str | None:
        """Return what is wrong with a hand-over that came as data."""
        data = _handed_as_data(attempt)
        if attempt.ended_by is not None or data is None:  # the tool has checked its own arguments
            return None
        try:
            _checked(data, [one.id for one in self._targets(attempt.member)])
        except ValueError as error:
            return f"its data hands over, and {error}"
        return None

    def is_answer(self, attempt: Attempt) -> bool:
        """Return whether the attempt names no next member."""
        return not _names_next(attempt)


def _said(attempt: Attempt) -> HandOver:
    """Return the member that an attempt named, and the message."""
    given: Any = _handed_as_data(attempt) if attempt.ended_by is None else attempt.ended_by.arguments
    return HandOver(str(given["to"]), str(given["message"]))


def handed_to(attempts: Sequence[Attempt]) -> list[str | None]:
    """Return to whom each attempt of a run handed over, for all its attempts in order; None for an answer.

    The last attempt of a turn counts, and only if another turn follows: a hand-over that ends a run was refused.
    """
    after = [*(one.task_id for one in attempts[1:]), *(one.task_id for one in attempts[-1:])]
    return [
        _said(one).to if one.task_id != follows and _names_next(one) else None
        for one, follows in zip(attempts, after, strict=True)
    ]


def _names_next(attempt: Attempt) -> bool:
    """Return whether an attempt names the next member, by the tool or by data."""
    return (attempt.ended_by is not None and attempt.ended_by.name == HAND_OVER) or _handed_as_data(attempt) is not None


def hand_over_tool(targets: Sequence[Member]) -> Tool:
    """Return the tool by which a member hands over to one of these targets."""
    names = [member.id for member in targets]
    message = {"type": "string", "description": "What the next one must know, and is to do."}
    parameters = object_schema({"to": {"enum": names}, "message": message})
    lines = "\n".join(map(described, targets))
    what = f"End your turn, and let another member go on. Members:\n{lines}"

    def check(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return _checked(arguments, names)

    # "read": it changes nothing outside the run.
    return Tool(HAND_OVER, _message, what, parameters, "read", check, idempotent=True, ends="turn")


async def _message(arguments: Mapping[str, Any]) -> str:
    message: str = arguments["message"]
    return message


def _checked(given: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the arguments of a hand-over; `ValueError` with a sentence if they are invalid."""
    arguments = fields_of(given)
    to, message = arguments.get("to"), arguments.get("message")
    if to not in names:
        raise ValueError(f"to must be one of {known(names)}, not {to!r:.200}")
    if not isinstance(message, str) or not message.strip():
        raise ValueError(f"message must be a text for {to!r} that is not blank, not {message!r:.200}")
    return {"to": to, "message": message}


def _handed_as_data(attempt: Attempt) -> Any:
    """Return the hand-over in an artifact's data; None without one."""
    return None if attempt.artifact is None else fields_of(attempt.artifact.data).get(HAND_OVER)


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _check_routes(given: Any) -> Mapping[str, tuple[str, ...]]:
    """Return routes by member; `ValueError` for invalid ones."""
    what = "HandoffCoordinator.routes"
    if given is not None and not is_mapping(given):
        raise ValueError(f"{what} are the members that one may hand over to, by member, not {given!r:.200}")
    routes: dict[str, tuple[str, ...]] = {}
    for name, named in (given or {}).items():
        if not isinstance(name, str) or not is_sequence(named) or isinstance(named, str):
            raise ValueError(f"{what}: {name!r} has a list of members' ids, such as ['billing'], not {named!r:.200}")
        targets = tuple(named)
        unfit = [one for one in targets if not isinstance(one, str) or one == name]
        if unfit:
            raise ValueError(f"{what}: {name!r} hands over to the ids of other members, not to {unfit[0]!r:.200}")
        routes[name] = targets
    return MappingProxyType(routes)  # read-only: the digest is part of the record
