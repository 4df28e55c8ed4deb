"""Check the declarations of an MCP server: schemas, names, results."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kairo_team._util.frozen import thaw
from kairo_team.files import File
from kairo_team.output_types import JsonSchema, short

if TYPE_CHECKING:
    from mcp.types import CallToolResult

MAX_NAME: Final = 64

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")


def checked_arguments(schema: JsonSchema, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments as plain JSON values; `ValueError` for those that do not fit the server's schema."""
    plain: dict[str, Any] = thaw(arguments)
    try:
        json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:  # a lone surrogate, an infinity, a set
        raise ValueError(f"they cannot be sent as JSON: {short(error)}") from error
    checked: dict[str, Any] = schema.checked(plain)
    return checked


def model_names(server: str, tools: Sequence[str]) -> list[str]:
    """Make one name per tool that any provider accepts, `<server>_<tool>`, all different, in order.

    Forbidden characters are replaced. The names depend only on the set of tools. A name that is too long, or would
    clash, ends in a hash of both names; of two equal names, the one that needed no change keeps it.
    """
    plain = [f"{server}_{tool}" for tool in tools]
    # Names that need no change are taken first, so that they do not depend on the others.
    taken = {name for name in plain if _is_fitting_name(name)}
    names: list[str] = []
    for name in plain:
        fitted = name
        if not _is_fitting_name(name):
            fitted = _UNFIT.sub("_", name)
            if len(fitted) > MAX_NAME or fitted in taken:
                digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
                fitted = f"{fitted[: MAX_NAME - 9]}_{digest}"  # 9: the underscore and eight digits
        taken.add(fitted)
        names.append(fitted)
    return names


def result_text(result: CallToolResult) -> str:
    """Join a result's blocks to one text; describe content that is not text by kind and size."""
    texts = [_block_text(block) for block in result.content]
    if not texts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(texts)


def result_files(result: CallToolResult) -> list[File]:
    """Return the images, recordings and other contents of a result as files; what cannot be one stays a description.

    A link is not followed.
    """
    files: list[File] = []
    for block in result.content:
        inner: Any = block.resource if block.type == "resource" else block
        data, uri = getattr(inner, "blob", getattr(inner, "data", None)), str(getattr(inner, "uri", ""))
        if not isinstance(data, str):
            continue
        # The name is the server's: it goes to prompts and files, so it is short and printable.
        name = "".join(one for one in unquote(uri.rpartition("/")[2])[:100] if one.isprintable()).strip()
        with suppress(ValueError):  # empty, too large, of no known type, or not base64
            files.append(File(data=b64decode(data, validate=True), media_type=inner.mime_type, name=name or None))
    return files


def _is_fitting_name(name: str) -> bool:
    return len(name) <= MAX_NAME and not _UNFIT.search(name)


def _block_text(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource_link":
        return _describe_block("resource", block.uri, block.mime_type, block.size)
    if block.type != "resource":
        return _describe_block(block.type, block.mime_type, _decoded_size(block.data))
    inner = block.resource
    if hasattr(inner, "text"):
        return f"{_describe_block('resource', inner.uri, inner.mime_type, len(inner.text.encode()))}\n{inner.text}"
    return _describe_block("resource", inner.uri, inner.mime_type, _decoded_size(inner.blob))


def _describe_block(*parts: str | int | None) -> str:
    """Describe a block: its kind, its name or type, its size in bytes."""
    *words, size = parts
    named = " ".join(str(word) for word in words if word)
    return f"[{named}]" if size is None else f"[{named}, {_size(int(size))}]"


def _decoded_size(base64: str) -> int:
    """Return how many bytes a base64 text encodes."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _size(count: int) -> str:
    if count < 1000:  # noqa: PLR2004 - a kilobyte
        return f"{count} B"
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"  # noqa: PLR2004 - a megabyte
