"""What happens when an attempt fails: `FailurePolicy`, and the retries that follow from it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from kairo_team._util.frozen import check_kind, known_arguments
from kairo_team.budget import HaltReason, check_count, check_seconds
from kairo_team.errors import kinds_of
from kairo_team.results import RepeatWrites

if TYPE_CHECKING:
    from kairo_team.engine.run.team_run import TeamRun
    from kairo_team.results import Attempt
    from kairo_team.tasks import Task

Errors = type[BaseException] | tuple[type[BaseException], ...]
"""An exception class, or several."""


@known_arguments
@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What follows a failed attempt: retries on the same member, then other members, then the task is FAILED.

    No further attempt is made once a constraint has ended one in an orderly way with nothing to review, a person has
    ended one, or an emergency has stopped one. Never retried on the same member: a halt, a block by a guardrail, a
    model without a price under a dollar limit, what a model refuses again (a `ModelCallError` of the kind
    context_length, content_filter, auth or bad_request, and what was raised from one), and a member that returns None
    or a Python value that is not an output. Retried: any other exception, an attempt that is late (`TimeoutError`), an
    empty text, and a reply that is not valid data of the task's output type (both `kairo_team.errors.InvalidReply`):
    the next may be. `retry_on` and `never_on` narrow that down.
    """

    retries: int = 2
    """Tries after the first one, counted from 0 for every artifact requested; `Task.retries` overrides it."""
    backoff: float = 1.0
    """Seconds before the first retry; doubled for each later one."""
    backoff_max: float = 30.0
    """Most seconds before a retry."""
    try_others: bool = True
    """Give the task to the other members that may do it, one after the other, before it fails."""
    abort_team: bool = False
    """End the whole run as FAILED when a task fails and no new plan replaces the tasks that have not started."""
    retry_on: Errors | None = None
    """Exceptions after which the same member tries again: a class, such as `ConnectionError`, or several; None: all."""
    never_on: Errors = ()
    """Exceptions after which the same member does not try again, even if in `retry_on`; other members still try."""
    repeat_writes: RepeatWrites = "ask"
    """Whether the next attempt at the same artifact, by any member, may repeat a tool call of those before it.

    Each attempt sees what those before it did with tools (`Assignment.done`). With "ask", the run's gate decides about
    a call with the same arguments as an earlier one that succeeded, or whose end is unknown; tools that only read or
    are idempotent are exempt. Without a gate, or an answer, the call is not made, and the member gets an error with the
    earlier result. With "allow", the call is repeated."""

    def __post_init__(self) -> None:
        check_count("FailurePolicy.retries", self.retries)
        check_seconds("FailurePolicy.backoff", self.backoff)
        check_seconds("FailurePolicy.backoff_max", self.backoff_max)
        check_kind("FailurePolicy.try_others", self.try_others, bool)
        check_kind("FailurePolicy.abort_team", self.abort_team, bool)
        _check_errors("retry_on", () if self.retry_on is None else self.retry_on)
        _check_errors("never_on", self.never_on)
        if self.repeat_writes not in get_args(RepeatWrites):
            raise ValueError(f'FailurePolicy.repeat_writes must be "ask" or "allow", not {self.repeat_writes!r}')

    def tries_again(self, kinds: Sequence[str]) -> bool:
        """Return whether such a failed attempt is repeated; `kinds` as in `Attempt.kinds`."""
        if not _names(self.never_on).isdisjoint(kinds):
            return False
        return self.retry_on is None or not _names(self.retry_on).isdisjoint(kinds)

    def delay(self, retry: int, seed: str) -> float:
        """Return the seconds before retry number `retry` (from 1): exponential, with jitter down to 50 %.

        The jitter is a function of `seed`, not random, so that a replayed run waits the same.
        """
        full = min(self.backoff * 2.0 ** min(retry - 1, 60), self.backoff_max)
        chance = int.from_bytes(hashlib.sha256(f"{seed}:{retry}".encode()).digest()[:8], "big") / 2**64
        return full * (0.5 + 0.5 * chance)


class Retries:
    """Repeats the tasks of one run after a failed attempt: with the same member, then with others."""

    def __init__(
        self, run: TeamRun, policy: FailurePolicy, others: Callable[[Task], Sequence[str]] | None = None
    ) -> None:
        """Take a function for the other members that may do a task; None: all that are able to."""
        self._run = run
        self._policy = policy
        self._others = others or run.others

    async def until_made(self, task: Task, attempt: Attempt, again: Callable[[], Awaitable[Attempt]]) -> Attempt:
        """Retry after a failed attempt; return the first that succeeded, or the last one with its error."""
        others = None
        while True:
            attempt = await self._with_same_member(task, attempt, again)
            if attempt.error is None or not self._policy.try_others or await self._is_over(task, attempt):
                return attempt
            others = list(self._others(task)) if others is None else others
            if not await self._hand_over(task, others):
                return attempt
            attempt = await again()

    async def _with_same_member(self, task: Task, attempt: Attempt, again: Callable[[], Awaitable[Attempt]]) -> Attempt:
        """Let the member that made an attempt try again, as often as its task or the policy allows."""
        policy, retry = self._policy, 0
        retries = policy.retries if task.retries is None else task.retries
        while attempt.error is not None and attempt.interrupted is None and not attempt.over:
            if attempt.halt is None or not await self._run.top_up(task, attempt):
                if attempt.final or retry >= retries or not policy.tries_again(attempt.kinds):
                    break
                retry += 1
                seed = f"{self._run.request.run_id}:{task.id}:{attempt.number}"
                await self._run.pause(task, policy.delay(retry, seed))
            attempt = await again()
        return attempt

    async def _hand_over(self, task: Task, others: list[str]) -> bool:
        """Give the task to the next of the others that has budget for it; remove each tried one from the list."""
        while others:
            if await self._run.hand_over(task, others.pop(0)):
                return True
        return False

    async def _is_over(self, task: Task, attempt: Attempt) -> bool:
        """Return whether no other member tries: a person or a constraint ended it, or the team has nothing left."""
        ended = attempt.over or attempt.interrupted is not None or attempt.halt is HaltReason.EMERGENCY_STOP
        return ended or await self._run.is_over(task)


def _several(errors: Errors) -> tuple[type[BaseException], ...]:
    return errors if isinstance(errors, tuple) else (errors,)


def _names(errors: Errors) -> frozenset[str]:
    """Return the names of exceptions as in `Attempt.kinds`."""
    return frozenset(kinds_of(one)[0] for one in _several(errors))


def _check_errors(name: str, errors: Any) -> None:
    unfit = [one for one in _several(errors) if not (isinstance(one, type) and issubclass(one, BaseException))]
    if unfit:
        raise ValueError(
            f"FailurePolicy.{name} must be an exception class or a tuple of them, such as (ConnectionError, "
            f"TimeoutError), not {errors!r}"
        )
