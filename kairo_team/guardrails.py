"""What guardrail policies receive and return: context, decision, outcome of a chain, and one payload type per phase.

Payloads are immutable: a policy returns a new one. Each has `text` and `with_text` for its main text, and `texts` and
`map_text` for every piece of text in it, including arguments of tool calls.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, cast

from kairo_team._util.frozen import EMPTY, freeze, freeze_json
from kairo_team._util.late_pydantic import to_jsonable_python
from kairo_team.errors import known
from kairo_team.messages import Message, ModelResponse, ToolCall


class GuardrailAction(StrEnum):
    """What happens to a payload."""

    ALLOW = "allow"
    """The payload passes unchanged."""
    DENY = "deny"
    """The payload is stopped."""
    MODIFY = "modify"
    """A changed payload passes instead."""
    WARN = "warn"
    """The payload passes unchanged, and a warning is recorded."""


@dataclass(frozen=True, slots=True)
class GuardrailContext:
    """One payload for a policy to decide about, and where it comes from."""

    phase: GuardrailPhase
    member: str | None
    """The member's name; None for work without a member, such as planning."""
    target: str
    """Name of the model or tool."""
    payload: GuardrailPayload
    metadata: Mapping[str, Any] = field(default=EMPTY, hash=False)
    """Copied read-only. The library fills in `run_id`, `task_id` and `purpose` ("generate", "plan", "evaluate"); for
    tools also `server` (the MCP server's name or None), `tool` (the server's own name of it) and `side_effect`."""

    def __post_init__(self) -> None:
        check_payload("GuardrailContext.payload", self.payload)
        if self.payload.phase != self.phase:
            raise ValueError(f"{shown(self.payload)} is looked at in {self.payload.phase!r}, not in {self.phase!r}")
        object.__setattr__(self, "phase", self.payload.phase)  # a plain string becomes the enum's member
        object.__setattr__(self, "metadata", freeze(self.metadata))


@dataclass(frozen=True, slots=True)
class GuardrailDecision:
    """The decision of a policy; made by `allow`, `deny`, `modify` and `warn`."""

    action: GuardrailAction
    reason: str = ""
    """Why; blank only for ALLOW."""
    payload: GuardrailPayload | None = None
    """The new payload, for MODIFY; of the same phase."""

    def __post_init__(self) -> None:
        if not isinstance(self.action, GuardrailAction):
            allowed = known(one.value for one in GuardrailAction)
            raise ValueError(f"GuardrailDecision.action must be one of {allowed}, not {self.action!r}")
        if not isinstance(self.reason, str) or (self.action is not GuardrailAction.ALLOW and not self.reason.strip()):
            raise ValueError(f"to {self.action} needs a reason in words, not {self.reason!r}")
        if self.action is GuardrailAction.MODIFY:
            check_payload("what a modification puts in place", self.payload)
        elif self.payload is not None:
            raise ValueError(f"only a modification has a payload; to {self.action} has none")

    @classmethod
    def allow(cls) -> GuardrailDecision:
        """Let the payload pass unchanged."""
        return _ALLOW

    @classmethod
    def deny(cls, reason: str) -> GuardrailDecision:
        """Stop the payload. The reason may be shown to the member."""
        return cls(GuardrailAction.DENY, reason)

    @classmethod
    def modify(cls, reason: str, payload: GuardrailPayload) -> GuardrailDecision:
        """Let `payload` pass instead; it must be of the same phase, and for tools about the same tool."""
        return cls(GuardrailAction.MODIFY, reason, payload)

    @classmethod
    def warn(cls, reason: str) -> GuardrailDecision:
        """Let the payload pass unchanged, and have the warning recorded."""
        return cls(GuardrailAction.WARN, reason)


_ALLOW: Final = GuardrailDecision(GuardrailAction.ALLOW)


@dataclass(frozen=True, slots=True)
class GuardrailRuling:
    """One entry of the trail: a policy and its decision."""

    policy: str
    """The policy's name."""
    decision: GuardrailDecision


class GuardrailOutcome:
    """The decision of a chain. Read-only."""

    __slots__ = ("_payload", "_trail")
    _payload: GuardrailPayload
    _trail: tuple[GuardrailRuling, ...]

    def __init__(self, payload: GuardrailPayload, trail: Iterable[GuardrailRuling] = ()) -> None:
        self._payload = payload
        self._trail = tuple(trail)

    @property
    def payload(self) -> GuardrailPayload:
        """The payload that passes: the given object itself unless a policy modified it."""
        return self._payload

    @property
    def trail(self) -> tuple[GuardrailRuling, ...]:
        """Every decision made, in order; after a denial, no further one is made."""
        return self._trail

    @property
    def action(self) -> GuardrailAction:
        """DENY, else MODIFY if anything was modified, else WARN if a policy warned, else ALLOW."""
        return self._decided.decision.action

    @property
    def policy(self) -> str | None:
        """Name of the first policy that decided for `action`; None if all policies allowed."""
        return self._decided.policy or None

    @property
    def reason(self) -> str:
        """The reason of that policy; empty if all policies allowed."""
        return self._decided.decision.reason

    @property
    def _decided(self) -> GuardrailRuling:
        for action in (GuardrailAction.DENY, GuardrailAction.MODIFY, GuardrailAction.WARN):
            for ruling in self._trail:
                if ruling.decision.action is action:
                    return ruling
        return _ALLOWED

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GuardrailOutcome):
            return NotImplemented
        return (self._payload, self._trail) == (other.payload, other.trail)

    def __hash__(self) -> int:
        return hash((self._payload, self._trail))

    def __repr__(self) -> str:
        return f"GuardrailOutcome({self.action!r}, {self._payload!r}, {self._trail!r})"


_ALLOWED: Final = GuardrailRuling("", _ALLOW)


def check_payload(what: str, payload: object) -> None:
    """Raise `ValueError` unless `payload` is a payload."""
    if not isinstance(payload, GuardrailPayload):
        kinds = "a ModelInput, ModelOutput, ToolInput or ToolOutput"
        hint = ": write context.payload.with_text(...)" if isinstance(payload, str) else ""
        raise ValueError(f"{what} must be {kinds}, not {payload!r:.200}{hint}")


def shown(payload: GuardrailPayload) -> str:
    """Name the kind of a payload."""
    return f"a {type(payload).__name__}"


TextFunction = Callable[[str], str]
"""Takes one piece of text and returns it, changed or not."""

BETWEEN_MESSAGES: Final = "\n\x1e\n"
"""The separator of messages in `ModelInput.text`: ASCII's record separator, on a line of its own."""


class GuardrailPhase(StrEnum):
    """When a policy is called."""

    PRE_MODEL = "pre_model"
    """Before a model is called: a `ModelInput`."""
    POST_MODEL = "post_model"
    """After it replied, before the reply is used: a `ModelOutput`."""
    PRE_TOOL = "pre_tool"
    """Before a tool is called: a `ToolInput`."""
    POST_TOOL = "post_tool"
    """After it returned, before the member sees the result: a `ToolOutput`."""


class _Payload(ABC):
    __slots__ = ()
    phase: ClassVar[GuardrailPhase]
    """The phase of this payload."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The main text."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Every piece of text, in order, as `map_text` passes them to its function."""
        pieces: list[str] = []

        def note(piece: str) -> str:
            pieces.append(piece)
            return piece

        self.map_text(note)
        return tuple(pieces)

    @abstractmethod
    def map_text(self, function: TextFunction) -> Any:
        """Apply `function` to every piece of text; return self if nothing changed."""


@dataclass(frozen=True, slots=True)
class ModelInput(_Payload):
    """A conversation about to be sent to a model.

    Its pieces of text are the messages' texts and, after each, the strings and numbers within the arguments of the
    message's tool calls.
    """

    phase: ClassVar[GuardrailPhase] = GuardrailPhase.PRE_MODEL
    messages: Sequence[Message]
    settings: Mapping[str, Any] = field(default=EMPTY, hash=False)
    """Sampling settings by the provider's usual names."""

    def __post_init__(self) -> None:
        messages = tuple(self.messages)
        strangers = [one for one in messages if not isinstance(one, Message)]
        if strangers:
            raise ValueError(f"ModelInput.messages must be Message objects, not {strangers[0]!r:.200}")
        if not isinstance(self.settings, Mapping):
            raise ValueError(f"ModelInput.settings must be a mapping, not {self.settings!r:.200}")
        object.__setattr__(self, "messages", messages)
        object.__setattr__(self, "settings", freeze(self.settings))

    @property
    def text(self) -> str:
        """Every message's text, in order, with `BETWEEN_MESSAGES` between them."""
        return BETWEEN_MESSAGES.join(message.text for message in self.messages)

    def with_text(self, text: str) -> ModelInput:
        """Return the payload with a changed `text`: each message gets its own piece back.

        Raises `ValueError` unless there are as many pieces as messages: use `map_text`, or make a `ModelInput`.
        """
        pieces = _checked(text).split(BETWEEN_MESSAGES) if self.messages else []
        if len(pieces) != len(self.messages):
            raise ValueError(
                f"the text has {len(pieces)} pieces for {len(self.messages)} messages: keep the separators "
                f"({BETWEEN_MESSAGES!r}), use map_text(function), or make a ModelInput of other messages"
            )
        changed = tuple(
            message if piece == message.text else replace(message, text=piece, native=None)
            for message, piece in zip(self.messages, pieces, strict=True)
        )
        return ModelInput(changed, self.settings)

    def map_text(self, function: TextFunction) -> ModelInput:
        """Apply `function` to every piece of text; return self if nothing changed."""
        messages = tuple(_map_message(message, function) for message in self.messages)
        return self if _are_identical(messages, self.messages) else ModelInput(messages, self.settings)


@dataclass(frozen=True, slots=True)
class ModelOutput(_Payload):
    """A model's reply, charged but not used yet.

    Its pieces of text are the reply's text and the strings and numbers within the arguments of the tool calls it
    requests: an answer can be in either.
    """

    phase: ClassVar[GuardrailPhase] = GuardrailPhase.POST_MODEL
    response: ModelResponse
    """The reply; `response.tool_calls` are the tool calls it requests."""

    def __post_init__(self) -> None:
        answer: Any = self.response
        if not isinstance(getattr(answer, "text", None), str) or not hasattr(answer, "tool_calls"):
            raise ValueError(f"ModelOutput.response must be a ModelResponse, not {answer!r:.200}")

    @property
    def text(self) -> str:
        """The reply's text, without its tool calls."""
        return self.response.text

    def with_text(self, text: str) -> ModelOutput:
        """Return the payload with another text and the same tool calls."""
        return ModelOutput(replace(self.response, text=_checked(text), native=None))

    def map_text(self, function: TextFunction) -> ModelOutput:
        """Apply `function` to every piece of text; return self if nothing changed."""
        text = _apply(function, self.response.text)
        calls = tuple(_map_call(call, function) for call in self.response.tool_calls)
        if text == self.response.text and _are_identical(calls, self.response.tool_calls):
            return self
        return ModelOutput(replace(self.response, text=text, tool_calls=calls, native=None))


@dataclass(frozen=True, slots=True)
class ToolInput(_Payload):
    """A tool about to be called. Its pieces of text are the strings and numbers within the arguments, names too."""

    phase: ClassVar[GuardrailPhase] = GuardrailPhase.PRE_TOOL
    name: str
    """The tool's name, as the model knows it."""
    arguments: Mapping[str, Any] = field(default=EMPTY, hash=False)
    """JSON values by name, copied read-only."""

    def __post_init__(self) -> None:
        _check_name("ToolInput", self.name)
        if not isinstance(self.arguments, Mapping):
            raise ValueError(f"ToolInput.arguments must be a mapping, not {self.arguments!r:.200}")
        object.__setattr__(self, "arguments", _not_too_deep("ToolInput.arguments", freeze_json, self.arguments))

    @property
    def text(self) -> str:
        """The arguments as JSON."""
        return _to_json(self.arguments)

    def with_text(self, text: str) -> ToolInput:
        """Return the payload with the arguments in a JSON text; `ValueError` unless the text is a JSON object."""
        arguments = _not_too_deep("ToolInput.arguments", json.loads, _checked(text))
        if not isinstance(arguments, dict):
            raise ValueError(f"the arguments of a tool are a JSON object, not {text!r:.200}")
        return ToolInput(self.name, cast("dict[str, Any]", arguments))

    def map_text(self, function: TextFunction) -> ToolInput:
        """Apply `function` to every piece of text; return self if nothing changed."""
        arguments = map_json(self.arguments, function)
        return self if arguments is self.arguments else ToolInput(self.name, arguments)


@dataclass(frozen=True, slots=True)
class ToolOutput(_Payload):
    """The result of a tool. Its pieces of text are the text, or the strings and numbers within the JSON, names too."""

    phase: ClassVar[GuardrailPhase] = GuardrailPhase.POST_TOOL
    name: str
    """The tool's name, as the model knows it."""
    result: Any = field(hash=False)
    """Text or JSON values, copied read-only; anything else is converted to JSON values by pydantic."""

    def __post_init__(self) -> None:
        _check_name("ToolOutput", self.name)
        if not isinstance(self.result, str):
            object.__setattr__(self, "result", _not_too_deep("ToolOutput.result", _as_json, self.result))

    @classmethod
    def of(cls, name: str, text: str, *, is_json: bool) -> ToolOutput:
        """Return the result of a tool: as JSON values if its text `is_json` and can be converted, else the text."""
        if is_json:
            with suppress(ValueError, RecursionError):
                return cls(name, json.loads(text))
        return cls(name, text)

    @property
    def text(self) -> str:
        """The result; as JSON if it is not text."""
        return self.result if isinstance(self.result, str) else _to_json(self.result)

    def with_text(self, text: str) -> ToolOutput:
        """Return the payload with this text as the result."""
        return ToolOutput(self.name, _checked(text))

    def map_text(self, function: TextFunction) -> ToolOutput:
        """Apply `function` to every piece of text; return self if nothing changed."""
        result = map_json(self.result, function)
        return self if result is self.result else ToolOutput(self.name, result)


GuardrailPayload = ModelInput | ModelOutput | ToolInput | ToolOutput
"""The closed union of all payload types."""


def _map_message(message: Message, function: TextFunction) -> Message:
    text = _apply(function, message.text)
    calls = tuple(_map_call(call, function) for call in message.tool_calls)
    if text == message.text and _are_identical(calls, message.tool_calls):
        return message
    return replace(message, text=text, tool_calls=calls, native=None)  # the reply's native form has the old text


def _map_call(call: ToolCall, function: TextFunction) -> ToolCall:
    arguments = map_json(call.arguments, function)
    return call if arguments is call.arguments else replace(call, arguments=arguments)


def map_json(value: Any, function: TextFunction) -> Any:
    """Map every string and number of a JSON value, including keys; return the value itself if nothing changed.

    A number that is changed becomes a string.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return _map_object(cast("Mapping[str, Any]", value), function)
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        mapped = tuple(map_json(item, function) for item in items)
        return items if _are_identical(mapped, items) else mapped
    text = value if isinstance(value, str) else json.dumps(value)  # a policy may look for numbers, such as a card's
    changed = _apply(function, text)
    return value if changed == text else changed


def _map_object(values: Mapping[str, Any], function: TextFunction) -> Mapping[str, Any]:
    """Map names and values; number names that become equal."""
    mapped: dict[str, Any] = {}
    used: dict[str, int] = {}
    differs = False
    for name, item in values.items():
        wanted, value = _apply(function, name), map_json(item, function)
        given = wanted
        while given in mapped:  # else one value would replace another
            used[wanted] = used.get(wanted, 1) + 1
            given = f"{wanted} {used[wanted]}"
        mapped[given] = value
        differs = differs or value is not item or given != name
    return mapped if differs else values


def _are_identical(left: Iterable[object], right: Iterable[object]) -> bool:
    """Return whether two sequences of one length contain the very same objects."""
    return all(one is other for one, other in zip(left, right, strict=True))


def _apply(function: TextFunction, piece: str) -> str:
    return _checked(function(piece))


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"a piece of text must be a string, not {text!r:.200}")
    return text


def _check_name(owner: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"{owner}.name must be the tool's name, not {name!r}")


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _as_json(value: Any) -> Any:
    try:
        return freeze_json(value)
    except ValueError:
        return freeze(to_jsonable_python(value, fallback=str))


def _not_too_deep(what: str, convert: Callable[[Any], Any], value: Any) -> Any:
    """Convert a value; `ValueError` if it is nested deeper than Python can follow."""
    try:
        return convert(value)
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply") from None
