"""What an edit of the governor's source is, and the state machines that notice many of them."""

from __future__ import annotations

from typing import NamedTuple

LAW = "test_law.py::TestGovernorLaw"
CROWD = "test_law.py::TestCrowdLawOnAsyncio"
TRIO = "test_law.py::TestCrowdLawOnTrio"


class Mutant(NamedTuple):
    """One edit of the source: `old`, found once in `file`, becomes `new`."""

    name: str
    wrong: str
    """What goes wrong with it, in one line."""
    file: str
    """A file below `kairo_team/`."""
    old: str
    new: str
    killed_by: tuple[str, ...]
    """Tests below `tests/governance/`, each of which fails with the edit."""
    waits: bool = False
    """Whether a killer only fails when it has waited for a minute or more."""
