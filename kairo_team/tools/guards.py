"""`RuleGuard`: which tools may touch which files and run which commands, by ordered rules."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from kairo_team.frozen import freeze
from kairo_team.tools.commands import is_plain, readings
from kairo_team.tools.paths import Path, PathGlob, as_path, folded
from kairo_team.tools.permissions import PermissionAction, PermissionDecision

if TYPE_CHECKING:
    from kairo_team.tools.tool import SideEffect

PATH_ARGUMENTS: Final = frozenset(
    {
        *("path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "pathname"),
        *("dir", "dirs", "directory", "directories", "folder", "folders", "cwd", "workdir", "root"),
        *("source", "sources", "src", "destination", "dest", "dst", "target", "targets"),
    }
)
"""Names of arguments that are taken for paths; so is every name that ends in `_` and one of them (`output_file`)."""
COMMAND_ARGUMENTS: Final = frozenset({"command", "commands", "cmd", "argv"})
"""Names of arguments that are taken for commands, in the same way."""

_RULE: Final = re.compile(r"\s*([^()\s]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_SEVERITY: Final[Mapping[PermissionAction, int]] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Rule:
    """`Tool` or `Tool(glob)`, and what happens to the calls it fits: see `RuleGuard`.

    `Tool` is a tool's name, `*` in it stands for any characters. The glob is of paths or of a command.
    """

    action: PermissionAction
    pattern: str
    tool: str = field(init=False, repr=False, compare=False)
    glob: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.action not in get_args(PermissionAction):
            raise ValueError(f"Rule.action must be allow, deny or ask, not {self.action!r}")
        found = _RULE.fullmatch(self.pattern) if isinstance(self.pattern, str) else None
        if found is None or (found[2] is not None and not found[2].strip()):
            raise ValueError(f"a rule is written 'tool' or 'tool(glob)', not {self.pattern!r}")
        object.__setattr__(self, "tool", found[1])
        object.__setattr__(self, "glob", None if found[2] is None else found[2].strip())

    @classmethod
    def allow(cls, pattern: str) -> Rule:
        """Let the calls happen that it fits."""
        return cls("allow", pattern)

    @classmethod
    def deny(cls, pattern: str) -> Rule:
        """Refuse the calls that it fits."""
        return cls("deny", pattern)

    @classmethod
    def ask(cls, pattern: str) -> Rule:
        """Leave the calls that it fits to a human."""
        return cls("ask", pattern)

    def __str__(self) -> str:
        return f"{self.action} {self.pattern}"


class RuleGuard:
    """Decides by rules in order: for each path or command of a call the first rule that fits counts.

    Of several paths or commands the strictest decision wins; where no rule fits, `default`. Paths are compared as they
    are once `..`, `~` and links are resolved, those that are not absolute beginning at `root` (default: the working
    directory, now), which must be where the tools begin too. In a glob of paths `*` and `?` stay within one name and
    `**` is any number of them.

    In doubt it refuses. An allowing glob fits a command only if that is a single one, without `;`, `|`, `&`, `$`, `>`
    and the like, and only if all paths beside it lie below `root`. A rule that denies or asks also fits a path as it
    was written, in any case, and a part of a longer command; `tool(*)` then is every call. Only a rule without glob
    allows calls with neither path nor command.

    `paths` and `commands` are the names of the arguments that are such; see `PATH_ARGUMENTS`.
    """

    __slots__ = ("_commands", "_paths", "_rules", "default", "root")

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        default: PermissionAction = "deny",
        root: str | os.PathLike[str] | None = None,
        paths: Iterable[str] = PATH_ARGUMENTS,
        commands: Iterable[str] = COMMAND_ARGUMENTS,
    ) -> None:
        if default not in get_args(PermissionAction):
            raise ValueError(f"RuleGuard.default must be allow, deny or ask, not {default!r}")
        self.default: PermissionAction = default
        self.root: str = os.path.realpath("." if root is None else os.fspath(root))
        self._rules = [_Fitted(rule, self.root) for rule in _checked(rules)]
        self._paths = _names("paths", paths)
        self._commands = _names("commands", commands)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in order."""
        return tuple(fitted.rule for fitted in self._rules)

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        """Decide about one call; what it returns names the rule."""
        plain = freeze(arguments)
        commands = [_Command(text) for text in _commands(plain, self._commands)]
        paths = [path for value in _named(plain, self._paths) for path in as_path(value, self.root)]
        rules = [fitted for fitted in self._rules if fnmatchcase(tool, fitted.rule.tool)]
        decisions = [self._decide(tool, rules, command, beside=False) for command in commands]
        decisions += [self._decide(tool, rules, path, beside=bool(commands)) for path in paths]
        if not decisions:
            return self._decide(tool, rules, None, beside=False)
        return max(decisions, key=lambda decision: _SEVERITY[decision.action])

    def _decide(self, tool: str, rules: Sequence[_Fitted], subject: Subject, *, beside: bool) -> PermissionDecision:
        """Find the first rule that fits one path or command; `beside` says that the path stands beside a command."""
        for fitted in rules:
            if fitted.fits(subject, beside=beside):
                return _decision(fitted.rule.action, str(fitted.rule), tool, subject)
        return _decision(self.default, f"default {self.default}", tool, subject)

    def __repr__(self) -> str:
        return f"RuleGuard({list(self.rules)!r}, default={self.default!r}, root={self.root!r})"


@dataclass(frozen=True, slots=True)
class _Command:
    """A command of a call."""

    text: str

    def __str__(self) -> str:
        return repr(self.text[:200])


Subject = Path | _Command | None
"""What a rule is asked about: a path, a command, or a call that has neither."""


class _Fitted:
    """A rule, ready to be compared."""

    __slots__ = ("_path", "rule")

    def __init__(self, rule: Rule, root: str) -> None:
        self.rule = rule
        self._path = None if rule.glob is None else PathGlob(rule.glob, root)

    def fits(self, subject: Subject, *, beside: bool) -> bool:
        glob, path = self.rule.glob, self._path
        if glob is None or path is None:
            return True
        if self.rule.action != "allow":
            return glob in ("*", "**") or self._touches(subject, glob, path)
        if isinstance(subject, _Command):
            return is_plain(subject.text) and fnmatchcase(subject.text.strip(), glob)
        return subject is not None and (subject.is_inside if beside else path.fits(subject))

    def _touches(self, subject: Subject, glob: str, path: PathGlob) -> bool:
        """Say whether a rule that denies or asks has to do with it, however it is written."""
        if isinstance(subject, _Command):
            return any(fnmatchcase(reading, folded(glob)) for reading in readings(folded(subject.text)))
        return subject is not None and path.touches(subject)


def _decision(action: PermissionAction, by: str, tool: str, subject: Subject) -> PermissionDecision:
    what = f"{tool!r} on {subject}" if subject is not None else repr(tool)
    words = {"allow": "may be used", "deny": "may not be used", "ask": "needs approval"}[action]
    return PermissionDecision(action, f"{what} {words} (rule: {by})", by)


def _named(arguments: Any, names: frozenset[str], within: bool = False) -> Iterator[Any]:
    """Yield every single value that has such a name, or lies below one that has; None is nothing."""
    if isinstance(arguments, Mapping):
        for key, value in cast("Mapping[str, Any]", arguments).items():
            yield from _named(value, names, within or _is_one_of(key, names))
    elif isinstance(arguments, tuple):
        for value in cast("tuple[Any, ...]", arguments):  # type: ignore[redundant-cast]  # pyright needs it
            yield from _named(value, names, within)
    elif within and arguments is not None:
        yield arguments


def _commands(arguments: Any, names: frozenset[str]) -> Iterator[str]:
    """Yield the commands: texts, or lists of words; `commands` and the like are lists of commands."""
    if isinstance(arguments, tuple):
        for value in cast("tuple[Any, ...]", arguments):  # type: ignore[redundant-cast]  # pyright needs it
            yield from _commands(value, names)
    if not isinstance(arguments, Mapping):
        return
    for key, value in cast("Mapping[str, Any]", arguments).items():
        if value is None or not _is_one_of(key, names):
            yield from _commands(value, names)
        else:
            yield from _command_texts(key, value)


def _command_texts(key: str, value: Any) -> Iterator[str]:
    if not isinstance(value, tuple):
        yield str(value)
        return
    words = [str(word) for word in cast("tuple[Any, ...]", value)]  # type: ignore[redundant-cast]  # pyright needs it
    yield from words if key.endswith("s") else [shlex.join(words)]


def _is_one_of(argument: str, names: frozenset[str]) -> bool:
    """Say whether an argument has one of the names, or ends in it; `filePath` is `file_path`."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", argument).lower().replace("-", "_")
    return plain in names or any(plain.endswith(f"_{name}") for name in names)


def _checked(rules: Any) -> Sequence[Rule]:
    if isinstance(rules, str | Mapping) or not isinstance(rules, Iterable):
        raise ValueError(
            f"RuleGuard.rules must be a list of rules, such as Rule.allow('read_file(src/**)'), not {rules!r}"
        )
    found = tuple(cast("Iterable[Any]", rules))  # type: ignore[redundant-cast]  # pyright needs it
    for rule in found:
        if not isinstance(rule, Rule):
            raise ValueError(f"a rule is made by Rule.allow, Rule.deny or Rule.ask; {rule!r} is none")
    return found


def _names(option: str, names: Any) -> frozenset[str]:
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"RuleGuard.{option} must be names of arguments, not {names!r}")
    return frozenset(name.lower() for name in names)
