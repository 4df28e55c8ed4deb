"""Wrong implementations and the clause by which a kit rejects each: the shape of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from kairo_team.tck import ContractTCK

K = TypeVar("K", bound=type[ContractTCK])
C = TypeVar("C", bound=type[Any])


class KitMutant(NamedTuple):
    """A wrong implementation in the hands of a kit."""

    rows: tuple[str, ...]
    """Known failures it is made from, such as `T06`; empty for one of our own making."""
    clause: str
    """The clause of its contract that the kit finds broken."""
    kit: type[ContractTCK]
    """A kit made for it; its docstring says in one line what goes wrong."""
    by: str = ""
    """Part of the name of the contract test that finds it, where others of the clause find something else wrong."""

    @property
    def tests(self) -> str:
        """What stands in the names of the contract tests that may find it."""
        return self.by or f"_c{int(self.clause[1:]):02}_"

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return self.kit.__name__

    @property
    def wrong(self) -> str:
        """What goes wrong with it, in one line."""
        return (self.kit.__doc__ or "").splitlines()[0].rstrip(".")


class Register(Protocol):
    """`@mutant("T06", clause="C11")`."""

    def __call__(self, *rows: str, clause: str, by: str = "") -> Callable[[K], K]: ...


class RegisterKind(Protocol):
    """The same for the class of a wrong implementation."""

    def __call__(self, *rows: str, clause: str) -> Callable[[C], C]: ...


def registry() -> tuple[list[KitMutant], Register]:
    """Return an empty list of mutants and the class decorator that fills it.

    `@mutant("T06", clause="C11")` stands above a kit made for a wrong implementation.
    """
    mutants: list[KitMutant] = []

    def mutant(*rows: str, clause: str, by: str = "") -> Callable[[K], K]:
        def register(kit: K) -> K:
            mutants.append(KitMutant(rows, clause, kit, by))
            return kit

        return register

    return mutants, mutant


def registry_of(*kits: Any) -> tuple[list[KitMutant], RegisterKind]:
    """Return an empty list of mutants, and the decorator of wrong implementations that fills it with their kits.

    The kit is the first of `kits` whose `kind` the wrong one is a subclass of, with that as its `kind`; it has its name
    and docstring.
    """
    mutants, register = registry()

    def mutant(*rows: str, clause: str) -> Callable[[C], C]:
        def make(kind: C) -> C:
            base = next(kit for kit in kits if issubclass(kind, kit.kind))
            kit: Any = type(kind.__name__, (base,), {"kind": kind, "__doc__": kind.__doc__})
            register(*rows, clause=clause)(kit)
            return kind

        return make

    return mutants, mutant
