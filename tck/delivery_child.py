"""The second process of the delivery kit."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future
from functools import reduce
from importlib import import_module
from typing import Any


def receive(module: str, kit: str, process: str, queue: str, hold: str) -> None:
    """Receive from a queue until standard input ends; print each delivery as a line.

    The kit class makes the engine. With `hold` no work ends. The environment has the database's URL.
    """
    made: Any = reduce(getattr, kit.split("."), import_module(module))
    delivery = made.make_delivery(os.environ["KAIRO_KIT_URL"])
    line = threading.Lock()

    def take(unit: str, fence: int) -> Future[None]:
        with line:
            sys.stdout.write(f"given {fence} {unit}\n")
            sys.stdout.flush()
        future: Future[None] = Future()
        if not hold:
            future.set_result(None)
        return future

    with delivery.receiving(process, [queue], 2, take):
        with line:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
        sys.stdin.read()
