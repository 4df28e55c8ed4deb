"""Guardrails by name: built in, and published by packages; loaded when a configuration names them and not before."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.governance import (
    GuardrailAction,
    GuardrailChain,
    GuardrailContext,
    GuardrailPhase,
    ModelInput,
    ToolInput,
    ToolOutput,
)
from kairo_team.governance.guardrails import seat_of
from kairo_team.governance.policies import (
    ContentFilter,
    InjectionScreen,
    McpPolicy,
    McpSecurityPolicy,
    OutputValidator,
    PiiRedactor,
    ToolAudit,
    ToolLoop,
)

pytestmark = pytest.mark.anyio

CONFIG: list[dict[str, Any]] = [
    {"name": "content-filter", "patterns": ["falcon"], "mask": ["eagle"], "phase": "pre_model", "order": -5},
    {"name": "pii-redactor", "kinds": ["EMAIL"], "phase": ["post_model", "pre_tool"]},
    {"name": "injection-screen", "action": "deny"},
    {"name": "output-validator", "schema": {"type": "object"}},
    {"name": "tool-audit", "sink": "audit.jsonl", "phase": "post_tool", "order": 9},
    {"name": "tool-loop", "warn_at": 2, "deny_at": 3},
    {"name": "mcp-policy", "policy": "allow_all", "denied": ["files/delete"]},
]


def test_the_built_in_guardrails_are_configured_by_name() -> None:
    before = [dict(entry) for entry in CONFIG]
    chain = GuardrailChain.from_config(CONFIG)
    assert chain.policies == (
        McpPolicy(McpSecurityPolicy.ALLOW_ALL, denied=["files/delete"]),
        ContentFilter(["falcon"], ["eagle"], phases={GuardrailPhase.PRE_MODEL}, order=-5),
        PiiRedactor(["EMAIL"], phases={GuardrailPhase.POST_MODEL, GuardrailPhase.PRE_TOOL}),
        InjectionScreen(action="deny"),
        OutputValidator({"type": "object"}),
        ToolLoop(2, 3),
        ToolAudit("audit.jsonl", phases={GuardrailPhase.POST_TOOL}, order=9),
    )
    assert before == CONFIG, "what was handed in stays as it was"
    assert not GuardrailChain.from_config([])
    assert kt.Member("a", lambda a: "x", guardrails=chain).guardrails == chain.policies


def test_names_are_those_of_the_configuration() -> None:
    for entry in CONFIG:
        (policy,) = GuardrailChain.from_config([entry])
        assert seat_of(policy).name == entry["name"]


NAMES = (
    r"'content-filter', 'injection-screen', 'mcp-policy', 'output-validator', 'pii-redactor', 'tool-audit', 'tool-loop'"
)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            [{"name": "tool-loops"}],
            f"no guardrail 'tool-loops'; did you mean 'tool-loop'[?] there are {NAMES}",
        ),
        ([{"name": ""}], "there is no guardrail ''; there are"),
        (
            [{"name": "tool-loop", "limit": 5}],
            "guardrail 'tool-loop': there is no option 'limit'; its options are 'deny_at', 'id', 'order', 'phase'",
        ),
        ([{"name": "output-validator"}], "guardrail 'output-validator': missing a required argument: 'schema'"),
        ([{"name": "content-filter", "patterns": []}], "guardrail 'content-filter': a ContentFilter needs patterns"),
        ([{"name": "tool-loop", "warn_at": 1}], "guardrail 'tool-loop': ToolLoop.warn_at must be a whole number >= 2"),
        ([{"name": "tool-loop"}, {"name": "tool-loop"}], f"'tool-loop' is configured twice: .*; there are {NAMES}"),
        ([{"name": "tool-loop", "phase": "lunch"}], "phases must be one or several of 'post_model', .*not 'lunch'"),
        ([{"name": "tool-loop", "phase": []}], "phases must be one or several of"),
        ([{"name": "tool-loop", "phase": None}], "phases must be one or several of"),
        ([{"name": "tool-loop", "phase": "post_tool"}], "'tool-loop': it looks at 'pre_tool' only, not at 'post_tool'"),
        ([{"name": "tool-audit", "sink": "x", "phase": "pre_model"}], "ToolAudit.phases must be 'pre_tool' or 'post_t"),
        ([{"name": "mcp-policy", "order": 5}], "guardrail 'mcp-policy': it always goes first: leave its order out"),
        ([{"name": "tool-loop", "order": "first"}], "order must be a number, lower goes first, not 'first'"),
        ([{"patterns": ["x"]}], "is a mapping with a name, not {'patterns': .*}; there are 'content-filter'"),
        (["tool-loop"], "is a mapping with a name, not 'tool-loop'"),
        ({"name": "tool-loop"}, "guardrails are configured by a list of mappings, not {'name': 'tool-loop'}"),
        (
            {"kairo": {"guardrail": {"policy": []}}},
            "not {'policy': .*; in a file, put it under kairo.guardrail.polic",
        ),
        ({"policies": [], "order": 1}, "kairo.guardrail has 'policies' alone; 'order' is unknown"),
        ({"kairo": {"guardrail": None}}, "configured by a list of mappings, not None"),
        ([{"name": "tool-loop", "id": " "}], "guardrail 'tool-loop': id must be a non-empty name, not ' '"),
        ([{"name": "tool-loop", "id": 1}, {"name": "tool-loop", "id": 1}], "id must be a non-empty name, not 1"),
        (
            [{"name": "pii-redactor", "id": "a"}, {"name": "tool-loop", "id": "a"}],
            "the guardrail 'a' is configured twice",
        ),
        ([{"name": "tool-loop"}, {"name": "tool-loop"}], "keep one, or give each a different id"),
        (
            [{"name": "tool-loop", "phase": "pre_tool", "phases": ["pre_tool"]}],
            "guardrail 'tool-loop': 'phase' and 'phases' mean the same: keep one",
        ),
        (None, "guardrails are configured by a list of mappings, not None"),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(entries: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GuardrailChain.from_config(entries)


REFERENCE = """
kairo:
  guardrail:
    policies:
      - {name: content-filter, phase: PRE_MODEL, order: 0}
      - {name: pii-redactor, phase: POST_MODEL, order: 10}
      - {name: tool-audit, phase: PRE_TOOL, order: 0}
"""
THE_SAME = """
[[kairo.guardrail.policies]]
name = "content-filter"
phase = "pre-model"
order = 0

[[kairo.guardrail.policies]]
name = "pii-redactor"
phases = ["Post-Model"]
order = 10

[[kairo.guardrail.policies]]
name = "tool-audit"
phases = "PRE_TOOL"
"""


def test_audit_g18_the_reference_documents_own_yaml_loads_as_it_stands() -> None:
    """From YAML, from TOML, and with any of the outer keys left out."""
    yaml: Any = pytest.importorskip("yaml")
    whole: Any = yaml.safe_load(REFERENCE)
    inside: Any = whole["kairo"]
    configs: list[Any] = [whole, inside, inside["guardrail"], inside["guardrail"]["policies"], tomllib.loads(THE_SAME)]
    configs += [{**whole, "server": {"port": 80}}, {"kairo": {**inside, "constraints": None}}]
    for config in configs:
        assert GuardrailChain.from_config(config).policies == (
            ContentFilter(phases={GuardrailPhase.PRE_MODEL}),
            ToolAudit(phases={GuardrailPhase.PRE_TOOL}),
            PiiRedactor(phases={GuardrailPhase.POST_MODEL}, order=10),
        )


@pytest.mark.parametrize("phase", ["pre_tool", "PRE_TOOL", "pre-tool", "Pre-Tool", " PRE_TOOL ", ["PRE-tool"]])
def test_audit_g18_phases_are_read_in_any_case_and_with_either_stroke(phase: Any) -> None:
    for key in ("phase", "phases"):
        chain = GuardrailChain.from_config([{"name": "tool-audit", key: phase}, {"name": "tool-loop", key: phase}])
        assert {seat_of(policy).phases for policy in chain} == {frozenset({GuardrailPhase.PRE_TOOL})}


async def test_audit_g18_one_policy_may_stand_there_twice_and_each_goes_by_its_id() -> None:
    chain = GuardrailChain.from_config(
        [
            {"name": "content-filter", "id": "projects", "patterns": ["falcon"], "phase": "pre_model"},
            {"name": "content-filter", "id": "names", "mask": ["now"]},
            {"name": "content-filter", "patterns": ["swan"]},
        ]
    )
    assert [seat_of(policy).name for policy in chain] == ["projects", "names", "content-filter"]
    outcome = await chain.for_run().evaluate(ASKED)
    assert [ruling.policy for ruling in outcome.trail] == ["projects", "names", "content-filter"]
    assert (outcome.policy, outcome.payload.text) == ("names", "[FILTERED]")


GROUP = "kairo_team.guardrails"
PLUGIN = """
from kairo_team.governance import GuardrailDecision

class Polite:
    name = "polite"
    phases = {"pre_model", "post_tool"}

    def __init__(self, *, word: str = "please") -> None:
        self.word = word

    async def evaluate(self, context):
        if self.word in context.payload.text:
            return GuardrailDecision.allow()
        return GuardrailDecision.deny(f"it does not say {self.word}")

class Fresh(Polite):
    def for_run(self):
        return Fresh(word=self.word + "!")

class Unready(Polite):
    def for_run(self):
        return None

def nothing():
    return None
"""


ASKED = GuardrailContext(GuardrailPhase.PRE_MODEL, None, "m", ModelInput([kt.Message.user("now")]))
RETURNED = GuardrailContext(GuardrailPhase.POST_TOOL, None, "t", ToolOutput("t", "now"))


async def test_a_published_guardrail_is_loaded_by_name(published: Callable[..., None]) -> None:
    published("manners", "manners_plugin", polite="Polite")
    outcome = await GuardrailChain.from_config([{"name": "polite", "word": "thanks"}]).evaluate(ASKED)
    assert (outcome.action, outcome.policy, outcome.reason) == (
        GuardrailAction.DENY,
        "polite",
        "it does not say thanks",
    )


async def test_phase_and_order_place_a_policy_that_knows_no_such_options(published: Callable[..., None]) -> None:
    published("manners", "placed_plugin", polite="Polite", fresh="Fresh", unready="Unready")
    chain = GuardrailChain.from_config([{"name": "tool-loop"}, {"name": "polite", "phase": "post_tool", "order": -1}])
    assert [seat_of(policy).name for policy in chain] == ["polite", "tool-loop"]
    assert "Placed(" in repr(chain)
    assert not chain.covers(GuardrailPhase.PRE_MODEL)
    assert (await chain.evaluate(ASKED)).action is GuardrailAction.ALLOW
    assert (await chain.for_run().evaluate(RETURNED)).reason == "it does not say please"
    with pytest.raises(
        ValueError, match="guardrail 'polite': it looks at 'post_tool', 'pre_model' only, not at 'pre_tool'"
    ):
        GuardrailChain.from_config([{"name": "polite", "phase": "pre_tool"}])
    fresh = GuardrailChain.from_config([{"name": "fresh", "order": 1}]).for_run()
    assert (await fresh.evaluate(RETURNED)).reason == "it does not say please!"
    unready = GuardrailChain.from_config([{"name": "unready", "order": 1}]).for_run()
    assert "could not be made ready" in (await unready.evaluate(RETURNED)).reason


def test_a_published_guardrail_is_not_even_imported_unless_it_is_named(published: Callable[..., None]) -> None:
    published("manners", "unnamed_plugin", broken="missing.name", tool_loop="Polite")
    assert GuardrailChain.from_config([{"name": "tool-loop"}]).policies == (ToolLoop(),), (
        "a built-in name stays built in"
    )
    with pytest.raises(ValueError, match=r"'broken'.*'tool-loop'"):
        GuardrailChain.from_config([{"name": "unknown"}])
    with pytest.raises(ValueError, match=r"guardrail 'broken' cannot be loaded from 'unnamed_plugin:missing"):
        GuardrailChain.from_config([{"name": "broken"}])


def test_what_is_published_twice_or_is_no_guardrail_is_refused(published: Callable[..., None]) -> None:
    published("one", "rail_one", same="Polite", nothing="nothing")
    published("two", "rail_two", same="Polite")
    with pytest.raises(ValueError, match=r"'same@one' \(rail_one:Polite\) or 'same@two' \(rail_two:Polite"):
        GuardrailChain.from_config([{"name": "same"}])
    with pytest.raises(ValueError, match=r"guardrail 'nothing': .*None lacks evaluate"):
        GuardrailChain.from_config([{"name": "nothing"}])


async def test_constraints_and_guardrails_have_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="there is no guardrail 'timeout'"):
        GuardrailChain.from_config([{"name": "timeout", "seconds": 5}])
    loop = GuardrailChain.from_config([{"name": "tool-loop", "phase": "pre_tool"}])
    call = GuardrailContext(GuardrailPhase.PRE_TOOL, None, "t", ToolInput("t", {}))
    assert (await loop.evaluate(call)).action is GuardrailAction.ALLOW
