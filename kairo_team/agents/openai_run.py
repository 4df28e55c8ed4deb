"""Govern the runs of the agents library in one attempt, which pays for their models and tools.

The library starts every run through one object, its default runner; `Gate` replaces it. A run started inside an attempt
is governed: the attempt's own run, a run of an agent used as a tool, or one that a guardrail or a tool of the user
starts. Every other run passes through unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from agents import Agent, Handoff, Model, RunConfig, RunState
from agents import handoff as make_handoff
from agents.run import get_default_agent_runner, set_default_agent_runner
from anyio import Lock
from anyio.lowlevel import current_token

from kairo_team._util.context_values import set_for
from kairo_team._util.narrowing import is_list
from kairo_team.agents.openai_models import GovernedNativeModel, GovernedProvider
from kairo_team.agents.openai_tools import ToolBinder, is_agent
from kairo_team.agents.openai_views import TaskOutput
from kairo_team.agents.wrapped import GovernedCalls
from kairo_team.errors import ModelCallError

if TYPE_CHECKING:
    from agents import RunContextWrapper
    from agents import Tool as TheirTool
    from agents.run import CallModelData, ModelInputData

    from kairo_team.agents.openai_models import OneCall
    from kairo_team.contracts import MemberContext
    from kairo_team.messages import ModelResponse
    from kairo_team.permissions import SideEffect


class GovernedRun(GovernedCalls):
    """The governed calls of one attempt, and its counts. `ending` keeps the error that the library must not hide."""

    def __init__(
        self,
        context: MemberContext,
        side_effects: Mapping[str, SideEffect],
        *,
        allow_hosted: bool,
        output_type: Any = None,
    ) -> None:
        super().__init__(context)
        self.text = ""
        """The last text of the outermost run."""
        self.last: ModelResponse | None = None
        """The last reply of the outermost run."""
        self.tools = ToolBinder(self, self.one_by_one, side_effects, allow_hosted=allow_hosted)
        self._allow_hosted = allow_hosted
        self._output = None if output_type is None or output_type is str else TaskOutput(output_type)
        self._agents: dict[tuple[int, bool], tuple[Agent[Any], Agent[Any]]] = {}
        self._governed: set[int] = set()
        """The `id()` of each governed copy."""
        self._loop = current_token()

    def one_by_one(self) -> Lock:
        """Return this run's lock for tools that do more than read."""
        return _frame().one_by_one

    # ------------------------------------------------------------ model calls

    async def ask(self, call: OneCall) -> ModelResponse:
        """Make one governed model call."""
        native = call.call
        if not self._allow_hosted and (native.previous_response_id or native.conversation_id or native.prompt):
            raise ValueError(
                "a conversation or a prompt that the provider keeps cannot be seen, bounded or guarded: "
                "send the text itself, or allow it, OpenAIAgent(..., allow_hosted=True)"
            )
        with self.ending:
            try:
                response = await self.call(call, call.view)
            except ModelCallError as error:  # the library and its own retries must see the original
                raise call.error or error from None
        if _frame().depth == 1:
            self.last = response
            self.text = response.text or self.text
            self.context.keep(self.text)
        return response

    # ------------------------------------------------------------ agents

    def outermost(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the governed copy of the first agent, with the role's instructions after its own."""
        start = self.govern(agent, outermost=True)
        start.instructions = self._instructions(agent.instructions)
        return start

    def govern(self, agent: Agent[Any], *, outermost: bool = False) -> Agent[Any]:
        """Return a copy of an agent with governed model, tools and handoffs; the same copy each time."""
        if id(agent) in self._governed:
            return agent
        found = self._agents.get((id(agent), outermost))
        if found is None:
            governed = copy.copy(agent)
            kind: Any = type(agent)
            # Not constructed: a subclass of the user may take other arguments.
            governed.__class__ = _governed_kind(kind)
            found = self._agents[id(agent), outermost] = (agent, governed)  # keeps both, and so their ids, alive
            self._governed.add(id(governed))
            self._fill(governed, agent, outermost=outermost)
        return found[1]

    def config(self, given: Any) -> RunConfig:
        """Return a run's settings with governed models, and without tracing."""
        make: Any = RunConfig  # the library also takes the settings as a dict
        config: RunConfig = make(**given) if isinstance(given, dict) else given or RunConfig()
        own = config.call_model_input_filter
        return replace(
            config,
            model=self._model(config.model),
            model_provider=GovernedProvider.of(self.ask, config.model_provider),
            call_model_input_filter=own if isinstance(own, _Check) else _Check(self, own),
            tracing_disabled=True,  # traces would take prompts to the provider past the guardrails
        )

    def refresh(self, agent: Agent[Any]) -> None:
        """Govern the parts that a hook may have added to a governed copy since its last turn."""
        if agent.model is not None:
            agent.model = self._model(agent.model)
        if not all(isinstance(one, Handoff) for one in agent.handoffs):
            agent.handoffs = self._handoffs(agent.handoffs, outermost=False)

    def check_agent(self, agent: Agent[Any]) -> None:
        """Raise `RuntimeError` unless an agent that is about to call its model is governed."""
        raw = isinstance(agent.model, Model) and not isinstance(agent.model, GovernedNativeModel)
        if raw or id(agent) not in self._governed:
            raise RuntimeError(
                f"the agent {agent.name!r}, or its model, was added during the run and is not governed: "
                "give a run its agents and models from the start"
            )

    def check_loop(self) -> None:
        """Raise `RuntimeError` in an event loop other than the attempt's, such as one in a thread."""
        if current_token() != self._loop:
            raise RuntimeError(_OTHER_LOOP)

    def _fill(self, governed: Agent[Any], agent: Agent[Any], *, outermost: bool) -> None:
        for name, value in vars(agent).items():
            if is_list(value):
                # A copy, because a hook may append, and the user's agent stays as it is.
                object.__setattr__(governed, name, value.copy())
        governed.model = self._model(agent.model)
        governed.handoffs = self._handoffs(agent.handoffs, outermost=outermost)
        if outermost and agent.output_type is None:
            governed.output_type = self._output

    def _instructions(self, own: Any) -> Any:
        role = self.context.role
        if own is None:
            schema = None if self._output is None else self._output.json_schema()
            return self.context.render("system", role=role, schema=schema)
        if not role.instructions or isinstance(own, str):
            return f"{own}\n\n{role.instructions}" if role.instructions else own

        async def both(run_context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
            text = own(run_context, agent)
            return f"{await text if isawaitable(text) else text}\n\n{role.instructions}"

        return both

    def _handoffs(self, targets: list[Any], *, outermost: bool) -> list[Any]:
        """Return handoffs to governed agents, each of which is made only when the handoff happens."""
        handoffs = list[Handoff[Any, Any]]()
        for target in targets:
            handoff: Handoff[Any, Any] = make_handoff(target) if is_agent(target) else copy.copy(target)
            handoff.on_invoke_handoff = partial(self._hand_over, handoff.on_invoke_handoff, outermost)
            handoff._agent_ref = None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # it refers to the agent that is not governed
            handoffs.append(handoff)
        return handoffs

    async def _hand_over(self, invoke: Any, outermost: bool, context: Any, arguments: str) -> Agent[Any]:
        cut_by = self.last.cut_by if self.last is not None and _frame().depth == 1 else None
        if cut_by is not None:
            raise RuntimeError(f"no handoff was made, because {cut_by}: allow the agent longer replies (max_tokens)")
        return self.govern(await invoke(context, arguments), outermost=outermost)

    def _model(self, model: str | Model | None) -> str | Model | None:
        return GovernedNativeModel.of(self.ask, model) if isinstance(model, Model) else model


class _Check:
    """Checks the agent before each model call, and then calls the user's own filter."""

    def __init__(self, run: GovernedRun, own: Any) -> None:
        self._run = run
        self._own = own

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        self._run.check_agent(data.agent)
        if self._own is None:
            return data.model_data
        filtered: Any = self._own(data)
        changed: ModelInputData = await filtered if isawaitable(filtered) else filtered
        return changed


# ---------------------------------------------------------------- where a run is


@dataclass(frozen=True, slots=True)
class _Frame:
    """The current run, in its context variable."""

    run: GovernedRun
    depth: int
    """Nesting: 1 is the attempt's own run, more is a run inside it."""
    one_by_one: Lock
    """Held while a tool of this run that does more than read is called."""


_HERE: Final[ContextVar[_Frame | None]] = ContextVar("kairo_team_openai_run", default=None)
_OTHER_LOOP: Final = (
    "a run of the agents library in another event loop cannot be governed: make the tool or guardrail that starts it "
    "an async function, and await Runner.run there"
)


def _frame() -> _Frame:
    frame = _HERE.get()
    if frame is None:
        raise RuntimeError("a governed agent belongs to one attempt: it cannot be run outside of it")
    return frame


@contextmanager
def attempt(run: GovernedRun) -> Generator[None]:
    """Govern the runs that are started inside the block; the first time, put the gate before the default runner."""
    runner = get_default_agent_runner()
    if not isinstance(runner, Gate):
        set_default_agent_runner(Gate(runner))  # type: ignore[arg-type]  # it has all methods of a runner
    with set_for(_HERE, _Frame(run, 0, Lock())):
        yield


class _Governed:
    """Marks the classes of governed agents."""


@cache
def _governed_kind(kind: Any) -> Any:
    """Return a subclass of an agent's class whose `get_all_tools` returns governed tools, whatever their source."""

    async def get_all_tools(self: Agent[Any], run_context: RunContextWrapper[Any]) -> list[TheirTool]:
        run = _frame().run
        run.refresh(self)
        own = run.tools.bind(await kind.get_all_tools(self, run_context))
        return own if _frame().depth > 1 else [*own, *run.tools.offered(tool.name for tool in own)]

    return (
        kind
        if issubclass(kind, _Governed)
        else type(kind.__name__, (kind, _Governed), {"get_all_tools": get_all_tools, "__module__": kind.__module__})
    )


# ---------------------------------------------------------------- the default runner


class Gate:
    """Replaces the library's default runner, and governs the runs inside an attempt."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Any) -> Any:
        """Run an agent."""
        with _prepared_agent(starting_agent, input, options) as agent:
            return await self._runner.run(agent, input, **options)

    def run_streamed(self, starting_agent: Agent[Any], input: Any, **options: Any) -> Any:
        """Start a run; it continues in the library's own task, which inherits the context variable."""
        with _prepared_agent(starting_agent, input, options) as agent:
            return self._runner.run_streamed(agent, input, **options)

    def run_sync(self, starting_agent: Agent[Any], input: Any, **options: Any) -> Any:
        """Run an agent in a new event loop."""
        if _HERE.get() is not None:
            raise RuntimeError(_OTHER_LOOP)
        return self._runner.run_sync(starting_agent, input, **options)


@contextmanager
def _prepared_agent(agent: Agent[Any], input: Any, options: dict[str, Any]) -> Generator[Agent[Any]]:
    """Yield the agent for a run that starts here, and set the run's options."""
    here = _HERE.get()
    if here is None:
        yield agent
        return
    here.run.check_loop()
    if isinstance(input, RunState):
        raise RuntimeError(
            "a saved run of the agents library cannot be governed: start a new one, with its input as text"
        )
    options["run_config"] = here.run.config(options.get("run_config"))
    # A lock of its own: the tool that started this run may hold the outer one.
    with set_for(_HERE, _Frame(here.run, here.depth + 1, Lock())):
        yield here.run.govern(agent, outermost=here.depth == 0)
