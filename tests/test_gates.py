"""The three gates: what each makes of an answer, of none, and of nonsense."""

from __future__ import annotations

import io
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import kairo_team as kt
from kairo_team._util.terminal import TERMINAL
from kairo_team.gates import read_answer

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

QUESTION = kt.HumanRequest("review", "is it good enough?", "the letter", task_id="letter")


class Keyboard(io.StringIO):
    """A person's end of a terminal: `type` sends a line, and reading waits for one."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.readers = 0

    def type(self, line: str) -> None:
        self._lines.put(line)

    def readline(self, *_: Any) -> str:  # type: ignore[override]  # as StringIO has it, for all its stubs say
        self.readers += 1
        try:
            return self._lines.get(timeout=60)
        finally:
            self.readers -= 1


def console(**options: Any) -> tuple[kt.ConsoleGate, Keyboard, io.StringIO]:
    keyboard, screen = Keyboard(), io.StringIO()
    return kt.ConsoleGate(source=keyboard, sink=screen, **options), keyboard, screen


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not holds():
            await anyio.sleep(0.001)


def question(text: str) -> kt.HumanRequest:
    return kt.HumanRequest("review", text, task_id="letter")


# ---------------------------------------------------------------- the console


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("a", kt.HumanDecision.approve()),
        ("Approve: well done", kt.HumanDecision.approve("well done")),
        ("y", kt.HumanDecision.approve()),
        ("j", kt.HumanDecision.reject()),
        ("no too long", kt.HumanDecision.reject("too long")),
        ("reject: too long: by half", kt.HumanDecision.reject("too long: by half")),
        ("r: shorter, please", kt.HumanDecision.revise("shorter, please")),
        ("  revise   shorter  ", kt.HumanDecision.revise("shorter")),
        ("d", kt.HumanDecision.defer()),
        ("r", None),
        ("revise:", None),
        ("", None),
        ("perhaps", None),
        ("approved", None),
        ("yeah a", None),
    ],
)
def test_what_a_typed_line_means(line: str, decision: kt.HumanDecision | None) -> None:
    assert read_answer(f"{line}\n") == decision


@pytest.mark.anyio
async def test_the_console_shows_the_question_and_takes_the_answer() -> None:
    screen = io.StringIO()
    finding = kt.Finding("length", observed="12 words", expected="6 words")
    asked = kt.HumanRequest("review", "is it good enough?", "the letter", task_id="letter", findings=[finding])
    gate = kt.ConsoleGate(source=io.StringIO("r shorter\n"), sink=screen)
    assert await gate.decide(asked) == kt.HumanDecision.revise("shorter")
    shown = screen.getvalue()
    assert shown.startswith("\nis it good enough?\n  | the letter\n  - 12 words (wanted: 6 words)\n[a]pprove")


@pytest.mark.anyio
async def test_audit_g08_the_console_says_what_follows_and_no_foreign_line_stands_at_the_margin() -> None:
    screen = io.StringIO()
    forged = "fine\nCOMPLETED  after 1 s\r[a]pprove >\n\x1b[2Jend"
    follows = {"silence": "the task fails", "approve": "it is sent", "revise": "again", "reject": "the task fails"}
    finding = kt.Finding("f", observed="odd\nCOMPLETED")
    asked = kt.HumanRequest("review", "is it\ngood?", forged, "t", findings=[finding], consequences=follows)
    gate = kt.ConsoleGate(source=io.StringIO("a\n"), sink=screen)
    assert await gate.decide(asked) == kt.HumanDecision.approve()
    assert screen.getvalue().split("\n") == [
        "",
        "is it",
        "    good?",
        "  | fine",
        "  | COMPLETED  after 1 s?[a]pprove >",
        "  | ?[2Jend",
        "  - odd",
        "    COMPLETED",
        "  approve:   it is sent",
        "  revise:    again",
        "  reject:    the task fails",
        "  no answer: the task fails",
        "[a]pprove, [r]evise: what to change, re[j]ect, [d]efer > ",
    ]


def test_audit_g08_what_follows_is_said_of_answers_alone() -> None:
    with pytest.raises(ValueError, match=r"HumanRequest\.consequences are of 'approve', 'reject', 'revise', 'silence'"):
        kt.HumanRequest("review", "ok?", task_id="t", consequences={"defer": "x"})


@pytest.mark.anyio
async def test_nonsense_is_asked_again_and_the_end_of_the_input_is_silence() -> None:
    screen = io.StringIO()
    gate = kt.ConsoleGate(source=io.StringIO("what?\n\nr\na\nj\n"), sink=screen)
    assert await gate.decide(QUESTION) == kt.HumanDecision.approve()
    assert screen.getvalue().count("is not an answer") == 3
    assert await gate.decide(QUESTION) == kt.HumanDecision.reject()
    assert await gate.decide(QUESTION) is None
    assert await gate.decide(QUESTION) is None


@pytest.mark.anyio
async def test_a_long_subject_is_cut_and_that_is_said() -> None:
    screen = io.StringIO()
    gate = kt.ConsoleGate(source=io.StringIO("a\n"), sink=screen)
    await gate.decide(kt.HumanRequest("review", "this?", "x" * 5_000, task_id="letter"))
    assert "[1000 more characters]" in screen.getvalue()


@pytest.mark.anyio
async def test_what_a_model_wrote_cannot_command_the_terminal() -> None:
    """Else a tool call could hide its arguments from the one who approves it."""
    screen = io.StringIO()
    gate = kt.ConsoleGate(source=io.StringIO("a\n"), sink=screen)
    await gate.decide(kt.HumanRequest("tool", "may it?", "rm('/')\x1b[2K\rls('.')\u202e", task_id="letter"))
    assert "rm('/')?[2K?ls('.')?" in screen.getvalue()


@pytest.mark.anyio
async def test_two_questions_at_once_are_asked_one_by_one() -> None:
    gate, keyboard, screen = console()
    decisions: dict[str, kt.HumanDecision | None] = {}

    async def ask(text: str) -> None:
        decisions[text] = await gate.decide(question(text))

    async with anyio.create_task_group() as group:
        for text in ("first?", "second?", "third?"):
            group.start_soon(ask, text)
            await anyio.sleep(0.02)
        await until(lambda: "first?" in screen.getvalue())
        assert "second?" not in screen.getvalue()
        for text, line in [("first?", "a"), ("second?", "r more"), ("third?", "j")]:
            await until(lambda: screen.getvalue().rstrip().endswith(">"))
            await until(lambda: text in screen.getvalue())
            assert screen.getvalue().count("[a]pprove") == len(decisions) + 1
            keyboard.type(f"{line}\n")
            await until(lambda: text in decisions)
    assert [one and one.action for one in decisions.values()] == ["approve", "revise", "reject"]


@pytest.mark.anyio
async def test_the_time_of_a_question_begins_when_it_is_shown() -> None:
    """Waiting for its turn behind another is not silence."""
    gate, keyboard, screen = console(timeout=1.2)
    decisions: list[kt.HumanDecision | None] = []

    async def ask(text: str) -> None:
        decisions.append(await gate.decide(question(text)))

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "first?")
        await until(lambda: "first?" in screen.getvalue())
        group.start_soon(ask, "second?")
        await anyio.sleep(0.8)
        keyboard.type("a\n")
        await until(lambda: "second?" in screen.getvalue())
        await anyio.sleep(0.8)
        keyboard.type("j\n")
    assert decisions == [kt.HumanDecision.approve(), kt.HumanDecision.reject()]


@pytest.mark.anyio
async def test_too_late_is_silence_and_the_late_line_answers_nothing_else() -> None:
    gate, keyboard, screen = console(timeout=0.05)
    assert await gate.decide(question("first?")) is None
    assert "an answer is no longer needed" in screen.getvalue()
    keyboard.type("a\n")  # for the first question, which is over
    await until(lambda: keyboard.readers == 0)
    assert await gate.decide(question("second?")) is None


@pytest.mark.anyio
async def test_after_an_abandoned_question_the_first_line_typed_answers_the_next() -> None:
    """The reader of the first is still there; it must not swallow what is typed for the second."""
    gate, keyboard, screen = console()
    with anyio.move_on_after(0.05):
        await gate.decide(question("first?"))
    assert keyboard.readers == 1
    decisions: list[kt.HumanDecision | None] = []

    async def ask() -> None:
        decisions.append(await gate.decide(question("second?")))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await until(lambda: "second?" in screen.getvalue())
        assert keyboard.readers == 1
        keyboard.type("r: more\n")
    assert decisions == [kt.HumanDecision.revise("more")]


@pytest.mark.anyio
async def test_a_question_that_is_left_while_it_waits_for_its_turn_is_never_shown() -> None:
    gate, keyboard, screen = console()

    async def ask(text: str) -> None:
        await gate.decide(question(text))

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "first?")
        await until(lambda: "first?" in screen.getvalue())
        with anyio.move_on_after(0.05):
            await gate.decide(question("second?"))
        group.start_soon(ask, "third?")
        keyboard.type("a\n")
        await until(lambda: "third?" in screen.getvalue())
        keyboard.type("a\n")
    assert "second?" not in screen.getvalue()


@pytest.mark.anyio
async def test_a_crowd_of_questions_leaves_threads_for_others() -> None:
    """Waiting for a turn takes no thread: the pool of the process is for work."""
    gate, keyboard, _ = console()
    before = threading.active_count()
    async with anyio.create_task_group() as group:
        for number in range(400):
            group.start_soon(gate.decide, question(f"{number}?"))
        await anyio.sleep(0.05)
        assert threading.active_count() <= before + 2
        for _ in range(400):
            keyboard.type("a\n")


@pytest.mark.anyio
async def test_an_input_that_cannot_be_read_is_an_error_of_the_gate() -> None:
    source = io.StringIO("a\n")
    source.close()
    with pytest.raises(ValueError, match="closed file"):
        await kt.ConsoleGate(source=source, sink=io.StringIO()).decide(QUESTION)


@pytest.mark.anyio
async def test_what_draws_steps_aside_while_a_question_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, told = Keyboard(), list[str]()
    monkeypatch.setattr(TERMINAL, "_source", keyboard)
    monkeypatch.setattr(TERMINAL, "_sink", io.StringIO())
    with TERMINAL.aside(lambda: told.append("stop"), lambda: told.append("go on")):
        keyboard.type("perhaps\n")
        keyboard.type("a\n")
        await kt.ConsoleGate().decide(QUESTION)
        with anyio.move_on_after(0.02):
            await kt.ConsoleGate().decide(QUESTION)
    assert told == ["stop", "go on"] * 2
    keyboard.type("a\n")
    await kt.ConsoleGate().decide(QUESTION)
    assert told == ["stop", "go on"] * 2


def test_one_gate_serves_one_event_loop_after_the_other() -> None:
    gate = kt.ConsoleGate(source=io.StringIO("a\nj\n"), sink=io.StringIO())
    decisions = [anyio.run(gate.decide, QUESTION, backend=backend) for backend in ("asyncio", "trio")]
    assert decisions == [kt.HumanDecision.approve(), kt.HumanDecision.reject()]


# ---------------------------------------------------------------- a function


REVISE = kt.HumanDecision.revise("shorter")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (True, kt.HumanDecision.approve()),
        (False, kt.HumanDecision.reject()),
        (None, None),
        (REVISE, REVISE),
        (kt.HumanDecision.defer(), kt.HumanDecision.defer()),
    ],
    ids=str,
)
async def test_what_a_function_answers(answer: Any, decision: kt.HumanDecision | None) -> None:
    async def later(question: kt.HumanRequest) -> Any:
        await anyio.lowlevel.checkpoint()
        return answer

    class Desk:
        async def __call__(self, question: kt.HumanRequest) -> Any:
            return answer

    asks: list[Callable[[kt.HumanRequest], Any]] = [lambda _: answer, later, Desk(), lambda asked: [later(asked)].pop()]
    for ask in asks:
        assert await kt.CallbackGate(ask).decide(QUESTION) == decision


@pytest.mark.anyio
@pytest.mark.parametrize("nonsense", ["yes", 1, 0, "", ["approve"]], ids=repr)
async def test_nonsense_of_a_function_is_an_error(nonsense: Any) -> None:
    with pytest.raises(TypeError, match="must return a HumanDecision, True, False or None, not"):
        await kt.CallbackGate(lambda _: nonsense).decide(QUESTION)


@pytest.mark.anyio
async def test_what_a_function_raises_leaves_the_gate() -> None:
    def ask(question: kt.HumanRequest) -> bool:
        raise ConnectionError("no line")

    with pytest.raises(ConnectionError):
        await kt.CallbackGate(ask).decide(QUESTION)


@pytest.mark.anyio
async def test_a_function_that_takes_too_long_has_said_nothing() -> None:
    let_go = threading.Event()

    def blocked(question: kt.HumanRequest) -> bool:
        return let_go.wait(120)

    async def slow(question: kt.HumanRequest) -> bool:
        await anyio.sleep(120)
        return True

    for ask in (blocked, slow):
        began = time.monotonic()
        assert await kt.CallbackGate(ask, timeout=0.05).decide(QUESTION) is None
        assert time.monotonic() - began < 60
    let_go.set()


@pytest.mark.anyio
async def test_a_sync_function_may_block_without_stopping_the_others() -> None:
    let_go = threading.Event()
    decisions: list[kt.HumanDecision | None] = []

    async def ask() -> None:
        decisions.append(await kt.CallbackGate(lambda _: let_go.wait(60)).decide(QUESTION))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(0.01)
        let_go.set()
    assert decisions == [kt.HumanDecision.approve()]


@pytest.mark.anyio
async def test_the_deferring_gate_puts_everything_off() -> None:
    assert await kt.DeferGate().decide(QUESTION) == kt.HumanDecision.defer()


@pytest.mark.parametrize("wrong", [0, -1.0])
@pytest.mark.parametrize(
    "gate", [lambda timeout: kt.ConsoleGate(timeout=timeout), lambda timeout: kt.CallbackGate(print, timeout=timeout)]
)
def test_a_timeout_is_above_zero(gate: Any, wrong: float) -> None:
    with pytest.raises(ValueError, match="must be seconds > 0"):
        gate(wrong)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ValueError, match="takes a function of a question"):
        kt.CallbackGate("yes")  # type: ignore[arg-type]  # the mistake is the point
