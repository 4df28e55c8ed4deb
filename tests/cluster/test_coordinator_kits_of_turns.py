"""Every coordinator keeps its contract wherever its members work: here workers make every attempt."""

from __future__ import annotations

import pytest

from tests.cluster.kits import OverWorkers
from tests.tck.test_coordinator_kits import TestHandoff as _Handoff
from tests.tck.test_coordinator_kits import TestHandoffOfWhoHandsOn as _HandoffOfWhoHandsOn
from tests.tck.test_group_chat_kits import TestGroupChat as _GroupChat
from tests.tck.test_group_chat_kits import TestGroupChatWithAClosing as _GroupChatWithAClosing
from tests.tck.test_group_chat_kits import TestGroupChatWithAModerator as _GroupChatWithAModerator
from tests.tck.test_supervisor_kits import TestSupervisor as _Supervisor
from tests.tck.test_supervisor_kits import TestSupervisorThatGivesWork as _SupervisorThatGivesWork

pytestmark = [pytest.mark.real_time]


class TestHandoff(OverWorkers, _Handoff):
    __test__ = True


class TestHandoffOfWhoHandsOn(OverWorkers, _HandoffOfWhoHandsOn):
    __test__ = True


class TestGroupChat(OverWorkers, _GroupChat):
    __test__ = True


class TestGroupChatWithAModerator(OverWorkers, _GroupChatWithAModerator):
    __test__ = True


class TestGroupChatWithAClosing(OverWorkers, _GroupChatWithAClosing):
    __test__ = True


class TestSupervisor(OverWorkers, _Supervisor):
    __test__ = True


class TestSupervisorThatGivesWork(OverWorkers, _SupervisorThatGivesWork):
    __test__ = True
