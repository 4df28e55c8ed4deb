"""The page of kits is the one that is written from them, and leaves nothing out."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from kairo_team import tck
from kairo_team.cli.kit_parts import class_methods, parts_of_kit
from kairo_team.tck.kit import make_it
from tests.kits_page import page

PAGE = Path(__file__).resolve().parents[1] / "docs/kits.md"
KITS = [name for name in tck.__all__ if name.endswith("TCK") and name != "ContractTCK"]


def test_the_page_is_the_one_that_is_written_from_the_kits() -> None:
    assert PAGE.read_text("utf-8") == page() + "\n", "run `python -m tests.kits_page > docs/kits.md`"


@pytest.mark.parametrize("name", KITS)
def test_every_class_attribute_of_a_kit_is_a_capability_with_its_meaning(name: str) -> None:
    kit: Any = getattr(tck, name)
    parts = parts_of_kit(kit)
    declared = {
        attribute
        for kind in kit.__mro__
        for attribute in getattr(kind, "__annotations__", {})
        if not attribute.startswith("_") and attribute not in {"contract", "pytestmark"}
    }
    shown = {one.name: one for one in (*parts.capabilities, *parts.shared)}
    assert shown.keys() == declared
    for one in shown.values():
        assert one.what.endswith("."), one
        assert one.default, one


@pytest.mark.parametrize("name", KITS)
def test_every_factory_is_there_and_what_may_be_said_in_its_place_is_a_capability(name: str) -> None:
    kit: Any = getattr(tck, name)
    parts = parts_of_kit(kit)
    factories = {one.signature.partition("(")[0] for one in parts.factories}
    required = {
        attribute
        for kind in kit.__mro__
        for attribute, function in class_methods(kind)
        if make_it.__name__ in inspect.getsource(function)
    }
    assert required <= factories
    for one in parts.factories:
        assert one.what.endswith("."), one
        assert not (one.has_default and one.instead)
        if one.instead is not None:
            capability, _, value = one.instead.partition(" = ")
            assert isinstance(getattr(kit, capability), bool)
            assert isinstance(ast.literal_eval(value), bool)
    assert [one.has_default for one in parts.factories] == sorted(one.has_default for one in parts.factories)


@pytest.mark.parametrize("name", KITS)
def test_a_factory_that_is_missing_is_asked_for_with_the_same_words(name: str) -> None:
    """Those without a parameter that the default looks at."""
    kit: Any = getattr(tck, name)
    for one in parts_of_kit(kit).factories:
        factory = one.signature.partition("(")[0]
        if not one.has_default and factory != "write_judgement":
            parameters = inspect.signature(getattr(kit, factory)).parameters.values()
            arguments = [None for each in parameters if each.default is each.empty]
            with pytest.raises(NotImplementedError, match=rf"override the class method {factory}\(cls") as asked:
                getattr(kit, factory)(*arguments)
            assert one.instead is None or f"or say {one.instead}" in str(asked.value)
