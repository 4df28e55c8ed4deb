"""Constraints by name: built in, and published by packages; loaded when a configuration names them and not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.governance import (
    ConstraintChain,
    CostLimit,
    ExternalSignal,
    MaxIterations,
    ResourceAction,
    ResourceContext,
    Timeout,
    TokenBudget,
    WarnAt,
)

pytestmark = pytest.mark.anyio


async def agent(assignment: kt.Assignment) -> str:
    return "done"


CONFIG: list[dict[str, Any]] = [
    {"name": "max-iterations", "n": 5},
    {"name": "token-budget", "n": 1000},
    {"name": "timeout", "seconds": 60},
    {"name": "cost-limit", "dollars": "0.50"},
    {"name": "external-signal", "signal": "stop", "every": 1.5},
    {"name": "warn-at", "constraint": {"name": "token-budget", "n": 1000}, "share": 0.5},
    {"name": "warn-at", "constraint": {"name": "cost-limit", "dollars": "0.50"}},
]


def test_the_built_in_constraints_are_configured_by_name() -> None:
    before = [dict(entry) for entry in CONFIG]
    assert ConstraintChain.from_config(CONFIG).constraints == (
        MaxIterations(5),
        TokenBudget(1000),
        Timeout(60),
        CostLimit("0.50"),
        ExternalSignal("stop", every=1.5),
        WarnAt(TokenBudget(1000), share=0.5),
        WarnAt(CostLimit("0.50")),
    )
    assert before == CONFIG, "what was handed in stays as it was"
    assert ConstraintChain.from_config([]).constraints == ()
    chain = ConstraintChain.from_config(CONFIG[:2])
    assert kt.Member("a", agent, constraints=chain).constraints == tuple(chain) == chain.constraints


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            [{"name": "time-out"}],
            "no constraint 'time-out'; did you mean 'timeout'[?] there are 'cost-limit', 'external-signal'",
        ),
        ([{"name": "timeout", "sec": 5}], "constraint 'timeout': there is no option 'sec'; its options are 'seconds'"),
        ([{"name": "timeout"}], "constraint 'timeout': missing a required argument: 'seconds'; its options"),
        ([{"name": "timeout", "seconds": -1}], "constraint 'timeout': Timeout.seconds must be a finite number above 0"),
        ([{"name": "timeout", "seconds": 5}, {"name": "timeout", "seconds": 6}], "'timeout' is configured twice"),
        ([CONFIG[5], CONFIG[5]], "'warn-at 0.5 token-budget' is configured twice"),
        ([{"name": "warn-at", "constraint": {"name": "x"}}], "there is no constraint 'x'"),
        ([{"name": "warn-at", "constraint": "timeout"}], "is a mapping with a name, not 'timeout'"),
        ([{"name": "warn-at", "constraint": {"name": "external-signal", "signal": "x"}}], "must have a method share"),
        ([{"seconds": 5}], "is a mapping with a name, not {'seconds': 5}; there are 'cost-limit'"),
        (["timeout"], "is a mapping with a name, not 'timeout'"),
        ({"name": "timeout"}, "configured by a list of mappings, not {'name': 'timeout'}"),
        (5, "configured by a list of mappings, not 5"),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(entries: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConstraintChain.from_config(entries)


GROUP = "kairo_team.constraints"
PLUGIN = """
from kairo_team.governance import ResourceAction, ResourceValidation

class OfficeHours:
    def __init__(self, *, closes: int = 17) -> None:
        self.closes = closes

    async def validate(self, context):
        return ResourceValidation(True, f"closed since {self.closes}")

    def on_violation(self, validation):
        return ResourceAction.GRACEFUL_EXIT

def nothing():
    return None
"""


async def test_a_published_constraint_is_loaded_by_name(published: Callable[..., None]) -> None:
    published("office", "office_hours_plugin", office_hours="OfficeHours")
    chain = ConstraintChain.from_config([{"name": "office-hours", "closes": 18}, {"name": "timeout", "seconds": 5}])
    report = await chain.evaluate(ResourceContext())
    assert (report.action, report.decided_by) == (ResourceAction.GRACEFUL_EXIT, "OfficeHours")
    assert report.violations[0].reason == "closed since 18"


def test_a_published_constraint_is_not_even_imported_unless_it_is_named(published: Callable[..., None]) -> None:
    published("office", "never_imported_plugin", broken="missing.name", max_iterations="OfficeHours")
    chain = ConstraintChain.from_config([{"name": "max-iterations", "n": 3}])
    assert chain.constraints == (MaxIterations(3),), "a built-in name stays built in"
    with pytest.raises(ValueError, match=r"'broken'.*'max-iterations'"):
        ConstraintChain.from_config([{"name": "unknown"}])
    with pytest.raises(ValueError, match=r"constraint 'broken' cannot be loaded from 'never_imported_plugin:missing"):
        ConstraintChain.from_config([{"name": "broken"}])


def test_what_is_published_twice_or_is_no_constraint_is_refused(published: Callable[..., None]) -> None:
    published("one", "plugin_one", same="OfficeHours", nothing="nothing")
    published("two", "plugin_two", same="OfficeHours")
    with pytest.raises(ValueError, match=r"'same@one' \(plugin_one:OfficeHours\) or 'same@two' \(plugin_two:Office"):
        ConstraintChain.from_config([{"name": "same"}])
    with pytest.raises(ValueError, match=r"constraint 'nothing': .*None lacks validate and on_violation"):
        ConstraintChain.from_config([{"name": "nothing"}])


def test_a_chain_shows_what_is_in_it() -> None:
    assert repr(ConstraintChain([MaxIterations(2)])) == "ConstraintChain([MaxIterations(n=2)])"
