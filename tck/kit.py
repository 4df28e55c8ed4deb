"""The base of every kit: contract tests, which name their clauses, and the rules for overriding them."""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial, wraps
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, TypeVar, cast

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from kairo_team._util.narrowing import is_several
from kairo_team.clauses import clauses_of
from kairo_team.testing.clocks import Backend, virtual_time, virtual_time_backends

P = ParamSpec("P")
K = TypeVar("K", bound="ContractTCK")
ContractTest = Callable[Concatenate[K, P], Awaitable[None]]

PATIENCE: Final = 3600.0
"""Seconds after which a contract test fails as hanging; of virtual time, if time is virtual."""
# Derandomized and without a database: a law draws the same in every run, and leaves no files.
_LAWS: Final = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # the phase `explain` takes many times as long as the others
)


class ContractTCK:
    """A contract kit: a class of contract tests that a subclass runs against its own implementation.

    A subclass overrides the kit's factory class methods, and declares the implementation's capabilities by the kit's
    class attributes; tests of missing capabilities are skipped. A contract test may be overridden only to mark it
    `@pytest.mark.xfail(reason=...)`; any other change fails the kit. The tests run on asyncio and on trio.
    """

    contract: ClassVar[type]
    """The protocol whose clauses the kit tests."""
    virtual_time: ClassVar[bool] = True
    """Whether time is virtual. False for an implementation that waits for worker threads or other processes."""
    backends: ClassVar[Sequence[str]] = virtual_time_backends
    """The event loops on which the implementation runs."""
    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.anyio]
    _items: ClassVar[Mapping[str, tuple[Any, str]]] = {}
    """The attributes that are lists, each with the kind of its items, for `isinstance` and in words."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the names of every subclass's overrides, and the arguments of its factories."""
        super().__init_subclass__(**options)
        if issubclass(cls, unittest.TestCase):
            raise TypeError(
                f"{cls.__name__}: a kit is run by pytest, and unittest would skip its tests without a word. Leave out "
                f"unittest.TestCase, or write a test method that asserts run_kit(...).ok"
            )
        guard = "test_every_contract_test_is_in_force"
        if guard in vars(cls):
            raise TypeError(f"{cls.__name__}.{guard} cannot be overridden: mark single contract tests as xfail")
        _check_spelling(cls)
        _check_factories(cls)
        _check_examples(cls, cls._items)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make every contract test once for each event loop in `backends`."""
        owner = next(kit for kit in type(self).__mro__ if "anyio_backend" in vars(kit))
        if "anyio_backend" in metafunc.fixturenames and owner is ContractTCK:  # another one brings its own event loops
            metafunc.parametrize("anyio_backend", self.backends, indirect=True)

    @pytest.fixture
    def anyio_backend(self, request: pytest.FixtureRequest) -> Backend:
        """Run every contract test on both event loops."""
        return self.backend(request.param)

    @classmethod
    def backend(cls, name: str) -> Backend:
        """Return a backend for anyio, in virtual time if `virtual_time`."""
        return virtual_time(name) if cls.virtual_time else (name, {})

    def test_every_contract_test_is_in_force(self) -> None:
        """No contract test is removed, or overridden without `@pytest.mark.xfail(reason=...)`."""
        changed = changed_tests(type(self))
        assert not changed, (
            f"{type(self).__name__} changes contract tests: {', '.join(changed)}. Leave them as they are; one that "
            "cannot pass yet is overridden with @pytest.mark.xfail(reason='...') and a call of super()"
        )


def clause(*numbers: str, needs: str | None = None) -> Callable[[ContractTest[K, P]], ContractTest[K, P]]:
    """Make an async method a contract test of these clauses.

    `needs` lists class attributes, separated by spaces; the test is skipped if one is false. The test fails after an
    hour.
    """

    def make(function: ContractTest[K, P]) -> ContractTest[K, P]:
        @wraps(function)
        async def contract_test(self: K, /, *args: P.args, **kwargs: P.kwargs) -> None:
            _check_capability(type(self), needs)
            try:
                with anyio.move_on_after(PATIENCE) as patience:
                    await function(self, *args, **kwargs)
                if patience.cancelled_caught:
                    raise TimeoutError(f"something hangs: it was not over after {PATIENCE:g} seconds")
            except Exception as error:
                _add_clauses(error, self.contract, numbers)
                raise

        cast("Any", contract_test).clauses = numbers
        return contract_test

    return make


def law(
    *numbers: str, needs: str | None = None, examples: int = 25, **drawn: SearchStrategy[Any]
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make an async method a contract test over drawn values; each example runs on both event loops."""

    def make(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        one = cast("Callable[..., Awaitable[None]]", clause(*numbers, needs=needs)(function))

        @settings(_LAWS, max_examples=examples)
        @given(**drawn)
        @wraps(function)
        def contract_law(self: ContractTCK, **values: Any) -> None:
            for name in self.backends:
                backend, options = self.backend(name)
                anyio.run(partial(one, self, **values), backend=backend, backend_options=options)

        cast("Any", contract_law).clauses = numbers
        return contract_law

    return make


def contract_tests(kit: type[ContractTCK]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the contract tests of a kit by name, each as first defined, without overrides."""
    found: dict[str, Callable[..., Any]] = {}
    for base in reversed(kit.__mro__):
        for name, member in vars(base).items():
            if name not in found and callable(member) and hasattr(member, "clauses"):
                found[name] = member
    yield from sorted(found.items())


def changed_tests(kit: type[ContractTCK]) -> list[str]:
    """Return the contract tests that a subclass removed, or overrode without an xfail reason."""
    return [name for name, function in contract_tests(kit) if not _in_force(kit, name, function)]


def _in_force(kit: type[ContractTCK], name: str, function: Callable[..., Any]) -> bool:
    now = getattr(kit, name, None)
    marks = [mark for mark in getattr(now, "pytestmark", ()) if isinstance(mark, pytest.Mark)]
    return now is function or any(mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks)


def _check_spelling(kit: type[ContractTCK]) -> None:
    """Raise `TypeError` for an attribute whose name is nearly one of the kit's."""
    # A misspelt override would have no effect.
    known = {name for base in kit.__mro__[1:] for name in vars(base) if not name.startswith(("_", "test_"))}
    for name in vars(kit).keys() - known:
        near = get_close_matches(name, known, n=1, cutoff=0.85)
        if near and not name.startswith(("_", "test_")):
            raise TypeError(f"{kit.__name__}.{name} is not an attribute of the kit; did you mean {near[0]!r}?")


def _check_factories(kit: type[ContractTCK]) -> None:
    """Raise `TypeError` for a class method that does not take what the kit gives it by name."""
    for name in vars(kit):
        asked = next((vars(base)[name] for base in kit.__mro__[1:] if name in vars(base)), None)
        if not isinstance(asked, classmethod):
            continue
        expected = inspect.signature(cast("Any", asked).__get__(None, kit))
        takes = inspect.signature(getattr(kit, name)).parameters
        by_name = [one.name for one in expected.parameters.values() if one.kind is one.KEYWORD_ONLY]
        lacking = next((one for one in by_name if one not in takes), None)
        if lacking is not None and not any(one.kind is one.VAR_KEYWORD for one in takes.values()):
            plain = (one.replace(annotation=one.empty) for one in expected.parameters.values())
            asked_for = inspect.Signature([inspect.Parameter("cls", inspect.Parameter.POSITIONAL_OR_KEYWORD), *plain])
            raise TypeError(
                f"{kit.__name__}.{name} lacks {lacking!r}, which the kit gives it by name: write {name}{asked_for}"
            )


def _check_examples(kit: type[ContractTCK], examples: Mapping[str, tuple[Any, str]]) -> None:
    """Raise `TypeError` for a list of the kit that has anything but its own kind of items."""
    for name, (kind, words) in examples.items():
        listed: Any = getattr(kit, name)
        if isinstance(listed, str):
            raise TypeError(f"{kit.__name__}.{name} must be a list, not the one string {listed!r:.80}: write [...]")
        for number, one in enumerate(listed if is_several(listed) else ()):  # a property has its items later
            if not isinstance(one, kind):
                raise TypeError(f"{kit.__name__}.{name}[{number}] must be {words}, not {one!r:.80}")


def _check_capability(kit: type[ContractTCK], needs: str | None) -> None:
    for name in (needs or "").split():
        if not getattr(kit, name):
            pytest.skip(f"{name} is {getattr(kit, name)!r}")


def _add_clauses(error: Exception, contract: type, numbers: tuple[str, ...]) -> None:
    for number in numbers:
        error.add_note(f"{contract.__name__} {number}. {clauses_of(contract)[number]}")


def make_it(kit: type[ContractTCK], signature: str) -> NotImplementedError:
    """Return the error for a factory that was not overridden."""
    return NotImplementedError(
        f"{kit.__name__} does not define what to test: override the class method {signature}, a fresh one each time"
    )
