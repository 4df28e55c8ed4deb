"""The commits of a repository that concern its users: `git log`, filtered by plain rules.

A commit is picked when its subject begins with a verb of `KINDS`, after the usual decorations (`feat(cli): ...`,
`gh-1234: ...`, `... (#567)`) are removed, and no word in `NOISE` shows that it is about the project's internals.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kairo_team.errors import Misuse

MOST: Final = 8
"""Commits of one set of notes."""
LOOKED_AT: Final = 500
"""Commits read from a history, newest first."""
CURATED: Final = Path(__file__).with_name("release_notes_data") / "history.json"

SHORTEST, LONGEST, WIDEST = 4, 16, 100
"""Words of a subject from which a sentence can be made, and characters of a line."""

KINDS: Final = {
    "add": "accept add allow enable expose implement introduce permit provide support",
    "change": "change convert deprecate disable enforce extend hide ignore improve include increase keep let lower "
    "make move normalize optimize preserve raise reduce refuse reject rename replace require respect restrict return "
    "reuse send set shorten show simplify skip speed stop treat use validate verify warn write",
    "fix": "avoid correct ensure fix handle prevent repair resolve restore",
    "remove": "delete drop remove",
}
"""The verbs a commit may begin with, by the kind of change they announce.

Words that are nouns as often ("Cache invalidation for tenants", "Log rotation") are left out: plain rules cannot
distinguish them.
"""

_IRREGULAR: Final = {
    "drop": "dropped", "hide": "hid", "keep": "kept", "let": "let", "make": "made", "permit": "permitted",
    "send": "sent", "set": "set", "skip": "skipped", "speed": "sped", "stop": "stopped", "write": "wrote",
}  # fmt: skip


def past(verb: str) -> str:
    """Return the verb in the past tense: fix -> fixed."""
    regular = verb[:-1] + "ied" if verb.endswith("y") and verb[-2] not in "aeou" else verb + "ed"
    return _IRREGULAR.get(verb) or (verb + "d" if verb.endswith("e") else regular)


def _third_person(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in "aeou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("x", "ss", "sh", "ch")) else "s")


KIND_OF: Final = {verb: kind for kind, verbs in KINDS.items() for verb in verbs.split()}
_VERB_OF: Final = {form: verb for verb in KIND_OF for form in (past(verb), _third_person(verb), verb)}

NOISE: Final = re.compile(
    r"\b(typos?|changelog|readme|docs?|docstrings?|documentation|tests?|testing|ci|lint|linter|linting"
    r"|flake8|mypy|pyright|ruff|pylint|isort|pre-commit|coverage|codecov|travis|appveyor|github actions?|workflows?"
    r"|dependabot|renovate|refactor\w*|whitespace|copyright|benchmarks?|makefile|gitignore|fixup"
    r"|dependenc(y|ies)|internals?)\b|^(update|change|set|raise) (the )?version\b|^update \S+ (from \S+ )?to v?\d",
    re.IGNORECASE,
)
_NOISY_TYPES: Final = frozenset(
    {"build", "chore", "ci", "deps", "doc", "docs", "lint", "refactor", "release", "revert", "style", "test", "tests"}
)
_DECORATIONS: Final = re.compile(
    r"""^(?: \[[^\]]*\]\s* | :\w+:\s* | (?:gh|bpo)-\d+\s*[:-]\s* | \#\d+\s*[:-]+\s* | fixe[sd]\s+\#\d+\s+--\s+ )+""",
    re.IGNORECASE | re.VERBOSE,
)
_TYPE: Final = re.compile(r"^(?P<type>[\w./+-]+)(?:\((?P<scope>[^()]*)\))?!?:\s+")
_REFERENCE: Final = re.compile(r"\s*(?:\((?:[^()]*#|gh-|bpo-)\d+[^()]*\)|#\d+)$", re.IGNORECASE)
_NOUN: Final = re.compile(
    r"^\w+ (?:for|of|in|on|and|or|types?|values?|codes?|buttons?|lists?|order|pages?|views?)\b", re.IGNORECASE
)
"""What follows a verb that is none: "Support for tags", "Return type of parse"."""
_SECOND_VERB: Final = re.compile(rf"(?:\band|,|&|\+)\s+(?:{'|'.join(KIND_OF)})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Commit:
    """One commit to write about. `subject` is bare: no prefix, no issue number, an imperative verb first."""

    id: str
    subject: str
    kind: str


@dataclass(frozen=True)
class History:
    """The commits picked, newest first, and where they come from."""

    commits: tuple[Commit, ...]
    source: str


def read(repo: Path | None = None) -> History:
    """Pick commits from `repo`; without one from the repository around the working directory, else the curated ones.

    Raises `Misuse` when a repository was named and it cannot be read or has no commit that concerns users.
    """
    try:
        history = _of(repo or Path())
    except Misuse as error:
        if repo is not None:
            raise
        found = curated()
        return History(found.commits, f"{found.source} ({error})")
    return history


def curated() -> History:
    """Return the picked commits of kairo-team itself that come with the example."""
    log = json.loads(CURATED.read_text(encoding="utf-8"))
    return History(tuple(pick(log.items())), "the history of kairo-team, shipped as data")


def _of(place: Path) -> History:
    """Read the history of the repository at, or around, a directory."""
    if not place.expanduser().is_dir():
        raise Misuse(f"there is no directory {str(place)!r}")
    root = Path(_git(place.expanduser(), "rev-parse", "--show-toplevel").rstrip("\n"))
    commits = tuple(pick(_log(root)))
    if not commits:
        raise Misuse(f"none of the last {LOOKED_AT} commits of {root.name} is one that users would want to read about")
    return History(commits, f"the git history of {root.name}")


def pick(log: Iterable[tuple[str, str]], most: int = MOST) -> Iterator[Commit]:
    """Filter (id, subject) pairs, newest first; a commit that was reverted later is left out."""
    seen: set[str] = set()
    for commit_id, subject in log:
        reverted = re.match(r'Revert "(.*)"', subject)
        found = None if reverted else understand(commit_id, subject)
        if reverted:
            undone = understand(commit_id, reverted[1])
            seen.add(undone.subject if undone else "")
        elif found and found.subject not in seen:
            seen.add(found.subject)
            yield found
            most -= 1
            if not most:
                return


def understand(commit_id: str, subject: str) -> Commit | None:
    """Return the commit of a subject line, or None when the notes should not mention it."""
    bare = _undecorated(subject)
    if bare is None or NOISE.search(bare) or not _is_plain(bare):
        return None
    first, _, rest = bare.partition(" ")
    verb = _VERB_OF.get(first.lower())
    if verb is None:
        return None
    return Commit(commit_id, f"{verb.capitalize()} {rest}", KIND_OF[verb])


def _undecorated(subject: str) -> str | None:
    """Remove tracker numbers and the type prefix; None when the type is about internals."""
    bare = _DECORATIONS.sub("", subject.strip())
    prefix = _TYPE.match(bare)
    if prefix:
        if prefix["type"].lower() in _NOISY_TYPES:
            return None
        bare = bare[prefix.end() :]
    while _REFERENCE.search(bare):
        bare = _REFERENCE.sub("", bare)
    return bare.strip().removesuffix(".")


def _is_plain(bare: str) -> bool:
    """Return whether it is one readable line: nothing cut off, glued together or undecodable, and one verb."""
    in_one_piece = not re.search(r"[;\ufffd]|://|\.\.|\u2026|[.!?] ", bare) and bare.isprintable()
    fits = len(bare) <= WIDEST and SHORTEST <= len(bare.split()) <= LONGEST
    return in_one_piece and fits and not _NOUN.match(bare) and not _SECOND_VERB.search(bare)


def _log(root: Path) -> Iterator[tuple[str, str]]:
    """(short id, subject) of the commits on the current branch, newest first, merges left out."""
    if not _git(root, "rev-list", "-n1", "--all"):
        return
    # A subject can have any length; a subject longer than a line is cut here and skipped later.
    shape = "--format=%h%x09%<(200,trunc)%s"
    output = _git(root, "log", f"-n{LOOKED_AT}", "--no-merges", "--no-show-signature", "-z", shape)
    for line in filter(None, output.split("\0")):
        commit_id, _, subject = line.partition("\t")
        yield commit_id, subject.rstrip()


def _git(place: Path, *arguments: str) -> str:
    """Ask git, independent of its environment and configuration; raises `Misuse` when it cannot answer."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-pager", "-c", "i18n.logOutputEncoding=UTF-8", "-c", "color.ui=never", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, no shell
            command, cwd=place, env={**environment, "LC_ALL": "C"}, capture_output=True, timeout=30, check=False
        )
    except FileNotFoundError:
        raise Misuse("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise Misuse(f"git did not answer within 30 seconds in {str(place)!r}") from None
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip().splitlines() or ["it gives no reason"]
        if "not a git repository" in errors[0]:
            raise Misuse(f"{str(place.resolve())!r} is in no git repository")
        raise Misuse(f"git cannot read {str(place.resolve())!r}: {errors[0].removeprefix('fatal: ')}")
    return done.stdout.decode(errors="replace")
