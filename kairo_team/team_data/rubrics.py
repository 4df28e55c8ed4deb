"""Rubrics inside a team: their data, or the paths of their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from kairo_team.evaluators.data_files import SUFFIXES, Place, parts_of, read_data
from kairo_team.evaluators.data_mistakes import sentences
from kairo_team.evaluators.rubric import Rubric
from kairo_team.evaluators.rubric_data import rubric_of
from kairo_team.team_data.reading import MISSING, Missing, Reading
from kairo_team.team_data.shapes import Definitions, Schema, Shape


class RubricOf(Shape):
    """A rubric: its data, or the path of its file."""

    says = "a rubric or the path of its file"

    def fits(self, value: Any) -> bool:
        """Take mappings and paths of files of data."""
        return isinstance(value, Mapping) or (isinstance(value, str) and value.lower().endswith(SUFFIXES))

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Make the rubric; each mistake in its file becomes a mistake here, with its line there."""
        if isinstance(value, Mapping):
            made, mistakes = rubric_of(Rubric, value)
            for one in mistakes:
                reading.refuse((*place, *one.path), one.says, one.key)
            return MISSING if made is None else made
        return self._load(value, place, reading) if self.fits(value) else self.refuse(value, place, reading)

    def _load(self, text: str, place: Place, reading: Reading) -> Any:
        path = reading.path(text, place)
        if isinstance(path, Missing):
            return path
        try:
            found = read_data(Path(path))
        except (ValueError, ImportError, OSError) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return reading.refuse(place, f"names {text!r:.80}, which cannot be read: {said}")
        made, mistakes = rubric_of(Rubric, found.value)
        for one in sentences(mistakes, text, found.line_of):
            reading.refuse(place, f"names a rubric that is wrong: {one}")
        return MISSING if made is None else made

    def schema(self, definitions: Definitions) -> Schema:
        """Refer to the schema of rubrics."""
        if "Rubric" not in definitions:
            own = Rubric.json_schema()
            inner = {f"Rubric.{name}": one for name, one in own.pop("$defs", {}).items()}
            own.pop("$schema", None)
            definitions.update(cast("Definitions", _moved(inner)))
            definitions["Rubric"] = _moved(own)
        files = {"type": "string", "pattern": r"\.(yaml|yml|toml|json)$", "description": "The path of a rubric."}
        return {"anyOf": [{"$ref": "#/$defs/Rubric"}, files]}


def _moved(node: Any) -> Any:
    """Return a rubric's schema with its references changed to the new names of its definitions."""
    parts = parts_of(node)
    if isinstance(node, list):
        return [*map(_moved, parts.values())]
    if not isinstance(node, Mapping):
        return node
    made = {key: _moved(one) for key, one in parts.items()}
    if isinstance(made.get("$ref"), str):
        made["$ref"] = made["$ref"].replace("#/$defs/", "#/$defs/Rubric.")
    return made
