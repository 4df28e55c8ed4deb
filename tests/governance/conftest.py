"""The helpers of this room: their asserts say as much as a test's, profiles for mutants, and packages with plug-ins."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

pytest.register_assert_rewrite("tests.governance.law", "tests.governance.crowd")

# A mutant has to fail once, soon; nobody reads the smallest example of how it failed.
settings.register_profile(
    "mutants",
    settings.get_profile("exhaustive"),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
)
# What a state machine draws depends on every constant of the library, so a kill may need another seed after an edit.
settings.register_profile("seeded", settings.get_profile("mutants"), derandomize=False, database=None)


@pytest.fixture
def published(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install packages, as pip would, that publish the `PLUGIN` of a test's module in its `GROUP` of entry points."""
    module: Any = request.node.module
    group, source = module.GROUP, module.PLUGIN

    def publish(package: str, module: str, **points: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name.replace('_', '-')} = {module}:{target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))

    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]  # pytest leaves it untyped
    importlib.invalidate_caches()
    return publish
