"""kairo-team: a criterion that a function decides."""

from __future__ import annotations

from typing import Any

import kairo_team as kt
from benchmarks.first_hour.jobs import GLOSSARY, SENTENCE


def run(runtime: Any) -> str:
    """Translate a sentence, with the terms of a glossary."""

    def terms(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
        missing = [f"{a} is {b}" for a, b in GLOSSARY.items() if a in context.goal and b not in artifact.text]
        return not missing or f"use the glossary: {', '.join(missing)}"

    rubric = kt.Rubric([kt.Criterion("terms", "every term is from the glossary", terms)])
    member = kt.Member(kt.Role("translator", "Translate into German."), kt.MiniAgent("openai:gpt-5-mini"))
    team = kt.Team("translation", [member], coordinator=kt.ExpertTeamCoordinator(evaluator=rubric))
    return str(kt.run_sync(team, SENTENCE, runtime=runtime).output)
