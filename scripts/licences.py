"""Write the licences of everything an installation with all extras brings, and its software bill of materials.

    python scripts/licences.py > docs/licences.md
    python scripts/licences.py --sbom > dist/kairo-team.cdx.json

The packages and versions are those of constraints.txt; the licences are read from what is installed here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OURS = "kairo-team"
_PIN = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\]+))?", re.MULTILINE)
_FILES = re.compile(r"(?:.*/)?(?:licen[cs]e|copying|notice)[^/]*$", re.IGNORECASE)
_TEXTS = (
    ("Apache License", "Apache-2.0"),
    ("Permission is hereby granted, free of charge", "MIT"),
    ("Redistribution and use in source and binary forms", "BSD"),
    ("Mozilla Public License", "MPL-2.0"),
)
"""How the text of a licence begins, for packages whose metadata names none."""
_LONGEST = 60
"""Most characters of a licence's name; some packages have the whole text in its place."""


class Package(NamedTuple):
    """One package that is installed with kairo-team, and its licence."""

    name: str
    version: str
    licence: str
    """"" where it cannot be found."""
    extras: tuple[str, ...]
    """The extras that bring it; none: every installation has it."""


def licence_of(name: str) -> str:
    """Return the licence of a package: as its metadata names it, else by the text it carries; "" for none."""
    about: Any = metadata(name)
    if expression := about.get("License-Expression"):
        return str(expression)
    classifiers = [
        one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or [] if one.startswith("License ::")
    ]
    named = [one for one in classifiers if one != "OSI Approved"]
    if named:
        return ", ".join(sorted(set(named)))
    field = " ".join(str(about.get("License") or "").split())
    if field and len(field) <= _LONGEST and field.upper() != "UNKNOWN":
        return field
    texts = [field, *(file.read_text() or "" for file in distribution(name).files or [] if _FILES.match(str(file)))]
    return next((short for begin, short in _TEXTS if any(begin in text for text in texts)), "")


def needed(extra: str | None) -> set[str]:
    """Return the names of all packages that kairo-team needs here with an extra, without those of kairo-team itself."""
    found: set[str] = set()
    queue = [(OURS, extra or "")]
    seen = set(queue)
    while queue:
        name, asked = queue.pop()
        for line in distribution(name).requires or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is not None and not marker.evaluate({"extra": asked}):
                continue
            inner = canonicalize_name(requirement.name)
            found.add(inner)
            for each in ("", *requirement.extras):
                if (inner, each) not in seen and _is_installed(inner):
                    seen.add((inner, each))
                    queue.append((inner, each))
    return found - {OURS}


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def packages() -> list[Package]:
    """Return every package of an installation with all extras here, by name."""
    pins = {
        pin["name"]: pin["version"]
        for pin in _PIN.finditer((ROOT / "constraints.txt").read_text("utf-8"))
        if _here(pin)
    }
    core = needed(None)
    by_extra = {extra: needed(extra) for extra in metadata(OURS).get_all("Provides-Extra") or [] if extra != "all"}
    names = core.union(*by_extra.values())
    return [
        Package(
            name,
            pins[name],
            licence_of(name),
            () if name in core else tuple(sorted(extra for extra, brought in by_extra.items() if name in brought)),
        )
        for name in sorted(names)
    ]


def _here(pin: re.Match[str]) -> bool:
    marker = pin["marker"]
    return marker is None or Marker(marker.strip()).evaluate()


def page(found: list[Package]) -> Iterator[str]:
    """Yield the lines of docs/licences.md."""
    yield "# Licences"
    yield ""
    yield "kairo-team is licensed under Apache-2.0. This page lists what all extras bring on Linux: the pinned versions"
    yield "of `constraints.txt`, and the licences that the packages name. None of them is in the wheel."
    yield ""
    yield "`python scripts/licences.py > docs/licences.md` writes this page. With `--sbom` the program prints it as a"
    yield "software bill of materials (CycloneDX 1.6)."
    yield ""
    yield "| package | version | licence | brought by |"
    yield "|---|---|---|---|"
    for one in found:
        yield f"| {one.name} | {one.version} | {one.licence} | {', '.join(one.extras) or 'every installation'} |"


def bill_of_materials(found: list[Package]) -> dict[str, Any]:
    """Return the same as a CycloneDX document."""
    about: Any = metadata(OURS)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(OURS, about["Version"], about["License-Expression"])},
        "components": [_component(one.name, one.version, one.licence) for one in found],
    }


def _component(name: str, version: str, licence: str) -> dict[str, Any]:
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"name": licence}}],
    }


def main() -> None:
    """Print the page, or the bill of materials."""
    found = packages()
    if "--sbom" in sys.argv[1:]:
        print(json.dumps(bill_of_materials(found), indent=2))
    else:
        print("\n".join(page(found)))


if __name__ == "__main__":
    main()
