"""Every wrong implementation is rejected by its kit, which names the clause."""

from __future__ import annotations

from importlib import import_module

import pytest

from kairo_team.tck import run_kit
from tests.mutants.kit_mutant import KitMutant

HOMES = (
    "agents",
    "checks",
    "coordinator_before",
    "coordinator_budget",
    "coordinator_cuts",
    "coordinator_people",
    "coordinator_reviews",
    "coordinator_tasks",
    "coordinators",
    "deliveries",
    "evaluators",
    "gates",
    "governance",
    "journal_files",
    "journal_owners",
    "journals",
    "models",
    "planted",
    "planners",
    "tool_sources",
)
MUTANTS: list[KitMutant] = [one for home in HOMES for one in import_module(f"tests.mutants.kit_{home}").MUTANTS]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # one of them leaves it so
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_kit_rejects_the_mutant_and_names_the_clause(mutant: KitMutant) -> None:
    report = run_kit(mutant.kit, tests=mutant.tests, stop_at_failure=True)
    assert mutant.clause in report.clauses("failed"), "\n".join(report.lines())


def test_no_two_mutants_of_one_contract_bear_one_name() -> None:
    names = [(mutant.kit.contract, mutant.name) for mutant in MUTANTS]
    assert len(names) == len(set(names))
