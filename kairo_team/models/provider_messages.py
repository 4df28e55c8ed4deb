"""Convert conversations and tools into pydantic-ai's types, and its replies into ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import thaw
from kairo_team.errors import known
from kairo_team.files import File, media_type_of_name
from kairo_team.models.natives import native_reply, reasoning_tokens
from kairo_team.models.readings import (
    class_names,
    finish_of_word,
    may_be_thought,
    read_billing,
    read_usage,
    split_thoughts,
)
from kairo_team.models.tool_calls import arguments_text, sound

if TYPE_CHECKING:
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequestPart,
        ModelResponse,
        ModelResponseStreamEvent,
        MultiModalContent,
    )
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

    from kairo_team.budget import Usage
    from kairo_team.messages import Billing, Message, ToolSpec
    from kairo_team.models.prompt_bounds import Rule
    from kairo_team.models.readings import Finish


_BETWEEN: Final = "\n\n"
"""Between parts of a reply's text that something else separates, as pydantic-ai joins them."""


def conversation(messages: Sequence[Message], reader: str = "") -> Iterator[ModelMessage]:
    """Yield requests for messages to the model, tool results included, and replies for the model's own messages.

    Replies of `reader` (see `reader_of`) are as they came, all others are text and calls.

    Raises `ValueError` for a tool's message that answers no call of an earlier message.
    """
    from pydantic_ai.messages import ModelRequest

    asked: list[ModelRequestPart] = []
    called: dict[str, str] = {}
    for message in messages:
        if message.role != "assistant":
            asked.append(_part(message, called))
            continue
        if asked:
            yield ModelRequest(asked)
        asked = []
        # pydantic-ai's tool results need the tool's name, which ours do not have.
        called.update((call.id, call.name) for call in message.tool_calls)
        yield native_reply(message, reader) or _reply(message)
    if asked:
        yield ModelRequest(asked)


def _part(message: Message, called: dict[str, str]) -> ModelRequestPart:
    from pydantic_ai.messages import SystemPromptPart, ToolReturnPart, UserPromptPart

    files = [file_content(file) for file in message.files]
    text = [message.text] if message.text else []
    match message.role:
        case "system":
            return SystemPromptPart(message.text)
        case "tool":
            call_id = message.tool_call_id or ""
            if call_id not in called:
                raise ValueError(f"a tool's message answers the call {call_id!r}, which no message before it makes")
            return ToolReturnPart(called[call_id], [*text, *files] if files else message.text, call_id)
        case _:
            return UserPromptPart([*text, *files] if files else message.text)


def file_content(file: File) -> MultiModalContent:
    """Return a file in pydantic-ai's types: its content, or its URL, which the provider fetches.

    Texts of every kind are sent as plain text, which all providers that take texts know.
    """
    from pydantic_ai.messages import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, VideoUrl

    if file.url is not None:
        kinds: dict[str, type[ImageUrl | AudioUrl | VideoUrl]]
        kinds = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
        kind = kinds.get(file.media_type.partition("/")[0], DocumentUrl)
        return kind(url=file.url, media_type=file.media_type)
    if file.data is None:
        raise ValueError(f"the content of the file {file} is no longer kept: give it to the task again")
    return BinaryContent(file.data, media_type="text/plain" if file.is_text else file.media_type, identifier=file.name)


def file_of(content: object) -> File | None:
    """Return a file of pydantic-ai's types as ours; None for anything else, such as a file that a provider keeps."""
    from pydantic_ai.messages import BinaryContent, FileUrl

    try:
        if isinstance(content, BinaryContent):
            named = content.identifier if media_type_of_name(content.identifier) else None
            return File(data=content.data, media_type=content.media_type, name=named)
        if isinstance(content, FileUrl):
            return File(url=content.url, media_type=content.media_type)
    except ValueError:  # an empty one, or one whose kind is not known
        return None
    return None


_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_SOUNDS: Final[Mapping[str, frozenset[str]]] = {
    "OpenAIChatModel": frozenset({"audio/wav", "audio/mpeg"}),
    "GoogleModel": frozenset({"audio/wav", "audio/mpeg", "audio/ogg", "audio/flac", "audio/aiff", "audio/aac"}),
}
"""Recordings that a class of models sends."""
_BY_URL: Final[Mapping[str, frozenset[str]]] = {
    "OpenAIChatModel": _IMAGES,
    "OpenAIResponsesModel": _IMAGES | {"application/pdf"},
    "AnthropicModel": _IMAGES | {"application/pdf"},
    "GroqModel": _IMAGES,
    "MistralModel": _IMAGES | {"application/pdf"},
    "XaiModel": _IMAGES,
}
"""What a class of models passes on by its URL; anything else its library would fetch, which is not done here."""


def file_problem_of(model: Model[Any], file: File) -> str | None:
    """Return why a pydantic-ai model does not take a file, by its profile and by what its class sends; else None."""
    profile: Mapping[str, Any] = model.profile
    kinds = class_names(model)
    main, media_type = file.media_type.partition("/")[0], file.media_type
    if file.url is not None and not any(media_type in _BY_URL.get(kind, ()) for kind in kinds):
        return f"its provider does not fetch {media_type} from a URL; give the content, File(data=...)"
    if file.is_image:
        if not profile.get("supports_image_input", True):
            return "it does not see images"
        also = {"image/heic", "image/heif"} if "GoogleModel" in kinds else set[str]()
        return None if media_type in _IMAGES | also else f"of images it takes {known(_IMAGES | also)}"
    if main == "audio":
        takes = frozenset[str]().union(*(_SOUNDS.get(kind, ()) for kind in kinds))
        if not profile.get("supports_audio_file_input", True) or not takes:
            return "it does not take recordings"
        return None if media_type in takes else f"of recordings it takes {known(takes)}"
    if main == "video":
        takes_video = "GoogleModel" in kinds and profile.get("supports_video_input", True)
        return None if takes_video else "it does not take videos"
    return _document_problem(profile, file, kinds)


def _document_problem(profile: Mapping[str, Any], file: File, kinds: set[str]) -> str | None:
    if not file.is_text and file.media_type != "application/pdf":
        return "of documents it takes PDFs and texts; convert it"
    if file.is_text:
        try:
            (file.data or b"").decode()
        except UnicodeDecodeError:
            return "its text is not UTF-8"
        if "OpenAIChatModel" in kinds:  # sent as a part of the text
            return None
    supported = profile.get("supported_document_media_types")
    sent_as = "text/plain" if file.is_text else file.media_type
    if not profile.get("supports_document_input", True) or (supported is not None and sent_as not in supported):
        return "it does not read texts as files" if file.is_text else "it does not read PDFs"
    return None


def rule_of(model: Model[Any]) -> Rule:
    """Return by whose rule the tokens of files are bounded."""
    kinds = class_names(model)
    if kinds & {"OpenAIChatModel", "OpenAIResponsesModel"} and model.system in ("openai", "azure"):
        return "openai-mini" if "4o-mini" in model.model_name else "openai"
    if "AnthropicModel" in kinds:
        return "anthropic"
    return "google" if "GoogleModel" in kinds else "any"


def _reply(message: Message) -> ModelResponse:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    calls = [ToolCallPart(call.name, arguments_text(call), call.id) for call in message.tool_calls]
    # No empty text before calls: some providers refuse one.
    return ModelResponse([TextPart(message.text), *calls] if message.text or not calls else calls)


def usage_of(reply: ModelResponse, total: int = 0) -> Usage | None:
    """Return the usage that the provider reports, and the `total` of `Asked`; None without one."""
    spent = reply.usage
    return read_usage(spent.input_tokens, spent.output_tokens, total, spent.cost or Decimal(0))


def finish_of(reply: ModelResponse) -> Finish:
    """Return why the reply ended."""
    details = reply.provider_details or {}
    if "block_reason" in details:  # Gemini refused the prompt
        return "content_filter"
    known = finish_of_word(reply.finish_reason)
    # pydantic-ai does not map every word; the provider's own one is in the details.
    return finish_of_word(str(details.get("finish_reason"))) if known == "stop" else known


def billing_of(reply: ModelResponse) -> Billing:
    """Return the facts that the price depends on: cached tokens, and the service that the provider reports."""
    spent, details = reply.usage, reply.provider_details or {}
    return read_billing(
        spent.cache_read_tokens,
        spent.cache_write_tokens,
        spent.cache_write_1h_tokens,
        reasoning_tokens(reply),
        {name: word for name, word in details.items() if isinstance(word, str)},
    )


def tool_definition(tool: ToolSpec) -> ToolDefinition:
    """Return the description of a tool for the model."""
    from pydantic_ai.tools import ToolDefinition

    parameters: Any = thaw(tool.parameters) or {"type": "object", "properties": {}}
    return ToolDefinition(name=tool.name, parameters_json_schema=parameters, description=tool.description or None)


class Pieces:
    """Emit a streamed reply piece by piece: the text, which the joined pieces are, and separately the reasoning."""

    def __init__(self, on_text: Callable[[str], object], on_thinking: Callable[[str], object]) -> None:
        self._on_text, self._on_thinking = on_text, on_thinking
        self._held = ""
        """Blank text at the beginning, as a reply without more has no text, and thoughts between tags."""
        self._thought = False
        """Whether thoughts came between tags."""
        self._last: type[Any] | None = None
        """The class of the part that began last."""
        self._begun: set[type[Any]] = set()
        self.text = ""
        """The pieces of text so far."""

    def take(self, event: ModelResponseStreamEvent) -> None:
        """Emit what an event adds to the reply."""
        from pydantic_ai import messages as native

        if isinstance(event, native.PartStartEvent):
            kind = type(event.part)
            # The parts of a text are joined like this where something else is between them; thoughts always are.
            apart = kind in self._begun and (kind is native.ThinkingPart or kind is not self._last)
            self._last = kind
            self._begun.add(kind)
            if isinstance(event.part, native.TextPart):
                self._add(_BETWEEN * apart + event.part.content)
            elif isinstance(event.part, native.ThinkingPart):
                self._think(_BETWEEN * apart + event.part.content)
        elif isinstance(event, native.PartDeltaEvent):
            if isinstance(event.delta, native.TextPartDelta):
                self._add(event.delta.content_delta)
            elif isinstance(event.delta, native.ThinkingPartDelta):
                self._think(event.delta.content_delta or "")

    def end(self, text: str) -> str:
        """Emit the rest of a whole reply's text, such as a refusal's words; return the text that was emitted."""
        if text.startswith(self.text):
            self._held = text[len(self.text) :]
            self._emit()
        return self.text

    def _add(self, piece: str) -> None:
        self._held += sound(piece)
        # Only at the start can tags mean thoughts; later they are text.
        if not self.text:
            if may_be_thought(self._held, len(piece)):
                return
            thoughts, rest = split_thoughts(self._held)
            self._think(thoughts)
            self._thought = self._thought or rest != self._held
            self._held = rest.lstrip() if self._thought else rest
            if may_be_thought(self._held, 0):
                return
        self._emit()

    def _emit(self) -> None:
        """Emit the text that is held, unless it is blank and the reply has no other."""
        if self._held and (self.text or self._held.strip()):
            piece, self._held = self._held, ""
            self.text += piece
            self._on_text(piece)

    def _think(self, piece: str) -> None:
        if piece:
            self._on_thinking(sound(piece))
