"""Events in a file, one JSON document a line: `JsonLines` writes it, `read_events` reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from kairo_team._util.frozen import known_arguments
from kairo_team.events import Event, event_from_json


@known_arguments
class JsonLines:
    """A subscriber that appends every event to a file: `Runtime(subscribers=[JsonLines("events.jsonl")])`.

    Each line is handed to the operating system at once, so that a process that dies loses none. Runs may share a file;
    every event has its `run_id`. A new file is readable by its owner alone. Raises `OSError` for a file that cannot be
    written.
    """

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path) or not str(path):
            raise ValueError(f"JsonLines takes the path of a file, such as 'events.jsonl', not {path!r}")
        self.path = Path(path)
        # Appended without a buffer: a process that dies loses no event, and runs may share the file.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file: IO[bytes] = os.fdopen(descriptor, "ab", buffering=0)

    def __call__(self, event: Event) -> None:
        """Write one event."""
        self._file.write(event.to_json().encode() + b"\n")

    def close(self) -> None:
        """Close the file; events that come later raise `ValueError`."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"JsonLines({str(self.path)!r})"


def read_events(path: str | Path) -> Iterator[Event]:
    """Yield the events of a file, in order; leave out a last line that a dying process did not finish.

    Raises `OSError` for a file that cannot be read, and `ValueError`, which names the line, for a line without an
    event.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield event_from_json(line)
            except (json.JSONDecodeError, UnicodeDecodeError):
                raise ValueError(f"{path}, line {number}: it is not JSON") from None
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
