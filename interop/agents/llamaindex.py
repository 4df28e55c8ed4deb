"""LlamaIndex: a function agent, by chat completions, streamed."""

from __future__ import annotations

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

from interop.agents.look import look
from kairo_team.addresses import ModelAddress


async def run(task: str, address: ModelAddress) -> str:
    """Let an agent do the task."""
    llm = OpenAILike(
        model="m", api_base=address.openai, api_key=address.key, is_chat_model=True, is_function_calling_model=True
    )
    agent = FunctionAgent(tools=[look], llm=llm, system_prompt="You look at things.")
    return str(await agent.run(task))
