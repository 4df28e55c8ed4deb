"""`SkillFolder`: Agent Skills, folders with a SKILL.md, as a tool source."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from kairo_team.data.files import Unreadable, parts_of, read_yaml
from kairo_team.errors import first_of, known
from kairo_team.tools.tool import Tool, as_tool, fitting_name

MAX_SKILLS: Final = 100
MAX_SKILL: Final = 100_000
"""Most bytes of a SKILL.md."""
MAX_FILE: Final = 1_000_000
"""Most bytes of any other file that is read."""
MAX_FILES: Final = 200
"""Most files of a skill that are listed."""
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1_024
MAX_LIST: Final = 9_000
"""Most characters of all names and descriptions, which are in every prompt."""

_MAIN: Final = "SKILL.md"
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FRONT: Final = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class Skill(NamedTuple):
    """One skill: the name and description that every prompt has, and its folder."""

    name: str
    description: str
    folder: Path


@dataclass(frozen=True, slots=True, repr=False)
class SkillFolder:
    """A folder of Agent Skills for members: a `ToolSource` with one tool that reads them.

    Each folder with a SKILL.md is a skill. The tool's description lists their names and descriptions. A model
    calls the tool with a name to read the SKILL.md, and then with a file that the text refers to. Nothing is ever run:
    a script is a file that another tool of yours may run, under the team's permissions.

    The front matter is checked when the object is made: `name` (the folder's name: lower-case letters, digits and
    hyphens) and `description` (at most 1,024 characters); other keys are ignored. Links that lead out of a skill,
    files that are not regular files and files that are too large are refused. Raises `ValueError` with a sentence for
    each mistake, and `MissingExtra` without the extra `yaml`.
    """

    path: str | os.PathLike[str]
    name: str = ""
    """The source's name, also at the beginning of its tool's name; default: the folder's name."""
    skills: tuple[Skill, ...] = field(init=False, compare=False)
    """The skills, by name."""

    def __post_init__(self) -> None:
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            raise ValueError(f"there is no folder {str(folder)!r}: give the folder that has a folder for each skill")
        folder = folder.resolve()
        object.__setattr__(self, "path", folder)
        object.__setattr__(self, "name", self.name or folder.name)
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(f"SkillFolder.name must be a text that is not blank, not {self.name!r}")
        object.__setattr__(self, "skills", _skills_in(folder))

    def __repr__(self) -> str:
        return f"<SkillFolder {self.name!r} with {known(one.name for one in self.skills)}>"

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        """Yield the one tool; there is nothing to connect."""
        listed = "\n".join(f"- {one.name}: {one.description}" for one in self.skills)
        description = (
            f"Read a skill: instructions for one kind of work. Read the skill that fits before you begin.\n{listed}"
        )
        yield [as_tool(self._read, name=fitting_name(f"{self.name}_read"), description=description, side_effect="read")]

    def _read(self, skill: str, file: str = _MAIN) -> str:
        """Read one file of a skill.

        Args:
            skill: the skill's name
            file: a file that its SKILL.md names, such as references/forms.md
        """
        found = next((one for one in self.skills if one.name == skill), None)
        if found is None:
            raise ValueError(f"there is no skill {skill!r}: the skills are {known(one.name for one in self.skills)}")
        try:
            text = _text_of(found.folder, file, MAX_SKILL if file == _MAIN else MAX_FILE)
        except (ValueError, OSError) as error:
            why = error if isinstance(error, ValueError) else (error.strerror or type(error).__name__)
            others = known(_files_of(found.folder), none="no other files")
            raise ValueError(f"{file!r} of the skill {skill!r} cannot be read: {why}; it has {others}") from None
        if file != _MAIN:
            return text
        front = _FRONT.match(text)
        body = text[front.end() :] if front else text
        files = list(_files_of(found.folder))
        return f"{body.strip()}\n\nFiles in {found.folder}: {', '.join(files)}" if files else body.strip()


def _skills_in(folder: Path) -> tuple[Skill, ...]:
    """Read the front matter of every skill."""
    places = sorted(one for one in folder.iterdir() if os.path.lexists(one / _MAIN))
    if not places:
        raise ValueError(f"{folder} has no skills: a skill is a folder in it with a {_MAIN}")
    if len(places) > MAX_SKILLS:
        raise ValueError(f"{folder} has {len(places)} skills, and at most {MAX_SKILLS} are allowed")
    skills: list[Skill] = []
    problems: list[str] = []
    for place in places:
        try:
            skills.append(_skill_in(place))
        except (ValueError, OSError) as error:
            problems.append(f"{place / _MAIN}: {error}")
    if problems:
        raise ValueError(first_of(problems))
    size = sum(len(one.name) + len(one.description) for one in skills)
    if size > MAX_LIST:
        raise ValueError(
            f"{folder}: the names and descriptions of its {len(skills)} skills have {size:,} characters, and at most "
            f"{MAX_LIST:,} are allowed, because they are in every prompt: shorten them, or make two folders"
        )
    return tuple(skills)


def _skill_in(folder: Path) -> Skill:
    """Read a skill; raises `ValueError` for one that is not valid."""
    if folder.is_symlink():
        raise ValueError("its folder is a link, which is not followed: copy the skill")
    front = _FRONT.match(_text_of(folder, _MAIN, MAX_SKILL))
    if front is None:
        raise ValueError("it must begin with front matter: a line ---, name and description, and a line ---")
    try:
        values: Any = read_yaml(front[1]).value
    except Unreadable as error:
        where = f"line {error.line + 1}: " if error.line else ""
        raise ValueError(f"{where}{error}") from None
    if not isinstance(values, Mapping):
        raise ValueError("its front matter must have the keys name and description")
    keys = parts_of(values)
    name, description = keys.get("name"), keys.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ValueError(
            f"its name must be 1 to {MAX_NAME} lower-case letters, digits and single hyphens, not {name!r:.80}"
        )
    if name != folder.name:
        raise ValueError(f"its name must be the folder's, {folder.name!r}, not {name!r}")
    if not isinstance(description, str) or not description.strip():
        raise ValueError(f"its description must be a text on what it does and when to use it, not {description!r:.80}")
    if len(description) > MAX_DESCRIPTION:
        raise ValueError(
            f"its description has {len(description):,} characters, and at most {MAX_DESCRIPTION:,} are allowed"
        )
    return Skill(name, " ".join(description.split()), folder)


def _text_of(folder: Path, name: str, largest: int) -> str:
    """Read a text file inside a folder; raises `ValueError` for any other file, and for a path that leads out."""
    path = Path(name)
    if "\0" in name or path.is_absolute() or ".." in path.parts:
        raise ValueError("the path must be relative, without '..'")
    inside = (folder / path).resolve()
    if not inside.is_relative_to(folder.resolve()):
        raise ValueError("it is a link that leads out of the skill")
    # Opening a named pipe would wait for its other end.
    opened = os.open(inside, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(opened, "rb") as stream:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ValueError("it is not a regular file")
        raw = stream.read(largest + 1)  # one more shows that there is more; the size on disk may change
    if len(raw) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    try:
        return raw.decode("utf-8-sig")  # editors on Windows write a mark at the start
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _files_of(folder: Path) -> Iterator[str]:
    """Yield the other files of a skill, at most `MAX_FILES`; links and hidden ones are left out."""
    count = 0
    for place, folders, files in os.walk(folder):
        # In place: `os.walk` descends into what is left.
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for one in sorted(files):
            path = Path(place) / one
            if one.startswith(".") or path.is_symlink() or path == folder / _MAIN:
                continue
            count += 1
            if count > MAX_FILES:
                return
            yield path.relative_to(folder).as_posix()
