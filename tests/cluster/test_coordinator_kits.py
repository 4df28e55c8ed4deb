"""Every coordinator keeps its contract wherever its members work: here workers make every attempt."""

from __future__ import annotations

import pytest

from tests.cluster.kits import OverWorkers
from tests.tck.test_coordinator_kits import TestExpertTeam as _ExpertTeam
from tests.tck.test_coordinator_kits import TestTaskBoard as _TaskBoard

pytestmark = [pytest.mark.real_time]


class TestTaskBoard(OverWorkers, _TaskBoard):
    __test__ = True


class TestExpertTeam(OverWorkers, _ExpertTeam):
    __test__ = True
