"""What all nodes of one budget tree share: its clock, its lock, its halts and who is to be told of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kairo_team.clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kairo_team.governance.halts import Halt
    from kairo_team.governance.ledger import Node
    from kairo_team.governance.scope import GovernorScope
    from kairo_team.governance.waiting import Waiter


class Tree:
    """What all nodes of one tree share.

    `halts`, `final`, `scopes` and `waiters` are read and written without the lock, by single dictionary
    operations, so that a signal handler can stop the tree while its own thread holds the lock.
    """

    __slots__ = (
        "acquire",
        "clock",
        "final",
        "halts",
        "home",
        "lines",
        "lock",
        "overdrawn",
        "release",
        "scopes",
        "waiters",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self.home = clock if isinstance(clock, LoopClock) else None
        """The event loop this tree lives in, where the clock says so."""
        self.clock = self.home.read if self.home else clock
        self.lock = threading.RLock()
        self.acquire = self.lock.acquire
        self.release = self.lock.release
        self.halts: dict[Node, Halt] = {}
        """The first reason of each halted node."""
        self.final: dict[Node, Halt] = {}
        """Halts that no top-up lifts."""
        self.scopes: dict[GovernorScope, None] = {}
        """Scopes now open; a node that is stopped interrupts those in its subtree."""
        self.waiters: dict[Waiter, None] = {}
        """Callers of `hold` now waiting; any halt wakes those in its subtree."""
        self.lines: dict[tuple[Node, int], list[Waiter]] = {}
        """The same callers by the node and dimension they wait for, first come first."""
        self.overdrawn = False
        """A truth booked late has passed a limit somewhere: guarantees no longer prove that money is there."""

    def forget(self, node: Node) -> None:
        """Leave out a closed node and all below it; what is booked there late still goes up. Needs the lock."""
        if node.ended is None or node.parent is None or node.parent.children is None:
            return
        node.parent.children.pop(node.segment, None)
        for halts in (self.halts, self.final):
            for halted in [one for one in tuple(halts) if one.below(node)]:
                halts.pop(halted, None)
