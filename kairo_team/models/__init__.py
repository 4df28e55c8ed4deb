"""Chat models: their requests and replies, how a call is admitted, and how names become models."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.models.call_keys import idempotency_key
    from kairo_team.models.limits import ModelLimit
    from kairo_team.models.openai_compatible import OpenAICompatible
    from kairo_team.models.resolver import Fallback
    from kairo_team.models.retries import ModelRetry

__all__ = [
    "Fallback",
    "ModelLimit",
    "ModelRetry",
    "OpenAICompatible",
    "idempotency_key",
]

if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    _HOMES = {
        "call_keys": "idempotency_key",
        "limits": "ModelLimit",
        "openai_compatible": "OpenAICompatible",
        "resolver": "Fallback",
        "retries": "ModelRetry",
    }
    """Names by module. Each is imported on first use: a team of functions has no model."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
