"""The commits of a repository that concern its users: `git log`, filtered by plain rules.

A commit gets a sentence when its subject begins with a verb of `KINDS`, after the usual decorations (`feat(cli): ...`,
`gh-1234: ...`, `... (#567)`) are removed, and no word in `NOISE` shows that it is about the project's internals. Other
commits that say they are a feature, a fix or a breaking change are quoted unchanged. The rest is left out, with the
reason.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from kairo_team._util.counts import count
from kairo_team.errors import Misuse

MOST: Final = 8
"""Sentences of one set of notes."""
LOOKED_AT: Final = 500
"""Commits read from a history, newest first."""
CURATED: Final = Path(__file__).with_name("release_notes_data") / "history.json"

SHORTEST, LONGEST, WIDEST = 4, 16, 100
"""Fewest and most words of a subject for a sentence, and characters of a line."""

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
_TYPE: Final = re.compile(
    r"^(?P<type>(?P<named>BREAKING(?:[ -]CHANGE)?)|[\w./+-]+)(?:\((?P<scope>[^()]*)\))?(?:(?P<breaking>!):\s*|:\s+)"
)
_KIND_OF_TYPE: Final = {"feat": "add", "fix": "fix", "perf": "change"}
"""Types of commits that concern users, whatever their subject says."""
_BREAKING_BODY: Final = re.compile(r"^BREAKING[ -]CHANGE:", re.MULTILINE)
_REFERENCE: Final = re.compile(r"\s*(?:\((?:[^()]*#|gh-|bpo-)\d+[^()]*\)|#\d+)$", re.IGNORECASE)
_NOUN: Final = re.compile(
    r"^\w+ (?:for|of|in|on|and|or|types?|values?|codes?|buttons?|lists?|order|pages?|views?)\b", re.IGNORECASE
)
"""Beginnings with a word that is a noun here, not a verb: "Support for tags", "Return type of parse"."""
_SECOND_VERB: Final = re.compile(rf"(?:\band|,|&|\+)\s+(?:{'|'.join(KIND_OF)})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Commit:
    """One commit to write about. `subject` is bare: no prefix, no issue number, an imperative verb first."""

    id: str
    subject: str
    kind: str
    breaking: bool = False


class Logged(NamedTuple):
    """One commit of the log."""

    id: str
    subject: str
    body: str = ""

    @property
    def breaking(self) -> bool:
        """Whether the commit says that it breaks something, in its subject or below."""
        prefix = _TYPE.match(_DECORATIONS.sub("", self.subject.strip()))
        said = bool(prefix and (prefix["breaking"] or prefix["named"]))
        return said or _BREAKING_BODY.search(self.body) is not None


class LeftOut(NamedTuple):
    """A commit that the notes do not mention, and why."""

    commit: Logged
    why: str

    def __str__(self) -> str:
        breaking = "BREAKING " if self.commit.breaking else ""
        return f"{breaking}{self.commit.id} {shown(self.commit.subject)}: {self.why}"


@dataclass(frozen=True)
class Picked:
    """The commits of a log, newest first, each in one of three groups."""

    commits: tuple[Commit, ...]
    """Commits that get a sentence each."""
    quoted: tuple[Commit, ...] = ()
    """Commits for users that no sentence can be made from by rule: their subject is printed as it is."""
    left_out: tuple[LeftOut, ...] = ()
    older: int = 0
    """Number of older commits that were read for breaking changes alone."""

    @property
    def looked_at(self) -> int:
        """The number of commits in the log."""
        return len(self.commits) + len(self.quoted) + len(self.left_out) + self.older


@dataclass(frozen=True)
class History:
    """The picked commits and their origin."""

    picked: Picked
    source: str

    @property
    def commits(self) -> tuple[Commit, ...]:
        """The commits that get a sentence."""
        return self.picked.commits

    def describe(self) -> str:
        """Return how many commits the notes mention, and which they leave out with the reason, one line each."""
        picked = self.picked
        used = len(picked.commits) + len(picked.quoted)
        some = f"{used} of {picked.looked_at}" if used < picked.looked_at else str(used)
        lines = [f"{some} {'commit' if picked.looked_at == 1 else 'commits'} from {self.source}"]
        if picked.quoted:
            lines.append(f"quoted, not reworded: {', '.join(commit.id for commit in picked.quoted)}")
        first = sorted(picked.left_out, key=lambda one: not one.commit.breaking)
        lines += [f"left out: {one}" for one in first]
        if picked.older:
            breaking = f"of the newest {LOOKED_AT}, breaking changes are mentioned whatever their age"
            lines.append(
                f"left out: {count(picked.older, 'older commit')}; notes have {MOST} sentences, and {breaking}"
            )
        return "\n".join(lines)


def read(repo: Path | None = None) -> History:
    """Pick commits from `repo`, else from the repository around the working directory, else the curated commits.

    Raises `Misuse` if `repo` is given and cannot be read or has no commit that concerns users.
    """
    try:
        history = _of(repo or Path())
    except Misuse as error:
        if repo is not None:
            raise
        found = curated()
        return replace(found, source=f"{found.source} ({str(error).partition(': ')[0]})")
    return history


def curated() -> History:
    """Return the picked commits of kairo-team itself that come with the example."""
    log = json.loads(CURATED.read_text(encoding="utf-8"))
    return History(pick(Logged(*one) for one in log.items()), "the history of kairo-team, shipped as data")


def _of(place: Path) -> History:
    """Read the history of the repository at, or around, a directory."""
    if not place.expanduser().is_dir():
        raise Misuse(f"there is no directory {str(place)!r}")
    root = Path(_git(place.expanduser(), "rev-parse", "--show-toplevel").rstrip("\n"))
    picked = pick(_log(root))
    if not picked.looked_at:
        raise Misuse(f"{root.name} has no commits yet")
    if not picked.commits and not picked.quoted:
        first = "; ".join(f"{one.commit.id} {shown(one.commit.subject):.60}: {one.why}" for one in picked.left_out[:3])
        raise Misuse(
            f"no commit of the {picked.looked_at} of {root.name} is one that users would want to read about: the "
            f"subject of such a commit begins with an English verb, or with a type such as 'feat: '. "
            f"The newest: {first}"
        )
    return History(picked, f"the git history of {root.name}")


def pick(log: Iterable[Logged], most: int = MOST) -> Picked:
    """Sort a log, newest first, into `most` commits for a sentence, quoted commits, and left-out commits with reasons.

    Of the commits older than the last sentence only breaking changes are mentioned; they are quoted.
    """
    commits: list[Commit] = []
    quoted: list[Commit] = []
    left_out: list[LeftOut] = []
    older, seen, reverted = 0, set[str](), set[str]()
    for one in log:
        undone = re.match(r'Revert "(.*)"', one.subject)
        why = why_no_sentence(one.subject)
        bare = _plainest(one.subject)
        if undone:
            # The log is newest first, so this comes before the commit that it takes back.
            reverted.add(_plainest(undone[1]))
        if len(commits) == most and not one.breaking:
            older += 1
        elif undone:
            left_out.append(LeftOut(one, "it takes an older commit back"))
        elif bare in reverted:
            left_out.append(LeftOut(one, "it was taken back later"))
        elif bare in seen:
            left_out.append(LeftOut(one, "a newer commit says the same"))
        elif not why and len(commits) < most:
            seen.add(bare)
            commits.append(Commit(one.id, bare, KIND_OF[bare.partition(" ")[0].lower()], one.breaking))
        elif one.breaking or _is_for_users(one.subject):
            seen.add(bare)
            quoted.append(Commit(one.id, shown(one.subject), _kind_of(one.subject), one.breaking))
        else:
            left_out.append(LeftOut(one, why))
    return Picked(tuple(commits), tuple(quoted), tuple(left_out), older)


def understand(commit_id: str, subject: str) -> Commit | None:
    """Return the commit of a subject line, or None if no sentence can be made from it."""
    if why_no_sentence(subject):
        return None
    bare = _plainest(subject)
    return Commit(commit_id, bare, KIND_OF[bare.partition(" ")[0].lower()])


def why_no_sentence(subject: str) -> str:
    """Return why a subject gets no sentence, or "" if it gets one."""
    prefix, bare = _parts(subject)
    if prefix in _NOISY_TYPES:
        return f"a commit of type {prefix!r} is about the project itself"
    noise = NOISE.search(bare)
    if noise:
        return f"{noise[0]!r} is about the project itself"
    if not SHORTEST <= len(bare.split()) <= LONGEST:
        return f"its subject has {count(len(bare.split()), 'word')}, and a sentence is made of {SHORTEST} to {LONGEST}"
    if not _is_plain(bare):
        return "its subject is not one plain line with one verb"
    first = bare.partition(" ")[0]
    return "" if first.lower() in _VERB_OF else f"it begins with {shown(first)!r}, which is not a verb of the list"


def shown(subject: str) -> str:
    """Return a subject as it can be printed: one line, without control characters."""
    return " ".join("".join(one if one.isprintable() else " " for one in subject).split()) or "(no subject)"


def _plainest(subject: str) -> str:
    """Return a subject without decorations; a verb of the list is put in the imperative."""
    bare = _parts(subject)[1]
    first, _, rest = bare.partition(" ")
    verb = _VERB_OF.get(first.lower())
    return f"{verb.capitalize()} {rest}" if verb else bare


def _is_for_users(subject: str) -> bool:
    """Return whether a commit's type says that it concerns users, and no word says that it does not."""
    prefix, bare = _parts(subject)
    return prefix in _KIND_OF_TYPE and not NOISE.search(bare)


def _kind_of(subject: str) -> str:
    prefix, bare = _parts(subject)
    verb = _VERB_OF.get(bare.partition(" ")[0].lower(), "")
    return KIND_OF.get(verb) or _KIND_OF_TYPE.get(prefix, "change")


def _parts(subject: str) -> tuple[str, str]:
    """Return the type of a commit, "" without one, and its subject without decorations and tracker numbers."""
    bare = _DECORATIONS.sub("", subject.strip())
    prefix = _TYPE.match(bare)
    bare = bare[prefix.end() :] if prefix else bare
    while _REFERENCE.search(bare):
        bare = _REFERENCE.sub("", bare)
    return prefix["type"].lower() if prefix else "", bare.strip().removesuffix(".")


def _is_plain(bare: str) -> bool:
    """Return whether a subject is one readable line: nothing cut off, glued together or undecodable, and one verb."""
    in_one_piece = not re.search(r"[;\ufffd]|://|\.\.|\u2026|[.!?] ", bare) and bare.isprintable()
    return in_one_piece and len(bare) <= WIDEST and not _NOUN.match(bare) and not _SECOND_VERB.search(bare)


def _log(root: Path) -> Iterator[Logged]:
    """Read the commits on the current branch, newest first, merges left out."""
    if not _git(root, "rev-list", "-n1", "--all"):
        return
    # A subject can have any length: a subject longer than a line is cut here, and gets no sentence.
    shape = "--format=%h%x00%<(200,trunc)%s%x00%b"
    fields = _git(root, "log", f"-n{LOOKED_AT}", "--no-merges", "--no-show-signature", "-z", shape).split("\0")
    for commit_id, subject, body in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
        yield Logged(commit_id, subject.rstrip(), body)


def _git(place: Path, *arguments: str) -> str:
    """Run git, independent of its environment and configuration; raises `Misuse` if it fails."""
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


if __name__ == "__main__":
    print(read().describe())
