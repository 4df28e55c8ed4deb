"""Templates of prompts: each set of them is compiled once, and no set reaches into another."""

from __future__ import annotations

import jinja2
import pytest

from kairo_team.prompts import Prompts


def test_the_same_templates_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs render them: compiling takes longer than all else a run does before it asks a model."""
    again = {"repair": "Once more, {{ who }}."}
    assert Prompts(again).render("repair", who="Ann") == "Once more, Ann."
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *_: pytest.fail("it was compiled again"))
    assert Prompts(again).render("repair", who="Ben") == "Once more, Ben."


def test_templates_of_one_run_are_not_those_of_another() -> None:
    first, second = Prompts({"repair": "First."}), Prompts({"repair": "Second."})
    assert [first.render("repair"), second.render("repair"), first.render("repair")] == ["First.", "Second.", "First."]
