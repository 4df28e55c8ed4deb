"""The kit of `ChatModel`: one call, many calls, and calls that go wrong; also with a provider played by the kit."""

from __future__ import annotations

from kairo_team.tck.chat_model_calls import CallTests
from kairo_team.tck.chat_model_ends import EndTests


class ChatModelTCK(CallTests, EndTests):
    """The contract kit of chat models: override `make_model`, and `make_failing_model` or say `can_fail = False`."""
