"""`kairo judge compare`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Kairo = Callable[..., Any]
JUDGES = """
from kairo_team.testing import FunctionModel, ScriptedPairJudge

short = ScriptedPairJudge(lambda a, b: "tie" if len(a) == len(b) else "first" if len(a) < len(b) else "second")
front = ScriptedPairJudge(lambda a, b: "first")
seen = set()


def wavering(a, b):  # a tie in its first answer, if the shorter text is in front
    known, _ = (a, b) in seen, seen.add((a, b))
    right = "first" if len(a) < len(b) else "second"
    return right if known or len(a) > len(b) else "tie"


wavers = ScriptedPairJudge(wavering)
broken = FunctionModel(lambda request: "yes", name="test:broken")
"""


@pytest.fixture
def judges(team_file: Callable[..., Path]) -> Path:
    return team_file(JUDGES)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for folder, texts in (("a", ("The moon.", "The sea is wide.")), ("b", ("The moon pulls.", "The sea."))):
        (tmp_path / folder).mkdir()
        for number, text in enumerate(texts):
            (tmp_path / folder / f"{number}.md").write_text(text)
    return tmp_path / "a", tmp_path / "b"


def test_two_directories_are_compared_name_by_name(kairo: Kairo, judges: Path, folders: tuple[Path, Path]) -> None:
    said = kairo("judge", "compare", *folders, "--judge", f"{judges}:short")
    assert (said.code, said.err) == (0, "")
    assert "2 pairs, each in both orders" in said.out
    assert "first is better   1 of 2, 50.0%" in said.out
    assert "0.md  first" in said.out
    assert "1.md  second" in said.out


def test_a_judge_that_prefers_the_front_flips(kairo_json: Kairo, judges: Path, folders: tuple[Path, Path]) -> None:
    found = kairo_json("judge", "compare", *folders, "--judge", f"{judges}:front", "--json").document
    assert (found["flips"]["k"], found["ties"]["k"], found["exit_code"]) == (2, 2, 0)
    assert found["usage"]["tokens"] > 0


def test_with_votes_a_pair_is_decided_by_most_answers(kairo: Kairo, judges: Path, folders: tuple[Path, Path]) -> None:
    given = ("judge", "compare", *folders, "--judge", f"{judges}:wavers")
    assert "flips             2 of 2" in kairo(*given).out
    said = kairo(*given, "--votes", 3).out
    assert "flips             0 of 2" in said
    assert "first is better   1 of 2" in said


def test_two_files_and_a_judge_without_an_answer(kairo: Kairo, judges: Path, folders: tuple[Path, Path]) -> None:
    files = (folders[0] / "0.md", folders[1] / "0.md")
    assert "0.md and 0.md  first" in kairo("judge", "compare", *files, "--judge", f"{judges}:short").out
    said = kairo("judge", "compare", *files, "--judge", f"{judges}:broken")
    assert said.code == 4
    assert "no answer" in said.out


def test_third_o60_why_there_is_no_answer_is_shown_whole_and_once(
    kairo: Kairo, judges: Path, folders: tuple[Path, Path]
) -> None:
    said = kairo("judge", "compare", *folders, "--judge", f"{judges}:broken")
    last = said.out.splitlines()[-1]
    assert last.startswith("No answer, most often: ")
    assert "there is no JSON object" in last
    assert said.out.count("No answer, most often: ") == 1


def test_what_cannot_be_compared_is_a_sentence(kairo: Kairo, judges: Path, folders: tuple[Path, Path]) -> None:
    given = ("--judge", f"{judges}:short")
    one, other = folders
    assert "give two files, or two directories" in kairo("judge", "compare", one, other / "0.md", *given).err
    poor = kairo("judge", "compare", one, other, *given, "--budget", "tokens=10")
    assert poor.code in (2, 4)
    assert "token" in poor.out + poor.err
    (one / "2.md").write_text("lone")
    said = kairo("judge", "compare", one, other, *given)
    assert said.code == 2
    assert f"'2.md' is in '{one}' and not in '{other}'" in said.err
    missing = other / "no"
    for pair, which in (((one, missing), "SECOND"), ((missing, one), "FIRST"), ((one / "0.md", missing), "SECOND")):
        said = kairo("judge", "compare", *pair, *given)
        assert said.code == 2
        assert f"{which}: '{missing}' does not exist" in said.err
