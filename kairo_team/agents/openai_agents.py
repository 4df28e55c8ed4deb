"""An agent of the OpenAI Agents SDK as a member: its own loop, this library's budget, guardrails and permissions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from anyio import CancelScope

from kairo_team._util.frozen import known_arguments
from kairo_team._util.narrowing import is_mapping
from kairo_team.agents.wrapped import WrappedAgent, artifact_of, end_of, shared_or_made
from kairo_team.artifacts import Artifact
from kairo_team.budget import check_count
from kairo_team.errors import MissingExtra, known
from kairo_team.messages import Message
from kairo_team.permissions import SideEffect
from kairo_team.results import AgentOutput, AgentStatus

if TYPE_CHECKING:
    from agents import Agent, RunConfig

    from kairo_team.agents.openai_run import GovernedRun
    from kairo_team.contracts import MemberContext, Models
    from kairo_team.files import File
    from kairo_team.tasks import Assignment

Prompt = Callable[["Assignment", "MemberContext"], Any]
"""Makes the agent's input: a text, or input items of the library. It may be async."""

MAX_TURNS: Final = 10
"""Default limit of turns in one run; the same as the agents library's."""


@known_arguments
class OpenAIAgent(WrappedAgent):
    """Wrap an `agents.Agent`; needs the extra `openai-agents`, and runs on asyncio.

    The agent, the agents it hands over to and those it uses as tools run in the library's own loop, on copies made for
    the attempt, so one object can do many tasks at once. Each of their model calls is held, capped, guarded and booked
    as a call of `context.model`, under the name `openai:<model>`; each call of a function tool, including those of MCP
    servers, goes through the team's permissions and guardrails. Runs that the library's guardrails, tools or hooks
    start by `Runner.run` are governed as well. A halt, a constraint's exit, a guardrail's denial and a cancellation
    pass through the library unchanged, and tracing is off.

    The prompt is the rendered task, or the text that `prompt(assignment, context)` returns. The agent's own
    instructions come before the role's; an agent without instructions gets those of a `MiniAgent`. `context` is what
    its tools receive as their context: a value, or a function of assignment and context that makes one for each run.
    When the task names an output type, an agent that answers in plain text is asked for that type; a structured answer
    is the artifact's data, and its JSON the text. `run_config` is used unchanged, except for models and tracing.
    `max_turns` limits the outermost run; None sets no limit. `side_effects` declares the tools' side effects by name:
    "read", "write" or "system"; every other tool counts as "system". Tools of one turn that do more than read run one
    by one.

    These cannot be observed and are refused unless `allow_hosted`: tools that run at the provider (web and file search,
    code interpreter, image generation, hosted MCP), and prompts and conversations that the provider stores. Tools that
    the library runs other than as function tools (shell, apply-patch, computer, custom) are always refused. A model
    that a tool, guardrail or hook calls without `Runner.run`, and sessions that compact themselves, can neither be
    observed nor refused; their usage is not counted. Handoffs are part of the conversation, not tool calls. The cost of
    pictures and files is estimated before the call. A reply that an inner run streams comes in one piece, after it
    passed the guardrails. A wrong object raises `ValueError`. The library's own guardrails keep working: when one
    trips, the output is BLOCKED, as it is when a tool waits for the library's own approval, which nothing gives here.
    """

    library = "the agents library"

    def __init__(
        self,
        agent: Agent[Any],
        *,
        prompt: Prompt | None = None,
        context: Any = None,
        run_config: RunConfig | None = None,
        max_turns: int | None = MAX_TURNS,
        side_effects: Mapping[str, SideEffect] | None = None,
        allow_hosted: bool = False,
    ) -> None:
        _check(agent, run_config, max_turns)
        super().__init__(prompt)
        self.agent = agent
        self.max_turns = max_turns
        self._shared = context
        self._config = run_config
        self._side_effects = _check_side_effects(side_effects)
        self._allow_hosted = allow_hosted
        from kairo_team.agents.openai_tools import tool_problems

        if problems := list(tool_problems(agent, allow_hosted=allow_hosted)):
            raise ValueError("; ".join(problems))

    async def _attempt(self, assignment: Assignment, context: MemberContext) -> AgentOutput:
        from kairo_team.agents.openai_run import GovernedRun, attempt

        run = GovernedRun(context, self._side_effects, allow_hosted=self._allow_hosted, output_type=context.output_type)
        with attempt(run):
            asked = await self._ask(assignment, context)
            if files := self._files(assignment):
                content = [{"type": "input_text", "text": asked}, *map(_part, files)]
                asked = [{"role": "user", "content": content}]
            ended = await self._run(run, asked, await shared_or_made(self._shared, assignment, context))
        status, artifact, transcript, error = ended
        counts = (run.turns, self.max_turns, run.tool_calls)
        return AgentOutput(artifact, status, *counts, run.usage, transcript, error)

    async def _run(self, run: GovernedRun, asked: Any, shared: Any) -> _End:
        """Run the agent in the library; raise an error that must end the attempt, even if the library converted it."""
        from agents import RunConfig, Runner

        config = self._config
        if config is None:  # the model may call a tool that is not offered
            config = RunConfig(tool_not_found_behavior="return_error_to_model")
        start = run.outermost(self.agent)
        try:
            result = await Runner.run(start, asked, context=shared, max_turns=self.max_turns, run_config=config)
        except Exception as error:  # noqa: BLE001 - the library wraps and replaces errors
            run.ending.check()
            return _early_end(run, error)
        finally:
            if self._config is None:
                # The provider was made for this run, and its client stays open otherwise, also after a cancellation.
                with CancelScope(shield=True):
                    await config.model_provider.aclose()
        run.ending.check()
        return _end(run, result)

    def file_problem(self, file: File, models: Models) -> str | None:
        """Return why the library does not take a file; None if it does, whatever its model may see."""
        if self._prompt is not None or file.is_image or file.media_type == "application/pdf":
            return None
        return None if file.is_text and file.url is None else f"{self.library} takes images, PDFs and texts, not {file}"

    def _model_problem(self) -> str | None:
        """Return why the first agent's model cannot be made, without calling it; None if it can."""
        from agents import Model, RunConfig

        config = self._config if self._config is not None else RunConfig()
        model = config.model or self.agent.model
        if isinstance(model, Model):
            return None
        try:
            config.model_provider.get_model(model)
        except Exception as error:  # noqa: BLE001 - providers raise errors of any kind
            name = "the library's default model" if model is None else f"the model {model!r}"
            return f"{name} is not available: {str(error).partition(chr(10))[0]}"
        return None

    def __repr__(self) -> str:
        return f"OpenAIAgent({self.agent.name!r}, max_turns={self.max_turns})"


def _part(file: File) -> dict[str, str]:
    """Return a file as a part of the library's input."""
    given = file.url or f"data:{file.media_type};base64,{file.as_json()['data']}"
    if file.is_image:
        return {"type": "input_image", "image_url": given, "detail": "auto"}
    if file.is_text and file.data is not None:
        return {"type": "input_text", "text": f"{file.name}:\n{file.data.decode(errors='replace')}"}
    if file.url is not None:
        return {"type": "input_file", "file_url": file.url}
    return {"type": "input_file", "file_data": given, "filename": file.name}


_End = tuple[AgentStatus, Artifact, tuple[Message, ...], str | None]
"""The end of a run: status, artifact, conversation, and why it is not complete."""


def _end(run: GovernedRun, result: Any) -> _End:
    """Convert a result of the library."""
    from kairo_team.agents.openai_views import message_of

    messages = tuple(message_of(cast("dict[str, Any]", item)) for item in result.to_input_list())
    if result.interruptions:
        names = known({str(one.name) for one in result.interruptions})
        why = f"tools wait for an approval that is never given here: {names}; leave approvals to the team's permissions"
        return AgentStatus.BLOCKED, Artifact(run.text, partial=True), messages, why
    output = "" if result.final_output is None else result.final_output
    status, cut_by = end_of(run.last)
    return status, artifact_of(output, partial=cut_by is not None), messages, cut_by


def _early_end(run: GovernedRun, error: Exception) -> _End:
    """Return the end of a run that raised its turn limit or a library guardrail's error; raise any other error."""
    from agents import exceptions

    if isinstance(error, exceptions.MaxTurnsExceeded):
        return AgentStatus.TURN_LIMIT_REACHED, Artifact(run.text, partial=True), (), str(error)
    tripped: Any = getattr(error, "guardrail_result", error)
    guardrail = getattr(tripped, "guardrail", None)
    if guardrail is None:
        status, cut_by = end_of(run.last)
        if status is AgentStatus.BLOCKED:
            return status, Artifact(run.text, partial=True), (), cut_by
        raise error
    run.context.keep("")  # the text may be what the guardrail must not let out
    why = f"the agent's own guardrail {guardrail.get_name()!r} was tripped"
    return AgentStatus.BLOCKED, Artifact("", partial=True), (), why


# ---------------------------------------------------------------- before work starts


def _check(agent: Any, run_config: Any, max_turns: Any) -> None:
    """Raise `MissingExtra` without the library, and `ValueError` for wrong arguments."""
    if find_spec("agents") is None:
        raise MissingExtra("OpenAIAgent", "openai-agents")
    from agents import Agent, RunConfig

    if not isinstance(agent, Agent):
        raise ValueError(f"OpenAIAgent wraps an agents.Agent, not {agent!r:.200}")
    if run_config is not None and not isinstance(run_config, RunConfig):
        raise ValueError(f"OpenAIAgent.run_config must be an agents.RunConfig, not {run_config!r:.200}")
    if max_turns is not None:
        check_count("OpenAIAgent.max_turns", max_turns)
        if max_turns < 1:
            raise ValueError("OpenAIAgent.max_turns must be at least 1, or None for no limit")


def _check_side_effects(given: Any) -> Mapping[str, SideEffect]:
    allowed = get_args(SideEffect)
    if given is not None and not is_mapping(given):
        raise ValueError(f"OpenAIAgent.side_effects must be a mapping of tool names, not {given!r:.200}")
    effects: dict[Any, Any] = dict(given or {})
    for name, side_effect in effects.items():
        if side_effect not in allowed:
            raise ValueError(
                f"OpenAIAgent.side_effects: {name!r} must be one of {', '.join(allowed)}, not {side_effect!r}"
            )
    return effects
