"""Doubles for tests: models and agents with prepared replies, and time that does not pass by itself."""

from kairo_team.models.resolver import forbid_real_models as forbid_real_models
from kairo_team.testing.clocks import FakeClock as FakeClock
from kairo_team.testing.clocks import VirtualTimeLoop as VirtualTimeLoop
from kairo_team.testing.clocks import run_in_virtual_time as run_in_virtual_time
from kairo_team.testing.clocks import virtual_time as virtual_time
from kairo_team.testing.clocks import virtual_time_backends as virtual_time_backends
from kairo_team.testing.record_replay import RecordReplayModel as RecordReplayModel
from kairo_team.testing.recorder import EventRecorder as EventRecorder
from kairo_team.testing.scripted import FunctionModel as FunctionModel
from kairo_team.testing.scripted import ScriptedAgent as ScriptedAgent
from kairo_team.testing.scripted import ScriptedModel as ScriptedModel

__all__ = [
    "EventRecorder",
    "FakeClock",
    "FunctionModel",
    "RecordReplayModel",
    "ScriptedAgent",
    "ScriptedModel",
    "VirtualTimeLoop",
    "forbid_real_models",
    "run_in_virtual_time",
    "virtual_time",
    "virtual_time_backends",
]
