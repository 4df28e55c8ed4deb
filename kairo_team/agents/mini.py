"""`MiniAgent`: a loop of model calls and tools with a limit of turns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack, get_args, overload

from kairo_team._util.counts import count
from kairo_team._util.frozen import freeze, known_arguments, replaced, trusted
from kairo_team._util.narrowing import is_mapping, is_several
from kairo_team.agents.mini_compaction import Room, cut_results, in_words, newest_turn
from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget, HaltReason, Usage, check_count, difference
from kairo_team.engine.live.task_pool import run_in_new_loop
from kairo_team.engine.run.lone_agent import run_alone
from kairo_team.errors import ConstraintExit, InvalidReply, KairoError, ModelCallError, TurnEnded, known, repeated
from kairo_team.messages import Message, ModelRequest
from kairo_team.models.prompt_bounds import prompt_bound
from kairo_team.models.resolver import file_problem
from kairo_team.output_types import asked_schema, check_output
from kairo_team.prompts import Prompts
from kairo_team.prompts.overrides import check_names
from kairo_team.results import AgentOutput, AgentStatus
from kairo_team.team import Thinking
from kairo_team.tools.sources import as_source
from kairo_team.tools.tool import Tool, as_tool

if TYPE_CHECKING:
    from kairo_team.contracts import (
        ChatModel,
        EvaluationStrategy,
        GuardrailPolicy,
        Journal,
        MemberContext,
        Models,
        ResourceConstraint,
    )
    from kairo_team.engine.run.lone_agent import Alone
    from kairo_team.files import File
    from kairo_team.messages import ModelResponse, ToolCall, ToolSpec
    from kairo_team.tasks import Assignment, T
    from kairo_team.team import Role
    from kairo_team.tools.permissions import ToolPermissions
    from kairo_team.tools.pipeline import Toolbox

Settings = Mapping[str, Any] | Callable[["Assignment"], Mapping[str, Any]]
"""Sampling settings (temperature, seed, max_tokens ...), or a function that picks them for an assignment."""


@known_arguments
class MiniAgent:
    """Call a model turn by turn, and run the tools that it calls, until it gives an answer.

    A turn is one model call and its tools. `tools` are typed functions (see `kairo_team.tool`), MCP servers and
    pydantic-ai toolsets. A reply that was cut off is continued in the next turn; after `max_turns` the text so far is
    returned as TURN_LIMIT_REACHED. On the last turn of several, which is also one after which the budget could not pay
    another, only tools that end the work (`Tool.ends`) are offered. With tools, and
    after the first turn, the prompt has the turns and tokens that are left; `tell_limits=False` leaves them out. A
    conversation that comes near the model's window is made shorter: old results of tools are cut, then one more call
    sums up what was before the newest turn; `compact=False` leaves it as it is. When the task names an output type, the
    reply must match its JSON schema; the model is asked once more for a reply that does not match, unless it was cut
    off. Tool calls of a reply that was cut off are not made, and the model receives the reason. A reply that the
    provider's filter cut off or refused ends the work as BLOCKED. When a constraint ends the attempt, or the budget
    cannot pay another turn, the text so far is returned as GRACEFUL_EXIT with the reason; without a text the shortage
    is raised as `InsufficientBudget` or `HaltError`. With `stream`, subscribers receive replies piece by piece as
    `model.delta` events. `max_turns` applies in addition to all constraints. `templates` replace prompt templates by
    name (`system`, `task`, `continue`, `after_tools`, `repair`, `limits`, `compact`), with priority over the
    coordinator's and the runtime's. `thinking` says how much a model that can think does so before it replies, with any
    provider: True, False, or "minimal", "low", "medium", "high", "xhigh", "max"; None leaves it to the role. Turns of
    an agent with tools are cached at Anthropic, which makes a repeated prompt cheaper; `cache=False` turns that off.

    >>> agent = kt.MiniAgent("openai:gpt-5-mini", max_turns=4)
    >>> output = await agent.run("Explain tides.", budget=kt.Budget(tokens=4_000))
    """

    reentrant = True
    own_loop = True
    hints_for: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("temperature", "max_tokens", "top_p", "seed", "stop", "timeout"),
            "settings of the model are given together, such as settings={'temperature': 0, 'max_tokens': 500}",
        ),
        **dict.fromkeys(
            ("instructions", "system", "system_prompt", "prompt"),
            "instructions belong to the role, kt.Role('writer', instructions='...'), and the words around them to "
            "templates={'system': ...}",
        ),
        **dict.fromkeys(
            ("output_type", "result_type", "response_format"),
            "a task has one, kt.Task(..., output_type=Report), and so has a run, agent.run(..., output_type=Report)",
        ),
        "budget": "a member has one, kt.Member('writer', agent, budget=...), and a run, kt.run_sync(..., budget=...)",
        "name": "a member has one: kt.Member('writer', agent, name='ann')",
        "max_iterations": "a turn is one model call and its tools: max_turns=10",
    }

    def __init__(
        self,
        model: str | ChatModel,
        *,
        tools: Iterable[Any] = (),
        max_turns: int = 10,
        settings: Settings | None = None,
        thinking: bool | str | None = None,
        cache: bool = True,
        stream: bool = False,
        templates: Mapping[str, str] | None = None,
        tell_limits: bool = True,
        compact: bool = True,
    ) -> None:
        check_count("MiniAgent.max_turns", max_turns)
        if max_turns < 1:
            raise ValueError("MiniAgent.max_turns must be at least 1, not 0")
        self.model = model
        self.tools = _check_tools(tools)
        self.max_turns = max_turns
        self.stream = stream
        self.tell_limits = tell_limits
        self.compact = compact
        self.templates = dict(check_names("MiniAgent.templates", templates or {}, _TEMPLATES))
        self._prompts = Prompts(self.templates)
        self._settings: Settings = _check_settings(settings) if settings is not None else {}
        self._own = _own_settings(thinking, cache=cache)

    def preflight(self, role: Role, models: Models, budget: Budget) -> list[str]:
        """Return why the agent could not work, such as an unavailable model or a first prompt that cannot be paid."""
        try:
            models.resolve(self.model)
        except KairoError as error:
            return [str(error)]
        if budget.loops == 0:
            return ["it needs at least 1 loop, the budget allows 0"]
        # A lower estimate: what might still work must not be refused before it starts.
        if budget.tokens is not None:
            first = _request_of((Message.system(role.instructions), Message.user("")))
            need = prompt_bound(first) // _BYTES_A_TOKEN + 1
            if budget.tokens < need:
                return [f"its first prompt alone needs about {need} tokens, the budget has {budget.tokens}"]
        names = [tool.name for tool in self.tools if isinstance(tool, Tool)]
        allowed = role.allowed_tools
        # Probably a name is misspelt. Which tools a source has is not known yet.
        if allowed and names and len(names) == len(self.tools) and not set(names) & set(allowed):
            return [f"its role allows {known(allowed)}, and its tools are {known(names)}: it could not use any"]
        return []

    def file_problem(self, file: File, models: Models) -> str | None:
        """Return why the agent's model does not take a file, in a sentence; None if it does."""
        return file_problem(models.resolve(self.model), file)

    @overload
    async def run(self, assignment: Assignment, context: MemberContext) -> AgentOutput: ...
    @overload
    async def run(
        self, assignment: Assignment | str, context: None = None, **alone: Unpack[Alone]
    ) -> AgentOutput[str]: ...
    @overload
    async def run(
        self, assignment: Assignment | str, context: None = None, *, output_type: type[T], **alone: Unpack[Alone]
    ) -> AgentOutput[T]: ...
    @overload
    async def run(
        self, assignment: Assignment | str, context: None = None, *, output_type: Any, **alone: Unpack[Alone]
    ) -> AgentOutput: ...
    async def run(
        self,
        assignment: Assignment | str,
        context: MemberContext | None = None,
        *,
        output_type: Any = None,
        budget: Budget | None = None,
        evaluator: EvaluationStrategy | None = None,
        role: Role | str = "agent",
        constraints: Iterable[ResourceConstraint] = (),
        guardrails: Iterable[GuardrailPolicy] = (),
        permissions: ToolPermissions | None = None,
        journal: Journal | None = None,
        run_id: str | None = None,
        files: Sequence[File] = (),
    ) -> AgentOutput[Any]:
        """Do a task: in a team with the team's `context`, else alone, `run("Find ...", budget=Budget(tokens=4000))`.

        In a team, reaching a limit raises `HaltError`, and the text so far is kept. Alone, every end is an
        `AgentOutput`, whose `data` is the answer as `output_type`; the other arguments apply only there, and are as for
        `kairo_team.engine.run.lone_agent.run_alone`.
        """
        if context is None:
            given: Alone = {"budget": budget, "evaluator": evaluator, "role": role, "permissions": permissions}
            given |= {"constraints": constraints, "guardrails": guardrails, "journal": journal, "run_id": run_id}
            given["files"] = files
            return await run_alone(self, assignment, output_type=output_type, **given)
        return await self._attempt(assignment, context)

    @overload
    def run_sync(self, task: Assignment | str, **alone: Unpack[Alone]) -> AgentOutput[str]: ...
    @overload
    def run_sync(self, task: Assignment | str, *, output_type: type[T], **alone: Unpack[Alone]) -> AgentOutput[T]: ...
    @overload
    def run_sync(self, task: Assignment | str, *, output_type: Any, **alone: Unpack[Alone]) -> AgentOutput: ...
    def run_sync(self, task: Assignment | str, *, output_type: Any = None, **alone: Unpack[Alone]) -> AgentOutput[Any]:
        """Do a task alone, as `run` does, from code without an event loop; raises `Misuse` inside one."""
        return run_in_new_loop(partial(run_alone, self, task, output_type=output_type, **alone), "await agent.run(...)")

    async def _attempt(self, assignment: Assignment | str, context: MemberContext) -> AgentOutput:
        """Do a task of a team."""
        if isinstance(assignment, str):
            raise TypeError(f"with a context the agent takes an Assignment, not the string {assignment!r}")
        conversation = _Conversation(self, assignment, context)
        turn, error, halt = 0, None, None
        try:
            await conversation.open_tools()
            while turn < self.max_turns and not conversation.over:
                context.governor.pre_step()
                await conversation.take_turn(turn + 1)
                turn += 1
        except ConstraintExit as refusal:
            status, error = AgentStatus.GRACEFUL_EXIT, str(refusal)
        except TurnEnded as ended:
            turn, status = turn + 1, AgentStatus.COMPLETED  # the turn that raised counts too
            conversation.end_with(ended)
        else:
            status, error = conversation.end
            # The announced last turn came early: the budget has ended the work, not the limit of turns.
            if status is AgentStatus.TURN_LIMIT_REACHED and turn < self.max_turns:
                status, (error, halt) = AgentStatus.GRACEFUL_EXIT, await conversation.explain_shortage(turn + 1)
        return conversation.output(status, turn, error, halt)

    def settings_for(self, assignment: Assignment) -> dict[str, Any]:
        """Return the sampling settings for one assignment."""
        given = _check_settings(self._settings(assignment)) if callable(self._settings) else self._settings
        return {**self._own, **given}  # what the settings say themselves wins

    def render(self, template: str, context: MemberContext, **values: object) -> str:
        """Render a prompt template: the agent's own, else the run's."""
        if template not in self.templates:
            return context.render(template, **values)
        return self._prompts.render(template, foreign=context.foreign, **values)

    def __deepcopy__(self, memo: dict[int, Any]) -> MiniAgent:
        """Return a copy with the same model and tools, because clients and servers cannot be copied."""
        return copy.copy(self)

    def __repr__(self) -> str:
        return f"MiniAgent({self.model!r}, max_turns={self.max_turns})"


_TEMPLATES: Final = ("system", "task", "continue", "after_tools", "repair", "limits", "compact")
"""The prompt templates that an agent renders."""

_HEAD: Final = 2
"""Messages that a conversation keeps at its beginning: the instructions and the task."""

_request_of: Final = trusted(ModelRequest)
_aside: Final = trusted(Message)
_output_of: Final[Callable[..., AgentOutput]] = trusted(AgentOutput)

_LEAST_WORDS: Final = 60
"""Words that a summary may have at least."""

_LEAST_BYTES: Final = 1_000
"""Bytes of a conversation that a summary reads at least."""

_BYTES_A_TOKEN = 6
"""Bytes that one token rarely exceeds; used for the least cost of a prompt."""
_NEXT_MESSAGE: Final = 64
"""Assumed tokens of the message between two replies, such as the errors of the first."""


class _Conversation:
    """The state of one run of the loop; the agent has none, so runs never mix."""

    def __init__(self, agent: MiniAgent, assignment: Assignment, context: MemberContext) -> None:
        self._agent = agent
        self._assignment = assignment
        self._context = context
        self._model = context.model(agent.model)
        thinking = context.role.thinking
        by_role: dict[str, Any] = {} if thinking is None else {"thinking": thinking}
        self._settings = by_role | agent.settings_for(assignment)
        self._max_tokens: int | None = self._settings.pop("max_tokens", None)
        self._schema = asked_schema(context.output_type)
        self._messages = [Message.system(agent.render("system", context, role=context.role, schema=self._schema))]
        self._bare = _request_of((), (), freeze(self._schema), self._max_tokens, freeze(self._settings))
        """What all requests have in common, checked once."""
        self._transcript = list(self._messages)
        """The whole conversation, also what was cut from it."""
        self._tools: Toolbox | None = None
        self._spent_before = context.governor.usage
        self._ask = "task"
        """Name of the template for the next message."""
        self._invalid: str | None = None
        """The errors of the last structured reply."""
        self._most_expensive = Decimal(0)
        """The highest cost of a turn so far, in dollars."""
        self._longest = 0
        """Tokens of the longest reply so far."""
        self._thought = 0
        """The most tokens of reasoning in a reply so far: some models cannot leave it."""
        self._text = ""
        self._data: Any = None
        self._no_tools = False
        """Whether the last reply called tools and none could be used."""
        self._task = ""
        """The message with the task, without a summary."""
        self._summary: str | None = None
        """The summary of what is no longer in the conversation."""
        self._ready: ModelRequest | None = None
        """The request of the turn, if its outlook has made it."""
        self._room = Room(getattr(self._model, "context_window", None) if agent.compact else None, self._max_tokens)
        self._wrapped_up = False
        self.complete = False
        self.blocked: str | None = None
        """What the provider's filter did, in a sentence; None if it did nothing."""

    @property
    def over(self) -> bool:
        """Whether the work is over: answered, blocked, or after the announced last turn."""
        return self.complete or self._wrapped_up or self.blocked is not None

    @property
    def end(self) -> tuple[AgentStatus, str | None]:
        """The status at the end of the loop, and why the work is not complete."""
        if self.blocked is not None:
            return AgentStatus.BLOCKED, self.blocked
        return (AgentStatus.COMPLETED if self.complete else AgentStatus.TURN_LIMIT_REACHED), None

    async def open_tools(self) -> None:
        """Connect the tool sources."""
        if self._agent.tools or self._context.offered:
            self._tools = await self._context.tools(self._agent.tools)

    async def take_turn(self, turn: int) -> None:
        """Call the model once, take the reply, and run its tool calls."""
        if self._room.is_full(self._messages):
            await self._keep_within(self._room.most)
        # Recorded, because a replay may have another budget left and must decide the same.
        limits, last = await self._context.recorded(f"turn {turn}", partial(self._outlook, turn))
        self._wrapped_up = last
        request, response = await self._answer(limits, last=last)
        calls = self._calls_of(response, request, last=last)
        self._add(request.messages[-1], Message.assistant(response.text, calls, response.native))
        self._task = self._task or self._messages[1].text  # the first request has rendered it
        self._no_tools = bool(response.tool_calls) and not calls
        if response.finish_reason == "content_filter":
            self._block(response)
            return
        self._take(response, asked_tools=bool(response.tool_calls), may_repair=not last)
        if calls:
            await self._run_tools(calls)

    async def _answer(self, limits: str, *, last: bool) -> tuple[ModelRequest, ModelResponse]:
        """Call the model, once more with a shorter conversation if the first was too long; return request and reply."""
        request = self._ready or self._request(limits, last=last)
        self._ready = None
        try:
            return request, await self._call(request)
        except ModelCallError as error:
            # Half, because the error does not say by how much the prompt was too long.
            most = prompt_bound(request) // 2
            if error.kind != "context_length" or not self._agent.compact or not await self._keep_within(most):
                raise
        self._room.learn(most)
        request = self._request(limits, last=last)
        return request, await self._call(request)

    async def _call(self, request: ModelRequest) -> ModelResponse:
        """Call the model; keep the part of a reply that came before its connection broke."""
        try:
            response = await (self._model.stream(request) if self._agent.stream else self._model.complete(request))
        except ModelCallError as error:
            if error.partial:
                self._context.keep(self._text + error.partial if self._ask == "continue" else error.partial)
            raise
        self._room.measure(request, response)
        return response

    # ------------------------------------------------------------------ compaction

    async def _keep_within(self, most: int) -> bool:
        """Make a conversation shorter that is longer than `most` bytes; return whether it is shorter now."""
        before = prompt_bound(self._request("", last=False))
        tail = newest_turn(self._messages)
        if before <= most or tail is None:
            return False
        target = most * 3 // 4  # below the limit, so that the next turn does not compact again
        self._messages, cut = cut_results(self._messages, before - target, tail)
        old, after = tail - _HEAD, prompt_bound(self._request("", last=False))
        summed_up = old if after > target and old > 0 else 0
        if summed_up:
            await self._sum_up(tail, target)
        after = prompt_bound(self._request("", last=False))
        if after > most:
            # The last resort takes results of the newest turn too.
            self._messages, more = cut_results(self._messages, after - most, len(self._messages))
            cut, after = cut + more, prompt_bound(self._request("", last=False))
        if after < before:
            how = {"results_cut": cut, "messages_summed_up": summed_up}
            about = {"tokens_before": self._room.tokens(before), "tokens_after": self._room.tokens(after)}
            self._context.emit("the conversation was made shorter", **how, **about)
        return after < before

    async def _sum_up(self, tail: int, most: int) -> None:
        """Replace what is between the task and the newest turn by a summary, which one more call writes."""
        earlier = [] if self._summary is None else [Message.assistant(self._summary)]
        most = max(_LEAST_BYTES, most - prompt_bound(_request_of(tuple(self._messages[:_HEAD]))))
        said = in_words([*earlier, *self._messages[_HEAD:tail]], most)
        words = max(_LEAST_WORDS, self._room.tokens(most) // 12)
        asked = self._compact(conversation=said, summary=None, words=words)
        system = self._messages[0]
        # Few tokens are enough for a summary, and too few to think as the agent's settings say.
        settings = self._settings | ({"thinking": False} if "thinking" in self._settings else {})
        most = 2 * words + self._thought  # two tokens a word, after what the model cannot help thinking
        response = await self._model.complete(
            ModelRequest([system, Message.user(asked)], max_tokens=most, settings=settings)
        )
        # Without a summary nothing is dropped; the caller then cuts more results.
        if not response.text.strip() or response.finish_reason == "content_filter":
            return
        self._summary = response.text
        summary = self._compact(conversation="", summary=response.text, words=words)
        task = Message.user(f"{self._task}\n\n{summary}", self._messages[1].files)
        self._messages = [system, task, *self._messages[tail:]]

    def _compact(self, **values: object) -> str:
        assignment, role = self._assignment, self._context.role
        return self._agent.render("compact", self._context, assignment=assignment, role=role, **values)

    # ------------------------------------------------------------------ ends

    def _block(self, response: ModelResponse) -> None:
        """End with a reply that the provider's filter cut off or refused; its tool calls are not made."""
        self.blocked = response.cut_by
        self._text = response.text or self._text
        self._context.keep(self._text)

    def end_with(self, ended: TurnEnded) -> None:
        """End with a tool call that ends the attempt."""
        self._text = ended.written(self._text)
        self._invalid = None
        if ended.answers and self._schema is not None:
            self._take_structured(may_repair=False)
        self.complete = True

    async def explain_shortage(self, turn: int) -> tuple[str, HaltReason]:
        """Return why the budget could not pay a turn, and which; without a text so far, raise the shortage instead."""
        left, governor = self._context.remaining, self._context.governor
        if not self._text.strip():
            if left.loops == 0:
                governor.pre_step()
            need = 0 if left.tokens is None else await self._need_two(self._request("", last=False), left.tokens)
            # Raises the shortage with the ledger's own figures. It buys nothing.
            governor.reserve(need, 2 * self._most_expensive).release()
        parts = [count(left.tokens, "token")] if left.tokens is not None else []
        parts += [f"${left.dollars}"] if left.dollars is not None else []
        short = f"the budget could not pay turn {turn}: {'0 loops' if left.loops == 0 else ', '.join(parts)} left"
        if left.loops == 0:
            return short, HaltReason.LOOP_BUDGET_EXCEEDED
        if left.dollars is not None and left.dollars < 2 * self._most_expensive:
            return short, HaltReason.DOLLAR_BUDGET_EXCEEDED
        return short, HaltReason.TOKEN_BUDGET_EXCEEDED

    def _calls_of(self, response: ModelResponse, request: ModelRequest, *, last: bool) -> Sequence[ToolCall]:
        """Return the calls to make: on the last turn only calls of offered tools."""
        if not request.tools or not last:
            return response.tool_calls if request.tools else ()
        offered = {spec.name for spec in request.tools}
        return tuple(call for call in response.tool_calls if call.name in offered)

    def output(self, status: AgentStatus, turns: int, error: str | None, halt: HaltReason | None) -> AgentOutput:
        """Return the output; with an invalid structured reply it is not COMPLETED."""
        if self._invalid is not None and status is AgentStatus.COMPLETED:
            status, error = AgentStatus.GRACEFUL_EXIT, self._invalid
        partial = not self.complete or self._invalid is not None
        artifact = Artifact(self._text, self._data, partial=partial)
        usage = difference(self._context.governor.usage, self._spent_before, 0.0)
        counts = (turns, self._agent.max_turns, usage.tool_calls)
        return _output_of(artifact, status, *counts, usage, tuple(self._transcript), error, halt=halt)

    def _take(self, response: ModelResponse, *, asked_tools: bool, may_repair: bool) -> None:
        """Keep a reply, and choose the next message, or complete the work if it is the answer."""
        usage = response.usage or Usage()
        self._most_expensive = max(self._most_expensive, usage.dollars)
        self._longest = max(self._longest, usage.completion_tokens)
        self._thought = max(self._thought, response.billing.reasoning_tokens)
        # A reply without text, such as one of tool calls alone, keeps the text before it.
        self._text = self._text + response.text if self._ask == "continue" else response.text or self._text
        self._context.keep(self._text)
        if asked_tools:
            self._ask = "after_tools"
        elif self._schema is not None:
            self._take_structured(may_repair=may_repair, cut_by=response.cut_by)
        elif response.finish_reason == "length":
            self._ask = "continue"
        else:
            self.complete = True

    def _take_structured(self, *, may_repair: bool, cut_by: str | None = None) -> None:
        """Read the reply as the output type; when it does not match, ask once more if `may_repair`."""
        try:
            self._data = check_output(self._context.output_type, Artifact(self._text), cut_by=cut_by)
        except InvalidReply as error:
            # The limit that cut this reply off would cut the next one too.
            may_repair = may_repair and self._invalid is None and cut_by is None
            self._invalid = str(error)
            if may_repair:
                self._ask = "repair"
                return
        else:
            self._invalid = None
        self.complete = True

    async def _run_tools(self, calls: Sequence[ToolCall]) -> None:
        """Add each call's result, with a sentence on each file that the model does not take."""
        assert self._tools is not None, "tools were offered"
        ask = getattr(self._model, "file_problem", None)
        for call, result in zip(calls, await self._tools.run(calls), strict=True):
            problems = {file: "this model takes no files" if ask is None else ask(file) for file in result.files}
            unseen = [f"[you cannot be shown {file.name}: {why}]" for file, why in problems.items() if why is not None]
            taken = [file for file, why in problems.items() if why is None]
            self._add(Message.tool(call.id, "\n".join([result.text, *unseen]), tuple(taken)))

    def _add(self, *messages: Message) -> None:
        self._messages += messages
        self._transcript += messages

    async def _outlook(self, turn: int) -> tuple[str, bool]:
        """Return a text on the limits left for a turn, and whether it is the last. It is recorded for replays."""
        most = self._agent.max_turns
        limits = self._limits(turn, last=turn == most > 1)
        if most in {turn, 1}:
            return limits, most > 1
        request, left = self._request(limits, last=False), self._context.remaining
        need = 0 if left.tokens is None else await self._need_two(request, left.tokens)
        # This turn's loop is counted already; one more turn needs another.
        short = left.loops == 0 or (left.dollars is not None and left.dollars < 2 * self._most_expensive)
        if short or (left.tokens is not None and left.tokens < need):
            return self._limits(turn, last=True), True
        self._ready = request
        return limits, False

    def _limits(self, turn: int, *, last: bool) -> str:
        """Return the text on its limits for the agent; "" if it cannot act on it."""
        if not self._agent.tell_limits or (turn == 1 and self._tools is None):
            return ""
        most, tokens = self._agent.max_turns, self._context.remaining.tokens
        turns = most - turn + 1 if most > 1 else None
        if tokens is not None:  # in two digits: the exact number helps no agent, and similar work has equal prompts
            unit = int(10 ** max(0, len(str(tokens)) - 2))
            tokens = tokens // unit * unit
        return self._agent.render("limits", self._context, last=last, turns=turns, tokens=tokens)

    def _request(self, limits: str, *, last: bool) -> ModelRequest:
        """Make the request of a turn; on the last turn it offers only tools that end the work."""
        values: dict[str, Any] = {"problem": self._invalid, "no_tools": self._no_tools}
        values |= {"assignment": self._assignment, "role": self._context.role}
        told = [_aside("user", limits, aside=True)] if limits else []
        files = self._assignment.all_files if self._ask == "task" else ()
        ask = Message.user(self._agent.render(self._ask, self._context, **values), files)
        messages = [*self._messages, *told, ask]
        return replaced(self._bare, messages=tuple(messages), tools=self._offered(last=last))

    def _offered(self, *, last: bool) -> tuple[ToolSpec, ...]:
        if self._tools is None:
            return ()
        return self._tools.last_specs if last else self._tools.specs

    async def _need_two(self, request: ModelRequest, left: int) -> int:
        """Return the tokens that this turn and one more may need, by the model's own count if it has one."""
        reply, bound = self._max_tokens or self._longest, prompt_bound(request)
        answered = len(request.tools) > len(self._offered(last=True))
        if not answered and _two_turns(bound, reply) <= left:
            return _two_turns(bound, reply)
        count = getattr(self._model, "count_tokens", None)
        own = await count(request) if count is not None and not request.tools else None
        # Without the model's count, or when tools may return results of any length, the conversation so far counts by
        # its bytes, which are several times its tokens.
        if own is None or own >= bound:
            return 2 * (prompt_bound(_request_of(tuple(self._messages))) + (self._max_tokens or 0))
        return _two_turns(own, reply)


def _two_turns(prompt: int, reply: int) -> int:
    """Return the tokens that this turn and one more may need; the second prompt contains the first reply."""
    return 2 * (prompt + reply) + reply + _NEXT_MESSAGE


def _check_settings(settings: Any) -> Any:
    """Return the settings, or the function that picks them; `ValueError` for anything else."""
    if callable(settings):
        return settings
    if not is_mapping(settings):
        raise ValueError(
            f"MiniAgent.settings are sampling settings by name, or a function that returns them, not {settings!r:.200}"
        )
    if unnamed := [name for name in settings if not isinstance(name, str)]:
        raise ValueError(f"MiniAgent.settings: the name of a setting is a string, not {unnamed[0]!r:.80}")
    most = settings.get("max_tokens")
    if most is not None and (type(most) is not int or most < 1):
        raise ValueError(f"MiniAgent.settings: max_tokens must be a whole number >= 1, not {most!r}")
    return settings


def _own_settings(thinking: bool | str | None, *, cache: bool) -> dict[str, Any]:
    """Return the settings for how much the model thinks and whether prompts are cached, in pydantic-ai's words."""
    if thinking is not None and thinking is not True and thinking is not False and thinking not in get_args(Thinking):
        raise ValueError(
            f"MiniAgent.thinking must be True, False or one of {known(get_args(Thinking))}, not {thinking!r}"
        )
    if not isinstance(cache, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # agents may be untyped
        raise ValueError(f"MiniAgent.cache must be True or False, not {cache!r}: settings={{'cache': ...}} takes more")
    return ({} if thinking is None else {"thinking": thinking}) | ({} if cache else {"cache": False})


def _check_tools(tools: Iterable[Any]) -> tuple[Any, ...]:
    """Return the tools, with functions converted to `Tool`s; `ValueError` for any other object."""
    if not is_several(tools):
        raise ValueError(f"MiniAgent.tools is a list of functions and tool sources, not {tools!r}")
    given = tuple(as_source(one) or as_tool(one) for one in tools)
    twice = sorted(repeated(one.name for one in given))
    if twice:
        raise ValueError(f"MiniAgent.tools: two tools are called {twice[0]!r}; give one another name, @tool(name=...)")
    return given
