"""The files that options name, to be read or to be written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kairo_team.cli.refusal import Refusal, explain

Found = TypeVar("Found")


def read_input(option: str, place: Path, load: Callable[[Path], Found]) -> Found:
    """Load one of the input files; `Refusal` for one that cannot be read."""
    try:
        return load(place)
    except (ValueError, OSError) as error:
        why = explain(error) if isinstance(error, OSError) else str(error)
        raise Refusal(f"{option} {str(place)!r}: {why}") from None


def read_text(what: str, file: Path, otherwise: str = "give a text file") -> str:
    """Return the text of a file that an argument named; `otherwise` is the advice for any other file."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Refusal(f"{what}: {str(file)!r} is not UTF-8 text: {otherwise}") from None
    except OSError as error:
        raise Refusal(f"{what}: {str(file)!r} cannot be read: {explain(error)}") from None


def check_output(option: str, place: Path | None, inputs: Sequence[str]) -> None:
    """Refuse a path that cannot be written, and the path of an input; inputs may be FILE.py:NAME."""
    if place is None:
        return
    try:
        if place.is_dir():
            raise Refusal(f"{option} {str(place)!r} is a directory: give the path of a file")
        if not place.parent.is_dir():
            raise Refusal(f"{option} {str(place)!r}: there is no directory {str(place.parent)!r}: make it first")
        read = [Path(one) for text in inputs for one in (text, text.rpartition(":")[0])]
        if any(place.exists() and one.exists() and place.samefile(one) for one in read):
            raise Refusal(f"{option} {str(place)!r} is a file that is read here: give another path")
    except OSError as error:
        raise unwritable(option, place, error) from None


def write_output(option: str, place: Path, text: str) -> None:
    """Write one of the output files."""
    try:
        place.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise unwritable(option, place, error) from None


def unwritable(option: str, place: Path, error: OSError) -> Refusal:
    """Return the refusal of a path that cannot be written."""
    return Refusal(f"{option} {str(place)!r} cannot be written: {error.strerror or error}: name another place")
