"""What a wrapper of another library shows of itself in the matrix: one rig per library, all played by one script.

A rig puts a scripted model behind the real library. Its module is named below, holds the class as `RIG`, and may
import its library at the top: it is loaded only where that is installed.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import anyio
import pytest

import kairo_team as kt
from kairo_team._util.frozen import thaw

COLUMNS: Final = ("hold", "cap", "halt", "cancel", "usage", "partial", "guardrails", "permissions")
MODULES: Final = {
    "rig_mini": "kairo_team",
    "rig_pydantic_ai": "pydantic_ai",
    "rig_langgraph": "langgraph",
    "rig_openai_agents": "agents",
}
"""Modules of rigs in the order of their rows, each with the library it needs."""
SideEffect = Literal["read", "write", "system"]


@dataclass(frozen=True)
class Ask:
    """The scripted model asks for a tool."""

    tool: str
    text: str = ""
    """The tool's one argument, by the name `text`."""


@dataclass(frozen=True)
class Reply:
    """What the scripted model does when it is asked once."""

    text: str = ""
    """One token a word, as far as `max_tokens` is concerned."""
    asks: Sequence[Ask] = ()
    prompt_tokens: int = 10
    """The usage the model tells, as it stands."""
    completion_tokens: int = 5
    """Never more than the request's `max_tokens`, which it keeps to."""
    seconds: float = 0.0
    """How long it takes."""
    error: Exception | None = None
    """Raised instead of an answer."""
    cut: bool = False
    """It was cut off at `max_tokens`: filled in by `Rig.answer`."""


@dataclass(frozen=True)
class RigTool:
    """A tool of the agent's: an async function of one string, the argument `text`, that returns a string."""

    name: str
    function: Callable[[str], Awaitable[str]]
    side_effect: SideEffect = "read"


@dataclass(frozen=True)
class Asked:
    """One request as it reached the scripted model, behind the library."""

    text: str
    """All that was said to it, instructions, tool results and arguments of tool calls included, as one string."""
    tools: tuple[str, ...]
    """Names of the tools it was offered."""
    max_tokens: int | None


@dataclass
class Rig(ABC):
    """One wrapper and a scripted model behind its library.

    A subclass sets `name` and implements `agent`; its scripted model calls `answer` for every request, and makes the
    library's own reply of what comes back. It reports the reply's `prompt_tokens` and `completion_tokens` as usage
    and, where `cut`, the library's word for a reply cut off at its limit.
    """

    name: ClassVar[str]
    """The wrapper's class, as the table shows it."""
    wraps_up: ClassVar[bool] = False
    """Its agent knows what is left and answers on the last turn it can pay, so it does not run into that limit."""
    backends: ClassVar[Sequence[str]] = ("asyncio", "trio")
    """Event loops the library runs on."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """Columns this wrapper cannot do, each with the reason as a clause: `{"partial": "the library tells nothing"}`."""

    script: Sequence[Reply] | Callable[[int], Reply]
    """The replies in order, or a function of the request's number, from 0. The last reply of a list repeats."""
    tools: Sequence[RigTool] = ()
    asked: list[Asked] = field(default_factory=list[Asked])
    """Every request that reached the model, in order."""
    in_flight: int = 0
    """Requests it is at now."""
    same_ids: bool = False
    """All calls it asks for have one id, as those of some servers."""
    told: list[Reply] = field(default_factory=list[Reply])
    """What it answered, in order; the usage told is their sum."""

    @abstractmethod
    def agent(self) -> Any:
        """Make the agent a `kt.Member` takes: the wrapper around the library's own agent, with this rig's tools.

        The library's agent says nothing of its own to the model, beyond what the wrapper says. A tool's side effect
        is declared the way the wrapper documents.
        """
        raise NotImplementedError

    async def answer(self, text: str, tools: Sequence[str] = (), max_tokens: int | None = None) -> Reply:
        """Take one request; return the reply of the script, cut to `max_tokens`, or raise its error."""
        reply = self._next(len(self.asked))
        self.asked.append(Asked(text, tuple(tools), max_tokens))
        with self._busy():
            await anyio.sleep(reply.seconds)
        if reply.error is not None:
            raise reply.error
        reply = _cut(reply, max_tokens)
        self.told.append(reply)
        return reply

    def ids(self, reply: Reply) -> list[str]:
        """Return the ids of the calls that a reply asks for."""
        number = len(self.asked)
        return ["call" if self.same_ids else f"call-{number}-{place}" for place in range(len(reply.asks))]

    def _next(self, number: int) -> Reply:
        if callable(self.script):
            return self.script(number)
        return self.script[min(number, len(self.script) - 1)]

    @contextmanager
    def _busy(self) -> Generator[None]:
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


def _cut(reply: Reply, most: int | None) -> Reply:
    if most is None or reply.completion_tokens <= most:
        return reply
    return replace(reply, text=" ".join(reply.text.split()[:most]), completion_tokens=most, cut=True)


def told(messages: Iterable[kt.Message]) -> str:
    """Say all that is in a conversation of ours."""
    return "\n".join(f"{message.text}\n{[thaw(call.arguments) for call in message.tool_calls]}" for message in messages)


def rigs() -> Iterator[type[Rig]]:
    """Load the rigs whose module is there and whose library is installed."""
    for module, library in MODULES.items():
        if Path(__file__).with_name(f"{module}.py").exists() and find_spec(library) is not None:
            rig: type[Rig] = importlib.import_module(f"tests.agents.{module}").RIG
            yield rig


def each_rig(*without: str) -> list[Any]:
    """Return the rigs, except these, as parameters of a test that runs on the event loops of their libraries."""
    return [
        pytest.param(rig, id=rig.name, marks=pytest.mark.loops(*rig.backends))
        for rig in rigs()
        if rig.name not in without
    ]
