"""`kairo judge try` and `kairo schema rubric`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kairo_team.evaluators import Rubric

ROOT = Path(__file__).resolve().parents[2]
JUDGE = ("--judge", "examples/judge_calibration.py:judge")
RUBRIC = """\
criteria:
  - id: short
    text: at most 12 words
    check: {max_words: 12}
  - id: plain
    text: a ten-year-old knows every word
    by: judge
"""
Kairo = Callable[..., Any]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, Path]:
    monkeypatch.chdir(ROOT)
    rubric, text = tmp_path / "rubric.yaml", tmp_path / "text.md"
    rubric.write_text(RUBRIC)
    text.write_text("The moon pulls the sea, so the tide comes in twice a day, everywhere on the coast.")
    return rubric, text


def test_it_shows_each_criterion_and_who_decided_it(kairo: Kairo, files: tuple[Path, Path]) -> None:
    said = kairo("judge", "try", *files, *JUDGE)
    assert (said.code, said.err) == (0, "")
    head, *lines = said.out.splitlines()
    assert head.startswith("revise, score 0.")
    assert lines[:2] == ["  short: not met (gate, by a check)", "      the text has 17 words, at most 12 are allowed"]
    assert lines[2] == "  plain: met (gate, by the judge)"
    assert lines[-1].startswith("the judge: 1 call, ")


def test_the_prompt_is_shown_on_request_with_every_message(
    kairo: Kairo, files: tuple[Path, Path], tmp_path: Path
) -> None:
    files[0].write_text(f"{RUBRIC}    reference: true\n")
    (tmp_path / "known.txt").write_text("It is the moon.")
    said = kairo(
        "judge", "try", *files, *JUDGE, "--prompt", "--task", "Explain tides.", "--reference", tmp_path / "known.txt"
    )
    for part in ("call 1, system", "call 1, user", "call 1, reply", "Explain tides.", "It is the moon."):
        assert part in said.out
    assert "the judge was not asked" in kairo("judge", "try", *files, "--prompt").out


def test_the_document_has_the_verdict_and_the_calls(kairo_json: Kairo, files: tuple[Path, Path]) -> None:
    said = kairo_json("judge", "try", *files, *JUDGE, "--json", "--prompt")
    document = said.document
    assert (document["outcome"], document["exit_code"], document["threshold"]) == ("revise", 0, 1.0)
    assert [(one["id"], one["by"], one["kind"], one["level"]) for one in document["criteria"]] == [
        ("short", "check", "gate", "not met"),
        ("plain", "judge", "gate", "met"),
    ]
    (call,) = document["prompt"]
    assert [one["role"] for one in call["messages"]] == ["system", "user", "user"]
    assert call["reply"]


def test_a_judge_without_a_review_has_an_exit_code_of_its_own(kairo: Kairo, files: tuple[Path, Path]) -> None:
    said = kairo("judge", "try", *files, *JUDGE, "--budget", "tokens=5")
    assert (said.code, said.err) == (4, "")
    assert said.out.startswith("review_exceeded (judge_budget): ")


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--judge", "nobody:knows"), "nobody"),
        (("--task", " "), "--task is what the text is for"),
        (("--reference", "nowhere.txt"), "--reference: 'nowhere.txt' cannot be read: No such file"),
        (("--reference", "BLANK"), "is blank: give an answer that is known to be right"),
        (("--reference", "BINARY"), "is not UTF-8 text: give a text file"),
        (("--budget", "tokens=many"), "tokens"),
        (("--budget", "tokens=-1"), "--budget: "),
        (("--timeout", "0"), "timeout must be"),
    ],
)
def test_bad_input_is_one_sentence(
    kairo: Kairo, files: tuple[Path, Path], tmp_path: Path, more: tuple[str, str], complaint: str
) -> None:
    (tmp_path / "BLANK").write_text(" \n")
    (tmp_path / "BINARY").write_bytes(b"\xff\xfe\x00")
    option, value = more
    said = kairo(
        "judge",
        "try",
        *files,
        *(() if option == "--judge" else JUDGE),
        option,
        tmp_path / value if value.isupper() else value,
    )
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert complaint in said.err


def test_the_schema_is_printed(kairo_json: Kairo) -> None:
    said = kairo_json("schema", "rubric")
    assert (said.code, said.err) == (0, "")
    assert said.document == json.loads(json.dumps(Rubric.json_schema()))
