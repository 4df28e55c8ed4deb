"""The names are those of the installed conventions."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: it is in the test group")

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.semconv.attributes import error_attributes, exception_attributes

from kairo_team.views import telemetry_names as names

KNOWN = {
    value
    for module in (gen_ai_attributes, gen_ai_metrics, error_attributes, exception_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
OURS = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
NO_CONSTANT = {"EVALUATION_RESULT", "EXCEPTION"}
"""Names of events: the package has constants for attributes and metrics alone."""
OPENINFERENCE = {"INPUT_VALUE", "OUTPUT_VALUE", "SPAN_KIND"}
"""Names of OpenInference's conventions; the tests with Phoenix compare them with its package."""


CONVENTIONS = version("opentelemetry-semantic-conventions")
since_workflows = pytest.mark.skipif(
    tuple(map(int, CONVENTIONS.partition("b")[0].split("."))) < (0, 63),
    reason=f"the installed conventions, {CONVENTIONS}, are older than the names: workflows came with 0.63",
)


@since_workflows
@pytest.mark.parametrize("name", sorted(OURS))
def test_every_name_is_the_conventions_or_kairos(name: str) -> None:
    value = OURS[name]
    if value.startswith("kairo."):
        assert not any(known == value for known in KNOWN)
    elif "." in value and name not in NO_CONSTANT | OPENINFERENCE:
        assert value in KNOWN


@since_workflows
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operations_and_providers_are_the_conventions() -> None:
    # The package calls these deprecated because the conventions moved to a repository that has no package yet.
    kinds: Mapping[str, Any] = vars(gen_ai_attributes)
    operations = {one.value for one in kinds["GenAiOperationNameValues"]}
    assert {names.INVOKE_WORKFLOW, names.INVOKE_AGENT, names.CHAT, names.EXECUTE_TOOL} <= operations
    providers = {one.value for one in kinds["GenAiProviderNameValues"]}
    assert set(names._PROVIDERS.values()) <= providers


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("openai:gpt-5-mini", ("openai", "gpt-5-mini")),
        ("google-gla:gemini-3", ("gcp.gemini", "gemini-3")),
        ("local:smollm2", ("local", "smollm2")),
        ("a:b:c", ("a", "b:c")),
        ("bare", ("bare", "bare")),
    ],
)
def test_a_models_name_is_taken_apart(model: str, known: tuple[str, str]) -> None:
    assert names.provider_and_model(model) == known
