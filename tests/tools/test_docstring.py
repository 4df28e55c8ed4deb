"""Docstrings that are hard to read: none is an error, and none loses what it says of a parameter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.tools import signature
from kairo_team.tools.tool import as_tool

PIECES = (
    *(":", ": :", "::", ":param", ":param a: x", ":param int a b c: x", ":class:`A` is", "@param", "@param a: x", "@"),
    *("Args:", "    a: x", "    a (int): x", "  a", "a, b : int", "Parameters", "Returns", "----", "---", "", "word"),
)


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=9).map("\n".join))
def test_audit_g21_no_docstring_is_an_error(docstring: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = docstring
    assert "\n" not in as_tool(add).description


@pytest.mark.parametrize("line", [":class:`Sum` is what it returns.", "::\n\n    add(1, 2)", ": : both"])
def test_audit_g21_a_line_that_starts_with_a_colon_hides_no_parameter(line: str) -> None:
    def add(a: int) -> int:
        return a

    add.__doc__ = f"Add.\n\n{line}\n\nArgs:\n    a: the first\n"
    assert as_tool(add).description == "Add."
    assert as_tool(add).parameters["properties"]["a"]["description"] == "the first"


def test_audit_g21_parameters_described_together_are_described_each() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = "Add.\n\nParameters\n----------\na, b : int\n    a number\n"
    assert [one["description"] for one in as_tool(add).parameters["properties"].values()] == ["a number", "a number"]


@given(st.text(st.characters(exclude_characters=":@-=", codec="utf-8") | st.sampled_from(" \n\t"), max_size=60))
def test_a_text_without_a_mark_is_read_as_the_parser_reads_it(text: str) -> None:
    """So most docstrings, which are of one sentence, do not need the parser."""
    readings = signature._readings(text)
    assert not any(reading.params for reading in readings)
    described = [signature._first_paragraph(one) for one in readings if text.strip()]
    assert set(described) <= {signature.read_docstring(text)[0]}
