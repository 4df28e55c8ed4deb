"""Gates, which ask a person: `ConsoleGate`, `CallbackGate`, `DeferGate`, `JournalGate`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

import anyio

from kairo_team._util.frozen import known_arguments
from kairo_team._util.plugin_shapes import check_function, is_async
from kairo_team._util.terminal import TERMINAL, Terminal, barred, clean
from kairo_team._util.threads import run_in_thread
from kairo_team.human import HumanDecision, HumanRequest

if TYPE_CHECKING:
    from kairo_team.contracts import Journal

Answer = HumanDecision | bool | None
"""A decision; True approves, False rejects, None is silence."""

_LABELS: Final = {"approve": "approve:", "revise": "revise:", "reject": "reject:", "silence": "no answer:"}

_LOOK_EVERY: Final = 0.2
"""Seconds between two looks for an answer in a journal."""

_SHOWN: Final = 4_000
"""Characters of a question's subject that the console shows."""


def _check_timeout(name: str, timeout: float | None) -> float | None:
    if timeout is not None and not timeout > 0:
        raise ValueError(f"{name}.timeout must be seconds > 0, or None to wait for ever, not {timeout!r}")
    return timeout


class DeferGate:
    """Defers every question: the run ends SUSPENDED, with everything done that does not depend on an answer.

    Answer with `Runtime.answer`, then continue with `Runtime.resume`.
    """

    async def decide(self, question: HumanRequest) -> HumanDecision:
        """Defer the question."""
        return HumanDecision.defer()

    def __repr__(self) -> str:
        return "DeferGate()"


@known_arguments
class CallbackGate:
    """Asks a function, sync or async. A sync function runs in a thread of its own, so it may block.

    The function returns a `HumanDecision`, True to approve, False to reject, or None for silence. After `timeout`
    seconds the answer is silence too.
    """

    def __init__(
        self, decide: Callable[[HumanRequest], Answer | Awaitable[Answer]], *, timeout: float | None = None
    ) -> None:
        if not callable(decide):
            raise ValueError(f"CallbackGate takes a function of a question, not {decide!r}")
        check_function("CallbackGate", decide, "decide(question)")
        self._decide: Any = decide
        self._timeout = _check_timeout("CallbackGate", timeout)

    async def decide(self, question: HumanRequest) -> HumanDecision | None:
        """Ask the function."""
        with anyio.move_on_after(self._timeout):
            answer: Any
            if is_async(self._decide):
                answer = await self._decide(question)
            else:
                answer = await run_in_thread(self._decide, question)
                if inspect.isawaitable(answer):
                    answer = await answer
            if answer is True:  # not by truth: the text "no" must not approve
                return HumanDecision.approve()
            if answer is False:
                return HumanDecision.reject()
            if answer is None or isinstance(answer, HumanDecision):
                return answer
            raise TypeError(f"the callback must return a HumanDecision, True, False or None, not {answer!r:.200}")
        return None

    def __repr__(self) -> str:
        return f"CallbackGate({self._decide!r})"


@known_arguments
class ConsoleGate:
    """Asks on the terminal, one question at a time: writes to stderr, reads a line from stdin.

    After an empty or unreadable line it asks again. The end of the input counts as silence, and so do `timeout` seconds
    without an answer. Each line of the subject has a bar (`|`) in front. A live view of the run is hidden while a
    question is open.
    """

    def __init__(
        self, *, timeout: float | None = None, source: TextIO | None = None, sink: TextIO | None = None
    ) -> None:
        """Make the gate; `source` and `sink` replace stdin and stderr."""
        self._timeout = _check_timeout("ConsoleGate", timeout)
        self._terminal = TERMINAL if source is None and sink is None else Terminal(source, sink)

    async def decide(self, question: HumanRequest) -> HumanDecision | None:
        """Ask, and wait for a valid answer."""
        terminal = self._terminal
        async with terminal.turn():
            try:
                with anyio.move_on_after(self._timeout):
                    return await _converse(terminal, question)
            except Exception:
                raise
            except BaseException:  # cancelled: the prompt is still on the terminal
                _give_up(terminal)
                raise
            _give_up(terminal)
        return None

    def __repr__(self) -> str:
        return "ConsoleGate()"


@known_arguments
class JournalGate:
    """Waits, during the run, for an answer that any process gives: `journal.answer` or `kairo answer`.

    `journal` is the runtime's. After `timeout` seconds the answer is silence. If the answer is to defer, the run
    finishes the work that does not depend on it and ends SUSPENDED. If the process dies while it waits, the question
    stays open, and an answer that was given meanwhile is used when the run resumes.
    """

    def __init__(self, journal: Journal, *, timeout: float | None = None) -> None:
        if not callable(getattr(journal, "answer_to", None)):
            raise ValueError(f"JournalGate takes a journal, such as kt.SqliteJournal('runs.db'), not {journal!r}")
        self._journal = journal
        self._timeout = _check_timeout("JournalGate", timeout)

    async def decide(self, question: HumanRequest) -> HumanDecision | None:
        """Ask, and wait for the answer; raises `RunNotFound` for a run that is not in the journal."""
        await run_in_thread(self._journal.ask, question)
        with anyio.move_on_after(self._timeout):
            while True:
                decision = await run_in_thread(self._journal.answer_to, question)
                if decision is not None:
                    return decision
                await anyio.sleep(_LOOK_EVERY)
        return None

    def __repr__(self) -> str:
        return f"JournalGate({self._journal!r})"


def _give_up(terminal: Terminal) -> None:
    with suppress(OSError, ValueError):  # a `ValueError`: the stream is closed
        terminal.write("\n[an answer is no longer needed]")


async def _converse(terminal: Terminal, question: HumanRequest) -> HumanDecision | None:
    """Show the question and read lines until one is an answer; None at the end of the input."""
    _show(terminal, question)
    while True:
        terminal.write("[a]pprove, [r]evise: what to change, re[j]ect, [d]efer > ", end="")
        line = await terminal.read()
        if not line:
            terminal.write("")
            return None
        if (decision := read_answer(line)) is not None:
            return decision
        terminal.write(f"{line.strip()!r} is not an answer; type a, j, d, or r and what to change.")


def _show(terminal: Terminal, question: HumanRequest) -> None:
    """Show question, subject and consequences."""
    # Text from elsewhere never starts at the margin, so that it cannot look like a prompt of the gate.
    terminal.write("\n" + _indent_rest(question.text))
    if question.subject:
        more = len(question.subject) - _SHOWN
        terminal.write(barred(question.subject[:_SHOWN]))
        if more > 0:
            terminal.write(f"  [{more} more characters]")
    for finding in question.findings:
        wanted = f" (wanted: {finding.expected})" if finding.expected else ""
        terminal.write(_indent_rest(f"  - {finding.observed or finding.id}{wanted}"))
    for answer, label in _LABELS.items():
        if answer in question.consequences:
            terminal.write(_indent_rest(f"  {label:10} {question.consequences[answer]}"))


def _indent_rest(text: str) -> str:
    return clean(text).replace("\n", "\n    ")


def read_answer(line: str) -> HumanDecision | None:
    """Read a typed answer, such as `a`, `reject: too long` or `r shorter, please`; None for anything else."""
    word, _, rest = line.strip().replace(":", " ", 1).partition(" ")
    rest = rest.strip()
    match word.lower():
        case "a" | "approve" | "y" | "yes":
            return HumanDecision.approve(rest)
        case "j" | "reject" | "n" | "no":
            return HumanDecision.reject(rest)
        case "d" | "defer":
            return HumanDecision.defer()
        case "r" | "revise" if rest:
            return HumanDecision.revise(rest)
        case _:
            return None
