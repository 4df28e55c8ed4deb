"""`PydanticAIAgent`: an agent of pydantic-ai as a member."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from kairo_team._util.frozen import known_arguments, thaw
from kairo_team.agents.wrapped import WrappedAgent, artifact_of, end_of, shared_or_made
from kairo_team.artifacts import Artifact
from kairo_team.errors import MissingExtra
from kairo_team.results import AgentOutput, AgentStatus

if TYPE_CHECKING:
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.messages import UserContent
    from pydantic_ai.toolsets import AbstractToolset
    from pydantic_ai.usage import UsageLimits

    from kairo_team.agents.pydantic_ai_hooks import Session
    from kairo_team.contracts import MemberContext, Models
    from kairo_team.files import File
    from kairo_team.tasks import Assignment

    Asked = str | Sequence[UserContent]

Prompt = Callable[["Assignment", "MemberContext"], "Asked | Awaitable[Asked]"]
"""Makes the user's prompt for an assignment; it may be async."""


@known_arguments
class PydanticAIAgent(WrappedAgent):
    """Run a pydantic-ai agent for a task; every model request and tool call of its run is governed.

    The agent is never changed: a capability binds the governor to each run, so one agent object can work for many
    members and tasks at once. The role's instructions are added to its own; the prompt is the rendered task, or the
    text of `prompt(assignment, context)`. `deps` is what its tools receive as `ctx.deps`: a value, or a function of
    assignment and context that makes one for each run. `toolsets` are added to the agent's own; `model`,
    `model_settings` and `usage_limits` are passed to its `run`. When the task names an output type, an agent that
    answers in plain text is asked for that type; a structured answer is the artifact's data, and its JSON the text.

    Model requests are held, capped by `max_tokens`, booked, recorded and shown to guardrails, and each counts as a
    loop; this includes retries after a bad answer, each attempt of a `FallbackModel`, and continuations. A streamed
    request is made in one piece and then passed to the agent's event handlers. A file in a prompt is held as the most
    tokens by its provider's rule, one that only the provider has as 4096. The model's name for prices and events is
    pydantic-ai's `model_id`, such as `openai:gpt-5-mini`.

    Calls of function tools, user toolsets and MCP toolsets pass the tool pipeline: a tool declares its side effect in
    its metadata, `metadata={"side_effect": "read"}`; without it the tool is "system". The MCP policy sees an MCP
    toolset's tools under the toolset's id. Tools that are not allowed are not offered; a refused call is a failed tool
    result that the model can read. A tool's result or error, including `ModelRetry`, reaches the agent unchanged,
    except for text that a guardrail changed or a secret that was masked. Output tools are the answer and are not
    governed.

    The wrapper cannot see: tools that run at the provider (web search, code execution, a provider's MCP connector), for
    which only the tokens are booked; what a capability's own toolset wrapper does itself, such as tool search (the
    tools behind it are seen); other models that a tool function calls by itself; retries inside the client of a
    provider that does not support the setting `max_retries`, which is set to 0; the model's thoughts, which guardrails
    do not receive. A toolset that a function makes for each run is governed, but its MCP servers are not recognised as
    such. An agent that waits for an approval, or for a call that is executed elsewhere, ends as BLOCKED, because
    nothing answers it here. A limit of the agent's own `usage_limits` ends it with the text so far: `request_limit` as
    TURN_LIMIT_REACHED, any other as GRACEFUL_EXIT. pydantic-ai runs agents only on asyncio, and so do teams with such a
    member.
    """

    library = "pydantic-ai"

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        *,
        deps: Any = None,
        prompt: Prompt | None = None,
        toolsets: Iterable[AbstractToolset[Any]] = (),
        model: Any = None,
        model_settings: Any = None,
        usage_limits: UsageLimits | None = None,
    ) -> None:
        """Wrap an agent; a `ValueError` names the expected type of a wrong argument."""
        self.agent = _checked_agent(agent)
        super().__init__(prompt)
        self.toolsets = _checked_toolsets(toolsets)
        self._deps = deps
        self._options: dict[str, Any] = {"model": model, "model_settings": model_settings, "usage_limits": usage_limits}

    async def _attempt(self, assignment: Assignment, context: MemberContext) -> AgentOutput:
        from pydantic_ai.exceptions import UsageLimitExceeded

        from kairo_team.agents.pydantic_ai_hooks import Session

        session = Session(context)
        try:
            result = await self._run(assignment, session)
        except UsageLimitExceeded as limit:
            session.ending.check()
            turns = "request_limit" in str(limit)  # the exception does not say which limit in any other way
            status = AgentStatus.TURN_LIMIT_REACHED if turns else AgentStatus.GRACEFUL_EXIT
            return self._output(session, Artifact(session.text, partial=True), status, str(limit))
        except Exception:
            session.ending.check()
            status, cut_by = end_of(session.last)
            if status is not AgentStatus.BLOCKED:
                raise
            return self._output(session, Artifact(session.text, partial=True), status, cut_by)
        session.ending.check()
        return self._finish(session, result)

    async def _run(self, assignment: Assignment, session: Session) -> Any:
        from kairo_team.agents.pydantic_ai_hooks import Governance
        from kairo_team.models.provider_messages import file_content

        context, asked = session.context, await self._ask(assignment, session.context)
        files = [file_content(file) for file in self._files(assignment)]
        return await self.agent.run(
            [asked, *files] if files else asked,
            output_type=self._output_type(context.output_type),
            deps=await shared_or_made(self._deps, assignment, context),
            instructions=context.role.instructions or None,
            capabilities=[Governance(session)],
            toolsets=[*self.toolsets, *session.toolsets()],
            infer_name=False,  # it would set a name on the shared agent
            **self._options,
        )

    def _output_type(self, wanted: Any) -> Any:
        """Return the output type to request instead of plain text; None keeps the agent's own."""
        # The agent's own validators expect its own type.
        if wanted is None or self.agent.output_type is not str or getattr(self.agent, "_output_validators", None):
            return None
        if not isinstance(wanted, Mapping):
            return wanted
        from pydantic_ai.output import StructuredDict

        schema: dict[str, Any] = thaw(wanted)
        return StructuredDict(schema, name=None if "title" in schema else "reply")

    def _finish(self, session: Session, result: Any) -> AgentOutput:
        """Return the output of a run that ended by itself."""
        from pydantic_ai.tools import DeferredToolRequests

        from kairo_team.models.provider_messages import file_of

        output = result.output
        if isinstance(output, DeferredToolRequests):
            waiting = ", ".join(repr(call.tool_name) for call in [*output.approvals, *output.calls])
            error = f"the agent waits for an approval or an outside answer to its calls of {waiting}"
            return self._output(session, Artifact(session.text, partial=True), AgentStatus.BLOCKED, error)
        status, cut_by = end_of(session.last)
        file = file_of(output)  # an agent may answer with an image
        artifact = (
            artifact_of(output, partial=cut_by is not None) if file is None else Artifact(str(file), files=[file])
        )
        return self._output(session, artifact, status, cut_by, result.all_messages())

    def _output(
        self,
        session: Session,
        artifact: Artifact,
        status: AgentStatus,
        error: str | None = None,
        messages: Sequence[Any] = (),
    ) -> AgentOutput:
        from pydantic_ai.usage import UsageLimits

        from kairo_team.agents.pydantic_ai_messages import conversation

        limits: UsageLimits = self._options["usage_limits"] or UsageLimits()  # the same default as `Agent.run`
        counts = (session.turns, limits.request_limit, session.tool_calls)
        return AgentOutput(artifact, status, *counts, session.usage, conversation(messages), error)

    def file_problem(self, file: File, models: Models) -> str | None:
        """Return why the agent's model does not take a file, by its profile; None if it does, or if that is unknown."""
        from pydantic_ai.models import infer_model

        from kairo_team.agents.pydantic_ai_hooks import unwrapped
        from kairo_team.models.provider_messages import file_problem_of

        model: Any = self._options["model"] or getattr(self.agent, "model", None)
        if model is None or self._prompt is not None or self._model_problem() is not None:
            return None
        model = unwrapped(infer_model(model))
        if hasattr(model, "models"):  # a FallbackModel
            return None
        why = file_problem_of(model, file)
        return None if why is None else f"model {model.model_id!r} cannot be given {file}: {why}"

    def _model_problem(self) -> str | None:
        """Return why the agent's model is not available; None if it is."""
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model

        model: Any = self._options["model"] or getattr(self.agent, "model", None)
        if model is None:
            chosen: Any = getattr(self.agent, "root_capability", None)
            has_one = chosen is not None and chosen.get_model() is not None
            return None if has_one else "it has no model: Agent('openai:...'), or PydanticAIAgent(agent, model=...)"
        try:
            infer_model(model)
        except (UserError, ValueError, ImportError) as error:
            return f"its model {model!r} is not available: {error}"
        return None

    def __repr__(self) -> str:
        return f"PydanticAIAgent({self.agent.name or self.agent!r})"


def _checked_agent(agent: Any) -> AbstractAgent[Any, Any]:
    if find_spec("pydantic_ai") is None:
        raise MissingExtra("PydanticAIAgent", "models")
    from pydantic_ai.agent import AbstractAgent

    if isinstance(agent, AbstractAgent):
        return cast("AbstractAgent[Any, Any]", agent)  # type: ignore[redundant-cast]  # pyright needs it
    what = "an agent that is ready, not its class" if isinstance(agent, type) else f"not {agent!r:.200}"
    raise ValueError(f"PydanticAIAgent wraps a pydantic_ai.Agent, {what}")


def _checked_toolsets(toolsets: Iterable[Any]) -> tuple[AbstractToolset[Any], ...]:
    from pydantic_ai.toolsets import AbstractToolset

    if isinstance(toolsets, AbstractToolset) or not isinstance(toolsets, Iterable):
        raise ValueError(f"PydanticAIAgent.toolsets is a list of pydantic-ai toolsets, not {toolsets!r:.200}")
    given = tuple(toolsets)
    for one in given:
        if not isinstance(one, AbstractToolset):
            raise ValueError(
                f"PydanticAIAgent.toolsets holds pydantic-ai toolsets, such as FunctionToolset, not {one!r:.200}"
            )
    return given
