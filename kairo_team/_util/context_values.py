"""Set context variables for the length of a block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def set_for(variable: ContextVar[T], value: T) -> Generator[T]:
    """Set a context variable inside the block, and yield its value there; afterwards it is as before."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
