"""How long a conversation of `MiniAgent` may be, and what is cut first where it is longer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kairo_team.messages import Message
from kairo_team.models.prompt_bounds import byte_length, file_bound, prompt_bound

if TYPE_CHECKING:
    from kairo_team.messages import ModelRequest, ModelResponse

_KEPT: Final = 100
"""Characters that are left of a result that was cut."""
_LONG: Final = 240
"""Characters of a result that are worth cutting."""
_CUT: Final = "[cut: {} of {} characters are left out]"
_NOT_KEPT: Final = "[left out: {}]"
_BYTES_A_TOKEN: Final = 3.0
"""Bytes of a token, where no usage shows how many they are."""
_ROOM_FOR_REPLY: Final = 4
"""The part of the window that is left for a reply of unknown length: a quarter."""

_MARGIN: Final = 10
"""The part of the window that is left empty, because tokens are estimated from bytes: a tenth."""


class Room:
    """How long a prompt may be, in bytes as `prompt_bound` counts them.

    Bytes can be counted without the model. The usage of the last reply shows how many of them are a token.
    """

    def __init__(self, window: int | None, max_tokens: int | None) -> None:
        """Take the model's window and the most tokens of a reply; None: unknown."""
        self._tokens: int | None = None
        if window is not None:
            # At most half: a `max_tokens` near the window would leave no room for a prompt.
            reply = min(max_tokens or window // _ROOM_FOR_REPLY, window // 2)
            self._tokens = window - reply - window // _MARGIN
        self._learned: int | None = None
        self._last: ModelRequest | None = None
        self._used = 0
        """The tokens of the last prompt; 0: unknown."""
        self._replied = 0
        """The tokens of the last reply, reasoning included, which goes back with it."""

    def is_full(self, messages: Sequence[Message]) -> bool:
        """Return whether the last prompt, with the messages that came after it, is too long."""
        if self._last is None or (self._tokens is None and self._learned is None):
            return False
        # Asides are sent once and are not part of the conversation, so they do not count as its messages.
        asked = sum(not message.aside for message in self._last.messages)
        new = sum(byte_length(message.text) + _bytes_of_files(message) for message in messages[asked:])
        if self._learned is None and self._tokens is not None and self._used:  # no need to count bytes
            return self._used + self._replied + new / _BYTES_A_TOKEN > self._tokens
        return prompt_bound(self._last) + self._replied * self._bytes_a_token + new > self.most

    @property
    def most(self) -> int:
        """The most bytes of a prompt."""
        known = [] if self._learned is None else [self._learned]
        if self._tokens is not None:
            known.append(int(self._tokens * self._bytes_a_token))
        return min(known)

    def learn(self, most: int) -> None:
        """Note a length that a model did not refuse after it had refused a longer one."""
        self._learned = most

    def measure(self, request: ModelRequest, response: ModelResponse) -> None:
        """Note a prompt, and how many tokens it had."""
        self._last, self._used, self._replied = request, 0, 0
        if (usage := response.usage) is not None:
            self._used, self._replied = usage.prompt_tokens, usage.completion_tokens

    def tokens(self, length: int) -> int:
        """Return the tokens of so many bytes, about."""
        return int(length / self._bytes_a_token)

    @property
    def _bytes_a_token(self) -> float:
        # A token has at least one byte, whatever a provider reports.
        return max(1.0, prompt_bound(self._last) / self._used) if self._last and self._used else _BYTES_A_TOKEN


def newest_turn(messages: Sequence[Message]) -> int | None:
    """Return where the newest reply is, which stays as it is with its results; None without a reply."""
    places = (number for number in range(len(messages) - 1, -1, -1) if messages[number].role == "assistant")
    return next(places, None)


def cut_results(messages: Sequence[Message], excess: int, end: int) -> tuple[list[Message], int]:
    """Cut results of tools before `end`, the oldest first, until `excess` bytes are gone; return how many were cut.

    Files of a result are left out, by name.
    """
    left, cut = list(messages), 0
    for number, message in enumerate(left[:end]):
        if excess <= 0:
            break
        if message.role != "tool" or (len(message.text) <= _LONG and not message.files):
            continue
        short = message.text
        if len(short) > _LONG:
            kept = short[:_KEPT]
            short = f"{kept} {_CUT.format(len(short) - len(kept), len(short))}"
        short = "\n".join([short, *_files_left_out(message)])
        excess -= byte_length(message.text) + _bytes_of_files(message) - byte_length(short)
        left[number] = replace(message, text=short, files=())
        cut += 1
    return left, cut


def in_words(messages: Sequence[Message], most: int) -> str:
    """Write a conversation as one text of at most `most` characters, the newest part whole; a summary reads it."""
    lines = [line for message in messages for line in _lines(message)]
    text = "\n".join(lines)
    if len(text) <= most:
        return text
    return f"{_CUT.format(len(text) - most, len(text))}\n{text[-most:]}"


def _lines(message: Message) -> list[str]:
    lines = [f"{_SPEAKERS[message.role]}: {message.text}"] if message.text.strip() else []
    for call in message.tool_calls:
        given = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments), default=repr)
        lines.append(f"called {call.name} {given}")
    return [*lines, *_files_left_out(message)]


def _files_left_out(message: Message) -> list[str]:
    return [_NOT_KEPT.format(file) for file in message.files]


_SPEAKERS: Final = {"system": "instructions", "user": "asked", "assistant": "you", "tool": "result"}


def _bytes_of_files(message: Message) -> int:
    return sum(map(file_bound, message.files))
