"""Write a badge or a page of plug-ins: `python -m kairo_team.tck badge kits.json > kits.svg`.

A report is what `kairo plugins --check --kit --json` prints. `page` takes several, and lists their packages.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kairo_team.tck.published import badge_of, page_of


def main() -> int:
    """Print what is asked for; 2 where it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m kairo_team.tck", description=__doc__)
    parser.add_argument("what", choices=("badge", "page"))
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    parser.add_argument("--package", help="the package of the badge, where a report has several")
    given = parser.parse_args()
    try:
        documents = [json.loads(path.read_text(encoding="utf-8")) for path in given.reports]
        sys.stdout.write(badge_of(documents, given.package) if given.what == "badge" else page_of(documents))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.stderr.write(f"kairo_team.tck: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
