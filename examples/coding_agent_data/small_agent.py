"""A command-line coding agent of one turn, in place of a real one: it writes the file that its model answers with.

It knows nothing of kairo-team. It reads the task from its standard input, and finds its model as such programs do, by
OPENAI_BASE_URL and OPENAI_API_KEY.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path

FILE = Path("slugs.py")


def main() -> None:
    """Ask for the whole file, write it, and say so."""
    task = f"{sys.stdin.read()}\n\nAnswer with the whole new {FILE}, and nothing else. It is now:\n\n{FILE.read_text()}"
    body = {"model": "m", "messages": [{"role": "user", "content": task}]}
    asked = urllib.request.Request(  # noqa: S310 - the address is the caller's
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps(body).encode(),
        {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=300) as reply:  # noqa: S310 - the same
        said: str = json.load(reply)["choices"][0]["message"]["content"]
    FILE.write_text(said.strip().removeprefix("```python").removesuffix("```").strip() + "\n")
    print(f"I have written {FILE}.")


if __name__ == "__main__":
    main()
