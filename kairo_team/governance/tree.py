"""What all nodes of one budget tree share: its clock, its lock, its halts and who is to be told of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from kairo_team.clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kairo_team.governance.halts import Halt
    from kairo_team.governance.ledger import Node
    from kairo_team.governance.scope import GovernorScope
    from kairo_team.governance.waiting import Waiter

One = TypeVar("One")
Registry = dict["Node", dict[One, None]]
"""What is registered at each node; changed under the lock, read without it."""


class Tree:
    """What all nodes of one tree share.

    `halts`, `final` and `scopes` are read and written without the lock, by single dictionary operations, and the other
    registries are read without it, so that a signal handler can stop the tree while its own thread holds the lock.
    """

    __slots__ = (
        "acquire",
        "clock",
        "final",
        "halts",
        "home",
        "lines",
        "lock",
        "more_scopes",
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
        self.scopes: dict[Node, GovernorScope] = {}
        """The scope now open at each node; a node that is stopped interrupts those in its subtree."""
        self.more_scopes: Registry[GovernorScope] = {}
        """Scopes that were opened at a node while another one was open there."""
        self.waiters: Registry[Waiter] = {}
        """Callers of `hold` now waiting, by node; any halt wakes those in its subtree."""
        self.lines: dict[tuple[Node, int], list[Waiter]] = {}
        """The same callers by the node and dimension they wait for, first come first."""
        self.overdrawn = False
        """A truth booked late has passed a limit somewhere: guarantees no longer prove that money is there."""

    def join(self, registry: Registry[One], node: Node, one: One) -> None:
        """Register something at a node."""
        with self.lock:
            registry.setdefault(node, {})[one] = None

    def leave(self, registry: Registry[One], node: Node, one: One) -> None:
        """Take it out again; nothing happens when it is out already."""
        with self.lock:
            here = registry.get(node)
            if here is not None:
                here.pop(one, None)
                if not here:
                    del registry[node]

    def forget(self, node: Node) -> None:
        """Leave out a closed node and all below it; what is booked there late still goes up. Needs the lock."""
        if node.ended is None or node.parent is None or node.parent.children is None:
            return
        node.parent.children.pop(node.segment, None)
        for halts in (self.halts, self.final):
            for halted in [one for one in tuple(halts) if one.below(node)]:
                halts.pop(halted, None)
