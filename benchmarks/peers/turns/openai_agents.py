"""OpenAI Agents SDK: an `Agent` with a function tool; tracing off."""

from __future__ import annotations

from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks.peers.turns.experiment import ANSWER, GOAL, INSTRUCTIONS, look, main, suspend

set_tracing_disabled(disabled=True)


class Scripted(Model):
    """Call the tool, then answer."""

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        """Reply after one suspension."""
        said = named["input"] if "input" in named else given[1]
        await suspend()
        if isinstance(said, list) and said[-1].get("type") == "function_call_output":
            text = ResponseOutputText(text=ANSWER, type="output_text", annotations=[])
            output: Any = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            output = ResponseFunctionToolCall(
                call_id="call-1", name="look", arguments='{"port": "Oslo"}', type="function_call"
            )
        return ModelResponse([output], Usage(requests=1), None)

    def stream_response(self, *_given: Any, **_named: Any) -> Any:
        """Not asked for here."""
        raise NotImplementedError


agent = Agent("desk", instructions=INSTRUCTIONS, tools=[function_tool(look)], model=Scripted())


async def run() -> str:
    """One conversation."""
    return str((await Runner.run(agent, GOAL)).final_output)


if __name__ == "__main__":
    main("openai-agents", {"agent": run})
