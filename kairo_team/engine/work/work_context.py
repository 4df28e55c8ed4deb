"""The context of a member, planner or evaluator: governed models and tools, and a place for partial work."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast

from anyio import sleep_forever

from kairo_team._util.frozen import FrozenDict, freeze_json, plain_text
from kairo_team._util.late_pydantic import adapter
from kairo_team.artifacts import Artifact, DoneCall
from kairo_team.budget import NO_USAGE, Budget, Usage, difference
from kairo_team.engine.live.event_bus import NOTHING_AROUND, Around
from kairo_team.engine.records.earlier_calls import CallsUnderWay, SentCall
from kairo_team.engine.records.plan_records import MISSING
from kairo_team.engine.work.constraints import AskedModel, ConstrainedModel
from kairo_team.engine.work.member_model import MemberModel
from kairo_team.errors import GuardrailDenied, JournalError, KairoError, MissingExtra, ModelCallError, TurnEnded, known
from kairo_team.events import (
    AttemptProgress,
    GuardrailDecided,
    ModelCalled,
    ModelStarted,
    ModelWaiting,
    ToolCalled,
    ToolStarted,
)
from kairo_team.governance.guardrails import GuardrailAction, GuardrailPhase, GuardrailRuling
from kairo_team.human import HumanDecision, HumanRequest
from kairo_team.messages import PLAIN, ModelRequest, ModelResponse
from kairo_team.models.call_keys import call_key
from kairo_team.models.governed_model import CallOutcome, GovernedModel, StartedTry
from kairo_team.results import AgentOutput, AgentStatus, ModelUsage
from kairo_team.tools.arguments import CallPutOffError
from kairo_team.tools.made_calls import MadeCalls
from kairo_team.tools.pipeline import GovernedTool, Toolbox, ToolPipeline
from kairo_team.tools.sources import as_source
from kairo_team.tools.tool import Tool, as_tool

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kairo_team.addresses import ModelAddress
    from kairo_team.contracts import CallLog, ChatModel, GovernedChatModel, GuardrailPolicy, RunJournal, ToolSource
    from kairo_team.engine.work.run_services import RunServices
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.governance.cancel_scope import GovernorScope
    from kairo_team.governance.governor import Governor
    from kairo_team.team import Role
    from kairo_team.tools.permissions import ToolPermissions
    from kairo_team.tools.result import ToolResult
    from kairo_team.tools.tool_server import ToolServer

_logger = logging.getLogger("kairo_team")

_OF_A_TOOL_CALL: Final = FrozenDict(
    approve="the call is made, this once",
    revise="the call is not made, and the member reads your words",
    reject="the call is not made, and the member reads why",
    silence="the call is not made",
)
"""What follows from each answer to a question about a tool call."""


class _CallLog:
    """Records the calls of one piece of work before they are sent; fulfils `contracts.CallLog`."""

    __slots__ = ("_answered", "_context", "_failed", "_journal", "_sent")

    def __init__(self, context: WorkContext, journal: RunJournal) -> None:
        self._context = context
        self._journal = journal
        self._answered: dict[int, tuple[object, int, Usage]] = {}
        """Answers that are not recorded yet, with their call and usage, by the answer's identity."""
        self._sent: dict[int, tuple[str, str]] = {}
        """Calls under way: their key in the journal, and the model or tool called, by number."""
        self._failed: Counter[tuple[str, str]] = Counter()
        """Failed tries in this session, by key and name of the call."""

    async def sent(self, what: str, name: str, held: Usage, side_effect: str | None = None, key: str = "") -> int:
        """Record that a call is about to be sent; if that fails, the run ends and nothing is sent."""
        context = self._context
        loops = context.usage.loops
        try:
            number = await self._journal.sent(
                what,
                name,
                held,
                step=context.step,
                key=key,
                task_id=context.task_id,
                member=context.member,
                side_effect=side_effect,
                loops=loops,
            )
        except JournalError as error:
            context.lose_journal(error)
            raise
        self._sent[number] = (key, name)
        context.services.under_way.begin(SentCall(self._journal, number, context.step, what, name, held))
        return number

    def idempotency_key(self, number: int) -> str:
        """Return the key of a try that was sent: the same for a retry without an answer, another one after an error."""
        key, name = self._sent[number]
        earlier = self._context.services.earlier_calls
        failures = self._failed[key, name] + (0 if earlier is None else earlier.failures(key, name))
        named = "\n".join((self._context.services.run_id, key, name, str(failures)))
        return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def answered(self, number: int, answer: object, usage: Usage) -> None:
        """Keep a call's answer and usage until the answer is recorded."""
        self._sent.pop(number, None)
        # The answer is kept with them: else another object could get its `id`.
        self._answered[id(answer)] = (answer, number, usage)

    async def record(self, key: str, answer: object, value: object) -> None:
        """Record a value under a key, together with the call that had this answer; return once that is on disk."""
        _, number, usage = self._answered.pop(id(answer), (None, 0, NO_USAGE))
        if number:
            self._journal.put_answer(key, value, number, usage)
            self._context.services.under_way.end(self._journal, number)  # until then an interrupt loses the answer
        else:
            self._journal.put(key, value)
        try:
            await self._journal.written()
        except JournalError as error:
            self._context.lose_journal(error)
            raise

    def ended(self, number: int, state: str, usage: Usage) -> None:
        """Record the end of a call that has no answer, and the amount charged."""
        sent = self._sent.pop(number, None)
        if sent is not None and state == "failed":
            self._failed[sent] += 1
        self._context.services.under_way.end(self._journal, number, cut=state == "unknown")
        self._journal.ended(number, state, usage)


class WorkContext:
    """One piece of work (an attempt, a plan, a review) and what it may use; fulfils `contracts.MemberContext`."""

    __slots__ = (
        "_brought", "_calls", "_made", "_pipeline", "_tries", "_uses", "around", "call_ids", "calls", "constraints",
        "denied", "directives_seen", "done", "foreign", "governor", "interrupted", "kept", "member", "offered",
        "output_type", "raised", "readers", "role", "scope", "services", "spent_before", "step", "task_id",
        "turn_ended", "turns", "unanswered", "unfinished", "waiting",
    )  # fmt: skip

    def __init__(  # noqa: PLR0915 - a statement for each thing that work has
        self,
        services: RunServices,
        governor: Governor,
        role: Role,
        step: str,
        task_id: str | None,
        member: str | None,
        spent_before: Usage = NO_USAGE,
    ) -> None:
        """Make the context of one piece of work; `spent_before` is the usage of earlier tries on this governor."""
        self.services = services
        self.governor = governor
        self.role = role
        self.task_id = task_id
        self.member = member
        self.output_type: Any = None
        self.readers: Sequence[Callable[[Artifact], object]] = ()
        """What the plan reads from the artifact: they raise `Unreadable`."""
        self.kept = ""
        self.turns = 0
        """Model calls answered so far."""
        self.denied: GuardrailDenied | None = None
        """The last refusal of a model call by a guardrail."""
        self.unanswered: ModelCallError | None = None
        """The error of the last model call that got no answer."""
        self.raised: Exception | None = None
        """The exception that made the work fail, with its traceback."""
        self.spent_before = spent_before
        self.directives_seen = 0 if services.steering is None else len(services.steering.directives)
        """How many directives the prompt has already."""
        self.foreign = services.outer_attempt is not None
        """Whether a model may have written the goal or the task: another team's member, or a planner."""
        self.step = step
        """The recorded step of the work, or its name in the run."""
        self.calls: CallLog | None = None if services.kept is None else _CallLog(self, services.kept)
        """Records calls before they are sent; None if nothing outlives the process."""
        self._calls: dict[str, int] | None = None
        self._uses: dict[str, int] | None = None
        self._pipeline: ToolPipeline | None = None
        self._tries: Counter[str] | None = None
        """How often each model call was tried, by its name."""
        self._brought: dict[str, Tool] | None = None
        self._made: MadeCalls | None = None
        self.done: Sequence[DoneCall] = ()
        """What earlier attempts at this work did with tools."""
        self.offered: tuple[Tool, ...] = ()
        """Tools that the coordinator offers for this attempt."""
        self.call_ids = set[str]()
        """Ids of the tool calls that models requested so far."""
        self.unfinished: dict[str, str] = {}
        """The cause that cut off the reply with a tool call, by the call's id; such calls are not made."""
        self.turn_ended: TurnEnded | None = None
        """The first tool call that ended the attempt."""
        self.scope: GovernorScope | None = None
        """The scope that the work runs in, once it does."""
        self.around: Around = NOTHING_AROUND
        """What the subscribers put around the work."""
        self.interrupted: str | HumanRequest | None = None
        """The reason why the work was ended from outside."""
        self.waiting: HumanRequest | None = None
        """The first deferred question about a tool call."""
        self.constraints = (
            services.constraints.for_attempt(member, task_id, governor, spent_before.tool_calls, services.emit)
            if services.constraints is not None
            else None
        )

    def interrupt(self, by: str | HumanRequest) -> None:
        """End the work from outside: its task was cancelled, or waits for a person."""
        if self.interrupted is None and self.scope is not None:
            self.interrupted = by
            self.scope.cancel()

    def lose_journal(self, error: JournalError) -> None:
        """End the run, and every run around it: their next steps could not be recorded."""
        if self.services.on_journal_error is not None:
            self.services.on_journal_error(error)
        if self.services.outer_attempt is not None:
            self.services.outer_attempt.lose_journal(error)

    def output(
        self, artifact: Artifact, status: AgentStatus = AgentStatus.COMPLETED, error: str | None = None
    ) -> AgentOutput:
        """Return an output with the turns and the usage that the context counted."""
        usage = self.usage
        return AgentOutput(artifact, status, self.turns, None, usage.tool_calls, usage, error=error)

    def partial(self, status: AgentStatus, error: str | None = None) -> AgentOutput | None:
        """Return the kept text as the partial artifact of work that failed; None if nothing was kept."""
        return self.output(Artifact(self.kept, partial=True), status, error) if self.kept else None

    @property
    def remaining(self) -> Budget:
        """What could be spent now."""
        return self.governor.remaining

    @property
    def usage(self) -> Usage:
        """Usage of this piece of work, including tool calls."""
        return difference(self.governor.usage, self.spent_before, 0.0)

    @property
    def cancelled(self) -> bool:
        """Whether the work should end."""
        return self.scope is not None and self.scope.is_stopped()

    @property
    def over(self) -> bool:
        """Whether this work, or an attempt around it, was ended from outside its run."""
        return self.cancelled or self.services.is_over

    @property
    def left(self) -> bool:
        """Whether the session around this work was left in its journal, to be resumed."""
        return self.services.is_left

    @property
    def directives(self) -> Sequence[str]:
        """Directives given since this work began, oldest first."""
        steering = self.services.steering
        if steering is None or len(steering.directives) == self.directives_seen:
            return ()
        return steering.directives_for(self.task_id, after=self.directives_seen)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What guardrails see of the work."""
        purpose = "generate" if self.member is not None else self.role.id
        return {"run_id": self.services.run_id, "task_id": self.task_id, "purpose": purpose}

    @property
    def runtime(self) -> Runtime | None:
        """A runtime whose runs are spent here, for a team inside this task; None outside a run."""
        nest = self.services.nest
        return None if nest is None else nest(self)

    @property
    def allowed_tools(self) -> Sequence[Iterable[str]]:
        """Lists of allowed tool names, from the role and the outer attempt; a tool must be in each list."""
        own = self.role.allowed_tools
        return self.services.allowed if own is None else (*self.services.allowed, own)

    @property
    def policies(self) -> Sequence[GuardrailPolicy]:
        """The policies that guard models and tools here, for a team inside this task."""
        chain, permissions = self.services.guardrails_of(self.member), self.services.permissions
        mcp = permissions.mcp if permissions is not None else None
        return (*([mcp] if mcp is not None else []), *(chain.policies if chain is not None else ()))

    @property
    def permissions(self) -> ToolPermissions | None:
        """The permissions of tools for a team inside this task."""
        return self.services.permissions

    @property
    def made_calls(self) -> MadeCalls:
        """What this attempt does with tools, including the runs inside it."""
        if self._made is None:
            outer = self.services.outer_attempt if self._is_attempt else None
            self._made = MadeCalls(self._attempt, self.done, None if outer is None else outer.made_calls)
        return self._made

    @property
    def calls_made(self) -> tuple[DoneCall, ...]:
        """The tool calls made so far."""
        return () if self._made is None else self._made.all

    @property
    def _is_attempt(self) -> bool:
        """Whether a member works on a task here."""
        return self.member is not None and self.task_id is not None

    @property
    def under_way(self) -> CallsUnderWay:
        """The calls of the run that are under way, for a team inside this task."""
        return self.services.under_way

    def note_overshoot(self, model: str, held: Usage, used: Usage) -> None:
        """Record, from any thread, a call inside this task that used more than was held."""
        self.services.note_overshoot(model, held, used)

    def note_calls(self, model: str, used: ModelUsage) -> None:
        """Count, from any thread, calls that a run inside the attempt has made."""
        self.services.note_calls(model, used)

    def model(self, model: str | ChatModel) -> GovernedChatModel:
        """Return a model whose calls are governed, guarded and recorded."""
        services = self.services
        found = services.models.resolve(model)
        services.begin_to_use(found)
        governed = GovernedModel(
            found,
            self.governor,
            self._report_model,
            services.prices,
            services.rules,
            services.note_overshoot,
            self.calls,
            self._report_wait,
        )
        limited = governed if services.outer_attempt is None else services.outer_attempt.constrain(governed)
        steerable = getattr(found, "steerable", True)
        return MemberModel(self, limited, services.guardrails_of(self.member), steerable=steerable)

    def address(
        self, model: str | ChatModel, *, tools: Iterable[Tool | ToolSource | Callable[..., Any]] | None = None
    ) -> AbstractAsyncContextManager[ModelAddress]:
        """Serve a governed model, and tools, at an address of this machine; see `contracts.MemberContext.address`."""
        if find_spec("h11") is None:
            raise MissingExtra("context.address", "address")
        from kairo_team.models.address.served import ServedModel

        served = None if tools is None else partial(self._serve_tools, tuple(tools))
        return ServedModel(self.model(model), self._begin_served, served)

    async def _serve_tools(self, tools: Sequence[Any], refuse: Callable[[KairoError | None], str | None]) -> ToolServer:
        from kairo_team.tools.tool_server import ToolServer

        return ToolServer(await self.tools(tools), refuse)

    async def _begin_served(self) -> None:
        await self.put_off()
        self.governor.pre_step()

    def constrain(self, model: AskedModel) -> AskedModel:
        """Return a model of a team inside this task, whose calls are turns here and in outer attempts too."""
        if self.constraints is not None:
            model = ConstrainedModel(self.constraints, model)
        outer = self.services.outer_attempt
        return model if outer is None else outer.constrain(model)

    def tool(self, tool: str | Tool | Callable[..., Any]) -> GovernedTool:
        """Return a tool whose calls go through the tool pipeline; see `contracts.MemberContext.tool`."""
        if not isinstance(tool, str):
            return GovernedTool(self._tool_pipeline(), as_tool(tool))
        brought = (self._brought or {}) | {one.name: one for one in self.offered}
        if tool not in brought:
            raise KeyError(f"no tool {tool!r} was offered, or brought by `tools`, here; there are {known(brought)}")
        return GovernedTool(self._tool_pipeline(), brought[tool])

    async def tools(self, tools: Iterable[Tool | ToolSource | Callable[..., Any]]) -> Toolbox:
        """Return the governed tools of functions and tool sources, and those that the coordinator offers.

        Sources are connected once per run.
        """
        found: list[Tool] = []
        for one in tools:
            source = as_source(one)
            if source is None:
                found.append(as_tool(cast("Any", one)))
            else:
                brought = await self.services.connections.tools(source)
                self._warn_of_withheld(source.name, brought)
                found += brought
        box = Toolbox(self._tool_pipeline(), found, self.offered)
        self._brought = (self._brought or {}) | {tool.name: tool for tool in found}
        return box

    def end_turn(self, by: TurnEnded) -> None:
        """Record that a tool ended the attempt."""
        self.turn_ended = self.turn_ended or by

    def render(self, template: str, **values: object) -> str:
        """Fill in one of the run's prompt templates."""
        return self.services.prompts.render(template, **{"foreign": self.foreign, **values})

    async def recorded(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the value recorded for this use of the name, else make it and record it."""
        self._uses = self._uses or {}
        self._uses[name] = number = self._uses.get(name, 0) + 1
        key, journal = f"said:{self.step}:{name}:{number}", self.services.journal
        found = journal.get(key, MISSING)
        if found is not MISSING:
            return found
        made: Any = make()
        if inspect.isawaitable(made):
            made = await made
        journal.put(key, made)
        return made

    def keep(self, text: str) -> None:
        """Keep partial work; the last text counts. Raises `ValueError` unless it is a text."""
        self.kept = text if type(text) is str else plain_text("keep takes a text", text)

    def emit(self, text: str, **data: Any) -> None:
        """Report progress, from the event loop or a thread; `ValueError` for a non-text, or data JSON cannot hold."""
        text = plain_text("emit takes a text", text)
        self.services.emit(AttemptProgress, self.task_id, self.member, text, freeze_json(data))

    def call_key(self, request: ModelRequest, model: str) -> str:
        """Return the call's journal key: a digest of model and request, and how often it was requested before."""
        return self._record_request(self._call_key(f"{model}\n".encode("utf-8", "surrogatepass") + _written(request)))

    def recall_tool(self, tool: str, arguments: Mapping[str, Any] | str) -> tuple[str, ToolResult | None]:
        """Return the tool call's key in the journal, and the recorded result if it was made before."""
        # Sorted, because the same arguments in another order are the same call.
        given = arguments if isinstance(arguments, str) else repr(sorted(arguments.items()))
        key = self._record_request(self._call_key(f"{tool}\n{given}".encode("utf-8", "surrogatepass")))
        recorded: Any = self.services.journal.get(key, None)
        return key, recorded

    def _record_request(self, key: str) -> str:
        """Record that a call is requested, for comparison with earlier sessions; return its key."""
        if self.services.earlier_calls is not None:
            self.services.earlier_calls.note_call(self.step, key)
        return key

    def _call_key(self, asked: bytes) -> str:
        # Equal calls get numbers: each is paid by itself, and a resumed run answers the second by the second reply.
        digest = hashlib.sha256(asked).hexdigest()[:16]
        self._calls = self._calls or {}
        self._calls[digest] = number = self._calls.get(digest, 0) + 1
        return f"call:{self.step}:{digest}:{number}"

    async def approve_tool(
        self, call: str, tool: str, arguments: Mapping[str, Any], reason: str
    ) -> HumanDecision | None:
        """Ask a person whether a tool call may be made; None without a gate, or without an answer.

        `call` is the call's name in the journal: each call, even a repeated one, needs an answer of its own. Raises
        `CallPutOffError` if an attempt has to wait for the answer.
        """
        questions = self.services.questions
        if questions is None or self.task_id is None:
            return None
        subject = f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
        attempt = int(self.step.rpartition(":")[2])
        text = f"may {self.member!r} call {tool!r}? {reason}"
        asked = HumanRequest("tool", text, subject, self.task_id, self.member, attempt, consequences=_OF_A_TOOL_CALL)
        # Digest and number of the call: its step is in the question's key already.
        which = ":".join(call.rsplit(":", 2)[1:])
        key = f"human:{self.step.partition(':')[2]}:tool:{which}:{asked.digest[:16]}"
        decision = await questions.ask(key, asked)
        if decision is not None and decision.action == "defer" and self.scope is not None:
            self.waiting = self.waiting or questions.identified(asked, key)
            raise CallPutOffError
        return decision

    async def put_off(self, question: HumanRequest | None = None) -> None:
        """End the attempt until a question is answered, then make it again; returns if the work is not an attempt.

        Without a `question`, wait for the questions of deferred calls, if there are any.
        """
        question = question or self.waiting
        if question is not None and self.scope is not None:
            self.interrupt(question)
            # The interruption has cancelled the scope around this.
            await sleep_forever()

    def name_inner_run(self, team: str, goal: str) -> str:
        """Name a run inside this attempt: `<run id>.<task id>.<8 hex>`, the same in a repeated attempt."""
        key = self._call_key(f"run {team}\n{goal}".encode("utf-8", "surrogatepass"))
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        return f"{self.services.run_id}.{self.task_id or 'work'}.{digest}"

    def report_ruling(self, phase: GuardrailPhase, target: str, ruling: GuardrailRuling) -> None:
        """Emit what a guardrail decided, unless it plainly allowed."""
        decision = ruling.decision
        if decision.action is not GuardrailAction.ALLOW:
            decided = (ruling.policy, phase.value, decision.action.value, decision.reason, target)
            self.services.emit(GuardrailDecided, self.task_id, self.member, *decided)

    def report_content(self, of: str, call: str, body: object) -> None:
        """Emit a text of this work, if there are listeners."""
        services = self.services
        services.report_content(of, call, self._attempt, body, task_id=self.task_id, member=self.member)

    def _warn_of_withheld(self, source: str, tools: Sequence[Tool]) -> None:
        """Log, once per run, why a member gets no tool of a source."""
        reasons = [self._tool_pipeline().refusal(tool) for tool in tools]
        if not reasons or None in reasons or (source, self.member) in self.services.withheld:
            return
        self.services.withheld.add((source, self.member))
        _logger.warning(
            "none of the %d tools of %r is offered to %r: %s; of MCP servers, only tools listed in "
            "McpServer(allow=[...]) are, and where a team has one, in ToolPermissions(mcp=McpPolicy(allowed=[...]))",
            len(tools),
            source,
            self.member,
            reasons[0],
        )

    def _report_model(self, model: str, held: int, held_picodollars: int, most: int | None) -> StartedTry:
        """Emit that a try of a model call is sent; return what emits its end, and what goes around it."""
        services, key = self.services, call_key()
        self._tries = self._tries or Counter()
        self._tries[key] += 1
        about = self._about(key, self._tries[key])
        around = services.begin(ModelStarted, self.task_id, self.member, model, *about, held, held_picodollars, most)
        began = services.clock()

        def end(outcome: CallOutcome, usage: Usage, reply: ModelResponse | None) -> None:
            duration, billing = services.clock() - began, PLAIN if reply is None else reply.billing
            said = ("", "")
            if reply is not None:  # a whole reply that asks for tools ended for that
                whole = reply.finish_reason == "stop"
                said = ("tool_call" if whole and reply.tool_calls else reply.finish_reason, reply.model)
            cached = min(billing.cached_tokens, usage.prompt_tokens)
            reasoning = min(billing.reasoning_tokens, usage.completion_tokens)
            ended = (model, outcome, held, usage, *about, duration, held_picodollars, cached, reasoning, *said)
            services.emit(ModelCalled, self.task_id, self.member, *ended)
            services.warn_of_budget()

        return StartedTry(end, around)

    def _report_wait(self, model: str, *why: object) -> None:
        key = call_key()
        tries = 0 if self._tries is None else self._tries[key]
        self.services.emit(ModelWaiting, self.task_id, self.member, model, *self._about(key, tries + 1), *why)

    def _about(self, key: str, number: int) -> tuple[str, int, str, int]:
        """Return the common fields of the events of a model call's try."""
        return key, number, self.metadata["purpose"], self._attempt

    def _report_tool_start(self, tool: Tool, key: str, reply_call_id: str) -> Around:
        about = (tool.name, key, self._attempt, tool.side_effect, reply_call_id)
        return self.services.begin(ToolStarted, self.task_id, self.member, *about)

    def _report_tool(
        self, tool: str, outcome: str, refused_by: str | None, reason: str | None, key: str, duration: float
    ) -> None:
        end = (tool, outcome, refused_by, reason, key, self._attempt, duration)
        self.services.emit(ToolCalled, self.task_id, self.member, *end)
        self.services.warn_of_budget()

    @property
    def _attempt(self) -> int:
        """The number of the attempt, or of the reviewed one; 0 without one."""
        number = self.step.rpartition(":")[2]
        return int(number) if self.task_id is not None and number.isdigit() else 0

    def _tool_pipeline(self) -> ToolPipeline:
        if self._pipeline is None:
            services = self.services
            self._pipeline = ToolPipeline(
                self.governor,
                permissions=services.permissions,
                allowed=self.role.allowed_tools,
                also=services.allowed,
                guardrails=services.guardrails_of(self.member),
                breakers=services.breakers,
                secrets=services.secrets,
                member=self.member,
                metadata=self.metadata,
                on_start=self._report_tool_start,
                on_call=self._report_tool,
                on_decision=self.report_ruling,
                approve=self.approve_tool if services.questions is not None and services.questions.can_ask else None,
                recall=self.recall_tool if self.task_id is not None else None,
                record=services.journal.put,
                on_content=None if services.content is None else self.report_content,
                calls=self.calls,
                doubted=() if services.kept is None else services.kept.in_doubt,
                made=self.made_calls if self._is_attempt else None,
                offered=self.offered,
                on_turn_end=self.end_turn,
                unfinished=self.unfinished,
                put_off=self.put_off,
            )
        return self._pipeline


def _written(request: ModelRequest) -> bytes:
    request = request.without_asides
    # The JSON of a message leaves them out, so requests without them keep the keys that they always had.
    natives = [f"\n{at}:{one.native}" for at, one in enumerate(request.messages) if one.native is not None]
    try:
        return adapter(ModelRequest).dump_json(request) + "".join(natives).encode()
    except ValueError:  # a lone surrogate in a text, or a setting that JSON cannot hold
        files = "".join(file.digest for file in request.files)
        return f"{request!r}{files}".encode("utf-8", "surrogatepass")
