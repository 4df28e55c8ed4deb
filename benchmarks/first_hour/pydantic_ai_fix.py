"""pydantic-ai: a validator of the output."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from pydantic_ai import Agent, ModelRetry, UsageLimits

from benchmarks.first_hour.jobs import ORDER, TEST


def run(model: Any) -> str:
    """Write code until its tests pass."""
    agent = Agent(model, retries=3)

    @agent.output_validator
    def passes(text: str) -> str:
        code = f"{text}\n{TEST}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise ModelRetry(done.stderr.splitlines()[-1])
        return text

    return agent.run_sync(ORDER, usage_limits=UsageLimits(total_tokens_limit=50_000)).output
