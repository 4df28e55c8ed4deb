"""The law of the ledger, on random trees, against a naive model that was written apart from it.

At every node, after every step: spent + held <= committed <= limit, but for truths booked late; and every sum,
refusal, halt and remainder is what the model says. Once alone, and once on each event loop with a crowd of tasks.
"""

from __future__ import annotations

from hypothesis import settings

from tests.governance.crowd import CrowdLaw
from tests.governance.law import GovernorLaw


class CrowdLawOnAsyncio(CrowdLaw):
    backend = "asyncio"


class CrowdLawOnTrio(CrowdLaw):
    backend = "trio"


GovernorLaw.TestCase.settings = settings(stateful_step_count=50)
# A step with an event loop costs ten without.
half = settings(stateful_step_count=30, max_examples=settings().max_examples // 2)
CrowdLawOnAsyncio.TestCase.settings = CrowdLawOnTrio.TestCase.settings = half

TestGovernorLaw = GovernorLaw.TestCase
TestCrowdLawOnAsyncio = CrowdLawOnAsyncio.TestCase
TestCrowdLawOnTrio = CrowdLawOnTrio.TestCase
