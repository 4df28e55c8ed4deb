"""The reference of files of data, written from their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from kairo_team.data.teams import team_schema
from kairo_team.evaluators import Rubric
from scripts.docs_site import api_pages
from scripts.docs_site.pages import Page

SCHEMAS = {"team": team_schema, "rubric": Rubric.json_schema}
"""What `kairo schema NAME` prints."""

_HEAD = """# Files of data

The keys of a team and of a rubric in YAML, TOML or JSON. [Teams as data](../teams-from-data.md) and
[Rubrics and checks](../rubrics.md) show how they are used. `kairo schema team` and `kairo schema rubric` print the JSON
Schemas from which this page is written: [team.schema.json](team.schema.json),
[rubric.schema.json](rubric.schema.json). An editor that knows them completes the keys."""


def page() -> Page:
    """Write the page."""
    parts = [_HEAD]
    for name, make in SCHEMAS.items():
        schema = make()
        parts += [f"## A {name}", _described(schema, name.capitalize()), *_definitions(schema, name)]
    return Page("reference/configuration.md", "\n\n".join(parts))


def files() -> Iterator[tuple[str, str]]:
    """Return the schemas as files of the site."""
    for name, make in SCHEMAS.items():
        yield f"{name}.schema.json", json.dumps(make(), indent=2) + "\n"


def _definitions(schema: Mapping[str, Any], of: str) -> Iterator[str]:
    for name, one in sorted(schema.get("$defs", {}).items()):
        yield f"### {name} ({of})\n\n{_described(one, name)}"


def _described(schema: Mapping[str, Any], of: str) -> str:
    said = " ".join(str(schema.get("description", "")).split())
    required = schema.get("required", ())
    fields = api_pages.meanings(of)
    rows = [
        f"| `{key}`{' (required)' if key in required else ''} | {_type(one)} | {_meaning(one, fields.get(key, ''))} |"
        for key, one in schema.get("properties", {}).items()
    ]
    if not rows:
        return "\n\n".join(part for part in (said, f"One of: {_type(schema)}." if _type(schema) else "") if part)
    table = "\n".join(["| key | type | meaning |", "|---|---|---|", *rows])
    return f"{said}\n\n{table}" if said else table


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema.get("enum", [schema.get("const")]))
    several = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if several:
        return " or ".join(dict.fromkeys(each for each in map(_type, several) if each))
    kind: str | list[str] = schema.get("type", "")
    inner: Any = schema.get("items") or schema.get("additionalProperties")
    within = _type(cast("Mapping[str, Any]", inner)) if isinstance(inner, dict) else ""
    if within:
        return f"{'list' if kind == 'array' else 'mapping'} of {within}"
    words = {"array": "list", "object": "mapping"}
    return words.get(kind, kind) if isinstance(kind, str) else " or ".join(kind)


def _meaning(schema: Mapping[str, Any], field: str) -> str:
    said = " ".join(str(schema.get("description", field)).split())
    default = schema.get("default")
    shown = f" Default: `{json.dumps(default)}`." if "default" in schema and default is not None else ""
    return f"{said}{shown}".strip().replace("|", "\\|")
