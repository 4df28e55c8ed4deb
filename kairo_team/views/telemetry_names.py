"""The names of spans' attributes, events and metrics: `gen_ai.*` of OpenTelemetry's conventions, `kairo.*` our own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

SCOPE: Final = "kairo_team"
"""The instrumentation scope of spans and metrics."""

OPERATION: Final = "gen_ai.operation.name"
INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

CONVERSATION_ID: Final = "gen_ai.conversation.id"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
AGENT_NAME: Final = "gen_ai.agent.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"

EVALUATION_RESULT: Final = "gen_ai.evaluation.result"
"""The name of the event of a review."""
EXCEPTION: Final = "exception"
"""The name of a span's event of an exception."""

TOKEN_USAGE: Final = "gen_ai.client.token.usage"
TOKEN_TYPE: Final = "gen_ai.token.type"
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_BOUNDS: Final = tuple(4**power for power in range(14))
"""The bounds of the buckets that the conventions give for tokens."""
SECONDS_BOUNDS: Final = tuple(2**power / 100 for power in range(14))
"""The same, for seconds."""

INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
SPAN_KIND: Final = "openinference.span.kind"
"""OpenInference's names, by which Phoenix and Langfuse find the texts of a span that calls no model, and its kind."""
CHAIN: Final = "CHAIN"
EVALUATOR: Final = "EVALUATOR"

RUN_ID: Final = "kairo.run.id"
TASK_ID: Final = "kairo.task.id"
STATUS: Final = "kairo.status"
"""How a run or an attempt ended."""
ATTEMPT: Final = "kairo.attempt"
ROUND: Final = "kairo.round"
"""How often the task was reviewed, this round included."""
VERDICT: Final = "kairo.verdict"
VERDICT_CAUSE: Final = "kairo.verdict.cause"
HALT_REASON: Final = "kairo.halt.reason"
HALT_ORIGIN: Final = "kairo.halt.origin"
"""The name of the governor that reached its limit."""
WAITS_FOR: Final = "kairo.waits_for"
"""Why a task waits: for a slot, a member, budget, a retry or a person."""
CALL_ID: Final = "kairo.call.id"
CALL_TRY: Final = "kairo.call.try"
OUTCOME: Final = "kairo.outcome"
"""How a call ended: ok, error or unknown. In a worker's metrics: how a delivery or a request for budget ended."""
PURPOSE: Final = "kairo.purpose"
REFUSED_BY: Final = "kairo.refused_by"
SIDE_EFFECT: Final = "kairo.tool.side_effect"
GUARANTEED_TOKENS: Final = "kairo.budget.guaranteed.tokens"
GUARANTEED_DOLLARS: Final = "kairo.budget.guaranteed.dollars"
HELD_TOKENS: Final = "kairo.budget.held.tokens"
HELD_DOLLARS: Final = "kairo.budget.held.dollars"
USED_TOKENS: Final = "kairo.budget.used.tokens"
USED_DOLLARS: Final = "kairo.budget.used.dollars"

COST: Final = "kairo.cost"
"""The metric of dollars spent."""
BUDGET_USED: Final = "kairo.budget.used"
"""The metric of the share of its guaranteed tokens that a task used."""

UNIT_KIND: Final = "kairo.unit.kind"
"""What a worker does: a run or an attempt."""
ACTIVE_UNITS: Final = "kairo.worker.active_units"
DELIVERIES: Final = "kairo.worker.deliveries"
DELIVERY_WAIT: Final = "kairo.worker.delivery.wait_time"
BUDGET_WAIT: Final = "kairo.worker.budget.wait_time"
SILENCE: Final = "kairo.worker.silence"
REAPED_UNITS: Final = "kairo.worker.reaped_units"
RESTARTS: Final = "kairo.worker.restarts"

_PROVIDERS: Final = MappingProxyType(
    {
        "azure": "azure.ai.openai",
        "bedrock": "aws.bedrock",
        "google": "gcp.gemini",
        "google-gla": "gcp.gemini",
        "google-vertex": "gcp.vertex_ai",
        "grok": "x_ai",
        "mistral": "mistral_ai",
        "xai": "x_ai",
    }
)
"""The conventions' names of providers, where they differ from ours."""


def provider_and_model(name: str) -> tuple[str, str]:
    """Take a model's name, `provider:model`, apart; the provider gets the conventions' name."""
    provider, _, model = name.partition(":")
    return _PROVIDERS.get(provider, provider), model or name
