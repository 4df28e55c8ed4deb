"""Print the pins of constraints.txt that a set of extras and dependency groups needs.

    python scripts/pins.py cli local build model > pins.txt
    python -m pip install --require-hashes --no-deps -r pins.txt

pip cannot take hashes from a constraints file, and `--require-hashes` takes everything or nothing; this picks a part,
with its hashes, by following the "via" notes. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normalized(requirement: str) -> str:
    """Return the project name a requirement starts with, as the index spells it."""
    match = NAME.match(requirement.strip())
    if match is None:
        sys.exit(f"constraints.txt or pyproject.toml: no project name in {requirement!r}")
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def blocks(text: str) -> Iterator[tuple[str, str, set[str]]]:
    """Yield (name, pin with hashes, names that asked for it) for every entry of constraints.txt."""
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE):
        lines = block.splitlines()
        pin = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if pin:
            notes = (line.strip().lstrip("#").strip().removeprefix("via").strip() for line in lines[len(pin) :])
            yield normalized(pin[0]), "\n".join(pin) + "\n", {normalized(note) for note in notes if note}


def roots(wanted: list[str]) -> set[str]:
    """Return the projects that pyproject.toml names directly: the core's, and those of the wanted extras and groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    sets = project["project"]["optional-dependencies"] | project["dependency-groups"]
    found: set[str] = {normalized(each) for each in project["project"]["dependencies"]}
    queue = list(wanted)
    while queue:
        name = queue.pop()
        if name not in sets:
            sys.exit(f"scripts/pins.py: no extra or group {name!r}; there are {', '.join(sorted(sets))}")
        for item in sets[name]:
            if isinstance(item, dict):
                queue.append(item["include-group"])
            elif normalized(item) == normalized(project["project"]["name"]):
                queue.extend(item[item.index("[") + 1 : item.index("]")].split(","))
            else:
                found.add(normalized(item))
    return found


def main() -> None:
    """Print the pins for the extras and groups named on the command line."""
    pins = list(blocks((ROOT / "constraints.txt").read_text(encoding="utf-8")))
    needed = roots(sys.argv[1:])
    missing = needed - {name for name, _, _ in pins}
    if missing:
        sys.exit(f"constraints.txt has no pin for {', '.join(sorted(missing))}; `make constraints` writes it anew")
    size = 0
    while size != len(needed):
        size = len(needed)
        needed |= {name for name, _, askers in pins if askers & needed}
    sys.stdout.writelines(pin for name, pin, _ in pins if name in needed)


if __name__ == "__main__":
    main()
