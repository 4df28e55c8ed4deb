"""Chat models: their requests and replies, how a call is admitted, and how names become models."""

from kairo_team.models.fallback import Fallback as Fallback
from kairo_team.models.limits import ModelLimit as ModelLimit
from kairo_team.models.openai_compatible import OpenAICompatible as OpenAICompatible
from kairo_team.models.retries import ModelRetry as ModelRetry

__all__ = ["Fallback", "ModelLimit", "ModelRetry", "OpenAICompatible"]
