"""The contract kits on the constraint and on the guardrail, and what both do in a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("ledger_rules", reason="tests/third_party/ledger_rules is not installed")

from ledger_rules import MASK, BooksOpen, LedgerRules

import kairo_team as kt
from kairo_team import plugins
from kairo_team.contracts import GuardrailPolicy, ResourceConstraint
from kairo_team.governance import GuardrailAction, GuardrailContext, ModelOutput, ToolInput, ToolOutput
from kairo_team.messages import Message, ModelResponse, ToolCall
from kairo_team.tck import GuardrailPolicyTCK, ResourceConstraintTCK, context_of
from kairo_team.testing import ScriptedModel

BOOKS = Path(__file__).parent
IBAN, SPACED = "DE89370400440532013000", "GB82 WEST 1234 5698 7654 32"


def entry(*lines: Mapping[str, Any]) -> ToolInput:
    return ToolInput("post", {"lines": list(lines)})


class TestBooksOpen(ResourceConstraintTCK):
    watches = True
    fine_contexts = (context_of(), context_of(turns=900, tokens=10**9, seconds=10**6))
    violating_contexts = (context_of(), context_of(turns=1))

    @classmethod
    def make_constraint(cls) -> ResourceConstraint:
        return BooksOpen(BOOKS / "open.json")

    @classmethod
    def make_violated_constraint(cls) -> ResourceConstraint:
        return BooksOpen(BOOKS / "closed.json")

    @classmethod
    def make_crashing_constraint(cls) -> ResourceConstraint:
        return BooksOpen(BOOKS / "no-such-book.json")


class TestLedgerRules(GuardrailPolicyTCK):
    cannot_crash = True
    allowed_payloads = (
        entry({"debit": 100}, {"credit": "60.10"}, {"credit": 39.9}),
        ToolInput("look_up", {"lines": [{"debit": 1}]}),
        ToolOutput("look_up", "The account DE00370400440532013000 does not exist."),
        ModelOutput(ModelResponse("The books balance.")),
    )
    denied_payloads = (
        entry({"debit": 100}, {"credit": 90}),
        entry({"debit": 0.1}, {"debit": 0.2}, {"credit": 0.30000000000000004}),
        entry(),
        entry({"debit": 1, "credit": 1}),
        entry({"debit": -1}, {"credit": -1}),
        entry({"debit": "NaN"}, {"credit": "NaN"}),
        entry({"debit": True}, {"credit": True}),
        ToolInput("post", {"lines": "100 to 90"}),
    )
    modified_payloads = (
        ToolOutput("look_up", f"It is {IBAN}."),
        ToolOutput("look_up", f"AB12 PAY {IBAN} AT ONCE, AND {SPACED} TOMORROW"),
        ToolOutput("look_up", json.dumps({"account": SPACED, IBAN: [IBAN]})),
        ModelOutput(ModelResponse(f"Pay to {SPACED}", tool_calls=[ToolCall("1", "note", {"to": IBAN})])),
    )
    removed = (IBAN, SPACED)

    @classmethod
    def make_policy(cls) -> GuardrailPolicy:
        return LedgerRules()


@pytest.mark.parametrize("said", ["[]", "{}", '{"closed": 1}', '{"closed": "no"}', "", "{", '"closed"'])
async def test_a_book_that_does_not_say_it_stops_the_work(said: str, tmp_path: Path) -> None:
    (tmp_path / "book.json").write_text(said)
    with pytest.raises(ValueError, match=r"must say|Expecting"):
        await BooksOpen(tmp_path / "book.json").validate(context_of())


async def test_a_member_corrects_an_entry_that_was_denied() -> None:
    posted: list[Sequence[Any]] = []

    @kt.tool(side_effect="write")
    async def post(lines: list[dict[str, int]]) -> str:
        """Post an entry."""
        posted.append(lines)
        return f"posted to {IBAN}"

    wrong, right = ([{"debit": 100}, {"credit": credit}] for credit in (90, 100))
    model = ScriptedModel(
        [
            ModelResponse("", tool_calls=[ToolCall("1", "post", {"lines": wrong})]),
            ModelResponse("", tool_calls=[ToolCall("2", "post", {"lines": right})]),
            "It is posted.",
        ]
    )
    made = [plugins.make("guardrail", "true-entries")]
    team = kt.Team("books", [kt.Member("clerk", kt.MiniAgent(model, tools=[post]))], guardrails=made)
    result = await kt.run(team, "Post it.")
    assert (result.output, [*map(list, posted)]) == ("It is posted.", [right])
    asked = [_said(request.messages) for request in model.calls]
    assert "the debits are 100 and the credits 90: they must be equal" in asked[1]
    assert MASK in asked[2]
    assert IBAN not in asked[2]


def _said(messages: Sequence[Message]) -> str:
    return "\n".join(message.text for message in messages)


async def test_closing_the_books_ends_the_run(tmp_path: Path) -> None:
    book = tmp_path / "book.json"
    book.write_text('{"period": "2026-11", "closed": false}')

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        book.write_text('{"period": "2026-11", "closed": true}')
        await anyio.sleep_forever()
        raise AssertionError

    constraint = plugins.make("constraint", "open-books", {"book": str(book), "every": 0.01})
    team = kt.Team("books", [kt.Member("clerk", work, constraints=[constraint])])
    result = await kt.run(team, "Post it.")
    assert result.status is kt.TeamStatus.FAILED
    assert "the period 2026-11 is closed" in (result.error or "")


async def test_denials_are_about_the_tools_that_post() -> None:
    call = ToolInput("book", {"lines": [{"debit": 1}]})
    context = GuardrailContext(call.phase, "clerk", "book", call)
    assert (await LedgerRules().evaluate(context)).action is GuardrailAction.ALLOW
    assert (await LedgerRules(["book"]).evaluate(context)).action is GuardrailAction.DENY


def test_the_path_of_the_book_is_declared() -> None:
    assert plugins.undeclared_paths(BooksOpen) == []
