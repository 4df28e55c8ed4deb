"""What a member, planner or evaluator may use while it works: governed models, its budget, a place for partial work."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from anyio import from_thread
from anyio.lowlevel import current_token

from kairo_team.events import AttemptProgress, ModelCalled
from kairo_team.frozen import freeze_json
from kairo_team.models.admission import GovernedModel
from kairo_team.results import adapter
from kairo_team.run_constraints import RunConstraints

if TYPE_CHECKING:
    from kairo_team.budget import Budget, Usage
    from kairo_team.contracts import ChatModel, GovernedChatModel, Journal
    from kairo_team.governance.governor import Governor
    from kairo_team.models.admission import CallOutcome
    from kairo_team.models.chat_model import ModelRequest, ModelResponse
    from kairo_team.prompts import Prompts
    from kairo_team.run_constraints import Watch
    from kairo_team.runtime import Runtime
    from kairo_team.team import Role, TeamExecutionRequest
    from kairo_team.team_run import TeamRun

Emit = Callable[..., None]


class WorkContext:
    """One piece of work (an attempt, a plan, a review) and what it may use; fulfils `contracts.MemberContext`."""

    __slots__ = (
        "_calls", "_step", "_stopped", "_tools", "constraints", "governor", "kept", "member", "output_type", "role",
        "task_id",
    )  # fmt: skip

    def __init__(
        self, tools: RunTools, governor: Governor, role: Role, *, step: str, task_id: str | None, member: str | None
    ) -> None:
        self.governor = governor
        self.role = role
        self.task_id = task_id
        self.member = member
        self.output_type: Any = None
        self.kept = ""
        self._tools = tools
        self._step = step
        self._calls: dict[str, int] | None = None
        self._stopped = _never
        self.constraints = (
            None if tools.constraints is None else tools.constraints.for_attempt(self, self._emit_anywhere)
        )

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """Let `cancelled` say what `stopped` says."""
        self._stopped = stopped

    @property
    def remaining(self) -> Budget:
        """What could be spent now."""
        return self.governor.remaining

    @property
    def cancelled(self) -> bool:
        """True once the work is to end."""
        return self._stopped()

    def model(self, model: str | ChatModel) -> GovernedChatModel:
        """Return a model whose calls are governed and recorded."""
        tools = self._tools
        found = tools.models.resolve(model)
        return RecordedModel(self, GovernedModel(found, self.governor, self._report, tools.prices))

    def render(self, template: str, **values: object) -> str:
        """Fill in one of the run's prompt templates."""
        return self._tools.prompts.render(template, **values)

    def keep(self, text: str) -> None:
        """Put partial work in safety; the last text kept counts."""
        self.kept = text

    def emit(self, text: str, **data: Any) -> None:
        """Report progress, from the event loop or from a worker thread; `ValueError` for what JSON cannot hold."""
        self._emit_anywhere(AttemptProgress, self.task_id, self.member, text, freeze_json(data))

    def call_key(self, request: ModelRequest) -> str:
        """Name this call in the journal: by what is asked, and how often it was asked before."""
        body = adapter(type(request)).dump_json(request)
        digest = hashlib.sha256(body).hexdigest()[:16]
        self._calls = self._calls or {}
        self._calls[digest] = number = self._calls.get(digest, 0) + 1
        return f"call:{self._step}:{digest}:{number}"

    @property
    def journal(self) -> Journal:
        """Where calls are recorded."""
        return self._tools.journal

    def _report(self, model: str, outcome: CallOutcome, held: int, usage: Usage) -> None:
        self._emit_anywhere(ModelCalled, self.task_id, self.member, model, outcome, held, usage)

    def _emit_anywhere(self, *event: Any) -> None:
        tools = self._tools
        if threading.get_ident() == tools.thread:
            tools.emit(*event)
        else:
            from_thread.run_sync(tools.emit, *event, token=tools.token)


def _never() -> bool:
    return False


class RunTools:
    """What every piece of work of one run shares."""

    __slots__ = ("constraints", "emit", "journal", "models", "prices", "prompts", "thread", "token")

    def __init__(self, runtime: Runtime, request: TeamExecutionRequest, prompts: Prompts, emit: Emit) -> None:
        self.models = runtime.models
        self.prices = runtime.prices.under(request.config.budget_policy)
        self.prompts = prompts
        self.journal = runtime.journal_for(request.run_id)
        self.emit = emit
        self.thread = threading.get_ident()
        self.token = current_token()
        self.constraints: RunConstraints | None = None
        """None where neither the team nor a member has any: then they cost nothing."""

    def constrain(self, run: TeamRun) -> Sequence[Watch]:
        """Put the team's and the members' constraints in force; return what is to run beside the run for them."""
        if not run.team.constraints and not any(member.constraints for member in run.team.members):
            return ()
        self.constraints = RunConstraints(run)
        return self.constraints.watches


class RecordedModel:
    """A governed model whose calls are recorded: the intent before, the reply after, so none is paid twice."""

    __slots__ = ("_context", "_model")

    def __init__(self, context: WorkContext, model: GovernedModel) -> None:
        self._context = context
        self._model = model

    @property
    def name(self) -> str:
        """`provider:model`."""
        return self._model.name

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request, from the record when this call was made before."""
        journal, key = self._context.journal, self._context.call_key(request)
        constraints = self._context.constraints
        recorded: Any = journal.get(key, None)
        if recorded is not None:
            response: ModelResponse = recorded
            if constraints is not None:
                constraints.repeat_turn(request, response)
            return response
        turn = await constraints.begin_turn(request) if constraints is not None else 0
        journal.put(key, None)
        response = await self._model.complete(request)
        journal.put(key, response)
        if constraints is not None:
            await constraints.end_turn(turn, response)
        return response
