"""Every error of the library, one tree.

KairoError
+- Misuse                 the caller's mistake: nothing was started, nothing was spent
|  +- PlanRefused         a plan, team or budget that cannot start
|  +- ModelUnavailable    a model name that cannot be served: unknown provider, missing extra, key or file
|  +- MissingExtra        an optional dependency is not installed
|  +- GovernorClosed      a governor or reservation used after its end
|  +- RunExists           a run id used twice
|  +- RunNotFound, RunFinished
|  +- NoQuestion          an answer to a question that is not open
|  +- PlanMismatch        a suspended run was resumed with other arguments than it began with
+- Outcome                how work can end without a mistake of the caller or a plug-in
|  +- HaltError           a limit, the clock or the kill switch stopped the work
|  +- InsufficientBudget  this call does not fit now; nothing was halted
|  +- ConstraintExit      a constraint ends an attempt gracefully: no further model call is started
|  +- GuardrailDenied     a guardrail refused a model call or its reply
|  +- TurnEnded           a tool ended the attempt, as it is meant to
|  +- ModelCallError      a provider did not answer a call; `kind` is the reason
|  |  +- NoRecord         a replayed call has no record
|  +- UnpricedModel       a dollar limit, and a model without a known price
|  +- NoPlan              a model returned no plan that can be run
|  +- Interrupted         a task was cancelled, or waits for a person
|  +- TeamAborted         the failure policy ended the run
|  +- PlanRejected        a person rejected the plan
|  +- InvalidJudgement    a judge's reply cannot be read
|  +- FailedControl       a judge answered a question wrongly whose answer is known
|  +- InvalidReply        a model's reply, or an artifact, is not of the type it must have
|  +- TeamFailed          `TeamResult.check()` on a run that did not complete
|  +- NoAnswer            the data of a task, or of an agent, that has no accepted answer
+- JournalError           a journal cannot be used, or another process has taken the run over
+- ContractBreach         a plug-in or the library broke its contract
   +- BadOutput           a member returned what is not an output
   +- BadExit             a plug-in raised what it must not raise, such as `SystemExit`
   +- IllegalMove         a run or task asked for a transition its table does not have
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from kairo_team.budget import HaltReason, Usage
    from kairo_team.messages import ToolCall
    from kairo_team.results import TeamResult


class KairoError(Exception):
    """Base of every error this library raises on purpose."""


class Misuse(KairoError):
    """The caller's mistake."""


class Outcome(KairoError):
    """A legitimate end of work that is not success."""


class ContractBreach(KairoError):
    """A plug-in, or the library itself, broke a contract."""


_MOST_NAMES: Final = 30
"""The most names listed: a longer list would make a message unreadable."""
_MOST_OF_NAMES: Final = 800
"""The most characters of listed names."""


def known(names: Iterable[str], *, none: str = "none") -> str:
    """List names for an error message, sorted and quoted; of a long list, the first ones and how many more."""
    listed = sorted(names)
    shown: list[str] = []
    for name in listed[:_MOST_NAMES]:
        one = f"{name!r:.100}"
        if shown and sum(map(len, shown)) + len(one) > _MOST_OF_NAMES:  # one name at least
            break
        shown.append(one)
    more = len(listed) - len(shown)
    return f"{', '.join(shown)} and {more} more" if more else ", ".join(shown) or none


def first_of(problems: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Join sentences for an error message; of many, the first ones and how many more."""
    more = len(problems) - most
    if more == 1:  # to count one is as long as to say it
        return "; ".join(problems)
    return "; ".join([*problems[:most], *([f"and {more:,} more problems"] if more > 0 else [])])


def repeated(names: Iterable[str]) -> set[str]:
    """Return the names that are given more than once."""
    once: set[str] = set()
    twice: set[str] = set()
    for name in names:
        (twice if name in once else once).add(name)
    return twice


class PlanRefused(Misuse, ValueError):
    """A plan, team or budget was refused before any work started; `problems` holds one sentence each.

    The message has the first ones of many, and how many more there are.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(first_of(self.problems))


class ModelUnavailable(Misuse, ValueError):
    """A model name cannot be served here; the message has a remedy."""

    def __init__(self, model: str, why: str) -> None:
        self.model = model
        self.why = why
        super().__init__(f"model {model!r} cannot be used: {why}")


class MissingExtra(Misuse, ImportError):
    """An optional dependency is missing; the message names the extra that brings it."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs the extra {extra!r}: pip install 'kairo-team[{extra}]'")


class GovernorClosed(Misuse, RuntimeError):
    """A governor was used after `close()`, or a reservation after its end."""

    def __init__(self, name: str, what: str = "the governor") -> None:
        self.name = name
        super().__init__(f"{what} {name!r} is closed: it can no longer hold, carve or guard spending")


class RunExists(Misuse, ValueError):
    """The request's run id was used before, or is recorded in the journal; every run has an id of its own."""

    def __init__(self, run_id: str, *, recorded: bool = False) -> None:
        self.run_id = run_id
        what = (
            "is recorded already: resume it, or use another run_id"
            if recorded
            else "exists already: build a new TeamExecutionRequest (or give it another run_id) to run again"
        )
        super().__init__(f"run {run_id!r} {what}")


class RunNotFound(Misuse, KeyError):
    """No run of that id in this runtime, or in a journal."""

    def __init__(self, run_id: str, active: Iterable[str] = (), *, place: str = "this runtime, which has") -> None:
        self.run_id = run_id
        self.message = f"no run {run_id!r} in {place}: {known(active, none='none')}"
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message  # a `KeyError` shows its repr


class RunFinished(Misuse, RuntimeError):
    """The run has ended: it can no longer be steered or cancelled."""

    def __init__(self, run_id: str, state: str | None = None) -> None:
        self.run_id = run_id
        how = "" if state is None else f": it is {state}, and journal.result({run_id!r}) returns its result"
        super().__init__(f"run {run_id!r} has ended already{how}")


class NoQuestion(Misuse, KeyError):
    """No open question of that id in this runtime; `why` says why a question that was open takes no answer any more."""

    def __init__(
        self, question_id: str, open_ids: Iterable[str], why: str | None = None, *, place: str = "this runtime"
    ) -> None:
        self.question_id = question_id
        self.message = f"no open question {question_id!r} in {place}; open now: {known(open_ids)}"
        if why is not None:
            self.message = f"question {question_id!r} takes no answer any more: {why}"
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message


_MAY_DIFFER: Final = {
    "criteria of evaluator": "the `digest` of the evaluator",
    "the coordinator's criteria": "the `digest` of the evaluator",
    "planner": "the `digest` of the planner",
    "permissions of tools": "the `digest` of the guard",
    "output type": "the schema of the type",
}
"""What a user's code may make differently in each process, by the beginning of the part's name."""


class PlanMismatch(Misuse, ValueError):
    """A suspended run was resumed with another value than it began with; `field` names the argument."""

    def __init__(self, run_id: str, field: str, was: object, now: object) -> None:
        self.field = field
        kind = field.removeprefix("output type ")
        source = next((source for part, source in _MAY_DIFFER.items() if field.startswith(part)), None)
        perhaps = ""
        if kind != field and now == "nothing":
            perhaps = (
                f". A journal keeps names of types, so give the type itself: Team(..., output_types={{{kind}: ...}})"
            )
        elif source is not None and "nothing" not in (was, now):
            perhaps = (
                f". If nothing was changed, {source} differs between processes, as one made by hash(), id() or the "
                f"order of a set does{': EvaluationStrategyTCK finds that' if 'criteria' in field else ''}"
            )
        super().__init__(
            f"run {run_id!r} cannot be resumed: its {field} changed from {was!r:.200} to {now!r:.200}; resume it with "
            f"what it was begun with, accept it by allow_changes=[{field!r}], or begin a new run"
            f"{perhaps}"
        )


class JournalError(KairoError):
    """A journal cannot be used, or this process may no longer write to it; `path` is the journal's location."""

    def __init__(self, path: object, problem: str) -> None:
        self.path = str(path)
        self.problem = problem
        super().__init__(f"journal {self.path!r}: {problem}")


class Interrupted(Outcome):
    """Work on a task was ended from outside: it was cancelled, or waits for a person. Do not catch it."""


class TeamAborted(Outcome):
    """The failure policy, or the coordinator, ended the whole run."""


class PlanRejected(Outcome):
    """A person rejected the plan."""


class HaltError(Outcome):
    """A governor halted. `origin` names the governor that reached its limit, `usage` is that governor's.

    `path` is that governor's path in the budget tree (`Governor.path`), since others may have its name; empty if the
    governor is not known. `lacking` is the shortage, if a call that did not fit into the rest of the budget caused the
    halt.
    """

    def __init__(
        self,
        reason: HaltReason,
        usage: Usage,
        origin: str,
        *,
        lacking: InsufficientBudget | None = None,
        path: str = "",
    ) -> None:
        self.reason = reason
        self.usage = usage
        self.origin = origin
        self.path = path
        self.lacking = lacking
        short = f"; {lacking.asked:,} {lacking.dimension} needed, {lacking.left:,} left" if lacking is not None else ""
        super().__init__(f"{origin!r} halted: {reason.value} (spent {usage}{short})")


class InsufficientBudget(Outcome):
    """An amount does not fit now: nothing was held and nothing was halted.

    `needed` is the least amount that would have been enough, if that is less than `asked`. `origin` and `path` are the
    name and the path of the governor that has too little, as in `HaltError`. `until` is the moment when the window of
    an account ends, None without windows.
    """

    def __init__(
        self,
        dimension: str,
        asked: object,
        left: object,
        origin: str,
        *,
        needed: object | None = None,
        path: str = "",
        until: datetime | None = None,
    ) -> None:
        self.dimension = dimension
        self.asked = asked
        self.left = left
        self.origin = origin
        self.path = path
        self.needed = needed
        self.until = until
        least = f", at least {needed} needed" if needed is not None else ""
        ends = "" if until is None else f"; its window ends at {until.isoformat(' ', 'minutes')}"
        super().__init__(f"{origin!r} has {left} {dimension} left, {asked} asked{least}{ends}")


class ConstraintExit(Outcome):
    """A constraint ends the attempt gracefully: this model call was not started, and no later one will be.

    Do not catch it, or catch it and return the work so far: what the attempt kept is reviewed in both cases.
    """

    def __init__(self, constraint: str, reason: str) -> None:
        self.constraint = constraint
        self.reason = reason
        super().__init__(f"the constraint {constraint!r} ended the attempt: {reason}")


class TurnEnded(Outcome):
    """A tool ended the attempt (`Tool.ends`): no model is called after it. Do not catch it.

    `call` is the call with the arguments that the tool got, `text` its result, and `answers` says that the result is
    the attempt's answer.
    """

    def __init__(self, call: ToolCall, text: str, *, answers: bool) -> None:
        self.call = call
        self.text = text
        self.answers = answers
        super().__init__(f"the tool {call.name!r} ended the turn")

    def written(self, before: str) -> str:
        """Return the text of an attempt whose member had written `before`."""
        return self.text if self.answers or not before.strip() else before


class GuardrailDenied(Outcome):
    """A guardrail refused a model call or its reply.

    At `pre_model` the call was not made; at `post_model` the reply is charged and not used.
    """

    def __init__(self, policy: str, phase: str, reason: str) -> None:
        self.policy = policy
        self.phase = phase
        self.reason = reason
        super().__init__(f"the guardrail {policy!r} denied at {phase}: {reason}")


ModelErrorKind = Literal[
    "rate_limited",
    "overloaded",
    "timeout",
    "connection",
    "context_length",
    "content_filter",
    "auth",
    "bad_request",
    "unknown",
]
"""Why a model call failed. The first four pass by themselves; `auth` is also an account without credit."""

MODEL_ERRORS: Final[frozenset[ModelErrorKind]] = frozenset(get_args(ModelErrorKind))
MET_AGAIN: Final[frozenset[ModelErrorKind]] = frozenset({"context_length", "content_filter", "auth", "bad_request"})
"""Kinds of errors that the same member meets again, on the same model, with the same task."""


class ModelCallError(Outcome):
    """A provider did not answer a call.

    `retry_after` is the wait in seconds that the provider asks for, or None. `unspent` is True if it provably did no
    work: it answered with a refusal, or was never reached; then nothing is charged, else the hold. `partial` is the
    text that came before a stream broke off.
    """

    def __init__(
        self, kind: ModelErrorKind, model: str, why: str, *, retry_after: float | None = None, unspent: bool = False
    ) -> None:
        if kind not in MODEL_ERRORS:
            from kairo_team._util.mistakes import did_you_mean  # imported only after a mistake

            meant = did_you_mean(str(kind), MODEL_ERRORS)
            raise ValueError(f"ModelCallError: the kind {kind!r} is unknown; {meant}there are {known(MODEL_ERRORS)}")
        self.kind: ModelErrorKind = kind
        self.model = model
        self.why = why
        self.retry_after = retry_after
        self.unspent = unspent
        self.partial = ""
        super().__init__(f"model {model!r} did not answer ({kind}): {why}")


def is_met_again(error: BaseException | None, last: ModelCallError | None = None, deep: int = 20) -> bool:
    """Return whether a model refused a call, or the cause of the error, and will refuse the same call again.

    That is a `ModelCallError` of a kind in `MET_AGAIN`, a group of such errors alone, or an error raised from one, at
    most `deep` errors before. `last` is the error of the last call, which a wrapper may have replaced by its cause.
    """
    if error is None or not deep:  # causes may form a circle
        return False
    if last is not None and error is last.__cause__:
        error = last
    if isinstance(error, ModelCallError):
        return error.kind in MET_AGAIN
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(is_met_again(one, last, deep - 1) for one in group.exceptions)
    return is_met_again(error.__cause__, last, deep - 1)


class NoRecord(ModelCallError, LookupError):
    """A replayed call has no record, or its record does not fit: nothing was sent, and nothing is charged."""

    def __init__(self, model: str, why: str) -> None:
        super().__init__("bad_request", model, why, unspent=True)


class UnpricedModel(Outcome):
    """A model without a known price was about to be called under a dollar limit: refused, nothing was spent.

    `library` is True when the price library is installed.
    """

    def __init__(self, model: str, *, library: bool = True) -> None:
        self.model = model
        install = "" if library else "install the price library (pip install 'kairo-team[prices]'), "
        super().__init__(
            f"the price of model {model!r} is unknown and the budget limits dollars: {install}give its price, "
            f"Runtime(prices={{{model!r}: kt.Price(input=..., output=...)}}), or let it count as free, "
            "BudgetPolicy(allow_unpriced=True)"
        )


class NoPlan(Outcome):
    """A model returned no plan that can be run; `problems` holds one sentence for each fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"the planner made no plan that can be run: {first_of(self.problems)}")


class InvalidReply(Outcome):
    """A text is not the structured data that it must be."""

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        super().__init__(f"the artifact is not a valid {kind!r}: {why}")


class InvalidJudgement(Outcome):
    """A judge's reply cannot be read: it is not the one JSON object it must be, or an answer is not allowed."""


_UNFIT: Final = ", also about a text of the library's own: it is not fit to judge, name a larger model"


class FailedControl(Outcome):
    """A judge answered a statement wrongly whose right answer is known: none of its answers counts."""

    def __init__(self, suspected: str | None = None, *, fit: bool = True) -> None:
        """Take the suspected reason; `fit` is False for a judge that is wrong about any text."""
        self.suspected = suspected
        """How a text seems to have instructed the judge; None: nothing suggests that."""
        reason = f": {suspected}" if suspected else "" if fit else _UNFIT
        super().__init__(f"the judge gave a wrong answer to a statement whose right answer is known{reason}")


class TeamFailed(Outcome):
    """The run did not complete; `result` holds everything it returned."""

    def __init__(self, result: TeamResult) -> None:
        self.result = result
        reason = f": {result.error}" if result.error else ""
        super().__init__(f"run {result.run_id!r} ended {result.status.value}{reason}")


class NoAnswer(Outcome):
    """A task, or an agent alone, has no accepted answer; the message says how it ended."""

    def __init__(self, who: str, end: str, why: str | None) -> None:
        self.end = end
        """The status in which it ended."""
        super().__init__(f"{who} has no answer: it ended {end}{f', {why}' if why else ''}")


class BadOutput(ContractBreach, TypeError):
    """A member returned something that is not an output."""

    def __init__(self, member: str, why: str) -> None:
        self.member = member
        super().__init__(f"member {member!r} {why}")


class BadExit(ContractBreach):
    """A plug-in raised what it must not raise: `SystemExit`, or a cancellation that was not requested.

    `what` is the text of the raised error, which is also the `__cause__`.
    """

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        super().__init__(f"{what}: {why}")


class IllegalMove(ContractBreach, RuntimeError):
    """A run or task asked for a transition that its table does not have."""

    def __init__(self, name: str, history: Sequence[str], to: str) -> None:
        self.history = tuple(history)
        super().__init__(f"{name!r} cannot go from {history[-1]} to {to}; its history: {' -> '.join(history)}")


def innermost(error: Exception) -> Exception:
    """Unwrap what task groups wrapped: groups of one, and groups of nothing but halts and shortages."""
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    first = innermost(group.exceptions[0])
    others = [innermost(other) for other in group.exceptions[1:]]
    only_budget = all(isinstance(leaf, HaltError | InsufficientBudget) for leaf in (first, *others))
    return first if only_budget or not others else group  # calls in parallel meet a limit together


def kinds_of(kind: type[BaseException]) -> tuple[str, ...]:
    """Return the names of an error's class and its base classes, most derived first: strings can be recorded."""
    return tuple(f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__ if issubclass(one, BaseException))
