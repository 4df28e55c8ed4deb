"""Constraints at work: those of a run, those of an attempt, and models whose calls they guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from kairo_team.budget import HaltReason
from kairo_team.constraints import AgentState, ResourceAction, ResourceContext, Violation
from kairo_team.engine.live.enforced_end import CallSupervisor, ScopeStopper
from kairo_team.engine.live.task_pool import Watch, background
from kairo_team.errors import ConstraintExit
from kairo_team.events import ConstraintViolated
from kairo_team.governance.constraint_chain import ConstraintChain, Supervise

if TYPE_CHECKING:
    from kairo_team.contracts import ResourceConstraint
    from kairo_team.files import File
    from kairo_team.governance.governor import Governor
    from kairo_team.messages import Message, ModelRequest, ModelResponse
    from kairo_team.models.governed_model import GovernedModel, Listen, OnText

T = TypeVar("T")


ENDED_EARLY: Final = "ended early by"
"""How the warning of a constraint that ended an attempt begins."""


class RunConstraints:
    """The constraints of one run: shared ones, a chain for each member, and decisions that apply to all attempts."""

    __slots__ = ("_chains", "_emit", "_kill", "_of_all", "_root", "_warn", "_warned", "clock", "exit", "on_exit")

    def __init__(
        self,
        root: Governor,
        clock: Callable[[], float],
        shared: Sequence[ResourceConstraint],
        own: Mapping[str, Sequence[ResourceConstraint]],
        emit: Callable[..., object],
        kill: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """Take the run's governor and clock; `shared` constraints are the runtime's and the team's, `own` a member's.

        `kill` ends the run with a reason, `warn` puts a sentence into its result.
        """
        self.clock = clock
        self.exit: Violation | None = None
        """Set when a watch of a shared constraint decided, for every attempt, that no further model call may be made.
        """
        self.on_exit: list[Callable[[Violation], object]] = []
        """Called with that decision: attempts may be made elsewhere."""
        self._root = root
        self._kill = kill
        self._warn = warn
        self._emit = emit
        self._of_all = ConstraintChain(shared)
        chains = {member: ConstraintChain((*shared, *constraints)) for member, constraints in own.items()}
        self._chains = {member: chain for member, chain in chains.items() if chain.constraints}
        self._warned: set[tuple[str | None, int]] = set()

    def watches(self, supervisor: CallSupervisor | None) -> Sequence[Watch]:
        """Return the watches that run as long as the run does."""
        supervise = None if supervisor is None else supervisor.run
        return [partial(self._watch, position, supervise) for position in self._of_all.watched]

    def for_attempt(
        self, member: str | None, task_id: str | None, governor: Governor, tool_calls: int, emit: Callable[..., object]
    ) -> AttemptConstraints | None:
        """Return the constraints of an attempt; None for a member without any, and for work without a member.

        `tool_calls` were made on its governor before it began.
        """
        chain = self._chains.get(member) if member is not None else None
        return None if chain is None else AttemptConstraints(self, chain, member, task_id, governor, tool_calls, emit)

    def is_of_all(self, position: int) -> bool:
        """Whether a position in a member's chain is one of the shared constraints."""
        return position < len(self._of_all.constraints)

    def stop(self, violation: Violation) -> None:
        """Interrupt the whole run because of a violation."""
        self.stop_for(f"emergency stop by {violation}")

    def stop_for(self, reason: str) -> None:
        """Interrupt the whole run for a reason in words."""
        self._root.cancel(HaltReason.EMERGENCY_STOP)
        if self._root.halted not in _ENDS_OF_OTHERS:
            self._kill(reason)  # the first reason wins: this one only adds the words

    def is_news(self, task_id: str | None, constraint: object) -> bool:
        """Return whether a constraint has not warned of a task yet, and record that it has now."""
        warning = (task_id, id(constraint))
        if warning in self._warned:
            return False
        self._warned.add(warning)
        return True

    async def _watch(self, position: int, supervise: Supervise | None) -> None:
        violation = await self._of_all.watch(position, supervise)
        if violation is None:
            return
        self._emit(ConstraintViolated, None, None, *violation_fields(violation))
        if violation.action is ResourceAction.EMERGENCY_STOP:
            self.stop(violation)
            return
        if violation.action is ResourceAction.GRACEFUL_EXIT:
            self.exit = self.exit or violation
            for call in list(self.on_exit):
                call(self.exit)
        if violation.action is not ResourceAction.ALLOW:
            self._warn(str(violation))


_ENDS_OF_OTHERS: Final = frozenset({HaltReason.CANCELLED, HaltReason.TIME_BUDGET_EXCEEDED})
"""Reasons why the run was about to end before a constraint stopped it."""


def violation_fields(violation: Violation) -> tuple[Any, ...]:
    """Return the own fields of a `ConstraintViolated`."""
    return violation.constraint, violation.action.value, violation.reason, violation.validation.metrics


class AttemptConstraints:
    """The constraints of one attempt, and what they saw and decided."""

    __slots__ = (
        "_began", "_chain", "_emit", "_exit", "_governor", "_member", "_messages", "_of_run", "_task_id", "_text",
        "_tool_calls_before", "_turns_begun", "_warnings", "refusal", "stopped_by", "turns_completed",
    )  # fmt: skip

    def __init__(
        self,
        of_run: RunConstraints,
        chain: ConstraintChain,
        member: str | None,
        task_id: str | None,
        governor: Governor,
        tool_calls: int,
        emit: Callable[..., object],
    ) -> None:
        self.refusal: ConstraintExit | None = None
        """Set once a model call, or the attempt itself, was refused."""
        self.stopped_by: Violation | None = None
        """The emergency that stopped the attempt, or the run from within it."""
        self._of_run = of_run
        self._chain = chain
        self._governor = governor
        self._task_id = task_id
        self._member = member
        self._tool_calls_before = tool_calls
        self._emit = emit
        self._exit: Violation | None = None
        self._warnings: list[str] = []
        self._began = of_run.clock()
        self._turns_begun = 0
        self.turns_completed = 0
        self._messages: Sequence[Message] = ()
        self._text = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """The attempt's warnings for the task's outcome."""
        cut = (f"{ENDED_EARLY} {self._exit}",) if self.refusal is not None and self._exit is not None else ()
        return (*self._warnings, *cut)

    @property
    def exiting(self) -> bool:
        """Whether a constraint has asked for an orderly end: no further call may be paid."""
        return self._exit is not None

    async def around(self, call: Callable[[], Awaitable[T]], supervisor: CallSupervisor | None = None) -> T:
        """Call the agent unless the constraints refuse; the member's watches run in the background."""
        await self._look(0)
        self._refuse_if_decided()
        # The scopes are never entered: the supervisor looks only at whether they were cancelled.
        stoppers = {
            one: ScopeStopper(anyio.CancelScope()) for one in self._chain.watched if not self._of_run.is_of_all(one)
        }
        if not stoppers:
            return await call()
        async with background(*(partial(self._watch, *one, supervisor) for one in stoppers.items())):
            try:
                return await call()
            finally:
                for stopper in stoppers.values():
                    stopper.cancel()

    async def begin_turn(self, request: ModelRequest) -> int:
        """Return the turn's number, from 0; raise if the model call may not begin."""
        turn = self._turns_begun
        self._turns_begun += 1
        self._messages = request.without_asides.messages
        if self.refusal is not None or self.stopped_by is not None:
            await checkpoint()  # an agent that calls again and again must not keep the event loop to itself
        elif self._exit is None:
            await self._look(turn)
        self._refuse_if_decided()
        return turn

    async def end_turn(self, turn: int, response: ModelResponse) -> None:
        """Record a reply; raise `HaltError` if it led to an emergency stop."""
        self._note(response)
        await self._look(turn)
        if self.stopped_by is not None:
            self._governor.can_proceed()

    def repeat_turn(self, request: ModelRequest, response: ModelResponse) -> None:
        """Count a recorded turn."""
        # The decisions of the constraints are recorded too, so nothing is evaluated here.
        self._turns_begun += 1
        self._messages = request.without_asides.messages
        self._note(response)

    def _note(self, response: ModelResponse) -> None:
        self.turns_completed += 1
        self._text = response.text

    async def _look(self, turn: int) -> None:
        usage, elapsed = self._governor.usage, self._of_run.clock() - self._began
        tools = usage.tool_calls - self._tool_calls_before
        state = AgentState(self._messages, self.turns_completed, tools, self._text)
        seen = ResourceContext(turn, usage.tokens, elapsed, state, self._member, usage)
        for violation in (await self._chain.evaluate(seen)).violations:
            self._take(violation)

    async def _watch(self, position: int, stopper: ScopeStopper, supervisor: CallSupervisor | None) -> None:
        supervise = None if supervisor is None else partial(supervisor.run, stopper=stopper)
        violation = await self._chain.watch(position, supervise)
        if violation is not None:
            self._take(violation)

    def _take(self, violation: Violation) -> None:
        """Emit a violation and carry out its action."""
        self._emit(ConstraintViolated, self._task_id, self._member, *violation_fields(violation))
        if violation.action is ResourceAction.EMERGENCY_STOP:
            self.stopped_by = self.stopped_by or violation
            # A constraint of all members stops the run; a member's own one stops this attempt alone.
            if self._of_run.is_of_all(violation.position):
                self._of_run.stop(violation)
            else:
                self._governor.cancel(HaltReason.EMERGENCY_STOP)
        elif violation.action is ResourceAction.GRACEFUL_EXIT:
            self._exit = self._exit or violation
        elif violation.action is ResourceAction.WARN_CONTINUE and self._of_run.is_news(
            self._task_id, self._chain.constraints[violation.position]
        ):
            self._warnings.append(str(violation))

    def _refuse_if_decided(self) -> None:
        """Raise `HaltError` or `ConstraintExit` once nothing more may begin."""
        if self.stopped_by is not None:
            self._governor.can_proceed()
        self._exit = self._exit or self._of_run.exit
        if self._exit is not None:
            self.refusal = ConstraintExit(self._exit.constraint, self._exit.reason)
            raise self.refusal


class ConstrainedModel:
    """A governed model inside a team that is a member: its calls are turns of the attempt around that team."""

    __slots__ = ("_constraints", "_model")

    def __init__(self, constraints: AttemptConstraints, model: AskedModel) -> None:
        self._constraints = constraints
        self._model = model

    @property
    def name(self) -> str:
        """`provider:model`."""
        return self._model.name

    @property
    def context_window(self) -> int | None:
        """The most tokens of prompt and reply together; None: unknown."""
        return self._model.context_window

    async def complete(self, request: ModelRequest, listen: Listen | None = None) -> ModelResponse:
        """Answer one request, unless a constraint refuses."""
        turn = await self._constraints.begin_turn(request)
        response = await self._model.complete(request, listen)
        await self._constraints.end_turn(turn, response)
        return response

    async def stream(self, request: ModelRequest, on_text: OnText, on_thinking: OnText) -> ModelResponse:
        """Answer one request, and call `on_text` with each piece of its text, `on_thinking` of its reasoning."""
        turn = await self._constraints.begin_turn(request)
        response = await self._model.stream(request, on_text, on_thinking)
        await self._constraints.end_turn(turn, response)
        return response

    def file_problem(self, file: File) -> str | None:
        """Return why the model does not take a file; None if it does."""
        return self._model.file_problem(file)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the model's own count of a prompt's tokens."""
        return await self._model.count_tokens(request)


AskedModel: TypeAlias = "GovernedModel | ConstrainedModel"
"""A governed model, as a member's model calls it."""
