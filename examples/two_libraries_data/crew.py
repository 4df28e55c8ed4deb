"""A crew of CrewAI that gathers facts. It knows nothing of kairo-team: the model is where the environment says it is.

The task is its standard input, the result its standard output.
"""

# The library is in an environment of its own.
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import contextlib
import os
import sys

from crewai import LLM, Agent, Crew, Task


def main() -> None:
    """Do the task."""
    llm = LLM(model="openai/gpt-5-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
    finder = Agent(role="finder", goal="find what is known", backstory="reads a lot", llm=llm)
    checker = Agent(role="checker", goal="strike out what is wrong", backstory="trusts nobody", llm=llm)
    find = Task(description=sys.stdin.read(), expected_output="facts, one a line", agent=finder)
    check = Task(description="Check the facts.", expected_output="the facts that hold", agent=checker, context=[find])
    with contextlib.redirect_stdout(sys.stderr):  # it prints more than its result
        made = Crew(agents=[finder, checker], tasks=[find, check]).kickoff()
    print(made)


if __name__ == "__main__":
    main()
