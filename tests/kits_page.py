"""Write the page of kits: `python -m tests.kits_page > docs/kits.md`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from kairo_team.clauses import promise_of
from kairo_team.cli.kit_parts import Capability, KitParts, parts_of
from kairo_team.plugins import KINDS

HEAD = """# Contracts and kits

What you write for each contract kit, and the clauses that it tests. `kairo plugins KIND --kit` prints the same, and
`kairo plugins KIND --kit --json` writes it for programs. [Write and test your own implementations](extending.md) has an
example of each.

A *factory* is a class method of your test class that makes what is tested. A *capability* is a class attribute; tests
of what is false or empty are skipped, with that reason. [What is supported](support.md#what-stays-and-what-may-change)
says what a version and a mark mean.

This page is written by `python -m tests.kits_page > docs/kits.md` from the kits and the protocols.
"""
OTHERS = {
    "Surrounding": ("kairo_team.contracts", "a subscriber that also wraps the work of a run"),
    "Tariff": ("kairo_team.governance.pricing", "the prices of one model's calls"),
    "Delivery": ("kairo_team.cluster.delivery", "an engine that delivers the work of a cluster; kit `DeliveryTCK`"),
}
"""Contracts that are not plug-in points: the module of each, and what implements it."""


def contracts_table() -> Iterator[str]:
    """Yield the table of all contracts."""
    yield "| contract | version and mark | kit | kind |"
    yield "|---|---|---|---|"
    for kind, point in KINDS.items():
        if point.promise is not None:
            mark = f"{point.promise.version}, {point.promise.stability}"
            yield f"| [{point.contract}](#{point.contract.lower()}) | {mark} | `{point.kit}` | `{kind}` |"
    for name, (module, what) in OTHERS.items():
        promise = promise_of(getattr(import_module(module), name))
        assert promise is not None, name
        yield f"| `{name}` | {promise.version}, {promise.stability} | | {what} |"


def capabilities(rows: list[Capability]) -> Iterator[str]:
    """Yield a table of capabilities."""
    yield "| capability | type | default | meaning |"
    yield "|---|---|---|---|"
    for one in rows:
        cells = (f"`{one.name}`", f"`{one.type}`", f"`{one.default}`", one.what)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def section(contract: str, parts: KitParts) -> Iterator[str]:
    """Yield the section of one kit."""
    yield f"## {contract}"
    factories = ["| factory of `" + parts.kit + "` | | what it does |", "|---|---|---|"]
    for one in parts.factories:
        signature = one.signature.replace("|", chr(92) + "|")
        factories.append(f"| `{signature}` | {one.when} | {one.what} |")
    yield "\n".join(factories)
    if parts.capabilities:
        yield "\n".join(capabilities(parts.capabilities))
    yield "\n".join(f"- **{number}.** {text}" for number, text in parts.clauses.items())


def page() -> str:
    """Write the whole page."""
    found = [(point.contract, parts) for point in KINDS.values() if (parts := parts_of(point))]
    blocks = [HEAD.rstrip(), "\n".join(contracts_table())]
    shared = "\n".join(capabilities(found[0][1].shared))
    blocks += ["## Every kit", shared]
    for contract, parts in found:
        blocks += section(contract, parts)
    return "\n\n".join(blocks)


if __name__ == "__main__":
    print(page())  # noqa: T201 - it is there to be printed
