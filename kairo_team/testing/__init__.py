"""Test doubles: models and agents with prepared replies, virtual time, an event recorder, a PostgreSQL server."""

from kairo_team.durable.memory import MemoryJournal
from kairo_team.models.resolver import forbid_real_models
from kairo_team.testing.clocks import (
    FakeClock,
    VirtualTimeLoop,
    run_in_virtual_time,
    virtual_time,
    virtual_time_backends,
)
from kairo_team.testing.record_replay import RecordReplayModel
from kairo_team.testing.recorder import EventRecorder
from kairo_team.testing.scripted import FunctionModel, ScriptedAgent, ScriptedModel
from kairo_team.testing.scripted_judge import (
    AskedQuestion,
    AskedStatement,
    ScriptedJudge,
    ScriptedPairJudge,
    read_question,
)

__all__ = [
    "AskedQuestion",
    "AskedStatement",
    "EventRecorder",
    "FakeClock",
    "FunctionModel",
    "MemoryJournal",
    "RecordReplayModel",
    "ScriptedAgent",
    "ScriptedJudge",
    "ScriptedModel",
    "ScriptedPairJudge",
    "VirtualTimeLoop",
    "forbid_real_models",
    "read_question",
    "run_in_virtual_time",
    "virtual_time",
    "virtual_time_backends",
]
