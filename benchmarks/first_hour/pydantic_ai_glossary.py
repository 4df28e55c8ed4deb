"""pydantic-ai: a validator of the output."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, ModelRetry

from benchmarks.first_hour.jobs import GLOSSARY, SENTENCE


def run(model: Any) -> str:
    """Translate a sentence, with the terms of a glossary."""
    agent = Agent(model, instructions="Translate into German.")

    @agent.output_validator
    def terms(text: str) -> str:
        missing = [f"{a} is {b}" for a, b in GLOSSARY.items() if a in SENTENCE and b not in text]
        if missing:
            raise ModelRetry(f"use the glossary: {', '.join(missing)}")
        return text

    return agent.run_sync(SENTENCE).output
