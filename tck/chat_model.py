"""The kit of `ChatModel`: one call, many calls, and failing calls; also with a provider that the kit plays."""

from __future__ import annotations

from kairo_team.tck.chat_model_calls import CallTests
from kairo_team.tck.chat_model_ends import EndTests
from kairo_team.tck.chat_model_native import NativeTests
from kairo_team.tck.chat_model_whole import WholeTests


class ChatModelTCK(CallTests, EndTests, NativeTests, WholeTests):
    """The contract kit of chat models: override `make_model`, and `make_failing_model` unless `can_fail = False`."""
