"""Chat models: their requests and replies, how a call is admitted, and how names become models."""

from kairo_team.models.call_keys import idempotency_key
from kairo_team.models.fallback import Fallback
from kairo_team.models.limits import ModelLimit
from kairo_team.models.openai_compatible import OpenAICompatible
from kairo_team.models.retries import ModelRetry

__all__ = ["Fallback", "ModelLimit", "ModelRetry", "OpenAICompatible", "idempotency_key"]
