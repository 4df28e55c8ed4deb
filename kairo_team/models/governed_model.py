"""Govern model calls: hold budget before a call, cap the reply to what is left, settle with the real usage."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

import anyio

from kairo_team._util.frozen import replaced
from kairo_team.budget import Usage, picodollars
from kairo_team.errors import MissingExtra, ModelCallError, ModelUnavailable
from kairo_team.governance.pricing import FREE, PriceBook
from kairo_team.messages import ModelResponse
from kairo_team.models.call_keys import call_key, sending
from kairo_team.models.limits import ModelLimits, Turn
from kairo_team.models.prompt_bounds import prompt_bound, refuse_files
from kairo_team.models.readings import MOST_DOLLARS, MOST_TOKENS
from kairo_team.models.resolver import Fallback, file_problem, single_models
from kairo_team.models.retries import ModelRetry
from kairo_team.plugin_calls import failure_of, shown

if TYPE_CHECKING:
    from decimal import Decimal

    from kairo_team.contracts import CallLog, ChatModel
    from kairo_team.files import File
    from kairo_team.governance.governor import Governor, Reservation
    from kairo_team.governance.pricing import Tariff
    from kairo_team.messages import ModelRequest

DEFAULT_MAX_TOKENS: Final = 4096
"""Tokens held for a reply when neither the request nor the model limits its length."""
_NOTHING: Final = Usage()

CallOutcome = Literal["ok", "error", "unknown"]
ReportEnd = Callable[[CallOutcome, Usage, ModelResponse | None], object]
"""Called after a try of a call, with its outcome, its charge and the reply, if one came."""


class StartedTry(NamedTuple):
    """A try of a call whose start was reported."""

    report_end: ReportEnd
    around: AbstractContextManager[object]
    """A context around the call, entered in the call's own task."""


ReportStart = Callable[[str, int, int, int | None], StartedTry]
"""Called before a try of a call is sent, with the model's name, the tokens and picodollars held, and the most tokens of
the reply."""
ReportWait = Callable[..., object]
"""Called when a try cannot be sent yet, with the model's name and the fields of `ModelWaiting` from `waits_for` on."""
ReportOvershoot = Callable[[str, Usage, Usage], None]
"""Called after a call that used more than its hold, with the model's name, the hold and the usage."""
OnText = Callable[[str], object]
"""Called with each piece of text of a streamed reply."""
Listen = Callable[[], OnText]
"""Called for each try of a streamed call; returns the receiver of the text from the start."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """The rules for the model calls of one program."""

    retry: ModelRetry = field(default_factory=ModelRetry)
    limits: ModelLimits = field(default_factory=ModelLimits)


RULES: Final = CallRules()
"""Default retries, no limits."""


class GovernedModel:
    """A chat model whose calls are limited, held on a governor, capped, settled, reported and, if needed, retried.

    A failed try is charged its whole hold, because the provider may have answered, unless the error proves that it did
    not (`ModelCallError.unspent`). A retry passes guards and limits and takes a hold like any other call.
    """

    __slots__ = ("_calls", "_governor", "_model", "_prices", "_report", "_report_overshoot", "_report_wait", "_rules")

    def __init__(
        self,
        model: ChatModel,
        governor: Governor,
        report: ReportStart,
        prices: PriceBook | None = None,
        rules: CallRules = RULES,
        report_overshoot: ReportOvershoot | None = None,
        calls: CallLog | None = None,
        report_wait: ReportWait | None = None,
    ) -> None:
        """Take a model and its governor, prices and rules; `calls` records each try before it is sent."""
        self._model = model
        self._calls = calls
        self._report_overshoot = report_overshoot
        self._report_wait = report_wait
        self._governor = governor
        self._report = report
        self._prices = prices or PriceBook()
        self._rules = rules

    @property
    def name(self) -> str:
        """`provider:model`."""
        return self._model.name

    @property
    def context_window(self) -> int | None:
        """The most tokens of prompt and reply together, of a fallback the least; None: unknown."""
        windows = [getattr(model, "context_window", None) for model in single_models(self._model)]
        return min((window for window in windows if window is not None), default=None)

    async def complete(self, request: ModelRequest, listen: Listen | None = None) -> ModelResponse:
        """Answer one request; raises `HaltError` or `InsufficientBudget` instead of overspending.

        With `listen`, a model that can stream does so, and the listener gets the text of each try.

        Raises `UnpricedModel` when dollars are limited and the price of the call is unknown, and the model's own error,
        such as a `ModelCallError`, when no retry is left. A call that is cancelled in flight is charged its whole hold.
        """
        return await self._ask(self._model, request, None if listen is None else _Overhearer(listen))

    async def stream(
        self, request: ModelRequest, on_text: OnText, on_thinking: OnText = lambda _: None
    ) -> ModelResponse:
        """Answer like `complete`, and emit each piece of text as it comes; all at the end if the model cannot stream.

        Reasoning goes to `on_thinking`, of models whose `stream` takes an `on_thinking` too.

        Once a piece was emitted, a call that breaks off is not retried, because the text would be emitted twice.
        """
        return await self._ask(self._model, request, _PieceSender(on_text, on_thinking))

    def file_problem(self, file: File) -> str | None:
        """Return why the model, or one of a fallback, does not take a file; None if each takes it."""
        return file_problem(self._model, file)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the model's own count of the prompt's tokens; None without one. Of a fallback, the largest count."""
        counts: list[int] = []
        for model in single_models(self._model):
            if getattr(model, "count_tokens", None) is None:
                return None
            try:
                counts.append(await _count(model, request))
            except ModelCallError:  # another model of the fallback may still answer the call
                return None
        return max(counts)

    async def _ask(self, model: ChatModel, request: ModelRequest, sender: _Sender | None) -> ModelResponse:
        """Ask a model, or the models of a fallback in turn, each with its retries."""
        if isinstance(model, Fallback):
            return await model.ask(
                lambda alternative: self._ask(alternative, request, sender),
                last_word=lambda: sender is not None and sender.started,
            )
        tries = 0
        while True:
            try:
                return await self._try(model, request, sender)
            except ModelCallError as error:
                tries += 1
                pause = self._rules.retry.pause(tries, error)
                once = not getattr(model, "repeatable", True) or (sender is not None and sender.started)
                if pause is None or once:
                    raise
                if self._report_wait is not None:
                    self._report_wait(model.name, "retry", pause, error.kind)
            # Not inside the `except`: the error of the next try would show this one as its context.
            await anyio.sleep(pause)

    async def _try(self, model: ChatModel, request: ModelRequest, sender: _Sender | None) -> ModelResponse:
        """Make one try, inside a turn if the model is limited."""
        # Before each try: the governor may have halted during the pause.
        self._governor.can_proceed()
        refuse_files(model, request)
        need = await self._need(model, request)
        gate = self._rules.limits.gate_of(model)
        if gate is None:
            hold = await self._hold(need, self._wait_reporter(model, "budget"))
            return await self._send(model, request, need, hold, sender, None)
        most = need.prompt + need.wanted if gate.counts_tokens else 0
        async with gate.turn(most, self._wait_reporter(model, "rate")) as turn:
            # Until the budget is held: the block may end by an exception.
            turn.withdrawn = True
            now: Reservation | None = None
            # A call that must wait for budget leaves its turn to others meanwhile: `on_wait` is called before the first
            # wait, so cancelling there means "not at once".
            with anyio.CancelScope() as at_once:
                now = await self._hold(need, at_once.cancel)
            if now is not None:
                turn.withdrawn = False
                return await self._send(model, request, need, now, sender, turn)
        # The order is turned around: first the budget, then a new turn, so that a wait for budget blocks no other call.
        hold, sent = await self._hold(need, self._wait_reporter(model, "budget")), False
        try:
            async with gate.turn(most, self._wait_reporter(model, "rate")) as turn:
                sent = True  # from here on, `_send` settles the hold
                return await self._send(model, request, need, hold, sender, turn)
        finally:
            if not sent:
                hold.release()

    async def _need(self, model: ChatModel, request: ModelRequest) -> _Need:
        """Return the most that a call can use, and the least that is useful."""
        tariff = self._prices.of(model, request.settings)
        if tariff is None:  # free, unless dollars are limited
            if self._governor.remaining.dollars is not None:
                raise self._prices.refusal(model)
            tariff = FREE
        prompt = await _count(model, request)
        wanted = request.max_tokens or getattr(model, "max_output_tokens", None) or DEFAULT_MAX_TOKENS
        dollars = tariff.most(prompt, wanted)
        # A reply of one token: less room cannot give an answer.
        least = Usage(prompt + 1, dollars=tariff.most(prompt, 1)) if dollars else Usage(prompt + 1)
        return _Need(prompt, wanted, dollars, least, tariff)

    def _hold(self, need: _Need, on_wait: Callable[[], object] | None) -> Coroutine[Any, Any, Reservation]:
        """Hold the most that a call can use; see `Governor.hold`."""
        tokens = need.prompt + need.wanted
        return self._governor.hold(tokens=tokens, dollars=need.dollars, minimum=need.least, on_wait=on_wait)

    async def _send(
        self,
        model: ChatModel,
        request: ModelRequest,
        need: _Need,
        hold: Reservation,
        sender: _Sender | None,
        turn: Turn | None,
    ) -> ModelResponse:
        """Cap the call to its hold, make it, and settle."""
        prompt, wanted, dollars, _, tariff = need
        with hold:
            most = min(wanted, hold.tokens - prompt)  # the hold may be smaller than asked, down to `least`
            if dollars and hold.dollars < dollars:
                # The longest reply, of one token at least, that cannot cost more. The cost grows with the tokens, at
                # some tariffs in steps: bisection needs no inverse function.
                most = 1 + bisect_right(range(2, most + 1), hold.dollars, key=partial(tariff.most, prompt))
            if most < wanted:  # a call whose outcome stays unknown is charged its hold: the most it can use now
                hold.reduce(prompt + most, tariff.most(prompt, most) if dollars else 0)
            if turn is not None:
                # Counted if the call fails below; a reply or a release replaces it.
                turn.tokens = hold.tokens
            capped = request if most == request.max_tokens else replaced(request, max_tokens=most)
            sent, response = await self._call(model, capped, hold, sender, turn)
            if turn is not None and response.usage is not None:
                turn.tokens = response.usage.tokens
            return self._settle(model, hold, sent, response, tariff)

    def _wait_reporter(self, model: ChatModel, what: Literal["rate", "budget"]) -> Callable[[], object] | None:
        """Return the function that reports that a try waits; None if waits are not reported."""
        return None if self._report_wait is None else partial(self._report_wait, model.name, what)

    async def _call(
        self, model: ChatModel, request: ModelRequest, hold: Reservation, sender: _Sender | None, turn: Turn | None
    ) -> tuple[_Sent, ModelResponse]:
        """Record the call and make it; return it with the reply."""
        number = 0
        if self._calls is not None:
            try:
                number = await self._calls.sent("model", model.name, _all_of(hold), key=call_key())
            except BaseException:  # without its record the call is not sent, and must not be charged
                hold.release()
                raise
        started = self._report(model.name, hold.tokens, picodollars(hold.dollars), request.max_tokens)
        sent = _Sent(number, started.report_end)
        try:
            with started.around, sending(None if self._calls is None else self._calls.idempotency_key(number)):
                if sender is not None:
                    return sent, await sender.stream(model, request)
                return sent, _checked(model, await model.complete(request))
        except (ModelUnavailable, MissingExtra):  # raised before anything was sent
            _release(hold, turn)
            self._record_end(number, "unsent", _NOTHING)
            sent.report_end("error", _NOTHING, None)
            raise
        except BaseException as raised:  # noqa: BLE001 - all of it is raised
            error = failure_of(raised)
            spent = _all_of(hold)  # the provider may have answered, so all of it is charged unless proven otherwise
            if getattr(error, "unspent", False) is True:
                _release(hold, turn)
                spent = _NOTHING
            # After these two the reply may exist, only it did not arrive.
            lost = isinstance(error, ModelCallError) and error.kind in ("timeout", "connection") and not error.unspent
            self._record_end(number, "unknown" if error is None or lost else "failed", spent)
            sent.report_end("unknown" if error is None else "error", spent, None)
            raise error or raised  # noqa: B904 - it has its cause already

    def _record_end(self, number: int, state: str, spent: Usage) -> None:
        if self._calls is not None:
            self._calls.ended(number, state, spent)

    def _settle(
        self, model: ChatModel, hold: Reservation, sent: _Sent, response: ModelResponse, tariff: Tariff
    ) -> ModelResponse:
        """Book the usage and return the reply with its dollars: the provider's figure, else the tariff's."""
        usage = response.usage
        if usage is None:
            usage = _all_of(hold)  # the reservation stays unsettled, which charges all of it
            sent.report_end("unknown", usage, response)
        else:
            # A provider's own figure is better than a list of prices.
            if not usage.dollars and (dollars := tariff.cost(usage, response.billing)):
                usage = replace(usage, dollars=dollars)
            hold.settle(usage.prompt_tokens, usage.completion_tokens, usage.dollars)
            if hold.overshoot and self._report_overshoot is not None:
                self._report_overshoot(model.name, Usage(hold.tokens, dollars=hold.dollars), usage)
            sent.report_end("ok", usage, response)
            response = response if usage is response.usage else replaced(response, usage=usage)
        if self._calls is not None:
            self._calls.answered(sent.number, response, usage)  # last: with the dollars that were charged
        return response


class _Need(NamedTuple):
    """Amounts that a call needs of a budget."""

    prompt: int
    """Most tokens of the prompt."""
    wanted: int
    """Most tokens of the reply."""
    dollars: Decimal
    """Most dollars of both together."""
    least: Usage
    """The need of the prompt and a reply of one token."""
    tariff: Tariff


class _Sent(NamedTuple):
    """A try of a call that was sent."""

    number: int
    """Number in the call log; 0 if calls are not recorded."""
    report_end: ReportEnd


class _Overhearer:
    """Stream the text of a reply to a listener, from the start in each try."""

    __slots__ = ("_listen",)
    started: ClassVar[bool] = False
    """Always False: a retry may call listeners again."""

    def __init__(self, listen: Listen) -> None:
        self._listen = listen

    async def stream(self, model: ChatModel, request: ModelRequest) -> ModelResponse:
        """Call the model, piece by piece when it can stream."""
        stream = getattr(model, "stream", None)
        call = model.complete(request) if stream is None else stream(request, self._listen())
        return _checked(model, await call)


class _PieceSender:
    """Emit the pieces of a reply, and note whether one was emitted."""

    __slots__ = ("_error", "_on_text", "_on_thinking", "started")

    def __init__(self, on_text: OnText, on_thinking: OnText) -> None:
        self._on_text, self._on_thinking = on_text, on_thinking
        self._error: Exception | None = None
        self.started = False

    async def stream(self, model: ChatModel, request: ModelRequest) -> ModelResponse:
        """Call the model, piece by piece when it can stream; an exception of the listener is raised unchanged."""
        stream = getattr(model, "stream", None)
        try:
            if stream is not None:
                # Models of users may have been written before `on_thinking`.
                apart = {"on_thinking": self._on_thinking} if "on_thinking" in signature(stream).parameters else {}
                response = _checked(model, await stream(request, self._piece, **apart))
            else:
                response = _checked(model, await model.complete(request))
                self._piece(response.text)
        except Exception:
            if self._error is not None:
                # The listener's own error: a client may have turned it into an error of its stream.
                raise self._error from None
            raise
        return response

    def _piece(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a piece of a streamed reply must be text, not {text!r:.200}")
        if not text:
            return
        self.started = True
        try:
            self._on_text(text)
        except Exception as error:
            self._error = error
            raise


_Sender = _Overhearer | _PieceSender


def _checked(model: ChatModel, response: Any) -> ModelResponse:
    """Return the reply, or raise `TypeError`. A usage that no call can have counts as unknown.

    So does a usage of 0, unless a cache answered: every reply takes tokens, and such a model would never reach a limit.
    """
    if not isinstance(response, ModelResponse):
        raise TypeError(f"model {model.name!r} must answer with a ModelResponse, not with {response!r:.200}")
    usage = response.usage
    if usage is None:
        return response
    is_told = usage.tokens or usage.dollars or response.billing.served.get("cache") == "hit"
    is_possible = usage.tokens <= MOST_TOKENS and usage.dollars <= MOST_DOLLARS
    return response if is_told and is_possible else replaced(response, usage=None)


async def _count(model: ChatModel, request: ModelRequest) -> int:
    count = getattr(model, "count_tokens", None)
    if count is None:
        return prompt_bound(request)
    try:
        counted = await count(request)
    except BaseException as raised:  # noqa: BLE001 - all of it is raised
        raise failure_of(raised) or raised  # noqa: B904 - it has its cause already
    # The count is held before the call: a wrong count must not let a call through.
    if not isinstance(counted, int) or counted < 0:
        wrong = f"count_tokens must return a whole number >= 0, not {shown(counted, 100)}"
        raise TypeError(f"model {model.name!r}: {wrong}")
    return counted


def _release(hold: Reservation, turn: Turn | None) -> None:
    """Give back the hold of a call that was never answered, and count no tokens at the model's limit."""
    hold.release()
    if turn is not None:
        turn.tokens = 0


def _all_of(hold: Reservation) -> Usage:
    """Return the charge for a call whose usage is unknown."""
    return Usage(prompt_tokens=hold.tokens, dollars=hold.dollars)
