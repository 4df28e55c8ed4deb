"""`LangGraphAgent`: a compiled LangGraph graph as a member of a team (extra `langgraph`)."""

from __future__ import annotations

import sys
import uuid
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kairo_team._util.frozen import freeze_json, known_arguments
from kairo_team._util.late_pydantic import adapter
from kairo_team._util.narrowing import fields_of, is_list
from kairo_team.agents.langgraph_attempt import GraphAttempt
from kairo_team.agents.langgraph_views import message_view, response_view, text_of
from kairo_team.agents.wrapped import WrappedAgent, check_function, end_of, made
from kairo_team.artifacts import Artifact
from kairo_team.errors import MissingExtra
from kairo_team.files import File
from kairo_team.output_types import asked_schema
from kairo_team.results import AgentOutput, AgentStatus

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]

    from kairo_team.contracts import MemberContext
    from kairo_team.tasks import Assignment

M = TypeVar("M", bound="BaseChatModel")
StateIn = Callable[["Assignment", "MemberContext"], Any]
"""Makes the graph's input, or the text of the task's message; it may be async."""
StateOut = Callable[[Any], "str | Artifact"]
"""Makes the artifact from the graph's last state."""

_MESSAGES: Final = "messages"
_STRUCTURED: Final = "structured_response"
"""The channel that prebuilt agents put a typed answer into."""
_INTERRUPT: Final = "__interrupt__"


@known_arguments
class LangGraphAgent(WrappedAgent):
    """Run a compiled graph; its chat models and tools are governed, also in subgraphs and parallel branches.

    The input is `input(assignment, context)`; the default is `{"messages": [...]}` with a system message (when the role
    has instructions or the task an output type) and the task or the text of `prompt(assignment, context)`. The artifact
    is `output(state)`; the default is the text of the last message of a model. The rest of the state, as far as it is
    JSON, becomes the artifact's data; for a task with an output type the data is the channel `structured_response`, or
    the text itself. For a state without messages the text is the JSON of the data. After each step of the graph the
    text so far is kept as the partial artifact, for an attempt that is cut off.

    There are two ways to govern, which may be mixed in one graph:

    - `governed(model)` when the graph is built: every call is held, capped to the budget left, recorded, and shown to
      guardrails, which may change it, like a call of `context.model`. `ToolNode(tools, awrap_tool_call=
      governed_tool_call)` does the same for tools.
    - No change to the graph. Its models and tools are then observed by LangChain's callbacks: each call is held before
      it is made, refused if it does not fit, settled with the usage it reports, and charged its whole hold when it
      fails or is cancelled, unless the provider refused it. A reply cannot be capped then, so a call is refused if its
      whole `max_tokens` (4096 when the model declares none) does not fit; when a guardrail, or the masking of secrets,
      would change a text, the call or its result is refused instead; a call is never answered from a run's records; and
      a directive that is given while the graph works reaches only tasks that begin later.

    A tool declares its side effect with `metadata={"side_effect": "read"}` (or "write"); without it the tool is
    "system". A refused tool call is an error message to the model when a `ToolNode` runs it, and the exception
    `ToolRefused` elsewhere.

    Neither way can see calls that a node makes without LangChain, such as through a provider's own client; a provider
    library's own retries inside one call (set its `max_retries` to 0); embeddings; the inside of a `RemoteGraph`.
    Without `governed` these are not seen either: a call with an empty list of callbacks, a call by `agenerate` without
    callbacks, and the pieces of a reply that a node streams, which are sent before a guardrail sees the whole
    reply. A model that asks other
    models is then counted together with them, and one call with several prompts is refused. Models of text completion
    are observed too. Synchronous nodes run in threads: their calls are governed, but cannot be interrupted in flight;
    such a call is charged its hold and its thread is abandoned. A synchronous call in the event loop's own thread would
    block the team, and is refused.

    A halt, a constraint, a guardrail's denial or an insufficient budget ends the graph at once and is raised from the
    agent as the original exception, even if nodes or retry policies converted it. Each model call counts as a loop.
    When the graph has a checkpointer, every attempt is a thread of its own. A compiled graph cannot get more tools for
    one run, so its models do not have the tools that a coordinator offers, such as one for handing over. A graph
    that reaches its recursion limit ends as TURN_LIMIT_REACHED, with the text so far. An interrupt, which nothing here
    could answer, is a failed attempt: it ends as BLOCKED and is not retried. The graph runs only on asyncio.
    """

    library = "LangGraph"
    takes_tools = False

    def __init__(
        self,
        graph: Pregel[Any, Any, Any, Any],
        *,
        prompt: StateIn | None = None,
        input: StateIn | None = None,
        output: StateOut | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Wrap a graph; `config` is a LangGraph config. `ValueError` for a wrong object or an unfit graph."""
        _check_graph(graph, messages=input is None)
        super().__init__(prompt)
        check_function("LangGraphAgent.input", input)
        if output is not None and not callable(output):
            raise ValueError(f"LangGraphAgent.output is a function of the graph's last state, not {output!r:.200}")
        if config is not None and not isinstance(config, Mapping):
            raise ValueError(f"LangGraphAgent.config is a LangGraph config, a dict, not {config!r:.200}")
        if prompt is not None and input is not None:
            raise ValueError("LangGraphAgent takes `prompt`, the text of the message, or `input`, the whole state")
        if config and "thread_id" in (config.get("configurable") or {}):
            raise ValueError(
                "LangGraphAgent: config names a 'thread_id', which parallel tasks would share: leave it out, every "
                "attempt gets its own"
            )
        self.graph: Any = graph
        self._input = input
        self._output = output
        self._config = dict(config or {})

    async def _attempt(self, assignment: Assignment, context: MemberContext) -> AgentOutput:
        """Do the task."""
        attempt = GraphAttempt(context)
        state, cut = await attempt.run(lambda: self._run_graph(attempt, assignment, context))
        spent: dict[str, Any] = {
            "turns_completed": attempt.turns, "tool_calls_executed": attempt.tool_calls, "usage": attempt.usage
        }  # fmt: skip
        if isinstance(state, dict) and _INTERRUPT in state:
            return AgentOutput(Artifact(_text(state), partial=True), AgentStatus.BLOCKED, error=_INTERRUPTED, **spent)
        if cut is not None:
            return replace(cut, transcript=_transcript(state), **spent)
        # What `output` makes need not come from the last reply, so how that reply ended says nothing about it.
        replies = _replies(state) if self._output is None else []
        status, cut_by = end_of(response_view(replies[0]) if replies else None)
        artifact = self._artifact(state, context)
        if not artifact.text and artifact.data is None:
            _check_calls(state)  # nothing was made: name the likely cause
        artifact = artifact if cut_by is None else replace(artifact, partial=True)
        return AgentOutput(artifact, status, transcript=_transcript(state), error=cut_by, **spent)

    async def _run_graph(
        self, attempt: GraphAttempt, assignment: Assignment, context: MemberContext
    ) -> tuple[Any, AgentOutput | None]:
        """Run the graph; return its last state, and the output if its limit of steps ended it."""
        from langchain_core.runnables.config import merge_configs, var_child_runnable_config
        from langgraph.errors import GraphRecursionError

        from kairo_team.agents.langgraph_watch import Watch

        state: Any = None
        kept = ""
        outside = var_child_runnable_config.set(None)  # do not report to a graph around this team
        config = merge_configs({"callbacks": [Watch(attempt)]}, self._config, self._thread())  # type: ignore[arg-type]  # a RunnableConfig is a dict
        try:
            state_in = await self._state_in(assignment, context)
            stream = self.graph.astream(state_in, config, stream_mode="values", subgraphs=True)
            # Closed in this task: the garbage collector would close it later, in another one.
            async with aclosing(stream) as steps:
                async for namespace, values in steps:
                    kept = self._keep(values, context) or kept
                    await context.put_off()  # before the next step of the graph sees results of such calls
                    state = state if namespace else values  # a namespace marks the state of a subgraph
        except GraphRecursionError:
            allowed = config.get("recursion_limit")
            error = (
                f"the graph did not end within the {allowed} steps that are allowed: let it end earlier, or allow "
                "more by LangGraphAgent(graph, config={'recursion_limit': ...})"
            )
            return state, AgentOutput(Artifact(kept, partial=True), AgentStatus.TURN_LIMIT_REACHED, error=error)
        finally:
            var_child_runnable_config.reset(outside)
        return state, None

    async def _state_in(self, assignment: Assignment, context: MemberContext) -> Any:
        """Return the graph's input; by default the packaged prompts, as for every agent of the library."""
        if self._input is not None:
            return await made(self._input, assignment, context)
        from langchain_core.messages import HumanMessage, SystemMessage

        schema = asked_schema(context.output_type)
        asked, files = await self._ask(assignment, context), self._files(assignment)
        blocks = [{"type": "text", "text": asked}, *map(_block, files)] if files else asked
        task = HumanMessage(cast("Any", blocks))
        if not context.role.instructions and schema is None:
            return {_MESSAGES: [task]}
        return {_MESSAGES: [SystemMessage(context.render("system", role=context.role, schema=schema)), task]}

    def _thread(self) -> dict[str, Any]:
        # A retry on the same thread would resume the checkpoint of the failed attempt.
        return {"configurable": {"thread_id": uuid.uuid4().hex}} if self.graph.checkpointer else {}

    def _keep(self, state: Any, context: MemberContext) -> str:
        """Keep the text so far and return it, if any."""
        text = _text(state)
        if self._output is not None:
            # An incomplete state may not have the fields that `output` reads.
            with suppress(Exception):
                made = self._output(state)
                text = made.text if isinstance(made, Artifact) else made
        if not text or not isinstance(text, str):
            return ""
        context.keep(text)
        return text

    def _artifact(self, state: Any, context: MemberContext) -> Artifact:
        if self._output is None:
            return _artifact(state, context.output_type)
        made = self._output(state)
        if not isinstance(made, str | Artifact):
            raise TypeError(f"LangGraphAgent: output returns a string or an Artifact, not a {type(made).__name__}")
        return Artifact(made) if isinstance(made, str) else made

    def __repr__(self) -> str:
        return f"LangGraphAgent({getattr(self.graph, 'name', 'graph')!r})"


def governed(model: M, *, limit: str | None = None) -> M:
    """Return a copy of a LangChain chat model, of its own kind, that is governed wherever a `LangGraphAgent` runs it.

    Outside a team it works like the original. Inside a team, every call is held, capped, recorded and shown to
    guardrails, and a streamed reply comes in one piece after it passed them. `limit` is the field of the model, or the
    keyword of its calls, that limits a reply's tokens; it is needed only for unusual models, and a `ValueError` asks
    for it. LangChain's cache is switched off, because its answers would pass no guardrail. `ValueError` for an object
    that is not a chat model: bind tools and settings afterwards.
    """
    _need_langgraph("governed")
    from kairo_team.agents.langgraph_models import governed_copy

    copy: M = governed_copy(model, limit)
    return copy


async def governed_tool_call(request: Any, execute: Callable[[Any], Any]) -> Any:
    """Run one tool call of a `ToolNode` through the tool pipeline: `ToolNode(tools, awrap_tool_call=this)`.

    Outside a team the tool just runs. A refusal is an error message that the model can read. The tool receives the
    arguments, and the model the result, as guardrails changed them; a `Command` whose text they change becomes a
    message.
    """
    from kairo_team.agents.langgraph_tools import run_governed

    return await run_governed(request, execute)


_INTERRUPTED: Final = (
    "the graph stopped at an interrupt: it asks for a human's answer, which cannot be given here. Take the "
    "interrupt out of the graph and let the team ask: a criterion by='human', or permissions whose guard says ask"
)


def _need_langgraph(what: str) -> None:
    if "langgraph" not in sys.modules and find_spec("langgraph") is None:
        raise MissingExtra(what, "langgraph")


def _check_graph(given: Any, *, messages: bool) -> None:
    """Raise `ValueError` unless it is a compiled graph whose input can be made and that has no static interrupts."""
    _need_langgraph("LangGraphAgent")
    from langgraph.graph import StateGraph  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]

    graph: Any = given
    if isinstance(given, StateGraph):
        raise ValueError("LangGraphAgent wraps a compiled LangGraph graph: give it graph.compile()")
    if not isinstance(given, Pregel):
        raise ValueError(f"LangGraphAgent wraps a compiled LangGraph graph, not {graph!r:.200}")
    if messages and _MESSAGES not in graph.channels:
        raise ValueError(
            f"LangGraphAgent: the graph's state has no {_MESSAGES!r}: set input=lambda assignment, context: {{...}}"
        )
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        raise ValueError(
            "LangGraphAgent: the graph was compiled with interrupt_before or interrupt_after, and nothing could resume "
            "it here: compile it without"
        )


def _messages(state: Any) -> list[Any]:
    found: Any = fields_of(state).get(_MESSAGES)
    return found if is_list(found) else []


def _replies(state: Any) -> list[Any]:
    """Return the messages of models, the last one first."""
    return [message for message in reversed(_messages(state)) if getattr(message, "type", None) == "ai"]


def _check_calls(state: Any) -> None:
    """Raise `ValueError` for a graph that ended with tool calls, and nothing else."""
    messages = _messages(state)
    last: Any = messages[-1] if messages else None
    broken: list[Any] = getattr(last, "invalid_tool_calls", [])
    calls: list[Any] = broken or getattr(last, "tool_calls", [])
    if calls and not _text({_MESSAGES: [last]}):
        why = "whose arguments are not JSON" if broken else "that no node makes (is there a ToolNode behind the model?)"
        called = ", ".join(f"{call.get('name')!r} with {call.get('args')!r:.200}" for call in calls)
        raise ValueError(f"the graph ended with tool calls {why}: {called}")


def _text(state: Any) -> str:
    """Return the last text of a model that is not blank."""
    return next((text for text in map(text_of, _replies(state)) if text.strip()), "")


def _transcript(state: Any) -> Any:
    return tuple(message_view(message) for message in _messages(state) if hasattr(message, "type"))


def _block(file: File) -> dict[str, str]:
    """Return a file as a content block of LangChain."""
    if file.is_text and file.data is not None:
        return {"type": "text", "text": f"{file.name}:\n{file.data.decode(errors='replace')}"}
    main = file.media_type.partition("/")[0]
    block = {"type": main if main in ("image", "audio", "video") else "file", "mime_type": file.media_type}
    return {**block, "url": file.url} if file.url is not None else {**block, "base64": file.as_json()["data"]}


def _files_of(state: Any) -> list[File]:
    """Return the files in the last message of a graph's state."""
    messages = _messages(state)
    blocks: Any = getattr(messages[-1], "content_blocks", ()) if messages else ()
    found: list[File] = []
    for block in blocks:
        if "base64" in block and "mime_type" in block:
            with suppress(ValueError):
                # A block that is not a file does not fail finished work.
                found.append(File(data=b64decode(block["base64"]), media_type=block["mime_type"]))
    return found


def _artifact(state: Any, kind: Any) -> Artifact:
    if isinstance(state, str):
        return Artifact(state)
    fields = fields_of(state)
    if not isinstance(fields.get(_MESSAGES), list):
        data = _json(state)
        return Artifact("" if data is None else adapter(Any).dump_json(data).decode(), data, "application/json")
    if kind is not None:
        return Artifact(_text(state), _json(fields.get(_STRUCTURED)), files=_files_of(state))
    rest = {name: data for name, found in fields.items() if name != _MESSAGES and (data := _json(found)) is not None}
    return Artifact(_text(state), rest or None, files=_files_of(state))


def _json(found: Any) -> Any:
    """Return a value as JSON values; None when that is not possible."""
    try:
        return freeze_json({"it": adapter(Any).dump_python(found, mode="json")})["it"]
    except (ValueError, TypeError):
        return None
