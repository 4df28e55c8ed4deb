"""kairo-team: a journal, and a gate that puts questions off."""

from __future__ import annotations

import html
from typing import Any

import kairo_team as kt


def page(runtime: Any, form: dict[str, str]) -> str:
    """Return a page with the question, or with the result; `form` is what a person sent."""
    if form:
        decision = kt.HumanDecision.approve() if form["say"] == "yes" else kt.HumanDecision.reject()
        runtime.answer(form["id"], decision)
    rubric = kt.Rubric([kt.Criterion("editor", "an editor agrees", by="human")])
    coordinator = kt.ExpertTeamCoordinator(evaluator=rubric)
    team = kt.Team("newsroom", [kt.Member("writer", kt.MiniAgent("openai:gpt-5-mini"))], coordinator=coordinator)
    result = kt.run_sync(team, "Explain tides.", run_id="tides", resume=True, runtime=runtime)
    for question in runtime.pending("tides"):
        return (
            f"<form method=post><pre>{html.escape(question.subject)}</pre>"
            f"<input type=hidden name=id value='{question.id}'><button name=say value=yes>Yes</button></form>"
        )
    return f"{result.status}: {html.escape(str(result.output))}"
