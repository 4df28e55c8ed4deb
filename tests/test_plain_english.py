"""The English of docstrings, comments, messages and pages: places that are read twice get fewer, never more."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scripts.plain_english", reason="the scripts are not part of the wheel")

from scripts import plain_english

CEILINGS = {"code": 152, "docs": 15}
"""The most places of each; lower a ceiling when there are fewer. `make shape` prints them."""
PATHS = {"code": plain_english.CODE, "docs": plain_english.DOCS}


@pytest.mark.parametrize("name", CEILINGS)
def test_places_that_are_read_twice_only_get_fewer(name: str) -> None:
    count, ceiling = len(plain_english.places(PATHS[name])), CEILINGS[name]
    assert count <= ceiling, f"{count} places in the {name}, at most {ceiling}: python -m scripts.plain_english --list"
    assert ceiling - count <= 10, f"lower the ceiling of the {name} to {count}"


def test_texts_of_code_and_of_pages_are_read(tmp_path: Path) -> None:
    tmp_path.joinpath("a.py").write_text('"""Its place stands here, in the row."""\nx = "told"  # made anew\n')
    tmp_path.joinpath("a.md").write_text("It is no page.\n```\ntold\n```\nfine\n")
    found = [(one.path.name, one.line, one.patterns) for one in plain_english.places([tmp_path])]
    assert found == [
        ("a.md", 1, ["'no' for 'not a'", "pronoun first"]),
        ("a.py", 1, ["stands", "pronoun first"]),
        ("a.py", 2, ["anew"]),
    ]
