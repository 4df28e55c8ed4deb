"""The guardrails that come with the library: their options are checked, and they compare by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kairo_team.governance import GuardrailPhase, GuardrailPolicy
from kairo_team.governance.policies import (
    ContentFilter,
    InjectionScreen,
    McpPolicy,
    OutputValidator,
    PiiRedactor,
    ToolAudit,
    ToolLoop,
)


def test_all_are_guardrail_policies_and_compare_by_their_options() -> None:
    pairs: list[tuple[Any, Any]] = [
        (ContentFilter(["x"]), ContentFilter(["x"])),
        (PiiRedactor(), PiiRedactor()),
        (InjectionScreen(), InjectionScreen()),
        (OutputValidator({}), OutputValidator({})),
        (ToolAudit("x"), ToolAudit("x")),
        (ToolLoop(), ToolLoop()),
        (McpPolicy(), McpPolicy()),
    ]
    for one, other in pairs:
        assert isinstance(one, GuardrailPolicy)
        assert one == other
        assert hash(one) == hash(other)


# ---------------------------------------------------------------- options

Make = Callable[[], object]
ODD: Any = object()
FIVE: Any = 5
NOTHING: Any = None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ContentFilter([]), "a ContentFilter needs patterns to deny or to mask"),
        (lambda: ContentFilter(mask=[]), "a ContentFilter needs patterns to deny or to mask"),
        (lambda: ContentFilter("falcon"), "ContentFilter.patterns must be a list of regular expressions, not 'falcon'"),
        (lambda: ContentFilter([FIVE]), "ContentFilter.patterns must be a list of regular expressions, and 5 is none"),
        (lambda: ContentFilter(["("]), r"ContentFilter.patterns: '\(' is not a regular expression: missing"),
        (lambda: ContentFilter(mask=["a*"]), r"ContentFilter.mask: 'a\*' matches every text"),
        (lambda: ContentFilter(["a"], replacement=ODD), "ContentFilter.replacement must be a string"),
        (lambda: ContentFilter(["a"], longest=0), "ContentFilter.longest must be a whole number >= 1, not 0"),
        (lambda: ContentFilter(["a"], phases={ODD}), "'content-filter': phases must be one or several of"),
        (lambda: PiiRedactor("EMAIL"), "PiiRedactor.kinds must be a list of 'CREDIT_CARD', .*, not 'EMAIL'"),
        (lambda: PiiRedactor(["NAME"]), "PiiRedactor.kinds: there is no 'NAME'; there are 'CREDIT_CARD', 'EMAIL'"),
        (lambda: PiiRedactor([]), "a PiiRedactor needs kinds or patterns"),
        (lambda: PiiRedactor(patterns=ODD), "PiiRedactor.patterns must be regular expressions by label, not"),
        (lambda: PiiRedactor(patterns={"X": "("}), "is not a regular expression"),
        (lambda: InjectionScreen(ODD), "InjectionScreen.patterns must be regular expressions by name, not"),
        (lambda: InjectionScreen({"x": "["}), "is not a regular expression"),
        (lambda: InjectionScreen(action=ODD), "InjectionScreen.action must be 'warn' or 'deny', not <obj"),
        (lambda: OutputValidator({"type": "thing"}), "OutputValidator.schema: it is not a valid JSON Schema: "),
        (lambda: OutputValidator({"type": ODD}), "must be made of JSON values"),
        (lambda: OutputValidator(None), "OutputValidator.schema must be a JSON Schema or a type, not None"),
        (lambda: OutputValidator("report"), "OutputValidator.schema must be a JSON Schema or a type, not 'report'"),
        (lambda: OutputValidator(ODD), "must be a JSON Schema or a type that pydantic can validate"),
        (lambda: ToolAudit(""), "ToolAudit.sink must be the path of a file, a function, or None .*, not ''"),
        (lambda: ToolAudit(FIVE), "ToolAudit.sink must be the path of a file, a function, or None .*, not 5"),
        (lambda: ToolAudit("x", longest=-1), "ToolAudit.longest must be a whole number >= 0"),
        (lambda: ToolAudit("x", patience=0), "ToolAudit.patience must be a number of seconds above 0, not 0"),
        (lambda: ToolAudit("x", phases={GuardrailPhase.PRE_MODEL}), "must be 'pre_tool' or 'post_tool', not"),
        (lambda: ToolLoop(1), "ToolLoop.warn_at must be a whole number >= 2, not 1"),
        (lambda: ToolLoop(2, True), "ToolLoop.deny_at must be a whole number >= 2, not True"),
        (lambda: ToolLoop(6), r"ToolLoop.warn_at \(6\) must not be above deny_at \(5\)"),
        (lambda: McpPolicy(FIVE), "McpPolicy.policy must be one of 'allow_all', 'deny_all', 'deny_safe', not 5"),
        (lambda: McpPolicy(allowed="read"), "McpPolicy.allowed must be a list of names, not 'read'"),
        (lambda: McpPolicy(denied=NOTHING), "McpPolicy.denied must be a list of names, not None"),
        (lambda: McpPolicy(denied=[""]), "McpPolicy.denied must be a list of names, and '' is none"),
        (lambda: McpPolicy(denied=["files/*"]), r"McpPolicy.denied: 'files/\*' is a pattern, and entries are names"),
        (lambda: McpPolicy(servers=["a/b"]), "the name of a server has no slash, 'a/b' has one"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(make: Make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
