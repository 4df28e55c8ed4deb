"""What a contract promises: one mark in its protocol's docstring, shown wherever the contract is named."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, get_args, runtime_checkable

import pytest

from kairo_team import contracts, plugins
from kairo_team.clauses import Promise, Stability, clauses_of, promise_of
from kairo_team.cluster.delivery import Delivery
from kairo_team.plugins import KINDS
from kairo_team.tck import KitReport
from tests import plugin_packages
from tests.test_plugins import EVERYTHING, TARGETS, points

pytest.importorskip("scripts.docs_site.public_names", reason="the scripts are no part of the wheel")

from scripts.docs_site.public_names import MODULES, public_names

install = plugin_packages.install
SUPPORT = Path(__file__).resolve().parents[1] / "docs/support.md"
PARTS = {
    "AgentOfContext": "Agent",
    "CallLog": "Journal",
    "Records": "Journal",
    "RunJournal": "Journal",
}
"""Protocols that state a part of another contract."""
GIVEN = {"GovernedChatModel", "MemberContext", "Models"}
"""Protocols of what the library hands out: nobody implements them."""


@cache
def protocols() -> dict[str, type]:
    """Every public protocol, and the one of engines, which has a public kit."""
    found: dict[str, type] = {"Delivery": Delivery}
    for module in map(import_module, MODULES):
        for name in public_names(module):
            value: Any = getattr(module, name)
            if isinstance(value, type) and getattr(value, "_is_protocol", False):
                found[name] = value
    return found


IMPLEMENTED = {name: one for name, one in protocols().items() if name not in {*PARTS, *GIVEN}}


def test_every_public_protocol_has_its_place() -> None:
    assert {*PARTS, *GIVEN} <= protocols().keys()
    assert {point.contract for point in KINDS.values()} - {"Tool"} <= IMPLEMENTED.keys()
    assert {name for name, one in protocols().items() if promise_of(one)} == IMPLEMENTED.keys()


@pytest.mark.parametrize("name", IMPLEMENTED)
def test_a_contract_has_a_mark_and_the_number_of_its_clauses_is_its_version(name: str) -> None:
    promise = promise_of(IMPLEMENTED[name])
    assert promise is not None
    assert promise.version.partition(".")[2] == str(len(clauses_of(IMPLEMENTED[name])))
    numbers = [f"C{place}" for place in range(1, len(clauses_of(IMPLEMENTED[name])) + 1)]
    assert list(clauses_of(IMPLEMENTED[name])) == numbers, "a number that is free is never used again"


@pytest.mark.parametrize("name", sorted(protocols()))
def test_what_is_implemented_can_be_asked_for_by_isinstance_and_nothing_else_can(name: str) -> None:
    kind = protocols()[name]
    if name in IMPLEMENTED:
        assert not isinstance(object(), kind)
    else:
        with pytest.raises(TypeError, match="runtime_checkable"):
            isinstance(object(), kind)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tool"])
def test_a_plug_in_is_an_instance_of_its_contract(kind: str, install: Any) -> None:
    install("acme-all", points("acme_all", TARGETS), EVERYTHING)
    made = plugins.make(kind, "acme", {"name": "acme:large"} if kind == "model" else {})
    contract = getattr(import_module(KINDS[kind].home), KINDS[kind].contract)
    if kind == "journal":  # that one has the shape that can be checked without a run, and no more
        from kairo_team.testing import MemoryJournal

        made = MemoryJournal()
    assert isinstance(made, contract)


def test_the_mark_is_read_from_the_first_line_and_from_a_line_of_its_own() -> None:
    @runtime_checkable
    class Short(Protocol):
        """Does it. Contract 2.3, stable."""

    class Long(Short):
        """Does it, and much besides, which takes more than one line to say.

        Contract 1.0, experimental.

        Contract 7.7, experimental. And a sentence after it is not a mark.
        """

    class Inherits(Short):
        pass

    assert promise_of(Short) == Promise("2.3", "stable")
    assert promise_of(Long) == Promise("1.0", "experimental")
    assert promise_of(Inherits) is None


def test_the_page_says_what_each_mark_means() -> None:
    text = SUPPORT.read_text("utf-8")
    assert all(f"`{mark}`" in text for mark in get_args(Stability))


def test_a_report_says_which_version_it_was_measured_by() -> None:
    told = json.loads(KitReport("TestIt", contracts.HumanGate, []).to_json())
    assert (told["contract"], told["version"], told["stability"]) == ("HumanGate", "1.5", "experimental")
