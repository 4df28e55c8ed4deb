"""`Runtime`: what runs share - subscribers, models, prices - and the handles to cancel them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

from kairo_team.errors import RunExists, RunFinished, RunNotFound
from kairo_team.governance.governor import Governor
from kairo_team.governance.pricing import PriceBook
from kairo_team.journal import MemoryJournal
from kairo_team.models.admission import CallRules
from kairo_team.models.limits import ModelLimits
from kairo_team.models.resolver import ModelResolver
from kairo_team.models.retries import check_retry

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.contracts import ChatModel, Journal, Subscriber
    from kairo_team.governance.pricing import Price
    from kairo_team.models.limits import ModelLimit
    from kairo_team.models.retries import ModelRetry


class Run:
    """A handle on a run in progress."""

    __slots__ = ("_cancel", "run_id")

    def __init__(self, run_id: str, cancel: Callable[[str], None]) -> None:
        self.run_id = run_id
        self._cancel: Callable[[str], None] | None = cancel

    def cancel(self, reason: str = "the run was cancelled") -> None:
        """Kill the run: in-flight work is interrupted, what was kept comes back. From any thread or signal handler.

        Raises `RunFinished` once it has ended.
        """
        cancel = self._cancel
        if cancel is None:
            raise RunFinished(self.run_id)
        cancel(reason)

    def end(self) -> None:
        """Let go of the run: it has ended."""
        self._cancel = None

    def __repr__(self) -> str:
        return f"<Run {self.run_id!r} {'running' if self._cancel else 'ended'}>"


class Runs(Mapping[str, Run]):
    """The runs in progress, by run id; iterates over those, and remembers the ids of the ended ones."""

    def __init__(self) -> None:
        self._active: dict[str, Run] = {}
        self._ended: set[str] = set()

    def __getitem__(self, run_id: str) -> Run:
        """Return the run of that id; raises `RunFinished` or `RunNotFound`."""
        if run_id in self._active:
            return self._active[run_id]
        if run_id in self._ended:
            raise RunFinished(run_id)
        raise RunNotFound(run_id, self._active)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._active))

    def __len__(self) -> int:
        return len(self._active)

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._active

    def check_new(self, run_id: str) -> None:
        """Raise `RunExists` for an id that is running or has run."""
        if run_id in self._active or run_id in self._ended:
            raise RunExists(run_id)

    def enter(self, run: Run) -> None:
        """Register a run."""
        self.check_new(run.run_id)
        self._active[run.run_id] = run

    def leave(self, run_id: str) -> None:
        """Forget a run that has ended, but for its id."""
        self._active.pop(run_id).end()
        self._ended.add(run_id)


class Runtime:
    """What the runs of one program share. Nothing of one run leaks into another."""

    def __init__(
        self,
        *,
        subscribers: Sequence[Subscriber] = (),
        models: Mapping[str, str | ChatModel] | None = None,
        prices: Mapping[str, Price] | None = None,
        budget: Budget | None = None,
        secrets: Iterable[str] = (),
        model_limits: Mapping[str, ModelLimit] | None = None,
        model_retry: ModelRetry | None = None,
    ) -> None:
        """Make a runtime.

        `subscribers` get every event of every run. `models` replaces models by name or pattern, such as
        `{"openai:*": another_model}`. `prices` says what models cost, in the same way, such as
        `{"openai:gpt-5-mini": Price(0.25, 2)}`; it goes before every other price. `budget` is shared by all
        runs: each is carved from it when it begins, its seconds begin now. `secrets` are masked in what tools
        return. `model_limits` says how many calls of a model may be made at once and begun in a minute, such as
        `{"openai:*": ModelLimit(concurrency=8, per_minute=500)}`, for all runs together. `model_retry` says which
        failed model calls are tried again; None is `ModelRetry()`, `ModelRetry(retries=0)` is none.
        """
        unfit = [subscriber for subscriber in subscribers if not callable(subscriber)]
        if unfit:
            raise ValueError(f"a subscriber is a function that takes an event, not {unfit[0]!r}")
        self.subscribers = tuple(subscribers)
        self.models = ModelResolver(models)
        self.prices = PriceBook(prices)
        self.governor = None if budget is None else Governor(budget, name="runtime")
        """What every run is carved from; None: each run has just its own budget."""
        self.secrets = _check_secrets(secrets)
        self.call_rules = CallRules(check_retry(model_retry), ModelLimits(model_limits))
        self.runs = Runs()

    def beneath(self, governor: Governor) -> Runtime:
        """Return a runtime like this one whose runs are carved from `governor`: a team inside a task of another."""
        nested = copy(self)
        nested.governor = governor
        return nested

    def journal_for(self, run_id: str) -> Journal:
        """Return where the run's steps are recorded: an internal seam without a promise."""
        return MemoryJournal()


def _check_secrets(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return secrets, the longest first, so that one inside another leaves nothing of itself."""
    given = [secrets] if isinstance(secrets, str) else list(secrets)
    if isinstance(secrets, str) or not all(isinstance(one, str) and one.strip() for one in given):
        raise ValueError("Runtime.secrets is a list of strings that are not blank")
    return tuple(sorted(set(given), key=lambda one: (-len(one), one)))
