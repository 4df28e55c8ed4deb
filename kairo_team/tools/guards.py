"""`RuleGuard`: decide by ordered rules which tools may touch which files and run which commands."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

from kairo_team._util.frozen import freeze
from kairo_team._util.narrowing import is_mapping, is_several, is_tuple
from kairo_team.permissions import PermissionAction, PermissionDecision, SideEffect
from kairo_team.tools.commands import LONGEST, Command, CommandGlob
from kairo_team.tools.paths import UNDECIDED, Folders, Path, PathGlob, as_path, paths_of_words

PATH_ARGUMENTS: Final = frozenset(
    {
        *("path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "pathname"),
        *("dir", "dirs", "directory", "directories", "folder", "folders", "cwd", "workdir", "root"),
        *("source", "sources", "src", "destination", "dest", "dst", "target", "targets"),
        *("from", "to", "into", "output", "location", "uri", "url"),
    }
)
"""Names of arguments that count as paths; so does every name that ends in `_` and one of them (`output_file`)."""
COMMAND_ARGUMENTS: Final = frozenset({"command", "commands", "cmd", "argv"})
"""Names of arguments that count as commands, in the same way."""
HARMLESS_ARGUMENTS: Final = frozenset(
    {
        *("body", "content", "contents", "description", "encoding", "message", "subject", "text", "title"),
        *("file_text", "new_str", "new_string", "new_text", "old_str", "old_string", "old_text"),
    }
)
"""Names of arguments that count as plain text, neither paths nor commands; only these exact names, in any case."""

_MOST_TEXTS: Final = 1_000
"""Most paths, commands and other strings of one call that are examined; the others count as undecided."""
_MOST_LETTERS: Final = 100_000
"""Most characters of these strings together."""
_RULE: Final = re.compile(r"\s*([^()\s]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
# For `max`: a call is as bad as the worst of what it touches.
_SEVERITY: Final[Mapping[PermissionAction, int]] = {"allow": 0, "ask": 1, "deny": 2}
_Role = Literal["path", "harmless", "undeclared"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`Tool` or `Tool(glob)`, and the decision for the calls that match: see `RuleGuard`.

    `Tool` is a tool's name; `*` in it matches any characters. The glob matches paths or the words of a command.
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
        object.__setattr__(self, "tool", found[1])  # the class is frozen
        object.__setattr__(self, "glob", None if found[2] is None else found[2].strip())

    @classmethod
    def allow(cls, pattern: str) -> Rule:
        """Make a rule that allows the calls that match."""
        return cls("allow", pattern)

    @classmethod
    def deny(cls, pattern: str) -> Rule:
        """Make a rule that refuses the calls that match."""
        return cls("deny", pattern)

    @classmethod
    def ask(cls, pattern: str) -> Rule:
        """Make a rule that leaves the calls that match to a human."""
        return cls("ask", pattern)

    def __str__(self) -> str:
        return f"{self.action} {self.pattern}"


class RuleGuard:
    """Decide by rules in order: for each path, command or other string of a call, the first rule that matches counts.

    Of several decisions the strictest wins; when no rule matches, `default` counts. Paths are compared after `..`, `~`
    and links are resolved. Relative paths begin at `root` (default: the working directory at this moment), which must
    also be the working directory of the tools. In a glob for paths `*` and `?` match within one name, and `**` matches
    any number of names. A glob for commands is compared word by word: `*` matches within one word, and as the last word
    it matches zero or more further words.

    When in doubt it refuses. A glob that allows matches a command only if it is a single one, without `;`, `|`, `&`,
    `$`, `>` and the like, only if all other paths of the call lie below `root`, and never in a call with a string of an
    undeclared argument. A rule that denies or asks matches everything that may be what it names: a path as it was
    written, in any case; a part of a longer command, with its program at any position and after any path, and with
    options between its words; and each word of a command as a path, or as a glob for paths if a shell may expand it,
    including values glued to options. `tool(*)` then matches every call. Only a rule without a glob allows calls with
    neither path nor command.

    `paths`, `commands` and `harmless` name the arguments of each kind; they replace `PATH_ARGUMENTS`,
    `COMMAND_ARGUMENTS` and `HARMLESS_ARGUMENTS`.
    """

    __slots__ = ("_names", "_rules", "default", "root")

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        default: PermissionAction = "deny",
        root: str | os.PathLike[str] | None = None,
        paths: Iterable[Annotated[str, "the name of an argument"]] = PATH_ARGUMENTS,
        commands: Iterable[str] = COMMAND_ARGUMENTS,
        harmless: Iterable[str] = HARMLESS_ARGUMENTS,
    ) -> None:
        if default not in get_args(PermissionAction):
            raise ValueError(f"RuleGuard.default must be allow, deny or ask, not {default!r}")
        self.default: PermissionAction = default
        # Resolved once, because the working directory may change before a call.
        self.root: str = os.path.realpath("." if root is None else os.fspath(root))
        self._rules = [_Fitted(rule, self.root) for rule in _checked(rules)]
        self._names = _Names(_names("paths", paths), _names("commands", commands), _names("harmless", harmless))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in order."""
        return tuple(fitted.rule for fitted in self._rules)

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        """Decide about one call; the decision names the rule."""
        folders = Folders(self.root)
        # Frozen, so that every list is a tuple: `_subjects_below` knows two kinds of containers.
        given: Mapping[str, Any] = freeze(arguments)
        found = (
            one
            for name, held in given.items()
            for one in _subjects_below(name, held, "undeclared", self._names, folders)
        )
        subjects = _bounded(found, folders)
        rules = [fitted for fitted in self._rules if fnmatchcase(tool, fitted.rule.tool)]
        beside = any(isinstance(subject, _Text) and subject.argument is None for subject in subjects)
        decisions = [self._decide(tool, rules, subject, beside=beside) for subject in subjects or (None,)]
        decisions += _refused_together(tool, rules, [one for one in subjects if isinstance(one, _Text)], folders)
        # `max` takes the first of equals, so the reason names the first rule in order.
        return max(decisions, key=lambda decision: _SEVERITY[decision.action])

    def _decide(self, tool: str, rules: Sequence[_Fitted], subject: Subject, *, beside: bool) -> PermissionDecision:
        """Decide by the first rule that matches a subject; `beside` is True when the call has a command."""
        for fitted in rules:
            if fitted.fits(subject, beside=beside):
                return _decision(fitted.rule.action, str(fitted.rule), tool, subject)
        return _decision(self.default, f"default {self.default}", tool, subject)

    def __repr__(self) -> str:
        return f"RuleGuard({list(self.rules)!r}, default={self.default!r}, root={self.root!r})"


@dataclass(frozen=True)
class _Text:
    """A command of a call, or a string of an undeclared argument."""

    command: Command
    folders: Folders
    argument: str | None = None
    """The name of the undeclared argument; None for a command."""

    @cached_property
    def paths(self) -> Sequence[Path]:
        """The paths that its words may mean."""
        words = self.command.words
        return [UNDECIDED] if words is None else paths_of_words(words, self.folders)

    def __str__(self) -> str:
        if self.argument is None:
            return str(self.command)
        return f"{self.command} of {self.argument!r}, which is declared neither a path, a command nor harmless,"


class _Rest(_Text):
    """Placeholder for the texts of a call beyond the limits: it may be anything."""

    def __str__(self) -> str:
        return f"more than {_MOST_TEXTS:,} texts or {_MOST_LETTERS:,} characters, which is too much to examine,"


def _bounded(subjects: Iterator[Path | _Text], folders: Folders) -> Sequence[Path | _Text]:
    """Return the subjects up to the limits, and one placeholder if there are more."""
    found, letters = list[Path | _Text](), 0
    for subject in subjects:
        letters += len(subject.text if isinstance(subject, Path) else subject.command.text)
        if len(found) == _MOST_TEXTS or letters > _MOST_LETTERS:
            # Too long to be examined, so every rule that refuses matches it.
            return [*found, _Rest(Command(" " * (LONGEST + 1)), folders)]
        found.append(subject)
    return found


Subject = Path | _Text | None
"""The subject of a rule: a path, a command, another string, or a call without any."""


class _Fitted:
    """A rule with its compiled globs."""

    __slots__ = ("_command", "_path", "rule")

    def __init__(self, rule: Rule, root: str) -> None:
        self.rule = rule
        self._path = None if rule.glob is None else PathGlob(rule.glob, root)
        self._command = None if rule.glob is None else CommandGlob(rule.glob)

    def fits(self, subject: Subject, *, beside: bool) -> bool:
        """Return whether the rule matches; one that denies or asks, however the subject is spelled."""
        path, command = self._path, self._command
        if path is None or command is None:
            return True
        if self.rule.action != "allow":
            # `tool(*)` refuses also what has no path to compare.
            if self.rule.glob in ("*", "**"):
                return True
            if isinstance(subject, _Text):
                return command.touches(subject.command) or any(path.touches(one) for one in subject.paths)
            return subject is not None and path.touches(subject)
        if isinstance(subject, _Text):
            # An undeclared argument may contain anything, so no glob can allow it.
            return subject.argument is None and command.fits(subject.command)
        return subject is not None and (subject.is_inside if beside else path.fits(subject))


def _refused_together(
    tool: str, rules: Sequence[_Fitted], texts: Sequence[_Text], folders: Folders
) -> Iterator[PermissionDecision]:
    """Yield a decision on the strings of a call joined to one command, such as a program and its arguments."""
    if len(texts) < 2:  # noqa: PLR2004 - a single one is checked by itself
        return
    together = _Text(Command(" ".join(text.command.text for text in texts)), folders)
    for fitted in rules:
        if fitted.rule.action == "allow":
            if fitted.rule.glob is None:  # this rule allows all, before any later one refuses
                return
        elif fitted.fits(together, beside=True):
            yield _decision(fitted.rule.action, str(fitted.rule), tool, together)
            return


def _decision(action: PermissionAction, by: str, tool: str, subject: Subject) -> PermissionDecision:
    what = f"{tool!r} on {subject}" if subject is not None else repr(tool)
    words = {"allow": "may be used", "deny": "may not be used", "ask": "needs approval"}[action]
    return PermissionDecision(action, f"{what} {words} (rule: {by})", by)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of arguments, by their kind."""

    paths: frozenset[str]
    commands: frozenset[str]
    harmless: frozenset[str]

    def are_commands(self, argument: str) -> bool:
        return _is_one_of(argument, self.commands)

    def role(self, argument: str, outer: _Role) -> _Role:
        """Return the kind of the strings in an argument; inside a path argument all are paths, except harmless ones."""
        if _is_one_of(argument, self.paths):
            return "path"
        if argument.lower() in self.harmless:
            return "harmless"
        return "path" if outer == "path" else "undeclared"


def _subjects_below(key: str, value: Any, outer: _Role, names: _Names, folders: Folders) -> Iterator[Path | _Text]:
    """Yield the paths, commands and undeclared strings of an argument; a command that may be a path is yielded as both.

    The names of the tool's own parameters are not among them.
    """
    role = names.role(key, outer)
    if value is not None and names.are_commands(key):
        words = [str(word) for word in value] if is_tuple(value) else [str(value)]
        # `commands` is a list of commands, `argv` one command in words; joined, it can be compared with a glob.
        for text in words if key.endswith("s") or not is_tuple(value) else [shlex.join(words)]:
            yield _Text(Command(text), folders)
        if role != "path":
            return
    yield from _held(key, value, role, names, folders)


def _held(key: str, value: Any, role: _Role, names: _Names, folders: Folders) -> Iterator[Path | _Text]:
    if is_mapping(value):
        for name, held in value.items():
            # A key inside an argument may be data: in a path argument, or when it is not an identifier.
            undeclared = not names.are_commands(name) and names.role(name, "undeclared") == "undeclared"
            if undeclared and role == "path":
                yield from as_path(name, folders)
            elif undeclared and not name.isidentifier():
                yield _Text(Command(name), folders, key)
            yield from _subjects_below(name, held, role, names, folders)
    elif is_tuple(value):
        for held in value:
            yield from _held(key, held, role, names, folders)
    elif role == "path" and value is not None:
        yield from as_path(value, folders)
    elif role == "undeclared" and not isinstance(value, bool | int | float | None) and str(value).strip():
        yield _Text(Command(str(value)), folders, key)


def _is_one_of(argument: str, names: frozenset[str]) -> bool:
    """Return whether an argument has one of the names or ends in one; `filePath` counts as `file_path`."""
    # Models and servers write names in every convention; a guard must not miss one.
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", argument).lower().replace("-", "_")
    return plain in names or any(plain.endswith(f"_{name}") for name in names)


def _checked(rules: Any) -> Sequence[Rule]:
    if is_mapping(rules) or not is_several(rules):
        raise ValueError(
            f"RuleGuard.rules must be a list of rules, such as Rule.allow('read_file(src/**)'), not {rules!r}"
        )
    found = tuple(rules)
    for rule in found:
        if not isinstance(rule, Rule):
            raise ValueError(f"a rule is made by Rule.allow, Rule.deny or Rule.ask; {rule!r} is not one")
    return found


def _names(option: str, names: Any) -> frozenset[str]:
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"RuleGuard.{option} must be names of arguments, not {names!r}")
    return frozenset(name.lower() for name in names)
