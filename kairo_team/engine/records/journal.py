"""The journal in memory, and the place in a run where work is done: recorded steps are named by it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

if TYPE_CHECKING:
    from kairo_team.contracts import Journal, MemberContext
    from kairo_team.errors import JournalError
    from kairo_team.results import Attempt
    from kairo_team.tasks import Assignment
    from kairo_team.team import Team


class MemoryRecords(dict[str, object]):
    """A run's recorded steps in the order they were made; give `records` of an earlier run to replay it."""

    __slots__ = ()
    durable: ClassVar[bool] = False

    put = dict[str, object].__setitem__

    @property
    def records(self) -> Mapping[str, object]:
        """A live, read-only view: key to value."""
        return MappingProxyType(self)


class Served:
    """What a journal asks of the session that it serves: see `RunJournal.serve`.

    A run that waits for a person keeps its journal for days. Of a session that has ended, the journal keeps only where
    it ended.
    """

    def __init__(
        self,
        progress: Callable[[], tuple[float, int]],
        cancel: Callable[[str], object],
        lose: Callable[[JournalError], object],
        run: object,
        post: Callable[[Callable[[], object]], object],
    ) -> None:
        """`post` calls a function in the event loop of the session's `run`; `RuntimeError` after its end."""
        self._progress = progress
        self._cancel: Callable[[str], object] | None = cancel
        self._lose: Callable[[JournalError], object] | None = lose
        self._run: Any = run
        self._post = post

    def progress(self) -> tuple[float, int]:
        """Return the seconds that the run has worked, and the number of its last event."""
        return self._progress()

    def cancel(self, reason: str) -> None:
        """Cancel the run, unless its session has ended; from any thread."""
        cancel = self._cancel  # read once: the session may end meanwhile
        if cancel is not None:
            cancel(reason)

    def lose(self, error: JournalError) -> None:
        """End the run, whose next steps cannot be recorded, unless its session has ended; from any thread."""
        lose = self._lose
        if lose is not None:
            lose(error)

    def obey(self, apply: Callable[[Any], object], answer: Callable[[str], object]) -> None:
        """Apply what another process asks to the run, and answer "", or why nothing was done; from any thread."""
        with suppress(RuntimeError):  # the event loop is gone, and the run with it
            self._post(partial(self._apply, apply, answer))

    def _apply(self, apply: Callable[[Any], object], answer: Callable[[str], object]) -> None:
        if self._run is None:  # the session has ended meanwhile
            answer("the run has ended")
            return
        try:
            apply(self._run)
        except Exception as error:  # noqa: BLE001 - the event loop calls this, and an error would end it
            answer(str(error) or type(error).__name__)
        else:
            answer("")

    def end(self) -> None:
        """Let go of the session."""
        reached = self._progress()
        self._progress, self._cancel, self._lose, self._run = lambda: reached, None, None, None


class Body(Protocol):
    """The body of a task, as seen by code that runs in it."""

    @property
    def place(self) -> str:
        """The key under which the body records its work."""
        ...


_HERE: Final[ContextVar[tuple[Body | None, str | None]]] = ContextVar("kairo_team_place", default=(None, "run"))
"""The body that runs here, and the step inside it; without a step, the body itself."""


def enter_body(body: Body) -> None:
    """Enter a task's body, until another one is entered or the context ends."""
    _HERE.set((body, None))


def body_here() -> Body | None:
    """Return the body that runs here; None outside of any."""
    return _HERE.get()[0]


class within:  # noqa: N801 - it reads as a verb's complement: `with within(step)`
    """Do the work of the block as part of this step."""

    __slots__ = ("_step", "_token")

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        self._token = _HERE.set((_HERE.get()[0], self._step))

    def __exit__(self, *_raised: object) -> None:
        _HERE.reset(self._token)


class Places(dict[str, int]):
    """Names pieces of work in one run by their place, and numbers them there."""

    __slots__ = ()

    def name(self, purpose: str) -> str:
        """Name the next piece of work for a purpose, here."""
        body, step = _HERE.get()
        name = f"{purpose}:{body.place if step is None and body is not None else step}"
        self[name] = number = self.get(name, 0) + 1
        return f"{name}:{number}"


class Engine(Protocol):
    """Makes the attempts of runs elsewhere, such as on other machines: `kairo_team.Cluster`.

    An internal seam without a promise.
    """

    @property
    def journal(self) -> Journal:
        """Where the runs are recorded; the processes that make attempts read and write it too."""
        ...

    def attempt(
        self, team: Team, assignment: Assignment, context: MemberContext, number: int, timeout: float | None
    ) -> Coroutine[Any, Any, Attempt]:
        """Have a member of the team make an attempt under the budget of its context; raises only cancellation.

        `timeout` is in seconds.
        """
        ...
