"""The rubric lets no sentence through that says what its commit does not, and says what is to be mended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.examples.release_notes_history import KIND_OF, past, understand
from kairo_team.examples.release_notes_rubric import CHECKS, PAST_TENSE, problems

SUBJECTS = [
    commit.subject
    for line in (Path(__file__).parent.parent / "data" / "commit_subjects.txt").read_text("utf-8").splitlines()
    if (commit := understand("abc", line))
]


def in_past_tense(subject: str) -> str:
    verb, _, rest = subject.partition(" ")
    return f"{past(verb.lower()).capitalize()} {rest}."


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_subject_in_the_past_tense_passes(subject: str) -> None:
    assert problems(in_past_tense(subject), subject) == {}


@pytest.mark.parametrize(
    ("sentence", "subject"),
    [
        ("Fixed a crash in the reader.", "Fix crash in reader"),
        ("Fixed crash in reader.", "Fix the crash in the reader"),
        ("Corrected the crash in the reader.", "Fix crash in the reader"),
        ("Introduced dark mode for tables.", "Add dark mode for tables"),
        ("Removed support for Python 3.6.", "Drop support for Python 3.6"),
        ("Added support for proxies in fetch().", "Support proxies in fetch()"),
        ("Renamed foo() to `bar()`.", 'Rename "foo()" to "bar()"'),
        ("Added py.typed marker to wheels.", "Add `py.typed` marker to wheels"),
        ("Kept .env files in the archive.", "Keep .env files in the archive"),
        ("Required C++17 on Windows.", "Require C++17 on Windows"),
        ("Let users choose our logo.", "Let users choose our logo"),
        ("Refused to overwrite files without --force.", "Refuse to overwrite files without --force"),
        ("Added 'a' key (experimental) to menus.", "Add 'a' key (experimental) to menus"),
    ],
)
def test_small_freedoms_are_allowed(sentence: str, subject: str) -> None:
    assert problems(sentence, subject) == {}


BAD = [
    # one sentence
    ("one-sentence", "Fixed crash in reader", "Fix crash in reader"),
    ("one-sentence", "Fixed crash in reader..", "Fix crash in reader"),
    ("one-sentence", "Fixed crash in reader!", "Fix crash in reader"),
    ("one-sentence", "Fixed the crash.", "Fix the crash in reader"),
    ("one-sentence", "Fixed crash. It was in reader.", "Fix crash in reader"),
    ("one-sentence", "Fixed crash\nin reader.", "Fix crash in reader"),
    ("one-sentence", "Fixed crash in reader; it was bad.", "Fix crash in reader"),
    ("one-sentence", "Fixed " + "crash in reader " * 9 + "now.", "Fix crash in reader"),
    ("one-sentence", "Fixed crash in \x1b[31mreader.", "Fix crash in reader"),
    ("one-sentence", "", "Fix crash in reader"),
    # past tense
    ("past-tense", "Fix crash in reader.", "Fix crash in reader"),
    ("past-tense", "Fixes crash in reader.", "Fix crash in reader"),
    ("past-tense", "Fixing crash in reader.", "Fix crash in reader"),
    ("past-tense", "fixed crash in reader.", "Fix crash in reader"),
    ("past-tense", "The crash in reader was fixed.", "Fix crash in reader"),
    ("past-tense", "Red crash in reader.", "Fix crash in reader"),
    # the kind
    ("same-kind", "Removed the retry option.", "Add the retry option"),
    ("same-kind", "Added the retry option.", "Remove the retry option"),
    ("same-kind", "Fixed the retry option.", "Add the retry option"),
    ("same-kind", "Added crash in reader.", "Fix crash in reader"),
    ("same-kind", "Deleted users from groups.", "Remove users from groups"),
    ("same-kind", "Resolved links in the sitemap.", "Fix links in the sitemap"),
    ("same-kind", "Renamed the CLI to its own package.", "Move the CLI to its own package"),
    ("same-kind", "Enabled telemetry on Windows.", "Disable telemetry on Windows"),
    ("same-kind", "Increased timeout in fetch.", "Reduce timeout in fetch"),
    ("same-kind", "Added support for reading files.", "Remove support for reading files"),
    ("same-kind", "Rejected tokens with spaces.", "Accept tokens with spaces"),
    # names, numbers, versions
    ("names-kept", "Dropped support for Python 3.7.", "Drop support for Python 3.6"),
    ("names-kept", "Dropped support for Python 3.60.", "Drop support for Python 3.6"),
    ("names-kept", "Dropped support for Python.", "Drop support for Python 3.6"),
    ("names-kept", "Dropped support for python 3.6.", "Drop support for Python 3.6"),
    ("names-kept", "Removed get_load from the module.", "Remove get_loader from the module"),
    ("names-kept", "Fixed crash in reader in Rails 3.1.", "Fix crash in reader"),
    ("names-kept", "Returned a copy from Headers.items().", "Return a copy from Headers.items"),
    ("names-kept", "Added -quiet flag to install.", "Add --quiet flag to install"),
    ("names-kept", "Limited a body to 5 MB.", "Limit a body to 50 MB"),
    ("names-kept", "Renamed A to B everywhere.", "Rename A to C everywhere"),
    ("names-kept", "Renamed the to B everywhere.", "Rename A to B everywhere"),
    # words
    ("words-kept", "Fixed exit code when a hook fails.", "Fix wrong exit code when a hook fails"),
    ("words-kept", "Allowed color output with NO_COLOR.", "Allow disabling color output with NO_COLOR"),
    ("words-kept", "Fixed crash in the reader.", "Fix crash in the reader on resume"),
    ("words-kept", "Deprecated bytes to parse_url quietly.", "Deprecate passing bytes to parse_url quietly"),
    ("words-kept", "Fixed crashes in the reader.", "Fix some crashes in the reader"),
    # nothing invented
    ("nothing-invented", "Added ARM64 wheels to the list command.", "Add ARM64 wheels"),
    ("nothing-invented", "Fixed broken links in sitemaps.", "Fix broken links in sitemap"),
    ("nothing-invented", "Fixed all crashes in the reader.", "Fix crashes in the reader"),
    ("nothing-invented", "Sped up loading of all templates.", "Speed up loading of templates"),
    ("nothing-invented", "Added support for reading settings from files.", "Add reading settings from files"),
    # the meaning
    ("meaning-kept", "Renamed bar to foo now.", "Rename foo to bar now"),
    ("meaning-kept", "Replaced a ring buffer with the queue.", "Replace the queue with a ring buffer"),
    ("meaning-kept", "Changed default from 30 to 10 seconds.", "Change default from 10 to 30 seconds"),
    ("meaning-kept", "Saved nothing before paying orders.", "Save nothing before orders paying"),
    ("meaning-kept", "Stopped following redirects from HTTP to HTTPS.", "Stop following redirects from HTTPS to HTTP"),
    ("meaning-kept", "Refused to overwrite files with --force.", "Refuse to overwrite files without --force"),
    ("meaning-kept", "Allowed users to enable the cache.", "Allow users to disable the cache"),
    ("meaning-kept", "Allowed requests that are signed.", "Allow requests that are not signed"),
    ("meaning-kept", "Required a key only on Windows.", "Require a key on Windows"),
    ("meaning-kept", "Checked names after saving files.", "Check names before saving files"),
    ("meaning-kept", "Disabled telemetry until the user opts in.", "Disable telemetry unless the user opts in"),
    (
        "meaning-kept",
        "Enabled compression for responses smaller than 1 MB.",
        "Enable compression for responses larger than 1 MB",
    ),
    ("meaning-kept", "Removed hooks when jobs no longer run.", "Remove hooks when jobs run"),
    # first person
    ("no-first-person", "Fixed our crash in the reader.", "Fix crash in the reader"),
    ("no-first-person", "Fixed the crash we had in the reader.", "Fix the crash in the reader"),
    ("no-first-person", "Fixed the crash I had in the reader.", "Fix the crash in the reader"),
    # said twice
    ("said-once", "Fixed crash crash in the reader.", "Fix crash in the reader"),
    ("said-once", "Fixed crash in the reader in the reader.", "Fix crash in the reader"),
    ("said-once", "Removed get_loader from get_loader quietly.", "Remove get_loader quietly"),
]


@pytest.mark.parametrize(("check", "sentence", "subject"), BAD)
def test_a_bad_sentence_is_found_by_its_check(check: str, sentence: str, subject: str) -> None:
    assert check in problems(sentence, subject)


@pytest.mark.parametrize(("check", "sentence", "subject"), BAD)
def test_a_finding_says_what_was_seen_and_what_to_do(check: str, sentence: str, subject: str) -> None:
    problem = problems(sentence, subject)[check]
    assert problem.observed
    assert re.fullmatch(r"[A-Z].*\.", problem.expected)


def test_every_check_has_a_bad_sentence_of_its_own() -> None:
    assert {check for check, _, _ in BAD} == set(CHECKS)


def test_every_verb_has_a_past_tense_that_may_begin_a_sentence() -> None:
    assert {past(verb).capitalize() for verb in KIND_OF} == set(PAST_TENSE)


@given(st.sampled_from(SUBJECTS), st.data())
def test_no_other_order_of_the_words_passes(subject: str, data: st.DataObject) -> None:
    words = subject.split()[1:]
    shuffled = data.draw(st.permutations(words))
    first = in_past_tense(subject).split()[0]
    same = [w for w in shuffled if w not in ("a", "an", "the")] == [w for w in words if w not in ("a", "an", "the")]
    assert (problems(f"{first} {' '.join(shuffled)}.", subject) == {}) == same


@given(st.sampled_from(SUBJECTS), st.sampled_from(SUBJECTS))
def test_the_sentence_of_another_commit_never_passes(subject: str, other: str) -> None:
    assert (problems(in_past_tense(other), subject) == {}) == (other == subject)


@given(st.sampled_from(SUBJECTS), st.data())
def test_no_word_can_be_left_out(subject: str, data: st.DataObject) -> None:
    words = in_past_tense(subject)[:-1].split()
    gone = data.draw(st.sampled_from([i for i, word in enumerate(words) if word not in ("a", "an", "the")]))
    assert problems(" ".join(words[:gone] + words[gone + 1 :]) + ".", subject)


@given(st.text(max_size=60), st.sampled_from(SUBJECTS))
def test_no_text_breaks_a_check(text: str, subject: str) -> None:
    assert problems(text, subject)
