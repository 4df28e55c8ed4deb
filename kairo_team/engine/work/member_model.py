"""A model as a member gets it: recorded, constrained, guarded, and governed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from anyio.lowlevel import checkpoint

from kairo_team._util.frozen import replaced
from kairo_team._util.masking import Masker
from kairo_team.errors import GuardrailDenied, ModelCallError
from kairo_team.events import ModelDelta, ModelThinking
from kairo_team.governance.guardrails import (
    GuardrailAction,
    GuardrailChain,
    GuardrailContext,
    GuardrailPayload,
    GuardrailPhase,
    ModelInput,
    ModelOutput,
)
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.models.call_keys import answering
from kairo_team.models.tool_calls import sound_request, with_own_ids

if TYPE_CHECKING:
    from kairo_team.engine.work.constraints import AskedModel
    from kairo_team.engine.work.run_services import RunServices
    from kairo_team.engine.work.work_context import WorkContext
    from kairo_team.files import File


_EVERY: Final = 0.5
"""Least seconds between two pieces of a reply emitted to listeners of the work's texts."""


def _request_for_people(request: ModelRequest) -> ModelRequest:
    """Return a request for people: without the provider's own form of replies."""
    if all(message.native is None for message in request.messages):
        return request
    return replaced(request, messages=tuple(replaced(message, native=None) for message in request.messages))


class _Pieces:
    """Emits a text while it is written: the new part, every few seconds, never with part of a secret."""

    def __init__(self, emit: Callable[[str], object], services: RunServices, every: float = 0.0) -> None:
        self._emit = emit
        self._masker = Masker(services.secrets)
        self._clock = services.clock
        self._every = every
        self._last = self._clock()
        self._rest = ""

    def __call__(self, text: str) -> None:
        """Take the added text, from any thread."""
        self._rest += text
        now = self._clock()
        if now - self._last < self._every:
            return
        end = self._masker.settled(self._rest)
        if end:
            self._last = now
            self._emit_rest(end)

    def end(self) -> None:
        """Emit the rest."""
        if self._rest:
            self._emit_rest(len(self._rest))

    def _emit_rest(self, end: int) -> None:
        text, self._rest = self._rest[:end], self._rest[end:]
        self._emit(text)


class MemberModel:
    """A governed model whose calls pass the member's constraints and guardrails, and are recorded.

    The intent is recorded before a call and the reply after it, so that no call is paid twice.
    """

    __slots__ = ("_context", "_guardrails", "_model", "_steerable", "name")

    def __init__(
        self,
        context: WorkContext,
        model: AskedModel,
        guardrails: GuardrailChain | None,
        *,
        steerable: bool = True,
    ) -> None:
        """Take the governed model; directives are added to its requests only if it is `steerable`."""
        self._context = context
        self._model = model
        self.name = model.name
        """`provider:model`."""
        self._guardrails = guardrails
        self._steerable = steerable

    @property
    def context_window(self) -> int | None:
        """The most tokens of prompt and reply together; None: unknown."""
        return self._model.context_window

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request, from the record if this call was made before."""
        return await self._answer(request, None)

    async def stream(
        self,
        request: ModelRequest,
        on_text: Callable[[str], object] | None = None,
        on_thinking: Callable[[str], object] | None = None,
    ) -> ModelResponse:
        """Answer one request and emit each piece of the reply; all at once if guardrails inspect replies.

        `on_text` and `on_thinking` get what is emitted, in any thread. A recorded reply has no pieces.
        """
        services = self._context.services
        told = _Pieces(partial(self._emit_piece, ModelDelta, on_text), services)
        thought = _Pieces(partial(self._emit_piece, ModelThinking, on_thinking), services)
        response = await self._answer(request, None if self._guards_replies else (told, thought))
        if self._guards_replies:
            told(response.text)
        thought.end()
        told.end()
        return response

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the model's own count of a prompt's tokens, before guardrails and directives; None without one."""
        return await self._model.count_tokens(sound_request(request))

    def file_problem(self, file: File) -> str | None:
        """Return why the model does not take a file; None if it does."""
        return self._model.file_problem(file)

    @property
    def _guards_replies(self) -> bool:
        return self._guardrails is not None and self._guardrails.covers(GuardrailPhase.POST_MODEL)

    def _emit_piece(
        self, kind: type[ModelDelta | ModelThinking], also: Callable[[str], object] | None, text: str
    ) -> None:
        context = self._context
        context.services.emit(kind, context.task_id, context.member, self.name, text)
        if also is not None:
            also(text)

    async def _ask(self, request: ModelRequest, key: str, on_text: tuple[_Pieces, _Pieces] | None) -> ModelResponse:
        """Call the model, and keep the error of a call that got no answer.

        If there are listeners for texts, the reply is emitted while it is written.
        """
        services = self._context.services
        watched = services.content is not None and services.content.in_pieces
        try:
            if on_text is not None:
                return await self._model.stream(request, *on_text)
            if not watched or self._guards_replies or self.name in services.unmetered:
                return await self._model.complete(request)
            report = partial(self._context.report_content, "piece", key)
            response = await self._model.complete(request, lambda: _Pieces(report, services, _EVERY))
        except ModelCallError as error:
            self._context.unanswered = error
            raise
        if response.usage is None:
            services.unmetered.add(self.name)
        return response

    async def _answer(self, request: ModelRequest, on_text: tuple[_Pieces, _Pieces] | None) -> ModelResponse:
        if not isinstance(request, ModelRequest):  # pyright: ignore[reportUnnecessaryIsInstance]  # agents may be untyped
            example = "kt.ModelRequest([kt.Message.user('...')])"
            raise ValueError(f"complete takes a ModelRequest, such as {example}, not {request!r:.80}")
        context = self._context
        journal, constraints = context.services.journal, context.constraints
        key = context.call_key(request, self.name)
        recorded: Any = journal.get(key, None)
        if recorded is not None:
            return await self._recall(request, recorded)
        turn = await constraints.begin_turn(request) if constraints is not None else 0
        answer: ModelResponse | None = None
        try:
            passed = await self._prepare(request)
            # The intent: `EarlierCalls` takes None for a call that was about to be made.
            journal.put(key, None)
            if context.services.content is not None:
                context.report_content("prompt", key, _request_for_people(passed))
            with answering(key):
                response = await self._ask(passed, key, on_text)
            # Before the guardrails see the reply: a refused one is paid too.
            answer, context.turns = response, context.turns + 1
            response = await self._pass_on(response)
        except GuardrailDenied as denied:
            # The refusal is recorded in place of the reply, so that a resumed run does not pay for the call again.
            await self._record(key, answer, denied)
            await self._refuse(denied)
        await self._record(key, answer, response)
        if context.services.content is not None:
            context.report_content("reply", key, replaced(response, native=None))
        context.denied = None
        self._note_unfinished(response)
        if constraints is not None:
            await constraints.end_turn(turn, response)
        return response

    def _note_unfinished(self, response: ModelResponse) -> None:
        """Record the tool calls of a reply that was cut off, and release those of a complete reply."""
        unfinished, cut_by = self._context.unfinished, response.cut_by
        for call in response.tool_calls:
            if cut_by is None:
                unfinished.pop(call.id, None)
            else:
                unfinished[call.id] = cut_by

    async def _recall(self, request: ModelRequest, recorded: Any) -> ModelResponse:
        """Return the recorded reply of a call, or raise the recorded denial; guards and constraints learn of either."""
        if self._guardrails is not None:
            await self._repeat(self._guardrails, request, recorded)
        if isinstance(recorded, GuardrailDenied):
            await self._refuse(recorded)
        response: ModelResponse = recorded
        self._context.call_ids.update(call.id for call in response.tool_calls)
        self._note_unfinished(response)
        if self._context.constraints is not None:
            self._context.constraints.repeat_turn(request, response)
        return response

    async def _repeat(self, chain: GuardrailChain, request: ModelRequest, recorded: Any) -> None:
        """Let guardrails learn again from a recorded call."""
        context = self._context
        payloads: list[tuple[GuardrailPhase, GuardrailPayload]] = [
            (GuardrailPhase.PRE_MODEL, ModelInput(request.messages, request.settings))
        ]
        if not isinstance(recorded, GuardrailDenied):
            payloads.append((GuardrailPhase.POST_MODEL, ModelOutput(recorded)))
        for phase, payload in payloads:
            await chain.remember(GuardrailContext(phase, context.member, self.name, payload, context.metadata))

    async def _record(self, key: str, answer: ModelResponse | None, value: object) -> None:
        """Record the result of a call; if the journal outlives the process, return once it is on disk."""
        calls = self._context.calls
        if calls is None:
            self._context.services.journal.put(key, value)
        else:
            await calls.record(key, answer, value)

    async def _prepare(self, request: ModelRequest) -> ModelRequest:
        """Return a request as it is sent: with the directives given since it was made, and as guardrails leave it.

        It is recorded without the directives.
        """
        directives = self._context.directives if self._steerable else ()
        if directives:
            added = Message.user("New directives:\n" + "\n".join(f"- {one}" for one in directives))
            request = replaced(request, messages=(*request.messages, added))
        chain = self._guardrails
        if chain is not None and chain.covers(GuardrailPhase.PRE_MODEL):
            given = ModelInput(request.messages, request.settings)
            passed: Any = await self._pass(chain, GuardrailPhase.PRE_MODEL, given)
            if passed is not given:
                request = replace(request, messages=passed.messages, settings=passed.settings)
        return sound_request(request)

    async def _pass_on(self, response: ModelResponse) -> ModelResponse:
        """Return a reply as the member gets it: with ids of calls that no call had before, and as guardrails leave it.

        The calls of a reply that cannot be changed keep their ids.
        """
        if response.tool_calls and self._steerable:
            calls = with_own_ids(response.tool_calls, self._context.call_ids)
            if calls != list(response.tool_calls):
                response = replaced(response, tool_calls=tuple(calls))
        chain = self._guardrails
        if chain is None or not chain.covers(GuardrailPhase.POST_MODEL):
            return response
        passed: Any = await self._pass(chain, GuardrailPhase.POST_MODEL, ModelOutput(response))
        reply: ModelResponse = passed.response
        # The provider's own form of the reply still has what a guardrail removed.
        changed = (reply.text, reply.tool_calls) != (response.text, response.tool_calls)
        return replaced(reply, native=None) if changed and reply.native is not None else reply

    async def _pass(self, chain: GuardrailChain, phase: GuardrailPhase, payload: GuardrailPayload) -> GuardrailPayload:
        """Return the payload as the guardrails leave it, or raise `GuardrailDenied`."""
        context = self._context
        outcome = await chain.evaluate(GuardrailContext(phase, context.member, self.name, payload, context.metadata))
        for ruling in outcome.trail:
            context.report_ruling(phase, self.name, ruling)
        if outcome.action is GuardrailAction.DENY:
            raise GuardrailDenied(outcome.policy or "", phase.value, outcome.reason or "")
        return outcome.payload

    async def _refuse(self, denied: GuardrailDenied) -> NoReturn:
        """Raise the denial."""
        self._context.denied = denied
        # An agent that calls again and again must not keep the event loop to itself.
        await checkpoint()
        raise denied
