"""The operations of an OpenAPI 3 document as tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import quote

import httpx

from kairo_team.tools import Tool, ToolResult

__all__ = ["OpenApi"]

METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
READS: Final = frozenset({"get", "head"})
LONGEST: Final = 100_000
"""Most characters of a result; the rest is cut off, with a note."""


class Operation(NamedTuple):
    """One operation of the document."""

    name: str
    method: str
    path: str
    description: str
    places: Mapping[str, str]
    """Where each argument goes: path, query, header or body, by name."""
    schema: Mapping[str, Any]


class OpenApi:
    """A service that has an OpenAPI document. `ValueError` for a document without operations."""

    def __init__(
        self,
        name: str,
        document: Mapping[str, Any],
        base_url: str,
        headers: Mapping[str, str] | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = name
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._transport = transport
        self._operations = list(_operations(name, document))
        if not self._operations:
            raise ValueError(f"the document of {name!r} has no operations with an operationId: it has no tools")

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        """Open a client, see that the service answers, and yield the tools."""
        async with httpx.AsyncClient(
            base_url=self._base_url, headers=self._headers, timeout=30, transport=self._transport
        ) as client:
            try:
                await client.head("/")
            except httpx.TransportError as error:
                raise ConnectionError(f"{self.name!r} at {self._base_url} does not answer: {error!r}") from error
            yield [self._tool(client, one) for one in self._operations]

    def _tool(self, client: httpx.AsyncClient, operation: Operation) -> Tool:
        effect: Literal["read", "system"] = "read" if operation.method in READS else "system"
        call = partial(_call, client, operation)
        return Tool(operation.name, call, operation.description, operation.schema, side_effect=effect)


async def _call(client: httpx.AsyncClient, operation: Operation, arguments: Mapping[str, Any]) -> ToolResult:
    """Send one operation; the reply's text is the result."""
    path, query, headers, body = operation.path, dict[str, Any](), dict[str, str](), dict[str, Any]()
    for name, value in arguments.items():
        match operation.places[name]:
            case "path":
                path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
            case "query":
                query[name] = value
            case "header":
                headers[name] = str(value)
            case _:
                body[name] = value
    sent = {"json": body} if body else {}
    reply = await client.request(operation.method, path, params=query, headers=headers, **cast("Any", sent))
    text = reply.text if len(reply.text) <= LONGEST else f"{reply.text[:LONGEST]}\n[{len(reply.text):,} characters]"
    if reply.is_error:
        return ToolResult(f"the service answered with status {reply.status_code}: {text}", is_error=True)
    return ToolResult(text)


def _operations(source: str, document: Mapping[str, Any]) -> Iterator[Operation]:
    paths: Mapping[str, Any] = document.get("paths", {})
    for path, item in paths.items():
        for method in METHODS:
            operation: Any = item.get(method)
            if operation is None or "operationId" not in operation:
                continue
            properties, required, places = dict[str, Any](), list[str](), dict[str, str]()
            for given in (*item.get("parameters", ()), *operation.get("parameters", ())):
                parameter = _resolved(document, given)
                name = parameter["name"]
                places[name] = parameter["in"]
                properties[name] = _resolved(document, parameter.get("schema", {}))
                if parameter.get("required"):
                    required.append(name)
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            body = _resolved(document, content.get("schema", {}))
            for name, schema in body.get("properties", {}).items():
                places[name] = "body"
                properties[name] = _resolved(document, schema)
            required += body.get("required", ())
            schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
            text = operation.get("summary") or operation.get("description") or ""
            yield Operation(f"{source}_{operation['operationId']}", method, path, text, places, schema)


def _resolved(document: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references inside the document; nothing else is fetched."""
    for _ in range(20):
        if "$ref" not in given:
            return given
        place = given["$ref"]
        if not place.startswith("#/"):
            raise ValueError(f"{place!r} is in another document: bundle it into this one")
        found: Any = document
        for step in place[2:].split("/"):
            found = found[step.replace("~1", "/").replace("~0", "~")]
        given = found
    raise ValueError(f"{given['$ref']!r} refers to itself")
