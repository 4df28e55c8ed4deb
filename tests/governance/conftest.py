"""The helpers of this room: their asserts say as much as a test's, and a profile for the mutants of the governor."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

pytest.register_assert_rewrite("tests.governance.law", "tests.governance.crowd")

# A mutant has to fail once, soon; nobody reads the smallest example of how it failed.
settings.register_profile(
    "mutants",
    settings.get_profile("ci"),
    max_examples=100,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
)
# What a state machine draws depends on every constant of the library, so a kill may come later after an edit.
settings.register_profile("patient", settings.get_profile("mutants"), max_examples=400)
