"""Wrong implementations of what governs: constraints, guardrails and permission guards."""

from __future__ import annotations

from tests.mutants import kit_constraints, kit_guardrails, kit_permissions
from tests.mutants.kit_mutant import KitMutant

MUTANTS: list[KitMutant] = [*kit_constraints.MUTANTS, *kit_guardrails.MUTANTS, *kit_permissions.MUTANTS]
