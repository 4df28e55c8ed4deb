"""`MiniAgent`: the turn-limited loop, small enough to read in one sitting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kairo_team.budget import Budget, Usage, check_count
from kairo_team.errors import ConstraintExit, KairoError
from kairo_team.models.admission import prompt_bound
from kairo_team.models.chat_model import Message, ModelRequest
from kairo_team.results import AgentOutput, AgentStatus, Artifact, adapter

if TYPE_CHECKING:
    from kairo_team.contracts import ChatModel, MemberContext, Models
    from kairo_team.tasks import Assignment
    from kairo_team.team import Role

Settings = Mapping[str, Any] | Callable[["Assignment"], Mapping[str, Any]]
"""Sampling settings (temperature, seed, max_tokens ...), or a function that picks them for an assignment."""


class MiniAgent:
    """Asks a model, turn by turn, until it has an answer.

    A turn is one model call. A reply that was cut off is continued in the next turn; after `max_turns` the text so
    far comes back as TURN_LIMIT_REACHED. On the last turn of several, or when another turn could not be paid, the
    prompt says so. When the task names an output type the reply is held to its JSON schema. When a constraint ends
    the attempt the text so far comes back as GRACEFUL_EXIT. `max_turns` holds beside whatever constraints there are.
    """

    reentrant = True
    own_loop = True

    def __init__(self, model: str | ChatModel, *, max_turns: int = 10, settings: Settings | None = None) -> None:
        check_count("MiniAgent.max_turns", max_turns)
        if max_turns < 1:
            raise ValueError("MiniAgent.max_turns must be at least 1")
        self.model = model
        self.max_turns = max_turns
        self._settings: Settings = settings if settings is not None else {}

    def preflight(self, role: Role, models: Models, budget: Budget) -> list[str]:
        """Say why the agent could not work: its model is not to be had, or its first prompt could not be paid."""
        try:
            models.resolve(self.model)
        except KairoError as error:
            return [str(error)]
        if budget.loops == 0:
            return ["it needs at least 1 loop, the budget allows 0"]
        need = prompt_bound(ModelRequest([Message.system(role.instructions), Message.user("")])) // _BYTES_A_TOKEN + 1
        if budget.tokens is not None and budget.tokens < need:
            return [f"its first prompt alone needs about {need} tokens, the budget has {budget.tokens}"]
        return []

    async def run(self, assignment: Assignment, context: MemberContext) -> AgentOutput:
        """Do the task; raises `HaltError` when a limit is reached, with what was said so far kept."""
        conversation = _Conversation(self, assignment, context)
        turn, error = 0, None
        try:
            while turn < self.max_turns and not conversation.complete:
                context.governor.pre_step()
                await conversation.take_turn(turn + 1)
                turn += 1
        except ConstraintExit as refusal:
            status, error = AgentStatus.GRACEFUL_EXIT, str(refusal)
        else:
            status = AgentStatus.COMPLETED if conversation.complete else AgentStatus.TURN_LIMIT_REACHED
        artifact = Artifact(conversation.text, partial=not conversation.complete)
        return AgentOutput(artifact, status, turn, self.max_turns, conversation.usage, error)

    def settings_for(self, assignment: Assignment) -> dict[str, Any]:
        """Return the sampling settings of one assignment."""
        return dict(self._settings(assignment) if callable(self._settings) else self._settings)

    def __repr__(self) -> str:
        return f"MiniAgent({self.model!r}, max_turns={self.max_turns})"


_BYTES_A_TOKEN = 6
"""More text than this rarely goes into one token: a prompt cannot be paid below that."""


class _Conversation:
    """One run of the loop; nothing of it is kept on the agent, so two runs never mix."""

    def __init__(self, agent: MiniAgent, assignment: Assignment, context: MemberContext) -> None:
        self._agent = agent
        self._assignment = assignment
        self._context = context
        self._model = context.model(agent.model)
        self._settings = agent.settings_for(assignment)
        self._max_tokens: int | None = self._settings.pop("max_tokens", None)
        self._schema = adapter(context.output_type).json_schema() if context.output_type is not None else None
        self._messages = [Message.system(context.render("system", role=context.role, schema=self._schema))]
        self._dearest = Decimal(0)
        """Dollars of the dearest turn so far."""
        self.text = ""
        self.usage = Usage()
        self.complete = False

    async def take_turn(self, turn: int) -> None:
        """Ask once, keep the reply, and see whether it is whole."""
        ask = self._ask(turn)
        request = ModelRequest([*self._messages, ask], self._schema, self._max_tokens, self._settings)
        response = await self._model.complete(request)
        self._messages += [ask, Message.assistant(response.text)]
        self.text += response.text
        used = response.usage or Usage()
        self.usage += used
        self._dearest = max(self._dearest, used.dollars)
        self.complete = response.finish_reason != "length" or self._schema is not None
        self._context.keep(self.text)

    def _ask(self, turn: int) -> Message:
        template = "task" if turn == 1 else "continue"
        return Message.user(
            self._context.render(
                template, assignment=self._assignment, role=self._context.role, limits=self._limits(turn)
            )
        )

    def _limits(self, turn: int) -> str:
        """Say what is left, and on the last turn that it is the last; nothing when there is no limit to speak of."""
        if self._agent.max_turns > 1 and (turn == self._agent.max_turns or not self._could_pay_another()):
            return "This is your last turn: finish now with what you have."
        left = self._context.remaining
        parts = [f"{self._agent.max_turns - turn + 1} turns"] if self._agent.max_turns > 1 else []
        parts += [f"{left.tokens} tokens"] if left.tokens is not None else []
        parts += [f"${left.dollars}"] if left.dollars is not None else []
        parts += [f"{left.seconds:.0f} seconds"] if left.seconds is not None else []
        return f"Left for this task: {', '.join(parts)}." if parts else ""

    def _could_pay_another(self) -> bool:
        """Say whether what is left pays for this turn, whose loop is counted, and one more."""
        left = self._context.remaining
        if left.loops == 0 or (left.dollars is not None and left.dollars < 2 * self._dearest):
            return False
        if left.tokens is None:
            return True
        turn = prompt_bound(ModelRequest(self._messages)) + (self._max_tokens or 0)
        return left.tokens >= 2 * turn
