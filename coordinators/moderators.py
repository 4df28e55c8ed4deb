"""Who speaks next in a group chat: the next in turn, or the choice of a function, a model or an agent."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

import anyio
from pydantic import create_model

from kairo_team._util.counts import in_seconds
from kairo_team._util.plugin_shapes import check_function, check_instance, check_plug_in
from kairo_team._util.reply_json import object_schema, read_reply
from kairo_team.coordinators.turns import Said
from kairo_team.engine.plan.preflight import judge_problems
from kairo_team.engine.tasks.member_budgets import PLAN
from kairo_team.errors import HaltError, InsufficientBudget, JournalError, innermost, is_met_again, known
from kairo_team.files import offered_to
from kairo_team.messages import Message, ModelRequest
from kairo_team.plugin_calls import shown, tidy_block, words_of
from kairo_team.results import AgentOutput, AgentStatus
from kairo_team.tasks import Assignment, Task

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel
    from kairo_team.engine.run.team_run import TeamRun
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.engine.work.work_context import WorkContext
    from kairo_team.files import File
    from kairo_team.team import Member, TeamConfig

ROUND_ROBIN: Final = "round_robin"
END: Final = "end of the talk"
"""A moderator's answer for the end of the talk; no member may have this name."""

Rule = Callable[[Sequence[Said]], str | Awaitable[str | None] | None]
"""A function of the transcript that returns a member's id; None ends the talk."""
_Pick = Callable[[str], Awaitable[str | None]]
"""Asks a moderator about one turn; takes the problem with its last answer, or ""."""


class Choice(NamedTuple):
    """A recorded step: who speaks next."""

    speaker: str | None
    """The member's id; None: the talk ends."""
    problem: str = ""
    """Why that is not the moderator's choice."""
    refused: bool = False
    """Whether the moderator would be refused again in every later turn."""


class Talk(NamedTuple):
    """What a moderator bases its choice on."""

    goal: str
    said: Sequence[Said]
    """All turns, oldest first."""
    text: str
    """The turns that fit into a prompt."""
    speakers: Sequence[Member]
    """The members that can speak, in turn: the next one first."""
    files: Sequence[File] = ()
    """The files of the request."""

    @property
    def names(self) -> Sequence[str]:
        """The ids of the members that can speak."""
        return [member.id for member in self.speakers]


class Moderator(Protocol):
    """Picks the speakers of a talk."""

    tries: int
    """How often the moderator is asked about one turn."""

    def pick(self, context: WorkContext, talk: Talk) -> _Pick:
        """Return the function that asks the moderator about the next turn."""
        ...

    def problems(self, config: TeamConfig, runtime: Runtime) -> list[str]:
        """Return why the moderator could not be called."""
        ...


def moderator_of(where: str, given: Any) -> Moderator | None:
    """Return the moderator of a setting; None for a round robin; `ValueError` for an invalid setting."""
    if given == ROUND_ROBIN:
        return None
    check_instance(where, "a moderator", given)
    if isinstance(given, str):
        if not given.strip():
            raise ValueError(f"{where} must name a model, or be {ROUND_ROBIN!r}, not {given!r}")
        return _Model(given)
    if callable(getattr(given, "complete", None)):  # before `callable`: a model may be callable too
        check_plug_in(where, "a moderator", given, "complete", "request")
        return _Model(given)
    if callable(getattr(given, "run", None)):
        check_plug_in(where, "a moderator", given, "run", "assignment", "context")
        return _Agent(given)
    if not callable(given):
        raise ValueError(
            f"{where} must be {ROUND_ROBIN!r}, a function of the transcript that returns a member's name or None, a "
            f"model or an agent, not {given!r:.200}"
        )
    check_function(where, given, "moderator(transcript)")
    return _Function(cast("Rule", given))


def in_turn(order: Sequence[Member], last: str | None) -> list[Member]:
    """Return members in the order in which they are next after the last speaker."""
    start = next((number for number, member in enumerate(order, 1) if member.id == last), 0)
    return [*order[start:], *order[:start]]


async def choose(moderator: Moderator, run: TeamRun, talk: Talk) -> Choice:
    """Return the moderator's choice; if it fails or names no member, the speaker in turn.

    The talk ends if the run has no budget left for the moderator. It does not end before a member has spoken.
    """
    pick, seconds, problem = moderator.pick(run.context(PLAN), talk), run.config.task_timeout, ""
    refused = False
    for _ in range(moderator.tries):
        try:
            named: Any = await _picked(pick, problem, seconds)
        except Exception as error:
            cause = innermost(error)
            if isinstance(cause, JournalError):  # nothing can be recorded, so the run cannot continue
                raise
            problem = words_of(cause)
            if isinstance(cause, HaltError) and talk.said:
                return Choice(None, problem)
            refused = is_met_again(cause)
            if refused or isinstance(cause, HaltError | InsufficientBudget | _CutOff):
                break
            continue
        named = _speaker(named, talk.names)
        if named in talk.names or (named is None and talk.said):
            return Choice(named)
        wrong = "ended the talk before any member had spoken" if named is None else f"named {shown(named, 100)}"
        problem = f"it {wrong}; who can speak: {known(talk.names)}"
    return Choice(talk.names[0], problem, refused)  # the next in turn: a talk does not fail for its moderator


async def _picked(pick: _Pick, problem: str, seconds: float | None) -> str | None:
    """Ask the moderator once; its own `TimeoutError` has its own words."""
    with anyio.move_on_after(seconds):
        async with tidy_block():
            return await pick(problem)
    raise TimeoutError(f"it did not answer in {in_seconds(seconds or 0)} (TeamConfig.task_timeout)")


class _CutOff(ValueError):
    """The answer was cut off; the same limit would cut off the next."""


class _Function:
    tries = 1

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def pick(self, context: WorkContext, talk: Talk) -> _Pick:
        async def call(problem: str) -> str | None:  # noqa: ARG001 - called once, so there is no earlier problem
            found = self._rule(talk.said)
            return await found if inspect.isawaitable(found) else found

        return call

    def problems(self, config: TeamConfig, runtime: Runtime) -> list[str]:
        return []


class _Model:
    tries = 2

    def __init__(self, model: str | ChatModel) -> None:
        self._model = model

    def pick(self, context: WorkContext, talk: Talk) -> _Pick:
        model = context.model(self._model)
        seen, lines = offered_to(getattr(model, "file_problem", None), talk.files)
        messages = [Message.user(_question(context, talk, lines), seen)]
        schema = object_schema({"next": {"enum": _answers(talk)}})

        async def ask(problem: str) -> str | None:
            if len(messages) > 1:  # the model has answered once
                messages.append(Message.user(context.render("moderator_again", problem=problem)))
            # The same talk, the same choice.
            reply = await model.complete(ModelRequest(messages, (), schema, settings={"temperature": 0.0}))
            # Before the checks: the next try corrects it.
            messages.append(Message.assistant(reply.text, native=reply.native))
            if reply.cut_by is not None:
                raise _CutOff(reply.cut_by)
            return _named(reply.text)

        return ask

    def problems(self, config: TeamConfig, runtime: Runtime) -> list[str]:
        return judge_problems(self._model, config, runtime, "the moderator")


class _Agent:
    tries = 2

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def pick(self, context: WorkContext, talk: Talk) -> _Pick:
        about: Any = getattr(self._agent, "file_problem", None)
        models = context.services.models
        seen, lines = offered_to(lambda file: None if about is None else about(file, models), talk.files)
        question = _question(context, talk, lines)
        answers: Any = Literal[tuple(_answers(talk))]
        # An agent takes its schema from the context.
        context.output_type = create_model("NextSpeaker", next=(answers, ...))

        async def ask(problem: str) -> str | None:
            again = f"\n\n{context.render('moderator_again', problem=problem)}" if problem else ""
            text = f"{question}{again}"
            asked = Assignment(Task("moderator", text), text, {}, {}, {}, files=seen)
            made: Any = await self._agent.run(asked, context)
            if isinstance(made, AgentOutput) and made.status is not AgentStatus.COMPLETED:
                raise ValueError(f"its answer is {made.status.value}: {made.error or made.text}")
            return _named(made if isinstance(made, str) else made.text)

        return ask

    def problems(self, config: TeamConfig, runtime: Runtime) -> list[str]:
        return []


def _question(context: WorkContext, talk: Talk, files: Sequence[str]) -> str:
    about = {"goal": talk.goal, "members": talk.speakers, "transcript": talk.text}
    return context.render("moderator", **about, end=END, files=files)


def _answers(talk: Talk) -> list[str]:
    """Return the possible answers of a moderator; the talk cannot end before a member has spoken."""
    return [*talk.names, *([END] if talk.said else [])]


def _named(text: str) -> str | None:
    """Return the member that a reply names; None for the end of the talk."""
    try:
        named = read_reply(text, _next_in)
    except (ValueError, RecursionError):
        raise ValueError(f'the answer must be {{"next": NAME}}, not {text!r:.200}') from None
    return None if _bare_name(named) == END else named


def _next_in(text: str) -> str:
    found: Any = json.loads(text)
    named = cast("dict[str, Any]", found).get("next") if isinstance(found, dict) else None
    if not isinstance(named, str):
        raise ValueError("it names no member")
    return named


def _speaker(named: Any, names: Sequence[str]) -> Any:
    """Return the member's name that is meant, whatever its case and marks around it; else the value itself."""
    if not isinstance(named, str) or named in names:
        return named
    meant = [name for name in names if _bare_name(name) == _bare_name(named)]
    return meant[0] if len(meant) == 1 else named  # two that match would be a guess


def _bare_name(name: str) -> str:
    return name.strip().strip("*_`\"'").strip().casefold()
